// SPDX-License-Identifier: Apache-2.0
// gen_control.c - loops, branches, calls, barriers, tokens.
#include "gen_makers.h"

#include <string.h>

enum { MOST_DEPTH = 2, MOST_CARRIED = 3 };

static bool too_deep(const gen *g) {
  return g->depth >= MOST_DEPTH + (g->manual_axes ? 2 : 0);
}

// The captures of a branch or loop; the same for all regions of the op.
typedef struct captures {
  vt_value *values[3];
  uint32_t count;
  bool inexact[3];
} captures;

static captures capture(gen *g, uint64_t dtypes) {
  captures c = {.count = (uint32_t)gen_below(g, 4)};
  for (uint32_t i = 0; i < c.count; i++) {
    c.values[i] = gen_any(g, dtypes, 0);
    c.inexact[i] = gen_is_inexact(g, c.values[i]);
  }
  return c;
}
static void add_capture_params(gen *g, const captures *c) {
  for (uint32_t i = 0; i < c->count; i++) gen_param(g, c->values[i]->type, c->inexact[i]);
}

// The value that a body returns for a place of this type; *inexact says whether it is.
static vt_value *pick_return(gen *g, vt_type type, bool may_be_inexact, bool *inexact) {
  vt_value *value = gen_of(g, type, may_be_inexact ? 0 : PICK_EXACT);
  *inexact = *inexact || gen_is_inexact(g, value);
  return value;
}

// The condition of a loop: i < n, or more often that and something else, so that nobody can know
// how often the loop runs.
static void gen_while_condition(gen *g, vt_type counter, bool open) {
  vt_type predicate = {VT_PRED, 0, NULL};
  vt_func *func = g->scope->func;
  vt_value *pair[2] = {func->params[0], gen_scalar(g, counter.dtype, (double)gen_below(g, 6))};
  vt_op *test = gen_op(g, VT_OP_COMPARE, 2, pair, 1, &predicate, 0);
  vt_op_set_i64(test, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_LT);
  vt_op_set_i64(test, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_value *result = &test->results[0];
  if (open) {
    gen_body(g, (int)gen_between(g, 0, 2));
    vt_value *either[2] = {gen_of(g, predicate, PICK_EXACT), gen_of(g, predicate, PICK_EXACT)};
    vt_value *both[2] = {result, gen_emit(g, VT_OP_OR, predicate, 2, either, false)};
    result = gen_emit(g, VT_OP_AND, predicate, 2, both, false);
  }
  vt_func_set_returns(func, 1, &result);
}

// The array with one element changed, as stacked results and tables are; NULL if it has none.
static vt_value *gen_changed(gen *g, vt_value *array) {
  vt_type type = array->type, index = {gen_chance(g, 80) ? VT_S32 : VT_S64, 0, NULL};
  int64_t dims[VT_MAX_RANK];
  vt_value *operands[2 + VT_MAX_RANK] = {array};
  if (!type.rank || !vt_type_elements(type)) return NULL;
  for (int32_t d = 0; d < type.rank; d++) {
    dims[d] = d && gen_chance(g, 50) ? type.dims[d] : 1;
    operands[2 + d] = gen_of(g, index, PICK_EXACT);
  }
  operands[1] = gen_of(g, gen_type(g, type.dtype, type.rank, dims), PICK_EXACT);
  return gen_emit(g, VT_OP_DYNAMIC_UPDATE_SLICE, type, 2 + (uint32_t)type.rank, operands, false);
}

// while (i < n) { carried... = body; i++ }
bool gen_while(gen *g, const gen_row *row) {
  if (too_deep(g)) return false;
  if (!g->mesh && gen_chance(g, 25)) return gen_scan(g, row);
  uint32_t carried = (uint32_t)gen_between(g, 1, MOST_CARRIED);
  vt_value *operands[1 + MOST_CARRIED + 3];
  vt_type types[1 + MOST_CARRIED];
  vt_type counter = {gen_chance(g, 70) ? VT_S32 : VT_S64, 0, NULL};
  bool alike = g->alike, open = gen_chance(g, 60);
  if (open && g->manual_axes) g->alike = false; // devices may run it differently often
  operands[0] = g->manual_axes && gen_chance(g, 20) ? gen_device_scalar(g, counter.dtype) : NULL;
  if (operands[0])
    g->alike = false;
  else
    operands[0] = gen_scalar(g, counter.dtype, (double)gen_below(g, 3));
  // A carried value becomes exact or inexact in the loop; only exact ones enter, so that the first
  // trip is like the others.
  for (uint32_t i = 1; i <= carried; i++) operands[i] = gen_any(g, row->dtypes, PICK_EXACT);
  captures c = capture(g, row->dtypes);
  for (uint32_t i = 0; i < c.count; i++) operands[1 + carried + i] = c.values[i];
  for (uint32_t i = 0; i <= carried; i++) types[i] = operands[i]->type;
  vt_func *regions[2] = {vt_func_create(g->module, ""), vt_func_create(g->module, "")};
  gen_scope inner;
  gen_enter(g, &inner, regions[0]);
  for (uint32_t i = 0; i <= carried; i++) gen_param(g, types[i], false);
  add_capture_params(g, &c);
  gen_while_condition(g, counter, open);
  gen_leave(g);

  gen_enter(g, &inner, regions[1]);
  for (uint32_t i = 0; i <= carried; i++) gen_param(g, types[i], false);
  add_capture_params(g, &c);
  gen_body(g, (int)gen_between(g, 1, 4));
  vt_value *returns[1 + MOST_CARRIED];
  vt_value *step[2] = {regions[1]->params[0], gen_scalar(g, counter.dtype, 1)};
  returns[0] = gen_emit(g, VT_OP_ADD, counter, 2, step, false);
  bool inexact = false;
  for (uint32_t i = 1; i <= carried; i++) {
    vt_value *changed = gen_chance(g, 40) ? gen_changed(g, regions[1]->params[i]) : NULL;
    returns[i] = changed ? changed : pick_return(g, types[i], false, &inexact);
  }
  vt_func_set_returns(regions[1], 1 + carried, returns);
  gen_leave(g);

  g->alike = alike;
  vt_op *op = gen_op(g, row->code, 1 + carried + c.count, operands, 1 + carried, types, 2);
  op->capture_count = c.count;
  memcpy(op->regions, regions, sizeof regions);
  for (uint32_t i = 0; i <= carried; i++) types[i] = op->results[i].type;
  gen_done(g, op, false, false);
  return true;
}

bool gen_branches(gen *g, const gen_row *row) {
  if (too_deep(g)) return false;
  bool two = row->code == VT_OP_IF;
  uint32_t count = two ? 2 : (uint32_t)gen_between(g, 1, 4),
           results = (uint32_t)gen_between(g, 1, 2);
  vt_value *operands[4];
  vt_type types[2], selector = {two ? VT_PRED : VT_S32, 0, NULL};
  operands[0] = two || gen_chance(g, 15) ? gen_of(g, selector, PICK_EXACT)
                                         : gen_leaf_range(g, selector, -1, count);
  captures c = capture(g, row->dtypes);
  for (uint32_t i = 0; i < c.count; i++) operands[1 + i] = c.values[i];
  for (uint32_t i = 0; i < results; i++)
    types[i] = c.count && gen_chance(g, 70) ? c.values[gen_below(g, c.count)]->type
                                            : gen_shape(g, gen_dtype(g, row->dtypes));
  vt_func *regions[4];
  bool inexact = false, alike = g->alike;
  // Around collectives all devices must branch alike.
  g->alike =
      alike && (!g->manual_axes || (operands[0]->op && operands[0]->op->code == VT_OP_CONSTANT));
  for (uint32_t r = 0; r < count; r++) {
    gen_scope inner;
    vt_value *returns[2];
    regions[r] = vt_func_create(g->module, "");
    gen_enter(g, &inner, regions[r]);
    add_capture_params(g, &c);
    gen_body(g, (int)gen_between(g, 0, 3));
    for (uint32_t i = 0; i < results; i++) returns[i] = pick_return(g, types[i], true, &inexact);
    vt_func_set_returns(regions[r], results, returns);
    gen_leave(g);
  }
  g->alike = alike;
  vt_op *op = gen_op(g, row->code, 1 + c.count, operands, results, types, count);
  op->capture_count = c.count;
  memcpy(op->regions, regions, sizeof *regions * count);
  gen_done(g, op, inexact, false);
  return true;
}

// Two arrays of integers and a scalar.
static captures capture_integers(gen *g) {
  captures c = {.count = 3};
  c.values[0] = gen_any(g, T(U32) | T(S32), 0);
  c.values[1] = gen_of(g, c.values[0]->type, 0);
  c.values[2] = gen_of(g, (vt_type){c.values[0]->type.dtype, 0, NULL}, 0);
  for (uint32_t i = 0; i < c.count; i++) c.inexact[i] = gen_is_inexact(g, c.values[i]);
  return c;
}

// They are mixed by many elementwise ops, as random bits are made.
static void mix_integers(gen *g, const vt_func *func, vt_value **out_mixed) {
  enum { STEPS = 16 };
  static const vt_opcode codes[] = {VT_OP_ADD, VT_OP_XOR, VT_OP_SUBTRACT, VT_OP_MULTIPLY};
  vt_type type = func->params[0]->type;
  for (int i = 0; i < 2; i++) out_mixed[i] = func->params[i];
  for (int i = 0; i < STEPS; i++) {
    vt_value *scalar =
        gen_chance(g, 40) ? func->params[2] : gen_scalar(g, type.dtype, (double)gen_below(g, 32));
    if (type.rank) {
      vt_op *splat = gen_op(g, VT_OP_BROADCAST_IN_DIM, 1, &scalar, 1, &type, 0);
      vt_op_set_ints(splat, VT_ATTR_BROADCAST_DIMENSIONS, 0, NULL);
      gen_done(g, splat, false, false);
      scalar = &splat->results[0];
    }
    vt_value *first[2] = {out_mixed[i % 2], scalar};
    first[0] = gen_emit(g, codes[gen_below(g, 4)], type, 2, first, false);
    first[1] = out_mixed[1 - i % 2];
    out_mixed[i % 2] = gen_emit(g, codes[gen_below(g, 4)], type, 2, first, false);
  }
}

// A call, or a composite with its own decomposition.
bool gen_call(gen *g, const gen_row *row) {
  if (too_deep(g)) return false;
  bool mixes = gen_chance(g, 40);
  captures c = mixes ? capture_integers(g) : capture(g, row->dtypes);
  vt_func *callee =
      vt_func_create(g->module, vt_arena_printf(&g->module->arena, "%s_%u", g->name, ++g->callees));
  gen_scope inner;
  gen_enter(g, &inner, callee);
  add_capture_params(g, &c);
  uint32_t results = mixes ? 2 : (uint32_t)gen_between(g, 1, 2);
  vt_value *returns[2];
  vt_type types[2];
  bool inexact = false;
  if (mixes)
    mix_integers(g, callee, returns);
  else
    gen_body(g, (int)gen_between(g, 1, 4));
  for (uint32_t i = 0; i < results; i++) {
    if (!mixes) returns[i] = gen_any(g, row->dtypes, 0);
    inexact = inexact || gen_is_inexact(g, returns[i]);
    types[i] = returns[i]->type;
  }
  vt_func_set_returns(callee, results, returns);
  gen_leave(g);
  vt_module_add_func(g->module, callee);
  vt_op *op = gen_op(g, row->code, c.count, c.values, results, types, 0);
  vt_func **list = VT_NEW(&g->module->arena, vt_func *);
  *list = callee;
  bool composite = row->code == VT_OP_COMPOSITE;
  vt_op_set_attr(op, (vt_attr){.key = composite ? VT_ATTR_DECOMPOSITION : VT_ATTR_CALLEE,
                               .count = 1,
                               .funcs = list});
  if (composite) {
    vt_op_set_string(op, VT_ATTR_NAME, "fuzz.composite");
    vt_op_set_i64(op, VT_ATTR_VERSION, 1);
  }
  gen_done(g, op, inexact, false);
  return true;
}

bool gen_barrier(gen *g, const gen_row *row) {
  vt_value *x[3];
  vt_type types[3];
  uint32_t count = (uint32_t)gen_between(g, 1, 3);
  for (uint32_t i = 0; i < count; i++) types[i] = (x[i] = gen_any(g, row->dtypes, 0))->type;
  gen_done(g, gen_op(g, row->code, count, x, count, types, 0), false, true);
  return true;
}

bool gen_token(gen *g, const gen_row *row) {
  (void)row;
  vt_type token = {VT_TOKEN, 0, NULL};
  vt_value *x[2];
  for (int i = 0; i < 2; i++)
    x[i] = &gen_op(g, VT_OP_CREATE_TOKEN, 0, NULL, 1, &token, 0)->results[0];
  gen_op(g, VT_OP_AFTER_ALL, 2, x, 1, &token, 0);
  return true;
}
