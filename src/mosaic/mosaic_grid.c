// SPDX-License-Identifier: Apache-2.0
// mosaic_grid.c - the points of the grid in order (of one core: those of its index), and the
// windows of operands and results: an input block is fetched when its index changes, an output
// block is written back when it is left.
#include <inttypes.h>
#include <string.h>

#include "mosaic/mosaic_check.h"
#include "mosaic/mosaic_code.h"

static vt_marray *inside_of(vt_mmachine *m, uint32_t window) {
  return &m->arrays[m->kernel->prefetch_count + window];
}

// The part of the outside that the block covers, and the same part of the block.
static vt_status overlap(vt_mmachine *m, uint32_t window, vt_mview *outside, vt_mview *inside) {
  const vt_mwindow *w = &m->kernel->windows[window];
  vt_mwindow_state *state = &m->windows[window];
  vt_mview_whole(&state->outside, outside);
  vt_mview_whole(inside_of(m, window), inside);
  for (int32_t d = 0; d < inside->rank; d++) {
    int64_t size = inside->dims[d], whole = outside->dims[d], start, end;
    if (w->element ? __builtin_sub_overflow(state->block[d], w->pad_low[d], &start)
                   : __builtin_mul_overflow(state->block[d], size, &start))
      start = INT64_MAX - size;
    if (start > INT64_MAX - size) start = INT64_MAX - size;
    if (start < -size) start = -size;
    end = start + size;
    int64_t low = start < 0 ? 0 : start, high = end < whole ? end : whole;
    if (high <= low && !w->element)
      return vt_error(VT_OUT_OF_RANGE,
                      "kernel %s: block %" PRId64 " of size %" PRId64
                      " in dimension %d of argument %" PRIu32
                      " lies outside of the array, whose size there is %" PRId64,
                      m->kernel->name, state->block[d], size, d, window, whole);
    if (high < low) high = low;
    int64_t stride = outside->strides[d];
    outside->offset += low * stride;
    outside->dims[d] = outside->limits[d] = high - low;
    inside->offset += (low - start) * inside->strides[d];
    inside->dims[d] = inside->limits[d] = high - low;
  }
  return VT_OK;
}

// A block that is one piece of the array and is only read need not be copied.
static bool lies_together(const vt_mview *outside, const vt_marray *block) {
  int64_t stride = (int64_t)vt_dtype_bytes(block->type.dtype);
  for (int32_t d = outside->rank; d-- > 0;) {
    if (outside->dims[d] != block->type.dims[d]) return false;
    if (outside->dims[d] > 1 && outside->strides[d] != stride) return false;
    stride *= outside->dims[d];
  }
  return true;
}

static vt_status fetch(vt_mmachine *m, uint32_t window) {
  vt_mview outside, inside;
  vt_marray *array = inside_of(m, window);
  vt_mwindow_state *state = &m->windows[window];
  VT_TRY(overlap(m, window, &outside, &inside));
  vt_mview whole;
  vt_mview_whole(array, &whole);
  memcpy(state->strides, whole.strides, sizeof whole.strides);
  if (m->code && m->code->kept_inputs[window]) {
    bool there = lies_together(&outside, array) ||
                 (m->code->strided_inputs[window] &&
                  vt_mview_elements(&inside) == vt_mtype_elements(array->type));
    array->data = there ? state->outside.data + outside.offset : state->block_memory;
    if (there) memcpy(state->strides, outside.strides, sizeof outside.strides);
    if (there) return VT_OK;
  }
  VT_TRY(vt_mcheck_access(m, NULL, &whole, true));
  if (vt_mview_elements(&inside) != vt_mtype_elements(array->type)) {
    memset(array->data, 0, (size_t)vt_mtype_bytes(array->type));
    if (m->check) vt_mcheck_fill(m->check, array, false);
  }
  return vt_mview_copy(m, &outside, &inside);
}

// The number of the window's block among all of its array.
static int64_t block_number(vt_mmachine *m, uint32_t window) {
  const vt_mwindow_state *state = &m->windows[window];
  const vt_marray *array = inside_of(m, window);
  int64_t number = 0;
  for (int32_t d = 0; d < array->type.rank; d++)
    number =
        number * ((state->outside.type.dims[d] + array->type.dims[d] - 1) / array->type.dims[d]) +
        state->block[d];
  return number;
}

static bool stays_behind(const vt_mmachine *m, uint32_t window) {
  return m->outer_end && !m->last && m->code->last_results[window];
}

// A block of a result that is not cleared may be made where it belongs, when it is one piece.
static vt_status enter(vt_mmachine *m, uint32_t window) {
  vt_mwindow_state *state = &m->windows[window];
  vt_marray *array = inside_of(m, window);
  vt_mview outside, inside;
  if (!state->written || stays_behind(m, window)) return VT_OK;
  VT_TRY(overlap(m, window, &outside, &inside));
  array->data = state->block_memory;
  if (!lies_together(&outside, array)) return VT_OK;
  uint8_t *written = &state->written[block_number(m, window)];
  array->data = state->outside.data + outside.offset;
  if (!*written && !m->code->filled[m->kernel->prefetch_count + window])
    memset(array->data, 0, (size_t)vt_mtype_bytes(array->type));
  *written = 1;
  return VT_OK;
}

static vt_status write_back(vt_mmachine *m, uint32_t window) {
  vt_mview outside, inside;
  const vt_mwindow_state *state = &m->windows[window];
  if (stays_behind(m, window)) return VT_OK;
  if (state->written && inside_of(m, window)->data != state->block_memory) return VT_OK; // there
  VT_TRY(overlap(m, window, &outside, &inside));
  if (state->written) state->written[block_number(m, window)] = 1;
  VT_TRY(vt_mcheck_access(m, NULL, &inside, false));
  VT_TRY(vt_mcheck_result(m, &inside, window - m->kernel->input_count));
  return vt_mview_copy(m, &inside, &outside);
}

// The index of the window's block at this point of the grid.
static vt_status place(vt_mmachine *m, uint32_t window, int64_t *block) {
  const vt_mwindow *w = &m->kernel->windows[window];
  int32_t rank = inside_of(m, window)->type.rank;
  memset(block, 0, VT_MOSAIC_RANK * sizeof *block);
  VT_TRY(vt_mmachine_call(m, w->transform));
  memcpy(block, m->returned, (size_t)rank * sizeof *block);
  return VT_OK;
}

// Blocks that are left are written before new ones are fetched.
static vt_status move_windows(vt_mmachine *m) {
  const vt_mosaic *k = m->kernel;
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < k->window_count; i++) {
      vt_mwindow_state *state = &m->windows[i];
      int64_t block[VT_MOSAIC_RANK];
      if (k->windows[i].whole || state->is_output != !pass) continue;
      VT_TRY(place(m, i, block));
      bool same = state->valid && !memcmp(block, state->block, sizeof block);
      if (same) continue;
      if (state->valid && state->is_output) VT_TRY(write_back(m, i));
      memcpy(state->block, block, sizeof block);
      state->valid = true;
      if (!state->is_output || k->windows[i].revisits) VT_TRY(fetch(m, i));
      if (state->is_output) VT_TRY(enter(m, i));
    }
  return VT_OK;
}

static vt_status end(vt_mmachine *m) {
  for (uint32_t i = 0; i < m->kernel->window_count; i++)
    if (m->windows[i].valid && m->windows[i].is_output) VT_TRY(write_back(m, i));
  m->done = true;
  return VT_OK;
}

static bool next_point(vt_mmachine *m) {
  uint32_t rank = m->kernel->grid_rank;
  int32_t split = m->kernel->core_dim, cores = m->kernel->core_count;
  int64_t bounds[VT_MOSAIC_RANK], first = 0;
  bool more = true;
  memcpy(bounds, m->bounds, sizeof bounds);
  if (split >= 0) {
    first = m->core * m->bounds[split] / cores;
    bounds[split] = (m->core + 1) * m->bounds[split] / cores - first;
    if (m->started) m->index[split] -= first;
  }
  if (m->started) {
    more = vt_eval_next((int32_t)rank, bounds, m->index);
  } else {
    for (uint32_t d = 0; d < rank; d++) more = more && m->bounds[d] > 0;
  }
  m->started = true;
  if (split >= 0) m->index[split] += first;
  return more;
}

void vt_mgrid_place(vt_mmachine *m, int64_t point) {
  for (uint32_t d = m->code->free_dims; d-- > 0;) {
    m->index[d] = point % m->bounds[d];
    point /= m->bounds[d];
  }
}

// The same for a machine that has some of the points of the leading dimensions.
static bool next_own_point(vt_mmachine *m) {
  uint32_t rank = m->kernel->grid_rank, outer = m->code->free_dims;
  if (m->started && vt_eval_next((int32_t)(rank - outer), m->bounds + outer, m->index + outer))
    return true;
  if (m->started) m->outer++;
  m->started = true;
  if (m->outer >= m->outer_end) return false;
  vt_mgrid_place(m, m->outer);
  return true;
}

vt_status vt_mgrid_advance(vt_mmachine *m) {
  if (!(m->outer_end ? next_own_point(m) : next_point(m))) return end(m);
  VT_TRY(move_windows(m));
  if (m->code) return vt_mmachine_run_code(m, m->kernel->body);
  vt_mmachine_set_args(m, m->kernel->body->block);
  return vt_mmachine_push(m, m->kernel->body->block);
}

vt_status vt_mosaic_run_bound(vt_mmachine *m, const vt_mop *op) {
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIM, 0);
  if (dim >= m->kernel->grid_rank)
    return vt_mop_error(op, VT_INVALID_ARGUMENT, "the grid has no dimension %" PRId64, dim);
  vt_mset_int(m, &op->results[0], m->bounds[dim]);
  return VT_OK;
}
