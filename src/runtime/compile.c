// SPDX-License-Identifier: Apache-2.0
// compile.c - from the bytes of a program to an executable. vt_executable_compile_own is the
// pipeline: each stage is one line, in the order in which docs/architecture.md draws them.
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "import/import.h"
#include "mosaic/mosaic.h"
#include "mosaic_host/mosaic_host.h"
#include "passes/passes.h"
#include "spmd/spmd.h"

static vt_bytes copy_bytes(vt_arena *arena, vt_bytes bytes) {
  return (vt_bytes){(const uint8_t *)vt_arena_copy(arena, bytes.data, bytes.size), bytes.size};
}

static bool transfers(const vt_op *op) {
  return op->code == VT_OP_SEND || op->code == VT_OP_RECV || op->code == VT_OP_INFEED ||
         op->code == VT_OP_OUTFEED;
}

static bool is_zero(const vt_value *value) {
  while (value->op &&
         (value->op->code == VT_OP_BROADCAST_IN_DIM || value->op->code == VT_OP_RESHAPE))
    value = value->op->operands[0];
  if (!value->op || value->op->code != VT_OP_CONSTANT) return false;
  const vt_literal *literal = vt_attr_literal(value->op, VT_ATTR_VALUE);
  if (!literal || (!literal->splat && literal->type.rank)) return false;
  const char *bytes = literal->data;
  for (size_t i = 0; i < vt_dtype_bytes(literal->type.dtype); i++)
    if (bytes[i]) return false;
  return true;
}

// Programs that only create zeros (optimizer states, accumulators) need no run, and large zeros no
// memory until used.
static bool makes_zeros(const vt_module *module) {
  const vt_func *main = module->main;
  if (main->return_count == 0) return false;
  for (const vt_op *op = main->first; op; op = op->next)
    if (vt_op_info_get(op->code)->flags & VT_OPF_EFFECT || op->code == VT_OP_CUSTOM_CALL)
      return false;
  for (uint32_t i = 0; i < main->return_count; i++)
    if (!is_zero(main->returns[i])) return false;
  return true;
}

// VTPU_EXECUTE=0 runs nothing: programs are predicted, and their results are zeros.
static bool is_unexecuted(void) {
  const char *wanted = getenv("VTPU_EXECUTE");
  return wanted && !strcmp(wanted, "0");
}

static void make_empty(vt_func *main) {
  vt_arena *arena = &main->module->arena;
  vt_value **zeros = VT_NEW_ARRAY(arena, vt_value *, main->return_count + 1);
  main->first = main->last = NULL;
  main->holders_known = main->numbered = false;
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_type type = main->returns[i]->type;
    if (type.dtype == VT_TOKEN) {
      zeros[i] = vt_build(main, NULL, VT_OP_CREATE_TOKEN, &vt_loc_unknown, type, 0, NULL);
      continue;
    }
    vt_literal *literal = VT_NEW(arena, vt_literal);
    size_t bytes = vt_dtype_bytes(type.dtype);
    *literal = (vt_literal){type, VT_NEW_ARRAY(arena, char, bytes + 1), true};
    zeros[i] = vt_build_constant(main, NULL, &vt_loc_unknown, literal);
  }
  vt_func_set_returns(main, main->return_count, zeros);
}

static bool is_manual(const vt_op *op) {
  return op->code == VT_OP_MANUAL_COMPUTATION;
}

static vt_status assign_devices(vt_executable *executable, vt_module *module) {
  const vt_executable_options *options = &executable->options;
  int32_t count = vt_slice_devices(&executable->slice);
  if (options->alone) module->num_replicas = 1;
  int32_t partitions = options->partitions ? options->partitions : module->num_partitions;
  int32_t replicas = options->replicas ? options->replicas : module->num_replicas;
  if (replicas < 1 || partitions < 1 || partitions > INT32_MAX / replicas)
    return vt_error(VT_INVALID_ARGUMENT, "%d replicas of %d partitions", replicas, partitions);
  partitions *= replicas;
  if (partitions > count)
    return vt_error(VT_INVALID_ARGUMENT, "the program is for %d devices; %s has %d", partitions,
                    executable->slice.name, count);
  int32_t *ids = VT_NEW_ARRAY(&executable->arena, int32_t, partitions);
  for (int32_t i = 0; i < partitions; i++) {
    ids[i] = options->device_ids ? options->device_ids[i] : i;
    if (ids[i] < 0 || ids[i] >= count)
      return vt_error(VT_INVALID_ARGUMENT, "the program is for device %d; %s has %d devices",
                      ids[i], executable->slice.name, count);
  }
  executable->info.partitions = partitions;
  executable->info.replicas = replicas;
  executable->info.device_ids = ids;
  if (module->num_replicas > 1 && module->num_replicas != replicas)
    return vt_error(VT_INVALID_ARGUMENT, "the program has %d replicas, the options say %d",
                    module->num_replicas, replicas);
  int32_t asked = module->num_partitions;
  if (asked > 1 && asked != partitions / replicas)
    return vt_error(VT_INVALID_ARGUMENT, "the program has %d partitions, the options say %d", asked,
                    partitions / replicas);
  module->num_replicas = replicas;
  module->num_partitions = partitions / replicas;
  return VT_OK;
}

// VTPU_MATMUL_PRECISION=float32 asks for plain f32 where a program says DEFAULT.
static bool exact_dots_wanted(void) {
  const char *precision = getenv("VTPU_MATMUL_PRECISION");
  return precision && (!strcmp(precision, "float32") || !strcmp(precision, "highest"));
}

// VTPU_EVALUATOR=1 runs every program on the kernels of src/eval alone, to tell a bug in a kernel
// from one in generated code.
static bool evaluator_wanted(void) {
  const char *wanted = getenv("VTPU_EVALUATOR");
  return wanted && !strcmp(wanted, "1");
}

// VTPU_PALLAS=evaluator runs TPU kernels op by op, to tell a bug in their code from one in what the
// ops mean; VTPU_PALLAS=code compiles small ones too.
static bool kernels_are(const char *wanted) {
  const char *given = getenv("VTPU_PALLAS");
  return given && !strcmp(given, wanted);
}

// VTPU_PALLAS_CHECK=N checks what TPU kernels do (src/mosaic/mosaic_check.h); N, from 1 on, chooses
// the order of their copies.
static uint64_t check_seed(void) {
  const char *given = getenv("VTPU_PALLAS_CHECK");
  return given ? strtoull(given, NULL, 10) : 0;
}

// VTPU_PARTITIONED=1 runs the program of one device, on all devices in lockstep, instead of the
// program on whole arrays: what a real slice would do, checked by its results.
static vt_status partition(const vt_executable *executable, vt_module *module) {
  int32_t devices = executable->info.partitions;
  const char *wanted = getenv("VTPU_PARTITIONED");
  if (devices == 1 || !wanted || strcmp(wanted, "1")) return VT_OK;
  const vt_func *whole = module->main;
  VT_TRY(vt_partition_for(module, devices, &(vt_partition_options){.exact = true}));
  VT_TRY(vt_executable_collectives(executable, module));
  return vt_spmd_lockstep(module, whole, devices);
}

static vt_status describe(vt_executable *executable, const vt_module *module) {
  executable->info.name =
      vt_arena_printf(&executable->arena, "%s", module->name ? module->name : "");
  executable->transfers = vt_module_any(module, transfers);
  executable->manual = vt_module_any(module, is_manual);
  return vt_executable_signature(executable, module);
}

static vt_status optimise(const vt_host_options *host, vt_module *module) {
  if (host->evaluator_only) return VT_OK; // op by op, as written
  vt_pass_options options = vt_host_passes(host->exact_dots);
  return vt_passes_run(module, &options);
}

// Takes the module.
static vt_status generate(vt_executable *executable, const vt_host_options *host,
                          vt_module **module) {
  vt_module *taken = *module;
  *module = NULL;
  executable->zeros = executable->unexecuted || makes_zeros(taken);
  vt_status st = vt_decompose_forget(taken);
  if (st) {
    vt_module_destroy(taken);
    return st;
  }
  bool compiled = !host->evaluator_only && !executable->unexecuted;
  if (compiled && !kernels_are("evaluator") && !check_seed())
    st = vt_mkernels_compile(taken, host->exact_dots, kernels_are("code"), &executable->kernels);
  if (st) {
    vt_module_destroy(taken);
    return st;
  }
  VT_TRY(vt_host_compile(taken, host, &executable->program));
  executable->info.code_bytes =
      vt_program_code_bytes(executable->program) + vt_mkernels_code_bytes(executable->kernels);
  executable->tiny =
      executable->zeros || (vt_program_is_quick(executable->program) && !executable->transfers);
  if (executable->unexecuted) executable->transfers = false;
  return VT_OK;
}

// Equal in all processes that compile the same program for the same devices: what differs between
// them are places in the user's source, and options without influence on results, such as a folder.
uint64_t vt_executable_fingerprint(const vt_executable *executable, uint64_t hash) {
  const vt_executable_options *options = &executable->options;
  const vt_executable_info *info = &executable->info;
  hash = vt_hash_bytes(executable->slice.name, strlen(executable->slice.name), hash);
  hash = vt_hash_bytes(info->device_ids, (size_t)info->partitions * sizeof(int32_t), hash);
  hash = vt_hash_u64((uint64_t)info->replicas, hash);
  int flags = options->own_arrays + 2 * options->alone + 4 * options->exact_dots;
  return vt_hash_u64((uint64_t)flags, hash);
}

static vt_status read_program(vt_executable *executable, vt_module **module) {
  const vt_union *all = executable->options.all;
  if (all) return vt_union_import(all, &executable->arena, module);
  return vt_import_for(executable->info.program, executable->options.partitions, module);
}

// The pipeline. Each stage takes the program and executable as the previous stages left them.
static vt_status run_stages(vt_executable *executable, vt_module **module) {
  vt_executable_info *info = &executable->info;
  bool own_arrays = executable->options.own_arrays;
  // bytes -> a verified module, as the user wrote it
  VT_TRY(read_program(executable, module));
  executable->described = vt_compiled_describe(*module, &executable->arena);
  // the texts of TPU kernels -> kernels attached to their calls
  const vt_chip *chip = executable->slice.chip;
  vt_mosaic_options kernels = {
      .chip = chip->topology, .cores = chip->cores / chip->devices, .check_seed = check_seed()};
  VT_TRY(vt_mosaic_attach(*module, &kernels));
  // the options' devices -> who runs it
  VT_TRY(assign_devices(executable, *module));
  info->fingerprint = vt_executable_fingerprint(executable, vt_module_hash(*module));
  vt_host_options host = {.exact_dots = executable->options.exact_dots || exact_dots_wanted(),
                          .evaluator_only = evaluator_wanted()};
  // replicas -> one program over all devices
  VT_TRY(vt_spmd_from_replicas(*module, own_arrays && !(*module)->mesh_count));
  // parameters and results that do not divide -> whole tiles
  VT_TRY(vt_spmd_whole_tiles(*module));
  // shardings and layouts -> which part of each parameter and result is where, and its layout
  VT_TRY(describe(executable, *module));
  // VTPU_PARTITIONED: the module -> the program of one device, on all devices
  VT_TRY(partition(executable, *module));
  // several processes: the module -> the part of this one
  VT_TRY(vt_executable_cut(executable, module));
  // values that differ between devices -> an extra dimension
  if (executable->parts == 1) VT_TRY(vt_io_expand_partials(executable, *module));
  bool by_part = executable->parts > 1 && !executable->manual;
  host.device_count = by_part ? executable->parts : info->partitions;
  host.only = executable->part;
  host.part_of = executable->part_of;
  // the module -> an optimised one with the same results (passes/pipeline.def)
  if (!executable->unexecuted) VT_TRY(optimise(&host, *module));
  if (host.part_of && !executable->unexecuted && !vt_host_part_ready(*module))
    return vt_error(VT_INTERNAL, "%s is cut over processes, but does not run so; VTPU_SPLIT=1",
                    info->name);
  // the module -> the least HBM that it needs; more than a core has is an error
  VT_TRY(vt_executable_account(executable, *module));
  // the module -> time on the chip
  info->roofline = vt_chip_roofline(&executable->slice, vt_executable_share(executable), *module,
                                    vt_mosaic_said);
  // VTPU_EXECUTE=0: the module -> one that makes zeros
  if (executable->unexecuted) make_empty((*module)->main);
  // the module -> code for this machine
  return generate(executable, &host, module);
}

typedef struct compiling {
  vt_bytes program;
  vt_executable *executable;
  vt_module *module;
} compiling;

static vt_status compile(void *user) {
  compiling *c = user;
  vt_executable *executable = c->executable;
  vt_executable_info *info = &executable->info;
  info->program = copy_bytes(&executable->arena, c->program);
  info->options = copy_bytes(&executable->arena, executable->options.bytes);
  if (executable->options.xla_flags)
    executable->options.xla_flags =
        vt_arena_printf(&executable->arena, "%s", executable->options.xla_flags);
  return run_stages(executable, &c->module);
}

vt_status vt_executable_compile_own(const vt_slice *slice, vt_bytes program,
                                    const vt_executable_options *options, const bool *own,
                                    vt_executable **out_executable) {
  *out_executable = NULL;
  VT_TRY(vt_fork_check());
  vt_executable *executable = calloc(1, sizeof *executable);
  if (!executable) return vt_error_no_memory();
  atomic_init(&executable->refs, 1);
  pthread_mutex_init(&executable->others_lock, NULL);
  executable->slice = *slice;
  executable->options = *options;
  executable->own = own;
  executable->unexecuted = is_unexecuted();
  vt_split_copy(options->split, vt_slice_devices(slice), &executable->arena, &executable->split);
  executable->options.split = &executable->split;
  compiling c = {.program = program, .executable = executable};
  vt_attempt attempt;
  vt_clock_time begun = vt_clock_now();
  vt_status st = vt_attempt_run(&attempt, compile, &c);
  if (st) {
    vt_module_destroy(c.module);
    vt_executable_release(executable);
  } else {
    if (!own && !options->alone && !options->all) {
      vt_compiled_add(executable, vt_clock_now().wall_ns - begun.wall_ns);
      executable->predicted = vt_predicted_add(executable);
    }
    vt_clock_compiled();
    *out_executable = executable;
  }
  vt_attempt_end(&attempt);
  return st;
}

vt_status vt_executable_compile(const vt_slice *slice, vt_bytes program,
                                const vt_executable_options *options,
                                vt_executable **out_executable) {
  return vt_executable_compile_own(slice, program, options, NULL, out_executable);
}
