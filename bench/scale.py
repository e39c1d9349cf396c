#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far the engine between processes would carry: a model of it, fitted to sums over 2, 4 and 8 processes of one machine, and
asked about more hosts than there are. docs/how-to/scale.md says what it assumes.

  ./dev bench --scale              what the model says, from the measurements in bench/scale.json
  ./dev bench --scale --measure    measures on this machine first, and writes bench/scale.json
"""

import collections
import dataclasses
import json
import os
import platform
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MEASURED = os.path.join(HERE, "scale.json")


def constant(path, name):
    """An enumerator of the engine, from where it is defined: 256, or 1 << 19."""
    with open(os.path.join(ROOT, "src", path)) as file:
        found = re.search(rf"\b{name} = (\d+)(?: << (\d+))?[,\s]", file.read())
    return int(found[1]) << int(found[2] or 0)


WHOLE = constant("eval/collective.h", "WHOLE_BYTES")
SHARE = constant("eval/collective.h", "SHARE_BYTES")
EAGER = constant("runtime/crossing_blocks.c", "EAGER_BYTES")
PROCESSES_MOST = constant("distributed/join.h", "VT_PROCESSES_MOST")

# Several meetings of the same kind, one after the other: each process gives each other one a block, and takes one.
Meetings = collections.namedtuple("Meetings", "times block")


def meetings(operation, size, processes):
    """What a collective is made of, as src/eval/collective_part.c makes it; `size`: bytes of the operand of a process."""
    if operation in ("all_to_all", "reduce_scatter"):
        return [Meetings(1, size / processes)]
    if operation == "all_gather" or size <= WHOLE:
        return [Meetings(1, size)]
    if operation != "all_reduce":
        raise ValueError(operation)
    pieces, rest = divmod(size, SHARE * processes)
    found = [Meetings(2 * int(pieces), SHARE)] if pieces else []
    return found + ([Meetings(2, rest / processes)] if rest else [])


# ---- the engine -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Engine:
    """Processor time in seconds, of all processes together: of a meeting for each process, of a message from its sender to its
    receiver, of a byte of it (copied at both ends, and added)."""

    meeting: float
    message: float
    byte: float

    def processor_time(self, operation, size, processes):
        total = 0.0
        for m in meetings(operation, size, processes):
            messages = processes * (processes - 1)
            total += m.times * (processes * self.meeting + messages * (self.message + m.block * self.byte))
        return total


def fit(rows):
    """The engine whose relative errors are least in squares. No part of it takes less than nothing."""
    units = [Engine(1, 0, 0), Engine(0, 1, 0), Engine(0, 0, 1)]
    a = np.array([[unit.processor_time("all_reduce", row["bytes"], row["processes"]) / row["processor"] for unit in units] for row in rows])
    used = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(a[:, used], np.ones(len(rows)), rcond=None)[0]
        if (found >= 0).all():
            values = [0.0, 0.0, 0.0]
            for k, value in zip(used, found):
                values[k] = float(value)
            return Engine(*values)
        used.pop(int(found.argmin()))


def load(path=MEASURED):
    with open(path) as file:
        return json.load(file)


def engine_of(measured, transport):
    return fit([row for row in measured["sums"] if row["transport"] == transport])


# ---- hosts ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Network:
    """Each host has one link, of that many bytes in a second each way, into a switch that is never short of them."""

    name: str
    latency: float
    rate: float


NETWORKS = [Network("10 Gb/s", 30e-6, 1.1e9), Network("25 Gb/s", 20e-6, 2.8e9), Network("100 Gb/s", 10e-6, 11e9)]


def meet(begin, block, engine, network):
    """When each process has what it takes, by when each begins. A message is an event at its sender and one at its receiver,
    which reads it as it comes; at both they queue. A process gives to the others in the order of their numbers, so all give
    to process 0 first."""
    n = len(begin)
    work = (engine.message + block * engine.byte) / 2  # at each end: the executor sends, a thread receives
    each = max(work, block / network.rate)
    order = np.arange(n) - (np.arange(n) > np.arange(n)[:, None])  # [sender, receiver]: the how-manieth message
    start = np.broadcast_to(begin[:, None], (n, n))
    if block > EAGER:  # sent when the receiver has said that it waits for it
        start = np.maximum(start, begin[None, :] + network.latency)
    arrival = start + order * each + network.latency
    np.fill_diagonal(arrival, -np.inf)
    arrival.sort(axis=0)
    # The last of a queue has been served when all but the first k have been, after the k-th came.
    served = (arrival[1:] + np.arange(n - 1, 0, -1)[:, None] * each).max(axis=0)
    return np.maximum(served, begin + (n - 1) * each) + engine.meeting


def run(begin, operation, size, engine, network):
    for m in meetings(operation, size, len(begin)):
        if m.times > 8:  # all alike, once they have begun together
            first = meet(begin, m.block, engine, network)
            begin = first + (m.times - 1) * (meet(first, m.block, engine, network) - first).max()
        else:
            for _ in range(m.times):
                begin = meet(begin, m.block, engine, network)
    return begin


def efficiency(hosts, engine, network, compute=1.0, noise=0.02, arrays=16, size=25e6, steps=6, beside=True):
    """Steps that compute for `compute` seconds, and add up `arrays` of `size` bytes over all hosts; the hosts' times differ by
    `noise`. `beside`: one array after the other is there in the last two thirds of the time, and is added up beside the rest;
    otherwise all are at its end. The part of the time that is spent computing."""
    if hosts == 1:
        return 1.0
    now = np.zeros(hosts)
    for step in range(steps):
        took = compute * np.maximum(0.0, 1 + noise * np.random.default_rng(step).standard_normal(hosts))
        end, added = now + took, now
        for k in range(arrays):
            there = now + took * (1 / 3 + 2 / 3 * (k + 1) / arrays) if beside else end
            added = run(np.maximum(added, there), "all_reduce", size, engine, network)
        now = np.maximum(added, end)
    return compute * steps / now.max()


# ---- measuring ------------------------------------------------------------------------------------

SIZES = {8: 1000, 1 << 12: 1000, 1 << 16: 300, 1 << 20: 40, 1 << 24: 6}  # bytes: how often in a run
SUMS = """
rows, mesh = {}, Mesh(np.array(jax.devices()).reshape(count, -1), ("process", "chip"))
for size, rounds in json.loads(os.environ["BENCH_SIZES"]).items():
    n = int(size) // 4
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, rounds, lambda _, x: x * 0.5 + x.sum(0, keepdims=True) * 0.25, x))
    x = jax.make_array_from_callback((count, n), NamedSharding(mesh, P("process")), lambda at: np.ones((1, n), np.float32))
    times = []
    for _ in range(6):
        begun, used = time.perf_counter(), time.process_time()
        loop(x).block_until_ready()
        times.append(((time.perf_counter() - begun) / rounds, (time.process_time() - used) / rounds))
    rows[size] = [min(t[0] for t in times[1:]), sorted(t[1] for t in times[1:])[2]]
print("said " + json.dumps(rows), flush=True)
"""
GRIDS = {1: ("1,1,1", "2,4,1"), 2: ("1,2,1", "2,2,1"), 4: ("2,2,1", "1,2,1"), 8: ("2,4,1", "1,1,1")}


def measure():
    import processes

    processes.SIZES = SIZES

    def job(code, count, transport):
        grid, chips = GRIDS[count]
        os.environ.update(TPU_PROCESS_BOUNDS=grid, TPU_CHIPS_PER_PROCESS_BOUNDS=chips)
        return processes.job(code, "v5litepod-8", count, 1 if count > 1 else os.cpu_count(), transport)

    sums, steps = [], []
    for transport in ("auto", "tcp"):
        for count in (2, 4, 8):
            said = job(SUMS, count, transport)
            for size in SIZES:
                rows = [one[str(size)] for one in said]
                sums.append({"transport": transport, "processes": count, "bytes": size, "wall": max(row[0] for row in rows),
                             "processor": sum(row[1] for row in rows)})
    for count in GRIDS:
        said = job(processes.STEP, count, "auto")
        steps.append({"processes": count, "wall": max(one[0] for one in said), "processor": sum(one[1] for one in said)})
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    measured = {"machine": f"{model[1] if model else platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[1]:.0f}",
                "sums": sums, "steps": steps}
    with open(MEASURED, "w") as file:
        head = json.dumps(measured["machine"])
        lists = ",\n".join(f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in measured[name]) + "\n]" for name in ("sums", "steps"))
        file.write(f'{{"machine": {head},\n{lists}}}\n')


# ---- what it says ---------------------------------------------------------------------------------


def main():
    if "--measure" in sys.argv[1:]:
        measure()
    measured = load()
    print(measured["machine"])
    print(f"\n{'step of the transformer':<28}{'wall':>10}{'processor time':>17}")
    for row in measured["steps"]:
        print(f"{row['processes']:>2} processes{'':<16}{row['wall'] * 1e3:>7.0f} ms{row['processor'] * 1e3:>14.0f} ms")
    for transport, name in (("auto", "shared memory"), ("tcp", "TCP")):
        engine = engine_of(measured, transport)
        print(f"\n{name}: {engine.meeting * 1e6:.1f} us for a meeting, {engine.message * 1e6:.1f} us for a message, "
              f"{engine.byte * 1e9:.2f} ns for a byte")
        print(f"{'sums, processor time':<28}{'measured':>12}{'model':>12}{'model / measured':>19}{'measured wall':>16}")
        for row in (row for row in measured["sums"] if row["transport"] == transport):
            model = engine.processor_time("all_reduce", row["bytes"], row["processes"])
            print(f"{row['processes']} processes, {row['bytes']:>8} bytes{'':<2}{row['processor'] * 1e6:>9.0f} us{model * 1e6:>9.0f} us"
                  f"{model / row['processor']:>19.2f}{row['wall'] * 1e6:>13.0f} us")
    engine, hosts = engine_of(measured, "tcp"), (2, 8, 64, 256, PROCESSES_MOST)
    many = {"arrays": 160, "size": 2.5e6, "steps": 2}
    for what, more in (("400 MB in 16 arrays", {}), ("400 MB in 160 arrays", many), ("the 16 at the end", {"beside": False}),
                       ("the 160 at the end", many | {"beside": False})):
        print(f"\n{'efficiency, ' + what:<32}" + "".join(f"{n:>7}" for n in hosts) + " hosts")
        for network in NETWORKS:
            print(f"{network.name:<32}" + "".join(f"{efficiency(n, engine, network, **more):>7.2f}" for n in hosts))
    print(f"(the engine connects up to {PROCESSES_MOST})")


if __name__ == "__main__":
    main()
