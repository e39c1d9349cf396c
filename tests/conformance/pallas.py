# SPDX-License-Identifier: Apache-2.0
"""Runs JAX's tests of Pallas kernels on vtpu, each file on the slice that it wants.

  ./dev conformance --pallas PATH_OF_JAX_CHECKOUT [--files tpu_ops_test ...] [--cases 10]

The files of tests/pallas that a TPU runs, on one chip generation each or, where kernels share two cores, on a second
one. Modules that tests import and JAX's package does not contain come from the checkout. Tests with an outcome in
build/pallas/ are not run again. At the end it prints a table by file and slice, and what failed.
"""
import argparse
import pathlib

import run

# One line for each: the slice, then its files, those that take longest last.
SLICES = {
  "v5litepod-8": """
    tpu_info_test tpu_trace_value_test tpu_side_effects_test tpu_all_gather_test tpu_pallas_call_print_test
    tpu_pallas_state_test tpu_pallas_memory_space_test tpu_pallas_async_test tpu_pallas_distributed_test
    tpu_pallas_random_test tpu_pallas_mpmd_test export_back_compat_pallas_test pallas_error_handling_test
    pallas_shape_poly_test pallas_vmap_test pallas_cost_estimate_test pallas_lowering_determinism_test pallas_test
    indexing_test fusion_test fuser_utils_test fuser_block_spec_test einshape_test einshape_parse_test
    pipelining/schedule_api_test pipelining/schedulers_test tpu_splash_attention_mask_test tpu_pallas_test tpu_ops_test
    tpu_fusible_matmul_with_stateful_fusions_test tpu_gmm_test tpu_splash_attention_kernel_sharded_test
    tpu_ragged_paged_attention_test tpu_fusible_matmul_test tpu_splash_attention_kernel_test tpu_pallas_pipeline_test
    tpu_paged_attention_kernel_test ops_test""",
  "v4-8": "tpu_pallas_distributed_test tpu_pallas_mpmd_test tpu_info_test tpu_pallas_pipeline_test "
          "tpu_paged_attention_kernel_test",
  "v6e-8": "tpu_pallas_distributed_test tpu_pallas_async_test tpu_pallas_memory_space_test tpu_pallas_test",
}


def record_of(records, file, slice):
  return records / slice / (file.replace("/", "-") + ".jsonl")


def run_all(limits):
  work = [(file, slice) for slice, files in SLICES.items() for file in files.split()
          if (not limits.files or file in limits.files) and (not limits.slice or slice == limits.slice)]

  def one(job, left):
    file, slice = job
    run.say(left, f"{file} on {slice}")
    env = run.environment("vtpu", limits.cases) | {"VTPU_ACCELERATOR_TYPE": slice, "VTPU_JAX_CHECKOUT": str(limits.checkout)}
    run.run_record([f"tests/pallas/{file}.py"], limits.checkout, env, record_of(limits.records, file, slice), limits)

  run.run_jobs(work, limits.jobs, one)


def report(records):
  lines = ["| file | slice | passed | failed | crashed | skipped | of those not skipped pass | CPU s |", "|" + "---|" * 8]
  failures, passed, tried = [], 0, 0
  for slice, files in SLICES.items():
    for file in files.split():
      side = run.summary(record_of(records, file, slice))
      if not side["tests"]:
        continue
      count = side["passed"] + side["failed"] + side["crashed"]
      passed, tried = passed + side["passed"], tried + count
      share = f"{100 * side['passed'] / count:.1f} %" if count else ""
      name = file if side["end"] == "exited" else f"{file} ({side['end']})"
      cells = [name, slice, side["passed"], side["failed"], side["crashed"], side["skipped"], share, round(side["cpu"])]
      lines.append("| " + " | ".join(map(str, cells)) + " |")
      failures += [f"{slice} {test}: {row['outcome']}: {' '.join(row.get('message', '').split())[:160]}"
                   for test, row in sorted(side["tests"].items()) if row["outcome"] not in ("passed", "skipped")]
  return lines + ["", f"{passed} of {tried} pass: {100 * passed / max(tried, 1):.2f} %.", ""] + failures


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path, nargs="?", help="a JAX source tree; without it nothing is run")
  parser.add_argument("--files", nargs="+", help="test files without .py (default: all of SLICES)")
  parser.add_argument("--slice", choices=SLICES, help="only this one")
  parser.add_argument("--cases", type=int, default=10, help="JAX_NUM_GENERATED_CASES (default 10)")
  run.add_limits(parser, run.ROOT / "build/pallas", 900, 14400)
  limits = parser.parse_args()
  limits.records = limits.records.resolve()
  if limits.checkout:
    limits.checkout = limits.checkout.resolve()
    run_all(limits)
  print("\n".join(report(limits.records)))


if __name__ == "__main__":
  main()
