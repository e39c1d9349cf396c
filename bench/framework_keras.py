# SPDX-License-Identifier: Apache-2.0
"""The Keras programs of frameworks.py, on one side: the environment names Keras' backend and JAX's platform."""

import os
import time

import keras
import numpy as np
from keras import layers

import serve

CLASSES, WORDS = 10, 4000


def cnn():
    x = image = keras.Input((28, 28, 1))
    for width in (32, 64, 128):
        x = layers.Conv2D(width, 3, padding="same")(x)
        x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    return keras.Model(image, layers.Dense(CLASSES)(layers.Flatten()(x)))


def resnet50():
    return keras.applications.ResNet50(weights=None, classes=CLASSES, classifier_activation=None, input_shape=(224, 224, 3))


def bert(width=256):
    tokens = keras.Input((128,), dtype="int32")
    places = layers.Embedding(128, width)(keras.ops.zeros_like(tokens) + keras.ops.arange(128))
    x = layers.LayerNormalization()(layers.Embedding(WORDS, width)(tokens) + places)
    for _ in range(4):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, width // 4)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x)))
    return keras.Model(tokens, layers.Dense(CLASSES)(x[:, 0]))


def translation(width=256):
    """Reads and writes with a GRU each; each word looks at all that were read."""
    source, target = keras.Input((24,), dtype="int32"), keras.Input((24,), dtype="int32")
    heard, state = layers.GRU(width, return_sequences=True, return_state=True)(layers.Embedding(WORDS, width)(source))
    words = layers.GRU(width, return_sequences=True)(layers.Embedding(WORDS, width)(target), initial_state=state)
    looked = layers.Attention()([words, heard])
    joined = layers.Dense(width, activation="tanh")(layers.Concatenate()([words, looked]))
    return keras.Model([source, target], layers.Dense(WORDS)(joined))


def numbers(*shape, of):
    return np.random.default_rng(0).integers(of, size=shape, dtype=np.int32)


def pixels(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


# What makes the model, its inputs, and the classes that it learns.
PROGRAMS = {
    "cnn": (cnn, lambda: pixels(128, 28, 28, 1), lambda: numbers(128, of=CLASSES)),
    "resnet50": (resnet50, lambda: pixels(8, 224, 224, 3), lambda: numbers(8, of=CLASSES)),
    "bert": (bert, lambda: numbers(16, 128, of=WORDS), lambda: numbers(16, of=CLASSES)),
    "translation": (translation, lambda: [numbers(64, 24, of=WORDS)] * 2, lambda: numbers(64, 24, of=WORDS)),
}

RATES = {"resnet50": 1e-5}  # at larger ones its first losses depend on last bits


class Worker:
    def load(self, name, side, folder):
        """The seconds of the first step and the losses of the first three, from the weights that vtpu began with."""
        keras.utils.clear_session()
        # On a TPU it would be causal and without its scale (docs/how-to/frameworks.md); a new session forgets this.
        keras.config.disable_flash_attention()
        make, inputs, wanted = PROGRAMS[name]
        model, self.data = make(), (inputs(), wanted())
        path = os.path.join(folder, "weights.npz")
        if side == "vtpu":
            np.savez(path, *model.get_weights())
        else:
            with np.load(path) as file:
                model.set_weights([file[key] for key in file])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(RATES.get(name, 0.001), momentum=0.9), loss)
        self.model, start = model, time.perf_counter()
        self.call()
        return {"first": time.perf_counter() - start, "losses": [float(self.call()) for _ in range(3)]}

    def call(self):
        return self.model.train_on_batch(*self.data)

    def run(self, count):
        """Seconds of a step by the clock, and of the processors."""
        return serve.timed(self.call, count)


if __name__ == "__main__":
    serve.serve(Worker())
