// SPDX-License-Identifier: Apache-2.0
// wide_chains.c - see wide_chains.h.
//
// A processor computes in f32 and rounds each result to bf16, which costs as much as several
// operators. XLA rounds only what leaves a fusion (docs/algebra.md). Here a value that one operator
// reads, both of them smooth, is not rounded; nor are sums of a product, where products run in
// strips. What several read, what is returned, and what goes to or comes from anything else is bf16
// as the program says: so neither fusion nor threads decide about bits, and sums that are corrected
// by their own rounding stay right.
//
//   add(multiply(x, y), z) : bf16  ->  convert(add(multiply(f32 x, f32 y), f32 z))
//
// Before that, a function of one number that is written as f32 between two conversions, as jaxlib
// does for erf, becomes what it computes: one of bf16.
#include "host/wide_chains.h"

#include "host/wide_sums.h"
#include "passes/rewrite.h"

typedef struct chains {
  bool (*sums)(const vt_op *); // products that may begin a chain; NULL: none
  uint32_t *count;
  vt_op **reader;  // where the count is 1; NULL: it is returned
  bool *on;        // the result goes on in f32
  vt_value **wide; // that result
} chains;

// A small change of an operand changes the result little.
static bool is_smooth(vt_opcode code) {
  switch (code) {
  case VT_OP_ABS:
  case VT_OP_ADD:
  case VT_OP_CLAMP:
  case VT_OP_DIVIDE:
  case VT_OP_ERF:
  case VT_OP_ERFC:
  case VT_OP_EXPONENTIAL:
  case VT_OP_LOGISTIC:
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
  case VT_OP_MULTIPLY:
  case VT_OP_NEGATE:
  case VT_OP_RSQRT:
  case VT_OP_SELECT:
  case VT_OP_SQRT:
  case VT_OP_SUBTRACT:
  case VT_OP_TANH:
    return true;
  default:
    return false;
  }
}

static bool is_link(const vt_op *op) {
  if (!is_smooth(op->code) || op->result_count != 1) return false;
  vt_type type = op->results[0].type;
  if (type.dtype != VT_BF16) return false;
  for (uint32_t i = op->code == VT_OP_SELECT; i < op->operand_count; i++)
    if (op->operands[i]->type.dtype != VT_BF16) return false;
  return true;
}

// What only moves numbers lets a chain pass.
static bool is_move(const vt_op *op) {
  return (op->code == VT_OP_RESHAPE || op->code == VT_OP_BROADCAST_IN_DIM) &&
         op->results[0].type.dtype == VT_BF16;
}

static bool is_start(const chains *c, const vt_op *op) {
  return c->sums && c->sums(op);
}

static vt_op *only_reader(const chains *c, const vt_op *op) {
  int32_t id = op->results[0].id;
  return c->count[id] == 1 ? c->reader[id] : NULL;
}

// Of the products that meet in one chain, the first goes on: generated code takes the sums of one
// (strip.h), the others are written, which costs half as much in bf16.
static bool find_chains(chains *c, const vt_func *func, vt_arena *arena) {
  int32_t *end = VT_NEW_ARRAY(arena, int32_t, func->value_count); // result of the chain
  bool *taken = VT_NEW_ARRAY(arena, bool, func->value_count), any = false;
  for (const vt_op *op = func->last; op; op = op->prev) {
    if (!is_link(op) && !is_move(op) && !is_start(c, op)) continue;
    int32_t id = op->results[0].id;
    const vt_op *reader = only_reader(c, op);
    end[id] = id;
    if (!reader || !(is_link(reader) || (is_move(reader) && c->on[reader->results[0].id])))
      continue;
    c->on[id] = true;
    end[id] = end[reader->results[0].id];
  }
  for (const vt_op *op = func->first; op; op = op->next) {
    if (!is_start(c, op) && !is_link(op)) continue;
    int32_t id = op->results[0].id;
    if (!c->on[id]) continue;
    any = true;
    if (is_link(op)) continue;
    const vt_op *late = taken[end[id]] ? op : NULL;
    taken[end[id]] = true;
    for (; late && !is_link(late); late = only_reader(c, late)) c->on[late->results[0].id] = false;
  }
  return any;
}

// Each reader has a conversion of its own, which is made where it is read. A number has none: equal
// ones would be merged, and then be written and read as an array.
static vt_value *widened(vt_op *before, vt_value *value) {
  vt_type type = value->type;
  type.dtype = VT_F32;
  double number;
  if (vt_is_number(value, &number)) return vt_build_number(before, type, number);
  return vt_build(before->func, before, VT_OP_CONVERT, before->loc, type, 1, &value);
}

static vt_value *remade(vt_op *op, vt_value *const *operands) {
  vt_type type = op->results[0].type;
  type.dtype = VT_F32;
  vt_value *made = vt_build(op->func, op, op->code, op->loc, type, op->operand_count, operands);
  made->op->attrs = op->attrs;
  made->op->attr_count = op->attr_count;
  return made;
}

static void visit_link(chains *c, vt_op *op) {
  int32_t id = op->results[0].id;
  bool widens = c->on[id];
  vt_value *operands[3];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    operands[i] = c->wide[op->operands[i]->id];
    widens = widens || operands[i];
  }
  if (!widens) return;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_value *operand = vt_rewrite_resolve(op->operands[i]);
    if (!operands[i]) operands[i] = operand->type.dtype == VT_BF16 ? widened(op, operand) : operand;
  }
  vt_value *result = remade(op, operands);
  if (c->on[id]) {
    c->wide[id] = result;
    return;
  }
  vt_value *narrow =
      vt_build(op->func, op, VT_OP_CONVERT, op->loc, op->results[0].type, 1, &result);
  vt_rewrite_value(&op->results[0], narrow);
}

static void visit_op(chains *c, vt_op *op) {
  if (is_link(op)) {
    visit_link(c, op);
  } else if (is_move(op)) {
    vt_value *from = c->wide[op->operands[0]->id];
    if (from) c->wide[op->results[0].id] = remade(op, &from);
  } else if (is_start(c, op) && c->on[op->results[0].id]) {
    vt_rewrite_operands(op);
    c->wide[op->results[0].id] = remade(op, op->operands);
  }
}

typedef struct widening {
  bool changed; // first: it is what vt_rewrite_and_drop hands on
  bool (*sums)(const vt_op *);
} widening;

static vt_status visit(vt_func *func, void *user) {
  widening *w = user;
  bool any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next) any = is_link(op);
  if (!any) return VT_OK;
  vt_arena arena = {.brief = true};
  chains c = {.sums = w->sums, .count = vt_func_use_counts(func, &arena)};
  c.reader = VT_NEW_ARRAY(&arena, vt_op *, func->value_count);
  c.wide = VT_NEW_ARRAY(&arena, vt_value *, func->value_count);
  c.on = VT_NEW_ARRAY(&arena, bool, func->value_count);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) c.reader[op->operands[i]->id] = op;
  any = find_chains(&c, func, &arena);
  for (vt_op *op = func->first; op && any; op = op->next) {
    visit_op(&c, op);
    vt_rewrite_operands(op);
  }
  if (any) vt_rewrite_returns(func);
  w->changed |= any;
  vt_arena_free(&arena);
  return VT_OK;
}

// convert(f(convert(x))) of f32: f(x) of bf16.
static vt_value *narrow_function(const vt_op *op) {
  if (op->code != VT_OP_CONVERT || op->results[0].type.dtype != VT_BF16) return NULL;
  const vt_op *function = op->operands[0]->op;
  if (!function || function->operand_count != 1 || !is_smooth(function->code) ||
      function->results[0].type.dtype != VT_F32)
    return NULL;
  const vt_op *from = function->operands[0]->op;
  bool narrow = from && from->code == VT_OP_CONVERT && from->operands[0]->type.dtype == VT_BF16;
  return narrow ? from->operands[0] : NULL;
}

bool vt_wide_chains_keep(const vt_op *op) {
  if (op->result_count == 1 && op->code == VT_OP_MAP)
    return op->results[0].type.dtype == VT_BF16; // becomes operators
  return narrow_function(op) || vt_is_narrow_product(op) ||
         (is_link(op) && !(vt_op_info_get(op->code)->flags & VT_OPF_EXACT));
}

static vt_status visit_functions(vt_func *func, void *user) {
  bool *changed = user, any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next) any = narrow_function(op);
  if (!any) return VT_OK;
  vt_arena arena = {.brief = true};
  const uint32_t *count = vt_func_use_counts(func, &arena);
  any = false;
  for (vt_op *op = func->first; op; op = op->next) {
    vt_value *x = narrow_function(op);
    const vt_op *function = x ? op->operands[0]->op : NULL;
    bool alone = function && count[function->results[0].id] == 1; // else it would be computed twice
    vt_rewrite_operands(op);
    if (!alone) continue;
    x = vt_rewrite_resolve(x);
    vt_value *made = vt_build(func, op, function->code, function->loc, op->results[0].type, 1, &x);
    made->op->attrs = function->attrs;
    made->op->attr_count = function->attr_count;
    vt_rewrite_value(&op->results[0], made);
    any = true;
  }
  if (any) vt_rewrite_returns(func);
  *changed = *changed || any;
  vt_arena_free(&arena);
  return VT_OK;
}

vt_status vt_wide_chains(vt_module *module, bool (*sums)(const vt_op *), bool *out_changed) {
  bool narrowed;
  widening w = {.sums = sums};
  VT_TRY(vt_rewrite_and_drop(module, visit_functions, &narrowed));
  VT_TRY(vt_rewrite_and_drop(module, visit, &w.changed));
  *out_changed = w.changed || narrowed;
  return VT_OK;
}
