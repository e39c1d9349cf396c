// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "ir/precision.h"

static bool asks_for_default(const vt_op *op) {
  const vt_attr *attr = vt_op_attr(op, VT_ATTR_PRECISION_CONFIG);
  for (uint32_t i = 0; attr && i < attr->count; i++)
    if (attr->ints[i] != VT_PRECISION_DEFAULT) return false;
  return true;
}

static int64_t product_of(vt_type type, const int64_t *dims, uint32_t count) {
  vt_assert_each(i, count, dims[i] >= 0 && dims[i] < type.rank);
  int64_t product = 1;
  for (uint32_t i = 0; i < count; i++) product *= type.dims[dims[i]];
  return product;
}

// Elements of the operand for one batch element and one contracted element.
static int64_t own_size(vt_type type, int64_t contracted, int64_t batch) {
  int64_t others = contracted * batch;
  return others ? vt_type_elements(type) / others : 0;
}

// A convolution whose window is one element is a dot.
static bool is_matrix_convolution(const vt_op *op) {
  vt_type kernel = op->operands[1]->type;
  int64_t in = kernel.dims[vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION)];
  int64_t out = kernel.dims[vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION)];
  bool grouped = vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT) > 1 ||
                 vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT) > 1;
  if (grouped || vt_type_elements(kernel) != in * out) return true;
  return in > 1 && out > 1 && own_size(op->results[0].type, out, 1) > 1;
}

bool vt_op_is_matrix_product(const vt_op *op) {
  if (op->code == VT_OP_CONVOLUTION) return is_matrix_convolution(op);
  if (op->code != VT_OP_DOT && op->code != VT_OP_DOT_GENERAL) return false;
  vt_type lhs = op->operands[0]->type, rhs = op->operands[1]->type;
  int64_t contracted, batch = 1;
  uint32_t count;
  if (op->code == VT_OP_DOT) {
    contracted = lhs.rank ? lhs.dims[lhs.rank - 1] : 1;
  } else {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &count);
    contracted = product_of(lhs, dims, count);
    dims = vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &count);
    batch = product_of(lhs, dims, count);
  }
  return contracted > 1 && own_size(lhs, contracted, batch) > 1 &&
         own_size(rhs, contracted, batch) > 1;
}

bool vt_op_rounds_operands(const vt_op *op) {
  vt_dtype lhs = op->operands[0]->type.dtype, rhs = op->operands[1]->type.dtype,
           out = op->results[0].type.dtype;
  bool wide = lhs == VT_F32 || rhs == VT_F32;
  bool known = (lhs == VT_F32 || lhs == VT_BF16) && (rhs == VT_F32 || rhs == VT_BF16) &&
               (out == VT_F32 || out == VT_BF16);
  if (!wide || !known || vt_op_attr(op, VT_ATTR_LHS_PRECISION_TYPE) || !asks_for_default(op))
    return false;
  return vt_op_is_matrix_product(op);
}

vt_dtype vt_op_algorithm_rounds_to(const vt_op *op, uint32_t side) {
  vt_assert(side < 2 && side < op->operand_count);
  vt_attr_key key = side ? VT_ATTR_RHS_PRECISION_TYPE : VT_ATTR_LHS_PRECISION_TYPE;
  vt_dtype from = op->operands[side]->type.dtype;
  vt_dtype to = (vt_dtype)vt_attr_i64_or(op, key, VT_DTYPE_INVALID);
  if (to == VT_DTYPE_INVALID || to == from || !vt_dtype_is_float(from) || !vt_dtype_is_float(to))
    return VT_DTYPE_INVALID;
  if (vt_attr_i64_or(op, VT_ATTR_NUM_PRIMITIVE_OPERATIONS, 1) > 1) return VT_DTYPE_INVALID;
  return to == VT_F32 || to == VT_F64 ? VT_DTYPE_INVALID : to;
}
