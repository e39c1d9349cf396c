// SPDX-License-Identifier: Apache-2.0
// lower_resize.c - ResizeNearest, ResizeBilinear and their gradients, which PyTorch/XLA and
// TensorFlow leave to the TPU's compiler.
//
// Images are [batch, y, x, channel]. Along each of y and x a pixel of the result is a sum of pixels
// weighted by constants: a product with a matrix, whose transpose is the gradient.
#include <math.h>
#include <string.h>

#include "import/lower.h"

typedef struct resize {
  bool nearest, gradient;
  bool align_corners, half_pixel_centers;
} resize;

enum { ROOM = 64 }; // weights that count as one value in the import's budget

static double position(const resize *r, int64_t at, int64_t large, int64_t small) {
  if (r->align_corners && large > 1) return (double)at * (double)(small - 1) / (double)(large - 1);
  // as they are computed: which pixel is nearest must not depend on the precision
  float scale = (float)small / (float)large;
  if (r->half_pixel_centers)
    return r->nearest ? (double)(((float)at + 0.5F) * scale)
                      : ((double)at + 0.5) * (double)small / (double)large - 0.5;
  return r->nearest ? (double)((float)at * scale) : (double)at * (double)small / (double)large;
}

// The weight of each of `from` pixels in the result's pixel `at` of `to`.
static void weigh(const resize *r, int64_t at, int64_t to, int64_t from, float *weights) {
  double place = position(r, at, to, from);
  if (r->nearest) {
    int64_t pixel = (int64_t)(r->align_corners ? round(place) : floor(place));
    weights[pixel < from ? pixel : from - 1] = 1;
    return;
  }
  if (place < 0) place = 0;
  if (place > (double)(from - 1)) place = (double)(from - 1);
  int64_t low = (int64_t)place;
  double part = place - (double)low;
  weights[low] = (float)(1 - part);
  if (low + 1 < from) weights[low + 1] = (float)part;
}

// The matrix [to, from] as a constant, in the type of the image.
static vt_value *weights_of(vt_lower *lo, const vt_raw_op *raw, const resize *r, vt_dtype dtype,
                            int64_t to, int64_t from) {
  vt_arena *arena = &lo->module->arena;
  const vt_loc *loc = vt_lower_loc(lo, raw->loc);
  float *weights = vt_arena_push_aligned(arena, (size_t)(to * from) * sizeof *weights, 64);
  memset(weights, 0, (size_t)(to * from) * sizeof *weights);
  for (int64_t at = 0; at < to; at++) weigh(r, at, to, from, weights + at * from);
  vt_literal *literal = VT_NEW(arena, vt_literal);
  *literal =
      (vt_literal){.type = vt_type_make(arena, VT_F32, 2, (int64_t[]){to, from}), .data = weights};
  vt_value *matrix = vt_build_constant(lo->func, NULL, loc, literal);
  vt_type type = vt_type_make(arena, dtype, 2, (int64_t[]){to, from});
  return dtype == VT_F32 ? matrix : vt_build(lo->func, NULL, VT_OP_CONVERT, loc, type, 1, &matrix);
}

// Takes dimension 1 of the image away and appends what the matrix makes of it.
static vt_value *along(vt_lower *lo, const vt_raw_op *raw, vt_value *image, vt_value *matrix,
                       int64_t contracted) {
  const int64_t *dims = image->type.dims;
  int64_t made[] = {dims[0], dims[2], dims[3], matrix->type.dims[1 - contracted]};
  vt_type type = vt_type_make(&lo->module->arena, image->type.dtype, 4, made);
  vt_value *dot = vt_build(lo->func, NULL, VT_OP_DOT_GENERAL, vt_lower_loc(lo, raw->loc), type, 2,
                           (vt_value *[]){image, matrix});
  vt_op_set_ints(dot->op, VT_ATTR_LHS_BATCHING_DIMENSIONS, 0, made);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_BATCHING_DIMENSIONS, 0, made);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1, (int64_t[]){1});
  vt_op_set_ints(dot->op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1, &contracted);
  vt_op_set_ints(dot->op, VT_ATTR_PRECISION_CONFIG, 2,
                 (int64_t[]){VT_PRECISION_HIGHEST, VT_PRECISION_HIGHEST});
  return dot;
}

static bool read_call(const vt_raw_op *raw, resize *out) {
  const vt_raw_attr *name = vt_raw_find(raw, "call_target_name");
  const vt_raw_attr *config = vt_raw_find(raw, "backend_config");
  static const char *const names[] = {"ResizeBilinear", "ResizeBilinearGrad", "ResizeNearest",
                                      "ResizeNearestGrad"};
  int which = 0;
  while (which < 4 && !vt_string_is(name->string, names[which])) which++;
  *out = (resize){.nearest = which >= 2, .gradient = which % 2 == 1};
  if (which == 4 || !config || config->kind != VT_RAW_STRING) return false;
  bool *flags[] = {&out->align_corners, &out->half_pixel_centers}; // "01", with the quotes
  size_t read = 0;
  for (size_t i = 0; i < config->string.size && read < 2; i++)
    if (config->string.data[i] == '0' || config->string.data[i] == '1')
      *flags[read++] = config->string.data[i] == '1';
  return read == 2;
}

vt_status vt_lower_resize(vt_lower *lo, vt_raw_op *raw) {
  resize r;
  vt_value_list operands = {0};
  vt_type_list types = {0};
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(vt_lower_types(lo, raw, raw->results[i].type, &types));
  bool good = read_call(raw, &r) && operands.size == 1 && types.size == 1 &&
              types.data[0].rank == 4 && operands.data[0]->type.rank == 4 &&
              types.data[0].dtype == operands.data[0]->type.dtype &&
              vt_dtype_kind_of(types.data[0].dtype) == VT_KIND_FLOAT;
  for (int32_t d = 0; good && d < 4; d++)
    good = d % 3 ? types.data[0].dims[d] > 0 && operands.data[0]->type.dims[d] > 0
                 : types.data[0].dims[d] == operands.data[0]->type.dims[d];
  if (!good)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                          "images of floats, [batch, y, x, channel], and two flags were expected");
  vt_value *image = operands.data[0];
  const int64_t *given = image->type.dims, *wanted = types.data[0].dims;
  for (int32_t d = 1; d < 3; d++) {
    if (given[d] > INT32_MAX || wanted[d] > INT32_MAX ||
        (lo->budget -= given[d] * wanted[d] / ROOM) < 0)
      return vt_lower_error(lo, raw, VT_RESOURCE_EXHAUSTED, "images of this size are not resized");
  }
  for (int32_t d = 1; d < 3; d++) {
    int64_t to = r.gradient ? given[d] : wanted[d], from = r.gradient ? wanted[d] : given[d];
    image = along(lo, raw, image, weights_of(lo, raw, &r, image->type.dtype, to, from),
                  r.gradient ? 0 : 1);
  }
  vt_value *result = vt_build(lo->func, NULL, VT_OP_TRANSPOSE, vt_lower_loc(lo, raw->loc),
                              types.data[0], 1, &image);
  vt_op_set_ints(result->op, VT_ATTR_PERMUTATION, 4, (int64_t[]){0, 2, 3, 1});
  vt_lower_set_values(lo, &raw->results[0], 1, &result);
  return VT_OK;
}
