# SPDX-License-Identifier: Apache-2.0
"""Slurm and Open MPI start the processes of a slice: nothing but their own variables says who is who."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

pytestmark = pytest.mark.usefixtures("tpu_only")

SLURM_JOB = pathlib.Path(__file__).parents[1] / "cloud" / "slurm_job.sh"
PROGRAM = """
import json
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize()
devices = jax.devices()
mesh = Mesh(np.array(devices), ("x",))
values = np.arange(4 * len(devices), dtype=np.float32).reshape(-1, 4)
x = jax.make_array_from_callback(values.shape, NamedSharding(mesh, P("x")), lambda at: values[at])
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))(x)
print("said " + json.dumps([jax.process_index(), jax.process_count(), len(jax.local_devices()), float(total)]), flush=True)
"""


def run(slice_name, command):
    """What the processes say, in their order."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_PROCESS", "TPU_WORKER", "CLOUD_TPU", "SLURM", "OMPI"))}
    env.update(VTPU_ACCELERATOR_TYPE=slice_name, OMP_NUM_THREADS="1", MEGASCALE_COORDINATOR_ADDRESS="", MEGASCALE_NUM_SLICES="",
               MEGASCALE_SLICE_ID="", JAX_FORCE_TPU_INIT="1")
    ran = subprocess.run([*command, sys.executable, "-c", PROGRAM], env=env, text=True, capture_output=True, timeout=500)
    if ran.returncode == 77:
        pytest.skip(ran.stdout.strip().splitlines()[-1])
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    # Launchers may put the lines of two processes into one.
    return sorted(json.loads(words) for words in re.findall(r"said (\[.*?\])", ran.stdout))


def test_slurm():
    with tempfile.TemporaryDirectory(prefix="vtpu-slurm-") as folder:  # the path of a socket must be short
        said = run("v3-32", ["bash", SLURM_JOB, f"{folder}/cluster", "-N2", "-n4", "--ntasks-per-node=2"])
    assert said == [[i, 4, 8, 8128.0] for i in range(4)]


def test_open_mpi():
    if not shutil.which("mpirun"):
        pytest.skip("no mpirun (Debian: openmpi-bin)")
    said = run("v4-16", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"])
    assert said == [[i, 2, 4, 496.0] for i in range(2)]
