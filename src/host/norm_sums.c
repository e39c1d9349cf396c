// SPDX-License-Identifier: Apache-2.0
// norm_sums.c - see norm_sums.h.
//
// The gradient of a normalisation sums the same arrays several times: values, values times a factor
// of the feature, deviations from a mean. Each sum is one more walk over an array that may be
// larger than the caches, and one that waits for its factor cannot join the walk before. So factors
// leave a sum, where what is left is known:
//
//   sum(-x)      ->  -sum(x)
//   sum(x f)     ->  f sum(x)        f the same for all that is added up
//   sum(x - m)   ->  sum(x) - n m    m = sum(x) / n
//
// The first two where the function has sum(x), too, or it is of the third kind. That one is 0 but
// for rounding on both sides, and a NaN on both with an infinity or a NaN in x. Other differences
// stay: a sum of small differences of large numbers would lose its digits.
//
// Of f32 and f64; digits differ.
#include "host/norm_sums.h"

#include <math.h>

#include "host/nest.h"
#include "passes/rewrite.h"

enum { MOST_FACTORS = 8 };
enum { LEAST_BYTES = 256 << 10 }; // of an array whose sums are looked at

// Sums of the function by the id of what is added up; the latest where there are several.
typedef struct known {
  vt_op **sums;  // anywhere
  vt_op **above; // before the op in hand
} known;

// What a sum adds up, without the factors that leave it.
typedef struct product {
  vt_value *rest;
  vt_value *factors[MOST_FACTORS]; // as they are in the product
  uint32_t count;
  bool negative;
} product;

static vt_op *made_by(const vt_value *value, vt_opcode code) {
  return value->op && value->op->code == code ? value->op : NULL;
}

static bool is_sum(const vt_op *op) {
  if (op->code != VT_OP_REDUCE || op->operand_count != 2 || op->result_count != 1) return false;
  vt_dtype dtype = op->results[0].type.dtype;
  return (dtype == VT_F32 || dtype == VT_F64) && op->operands[0]->type.dtype == dtype &&
         vt_type_bytes(op->operands[0]->type) >= LEAST_BYTES &&
         vt_reducer_of(op) == VT_REDUCE_ADD && vt_is_splat_of(op->operands[1], 0);
}

static bool has_dim(const vt_op *sum, int64_t dim) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(sum, VT_ATTR_DIMENSIONS, &count);
  for (uint32_t i = 0; i < count; i++)
    if (dims[i] == dim) return true;
  return false;
}

static bool same_dims(const vt_op *a, const vt_op *b) {
  for (int64_t d = 0; d < a->operands[0]->type.rank; d++)
    if (has_dim(a, d) != has_dim(b, d)) return false;
  return true;
}

// Whether the value is a number or a broadcast that is the same for all that the sum adds up, and,
// but for dimensions of size 1, has a number for each result or one for all.
static bool is_factor(const vt_op *sum, const vt_value *value) {
  double number;
  if (vt_is_number(value, &number)) return true;
  const vt_op *wide = made_by(value, VT_OP_BROADCAST_IN_DIM);
  if (!wide) return false;
  vt_type from = wide->operands[0]->type;
  uint32_t count;
  const int64_t *to = vt_attr_ints(wide, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  for (uint32_t k = 0; k < count; k++)
    if ((from.dims[k] != 1 && has_dim(sum, to[k])) || (k && to[k] < to[k - 1])) return false;
  int64_t elements = vt_type_elements(from);
  return elements == 1 || elements == vt_type_elements(sum->results[0].type);
}

// That factor as a value of the sum's result.
static vt_value *narrowed(vt_op *before, const vt_value *factor) {
  double number;
  if (vt_is_number(factor, &number))
    return vt_build_number(before, before->results[0].type, number);
  vt_value *from = factor->op->operands[0];
  vt_type out = before->results[0].type;
  if (vt_type_elements(from->type) == vt_type_elements(out)) {
    if (vt_type_same_dims(from->type, out)) return from;
    return vt_build(before->func, before, VT_OP_RESHAPE, before->loc, out, 1, &from);
  }
  vt_type scalar = {out.dtype, 0, NULL};
  if (from->type.rank)
    from = vt_build(before->func, before, VT_OP_RESHAPE, before->loc, scalar, 1, &from);
  vt_value *wide =
      vt_build(before->func, before, VT_OP_BROADCAST_IN_DIM, before->loc, out, 1, &from);
  vt_op_set_ints(wide->op, VT_ATTR_BROADCAST_DIMENSIONS, 0, NULL);
  return wide;
}

static product without_factors(const vt_op *sum) {
  product p = {.rest = sum->operands[0]};
  for (uint32_t step = 0; step < MOST_FACTORS; step++) {
    const vt_op *negate = made_by(p.rest, VT_OP_NEGATE), *times = made_by(p.rest, VT_OP_MULTIPLY);
    if (negate) {
      p.negative = !p.negative;
      p.rest = negate->operands[0];
      continue;
    }
    uint32_t which = times && is_factor(sum, times->operands[1]) ? 1 : 0;
    if (!times || (!which && !is_factor(sum, times->operands[0]))) break;
    p.factors[p.count++] = times->operands[which];
    p.rest = times->operands[1 - which];
  }
  return p;
}

static const vt_value *without_reshapes(const vt_value *value) {
  while (value->op && value->op->code == VT_OP_RESHAPE) value = value->op->operands[0];
  return value;
}

// The sum of another array over the same dimensions, before this one.
static vt_op *sum_of(vt_op *sum, vt_value *value) {
  vt_op *made = vt_op_create(sum->func, VT_OP_REDUCE, sum->loc, 2,
                             (vt_value *[]){value, sum->operands[1]}, 1, &sum->results[0].type, 1);
  made->regions[0] = vt_func_clone(sum->func->module, sum->regions[0]);
  made->attrs = sum->attrs;
  made->attr_count = sum->attr_count;
  vt_op_insert(sum, made);
  return made;
}

static double added_up(const vt_op *sum) {
  vt_type from = sum->operands[0]->type, out = sum->results[0].type;
  return (double)vt_type_elements(from) / (double)vt_type_elements(out);
}

// The sum of x where the value is a broadcast of its mean, over what `sum` adds up.
static vt_op *sum_of_mean(const vt_op *sum, const vt_value *x, const vt_value *value) {
  if (!is_factor(sum, value) || !made_by(value, VT_OP_BROADCAST_IN_DIM)) return NULL;
  const vt_value *mean = without_reshapes(value->op->operands[0]);
  const vt_op *over = made_by(mean, VT_OP_DIVIDE), *times = made_by(mean, VT_OP_MULTIPLY);
  const vt_op *op = over ? over : times;
  double by, n = added_up(sum);
  if (!op || !vt_is_number(op->operands[1], &by)) return NULL;
  if (fabs(by * (over ? 1 / n : n) - 1) > 1e-6) return NULL;
  const vt_value *total = without_reshapes(op->operands[0]);
  if (!total->op || !is_sum(total->op) || total->op->operands[0] != x) return NULL;
  return same_dims(total->op, sum) ? total->op : NULL;
}

static vt_value *build(vt_op *before, vt_opcode code, vt_value *a, vt_value *b) {
  return vt_build(before->func, before, code, before->loc, before->results[0].type, b ? 2 : 1,
                  (vt_value *[]){a, b});
}

// sum(x) - n m for what is left of the product, x - m; NULL: it is something else.
static vt_value *sum_of_deviations(vt_op *sum, const vt_value *rest) {
  const vt_op *minus = made_by(rest, VT_OP_SUBTRACT);
  vt_op *total = minus ? sum_of_mean(sum, minus->operands[0], minus->operands[1]) : NULL;
  if (!total) return NULL;
  vt_value *mean = narrowed(sum, minus->operands[1]);
  vt_value *all =
      build(sum, VT_OP_MULTIPLY, mean, vt_build_number(sum, sum->results[0].type, added_up(sum)));
  return build(sum, VT_OP_SUBTRACT, &total->results[0], all);
}

// The sum of what is left, where the function has one: that above, or one that is made here.
static vt_value *sum_of_rest(known *k, vt_op *sum, vt_value *rest) {
  vt_op *there = rest->id < 0 ? NULL : k->sums[rest->id];
  if (!there || there == sum || !same_dims(there, sum)) return NULL;
  vt_op *above = k->above[rest->id];
  if (!above || !same_dims(above, sum)) k->above[rest->id] = above = sum_of(sum, rest);
  return &above->results[0];
}

// The same sum from one that is known; NULL: none is.
static vt_value *replacement(known *k, vt_op *sum) {
  vt_op *above = k->above[sum->operands[0]->id];
  if (above && same_dims(above, sum)) return &above->results[0];
  product p = without_factors(sum);
  vt_value *value = sum_of_deviations(sum, p.rest);
  if (!value && p.rest != sum->operands[0]) value = sum_of_rest(k, sum, p.rest);
  if (!value) return NULL;
  for (uint32_t i = 0; i < p.count; i++)
    value = build(sum, VT_OP_MULTIPLY, value, narrowed(sum, p.factors[i]));
  return p.negative ? build(sum, VT_OP_NEGATE, value, NULL) : value;
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user;
  vt_arena arena = {.brief = true};
  vt_func_number(func);
  known k = {0};
  for (vt_op *op = func->first; op; op = op->next) {
    if (!is_sum(op)) continue;
    if (!k.sums) {
      k.sums = VT_NEW_ARRAY(&arena, vt_op *, func->value_count);
      k.above = VT_NEW_ARRAY(&arena, vt_op *, func->value_count);
    }
    k.sums[op->operands[0]->id] = op;
  }
  for (vt_op *op = k.sums ? func->first : NULL; op; op = op->next) {
    vt_rewrite_operands(op);
    if (!is_sum(op) || op->operands[0]->id < 0) continue;
    vt_value *value = replacement(&k, op);
    if (value)
      vt_rewrite_value(&op->results[0], value), *changed = true;
    else
      k.above[op->operands[0]->id] = op;
  }
  vt_rewrite_returns(func);
  vt_arena_free(&arena);
  return VT_OK;
}

vt_status vt_norm_sums(vt_module *module, bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_REDUCE]) return VT_OK;
  return vt_rewrite_and_drop(module, visit, out_changed);
}
