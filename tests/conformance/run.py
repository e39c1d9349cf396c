# SPDX-License-Identifier: Apache-2.0
"""Runs JAX's own test files on vtpu (platform tpu) and on XLA:CPU, and compares.

  ./dev conformance PATH_OF_JAX_CHECKOUT [--files lax_test nn_test ...] [--only vtpu|cpu] [--cases 10]

The checkout is of the tag that fits the installed jax (jax-v0.10.2). Two files run at a time, each in a process of its
own. A test that crashes or hangs ends its process; the rest of its file goes on in a new one. What has an outcome in
build/conformance/ is not run again: remove that folder (or pass --fresh) to start over. Writes build/conformance.json
and prints a table by file.
"""
import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_FILES = """
ann_test aot_test api_test array_interoperability_test array_test batching_test buffer_callback_test checkify_test
compilation_cache_test core_test custom_api_test custom_linear_solve_test custom_partitioning_test custom_root_test
debug_nans_test debugging_primitives_test dtypes_test eigh_test error_check_test export_back_compat_test
export_harnesses_multi_platform_test export_test fft_test hijax_test image_test jax_jit_test jet_test key_reuse_test
lax_autodiff_test lax_control_flow_test lax_numpy_einsum_test lax_numpy_hijax_test lax_numpy_indexing_test
lax_numpy_operators_test lax_numpy_reducers_test lax_numpy_setops_test lax_numpy_test lax_numpy_ufuncs_test
lax_numpy_vectorize_test lax_scipy_sparse_test lax_scipy_special_functions_test lax_scipy_spectral_dac_test
lax_scipy_test lax_test lax_vmap_op_test lax_vmap_test layout_test linalg_sharding_test linalg_test lobpcg_test
logging_test memories_test multi_device_test mutable_array_test nn_test ode_test optimizers_test pgle_test pjit_test
pmap_test polynomial_test profiler_test python_callback_test pytorch_interoperability_test qdwh_test
ragged_collective_test random_impl_test random_lax_test random_test scipy_fft_test scipy_interpolate_test
scipy_ndimage_test scipy_optimize_test scipy_signal_test scipy_spatial_test scipy_stats_test shard_alike_test
shard_map_test sparse_bcoo_bcsr_test sparse_test state_test stax_test svd_test tree_util_test unary_ops_accuracy_test
x64_context_test xla_bridge_test
""".split()


def environment(platform, cases):
  env = dict(os.environ)
  for name in ("JAX_PLATFORMS", "TPU_LIBRARY_PATH", "JAX_ENABLE_X64", "XLA_FLAGS"):
    env.pop(name, None)
  env["JAX_NUM_GENERATED_CASES"] = str(cases)
  env["JAX_SKIP_SLOW_TESTS"] = "1"
  env["PYTHONPATH"] = str(HERE)
  if platform == "vtpu":
    env["JAX_PLATFORMS"] = "tpu,cpu"
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


def run_process(command, env, record, log, limits, left):
  """One pytest process; kills it when a test or the file takes too long. Returns how it ended, and its seconds.

  The limits count this loop's turns, about a second each, and not the clock: a machine that was suspended, or a
  session of processes that was stopped, has not used up anybody's time.
  """
  started, seconds, open_test, open_since, killed = time.time(), 0, None, 0, ""
  process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
  while True:
    # wait4 and not Popen.wait: the processor time of this child, its own children included.
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
  add_row(record, event="process", cpu=round(usage.ru_utime + usage.ru_stime, 1), wall=round(time.time() - started, 1))
  return killed or ("exited" if process.returncode in (0, 1, 5) else "crashed"), seconds


def run_file(checkout, name, platform, limits):
  folder = ROOT / "build/conformance" / platform
  folder.mkdir(parents=True, exist_ok=True)
  record = folder / (name + ".jsonl")
  if limits.fresh and record.exists():
    record.unlink()
  if any(row["event"] == "end" for row in rows_of(record)):
    return
  env = environment(platform, limits.cases) | {"VTPU_RECORD": str(record)}
  command = [sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "-p", "no:xdist",
             "--tb=short", f"tests/{name}.py"]
  if limits.k:
    command += ["-k", limits.k]
  left = limits.file_seconds
  with open(folder / (name + ".log"), "a") as log:
    while True:
      before = begun(record)
      end, seconds = run_process(command, env, record, log, limits, left)
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
  add_row(record, event="end", how=end, cases=limits.cases)


def summary(name, platform):
  rows = rows_of(ROOT / "build/conformance" / platform / (name + ".jsonl"))
  tests = {row["test"]: row for row in rows if row["event"] == "outcome"}
  counts = collections.Counter(row["outcome"] for row in tests.values())
  return dict(passed=counts["passed"], failed=counts["failed"], skipped=counts["skipped"],
              crashed=counts["crashed"] + counts["timeout"],
              seconds=round(sum(row["wall"] for row in rows if row["event"] == "process"), 1),
              cpu=round(sum(row["cpu"] for row in rows if row["event"] == "process"), 1),
              end=next((row["how"] for row in rows if row["event"] == "end"), "not run"), tests=tests)


def table_row(cells):
  return "| " + " | ".join(str(cell) for cell in cells) + " |"


def report(files, platforms):
  result = {name: {platform: summary(name, platform) for platform in platforms} for name in files}
  (ROOT / "build/conformance.json").write_text(json.dumps(result, indent=1))
  columns = ["passed", "failed", "skipped", "crashed", "cpu"]
  print(table_row(["file"] + [f"{platform} {column}" for platform in platforms for column in columns]))
  print(table_row(["---"] * (1 + len(platforms) * len(columns))))
  total, cpu = collections.Counter(), collections.Counter()
  for name in files:
    sides = [result[name][platform] for platform in platforms]
    print(table_row([name] + [round(side[column]) for side in sides for column in columns]))
    if len(sides) < 2 or any(side["end"] != "exited" for side in sides):
      continue
    ours, theirs = (side["tests"] for side in sides)
    cpu.update({platform: side["cpu"] for platform, side in zip(platforms, sides)})
    for test, row in theirs.items():
      if row["outcome"] == "passed" and test in ours and ours[test]["outcome"] != "skipped":
        total["comparable"] += 1
        total["passed"] += ours[test]["outcome"] == "passed"
  if total["comparable"]:
    print(f"of {total['comparable']} tests that pass on XLA:CPU and are not skipped on tpu, {total['passed']} pass on vtpu: "
          f"{100 * total['passed'] / total['comparable']:.2f} %")
    print(f"processor seconds of these files: vtpu {cpu['vtpu']:.0f}, XLA:CPU {cpu['cpu']:.0f}")


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path, help="a JAX source tree at the tag of the installed jax")
  parser.add_argument("--files", nargs="+", default=DEFAULT_FILES, help="test files without .py")
  parser.add_argument("--only", choices=["vtpu", "cpu"], help="one platform")
  parser.add_argument("--cases", type=int, default=10, help="JAX_NUM_GENERATED_CASES (default 10)")
  parser.add_argument("--jobs", type=int, default=2, help="files at a time")
  parser.add_argument("--test-seconds", type=float, default=120, help="limit for one test")
  parser.add_argument("--file-seconds", type=float, default=1800, help="limit for one file")
  parser.add_argument("--fresh", action="store_true", help="forget earlier outcomes of these files")
  parser.add_argument("-k", help="as in pytest", default="")
  limits = parser.parse_args()
  if not (limits.checkout / "tests/lax_test.py").exists():
    sys.exit(f"{limits.checkout} is not a JAX checkout: it has no tests/lax_test.py")
  platforms = [limits.only] if limits.only else ["vtpu", "cpu"]
  files = [name.removesuffix(".py") for name in limits.files]
  work = [(name, platform) for name in files for platform in platforms]
  lock = threading.Lock()

  def worker():
    while True:
      with lock:
        if not work:
          return
        name, platform = work.pop(0)
        print(f"[{len(work)} left] {name} on {platform}", file=sys.stderr, flush=True)
      run_file(limits.checkout, name, platform, limits)

  os.chdir(limits.checkout)
  threads = [threading.Thread(target=worker) for _ in range(limits.jobs)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  report(files, platforms)


if __name__ == "__main__":
  main()
