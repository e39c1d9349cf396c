// SPDX-License-Identifier: Apache-2.0
// loop.c - see loop.h.
#include "base/check.h"
#include "ir/loop.h"

#include <string.h>

// The operand of the scope's op that the parameter equals on every run, NULL when it changes.
static const vt_value *operand_of(const vt_scope *scope, const vt_value *param) {
  vt_assert(!param->op && param->func == scope->func);
  vt_assert((uint32_t)param->index < scope->func->param_count);
  const vt_op *op = scope->op;
  uint32_t index = (uint32_t)param->index;
  if (op->code == VT_OP_WHILE) {
    const vt_func *body = op->regions[1];
    bool carried = index < body->return_count;
    if (carried && body->returns[index] != body->params[index]) return NULL;
    return op->operands[index];
  }
  if (op->code == VT_OP_MANUAL_COMPUTATION &&
      !vt_type_same_dims(op->operands[index]->type, param->type))
    return NULL;
  uint32_t skip = op->operand_count - scope->func->param_count; // the selector of if and case
  return op->operands[index + skip];
}

const vt_value *vt_scope_resolve(const vt_scope *scope, const vt_value *value,
                                 const vt_scope **out_scope) {
  vt_assert(value);
  while (scope && !value->op) {
    const vt_value *outside = operand_of(scope, value);
    if (!outside) break;
    value = outside;
    scope = scope->outer;
  }
  if (out_scope) *out_scope = scope;
  return value;
}

// Sums and differences of a few numbers up to this one fit in 64 bits.
static const int64_t largest = INT64_C(1) << 60;

// A known scalar integer.
static bool known_integer(const vt_scope *scope, const vt_value *value, int64_t *out) {
  value = vt_scope_resolve(scope, value, NULL);
  if (!value->op || value->op->code != VT_OP_CONSTANT || value->type.rank) return false;
  const void *data = vt_attr_literal(value->op, VT_ATTR_VALUE)->data;
  switch (value->type.dtype) {
#define READ(dtype, type)                                                                          \
  case dtype: {                                                                                    \
    type v;                                                                                        \
    memcpy(&v, data, sizeof v);                                                                    \
    *out = (int64_t)v;                                                                             \
    return *out <= largest && *out >= -largest;                                                    \
  }
    READ(VT_S8, int8_t)
    READ(VT_S16, int16_t)
    READ(VT_S32, int32_t)
    READ(VT_S64, int64_t)
    READ(VT_U8, uint8_t)
    READ(VT_U16, uint16_t)
    READ(VT_U32, uint32_t)
#undef READ
  default: // unsigned 64-bit values would not fit
    return false;
  }
}

static bool within(vt_dtype dtype, int64_t value) {
  int32_t bits = vt_dtype_get(dtype)->bits;
  if (bits == 64) return true; // no counter comes near its limits
  bool is_signed = vt_dtype_kind_of(dtype) == VT_KIND_SIGNED;
  int64_t most = (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;
  return value <= most && value >= (is_signed ? -most - 1 : 0);
}

// The amount that the body adds to its parameter `index` on each trip.
static bool step_of(const vt_scope *inside, const vt_func *body, uint32_t index, int64_t *out) {
  vt_assert(index < body->return_count && index < body->param_count);
  const vt_op *op = body->returns[index]->op;
  const vt_value *counter = body->params[index];
  if (!op || (op->code != VT_OP_ADD && op->code != VT_OP_SUBTRACT)) return false;
  if (op->operands[0] == counter && known_integer(inside, op->operands[1], out)) {
    bool down = op->code == VT_OP_SUBTRACT;
    if (down) *out = -*out;
    return true;
  }
  return op->code == VT_OP_ADD && op->operands[1] == counter &&
         known_integer(inside, op->operands[0], out);
}

static int64_t turned(int64_t direction) {
  switch (direction) {
  case VT_CMP_LT:
    return VT_CMP_GT;
  case VT_CMP_GT:
    return VT_CMP_LT;
  case VT_CMP_LE:
    return VT_CMP_GE;
  case VT_CMP_GE:
    return VT_CMP_LE;
  default:
    return direction;
  }
}

// Steps of `step` that `at` takes while the comparison with `limit` holds; -1 = endless or unknown.
static int64_t count_trips(int64_t direction, int64_t at, int64_t step, int64_t limit) {
  if (direction == VT_CMP_EQ) return at != limit ? 0 : step ? 1 : -1;
  if (direction == VT_CMP_NE) {
    if (at == limit) return 0;
    return step && (limit - at) % step == 0 && (limit - at) / step > 0 ? (limit - at) / step : -1;
  }
  if (direction == VT_CMP_GT || direction == VT_CMP_GE) at = -at, step = -step, limit = -limit;
  if (direction == VT_CMP_LE || direction == VT_CMP_GE) limit++;
  if (at >= limit) return 0;
  return step > 0 ? (limit - at + step - 1) / step : -1;
}

bool vt_loop_keeps(const vt_op *loop, uint32_t i) {
  const vt_func *body = loop->regions[1];
  return i >= body->return_count || body->returns[i] == body->params[i];
}

bool vt_loop_counts(const vt_scope *scope, const vt_op *loop, uint32_t i, int64_t *out_first,
                    int64_t *out_step) {
  const vt_func *body = loop->regions[1];
  vt_scope in_body = {scope, loop, body};
  return i < body->return_count && known_integer(scope, loop->operands[i], out_first) &&
         step_of(&in_body, body, i, out_step);
}

// `left`: how many sums may still be looked into; a sum of sums of the same would take for ever.
static bool steps_of(const vt_op *loop, const vt_value *value, int *left, int64_t *out_first,
                     int64_t *out_step) {
  const vt_func *body = loop->regions[1];
  vt_assert(value->func == body);
  const vt_op *op = value->op;
  *out_step = 0;
  if (known_integer(&(vt_scope){NULL, loop, body}, value, out_first)) return true;
  if (!op) return vt_loop_counts(NULL, loop, (uint32_t)value->index, out_first, out_step);
  int64_t first[2], step[2], sign = op->code == VT_OP_SUBTRACT ? -1 : 1;
  if ((op->code != VT_OP_ADD && op->code != VT_OP_SUBTRACT) || op->results[0].type.rank ||
      (*left)-- <= 0)
    return false;
  for (int side = 0; side < 2; side++)
    if (!steps_of(loop, op->operands[side], left, &first[side], &step[side])) return false;
  *out_first = first[0] + sign * first[1];
  *out_step = step[0] + sign * step[1];
  return *out_first <= largest && *out_first >= -largest && *out_step <= largest &&
         *out_step >= -largest;
}

bool vt_loop_steps(const vt_op *loop, const vt_value *value, int64_t *out_first,
                   int64_t *out_step) {
  enum { MOST = 16 };
  int left = MOST;
  return steps_of(loop, value, &left, out_first, out_step);
}

vt_value *vt_loop_add_capture(vt_op *loop, vt_value *value) {
  vt_assert(value->func == loop->func);
  vt_arena *arena = &loop->func->module->arena;
  vt_value **operands = VT_NEW_ARRAY(arena, vt_value *, loop->operand_count + 1);
  memcpy(operands, loop->operands, sizeof *operands * loop->operand_count);
  operands[loop->operand_count++] = value;
  loop->operands = operands;
  loop->capture_count++;
  vt_func_add_param(loop->regions[0], value->type);
  return vt_func_add_param(loop->regions[1], value->type);
}

bool vt_loop_trips(const vt_scope *scope, const vt_op *loop, int64_t *out_trips) {
  vt_assert(loop->code == VT_OP_WHILE && loop->region_count == 2);
  const vt_func *cond = loop->regions[0], *body = loop->regions[1];
  const vt_op *compare = cond->return_count == 1 ? cond->returns[0]->op : NULL;
  if (!compare || compare->code != VT_OP_COMPARE) return false;
  vt_dtype dtype = compare->operands[0]->type.dtype;
  if (!vt_dtype_is_integer(dtype)) return false;
  vt_scope in_cond = {scope, loop, cond}, in_body = {scope, loop, body};
  int64_t direction = vt_attr_i64(compare, VT_ATTR_COMPARISON_DIRECTION);
  for (int side = 0; side < 2; side++, direction = turned(direction)) {
    const vt_value *counter = compare->operands[side];
    int64_t first, limit, step = 0;
    if (counter->op || (uint32_t)counter->index >= body->return_count) continue;
    if (!known_integer(&in_cond, compare->operands[1 - side], &limit) ||
        !known_integer(scope, loop->operands[counter->index], &first))
      continue;
    bool moves = step_of(&in_body, body, (uint32_t)counter->index, &step);
    int64_t trips = count_trips(direction, first, step, limit);
    if ((!moves && trips != 0) || trips < 0 || !within(dtype, first + trips * step)) continue;
    *out_trips = trips;
    return true;
  }
  return false;
}
