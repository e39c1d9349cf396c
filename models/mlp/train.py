#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a multilayer perceptron on Fashion-MNIST with Flax NNX, data-parallel over all devices."""

import argparse
import gzip
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DATA = "/usr/share/datasets/fashion-mnist"


class MLP(nnx.Module):
    def __init__(self, sizes, rngs):
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in zip(sizes[:-1], sizes[1:])])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.gelu(layer(x))
        return self.layers[-1](x)


def load(split, folder=DATA):
    with gzip.open(f"{folder}/{split}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28 * 28)
    with gzip.open(f"{folder}/{split}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images.astype(np.float32) / 255, labels.astype(np.int32)


def create(width=1024, depth=3, seed=0):
    return MLP([28 * 28] + [width] * (depth - 1) + [10], nnx.Rngs(seed))


def create_state(model, optimizer):
    """The parameters, the optimiser's state, and the structure that turns parameters back into a model."""
    graph, params = nnx.split(model)
    return graph, (params, optimizer.init(params))


def make_train_step(graph, optimizer):
    def loss_fn(params, batch):
        logits = nnx.merge(graph, params)(batch["image"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
        return loss, jnp.mean(jnp.argmax(logits, -1) == batch["label"])

    def train_step(state, batch):
        params, optimizer_state = state
        (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, batch)
        updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), {"loss": loss, "accuracy": accuracy}

    return jax.jit(train_step, donate_argnums=0)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    images, labels = load("train")
    test = jax.device_put(dict(zip(("image", "label"), load("t10k"))), sharding)

    optimizer = optax.adamw(args.learning_rate)
    graph, state = create_state(create(args.width, seed=args.seed), optimizer)
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    step = make_train_step(graph, optimizer)
    accuracy_of = jax.jit(
        lambda params, batch: jnp.mean(jnp.argmax(nnx.merge(graph, params)(batch["image"]), -1) == batch["label"])
    )

    for epoch in range(args.epochs):
        start = time.perf_counter()
        order = np.random.default_rng([args.seed, epoch]).permutation(len(images))
        steps = len(images) // args.batch
        for picked in order[: steps * args.batch].reshape(steps, args.batch):
            batch = jax.device_put({"image": images[picked], "label": labels[picked]}, sharding)
            state, metrics = step(state, batch)
        loss, accuracy = float(metrics["loss"]), float(accuracy_of(state[0], test))
        seconds = time.perf_counter() - start
        print(f"epoch {epoch + 1}: loss {loss:.4f}, test accuracy {accuracy:.4f}, {len(images) / seconds:,.0f} examples/s")


if __name__ == "__main__":
    main()
