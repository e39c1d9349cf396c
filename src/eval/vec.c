// SPDX-License-Identifier: Apache-2.0
// vec.c - selects the loops for this CPU.
#include "eval/vec.h"

#include <pthread.h>

static vt_vec_table the_table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

#define FILL(isa)                                                                                  \
  do {                                                                                             \
    vt_vec_fill_float_##isa(&the_table);                                                           \
    vt_vec_fill_int_##isa(&the_table);                                                             \
    vt_vec_fill_complex_##isa(&the_table);                                                         \
    vt_vec_fill_convert_##isa(&the_table);                                                         \
    vt_vec_fill_matmul_##isa(&the_table);                                                          \
  } while (0)

static void fill(void) {
#ifdef VT_VEC_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd")) {
    FILL(v4);
    return;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    FILL(v3);
    return;
  }
#endif
  FILL(v2);
}

const vt_vec_table *vt_vec(void) {
  pthread_once(&table_once, fill);
  return &the_table;
}

vt_vec_class vt_vec_class_of(vt_dtype dtype) {
  switch ((int)dtype) {
  case VT_PRED:
    return VT_VEC_PRED;
  case VT_S2:
  case VT_S4:
  case VT_S8:
    return VT_VEC_S8;
  case VT_S16:
    return VT_VEC_S16;
  case VT_S32:
    return VT_VEC_S32;
  case VT_S64:
    return VT_VEC_S64;
  case VT_U2:
  case VT_U4:
  case VT_U8:
    return VT_VEC_U8;
  case VT_U16:
    return VT_VEC_U16;
  case VT_U32:
    return VT_VEC_U32;
  case VT_U64:
    return VT_VEC_U64;
  case VT_F64:
    return VT_VEC_F64;
  case VT_C64:
    return VT_VEC_C64;
  case VT_C128:
    return VT_VEC_C128;
  default:
    return vt_dtype_is_float(dtype) ? VT_VEC_F32 : VT_VEC_NONE;
  }
}

int32_t vt_vec_width_of(vt_dtype dtype) {
  return vt_dtype_is_integer(dtype) ? vt_dtype_get(dtype)->bits : 0;
}

bool vt_vec_is_narrow(vt_dtype dtype) {
  return vt_dtype_is_float(dtype) && dtype != VT_F32 && dtype != VT_F64;
}
