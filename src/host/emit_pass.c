// SPDX-License-Identifier: Apache-2.0
// emit_pass.c - the passes over the columns of rows: what each computes, stores and reduces.
//
// Rows side by side go through a pass together: what one of them waits for at its end, lanes that
// are reduced to one value and a division by it, the others do not wait for.
#include "base/check.h"
#include "host/emit_nest.h"

enum { CHEAP_COST = 5 }; // ops of a reduction that takes several vectors at once

// ---- Reductions.

static bool reduces_now(const loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  if (!l->state[node].live || n->kind != VT_NODE_REDUCE) return false;
  return (n->accumulated ? n->stage : n->stage - 1) == l->pass;
}

// An accumulated reduction that keeps the columns adds row by row into memory; every other one has
// a vector.
static bool by_memory(const loops *l, const vt_nest_node *n) {
  return n->accumulated && vt_nest_is_full(l->nest, n);
}

static vt_dtype operand_dtype(const loops *l, const vt_nest_node *n, uint32_t k) {
  return l->nest->nodes[n->operands[k]].value->type.dtype;
}

static void step_pair(loops *l, const vt_nest_node *n, node_state *s) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef x = vt_nest_value(l, n->operands[0]), at = vt_nest_value(l, n->operands[1]);
  bool grows = l->nest->nodes[n->operands[1]].kind == VT_NODE_IOTA; // in each lane: none is before
  LLVMValueRef better = vt_emit_goes_before(l->e, n->reducer, operand_dtype(l, n, 0), x, s->phi,
                                            grows ? NULL : at, s->phi2);
  if (l->mask) better = LLVMBuildAnd(b, better, l->mask, "");
  s->next = LLVMBuildSelect(b, better, x, s->phi, "");
  s->next2 = LLVMBuildSelect(b, better, at, s->phi2, "");
}

static void step_reduction(loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  node_state *s = &l->state[node];
  if (n->reducer >= VT_REDUCE_ARGMAX) {
    step_pair(l, n, s);
    return;
  }
  vt_dtype dtype = vt_emit_compute_dtype(operand_dtype(l, n, 0));
  LLVMValueRef x = vt_nest_value(l, n->operands[0]);
  if (l->mask)
    x = LLVMBuildSelect(l->e->builder, l->mask, x, vt_emit_neutral(l->e, n->reducer, dtype), "");
  if (!by_memory(l, n)) {
    // What is new first: whether it is NaN is known before what it is combined with.
    s->next = vt_emit_combine(l->e, n->reducer, dtype, x, s->phi);
    return;
  }
  LLVMValueRef old = vt_nest_load(l, dtype, s->row_pointer);
  vt_nest_store(l, dtype, s->row_pointer, vt_emit_combine(l->e, n->reducer, dtype, old, x), false);
}

static void step_reductions(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    if (reduces_now(l, i)) step_reduction(l, i);
}

static void finish_pair(loops *l, const vt_nest_node *n, node_state *s, LLVMValueRef x,
                        LLVMValueRef at) {
  LLVMBuilderRef b = l->e->builder;
  for (int by = l->e->target.lanes / 2; by > 0; by /= 2) {
    LLVMValueRef y = vt_emit_lanes_down(l->e, x, by), at_y = vt_emit_lanes_down(l->e, at, by);
    LLVMValueRef better =
        vt_emit_goes_before(l->e, n->reducer, operand_dtype(l, n, 0), y, x, at_y, at);
    x = LLVMBuildSelect(b, better, y, x, "");
    at = LLVMBuildSelect(b, better, at_y, at, "");
  }
  s->once = vt_emit_spread(l->e, first_lane(l, n->value->index ? at : x));
}

// Lanes to one value: a fixed tree.
static void finish_reduction(loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  node_state *s = &l->state[node];
  if (by_memory(l, n)) return;
  if (n->reducer >= VT_REDUCE_ARGMAX) {
    finish_pair(l, n, s, s->next, s->next2);
    return;
  }
  vt_dtype dtype = operand_dtype(l, n, 0), wide = vt_emit_compute_dtype(dtype);
  LLVMValueRef x = vt_emit_across(l->e, n->reducer, wide, s->next);
  if (!n->accumulated) {
    s->once = vt_emit_round(l->e, dtype, x);
    return;
  }
  LLVMValueRef old = vt_nest_load_splat(l, wide, s->row_pointer);
  x = vt_emit_combine(l->e, n->reducer, wide, old, x);
  vt_nest_store_first(l, wide, s->row_pointer, x);
}

static void finish_reductions(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    if (reduces_now(l, i)) finish_reduction(l, i);
}

static LLVMValueRef neutral_of(loops *l, const vt_nest_node *n) {
  return vt_emit_neutral(l->e, n->reducer, vt_emit_compute_dtype(operand_dtype(l, n, 0)));
}

// They start with `next` where some columns are done already.
static void open_reductions(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    const vt_nest_node *n = &l->nest->nodes[i];
    node_state *s = &l->state[i];
    if (!reduces_now(l, i) || by_memory(l, n)) continue;
    s->start = l->begun ? s->next : neutral_of(l, n);
    s->phi = vt_nest_phi(l, s->start, l->before);
    if (n->reducer >= VT_REDUCE_ARGMAX)
      s->phi2 = vt_nest_phi(l, vt_emit_splat_i(l->e, operand_dtype(l, n, 1), 0), l->before);
  }
}

static void loop_reductions(loops *l) {
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(l->e->builder);
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    node_state *s = &l->state[i];
    if (!reduces_now(l, i) || by_memory(l, &l->nest->nodes[i])) continue;
    LLVMAddIncoming(s->phi, &s->next, &latch, 1);
    if (s->phi2) LLVMAddIncoming(s->phi2, &s->next2, &latch, 1);
  }
}

// ---- Several vectors at once.

static bool stores_now(const loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  return n->output >= 0 && !n->accumulated && vt_nest_is_full(l->nest, n) &&
         n->kind != VT_NODE_SCATTER && l->state[node].store_pass == l->pass;
}

static bool keeps_now(const loops *l, uint32_t node) {
  const node_state *s = &l->state[node];
  return s->live && s->kept && __builtin_ctz(s->uses) == l->pass;
}

// Where a pass only reduces, and what it reduces is cheap, a CPU would wait for the vector that is
// reduced to.
static bool waits(loops *l) {
  const vt_nest *nest = l->nest;
  bool seen[VT_NEST_NODES] = {false}, reduces = false;
  int cost = 0;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (keeps_now(l, i) || stores_now(l, i)) return false;
    if (!reduces_now(l, i)) continue;
    if (n->reducer >= VT_REDUCE_ARGMAX || by_memory(l, n)) return false;
    reduces = true;
    cost += vt_nest_cost(l, n->operands[0], seen);
  }
  return reduces && cost <= CHEAP_COST;
}

static void open_wide(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    for (int k = 0; k < AT_ONCE && reduces_now(l, i); k++)
      l->state[i].phis[k] = vt_nest_phi(l, neutral_of(l, &l->nest->nodes[i]), l->before);
}

static void step_wide(loops *l, int k) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) l->state[i].pass = -1;
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    if (!reduces_now(l, i)) continue;
    l->state[i].phi = l->state[i].phis[k];
    step_reduction(l, i);
    l->state[i].nexts[k] = l->state[i].next;
  }
}

static void loop_wide(loops *l) {
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(l->e->builder);
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    for (int k = 0; k < AT_ONCE && reduces_now(l, i); k++)
      LLVMAddIncoming(l->state[i].phis[k], &l->state[i].nexts[k], &latch, 1);
}

static void combine_wide(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    if (!reduces_now(l, i)) continue;
    const vt_nest_node *n = &l->nest->nodes[i];
    LLVMValueRef *x = l->state[i].nexts;
    vt_dtype dtype = vt_emit_compute_dtype(operand_dtype(l, n, 0));
    for (int by = AT_ONCE / 2; by > 0; by /= 2)
      for (int k = 0; k < by; k++) x[k] = vt_emit_combine(l->e, n->reducer, dtype, x[k], x[k + by]);
  }
}

static void close_wide(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    node_state *s = &l->state[i];
    s->pass = -1;
    if (!reduces_now(l, i)) continue;
    s->next = vt_nest_phi(l, neutral_of(l, &l->nest->nodes[i]), l->before);
    LLVMAddIncoming(s->next, &s->nexts[0], &l->wide_done, 1);
  }
}

// The columns but for the last few, several vectors at once, each reduced by itself. Returns the
// column after them; the reductions are in `next`.
static LLVMValueRef emit_wide_columns(loops *l) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef lanes = i64_constant(l, l->e->target.lanes);
  LLVMValueRef step = i64_constant(l, AT_ONCE * (int64_t)l->e->target.lanes);
  LLVMBasicBlockRef body = new_block(l, "wide"), rest = new_block(l, "");
  LLVMValueRef end = LLVMBuildAdd(b, l->col_lo, step, "");
  l->before = LLVMGetInsertBlock(b);
  l->wide_done = new_block(l, "");
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLE, end, l->col_hi, ""), body, rest);
  LLVMPositionBuilderAtEnd(b, body);
  LLVMValueRef column = vt_nest_phi(l, l->col_lo, l->before);
  vt_nest_each_row(l, open_wide);
  l->mask = NULL;
  l->column = column;
  for (int k = 0; k < AT_ONCE; k++) {
    for (int32_t r = 0; r < l->abreast; r++) {
      l->state = l->states[r];
      step_wide(l, k);
    }
    l->column = LLVMBuildAdd(b, l->column, lanes, "");
  }
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  LLVMAddIncoming(column, &l->column, &latch, 1);
  vt_nest_each_row(l, loop_wide);
  LLVMValueRef more = LLVMBuildAdd(b, l->column, step, "");
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLE, more, l->col_hi, ""), body, l->wide_done);
  LLVMPositionBuilderAtEnd(b, l->wide_done);
  vt_nest_each_row(l, combine_wide);
  LLVMBuildBr(b, rest);
  LLVMPositionBuilderAtEnd(b, rest);
  vt_nest_each_row(l, close_wide);
  LLVMValueRef start = vt_nest_phi(l, l->col_lo, l->before);
  LLVMAddIncoming(start, &l->column, &l->wide_done, 1);
  return start;
}

// ---- Passes.

void vt_nest_mask(loops *l, bool reduces) {
  LLVMBuilderRef b = l->e->builder;
  l->mask = NULL;
  bool linear = l->nest->atom_count == 1;
  if (!l->ragged && !(reduces && linear)) return;
  LLVMValueRef rest = LLVMBuildTrunc(b, LLVMBuildSub(b, l->col_hi, l->column, ""), i32_type(l), "");
  l->mask = LLVMBuildICmp(b, LLVMIntUGT, vt_emit_spread(l->e, rest),
                          vt_nest_lane_numbers(l, i32_type(l)), "");
}

static void make_values(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    if (keeps_now(l, i) || stores_now(l, i)) vt_nest_value(l, i);
}

static void store_values(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    vt_dtype dtype = l->nest->nodes[i].value->type.dtype;
    const node_state *s = &l->state[i];
    if (keeps_now(l, i))
      vt_nest_store(l, vt_emit_compute_dtype(dtype), s->buffer, vt_nest_value(l, i), false);
    if (!stores_now(l, i)) continue;
    if (vt_nest_fetches(l->nest, &l->nest->nodes[i])) vt_nest_fetch_ahead(l, dtype, s->row_pointer);
    vt_nest_store(l, dtype, s->row_pointer, vt_nest_value(l, i), l->ragged);
  }
}

static void prepare_row(loops *l) {
  vt_nest_prepare(l, VT_LEVEL_ROW, l->pass);
}

// What has been reduced in the columns before the loop, where it found none left.
static void join_reductions(loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    node_state *s = &l->state[i];
    if (!reduces_now(l, i)) continue;
    LLVMValueRef next = s->next;
    s->next = vt_nest_phi(l, s->start, l->before);
    LLVMAddIncoming(s->next, &next, &l->latch, 1);
  }
}

static void emit_pass(loops *l) {
  LLVMBuilderRef b = l->e->builder;
  vt_nest_each_row(l, prepare_row);
  l->begun = waits(l);
  LLVMValueRef start = l->begun ? emit_wide_columns(l) : l->col_lo;
  LLVMBasicBlockRef body = new_block(l, "columns"), after = new_block(l, "row");
  l->before = LLVMGetInsertBlock(b);
  if (l->begun)
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, start, l->col_hi, ""), body, after);
  else
    LLVMBuildBr(b, body);
  LLVMPositionBuilderAtEnd(b, body);
  l->column = vt_nest_phi(l, start, l->before);
  bool reduces = false;
  for (uint32_t i = 0; i < l->nest->node_count; i++) reduces |= reduces_now(l, i);
  vt_nest_each_row(l, open_reductions);
  vt_nest_mask(l, reduces);
  vt_nest_each_row(l, step_reductions);
  vt_nest_each_row(l, make_values); // all loads before the first store: outputs may be inputs
  vt_nest_each_row(l, store_values);
  LLVMValueRef next = LLVMBuildAdd(b, l->column, i64_constant(l, l->e->target.lanes), "");
  l->latch = LLVMGetInsertBlock(b);
  LLVMAddIncoming(l->column, &next, &l->latch, 1);
  vt_nest_each_row(l, loop_reductions);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, l->col_hi, ""), body, after);
  LLVMPositionBuilderAtEnd(b, after);
  if (l->begun) vt_nest_each_row(l, join_reductions);
  vt_nest_each_row(l, finish_reductions);
}

static bool pass_has_work(const loops *l) {
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    if (reduces_now(l, i) || stores_now(l, i)) return true;
  return false;
}

void vt_nest_emit_passes(loops *l) {
  for (l->pass = 0; l->pass < l->nest->stage_count; l->pass++)
    if (pass_has_work(l)) emit_pass(l);
}
