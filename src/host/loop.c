// SPDX-License-Identifier: Apache-2.0
// loop.c - which whiles become one function, and where the elements of small values come from.
// Depends only on the program's shapes, types and constants, so the decision is always the same.
#include "base/check.h"
#include "base/log.h"
#include "host/loop.h"

#include <string.h>

enum {
  LEAST_ITERATIONS = 256, // thresholds from which code is worth compiling:
  LEAST_STEPS = 16 << 10, // iterations times ops that would be steps
  MOST_VECTORS = 4096,    // instructions per iteration, to limit code and compile time
  MOST_SCATTERED = 1024   // elements moved one by one
};

static bool splat_number(const vt_value *value, int64_t *out_number) {
  if (!value->op || value->op->code != VT_OP_CONSTANT) return false;
  const vt_literal *literal = vt_attr_literal(value->op, VT_ATTR_VALUE);
  if (!literal || literal->type.rank != 0) return false;
  switch (literal->type.dtype) {
  case VT_S32: {
    int32_t x;
    memcpy(&x, literal->data, sizeof x);
    *out_number = x;
    return true;
  }
  case VT_S64:
    memcpy(out_number, literal->data, sizeof *out_number);
    return true;
  default:
    return false;
  }
}

// Maps a value of the region to the value outside that the while passes in, if any.
static const vt_value *outside(const vt_op *op, const vt_func *region, const vt_value *value) {
  vt_assert(value->op || value->index < (int32_t)op->operand_count || value->func != region);
  if (value->op || value->index < 0 || value->func != region) return value;
  return op->operands[value->index];
}

// The iterations of `i < limit` where i starts at a constant and grows by a constant; 0 for other
// forms.
static int64_t iterations(const vt_op *op) {
  vt_assert(op->code == VT_OP_WHILE && op->region_count == 2);
  const vt_func *cond = op->regions[0], *body = op->regions[1];
  const vt_op *test = cond->returns[0]->op;
  if (!test || test->code != VT_OP_COMPARE ||
      vt_attr_i64(test, VT_ATTR_COMPARISON_DIRECTION) != VT_CMP_LT)
    return 0;
  const vt_value *counter = test->operands[0];
  if (counter->op || counter->index >= (int32_t)body->return_count) return 0;
  const vt_op *next = body->returns[counter->index]->op;
  if (!next || next->code != VT_OP_ADD) return 0;
  const vt_value *a = next->operands[0], *b = next->operands[1];
  const vt_value *param = body->params[counter->index];
  if (a != param && b != param) return 0;
  int64_t first, limit, step;
  if (!splat_number(op->operands[counter->index], &first) ||
      !splat_number(outside(op, cond, test->operands[1]), &limit) ||
      !splat_number(outside(op, body, a == param ? b : a), &step) || step <= 0 || limit <= first)
    return 0;
  return (limit - first + step - 1) / step;
}

// ---- Where elements come from.

static void coordinates(vt_type type, int64_t at, int64_t *out) {
  vt_assert(at >= 0 && at < vt_type_elements(type));
  for (int32_t d = type.rank; d-- > 0;) {
    out[d] = at % type.dims[d];
    at /= type.dims[d];
  }
}

static int64_t element_at(vt_type type, const int64_t *index) {
  vt_assert_each(d, type.rank, index[d] >= 0 && index[d] < type.dims[d]);
  int64_t at = 0;
  for (int32_t d = 0; d < type.rank; d++) at = at * type.dims[d] + index[d];
  return at;
}

vt_loop_place vt_loop_source(const vt_op *op, int64_t at) {
  int64_t to[VT_MAX_RANK], from[VT_MAX_RANK] = {0};
  uint32_t count, operand = 0;
  coordinates(op->results[0].type, at, to);
  vt_type type = op->operands[0]->type;
  switch (op->code) {
  case VT_OP_BROADCAST_IN_DIM: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    for (int32_t d = 0; d < type.rank; d++) from[d] = type.dims[d] == 1 ? 0 : to[dims[d]];
    break;
  }
  case VT_OP_TRANSPOSE: {
    const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
    for (int32_t d = 0; d < type.rank; d++) from[order[d]] = to[d];
    break;
  }
  case VT_OP_SLICE: {
    const int64_t *start = vt_attr_ints(op, VT_ATTR_START_INDICES, &count);
    const int64_t *stride = vt_attr_ints(op, VT_ATTR_STRIDES, &count);
    for (int32_t d = 0; d < type.rank; d++) from[d] = start[d] + stride[d] * to[d];
    break;
  }
  case VT_OP_REVERSE: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
    memcpy(from, to, sizeof from);
    for (uint32_t i = 0; i < count; i++) from[dims[i]] = type.dims[dims[i]] - 1 - to[dims[i]];
    break;
  }
  default: { // concatenate
    int64_t d = vt_attr_i64(op, VT_ATTR_DIMENSION);
    memcpy(from, to, sizeof from);
    while (from[d] >= op->operands[operand]->type.dims[d])
      from[d] -= op->operands[operand++]->type.dims[d];
    type = op->operands[operand]->type;
  }
  }
  return (vt_loop_place){operand, element_at(type, from)};
}

static bool is_in(const int64_t *list, uint32_t count, int64_t d, uint32_t *out_at) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == d) {
      *out_at = i;
      return true;
    }
  return false;
}

int64_t vt_loop_terms(const vt_op *op) {
  uint32_t count;
  vt_type type = op->operands[0]->type;
  const int64_t *dims = vt_attr_ints(
      op, op->code == VT_OP_REDUCE ? VT_ATTR_DIMENSIONS : VT_ATTR_LHS_CONTRACTING_DIMENSIONS,
      &count);
  int64_t terms = 1;
  for (uint32_t i = 0; i < count; i++) terms *= type.dims[dims[i]];
  return terms;
}

int64_t vt_loop_term(const vt_op *op, uint32_t operand, int64_t at, int64_t k) {
  vt_assert(operand < op->operand_count && k >= 0 && k < vt_loop_terms(op));
  static const vt_attr_key batching[] = {VT_ATTR_LHS_BATCHING_DIMENSIONS,
                                         VT_ATTR_RHS_BATCHING_DIMENSIONS},
                           contracting[] = {VT_ATTR_LHS_CONTRACTING_DIMENSIONS,
                                            VT_ATTR_RHS_CONTRACTING_DIMENSIONS};
  bool reduce = op->code == VT_OP_REDUCE;
  vt_type type = op->operands[operand]->type;
  uint32_t batch_count = 0, count, place;
  const int64_t *batch = reduce ? NULL : vt_attr_ints(op, batching[operand], &batch_count);
  const int64_t *sum = vt_attr_ints(op, reduce ? VT_ATTR_DIMENSIONS : contracting[operand], &count);
  int64_t to[VT_MAX_RANK], from[VT_MAX_RANK] = {0};
  coordinates(op->results[0].type, at, to);
  for (uint32_t i = count; i-- > 0;) {
    from[sum[i]] = k % type.dims[sum[i]];
    k /= type.dims[sum[i]];
  }
  // Result dimensions: batch, free ones of the left side, free ones of the right.
  int32_t next = (int32_t)batch_count;
  if (operand == 1) next += op->operands[0]->type.rank - (int32_t)batch_count - (int32_t)count;
  for (int32_t d = 0; d < type.rank; d++) {
    if (is_in(sum, count, d, &place)) continue;
    from[d] = batch && is_in(batch, batch_count, d, &place) ? to[place] : to[next++];
  }
  return element_at(type, from);
}

// ---- What qualifies.

// The elements of each vector are contiguous or all the same, so one load gets them.
static int64_t scattered(const vt_op *op, uint32_t operand, int64_t terms) {
  int64_t elements = vt_type_elements(op->results[0].type), bad = 0;
  for (int64_t k = 0; k < terms; k++)
    for (int64_t at = 0; at + 1 < elements; at++) {
      int64_t step = vt_loop_term(op, operand, at + 1, k) - vt_loop_term(op, operand, at, k);
      bad += at % 8 != 7 && step != 0 && step != 1;
    }
  return bad;
}

static bool contiguous(vt_type whole, const int64_t *sizes) {
  int32_t d = 0;
  while (d < whole.rank && sizes[d] == 1) d++;
  for (d++; d < whole.rank; d++)
    if (sizes[d] != whole.dims[d]) return false;
  return true;
}

static bool all_in_registers(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!vt_loop_in_registers(op->operands[i]->type)) return false;
  return true;
}

static bool contraction_ok(const vt_op *op, int64_t *cost) {
  uint32_t operands = op->code == VT_OP_REDUCE ? 1 : 2;
  int64_t terms = vt_loop_terms(op), elements = vt_type_elements(op->results[0].type);
  if (terms * (elements + 7) / 8 > MOST_VECTORS) return false;
  int64_t bad = 0;
  for (uint32_t i = 0; i < operands; i++) bad += scattered(op, i, terms);
  *cost += terms * (elements + 7) / 8;
  return bad <= (op->code == VT_OP_REDUCE ? MOST_SCATTERED : 0);
}

static bool dot_ok(const vt_op *op, int64_t *cost) {
  vt_dtype lhs = op->operands[0]->type.dtype, rhs = op->operands[1]->type.dtype,
           out = op->results[0].type.dtype;
  bool floats = (lhs == VT_F32 || lhs == VT_BF16) && (rhs == VT_F32 || rhs == VT_BF16) &&
                (out == VT_F32 || out == VT_BF16);
  return floats && vt_type_elements(op->results[0].type) > 1 && contraction_ok(op, cost);
}

// exp, sin and similar: many instructions.
static bool is_function(const vt_op *op) {
  const vt_op_info *info = vt_op_info_get(op->code);
  bool has_integers = info->kinds & (1 << VT_KIND_SIGNED | 1 << VT_KIND_UNSIGNED);
  return info->cost >= VT_COST_MEDIUM && !has_integers;
}

static bool op_ok(const vt_loop *loop, const vt_op *op, int64_t *cost) {
  if (op->result_count != 1) return false;
  vt_type type = op->results[0].type;
  int64_t elements = vt_type_elements(type);
  if (elements < 1) return false;
  bool update = op->code == VT_OP_DYNAMIC_UPDATE_SLICE;
  *cost += ((update ? vt_type_elements(op->operands[1]->type) : elements) + 7) / 8;
  if (update) {
    const vt_value *whole = op->operands[0];
    return !whole->op && whole->func == loop->body && whole->index < (int32_t)loop->carried &&
           loop->homes[whole->index] == VT_LOOP_GROWING &&
           vt_loop_in_registers(op->operands[1]->type) &&
           contiguous(type, op->operands[1]->type.dims);
  }
  if (!vt_loop_in_registers(type)) return false;
  uint32_t count;
  switch (op->code) {
  case VT_OP_CONSTANT:
  case VT_OP_IOTA:
    return vt_emit_compute_dtype(type.dtype) != VT_PRED && vt_dtype_get(type.dtype)->bits >= 8;
  case VT_OP_RESHAPE:
    return all_in_registers(op);
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_TRANSPOSE:
  case VT_OP_SLICE:
  case VT_OP_CONCATENATE:
  case VT_OP_REVERSE:
    *cost += elements / 4;
    return all_in_registers(op) && vt_dtype_get(type.dtype)->bits >= 8;
  case VT_OP_DYNAMIC_SLICE:
    return vt_dtype_get(type.dtype)->bits >= 8 &&
           contiguous(op->operands[0]->type, vt_attr_ints(op, VT_ATTR_SLICE_SIZES, &count));
  case VT_OP_REDUCE: {
    vt_reducer reducer = vt_reducer_of(op);
    return reducer != VT_REDUCE_NONE && reducer < VT_REDUCE_ARGMAX && vt_emit_has_types(op) &&
           vt_loop_in_registers(op->operands[0]->type) && contraction_ok(op, cost);
  }
  case VT_OP_DOT_GENERAL:
    return dot_ok(op, cost);
  default:
    if (op->region_count || !op->operand_count || !vt_emit_supports(op) || !all_in_registers(op))
      return false;
    *cost += (elements + 7) / 8 * (is_function(op) ? 30 : 1);
    return true;
  }
}

// A carried value that grows: the body returns one update of it, after which nothing reads the old
// value.
static bool grows(const vt_func *body, uint32_t i) {
  const vt_op *update = body->returns[i]->op;
  if (!update || update->code != VT_OP_DYNAMIC_UPDATE_SLICE ||
      update->operands[0] != body->params[i])
    return false;
  for (uint32_t r = 0; r < body->return_count; r++)
    if (body->returns[r] == body->params[i] || (r != i && body->returns[r] == body->returns[i]))
      return false;
  for (const vt_op *op = update->next; op; op = op->next)
    for (uint32_t k = 0; k < op->operand_count; k++)
      if (op->operands[k] == body->params[i]) return false;
  return true;
}

static bool reads_ok(const vt_loop *loop, const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_value *x = op->operands[i];
    bool growing = !x->op && x->func == loop->body && loop->homes[x->index] == VT_LOOP_GROWING;
    bool grown = x->op && x->op->code == VT_OP_DYNAMIC_UPDATE_SLICE;
    bool large = !vt_loop_in_registers(x->type);
    if (!growing && !grown && !large) continue;
    bool read = op->code == VT_OP_DYNAMIC_SLICE && i == 0;
    if (!read && !(op->code == VT_OP_DYNAMIC_UPDATE_SLICE && i == 0 && !grown) &&
        !(op->code == VT_OP_DOT_GENERAL && !growing && !grown))
      return false;
  }
  return true;
}

static vt_loop *stays(const vt_op *loop, const vt_op *why) {
  if (!vt_log_on(VT_LOG_DEBUG)) return NULL;
  vt_arena scratch = {0};
  vt_log(VT_LOG_DEBUG, "%s runs step by step: %s has no code in a loop",
         vt_op_describe(loop, &scratch), vt_op_describe(why, &scratch));
  vt_arena_free(&scratch);
  return NULL;
}

vt_loop *vt_loop_find(vt_arena *arena, const vt_op *op) {
  vt_func *body = op->regions[1];
  int64_t count = iterations(op), steps = 0, cost = 0;
  if (count < LEAST_ITERATIONS) return NULL;
  vt_loop *loop = VT_NEW(arena, vt_loop);
  *loop = (vt_loop){.op = op, .cond = op->regions[0], .body = body, .carried = body->return_count};
  loop->homes = VT_NEW_ARRAY(arena, uint8_t, body->param_count);
  for (uint32_t i = 0; i < body->param_count; i++) {
    bool fixed = i >= loop->carried || body->returns[i] == body->params[i];
    loop->homes[i] = fixed ? VT_LOOP_FIXED : grows(body, i) ? VT_LOOP_GROWING : VT_LOOP_STATE;
    vt_type type = body->params[i]->type;
    if (vt_type_elements(type) < 1 || type.dtype == VT_TOKEN) return NULL;
    if (loop->homes[i] == VT_LOOP_STATE && !vt_loop_in_registers(type)) return NULL;
    if (vt_dtype_get(type.dtype)->bits < 8 && type.dtype != VT_PRED) return NULL;
    if (vt_dtype_kind_of(type.dtype) == VT_KIND_COMPLEX ||
        (vt_dtype_is_float(type.dtype) && vt_dtype_bytes(type.dtype) < 2))
      return NULL;
  }
  for (const vt_op *o = loop->cond->first; o; o = o->next, steps++)
    if (o->code == VT_OP_DYNAMIC_UPDATE_SLICE || !op_ok(loop, o, &cost) || !reads_ok(loop, o))
      return stays(op, o);
  for (const vt_op *o = body->first; o; o = o->next, steps++)
    if (!op_ok(loop, o, &cost) || !reads_ok(loop, o)) return stays(op, o);
  for (uint32_t i = 0; i < body->return_count; i++) // a grown value is returned in its own position
    if (loop->homes[i] == VT_LOOP_STATE && body->returns[i]->op &&
        body->returns[i]->op->code == VT_OP_DYNAMIC_UPDATE_SLICE)
      return NULL;
  if (cost > MOST_VECTORS || count * steps < LEAST_STEPS) return NULL;
  vt_func_number(loop->cond);
  vt_func_number(body);
  return loop;
}

void vt_loop_key(const vt_loop *loop, const vt_target *target, vt_text *out_key) {
  vt_text_printf(out_key, "loop %d %d %d %d %d;", target->lanes, target->avx512, target->bf16,
                 target->f16c, target->fma);
  for (uint32_t i = 0; i < loop->body->param_count; i++)
    vt_text_printf(out_key, "%d", loop->homes[i]);
  vt_func_print(loop->cond, -1, out_key);
  vt_func_print(loop->body, -1, out_key);
}
