# SPDX-License-Identifier: Apache-2.0
"""Training steps of language models with published rates, and what `vtpu predict` says of them.

    published_steps.py VTPU [NAME...]     one JSON object a line; a name may be the beginning of several

The steps are those of MaxText (configs/v4, v5e, v5p: throughput in their READMEs) and of AI-Hypercomputer's tpu-recipes
(v6e, tpu7x): Adam in f32, products in bf16, layers in a scan, weights sharded over all chips, or over some and split
along their columns over `split` of them; attention by JAX's Pallas kernel where theirs was one. Published are model
flop/s a chip, in which recomputation does not count. No constant of the model was fitted on them.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=256"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import flash_attention
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

# name: slice, published TFLOP/s a device, then layers, width, heads, KV heads, size of a head, hidden width, vocabulary,
# sequences a device, their length, devices, and what differs: plain = two matrices, not three, in a block
STEPS = {
    "v4-22B": ("v4-128", 156, 48, 6144, 24, 24, 256, 24576, 32000, 13, 2048, 64, {"plain": True}),
    "v4-52B": ("v4-384", 154, 48, 9216, 36, 36, 256, 36864, 32000, 8, 2048, 192, {"plain": True}),
    "v5e-16B": ("v5litepod-256", 120, 32, 4096, 64, 64, 128, 28672, 32000, 6, 2048, 256, {"flash": 1024}),
    "v5e-32B": ("v5litepod-256", 132, 32, 8192, 64, 64, 128, 28672, 32000, 4, 2048, 256, {"flash": 1024}),
    "v5e-64B": ("v5litepod-256", 118, 64, 8192, 64, 64, 128, 28672, 32000, 2, 2048, 256, {"flash": 1024}),
    "v5p-32B": ("v5p-128", 328, 32, 8192, 64, 64, 128, 28672, 32000, 7, 2048, 64, {"flash": 1024, "split": 4, "keep": 1}),
    "v5p-128B": ("v5p-256", 315, 64, 8192, 128, 128, 128, 57344, 32000, 1, 2048, 128, {"flash": 1024, "split": 8, "keep": 1}),
    "v6e-8B-8": ("v6e-8", 413.4, 32, 4096, 32, 8, 128, 14336, 128256, 3, 8192, 8, {"flash": 1024}),
    "v6e-8B-256": ("v6e-256", 417.4, 32, 4096, 32, 8, 128, 14336, 128256, 3, 8192, 256, {"flash": 1024}),
    "v6e-70B": ("v6e-256", 462.3, 80, 8192, 64, 8, 128, 28672, 128256, 2, 8192, 256, {"flash": 1024}),
    "tpu7x-70B": ("tpu7x-128", 603.5, 80, 8192, 64, 8, 128, 28672, 128256, 2, 8192, 128, {"flash": 1024}),
}
SIZES = ("block_q", "block_k_major", "block_k", "block_q_major_dkv", "block_k_major_dkv", "block_k_dkv", "block_q_dkv",
         "block_k_major_dq", "block_k_dq", "block_q_dq")


def norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(jnp.bfloat16)


def attention(q, k, v, mesh, size, flash):
    """Causal, of [batch, heads, length, size]."""
    if flash:
        blocks = flash_attention.BlockSizes(block_b=1, **{name: min(flash, q.shape[2]) for name in SIZES})
        each = P("rows", "columns")
        kernel = lambda q, k, v: flash_attention.flash_attention(q, k, v, causal=True, sm_scale=size**-0.5, block_sizes=blocks)
        return jax.shard_map(kernel, mesh=mesh, in_specs=(each,) * 3, out_specs=each, check_vma=False)(q, k, v)
    scores = jnp.einsum("bhtk,bhsk->bhts", q, k, preferred_element_type=jnp.float32) * size**-0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhts,bhsk->bhtk", jax.nn.softmax(scores, -1).astype(jnp.bfloat16), v)


def step_of(layers, width, heads, kv_heads, size, hidden, vocabulary, batch, length, devices, plain=False, flash=0, split=1,
            keep=False):
    """The program's text, and the model's flop a device."""
    mesh = Mesh(np.array(jax.devices()[:devices]).reshape(devices // split, split), ("rows", "columns"))

    between = P("rows", None, "columns" if split > 1 else None)  # layers

    def layer(x, w):
        w = {k: v if v.ndim == 1 else v.astype(jnp.bfloat16) for k, v in w.items()}
        h = norm(x, w["norm1"])
        q, k, v = (jnp.einsum("btd,dhk->bhtk", h, w[name]) for name in "qkv")
        k, v = (jnp.repeat(a, heads // kv_heads, 1) for a in (k, v))
        x = x + jnp.einsum("bhtk,hkd->btd", attention(q, k, v, mesh, size, flash), w["o"])
        h = norm(x, w["norm2"])
        h = jax.nn.gelu(h @ w["up"]) if plain else jax.nn.silu(h @ w["gate"]) * (h @ w["up"])
        return jax.lax.with_sharding_constraint(x + h @ w["down"], NamedSharding(mesh, between)), None

    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if keep else None

    def loss(p, tokens, targets):
        x, _ = jax.lax.scan(jax.checkpoint(layer, policy=policy), p["in"].astype(jnp.bfloat16)[tokens], p["layers"])
        logits = (x @ p["out"].astype(jnp.bfloat16)).astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0])

    def step(p, m, v, tokens, targets):
        value, g = jax.value_and_grad(loss)(p, tokens, targets)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b * b, v, g)
        return jax.tree.map(lambda p, a, b: p - 1e-4 * (a * jax.lax.rsqrt(b + 1e-8) + 0.1 * p), p, m, v), m, v, value

    wide = P(None, "rows", "columns")
    weights = {"norm1": ((width,), P()), "norm2": ((width,), P()),
               "o": ((heads, size, width), P(None, "columns", None, "rows")),
               "q": ((width, heads, size), wide), "k": ((width, kv_heads, size), wide), "v": ((width, kv_heads, size), wide),
               "up": ((width, hidden), wide), "down": ((hidden, width), P(None, "columns", "rows"))}
    if not plain:
        weights["gate"] = weights["up"]
    array = lambda shape, spec, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    p = {"in": array((vocabulary, width), P("columns", "rows")), "out": array((width, vocabulary), P("rows", "columns")),
         "layers": {name: array((layers, *shape), spec) for name, (shape, spec) in weights.items()}}
    tokens = array((batch * devices, length), P("rows"), jnp.int32)
    traced = jax.jit(step, donate_argnums=(0, 1, 2)).trace(p, p, p, tokens, tokens)
    matrices = layers * sum(int(np.prod(shape)) for shape, _ in weights.values() if len(shape) > 1) + vocabulary * width
    flop = 6 * matrices * batch * length + 12 * layers * length * heads * size * batch * length
    return traced.lower(lowering_platforms=("tpu",)).as_text(), flop


def main(vtpu, names):
    for name, (slice_name, published, *sizes, more) in STEPS.items():
        if names and not any(name.startswith(n) for n in names):
            continue
        text, flop = step_of(*sizes, **more)
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(text)
            file.flush()
            said = subprocess.run([vtpu, "predict", file.name, "-t", slice_name, "--json"], capture_output=True, text=True)
        row = {"name": name, "slice": slice_name, "published": published}
        if said.returncode:
            row["refused"] = said.stderr.splitlines()[0][-160:]
        else:
            seconds = json.loads(said.stdout)["seconds"]
            row |= {"predicted": flop / seconds / 1e12, "seconds": seconds, "error": published / (flop / seconds / 1e12) - 1}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
