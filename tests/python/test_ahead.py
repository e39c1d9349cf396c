# SPDX-License-Identifier: Apache-2.0
"""Compiling without running: topologies, export, serialised executables, caches; and memories, profiles."""

import glob
import json
import os
import pathlib
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

from support import run_python

pytestmark = pytest.mark.usefixtures("tpu_only")


def test_compile_for_a_slice_that_is_not_there():
    topology = topologies.get_topology_desc("v5e:4x4", platform="tpu")
    devices = topology.devices
    assert len(devices) == 16 and devices[0].device_kind == "TPU v5 lite"
    mesh = Mesh(np.array(devices).reshape(8, 2), ("data", "model"))
    x = jax.ShapeDtypeStruct((64, 128), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    w = jax.ShapeDtypeStruct((128, 256), jnp.float32, sharding=NamedSharding(mesh, P(None, "model")))
    compiled = jax.jit(jnp.dot).lower(x, w).compile()
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    assert cost["flops"] > 0


def test_topologies_of_several_slices():
    for topology in (topologies.get_topology_desc("v4:2x2x1", "tpu", num_slices=2),
                     topologies.get_topology_desc("v4:2x2x1 x2", "tpu")):  # fmt: skip
        devices = topology.devices
        assert [d.slice_index for d in devices] == [0] * 4 + [1] * 4
        assert [d.coords for d in devices[:4]] == [d.coords for d in devices[4:]]
        assert [d.process_index for d in devices] == [0] * 4 + [1] * 4
        mesh = jax.sharding.Mesh(np.array(devices).reshape(2, 4), ("slice", "chip"))
        x = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("slice", "chip")))
        assert jax.jit(lambda x: x.sum()).lower(x).compile().memory_analysis().argument_size_in_bytes > 0
    with pytest.raises(Exception, match="x2, but 3 slices"):
        topologies.get_topology_desc("v4:2x2x1 x2", "tpu", num_slices=3)


def test_export_round_trip():
    exported = export.export(jax.jit(lambda x: jnp.sin(x) @ x.T), platforms=["tpu"])(
        jax.ShapeDtypeStruct((4, 6), jnp.float32)
    )
    again = export.deserialize(exported.serialize())
    x = np.arange(24, dtype=np.float32).reshape(4, 6) / 24
    np.testing.assert_allclose(np.asarray(again.call(x)), np.sin(x) @ x.T, rtol=2e-2)


def test_serialised_executable():
    from jax.experimental import serialize_executable

    compiled = jax.jit(lambda x: x * 2 + 1).lower(jnp.arange(8.0)).compile()
    parts = serialize_executable.serialize(compiled)
    again = serialize_executable.deserialize_and_load(*parts, execution_devices=jax.devices()[:1])
    np.testing.assert_array_equal(np.asarray(again(jnp.arange(8.0))), np.arange(8.0) * 2 + 1)


def test_persistent_cache(tmp_path):
    code = """
        import sys, jax, jax.numpy as jnp
        jax.config.update("jax_compilation_cache_dir", sys.argv[1])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        print(float(jax.jit(lambda x: jnp.tanh(x).sum() + 5)(jnp.zeros((7, 7)))))
    """
    assert run_python(code, str(tmp_path)).stdout == "5.0\n"
    entries = set(glob.glob(f"{tmp_path}/*"))
    assert entries
    assert run_python(code, str(tmp_path)).stdout == "5.0\n"


def test_pinned_host_memory():
    device = jax.devices()[0]
    in_use = device.memory_stats()["bytes_in_use"]
    host = jax.device_put(np.arange(1024.0, dtype=np.float32), SingleDeviceSharding(device, memory_kind="pinned_host"))
    host.block_until_ready()
    assert host.sharding.memory_kind == "pinned_host"
    assert device.memory_stats()["bytes_in_use"] == in_use
    back = jax.device_put(host, SingleDeviceSharding(device, memory_kind="device"))
    np.testing.assert_array_equal(np.asarray(back), np.arange(1024.0))


def test_memory_kinds_of_results():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, P("x"))
    x = jax.device_put(np.arange(32.0, dtype=np.float32).reshape(8, 4), rows)

    @jax.jit
    def offload(a):
        a = a * 2
        return jax.device_put(a, jax.memory.Space.Host), a

    host, device = offload(x)
    assert host.sharding == rows.with_memory_kind("pinned_host")  # placed there, divided as before
    assert device.sharding == rows
    again = jax.jit(lambda a: jax.device_put(a, jax.memory.Space.Device) + 1, out_shardings=rows)(host)
    assert again.sharding == rows
    np.testing.assert_array_equal(np.asarray(again), np.arange(32.0).reshape(8, 4) * 2 + 1)
    compiled = offload.lower(x).compile()
    stats = compiled.memory_analysis()
    assert stats.host_output_size_in_bytes == 4 * 4  # of each device
    assert compiled.runtime_executable().get_output_memory_kinds()[0] == ["pinned_host", "device"]


def test_trace_shows_programs_on_their_devices(tmp_path):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("x")))

    def traced_step(a):
        return jnp.tanh(a) + 1

    step = jax.jit(traced_step)
    with jax.profiler.trace(str(tmp_path)):
        for _ in range(3):
            x = step(x)
        x.block_until_ready()
    step(x).block_until_ready()
    (file,) = glob.glob(f"{tmp_path}/plugins/profile/*/*.xplane.pb")
    data = jax.profiler.ProfileData.from_file(file)
    events = {
        plane.name: [event for line in plane.lines for event in line.events if event.name == "jit_traced_step"]
        for plane in data.planes
    }
    seconds = step.lower(x).compile().cost_analysis()["predicted_seconds"]
    for device in mesh.device_ids.flat:  # as the slice runs it: as long as predicted, one run behind the other
        runs = events[f"/device:TPU:{device}"]
        assert len(runs) == 3 and all(event.duration_ns == pytest.approx(seconds * 1e9, rel=1e-3) for event in runs)
        assert all(a.end_ns <= b.start_ns + 1 for a, b in zip(runs, runs[1:]))
    assert "/host:metadata" in events  # the programs' buffers, for XProf's memory viewer
    assert len(events["/host:vtpu"]) == 1 + 3  # compiled once, and the runs on this machine
    device = next(plane for plane in data.planes if plane.name == "/device:TPU:0")
    ops = [event for line in device.lines if line.name == "XLA Ops" for event in line.events]
    assert len(ops) % 3 == 0 and all(dict(e.stats)["bound_by"] for e in ops) and any("fusion" in e.name for e in ops)
    (steps,) = (list(line.events) for line in device.lines if line.name == "Steps")
    assert [(e.name, e.duration_ns) for e in steps] == [(str(i), run.duration_ns) for i, run in enumerate(events["/device:TPU:0"])]
    for run in events["/device:TPU:0"]:
        inside = [op for op in ops if run.start_ns - 1 <= op.start_ns and op.end_ns <= run.end_ns + 1]
        assert len(inside) == len(ops) // 3


def test_profile_of_the_host_alone(tmp_path):
    options = jax.profiler.ProfileOptions()
    options.advanced_configuration = {"tpu_trace_mode": "TRACE_ONLY_HOST"}
    with jax.profiler.trace(str(tmp_path), profiler_options=options):
        jax.jit(lambda a: jnp.cos(a) + 3)(jnp.ones(5)).block_until_ready()
    (file,) = glob.glob(f"{tmp_path}/plugins/profile/*/*.xplane.pb")
    planes = {plane.name for plane in jax.profiler.ProfileData.from_file(file).planes}
    assert "/host:vtpu" in planes and not any(name.startswith("/device:TPU") for name in planes)


def test_live_arrays():
    x = jnp.ones(17)
    assert any(array is x for array in jax.live_arrays())


def test_figures_of_4096_chips_are_those_of_predict(tmp_path):
    """AOT for a slice that no laptop has: cost and memory analysis agree with `vtpu predict` on the same program."""
    topology = topologies.get_topology_desc(topology_name="v5p:16x16x16", platform="tpu")
    mesh = topologies.make_mesh(topology, (256, 16), ("data", "model"))
    spread = lambda *axes: NamedSharding(mesh, P(*axes))

    def step(w, x):
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(lambda w: (jnp.tanh(x @ w["up"]) @ w["down"]).mean())(w))

    w = {"up": jax.ShapeDtypeStruct((4096, 16384), jnp.float32, sharding=spread(None, "model")),
         "down": jax.ShapeDtypeStruct((16384, 4096), jnp.float32, sharding=spread("model", None))}
    x = jax.ShapeDtypeStruct((256 * 512, 4096), jnp.float32, sharding=spread("data", None))
    lowered = jax.jit(step, donate_argnums=0).lower(w, x)
    compiled = lowered.compile()
    path = tmp_path / "step.mlir"
    path.write_text(lowered.as_text())
    vtpu = pathlib.Path(os.environ["TPU_LIBRARY_PATH"]).parents[1] / "bin/vtpu"
    said = subprocess.run([vtpu, "predict", path, "-t", "v5p:16x16x16", "--json"], capture_output=True, text=True, check=True)
    report = json.loads(said.stdout)
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    assert report["devices"] == 4096 and report["flops"] == pytest.approx(cost["flops"], rel=0.01)
    assert cost["predicted_seconds"] == pytest.approx(report["seconds"], rel=1e-6)
    assert cost["predicted_mfu"] == pytest.approx(report["mfu"], rel=1e-6)
    assert cost["optimal_seconds"] < cost["predicted_seconds"]
    assert memory.peak_memory_in_bytes == pytest.approx(report["hbm_peak_bytes"], rel=0.02)
