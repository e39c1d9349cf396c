// SPDX-License-Identifier: Apache-2.0
// type.h - element types and tensor types. Shapes are static; dimension sizes are >= 0, and the
// product of sizes and element bytes fits in int64 (vt_type_check checks this where types are made
// from untrusted data).
#ifndef VT_IR_TYPE_H
#define VT_IR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

typedef enum vt_dtype {
  VT_DTYPE_INVALID = 0,
#define DTYPE(name, value, text, bits, bytes, kind, exponent, mantissa) VT_##name = value,
#include "ir/dtypes.def"
#undef DTYPE
  VT_DTYPE_LIMIT
} vt_dtype;

typedef enum vt_dtype_kind {
  VT_KIND_NONE,
  VT_KIND_BOOL,
  VT_KIND_SIGNED,
  VT_KIND_UNSIGNED,
  VT_KIND_FLOAT,
  VT_KIND_COMPLEX,
  VT_KIND_TOKEN
} vt_dtype_kind;

typedef struct vt_dtype_info {
  const char *text;    // as MLIR prints it
  uint8_t bits, bytes; // bytes of one element in host memory
  uint8_t kind;        // vt_dtype_kind
  uint8_t exponent, mantissa;
} vt_dtype_info;

extern const vt_dtype_info vt_dtype_infos[VT_DTYPE_LIMIT];
// A row of zeros and "?" when not in the table.
static inline const vt_dtype_info *vt_dtype_get(vt_dtype dtype) {
  if ((int)dtype < 0 || dtype >= VT_DTYPE_LIMIT || !vt_dtype_infos[dtype].text)
    return &vt_dtype_infos[0];
  return &vt_dtype_infos[dtype];
}
vt_dtype vt_dtype_from_text(const char *text, size_t size); // VT_DTYPE_INVALID when unknown
vt_dtype vt_dtype_unsigned(vt_dtype dtype); // of a signed integer; any other type is kept
static inline size_t vt_dtype_bytes(vt_dtype dtype) {
  return vt_dtype_get(dtype)->bytes;
}
static inline vt_dtype_kind vt_dtype_kind_of(vt_dtype dtype) {
  return (vt_dtype_kind)vt_dtype_get(dtype)->kind;
}
static inline bool vt_dtype_is_float(vt_dtype d) {
  return vt_dtype_kind_of(d) == VT_KIND_FLOAT;
}
static inline bool vt_dtype_is_complex(vt_dtype d) {
  return vt_dtype_kind_of(d) == VT_KIND_COMPLEX;
}
static inline bool vt_dtype_is_integer(vt_dtype d) {
  vt_dtype_kind k = vt_dtype_kind_of(d);
  return k == VT_KIND_SIGNED || k == VT_KIND_UNSIGNED;
}

// A tensor type (or a token: dtype VT_TOKEN, rank 0). `dims` is borrowed, usually from a module's
// arena.
typedef struct vt_type {
  vt_dtype dtype;
  int32_t rank;
  const int64_t *dims;
} vt_type;

// The maximum rank of a tensor: import rejects more, so kernels may use fixed arrays.
enum { VT_MAX_RANK = 32 };

vt_type vt_type_make(vt_arena *arena, vt_dtype dtype, int32_t rank, const int64_t *dims);
bool vt_type_equal(vt_type a, vt_type b); // element type and dimensions
bool vt_type_same_dims(vt_type a, vt_type b);
int64_t vt_type_elements(vt_type type); // 1 for rank 0; 0 for a token
int64_t vt_type_bytes(vt_type type);    // dense host bytes
// Row-major strides in elements, `strides` has room for rank numbers.
void vt_type_strides(vt_type type, int64_t *strides);
// errors INVALID_ARGUMENT: rank above VT_MAX_RANK, negative size, or bytes beyond 2^62
vt_status vt_type_check(vt_type type) VT_CHECKED;
void vt_type_print(vt_text *text, vt_type type); // tensor<2x3xf32>, !stablehlo.token

#endif
