#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares vtpu with XLA:CPU of the same jaxlib, alternating within one run, and prints ratios and targets.

Each side is a separate process that stays alive (worker.py); a row alternates between them and takes medians, so that
other load on the machine affects both. XLA:CPU computes in float32, its default; vtpu as a TPU does by default.
Ratio = peer time / vtpu time: above 1 vtpu is faster.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import loops
import ops
import pallas
import serve
from serve import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MODELS = ("mnist", "mlp", "transformer", "resnet50")
ROWS = ("step", "step_8", "predict", "first_step", "init", "dispatch", "transfer", "scan", "ops", "partition", "pallas")
PARTITIONS = {"10x ops": (100_000, 4), "512x devices": (10_000, 2048)}  # after the models: against 10,000 on 4
LEVELS = {None: None, "avx2": 1, "avx512": 3}  # of --cpu: how many of the flags in machine() are left
UNITS = {"step": ("ms", 1e3), "step_8": ("ms", 1e3), "predict": ("ms", 1e3), "first_step": ("ms", 1e3), "init": ("ms", 1e3),
         "dispatch": ("us", 1e6), "transfer": ("ms", 1e3), "scan": ("ms", 1e3), "ops": ("ms", 1e3), "partition": ("ms", 1e3),
         "pallas": ("ms", 1e3)}


class Side(serve.Process):
    """A worker process. `devices` > 1 on the CPU means that many forced host devices. `cpu`: the widest instructions."""

    def __init__(self, name, devices, cpu):
        env = dict(os.environ)
        if name == "vtpu":
            env["JAX_PLATFORMS"] = "tpu,cpu"
            if cpu:
                env["VTPU_CPU"] = cpu
        else:
            env["JAX_PLATFORMS"] = "cpu"
            flags = [f"--xla_force_host_platform_device_count={devices}"] if devices > 1 else []
            env["XLA_FLAGS"] = " ".join(flags + ([f"--xla_cpu_max_isa={cpu.upper()}"] if cpu else []))
        super().__init__(name, [sys.executable, os.path.join(HERE, "worker.py")], env)


class Sides:
    """The processes, started on demand and restarted after one ended."""

    def __init__(self, cpu):
        self.running, self.cpu = {}, cpu

    def get(self, name, devices):
        key = (name, 1 if name == "vtpu" else devices)  # a v3-8 always has its eight devices
        side = self.running.get(key)
        if not side or side.process.poll() is not None:
            side = self.running[key] = Side(name, devices, self.cpu)
            found = side.ask("platform")
            want = "tpu" if name == "vtpu" else "cpu"
            if found["platform"] != want or found["devices"] < devices:
                raise Failed(f"{name}: expected {devices} devices of platform {want}, found {found}")
        return side

    def pair(self, devices=1):
        return self.get("vtpu", devices), self.get("xla_cpu", devices)

    def stop(self):
        for side in self.running.values():
            side.stop()


def alternate(sides, measure, rounds):
    """Median of `rounds` measurements of each side, alternating."""
    times = [[], []]
    for _ in range(rounds):
        for at, side in enumerate(sides):
            times[at].append(measure(side))
    return [statistics.median(values) for values in times]


def measure_step(sides, model, devices, options):
    for side in sides:
        side.ask("load", model=model, devices=devices)
        side.ask("steps", count=1)
    slower = max(side.ask("steps", count=2) for side in sides)
    count = max(1, min(50, round(options.seconds / options.rounds / slower / 2)))
    times = alternate(sides, lambda side: side.ask("steps", count=count), options.rounds)
    extra = {"flops": sides[1].ask("flops")} if devices == 1 else {}
    return times, extra


def measure_predict(sides, model, options):
    for side in sides:
        side.ask("load_predict", model=model)
        side.ask("predict", count=3)
    slower = max(side.ask("predict", count=3) for side in sides)
    count = max(3, min(200, round(options.seconds / options.rounds / slower / 4)))
    return alternate(sides, lambda side: side.ask("predict", count=count), options.rounds), {}


def measure_first_step(sides, model, options):
    for side in sides:
        side.ask("load", model=model, devices=1)
    return alternate(sides, lambda side: side.ask("first_step"), options.repeats), {}


def measure_op(sides, name, options):
    """Medians of wall time; those of CPU time over all threads as extras."""
    slower = max(side.ask("op", name=name, count=1)[0] for side in sides)
    count = max(1, min(50, round(0.2 / slower)))
    rounds = [[side.ask("op", name=name, count=count) for side in sides] for _ in range(options.rounds)]
    wall, processor = ([statistics.median(measured[side][clock] for measured in rounds) for side in (0, 1)]
                       for clock in (0, 1))
    return wall, {"processor": processor}


def measure_kernel(sides, name, options):
    """A TPU kernel and the same function in plain JAX, both on vtpu; as an extra JAX's interpreter of kernels."""
    vtpu, cpu = sides
    ask = lambda form, count: (cpu if form == "interpreted" else vtpu).ask("pallas", name=name, form=form, count=count)
    slower = max(ask(form, 2) for form in ("kernel", "plain"))
    count = max(1, min(50, round(0.2 / slower)))
    rounds = [[ask(form, count) for form in ("kernel", "plain")] for _ in range(options.rounds)]
    times = [statistics.median(column) for column in zip(*rounds)]
    return times, {"interpreted": ask("interpreted", 1), "flops": pallas.FLOPS[name]}


def measure_partition(side, name, options):
    """Processor time, the first time in a process: a model's partitioning over eight devices and its import; or per
    thousand operations of a large program, or of one on many devices, and of a small one on few. `again`: the same in
    a process that has done so before. `prediction`: of a model as well, import and all, next to the import that it
    begins with; `alone`: of the model's program for one device."""
    tool = os.path.join(ROOT, "build/release/bench/partition")
    if not os.path.exists(tool):
        raise Failed("build/release/bench/partition is not built")

    def ask(*arguments):
        command = [tool, *(str(argument) for argument in arguments)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def per_thousand(ops, devices):
        made = ask(ops, devices)
        return [1e3 * made[when]["partition"] / made["ops"] for when in ("first", "again")]

    if name in PARTITIONS:
        turns = [zip(per_thousand(*PARTITIONS[name]), per_thousand(10_000, 4)) for _ in range(2 * options.rounds)]
        first, again = zip(*turns)
    else:
        made = {}
        with tempfile.TemporaryDirectory() as folder:
            for devices in (8, 1):
                path = os.path.join(folder, f"{name}{devices}")
                side.ask("load", model=name, devices=devices)
                side.ask("export", path=path)
                made[devices] = [ask(path) for _ in range(5 * options.rounds)]
        pairs = lambda devices, what, when: [(one[when][what], one[when]["import"]) for one in made[devices]]
        first, again = pairs(8, "partition", "first"), pairs(8, "partition", "again")
    middle = lambda pairs: tuple(statistics.median(column) for column in zip(*pairs))
    extra = {}
    if name not in PARTITIONS:
        extra = {"prediction": middle(pairs(8, "predict", "whole")), "alone": middle(pairs(1, "predict", "whole"))}
    return middle(first), {"again": middle(again)} | extra


def measure(sides, row, model, options):
    if row == "partition":
        return measure_partition(sides.get("vtpu", 8), model, options)
    if row in ("step", "step_8"):
        devices = 8 if row == "step_8" else 1
        return measure_step(sides.pair(devices), model, devices, options)
    pair = sides.pair()
    if row == "predict":
        return measure_predict(pair, model, options)
    if row == "first_step":
        return measure_first_step(pair, model, options)
    if row == "init":
        return alternate(pair, lambda side: side.ask("init", model=model), options.repeats), {}
    if row == "dispatch":
        return alternate(pair, lambda side: side.ask("dispatch", count=2000), 2 * options.rounds), {}
    if row == "scan":
        for side in pair:
            side.ask("scan", body=model)  # compiles
        return alternate(pair, lambda side: side.ask("scan", body=model), 2 * options.rounds), {}
    if row == "ops":
        return measure_op(pair, model, options)
    if row == "pallas":
        return measure_kernel(pair, model, options)
    return alternate(pair, lambda side: side.ask("transfer", mebibytes=64), options.rounds), {}


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def machine(cpu):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        info = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].replace("\t", "").splitlines())
    flags = set(info.get("flags", "").split())
    telling = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8")
    found = [flag for flag in telling[:LEVELS[cpu]] if flag in flags]
    return {"cpu": info.get("model name", "?").strip(), "cores": os.cpu_count(), "amx": "amx_bf16" in found,
            "flags": found, "python": platform.python_version()}


def kernel_bound(row, peak):
    """How many times as fast as JAX's interpreter a kernel is whose products run at this machine's rate, and which takes
    no other time."""
    return row["interpreted"] * top_rate(peak) / row["flops"]


def bars(rows, amx, peak):
    """(name, value, bound) of each target whose rows were all measured."""
    of = {}
    for row in rows:
        of.setdefault(row["metric"], {})[row["name"]] = row["ratio"]
    whole = {metric: values for metric, values in of.items() if None not in values.values()}
    complete = lambda metric: set(MODELS) <= set(whole.get(metric, ()))
    out = []
    if complete("step"):
        out.append(("step, geomean", geomean(whole["step"].values()), 4 if amx else 1.5))
        out.append(("step, slowest program", min(whole["step"].values()), 1))
    if complete("step_8"):
        out.append(("step_8, geomean", geomean(whole["step_8"].values()), 6 if amx else 4))
    for metric, bound in (("predict", 1), ("first_step", 1), ("init", 4)):
        if complete(metric):
            out.append((f"{metric}, geomean", geomean(whole[metric].values()), bound))
    if "dispatch" in whole:
        out.append(("dispatch", whole["dispatch"]["no-op"], 0.4))
    for kind, of_kind in ("scan of 10,000 steps", loops.SCANS), ("while that ends by its data", loops.WHILES):
        if set(of_kind) <= set(whole.get("scan", ())):
            out.append((f"{kind}, slowest", min(whole["scan"][name] for name in of_kind), 1))
    if complete("partition"):
        again = {row["name"]: row["again"][1] / row["again"][0] for row in rows if "again" in row}
        for when, ratios in ("", whole["partition"]), (" again", again):
            out.append((f"partition{when} against import, slowest", min(ratios[model] for model in MODELS), 1 / 1.5))
        alone = [row["alone"][1] / row["alone"][0] for row in rows if "alone" in row]
        out.append(("prediction for one device against import, slowest", min(alone), 1 / 2))
        out.append(("partition per op, 100,000 ops", whole["partition"]["10x ops"], 1 / 1.5))
        out.append(("partition, 2,048 devices", whole["partition"]["512x devices"], 1 / 1.2))
    measured = [row for row in rows if row["metric"] == "pallas" and row["ratio"]]
    if measured:
        out.append(("TPU kernels against plain JAX, slowest", min(row["ratio"] for row in measured), 0.5))
        # 100 times, or half of what the machine's products allow where that is less.
        for row in measured if peak else ():
            bound = min(100, round(kernel_bound(row, peak) / 2, 1))
            out.append((f"{row['name']} against JAX's interpreter", row["interpreted"] / row["vtpu"], bound))
    measured = [row for row in rows if row["metric"] == "ops" and row["ratio"]]
    if measured:
        out.append((f"{len(measured)} ops, slowest", min(row["ratio"] for row in measured), 1))
        out.append(("the same in processor time", min(row["processor"][1] / row["processor"][0] for row in measured), 1))
    return [{"bar": name, "value": value, "bound": bound, "pass": value >= bound} for name, value, bound in out]


def gemm_peak(cpu):
    tool = os.path.join(ROOT, "build/release/bench/gemm_peak")
    if not os.path.exists(tool):
        return None
    env = dict(os.environ, **({"ONEDNN_MAX_CPU_ISA": {"avx2": "AVX2", "avx512": "AVX512_CORE"}[cpu]} if cpu else {}))
    return json.loads(subprocess.run([tool], check=True, capture_output=True, text=True, env=env).stdout)


def print_row(row):
    unit, scale = UNITS[row["metric"]]
    if row["ratio"] is None:
        print(f"{row['name']:12} {row['metric']:11} {row['error']}", flush=True)
        return
    line = f"{row['name']:12} {row['metric']:11} {row['vtpu'] * scale:11.3f} {row['peer'] * scale:11.3f} {unit:3} {row['ratio']:8.2f}"
    if "processor" in row:
        vtpu, peer = row["processor"]
        line += f"   processor {vtpu * scale:9.3f} {peer * scale:9.3f} {peer / vtpu:7.2f}"
    if "again" in row:
        vtpu, peer = row["again"]
        line += f"   again {vtpu * scale:9.3f} {peer * scale:9.3f} {peer / vtpu:7.2f}"
    if "prediction" in row:
        vtpu, peer = row["prediction"]
        line += f"   whole prediction {vtpu * scale:9.3f}, {vtpu / peer:.1f} of import"
        vtpu, peer = row["alone"]
        line += f", for one device {vtpu * scale:9.3f}, {vtpu / peer:.1f}"
    if "interpreted" in row:
        line += f"   interpreted {row['interpreted'] * scale:9.1f} {row['interpreted'] / row['vtpu']:7.0f}"
    print(line, flush=True)


def top_rate(peak):
    """Operations a second."""
    return 1e9 * max(peak["bf16"], peak["f32"])


def print_efficiency(rows, peak):
    steps = [row for row in rows if row["metric"] == "step" and row.get("flops")]
    kernels = [row for row in rows if row["metric"] == "pallas" and row.get("flops")]
    if not (steps or kernels) or not peak:
        return
    top = 1e-9 * top_rate(peak)
    print(f"\noneDNN matrix product here: bf16 {peak['bf16']:.0f}, f32 {peak['f32']:.0f} GFLOP/s")
    for row in kernels:
        reached = row["flops"] / row["vtpu"] * 1e-9
        print(f"{row['name']:12} kernel: {reached:7.1f} GFLOP/s in products, {100 * reached / top:4.1f} % of that; at all of"
              f" it {kernel_bound(row, peak):.0f} times as fast as JAX's interpreter")
    for row in steps:
        vtpu, peer = (row["flops"] / row[side] * 1e-9 for side in ("vtpu", "peer"))
        print(f"{row['name']:12} step: vtpu {vtpu:7.1f} GFLOP/s in dots and convolutions, {100 * vtpu / top:4.1f} % of"
              f" that; peer {peer:7.1f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write everything there too")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {','.join(ROWS)}")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {','.join(MODELS)}")
    parser.add_argument("--ops", metavar="TEXT", default="", help="of the ops row only programs whose names hold this")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side in a row")
    parser.add_argument("--repeats", type=int, default=3, help="the same for first_step and init")
    parser.add_argument("--seconds", type=float, default=10, help="about so long for a step row")
    parser.add_argument("--cpu", choices=("avx2", "avx512"), help="as on a CPU with no more than these instructions")
    options = parser.parse_args()
    for name, allowed in (("rows", ROWS), ("models", MODELS)):
        chosen = getattr(options, name).split(",")
        unknown = set(chosen) - set(allowed)
        if unknown:
            parser.error(f"--{name}: {', '.join(sorted(unknown))} is none of {', '.join(allowed)}")
        setattr(options, name, chosen)
    return options


def plan(options):
    for row in ROWS:
        if row in options.rows:
            names = {"dispatch": ["no-op"], "transfer": ["64 MiB"], "scan": loops.names(),
                     "partition": [*options.models, *PARTITIONS], "pallas": pallas.CASES}.get(row, options.models)
            if row == "ops":
                names = [name for name in ops.names() if options.ops in name]
            yield from ((row, name) for name in names)


def main():
    options = parse()
    start = time.perf_counter()
    where = machine(options.cpu)
    print(f"{where['cpu']}, {where['cores']} cores, {' '.join(where['flags'])}\n")
    print("peer: XLA:CPU. Of pallas: the same in plain JAX on vtpu. Of partition: the import of the program; of large\n"
          "programs and of many devices: 10,000 operations on 4 devices, per 1,000 operations.\n")
    print(f"{'program':12} {'metric':11} {'vtpu':>11} {'peer':>11} {'':3} {'ratio':>8}", flush=True)
    sides, rows = Sides(options.cpu), []
    try:
        for metric, name in plan(options):
            row = {"name": name, "metric": metric, "vtpu": None, "peer": None, "ratio": None}
            try:
                (row["vtpu"], row["peer"]), extra = measure(sides, metric, name, options)
                row.update(extra, ratio=row["peer"] / row["vtpu"])
            except Failed as failure:
                row["error"] = str(failure)
            rows.append(row)
            print_row(row)
    finally:
        sides.stop()
    peak = gemm_peak(options.cpu)
    print_efficiency(rows, peak)
    results = bars(rows, where["amx"], peak)
    if results:
        print()
    for bar in results:
        print(f"{'PASS' if bar['pass'] else 'MISS'}  {bar['bar']:24} {bar['value']:6.2f}  (bar {bar['bound']})")
    seconds = time.perf_counter() - start
    print(f"\nmeasured in {seconds:.0f} s")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": where, "rows": rows, "bars": results, "gemm_gflops": peak, "seconds": seconds}, file,
                      indent=1)
            file.write("\n")
    return 1 if any("error" in row for row in rows) or not all(bar["pass"] for bar in results) else 0


if __name__ == "__main__":
    sys.exit(main())
