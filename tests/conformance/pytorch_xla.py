# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch/XLA's own tests on vtpu, each file on the slice that it wants, and with PyTorch/XLA's CPU backend.

  ./dev conformance --pytorch-xla PATH_OF_CHECKOUT [--files test_operations spmd/test_fsdp_v2 ...] [--only vtpu|cpu]

The checkout of pytorch/xla must be the tag that fits the installed torch_xla (v2.9.0). Each file runs under `vtpu run`,
on the CPU with as many devices as the slice has chips. Tests with an outcome in build/pytorch-xla/ are not run again. At
the end it prints a table by file, and every test that does not pass here but does on the CPU.
"""
import argparse
import ast
import glob
import json
import os
import pathlib
import re
import shutil
import sys
import time

import absl.flags
import run

# The files of test/ that upstream's scripts run on a TPU or on the CPU and some beside them, by slice. Not here: training
# scripts (their models download data), those that need TensorFlow, and those that torchrun starts.
SLICES = {
  "v5litepod-1": """
    test_operations test_operations_hlo test_ops_error_message test_ops_error_message_functionalization_disabled
    test_xla_graph_execution test_async_closures test_hlo_metadata test_profiler_session test_python_ops test_metrics
    test_deprecation test_data_type test_fp8 test_env_var_mapper test_while_loop test_gru test_as_stride_use_slice
    test_placeholder test_autocast test_autocast_xla test_callback test_assume_pure test_assume_pure_torch
    test_dynamic_shapes_detector test_gradient_accumulation test_grad_checkpoint test_input_output_aliases
    test_inplace_update test_compilation_cache_utils test_persistent_cache test_devices test_manual_xla_registration
    test_mat_mul_precision test_mat_mul_precision_get_and_set test_python_backend test_syncfree_optimizers
    test_user_computation_debug_cache test_core_aten_ops test_pallas test_gmm
    test_quantized_matmul_pallas_kernel test_jax_interop test_torch_distributed_xla_backend
    scan/test_scan scan/test_scan_layers scan/test_scan_debug scan/test_scan_pallas
    eager/test_eager eager/test_eager_with_xla_compile eager/test_eager_with_torch_compile
    dynamo/test_bridge dynamo/test_dynamo dynamo/test_dynamo_aliasing dynamo/test_dynamo_config
    dynamo/test_dynamo_dynamic_shape dynamo/test_dynamo_graph_dump dynamo/test_dynamo_integrations_util
    dynamo/test_graph_input_matcher dynamo/test_none_remover dynamo/test_num_output
    pjrt/test_dtypes pjrt/test_internal_tpu pjrt/test_runtime debug_tool/test_pt_xla_debug
    quantized_ops/test_dot_general quantized_ops/test_quantized_matmul
    stablehlo/test_composite stablehlo/test_exports stablehlo/test_export_fx_passes stablehlo/test_implicit_broadcasting
    stablehlo/test_mlir_debuginfo stablehlo/test_pt2e_qdq stablehlo/test_stablehlo_compile
    stablehlo/test_stablehlo_custom_call stablehlo/test_stablehlo_inference stablehlo/test_stablehlo_save_load
    stablehlo/test_unbounded_dynamism stablehlo/test_xla_export_interpreter stablehlo/test_export_llama""",
  "v5litepod-4": """
    pjrt/test_runtime_tpu spmd/test_dtensor_redistribute spmd/test_sharding_strategies test_splash_attention
    test_mp_replication test_mp_all_gather test_mp_sync_batch_norm eager/test_eager_all_reduce_in_place""",
  "v5litepod-8": """
    test_assume_pure_spmd test_pallas_spmd test_zero1 test_fsdp_auto_wrap
    test_mp_all_to_all test_mp_reduce_scatter test_mp_distributed_mm test_mp_save
    test_mp_mesh_reduce test_mp_collective_permute test_mp_collective_matmul scan/test_scan_spmd eager/test_eager_spmd
    dynamo/test_traceable_collectives pjrt/test_collective_ops_tpu pjrt/test_dynamic_plugin_tpu
    pjrt/test_ddp pjrt/test_mesh_service debug_tool/test_mp_pt_xla_debug
    torch_distributed/test_ddp torch_distributed/test_torch_distributed_all_gather_xla_backend
    torch_distributed/test_torch_distributed_all_reduce_xla_backend
    torch_distributed/test_torch_distributed_bucketed_all_reduce_xla_backend
    torch_distributed/test_torch_distributed_fsdp_meta
    torch_distributed/test_torch_distributed_multi_all_reduce_xla_backend
    torch_distributed/test_torch_distributed_reduce_scatter_xla_backend
    spmd/test_dtensor_convert_mesh spmd/test_dtensor_integration spmd/test_dtensor_integration2
    spmd/test_dtensor_integration3 spmd/test_dynamo_spmd spmd/test_fsdp_v2 spmd/test_mp_input_sharding
    spmd/test_spmd_debugging spmd/test_spmd_graph_dump spmd/test_spmd_lowering_context
    spmd/test_spmd_parameter_wrapping spmd/test_train_spmd_linear_model spmd/test_xla_auto_sharding
    spmd/test_xla_distributed_checkpoint spmd/test_xla_dtensor_placements spmd/test_xla_dtensor_spec_conversion
    spmd/test_xla_sharded_tensor spmd/test_xla_sharding spmd/test_xla_sharding_hlo
    spmd/test_xla_spmd_python_api_interaction spmd/test_xla_virtual_device""",
}

# As upstream's scripts set them.
HLO_FILE = {"XLA_SAVE_TENSORS_FILE": "/tmp/save1.hlo", "XLA_SAVE_TENSORS_FMT": "hlo"}
DEBUG = {"PT_XLA_DEBUG": "1", "PT_XLA_DEBUG_FILE": "/tmp/pt_xla_debug.txt"}
VARIABLES = {
  "test_env_var_mapper": {"XLA_HLO_DEBUG": "1"},
  "test_user_computation_debug_cache": {"XLA_IR_DEBUG": "1", "XLA_HLO_DEBUG": "1"},
  "scan/test_scan_debug": {"XLA_HLO_DEBUG": "1"},
  "stablehlo/test_stablehlo_inference": {"XLA_HLO_DEBUG": "1"},
  "stablehlo/test_stablehlo_save_load": {"XLA_HLO_DEBUG": "1"},
  "spmd/test_spmd_lowering_context": HLO_FILE,
  "spmd/test_spmd_graph_dump": HLO_FILE,
  "spmd/test_spmd_parameter_wrapping": {"XLA_PARAMETER_WRAPPING_THREADSHOLD": "1"},
  "spmd/test_dtensor_integration3": {"XLA_DISABLE_FUNCTIONALIZATION": "1"},
  "dynamo/test_dynamo_graph_dump": {"XLA_SAVE_TENSORS_FILE": "/tmp/save1.ir", "XLA_SAVE_TENSORS_FMT": "text"},
  "debug_tool/test_pt_xla_debug": DEBUG,
  "debug_tool/test_mp_pt_xla_debug": DEBUG,
}

# A process for each chip, as without vtpu run's bounds: threads would share Dynamo, metrics and random numbers.
PROCESSES = {"pjrt/test_runtime_tpu", "eager/test_eager_all_reduce_in_place", "test_mp_replication", "test_mp_all_gather",
             "test_mp_sync_batch_norm"}
# They clear the environment or replace the metadata server, which a TPU VM has: the runner answers for it.
METADATA = {"pjrt/test_internal_tpu", "pjrt/test_runtime"}
RUNS = re.compile(r"main\(|test\.|run_tests|suite|result|exit\(")  # statements that run tests, as pytest does here
STARTS = re.compile(r"launch\(|spawn\(")  # statements that start the processes in which the tests are


def environment(file, slice, platform, tests):
  env = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "XLA_FLAGS")}
  env |= {"PYTHONPATH": os.pathsep.join([str(run.HERE), str(tests)] + env.get("PYTHONPATH", "").split(os.pathsep)),
          "PYTORCH_TEST_WITH_SLOW": "1"} | VARIABLES.get(file, {})
  if platform == "cpu":
    env |= {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": slice.split("-")[1]}
  return env


def main_block(source):
  """The statements that a file runs as a program."""
  return [line for block in ast.parse(source).body if isinstance(block, ast.If) and "__main__" in ast.unparse(block.test)
          for line in block.body]


def pytest_configure(config):
  """As a plugin of pytest: these files look for their neighbours beside the program, and some read its arguments."""
  sys.argv = [os.path.abspath(config.args[0])]
  sys.path.insert(0, os.path.dirname(sys.argv[0]))
  if config.args[0].removesuffix(".py") in METADATA and "TPU_SKIP_MDS_QUERY" in os.environ:
    serve_metadata()


def serve_metadata():
  """Stands in for a TPU VM's metadata server, which knows what vtpu run says in variables."""
  from torch_xla._internal import tpu
  answers = {"tpu-env": json.dumps(tpu.build_tpu_env_from_vars()), "worker-network-endpoints": "worker:0:127.0.0.1"}
  tpu._get_metadata = answers.__getitem__
  del os.environ["TPU_SKIP_MDS_QUERY"]


def pytest_collection_finish(session):
  """As a plugin of pytest: what these files do before their tests when they are run as programs."""
  absl.flags.FLAGS.mark_as_parsed()
  for module in {item.module for item in session.items}:
    lines = [line for line in main_block(pathlib.Path(module.__file__).read_text()) if not RUNS.search(ast.unparse(line))]
    exec(compile(ast.Module(lines, []), module.__file__, "exec"), vars(module))


def record_of(records, file, platform):
  return records / platform / (file.replace("/", "-") + ".jsonl")


def run_program(command, tests, env, record, limits):
  """A file without tests is one: it passes when it ends with 0."""
  record.parent.mkdir(parents=True, exist_ok=True)
  record.unlink(missing_ok=True)
  run.add_row(record, event="start", test=command[-1], time=time.time())
  with open(record.with_suffix(".log"), "w") as log:
    end, seconds = run.run_process(command, tests, env, record, log, limits, limits.file_seconds)
  said = record.with_suffix(".log").read_text().splitlines()
  passed = run.rows_of(record)[-1]["status"] == 0
  run.add_row(record, event="outcome", test=command[-1], outcome="passed" if passed else "failed", seconds=seconds,
              message="" if passed else f"{end}: {said[-1] if said else ''}")
  run.add_row(record, event="end", how="exited", cases=0)


def run_all(limits):
  # A copy, for the checkout has a torch_xla that is not built and that its tests would find.
  for folder in ("test", "examples"):
    shutil.copytree(limits.checkout / folder, limits.records / "tree" / folder, dirs_exist_ok=True)
  tests = limits.records / "tree/test"
  work = [(file, slice, platform) for slice, files in SLICES.items() for file in files.split()
          if not limits.files or file in limits.files
          for platform in ([limits.only] if limits.only else run.PLATFORMS)]

  def one(job, left):
    file, slice, platform = job
    run.say(left, f"{file} on {slice if platform == 'vtpu' else 'the CPU'}")
    prefix = [str(run.ROOT / "build/release/bin/vtpu"), "run", "-t", slice, "--"] if platform == "vtpu" else []
    if prefix and file in PROCESSES:
      prefix += ["env", "-u", "TPU_PROCESS_BOUNDS", "-u", "TPU_CHIPS_PER_PROCESS_BOUNDS"]
    for name, value in VARIABLES.get(file, {}).items():
      for old in glob.glob(value + "*") if name.endswith("_FILE") else ():
        os.remove(old)  # an earlier file's tests appended to it
    env, record = environment(file, slice, platform, tests), record_of(limits.records, file, platform)
    # No functions: two files have a method outside its class, which upstream does not run either.
    source = (tests / f"{file}.py").read_text()
    if "def test_" in source and not any(STARTS.search(ast.unparse(line)) for line in main_block(source)):
      run.run_record(["-p", "pytorch_xla", "-o", "python_functions=", f"{file}.py"], tests, env, record, limits, prefix=prefix)
    elif limits.fresh or not run.rows_of(record):
      run_program(prefix + [sys.executable, f"{file}.py"], tests, env, record, limits)

  run.run_jobs(work, limits.jobs, one)


def report(records):
  lines = ["| file | slice | passed | failed | skipped | CPU: passed | failed | skipped |", "|" + "---|" * 8]
  differences, passed, comparable = [], 0, 0
  for slice, files in SLICES.items():
    for file in files.split():
      ours, theirs = (run.summary(record_of(records, file, platform)) for platform in run.PLATFORMS)
      if not ours["tests"] and not theirs["tests"]:
        continue
      name = file if ours["end"] == "exited" else f"{file} ({ours['end']})"
      counts = [side[outcome] + (side["crashed"] if outcome == "failed" else 0) for side in (ours, theirs)
                for outcome in ("passed", "failed", "skipped")]
      lines.append("| " + " | ".join(map(str, [name, slice] + counts)) + " |")
      for test, row in sorted(ours["tests"].items()):
        there = theirs["tests"].get(test, {"outcome": "not run"})["outcome"]
        if there == "passed" and row["outcome"] != "skipped":
          passed, comparable = passed + (row["outcome"] == "passed"), comparable + 1
        if row["outcome"] not in ("passed", "skipped"):
          differences.append(f"{test}: {row['outcome']} (CPU: {there}): {' '.join(row.get('message', '').split())[:160]}")
  return lines + ["", f"Of {comparable} tests that pass on the CPU and are not skipped here {passed} pass: "
                  f"{100 * passed / max(comparable, 1):.2f} %.", ""] + differences


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path, nargs="?", help="a source tree of pytorch/xla; without it nothing is run")
  parser.add_argument("--files", nargs="+", help="test files without .py (default: all of SLICES)")
  parser.add_argument("--only", choices=run.PLATFORMS, help="one platform")
  run.add_limits(parser, run.ROOT / "build/pytorch-xla", 600, 7200)
  limits = parser.parse_args()
  limits.records, limits.cases = limits.records.resolve(), 0
  if limits.checkout:
    limits.checkout = limits.checkout.resolve()
    run_all(limits)
  print("\n".join(report(limits.records)))


if __name__ == "__main__":
  main()
