# SPDX-License-Identifier: Apache-2.0
"""Children of fork(): data loaders that never touch a device, and those that do. Each program has its own process:
jaxlib has threads too, and a child that exits normally waits for them on every platform, so these use os._exit, as
multiprocessing's children do."""

import pytest
from support import run_python

pytestmark = pytest.mark.usefixtures("tpu_only")

START = """
import multiprocessing, os, signal, sys, time
import jax, jax.numpy as jnp, numpy as np
x = jnp.ones((256, 256))
f = jax.jit(lambda x: jnp.tanh(x @ x).sum())
f(x).block_until_ready()

def refused(call):
    signal.alarm(60)  # ends a child that waits
    try:
        call()
    except Exception as error:
        return "forked from one that uses the TPU" in str(error)
    return False
"""


def test_loaders_that_use_numpy_live():
    run_python(START + """
def load(seed):
    return float(np.random.default_rng(seed).standard_normal((64, 64)).sum())
with multiprocessing.get_context("fork").Pool(2) as pool:
    for step in range(4):
        batch = pool.map(load, range(8))
        y = f(x + batch[0])
assert np.isfinite(float(y))
os._exit(0)
""")


@pytest.mark.parametrize("call", ["f(x)", "np.asarray(x)", "jnp.zeros(4)", "jax.device_put(np.ones(4))"])
def test_workers_that_use_the_device_are_refused(call):
    done = run_python(START + f"""
def work(ask):
    ask.put(refused(lambda: {call}))
context = multiprocessing.get_context("fork")
answer = context.Queue()
worker = context.Process(target=work, args=(answer,))
worker.start()
assert answer.get(timeout=120)
worker.join()
assert worker.exitcode == 0
assert float(f(x)) == 256 * 256
""")
    assert "forked from one that uses the TPU" in done.stderr


def test_a_compilation_is_refused_aloud():
    """jaxlib hands it to a thread that a child lacks, on every platform; the error is printed first."""
    run_python(START + """
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.dup2(write, 2)
    refused(lambda: jax.jit(lambda x: (x + 2).sum())(x))
    os._exit(0)
os.close(write)
assert b"forked from one that uses the TPU" in os.read(read, 4096)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
os._exit(0)
""")


def test_fork_before_the_first_use():
    run_python("""
import os, signal
import jax, jax.numpy as jnp
pid = os.fork()
if pid == 0:
    signal.alarm(240)
    os._exit(0 if float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((64, 64)))) == 64 ** 3 else 1)
assert os.waitpid(pid, 0)[1] == 0
assert float(jnp.ones(4).sum()) == 4
""")


def test_fork_and_exit():
    run_python(START + """
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    del x
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
import subprocess
assert subprocess.run(["/bin/true"]).returncode == 0
assert os.system("exit 0") == 0
assert float(f(x)) == 256 * 256
""")
