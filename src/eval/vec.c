// SPDX-License-Identifier: Apache-2.0
// vec.c - selects the loops for this CPU.
#include "eval/vec.h"

#include <stdatomic.h>

#include "ir/module.h"

typedef enum isa { UNKNOWN, V2, V3, V4 } isa;

static isa find_isa(void) {
#ifdef VT_VEC_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    return V4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return V3;
#endif
  return V2;
}

// Threads that come first at the same time find the same.
static isa the_isa(void) {
  static _Atomic(isa) known;
  isa is = atomic_load_explicit(&known, memory_order_relaxed);
  if (is == UNKNOWN) atomic_store_explicit(&known, is = find_isa(), memory_order_relaxed);
  return is;
}

#ifdef VT_VEC_X86
#define CHOOSE(v2, v3, v4) (the_isa() == V4 ? v4 : the_isa() == V3 ? v3 : v2)
#else
#define CHOOSE(v2, v3, v4) ((void)the_isa(), v2)
#endif
#define OF_ISA(name) CHOOSE(name##_v2, name##_v3, name##_v4)

const vt_vec_table *vt_vec(void) {
  return OF_ISA(&vt_vec_loops);
}

vt_vec_matmul_fn vt_vec_matmul(vt_vec_class klass) {
  return OF_ISA(vt_vec_matmul)(klass);
}

vt_vec_fn vt_vec_op(vt_vec_class klass, vt_opcode code) {
  if (klass >= VT_VEC_CLASSES) return NULL;
  if (klass >= VT_VEC_C64) return OF_ISA(vt_vec_complex_op)(klass, code);
  return klass >= VT_VEC_F32 ? OF_ISA(vt_vec_float_op)(klass, code)
                             : OF_ISA(vt_vec_int_op)(klass, code);
}

vt_vec_fn vt_vec_compare(vt_vec_class klass, bool total, int64_t direction) {
  if (klass >= VT_VEC_CLASSES || direction < 0 || direction > VT_CMP_LT) return NULL;
  if (klass >= VT_VEC_C64) return OF_ISA(vt_vec_complex_compare)(klass, total, direction);
  return klass >= VT_VEC_F32 ? OF_ISA(vt_vec_float_compare)(klass, total, direction)
                             : OF_ISA(vt_vec_int_compare)(klass, total, direction);
}

vt_vec_fn vt_vec_convert(vt_vec_class from, vt_vec_class to) {
  return OF_ISA(vt_vec_convert)(from, to);
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
