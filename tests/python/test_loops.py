# SPDX-License-Identifier: Apache-2.0
"""Whiles whose number of iterations is not known: one function of generated code (src/host/loop.h), compared with XLA:CPU."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import dispatch

from test_scan import both, numbers

pytestmark = pytest.mark.asan


def until(test, body, start):
    return lax.while_loop(test, body, start)


def test_scalars():
    def run(x):
        return until(lambda c: (c[0] < 1000) & (c[1] < 20.0), lambda c: (c[0] + 1, c[1] * 1.01, c[1] - c[2]), (0, x, x))

    for x in (0.5, 19.999, 20.0, np.nan):
        both(run, np.float32(x), rtol=1e-6)


@pytest.mark.parametrize("limit", [0, 1, 7, 1000])
def test_traced_bound(limit):
    both(lambda n, x: lax.fori_loop(0, n, lambda i, x: x * 3 + i, x), np.int32(limit), np.arange(5, dtype=np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool", "bfloat16", "float16"])
def test_types(dtype):
    def body(c):
        i, x, y = c
        return i + 1, jnp.where(x > y, y, x ^ y if x.dtype.kind in "iub" else x + y), jnp.roll(y, 1)

    values = np.asarray(np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 100, (2, 11)), jnp.dtype(dtype))
    both(lambda n, x, y: until(lambda c: c[0] < n, body, (0, x, y))[1:], np.int32(50), values[0], values[1])


def test_integer_corners():
    def body(c):
        i, x, y = c
        q, r = lax.div(x, y), lax.rem(x, y)
        return i + 1, q + lax.shift_left(r, y) + lax.shift_right_arithmetic(x, i), y - 1

    start = np.array([2**31 - 1, -(2**31), 5, -7, 0], np.int32)
    both(lambda n, x: until(lambda c: c[0] < n, body, (0, x, jnp.full(5, 3, jnp.int32)))[1], np.int32(40), start)


def test_branches():
    def step(i, c):
        x, table = c
        x, table = lax.cond(x[0] > 3, lambda x, t: (x * 0.5, t.at[i % 7].set(x[1])), lambda x, t: (x + 1, t), x, table)
        x = lax.switch(i % 4 - 1, [lambda x: x, lambda x: x[::-1], lambda x: x - x.min()], x)
        return x, table

    both(lambda n, x, t: lax.fori_loop(0, n, step, (x, t)), np.int32(100), numbers(4), numbers(7), rtol=1e-5, atol=1e-5)
    both(lambda n, x, t: lax.fori_loop(0, n, step, (x, t)), np.int32(100), numbers(4), numbers(1000), rtol=1e-5, atol=1e-5)


def test_loops_in_loops():
    def root(a):  # Newton's
        return until(lambda c: (abs(c[0] * c[0] - a) > 1e-3 * a) & (c[1] < 50), lambda c: ((c[0] + a / c[0]) / 2, c[1] + 1), (a + 1, 0))

    def body(c):
        i, total, trips, seen = c
        x, n = root(total + i)
        return i + 1, total + x, trips + n, seen.at[n].add(1)

    run = lambda n: until(lambda c: (c[0] < n) & (c[1] < 1e6), body, (0, jnp.float32(1), 0, jnp.zeros(64, jnp.int32)))
    both(run, np.int32(200), rtol=1e-4)


def sums(n, size, x):
    """An inner loop whose result is an array that it fills."""
    def fill(i, k):
        return lax.fori_loop(0, k % size, lambda j, t: t.at[j].set(i * j), jnp.zeros(size, jnp.int32))

    return lax.fori_loop(0, n, lambda i, c: (c[0] + fill(i, i + 2), c[1] ^ c[0].sum()), (x, jnp.int32(0)))


@pytest.mark.parametrize("size", [3, 20, 300])
def test_arrays_filled_inside(size):
    both(lambda n, x: sums(n, size, x), np.int32(60), np.arange(size, dtype=np.int32))


@pytest.mark.parametrize("size", [5, 1000])
@pytest.mark.parametrize("mode", ["clip", "drop", "fill"])
def test_places(size, mode):
    def step(i, c):
        table, counts, picked = c
        at = (i * 7919) % (2 * size) - size // 2
        index = jnp.stack([at, i % size, at + 3])
        picked = picked + table.at[at].get(mode="clip" if mode == "drop" else mode, fill_value=-1) + table[index].sum()
        table = table.at[at].set(i, mode=mode if mode != "fill" else "drop")
        table = table.at[index].add(2, mode="drop" if mode == "fill" else mode)
        return table, counts.at[i % 3, at % 4].max(picked % 100), picked

    start = (np.arange(size, dtype=np.int32), np.zeros((3, 4), np.int32), np.int32(0))
    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(300), *start)


def test_values_from_before_an_update():
    def step(i, c):
        table, other = c
        changed = table.at[i % 9].set(other[(i * 5) % 9] + 1)
        return changed, changed - table + other  # the old table is read after the update

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(100), np.arange(9, dtype=np.int32), np.arange(9, dtype=np.int32))


@pytest.mark.parametrize("size", [9, 1000])
def test_tables_that_change_places(size):
    def step(i, c):
        a, b = c
        return b.at[i % size].add(1), a

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(100), np.arange(size, dtype=np.int32), np.ones(size, np.int32))


def test_an_operand_twice():
    def run(n, x):
        return until(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1].at[c[0] % 900].add(c[2][(c[0] * 3) % 900]), c[2], c[1][0]), (0, x, x, x[0]))

    both(run, np.int32(2000), np.arange(900, dtype=np.int32))


def test_reductions():
    def step(i, c):
        x, y, k = c
        best = jnp.argmax(x, axis=1)
        y = y + best + x.min(axis=1) + jnp.argmin(x)
        k = k ^ jnp.all(x > 0) ^ jnp.any(x > 90, axis=0)
        return (x * 5 + y[:, None] + i) % 97, y % 1000, k

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(100), np.arange(35, dtype=np.int32).reshape(5, 7), np.zeros(5, np.int32), np.zeros(7, bool))


def test_products():
    def step(i, c):
        a, x = c
        y = jnp.dot(a, x, precision="highest") + a.T @ x
        return a * 0.99, y / (jnp.sqrt(jnp.dot(y, y, precision="highest")) + 0.1)

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(50), numbers(5, 5), numbers(5), rtol=1e-4, atol=1e-4)


def test_by_the_evaluator():
    def step(i, c):
        x, y = c
        x = jnp.sort(x)[::-1] + y.sum()
        y = lax.linalg.triangular_solve(jnp.tril(y) + 3 * jnp.eye(4), y, left_side=True, lower=True)
        return x / (1 + abs(x).max()), y

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(20), numbers(9), numbers(4, 4), rtol=1e-3, atol=1e-4)


def test_windows_and_padding():
    def step(i, c):
        x, out = c
        part = lax.dynamic_slice(x, (i - 3, i % 3), (2, 3))
        out = lax.dynamic_update_slice(out, jnp.pad(part, ((1, 0), (0, 1))), (i % 50 - 2, 1))
        return x + lax.pad(part[:, :1], np.float32(1), ((1, 3, 0), (0, 4, 0))) - lax.rev(x, (0,)), out

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(9), numbers(6, 5), np.zeros((60, 7), np.float32), rtol=1e-5, atol=1e-4)


def test_random_numbers():
    def run(key):
        def body(c):
            key, best, n = c
            key, sub = jax.random.split(key)
            return key, jnp.maximum(best, jax.random.uniform(sub)), n + 1

        return until(lambda c: c[1] < 0.999, body, (key, jnp.float32(0), 0))[1:]

    both(run, np.array([1, 2], np.uint32))


def test_donated():
    size = 5000
    step = jax.jit(lambda n, t: lax.fori_loop(0, n, lambda i, t: t.at[i].add(t[size - 1 - i]), t), donate_argnums=1)
    with jax.default_device(jax.devices("tpu")[0]):
        ours = step(jnp.int32(size), jnp.arange(size, dtype=jnp.int32))
    want = np.arange(size, dtype=np.int32)
    for i in range(size):
        want[i] += want[size - 1 - i]
    np.testing.assert_array_equal(ours, want)


def test_devices_that_stop_at_different_times():
    mesh = jax.sharding.Mesh(np.array(jax.devices("tpu")[:4]), ("x",))
    spec = jax.sharding.PartitionSpec("x")

    @jax.jit
    def run(x):
        def body(x):
            n, y = until(lambda c: c[1][0] < 100, lambda c: (c[0] + 1, c[1] * 2), (jnp.zeros(1, jnp.int32), x))
            return n, y + lax.axis_index("x")

        return jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)

    trips, values = run(np.array([1, 10, 60, 200], np.float32))
    np.testing.assert_array_equal(trips, [7, 4, 1, 0])
    np.testing.assert_array_equal(values, [128, 161, 122, 203])


def test_double_precision():
    with jax.enable_x64(True):
        def body(c):
            i, t, y, table = c
            y = y + 1e-3 * jnp.sin(t * y) - jnp.exp(-y) * 1e-4
            return i + 1, t + 1e-3, y, table.at[i % 8].set(y[0])

        run = lambda n, y, t: until(lambda c: (c[0] < n) & jnp.all(c[2] < 9), body, (jnp.int64(0), 0.0, y, t))
        both(run, np.int64(500), numbers(3, dtype=np.float64), np.zeros(8), rtol=1e-12)


def test_arrays_without_elements():
    def step(i, c):
        x, e, f = c
        both_ends = jnp.concatenate([e * 2, jnp.zeros((0, 3))])
        y = x + both_ends.sum() + jnp.concatenate([e[:, 0], x]).sum() + (f @ both_ends).sum()
        return y, lax.cond(x[0] > 3, lambda: both_ends, lambda: e), f

    both(lambda n, *c: lax.fori_loop(0, n, step, c), np.int32(5), np.arange(4, dtype=np.float32), np.zeros((0, 3), np.float32),
         np.ones((2, 0), np.float32))


def test_callbacks_inside():
    def run(n, x):
        def body(c):
            i, x = c
            x = lax.cond(i % 3 == 0, lambda x: jax.pure_callback(lambda x: np.float32(x * 2), jax.ShapeDtypeStruct((), jnp.float32), x), lambda x: x + 1, x)
            return i + 1, x

        return until(lambda c: (c[0] < n) & (c[1] < 1e6), body, (0, x))[1]

    both(run, np.int32(20), np.float32(1))


def test_a_callback_that_fails():
    def refuse(x):
        raise ValueError("seen enough")

    def body(c):
        i, x = c
        return i + 1, lax.cond(i > 5, lambda x: jax.pure_callback(refuse, jax.ShapeDtypeStruct((), jnp.float32), x), lambda x: x + 1, x)

    with jax.default_device(jax.devices("tpu")[0]), pytest.raises(Exception, match="seen enough"):
        jax.block_until_ready(jax.jit(lambda x, n: until(lambda c: c[0] < n, body, (0, x)))(jnp.float32(1), 20))
    dispatch.runtime_tokens.clear()  # or the end of the test waits for it


def test_weights_that_an_inner_loop_does_not_change():
    """They are laid out in its first turn, and again when the outer loop, or the next run, has others."""

    def run(w, x):
        def outer(i, c):
            w, x = c
            return w + 0.0625, lax.fori_loop(0, 3, lambda j, x: jnp.tanh((x @ w).astype(jnp.bfloat16)), x)

        return lax.fori_loop(0, 4, outer, (w, x))[1]

    random = np.random.default_rng(0)
    w, x = (jnp.asarray(random.standard_normal(shape) / 16, jnp.bfloat16) for shape in ((256, 256), (64, 256)))
    with jax.default_device(jax.devices("tpu")[0]):
        compiled = jax.jit(run)
        for weights in (w, -w, w):
            want, v = x, weights
            for _ in range(4):
                for _ in range(3):
                    want = jax.jit(lambda x, w: jnp.tanh((x @ w).astype(jnp.bfloat16)))(want, v)
                v = v + jnp.bfloat16(0.0625)
            np.testing.assert_allclose(np.asarray(compiled(weights, x), np.float32), np.asarray(want, np.float32), rtol=0.05, atol=0.02)
