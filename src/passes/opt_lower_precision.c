// SPDX-License-Identifier: Apache-2.0
// opt_lower_precision.c - makes the chip's rounding visible in the program.
// A contraction that rounds (ir/precision.h) converts its operands to bf16 and accumulates in f32.
// Here the rounding becomes an op (convert to bf16 where the host multiplies bf16 fast, else
// reduce_precision to bf16's grid), which fusion merges into the operand's producer and cse shares
// between contractions. Afterwards the contraction itself is HIGHEST: it rounds nothing. HIGH and
// HIGHEST are plain f32 here. A dot algorithm specifies what each operand is rounded to; afterwards
// it is set to f32.
#include "base/check.h"
#include "ir/precision.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { BF16_EXPONENT_BITS = 8, BF16_MANTISSA_BITS = 7 };

// Products summed for one element of the result.
static int64_t contraction_depth(const vt_op *op) {
  vt_assert(op->code == VT_OP_DOT_GENERAL || op->code == VT_OP_CONVOLUTION);
  int64_t depth = 1;
  vt_type rhs = op->operands[1]->type;
  uint32_t count;
  if (op->code == VT_OP_DOT_GENERAL) {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) depth *= rhs.dims[dims[i]];
    return depth;
  }
  const int64_t *spatial = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, &count);
  for (uint32_t i = 0; i < count; i++) depth *= rhs.dims[spatial[i]];
  return depth * rhs.dims[vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION)];
}

// The value on bf16's grid, as bf16 or as f32. A value converted from bf16 already is.
static vt_value *rounded(vt_op *before, vt_value *value, bool as_bf16) {
  vt_assert(value->type.dtype == VT_F32);
  vt_op *from = value->op;
  bool exact = from && from->code == VT_OP_CONVERT && from->operands[0]->type.dtype == VT_BF16;
  if (exact) return as_bf16 ? from->operands[0] : value;
  vt_type type = value->type;
  type.dtype = as_bf16 ? VT_BF16 : VT_F32;
  vt_value *result =
      vt_build(before->func, before, as_bf16 ? VT_OP_CONVERT : VT_OP_REDUCE_PRECISION, before->loc,
               type, 1, &value);
  if (!as_bf16) {
    vt_op_set_i64(result->op, VT_ATTR_EXPONENT_BITS, BF16_EXPONENT_BITS);
    vt_op_set_i64(result->op, VT_ATTR_MANTISSA_BITS, BF16_MANTISSA_BITS);
  }
  return result;
}

static vt_value *widened(vt_op *before, vt_value *value) {
  vt_type type = value->type;
  type.dtype = VT_F32;
  return vt_build(before->func, before, VT_OP_CONVERT, before->loc, type, 1, &value);
}

typedef struct lowering {
  const vt_pass_options *options;
  bool *changed;
} lowering;

// Rounded to the type's grid, keeping its own type.
static vt_value *rounded_to(vt_op *before, vt_value *value, vt_dtype to) {
  vt_type type = value->type;
  if (to == VT_BF16 && type.dtype == VT_F32) return rounded(before, value, false);
  type.dtype = to;
  vt_value *narrow = vt_build(before->func, before, VT_OP_CONVERT, before->loc, type, 1, &value);
  return vt_build(before->func, before, VT_OP_CONVERT, before->loc, value->type, 1, &narrow);
}

static void lower_algorithm(vt_op *op, const lowering *ctx) {
  vt_dtype to[2] = {vt_op_algorithm_rounds_to(op, 0), vt_op_algorithm_rounds_to(op, 1)};
  if (to[0] == VT_DTYPE_INVALID && to[1] == VT_DTYPE_INVALID) return;
  bool as_bf16 = ctx->options->bf16_dots && op->results[0].type.dtype == VT_F32 &&
                 contraction_depth(op) >= ctx->options->min_bf16_depth;
  for (uint32_t side = 0; side < 2; side++)
    as_bf16 = as_bf16 && to[side] == VT_BF16 && op->operands[side]->type.dtype == VT_F32;
  for (uint32_t side = 0; side < 2; side++) {
    if (to[side] == VT_DTYPE_INVALID) continue;
    vt_value *operand = op->operands[side];
    op->operands[side] = as_bf16 ? rounded(op, operand, true) : rounded_to(op, operand, to[side]);
    vt_op_set_i64(op, side ? VT_ATTR_RHS_PRECISION_TYPE : VT_ATTR_LHS_PRECISION_TYPE, VT_F32);
  }
  *ctx->changed = true;
}

static vt_status lower_func(vt_func *func, void *user) {
  const lowering *ctx = user;
  static const int64_t highest[2] = {VT_PRECISION_HIGHEST, VT_PRECISION_HIGHEST};
  for (vt_op *op = func->first; op; op = op->next) {
    if (op->code != VT_OP_DOT_GENERAL && op->code != VT_OP_CONVOLUTION) continue;
    if (op->code == VT_OP_DOT_GENERAL) lower_algorithm(op, ctx);
    if (op->results[0].type.dtype != VT_F32 || !vt_op_rounds_operands(op)) continue;
    if (!ctx->options->exact_dots) {
      bool as_bf16 =
          ctx->options->bf16_dots && contraction_depth(op) >= ctx->options->min_bf16_depth;
      for (uint32_t side = 0; side < 2; side++) {
        vt_value *operand = op->operands[side];
        if (operand->type.dtype == VT_F32) op->operands[side] = rounded(op, operand, as_bf16);
        if (operand->type.dtype == VT_BF16 && !as_bf16) op->operands[side] = widened(op, operand);
      }
    }
    vt_op_set_ints(op, VT_ATTR_PRECISION_CONFIG, 2, highest);
    *ctx->changed = true;
  }
  return VT_OK;
}

vt_status vt_opt_lower_precision(vt_module *module, const vt_pass_options *options,
                                 vt_arena *scratch, bool *out_changed) {
  (void)scratch;
  lowering ctx = {options, out_changed};
  return vt_rewrite_each_func(module, lower_func, &ctx);
}
