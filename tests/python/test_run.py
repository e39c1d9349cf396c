# SPDX-License-Identifier: Apache-2.0
"""`vtpu run` around a JAX program."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

VTPU = pathlib.Path(os.environ["TPU_LIBRARY_PATH"]).parents[1] / "bin/vtpu" if "TPU_LIBRARY_PATH" in os.environ else None
PROGRAM = """
import jax, jax.numpy as jnp
assert [d.device_kind for d in jax.devices()] == ["TPU v4"] * 4, jax.devices()
x = jnp.ones((256, 256))
for _ in range(10):
    x = (x @ x) / 256
print(float(x.sum()))
"""


@pytest.fixture
def report(tpu_only, tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "VTPU_", "JAX_"))}
    words = [VTPU, "run", "-t", "v4-8", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", sys.executable, "-c",
             PROGRAM]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "65536.0\n"
    return done.stderr, json.loads((tmp_path / "r.json").read_text()), (tmp_path / "r.html").read_text()


def test_the_report_says_what_the_program_did(report):
    text, facts, page = report
    assert facts["accelerator_type"] == "v4-8" and facts["devices"] == 4
    assert facts["processes"] == 1 and facts["programs"] >= 10
    assert 0 < facts["device_seconds"] and 0 < facts["busy_seconds"] < facts["seconds"]
    assert facts["hbm_peak_bytes"] >= 2 * 256 * 256 * 4
    assert "JAX=" in facts["versions"]
    assert "v4-8: 4 x TPU v4" in text and "USD or more" in text
    assert "v4-8: 4 x TPU v4" in page and "import jax" in page


def test_the_page_refers_to_nothing_outside(report):
    assert "http" not in report[2] and "src=" not in report[2]
