// SPDX-License-Identifier: Apache-2.0
// gen_reduce.c - reductions, windows, sorting, map, batch normalisation.
#include "gen_makers.h"
#include "ir/window.h"

#include <math.h>

// A reducer and its neutral element. Products of floats depend too much on the order to be bounded,
// so only integers use them.
static vt_opcode reducer(gen *g, vt_dtype dtype) {
  static const vt_opcode integers[] = {VT_OP_ADD, VT_OP_MULTIPLY, VT_OP_MAXIMUM, VT_OP_MINIMUM,
                                       VT_OP_AND, VT_OP_OR,       VT_OP_XOR};
  static const vt_opcode floats[] = {VT_OP_ADD, VT_OP_ADD, VT_OP_MAXIMUM, VT_OP_MINIMUM};
  switch (vt_dtype_kind_of(dtype)) {
  case VT_KIND_BOOL:
    return integers[4 + gen_below(g, 2)];
  case VT_KIND_COMPLEX:
    return VT_OP_ADD;
  case VT_KIND_FLOAT:
    return floats[gen_below(g, 4)];
  default:
    return integers[gen_below(g, 7)];
  }
}

static vt_value *neutral(gen *g, vt_opcode code, vt_dtype dtype) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  bool is_signed = info->kind == VT_KIND_SIGNED, real = info->kind == VT_KIND_FLOAT;
  double most = ldexp(1, is_signed ? info->bits - 1 : info->bits);
  switch ((int)code) {
  case VT_OP_MULTIPLY:
    return gen_scalar(g, dtype, 1);
  case VT_OP_MAXIMUM:
    return gen_scalar(g, dtype, real ? -(double)INFINITY : is_signed ? -most : 0);
  case VT_OP_MINIMUM:
    return gen_scalar(g, dtype, real ? (double)INFINITY : most);
  case VT_OP_AND:
    return gen_scalar(g, dtype, dtype == VT_PRED || is_signed ? -1 : most);
  default:
    return gen_scalar(g, dtype, 0);
  }
}

static vt_value *init_value(gen *g, vt_opcode code, vt_dtype dtype) {
  if (gen_chance(g, 70)) return neutral(g, code, dtype);
  return gen_of(g, (vt_type){dtype, 0, NULL}, PICK_EXACT);
}

// Several inputs reduced at once, each by its own op.
static vt_func *joint_body(gen *g, uint32_t count, const vt_opcode *codes, const vt_dtype *dtypes) {
  vt_func *body = vt_func_create(g->module, "");
  vt_value *results[4];
  for (uint32_t i = 0; i < 2 * count; i++)
    vt_func_add_param(body, (vt_type){dtypes[i % count], 0, NULL});
  for (uint32_t i = 0; i < count; i++) {
    vt_value *pair[2] = {body->params[i], body->params[count + i]};
    results[i] =
        vt_build(body, NULL, codes[i], &vt_loc_unknown, (vt_type){dtypes[i], 0, NULL}, 2, pair);
  }
  vt_func_set_returns(body, count, results);
  return body;
}

static bool adds_floats(vt_opcode code, vt_dtype dtype) {
  return code == VT_OP_ADD && (vt_dtype_is_float(dtype) || vt_dtype_is_complex(dtype));
}

bool gen_reduce(gen *g, const gen_row *row) {
  uint32_t count = gen_chance(g, 85) ? 1 : (uint32_t)gen_between(g, 2, 3);
  vt_value *x[6];
  vt_opcode codes[3];
  vt_dtype dtypes[3];
  vt_type types[3];
  int64_t dims[VT_MAX_RANK], reduced[VT_MAX_RANK];
  uint32_t reduced_count = 0;
  int32_t rank = 0;
  bool loose = false;
  x[0] = gen_any(g, row->dtypes, gen_chance(g, 50) ? PICK_EXACT : 0);
  vt_type in = x[0]->type;
  for (int32_t d = 0; d < in.rank; d++)
    if (gen_chance(g, 55))
      reduced[reduced_count++] = d;
    else
      dims[rank++] = in.dims[d];
  if (gen_chance(g, 20)) gen_shuffle(g, reduced, reduced_count);
  for (uint32_t i = 0; i < count; i++) {
    if (i) x[i] = gen_of(g, gen_retyped(g, in, gen_dtype(g, row->dtypes)), PICK_EXACT);
    dtypes[i] = x[i]->type.dtype;
    codes[i] = reducer(g, dtypes[i]);
    loose = loose || adds_floats(codes[i], dtypes[i]);
    types[i] = gen_type(g, dtypes[i], rank, dims);
  }
  int64_t terms = 1; // XLA:CPU drops the init value of a reduction of single elements
  for (uint32_t i = 0; i < reduced_count; i++) terms *= in.dims[reduced[i]];
  // Devices that reduce several arrays together each start from their init values.
  bool changes_nothing = terms == 1 || (g->sharded && count > 1);
  for (uint32_t i = 0; i < count; i++)
    x[count + i] =
        changes_nothing ? neutral(g, codes[i], dtypes[i]) : init_value(g, codes[i], dtypes[i]);
  vt_op *op = gen_op(g, row->code, 2 * count, x, count, types, 1);
  op->regions[0] = joint_body(g, count, codes, dtypes);
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, reduced_count, reduced);
  gen_done(g, op, loose, false);
  return true;
}

typedef struct window_plan {
  int64_t size[8], stride[8], padding[16], base[8], dilation[8], dims[8];
} window_plan;

static bool plan_window(gen *g, vt_type in, bool dilate, window_plan *p) {
  int64_t n = 1;
  if (in.rank > 5) return false;
  for (int32_t d = 0; d < in.rank; d++) {
    p->size[d] = gen_chance(g, 40) ? 1 : gen_between(g, 1, in.dims[d] > 5 ? 5 : in.dims[d] + 1);
    p->stride[d] = gen_chance(g, 50) ? 1 : gen_between(g, 1, 3);
    p->base[d] = !dilate || gen_chance(g, 80) ? 1 : gen_between(g, 2, 3);
    p->dilation[d] = !dilate || gen_chance(g, 80) ? 1 : gen_between(g, 2, 3);
    for (int side = 0; side < 2; side++)
      p->padding[2 * d + side] = gen_chance(g, 50) ? 0 : gen_between(g, dilate ? -1 : 0, 3);
    if (gen_chance(g, 10)) { // a running reduction
      p->size[d] = in.dims[d] > 0 ? in.dims[d] : 1;
      p->stride[d] = p->base[d] = p->dilation[d] = 1;
      bool forward = gen_chance(g, 50);
      p->padding[2 * d] = forward ? p->size[d] - 1 : 0;
      p->padding[2 * d + 1] = forward ? 0 : p->size[d] - 1;
    }
    vt_window w = {p->size[d], p->stride[d],  p->padding[2 * d], p->padding[2 * d + 1],
                   p->base[d], p->dilation[d]};
    if (!vt_window_output(in.dims[d], w, &p->dims[d])) return false;
    n *= p->dims[d];
  }
  return n <= 8000;
}

bool gen_reduce_window(gen *g, const gen_row *row) {
  vt_value *x[2];
  x[0] = gen_any(g, row->dtypes, gen_chance(g, 50) ? PICK_EXACT : 0);
  vt_type in = x[0]->type;
  window_plan p;
  if (!plan_window(g, in, true, &p)) return false;
  vt_opcode code = reducer(g, in.dtype);
  // How often a padded window applies its init value is unspecified: it must be neutral.
  x[1] = neutral(g, code, in.dtype);
  vt_type type = gen_type(g, in.dtype, in.rank, p.dims);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 1);
  op->regions[0] = gen_pair_region(g, code, in.dtype);
  uint32_t rank = (uint32_t)in.rank;
  vt_op_set_ints(op, VT_ATTR_WINDOW_DIMENSIONS, rank, p.size);
  vt_op_set_ints(op, VT_ATTR_WINDOW_STRIDES, rank, p.stride);
  vt_op_set_ints(op, VT_ATTR_BASE_DILATIONS, rank, p.base);
  vt_op_set_ints(op, VT_ATTR_WINDOW_DILATIONS, rank, p.dilation);
  vt_op_set_ints(op, VT_ATTR_PADDING, 2 * rank, p.padding);
  gen_done(g, op, adds_floats(code, in.dtype), false);
  return true;
}

bool gen_select_and_scatter(gen *g, const gen_row *row) {
  vt_value *x[3];
  vt_dtype dtype = gen_dtype(g, row->dtypes);
  vt_type in = gen_shape(g, dtype);
  window_plan p;
  for (int32_t d = 0; d < in.rank; d++)
    if (!in.dims[d]) return false;
  if (in.rank > 4 || !plan_window(g, in, false, &p)) return false;
  x[0] = gen_leaf(g, in, gen_chance(g, 50) ? VALUE_GRID : VALUE_NUMBER);
  x[1] = gen_leaf(g, gen_type(g, dtype, in.rank, p.dims), VALUE_GRID);
  x[2] = gen_scalar(g, dtype, 0);
  vt_op *op = gen_op(g, row->code, 3, x, 1, &in, 2);
  vt_func *select = vt_func_create(g->module, "");
  vt_value *pair[2];
  for (int i = 0; i < 2; i++) pair[i] = vt_func_add_param(select, (vt_type){dtype, 0, NULL});
  vt_value *chosen =
      vt_build(select, NULL, VT_OP_COMPARE, &vt_loc_unknown, (vt_type){VT_PRED, 0, NULL}, 2, pair);
  vt_op_set_i64(chosen->op, VT_ATTR_COMPARISON_DIRECTION,
                gen_chance(g, 80) ? VT_CMP_GE : VT_CMP_LE);
  vt_op_set_i64(chosen->op, VT_ATTR_COMPARE_TYPE,
                vt_dtype_is_float(dtype) ? VT_CMPTYPE_FLOAT : VT_CMPTYPE_SIGNED);
  vt_func_set_returns(select, 1, &chosen);
  op->regions[0] = select;
  op->regions[1] = gen_pair_region(g, VT_OP_ADD, dtype);
  vt_op_set_ints(op, VT_ATTR_WINDOW_DIMENSIONS, (uint32_t)in.rank, p.size);
  vt_op_set_ints(op, VT_ATTR_WINDOW_STRIDES, (uint32_t)in.rank, p.stride);
  vt_op_set_ints(op, VT_ATTR_PADDING, 2 * (uint32_t)in.rank, p.padding);
  gen_done(g, op, vt_dtype_is_float(dtype), false);
  return true;
}

static vt_value *key_compare(vt_func *body, vt_value *a, vt_value *b, int64_t direction) {
  vt_value *pair[2] = {a, b};
  vt_dtype_kind kind = vt_dtype_kind_of(a->type.dtype);
  vt_value *result =
      vt_build(body, NULL, VT_OP_COMPARE, &vt_loc_unknown, (vt_type){VT_PRED, 0, NULL}, 2, pair);
  vt_op_set_i64(result->op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(result->op, VT_ATTR_COMPARE_TYPE,
                kind == VT_KIND_FLOAT    ? VT_CMPTYPE_TOTALORDER
                : kind == VT_KIND_SIGNED ? VT_CMPTYPE_SIGNED
                                         : VT_CMPTYPE_UNSIGNED);
  return result;
}

// One or two keys and their payload. Equal keys keep their order (is_stable); floats are in
// total order, so a NaN must have its own bits.
bool gen_sort(gen *g, const gen_row *row) {
  vt_value *x[3];
  vt_type types[3];
  uint32_t count = (uint32_t)gen_between(g, 1, 3);
  x[0] = gen_any(g, row->dtypes, PICK_EXACT | PICK_RAW);
  if (!x[0]->type.rank) return false;
  for (uint32_t i = 1; i < count; i++)
    x[i] = gen_of(g, gen_retyped(g, x[0]->type, gen_dtype(g, row->dtypes)), PICK_EXACT | PICK_RAW);
  for (uint32_t i = 0; i < count; i++) types[i] = x[i]->type;
  int64_t direction = gen_chance(g, 60) ? VT_CMP_LT : VT_CMP_GT;
  bool two_keys = count > 1 && gen_chance(g, 40);
  vt_op *op = gen_op(g, row->code, count, x, count, types, 1);
  vt_func *body = vt_func_create(g->module, "");
  for (uint32_t i = 0; i < 2 * count; i++)
    vt_func_add_param(body, (vt_type){types[i / 2].dtype, 0, NULL});
  vt_value **p = body->params, *result = key_compare(body, p[0], p[1], direction);
  if (two_keys) {
    vt_value *choice[3] = {key_compare(body, p[0], p[1], VT_CMP_EQ),
                           key_compare(body, p[2], p[3], gen_chance(g, 50) ? VT_CMP_LT : VT_CMP_GT),
                           result};
    result = vt_build(body, NULL, VT_OP_SELECT, &vt_loc_unknown, result->type, 3, choice);
  }
  vt_func_set_returns(body, 1, &result);
  op->regions[0] = body;
  vt_op_set_i64(op, VT_ATTR_DIMENSION, gen_below(g, types[0].rank));
  vt_op_set_i64(op, VT_ATTR_IS_STABLE, 1);
  gen_done(g, op, false, true);
  return true;
}

bool gen_map(gen *g, const gen_row *row) {
  static const vt_opcode floats[] = {VT_OP_ADD, VT_OP_MULTIPLY, VT_OP_SUBTRACT, VT_OP_MAXIMUM};
  static const vt_opcode integers[] = {VT_OP_XOR, VT_OP_AND, VT_OP_REMAINDER, VT_OP_SHIFT_LEFT};
  vt_value *x[2];
  x[0] = gen_any(g, row->dtypes, PICK_EXACT);
  x[1] = gen_of(g, x[0]->type, PICK_EXACT);
  vt_type type = x[0]->type;
  bool real = vt_dtype_is_float(type.dtype);
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) dims[d] = d;
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 1);
  vt_func *body = vt_func_create(g->module, "");
  vt_value *values[8];
  // Of bf16 one operator, since the judge does not look into the body and what is between is f32.
  int64_t count = 2, ops = type.dtype == VT_BF16 ? 1 : gen_between(g, 1, 4);
  for (int i = 0; i < 2; i++) values[i] = vt_func_add_param(body, (vt_type){type.dtype, 0, NULL});
  for (int64_t i = 0; i < ops; i++) {
    vt_value *pair[2] = {values[gen_below(g, count)], values[gen_below(g, count)]};
    vt_opcode code =
        real || gen_chance(g, 40) ? floats[gen_below(g, 4)] : integers[gen_below(g, 4)];
    values[count] = vt_build(body, NULL, code, &vt_loc_unknown, values[0]->type, 2, pair);
    count++;
  }
  vt_func_set_returns(body, 1, &values[count - 1]);
  op->regions[0] = body;
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, (uint32_t)type.rank, dims);
  gen_done(g, op, false, false);
  return true;
}

static bool batch_norm(gen *g, const gen_row *row, uint32_t operands, uint32_t results) {
  vt_value *x[5];
  vt_type in = gen_shape(g, gen_dtype(g, row->dtypes)), types[3];
  if (!in.rank || !vt_type_elements(in)) return false;
  int64_t feature = gen_below(g, in.rank);
  vt_type vector = gen_type(g, in.dtype, 1, &in.dims[feature]);
  for (uint32_t i = 0; i < operands; i++) {
    bool whole = !i || (row->code == VT_OP_BATCH_NORM_GRAD && i == 4);
    bool variance = i == (row->code == VT_OP_BATCH_NORM_GRAD ? 3u : 4u);
    x[i] =
        variance ? gen_leaf_range(g, vector, 1, 4) : gen_leaf(g, whole ? in : vector, VALUE_SMOOTH);
  }
  types[0] = in;
  types[1] = types[2] = vector;
  vt_op *op = gen_op(g, row->code, operands, x, results, types, 0);
  vt_op_set_f64(op, VT_ATTR_EPSILON, 0.125);
  vt_op_set_i64(op, VT_ATTR_FEATURE_INDEX, feature);
  gen_done(g, op, true, false);
  return true;
}
bool gen_batch_norm_training(gen *g, const gen_row *row) {
  return batch_norm(g, row, 3, 3);
}
bool gen_batch_norm_inference(gen *g, const gen_row *row) {
  return batch_norm(g, row, 5, 1);
}
bool gen_batch_norm_grad(gen *g, const gen_row *row) {
  return batch_norm(g, row, 5, 3);
}
