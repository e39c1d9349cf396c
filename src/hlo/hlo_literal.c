// SPDX-License-Identifier: Apache-2.0
// hlo_literal.c - constants, strings and dictionaries as text.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/hlo_writers.h"
#include "ir/number.h"

// The shorter of the two usual numbers of digits that gives the same value again.
static void put_float(vt_text *out, double value, int digits, int more) {
  char text[96];
  if (isnan(value)) {
    vt_text_put(out, signbit(value) ? "-nan" : "nan");
    return;
  }
  snprintf(text, sizeof text, "%.*g", digits, value);
  double again = digits < 9 ? (double)strtof(text, NULL) : strtod(text, NULL);
  if (again != value) snprintf(text, sizeof text, "%.*g", more, value);
  vt_text_put(out, text);
}

static void put_element(vt_text *out, vt_dtype dtype, const void *data, bool in_row) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  int64_t i = 0;
  uint64_t u = 0;
  float f[2] = {0};
  double d[2] = {0};
  switch (info->kind) {
  case VT_KIND_BOOL:
    vt_text_put(out, *(const uint8_t *)data ? (in_row ? "1" : "true") : in_row ? "0" : "false");
    return;
  case VT_KIND_SIGNED:
    memcpy(&u, data, info->bytes);
    i = (int64_t)(u << (64 - 8 * info->bytes)) >> (64 - 8 * info->bytes);
    vt_text_printf(out, "%" PRId64, i);
    return;
  case VT_KIND_UNSIGNED:
    memcpy(&u, data, info->bytes);
    vt_text_printf(out, "%" PRIu64, u);
    return;
  case VT_KIND_COMPLEX:
    vt_text_put(out, "(");
    memcpy(dtype == VT_C64 ? (void *)f : (void *)d, data, info->bytes);
    for (int part = 0; part < 2; part++) {
      if (part) vt_text_put(out, ", ");
      put_float(out, dtype == VT_C64 ? (double)f[part] : d[part], dtype == VT_C64 ? 6 : 15,
                dtype == VT_C64 ? 9 : 17);
    }
    vt_text_put(out, ")");
    return;
  default:
    break;
  }
  if (dtype == VT_F64) {
    memcpy(d, data, sizeof *d);
    put_float(out, d[0], 15, 17);
  } else if (dtype == VT_F32) {
    memcpy(f, data, sizeof *f);
    put_float(out, (double)f[0], 6, 9);
  } else {
    // A format with p bits of mantissa needs up to 2 + p * log10(2) digits.
    float value;
    vt_float_widen(dtype, 1, data, &value);
    put_float(out, value, 2 + (info->mantissa + 1) * 30103 / 100000,
              2 + (info->mantissa + 1) * 30103 / 100000);
  }
}

// A row of elements is {1, 2}, of a larger array { 1, 2 }; what holds rows has spaces, and past
// three dimensions it is numbered.
static void put_open(vt_text *out, vt_type type, int32_t depth, int64_t index) {
  bool row = depth + 1 == type.rank;
  vt_text_put(out, "{");
  if (type.rank == 1 || (row && type.dims[depth] <= 1)) return;
  if (!row && type.rank > 3 && depth) vt_text_printf(out, " /*i%d=%" PRId64 "*/", depth - 1, index);
  vt_text_put(out, " ");
}

static void put_nested(vt_text *out, const vt_literal *literal, int32_t depth, int64_t index,
                       int64_t *at) {
  vt_type type = literal->type;
  size_t bytes = vt_dtype_bytes(type.dtype);
  if (depth == type.rank) {
    size_t element = (size_t)(literal->splat ? 0 : *at);
    put_element(out, type.dtype, (const char *)literal->data + bytes * element, type.rank > 0);
    ++*at;
    return;
  }
  int64_t count = type.dims[depth];
  put_open(out, type, depth, index);
  for (int64_t i = 0; i < count; i++) {
    if (i) vt_text_put(out, ", ");
    put_nested(out, literal, depth + 1, i, at);
  }
  bool row = depth + 1 == type.rank;
  bool numbered = !row && type.rank > 3 && depth;
  bool tight = type.rank == 1 || (row && count <= 1) || (numbered && !count);
  vt_text_put(out, tight ? "}" : " }");
}

void vt_hlo_put_literal(vt_text *out, const vt_literal *literal, int64_t largest) {
  int64_t at = 0;
  if (vt_type_elements(literal->type) > largest)
    vt_text_put(out, "{...}");
  else
    put_nested(out, literal, 0, 0, &at);
}

void vt_hlo_put_quoted(vt_text *out, vt_string string) {
  vt_text_put(out, "\"");
  for (size_t i = 0; i < string.size; i++) {
    unsigned char c = (unsigned char)string.data[i];
    if (c == '"' || c == '\\' || c == '\'')
      vt_text_printf(out, "\\%c", c);
    else if (c == '\n')
      vt_text_put(out, "\\n");
    else if (c == '\t')
      vt_text_put(out, "\\t");
    else if (c == '\r')
      vt_text_put(out, "\\r");
    else if (c >= 32 && c < 127)
      vt_text_printf(out, "%c", c);
    else
      vt_text_printf(out, "\\%03o", c);
  }
  vt_text_put(out, "\"");
}

void vt_hlo_put_value(vt_text *out, const vt_dict_value *value) {
  switch (value->kind) {
  case VT_DICT_UNIT:
    vt_text_put(out, "unit");
    break;
  case VT_DICT_BOOL:
    vt_text_put(out, value->i64 ? "true" : "false");
    break;
  case VT_DICT_I64:
    vt_text_printf(out, "%" PRId64 " : i64", value->i64);
    break;
  case VT_DICT_F64:
    vt_text_printf(out, "%.17e : f64", value->f64);
    break;
  case VT_DICT_STRING:
    vt_hlo_put_quoted(out, value->string);
    break;
  case VT_DICT_ARRAY:
    vt_text_put(out, "[");
    for (size_t i = 0; i < value->count; i++) {
      if (i) vt_text_put(out, ", ");
      vt_hlo_put_value(out, &value->items[i]);
    }
    vt_text_put(out, "]");
    break;
  case VT_DICT_DICT:
    vt_hlo_put_dict(out, value);
    break;
  }
}

void vt_hlo_put_dict(vt_text *out, const vt_dict_value *dict) {
  vt_text_put(out, "{");
  for (size_t i = 0; dict && i < dict->count; i++) {
    vt_text_printf(out, "%s%s = ", i ? ", " : "", dict->entries[i].name.data);
    vt_hlo_put_value(out, dict->entries[i].value);
  }
  vt_text_put(out, "}");
}
