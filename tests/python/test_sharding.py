# SPDX-License-Identifier: Apache-2.0
"""Programs over the eight devices: shards, propagation, constraints, manual regions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

from support import random_array

pytestmark = [pytest.mark.asan, pytest.mark.partitioned]


def mesh(*shape, names=("data", "model")):
    return Mesh(np.array(jax.devices()).reshape(shape), names[: len(shape)])


@pytest.mark.parametrize("spec", [P(), P("data"), P(None, "data"), P("data", "model"), P("model", "data"), P(("data", "model")),
                                  P(None, ("model", "data"))], ids=str)  # fmt: skip
def test_put_and_fetch(spec):
    host = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    array = jax.device_put(host, NamedSharding(mesh(4, 2), spec))
    np.testing.assert_array_equal(np.asarray(array), host)
    assert len(array.addressable_shards) == 8
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), host[shard.index])


@pytest.mark.parametrize("left", [P(), P("data"), P(None, "model"), P("data", "model")], ids=str)
@pytest.mark.parametrize("right", [P(), P("model"), P(None, "model")], ids=str)
def test_dot(left, right):
    m = mesh(2, 4)
    a, b = random_array((16, 32)), random_array((32, 8), seed=1)
    dot = jax.jit(lambda a, b: jnp.dot(a, b, precision="highest"))
    got = dot(jax.device_put(a, NamedSharding(m, left)), jax.device_put(b, NamedSharding(m, right)))
    assert len(got.sharding.device_set) == 8
    np.testing.assert_allclose(np.asarray(got), a @ b, rtol=1e-5, atol=1e-5)


def test_output_follows_the_input():
    m = mesh(8)
    x = jax.device_put(random_array((16, 8)), NamedSharding(m, P("data")))
    y = jax.jit(lambda x: jnp.sin(x) * 2)(x)
    assert y.sharding.is_equivalent_to(NamedSharding(m, P("data")), 2)
    z = jax.jit(lambda x: x.sum(0))(x)
    np.testing.assert_allclose(np.asarray(z), np.asarray(x).sum(0), rtol=1e-5, atol=1e-6)
    assert len(z.sharding.device_set) == 8


def test_asked_for_output():
    m = mesh(4, 2)
    want = NamedSharding(m, P("model", "data"))
    x = random_array((8, 16))
    y = jax.jit(lambda x: x + 1, out_shardings=want)(x)
    assert y.sharding.is_equivalent_to(want, 2)
    assert {shard.data.shape for shard in y.addressable_shards} == {(4, 4)}
    np.testing.assert_array_equal(np.asarray(y), x + 1)


def test_constraint():
    m = mesh(8)
    sharding = NamedSharding(m, P("data"))

    @jax.jit
    def function(x):
        y = jax.lax.with_sharding_constraint(x * 2, sharding)
        return y, y.sum()

    y, total = function(np.ones((8, 4), np.float32))
    assert y.sharding.is_equivalent_to(sharding, 2)
    assert float(total) == 64


def test_training_step_is_the_same_as_on_one_device():
    def step(params, batch):
        def loss(params):
            hidden = jnp.tanh(jnp.dot(batch["x"], params["a"], precision="highest"))
            return ((jnp.dot(hidden, params["b"], precision="highest") - batch["y"]) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {"a": random_array((12, 32)), "b": random_array((32, 4), seed=1)}
    batch = {"x": random_array((64, 12), seed=2), "y": random_array((64, 4), seed=3)}
    m = mesh(4, 2)
    spread = {"a": NamedSharding(m, P(None, "model")), "b": NamedSharding(m, P("model"))}
    sharded = jax.device_put(params, spread), jax.device_put(batch, NamedSharding(m, P("data")))
    jitted = jax.jit(step, donate_argnums=0)
    one = jax.device_put(params, jax.devices()[0])
    for _ in range(5):
        one, loss_one = jitted(one, batch)
        state, loss = jitted(*sharded)
        sharded = state, sharded[1]
    np.testing.assert_allclose(float(loss), float(loss_one), rtol=1e-5)
    for name in params:
        np.testing.assert_allclose(np.asarray(sharded[0][name]), np.asarray(one[name]), rtol=1e-4, atol=1e-5)
        assert sharded[0][name].sharding.is_equivalent_to(spread[name], 2)


def test_resharding():
    m = mesh(4, 2)
    host = random_array((16, 8))
    x = jax.device_put(host, NamedSharding(m, P("data", "model")))
    for spec in (P("model"), P(), P(None, "data"), P(("model", "data"))):
        x = jax.device_put(x, NamedSharding(m, spec))
        np.testing.assert_array_equal(np.asarray(x), host)
    single = jax.device_put(x, SingleDeviceSharding(jax.devices()[5]))
    np.testing.assert_array_equal(np.asarray(single), host)


def test_part_of_the_slice():
    m = Mesh(np.array(jax.devices()[2:6]), ("data",))
    x = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(m, P("data")))
    y = jax.jit(lambda x: jnp.cumsum(x))(x)
    np.testing.assert_allclose(np.asarray(y), np.cumsum(np.arange(8.0)))
    assert y.sharding.device_set <= set(jax.devices()[2:6])


def test_shards_outlive_the_whole():
    m = mesh(8)
    x = jax.jit(lambda x: x * 3)(jax.device_put(np.arange(32.0, dtype=np.float32), NamedSharding(m, P("data"))))
    shards = [shard.data for shard in x.addressable_shards]
    del x
    assert [float(shard[0]) for shard in shards] == [12.0 * i for i in range(8)]


def test_array_from_single_device_shards():
    m = mesh(8)
    parts = [jax.device_put(np.full(2, i, np.float32), device) for i, device in enumerate(jax.devices())]
    x = jax.make_array_from_single_device_arrays((16,), NamedSharding(m, P("data")), parts)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x + 1)(x)), np.repeat(np.arange(8.0), 2) + 1)


def test_replicated_arguments_of_one_device_each():
    m = mesh(8)
    parts = [jax.device_put(np.arange(5.0, dtype=np.float32), device) for device in jax.devices()]
    x = jax.make_array_from_single_device_arrays((5,), NamedSharding(m, P()), parts)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x * 2)(x)), np.arange(5.0) * 2)


COLLECTIVES = {
    "psum": (lambda x: jax.lax.psum(x, "data"), P()),
    "pmax": (lambda x: jax.lax.pmax(x, "data"), P()),
    "all_gather": (lambda x: jax.lax.all_gather(x, "data", tiled=True), P("data")),
    "psum_scatter": (lambda x: jax.lax.psum_scatter(jnp.tile(x, 8), "data", tiled=True), P("data")),
    "ppermute": (lambda x: jax.lax.ppermute(x, "data", [(i, (i + 3) % 8) for i in range(8)]), P("data")),
    "all_to_all": (lambda x: jax.lax.all_to_all(jnp.tile(x, 8)[:16], "data", 0, 0, tiled=True), P("data")),
    "axis_index": (lambda x: x + jax.lax.axis_index("data"), P("data")),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_in_shard_map(name):
    function, out_specs = COLLECTIVES[name]
    host = np.arange(16, dtype=np.float32)

    def run(devices):
        m = Mesh(np.array(devices), ("data",))
        return np.asarray(jax.jit(jax.shard_map(function, mesh=m, in_specs=P("data"), out_specs=out_specs))(host))

    got = run(jax.devices())
    rows = host.reshape(8, 2)
    tiles = np.tile(rows, (1, 8))
    want = {
        "psum": rows.sum(0), "pmax": rows.max(0), "all_gather": np.tile(host, 8), "psum_scatter": np.tile(rows.sum(0), 8),
        "ppermute": np.roll(rows, 3, 0).reshape(-1),
        "all_to_all": np.stack([tiles[:, 2 * i : 2 * i + 2].reshape(-1) for i in range(8)]).reshape(-1),
        "axis_index": (rows + np.arange(8)[:, None]).reshape(-1),
    }[name]  # fmt: skip
    np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("tpu_only")
def test_inspect_sharding_tells_what_propagation_comes_to():
    devices = mesh(4, 2)
    seen = []

    def inner(a):
        jax.debug.inspect_array_sharding(a, callback=lambda s: seen.append(("manual", s)))
        return a * 2

    @jax.jit
    def program(a):
        b = jnp.tanh(a).T
        jax.debug.inspect_array_sharding(b, callback=lambda s: seen.append(("b", s)))
        return jax.shard_map(inner, mesh=devices, in_specs=P("data", "model"), out_specs=P("data", "model"))(a), b

    a = jax.device_put(np.ones((16, 8), np.float32), NamedSharding(devices, P("data", "model")))
    program(a)
    assert [name for name, _ in seen] == ["b", "manual"] or [name for name, _ in seen] == ["manual", "b"]
    shardings = dict(seen)
    assert shardings["b"].is_equivalent_to(NamedSharding(devices, P("model", "data")), 2)
    count = len(seen)
    program(a)
    assert len(seen) == count  # reported at compile time


def test_a_constant_is_sharded_like_its_group():
    from jax.experimental.shard_alike import shard_alike

    sharding = NamedSharding(mesh(4, 2), P("data", "model"))
    x = jax.device_put(np.zeros((8, 2), np.int32), sharding)
    out = jax.jit(lambda x: shard_alike(x, jnp.arange(16, dtype=jnp.int32).reshape(8, 2))[1])(x)
    assert out.sharding == sharding
    np.testing.assert_array_equal(out, np.arange(16).reshape(8, 2))


def test_constraints_without_axes_leave_the_choice_open():
    """Arrays of keys are constrained over a mesh without axes, with their own dimensions open."""
    m = mesh(4, 2)
    seeds = jax.device_put(np.arange(16, dtype=np.uint32).reshape(8, 2), NamedSharding(m, P("data", "model")))
    keys = jax.jit(lambda s: jax.vmap(jax.vmap(jax.random.key))(s).T)(seeds)
    assert keys.sharding.is_equivalent_to(NamedSharding(m, P("model", "data")), 2)


def test_constraint_over_another_mesh_of_the_same_devices():
    m, other = mesh(2, 2, 2, names=("a", "b", "c")), mesh(4, 2)
    x = jax.device_put(random_array((16, 8)), NamedSharding(m, P("a", "c")))
    want = NamedSharding(other, P("data", None))
    y = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, want) + 1)(x)
    assert y.sharding.is_equivalent_to(want, 2)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) * 2 + 1)


def ragged_reference(operand, output, offsets, sizes, to):
    """A reference for lax.ragged_all_to_all, device by device."""
    out = output.copy()
    for sender in range(len(operand)):
        for peer in range(len(operand)):
            a, n, b = offsets[sender, peer], sizes[sender, peer], to[sender, peer]
            out[peer, b : b + n] = operand[sender, a : a + n]
    return out


@pytest.mark.parametrize("width", [(), (3,)], ids=str)
def test_ragged_all_to_all(width):
    m, n = mesh(8, names=("x",)), 8
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 4, (n, n)).astype(np.int32)
    start = lambda table, axis: (np.cumsum(table, axis) - table).astype(np.int32)
    offsets, to = start(sizes, 1), start(sizes, 0)
    operand = random_array((n, 32) + width)
    output = np.full((n, 32) + width, -7, np.float32)

    @jax.jit
    @jax.shard_map(mesh=m, in_specs=P("x"), out_specs=P("x"))
    def exchange(*arguments):
        a, b, *tables = (argument[0] for argument in arguments)
        return jax.lax.ragged_all_to_all(a, b, *tables, axis_name="x")[None]

    got = exchange(operand, output, offsets, sizes, to, sizes.T.copy())
    np.testing.assert_array_equal(np.asarray(got), ragged_reference(operand, output, offsets, sizes, to))


def test_ragged_all_to_all_in_groups():
    m = mesh(8, names=("x",))
    operand = np.arange(16, dtype=np.int32).reshape(8, 2)
    groups = [[0, 2, 4, 6], [7, 5, 3, 1]]
    ones = np.zeros((8, 4), np.int32)  # the first element, to the first peer's rows in the order of senders
    sizes = np.eye(1, 4, dtype=np.int32).repeat(8, 0)
    to = np.zeros((8, 4), np.int32)
    for row in groups:
        for place, device in enumerate(row):
            to[device] = place

    @jax.jit
    @jax.shard_map(mesh=m, in_specs=P("x"), out_specs=P("x"))
    def exchange(*arguments):
        a, b, *tables = (argument[0] for argument in arguments)
        return jax.lax.ragged_all_to_all(a, b, *tables, axis_name="x", axis_index_groups=groups)[None]

    got = np.asarray(exchange(operand, np.zeros((8, 4), np.int32), ones, sizes, to, sizes))
    want = np.zeros((8, 4), np.int32)
    for row in groups:
        want[row[0]] = operand[row, 0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["psum", "ppermute", "all_to_all", "psum_scatter", "all_gather"])
def test_asynchronous_collectives(name):
    from jax._src.lax import parallel

    arguments = {
        "psum": ("x",),
        "ppermute": ("x", [(i, (i + 3) % 8) for i in range(8)]),
        "all_to_all": ("x", 0, 0),
        "psum_scatter": ("x",),
        "all_gather": ("x",),
    }[name]
    more = {} if name in ("psum", "ppermute") else {"tiled": True}
    m = mesh(8, names=("x",))
    wrap = lambda f: jax.jit(jax.shard_map(f, mesh=m, in_specs=P("x"), out_specs=P("x")))
    both = wrap(lambda x: (getattr(parallel, name)(x, *arguments, **more),
                           getattr(parallel, name + "_start")(x * 1, *arguments, **more).done()))  # fmt: skip
    x = random_array((64, 5))
    assert "stablehlo.async_start" in both.lower(x).as_text()
    plain, later = both(x)
    np.testing.assert_array_equal(np.asarray(plain), np.asarray(later))
