// SPDX-License-Identifier: Apache-2.0
// least.c - a lower bound on the HBM that a program needs while it runs.
//
// A compiler may rematerialise values, fuse them into their users, reorder operators, store f32 as
// bf16 if all readers round to it, and shard over all devices what shardings leave open. It does
// not split one contraction, and it keeps what a loop carries. So the bound is the largest sum,
// over all operators that do real work, of
//   - what it reads, at the smallest point along fused chains; parameters count elsewhere
//   - what it writes, in the smallest form that its readers take
//   - what each enclosing loop carries
// padded where shapes are those of one device. What a program places in host memory counts there: a
// value is where its operands are unless placed elsewhere.
#include "chip/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/loop.h"
#include "ir/precision.h"
#include "ir/sharding.h"

// What is known about each value of a function, by value id.
typedef struct known {
  int64_t *bytes;         // of the whole value on one device
  bool *host;             // lies in host memory
  int64_t *behind;        // bytes that must be live for it to be live, 0 = negligible
  const vt_value **roots; // the value those bytes are of
  int64_t *form;          // bytes of the smallest form that its readers take
  uint32_t *uses;
} known;

typedef struct walk {
  const vt_chip *chip;
  vt_known_sizes *sizes;
  vt_arena scratch;
} walk;

// One function at one call site.
typedef struct view {
  walk *w;
  const vt_scope *scope;
  double share; // devices over which its values may still be sharded
  known k;
} view;

static int64_t bytes_of(const view *v, const vt_value *value) {
  return v->k.bytes[value->id];
}

// f32 that may be kept in bf16.
static int64_t rounded_bytes(const view *v, const vt_value *value) {
  return bytes_of(v, value) / (value->type.dtype == VT_F32 ? 2 : 1);
}

static void take_larger(vt_least *into, const vt_least *other) {
  int64_t host = other->host > into->host ? other->host : into->host;
  if (other->hbm > into->hbm) *into = *other;
  into->host = host;
}

static void add_item(vt_least *least, const vt_value *value, int64_t bytes) {
  enum { ROOM = sizeof least->items / sizeof least->items[0] };
  least->hbm += bytes;
  if (bytes && least->count < ROOM) {
    least->items[least->count].value = value;
    least->items[least->count++].bytes = bytes;
  }
}

static void add_least(vt_least *least, const vt_least *inside) {
  int64_t rest = inside->hbm;
  for (int32_t i = 0; i < inside->count; i++) {
    add_item(least, inside->items[i].value, inside->items[i].bytes);
    rest -= inside->items[i].bytes;
  }
  least->hbm += rest;
  least->host += inside->host;
}

// Operators that really materialise their result and operands.
static bool is_heavy(const vt_op *op) {
  switch (op->code) {
  case VT_OP_SORT:
  case VT_OP_FFT:
  case VT_OP_CHOLESKY:
  case VT_OP_TRIANGULAR_SOLVE:
  case VT_OP_SCATTER:
    return true;
  default:
    return vt_op_is_matrix_product(op);
  }
}

// Bytes of the value in the form in which `op` may read it.
static int64_t form_for(const view *v, const vt_op *op, const vt_value *value) {
  const vt_op_info *info = vt_op_info_get(op->code);
  int64_t all = bytes_of(v, value);
  if (vt_op_is_matrix_product(op)) {
    bool rounds = value->type.dtype == VT_F32 && vt_op_rounds_operands(op);
    return rounds ? all / 2 : all;
  }
  if (op->code == VT_OP_SORT || op->code == VT_OP_FFT) return all;
  // A value is written in the form that its users make of it.
  if (info->flags & VT_OPF_ELTWISE && op->result_count == 1) {
    int64_t made = bytes_of(v, &op->results[0]);
    return made < all ? made : all;
  }
  if (op->code == VT_OP_RESHAPE || op->code == VT_OP_TRANSPOSE) return rounded_bytes(v, value);
  return 0; // sums and slices of it may be fused with it
}

// Fills what each value's readers take. Of loop-carried values the new one is computed while the
// old one is read.
static void find_forms(const view *v, const vt_func *func, bool is_loop) {
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) {
      int32_t id = op->operands[i]->id;
      int64_t form = form_for(v, op, op->operands[i]);
      if (form > v->k.form[id]) v->k.form[id] = form;
    }
  for (uint32_t i = 0; is_loop && i < func->return_count; i++) {
    int64_t form = rounded_bytes(v, func->returns[i]);
    if (form > v->k.form[func->returns[i]->id]) v->k.form[func->returns[i]->id] = form;
  }
}

// Where the program places things -----------------------------------------------------------------

bool vt_lies_in_host(const vt_op *op, uint32_t result, const bool *host, const bool *inner) {
  bool there = false;
  if (vt_op_places(op, &there)) return there;
  if (inner && op->code != VT_OP_WHILE) return inner[result];
  if (op->code == VT_OP_WHILE) // its body may put there what it carries
    return host[op->operands[result]->id] || (inner && inner[result]);
  if (op->code == VT_OP_OPTIMIZATION_BARRIER) return host[op->operands[result]->id];
  for (uint32_t i = 0; i < op->operand_count; i++) there = there || host[op->operands[i]->id];
  return there;
}

// One function ------------------------------------------------------------------------------------

// out_host gets, for each value the function returns, whether it lies in host memory; may be NULL.
static vt_least func_least(walk *w, vt_func *func, const vt_scope *scope, double share,
                           const bool *param_host, bool *out_host);

// The roots of the operands, each once.
static void add_operands(const view *v, const vt_op *op, vt_least *least) {
  for (uint32_t i = 0; i < op->operand_count; i++) {
    int32_t id = op->operands[i]->id;
    bool seen = false;
    for (uint32_t j = 0; j < i; j++)
      seen = seen || v->k.roots[op->operands[j]->id] == v->k.roots[id];
    int64_t bytes = v->k.behind[id], form = form_for(v, op, op->operands[i]);
    if (seen || v->k.host[id]) continue;
    if (!(vt_op_info_get(op->code)->flags & VT_OPF_CONTROL) && form < bytes) bytes = form;
    add_item(least, v->k.roots[id], bytes);
  }
}

static vt_least heavy_least(const view *v, const vt_op *op) {
  vt_least reads = {0}, writes = {0};
  add_operands(v, op, &reads);
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!v->k.host[op->results[i].id])
      add_item(&writes, &op->results[i], v->k.form[op->results[i].id]);
  if (vt_op_is_matrix_product(op))
    add_least(&reads, &writes);
  else
    take_larger(&reads, &writes); // may write over what it reads
  return reads;
}

// A carried value that nothing reads.
static bool is_idle(const view *v, const vt_op *loop, uint32_t i) {
  const vt_func *body = loop->regions[1];
  if (v->k.uses[loop->results[i].id]) return false;
  for (int r = 0; r < 2; r++)
    for (const vt_op *op = loop->regions[r]->first; op; op = op->next)
      for (uint32_t o = 0; o < op->operand_count; o++)
        if (op->operands[o] == loop->regions[r]->params[i] && op != body->returns[i]->op)
          return false;
  return true;
}

// inner_host: where the body leaves what the loop carries.
static vt_least while_least(const view *v, const vt_op *op, const bool *inner_host,
                            vt_least inside) {
  vt_least least = {0};
  int64_t trips = 2;
  if (vt_loop_trips(v->scope, op, &trips) && trips < 2) return inside; // need not be a loop
  for (uint32_t i = 0; i < op->operand_count; i++) {
    bool carried = i < op->result_count && !vt_loop_keeps(op, i);
    int32_t id = op->operands[i]->id;
    bool seen = false;
    for (uint32_t j = 0; j < i; j++)
      seen = seen || v->k.roots[op->operands[j]->id] == v->k.roots[id];
    if (v->k.host[id] || (carried && inner_host[i])) continue;
    if (carried && !is_idle(v, op, i))
      add_item(&least, &op->results[i], rounded_bytes(v, &op->results[i]));
    else if (!carried && !seen && v->k.behind[id])
      add_item(&least, v->k.roots[id], v->k.behind[id] / 2);
  }
  add_least(&least, &inside);
  return least;
}

// The memory that the functions called by the op need. out_host as of func_least, NULL when it runs
// none.
static vt_least inner_least(const view *v, const vt_op *op, bool **out_host) {
  vt_func *callee = vt_op_callee(op);
  vt_least least = {0};
  *out_host = NULL;
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_CONTROL) || vt_op_is_elementwise_call(op))
    return least;
  double share = v->share;
  if (op->code == VT_OP_MANUAL_COMPUTATION) share /= vt_op_manual_devices(op);
  uint32_t count = callee ? 1 : op->region_count;
  for (uint32_t r = 0; r < count; r++) {
    vt_func *func = callee ? callee : op->regions[r];
    bool *host = VT_NEW_ARRAY(&v->w->scratch, bool, func->param_count + 1);
    uint32_t skip = op->operand_count - func->param_count; // the selector of if and case
    for (uint32_t p = 0; p < func->param_count; p++)
      host[p] = v->k.host[op->operands[p + skip]->id];
    vt_scope scope = {v->scope, op, func};
    *out_host = VT_NEW_ARRAY(&v->w->scratch, bool, func->return_count + 1);
    vt_least inside = func_least(v->w, func, &scope, share < 1 ? 1 : share, host, *out_host);
    take_larger(&least, &inside);
  }
  return op->code == VT_OP_WHILE ? while_least(v, op, *out_host, least) : least;
}

// What must be live for the result to be live.
static void set_behind(const view *v, const vt_op *op, const vt_value *result) {
  int32_t id = result->id;
  int64_t all = bytes_of(v, result);
  if (v->k.host[id]) return;
  v->k.roots[id] = result;
  if (is_heavy(op) || op->code == VT_OP_WHILE) {
    bool carried = op->code != VT_OP_WHILE || !vt_loop_keeps(op, (uint32_t)result->index);
    v->k.behind[id] = carried ? (is_heavy(op) ? all : rounded_bytes(v, result)) : 0;
    return;
  }
  for (uint32_t i = 0; i < op->operand_count; i++) {
    int32_t from = op->operands[i]->id;
    if (v->k.behind[from] <= v->k.behind[id]) continue;
    v->k.behind[id] = v->k.behind[from];
    v->k.roots[id] = v->k.roots[from];
  }
  if (v->k.behind[id] > all) v->k.behind[id] = all;
}

// Number of the last op that reads each value, by value id; the number of ops for returned values.
static int32_t *last_uses(walk *w, vt_func *func, int32_t *out_op_count) {
  int32_t *last = VT_NEW_ARRAY(&w->scratch, int32_t, func->value_count + 1);
  int32_t at = 0;
  for (const vt_op *op = func->first; op; op = op->next, at++) {
    for (uint32_t i = 0; i < op->result_count; i++) last[op->results[i].id] = at;
    for (uint32_t i = 0; i < op->operand_count; i++) last[op->operands[i]->id] = at;
  }
  for (uint32_t i = 0; i < func->return_count; i++) last[func->returns[i]->id] = at;
  *out_op_count = at;
  return last;
}

// Of what may still be divided, no shape is known that could be padded.
static int64_t device_bytes(const view *v, vt_type type) {
  if (v->share == 1 && v->w->chip) return vt_known_bytes(v->w->sizes, v->w->chip, type);
  return (int64_t)((double)vt_chip_dense_bytes(type) / v->share);
}

static view view_func(walk *w, vt_func *func, const vt_scope *scope, double share) {
  view v = {.w = w, .scope = scope, .share = share};
  v.k.uses = vt_func_use_counts(func, &w->scratch);
  size_t count = (size_t)func->value_count + 1;
  v.k.host = VT_NEW_ARRAY(&w->scratch, bool, count);
  v.k.bytes = VT_NEW_ARRAY(&w->scratch, int64_t, count);
  v.k.behind = VT_NEW_ARRAY(&w->scratch, int64_t, count);
  v.k.roots = VT_NEW_ARRAY(&w->scratch, const vt_value *, count);
  v.k.form = VT_NEW_ARRAY(&w->scratch, int64_t, count);
  for (uint32_t p = 0; p < func->param_count; p++)
    v.k.bytes[func->params[p]->id] = device_bytes(&v, func->params[p]->type);
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count; i++)
      v.k.bytes[op->results[i].id] = device_bytes(&v, op->results[i].type);
  return v;
}

static vt_least func_least(walk *w, vt_func *func, const vt_scope *scope, double share,
                           const bool *param_host, bool *out_host) {
  view v = view_func(w, func, scope, share);
  int32_t op_count = 0, at = 0, *last = last_uses(w, func, &op_count);
  int64_t *held = VT_NEW_ARRAY(&w->scratch, int64_t, func->value_count + 1), host = 0;
  vt_least most = {0};
  for (uint32_t p = 0; p < func->param_count; p++) v.k.host[func->params[p]->id] = param_host[p];
  find_forms(&v, func, scope && scope->op->code == VT_OP_WHILE);
  for (const vt_op *op = func->first; op; op = op->next, at++) {
    bool *inner_host = NULL, fuses = vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
    vt_least here = inner_least(&v, op, &inner_host);
    for (uint32_t i = 0; i < op->result_count; i++) {
      const vt_value *value = &op->results[i];
      v.k.host[value->id] = vt_lies_in_host(op, i, v.k.host, inner_host);
      set_behind(&v, op, value);
      bool returned = !scope && last[value->id] == op_count;
      if (v.k.host[value->id] && !returned && !fuses)
        host += held[value->id] = (int64_t)((double)vt_type_bytes(value->type) / share);
    }
    if (is_heavy(op)) here = heavy_least(&v, op);
    here.host += host;
    take_larger(&most, &here);
    for (uint32_t i = 0; i < op->operand_count; i++) {
      int32_t id = op->operands[i]->id;
      if (last[id] != at) continue;
      host -= held[id];
      held[id] = 0;
    }
  }
  for (uint32_t i = 0; out_host && i < func->return_count; i++)
    out_host[i] = v.k.host[func->returns[i]->id];
  return most;
}

// At most what the operator holds, and what it runs needs: arrays that are made in the function.
static double most_of(walk *w, const vt_func *func);
static double most_for(walk *w, const vt_op *op) {
  const vt_func *callee = vt_op_callee(op);
  double inside = 0, held = 0;
  for (uint32_t r = 0; r < (callee ? 1 : op->region_count) && !is_heavy(op); r++)
    inside = fmax(inside, most_of(w, callee ? callee : op->regions[r]));
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->op)
      held += (double)vt_known_bytes(w->sizes, w->chip, op->operands[i]->type);
  for (uint32_t i = 0; i < op->result_count; i++)
    held += (double)vt_known_bytes(w->sizes, w->chip, op->results[i].type);
  return held + inside;
}

static double most_of(walk *w, const vt_func *func) {
  double most = 0;
  for (const vt_op *op = func->first; op; op = op->next)
    if (is_heavy(op) ||
        (vt_op_info_get(op->code)->flags & VT_OPF_CONTROL && !vt_op_is_elementwise_call(op)))
      most = fmax(most, most_for(w, op));
  return most;
}

double vt_chip_least_most(const vt_chip *chip, const vt_func *main) {
  vt_known_sizes sizes = {0};
  walk w = {.chip = chip, .sizes = &sizes};
  return most_of(&w, main);
}

void vt_chip_least(const vt_chip *chip, vt_func *main, double share, const bool *param_host,
                   vt_least *out_least) {
  vt_known_sizes sizes = {0};
  walk w = {.chip = chip, .sizes = &sizes, .scratch = {.brief = true}};
  *out_least = func_least(&w, main, NULL, share, param_host, NULL);
  vt_arena_free(&w.scratch);
}
