// SPDX-License-Identifier: Apache-2.0
// edges.c - parameters and results of main that their sharding does not divide become arrays of
// whole tiles, as devices hold them.
//
// Devices hold tiles of one size; the last along a dimension may be padding in part or whole. What
// padding of a parameter holds is not read, that of a result is zero.
#include "base/array.h"
#include "ir/sharding.h"
#include "spmd/axes.h"
#include "spmd/spmd.h"

// How many tiles a sharding makes along each dimension: arrays share a few of them.
typedef struct known_tiles {
  const vt_sharding *sharding;
  const int64_t *counts;
} known_tiles;
typedef VT_ARRAY(known_tiles) known_list;

enum { MOST_KNOWN = 64 }; // looked through for each array

static vt_status counts_of(vt_module *module, known_list *known, const vt_sharding *sharding,
                           vt_type type, const int64_t **out_counts) {
  for (size_t i = 0; i < known->size && type.dtype != VT_TOKEN; i++)
    if (known->data[i].sharding->rank == type.rank &&
        vt_sharding_same(known->data[i].sharding, sharding)) {
      *out_counts = known->data[i].counts;
      return VT_OK;
    }
  int32_t devices = module->num_partitions * module->num_replicas;
  VT_TRY(vt_tiling_counts(sharding, type, devices, &module->arena, out_counts));
  known_tiles made = {sharding, *out_counts};
  if (sharding && type.dtype != VT_TOKEN && !vt_sharding_is_maximal(sharding) &&
      known->size < MOST_KNOWN)
    vt_array_push_in(&module->arena, known, made);
  return VT_OK;
}

// The array of whole tiles; false: the tiles already are.
static bool whole_tiles(vt_module *module, vt_type type, const int64_t *counts, vt_type *out_type) {
  int64_t dims[VT_MAX_RANK];
  bool even = true;
  for (int32_t d = 0; d < type.rank; d++) {
    dims[d] = (type.dims[d] + counts[d] - 1) / counts[d] * counts[d];
    even = even && dims[d] == type.dims[d];
  }
  if (even) return false;
  *out_type = vt_type_make(&module->arena, type.dtype, type.rank, dims);
  return true;
}

static vt_value *constrain(vt_func *func, vt_op *before, vt_value *value, const vt_sharding *s) {
  vt_value *same =
      vt_build(func, before, VT_OP_SHARDING_CONSTRAINT, &vt_loc_unknown, value->type, 1, &value);
  const vt_sharding **list = VT_NEW_ARRAY(&func->module->arena, const vt_sharding *, 1);
  list[0] = s;
  vt_op_set_attr(same->op, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = list});
  return same;
}

static void widen_param(vt_func *main, uint32_t index, vt_type wide) {
  vt_value *param = main->params[index];
  vt_type type = param->type;
  uint32_t rank = (uint32_t)type.rank;
  int64_t zeros[VT_MAX_RANK] = {0}, ones[VT_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) ones[d] = 1;
  vt_op *first = main->first;
  vt_value *cut = vt_build(main, first, VT_OP_SLICE, &vt_loc_unknown, type, 1, &param);
  vt_op_set_ints(cut->op, VT_ATTR_START_INDICES, rank, zeros);
  vt_op_set_ints(cut->op, VT_ATTR_LIMIT_INDICES, rank, type.dims);
  vt_op_set_ints(cut->op, VT_ATTR_STRIDES, rank, ones);
  vt_value *held = constrain(main, first, cut, main->param_info[index].sharding);
  vt_value_replace(param, held); // also in the slice
  cut->op->operands[0] = param;
  param->type = wide;
}

static vt_value *widen_result(vt_func *main, uint32_t index, vt_type wide) {
  vt_arena *arena = &main->module->arena;
  vt_value *value = main->returns[index];
  uint32_t rank = (uint32_t)wide.rank;
  int64_t zeros[VT_MAX_RANK] = {0}, high[VT_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) high[d] = wide.dims[d] - value->type.dims[d];
  vt_literal *zero = VT_NEW(arena, vt_literal);
  *zero = (vt_literal){{.dtype = wide.dtype}, VT_NEW_ARRAY(arena, char, 16), true};
  vt_value *operands[] = {constrain(main, NULL, value, main->return_info[index].sharding),
                          vt_build_constant(main, NULL, &vt_loc_unknown, zero)};
  vt_value *padded = vt_build(main, NULL, VT_OP_PAD, &vt_loc_unknown, wide, 2, operands);
  vt_op_set_ints(padded->op, VT_ATTR_EDGE_PADDING_LOW, rank, zeros);
  vt_op_set_ints(padded->op, VT_ATTR_EDGE_PADDING_HIGH, rank, high);
  vt_op_set_ints(padded->op, VT_ATTR_INTERIOR_PADDING, rank, zeros);
  return padded;
}

vt_status vt_spmd_whole_tiles(vt_module *module) {
  vt_func *main = module->main;
  vt_type wide;
  known_list known = {0};
  const int64_t *counts;
  for (uint32_t i = 0; main->param_info && i < main->param_count; i++) {
    vt_type type = main->params[i]->type;
    vt_status st = counts_of(module, &known, main->param_info[i].sharding, type, &counts);
    if (st) return vt_status_wrap(st, "parameter %u", i);
    if (whole_tiles(module, type, counts, &wide)) widen_param(main, i, wide);
  }
  vt_value **returns = VT_NEW_ARRAY(&module->arena, vt_value *, main->return_count + 1);
  for (uint32_t i = 0; i < main->return_count; i++) {
    returns[i] = main->returns[i];
    if (!main->return_info) continue;
    vt_type type = returns[i]->type;
    vt_status st = counts_of(module, &known, main->return_info[i].sharding, type, &counts);
    if (st) return vt_status_wrap(st, "result %u", i);
    if (whole_tiles(module, type, counts, &wide)) returns[i] = widen_result(main, i, wide);
  }
  vt_func_set_returns(main, main->return_count, returns);
  return VT_OK;
}
