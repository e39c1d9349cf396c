// SPDX-License-Identifier: Apache-2.0
// reduce.c - reductions: each device reduces what it has, then devices combine their results.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/partition.h"

vt_opcode vt_plain_reducer(const vt_func *func) {
  const vt_op *op = func->first;
  return op && !op->next && func->return_count == 1 && func->param_count == 2 &&
                 op->operand_count == 2 && op->operands[0] != op->operands[1] &&
                 func->returns[0]->op == op
             ? op->code
             : VT_OP_INVALID;
}

static bool is_idempotent(vt_opcode code) {
  return code == VT_OP_MAXIMUM || code == VT_OP_MINIMUM || code == VT_OP_AND || code == VT_OP_OR;
}

static bool is_sum(vt_opcode code) {
  return code == VT_OP_ADD || code == VT_OP_XOR;
}

bool vt_is_zero_scalar(const vt_value *v) {
  static const char zeros[16];
  bool constant = v->op && v->op->code == VT_OP_CONSTANT;
  const vt_literal *known = constant ? vt_attr_literal(v->op, VT_ATTR_VALUE) : NULL;
  return known && !v->type.rank && !memcmp(known->data, zeros, vt_dtype_bytes(v->type.dtype));
}

vt_value *vt_neutral_of(vt_parter *p, const vt_func *reducer, vt_value *initial) {
  vt_opcode code = vt_plain_reducer(reducer);
  bool sums = is_sum(code);
  if (is_idempotent(code) || (sums && vt_is_zero_scalar(initial))) return initial;
  if (sums) return vt_emit_nothing(p, initial->type.dtype);
  if (code != VT_OP_MULTIPLY) return NULL;
  return vt_emit1(p, VT_OP_CONVERT, initial->type, vt_emit_s32(p, 1));
}

// Devices that each start from the initial value would count it many times: all but the first along
// the cut dimensions start from the neutral one.
static vt_value *initial_once(vt_parter *p, vt_part part, uint32_t mask, vt_value *initial,
                              vt_value *neutral) {
  if (initial == neutral) return initial;
  vt_value *place = vt_emit_s32(p, 0);
  for (int32_t d = 0; d < part.global.rank; d++)
    if (mask >> d & 1 && part.assign->dims[d] > 1)
      place = vt_emit2(p, VT_OP_ADD, place->type, place, vt_emit_offset(p, part.assign, d, 1));
  vt_value *first = vt_emit_compare(p, VT_CMP_EQ, place, vt_emit_s32(p, 0));
  return vt_emit_select(p, first, initial, neutral);
}

// The assignment of a result: without the reduced dimensions.
static const vt_assign *without(vt_parter *p, const vt_assign *a, uint32_t mask) {
  int32_t from[VT_MAX_RANK], rank = 0;
  for (int32_t d = 0; d < a->rank; d++)
    if (!(mask >> d & 1)) from[rank++] = d;
  return vt_assign_project(&p->assigns, a, rank, from);
}

// Several results at once: devices gather each other's and reduce again.
static vt_op *combine_gathered(vt_parter *p, const vt_op *op, vt_op *local, const vt_part *inputs,
                               vt_value *const *initials, uint32_t mask, const vt_type *types) {
  uint32_t count = op->result_count;
  vt_arena scratch = {0};
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, 2 * count);
  for (uint32_t i = 0; i < count; i++) {
    int64_t dims[VT_MAX_RANK], whole[VT_MAX_RANK];
    vt_part part = inputs[i];
    for (int32_t d = 0; d < part.global.rank; d++) {
      bool reduced = mask >> d & 1;
      dims[d] = reduced ? 1 : part.local->type.dims[d];
      whole[d] = reduced ? part.assign->dims[d] : part.global.dims[d];
    }
    part.global = vt_type_of_dims(p, local->results[i].type.dtype, part.global.rank, whole);
    part.local = vt_emit_reshape(p, &local->results[i], part.global.rank, dims);
    operands[i] = vt_gather_dims(p, part, mask).local;
    operands[count + i] = initials[i];
  }
  vt_op *out = vt_emit_copies(p, op, types, 2 * count, operands);
  vt_arena_free(&scratch);
  return out;
}

static bool is_cut_along(const vt_assign *a, uint32_t mask) {
  for (int32_t d = 0; d < a->rank; d++)
    if (mask >> d & 1 && a->dims[d] > 1) return true;
  return false;
}

static bool chooses(vt_opcode code) {
  switch (code) {
  case VT_OP_COMPARE:
  case VT_OP_SELECT:
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
  case VT_OP_AND:
  case VT_OP_OR:
  case VT_OP_NOT:
  case VT_OP_CONSTANT:
    return true;
  default:
    return false;
  }
}

// Whether result `i` of a reducer is the same however often its initial value is counted: the
// reducer chooses among what it is given, or adds and starts from zero.
static bool starts_from_nothing(const vt_func *reducer, uint32_t i, const vt_value *initial) {
  const vt_op *op = reducer->returns[i]->op;
  bool all = true;
  for (const vt_op *each = reducer->first; each; each = each->next) all &= chooses(each->code);
  if (!op || all) return true;
  if (op->operand_count != 2 || op->operands[0]->op || op->operands[1]->op ||
      op->operands[0] == op->operands[1])
    return false;
  return is_idempotent(op->code) || (is_sum(op->code) && vt_is_zero_scalar(initial));
}

static bool all_start_from_nothing(const vt_op *op) {
  bool all = true;
  for (uint32_t i = 0; i < op->result_count; i++)
    all &= starts_from_nothing(op->regions[0], i, op->operands[op->result_count + i]);
  return all;
}

// Several arrays are reduced together from values that change nothing, as searches for a maximum
// and its place are.
static void reduce_local(vt_parter *p, const vt_op *op, const vt_assign *at, uint32_t mask,
                         vt_value *neutral) {
  uint32_t count = op->result_count;
  bool combine = is_cut_along(at, mask);
  vt_arena scratch = {0};
  vt_part *inputs = VT_NEW_ARRAY(&scratch, vt_part, count);
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, 2 * count);
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, count);
  const vt_assign *result_at = without(p, at, mask);
  const vt_assign *scalar = vt_assign_whole(&p->assigns, 0, p->device_count);
  for (uint32_t i = 0; i < count; i++) {
    vt_value *initial = vt_reshard(p, vt_part_of(p, op->operands[count + i]), scalar).local;
    inputs[i] = vt_reshard(p, vt_part_of(p, op->operands[i]), at);
    operands[i] = inputs[i].local = vt_mask(p, inputs[i], mask, neutral ? neutral : initial);
    operands[count + i] = neutral ? initial_once(p, inputs[i], mask, initial, neutral) : initial;
    types[i] = vt_local_type(p, op->results[i].type, result_at);
  }
  vt_op *local = vt_emit_copies(p, op, types, 2 * count, operands);
  if (combine && count > 1)
    local = combine_gathered(p, op, local, inputs, operands + count, mask, types);
  for (uint32_t i = 0; i < count; i++) {
    vt_value *value = &local->results[i];
    if (combine && count == 1) value = vt_emit_reduce_along(p, value, op->regions[0], at, mask);
    vt_part_set(p, &op->results[i], (vt_part){op->results[i].type, value, result_at});
  }
  vt_arena_free(&scratch);
}

vt_status vt_partition_reduce(vt_parter *p, const vt_op *op) {
  uint32_t mask = 0, dim_count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &dim_count);
  for (uint32_t i = 0; i < dim_count; i++) mask |= 1u << dims[i];
  const vt_assign *at = vt_part_of(p, op->operands[0]).assign;
  if (op->capture_count || at->only >= 0) return vt_partition_whole(p, op);
  vt_value *neutral = NULL;
  if (op->result_count == 1 && is_cut_along(at, mask)) {
    vt_part initial = vt_part_of(p, op->operands[1]);
    initial = vt_reshard(p, initial, vt_assign_whole(&p->assigns, 0, p->device_count));
    neutral = vt_neutral_of(p, op->regions[0], initial.local);
    if (!neutral) return vt_partition_whole(p, op);
  }
  if (op->result_count > 1 && is_cut_along(at, mask) && !all_start_from_nothing(op))
    return vt_partition_whole(p, op);
  reduce_local(p, op, at, mask, neutral);
  return VT_OK;
}
