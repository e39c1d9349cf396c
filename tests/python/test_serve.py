# SPDX-License-Identifier: Apache-2.0
"""Functions that jax.export made, served from C (examples/serve.c)."""

import os
import subprocess

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from support import ROOT

SLICE = "v3-8"
pytestmark = pytest.mark.usefixtures("tpu_only")


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """The example, as its first lines say that it is built."""
    library = os.path.dirname(os.environ["TPU_LIBRARY_PATH"])
    program = str(tmp_path_factory.mktemp("serve") / "serve")
    words = [os.path.join(ROOT, "examples/serve.c"), "-I", os.path.join(ROOT, "include"), "-L", library, "-lvtpu", f"-Wl,-rpath,{library}"]
    subprocess.run(["gcc", "-std=c17", "-Wall", "-Wextra", "-Werror", *words, "-o", program], check=True)
    return lambda *arguments, requests=b"": subprocess.run([program, *map(str, arguments)], input=requests, capture_output=True, check=False)


def model():
    """A small classifier; its weights are constants of the program."""
    random = np.random.default_rng(0)
    first, second = (random.normal(size=shape).astype(np.float32) / 8 for shape in ((64, 128), (128, 10)))

    def call(images, scale):
        scores = jax.nn.log_softmax(jax.nn.relu(images * scale @ first) @ second)
        return scores, jnp.argmax(scores, -1).astype(jnp.int32)

    return call


def requests(count):
    random = np.random.default_rng(1)
    return [(random.normal(size=(16, 64)).astype(np.float32), np.float32(i + 1)) for i in range(count)]


def export(function, path, **options):
    images, scale = requests(1)[0]
    exported = jax.export.export(jax.jit(function, **options), platforms=["tpu"])(images, scale)
    path.write_bytes(exported.mlir_module_serialized)


@pytest.mark.parametrize("devices", [1, 8])
def test_answers_are_jax_own(serve, tmp_path, devices):
    options = {}
    if devices > 1:
        split = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("data",)), PartitionSpec("data"))
        options = {"in_shardings": (split, None), "out_shardings": split}
    export(model(), tmp_path / "model.mlirbc", **options)
    asked = requests(3)
    done = serve(tmp_path / "model.mlirbc", SLICE, requests=b"".join(a.tobytes() + b.tobytes() for a, b in asked))
    assert (done.returncode, done.stderr) == (0, b"")
    size = 16 * 10 * 4 + 16 * 4
    assert len(done.stdout) == len(asked) * size
    for i, (images, scale) in enumerate(asked):
        answer = done.stdout[i * size : (i + 1) * size]
        scores, kinds = jax.jit(model(), **options)(images, scale)
        np.testing.assert_allclose(np.frombuffer(answer[:640], np.float32).reshape(16, 10), scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(np.frombuffer(answer[640:], np.int32), kinds)


def test_a_request_that_ends_early(serve, tmp_path):
    export(model(), tmp_path / "model.mlirbc")
    whole = b"".join(array.tobytes() for array in requests(1)[0])
    done = serve(tmp_path / "model.mlirbc", SLICE, requests=whole + whole[:-1])
    assert done.returncode == 1 and len(done.stdout) == 704
    assert done.stderr == b"serve: reading a request: it ends before its last argument does\n"


def test_no_requests(serve, tmp_path):
    export(model(), tmp_path / "model.mlirbc")
    done = serve(tmp_path / "model.mlirbc", SLICE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_what_is_no_program(serve, tmp_path):
    (tmp_path / "text").write_text("not a program")
    for path in ("text", "nowhere"):
        done = serve(tmp_path / path, SLICE)
        assert done.returncode == 1 and done.stderr.startswith(b"serve: loading the program: "), done.stderr
        assert done.stderr.count(b"\n") == 1
