# SPDX-License-Identifier: Apache-2.0
"""The program of one device of a real slice: its collectives and local shapes, by `vtpu compile` and in compiled text."""

import json
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("tpu_only")
VTPU = os.path.join(os.path.dirname(os.path.dirname(os.environ.get("TPU_LIBRARY_PATH", ""))), "bin", "vtpu")


def product(rows, columns):
    """A product of two matrices, lowered; the contracted dimension is cut over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
    lhs = jax.ShapeDtypeStruct((rows, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "x")))
    rhs = jax.ShapeDtypeStruct((64, columns), jnp.float32, sharding=NamedSharding(mesh, P("x", None)))
    return jax.jit(jnp.dot, out_shardings=NamedSharding(mesh, P())).lower(lhs, rhs)


def compile_file(path, slice_type, *flags):
    return subprocess.run([VTPU, "compile", str(path), "-t", slice_type, "--partitioned", *flags], capture_output=True, text=True)


def test_partial_sums_are_reduced(tmp_path):
    lowered, devices = product(16, 32), jax.device_count()
    file = tmp_path / "product.mlir"
    file.write_text(lowered.as_text())
    ran = compile_file(file, "v3-8", "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["params"] == [f"f32[16,{64 // devices}]", f"f32[{64 // devices},32]"]
    assert told["results"] == ["f32[16,32]"]
    (one,) = told["collectives"]
    assert (one["kind"], one["operand_shapes"], one["times"]) == ("all-reduce", ["f32[16,32]"], 1)
    assert one["bytes"] == 16 * 32 * 4
    assert sorted(np.ravel(one["groups"])) == list(range(devices))
    text = compile_file(file, "v3-8").stdout
    assert text.startswith("HloModule") and " all-reduce(" in text
    compiled = lowered.compile().as_text()
    assert " all-reduce(" in compiled and f"f32[16,{64 // devices}]" in compiled and "f32[16,64]" not in compiled


def test_what_is_live_at_the_peak_is_of_one_device(tmp_path):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, P("x", None))
    x, w = (jax.ShapeDtypeStruct((1024, n), jnp.float32, sharding=rows) for n in (1001, 1024))

    def step(x, w):
        return w + jnp.tanh(w @ x).sum(), (x * x).sum()

    lowered = jax.jit(step, donate_argnums=1).lower(x, w)
    file = tmp_path / "step.mlir"
    file.write_text(lowered.as_text())
    told = json.loads(compile_file(file, "v3-8", "--json").stdout)
    live = {(one["kind"], one.get("index", one.get("op"))): one for one in told["live_at_peak"]}
    assert live["argument", 0]["shape"] == "f32[128,1001]{0,1:T(8,128)}"
    assert live["argument", 0]["bytes"] == 128 * 1008 * 4 and live["argument", 0]["unpadded_bytes"] == 128 * 1001 * 4
    assert ("output", 0) not in live  # it is where the donated argument was
    gathered = live["temp", "all_gather"]
    assert gathered["shape"].startswith("f32[1024,1001]") and gathered["bytes"] == 1024 * 1008 * 4
    stats = lowered.compile().memory_analysis()
    assert told["peak_bytes_per_device"] == stats.peak_memory_in_bytes == sum(one["bytes"] for one in live.values())
    assert told["temp_bytes_per_device"] == stats.temp_size_in_bytes


def test_a_slice_too_small_is_named(tmp_path):
    file = tmp_path / "product.mlir"
    file.write_text(product(8, 8).as_text())
    ran = compile_file(file, "v5litepod-4", "--json")
    assert ran.returncode != 0
    assert "the program runs on 8 devices, the slice has 4" in ran.stderr


@pytest.fixture
def partitioned(monkeypatch):
    """What is compiled in the test runs as the program of one device."""
    monkeypatch.setenv("VTPU_PARTITIONED", "1")


def test_the_program_of_one_device_runs(partitioned):
    devices = jax.device_count()
    mesh = jax.make_mesh((devices // 2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    place = lambda a, *spec: jax.device_put(a, NamedSharding(mesh, P(*spec)))

    def f(state, weights):
        uneven = jax.lax.with_sharding_constraint(state[1:] - state[:-1], NamedSharding(mesh, P("x", "y")))
        return state + 1, jnp.cumsum(uneven, axis=0).sum(), jnp.dot(uneven, weights, precision="highest")

    state, weights = np.arange(96.0, dtype=np.float32).reshape(16, 6) ** 2, np.ones((6, 4), np.float32)
    given = place(state, "x")
    compiled = jax.jit(f, donate_argnums=0)
    got = compiled(given, place(weights, "y"))
    assert given.is_deleted()
    np.testing.assert_array_equal(got[0], state + 1)
    np.testing.assert_allclose(got[1], np.cumsum(np.diff(state, axis=0), axis=0).sum(), rtol=1e-6)
    np.testing.assert_allclose(got[2], np.diff(state, axis=0) @ weights, rtol=1e-6)


def sums(**how):
    """Three sums over all devices, of which one is wanted cut; compiled."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))
    rows = jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=cut)
    lowered = jax.jit(lambda a, b: (a.sum(0), b.max(0), (a * b).sum(0), a.T @ b), out_shardings=(whole, whole, whole, cut))
    return lowered.lower(rows, rows).compile(**how).as_text()


def test_small_sums_are_combined_and_cut_ones_scattered():
    text = sums()
    assert text.count(" all-reduce(") == 2  # the two sums are one; the maximum is another reduction
    assert text.count(" reduce-scatter(") == 1


def test_passes_are_switched_off_by_name(monkeypatch):
    off = {"xla_disable_hlo_passes": "all-reduce-combiner,reduce-scatter-creator"}
    text = sums(compiler_options=off)
    assert text.count(" all-reduce(") == 4 and " reduce-scatter(" not in text
    assert sums(compiler_options={"xla_jf_crs_combiner_threshold_count": 1}).count(" all-reduce(") == 3
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_disable_hlo_passes=reduce-scatter-creator")
    assert " reduce-scatter(" not in sums()


def test_the_command_runs_passes_that_are_named(tmp_path):
    file = tmp_path / "product.mlir"
    file.write_text(product(16, 32).as_text())
    ran = compile_file(file, "v3-8", "--passes", "all")
    assert ran.returncode == 0 and " all-reduce(" in ran.stdout, ran.stderr
    ran = compile_file(file, "v3-8", "--passes=no-such-pass")
    assert ran.returncode != 0 and "there are all, while-loop-invariant-code-motion" in ran.stderr


def test_one_device_talks_to_the_host(partitioned):
    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
    seen = []

    def note(values):
        seen.append(values)
        return np.float32(values.sum())

    def f(a):
        total = io_callback(note, jax.ShapeDtypeStruct((), jnp.float32), a * 2)
        return a + total

    got = jax.jit(f)(jax.device_put(np.arange(16, dtype=np.float32), NamedSharding(mesh, P("x"))))
    np.testing.assert_array_equal(got, np.arange(16) + 240)
    (values,) = seen
    np.testing.assert_array_equal(values, np.arange(16) * 2)


def test_values_that_stay_unreduced(partitioned):
    devices = jax.device_count()
    mesh = jax.make_mesh((devices,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        host = np.arange(4.0 * devices, dtype=np.float32)
        there = jax.jit(lambda a: reshard(a * 3, P(unreduced={"x"})))(jax.device_put(host, P("x")))
        np.testing.assert_array_equal(sum(np.asarray(shard.data) for shard in there.addressable_shards), 3 * host)
        np.testing.assert_array_equal(jax.jit(lambda a: reshard(a + a, P()))(there), 6 * host)
