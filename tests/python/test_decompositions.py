# SPDX-License-Identifier: Apache-2.0
"""Eigen- and singular value decompositions that JAX expands into polar iterations for a TPU are recognised
(src/passes/opt_decompose.c), give correct results, and count on the chip as written."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from support import random_array, run_python

values_only = functools.partial(jnp.linalg.svd, compute_uv=False)
thin = functools.partial(jnp.linalg.svd, full_matrices=False)


def compiled_text(function, *shapes, dtype=np.float32):
    return jax.jit(function).lower(*[jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]).compile().as_text()


@pytest.mark.parametrize("function, shape, target, dtype", [
    (jnp.linalg.eigh, (257, 257), "Eigh", np.float32), (jnp.linalg.eigh, (700, 700), "Eigh", np.complex64),
    (jnp.linalg.eigvalsh, (1100, 1100), "Eigh", np.float32), (jnp.linalg.svd, (30, 30), "Svd", np.complex64),
    (thin, (64, 300), "Svd", np.float32), (jnp.linalg.svd, (700, 600), "Svd", np.float32), (values_only, (300, 320), "Svd", np.float32),
    (jnp.linalg.pinv, (80, 80), "Svd", np.float32),
])  # fmt: skip
def test_known(function, shape, target, dtype):
    text = compiled_text(function, shape, dtype=dtype)
    assert target in text and "cholesky" not in text, "decompositions.def lacks this release of JAX"


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="those of JAX 0.11 are not in decompositions.def: they run as written")
def test_known_in_double_precision():
    run_python("""
        import jax, jax.numpy as jnp, numpy as np
        jax.config.update("jax_enable_x64", True)
        a = np.random.default_rng(0).normal(size=(300, 300))
        for dtype in (np.float64, np.complex128):
            assert "cholesky" not in jax.jit(jnp.linalg.svd).lower(a.astype(dtype)).compile().as_text()
        w, v = jax.jit(jnp.linalg.eigh)(a)
        np.testing.assert_allclose((a + a.T) / 2 @ v, v * w, atol=1e-11)
    """)


def check_eigh(h, w, v):
    w, v = np.asarray(w), np.asarray(v)
    assert (np.diff(w) >= 0).all()
    np.testing.assert_allclose(w, np.linalg.eigvalsh(h), atol=2e-4)
    np.testing.assert_allclose(h @ v, v * w, atol=2e-4)
    np.testing.assert_allclose(v.conj().T @ v, np.eye(len(w)), atol=2e-5)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_eigh(lower, dtype):
    a = random_array((2, 300, 300)) + (1j * random_array((2, 300, 300), seed=1) if dtype == np.complex64 else 0)
    h = (a + a.conj().swapaxes(1, 2)).astype(dtype)
    half = np.tril(h) if lower else np.triu(h)
    w, v = jax.jit(functools.partial(jnp.linalg.eigh, UPLO="L" if lower else "U", symmetrize_input=False))(half)
    for i in range(2):
        check_eigh(h[i], w[i], v[i])


@pytest.mark.parametrize("shape", [(300, 300), (310, 300), (300, 40), (40, 300), (20, 20)])
@pytest.mark.parametrize("full", [True, False])
def test_svd(shape, full):
    a = random_array(shape)
    u, s, vh = map(np.asarray, jax.jit(functools.partial(jnp.linalg.svd, full_matrices=full))(a))
    k = len(s)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=2e-4)
    np.testing.assert_allclose(u[:, :k] * s @ vh[:k], a, atol=1e-4)
    np.testing.assert_allclose(u.T @ u, np.eye(u.shape[1]), atol=2e-5)
    np.testing.assert_allclose(vh @ vh.T, np.eye(len(vh)), atol=2e-5)
    np.testing.assert_allclose(jax.jit(values_only)(a), s, atol=2e-4)


def test_not_finite():
    a = random_array((300, 300))
    a[3, 4] = np.nan
    assert all(np.isnan(x).all() for x in jax.jit(jnp.linalg.svd)(a))
    assert all(np.isnan(x).all() for x in jax.jit(jnp.linalg.eigh)(a))


def test_low_rank():
    column = random_array((300, 1))
    u, s, vh = map(np.asarray, jax.jit(jnp.linalg.svd)(column @ column.T))
    np.testing.assert_allclose(s[1:], 0, atol=1e-3)
    np.testing.assert_allclose(u.T @ u, np.eye(300), atol=2e-5)


def test_gradient():
    a = random_array((300, 300))
    h = a + a.T
    gradient = np.asarray(jax.jit(jax.grad(lambda h: jnp.linalg.eigh(h)[0][-1]))(h))
    vector = np.linalg.eigh(h)[1][:, -1:]
    np.testing.assert_allclose(gradient, vector @ vector.T, atol=1e-4)


def test_sharded():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    a = random_array((304, 304))
    h = a + a.T
    w, v = jax.jit(jnp.linalg.eigh)(jax.device_put(h, NamedSharding(mesh, PartitionSpec("x"))))
    check_eigh(h, w, v)
    many = jnp.stack([h] * 8)
    each = PartitionSpec("x")
    spread = jax.shard_map(lambda h: jnp.linalg.eigh(h[0])[0][None], mesh=mesh, in_specs=each, out_specs=each, check_vma=False)
    np.testing.assert_allclose(jax.jit(spread)(many), np.stack([np.asarray(w)] * 8), atol=1e-4)


def test_only_the_very_function():
    @jax.jit
    def _eigh_work(h, n):
        return h[0] * n, h

    a = random_array((300, 300))
    first, same = jax.jit(lambda h: _eigh_work(h, jnp.int32(300)))(a)
    np.testing.assert_array_equal(same, a)
    np.testing.assert_allclose(first, a[0] * 300)


def test_counts_as_written(monkeypatch):
    a = jax.ShapeDtypeStruct((300, 300), np.float32)
    known = jax.jit(jnp.linalg.eigh).lower(a).compile().cost_analysis()
    monkeypatch.setenv("VTPU_SKIP_PASSES", "decompose")
    written = jax.jit(lambda h: jnp.linalg.eigh(h)).lower(a).compile().cost_analysis()
    assert known["flops"] == pytest.approx(written["flops"], rel=0.1)
    assert known["optimal_seconds"] == pytest.approx(written["optimal_seconds"], rel=0.05)
