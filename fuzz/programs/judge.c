// SPDX-License-Identifier: Apache-2.0
// judge.c - see judge.h.
#include "judge.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "host/wide_chains.h"
#include "ir/number.h"

typedef enum bound_kind { BOUND_NONE, BOUND_ULP, BOUND_SUM, BOUND_NORM, BOUND_ZERO } bound_kind;
typedef struct bound {
  bound_kind kind;
  double f64, f32, f16, narrow;
} bound;
static const bound bounds[VT_OP_COUNT] = {
#define BOUND(op, kind, f64, f32, f16, narrow) [VT_OP_##op] = {BOUND_##kind, f64, f32, f16, narrow},
#include "bounds.def"
#undef BOUND
};

typedef struct judge {
  vt_arena *arena;
  vt_eval_env env;
  const vt_func *main;
  judged *values; // of main's ops; space for the next
  bool flushes;   // see judge_run
} judge;

static vt_dtype part_of(vt_dtype dtype) {
  return dtype == VT_C64 ? VT_F32 : dtype == VT_C128 ? VT_F64 : dtype;
}
static int64_t parts_of(vt_type type) {
  return vt_type_elements(type) * (vt_dtype_is_complex(type.dtype) ? 2 : 1);
}
static bool rounds(vt_type type) {
  return vt_dtype_is_float(type.dtype) || vt_dtype_is_complex(type.dtype);
}
static double epsilon_of(vt_dtype dtype) {
  return ldexp(1, -vt_dtype_get(dtype)->mantissa);
}
static int bias_of(vt_dtype dtype) { // of the exponent, from the least number
  uint64_t one = 1;
  return 1 - vt_dtype_get(dtype)->mantissa - ilogb(vt_number_load(dtype, &one, 0));
}
static double least_of(vt_dtype dtype) { // the smallest normal number
  return ldexp(1, 1 - bias_of(dtype));
}
static double most_of(vt_dtype dtype) { // a lower bound of the largest number
  const vt_dtype_info *info = vt_dtype_get(dtype);
  return ldexp(2 - ldexp(1, 1 - info->mantissa), (1 << info->exponent) - 2 - bias_of(dtype));
}

static void *new_data(judge *j, vt_type type) {
  return vt_arena_push_aligned(j->arena, (size_t)vt_type_bytes(type) + 192, 64);
}

// An operand with other values: the ends of its interval.
typedef enum corner { AT_CENTER, AT_LOW, AT_HIGH } corner;
static vt_tensor at_corner(judge *j, const judged *x, corner c) {
  if (c == AT_CENTER || !x->low) return x->center;
  vt_tensor t = {x->center.type, new_data(j, x->center.type)};
  vt_dtype part = part_of(t.type.dtype);
  const double *from = c == AT_LOW ? x->low : x->high;
  bool real = rounds(t.type);
  // Where anything is accepted the two ends differ as much as they can.
  double least = real ? (double)NAN : part == VT_PRED ? 0 : -(double)INFINITY;
  double most = real ? 1 : (double)INFINITY;
  if (!real) memcpy(t.data, x->center.data, (size_t)vt_type_bytes(t.type));
  for (int64_t i = 0; i < parts_of(t.type); i++)
    if (real || isnan(x->low[i]))
      vt_number_store(part, t.data, i, !isnan(x->low[i]) ? from[i] : c == AT_LOW ? least : most);
  return t;
}

static void need_interval(judge *j, judged *x) {
  if (x->low) return;
  int64_t n = parts_of(x->center.type);
  x->low = VT_NEW_ARRAY(j->arena, double, n + 1);
  x->high = VT_NEW_ARRAY(j->arena, double, n + 1);
  vt_dtype part = part_of(x->center.type.dtype);
  if (!rounds(x->center.type)) return; // 0: exact, or NaN: anything
  for (int64_t i = 0; i < n; i++) x->low[i] = x->high[i] = vt_number_load(part, x->center.data, i);
  for (int64_t i = 0; i < n; i++)
    if (isnan(x->low[i])) x->low[i] = x->high[i] = 0; // the center says NaN
}

static void anything(judged *x, int64_t i) {
  x->low[i] = x->high[i] = (double)NAN;
}

// Widens element i by `by`, overflow and flushing included.
static void widen(judged *x, int64_t i, double by) {
  vt_dtype part = part_of(x->center.type.dtype);
  double c = vt_number_load(part, x->center.data, i), most = most_of(part), least = least_of(part);
  if (isnan(c) || isnan(x->low[i])) return;
  if (isnan(by)) {
    anything(x, i);
    return;
  }
  if (isinf(c)) { // the other may be just below
    if (c > 0) x->low[i] = fmin(x->low[i], most * (1 - 64 * epsilon_of(part)));
    if (c < 0) x->high[i] = fmax(x->high[i], -most * (1 - 64 * epsilon_of(part)));
    return;
  }
  x->low[i] -= by;
  x->high[i] += by;
  if (x->low[i] < least && x->high[i] > -least) { // may be flushed
    x->low[i] = fmin(x->low[i], x->low[i] > 0 ? 0 : -least);
    x->high[i] = fmax(x->high[i], x->high[i] < 0 ? 0 : least);
  }
  if (x->high[i] > most) x->high[i] = (double)INFINITY;
  if (x->low[i] < -most) x->low[i] = -(double)INFINITY;
}

// Where the answer at another corner is NaN or a different integer, anything is accepted.
static void include_exact(judge *j, judged *x, vt_tensor other) {
  size_t bytes = vt_dtype_bytes(other.type.dtype);
  const char *a = x->center.data, *b = other.data;
  if (!vt_type_bytes(other.type) || !memcmp(a, b, (size_t)vt_type_bytes(other.type))) return;
  need_interval(j, x);
  for (int64_t i = 0; i < vt_type_elements(other.type); i++)
    if (memcmp(a + (size_t)i * bytes, b + (size_t)i * bytes, bytes)) anything(x, i);
}

// Extends the interval by the answer at another corner.
static void include(judge *j, judged *x, vt_tensor other) {
  if (!rounds(other.type)) {
    include_exact(j, x, other);
    return;
  }
  vt_dtype part = part_of(x->center.type.dtype);
  for (int64_t i = 0; i < parts_of(x->center.type); i++) {
    double c = vt_number_load(part, x->center.data, i), o = vt_number_load(part, other.data, i);
    if (isnan(x->low[i])) continue;
    if (isnan(c) != isnan(o) || isinf(c) != isinf(o) || (isinf(c) && c != o)) {
      anything(x, i);
    } else if (!isnan(c)) {
      // Negative zero is below positive zero.
      if (o < x->low[i] || (o == x->low[i] && signbit(o))) x->low[i] = o;
      if (o > x->high[i] || (o == x->high[i] && !signbit(o))) x->high[i] = o;
    }
  }
}

static vt_status run_corner(judge *j, const vt_op *op, const judged *in, corner first, corner rest,
                            judged *out) {
  vt_tensor *args = VT_NEW_ARRAY(j->arena, vt_tensor, op->operand_count + 1);
  vt_tensor *results = VT_NEW_ARRAY(j->arena, vt_tensor, op->result_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) args[i] = at_corner(j, &in[i], i ? rest : first);
  for (uint32_t i = 0; i < op->result_count; i++)
    results[i] = (vt_tensor){op->results[i].type, new_data(j, op->results[i].type)};
  VT_TRY(vt_eval_op(op, &j->env, args, results));
  for (uint32_t i = 0; i < op->result_count; i++) include(j, &out[i], results[i]);
  return VT_OK;
}

static bool straddles_zero(const judged *x, int64_t i) {
  return isnan(x->low[i]) || (x->low[i] <= 0 && x->high[i] >= 0);
}

// Whether a tangent may go through infinity.
static bool has_pole(const judged *x, int64_t i) {
  double pi = acos(-1.0);
  return isnan(x->low[i]) || floor(x->low[i] / pi + 0.5) != floor(x->high[i] / pi + 0.5);
}

// What an op on single elements makes of one that may be anything is anything, although two
// examples of it may give the same. Not so with a selection, which may not read it.
static void spread_anything(judge *j, const vt_op *op, const judged *in, judged *out) {
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) || op->code == VT_OP_SELECT) return;
  int64_t n = vt_type_elements(out->center.type), parts = n ? parts_of(out->center.type) / n : 0;
  for (uint32_t k = 0; k < op->operand_count; k++) {
    int64_t m = vt_type_elements(in[k].center.type), read = m ? parts_of(in[k].center.type) / m : 0;
    if (!in[k].low || (m != n && m != 1)) continue;
    for (int64_t i = 0; i < n * read; i++) {
      if (!isnan(in[k].low[m == 1 ? i % read : i])) continue;
      need_interval(j, out);
      for (int64_t part = 0; part < parts; part++) anything(out, i / read * parts + part);
    }
  }
}

// The hull of the answers at the ends of the operands' intervals, widened by as much again on both
// sides for values between the ends.
static vt_status run_intervals(judge *j, const vt_op *op, const judged *in, judged *out) {
  static const corner choices[4][2] = {
      {AT_LOW, AT_LOW}, {AT_HIGH, AT_HIGH}, {AT_LOW, AT_HIGH}, {AT_HIGH, AT_LOW}};
  for (uint32_t i = 0; i < op->result_count; i++)
    if (rounds(out[i].center.type)) need_interval(j, &out[i]);
  for (int k = 0; k < (op->operand_count > 1 ? 4 : 2); k++)
    VT_TRY(run_corner(j, op, in, choices[k][0], choices[k][1], out));
  spread_anything(j, op, in, &out[0]);
  for (uint32_t r = 0; r < op->result_count; r++) {
    if (!out[r].low || !rounds(out[r].center.type)) continue;
    double eps = epsilon_of(part_of(out[r].center.type.dtype));
    for (int64_t i = 0; i < parts_of(out[r].center.type); i++) {
      double reach = out[r].high[i] - out[r].low[i];
      bool slopes = op->code == VT_OP_SINE || op->code == VT_OP_COSINE || op->code == VT_OP_TAN;
      if (slopes && in[0].low) reach += in[0].high[i] - in[0].low[i];
      bool real = !vt_dtype_is_complex(out[r].center.type.dtype);
      if ((op->code == VT_OP_DIVIDE && in[1].low && straddles_zero(&in[1], i)) ||
          (op->code == VT_OP_TAN && real && in[0].low && has_pole(&in[0], i)))
        anything(&out[r], i);
      else if (reach > 0 || isnan(reach))
        widen(&out[r], i, reach + eps * fmax(fabs(out[r].low[i]), fabs(out[r].high[i])));
    }
  }
  return VT_OK;
}

static double factor_of(const bound *b, vt_dtype part) {
  return part == VT_F64 ? b->f64 : part == VT_F32 ? b->f32 : part == VT_F16 ? b->f16 : b->narrow;
}

static void widen_ulps(judged *x, double factor) {
  vt_dtype part = part_of(x->center.type.dtype);
  double step = factor * epsilon_of(part), least = least_of(part);
  for (int64_t i = 0; i < parts_of(x->center.type); i++)
    widen(x, i, step * fmax(fmax(fabs(x->low[i]), fabs(x->high[i])), least));
}

// Library functions work on bits, which are not flushed: their results on subnormals are
// unspecified.
static void free_subnormals(judged *x, const judged *in) {
  vt_dtype part = part_of(in->center.type.dtype);
  if (vt_dtype_get(part)->exponent < 8 || parts_of(in->center.type) != parts_of(x->center.type))
    return;
  for (int64_t i = 0; i < parts_of(x->center.type); i++) {
    double a = fabs(vt_number_load(part, in->center.data, i));
    bool may_be = in->low && a < least_of(part) && (in->low[i] < 0 || in->high[i] > 0);
    if (may_be || (a > 0 && a < least_of(part))) anything(x, i);
  }
}

static double largest_of(vt_tensor x) {
  double norm = 0;
  for (int64_t i = 0; i < parts_of(x.type); i++) {
    double c = fabs(vt_number_load(part_of(x.type.dtype), x.data, i));
    norm = fmax(norm, isfinite(c) ? c : 0);
  }
  return norm;
}
static void widen_norm(const vt_op *op, const judged *in, judged *x, double factor) {
  vt_dtype part = part_of(x->center.type.dtype);
  double norm = largest_of(x->center);
  // A variance may be computed as the mean of squares less the squared mean.
  double most = op->code == VT_OP_BATCH_NORM_TRAINING ? largest_of(in[0].center) : 0;
  norm = fmax(norm, fmax(most, most * most));
  for (int64_t i = 0; i < parts_of(x->center.type); i++)
    widen(x, i, factor * epsilon_of(part) * norm);
}

// An upper bound of the number of terms that one element of the result sums.
static double terms_of(const vt_op *op) {
  const int64_t *list;
  uint32_t count;
  vt_type in = op->operands[0]->type;
  double n = 1;
  switch (op->code) {
  case VT_OP_REDUCE:
    list = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) n *= (double)in.dims[list[i]];
    return n;
  case VT_OP_REDUCE_WINDOW:
  case VT_OP_SELECT_AND_SCATTER:
    list = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) n *= (double)list[i];
    return n;
  case VT_OP_SCATTER:
    return 1 + (double)vt_type_elements(op->operands[op->result_count + 1]->type);
  case VT_OP_DOT:
    return (double)in.dims[in.rank - 1];
  case VT_OP_DOT_GENERAL:
    list = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) n *= (double)in.dims[list[i]];
    return n;
  case VT_OP_CONVOLUTION:
    return (double)vt_type_elements(op->operands[1]->type);
  default:
    return 2;
  }
}

// The operand's magnitudes, with non-finite ones as zero; complex numbers get |re| + |im| in both
// parts. *out_fine: all are multiples of 1/4.
static vt_tensor magnitudes(judge *j, vt_tensor x, bool *out_fine, bool *out_finite) {
  vt_tensor t = {x.type, new_data(j, x.type)};
  if (!rounds(x.type)) {
    memcpy(t.data, x.data, (size_t)vt_type_bytes(x.type));
    return t;
  }
  vt_dtype part = part_of(x.type.dtype);
  int64_t width = vt_dtype_is_complex(x.type.dtype) ? 2 : 1;
  for (int64_t i = 0; i < parts_of(x.type); i += width) {
    double a = 0;
    for (int64_t k = 0; k < width; k++) {
      double size = fabs(vt_number_load(part, x.data, i + k));
      if (isfinite(size))
        a += size;
      else
        *out_fine = *out_finite = false;
    }
    a = fmin(a, most_of(part));
    if (a * 4 != floor(a * 4)) *out_fine = false;
    for (int64_t k = 0; k < width; k++) vt_number_store(part, t.data, i + k, a);
  }
  return t;
}

// Which of two zeros a maximum or a minimum returns is unspecified.
static bool picks_extremes(const vt_op *op) {
  if (bounds[op->code].kind == BOUND_ZERO) return true;
  for (uint32_t r = 0; r < op->region_count; r++)
    for (const vt_op *inner = op->regions[r]->first; inner; inner = inner->next)
      if (picks_extremes(inner)) return true;
  return false;
}
static bool has_subnormals(vt_tensor x) {
  vt_dtype part = part_of(x.type.dtype);
  if (!rounds(x.type) || vt_dtype_get(part)->exponent < 8) return false;
  for (int64_t i = 0; i < parts_of(x.type); i++) {
    double a = fabs(vt_number_load(part, x.data, i));
    if (a > 0 && a < least_of(part)) return true;
  }
  return false;
}
static void free_zeros(judge *j, judged *x, const judged *in, uint32_t count) {
  if (!rounds(x->center.type)) return;
  vt_dtype dtype = part_of(x->center.type.dtype);
  bool any = false, flushed = vt_dtype_get(dtype)->exponent >= 8, subnormals = false;
  // A subnormal may count as a zero next to another one, and either may be returned.
  for (uint32_t i = 0; i < count && flushed; i++)
    subnormals = subnormals || has_subnormals(in[i].center);
  for (int64_t i = 0; i < parts_of(x->center.type); i++) {
    double c = fabs(vt_number_load(dtype, x->center.data, i));
    if (!(c == 0 || (flushed && c < least_of(dtype)))) continue;
    if (!any) need_interval(j, x);
    any = true;
    if (subnormals) c = least_of(dtype);
    if (fabs(x->low[i]) <= c) x->low[i] = -c;
    if (fabs(x->high[i]) <= c) x->high[i] = c;
  }
}

static bool adds(const vt_op *op) {
  if (!op->region_count) return true;
  const vt_func *body = op->regions[op->region_count - 1];
  for (uint32_t i = 0; i < body->return_count; i++)
    if (body->returns[i]->op && body->returns[i]->op->code == VT_OP_ADD &&
        rounds(body->returns[i]->type))
      return true;
  return false;
}

static vt_status widen_sums(judge *j, const vt_op *op, const judged *in, judged *out,
                            const bound *b) {
  vt_tensor *args = VT_NEW_ARRAY(j->arena, vt_tensor, op->operand_count + 1);
  vt_tensor *sums = VT_NEW_ARRAY(j->arena, vt_tensor, op->result_count + 1);
  bool fine = true, finite = true;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    args[i] = magnitudes(j, in[i].center, &fine, &finite);
    fine = fine && !in[i].low;
  }
  if (op->code == VT_OP_SELECT_AND_SCATTER) args[0] = in[0].center; // it says where, not how much
  for (uint32_t i = 0; i < op->result_count; i++)
    sums[i] = (vt_tensor){op->results[i].type, new_data(j, op->results[i].type)};
  VT_TRY(vt_eval_op(op, &j->env, args, sums));
  for (uint32_t r = 0; r < op->result_count; r++) {
    if (!rounds(out[r].center.type)) continue;
    vt_dtype part = part_of(out[r].center.type.dtype);
    bool complex = vt_dtype_is_complex(out[r].center.type.dtype);
    double eps = epsilon_of(part), scale = factor_of(b, part) * terms_of(op) * eps;
    bool pads = op->code == VT_OP_CONVOLUTION || (op->code == VT_OP_DOT_GENERAL && complex);
    need_interval(j, &out[r]);
    for (int64_t i = 0; i < parts_of(out[r].center.type); i++) {
      double sum = vt_number_load(part, sums[r].data, complex ? i | 1 : i);
      // Padding may or may not be multiplied, which turns an infinity into NaN.
      if (!isfinite(sum) || sum > most_of(part) / 4 || (pads && !finite))
        anything(&out[r], i);
      else if (!fine || sum * 16 * eps > 1)
        widen(&out[r], i, scale * sum + terms_of(op) * least_of(part)); // terms may be flushed
    }
  }
  return VT_OK;
}

static vt_status judge_func(judge *j, const vt_func *func, judged *args, judged *out_results);

// Inlined control flow: what happens inside is judged as if it were outside.
static vt_status judge_control(judge *j, const vt_op *op, judged *in, judged *out) {
  uint32_t own = vt_op_own_operands(op);
  if (op->code == VT_OP_CALL || op->code == VT_OP_COMPOSITE)
    return judge_func(
        j, vt_attr_func(op, op->code == VT_OP_CALL ? VT_ATTR_CALLEE : VT_ATTR_DECOMPOSITION), in,
        out);
  if (op->code == VT_OP_IF || op->code == VT_OP_CASE) {
    uint32_t pick;
    if (op->code == VT_OP_IF) {
      pick = *(const uint8_t *)in[0].center.data ? 0 : 1;
    } else {
      int32_t index = *(const int32_t *)in[0].center.data;
      pick =
          index < 0 || index >= (int32_t)op->region_count ? op->region_count - 1 : (uint32_t)index;
    }
    return judge_func(j, op->regions[pick], in + 1, out);
  }
  judged *state = VT_NEW_ARRAY(j->arena, judged, op->operand_count + 1);
  memcpy(state, in, sizeof *in * op->operand_count);
  for (int round = 0; round < 1000; round++) {
    judged go;
    VT_TRY(judge_func(j, op->regions[0], state, &go));
    if (!*(const uint8_t *)go.center.data) {
      memcpy(out, state, sizeof *out * own);
      return VT_OK;
    }
    judged *next = VT_NEW_ARRAY(j->arena, judged, op->operand_count + 1);
    VT_TRY(judge_func(j, op->regions[1], state, next));
    memcpy(state, next, sizeof *next * own);
  }
  return vt_error(VT_INVALID_ARGUMENT, "a loop of more than 1000 rounds");
}

// Functions of complex numbers: the parts of a result may cancel, so they are judged by the larger
// one.
static bool is_complex_function(const vt_op *op) {
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) || !op->operand_count ||
      !vt_dtype_is_complex(op->operands[0]->type.dtype))
    return false;
  return bounds[op->code].kind == BOUND_ULP || op->code == VT_OP_ABS || op->code == VT_OP_SIGN ||
         op->code == VT_OP_SQRT || op->code == VT_OP_DIVIDE;
}

static vt_tensor flushed(judge *j, vt_tensor x) {
  if (!has_subnormals(x)) return x;
  vt_tensor t = {x.type, new_data(j, x.type)};
  vt_dtype part = part_of(x.type.dtype);
  memcpy(t.data, x.data, (size_t)vt_type_bytes(x.type));
  for (int64_t i = 0; i < parts_of(x.type); i++) {
    double a = vt_number_load(part, x.data, i);
    if (fabs(a) < least_of(part)) vt_number_store(part, t.data, i, copysign(0, a));
  }
  return t;
}

// Extends the results by those of operands whose subnormals are zeros: of any of them, as each came
// here on its own way.
static vt_status include_flushed(judge *j, const vt_op *op, const judged *in, judged *out) {
  vt_tensor *args = VT_NEW_ARRAY(j->arena, vt_tensor, op->operand_count + 1);
  vt_tensor *results = VT_NEW_ARRAY(j->arena, vt_tensor, op->result_count + 1);
  uint32_t few = op->operand_count < 3 ? op->operand_count : 3;
  for (uint32_t which = 1; which < 1u << few; which++) {
    bool any = false, all = which + 1 == 1u << few;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      bool wanted = i < few ? which >> i & 1 : all;
      args[i] = wanted ? flushed(j, in[i].center) : in[i].center;
      any = any || args[i].data != in[i].center.data;
    }
    if (!any) continue;
    for (uint32_t i = 0; i < op->result_count; i++)
      results[i] = (vt_tensor){op->results[i].type, new_data(j, op->results[i].type)};
    VT_TRY(vt_eval_op(op, &j->env, args, results));
    for (uint32_t i = 0; i < op->result_count; i++) {
      if (rounds(out[i].center.type)) need_interval(j, &out[i]);
      include(j, &out[i], results[i]);
    }
  }
  return VT_OK;
}

// A type without zero: what a number that may be flushed becomes is unspecified.
static void free_without_zero(judge *j, judged *x, const judged *in) {
  vt_dtype part = part_of(in->center.type.dtype);
  double least = ldexp(1, -126); // of f32, which a wider type may have been
  need_interval(j, x);
  for (int64_t i = 0; i < parts_of(x->center.type); i++)
    if (fabs(vt_number_load(part, in->center.data, i)) < least ||
        (in->low && in->low[i] < least && in->high[i] > -least))
      anything(x, i);
}

// A type of a larger range has the subnormals of this one as normal numbers: a compiler that folds
// the conversion of one keeps it, where the processor flushes it.
static void keep_subnormals(judge *j, judged *x, const judged *in) {
  vt_dtype from = part_of(in->center.type.dtype), to = part_of(x->center.type.dtype);
  int64_t n = vt_type_elements(in->center.type), read = n ? parts_of(in->center.type) / n : 0,
          made = n ? parts_of(x->center.type) / n : 0;
  if (vt_dtype_get(from)->exponent < 8 ||
      vt_dtype_get(to)->exponent <= vt_dtype_get(from)->exponent)
    return;
  for (int64_t i = 0; i < n; i++)
    for (int64_t p = 0; p < read && p < made; p++) {
      double a = vt_number_load(from, in->center.data, i * read + p);
      if (a == 0 || !(fabs(a) < least_of(from))) continue;
      need_interval(j, x);
      int64_t at = i * made + p;
      if (isnan(x->low[at])) continue;
      x->low[at] = fmin(x->low[at], a);
      x->high[at] = fmax(x->high[at], a);
    }
}

static vt_status judge_op(judge *j, const vt_op *op, judged *in, judged *out) {
  if (vt_op_info_get(op->code)->flags & VT_OPF_CONTROL) return judge_control(j, op, in, out);
  vt_tensor *args = VT_NEW_ARRAY(j->arena, vt_tensor, op->operand_count + 1);
  vt_tensor *results = VT_NEW_ARRAY(j->arena, vt_tensor, op->result_count + 1);
  bool inexact = false, flushes = false;
  const bound *b = &bounds[op->code];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    args[i] = in[i].center;
    inexact = inexact || in[i].low;
  }
  for (uint32_t i = 0; i < op->result_count; i++)
    out[i].center = results[i] = (vt_tensor){op->results[i].type, new_data(j, op->results[i].type)};
  VT_TRY(vt_eval_op(op, &j->env, args, results));
  if (inexact) VT_TRY(run_intervals(j, op, in, out));
  if (vt_wide_chains_keep(op)) {
    need_interval(j, &out[0]);
    widen_ulps(&out[0], 1);
  }
  if (j->flushes) VT_TRY(include_flushed(j, op, in, out));
  // A flushed subnormal leaves a zero of either sign in a sum.
  bool sums = op->code == VT_OP_ADD || op->code == VT_OP_SUBTRACT || b->kind == BOUND_SUM;
  for (uint32_t i = 0; i < op->operand_count && sums; i++)
    flushes = flushes || has_subnormals(args[i]);
  // A scaled subnormal may be large again: a compiler that folds does not flush.
  if (op->code == VT_OP_DIVIDE || op->code == VT_OP_MULTIPLY || op->code == VT_OP_SQRT)
    for (uint32_t k = 0; k < op->operand_count; k++)
      if (rounds(results[0].type) && has_subnormals(args[k])) {
        need_interval(j, &out[0]);
        free_subnormals(&out[0], &in[k]);
      }
  // Whether a value that may be flushed is true is unspecified, and what it becomes without a zero.
  bool no_zero = results[0].type.dtype == VT_F8E8M0FNU;
  if (op->code == VT_OP_CONVERT && (no_zero || results[0].type.dtype == VT_PRED) &&
      has_subnormals(args[0])) {
    need_interval(j, &out[0]);
    free_subnormals(&out[0], &in[0]);
  }
  if (op->code == VT_OP_CONVERT && no_zero && j->flushes && rounds(args[0].type))
    free_without_zero(j, &out[0], &in[0]);
  if (op->code == VT_OP_CONVERT && rounds(results[0].type) && rounds(args[0].type))
    keep_subnormals(j, &out[0], &in[0]);
  if (picks_extremes(op) || flushes)
    for (uint32_t i = 0; i < op->result_count; i++) free_zeros(j, &out[i], in, op->operand_count);
  if (is_complex_function(op)) {
    static const bound of_complex = {BOUND_NORM, 8192, 256, 0, 0};
    need_interval(j, &out[0]);
    widen_norm(op, in, &out[0], factor_of(&of_complex, part_of(results[0].type.dtype)));
    return VT_OK;
  }
  if (b->kind == BOUND_SUM &&
      (op->code == VT_OP_MULTIPLY ? vt_dtype_is_complex(results[0].type.dtype) : adds(op)))
    return widen_sums(j, op, in, out, b);
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (!rounds(results[i].type) || (b->kind != BOUND_ULP && b->kind != BOUND_NORM)) continue;
    need_interval(j, &out[i]);
    double factor = factor_of(b, part_of(results[i].type.dtype));
    if (b->kind == BOUND_ULP) {
      widen_ulps(&out[i], factor);
      for (uint32_t k = 0; k < op->operand_count; k++) free_subnormals(&out[i], &in[k]);
    } else {
      widen_norm(op, in, &out[i], factor);
    }
  }
  return VT_OK;
}

static vt_status judge_func(judge *j, const vt_func *func, judged *args, judged *out_results) {
  vt_map values = {0};
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < func->param_count; i++)
    *vt_map_at_ptr(&values, func->params[i]) = &args[i];
  for (const vt_op *op = func->first; op; op = op->next) {
    judged *in = VT_NEW_ARRAY(j->arena, judged, op->operand_count + 1);
    judged *out = VT_NEW_ARRAY(j->arena, judged, op->result_count + 1);
    for (uint32_t i = 0; i < op->operand_count; i++)
      in[i] = *(judged *)vt_map_find_ptr(&values, op->operands[i]);
    VT_TRY_OUT(judge_op(j, op, in, out));
    for (uint32_t i = 0; i < op->result_count; i++)
      *vt_map_at_ptr(&values, &op->results[i]) = &out[i];
    if (func != j->main) continue;
    memcpy(j->values, out, sizeof *out * op->result_count);
    j->values += op->result_count;
  }
  for (uint32_t i = 0; i < func->return_count; i++)
    out_results[i] = *(judged *)vt_map_find_ptr(&values, func->returns[i]);
out:
  vt_map_free(&values);
  return st;
}

vt_status judge_run(const vt_module *module, bool flushes, const vt_tensor *args, vt_arena *arena,
                    judged **out_results, judged **out_values) {
  const vt_func *main = module->main;
  uint32_t values = 0;
  for (const vt_op *op = main->first; op; op = op->next) values += op->result_count;
  *out_values = VT_NEW_ARRAY(arena, judged, values + 1);
  judge j = {.arena = arena,
             .env = {.exact_dots = true},
             .main = main,
             .values = *out_values,
             .flushes = flushes};
  judged *in = VT_NEW_ARRAY(arena, judged, main->param_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) in[i].center = args[i];
  *out_results = VT_NEW_ARRAY(arena, judged, main->return_count + 1);
  return judge_func(&j, main, in, *out_results);
}

// Subnormals of the formats that the host computes in hardware may be flushed anywhere: they count
// as zeros of their sign. So does the least normal number, to which a subnormal one may be rounded.
static bool both_tiny(double a, double b, vt_dtype part) {
  double least = least_of(part);
  return vt_dtype_get(part)->exponent >= 8 && fabs(a) <= least && fabs(b) <= least &&
         !signbit(a) == !signbit(b);
}
static bool within(const judged *want, int64_t i, double x, vt_dtype part) {
  if (x >= want->low[i] && x <= want->high[i]) return true;
  return both_tiny(want->low[i], x, part) || both_tiny(want->high[i], x, part);
}

static bool accepts_exact(const judged *want, const void *got, int64_t i, vt_dtype part) {
  size_t bytes = vt_dtype_bytes(part);
  const char *a = (const char *)want->center.data + i * (int64_t)bytes;
  const char *b = (const char *)got + i * (int64_t)bytes;
  if (!memcmp(a, b, bytes)) return true;
  if (!rounds((vt_type){part, 0, NULL})) return false;
  double c = vt_number_load(part, want->center.data, i), x = vt_number_load(part, got, i);
  return (isnan(c) && isnan(x)) || both_tiny(c, x, part);
}

bool judge_accepts(const judged *want, const void *got, vt_text *out_why) {
  vt_dtype part = part_of(want->center.type.dtype);
  int64_t n = parts_of(want->center.type), wrong = 0;
  for (int64_t i = 0; i < n; i++) {
    bool right;
    double c = vt_number_load(part, want->center.data, i), x = vt_number_load(part, got, i);
    if (!want->low || (!isnan(want->low[i]) && !rounds(want->center.type)))
      right = accepts_exact(want, got, i, part);
    else if (isnan(want->low[i]))
      right = true;
    else if (isnan(c) || isnan(x))
      right = isnan(c) && isnan(x);
    else
      right = within(want, i, x, part);
    if (right || wrong++) continue;
    uint64_t bits[2] = {0, 0};
    size_t bytes = vt_dtype_bytes(part);
    memcpy(&bits[0], (const char *)want->center.data + i * (int64_t)bytes, bytes);
    memcpy(&bits[1], (const char *)got + i * (int64_t)bytes, bytes);
    vt_text_printf(out_why,
                   "element %" PRId64 " of %" PRId64 " is %.9g (%#" PRIx64
                   ") where the evaluator has %.9g (%#" PRIx64 ")",
                   i, n, x, bits[1], c, bits[0]);
    if (want->low)
      vt_text_printf(out_why, " and [%.9g, %.9g] is right", want->low[i], want->high[i]);
  }
  if (wrong > 1) vt_text_printf(out_why, "; %" PRId64 " elements are wrong", wrong);
  return !wrong;
}
