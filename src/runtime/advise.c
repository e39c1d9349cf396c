// SPDX-License-Identifier: Apache-2.0
// advise.c - which sizes of a program's matrix products are worth padding: each is tried, as the
// user would try it, by the same program with that number changed wherever it is a size.
//
// A change that the program does not bear (the number is part of a reshape, of a table of
// constants, of a kernel) is no advice. Nor is one that gains less than a hundredth.
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "chip/flops.h"
#include "import/import.h"
#include "ir/precision.h"
#include "runtime/predict.h"
#include "runtime/runtime_internal.h"

enum { MOST_SIZES = 4, TARGETS = 3, LANES = 128, LEAST_SIZE = 64 };
static const double worth = 0.01;

// ---- the sizes of products ----------------------------------------------------------------------

typedef struct size_of_product {
  int64_t size;
  double flops;    // of the products that have it
  const vt_op *op; // the largest of them
  double flops_of_op;
} size_of_product;
typedef VT_ARRAY(size_of_product) size_list;

static void add_size(size_list *list, vt_arena *arena, int64_t size, const vt_op *op) {
  if (size < LEAST_SIZE || size % LANES == 0) return;
  double flops = vt_flops_of_product(op);
  size_of_product *found = NULL;
  for (size_t i = 0; i < list->size && !found; i++)
    if (list->data[i].size == size) found = &list->data[i];
  if (!found) {
    vt_array_push_in(arena, list, ((size_of_product){.size = size}));
    found = &list->data[list->size - 1];
  }
  found->flops += flops;
  if (found->op && found->flops_of_op >= flops) return;
  found->op = op;
  found->flops_of_op = flops;
}

static void add_sizes(size_list *list, vt_arena *arena, const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code == VT_OP_DOT_GENERAL && vt_op_is_matrix_product(op)) {
      for (uint32_t i = 0; i < 2; i++)
        for (int32_t d = 0; d < op->operands[i]->type.rank; d++)
          add_size(list, arena, op->operands[i]->type.dims[d], op);
    }
    for (uint32_t r = 0; r < op->region_count; r++) add_sizes(list, arena, op->regions[r]);
  }
}

static int by_flops(const void *a, const void *b) {
  const size_of_product *x = a, *y = b;
  if (x->flops != y->flops) return x->flops < y->flops ? 1 : -1;
  return (x->size > y->size) - (x->size < y->size);
}

// ---- another size -------------------------------------------------------------------------------

typedef struct change {
  vt_arena *arena;
  int64_t from, to;
  bool refused;
} change;

static bool has_size(const change *c, vt_type type) {
  for (int32_t d = 0; d < type.rank; d++)
    if (type.dims[d] == c->from) return true;
  return false;
}

static vt_type resized(const change *c, vt_type type) {
  if (!has_size(c, type)) return type;
  int64_t *dims = VT_NEW_ARRAY(c->arena, int64_t, type.rank);
  for (int32_t d = 0; d < type.rank; d++) dims[d] = type.dims[d] == c->from ? c->to : type.dims[d];
  type.dims = dims;
  return type;
}

static void resize_ints(const change *c, vt_op *op, vt_attr_key key) {
  uint32_t count = 0;
  if (!vt_op_attr(op, key)) return;
  const int64_t *old = vt_attr_ints(op, key, &count);
  int64_t *sizes = VT_NEW_ARRAY(c->arena, int64_t, count + 1);
  for (uint32_t i = 0; i < count; i++) sizes[i] = old[i] == c->from ? c->to : old[i];
  vt_op_set_ints(op, key, count, sizes);
}

// What is padded up to the size is padded up to the new one.
static void resize_pad(const change *c, vt_op *op) {
  vt_type from = op->operands[0]->type, to = op->results[0].type;
  const int64_t *high = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_HIGH, NULL);
  int64_t *other = VT_NEW_ARRAY(c->arena, int64_t, to.rank + 1);
  for (int32_t d = 0; d < to.rank; d++) {
    bool grows = to.dims[d] == c->from && from.dims[d] != c->to; // the operand has been resized
    other[d] = high[d] + (grows ? c->to - c->from : 0);
  }
  vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_HIGH, (uint32_t)to.rank, other);
}

static void resize_constant(change *c, vt_op *op) {
  const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
  if (!literal || !has_size(c, literal->type)) return;
  if (!literal->splat) c->refused = true;
  vt_literal *other = VT_NEW(c->arena, vt_literal);
  *other = *literal;
  other->type = resized(c, literal->type);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_VALUE, .literal = other});
}

static void resize_func(change *c, vt_func *func) {
  for (uint32_t i = 0; i < func->param_count; i++)
    func->params[i]->type = resized(c, func->params[i]->type);
  for (vt_op *op = func->first; op; op = op->next) {
    if (op->code == VT_OP_PAD) resize_pad(c, op);
    for (uint32_t i = 0; i < op->result_count; i++) {
      if (op->code == VT_OP_CUSTOM_CALL && has_size(c, op->results[i].type)) c->refused = true;
      op->results[i].type = resized(c, op->results[i].type);
    }
    if (op->code == VT_OP_CONSTANT) resize_constant(c, op);
    resize_ints(c, op, VT_ATTR_SLICE_SIZES);
    resize_ints(c, op, VT_ATTR_LIMIT_INDICES);
    for (uint32_t r = 0; r < op->region_count; r++) resize_func(c, op->regions[r]);
  }
}

static bool resize(vt_module *module, int64_t from, int64_t to) {
  change c = {.arena = &module->arena, .from = from, .to = to};
  for (uint32_t i = 0; i < module->func_count; i++) resize_func(&c, module->funcs[i]);
  vt_status st = c.refused ? VT_OK : vt_module_verify(module);
  bool good = !c.refused && !st;
  vt_status_free(st);
  return good;
}

// ---- what it saves ------------------------------------------------------------------------------

// Multiples of the lanes, of a wide matrix unit, and of the lanes on each of the devices.
static int32_t targets_of(const vt_prediction *p, const vt_slice *slice, int64_t size,
                          int64_t *out_targets) {
  int64_t steps[TARGETS] = {LANES, slice->chip->mxu_edge, (int64_t)LANES * p->devices};
  int32_t count = 0;
  for (int i = 0; i < TARGETS; i++) {
    if (steps[i] <= 0 || steps[i] > size) continue;
    int64_t to = (size + steps[i] - 1) / steps[i] * steps[i];
    bool known = false;
    for (int32_t k = 0; k < count; k++) known = known || out_targets[k] == to;
    if (!known) out_targets[count++] = to;
  }
  return count;
}

// Infinite: the program is another one then, or does not fit.
static double seconds_with(vt_bytes program, const vt_slice *slice, int64_t from, int64_t to) {
  vt_arena arena = {0};
  vt_prediction p = {0};
  double seconds = HUGE_VAL;
  vt_status st = vt_import_outline(program, &p.module);
  if (!st && resize(p.module, from, to)) {
    st = vt_predict_module(slice, &arena, &p);
    if (!st) seconds = p.timing.seconds;
  }
  vt_status_free(st);
  vt_prediction_free(&p);
  vt_arena_free(&arena);
  return seconds;
}

void vt_predict_advise(vt_bytes program, const vt_slice *slice, const vt_prediction *prediction,
                       vt_arena *arena, vt_padding_advice *out_advice) {
  size_list sizes = {0};
  double now = prediction->timing.seconds;
  *out_advice = (vt_padding_advice){0};
  vt_module *module = NULL;
  vt_status st = vt_import_outline(program, &module);
  vt_status_free(st);
  if (st) return;
  for (uint32_t i = 0; i < module->func_count; i++) add_sizes(&sizes, arena, module->funcs[i]);
  if (sizes.size) qsort(sizes.data, sizes.size, sizeof *sizes.data, by_flops);
  out_advice->items = VT_NEW_ARRAY(arena, vt_padding, MOST_SIZES);
  for (size_t i = 0; i < sizes.size && i < MOST_SIZES; i++) {
    int64_t targets[TARGETS], from = sizes.data[i].size, best = 0;
    int32_t count = targets_of(prediction, slice, from, targets);
    double least = now * (1 - worth);
    for (int32_t k = 0; k < count; k++) {
      double seconds = seconds_with(program, slice, from, targets[k]);
      if (seconds < least) least = seconds, best = targets[k];
    }
    if (!best) continue;
    const vt_loc *loc = sizes.data[i].op->loc;
    out_advice->items[out_advice->count++] =
        (vt_padding){.from = from,
                     .to = best,
                     .seconds = least,
                     .saves = 1 - least / now,
                     .name = vt_arena_printf(arena, "%s", loc->name),
                     .file = vt_arena_printf(arena, "%s", loc->file),
                     .line = loc->line};
  }
  vt_module_destroy(module);
}
