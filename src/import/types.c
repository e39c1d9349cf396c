// SPDX-License-Identifier: Apache-2.0
// types.c - type entries of the builtin and VHLO dialects.
// Source: BuiltinDialectBytecode (LLVM 21), VhloBytecode (StableHLO 1.20.0).
#include "import/container.h"

#include <inttypes.h>

static const vt_raw_type refused = {
    .kind = VT_RAW_REFUSED, .what = "a malformed type", .height = 1, .leaves = 1};

const vt_raw_type *vt_container_type(vt_container *box, vt_cursor *c) {
  return vt_container_type_at(box, c, vt_cursor_index(c, box->type_count, "type"));
}

// Decodes it on first use; on error returns a type that nothing accepts.
const vt_raw_type *vt_container_type_at(vt_container *box, vt_cursor *c, uint32_t index) {
  if (vt_cursor_failed(c)) return &refused;
  vt_entry *entry = &box->types[index];
  if (entry->value) return entry->value;
  if (entry->busy || box->depth >= VT_BYTECODE_DEPTH) {
    vt_cursor_fail(c, "type %" PRIu32 " contains itself or is nested too deeply", index);
    return &refused;
  }
  entry->busy = true;
  box->depth++;
  vt_cursor inner = vt_container_range(box, entry->at, entry->end);
  vt_raw_type *type = VT_NEW(box->arena, vt_raw_type);
  vt_dialect dialect = box->dialects[entry->dialect];
  *type = (vt_raw_type){.kind = VT_RAW_REFUSED, .what = "a type of an unknown dialect"};
  if (entry->encoded && (dialect == VT_DIALECT_BUILTIN || dialect == VT_DIALECT_VHLO)) {
    uint64_t code = vt_cursor_varint(&inner);
    if (dialect == VT_DIALECT_VHLO)
      vt_decode_vhlo_type(box, &inner, code, type);
    else
      vt_decode_builtin_type(box, &inner, code, type);
  }
  // Tokens that pass through a Shardy op keep StableHLO's own type, the only type of that dialect
  // in an artifact.
  if (entry->encoded && dialect == VT_DIALECT_STABLEHLO && vt_cursor_varint(&inner) == 0)
    *type = (vt_raw_type){.kind = VT_RAW_TOKEN, .dtype = VT_TOKEN};
  if (!entry->encoded) {
    type->kind = VT_RAW_ASM;
    type->text = vt_container_text(box, entry);
    inner.at = inner.end;
  }
  if (inner.at != inner.end && type->kind != VT_RAW_REFUSED)
    vt_cursor_fail(&inner, "type %" PRIu32 " has bytes left over", index);
  if (!vt_raw_type_measure(type))
    vt_cursor_fail(c, "type %" PRIu32 " is nested too deeply or too large", index);
  box->depth--;
  entry->busy = false;
  if (vt_cursor_failed(c)) return &refused;
  entry->value = type;
  return type;
}

static void set_element(vt_raw_type *type, vt_dtype dtype) {
  type->kind = VT_RAW_ELEMENT;
  type->dtype = dtype;
  type->bits = vt_dtype_get(dtype)->bits;
  type->what = NULL;
}

static void set_refused(vt_raw_type *type, const char *what) {
  type->kind = VT_RAW_REFUSED;
  type->what = what;
}

// A numeric type with bits that no tensor may have.
static void set_odd_element(vt_raw_type *type, const char *what, uint32_t bits) {
  *type = (vt_raw_type){.kind = VT_RAW_ELEMENT, .what = what, .bits = bits};
}

static void set_index(vt_raw_type *type) {
  set_element(type, VT_S64);
  type->index = true;
}

static void read_list(vt_container *box, vt_cursor *c, vt_raw_type *type, vt_raw_type_kind kind) {
  type->kind = kind;
  type->what = NULL;
  uint32_t lists = kind == VT_RAW_FUNCTION ? 2 : 1;
  const vt_raw_type **items = NULL;
  size_t capacity = 0;
  for (uint32_t l = 0; l < lists; l++) {
    uint32_t n = vt_cursor_count(c, 1);
    for (uint32_t i = 0; i < n && !vt_cursor_failed(c); i++) {
      if (type->count == capacity)
        items = vt_array_grow(box->arena, items, type->count, &capacity, sizeof *items);
      items[type->count++] = vt_container_type(box, c);
    }
    if (!l) type->input_count = type->count;
  }
  type->items = items;
}

static void read_tensor(vt_container *box, vt_cursor *c, vt_raw_type *type) {
  uint32_t rank = vt_cursor_count(c, 1);
  int64_t *dims = VT_NEW_ARRAY(box->arena, int64_t, rank);
  for (uint32_t i = 0; i < rank; i++) {
    dims[i] = vt_cursor_svarint(c);
    if (dims[i] == INT64_MIN)
      dims[i] = VT_RAW_DYNAMIC;
    else if (dims[i] < 0)
      vt_cursor_fail(c, "dimension of size %" PRId64, dims[i]);
  }
  const vt_raw_type *element = vt_container_type(box, c);
  *type = (vt_raw_type){.kind = VT_RAW_TENSOR,
                        .dtype = element->dtype,
                        .bits = element->bits,
                        .what = element->what,
                        .rank = (int32_t)rank,
                        .dims = dims};
  if (!type->what && element->kind != VT_RAW_ELEMENT) type->what = "an unknown element type";
}

// A vector or, with a layout, a memref: dimensions and element as of a tensor.
static void read_block(vt_container *box, vt_cursor *c, vt_raw_type *type, vt_raw_type_kind kind,
                       const vt_raw_attr *space) {
  uint32_t rank = vt_cursor_count(c, 1);
  int64_t *dims = VT_NEW_ARRAY(box->arena, int64_t, rank);
  for (uint32_t i = 0; i < rank; i++) {
    dims[i] = vt_cursor_svarint(c);
    if (dims[i] == INT64_MIN && kind == VT_RAW_MEMREF)
      dims[i] = VT_RAW_DYNAMIC;
    else if (dims[i] < 0)
      vt_cursor_fail(c, "dimension of size %" PRId64, dims[i]);
  }
  const vt_raw_type *element = vt_container_type(box, c);
  if (kind == VT_RAW_MEMREF) {
    const vt_raw_attr *layout = vt_container_attr(box, c);
    if (layout->kind != VT_RAW_TEXT && layout->kind != VT_RAW_LAYOUT)
      vt_cursor_fail(c, "a layout was expected");
  }
  *type = (vt_raw_type){.kind = kind,
                        .dtype = element->dtype,
                        .bits = element->bits,
                        .index = element->index,
                        .what = kind == VT_RAW_MEMREF ? "a memory reference" : "a vector",
                        .element = element,
                        .space = space,
                        .rank = (int32_t)rank,
                        .dims = dims};
}

static void read_complex(vt_container *box, vt_cursor *c, vt_raw_type *type) {
  const vt_raw_type *part = vt_container_type(box, c);
  if (part->dtype == VT_F32)
    set_element(type, VT_C64);
  else if (part->dtype == VT_F64)
    set_element(type, VT_C128);
  else
    set_odd_element(type, "a complex number of this precision", 0);
}

static void skip(vt_cursor *c) {
  c->at = c->end;
}

void vt_decode_vhlo_type(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_type *type) {
  static const uint8_t elements[] = {
      [0] = VT_PRED,      [2] = VT_BF16,        [3] = VT_F16,         [4] = VT_F32,
      [5] = VT_F64,       [6] = VT_F8E4M3FN,    [7] = VT_F8E5M2,      [10] = VT_S4,
      [11] = VT_S8,       [12] = VT_S16,        [13] = VT_S32,        [14] = VT_S64,
      [15] = VT_U4,       [16] = VT_U8,         [17] = VT_U16,        [18] = VT_U32,
      [19] = VT_U64,      [27] = VT_F8E4M3FNUZ, [28] = VT_F8E5M2FNUZ, [29] = VT_F8E4M3B11FNUZ,
      [31] = VT_S2,       [32] = VT_U2,         [35] = VT_F8E4M3,     [36] = VT_F8E3M4,
      [37] = VT_F4E2M1FN, [38] = VT_F6E2M3FN,   [39] = VT_F6E3M2FN,   [40] = VT_F8E8M0FNU};
  if (code < sizeof elements && elements[code]) {
    set_element(type, (vt_dtype)elements[code]);
    return;
  }
  switch (code) {
  case 1:
    read_complex(box, c, type);
    break;
  case 8:
    read_list(box, c, type, VT_RAW_FUNCTION);
    break;
  case 9:
    set_index(type);
    break;
  case 20:
    read_tensor(box, c, type);
    break;
  case 21:
    (void)vt_container_attr(box, c);
    read_tensor(box, c, type);
    break;
  case 22:
    *type = (vt_raw_type){.kind = VT_RAW_TOKEN, .dtype = VT_TOKEN};
    break;
  case 23:
    read_list(box, c, type, VT_RAW_TUPLE);
    break;
  case 24:
  case 30:
    set_refused(type, "a quantised type");
    skip(c);
    break;
  case 25:
    set_refused(type, "an unranked tensor");
    skip(c);
    break;
  case 26:
    set_refused(type, "a shape witness");
    break;
  case 33:
    *type = (vt_raw_type){.kind = VT_RAW_NONE, .what = "the type none"};
    break;
  case 34:
    set_odd_element(type, "tf32", 19);
    break;
  case 41:
    set_refused(type, "a buffer");
    skip(c);
    break;
  case 42:
    read_list(box, c, type, VT_RAW_FUTURE);
    break;
  default:
    set_refused(type, "an unknown VHLO type");
  }
}

static void read_integer(vt_cursor *c, vt_raw_type *type) {
  uint64_t u = vt_cursor_varint(c);
  uint64_t width = u >> 2;
  bool is_unsigned = (u & 3) == 2;
  static const struct {
    uint8_t width, s, u;
  } widths[] = {{2, VT_S2, VT_U2},    {4, VT_S4, VT_U4},    {8, VT_S8, VT_U8},
                {16, VT_S16, VT_U16}, {32, VT_S32, VT_U32}, {64, VT_S64, VT_U64}};
  if (width == 1) {
    set_element(type, VT_PRED);
    return;
  }
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    if (widths[i].width == width) {
      set_element(type, (vt_dtype)(is_unsigned ? widths[i].u : widths[i].s));
      return;
    }
  set_odd_element(type, "an integer of this width", width > 1u << 24 ? 1u << 24 : (uint32_t)width);
}

// Small floats of the builtin dialect, from code 22 on.
static const uint8_t small_floats[] = {VT_F8E5M2,     VT_F8E4M3,        VT_F8E4M3FN, VT_F8E5M2FNUZ,
                                       VT_F8E4M3FNUZ, VT_F8E4M3B11FNUZ, VT_F8E3M4,   VT_F4E2M1FN,
                                       VT_F6E2M3FN,   VT_F6E3M2FN,      VT_F8E8M0FNU};

void vt_decode_builtin_type(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_type *type) {
  const vt_raw_attr *space = NULL;
  if (code >= 22 && code < 22 + sizeof small_floats) {
    set_element(type, (vt_dtype)small_floats[code - 22]);
    return;
  }
  switch (code) {
  case 0:
    read_integer(c, type);
    break;
  case 1:
    set_index(type);
    break;
  case 2:
    read_list(box, c, type, VT_RAW_FUNCTION);
    break;
  case 3:
    set_element(type, VT_BF16);
    break;
  case 4:
    set_element(type, VT_F16);
    break;
  case 5:
    set_element(type, VT_F32);
    break;
  case 6:
    set_element(type, VT_F64);
    break;
  case 7:
    set_odd_element(type, "an 80-bit float", 80);
    break;
  case 8:
    set_odd_element(type, "a 128-bit float", 128);
    break;
  case 9:
    read_complex(box, c, type);
    break;
  case 11:
    space = vt_container_attr(box, c);
    read_block(box, c, type, VT_RAW_MEMREF, space);
    break;
  case 10:
    read_block(box, c, type, VT_RAW_MEMREF, NULL);
    break;
  case 12:
    *type = (vt_raw_type){.kind = VT_RAW_NONE, .what = "the type none"};
    break;
  case 19:
    read_block(box, c, type, VT_RAW_VECTOR, NULL);
    break;
  case 13:
    read_tensor(box, c, type);
    break;
  case 14:
    (void)vt_container_attr(box, c);
    read_tensor(box, c, type);
    break;
  case 15:
    read_list(box, c, type, VT_RAW_TUPLE);
    break;
  default:
    set_refused(type, "a builtin type other than tensors and tuples");
  }
}
