#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The timing mode of the TPU v1 simulator compared with SCALE-Sim (PyPI `scalesim`) on the same layers.

Both model a 256 x 256 weight-stationary array. Why the cycles differ: SCALE-Sim loads, fills and drains the array for
every tile, one after another (256 + M + 510 cycles), and adds the first fill of its buffers from DRAM to each layer.
The chip shifts a tile while the rows of the previous one run and overlaps filling and draining, but takes 1349 cycles
to read a tile from DDR3; host transfers and activation also count here. Needs a Python with scalesim:

    python3 -m venv build/scalesim && build/scalesim/bin/pip install scalesim "numpy<2" "pandas<2.2"
    build/scalesim/bin/python bench/tpu1/against_scalesim.py build/release/bin/vtpu
"""

import argparse
import contextlib
import io
import os
import re
import subprocess
import tempfile
import time

# M (rows: batch, or positions of all images), N (outputs), K (inputs) of each layer, as src/tpu1/workload.c builds them.
WORKLOADS = {
    "MLP0": [(200, n, k) for k, n in zip((2304, 2000, 2048, 2000, 2304), (2000, 2048, 2000, 2304, 1250))],
    "MLP1": [(168, n, k) for k, n in zip((1280, 1000, 1280, 1000), (1000, 1280, 1000, 1280))],
    "CNN0": [(2888, 256, 1200)] + [(2888, 256, 2304)] * 14 + [(2888, 1, 256)],
}
# 34e9 / 700e6 bytes per cycle for weights, 256 for inputs and outputs; buffers of 24 MiB in all, two tiles of weights.
CONFIG = """[general]
run_name = v1
[architecture_presets]
ArrayHeight : 256
ArrayWidth : 256
IfmapSramSzkB : 12288
FilterSramSzkB : 128
OfmapSramSzkB : 12288
IfmapOffset : 0
FilterOffset : 100000000
OfmapOffset : 200000000
Bandwidth : 49
Dataflow : ws
MemoryBanks : 1
ReadRequestBuffer : 512
WriteRequestBuffer : 512
[layout]
IfmapCustomLayout : False
IfmapSRAMBankBandwidth : 10
IfmapSRAMBankNum : 10
IfmapSRAMBankPort : 2
FilterCustomLayout : False
FilterSRAMBankBandwidth : 10
FilterSRAMBankNum : 10
FilterSRAMBankPort : 2
[sparsity]
SparsitySupport : false
SparseRep : ellpack_block
OptimizedMapping : false
BlockSize : 8
RandomNumberGeneratorSeed : 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""


def run_scalesim(layers, folder):
    from scalesim.scale_sim import scalesim

    config, topology = os.path.join(folder, "v1.cfg"), os.path.join(folder, "layers.csv")
    with open(config, "w") as file:
        file.write(CONFIG)
    with open(topology, "w") as file:
        file.write("Layer,M,N,K,\n" + "".join(f"L{i},{m},{n},{k},\n" for i, (m, n, k) in enumerate(layers)))
    layout = os.path.join(folder, "layout.csv")  # not used without custom layouts, but read
    with open(layout, "w") as file:
        file.write("Layer" + ",x" * 24 + ",\n" + "".join(f"L{i}" + ",1" * 24 + ",\n" for i in range(len(layers))))
    log = io.StringIO()
    start = time.perf_counter()
    with contextlib.redirect_stdout(log):
        sim = scalesim(save_disk_space=True, verbose=True, config=config, topology=topology, layout=layout, input_type_gemm=True)
        sim.run_scale(top_path=folder)
    seconds = time.perf_counter() - start
    total, compute = (
        sum(int(x) for x in re.findall(rf"^{word} cycles: *(\d+)", log.getvalue(), re.M)) for word in ("Total", "Compute")
    )
    return seconds, total, compute, log.getvalue()


def run_v1(vtpu, workload, repeat=20):
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        out = subprocess.run([vtpu, "v1", "counters", workload], check=True, capture_output=True, text=True).stdout
        seconds.append(time.perf_counter() - start)
    counters = dict(re.findall(r"^(\w+) +(\d+) cycles", out, re.M))
    return sorted(seconds)[repeat // 2], {k: int(v) for k, v in counters.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vtpu")
    parser.add_argument("--workloads", default="MLP1")
    parser.add_argument("--log", action="store_true")
    options = parser.parse_args()
    for name in options.workloads.split(","):
        with tempfile.TemporaryDirectory() as folder:
            theirs, total, compute, log = run_scalesim(WORKLOADS[name], folder)
        if options.log:
            print(log)
        ours, counters = run_v1(options.vtpu, name)
        tiles = sum(-(-n // 256) * -(-k // 256) for _, n, k in WORKLOADS[name])
        print(f"{name}, {tiles} tiles")
        print(f"  SCALE-Sim {theirs:9.3f} s   {total:11,} cycles, {compute:,} of them compute ({compute / tiles:.0f} a tile)")
        print(f"  vtpu      {ours:9.3f} s   {counters['cycles']:11,} cycles, {counters['array_active']:,} of them active, "
              f"{counters['weight_stall'] + counters['weight_shift']:,} waiting for weights, {counters['non_matrix']:,} other")
        print(f"  {theirs / ours:,.0f} times faster, start of the process included")


if __name__ == "__main__":
    main()
