// SPDX-License-Identifier: Apache-2.0
// text_dense.c - dense<...> in MLIR text: nested lists, one value for all, or a string of hex
// bytes.
//
// The data is kept in the form of the binary encoding (raw.h): elements in whole bytes, one element
// for a splat.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import/text_parser.h"

typedef struct item {
  vt_string text;
  bool is_bool, value;
} item;

typedef struct items {
  VT_ARRAY(item) list;
} items;

static int float_bias(vt_dtype dtype, int exponent_bits) {
  switch (dtype) {
  case VT_F8E4M3B11FNUZ:
    return 11;
  case VT_F8E4M3FNUZ:
    return 8;
  case VT_F8E5M2FNUZ:
    return 16;
  case VT_F8E8M0FNU:
    return 127;
  default:
    return (1 << (exponent_bits - 1)) - 1;
  }
}

// The bits of `value` in a format of at most 16 bits, rounded to nearest even. Text holds values of
// the format itself, with at most rounding noise in the last digits: overflow does not occur and
// gives the largest exponent.
static uint64_t small_float_bits(vt_dtype dtype, double value) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  int mantissa = info->mantissa, bias = float_bias(dtype, info->exponent), exponent;
  uint64_t sign = signbit(value) ? 1 : 0;
  double magnitude = fabs(value);
  if (dtype == VT_F8E8M0FNU) return magnitude > 0 ? (uint64_t)(ilogb(magnitude) + bias) & 0xFF : 0;
  if (magnitude == 0) return sign << (mantissa + info->exponent);
  (void)frexp(magnitude, &exponent);
  int place = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
  double scaled = nearbyint(ldexp(magnitude, mantissa - place));
  uint64_t bits = scaled < (double)(1 << 20) ? (uint64_t)scaled : 0;
  if (place > 1 - bias || bits >> mantissa) bits += (uint64_t)(place + bias - 1) << mantissa;
  return bits | sign << (mantissa + info->exponent);
}

static bool is_hex(vt_string t) {
  return t.size > 2 && memchr(t.data, 'x', t.size);
}

static uint64_t integer_bits(vt_string t) {
  char buffer[40] = {0};
  memcpy(buffer, t.data, t.size < 39 ? t.size : 39);
  if (buffer[0] == '-' && is_hex(t)) return 0 - strtoull(buffer + 1, NULL, 16);
  return buffer[0] == '-' ? 0 - strtoull(buffer + 1, NULL, 10)
                          : strtoull(buffer, NULL, is_hex(t) ? 16 : 10);
}

// Bits of one number of a real element type.
static uint64_t number_bits(vt_dtype dtype, vt_string t) {
  uint64_t bits = 0;
  if (vt_dtype_kind_of(dtype) != VT_KIND_FLOAT || is_hex(t)) return integer_bits(t);
  double value = vt_parse_double(t);
  if (dtype == VT_F64) {
    memcpy(&bits, &value, sizeof value);
  } else if (dtype == VT_F32) {
    float narrow = (float)value;
    memcpy(&bits, &narrow, sizeof narrow);
  } else {
    bits = small_float_bits(dtype, value);
  }
  return bits;
}

// Elements in order; brackets only group them.
static void parse_items(vt_parser *p, items *out) {
  int depth = 0;
  do {
    while (vt_parse_take(p, "[")) depth++;
    bool closes = vt_parse_peek(p, "]") || vt_parse_peek(p, ">");
    if (!closes) {
      item one = {.is_bool = true, .value = true};
      bool complex = vt_parse_take(p, "(");
      do {
        one.is_bool = vt_parse_take(p, "true") || (one.value = false, vt_parse_take(p, "false"));
        if (!one.is_bool && !vt_parse_number(p, &one.text))
          vt_parse_fail(p, VT_INVALID_ARGUMENT, "an element was expected");
        vt_array_push_in(p->arena, &out->list, one);
        one.value = true;
      } while (complex && vt_parse_ok(p) && vt_parse_take(p, ","));
      if (complex) vt_parse_expect(p, ")");
    }
    while (vt_parse_take(p, "]")) depth--;
  } while (vt_parse_ok(p) && vt_parse_take(p, ","));
  if (depth) vt_parse_fail(p, VT_INVALID_ARGUMENT, "brackets do not match");
}

vt_bytes vt_parse_hex(vt_parser *p, vt_string text) {
  size_t size = text.size >= 2 ? (text.size - 2) / 2 : 0;
  uint8_t *bytes = VT_NEW_ARRAY(p->arena, uint8_t, size + 1);
  if (text.size < 2 || text.size % 2 || memcmp(text.data, "0x", 2))
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "hexadecimal data was expected");
  for (size_t i = 0; i < size && vt_parse_ok(p); i++) {
    char pair[3] = {text.data[2 + 2 * i], text.data[3 + 2 * i], 0}, *end;
    bytes[i] = (uint8_t)strtoul(pair, &end, 16);
    if (end != pair + 2) vt_parse_fail(p, VT_INVALID_ARGUMENT, "hexadecimal data was expected");
  }
  return (vt_bytes){bytes, size};
}

// Bytes of the collected elements: one for a splat, else all.
static vt_bytes encode(vt_parser *p, const vt_raw_type *type, const items *list) {
  vt_dtype dtype = type->dtype, part = dtype == VT_C64 ? VT_F32 : dtype == VT_C128 ? VT_F64 : dtype;
  size_t each = vt_dtype_bytes(part), parts = part == dtype ? 1 : 2,
         count = list->list.size / parts;
  int64_t wanted = vt_raw_elements(type);
  if (list->list.size % parts || (count != 1 && (int64_t)count != wanted)) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "%zu elements for a tensor of %" PRId64, count, wanted);
    return (vt_bytes){0};
  }
  uint8_t *bytes = VT_NEW_ARRAY(p->arena, uint8_t, count *parts *each + 1);
  for (size_t i = 0; i < list->list.size; i++) {
    const item *one = &list->list.data[i];
    uint64_t bits = one->is_bool ? (one->value ? (count == 1 && wanted != 1 ? 0xFF : 1) : 0)
                                 : number_bits(part, one->text);
    if (one->is_bool != (dtype == VT_PRED))
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "an element has a different type");
    for (size_t b = 0; b < each; b++) bytes[i * each + b] = (uint8_t)(bits >> (8 * b));
  }
  return (vt_bytes){bytes, count * parts * each};
}

const vt_raw_attr *vt_parse_dense(vt_parser *p) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_DENSE);
  items list = {0};
  vt_string hex = {NULL, 0};
  vt_parse_expect(p, "<");
  if (vt_parse_peek_char(p, '"'))
    hex = vt_parse_quoted(p);
  else if (!vt_parse_peek_char(p, '>'))
    parse_items(p, &list);
  vt_parse_expect(p, ">");
  vt_parse_expect(p, ":");
  attr->type = vt_parse_type(p);
  if (!vt_parse_ok(p)) return attr;
  if (attr->type->kind != VT_RAW_TENSOR || !attr->type->dtype) {
    vt_parse_fail(p, VT_UNIMPLEMENTED, "dense data of %s",
                  attr->type->what ? attr->type->what : "this type");
  } else if (hex.data) {
    attr->data = vt_parse_hex(p, hex);
  } else if (list.list.size) {
    attr->data = encode(p, attr->type, &list);
  } else if (vt_raw_elements(attr->type)) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "dense data is missing");
  }
  return attr;
}
