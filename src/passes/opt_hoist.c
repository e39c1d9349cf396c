// SPDX-License-Identifier: Apache-2.0
// opt_hoist.c - loops: state that never changes becomes a captured value, and pure ops of the body
// that depend only on captured values move before the loop (a conversion of the weights, a
// transpose). A conversion of one slice of a captured stack of arrays, as a scan over layers takes
// it, becomes a slice of the converted stack, which then moves too. Ops that are free or expand
// small inputs (broadcasts, iota, constants) stay: moving them would only cost memory.
// In the program of one device collectives move, whatever their size, and with them copies of what
// they are made of.
#include <string.h>

#include "base/check.h"
#include "ir/loop.h"
#include "passes/collectives.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

// A copy of the region with state parameter `moved[i]` after the others, among the captures.
static void reorder_params(vt_func *region, uint32_t state, const bool *moved) {
  uint32_t room = 1; // vt_func_add_param grows at powers of two
  while (room < region->param_count) room *= 2;
  vt_value **params = VT_NEW_ARRAY(&region->module->arena, vt_value *, room);
  uint32_t n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < state; i++)
      if (moved[i] == (pass == 1)) params[n++] = region->params[i];
  for (uint32_t i = state; i < region->param_count; i++) params[n++] = region->params[i];
  for (uint32_t i = 0; i < n; i++) params[i]->index = (int32_t)i;
  region->params = params;
  region->numbered = false;
}

// A new while op without the invariant part of the state, or the same op when there is none.
static vt_op *capture_invariants(vt_op *op, vt_arena *scratch, bool *changed) {
  vt_assert(op->code == VT_OP_WHILE && op->region_count == 2);
  vt_assert(op->regions[1]->return_count == op->result_count);
  vt_assert(op->regions[1]->param_count == op->operand_count);
  uint32_t state = op->result_count, kept = 0;
  bool *moved = VT_NEW_ARRAY(scratch, bool, state);
  vt_func *condition = op->regions[0], *body = op->regions[1];
  for (uint32_t i = 0; i < state; i++) {
    moved[i] = body->returns[i] == body->params[i];
    kept += !moved[i];
  }
  if (kept == state) return op;
  vt_value **operands = VT_NEW_ARRAY(scratch, vt_value *, op->operand_count);
  vt_type *types = VT_NEW_ARRAY(scratch, vt_type, kept);
  vt_value **returns = VT_NEW_ARRAY(scratch, vt_value *, kept);
  uint32_t n = 0;
  for (uint32_t i = 0; i < state; i++) {
    if (moved[i]) continue;
    operands[n] = op->operands[i];
    types[n] = op->results[i].type;
    returns[n++] = body->returns[i];
  }
  for (uint32_t i = 0; i < state; i++)
    if (moved[i]) operands[n++] = op->operands[i];
  memcpy(operands + n, op->operands + state, sizeof *operands * op->capture_count);
  vt_op *loop =
      vt_op_create(op->func, VT_OP_WHILE, op->loc, op->operand_count, operands, kept, types, 2);
  loop->capture_count = op->capture_count + (state - kept);
  loop->attrs = op->attrs;
  loop->attr_count = op->attr_count;
  loop->regions[0] = condition;
  loop->regions[1] = body;
  reorder_params(condition, state, moved);
  reorder_params(body, state, moved);
  vt_func_set_returns(body, kept, returns);
  vt_op_insert(op, loop);
  n = 0;
  for (uint32_t i = 0; i < state; i++)
    vt_rewrite_value(&op->results[i], moved[i] ? op->operands[i] : &loop->results[n++]);
  vt_op_remove(op);
  *changed = true;
  return loop;
}

static bool worth_hoisting(const vt_op *op) {
  uint16_t flags = vt_op_info_get(op->code)->flags;
  if (vt_op_has_effect(op) || !op->operand_count || !op->result_count ||
      (flags & (VT_OPF_COLLECTIVE | VT_OPF_PER_DEVICE)) ||
      (flags & VT_OPF_CONTROL && !vt_op_is_elementwise_call(op)))
    return false;
  int64_t in = 0, out = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) in += vt_type_bytes(op->operands[i]->type);
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (op->results[i].type.dtype == VT_TOKEN) return false;
    out += vt_type_bytes(op->results[i].type);
  }
  return out <= 2 * in;
}

// Puts the op before the loop; `outer` maps values of the body (by id) to equal values outside.
// Uses in the body take it from there, or with `keep` from the op that stays.
static void hoist_op(vt_op *loop, vt_op *op, vt_value **outer, bool keep) {
  vt_assert(op->func == loop->regions[1] && !vt_op_has_effect(op));
  vt_arena *arena = &loop->func->module->arena;
  vt_op *moved = vt_op_create(loop->func, op->code, op->loc, op->operand_count, NULL, 0, NULL, 0);
  for (uint32_t i = 0; i < op->operand_count; i++) moved->operands[i] = outer[op->operands[i]->id];
  moved->capture_count = op->capture_count;
  moved->region_count = op->region_count;
  moved->regions = VT_NEW_ARRAY(arena, vt_func *, op->region_count + 1);
  for (uint32_t i = 0; i < op->region_count; i++)
    moved->regions[i] = keep ? vt_func_clone(loop->func->module, op->regions[i]) : op->regions[i];
  moved->attrs = op->attrs;
  moved->attr_count = op->attr_count;
  moved->result_count = op->result_count;
  moved->results = VT_NEW_ARRAY(arena, vt_value, op->result_count);
  for (uint32_t i = 0; i < op->result_count; i++) {
    moved->results[i] = (vt_value){.type = op->results[i].type,
                                   .op = moved,
                                   .func = loop->func,
                                   .index = (int32_t)i,
                                   .id = -1};
    outer[op->results[i].id] = &moved->results[i];
    if (!keep) vt_rewrite_value(&op->results[i], vt_loop_add_capture(loop, &moved->results[i]));
  }
  vt_op_insert(loop, moved);
}

// Of the program of one device: the ops of collectives that a loop does not change.
static bool may_repeat(const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (op->results[i].type.dtype == VT_TOKEN) return false;
  return op->result_count && !vt_op_has_effect(op) && op->code != VT_OP_OPTIMIZATION_BARRIER &&
         !(vt_op_info_get(op->code)->flags & VT_OPF_CONTROL);
}

static bool has_collective(const vt_func *func) {
  const vt_op *op = func->first;
  while (op && !(vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE)) op = op->next;
  return op;
}

static void want(const vt_value *value) {
  if (value->op) value->op->note = value->op;
}

// Notes the collectives of the body that depend on nothing that the loop changes, and what they are
// made of. false: there are none.
static bool note_collectives(const vt_op *loop, vt_arena *scratch) {
  vt_func *body = loop->regions[1];
  bool any = false;
  if (!has_collective(body)) return false;
  vt_func_number(body);
  bool *constant = VT_NEW_ARRAY(scratch, bool, body->value_count + 1);
  for (uint32_t i = 0; i < body->param_count; i++)
    constant[body->params[i]->id] = i >= loop->result_count || body->returns[i] == body->params[i];
  for (vt_op *op = body->first; op; op = op->next) {
    bool same = true;
    for (uint32_t i = 0; i < op->operand_count && same; i++) same = constant[op->operands[i]->id];
    same = same && may_repeat(op);
    for (uint32_t i = 0; i < op->result_count; i++) constant[op->results[i].id] = same;
    op->note = NULL;
    if (!same || !(vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE)) continue;
    op->note = op;
    any = true;
  }
  if (!any) return false;
  for (vt_op *op = body->last; op; op = op->prev)
    for (uint32_t i = 0; op->note && i < op->operand_count; i++) want(op->operands[i]);
  return true;
}

static void hoist_from_body(vt_op *loop, bool partitioned, vt_arena *scratch, bool *changed) {
  vt_func *body = loop->regions[1];
  vt_func_number(body);
  vt_value **outer = VT_NEW_ARRAY(scratch, vt_value *, body->value_count);
  uint32_t state = loop->result_count;
  for (uint32_t i = state; i < body->param_count; i++)
    outer[body->params[i]->id] = loop->operands[i];
  vt_op *next;
  bool any = false;
  for (vt_op *op = body->first; op; op = next) {
    next = op->next;
    bool invariant = !partitioned || op->note;
    bool keep = partitioned && !(vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE);
    for (uint32_t i = 0; i < op->operand_count && invariant; i++)
      invariant = outer[op->operands[i]->id] != NULL;
    invariant = invariant && (partitioned || worth_hoisting(op));
    if (invariant) hoist_op(loop, op, outer, keep);
    op->note = NULL;
    if (!invariant || keep) {
      if (any) vt_rewrite_operands(op);
      continue;
    }
    vt_op_remove(op);
    any = *changed = true;
  }
  vt_rewrite_returns(body);
}

// The dynamic_slice of a captured stack, one element of its first dimension, that `value` is up to
// reshapes; NULL otherwise.
static vt_op *slice_of_stack(const vt_op *loop, const vt_value *value) {
  const vt_func *body = loop->regions[1];
  vt_op *op = value->op;
  while (op && op->code == VT_OP_RESHAPE) op = op->operands[0]->op;
  if (!op || op->code != VT_OP_DYNAMIC_SLICE) return NULL;
  const vt_value *stack = op->operands[0];
  bool captured = !stack->op && stack->func == body && stack->index >= (int32_t)loop->result_count;
  vt_type all = stack->type, one = op->results[0].type;
  if (!captured || all.rank < 2 || one.dims[0] != 1) return NULL;
  return vt_type_elements(all) == all.dims[0] * vt_type_elements(one) ? op : NULL;
}

// The stack converted to `dtype` at the head of the body; created once.
static vt_value *converted_stack(vt_func *body, vt_value *stack, const vt_op *like) {
  vt_type type = stack->type;
  type.dtype = like->results[0].type.dtype;
  for (vt_op *op = body->first; op && op->code == VT_OP_CONVERT; op = op->next)
    if (op->operands[0] == stack && op->results[0].type.dtype == type.dtype) return &op->results[0];
  return vt_build(body, body->first, VT_OP_CONVERT, like->loc, type, 1, &stack);
}

static void convert_stacks(vt_op *loop, bool *changed) {
  vt_func *body = loop->regions[1];
  bool any = false;
  for (vt_op *op = body->first; op; op = op->next) {
    if (any) vt_rewrite_operands(op);
    if (op->code != VT_OP_CONVERT) continue;
    vt_type to = op->results[0].type;
    vt_op *slice = slice_of_stack(loop, op->operands[0]);
    if (!slice || vt_dtype_bytes(to.dtype) >= vt_dtype_bytes(slice->results[0].type.dtype))
      continue;
    vt_op *part = vt_op_create(body, VT_OP_DYNAMIC_SLICE, slice->loc, slice->operand_count,
                               slice->operands, 1, &slice->results[0].type, 0);
    part->operands[0] = converted_stack(body, slice->operands[0], op);
    part->results[0].type.dtype = to.dtype;
    part->attrs = slice->attrs;
    part->attr_count = slice->attr_count;
    vt_op_insert(op, part);
    vt_value *value = &part->results[0];
    vt_rewrite_value(&op->results[0], vt_build(body, op, VT_OP_RESHAPE, op->loc, to, 1, &value));
    any = *changed = true;
  }
  vt_rewrite_returns(body);
}

typedef struct hoisting {
  bool partitioned; // the program of one device
  vt_arena *scratch;
  bool *changed;
} hoisting;

static void hoist_from(const hoisting *ctx, vt_op *op, bool *changed) {
  if (op->code != VT_OP_WHILE) return;
  if (ctx->partitioned && !note_collectives(op, ctx->scratch)) return;
  vt_op *loop = capture_invariants(op, ctx->scratch, changed);
  if (!ctx->partitioned) convert_stacks(loop, changed);
  hoist_from_body(loop, ctx->partitioned, ctx->scratch, changed);
}

static vt_status hoist_func(vt_func *func, void *user) {
  const hoisting *ctx = user;
  uint32_t count;
  vt_op *const *holders = vt_func_holders(func, &count);
  vt_op *next = NULL;
  bool changed = false;
  for (uint32_t i = 0; i < count && !changed; i++) {
    next = holders[i]->next;
    hoist_from(ctx, holders[i], &changed);
  }
  if (!changed) return VT_OK;
  for (vt_op *op = next; op; op = next) {
    next = op->next;
    vt_rewrite_operands(op);
    hoist_from(ctx, op, &changed);
  }
  vt_rewrite_returns(func);
  *ctx->changed = true;
  return VT_OK;
}

vt_status vt_opt_hoist(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                       bool *out_changed) {
  (void)options;
  if (!module->made[VT_OP_WHILE]) return VT_OK;
  hoisting ctx = {false, scratch, out_changed};
  return vt_rewrite_each_func(module, hoist_func, &ctx);
}

vt_status vt_opt_while_loop_invariant_code_motion(vt_module *module,
                                                  const vt_collective_options *options,
                                                  vt_arena *scratch, bool *out_changed) {
  (void)options;
  if (!module->made[VT_OP_WHILE] || !module->collectives) return VT_OK;
  hoisting ctx = {true, scratch, out_changed};
  return vt_rewrite_each_func(module, hoist_func, &ctx);
}
