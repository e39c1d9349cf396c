// SPDX-License-Identifier: Apache-2.0
// reduce.c - reduce, map.
//
// Inputs are laid out as [depth][kept]: depth counts the reduced elements of one result, kept the
// results. Then the rows are folded one after another, for all results side by side. Two other
// forms keep the lanes busy when there are few results:
//  - a common body over contiguous rows (the reduced dimensions come last) folds each row in lanes
//    and a tree;
//  - any body over few results folds PARTS stretches of depth side by side, then the parts in
//    order.
// The order depends on shapes alone. The init value enters once, on the left: at the end for common
// bodies and for parts, otherwise at the start, so that a body without algebra sees init, first,
// second, ... as in a plain loop.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "eval/fold.h"

enum { ROW_LANES = 256, FEW_RESULTS = 32, LONG_ROW = 64, PARTS = 64 };

typedef struct reduction {
  int64_t depth, kept;
  int32_t rank; // of the view: reduced dims, then kept ones
  int64_t dims[VT_MAX_RANK], strides[VT_MAX_RANK];
  bool rows_contiguous;    // memory is [kept][depth]
  bool columns_contiguous; // memory is [depth][kept]
} reduction;

static vt_status plan_reduce(const vt_eval_call *call, reduction *r) {
  vt_type in = call->in[0].type;
  uint32_t count;
  const int64_t *reduced = vt_attr_ints(call->op, VT_ATTR_DIMENSIONS, &count);
  bool is_reduced[VT_MAX_RANK] = {false};
  int64_t strides[VT_MAX_RANK];
  *r = (reduction){.depth = 1, .kept = 1, .rows_contiguous = true, .columns_contiguous = true};
  for (uint32_t i = 0; i < count; i++) {
    if (reduced[i] < 0 || reduced[i] >= in.rank) return vt_eval_invalid(call->op, "dimensions");
    is_reduced[reduced[i]] = true;
  }
  vt_type_strides(in, strides);
  for (int pass = 0; pass < 2; pass++)
    for (int32_t d = 0; d < in.rank; d++) {
      if (is_reduced[d] != (pass == 0)) continue;
      r->dims[r->rank] = in.dims[d];
      r->strides[r->rank++] = strides[d];
      *(pass == 0 ? &r->depth : &r->kept) *= in.dims[d];
    }
  bool seen_kept = false, seen_reduced = false;
  for (int32_t d = 0; d < in.rank; d++) {
    if (in.dims[d] == 1) continue;
    if (is_reduced[d]) {
      seen_reduced = true;
      if (seen_kept) r->columns_contiguous = false;
    } else {
      seen_kept = true;
      if (seen_reduced) r->rows_contiguous = false;
    }
  }
  return VT_OK;
}

// An input in the accumulator's type, [depth][kept] or in memory order when `as_is`.
static vt_status load(vt_tensor in, vt_dtype type, const reduction *r, bool as_is, void **out,
                      bool *owned) {
  vt_dtype from = in.type.dtype;
  int64_t n = r->depth * r->kept, dense[VT_MAX_RANK];
  char *moved = in.data, *wide = NULL;
  *owned = false;
  if (!as_is) {
    VT_TRY(vt_eval_scratch(n * (int64_t)vt_dtype_bytes(from), &moved));
    vt_type_strides((vt_type){from, r->rank, r->dims}, dense);
    vt_eval_move(vt_dtype_bytes(from), r->rank, r->dims, in.data, r->strides, moved, dense);
    *owned = true;
  }
  *out = moved;
  if (from == type) return VT_OK;
  vt_status st = vt_eval_scratch(n * (int64_t)vt_dtype_bytes(type), &wide);
  if (!st) st = vt_eval_convert_array(from, type, n, moved, wide);
  if (*owned) free(moved);
  *out = wide;
  *owned = true;
  if (st) {
    free(wide);
    *owned = false;
  }
  return st;
}

// Folds a contiguous row with a common body into *result: ROW_LANES partial results, then halves.
static vt_status fold_row(vt_fold *fold, int64_t n, const char *row, size_t bytes, char *result) {
  vt_assert(n >= 1 && bytes <= 16);
  _Alignas(64) char part[ROW_LANES * 16];
  int64_t lanes = n < ROW_LANES ? n : ROW_LANES;
  void *acc = part;
  memcpy(part, row, (size_t)lanes * bytes);
  for (int64_t at = lanes; at < n; at += lanes) {
    int64_t now = n - at < lanes ? n - at : lanes;
    fold->loop(now, part, row + at * (int64_t)bytes, NULL, part, fold->width);
  }
  while (lanes > 1) {
    int64_t half = lanes / 2;
    fold->loop(half, part, part + (lanes - half) * (int64_t)bytes, NULL, acc, fold->width);
    lanes -= half;
  }
  memcpy(result, part, bytes);
  return VT_OK;
}

// acc (of `lanes`) gets the fold of `depth` rows, added to its contents when `started`; row i of
// input k is at x[k] + i * lanes. Long sums go in blocks: the error of an f32 sum then grows with
// the block length and the number of blocks, not with depth.
static vt_status fold_rows(vt_fold *fold, int64_t depth, int64_t lanes, bool started,
                           void *const *x, void *const *acc) {
  vt_assert(depth >= 1 && lanes >= 1);
  int64_t block = fold->loop && depth > 128 ? 64 : depth;
  void *row[VT_FOLD_MOST], *partial = NULL;
  vt_status st = VT_OK;
  if (block < depth)
    VT_TRY(vt_eval_scratch(lanes * (int64_t)vt_dtype_bytes(fold->types[0]), &partial));
  for (int64_t first = 0; first < depth; first += block) {
    int64_t end = depth - first < block ? depth : first + block;
    void *const *to = first ? &partial : acc; // only single inputs have more than one block
    for (int64_t at = first; at < end; at++) {
      for (uint32_t k = 0; k < fold->inputs; k++) {
        size_t bytes = vt_dtype_bytes(fold->types[k]);
        row[k] = (char *)x[k] + (size_t)(at * lanes) * bytes;
        if (at == first && !started) memcpy(to[k], row[k], (size_t)lanes * bytes);
      }
      if (at > first || started) VT_TRY_OUT(vt_fold_combine(fold, lanes, to, row, to));
    }
    if (first) VT_TRY_OUT(vt_fold_combine(fold, lanes, acc, &partial, acc));
  }
out:
  free(partial);
  return st;
}

// Few results, large depth: PARTS stretches side by side, [part][step][kept] transposed to
// [step][part][kept].
static vt_status fold_parts(vt_fold *fold, const reduction *r, void *const *x, void *const *acc) {
  vt_assert(r->depth >= PARTS);
  int64_t steps = r->depth / PARTS, lanes = PARTS * r->kept;
  void *turned[VT_FOLD_MOST] = {0}, *part[VT_FOLD_MOST] = {0}, *one[VT_FOLD_MOST];
  vt_status st = VT_OK;
  for (uint32_t k = 0; k < fold->inputs; k++) {
    int64_t bytes = (int64_t)vt_dtype_bytes(fold->types[k]);
    int64_t dims[3] = {steps, PARTS, r->kept}, from[3] = {r->kept, steps * r->kept, 1};
    int64_t to[3] = {lanes, r->kept, 1};
    VT_TRY_OUT(vt_eval_scratch(steps * lanes * bytes, &turned[k]));
    VT_TRY_OUT(vt_eval_scratch(lanes * bytes, &part[k]));
    vt_eval_move((size_t)bytes, 3, dims, x[k], from, turned[k], to);
  }
  VT_TRY_OUT(fold_rows(fold, steps, lanes, false, turned, part));
  for (int64_t p = 0; p < PARTS + r->depth - steps * PARTS; p++) {
    for (uint32_t k = 0; k < fold->inputs; k++) {
      int64_t bytes = (int64_t)vt_dtype_bytes(fold->types[k]) * r->kept;
      one[k] = p < PARTS ? (char *)part[k] + p * bytes
                         : (char *)x[k] + (steps * PARTS + p - PARTS) * bytes;
      if (p == 0) memcpy(acc[k], one[k], (size_t)bytes);
    }
    if (p) VT_TRY_OUT(vt_fold_combine(fold, r->kept, acc, one, acc));
  }
out:
  for (uint32_t k = 0; k < fold->inputs; k++) {
    free(turned[k]);
    free(part[k]);
  }
  return st;
}

// Fills arrays of kept elements with the init values.
static vt_status fill_init(const vt_eval_call *call, vt_fold *fold, const reduction *r,
                           void *const *out) {
  for (uint32_t k = 0; k < fold->inputs; k++) {
    vt_tensor value = call->in[fold->inputs + k];
    char element[16];
    VT_TRY(vt_eval_convert_array(value.type.dtype, fold->types[k], 1, value.data, element));
    vt_eval_fill(vt_dtype_bytes(fold->types[k]), r->kept, element, out[k]);
  }
  return VT_OK;
}

// acc = body(init, acc).
static vt_status add_init(const vt_eval_call *call, vt_fold *fold, const reduction *r,
                          void *const *acc) {
  void *init[VT_FOLD_MOST] = {0};
  vt_status st = VT_OK;
  for (uint32_t k = 0; k < fold->inputs; k++)
    VT_TRY_OUT(vt_eval_scratch(r->kept * (int64_t)vt_dtype_bytes(fold->types[k]), &init[k]));
  VT_TRY_OUT(fill_init(call, fold, r, init));
  VT_TRY_OUT(vt_fold_combine(fold, r->kept, init, acc, acc));
out:
  for (uint32_t k = 0; k < fold->inputs; k++) free(init[k]);
  return st;
}

vt_status vt_eval_reduce(const vt_eval_call *call) {
  uint32_t inputs = call->op->result_count;
  vt_fold fold;
  reduction r;
  void *x[VT_FOLD_MOST] = {0}, *acc[VT_FOLD_MOST] = {0};
  bool owned[VT_FOLD_MOST] = {false};
  VT_TRY(plan_reduce(call, &r));
  vt_assert(inputs >= 1 && inputs <= VT_FOLD_MOST && r.rank == call->in[0].type.rank);
  if (vt_type_elements(call->out[0].type) != r.kept) return vt_eval_invalid(call->op, "shapes");
  if (!r.kept) return VT_OK;
  bool few = r.kept <= FEW_RESULTS && r.depth >= 4 * PARTS;
  vt_status st =
      vt_fold_open(call, call->op->regions[0], inputs, few ? PARTS * r.kept : r.kept, &fold);
  if (st) return st;
  bool rows = fold.loop && r.rows_contiguous && r.depth >= LONG_ROW;
  bool started = !r.depth || !(fold.loop || few);
  for (uint32_t k = 0; k < inputs; k++)
    VT_TRY_OUT(vt_eval_scratch(r.kept * (int64_t)vt_dtype_bytes(fold.types[k]), &acc[k]));
  if (started) VT_TRY_OUT(fill_init(call, &fold, &r, acc));
  if (r.depth) {
    for (uint32_t k = 0; k < inputs; k++)
      VT_TRY_OUT(
          load(call->in[k], fold.types[k], &r, rows || r.columns_contiguous, &x[k], &owned[k]));
    size_t bytes = vt_dtype_bytes(fold.types[0]);
    if (rows)
      for (int64_t i = 0; i < r.kept; i++)
        VT_TRY_OUT(fold_row(&fold, r.depth, (char *)x[0] + (size_t)(i * r.depth) * bytes, bytes,
                            (char *)acc[0] + (size_t)i * bytes));
    else if (few)
      VT_TRY_OUT(fold_parts(&fold, &r, x, acc));
    else
      VT_TRY_OUT(fold_rows(&fold, r.depth, r.kept, started, x, acc));
    if (!started) VT_TRY_OUT(add_init(call, &fold, &r, acc));
  }
  for (uint32_t k = 0; k < inputs; k++)
    VT_TRY_OUT(vt_eval_convert_array(fold.types[k], call->out[k].type.dtype, r.kept, acc[k],
                                     call->out[k].data));
out:
  for (uint32_t k = 0; k < inputs; k++) {
    if (owned[k]) free(x[k]);
    free(acc[k]);
  }
  vt_fold_close(&fold);
  return st;
}

vt_status vt_eval_map(const vt_eval_call *call) {
  enum { MOST = 64 };
  const void *args[MOST];
  void *result = call->out[0].data;
  uint32_t count = vt_op_own_operands(call->op);
  int64_t n = vt_type_elements(call->out[0].type);
  vt_region region;
  if (count > MOST) return vt_eval_refuse(call->op, "this number of operands");
  for (uint32_t i = 0; i < count; i++) args[i] = call->in[i].data;
  VT_TRY(vt_region_open(call, call->op->regions[0], n, &region));
  vt_status st = vt_region_run(&region, n, args, &result);
  vt_region_close(&region);
  return st;
}
