# SPDX-License-Identifier: Apache-2.0
"""An ephemeral research cloud for tests: `vtpud --ephemeral` as a context manager and as a pytest fixture.

    pytest_plugins = ["vtpu.cloud"]

    def test_create(vtpud):
        client = discovery.build("tpu", "v2", client_options={"api_endpoint": vtpud["VTPU_ENDPOINT"]}, ...)
"""

import contextlib
import shlex
import subprocess


@contextlib.contextmanager
def ephemeral(*options, program="vtpud"):
    """Starts a cloud, yields its variables as a dictionary, and ends it with everything it made. Its TPU VMs have no
    machines unless an option asks for them (--guests=auto): the API answers within milliseconds."""
    if not any(option.startswith("--guests") for option in options):
        options = ["--guests=0", *options]
    process = subprocess.Popen([program, "--ephemeral", *options], stdout=subprocess.PIPE, text=True)
    try:
        variables = {}
        for line in process.stdout:
            name, _, value = line.removeprefix("export ").strip().partition("=")
            variables[name] = "".join(shlex.split(value))
            if name == "VTPUD_PID":  # the last one
                break
        else:
            raise RuntimeError(f"{program} ended with {process.wait()}")
        yield variables
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()


try:
    import pytest
except ImportError:  # the context manager needs no pytest
    pass
else:

    @pytest.fixture(scope="session")
    def vtpud():
        """The variables of a cloud that lives as long as the test session."""
        with ephemeral() as variables:
            yield variables
