// SPDX-License-Identifier: Apache-2.0
// loop.c - which whiles become one function (loop.h).
//
// The body is walked as it would run. A value in memory is a version of a root: a carried value, or
// an operand that is only read. An op that reads a version which an earlier op has changed would
// see the wrong elements: a small value then moves to registers and the walk begins again, with a
// large one the while stays a list of steps.
// Depends only on the program's shapes, types and constants, so the decision is always the same.
#include "host/loop.h"
#include "base/check.h"
#include "base/log.h"
#include "host/emit.h"
#include "host/plan.h"

#include <string.h>

enum {
  LEAST_ITERATIONS = 256, // where their number is known, thresholds from which code is worth
  LEAST_STEPS = 16 << 10, // compiling: iterations times ops that would be steps
  MOST_VECTORS = 4096,    // instructions per iteration, to limit code and compile time
  MOST_DEPTH = 32         // of regions
};

typedef struct root {
  vt_loop_homes *owner; // NULL: an operand of the while
  uint32_t param;
  uint64_t version; // the one that it holds
  bool small, fixed;
} root;

// Where a value is: in registers, or a version of a root.
typedef struct held {
  int64_t root; // -1: registers
  uint64_t version;
} held;
static const held IN_REGISTERS = {-1, 0};

typedef struct walk {
  vt_arena *arena;  // of the loop
  vt_arena scratch; // of one walk
  vt_loop *loop;
  int64_t cost, steps;
  uint64_t versions; // given out
  VT_ARRAY(root) roots;
  const vt_op *why; // has no code
  bool again;       // a small value moved to registers
  int depth;
} walk;

static bool walk_func(walk *w, vt_func *func, const held *params, held *returns);

// ---- How often.

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

// The iterations of `i < limit` where i starts at a constant and grows by a constant; -1 for other
// forms.
static int64_t iterations(const vt_op *op) {
  vt_assert(op->code == VT_OP_WHILE && op->region_count == 2);
  const vt_func *cond = op->regions[0], *body = op->regions[1];
  const vt_op *test = cond->returns[0]->op;
  if (!test || test->code != VT_OP_COMPARE ||
      vt_attr_i64(test, VT_ATTR_COMPARISON_DIRECTION) != VT_CMP_LT)
    return -1;
  const vt_value *counter = test->operands[0];
  if (counter->op || counter->index >= (int32_t)body->return_count) return -1;
  const vt_op *next = body->returns[counter->index]->op;
  if (!next || next->code != VT_OP_ADD) return -1;
  const vt_value *a = next->operands[0], *b = next->operands[1];
  const vt_value *param = body->params[counter->index];
  if (a != param && b != param) return -1;
  int64_t first, limit, step;
  if (!splat_number(op->operands[counter->index], &first) ||
      !splat_number(outside(op, cond, test->operands[1]), &limit) ||
      !splat_number(outside(op, body, a == param ? b : a), &step) || step <= 0)
    return -1;
  return limit <= first ? 0 : (limit - first + step - 1) / step;
}

// ---- Homes.

static bool is_param(const vt_func *func, const vt_value *value) {
  return !value->op && value->func == func && value->index >= 0;
}

static bool is_update(const vt_op *op) {
  return op->code == VT_OP_DYNAMIC_UPDATE_SLICE || op->code == VT_OP_SCATTER;
}

// Which parameters of a function it changes some elements of.
static void mark_updated(const vt_func *func, int depth, vt_arena *scratch, bool *out) {
  if (depth > MOST_DEPTH) return;
  for (const vt_op *op = func->first; op; op = op->next) {
    uint32_t first = op->code == VT_OP_IF || op->code == VT_OP_CASE;
    vt_func *callee = vt_op_callee(op);
    if (is_update(op) && is_param(func, op->operands[0])) out[op->operands[0]->index] = true;
    if (!(vt_op_info_get(op->code)->flags & VT_OPF_CONTROL)) continue;
    for (uint32_t r = 0; r < (callee ? 1 : op->region_count); r++) {
      const vt_func *region = callee ? callee : op->regions[r];
      bool *inside = VT_NEW_ARRAY(scratch, bool, region->param_count);
      mark_updated(region, depth + 1, scratch, inside);
      for (uint32_t i = 0; i < region->param_count && first + i < op->operand_count; i++) {
        const vt_value *operand = op->operands[first + i];
        if (inside[i] && is_param(func, operand)) out[operand->index] = true;
      }
    }
  }
}

static vt_loop_homes *homes_entry(const vt_loop *loop, const vt_func *body) {
  for (size_t i = 0; i < loop->homes.size; i++)
    if (loop->homes.data[i]->body == body) return loop->homes.data[i];
  return NULL;
}

uint8_t *vt_loop_homes_of(const vt_loop *loop, const vt_func *body) {
  vt_loop_homes *homes = homes_entry(loop, body);
  return homes ? homes->of : NULL;
}

static const vt_value *renamed(const vt_value *value) {
  while (value->op && vt_loop_renames(value->op)) value = value->op->operands[value->index];
  return value;
}

static vt_loop_homes *find_homes(walk *w, const vt_func *body) {
  vt_loop_homes *homes = homes_entry(w->loop, body);
  if (homes) return homes;
  homes = VT_NEW(w->arena, vt_loop_homes);
  *homes = (vt_loop_homes){body, VT_NEW_ARRAY(w->arena, uint8_t, body->param_count)};
  bool *updated = VT_NEW_ARRAY(&w->scratch, bool, body->param_count);
  mark_updated(body, 0, &w->scratch, updated);
  for (uint32_t i = 0; i < body->param_count; i++) {
    const vt_value *param = body->params[i];
    bool fixed = i >= body->return_count || renamed(body->returns[i]) == param;
    bool memory = !vt_loop_in_registers(param->type) || updated[i];
    homes->of[i] = fixed ? VT_LOOP_FIXED : memory ? VT_LOOP_MEMORY : VT_LOOP_STATE;
  }
  vt_array_push_in(w->arena, &w->loop->homes, homes);
  return homes;
}

static held new_root(walk *w, vt_loop_homes *owner, uint32_t param, vt_type type) {
  root r = {.owner = owner,
            .param = param,
            .version = ++w->versions,
            .small = vt_loop_in_registers(type),
            .fixed = !owner};
  vt_array_push_in(&w->scratch, &w->roots, r);
  return (held){(int64_t)w->roots.size - 1, r.version};
}

static bool refuse(walk *w, const vt_op *op) {
  if (!w->why) w->why = op;
  return false;
}

static bool is_current(const walk *w, held h) {
  return h.root < 0 || w->roots.data[h.root].version == h.version;
}

// The value is needed as it was before an update.
static bool blame(walk *w, held h, const vt_op *op) {
  const root *r = &w->roots.data[h.root];
  if (!r->owner || !r->small) return refuse(w, op);
  r->owner->of[r->param] = VT_LOOP_STATE;
  w->again = true;
  return false;
}

static bool can_read(walk *w, held h, const vt_op *op) {
  return is_current(w, h) || blame(w, h, op);
}

static uint64_t *versions_now(walk *w) {
  uint64_t *v = VT_NEW_ARRAY(&w->scratch, uint64_t, w->roots.size);
  for (size_t i = 0; i < w->roots.size; i++) v[i] = w->roots.data[i].version;
  return v;
}

// ---- Ops.

static bool type_ok(vt_type type) {
  if (type.dtype == VT_TOKEN) return true;
  if (vt_dtype_get(type.dtype)->bits < 8 && type.dtype != VT_PRED) return false;
  return vt_dtype_kind_of(type.dtype) != VT_KIND_COMPLEX &&
         !(vt_dtype_is_float(type.dtype) && vt_dtype_bytes(type.dtype) < 2);
}

// Parameters of a while's body as its operands have them; the roots of those in memory.
static bool enter_while(walk *w, const vt_op *op, vt_loop_homes *homes, const held *operands,
                        held *params) {
  const vt_func *body = op->regions[1];
  for (uint32_t i = 0; i < body->param_count; i++) {
    vt_type type = body->params[i]->type;
    bool small = vt_loop_in_registers(type);
    if (!type_ok(type) || !can_read(w, operands[i], op)) return refuse(w, op);
    if (homes->of[i] == VT_LOOP_STATE) {
      params[i] = IN_REGISTERS;
    } else if (homes->of[i] == VT_LOOP_FIXED) {
      params[i] = operands[i];
    } else if (w->depth == 0 || small) {
      params[i] = new_root(w, homes, i, type);
    } else {
      params[i] = operands[i];
      if (params[i].root < 0 || w->roots.data[params[i].root].fixed) return refuse(w, op);
    }
  }
  return true;
}

// What the body returns is in its home.
static bool leave_while(walk *w, const vt_op *op, vt_loop_homes *homes, const held *params,
                        const held *returns, size_t roots, const uint64_t *before) {
  const vt_func *body = op->regions[1];
  for (uint32_t i = 0; i < body->return_count; i++) {
    held to = params[i], from = returns[i];
    if (!is_current(w, from) && homes->of[i] != VT_LOOP_FIXED) return blame(w, from, op);
    if (homes->of[i] == VT_LOOP_MEMORY && from.root != to.root) return blame(w, to, op);
  }
  // Of what lived before, only what is carried here changes, and nothing else here reads it.
  for (size_t r = 0; r < roots; r++) {
    if (w->roots.data[r].version == before[r]) continue;
    uint32_t carried = 0, all = 0;
    for (uint32_t i = 0; i < body->param_count; i++) {
      all += params[i].root == (int64_t)r;
      carried += params[i].root == (int64_t)r && homes->of[i] == VT_LOOP_MEMORY;
    }
    if (carried != 1 || all != 1) return blame(w, (held){(int64_t)r, 0}, op);
  }
  return true;
}

static bool walk_while(walk *w, const vt_op *op, const held *operands, held *results) {
  vt_func *cond = op->regions[0], *body = op->regions[1];
  vt_loop_homes *homes = find_homes(w, body);
  held *params = VT_NEW_ARRAY(&w->scratch, held, body->param_count), pred;
  held *returns = VT_NEW_ARRAY(&w->scratch, held, body->return_count);
  size_t roots = w->roots.size;
  uint64_t *before = versions_now(w);
  if (!enter_while(w, op, homes, operands, params)) return false;
  uint64_t *entered = versions_now(w);
  size_t with_own = w->roots.size;
  if (!walk_func(w, cond, params, &pred)) return false;
  for (size_t r = 0; r < with_own; r++)
    if (w->roots.data[r].version != entered[r]) return blame(w, (held){(int64_t)r, 0}, op);
  if (!can_read(w, pred, op) || !walk_func(w, body, params, returns) ||
      !leave_while(w, op, homes, params, returns, roots, before))
    return false;
  for (uint32_t i = 0; i < op->result_count; i++) {
    results[i] = params[i];
    if (params[i].root >= 0 && homes->of[i] == VT_LOOP_MEMORY)
      results[i].version = w->roots.data[params[i].root].version;
  }
  return true;
}

// A result of branches: in memory where all leave the same memory.
static bool join(walk *w, const vt_op *op, uint32_t r, held *const *returns, uint32_t branches,
                 held *out) {
  bool same = true;
  for (uint32_t b = 1; b < branches; b++) same &= returns[b][r].root == returns[0][r].root;
  *out = same ? returns[0][r] : IN_REGISTERS;
  if (out->root >= 0) out->version = w->roots.data[out->root].version;
  return same || vt_loop_in_registers(op->results[r].type) || refuse(w, op);
}

static bool walk_branches(walk *w, const vt_op *op, const held *operands, held *results) {
  size_t roots = w->roots.size;
  uint64_t *before = versions_now(w), *after = versions_now(w);
  held **returns = VT_NEW_ARRAY(&w->scratch, held *, op->region_count);
  if (!op->region_count || !can_read(w, operands[0], op)) return refuse(w, op);
  for (uint32_t b = 0; b < op->region_count; b++) {
    returns[b] = VT_NEW_ARRAY(&w->scratch, held, op->result_count);
    for (size_t r = 0; r < roots; r++) w->roots.data[r].version = before[r];
    if (!walk_func(w, op->regions[b], operands + 1, returns[b])) return false;
    for (uint32_t r = 0; r < op->result_count; r++)
      if (!can_read(w, returns[b][r], op)) return false;
    for (size_t r = 0; r < roots; r++)
      if (w->roots.data[r].version != before[r]) after[r] = ++w->versions;
  }
  for (size_t r = 0; r < roots; r++) w->roots.data[r].version = after[r];
  for (uint32_t r = 0; r < op->result_count; r++)
    if (!join(w, op, r, returns, op->region_count, &results[r])) return false;
  return true;
}

// The regions of reductions and scatters are code on single elements.
static bool walk_element_region(walk *w, const vt_op *op, int64_t times) {
  vt_func *region = op->regions[0];
  held *params = VT_NEW_ARRAY(&w->scratch, held, region->param_count);
  held *returns = VT_NEW_ARRAY(&w->scratch, held, region->return_count);
  for (uint32_t i = 0; i < region->param_count; i++) params[i] = IN_REGISTERS;
  int64_t steps = w->steps, cost = w->cost;
  bool ok = walk_func(w, region, params, returns);
  w->steps = steps;
  w->cost += (w->cost - cost) * (times - 1);
  return ok;
}

// A large operand is only read where it lies.
static bool reads_in_memory(const vt_op *op, uint32_t operand) {
  switch (op->code) {
  case VT_OP_DYNAMIC_SLICE:
  case VT_OP_DYNAMIC_UPDATE_SLICE:
  case VT_OP_GATHER:
  case VT_OP_SCATTER:
  case VT_OP_SLICE:
    return operand == 0;
  default:
    return op->code == VT_OP_DOT_GENERAL;
  }
}

static bool walk_plain(walk *w, const vt_op *op, const held *operands, held *results) {
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (!can_read(w, operands[i], op)) return false;
    if (!vt_loop_in_registers(op->operands[i]->type) && !reads_in_memory(op, i))
      return refuse(w, op);
  }
  for (uint32_t i = 0; i < op->result_count; i++) {
    results[i] = IN_REGISTERS;
    if (!type_ok(op->results[i].type)) return refuse(w, op);
  }
  w->steps++;
  vt_loop_way way = vt_loop_way_of(op, &w->cost);
  if (way == VT_LOOP_REFUSED || w->cost > MOST_VECTORS) return refuse(w, op);
  if (vt_loop_is_empty(op)) return true;
  if (way == VT_LOOP_CALL) {
    w->loop->has_effect |= vt_op_has_effect(op);
    if (vt_loop_called(w->loop, op) == w->loop->called.size)
      vt_array_push_in(w->arena, &w->loop->called, op);
    return true;
  }
  if (op->code == VT_OP_SCATTER &&
      !walk_element_region(w, op, vt_type_elements(op->operands[2]->type)))
    return false;
  if (op->code == VT_OP_REDUCE && vt_loop_folds(op) &&
      !walk_element_region(w, op, vt_loop_terms(op) * vt_type_elements(op->results[0].type)))
    return false;
  if (!is_update(op)) return true;
  if (operands[0].root < 0 || w->roots.data[operands[0].root].fixed)
    return vt_loop_in_registers(op->results[0].type) || refuse(w, op);
  root *r = &w->roots.data[operands[0].root];
  results[0] = (held){operands[0].root, r->version = ++w->versions};
  return true;
}

// Values that keep their bytes, also as elements in registers.
bool vt_loop_renames(const vt_op *op) {
  return op->code != VT_OP_BITCAST_CONVERT && vt_op_is_alias(op);
}

// Control flow costs what is kept of the versions before it.
static bool may_enter(walk *w) {
  w->cost += 1 + (int64_t)w->roots.size / 8;
  return w->cost <= MOST_VECTORS;
}

static bool walk_op(walk *w, const vt_op *op, const held *operands, held *results) {
  bool control = vt_op_info_get(op->code)->flags & VT_OPF_CONTROL;
  if (control && !may_enter(w)) return refuse(w, op);
  switch (op->code) {
  case VT_OP_WHILE:
    return walk_while(w, op, operands, results);
  case VT_OP_IF:
  case VT_OP_CASE:
    return walk_branches(w, op, operands, results);
  case VT_OP_CALL:
  case VT_OP_COMPOSITE:
    return walk_func(w, vt_op_callee(op), operands, results);
  default:
    break;
  }
  if (!vt_loop_renames(op)) return walk_plain(w, op, operands, results);
  for (uint32_t i = 0; i < op->result_count; i++) {
    results[i] = operands[i];
    if (!type_ok(op->results[i].type)) return refuse(w, op);
  }
  return true;
}

static bool walk_func(walk *w, vt_func *func, const held *params, held *returns) {
  vt_func_number(func);
  if (++w->depth > MOST_DEPTH) return refuse(w, func->first ? func->first : w->loop->op);
  held *values = VT_NEW_ARRAY(&w->scratch, held, func->value_count);
  for (uint32_t i = 0; i < func->param_count; i++) values[func->params[i]->id] = params[i];
  for (const vt_op *op = func->first; op; op = op->next) {
    held *operands = VT_NEW_ARRAY(&w->scratch, held, op->operand_count);
    held *results = VT_NEW_ARRAY(&w->scratch, held, op->result_count);
    for (uint32_t i = 0; i < op->operand_count; i++) operands[i] = values[op->operands[i]->id];
    if (!walk_op(w, op, operands, results)) return false;
    for (uint32_t i = 0; i < op->result_count; i++) values[op->results[i].id] = results[i];
  }
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = values[func->returns[i]->id];
  w->depth--;
  return true;
}

static vt_loop *stays(const vt_op *loop, const vt_op *why) {
  if (!vt_log_on(VT_LOG_DEBUG)) return NULL;
  vt_arena scratch = {0};
  vt_log(VT_LOG_DEBUG, "%s runs step by step: %s has no code in a loop",
         vt_op_describe(loop, &scratch), why ? vt_op_describe(why, &scratch) : "it");
  vt_arena_free(&scratch);
  return NULL;
}

uint32_t vt_loop_called(const vt_loop *loop, const vt_op *op) {
  uint32_t i = 0;
  while (i < loop->called.size && loop->called.data[i] != op) i++;
  return i;
}

static bool walk_once(walk *w, const vt_op *op) {
  w->cost = w->steps = w->depth = 0;
  w->roots.size = w->roots.capacity = 0;
  w->again = false;
  w->why = NULL;
  held *operands = VT_NEW_ARRAY(&w->scratch, held, op->operand_count);
  held *results = VT_NEW_ARRAY(&w->scratch, held, op->result_count);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_type type = op->operands[i]->type;
    if (!type_ok(type)) return false;
    operands[i] = vt_loop_in_registers(type) ? IN_REGISTERS : new_root(w, NULL, i, type);
  }
  return walk_while(w, op, operands, results);
}

vt_loop *vt_loop_find(vt_arena *arena, const vt_op *op) {
  int64_t count = iterations(op);
  if (count >= 0 && count < LEAST_ITERATIONS) return NULL;
  vt_loop *loop = VT_NEW(arena, vt_loop);
  *loop = (vt_loop){.op = op};
  walk w = {.arena = arena, .loop = loop};
  bool ok;
  do {
    loop->called.size = 0;
    loop->has_effect = false;
    ok = walk_once(&w, op);
    vt_arena_free(&w.scratch);
    w.scratch = (vt_arena){0};
  } while (!ok && w.again && !w.why);
  if (!ok) return stays(op, w.why);
  return count >= 0 && count * w.steps < LEAST_STEPS ? NULL : loop;
}

static void key_func(const vt_loop *loop, const vt_func *func, vt_text *out_key) {
  const uint8_t *homes = vt_loop_homes_of(loop, func);
  for (uint32_t i = 0; homes && i < func->param_count; i++) vt_text_printf(out_key, "%d", homes[i]);
  vt_func_print(func, -1, out_key);
}

// Of whiles inside: the homes; of calls: the callee, which the text only names.
static void key_inner(const vt_loop *loop, const vt_func *func, vt_text *out_key) {
  for (const vt_op *op = func->first; op; op = op->next) {
    vt_func *callee = vt_op_callee(op);
    if (callee) {
      key_func(loop, callee, out_key);
      key_inner(loop, callee, out_key);
    }
    for (uint32_t r = 0; r < op->region_count; r++) {
      const uint8_t *homes = vt_loop_homes_of(loop, op->regions[r]);
      for (uint32_t i = 0; homes && i < op->regions[r]->param_count; i++)
        vt_text_printf(out_key, "%d", homes[i]);
      key_inner(loop, op->regions[r], out_key);
    }
  }
}

void vt_loop_key(const vt_loop *loop, const vt_target *target, vt_text *out_key) {
  vt_text_printf(out_key, "loop %d %d %d %d %d;", target->lanes, target->avx512, target->bf16,
                 target->f16c, target->fma);
  for (uint32_t r = 0; r < 2; r++) {
    key_func(loop, loop->op->regions[r], out_key);
    key_inner(loop, loop->op->regions[r], out_key);
  }
}
