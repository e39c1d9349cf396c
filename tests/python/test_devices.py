# SPDX-License-Identifier: Apache-2.0
"""What a slice looks like from JAX."""

import jax
import numpy as np
import pytest

from support import run_python

pytestmark = [pytest.mark.asan, pytest.mark.usefixtures("tpu_only")]


def test_a_v3_8_has_eight_cores_on_four_chips():
    devices = jax.devices()
    assert len(devices) == jax.device_count() == jax.local_device_count() == 8
    assert {device.device_kind for device in devices} == {"TPU v3"}
    assert [device.id for device in devices] == list(range(8))
    assert sorted((*device.coords, device.core_on_chip) for device in devices) == [
        (x, y, 0, core) for x in range(2) for y in range(2) for core in range(2)
    ]
    assert {device.process_index for device in devices} == {0} and jax.process_count() == 1


def test_memories():
    device = jax.devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    assert {"device", "pinned_host"} <= kinds
    assert device.default_memory().kind == "device"


def test_memory_stats_count_live_buffers():
    device = jax.devices()[3]
    before = device.memory_stats()
    assert 0 < before["bytes_limit"] <= 16 << 30
    array = jax.device_put(np.zeros((1024, 1024), np.float32), device)
    array.block_until_ready()
    held = device.memory_stats()
    assert held["bytes_in_use"] - before["bytes_in_use"] == 4 << 20
    assert held["peak_bytes_in_use"] >= held["bytes_in_use"]
    array.delete()
    assert device.memory_stats()["bytes_in_use"] == before["bytes_in_use"]


def test_padding_counts():
    device = jax.devices()[2]
    before = device.memory_stats()["bytes_in_use"]
    array = jax.device_put(np.zeros((100, 3, 3), np.float32), device)
    array.block_until_ready()
    # Three of 128 lanes and three of four sublanes would be used: 100 goes into the lanes instead.
    assert device.memory_stats()["bytes_in_use"] - before == 4 * 128 * 3 * 4


@pytest.mark.parametrize(
    "name, kind, count",
    [("v2-8", "TPU v2", 8), ("v3-8", "TPU v3", 8), ("v4-8", "TPU v4", 4), ("v5litepod-4", "TPU v5 lite", 4),
     ("v5p-8", "TPU v5", 4), ("v6e-8", "TPU v6 lite", 8)],
)  # fmt: skip
def test_other_slices(name, kind, count):
    code = """
        import jax
        devices = jax.devices()
        print(devices[0].platform, devices[0].device_kind, len(devices), float(jax.numpy.ones(3).sum()), sep="|")
    """
    done = run_python(code, VTPU_ACCELERATOR_TYPE=name)
    assert done.stdout.strip() == f"tpu|{kind}|{count}|3.0"


def test_the_type_of_a_tpu_vm_is_taken_and_ours_comes_first():
    code = "import jax; print(jax.devices()[0].device_kind)"
    assert run_python(code, TPU_ACCELERATOR_TYPE="v2-8").stdout.strip() == "TPU v2"
    both = run_python(code, TPU_ACCELERATOR_TYPE="v2-8", VTPU_ACCELERATOR_TYPE="v3-8")
    assert both.stdout.strip() == "TPU v3"


@pytest.mark.parametrize("spelling", [{"VTPU_ACCELERATOR_TYPE": "v5e-16 x2"}, {"VTPU_ACCELERATOR_TYPE": "v5e 4x4 x2"},
                                      {"TPU_ACCELERATOR_TYPE": "v5litepod-16", "MEGASCALE_NUM_SLICES": "2"}])  # fmt: skip
def test_several_slices(spelling):
    code = """
        import jax, numpy as np
        from jax.experimental import mesh_utils
        devices = jax.devices()
        assert len(devices) == 32 and [d.slice_index for d in devices] == [0] * 16 + [1] * 16
        assert [d.coords for d in devices[:16]] == [d.coords for d in devices[16:]]
        grid = mesh_utils.create_hybrid_device_mesh((4, 4), (2, 1), devices)
        assert grid.shape == (8, 4) and [d.slice_index for d in grid[:, 0]] == [0] * 4 + [1] * 4
        mesh = jax.sharding.Mesh(grid, ("data", "model"))
        rows = jax.NamedSharding(mesh, jax.P("data", "model"))
        x = jax.device_put(np.arange(32.0).reshape(8, 4), rows)
        print(float(jax.jit(lambda x: (x @ x.T).sum())(x)))
    """
    empty = {"VTPU_ACCELERATOR_TYPE": "", "TPU_ACCELERATOR_TYPE": ""}
    x = np.arange(32.0).reshape(8, 4)
    assert float(run_python(code, **(empty | spelling)).stdout) == pytest.approx((x @ x.T).sum(), rel=1e-2)
