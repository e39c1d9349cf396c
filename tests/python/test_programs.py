# SPDX-License-Identifier: Apache-2.0
"""Jitted programs of every family compared with XLA:CPU at full precision, and the meaning of default precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from support import random_array, same_as_cpu

pytestmark = pytest.mark.asan
X = random_array((16, 24))
Y = random_array((16, 24), seed=1)
POSITIVE = random_array((16, 24), seed=2, low=0.1, high=4.0)
INTEGERS = np.random.default_rng(3).integers(-100, 100, (16, 24), dtype=np.int32)

UNARY = ["exp", "sin", "cos", "tan", "tanh", "abs", "sign", "floor", "ceil", "round", "sinh", "cosh", "arctan", "exp2",
         "expm1", "square", "negative", "arcsinh", "isnan", "cbrt"]  # fmt: skip
UNARY_POSITIVE = ["log", "log1p", "sqrt", "reciprocal", "log2"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "arctan2", "hypot", "greater", "equal", "logaddexp"]
BINARY_INTEGER = ["add", "multiply", "floor_divide", "remainder", "bitwise_and", "bitwise_xor", "left_shift", "maximum"]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    same_as_cpu(getattr(jnp, name), X, rtol=2e-6)


@pytest.mark.parametrize("name", UNARY_POSITIVE)
def test_unary_positive(name):
    same_as_cpu(getattr(jnp, name), POSITIVE, rtol=2e-6)


@pytest.mark.parametrize("name", ["erf", "erf_inv", "lgamma", "digamma", "logistic", "rsqrt", "erfc"])
def test_special(name):
    function = getattr(lax, name)
    same_as_cpu(function, POSITIVE / 4.5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    same_as_cpu(getattr(jnp, name), X, Y, rtol=2e-6)


@pytest.mark.parametrize("name", BINARY_INTEGER)
def test_binary_integer(name):
    same_as_cpu(getattr(jnp, name), INTEGERS, np.abs(INTEGERS[::-1]) % 13 + 1)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.uint8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("axis", [0, 1, None, (0, 1)], ids=str)
def test_reductions(dtype, axis):
    x = jnp.asarray(np.abs(INTEGERS) % 5).astype(dtype)
    exact = functools.partial(same_as_cpu, rtol=1e-2 if dtype == jnp.bfloat16 else 1e-3)
    x = np.asarray(x)
    exact(lambda x: (x.sum(axis), x.max(axis), x.min(axis), (x > 0).any(axis), (x > 0).all(axis)), x)


def test_argmax_and_cumulative():
    same_as_cpu(lambda x: (x.argmax(1), x.argmin(0), jnp.cumsum(x, 0), lax.cummax(x, axis=1)), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.T, lambda x: x.reshape(8, 48), lambda x: x[2:14:3, ::-1], lambda x: jnp.pad(x, ((1, 2), (0, 3))),
        lambda x: jnp.concatenate([x, x * 2], 1), lambda x: jnp.roll(x, 3, 1), lambda x: jnp.tile(x, (2, 1)),
        lambda x: jnp.flip(x, 0), lambda x: lax.dynamic_slice(x, (3, 5), (4, 6)), lambda x: x[jnp.array([3, 1, 1, 15])],
        lambda x: x.at[jnp.array([0, 2, 0])].add(1.0), lambda x: x.at[3:5, 2].set(9.0), lambda x: jnp.sort(x, 1),
        lambda x: jnp.argsort(x, 0), lambda x: lax.top_k(x, 3), lambda x: jnp.where(x > 0, x, -1), lambda x: jnp.triu(x),
        lambda x: jnp.repeat(x, 2, 0), lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"),
        lambda x: jax.nn.softmax(x), lambda x: jax.nn.gelu(x), lambda x: jax.nn.logsumexp(x, 1), lambda x: jnp.var(x, 1),
        lambda x: x.astype(jnp.int32).astype(jnp.bfloat16), lambda x: lax.bitcast_convert_type(x, jnp.int32),
        lambda x: jnp.linalg.norm(x), lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]), lambda x: jnp.unravel_index(37, (5, 9)),
        lambda x: jnp.meshgrid(x[0], x[1]), lambda x: jnp.histogram(x, 5)[0], lambda x: jnp.median(x, 0),
    ],
)  # fmt: skip
def test_shapes_and_indices(function):
    same_as_cpu(function, X)


DOTS = ["ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bij,bkj->bik", "ij,ij->i", "i,j->ij", "bhqd,bkhd->bhqk", "ij,j->i",
        "ijk,ijk->"]  # fmt: skip


@pytest.mark.parametrize("spec", DOTS)
def test_dots(spec):
    sizes = {name: 5 + 3 * i for i, name in enumerate("bhijkqd")}
    operands = [random_array([sizes[n] for n in part], seed=i) for i, part in enumerate(spec.split("->")[0].split(","))]
    same_as_cpu(lambda a, b: jnp.einsum(spec, a, b), *operands)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolution_and_its_gradients(strides, padding, groups, dilation):
    x, w = random_array((2, 13, 12, 4)), random_array((3, 3, 4 // groups, 6), seed=1)

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, strides, padding, rhs_dilation=(dilation, dilation),
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)

    same_as_cpu(lambda x, w: (convolve(x, w), *jax.grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1))(x, w)), x, w,
                rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("numbers", [("NCHW", "OIHW", "NCHW"), ("NHWC", "OHWI", "NHWC"), ("NCHW", "HWIO", "NHWC")])
def test_convolution_layouts(numbers):
    sizes = {"N": 2, "C": 3, "H": 8, "W": 9, "O": 5, "I": 3}
    kernel = dict(sizes, H=3, W=2)
    x, w = random_array([sizes[c] for c in numbers[0]]), random_array([kernel[c] for c in numbers[1]], seed=1)
    same_as_cpu(lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=numbers), x, w, atol=1e-5)


def test_transposed_convolution():
    x, w = random_array((2, 7, 7, 4)), random_array((3, 3, 4, 5), seed=1)
    same_as_cpu(lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), x, w, atol=1e-5)


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_pooling_and_its_gradient(pool):
    x = random_array((2, 8, 9, 3))

    def function(x):
        if pool == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4

    same_as_cpu(lambda x: (function(x), jax.grad(lambda x: (function(x) ** 2).sum())(x)), x)


def test_control_flow():
    def collatz(n):
        return lax.while_loop(lambda s: s[0] != 1,
                              lambda s: (lax.cond(s[0] % 2 == 0, lambda v: v // 2, lambda v: 3 * v + 1, s[0]), s[1] + 1),
                              (n, 0))[1]

    assert int(jax.jit(collatz)(27)) == 111
    same_as_cpu(lambda x: lax.scan(lambda c, v: (c * 0.9 + v, c.sum()), jnp.zeros(24), x), X)
    same_as_cpu(lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x), X, np.int32(2))
    same_as_cpu(lambda x: lax.fori_loop(0, 10, lambda i, v: v.at[i].set(v[i - 1] + i), x), X)
    same_as_cpu(lambda x: lax.map(lambda row: jnp.sort(row)[:2], x), X)
    same_as_cpu(lambda x: lax.associative_scan(jnp.multiply, x), X / 2)


def test_gradients():
    def network(params, x):
        for w, b in params:
            x = jnp.tanh(x @ w + b)
        return (x**2).mean()

    sizes = ((24, 32), (32, 3))
    params = [(random_array(size, seed=4 + i), random_array(size[1], seed=6 + i)) for i, size in enumerate(sizes)]
    same_as_cpu(jax.value_and_grad(network), params, X, rtol=1e-4)
    same_as_cpu(lambda x: jax.hessian(lambda v: (jnp.sin(v) * v).sum())(x), X[0])
    same_as_cpu(lambda x: jax.jacrev(lambda v: jnp.outer(v[:3], jnp.exp(v[3:6])))(x), X[0])
    same_as_cpu(lambda p, x: jax.grad(jax.checkpoint(network))(p, x), params, X, rtol=1e-4)
    same_as_cpu(jax.vmap(jax.grad(lambda v: jnp.prod(v))), X[:, :4], rtol=1e-4)


def test_random_numbers_are_those_of_jax():
    same_as_cpu(lambda: jax.random.uniform(jax.random.key(0), (1000,)))
    same_as_cpu(lambda: jax.random.normal(jax.random.key(1), (33, 7)), rtol=1e-4)
    same_as_cpu(lambda: jax.random.permutation(jax.random.key(2), 50))
    same_as_cpu(lambda: jax.random.categorical(jax.random.key(3), jnp.zeros((20, 5))))
    same_as_cpu(lambda: jax.random.bits(jax.random.key(4), (65,), jnp.uint32))
    same_as_cpu(lambda: jax.random.truncated_normal(jax.random.key(5), -1, 1, (40,)), rtol=1e-4)


def test_eager_operations():
    x = jnp.arange(10.0)
    assert x.devices() == {jax.devices()[0]}
    np.testing.assert_array_equal(np.asarray(x[2:5] * 2 + 1), [5, 7, 9])
    assert float(jnp.dot(x, x)) == 285
    assert [int(v) for v in jnp.arange(5)[::-1]] == [4, 3, 2, 1, 0]


def test_default_precision_rounds_operands_to_bfloat16(tpu_only):
    a, b = random_array((64, 128)), random_array((128, 32), seed=1)
    rounded = [v.astype(jnp.bfloat16).astype(np.float64) for v in (a, b)]
    got = np.asarray(jax.jit(jnp.dot)(a, b))
    np.testing.assert_allclose(got, rounded[0] @ rounded[1], rtol=1e-4, atol=1e-4)
    exact = np.asarray(jax.jit(lambda a, b: jnp.dot(a, b, precision="highest"))(a, b))
    np.testing.assert_allclose(exact, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    assert np.abs(got - exact).max() > 1e-4


def test_jit_returns_before_the_work_is_done(tpu_only):
    import time

    x = jnp.ones((1500, 1500))
    step = jax.jit(lambda x: lax.fori_loop(0, 40, lambda i, v: jnp.tanh(v @ v * 1e-3), x))
    step(x).block_until_ready()
    start = time.perf_counter()
    y = step(x)
    returned = time.perf_counter() - start
    y.block_until_ready()
    assert returned < 0.5 * (time.perf_counter() - start)


def test_compiled_program_tells_about_itself(tpu_only):
    compiled = jax.jit(lambda a, b: jnp.tanh(a @ b)).lower(X, Y.T).compile()
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    assert cost["flops"] >= 2 * 16 * 24 * 16
    assert compiled.memory_analysis().argument_size_in_bytes >= X.nbytes + Y.nbytes
    assert "tanh" in compiled.as_text()


def run_text(text, *arguments):
    """A program as MLIR text, on the first device."""
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir

    device = jax.devices()[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        loaded = device.client.compile_and_load(
            module, xla_client.DeviceList((device,)), xla_client.CompileOptions()
        )
    results = loaded.execute_sharded([jax.device_put(argument, device) for argument in arguments])
    return [np.asarray(parts[0]) for parts in results.disassemble_into_single_device_arrays()]


@pytest.mark.parametrize("config, left, right", [
    ("ab,bc->ac", (3, 4), (4, 5)), ("ab,bc->ca", (3, 4), (4, 5)), ("abc,acd->abd", (2, 3, 4), (2, 4, 5)),
    ("aab,b->a", (3, 3, 4), (4,)), ("aaa,b->ab", (3, 3, 3), (2,)), ("ab,cd->", (2, 3), (3, 2)), ("abc,bd->d", (2, 3, 4), (3, 5)),
    ("...ab,...bc->...ac", (2, 6, 3, 4), (2, 6, 4, 5)), ("a...,...->...a", (3, 2, 5), (2, 5)), ("...,b->...b", (2, 3), (4,)),
    ("a...a,...->...", (3, 2, 4, 3), (2, 4)), ("aa,aa->a", (3, 3), (3, 3)), ("ab...->b...", (3, 4, 2), None),
    ("aa->a", (4, 4), None), ("aa->", (4, 4), None), ("aba->b", (3, 2, 3), None), ("ab->ba", (2, 3), None), ("a...->...a", (2, 3, 4), None),
], ids=str)  # fmt: skip
def test_einsum_of_older_programs(config, left, right):
    arguments = [random_array(shape, seed=i) for i, shape in enumerate((left, right)) if shape is not None]
    want = np.einsum(config, *(argument.astype(np.float64) for argument in arguments))
    types = [f"tensor<{''.join(f'{size}x' for size in value.shape)}f32>" for value in [*arguments, want]]
    name = "einsum" if right is not None else "unary_einsum"
    names = ", ".join(f"%{i}" for i in range(len(arguments)))
    parameters = ", ".join(f"%{i}: {types[i]}" for i in range(len(arguments)))
    (got,) = run_text(f"""
      func.func public @main({parameters}) -> {types[-1]} {{
        %r = "stablehlo.{name}"({names}) {{einsum_config = "{config}"}} : ({", ".join(types[:-1])}) -> {types[-1]}
        return %r : {types[-1]}
      }}""", *arguments)  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=5e-2)  # operands are rounded to bf16


@pytest.mark.parametrize("config", ["ab,bc->ad", "ab,bc", "abc,bc->a", "ab,bc->aa", "a.b,bc->ac", "......,bc->b", "aa,bc->c"])
def test_einsum_that_does_not_fit(config):
    with pytest.raises(Exception, match="einsum_config does not fit|einsum"):
        run_text(f"""
          func.func public @main(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>) -> tensor<f32> {{
            %r = "stablehlo.einsum"(%0, %1) {{einsum_config = "{config}"}} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<f32>
            return %r : tensor<f32>
          }}""", random_array((2, 3)), random_array((3, 4)))  # fmt: skip
