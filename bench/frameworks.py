#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training steps of PyTorch and Keras programs on vtpu with the same programs on the framework's own CPU backends.

vtpu has copies of its libraries of its own, as in the Python package: in a build it would share PyTorch's OpenMP.
PyTorch runs on vtpu through PyTorch/XLA, and eager or compiled on its CPU; Keras through JAX, on XLA:CPU and on
TensorFlow. Each side is a process of its own; a program's sides run in turn, and medians are taken. A side whose losses
differ from vtpu's is not compared; where it multiplies in float32, from those of vtpu with float32 products.
Ratio = time of the best of the others / vtpu time: above 1 vtpu is faster.
`first`: the first step, with tracing and compiling. `traced`: a step of PyTorch/XLA whose program is not executed, which
leaves Python, tracing and the look-up of the program: its time by the clock, and of the processors. `executed`: the least
processor time of the others / vtpu's without the traced part.
"""

import argparse
import json
import os
import statistics
import sys
import time

import bench
import peers
import serve

sys.path.append(os.path.join(bench.ROOT, "package"))
import wheel  # noqa: E402

BUILD = os.path.join(bench.ROOT, "build")
PROGRAMS = ("cnn", "resnet50", "bert", "translation")
SIDES = {"torch": ("vtpu", "eager", "compiled"), "keras": ("vtpu", "jax", "tensorflow")}
BF16 = {"torch": ("eager bf16", "compiled bf16"), "keras": ()}  # where the CPU multiplies in it
VENVS = {"torch": "venv-torch-xla", "keras": "venv-frameworks"}
ON_VTPU = [os.path.join(BUILD, "release/bin/vtpu"), "run", "--quiet", "-t", "v5litepod-1", "--"]
LIBRARIES = os.path.join(BUILD, "frameworks", "lib")  # vtpu's own copies
TRACED = "vtpu traced"  # without executing
EXACT = "vtpu float32"  # its products
APART = {False: 0.02, True: 0.1}  # of losses; with autocast, which rounds what is between the products, too


class Side:
    """A framework on vtpu or on one of its CPU backends, in a process of its own."""

    def __init__(self, framework, name):
        self.name = name
        python = os.path.join(BUILD, VENVS[framework], "bin", "python")
        drop = ("PYTHONPATH", "JAX_PLATFORMS", "TPU_LIBRARY_PATH")
        env = {key: value for key, value in os.environ.items() if key not in drop}
        if framework == "keras":
            env["KERAS_BACKEND"] = "tensorflow" if name == "tensorflow" else "jax"
            env["TF_CPP_MIN_LOG_LEVEL"] = "2"
            if not name.startswith("vtpu"):
                env["JAX_PLATFORMS"] = "cpu"
        if name.startswith("vtpu"):
            env["LD_LIBRARY_PATH"] = LIBRARIES
        env.update({TRACED: {"VTPU_EXECUTE": "0"}, EXACT: {"VTPU_MATMUL_PRECISION": "float32"}}.get(name, {}))
        command = [python, os.path.join(bench.HERE, f"framework_{framework}.py")]
        self.process = serve.Process(f"{framework} {name}", ON_VTPU + command if name.startswith("vtpu") else command, env)
        self.ask = self.process.ask
        self.stop = self.process.stop


def apart(losses, reference):
    return max(abs(x - y) / max(1, abs(y)) for x, y in zip(losses, reference))


def start(framework, names, program, folder):
    """The sides that compute as vtpu does, what they say of their first steps, and why the others are left out."""
    ready, first, lost, references = [], {}, [], {}
    for name in ("vtpu", EXACT, *names[1:]):
        side = Side(framework, name)
        try:
            loaded = side.ask("load", name=program, side=name, folder=folder)
            losses = loaded["losses"]
            if name in ("vtpu", EXACT):
                references[name] = losses
            bf16 = "bf16" in name
            reference = references["vtpu" if bf16 else EXACT] if name in names[1:] else losses
            if not apart(losses, reference) <= APART[bf16]:
                raise serve.Failed(f"{framework} {name}: losses {losses}, vtpu {reference}")
            if name == EXACT:
                side.stop()
                continue
            ready.append(side)
            first[name] = loaded["first"]
        except serve.Failed as failure:
            side.stop()
            if name in ("vtpu", EXACT):
                raise
            lost.append(str(failure))
    return ready, first, lost


def traced_step(program, folder, count):
    """Seconds by the clock and of the processors."""
    side = Side("torch", TRACED)
    try:
        side.ask("load", name=program, side=TRACED, folder=folder)
        return side.ask("run", count=count)
    finally:
        side.stop()


def measure(framework, names, program, options):
    folder = os.path.join(BUILD, "frameworks")
    os.makedirs(folder, exist_ok=True)
    ready, first, lost = start(framework, names, program, folder)
    try:
        once = {side: min(side.ask("run", count=1)[0] for _ in range(peers.TRIALS)) for side in ready}
        times = {side: [] for side in ready}
        for _ in range(options.rounds):
            for side in ready:
                count = max(1, min(100, round(options.seconds / options.rounds / len(ready) / once[side])))
                times[side].append(side.ask("run", count=count))
        seconds, processor = ({side.name: statistics.median(each[clock] for each in times[side]) for side in ready}
                              for clock in (0, 1))  # fmt: skip
    finally:
        for side in ready:
            side.stop()
    traced = traced_step(program, folder, 10) if framework == "torch" else None
    return {"framework": framework, "name": program, "seconds": seconds, "processor": processor, "first": first,
            "traced": traced, "lost": lost}  # fmt: skip


def print_row(row, names):
    seconds, processor = row["seconds"], row["processor"]
    cells = "".join(f"{1e3 * seconds[name]:14.1f}" if name in seconds else f"{'-':>14}" for name in names)
    others = {name: value for name, value in seconds.items() if name != "vtpu"}
    line = f"{row['framework']:6}{row['name']:12}{cells}"
    if others:
        best = min(others, key=others.get)
        least = min(value for name, value in processor.items() if name != "vtpu")
        line += f" {others[best] / seconds['vtpu']:6.2f} {best:14}{least / processor['vtpu']:5.2f}"
    line += "   first " + ", ".join(f"{name} {value:.1f}" for name, value in row["first"].items()) + " s"
    if row["traced"]:
        clock, busy = row["traced"]
        line += f"; traced {1e3 * clock:.1f} (cpu {1e3 * busy:.1f})"
        if others:
            line += f", executed {least / (processor['vtpu'] - busy):.2f}"
    print("\n    ".join([line, *row["lost"]]), flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --frameworks", description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default=",".join(SIDES), help=f"of {','.join(SIDES)}")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"of {','.join(PROGRAMS)}")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=30, help="about so long for a program")
    parser.add_argument("--json", metavar="FILE", help="write everything there too")
    options = parser.parse_args()
    for flag, known in ("frameworks", SIDES), ("programs", PROGRAMS):
        for name in getattr(options, flag).split(","):
            if name not in known:
                parser.error(f"--{flag}: no '{name}'; there are {', '.join(known)}")
    os.makedirs(LIBRARIES, exist_ok=True)
    wheel.bundle(LIBRARIES)
    begun, where = time.perf_counter(), bench.machine(None)
    bf16 = bool(peers.BF16 & set(where["flags"]))
    print(f"{where['cpu']}, {where['cores']} cores, {' '.join(where['flags'])}; ms a step; ratio: the best of the others / vtpu")
    rows, failed = [], 0
    for framework in options.frameworks.split(","):
        names = SIDES[framework] + (BF16[framework] if bf16 else ())
        print(f"\n{'':18}{''.join(f'{name:>14}' for name in names)} {'ratio':>6} {'of':14}{'cpu':>5}", flush=True)
        for program in options.programs.split(","):
            try:
                rows.append(measure(framework, names, program, options))
                print_row(rows[-1], names)
            except serve.Failed as failure:
                failed += 1
                print(f"{framework:6}{program:12} {failure}", flush=True)
    print(f"\nmeasured in {time.perf_counter() - begun:.0f} s")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": where, "rows": rows}, file, indent=1)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
