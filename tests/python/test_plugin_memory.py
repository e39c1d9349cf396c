# SPDX-License-Identifier: Apache-2.0
"""The HBM account: padded bytes, donation, views of one array, the analyses of a program."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import counts_memory, run_python
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.usefixtures("tpu_only")
MIB = 1 << 20


def in_use(device=0):
    gc.collect()
    return jax.devices()[device].memory_stats()["bytes_in_use"]


def mesh_of_eight():
    return jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


def test_arrays_count_with_their_tiles_filled_up():
    before = in_use()
    array = jax.device_put(np.zeros((9, 33), np.float32))
    assert in_use() - before == 16 * 128 * 4
    del array
    column = jax.device_put(np.zeros((1024, 1), np.float32))  # stored transposed
    assert in_use() - before == 2 * 1024 * 4
    del column
    assert in_use() == before


def test_pinned_host_memory_is_not_hbm():
    before = in_use()
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    array = jax.device_put(np.zeros((1024, 1024), np.float32), sharding)
    assert array.sharding.memory_kind == "pinned_host"
    assert in_use() == before


def test_donated_arrays_give_their_memory_to_the_result():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = step(jnp.zeros((1024, 1024)))
    before = in_use()
    for _ in range(5):
        x = step(x)
        x.block_until_ready()
        assert in_use() == before
    assert float(x[0, 0]) == 6


def test_each_device_counts_its_own_part():
    mesh = mesh_of_eight()
    before = [in_use(d) for d in range(8)]
    sharded = jax.device_put(np.zeros((1024, 1024), np.float32), NamedSharding(mesh, P("x")))
    assert [in_use(d) - b for d, b in enumerate(before)] == [MIB // 2] * 8
    everywhere = jax.jit(lambda a: a * 2, out_shardings=NamedSharding(mesh, P()))(sharded)
    assert [in_use(d) - b for d, b in enumerate(before)] == [MIB // 2 + 4 * MIB] * 8
    assert float(everywhere.sum()) == 0


def test_memory_analysis_is_per_device():
    mesh = mesh_of_eight()
    argument = jax.ShapeDtypeStruct((1024, 1024), np.float32, sharding=NamedSharding(mesh, P("x")))
    compiled = jax.jit(lambda a: a * 2, donate_argnums=0).lower(argument).compile()
    stats = compiled.memory_analysis()
    assert stats.argument_size_in_bytes == stats.output_size_in_bytes == stats.alias_size_in_bytes == MIB // 2


def test_temporaries_lie_as_the_tiles_pad_them_least():
    def f(x):  # a pair in the lanes would be padded 64 times
        pairs = jnp.sort(jnp.stack([x, -x], axis=-1), axis=0)
        return pairs.sum(), pairs[0]

    stats = jax.jit(f).lower(jax.ShapeDtypeStruct((8, 1 << 20), jnp.float32)).compile().memory_analysis()
    assert stats.temp_size_in_bytes < 512 * MIB


def test_broadcasts_are_made_where_they_are_used():
    def f(x):
        wide = jnp.broadcast_to(x, (1 << 14, 1 << 14))
        return jnp.sum(jnp.sin(wide)) + jnp.max(jnp.cos(wide) * wide)

    stats = jax.jit(f).lower(jax.ShapeDtypeStruct((1 << 14,), jnp.float32)).compile().memory_analysis()
    assert stats.temp_size_in_bytes < 64 * MIB


def test_values_kept_in_host_memory_are_no_hbm():
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")

    def loss(x, remat):
        def inner(x):
            for _ in range(3):
                x = jnp.sin(jnp.dot(x, x, precision="highest"))
            return x.sum()

        return (jax.checkpoint(inner, policy=policy) if remat else inner)(x)

    x = jnp.ones((512, 512)) / 512
    kept = jax.jit(jax.grad(lambda x: loss(x, False)))
    offloaded = jax.jit(jax.grad(lambda x: loss(x, True)))
    stats = offloaded.lower(x).compile().memory_analysis()
    assert stats.host_temp_size_in_bytes >= 2 * MIB  # the products of the forward pass, unpadded
    assert kept.lower(x).compile().memory_analysis().host_temp_size_in_bytes == 0
    np.testing.assert_allclose(offloaded(x), kept(x), rtol=1e-6)


def test_report_names_operator_place_and_padding():
    def too_much(x):
        big = jnp.dot(x, x.T)
        return jnp.dot(big, big).sum()

    def compile_of(n):
        jax.jit(too_much).lower(jax.ShapeDtypeStruct((n, 3), np.float32)).compile()

    compile_of(60000)  # the product may be kept in bf16, since only that is read, and the sum fused with it
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as caught:
        compile_of(100000)
    message = str(caught.value)
    assert "Used " in message and "of 15.48G hbm" in message and "least that any compiler needs" in message
    assert "f32[100000,100000]{1,0:T(8,128)}" in message
    assert "dot_general" in message and "test_plugin_memory.py" in message
    assert "argument 0" in message and "f32[100000,3]{0,1:T(4,128)}" in message and "1.3x expansion" in message


def test_arguments_and_results_beyond_hbm_are_refused():
    gib = 1 << 30
    x = jax.ShapeDtypeStruct((10 * gib // 4,), np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        jax.jit(lambda x: x + 1).lower(x).compile()
    jax.jit(lambda x: x + 1, donate_argnums=0).lower(x).compile()
    mesh = mesh_of_eight()
    spread = jax.ShapeDtypeStruct((80 * gib // 4,), np.float32, sharding=NamedSharding(mesh, P("x")))
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        jax.jit(lambda x: x + 1).lower(spread).compile()
    jax.jit(lambda x: x + 1, donate_argnums=0).lower(spread).compile()


def test_what_a_loop_carries_is_there():
    def keeps(layers, x):
        def loss(w):
            y, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)
            return y.sum()

        return jax.grad(loss)(jnp.ones((layers, 1024, 1024), jnp.bfloat16))

    def compile_of(layers):
        x = jax.ShapeDtypeStruct((1 << 16, 1024), jnp.bfloat16)  # 128 MiB, of which each layer keeps some
        return jax.jit(lambda x: keeps(layers, x)).lower(x).compile().memory_analysis()

    assert 4 << 30 < compile_of(16).temp_size_in_bytes < 12 << 30
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        compile_of(64)


def test_what_a_compiler_may_make_again_is_made_again_until_the_program_fits():
    def deep(x, w):  # the backward pass needs every layer's activations
        for _ in range(100):
            x = jnp.tanh(x @ w)
        return x.sum()

    x = jax.ShapeDtypeStruct((1 << 18, 1024), jnp.bfloat16)  # 512 MiB
    w = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    stats = jax.jit(jax.grad(deep, argnums=1)).lower(x, w).compile().memory_analysis()
    limit = jax.devices()[0].memory_stats()["bytes_limit"]
    assert stats.peak_memory_in_bytes == limit  # of 50 GiB
    total = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    assert total == limit


def test_gathered_operands_of_a_product_are_temporaries():
    devices = topologies.get_topology_desc("v5e:4x4", "tpu").devices
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    both = NamedSharding(mesh, P("data", "model"))
    a = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16, sharding=both)
    stats = jax.jit(jnp.dot, out_shardings=both).lower(a, a).compile().memory_analysis()
    assert stats.argument_size_in_bytes == 2 * stats.output_size_in_bytes == 16 * MIB
    # Rows of the one and columns of the other, from four devices each.
    assert stats.temp_size_in_bytes == 2 * 32 * MIB
    assert stats.peak_memory_in_bytes == 88 * MIB


def test_the_log_names_what_is_live_at_the_peak():
    code = """
        import jax, jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec as P
        mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        rows = NamedSharding(mesh, P("x"))
        a = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=rows)
        jax.jit(jnp.dot, out_shardings=rows).lower(a, a).compile().memory_analysis()
    """
    log = run_python(code, VTPU_LOG="debug").stderr
    assert "memory of jit_dot on one device: 5.50M, 5.50M if nothing is computed twice; at the peak" in log
    assert "4.00M f32[1024,1024]{1,0:T(8,128)}, 4.00M without padding: all_gather at jit(dot)/dot_general" in log
    assert "512.0K f32[128,1024]{1,0:T(8,128)}, 512.0K without padding: argument 0" in log


def test_out_of_memory_on_eight_devices_is_told_in_terms_of_one():
    mesh = mesh_of_eight()

    def too_much(x, w):
        everywhere = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P()))
        return jnp.dot(everywhere, everywhere).sum()

    def compile_of(n):
        x = jax.ShapeDtypeStruct((n, 512), jnp.float32, sharding=NamedSharding(mesh, P("x")))
        w = jax.ShapeDtypeStruct((512, n), jnp.float32, sharding=NamedSharding(mesh, P()))
        return jax.jit(too_much).lower(x, w).compile()

    compile_of(80000)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as caught:
        compile_of(100000)  # two products of which each device holds all
    message = str(caught.value)
    assert "runs on 8 devices; all of this is on one of them" in message
    assert "f32[100000,100000]{1,0:T(8,128)}" in message and "f32[12500,512]{1,0:T(8,128)}" in message
    assert "test_plugin_memory.py" in message and "Op: dot_general" in message and "Unpadded size: 37.25G" in message


@counts_memory
def test_zeros_of_many_gib_cost_no_memory():
    def resident():
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024

    zeros = jax.jit(lambda: jnp.zeros((1 << 14, 1 << 14), jnp.float32))  # 1 GiB
    before = resident()
    held = [zeros() for _ in range(8)]
    jax.block_until_ready(held)
    assert in_use() >= 8 << 30
    assert resident() - before < 256 * MIB
    assert float(held[3][5, 7]) == 0
