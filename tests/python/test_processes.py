# SPDX-License-Identifier: Apache-2.0
"""Several processes, each with its share of a slice, as on the hosts of a pod: they compute what one process computes, bit
for bit, and a process that is gone, hangs or runs another program ends the others with its name."""

import http.server
import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from link import TwoHosts
from support import MODELS

pytestmark = pytest.mark.usefixtures("tpu_only")

# Slices by name: hosts, and how processes divide the chips where there is one host only.
SLICES = {
    "v4-16": (2, {}),
    "v3-32": (4, {}),
    "v3-8": (4, {"TPU_PROCESS_BOUNDS": "2,2,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}),
    "v4-8": (4, {"TPU_PROCESS_BOUNDS": "2,2,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}),  # a device each
    "v5litepod-8": (2, {"TPU_PROCESS_BOUNDS": "1,2,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1"}),
}
START = """
import json, os, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
index, count = int(os.environ["TEST_INDEX"]), int(os.environ["TEST_COUNT"])
if os.environ["TEST_COORDINATOR"] and count > 1:
    jax.distributed.initialize(os.environ["TEST_COORDINATOR"], count, index, initialization_timeout=120)
assert (jax.process_index(), jax.process_count()) == (index, count)
def say(**values):
    print("said " + json.dumps(values), flush=True)
if count == 1 and os.environ.get("VTPU_SPLIT", "1") != "1":  # devices in the order that several processes have them
    by_hosts = sorted(jax.devices(), key=lambda d: (d.coords[2], d.coords[1] // 2, d.coords[0] // 2, d.id))
    jax.devices = lambda: by_hosts
"""


def free_ports(count):
    """Below those that the kernel hands out: nobody's outgoing connection takes one in between."""
    ports = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(10000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    return ports


class Job:
    """Processes of one slice. `codes`: a text for all, or one for each. `places`: how to start each on its host, and the
    host's address."""

    def __init__(self, slice_name, codes, count=None, start=START, places=None, **environment):
        hosts, grid = SLICES[slice_name]
        self.count = hosts if count is None else count
        codes = [codes] * self.count if isinstance(codes, str) else codes
        ports = free_ports(self.count + 1)
        places = places or [([], "localhost")] * self.count
        base = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_PROCESS", "TPU_WORKER", "MEGASCALE", "CLOUD_TPU"))}
        base.update(VTPU_ACCELERATOR_TYPE=slice_name, TEST_COUNT=str(self.count), TEST_COORDINATOR=f"{places[0][1]}:{ports[-1]}",
                    OMP_NUM_THREADS="1", MEGASCALE_COORDINATOR_ADDRESS="", MEGASCALE_NUM_SLICES="", MEGASCALE_SLICE_ID="")
        if self.count > 1:
            base.update(grid, TPU_PROCESS_ADDRESSES=",".join(f"{at}:{port}" for (_, at), port in zip(places, ports)))
        base.update({name: str(value) for name, value in environment.items()})
        self.processes = []
        for i, code in enumerate(codes):
            text = textwrap.dedent(start) + textwrap.dedent(code)
            env = dict(base, TEST_INDEX=str(i), CLOUD_TPU_TASK_ID=str(i))
            self.processes.append(subprocess.Popen([*places[i][0], sys.executable, "-c", text], env=env, text=True, cwd=MODELS,
                                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def wait_for_words(self, index):
        """The next thing that a process says."""
        for line in self.processes[index].stdout:
            if line.startswith("said "):
                return json.loads(line[5:])
        raise AssertionError(f"process {index} said nothing\n{self.processes[index].stderr.read()[-3000:]}")

    def end(self, timeout=200):
        """The exit code, the words and the errors of each."""
        try:
            outputs = [process.communicate(timeout=timeout) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        return [(process.returncode, [json.loads(line[5:]) for line in out.splitlines() if line.startswith("said ")], errors)
                for process, (out, errors) in zip(self.processes, outputs)]

    def said(self, timeout=200):
        ended = self.end(timeout)
        for i, (code, _, errors) in enumerate(ended):
            assert code == 0, f"process {i} ended with {code}\n{errors[-3000:]}"
        return [words for _, words, _ in ended]


MNIST = """
sys.path.insert(0, "mnist")
import train as mnist
mnist.evaluate = lambda *_: 0.0  # its batches of 1,000 do not divide by 32 devices
result = mnist.train(mnist.Config(steps=12, batch=64, quiet=True))
leaves = [np.asarray(leaf).tobytes().hex()[:64] for leaf in jax.tree.leaves(result.state.params)]
say(losses=[loss.hex() for loss in result.losses], leaves=leaves)
"""
TRANSFORMER = """
sys.path.insert(0, "transformer")
import train as model
config = model.Config(layers=2, width=64, heads=4, length=32, batch=16, steps=6, model_parallel=2)
mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("data", "model"))
state = model.create_state(config)
state = jax.device_put(state, model.shardings(state, mesh))
step, key, text = jax.jit(model.train_step, donate_argnums=0), jax.random.key(1), model.load()
losses = []
for i in range(config.steps):
    tokens = model.sample(text, config, i)
    sharding = NamedSharding(mesh, P("data"))
    tokens = jax.make_array_from_callback(tokens.shape, sharding, lambda at: tokens[at])
    state, loss = step(state, tokens, key)
    losses.append(float(loss).hex())
say(losses=losses)
"""


@pytest.mark.parametrize("slice_name", ["v4-16", "v3-32"])
@pytest.mark.parametrize("model", [MNIST, TRANSFORMER], ids=["mnist", "transformer"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "gathered"])
def test_losses_are_those_of_one_process(slice_name, model, cut):
    """Cut, the processes add as one process does that is cut into as many parts; gathered, as one that is whole."""
    parts = SLICES[slice_name][0] if cut else 1
    alone = Job(slice_name, model, count=1, VTPU_SPLIT=parts).said()
    together = Job(slice_name, model, VTPU_SPLIT=parts).said()
    assert all(words == alone[0] for words in together)


MANUAL = """
import hashlib
from jax import lax
devices = len(jax.devices())
mesh = Mesh(np.array(jax.devices()).reshape(devices // 2, 2), ("x", "y"))
def put(value, spec):
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda at: value[at])
rng = np.random.default_rng(1)
a = rng.standard_normal((devices * 4, 96), dtype=np.float32)
w = rng.standard_normal((96, 64), dtype=np.float32)
said = {}
def see(name, tree):
    said[name] = [[str(s.index), hashlib.sha1(np.asarray(s.data).tobytes()).hexdigest()] for leaf in jax.tree.leaves(tree) for s in leaf.addressable_shards]
def run(name, body, in_specs, out_specs, *args, **options):
    mapped = jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)
    see(name, jax.jit(mapped)(*[put(x, s) for x, s in zip(args, in_specs)]))
both = P(("x", "y"))
n = devices // 2
run("sums", lambda v: (lax.psum(v, ("x", "y")), lax.psum(v, "x"), lax.psum(v, "y"), lax.pmax(v, "x")), (both,), (P(), P("y"), P("x"), P("y")), a)
run("large sum", lambda v: lax.psum(jnp.tile(v, (256, 9)) * lax.axis_index("x"), ("x", "y")), (both,), P(), a)
run("large rows", lambda v: (lax.psum(jnp.tile(v, (64, 8)), "x"), lax.psum(jnp.tile(v, (64, 8)), "y")), (both,), (P("y"), P("x")), a)
run("gather", lambda v: (lax.all_gather(v, "x", tiled=True), lax.all_gather(v, "y", axis=1)), (both,), (P("y"), P("x")), a, check_vma=False)
run("scatter", lambda v: lax.psum_scatter(jnp.tile(v, (n, 1)), "x", tiled=True), (both,), both, a)
run("all to all", lambda v: lax.all_to_all(jnp.tile(v, (n, 1)), "x", 0, 1, tiled=True), (both,), both, a)
run("permute", lambda v: lax.ppermute(v, "x", [(i, (i + 1) % n) for i in range(n - 1)]), (both,), both, a)
run("index", lambda v: v + lax.axis_index("x") * 10 + lax.axis_index("y"), (both,), both, a)
def loop(v):
    step = lambda i, c: lax.cond(i % 2 == 0, lambda: lax.ppermute(c, "x", [(k, (k + 1) % n) for k in range(n)]) * 0.5, lambda: c + lax.pmean(c, "y"))
    return lax.fori_loop(0, 5, step, v)
run("loop", loop, (both,), both, a)
def auto(v, w):
    return lax.psum(v @ w, "x")
partly = jax.shard_map(auto, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), axis_names={"x"})
see("partly manual", jax.jit(partly)(put(a, P("x", "y")), put(w, P(None, "y"))))
def train(w, a):
    def loss(w, a):
        return lax.pmean(jnp.mean(jnp.tanh(a @ w) ** 2), ("x", "y"))
    grad = jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(P(), both), out_specs=P())(w, a)
    return w - 0.1 * grad * jnp.sqrt(jnp.sum(grad * grad))
step, w = jax.jit(train, donate_argnums=0), put(w, P())
for _ in range(3):
    w = step(w, put(a, both))
see("train", w)
say(**said)
"""


@pytest.mark.parametrize("slice_name", ["v4-16", "v3-8", "v4-8"])
def test_manual_computations_are_cut(slice_name):
    """Their collectives add in the order of devices: the bits are those of one process, cut into as many parts or whole."""
    parts = SLICES[slice_name][0]
    whole = Job(slice_name, MANUAL, count=1).said()[0][0]
    alone = Job(slice_name, MANUAL, count=1, VTPU_SPLIT=parts).said()[0][0]
    ended = Job(slice_name, MANUAL, VTPU_LOG="info").end()
    for code, words, errors in ended:
        assert code == 0, errors[-3000:]
        assert "runs whole in each process" not in errors, errors[-3000:]
        for name, shards in words[0].items():
            assert all(shard in alone[name] for shard in shards), name
            assert name in ("partly manual", "train") or all(shard in whole[name] for shard in shards), name


FOUND = """
mesh = Mesh(np.array(jax.devices()), ("x",))
d = len(jax.devices())
x = jax.make_array_from_callback((d,), NamedSharding(mesh, P("x")), lambda at: np.arange(d, dtype=np.float32)[at])
say(sum=float(jax.jit(jnp.sum)(x)), here=len(jax.local_devices()))
"""


BESIDE = """
mesh = Mesh(np.array(jax.devices()), ("x",))
spec, n = NamedSharding(mesh, P("x")), len(jax.devices())
def make(shape, seed):
    whole = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return jax.make_array_from_callback(shape, spec, lambda at: whole[at])
x, a = make((n, 1 << 18), 1), make((n, 160, 160), 2)
def products(a):
    for _ in range(6):
        a = jnp.sin(jnp.einsum("pij,pjk->pik", a, a))
    return a
def written(x, a):
    total = jax.lax.psum(x, "x")
    return total * 2, products(a), jax.lax.psum(total[:, :9] * a[0, 0, 0], "x")
def turn(_, state):
    x, a = state
    return x - x.mean(0, keepdims=True) * a[0, 0, 0], products(a)
for name, f in dict(sum=lambda x, a: (x.sum(0) * 2, products(a)), loop=lambda x, a: jax.lax.fori_loop(0, 3, turn, (x, a)),
                    written=jax.shard_map(written, mesh=mesh, in_specs=P("x"), out_specs=P("x"))).items():
    results = jax.jit(f, out_shardings=(NamedSharding(mesh, P()), spec) if name == "sum" else None)(x, a)
    say(of=name, bits=[sorted((s.device.id, np.asarray(s.data).tobytes().hex()[:200]) for s in r.addressable_shards) for r in results])
"""


@pytest.mark.parametrize("transport", ["auto", "tcp", "ucx"])
@pytest.mark.parametrize("slice_name", ["v4-16", "v3-8"])
def test_collectives_go_on_beside_products(slice_name, transport):
    """The bits of one process that does one after the other."""
    several = Job(slice_name, BESIDE, VTPU_TRANSPORT=transport).said()
    for k, one in enumerate(Job(slice_name, BESIDE, count=1, VTPU_SPLIT=len(several)).said()[0]):
        for words in several:
            assert words[k]["of"] == one["of"]
            for mine, all_of_it in zip(words[k]["bits"], one["bits"]):
                assert mine and all(shard in all_of_it for shard in mine)


@pytest.mark.parametrize("slice_name, plugin", [("v4-16", "named"), ("v3-8", "wheel")])
def test_jax_tells_processes_where_they_are(slice_name, plugin):
    """No variable has addresses: processes find each other by the key-value store of jax.distributed. JAX offers it to a
    plugin with a name of its own; our wheel's is JAX's own backend, tpu."""
    environment = {"TPU_PROCESS_ADDRESSES": "", "CLOUD_TPU_TASK_ID": ""}
    start = START
    if plugin == "named":
        environment |= {"PJRT_NAMES_AND_LIBRARY_PATHS": "vtpu:" + os.environ["TPU_LIBRARY_PATH"], "JAX_PLATFORMS": "vtpu,cpu"}
    else:
        start = START.replace("assert (jax", "from vtpu.jax_plugin import tell_process\ntell_process()\nassert (jax")
    devices, count = {"v4-16": 8, "v3-8": 8}[slice_name], SLICES[slice_name][0]
    for words in Job(slice_name, FOUND, start=start, **environment).said():
        assert words == [{"sum": sum(range(devices)), "here": devices // count}]


DIFFERING = """
mesh = Mesh(np.array(jax.devices()), ("x",))
d = len(jax.devices())
x = jax.make_array_from_callback((d,), NamedSharding(mesh, P("x")), lambda at: np.arange(d, dtype=np.float32)[at])
y = jax.jit(jax.shard_map(lambda v: v[0] * 2 + 1, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False))(x)
z = jax.jit(jax.shard_map(lambda v, y: v + y, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), check_vma=False))(x, y)
for shard in z.addressable_shards:
    np.testing.assert_array_equal(shard.data, np.arange(d, dtype=np.float32)[shard.index] * 3 + 1)
jax.jit(jax.shard_map(lambda v: None, mesh=mesh, in_specs=P("x"), out_specs=None))(x)
three = jax.jit(jax.shard_map(lambda: jnp.zeros(4) + 3, mesh=mesh, in_specs=(), out_specs=P("x")))()
assert all((np.asarray(shard.data) == 3).all() for shard in three.addressable_shards)
say(done=True)
"""


def test_each_device_keeps_its_own_value():
    """Where the program says that all hold the same: such values are not cut, and whoever reads them is not either."""
    for words in Job("v3-8", DIFFERING).said():
        assert words[0]["done"]


@pytest.fixture
def two_hosts():
    made = []

    def make(delay_ms, loss):
        made.append(TwoHosts(delay_ms, loss))
        if made[-1].why:
            pytest.skip(made[-1].why)
        return made[-1]

    yield make
    for hosts in made:
        hosts.end()


SIZES = """
import hashlib
n = len(jax.devices())
mesh = Mesh(np.array(jax.devices()), ("x",))
by_rows, by_columns, everywhere = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P())
operations = {
    "all_reduce": jax.jit(lambda x: x.sum(0), out_shardings=everywhere),
    "reduce_scatter": jax.jit(lambda x: x.sum(0), out_shardings=by_rows),
    "all_gather": jax.jit(lambda x: x * 2, out_shardings=everywhere),
    "all_to_all": jax.jit(lambda x: x + 1, out_shardings=by_columns),
    "permute": jax.jit(jax.shard_map(lambda x: jax.lax.ppermute(x, "x", [(i, (i + 3) % n) for i in range(n)]), mesh=mesh,
                                     in_specs=P("x"), out_specs=P("x"))),
}
for log2, names in {3: operations, 14: operations, 21: operations, 24: ["all_reduce"]}.items():
    x = np.random.default_rng(log2).standard_normal((n, 1 << log2), np.float32)
    x = jax.make_array_from_callback(x.shape, by_rows, lambda at: x[at])
    for name in names:
        shards = sorted((s.device.id, hashlib.sha256(np.asarray(s.data)).hexdigest()) for s in operations[name](x).addressable_shards)
        say(of=f"{name} of {n} x {4 << log2} bytes", shards=shards)
"""


# Losing is rare in truth: the third link loses more than any that people would keep.
@pytest.mark.parametrize("delay_ms, loss, code, transport",
                         [(1, 0.01, SIZES, "tcp"), (1, 0.01, MNIST, "tcp"), (20, 0.05, MNIST, "tcp"), (1, 0.01, SIZES, "ucx")],
                         ids=["sizes", "mnist", "mnist-worse", "sizes-ucx"])
def test_two_hosts_whose_link_loses_packets(two_hosts, delay_ms, loss, code, transport):
    """The bits of processes that lose nothing."""
    good = Job("v4-16", code, VTPU_SPLIT=2).said()
    # Processes of one machine would share memory, whatever their network.
    bad = Job("v4-16", code, places=two_hosts(delay_ms, loss).places(), VTPU_SPLIT=2, VTPU_TRANSPORT=transport,
              UCX_TLS="tcp")
    assert bad.said(timeout=600) == good  # one packet of twenty lost is slow by TCP


@pytest.mark.parametrize("transport", ["tcp", "ucx"])
def test_two_hosts_whose_link_ends(two_hosts, transport):
    """No host is told: each finds out by the other's silence, and ends with its name."""
    hosts = two_hosts(1, 0.01)
    job = Job("v4-16", LOOP, places=hosts.places(), VTPU_TRANSPORT=transport, UCX_TLS="tcp")
    for i in range(job.count):
        job.wait_for_words(i)
    hosts.cut()
    for i, (code, words, errors) in enumerate(job.end()):  # TCP by itself would try for a quarter of an hour
        assert code == 0, f"process {i}: {code}\n{errors[-3000:]}"
        assert f"process {1 - i} (host 10.99.7.{2 - i}" in words[-1]["error"] and "no sign of life" in words[-1]["error"]


class Metadata(http.server.ThreadingHTTPServer):
    """The metadata server of one worker."""

    def __init__(self, attributes):
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                value = attributes.get(self.path.removeprefix("/computeMetadata/v1/instance/attributes/"))
                good = value is not None and self.headers["Metadata-Flavor"] == "Google"
                self.send_response(200 if good else 404)
                self.send_header("Metadata-Flavor", "Google")
                self.end_headers()
                self.wfile.write(value.encode() if good else b"")

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()


WHO = """
say(local=[d.id for d in jax.local_devices()], slices=sorted({getattr(d, "slice_index", 0) for d in jax.devices()}),
    sum=float(jax.jit(lambda x: x.sum())(jax.device_put(np.ones(len(jax.devices()), np.float32),
                                                        NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))))))
"""


@pytest.mark.parametrize("slices", [1, 2])
def test_the_metadata_server_says_who_is_who(slices):
    """Nothing in the environment does: it is that of a shell after sudo, or of a container. Two hosts, of one slice or two."""
    kind = "v4-16" if slices == 1 else "v4-8"
    hosts, servers = [f"127.0.0.{i + 2}" for i in range(2)], []
    endpoints = [",".join(f"t1v-{host}:99:{host}" for host in hosts)] * 2 if slices == 1 else hosts
    for i in range(2):
        variables = {"ACCELERATOR_TYPE": kind, "WORKER_ID": i if slices == 1 else 0}
        if slices == 2:
            variables.update(MEGASCALE_NUM_SLICES=2, MEGASCALE_SLICE_ID=i, MEGASCALE_COORDINATOR_ADDRESS=hosts[0])
        servers.append(Metadata({"worker-network-endpoints": endpoints[i],
                                 "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in variables.items())}))
    port = free_ports(1)[0]
    unset = ["env", *(word for name in ("VTPU_ACCELERATOR_TYPE", "TPU_PROCESS_ADDRESSES", "CLOUD_TPU_TASK_ID", "MEGASCALE_NUM_SLICES",
                                        "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS") for word in ("-u", name)),
             f"TPU_PROCESS_PORT={port}"]
    places = [([*unset, f"GCE_METADATA_HOST=127.0.0.1:{server.server_port}"], "localhost") for server in servers]
    # JAX says that there is no metadata server where it sees no PCI devices of a TPU.
    start = START.replace("index, count", "os.environ.pop('TPU_SKIP_MDS_QUERY', None)\nindex, count", 1)
    try:
        said = Job("v4-16", WHO, places=places, start=start).said()
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    local = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert said == [[{"local": local[i], "slices": list(range(slices)), "sum": 8.0}] for i in range(2)]


EVERYTHING = """
from jax.experimental import multihost_utils
devices = jax.devices()
say(devices=[(d.id, d.process_index, d.coords, d.core_on_chip) for d in devices], local=[d.id for d in jax.local_devices()],
    hardware=[d.local_hardware_id for d in jax.local_devices()])
assert multihost_utils.process_allgather(np.array([index])).tolist() == [[i] for i in range(count)]
assert multihost_utils.broadcast_one_to_all(np.array(7 + index)) == 7
multihost_utils.sync_global_devices("here")
multihost_utils.assert_equal(np.arange(3))
mesh = Mesh(np.array(devices), ("x",))
by_x, everywhere = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
n = len(devices)
mine = np.arange(4 * len(jax.local_devices()), dtype=np.float32).reshape(-1, 4) + 1000 * index
x = jax.make_array_from_process_local_data(by_x, mine)
total = jax.jit(lambda x: x.sum(0), out_shardings=everywhere)(x)
whole = multihost_utils.process_allgather(x, tiled=True)
np.testing.assert_array_equal(total, whole.sum(0))
# one host's devices alone, between runs of all
here = jax.jit(lambda v: jnp.sin(v) * index)(jnp.ones(4))
y = jax.device_put(np.arange(n * 2.0, dtype=np.float32), by_x)
shift = jax.jit(jax.shard_map(lambda v: jax.lax.ppermute(v, "x", [(i, (i + 1) % n) for i in range(n)]), mesh=mesh, in_specs=P("x"),
                              out_specs=P("x")))
shifted = multihost_utils.process_allgather(shift(y), tiled=True)
np.testing.assert_array_equal(shifted, np.roll(np.arange(n * 2.0), 2))
# devices in an order that is no product of processes
odd = Mesh(np.array(devices[1:] + devices[:1])[::-1].copy(), ("x",))
z = jax.device_put(np.arange(n * 2.0, dtype=np.float32), NamedSharding(odd, P("x")))
np.testing.assert_array_equal(multihost_utils.process_allgather(jax.jit(lambda v: v * 2)(z), tiled=True), np.arange(n * 2.0) * 2)
# from the first device of process 0 to the last of all
source, target = devices[0], devices[-1]
sent = jax.device_put(jax.device_put(np.arange(6.0), jax.sharding.SingleDeviceSharding(source)), jax.sharding.SingleDeviceSharding(target))
if target.process_index == index:
    np.testing.assert_array_equal(sent, np.arange(6.0))
# donated arguments, and results that stay where they are
f = jax.jit(lambda a, b: (a * 2 + b.sum(), b - a.mean()), donate_argnums=0)
a, b = x, y
for _ in range(5):
    a, b = f(a, b)
say(bits=[np.asarray(s.data).tobytes().hex() for s in a.addressable_shards], of=[s.device.id for s in a.addressable_shards])
say(end=True)
"""


@pytest.mark.parametrize("slice_name", list(SLICES))
def test_arrays_over_processes(slice_name):
    said = Job(slice_name, EVERYTHING).said()
    assert all(words[-1] == {"end": True} for words in said)
    first = said[0][0]["devices"]
    assert all(words[0]["devices"] == first for words in said)
    local = [words[0]["local"] for words in said]
    assert sorted(sum(local, [])) == sorted(device[0] for device in first)
    assert all(words[0]["hardware"] == list(range(len(words[0]["local"]))) for words in said)
    if slice_name == "v3-32":
        assert local[0] == [0, 1, 2, 3, 8, 9, 10, 11]


CALLBACKS = """
mesh = Mesh(np.array(jax.devices()), ("x",))
seen = []
def note(i, v):
    seen.append(int(i))
    return np.float32(v) * 3
def body(v):
    r = jax.experimental.io_callback(note, jax.ShapeDtypeStruct((), np.float32), jax.lax.axis_index("x"), v[0], ordered=False)
    return v + r
import jax.experimental
f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
x = jax.device_put(np.arange(len(jax.devices()), dtype=np.float32), NamedSharding(mesh, P("x")))
y = f(x)
for shard in y.addressable_shards:
    np.testing.assert_array_equal(shard.data, np.arange(len(jax.devices()), dtype=np.float32)[shard.index] * 4)
jax.effects_barrier()
say(seen=sorted(seen), local=sorted(d.id for d in jax.local_devices()))
"""


def test_callbacks_run_where_their_device_is():
    for code, words, errors in Job("v3-8", CALLBACKS, VTPU_LOG="info").end():
        assert code == 0, errors[-3000:]
        assert words[0]["seen"] == words[0]["local"]
        assert "runs whole in each process: host callbacks" in errors


CHECKPOINT = """
import orbax.checkpoint as ocp
mesh = Mesh(np.array(jax.devices()), ("x",))
x = np.arange(64, dtype=np.float32).reshape(-1, 2)
state = {"w": jax.make_array_from_callback(x.shape, NamedSharding(mesh, P("x")), lambda at: x[at]),
         "b": jax.device_put(np.arange(3.0, dtype=np.float32), NamedSharding(mesh, P()))}
keeper = ocp.StandardCheckpointer()
keeper.save(os.environ["TEST_PATH"], state)
keeper.wait_until_finished()
shapes = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=v.sharding), state)
back = keeper.restore(os.environ["TEST_PATH"], shapes)
for shard in back["w"].addressable_shards:
    np.testing.assert_array_equal(shard.data, x[shard.index])
np.testing.assert_array_equal(back["b"], np.arange(3))
say(files=len(os.listdir(os.environ["TEST_PATH"])) > 0)
"""


def test_orbax_saves_and_restores(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    assert Job("v3-32", CHECKPOINT, TEST_PATH=tmp_path / "state").said() == [[{"files": True}]] * 4


# ---- what goes wrong --------------------------------------------------------------------------------

LOOP = """
mesh = Mesh(np.array(jax.devices()), ("x",))
x = jax.device_put(np.ones((len(jax.devices()), 64), np.float32), NamedSharding(mesh, P("x")))
@jax.jit
def train_step(x):
    return jax.lax.with_sharding_constraint(x - x.mean() + jnp.flip(x, 0), NamedSharding(mesh, P("x")))
error = ""
started = time.time()
say(started=True)
try:
    while time.time() - started < 120:
        x = train_step(x).block_until_ready()
        x = jax.device_put(np.ones((len(jax.devices()), 64), np.float32), NamedSharding(mesh, P("x")))
except Exception as e:
    error = str(e)
say(error=error)
os._exit(0)
"""


def check_errors(job, gone, *texts):
    """All but process `gone` end with an error that has one of the texts."""
    for i, (code, words, errors) in enumerate(job.end(timeout=100)):
        if i == gone:
            continue
        assert code == 0, f"process {i}: {code}\n{errors[-3000:]}"
        error = words[-1]["error"]
        assert any(text in error for text in texts), f"process {i}: {error}"


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_a_killed_process_is_named(gone):
    job = Job("v3-8", LOOP)
    for i in range(job.count):
        job.wait_for_words(i)
    job.processes[gone].kill()
    check_errors(job, gone, f"process {gone} (host localhost")


def test_a_stopped_process_is_named():
    job = Job("v4-16", LOOP)
    for i in range(job.count):
        job.wait_for_words(i)
    os.kill(job.processes[1].pid, signal.SIGSTOP)
    try:
        out, _ = job.processes[0].communicate(timeout=60)
    finally:
        for process in job.processes:
            process.kill()
    assert "process 1 (host localhost" in out and "no sign of life" in out


@pytest.mark.parametrize("differs_in", ["op", "constant"])
def test_different_programs_are_named(differs_in):
    other = """
    mesh = Mesh(np.array(jax.devices()), ("x",))
    x = jax.make_array_from_callback((len(jax.devices()),), NamedSharding(mesh, P("x")), lambda at: np.ones(1, np.float32))
    def step_a(x):
        return x + 1
    def step_b(x):
        return DIFFERENT
    try:
        jax.jit(step_b if index == 1 else step_a)(x).block_until_ready()
        say(error="")
    except Exception as e:
        say(error=str(e))
    """
    for code, words, errors in Job("v3-8", other.replace("DIFFERENT", "x - 1" if differs_in == "op" else "x + 2")).end():
        assert code == 0, errors[-3000:]
        error = words[-1]["error"]
        assert "different programs" in error and "jit_step_a" in error and "jit_step_b" in error and "process 1 (host" in error


def test_source_lines_do_not_matter():
    lines = ["\n" * (3 * i) + """
mesh = Mesh(np.array(jax.devices()), ("x",))
x = jax.device_put(np.arange(len(jax.devices()), dtype=np.float32), NamedSharding(mesh, P("x")))
say(sum=float(jax.jit(lambda x: x.sum())(x)))
""" for i in range(2)]
    assert Job("v4-16", lines).said() == [[{"sum": 28.0}]] * 2


def test_a_process_that_never_comes_is_named():
    job = Job("v4-16", ["import jax; jax.devices()", "pass"], start="", VTPU_JOIN_TIMEOUT=3)
    (_, _, errors), _ = job.end()
    assert "process 1 did not come in 3 s" in errors or "process 1 (host localhost) did not come in 3 s" in errors


@pytest.mark.parametrize("seed", range(20))
def test_random_kills_end_with_the_name(seed):
    """A kill at any moment, from start-up to the middle of a run: no hang, no wrong result, always the name. Without
    jax.distributed, which has its own limits: processes find each other all the same."""
    choose = random.Random(seed)
    job = Job(choose.choice(["v4-16", "v3-8"]), LOOP, TEST_COORDINATOR="", VTPU_JOIN_TIMEOUT=20,
              VTPU_TRANSPORT="ucx" if seed % 4 == 3 else "auto")
    gone = choose.randrange(job.count)
    if choose.random() < 0.7:
        job.wait_for_words(gone)
    time.sleep(choose.random() * (2 if choose.random() < 0.5 else 0.1))
    job.processes[gone].kill()
    for i, (code, words, errors) in enumerate(job.end(timeout=100)):
        if i == gone:
            continue
        error = words[-1]["error"] if words and "error" in words[-1] else errors
        assert f"process {gone} " in error, f"process {i}, without {gone}: {code}\n{error[-2000:]}"
