// SPDX-License-Identifier: Apache-2.0
// inline.c - calls become the bodies of their functions. Manual computations stay, and so do
// sharding constraints, except on the elements of reductions and sorts, where they say nothing.
#include <string.h>

#include "spmd/elementwise.h"
#include "spmd/propagate/propagate.h"
#include "spmd/spmd.h"

typedef struct inliner {
  bool keep;      // calls of elementwise functions
  vt_map verdict; // function -> itself where it is one, else the inliner
  VT_ARRAY(vt_func *) kept;
} inliner;

// What stands for a value now: the result of a call may be the result of another.
static vt_value *resolve(vt_value *value) {
  while (value->replaced_by) value = value->replaced_by;
  return value;
}

static bool is_control(const vt_op *op) {
  return vt_op_info_get(op->code)->class == VT_CLASS_CONTROL;
}

// ---- calls that stay ----------------------------------------------------------------------------
// Propagation gives each user of a constant, and of what is computed from constants alone, a copy
// of its own: a call on nothing else is inlined. The id of a value is 1 if it is such a one.

static void mark_results(const vt_op *op) {
  bool constant = op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA ||
                  (vt_spmd_copies_op(op) && op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; i++) constant = constant && op->operands[i]->id;
  for (uint32_t i = 0; i < op->result_count; i++) op->results[i].id = constant;
}

// What a region captures, and what a loop carries without changing it, is what it is outside.
static void mark_params(const vt_op *op) {
  for (uint32_t r = 0; r < op->region_count; r++) {
    vt_func *region = op->regions[r];
    region->numbered = false;
    uint32_t captured = region->param_count - op->capture_count;
    for (uint32_t i = 0; i < region->param_count; i++) {
      bool same = op->code == VT_OP_WHILE && i < captured &&
                  op->regions[1]->returns[i] == op->regions[1]->params[i];
      const vt_value *outside = i >= captured ? op->operands[vt_op_own_operands(op) + i - captured]
                                : same        ? op->operands[i]
                                              : NULL;
      region->params[i]->id = outside && outside->id;
    }
  }
}

static bool stays(inliner *n, const vt_op *call, vt_func *callee) {
  if (!n->keep || call->code != VT_OP_CALL) return false;
  void **verdict = vt_map_at_ptr(&n->verdict, callee);
  if (!*verdict) {
    *verdict = vt_spmd_is_elementwise(callee) ? (void *)callee : n;
    callee->elementwise = *verdict == callee;
    if (callee->elementwise) vt_array_push(&n->kept, callee);
  }
  bool constant = true;
  for (uint32_t i = 0; i < call->operand_count; i++) constant = constant && call->operands[i]->id;
  return *verdict == callee && !constant;
}

// ---- the walk -----------------------------------------------------------------------------------

// `elements`: the function computes on elements of arrays.
static void inline_in(inliner *n, vt_func *func, bool elements) {
  vt_op *next;
  func->numbered = false; // see mark_results
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->operand_count; i++) op->operands[i] = resolve(op->operands[i]);
    vt_func *callee = vt_op_callee(op);
    if (elements && vt_op_info_get(op->code)->flags & VT_OPF_SHARDY && op->result_count == 1) {
      op->results[0].replaced_by = op->operands[0];
      vt_op_remove(op);
      continue;
    }
    if (!callee || (!elements && stays(n, op, callee))) {
      if (n->keep) mark_params(op);
      for (uint32_t i = 0; i < op->region_count; i++)
        inline_in(n, op->regions[i], elements || !is_control(op));
      if (n->keep) mark_results(op);
      continue;
    }
    vt_arena scratch = {0};
    vt_value **returns = VT_NEW_ARRAY(&scratch, vt_value *, op->result_count + 1);
    vt_op *before = op->prev;
    vt_func_inline(callee, func, op, op->operands, returns);
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].replaced_by = returns[i];
    vt_op_remove(op);
    next = before ? before->next : func->first; // the body may contain calls: walk it too
    vt_arena_free(&scratch);
  }
  for (uint32_t i = 0; i < func->return_count; i++) func->returns[i] = resolve(func->returns[i]);
}

void vt_spmd_inline(vt_module *module, bool keep_elementwise) {
  inliner n = {.keep = keep_elementwise};
  vt_func *main = module->main;
  for (uint32_t i = 0; i < main->param_count; i++) main->params[i]->id = 0;
  inline_in(&n, main, false);
  module->funcs = VT_NEW_ARRAY(&module->arena, vt_func *, n.kept.size + 1);
  module->funcs[0] = main;
  if (n.kept.size) memcpy(module->funcs + 1, n.kept.data, n.kept.size * sizeof *n.kept.data);
  module->func_count = (uint32_t)n.kept.size + 1;
  vt_map_free(&n.verdict);
  vt_array_free(&n.kept);
}
