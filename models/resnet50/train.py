#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 (version 1.5) with batch normalisation in Flax (linen), trained on synthetic images of 224 x 224.

The images are noise around one pattern per class, so the loss falls; this program is about speed and memory.
Data-parallel over all devices; batch statistics are over the whole batch.
"""

import argparse
import functools
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STAGES = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    features: int
    strides: int
    conv: object
    norm: object

    @nn.compact
    def __call__(self, x):
        y = nn.relu(self.norm()(self.conv(self.features, (1, 1))(x)))
        y = nn.relu(self.norm()(self.conv(self.features, (3, 3), (self.strides, self.strides))(y)))
        y = self.norm(scale_init=nn.initializers.zeros)(self.conv(4 * self.features, (1, 1))(y))
        if x.shape != y.shape:
            strides = (self.strides, self.strides)
            x = self.norm(name="norm_shortcut")(self.conv(4 * self.features, (1, 1), strides, name="shortcut")(x))
        return nn.relu(x + y)


class ResNet50(nn.Module):
    classes: int = 1000

    @nn.compact
    def __call__(self, x, train):
        conv = functools.partial(nn.Conv, use_bias=False)
        norm = functools.partial(nn.BatchNorm, use_running_average=not train, momentum=0.9, epsilon=1e-5)
        x = conv(64, (7, 7), (2, 2), padding=[(3, 3), (3, 3)], name="stem")(x)
        x = nn.relu(norm(name="norm_stem")(x))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for stage, blocks in enumerate(STAGES):
            for block in range(blocks):
                strides = 2 if stage > 0 and block == 0 else 1
                x = Bottleneck(64 * 2**stage, strides, conv, norm)(x)
        return nn.Dense(self.classes)(jnp.mean(x, axis=(1, 2)))


class State(train_state.TrainState):
    batch_stats: dict


def create_state(classes=1000, size=224, learning_rate=0.1, seed=0):
    model = ResNet50(classes)
    variables = model.init(jax.random.key(seed), jnp.zeros((1, size, size, 3)), train=False)
    optimizer = optax.sgd(learning_rate, momentum=0.9, nesterov=True)
    return State.create(apply_fn=model.apply, tx=optimizer, **variables)


def synthetic(batch, size, classes, step):
    random = np.random.default_rng(step)
    labels = random.integers(0, classes, batch, dtype=np.int32)
    grid = np.arange(size) / size
    pattern = np.sin(2 * np.pi * (labels[:, None] % 17 + 1) * grid)
    images = random.standard_normal((batch, size, size, 3), np.float32) + pattern[:, None, :, None].astype(np.float32)
    return {"image": images, "label": labels}


def train_step(state, batch):
    def loss_fn(params):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, batch["image"], train=True, mutable=["batch_stats"]
        )
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
        decay = sum(jnp.sum(p**2) for p in jax.tree.leaves(params) if p.ndim > 1)
        return loss + 0.5e-4 * decay, (loss, updates["batch_stats"])

    (_, (loss, batch_stats)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats), loss


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    args = parser.parse_args(argv)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    state = create_state(args.classes, args.size, args.learning_rate)
    state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))
    step_fn = jax.jit(train_step, donate_argnums=0)
    for step in range(args.steps):
        start = time.perf_counter()
        batch = synthetic(args.batch, args.size, args.classes, step)
        state, loss = step_fn(state, jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data"))))
        loss = float(loss)
        print(f"step {step + 1}: loss {loss:.3f}, {args.batch / (time.perf_counter() - start):.2f} images/s")


if __name__ == "__main__":
    main()
