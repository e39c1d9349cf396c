// SPDX-License-Identifier: Apache-2.0
// strip_spread.c - see strip_spread.h.
//
// A variance is the mean of squares of distances from a mean that is known only when all has been
// added up, which would be another walk over the array. So each strip adds up the squares of
// distances from its own mean, while its values are in the cache; from those and from the strips'
// means follow the squares of distances from the mean of all:
//
//   sum (x - m)^2  =  sum over strips of [ sum (x - m_s)^2 + n_s (m_s - m)^2 ]
//
// No digits are lost: all is positive. Digits differ.
#include "host/strip_spread.h"

#include <math.h>
#include <stdlib.h>

#include "host/nest.h"
#include "host/waiting.h"
#include "passes/rewrite.h"

static const vt_op *made_by(const vt_value *value, vt_opcode code) {
  return value->op && value->op->code == code ? value->op : NULL;
}

static const vt_op *sum_in(const vt_group *group) {
  if (group->output_count != 1) return NULL;
  const vt_op *sum = made_by(group->outputs[0], VT_OP_REDUCE);
  if (!sum || sum->operand_count != 2 || sum->results[0].type.dtype != VT_F32 ||
      vt_reducer_of(sum) != VT_REDUCE_ADD || !vt_is_splat_of(sum->operands[1], 0))
    return NULL;
  return sum;
}

bool vt_is_plain_sum(const vt_group *group) {
  const vt_op *sum = sum_in(group);
  return sum && group->input_count == 1 && sum->operands[0] == group->inputs[0];
}

// Follows a mean down to the sum: a multiple of it. `*at_input`: of which the input is one.
static bool follow(const vt_value *value, const vt_value *sum, const vt_value *input,
                   double *multiple, double *at_input) {
  enum { MOST = 8 };
  double above = 1, total = 0;
  *at_input = 0;
  for (int i = 0; i < MOST; i++) {
    if (value == input) *at_input = above;
    if (value == sum) {
      total = above;
      break;
    }
    const vt_op *op = value->op;
    double number;
    if (!op) return false;
    if (op->code == VT_OP_MULTIPLY && vt_is_number(op->operands[1], &number))
      above *= number;
    else if (op->code == VT_OP_DIVIDE && vt_is_number(op->operands[1], &number))
      above /= number;
    else if (op->code != VT_OP_RESHAPE && op->code != VT_OP_BROADCAST_IN_DIM)
      return false;
    value = op->operands[0];
  }
  *multiple = total;
  return total && *at_input;
}

bool vt_is_spread(const vt_group *group, const vt_value *values, const vt_value *sum, int64_t rows,
                  vt_strip_spread *out) {
  const vt_op *all = sum_in(group);
  const vt_op *square = all ? made_by(all->operands[0], VT_OP_MULTIPLY) : NULL;
  if (!square || square->operands[0] != square->operands[1] || group->input_count != 2)
    return false;
  const vt_op *distance = made_by(square->operands[0], VT_OP_SUBTRACT);
  uint32_t port = group->inputs[1] == values;
  if (!distance || distance->operands[0] != values || group->inputs[port] != values) return false;
  double multiple, at_input;
  if (!follow(distance->operands[1], sum, group->inputs[1 - port], &multiple, &at_input))
    return false;
  if (fabs(multiple * (double)rows - 1) > 1e-6) return false;
  *out = (vt_strip_spread){.port = port, .mean = 1 - port, .scale = 1 / at_input};
  return true;
}

static float *means_of(const vt_strip_spread *spread, int64_t task) {
  return (float *)(void *)(spread->blocks + task * spread->each +
                           vt_kernel_block_bytes(*spread->kernel));
}

void vt_spread_add(const vt_strip_spread *spread, int64_t task, float *values, const float *sums,
                   const vt_rows *rows) {
  float *means = means_of(spread, task);
  double by = spread->scale / (double)(rows->row_hi - rows->row_lo);
  for (int64_t c = rows->column_lo; c < rows->column_hi; c++) means[c] = (float)(sums[c] * by);
  void *pointers[3] = {values, values, NULL};
  pointers[spread->mean] = means;
  vt_rows part = *rows;
  part.port = spread->port, part.instead = values, part.output = NULL;
  part.block = spread->blocks + task * spread->each;
  vt_kernel_run_rows(*spread->kernel, pointers, &part);
}

enum { TOGETHER = 16 }; // columns: a line of memory of each strip

// Some columns: their mean, then what the strips' means are off.
static void finish_columns(const vt_strip_spread *spread, const vt_strip *strip, const char *sums,
                           int64_t apart, int64_t low, int64_t columns, float *out) {
  double mean[TOGETHER] = {0}, squares[TOGETHER] = {0}, all = 0;
  int64_t tasks = vt_strip_tasks(strip);
  for (int64_t t = 0; t < tasks; t++) {
    const float *from = (const float *)(const void *)(sums + t * apart) + low;
    for (int64_t c = 0; c < columns; c++) mean[c] += from[c];
    all += (double)vt_strip_task_rows(strip, t);
  }
  for (int64_t c = 0; c < columns; c++) mean[c] /= all;
  for (int64_t t = 0; t < tasks; t++) {
    double rows = (double)vt_strip_task_rows(strip, t);
    const float *from = (const float *)(const void *)(sums + t * apart) + low;
    const float *own = (const float *)(const void *)(spread->blocks + t * spread->each) + low;
    for (int64_t c = 0; c < columns; c++) {
      double off = from[c] / rows - mean[c];
      squares[c] += own[c] + rows * off * off;
    }
  }
  for (int64_t c = 0; c < columns; c++) out[low + c] = (float)squares[c];
}

void vt_spread_finish(const vt_strip_spread *spread, const vt_strip *strip, const char *sums,
                      int64_t apart, float *out) {
  enum { EACH_NS = 2 }; // that one thread takes for a number
  int64_t time = vt_strip_tasks(strip) * strip->n * EACH_NS;
  bool shared = vt_waiting_team(time, strip->threads) > 1;
#pragma omp parallel for schedule(static) if (shared)
  for (int64_t low = 0; low < strip->n; low += TOGETHER)
    finish_columns(spread, strip, sums, apart, low,
                   strip->n - low < TOGETHER ? strip->n - low : TOGETHER, out);
}
