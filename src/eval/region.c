// SPDX-License-Identifier: Apache-2.0
// region.c - runs the scalar regions of reduce, scatter, sort etc. for many elements at once.
//
// A region of elementwise ops on scalars runs op by op over arrays of lanes, so a custom reduction
// costs little more than a common one. Other regions (loops, calls) run lane by lane.
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "eval/kernel.h"

enum { MOST_LANES = 1024, MOST_STAGED = 32 };

typedef struct vt_region_step {
  const vt_op *op;
  int32_t operands[3];
  int32_t result;
} vt_region_step;

static bool is_scalar(vt_type t) {
  return t.rank == 0 && t.dtype != VT_TOKEN;
}

static bool fits_lanes(const vt_func *func) {
  for (uint32_t i = 0; i < func->param_count; i++)
    if (!is_scalar(func->params[i]->type)) return false;
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->result_count != 1 || !is_scalar(op->results[0].type)) return false;
    bool eltwise = vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
    if (!eltwise && op->code != VT_OP_CONSTANT && !vt_eval_is_identity(op)) return false;
    if (op->operand_count > 3) return false;
  }
  return true;
}

static int32_t slot_of(vt_map *map, const vt_value *value) {
  return (int32_t)((intptr_t)vt_map_find_ptr(map, value) - 1);
}

typedef struct planning {
  vt_region *region;
  vt_map slots; // of values
} planning;

// Steps, and an array for each value that is not an argument. Constants and captures are broadcast
// once.
static vt_status plan_lanes(void *user) {
  planning *p = user;
  vt_region *r = p->region;
  vt_map *map = &p->slots;
  const vt_func *func = r->func;
  uint32_t values = func->param_count, steps = 0;
  for (const vt_op *op = func->first; op; op = op->next) values++, steps++;
  r->slots = VT_NEW_ARRAY(&r->arena, void *, values + 1);
  r->steps = VT_NEW_ARRAY(&r->arena, vt_region_step, steps + 1);
  r->param_slots = VT_NEW_ARRAY(&r->arena, int32_t, func->param_count + 1);
  r->return_slots = VT_NEW_ARRAY(&r->arena, int32_t, r->return_count + 1);
  r->staged = VT_NEW_ARRAY(&r->arena, void *, r->return_count + 1);
  int32_t next = 0;
  for (uint32_t i = 0; i < func->param_count; i++) {
    size_t bytes = vt_dtype_bytes(func->params[i]->type.dtype);
    *vt_map_at_ptr(map, func->params[i]) = (void *)(intptr_t)(next + 1);
    r->param_slots[i] = next;
    if (i >= r->own_params) {
      r->slots[next] = vt_arena_push_aligned(&r->arena, bytes * (size_t)r->lanes, 64);
      vt_eval_fill(bytes, r->lanes, r->captures[i - r->own_params].data, r->slots[next]);
    }
    next++;
  }
  for (const vt_op *op = func->first; op; op = op->next) {
    int32_t operands[3] = {-1, -1, -1};
    for (uint32_t i = 0; i < op->operand_count; i++) {
      operands[i] = slot_of(map, op->operands[i]);
      if (operands[i] < 0) return vt_error(VT_INTERNAL, "a region uses a value from outside");
    }
    if (vt_eval_is_identity(op)) {
      *vt_map_at_ptr(map, &op->results[0]) = (void *)(intptr_t)(operands[0] + 1);
      continue;
    }
    size_t bytes = vt_dtype_bytes(op->results[0].type.dtype);
    *vt_map_at_ptr(map, &op->results[0]) = (void *)(intptr_t)(next + 1);
    r->slots[next] = vt_arena_push_aligned(&r->arena, bytes * (size_t)r->lanes, 64);
    if (op->code == VT_OP_CONSTANT)
      vt_eval_fill(bytes, r->lanes, vt_attr_literal(op, VT_ATTR_VALUE)->data, r->slots[next]);
    else
      r->steps[r->step_count++] =
          (vt_region_step){op, {operands[0], operands[1], operands[2]}, next};
    next++;
  }
  for (uint32_t i = 0; i < r->return_count; i++) {
    r->return_slots[i] = slot_of(map, r->returns[i]);
    if (r->return_slots[i] < 0)
      return vt_error(VT_INTERNAL, "a region returns a value from outside");
    // An argument returned at a different position: its array may be an earlier result's.
    if (r->return_slots[i] < (int32_t)r->own_params && r->return_slots[i] != (int32_t)i)
      r->staged[i] = vt_arena_push_aligned(
          &r->arena, vt_dtype_bytes(r->returns[i]->type.dtype) * (size_t)r->lanes, 64);
  }
  return VT_OK;
}

vt_status vt_region_open(const vt_eval_call *call, const vt_func *func, int64_t lanes,
                         vt_region *out) {
  return vt_region_open_values(call, func, func->return_count, func->returns, lanes, out);
}

vt_status vt_region_open_values(const vt_eval_call *call, const vt_func *func, uint32_t count,
                                vt_value *const *values, int64_t lanes, vt_region *out) {
  uint32_t captures = call->op->capture_count;
  *out = (vt_region){.func = func, .state = call->state, .env = call->env};
  out->return_count = count;
  out->returns = values;
  if (func->param_count < captures) return vt_eval_invalid(call->op, "region");
  out->own_params = func->param_count - captures;
  out->captures = call->in + vt_op_own_operands(call->op);
  out->lanes = lanes < 1 ? 1 : lanes > MOST_LANES ? MOST_LANES : lanes;
  out->general = !fits_lanes(func);
  if (out->general && values != func->returns) return vt_eval_refuse(call->op, "this region");
  if (out->general) return VT_OK;
  planning p = {.region = out};
  vt_status st = vt_attempt_keep(plan_lanes, &p); // the caller holds memory from malloc
  vt_map_free(&p.slots);
  if (st) vt_region_close(out);
  return st;
}

void vt_region_close(vt_region *region) {
  vt_arena_free(&region->arena);
}

static size_t scalar_bytes(const vt_value *value) {
  return vt_dtype_bytes(value->type.dtype);
}

static vt_status run_lanes(vt_region *r, int64_t n, const void *const *args, void *const *results) {
  for (uint32_t i = 0; i < r->own_params; i++)
    r->slots[r->param_slots[i]] = (void *)(intptr_t)args[i];
  for (uint32_t s = 0; s < r->step_count; s++) {
    vt_region_step *step = &r->steps[s];
    vt_tensor in[3] = {0}, out;
    for (uint32_t i = 0; i < step->op->operand_count; i++)
      in[i] = (vt_tensor){{step->op->operands[i]->type.dtype, 1, &n}, r->slots[step->operands[i]]};
    out = (vt_tensor){{step->op->results[0].type.dtype, 1, &n}, r->slots[step->result]};
    VT_TRY(vt_eval_lanes(step->op, n, in, &out));
  }
  for (uint32_t i = 0; i < r->return_count; i++)
    if (r->staged[i])
      memcpy(r->staged[i], r->slots[r->return_slots[i]], scalar_bytes(r->returns[i]) * (size_t)n);
  for (uint32_t i = 0; i < r->return_count; i++) {
    const void *from = r->staged[i] ? r->staged[i] : r->slots[r->return_slots[i]];
    if (from != results[i]) memmove(results[i], from, scalar_bytes(r->returns[i]) * (size_t)n);
  }
  return VT_OK;
}

// Writes go through `staged`, since a result may be the array of an argument that another result
// still needs.
static vt_status run_general(vt_region *r, int64_t n, const void *const *args,
                             void *const *results) {
  const vt_func *func = r->func;
  uint32_t count = func->param_count + func->return_count;
  if (func->return_count > MOST_STAGED)
    return vt_error(VT_UNIMPLEMENTED, "a region of more than %d results", MOST_STAGED);
  vt_eval_buffer **buffers = calloc((size_t)count + 1, sizeof *buffers);
  if (!buffers) return vt_error_no_memory();
  vt_eval_buffer **out = buffers + func->param_count;
  vt_status st = VT_OK;
  for (int64_t lane = 0; lane < n && !st; lane++) {
    memset(buffers, 0, sizeof *buffers * count);
    for (uint32_t i = 0; i < func->param_count && !st; i++) {
      int64_t bytes = vt_type_bytes(func->params[i]->type);
      const char *data = i < r->own_params ? (const char *)args[i] + lane * bytes
                                           : (const char *)r->captures[i - r->own_params].data;
      st = vt_eval_buffer_borrow(r->state, (void *)(intptr_t)data, bytes, &buffers[i]);
    }
    if (st) {
      for (uint32_t i = 0; i < func->param_count; i++) vt_eval_buffer_release(r->state, buffers[i]);
      break;
    }
    st = vt_eval_run(r->state, r->env, func, buffers, out);
    char staged[MOST_STAGED][16];
    for (uint32_t i = 0; i < func->return_count && !st; i++)
      memcpy(staged[i], out[i]->data, scalar_bytes(func->returns[i]));
    for (uint32_t i = 0; i < func->return_count && !st; i++) {
      size_t bytes = scalar_bytes(func->returns[i]);
      memcpy((char *)results[i] + (size_t)lane * bytes, staged[i], bytes);
    }
    for (uint32_t i = 0; i < func->return_count; i++) vt_eval_buffer_release(r->state, out[i]);
  }
  free(buffers);
  return st;
}

vt_status vt_region_run(vt_region *r, int64_t n, const void *const *args, void *const *results) {
  if (n <= 0) return VT_OK;
  if (r->general) return run_general(r, n, args, results);
  if (n <= r->lanes) return run_lanes(r, n, args, results);
  enum { MOST = 64 };
  const void *in[MOST];
  void *out[MOST];
  if (r->own_params > MOST || r->return_count > MOST)
    return vt_error(VT_UNIMPLEMENTED, "a region of more than %d arguments", MOST);
  for (int64_t at = 0; at < n; at += r->lanes) {
    int64_t now = n - at < r->lanes ? n - at : r->lanes;
    for (uint32_t i = 0; i < r->own_params; i++)
      in[i] = (const char *)args[i] + (size_t)at * scalar_bytes(r->func->params[i]);
    for (uint32_t i = 0; i < r->return_count; i++)
      out[i] = (char *)results[i] + (size_t)at * scalar_bytes(r->returns[i]);
    VT_TRY(run_lanes(r, now, in, out));
  }
  return VT_OK;
}

vt_opcode vt_region_binary(const vt_func *func, int32_t a, int32_t b) {
  if (func->return_count != 1 || !func->first || func->first != func->last) return VT_OP_INVALID;
  const vt_op *op = func->first;
  const vt_op_info *info = vt_op_info_get(op->code);
  if (op->operand_count != 2 || op->result_count != 1 || func->returns[0] != &op->results[0] ||
      !(info->flags & VT_OPF_ELTWISE))
    return VT_OP_INVALID;
  if (a >= (int32_t)func->param_count || b >= (int32_t)func->param_count) return VT_OP_INVALID;
  vt_dtype type = op->results[0].type.dtype;
  if (func->params[a]->type.dtype != type || func->params[b]->type.dtype != type)
    return VT_OP_INVALID;
  if (op->operands[0] == func->params[a] && op->operands[1] == func->params[b]) return op->code;
  if (info->flags & VT_OPF_COMM && op->operands[0] == func->params[b] &&
      op->operands[1] == func->params[a])
    return op->code;
  return VT_OP_INVALID;
}
