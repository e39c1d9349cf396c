// SPDX-License-Identifier: Apache-2.0
// known.c - see known.def.
#include "compare.h"

static bool narrow_index(const vt_op *op, uint32_t at) {
  return op->operand_count > at && vt_dtype_get(op->operands[at]->type.dtype)->bits < 32;
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
// A running reduction: XLA makes several smaller windows of it.
static bool runs_over_all(const vt_op *op) {
  const int64_t *size = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, NULL);
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  vt_type in = op->operands[0]->type;
  for (int32_t d = 0; d < in.rank && padding; d++)
    if (size[d] > 1 && size[d] == in.dims[d] &&
        (padding[2 * d] == size[d] - 1 || padding[2 * d + 1] == size[d] - 1))
      return true;
  return false;
}
// An init value that is no constant: no neutral element, or by chance.
static bool own_init(const vt_op *op) {
  for (uint32_t i = op->result_count; i < op->operand_count; i++)
    if (!op->operands[i]->op || op->operands[i]->op->code != VT_OP_CONSTANT) return true;
  return false;
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
static bool float4_to_int(const vt_op *op) {
  return op->operands[0]->type.dtype == VT_F4E2M1FN &&
         vt_dtype_is_integer(op->results[0].type.dtype);
}
static bool total(const vt_op *op) {
  return vt_attr_i64(op, VT_ATTR_COMPARE_TYPE) == VT_CMPTYPE_TOTALORDER;
}

static const char *known_of_op(const vt_op *op) {
#define KNOWN(name, condition, reason)                                                             \
  if (op->code == VT_OP_##name && (condition)) return (reason);
#include "known.def"
#undef KNOWN
  return NULL;
}

static const char *known_of(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    const char *reason = known_of_op(op);
    for (uint32_t r = 0; r < op->region_count && !reason; r++) reason = known_of(op->regions[r]);
    if (reason) return reason;
  }
  return NULL;
}

const char *xla_known(const vt_module *module) {
  for (uint32_t i = 0; i < module->func_count; i++) {
    const char *reason = known_of(module->funcs[i]);
    if (reason) return reason;
  }
  return NULL;
}
