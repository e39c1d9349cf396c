// SPDX-License-Identifier: Apache-2.0
// roofline.c - a plain time bound of a module on a slice, from published peaks.
//
// The idea: arithmetic and HBM traffic overlap perfectly and split evenly over the devices, so time
// is the larger of the two. Elementwise ops, broadcasts and other moves fuse into their neighbours
// and cost no traffic of their own; matrix, reduction and library ops read their operands and write
// their results. No communication is counted.
#include "chip/chip.h"

#include <math.h>

typedef struct count {
  double flops, bytes, transcendentals;
  bool exact_trips;
} count;

static void count_func(const vt_func *func, double times, count *c);

static double bytes_of(vt_type type) {
  return (double)vt_type_bytes(type);
}

static double dot_flops(const vt_op *op) {
  double flops = 2.0 * (double)vt_type_elements(op->results[0].type);
  uint32_t n = 0;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &n);
  for (uint32_t i = 0; i < n; i++) flops *= (double)op->operands[0]->type.dims[dims[i]];
  return flops;
}

static double convolution_flops(const vt_op *op) {
  vt_type kernel = op->operands[1]->type;
  int64_t out_features = kernel.dims[vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION)];
  if (out_features == 0) return 0;
  return 2.0 * (double)vt_type_elements(op->results[0].type) *
         ((double)vt_type_elements(kernel) / (double)out_features);
}

// The trips of `while i < N` with i and N constant at the start and i counted up by one, else 0.
static double while_trips(const vt_op *op) {
  const vt_func *cond = op->regions[0];
  if (cond->return_count != 1 || !cond->returns[0]->op) return 0;
  const vt_op *compare = cond->returns[0]->op;
  if (compare->code != VT_OP_COMPARE ||
      vt_attr_i64(compare, VT_ATTR_COMPARISON_DIRECTION) != VT_CMP_LT)
    return 0;
  int64_t bounds[2];
  for (int i = 0; i < 2; i++) {
    const vt_value *value = compare->operands[i];
    if (!value->op) value = op->operands[value->index];
    if (!value->op || value->op->code != VT_OP_CONSTANT) return 0;
    const vt_literal *literal = vt_attr_literal(value->op, VT_ATTR_VALUE);
    if (!literal || literal->type.rank) return 0;
    if (literal->type.dtype == VT_S32)
      bounds[i] = *(const int32_t *)literal->data;
    else if (literal->type.dtype == VT_S64)
      bounds[i] = *(const int64_t *)literal->data;
    else
      return 0;
  }
  return bounds[1] > bounds[0] ? (double)(bounds[1] - bounds[0]) : 0;
}

static void count_control(const vt_op *op, double times, count *c) {
  switch (op->code) {
  case VT_OP_WHILE: {
    double trips = while_trips(op);
    if (trips == 0) c->exact_trips = false, trips = 1;
    count_func(op->regions[1], times * trips, c);
    break;
  }
  case VT_OP_IF:
  case VT_OP_CASE: { // the dearest branch
    count worst = {0};
    for (uint32_t i = 0; i < op->region_count; i++) {
      count branch = {.exact_trips = true};
      count_func(op->regions[i], times, &branch);
      if (branch.flops + branch.bytes >= worst.flops + worst.bytes) worst = branch;
    }
    c->flops += worst.flops, c->bytes += worst.bytes, c->transcendentals += worst.transcendentals;
    c->exact_trips = c->exact_trips && (worst.exact_trips || op->region_count == 0);
    break;
  }
  case VT_OP_CALL:
    count_func(vt_attr_func(op, VT_ATTR_CALLEE), times, c);
    break;
  case VT_OP_COMPOSITE:
    count_func(vt_attr_func(op, VT_ATTR_DECOMPOSITION), times, c);
    break;
  default:
    for (uint32_t i = 0; i < op->region_count; i++) count_func(op->regions[i], times, c);
  }
}

static void count_op(const vt_op *op, double times, count *c) {
  const vt_op_info *info = vt_op_info_get(op->code);
  if (info->flags & VT_OPF_CONTROL) {
    count_control(op, times, c);
    return;
  }
  double elements = op->result_count ? (double)vt_type_elements(op->results[0].type) : 0;
  bool touches = false;
  switch ((vt_cost_class)info->cost) {
  case VT_COST_FREE:
  case VT_COST_MOVE:
    touches = op->code == VT_OP_GATHER || op->code == VT_OP_SCATTER;
    break;
  case VT_COST_CHEAP:
    c->flops += times * elements;
    break;
  case VT_COST_MEDIUM:
  case VT_COST_EXPENSIVE:
    c->flops += times * elements;
    c->transcendentals += times * elements;
    break;
  case VT_COST_REDUCE:
    if (op->operand_count) c->flops += times * (double)vt_type_elements(op->operands[0]->type);
    touches = true;
    break;
  case VT_COST_MATRIX:
    if (op->code == VT_OP_DOT_GENERAL) c->flops += times * dot_flops(op);
    if (op->code == VT_OP_CONVOLUTION) c->flops += times * convolution_flops(op);
    touches = true;
    break;
  case VT_COST_LIBRARY:
    touches = true;
    break;
  }
  if (!touches) return;
  for (uint32_t i = 0; i < op->operand_count; i++)
    c->bytes += times * bytes_of(op->operands[i]->type);
  for (uint32_t i = 0; i < op->result_count; i++) c->bytes += times * bytes_of(op->results[i].type);
}

static void count_func(const vt_func *func, double times, count *c) {
  for (const vt_op *op = func->first; op; op = op->next) count_op(op, times, c);
}

vt_roofline vt_chip_roofline(const vt_slice *slice, int32_t device_count, const vt_module *module) {
  count c = {.exact_trips = true};
  const vt_func *main = module->main;
  for (uint32_t i = 0; i < main->param_count; i++) c.bytes += bytes_of(main->params[i]->type);
  for (uint32_t i = 0; i < main->return_count; i++) c.bytes += bytes_of(main->returns[i]->type);
  count_func(main, 1, &c);
  double share = (double)device_count / slice->chip->devices; // chips used
  double arithmetic = c.flops / (slice->chip->bf16_flops_per_s * share);
  double memory = c.bytes / (slice->chip->hbm_bytes_per_s * share);
  double seconds = fmax(arithmetic, memory);
  return (vt_roofline){.flops = c.flops,
                       .bytes = c.bytes,
                       .transcendentals = c.transcendentals,
                       .seconds = seconds,
                       .usd = vt_slice_usd_per_hour(slice) * seconds / 3600,
                       .exact_trips = c.exact_trips};
}
