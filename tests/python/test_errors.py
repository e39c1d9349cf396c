# SPDX-License-Identifier: Apache-2.0
"""Bad input: each is an error that says what was wrong and where, and leaves the process usable."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import run_python

pytestmark = pytest.mark.usefixtures("tpu_only")
Error = jax.errors.JaxRuntimeError


def still_works():
    assert float(jnp.arange(4.0).sum()) == 6


def test_unknown_accelerator_type_names_near_ones():
    done = run_python("import jax; jax.devices()", VTPU_ACCELERATOR_TYPE="v3-9", check=False)
    assert done.returncode != 0
    assert "v3-9" in done.stderr and "v3-8" in done.stderr


def test_too_little_memory_on_the_host():
    done = run_python("""
        import resource
        import jax, jax.numpy as jnp
        ones = jax.jit(lambda: jnp.ones(1 << 30, jnp.float32))
        assert float(jax.jit(lambda x: x + 1)(1.0)) == 2
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 31), resource.RLIM_INFINITY))
        try:
            ones().sum().block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(float(jnp.arange(4.0).sum()))
    """)
    refused, after = done.stdout.splitlines()
    assert refused.startswith("RESOURCE_EXHAUSTED: out of host memory: ") and "smaller batch" in refused
    assert after == "6.0"


def test_program_that_needs_more_hbm_than_the_core_has():
    with pytest.raises(Error, match="RESOURCE_EXHAUSTED") as caught:
        jax.jit(lambda: jnp.zeros((70000, 70000), jnp.float32)).lower().compile()
    message = str(caught.value)
    assert "70000,70000" in message and "hbm" in message.lower()
    still_works()


def test_buffers_that_fill_hbm():
    device = jax.devices()[6]
    one = jnp.zeros((1 << 27,), jnp.float32, device=jax.devices()[5])
    held = []
    with pytest.raises(Error, match="RESOURCE_EXHAUSTED"):
        for _ in range(40):  # a core of a v3 has less than 16 GiB; the host keeps equal copies once
            held.append(jax.device_put(one, device))
            held[-1].block_until_ready()
    assert 10 < len(held) < 33
    with pytest.raises(Error, match="RESOURCE_EXHAUSTED"):
        jnp.zeros((1 << 27,), jnp.float32, device=device).block_until_ready()
    for array in held:
        array.delete()
    still_works()


def test_unknown_custom_call_names_itself_and_the_place():
    def user_function(x):
        return jax.ffi.ffi_call("no_such_kernel", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(Error, match="no_such_kernel") as caught:
        jax.jit(user_function)(jnp.ones(3)).block_until_ready()
    assert "UNIMPLEMENTED" in str(caught.value) and "test_errors.py" in str(caught.value)
    still_works()


def test_dynamic_shapes_are_refused_by_name():
    from jax import export

    shape = export.symbolic_shape("n")
    exported = export.export(jax.jit(lambda x: jnp.sin(x) + x.shape[0]), platforms=["tpu"])(
        jax.ShapeDtypeStruct(shape, jnp.float32)
    )
    client = jax.devices()[0].client
    from jaxlib import _jax as xla_client

    options = xla_client.CompileOptions()
    devices = xla_client.DeviceList((jax.devices()[0],))
    with pytest.raises(Exception, match="(?i)dynamic"):
        client.compile_and_load(exported.mlir_module_serialized, devices, options)
    still_works()


def test_wrong_shape_is_refused():
    compiled = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile()
    with pytest.raises(TypeError):
        compiled(jnp.ones(4))
    still_works()


def test_deleted_buffer():
    x = jnp.ones(3)
    x.delete()
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        jax.jit(lambda x: x + 1)(x)
    still_works()


def test_nan_check_finds_the_step():
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jax.jit(lambda x: jnp.log(x))(jnp.array(-1.0)).block_until_ready()
    still_works()


def test_interrupt_during_a_long_step():
    code = """
        import signal, sys, time
        import jax, jax.numpy as jnp
        assert jax.devices()[0].platform == "tpu"
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell start with it ignored
        step = jax.jit(lambda x: jax.lax.fori_loop(0, 400, lambda i, v: jnp.tanh(v @ v * 1e-3), x))
        x = jnp.ones((700, 700))
        jnp.sin(x).block_until_ready()
        print("ready", flush=True)
        try:
            while True:
                step(x).block_until_ready()
        except KeyboardInterrupt:
            print("interrupted", float(jnp.arange(4.0).sum()), flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert out == "interrupted 6.0\n" and process.returncode == 0


def test_fork_after_init_is_an_error_not_a_hang():
    code = """
        import os, sys
        import jax, jax.numpy as jnp
        x = jnp.ones(3)
        step = jax.jit(lambda x: x + 1)
        step(x).block_until_ready()
        child = os.fork()
        if child == 0:
            try:
                step(x).block_until_ready()
            except Exception as error:
                os.write(1, ("child: " + str(error)[:300] + "\\n").encode())
                os._exit(7)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("parent", os.waitstatus_to_exitcode(status), float(step(x).sum()))
    """
    done = run_python(code, timeout=60)
    assert "fork" in done.stdout and "parent 7 6.0" in done.stdout


def test_two_processes_at_once():
    code = "import jax, jax.numpy as jnp; print(jax.devices()[0].platform, float(jnp.ones(1000).sum()))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=120)[0] for process in running] == ["tpu 1000.0\n"] * 3


def test_library_loaded_twice(tmp_path):
    """A second copy in one process, as when two frameworks ship their own."""
    copy = shutil.copy(os.environ["TPU_LIBRARY_PATH"], tmp_path / "libtpu.so")
    code = """
        import ctypes, sys
        import jax, jax.numpy as jnp
        assert float(jnp.ones(10).sum()) == 10
        library = ctypes.CDLL(sys.argv[1])
        library.GetPjrtApi.restype = ctypes.c_void_p
        assert library.GetPjrtApi()
        print(float((jnp.ones(10) * 2).sum()))
    """
    assert run_python(code, str(copy)).stdout.strip() == "20.0"
