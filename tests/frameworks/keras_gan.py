# SPDX-License-Identifier: Apache-2.0
"""A GAN trained with Keras on all devices: a training step of its own, and gradients added up over several batches."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from report import report  # noqa: E402

NOISE, BATCH, ACCUMULATE = 16, 32, 2


def make_generator():
    return keras.Sequential([
        keras.Input((NOISE,)),
        keras.layers.Dense(7 * 7 * 32, activation="relu"),
        keras.layers.Reshape((7, 7, 32)),
        keras.layers.Conv2DTranspose(16, 4, strides=2, padding="same", activation="relu"),
        keras.layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
    ])


def make_critic():
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 4, strides=2, padding="same"),
        keras.layers.LeakyReLU(0.2),
        keras.layers.Conv2D(32, 4, strides=2, padding="same"),
        keras.layers.LeakyReLU(0.2),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ])


class Player:
    """A network, its optimizer and their variables, as a function of JAX needs them."""

    def __init__(self, network):
        self.network = network
        self.optimizer = keras.optimizers.Adam(2e-3, beta_1=0.5, gradient_accumulation_steps=ACCUMULATE)
        self.optimizer.build(network.trainable_variables)

    def state(self):
        return ([v.value for v in self.network.trainable_variables], [v.value for v in self.network.non_trainable_variables],
                [v.value for v in self.optimizer.variables])


def main():
    distribution = keras.distribution.DataParallel(devices=keras.distribution.list_devices())
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(5)
    generator, critic = Player(make_generator()), Player(make_critic())
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    def critic_loss(weights, rest, images, invented):
        real, _ = critic.network.stateless_call(weights, rest, images)
        fake, _ = critic.network.stateless_call(weights, rest, invented)
        ones = keras.ops.ones_like(real)
        return entropy(0.9 * ones, real) + entropy(0 * ones, fake)

    def generator_loss(weights, rest, judge, noise):
        invented, _ = generator.network.stateless_call(weights, rest, noise)
        fake, _ = critic.network.stateless_call(judge[0], judge[1], invented)
        return entropy(keras.ops.ones_like(fake), fake)

    @jax.jit
    def step(g, d, images, noise):
        invented, _ = generator.network.stateless_call(g[0], g[1], noise)
        d_loss, slopes = jax.value_and_grad(critic_loss)(d[0], d[1], images, invented)
        d_weights, d_rest = critic.optimizer.stateless_apply(d[2], slopes, d[0])
        d = (d_weights, d[1], d_rest)
        g_loss, slopes = jax.value_and_grad(generator_loss)(g[0], g[1], d, noise)
        g_weights, g_rest = generator.optimizer.stateless_apply(g[2], slopes, g[0])
        return (g_weights, g[1], g_rest), d, d_loss, g_loss

    rng = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:28j, -1:1:28j]
    g, d, losses = generator.state(), critic.state(), []
    for _ in range(10):
        radius = rng.uniform(0.3, 0.9, (BATCH, 1, 1))
        images = np.where(x**2 + y**2 < radius**2, 1.0, -1.0)[..., None].astype("float32")  # discs
        noise = rng.normal(size=(BATCH, NOISE)).astype("float32")
        batch = [jax.device_put(a, distribution.get_data_layout(a.shape).backend_layout) for a in (images, noise)]
        g, d, d_loss, g_loss = step(g, d, *batch)
        losses += [float(d_loss), float(g_loss)]
    devices = {device for weight in g[0] + d[0] for device in weight.sharding.device_set}
    report(platform=jax.devices()[0].platform, devices=len(devices), losses=losses, values=[])


main()
