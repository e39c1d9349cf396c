// SPDX-License-Identifier: Apache-2.0
// vec.h - the loops over contiguous arrays, built once per instruction set and selected at process
// startup.
//
// Narrow types have no loops: small floats are widened to F32 and narrowed again block by block
// (eltwise.c); 2- and 4-bit integers use the 8-bit loops with their width. Loops may write where
// they read, at the same index. Rounding is the same on every instruction set, except in matrix
// products (fused multiply-add).
#ifndef VT_EVAL_VEC_H
#define VT_EVAL_VEC_H

#include <stdbool.h>

#include "ir/ops.h"
#include "ir/type.h"

typedef enum vt_vec_class {
  VT_VEC_PRED,
  VT_VEC_S8,
  VT_VEC_S16,
  VT_VEC_S32,
  VT_VEC_S64,
  VT_VEC_U8,
  VT_VEC_U16,
  VT_VEC_U32,
  VT_VEC_U64,
  VT_VEC_F32,
  VT_VEC_F64,
  VT_VEC_C64,
  VT_VEC_C128,
  VT_VEC_CLASSES,
  VT_VEC_NONE
} vt_vec_class;

// n elements; b and c are NULL for ops with fewer operands. `width` is the number of bits of an
// integer type.
typedef void (*vt_vec_fn)(int64_t n, const void *a, const void *b, const void *c, void *out,
                          int32_t width);

// c[0..rows)[0..cols) += a[rows][depth] * b[depth][cols] (row strides in elements; cols need not be
// a multiple of the tile width). Accumulates over depth in ascending order.
typedef void (*vt_vec_matmul_fn)(int64_t rows, int64_t cols, int64_t depth, const void *a,
                                 int64_t a_stride, const void *b, int64_t b_stride, void *c,
                                 int64_t c_stride);

// The loop of an op; of a comparison, in total order or not, of a VT_CMP_*, with a result of bool;
// of a conversion between real classes. NULL: there is none.
vt_vec_fn vt_vec_op(vt_vec_class klass, vt_opcode code);
vt_vec_fn vt_vec_compare(vt_vec_class klass, bool total, int64_t direction);
vt_vec_fn vt_vec_convert(vt_vec_class from, vt_vec_class to);

vt_vec_matmul_fn
vt_vec_matmul(vt_vec_class klass); // F32, F64 and integers of 32 and 64 bits, which wrap

typedef struct vt_vec_table {
  vt_vec_fn select[5]; // by log2 of the element bytes; a = predicate
  vt_vec_fn widen_bf16, narrow_bf16, widen_f16, narrow_f16,
      round_bf16; // to and from f32; f32 to f32
} vt_vec_table;

const vt_vec_table *vt_vec(void);

// The class whose loops compute an element type; VT_VEC_F32 for small floats, VT_VEC_NONE for
// tokens.
vt_vec_class vt_vec_class_of(vt_dtype dtype);
// Bits an integer loop wraps at; 0 for other types.
int32_t vt_vec_width_of(vt_dtype dtype);
// True for float types that have no loops of their own.
bool vt_vec_is_narrow(vt_dtype dtype);

// Of the files that are built per instruction set (VT_ISA is v2, v3 or v4).
#define VT_VEC_PASTE2(a, b) a##_##b
#define VT_VEC_PASTE(a, b)  VT_VEC_PASTE2(a, b)
#ifdef VT_ISA
#define VT_VEC_NAME(name) VT_VEC_PASTE(name, VT_ISA)
#endif
#define VT_VEC_PARTS(isa)                                                                          \
  vt_vec_fn vt_vec_float_op_##isa(vt_vec_class klass, vt_opcode code);                             \
  vt_vec_fn vt_vec_int_op_##isa(vt_vec_class klass, vt_opcode code);                               \
  vt_vec_fn vt_vec_complex_op_##isa(vt_vec_class klass, vt_opcode code);                           \
  vt_vec_fn vt_vec_float_compare_##isa(vt_vec_class klass, bool total, int64_t direction);         \
  vt_vec_fn vt_vec_int_compare_##isa(vt_vec_class klass, bool total, int64_t direction);           \
  vt_vec_fn vt_vec_complex_compare_##isa(vt_vec_class klass, bool total, int64_t direction);       \
  vt_vec_fn vt_vec_convert_##isa(vt_vec_class from, vt_vec_class to);                              \
  vt_vec_matmul_fn vt_vec_matmul_##isa(vt_vec_class klass);                                        \
  extern const vt_vec_table vt_vec_loops_##isa;
VT_VEC_PARTS(v2)
VT_VEC_PARTS(v3)
VT_VEC_PARTS(v4)

// Two small numbers as one, to choose by both.
#define VT_VEC_KEY(a, b) ((int)(a) << 8 | (int)(b))
#define VT_VEC_CASE(a, b, loop)                                                                    \
  case VT_VEC_KEY(a, b):                                                                           \
    return loop;
_Static_assert(VT_OP_COUNT <= 256, "an opcode takes a byte");

// Requests a vectorised loop whose outputs may equal its inputs.
#ifdef __clang__
#define VT_VEC_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define VT_VEC_LOOP _Pragma("GCC ivdep")
#endif

#endif
