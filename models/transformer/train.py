#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small decoder language model on bytes of the licence texts that every Debian system carries.

Flax (linen): one block scanned over the layers and rematerialised, tied embeddings, dropout, rotary positions, AdamW.
The devices form a mesh of data x model: batches are split over the first axis, the feed-forward and attention
weights over the second.
"""

import argparse
import dataclasses
import glob
import os
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TEXTS = "/usr/share/common-licenses/*"
VOCABULARY = 256


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 4
    width: int = 256
    heads: int = 8
    length: int = 128
    batch: int = 16
    dropout: float = 0.1
    steps: int = 200
    learning_rate: float = 1e-3
    model_parallel: int = 1
    seed: int = 0


def rotate(x):
    """Rotary position embedding of [batch, time, heads, features]."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], -1)


class Block(nn.Module):
    config: Config
    train: bool

    @nn.compact
    def __call__(self, x, _):
        c = self.config
        drop = nn.Dropout(c.dropout, deterministic=not self.train)
        y = nn.LayerNorm(name="norm_attention")(x)
        shape = (*y.shape[:2], c.heads, c.width // c.heads)
        query, key, value = (nn.Dense(c.width, use_bias=False, name=n)(y).reshape(shape) for n in ("q", "k", "v"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", rotate(query), rotate(key)) / np.sqrt(shape[-1])
        causal = jnp.tril(jnp.ones((y.shape[1], y.shape[1]), bool))
        weights = drop(jax.nn.softmax(jnp.where(causal, scores, -1e9)))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(y.shape)
        x = x + drop(nn.Dense(c.width, use_bias=False, name="out")(mixed))
        y = nn.LayerNorm(name="norm_mlp")(x)
        y = nn.Dense(c.width, name="down")(nn.gelu(nn.Dense(4 * c.width, name="up")(y)))
        return x + drop(y), None


class Decoder(nn.Module):
    config: Config

    @nn.compact
    def __call__(self, tokens, train=False):
        c = self.config
        embed = nn.Embed(VOCABULARY, c.width, embedding_init=nn.initializers.normal(0.02), name="embed")
        x = nn.Dropout(c.dropout, deterministic=not train)(embed(tokens))
        layers = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=c.layers,
        )
        x, _ = layers(c, train, name="layers")(x, None)
        return embed.attend(nn.LayerNorm(name="norm")(x))


def load(pattern=TEXTS):
    """All the texts, each once (many names are links), as one array of bytes."""
    paths = sorted({os.path.realpath(path) for path in glob.glob(pattern)})
    if not paths:
        raise SystemExit(f"no text matches {pattern}")
    return np.frombuffer(b"\0".join(open(path, "rb").read() for path in paths), np.uint8)


def sample(text, config, step):
    """Windows of length + 1 at positions that depend on the seed and the step alone."""
    starts = np.random.default_rng([config.seed, step]).integers(0, len(text) - config.length - 1, config.batch)
    return text[starts[:, None] + np.arange(config.length + 1)].astype(np.int32)


def create_state(config):
    model = Decoder(config)
    params = model.init(jax.random.key(config.seed), jnp.zeros((1, config.length), jnp.int32))["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, 20, max(config.steps, 21))
    decay = jax.tree.map(lambda p: p.ndim > 1, params)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1, mask=decay))
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)


def train_step(state, tokens, key):
    key = jax.random.fold_in(key, state.step)

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1], train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def shardings(state, mesh):
    """The sharding of every leaf of the state: widened dimensions are split over `model`, all else is replicated."""

    def of(path, leaf):
        name = jax.tree_util.keystr(path)
        spec = PartitionSpec()
        if "layers" in name and "kernel" in name:
            split_rows = "'out'" in name or "'down'" in name
            spec = PartitionSpec(None, "model", None) if split_rows else PartitionSpec(None, None, "model")
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(of, state)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in dataclasses.fields(Config):
        parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
    config = Config(**vars(parser.parse_args(argv)))

    devices = np.array(jax.devices()).reshape(-1, config.model_parallel)
    mesh = Mesh(devices, ("data", "model"))
    state = create_state(config)
    state = jax.device_put(state, shardings(state, mesh))
    by_data = NamedSharding(mesh, PartitionSpec("data"))
    step_fn = jax.jit(train_step, donate_argnums=0)
    key = jax.random.key(config.seed + 1)
    text = load()
    print(f"{len(text):,} bytes of text, {sum(p.size for p in jax.tree.leaves(state.params)):,} parameters")

    start = time.perf_counter()
    for step in range(config.steps):
        state, loss = step_fn(state, jax.device_put(sample(text, config, step), by_data), key)
        if (step + 1) % 20 == 0:
            rate = (step + 1) * config.batch * config.length / (time.perf_counter() - start)
            print(f"step {step + 1}: loss {float(loss):.3f} nats per byte, {rate:,.0f} bytes/s")


if __name__ == "__main__":
    main()
