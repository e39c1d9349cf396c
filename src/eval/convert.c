// SPDX-License-Identifier: Apache-2.0
// convert.c - changes of element type: convert, bitcast_convert, reduce_precision.
//
// f64 and integers reach bf16 and f16 through f32, as in XLA; the 8-bit and narrower floats are
// rounded once.
#include <math.h>
#include <string.h>

#include "eval/kernel.h"
#include "ir/number.h"

enum { BLOCK = 1024 };

static bool is_half(vt_dtype d) {
  return d == VT_BF16 || d == VT_F16;
}

// Real classes except narrow floats.
static void convert_plain(vt_dtype from, vt_dtype to, int64_t n, const void *source, void *target) {
  vt_vec_class a = vt_vec_class_of(from), b = vt_vec_class_of(to);
  vt_vec_fn loop = vt_vec_convert(a, b);
  // Loops exist between different classes, and within an integer class for narrower widths.
  if (loop && !(a == b && vt_vec_width_of(from) <= vt_vec_width_of(to)))
    loop(n, source, NULL, NULL, target, vt_vec_width_of(to));
  else if (source != target)
    memmove(target, source, vt_dtype_bytes(to) * (size_t)n);
}

static void to_f32_block(vt_dtype from, int64_t n, const void *source, float *block) {
  if (from == VT_BF16)
    vt_vec()->widen_bf16(n, source, NULL, NULL, block, 0);
  else if (from == VT_F16)
    vt_vec()->widen_f16(n, source, NULL, NULL, block, 0);
  else if (vt_vec_is_narrow(from))
    vt_float_widen(from, n, source, block);
  else
    convert_plain(from, VT_F32, n, source, block);
}

static void convert_real(vt_dtype from, vt_dtype to, int64_t n, const void *source, void *target) {
  bool from_narrow = vt_vec_is_narrow(from), to_narrow = vt_vec_is_narrow(to);
  size_t from_bytes = vt_dtype_bytes(from), to_bytes = vt_dtype_bytes(to);
  if (!from_narrow && !to_narrow) {
    convert_plain(from, to, n, source, target);
    return;
  }
  if (to_narrow && !is_half(to) && !from_narrow && from != VT_F32) {
    for (int64_t i = 0; i < n; i++) vt_number_store(to, target, i, vt_number_load(from, source, i));
    return;
  }
  _Alignas(64) float block[BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t now = n - at < BLOCK ? n - at : BLOCK;
    const char *x = (const char *)source + at * (int64_t)from_bytes;
    char *out = (char *)target + at * (int64_t)to_bytes;
    const float *wide = block;
    if (from == VT_F32)
      wide = (const float *)(const void *)x;
    else
      to_f32_block(from, now, x, block);
    if (to == VT_F32)
      memcpy(out, block, sizeof(float) * (size_t)now);
    else if (to == VT_BF16)
      vt_vec()->narrow_bf16(now, wide, NULL, NULL, out, 0);
    else if (to == VT_F16)
      vt_vec()->narrow_f16(now, wide, NULL, NULL, out, 0);
    else if (to_narrow)
      vt_float_narrow(to, now, wide, out);
    else
      convert_plain(VT_F32, to, now, wide, out);
  }
}

static vt_dtype part_of(vt_dtype d) {
  return d == VT_C64 ? VT_F32 : d == VT_C128 ? VT_F64 : d;
}

// The real parts of n complex numbers, or complex numbers of these real parts.
static void take_real(size_t bytes, int64_t n, const void *source, void *target) {
  if (bytes == 4)
    for (int64_t i = 0; i < n; i++) ((uint32_t *)target)[i] = ((const uint32_t *)source)[2 * i];
  else
    for (int64_t i = 0; i < n; i++) ((uint64_t *)target)[i] = ((const uint64_t *)source)[2 * i];
}
static void give_real(size_t bytes, int64_t n, const void *source, void *target) {
  if (bytes == 4)
    for (int64_t i = 0; i < n; i++)
      ((uint32_t *)target)[2 * i] = ((const uint32_t *)source)[i],
                               ((uint32_t *)target)[2 * i + 1] = 0;
  else
    for (int64_t i = 0; i < n; i++)
      ((uint64_t *)target)[2 * i] = ((const uint64_t *)source)[i],
                               ((uint64_t *)target)[2 * i + 1] = 0;
}

// Complex on either side: parts are converted separately; a real target takes the real part.
static void convert_complex(vt_dtype from, vt_dtype to, int64_t n, const void *source,
                            void *target) {
  vt_dtype a = part_of(from), b = part_of(to);
  if (vt_dtype_is_complex(from) && vt_dtype_is_complex(to)) {
    convert_real(a, b, 2 * n, source, target);
    return;
  }
  _Alignas(64) uint64_t block[BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t now = n - at < BLOCK ? n - at : BLOCK;
    const char *x = (const char *)source + at * (int64_t)vt_dtype_bytes(from);
    char *out = (char *)target + at * (int64_t)vt_dtype_bytes(to);
    if (vt_dtype_is_complex(to)) {
      convert_real(a, b, now, x, block);
      give_real(vt_dtype_bytes(b), now, block, out);
    } else {
      take_real(vt_dtype_bytes(a), now, x, block);
      convert_real(a, b, now, block, out);
    }
  }
}

vt_status vt_eval_convert_array(vt_dtype from, vt_dtype to, int64_t n, const void *source,
                                void *target) {
  if (n <= 0) return VT_OK;
  if (from == to) {
    if (source != target) memmove(target, source, vt_dtype_bytes(to) * (size_t)n);
  } else if (vt_dtype_is_complex(from) || vt_dtype_is_complex(to)) {
    convert_complex(from, to, n, source, target);
  } else {
    convert_real(from, to, n, source, target);
  }
  return VT_OK;
}

// Rounds the fraction of a float of `mantissa` bits to fewer bits and clamps the exponent, bitwise.
// NaN stays NaN.
static uint64_t reduce_bits(uint64_t bits, int total, int mantissa, int to_exponent,
                            int to_mantissa) {
  uint64_t sign_bit = (uint64_t)1 << (total - 1), magnitude = bits & (sign_bit - 1);
  int exponent = total - 1 - mantissa;
  uint64_t inf = (((uint64_t)1 << exponent) - 1) << mantissa;
  if (magnitude > inf) return bits;
  if (to_mantissa < mantissa) {
    int drop = mantissa - to_mantissa;
    uint64_t odd = magnitude >> drop & 1, half = (uint64_t)1 << (drop - 1);
    magnitude = (magnitude + half - 1 + odd) >> drop << drop;
  }
  if (to_exponent < exponent) {
    int64_t bias = ((int64_t)1 << (exponent - 1)) - 1,
            to_bias = ((int64_t)1 << (to_exponent - 1)) - 1;
    int64_t field = (int64_t)(magnitude >> mantissa);
    if (field > bias + to_bias)
      magnitude = inf;
    else if (field < bias - to_bias + 1)
      magnitude = 0;
  } else if (magnitude > inf) {
    magnitude = inf;
  }
  return (bits & sign_bit) | magnitude;
}

vt_status vt_eval_reduce_precision(const vt_op *op, int64_t n, vt_dtype dtype, const void *in,
                                   void *out) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  int exponent = (int)vt_attr_i64(op, VT_ATTR_EXPONENT_BITS);
  int mantissa = (int)vt_attr_i64(op, VT_ATTR_MANTISSA_BITS);
  if (exponent < 1 || mantissa < 0) return vt_eval_invalid(op, "exponent_bits or mantissa_bits");
  if (info->kind != VT_KIND_FLOAT) return vt_eval_refuse(op, "this element type");
  if (dtype == VT_F32 && exponent == 8 && mantissa == 7) {
    vt_vec()->round_bf16(n, in, NULL, NULL, out, 0);
    return VT_OK;
  }
  for (int64_t i = 0; i < n; i++) {
    if (info->bytes == 1) {
      // XLA computes 8-bit floats in f16, which represents them all exactly except for the range of
      // f8E8M0FNU.
      float wide;
      vt_float_widen(dtype, 1, (const char *)in + i, &wide);
      if (dtype == VT_F8E8M0FNU)
        wide =
            vt_f32_from_bits((uint32_t)reduce_bits(vt_f32_bits(wide), 32, 23, exponent, mantissa));
      else
        wide = vt_f32_from_f16(
            (uint16_t)reduce_bits(vt_f16_from_f32(wide), 16, 10, exponent, mantissa));
      vt_float_narrow(dtype, 1, &wide, (char *)out + i);
      continue;
    }
    uint64_t bits = 0;
    memcpy(&bits, (const char *)in + i * info->bytes, info->bytes);
    bits = reduce_bits(bits, info->bits, info->mantissa, exponent, mantissa);
    memcpy((char *)out + i * info->bytes, &bits, info->bytes);
  }
  return VT_OK;
}

// Elements as bit strings, least significant part first; a complex number is one element of double
// width.
vt_status vt_eval_bitcast_convert(const vt_eval_call *call) {
  vt_dtype from = call->in[0].type.dtype, to = call->out[0].type.dtype;
  const vt_dtype_info *a = vt_dtype_get(from), *b = vt_dtype_get(to);
  int a_bits = from == VT_PRED ? 8 : a->bits, b_bits = to == VT_PRED ? 8 : b->bits;
  int64_t n = vt_type_elements(call->out[0].type), m = vt_type_elements(call->in[0].type);
  if (a_bits >= 8 && b_bits >= 8) {
    if (n * b->bytes != m * a->bytes) return vt_eval_invalid(call->op, "shapes");
    if (call->out[0].data != call->in[0].data)
      memmove(call->out[0].data, call->in[0].data, (size_t)(n * b->bytes));
    return VT_OK;
  }
  if (n * b_bits != m * a_bits) return vt_eval_invalid(call->op, "shapes");
  const uint8_t *x = call->in[0].data;
  uint8_t *out = call->out[0].data;
  uint8_t mask = (uint8_t)((1u << (b_bits < 8 ? b_bits : 8)) - 1);
  uint8_t in_mask = (uint8_t)((1u << (a_bits < 8 ? a_bits : 8)) - 1);
  int a_step = a_bits < 8 ? a_bits : 8,
      b_step = b_bits < 8 ? b_bits : 8; // bits held by one byte of memory
  bool extend = b->kind == VT_KIND_SIGNED && b_bits < 8;
  int64_t bytes_out = n * b->bytes;
  for (int64_t i = 0; i < bytes_out; i++) {
    unsigned piece = 0;
    if (a_step >= b_step) {
      int per = a_step / b_step;
      piece = (unsigned)(x[i / per] & in_mask) >> (i % per * b_step);
    } else {
      int per = b_step / a_step;
      for (int p = 0; p < per; p++) piece |= (unsigned)(x[i * per + p] & in_mask) << (p * a_step);
    }
    piece &= mask;
    if (extend && piece >> (b_bits - 1)) piece |= (unsigned)~mask;
    out[i] = (uint8_t)piece;
  }
  return VT_OK;
}
