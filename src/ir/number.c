// SPDX-License-Identifier: Apache-2.0
// number.c - see number.h.
#include "ir/number.h"

#include <math.h>
#include <pthread.h>

typedef enum overflow_kind { TO_INF, TO_NAN, TO_MAX } overflow_kind;
typedef struct float_format {
  int bias;
  overflow_kind overflow;
  uint16_t max_code;  // largest finite magnitude
  uint16_t nan_code;  // positive NaN
  bool signed_nan;    // NaN keeps its sign
  bool no_minus_zero; // FNUZ: the code of -0 is NaN
} float_format;

static const float_format formats[VT_DTYPE_LIMIT] = {
    [VT_F16] = {15, TO_INF, 0x7bff, 0x7e00, true, false},
    [VT_BF16] = {127, TO_INF, 0x7f7f, 0x7fc0, true, false},
    [VT_F8E5M2] = {15, TO_INF, 0x7b, 0x7e, true, false},
    [VT_F8E4M3FN] = {7, TO_NAN, 0x7e, 0x7f, true, false},
    [VT_F8E4M3B11FNUZ] = {11, TO_NAN, 0x7f, 0x80, false, true},
    [VT_F8E5M2FNUZ] = {16, TO_NAN, 0x7f, 0x80, false, true},
    [VT_F8E4M3FNUZ] = {8, TO_NAN, 0x7f, 0x80, false, true},
    [VT_F8E4M3] = {7, TO_INF, 0x77, 0x7c, true, false},
    [VT_F8E3M4] = {3, TO_INF, 0x6f, 0x78, true, false},
    [VT_F8E8M0FNU] = {127, TO_NAN, 0xfe, 0xff, false, true},
    [VT_F4E2M1FN] = {1, TO_MAX, 0x7, 0x8, false, false},
    [VT_F6E2M3FN] = {1, TO_MAX, 0x1f, 0x20, false, false},
    [VT_F6E3M2FN] = {3, TO_MAX, 0x1f, 0x20, false, false},
};

double vt_f64_from_f32_exact(float x) {
  uint32_t bits = vt_f32_bits(x), a = bits & 0x7fffffffu;
  if (a >= 0x800000u || a == 0) return (double)x;
  double tiny = (double)a * 0x1p-149;
  return bits >> 31 ? -tiny : tiny;
}

// 2^e for exponents of normal f64 numbers.
static double power_of_two(int e) {
  return vt_f64_from_bits((uint64_t)(e + 1023) << 52);
}

static uint16_t encode_e8m0(double x) {
  if (!(x > 0)) return 0xff;
  uint64_t bits = vt_f64_bits(x);
  int code = (int)(bits >> 52) - 1023 + 127 + (int)(bits >> 51 & 1);
  return (uint16_t)(code > 254 ? 0xff : code < 0 ? 0 : code);
}

uint16_t vt_float_encode(vt_dtype dtype, double x) {
  if (dtype == VT_F8E8M0FNU) return encode_e8m0(x);
  const float_format *f = &formats[dtype];
  const vt_dtype_info *info = vt_dtype_get(dtype);
  int mantissa = info->mantissa;
  uint16_t sign = (uint16_t)(signbit(x) ? 1u << (info->bits - 1) : 0);
  if (isnan(x)) return (uint16_t)(f->signed_nan ? sign | f->nan_code : f->nan_code);
  double a = fabs(x);
  uint32_t code = 0;
  if (isinf(a)) {
    code = UINT16_MAX;
  } else if (a >= 0x1p-1000) {
    int e = (int)(vt_f64_bits(a) >> 52) - 1023;
    if (e < 1 - f->bias) e = 1 - f->bias;
    uint64_t q = (uint64_t)rint(a * power_of_two(mantissa - e));
    if (e > 200)
      code = UINT16_MAX;
    else
      code = (uint32_t)((uint64_t)(e + f->bias - 1) << mantissa) + (uint32_t)q;
    // q carries the hidden bit: adding it to the exponent field below moves normal numbers, and
    // rounding up to the next power of two, to the right code. Subnormals have no hidden bit and
    // end up in field 0.
  }
  if (code > f->max_code) {
    if (f->overflow == TO_INF)
      code = f->max_code + 1u;
    else if (f->overflow == TO_MAX)
      code = f->max_code;
    else
      return (uint16_t)(f->signed_nan ? sign | f->nan_code : f->nan_code);
  }
  if (!code && f->no_minus_zero) return 0;
  return (uint16_t)(sign | code);
}

static double decode(vt_dtype dtype, uint32_t code) {
  const float_format *f = &formats[dtype];
  const vt_dtype_info *info = vt_dtype_get(dtype);
  if (dtype == VT_F8E8M0FNU) return code == 0xff ? NAN : power_of_two((int)code - 127);
  uint32_t sign_bit = 1u << (info->bits - 1), a = code & (sign_bit - 1);
  if (f->no_minus_zero && code == sign_bit) return NAN;
  double x;
  if (a > f->max_code) {
    x = f->overflow == TO_INF && a == f->max_code + 1u ? INFINITY : NAN;
  } else {
    int field = (int)(a >> info->mantissa);
    uint32_t fraction = a & ((1u << info->mantissa) - 1);
    if (field) fraction |= 1u << info->mantissa;
    x = (double)fraction * power_of_two((field ? field : 1) - f->bias - info->mantissa);
  }
  return code & sign_bit ? -x : x;
}

// Decoded values of all codes of the 8-bit and narrower formats.
static float tables[VT_DTYPE_LIMIT][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static void fill_tables(void) {
  for (int d = 0; d < VT_DTYPE_LIMIT; d++) {
    const vt_dtype_info *info = vt_dtype_get((vt_dtype)d);
    if (info->kind != VT_KIND_FLOAT || info->bits > 8) continue;
    for (uint32_t code = 0; code < 256; code++)
      tables[d][code] = (float)decode((vt_dtype)d, code & ((1u << info->bits) - 1));
  }
  // 2^-127 is a subnormal f32, which the conversion above may flush.
  tables[VT_F8E8M0FNU][0] = vt_f32_from_bits(0x400000u);
}
static const float *table_of(vt_dtype dtype) {
  pthread_once(&tables_once, fill_tables);
  return tables[dtype];
}

void vt_float_widen(vt_dtype dtype, int64_t n, const void *from, float *to) {
  const uint16_t *halves = from;
  const uint8_t *bytes = from;
  if (dtype == VT_BF16) {
    for (int64_t i = 0; i < n; i++) to[i] = vt_f32_from_bf16(halves[i]);
  } else if (dtype == VT_F16) {
    for (int64_t i = 0; i < n; i++) to[i] = vt_f32_from_f16(halves[i]);
  } else {
    const float *table = table_of(dtype);
    for (int64_t i = 0; i < n; i++) to[i] = table[bytes[i]];
  }
}

void vt_float_narrow(vt_dtype dtype, int64_t n, const float *from, void *to) {
  uint16_t *halves = to;
  uint8_t *bytes = to;
  if (dtype == VT_BF16) {
    for (int64_t i = 0; i < n; i++) halves[i] = vt_bf16_from_f32(from[i]);
  } else if (dtype == VT_F16) {
    for (int64_t i = 0; i < n; i++) halves[i] = vt_f16_from_f32(from[i]);
  } else {
    for (int64_t i = 0; i < n; i++)
      bytes[i] = (uint8_t)vt_float_encode(dtype, vt_f64_from_f32_exact(from[i]));
  }
}

double vt_number_load(vt_dtype dtype, const void *data, int64_t index) {
  switch ((int)dtype) {
  case VT_F32:
    return vt_f64_from_f32_exact(((const float *)data)[index]);
  case VT_F64:
    return ((const double *)data)[index];
  case VT_C64:
    return vt_f64_from_f32_exact(((const float *)data)[2 * index]);
  case VT_C128:
    return ((const double *)data)[2 * index];
  case VT_U64:
    return (double)((const uint64_t *)data)[index];
  case VT_BF16:
    return vt_f64_from_f32_exact(vt_f32_from_bf16(((const uint16_t *)data)[index]));
  case VT_F16:
    return (double)vt_f32_from_f16(((const uint16_t *)data)[index]);
  default:
    break;
  }
  if (vt_dtype_is_float(dtype))
    return vt_f64_from_f32_exact(table_of(dtype)[((const uint8_t *)data)[index]]);
  return (double)vt_int_load(dtype, data, index);
}

static void store_int(vt_dtype dtype, void *data, int64_t index, double x) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  bool is_signed = info->kind == VT_KIND_SIGNED;
  double low = is_signed ? -power_of_two(info->bits - 1) : 0;
  double beyond = power_of_two(is_signed ? info->bits - 1 : info->bits);
  uint64_t max =
      is_signed ? ((uint64_t)1 << (info->bits - 1)) - 1 : ~(uint64_t)0 >> (64 - info->bits);
  uint64_t bits;
  if (isnan(x))
    bits = 0;
  else if (x >= beyond)
    bits = max;
  else if (is_signed)
    bits = (uint64_t)(int64_t)(x < low ? low : x);
  else
    bits = (uint64_t)(x < low ? low : x);
  memcpy((char *)data + index * info->bytes, &bits, info->bytes); // little-endian: low bytes first
}

void vt_number_store(vt_dtype dtype, void *data, int64_t index, double x) {
  switch ((int)dtype) {
  case VT_F32:
    ((float *)data)[index] = (float)x;
    return;
  case VT_F64:
    ((double *)data)[index] = x;
    return;
  case VT_C64:
    ((float *)data)[2 * index] = (float)x;
    ((float *)data)[2 * index + 1] = 0;
    return;
  case VT_C128:
    ((double *)data)[2 * index] = x;
    ((double *)data)[2 * index + 1] = 0;
    return;
  case VT_PRED:
    ((uint8_t *)data)[index] = x != 0;
    return;
  case VT_BF16:
  case VT_F16:
    ((uint16_t *)data)[index] = vt_float_encode(dtype, x);
    return;
  default:
    break;
  }
  if (vt_dtype_is_float(dtype))
    ((uint8_t *)data)[index] = (uint8_t)vt_float_encode(dtype, x);
  else
    store_int(dtype, data, index, x);
}
