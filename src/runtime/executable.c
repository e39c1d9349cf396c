// SPDX-License-Identifier: Apache-2.0
// executable.c - a compiled program with what its callers ask about it: signature, places, memory,
// estimate.
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "import/import.h"
#include "spmd/spmd.h"

static vt_type copy_type(vt_arena *arena, vt_type type) {
  return vt_type_make(arena, type.dtype, type.rank, type.dims);
}

static vt_bytes copy_bytes(vt_arena *arena, vt_bytes bytes) {
  return (vt_bytes){(const uint8_t *)vt_arena_copy(arena, bytes.data, bytes.size), bytes.size};
}

static const char *layout_text(vt_arena *arena, const int32_t *order, int32_t rank) {
  vt_text text = {0};
  vt_layout_put(order, rank, &text);
  const char *copy = vt_arena_copy(arena, text.data, text.size);
  vt_text_free(&text);
  return copy;
}

static void set_layout(vt_executable *executable, const char *layout, vt_io *io) {
  const vt_chip *chip = executable->slice.chip;
  io->custom_layout = !vt_layout_is_default(chip, io->memory, io->shard, layout);
  io->layout = layout;
}

// A layout that the program asks for is kept; left to the compiler ("auto") it is row-major, the
// order in which this compiler works; otherwise the default is spelled out.
static vt_status io_layout(vt_executable *executable, const vt_io_info *info, vt_io *io) {
  vt_arena *arena = &executable->arena;
  const char *mode = info && info->layout_mode ? info->layout_mode : "";
  int32_t order[VT_MAX_RANK] = {0}, rank = io->type.rank;
  vt_layout_default(executable->slice.chip, io->memory, io->shard, order);
  if (!strcmp(mode, "auto"))
    for (int32_t i = 0; i < rank; i++) order[i] = rank - 1 - i;
  if (mode[0] == '{' && !vt_layout_read(mode, rank, order))
    return vt_error(VT_INVALID_ARGUMENT, "layout \"%s\" does not fit an array of %d dimensions",
                    mode, rank);
  set_layout(executable,
             mode[0] == '{' ? vt_arena_printf(arena, "%s", mode) : layout_text(arena, order, rank),
             io);
  return VT_OK;
}

static vt_status io_fill(vt_executable *executable, const vt_value *value, const vt_io_info *info,
                         vt_io *io) {
  vt_arena *arena = &executable->arena;
  *io = (vt_io){
      .type = copy_type(arena, value->type), .replicated = true, .versions = 1, .alias = -1};
  io->shard = io->type;
  const char *kind = info && info->memory_kind ? info->memory_kind : "";
  io->memory = vt_memory_kind_from_name(kind, strlen(kind));
  if (io->memory == VT_MEMORY_KINDS)
    return vt_error(VT_INVALID_ARGUMENT,
                    "unknown memory kind \"%s\"; there are device, pinned_host and unpinned_host",
                    kind);
  return VT_OK;
}

static void io_measure(const vt_executable *executable, vt_io *io) {
  io->shard_bytes = vt_type_bytes(io->shard);
  io->shard_hbm_bytes =
      vt_layout_bytes(executable->slice.chip, VT_MEMORY_DEVICE, io->shard, io->layout);
}

static bool fits_donor(const vt_io *param, const vt_io *result, bool exactly) {
  if (param->memory != result->memory) return false;
  if (!exactly)
    return param->shard_bytes == result->shard_bytes &&
           param->shard_hbm_bytes == result->shard_hbm_bytes;
  return vt_type_equal(param->shard, result->shard) && !strcmp(param->layout, result->layout);
}

// A donated parameter without a named result takes the first free result of its shape, else of its
// size in HBM, as the TPU compiler does.
static void match_donors(const vt_func *main, vt_io *params, const vt_io *results,
                         uint32_t result_count) {
  bool *taken = calloc(result_count ? result_count : 1, 1);
  if (!taken) abort();
  for (uint32_t p = 0; p < main->param_count; p++) {
    int32_t alias = main->param_info ? main->param_info[p].alias_output : -1;
    if (alias < 0 || (uint32_t)alias >= result_count ||
        strcmp(params[p].layout, results[alias].layout))
      continue;
    params[p].alias = alias;
    params[p].donated = true;
    taken[alias] = true;
  }
  for (int exactly = 1; exactly >= 0; exactly--)
    for (uint32_t p = 0; p < main->param_count; p++) {
      if (params[p].donated || !main->param_info || !main->param_info[p].donor) continue;
      uint32_t r = 0;
      while (r < result_count && (taken[r] || !fits_donor(&params[p], &results[r], exactly))) r++;
      if (r == result_count) continue;
      params[p].alias = (int32_t)r;
      params[p].donated = true;
      taken[r] = true;
    }
  free(taken);
}

// Elementwise results lie like their operands; those that are made from scalars have no say.
static bool laid_out_like(const vt_op *op, uint32_t *out_operand) {
  if (!(vt_op_info_get(op->code)->flags & (VT_OPF_ELTWISE | VT_OPF_SHARDY))) return false;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_value *operand = op->operands[i];
    if (!vt_type_same_dims(operand->type, op->results[0].type)) continue;
    if (operand->op &&
        (operand->op->code == VT_OP_CONSTANT || operand->op->code == VT_OP_BROADCAST_IN_DIM))
      continue;
    *out_operand = i;
    return true;
  }
  return false;
}

// The order that a layout constraint inside of the program gives to its value.
static bool constrained_layout(vt_executable *executable, const vt_op *op, int32_t *out_order) {
  vt_string text = vt_attr_string(op, VT_ATTR_RESULT_LAYOUTS); // "[0,1]"
  if (text.size < 2 || !vt_op_is_marker(op)) return false;
  const char *braces =
      vt_arena_printf(&executable->arena, "{%.*s}", (int)text.size - 2, text.data + 1);
  return vt_layout_read(braces, op->results[0].type.rank, out_order);
}

// A result whose layout is left to the compiler lies as a constraint on its way says. It is a
// transpose for free when its layout is transposed instead.
static void auto_layout(vt_executable *executable, const vt_value *value, const vt_io *params,
                        vt_io *io) {
  int32_t place[VT_MAX_RANK], next[VT_MAX_RANK],
      rank = io->type.rank; // result dimension to dimension of the source
  int32_t source[VT_MAX_RANK], order[VT_MAX_RANK] = {0};
  for (int32_t i = 0; i < rank; i++) place[i] = i;
  while (value->op) {
    const vt_op *op = value->op;
    uint32_t next_operand = 0;
    if (constrained_layout(executable, op, source)) break;
    if (op->code != VT_OP_TRANSPOSE && !laid_out_like(op, &next_operand)) return;
    if (op->code == VT_OP_TRANSPOSE) {
      const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
      for (int32_t i = 0; i < rank; i++) next[i] = (int32_t)permutation[place[i]];
      memcpy(place, next, sizeof place);
    }
    value = op->operands[next_operand];
  }
  if (!value->op && !vt_layout_read(params[value->index].layout, rank, source)) return;
  for (int32_t i = 0; i < rank; i++)
    for (int32_t d = 0; d < rank; d++)
      if (place[d] == source[i]) order[i] = d;
  set_layout(executable, layout_text(&executable->arena, order, rank), io);
}

static bool func_transfers(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    switch (op->code) {
    case VT_OP_SEND:
    case VT_OP_RECV:
    case VT_OP_INFEED:
    case VT_OP_OUTFEED:
      return true;
    default:
      break;
    }
    for (uint32_t i = 0; i < op->region_count; i++)
      if (func_transfers(op->regions[i])) return true;
  }
  return false;
}

static bool module_transfers(const vt_module *module) {
  for (uint32_t i = 0; i < module->func_count; i++)
    if (func_transfers(module->funcs[i])) return true;
  return false;
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

// Programs that only make zeros (optimizer states, accumulators) need no run, and large zeros no
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

static vt_status executable_signature(vt_executable *executable, const vt_module *module) {
  vt_executable_info *info = &executable->info;
  const vt_func *main = module->main;
  info->param_count = main->param_count;
  info->result_count = main->return_count;
  vt_io *params = VT_NEW_ARRAY(&executable->arena, vt_io, main->param_count + 1);
  vt_io *results = VT_NEW_ARRAY(&executable->arena, vt_io, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++)
    VT_TRY(io_fill(executable, main->params[i], main->param_info ? &main->param_info[i] : NULL,
                   &params[i]));
  for (uint32_t i = 0; i < main->return_count; i++)
    VT_TRY(io_fill(executable, main->returns[i], main->return_info ? &main->return_info[i] : NULL,
                   &results[i]));
  if (info->partitions > 1) VT_TRY(vt_io_partition(executable, module, params, results));
  for (uint32_t i = 0; i < main->param_count; i++)
    VT_TRY(io_layout(executable, main->param_info ? &main->param_info[i] : NULL, &params[i]));
  for (uint32_t i = 0; i < main->return_count; i++) {
    const vt_io_info *asked = main->return_info ? &main->return_info[i] : NULL;
    VT_TRY(io_layout(executable, asked, &results[i]));
    if (asked && asked->layout_mode && !strcmp(asked->layout_mode, "auto"))
      auto_layout(executable, main->returns[i], params, &results[i]);
  }
  for (uint32_t i = 0; i < main->param_count; i++) io_measure(executable, &params[i]);
  for (uint32_t i = 0; i < main->return_count; i++) io_measure(executable, &results[i]);
  match_donors(main, params, results, main->return_count);
  info->params = params;
  info->results = results;
  return VT_OK;
}

static vt_status executable_devices(vt_executable *executable, const vt_executable_options *options,
                                    const vt_module *module) {
  int32_t count = vt_slice_devices(&executable->slice);
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
  return VT_OK;
}

// VTPU_MATMUL_PRECISION=float32 asks for plain f32 where a program says DEFAULT.
static bool exact_dots_wanted(void) {
  const char *precision = getenv("VTPU_MATMUL_PRECISION");
  return precision && (!strcmp(precision, "float32") || !strcmp(precision, "highest"));
}

// VTPU_EVALUATOR=1 runs every program on the kernels of src/eval alone, to tell a wrong kernel from
// wrong generated code.
static bool evaluator_wanted(void) {
  const char *wanted = getenv("VTPU_EVALUATOR");
  return wanted && !strcmp(wanted, "1");
}

static vt_status compile_module(vt_executable *executable, const vt_executable_options *options,
                                vt_module **module) {
  vt_executable_info *info = &executable->info;
  if ((*module)->num_replicas > 1 && (*module)->num_replicas != info->replicas)
    return vt_error(VT_INVALID_ARGUMENT, "the program has %d replicas, the options say %d",
                    (*module)->num_replicas, info->replicas);
  int32_t asked = (*module)->num_partitions, partitions = info->partitions / info->replicas;
  if (asked > 1 && asked != partitions)
    return vt_error(VT_INVALID_ARGUMENT, "the program has %d partitions, the options say %d", asked,
                    partitions);
  (*module)->num_replicas = info->replicas;
  (*module)->num_partitions = partitions;
  VT_TRY(vt_spmd_from_replicas(*module, options->own_arrays && !(*module)->mesh_count));
  info->name = vt_arena_printf(&executable->arena, "%s", (*module)->name ? (*module)->name : "");
  VT_TRY(executable_signature(executable, *module));
  executable->transfers = module_transfers(*module);
  VT_TRY(vt_executable_account(executable, *module));
  if (info->partitions > 1) VT_TRY(vt_io_expand_versions(executable, *module));
  vt_host_options host = {.device_count = info->partitions,
                          .exact_dots = options->exact_dots || exact_dots_wanted(),
                          .evaluator_only = evaluator_wanted()};
  vt_module *taken = *module;
  *module = NULL;
  VT_TRY(vt_host_compile(taken, &host, &executable->program));
  info->roofline = vt_chip_roofline(&executable->slice, info->partitions,
                                    vt_program_module(executable->program));
  return VT_OK;
}

static bool has_manual(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code == VT_OP_MANUAL_COMPUTATION) return true;
    for (uint32_t r = 0; r < op->region_count; r++)
      if (has_manual(op->regions[r])) return true;
  }
  return false;
}

static vt_status compile_with(const vt_slice *slice, vt_bytes program,
                              const vt_executable_options *options, const bool *own,
                              vt_executable **out_executable) {
  vt_status st = VT_OK;
  vt_module *module = NULL;
  *out_executable = NULL;
  VT_TRY(vt_fork_check());
  vt_executable *executable = calloc(1, sizeof *executable);
  if (!executable) return vt_error_no_memory();
  atomic_init(&executable->refs, 1);
  executable->slice = *slice;
  vt_executable_info *info = &executable->info;
  info->program = copy_bytes(&executable->arena, program);
  info->options = copy_bytes(&executable->arena, options->bytes);
  executable->options = *options;
  executable->own = own;
  pthread_mutex_init(&executable->others_lock, NULL);
  info->fingerprint =
      vt_hash_bytes(program.data, program.size, vt_hash_bytes(slice->name, strlen(slice->name), 1));
  info->fingerprint = vt_hash_bytes(options->bytes.data, options->bytes.size, info->fingerprint);
  VT_TRY_OUT(vt_import(program, &module));
  VT_TRY_OUT(executable_devices(executable, options, module));
  for (uint32_t i = 0; i < module->func_count; i++)
    executable->manual |= has_manual(module->funcs[i]);
  VT_TRY_OUT(compile_module(executable, options, &module));
  info->code_bytes = (int64_t)program.size;
  executable->tiny = vt_program_is_small(executable->program) && !executable->transfers;
  executable->zeros = makes_zeros(vt_program_module(executable->program));
  executable->tiny = executable->tiny || executable->zeros;
  *out_executable = executable;
  return VT_OK;
out:
  vt_module_destroy(module);
  vt_executable_release(executable);
  return st;
}

vt_status vt_executable_compile(const vt_slice *slice, vt_bytes program,
                                const vt_executable_options *options,
                                vt_executable **out_executable) {
  return compile_with(slice, program, options, NULL, out_executable);
}

vt_status vt_executable_for_own(vt_executable *executable, const bool *own,
                                vt_executable **out_other) {
  const vt_executable_info *info = &executable->info;
  vt_status st = VT_OK;
  vt_lock(&executable->others_lock);
  vt_executable *other = executable->others;
  while (other && memcmp(other->own, own, info->param_count)) other = other->next_other;
  if (!other) {
    vt_executable_options options = executable->options;
    options.bytes = info->options;
    options.device_ids = info->device_ids;
    st = compile_with(&executable->slice, info->program, &options,
                      (const bool *)vt_arena_copy(&executable->arena, own, info->param_count),
                      &other);
    if (!st) {
      other->next_other = executable->others;
      executable->others = other;
    }
  }
  vt_unlock(&executable->others_lock);
  *out_other = other;
  return st;
}

vt_executable *vt_executable_retain(vt_executable *executable) {
  atomic_fetch_add_explicit(&executable->refs, 1, memory_order_relaxed);
  return executable;
}

void vt_executable_release(vt_executable *executable) {
  if (!executable) return;
  if (atomic_fetch_sub_explicit(&executable->refs, 1, memory_order_acq_rel) != 1) return;
  if (vt_forked()) return; // oneDNN and the code generator have locks of their own
  for (vt_executable *other = executable->others, *next; other; other = next) {
    next = other->next_other;
    vt_executable_release(other);
  }
  pthread_mutex_destroy(&executable->others_lock);
  vt_program_destroy(executable->program);
  vt_arena_free(&executable->arena);
  free(executable);
}

const vt_executable_info *vt_executable_get(const vt_executable *executable) {
  return &executable->info;
}
const vt_module *vt_executable_module(const vt_executable *executable) {
  return vt_program_module(executable->program);
}
