# SPDX-License-Identifier: Apache-2.0
"""A CNN trained with Keras on all devices: fit with callbacks and endless input by tf.data, evaluate, predict; once
more in mixed_bfloat16."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from report import report  # noqa: E402

BATCH, STEPS, EPOCHS = 64, 8, 3


def images(count):
    """Classes that a small network learns: each a pattern and noise."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(10, 16, 16, 3))
    labels = rng.integers(0, 10, count)
    return (patterns[labels] + rng.normal(size=(count, 16, 16, 3))).astype("float32"), labels.astype("int32")


def endless(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH).prefetch(2)


def network():
    return keras.Sequential([
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(16, 3, padding="same", use_bias=False),
        keras.layers.BatchNormalization(),
        keras.layers.ReLU(),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10, dtype="float32"),
    ])


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses, self.epochs = [], 0

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["loss"])
        self.epochs += 1


def train(policy, x, y):
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(policy)
    model, steps = network(), Steps()
    model.compile(keras.optimizers.AdamW(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    model.fit(endless(x, y), epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=[steps, rate], verbose=0)
    loss, _ = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    assert steps.epochs == EPOCHS
    return model, [*steps.losses, loss]


def main():
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    x, y = images(BATCH * STEPS)
    model, losses = train("float32", x, y)
    weights = model.layers[0].kernel.value.sharding
    predicted = model.predict(x, batch_size=BATCH, verbose=0)
    assert predicted.shape == (len(x), 10)
    mixed, mixed_losses = train("mixed_bfloat16", x, y)
    assert mixed.layers[0].compute_dtype == "bfloat16"
    report(platform=jax.devices()[0].platform, devices=len(weights.device_set), losses=losses + mixed_losses,
           values=[float(np.mean(np.abs(predicted)))])


main()
