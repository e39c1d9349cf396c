// SPDX-License-Identifier: Apache-2.0
// fft_lanes.c - the transform of a group of lines in the lanes of vectors. Built once per x86 level
// (VT_ISA) with vectors of its size.
#include <string.h>

#include "host/fft.h"

#define REAL       float
#define NAME(name) name##_f32
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#include "host/fft_lanes.h"
static const vt_fft_code narrow_code = {LANES, run_f32, load_line_f32, store_line_f32,
                                        multiply_line_f32};
#undef REAL
#undef NAME
#undef LANES
#undef EACH

#define REAL       double
#define NAME(name) name##_f64
#if defined(__AVX512F__)
#define LANES 8
#elif defined(__AVX__)
#define LANES 4
#else
#define LANES 2
#endif
#include "host/fft_lanes.h"
static const vt_fft_code wide_code = {LANES, run_f64, load_line_f64, store_line_f64,
                                      multiply_line_f64};

const vt_fft_code *LANES_PASTE(vt_fft_code, VT_ISA)(bool wide);
const vt_fft_code *LANES_PASTE(vt_fft_code, VT_ISA)(bool wide) {
  return wide ? &wide_code : &narrow_code;
}
