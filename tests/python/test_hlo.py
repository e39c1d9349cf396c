# SPDX-License-Identifier: Apache-2.0
"""Programs as HLO (src/hlo), judged by jaxlib: it reads the message, prints the text that we print, and XLA:CPU computes
the same from the HLO as from the program. The programs are random ones of fuzz/programs, and those of hlo.txt."""

import os
import re
import subprocess

import jax
import numpy as np
import pytest
from jax._src.lib import xla_client
from jaxlib import _hlo, _jax

from support import ROOT

pytestmark = pytest.mark.usefixtures("tpu_only")
BUILD = os.path.dirname(os.path.dirname(os.environ.get("TPU_LIBRARY_PATH", "")))
SEEDS = range(1, 151)
# No answer to compare: XLA's own random numbers, what HLO does not have, composites of several results, which jaxlib does
# not turn back into a program, types of 2 and 4 bits, whose bitcasts XLA:CPU answers in two ways, and remainders and
# quotients of a constant's integers by themselves, where XLA:CPU dies of a zero (fuzz/programs/known.def).
UNANSWERED = re.compile(r' rng\(|custom_call_target="stablehlo\.|= \(.*is_composite=true|\b[su][24]\[|f4e2m1fn\[|'
                        r' = [su]\d+\[\S* (?:remainder|divide)\((\S*constant\S*), \1\)')  # fmt: skip


def parts(message):
    """The fields of a message of messages: number to bytes."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag, size = number(), number()
        found[tag >> 3] = message[at : at + size]
        at += size
    return found


def dump(folder, programs):
    """Name to (text, xla.HloModuleProto)."""
    for name, text in programs.items():
        (folder / name).write_text(text)
    paths = [str(folder / name) for name in programs]
    done = subprocess.run([os.path.join(BUILD, "bin", "hlo_dump"), *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {
        name: ((folder / (name + ".hlo")).read_text(), parts((folder / (name + ".pb")).read_bytes())[1])
        for name in programs
    }


@pytest.fixture(scope="module")
def random_programs(tmp_path_factory):
    fuzz = os.path.join(BUILD, "fuzz", "programs", "program_fuzz")
    if not os.path.exists(fuzz):
        pytest.skip("program_fuzz is not built")
    texts = {
        f"seed{seed}.mlir": subprocess.run([fuzz, "--print", str(seed)], capture_output=True, text=True, check=True).stdout
        for seed in SEEDS
    }
    return texts, dump(tmp_path_factory.mktemp("hlo"), texts)


def same_text(text, module):
    # A module on its own has no configuration: it does not know the number of devices.
    text = re.sub(r", (num_partitions|replica_count)=\d+", "", text)
    assert _hlo.HloModule.from_serialized_hlo_module_proto(module).to_string().strip() == text.strip()


def test_text_of_random_programs(random_programs):
    for text, module in random_programs[1].values():
        same_text(text, module)


def test_text_of_written_programs(tmp_path):
    with open(os.path.join(ROOT, "src/hlo/hlo.txt"), encoding="utf-8") as file:
        cases = re.findall(r"// before\n(.*?)// after\n(.*?)(?=// case|\Z)", file.read(), re.DOTALL)
    programs = {f"case{i}.mlir": before for i, (before, after) in enumerate(cases) if not after.startswith("error")}
    assert len(programs) > 5
    for text, module in dump(tmp_path, programs).values():
        same_text(text, module)


def values_for(shape, random):
    dims, dtype = shape.dimensions(), shape.numpy_dtype()
    if dtype == bool:
        return random.integers(0, 2, dims).astype(bool)
    if dtype.kind in "iu" or dtype.name in ("int2", "int4", "uint2", "uint4"):
        return random.integers(0, 3, dims).astype(dtype)
    return (random.standard_normal(dims) * 2).astype(dtype)


def run_on_cpu(program, arguments):
    device = jax.devices("cpu")[0]
    devices = xla_client.DeviceList((device,))
    loaded = device.client.compile_and_load(program.encode(), devices, xla_client.CompileOptions())
    results = loaded.execute_sharded([jax.device_put(argument, device) for argument in arguments])
    return [np.asarray(arrays[0]) for arrays in results.disassemble_into_single_device_arrays()]


def test_results_of_random_programs(random_programs):
    texts, dumped = random_programs
    random, compared = np.random.default_rng(1), 0
    with jax.enable_x64(True):
        for name in list(dumped)[: len(SEEDS) // 3]:
            text, module = dumped[name]
            if UNANSWERED.search(text):
                continue
            computation = _hlo.XlaComputation(module)
            arguments = [values_for(shape, random) for shape in computation.program_shape().parameter_shapes()]
            want = run_on_cpu(texts[name], arguments)
            got = run_on_cpu(_jax.mlir.xla_computation_to_mlir_module(computation), arguments)
            assert len(got) == len(want)
            for g, w in zip(got, want):
                assert g.dtype == w.dtype and g.shape == w.shape
                assert g.tobytes() == w.tobytes() or np.array_equal(g, w, equal_nan=True), name
            compared += 1
    assert compared > len(SEEDS) / 6


EIGHT = np.arange(8).reshape(2, 4)


@pytest.mark.parametrize("groups, want", [
    ("{{0,3},{1,2}}", [[0, 3], [1, 2]]),
    ("[2,4]<=[4,2]T(1,0)", EIGHT.reshape(4, 2).T),
    ("mesh['x'=2,'y'=4] {'y'}", EIGHT),
    ("mesh['x'=2,'y'=4] {'x'}", EIGHT.T),
    ("mesh['x'=2,'y'=4] {'y','x'}", EIGHT.T.reshape(1, 8)),
    ("mesh['x'=2,'y'=4] {'y':(1)2}", EIGHT.reshape(2, 2, 2).transpose(0, 2, 1).reshape(4, 2)),
    ("mesh['x'=2,'y'=4] {'y':(2)2,'x'}", EIGHT.reshape(2, 2, 2).transpose(1, 2, 0).reshape(2, 4)),
    ("mesh['x'=2,'y'=4], device_ids=(0,2,4,6,1,3,5,7) {'y'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ("mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'x'}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
])  # fmt: skip
def test_groups_in_all_their_forms(groups, want, tmp_path):
    """Each has a field of its own in the message. XLA reads the text, so that the message is XLA's."""
    text = ("HloModule m, replica_count=8\n\nadd {\n  l = f32[] parameter(0)\n  r = f32[] parameter(1)\n"
            "  ROOT s = f32[] add(l, r)\n}\n\nENTRY e {\n  p = f32[8] parameter(0)\n"
            f"  ROOT q = f32[8] all-reduce(p), replica_groups={groups}, to_apply=add\n}}\n")  # fmt: skip
    message = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    (tmp_path / "message.pb").write_bytes(message)
    (tmp_path / "text.txt").write_text(text)
    files = [str(tmp_path / "message.pb"), str(tmp_path / "text.txt")]
    subprocess.run([os.path.join(BUILD, "bin", "hlo_dump"), *files], check=True)
    rows = ",".join("{" + ",".join(str(i) for i in row) + "}" for row in np.asarray(want).tolist())
    for file in files:
        with open(file + ".hlo", encoding="utf-8") as dumped:
            assert f"replica_groups={{{rows}}}" in dumped.read(), file


def test_message_says_how_arrays_lie_on_devices():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    tiles, columns = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("a", "b"), (None, "a")))
    function = jax.jit(lambda x: (x + 1, x.sum()), in_shardings=tiles, out_shardings=(columns, None))
    module = function.lower(np.ones((4, 8), np.float32)).compile().runtime_executable().hlo_modules()[0]
    results = module.spmd_output_sharding.tuple_shardings
    assert list(results[0].tile_assignment_dimensions) == [1, 2, 2] and results[0].replicate_on_last_tile_dim
    assert not results[1].tile_assignment_dimensions
    assert list(module.spmd_parameters_shardings[0].tile_assignment_dimensions) == [2, 2]


def test_message_says_that_every_device_has_all():
    """Also where nothing is sharded: JAX before 0.9 takes it from there."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    function = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "i"), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P()))
    module = function.lower(np.ones((8, 8), np.float32)).compile().runtime_executable().hlo_modules()[0]
    assert module.spmd_output_sharding is not None and len(module.spmd_parameters_shardings) == 1
    alone = jax.jit(lambda x: x + 1).lower(np.ones(4, np.float32)).compile().runtime_executable().hlo_modules()[0]
    assert alone.spmd_output_sharding is None
