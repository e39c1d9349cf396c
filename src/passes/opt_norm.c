// SPDX-License-Identifier: Apache-2.0
// opt_norm.c - batch_norm_training, _inference and _grad written out as sums and elementwise
// operators, as XLA does it: these run in generated loops, on all threads, and fuse with what is
// before and after them. In f32, or f64 for f64, and rounded to the operand's type at the end.
//
// PyTorch/XLA sends these ops; JAX writes the sums itself.
#include "base/check.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

// What the values made for `op` have in common.
typedef struct writer {
  vt_func *func;
  vt_op *op;
  vt_dtype dtype;
  vt_type full, features; // of the operand and of one value a feature, in `dtype`
  int64_t feature;        // index of its dimension
} writer;

static vt_value *build(const writer *w, vt_opcode code, vt_value *a, vt_value *b) {
  return vt_build(w->func, w->op, code, w->op->loc, a->type, b ? 2 : 1, (vt_value *[]){a, b});
}

static vt_value *to_dtype(const writer *w, vt_value *value, vt_dtype dtype) {
  if (value->type.dtype == dtype) return value;
  vt_type type = value->type;
  type.dtype = dtype;
  return vt_build(w->func, w->op, VT_OP_CONVERT, w->op->loc, type, 1, &value);
}

static vt_value *operand(const writer *w, uint32_t i) {
  return to_dtype(w, w->op->operands[i], w->dtype);
}

static vt_value *splat(const writer *w, vt_type type, double x) {
  vt_arena *arena = &w->func->module->arena;
  vt_literal *literal = VT_NEW(arena, vt_literal);
  *literal = (vt_literal){type, vt_arena_push(arena, sizeof x), true};
  if (w->dtype == VT_F64)
    *(double *)literal->data = x;
  else
    *(float *)literal->data = (float)x;
  return vt_build_constant(w->func, w->op, w->op->loc, literal);
}

// A value a feature for each element.
static vt_value *spread(const writer *w, vt_value *value) {
  vt_value *out = vt_build(w->func, w->op, VT_OP_BROADCAST_IN_DIM, w->op->loc, w->full, 1, &value);
  vt_op_set_ints(out->op, VT_ATTR_BROADCAST_DIMENSIONS, 1, &w->feature);
  return out;
}

static vt_value *sum(const writer *w, vt_value *value) {
  vt_type scalar = {w->dtype, 0, NULL};
  vt_op *op = vt_op_create(w->func, VT_OP_REDUCE, w->op->loc, 2,
                           (vt_value *[]){value, splat(w, scalar, 0)}, 1, &w->features, 1);
  vt_func *body = op->regions[0] = vt_func_create(w->func->module, "");
  for (int i = 0; i < 2; i++) vt_func_add_param(body, scalar);
  vt_value *total = vt_build(body, NULL, VT_OP_ADD, w->op->loc, scalar, 2, body->params);
  vt_func_set_returns(body, 1, &total);
  int64_t dims[VT_MAX_RANK];
  uint32_t count = 0;
  for (int32_t d = 0; d < w->full.rank; d++)
    if (d != w->feature) dims[count++] = d;
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, count, dims);
  vt_op_insert(w->op, op);
  return &op->results[0];
}

// The mean that a sum over each feature makes.
static vt_value *mean(const writer *w, vt_value *total) {
  double count = (double)vt_type_elements(w->full) / (double)w->full.dims[w->feature];
  return build(w, VT_OP_DIVIDE, total, splat(w, w->features, count));
}

static vt_value *deviation(const writer *w, vt_value *variance) {
  double epsilon = (float)vt_attr_f64(w->op, VT_ATTR_EPSILON);
  return build(w, VT_OP_SQRT, build(w, VT_OP_ADD, variance, splat(w, w->features, epsilon)), NULL);
}

static vt_value *centred(const writer *w, vt_value *x, vt_value *middle) {
  return build(w, VT_OP_SUBTRACT, x, spread(w, middle));
}

static void give(const writer *w, uint32_t result, vt_value *value) {
  vt_value *old = &w->op->results[result];
  vt_rewrite_value(old, to_dtype(w, value, old->type.dtype));
}

static vt_value *normalise(const writer *w, vt_value *x, vt_value *middle, vt_value *variance) {
  vt_value *factor = build(w, VT_OP_DIVIDE, operand(w, 1), deviation(w, variance));
  x = build(w, VT_OP_MULTIPLY, centred(w, x, middle), spread(w, factor));
  return build(w, VT_OP_ADD, x, spread(w, operand(w, 2)));
}

static void write_training(const writer *w) {
  vt_value *x = operand(w, 0), *middle = mean(w, sum(w, x)), *off = centred(w, x, middle);
  vt_value *variance = mean(w, sum(w, build(w, VT_OP_MULTIPLY, off, off)));
  give(w, 0, normalise(w, x, middle, variance));
  give(w, 1, middle);
  give(w, 2, variance);
}

// The gradient of x is scale / deviation * (g - (mean of g + (x - mean) * pull)), where pull is the
// mean of (x - mean) * g by the variance.
static void write_grad(const writer *w) {
  vt_value *g = operand(w, 4), *off = centred(w, operand(w, 0), operand(w, 2));
  vt_value *width = deviation(w, operand(w, 3)), *sum_g = sum(w, g);
  vt_value *sum_both = sum(w, build(w, VT_OP_MULTIPLY, off, g));
  vt_value *by_width = build(w, VT_OP_DIVIDE, mean(w, sum_both), width);
  vt_value *pull = build(w, VT_OP_DIVIDE, by_width, width);
  vt_value *shift = build(w, VT_OP_MULTIPLY, off, spread(w, pull));
  shift = build(w, VT_OP_ADD, spread(w, mean(w, sum_g)), shift);
  vt_value *factor = build(w, VT_OP_DIVIDE, operand(w, 1), width);
  give(w, 0, build(w, VT_OP_MULTIPLY, build(w, VT_OP_SUBTRACT, g, shift), spread(w, factor)));
  give(w, 1, build(w, VT_OP_DIVIDE, sum_both, width));
  give(w, 2, sum_g);
}

static bool is_norm(const vt_op *op) {
  bool is = op->code == VT_OP_BATCH_NORM_TRAINING || op->code == VT_OP_BATCH_NORM_INFERENCE ||
            op->code == VT_OP_BATCH_NORM_GRAD;
  return is && vt_dtype_is_float(op->operands[0]->type.dtype) &&
         vt_type_elements(op->operands[0]->type) > 0;
}

static void write_out(vt_func *func, vt_op *op) {
  vt_type type = op->operands[0]->type;
  vt_dtype dtype = type.dtype == VT_F64 ? VT_F64 : VT_F32;
  int64_t feature = vt_attr_i64(op, VT_ATTR_FEATURE_INDEX);
  writer w = {.func = func, .op = op, .dtype = dtype, .full = type, .feature = feature};
  vt_assert(feature >= 0 && feature < type.rank);
  w.full.dtype = dtype;
  w.features = vt_type_make(&func->module->arena, dtype, 1, &type.dims[feature]);
  if (op->code == VT_OP_BATCH_NORM_TRAINING)
    write_training(&w);
  else if (op->code == VT_OP_BATCH_NORM_GRAD)
    write_grad(&w);
  else
    give(&w, 0, normalise(&w, operand(&w, 0), operand(&w, 3), operand(&w, 4)));
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user, any = false;
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    vt_rewrite_operands(op);
    if (!is_norm(op)) continue;
    write_out(func, op);
    any = *changed = true;
  }
  vt_rewrite_returns(func);
  for (vt_op *op = func->first, *next; any && op; op = next) {
    next = op->next;
    if (is_norm(op)) vt_op_remove(op);
  }
  return VT_OK;
}

vt_status vt_opt_norm(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                      bool *out_changed) {
  (void)scratch;
  bool any = module->made[VT_OP_BATCH_NORM_TRAINING] || module->made[VT_OP_BATCH_NORM_INFERENCE] ||
             module->made[VT_OP_BATCH_NORM_GRAD];
  if (options->as_written || !any) return VT_OK;
  return vt_rewrite_each_func(module, visit, out_changed);
}
