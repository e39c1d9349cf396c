# SPDX-License-Identifier: Apache-2.0
"""Scans of many small steps, which run as one function of generated code (src/host/loop.h), compared with XLA:CPU."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

STEPS = 3000


def both(function, *arguments, rtol=0.0, atol=0.0):
    results = []
    for platform in ("tpu", "cpu"):
        device = jax.devices(platform)[0]
        placed = [jax.device_put(a, device) for a in arguments]
        results.append(jax.tree.leaves(jax.jit(function)(*placed)))
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if ours.dtype.kind in "biu":
            np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.asan
@pytest.mark.parametrize("size", [1, 3, 8, 16, 17, 100, 256])
@pytest.mark.parametrize("reverse", [False, True])
def test_elementwise(size, reverse):
    def step(h, x):
        h = jnp.tanh(h * 0.9 + x)
        return h, (h, h.sum(), h > 0)

    both(lambda h, xs: lax.scan(step, h, xs, reverse=reverse), numbers(size), numbers(STEPS, size), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8, jnp.int32, jnp.uint16, jnp.uint32])
def test_types(dtype):
    def step(h, x):
        h = jnp.where(x > h, x - h, h + x).astype(dtype)
        return h, h

    values = np.asarray(np.random.default_rng(1).integers(0, 4, (STEPS, 13)), dtype=dtype)
    both(lambda h, xs: lax.scan(step, h, xs), values[0], values)


def test_integers_wrap():
    def step(h, _):  # a linear congruential generator
        h = h * np.uint32(1664525) + np.uint32(1013904223)
        return h, h >> 7

    both(lambda h: lax.scan(step, h, None, length=STEPS), np.arange(20, dtype=np.uint32))


def test_moves():
    def step(h, x):
        h = jnp.concatenate([h[:, 3:], h[:, :3]], axis=1)[::-1].T + x
        h = (h / (1 + jnp.abs(h).max()))
        return h.T, (h.sum(axis=0), h.max(axis=1), h[1:5:2, 2])

    both(lambda h, xs: lax.scan(step, h, xs), numbers(6, 7), numbers(STEPS, 7, 6), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows,inner,columns", [(0, 16, 16), (0, 7, 7), (3, 9, 9), (8, 16, 16), (1, 64, 64)])
def test_products(rows, inner, columns):
    def step(h, x):
        h = jnp.tanh(jnp.dot(h, weights, precision="highest") * 0.5 + x)
        return h, h

    weights = numbers(inner, columns, seed=3) * 0.2
    shape = (rows, inner) if rows else (inner,)
    both(lambda h, xs: lax.scan(step, h, xs), numbers(*shape), numbers(STEPS, *shape, seed=2), rtol=1e-4, atol=1e-4)


def test_lstm_cell():
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    w, u, b = numbers(5, 32, seed=4) * 0.3, numbers(8, 32, seed=5) * 0.3, numbers(32, seed=6)
    both(lambda h, c, xs: lax.scan(step, (h, c), xs), numbers(8), numbers(8), numbers(STEPS, 5), rtol=1e-4, atol=1e-4)


def recurrent(w, u, h, xs, reverse=False):
    """A layer whose products with its inputs and for the gradients of its weights need no loop (src/host/loop_products.h)."""

    def step(h, x):
        r, n = jnp.split(jnp.dot(x, w, precision="highest") + jnp.dot(h, u, precision="highest"), 2, -1)
        h = jnp.tanh(n + jax.nn.sigmoid(r) * h)
        return h, h

    return lax.scan(step, h, xs, reverse=reverse)[1]


@pytest.mark.asan
@pytest.mark.parametrize("trips", [1, 2, 9])
@pytest.mark.parametrize("rows", [1, 8, 300])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_layer(trips, rows, reverse):
    def loss(w, u, h, xs):
        return (recurrent(w, u, h, xs, reverse) ** 2).sum()

    arguments = numbers(24, 64) * 0.2, numbers(32, 64, seed=1) * 0.2, numbers(rows, 32, seed=2), numbers(trips, rows, 24, seed=3)
    both(jax.value_and_grad(loss, range(4)), *arguments, rtol=1e-3, atol=1e-3)


def test_layers_of_recurrent_layers():
    """A scan over layers with a scan over time in it."""

    def loss(ws, us, xs):
        layer = lambda xs, weights: (recurrent(*weights, jnp.zeros((8, 32)), xs), None)
        return lax.scan(layer, xs, (ws, us))[0].sum()

    arguments = numbers(3, 32, 64) * 0.2, numbers(3, 32, 64, seed=1) * 0.2, numbers(5, 8, 32, seed=3)
    both(jax.value_and_grad(loss, (0, 1, 2)), *arguments, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_step_that_is_not_a_number(value):
    xs = numbers(6, 8, 24, seed=3)
    xs[4, 2, 5] = value

    def run(w, u, h, xs):
        hs, pull = jax.vjp(lambda w, u: recurrent(w, u, h, xs), w, u)
        return hs, pull(jnp.ones_like(hs))

    arguments = numbers(24, 64) * 0.2, numbers(32, 64, seed=1) * 0.2, numbers(8, 32, seed=2), xs
    both(run, *arguments, rtol=1e-3, atol=1e-3)


def test_donated_sum():
    """The sum starts as an argument that is given away."""

    def run(total, u, h, xs):
        def step(carry, x):
            total, h = carry
            h = jnp.tanh(jnp.dot(h, u, precision="highest") + x)
            return (total + jnp.dot(x.T, h, precision="highest"), h), h

        (total, h), hs = lax.scan(step, (total, h), xs)
        return total, h, hs[2]

    arguments = numbers(32, 32), numbers(32, 32, seed=1) * 0.2, numbers(8, 32, seed=2), numbers(6, 8, 32, seed=3)
    wanted = jax.jit(run)(*(jax.device_put(x, jax.devices("cpu")[0]) for x in arguments))
    step = jax.jit(run, donate_argnums=0)
    for _ in range(2):
        got = step(*(jax.device_put(x, jax.devices("tpu")[0]) for x in arguments))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), got, wanted)


def test_reads_what_grew():
    def step(i, table):  # Fibonacci modulo a prime, from the table itself
        value = (table[i - 1] + table[i - 2]) % 9973
        return table.at[i].set(value)

    both(lambda t: lax.fori_loop(2, STEPS, step, t), np.arange(STEPS, dtype=np.int32))


def test_state_that_changes_places():
    def step(carry, _):
        a, b, c = carry
        return (b, c, a + 1), None

    both(lambda a, b, c: lax.scan(step, (a, b, c), None, length=STEPS)[0], *(numbers(9, seed=s) for s in range(3)))


def test_starts_beyond_the_end():
    def step(i, carry):
        table, out = carry
        row = lax.dynamic_slice(table, (i - 5, 0), (2, 4))
        return table, lax.dynamic_update_slice(out, row * 2, (i * 3, 0))

    both(lambda t, o: lax.fori_loop(0, STEPS, step, (t, o))[1], numbers(100, 4), np.zeros((500, 4), np.float32))


def test_inside_a_manual_region():
    mesh = jax.sharding.Mesh(np.array(jax.devices("tpu")[:4]), ("x",))
    spec = jax.sharding.PartitionSpec("x")

    @jax.jit
    def run(h):
        body = lambda h: lax.scan(lambda h, _: (h * 0.99 + 1, None), h, None, length=STEPS)[0]
        return jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)(h)

    start = np.arange(8, dtype=np.float32)
    np.testing.assert_allclose(run(start), np.full(8, 100, np.float32), rtol=1e-4)


def test_same_bits_each_time():
    run = jax.jit(lambda h, xs: lax.scan(lambda h, x: ((h := jnp.sin(h + x)), h.sum()), h, xs))
    first = run(numbers(33), numbers(STEPS, 33))
    second = run(numbers(33), numbers(STEPS, 33))
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.mark.parametrize("reverse", [False, True])
def test_stacks_of_one_value(reverse):
    """PyTorch/XLA's scan stacks the weights, too, for its gradient to read."""

    def run(w, h, xs):
        h, (stack, hs) = lax.scan(lambda h, x: (jnp.tanh(h * w[0] + x), (w, h)), h, xs, reverse=reverse)
        return lax.scan(lambda g, each: (g * each[0][1] + each[1], None), h, (stack, hs))[0], stack.sum(0), stack[3]

    both(run, numbers(2, 300), numbers(300), numbers(7, 300), rtol=1e-5, atol=1e-5)
