// SPDX-License-Identifier: Apache-2.0
// dot.c - dot_general, dot, einsum: operands are laid out as [batch][rows][depth] and
// [batch][depth][columns] in the computation type, multiplied, and converted once to the result
// type.
//
// f32 at DEFAULT precision means the same as on the chip: operands of matrix products are rounded
// to bf16, sums are f32 (ir/precision.h). A dot algorithm, when given, decides instead: several
// bf16 passes, and tf32, are done in f32, which is more exact than requested.
#include "base/check.h"
#include "eval/dot.h"

#include <stdlib.h>
#include <string.h>

#include "ir/number.h"
#include "ir/precision.h"

static vt_dtype wide_of(vt_dtype d) {
  switch ((int)d) {
  case VT_F64:
  case VT_C64:
  case VT_C128:
    return d;
  case VT_S64:
  case VT_U64:
    return VT_S64;
  default:
    return vt_dtype_is_float(d) ? VT_F32 : VT_S32;
  }
}

static int rank_of(vt_dtype wide) {
  return wide == VT_S32   ? 0
         : wide == VT_S64 ? 1
         : wide == VT_F32 ? 2
         : wide == VT_F64 ? 3
         : wide == VT_C64 ? 4
                          : 5;
}
static vt_dtype wider(vt_dtype a, vt_dtype b) {
  if ((a == VT_F64 && b == VT_C64) || (a == VT_C64 && b == VT_F64)) return VT_C128;
  return rank_of(a) > rank_of(b) ? a : b;
}

vt_dot_mode vt_dot_mode_of(const vt_op *op, const vt_eval_env *env) {
  vt_dtype a = op->operands[0]->type.dtype, b = op->operands[1]->type.dtype;
  vt_dot_mode mode = {.type =
                          wider(wider(wide_of(a), wide_of(b)), wide_of(op->results[0].type.dtype))};
  if (vt_op_attr(op, VT_ATTR_LHS_PRECISION_TYPE)) {
    vt_dtype sum = (vt_dtype)vt_attr_i64_or(op, VT_ATTR_ACCUMULATION_TYPE, VT_DTYPE_INVALID);
    if (vt_dtype_is_float(sum) && vt_dtype_is_float(mode.type))
      mode.type = wider(mode.type, wide_of(sum));
    for (uint32_t side = 0; side < 2; side++) {
      vt_dtype to = vt_op_algorithm_rounds_to(op, side);
      if (to != VT_DTYPE_INVALID) mode.round[side] = to;
    }
  } else if (!env->exact_dots && vt_op_rounds_operands(op)) {
    if (a == VT_F32) mode.round[0] = VT_BF16;
    if (b == VT_F32) mode.round[1] = VT_BF16;
  }
  return mode;
}

static vt_status round_to(vt_dtype narrow, vt_dtype type, int64_t n, void *data) {
  if (narrow == VT_BF16 && type == VT_F32) {
    vt_vec()->round_bf16(n, data, NULL, NULL, data, 0);
    return VT_OK;
  }
  enum { BLOCK = 1024 };
  char block[BLOCK * 2];
  size_t bytes = vt_dtype_bytes(type);
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t now = n - at < BLOCK ? n - at : BLOCK;
    char *x = (char *)data + (size_t)at * bytes;
    VT_TRY(vt_eval_convert_array(type, narrow, now, x, block));
    VT_TRY(vt_eval_convert_array(narrow, type, now, block, x));
  }
  return VT_OK;
}

static bool is_dense(int32_t rank, const int64_t *dims, const int64_t *strides) {
  int64_t expected = 1;
  for (int32_t d = rank; d-- > 0;) {
    if (dims[d] != 1 && strides[d] != expected) return false;
    expected *= dims[d];
  }
  return true;
}

vt_status vt_dot_operand(const vt_dot_mode *mode, int32_t which, vt_tensor in, int64_t offset,
                         int32_t rank, const int64_t *dims, const int64_t *strides, void **out,
                         bool *out_owned) {
  vt_assert(which == 0 || which == 1);
  vt_assert(rank >= 0 && rank <= VT_MAX_RANK);
  vt_dtype from = in.type.dtype;
  size_t from_bytes = vt_dtype_bytes(from), to_bytes = vt_dtype_bytes(mode->type);
  int64_t n = 1, dense[VT_MAX_RANK];
  vt_status st = VT_OK;
  for (int32_t d = 0; d < rank; d++) n *= dims[d];
  char *data = in.data ? (char *)in.data + offset * (int64_t)from_bytes : NULL, *moved = NULL,
       *wide = NULL;
  bool owned = false;
  *out_owned = false;
  *out = data;
  if (n == 0) return VT_OK;
  if (!is_dense(rank, dims, strides)) {
    VT_TRY_OUT(vt_eval_scratch(n * (int64_t)from_bytes, &moved));
    vt_type_strides((vt_type){from, rank, dims}, dense);
    vt_eval_move(from_bytes, rank, dims, data, strides, moved, dense);
    data = moved;
    owned = true;
  }
  bool same = mode->type == from || (mode->type == VT_S32 && from == VT_U32) ||
              (mode->type == VT_S64 && from == VT_U64);
  bool rounds = mode->round[which] != VT_DTYPE_INVALID;
  if (!same || (rounds && !owned)) {
    VT_TRY_OUT(vt_eval_scratch(n * (int64_t)to_bytes, &wide));
    VT_TRY_OUT(vt_eval_convert_array(from, mode->type, n, data, wide));
    free(moved);
    moved = NULL;
    data = wide;
    owned = true;
  }
  if (rounds) VT_TRY_OUT(round_to(mode->round[which], mode->type, n, data));
  *out = data;
  *out_owned = owned;
  return VT_OK;
out:
  free(moved);
  free(wide);
  return st;
}

// One operand's dimensions in three groups.
typedef struct grouped {
  int32_t rank;
  int64_t dims[VT_MAX_RANK], strides[VT_MAX_RANK];
  int64_t batch, free_size, depth;
} grouped;

static void add_dim(grouped *g, vt_type type, const int64_t *strides, int64_t d, int64_t *size) {
  g->dims[g->rank] = type.dims[d];
  g->strides[g->rank++] = strides[d];
  *size *= type.dims[d];
}

// Order: batch, then free and contracted dimensions, the free ones first when `free_first`.
static grouped group(vt_type type, uint32_t batch_count, const int64_t *batch, uint32_t deep_count,
                     const int64_t *deep, bool free_first) {
  grouped g = {.batch = 1, .free_size = 1, .depth = 1};
  int64_t strides[VT_MAX_RANK];
  bool taken[VT_MAX_RANK] = {false};
  vt_type_strides(type, strides);
  for (uint32_t i = 0; i < batch_count; i++)
    add_dim(&g, type, strides, batch[i], &g.batch), taken[batch[i]] = true;
  for (uint32_t i = 0; i < deep_count; i++) taken[deep[i]] = true;
  for (int pass = 0; pass < 2; pass++) {
    if ((pass == 0) == free_first) {
      for (int32_t d = 0; d < type.rank; d++)
        if (!taken[d]) add_dim(&g, type, strides, d, &g.free_size);
    } else {
      for (uint32_t i = 0; i < deep_count; i++) add_dim(&g, type, strides, deep[i], &g.depth);
    }
  }
  return g;
}

typedef struct dot_dims {
  uint32_t batch_count, deep_count;
  const int64_t *batch[2], *deep[2];
} dot_dims;

static vt_status check_dims(const vt_op *op, const dot_dims *d, const vt_tensor *in) {
  for (uint32_t i = 0; i < d->batch_count + d->deep_count; i++) {
    int64_t size[2];
    for (int side = 0; side < 2; side++) {
      int64_t dim = i < d->batch_count ? d->batch[side][i] : d->deep[side][i - d->batch_count];
      if (dim < 0 || dim >= in[side].type.rank) return vt_eval_invalid(op, "dimension numbers");
      size[side] = in[side].type.dims[dim];
    }
    if (size[0] != size[1]) return vt_eval_invalid(op, "shapes");
  }
  return VT_OK;
}

static vt_status run_dot(const vt_eval_call *call, const dot_dims *d) {
  vt_tensor *out = &call->out[0];
  vt_dot_mode mode = vt_dot_mode_of(call->op, call->env);
  VT_TRY(check_dims(call->op, d, call->in));
  grouped x = group(call->in[0].type, d->batch_count, d->batch[0], d->deep_count, d->deep[0], true);
  grouped y =
      group(call->in[1].type, d->batch_count, d->batch[1], d->deep_count, d->deep[1], false);
  int64_t total = x.batch * x.free_size * y.free_size;
  if (total != vt_type_elements(out->type)) return vt_eval_invalid(call->op, "shapes");
  if (!total) return VT_OK;
  // A single column is a single row of the transposed product, whose rows run along the vectors.
  bool swap = y.free_size == 1 && x.free_size > 1;
  if (swap) {
    x = group(call->in[1].type, d->batch_count, d->batch[1], d->deep_count, d->deep[1], true);
    y = group(call->in[0].type, d->batch_count, d->batch[0], d->deep_count, d->deep[0], false);
  }
  void *a = NULL, *b = NULL, *c = out->data;
  bool own_a = false, own_b = false, own_c = false;
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_dot_operand(&mode, swap, call->in[swap], 0, x.rank, x.dims, x.strides, &a, &own_a));
  VT_TRY_OUT(
      vt_dot_operand(&mode, !swap, call->in[!swap], 0, y.rank, y.dims, y.strides, &b, &own_b));
  vt_assert(x.batch == y.batch && x.depth == y.depth);
  if (out->type.dtype != mode.type) {
    VT_TRY_OUT(vt_eval_scratch(total * (int64_t)vt_dtype_bytes(mode.type), &c));
    own_c = true;
  }
  VT_TRY_OUT(vt_dot_matmul(mode.type, x.batch, x.free_size, y.free_size, x.depth, a, b, c));
  if (own_c) VT_TRY_OUT(vt_eval_convert_array(mode.type, out->type.dtype, total, c, out->data));
out:
  if (own_a) free(a);
  if (own_b) free(b);
  if (own_c) free(c);
  return st;
}

vt_status vt_eval_dot_general(const vt_eval_call *call) {
  const vt_op *op = call->op;
  dot_dims d = {0};
  uint32_t batch_count, deep_count;
  d.batch[0] = vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &d.batch_count);
  d.batch[1] = vt_attr_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, &batch_count);
  d.deep[0] = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &d.deep_count);
  d.deep[1] = vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, &deep_count);
  if (batch_count != d.batch_count || deep_count != d.deep_count)
    return vt_eval_invalid(op, "dimension numbers");
  return run_dot(call, &d);
}

// The last dimension of the left side with the first of the right.
vt_status vt_eval_dot(const vt_eval_call *call) {
  int64_t last = call->in[0].type.rank - 1, first = 0;
  if (last < 0 || call->in[1].type.rank < 1) return vt_eval_invalid(call->op, "shapes");
  dot_dims d = {.deep_count = 1, .deep = {&last, &first}};
  return run_dot(call, &d);
}

// "ij,jk->ik": letters in both operands and the result are batch, letters in both operands only are
// contracted. Summing letters of one operand alone is left to programs that spell it out.
vt_status vt_eval_einsum(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_string text = vt_attr_string(op, VT_ATTR_EINSUM_CONFIG);
  const char *comma = memchr(text.data, ',', text.size), *arrow = strstr(text.data, "->");
  if (!comma || !arrow || comma > arrow) return vt_eval_invalid(op, "einsum_config");
  const char *side[2] = {text.data, comma + 1}, *end[2] = {comma, arrow};
  const char *result = arrow + 2, *result_end = text.data + text.size;
  char order[VT_MAX_RANK + 1] = {0};
  int64_t dims[4][VT_MAX_RANK]; // batch left, batch right, deep left, deep right
  dot_dims d = {.batch = {dims[0], dims[1]}, .deep = {dims[2], dims[3]}};
  uint32_t at = 0;
  for (int s = 0; s < 2; s++)
    if (end[s] - side[s] != call->in[s].type.rank ||
        memchr(side[s], '.', (size_t)(end[s] - side[s])))
      return vt_eval_refuse(op, "this einsum_config");
  for (const char *c = side[0]; c < end[0]; c++) {
    const char *other = memchr(side[1], *c, (size_t)(end[1] - side[1]));
    if (!other) continue;
    bool kept = memchr(result, *c, (size_t)(result_end - result));
    uint32_t i = kept ? d.batch_count++ : d.deep_count++;
    dims[kept ? 0 : 2][i] = c - side[0];
    dims[kept ? 1 : 3][i] = other - side[1];
    if (kept) order[at++] = *c;
  }
  for (int s = 0; s < 2; s++)
    for (const char *c = side[s]; c < end[s]; c++) {
      if (memchr(side[!s], *c, (size_t)(end[!s] - side[!s]))) continue;
      if (at >= VT_MAX_RANK || !memchr(result, *c, (size_t)(result_end - result)))
        return vt_eval_refuse(op, "this einsum_config");
      order[at++] = *c;
    }
  vt_tensor *out = &call->out[0];
  if ((int64_t)at != result_end - result || (int64_t)at != out->type.rank)
    return vt_eval_invalid(op, "einsum_config");
  if (!memcmp(order, result, at)) return run_dot(call, &d);
  // The product in its natural order, then a transpose.
  int64_t natural[VT_MAX_RANK], from[VT_MAX_RANK], to[VT_MAX_RANK], strides[VT_MAX_RANK];
  vt_type_strides(out->type, strides);
  for (uint32_t i = 0; i < at; i++) {
    const char *place = memchr(result, order[i], (size_t)(result_end - result));
    natural[i] = out->type.dims[place - result];
    to[i] = strides[place - result];
  }
  vt_tensor product = {{out->type.dtype, (int32_t)at, natural}, NULL};
  VT_TRY(vt_eval_scratch(vt_type_bytes(product.type), &product.data));
  vt_eval_call inner = *call;
  inner.out = &product;
  vt_status st = run_dot(&inner, &d);
  vt_type_strides(product.type, from);
  if (!st)
    vt_eval_move(vt_dtype_bytes(out->type.dtype), (int32_t)at, natural, product.data, from,
                 out->data, to);
  free(product.data);
  return st;
}

// "ij->ji" and diagonals; summing letters is left to programs that spell it out.
vt_status vt_eval_unary_einsum(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_string text = vt_attr_string(op, VT_ATTR_EINSUM_CONFIG);
  const char *arrow = strstr(text.data, "->");
  vt_tensor in = call->in[0], *out = &call->out[0];
  if (!arrow || arrow - text.data != in.type.rank) return vt_eval_refuse(op, "this einsum_config");
  const char *result = arrow + 2, *end = text.data + text.size;
  int64_t strides[VT_MAX_RANK], from[VT_MAX_RANK] = {0}, to[VT_MAX_RANK];
  if (end - result != out->type.rank) return vt_eval_invalid(op, "einsum_config");
  vt_type_strides(in.type, strides);
  vt_type_strides(out->type, to);
  for (int32_t d = 0; d < in.type.rank; d++) {
    const char *place = memchr(result, text.data[d], (size_t)(end - result));
    if (!place) return vt_eval_refuse(op, "a sum in unary_einsum");
    if (out->type.dims[place - result] != in.type.dims[d]) return vt_eval_invalid(op, "shapes");
    from[place - result] += strides[d];
  }
  vt_eval_move(vt_dtype_bytes(in.type.dtype), out->type.rank, out->type.dims, in.data, from,
               out->data, to);
  return VT_OK;
}
