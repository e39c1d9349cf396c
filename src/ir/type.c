// SPDX-License-Identifier: Apache-2.0
// type.c - see type.h.
#include "base/check.h"
#include "ir/type.h"

#include <inttypes.h>
#include <string.h>

const vt_dtype_info vt_dtype_infos[VT_DTYPE_LIMIT] = {
    [0] = {"?", 0, 0, VT_KIND_NONE, 0, 0},
#define DTYPE(name, value, text, bits, bytes, kind, exponent, mantissa)                            \
  [value] = {text, bits, bytes, VT_KIND_##kind, exponent, mantissa},
#include "ir/dtypes.def"
#undef DTYPE
};

vt_dtype vt_dtype_from_text(const char *text, size_t size) {
  for (int d = 1; d < VT_DTYPE_LIMIT; d++)
    if (vt_dtype_infos[d].text && strlen(vt_dtype_infos[d].text) == size &&
        !memcmp(vt_dtype_infos[d].text, text, size))
      return (vt_dtype)d;
  return VT_DTYPE_INVALID;
}

vt_dtype vt_dtype_unsigned(vt_dtype dtype) {
  for (int d = 1; d < VT_DTYPE_LIMIT && vt_dtype_kind_of(dtype) == VT_KIND_SIGNED; d++)
    if (vt_dtype_infos[d].kind == VT_KIND_UNSIGNED &&
        vt_dtype_infos[d].bits == vt_dtype_infos[dtype].bits)
      return (vt_dtype)d;
  return dtype;
}

vt_type vt_type_make(vt_arena *arena, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  vt_assert(rank >= 0 && rank <= VT_MAX_RANK);
  vt_assert_each(i, rank, dims[i] >= 0);
  int64_t *copy = VT_NEW_ARRAY(arena, int64_t, rank);
  if (rank) memcpy(copy, dims, sizeof *dims * (size_t)rank);
  return (vt_type){dtype, rank, copy};
}

bool vt_type_same_dims(vt_type a, vt_type b) {
  vt_assert(a.rank >= 0 && b.rank >= 0);
  return a.rank == b.rank && (!a.rank || !memcmp(a.dims, b.dims, sizeof *a.dims * (size_t)a.rank));
}

bool vt_type_equal(vt_type a, vt_type b) {
  return a.dtype == b.dtype && vt_type_same_dims(a, b);
}

int64_t vt_type_elements(vt_type type) {
  vt_assert(type.rank >= 0 && type.rank <= VT_MAX_RANK);
  int64_t n = type.dtype == VT_TOKEN ? 0 : 1;
  for (int32_t i = 0; i < type.rank; i++) n *= type.dims[i];
  return n;
}

int64_t vt_type_bytes(vt_type type) {
  vt_assert(vt_dtype_get(type.dtype)->kind);
  return vt_type_elements(type) * (int64_t)vt_dtype_bytes(type.dtype);
}

void vt_type_strides(vt_type type, int64_t *strides) {
  vt_assert(type.rank >= 0 && type.rank <= VT_MAX_RANK);
  int64_t stride = 1;
  for (int32_t i = type.rank; i-- > 0;) {
    strides[i] = stride;
    stride *= type.dims[i];
  }
}

vt_status vt_type_check(vt_type type) {
  if (!vt_dtype_get(type.dtype)->kind)
    return vt_error(VT_INVALID_ARGUMENT, "unknown element type %d", (int)type.dtype);
  if (type.rank < 0 || type.rank > VT_MAX_RANK)
    return vt_error(VT_INVALID_ARGUMENT,
                    "tensor of rank %" PRId32 ": at most %d dimensions are supported", type.rank,
                    VT_MAX_RANK);
  // Zero sizes must not hide an overflow of the others: strides must fit as well.
  int64_t bytes = vt_dtype_bytes(type.dtype) ? (int64_t)vt_dtype_bytes(type.dtype) : 1;
  for (int32_t i = 0; i < type.rank; i++) {
    if (type.dims[i] < 0)
      return vt_error(VT_INVALID_ARGUMENT, "dimension %" PRId32 " has size %" PRId64, i,
                      type.dims[i]);
    int64_t size = type.dims[i] ? type.dims[i] : 1;
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > (int64_t)1 << 62)
      return vt_error(VT_INVALID_ARGUMENT, "tensor too large: its bytes do not fit 62 bits");
  }
  return VT_OK;
}

void vt_type_print(vt_text *text, vt_type type) {
  if (type.dtype == VT_TOKEN) {
    vt_text_put(text, vt_dtype_get(type.dtype)->text);
    return;
  }
  vt_text_put(text, "tensor<");
  for (int32_t i = 0; i < type.rank; i++) vt_text_printf(text, "%" PRId64 "x", type.dims[i]);
  vt_text_printf(text, "%s>", vt_dtype_get(type.dtype)->text);
}
