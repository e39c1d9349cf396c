// SPDX-License-Identifier: Apache-2.0
// shape.c - ops that move elements without computing: constant, iota, broadcasts, transpose,
// slices, pad, concatenate. Everything is one or more strided copies (move.c).
#include <string.h>

#include "base/check.h"
#include "eval/kernel.h"
#include "ir/number.h"

static size_t element_bytes(vt_tensor t) {
  return vt_dtype_bytes(t.type.dtype);
}

vt_status vt_eval_constant(const vt_eval_call *call) {
  const vt_literal *value = vt_attr_literal(call->op, VT_ATTR_VALUE);
  vt_tensor *out = &call->out[0];
  if (!value) return vt_eval_invalid(call->op, "value");
  vt_assert(value->splat || vt_type_bytes(value->type) == vt_type_bytes(out->type));
  int64_t n = vt_type_elements(out->type);
  if (!n) return VT_OK;
  if (value->splat)
    vt_eval_fill(element_bytes(*out), n, value->data, out->data);
  else
    memcpy(out->data, value->data, (size_t)vt_type_bytes(out->type));
  return VT_OK;
}

// Ops whose results are their operands, one by one.
vt_status vt_eval_identity(const vt_eval_call *call) {
  vt_assert(call->op->result_count <= call->op->operand_count);
  for (uint32_t i = 0; i < call->op->result_count; i++) {
    size_t bytes = (size_t)vt_type_bytes(call->out[i].type);
    if (bytes && call->out[i].data != call->in[i].data)
      memmove(call->out[i].data, call->in[i].data, bytes);
  }
  return VT_OK;
}

// Tokens carry no data.
vt_status vt_eval_nothing(const vt_eval_call *call) {
  (void)call;
  return VT_OK;
}

vt_status vt_eval_iota(const vt_eval_call *call) {
  vt_tensor *out = &call->out[0];
  int64_t d = vt_attr_i64(call->op, VT_ATTR_IOTA_DIMENSION), rank = out->type.rank;
  if (d < 0 || d >= rank) return vt_eval_invalid(call->op, "iota_dimension");
  int64_t size = out->type.dims[d], inner = 1, repeats = 1;
  if (!vt_type_elements(out->type)) return VT_OK;
  for (int64_t i = d + 1; i < rank; i++) inner *= out->type.dims[i];
  for (int64_t i = 0; i < d; i++) repeats *= out->type.dims[i];
  size_t bytes = element_bytes(*out);
  char *to = out->data;
  enum { BLOCK = 256 };
  for (int64_t at = 0; at < size; at += BLOCK) {
    int64_t numbers[BLOCK], n = size - at < BLOCK ? size - at : BLOCK;
    char elements[BLOCK * 16], *line = inner == 1 ? to + (size_t)at * bytes : elements;
    for (int64_t i = 0; i < n; i++) numbers[i] = at + i;
    VT_TRY(vt_eval_convert_array(VT_S64, out->type.dtype, n, numbers, line));
    for (int64_t i = 0; inner > 1 && i < n; i++)
      vt_eval_fill(bytes, inner, elements + (size_t)i * bytes,
                   to + (size_t)((at + i) * inner) * bytes);
  }
  for (int64_t r = 1; r < repeats; r++)
    memcpy(to + (size_t)(r * size * inner) * bytes, to, (size_t)(size * inner) * bytes);
  return VT_OK;
}

vt_status vt_eval_spread(const vt_op *op, uint32_t count, const int64_t *places, vt_tensor in,
                         vt_tensor *out) {
  int64_t from_strides[VT_MAX_RANK], from[VT_MAX_RANK] = {0}, to[VT_MAX_RANK];
  if ((int64_t)count != in.type.rank) return vt_eval_invalid(op, "broadcast_dimensions");
  vt_type_strides(in.type, from_strides);
  vt_type_strides(out->type, to);
  for (uint32_t i = 0; i < count; i++) {
    if (places[i] < 0 || places[i] >= out->type.rank)
      return vt_eval_invalid(op, "broadcast_dimensions");
    if (in.type.dims[i] == 1) continue;
    if (in.type.dims[i] != out->type.dims[places[i]]) return vt_eval_invalid(op, "shapes");
    from[places[i]] = from_strides[i];
  }
  vt_eval_move(element_bytes(*out), out->type.rank, out->type.dims, in.data, from, out->data, to);
  return VT_OK;
}

vt_status vt_eval_broadcast_in_dim(const vt_eval_call *call) {
  uint32_t count;
  const int64_t *places = vt_attr_ints(call->op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  return vt_eval_spread(call->op, count, places, call->in[0], &call->out[0]);
}

vt_status vt_eval_broadcast(const vt_eval_call *call) {
  int64_t places[VT_MAX_RANK];
  int32_t rank = call->in[0].type.rank;
  for (int32_t i = 0; i < rank; i++) places[i] = call->out[0].type.rank - rank + i;
  return vt_eval_spread(call->op, (uint32_t)rank, places, call->in[0], &call->out[0]);
}

vt_status vt_eval_transpose(const vt_eval_call *call) {
  vt_tensor in = call->in[0], *out = &call->out[0];
  uint32_t count;
  const int64_t *permutation = vt_attr_ints(call->op, VT_ATTR_PERMUTATION, &count);
  int64_t strides[VT_MAX_RANK], from[VT_MAX_RANK], to[VT_MAX_RANK];
  if ((int64_t)count != in.type.rank || in.type.rank != out->type.rank)
    return vt_eval_invalid(call->op, "permutation");
  vt_type_strides(in.type, strides);
  vt_type_strides(out->type, to);
  for (uint32_t d = 0; d < count; d++) {
    int64_t p = permutation[d];
    if (p < 0 || p >= in.type.rank || in.type.dims[p] != out->type.dims[d])
      return vt_eval_invalid(call->op, "permutation");
    from[d] = strides[p];
  }
  vt_eval_move(element_bytes(in), out->type.rank, out->type.dims, in.data, from, out->data, to);
  return VT_OK;
}

vt_status vt_eval_reverse(const vt_eval_call *call) {
  vt_tensor in = call->in[0], *out = &call->out[0];
  uint32_t count;
  const int64_t *dims = vt_attr_ints(call->op, VT_ATTR_DIMENSIONS, &count);
  int64_t from[VT_MAX_RANK], to[VT_MAX_RANK], start = 0;
  if (!vt_type_elements(out->type)) return VT_OK;
  vt_type_strides(in.type, from);
  vt_type_strides(out->type, to);
  for (uint32_t i = 0; i < count; i++) {
    int64_t d = dims[i];
    if (d < 0 || d >= in.type.rank) return vt_eval_invalid(call->op, "dimensions");
    start += (in.type.dims[d] - 1) * from[d];
    from[d] = -from[d];
  }
  vt_eval_move(element_bytes(in), out->type.rank, out->type.dims,
               (const char *)in.data + start * (int64_t)element_bytes(in), from, out->data, to);
  return VT_OK;
}

// out = in[start :: stride], checked against the operand's bounds.
vt_status vt_eval_cut(const vt_op *op, const int64_t *start, const int64_t *stride, vt_tensor in,
                      vt_tensor *out) {
  vt_assert(in.type.rank == out->type.rank);
  int64_t from[VT_MAX_RANK], to[VT_MAX_RANK], offset = 0;
  if (!vt_type_elements(out->type)) return VT_OK;
  vt_type_strides(in.type, from);
  vt_type_strides(out->type, to);
  for (int32_t d = 0; d < in.type.rank; d++) {
    int64_t step = stride ? stride[d] : 1, last = start[d] + (out->type.dims[d] - 1) * step;
    if (start[d] < 0 || step <= 0 || last >= in.type.dims[d])
      return vt_eval_invalid(op, "slice bounds");
    offset += start[d] * from[d];
    from[d] *= step;
  }
  vt_eval_move(element_bytes(in), in.type.rank, out->type.dims,
               (const char *)in.data + offset * (int64_t)element_bytes(in), from, out->data, to);
  return VT_OK;
}

vt_status vt_eval_slice(const vt_eval_call *call) {
  return vt_eval_cut(call->op, vt_attr_ints(call->op, VT_ATTR_START_INDICES, NULL),
                     vt_attr_ints(call->op, VT_ATTR_STRIDES, NULL), call->in[0], &call->out[0]);
}

// Interior padding first, then the edges; negative edges cut.
vt_status vt_eval_pad_with(const vt_op *op, const int64_t *low, const int64_t *interior,
                           vt_tensor in, vt_tensor value, vt_tensor *out) {
  vt_assert(in.type.rank == out->type.rank);
  (void)op;
  int64_t from[VT_MAX_RANK], to[VT_MAX_RANK], dims[VT_MAX_RANK], from_at = 0, to_at = 0;
  size_t bytes = element_bytes(in);
  vt_eval_fill(bytes, vt_type_elements(out->type), value.data, out->data);
  vt_type_strides(in.type, from);
  vt_type_strides(out->type, to);
  for (int32_t d = 0; d < in.type.rank; d++) {
    int64_t step = interior[d] + 1, size = out->type.dims[d];
    // Elements first..last of the operand are inside the result.
    int64_t first = low[d] >= 0 ? 0 : (-low[d] + step - 1) / step;
    int64_t last = size - 1 - low[d] < 0 ? -1 : (size - 1 - low[d]) / step;
    if (last > in.type.dims[d] - 1) last = in.type.dims[d] - 1;
    dims[d] = last - first + 1;
    if (dims[d] <= 0) return VT_OK;
    from_at += first * from[d];
    to_at += (low[d] + first * step) * to[d];
    to[d] *= step;
  }
  vt_eval_move(bytes, in.type.rank, dims, (const char *)in.data + from_at * (int64_t)bytes, from,
               (char *)out->data + to_at * (int64_t)bytes, to);
  return VT_OK;
}

vt_status vt_eval_pad(const vt_eval_call *call) {
  return vt_eval_pad_with(call->op, vt_attr_ints(call->op, VT_ATTR_EDGE_PADDING_LOW, NULL),
                          vt_attr_ints(call->op, VT_ATTR_INTERIOR_PADDING, NULL), call->in[0],
                          call->in[1], &call->out[0]);
}

vt_status vt_eval_concatenate(const vt_eval_call *call) {
  vt_tensor *out = &call->out[0];
  int64_t d = vt_attr_i64(call->op, VT_ATTR_DIMENSION), outer = 1, inner = 1;
  if (d < 0 || d >= out->type.rank) return vt_eval_invalid(call->op, "dimension");
  for (int64_t i = 0; i < d; i++) outer *= out->type.dims[i];
  for (int64_t i = d + 1; i < out->type.rank; i++) inner *= out->type.dims[i];
  size_t row = (size_t)(out->type.dims[d] * inner) * element_bytes(*out), at = 0;
  for (uint32_t i = 0; i < call->op->operand_count; i++) {
    size_t part = (size_t)(call->in[i].type.dims[d] * inner) * element_bytes(*out);
    if (at + part > row) return vt_eval_invalid(call->op, "shapes");
    if (part)
      for (int64_t o = 0; o < outer; o++)
        memcpy((char *)out->data + (size_t)o * row + at,
               (const char *)call->in[i].data + (size_t)o * part, part);
    at += part;
  }
  return VT_OK;
}

// Start operands, clamped so that the window is inside. Unsigned starts compare as unsigned.
static void clamped_starts(const vt_tensor *starts, vt_type operand, const int64_t *sizes,
                           int64_t *out) {
  vt_assert_each(d, operand.rank, sizes[d] >= 0);
  for (int32_t d = 0; d < operand.rank; d++) {
    vt_dtype dtype = starts[d].type.dtype;
    int64_t at = vt_int_load(dtype, starts[d].data, 0), most = operand.dims[d] - sizes[d];
    if (dtype == VT_U64 && at < 0) at = most;
    out[d] = at < 0 || most < 0 ? 0 : at > most ? most : at;
  }
}

vt_status vt_eval_dynamic_slice(const vt_eval_call *call) {
  int64_t start[VT_MAX_RANK];
  clamped_starts(call->in + 1, call->in[0].type, call->out[0].type.dims, start);
  return vt_eval_cut(call->op, start, NULL, call->in[0], &call->out[0]);
}

vt_status vt_eval_dynamic_update_slice(const vt_eval_call *call) {
  vt_tensor in = call->in[0], update = call->in[1], *out = &call->out[0];
  int64_t start[VT_MAX_RANK], from[VT_MAX_RANK], to[VT_MAX_RANK], offset = 0;
  size_t bytes = element_bytes(in);
  if (!vt_type_elements(out->type)) return VT_OK;
  if (out->data != in.data) memcpy(out->data, in.data, (size_t)vt_type_bytes(in.type));
  clamped_starts(call->in + 2, in.type, update.type.dims, start);
  vt_type_strides(update.type, from);
  vt_type_strides(out->type, to);
  for (int32_t d = 0; d < in.type.rank; d++) {
    if (start[d] + update.type.dims[d] > in.type.dims[d])
      return vt_eval_invalid(call->op, "shapes");
    offset += start[d] * to[d];
  }
  vt_eval_move(bytes, in.type.rank, update.type.dims, update.data, from,
               (char *)out->data + offset * (int64_t)bytes, to);
  return VT_OK;
}
