# SPDX-License-Identifier: Apache-2.0
"""shard_map over meshes of several axes with arrays sharded over some of them only: devices that hold the same tile."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from support import run_python

pytestmark = [pytest.mark.asan, pytest.mark.partitioned]

SHAPES = [(2,), (7,), (8,), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (2, 2, 2)]
NAMES = ("a", "b", "c")
TILES = [(3,), (64,), (5, 7), (8, 16), (512, 32)]


def mesh(*shape):
    return Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), NAMES[: len(shape)])


def subsets(names):
    return [tuple(n for i, n in enumerate(names) if cut >> i & 1) for cut in range(1 << len(names))]


def whole(tile, m, axes):
    size = int(np.prod([m.shape[a] for a in axes], dtype=int))
    dims = (tile[0] * size, *tile[1:])
    return (np.arange(np.prod(dims)) % 61 - 30).astype(np.float32).reshape(dims)


def loop(w):
    return lax.fori_loop(0, 3, lambda _, c: (c[0] + c[1], c[1]), (w * w, w * w))[0]


def branch(w):
    return lax.cond(w.ravel()[0] > 0, lambda p: p + p, lambda p: (p + p) * 1, w * w)


BODIES = {"scale": (lambda w: w * 10, lambda w: w * 10), "chain": (lambda w: w * (w * 10), lambda w: w * w * 10),
          "loop": (loop, lambda w: 4 * w * w), "branch": (branch, lambda w: 2 * w * w)}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_arrays_cut_by_some_axes(shape, name):
    m = mesh(*shape)
    body, want = BODIES[name]
    for axes in subsets(m.axis_names):
        spec = P(axes) if axes else P()
        run = jax.jit(jax.shard_map(body, mesh=m, in_specs=spec, out_specs=spec))
        for tile in TILES if len(shape) == 2 else TILES[1:4]:
            w = whole(tile, m, axes)
            np.testing.assert_array_equal(np.asarray(run(w)), want(w), err_msg=f"{axes} {tile}")


@pytest.mark.parametrize("rows", [8, 64, 256, 4096])
@pytest.mark.parametrize("columns", [1, 8, 32])
def test_sizes(rows, columns):
    m = mesh(2, 4)
    w = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    run = jax.jit(jax.shard_map(lambda w: w * 10, mesh=m, in_specs=P("b"), out_specs=P("b")))
    np.testing.assert_array_equal(np.asarray(run(w)), w * 10)


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (2, 2, 2)], ids=str)
def test_collectives_whose_groups_are_replicated(shape):
    m = mesh(*shape)
    x = whole((64, 4), m, m.axis_names)
    for over in subsets(m.axis_names)[1:-1]:
        rest = tuple(a for a in m.axis_names if a not in over)
        tiles = x.reshape(*shape, 64, 4)
        mean = tiles.mean(axis=tuple(m.axis_names.index(a) for a in over)).reshape(-1, 4)
        run = jax.jit(jax.shard_map(lambda x: lax.pmean(x, over) * 3 + 1, mesh=m, in_specs=P(m.axis_names), out_specs=P(rest)))  # noqa: B023
        np.testing.assert_array_equal(np.asarray(run(x)), mean * 3 + 1)
        both = jax.shard_map(lambda y: (y * (y * 2), lax.psum(y, rest)), mesh=m, in_specs=P(rest), out_specs=(P(rest), P()))  # noqa: B023
        y = whole((64, 4), m, rest)
        tile, total = jax.jit(both)(y)
        np.testing.assert_array_equal(np.asarray(tile), y * y * 2)
        np.testing.assert_array_equal(np.asarray(total), y.reshape(-1, 64, 4).sum(0))


def test_donated_operands():
    m = mesh(2, 4)
    sharding = NamedSharding(m, P("b"))
    step = jax.jit(jax.shard_map(lambda w, g: w - w * g, mesh=m, in_specs=(P("b"), P()), out_specs=P("b")), donate_argnums=0)
    host = whole((512, 32), m, ("b",))
    w, want = jax.device_put(host, sharding), host
    g = np.full((512, 32), 0.5, np.float32)
    for _ in range(4):
        w, want = step(w, g), want * np.float32(0.5)
        np.testing.assert_array_equal(np.asarray(w), want)


def test_inside_one_another():
    m = mesh(2, 2, 2)

    def outer(w):
        inner = jax.shard_map(lambda v: v * (v * 10), mesh=jax.sharding.get_abstract_mesh(), in_specs=P("b"), out_specs=P("b"), axis_names={"b"})
        return inner(w) + inner(w * 2)

    run = jax.jit(jax.shard_map(outer, mesh=m, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}))
    w = whole((128, 4), m, ("a",))
    np.testing.assert_array_equal(np.asarray(run(w)), w * w * 50)


def test_every_shard_of_the_result():
    m = mesh(2, 4)
    run = jax.jit(jax.shard_map(lambda w: jnp.tanh(w) * w, mesh=m, in_specs=P(None, "b"), out_specs=P(None, "b")))
    w = np.linspace(-2, 2, 64 * 64, dtype=np.float32).reshape(64, 64)
    out = run(w)
    assert len(out.addressable_shards) == 8
    for shard in out.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), (np.tanh(w) * w)[shard.index], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("donate", [(), (0,)], ids=["kept", "donated"])
@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (2, 2, 2)], ids=str)
def test_devices_keep_their_own_values(shape, order, donate):
    """Values under a sharding that calls them replicated stay each device's own, from program to program."""
    devices = np.array(jax.devices()[:8])
    if order == "shuffled":
        devices = devices[np.random.default_rng(3).permutation(8)]
    m = Mesh(devices.reshape(shape), NAMES[: len(shape)])
    for axes in subsets(m.axis_names)[:-1]:
        rest = tuple(a for a in m.axis_names if a not in axes)
        spec = P(axes) if axes else P()

        def step(w, g):
            return w * 2 + lax.axis_index(rest), g  # noqa: B023

        run = jax.jit(jax.shard_map(step, mesh=m, in_specs=(spec, P()), out_specs=(spec, P()), check_vma=False), donate_argnums=donate)
        w, g = whole((64,), m, axes), np.ones(3, np.float32)
        own, share = w, 0
        for _ in range(3):
            own, g = run(own, g)
            w, share = w * 2, share * 2 + 1
        places = {d: dict(zip(m.axis_names, at)) for at, d in np.ndenumerate(m.devices)}
        for shard in own.addressable_shards:
            number = 0
            for a in rest:
                number = number * m.shape[a] + places[shard.device][a]
            np.testing.assert_array_equal(np.asarray(shard.data), w[shard.index] + share * number)
        total = jax.jit(jax.shard_map(lambda w: lax.psum(w, rest), mesh=m, in_specs=spec, out_specs=spec, check_vma=False))(own)  # noqa: B023
        count = int(np.prod([m.shape[a] for a in rest]))
        np.testing.assert_array_equal(np.asarray(total), w * count + share * (count * (count - 1) // 2))


def test_equal_values_that_nobody_can_prove_equal():
    m = mesh(8)

    def ring(x):
        total, passed = x, x
        for _ in range(7):
            passed = lax.ppermute(passed, "a", [(i, (i + 1) % 8) for i in range(8)])
            total = total + passed
        return total

    reduce = jax.jit(jax.shard_map(ring, mesh=m, in_specs=P("a"), out_specs=P(), check_vma=False))
    use = jax.jit(jax.shard_map(lambda x, y: x * y, mesh=m, in_specs=(P(), P("a")), out_specs=P("a"), check_vma=False))
    x = whole((64,), m, ("a",))
    total = x.reshape(8, 64).sum(0)
    np.testing.assert_array_equal(np.asarray(use(reduce(x), x)), np.tile(total, 8) * x)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda t: t + 1)(reduce(x))), total + 1)


def test_inside_one_another_as_gspmd_says_it():
    run_python("""
        import jax, numpy as np
        from jax.sharding import Mesh, PartitionSpec as P

        def outer(w):
            mesh = jax.sharding.get_abstract_mesh()
            inner = jax.shard_map(lambda v: v * (v * 10), mesh=mesh, in_specs=P("b"), out_specs=P("b"), axis_names={"b"})
            return inner(w) + inner(w * 2)

        for shape in (2, 2, 2), (2, 4, 1), (4, 2, 1):
            m = Mesh(np.array(jax.devices()[:8]).reshape(shape), ("a", "b", "c"))
            run = jax.jit(jax.shard_map(outer, mesh=m, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}))
            w = (np.arange(256 * shape[0]) % 61).astype(np.float32).reshape(-1, 2)
            np.testing.assert_array_equal(np.asarray(run(w)), w * w * 50)
    """, JAX_USE_SHARDY_PARTITIONER="false")  # fmt: skip
