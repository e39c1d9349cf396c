#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step on the plugin, in one process with each framework that people import next to JAX, before and after
the TPU is in use. The result of the step equals XLA:CPU's. Run by build/venv-frameworks' Python; 77 = skipped.

    frameworks_test.py LIBVTPU            every framework, each order
    frameworks_test.py --step LIB ORDER   one of them, in this process
"""

import importlib
import os
import subprocess
import sys

FRAMEWORKS = ["tensorflow", "torch", "scipy.linalg", "sklearn.linear_model", "onnxruntime"]
ORDERS = ["before", "after client", "after compile"]


def use(name, module):
    """Calls something of the framework that runs its own native code."""
    import numpy as np
    x = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64) + 4 * np.eye(64, dtype=np.float32)
    if name == "tensorflow":
        batches = module.data.Dataset.from_tensor_slices(x).batch(16).map(lambda b: module.linalg.matmul(b, x))
        got = np.concatenate([b.numpy() for b in batches])
    elif name == "torch":
        got = (module.from_numpy(x) @ module.from_numpy(x)).numpy()
    elif name == "scipy.linalg":
        lower = module.cholesky(x @ x.T, lower=True)
        return np.testing.assert_allclose(lower @ lower.T, x @ x.T, rtol=1e-3, atol=1e-3)
    elif name == "sklearn.linear_model":
        return np.testing.assert_allclose(module.LinearRegression().fit(x, x[:, 0]).predict(x), x[:, 0], atol=1e-3)
    else:
        return module.get_available_providers()
    np.testing.assert_allclose(got, x @ x, rtol=1e-4, atol=1e-4)


def step(params, x, y):
    import jax
    import jax.numpy as jnp

    def loss(params):
        h = jnp.tanh(x @ params[0])
        h = jax.lax.conv_general_dilated(h.reshape(1, 32, 16, 8), params[2], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.mean((h.reshape(32, 128) @ params[1] - y)**2)
    value, gradient = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), jnp.linalg.qr(x.T @ x)[1]


def check_step():
    import jax
    import numpy as np
    assert jax.devices()[0].platform == "tpu"
    draw = np.random.default_rng(0).standard_normal
    shapes = [(64, 128), (128, 8), (3, 3, 8, 8)]
    params = [draw(shape, dtype=np.float32) / 8 for shape in shapes]
    x, y = draw((32, 64), dtype=np.float32), draw((32, 8), dtype=np.float32)
    with jax.default_matmul_precision("highest"):
        got = jax.jit(step)(params, x, y)[:2]
        with jax.default_device(jax.devices("cpu")[0]):
            want = jax.jit(step)(params, x, y)[:2]
    jax.tree.map(lambda g, w: np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-4, atol=1e-4), got, want)


def one(name, order):
    if order == "before":
        use(name, importlib.import_module(name))
    import jax
    jax.devices()
    if order == "after compile":
        check_step()
    use(name, importlib.import_module(name))
    jax.clear_caches()
    check_step()
    use(name, importlib.import_module(name))


def every(plugin):
    env = dict(os.environ, TPU_LIBRARY_PATH=plugin, JAX_PLATFORMS="tpu,cpu", VTPU_CACHE_DIR="", TF_CPP_MIN_LOG_LEVEL="3")
    there = [name for name in FRAMEWORKS if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0]
    if not there:
        print("skipped: none of", *FRAMEWORKS)
        return 77
    failed = 0
    for name in there:
        for order in ORDERS:
            done = subprocess.run([sys.executable, __file__, "--step", name, order], env=env, capture_output=True, text=True, timeout=600, check=False)
            print(f"{name:22} {order:14} {'ok' if done.returncode == 0 else 'FAILED: ' + str(done.returncode)}", flush=True)
            if done.returncode:
                print(done.stdout[-2000:], done.stderr[-6000:])
                failed = 1
    return failed


if sys.argv[1] == "--step":
    one(*sys.argv[2:])
else:
    sys.exit(every(sys.argv[1]))
