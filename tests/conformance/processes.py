# SPDX-License-Identifier: Apache-2.0
"""Runs JAX's tests of several processes on vtpu and on XLA:CPU with gloo, and compares.

  ./dev conformance --processes PATH_OF_JAX_CHECKOUT [--count 4 | 2] [--files pjit_test ...] [--only vtpu|cpu]

Each file of tests/multiprocess starts its processes itself: four with a quarter of a v3-8 each, or two with a half of a
v6e-8 each. A test has passed if it passed in all of them. The files need the package `portpicker`; the results lie
below build/conformance-processes/, and a file with results there is not run again.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import run

# Processes: slice, chips and devices of each; as many devices on XLA:CPU.
SLICES = {4: ("v3-8", 1, 2), 2: ("v6e-8", 4, 4)}
LIMIT = 600  # seconds of a file
OUTCOME = re.compile(r"\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+?\.\S+(?: \([^)\n]*\))?)")
WORSE = {"OK": 0, "SKIPPED": 1, "FAILED": 2}


def environment(platform, count):
  env = run.environment(platform, 0) | {"OMP_NUM_THREADS": "1", "TPU_SKIP_MDS_QUERY": "1", "JAX_FORCE_TPU_INIT": "1"}
  for name in ("JAX_NUM_GENERATED_CASES", "JAX_SKIP_SLOW_TESTS", "XLA_FLAGS", "PYTHONPATH"):
    env.pop(name, None)
  env |= {name: "" for name in ("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")}
  if platform == "vtpu":
    env["TPU_ACCELERATOR_TYPE"] = SLICES[count][0]
  else:
    env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={SLICES[count][2]}"
  return env


def run_file(checkout, file, platform, count, folder):
  """Its logs, one for each process, lie in `folder` afterwards."""
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  own = [f"--tpu_chips_per_process={SLICES[count][1]}"] if platform == "vtpu" else ["--cpu_collectives_implementation=gloo"]
  command = [sys.executable, f"tests/multiprocess/{file}.py", f"--num_processes={count}", "--heartbeat_timeout=60",
             "--initialization_timeout=60", *own]
  env = environment(platform, count) | {"TEST_UNDECLARED_OUTPUTS_DIR": str(folder)}
  with open(folder / "log", "wb") as log:
    try:
      code = subprocess.run(command, cwd=checkout, env=env, stdout=log, stderr=log, timeout=LIMIT).returncode
    except subprocess.TimeoutExpired:
      code = "none"
  (folder / "code").write_text(f"{code}\n")


def outcomes(folder, count):
  """Each test's worst outcome; one that a process does not report failed there."""
  worst, seen = {}, {}
  for log in folder.glob("jax_*_stderr.log"):
    for outcome, test in OUTCOME.findall(log.read_text(errors="replace")):
      worst[test] = max(worst.get(test, outcome), outcome, key=WORSE.get)
      seen.setdefault(test, set()).add(log.name)
  return {test: outcome if len(seen[test]) == count else "FAILED" for test, outcome in worst.items()}


def table(results, platforms):
  lines = ["| file | " + " | ".join(run.TITLES[p] + o for p in platforms for o in ("passed", "failed", "skipped")) + " |"]
  lines.append("|---" * (1 + 3 * len(platforms)) + "|")
  sums = [0] * (3 * len(platforms))
  for file, by_platform in results.items():
    row = [sum(o == wanted for o in by_platform[p].values()) for p in platforms for wanted in ("OK", "FAILED", "SKIPPED")]
    sums = [a + b for a, b in zip(sums, row)]
    lines.append(f"| {file} | " + " | ".join(map(str, row)) + " |")
  return lines + ["| sum | " + " | ".join(map(str, sums)) + " |"]


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path)
  parser.add_argument("--count", type=int, choices=sorted(SLICES), default=4)
  parser.add_argument("--files", nargs="+", default=[])
  parser.add_argument("--only", choices=run.PLATFORMS)
  limits = parser.parse_args()
  platforms = [limits.only] if limits.only else run.PLATFORMS
  found = sorted(path.stem for path in (limits.checkout / "tests/multiprocess").glob("*_test.py"))
  results = {}
  for file in [name for name in found if not limits.files or name in limits.files]:
    results[file] = {}
    for platform in platforms:
      folder = run.ROOT / "build/conformance-processes" / f"{platform}-{limits.count}" / file
      if not (folder / "code").exists():
        run_file(limits.checkout, file, platform, limits.count, folder)
      results[file][platform] = outcomes(folder, limits.count)
      print(f"{file} on {platform}: exit code {(folder / 'code').read_text().strip()}", flush=True)
  print("\n".join(table(results, platforms)))
  worse = [f"{file}: {test}" for file, by in results.items() for test, outcome in by.get("cpu", {}).items()
           if outcome == "OK" and by.get("vtpu", {}).get(test, "missing") != "OK"]
  print("\nPasses on XLA:CPU, not on vtpu:", *(worse if "cpu" in platforms and "vtpu" in platforms else ["not compared"]), sep="\n  ")


if __name__ == "__main__":
  main()
