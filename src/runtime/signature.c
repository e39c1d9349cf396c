// SPDX-License-Identifier: Apache-2.0
// signature.c - a program's signature: for each parameter and result its memory, its part on a
// device, its layout, and whose memory a result takes over.
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

// The last parameter or result of a type, by where its dimensions are: programs have few types, and
// what follows from one is found once.
enum { KNOWN = 64 };
typedef struct known {
  const int64_t *dims; // in the program
  const vt_io *io;
} known;

static known *known_at(known *all, const int64_t *dims, vt_dtype dtype) {
  return &all[((uintptr_t)dims >> 4 ^ (uintptr_t)dtype) % KNOWN];
}

static bool same_shard(const vt_io *other, const vt_io *io) {
  return other && other->shard.dims == io->shard.dims && other->shard.dtype == io->shard.dtype &&
         other->shard.rank == io->shard.rank && other->memory == io->memory;
}

// The type with dimensions of the executable's own.
static vt_type own_type(vt_executable *executable, known *all, vt_type type, const vt_io *io) {
  known *last = known_at(all, type.dims, type.dtype);
  bool same = last->io && last->dims == type.dims && last->io->type.dtype == type.dtype &&
              last->io->type.rank == type.rank;
  vt_type own =
      same ? last->io->type : vt_type_make(&executable->arena, type.dtype, type.rank, type.dims);
  *last = (known){type.dims, io};
  return own;
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

// A layout that the program requests is kept; one left to the compiler ("auto") is row-major, the
// order this compiler works in; otherwise the default is spelled out.
static vt_status io_layout(vt_executable *executable, known *all, const vt_io_info *info,
                           vt_io *io) {
  vt_arena *arena = &executable->arena;
  const char *mode = info && info->layout_mode ? info->layout_mode : "";
  int32_t order[VT_MAX_RANK] = {0}, rank = io->type.rank;
  known *last = mode[0] ? NULL : known_at(all, io->shard.dims, io->shard.dtype);
  if (last && same_shard(last->io, io)) {
    io->layout = last->io->layout;
    return VT_OK;
  }
  vt_layout_default(executable->slice.chip, io->memory, io->shard, order);
  if (!strcmp(mode, "auto"))
    for (int32_t i = 0; i < rank; i++) order[i] = rank - 1 - i;
  if (mode[0] == '{' && !vt_layout_read(mode, rank, order))
    return vt_error(VT_INVALID_ARGUMENT, "layout \"%s\" does not fit an array of %d dimensions",
                    mode, rank);
  if (mode[0] == '{')
    set_layout(executable, vt_arena_printf(arena, "%s", mode), io);
  else if (!strcmp(mode, "auto"))
    set_layout(executable, layout_text(arena, order, rank), io);
  else
    io->layout = layout_text(arena, order, rank);
  if (last) last->io = io;
  return VT_OK;
}

static vt_status io_fill(vt_executable *executable, known *all, const vt_value *value,
                         const vt_io_info *info, vt_io *io) {
  *io = (vt_io){.type = own_type(executable, all, value->type, io),
                .replicated = true,
                .owner = -1,
                .partials = 1,
                .alias = -1};
  io->shard = io->type;
  const char *kind = info && info->memory_kind ? info->memory_kind : "";
  io->memory = vt_memory_kind_from_name(kind, strlen(kind));
  if (io->memory == VT_MEMORY_KINDS)
    return vt_error(VT_INVALID_ARGUMENT,
                    "unknown memory kind \"%s\"; there are device, pinned_host and unpinned_host",
                    kind);
  return VT_OK;
}

static void io_measure(const vt_executable *executable, known *all, vt_io *io) {
  known *last = known_at(all, io->shard.dims, io->shard.dtype);
  if (same_shard(last->io, io) && last->io->layout == io->layout) {
    io->shard_bytes = last->io->shard_bytes;
    io->shard_hbm_bytes = last->io->shard_hbm_bytes;
    return;
  }
  last->io = io;
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
  vt_arena scratch = {0};
  bool *taken = VT_NEW_ARRAY(&scratch, bool, result_count + 1);
  for (uint32_t p = 0; p < main->param_count; p++) {
    int32_t alias = main->param_info ? main->param_info[p].alias_output : -1;
    if (alias < 0 || (uint32_t)alias >= result_count ||
        strcmp(params[p].layout, results[alias].layout))
      continue;
    params[p].alias = alias;
    params[p].donated = true;
    taken[alias] = true;
  }
  for (int exactly = 1; exactly >= 0; exactly--) {
    uint32_t first = 0; // that is free
    for (uint32_t p = 0; p < main->param_count; p++) {
      if (params[p].donated || !main->param_info || !main->param_info[p].donor) continue;
      while (first < result_count && taken[first]) first++;
      uint32_t r = first;
      while (r < result_count && (taken[r] || !fits_donor(&params[p], &results[r], exactly))) r++;
      if (r == result_count) continue;
      params[p].alias = (int32_t)r;
      params[p].donated = true;
      taken[r] = true;
    }
  }
  vt_arena_free(&scratch);
}

// Elementwise results have their operands' layout; scalar operands do not count.
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

// The order that a layout constraint in the program gives to its value.
static bool constrained_layout(vt_executable *executable, const vt_op *op, int32_t *out_order) {
  vt_string text = vt_attr_string(op, VT_ATTR_RESULT_LAYOUTS); // "[0,1]"
  if (text.size < 2 || !vt_op_is_marker(op)) return false;
  const char *braces =
      vt_arena_printf(&executable->arena, "{%.*s}", (int)text.size - 2, text.data + 1);
  return vt_layout_read(braces, op->results[0].type.rank, out_order);
}

// A result whose layout is left to the compiler follows a layout constraint on the way to it.
// Transposing its layout makes a transpose free.
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

vt_status vt_executable_signature(vt_executable *executable, const vt_module *module) {
  vt_executable_info *info = &executable->info;
  const vt_func *main = module->main;
  known types[KNOWN] = {0}, layouts[KNOWN] = {0}, sizes[KNOWN] = {0};
  info->param_count = main->param_count;
  info->result_count = main->return_count;
  vt_io *params = VT_NEW_ARRAY(&executable->arena, vt_io, main->param_count + 1);
  vt_io *results = VT_NEW_ARRAY(&executable->arena, vt_io, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++)
    VT_TRY(io_fill(executable, types, main->params[i],
                   main->param_info ? &main->param_info[i] : NULL, &params[i]));
  for (uint32_t i = 0; i < main->return_count; i++)
    VT_TRY(io_fill(executable, types, main->returns[i],
                   main->return_info ? &main->return_info[i] : NULL, &results[i]));
  if (info->partitions > 1) VT_TRY(vt_io_partition(executable, module, params, results));
  for (uint32_t i = 0; i < main->param_count; i++)
    VT_TRY(
        io_layout(executable, layouts, main->param_info ? &main->param_info[i] : NULL, &params[i]));
  for (uint32_t i = 0; i < main->return_count; i++) {
    const vt_io_info *asked = main->return_info ? &main->return_info[i] : NULL;
    VT_TRY(io_layout(executable, layouts, asked, &results[i]));
    if (asked && asked->layout_mode && !strcmp(asked->layout_mode, "auto"))
      auto_layout(executable, main->returns[i], params, &results[i]);
  }
  for (uint32_t i = 0; i < main->param_count; i++) io_measure(executable, sizes, &params[i]);
  for (uint32_t i = 0; i < main->return_count; i++) io_measure(executable, sizes, &results[i]);
  match_donors(main, params, results, main->return_count);
  info->params = params;
  info->results = results;
  return VT_OK;
}
