// SPDX-License-Identifier: Apache-2.0
// dynamic.c - slices at offsets that are known only when the program runs.
#include "base/check.h"
#include "spmd/partition/partition.h"

// An offset along a dimension that is whole on every device; along cut ones slices cover the
// dimension, and begin at its start wherever they are asked to.
static vt_value *offset_of(vt_parter *p, const vt_value *value, bool cut) {
  if (cut) return vt_emit_zero(p, value->type.dtype);
  vt_part part = vt_part_of(p, value);
  return vt_reshard(p, part, vt_assign_whole(&p->assigns, 0, p->device_count)).local;
}

// Only dimensions that are not sliced may be cut.
vt_status vt_partition_dynamic_slice(vt_parter *p, const vt_op *op) {
  vt_type in = op->operands[0]->type, type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  vt_value *offsets[VT_MAX_RANK];
  if (wanted->only >= 0) return vt_partition_whole(p, op);
  for (int32_t d = 0; d < type.rank; d++)
    if (wanted->dims[d] > 1 && type.dims[d] != in.dims[d]) return vt_partition_whole(p, op);
  vt_part part = vt_reshard(p, vt_part_of(p, op->operands[0]), wanted);
  for (int32_t d = 0; d < type.rank; d++)
    offsets[d] = offset_of(p, op->operands[1 + d], wanted->dims[d] > 1);
  vt_type local = vt_local_type(p, type, wanted);
  part.local = vt_emit_dynamic_slice(p, part.local, offsets, local);
  vt_part_set(p, &op->results[0], (vt_part){type, part.local, wanted});
  return VT_OK;
}

// ---- updates ------------------------------------------------------------------------------------

// Whether the offset is a known number.
static bool known_offset(const vt_value *value, int64_t *out) {
  if (!value->op || value->op->code != VT_OP_CONSTANT) return false;
  const vt_literal *literal = vt_attr_literal(value->op, VT_ATTR_VALUE);
  if (literal->type.dtype == VT_S32)
    *out = *(const int32_t *)literal->data;
  else if (literal->type.dtype == VT_S64)
    *out = *(const int64_t *)literal->data;
  else
    return false;
  return true;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
  return v < low ? low : v > high ? high : v;
}

// Whether the update falls within one tile along the dimension, wherever it goes.
static bool in_one_tile(const vt_op *op, int32_t d, int64_t tile) {
  int64_t start, size = op->operands[1]->type.dims[d], whole = op->results[0].type.dims[d];
  if (size == 1) return true;
  if (size == 0 || !known_offset(op->operands[2 + d], &start)) return false;
  start = clamp(start, 0, whole - size);
  return start / tile == (start + size - 1) / tile;
}

static vt_value *emit_index(vt_parter *p, vt_dtype dtype, int64_t number) {
  vt_value *v = vt_emit_s32(p, number);
  return dtype == VT_S32 ? v : vt_emit1(p, VT_OP_CONVERT, (vt_type){dtype, 0, NULL}, v);
}

// The offset within this device's tile, and whether the update falls into it.
static vt_value *offset_in_tile(vt_parter *p, const vt_op *op, int32_t d, vt_part part,
                                vt_value **mine) {
  vt_value *start = offset_of(p, op->operands[2 + d], false);
  vt_dtype dtype = start->type.dtype;
  int64_t size = op->operands[1]->type.dims[d], tile = part.local->type.dims[d];
  vt_value *zero = vt_emit_zero(p, dtype);
  vt_value *last = emit_index(p, dtype, part.global.dims[d] - size);
  start = vt_emit(p, VT_OP_CLAMP, start->type, 3, (vt_value *[]){zero, start, last});
  if (dtype != VT_S32) start = vt_emit1(p, VT_OP_CONVERT, (vt_type){VT_S32, 0, NULL}, start);
  start = vt_emit2(p, VT_OP_SUBTRACT, start->type, start, vt_emit_offset(p, part.assign, d, tile));
  vt_value *after = vt_emit_compare(p, VT_CMP_GE, start, vt_emit_s32(p, 0));
  vt_value *before = vt_emit_compare(p, VT_CMP_LE, start, vt_emit_s32(p, tile - size));
  vt_value *both = vt_emit2(p, VT_OP_AND, after->type, after, before);
  *mine = *mine ? vt_emit2(p, VT_OP_AND, both->type, *mine, both) : both;
  return dtype == VT_S32 ? start : vt_emit1(p, VT_OP_CONVERT, (vt_type){dtype, 0, NULL}, start);
}

// Cut dimensions that are updated in part. An update that falls within one tile is known to all
// devices, and the one that holds the tile takes it; otherwise the array is made whole along these
// dimensions.
vt_status vt_partition_dynamic_update(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type, update_type = op->operands[1]->type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0), *at = wanted;
  vt_value *offsets[VT_MAX_RANK], *mine = NULL;
  uint32_t updated = 0;
  bool one_tile = true;
  if (wanted->only >= 0) return vt_partition_whole(p, op);
  for (int32_t d = 0; d < type.rank; d++) {
    if (wanted->dims[d] == 1 || update_type.dims[d] == type.dims[d]) continue;
    updated |= 1u << d;
    one_tile = one_tile && in_one_tile(op, d, vt_ceil(type.dims[d], wanted->dims[d]));
  }
  const vt_assign *without = vt_assign_replicate(&p->assigns, wanted, updated);
  if (!one_tile) at = without;
  vt_part part = vt_reshard(p, vt_part_of(p, op->operands[0]), at);
  vt_part update = vt_reshard(p, vt_part_of(p, op->operands[1]), without);
  for (int32_t d = 0; d < type.rank; d++)
    offsets[d] = at->dims[d] > 1 && updated >> d & 1
                     ? offset_in_tile(p, op, d, part, &mine)
                     : offset_of(p, op->operands[2 + d], at->dims[d] > 1);
  vt_value *local = vt_emit_dynamic_update(p, part.local, update.local, offsets);
  if (mine) local = vt_emit_select(p, mine, local, part.local);
  vt_part_set(p, &op->results[0], (vt_part){type, local, at});
  return VT_OK;
}
