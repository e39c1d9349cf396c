# SPDX-License-Identifier: Apache-2.0
"""The loops of the benchmark: scans of 10,000 small steps, and whiles whose end depends on data."""

SCANS = {"cell16": (16,), "cell128": (128,), "sums32": (32,), "rnn16": (16,), "rnn64": (64,), "rnn8x32": (8, 32)}
WHILES = ("while_scalars", "while_saves", "ode_where", "ode_cond", "newton_inside")


def names():
    return (*SCANS, *WHILES)


def find(name):
    """A function and its arguments."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    def cell(h, x):
        return jnp.tanh(h * 0.9 + x), None

    def sums(h, x):
        h = jnp.tanh(h * 0.9 + x)
        return h, h.sum()

    def rnn(h, x):
        size = h.shape[-1]
        weights = np.random.default_rng(size).standard_normal((size, size)).astype(np.float32) / size
        h = jnp.tanh(h @ jnp.asarray(weights) + x)
        return h, h

    def while_scalars(end, a):
        """100,000 turns over four numbers."""
        def turn(c):
            i, t, a, b = c
            return i + 1, t + 1e-4, b - 2e-6 * a, a
        return lax.while_loop(lambda c: (c[0] < end) & (c[1] < 20.0), turn, (0, 0.0, a, a))

    def while_saves(end, a):
        """100,000 turns with a small array, into which every turn writes a row."""
        def turn(c):
            i, t, a, b, saved = c
            saved = lax.dynamic_update_slice(saved, a[None], (i % 4, 0))
            return i + 1, t + 1e-4, jnp.where(t < 3, b - 2e-6 * a, b), a, saved
        return lax.while_loop(lambda c: (c[0] < end) & (c[1] < 20.0), turn, (0, 0.0, a, a, jnp.zeros((4, 3))))

    def field(t, y):  # Lotka and Volterra's, with a season
        x, z = y[0], y[1]
        return jnp.stack([x * (1.1 + 0.1 * jnp.sin(t)) - 0.4 * x * z, 0.1 * x * z - 0.4 * z])

    def dormand_prince(t, y, h):
        """One step of order 5, and its difference from order 4."""
        rows = ([1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9],
                [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
                [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
                [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84])
        nodes, off = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1), (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
        slopes = [field(t, y)]
        for node, row in zip(nodes, rows):
            new = y + h * sum(w * k for w, k in zip(row, slopes) if w)
            slopes.append(field(t + node * h, new))
        return new, h * sum(w * k for w, k in zip(off, slopes) if w)

    def solve(accept):
        def run(end, y):
            def turn(c):
                t, y, h, n, saved = c
                h = jnp.minimum(h, end - t)
                new, off = dormand_prince(t, y, h)
                size = jnp.sqrt(jnp.mean((off / (1e-6 + 1e-5 * jnp.maximum(abs(y), abs(new)))) ** 2))
                next_h = h * jnp.clip(0.9 * jnp.maximum(size, 1e-6) ** -0.2, 0.2, 5.0)
                t, y, n, saved = accept(size < 1, t, y, n, saved, t + h, new)
                return t, y, next_h, n, saved
            return lax.while_loop(lambda c: (c[0] < end) & (c[3] < 100_000), turn, (jnp.float32(0), y, jnp.float32(0.01), 0, jnp.zeros((64, 2))))
        return run

    def by_where(ok, t, y, n, saved, new_t, new):
        row = jnp.where(ok, new, saved[n % 64])
        return jnp.where(ok, new_t, t), jnp.where(ok, new, y), n + ok, saved.at[n % 64].set(row)

    def by_cond(ok, t, y, n, saved, new_t, new):
        return lax.cond(ok, lambda: (new_t, new, n + 1, saved.at[n % 64].set(new)), lambda: (t, y, n, saved))

    def newton_inside(end, y):
        """20,000 steps of a backward Euler method, each solved by Newton's."""
        def turn(c):
            i, y, trips = c
            def newton(c):
                x, _, n = c
                step = (x - y + 0.01 * x**3) / (1 + 0.03 * x**2)
                return x - step, jnp.max(abs(step)), n + 1
            x, _, n = lax.while_loop(lambda c: (c[1] > 1e-5) & (c[2] < 20), newton, (y, jnp.float32(1), 0))
            return i + 1, x + 0.01 * jnp.cos(0.1 * i), trips + n
        return lax.while_loop(lambda c: (c[0] < end) & (c[2] < 1_000_000), turn, (0, y, 0))

    if name in SCANS:
        shape, body = SCANS[name], {"cell": cell, "sums": sums, "rnn": rnn}[name.rstrip("0123456789x")]
        return jax.jit(lambda h, xs: lax.scan(body, h, xs)), (np.full(shape, 0.5, np.float32), np.full((10000, *shape), 0.1, np.float32))
    numbers = {"while_scalars": (while_scalars, np.int32(100_000), np.float32(1)),
               "while_saves": (while_saves, np.int32(100_000), np.ones(3, np.float32)),
               "ode_where": (solve(by_where), np.float32(5000), np.array([10, 5], np.float32)),
               "ode_cond": (solve(by_cond), np.float32(5000), np.array([10, 5], np.float32)),
               "newton_inside": (newton_inside, np.int32(20_000), np.array([1, 2, 3], np.float32))}
    function, *arguments = numbers[name]
    return jax.jit(function), tuple(arguments)
