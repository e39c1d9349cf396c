# SPDX-License-Identifier: Apache-2.0
"""Algebra that users can see (docs/algebra.md): under jit as XLA:CPU does it, op by op as each op defines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax import lax

pytestmark = pytest.mark.usefixtures("tpu_only")
HARD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3.3, -7.1, 100.0, -100.0, 1e10, 2e30, -3e35, 1e-10, 3e-30]
PAIRS = [(x, y) for x in HARD for y in HARD] + [tuple(p) for p in np.random.default_rng(0).normal(0, 3, (256, 2))]
X, Y = (np.array(v, np.float32) for v in zip(*PAIRS))
Z = np.roll(X, 37)


def full(x, value):
    return jnp.full_like(x, value)


# Observed: somewhere jit gives a different infinity, NaN or number than op by op.
RULES = {
    "log(exp(x))": (lambda x, y, z: jnp.log(jnp.exp(x)), True),
    "log(x ** y)": (lambda x, y, z: lax.log(lax.pow(x, y)), True),
    "log(x ** 2.5)": (lambda x, y, z: lax.log(lax.pow(x, full(x, 2.5))), True),
    "log(sqrt(x))": (lambda x, y, z: lax.log(lax.sqrt(x)), True),
    "log(rsqrt(x))": (lambda x, y, z: lax.log(lax.rsqrt(x)), True),
    "x ** 0": (lambda x, y, z: lax.pow(x, full(x, 0)), False),
    "x ** 1": (lambda x, y, z: lax.pow(x, full(x, 1)), False),
    "x ** 2": (lambda x, y, z: lax.pow(x, full(x, 2)), False),
    "x ** 3": (lambda x, y, z: lax.pow(x, full(x, 3)), False),
    "x ** -1": (lambda x, y, z: lax.pow(x, full(x, -1)), False),
    "exp(x) ** y": (lambda x, y, z: lax.pow(lax.exp(x), y), True),
    "exp(x) * exp(y)": (lambda x, y, z: lax.exp(x) * lax.exp(y), True),
    "x / exp(y)": (lambda x, y, z: x / lax.exp(y), True),
    "exp(x) / exp(y)": (lambda x, y, z: lax.exp(x) / lax.exp(y), True),
    "x / y ** z": (lambda x, y, z: x / lax.pow(y, z), True),
    "x / sqrt(y)": (lambda x, y, z: x / lax.sqrt(y), True),
    "x / rsqrt(y)": (lambda x, y, z: x / lax.rsqrt(y), True),
    "(x / y) / z": (lambda x, y, z: (x / y) / z, True),
    "x / (y / z)": (lambda x, y, z: x / (y / z), True),
    "(x / y) / (z / x)": (lambda x, y, z: (x / y) / (z / x), True),
    "x / 3": (lambda x, y, z: lax.div(x, full(x, 3)), True),
    "x / 0": (lambda x, y, z: x / full(x, 0), False),
    "x / [3, 7]": (lambda x, y, z: x.reshape(-1, 2) / np.array([[3, 7]] * 256, np.float32), True),
    "x / s": (lambda x, y, z: lax.div(x, jnp.broadcast_to(y[-1], x.shape)), True),
    "x / sqrt(s)": (lambda x, y, z: lax.div(x, jnp.broadcast_to(jnp.sqrt(jnp.abs(y[-1])), x.shape)), True),
    "x + 0": (lambda x, y, z: 1 / (x + 0), True),
    "x - 0": (lambda x, y, z: 1 / (x - 0), False),
    "(x + 3) + 5": (lambda x, y, z: (x + 3.1) + 5.3, False),
    "(x + 1e8) - 1e8": (lambda x, y, z: (x + 1e8) - 1e8, True),
    "(3 - x) - 5": (lambda x, y, z: (3.1 - x) - 5.3, False),
    "(x * 1e30) * 1e-30": (lambda x, y, z: (x * 1e30) * 1e-30, True),
    "(x * 1e30) * 1e30": (lambda x, y, z: (x * 1e30) * 1e30, True),
    "sqrt(x * x)": (lambda x, y, z: lax.sqrt(x * x), True),
    "sqrt(x ** 2)": (lambda x, y, z: lax.sqrt(lax.pow(x, full(x, 2))), True),
    "abs(x) >= 0": (lambda x, y, z: lax.abs(x) >= 0, True),
    "sum of repeats": (lambda x, y, z: jnp.sum(jnp.broadcast_to(x[:, None], (x.size, 1000)), 1), True),
    # XLA leaves these alone, and so do we.
    "exp(log(x))": (lambda x, y, z: jnp.exp(jnp.log(x)), False),
    "sqrt(x) * sqrt(x)": (lambda x, y, z: lax.sqrt(x) * lax.sqrt(x), False),
    "x * 0": (lambda x, y, z: x * 0, False),
    "x - x": (lambda x, y, z: x - x, False),
    "x / x": (lambda x, y, z: x / x, False),
    "x ** 0.5": (lambda x, y, z: lax.pow(x, full(x, 0.5)), False),
    "(x * y) / y": (lambda x, y, z: (x * y) / y, False),
    "float32 to bfloat16 and back": (lambda x, y, z: x.astype(jnp.bfloat16).astype(jnp.float32), False),
}


# XLA of JAX 0.11 leaves these alone on its CPU; here they are still rewritten.
NOT_SINCE_11 = {"log(exp(x))", "exp(x) ** y", "exp(x) * exp(y)", "exp(x) / exp(y)", "sqrt(x * x)", "sqrt(x ** 2)"}
SINCE_11 = jax.__version_info__ >= (0, 11)


def same(got, want, rtol):
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype == bool:
        np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-37)


@pytest.mark.parametrize("name", RULES)
def test_as_xla(name):
    function, seen = RULES[name]
    compiled = jax.jit(function)(X, Y, Z)
    if not (SINCE_11 and name in NOT_SINCE_11):
        with jax.default_device(jax.devices("cpu")[0]):
            same(compiled, jax.jit(function)(X, Y, Z), rtol=4e-5)
    with jax.disable_jit():
        by_op = np.asarray(function(*map(jnp.asarray, (X, Y, Z))))
    if not seen:
        same(compiled, by_op, rtol=4e-6)
    elif np.array_equal(np.asarray(compiled), by_op, equal_nan=by_op.dtype != bool):
        pytest.fail("jit and the single operations agree")


def test_faq_of_jax():
    def f(x):
        return jnp.log(jnp.exp(x))

    assert float(jax.jit(f)(100.0)) == 100.0
    assert float(f(100.0)) == np.inf


@pytest.mark.skipif(SINCE_11, reason="XLA:CPU is no reference for log(exp(x))")
def test_a_result_keeps_its_own_value():
    def both(x, y):
        e, r = jnp.exp(x), jnp.sqrt(y)
        return e, jnp.log(e), jnp.log(e) + 1, r, x / r

    x = np.float32([100, -1000, 2])
    got = jax.jit(both)(x, Y[:3])
    assert got[0][0] == np.inf and got[1][0] == 100
    with jax.default_device(jax.devices("cpu")[0]):
        for mine, theirs in zip(got, jax.jit(both)(x, Y[:3])):
            same(mine, theirs, rtol=4e-5)


@pytest.mark.skipif(SINCE_11, reason="XLA:CPU is no reference for log(exp(x))")
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_types(dtype):
    x = np.linspace(-20, 20, 41).astype(dtype)
    for f in (lambda x: jnp.log(jnp.exp(x)), lambda x: lax.exp(x) * lax.exp(-x), lambda x: x / 3):
        with jax.default_device(jax.devices("cpu")[0]):
            want = np.asarray(jax.jit(f)(x), np.float32)
        np.testing.assert_allclose(np.asarray(jax.jit(f)(x), np.float32), want, rtol=1e-2)


def test_a_branch_and_a_loop_do_it_too():
    def looped(x):
        return lax.fori_loop(0, 3, lambda _, x: jnp.log(jnp.exp(x)) + 1, x)

    assert float(jax.jit(looped)(100.0)) == 103.0
    assert float(jax.jit(lambda x: lax.cond(x > 0, lambda x: jnp.log(jnp.exp(x)), lambda x: x, x))(100.0)) == 100.0


def normalised(x, scale, offset, axes, weights):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (((x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset) * weights).sum()


@pytest.mark.parametrize("shape, axes", [((16, 12, 12, 64), (0, 1, 2)), ((8, 64, 12, 24), (0, 2, 3)), ((256, 320), -1)])
@pytest.mark.parametrize("wrong", [0, np.nan, np.inf])
def test_sums_of_a_normalisation_that_follow_from_others(shape, axes, wrong):
    """Gradients with fewer walks over the arrays (src/host/norm_sums.h), also around large means, with NaNs and infinities."""
    rng = np.random.default_rng(0)
    kept = [1 if a in np.arange(len(shape))[np.atleast_1d(axes)] else n for a, n in enumerate(shape)]
    x = rng.normal(rng.normal(0, 10, kept), rng.uniform(0.1, 3, kept), shape).astype(np.float32)
    x[0, 3] += wrong
    scale, offset = rng.normal(1, 0.1, (2, *kept)).astype(np.float32)
    weights = rng.normal(0, 1, shape).astype(np.float32)
    gradient = jax.jit(jax.grad(normalised, (0, 1, 2)), static_argnums=3)
    got = gradient(x, scale, offset, axes, weights)
    with jax.default_device(jax.devices("cpu")[0]):
        want = gradient(x, scale, offset, axes, weights)
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-4 * np.nanmax(np.abs(np.where(np.isfinite(theirs), theirs, 0))))
