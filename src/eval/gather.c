// SPDX-License-Identifier: Apache-2.0
// gather.c - gather and torch_index_select: windows of the operand at computed positions.
//
// The result is seen as [batch dims][window dims] in result order. Per batch index the start is
// read and clamped, then one strided copy moves the window.
#include <string.h>

#include "eval/indexed.h"
#include "ir/number.h"

vt_status vt_eval_gather_sized(const vt_eval_call *call, const int64_t *sizes) {
  vt_indexed g;
  vt_tensor in = call->in[0], indices = call->in[1], *out = &call->out[0];
  if (!vt_type_elements(out->type)) return VT_OK;
  VT_TRY(vt_indexed_plan(call->op, &vt_gather_keys, in.type, indices.type, out->type, sizes, &g));
  int64_t bytes = (int64_t)vt_dtype_bytes(out->type.dtype), at[VT_MAX_RANK] = {0};
  do {
    int64_t from, to = 0;
    (void)vt_indexed_find(&g, indices, at, true, &from);
    for (int32_t d = 0; d < g.batch_rank; d++) to += at[d] * g.batch_strides[d];
    vt_eval_move((size_t)bytes, g.window_rank, g.window_dims, (const char *)in.data + from * bytes,
                 g.place_strides, (char *)out->data + to * bytes, g.window_strides);
  } while (vt_eval_next(g.batch_rank, g.batch_dims, at));
  return VT_OK;
}

vt_status vt_eval_gather(const vt_eval_call *call) {
  return vt_eval_gather_sized(call, vt_attr_ints(call->op, VT_ATTR_SLICE_SIZES, NULL));
}

// result[b..., i..., o...] = operand[b..., index[b..., i...], o...], the indexed dimension at
// `dim`: result dims are operand dims before dim, index dims after batch_dims, operand dims after
// dim.
vt_status vt_eval_torch_index_select(const vt_eval_call *call) {
  vt_tensor in = call->in[0], index = call->in[1], *out = &call->out[0];
  int64_t dim = vt_attr_i64(call->op, VT_ATTR_DIM),
          batch = vt_attr_i64(call->op, VT_ATTR_BATCH_DIMS);
  int32_t rank = in.type.rank;
  if (dim < 0 || dim >= rank || batch < 0 || batch > dim || batch > index.type.rank)
    return vt_eval_invalid(call->op, "dim or batch_dims");
  if (!vt_type_elements(out->type)) return VT_OK;
  int64_t batches = 1, outer = 1, inner = 1, picks = 1, size = in.type.dims[dim];
  for (int64_t d = 0; d < batch; d++) batches *= in.type.dims[d];
  for (int64_t d = batch; d < dim; d++) outer *= in.type.dims[d];
  for (int64_t d = dim + 1; d < rank; d++) inner *= in.type.dims[d];
  for (int64_t d = batch; d < index.type.rank; d++) picks *= index.type.dims[d];
  if (batches * outer * picks * inner != vt_type_elements(out->type) ||
      batches * picks != vt_type_elements(index.type) || size < 1)
    return vt_eval_invalid(call->op, "shapes");
  size_t row = vt_dtype_bytes(in.type.dtype) * (size_t)inner;
  for (int64_t b = 0; b < batches; b++)
    for (int64_t o = 0; o < outer; o++)
      for (int64_t i = 0; i < picks; i++) {
        int64_t at = vt_int_load(index.type.dtype, index.data, b * picks + i);
        at = at < 0 ? 0 : at >= size ? size - 1 : at;
        memcpy((char *)out->data + (size_t)((b * outer + o) * picks + i) * row,
               (const char *)in.data + (size_t)((b * outer + o) * size + at) * row, row);
      }
  return VT_OK;
}
