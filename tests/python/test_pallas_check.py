# SPDX-License-Identifier: Apache-2.0
"""VTPU_PALLAS_CHECK=N: kernels that are right pass with any N; each of twenty faults is found, and the message says where."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh, PartitionSpec as P

pytestmark = [pytest.mark.usefixtures("tpu_only"), pytest.mark.asan]
F32 = jnp.float32
ANY = pl.BlockSpec(memory_space=pl.ANY)
DMA = pltpu.SemaphoreType.DMA


def shaped(*dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


def numbers(*dims):
    return jnp.asarray(np.random.default_rng(0).standard_normal(dims), F32)


def doubling(fault=None):
    """Blocks are copied in and out by hand, with two buffers for each direction."""
    blocks = 6

    def kernel(x, o, inside, outside, arrived, left, zero):
        zero[0] = 0
        slot = lambda i: 0 if fault == "a buffer too few" else i % 2

        def fetch(i):
            rows = pl.ds(((i + 1 if fault == "a block too far" else i) + zero[0]) * 8, 8)
            return pltpu.make_async_copy(x.at[rows], inside.at[slot(i)], arrived.at[i % 2])

        def write(i):
            return pltpu.make_async_copy(outside.at[i % 2], o.at[pl.ds(i * 8, 8)], left.at[i % 2])

        fetch(0).start()
        for i in range(blocks):
            if i + 1 < blocks:
                fetch(i + 1).start()
                if fault == "started twice" and i == 2:
                    fetch(i + 1).start()
            if fault == "wait for another":
                fetch(min(i + 1, blocks - 1)).wait()
            elif not (fault == "no wait for input" and i == 3):
                fetch(i).wait()
            if fault == "waited twice" and i == 3:
                fetch(i).wait()
            if i >= 2 and fault != "no wait for output":
                write(i - 2).wait()
            outside[i % 2] = inside[i % 2 if fault != "a buffer too few" else 0] * 2
            write(i).start()
            if fault == "written while it is sent" and i == 4:
                outside[i % 2] = jnp.zeros((8, 128), F32)
        write(blocks - 2).wait()
        if fault != "no last wait":
            write(blocks - 1).wait()

    call = pl.pallas_call(kernel, shaped(48, 128), in_specs=[ANY], out_specs=ANY,
                          scratch_shapes=[pltpu.VMEM((2, 8, 128), F32)] * 2 + [DMA((2,))] * 2 +
                          [pltpu.SMEM((1,), jnp.int32)])
    return call, [numbers(48, 128)], lambda x: x * 2


def sums(fault=None, dtype=F32):
    """Rows are added up in scratch."""

    def kernel(x, o, acc, other):
        i = pl.program_id(1)

        @pl.when(i == 0)
        def _():
            if fault == "half filled":
                acc[0:16] = jnp.zeros((16, 128), dtype)
            elif fault != "not filled":
                acc[...] = jnp.zeros_like(acc)

        acc[0:32] += x[...]

        @pl.when(i == (pl.num_programs(1) if fault == "no result" else pl.num_programs(1) - 1))
        def _():
            o[...] = other[...] if fault == "the wrong scratch" else acc[0:32]
            if fault == "a choice":
                o[...] = jnp.where(other[...] > 0, o[...], 0)

    call = pl.pallas_call(kernel, shaped(64, 128, dtype=dtype), grid=(2, 3),
                          in_specs=[pl.BlockSpec((32, 128), lambda j, i: (j * 3 + i, 0))],
                          out_specs=pl.BlockSpec((32, 128), lambda j, i: (j, 0)),
                          scratch_shapes=[pltpu.VMEM((64, 128), dtype), pltpu.VMEM((32, 128), dtype)])
    return call, [(4 * numbers(192, 128)).astype(dtype)], lambda x: x.reshape(2, 3, 32, 128).sum(1)


def ring(fault=None):
    """Blocks go around four devices in three steps, into two buffers by turns; a device tells its left neighbour when a
    buffer is free."""
    devices, steps = 4, 3

    def kernel(x, o, buffers, send, receive, free):
        me = jax.lax.axis_index("x")
        right, before = (me + 1) % devices, (me + devices - 1) % devices
        if fault == "a wrong neighbour":
            right = jnp.minimum(me + 1, devices - 1)
        buffers[0] = x[...]
        o[...] = x[...]
        if fault == "no barrier":
            buffers[1] = x[...]  # when the neighbour's block may have arrived
        else:
            barrier = pltpu.get_barrier_semaphore()
            to = me if fault == "a signal to itself" else before
            pl.semaphore_signal(barrier, 2 if fault == "a signal too many" else 1, device_id=to)
            if fault == "a signal to itself":
                pl.semaphore_signal(barrier, 1, device_id=right)
            pl.semaphore_wait(barrier, 3 if fault == "a wait for too much" else 1)
        for i in range(steps):
            here, there = i % 2, (i + 1) % 2
            if i and fault != "no word that it is free":
                pl.semaphore_wait(free, 1)
            copy = pltpu.make_async_remote_copy(buffers.at[here], buffers.at[there], send.at[here], receive.at[there],
                                                device_id=(right,))
            copy.start()
            if fault == "no wait for the neighbour" and i == 1:
                copy.wait_send()
            elif fault == "no wait until it is sent" and i == 1:
                copy.wait_recv()
            else:
                copy.wait()
            o[...] += buffers[there]
            if fault == "changed while it is sent" and i == 1:
                buffers[here] = o[...]
            if i + 1 < steps and fault != "no word that it is free":
                pl.semaphore_signal(free, 1, device_id=before)

    def call(x):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
        inner = pl.pallas_call(kernel, shaped(8, 128), scratch_shapes=[
            pltpu.VMEM((2, 8, 128), F32), DMA((2,)), DMA((2,)), pltpu.SemaphoreType.REGULAR],
            compiler_params=pltpu.CompilerParams(collective_id=None if fault == "no barrier" else 3))
        return jax.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)(x)

    return call, [numbers(32, 128)], lambda x: np.tile(x.reshape(4, 8, 128).sum(0), (4, 1))


FAULTS = [
    (doubling, "a buffer too few", "race"),
    (doubling, "a block too far", "out of bounds"),
    (doubling, "started twice", "race"),
    (doubling, "wait for another", "race"),
    (doubling, "no wait for input", "race"),
    (doubling, "waited twice", "deadlock"),
    (doubling, "no wait for output", "race"),
    (doubling, "written while it is sent", "race"),
    (doubling, "no last wait", "never waited for"),
    (sums, "not filled", "uninitialised"),
    (sums, "half filled", "uninitialised"),
    (sums, "no result", "uninitialised"),
    (sums, "the wrong scratch", "uninitialised"),
    (ring, "a wrong neighbour", "race|deadlock"),
    (ring, "no barrier", "race"),
    (ring, "a signal too many", "semaphore holds"),
    (ring, "a wait for too much", "deadlock"),
    (ring, "no word that it is free", "race"),
    (ring, "no wait for the neighbour", "race|semaphore holds"),
    (ring, "no wait until it is sent", "race|never waited|semaphore holds"),
]


def run(make, fault, monkeypatch, seed):
    monkeypatch.setenv("VTPU_PALLAS_CHECK", str(seed))
    call, args, want = make(fault)
    got = jax.jit(call).lower(*args).compile()(*args)
    return np.asarray(got), want(np.asarray(args[0])).reshape(got.shape)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("make", [doubling, sums, ring], ids=lambda make: make.__name__)
def test_what_is_right_passes(make, seed, monkeypatch):
    got, want = run(make, None, monkeypatch, seed)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make, fault, message", FAULTS, ids=[f"{make.__name__}: {fault}" for make, fault, _ in FAULTS])
def test_a_fault_is_found(make, fault, message, monkeypatch):
    for seed in (1, 2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=message) as error:
            run(make, fault, monkeypatch, seed)
        assert "kernel" in str(error.value)
        if "uninitialised" not in message:
            assert "test_pallas_check.py:" in str(error.value), str(error.value)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int16, jnp.bfloat16, F32])
@pytest.mark.parametrize("fault", ["not filled", "half filled", "no result", "the wrong scratch", "a choice"])
def test_unwritten_memory_of_any_type(fault, dtype, monkeypatch):
    make = functools.partial(sums, dtype=dtype)
    got, want = run(make, None, monkeypatch, 1)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(got.dtype).astype(np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="uninitialised") as error:
        run(make, fault, monkeypatch, 1)
    if jnp.issubdtype(dtype, jnp.integer) and fault != "no result":
        assert "test_pallas_check.py:" in str(error.value), str(error.value)
        assert "at point (0, 2) of the grid" in str(error.value), str(error.value)


def test_a_way_that_depends_on_unwritten_memory(monkeypatch):
    def kernel(x, o, flag):
        o[...] = x[...]

        @pl.when(flag[0] == 1)
        def _():
            o[...] = x[...] * 2

    def make(fault):
        call = pl.pallas_call(kernel, shaped(8, 128), scratch_shapes=[pltpu.SMEM((1,), jnp.int32)])
        return call, [numbers(8, 128)], None

    with pytest.raises(jax.errors.JaxRuntimeError, match="whether .*test_pallas_check.py:.* is reached"):
        run(make, None, monkeypatch, 1)
