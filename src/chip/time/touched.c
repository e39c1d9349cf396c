// SPDX-License-Identifier: Apache-2.0
// touched.c - what operators touch of arrays that are not as small as can be, or not read whole:
// those that read a part of an array, or change one, in place where the array is theirs to change,
// in a copy where it is not.
#include "chip/time/kernels.h"

#include <math.h>

double vt_matrices_bytes(const vt_chip *chip, vt_type type) {
  int32_t order[VT_MAX_RANK], next = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int32_t d = type.rank; d-- > 0;)
      if ((type.dims[d] == 1) == pass) order[next++] = d;
  return (double)vt_chip_padded_bytes(chip, type, order);
}

// An array lies in rows of 128 lanes, which move whole, and in tiles of some of these, of which the
// steps of a slice leave out nothing.
double vt_slice_share(const vt_chip *chip, const vt_op *slice) {
  static const double lanes = 128;
  vt_type from = slice->operands[0]->type, to = slice->results[0].type;
  bool known = slice->code == VT_OP_SLICE;
  const int64_t *starts = known ? vt_attr_ints(slice, VT_ATTR_START_INDICES, NULL) : NULL;
  const int64_t *limits = known ? vt_attr_ints(slice, VT_ATTR_LIMIT_INDICES, NULL) : to.dims;
  int32_t order[VT_MAX_RANK];
  double share = 1;
  vt_chip_compact_order(chip, from, order);
  for (int32_t i = 0; i < from.rank; i++) {
    double all = (double)from.dims[order[i]], end = (double)limits[order[i]];
    double begin = starts ? (double)starts[order[i]] : 0;
    if (!i) begin = floor(begin / lanes) * lanes, end = fmin(all, ceil(end / lanes) * lanes);
    share *= (i < 2 ? end - begin : (double)to.dims[order[i]]) / fmax(all, 1);
  }
  return share;
}

uint32_t vt_updated_by(const vt_op *op) {
  if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE) return 1;
  return op->code == VT_OP_SCATTER ? (vt_op_own_operands(op) - 1) / 2 : 0;
}

// A parameter of the program that is not donated stays as it is, and so does a constant. Other
// arrays are taken to have no reader that runs later.
bool vt_update_copies(const vt_value *array) {
  const vt_func *main = array->func->module->main;
  if (array->op) return array->op->code == VT_OP_CONSTANT;
  if (array->func != main) return false;
  const vt_io_info *info = main->param_info ? &main->param_info[array->index] : NULL;
  return !info || (!info->donor && info->alias_output < 0);
}

bool vt_update_reads(const vt_op *op, const vt_value *array) {
  return op->code == VT_OP_SCATTER || vt_update_copies(array);
}

static void mark_used(const vt_func *func, bool *used) {
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (!op->operands[i]->op) used[op->operands[i]->index] = true;
}

const bool *vt_loop_unread(const vt_op *op, vt_arena *arena) {
  if (op->code != VT_OP_WHILE) return NULL;
  bool *used = VT_NEW_ARRAY(arena, bool, op->operand_count + 1);
  mark_used(op->regions[0], used);
  mark_used(op->regions[1], used);
  for (uint32_t i = 0; i < op->operand_count; i++) used[i] = !used[i] && vt_loop_keeps(op, i);
  return used;
}
