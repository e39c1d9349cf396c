// SPDX-License-Identifier: Apache-2.0
// from_hlo_ops.c - what each opcode of HLO becomes in the raw tree.
//
// hlo_opcodes.def says which op an opcode is and which rule writes it; the rule of the same name
// here reads it. A second table has the opcodes that no op of ours is. What starts an operation is
// the operation, and what ends it a copy.
#include <inttypes.h>
#include <string.h>

#include "import/from_hlo.h"
#include "import/text.h"

#define RULE(name)                                                                                 \
  static vt_status read_##name(vt_from_hlo *c, const vt_hlo_instruction *i, vt_opcode code,        \
                               vt_raw_value **out_value)

static bool is(const char *a, const char *b) {
  return !strcmp(a, b);
}

static vt_status refuse(vt_from_hlo *c, const char *why) {
  return vt_from_hlo_error(c, VT_INVALID_ARGUMENT, "%s", why);
}

static const vt_hlo_attr *ints_of(const vt_hlo_instruction *i, vt_hlo_field field,
                                  uint32_t *out_count) {
  const vt_hlo_attr *attr = vt_hlo_find(i, field);
  *out_count = attr ? attr->count : 0;
  return attr;
}

static int64_t number_of(const vt_hlo_instruction *i, vt_hlo_field field) {
  const vt_hlo_attr *attr = vt_hlo_find(i, field);
  return attr ? attr->i64 : 0;
}

// Attributes that keep their form -----------------------------------------------------------------

static const struct {
  vt_opcode op;
  vt_attr_key key;
  vt_hlo_field field;
} copies[] = {
#define HLO_ATTR(op, key, field) {VT_OP_##op, VT_ATTR_##key, VT_HLO_FIELD_##field},
#include "hlo/hlo_attrs.def"
#undef HLO_ATTR
};

// Numbers that are 1 where a message leaves them out, which for others means 0.
static int64_t number_or_usual(const vt_hlo_attr *attr, vt_hlo_field field) {
  bool groups = field == VT_HLO_FIELD_FEATURE_GROUPS || field == VT_HLO_FIELD_BATCH_GROUPS;
  return attr && (attr->i64 || !groups) ? attr->i64 : groups;
}

static vt_status copy_attrs(vt_from_hlo *c, const vt_hlo_instruction *i, vt_opcode code,
                            vt_raw_op *to) {
  for (const uint8_t *k = vt_op_info_get(code)->attrs; *k; k++) {
    vt_attr_key key = (vt_attr_key)*k;
    const char *name = vt_attr_text(key);
    if (key == VT_ATTR_DIMENSION) { // a list of one in HLO
      const vt_hlo_attr *list = vt_hlo_find(i, VT_HLO_FIELD_DIMENSIONS);
      if (list && list->count > 1) return refuse(c, "one dimension was expected");
      vt_from_hlo_set_i64(c, to, name, list && list->count ? list->ints[0] : 0);
    }
    for (size_t r = 0; r < sizeof copies / sizeof *copies; r++) {
      if (copies[r].key != key || (copies[r].op && copies[r].op != code)) continue;
      const vt_hlo_attr *attr = vt_hlo_find(i, copies[r].field);
      if (key == VT_ATTR_PRECISION_CONFIG && (!attr || !attr->count)) break; // has a default
      if (vt_attr_kind_of(key) == VT_ATTR_KIND_INTS) {
        vt_from_hlo_set_ints(c, to, name, attr ? attr->count : 0, attr ? attr->ints : NULL);
      } else if (vt_attr_kind_of(key) == VT_ATTR_KIND_F64) {
        vt_raw_attr *value = vt_from_hlo_attr(c, VT_RAW_FLOAT);
        value->f64 = attr ? attr->f64 : 0;
        vt_from_hlo_set(c, to, name, value);
      } else {
        vt_from_hlo_set_i64(c, to, name, number_or_usual(attr, copies[r].field));
      }
      break;
    }
  }
  return VT_OK;
}

static vt_status plain_op(vt_from_hlo *c, const vt_hlo_instruction *i, vt_opcode code,
                          vt_raw_op **out_op) {
  VT_TRY(vt_from_hlo_main(c, vt_op_info_get(code)->text, out_op));
  return copy_attrs(c, i, code, *out_op);
}

RULE(plain) {
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  *out_value = op->results;
  return VT_OK;
}
RULE(spread) {
  return read_plain(c, i, code, out_value);
}
RULE(barrier) {
  return read_plain(c, i, code, out_value);
}

// The first indices are scalars or, in an older form that PyTorch/XLA writes, the elements of one
// array.
RULE(dynamic_slice) {
  uint32_t first = code == VT_OP_DYNAMIC_UPDATE_SLICE ? 2 : 1;
  const vt_hlo_shape *array = i->operand_count == first + 1 ? i->operands[first]->shape : NULL;
  if (!array || array->tuple || array->type.rank != 1) return read_plain(c, i, code, out_value);
  int64_t count = array->type.dims[0];
  if (count < 0 || count > VT_MAX_RANK) return refuse(c, "there are more indices than dimensions");
  vt_raw_value *indices, *operands[2 + VT_MAX_RANK];
  const vt_raw_type *type;
  for (uint32_t k = 0; k < first; k++) VT_TRY(vt_from_hlo_operand(c, k, &operands[k]));
  VT_TRY(vt_from_hlo_operand(c, first, &indices));
  for (int64_t k = 0; k < count; k++) {
    vt_raw_op *one = vt_from_hlo_op(c, "stablehlo.slice", 1, &indices,
                                    vt_from_hlo_array(c, array->type.dtype, 1, (int64_t[]){1}));
    vt_from_hlo_set_ints(c, one, "start_indices", 1, (int64_t[]){k});
    vt_from_hlo_set_ints(c, one, "limit_indices", 1, (int64_t[]){k + 1});
    vt_from_hlo_set_ints(c, one, "strides", 1, (int64_t[]){1});
    operands[first + k] = vt_from_hlo_op(c, "stablehlo.reshape", 1, &one->results,
                                         vt_from_hlo_array(c, array->type.dtype, 0, NULL))
                              ->results;
  }
  VT_TRY(vt_from_hlo_type(c, i->shape, &type));
  vt_raw_op *op =
      vt_from_hlo_op(c, vt_op_info_get(code)->text, first + (uint32_t)count, operands, type);
  vt_from_hlo_set_common(c, op);
  *out_value = op->results;
  return copy_attrs(c, i, code, op);
}

// Ops that have no opcode.
RULE(same) {
  (void)i, (void)code, (void)out_value;
  return vt_from_hlo_error(c, VT_UNIMPLEMENTED, "the opcode is not supported");
}
RULE(manual) {
  return read_same(c, i, code, out_value);
}

// Values, shapes ----------------------------------------------------------------------------------

RULE(compare) {
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  static const char *const types[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
  const vt_hlo_attr *direction = vt_hlo_find(i, VT_HLO_FIELD_DIRECTION);
  const vt_hlo_attr *type = vt_hlo_find(i, VT_HLO_FIELD_COMPARE_TYPE);
  const vt_hlo_attr *order = vt_hlo_find(i, VT_HLO_FIELD_COMPARE_ORDER);
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  int64_t which = -1, kind = type && type->string.size ? -1 : 0;
  for (int k = 0; k < 6 && direction; k++)
    if (vt_string_is(direction->string, directions[k])) which = k;
  for (int k = 0; k < 5 && type; k++)
    if (vt_string_is(type->string, types[k])) kind = k;
  if (order && vt_string_is(order->string, "TOTAL")) // newer than the type
    kind = VT_CMPTYPE_TOTALORDER;
  else if (order && order->string.size && !vt_string_is(order->string, "PARTIAL"))
    kind = -1;
  if (which < 0 || kind < 0) return refuse(c, "the direction, type or order is not known");
  vt_from_hlo_set_i64(c, op, "comparison_direction", which);
  vt_from_hlo_set_i64(c, op, "compare_type", kind);
  *out_value = op->results;
  return VT_OK;
}

RULE(constant) {
  const vt_hlo_attr *literal = vt_hlo_find(i, VT_HLO_FIELD_LITERAL);
  vt_raw_op *op;
  (void)code;
  if (!literal || !literal->literal || i->shape->tuple ||
      !vt_type_equal(literal->literal->type, i->shape->type))
    return refuse(c, "its value is missing or has another shape");
  VT_TRY(vt_from_hlo_main(c, "stablehlo.constant", &op));
  vt_from_hlo_set_literal(c, op, "value", literal->literal);
  *out_value = op->results;
  return VT_OK;
}

RULE(broadcast) {
  uint32_t count;
  const vt_hlo_attr *dims = ints_of(i, VT_HLO_FIELD_DIMENSIONS, &count);
  vt_raw_op *op;
  (void)code;
  VT_TRY(vt_from_hlo_main(c, "stablehlo.broadcast_in_dim", &op));
  vt_from_hlo_set_ints(c, op, "broadcast_dimensions", count, dims ? dims->ints : NULL);
  *out_value = op->results;
  return VT_OK;
}

// One number of each row of `width`, as a list.
static void set_column(vt_from_hlo *c, vt_raw_op *op, const char *name, const vt_hlo_attr *attr,
                       uint32_t width, uint32_t at) {
  uint32_t rows = attr ? attr->count / width : 0;
  int64_t *ints = VT_NEW_ARRAY(c->arena, int64_t, rows + 1);
  for (uint32_t r = 0; r < rows; r++) ints[r] = attr->ints[r * width + at];
  vt_from_hlo_set_ints(c, op, name, rows, ints);
}

RULE(slice) {
  const vt_hlo_attr *rows = vt_hlo_find(i, VT_HLO_FIELD_SLICE);
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  set_column(c, op, "start_indices", rows, 3, 0);
  set_column(c, op, "limit_indices", rows, 3, 1);
  set_column(c, op, "strides", rows, 3, 2);
  *out_value = op->results;
  return VT_OK;
}

RULE(pad) {
  const vt_hlo_attr *rows = vt_hlo_find(i, VT_HLO_FIELD_PADDING);
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  set_column(c, op, "edge_padding_low", rows, 3, 0);
  set_column(c, op, "edge_padding_high", rows, 3, 1);
  set_column(c, op, "interior_padding", rows, 3, 2);
  *out_value = op->results;
  return VT_OK;
}

// The operand as it is; lowering finds out when its type is another.
static vt_status alias(vt_from_hlo *c, uint32_t index, vt_raw_value **out_value) {
  return vt_from_hlo_operand(c, index, out_value);
}

static vt_raw_value *checked(vt_from_hlo *c, vt_raw_value *value, const vt_raw_type *type) {
  return vt_from_hlo_op(c, "builtin.unrealized_conversion_cast", 1, &value, type)->results;
}

// Into the other memory, as a program would say it.
static vt_raw_value *placed(vt_from_hlo *c, vt_raw_value *value, bool host) {
  static const vt_string device = {"device", 6}, pinned = {"pinned_host", 11};
  vt_dict_value *place = VT_NEW(c->arena, vt_dict_value), *dict = VT_NEW(c->arena, vt_dict_value);
  place->kind = VT_DICT_STRING;
  place->string = host ? pinned : device;
  dict->kind = VT_DICT_DICT;
  dict->count = 1;
  dict->entries = VT_NEW(c->arena, vt_dict_entry);
  dict->entries[0] = (vt_dict_entry){{"_xla_buffer_placement", 21}, place};
  vt_raw_op *op = vt_from_hlo_op(c, "stablehlo.custom_call", 1, &value, value->type);
  vt_from_hlo_set_string(c, op, "call_target_name", (vt_string){"annotate_device_placement", 25});
  vt_from_hlo_set_i64(c, op, "has_side_effect", 1);
  vt_from_hlo_set(c, op, "mhlo.frontend_attributes", vt_from_hlo_strings(c, dict));
  return op->results;
}

static vt_status copy_of(vt_from_hlo *c, const vt_hlo_instruction *i, const vt_hlo_shape *to,
                         vt_raw_value **out_value) {
  const vt_raw_type *type;
  vt_raw_value *source;
  VT_TRY(vt_from_hlo_operand(c, 0, &source));
  VT_TRY(vt_from_hlo_type(c, to, &type));
  source = checked(c, source, type);
  bool moves = !to->tuple && !i->operands[0]->shape->tuple &&
               to->host != i->operands[0]->shape->host && type->kind == VT_RAW_TENSOR;
  *out_value = moves ? placed(c, source, to->host) : source;
  return VT_OK;
}

RULE(copy) {
  (void)code;
  return copy_of(c, i, i->shape, out_value);
}

RULE(copy_start) {
  (void)code;
  if (!i->shape->tuple || !i->shape->count) return refuse(c, "its shape is no tuple");
  return copy_of(c, i, i->shape->parts[0], out_value);
}

// The end of an operation, which gives what its start gave.
RULE(done) {
  (void)i, (void)code;
  return alias(c, 0, out_value);
}

RULE(tuple) {
  vt_raw_op *op;
  (void)i, (void)code;
  VT_TRY(vt_from_hlo_main(c, "vhlo.tuple_v1", &op));
  *out_value = op->results;
  return VT_OK;
}

RULE(get_tuple_element) {
  vt_raw_op *op;
  (void)code;
  VT_TRY(vt_from_hlo_main(c, "vhlo.get_tuple_element_v1", &op));
  vt_from_hlo_set_i64(c, op, "index", number_of(i, VT_HLO_FIELD_TUPLE_INDEX));
  *out_value = op->results;
  return VT_OK;
}

// A bitcast gives the same bytes in memory another shape and layout: with its dimensions in the
// order in which they lie there it is a reshape.
static vt_raw_value *turned(vt_from_hlo *c, vt_raw_value *value, int32_t rank,
                            const int64_t *order) {
  const int64_t *from = value->type->dims;
  int64_t dims[VT_MAX_RANK];
  bool moves = false;
  for (int32_t d = 0; d < rank; d++) {
    dims[d] = from[order[d]];
    moves = moves || order[d] != d;
  }
  if (!moves) return value;
  vt_raw_op *op = vt_from_hlo_op(c, "stablehlo.transpose", 1, &value,
                                 vt_from_hlo_array(c, value->type->dtype, rank, dims));
  vt_from_hlo_set_ints(c, op, "permutation", (uint32_t)rank, order);
  return op->results;
}

// From major to minor; false when there are tiles and more than one dimension of more than one.
static bool memory_order(const vt_hlo_shape *shape, int64_t *out_order) {
  int32_t rank = shape->type.rank, wide = 0;
  for (int32_t d = 0; d < rank; d++) {
    out_order[d] = rank - 1 - d;
    wide += shape->type.dims[d] != 1;
  }
  const char *at = shape->layout;
  for (int32_t k = rank; k-- > 0 && at;) {
    int64_t number = 0;
    for (at++; *at >= '0' && *at <= '9'; at++) number = 10 * number + (*at - '0');
    out_order[k] = number;
  }
  if (!shape->layout)
    for (int32_t d = 0; d < rank; d++) out_order[d] = d;
  return !shape->tiled || wide <= 1;
}

// Whether both have the same dimensions in memory, but for those of size 1.
static bool same_in_memory(vt_type a, const int64_t *order_a, vt_type b, const int64_t *order_b) {
  int32_t x = 0, y = 0;
  for (;;) {
    while (x < a.rank && a.dims[order_a[x]] == 1) x++;
    while (y < b.rank && b.dims[order_b[y]] == 1) y++;
    if (x == a.rank || y == b.rank) return x == a.rank && y == b.rank;
    if (a.dims[order_a[x++]] != b.dims[order_b[y++]]) return false;
  }
}

RULE(bitcast) {
  (void)code;
  int64_t from_order[VT_MAX_RANK + 1], to_order[VT_MAX_RANK + 1], back[VT_MAX_RANK + 1];
  int64_t dims[VT_MAX_RANK + 1];
  const vt_raw_type *type;
  vt_raw_value *value;
  VT_TRY(vt_from_hlo_operand(c, 0, &value));
  VT_TRY(vt_from_hlo_type(c, i->shape, &type));
  const vt_hlo_shape *from = i->operands[0]->shape, *to = i->shape;
  if (from->tuple || to->tuple || type->kind != VT_RAW_TENSOR || value->type->kind != VT_RAW_TENSOR)
    return refuse(c, "a bitcast of what is no array");
  bool plain = memory_order(from, from_order), plain_to = memory_order(to, to_order);
  if ((!plain || !plain_to) && !same_in_memory(from->type, from_order, to->type, to_order))
    return vt_from_hlo_error(c, VT_UNIMPLEMENTED, "a bitcast between tiled layouts");
  if (vt_dtype_get(from->type.dtype)->bits != vt_dtype_get(to->type.dtype)->bits)
    return vt_from_hlo_error(c, VT_UNIMPLEMENTED, "a bitcast between types of different sizes");
  value = turned(c, value, from->type.rank, from_order);
  for (int32_t d = 0; d < to->type.rank; d++) {
    dims[d] = to->type.dims[to_order[d]];
    back[to_order[d]] = d;
  }
  value = vt_from_hlo_op(c, "stablehlo.reshape", 1, &value,
                         vt_from_hlo_array(c, from->type.dtype, to->type.rank, dims))
              ->results;
  value = turned(c, value, to->type.rank, back);
  if (from->type.dtype != to->type.dtype)
    value = vt_from_hlo_op(c, "stablehlo.bitcast_convert", 1, &value, type)->results;
  *out_value = value;
  return VT_OK;
}

// Contractions ------------------------------------------------------------------------------------

static const vt_raw_attr *dtype_attr(vt_from_hlo *c, vt_dtype dtype) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_TYPE);
  vt_raw_type *type = VT_NEW(c->arena, vt_raw_type);
  *type = (vt_raw_type){.kind = VT_RAW_ELEMENT, .dtype = dtype, .height = 1, .leaves = 1};
  attr->type = type;
  return attr;
}

static vt_status set_algorithm(vt_from_hlo *c, const vt_hlo_instruction *i, vt_raw_op *op) {
  static const struct {
    vt_dtype types[3];
    int64_t products;
  } algorithms[] = {
#define ALGORITHM(text, lhs, rhs, sum, products) {{VT_##lhs, VT_##rhs, VT_##sum}, products},
#include "hlo/hlo_algorithms.def"
#undef ALGORITHM
  };
  static const char *const names[] = {"lhs_precision_type", "rhs_precision_type",
                                      "accumulation_type"};
  enum { ANY_F8 = 1, ANY_F8_FAST = 2 };
  int64_t number = number_of(i, VT_HLO_FIELD_DOT_ALGORITHM);
  if (!number) return VT_OK;
  if (number < 0 || (size_t)number >= sizeof algorithms / sizeof *algorithms)
    return vt_from_hlo_error(c, VT_UNIMPLEMENTED, "dot algorithm %" PRId64, number);
  bool any = number == ANY_F8 || number == ANY_F8_FAST;
  for (int k = 0; k < 3; k++) {
    vt_dtype dtype = algorithms[number].types[k];
    if (any && k < 2) {
      if ((uint32_t)k >= i->operand_count || i->operands[k]->shape->tuple)
        return refuse(c, "an operand is no array");
      dtype = i->operands[k]->shape->type.dtype;
      if (!vt_dtype_is_float(dtype) || vt_dtype_get(dtype)->bits != 8) dtype = VT_F8E5M2;
    }
    vt_from_hlo_set(c, op, names[k], dtype_attr(c, dtype));
  }
  vt_from_hlo_set_i64(c, op, "lhs_component_count", 1);
  vt_from_hlo_set_i64(c, op, "rhs_component_count", 1);
  vt_from_hlo_set_i64(c, op, "num_primitive_operations", any ? 1 : algorithms[number].products);
  vt_from_hlo_set_i64(c, op, "allow_imprecise_accumulation", number == ANY_F8_FAST);
  return VT_OK;
}

RULE(dot) {
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  VT_TRY(set_algorithm(c, i, op));
  *out_value = op->results;
  return VT_OK;
}

RULE(ragged_dot) {
  static const struct {
    const char *name;
    vt_hlo_field field;
  } lists[] = {{"lhs_batching_dimensions", VT_HLO_FIELD_LHS_BATCH},
               {"rhs_batching_dimensions", VT_HLO_FIELD_RHS_BATCH},
               {"lhs_contracting_dimensions", VT_HLO_FIELD_LHS_CONTRACTING},
               {"rhs_contracting_dimensions", VT_HLO_FIELD_RHS_CONTRACTING},
               {"lhs_ragged_dimensions", VT_HLO_FIELD_LHS_RAGGED},
               {"rhs_group_dimensions", VT_HLO_FIELD_RHS_GROUP}};
  enum { LISTS = sizeof lists / sizeof *lists };
  vt_raw_op *op;
  (void)code;
  VT_TRY(vt_from_hlo_main(c, "chlo.ragged_dot", &op));
  vt_raw_op all = {0}; // the lists become a dictionary
  for (int k = 0; k < LISTS; k++) {
    uint32_t count;
    const vt_hlo_attr *list = ints_of(i, lists[k].field, &count);
    vt_from_hlo_set_ints(c, &all, lists[k].name, count, list ? list->ints : NULL);
  }
  vt_raw_attr *dict = vt_from_hlo_attr(c, VT_RAW_DICT);
  vt_string *names = VT_NEW_ARRAY(c->arena, vt_string, LISTS);
  const vt_raw_attr **items = VT_NEW_ARRAY(c->arena, const vt_raw_attr *, LISTS);
  for (int k = 0; k < LISTS; k++) names[k] = all.attrs[k].name, items[k] = all.attrs[k].value;
  dict->count = LISTS;
  dict->names = names;
  dict->items = items;
  (void)vt_raw_attr_measure(dict);
  vt_from_hlo_set(c, op, "ragged_dot_dimension_numbers", dict);
  *out_value = op->results;
  return VT_OK;
}

// Rows of seven numbers, as xla.WindowDimension has them.
enum { WINDOW = 7, SIZE = 0, STRIDE, LOW, HIGH, WINDOW_DILATION, BASE_DILATION, REVERSAL };

static void set_window_padding(vt_from_hlo *c, vt_raw_op *op, const vt_hlo_attr *window) {
  uint32_t rows = window ? window->count / WINDOW : 0;
  int64_t *pads = VT_NEW_ARRAY(c->arena, int64_t, 2 * rows + 1);
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t k = 0; k < 2; k++) pads[2 * r + k] = window->ints[r * WINDOW + LOW + k];
  vt_from_hlo_set_rows(c, op, "padding", rows, 2, pads);
}

RULE(convolution) {
  const vt_hlo_attr *labels = vt_hlo_find(i, VT_HLO_FIELD_LABELS);
  const vt_hlo_attr *window = vt_hlo_find(i, VT_HLO_FIELD_WINDOW);
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  uint32_t rank = labels ? labels->count / 3 : 0;
  if (rank < 2) return refuse(c, "the dimensions have no labels");
  for (int s = 0; s < 3; s++) {
    const int64_t *side = labels->ints + (size_t)s * rank;
    vt_from_hlo_set_i64(c, op, vt_attr_text(vt_conv_dim_keys[s][0]), side[0]);
    vt_from_hlo_set_i64(c, op, vt_attr_text(vt_conv_dim_keys[s][1]), side[1]);
    vt_from_hlo_set_ints(c, op, vt_attr_text(vt_conv_dim_keys[s][2]), rank - 2, side + 2);
  }
  set_column(c, op, "window_strides", window, WINDOW, STRIDE);
  set_column(c, op, "lhs_dilation", window, WINDOW, BASE_DILATION);
  set_column(c, op, "rhs_dilation", window, WINDOW, WINDOW_DILATION);
  set_column(c, op, "window_reversal", window, WINDOW, REVERSAL);
  set_window_padding(c, op, window);
  *out_value = op->results;
  return VT_OK;
}

// What runs computations --------------------------------------------------------------------------

static vt_status called_of(vt_from_hlo *c, const vt_hlo_instruction *i, uint32_t index,
                           const vt_hlo_computation **out_called) {
  *out_called = NULL;
  if (index >= i->called_count) return refuse(c, "the computation that it runs is missing");
  *out_called = i->called[index];
  return VT_OK;
}

RULE(reduction) {
  const vt_hlo_attr *window = vt_hlo_find(i, VT_HLO_FIELD_WINDOW);
  const vt_hlo_computation *called;
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  for (uint32_t r = 0; r < (code == VT_OP_SELECT_AND_SCATTER ? 2 : 1); r++) {
    VT_TRY(called_of(c, i, r, &called));
    VT_TRY(vt_from_hlo_region(c, op, called, NULL));
  }
  if (code == VT_OP_REDUCE_WINDOW || code == VT_OP_SELECT_AND_SCATTER) {
    set_column(c, op, "window_dimensions", window, WINDOW, SIZE);
    set_column(c, op, "window_strides", window, WINDOW, STRIDE);
    set_window_padding(c, op, window);
  }
  if (code == VT_OP_REDUCE_WINDOW) {
    set_column(c, op, "base_dilations", window, WINDOW, BASE_DILATION);
    set_column(c, op, "window_dilations", window, WINDOW, WINDOW_DILATION);
  }
  *out_value = op->results;
  return VT_OK;
}

RULE(while) {
  const vt_hlo_computation *body, *test;
  vt_raw_op *op;
  (void)code;
  VT_TRY(called_of(c, i, 0, &body));
  VT_TRY(called_of(c, i, 1, &test));
  VT_TRY(vt_from_hlo_main(c, "stablehlo.while", &op));
  VT_TRY(vt_from_hlo_region(c, op, test, NULL));
  VT_TRY(vt_from_hlo_region(c, op, body, NULL));
  *out_value = op->results;
  return VT_OK;
}

// Each branch takes an operand of its own, which it here uses from outside.
RULE(branches) {
  const vt_raw_type *type;
  vt_raw_value *which;
  (void)code;
  VT_TRY(vt_from_hlo_operand(c, 0, &which));
  VT_TRY(vt_from_hlo_type(c, i->shape, &type));
  bool pred = which->type->kind == VT_RAW_TENSOR && which->type->dtype == VT_PRED;
  if (i->operand_count != i->called_count + 1 || !i->called_count || (pred && i->called_count != 2))
    return refuse(c, "branches and operands do not fit");
  vt_raw_value **given = VT_NEW_ARRAY(c->arena, vt_raw_value *, i->called_count);
  for (uint32_t r = 0; r < i->called_count; r++) {
    const vt_raw_type *wanted;
    if (i->called[r]->param_count != 1) return refuse(c, "a branch takes one value");
    VT_TRY(vt_from_hlo_operand(c, r + 1, &given[r]));
    VT_TRY(vt_from_hlo_type(c, i->called[r]->params[0]->shape, &wanted));
    given[r] = checked(c, given[r], wanted);
  }
  vt_raw_op *op = vt_from_hlo_op(c, pred ? "stablehlo.if" : "stablehlo.case", 1, &which, type);
  vt_from_hlo_set_common(c, op);
  for (uint32_t r = 0; r < i->called_count; r++)
    VT_TRY(vt_from_hlo_region(c, op, i->called[r], &given[r]));
  *out_value = op->results;
  return VT_OK;
}

static vt_status call_of(vt_from_hlo *c, const vt_hlo_instruction *i, const vt_raw_type *type,
                         vt_raw_value **out_value) {
  const vt_hlo_computation *called;
  VT_TRY(called_of(c, i, 0, &called));
  vt_raw_value **operands = VT_NEW_ARRAY(c->arena, vt_raw_value *, i->operand_count + 1);
  for (uint32_t k = 0; k < i->operand_count; k++) VT_TRY(vt_from_hlo_operand(c, k, &operands[k]));
  vt_raw_op *op = vt_from_hlo_op(c, "func.call", i->operand_count, operands, type);
  vt_from_hlo_set_string(c, op, "callee", vt_from_hlo_func(c, called));
  vt_from_hlo_set_common(c, op);
  *out_value = op->results;
  return VT_OK;
}

RULE(call) {
  const vt_raw_type *type;
  (void)code;
  VT_TRY(vt_from_hlo_type(c, i->shape, &type));
  return call_of(c, i, type, out_value);
}

// (operands, result, ...): the start gives the result.
static vt_status result_part(vt_from_hlo *c, const vt_hlo_instruction *i,
                             const vt_hlo_shape **out_shape) {
  *out_shape = NULL;
  if (!i->shape->tuple || i->shape->count < 2)
    return refuse(c, "its shape does not hold operands and a result");
  *out_shape = i->shape->parts[1];
  return VT_OK;
}

RULE(async_start) {
  const vt_hlo_shape *shape;
  const vt_raw_type *type;
  (void)code;
  VT_TRY(result_part(c, i, &shape));
  VT_TRY(vt_from_hlo_type(c, shape, &type));
  return call_of(c, i, type, out_value);
}

// Random numbers, custom calls --------------------------------------------------------------------

RULE(rng) {
  vt_type type = i->shape->type;
  const vt_raw_type *result;
  vt_raw_value *operands[3];
  VT_TRY(vt_from_hlo_operand(c, 0, &operands[0]));
  VT_TRY(vt_from_hlo_operand(c, 1, &operands[1]));
  VT_TRY(vt_from_hlo_type(c, i->shape, &result));
  if (i->shape->tuple) return refuse(c, "its shape is a tuple");
  int64_t rank = type.rank;
  vt_literal sizes = {vt_type_make(c->arena, VT_S64, 1, &rank), type.dims, false};
  vt_raw_op *shape =
      vt_from_hlo_op(c, "stablehlo.constant", 0, NULL, vt_from_hlo_array(c, VT_S64, 1, &rank));
  vt_from_hlo_set_literal(c, shape, "value", &sizes);
  operands[2] = shape->results;
  vt_raw_op *op = vt_from_hlo_op(c, "stablehlo.rng", 3, operands, result);
  vt_from_hlo_set_common(c, op);
  VT_TRY(copy_attrs(c, i, code, op));
  *out_value = op->results;
  return VT_OK;
}

static void set_top_k(vt_from_hlo *c, vt_raw_op *op, int64_t k, bool largest) {
  vt_from_hlo_set_i64(c, op, "k", k);
  vt_raw_attr *flag = vt_from_hlo_attr(c, VT_RAW_BOOL);
  flag->i64 = largest;
  vt_from_hlo_set(c, op, "largest", flag);
}

RULE(topk) {
  const vt_hlo_attr *largest = vt_hlo_find(i, VT_HLO_FIELD_TOP_K_LARGEST);
  vt_raw_op *op;
  (void)code;
  VT_TRY(vt_from_hlo_main(c, "chlo.top_k", &op));
  set_top_k(c, op, number_of(i, VT_HLO_FIELD_TOP_K), largest && largest->i64);
  *out_value = op->results;
  return VT_OK;
}

static const vt_raw_attr *layout_attr(vt_from_hlo *c, const vt_hlo_shape *shape) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_INTS);
  int64_t *order = VT_NEW_ARRAY(c->arena, int64_t, VT_MAX_RANK + 1), turned_order[VT_MAX_RANK + 1];
  (void)memory_order(shape, turned_order);
  for (int32_t d = 0; d < shape->type.rank; d++) order[d] = turned_order[shape->type.rank - 1 - d];
  attr->ints = order;
  attr->count = (uint32_t)shape->type.rank;
  return attr;
}

typedef VT_ARRAY(const vt_raw_attr *) item_list;

static void add_layouts(vt_from_hlo *c, const vt_hlo_shape *shape, item_list *out) {
  if (!shape->tuple) vt_array_push_in(c->arena, out, layout_attr(c, shape));
  for (uint32_t k = 0; k < shape->count; k++) add_layouts(c, shape->parts[k], out);
}

static void set_call_layouts(vt_from_hlo *c, const vt_hlo_instruction *i, vt_raw_op *op) {
  const vt_hlo_attr *operands = vt_hlo_find(i, VT_HLO_FIELD_OPERAND_LAYOUTS);
  item_list in = {0}, out = {0};
  if (!operands) return;
  for (uint32_t k = 0; k < operands->count; k++) add_layouts(c, operands->shapes[k], &in);
  add_layouts(c, i->shape, &out);
  vt_from_hlo_set_items(c, op, "operand_layouts", (uint32_t)in.size, in.data);
  vt_from_hlo_set_items(c, op, "result_layouts", (uint32_t)out.size, out.data);
}

static void set_call_aliases(vt_from_hlo *c, const vt_hlo_instruction *i, vt_raw_op *op) {
  const vt_hlo_attr *rows = vt_hlo_find(i, VT_HLO_FIELD_ALIASES);
  item_list items = {0};
  for (uint32_t k = 0; rows && k + 1 < rows->count; k += 2) {
    vt_raw_attr *alias_attr = vt_from_hlo_attr(c, VT_RAW_ALIAS);
    int64_t *ints = VT_NEW_ARRAY(c->arena, int64_t, 3);
    ints[0] = rows->ints[k + 1];
    ints[1] = rows->ints[k] >= 0;
    ints[2] = rows->ints[k];
    alias_attr->ints = ints;
    alias_attr->count = 2 + (uint32_t)ints[1];
    vt_array_push_in(c->arena, &items, alias_attr);
  }
  if (items.size)
    vt_from_hlo_set_items(c, op, "output_operand_aliases", (uint32_t)items.size, items.data);
}

// The configuration: a dictionary where it reads as MLIR prints one.
static void set_config(vt_from_hlo *c, const vt_hlo_instruction *i, vt_raw_op *op) {
  const vt_hlo_attr *config = vt_hlo_find(i, VT_HLO_FIELD_BACKEND_CONFIG);
  if (!config || !config->string.size) return;
  const vt_raw_attr *dict = NULL;
  vt_status st =
      config->string.data[0] == '{' ? vt_mlir_text_attr(config->string, c->arena, &dict) : VT_OK;
  vt_status_free(st);
  if (!st && dict && dict->kind == VT_RAW_DICT)
    vt_from_hlo_set(c, op, "mhlo.backend_config", dict);
  else
    vt_from_hlo_set_string(c, op, "backend_config", config->string);
}

RULE(custom_call) {
  const vt_hlo_attr *target = vt_hlo_find(i, VT_HLO_FIELD_TARGET);
  vt_string name = target ? target->string : (vt_string){"", 0};
  item_list funcs = {0};
  vt_raw_op *op;
  (void)code;
  if (vt_string_is(name, "TopK") && i->shape->tuple && i->shape->count == 2 &&
      !i->shape->parts[0]->tuple && i->shape->parts[0]->type.rank) {
    vt_type type = i->shape->parts[0]->type;
    VT_TRY(vt_from_hlo_main(c, "chlo.top_k", &op));
    set_top_k(c, op, type.dims[type.rank - 1], true);
    *out_value = op->results;
    return VT_OK;
  }
  if (vt_string_is(name, "chlo.erfc")) { // as src/hlo writes what HLO has no opcode for
    VT_TRY(vt_from_hlo_main(c, "chlo.erfc", &op));
    *out_value = op->results;
    return VT_OK;
  }
  VT_TRY(vt_from_hlo_main(c, "stablehlo.custom_call", &op));
  vt_from_hlo_set_string(c, op, "call_target_name", name);
  vt_from_hlo_set_i64(c, op, "has_side_effect", number_of(i, VT_HLO_FIELD_SIDE_EFFECT) != 0);
  int64_t version = number_of(i, VT_HLO_FIELD_API_VERSION);
  vt_from_hlo_set_i64(c, op, "api_version", version ? version : 1);
  set_config(c, i, op);
  set_call_layouts(c, i, op);
  set_call_aliases(c, i, op);
  for (uint32_t k = 0; k < i->called_count; k++) {
    vt_raw_attr *func = vt_from_hlo_attr(c, VT_RAW_STRING);
    func->string = vt_from_hlo_func(c, i->called[k]);
    vt_array_push_in(c->arena, &funcs, func);
  }
  if (funcs.size)
    vt_from_hlo_set_items(c, op, "called_computations", (uint32_t)funcs.size, funcs.data);
  *out_value = op->results;
  return VT_OK;
}

// Transfers ---------------------------------------------------------------------------------------

// A pair with its end is one op: sending gives a token, receiving (data, token).
RULE(transfer) {
  enum { DEVICE_TO_DEVICE = 1, DEVICE_TO_HOST = 2, HOST_TO_DEVICE = 3 };
  const vt_raw_type *data;
  vt_raw_op *op;
  bool sends = code == VT_OP_SEND;
  if (!i->shape->tuple || i->shape->count != 3) return refuse(c, "its shape is no triple");
  VT_TRY(vt_from_hlo_main(c, sends ? "stablehlo.send" : "stablehlo.recv", &op));
  VT_TRY(vt_from_hlo_type(c, i->shape->parts[0], &data));
  const vt_raw_type *token = vt_from_hlo_token(c);
  vt_raw_type *pair = VT_NEW(c->arena, vt_raw_type);
  const vt_raw_type **items = VT_NEW_ARRAY(c->arena, const vt_raw_type *, 2);
  items[0] = data;
  items[1] = token;
  *pair = (vt_raw_type){.kind = VT_RAW_TUPLE, .count = 2, .items = items};
  (void)vt_raw_type_measure(pair);
  op->results->type = sends ? token : pair;
  bool host = number_of(i, VT_HLO_FIELD_IS_HOST_TRANSFER) != 0;
  vt_from_hlo_set_i64(c, op, "is_host_transfer", host);
  vt_from_hlo_set_i64(c, op, "channel_id", number_of(i, VT_HLO_FIELD_CHANNEL_ID));
  vt_from_hlo_set_i64(c, op, "channel_type",
                      !host   ? DEVICE_TO_DEVICE
                      : sends ? DEVICE_TO_HOST
                              : HOST_TO_DEVICE);
  *out_value = op->results;
  return VT_OK;
}

static void set_text(vt_from_hlo *c, const vt_hlo_instruction *i, vt_hlo_field field,
                     const char *name, vt_raw_op *op) {
  const vt_hlo_attr *text = vt_hlo_find(i, field);
  vt_from_hlo_set_string(c, op, name, text ? text->string : (vt_string){"", 0});
}

RULE(infeed) {
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  set_text(c, i, VT_HLO_FIELD_INFEED_CONFIG, "infeed_config", op);
  *out_value = op->results;
  return VT_OK;
}

RULE(outfeed) {
  vt_raw_op *op;
  VT_TRY(plain_op(c, i, code, &op));
  set_text(c, i, VT_HLO_FIELD_OUTFEED_CONFIG, "outfeed_config", op);
  *out_value = op->results;
  return VT_OK;
}

// Collectives -------------------------------------------------------------------------------------

static void set_groups(vt_from_hlo *c, const vt_hlo_instruction *i, vt_raw_op *op) {
  const vt_hlo_attr *groups = vt_hlo_find(i, VT_HLO_FIELD_REPLICA_GROUPS);
  uint32_t rows = groups ? groups->rows : 0;
  vt_from_hlo_set_rows(c, op, "replica_groups", rows, rows ? groups->count / rows : 0,
                       rows ? groups->ints : NULL);
  vt_from_hlo_set_i64(c, op, "channel_id", number_of(i, VT_HLO_FIELD_CHANNEL_ID));
  vt_from_hlo_set_i64(c, op, "use_global_device_ids",
                      number_of(i, VT_HLO_FIELD_USE_GLOBAL_IDS) != 0);
}

static vt_status collective(vt_from_hlo *c, const vt_hlo_instruction *i, vt_opcode code,
                            const vt_hlo_shape *shape, vt_raw_value **out_value) {
  const vt_hlo_attr *dims = vt_hlo_find(i, VT_HLO_FIELD_DIMENSIONS);
  const vt_hlo_computation *called;
  const vt_raw_type *type;
  vt_raw_op *op;
  VT_TRY(vt_from_hlo_main(c, vt_op_info_get(code)->text, &op));
  VT_TRY(vt_from_hlo_type(c, shape, &type));
  op->results->type = type;
  if (vt_op_info_get(code)->regions == 1) {
    VT_TRY(called_of(c, i, 0, &called));
    VT_TRY(vt_from_hlo_region(c, op, called, NULL));
  }
  if (code == VT_OP_ALL_GATHER || code == VT_OP_REDUCE_SCATTER) {
    if (!dims || dims->count != 1) return refuse(c, "one dimension was expected");
    vt_from_hlo_set_i64(c, op, code == VT_OP_ALL_GATHER ? "all_gather_dim" : "scatter_dimension",
                        dims->ints[0]);
  }
  const vt_hlo_attr *pairs = vt_hlo_find(i, VT_HLO_FIELD_SOURCE_TARGET_PAIRS);
  if (code == VT_OP_COLLECTIVE_PERMUTE) {
    vt_from_hlo_set_rows(c, op, "source_target_pairs", pairs ? pairs->count / 2 : 0, 2,
                         pairs ? pairs->ints : NULL);
    vt_from_hlo_set_i64(c, op, "channel_id", number_of(i, VT_HLO_FIELD_CHANNEL_ID));
  } else {
    set_groups(c, i, op);
  }
  *out_value = op->results;
  return VT_OK;
}

RULE(collective) {
  return collective(c, i, code, i->shape, out_value);
}

RULE(all_reduce_start) {
  (void)code;
  return collective(c, i, VT_OP_ALL_REDUCE, i->shape, out_value);
}

RULE(all_gather_start) {
  const vt_hlo_shape *shape;
  (void)code;
  VT_TRY(result_part(c, i, &shape));
  return collective(c, i, VT_OP_ALL_GATHER, shape, out_value);
}

RULE(permute_start) {
  const vt_hlo_shape *shape;
  (void)code;
  VT_TRY(result_part(c, i, &shape));
  return collective(c, i, VT_OP_COLLECTIVE_PERMUTE, shape, out_value);
}

static vt_raw_op *exchange(vt_from_hlo *c, const vt_hlo_instruction *i, int64_t dim, int64_t parts,
                           vt_raw_value *value) {
  vt_raw_op *op = vt_from_hlo_op(c, "stablehlo.all_to_all", 1, &value, value->type);
  vt_from_hlo_set_i64(c, op, "split_dimension", dim);
  vt_from_hlo_set_i64(c, op, "concat_dimension", dim);
  vt_from_hlo_set_i64(c, op, "split_count", parts);
  set_groups(c, i, op);
  vt_from_hlo_set_common(c, op);
  return op;
}

static vt_raw_value *reshaped(vt_from_hlo *c, vt_raw_value *value, int32_t rank,
                              const int64_t *dims) {
  const vt_raw_type *type = vt_from_hlo_array(c, value->type->dtype, rank, dims);
  return vt_from_hlo_op(c, "stablehlo.reshape", 1, &value, type)->results;
}

// Each operand goes to one member of the group: they are exchanged as the rows of one array.
static vt_status exchange_operands(vt_from_hlo *c, const vt_hlo_instruction *i,
                                   vt_raw_value **out_value) {
  uint32_t count = i->operand_count;
  vt_raw_value **parts = VT_NEW_ARRAY(c->arena, vt_raw_value *, count + 1);
  const vt_raw_type *result;
  VT_TRY(vt_from_hlo_type(c, i->shape, &result));
  int64_t dims[VT_MAX_RANK], starts[VT_MAX_RANK] = {0}, limits[VT_MAX_RANK], ones[VT_MAX_RANK];
  int32_t rank = 0;
  const vt_raw_type *one = NULL;
  for (uint32_t k = 0; k < count; k++) {
    VT_TRY(vt_from_hlo_operand(c, k, &parts[k]));
    one = parts[k]->type;
    if (one->kind != VT_RAW_TENSOR || one->rank >= VT_MAX_RANK)
      return refuse(c, "an operand is no array");
    rank = one->rank + 1;
    dims[0] = 1;
    if (one->rank) memcpy(dims + 1, one->dims, (size_t)one->rank * sizeof *dims);
    parts[k] = reshaped(c, parts[k], rank, dims);
  }
  if (!count) return refuse(c, "operands are missing");
  dims[0] = count;
  vt_raw_op *joined = vt_from_hlo_op(c, "stablehlo.concatenate", count, parts,
                                     vt_from_hlo_array(c, one->dtype, rank, dims));
  vt_from_hlo_set_i64(c, joined, "dimension", 0);
  vt_raw_value *sent = exchange(c, i, 0, count, joined->results)->results;
  for (int32_t d = 0; d < rank; d++) limits[d] = dims[d], ones[d] = 1;
  dims[0] = 1;
  for (uint32_t k = 0; k < count; k++) {
    vt_raw_op *row = vt_from_hlo_op(c, "stablehlo.slice", 1, &sent,
                                    vt_from_hlo_array(c, one->dtype, rank, dims));
    starts[0] = k;
    limits[0] = (int64_t)k + 1;
    vt_from_hlo_set_ints(c, row, "start_indices", (uint32_t)rank, starts);
    vt_from_hlo_set_ints(c, row, "limit_indices", (uint32_t)rank, limits);
    vt_from_hlo_set_ints(c, row, "strides", (uint32_t)rank, ones);
    parts[k] = reshaped(c, row->results, rank - 1, dims + 1);
  }
  *out_value = vt_from_hlo_op(c, "vhlo.tuple_v1", count, parts, result)->results;
  return VT_OK;
}

RULE(all_to_all) {
  const vt_hlo_attr *dims = vt_hlo_find(i, VT_HLO_FIELD_DIMENSIONS);
  const vt_hlo_attr *groups = vt_hlo_find(i, VT_HLO_FIELD_REPLICA_GROUPS);
  vt_raw_value *value;
  (void)code;
  if (!dims || !dims->count || i->shape->tuple) return exchange_operands(c, i, out_value);
  bool partitions = number_of(i, VT_HLO_FIELD_CHANNEL_ID) > 0;
  int64_t parts = partitions ? c->hlo->partitions : c->hlo->replicas;
  if (groups && groups->rows) parts = groups->count / groups->rows;
  VT_TRY(vt_from_hlo_operand(c, 0, &value));
  *out_value = exchange(c, i, dims->ints[0], parts > 1 ? parts : 1, value)->results;
  return VT_OK;
}

// The table ---------------------------------------------------------------------------------------

static const struct {
  const char *opcode;
  vt_opcode code;
  vt_from_hlo_rule rule;
} ops[] =
    {
#define HLO(name, opcode, rule) {opcode, VT_OP_##name, read_##rule},
#include "hlo/hlo_opcodes.def"
#undef HLO
},
  others[] = {{"tuple", VT_OP_INVALID, read_tuple},
              {"get-tuple-element", VT_OP_INVALID, read_get_tuple_element},
              {"copy", VT_OP_INVALID, read_copy},
              {"copy-start", VT_OP_INVALID, read_copy_start},
              {"copy-done", VT_OP_INVALID, read_done},
              {"bitcast", VT_OP_INVALID, read_bitcast},
              {"fusion", VT_OP_INVALID, read_call},
              {"async-start", VT_OP_INVALID, read_async_start},
              {"async-update", VT_OP_INVALID, read_done},
              {"async-done", VT_OP_INVALID, read_done},
              {"all-reduce-start", VT_OP_INVALID, read_all_reduce_start},
              {"all-reduce-done", VT_OP_INVALID, read_done},
              {"all-gather-start", VT_OP_INVALID, read_all_gather_start},
              {"all-gather-done", VT_OP_INVALID, read_done},
              {"collective-permute-start", VT_OP_INVALID, read_permute_start},
              {"collective-permute-done", VT_OP_INVALID, read_done},
              {"send-done", VT_OP_INVALID, read_done},
              {"recv-done", VT_OP_INVALID, read_done},
              {"domain", VT_OP_INVALID, read_done},
              {"add-dependency", VT_OP_INVALID, read_done},
              {"topk", VT_OP_INVALID, read_topk},
              {"ragged-dot", VT_OP_INVALID, read_ragged_dot}};

// An opcode that is one of CHLO's ops.
RULE(chlo) {
  char name[64] = "chlo.";
  vt_raw_op *op;
  (void)code;
  for (size_t k = 0; i->opcode[k]; k++) name[5 + k] = i->opcode[k] == '-' ? '_' : i->opcode[k];
  VT_TRY(vt_from_hlo_main(c, name, &op));
  *out_value = op->results;
  return VT_OK;
}

static bool is_chlo(const char *opcode) {
  static const char *const known[] = {"acos",  "acosh", "asin", "asinh",
                                      "atanh", "cosh",  "erf",  "sinh"};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (is(opcode, known[k])) return true;
  return false;
}

vt_from_hlo_rule vt_from_hlo_find(const char *opcode, vt_opcode *out_code) {
  for (size_t k = 0; k < sizeof ops / sizeof *ops && *opcode; k++) {
    if (!is(ops[k].opcode, opcode)) continue;
    *out_code = ops[k].code;
    return ops[k].rule;
  }
  for (size_t k = 0; k < sizeof others / sizeof *others; k++)
    if (is(others[k].opcode, opcode)) return others[k].rule;
  return is_chlo(opcode) ? read_chlo : NULL;
}
