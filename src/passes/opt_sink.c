// SPDX-License-Identifier: Apache-2.0
// opt_sink.c - loops: moves values that cost nothing to compute into the body: splat constants,
// iota, and broadcasts, whose small operand is then captured instead. Frameworks place them before
// the loop, where each becomes an array in memory that every iteration reads. The counterpart of
// hoist, which leaves such ops in the body.
#include <string.h>

#include "base/check.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

// Smaller arrays stay in the caches, and computing them would add one op to each iteration.
enum { MIN_BYTES = 64 << 10 };

static bool is_sinkable(const vt_op *op) {
  if (!op || vt_type_bytes(op->results[0].type) < MIN_BYTES) return false;
  if (op->code == VT_OP_CONSTANT) return vt_attr_literal(op, VT_ATTR_VALUE)->splat;
  return op->code == VT_OP_IOTA || op->code == VT_OP_BROADCAST_IN_DIM;
}

// Whether all users of the parameter fuse with their operands: others would need it written to
// memory in each iteration instead of once.
static bool is_fused(const vt_func *body, const vt_value *param) {
  for (const vt_op *op = body->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i] == param && !(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE))
        return false;
  for (uint32_t i = 0; i < body->return_count; i++)
    if (body->returns[i] == param) return false;
  return true;
}

static void drop_param(vt_func *func, uint32_t index) {
  vt_assert(index < func->param_count);
  func->param_count--;
  func->numbered = false;
  for (uint32_t i = index; i < func->param_count; i++) {
    func->params[i] = func->params[i + 1];
    func->params[i]->index = (int32_t)i;
  }
}

static void drop_capture(vt_op *loop, uint32_t index) {
  vt_assert(index >= vt_op_own_operands(loop) && index < loop->operand_count);
  loop->operand_count--;
  loop->capture_count--;
  memmove(&loop->operands[index], &loop->operands[index + 1],
          sizeof *loop->operands * (loop->operand_count - index));
  for (uint32_t r = 0; r < loop->region_count; r++) drop_param(loop->regions[r], index);
}

// Computes captured value `index` inside the body. A broadcast captures its operand instead.
static void sink(vt_op *loop, uint32_t index) {
  vt_assert(loop->code == VT_OP_WHILE && loop->operands[index]->op);
  vt_func *body = loop->regions[1];
  vt_value *param = body->params[index];
  const vt_op *from = loop->operands[index]->op;
  vt_op *op = vt_op_create(body, from->code, from->loc, from->operand_count, NULL, 1,
                           &from->results[0].type, 0);
  op->attrs = from->attrs;
  op->attr_count = from->attr_count;
  vt_value_replace(param, &op->results[0]);
  if (from->operand_count) {
    vt_value *source = from->operands[0];
    op->operands[0] = param;
    loop->operands[index] = source;
    for (uint32_t r = 0; r < loop->region_count; r++)
      loop->regions[r]->params[index]->type = source->type;
  } else {
    drop_capture(loop, index);
  }
  if (body->first)
    vt_op_insert(body->first, op);
  else
    vt_op_append(body, op);
}

static vt_status sink_func(vt_func *func, void *user) {
  bool *changed = user;
  for (vt_op *op = func->first; op; op = op->next) {
    if (op->code != VT_OP_WHILE) continue;
    for (uint32_t i = vt_op_own_operands(op); i < op->operand_count;) {
      vt_func *condition = op->regions[0], *body = op->regions[1];
      bool good = is_sinkable(op->operands[i]->op) && is_fused(body, body->params[i]) &&
                  !vt_func_reads(condition, condition->params[i]);
      uint32_t before = op->operand_count;
      if (good) sink(op, i);
      *changed |= good;
      i += op->operand_count == before; // a sunk broadcast's operand is small: it stays
    }
  }
  return VT_OK;
}

vt_status vt_opt_sink(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                      bool *out_changed) {
  (void)options, (void)scratch;
  return vt_rewrite_each_func(module, sink_func, out_changed);
}
