// SPDX-License-Identifier: Apache-2.0
// product.c - matrix products and convolutions on the matrix units.
//
// A unit holds a tile of weights, edge x edge, and takes a row of the other operand each cycle
// while it loads the next tile. So a product takes, for each tile, as many cycles as there are
// rows, but not fewer than a load. Either operand may be the weights: the compiler takes the
// cheaper way.
#include "chip/time/kernels.h"

#include <math.h>

#include "chip/flops.h"
#include "chip/ragged.h"
#include "ir/precision.h"

static double blocks(double size, double block) {
  return ceil(size / block);
}

static double dims_product(vt_type type, const int64_t *dims, uint32_t count) {
  double product = 1;
  for (uint32_t i = 0; i < count; i++) product *= (double)type.dims[dims[i]];
  return product;
}

// How many passes in bf16 the precision that the program asks for takes.
static double precision_passes(const vt_op *op) {
  double passes = 1;
  uint32_t count = 0;
  if (!vt_op_attr(op, VT_ATTR_PRECISION_CONFIG)) return passes;
  bool wide = false;
  for (uint32_t i = 0; i < 2; i++)
    wide = wide || vt_dtype_get(op->operands[i]->type.dtype)->bits == 32;
  const int64_t *wanted = vt_attr_ints(op, VT_ATTR_PRECISION_CONFIG, &count);
  for (uint32_t i = 0; i < count && wide; i++)
    passes = fmax(passes, wanted[i] == VT_PRECISION_HIGHEST ? 6
                          : wanted[i] == VT_PRECISION_HIGH  ? 3
                                                            : 1);
  return passes;
}

// Rows of a product in groups come in tiles; where a tile has rows of two groups, it is taken for
// each of them. The size is that of Megablox' grouped product in JAX; XLA's is not published.
static const double ragged_tile = 128;

static void divide_groups(const vt_ragged *ragged, vt_product *p) {
  double tile = fmin(ragged_tile, blocks(ragged->rows, 8) * 8);
  double rows = (ragged->rows + (ragged->used - 1) * tile) / ragged->used;
  if (ragged->each)
    p->rows /= ragged->groups, p->depth = rows;
  else
    p->depth /= ragged->groups, p->rows = rows;
  p->batch *= ragged->used;
}

static vt_product of_dot(const vt_op *op) {
  vt_type lhs = op->operands[0]->type, rhs = op->operands[1]->type;
  uint32_t batches = 0, depths = 0;
  const int64_t *batch = vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batches);
  const int64_t *depth = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &depths);
  vt_product p = {.batch = dims_product(lhs, batch, batches),
                  .depth = dims_product(lhs, depth, depths),
                  .vectors = !vt_op_is_matrix_product(op)};
  double shared = fmax(p.batch * p.depth, 1);
  p.rows = (double)vt_type_elements(lhs) / shared;
  p.columns = (double)vt_type_elements(rhs) / shared;
  vt_ragged ragged;
  if (vt_ragged_of(op, &ragged)) divide_groups(&ragged, &p);
  return p;
}

// Positions are the rows, the window's channels the depth. Groups narrower than the array share a
// tile, whose other parts are zeros: groups of features lie along the depth and the columns, groups
// of the batch (a gradient of grouped weights) along the rows and the columns.
static vt_product of_convolution(const vt_chip *chip, const vt_op *op, double flops) {
  vt_type kernel = op->operands[1]->type, out = op->results[0].type;
  double of_features = (double)vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT);
  double of_batch = (double)vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT);
  double groups = fmax(of_features, of_batch);
  double features = (double)out.dims[vt_attr_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION)];
  double channels = (double)kernel.dims[vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION)];
  vt_product p = {.batch = 1, .columns = features};
  p.rows = (double)vt_type_elements(out) / fmax(features, 1);
  p.depth = flops / fmax(2 * p.rows * p.columns, 1);
  if (groups <= 1) return p;
  double widest = of_batch > 1 ? features / groups : fmax(channels, features / groups);
  double together = fmin(groups, fmax(1, floor(chip->mxu_edge / widest)));
  p.batch = blocks(groups, together);
  p.columns = features / groups * together;
  *(of_batch > 1 ? &p.rows : &p.depth) *= together;
  return p;
}

vt_product vt_product_of(const vt_chip *chip, const vt_op *op) {
  double flops = vt_flops_of_product(op);
  vt_product p = op->code == VT_OP_CONVOLUTION ? of_convolution(chip, op, flops) : of_dot(op);
  p.passes = precision_passes(op) / vt_flops_at_once(chip, op);
  p.flops = flops;
  return p;
}

// One operand as weights. A product of few tiles has its rows divided among the units.
static double one_way(const vt_device_model *model, const vt_product *p, double rows,
                      double columns) {
  const vt_chip *chip = model->chip;
  double units = chip->mxus_per_core * model->cores, edge = chip->mxu_edge;
  double load = model->rates->weight_load, padded = blocks(rows, 8) * 8;
  double tiles = p->batch * blocks(p->depth, edge) * blocks(columns, edge);
  double whole = blocks(tiles, units) * fmax(padded, load);
  double divided = tiles * fmax(blocks(padded / units, 8) * 8, load);
  return fmin(whole, divided) * units / model->mxu_rows_per_s;
}

double vt_product_seconds(const vt_device_model *model, const vt_product *p) {
  if (p->batch * p->rows * p->depth * p->columns <= 0 || p->vectors) return 0;
  double least =
      fmin(one_way(model, p, p->rows, p->columns), one_way(model, p, p->columns, p->rows));
  // Sums go down the whole array, rows across the columns in use.
  double edge = model->chip->mxu_edge;
  double fill = (edge + fmin(edge, fmin(p->columns, p->rows))) / model->clock;
  return least * p->passes / model->rates->mxu_share + fill;
}

// Blocks that are held at once: of both operands two each, one being filled; of the result its f32
// sum, which is written from there. They have the room that XLA leaves a kernel by default
// (xla_tpu_scoped_vmem_limit_kib), also on v6e, where whole arrays have less than the rest of VMEM.
enum { SUM_BYTES = 4, BLOCKS_BYTES = 16 << 20 };

double vt_product_traffic(const vt_device_model *model, const vt_product *p, double lhs,
                          double rhs) {
  double room = fmin(BLOCKS_BYTES, (double)model->chip->vmem_bytes_per_core * 0.75);
  double e_lhs = lhs / fmax(p->batch * p->rows * p->depth, 1);
  double e_rhs = rhs / fmax(p->batch * p->depth * p->columns, 1);
  double least = HUGE_VAL;
  for (double bm = 128;; bm *= 2) {
    double m = fmin(bm, blocks(p->rows, 8) * 8);
    for (double bn = 128;; bn *= 2) {
      double n = fmin(bn, blocks(p->columns, 128) * 128);
      for (double bk = 128;; bk *= 2) {
        double k = fmin(bk, blocks(p->depth, 128) * 128);
        double held = 2 * (e_lhs * m * k + e_rhs * k * n) + SUM_BYTES * m * n;
        double across = blocks(p->columns, n), down = blocks(p->rows, m);
        double bytes = lhs * across + rhs * down;
        if (k >= p->depth) bytes = fmin(lhs + rhs * down, lhs * across + rhs);
        if (held <= room || !isfinite(least)) least = fmin(least, bytes); // the smallest always
        if (bk >= p->depth) break;
      }
      if (bn >= p->columns) break;
    }
    if (bm >= p->rows) break;
  }
  return least;
}
