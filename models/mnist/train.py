#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on Fashion-MNIST, data-parallel over all devices.

Flax (linen) and Optax. The images are the files of Debian's package dataset-fashion-mnist.
"""

import argparse
import dataclasses
import gzip
import os
import time

import flax.linen as nn
import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

DATA = "/usr/share/datasets/fashion-mnist"
CLASSES = 10
MEAN, DEVIATION = 0.286, 0.353  # of the training images


@dataclasses.dataclass
class Config:
    epochs: float = 3
    steps: int = 0  # 0: as many as `epochs` needs
    batch: int = 256  # over all devices
    learning_rate: float = 3e-3
    seed: int = 0
    data: str = DATA
    checkpoint: str = ""
    save_every: int = 100
    resume: bool = False
    quiet: bool = False


@dataclasses.dataclass
class Result:
    state: train_state.TrainState
    losses: list  # one for each step of this run
    accuracy: float  # on the test images
    steps: int
    batch: int
    seconds: float  # of the training loop, first compilation included
    first_step_seconds: float


class CNN(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = (images.astype(jnp.float32) / 255.0 - MEAN) / DEVIATION
        for features in (32, 64):
            x = nn.Conv(features, kernel_size=(3, 3))(x)
            x = nn.relu(x)
            x = nn.max_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(CLASSES)(x)


def read_idx(path):
    """An array in the IDX format: two zero bytes, type, rank, big-endian sizes, data."""
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
        content = file.read()
    zero, kind, rank = int.from_bytes(content[:2], "big"), content[2], content[3]
    if zero != 0 or kind != 8:
        raise ValueError(f"{path}: not an IDX file of bytes")
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load(split, folder=DATA):
    """Images [n, 28, 28, 1] and labels [n] of "train" or "t10k"."""
    arrays = []
    for name in (f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"):
        path = os.path.join(folder, name)
        arrays.append(read_idx(path if os.path.exists(path) else path + ".gz"))
    images, labels = arrays
    return images[..., None], labels.astype(np.int32)


def create_state(config, steps):
    model = CNN()
    params = model.init(jax.random.key(config.seed), jnp.zeros((1, 28, 28, 1), jnp.uint8))["params"]
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=0.0, peak_value=config.learning_rate, warmup_steps=min(50, max(1, steps // 10)), decay_steps=max(2, steps)
    )
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(schedule))


def loss_and_logits(params, apply_fn, batch):
    logits = apply_fn({"params": params}, batch["image"])
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
    return loss, logits


def train_step(state, batch):
    gradient = jax.value_and_grad(loss_and_logits, has_aux=True)
    (loss, logits), grads = gradient(state.params, state.apply_fn, batch)
    accuracy = jnp.mean(jnp.argmax(logits, -1) == batch["label"])
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": accuracy}


def eval_step(state, batch):
    logits = state.apply_fn({"params": state.params}, batch["image"])
    return jnp.sum(jnp.argmax(logits, -1) == batch["label"])


def jit_train_step():
    return jax.jit(train_step, donate_argnums=0)


def save(path, state, step):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".new", "wb") as file:
        file.write(flax.serialization.to_bytes({"state": state, "step": step}))
    os.replace(path + ".new", path)


def restore(path, state):
    with open(path, "rb") as file:
        saved = flax.serialization.from_bytes({"state": state, "step": 0}, file.read())
    return saved["state"], saved["step"]


def batches(images, labels, config, first, last):
    """Batches first .. last-1 of an endless stream that depends on the seed alone, so that a run can be resumed."""
    per_epoch = len(images) // config.batch
    order, epoch = None, -1
    for step in range(first, last):
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            order = np.random.default_rng([config.seed, epoch]).permutation(len(images))
        at = step % per_epoch * config.batch
        picked = order[at : at + config.batch]
        yield {"image": images[picked], "label": labels[picked]}


def evaluate(state, images, labels, sharding, batch=1000):
    step = jax.jit(eval_step)
    right = 0
    for at in range(0, len(images), batch):
        part = {"image": images[at : at + batch], "label": labels[at : at + batch]}
        right += int(step(state, jax.device_put(part, sharding)))
    return right / len(images)


def train(config):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    if config.batch % mesh.size:
        raise SystemExit(f"--batch {config.batch} does not divide by the {mesh.size} devices")
    replicated, sharded = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    images, labels = load("train", config.data)
    steps = config.steps or int(config.epochs * (len(images) // config.batch))

    state, first = create_state(config, steps), 0
    if config.resume and os.path.exists(config.checkpoint):
        state, first = restore(config.checkpoint, state)
    state = jax.device_put(state, replicated)
    step_fn = jit_train_step()

    history, losses, shown = [], [], {}
    start = time.perf_counter()
    first_step_seconds = 0.0
    with tqdm(total=steps, initial=first, unit="step", disable=config.quiet, smoothing=0.1) as bar:
        for step, batch in enumerate(batches(images, labels, config, first, steps), first + 1):
            state, metrics = step_fn(state, jax.device_put(batch, sharded))
            history.append(metrics)
            if step == first + 1:
                jax.block_until_ready(metrics)
                first_step_seconds = time.perf_counter() - start
            # The figures from some steps ago are ready: reading them does not stall the device.
            if step % 20 == 0 or step == steps:
                shown = jax.device_get(history[max(0, len(history) - 10)])
                rate = (step - first) * config.batch / (time.perf_counter() - start)
                bar.set_postfix_str(
                    f"loss {shown['loss']:.3f}, accuracy {shown['accuracy']:.3f}, {rate:,.0f} examples/s", refresh=False
                )
            bar.update()
            if config.checkpoint and (step % config.save_every == 0 or step == steps):
                save(config.checkpoint, jax.device_get(state), step)
        jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    losses = [float(metrics["loss"]) for metrics in jax.device_get(history)]

    accuracy = evaluate(state, *load("t10k", config.data), sharded)
    return Result(state, losses, accuracy, len(losses), config.batch, seconds, first_step_seconds)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in dataclasses.fields(Config):
        flag = "--" + field.name.replace("_", "-")
        if field.type is bool:
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=field.type, default=field.default)
    return Config(**vars(parser.parse_args(argv)))


def main(argv=None):
    config = parse(argv)
    print(f"{jax.device_count()} x {jax.devices()[0].device_kind}, batch {config.batch}")
    result = train(config)
    rate = result.steps * result.batch / result.seconds if result.steps else 0.0
    print(f"{result.steps} steps in {result.seconds:.1f} s, {rate:,.0f} examples/s, test accuracy {result.accuracy:.4f}")


if __name__ == "__main__":
    main()
