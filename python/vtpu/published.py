# SPDX-License-Identifier: Apache-2.0
"""Training steps whose time on TPUs was published, as programs: `vtpu validate --steps` predicts them.

Writes for each a line of group, slice, name, published seconds, source and size, with tabs between, then the program. With a
word, only for those whose group, slice or name has it. Language models are steps of Adam, layers in a scan, weights in f32 sharded over
the devices of a slice, batches over the slices as well; convolution nets and BERT are data-parallel. No constant of the
model was fitted on them.

Sources: maxtext = the READMEs of AI-Hypercomputer/maxtext's configs for v4, v5e and v5p, with the scripts and defaults of the
commit that brought them (December 2023); recipes = the READMEs and scripts of AI-Hypercomputer/tpu-recipes; mlperf = logs and
code of Google's submissions to MLPerf Training 0.6 and 0.7: the median time between evaluations by the steps in it, less the
share of the evaluation, which is counted as a third of a step for as many examples.
`merged`: whether XLA merges the sum of a gradient with the cut that follows it. It does by the flags of Llama's recipes on v6e,
which those of GPT-3 and 405B and the scripts for v4, v5e and v5p lack, and by default on 7x.
Left out, as their sources do not determine the program: fp8 on 7x (how it scales), mixtures of experts (their routing), Gemma 3
(windows of attention, for which there is no kernel here).
"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name
    from jax.experimental.pallas.ops.tpu import flash_attention
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.sharding import AbstractMesh, AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P
except ModuleNotFoundError as missing:
    sys.exit(f"vtpu validate: {sys.executable} has no {missing.name}: pip install jax, or name another Python in VTPU_PYTHON")

class Seconds(float):
    """A step's time, where the source says that; else it gives the model's TFLOP/s on a device."""


# layers, width, heads, heads of keys and values, size of a head, hidden width, vocabulary
MODELS = {
    "22B": (48, 6144, 24, 24, 256, 24576, 32768),
    "52B": (32, 12288, 32, 32, 256, 49152, 32768),
    "16B": (32, 5120, 32, 32, 256, 32768, 32768),
    "32B": (32, 10240, 32, 32, 256, 32768, 32768),
    "64B": (64, 10240, 32, 32, 256, 32768, 32768),
    "128B": (64, 10240, 64, 64, 256, 65536, 32768),
    "256B": (64, 20480, 64, 64, 256, 65536, 32768),
    "512B": (128, 20480, 64, 64, 256, 65536, 32768),
    "1024B": (128, 20480, 128, 128, 256, 131072, 32768),
    "Llama3.1-8B": (32, 4096, 32, 8, 128, 14336, 128256),
    "Llama3.1-70B": (80, 8192, 64, 8, 128, 28672, 128256),
    "Llama3.1-405B": (126, 16384, 128, 8, 128, 53248, 128256),
    "GPT3-175B": (96, 12288, 96, 96, 128, 49152, 50304),
}
MAXTEXT = {"activation": "relu", "tied": True, "merged": False}
# Blocks of the attention kernel: of JAX's flash attention as MaxText called it in December 2023; of splash attention by the
# settings of the recipes, or where these have none by MaxText's. Those for 7x take tokamax's splash attention.
FLASH = {"block_b": 2, "block_q": 512, "block_k_major": 512, "block_k": 512,
         "block_q_major_dkv": 512, "block_k_major_dkv": 512, "block_q_dkv": 512, "block_k_dkv": 512,
         "block_q_dq": 1024, "block_k_dq": 256, "block_k_major_dq": 512}  # fmt: skip
SPLASH = {"block_q": 1024, "block_kv": 512, "block_kv_compute": 512, "block_q_dkv": 2048, "block_kv_dkv": 512,
          "block_kv_dkv_compute": 512, "block_q_dq": 2048, "block_kv_dq": 512}  # fmt: skip
FUSED = dict.fromkeys(("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"), 2048)
LLAMA = {"kernel": FUSED, "iota": True, "length": 8192, "shifts": True}
HOST = ("input", "q", "k", "v")

# model, slice, devices, slices, published, sequences a device, source, what differs
STEPS = [
    ("22B", "v4-128", 64, 1, 156, 16, "maxtext", MAXTEXT),
    ("22B", "v4-128", 64, 2, 152, 16, "maxtext", MAXTEXT),
    ("22B", "v4-128", 64, 4, 149, 16, "maxtext", MAXTEXT),
    ("22B", "v4-128", 64, 8, 146, 16, "maxtext", MAXTEXT),
    ("52B", "v4-384", 192, 1, 154, 10, "maxtext", MAXTEXT),
    ("52B", "v4-384", 192, 2, 162, 10, "maxtext", MAXTEXT),
    *((model, "v5litepod-256", 256, slices, rate, batch, "maxtext", {"kernel": FLASH, "iota": True, **more, **MAXTEXT})
      for model, batch, one, many, more in (
          ("16B", 6, 120, 108, {}), ("32B", 4, 132, 119, {}), ("64B", 2, 118, 99, {}), ("128B", 1, 110, 91, {"split": 16}))
      for slices, rate in ((1, one), (32, many))),
    *((model, f"v5p-{2 * devices}", devices, slices, rate, batch, "maxtext",
       {"kernel": FLASH, "iota": True, "split": split, "keep": keep, **MAXTEXT})
      for model, devices, slices, rate, batch, split, keep in (
          ("32B", 64, 1, 328, 8, 4, "products"), ("32B", 64, 2, 319, 8, 4, "products"), ("64B", 64, 1, 323, 4, 4, "products"),
          ("128B", 128, 1, 315, 2, 8, "products"), ("256B", 512, 1, 308, 2, 8, "products"), ("512B", 512, 1, 294, 2, 16, ()),
          ("1024B", 1024, 1, 254, 2, 16, ()), ("1024B", 2048, 1, 297, 2, 16, ()), ("1024B", 2048, 2, 279, 2, 16, ()))),
    *(("Llama3.1-8B", f"v6e-{devices}", devices, 1, Seconds(seconds), batch, "recipes", {"keep": (*HOST, "out"), **LLAMA})
      for devices, seconds, batch in ((8, 3.443, 3), (16, 3.393, 3), (32, 3.495, 3), (64, 5.652, 5), (128, 4.602, 4), (256, 4.546, 4))),
    *(("Llama3.1-70B", f"v6e-{devices}", devices, 1, Seconds(seconds), batch, "recipes", {"keep": HOST, **LLAMA})
      for devices, seconds, batch in ((64, 18.688, 2), (128, 34.786, 4), (256, 42.656, 5))),
    ("Llama3.1-405B", "v6e-256", 256, 2, Seconds(54.803), 1, "recipes",
     {"keep": ("input",), **LLAMA, "kernel": SPLASH, "merged": False, "across": True}),
    ("GPT3-175B", "v6e-256", 256, 1, Seconds(17.182), 3, "recipes", {"kernel": SPLASH, "iota": True, **MAXTEXT, "activation": "gelu"}),
    ("Llama3.1-70B", "tpu7x-128", 128, 1, 603.5, 2, "recipes",
     {**LLAMA, "kernel": FUSED | {"block_kv": 1024, "block_kv_compute": 512, "block_kv_dkv_compute": 256}}),
    ("Llama3.1-405B", "tpu7x-512", 512, 1, 630.7, 3, "recipes", {"keep": ("input", "down", "k", "v"), **LLAMA,
      "kernel": FUSED | {"block_q": 1024, "block_kv_compute": 256, "block_kv_dkv_compute": 1024}}),
]  # fmt: skip
def norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(jnp.bfloat16)


def rotate(x, shifts):
    """Rotary positions, of [batch, heads, length, size]: by pairs of elements, or with `shifts` of the elements instead."""
    angle = jnp.arange(x.shape[2])[:, None] / 10000 ** (2 * jnp.arange(x.shape[3] // 2) / x.shape[3])
    if shifts:
        sin, cos = (jnp.repeat(function(angle), 2, -1) for function in (jnp.sin, jnp.cos))
        left, right = (jnp.concatenate([x[..., by:], x[..., :by]], -1) for by in (1, -1))
        odd = jnp.arange(x.shape[3]) % 2 == 1
        return (x * cos + jnp.where(odd, right, left) * sin * jnp.where(odd, 1, -1)).astype(x.dtype)
    pairs = x.astype(jnp.float32).reshape(*x.shape[:3], -1, 2)
    a, b, sin, cos = pairs[..., 0], pairs[..., 1], jnp.sin(angle), jnp.cos(angle)
    return jnp.stack([(a * cos - b * sin).astype(x.dtype), (b * cos + a * sin).astype(x.dtype)], -1).reshape(x.shape)


def attention(q, k, v, segments, mesh, kernel):
    """Causal, within segments, of [batch, heads, length, size]."""
    if not kernel:
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k, preferred_element_type=jnp.float32)
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        return jnp.einsum("bhts,bhsk->bhtk", jax.nn.softmax(scores, -1).astype(jnp.bfloat16), v)

    def flash(q, k, v, segments):
        blocks = flash_attention.BlockSizes(**{name: min(size, q.shape[0 if name == "block_b" else 2]) for name, size in kernel.items()})
        return flash_attention.flash_attention(q, k, v, segment_ids=flash_attention.SegmentIds(segments, segments), causal=True,
                                               block_sizes=blocks)  # fmt: skip

    def splashes(q, k, v, segments):
        sizes = {name: min(size, q.shape[2]) for name, size in kernel.items()}
        mask = masks.MultiHeadMask([masks.CausalMask((q.shape[2],) * 2)] * q.shape[1])
        blocks = splash.BlockSizes(**sizes, use_fused_bwd_kernel="block_q_dq" not in sizes)
        each = splash.make_splash_mha(mask, block_sizes=blocks, head_shards=1, q_seq_shards=1)
        return jax.vmap(each)(q, k, v, segment_ids=splash.SegmentIds(segments, segments))

    rows = ("slices", "rows")
    each = P(rows, "columns")
    return jax.shard_map(flash if "block_b" in kernel else splashes, mesh=mesh, in_specs=(*(each,) * 3, P(rows)), out_specs=each,
                         check_vma=False)(q, k, v, segments)  # fmt: skip


def whole_sums(mesh, spec):
    """Weights whose gradient is summed whole on every device before each takes its part of it."""
    part, whole = NamedSharding(mesh, spec), NamedSharding(mesh, P(*(None if axis in ("rows", ("slices", "rows")) else axis for axis in spec)))
    weights = jax.custom_vjp(lambda w: w)
    weights.defvjp(lambda w: (w, None), lambda _, g: (jax.lax.with_sharding_constraint(
        jax.lax.optimization_barrier(jax.lax.with_sharding_constraint(g, whole)), part),))  # fmt: skip
    return weights


def policy_of(keep):
    """What the backward pass finds again: nothing but the layer's input, the products, or named arrays on the host."""
    if keep == "products":
        return jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return keep and jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=list(keep), offload_src="device", offload_dst="pinned_host")


def language_model(model, devices, slices, batch, activation=None, tied=False, kernel=None, iota=False, split=1, keep=(), merged=True,
                   across=False, shifts=False, length=2048):
    """The step, its arguments, and the model's flop a device, in which recomputation does not count."""
    layers, width, heads, kv_heads, size, hidden, vocabulary = MODELS[model]
    mesh = AbstractMesh((slices, devices // split, split), ("slices", "rows", "columns"), axis_types=(AxisType.Auto,) * 3)
    rows = ("slices", "rows")
    between = NamedSharding(mesh, P(rows, None, "columns" if split > 1 else None))

    def layer(x, w, segments):
        x = checkpoint_name(x, "input")
        w = {k: v if v.ndim == 1 else v.astype(jnp.bfloat16) for k, v in w.items()}
        if not merged:
            w = {k: v if v.ndim == 1 else whole_sums(mesh, P(*weights[k][1][1:]))(v) for k, v in w.items()}
        h = norm(x, w["norm1"])
        q, k, v = (jnp.einsum("btd,dhk->bhtk", h, w[name]) for name in "qkv")
        if activation != "gelu":
            q, k = rotate(q, shifts), rotate(k, shifts)
        q, k, v = (checkpoint_name(a, name) for a, name in ((q, "q"), (k, "k"), (v, "v")))
        x = x + checkpoint_name(jnp.einsum("bhtk,hkd->btd", attention(q, k, v, segments, mesh, kernel), w["o"]), "out")
        h = norm(x, w["norm2"])
        h = getattr(jax.nn, activation)(h @ w["up"]) if activation else jax.nn.silu(h @ w["gate"]) * (h @ w["up"])
        return jax.lax.with_sharding_constraint(x + checkpoint_name(h @ w["down"], "down"), between), None

    def loss(p, tokens, targets, segments):
        table = p["in"].astype(jnp.bfloat16)
        x = jax.nn.one_hot(tokens, vocabulary, dtype=jnp.bfloat16) @ table if iota else table[tokens]
        x = jax.lax.with_sharding_constraint(x, between)
        x, _ = jax.lax.scan(jax.checkpoint(lambda x, w: layer(x, w, segments), policy=policy_of(keep) or None), x, p["layers"])
        x = norm(x, p["norm"])
        logits = (x @ (table.T if tied else p["out"].astype(jnp.bfloat16))).astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0])

    def step(p, m, v, tokens, targets, segments):
        value, g = jax.value_and_grad(loss)(p, tokens, targets, segments)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b * b, v, g)
        return jax.tree.map(lambda p, a, b: p - 1e-4 * (a * jax.lax.rsqrt(b + 1e-8) + 0.1 * p), p, m, v), m, v, value

    wide = P(None, "rows", "columns")
    weights = {"norm1": ((width,), P()), "norm2": ((width,), P()),
               "o": ((heads, size, width), P(None, "columns", None, "rows")),
               "q": ((width, heads, size), wide), "k": ((width, kv_heads, size), wide), "v": ((width, kv_heads, size), wide),
               "up": ((width, hidden), wide), "down": ((hidden, width), P(None, "columns", "rows"))}  # fmt: skip
    if not activation:
        weights["gate"] = weights["up"]

    if across:
        weights = {name: (shape, P(*(rows if axis == "rows" else axis for axis in spec))) for name, (shape, spec) in weights.items()}

    def array(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    p = {"in": array((vocabulary, width), P("columns", "rows")), "norm": array((width,), P()),
         "layers": {name: array((layers, *shape), spec) for name, (shape, spec) in weights.items()}}  # fmt: skip
    if not tied:
        p["out"] = array((width, vocabulary), P("rows", "columns"))
    tokens = array((batch * devices * slices, length), P(rows), jnp.int32)
    matrices = layers * (width * size * 2 * (heads + kv_heads) + width * hidden * (2 if activation else 3)) + vocabulary * width
    flop = 6 * matrices * batch * length + 12 * layers * length * heads * size * batch * length
    return jax.jit(step, donate_argnums=(0, 1, 2)), (p, p, p, tokens, tokens, tokens), flop


# ---- data-parallel steps ----------------------------------------------------------------------------------------------


def data_parallel(loss, shapes, batch, devices, trust, sums=jnp.float32):
    """A step of momentum, scaled by the norms of weights and gradients, as LARS and LAMB (with two moments: `trust` 2) do.
    `sums`: as what gradients meet."""
    mesh = AbstractMesh((devices,), ("all",), axis_types=(AxisType.Auto,))

    def update(p, g, *moments):
        moments = [0.9 * m + 0.1 * g**i for i, m in enumerate(moments, 1)]
        u = moments[0] if trust == 1 else moments[0] * jax.lax.rsqrt(moments[1] + 1e-6)
        if p.ndim > 1:
            u = u + 1e-4 * p
            u = u * (jnp.sqrt(jnp.sum(p * p)) / (jnp.sqrt(jnp.sum(u * u)) + 1e-6))
        return p - 0.1 * u, *moments

    def step(p, moments, *arrays):
        value, g = jax.value_and_grad(loss)(p, *arrays)
        g, value = jax.lax.pmean((jax.tree.map(lambda a: a.astype(sums), g), value), "all")
        g = jax.tree.map(lambda a: a.astype(jnp.float32), g)
        new = jax.tree.map(update, p, g, *moments)
        each = [jax.tree.map(lambda _, n: n[i], p, new) for i in range(trust + 1)]  # noqa: B023
        return each[0], tuple(each[1:]), value

    whole, cut = P(), P("all")
    specs = (whole, whole, *(cut for _ in batch))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(whole,) * 3, check_vma=False)

    def array(shape, dtype=jnp.float32, spec=whole):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    p = jax.tree.map(array, shapes, is_leaf=lambda s: isinstance(s, tuple))
    arrays = [array((n * devices, *shape), dtype, cut) for n, *shape, dtype in batch]
    return jax.jit(mapped, donate_argnums=(0, 1)), (p, (p,) * trust, *arrays)


def conv(x, w, stride=1, padding="SAME"):
    return jax.lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


@jax.custom_vjp
def batch_norm(x, scales):
    """As TensorFlow's fused operator: one pass of sums, one that scales; and so backwards."""
    return batch_norm_forward(x, scales)[0]


def batch_norm_forward(x, scales):
    y = x.astype(jnp.float32)
    mean = jnp.mean(y, (0, 1, 2))
    inverse = jax.lax.rsqrt(jnp.mean(y * y, (0, 1, 2)) - mean * mean + 1e-5)
    return ((y - mean) * (inverse * scales[0]) + scales[1]).astype(x.dtype), (x, mean, inverse, scales)


def batch_norm_backward(kept, g):
    x, mean, inverse, scales = kept
    g, centred = g.astype(jnp.float32), x.astype(jnp.float32) - mean
    total, along = jnp.sum(g, (0, 1, 2)), jnp.sum(g * centred, (0, 1, 2))
    count = x.size / x.shape[-1]
    back = scales[0] * inverse * (g - total / count - centred * (inverse * inverse * along / count))
    return back.astype(x.dtype), jnp.stack([along * inverse, total])


batch_norm.defvjp(batch_norm_forward, batch_norm_backward)


@jax.custom_vjp
def relu(x):
    """As TensorFlow's, whose gradient looks at the result."""
    return jnp.maximum(x, 0)


relu.defvjp(lambda x: (relu(x),) * 2, lambda y, g: (jnp.where(y > 0, g, 0),))


def cross_entropy(logits, labels):
    logits = logits.astype(jnp.float32)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0])


def resnet50(devices, images):
    """Version 1.5, images with two by two pixels in the channels, as in the submissions; norms over a device's images."""
    shapes = {"stem": (4, 4, 12, 64), "norm": (2, 64), "out": (2048, 1000), "blocks": []}
    inner = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(count):
            shapes["blocks"].append(
                {"a": (1, 1, inner, width), "b": (3, 3, width, width), "c": (1, 1, width, 4 * width),
                 "na": (2, width), "nb": (2, width), "nc": (2, 4 * width)}
                | ({} if block else {"d": (1, 1, inner, 4 * width), "nd": (2, 4 * width)}))  # fmt: skip
            inner = 4 * width

    def loss(p, images, labels):
        x = relu(batch_norm(conv(images, p["stem"]), p["norm"]))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for w in p["blocks"]:
            stride = 2 if "d" in w and w["b"].shape[2] > 64 else 1
            y = relu(batch_norm(conv(x, w["a"]), w["na"]))
            y = relu(batch_norm(conv(y, w["b"], stride), w["nb"]))
            y = batch_norm(conv(y, w["c"]), w["nc"])
            x = relu(y + (batch_norm(conv(x, w["d"], stride), w["nd"]) if "d" in w else x))
        x = jnp.mean(x.astype(jnp.float32), (1, 2)).astype(jnp.bfloat16)
        return cross_entropy(x @ p["out"].astype(jnp.bfloat16), labels)

    batch = [(images, 112, 112, 12, jnp.bfloat16), (images, jnp.int32)]
    return data_parallel(loss, shapes, batch, devices, 1)


def bert_large(devices, sequences, research=False):
    """Pretraining, 512 tokens a sequence, 76 of them masked; with dropout; attention written out. `research`: as in the
    submissions of that category, which divide by a softmax's sum after the product and sum gradients in bf16."""
    width, heads, hidden, vocabulary, length, masked = 1024, 16, 4096, 30522, 512, 76
    layer = {"qkv": (width, 3, heads, 64), "bqkv": (3, heads, 64), "o": (heads, 64, width), "bo": (width,), "n1": (2, width),
             "up": (width, hidden), "bup": (hidden,), "down": (hidden, width), "bdown": (width,), "n2": (2, width)}  # fmt: skip
    shapes = {"words": (vocabulary, width), "places": (length, width), "kinds": (2, width), "n": (2, width), "layers": [layer] * 24,
              "pool": (width, width), "next": (width, 2), "mask": (width, width), "nm": (2, width), "bias": (vocabulary,)}  # fmt: skip

    def scaled(x, s):
        y = x.astype(jnp.float32)
        mean = jnp.mean(y, -1, keepdims=True)
        variance = jnp.mean((y - mean) ** 2, -1, keepdims=True)
        return ((y - mean) * jax.lax.rsqrt(variance + 1e-12) * s[0] + s[1]).astype(jnp.bfloat16)

    def dropout(x):
        return jnp.where(jax.lax.rng_uniform(jnp.float32(0), jnp.float32(1), x.shape) < 0.9, x / 0.9, 0).astype(x.dtype)

    def attend(q, k, v, mask):
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k) * 0.125 + mask
        return jnp.einsum("bhts,bhsk->bhtk", dropout(jax.nn.softmax(scores, -1)), v)

    def attend_research(q, k, v, mask):
        scores = (jnp.einsum("bhtk,bhsk->bhts", q * 0.125, k) + mask).astype(jnp.float32)
        scores = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, -1, keepdims=True)))
        total = jnp.sum(scores, -1, keepdims=True).astype(q.dtype)
        keep = jax.lax.rng_uniform(jnp.bfloat16(0), jnp.bfloat16(1), scores.shape) >= 0.1
        return jnp.einsum("bhts,bhsk->bhtk", keep.astype(q.dtype) * scores.astype(q.dtype), v) / total * (1 / 0.9)

    def block(x, w, mask):
        w = {k: v if k[0] == "n" else v.astype(jnp.bfloat16) for k, v in w.items()}
        q, k, v = jnp.einsum("btd,dchk->cbhtk", x, w["qkv"]) + w["bqkv"][:, None, :, None]
        y = (attend_research if research else attend)(q, k, v, mask)
        y = jnp.einsum("bhtk,hkd->btd", y, w["o"]) + w["bo"]
        x = scaled(x + dropout(y), w["n1"])
        y = jax.nn.gelu(x @ w["up"] + w["bup"]) @ w["down"] + w["bdown"]
        return scaled(x + dropout(y), w["n2"])

    def loss(p, tokens, kinds, present, places, targets, follows):
        words = p["words"].astype(jnp.bfloat16)
        x = words[tokens] + p["places"].astype(jnp.bfloat16) + jax.nn.one_hot(kinds, 2, dtype=jnp.bfloat16) @ p["kinds"].astype(jnp.bfloat16)
        x = dropout(scaled(x, p["n"]))
        mask = (present[:, None, None, :] - 1).astype(jnp.bfloat16) * 10000
        for w in p["layers"]:
            x = block(x, w, mask)
        first = jnp.tanh(x[:, 0] @ p["pool"].astype(jnp.bfloat16)) @ p["next"].astype(jnp.bfloat16)
        chosen = jnp.take_along_axis(x, places[..., None], 1)
        chosen = scaled(jax.nn.gelu(chosen @ p["mask"].astype(jnp.bfloat16)), p["nm"])
        return cross_entropy(chosen @ words.T + p["bias"].astype(jnp.bfloat16), targets) + cross_entropy(first, follows)

    whole = [(sequences, length, jnp.int32)] * 3
    batch = [*whole, (sequences, masked, jnp.int32), (sequences, masked, jnp.int32), (sequences, jnp.int32)]
    return data_parallel(loss, shapes, batch, devices, 2, jnp.bfloat16 if research else jnp.float32)


# net, group, slice, devices, examples a device, seconds between evaluations, training examples and evaluated ones in them.
# Of those runs whose evaluations are 20 s apart or more: in others the input and the loop around the steps weigh too much.
MLPERF = [
    (resnet50, "convolution nets", "v3-32", 32, 128, 159.864, 5124668, 50000),  # 0.7
    (resnet50, "convolution nets", "v3-32", 32, 128, 164.112, 5124668, 50000),  # 0.6, and so the next two
    (resnet50, "convolution nets", "v3-128", 128, 128, 40.974, 5124668, 50000),
    (resnet50, "convolution nets", "v3-256", 256, 128, 21.283, 5124668, 50000),
    (resnet50, "convolution nets", "v4-16", 8, 256, 184.199, 5124668, 50000),  # 0.7, and so the rest
    (resnet50, "convolution nets", "v4-128", 64, 128, 24.457, 5124668, 50000),
    (bert_large, "training steps", "v3-32", 32, 14, 514.398, 1117 * 448, 10000),
    (bert_large, "training steps", "v4-16", 8, 32, 455.634, 1953 * 256, 10000),
    (bert_large, "training steps", "v4-128", 64, 48, 53.945, 163 * 3072, 10000),
]


def rows():
    """Group, slice, name, published seconds, source and program of each, made when it is asked for."""
    for model, slice_name, devices, slices, published, batch, source, more in STEPS:
        where = slice_name if slices == 1 else f"{slice_name} x{slices}"

        def make(model=model, devices=devices, slices=slices, published=published, batch=batch, more=more):
            step, arguments, flop = language_model(model, devices, slices, batch, **more)
            return step, arguments, float(published) if isinstance(published, Seconds) else flop / published / 1e12

        yield "training steps", where, f"{model}, {batch} a device", source, make
    for net, group, slice_name, devices, batch, seconds, trained, evaluated in MLPERF:

        def make(net=net, slice_name=slice_name, devices=devices, batch=batch, seconds=seconds, examples=trained + evaluated / 3):
            more = {"research": True} if net is bert_large and slice_name.startswith("v4") else {}
            return *net(devices, batch, **more), seconds / (examples / (batch * devices))

        yield group, slice_name, f"{net.__name__}, {batch} a device", "mlperf", make


def main(wanted=""):
    for group, slice_name, name, source, make in rows():
        if wanted not in f"{group} {slice_name} {name}":
            continue
        step, arguments, seconds = make()
        text = step.trace(*arguments).lower(lowering_platforms=("tpu",)).as_text().encode()
        print(group, slice_name, name, repr(seconds), source, len(text), sep="\t", flush=True)
        sys.stdout.buffer.write(text)
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
