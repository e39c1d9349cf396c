# SPDX-License-Identifier: Apache-2.0
"""Runs JAX's own test files on vtpu (platform tpu) and on XLA:CPU, and compares.

  ./dev conformance PATH_OF_JAX_CHECKOUT [--files lax_test nn_test ...] [--only vtpu|cpu] [--cases 10]
  ./dev conformance --write docs/conformance.md

The checkout must be the tag that fits the installed jax (jax-v0.10.2). Two files run at a time, each in its own
process. A test that crashes or hangs ends its process; the rest of its file continues in a new one. Tests with an
outcome in build/conformance/ are not run again: remove that folder (or pass --fresh) to start over. At the end, or at
once without a checkout, all recorded results go to build/conformance.json and are printed as tables by file.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PLATFORMS = ["vtpu", "cpu"]
TITLES = {"vtpu": "", "cpu": "XLA:CPU "}
BEGIN, END = "<!-- results: ./dev conformance --write -->", "<!-- end of results -->"
# How a pytest process ended, by exit status: 1 means failed tests, 5 a file without tests.
ENDS = {0: "exited", 1: "exited", 2: "not collected", 5: "exited"}


def environment(platform, cases):
  env = dict(os.environ)
  for name in ("JAX_PLATFORMS", "TPU_LIBRARY_PATH", "JAX_ENABLE_X64", "XLA_FLAGS"):
    env.pop(name, None)
  env["JAX_NUM_GENERATED_CASES"] = str(cases)
  env["JAX_SKIP_SLOW_TESTS"] = "1"
  env["PYTHONPATH"] = str(HERE)
  if platform == "vtpu":
    env["JAX_PLATFORMS"] = "tpu,cpu"
    env["VTPU_CACHE_DIR"] = ""  # code compiled by an earlier process would not show in this one's time
    env["TPU_LIBRARY_PATH"] = os.environ.get("TPU_LIBRARY_PATH", str(ROOT / "build/release/lib/libvtpu.so"))
  else:
    env["JAX_PLATFORMS"] = "cpu"
    env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
  return env


def rows_of(record):
  if not record.exists():
    return []
  rows = []
  for line in record.read_text().splitlines():
    try:
      rows.append(json.loads(line))
    except ValueError:
      pass  # the process died while writing it
  return rows


def begun(record):
  return sum(row["event"] == "start" for row in rows_of(record))


def last_unfinished(rows):
  """The test that has started and has no outcome: (name, start time), or None."""
  open_test = None
  for row in rows:
    if row["event"] == "start":
      open_test = (row["test"], row["time"])
    elif row["event"] == "outcome" and open_test and row["test"] == open_test[0]:
      open_test = None
  return open_test


def add_row(record, **row):
  with record.open("a") as out:
    out.write(json.dumps(row) + "\n")


def run_process(command, checkout, env, record, log, limits, left):
  """One pytest process; kills it when a test or the file takes too long. Returns how it ended, and its seconds.

  The limits count this loop's turns, about a second each, and not the clock: a suspended machine or a stopped process
  group does not use up the time.
  """
  started, seconds, open_test, open_since, killed = time.time(), 0, None, 0, ""
  process = subprocess.Popen(command, cwd=checkout, env=env, stdout=log, stderr=subprocess.STDOUT,
                             start_new_session=True)
  while True:
    # wait4 and not Popen.wait: the CPU time of this child, including its own children.
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid:
      break
    time.sleep(1)
    seconds += 1
    current = last_unfinished(rows_of(record)[-2:])
    if current != open_test:
      open_test, open_since = current, seconds
    if not killed and (seconds > left or (open_test and seconds - open_since > limits.test_seconds)):
      os.killpg(process.pid, signal.SIGKILL)
      killed = "file timeout" if seconds > left else "test timeout"
  process.returncode = os.waitstatus_to_exitcode(status)
  add_row(record, event="process", status=process.returncode, cpu=round(usage.ru_utime + usage.ru_stime, 1),
          wall=round(time.time() - started, 1))
  return killed or ENDS.get(process.returncode, "crashed"), seconds


def run_record(command, checkout, env, record, limits, tests=None, prefix=()):
  """Runs pytest on these files, restarting after each crash, until every test (or each of `tests`) has an outcome."""
  record.parent.mkdir(parents=True, exist_ok=True)
  if limits.fresh and record.exists():
    record.unlink()
  if tests is None and any(row["event"] == "end" for row in rows_of(record)):
    return
  env = env | {"VTPU_RECORD": str(record)}
  if tests is not None:
    chosen = record.with_suffix(".tests")
    chosen.write_text("\n".join(sorted(tests)) + "\n")
    env["VTPU_TESTS"] = str(chosen)
  command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "-p", "no:xdist",
             "--tb=short"] + command
  if limits.k:
    command += ["-k", limits.k]
  left = limits.file_seconds
  with open(record.with_suffix(".log"), "a") as log:
    while True:
      before = begun(record)
      end, seconds = run_process(command, checkout, env, record, log, limits, left)
      left -= seconds
      rows = rows_of(record)
      open_test = last_unfinished(rows)
      if end == "exited" or begun(record) == before:
        break
      if open_test:
        outcome = "timeout" if "timeout" in end else "crashed"
        add_row(record, event="outcome", test=open_test[0], outcome=outcome,
                seconds=round(time.time() - open_test[1], 1), message=end)
      if end == "file timeout":
        break
  if tests is None:
    add_row(record, event="end", how=end, cases=limits.cases)


def run_file(checkout, name, platform, limits):
  record = limits.records / platform / (name + ".jsonl")
  run_record([f"tests/{name}.py"], checkout, environment(platform, limits.cases), record, limits)


def summary(record):
  rows = rows_of(record)
  # A test with subtests has a row for each and one of its own; one that failed says what became of the test.
  tests = {}
  for row in rows:
    if row["event"] == "outcome" and tests.get(row["test"], {}).get("outcome", "passed") in ("passed", "skipped"):
      tests[row["test"]] = row
  counts = collections.Counter(row["outcome"] for row in tests.values())
  processes = [row for row in rows if row["event"] == "process"]
  end = next((row for row in rows if row["event"] == "end"), {"how": "unfinished", "cases": 0})
  return dict(passed=counts["passed"], failed=counts["failed"], skipped=counts["skipped"],
              crashed=counts["crashed"] + counts["timeout"], seconds=round(sum(row["wall"] for row in processes), 1),
              cpu=round(sum(row["cpu"] for row in processes), 1), end=end["how"], cases=end["cases"], tests=tests)


def recorded(records):
  """Everything in this folder: {file: {platform: summary}}, both in order."""
  result = {}
  for record in sorted(records.glob("*/*.jsonl")):
    result.setdefault(record.stem, {})[record.parent.name] = summary(record)
  return {name: {platform: result[name][platform] for platform in PLATFORMS if platform in result[name]}
          for name in sorted(result)}


def table(result, platforms):
  """The lines of a table by file, with a last row of sums."""
  columns = ["passed", "failed", "skipped", "crashed", "cpu"]
  heads = [f"{TITLES[platform]}{'CPU s' if column == 'cpu' else column}" for platform in platforms for column in columns]
  rows, sums = [], [0] * len(heads)
  for name, sides in result.items():
    cells = [sides[platform][column] for platform in platforms for column in columns]
    sums = [total + cell for total, cell in zip(sums, cells)]
    rows.append([name] + [round(cell) for cell in cells])
  rows.append(["**sum**"] + [f"**{round(total)}**" for total in sums])
  lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in [["file"] + heads] + rows]
  return lines[:1] + ["|" + "---|" * (1 + len(heads))] + lines[1:]


def comparison(result):
  """How many tests pass on XLA:CPU and are not skipped on tpu, how many of them pass on vtpu, and both sides' CPU s."""
  counts = collections.Counter()
  for sides in result.values():
    ours, theirs = sides["vtpu"], sides["cpu"]
    counts.update(ours=ours["cpu"], theirs=theirs["cpu"])
    for test, row in theirs["tests"].items():
      mine = ours["tests"].get(test, {"outcome": "skipped"})["outcome"]
      if row["outcome"] == "passed" and mine != "skipped":
        counts.update(comparable=1, passed=mine == "passed")
  return counts


def report(records):
  """The recorded results as Markdown: the files run to their end on both sides, then those run on vtpu alone."""
  result = recorded(records)
  records.with_suffix(".json").write_text(json.dumps(result, indent=1))
  ended = {name: {platform: side for platform, side in sides.items() if side["end"] == "exited"}
           for name, sides in result.items()}
  cases = {side["cases"] for sides in ended.values() for side in sides.values()}
  if len(cases) > 1:
    sys.exit(f"{records} holds runs with {sorted(cases)} cases, which do not compare: run again with --fresh")
  both = {name: sides for name, sides in ended.items() if len(sides) == 2}
  alone = {name: sides for name, sides in ended.items() if list(sides) == ["vtpu"]}
  lines = []
  if both:
    counts = comparison(both)
    lines += ["## Both sides", "", f"{len(both)} files, {cases.copy().pop()} cases of each sampled test. Of "
              f"{counts['comparable']} tests that pass on XLA:CPU and", "are not skipped on a TPU, "
              f"{counts['passed']} pass on vtpu: {100 * counts['passed'] / max(counts['comparable'], 1):.2f} %. "
              f"vtpu needs {counts['ours'] / max(counts['theirs'], 1):.2f} of XLA:CPU's processor time.", ""]
    lines += table(both, PLATFORMS) + [""]
  if alone:
    lines += ["## vtpu alone", ""] + table(alone, ["vtpu"]) + [""]
  unfinished = [f"{name} on {platform} ({side['end']}, {len(side['tests'])} tests)" for name, sides in result.items()
                for platform, side in sides.items() if side["end"] != "exited"]
  if unfinished:
    lines += ["Not run to the end: " + ", ".join(unfinished) + ".", ""]
  return lines


def write_page(page, lines):
  """Puts the lines between the page's two markers; hand-written text is outside them."""
  before, found, rest = page.read_text().partition(BEGIN)
  _, found_end, after = rest.partition(END)
  if not found or not found_end:
    sys.exit(f"{page} lacks the lines '{BEGIN}' and '{END}', between which the results go")
  page.write_text("\n".join([before + BEGIN, ""] + lines + [END + after]))


def say(left, job):
  print(f"[{left} left] {job}", file=sys.stderr, flush=True)


def run_jobs(work, jobs, one):
  """Calls one(job, how many are left) for each job, `jobs` of them at a time."""
  with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    list(pool.map(one, work, range(len(work) - 1, -1, -1)))


def run_all(limits):
  if not (limits.checkout / "tests/lax_test.py").exists():
    sys.exit(f"{limits.checkout} is not a JAX checkout: it has no tests/lax_test.py")
  platforms = [limits.only] if limits.only else PLATFORMS
  files = limits.files or sorted(path.name for path in limits.checkout.glob("tests/*_test.py"))
  files = [name.removesuffix(".py") for name in files]
  work = [(name, platform) for name in files for platform in platforms]

  def one(job, left):
    say(left, " on ".join(job))
    run_file(limits.checkout, *job, limits)

  run_jobs(work, limits.jobs, one)


def add_limits(parser, records, test_seconds, file_seconds):
  """The flags that every runner of suites has."""
  parser.add_argument("--jobs", type=int, default=2, help="files at a time")
  parser.add_argument("--test-seconds", type=float, default=test_seconds, help="limit for one test")
  parser.add_argument("--file-seconds", type=float, default=file_seconds, help="limit for one file")
  parser.add_argument("--fresh", action="store_true", help="forget earlier outcomes of these files")
  parser.add_argument("-k", help="as in pytest", default="")
  parser.add_argument("--records", type=pathlib.Path, metavar="FOLDER", default=records)


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path, nargs="?",
                      help="a JAX source tree at the tag of the installed jax; without it nothing is run")
  parser.add_argument("--files", nargs="+", help="test files without .py (default: all of tests/)")
  parser.add_argument("--only", choices=["vtpu", "cpu"], help="one platform")
  parser.add_argument("--cases", type=int, default=10, help="JAX_NUM_GENERATED_CASES (default 10)")
  add_limits(parser, ROOT / "build/conformance", 120, 1800)
  parser.add_argument("--write", type=pathlib.Path, metavar="PAGE", help="put the tables into this page of Markdown")
  limits = parser.parse_args()
  limits.records = limits.records.resolve()
  if limits.checkout:
    run_all(limits)
  lines = report(limits.records)
  print("\n".join(lines))
  if limits.write:
    write_page(limits.write, lines)


if __name__ == "__main__":
  main()
