# SPDX-License-Identifier: Apache-2.0
"""Weights are rounded and laid out once for runs that read the same arrays, but never too rarely."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import random_array


def predict(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def convolve(weights, x):
    for w in weights:
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return x


def matrices(seed):
    return [random_array((512, 512), seed=seed + i) / 16 for i in range(2)]


def kernels(seed):
    return [random_array((3, 3, 64, 64), seed=seed + i) / 16 for i in range(2)]


CASES = [(predict, matrices, (8, 512)), (convolve, kernels, (2, 16, 16, 64))]


def close(got, function, weights, x):
    """To bf16 rounding of the operands; other weights are far away."""
    with jax.default_device(jax.devices("cpu")[0]):
        want = jax.jit(function)(weights, x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0.1, atol=0.05 * float(np.max(np.abs(want))))


@pytest.mark.asan
@pytest.mark.parametrize("function,make,shape", CASES, ids=["dots", "convolutions"])
def test_other_weights_are_seen(function, make, shape):
    models = [make(0), make(10)]
    on_device = [jax.device_put(m) for m in models]
    x = random_array(shape, seed=99)
    run = jax.jit(function)
    for i in (0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0):
        close(run(on_device[i], x), function, models[i], x)
    mixed = [on_device[0][0], on_device[1][1]]
    for _ in range(3):
        close(run(mixed, x), function, [models[0][0], models[1][1]], x)


@pytest.mark.parametrize("function,make,shape", CASES, ids=["dots", "convolutions"])
def test_the_same_bits_from_run_to_run(function, make, shape):
    weights, x = jax.device_put(make(0)), random_array(shape)
    run = jax.jit(function)
    results = [np.asarray(run(weights, x)) for _ in range(5)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_weights_that_are_updated_in_place():
    """Donation gives new weights the memory of the old."""

    @functools.partial(jax.jit, donate_argnums=0)
    def update(weights):
        return [w * -1 for w in weights]

    host, x = matrices(3), random_array((8, 512))
    weights = jax.device_put(host)
    run = jax.jit(predict)
    for _ in range(4):
        for _ in range(3):
            close(run(weights, x), predict, host, x)
        weights, host = update(weights), [-w for w in host]
