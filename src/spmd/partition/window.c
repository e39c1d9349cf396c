// SPDX-License-Identifier: Apache-2.0
// window.c - reduce_window (cumulative forms are such), select_and_scatter.
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "spmd/partition/halo.h"

static vt_value *whole_scalar(vt_parter *p, const vt_value *value) {
  return vt_reshard(p, vt_part_of(p, value), vt_assign_whole(&p->assigns, 0, p->device_count))
      .local;
}

static void windows_of(const vt_op *op, int32_t rank, vt_window *out) {
  const int64_t *size = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, NULL);
  const int64_t *stride = vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, NULL);
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  bool dilated = op->code == VT_OP_REDUCE_WINDOW;
  const int64_t *base = dilated ? vt_attr_ints(op, VT_ATTR_BASE_DILATIONS, NULL) : NULL;
  const int64_t *window = dilated ? vt_attr_ints(op, VT_ATTR_WINDOW_DILATIONS, NULL) : NULL;
  for (int32_t d = 0; d < rank; d++)
    out[d] = (vt_window){size[d],
                         stride[d],
                         padding[2 * d],
                         padding[2 * d + 1],
                         base ? base[d] : 1,
                         window ? window[d] : 1};
}

// ---- reduce_window ------------------------------------------------------------------------------

static void set_windows(vt_op *op, int32_t rank, const vt_window *windows) {
  int64_t padding[2 * VT_MAX_RANK], base[VT_MAX_RANK];
  for (int32_t d = 0; d < rank; d++) {
    padding[2 * d] = windows[d].low;
    padding[2 * d + 1] = windows[d].high;
    base[d] = windows[d].base_dilation;
  }
  vt_op_set_ints(op, VT_ATTR_PADDING, 2 * (uint32_t)rank, padding);
  if (op->code == VT_OP_REDUCE_WINDOW)
    vt_op_set_ints(op, VT_ATTR_BASE_DILATIONS, (uint32_t)rank, base);
}

static bool reduce_windows(vt_parter *p, const vt_op *op, const vt_assign *at, vt_value **operands,
                           vt_type *types) {
  uint32_t count = op->result_count;
  vt_type type = op->results[0].type;
  vt_window windows[VT_MAX_RANK];
  vt_windowed w = {0};
  windows_of(op, type.rank, windows);
  for (uint32_t i = 0; i < count; i++) {
    vt_value *initial = whole_scalar(p, op->operands[count + i]);
    vt_value *neutral = count == 1 ? vt_neutral_of(p, op->regions[0], initial) : NULL;
    vt_part part = vt_part_of(p, op->operands[i]);
    if (!vt_reshard_windowed(p, part, windows, at, neutral ? neutral : initial, &w)) return false;
    operands[i] = w.local;
    operands[count + i] = initial;
    types[i] = vt_windowed_type(p, &w, op->results[i].type.dtype);
  }
  vt_op *copy = vt_copy_op(p, op, types, 2 * count, operands);
  set_windows(copy, type.rank, w.windows);
  copy = vt_emit_finished(p, copy);
  for (uint32_t i = 0; i < count; i++) {
    vt_type global = op->results[i].type;
    vt_value *local = vt_windowed_result(p, &w, &copy->results[i], vt_local_type(p, global, at));
    vt_part_set(p, &op->results[i], (vt_part){global, local, at});
  }
  return true;
}

vt_status vt_partition_reduce_window(vt_parter *p, const vt_op *op) {
  const vt_assign *at = vt_part_wanted(p, op, 0);
  if (op->capture_count || !vt_assign_is_cut(at)) return vt_partition_whole(p, op);
  vt_arena scratch = {0};
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, 2 * op->result_count);
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, op->result_count);
  bool done = reduce_windows(p, op, at, operands, types);
  vt_arena_free(&scratch);
  return done ? VT_OK : vt_partition_whole(p, op);
}

// ---- select_and_scatter -------------------------------------------------------------------------
// A device computes all windows that touch its tile, so it needs the data under these, and their
// sources; then it keeps what is scattered into its own tile. Data outside of the array loses every
// comparison; sources outside change nothing.

// What loses against any number, by the op's selection; false: it is no plain comparison.
static bool losing_number(const vt_op *op, double *out) {
  const vt_func *select = op->regions[0];
  const vt_op *compare = select->first;
  if (!compare || compare->next || compare->code != VT_OP_COMPARE || select->return_count != 1 ||
      select->returns[0] != &compare->results[0] || compare->operands[0]->op ||
      compare->operands[1]->op || compare->operands[0]->index + compare->operands[1]->index != 1)
    return false;
  int64_t direction = vt_attr_i64(compare, VT_ATTR_COMPARISON_DIRECTION);
  bool greater = direction == VT_CMP_GE || direction == VT_CMP_GT;
  if (!greater && direction != VT_CMP_LE && direction != VT_CMP_LT) return false;
  if (compare->operands[0]->index) greater = !greater;
  *out = greater ? -INFINITY : INFINITY;
  return true;
}

static vt_value *emit_infinity(vt_parter *p, vt_dtype dtype, double number) {
  float *data = VT_NEW(&p->module->arena, float);
  *data = (float)number;
  vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
  *literal = (vt_literal){(vt_type){VT_F32, 0, NULL}, data, true};
  vt_value *v = vt_emit_literal(p, literal);
  return dtype == VT_F32 ? v : vt_emit1(p, VT_OP_CONVERT, (vt_type){dtype, 0, NULL}, v);
}

// Data and sources of one cut dimension, and where the tile begins in the data.
typedef struct scatter_dim {
  vt_parter *p;
  const vt_assign *at;
  int32_t dim;
  vt_window window;
  int64_t data_size, source_size; // of the whole arrays
  int64_t shard;                  // of the data
} scatter_dim;

// Windows [first, limit) touch tile i. Gaps between windows count as part of them.
static bool exchange_dim(const scatter_dim *s, vt_value *lose, vt_value *neutral, vt_value **data,
                         vt_value **source, vt_value **offset) {
  int32_t n = s->at->dims[s->dim];
  vt_window w = s->window;
  int64_t reach = w.size > w.stride ? w.size : w.stride, most = 0;
  vt_arena scratch = {0};
  int64_t *first = VT_NEW_ARRAY(&scratch, int64_t, n), *limit = VT_NEW_ARRAY(&scratch, int64_t, n);
  int64_t *from = VT_NEW_ARRAY(&scratch, int64_t, n), *to = VT_NEW_ARRAY(&scratch, int64_t, n);
  int64_t *begin = VT_NEW_ARRAY(&scratch, int64_t, n);
  for (int32_t i = 0; i < n; i++) {
    first[i] = (s->shard * i + w.low - reach + w.stride) / w.stride;
    limit[i] = (s->shard * (i + 1) + w.low + w.stride - 1) / w.stride;
    if (limit[i] - first[i] > most) most = limit[i] - first[i];
    from[i] = first[i] * w.stride - w.low;
    to[i] = (limit[i] - 1) * w.stride - w.low + reach;
    begin[i] = s->shard * i - from[i];
  }
  bool done = most > 0;
  vt_halo_way way = first[0] == 0 ? VT_HALO_ANY : VT_HALO_NEAR;
  vt_halo sources = {s->dim, n, 0, 0, s->source_size, most, first, limit, way};
  vt_halo elements = {s->dim, n, 0, 0, s->data_size, (most - 1) * w.stride + reach, from, to, way};
  done = done && vt_exchange_halo(s->p, s->at, *source, &sources, neutral, source) &&
         vt_exchange_halo(s->p, s->at, *data, &elements, lose, data);
  if (done) *offset = vt_emit_by_tile(s->p, s->at, s->dim, begin);
  vt_arena_free(&scratch);
  return done;
}

// Data outside of the array ties with an infinity in it, and may win against NaN, as in XLA.
static bool reaches_out(vt_window window) {
  return window.low > 0 || window.high > 0;
}

static bool scatter_windows(vt_parter *p, const vt_op *op, const vt_assign *at, double losing,
                            vt_part *out) {
  vt_type type = op->results[0].type;
  vt_part data = vt_reshard(p, vt_part_of(p, op->operands[0]), at);
  vt_part source = vt_reshard(p, vt_part_of(p, op->operands[1]), at);
  vt_value *initial = whole_scalar(p, op->operands[2]), *offsets[VT_MAX_RANK] = {0};
  vt_value *lose = emit_infinity(p, type.dtype, losing);
  vt_value *neutral = vt_neutral_of(p, op->regions[1], initial);
  if (!neutral) return false;
  vt_window windows[VT_MAX_RANK];
  windows_of(op, type.rank, windows);
  vt_value *elements = data.local, *sources = source.local;
  for (int32_t d = 0; d < type.rank; d++) {
    if (at->dims[d] == 1 || vt_window_is_trivial(windows[d])) continue;
    if (p->exact && reaches_out(windows[d])) return false;
    scatter_dim s = {
        p, at, d, windows[d], type.dims[d], source.global.dims[d], data.local->type.dims[d]};
    if (!exchange_dim(&s, lose, neutral, &elements, &sources, &offsets[d])) return false;
    windows[d].low = windows[d].high = 0;
  }
  vt_op *copy = vt_copy_op(p, op, &elements->type, 3, (vt_value *[]){elements, sources, initial});
  set_windows(copy, type.rank, windows);
  vt_value *all = &vt_emit_finished(p, copy)->results[0];
  *out = (vt_part){type, vt_emit_dynamic_slice(p, all, offsets, data.local->type), at};
  return true;
}

vt_status vt_partition_select_and_scatter(vt_parter *p, const vt_op *op) {
  vt_dtype dtype = op->results[0].type.dtype;
  const vt_assign *at = vt_part_wanted(p, op, 0);
  double losing;
  vt_part out;
  bool has_infinity = dtype == VT_F32 || dtype == VT_BF16 || dtype == VT_F16 || dtype == VT_F64;
  if (op->capture_count || !vt_assign_is_cut(at) || !has_infinity || !losing_number(op, &losing) ||
      !scatter_windows(p, op, at, losing, &out))
    return vt_partition_whole(p, op);
  vt_part_set(p, &op->results[0], out);
  return VT_OK;
}
