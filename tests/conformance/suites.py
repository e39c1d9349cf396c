# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites of libraries on top of JAX on vtpu, repeats failures on XLA:CPU, and compares.

  ./dev conformance --suites FOLDER [--run equinox lineax/test_jvp ...] [--both | --only vtpu|cpu]

FOLDER/NAME is the source tree of a suite of SUITES below, at the version that python/requirements-suites.txt installs.
Tests with an outcome in build/suites/ are not run again. At the end it prints a table by suite, and every test that
passes on XLA:CPU but not on vtpu.
"""
import argparse
import collections
import dataclasses
import importlib.metadata
import os
import pathlib
import sys

import run


@dataclasses.dataclass
class Suite:
  files: str  # patterns under the source tree
  folder: str = ""  # where the tests expect to be started
  slice: str = "v5litepod-1"
  every: int = 1  # run one test in this many
  apart: bool = True  # each file in its own process; otherwise those of a pattern share one
  env: dict = dataclasses.field(default_factory=dict)


SUITES = {
  "equinox": Suite("tests/test_*.py", slice="v5litepod-4"),  # on the CPU its tests ask for 2 devices
  "mctx": Suite("_src/tests/*_test.py", folder="mctx"),
  "rlax": Suite("rlax/_src/*_test.py"),
  "chex": Suite("chex/_src/*_test.py"),
  "dm-haiku": Suite("haiku/_src/*_test.py"),
  "diffrax": Suite("test/test_*.py", every=12, apart=False),
  # Not gym_test, which needs gym, nor the benchmarks (perf_test, env_test).
  "brax": Suite("brax/*_test.py brax/[!et]*/*[!f]_test.py brax/io/mjcf_test.py "
                "brax/envs/wrappers/[dt]*_test.py brax/training/*_test.py brax/training/agents/*/*_test.py", every=4,
                apart=False),
  "lineax": Suite("tests/test_*.py", every=40),
  "optimistix": Suite("tests/test_*.py", every=8, apart=False),
  "numpyro": Suite("test/test_*.py test/infer/test_*.py test/ops/test_*.py test/contrib/test_*.py", every=16,
                   apart=False),
  "keras": Suite("keras/src/layers/*/*_test.py keras/src/ops/*_test.py keras/src/random/*_test.py "
                 "keras/src/trainers/*_test.py keras/src/optimizers/*_test.py keras/src/losses/*_test.py "
                 "keras/src/metrics/*_test.py", every=16, apart=False,
                 env={"KERAS_BACKEND": "jax"}),
}


def environment(suite, platform, every=None):
  env = run.environment(platform, 0) | suite.env | {"VTPU_EVERY": str(every or suite.every)}
  env.pop("XLA_FLAGS", None)
  if platform == "vtpu":
    env["VTPU_ACCELERATOR_TYPE"] = suite.slice
  else:
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # most of XLA:CPU's time is LLVM's
  for name in ("JAX_NUM_GENERATED_CASES", "JAX_SKIP_SLOW_TESTS"):
    env.pop(name)
  return env


def jobs_of(source, chosen):
  """(suite's name, where to start it, files of tests) of each process."""
  jobs = []
  for name, suite in SUITES.items():
    start = source / name / suite.folder
    for pattern in suite.files.split():
      files = [str(path.relative_to(start)) for path in sorted(start.glob(pattern))
               if not chosen or name in chosen or f"{name}/{path.stem}" in chosen]
      jobs += [(name, start, [path]) for path in files] if suite.apart else [(name, start, files)] if files else []
  return jobs


def not_passed(record):
  return {test for test, row in run.summary(record)["tests"].items() if row["outcome"] not in ("passed", "skipped")}


def run_all(limits):
  work = jobs_of(limits.source, limits.run)

  def one(job, left):
    name, start, files = job
    record = pathlib.Path(name) / (files[0].removesuffix(".py").replace("/", "-") + ".jsonl")
    ours, theirs = (limits.records / platform / record for platform in run.PLATFORMS)
    for platform in [limits.only] if limits.only else run.PLATFORMS:
      env, tests = environment(SUITES[name], platform, limits.every), None
      if platform == "cpu" and not limits.both and not limits.only:
        tests = not_passed(ours) - run.summary(theirs)["tests"].keys()
        if not tests:
          continue
      run.say(left, f"{name} {files[0]} on {platform}")
      run.run_record(files, start, env, limits.records / platform / record, limits, tests)

  run.run_jobs(work, limits.jobs, one)


def outcomes(records, platform, name):
  """{test: row} of this platform's results in a suite."""
  tests = {}
  for record in sorted((records / platform / name).glob("*.jsonl")):
    tests |= run.summary(record)["tests"]
  return tests


def version(name):
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return "(not installed)"


def report(records):
  lines = ["| suite | run | passed | skipped | failed | of these pass on XLA:CPU | fail there | not run there |",
           "|" + "---|" * 8]
  differences = []
  for name in SUITES:
    ours, theirs = (outcomes(records, platform, name) for platform in run.PLATFORMS)
    if not ours:
      continue
    counts = collections.Counter(row["outcome"] for row in ours.values())
    failed = [test for test, row in sorted(ours.items()) if row["outcome"] not in ("passed", "skipped")]
    there = collections.Counter(theirs[test]["outcome"] if test in theirs else "not run" for test in failed)
    cells = [f"{name} {version(name)}", len(ours), counts["passed"], counts["skipped"], len(failed), there["passed"],
             len(failed) - there["passed"] - there["not run"], there["not run"]]
    lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    differences += [f"{name} {test}: {ours[test]['outcome']}: {' '.join(ours[test].get('message', '').split())[:160]}"
                    for test in failed if test not in theirs or theirs[test]["outcome"] == "passed"]
  return lines + [""] + differences


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("source", type=pathlib.Path, nargs="?", help="the suites' source trees; without it nothing is run")
  parser.add_argument("--run", nargs="+", help="suites, or suite/file without .py (default: all)")
  parser.add_argument("--both", action="store_true", help="run on XLA:CPU also what passes on vtpu")
  parser.add_argument("--only", choices=run.PLATFORMS, help="one platform")
  parser.add_argument("--every", type=int, metavar="N", help="run one test of N, into records of their own (--records)")
  run.add_limits(parser, run.ROOT / "build/suites", 300, 3600)
  limits = parser.parse_args()
  limits.records, limits.cases = limits.records.resolve(), 0
  if limits.source:
    limits.source = limits.source.resolve()
    run_all(limits)
  print("\n".join(report(limits.records)))


if __name__ == "__main__":
  main()
