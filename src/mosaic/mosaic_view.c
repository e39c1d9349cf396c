// SPDX-License-Identifier: Apache-2.0
// mosaic_view.c - references as views of arrays: parts, other shapes, other widths of the elements;
// copies between views and dense arrays.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mosaic/mosaic_run.h"

void vt_mview_whole(vt_marray *array, vt_mview *out) {
  vt_mtype type = array->type;
  *out = (vt_mview){.array = array,
                    .dtype = type.dtype,
                    .rank = type.rank,
                    .pack = 1,
                    .split = 1,
                    .split_dim = -1};
  int64_t stride = (int64_t)vt_dtype_bytes(type.dtype);
  for (int32_t d = type.rank; d-- > 0;) {
    out->dims[d] = out->limits[d] = type.dims[d];
    out->strides[d] = stride;
    stride *= type.dims[d];
  }
}

int64_t vt_mview_elements(const vt_mview *view) {
  int64_t n = 1;
  for (int32_t d = 0; d < view->rank; d++) n *= view->dims[d];
  return n;
}

// Blocks may reach to the end of the last tile: 128 lanes, and as many rows as 32 bytes times 8.
static int64_t padded(const vt_mview *view, int32_t d) {
  int64_t bits = vt_dtype_get(view->dtype)->bits, size = view->dims[d], unit = 1;
  if (view->array->type.semaphore) return size;
  if (d == view->rank - 1) unit = view->rank == 1 ? 1024 : 128;
  if (d == view->rank - 2) unit = 8 * (bits < 32 && bits ? 32 / bits : 1);
  return (size + unit - 1) / unit * unit;
}

static const int64_t most = (int64_t)1 << 31; // of a start or a size: sums and products fit

vt_status vt_mview_cut(const vt_mmachine *m, const vt_mop *op, vt_mview *view, int32_t d,
                       int64_t start, int64_t size, int64_t step) {
  bool checked = m->check || !m->kernel->config.disable_bounds_checks;
  bool good = start >= 0 && start <= most && size >= 0 && size <= most;
  if (!good || (checked && size && start + (size - 1) * step >= padded(view, d)))
    return vt_mop_error(op, VT_OUT_OF_RANGE,
                        "out of bounds: %" PRId64 " elements from %" PRId64
                        " in dimension %d of size %" PRId64,
                        size, start, d, view->dims[d]);
  int64_t left = view->limits[d] <= start ? 0
                 : step                   ? (view->limits[d] - start + step - 1) / step
                                          : size; // one element, again and again
  view->dims[d] = size;
  view->limits[d] = left < size ? left : size;
  if (!view->limits[d]) return VT_OK; // nothing is there to point at
  if (view->split_dim == d) {
    view->split_first += start * view->split_step;
    view->split_step *= step;
    return VT_OK;
  }
  view->offset += start * view->strides[d];
  view->strides[d] *= step;
  return VT_OK;
}

void vt_mview_squeeze(vt_mview *view, vt_mtype from, vt_mtype to) {
  int32_t k = 0;
  for (int32_t d = 0; d < view->rank; d++) {
    bool kept = k < to.rank && from.dims[d] == to.dims[k];
    if (view->split_dim == d) view->split_dim = kept ? k : -2;
    if (view->split_dim == -2) { // the one element stays chosen
      view->offset += view->split_first / view->split * view->strides[d];
      view->split_first %= view->split;
      view->split_dim = -1;
    }
    if (!kept) {
      if (!view->limits[d]) // it lies outside, and so does all that remains
        for (int32_t i = 0; i < view->rank; i++) view->limits[i] = 0;
      continue;
    }
    view->dims[k] = view->dims[d];
    view->limits[k] = view->limits[d];
    view->strides[k++] = view->strides[d];
  }
  view->rank = to.rank;
}

// Groups of dimensions with the same product become each other, where memory allows.
vt_status vt_mview_reshape(const vt_mop *op, vt_mview *view, vt_mtype to) {
  vt_mview out = *view;
  int32_t from_at = 0, to_at = 0, from_rank = view->rank;
  // Rows of narrow elements are `split` times closer than those of wide ones: with all strides
  // multiplied by it, they are like others.
  int64_t row = view->split_dim < 0 ? 0 : view->strides[view->split_dim];
  bool good = view->split == 1 || (view->split_dim >= 0 && view->split_step == 1);
  out.split_dim = -1;
  for (int32_t d = 0; d < from_rank; d++)
    if (d != view->split_dim) out.strides[d] = view->strides[d] * view->split;
  vt_mview scaled = out;
  for (int32_t d = 0; d < from_rank; d++) good = good && view->limits[d] == view->dims[d];
  while (good && to_at < to.rank) {
    int32_t from_end = from_at, to_end = to_at + 1;
    int64_t a = 1, b = to.dims[to_at];
    while (a != b || from_end == from_at) {
      if (a < b || from_end == from_at) {
        if (from_end == from_rank) break;
        a *= view->dims[from_end++];
      } else {
        if (to_end == to.rank) break;
        b *= to.dims[to_end++];
      }
    }
    if (a != b) {
      good = from_end == from_at && b == 1; // trailing dimensions of size 1
      if (!good) break;
    }
    int64_t stride = 0, inner = 0;
    for (int32_t d = from_end; d-- > from_at;) {
      if (view->dims[d] == 1) continue;
      if (!stride)
        stride = scaled.strides[d];
      else if (scaled.strides[d] != inner)
        good = false;
      inner = scaled.strides[d] * view->dims[d];
    }
    bool rows = view->split > 1 && stride == row;
    if (!stride) stride = (int64_t)vt_dtype_bytes(view->array->type.dtype) * view->split;
    for (int32_t d = to_end; d-- > to_at;) {
      if (rows && to.dims[d] > 1) {
        out.split_dim = d;
        out.strides[d] = row;
        rows = false;
      } else {
        good = good && stride % view->split == 0;
        out.strides[d] = stride / view->split;
      }
      stride *= to.dims[d];
    }
    from_at = from_end;
    to_at = to_end;
  }
  for (; good && from_at < from_rank; from_at++) good = view->dims[from_at] == 1;
  good = good && (view->split == 1 || out.split_dim >= 0);
  if (!good)
    return vt_mop_error(op, VT_UNIMPLEMENTED,
                        "this reshape of a part of an array is not supported");
  out.rank = to.rank;
  for (int32_t d = 0; d < to.rank; d++) out.dims[d] = out.limits[d] = to.dims[d];
  *view = out;
  return VT_OK;
}

vt_status vt_mview_bitcast(const vt_mop *op, vt_mview *view, vt_mtype to) {
  int32_t from_bits = vt_dtype_get(view->dtype)->bits, to_bits = vt_dtype_get(to.dtype)->bits;
  int32_t row = view->rank - 2;
  bool good = true;
  view->dtype = to.dtype;
  if (to_bits > from_bits) {
    int32_t n = to_bits / from_bits;
    if (view->split == n && view->split_dim == row && view->split_step == 1 &&
        view->split_first % n == 0) {
      view->offset += view->split_first / n * view->strides[row];
      view->split = 1;
      view->split_dim = -1;
    } else {
      good = view->split == 1 && view->pack == 1;
      view->pack = n;
      view->pack_stride = view->strides[row];
      view->strides[row] *= n;
    }
    view->dims[row] /= n;
    view->limits[row] /= n;
  } else if (to_bits < from_bits) {
    int32_t n = from_bits / to_bits;
    if (view->pack == n && view->strides[row] == view->pack_stride * n) {
      view->strides[row] = view->pack_stride;
      view->pack = 1;
    } else {
      good = view->split == 1 && view->pack == 1;
      view->split = n;
      view->split_dim = row;
      view->split_first = 0;
      view->split_step = 1;
    }
    view->dims[row] *= n;
    view->limits[row] *= n;
  }
  return good ? VT_OK
              : vt_mop_error(op, VT_UNIMPLEMENTED,
                             "a second change of width of one reference is not supported");
}

// ---- elements of any width ----------------------------------------------------------------------

uint64_t vt_mbits_load(vt_dtype dtype, const void *at) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  uint64_t bits = 0;
  memcpy(&bits, at, info->bytes);
  return info->bits < 64 ? bits & (((uint64_t)1 << info->bits) - 1) : bits;
}

void vt_mbits_store(vt_dtype dtype, void *at, uint64_t bits) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  if (info->bits < 8) {
    bits &= ((uint64_t)1 << info->bits) - 1;
    if (info->kind == VT_KIND_SIGNED && bits >> (info->bits - 1))
      bits |= ~(((uint64_t)1 << info->bits) - 1);
  }
  memcpy(at, &bits, info->bytes);
}

static bool is_plain(const vt_mview *view) {
  return view->pack == 1 && view->split == 1;
}

static char *address(const vt_mview *view, const int64_t *index, int64_t *out_piece) {
  int64_t offset = view->offset;
  *out_piece = 0;
  for (int32_t d = 0; d < view->rank; d++)
    if (d != view->split_dim) offset += index[d] * view->strides[d];
  if (view->split > 1) {
    int64_t i = view->split_dim < 0 ? 0 : index[view->split_dim];
    int64_t number = view->split_first + i * view->split_step;
    *out_piece = number % view->split;
    offset += number / view->split * (view->split_dim < 0 ? 0 : view->strides[view->split_dim]);
  }
  return view->array->data + offset;
}

static uint64_t load_one(const vt_mview *view, const int64_t *index) {
  vt_dtype own = view->array->type.dtype;
  int64_t piece;
  const char *at = address(view, index, &piece);
  uint64_t bits = 0;
  if (view->pack > 1) {
    int32_t width = vt_dtype_get(own)->bits;
    for (int32_t p = 0; p < view->pack; p++)
      bits |= vt_mbits_load(own, at + p * view->pack_stride) << (p * width);
    return bits;
  }
  bits = vt_mbits_load(own, at);
  return view->split > 1 ? bits >> (piece * vt_dtype_get(view->dtype)->bits) : bits;
}

static void store_one(const vt_mview *view, const int64_t *index, uint64_t bits) {
  vt_dtype own = view->array->type.dtype;
  int64_t piece;
  char *at = address(view, index, &piece);
  if (view->pack > 1) {
    int32_t width = vt_dtype_get(own)->bits;
    for (int32_t p = 0; p < view->pack; p++)
      vt_mbits_store(own, at + p * view->pack_stride, bits >> (p * width));
  } else if (view->split > 1) {
    int32_t width = vt_dtype_get(view->dtype)->bits;
    uint64_t mask = (((uint64_t)1 << width) - 1) << (piece * width);
    uint64_t old = vt_mbits_load(own, at);
    vt_mbits_store(own, at, (old & ~mask) | (bits << (piece * width) & mask));
  } else {
    vt_mbits_store(own, at, bits);
  }
}

// ---- copies -------------------------------------------------------------------------------------

static bool is_empty(const vt_mview *view) {
  for (int32_t d = 0; d < view->rank; d++)
    if (!view->limits[d] || !view->dims[d]) return true;
  return false;
}

static bool is_clipped(const vt_mview *view) {
  for (int32_t d = 0; d < view->rank; d++)
    if (view->limits[d] != view->dims[d]) return true;
  return false;
}

static void dense_strides(const vt_mview *view, int64_t *strides) {
  int64_t stride = 1;
  for (int32_t d = view->rank; d-- > 0;) {
    strides[d] = stride;
    stride *= view->dims[d];
  }
}

// Strides in elements, as vt_eval_move takes them.
static void element_strides(const vt_mview *view, int64_t *strides) {
  int64_t bytes = (int64_t)vt_dtype_bytes(view->array->type.dtype);
  for (int32_t d = 0; d < view->rank; d++) strides[d] = view->strides[d] / bytes;
}

vt_status vt_mview_read(const vt_mview *view, void *out) {
  size_t bytes = vt_dtype_bytes(view->dtype);
  int64_t dense[VT_MOSAIC_RANK], strides[VT_MOSAIC_RANK], index[VT_MOSAIC_RANK] = {0};
  if (is_clipped(view)) memset(out, 0, bytes * (size_t)vt_mview_elements(view));
  if (is_empty(view)) return VT_OK;
  dense_strides(view, dense);
  if (is_plain(view)) {
    element_strides(view, strides);
    vt_eval_move(bytes, view->rank, view->limits, view->array->data + view->offset, strides, out,
                 dense);
    return VT_OK;
  }
  do {
    int64_t at = 0;
    for (int32_t d = 0; d < view->rank; d++) at += index[d] * dense[d];
    vt_mbits_store(view->dtype, (char *)out + at * (int64_t)bytes, load_one(view, index));
  } while (vt_eval_next(view->rank, view->limits, index));
  return VT_OK;
}

vt_status vt_marray_own(vt_mmachine *m, vt_marray *array) {
  (void)m;
  if (!array->read_only) return VT_OK;
  size_t bytes = (size_t)vt_mtype_bytes(array->type);
  char *copy = NULL;
  VT_TRY(vt_eval_scratch((int64_t)bytes + 1, &copy));
  memcpy(copy, array->data, bytes);
  array->data = copy;
  array->release = free;
  array->read_only = false;
  return VT_OK;
}

vt_status vt_mview_write(vt_mmachine *m, const vt_mview *view, const void *data) {
  size_t bytes = vt_dtype_bytes(view->dtype);
  int64_t dense[VT_MOSAIC_RANK], strides[VT_MOSAIC_RANK], index[VT_MOSAIC_RANK] = {0};
  if (is_empty(view)) return VT_OK;
  VT_TRY(vt_marray_own(m, view->array));
  dense_strides(view, dense);
  if (is_plain(view)) {
    element_strides(view, strides);
    vt_eval_move(bytes, view->rank, view->limits, data, dense, view->array->data + view->offset,
                 strides);
    return VT_OK;
  }
  do {
    int64_t at = 0;
    for (int32_t d = 0; d < view->rank; d++) at += index[d] * dense[d];
    store_one(view, index, vt_mbits_load(view->dtype, (const char *)data + at * (int64_t)bytes));
  } while (vt_eval_next(view->rank, view->limits, index));
  return VT_OK;
}

void vt_mview_each(const vt_mview *view, void (*see)(void *user, int64_t element), void *user) {
  int64_t index[VT_MOSAIC_RANK] = {0}, piece;
  int64_t bytes = (int64_t)vt_dtype_bytes(view->array->type.dtype);
  if (is_empty(view)) return;
  do {
    int64_t at = address(view, index, &piece) - view->array->data;
    for (int32_t p = 0; p < view->pack; p++) see(user, (at + p * view->pack_stride) / bytes);
  } while (vt_eval_next(view->rank, view->limits, index));
}

vt_status vt_mview_copy(vt_mmachine *m, const vt_mview *from, const vt_mview *to) {
  int64_t a[VT_MOSAIC_RANK], b[VT_MOSAIC_RANK], dims[VT_MOSAIC_RANK];
  if (is_empty(from) || is_empty(to)) return VT_OK;
  VT_TRY(vt_marray_own(m, to->array));
  if (is_plain(from) && is_plain(to) && from->array->data != to->array->data) {
    element_strides(from, a);
    element_strides(to, b);
    for (int32_t d = 0; d < from->rank; d++)
      dims[d] = from->limits[d] < to->limits[d] ? from->limits[d] : to->limits[d];
    vt_eval_move(vt_dtype_bytes(from->dtype), from->rank, dims, from->array->data + from->offset, a,
                 to->array->data + to->offset, b);
    return VT_OK;
  }
  // Inside one array the two may overlap.
  char *dense = NULL;
  VT_TRY(
      vt_eval_scratch(vt_mview_elements(from) * (int64_t)vt_dtype_bytes(from->dtype) + 1, &dense));
  vt_mview target = *to;
  for (int32_t d = 0; d < to->rank; d++)
    if (from->limits[d] < target.limits[d]) target.limits[d] = from->limits[d];
  vt_status st = vt_mview_read(from, dense);
  if (!st) st = vt_mview_write(m, &target, dense);
  free(dense);
  return st;
}
