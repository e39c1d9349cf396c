// SPDX-License-Identifier: Apache-2.0
// roofline.c - what a module asks of a slice, and a lower bound of its time from published peaks.
//
// The bound: matrix products at the peak of the matrix units and unavoidable HBM traffic
// (traffic.c) overlap perfectly and divide evenly over the devices; nothing else takes time. A
// manual region describes one device's work, so it counts once for each device along its axes.
#include "chip/chip.h"

#include <math.h>

#include "base/map.h"
#include "base/memory.h"
#include "chip/flops.h"
#include "chip/ragged.h"
#include "chip/traffic.h"
#include "ir/loop.h"
#include "ir/sharding.h"

typedef struct count {
  const vt_chip *chip;
  double flops, transcendentals;
  double products; // flops of matrix products, weighted by time relative to bf16, a lower bound
  bool exact_trips;
  vt_kernel_said_of *said;
  vt_map bodies; // elementwise function -> count of one call
  vt_arena arena;
} count;

// How often something runs on all devices together: as reported, and at least.
typedef struct repeats {
  double said, least;
} repeats;

double vt_log2(double x) {
  int exponent;
  double m = frexp(x, &exponent); // in [1/2, 1)
  if (m < 0.70710678118654752) m *= 2, exponent--;
  double y = (m - 1) / (m + 1), power = y, sum = 0; // ln m = 2 artanh y
  for (int k = 1; k < 30; k += 2, power *= y * y) sum += power / k;
  return exponent + 2 * sum * 1.4426950408889634;
}

static void count_func(const vt_scope *scope, const vt_func *func, repeats times, count *c);

static double dot_flops(const vt_op *op) {
  double flops = 2.0 * (double)vt_type_elements(op->results[0].type);
  vt_type lhs = op->operands[0]->type;
  if (op->code == VT_OP_DOT) return lhs.rank ? flops * (double)lhs.dims[lhs.rank - 1] : flops;
  uint32_t n = 0;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &n);
  for (uint32_t i = 0; i < n; i++) flops *= (double)lhs.dims[dims[i]];
  vt_ragged ragged;
  return vt_ragged_of(op, &ragged) ? flops * ragged.part : flops;
}

// Pairs of an output and a window position along one dimension that hit an element of the input,
// rather than padding or a hole of its dilation.
typedef struct axis {
  int64_t in, out, window, stride, low, in_dilation, window_dilation;
} axis;
static double meetings(axis a) {
  const int64_t most = 1 << 24; // no real program has larger windows: they count as none
  if (a.in == 0 || a.out == 0 || a.window > most / a.in_dilation) return 0;
  double pairs = 0;
  int64_t last = (a.in - 1) * a.in_dilation;
  for (int64_t w = 0; w < a.window; w++) {
    int64_t at = w * a.window_dilation - a.low; // of output 0
    int64_t first = at < 0 ? -at : 0, end = last < at ? 0 : last - at + 1;
    if (a.stride > 1) {
      first = (first + a.stride - 1) / a.stride;
      end = (end + a.stride - 1) / a.stride;
    }
    if (end > a.out) end = a.out;
    if (a.in_dilation == 1) {
      if (first < end) pairs += (double)(end - first);
      continue;
    }
    // Outputs that hit elements repeat with a period of at most the dilation.
    int64_t period = a.in_dilation;
    for (int64_t o = first; o < end && o < first + period; o++)
      if ((at + o * a.stride) % a.in_dilation == 0) {
        int64_t step = 1;
        while (step * a.stride % a.in_dilation) step++;
        pairs += (double)((end - 1 - o) / step + 1);
        break;
      }
  }
  return pairs;
}

static double convolution_flops(const vt_op *op) {
  vt_type in = op->operands[0]->type, kernel = op->operands[1]->type, out = op->results[0].type;
  uint32_t n = 0;
  const int64_t *strides = vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, &n);
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  const int64_t *in_dilation = vt_attr_ints(op, VT_ATTR_LHS_DILATION, NULL);
  const int64_t *window_dilation = vt_attr_ints(op, VT_ATTR_RHS_DILATION, NULL);
  const int64_t *in_dims = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, NULL);
  const int64_t *window_dims = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const int64_t *out_dims = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  double flops = 2;
  flops *= (double)out.dims[vt_attr_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION)];
  flops *= (double)out.dims[vt_attr_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION)];
  flops *= (double)kernel.dims[vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION)];
  for (uint32_t i = 0; i < n; i++)
    flops *=
        meetings((axis){in.dims[in_dims[i]], out.dims[out_dims[i]], kernel.dims[window_dims[i]],
                        strides[i], padding[2 * i], in_dilation[i], window_dilation[i]});
  return flops;
}

double vt_flops_of_product(const vt_op *op) {
  return op->code == VT_OP_CONVOLUTION ? convolution_flops(op) : dot_flops(op);
}

vt_matrix_units vt_units_of(const vt_chip *chip) {
  return (vt_matrix_units){.edge = chip->mxu_edge,
                           .narrow_integers = chip->narrow_integers,
                           .narrow_floats = chip->narrow_floats};
}

double vt_flops_at_once(const vt_chip *chip, const vt_op *op) {
  vt_matrix_units units = vt_units_of(chip);
  return vt_products_at_once(&units, op->operands[0]->type.dtype, op->operands[1]->type.dtype);
}

static double library_flops(const vt_op *op) {
  vt_type type = op->results[0].type;
  double n = type.rank ? (double)type.dims[type.rank - 1] : 1;
  double all = (double)vt_type_elements(type);
  switch (op->code) {
  case VT_OP_CHOLESKY:
    return all * n / 3;
  case VT_OP_TRIANGULAR_SOLVE: {
    vt_type a = op->operands[0]->type;
    return a.rank ? all * (double)a.dims[a.rank - 1] : 0;
  }
  case VT_OP_SORT:
  case VT_OP_FFT:
    return n > 1 ? all * vt_log2(n) * (op->code == VT_OP_FFT ? 5 : 1) : 0;
  default:
    return 0;
  }
}

static double reduce_flops(const vt_op *op) {
  uint32_t n = 0;
  if (op->code != VT_OP_REDUCE_WINDOW)
    return op->operand_count ? (double)vt_type_elements(op->operands[0]->type) : 0;
  const int64_t *window = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, &n);
  double flops = (double)vt_type_elements(op->results[0].type);
  for (uint32_t i = 0; i < n; i++) flops *= (double)window[i];
  return flops;
}

// Reports the dearest branch, is certain only of the cheapest.
static void count_branches(const vt_scope *scope, const vt_op *op, repeats times, count *c) {
  double flops = 0, transcendentals = 0, least = 0;
  for (uint32_t i = 0; i < op->region_count; i++) {
    count branch = {.chip = c->chip, .exact_trips = true, .said = c->said};
    vt_scope inside = {scope, op, op->regions[i]};
    count_func(&inside, op->regions[i], times, &branch);
    flops = fmax(flops, branch.flops);
    transcendentals = fmax(transcendentals, branch.transcendentals);
    least = i ? fmin(least, branch.products) : branch.products;
    c->exact_trips = c->exact_trips && branch.exact_trips;
  }
  c->flops += flops, c->transcendentals += transcendentals, c->products += least;
}

static void count_while(const vt_scope *scope, const vt_op *op, repeats times, count *c) {
  int64_t trips = 0;
  bool known = vt_loop_trips(scope, op, &trips);
  c->exact_trips = c->exact_trips && known;
  double said = known ? (double)trips : 1;
  vt_scope in_cond = {scope, op, op->regions[0]}, in_body = {scope, op, op->regions[1]};
  repeats tests = {times.said * (said + 1), times.least * (double)(trips + 1)};
  repeats runs = {times.said * said, times.least * (double)trips};
  count_func(&in_cond, op->regions[0], tests, c);
  count_func(&in_body, op->regions[1], runs, c);
}

static void count_elementwise_call(const vt_op *call, repeats times, count *c) {
  const vt_func *body = vt_op_callee(call);
  void **known = vt_map_at_ptr(&c->bodies, body);
  if (!*known) {
    count *one = VT_NEW(&c->arena, count);
    one->chip = c->chip;
    count_func(NULL, body, (repeats){1, 1}, one);
    *known = one;
  }
  const count *one = *known;
  c->flops += times.said * one->flops;
  c->transcendentals += times.said * one->transcendentals;
}

static void count_control(const vt_scope *scope, const vt_op *op, repeats times, count *c) {
  const vt_func *func = vt_op_callee(op);
  if (vt_op_is_elementwise_call(op)) {
    count_elementwise_call(op, times, c);
    return;
  }
  switch (op->code) {
  case VT_OP_WHILE:
    count_while(scope, op, times, c);
    return;
  case VT_OP_IF:
  case VT_OP_CASE:
    count_branches(scope, op, times, c);
    return;
  case VT_OP_MANUAL_COMPUTATION: {
    double devices = vt_op_manual_devices(op);
    times.said *= devices, times.least *= devices;
    func = op->regions[0];
    break;
  }
  default:
    break;
  }
  if (!func) return;
  vt_scope inside = {scope, op, func};
  count_func(&inside, func, times, c);
}

// false: it is counted as a library's operator.
static bool count_custom(const vt_op *op, repeats times, count *c) {
  const vt_func *written = vt_op_written_out(op);
  vt_kernel_said kernel;
  if (written) {
    count_func(NULL, written, times, c); // its parameters are not the op's operands
    return true;
  }
  if (vt_ragged_splits(op)) return true;
  if (!c->said || !c->said(op, &kernel)) return false;
  c->flops += times.said * kernel.flops;
  c->transcendentals += times.said * kernel.transcendentals;
  return true;
}

static void count_op(const vt_scope *scope, const vt_op *op, repeats times, count *c) {
  const vt_op_info *info = vt_op_info_get(op->code);
  if (info->flags & VT_OPF_CONTROL) {
    count_control(scope, op, times, c);
    return;
  }
  if (info->cost == VT_COST_FREE || info->cost == VT_COST_MOVE) return;
  if (op->code == VT_OP_CUSTOM_CALL && count_custom(op, times, c)) return;
  if (vt_ragged_splits(op)) return;
  double elements = op->result_count ? (double)vt_type_elements(op->results[0].type) : 0;
  switch ((vt_cost_class)info->cost) {
  case VT_COST_FREE:
  case VT_COST_MOVE:
    break;
  case VT_COST_CHEAP: // host and chip round at different places, so rounding never counts
    if (op->code != VT_OP_CONVERT && op->code != VT_OP_REDUCE_PRECISION)
      c->flops += times.said * elements;
    break;
  case VT_COST_MEDIUM:
  case VT_COST_EXPENSIVE:
    c->flops += times.said * elements;
    c->transcendentals += times.said * elements;
    break;
  case VT_COST_REDUCE:
    c->flops += times.said * reduce_flops(op);
    break;
  case VT_COST_MATRIX: {
    if (op->code == VT_OP_EINSUM) break; // import turns it into products
    double flops = vt_flops_of_product(op);
    c->flops += times.said * flops;
    c->products += times.least * flops / vt_flops_at_once(c->chip, op);
    break;
  }
  case VT_COST_LIBRARY:
    if (op->result_count) c->flops += times.said * library_flops(op);
    break;
  }
}

static void count_func(const vt_scope *scope, const vt_func *func, repeats times, count *c) {
  for (const vt_op *op = func->first; op; op = op->next) count_op(scope, op, times, c);
}

static count count_module(const vt_chip *chip, const vt_module *module, vt_kernel_said_of *said) {
  count c = {.chip = chip, .exact_trips = true, .said = said};
  count_func(NULL, module->main, (repeats){1, 1}, &c);
  vt_map_free(&c.bodies);
  vt_arena_free(&c.arena);
  return c;
}

double vt_chip_flops(const vt_chip *chip, const vt_module *module, vt_kernel_said_of *said) {
  return count_module(chip, module, said).flops;
}

vt_roofline vt_chip_roofline(const vt_slice *slice, int32_t device_count, const vt_module *module,
                             vt_kernel_said_of *said) {
  const vt_chip *chip = slice->chip;
  count c = count_module(chip, module, said);
  double chips = (double)device_count / chip->devices;
  double on_chip = (double)(chip->vmem_bytes_per_core * chip->cores + chip->cmem_bytes) * chips;
  double bytes = vt_chip_traffic(module, on_chip, NULL);
  double seconds = fmax(c.products / chip->bf16_flops_per_s, bytes / chip->hbm_bytes_per_s) / chips;
  return (vt_roofline){.flops = c.flops,
                       .bytes = said ? vt_chip_traffic(module, on_chip, said) : bytes,
                       .transcendentals = c.transcendentals,
                       .seconds = seconds,
                       .usd = vt_slice_usd_per_hour(slice) * seconds / 3600,
                       .exact_trips = c.exact_trips};
}
