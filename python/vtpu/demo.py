# SPDX-License-Identifier: Apache-2.0
"""Trains models/mnist, an ordinary program, on the virtual slice, and reports the time of the real one.

The program does not know this file or vtpu. The time on the slice is that of the virtual clock: programs as predicted,
the host between them as measured here. Exit code 1 when the accuracy is below the bound.
"""

import importlib.util
import os
import sys
import time

ACCURACY = 0.90


def load_program():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(root, "models", "mnist", "train.py")
    spec = importlib.util.spec_from_file_location("mnist_train", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mnist_train"] = module
    spec.loader.exec_module(module)
    return module


def make_report(result, use, devices, wall_seconds):
    from vtpu.table import Report, quantity
    from vtpu.slices import slice_name

    stats = [device.memory_stats() or {} for device in devices]
    peaks = [stat["peak_bytes_in_use"] for stat in stats if "peak_bytes_in_use" in stat]
    report = Report(f"models/mnist on a virtual {slice_name()}")
    report.add("slice", slice_name(), f"{len(devices)} x {devices[0].device_kind}")
    report.add("steps", result.steps, f"of {result.batch} examples")
    report.add("wall time of training", f"{result.seconds:.1f} s", f"first step after {result.first_step_seconds:.1f} s")
    report.add("wall time of everything", f"{wall_seconds:.1f} s")
    report.add("host examples/s", f"{result.steps * result.batch / result.seconds:,.0f}", "on this machine")
    report.add("test accuracy", f"{result.accuracy:.4f}", f"of 10,000 images; at least {ACCURACY} is asked for")
    if peaks:
        report.add("peak HBM per core", quantity(max(peaks), "B"),
                   f"as accounted, of {quantity(stats[0]['bytes_limit'], 'B')}")
    clock, step = use["clock"], max(use["predictions"], key=lambda program: program.get("seconds", 0) * program["runs"])
    waits = 100 * clock["input_bound_seconds"] / clock["seconds"]
    report.add("time on the slice", quantity(clock["seconds"], "s"), "virtual clock, without tracing and compiling")
    report.add("in programs", quantity(clock["device_seconds"], "s"), f"predicted; {quantity(step['seconds'], 's')} a step")
    report.add("waiting for the host", quantity(clock["input_bound_seconds"], "s"), f"{waits:.0f} %: input-bound")
    report.add("host between programs", quantity(clock["host_seconds"], "s"), "measured on this machine")
    report.add("flops of a step", quantity(step["flops"], ""), f"MFU {100 * step['mfu']:.2f} %")
    if use["predicted_usd"]:
        dollars = use["predicted_usd"] * clock["seconds"] / clock["device_seconds"]
        report.add("predicted cost", f"${dollars:.6f}", "that time at the public on-demand price")
    return report


def main(argv):
    start = time.perf_counter()
    import vtpu

    vtpu.watch()
    import jax

    device = jax.devices()[0]
    if device.platform != "tpu":
        print(f'vtpu is not in use (platform {device.platform}); run ./dev demo, or eval "$(./dev env)" first',
              file=sys.stderr)
        return 1
    program = load_program()
    config = program.parse(argv)
    print(f"{jax.device_count()} x {device.device_kind}: {config.batch} examples a step, data-parallel")
    result = program.train(config)
    wall_seconds = time.perf_counter() - start
    print(f"\n{make_report(result, vtpu.report().data, jax.devices(), wall_seconds)}\n")
    if result.accuracy < ACCURACY:
        print(f"the accuracy {result.accuracy:.4f} is below {ACCURACY}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
