// SPDX-License-Identifier: Apache-2.0
// opt_fold.c - the evaluator computes ops whose operands are all constants.
// Only small results: a folded constant must not make the program larger than the op that makes it.
// A splat operand of an elementwise op folds whatever its size, and stays a splat.
#include <float.h>
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MAX_ELEMENTS = 1024 };

typedef struct fold {
  vt_arena *scratch;
  bool *changed;
  const vt_pass_options *options;
} fold;

static bool is_constant(const vt_value *value) {
  return value->op && value->op->code == VT_OP_CONSTANT;
}

static bool foldable(const vt_op *op) {
  if (op->operand_count ? !is_constant(op->operands[0]) : op->code != VT_OP_IOTA) return false;
  uint16_t flags = vt_op_info_get(op->code)->flags;
  if (op->code == VT_OP_CONSTANT || op->code == VT_OP_CUSTOM_CALL || op->code == VT_OP_RNG ||
      !op->result_count)
    return false;
  if (flags &
      (VT_OPF_CONTROL | VT_OPF_COLLECTIVE | VT_OPF_EFFECT | VT_OPF_PER_DEVICE | VT_OPF_DYNAMIC))
    return false;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (op->results[i].type.dtype == VT_TOKEN) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!is_constant(op->operands[i])) return false;
  return true;
}

static const vt_literal *literal_of(const vt_value *value) {
  return vt_attr_literal(value->op, VT_ATTR_VALUE);
}

// The dense data of a literal; splats are expanded.
static const void *dense_data(vt_arena *scratch, const vt_literal *literal) {
  vt_assert(literal->data || !vt_type_elements(literal->type));
  if (!literal->splat) return literal->data;
  size_t bytes = vt_dtype_bytes(literal->type.dtype), n = (size_t)vt_type_elements(literal->type);
  char *data = vt_arena_push_aligned(scratch, bytes * n + 128, 64);
  for (size_t i = 0; i < n; i++) memcpy(data + i * bytes, literal->data, bytes);
  return data;
}

// ---- single words -------------------------------------------------------------------------------
// The few kinds that most constants of a program are made by, as src/eval computes them: its loops
// over arrays are much code to wake for one element each.

// The bits of a NaN, and what next to zero counts as zero, are the evaluator's matter.
static bool is_clear(float x) {
  return x == 0 || x > FLT_MIN || x < -FLT_MIN;
}

static bool fold_float(vt_opcode code, float x, float y, float *out) {
  switch (code) {
  case VT_OP_ADD:
    *out = x + y;
    break;
  case VT_OP_SUBTRACT:
    *out = x - y;
    break;
  case VT_OP_MULTIPLY:
    *out = x * y;
    break;
  case VT_OP_DIVIDE:
    *out = x / y;
    break;
  case VT_OP_NEGATE:
    *out = -x;
    break;
  default:
    return false;
  }
  return is_clear(x) && is_clear(y) && is_clear(*out);
}

static bool fold_bits(vt_opcode code, uint32_t x, uint32_t y, uint32_t *out) {
  switch (code) {
  case VT_OP_ADD:
    *out = x + y;
    return true;
  case VT_OP_SUBTRACT:
    *out = x - y;
    return true;
  case VT_OP_MULTIPLY:
    *out = x * y;
    return true;
  case VT_OP_NEGATE:
    *out = 0 - x;
    return true;
  case VT_OP_AND:
    *out = x & y;
    return true;
  case VT_OP_OR:
    *out = x | y;
    return true;
  case VT_OP_XOR:
    *out = x ^ y;
    return true;
  case VT_OP_SHIFT_LEFT:
    *out = y < 32 ? x << y : 0;
    return true;
  case VT_OP_SHIFT_RIGHT_LOGICAL:
    *out = y < 32 ? x >> y : 0;
    return true;
  default:
    return false;
  }
}

static bool compare_words(const vt_op *op, vt_dtype dtype, uint32_t x, uint32_t y, uint8_t *out) {
  int32_t a = (int32_t)x, b = (int32_t)y;
  bool less = dtype == VT_S32 ? a < b : x < y, equal = x == y;
  switch (vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION)) {
  case VT_CMP_EQ:
    *out = equal;
    return true;
  case VT_CMP_NE:
    *out = !equal;
    return true;
  case VT_CMP_GE:
    *out = !less;
    return true;
  case VT_CMP_GT:
    *out = !less && !equal;
    return true;
  case VT_CMP_LE:
    *out = less || equal;
    return true;
  case VT_CMP_LT:
    *out = less;
    return true;
  default:
    return false;
  }
}

// One element, of one or two operands of one type; a select's three.
static bool fold_word(const vt_op *op, const vt_tensor *operands, void *out) {
  vt_dtype dtype = operands[0].type.dtype;
  uint32_t words[2] = {0};
  float floats[2] = {0};
  if (op->code == VT_OP_SELECT && dtype == VT_PRED) {
    const void *chosen = operands[*(const uint8_t *)operands[0].data ? 1 : 2].data;
    memcpy(out, chosen, vt_dtype_bytes(op->results[0].type.dtype));
    return true;
  }
  if (op->operand_count > 2 || vt_op_attr(op, VT_ATTR_RESULT_ACCURACY)) return false;
  if (dtype == VT_PRED) {
    uint8_t x = *(const uint8_t *)operands[0].data;
    uint8_t y = op->operand_count == 2 ? *(const uint8_t *)operands[1].data : 0;
    if (op->code != VT_OP_AND && op->code != VT_OP_OR) return false;
    *(uint8_t *)out = op->code == VT_OP_AND ? x & y : x | y;
    return true;
  }
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (operands[i].type.dtype != dtype) return false;
    if (dtype == VT_F32) memcpy(&floats[i], operands[i].data, sizeof floats[i]);
    if (dtype == VT_S32 || dtype == VT_U32) memcpy(&words[i], operands[i].data, sizeof words[i]);
  }
  if (dtype == VT_F32) return fold_float(op->code, floats[0], floats[1], out);
  if (dtype != VT_S32 && dtype != VT_U32) return false;
  if (op->code == VT_OP_COMPARE) return compare_words(op, dtype, words[0], words[1], out);
  return fold_bits(op->code, words[0], words[1], out);
}

// The most common array of different numbers.
static bool fold_iota(vt_op *op, vt_literal *out) {
  vt_type type = op->results[0].type;
  if (op->code != VT_OP_IOTA || (type.dtype != VT_S32 && type.dtype != VT_U32)) return false;
  int64_t count = vt_type_elements(type), dim = vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION), below = 1;
  if (count > MAX_ELEMENTS) return false;
  for (int32_t d = type.rank; --d > dim;) below *= type.dims[d];
  uint32_t *numbers = vt_arena_push_aligned(&op->func->module->arena, (size_t)count * 4 + 128, 64);
  for (int64_t i = 0; i < count; i++) numbers[i] = (uint32_t)(i / below % type.dims[dim]);
  *out = (vt_literal){type, numbers, false};
  return true;
}

// ---- by the evaluator ---------------------------------------------------------------------------

// An elementwise op over splats: computed for one element, with the op's shapes replaced by
// scalars.
static bool fold_splat(const fold *ctx, vt_op *op, vt_literal *out) {
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE)) return false;
  vt_tensor operands[3], result;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_literal *literal = literal_of(op->operands[i]);
    if (!literal->splat && vt_type_elements(literal->type) != 1) return false;
    operands[i] = (vt_tensor){{literal->type.dtype, 0, NULL}, (void *)(uintptr_t)literal->data};
  }
  vt_type type = {op->results[0].type.dtype, 0, NULL};
  result = (vt_tensor){type, vt_arena_push(&op->func->module->arena, 64)};
  *out = (vt_literal){op->results[0].type, result.data, true};
  if (fold_word(op, operands, result.data)) return true;
  vt_func *func = vt_func_create(op->func->module, "");
  vt_value *params[3];
  for (uint32_t i = 0; i < op->operand_count; i++)
    params[i] = vt_func_add_param(func, operands[i].type);
  vt_op *scalar = vt_op_create(func, op->code, op->loc, op->operand_count, params, 1, &type, 0);
  scalar->attrs = op->attrs;
  scalar->attr_count = op->attr_count;
  vt_eval_env env = {.exact_dots = ctx->options->exact_dots};
  vt_status st = vt_eval_op(scalar, &env, operands, &result);
  bool ok = !st;
  vt_status_free(st);
  return ok;
}

static bool fold_dense(const fold *ctx, vt_op *op, vt_literal *out) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (vt_type_elements(op->results[i].type) > MAX_ELEMENTS) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (vt_type_elements(op->operands[i]->type) > MAX_ELEMENTS) return false;
  if (!vt_eval_supports(op)) return false;
  vt_arena *keep = &op->func->module->arena;
  vt_tensor *operands = VT_NEW_ARRAY(ctx->scratch, vt_tensor, op->operand_count);
  vt_tensor *results = VT_NEW_ARRAY(ctx->scratch, vt_tensor, op->result_count);
  for (uint32_t i = 0; i < op->operand_count; i++)
    operands[i] =
        (vt_tensor){op->operands[i]->type,
                    (void *)(uintptr_t)dense_data(ctx->scratch, literal_of(op->operands[i]))};
  for (uint32_t i = 0; i < op->result_count; i++)
    results[i] = (vt_tensor){
        op->results[i].type,
        vt_arena_push_aligned(keep, (size_t)vt_type_bytes(op->results[i].type) + 128, 64)};
  vt_eval_env env = {.exact_dots = ctx->options->exact_dots};
  vt_status st = vt_eval_op(op, &env, operands, results);
  bool ok = !st;
  vt_status_free(st);
  for (uint32_t i = 0; i < op->result_count; i++)
    out[i] = (vt_literal){op->results[i].type, results[i].data, false};
  return ok;
}

// Shape ops of splats are splats of the new shape.
static bool fold_moved_splat(vt_op *op, vt_literal *out) {
  switch (op->code) {
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_RESHAPE:
  case VT_OP_TRANSPOSE:
  case VT_OP_SLICE:
  case VT_OP_REVERSE:
  case VT_OP_DYNAMIC_SLICE:
    break;
  default:
    return false;
  }
  const vt_literal *literal = literal_of(op->operands[0]);
  if (!literal->splat && vt_type_elements(literal->type) != 1) return false;
  *out = (vt_literal){op->results[0].type, literal->data, true};
  return true;
}

static void put_constants(vt_op *op, const vt_literal *literals) {
  if (op->result_count == 1 && !op->region_count) {
    vt_op_become(op, VT_OP_CONSTANT);
    op->operand_count = 0;
    vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_VALUE, .count = 1, .literal = literals});
    return;
  }
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_rewrite_value(&op->results[i], vt_build_constant(op->func, op, op->loc, &literals[i]));
}

static vt_status fold_func(vt_func *func, void *user) {
  const fold *ctx = user;
  bool any = false;
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    if (any) vt_rewrite_operands(op);
    if (!foldable(op)) continue;
    vt_op *before = op->prev;
    if (op->code == VT_OP_SCATTER && vt_simplify_whole_scatter(op)) { // its indices are known now
      next = before ? before->next : func->first;
      vt_op_remove(op);
      any = *ctx->changed = true;
      continue;
    }
    vt_literal *literals = VT_NEW_ARRAY(&func->module->arena, vt_literal, op->result_count);
    bool splat =
        op->operand_count && (fold_moved_splat(op, literals) || fold_splat(ctx, op, literals));
    if (!splat && !fold_iota(op, literals) && !fold_dense(ctx, op, literals)) continue;
    put_constants(op, literals);
    any = any || op->results[0].replaced_by;
    *ctx->changed = true;
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_fold(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                      bool *out_changed) {
  fold ctx = {scratch, out_changed, options};
  return vt_rewrite_each_func(module, fold_func, &ctx);
}
