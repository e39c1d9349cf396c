#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A segmenter: says of each pixel of a scene which kind of clothing it shows, with a small U-Net in Keras 3.

Scenes are two images of Fashion-MNIST, one above the other's corner, on a wall with noise; 48 x 48 pixels. Kinds are
tops, trousers, dresses and coats, shoes, bags. Data-parallel over all devices.
"""

import argparse
import gzip
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers

DATA = "/usr/share/datasets/fashion-mnist"
SIZE = 48
KIND = np.array([1, 2, 1, 3, 3, 4, 1, 4, 5, 4])  # of Fashion-MNIST's labels; 0 is the wall
KINDS = 6


def fashion(split, folder=DATA):
    arrays = []
    for name, header in ((f"{split}-images-idx3-ubyte", 16), (f"{split}-labels-idx1-ubyte", 8)):
        path = os.path.join(folder, name)
        with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
            arrays.append(np.frombuffer(file.read(), np.uint8)[header:])
    return arrays[0].reshape(-1, 28, 28), arrays[1]


def scenes(images, labels, random, count):
    """Pictures [count, SIZE, SIZE, 1] and the kind of each pixel [count, SIZE, SIZE]."""
    pictures = random.normal(0.2, 0.1, (count, SIZE, SIZE, 1)).astype(np.float32)
    kinds = np.zeros((count, SIZE, SIZE), np.int32)
    for n in range(count):
        for i in random.integers(0, len(images), 2):
            top, left = random.integers(0, SIZE - 28 + 1, 2)
            shown = images[i] > 30
            part = np.s_[n, top : top + 28, left : left + 28]
            pictures[part][shown, 0] = images[i][shown] / 255 + 0.2
            kinds[part][shown] = KIND[labels[i]]
    return pictures, kinds


def network(width=16):
    def block(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        return x

    inputs = keras.Input((SIZE, SIZE, 1))
    fine = block(inputs, width)
    middle = block(layers.MaxPooling2D()(fine), 2 * width)
    coarse = block(layers.MaxPooling2D()(middle), 4 * width)
    coarse = block(layers.MaxPooling2D()(coarse), 4 * width)
    x = layers.UpSampling2D(4, interpolation="bilinear")(coarse)
    x = block(layers.Concatenate()([x, middle]), 2 * width)
    x = layers.Conv2DTranspose(width, 2, 2)(x)
    x = block(layers.Concatenate()([x, fine]), width)
    return keras.Model(inputs, layers.Conv2D(KINDS, 1, dtype="float32")(x))


def mean_overlap(wanted, got):
    """Of each kind its common pixels by its pixels together, on average."""
    shares = []
    for kind in range(KINDS):
        a, b = wanted == kind, got == kind
        shares.append((a & b).sum() / max(1, (a | b).sum()))
    return float(np.mean(shares))


def train(steps=160, batch=32, seed=0, quiet=False):
    """Trains; returns the losses of four parts of it and the mean overlap in 128 scenes of other clothes."""
    keras.utils.set_random_seed(seed)
    if keras.backend.backend() == "jax":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    random, (images, labels) = np.random.default_rng(seed), fashion("train")
    model = network()
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(6e-3, steps)),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))  # fmt: skip
    losses, start = [], time.perf_counter()
    for _ in range(4):
        pictures, kinds = scenes(images, labels, random, steps // 4 * batch)
        losses.append(model.fit(pictures, kinds, batch_size=batch, verbose=0).history["loss"][0])
        if not quiet:
            print(f"{len(pictures)} scenes: loss {losses[-1]:.3f}, {time.perf_counter() - start:.1f} s")
    pictures, kinds = scenes(*fashion("t10k"), np.random.default_rng(seed + 1), 128)
    return losses, mean_overlap(kinds, np.argmax(model.predict(pictures, batch_size=64, verbose=0), -1))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args(arguments)
    losses, overlap = train(options.steps, options.batch)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, mean overlap {100 * overlap:.1f} %")


if __name__ == "__main__":
    main()
