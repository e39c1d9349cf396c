#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several processes of one slice against one, and sums over two processes against what carries them, in turn in one run.

  ./dev bench --processes

A step of models/transformer on v3-32, cut over four processes of one thread each, against one process of two threads; the
processor time of all of them, too. Sums over two processes, called from Python, and of 8 bytes in a loop of one program, also
less the steps of that loop, which are half of what one process takes that runs both parts:
through the memory that processes of one host share, against two processes that do nothing else (bench/lanes.c); and by TCP,
against two processes that swap halves of the same bytes through a connection and add them with NumPy; 64 MiB also in the same two
processes, once so and once so, 30 times, with the processor time of both. Where network namespaces
can be made, also a sum of 4 MiB beside products that do not need it, between two of them whose link delays packets by 20 ms: against
the times of both alone, added. Ratio = other time / vtpu time: above 1 vtpu is faster.
"""

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
from link import TwoHosts  # noqa: E402
ROUNDS = 3
SIZES = {8: 300, 1 << 16: 200, 1 << 20: 40, 1 << 26: 6}  # bytes: how often
START = """
import json, os, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
index, count = int(os.environ["BENCH_INDEX"]), int(os.environ["BENCH_COUNT"])
if count > 1:
    jax.distributed.initialize(os.environ["BENCH_COORDINATOR"], count, index)
"""
STEP = """
sys.path.insert(0, "transformer")
import train as model
config = model.Config(layers=4, width=256, heads=4, length=128, batch=32, steps=14, model_parallel=1)
mesh = Mesh(np.array(jax.devices()).reshape(-1, 1), ("data", "model"))
state = model.create_state(config)
state = jax.device_put(state, model.shardings(state, mesh))
step, key, text = jax.jit(model.train_step, donate_argnums=0), jax.random.key(1), model.load()
times = []
for i in range(config.steps):
    tokens = model.sample(text, config, i)
    tokens = jax.make_array_from_callback(tokens.shape, NamedSharding(mesh, P("data")), lambda at: tokens[at])
    begun, used = time.perf_counter(), time.process_time()
    state, loss = step(state, tokens, key)
    float(loss)
    times.append((time.perf_counter() - begun, time.process_time() - used))
print("said " + json.dumps([sorted(t[k] for t in times[2:])[(len(times) - 2) // 2] for k in range(2)]), flush=True)
"""
SUM = """
sizes = json.loads(os.environ["BENCH_SIZES"])
mesh = Mesh(np.array(jax.devices()).reshape(count, -1), ("process", "chip"))
total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, P()))
medians = {}
for size, often in sizes.items():
    n = int(size) // 4
    x = jax.make_array_from_callback((count, n), NamedSharding(mesh, P("process")), lambda at: np.ones((1, n), np.float32))
    times = []
    for _ in range(often + 2):
        begun = time.perf_counter()
        total(x).block_until_ready()
        times.append(time.perf_counter() - begun)
    medians[size] = sorted(times[2:])[often // 2]
print("said " + json.dumps(medians), flush=True)
"""
LOOP = """
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, [cores[index % len(cores)]])  # each on its own, as in lanes.c
mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("process", "chip"))
rounds = 2000
loop = jax.jit(lambda x: jax.lax.fori_loop(0, rounds, lambda _, x: x * 0.5 + x.sum(0, keepdims=True) * 0.25, x))
x = jax.make_array_from_callback((2, 2), NamedSharding(mesh, P("process")), lambda at: np.ones((1, 2), np.float32))
times = []
for _ in range(7):
    begun = time.perf_counter()
    loop(x).block_until_ready()
    times.append((time.perf_counter() - begun) / rounds)
print("said " + json.dumps(sorted(times[2:])[2]), flush=True)
"""

TURNS = """
sys.path.insert(0, BENCH)
import processes, resource, socket
port = int(os.environ["BENCH_PORT"])
if index == 0:
    connection = socket.create_server(("127.0.0.1", port)).accept()[0]
while index:
    try:
        connection = socket.create_connection(("127.0.0.1", port))
        break
    except OSError:
        time.sleep(0.05)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
n = 1 << 24
mesh = Mesh(np.array(jax.devices()).reshape(count, -1), ("process", "chip"))
total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, P()))
x = jax.make_array_from_callback((count, n), NamedSharding(mesh, P("process")), lambda at: np.ones((1, n), np.float32))
arrays = [np.ones(n, np.float32) for _ in range(3)]
def meet():
    connection.sendall(b"x")
    connection.recv(1)
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
rows = []
for _ in range(32):
    row = []
    for f in (lambda: total(x).block_until_ready(), lambda: processes.add_by_socket(connection, index == 0, *arrays)):
        meet()
        begun, before = time.perf_counter(), used()
        f()
        row.append(time.perf_counter() - begun)
        meet()
        row.append(used() - before)
    rows.append(row)
print("said " + json.dumps([sorted(r[k] for r in rows[2:])[15] for k in range(4)]), flush=True)
""".replace("BENCH)", repr(os.path.join(ROOT, "bench")) + ")")

BESIDE = """
mesh = Mesh(np.array(jax.devices()).reshape(count, -1), ("process", "chip"))
spec, everywhere = NamedSharding(mesh, P("process")), NamedSharding(mesh, P())
x, a = (jax.make_array_from_callback(shape, spec, lambda at: np.full((1, *shape[1:]), 1 / 512, np.float32))
        for shape in ((count, 1 << 20), (count, 512, 512)))
def products(a):
    for _ in range(24):
        a = jnp.sin(jnp.einsum("pij,pjk->pik", a, a))
    return a
medians = []
for f in (jax.jit(lambda x, a: x.sum(0), out_shardings=everywhere), jax.jit(lambda x, a: products(a)),
          jax.jit(lambda x, a: (x.sum(0), products(a)), out_shardings=(everywhere, spec))):
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        jax.block_until_ready(f(x, a))
        times.append(time.perf_counter() - begun)
    medians.append(sorted(times[2:])[3])
print("said " + json.dumps(medians), flush=True)
"""


def free_port():
    while True:
        port = random.SystemRandom().randrange(10000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def job(code, slice_name, count, threads, transport="auto", parts=0, places=None):
    """What each process says. `parts`: that one process runs. `places`: how to start each on its host, and its address."""
    places = places or [([], "localhost")] * count
    ports = [free_port() for _ in range(count + 1)]
    env = dict(os.environ, JAX_PLATFORMS="tpu,cpu", VTPU_ACCELERATOR_TYPE=slice_name, OMP_NUM_THREADS=str(threads),
               BENCH_COUNT=str(count), BENCH_COORDINATOR=f"{places[0][1]}:{ports[-1]}", MEGASCALE_COORDINATOR_ADDRESS="",
               MEGASCALE_NUM_SLICES="", MEGASCALE_SLICE_ID="", VTPU_TRANSPORT=transport, BENCH_SIZES=json.dumps(SIZES),
               BENCH_PORT=str(free_port()))
    if parts:
        env["VTPU_SPLIT"] = str(parts)
    if count > 1:
        env["TPU_PROCESS_ADDRESSES"] = ",".join(f"{at}:{port}" for (_, at), port in zip(places, ports))
    processes = [subprocess.Popen([*places[i][0], sys.executable, "-c", START + code], env=dict(env, BENCH_INDEX=str(i), CLOUD_TPU_TASK_ID=str(i)),
                                  cwd=os.path.join(ROOT, "models"), text=True, stdout=subprocess.PIPE) for i in range(count)]
    said = []
    for process in processes:
        lines = [line[5:] for line in process.communicate()[0].splitlines() if line.startswith("said ")]
        if process.returncode or not lines:
            sys.exit(f"a process of {slice_name} ended with {process.returncode}")
        said.append(json.loads(lines[0]))
    return said


def read(connection, into):
    view = memoryview(into).cast("B")
    while len(view):
        view = view[connection.recv_into(view):]


def swap(connection, out, into):
    """Both ways at once."""
    sender = threading.Thread(target=connection.sendall, args=(memoryview(out).cast("B"),)) if out.nbytes > 1 << 15 else None
    sender.start() if sender else connection.sendall(memoryview(out).cast("B"))
    read(connection, into)
    if sender:
        sender.join()


def add_by_socket(connection, first, x, other, result):
    """The sum over both ends: each adds its half, and the halves are swapped."""
    half = len(x) // 2
    here, there = (slice(half), slice(half, None)) if first else (slice(half, None), slice(half))
    swap(connection, x[there], other[here])
    np.add(x[here], other[here], out=result[here])
    swap(connection, result[here], result[there])


def sum_by_socket(connection, mine):
    medians = {}
    for size, often in SIZES.items():
        x, other, result = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32), np.empty(size // 4, np.float32)
        times = []
        for _ in range(often + 2):
            begun = time.perf_counter()
            add_by_socket(connection, mine, x, other, result)
            times.append(time.perf_counter() - begun)
        medians[str(size)] = statistics.median(times[2:])
    return medians


def sockets():
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if not child:
        with socket.create_connection(listener.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sum_by_socket(connection, False)
        os._exit(0)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    medians = sum_by_socket(connection, True)
    os.waitpid(child, 0)
    return medians


def lanes():
    return json.loads(subprocess.check_output([os.path.join(ROOT, "build/release/bench/lanes")]))


def beside():
    """The sum and the products alone, and both at once; None: no namespaces can be made."""
    hosts = TwoHosts(20, 0)
    try:
        said = None if hosts.why else job(BESIDE, "v4-16", 2, 1, "tcp", places=hosts.places())
    finally:
        hosts.end()
    return said and [max(times) for times in zip(*said)]


def main():
    steps, sums = [], {"shared memory": ([], []), "TCP": ([], [])}
    for _ in range(ROUNDS):
        one, four = job(STEP, "v3-32", 1, 2)[0], job(STEP, "v3-32", 4, 1)
        steps.append((one[0], max(p[0] for p in four), one[1], sum(p[1] for p in four)))
        for transport, alone, (ours, other) in zip(("auto", "tcp"), (lanes, sockets), sums.values()):
            ours.append(job(SUM, "v4-16", 2, 1, transport)[0])
            other.append(alone())
            loop, steps_of_it = job(LOOP, "v4-16", 2, 1, transport)[0], job(LOOP, "v4-16", 1, 1, parts=2)[0] / 2
            ours[-1] |= {"8 in a loop": loop, "8, its steps aside": loop - steps_of_it}
            other[-1] |= {"8 in a loop": other[-1]["8"], "8, its steps aside": other[-1]["8"]}
    middle = [statistics.median(row[k] for row in steps) for k in range(4)]
    print(f"{'row':<46}{'vtpu':>12}{'other':>12}{'ratio':>8}")
    print(f"{'step, 4 processes to 1':<46}{middle[1] * 1e3:>9.1f} ms{middle[0] * 1e3:>9.1f} ms{middle[0] / middle[1]:>8.2f}")
    print(f"{'  processor time':<46}{middle[3] * 1e3:>9.1f} ms{middle[2] * 1e3:>9.1f} ms{middle[2] / middle[3]:>8.2f}")
    for transport, rows in sums.items():
        for size in rows[1][0]:
            ours, other = (statistics.median(row[size] for row in side) for side in rows)
            print(f"{'sum by ' + transport + ', bytes ' + size:<46}{ours * 1e6:>9.1f} us{other * 1e6:>9.1f} us{other / ours:>8.2f}")
    turns = job(TURNS, "v4-16", 2, 1, "tcp")
    for row, ours, other in (("sum by TCP in turn, bytes 67108864", *turns[0][::2]),
                             ("  processor time", *(sum(said[k] for said in turns) for k in (1, 3)))):
        print(f"{row:<46}{ours * 1e6:>9.1f} us{other * 1e6:>9.1f} us{other / ours:>8.2f}")
    times = beside()
    if times:
        print(f"{'sum and products at once, 20 ms link':<46}{times[2] * 1e3:>9.1f} ms{(times[0] + times[1]) * 1e3:>9.1f} ms"
              f"{(times[0] + times[1]) / times[2]:>8.2f}  ({times[0] * 1e3:.1f} and {times[1] * 1e3:.1f})")
    else:
        print("sum and products at once: this machine makes no network namespaces with TUN devices")


if __name__ == "__main__":
    main()
