// SPDX-License-Identifier: Apache-2.0
// gen_contract.c - dots and convolutions. HIGHEST precision: DEFAULT would round as the chip does.
#include "gen_makers.h"
#include "ir/window.h"

static void set_precision(vt_op *op) {
  int64_t precision[2] = {VT_PRECISION_HIGHEST, VT_PRECISION_HIGHEST};
  vt_op_set_ints(op, VT_ATTR_PRECISION_CONFIG, 2, precision);
}

// Element type of the result: the operands' or a wider one, as in frameworks.
static vt_dtype result_dtype(gen *g, vt_dtype in) {
  if (gen_chance(g, 70)) return in;
  switch ((int)in) {
  case VT_BF16:
  case VT_F16:
    return VT_F32;
  case VT_S8:
  case VT_S16:
    return VT_S32;
  case VT_U8:
    return VT_U32;
  case VT_F32:
    return gen_chance(g, 30) ? VT_F64 : VT_F32;
  default:
    return in;
  }
}

static vt_value *operand(gen *g, vt_type type) {
  if (gen_chance(g, 30)) return gen_of(g, type, PICK_EXACT);
  return gen_leaf(g, type, gen_chance(g, 60) ? VALUE_GRID : VALUE_SMOOTH);
}

bool gen_dot_general(gen *g, const gen_row *row) {
  vt_dtype dtype = gen_dtype(g, row->dtypes);
  int64_t dims[2][8], places[2][8], sizes[8];
  int32_t batch = (int32_t)gen_below(g, 3), inner = (int32_t)gen_below(g, 3), rank[2];
  bool large = gen_chance(g, 10);
  for (int i = 0; i < batch + inner; i++)
    sizes[i] = gen_chance(g, 2) ? 0 : gen_between(g, 1, large && i >= batch ? 90 : 6);
  int64_t result[16];
  int32_t at = batch;
  for (int32_t i = 0; i < batch; i++) result[i] = sizes[i];
  for (int side = 0; side < 2; side++) {
    rank[side] = batch + inner + (int32_t)gen_below(g, 3);
    int64_t own[8], *place = places[side];
    for (int32_t d = 0; d < rank[side]; d++) {
      place[d] = d;
      own[d] = d < batch + inner ? sizes[d] : gen_between(g, 1, large ? 40 : 7);
    }
    gen_shuffle(g, place, rank[side]); // dimension i of the plan is at place[i]
    for (int32_t d = 0; d < rank[side]; d++) dims[side][place[d]] = own[d];
    for (int64_t p = 0; p < rank[side]; p++)
      for (int32_t d = batch + inner; d < rank[side]; d++)
        if (place[d] == p) result[at++] = own[d];
  }
  int64_t n = 1, a = 1, b = 1;
  for (int32_t d = 0; d < at; d++) n *= result[d];
  for (int32_t d = 0; d < rank[0]; d++) a *= dims[0][d];
  for (int32_t d = 0; d < rank[1]; d++) b *= dims[1][d];
  if (n > 6000 || a > 20000 || b > 20000 || at > 6) return false;
  vt_value *x[2];
  for (int side = 0; side < 2; side++)
    x[side] = operand(g, gen_type(g, dtype, rank[side], dims[side]));
  vt_type type = gen_type(g, result_dtype(g, dtype), at, result);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, (uint32_t)batch, places[0]);
  vt_op_set_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, (uint32_t)batch, places[1]);
  vt_op_set_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, (uint32_t)inner, places[0] + batch);
  vt_op_set_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, (uint32_t)inner, places[1] + batch);
  set_precision(op);
  gen_done(g, op, true, false);
  return true;
}

bool gen_dot(gen *g, const gen_row *row) {
  vt_dtype dtype = gen_dtype(g, row->dtypes);
  int64_t k = gen_between(g, 1, 40), lhs[2] = {gen_between(g, 1, 20), k};
  int64_t rhs[2] = {k, gen_between(g, 1, 20)}, dims[2];
  int32_t left = (int32_t)gen_between(g, 1, 2), right = (int32_t)gen_between(g, 1, 2), rank = 0;
  if (left == 2) dims[rank++] = lhs[0];
  if (right == 2) dims[rank++] = rhs[1];
  vt_value *x[2] = {operand(g, gen_type(g, dtype, left, left == 2 ? lhs : lhs + 1)),
                    operand(g, gen_type(g, dtype, right, rhs))};
  vt_type type = gen_type(g, dtype, rank, dims);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 0);
  set_precision(op);
  gen_done(g, op, true, false);
  return true;
}

typedef struct conv_plan {
  int32_t spatial;
  int64_t stride[3], padding[6], lhs_dilation[3], rhs_dilation[3], reversal[3];
  // positions of batch, feature and the spatial dimensions; kernel: input, output
  int64_t places[3][5];
  int64_t dims[3][5];
  int64_t groups, batch_groups;
} conv_plan;

static bool plan_windows(gen *g, conv_plan *p, const vt_value *image, int64_t in[3],
                         int64_t kernel[3], int64_t out[3]) {
  for (int32_t i = 0; i < p->spatial; i++) {
    in[i] = image ? image->type.dims[2 + i] : gen_between(g, 1, 11);
    kernel[i] = gen_between(g, 1, 4);
    p->stride[i] = gen_chance(g, 50) ? 1 : gen_between(g, 1, 3);
    p->lhs_dilation[i] = gen_chance(g, 75) ? 1 : gen_between(g, 2, 3);
    p->rhs_dilation[i] = gen_chance(g, 75) ? 1 : gen_between(g, 2, 3);
    p->reversal[i] = gen_chance(g, 15);
    for (int side = 0; side < 2; side++)
      p->padding[2 * i + side] = gen_chance(g, 40) ? 0 : gen_between(g, -2, 4);
    vt_window w = {kernel[i],          p->stride[i],      p->padding[2 * i], p->padding[2 * i + 1],
                   p->lhs_dilation[i], p->rhs_dilation[i]};
    if (!vt_window_output(in[i], w, &out[i])) return false;
  }
  return true;
}

static void place(gen *g, conv_plan *p, int which, int64_t a, int64_t b, const int64_t *spatial) {
  for (int32_t d = 0; d < p->spatial + 2; d++) p->places[which][d] = d;
  if (gen_chance(g, 60)) gen_shuffle(g, p->places[which], p->spatial + 2);
  for (int32_t d = 0; d < p->spatial + 2; d++)
    p->dims[which][p->places[which][d]] = d == 0 ? a : d == 1 ? b : spatial[d - 2];
}

static void set_conv_attrs(vt_op *op, const conv_plan *p) {
  uint32_t n = (uint32_t)p->spatial;
  vt_op_set_ints(op, VT_ATTR_WINDOW_STRIDES, n, p->stride);
  vt_op_set_ints(op, VT_ATTR_PADDING, 2 * n, p->padding);
  vt_op_set_ints(op, VT_ATTR_LHS_DILATION, n, p->lhs_dilation);
  vt_op_set_ints(op, VT_ATTR_RHS_DILATION, n, p->rhs_dilation);
  vt_op_set_ints(op, VT_ATTR_WINDOW_REVERSAL, n, p->reversal);
  vt_op_set_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION, p->places[0][0]);
  vt_op_set_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION, p->places[0][1]);
  vt_op_set_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, n, p->places[0] + 2);
  vt_op_set_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, p->places[1][0]);
  vt_op_set_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, p->places[1][1]);
  vt_op_set_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, n, p->places[1] + 2);
  vt_op_set_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION, p->places[2][0]);
  vt_op_set_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION, p->places[2][1]);
  vt_op_set_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, n, p->places[2] + 2);
  vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, p->groups);
  vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, p->batch_groups);
  set_precision(op);
}

// An array of the program that can be images, by N, features and pixels; NULL: none was chosen.
static vt_value *find_image(gen *g, const gen_row *row) {
  if (!gen_chance(g, 60)) return NULL;
  vt_value *image = gen_any(g, row->dtypes, PICK_EXACT);
  vt_type type = image->type;
  bool fits = type.rank >= 3 && type.rank <= 5 && vt_type_elements(type) <= 2000;
  return fits && type.dims[0] >= 1 && type.dims[1] >= 1 && type.dims[1] <= 12 ? image : NULL;
}

static void choose_groups(gen *g, conv_plan *p) {
  p->groups = p->batch_groups = 1;
  if (gen_chance(g, 30))
    p->groups = gen_between(g, 2, 3);
  else if (gen_chance(g, 15))
    p->batch_groups = 2;
}

bool gen_convolution(gen *g, const gen_row *row) {
  vt_value *image = find_image(g, row);
  conv_plan p = {.spatial =
                     (int32_t)gen_between(g, gen_chance(g, 5) ? 0 : 1, gen_chance(g, 15) ? 3 : 2)};
  if (image) p.spatial = image->type.rank - 2;
  int64_t in[3], kernel[3], out[3];
  choose_groups(g, &p);
  if (image && (image->type.dims[0] % p.batch_groups || image->type.dims[1] % p.groups))
    p.groups = p.batch_groups = 1;
  if (!plan_windows(g, &p, image, in, kernel, out)) return false;
  int64_t batch = image ? image->type.dims[0] : gen_between(g, 1, 3) * p.batch_groups;
  int64_t features = image               ? image->type.dims[1] / p.groups
                     : gen_chance(g, 30) ? 1
                                         : gen_between(g, 1, 9);
  int64_t outputs = gen_between(g, 1, gen_chance(g, 20) ? 20 : 4) * p.groups * p.batch_groups;
  vt_dtype dtype = image ? image->type.dtype : gen_dtype(g, row->dtypes);
  if (!image) place(g, &p, 0, batch, features * p.groups, in);
  place(g, &p, 1, features, outputs, kernel);
  place(g, &p, 2, batch / p.batch_groups, outputs, out);
  for (int32_t d = 0; image && d < p.spatial + 2; d++) p.places[0][d] = d;
  vt_type type = gen_type(g, result_dtype(g, dtype), p.spatial + 2, p.dims[2]);
  if (vt_type_elements(type) > 8000) return false;
  vt_value *x[2] = {image ? image : operand(g, gen_type(g, dtype, p.spatial + 2, p.dims[0])),
                    operand(g, gen_type(g, dtype, p.spatial + 2, p.dims[1]))};
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 0);
  set_conv_attrs(op, &p);
  gen_done(g, op, true, false);
  return true;
}
