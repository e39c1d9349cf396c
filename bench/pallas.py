# SPDX-License-Identifier: Apache-2.0
"""TPU kernels and the same functions in plain JAX: name -> (kernel, plain function, arrays)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

F32, BF16 = jnp.float32, jnp.bfloat16
HEADS, LENGTH, DEPTH = 8, 1024, 128


def normal(*dims, dtype=F32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(dims), dtype)


def attention(q, k, v, *, scale):
    scores = jnp.einsum("...qd,...kd->...qk", q, k, preferred_element_type=F32) * scale
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e30)
    weights = jax.nn.softmax(scores, -1).astype(v.dtype)
    return jnp.einsum("...qk,...kd->...qd", weights, v, preferred_element_type=F32).astype(q.dtype)


def flash():
    from jax.experimental.pallas.ops.tpu import flash_attention as library
    sizes = library.BlockSizes(block_q=256, block_k_major=256, block_k=256, block_b=1)
    scale = DEPTH**-0.5
    kernel = functools.partial(library.flash_attention, causal=True, sm_scale=scale, block_sizes=sizes)
    return kernel, functools.partial(attention, scale=scale), [normal(1, HEADS, LENGTH, DEPTH, dtype=BF16, seed=i) for i in range(3)]


def splash():
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as library
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    mask = masks.MultiHeadMask([masks.CausalMask((LENGTH, LENGTH))] * HEADS)
    sizes = library.BlockSizes(block_q=512, block_kv=512, block_kv_compute=512)
    kernel = library.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
    return kernel, functools.partial(attention, scale=1), [normal(HEADS, LENGTH, DEPTH, seed=i) / 8 for i in range(3)]


def product_kernel(x, y, o, acc):
    @pl.when(pl.program_id(2) == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=F32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o[...] = acc[...].astype(o.dtype)


def matmul(size, block, dtype):
    blocks = size // block

    def kernel(x, y):  # whether it is interpreted is asked when the call is made
        return pl.pallas_call(
            product_kernel, jax.ShapeDtypeStruct((size, size), dtype), grid=(blocks, blocks, blocks),
            in_specs=[pl.BlockSpec((block, block), lambda i, j, k: (i, k)),
                      pl.BlockSpec((block, block), lambda i, j, k: (k, j))],
            out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
            scratch_shapes=[pltpu.VMEM((block, block), F32)],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))(x, y)

    return kernel, jnp.matmul, [normal(size, size, dtype=dtype, seed=i) for i in range(2)]


def gmm():
    from jax.experimental.pallas.ops.tpu.megablox import gmm as library
    rows, k, n, groups = 1024, 512, 512, 8
    kernel = functools.partial(library, preferred_element_type=F32, tiling=(128, 512, 512))

    def plain(lhs, rhs, sizes):
        del sizes  # all alike
        return jnp.matmul(lhs.reshape(groups, rows // groups, k), rhs, preferred_element_type=F32).reshape(rows, n)

    sizes = jnp.full((groups,), rows // groups, jnp.int32)
    return kernel, plain, [normal(rows, k, dtype=BF16), normal(groups, k, n, dtype=BF16, seed=1), sizes]


CASES = {
    "flash": flash,
    "splash": splash,
    "matmul 512": functools.partial(matmul, 512, 128, F32),
    "matmul 1024": functools.partial(matmul, 1024, 256, BF16),
    "gmm": gmm,
}
FORMS = ("kernel", "plain", "interpreted")


def causal(block):
    """Operations in the products of the blocks that a causal mask does not leave out, queries by keys and weights by values."""
    blocks = LENGTH // block
    return HEADS * (blocks * (blocks + 1) // 2) * 2 * (2 * block * block * DEPTH)


# Floating-point operations in the products of each kernel.
FLOPS = {"flash": causal(256), "splash": causal(512), "matmul 512": 2 * 512**3, "matmul 1024": 2 * 1024**3,
         "gmm": 2 * 1024 * 512 * 512}


def make(name, form):
    """A compiled function and its arguments. JAX's interpreter of TPU kernels runs on the CPU."""
    kernel, plain, args = CASES[name]()
    if form == "interpreted":
        with pltpu.force_tpu_interpret_mode():
            return jax.jit(kernel).lower(*args).compile(), args
    return jax.jit(kernel if form == "kernel" else plain).lower(*args).compile(), args
