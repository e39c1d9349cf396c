// SPDX-License-Identifier: Apache-2.0
// hlo_read_proto.c - HLO from the message xla.HloModuleProto.
//
// Field numbers are those of openxla/xla's hlo.proto, xla_data.proto and xla.proto; those of an
// instruction's attributes are in hlo_fields.def. Fields that are not known are skipped.
#include <inttypes.h>
#include <string.h>

#include "base/wire.h"
#include "hlo/hlo_reader.h"

static vt_string string_of(const vt_wire_field *field) {
  return field->wire == 2 ? (vt_string){(const char *)field->bytes.data, field->bytes.size}
                          : (vt_string){"", 0};
}

// Numbers come packed or one by one.
static vt_status read_ints(vt_hlo_reader *r, const vt_wire_field *field, vt_hlo_ints *out) {
  if (field->wire == 0) {
    vt_array_push_in(r->arena, out, (int64_t)field->value);
    return VT_OK;
  }
  if (field->wire != 2)
    return vt_error(VT_INVALID_ARGUMENT, "field %" PRIu32 " is no list of numbers", field->number);
  vt_wire list = vt_wire_open(field->bytes);
  while (list.at < list.end) {
    uint64_t value;
    VT_TRY(vt_wire_varint(&list, &value));
    vt_array_push_in(r->arena, out, (int64_t)value);
  }
  return VT_OK;
}

// A record of `width` numbers in fields 1, 2, ...
static vt_status read_record(vt_bytes bytes, uint32_t width, int64_t *out) {
  memset(out, 0, width * sizeof *out);
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.wire == 0 && field.number >= 1 && field.number <= width)
      out[field.number - 1] = (int64_t)field.value;
  }
}

// Shapes ------------------------------------------------------------------------------------------

enum { TUPLE_TYPE = 13, HOST_SPACE = 5 };

static vt_status read_layout(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_ints *order,
                             vt_hlo_shape *shape) {
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 1) VT_TRY(read_ints(r, &field, order));
    if (field.number == 6) shape->tiled = true;
    if (field.number == 8) shape->host = field.value == HOST_SPACE;
  }
}

static vt_status read_shape(vt_hlo_reader *r, vt_bytes bytes, int depth,
                            const vt_hlo_shape **out_shape) {
  vt_hlo_shape shape = {0};
  vt_hlo_ints dims = {0}, order = {0}, dynamic = {0};
  VT_ARRAY(const vt_hlo_shape *) parts = {0};
  uint64_t type = 0;
  if (depth > VT_HLO_MAX_DEPTH) return vt_error(VT_INVALID_ARGUMENT, "tuples are too deep");
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    const vt_hlo_shape *part;
    if (field.number == 2) type = field.value;
    if (field.number == 3) VT_TRY(read_ints(r, &field, &dims));
    if (field.number == 6) VT_TRY(read_ints(r, &field, &dynamic));
    if (field.number == 5) VT_TRY(read_layout(r, field.bytes, &order, &shape));
    if (field.number != 4) continue;
    VT_TRY(read_shape(r, field.bytes, depth + 1, &part));
    vt_array_push_in(r->arena, &parts, part);
  }
  for (size_t i = 0; i < dynamic.size; i++) shape.dynamic = shape.dynamic || dynamic.data[i];
  if (type == TUPLE_TYPE) {
    shape.tuple = true;
    shape.count = (uint32_t)parts.size;
    shape.parts = parts.data;
  } else {
    VT_TRY(vt_hlo_check_type(r, vt_hlo_dtype_numbered(type), (uint32_t)dims.size, dims.data,
                             &shape.type));
    VT_TRY(vt_hlo_check_layout(r, shape.type, (uint32_t)order.size, order.data, &shape.layout));
  }
  *out_shape = vt_hlo_new_shape(r, shape);
  return VT_OK;
}

// Constants ---------------------------------------------------------------------------------------

// Elements from bytes in the machine's form: as they are, or sub-byte elements packed from the low
// bits up.
static vt_status read_fixed(vt_bytes bytes, const vt_dtype_info *info, int64_t count,
                            uint8_t *data) {
  uint64_t size = (uint64_t)count * info->bytes;
  if (info->bits < 8 && bytes.size != size &&
      bytes.size == ((uint64_t)count * info->bits + 7) / 8) {
    uint32_t each = 8 / info->bits;
    for (int64_t i = 0; i < count; i++)
      data[i] = (uint8_t)(bytes.data[i / each] >> (uint32_t)(i % each) * info->bits);
  } else if (bytes.size == size) {
    if (size) memcpy(data, bytes.data, size);
  } else {
    return vt_error(VT_INVALID_ARGUMENT, "%zu bytes for %" PRId64 " elements", bytes.size, count);
  }
  for (int64_t i = 0; i < count && info->bits < 8; i++) { // sign or zeros above
    int shift = 8 - info->bits;
    uint8_t top = (uint8_t)(data[i] << shift);
    int above = info->kind == VT_KIND_SIGNED ? (int8_t)top >> shift : top >> shift;
    data[i] = (uint8_t)above;
  }
  return VT_OK;
}

static vt_status read_varints(const vt_wire_field *field, const vt_dtype_info *info, int64_t count,
                              int64_t *at, uint8_t *data) {
  vt_wire list = vt_wire_open(field->bytes);
  uint64_t value = field->value;
  while (field->wire == 0 || list.at < list.end) {
    if (field->wire != 0) VT_TRY(vt_wire_varint(&list, &value));
    if (*at == count) return vt_error(VT_INVALID_ARGUMENT, "more elements than in its shape");
    if (info->kind == VT_KIND_BOOL) value = value != 0;
    memcpy(data + (size_t)*at * info->bytes, &value, info->bytes);
    ++*at;
    if (field->wire == 0) break;
  }
  return VT_OK;
}

// Elements in the order of the layout become row-major.
static void *in_rows(vt_hlo_reader *r, const vt_hlo_shape *shape, const uint8_t *data) {
  vt_type type = shape->type;
  int64_t order[VT_MAX_RANK + 1], strides[VT_MAX_RANK + 1], index[VT_MAX_RANK + 1] = {0};
  int64_t count = vt_type_elements(type), stride = 1;
  size_t bytes = vt_dtype_bytes(type.dtype);
  uint8_t *rows = vt_arena_push_aligned(r->arena, (size_t)count * bytes + 1, 64);
  vt_hlo_layout_order(shape, order);
  for (int32_t i = 0; i < type.rank; i++) {
    strides[order[i]] = stride;
    stride *= type.dims[order[i]];
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t from = 0;
    for (int32_t d = 0; d < type.rank; d++) from += index[d] * strides[d];
    memcpy(rows + (size_t)i * bytes, data + (size_t)from * bytes, bytes);
    for (int32_t d = type.rank; d-- > 0 && ++index[d] == type.dims[d];) index[d] = 0;
  }
  return rows;
}

static vt_status read_literal(vt_hlo_reader *r, vt_bytes bytes, const vt_literal **out_literal) {
  const vt_hlo_shape *shape = NULL;
  vt_wire_field field, found = {0};
  int64_t at = 0;
  for (int pass = 0; pass < 2; pass++) {
    vt_wire wire = vt_wire_open(bytes);
    for (bool more = true;;) {
      VT_TRY(vt_wire_next(&wire, &field, &more));
      if (!more) break;
      if (field.number == 1 && !shape) VT_TRY(read_shape(r, field.bytes, 0, &shape));
      if (pass == 0 && field.number != 1) found = field;
    }
  }
  if (!shape || shape->tuple || shape->type.dtype == VT_TOKEN)
    return vt_error(VT_UNIMPLEMENTED, "a constant that is no array");
  const vt_dtype_info *info = vt_dtype_get(shape->type.dtype);
  const vt_hlo_dtype *hlo = vt_hlo_dtype_get(shape->type.dtype);
  int64_t count = vt_type_elements(shape->type);
  bool numbers =
      info->kind == VT_KIND_BOOL ||
      (info->bits >= 32 && (info->kind == VT_KIND_SIGNED || info->kind == VT_KIND_UNSIGNED));
  // Each element takes at least a bit of the message.
  if (count / 8 > (int64_t)bytes.size)
    return vt_error(VT_INVALID_ARGUMENT, "%zu bytes for %" PRId64 " elements", bytes.size, count);
  uint8_t *data = vt_arena_push_aligned(r->arena, (size_t)count * info->bytes + 1, 64);
  if (!numbers && count) {
    if (found.number != hlo->literal)
      return vt_error(VT_INVALID_ARGUMENT, "its elements are missing");
    vt_bytes elements = found.wire == 2 ? found.bytes : (vt_bytes){0};
    uint8_t single[8];
    for (int i = 0; i < 8; i++) single[i] = (uint8_t)(found.value >> (8 * i));
    if (found.wire == 5 || found.wire == 1) elements = (vt_bytes){single, found.wire == 5 ? 4 : 8};
    VT_TRY(read_fixed(elements, info, count, data));
  }
  vt_wire wire = vt_wire_open(bytes);
  for (bool more = numbers; more;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (more && field.number == hlo->literal) VT_TRY(read_varints(&field, info, count, &at, data));
  }
  if (numbers && at != count)
    return vt_error(VT_INVALID_ARGUMENT, "%" PRId64 " elements instead of %" PRId64, at, count);
  vt_literal *literal = VT_NEW(r->arena, vt_literal);
  *literal = (vt_literal){shape->type, shape->layout ? in_rows(r, shape, data) : data, false};
  *out_literal = literal;
  return VT_OK;
}

// Attributes --------------------------------------------------------------------------------------

// The record that all forms of a numbered list come from: `wrapped` ones are in field 1 of one
// message, others are the message itself.
static vt_status read_records(vt_hlo_reader *r, const vt_wire_field *field, uint32_t width,
                              bool wrapped, vt_hlo_attr *attr) {
  int64_t record[8];
  vt_wire wire = vt_wire_open(field->bytes);
  vt_wire_field inner;
  if (!wrapped) {
    VT_TRY(read_record(field->bytes, width, record));
    vt_hlo_push_ints(r, attr, width, record);
    return VT_OK;
  }
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &inner, &more));
    if (!more) break;
    if (inner.number != 1) continue;
    VT_TRY(read_record(inner.bytes, width, record));
    vt_hlo_push_ints(r, attr, width, record);
  }
  vt_hlo_push_ints(r, attr, 0, NULL);
  return VT_OK;
}

// xla.ConvolutionDimensionNumbers.
static vt_status read_labels(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_attr *attr) {
  static const uint8_t numbers[3][3] = {{7, 8, 11}, {3, 4, 6}, {9, 10, 12}};
  int64_t single[3][2] = {{0}};
  vt_hlo_ints spatial[3] = {{0}};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    for (int s = 0; s < 3; s++) {
      for (int k = 0; k < 2; k++)
        if (field.number == numbers[s][k]) single[s][k] = (int64_t)field.value;
      if (field.number == numbers[s][2]) VT_TRY(read_ints(r, &field, &spatial[s]));
    }
  }
  attr->count = 0;
  for (int s = 0; s < 3; s++) {
    if (spatial[s].size != spatial[0].size)
      return vt_error(VT_INVALID_ARGUMENT, "its arrays have different numbers of dimensions");
    vt_hlo_push_ints(r, attr, 2, single[s]);
    vt_hlo_push_ints(r, attr, (uint32_t)spatial[s].size, spatial[s].data);
  }
  return VT_OK;
}

static vt_status read_alias(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_attr *attr) {
  vt_hlo_ints output = {0}, operand = {0};
  int64_t row[2] = {-1, 0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 1) VT_TRY(read_ints(r, &field, &output));
    if (field.number == 2) row[1] = (int64_t)field.value;
    if (field.number == 3) VT_TRY(read_ints(r, &field, &operand));
  }
  if (output.size) row[0] = output.data[0];
  if (output.size < 2 && !operand.size) vt_hlo_push_ints(r, attr, 2, row); // a hint
  return VT_OK;
}

// A message whose field 1 has pairs of name and value.
static vt_status read_dict(vt_hlo_reader *r, vt_bytes bytes, vt_dict_value *dict) {
  vt_wire wire = vt_wire_open(bytes), inner;
  vt_wire_field field, part;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.number != 1) continue;
    vt_string pair[2] = {{"", 0}, {"", 0}};
    inner = vt_wire_open(field.bytes);
    for (bool other = true;;) {
      VT_TRY(vt_wire_next(&inner, &part, &other));
      if (!other) break;
      if (part.number == 1 || part.number == 2) pair[part.number - 1] = string_of(&part);
    }
    vt_hlo_push_entry(r, dict, pair[0], pair[1]);
  }
}

static vt_status add_shape(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_attr *attr) {
  const vt_hlo_shape *shape;
  VT_TRY(read_shape(r, bytes, 0, &shape));
  uint32_t n = attr->count++;
  if (!(n & (n + 1))) { // grows at 0, 1, 3, 7
    const vt_hlo_shape **grown = VT_NEW_ARRAY(r->arena, const vt_hlo_shape *, 2 * n + 1);
    if (n) memcpy(grown, attr->shapes, n * sizeof *grown);
    attr->shapes = grown;
  }
  ((const vt_hlo_shape **)(uintptr_t)attr->shapes)[n] = shape;
  return VT_OK;
}

static vt_string sharding_text(vt_hlo_reader *r, vt_string message) {
  vt_text text = {0};
  vt_hlo_put_sharding(&text, message);
  vt_string kept = {vt_arena_copy(r->arena, vt_text_string(&text), text.size), text.size};
  vt_text_free(&text);
  return kept;
}

typedef struct row_list {
  VT_ARRAY(vt_hlo_row) rows; // groups of devices
} row_list;

static vt_status read_group(vt_hlo_reader *r, vt_bytes bytes, row_list *groups) {
  vt_hlo_ints ids = {0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 1) VT_TRY(read_ints(r, &field, &ids));
  }
  vt_hlo_row row = {(uint32_t)ids.size, ids.data};
  vt_array_push_in(r->arena, &groups->rows, row);
  return VT_OK;
}

static vt_status read_value(vt_hlo_reader *r, const vt_wire_field *field, vt_hlo_instruction *to,
                            vt_hlo_field key, row_list *groups) {
  vt_hlo_form form = vt_hlo_field_get(key)->form;
  vt_hlo_attr *attr = vt_hlo_attr_at(r, to, key);
  vt_hlo_ints ints = {0};
  uint32_t bits = (uint32_t)field->value;
  float f32;
  switch (form) {
  case VT_HLO_INTS:
  case VT_HLO_INTS_SOME:
  case VT_HLO_PRECISION:
    VT_TRY(read_ints(r, field, &ints));
    vt_hlo_push_ints(r, attr, (uint32_t)ints.size, ints.data);
    return VT_OK;
  case VT_HLO_I64:
  case VT_HLO_FLAG:
  case VT_HLO_BOOL:
  case VT_HLO_ENUM:
  case VT_HLO_HIDDEN:
    attr->i64 = (int64_t)field->value;
    return VT_OK;
  case VT_HLO_WORD:
  case VT_HLO_QUOTED:
  case VT_HLO_CONFIG:
    attr->string = string_of(field);
    return VT_OK;
  case VT_HLO_SHARDING:
    attr->string = sharding_text(r, string_of(field));
    return VT_OK;
  case VT_HLO_F32:
    memcpy(&f32, &bits, sizeof f32);
    attr->f64 = (double)f32;
    return VT_OK;
  case VT_HLO_SLICE:
    return read_records(r, field, 3, false, attr);
  case VT_HLO_PADDING:
    return read_records(r, field, 3, true, attr);
  case VT_HLO_WINDOW:
    return read_records(r, field, 7, true, attr);
  case VT_HLO_PAIRS:
    attr->rows++;
    return read_records(r, field, 2, false, attr);
  case VT_HLO_LABELS:
    return read_labels(r, field->bytes, attr);
  case VT_HLO_GROUPS:
    return read_group(r, field->bytes, groups);
  case VT_HLO_LITERAL:
    return read_literal(r, field->bytes, &attr->literal);
  case VT_HLO_SHAPE:
  case VT_HLO_LAYOUTS:
    return add_shape(r, field->bytes, attr);
  case VT_HLO_ALIASES:
    return read_alias(r, field->bytes, attr);
  case VT_HLO_DICT:
    if (!attr->dict) attr->dict = vt_hlo_new_dict(r);
    return read_dict(r, field->bytes, (vt_dict_value *)(uintptr_t)attr->dict);
  }
  return VT_OK;
}

// Two rows share a number: the instruction says which it is.
static bool is_meant(const vt_hlo_instruction *instruction, vt_hlo_field field) {
  bool iota = !strcmp(instruction->opcode, "iota");
  return field == VT_HLO_FIELD_DIMENSIONS       ? !iota
         : field == VT_HLO_FIELD_IOTA_DIMENSION ? iota
                                                : true;
}

// IOTA_DIMENSION is a list of one number in the message.
static vt_status read_one_int(vt_hlo_reader *r, const vt_wire_field *field, vt_hlo_attr *attr) {
  vt_hlo_ints ints = {0};
  VT_TRY(read_ints(r, field, &ints));
  if (ints.size) attr->i64 = ints.data[0];
  return VT_OK;
}

// xla.IotaReplicaGroupListProto: devices in order of another shape.
static vt_status read_iota_groups(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_attr *attr) {
  int64_t rows = 0, width = 0;
  vt_hlo_ints dims = {0}, order = {0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 1) rows = (int64_t)field.value;
    if (field.number == 2) width = (int64_t)field.value;
    if (field.number == 3) VT_TRY(read_ints(r, &field, &dims));
    if (field.number == 4) VT_TRY(read_ints(r, &field, &order));
  }
  return vt_hlo_set_iota_rows(r, attr, rows, width, (uint32_t)dims.size, dims.data,
                              order.size == dims.size ? order.data : NULL);
}

// The two numbers of a message: of an axis of a mesh its size, of a part of one what is before it.
static vt_status read_pair(vt_bytes bytes, int64_t *out_first, int64_t *out_second) {
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 1) *out_first = (int64_t)field.value;
    if (field.number == 2) *out_second = (int64_t)field.value;
  }
}

// xla.MeshProto: axes, and the devices' order as a list, or as one of another shape.
static vt_status read_mesh(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_mesh_groups *groups) {
  vt_wire wire = vt_wire_open(bytes), inner;
  vt_wire_field field, part;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 1) {
      vt_mesh_axis axis = {.name = ""};
      int64_t name = 0;
      VT_TRY(read_pair(field.bytes, &name, &axis.size));
      vt_array_push_in(r->arena, &groups->mesh, axis);
    }
    if (field.number == 2) VT_TRY(read_ints(r, &field, &groups->ids));
    if (field.number != 3) continue;
    inner = vt_wire_open(field.bytes);
    for (bool other = true;;) {
      VT_TRY(vt_wire_next(&inner, &part, &other));
      if (!other) break;
      if (part.number == 1) VT_TRY(read_ints(r, &part, &groups->dims));
      if (part.number == 2) VT_TRY(read_ints(r, &part, &groups->order));
    }
  }
}

// xla.AxisRefProto: the number of an axis, and which part of it.
static vt_status read_axis_ref(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_mesh_groups *groups) {
  int64_t axis = 0, pre_size = 1, size = -1;
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 1) axis = (int64_t)field.value;
    if (field.number == 2) VT_TRY(read_pair(field.bytes, &pre_size, &size));
  }
  if (axis < 0 || axis >= (int64_t)groups->mesh.size)
    return vt_error(VT_INVALID_ARGUMENT, "groups along an axis that their mesh does not have");
  vt_axis_ref ref = {(uint32_t)axis, pre_size, size < 0 ? groups->mesh.data[axis].size : size};
  vt_array_push_in(r->arena, &groups->axes, ref);
  return VT_OK;
}

// xla.MeshAxesReplicaGroupListProto: a mesh, and after it the axes along which its groups are.
static vt_status read_mesh_groups(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_attr *attr) {
  vt_hlo_mesh_groups groups = {0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return vt_hlo_set_mesh_rows(r, attr, &groups);
    if (field.number == 1) VT_TRY(read_mesh(r, field.bytes, &groups));
    if (field.number == 2) VT_TRY(read_axis_ref(r, field.bytes, &groups));
  }
}

// xla.CollectiveDeviceListProto: groups one by one, or in the short form.
static vt_status read_device_list(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_attr *attr,
                                  row_list *groups) {
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 1) VT_TRY(read_group(r, field.bytes, groups));
    if (field.number == 2) VT_TRY(read_iota_groups(r, field.bytes, attr));
  }
}

// The forms of a collective's groups that newer messages have beside replica_groups.
enum { DEVICE_LIST = 87, IOTA_GROUPS = 92, MESH_GROUPS = 93 };
static bool is_groups(const vt_wire_field *field) {
  return field->number == DEVICE_LIST || field->number == IOTA_GROUPS ||
         field->number == MESH_GROUPS;
}
static vt_status read_groups(vt_hlo_reader *r, const vt_wire_field *field, vt_hlo_instruction *to,
                             row_list *groups) {
  vt_hlo_attr *attr = vt_hlo_attr_at(r, to, VT_HLO_FIELD_REPLICA_GROUPS);
  return field->number == DEVICE_LIST   ? read_device_list(r, field->bytes, attr, groups)
         : field->number == IOTA_GROUPS ? read_iota_groups(r, field->bytes, attr)
                                        : read_mesh_groups(r, field->bytes, attr);
}

// A field of message `parent`, 0 = the instruction's own, whose table has it.
static vt_status read_attr(vt_hlo_reader *r, uint32_t parent, const vt_wire_field *field,
                           vt_hlo_instruction *to, row_list *groups) {
  enum { DOT = 30, RAGGED_DOT = 90 };
  bool message = false;
  if (!parent && is_groups(field)) return read_groups(r, field, to, groups);
  for (vt_hlo_field key = 0; key < VT_HLO_FIELD_COUNT; key++) {
    const vt_hlo_field_info *info = vt_hlo_field_get(key);
    message = message || (!parent && info->parent == field->number);
    if (info->parent != parent || info->number != field->number || !is_meant(to, key)) continue;
    return key == VT_HLO_FIELD_IOTA_DIMENSION ? read_one_int(r, field, vt_hlo_attr_at(r, to, key))
                                              : read_value(r, field, to, key, groups);
  }
  bool dot = parent == RAGGED_DOT && field->number == 1;
  if ((!message && !dot) || field->wire != 2) return VT_OK;
  vt_wire wire = vt_wire_open(field->bytes);
  vt_wire_field inner;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &inner, &more));
    if (!more) return VT_OK;
    VT_TRY(read_attr(r, dot ? DOT : field->number, &inner, to, groups));
  }
}

// Instructions, computations, the module ----------------------------------------------------------

static vt_status read_metadata(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_instruction *to) {
  vt_hlo_place place = {0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 2) place.name = string_of(&field);
    if (field.number == 3) place.file = string_of(&field);
    if (field.number == 4) place.line = (int64_t)field.value;
    if (field.number == 15) place.frame = (int64_t)field.value;
    if (field.number == 18) place.column = (int64_t)field.value;
  }
  to->loc = vt_hlo_new_loc(r, &place);
  return VT_OK;
}

static vt_status set_operands(vt_hlo_reader *r, const vt_map *known, const vt_hlo_ints *ids,
                              vt_hlo_instruction *to) {
  to->operand_count = (uint32_t)ids->size;
  to->operands = VT_NEW_ARRAY(r->arena, vt_hlo_instruction *, ids->size + 1);
  for (size_t i = 0; i < ids->size; i++) {
    to->operands[i] = vt_map_find(known, &ids->data[i], sizeof ids->data[i]);
    if (!to->operands[i])
      return vt_error(VT_INVALID_ARGUMENT,
                      "operand %zu, with id %" PRId64 ", is not defined before it is used", i,
                      ids->data[i]);
  }
  return VT_OK;
}

static vt_status read_fields(vt_hlo_reader *r, vt_bytes bytes, const vt_map *known,
                             vt_hlo_instruction *to) {
  vt_hlo_ints operands = {0}, called = {0};
  row_list groups = {{0}};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 3)
      VT_TRY(read_shape(r, field.bytes, 0, &to->shape));
    else if (field.number == 35)
      to->id = (int64_t)field.value;
    else if (field.number == 36)
      VT_TRY(read_ints(r, &field, &operands));
    else if (field.number == 38)
      VT_TRY(read_ints(r, &field, &called));
    else if (field.number > 2 && field.number != 7)
      VT_TRY(read_attr(r, 0, &field, to, &groups));
  }
  if (!to->shape) return vt_error(VT_INVALID_ARGUMENT, "it has no shape");
  for (size_t i = 0; i < called.size; i++)
    vt_hlo_new_call(r, to, (vt_string){"", 0}, called.data[i]);
  if (groups.rows.size)
    VT_TRY(vt_hlo_set_rows(r, vt_hlo_attr_at(r, to, VT_HLO_FIELD_REPLICA_GROUPS),
                           (uint32_t)groups.rows.size, groups.rows.data));
  return set_operands(r, known, &operands, to);
}

static vt_status read_instruction(vt_hlo_reader *r, vt_bytes bytes, vt_hlo_computation *at,
                                  vt_map *known) {
  vt_hlo_instruction *to = vt_hlo_new_instruction(r, at);
  // Name, opcode and location first: they belong to every message.
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 1) to->name = vt_hlo_kept(r, string_of(&field));
    if (field.number == 2) to->opcode = vt_hlo_kept(r, string_of(&field));
    if (field.number == 7) VT_TRY(read_metadata(r, field.bytes, to));
  }
  vt_status st = read_fields(r, bytes, known, to);
  if (!st) {
    void **place = vt_map_at(known, &to->id, sizeof to->id);
    if (*place) st = vt_error(VT_INVALID_ARGUMENT, "its id %" PRId64 " is another's too", to->id);
    *place = to;
  }
  return vt_hlo_blame(st, to);
}

static vt_status read_computation(vt_hlo_reader *r, vt_bytes bytes) {
  vt_hlo_computation *made = vt_hlo_new_computation(r, (vt_string){"", 0});
  vt_map known = {0};
  int64_t root = 0;
  bool has_root = false;
  vt_status st = VT_OK;
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY_OUT(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number == 1) made->name = vt_hlo_kept(r, string_of(&field));
    if (field.number == 2) VT_TRY_OUT(read_instruction(r, field.bytes, made, &known));
    if (field.number == 5) made->id = (int64_t)field.value;
    if (field.number == 6) root = (int64_t)field.value, has_root = true;
  }
  if (has_root) {
    made->root = vt_map_find(&known, &root, sizeof root);
    if (!made->root) st = vt_error(VT_INVALID_ARGUMENT, "its root is no instruction");
  }
  void **place = vt_map_at(&r->computations, &made->id, sizeof made->id);
  if (!st && *place) st = vt_error(VT_INVALID_ARGUMENT, "its id is another's too");
  *place = made;
out:
  vt_map_free(&known);
  return vt_status_wrap(st, "computation %s", made->name);
}

static vt_status read_frames(vt_hlo_reader *r, vt_bytes bytes) {
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    int64_t row[4];
    vt_hlo_place place = {0};
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    vt_string file = string_of(&field);
    if (field.number == 1) vt_array_push_in(r->arena, &r->files, file);
    if (field.number != 3 && field.number != 4) continue;
    VT_TRY(read_record(field.bytes, 4, row));
    if (field.number == 3) {
      place = (vt_hlo_place){.frame = row[0], .line = row[2], .column = row[3]};
      vt_array_push_in(r->arena, &r->places, place);
    } else {
      place = (vt_hlo_place){.line = row[0], .column = row[1]};
      vt_array_push_in(r->arena, &r->frames, place);
    }
  }
}

static vt_status read_donation(vt_hlo_reader *r, vt_bytes bytes, bool named) {
  vt_hlo_ints result = {0}, param = {0};
  vt_hlo_donation donation = {.named = named};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    uint32_t number = field.number + (named ? 0 : 1); // a donor has no field for a result
    if (number == 1) VT_TRY(read_ints(r, &field, &result));
    if (number == 2) donation.param = (int64_t)field.value;
    if (number == 3) VT_TRY(read_ints(r, &field, &param));
  }
  donation.param_depth = (uint32_t)param.size;
  donation.result_depth = (uint32_t)result.size;
  donation.param_path = param.data;
  donation.result_path = result.data;
  vt_array_push_in(r->arena, &r->donations, donation);
  return VT_OK;
}

static vt_status read_donations(vt_hlo_reader *r, vt_bytes bytes, bool named) {
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 1) VT_TRY(read_donation(r, field.bytes, named));
  }
}

static vt_status read_program_shape(vt_hlo_reader *r, vt_bytes bytes) {
  VT_ARRAY(const vt_hlo_shape *) params = {0};
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    const vt_hlo_shape *shape;
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) break;
    if (field.number != 1 && field.number != 2) continue;
    VT_TRY(read_shape(r, field.bytes, 0, &shape));
    if (field.number == 1)
      vt_array_push_in(r->arena, &params, shape);
    else
      r->hlo->result = shape;
  }
  r->hlo->param_count = (uint32_t)params.size;
  r->hlo->params = params.size ? params.data : VT_NEW(r->arena, const vt_hlo_shape *);
  return VT_OK;
}

static vt_status read_config(vt_hlo_reader *r, vt_bytes bytes) {
  vt_wire wire = vt_wire_open(bytes);
  vt_wire_field field;
  for (bool more = true;;) {
    VT_TRY(vt_wire_next(&wire, &field, &more));
    if (!more) return VT_OK;
    int32_t *count = field.number == 4   ? &r->hlo->replicas
                     : field.number == 5 ? &r->hlo->partitions
                                         : NULL;
    if (count && field.wire == 0 && field.value < 1 << 20) *count = (int32_t)field.value;
  }
}

vt_status vt_hlo_read_message(vt_hlo_reader *r, vt_bytes program) {
  vt_bytes module, config;
  vt_wire_field field;
  int64_t entry = 0;
  if (!vt_hlo_module_in(program, &module, &config)) {
    vt_wire wire = vt_wire_open(program);
    for (bool more = true; more;) VT_TRY(vt_wire_next(&wire, &field, &more));
    return vt_error(VT_INVALID_ARGUMENT, "the message holds no HLO module");
  }
  for (int pass = 0; pass < 2; pass++) { // frames come behind the instructions that refer to them
    vt_wire wire = vt_wire_open(module);
    for (bool more = true;;) {
      VT_TRY(vt_wire_next(&wire, &field, &more));
      if (!more) break;
      if (pass == 0 && field.number == 1) r->hlo->name = vt_hlo_kept(r, string_of(&field));
      if (pass == 0 && field.number == 6) entry = (int64_t)field.value;
      if (pass == 0 && field.number == 17) VT_TRY(read_frames(r, field.bytes));
      if (pass == 0 || field.wire != 2) continue;
      if (field.number == 3) VT_TRY(read_computation(r, field.bytes));
      if (field.number == 7) r->hlo->scheduled = field.bytes.size > 0;
      if (field.number == 4) VT_TRY(read_program_shape(r, field.bytes));
      if (field.number == 8 || field.number == 18)
        VT_TRY(read_donations(r, field.bytes, field.number == 8));
      if (field.number == 19) {
        vt_dict_value *dict = vt_hlo_new_dict(r);
        VT_TRY(read_dict(r, field.bytes, dict));
        r->hlo->frontend = dict;
      }
    }
  }
  r->hlo->entry = vt_map_find(&r->computations, &entry, sizeof entry);
  VT_TRY(read_config(r, config));
  return vt_hlo_finish(r, false);
}
