// SPDX-License-Identifier: Apache-2.0
// attributes.c - attribute entries of the builtin, VHLO and Shardy dialects.
// Source: BuiltinDialectBytecode (LLVM 21; affine maps and strides as jaxlib 0.11 writes them, LLVM
// 24), VhloBytecode (StableHLO 1.20.0), Shardy's bytecode.td (0.0.2).
// An encoding that nothing here needs becomes VT_RAW_OTHER; a later use of it is an error.
#include "import/container.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void decode_entry(vt_container *box, vt_entry *entry, vt_raw_attr *attr) {
  vt_cursor inner = vt_container_range(box, entry->at, entry->end);
  vt_dialect dialect = box->dialects[entry->dialect];
  attr->kind = entry->encoded ? VT_RAW_OTHER : VT_RAW_TEXT;
  if (!entry->encoded) attr->string = vt_container_text(box, entry);
  if (!entry->encoded || dialect == VT_DIALECT_OTHER || dialect == VT_DIALECT_STABLEHLO) return;
  uint64_t code = vt_cursor_varint(&inner);
  if (dialect == VT_DIALECT_BUILTIN)
    vt_decode_builtin_attr(box, &inner, code, attr);
  else if (dialect == VT_DIALECT_VHLO)
    vt_decode_vhlo_attr(box, &inner, code, attr);
  else
    vt_decode_sdy_attr(box, &inner, code, attr);
  if (inner.at != inner.end && attr->kind != VT_RAW_OTHER)
    vt_cursor_fail(&inner, "%zu bytes left over in an attribute", inner.end - inner.at);
}

vt_raw_attr *vt_container_attr_at(vt_container *box, vt_cursor *c, uint32_t index) {
  static vt_raw_attr harmless = {.kind = VT_RAW_OTHER, .height = 1, .weight = 1};
  if (vt_cursor_failed(c)) return &harmless;
  if (index >= box->attr_count) {
    vt_cursor_fail(c, "attribute number %" PRIu32 " of %" PRIu32, index, box->attr_count);
    return &harmless;
  }
  vt_entry *entry = &box->attrs[index];
  if (entry->value) return entry->value;
  if (entry->busy || box->depth >= VT_BYTECODE_DEPTH) {
    vt_cursor_fail(c, "attribute %" PRIu32 " contains itself or is nested too deeply", index);
    return &harmless;
  }
  entry->busy = true;
  box->depth++;
  vt_raw_attr *attr = VT_NEW(box->arena, vt_raw_attr);
  decode_entry(box, entry, attr);
  if (!vt_raw_attr_measure(attr))
    vt_cursor_fail(c, "attribute %" PRIu32 " is nested too deeply", index);
  box->depth--;
  entry->busy = false;
  if (vt_cursor_failed(c)) return &harmless;
  entry->value = attr;
  return attr;
}

vt_raw_attr *vt_container_attr(vt_container *box, vt_cursor *c) {
  uint64_t index = vt_cursor_varint(c);
  return vt_container_attr_at(box, c, index < UINT32_MAX ? (uint32_t)index : UINT32_MAX);
}

vt_raw_attr *vt_container_opt_attr(vt_container *box, vt_cursor *c) {
  bool present;
  uint64_t index = vt_cursor_flagged(c, &present);
  if (!present) {
    if (index) vt_cursor_fail(c, "absent attribute with a number");
    return NULL;
  }
  return vt_container_attr_at(box, c, index < UINT32_MAX ? (uint32_t)index : UINT32_MAX);
}

static void read_items(vt_container *box, vt_cursor *c, vt_raw_attr *attr, vt_raw_attr_kind kind) {
  uint32_t n = vt_cursor_count(c, 1);
  const vt_raw_attr **items = VT_NEW_ARRAY(box->arena, const vt_raw_attr *, n ? n : 1);
  for (uint32_t i = 0; i < n; i++) items[i] = vt_container_attr(box, c);
  attr->kind = kind;
  attr->count = n;
  attr->items = items;
}

// A list that is a field of another attribute, as a separate attribute.
static vt_raw_attr *read_array(vt_container *box, vt_cursor *c) {
  vt_raw_attr *array = VT_NEW(box->arena, vt_raw_attr);
  read_items(box, c, array, VT_RAW_ARRAY);
  if (!vt_raw_attr_measure(array)) vt_cursor_fail(c, "attribute is nested too deeply");
  return array;
}

static void set_items(vt_container *box, vt_raw_attr *attr, vt_raw_attr_kind kind, uint32_t n,
                      vt_raw_attr *const *items) {
  const vt_raw_attr **copy = VT_NEW_ARRAY(box->arena, const vt_raw_attr *, n);
  for (uint32_t i = 0; i < n; i++) copy[i] = items[i];
  attr->kind = kind;
  attr->count = n;
  attr->items = copy;
}

static void set_ints(vt_container *box, vt_raw_attr *attr, vt_raw_attr_kind kind, uint32_t n,
                     const int64_t *ints) {
  int64_t *copy = VT_NEW_ARRAY(box->arena, int64_t, n);
  memcpy(copy, ints, n * sizeof *ints);
  attr->kind = kind;
  if (!attr->items) attr->count = n;
  attr->ints = copy;
}

static vt_string read_name(vt_container *box, vt_cursor *c) {
  const vt_raw_attr *attr = vt_container_attr(box, c);
  if (attr->kind != VT_RAW_STRING) vt_cursor_fail(c, "string expected");
  return attr->kind == VT_RAW_STRING ? attr->string : (vt_string){"", 0};
}

static void read_dict(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  uint32_t n = vt_cursor_count(c, 2);
  vt_string *names = VT_NEW_ARRAY(box->arena, vt_string, n);
  const vt_raw_attr **items = VT_NEW_ARRAY(box->arena, const vt_raw_attr *, n ? n : 1);
  for (uint32_t i = 0; i < n; i++) {
    names[i] = read_name(box, c);
    items[i] = vt_container_attr(box, c);
  }
  attr->kind = VT_RAW_DICT;
  attr->count = n;
  attr->items = items;
  attr->names = names;
}

static void read_string(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->kind = VT_RAW_STRING;
  attr->string = vt_container_string(box, c);
}

static void read_integer(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->type = vt_container_type(box, c);
  uint32_t bits = attr->type->bits;
  if (attr->type->kind != VT_RAW_ELEMENT || !bits) vt_cursor_fail(c, "integer expected");
  uint64_t value = vt_cursor_bits(c, bits);
  vt_dtype_kind kind = vt_dtype_kind_of(attr->type->dtype);
  if (kind == VT_KIND_SIGNED && bits < 64)
    value = (uint64_t)((int64_t)(value << (64 - bits)) >> (64 - bits));
  attr->kind = kind == VT_KIND_BOOL ? VT_RAW_BOOL : VT_RAW_INT;
  attr->i64 = (int64_t)value;
}

// Special values are exact for the IEEE formats; the small formats have none that an attribute
// would hold.
static double float_of_bits(uint64_t bits, const vt_dtype_info *info) {
  int exponent_bits = info->exponent, mantissa_bits = info->mantissa;
  if (!exponent_bits) return (double)bits;
  uint64_t mantissa = bits & (((uint64_t)1 << mantissa_bits) - 1);
  int exponent = (int)((bits >> mantissa_bits) & (((uint64_t)1 << exponent_bits) - 1));
  bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1;
  int top = (1 << exponent_bits) - 1, bias = top >> 1;
  double value;
  if (exponent == top && info->bits >= 16)
    value = mantissa ? NAN : INFINITY;
  else if (!exponent)
    value = ldexp((double)mantissa, 1 - bias - mantissa_bits);
  else
    value =
        ldexp((double)(mantissa | (uint64_t)1 << mantissa_bits), exponent - bias - mantissa_bits);
  return negative ? -value : value;
}

static double read_f64(vt_cursor *c) {
  uint64_t bits = vt_cursor_bits(c, 64);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void read_float(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->type = vt_container_type(box, c);
  if (attr->type->kind != VT_RAW_ELEMENT || !attr->type->bits) vt_cursor_fail(c, "float expected");
  attr->kind = VT_RAW_FLOAT;
  attr->f64 = float_of_bits(vt_cursor_bits(c, attr->type->bits), vt_dtype_get(attr->type->dtype));
}

static void read_dense(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->kind = VT_RAW_DENSE;
  attr->type = vt_container_type(box, c);
  attr->data = vt_cursor_blob(c);
}

static void read_dense_array(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  const vt_raw_type *element = vt_container_type(box, c);
  uint64_t count = vt_cursor_varint(c);
  vt_bytes blob = vt_cursor_blob(c);
  vt_dtype_kind kind = vt_dtype_kind_of(element->dtype);
  size_t each = vt_dtype_bytes(element->dtype);
  if (kind != VT_KIND_BOOL && kind != VT_KIND_SIGNED && kind != VT_KIND_UNSIGNED) return;
  if (blob.size / each != count || blob.size % each) {
    vt_cursor_fail(c, "%zu bytes for an array of %" PRIu64, blob.size, count);
    return;
  }
  int64_t *ints = VT_NEW_ARRAY(box->arena, int64_t, count);
  for (size_t i = 0; i < count; i++) {
    uint64_t value = 0;
    for (size_t b = 0; b < each; b++) value |= (uint64_t)blob.data[i * each + b] << (8 * b);
    unsigned shift = 64 - 8 * (unsigned)each;
    ints[i] = kind == VT_KIND_SIGNED ? (int64_t)(value << shift) >> shift : (int64_t)value;
  }
  attr->kind = VT_RAW_INTS;
  attr->count = (uint32_t)count;
  attr->ints = ints;
}

static void read_resource(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->kind = VT_RAW_RESOURCE;
  attr->type = vt_container_type(box, c);
  uint32_t index = vt_cursor_index(c, box->resource_count, "resource");
  if (vt_cursor_failed(c)) return;
  const vt_resource *r = &box->resources[index];
  vt_cursor data = vt_container_range(box, r->at, r->end);
  if (r->kind || r->at == r->end) {
    vt_cursor_fail(&data, "resource '%.*s' holds no data", (int)r->key.size, r->key.data);
    return;
  }
  uint64_t alignment = vt_cursor_varint(&data), size = vt_cursor_varint(&data);
  vt_cursor_align(&data, alignment);
  attr->data = vt_cursor_bytes(&data, size);
}

static void read_file_loc(vt_container *box, vt_cursor *c, vt_raw_attr *attr, bool range) {
  int64_t place[2] = {0, 0};
  attr->string = read_name(box, c);
  uint32_t n = range ? vt_cursor_count(c, 1) : 2;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t number = vt_cursor_varint(c);
    if (i < 2) place[i] = number < INT32_MAX ? (int64_t)number : 0;
  }
  set_ints(box, attr, VT_RAW_LOC_FILE, 2, place);
}

static void read_name_loc(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->string = read_name(box, c);
  vt_raw_attr *child = vt_container_attr(box, c);
  set_items(box, attr, VT_RAW_LOC_NAME, 1, &child);
}

static void read_call_loc(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  vt_raw_attr *both[2];
  both[0] = vt_container_attr(box, c);
  both[1] = vt_container_attr(box, c);
  set_items(box, attr, VT_RAW_LOC_CALL, 2, both);
}

static void read_symbol(vt_container *box, vt_cursor *c, vt_raw_attr *attr, bool nested) {
  attr->string = read_name(box, c);
  attr->kind = VT_RAW_STRING;
  if (nested) (void)read_array(box, c);
}

// The results of an affine map, in prefix form: those of dimensions, symbols and constants have a
// number behind them, the rest two expressions. True when each is the constant 0.
static bool read_affine_results(vt_cursor *c, uint32_t dims) {
  enum { DIMENSION, SYMBOL, CONSTANT, ADD, MULTIPLY, MODULO, FLOOR_DIVIDE, CEIL_DIVIDE, KINDS };
  uint64_t symbol_count = vt_cursor_varint(c);
  uint32_t symbols = symbol_count < UINT32_MAX ? (uint32_t)symbol_count : UINT32_MAX;
  bool zero = true;
  for (uint64_t left = vt_cursor_count(c, 2); left && !vt_cursor_failed(c);) {
    uint32_t kind = vt_cursor_index(c, KINDS, "kind of affine expression");
    if (kind == DIMENSION)
      (void)vt_cursor_index(c, dims, "dimension");
    else if (kind == SYMBOL)
      (void)vt_cursor_index(c, symbols, "symbol");
    else if (kind == CONSTANT)
      zero = !vt_cursor_svarint(c) && zero;
    zero = zero && kind == CONSTANT;
    left = kind < ADD ? left - 1 : left + 1;
  }
  return zero;
}

// The count of dimensions and a form: those dimensions, a permutation of them, some of them, or
// expressions.
static void read_affine_map(vt_cursor *c, vt_raw_attr *attr) {
  enum { IDENTITY, PERMUTATION, CHOICE };
  uint64_t head = vt_cursor_varint(c);
  uint32_t dims = head >> 2 < UINT32_MAX ? (uint32_t)(head >> 2) : UINT32_MAX, results = dims;
  attr->kind = VT_RAW_LAYOUT;
  switch (head & 3) {
  case IDENTITY:
    attr->i64 = !dims;
    break;
  case CHOICE:
    results = vt_cursor_count(c, 1);
    // fall through
  case PERMUTATION:
    for (uint32_t i = 0; i < results && !vt_cursor_failed(c); i++)
      (void)vt_cursor_index(c, dims, "dimension");
    attr->i64 = !results;
    break;
  default:
    attr->i64 = read_affine_results(c, dims);
  }
}

static void read_strides(vt_cursor *c, vt_raw_attr *attr) {
  attr->kind = VT_RAW_LAYOUT;
  (void)vt_cursor_svarint(c); // offset
  uint32_t rank = vt_cursor_count(c, 1);
  for (uint32_t i = 0; i < rank; i++) (void)vt_cursor_svarint(c);
}

void vt_decode_builtin_attr(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_attr *attr) {
  switch (code) {
  case 0:
    read_items(box, c, attr, VT_RAW_ARRAY);
    break;
  case 1:
    read_dict(box, c, attr);
    break;
  case 2:
    read_string(box, c, attr);
    break;
  case 3:
    read_string(box, c, attr);
    attr->type = vt_container_type(box, c);
    break;
  case 4:
    read_symbol(box, c, attr, false);
    break;
  case 5:
    read_symbol(box, c, attr, true);
    break;
  case 6:
    attr->kind = VT_RAW_TYPE;
    attr->type = vt_container_type(box, c);
    break;
  case 7:
    attr->kind = VT_RAW_UNIT;
    break;
  case 8:
    read_integer(box, c, attr);
    break;
  case 9:
    read_float(box, c, attr);
    break;
  case 10:
    read_call_loc(box, c, attr);
    break;
  case 11:
    read_file_loc(box, c, attr, false);
    break;
  case 12:
    read_items(box, c, attr, VT_RAW_LOC_FUSED);
    break;
  case 13:
    read_items(box, c, attr, VT_RAW_LOC_FUSED);
    (void)vt_container_attr(box, c);
    break;
  case 14:
    read_name_loc(box, c, attr);
    break;
  case 15:
    attr->kind = VT_RAW_LOC_UNKNOWN;
    break;
  case 16:
    read_resource(box, c, attr);
    break;
  case 17:
    read_dense_array(box, c, attr);
    break;
  case 18:
    read_dense(box, c, attr);
    break;
  case 22:
    read_file_loc(box, c, attr, true);
    break;
  case 23:
    read_affine_map(c, attr);
    break;
  case 25:
    read_strides(c, attr);
    break;
  default:
    attr->kind = VT_RAW_OTHER;
  }
}

static void read_alias(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  size_t left = c->end - c->at, n = 0;
  int64_t *ints = VT_NEW_ARRAY(box->arena, int64_t, left + 2);
  uint32_t outputs = vt_cursor_count(c, 1);
  int64_t *operand = &ints[n++], *count = &ints[n++];
  *count = outputs;
  for (uint32_t i = 0; i < outputs; i++) ints[n++] = vt_cursor_svarint(c);
  *operand = vt_cursor_svarint(c);
  uint32_t inputs = vt_cursor_count(c, 1);
  for (uint32_t i = 0; i < inputs; i++) ints[n++] = vt_cursor_svarint(c);
  attr->kind = VT_RAW_ALIAS;
  attr->count = (uint32_t)n;
  attr->ints = ints;
}

static void read_accuracy(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  attr->floats[0] = read_f64(c);
  attr->floats[1] = read_f64(c);
  int64_t ulps = vt_cursor_svarint(c);
  const vt_raw_attr *mode = vt_container_attr(box, c);
  if (mode->kind != VT_RAW_ENUM) vt_cursor_fail(c, "accuracy mode expected");
  set_ints(box, attr, VT_RAW_ACCURACY, 2, (int64_t[]){ulps, mode->i64});
}

static void read_sub_axis(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  int64_t pre = vt_cursor_svarint(c), size = vt_cursor_svarint(c);
  set_ints(box, attr, VT_RAW_SUB_AXIS, 2, (int64_t[]){pre, size});
}

static void set_axis_ref(vt_cursor *c, vt_raw_attr *attr, vt_string name, const vt_raw_attr *sub) {
  attr->kind = VT_RAW_AXIS_REF;
  attr->string = name;
  if (!sub) return;
  if (sub->kind != VT_RAW_SUB_AXIS) {
    vt_cursor_fail(c, "sub-axis expected");
    return;
  }
  attr->count = 2;
  attr->ints = sub->ints;
}

static void read_vhlo_axis_ref(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  vt_string name = read_name(box, c);
  bool has = vt_cursor_varint(c) != 0;
  set_axis_ref(c, attr, name, has ? vt_container_attr(box, c) : NULL);
}

static void read_vhlo_mesh(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  const vt_raw_attr *axes = vt_container_attr(box, c), *ids = vt_container_opt_attr(box, c);
  if (axes->kind != VT_RAW_ARRAY) {
    vt_cursor_fail(c, "mesh axes expected");
    return;
  }
  attr->kind = VT_RAW_MESH;
  attr->count = axes->count;
  attr->items = axes->items;
  uint32_t n = 0;
  if (ids && !vt_raw_ints(box->arena, ids, &n, &attr->ints))
    vt_cursor_fail(c, "device ids expected");
  attr->i64 = n;
}

static void read_mesh_axes(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  vt_raw_attr *both[2];
  both[0] = vt_container_attr(box, c);
  both[1] = vt_container_attr(box, c);
  set_items(box, attr, VT_RAW_MESH_AXES, 2, both);
}

void vt_decode_vhlo_attr(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_attr *attr) {
  switch (code) {
  case 1:
    read_items(box, c, attr, VT_RAW_ARRAY);
    break;
  case 2:
    attr->kind = VT_RAW_BOOL;
    attr->i64 = vt_cursor_varint(c) != 0;
    break;
  case 6:
    read_dict(box, c, attr);
    break;
  case 8:
    read_float(box, c, attr);
    break;
  case 9:
    read_integer(box, c, attr);
    break;
  case 10:
    read_alias(box, c, attr);
    break;
  case 14:
    read_string(box, c, attr);
    break;
  case 15:
    read_dense(box, c, attr);
    break;
  case 17:
    attr->kind = VT_RAW_TYPE;
    attr->type = vt_container_type(box, c);
    break;
  case 20:
    read_accuracy(box, c, attr);
    break;
  case 21:
    read_sub_axis(box, c, attr);
    break;
  case 22:
    read_vhlo_axis_ref(box, c, attr);
    break;
  case 23:
    read_mesh_axes(box, c, attr);
    break;
  case 24:
    attr->string = read_name(box, c);
    attr->kind = VT_RAW_AXIS;
    attr->i64 = vt_cursor_svarint(c);
    break;
  case 25:
    read_vhlo_mesh(box, c, attr);
    break;
  case 3:
  case 4:
  case 5:
  case 7:
  case 11:
  case 12:
  case 13:
  case 16:
  case 19: {
    uint64_t value = vt_cursor_varint(c);
    if (value > 64) vt_cursor_fail(c, "enumeration value %" PRIu64, value);
    attr->kind = VT_RAW_ENUM;
    attr->i64 = (int64_t)value;
    break;
  }
  default:
    attr->kind = VT_RAW_OTHER;
    break;
  }
}

static void read_sdy_mesh(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  read_items(box, c, attr, VT_RAW_MESH);
  uint32_t n = vt_cursor_count(c, 1);
  int64_t *ids = VT_NEW_ARRAY(box->arena, int64_t, n);
  for (uint32_t i = 0; i < n; i++) ids[i] = vt_cursor_svarint(c);
  attr->ints = ids;
  attr->i64 = n;
}

static void read_dim_sharding(vt_container *box, vt_cursor *c, vt_raw_attr *attr) {
  bool has;
  read_items(box, c, attr, VT_RAW_DIM_SHARDING);
  int64_t closed = vt_cursor_byte(c) != 0;
  uint64_t priority = vt_cursor_flagged(c, &has);
  set_ints(box, attr, VT_RAW_DIM_SHARDING, 2,
           (int64_t[]){closed, has && priority < INT32_MAX ? (int64_t)priority : -1});
}

static void read_sharding(vt_container *box, vt_cursor *c, vt_raw_attr *attr, bool unreduced,
                          bool reduction) {
  vt_raw_attr *fields[4];
  fields[0] = vt_container_attr(box, c);
  fields[1] = read_array(box, c);
  fields[2] = read_array(box, c);
  fields[3] = VT_NEW(box->arena, vt_raw_attr);
  *fields[3] = (vt_raw_attr){.kind = VT_RAW_ARRAY, .height = 1, .weight = 1};
  if (unreduced) fields[3] = read_array(box, c);
  attr->i64 = reduction ? vt_cursor_svarint(c) : 0;
  if (attr->i64 < 0 || attr->i64 > 2) vt_cursor_fail(c, "reduction %" PRId64, attr->i64);
  set_items(box, attr, VT_RAW_SHARDING, 4, fields);
}

void vt_decode_sdy_attr(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_attr *attr) {
  switch (code) {
  case 0:
  case 7:
  case 11:
  case 12:
  case 16:
    read_items(box, c, attr, VT_RAW_ARRAY);
    break;
  case 1:
    attr->string = vt_container_string(box, c);
    attr->kind = VT_RAW_AXIS;
    attr->i64 = vt_cursor_svarint(c);
    break;
  case 2:
    read_sdy_mesh(box, c, attr);
    break;
  case 3:
    read_sub_axis(box, c, attr);
    break;
  case 4: {
    vt_string name = vt_container_string(box, c);
    set_axis_ref(c, attr, name, vt_container_opt_attr(box, c));
    break;
  }
  case 5:
    read_dim_sharding(box, c, attr);
    break;
  case 6:
    read_sharding(box, c, attr, false, false);
    break;
  case 15:
    read_sharding(box, c, attr, true, false);
    break;
  case 17:
    read_sharding(box, c, attr, true, true);
    break;
  default:
    attr->kind = VT_RAW_OTHER; // sharding rules, parameters of propagation results
  }
}
