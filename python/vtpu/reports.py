# SPDX-License-Identifier: Apache-2.0
"""vtpu.watch() and vtpu.report(): what this process does with the slice, or what a program would do on one."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile

from vtpu.table import Report, quantity
from vtpu.slices import program_path, slice_name

VARIABLES = ("VTPU_ACTIVITY", "VTPU_PREDICT", "VTPU_COMPILED")


def watch():
    """From now on report() knows what this process does. To be called before JAX opens the devices; under `vtpu run
    --predict` it is not needed."""
    if all(name in os.environ for name in VARIABLES):
        return
    folder = tempfile.mkdtemp(prefix="vtpu-report-")
    owner = os.getpid()
    for name in VARIABLES:
        os.environ[name] = folder

    def remove():
        if os.getpid() == owner:  # not a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def report(program=None, on=None):
    """A Report, which prints as a table and shows itself in a notebook; its `data` is the JSON of the command.

    Without a program: of this process so far, as at the end of `vtpu run`; see watch().
    With one: what a slice would do with it, as `vtpu predict` says: a jitted function that was lowered
    (`f.lower(...)`), an export (`jax.export`), a file, or the text or bytes of StableHLO. The slice is an accelerator
    type, "v5litepod-256"; by default this process's.
    """
    return _of_process(on) if program is None else _of_program(program, on or slice_name())


def _run(*words):
    done = subprocess.run([program_path(), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def _in_file(words, content=None):
    """The output of the command with the name of a temporary file, and what the file holds afterwards."""
    with tempfile.NamedTemporaryFile() as file:
        if content is not None:
            file.write(content)
            file.flush()
        output = _run(*words, file.name)
        with open(file.name, "rb") as result:
            return output, result.read()


def _of_process(on):
    folder = os.environ.get("VTPU_ACTIVITY")
    if not folder:
        raise RuntimeError("nothing was recorded: call vtpu.watch() before JAX opens the devices")
    words = ["report", folder, "-t", on or slice_name(), "--json"]
    data = json.loads(_in_file(words)[1])
    table = Report(f"this process on {data['accelerator_type']}")
    table.data = data
    table.add("programs", data["programs"], f"compiled {data['compilations']}")
    table.add("time here", quantity(data["seconds"], "s"), f"{quantity(data['busy_seconds'], 's')} of it in programs")
    if "clock" in data:
        _add_clock(table, data["clock"])
        table.add("cost", f"${data['predicted_usd']:.3g}", "of the programs, on demand")
    table.add("HBM at the peak", quantity(data["hbm_peak_bytes"], "B"), f"of {quantity(data['hbm_limit_bytes'], 'B')}")
    for program in data.get("predictions", ())[:5]:
        if program.get("seconds"):
            table.add(program["name"], quantity(program["seconds"], "s"),
                      f"x {program['runs']}, bound by {program['bound']}, MFU {100 * program['mfu']:.1f} %")
    for again in data["compiled_again"][:5]:
        why = again["reasons"][0] if again["reasons"] else {"place": "", "why": ""}
        table.add(again["name"], f"{again['times']} times", f"compiled again; {why['place']} {why['why']}")
    return table


def _add_clock(table, clock):
    waits = 100 * clock["input_bound_seconds"] / clock["seconds"] if clock["seconds"] else 0
    table.add("time on the slice", quantity(clock["seconds"], "s"), "virtual clock, from the first program on")
    table.add("in programs", quantity(clock["device_seconds"], "s"), "predicted")
    table.add("waiting for the host", quantity(clock["input_bound_seconds"], "s"), f"{waits:.0f} %: input-bound")
    table.add("host between programs", quantity(clock["host_seconds"], "s"), "measured here")


def _bytes_of(program):
    if hasattr(program, "mlir_module_serialized"):
        return program.mlir_module_serialized
    if hasattr(program, "as_text") and hasattr(program, "compile"):
        program = program.as_text(debug_info=True)
    if isinstance(program, str):
        return program.encode()
    if isinstance(program, bytes):
        return program
    raise TypeError(f"{type(program).__name__}: a lowered function, an export, a file or StableHLO was expected")


def _of_program(program, on):
    words = ["predict", "-t", on, "--json", "--advice"]
    if isinstance(program, os.PathLike) or (isinstance(program, str) and "\n" not in program):
        output = _run(*words, program)
    else:
        output = _in_file(words, _bytes_of(program))[0]
    data = json.loads(output)
    table = Report(f"{data['devices']} devices of {data['accelerator_type']}")
    table.data = data
    table.add("time of one run", quantity(data["seconds"], "s"), f"bound by {data['bound']}")
    table.add("work", quantity(data["flops"], "FLOP"), f"MFU {100 * data['mfu']:.1f} %")
    table.add("collectives", quantity(data["collective_seconds"], "s"),
              f"{quantity(data['exposed_collective_seconds'], 's')} of it not hidden")
    table.add("HBM of a device", quantity(data["hbm_peak_bytes"], "B"))
    table.add("energy", quantity(data["energy_j"], "J"))
    if data["usd"]:
        table.add("cost", f"${data['usd']:.3g}", "a run, on demand")
    for advice in data["advice"]:
        table.add("advice", f"{100 * advice['saves']:.1f} %",
                  f"pad {advice['from']} to {advice['to']} ({advice['file']}:{advice['line']})")
    return table
