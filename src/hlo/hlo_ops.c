// SPDX-License-Identifier: Apache-2.0
// hlo_ops.c - ops that compute, move or exchange data, as HLO instructions.
//
// Most ops have an opcode and attributes of the same meaning. Where HLO is narrower, the op is
// written as XLA's importer does: broadcasts do not stretch dimensions of size 1, all-to-all
// splits and joins the same dimension, selection takes arrays of one shape.
#include <stdlib.h>
#include <string.h>

#include "hlo/hlo_builder.h"
#include "ir/sharding.h"

static const struct {
  vt_opcode op;
  vt_attr_key key;
  vt_hlo_field field;
} copies[] = {
#define HLO_ATTR(op, key, field) {VT_OP_##op, VT_ATTR_##key, VT_HLO_FIELD_##field},
#include "hlo/hlo_attrs.def"
#undef HLO_ATTR
};

static void copy_all(vt_hlo_builder *b, vt_hlo_instruction *to) {
  const vt_op *op = b->op;
  for (uint32_t i = 0; i < op->attr_count; i++)
    for (size_t c = 0; c < sizeof copies / sizeof *copies; c++) {
      if (copies[c].key != op->attrs[i].key) continue;
      if (copies[c].op != VT_OP_INVALID && copies[c].op != op->code) continue;
      vt_hlo_copy(b, to, copies[c].field, copies[c].key);
      break;
    }
  const vt_attr *one = vt_op_attr(op, VT_ATTR_DIMENSION); // of several rows
  if (one) vt_hlo_set_ints(b, to, VT_HLO_FIELD_DIMENSIONS, 1, &one->i64);
  vt_hlo_copy_common(b, to);
}

static vt_hlo_instruction *plain(vt_hlo_builder *b, const vt_op *op, const char *opcode,
                                 uint32_t count, vt_hlo_instruction *const *operands) {
  vt_hlo_instruction *made = vt_hlo_main(b, opcode, vt_hlo_result_shape(b, op), count, operands);
  copy_all(b, made);
  return made;
}

vt_status vt_hlo_write_plain(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_results(b, op, plain(b, op, opcode, 0, NULL));
  return VT_OK;
}

// What HLO cannot say is a custom call of the op's own name.
vt_status vt_hlo_write_foreign(vt_hlo_builder *b, const vt_op *op) {
  const char *name = vt_op_info_get(op->code)->text;
  vt_hlo_instruction *made = plain(b, op, "custom-call", 0, NULL);
  made->attrs = NULL;
  vt_hlo_set_string(b, made, VT_HLO_FIELD_TARGET, (vt_string){name, strlen(name)});
  vt_hlo_set_i64(b, made, VT_HLO_FIELD_API_VERSION, 1);
  vt_hlo_results(b, op, made);
  return VT_OK;
}

// Ops that only carry a sharding.
vt_status vt_hlo_write_same(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  (void)opcode;
  if (op->result_count) vt_hlo_define(b, &op->results[0], vt_hlo_of(b, op->operands[0]));
  return VT_OK;
}

vt_status vt_hlo_write_constant(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  // As XLA does: constants have no name of their own, there are too many of them.
  vt_hlo_instruction *made = vt_hlo_add(b, opcode, vt_hlo_value_shape(b, &op->results[0]), 0, NULL);
  vt_hlo_copy(b, made, VT_HLO_FIELD_LITERAL, VT_ATTR_VALUE);
  vt_hlo_copy_common(b, made);
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

static void set_word(vt_hlo_builder *b, vt_hlo_instruction *to, vt_hlo_field field,
                     const char *word) {
  vt_hlo_set_string(b, to, field, (vt_string){word, strlen(word)});
}

vt_status vt_hlo_write_compare(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  set_word(b, made, VT_HLO_FIELD_DIRECTION,
           directions[vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION)]);
  if (vt_attr_i64_or(op, VT_ATTR_COMPARE_TYPE, 0) == VT_CMPTYPE_TOTALORDER &&
      vt_dtype_is_float(op->operands[0]->type.dtype))
    set_word(b, made, VT_HLO_FIELD_COMPARE_TYPE, "TOTALORDER");
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

static vt_hlo_instruction *spread(vt_hlo_builder *b, vt_hlo_instruction *scalar, vt_type like) {
  like.dtype = scalar->shape->type.dtype;
  vt_hlo_instruction *made =
      vt_hlo_add(b, "broadcast", vt_hlo_array(b, like, scalar->shape->host), 1, &scalar);
  vt_hlo_set_ints(b, made, VT_HLO_FIELD_DIMENSIONS, 0, NULL);
  return made;
}

// select and clamp: scalars among the operands become arrays.
vt_status vt_hlo_write_spread(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *operands[3];
  vt_type type = op->results[0].type;
  for (uint32_t i = 0; i < 3; i++) {
    operands[i] = vt_hlo_of(b, op->operands[i]);
    if (type.rank && !op->operands[i]->type.rank) operands[i] = spread(b, operands[i], type);
  }
  vt_hlo_results(b, op, plain(b, op, opcode, 3, operands));
  return VT_OK;
}

vt_status vt_hlo_write_broadcast(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_type from = op->operands[0]->type, to = op->results[0].type;
  int64_t dims[VT_MAX_RANK], sizes[VT_MAX_RANK];
  const int64_t *mapped = op->code == VT_OP_BROADCAST_IN_DIM
                              ? vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, NULL)
                              : NULL;
  uint32_t kept = 0;
  for (int32_t d = 0; d < from.rank; d++) {
    int64_t target = mapped ? mapped[d] : to.rank - from.rank + d;
    if (from.dims[d] != to.dims[target]) continue; // of size 1: stretched
    dims[kept] = target;
    sizes[kept++] = from.dims[d];
  }
  vt_hlo_instruction *source = vt_hlo_of(b, op->operands[0]);
  if (kept != (uint32_t)from.rank) {
    vt_type less = vt_type_make(b->arena, from.dtype, (int32_t)kept, sizes);
    source = vt_hlo_add(b, "reshape", vt_hlo_array(b, less, source->shape->host), 1, &source);
  }
  vt_hlo_instruction *made =
      vt_hlo_main(b, opcode, vt_hlo_value_shape(b, &op->results[0]), 1, &source);
  vt_hlo_set_ints(b, made, VT_HLO_FIELD_DIMENSIONS, kept, dims);
  vt_hlo_copy_common(b, made);
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

// Rows of one number from each list.
static void set_rows(vt_hlo_builder *b, vt_hlo_instruction *to, vt_hlo_field field, const vt_op *op,
                     const vt_attr_key keys[3]) {
  uint32_t count;
  const int64_t *lists[3];
  for (int i = 0; i < 3; i++) lists[i] = vt_attr_ints(op, keys[i], &count);
  int64_t *rows = VT_NEW_ARRAY(b->arena, int64_t, 3 * count + 1);
  for (uint32_t d = 0; d < count; d++)
    for (int i = 0; i < 3; i++) rows[3 * d + (uint32_t)i] = lists[i][d];
  vt_hlo_set_ints(b, to, field, 3 * count, rows);
}

vt_status vt_hlo_write_slice(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  set_rows(b, made, VT_HLO_FIELD_SLICE, op,
           (vt_attr_key[]){VT_ATTR_START_INDICES, VT_ATTR_LIMIT_INDICES, VT_ATTR_STRIDES});
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

vt_status vt_hlo_write_pad(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  set_rows(b, made, VT_HLO_FIELD_PADDING, op,
           (vt_attr_key[]){VT_ATTR_EDGE_PADDING_LOW, VT_ATTR_EDGE_PADDING_HIGH,
                           VT_ATTR_INTERIOR_PADDING});
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

// Slices out of and into an array in host memory run on their own. An update lies on the device,
// as do indices.
vt_status vt_hlo_write_dynamic_slice(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  bool updates = op->code == VT_OP_DYNAMIC_UPDATE_SLICE;
  bool host = vt_hlo_in_host(b, updates ? &op->results[0] : op->operands[0]);
  vt_hlo_instruction **operands = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; i++)
    operands[i] = vt_hlo_of_in(b, op->operands[i], host && i == 0);
  const vt_hlo_shape *shape = vt_hlo_value_shape(b, &op->results[0]);
  if (host) {
    vt_hlo_define(b, &op->results[0],
                  vt_hlo_async(b, opcode, shape, op->operand_count, operands, copy_all));
    return VT_OK;
  }
  vt_hlo_results(b, op, plain(b, op, opcode, op->operand_count, operands));
  return VT_OK;
}

// Contractions ------------------------------------------------------------------------------------

// The number of xla.PrecisionConfig.Algorithm; 0 when it has none.
static int64_t dot_algorithm(const vt_op *op) {
  static const struct {
    vt_dtype lhs, rhs, sum;
    int64_t products;
  } algorithms[] = {
#define ALGORITHM(text, lhs, rhs, sum, products) {VT_##lhs, VT_##rhs, VT_##sum, products},
#include "hlo/hlo_algorithms.def"
#undef ALGORITHM
  };
  if (!vt_op_attr(op, VT_ATTR_LHS_PRECISION_TYPE)) return 0;
  vt_dtype lhs = (vt_dtype)vt_attr_i64(op, VT_ATTR_LHS_PRECISION_TYPE);
  vt_dtype rhs = (vt_dtype)vt_attr_i64(op, VT_ATTR_RHS_PRECISION_TYPE);
  vt_dtype sum = (vt_dtype)vt_attr_i64(op, VT_ATTR_ACCUMULATION_TYPE);
  int64_t products = vt_attr_i64(op, VT_ATTR_NUM_PRIMITIVE_OPERATIONS);
  for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
    if (algorithms[i].products && algorithms[i].lhs == lhs && algorithms[i].rhs == rhs &&
        algorithms[i].sum == sum && algorithms[i].products == products)
      return (int64_t)i;
  bool f8 = vt_dtype_is_float(lhs) && vt_dtype_get(lhs)->bits == 8 && vt_dtype_is_float(rhs) &&
            vt_dtype_get(rhs)->bits == 8 && sum == VT_F32;
  return f8 ? 1 + vt_attr_i64_or(op, VT_ATTR_ALLOW_IMPRECISE, 0) : 0;
}

vt_status vt_hlo_write_dot(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  if (op->code == VT_OP_DOT) {
    vt_hlo_set_ints(b, made, VT_HLO_FIELD_LHS_CONTRACTING, 1,
                    (int64_t[]){op->operands[0]->type.rank - 1});
    vt_hlo_set_ints(b, made, VT_HLO_FIELD_RHS_CONTRACTING, 1, (int64_t[]){0});
  }
  int64_t algorithm = op->code == VT_OP_DOT_GENERAL ? dot_algorithm(op) : 0;
  if (algorithm) vt_hlo_set_i64(b, made, VT_HLO_FIELD_DOT_ALGORITHM, algorithm);
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

static int64_t int_at(const vt_op *op, vt_attr_key key, uint32_t index, int64_t otherwise) {
  uint32_t count;
  if (!vt_op_attr(op, key)) return otherwise;
  const int64_t *ints = vt_attr_ints(op, key, &count);
  return index < count ? ints[index] : otherwise;
}

// xla.WindowDimension: size, stride, low and high padding, dilation of the window and of the base,
// reversal.
enum { WINDOW_FIELDS = 7 };
static void set_window(vt_hlo_builder *b, vt_hlo_instruction *to, const vt_op *op, uint32_t count,
                       const int64_t *sizes, vt_attr_key base, vt_attr_key window) {
  int64_t *rows = VT_NEW_ARRAY(b->arena, int64_t, WINDOW_FIELDS *count + 1);
  for (uint32_t d = 0; d < count; d++) {
    int64_t *row = rows + WINDOW_FIELDS * d;
    row[0] = sizes[d];
    row[1] = int_at(op, VT_ATTR_WINDOW_STRIDES, d, 1);
    row[2] = int_at(op, VT_ATTR_PADDING, 2 * d, 0);
    row[3] = int_at(op, VT_ATTR_PADDING, 2 * d + 1, 0);
    row[4] = int_at(op, window, d, 1);
    row[5] = int_at(op, base, d, 1);
    row[6] = int_at(op, VT_ATTR_WINDOW_REVERSAL, d, 0);
  }
  vt_hlo_set_ints(b, to, VT_HLO_FIELD_WINDOW, WINDOW_FIELDS * count, rows);
}

vt_status vt_hlo_write_convolution(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  uint32_t spatial;
  const int64_t *kernel = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, &spatial);
  int64_t *labels = VT_NEW_ARRAY(b->arena, int64_t, 3 * (spatial + 2)), *at = labels;
  int64_t *sizes = VT_NEW_ARRAY(b->arena, int64_t, spatial + 1);
  for (int s = 0; s < 3; s++) {
    *at++ = vt_attr_i64(op, vt_conv_dim_keys[s][0]);
    *at++ = vt_attr_i64(op, vt_conv_dim_keys[s][1]);
    for (uint32_t d = 0; d < spatial; d++) *at++ = int_at(op, vt_conv_dim_keys[s][2], d, 0);
  }
  for (uint32_t d = 0; d < spatial; d++) sizes[d] = op->operands[1]->type.dims[kernel[d]];
  vt_hlo_set_ints(b, made, VT_HLO_FIELD_LABELS, 3 * (spatial + 2), labels);
  set_window(b, made, op, spatial, sizes, VT_ATTR_LHS_DILATION, VT_ATTR_RHS_DILATION);
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

// Reductions, scatter, sort, map ------------------------------------------------------------------

vt_status vt_hlo_write_reduction(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_computation *called[2];
  for (uint32_t r = 0; r < op->region_count; r++)
    VT_TRY(vt_hlo_scalar_region(b, op, r, &called[r]));
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  vt_hlo_call(b, made, op->region_count, called);
  if (vt_op_attr(op, VT_ATTR_WINDOW_DIMENSIONS)) {
    uint32_t count;
    const int64_t *sizes = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, &count);
    set_window(b, made, op, count, sizes, VT_ATTR_BASE_DILATIONS, VT_ATTR_WINDOW_DILATIONS);
  }
  vt_hlo_results(b, op, made);
  return VT_OK;
}

vt_status vt_hlo_write_rng(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *limits[2] = {vt_hlo_of(b, op->operands[0]), vt_hlo_of(b, op->operands[1])};
  vt_hlo_results(b, op, plain(b, op, opcode, 2, limits));
  return VT_OK;
}

// Custom calls ------------------------------------------------------------------------------------

// "[1,0];[0]" as shapes of these types.
static void set_layouts(vt_hlo_builder *b, vt_hlo_instruction *to, const char *text, uint32_t count,
                        vt_value *const *values) {
  const vt_hlo_shape **shapes = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    size_t size = strcspn(text, ";");
    vt_hlo_shape *shape = VT_NEW(b->arena, vt_hlo_shape);
    shape->type = values[i]->type;
    if (size >= 2) shape->layout = vt_arena_printf(b->arena, "{%.*s}", (int)size - 2, text + 1);
    shapes[i] = shape;
    text += size + (text[size] == ';');
  }
  vt_hlo_attr *attr = vt_hlo_set(b, to, VT_HLO_FIELD_OPERAND_LAYOUTS);
  attr->shapes = shapes;
  attr->count = count;
  vt_hlo_set_i64(b, to, VT_HLO_FIELD_CONSTRAIN_LAYOUT, 1);
}

// "{0}:(0,{});{}:(2,{})" as rows of output (-1 = the only one) and operand.
static void set_aliases(vt_hlo_builder *b, vt_hlo_instruction *to, vt_string text) {
  int64_t *rows = VT_NEW_ARRAY(b->arena, int64_t, text.size + 2);
  uint32_t count = 0;
  for (const char *at = text.data; at && *at; at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL) {
    const char *operand = strchr(at, '(');
    if (!operand) break;
    rows[count++] = at[1] == '}' ? -1 : strtoll(at + 1, NULL, 10);
    rows[count++] = strtoll(operand + 1, NULL, 10);
  }
  if (count) vt_hlo_set_ints(b, to, VT_HLO_FIELD_ALIASES, count, rows);
}

static vt_hlo_instruction *custom_call(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  vt_hlo_copy(b, made, VT_HLO_FIELD_TARGET, VT_ATTR_CALL_TARGET_NAME);
  vt_hlo_copy(b, made, VT_HLO_FIELD_SIDE_EFFECT, VT_ATTR_HAS_SIDE_EFFECT);
  vt_hlo_set_i64(b, made, VT_HLO_FIELD_API_VERSION, vt_attr_i64_or(op, VT_ATTR_API_VERSION, 1));
  const vt_attr *dict = vt_op_attr(op, VT_ATTR_BACKEND_DICT);
  if (dict) {
    vt_text text = {0};
    vt_hlo_put_dict(&text, dict->dict);
    vt_hlo_set_string(b, made, VT_HLO_FIELD_BACKEND_CONFIG,
                      (vt_string){vt_arena_copy(b->arena, text.data, text.size), text.size});
    vt_text_free(&text);
  } else if (vt_attr_string(op, VT_ATTR_BACKEND_CONFIG).size) {
    vt_hlo_copy(b, made, VT_HLO_FIELD_BACKEND_CONFIG, VT_ATTR_BACKEND_CONFIG);
  }
  if (vt_attr_string(op, VT_ATTR_OPERAND_LAYOUTS).size)
    set_layouts(b, made, vt_attr_string(op, VT_ATTR_OPERAND_LAYOUTS).data, op->operand_count,
                op->operands);
  set_aliases(b, made, vt_attr_string(op, VT_ATTR_OUTPUT_OPERAND_ALIASES));
  return made;
}

vt_status vt_hlo_write_custom_call(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  bool host;
  if (vt_op_places(op, &host)) {
    host = vt_hlo_in_host(b, &op->results[0]);
    vt_hlo_define(b, &op->results[0], vt_hlo_of_in(b, op->operands[0], host));
    return VT_OK;
  }
  const vt_attr *funcs = vt_op_attr(op, VT_ATTR_CALLED_COMPUTATIONS);
  uint32_t count = funcs && !vt_op_written_out(op) ? funcs->count : 0;
  vt_hlo_computation **called = VT_NEW_ARRAY(b->arena, vt_hlo_computation *, count + 1);
  for (uint32_t i = 0; i < count; i++) VT_TRY(vt_hlo_function(b, funcs->funcs[i], &called[i]));
  vt_hlo_instruction *made = custom_call(b, op, opcode);
  if (count) vt_hlo_call(b, made, count, called);
  vt_hlo_results(b, op, made);
  return VT_OK;
}

vt_status vt_hlo_write_barrier(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  uint32_t count = op->operand_count;
  vt_hlo_instruction **parts = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, count + 1);
  for (uint32_t i = 0; i < count; i++) parts[i] = vt_hlo_of(b, op->operands[i]);
  vt_hlo_instruction *given = count == 1 ? parts[0] : vt_hlo_tuple(b, count, parts);
  vt_hlo_results(b, op, vt_hlo_main(b, opcode, given->shape, 1, &given));
  return VT_OK;
}

// Transfers ---------------------------------------------------------------------------------------

// The op's operands from `first` to before its token, as one value.
static vt_hlo_instruction *payload(vt_hlo_builder *b, const vt_op *op) {
  uint32_t count = op->operand_count - 1;
  vt_hlo_instruction **parts = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, count + 1);
  for (uint32_t i = 0; i < count; i++) parts[i] = vt_hlo_of(b, op->operands[i]);
  return count == 1 ? parts[0] : vt_hlo_tuple(b, count, parts);
}

static const vt_hlo_shape *token_shape(vt_hlo_builder *b) {
  return vt_hlo_array(b, (vt_type){.dtype = VT_TOKEN}, false);
}

// The results before the token, as one shape.
static const vt_hlo_shape *received_shape(vt_hlo_builder *b, const vt_op *op, bool tuple) {
  uint32_t count = op->result_count - 1;
  const vt_hlo_shape **parts = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, count + 1);
  for (uint32_t i = 0; i < count; i++) parts[i] = vt_hlo_value_shape(b, &op->results[i]);
  return count == 1 && !tuple ? parts[0] : vt_hlo_tuple_shape(b, count, parts);
}

// A pair (data, token) as the results of the op.
static void unpack(vt_hlo_builder *b, const vt_op *op, vt_hlo_instruction *pair) {
  vt_hlo_instruction *data = vt_hlo_part(b, pair, 0);
  uint32_t count = op->result_count - 1;
  for (uint32_t i = 0; i < count; i++)
    vt_hlo_define(b, &op->results[i], data->shape->tuple ? vt_hlo_part(b, data, i) : data);
  vt_hlo_define(b, &op->results[count], vt_hlo_part(b, pair, 1));
}

static void set_channel(vt_hlo_builder *b, vt_hlo_instruction *to) {
  int64_t channel = vt_attr_i64_or(b->op, VT_ATTR_CHANNEL_ID, 0);
  if (channel > 0) vt_hlo_set_i64(b, to, VT_HLO_FIELD_CHANNEL_ID, channel);
}

vt_status vt_hlo_write_transfer(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  bool sends = op->code == VT_OP_SEND;
  vt_hlo_instruction *token = vt_hlo_of(b, op->operands[op->operand_count - 1]);
  vt_hlo_instruction *operands[2] = {sends ? payload(b, op) : token, token};
  const vt_hlo_shape *data = sends ? operands[0]->shape : received_shape(b, op, false);
  const vt_hlo_shape *parts[3] = {data, vt_hlo_array(b, (vt_type){.dtype = VT_U32}, false),
                                  token_shape(b)};
  vt_hlo_instruction *start =
      vt_hlo_main(b, opcode, vt_hlo_tuple_shape(b, 3, parts), sends ? 2 : 1, operands);
  const vt_hlo_shape *pair[2] = {data, parts[2]};
  vt_hlo_instruction *done =
      vt_hlo_add(b, sends ? "send-done" : "recv-done",
                 sends ? parts[2] : vt_hlo_tuple_shape(b, 2, pair), 1, &start);
  copy_all(b, start);
  set_channel(b, start);
  set_channel(b, done);
  if (vt_attr_i64_or(op, VT_ATTR_IS_HOST_TRANSFER, 0))
    vt_hlo_set_i64(b, done, VT_HLO_FIELD_IS_HOST_TRANSFER, 1);
  vt_hlo_copy_common(b, done);
  if (sends)
    vt_hlo_define(b, &op->results[0], done);
  else
    unpack(b, op, done);
  return VT_OK;
}

vt_status vt_hlo_write_infeed(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  const vt_hlo_shape *parts[2] = {received_shape(b, op, true), token_shape(b)};
  vt_hlo_instruction *made = vt_hlo_main(b, opcode, vt_hlo_tuple_shape(b, 2, parts), 0, NULL);
  if (vt_attr_string(op, VT_ATTR_INFEED_CONFIG).size)
    vt_hlo_copy(b, made, VT_HLO_FIELD_INFEED_CONFIG, VT_ATTR_INFEED_CONFIG);
  vt_hlo_copy_common(b, made);
  unpack(b, op, made);
  return VT_OK;
}

vt_status vt_hlo_write_outfeed(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  uint32_t count = op->operand_count - 1;
  vt_hlo_instruction **parts = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, count + 1);
  for (uint32_t i = 0; i < count; i++) parts[i] = vt_hlo_of(b, op->operands[i]);
  vt_hlo_instruction *operands[2] = {vt_hlo_tuple(b, count, parts),
                                     vt_hlo_of(b, op->operands[count])};
  vt_hlo_instruction *made = vt_hlo_main(b, opcode, token_shape(b), 2, operands);
  vt_hlo_attr *shape = vt_hlo_set(b, made, VT_HLO_FIELD_OUTFEED_SHAPE);
  const vt_hlo_shape **one = VT_NEW(b->arena, const vt_hlo_shape *);
  *one = operands[0]->shape;
  shape->shapes = one;
  shape->count = 1;
  if (vt_attr_string(op, VT_ATTR_OUTFEED_CONFIG).size)
    vt_hlo_copy(b, made, VT_HLO_FIELD_OUTFEED_CONFIG, VT_ATTR_OUTFEED_CONFIG);
  vt_hlo_copy_common(b, made);
  vt_hlo_define(b, &op->results[0], made);
  return VT_OK;
}

// Collectives -------------------------------------------------------------------------------------

static void set_table(vt_hlo_builder *b, vt_hlo_instruction *to, vt_hlo_field field,
                      const vt_literal *literal) {
  if (!literal || literal->type.rank != 2) return;
  vt_hlo_attr *attr = vt_hlo_set(b, to, field);
  attr->rows = (uint32_t)literal->type.dims[0];
  attr->count = (uint32_t)vt_type_elements(literal->type);
  int64_t *ints = VT_NEW_ARRAY(b->arena, int64_t, attr->count + 1);
  const int64_t *data = literal->data;
  for (uint32_t i = 0; i < attr->count; i++) ints[i] = data[literal->splat ? 0 : i];
  attr->ints = ints;
}

static void set_groups(vt_hlo_builder *b, vt_hlo_instruction *to) {
  set_table(b, to, VT_HLO_FIELD_REPLICA_GROUPS, vt_attr_literal(b->op, VT_ATTR_REPLICA_GROUPS));
  if (vt_attr_i64_or(b->op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 0))
    vt_hlo_set_i64(b, to, VT_HLO_FIELD_USE_GLOBAL_IDS, 1);
  set_channel(b, to);
}

// cross-replica-sum names no computation: it adds.
static vt_hlo_computation *addition(vt_hlo_builder *b, vt_dtype dtype) {
  vt_hlo_computation *outer, *sum = vt_hlo_begin(b, "add", &outer);
  const vt_hlo_shape *scalar = vt_hlo_array(b, (vt_type){.dtype = dtype}, false);
  vt_hlo_instruction *params[2];
  for (int i = 0; i < 2; i++) params[i] = vt_hlo_param(b, scalar, "Arg");
  vt_hlo_end(b, vt_hlo_add(b, "add", scalar, 2, params), outer);
  return sum;
}

vt_status vt_hlo_write_collective(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  vt_hlo_computation *called = NULL;
  if (op->region_count) VT_TRY(vt_hlo_scalar_region(b, op, 0, &called));
  if (op->code == VT_OP_CROSS_REPLICA_SUM) called = addition(b, op->results[0].type.dtype);
  vt_hlo_instruction *made = plain(b, op, opcode, 0, NULL);
  if (called) vt_hlo_call(b, made, 1, &called);
  set_groups(b, made);
  if (op->code == VT_OP_COLLECTIVE_PERMUTE)
    set_table(b, made, VT_HLO_FIELD_SOURCE_TARGET_PAIRS,
              vt_attr_literal(op, VT_ATTR_SOURCE_TARGET_PAIRS));
  static const vt_attr_key dims[] = {VT_ATTR_ALL_GATHER_DIM, VT_ATTR_SCATTER_DIMENSION};
  for (int i = 0; i < 2; i++) {
    const vt_attr *dim = vt_op_attr(op, dims[i]);
    if (dim) vt_hlo_set_ints(b, made, VT_HLO_FIELD_DIMENSIONS, 1, &dim->i64);
  }
  vt_hlo_results(b, op, made);
  return VT_OK;
}

static vt_hlo_instruction *reshaped(vt_hlo_builder *b, vt_hlo_instruction *source, int32_t rank,
                                    const int64_t *dims) {
  vt_type type = vt_type_make(b->arena, source->shape->type.dtype, rank, dims);
  return vt_hlo_add(b, "reshape", vt_hlo_array(b, type, source->shape->host), 1, &source);
}

// HLO's all-to-all leaves the parts along the split dimension; they are moved to the other one.
static vt_hlo_instruction *move_parts(vt_hlo_builder *b, vt_hlo_instruction *source, int64_t split,
                                      int64_t concat, int64_t parts, vt_type result) {
  vt_type type = source->shape->type;
  int64_t wide[VT_MAX_RANK + 1], permutation[VT_MAX_RANK + 1], turned[VT_MAX_RANK + 1];
  int32_t rank = 0, n = 0;
  for (int32_t d = 0; d < type.rank; d++) {
    if (d == split) wide[rank++] = parts;
    wide[rank++] = d == split ? type.dims[d] / parts : type.dims[d];
  }
  for (int32_t d = 0; d < type.rank; d++) {
    if (d == concat) permutation[n++] = split;
    permutation[n++] = d >= split ? d + 1 : d;
  }
  for (int32_t d = 0; d < rank; d++) turned[d] = wide[permutation[d]];
  source = reshaped(b, source, rank, wide);
  vt_type after = vt_type_make(b->arena, type.dtype, rank, turned);
  vt_hlo_instruction *transposed =
      vt_hlo_add(b, "transpose", vt_hlo_array(b, after, source->shape->host), 1, &source);
  vt_hlo_set_ints(b, transposed, VT_HLO_FIELD_DIMENSIONS, (uint32_t)rank, permutation);
  return reshaped(b, transposed, result.rank, result.dims);
}

vt_status vt_hlo_write_all_to_all(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  int64_t split = vt_attr_i64(op, VT_ATTR_SPLIT_DIMENSION);
  int64_t concat = vt_attr_i64(op, VT_ATTR_CONCAT_DIMENSION);
  int64_t parts = vt_attr_i64(op, VT_ATTR_SPLIT_COUNT);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_hlo_instruction *source = vt_hlo_of(b, op->operands[i]);
    vt_hlo_instruction *made = vt_hlo_main(b, opcode, source->shape, 1, &source);
    vt_hlo_set_ints(b, made, VT_HLO_FIELD_DIMENSIONS, 1, &split);
    set_groups(b, made);
    vt_hlo_copy_common(b, made);
    if (split != concat) made = move_parts(b, made, split, concat, parts, op->results[i].type);
    vt_hlo_define(b, &op->results[i], made);
  }
  return VT_OK;
}
