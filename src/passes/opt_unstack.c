// SPDX-License-Identifier: Apache-2.0
// opt_unstack.c - loops: stacks of one value. A scan keeps what its gradient reads in stacks, one
// element for each trip; PyTorch/XLA stacks weights, too, which no trip changes. A stack of which a
// loop writes each element with the same value is a broadcast of that value, and a loop that reads
// elements of a broadcast captures the value itself.
#include "base/check.h"
#include "ir/loop.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

// The type of one element of a stack.
static vt_type element_of(vt_type stack) {
  return (vt_type){stack.dtype, stack.rank - 1, stack.dims + 1};
}

// The captured value that `value`, of the body, is up to reshapes; NULL when it is none.
static vt_value *captured(const vt_op *loop, const vt_value *value) {
  while (value->op && value->op->code == VT_OP_RESHAPE) value = value->op->operands[0];
  bool capture = !value->op && value->index >= (int32_t)loop->result_count;
  return capture ? loop->operands[value->index] : NULL;
}

// What each element of the loop's result k is: NULL when they differ, or when something else reads
// the stack while it is filled.
static vt_value *element_written(const vt_op *loop, uint32_t k, const uint32_t *uses,
                                 const uint32_t *condition_uses) {
  const vt_func *condition = loop->regions[0], *body = loop->regions[1];
  const vt_value *stack = body->params[k];
  const vt_op *update = body->returns[k]->op;
  if (!update || update->code != VT_OP_DYNAMIC_UPDATE_SLICE || update->operands[0] != stack ||
      uses[stack->id] != 1 || uses[body->returns[k]->id] != 1 ||
      condition_uses[condition->params[k]->id])
    return NULL;
  vt_value *const *indices = update->operands + 2;
  const vt_value *at = indices[0];
  if (!vt_is_element_of(stack->type, update->operands[1]->type, indices)) return NULL;
  int64_t trips, first, step, last = stack->type.dims[0] - 1;
  if (at->op || !vt_loop_trips(NULL, loop, &trips) || trips <= last ||
      !vt_loop_counts(NULL, loop, (uint32_t)at->index, &first, &step) ||
      !((step == 1 && first == 0) || (step == -1 && first == last)))
    return NULL;
  return captured(loop, update->operands[1]);
}

// Results of the loop that are stacks of one value become broadcasts after it.
static void replace_stacks(vt_op *loop, vt_arena *scratch, bool *changed) {
  vt_func *body = loop->regions[1];
  const uint32_t *uses = NULL, *condition_uses = NULL;
  for (uint32_t k = 0; k < loop->result_count; k++) {
    vt_op *update = body->returns[k]->op;
    if (!update || update->code != VT_OP_DYNAMIC_UPDATE_SLICE) continue;
    if (!uses) {
      uses = vt_func_use_counts(body, scratch);
      condition_uses = vt_func_use_counts(loop->regions[0], scratch);
    }
    vt_value *element = element_written(loop, k, uses, condition_uses);
    if (!element) continue;
    vt_type stack = loop->results[k].type, type = element_of(stack);
    int64_t dims[VT_MAX_RANK];
    for (int32_t d = 0; d < type.rank; d++) dims[d] = d + 1;
    vt_op *after = loop->next;
    if (!vt_type_equal(element->type, type))
      element = vt_build(loop->func, after, VT_OP_RESHAPE, loop->loc, type, 1, &element);
    vt_value *spread =
        vt_build(loop->func, after, VT_OP_BROADCAST_IN_DIM, loop->loc, stack, 1, &element);
    vt_op_set_ints(spread->op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)type.rank, dims);
    vt_rewrite_value(&loop->results[k], spread);
    body->returns[k] = body->params[k];
    vt_op_remove(update);
    *changed = true;
  }
}

// Whether the value is a broadcast that repeats its operand along a new first dimension.
static bool is_stack_of_one(const vt_value *value) {
  const vt_op *op = value->op;
  if (!op || op->code != VT_OP_BROADCAST_IN_DIM) return false;
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  vt_type from = op->operands[0]->type, to = value->type;
  if (count + 1 != (uint32_t)to.rank) return false;
  for (uint32_t d = 0; d < count; d++)
    if (dims[d] != d + 1 || from.dims[d] != to.dims[d + 1]) return false;
  return true;
}

// Captured stacks of one value of which the loop reads elements: it captures the value.
static void capture_elements(vt_op *loop, bool *changed) {
  vt_func *condition = loop->regions[0], *body = loop->regions[1];
  for (uint32_t i = vt_op_own_operands(loop); i < loop->operand_count; i++) {
    vt_value *param = body->params[i];
    if (!is_stack_of_one(loop->operands[i]) || !vt_reads_elements(body, param) ||
        vt_func_reads(condition, condition->params[i]))
      continue;
    vt_value *element = loop->operands[i]->op->operands[0];
    loop->operands[i] = element;
    condition->params[i]->type = param->type = element->type;
    for (vt_op *op = body->first; op; op = op->next) {
      if (!op->operand_count || op->operands[0] != param) continue;
      vt_op_become(op, VT_OP_RESHAPE);
      op->operand_count = 1;
    }
    *changed = true;
  }
}

static void unstack(const vt_rewriting *pass, vt_op *op, bool *changed) {
  if (op->code != VT_OP_WHILE) return;
  capture_elements(op, changed);
  replace_stacks(op, pass->scratch, changed);
}

static vt_status unstack_func(vt_func *func, void *user) {
  const vt_rewriting *pass = user;
  uint32_t count;
  vt_op *const *holders = vt_func_holders(func, &count), *next = NULL;
  bool changed = false;
  for (uint32_t i = 0; i < count && !changed; i++) {
    next = holders[i]->next;
    unstack(pass, holders[i], &changed);
  }
  if (!changed) return VT_OK;
  for (vt_op *op = next; op; op = op->next) {
    vt_rewrite_operands(op);
    unstack(pass, op, &changed);
  }
  vt_rewrite_returns(func);
  *pass->changed = true;
  return VT_OK;
}

vt_status vt_opt_unstack(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                         bool *out_changed) {
  (void)options;
  if (!module->made[VT_OP_WHILE]) return VT_OK;
  return vt_rewrite_each_func(module, unstack_func, &(vt_rewriting){scratch, out_changed});
}
