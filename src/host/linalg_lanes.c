// SPDX-License-Identifier: Apache-2.0
// linalg_lanes.c - factorisations of small matrices in vector lanes. Built once per x86 level
// (VT_ISA) with vectors of its size.
#include <float.h>
#include <math.h>
#include <string.h>

#include "host/linalg.h"

#define REAL       float
#define MASK       int32_t
#define MASK_MOST  INT32_MAX
#define EPSILON    FLT_EPSILON
#define SQRT       sqrtf
#define NAME(name) name##_f32
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#include "host/linalg_lanes.h"
#undef REAL
#undef MASK
#undef MASK_MOST
#undef EPSILON
#undef SQRT
#undef NAME
#undef LANES
#undef EACH

#define REAL       double
#define MASK       int64_t
#define MASK_MOST  INT64_MAX
#define EPSILON    DBL_EPSILON
#define SQRT       sqrt
#define NAME(name) name##_f64
#if defined(__AVX512F__)
#define LANES 8
#elif defined(__AVX__)
#define LANES 4
#else
#define LANES 2
#endif
#include "host/linalg_lanes.h"

const vt_linalg_code *LANES_PASTE(vt_linalg_code, VT_ISA)(bool wide);
const vt_linalg_code *LANES_PASTE(vt_linalg_code, VT_ISA)(bool wide) {
  return wide ? &code_f64 : &code_f32;
}
