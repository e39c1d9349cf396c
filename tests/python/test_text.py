# SPDX-License-Identifier: Apache-2.0
"""StableHLO text as `Lowered.as_text()` prints it, with CHLO ops that artifacts no longer contain, through `vtpu exec`:
the results are those of XLA:CPU."""

import math
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from support import random_array

pytestmark = pytest.mark.usefixtures("tpu_only")
VTPU = os.path.join(os.path.dirname(os.environ.get("TPU_LIBRARY_PATH", "")), "..", "bin", "vtpu")
UNARY = ["asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "tan", "square"]
REAL = ["erf", "erfc", "erf_inv", "lgamma", "digamma", "bessel_i1e"]
# Relative, and absolute where functions have zeros that no formula gives exactly.
TOLERANCE = {"float32": (2e-5, 5e-6), "float64": (1e-11, 1e-13), "bfloat16": (2e-2, 1e-2), "float16": (3e-3, 2e-3),
             "complex64": (2e-4, 2e-5), "complex128": (1e-11, 1e-13)}  # fmt: skip


def run_text(text, folder, *arguments):
    """Results of a program given as text."""
    program, inputs, output = (os.path.join(folder, name) for name in ("a.mlir", "in.npz", "out.npz"))
    with open(program, "w", encoding="utf-8") as out:
        out.write(text)
    command = [VTPU, "exec", program, "--output", output]
    if arguments:
        np.savez(inputs, **{f"arg{i}": np.asarray(argument) for i, argument in enumerate(arguments)})
        command += ["--input", inputs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(output) as results:
        return [results[name] for name in results.files]


def check(function, folder, *arguments):
    with jax.default_device(jax.devices("cpu")[0]):
        want = jax.tree.leaves(jax.jit(function)(*arguments))
    # Arguments as constants: an npz file cannot hold bfloat16.
    text = jax.jit(lambda: function(*map(jnp.asarray, arguments))).lower().as_text()
    assert "chlo." in text
    got = run_text(text, folder)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        w = np.asarray(w)
        if g.dtype.kind == "V":
            g = g.view(w.dtype)
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
            continue
        rtol, atol = TOLERANCE[w.dtype.name]
        wide = np.complex128 if w.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_functions(dtype, tmp_path):
    with jax.enable_x64(True):
        near = random_array((3, 40), low=-0.98, high=0.98).astype(dtype)
        far = random_array((3, 40), seed=1, low=-11, high=11).astype(dtype)
        above = (1 + np.abs(far)).astype(dtype)

        def every(near, far, above):
            unit = [getattr(lax, name)(near) for name in UNARY + REAL if name != "acosh"]
            outside = {"asin", "acos", "atanh", "erf_inv", "acosh", "tan", "lgamma", "digamma"}
            return unit + [getattr(lax, name)(far) for name in UNARY + REAL if name not in outside] + [
                lax.acosh(above), lax.lgamma(above), lax.digamma(above), lax.zeta(above, above + 1),
                lax.polygamma(jnp.round(above), above)]  # fmt: skip

        check(every, tmp_path, near, far, above)


@pytest.mark.parametrize("name, worst", [("erf", 2), ("erfc", 5), ("cosh", 3.5)])
def test_units_in_the_last_place(name, worst, tmp_path):
    x = np.concatenate([np.linspace(-9, 9, 100_000), np.geomspace(1e-30, 1, 10_000)]).astype(np.float32)
    text = jax.jit(getattr(lax, name)).lower(x).as_text()
    assert "chlo." in text
    want = np.array([getattr(math, name)(a) for a in x.tolist()])
    off = np.abs(run_text(text, tmp_path, x)[0] - want) / np.spacing(np.abs(want).astype(np.float32))
    assert off.max() <= worst, (off.max(), x[off.argmax()])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions(dtype, tmp_path):
    with jax.enable_x64(True):
        z = (random_array((4, 40)) + 1j * random_array((4, 40), seed=1)).astype(dtype)
        check(lambda z: [getattr(lax, name)(z) for name in UNARY], tmp_path, z)


def test_ends_of_the_line(tmp_path):
    x = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 40, -40], np.float32)

    def every(x):
        return [getattr(lax, name)(x) for name in UNARY + REAL] + [lax.zeta(x, x[::-1]), lax.polygamma(x, x[::-1])]

    check(every, tmp_path, x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_next_after(dtype, tmp_path):
    with jax.enable_x64(True):
        ends = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2.5, -3.25, 6e-8], dtype)
        x, y = (side.reshape(-1) for side in np.meshgrid(ends, ends))
        whole = {2: np.uint16, 4: np.uint32, 8: np.uint64}[x.dtype.itemsize]
        text = jax.jit(lambda: lax.nextafter(jnp.asarray(x), jnp.asarray(y))).lower().as_text()
        got = run_text(text, tmp_path)[0].view(whole)
        want = np.nextafter(x, y).view(whole)
        nan = np.isnan(x) | np.isnan(y)
        other = ~nan & (x != y)  # among equal ones NumPy's float16 gives the first, the others the second
        np.testing.assert_array_equal(got[other], want[other])
        assert (got.view(x.dtype)[x == y] == y[x == y]).all() and np.isnan(got.view(x.dtype)[nan]).all()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_mulhi(dtype, tmp_path):
    info = np.iinfo(dtype)
    with jax.enable_x64(True):
        x = np.random.default_rng(0).integers(info.min, info.max, 50, dtype=dtype, endpoint=True)
        x[:4] = [info.min, info.max, 0, 1]
        text = jax.jit(lambda: lax.mulhi(jnp.asarray(x), jnp.asarray(x[::-1]))).lower().as_text()
        got = run_text(text, tmp_path)[0]
    assert got.tolist() == [(int(a) * int(b)) >> info.bits for a, b in zip(x, x[::-1])]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_top_k(dtype, tmp_path):
    x = np.random.default_rng(0).integers(0, 20, (3, 5, 16)).astype(dtype)  # with many equal ones
    check(lambda x: lax.top_k(x, 7), tmp_path, x)


@pytest.mark.parametrize("kind", ["rows", "contracting", "batched_contracting", "batch", "sizes_of_batch",
                                  "sizes_of_outer_rows", "contracting_by_batch", "contracting_by_outer"])
def test_ragged_dot(kind, tmp_path):
    sizes = np.array([3, 0, 4, 2], np.int32)  # the last row belongs to no group
    lhs, rhs = random_array((10, 6)), random_array((4, 6, 5), seed=1)
    numbers = (([1], [1]), ([], [])), [0], [0]
    if kind == "contracting":
        lhs, rhs, numbers = random_array((6, 10)), random_array((10, 5), seed=1), ((([1], [0]), ([], [])), [1], [])
    elif kind == "batched_contracting":
        lhs, rhs = random_array((2, 6, 10)), random_array((2, 10, 5), seed=1)
        numbers = (([2], [1]), ([0], [0])), [2], []
    elif kind == "batch":
        lhs, rhs, numbers = random_array((9, 6)), random_array((9, 6, 5), seed=1), ((([1], [1]), ([0], [0])), [0], [])
    elif kind == "sizes_of_batch":
        lhs, rhs, numbers = random_array((2, 10, 6)), random_array((2, 4, 6, 5), seed=1), ((([2], [2]), ([0], [0])), [1], [1])
        sizes = np.array([[3, 0, 4, 2], [1, 1, 8, 0]], np.int32)
    elif kind == "sizes_of_outer_rows":
        lhs, numbers = random_array((3, 2, 10, 6)), ((([3], [1]), ([], [])), [2], [0])
        sizes = np.arange(24, dtype=np.int32).reshape(3, 2, 4) % 3
    elif kind == "contracting_by_batch":
        lhs, rhs, numbers = random_array((6, 2, 10)), random_array((2, 10, 5), seed=1), ((([2], [1]), ([1], [0])), [2], [])
        sizes = np.array([[3, 0, 4, 2], [1, 1, 8, 0]], np.int32)
    elif kind == "contracting_by_outer":
        lhs, rhs, numbers = random_array((2, 6, 10)), random_array((2, 10, 5), seed=1), ((([0, 2], [0, 1]), ([], [])), [2], [])
        sizes = np.array([[3, 0, 4, 2], [1, 1, 8, 0]], np.int32)
    dims = lax.RaggedDotDimensionNumbers(*numbers)
    check(lambda *a: lax.ragged_dot_general(*a, dims, precision="highest"), tmp_path, lhs, rhs, sizes)


PROGRAM = """func.func public @main(%x: tensor<2x3xf32>, %row: tensor<3xf32>, %one: tensor<1x1xf32>)
    -> (tensor<2x3xf32>, tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x2xf32>) {
  %0 = chlo.broadcast_add %x, %row {broadcast_dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = chlo.broadcast_compare %row, %x {comparison_direction = #chlo<comparison_direction GT>} : (tensor<3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %2 = "chlo.broadcast_power"(%x, %one) : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xf32>
  %3 = chlo.is_inf %x : tensor<2x3xf32> -> tensor<2x3xi1>
  %4 = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %5:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = false}} : (tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return %0, %1, %2, %3, %4, %5#0 : tensor<2x3xf32>, tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x2xf32>
}
"""


def test_forms_that_jax_does_not_print(tmp_path):
    x = np.array([[1, 2, np.inf], [4, 0.5, 6]], np.float32)
    row, one = np.array([3, 2, 1], np.float32), np.array([[2]], np.float32)
    total, greater, power, infinite, erf, least = run_text(PROGRAM, tmp_path, x, row, one)
    np.testing.assert_array_equal(total, x + row)
    np.testing.assert_array_equal(greater, row > x)
    np.testing.assert_allclose(power, x**2)
    np.testing.assert_array_equal(infinite, np.isinf(x))
    np.testing.assert_allclose(erf, np.asarray(lax.erf(x)), rtol=1e-6)
    np.testing.assert_array_equal(least, np.sort(x)[:, :2])


def test_partial_reduce(tmp_path):
    whole, part = [f"tensor<4x{n}x{t}>" for n in (64, 32) for t in ("f32", "i32")][:2], "tensor<4x32xf32>, tensor<4x32xi32>"
    config = r'{backend_config = "{\22reduction_dim\22: 1, \22top_k\22: 4}", called_computations = [@greater]}'
    text = f"""
func.func @main(%x: {whole[0]}, %i: {whole[1]}) -> ({part}) {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<-1> : tensor<i32>
  %0 = stablehlo.custom_call @PartialReduce(%x, %i, %low, %none) {config} :
    ({", ".join(whole)}, tensor<f32>, tensor<i32>) -> tuple<{part}>
  %1 = stablehlo.get_tuple_element %0[0] : (tuple<{part}>) -> tensor<4x32xf32>
  %2 = stablehlo.get_tuple_element %0[1] : (tuple<{part}>) -> tensor<4x32xi32>
  return %1, %2 : {part}
}}
func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>) -> tensor<i1> {{
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}}
"""
    x = random_array((4, 64))
    values, indices = run_text(text, tmp_path, x, np.tile(np.arange(64, dtype=np.int32), (4, 1)))
    order = np.argsort(-x, axis=1, kind="stable")[:, :4]  # the best must be among the remaining ones
    for row in range(4):
        assert set(order[row]) <= set(indices[row])
        np.testing.assert_array_equal(values[row], x[row, indices[row]])


def test_a_whole_network(tmp_path):
    def network(x, w):
        hidden = jax.nn.gelu(x @ w, approximate=False)
        return lax.top_k(jax.nn.softmax(hidden), 3)

    with jax.default_matmul_precision("highest"):
        check(network, tmp_path, random_array((8, 16)), random_array((16, 32), seed=1) / 16)
