# SPDX-License-Identifier: Apache-2.0
"""Donated arguments: used in place where possible, always gone afterwards, never seen changed by others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.asan


def test_donated_argument_is_gone():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1000)
    y = step(x)
    assert x.is_deleted()
    with pytest.raises((RuntimeError, ValueError), match="deleted|donated"):
        np.asarray(x)
    with pytest.raises((RuntimeError, ValueError), match="deleted|donated"):
        step(x)
    assert float(y.sum()) == 1000


def test_other_arguments_stay():
    x, y = jnp.ones((256, 256)), jnp.full((256, 256), 2.0)
    z = jax.jit(lambda x, y: (x + y, y * 2), donate_argnums=0)(x, y)
    assert not y.is_deleted()
    assert float(y[3, 3]) == 2 and float(z[0][1, 1]) == 3 and float(z[1][0, 0]) == 4


def test_a_fetched_array_does_not_change_under_a_donation():
    x = jnp.arange(100000.0)
    seen = np.asarray(x)
    want = seen.copy()
    jax.jit(lambda x: x * 0 - 1, donate_argnums=0)(x).block_until_ready()
    np.testing.assert_array_equal(seen, want)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def swap(a, b):
    return b, a


def test_swapped_donations():
    a, b = jnp.zeros(50000), jnp.ones(50000)
    for _ in range(3):
        a, b = swap(a, b)
    assert float(a.sum()) == 50000 and float(b.sum()) == 0


def test_shifted_donation():
    """A result that reads the donated argument at other positions must not read what it has already overwritten."""
    x = jnp.arange(4096.0)
    for _ in range(5):
        x = jax.jit(lambda x: jnp.roll(x, 1) + x[::-1] * 0, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(x), np.roll(np.arange(4096.0), 5))


def test_long_chain_of_unfetched_donations():
    x = jnp.zeros((64, 64))
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(500):
        x = step(x)
    assert float(x[5, 5]) == 500


def test_donation_to_a_result_of_another_shape():
    x, y = jnp.arange(16.0).reshape(16, 1), jnp.ones((4, 4))
    z = jax.jit(lambda x, y: (x.reshape(16) + 1, y * 2), donate_argnums=0)(x, y)
    assert x.is_deleted() and not y.is_deleted()
    np.testing.assert_array_equal(z[0], np.arange(16.0) + 1)
    np.testing.assert_array_equal(z[1], np.full((4, 4), 2.0))
