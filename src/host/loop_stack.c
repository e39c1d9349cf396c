// SPDX-License-Identifier: Apache-2.0
// loop_stack.c - see loop_stack.h.
#include "host/loop_stack.h"

#include "ir/loop.h"
#include "passes/rewrite.h"

bool vt_loop_has_each_place(const vt_op *loop, int64_t trips, const vt_value *at, int64_t count) {
  int64_t first, step;
  if (count != trips || (vt_dtype_get(at->type.dtype)->bits < 32 && count > INT8_MAX) ||
      !vt_loop_steps(loop, at, &first, &step))
    return false;
  return (step == 1 && first == 0) || (step == -1 && first == count - 1);
}

int32_t vt_loop_stack_written(const vt_op *loop, int64_t trips, const vt_op *update) {
  const vt_func *body = loop->regions[1];
  if (update->code != VT_OP_DYNAMIC_UPDATE_SLICE) return -1;
  const vt_value *all = update->operands[0];
  if (all->op || (uint32_t)all->index >= body->return_count ||
      body->returns[all->index] != &update->results[0] ||
      !vt_is_element_of(all->type, update->operands[1]->type, update->operands + 2) ||
      !vt_loop_has_each_place(loop, trips, update->operands[2], all->type.dims[0]))
    return -1;
  return all->index;
}

const bool *vt_loop_fills(vt_arena *arena, const vt_op *loop) {
  vt_func *body = loop->regions[1], *condition = loop->regions[0];
  bool *fills = VT_NEW_ARRAY(arena, bool, loop->result_count);
  int64_t trips;
  if (!vt_loop_trips(NULL, loop, &trips)) return fills;
  const uint32_t *uses = vt_func_use_counts(body, arena),
                 *asked = vt_func_use_counts(condition, arena);
  for (const vt_op *op = body->first; op; op = op->next) {
    int32_t k = vt_loop_stack_written(loop, trips, op);
    if (k >= 0)
      fills[k] = uses[body->params[k]->id] == 1 && uses[op->results[0].id] == 1 &&
                 !asked[condition->params[k]->id];
  }
  return fills;
}
