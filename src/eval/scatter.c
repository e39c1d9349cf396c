// SPDX-License-Identifier: Apache-2.0
// scatter.c - combines windows of updates into the operands at computed positions.
//
// Windows are processed in row-major order of the updates' scatter dimensions; a window with any
// part out of bounds is skipped entirely. Elements within a window are distinct, so it is combined
// at once: copied (the body returns the update), or run as lanes through the body.
#include <stdlib.h>
#include <string.h>

#include "eval/indexed.h"

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

static vt_status combine(const vt_eval_call *call, const vt_indexed *g, uint32_t inputs,
                         const int64_t *dense, int64_t from, int64_t to, window_lanes *w,
                         vt_region *region) {
  for (uint32_t i = 0; i < inputs; i++) {
    size_t bytes = vt_dtype_bytes(call->in[i].type.dtype);
    vt_eval_move(bytes, g->window_rank, g->window_dims,
                 (char *)call->out[i].data + to * (int64_t)bytes, g->place_strides,
                 (void *)(intptr_t)w->args[i], dense);
    vt_eval_move(bytes, g->window_rank, g->window_dims,
                 (const char *)call->in[inputs + 1 + i].data + from * (int64_t)bytes,
                 g->window_strides, (void *)(intptr_t)w->args[inputs + i], dense);
  }
  VT_TRY(vt_region_run(region, w->n, w->args, w->results));
  for (uint32_t i = 0; i < inputs; i++) {
    size_t bytes = vt_dtype_bytes(call->in[i].type.dtype);
    vt_eval_move(bytes, g->window_rank, g->window_dims, w->results[i], dense,
                 (char *)call->out[i].data + to * (int64_t)bytes, g->place_strides);
  }
  return VT_OK;
}

bool vt_scatter_assigns(const vt_func *body, uint32_t inputs) {
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
  vt_indexed g;
  VT_TRY(vt_indexed_plan(op, &vt_scatter_keys, call->in[0].type, call->in[inputs].type,
                         call->in[inputs + 1].type, NULL, &g));
  vt_type window = {VT_PRED, g.window_rank, g.window_dims};
  int64_t dense[VT_MAX_RANK], at[VT_MAX_RANK] = {0}, n = vt_type_elements(window);
  vt_type_strides(window, dense);
  const vt_func *body = op->regions[0];
  bool assign = vt_scatter_assigns(body, inputs);
  vt_status st = VT_OK;
  vt_region region = {0};
  window_lanes lanes = {0};
  if (!assign) {
    VT_TRY_OUT(lanes_open(call, inputs, n, &lanes));
    VT_TRY_OUT(vt_region_open(call, body, n, &region));
  }
  do {
    int64_t from = 0, to;
    if (!vt_indexed_find(&g, call->in[inputs], at, false, &to)) continue;
    for (int32_t d = 0; d < g.batch_rank; d++) from += at[d] * g.batch_strides[d];
    if (!assign) {
      VT_TRY_OUT(combine(call, &g, inputs, dense, from, to, &lanes, &region));
      continue;
    }
    for (uint32_t i = 0; i < inputs; i++) {
      int64_t bytes = (int64_t)vt_dtype_bytes(call->in[i].type.dtype);
      vt_eval_move((size_t)bytes, g.window_rank, g.window_dims,
                   (const char *)call->in[inputs + 1 + i].data + from * bytes, g.window_strides,
                   (char *)call->out[i].data + to * bytes, g.place_strides);
    }
  } while (vt_eval_next(g.batch_rank, g.batch_dims, at));
out:
  vt_region_close(&region);
  free(lanes.memory);
  return st;
}
