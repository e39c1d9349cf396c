# SPDX-License-Identifier: Apache-2.0
"""Linear algebra, transforms, complex numbers, wide and narrow types."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import random_array, run_python, same_as_cpu

SQUARE = random_array((8, 8)) + 3 * np.eye(8, dtype=np.float32)
SYMMETRIC = SQUARE @ SQUARE.T
COMPLEX = (random_array((6, 10)) + 1j * random_array((6, 10), seed=1)).astype(np.complex64)


@pytest.mark.parametrize("function", [
    jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.det, lambda a: jnp.linalg.solve(a, a[0]), lambda a: jnp.linalg.eigvalsh(a),
    lambda a: jnp.linalg.svd(a, compute_uv=False), lambda a: jnp.abs(jnp.linalg.qr(a)[1]), jax.scipy.linalg.expm,
])  # fmt: skip
def test_linear_algebra(function):
    same_as_cpu(function, SYMMETRIC / 20, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("function", [
    jnp.fft.fft, jnp.fft.ifft, jnp.fft.fft2, lambda x: jnp.fft.rfft(x.real), lambda x: jnp.fft.irfft(x), jnp.abs, jnp.exp,
    lambda x: x * x.conj() + 2j, lambda x: x @ x.T, jnp.log, jnp.sqrt, jnp.angle, lambda x: jnp.fft.fft(x, n=7),
])  # fmt: skip
def test_complex(function):
    same_as_cpu(function, COMPLEX, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("preset, narrow", [
    ("F32_F32_F32", np.float32), ("BF16_BF16_F32", jnp.bfloat16), ("BF16_BF16_F32_X3", np.float32), ("F16_F16_F32", np.float16),
])  # fmt: skip
@pytest.mark.parametrize("rows", [1, 64])
def test_dot_algorithms_round_what_they_say(preset, narrow, rows):
    a, b = random_array((rows, 48)), random_array((48, 32), seed=1)
    algorithm = getattr(jax.lax.DotAlgorithmPreset, preset)
    product = jax.jit(lambda a, b: jax.lax.dot(a, b, precision=algorithm, preferred_element_type=jnp.float32))(a, b)
    exact = a.astype(narrow).astype(np.float64) @ b.astype(narrow).astype(np.float64)
    np.testing.assert_allclose(product, exact, rtol=1e-5, atol=2e-5)


def test_linear_algebra_of_wide_types():
    run_python("""
        import jax, numpy as np
        jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp
        rng = np.random.default_rng(0)
        for dtype, eps in ((np.float32, 2e-5), (np.float64, 1e-12), (np.complex64, 2e-5), (np.complex128, 1e-12)):
            a = rng.normal(size=(2, 9, 9)) + (1j * rng.normal(size=(2, 9, 9)) if dtype(0).dtype.kind == "c" else 0)
            a = a.astype(dtype)
            h = a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(9, dtype=dtype)
            def close(what, got, want):
                error = np.abs(np.asarray(got) - want).max() / np.abs(want).max()
                assert error < eps * 20, (what, dtype, error)
            q, r = jax.jit(jnp.linalg.qr)(a)
            close("qr", q @ r, a)
            close("triangle of qr", np.abs(r), np.abs(np.linalg.qr(a)[1]))
            p, l, u = jax.jit(jax.vmap(jax.scipy.linalg.lu))(a)
            close("lu", p @ l @ u, a)
            close("eigvalsh", jax.jit(jnp.linalg.eigvalsh)(h), np.linalg.eigvalsh(h))
            w, v = jax.jit(jnp.linalg.eigh)(h)
            close("eigh", (v * w[:, None]) @ np.conj(np.swapaxes(v, -1, -2)), h)
            close("svd", jax.jit(lambda a: jnp.linalg.svd(a, compute_uv=False))(a), np.linalg.svd(a, compute_uv=False))
    """, JAX_DEFAULT_MATMUL_PRECISION="highest")  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 5, 8, 12, 31, 100, 127])
def test_transforms_of_any_length(n):
    x = (random_array((3, n)) + 1j * random_array((3, n), seed=1)).astype(np.complex64)
    for ours, numpys in ((jnp.fft.fft, np.fft.fft), (jnp.fft.ifft, np.fft.ifft), (lambda x: jnp.fft.rfft(x.real), lambda x: np.fft.rfft(x.real)),
                         (lambda x: jnp.fft.irfft(x, n=2 * n - 1), lambda x: np.fft.irfft(x, n=2 * n - 1)), (jnp.fft.fft2, np.fft.fft2)):  # fmt: skip
        np.testing.assert_allclose(jax.jit(ours)(x), numpys(x), rtol=1e-4, atol=1e-4 * np.sqrt(n))


@pytest.mark.asan
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.int4, jnp.int8, jnp.int16,
                                   jnp.uint32], ids=lambda d: d.__name__)  # fmt: skip
def test_arithmetic_of_narrow_types(dtype):
    x = jnp.asarray(np.arange(-8, 8), jnp.float32).astype(dtype)
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        x = jnp.arange(16).astype(dtype)
    x = np.asarray(x)
    same_as_cpu(lambda x: (x + x[::-1], x.astype(jnp.float32) * 3, jnp.maximum(x, x[3]), x == x[2]), x, rtol=1e-2)


def test_wide_types():
    code = """
        import jax, numpy as np
        jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp
        x = np.linspace(0.1, 3, 50)
        got = np.asarray(jax.jit(lambda x: jnp.exp(jnp.sin(x)) / jnp.sqrt(x))(x))
        np.testing.assert_allclose(got, np.exp(np.sin(x)) / np.sqrt(x), rtol=1e-12)
        a = np.random.default_rng(0).standard_normal((20, 30))
        np.testing.assert_allclose(np.asarray(jax.jit(jnp.dot)(a, a.T)), a @ a.T, rtol=1e-11, atol=1e-11)
        n = np.arange(40, dtype=np.int64) * (1 << 40) + 17
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda n: n * 3 // 7 % 1000003)(n)), n * 3 // 7 % 1000003)
        print(jax.devices()[0].platform)
    """
    assert run_python(code).stdout.strip() in ("tpu", "cpu")


def grads_of_pooled_relu(window, stride, padding, x, scale):
    """Max pooling of relu(x) and both gradients; a scaled copy makes the pooled values matter."""

    def loss(x):
        pooled = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, window, stride, padding)
        return jnp.sum(pooled * scale[: pooled.size].reshape(pooled.shape)), pooled

    return jax.value_and_grad(loss, has_aux=True)(x)


@pytest.mark.parametrize("window,stride,padding", [((1, 2, 2, 1), (1, 2, 2, 1), "VALID"), ((1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
                                                   ((1, 3, 2, 1), (1, 1, 2, 1), "VALID"), ((1, 1, 1, 1), (1, 2, 2, 1), "VALID")])
def test_pooling_of_relu(window, stride, padding):
    # Small integers: ties in most windows, windows without a positive number in some.
    x = np.random.default_rng(0).integers(-3, 3, (4, 24, 24, 32)).astype(np.float32)
    x[0, :6] = -1
    x[1, 3, 3, 0] = np.inf
    same_as_cpu(lambda x: grads_of_pooled_relu(window, stride, padding, x, jnp.arange(1, 80_000.0) % 17), x, rtol=1e-6)


def test_pooling_of_relu_reads_the_array_once():
    def forward(x):
        return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    text = jax.jit(forward).lower(np.zeros((8, 24, 24, 32), np.float32)).compile().as_text()
    assert "f32[8,12,12,32]{3,2,1,0} maximum(" in text
    assert "f32[8,24,24,32]{3,2,1,0} maximum(" not in text


def test_text_of_a_program_with_a_large_constant():
    table = np.random.default_rng(0).normal(size=(100, 7)).astype(np.float32)
    compiled = jax.jit(lambda x: x @ table).lower(np.zeros((3, 100), np.float32)).compile()
    assert "f32[100,7]" in compiled.as_text()


def test_text_says_where_an_op_came_from():
    def f(x):
        with jax.named_scope("outer"):
            return jnp.tanh(x)

    assert "outer/tanh" in jax.jit(f).lower(np.zeros(300, np.float32)).compile().as_text()


# docs/decisions/004-which-dots-round.md; 257 is 256 in bf16.
@pytest.mark.parametrize("equation,lhs,rhs,rounds", [("ij,jk->ik", (300, 40), (40, 2), True), ("ij,j->i", (300, 40), (40,), False),
                                                     ("bij,bj->bi", (9, 300, 40), (9, 40), False), ("i,j->ij", (300,), (400,), False),
                                                     ("ij,ij->", (3, 4), (3, 4), False), ("ij,jk->ik", (1, 40), (40, 300), False)])
def test_products_with_a_vector_do_not_round(tpu_only, equation, lhs, rhs, rounds):
    product = jax.jit(lambda a, b: jnp.einsum(equation, a, b))(np.full(lhs, 257, np.float32), np.ones(rhs, np.float32))
    summed = 1 if equation == "i,j->ij" else 12 if equation == "ij,ij->" else 40
    np.testing.assert_array_equal(np.asarray(product), summed * (256 if rounds else 257))


@pytest.mark.parametrize("x,kernel,groups,rounds", [((2, 9, 40), (1, 40, 3), 1, True), ((1, 1, 40), (1, 40, 300), 1, False),
                                                    ((2, 9, 40), (1, 40, 1), 1, False), ((1, 1, 1), (1, 1, 1), 1, False),
                                                    ((2, 9, 40), (2, 40, 1), 1, True), ((2, 9, 40), (1, 20, 2), 2, True)])
def test_convolutions_round_as_the_dots_that_they_are(tpu_only, x, kernel, groups, rounds):
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=groups)

    out = jax.jit(convolve)(np.full(x, 257, np.float32), np.ones(kernel, np.float32))
    np.testing.assert_array_equal(np.asarray(out), kernel[0] * kernel[1] * (256 if rounds else 257))


@pytest.mark.parametrize("padding", [((0, 0), (0, 1)), ((1, 2), (0, 0)), ((-1, 0), (0, -2))])
def test_convolution_of_one_pixel_over_a_dilated_input(padding):
    x, kernel = random_array((2, 5, 6, 24)), random_array((1, 1, 24, 40), seed=1)

    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, lhs_dilation=(2, 3),
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest")

    same_as_cpu(convolve, x, kernel, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 8192), (4, 8, 4096)])
@pytest.mark.parametrize("labels_dtype", [np.int32, np.uint8])
def test_loss_of_labels(shape, labels_dtype):
    """One logarithm of each row, and the gradient of it (src/host/row_picks.h), also for labels that are none."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 3, shape).astype(np.float32)
    x[..., 5] = -np.inf
    labels = rng.integers(0, 200, shape[:-1]).astype(labels_dtype)
    labels.flat[:3] = 5, 255, 0
    if labels_dtype == np.int32:
        labels.flat[3:6] = -1, -shape[-1] - 3, shape[-1]

    def loss(x, labels):
        picked = jnp.take_along_axis(jax.nn.log_softmax(2 * x), labels[..., None], -1)[..., 0]
        return jnp.where(jnp.isfinite(picked), picked, 0).sum(), picked

    both = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (total, picked), gradient = both(x, labels)
    with jax.default_device(jax.devices("cpu")[0]):
        (want, want_picked), want_gradient = both(x, labels)
    np.testing.assert_allclose(picked, want_picked, rtol=1e-5)
    np.testing.assert_allclose(total, want, rtol=1e-5)
    np.testing.assert_allclose(gradient, want_gradient, rtol=1e-4, atol=1e-6)
