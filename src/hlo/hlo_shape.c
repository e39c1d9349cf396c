// SPDX-License-Identifier: Apache-2.0
// hlo_shape.c - element types, shapes and the table of fields.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "hlo/hlo_writers.h"

// Numbers of openxla/xla's xla_data.proto: PrimitiveType, and the fields of LiteralProto.
static const vt_hlo_dtype dtypes[VT_DTYPE_LIMIT] = {
    [VT_PRED] = {"pred", 1, 2},
    [VT_S2] = {"s2", 26, 26},
    [VT_S4] = {"s4", 21, 21},
    [VT_S8] = {"s8", 2, 15},
    [VT_S16] = {"s16", 3, 17},
    [VT_S32] = {"s32", 4, 4},
    [VT_S64] = {"s64", 5, 5},
    [VT_U2] = {"u2", 27, 27},
    [VT_U4] = {"u4", 22, 22},
    [VT_U8] = {"u8", 6, 3},
    [VT_U16] = {"u16", 7, 16},
    [VT_U32] = {"u32", 8, 6},
    [VT_U64] = {"u64", 9, 7},
    [VT_F16] = {"f16", 10, 11},
    [VT_F32] = {"f32", 11, 8},
    [VT_F64] = {"f64", 12, 9},
    [VT_BF16] = {"bf16", 16, 13},
    [VT_C64] = {"c64", 15, 12},
    [VT_C128] = {"c128", 18, 18},
    [VT_F8E5M2] = {"f8e5m2", 19, 19},
    [VT_F8E4M3] = {"f8e4m3", 28, 28},
    [VT_F8E4M3FN] = {"f8e4m3fn", 20, 20},
    [VT_F8E4M3B11FNUZ] = {"f8e4m3b11fnuz", 23, 23},
    [VT_F8E5M2FNUZ] = {"f8e5m2fnuz", 24, 24},
    [VT_F8E4M3FNUZ] = {"f8e4m3fnuz", 25, 25},
    [VT_F8E3M4] = {"f8e3m4", 29, 29},
    [VT_F8E8M0FNU] = {"f8e8m0fnu", 33, 33},
    [VT_F4E2M1FN] = {"f4e2m1fn", 32, 32},
    [VT_F6E2M3FN] = {"f6e2m3fn", 36, 36},
    [VT_F6E3M2FN] = {"f6e3m2fn", 35, 35},
    [VT_TOKEN] = {"token", 17, 0},
};

const vt_hlo_dtype *vt_hlo_dtype_get(vt_dtype dtype) {
  vt_assert(dtypes[dtype].text);
  return &dtypes[dtype];
}

static const vt_hlo_field_info fields[] = {
#define FIELD(key, parent, number, text, form) {parent, number, text, VT_HLO_##form},
#include "hlo/hlo_fields.def"
#undef FIELD
};

const vt_hlo_field_info *vt_hlo_field_get(vt_hlo_field field) {
  return &fields[field];
}

vt_hlo_attr *vt_hlo_add_attr(vt_arena *arena, vt_hlo_instruction *instruction, vt_hlo_field field) {
  vt_hlo_attr *attr = VT_NEW(arena, vt_hlo_attr), **at = &instruction->attrs;
  while (*at && (*at)->field < field) at = &(*at)->next;
  attr->field = field;
  attr->next = *at;
  return *at = attr;
}

const vt_hlo_attr *vt_hlo_find(const vt_hlo_instruction *instruction, vt_hlo_field field) {
  for (const vt_hlo_attr *attr = instruction->attrs; attr; attr = attr->next)
    if (attr->field == field) return attr;
  return NULL;
}

uint32_t vt_hlo_leaves(const vt_hlo_shape *shape) {
  uint32_t leaves = shape->tuple ? 0 : 1;
  for (uint32_t i = 0; i < shape->count; i++) leaves += vt_hlo_leaves(shape->parts[i]);
  return leaves;
}

static const char *const *words_of(vt_hlo_field field, size_t *out_count) {
  static const char *const ffts[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  static const char *const rngs[] = {"rng_default", "rng_three_fry", "rng_philox"};
  static const char *const distributions[] = {"rng_invalid", "rng_uniform", "rng_normal"};
  static const char *const transposes[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE",
                                           "ADJOINT"};
  static const char *const versions[] = {
      "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
      "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
  static const char *const dots[] = {
#define ALGORITHM(text, lhs, rhs, sum, products) text,
#include "hlo/hlo_algorithms.def"
#undef ALGORITHM
  };
  static const char *const precisions[] = {"default", "high", "highest"};
#define WORDS(list) (*out_count = sizeof(list) / sizeof *(list), list)
  switch (field) {
  case VT_HLO_FIELD_FFT_TYPE:
    return WORDS(ffts);
  case VT_HLO_FIELD_ALGORITHM:
    return WORDS(rngs);
  case VT_HLO_FIELD_DISTRIBUTION:
    return WORDS(distributions);
  case VT_HLO_FIELD_TRANSPOSE_A:
    return WORDS(transposes);
  case VT_HLO_FIELD_DOT_ALGORITHM:
    return WORDS(dots);
  case VT_HLO_FIELD_PRECISION:
    return WORDS(precisions);
  default:
    return WORDS(versions);
  }
#undef WORDS
}

const char *vt_hlo_word(vt_hlo_field field, int64_t value) {
  size_t count;
  const char *const *words = words_of(field, &count);
  return words[value >= 0 && value < (int64_t)count ? value : 0];
}

int64_t vt_hlo_word_value(vt_hlo_field field, vt_string word) {
  size_t count;
  const char *const *words = words_of(field, &count);
  for (size_t i = 0; i < count; i++)
    if (strlen(words[i]) == word.size && !memcmp(words[i], word.data, word.size)) return (int64_t)i;
  return -1;
}

vt_dtype vt_hlo_dtype_named(vt_string text) {
  for (int d = 0; d < VT_DTYPE_LIMIT; d++)
    if (dtypes[d].text && strlen(dtypes[d].text) == text.size &&
        !memcmp(dtypes[d].text, text.data, text.size))
      return (vt_dtype)d;
  return VT_DTYPE_INVALID;
}

vt_dtype vt_hlo_dtype_numbered(uint64_t number) {
  for (int d = 0; d < VT_DTYPE_LIMIT; d++)
    if (dtypes[d].text && dtypes[d].number == number) return (vt_dtype)d;
  return VT_DTYPE_INVALID;
}

void vt_hlo_layout_order(const vt_hlo_shape *shape, int64_t *out_order) {
  const char *at = shape->layout;
  for (int32_t i = 0; i < shape->type.rank; i++) {
    out_order[i] = shape->type.rank - 1 - i;
    if (!at) continue;
    char *end;
    out_order[i] = strtoll(at + 1, &end, 10); // after the bracket or a comma
    at = end;
  }
}

static void put_layout(vt_text *out, const vt_hlo_shape *shape) {
  int32_t rank = shape->type.rank;
  if (!rank && !shape->host) return;
  int64_t order[VT_MAX_RANK + 1];
  vt_hlo_layout_order(shape, order);
  for (int32_t i = 0; i < rank; i++) vt_text_printf(out, "%s%" PRId64, i ? "," : "{", order[i]);
  vt_text_printf(out, "%s%s}", rank ? "" : "{", shape->host ? ":S(5)" : "");
}

void vt_hlo_put_type(vt_text *out, vt_type type) {
  vt_text_printf(out, "%s[", vt_hlo_dtype_get(type.dtype)->text);
  for (int32_t d = 0; d < type.rank; d++)
    vt_text_printf(out, "%s%" PRId64, d ? "," : "", type.dims[d]);
  vt_text_put(out, "]");
}

void vt_hlo_put_shape(vt_text *out, const vt_hlo_shape *shape, bool layouts) {
  if (shape->tuple) {
    vt_text_put(out, "(");
    for (uint32_t i = 0; i < shape->count; i++) {
      if (i) vt_text_put(out, ", ");
      if (i && i % 5 == 0) vt_text_printf(out, "/*index=%u*/", i);
      vt_hlo_put_shape(out, shape->parts[i], layouts);
    }
    vt_text_put(out, ")");
    return;
  }
  vt_hlo_put_type(out, shape->type);
  if (layouts) put_layout(out, shape);
}
