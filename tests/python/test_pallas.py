# SPDX-License-Identifier: Apache-2.0
"""Pallas kernels compiled for the plugin, against the same function in jax.numpy or JAX's interpreter of kernels."""

import datetime
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from support import run_python, tree_close

pytestmark = [pytest.mark.usefixtures("tpu_only"), pytest.mark.asan]
F32, I32, BF16 = jnp.float32, jnp.int32, jnp.bfloat16


def shaped(dims, dtype=F32):
    return jax.ShapeDtypeStruct(dims, dtype)


def numbers(*dims, dtype=F32, seed=0):
    values = np.random.default_rng(seed).standard_normal(dims) * 4
    return jnp.asarray(values).astype(dtype)


def spec(memory_space):
    return pl.BlockSpec(memory_space=memory_space)


def add_kernel(x, y, o):
    o[...] = x[...] + y[...]


DTYPES = [F32, BF16, I32, jnp.uint32, jnp.int16, jnp.int8, jnp.uint8, jnp.float8_e4m3fn]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: jnp.dtype(d).name)
def test_add(dtype):
    x, y = numbers(32, 128, dtype=dtype), numbers(32, 128, dtype=dtype, seed=1)
    if jnp.dtype(dtype).itemsize == 1:  # no arithmetic on the chip
        wide = F32 if dtype == jnp.float8_e4m3fn else I32
        def kernel(x, y, o):
            o[...] = (x[...].astype(wide) + y[...].astype(wide)).astype(o.dtype)
        want = (x.astype(wide) + y.astype(wide)).astype(dtype)
    else:
        kernel, want = add_kernel, x + y
    got = jax.jit(pl.pallas_call(kernel, shaped(x.shape, dtype)))(x, y)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def matmul_kernel(x, y, o, acc, *, precision):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=F32, precision=precision)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o[...] = acc[...].astype(o.dtype)


def matmul(x, y, precision=None, block=128):
    m, k, n = x.shape[0], x.shape[1], y.shape[1]
    return pl.pallas_call(
        functools.partial(matmul_kernel, precision=precision),
        shaped((m, n)),
        grid=(m // block, n // block, k // block),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, j, k: (i, k)),
            pl.BlockSpec((block, block), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((block, block), F32)],
    )(x, y)


def test_matmul_rounds_to_bf16_unless_told():
    x, y = numbers(256, 384), numbers(384, 256, seed=1)
    exact = np.asarray(x, np.float64) @ np.asarray(y, np.float64)
    rounded = np.asarray(x.astype(BF16), np.float64) @ np.asarray(y.astype(BF16), np.float64)
    np.testing.assert_allclose(jax.jit(matmul)(x, y), rounded, rtol=1e-4, atol=1e-3)
    highest = functools.partial(matmul, precision=jax.lax.Precision.HIGHEST)
    np.testing.assert_allclose(jax.jit(highest)(x, y), exact, rtol=1e-4, atol=1e-3)


def test_matmul_of_integers():
    x = jnp.asarray(np.random.default_rng(0).integers(-128, 127, (128, 256)), jnp.int8)

    def kernel(x, o):
        o[...] = jax.lax.dot_general(x[...], x[...], (((1,), (1,)), ((), ())), preferred_element_type=I32)

    wide = np.asarray(x, np.int64)
    np.testing.assert_array_equal(pl.pallas_call(kernel, shaped((128, 128), I32))(x), wide @ wide.T)


def doubled(rows, block, **options):
    def kernel(x, o):
        o[...] = x[...] * 2
    blocks = pl.BlockSpec((block, 1024), lambda i: (i, 0), **options)
    return jax.jit(pl.pallas_call(kernel, shaped((rows, 1024)), grid=(rows // block,), in_specs=[blocks], out_specs=blocks))


def test_memory_that_no_core_has_is_refused():
    x = shaped((4096, 1024))
    doubled(4096, 512).lower(x).compile()  # 8 MiB: two blocks of 2 MiB, twice
    with pytest.raises(jax.errors.JaxRuntimeError, match="Ran out of memory in memory space vmem") as error:
        doubled(4096, 2048).lower(x).compile()
    for text in ("Scoped allocation with size 32.00M and limit 16.00M exceeded scoped vmem limit by 16.00M",
                 "input window allocation for operator input 0. The window shape is f32[2048,1024], while the full shape is "
                 "f32[4096,1024]. This allocation has 2 buffering levels."):
        assert text in str(error.value)
    doubled(4096, 2048, pipeline_mode=pl.Buffered(1)).lower(x).compile()
    doubled(2048, 2048).lower(shaped((2048, 1024))).compile()  # its blocks stay


def test_internal_scratch_counts_as_vmem():
    params = pltpu.CompilerParams(internal_scratch_in_bytes=16 << 20)
    call = pl.pallas_call(add_kernel, shaped((8, 128)), compiler_params=params)
    with pytest.raises(jax.errors.JaxRuntimeError, match="limit 16.00M exceeded(.|\n)*16.00M: internal scratch"):
        call(numbers(8, 128), numbers(8, 128))


TWO_CORES = """
import functools
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def kernel(first, x, o, buffer, done):
    copy = pltpu.make_async_copy(x.at[pl.ds(pl.program_id(0) // 2 * 8, 8)], buffer, done)
    pl.when(first[0] == 1)(copy.start)
    pl.when(first[0] == 1)(copy.wait)
    first[0] = 0
    o[...] = buffer[...] + pl.program_id(0).astype(jnp.float32)

grid = pltpu.PrefetchScalarGridSpec(
    num_scalar_prefetch=1, grid=(4,), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
    out_specs=pl.BlockSpec((8, 128), lambda i, first: (i, 0)),
    scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA])
call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((32, 128), jnp.float32), grid_spec=grid,
                      compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)))
x = jnp.repeat(jnp.arange(2.0) * 100, 8)[:, None] * jnp.ones((1, 128)) + 1000
print([int(row) for row in call(jnp.ones(1, jnp.int32), x)[::8, 0]])
"""


@pytest.mark.parametrize("slice, rows", [("v4-8", [1000, 1001, 1102, 1103]), ("v5litepod-8", [1000, 1001, 1002, 1003])])
@pytest.mark.parametrize("how", ["code", "evaluator"])
def test_each_core_of_a_device_has_memory_of_its_own(slice, rows, how):
    assert str(rows) in run_python(TWO_CORES, VTPU_ACCELERATOR_TYPE=slice, VTPU_PALLAS=how).stdout


def test_cost_is_what_the_program_says():
    cost = pl.CostEstimate(flops=1234, transcendentals=21, bytes_accessed=12345)
    call = pl.pallas_call(add_kernel, shaped((8, 128)), cost_estimate=cost)
    x = numbers(3, 8, 128)
    found = jax.jit(jax.vmap(call)).lower(x, x).compile().cost_analysis()
    assert [found[name] for name in ("flops", "transcendentals", "bytes accessed")] == [3702, 63, 37035]
    two = jax.jit(lambda x: jnp.tanh(call(x, x)) + x).lower(x[0]).compile().cost_analysis()
    assert two["flops"] == 1234 + 2 * 1024 and two["bytes accessed"] == 12345 + 2 * 4096



def test_scratch_is_named_with_its_line():
    def kernel(x, o):
        def body(scratch):
            scratch[...] = jnp.zeros_like(scratch)
            o[...] = x[...]
        pl.run_scoped(body, pltpu.VMEM((8192, 1024), F32))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"allocation 0. The shape is f32\[8192,1024\]. \(\S*test_pallas.py:\d+\)"):
        jax.jit(pl.pallas_call(kernel, shaped((8, 128)))).lower(shaped((8, 128))).compile()


def test_reductions_and_moves():
    def kernel(x, total, best, turned, joined):
        a = x[...]
        total[...] = jnp.broadcast_to(jnp.sum(a, axis=1, keepdims=True), (16, 128))
        best[...] = jnp.broadcast_to(jnp.argmax(a, axis=1)[:, None], (16, 128))
        turned[...] = a.T
        joined[...] = jnp.concatenate([pltpu.roll(a, 5, 1), jnp.where(a > 0, a, -a)], axis=0)

    x = numbers(16, 128)
    outs = [shaped((16, 128)), shaped((16, 128), I32), shaped((128, 16)), shaped((32, 128))]
    total, best, turned, joined = jax.jit(pl.pallas_call(kernel, outs))(x)
    np.testing.assert_allclose(total[:, 0], np.sum(np.asarray(x), 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(best[:, 3], np.argmax(x, 1))
    np.testing.assert_array_equal(turned, np.asarray(x).T)
    np.testing.assert_array_equal(joined, np.concatenate([np.roll(x, 5, 1), np.abs(x)]))


def test_last_blocks_reach_over_the_end():
    def kernel(x, o):
        o[...] = x[...] * 2

    x = numbers(20, 200)
    block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    call = pl.pallas_call(kernel, shaped(x.shape), grid=(3, 2), in_specs=[block], out_specs=block)
    np.testing.assert_array_equal(call(x), x * 2)


def test_prefetched_scalars_choose_blocks():
    def kernel(table, x, o):
        o[...] = x[...] + table[pl.program_id(0)].astype(F32)

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[pl.BlockSpec((8, 128), lambda i, table: (table[i], 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i, table: (i, 0)),
    )
    table, x = jnp.array([2, 0, 3, 3], I32), numbers(32, 128)
    want = np.asarray(x).reshape(4, 8, 128)[table] + np.asarray(table, np.float32)[:, None, None]
    got = pl.pallas_call(kernel, shaped(x.shape), grid_spec=grid)(table, x)
    np.testing.assert_array_equal(got, want.reshape(32, 128))


def test_a_bound_known_at_run_time():
    def kernel(x, o):
        o[...] = x[...] + 1

    @jax.jit
    def call(n, x):
        block = pl.BlockSpec((8, 128), lambda i: (i, 0))
        return pl.pallas_call(
            kernel, shaped(x.shape), grid=(n,), in_specs=[block], out_specs=block, input_output_aliases={0: 0}
        )(x)

    x = numbers(32, 128)
    for n in [0, 1, 3, 4]:
        want = np.array(x)
        want[: 8 * n] += 1
        np.testing.assert_array_equal(call(jnp.int32(n), x), want)


def test_copies_with_semaphores():
    def kernel(x, o, buffer, semaphores):
        def copy(i):
            return pltpu.make_async_copy(x.at[pl.ds(i * 8, 8)], buffer.at[i % 2], semaphores.at[i % 2])

        copy(0).start()

        @pl.loop(0, 4)
        def _(i):
            @pl.when(i < 3)
            def _():
                copy(i + 1).start()

            copy(i).wait()
            buffer[i % 2] = buffer[i % 2] * 3
            pltpu.sync_copy(buffer.at[i % 2], o.at[pl.ds((3 - i) * 8, 8)])

    x = numbers(32, 128)
    call = pl.pallas_call(
        kernel,
        shaped(x.shape),
        in_specs=[spec(pl.ANY)],
        out_specs=spec(pl.ANY),
        scratch_shapes=[pltpu.VMEM((2, 8, 128), F32), pltpu.SemaphoreType.DMA((2,))],
    )
    want = np.asarray(x).reshape(4, 8, 128)[::-1].reshape(32, 128) * 3
    np.testing.assert_array_equal(jax.jit(call)(x), want)


def test_control_flow():
    def kernel(n, x, o):
        total = jax.lax.fori_loop(0, n[0], lambda i, c: c * 0.5 + x[i], jnp.zeros((8, 128), F32))
        steps = jax.lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 2 + 1, c[1] + 1), (n[1], 0))[1]
        o[...] = jax.lax.cond(steps > 3, lambda v: v + 1, lambda v: v - 1, total)

    x = numbers(4, 8, 128)
    call = jax.jit(pl.pallas_call(kernel, shaped((8, 128)), in_specs=[spec(pltpu.SMEM), spec(pltpu.VMEM)]))
    for n, start in [(0, 1), (3, 50), (4, 200)]:
        want, steps, c = np.zeros((8, 128), np.float32), 0, start
        for i in range(n):
            want = want * np.float32(0.5) + np.asarray(x[i])
        while c < 100:
            c, steps = c * 2 + 1, steps + 1
        np.testing.assert_allclose(call(jnp.array([n, start], I32), x), want + (1 if steps > 3 else -1), rtol=1e-6)


def test_inside_of_jit_scan_and_vmap():
    add = pl.pallas_call(add_kernel, shaped((8, 128)))

    @jax.jit
    def many(x):
        return jax.lax.scan(lambda c, row: (add(c, row), c.sum()), jnp.zeros((8, 128)), x)

    x = numbers(5, 8, 128)
    np.testing.assert_allclose(many(x)[0], np.asarray(x).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(jax.vmap(add)(x, x), x + x)


def test_pipelines_inside_of_a_kernel():
    def kernel(x, y, o):
        def body(a, b, out):
            out[...] = a[...] * b[...]

        block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
        pltpu.emit_pipeline(body, grid=(4, 2), in_specs=[block, block], out_specs=[block])(x, y, o)

    x, y = numbers(32, 256), numbers(32, 256, seed=1)
    call = pl.pallas_call(kernel, shaped(x.shape), in_specs=[spec(pl.ANY)] * 2, out_specs=spec(pl.ANY))
    np.testing.assert_array_equal(jax.jit(call)(x, y), x * y)


@pytest.mark.parametrize("kernel", ["flash", "softmax"])
def test_agrees_with_the_interpreter(kernel):
    def softmax(x, o):
        e = jnp.exp(x[...] - jnp.max(x[...], axis=-1, keepdims=True))
        o[...] = e / jnp.sum(e, axis=-1, keepdims=True)

    if kernel == "softmax":
        x = numbers(64, 256)
        block = pl.BlockSpec((8, 256), lambda i: (i, 0))
        make = functools.partial(pl.pallas_call, softmax, shaped(x.shape), grid=(8,), in_specs=[block], out_specs=block)
        tree_close(jax.jit(make())(x), jax.jit(make(interpret=True))(x), rtol=1e-5, atol=1e-6)
        return
    from jax.experimental.pallas.ops.tpu import flash_attention as fa

    q, k, v = (numbers(1, 2, 256, 128, dtype=BF16, seed=i) * 0.25 for i in range(3))
    got = jax.jit(functools.partial(fa.flash_attention, causal=True, sm_scale=0.1))(q, k, v).astype(F32)
    want = fa.mha_reference(*(a.astype(F32) for a in (q, k, v)), None, causal=True, sm_scale=0.1)
    np.testing.assert_allclose(got, want, rtol=0.02, atol=0.02)


def ring_kernel(x, o, send, receive):
    me, count = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=(me + count - 1) % count)
    pl.semaphore_wait(barrier, 1)
    copy = pltpu.make_async_remote_copy(x, o, send, receive, device_id=((me + 1) % count,))
    copy.start()
    copy.wait()


@pytest.mark.parametrize("how", ["code", "evaluator"])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_ring_of_devices(count, how, monkeypatch):
    monkeypatch.setenv("VTPU_PALLAS", how)
    mesh = Mesh(np.array(jax.devices()[:count]), ("x",))
    call = pl.pallas_call(
        ring_kernel,
        shaped((8, 128)),
        in_specs=[spec(pl.ANY)],
        out_specs=spec(pl.ANY),
        scratch_shapes=[pltpu.SemaphoreType.DMA] * 2,
        compiler_params=pltpu.CompilerParams(collective_id=7),
    )
    around = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = jax.device_put(numbers(8 * count, 128), NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(around(x), np.roll(np.asarray(x), 8, 0))


@pytest.mark.parametrize("how", ["code", "evaluator"])
def test_a_product_around_a_ring(how, monkeypatch):
    """An all-gather of the left side, piece by piece, with the product of one piece beside the copy of the next."""
    monkeypatch.setenv("VTPU_PALLAS", how)
    count, m, k, n = 4, 16, 256, 128
    mesh = Mesh(np.array(jax.devices()[:count]), ("x",))

    def kernel(x, w, o, pieces, send, receive, free):
        me = jax.lax.axis_index("x")
        right, left = ((me + by) % count for by in (1, count - 1))
        barrier = pltpu.get_barrier_semaphore()
        for device in (right, left):
            pl.semaphore_signal(barrier, 1, device_id=device)
        pl.semaphore_wait(barrier, 2)
        pieces[0] = x[...]

        def turn(i, none):
            now, then = i % 2, 1 - i % 2
            copy = pltpu.make_async_remote_copy(
                pieces.at[now], pieces.at[then], send.at[now], receive.at[then], device_id=(right,))
            pl.when(i < count - 1)(copy.start)
            row = pl.multiple_of((me + count - i) % count * m, m)
            o[pl.ds(row, m), :] = jnp.dot(pieces[now], w[...], preferred_element_type=F32)

            @pl.when(i < count - 1)
            def _():
                copy.wait()
                pl.semaphore_signal(free, 1, device_id=left)
                pl.semaphore_wait(free, 1)
            return none
        jax.lax.fori_loop(0, count, turn, 0)

    call = pl.pallas_call(
        kernel, shaped((count * m, n)),
        scratch_shapes=[pltpu.VMEM((2, m, k), BF16), *[pltpu.SemaphoreType.DMA((2,))] * 2, pltpu.SemaphoreType.REGULAR],
        compiler_params=pltpu.CompilerParams(collective_id=7))
    x, w = numbers(count * m, k, dtype=BF16), numbers(k, count * n, dtype=BF16, seed=1)
    got = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=(P("x"), P(None, "x")), out_specs=P(None, "x"), check_vma=False))(x, w)
    want = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("how", ["code", "evaluator"])
def test_devices_that_wait_for_each_other_are_a_deadlock(how, monkeypatch):
    monkeypatch.setenv("VTPU_PALLAS", how)
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))

    def kernel(x, o, semaphore):
        me = jax.lax.axis_index("x")
        pl.semaphore_wait(semaphore, 1)
        pl.semaphore_signal(semaphore, 1, device_id=1 - me)
        o[...] = x[...]

    call = pl.pallas_call(kernel, shaped((8, 128)), scratch_shapes=[pltpu.SemaphoreType.REGULAR],
                          compiler_params=pltpu.CompilerParams(has_side_effects=True))
    both = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    with pytest.raises(Exception, match=r"deadlock: device 0 waits at tpu.sem_wait .*; device 1 waits at"):
        jax.block_until_ready(both(numbers(16, 128)))


def test_a_wait_without_a_signal_is_a_deadlock():
    def kernel(x, o, semaphore):
        pl.semaphore_wait(semaphore, 2)
        o[...] = x[...]

    call = pl.pallas_call(kernel, shaped((8, 128)), scratch_shapes=[pltpu.SemaphoreType.REGULAR])
    with pytest.raises(Exception, match="deadlock: device 0 waits at tpu.sem_wait .*for 2, the semaphore holds 0"):
        jax.block_until_ready(jax.jit(call)(numbers(8, 128)))


def test_a_block_outside_of_the_array_is_an_error():
    def kernel(x, o):
        o[...] = x[...]

    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    call = pl.pallas_call(kernel, shaped((32, 128)), grid=(4,), in_specs=[block], out_specs=block)
    with pytest.raises(Exception, match="lies outside of the array"):
        jax.block_until_ready(jax.jit(call)(numbers(16, 128)))


def test_nan_differs_from_everything():
    def kernel(x, o):
        o[...] = jnp.isnan(x[...]).astype(I32) + 2 * (x[...] != x[...]).astype(I32) + 4 * (x[...] < 1).astype(I32)

    x = jnp.full((8, 128), jnp.nan).at[0].set(0).at[1].set(2)
    want = np.full((8, 128), 3)
    want[0], want[1] = 4, 0
    np.testing.assert_array_equal(pl.pallas_call(kernel, shaped(x.shape, I32))(x), want)


def test_narrow_unsigned_integers():
    def kernel(x, o, p):
        o[...] = x[...]
        p[...] = x[...].astype(I32)

    x = jnp.asarray(np.arange(64 * 128) % 16, jnp.uint4).reshape(64, 128)
    same, wide = jax.jit(pl.pallas_call(kernel, [shaped(x.shape, jnp.uint4), shaped(x.shape, I32)]))(x)
    np.testing.assert_array_equal(np.asarray(same).astype(np.int32), np.asarray(x).astype(np.int32))
    np.testing.assert_array_equal(wide, np.asarray(x).astype(np.int32))
    np.testing.assert_array_equal((same.astype(I32) > 7).sum(), 64 * 64)


def test_a_result_that_is_scratch(monkeypatch):
    """Points along a parallel dimension use a result as memory of their own; what the last one leaves there is the result."""
    monkeypatch.setenv("VTPU_PALLAS", "code")

    def kernel(x, o, acc):
        @pl.when(pl.program_id(1) == 0)
        def _():
            acc[...] = jnp.zeros_like(acc)

        acc[...] += x[0]

        @pl.when(pl.program_id(1) == 2)
        def _():
            o[0] = acc[...] * 2

    x = jnp.arange(5 * 24 * 128.0).reshape(5, 24, 128)
    o, acc = pl.pallas_call(
        kernel, [jax.ShapeDtypeStruct((5, 8, 128), jnp.float32), jax.ShapeDtypeStruct((8, 128), jnp.float32)], grid=(5, 3),
        in_specs=[pl.BlockSpec((1, 8, 128), lambda i, j: (i, j, 0))],
        out_specs=[pl.BlockSpec((1, 8, 128), lambda i, j: (i, 0, 0)), pl.BlockSpec((8, 128), lambda i, j: (0, 0))],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")))(x)
    sums = np.asarray(x).reshape(5, 3, 8, 128).sum(1)
    np.testing.assert_array_equal(o, 2 * sums)
    np.testing.assert_array_equal(acc, sums[-1])


def test_what_the_chip_refuses():
    def kernel(x, o):
        o[...] = x[...] + x[...]

    call = jax.jit(pl.pallas_call(kernel, shaped((32, 128), jnp.int8)))
    with pytest.raises(Exception, match="Mosaic failed to compile TPU kernel: Not implemented: Only vector<i16>"):
        call(jnp.ones((32, 128), jnp.int8))


@pytest.mark.parametrize("check", ["", "1"])
def test_semaphores_between_kernels(check, monkeypatch):
    monkeypatch.setenv("VTPU_PALLAS_CHECK", check)
    def start(x, y, semaphore):
        pltpu.make_async_copy(x, y, semaphore).start()

    def finish(x, y, semaphore, o):
        pltpu.make_async_copy(x, y, semaphore).wait()

    @jax.jit
    def call(x):
        y, semaphore = pl.pallas_call(
            start,
            in_specs=[spec(pl.ANY)],
            out_specs=[spec(pl.ANY), spec(pltpu.SEMAPHORE)],
            out_shape=[shaped(x.shape), pltpu.SemaphoreType.DMA],
        )(x)
        return pl.pallas_call(
            finish,
            in_specs=[spec(pl.ANY), spec(pl.ANY), spec(pltpu.SEMAPHORE)],
            out_specs=spec(pl.ANY),
            out_shape=shaped(x.shape),
            input_output_aliases={1: 0},
        )(x, y, semaphore)

    x = numbers(8, 128)
    np.testing.assert_array_equal(call(x), x)


def test_random_bits_depend_on_the_seed_alone():
    def kernel(seed, o):
        pltpu.prng_seed(seed[0])
        o[...] = pltpu.bitcast(pltpu.prng_random_bits((64, 128)), jnp.uint32)

    call = jax.jit(pl.pallas_call(kernel, shaped((64, 128), jnp.uint32), in_specs=[spec(pltpu.SMEM)]))
    a, b, c = (np.asarray(call(jnp.array([s], I32))) for s in [1, 1, 2])
    np.testing.assert_array_equal(a, b)
    assert (a != c).mean() > 0.99
    assert 0.48 < ((a[..., None] >> np.arange(32, dtype=np.uint32)) & 1).mean() < 0.52


@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="JAX 0.11 lowers these")
def test_ops_since_version_17():
    def kernel(x, b, o, p, q, i):
        o[...] = jax.nn.sigmoid(x[...]) + jnp.log2(jnp.abs(x[...]) + 1)
        p[...] = jax.lax.reduce_precision(x[...], 5, 10)
        q[...] = jnp.dot(x[...], x[...].T, precision=jax.lax.Precision.HIGH)
        pltpu.annotate(i.at[:, pl.ds(0, 128)], no_bank_conflict=True)[...] = jnp.broadcast_to(
            jnp.argmax(b[...], axis=1)[:, None], (32, 128))

    x, b = numbers(32, 128), numbers(32, 128, dtype=BF16)
    outs = [shaped((32, 128)), shaped((32, 128)), shaped((32, 32)), shaped((32, 128), I32)]
    o, p, q, i = jax.jit(pl.pallas_call(kernel, outs))(x, b)
    np.testing.assert_allclose(o, jax.nn.sigmoid(x) + jnp.log2(jnp.abs(x) + 1), rtol=1e-6)
    np.testing.assert_array_equal(p, jax.lax.reduce_precision(x, 5, 10))
    np.testing.assert_allclose(q, np.asarray(x) @ np.asarray(x).T, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(i, np.broadcast_to(np.argmax(np.asarray(b), axis=1)[:, None], (32, 128)))


def test_prints_of_a_kernel():
    result = run_python(
        """
        import jax, jax.numpy as jnp
        from jax.experimental import pallas as pl
        def kernel(x, o):
            pl.debug_print("point {} of {}", pl.program_id(0), 3)
            o[...] = x[...]
        block = pl.BlockSpec((8, 128), lambda i: (0, 0))
        call = pl.pallas_call(kernel, jax.ShapeDtypeStruct((8, 128), jnp.float32), grid=(3,), in_specs=[block],
                              out_specs=block)
        jax.block_until_ready(jax.jit(call)(jnp.ones((8, 128))))
        """
    )
    assert "point 2 of 3" in result.stderr


def test_two_cores_of_a_device():
    result = run_python(
        """
        import jax, jax.numpy as jnp, numpy as np
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import tpu as pltpu

        @jax.jit
        def swap(x):
            source, target = jax.new_ref(x), jax.new_ref(jnp.empty_like(x))

            @pl.core_map(pltpu.create_tensorcore_mesh("core"))
            def _():
                def inner(semaphore):
                    me = jax.lax.axis_index("core")
                    pl.semaphore_signal(semaphore, 1, device_id={"core": 1 - me})
                    pl.semaphore_wait(semaphore, 1)
                    pltpu.sync_copy(source.at[me], target.at[1 - me])
                pl.run_scoped(inner, pltpu.SemaphoreType.REGULAR)
            return jax.freeze(target)

        x = jnp.arange(2 * 8 * 128.0).reshape(2, 8, 128)
        np.testing.assert_array_equal(swap(x), x[::-1])
        print("swapped")
        """,
        VTPU_ACCELERATOR_TYPE="v4-8",
    )
    assert "swapped" in result.stdout


# JAX's own kernels, forward and backward: hashes of the results, and the results themselves.
LIBRARY = """
import hashlib, sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

def normal(*dims, dtype=jnp.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(dims), dtype)

mask = masks.MultiHeadMask([masks.CausalMask((512, 512))] * 2)
attend = splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1)
heads = [normal(2, 512, 128, seed=i) / 8 for i in range(3)]
narrow = [normal(1, 2, 512, 128, dtype=jnp.bfloat16, seed=i) for i in range(3)]
causal = lambda *qkv: flash.flash_attention(*qkv, causal=True)
loss = lambda f: jax.grad(lambda *qkv: jnp.sum(jnp.sin(f(*qkv).astype(jnp.float32))), argnums=(0, 1, 2))
groups = [normal(512, 256, dtype=jnp.bfloat16), normal(4, 256, 128, dtype=jnp.bfloat16, seed=1),
          jnp.asarray([100, 0, 156, 256], jnp.int32)]
cases = {"flash": (causal, narrow), "flash backward": (loss(causal), narrow), "splash": (attend, heads),
         "splash backward": (loss(attend), heads), "gmm": (lambda *a: gmm(*a, preferred_element_type=jnp.float32), groups)}
for name, (function, arguments) in cases.items():
    for i, array in enumerate(jax.tree.leaves(jax.jit(function)(*arguments))):
        array = np.asarray(array, np.float32)
        print("HASH", name, i, hashlib.sha256(array.tobytes()).hexdigest())
        np.save(f"{sys.argv[1]}/{name}{i}.npy", array)
"""


def library_results(folder, **environment):
    folder.mkdir()
    out = run_python(LIBRARY, str(folder), **environment).stdout
    hashes = [line for line in out.splitlines() if line.startswith("HASH")]
    return hashes, {path.name: np.load(path) for path in sorted(folder.iterdir())}


def test_code_of_library_kernels_agrees_with_the_interpreter(tmp_path):
    first, results = library_results(tmp_path / "one", VTPU_PALLAS="code", OMP_NUM_THREADS=1)
    again, _ = library_results(tmp_path / "two", VTPU_PALLAS="code", OMP_NUM_THREADS=2)
    assert len(first) == 9 and first == again  # bits do not depend on threads
    _, wanted = library_results(tmp_path / "evaluator", VTPU_PALLAS="evaluator")
    for name, want in wanted.items():
        np.testing.assert_allclose(results[name], want, rtol=0, atol=8e-3 * np.max(np.abs(want)), err_msg=name)


def test_version_says_how_new_the_runtime_is():
    """JAX before 0.8 reads the last line's only parentheses, and without them writes kernels for the oldest runtime."""
    (seconds,) = re.findall(r"\((.*?)\)", jax.devices()[0].client.platform_version.split("\n")[-1])
    assert datetime.date.fromtimestamp(int(seconds)) > datetime.date(2025, 8, 14)


def softmax_kernel(q, k, v, o, m, l, acc):
    @pl.when(pl.program_id(1) == 0)
    def _():
        m[...] = jnp.full_like(m, -1e30)
        l[...] = jnp.zeros_like(l)
        acc[...] = jnp.zeros_like(acc)

    scores = jax.lax.dot_general(q[...], k[...], (((1,), (1,)), ((), ())), preferred_element_type=F32)
    keys = jax.lax.broadcasted_iota(I32, scores.shape, 1)
    scores = jnp.where(keys < 200, scores, -1e30)
    highest = jnp.maximum(m[...], scores.max(axis=1)[:, None])
    weights = jnp.exp(scores - jnp.tile(highest, (1, scores.shape[1] // 128)))
    scale = jnp.exp(m[...] - highest)
    l[...] = scale * l[...] + weights.sum(axis=1)[:, None]
    m[...] = highest
    acc[...] = scale[:, :1] * acc[...] + jnp.dot(weights.astype(v.dtype), v[...], preferred_element_type=F32)

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _():
        o[...] = (acc[...] / l[:, :1]).astype(o.dtype)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("rows", [24, 40, 256])
def test_rows_in_turns_are_all_rows_at_once(rows, dtype, monkeypatch):
    q, k, v = (numbers(n, 128, dtype=dtype, seed=i) / 16 for i, n in enumerate((2 * rows, 512, 512)))

    def attend(q, k, v):
        return pl.pallas_call(
            softmax_kernel, shaped(q.shape, dtype), grid=(2, 2),
            in_specs=[pl.BlockSpec((rows, 128), lambda i, j: (i, 0))] + [pl.BlockSpec((256, 128), lambda i, j: (j, 0))] * 2,
            out_specs=pl.BlockSpec((rows, 128), lambda i, j: (i, 0)),
            scratch_shapes=[pltpu.VMEM((rows, 128), F32)] * 3)(q, k, v)

    got = {}
    for how in ("code", "evaluator"):
        monkeypatch.setenv("VTPU_PALLAS", how)
        got[how] = np.asarray(jax.jit(lambda *a: attend(*a))(q, k, v).astype(F32))
    np.testing.assert_allclose(got["code"], got["evaluator"], atol=2e-3)


def keeps_highest(x, m):
    m[...] = jnp.maximum(m[...], x[...].max(axis=1)[:, None])


def keeps_in_some_rows(x, m):
    m[8:16, :] = jnp.broadcast_to(x[8:16, :].max(axis=1)[:, None], (8, 256)) + m[8:16, :]


def keeps_in_turn(x, m):
    m[...] = jnp.exp(-jnp.abs(m[...])) * 2 + m[...]


def keeps_halves_apart(x, m):
    m[:, :128] = jnp.broadcast_to(x[:, :1], (64, 128))


def keeps_columns(x, m):
    m[...] = m[...] + x[...]


def keeps_every_other_time(x, m):
    keeps_highest(x, m)

    @pl.when(pl.program_id(0) == 1)
    def _():
        m[:, 128:] = x[:, 128:]


def keeps_counts(x, m):
    m[...] = m[...] + jax.lax.broadcasted_iota(I32, m.shape, 0).astype(F32)


@pytest.mark.parametrize("where", ["scratch", "result", "operand"])
@pytest.mark.parametrize("keep", [keeps_highest, keeps_in_some_rows, keeps_in_turn, keeps_halves_apart, keeps_columns,
                                  keeps_every_other_time, keeps_counts], ids=lambda keep: keep.__name__)
@pytest.mark.parametrize("begins", [True, False], ids=["filled", "as_it_is"])
def test_one_number_for_each_row(keep, where, begins, monkeypatch):
    """What a kernel keeps from point to point may be the same in all columns, or seem to be."""
    x, start = numbers(3 * 64, 256), numbers(64, 256, seed=1)

    def kernel(x, start, o, low, m):
        @pl.when((pl.program_id(0) == 0) & begins)
        def _():
            m[...] = jnp.full_like(m, -0.5)

        keep(x, m)
        scale = jnp.exp(m[...] * 0.25)
        o[...] = x[...] * scale + m[...]
        low[...] = jnp.broadcast_to((scale + m[...] * 2 + x[...] * 0).min(axis=0)[None, :], low.shape)

    rows, whole = pl.BlockSpec((64, 256), lambda i: (i, 0)), pl.BlockSpec((64, 256), lambda i: (0, 0))
    outs = [rows, pl.BlockSpec((8, 256), lambda i: (i, 0))]
    shapes = [shaped(x.shape), shaped((24, 256))]
    kept = where != "scratch"
    got = {}
    for how in ("code", "evaluator"):
        monkeypatch.setenv("VTPU_PALLAS", how)
        call = pl.pallas_call(
            kernel, shapes + [shaped(start.shape)] * kept, grid=(3,), in_specs=[rows, whole], out_specs=outs + [whole] * kept,
            scratch_shapes=[] if kept else [pltpu.VMEM(start.shape, F32)],
            input_output_aliases={1: 2} if where == "operand" else {})
        got[how] = [np.asarray(value) for value in jax.jit(lambda x, y: call(x, y))(x, start)]
    for value, want in zip(got["code"], got["evaluator"], strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)


def at_the_last(i, j, x, o):
    return j == pl.num_programs(1) - 1, x[...]


def at_the_second(i, j, x, o):
    return j == 1, x[...]


def where_the_program_says(i, j, x, o):
    return x[0, 0] > 0, x[...]


def in_every_second_block(i, j, x, o):
    return (j == 2) & (i % 2 == 0), x[...]


def on_what_is_there(i, j, x, o):
    return j == 2, x[...] + o[...]


def by_half(i, j, x, o):
    return j == 2, x[:32, :]


@pytest.mark.parametrize("stores", [at_the_last, at_the_second, where_the_program_says, in_every_second_block, on_what_is_there,
                                    by_half], ids=lambda stores: stores.__name__)
def test_what_no_point_stores_is_zero(stores, monkeypatch):
    monkeypatch.setenv("VTPU_PALLAS", "code")
    x = numbers(4 * 64, 128)

    def kernel(x, o):
        when, value = stores(pl.program_id(0), pl.program_id(1), x, o)

        @pl.when(when)
        def _():
            o[:value.shape[0], :] = value

    want = np.array(x).reshape(4, 64, 128)
    for i in range(4):
        if (stores is where_the_program_says and want[i, 0, 0] <= 0) or (stores is in_every_second_block and i % 2):
            want[i] = 0
        if stores is by_half:
            want[i, 32:] = 0
    block = pl.BlockSpec((64, 128), lambda i, j: (i, 0))
    run = jax.jit(lambda x: pl.pallas_call(kernel, shaped(x.shape), grid=(4, 3), in_specs=[block], out_specs=block)(x))
    for _ in range(3):  # in memory that held something else
        jax.block_until_ready(jax.jit(lambda x: x * jnp.nan)(x))
        np.testing.assert_array_equal(np.asarray(run(x)).reshape(want.shape), want)


def test_rows_of_a_product_with_what_a_store_has_changed(monkeypatch):
    """The right side of the second product is read before any row of it is written anew, the third after all are."""
    def kernel(x, o, s):
        s[...] = x[...] * 2
        first = jnp.dot(x[...], s[...], preferred_element_type=F32)
        s[...] = first * 0.01
        o[...] = jnp.dot(first, s[...], preferred_element_type=F32) + s[...]

    x = numbers(128, 128)
    got = {}
    for how in ("code", "evaluator"):
        monkeypatch.setenv("VTPU_PALLAS", how)
        call = pl.pallas_call(kernel, shaped(x.shape), scratch_shapes=[pltpu.VMEM(x.shape, F32)])
        got[how] = np.asarray(jax.jit(lambda x: call(x))(x))
    np.testing.assert_allclose(got["code"], got["evaluator"], rtol=2e-2, atol=2e-2 * np.abs(got["evaluator"]).max())


def test_blocks_that_a_table_names(monkeypatch):
    """Two points may add to one block, and what no point makes is zero."""
    monkeypatch.setenv("VTPU_PALLAS", "code")
    to = jnp.asarray([2, 2, 0, 5, 5, 5, 3, 6], I32)
    x, y = numbers(8 * 64, 128, dtype=BF16), numbers(128, 128, dtype=BF16, seed=1)

    def kernel(to, x, y, o):
        i = pl.program_id(0)
        again = (i > 0) & (to[jnp.maximum(i - 1, 0)] == to[i])
        o[...] = jnp.where(again, o[...], 0) + jnp.dot(x[...], y[...], preferred_element_type=F32)

    call = pl.pallas_call(kernel, shaped((8 * 64, 128)), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(8,),
        in_specs=[pl.BlockSpec((64, 128), lambda i, to: (i, 0)), pl.BlockSpec((128, 128), lambda i, to: (0, 0))],
        out_specs=pl.BlockSpec((64, 128), lambda i, to: (to[i], 0))))
    run = jax.jit(call)
    products = np.asarray(jnp.dot(x.astype(F32), y.astype(F32))).reshape(8, 64, 128)
    want = np.zeros((8, 64, 128), np.float32)
    for i, block in enumerate(np.asarray(to)):
        want[block] += products[i]
    got = np.asarray(run(to, x, y))
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-2, atol=0.5)
    assert not got.reshape(want.shape)[[1, 4, 7]].any()
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(run(to, x, y)), got)
    back = jnp.asarray([2, 0, 2, 0, 1, 1, 2, 0], I32)  # blocks are left and come back: points in their order
    np.testing.assert_array_equal(np.asarray(run(back, x, y)), np.asarray(run(back, x, y)))


def test_operands_read_where_they_lie():
    """Blocks narrower than their arrays, whole ones and ones that reach over the end."""
    x, y = numbers(192, 256), numbers(256, 320, seed=1)
    got = jax.jit(lambda x, y: pl.pallas_call(
        lambda x, y, o: o.__setitem__(..., jnp.dot(x[...], y[...], preferred_element_type=F32)),
        shaped((192, 320)), grid=(3, 3),
        in_specs=[pl.BlockSpec((64, 256), lambda i, j: (i, 0)), pl.BlockSpec((256, 128), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((64, 128), lambda i, j: (i, j)))(x, y))(x, y)
    want = np.asarray(x.astype(BF16).astype(F32)) @ np.asarray(y.astype(BF16).astype(F32))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-3, atol=1e-2)
