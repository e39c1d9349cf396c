# SPDX-License-Identifier: Apache-2.0
"""The estimated time of a compiled program on the chip: equal work takes equal time, however it is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

pytestmark = [pytest.mark.usefixtures("tpu_only"), pytest.mark.partitioned]
ROWS, WIDTH = 4096, 1024


def mesh_of(shape, names):
    return jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))


def cost(f, *shapes, **options):
    found = jax.jit(f, **options).lower(*shapes).compile().cost_analysis()
    return found[0] if isinstance(found, list) else found


def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def test_manual_data_parallel_costs_what_automatic_does():
    mesh = mesh_of((8,), ("data",))
    w = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P()))
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("data")))

    def local(w, x):
        return w - lax.pmean(jax.grad(loss)(w, x), "data")

    manual = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False)
    automatic = cost(lambda w, x: w - jax.grad(loss)(w, x), w, x)
    by_hand = cost(manual, w, x)
    products = 2 * 2 * ROWS * WIDTH * WIDTH  # forward, and the gradient of the weights
    assert automatic["optimal_seconds"] == pytest.approx(products / (4 * 123e12), rel=1e-3)
    assert by_hand["optimal_seconds"] == pytest.approx(automatic["optimal_seconds"], rel=1e-3)
    assert by_hand["flops"] == pytest.approx(automatic["flops"], rel=0.05)


@pytest.mark.parametrize("way", ["some axes", "nested", "in a loop", "loop inside", "called"])
def test_manual_regions(way):
    mesh = mesh_of((4, 2), ("a", "b"))
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P(("a", "b"))))
    w = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P()))
    trips = 3 if "loop" in way else 1

    def product(x, w):
        return jnp.tanh(x @ w)

    def some(x, w):
        return jax.shard_map(product, mesh=mesh, in_specs=(P("a"), P()), out_specs=P("a"), axis_names={"a"})(x, w)

    def nested(x, w):
        def outer(x, w):
            inner = jax.shard_map(product, in_specs=(P("b"), P()), out_specs=P("b"), axis_names={"b"})
            return inner(x, w)

        return jax.shard_map(outer, mesh=mesh, in_specs=(P("a"), P()), out_specs=P("a"), axis_names={"a"})(x, w)

    def whole(x, w, f=product):
        both = P(("a", "b"))
        return jax.shard_map(f, mesh=mesh, in_specs=(both, P()), out_specs=both, check_vma=False)(x, w)

    def in_a_loop(x, w):
        return lax.fori_loop(0, 3, lambda _, x: whole(x, w), x)

    def loop_inside(x, w):
        return whole(x, w, lambda x, w: lax.fori_loop(0, 3, lambda _, x: product(x, w), x))

    f = {"some axes": some, "nested": nested, "in a loop": in_a_loop, "loop inside": loop_inside,
         "called": lambda x, w: jax.jit(whole)(x, w)}[way]  # fmt: skip
    found = cost(f, x, w)
    assert found["optimal_seconds"] == pytest.approx(trips * 2 * ROWS * WIDTH**2 / (4 * 123e12), rel=1e-3)


def test_steps_of_a_loop_count():
    x = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)

    def by(step):
        def f(x):
            return lax.while_loop(lambda c: c[0] < 12, lambda c: (c[0] + step, c[1] @ c[1]), (0, x))[1]

        return cost(f, x)["flops"]

    one = 2 * WIDTH**3
    assert [round(by(step) / one) for step in (1, 3, 5)] == [12, 4, 3]


def test_an_eighth_of_the_time_on_eight_devices():
    mesh = mesh_of((8,), ("data",))
    local = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    spread = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    w = np.ones((WIDTH, WIDTH), np.float32)
    one, eight = (cost(lambda x: x @ w, x)["optimal_seconds"] for x in (local, spread))
    assert one == pytest.approx(8 * eight, rel=0.05)
