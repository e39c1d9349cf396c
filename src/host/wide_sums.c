// SPDX-License-Identifier: Apache-2.0
// wide_sums.c - see wide_sums.h.
//
// Sums of products of bf16 are f32 inside; a result of bf16 is their rounding. As an op of its own
// the rounding goes, with what follows, to where the sums are in the cache (strip.h), or into the
// product's step (plan_epilogue.c). It comes behind what only moves the result, which is part of
// the product's step too.
//
//   transpose(dot(x, y) : bf16)  ->  convert(transpose(dot(x, y) : f32))
#include "host/wide_sums.h"

#include "host/strip.h"
#include "ir/precision.h"
#include "passes/rewrite.h"

// What reads each value, where it is one op.
typedef struct readers {
  uint32_t *count;
  vt_op **ops;
} readers;

static readers find_readers(vt_func *func, vt_arena *arena) {
  readers r = {.count = vt_func_use_counts(func, arena)};
  r.ops = VT_NEW_ARRAY(arena, vt_op *, func->value_count);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) r.ops[op->operands[i]->id] = op;
  return r;
}

bool vt_is_narrow_product(const vt_op *op) {
  if (op->code != VT_OP_DOT_GENERAL && op->code != VT_OP_CONVOLUTION) return false;
  return op->results[0].type.dtype == VT_BF16 && op->operands[0]->type.dtype == VT_BF16 &&
         op->operands[1]->type.dtype == VT_BF16 && vt_op_is_matrix_product(op);
}

bool vt_is_narrow_pairs(const vt_op *op) {
  if (!vt_is_narrow_product(op)) return false;
  if (op->code == VT_OP_DOT_GENERAL) return true;
  vt_type type = op->results[0].type;
  int64_t columns = type.dims[vt_attr_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION)];
  if (!columns) return false;
  vt_type kernel = op->operands[1]->type;
  int64_t channels = kernel.dims[vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION)];
  int64_t rows = vt_type_elements(type) / columns, depth = vt_type_elements(kernel) / columns;
  return vt_strip_pays_few(rows, columns) || vt_strip_pays_picture(channels, columns, depth) ||
         (depth == channels && vt_strip_pays_narrowing(rows, columns, depth));
}

static vt_value *widened(vt_op *before, const vt_op *op, uint32_t count,
                         vt_value *const *operands) {
  vt_type type = op->results[0].type;
  type.dtype = VT_F32;
  vt_value *made = vt_build(before->func, before, op->code, op->loc, type, count, operands);
  made->op->attrs = op->attrs;
  made->op->attr_count = op->attr_count;
  return made;
}

static void widen(const readers *r, vt_op *product) {
  vt_value *value = widened(product, product, 2, product->operands);
  vt_op *last = product;
  for (;;) {
    // Counts are of the function as it was: what was made since then has no number.
    int32_t id = last->results[0].id;
    vt_op *next = r->count[id] == 1 ? r->ops[id] : NULL;
    if (!next || (next->code != VT_OP_TRANSPOSE && next->code != VT_OP_RESHAPE)) break;
    value = widened(next, next, 1, &value);
    last = next;
  }
  vt_value *narrow =
      vt_build(last->func, last, VT_OP_CONVERT, product->loc, last->results[0].type, 1, &value);
  vt_rewrite_value(&last->results[0], narrow);
}

typedef struct widening {
  bool changed; // first: it is what vt_rewrite_and_drop hands on
  bool (*which)(const vt_op *);
} widening;

static vt_status visit(vt_func *func, void *user) {
  widening *w = user;
  bool any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next) any = w->which(op);
  if (!any) return VT_OK;
  vt_arena arena = {.brief = true};
  readers r = find_readers(func, &arena);
  for (vt_op *op = func->first; op; op = op->next) {
    vt_rewrite_operands(op);
    if (w->which(op)) widen(&r, op);
  }
  vt_rewrite_returns(func);
  w->changed = true;
  vt_arena_free(&arena);
  return VT_OK;
}

vt_status vt_wide_sums(vt_module *module, bool (*which)(const vt_op *), bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_DOT_GENERAL] && !module->made[VT_OP_CONVOLUTION]) return VT_OK;
  widening w = {.which = which};
  VT_TRY(vt_rewrite_and_drop(module, visit, &w.changed));
  *out_changed = w.changed;
  return VT_OK;
}
