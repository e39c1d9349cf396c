#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one program of this folder twice, unchanged: on its framework's CPU and as on a TPU VM (`vtpu run`). The platform,
the number of devices that hold its weights, and its losses must be right: those of the CPU but for bf16's rounding.

  run.py VTPU VENVS NAME     VENVS: the folder of the environments that `./dev frameworks` makes
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "../../python")
LOSS, VALUE = 0.02, 0.1  # of a loss, or of 1 if it is less; of other values
# PyTorch/XLA 2.9 keeps a token for each device in one map (g_all_reduce_tokens), which replicas that are threads fill
# without a lock: about one process in 30 dies of it at its first all-reduce, on any TPU. Then the program runs again.
CRASH, TRIES = "concurrent.futures.process.BrokenProcessPool", 3

# packaged: with our Python package installed beside the framework and nothing set, instead of `vtpu run`.
Program = collections.namedtuple("Program", "venv file slice devices cpu tpu packaged", defaults=((), (), False))
LAUNCH = ("-m", "accelerate.commands.launch", "--num_machines=1", "--num_processes=1", "--dynamo_backend=no")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node=4")
TORCHRUN_8 = (*TORCHRUN[:2], "--nproc_per_node=8")
TORCH = {"venv": "torch-xla", "slice": "v5litepod-1", "devices": 1}
VTPU = "VTPU"  # in words: the command
REPLICAS = {"venv": "torch-xla", "slice": "v3-8", "devices": 8}


def accelerated(precision, added_up):
    words = (f"--mixed_precision={precision}", "accelerate_loop.py", precision, added_up)
    return Program(**TORCH, file=None, cpu=(*LAUNCH, "--cpu", *words), tpu=(*LAUNCH, *words))


def accelerated_replicas(precision, added_up):
    """`accelerate launch --tpu` starts the program's function on all devices."""
    words = ("accelerate_loop.py", precision, added_up)
    return Program(**REPLICAS, file=None, cpu=(*LAUNCH, "--cpu", "--mixed_precision=no", *words),
                   tpu=(*LAUNCH, "--tpu", "--main_training_function=main", f"--mixed_precision={precision}", *words))


def processes(slice_name, replicas, *tpu):
    return Program("torch-xla", None, slice_name, replicas, ("torch_xla_processes.py", "cpu", str(replicas)), tpu)


def narrowed(variable):
    return Program(**TORCH, file="torch_xla_narrow.py", cpu=("cpu", variable), tpu=("tpu", variable))


PROGRAMS = {
    "keras": Program("frameworks", "keras_data_parallel.py", "v3-8", 8),
    "keras_parts": Program("frameworks", "keras_model_parallel.py", "v3-8", 8),
    "keras_gan": Program("frameworks", "keras_gan.py", "v3-8", 8),
    "tensorflow": Program("frameworks", "tensorflow_parts.py", "v5litepod-8", 8, ("cpu",), ("tpu", VTPU)),
    "torch_xla": Program(**TORCH, file="torch_xla_cnn.py", cpu=("cpu",), tpu=("tpu",)),
    "torch_xla_replicas": Program(**REPLICAS, file="torch_xla_replicas.py", cpu=("cpu",), tpu=("tpu",)),
    "torch_xla_torchrun": Program("torch-xla", None, "v4-8", 4, ("torch_xla_replicas.py", "cpu"),
                                  (*TORCHRUN, "torch_xla_replicas.py", "tpu")),
    "torch_xla_processes": processes("v4-8", 4, *TORCHRUN, "torch_xla_processes.py", "tpu"),
    "torch_xla_processes_8": processes("v5litepod-8", 8, *TORCHRUN_8, "torch_xla_processes.py", "tpu"),
    "torch_xla_processes_threads": processes("v3-8", 8, "torch_xla_processes.py", "tpu", "each-chip"),
    "torch_xla_package": Program(**REPLICAS, file="torch_xla_replicas.py", cpu=("cpu",), tpu=("tpu",), packaged=True),
    "torch_xla_parts": Program(**TORCH, file="torch_xla_parts.py", cpu=("cpu",), tpu=("tpu", VTPU)),
    "torch_xla_use_bf16": narrowed("XLA_USE_BF16"),
    "torch_xla_downcast_bf16": narrowed("XLA_DOWNCAST_BF16"),
    "torch_xla_spmd": Program(**REPLICAS, file="torch_xla_spmd.py", cpu=("cpu",), tpu=("tpu",)),
    "torch_tpu": Program("torch-tpu", "torch_tpu_cnn.py", "v5litepod-1", 1, ("cpu",), ("tpu",)),
    "torchax": Program("torchax", "torchax_cnn.py", "v5litepod-8", 8, ("cpu",), ("tpu",)),
    "lightning": Program(**TORCH, file="lightning_trainer.py", cpu=("cpu",), tpu=("tpu",)),
    "lightning_replicas": Program(**REPLICAS, file="lightning_trainer.py", cpu=("cpu",), tpu=("tpu", "8")),
    "accelerate": accelerated("no", "1"),
    "accelerate_bf16": accelerated("bf16", "1"),
    "accelerate_sum": accelerated("no", "2"),
    "accelerate_replicas": accelerated_replicas("no", "1"),
    "fastai": Program(**TORCH, file="fastai_images.py", cpu=("cpu",), tpu=("tpu",)),
    "transformers": Program(**TORCH, file="transformers_trainer.py", cpu=("cpu",), tpu=("tpu",)),
}


def run(words, env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "VTPU_", "JAX_", "PJRT_", "KERAS_"))}
    for _ in range(TRIES):
        done = subprocess.run(words, cwd=HERE, env=clean | {"PYTHONDONTWRITEBYTECODE": "1"} | env, capture_output=True, text=True,
                              check=False)
        if CRASH not in done.stderr:
            break
        print(f"{words}: {CRASH}")
    said = re.findall(r"REPORT (\{.*\})", done.stdout)
    if done.returncode != 0 or len(said) != 1:
        sys.exit(f"{words}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    print(said[0])
    return json.loads(said[0])


def install(folder, vtpu):
    """What pip makes of our package (package/pyproject.toml.in), from the build."""
    package, build = folder + "/vtpu", os.path.dirname(os.path.dirname(vtpu))
    shutil.copytree(os.path.join(HERE, "../../python/vtpu"), package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("bin", "lib"):
        os.symlink(os.path.join(build, name), os.path.join(package, name))
    os.mkdir(folder + "/vtpu-0.dist-info")
    with open(os.path.join(build, "package/pyproject.toml"), "rb") as file:
        groups = tomllib.load(file)["project"]["entry-points"]
    with open(folder + "/vtpu-0.dist-info/entry_points.txt", "w", encoding="utf-8") as file:
        for group, points in groups.items():
            file.write(f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items()))


def differences(want, got, program):
    if want["platform"] != "cpu" or got["platform"] != "tpu":
        yield f"ran on {want['platform']} and {got['platform']}"
    if got["devices"] != program.devices:
        yield f"used {got['devices']} devices of {program.devices}"
    for name, limit in (("losses", lambda a: LOSS * max(1.0, abs(a))), ("values", lambda a: VALUE)):
        if len(want[name]) != len(got[name]):
            yield f"{len(want[name])} {name} on the CPU, {len(got[name])} on the TPU"
        for i, (a, b) in enumerate(zip(want[name], got[name], strict=False)):
            if not abs(a - b) <= limit(a):
                yield f"{name}[{i}]: {a} on the CPU, {b} on the TPU"


def main():
    (vtpu, venvs), name = map(os.path.abspath, sys.argv[1:3]), sys.argv[3]
    program = PROGRAMS[name]
    folder = os.path.join(venvs, "venv-" + program.venv)
    if not os.path.exists(folder + "/.stamp"):
        print(f"skipped: no {folder} (./dev frameworks)")
        return 77
    python = os.path.join(folder, "bin/python")
    file = (program.file,) if program.file else ()
    # Frameworks that have a CPU of PyTorch/XLA as well shall take PyTorch's, and PyTorch no device of its own.
    cpu = {"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU", "USE_TORCH_XLA": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    want = run([python, *file, *program.cpu], cpu)
    words = [python, *file, *(vtpu if word == VTPU else word for word in program.tpu)]
    if program.packaged:
        with tempfile.TemporaryDirectory() as site:
            install(site, vtpu)
            got = run(words, {"PYTHONPATH": site, "VTPU_ACCELERATOR_TYPE": program.slice})
    else:
        got = run([vtpu, "run", "--quiet", "-t", program.slice, "--", *words], {"PYTHONPATH": PACKAGE})
    wrong = list(differences(want, got, program))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
