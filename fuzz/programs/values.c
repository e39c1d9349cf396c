// SPDX-License-Identifier: Apache-2.0
// values.c - the elements of inputs: hard ones where arithmetic has edge cases, tame ones where an
// exact answer needs them.
#include <math.h>

#include "ir/number.h"
#include "program.h"

uint64_t random_next(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int64_t random_below(uint64_t *state, int64_t limit) {
  return limit <= 1 ? 0 : (int64_t)(random_next(state) % (uint64_t)limit);
}

static double uniform(uint64_t *state) {
  return (double)(random_next(state) >> 11) * 0x1p-53;
}

// Values where rounding, overflow, flushing and comparison change behaviour, scaled to the format.
static double hard_float(uint64_t *state, const vt_dtype_info *format) {
  int bias = (1 << (format->exponent - 1)) - 1;
  double least = ldexp(1, 1 - bias), most = ldexp(2 - ldexp(1, -format->mantissa), bias);
  double sign = random_next(state) & 1 ? -1 : 1;
  switch (random_below(state, 22)) {
  case 0:
  case 1:
    return sign * 0.0;
  case 2:
    return sign * (double)INFINITY;
  case 3:
    return (double)NAN;
  case 4:
    return sign * least * ldexp(1, -format->mantissa);
  case 5:
    return sign * least * uniform(state);
  case 6:
    return sign * least;
  case 7:
    return sign * most;
  case 8:
    return sign * most / 2;
  case 9:
    return sign * ldexp(1 + uniform(state), (int)random_below(state, 2 * bias) - bias);
  case 10:
    return sign * (ldexp(1, format->mantissa) + (double)random_below(state, 4) / 2);
  case 11:
    return sign * (1 + ldexp((double)random_below(state, 3), -format->mantissa));
  case 12:
  case 13:
    return sign * ((double)random_below(state, 8) + 0.5);
  case 14:
  case 15:
    return sign * (double)random_below(state, 10);
  case 16:
    return sign * ldexp(uniform(state), (int)random_below(state, 40) - 20);
  case 17:
    return sign * 100 * uniform(state);
  default:
    return sign * 4 * uniform(state);
  }
}

static void store_int(vt_dtype dtype, void *data, int64_t i, uint64_t x) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  if (dtype == VT_PRED) x &= 1;
  if (info->bits < 8 && dtype != VT_PRED) {
    int shift = 64 - info->bits;
    x = info->kind == VT_KIND_SIGNED ? (uint64_t)((int64_t)(x << shift) >> shift)
                                     : x << shift >> shift;
  }
  memcpy((char *)data + i * info->bytes, &x, info->bytes); // little-endian
}

static uint64_t hard_int(uint64_t *state, int bits) {
  uint64_t top = (uint64_t)1 << (bits - 1);
  switch (random_below(state, 10)) {
  case 0:
    return 0;
  case 1:
    return top - (uint64_t)random_below(state, 3);
  case 2:
    return top + (uint64_t)random_below(state, 3);
  case 3:
    return ~(uint64_t)0 - (uint64_t)random_below(state, 3);
  case 4:
    return (uint64_t)random_below(state, 2 * bits + 2);
  case 5:
    return (uint64_t)1 << random_below(state, bits);
  case 6:
    return random_next(state);
  default:
    return (uint64_t)(random_below(state, 24) - 8);
  }
}

static double tame(uint64_t *state, int style) {
  if (style == VALUE_SMOOTH || style == VALUE_DEFINITE) return 4 * uniform(state) - 2;
  return (double)(random_below(state, 65) - 32) / 4;
}

static void fill_float(program_input input, vt_dtype dtype, int64_t n, void *data) {
  const vt_dtype_info *format = vt_dtype_get(dtype);
  uint64_t state = input.stream;
  for (int64_t i = 0; i < n; i++) {
    double x;
    if (input.style == VALUE_RANGE)
      x = (double)(input.low + random_below(&state, input.high - input.low + 1));
    else if (input.style == VALUE_HARD || input.style == VALUE_NUMBER)
      do x = hard_float(&state, format);
      while (input.style == VALUE_NUMBER && isnan(x));
    else
      x = tame(&state, input.style);
    if (dtype == VT_F8E8M0FNU) x = fabs(x) > 0 ? fabs(x) : 1;
    vt_number_store(dtype, data, i, x);
    if (input.style != VALUE_HARD && isnan(vt_number_load(dtype, data, i)))
      vt_number_store(dtype, data, i, 1); // a format without infinities turned one into NaN
  }
}

static void fill_int(program_input input, vt_dtype dtype, int64_t n, void *data) {
  int bits = dtype == VT_PRED ? 1 : vt_dtype_get(dtype)->bits;
  uint64_t state = input.stream;
  for (int64_t i = 0; i < n; i++) {
    uint64_t x;
    if (input.style == VALUE_RANGE)
      x = (uint64_t)(input.low + random_below(&state, input.high - input.low + 1));
    else if (bits == 1)
      x = random_next(&state) >> 7;
    else
      x = hard_int(&state, bits);
    store_int(dtype, data, i, x);
  }
}

// Hermitian and diagonally dominant, so that a Cholesky factor exists and is well conditioned.
static void make_definite(vt_type type, void *data) {
  int64_t n = type.dims[type.rank - 1], batches = n ? vt_type_elements(type) / (n * n) : 0;
  bool complex = vt_dtype_is_complex(type.dtype), wide = vt_dtype_bytes(type.dtype) == 16;
  vt_dtype part = !complex ? type.dtype : wide ? VT_F64 : VT_F32;
  int64_t parts = complex ? 2 : 1;
  for (int64_t b = 0; b < batches; b++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j <= i; j++) {
        int64_t at = ((b * n + i) * n + j) * parts, mirror = ((b * n + j) * n + i) * parts;
        double x = vt_number_load(part, data, at);
        double y = complex ? vt_number_load(part, data, at + 1) : 0;
        if (i == j) x = 2.0 * (double)n + 1 + fabs(x), y = 0;
        vt_number_store(part, data, at, x);
        vt_number_store(part, data, mirror, x);
        if (complex) vt_number_store(part, data, at + 1, y);
        if (complex) vt_number_store(part, data, mirror + 1, -y);
      }
}

void program_fill(program_input input, vt_type type, void *data) {
  int64_t n = vt_type_elements(type);
  if (vt_dtype_is_complex(type.dtype))
    fill_float(input, type.dtype == VT_C64 ? VT_F32 : VT_F64, 2 * n, data);
  else if (vt_dtype_is_float(type.dtype))
    fill_float(input, type.dtype, n, data);
  else
    fill_int(input, type.dtype, n, data);
  if (input.style == VALUE_DEFINITE) make_definite(type, data);
}
