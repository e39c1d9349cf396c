// SPDX-License-Identifier: Apache-2.0
// scatter.c - combines windows of updates into the operands at computed places.
//
// Windows are taken in row-major order of the scatter dimensions of the updates; a window with any
// part out of bounds is skipped whole. Within a window elements are distinct, so it is combined at
// once: copied (body returns the update), or run as lanes through the body.
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"
#include "eval/number.h"

typedef struct scatter_plan {
  int32_t batch_rank, window_rank;
  int64_t batch_dims[VT_MAX_RANK], batch_strides[VT_MAX_RANK]; // of the updates
  int64_t window_dims[VT_MAX_RANK], window_from[VT_MAX_RANK], window_to[VT_MAX_RANK];
  int64_t index_strides[VT_MAX_RANK], component_stride;
  const int64_t *index_map;
  uint32_t components;
  int64_t limits[VT_MAX_RANK], operand_strides[VT_MAX_RANK];
  int32_t batching_count;
  int64_t batching_dim[VT_MAX_RANK], batching_at[VT_MAX_RANK];
} scatter_plan;

static bool contains(const int64_t *list, uint32_t count, int64_t x) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == x) return true;
  return false;
}

static vt_status plan_scatter(const vt_eval_call *call, uint32_t inputs, scatter_plan *g) {
  const vt_op *op = call->op;
  vt_type operand = call->in[0].type, indices = call->in[inputs].type,
          update = call->in[inputs + 1].type;
  uint32_t window_count, inserted_count, ob_count, ib_count;
  const int64_t *window = vt_attr_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, &window_count);
  const int64_t *inserted = vt_attr_ints(op, VT_ATTR_INSERTED_WINDOW_DIMS, &inserted_count);
  const int64_t *ob = vt_attr_ints(op, VT_ATTR_INPUT_BATCHING_DIMS, &ob_count);
  const int64_t *ib = vt_attr_ints(op, VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, &ib_count);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  int64_t update_strides[VT_MAX_RANK], index_strides[VT_MAX_RANK], sizes[VT_MAX_RANK];
  *g = (scatter_plan){0};
  g->index_map = vt_attr_ints(op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, &g->components);
  vt_type_strides(operand, g->operand_strides);
  vt_type_strides(indices, index_strides);
  vt_type_strides(update, update_strides);
  g->component_stride = vector_dim < indices.rank ? index_strides[vector_dim] : 1;
  int64_t components = vector_dim < indices.rank ? indices.dims[vector_dim] : 1;
  if ((int64_t)g->components != components || ob_count != ib_count)
    return vt_eval_invalid(op, "index dimensions");
  int32_t at = 0;
  for (int32_t d = 0; d < update.rank; d++) {
    if (contains(window, window_count, d)) continue;
    g->batch_dims[at] = update.dims[d];
    g->batch_strides[at++] = update_strides[d];
  }
  g->batch_rank = at;
  at = 0;
  for (int32_t d = 0; d < indices.rank; d++) {
    if (d == vector_dim) continue;
    if (at >= g->batch_rank || g->batch_dims[at] != indices.dims[d])
      return vt_eval_invalid(op, "shapes");
    for (uint32_t i = 0; i < ib_count; i++)
      if (ib[i] == d) {
        g->batching_dim[g->batching_count] = ob[i];
        g->batching_at[g->batching_count++] = at;
      }
    g->index_strides[at++] = index_strides[d];
  }
  if (at != g->batch_rank || g->batching_count != (int32_t)ob_count)
    return vt_eval_invalid(op, "shapes");
  at = 0;
  for (int32_t d = 0; d < operand.rank; d++) {
    sizes[d] = 1;
    if (!contains(inserted, inserted_count, d) && !contains(ob, ob_count, d)) {
      if (at >= (int32_t)window_count || window[at] < 0 || window[at] >= update.rank)
        return vt_eval_invalid(op, "update_window_dims");
      sizes[d] = g->window_dims[at] = update.dims[window[at]];
      g->window_from[at] = update_strides[window[at]];
      g->window_to[at] = g->operand_strides[d];
      at++;
    }
    g->limits[d] = operand.dims[d] - sizes[d];
  }
  g->window_rank = at;
  if (at != (int32_t)window_count) return vt_eval_invalid(op, "update_window_dims");
  for (uint32_t i = 0; i < g->components; i++)
    if (g->index_map[i] < 0 || g->index_map[i] >= operand.rank)
      return vt_eval_invalid(op, "scatter_dims_to_operand_dims");
  for (int32_t i = 0; i < g->batching_count; i++)
    if (g->batching_dim[i] < 0 || g->batching_dim[i] >= operand.rank)
      return vt_eval_invalid(op, "input_batching_dims");
  return VT_OK;
}

// The operand offset of the window at batch index `at`; false when some of it lies outside.
static bool find_window(const scatter_plan *g, vt_tensor indices, const int64_t *at, int64_t *out) {
  int64_t place = 0, start[VT_MAX_RANK] = {0};
  vt_dtype type = indices.type.dtype;
  *out = 0;
  for (int32_t d = 0; d < g->batch_rank; d++) place += at[d] * g->index_strides[d];
  for (uint32_t i = 0; i < g->components; i++)
    start[g->index_map[i]] =
        vt_int_load(type, indices.data, place + (int64_t)i * g->component_stride);
  for (int32_t i = 0; i < g->batching_count; i++) start[g->batching_dim[i]] = at[g->batching_at[i]];
  for (uint32_t i = 0; i < g->components; i++) {
    int64_t d = g->index_map[i];
    if (start[d] < 0 || start[d] > g->limits[d]) return false;
    *out += start[d] * g->operand_strides[d];
  }
  for (int32_t i = 0; i < g->batching_count; i++) {
    int64_t d = g->batching_dim[i];
    if (start[d] > g->limits[d]) return false;
    *out += start[d] * g->operand_strides[d];
  }
  for (int32_t d = 0; d < VT_MAX_RANK; d++)
    if (g->limits[d] < 0) return false; // the window is larger than the operand
  return true;
}

// Scratch of one window: the current and the new elements of each input.
typedef struct window_lanes {
  int64_t n;
  const void **args; // current elements of all inputs, then updates
  void **results;
  char *memory;
} window_lanes;

static vt_status lanes_open(const vt_eval_call *call, uint32_t inputs, int64_t n, window_lanes *w) {
  int64_t bytes = 0;
  w->n = n;
  for (uint32_t i = 0; i < inputs; i++)
    bytes += 2 * ((n * (int64_t)vt_dtype_bytes(call->in[i].type.dtype) + 63) & ~(int64_t)63);
  VT_TRY(vt_eval_scratch(bytes + (int64_t)sizeof(void *) * 3 * inputs, &w->memory));
  char *at = w->memory;
  w->args = (const void **)(void *)(w->memory + bytes);
  w->results = (void **)(void *)(w->args + 2 * inputs);
  for (uint32_t i = 0; i < 2 * inputs; i++) {
    w->args[i] = at;
    if (i < inputs) w->results[i] = at;
    at += (n * (int64_t)vt_dtype_bytes(call->in[i % inputs].type.dtype) + 63) & ~(int64_t)63;
  }
  return VT_OK;
}

static vt_status combine(const vt_eval_call *call, const scatter_plan *g, uint32_t inputs,
                         const int64_t *dense, int64_t from, int64_t to, window_lanes *w,
                         vt_region *region) {
  for (uint32_t i = 0; i < inputs; i++) {
    size_t bytes = vt_dtype_bytes(call->in[i].type.dtype);
    vt_eval_move(bytes, g->window_rank, g->window_dims,
                 (char *)call->out[i].data + to * (int64_t)bytes, g->window_to,
                 (void *)(intptr_t)w->args[i], dense);
    vt_eval_move(bytes, g->window_rank, g->window_dims,
                 (const char *)call->in[inputs + 1 + i].data + from * (int64_t)bytes,
                 g->window_from, (void *)(intptr_t)w->args[inputs + i], dense);
  }
  VT_TRY(vt_region_run(region, w->n, w->args, w->results));
  for (uint32_t i = 0; i < inputs; i++) {
    size_t bytes = vt_dtype_bytes(call->in[i].type.dtype);
    vt_eval_move(bytes, g->window_rank, g->window_dims, w->results[i], dense,
                 (char *)call->out[i].data + to * (int64_t)bytes, g->window_to);
  }
  return VT_OK;
}

// The body returns the update itself: later windows win.
static bool is_assignment(const vt_func *body, uint32_t inputs) {
  if (body->first || body->return_count != inputs || body->param_count < 2 * inputs) return false;
  for (uint32_t i = 0; i < inputs; i++)
    if (body->returns[i] != body->params[inputs + i]) return false;
  return true;
}

vt_status vt_eval_scatter(const vt_eval_call *call) {
  const vt_op *op = call->op;
  uint32_t inputs = op->result_count;
  if (!inputs || vt_op_own_operands(op) != 2 * inputs + 1) return vt_eval_invalid(op, "operands");
  for (uint32_t i = 0; i < inputs; i++) {
    size_t bytes = (size_t)vt_type_bytes(call->out[i].type);
    if (bytes && call->out[i].data != call->in[i].data)
      memcpy(call->out[i].data, call->in[i].data, bytes);
  }
  if (!vt_type_elements(call->in[inputs + 1].type) || !vt_type_elements(call->out[0].type))
    return VT_OK;
  scatter_plan g;
  VT_TRY(plan_scatter(call, inputs, &g));
  vt_type window = {VT_PRED, g.window_rank, g.window_dims};
  int64_t dense[VT_MAX_RANK], at[VT_MAX_RANK] = {0}, n = vt_type_elements(window);
  vt_type_strides(window, dense);
  const vt_func *body = op->regions[0];
  bool assign = is_assignment(body, inputs);
  vt_status st = VT_OK;
  vt_region region = {0};
  window_lanes lanes = {0};
  if (!assign) {
    VT_TRY_OUT(lanes_open(call, inputs, n, &lanes));
    VT_TRY_OUT(vt_region_open(call, body, n, &region));
  }
  do {
    int64_t from = 0, to;
    if (!find_window(&g, call->in[inputs], at, &to)) continue;
    for (int32_t d = 0; d < g.batch_rank; d++) from += at[d] * g.batch_strides[d];
    if (!assign) {
      VT_TRY_OUT(combine(call, &g, inputs, dense, from, to, &lanes, &region));
      continue;
    }
    for (uint32_t i = 0; i < inputs; i++) {
      int64_t bytes = (int64_t)vt_dtype_bytes(call->in[i].type.dtype);
      vt_eval_move((size_t)bytes, g.window_rank, g.window_dims,
                   (const char *)call->in[inputs + 1 + i].data + from * bytes, g.window_from,
                   (char *)call->out[i].data + to * bytes, g.window_to);
    }
  } while (vt_eval_next(g.batch_rank, g.batch_dims, at));
out:
  vt_region_close(&region);
  free(lanes.memory);
  return st;
}
