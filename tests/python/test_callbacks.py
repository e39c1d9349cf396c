# SPDX-License-Identifier: Apache-2.0
"""Programs that call back into Python while they run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from support import run_python

pytestmark = pytest.mark.asan


def test_pure_callback():
    def host(x):
        return np.sort(x) * 2

    @jax.jit
    def function(x):
        return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 3) + 1

    np.testing.assert_array_equal(np.asarray(function(jnp.array([3.0, 1.0, 2.0]))), [7, 13, 19])


def test_debug_print(capfd):
    @jax.jit
    def function(x):
        jax.debug.print("value {x}", x=x)
        return x + 1

    function(jnp.float32(4)).block_until_ready()
    jax.effects_barrier()
    assert "value 4.0" in capfd.readouterr().out


def test_ordered_io_callback_in_a_loop():
    seen = []

    def host(i):
        seen.append(int(i))
        return np.int32(i * i)

    @jax.jit
    def function(n):
        return jax.lax.fori_loop(0, n, lambda i, s: s + io_callback(host, jax.ShapeDtypeStruct((), jnp.int32), i,
                                                                   ordered=True), 0)

    assert int(function(6)) == 55
    assert seen == list(range(6))


def test_an_exception_in_a_callback_reaches_the_caller():
    """In a separate process: JAX keeps the failed effect and reports it again at each wait for effects."""
    code = """
        import jax, jax.numpy as jnp
        def host(x):
            raise ValueError("not this one")
        try:
            jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(host, x, x))(jnp.ones(3)))
        except Exception as error:
            print("not this one" in str(error), float(jnp.ones(3).sum()))
    """
    assert run_python(code).stdout.strip() == "True 3.0"


def test_a_blocking_launch_ends_before_its_call_returns():
    code = """
        import jax, jax.numpy as jnp, time

        def host(x):
            time.sleep(0.1)
            if x < 0:
                raise ValueError("below zero")
            print("inside", x, flush=True)
            return x

        @jax.jit
        def function(x):
            return jax.pure_callback(host, jax.ShapeDtypeStruct((), jnp.float32), x), x + 1

        for value in 1.0, -1.0, 2.0:
            try:
                results = function(value)
                print("after", all(result.is_ready() for result in results), flush=True)
            except (ValueError, jax.errors.JaxRuntimeError) as error:  # JAX's two ways of dispatch differ
                print("raised", "below zero" in str(error), flush=True)
    """
    done = run_python(code, VTPU_LAUNCH_BLOCKING="1")
    assert done.stdout.splitlines() == ["inside 1.0", "after True", "raised True", "inside 2.0", "after True"]


def test_callback_with_sharded_arguments():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    x = jax.device_put(np.arange(16.0, dtype=np.float32), NamedSharding(mesh, P("data")))
    total = []

    @jax.jit
    def function(x):
        jax.debug.callback(lambda v: total.append(float(v)), x.sum())
        return x * 2

    np.testing.assert_array_equal(np.asarray(function(x)), np.arange(16.0) * 2)
    jax.effects_barrier()
    assert total == [120.0]
