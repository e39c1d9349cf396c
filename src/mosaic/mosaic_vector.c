// SPDX-License-Identifier: Apache-2.0
// mosaic_vector.c - ops of kernels on whole vectors: moving elements, reductions, products.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/dot.h"
#include "mosaic/mosaic_run.h"

static void strides_of(vt_mtype type, int64_t *strides) {
  int64_t stride = 1;
  for (int32_t d = type.rank; d-- > 0;) {
    strides[d] = stride;
    stride *= type.dims[d];
  }
}

static size_t bytes_of(vt_mtype type) {
  return vt_dtype_bytes(type.dtype);
}

// ---- moves --------------------------------------------------------------------------------------

vt_status vt_mosaic_run_broadcast(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  int64_t a[VT_MOSAIC_RANK] = {0}, b[VT_MOSAIC_RANK], own[VT_MOSAIC_RANK];
  void *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  if (from.kind == VT_MSCALAR) {
    vt_eval_fill(bytes_of(to), vt_mcount(to), vt_mdata(m, op->operands[0]), out);
    return VT_OK;
  }
  strides_of(from, own);
  strides_of(to, b);
  for (int32_t d = 0; d < from.rank; d++)
    a[to.rank - from.rank + d] = from.dims[d] == 1 ? 0 : own[d];
  vt_eval_move(bytes_of(to), to.rank, to.dims, vt_mdata(m, op->operands[0]), a, out, b);
  return VT_OK;
}

// The same elements in the same order.
vt_status vt_mosaic_run_reshape(vt_mmachine *m, const vt_mop *op) {
  vt_mslot *slot = &m->slots[op->results[0].slot];
  vt_eval_buffer *buffer = m->slots[op->operands[0]->slot].buffer;
  if (slot->buffer) vt_eval_buffer_release(m->state, slot->buffer);
  slot->buffer = vt_eval_buffer_retain(buffer);
  return VT_OK;
}

vt_status vt_mosaic_run_extract(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  const vt_mattr *at = vt_mop_attr(op, VT_MATTR_STATIC_POSITION);
  int64_t strides[VT_MOSAIC_RANK], offset = 0;
  void *out;
  strides_of(from, strides);
  for (uint32_t i = 0; i < at->count; i++) offset += at->ints[i] * strides[i];
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  memcpy(out, (const char *)vt_mdata(m, op->operands[0]) + offset * (int64_t)bytes_of(from),
         bytes_of(to) * (size_t)vt_mcount(to));
  return VT_OK;
}

vt_status vt_mosaic_run_extract_slice(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  const vt_mattr *offsets = vt_mop_attr(op, VT_MATTR_OFFSETS);
  int64_t a[VT_MOSAIC_RANK], b[VT_MOSAIC_RANK], offset = 0;
  void *out;
  strides_of(from, a);
  strides_of(to, b);
  for (uint32_t i = 0; i < offsets->count; i++) offset += offsets->ints[i] * a[i];
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  vt_eval_move(bytes_of(to), to.rank, to.dims,
               (const char *)vt_mdata(m, op->operands[0]) + offset * (int64_t)bytes_of(from), a,
               out, b);
  return VT_OK;
}

vt_status vt_mosaic_run_transpose(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  const vt_mattr *permutation = vt_mop_attr(op, VT_MATTR_PERMUTATION);
  int64_t a[VT_MOSAIC_RANK], own[VT_MOSAIC_RANK], b[VT_MOSAIC_RANK];
  void *out;
  strides_of(from, own);
  strides_of(to, b);
  for (int32_t d = 0; d < to.rank; d++) a[d] = own[permutation->ints[d]];
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  vt_eval_move(bytes_of(to), to.rank, to.dims, vt_mdata(m, op->operands[0]), a, out, b);
  return VT_OK;
}

vt_status vt_mosaic_run_concatenate(vt_mmachine *m, const vt_mop *op) {
  vt_mtype to = op->results[0].type;
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), a[VT_MOSAIC_RANK], b[VT_MOSAIC_RANK], at = 0;
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  strides_of(to, b);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_mtype part = op->operands[i]->type;
    strides_of(part, a);
    vt_eval_move(bytes_of(to), part.rank, part.dims, vt_mdata(m, op->operands[i]), a,
                 out + at * b[dim] * (int64_t)bytes_of(to), b);
    at += part.dims[dim];
  }
  return VT_OK;
}

vt_status vt_mosaic_run_repeat(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), times = vt_mop_i64(op, VT_MATTR_TIMES, 1);
  int64_t a[VT_MOSAIC_RANK], b[VT_MOSAIC_RANK];
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  strides_of(from, a);
  strides_of(to, b);
  for (int64_t i = 0; i < times; i++)
    vt_eval_move(bytes_of(to), from.rank, from.dims, vt_mdata(m, op->operands[0]), a,
                 out + i * from.dims[dim] * b[dim] * (int64_t)bytes_of(to), b);
  return VT_OK;
}

// As numpy.roll: towards higher indices by amount + stride * index along stride_dimension.
vt_status vt_mosaic_run_rotate(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), stride = vt_mop_i64(op, VT_MATTR_STRIDE, 0),
          other = vt_mop_i64(op, VT_MATTR_STRIDE_DIMENSION, -1);
  int64_t amount = vt_mscalar(m, op->operands[1]), size = type.dims[dim];
  int64_t strides[VT_MOSAIC_RANK] = {0}, index[VT_MOSAIC_RANK] = {0}, dims[VT_MOSAIC_RANK];
  size_t bytes = bytes_of(type);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  const char *in = vt_mdata(m, op->operands[0]);
  strides_of(type, strides);
  for (int32_t d = 0; d < type.rank; d++) dims[d] = d <= dim || d == other ? type.dims[d] : 1;
  // What lies behind the dimension moves together, unless the stride runs along it.
  int64_t run = strides[dim];
  bool inner = other > dim;
  if (inner) {
    for (int32_t d = 0; d < type.rank; d++) dims[d] = type.dims[d];
    run = 1;
  }
  do {
    int64_t from = 0, to = 0, i = index[dim];
    for (int32_t d = 0; d < type.rank; d++) from += index[d] * strides[d];
    int64_t by = (amount % size + (other >= 0 ? stride % size * index[other] : 0)) % size;
    int64_t moved = ((i + by) % size + size) % size;
    to = from + (moved - i) * strides[dim];
    memcpy(out + to * (int64_t)bytes, in + from * (int64_t)bytes, bytes * (size_t)run);
  } while (vt_eval_next(type.rank, dims, index));
  return VT_OK;
}

// Counts along one dimension: one slice is made, and repeated.
static void iota_along(vt_mtype type, int64_t dim, char *out) {
  size_t bytes = bytes_of(type);
  int64_t inner = 1, outer = 1;
  for (int32_t d = 0; d < type.rank; d++) {
    if (d < dim) outer *= type.dims[d];
    if (d > dim) inner *= type.dims[d];
  }
  size_t slice = bytes * (size_t)(inner * type.dims[dim]);
  for (int64_t i = 0; i < type.dims[dim]; i++) {
    uint64_t value = 0;
    vt_mbits_store(type.dtype, &value, (uint64_t)i);
    vt_eval_fill(bytes, inner, &value, out + (size_t)(i * inner) * bytes);
  }
  for (int64_t i = 1; i < outer; i++) memcpy(out + (size_t)i * slice, out, slice);
}

vt_status vt_mosaic_run_iota(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_DIMENSIONS);
  int64_t one = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), index[VT_MOSAIC_RANK] = {0}, at = 0;
  uint32_t count = dims ? dims->count : 1;
  const int64_t *list = dims ? dims->ints : &one;
  size_t bytes = bytes_of(type);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  if (count == 1) {
    iota_along(type, list[0], out);
    return VT_OK;
  }
  do {
    int64_t value = 0;
    for (uint32_t i = 0; i < count; i++) value = value * type.dims[list[i]] + index[list[i]];
    vt_mbits_store(type.dtype, out + (size_t)at++ * bytes, (uint64_t)value);
  } while (vt_eval_next(type.rank, type.dims, index));
  return VT_OK;
}

// The named dimensions count as one, indexed modulo its size.
vt_status vt_mosaic_run_gather(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, at_type = op->operands[1]->type, to = op->results[0].type;
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_DIMENSIONS);
  int64_t one = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), index[VT_MOSAIC_RANK] = {0}, n = 0, size = 1;
  uint32_t count = dims ? dims->count : 1;
  const int64_t *list = dims ? dims->ints : &one;
  int64_t strides[VT_MOSAIC_RANK];
  bool named[VT_MOSAIC_RANK] = {false};
  size_t bytes = bytes_of(to);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  const char *in = vt_mdata(m, op->operands[0]);
  const void *places = vt_mdata(m, op->operands[1]);
  strides_of(from, strides);
  for (uint32_t i = 0; i < count; i++) {
    size *= from.dims[list[i]];
    named[list[i]] = true;
  }
  do {
    int64_t place = vt_int_load(at_type.dtype, places, n) % size, offset = 0;
    if (place < 0) place += size;
    for (int32_t d = 0; d < from.rank; d++)
      if (!named[d]) offset += index[d] * strides[d];
    for (uint32_t i = count; i-- > 0;) {
      offset += place % from.dims[list[i]] * strides[list[i]];
      place /= from.dims[list[i]];
    }
    memcpy(out + (size_t)n++ * bytes, in + offset * (int64_t)bytes, bytes);
  } while (vt_eval_next(to.rank, to.dims, index));
  return VT_OK;
}

// Rows of narrow elements are parts of rows of wide ones, the first in the lowest bits.
vt_status vt_mosaic_run_bitcast_rows(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  int32_t a = vt_dtype_get(from.dtype)->bits, b = vt_dtype_get(to.dtype)->bits;
  if (a == b) return vt_mosaic_run_reshape(m, op);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  const char *in = vt_mdata(m, op->operands[0]);
  bool widens = b > a;
  int64_t ratio = widens ? b / a : a / b, lanes = to.dims[to.rank - 1];
  vt_mtype wide = widens ? to : from;
  int64_t words = vt_mcount(wide) / lanes;
  int32_t width = widens ? a : b;
  for (int64_t r = 0; r < words; r++)
    for (int64_t c = 0; c < lanes; c++) {
      uint64_t word =
          widens ? 0 : vt_mbits_load(from.dtype, in + (r * lanes + c) * (int64_t)bytes_of(from));
      for (int64_t p = 0; p < ratio; p++) {
        int64_t narrow = (r * ratio + p) * lanes + c;
        if (widens)
          word |= vt_mbits_load(from.dtype, in + narrow * (int64_t)bytes_of(from)) << (p * width);
        else
          vt_mbits_store(to.dtype, out + narrow * (int64_t)bytes_of(to), word >> (p * width));
      }
      if (widens) vt_mbits_store(to.dtype, out + (r * lanes + c) * (int64_t)bytes_of(to), word);
    }
  return VT_OK;
}

// ---- reductions ---------------------------------------------------------------------------------

// A copy of the vector as `dtype`, its dimensions in the order [kept..., reduced...]; to be freed.
static vt_status arranged(vt_mmachine *m, const vt_mvalue *value, const bool *reduced,
                          vt_dtype dtype, void *out_copy) {
  vt_mtype type = value->type;
  int64_t own[VT_MOSAIC_RANK], from[VT_MOSAIC_RANK], to[VT_MOSAIC_RANK], dims[VT_MOSAIC_RANK];
  int64_t n = vt_mcount(type), stride = 1;
  int32_t k = 0;
  char *moved = NULL, *wide = NULL;
  strides_of(type, own);
  for (int pass = 0; pass < 2; pass++)
    for (int32_t d = 0; d < type.rank; d++)
      if (reduced[d] == (pass == 1)) {
        dims[k] = type.dims[d];
        from[k++] = own[d];
      }
  for (int32_t d = type.rank; d-- > 0;) {
    to[d] = stride;
    stride *= dims[d];
  }
  VT_TRY(vt_eval_scratch(n * (int64_t)bytes_of(type) + 1, &moved));
  vt_eval_move(bytes_of(type), type.rank, dims, vt_mdata(m, value), from, moved, to);
  if (type.dtype != dtype) {
    vt_status st = vt_eval_scratch(n * (int64_t)vt_dtype_bytes(dtype) + 1, &wide);
    if (!st) st = vt_eval_convert_array(type.dtype, dtype, n, moved, wide);
    free(moved);
    if (st) {
      free(wide);
      return st;
    }
    moved = wide;
  }
  memcpy(out_copy, &moved, sizeof moved);
  return VT_OK;
}

enum { LANES = 8 }; // partial results that do not depend on each other

// The order of the sum depends on the length alone.
static float sum_floats(int64_t n, const float *x, float start) {
  double lanes[LANES] = {(double)start};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) lanes[l] += (double)x[i + l];
  for (; i < n; i++) lanes[i % LANES] += (double)x[i];
  for (int l = LANES / 2; l > 0; l /= 2)
    for (int k = 0; k < l; k++) lanes[k] += lanes[k + l];
  return (float)lanes[0];
}

// NaN where any is.
static float extreme_float(bool largest, int64_t n, const float *x, float start) {
  float lanes[LANES], sign = largest ? 1.0f : -1.0f;
  bool nan[LANES] = {isnan(start)};
  for (int l = 0; l < LANES; l++) lanes[l] = sign * start;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) {
      float value = sign * x[i + l];
      lanes[l] = value > lanes[l] ? value : lanes[l];
      nan[l] |= value != value;
    }
  for (; i < n; i++) {
    float value = sign * x[i];
    lanes[0] = value > lanes[0] ? value : lanes[0];
    nan[0] |= value != value;
  }
  for (int l = 1; l < LANES; l++) {
    lanes[0] = lanes[l] > lanes[0] ? lanes[l] : lanes[0];
    nan[0] |= nan[l];
  }
  return nan[0] ? NAN : sign * lanes[0];
}

static float reduce_floats(vt_mword kind, int64_t n, const float *x, float start) {
  return kind == VT_MWORD_ADD ? sum_floats(n, x, start)
                              : extreme_float(kind == VT_MWORD_MAXIMUMF, n, x, start);
}

static int32_t reduce_ints(vt_mword kind, int64_t n, const int32_t *x, int32_t start) {
  int32_t best = start;
  uint32_t sum = (uint32_t)start;
  for (int64_t i = 0; i < n; i++) {
    switch (kind) {
    case VT_MWORD_MAXSI:
      best = x[i] > best ? x[i] : best;
      break;
    case VT_MWORD_MINSI:
      best = x[i] < best ? x[i] : best;
      break;
    case VT_MWORD_MAXUI:
      best = (uint32_t)x[i] > (uint32_t)best ? x[i] : best;
      break;
    case VT_MWORD_MINUI:
      best = (uint32_t)x[i] < (uint32_t)best ? x[i] : best;
      break;
    default:
      sum += (uint32_t)x[i];
    }
  }
  return kind == VT_MWORD_ADD ? (int32_t)sum : best;
}

vt_status vt_mosaic_run_reduction(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_REDUCTION_DIMS);
  vt_mword kind = (vt_mword)vt_mop_i64(op, VT_MATTR_KIND, 0);
  bool reduced[VT_MOSAIC_RANK] = {false}, is_float = vt_dtype_is_float(from.dtype);
  vt_dtype work = is_float ? VT_F32 : VT_S32;
  int64_t kept = vt_mcount(to), n = vt_mcount(from) / kept;
  char *x = NULL, *results = NULL;
  void *out;
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < dims->count; i++) reduced[dims->ints[i]] = true;
  VT_TRY_OUT(arranged(m, op->operands[0], reduced, work, &x));
  VT_TRY_OUT(vt_eval_scratch(kept * 4, &results));
  VT_TRY_OUT(vt_eval_convert_array(to.dtype, work, kept, vt_mdata(m, op->operands[1]), results));
  for (int64_t i = 0; i < kept; i++) {
    if (is_float) {
      float *result = (float *)(void *)results + i;
      *result = reduce_floats(kind, n, (const float *)(void *)x + i * n, *result);
    } else {
      int32_t *result = (int32_t *)(void *)results + i;
      *result = reduce_ints(kind, n, (const int32_t *)(void *)x + i * n, *result);
    }
  }
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  st = vt_eval_convert_array(work, to.dtype, kept, results, out);
out:
  free(x);
  free(results);
  return st;
}

vt_status vt_mosaic_run_reduce_index(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  bool reduced[VT_MOSAIC_RANK] = {false};
  bool most = vt_mop_i64(op, VT_MATTR_KIND, 0) == VT_MWORD_ARG_MAX;
  int64_t kept = vt_mcount(to), n = vt_mcount(from) / kept;
  vt_dtype work = vt_dtype_is_float(from.dtype) ? VT_F32 : VT_S32;
  char *x = NULL;
  char *out;
  reduced[vt_mop_i64(op, VT_MATTR_AXIS, 0)] = true;
  VT_TRY(arranged(m, op->operands[0], reduced, work, &x));
  vt_status st = vt_mresult_new(m, &op->results[0], &out);
  for (int64_t i = 0; i < kept && !st; i++) {
    int64_t best = 0;
    double best_value = vt_number_load(work, x, i * n);
    for (int64_t k = 1; k < n && !isnan(best_value); k++) {
      double value = vt_number_load(work, x, i * n + k);
      if (isnan(value) || (most ? value > best_value : value < best_value)) {
        best = k;
        best_value = value;
      }
    }
    vt_mbits_store(to.dtype, out + i * (int64_t)vt_dtype_bytes(to.dtype), (uint64_t)best);
  }
  free(x);
  return st;
}

// ---- products -----------------------------------------------------------------------------------

typedef struct product {
  int64_t batch, m, n, k;
  vt_dtype type;
  bool rounds; // operands to bf16 first
} product;

// An operand as [batch][rows][columns] of the product's type, its dimensions in the order of three
// lists; to be freed.
static vt_status product_operand(vt_mmachine *m, const product *p, const vt_mvalue *value,
                                 const int64_t *const *lists, const uint32_t *counts,
                                 void *out_data) {
  vt_mtype type = value->type;
  int64_t own[VT_MOSAIC_RANK], from[VT_MOSAIC_RANK], to[VT_MOSAIC_RANK], dims[VT_MOSAIC_RANK];
  int64_t n = vt_mcount(type), stride = 1;
  int32_t rank = 0;
  char *moved = NULL, *wide = NULL;
  vt_status st = VT_OK;
  strides_of(type, own);
  for (int l = 0; l < 3; l++)
    for (uint32_t i = 0; i < counts[l]; i++, rank++) {
      dims[rank] = type.dims[lists[l][i]];
      from[rank] = own[lists[l][i]];
    }
  for (int32_t d = rank; d-- > 0;) {
    to[d] = stride;
    stride *= dims[d];
  }
  VT_TRY_OUT(vt_eval_scratch(n * (int64_t)bytes_of(type) + 1, &moved));
  vt_eval_move(bytes_of(type), rank, dims, vt_mdata(m, value), from, moved, to);
  VT_TRY_OUT(vt_eval_scratch(n * 4 + 64, &wide));
  VT_TRY_OUT(vt_eval_convert_array(type.dtype, p->type, n, moved, wide));
  if (p->rounds && type.dtype == VT_F32) vt_vec()->round_bf16(n, wide, NULL, NULL, wide, 0);
  memcpy(out_data, &wide, sizeof wide);
  wide = NULL;
out:
  free(moved);
  free(wide);
  return st;
}

static int64_t extent(vt_mtype type, const int64_t *list, uint32_t count) {
  int64_t n = 1;
  for (uint32_t i = 0; i < count; i++) n *= type.dims[list[i]];
  return n;
}

// result = acc + product, in f32 (or i32), rounded once to the result's type.
static vt_status add_product(vt_mmachine *m, const vt_mop *op, const product *p, char *sums) {
  vt_mtype to = op->results[0].type;
  int64_t n = vt_mcount(to);
  char *acc = NULL;
  void *out;
  VT_TRY(vt_eval_scratch(n * 4 + 64, &acc));
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_eval_convert_array(to.dtype, p->type, n, vt_mdata(m, op->operands[2]), acc));
  if (p->type == VT_F32)
    for (int64_t i = 0; i < n; i++) ((float *)(void *)sums)[i] += ((float *)(void *)acc)[i];
  else
    for (int64_t i = 0; i < n; i++) ((uint32_t *)(void *)sums)[i] += ((uint32_t *)(void *)acc)[i];
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  st = vt_eval_convert_array(p->type, to.dtype, n, sums, out);
out:
  free(acc);
  return st;
}

vt_status vt_mosaic_run_matmul(vt_mmachine *m, const vt_mop *op) {
  vt_mtype a = op->operands[0]->type, b = op->operands[1]->type;
  const vt_mattr *numbers = vt_mop_attr(op, VT_MATTR_DIMENSION_NUMBERS);
  static const int64_t both[2] = {0, 1};
  const int64_t *left[3] = {NULL}, *right[3] = {NULL};
  uint32_t left_counts[3] = {0, 1, 1}, right_counts[3] = {0, 1, 1};
  bool ta = vt_mop_i64(op, VT_MATTR_TRANSPOSE_LHS, 0),
       tb = vt_mop_i64(op, VT_MATTR_TRANSPOSE_RHS, 0);
  left[1] = &both[ta];
  left[2] = &both[!ta];
  right[1] = &both[tb];
  right[2] = &both[!tb];
  if (numbers) { // [batch, free, contracted] and [batch, contracted, free]
    left[0] = vt_mattr_list(numbers, 5, &left_counts[0]);
    left[1] = vt_mattr_list(numbers, 2, &left_counts[1]);
    left[2] = vt_mattr_list(numbers, 0, &left_counts[2]);
    right[0] = vt_mattr_list(numbers, 6, &right_counts[0]);
    right[1] = vt_mattr_list(numbers, 1, &right_counts[1]);
    right[2] = vt_mattr_list(numbers, 3, &right_counts[2]);
  }
  product p = {.batch = extent(a, left[0], left_counts[0]),
               .m = extent(a, left[1], left_counts[1]),
               .k = extent(a, left[2], left_counts[2]),
               .n = extent(b, right[2], right_counts[2]),
               .type = vt_dtype_is_float(a.dtype) ? VT_F32 : VT_S32};
  // Products with a vector are not the matrix unit's work.
  p.rounds = !m->exact_dots && p.m > 1 && p.n > 1 && vt_mop_rounds(op);
  char *x = NULL, *y = NULL, *sums = NULL;
  vt_status st = VT_OK;
  VT_TRY_OUT(product_operand(m, &p, op->operands[0], left, left_counts, &x));
  VT_TRY_OUT(product_operand(m, &p, op->operands[1], right, right_counts, &y));
  VT_TRY_OUT(vt_eval_scratch(p.batch * p.m * p.n * 4 + 64, &sums));
  VT_TRY_OUT(vt_dot_matmul(p.type, p.batch, p.m, p.n, p.k, x, y, sums));
  st = add_product(m, op, &p, sums);
out:
  free(x);
  free(y);
  free(sums);
  return st;
}
