# SPDX-License-Identifier: Apache-2.0
"""Programs that ran on real slices are accepted: compiled for them ahead of time, not run."""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax import lax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.usefixtures("tpu_only")
GIB = 1 << 30
BF16, F32 = jnp.bfloat16, jnp.float32


def mesh_of(topology, axis):
    return Mesh(np.array(topologies.get_topology_desc(topology, "tpu").devices), (axis,))


def resnet_step(mesh, batch, by_hand):
    """bf16 training step of ResNet-50 with momentum, parameters in float32."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../models/resnet50"))
    from train import ResNet50

    model = ResNet50()
    everywhere, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    state = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((2, 224, 224, 3)), train=True))
    state = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=everywhere), state)
    x = jax.ShapeDtypeStruct((batch, 224, 224, 3), BF16, sharding=rows)
    y = jax.ShapeDtypeStruct((batch,), jnp.int32, sharding=rows)

    def step(params, stats, momentum, x, y):
        def loss(params):
            variables = {"params": jax.tree.map(lambda a: a.astype(BF16), params), "batch_stats": stats}
            logits, new = model.apply(variables, x, train=True, mutable=["batch_stats"])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(F32), y)
            return losses.mean(), new["batch_stats"]

        (value, stats_), grads = jax.value_and_grad(loss, has_aux=True)(params)
        if by_hand:
            value, stats_, grads = lax.pmean((value, stats_, grads), "data")
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), stats_, momentum, value

    if by_hand:
        in_specs = (P(), P(), P(), P("data"), P("data"))
        step = jax.shard_map(step, mesh=mesh, in_specs=in_specs, out_specs=P(), check_vma=False)
    return jax.jit(step, donate_argnums=(0, 1, 2)).lower(state["params"], state["batch_stats"], state["params"], x, y)


def norm(x, scale, offset):
    x = x.astype(F32)
    x = x - x.mean(-1, keepdims=True)
    return (x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale + offset).astype(BF16)


def bert_step(mesh, micro, rounds, layers=24, width=1024, heads=16, length=512, words=30522, masked=76):
    """A LAMB step of BERT-large's pretraining, the masked words only; `rounds` micro-batches of `micro` on each core."""
    shapes = {"words": (words, width), "places": (length, width), "out": (words,)}
    for i in range(layers):
        shapes |= {f"{i}.{name}": shape for name, shape in {
            "qkv": (width, 3 * width), "join": (width, width), "up": (width, 4 * width), "down": (4 * width, width),
            "qkv_b": (3 * width,), "join_b": (width,), "up_b": (4 * width,), "down_b": (width,),
            "scale": (2, width), "offset": (2, width)}.items()}  # fmt: skip
    everywhere, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = {name: jax.ShapeDtypeStruct(shape, F32, sharding=everywhere) for name, shape in shapes.items()}
    examples = micro * rounds * mesh.size

    def numbers(count):
        return jax.ShapeDtypeStruct((examples, count), jnp.int32, sharding=rows)

    def loss(params, ids, places, labels):
        p = {name: value.astype(BF16) for name, value in params.items()}
        x, n = p["words"][ids] + p["places"], ids.shape[0]
        for i in range(layers):
            qkv = (x @ p[f"{i}.qkv"] + p[f"{i}.qkv_b"]).reshape(n, length, 3, heads, width // heads)
            scores = jnp.einsum("bqhd,bkhd->bhqk", qkv[:, :, 0], qkv[:, :, 1]) / 8
            weights = jax.nn.softmax(scores.astype(F32)).astype(BF16)
            y = jnp.einsum("bhqk,bkhd->bqhd", weights, qkv[:, :, 2]).reshape(n, length, width)
            y = y @ p[f"{i}.join"] + p[f"{i}.join_b"]
            x = norm(x + y, p[f"{i}.scale"][0], p[f"{i}.offset"][0])
            y = jax.nn.gelu(x @ p[f"{i}.up"] + p[f"{i}.up_b"]) @ p[f"{i}.down"] + p[f"{i}.down_b"]
            x = norm(x + y, p[f"{i}.scale"][1], p[f"{i}.offset"][1])
        logits = jnp.take_along_axis(x, places[:, :, None], 1) @ p["words"].T + p["out"]
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(F32), labels).mean()

    def step(params, first, second, ids, places, labels):
        def add(total, batch):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, *batch)), None

        batches = jax.tree.map(lambda a: a.reshape(rounds, micro, -1), (ids, places, labels))
        grads, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, params), batches)
        grads = lax.pmean(grads, "data")
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

        def lamb(p, m, v):
            update = m / (jnp.sqrt(v) + 1e-6) + 0.01 * p
            return p - 1e-3 * jnp.linalg.norm(p) / jnp.linalg.norm(update) * update

        return jax.tree.map(lamb, params, first, second), first, second

    d = P("data")
    step = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P(), d, d, d), out_specs=P(), check_vma=False)
    arguments = (params, params, params, numbers(length), numbers(masked), numbers(masked))
    return jax.jit(step, donate_argnums=(0, 1, 2)).lower(*arguments)


def llama_step(mesh, kept, scanned, batch=32, length=4096, layers=80, width=8192, heads=64, groups=8, inner=28672):
    """One token of Llama 70B with int8 weights, sharded over the devices by columns and rows of the products."""

    def array(dtype, shape, *axes, each_layer=True):
        if each_layer and scanned:
            shape, axes = (layers, *shape), (None, *axes)
        one = jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*axes)))
        return one if scanned or not each_layer else [one] * layers

    head = width // heads
    columns = {"q": (width, width), "k": (width, groups * head), "v": (width, groups * head), "gate": (width, inner),
               "up": (width, inner)}  # fmt: skip
    rows = {"join": (width, width), "down": (inner, width)}
    weights = {name: array(jnp.int8, shape, None, "model") for name, shape in columns.items()}
    weights |= {name: array(jnp.int8, shape, "model", None) for name, shape in rows.items()}
    cache = {name: array(kept, (batch, length, groups, head), None, None, "model") for name in ("keys", "values")}
    table = array(jnp.int8, (128256, width), "model", each_layer=False)

    def layer(x, w, cache, at):
        def times(x, name):
            return x @ w[name].astype(BF16)

        fresh = {"keys": times(x, "k"), "values": times(x, "v")}
        for name, value in fresh.items():
            value = value.reshape(batch, 1, groups, head).astype(kept)
            cache = cache | {name: lax.dynamic_update_slice(cache[name], value, (0, at, 0, 0))}
        q = times(x, "q").reshape(batch, groups, heads // groups, head)
        scores = jnp.einsum("bgqd,bsgd->bgqs", q, cache["keys"].astype(BF16)).astype(F32)
        weights = jax.nn.softmax(jnp.where(jnp.arange(length) <= at, scores, -1e9)).astype(BF16)
        y = jnp.einsum("bgqs,bsgd->bgqd", weights, cache["values"].astype(BF16)).reshape(batch, width)
        x = x + times(y, "join")
        return x + (jax.nn.silu(times(x, "gate")) * times(x, "up")) @ w["down"].astype(BF16), cache

    def step(weights, table, cache, tokens, at):
        x = table[tokens].astype(BF16)
        if scanned:
            x, cache = lax.scan(lambda x, layer_: layer(x, *layer_, at), x, (weights, cache))
        else:
            kept_ = {name: [] for name in cache}
            for i in range(layers):
                x, new = layer(x, {n: w[i] for n, w in weights.items()}, {n: c[i] for n, c in cache.items()}, at)
                for name, value in new.items():
                    kept_[name].append(value)
            cache = kept_
        return jnp.argmax(x @ table.T.astype(BF16), -1), cache

    tokens = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return jax.jit(step, donate_argnums=2).lower(weights, table, cache, tokens, jax.ShapeDtypeStruct((), jnp.int32))


@pytest.mark.parametrize("by_hand", [False, True])
def test_resnet50_of_1024_on_v2_8(by_hand):
    resnet_step(mesh_of("v2:2x2", "data"), 1024, by_hand).compile()


@pytest.mark.parametrize("micro, rounds", [(24, 32), (768, 1)])
def test_bert_large_of_24576_on_v3_32(micro, rounds):
    stats = bert_step(mesh_of("v3:4x4", "data"), micro, rounds).compile().memory_analysis()
    assert stats.argument_size_in_bytes == pytest.approx(3.75 * GIB, rel=0.02)  # 12 bytes for each parameter


@pytest.mark.parametrize("kept, scanned", [(jnp.int8, False), (BF16, False), (jnp.int8, True), (BF16, True)])
def test_llama_70b_in_int8_on_v6e_8(kept, scanned):
    stats = llama_step(mesh_of("v6e:2x4", "model"), kept, scanned).compile().memory_analysis()
    assert 8 * GIB < stats.argument_size_in_bytes < 16 * GIB


def test_llama_70b_with_too_large_a_cache_is_refused():
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        llama_step(mesh_of("v6e:2x4", "model"), BF16, True, batch=256).compile()


@pytest.mark.parametrize("scanned", [False, True])
def test_every_weight_is_read_once_a_token(scanned):
    mesh = mesh_of("v6e:2x4", "model")
    cost = llama_step(mesh, jnp.int8, scanned, layers=8).compile().cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    weights = 8 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 128256 * 8192
    cache = 8 * 2 * 32 * 4096 * 1024
    assert weights <= cost["bytes accessed"] <= weights + 1.05 * cache
