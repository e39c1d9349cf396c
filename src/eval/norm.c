// SPDX-License-Identifier: Apache-2.0
// norm.c - batch_norm_training, _inference, _grad. Computed in f64, rounded once. Variance is
// biased.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"

// The operand as [outer][features][inner].
typedef struct norm_view {
  int64_t outer, features, inner, count;
  double epsilon;
} norm_view;

enum { MOST_ARRAYS = 8 };
typedef struct norm_arrays {
  int count;
  double *data[MOST_ARRAYS];
} norm_arrays;

static vt_status view_of(const vt_eval_call *call, norm_view *v) {
  vt_type t = call->in[0].type;
  int64_t f = vt_attr_i64(call->op, VT_ATTR_FEATURE_INDEX);
  if (f < 0 || f >= t.rank) return vt_eval_invalid(call->op, "feature_index");
  if (vt_dtype_is_complex(t.dtype)) return vt_eval_refuse(call->op, "this element type");
  *v = (norm_view){1, t.dims[f], 1, 0, (double)(float)vt_attr_f64(call->op, VT_ATTR_EPSILON)};
  for (int64_t d = 0; d < f; d++) v->outer *= t.dims[d];
  for (int64_t d = f + 1; d < t.rank; d++) v->inner *= t.dims[d];
  v->count = v->outer * v->inner;
  return VT_OK;
}

static void arrays_free(norm_arrays *a) {
  for (int i = 0; i < a->count; i++) free(a->data[i]);
}

// A new f64 array of n elements, filled from `in` when given.
static vt_status add_array(norm_arrays *a, int64_t n, const vt_tensor *in, double **out) {
  VT_TRY(vt_eval_scratch(n * 8, out));
  a->data[a->count++] = *out;
  if (!in) {
    memset(*out, 0, (size_t)n * 8);
    return VT_OK;
  }
  return vt_eval_convert_array(in->type.dtype, VT_F64, n, in->data, *out);
}

static vt_status store(vt_tensor *out, const double *from) {
  return vt_eval_convert_array(VT_F64, out->type.dtype, vt_type_elements(out->type), from,
                               out->data);
}

// sum[f] += weight of each element: the element itself, or x times g.
static void sum_features(const norm_view *v, const double *x, const double *shift, const double *g,
                         double *sum) {
  for (int64_t o = 0; o < v->outer; o++)
    for (int64_t f = 0; f < v->features; f++) {
      int64_t at = (o * v->features + f) * v->inner;
      double s = 0;
      for (int64_t i = 0; i < v->inner; i++) {
        double centred = x[at + i] - (shift ? shift[f] : 0);
        s += centred * (g ? g[at + i] : 1);
      }
      sum[f] += s;
    }
}

static void normalise(const norm_view *v, const double *x, const double *scale,
                      const double *offset, const double *mean, const double *variance,
                      double *out) {
  for (int64_t o = 0; o < v->outer; o++)
    for (int64_t f = 0; f < v->features; f++) {
      int64_t at = (o * v->features + f) * v->inner;
      double factor = scale[f] / sqrt(variance[f] + v->epsilon);
      for (int64_t i = 0; i < v->inner; i++)
        out[at + i] = (x[at + i] - mean[f]) * factor + offset[f];
    }
}

vt_status vt_eval_batch_norm_training(const vt_eval_call *call) {
  norm_view v;
  norm_arrays a = {0};
  double *x, *scale, *offset, *mean, *variance, *out;
  VT_TRY(view_of(call, &v));
  int64_t n = v.count * v.features;
  vt_status st = VT_OK;
  VT_TRY_OUT(add_array(&a, n, &call->in[0], &x));
  VT_TRY_OUT(add_array(&a, v.features, &call->in[1], &scale));
  VT_TRY_OUT(add_array(&a, v.features, &call->in[2], &offset));
  VT_TRY_OUT(add_array(&a, v.features, NULL, &mean));
  VT_TRY_OUT(add_array(&a, v.features, NULL, &variance));
  VT_TRY_OUT(add_array(&a, n, NULL, &out));
  sum_features(&v, x, NULL, NULL, mean);
  for (int64_t f = 0; f < v.features; f++) mean[f] /= (double)v.count;
  for (int64_t o = 0; o < v.outer; o++)
    for (int64_t f = 0; f < v.features; f++)
      for (int64_t i = 0; i < v.inner; i++) {
        double d = x[(o * v.features + f) * v.inner + i] - mean[f];
        variance[f] += d * d;
      }
  for (int64_t f = 0; f < v.features; f++) variance[f] /= (double)v.count;
  normalise(&v, x, scale, offset, mean, variance, out);
  VT_TRY_OUT(store(&call->out[0], out));
  VT_TRY_OUT(store(&call->out[1], mean));
  VT_TRY_OUT(store(&call->out[2], variance));
out:
  arrays_free(&a);
  return st;
}

vt_status vt_eval_batch_norm_inference(const vt_eval_call *call) {
  norm_view v;
  norm_arrays a = {0};
  double *x, *parts[4], *out;
  VT_TRY(view_of(call, &v));
  int64_t n = v.count * v.features;
  vt_status st = VT_OK;
  VT_TRY_OUT(add_array(&a, n, &call->in[0], &x));
  for (int i = 0; i < 4; i++) VT_TRY_OUT(add_array(&a, v.features, &call->in[i + 1], &parts[i]));
  VT_TRY_OUT(add_array(&a, n, NULL, &out));
  normalise(&v, x, parts[0], parts[1], parts[2], parts[3], out);
  VT_TRY_OUT(store(&call->out[0], out));
out:
  arrays_free(&a);
  return st;
}

vt_status vt_eval_batch_norm_grad(const vt_eval_call *call) {
  norm_view v;
  norm_arrays a = {0};
  double *x, *scale, *mean, *variance, *g, *out, *sum_g, *sum_xg;
  VT_TRY(view_of(call, &v));
  int64_t n = v.count * v.features;
  vt_status st = VT_OK;
  VT_TRY_OUT(add_array(&a, n, &call->in[0], &x));
  VT_TRY_OUT(add_array(&a, v.features, &call->in[1], &scale));
  VT_TRY_OUT(add_array(&a, v.features, &call->in[2], &mean));
  VT_TRY_OUT(add_array(&a, v.features, &call->in[3], &variance));
  VT_TRY_OUT(add_array(&a, n, &call->in[4], &g));
  VT_TRY_OUT(add_array(&a, n, NULL, &out));
  VT_TRY_OUT(add_array(&a, v.features, NULL, &sum_g));
  VT_TRY_OUT(add_array(&a, v.features, NULL, &sum_xg));
  sum_features(&v, g, NULL, NULL, sum_g);
  sum_features(&v, x, mean, g, sum_xg);
  for (int64_t o = 0; o < v.outer; o++)
    for (int64_t f = 0; f < v.features; f++) {
      double inverse = 1 / sqrt(variance[f] + v.epsilon), count = (double)v.count;
      for (int64_t i = 0; i < v.inner; i++) {
        int64_t at = (o * v.features + f) * v.inner + i;
        double pull = sum_g[f] / count + (x[at] - mean[f]) * inverse * inverse * sum_xg[f] / count;
        out[at] = scale[f] * inverse * (g[at] - pull);
      }
    }
  for (int64_t f = 0; f < v.features; f++) sum_xg[f] /= sqrt(variance[f] + v.epsilon);
  VT_TRY_OUT(store(&call->out[0], out));
  VT_TRY_OUT(store(&call->out[1], sum_xg));
  VT_TRY_OUT(store(&call->out[2], sum_g));
out:
  arrays_free(&a);
  return st;
}
