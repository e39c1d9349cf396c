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


@pytest.mark.parametrize("word", ["train.py", "./train.py"])
def test_a_script_in_the_place_of_a_program(tpu_only, tmp_path, word):
    (tmp_path / "train.py").write_text("import jax\n")
    done = subprocess.run([VTPU, "run", word], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (126, 127) and done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"; python3 starts it: vtpu run -- python3 {word}\n"), done.stderr


@pytest.mark.parametrize("user", ["", 65534])
def test_a_program_opens_terminals(tpu_only, user):
    """As `!ls` of a notebook does."""
    if user and (os.getuid() != 0 or subprocess.run(["test", "-x", VTPU], user=user).returncode != 0):
        pytest.skip("only root can become another user, who must reach this folder")
    words = [VTPU, "run", "--quiet", "-t", "v4-8", "--", "python3", "-c", "import os; print(os.isatty(os.openpty()[1]))"]
    done = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, user=user or None)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


COMPILES = """
import jax, time, numpy as np

@jax.jit
def step(params, batch):
    return params["w"] * batch["x"].sum() + batch["y"]

def feed(size, kind):
    return step({"w": np.ones(3, np.float32)}, {"x": np.ones(size, kind), "y": np.float32(1)})

for size, kind in ((4, np.float32), (4, np.float32), (5, np.float32), (5, np.int32)):
    feed(size, kind)
for _ in range(3):
    jax.jit(lambda x: x @ x)(np.ones((8, 8), np.float32))
for _ in range(10):
    time.sleep(0.02)  # a slow loader of data
    feed(5, np.int32).block_until_ready()
"""


def run(tmp_path, text, *words):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "VTPU_", "JAX_"))}
    program = tmp_path / "program.py"
    program.write_text(text)
    words = [VTPU, "run", "-t", "v5litepod-1", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", *words,
             sys.executable, program]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads((tmp_path / "r.json").read_text())


def test_what_was_compiled_again_and_why(tpu_only, tmp_path):
    text, facts = run(tmp_path, COMPILES)
    again = {f["name"]: f for f in facts["compiled_again"]}
    step = again["jit_step"]
    assert step["times"] == 2 and [r["why"] for r in step["reasons"]] == [
        "batch['x'] is f32[5], before f32[4]", "batch['x'] is i32[5], before f32[5]"]
    assert all(r["place"].endswith("program.py:9") for r in step["reasons"])
    assert again["jit__lambda"]["times"] == 2 and "the same program again" in again["jit__lambda"]["reasons"][0]["why"]
    assert facts["compilations"] >= 6 and facts["compile_seconds"] > 0
    assert "batch['x'] is f32[5], before f32[4]" in text


def test_the_virtual_clock_tells_input_from_device(tpu_only, tmp_path):
    text, facts = run(tmp_path, COMPILES, "--predict")
    clock = facts["clock"]
    assert clock["seconds"] == pytest.approx(clock["device_seconds"] + clock["input_bound_seconds"])
    assert clock["host_seconds"] > 9 * 0.02 and clock["input_bound_seconds"] > 0.9 * clock["seconds"]
    assert clock["device_seconds"] < 1e-3 and clock["setup_seconds"] > 0
    assert "virtual clock" in text and "waiting for the host" in (tmp_path / "r.html").read_text()


@pytest.mark.skipif(not os.path.exists("/usr/bin/chromium"), reason="needs Chromium")
def test_a_browser_shows_the_page(tpu_only, tmp_path):
    run(tmp_path, COMPILES, "--predict")
    words = ["/usr/bin/chromium", "--headless", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
             tmp_path / "r.html"]
    dom = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout
    assert dom.count('<div class="bar">') == 4 and "batch['x'] is f32[5], before f32[4]" in dom


BUSY = """
import jax, jax.numpy as jnp
step = jax.jit(lambda x: jax.lax.fori_loop(0, 10_000, lambda i, x: (x @ x) / 16384, x))
x = jnp.ones((16384, 16384), jnp.bfloat16)
for _ in range(20):
    x = step(x)
"""


def test_the_virtual_clock_of_a_busy_device(tpu_only, tmp_path):
    """The programs would take two hours; the host does next to nothing."""
    _, facts = run(tmp_path, BUSY, "--predict", "--execute", "never")
    clock = facts["clock"]
    assert clock["device_seconds"] > 1000 and clock["input_bound_seconds"] < 0.01 * clock["seconds"]


def test_the_page_refers_to_nothing_outside(report):
    assert "http" not in report[2] and "src=" not in report[2]
