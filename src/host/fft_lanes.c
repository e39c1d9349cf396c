// SPDX-License-Identifier: Apache-2.0
// fft_lanes.c - the transform of a group of lines in the lanes of vectors. Built once per x86 level
// (VT_ISA) with vectors of its size.
#include <string.h>

#include "host/fft.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)

// Where element i of a shuffle of two vectors comes from.
#define LOW(s, i)    ((i) & (s) ? (i) - (s) + LANES : (i))
#define HIGH(s, i)   ((i) & (s) ? (i) + LANES : (i) + (s))
#define EVEN(s, i)   (2 * (i))
#define ODD(s, i)    (2 * (i) + 1)
#define FIRST(s, i)  ((i) / 2 + ((i) & 1 ? LANES : 0))
#define SECOND(s, i) ((i) / 2 + LANES / 2 + ((i) & 1 ? LANES : 0))
#define EACH2(f, s)  f(s, 0), f(s, 1)
#define EACH4(f, s)  EACH2(f, s), f(s, 2), f(s, 3)
#define EACH8(f, s)  EACH4(f, s), f(s, 4), f(s, 5), f(s, 6), f(s, 7)
#define EACH16(f, s)                                                                               \
  EACH8(f, s), f(s, 8), f(s, 9), f(s, 10), f(s, 11), f(s, 12), f(s, 13), f(s, 14), f(s, 15)

#define REAL       float
#define NAME(name) name##_f32
#if VECTOR_BYTES == 64
#define LANES 16
#define EACH  EACH16
#elif VECTOR_BYTES == 32
#define LANES 8
#define EACH  EACH8
#else
#define LANES 4
#define EACH  EACH4
#endif
#include "host/fft_lanes.h"
static const vt_fft_code narrow = {LANES, run_f32, load_line_f32, store_line_f32,
                                   multiply_line_f32};
#undef REAL
#undef NAME
#undef LANES
#undef EACH

#define REAL       double
#define NAME(name) name##_f64
#if VECTOR_BYTES == 64
#define LANES 8
#define EACH  EACH8
#elif VECTOR_BYTES == 32
#define LANES 4
#define EACH  EACH4
#else
#define LANES 2
#define EACH  EACH2
#endif
#include "host/fft_lanes.h"
static const vt_fft_code wide_code = {LANES, run_f64, load_line_f64, store_line_f64,
                                      multiply_line_f64};

const vt_fft_code *PASTE(vt_fft_code, VT_ISA)(bool wide);
const vt_fft_code *PASTE(vt_fft_code, VT_ISA)(bool wide) {
  return wide ? &wide_code : &narrow;
}
