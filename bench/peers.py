#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares vtpu with PyTorch, ONNX Runtime, OpenVINO and IREE on this machine: training and serving of the same programs.

Each side is a process of its own; a program's sides run in turn, and medians are taken, so that other load on the machine
affects all. The programs are written once (peer_programs.py); a side whose result differs from vtpu's is not compared.
Where the processor multiplies in bf16, models are served as f32 (column vtpu) and as bf16 (column bf16), as people do on a
TPU; PyTorch trains and serves with autocast, OpenVINO makes bf16 of f32 by itself, IREE gets both.
Ratio = time of the best peer / the less of vtpu's times: above 1 vtpu is faster; cpu = the same in processor time of all threads.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time

import bench
import peer_programs
import serve

FOLDER = os.path.join(bench.ROOT, "build", "peers")
SHORT = {"pytorch": "torch", "compiled": "compiled", "onnxruntime": "onnxrt", "openvino": "openvino", "iree": "iree",
         "iree-bf16": "ireebf16"}
MOST_APART = 0.05  # of results: vtpu rounds what it multiplies to bf16, as a TPU does
BF16 = {"avx512_bf16", "amx_bf16"}
OURS = ("vtpu", "bf16")
TRIALS = 3  # of each side, from which the number of runs in a round follows


def environment_of(peer):
    return peer.removesuffix("-bf16")


class Side:
    """A peer, or vtpu: its process starts on demand, and again after it ended."""

    def __init__(self, name):
        self.name, self.process = name, None

    def command(self):
        if self.name in OURS:
            return [sys.executable, os.path.join(bench.HERE, "peer_jax.py")], dict(os.environ, JAX_PLATFORMS="tpu,cpu")
        torch = self.name in ("pytorch", "compiled")
        environment = "torch" if torch else environment_of(self.name)
        python = os.path.join(bench.ROOT, "build", f"venv-peers-{environment}", "bin", "python")
        if not os.path.exists(python):
            raise serve.Failed(f"{self.name}: not installed")
        drop = ("PYTHONPATH", "JAX_PLATFORMS", "TPU_LIBRARY_PATH")
        env = {key: value for key, value in os.environ.items() if key not in drop}
        return [python, os.path.join(bench.HERE, "peer_torch.py" if torch else "peer_served.py")], env

    def ask(self, do, **arguments):
        if not self.process or self.process.process.poll() is not None:
            self.process = serve.Process(self.name, *self.command())
        return self.process.ask(do, **arguments)

    def stop(self):
        if self.process and self.process.process.poll() is None:
            self.process.stop()
        self.process = None


def load(sides, name, bf16):
    """The sides that run the program and agree with vtpu, why the others do not, and what vtpu computes."""
    trains = peer_programs.PROGRAMS[name].trains
    folder = os.path.join(FOLDER, name.replace(" ", "_"))
    os.makedirs(folder, exist_ok=True)
    work = {"vtpu": sides["vtpu"].ask("load", name=name, folder=folder)}
    ready, lost = [sides["vtpu"]], {}
    if bf16 and not trains:
        work["bf16"] = sides["bf16"].ask("load", name=name, folder=folder, bf16=True)
        apart = work["bf16"].pop("apart")
        if apart <= MOST_APART:
            ready.append(sides["bf16"])
        else:
            lost["bf16"] = f"bf16: its result is {apart:.2g} from that in f32"
    for peer in SHORT:
        side = sides.get(peer)
        if not side or (trains and peer not in ("pytorch", "compiled")) or (peer == "iree-bf16" and not bf16):
            continue
        try:
            if peer in ("onnxruntime", "openvino") and not os.path.exists(os.path.join(folder, "program.onnx")):
                exporter = Side("pytorch")
                try:
                    exporter.ask("export", name=name, folder=folder)
                finally:
                    exporter.stop()
            if peer.startswith("iree"):
                sides["vtpu"].ask("export", folder=folder, bf16=peer == "iree-bf16")
            torch = {"name": name, "compiled": peer == "compiled", "bf16": bf16}
            apart = side.ask("load", folder=folder, **(torch if peer in ("pytorch", "compiled") else {"side": environment_of(peer)}))
            if not apart <= MOST_APART:
                raise serve.Failed(f"{peer}: its result is {apart:.2g} from vtpu's")
            ready.append(side)
        except serve.Failed as failure:
            lost[peer] = str(failure)
            side.stop()
    shutil.rmtree(folder)
    return ready, lost, work


def measure(sides, name, options, bf16):
    ready, lost, work = load(sides, name, bf16)
    once = {side: min(side.ask("run", count=1)[0] for _ in range(TRIALS)) for side in ready}
    times = {side: [] for side in ready}
    for _ in range(options.rounds):
        for side in ready:
            count = max(1, min(100, round(options.seconds / options.rounds / len(ready) / once[side])))
            times[side].append(side.ask("run", count=count))
    medians = {side.name: [statistics.median(clock) for clock in zip(*values)] for side, values in times.items()}
    seconds, processor = ({name: both[clock] for name, both in medians.items()} for clock in (0, 1))
    best = min((ours for ours in OURS if ours in seconds), key=seconds.get)
    return {"name": name, "seconds": seconds, "processor": processor, "lost": lost, "best": best, **work[best]}


def print_row(row, names, peak):
    seconds = row["seconds"]
    vtpu = seconds[row["best"]]
    peers = {name: value for name, value in seconds.items() if name not in OURS}
    cells = [f"{1e3 * seconds[name]:9.2f}" if name in seconds else f"{'-':>9}" for name in (*OURS, *names)]
    best = min(peers, key=peers.get, default=None)
    ratio = f"{peers[best] / vtpu:6.2f} {SHORT[best]:9}" if best else f"{'-':>6} {'':15}"
    if best:
        processor = [value for name, value in row["processor"].items() if name not in OURS]
        ratio += f"{min(processor) / row['processor'][row['best']]:5.2f} "
    rate = row["flops"] / vtpu * 1e-9
    line = f"{row['name']:17}{''.join(cells)} {ratio}{rate:8.1f} {100 * rate / max(peak['bf16'], peak['f32']):4.0f} %"
    if "decode" in row["name"]:
        read = row["bytes"] / vtpu * 1e-9
        line += f"{read:7.1f} {100 * read / peak['read_gb_s']:4.0f} %"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --peers", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", metavar="TEXT", default="", help="only those whose names hold one of these, comma between")
    parser.add_argument("--sides", default=",".join(SHORT), help=f"of {','.join(SHORT)}")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=30, help="about so long for a program")
    parser.add_argument("--json", metavar="FILE", help="write everything there too")
    options = parser.parse_args()
    start, where, peak = time.perf_counter(), bench.machine(None), bench.gemm_peak(None)
    bf16 = bool(BF16 & set(where["flags"]))
    names = [name for name in options.sides.split(",") if name in SHORT]
    sides = {name: Side(name) for name in (*OURS, *names)}
    print(f"{where['cpu']}, {where['cores']} cores, {' '.join(where['flags'])}")
    print(f"matrix product: bf16 {peak['bf16']:.0f}, f32 {peak['f32']:.0f} GFLOP/s; reading memory: {peak['read_gb_s']:.1f} GB/s")
    print(f"PyTorch {'with bf16 autocast' if bf16 else 'in f32'}; times in ms; ratio: best peer / vtpu\n")
    print(f"{'program':17}{''.join(f'{SHORT.get(name, name):>9}' for name in (*OURS, *names))} {'ratio':>6} {'of':9}{'cpu':>5} {'GFLOP/s':>7} peak   "
          "GB/s memory", flush=True)
    rows, failed = [], 0
    try:
        for name in peer_programs.PROGRAMS:
            if not any(text in name for text in options.programs.split(",")):
                continue
            try:
                rows.append(measure(sides, name, options, bf16))
                print_row(rows[-1], names, peak)
                for reason in rows[-1]["lost"].values():
                    print(f"    {reason}", flush=True)
            except serve.Failed as failure:
                failed += 1
                print(f"{name:17} {failure}", flush=True)
    finally:
        for side in sides.values():
            side.stop()
    print(f"\nmeasured in {time.perf_counter() - start:.0f} s")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": where, "rows": rows, "peak": peak}, file, indent=1)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
