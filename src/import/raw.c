// SPDX-License-Identifier: Apache-2.0
// raw.c - queries on the tree, for readers and lowering.
#include "import/raw.h"

#include <inttypes.h>
#include <string.h>

bool vt_string_is(vt_string string, const char *text) {
  return string.size == strlen(text) && !memcmp(string.data, text, string.size);
}

const vt_raw_attr *vt_raw_find(const vt_raw_op *op, const char *name) {
  for (uint32_t i = 0; i < op->attr_count; i++)
    if (vt_string_is(op->attrs[i].name, name)) return op->attrs[i].value;
  return NULL;
}

const vt_raw_attr *vt_raw_dict_find(const vt_raw_attr *dict, const char *name) {
  if (!dict || dict->kind != VT_RAW_DICT) return NULL;
  for (uint32_t i = 0; i < dict->count; i++)
    if (vt_string_is(dict->names[i], name)) return dict->items[i];
  return NULL;
}

bool vt_raw_attr_measure(vt_raw_attr *attr) {
  bool has_items = attr->items != NULL;
  attr->height = attr->weight = 1;
  for (uint32_t i = 0; has_items && i < attr->count; i++) {
    const vt_raw_attr *item = attr->items[i];
    if (item->height >= attr->height) attr->height = item->height + 1;
    if (__builtin_add_overflow(attr->weight, item->weight, &attr->weight))
      attr->weight = UINT32_MAX;
  }
  return attr->height <= VT_RAW_MAX_HEIGHT;
}

bool vt_raw_type_measure(vt_raw_type *type) {
  bool list =
      type->kind == VT_RAW_TUPLE || type->kind == VT_RAW_FUTURE || type->kind == VT_RAW_FUNCTION;
  uint64_t leaves = list ? 0 : 1;
  type->height = 1;
  for (uint32_t i = 0; i < type->count; i++) {
    if (type->items[i]->height >= type->height) type->height = type->items[i]->height + 1;
    leaves += type->items[i]->leaves;
  }
  type->leaves = leaves <= VT_RAW_MAX_LEAVES ? (uint32_t)leaves : VT_RAW_MAX_LEAVES;
  return leaves <= VT_RAW_MAX_LEAVES && type->height <= VT_RAW_MAX_HEIGHT;
}

int64_t vt_raw_elements(const vt_raw_type *type) {
  int64_t n = 1;
  bool empty = false;
  for (int32_t i = 0; i < type->rank; i++) {
    if (type->dims[i] < 0) return -1;
    if (!type->dims[i])
      empty = true;
    else if (__builtin_mul_overflow(n, type->dims[i], &n))
      return -1;
  }
  return empty ? 0 : n;
}

static vt_status dense_bools(vt_arena *arena, vt_bytes data, int64_t count, const void **out_data,
                             bool *out_splat) {
  uint64_t n = (uint64_t)count;
  *out_splat = n > 1 && data.size == 1 && (data.data[0] == 0xFF || (data.data[0] == 0 && n > 8));
  uint8_t *bools = VT_NEW_ARRAY(arena, uint8_t,
                                *out_splat       ? 1
                                : data.size == n ? n
                                                 : data.size * 8);
  *out_data = bools;
  if (*out_splat) {
    bools[0] = data.data[0] != 0;
  } else if (data.size == n && !(n == 1 && data.data[0] == 0xFE)) {
    for (uint64_t i = 0; i < n; i++) bools[i] = data.data[i] != 0;
  } else if (data.size == n / 8 + (n % 8 != 0)) {
    for (uint64_t i = 0; i < n; i++) bools[i] = (data.data[i / 8] >> (i % 8)) & 1;
  } else {
    return vt_error(VT_INVALID_ARGUMENT, "%zu bytes of data for %" PRId64 " bools", data.size,
                    count);
  }
  return VT_OK;
}

static const void *extend_small(vt_arena *arena, vt_bytes data, const vt_dtype_info *info) {
  uint8_t *bytes = VT_NEW_ARRAY(arena, uint8_t, data.size);
  int shift = 8 - info->bits;
  for (size_t i = 0; i < data.size; i++) {
    uint8_t top = (uint8_t)(data.data[i] << shift);
    int value = info->kind == VT_KIND_SIGNED ? (int8_t)top >> shift : top >> shift;
    bytes[i] = (uint8_t)value;
  }
  return bytes;
}

vt_status vt_raw_dense(vt_arena *arena, vt_bytes data, vt_dtype dtype, int64_t count,
                       const void **out_data, bool *out_splat) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  size_t each = info->bytes;
  *out_splat = false;
  *out_data = "";
  if (!count) return VT_OK; // a splat may be left over in the data
  if (dtype == VT_PRED) return dense_bools(arena, data, count, out_data, out_splat);
  *out_splat = each && count > 1 && data.size == each;
  if (!each || (!*out_splat && (data.size % each || data.size / each != (uint64_t)count)))
    return vt_error(VT_INVALID_ARGUMENT, "%zu bytes of data for %" PRId64 " elements of %s",
                    data.size, count, info->text);
  *out_data = info->bits < 8 ? extend_small(arena, data, info) : data.data;
  return VT_OK;
}

static int64_t load_int(const uint8_t *p, size_t bytes, bool is_signed) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= (uint64_t)p[i] << (8 * i);
  unsigned shift = 64 - 8 * (unsigned)bytes;
  return is_signed ? (int64_t)(value << shift) >> shift : (int64_t)value;
}

enum { MAX_SPLAT_INTS = 4096 };

static bool dense_ints(vt_arena *arena, const vt_raw_attr *attr, uint32_t *out_count,
                       const int64_t **out_ints) {
  const vt_raw_type *type = attr->type;
  if (attr->dense) {
    *out_count = attr->dense_count;
    *out_ints = attr->dense;
    return true;
  }
  vt_dtype dtype = type->kind == VT_RAW_TENSOR ? type->dtype : VT_DTYPE_INVALID;
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  int64_t count = dtype ? vt_raw_elements(type) : -1;
  if (kind != VT_KIND_BOOL && kind != VT_KIND_SIGNED && kind != VT_KIND_UNSIGNED) return false;
  if (count < 0 || count > 1 << 20) return false;
  const void *data;
  bool splat;
  if (count > MAX_SPLAT_INTS && attr->data.size <= 8)
    return false; // not a list of numbers that has a meaning here
  vt_status st = vt_raw_dense(arena, attr->data, dtype, count, &data, &splat);
  if (st) {
    vt_status_free(st);
    return false;
  }
  size_t each = vt_dtype_bytes(dtype);
  int64_t *ints = VT_NEW_ARRAY(arena, int64_t, count ? count : 1);
  for (int64_t i = 0; i < count; i++)
    ints[i] = load_int((const uint8_t *)data + (splat ? 0 : (size_t)i * each), each,
                       kind == VT_KIND_SIGNED);
  vt_raw_attr *memo =
      (vt_raw_attr *)attr; // the reader creates attributes, never in constant memory
  memo->dense = *out_ints = ints;
  memo->dense_count = *out_count = (uint32_t)count;
  return true;
}

bool vt_raw_ints(vt_arena *arena, const vt_raw_attr *attr, uint32_t *out_count,
                 const int64_t **out_ints) {
  switch (attr->kind) {
  case VT_RAW_DENSE:
  case VT_RAW_RESOURCE:
    return dense_ints(arena, attr, out_count, out_ints);
  case VT_RAW_INTS:
    *out_count = attr->count;
    *out_ints = attr->ints;
    return true;
  case VT_RAW_INT:
  case VT_RAW_ENUM:
  case VT_RAW_BOOL:
    *out_count = 1;
    *out_ints = &attr->i64;
    return true;
  case VT_RAW_ARRAY:
    break;
  default:
    return false;
  }
  int64_t *ints = VT_NEW_ARRAY(arena, int64_t, attr->count);
  for (uint32_t i = 0; i < attr->count; i++) {
    vt_raw_attr_kind kind = attr->items[i]->kind;
    if (kind != VT_RAW_INT && kind != VT_RAW_ENUM && kind != VT_RAW_BOOL) return false;
    ints[i] = attr->items[i]->i64;
  }
  *out_count = attr->count;
  *out_ints = ints;
  return true;
}
