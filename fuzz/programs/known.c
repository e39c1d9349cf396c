// SPDX-License-Identifier: Apache-2.0
// known.c - see known.def.
#include "compare.h"
#include "ir/sharding.h"

// Indices of a type that cannot count the elements of a dimension.
static bool narrow_index(const vt_op *op, uint32_t at) {
  if (op->operand_count <= at) return false;
  const vt_dtype_info *info = vt_dtype_get(op->operands[at]->type.dtype);
  vt_type indexed = op->operands[0]->type;
  for (int32_t d = 0; d < indexed.rank && info->bits < 32; d++)
    if (indexed.dims[d] >= (int64_t)1 << (info->bits - (info->kind == VT_KIND_SIGNED))) return true;
  return false;
}
// No index although there is something to move.
static bool no_indices(const vt_op *op, vt_type moved) {
  return !vt_type_elements(op->operands[op->result_count]->type) && vt_type_elements(moved);
}
static bool has_batches(const vt_op *op) {
  uint32_t count = 0;
  vt_attr_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, &count);
  return count > 0;
}
static bool tiny_int(const vt_op *op, uint32_t at) {
  vt_dtype dtype = op->operands[at]->type.dtype;
  return vt_dtype_is_integer(dtype) && vt_dtype_get(dtype)->bits < 8;
}
static bool empty(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!vt_type_elements(op->operands[i]->type)) return true;
  return !vt_type_elements(op->results[0].type);
}
static bool fnuz(const vt_op *op, uint32_t at) {
  vt_dtype dtype = op->operands[at]->type.dtype;
  return dtype == VT_F8E4M3B11FNUZ || dtype == VT_F8E4M3FNUZ || dtype == VT_F8E5M2FNUZ;
}
static bool packed(const vt_op *op, uint32_t at) {
  vt_dtype dtype = op->operands[at]->type.dtype;
  return dtype != VT_PRED && vt_dtype_get(dtype)->bits < 8;
}
static bool any_packed(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (packed(op, i)) return true;
  return false;
}
static bool packed_result(const vt_op *op) {
  vt_dtype dtype = op->results[0].type.dtype;
  return dtype != VT_PRED && vt_dtype_get(dtype)->bits < 8;
}
static bool any_packed_result(const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_dtype dtype = op->results[i].type.dtype;
    if (dtype != VT_PRED && vt_dtype_get(dtype)->bits < 8) return true;
  }
  return false;
}
// The least or the greatest of floats.
static bool extreme_float(const vt_op *op) {
  const vt_op *body = op->regions[0]->returns[0]->op;
  return body && (body->code == VT_OP_MAXIMUM || body->code == VT_OP_MINIMUM) &&
         vt_dtype_is_float(op->results[0].type.dtype);
}
static bool holds_control(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    bool control = vt_op_info_get(op->code)->flags & VT_OPF_CONTROL;
    if (control && op->code != VT_OP_MANUAL_COMPUTATION) return true;
    for (uint32_t r = 0; r < op->region_count; r++)
      if (holds_control(op->regions[r])) return true;
  }
  return false;
}
// A manual computation over some axes of the mesh that contains loops or branches.
static bool control_in_part(const vt_op *op) {
  const vt_attr *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS);
  return in->count &&
         vt_op_attr(op, VT_ATTR_MANUAL_AXES)->count < in->shardings[0]->mesh->axis_count &&
         holds_control(op->regions[0]);
}
// An init value that counts how often it is applied and is not known to be neutral.
static bool repeats_init(const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++) {
    const vt_op *body = op->regions[0]->returns[i]->op;
    const vt_op *init = op->operands[op->result_count + i]->op;
    bool sums = body && (body->code == VT_OP_ADD || body->code == VT_OP_XOR);
    if (!sums && !(body && body->code == VT_OP_MULTIPLY)) continue;
    if (!init || init->code != VT_OP_CONSTANT) return true;
    const vt_literal *value = vt_attr_literal(init, VT_ATTR_VALUE);
    const char *bytes = value->data;
    for (size_t k = 0; k < vt_dtype_bytes(value->type.dtype); k++)
      if (bytes[k] != (!sums && !k)) return true; // products are of integers
  }
  return false;
}
static const vt_func *callee_of(const vt_op *op) {
  return op->code == VT_OP_CALL        ? vt_attr_func(op, VT_ATTR_CALLEE)
         : op->code == VT_OP_COMPOSITE ? vt_attr_func(op, VT_ATTR_DECOMPOSITION)
                                       : NULL;
}
// The op that defines the value, looking through ops of one operand and calls.
static const vt_op *source(const vt_value *value) {
  for (const vt_op *op; (op = value->op);) {
    const vt_func *callee = callee_of(op);
    if (callee)
      value = callee->returns[value->index];
    else if (op->operand_count == 1)
      value = op->operands[0];
    else
      return op;
  }
  return NULL;
}
// Constants of main are inputs here; the compiler sees those of other functions.
static bool inner_constant(const vt_op *op, uint32_t at) {
  const vt_op *from = source(op->operands[at]);
  return from && from->code == VT_OP_CONSTANT && from->func != from->func->module->main;
}
// What a compiler knows to be zero: x - x, and values computed from that.
static bool known_zero(const vt_value *value, int depth) {
  const vt_op *op = source(value);
  if (!op || !depth) return false;
  if (op->code == VT_OP_SELECT)
    return known_zero(op->operands[1], depth - 1) && known_zero(op->operands[2], depth - 1);
  if (op->code == VT_OP_CONVERT) return known_zero(op->operands[0], depth - 1);
  if (op->operand_count != 2) return false;
  if (op->code == VT_OP_COMPARE) { // not equal to itself, less or greater
    int64_t asked = vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION);
    return op->operands[0] == op->operands[1] &&
           (asked == VT_CMP_NE || asked == VT_CMP_LT || asked == VT_CMP_GT);
  }
  if (op->operands[0] == op->operands[1] &&
      (op->code == VT_OP_SUBTRACT || op->code == VT_OP_XOR || op->code == VT_OP_REMAINDER))
    return true;
  bool either = op->code == VT_OP_MULTIPLY || op->code == VT_OP_AND;
  bool first = known_zero(op->operands[0], depth - 1);
  if (first == either) return first;
  return (vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) &&
         known_zero(op->operands[1], depth - 1);
}
static bool zero_by_zero(const vt_op *op) {
  return vt_dtype_is_integer(op->results[0].type.dtype) && known_zero(op->operands[0], 8) &&
         known_zero(op->operands[1], 8);
}
static bool is_added(const vt_op *op) {
  for (const vt_op *next = op->next; next; next = next->next)
    if (next->code == VT_OP_ADD &&
        (next->operands[0] == &op->results[0] || next->operands[1] == &op->results[0]))
      return true;
  return false;
}
static bool pads_later_dimension(const vt_op *op) {
  const int64_t *size = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, NULL);
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  bool first = true;
  for (int32_t d = 0; d < op->operands[0]->type.rank && padding; d++) {
    if (size[d] <= 1) continue;
    if (!first && (padding[2 * d] || padding[2 * d + 1])) return true;
    first = false;
  }
  return false;
}
static bool shifts(const vt_op *op) {
  uint32_t count;
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, &count);
  bool shifted = false;
  for (uint32_t i = 0; padding && i < count; i += 2)
    shifted = shifted || (padding[i] < 0 && padding[i + 1] > 0);
  for (vt_attr_key key = VT_ATTR_LHS_DILATION;; key = VT_ATTR_RHS_DILATION) {
    const int64_t *dilation = vt_attr_ints(op, key, &count);
    for (uint32_t i = 0; dilation && i < count; i++) shifted = shifted && dilation[i] == 1;
    if (key == VT_ATTR_RHS_DILATION) return shifted;
  }
}
static bool mixed_floats(const vt_op *op) {
  vt_dtype first = VT_DTYPE_INVALID;
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_dtype dtype = op->results[i].type.dtype;
    if (!vt_dtype_is_float(dtype)) continue;
    if (first && dtype != first) return true;
    first = dtype;
  }
  return false;
}
static bool narrow_float(const vt_op *op, uint32_t at) {
  vt_dtype dtype = op->operands[at]->type.dtype;
  return vt_dtype_is_float(dtype) && vt_dtype_get(dtype)->bits <= 8;
}
static bool reaches_subnormals(const vt_op *op) { // those of f32
  return vt_dtype_get(op->operands[0]->type.dtype)->exponent >= 8;
}
static bool float4_to_int(const vt_op *op) {
  return op->operands[0]->type.dtype == VT_F4E2M1FN &&
         vt_dtype_is_integer(op->results[0].type.dtype);
}
static bool total(const vt_op *op) {
  return vt_attr_i64(op, VT_ATTR_COMPARE_TYPE) == VT_CMPTYPE_TOTALORDER;
}

static bool any_constant(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->op && op->operands[i]->op->code == VT_OP_CONSTANT) return true;
  return false;
}
static bool carries_narrow_floats(const vt_op *loop) {
  for (uint32_t i = 0; i < loop->result_count; i++)
    if (narrow_float(loop, i)) return true;
  return false;
}

static const char *known_of_op(const vt_op *op) {
#define KNOWN(name, condition, reason)                                                             \
  if (op->code == VT_OP_##name && (condition)) return (reason);
#include "known.def"
#undef KNOWN
  return NULL;
}

static const char *known_of(const vt_func *func) {
  const char *reason = NULL;
  for (const vt_op *op = func->first; op && !reason; op = op->next) reason = xla_known(op);
  return reason;
}

const char *xla_known(const vt_op *op) {
  const char *reason = known_of_op(op);
  for (uint32_t r = 0; r < op->region_count && !reason; r++) reason = known_of(op->regions[r]);
  if (!reason && callee_of(op)) reason = known_of(callee_of(op));
  return reason;
}
