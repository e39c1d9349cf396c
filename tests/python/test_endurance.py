# SPDX-License-Identifier: Apache-2.0
"""Long use: memory does not grow with steps, programs or arrays."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import counts_memory

MIB = 1 << 20


def resident_bytes():
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@counts_memory
def test_ten_thousand_steps_do_not_grow():
    @jax.jit
    def step(params, x):
        grads = jax.grad(lambda p: (jnp.tanh(x @ p["a"]) @ p["b"]).var())(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

    params = {"a": jnp.ones((32, 64)) * 0.1, "b": jnp.ones((64, 8)) * 0.1}
    x = np.random.default_rng(0).standard_normal((16, 32), np.float32)
    for _ in range(1000):
        params = step(params, x)
    jax.block_until_ready(params)
    stats, resident = jax.devices()[0].memory_stats(), resident_bytes()
    for _ in range(10000):
        params = step(params, x)
    jax.block_until_ready(params)
    assert resident_bytes() - resident < 8 * MIB
    if stats:
        assert jax.devices()[0].memory_stats()["bytes_in_use"] <= stats["bytes_in_use"]


def test_programs_are_given_back():
    def build(i):
        jax.jit(lambda x: jnp.sin(x * i).sum() + i)(jnp.ones((64, 64 + i % 7))).block_until_ready()

    for i in range(60):
        build(i)
    jax.clear_caches()
    resident = resident_bytes()
    for i in range(60, 360):
        build(i)
    jax.clear_caches()
    assert resident_bytes() - resident < 60 * MIB


@counts_memory
def test_arrays_are_given_back():
    host = np.ones((1024, 1024), np.float32)
    for _ in range(5):
        jax.device_put(host).block_until_ready()
    resident, in_use = resident_bytes(), (jax.devices()[0].memory_stats() or {}).get("bytes_in_use", 0)
    for _ in range(300):
        np.asarray(jax.device_put(host) + 1)
    assert resident_bytes() - resident < 64 * MIB
    assert (jax.devices()[0].memory_stats() or {}).get("bytes_in_use", 0) <= in_use


@pytest.mark.slow
@counts_memory
def test_data_parallel_steps_do_not_grow(tpu_only):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("data",))
    spread = NamedSharding(mesh, PartitionSpec("data"))
    step = jax.jit(lambda w, x: w - 0.01 * jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), donate_argnums=0)
    w = jax.device_put(np.ones((32, 32), np.float32), NamedSharding(mesh, PartitionSpec()))
    x = np.ones((16, 32), np.float32)
    for _ in range(200):
        w = step(w, jax.device_put(x, spread))
    resident = resident_bytes()
    for _ in range(2000):
        w = step(w, jax.device_put(x, spread))
    w.block_until_ready()
    assert resident_bytes() - resident < 16 * MIB
