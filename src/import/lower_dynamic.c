// SPDX-License-Identifier: Apache-2.0
// lower_dynamic.c - dynamic ops whose result types are static become their static forms: the result
// type says what their shape operands say, or those are constants.
#include <string.h>

#include "import/lower.h"

enum { MAX_NUMBERS = 2 * VT_MAX_RANK };

// The last operands of `from` become attributes of `to`. NONE: the result type has it.
static const struct {
  vt_opcode from, to;
  uint32_t kept;
  vt_attr_key numbers[3];
} folds[] = {{VT_OP_DYNAMIC_RESHAPE, VT_OP_RESHAPE, 1, {VT_ATTR_NONE}},
             {VT_OP_DYNAMIC_IOTA, VT_OP_IOTA, 0, {VT_ATTR_NONE}},
             {VT_OP_DYNAMIC_BROADCAST_IN_DIM, VT_OP_BROADCAST_IN_DIM, 1, {VT_ATTR_NONE}},
             {VT_OP_DYNAMIC_GATHER, VT_OP_GATHER, 2, {VT_ATTR_SLICE_SIZES}},
             {VT_OP_DYNAMIC_CONV, VT_OP_CONVOLUTION, 2, {VT_ATTR_PADDING}},
             {VT_OP_DYNAMIC_PAD,
              VT_OP_PAD,
              2,
              {VT_ATTR_EDGE_PADDING_LOW, VT_ATTR_EDGE_PADDING_HIGH, VT_ATTR_INTERIOR_PADDING}},
             {VT_OP_REAL_DYNAMIC_SLICE,
              VT_OP_SLICE,
              1,
              {VT_ATTR_START_INDICES, VT_ATTR_LIMIT_INDICES, VT_ATTR_STRIDES}}};

// The numbers of a constant of integers as an attribute; NULL when `value` is not one or has too
// many.
static vt_raw_attr *numbers_of(vt_lower *lo, const vt_value *value) {
  const vt_literal *l = value->op && value->op->code == VT_OP_CONSTANT
                            ? vt_attr_literal(value->op, VT_ATTR_VALUE)
                            : NULL;
  if (!l || !vt_dtype_is_integer(l->type.dtype) || vt_type_elements(l->type) > MAX_NUMBERS)
    return NULL;
  vt_raw_attr *attr = VT_NEW(lo->arena, vt_raw_attr);
  size_t bytes = vt_dtype_bytes(l->type.dtype);
  int unused = 64 - 8 * (int)bytes;
  attr->kind = VT_RAW_INTS;
  attr->count = (uint32_t)vt_type_elements(l->type);
  int64_t *ints = VT_NEW_ARRAY(lo->arena, int64_t, attr->count);
  for (uint32_t i = 0; i < attr->count; i++) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)l->data + (l->splat ? 0 : i * bytes), bytes);
    ints[i] = vt_dtype_kind_of(l->type.dtype) == VT_KIND_SIGNED
                  ? (int64_t)(bits << unused) >> unused
                  : (int64_t)bits;
  }
  attr->ints = ints;
  return attr;
}

static vt_value *constant_i32(vt_lower *lo, const vt_raw_op *raw, int64_t value) {
  vt_literal *literal = VT_NEW(&lo->module->arena, vt_literal);
  int32_t *data = vt_arena_push_aligned(&lo->module->arena, sizeof *data, 64);
  *data = (int32_t)value;
  *literal = (vt_literal){.type = {VT_S32, 0, NULL}, .data = data};
  return vt_build_constant(lo->func, NULL, vt_lower_loc(lo, raw->loc), literal);
}

// The size that the dimension has anyway, which TensorFlow sets after a sort.
static vt_status set_size(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                          vt_value **out_result) {
  const vt_raw_attr *dim = vt_raw_find(raw, "dimension");
  if (operands->size != 2 || !dim || dim->kind != VT_RAW_INT || dim->i64 < 0 ||
      dim->i64 >= operands->data[0]->type.rank)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "there is no such dimension");
  const vt_raw_attr *size = numbers_of(lo, operands->data[1]);
  if (!size || size->count != 1 || size->ints[0] != operands->data[0]->type.dims[dim->i64])
    return vt_lower_error(lo, raw, VT_UNIMPLEMENTED,
                          "dynamic shapes are not supported: every dimension must be known when "
                          "the program is compiled");
  *out_result = operands->data[0];
  return VT_OK;
}

vt_status vt_lower_dynamic(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                           const vt_type_list *types, vt_value **out_result) {
  size_t fold = 0, folded = sizeof folds / sizeof *folds;
  if (raw->row->code == VT_OP_GET_DIMENSION_SIZE) {
    const vt_raw_attr *dim = vt_raw_find(raw, "dimension");
    if (operands->size != 1 || !dim || dim->kind != VT_RAW_INT || dim->i64 < 0 ||
        dim->i64 >= operands->data[0]->type.rank)
      return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "there is no such dimension");
    *out_result = constant_i32(lo, raw, operands->data[0]->type.dims[dim->i64]);
    return VT_OK;
  }
  if (raw->row->code == VT_OP_SET_DIMENSION_SIZE) return set_size(lo, raw, operands, out_result);
  while (fold < folded && folds[fold].from != raw->row->code) fold++;
  if (fold == folded)
    return vt_lower_error(lo, raw, VT_UNIMPLEMENTED, "dynamic shapes are not supported");
  const vt_attr_key *keys = folds[fold].numbers;
  uint32_t kept = folds[fold].kept, given = 0;
  while (given < 3 && keys[given] != VT_ATTR_NONE) given++;
  if (operands->size != kept + (given ? given : 1) || types->size != 1 || raw->region_count)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "a wrong number of operands or results");
  vt_raw_op whole = *raw; // with the numbers as attributes, before those of an old version
  whole.attr_count += given;
  whole.attrs = VT_NEW_ARRAY(lo->arena, vt_raw_named, whole.attr_count);
  if (raw->attr_count)
    memcpy(whole.attrs + given, raw->attrs, raw->attr_count * sizeof *raw->attrs);
  for (uint32_t i = 0; i < given; i++) {
    const char *name = vt_attr_text(keys[i]);
    vt_raw_attr *attr = numbers_of(lo, operands->data[kept + i]);
    if (!attr)
      return vt_lower_error(lo, raw, VT_UNIMPLEMENTED,
                            "dynamic shapes are not supported: %s must be a constant", name);
    whole.attrs[i] = (vt_raw_named){{name, strlen(name)}, attr};
  }
  vt_op *op = vt_op_create(lo->func, folds[fold].to, vt_lower_loc(lo, raw->loc), kept,
                           operands->data, 1, types->data, 0);
  VT_TRY(vt_lower_attrs(lo, &whole, op));
  vt_op_append(lo->func, op);
  *out_result = &op->results[0];
  return VT_OK;
}
