// SPDX-License-Identifier: Apache-2.0
// eltwise.c - elementwise ops: picks the loop of vec.h and feeds it.
//
// Small floats are widened to f32 in blocks, computed, and rounded once. Operands of one element
// (the predicate of select, the bounds of clamp, a region's captures) are broadcast to a block.
#include <string.h>

#include "eval/kernel.h"
#include "ir/number.h"

enum { BLOCK = 1024, MOST_OPERANDS = 3 };

// One operand or the result of a loop.
typedef struct lane_array {
  vt_dtype dtype;
  size_t bytes; // size of an element in memory
  char *data;
  bool narrow; // runs through a block of f32
  bool splat;  // one element for all
} lane_array;

static void widen(vt_dtype dtype, int64_t n, const void *from, float *to) {
  if (dtype == VT_BF16)
    vt_vec()->widen_bf16(n, from, NULL, NULL, to, 0);
  else if (dtype == VT_F16)
    vt_vec()->widen_f16(n, from, NULL, NULL, to, 0);
  else
    vt_float_widen(dtype, n, from, to);
}
static void narrow(vt_dtype dtype, int64_t n, const float *from, void *to) {
  if (dtype == VT_BF16)
    vt_vec()->narrow_bf16(n, from, NULL, NULL, to, 0);
  else if (dtype == VT_F16)
    vt_vec()->narrow_f16(n, from, NULL, NULL, to, 0);
  else
    vt_float_narrow(dtype, n, from, to);
}

void vt_eval_fill(size_t bytes, int64_t n, const void *element, void *to) {
  if (n <= 0) return;
  const unsigned char *e = element;
  bool same = true;
  for (size_t i = 1; i < bytes; i++) same = same && e[i] == e[0];
  if (same) {
    memset(to, e[0], bytes * (size_t)n);
  } else if (bytes == 2) {
    uint16_t x, *out = to;
    memcpy(&x, element, 2);
    for (int64_t i = 0; i < n; i++) out[i] = x;
  } else if (bytes == 4) {
    uint32_t x, *out = to;
    memcpy(&x, element, 4);
    for (int64_t i = 0; i < n; i++) out[i] = x;
  } else if (bytes == 8) {
    uint64_t x, *out = to;
    memcpy(&x, element, 8);
    for (int64_t i = 0; i < n; i++) out[i] = x;
  } else {
    for (int64_t i = 0; i < n; i++) memcpy((char *)to + (size_t)i * bytes, element, bytes);
  }
}

static lane_array array_of(vt_dtype dtype, void *data, bool splat, bool raw) {
  return (lane_array){dtype, vt_dtype_bytes(dtype), data, !raw && vt_vec_is_narrow(dtype), splat};
}

static void run_blocks(vt_vec_fn loop, int64_t n, int32_t count, const lane_array *in,
                       lane_array out, int32_t width) {
  bool direct = !out.narrow;
  for (int32_t i = 0; i < count; i++) direct = direct && !in[i].narrow && !in[i].splat;
  if (direct) {
    loop(n, in[0].data, count > 1 ? in[1].data : NULL, count > 2 ? in[2].data : NULL, out.data,
         width);
    return;
  }
  _Alignas(64) char blocks[MOST_OPERANDS][BLOCK * sizeof(float)];
  _Alignas(64) float result[BLOCK];
  int64_t block = n < BLOCK ? n : BLOCK;
  for (int32_t i = 0; i < count; i++) {
    if (!in[i].splat) continue;
    size_t bytes = in[i].narrow ? sizeof(float) : in[i].bytes;
    if (block > (int64_t)(sizeof blocks[0] / bytes)) block = (int64_t)(sizeof blocks[0] / bytes);
  }
  for (int32_t i = 0; i < count; i++) {
    if (!in[i].splat) continue;
    float wide;
    if (in[i].narrow) widen(in[i].dtype, 1, in[i].data, &wide);
    vt_eval_fill(in[i].narrow ? sizeof wide : in[i].bytes, block,
                 in[i].narrow ? (void *)&wide : in[i].data, blocks[i]);
  }
  for (int64_t at = 0; at < n; at += block) {
    int64_t now = n - at < block ? n - at : block;
    const void *x[MOST_OPERANDS] = {0};
    for (int32_t i = 0; i < count; i++) {
      char *data = in[i].data + (in[i].splat ? 0 : at * (int64_t)in[i].bytes);
      if (in[i].narrow && !in[i].splat) widen(in[i].dtype, now, data, (float *)(void *)blocks[i]);
      x[i] = in[i].narrow || in[i].splat ? blocks[i] : data;
    }
    char *to = out.data + at * (int64_t)out.bytes;
    loop(now, x[0], x[1], x[2], out.narrow ? (void *)result : to, width);
    if (out.narrow) narrow(out.dtype, now, result, to);
  }
}

// Which loop runs the op on elements of this type; NULL when there is none.
static vt_vec_fn loop_of(const vt_op *op, vt_dtype dtype) {
  vt_vec_class klass = vt_vec_class_of(dtype);
  if (klass == VT_VEC_NONE) return NULL;
  if (op->code == VT_OP_COMPARE) {
    int64_t direction = vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION);
    bool total =
        vt_attr_i64_or(op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE) == VT_CMPTYPE_TOTALORDER;
    return vt_vec_compare(klass, total, direction);
  }
  return vt_vec_op(klass, op->code);
}

static vt_vec_fn select_of(vt_dtype dtype) {
  size_t bytes = vt_dtype_bytes(dtype);
  return vt_vec()->select[bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : 4];
}

static vt_status run_select(int64_t n, const vt_tensor *in, vt_tensor *out) {
  size_t bytes = vt_dtype_bytes(out->type.dtype);
  const void *a = in[0].data;
  if (n > 1 && vt_type_elements(in[0].type) == 1) {
    const void *chosen = *(const uint8_t *)a ? in[1].data : in[2].data;
    if (out->data != chosen) memmove(out->data, chosen, bytes * (size_t)n);
    return VT_OK;
  }
  select_of(out->type.dtype)(n, a, in[1].data, in[2].data, out->data, 0);
  return VT_OK;
}

static bool real_part_op(const vt_op *op) {
  return op->code == VT_OP_REAL || op->code == VT_OP_IMAG;
}

vt_status vt_eval_lanes(const vt_op *op, int64_t n, const vt_tensor *in, vt_tensor *out) {
  if (n <= 0) return VT_OK;
  vt_dtype dtype = in[0].type.dtype;
  switch ((int)op->code) {
  case VT_OP_CONVERT:
    return vt_eval_convert_array(dtype, out->type.dtype, n, in[0].data, out->data);
  case VT_OP_REDUCE_PRECISION:
    return vt_eval_reduce_precision(op, n, dtype, in[0].data, out->data);
  case VT_OP_SELECT:
    return run_select(n, in, out);
  default:
    break;
  }
  if (real_part_op(op) && !vt_dtype_is_complex(dtype)) {
    size_t bytes = vt_dtype_bytes(dtype) * (size_t)n;
    if (op->code == VT_OP_IMAG)
      memset(out->data, 0, bytes);
    else if (out->data != in[0].data)
      memmove(out->data, in[0].data, bytes);
    return VT_OK;
  }
  vt_vec_fn loop = loop_of(op, dtype);
  if (!loop) return vt_eval_refuse(op, "this element type");
  int32_t count = (int32_t)vt_op_own_operands(op);
  lane_array arrays[MOST_OPERANDS] = {0};
  for (int32_t i = 0; i < count && i < MOST_OPERANDS; i++)
    arrays[i] = array_of(
        in[i].type.dtype, in[i].data,
        n > 1 && op->code == VT_OP_CLAMP && i != 1 && vt_type_elements(in[i].type) == 1, false);
  run_blocks(loop, n, count, arrays, array_of(out->type.dtype, out->data, false, false),
             vt_vec_width_of(dtype));
  return VT_OK;
}

bool vt_eval_eltwise_loop(const vt_op *op, vt_eval_loop *out) {
  vt_type type = op->results[0].type;
  int64_t n = vt_type_elements(type);
  uint32_t count = vt_op_own_operands(op);
  bool select = op->code == VT_OP_SELECT,
       own = op->code == VT_OP_CONVERT || real_part_op(op) || op->code == VT_OP_REDUCE_PRECISION;
  if (own || !count || n <= 0 || (!select && vt_vec_is_narrow(type.dtype))) return false;
  for (uint32_t i = 0; i < count; i++) {
    vt_type in = op->operands[i]->type;
    if (vt_type_elements(in) != n || (!select && vt_vec_is_narrow(in.dtype))) return false;
  }
  vt_dtype dtype = op->operands[0]->type.dtype;
  vt_vec_fn loop = select ? select_of(type.dtype) : loop_of(op, dtype);
  *out = (vt_eval_loop){loop, n, select ? 0 : vt_vec_width_of(dtype)};
  return loop != NULL;
}

vt_status vt_eval_eltwise(const vt_eval_call *call) {
  return vt_eval_lanes(call->op, vt_type_elements(call->out[0].type), call->in, call->out);
}

bool vt_eval_eltwise_supports(const vt_op *op, const vt_dtype *in, vt_dtype out) {
  if (op->code == VT_OP_CONVERT || op->code == VT_OP_SELECT || real_part_op(op)) return true;
  if (op->code == VT_OP_REDUCE_PRECISION) return vt_dtype_is_float(out);
  return loop_of(op, in[0]) != NULL;
}

vt_status vt_eval_quantized(const vt_eval_call *call) {
  return vt_eval_refuse(call->op, "quantized arithmetic");
}
