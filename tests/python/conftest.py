# SPDX-License-Identifier: Apache-2.0
"""Every test here drives unmodified JAX on the plugin. `VTPU_TEST_PLATFORM=cpu` runs the suite on XLA:CPU instead,
with eight forced devices: a way to check the tests themselves."""

import os

PLATFORM = os.environ.setdefault("VTPU_TEST_PLATFORM", "tpu")
if PLATFORM == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
else:
    os.environ.setdefault("JAX_PLATFORMS", "tpu,cpu")

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_plugin():
    assert jax.devices()[0].platform == PLATFORM
    yield
    jax.effects_barrier()


def pytest_collection_modifyitems(items):
    for item in items:
        if "tpu_only" in item.fixturenames and PLATFORM != "tpu":
            item.add_marker(pytest.mark.skip(reason="a property of the plugin"))


@pytest.fixture
def tpu_only():
    """Names a test that needs what XLA:CPU lacks."""
