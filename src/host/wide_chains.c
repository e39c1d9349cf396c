// SPDX-License-Identifier: Apache-2.0
// wide_chains.c - see wide_chains.h.
//
// A processor computes in f32 and rounds each result to bf16, which costs as much as several
// operators. XLA rounds only what leaves a fusion (docs/algebra.md). Here a value that one operator
// reads, both of them smooth, is not rounded. What several read, what is returned, and what goes to
// or comes from anything else is bf16 as the program says: so neither fusion nor threads decide
// about bits, and sums that are corrected by their own rounding stay right.
//
//   add(multiply(x, y), z) : bf16  ->  convert(add(multiply(f32 x, f32 y), f32 z))
//
// Before that, a function of one number that is written as f32 between two conversions, as jaxlib
// does for erf, becomes what it computes: one of bf16.
#include "host/wide_chains.h"

#include "passes/rewrite.h"

typedef struct chains {
  uint32_t *count;
  vt_op **reader;  // where the count is 1; NULL: it is returned
  vt_value **wide; // the result in f32, where it goes on
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

// Whether the result goes on in f32.
static bool goes_on(const chains *c, const vt_op *op) {
  if (!is_link(op)) return false;
  int32_t id = op->results[0].id;
  return c->count[id] == 1 && c->reader[id] && is_link(c->reader[id]);
}

// Each reader has a conversion of its own, which is made where it is read.
static vt_value *widened(vt_op *before, vt_value *value) {
  vt_type type = value->type;
  type.dtype = VT_F32;
  return vt_build(before->func, before, VT_OP_CONVERT, before->loc, type, 1, &value);
}

static void visit_op(chains *c, vt_op *op) {
  bool on = goes_on(c, op), widens = on;
  int32_t ids[3];
  if (!is_link(op)) return;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_op *from = op->operands[i]->op;
    widens = widens || (from && goes_on(c, from));
    ids[i] = op->operands[i]->id;
  }
  if (!widens) return;
  vt_value *operands[3];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_value *operand = vt_rewrite_resolve(op->operands[i]);
    operands[i] = c->wide[ids[i]]                  ? c->wide[ids[i]]
                  : operand->type.dtype == VT_BF16 ? widened(op, operand)
                                                   : operand;
  }
  vt_type type = op->results[0].type;
  type.dtype = VT_F32;
  vt_value *result = vt_build(op->func, op, op->code, op->loc, type, op->operand_count, operands);
  result->op->attrs = op->attrs;
  result->op->attr_count = op->attr_count;
  if (on) {
    c->wide[op->results[0].id] = result;
    return;
  }
  vt_value *narrow =
      vt_build(op->func, op, VT_OP_CONVERT, op->loc, op->results[0].type, 1, &result);
  vt_rewrite_value(&op->results[0], narrow);
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user, any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next) any = is_link(op);
  if (!any) return VT_OK;
  vt_arena arena = {.brief = true};
  chains c = {.count = vt_func_use_counts(func, &arena)};
  c.reader = VT_NEW_ARRAY(&arena, vt_op *, func->value_count);
  c.wide = VT_NEW_ARRAY(&arena, vt_value *, func->value_count);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) c.reader[op->operands[i]->id] = op;
  any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next) any = goes_on(&c, op);
  for (vt_op *op = func->first; op && any; op = op->next) {
    visit_op(&c, op);
    vt_rewrite_operands(op);
  }
  if (any) vt_rewrite_returns(func);
  *changed = *changed || any;
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
  return narrow_function(op) || (is_link(op) && !(vt_op_info_get(op->code)->flags & VT_OPF_EXACT));
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

vt_status vt_wide_chains(vt_module *module, bool *out_changed) {
  bool narrowed;
  VT_TRY(vt_rewrite_and_drop(module, visit_functions, &narrowed));
  VT_TRY(vt_rewrite_and_drop(module, visit, out_changed));
  *out_changed |= narrowed;
  return VT_OK;
}
