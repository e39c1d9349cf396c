// SPDX-License-Identifier: Apache-2.0
// plan_epilogue.c - ops applied to a contraction's result before it is written.
//
// In: a function before grouping. Out: for dots and convolutions that a library runs, a prepared
// step that also adds the bias and rounds to bf16, and which ops it takes over. Saves a pass over
// the result in memory and, for bf16, half of the bytes.
// Follows the chain of values with one use each: contraction, add of a broadcast vector over its
// last dimensions or (dots) a transpose, reshapes, convert to bf16. The step takes the place of the
// chain's last op, where the bias has been computed.
// Not here: relu. oneDNN's turns NaN into 0, XLA's maximum keeps it.
#include <string.h>

#include "base/check.h"
#include "host/cpu.h"
#include "host/nest.h"
#include "host/plan.h"
#include "host/steps.h"

typedef struct chain {
  vt_op *ops[8]; // contraction first
  uint32_t count;
  vt_value *bias;   // NULL: none
  vt_op *transpose; // NULL: none
} chain;

// The vector that `value` broadcasts along the last `rank` dimensions of its type; NULL when it is
// something else.
static vt_value *trailing_broadcast(const vt_value *value) {
  const vt_op *op = value->op;
  if (!op || op->code != VT_OP_BROADCAST_IN_DIM) return NULL;
  vt_value *from = op->operands[0];
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  int64_t next =
      value->type.rank; // dimensions found so far, from the last; size-1 dimensions may be anywhere
  for (uint32_t i = count; i-- > 0;) {
    if (from->type.dims[i] == 1) continue;
    if (dims[i] != --next || from->type.dims[i] != value->type.dims[next]) return NULL;
  }
  return next < value->type.rank && from->type.dtype == VT_F32 ? from : NULL;
}

// The only op that uses `value`, or NULL.
static vt_op *only_user(vt_op *const *users, const uint32_t *uses, const vt_value *value) {
  return uses[value->id] == 1 ? users[value->id] : NULL;
}

static void follow(vt_op *contraction, vt_op *const *users, const uint32_t *uses, chain *c) {
  *c = (chain){.ops = {contraction}, .count = 1};
  bool reshaped = false;
  bool bf16 = vt_host_fast_bf16() && contraction->operands[0]->type.dtype == VT_BF16 &&
              contraction->operands[1]->type.dtype == VT_BF16;
  while (c->count < sizeof c->ops / sizeof *c->ops) {
    const vt_value *value = &c->ops[c->count - 1]->results[0];
    vt_op *user = only_user(users, uses, value);
    if (!user || value->type.dtype != VT_F32) return;
    if (user->code == VT_OP_TRANSPOSE && c->count == 1 && contraction->code == VT_OP_DOT_GENERAL) {
      c->transpose = user;
    } else if (user->code == VT_OP_ADD && !c->bias && !c->transpose && !reshaped) {
      c->bias = trailing_broadcast(user->operands[user->operands[0] == value ? 1 : 0]);
      if (!c->bias) return;
    } else if (user->code == VT_OP_RESHAPE) {
      reshaped = true;
    } else if (!bf16 || user->code != VT_OP_CONVERT || user->results[0].type.dtype != VT_BF16) {
      return;
    }
    c->ops[c->count++] = user;
  }
}

static vt_step *try_chain(vt_plan *plan, const chain *c) {
  vt_assert(c->ops[0]->operand_count >= 2);
  vt_arena *arena = &plan->program->arena;
  vt_step *step = VT_NEW(arena, vt_step);
  vt_op *op = c->ops[0];
  uint32_t inputs = c->bias ? 3 : 2;
  vt_value **values = VT_NEW_ARRAY(arena, vt_value *, inputs + 1);
  memcpy(values, op->operands, sizeof *values * 2);
  if (c->bias) values[2] = c->bias;
  values[inputs] = &c->ops[c->count - 1]->results[0];
  step->op = op;
  vt_step_set_values(plan, step, inputs, values, 1, values + inputs);
  bool made = op->code == VT_OP_DOT_GENERAL ? vt_step_dot(plan, step, c->transpose)
                                            : vt_step_convolution(plan, step);
  return made ? step : NULL;
}

static bool is_elementwise(const vt_op *op, const vt_value *value) {
  if (op->code == VT_OP_REDUCE) return true;
  return op->result_count == 1 && vt_emit_supports(op) &&
         vt_type_elements(op->results[0].type) == vt_type_elements(value->type);
}

// Whether all that reads the value is elementwise, also through reshapes; it comes after `op`.
static bool feeds_elementwise(const vt_op *op, const vt_value *value, const uint32_t *uses) {
  uint32_t left = uses[value->id];
  for (op = op->next; op && left; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) {
      if (op->operands[i] != value) continue;
      if (op->code == VT_OP_RESHAPE ? !feeds_elementwise(op, &op->results[0], uses)
                                    : !is_elementwise(op, value))
        return false;
      left--;
    }
  return !left; // else it is returned
}

// The last of the elementwise ops behind `op` of which each is all that reads the one before.
static const vt_op *end_of(const vt_op *op, vt_op *const *users, const uint32_t *uses) {
  enum { MOST = 64 };
  for (int i = 0; i < MOST; i++) {
    const vt_value *value = &op->results[0];
    const vt_op *user = only_user(users, uses, value);
    if (!user || (user->code != VT_OP_RESHAPE && !is_elementwise(user, value))) break;
    op = user;
  }
  return op;
}

// True when the contraction runs in strips and all that follows is elementwise: generated code
// takes the sums from the cache. It does so of one product: of those that meet, the first.
static bool joins_kernel(vt_plan *plan, const chain *c, vt_op *const *users, const uint32_t *uses,
                         vt_map *ends) {
  const vt_value *value = &c->ops[c->count - 1]->results[0];
  if (!vt_host_fast_bf16() || c->transpose) return false;
  if (!feeds_elementwise(c->ops[0], value, uses)) return false;
  const vt_op *end = end_of(c->ops[c->count - 1], users, uses);
  if (*vt_map_at_ptr(ends, end)) return false;
  chain alone = {.ops = {c->ops[0]}, .count = 1};
  const vt_step *step = try_chain(plan, &alone);
  if (!step || !vt_step_is_strip(step)) return false;
  *vt_map_at_ptr(ends, end) = c->ops[0];
  return true;
}

void vt_epilogues_find(vt_plan *plan, vt_epilogues *out) {
  vt_func *func = plan->func;
  vt_arena *scratch = &plan->program->arena;
  *out = (vt_epilogues){0};
  uint32_t *uses = NULL;
  vt_op **users = NULL;
  vt_map ends = {0}; // of chains that take the sums of a product
  for (vt_op *op = func->first; op; op = op->next) {
    if (op->code != VT_OP_DOT_GENERAL && op->code != VT_OP_CONVOLUTION) continue;
    if (op->results[0].type.dtype != VT_F32) continue;
    if (!users) {
      uses = vt_func_use_counts(func, scratch);
      users = VT_NEW_ARRAY(scratch, vt_op *, func->value_count);
      for (vt_op *user = func->first; user; user = user->next)
        for (uint32_t i = 0; i < user->operand_count; i++) users[user->operands[i]->id] = user;
    }
    chain c;
    follow(op, users, uses, &c);
    // A returned value has one use and no user.
    while (c.count > 1 && c.ops[c.count - 1]->code == VT_OP_RESHAPE) c.count--;
    if (joins_kernel(plan, &c, users, uses, &ends)) continue;
    vt_step *step = NULL;
    while (c.count > 1 && !(step = try_chain(plan, &c))) {
      if (c.ops[c.count - 1]->code == VT_OP_ADD) c.bias = NULL;
      if (c.ops[c.count - 1]->code == VT_OP_TRANSPOSE) c.transpose = NULL;
      do c.count--;
      while (c.count > 1 && c.ops[c.count - 1]->code == VT_OP_RESHAPE);
    }
    if (!step) continue;
    *vt_map_at_ptr(&out->steps, c.ops[c.count - 1]) = step;
    for (uint32_t i = 0; i < c.count; i++) *vt_map_at_ptr(&out->taken, c.ops[i]) = step;
  }
  vt_map_free(&ends);
}

void vt_epilogues_free(vt_epilogues *epilogues) {
  vt_map_free(&epilogues->steps);
  vt_map_free(&epilogues->taken);
}
