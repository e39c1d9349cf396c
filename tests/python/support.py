# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: a comparison with XLA:CPU in the same process, and programs in a separate process."""

import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(ROOT, "models")
PLATFORM = os.environ["VTPU_TEST_PLATFORM"]
# AddressSanitizer quarantines freed memory, and its shadow memory counts: the size of a process says little.
counts_memory = pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="resident memory under ASan")


def tree_close(got, want, rtol=1e-5, atol=1e-6):
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree
    for g, w in zip(got_leaves, want_leaves):
        assert g.dtype == w.dtype and g.shape == w.shape
        g, w = np.asarray(g), np.asarray(w)
        if g.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
        else:
            if g.dtype.kind not in "fc":
                g, w = g.astype(np.float32), w.astype(np.float32)
            np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)


def same_as_cpu(function, *arguments, rtol=1e-5, atol=1e-6, precision="highest"):
    """Runs `function` jitted on the plugin and on XLA:CPU, and compares. Returns the plugin's result."""
    with jax.default_matmul_precision(precision):
        got = jax.jit(function)(*arguments)
        platforms = {device.platform for leaf in jax.tree.leaves(got) for device in leaf.devices()}
        assert platforms == {PLATFORM}
        with jax.default_device(jax.devices("cpu")[0]):
            want = jax.jit(function)(*arguments)
        tree_close(got, want, rtol, atol)
    return got


def run_python(code, *arguments, timeout=300, check=True, **environment):
    """Runs a program text in a fresh interpreter; returns the finished process (text output)."""
    env = dict(os.environ, **{name: str(value) for name, value in environment.items()})
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], env=env, capture_output=True,
                          text=True, timeout=timeout, check=False)
    if check and done.returncode:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}")
    return done


def random_array(shape, dtype=np.float32, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)
