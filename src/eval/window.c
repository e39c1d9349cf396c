// SPDX-License-Identifier: Apache-2.0
// window.c - reduce_window and select_and_scatter.
//
// For each position in the window, the results whose window has an element there form a box; the
// box of elements is gathered and combined at once. So padding and the holes of dilations are never
// touched. Cumulative windows (JAX's cumsum) are prefix scans instead of quadratic work.
#include <stdlib.h>
#include <string.h>

#include "eval/fold.h"

typedef struct window_plan {
  int32_t rank;
  const int64_t *in, *out, *size; // dims
  const int64_t *stride, *in_dilation, *dilation;
  int64_t low[VT_MAX_RANK];
  int64_t first[VT_MAX_RANK], places[VT_MAX_RANK]; // the visited part of each window dimension
  int64_t in_strides[VT_MAX_RANK], out_strides[VT_MAX_RANK];
} window_plan;

static const int64_t ones[VT_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// An optional list attribute (default: all ones, or zero paddings).
static vt_status list_of(const vt_op *op, vt_attr_key key, int32_t rank, const int64_t **out) {
  uint32_t count;
  *out = ones;
  if (!vt_op_attr(op, key)) return VT_OK;
  const int64_t *list = vt_attr_ints(op, key, &count);
  if (!count) return VT_OK;
  if ((int64_t)count != rank) return vt_eval_invalid(op, vt_attr_text(key));
  for (uint32_t i = 0; i < count; i++)
    if (list[i] < 1) return vt_eval_invalid(op, vt_attr_text(key));
  *out = list;
  return VT_OK;
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && a < 0);
}

// The window positions of a dimension that hit an element for any result; a window may be far
// larger than the array under it.
static void cut_window(window_plan *p, int32_t d) {
  int64_t low = p->low[d], dilation = p->dilation[d], reach, behind;
  p->first[d] = 0;
  p->places[d] = p->size[d];
  if (__builtin_mul_overflow(p->in[d] - 1, p->in_dilation[d], &reach) ||
      __builtin_add_overflow(reach, low, &reach) ||
      __builtin_mul_overflow(p->out[d] - 1, p->stride[d], &behind) ||
      __builtin_sub_overflow(low, behind, &behind) || behind == INT64_MIN)
    return;
  int64_t first = -floor_div(-behind, dilation), last = floor_div(reach, dilation);
  if (first < 0) first = 0;
  if (last >= p->size[d]) last = p->size[d] - 1;
  p->first[d] = first;
  p->places[d] = last < first ? 0 : last - first + 1;
}

// Visits the positions in order: `w` is the position, `step` counts; false at the end.
static bool next_place(const window_plan *p, int64_t *step, int64_t *w) {
  bool more = vt_eval_next(p->rank, p->places, step);
  for (int32_t d = 0; d < p->rank; d++) w[d] = p->first[d] + step[d];
  return more;
}

// The first position; false when there is none.
static bool first_place(const window_plan *p, int64_t *w) {
  bool some = true;
  for (int32_t d = 0; d < p->rank; d++) {
    w[d] = p->first[d];
    some = some && p->places[d] > 0;
  }
  return some;
}

static vt_status plan_window(const vt_op *op, vt_type in, vt_type out, window_plan *p) {
  *p = (window_plan){.rank = in.rank, .in = in.dims, .out = out.dims};
  if (in.rank != out.rank) return vt_eval_invalid(op, "shapes");
  VT_TRY(list_of(op, VT_ATTR_WINDOW_DIMENSIONS, in.rank, &p->size));
  VT_TRY(list_of(op, VT_ATTR_WINDOW_STRIDES, in.rank, &p->stride));
  VT_TRY(list_of(op, VT_ATTR_BASE_DILATIONS, in.rank, &p->in_dilation));
  VT_TRY(list_of(op, VT_ATTR_WINDOW_DILATIONS, in.rank, &p->dilation));
  uint32_t count = 0;
  const int64_t *padding =
      vt_op_attr(op, VT_ATTR_PADDING) ? vt_attr_ints(op, VT_ATTR_PADDING, &count) : NULL;
  for (int32_t d = 0; d < in.rank; d++)
    p->low[d] = (int64_t)count == 2 * in.rank ? padding[2 * d] : 0;
  vt_type_strides(in, p->in_strides);
  vt_type_strides(out, p->out_strides);
  for (int32_t d = 0; d < in.rank; d++) cut_window(p, d);
  return VT_OK;
}

// The results o with an element at window position w: in each dimension o = first, first + step,
// ... (count of them), elements at from, from + from_step, ...
typedef struct box {
  int64_t n;
  int64_t dims[VT_MAX_RANK], in_strides[VT_MAX_RANK], out_strides[VT_MAX_RANK];
  int64_t in_offset, out_offset;
} box;

static bool find_box(const window_plan *p, const int64_t *w, box *b) {
  *b = (box){.n = 1};
  for (int32_t d = 0; d < p->rank; d++) {
    // Element i is at i * in_dilation; result o looks at o * stride + shift.
    int64_t shift = w[d] * p->dilation[d] - p->low[d], dil = p->in_dilation[d],
            stride = p->stride[d];
    int64_t first = -1, step = 1;
    for (int64_t o = 0; o < dil && o < p->out[d]; o++) // residues repeat with period <= dil
      if ((((o * stride + shift) % dil) + dil) % dil == 0) {
        first = o;
        break;
      }
    if (first < 0) return false;
    for (step = 1; (step * stride) % dil; step++) {
    }
    int64_t at = (first * stride + shift) / dil, at_step = step * stride / dil;
    // Skip results before the array, then count those inside.
    if (at < 0) {
      int64_t skip = floor_div(-at + at_step - 1, at_step);
      at += skip * at_step;
      first += skip * step;
    }
    if (first >= p->out[d] || at >= p->in[d]) return false;
    int64_t by_out = (p->out[d] - 1 - first) / step + 1, by_in = (p->in[d] - 1 - at) / at_step + 1;
    b->dims[d] = by_out < by_in ? by_out : by_in;
    b->n *= b->dims[d];
    b->in_offset += at * p->in_strides[d];
    b->out_offset += first * p->out_strides[d];
    b->in_strides[d] = at_step * p->in_strides[d];
    b->out_strides[d] = step * p->out_strides[d];
  }
  return b->n > 0;
}

// A dimension along which the op is an inclusive scan; -1 when it is not one.
static int32_t scan_dimension(const window_plan *p, const vt_op *op, bool *out_reverse) {
  int32_t found = -1;
  for (int32_t d = 0; d < p->rank; d++) {
    if (p->stride[d] != 1 || p->in_dilation[d] != 1 || p->dilation[d] != 1 || p->in[d] != p->out[d])
      return -1;
    if (p->size[d] == 1 && p->low[d] == 0) continue;
    if (found >= 0 || p->size[d] < p->in[d]) return -1;
    if (p->low[d] != 0 && p->low[d] != p->size[d] - 1) return -1;
    *out_reverse = p->low[d] == 0;
    found = d;
  }
  (void)op;
  return found;
}

typedef struct window_state {
  vt_fold fold;
  void *in[VT_FOLD_MOST], *acc[VT_FOLD_MOST]; // whole arrays in accumulator types
  void *box_in[VT_FOLD_MOST], *box_acc[VT_FOLD_MOST];
  bool own_in[VT_FOLD_MOST];
} window_state;

static void state_close(window_state *s) {
  for (uint32_t k = 0; k < s->fold.inputs; k++) {
    if (s->own_in[k]) free(s->in[k]);
    free(s->acc[k]);
    free(s->box_in[k]);
    free(s->box_acc[k]);
  }
  vt_fold_close(&s->fold);
}

static vt_status state_open(const vt_eval_call *call, window_state *s) {
  vt_fold *fold = &s->fold;
  int64_t n = vt_type_elements(call->in[0].type), m = vt_type_elements(call->out[0].type);
  for (uint32_t k = 0; k < fold->inputs; k++) {
    vt_tensor in = call->in[k], init = call->in[fold->inputs + k];
    int64_t bytes = (int64_t)vt_dtype_bytes(fold->types[k]);
    char element[16];
    s->in[k] = in.data;
    if (in.type.dtype != fold->types[k]) {
      VT_TRY(vt_eval_scratch(n * bytes, &s->in[k]));
      s->own_in[k] = true;
      VT_TRY(vt_eval_convert_array(in.type.dtype, fold->types[k], n, in.data, s->in[k]));
    }
    VT_TRY(vt_eval_scratch(m * bytes, &s->acc[k]));
    VT_TRY(vt_eval_scratch(m * bytes, &s->box_in[k]));
    VT_TRY(vt_eval_scratch(m * bytes, &s->box_acc[k]));
    VT_TRY(vt_eval_convert_array(init.type.dtype, fold->types[k], 1, init.data, element));
    vt_eval_fill((size_t)bytes, m, element, s->acc[k]);
  }
  return VT_OK;
}

static vt_status combine_box(window_state *s, const window_plan *p, const box *b) {
  vt_fold *fold = &s->fold;
  int64_t dense[VT_MAX_RANK];
  vt_type_strides((vt_type){VT_PRED, p->rank, b->dims}, dense);
  for (uint32_t k = 0; k < fold->inputs; k++) {
    size_t bytes = vt_dtype_bytes(fold->types[k]);
    vt_eval_move(bytes, p->rank, b->dims, (char *)s->in[k] + b->in_offset * (int64_t)bytes,
                 b->in_strides, s->box_in[k], dense);
    vt_eval_move(bytes, p->rank, b->dims, (char *)s->acc[k] + b->out_offset * (int64_t)bytes,
                 b->out_strides, s->box_acc[k], dense);
  }
  VT_TRY(vt_fold_combine(fold, b->n, s->box_acc, s->box_in, s->box_acc));
  for (uint32_t k = 0; k < fold->inputs; k++) {
    size_t bytes = vt_dtype_bytes(fold->types[k]);
    vt_eval_move(bytes, p->rank, b->dims, s->box_acc[k], dense,
                 (char *)s->acc[k] + b->out_offset * (int64_t)bytes, b->out_strides);
  }
  return VT_OK;
}

// Along dimension d: acc[i] = body(acc[i - 1], in[i]), acc[-1] = init; all other dimensions side by
// side.
static vt_status scan(window_state *s, const window_plan *p, int32_t d, bool reverse) {
  box b = {.n = 1};
  for (int32_t i = 0; i < p->rank; i++) {
    b.dims[i] = i == d ? 1 : p->in[i];
    b.in_strides[i] = p->in_strides[i];
    b.n *= b.dims[i];
  }
  int64_t dense[VT_MAX_RANK];
  vt_fold *fold = &s->fold;
  vt_type_strides((vt_type){VT_PRED, p->rank, b.dims}, dense);
  for (uint32_t k = 0; k < fold->inputs; k++) // the running value starts as init
    memcpy(s->box_acc[k], s->acc[k], (size_t)b.n * vt_dtype_bytes(fold->types[k]));
  for (int64_t i = 0; i < p->in[d]; i++) {
    int64_t at = (reverse ? p->in[d] - 1 - i : i) * p->in_strides[d];
    for (uint32_t k = 0; k < fold->inputs; k++) {
      size_t bytes = vt_dtype_bytes(fold->types[k]);
      vt_eval_move(bytes, p->rank, b.dims, (char *)s->in[k] + at * (int64_t)bytes, b.in_strides,
                   s->box_in[k], dense);
    }
    VT_TRY(vt_fold_combine(fold, b.n, s->box_acc, s->box_in, s->box_acc));
    for (uint32_t k = 0; k < fold->inputs; k++) {
      size_t bytes = vt_dtype_bytes(fold->types[k]);
      vt_eval_move(bytes, p->rank, b.dims, s->box_acc[k], dense,
                   (char *)s->acc[k] + at * (int64_t)bytes, b.in_strides);
    }
  }
  return VT_OK;
}

vt_status vt_eval_reduce_window(const vt_eval_call *call) {
  uint32_t inputs = call->op->result_count;
  window_plan p;
  window_state s = {0};
  bool reverse = false;
  VT_TRY(plan_window(call->op, call->in[0].type, call->out[0].type, &p));
  int64_t m = vt_type_elements(call->out[0].type);
  if (!m) return VT_OK;
  vt_status st = vt_fold_open(call, call->op->regions[0], inputs, m, &s.fold);
  if (st) return st;
  VT_TRY_OUT(state_open(call, &s));
  int32_t scanned = scan_dimension(&p, call->op, &reverse);
  if (scanned >= 0) {
    VT_TRY_OUT(scan(&s, &p, scanned, reverse));
  } else if (vt_type_elements(call->in[0].type)) {
    int64_t w[VT_MAX_RANK], step[VT_MAX_RANK] = {0};
    if (first_place(&p, w)) do {
        box b;
        if (find_box(&p, w, &b)) VT_TRY_OUT(combine_box(&s, &p, &b));
      } while (next_place(&p, step, w));
  }
  for (uint32_t k = 0; k < inputs; k++)
    VT_TRY_OUT(vt_eval_convert_array(s.fold.types[k], call->out[k].type.dtype, m, s.acc[k],
                                     call->out[k].data));
out:
  state_close(&s);
  return st;
}

// select_and_scatter, first half: which operand element each window keeps. kept[i] is its position,
// -1 for none.
typedef struct choice {
  int64_t *kept;
  char *value, *box_value, *box_new; // the kept elements; dense copies for a box
  int64_t *box_kept, *box_place;
  uint8_t *box_stay;
} choice;

static void choice_close(choice *c) {
  free(c->kept);
  free(c->value);
  free(c->box_value);
  free(c->box_new);
  free(c->box_kept);
  free(c->box_place);
  free(c->box_stay);
}

static vt_status choice_open(int64_t n, int64_t bytes, choice *c) {
  *c = (choice){0};
  VT_TRY(vt_eval_scratch(n * 8, &c->kept));
  VT_TRY(vt_eval_scratch(n * bytes, &c->value));
  VT_TRY(vt_eval_scratch(n * bytes, &c->box_value));
  VT_TRY(vt_eval_scratch(n * bytes, &c->box_new));
  VT_TRY(vt_eval_scratch(n * 8, &c->box_kept));
  VT_TRY(vt_eval_scratch(n * 8, &c->box_place));
  VT_TRY(vt_eval_scratch(n, &c->box_stay));
  for (int64_t i = 0; i < n; i++) c->kept[i] = -1;
  return VT_OK;
}

static vt_status choose_box(const vt_eval_call *call, const window_plan *p, const box *b,
                            vt_region *select, choice *c) {
  size_t bytes = vt_dtype_bytes(call->in[0].type.dtype);
  int64_t dense[VT_MAX_RANK], at[VT_MAX_RANK] = {0};
  vt_type_strides((vt_type){VT_PRED, p->rank, b->dims}, dense);
  vt_eval_move(bytes, p->rank, b->dims,
               (const char *)call->in[0].data + b->in_offset * (int64_t)bytes, b->in_strides,
               c->box_new, dense);
  vt_eval_move(bytes, p->rank, b->dims, c->value + b->out_offset * (int64_t)bytes, b->out_strides,
               c->box_value, dense);
  vt_eval_move(8, p->rank, b->dims, c->kept + b->out_offset, b->out_strides, c->box_kept, dense);
  const void *args[2] = {c->box_value, c->box_new};
  void *stay = c->box_stay;
  VT_TRY(vt_region_run(select, b->n, args, &stay));
  int64_t i = 0;
  do {
    int64_t place = b->in_offset;
    for (int32_t d = 0; d < p->rank; d++) place += at[d] * b->in_strides[d];
    if (c->box_kept[i] < 0 || !c->box_stay[i]) {
      c->box_kept[i] = place;
      memcpy(c->box_value + (size_t)i * bytes, c->box_new + (size_t)i * bytes, bytes);
    }
    i++;
  } while (vt_eval_next(p->rank, b->dims, at));
  vt_eval_move(bytes, p->rank, b->dims, c->box_value, dense,
               c->value + b->out_offset * (int64_t)bytes, b->out_strides);
  vt_eval_move(8, p->rank, b->dims, c->box_kept, dense, c->kept + b->out_offset, b->out_strides);
  return VT_OK;
}

vt_status vt_eval_select_and_scatter(const vt_eval_call *call) {
  vt_tensor in = call->in[0], source = call->in[1], init = call->in[2], *out = &call->out[0];
  window_plan p;
  vt_region select = {0};
  vt_fold fold = {0};
  choice c = {0};
  VT_TRY(plan_window(call->op, in.type, source.type, &p));
  int64_t n = vt_type_elements(out->type), m = vt_type_elements(source.type);
  size_t bytes = vt_dtype_bytes(out->type.dtype), wide;
  if (!n) return VT_OK;
  vt_status st = vt_fold_open(call, call->op->regions[1], 1, 1, &fold);
  if (st) return st;
  char *sums = NULL, *adds = NULL, element[16];
  wide = vt_dtype_bytes(fold.types[0]);
  VT_TRY_OUT(vt_region_open(call, call->op->regions[0], m, &select));
  VT_TRY_OUT(choice_open(m, (int64_t)bytes, &c));
  VT_TRY_OUT(vt_eval_scratch(n * (int64_t)wide, &sums));
  VT_TRY_OUT(vt_eval_scratch(m * (int64_t)wide, &adds));
  VT_TRY_OUT(vt_eval_convert_array(source.type.dtype, fold.types[0], m, source.data, adds));
  VT_TRY_OUT(vt_eval_convert_array(init.type.dtype, fold.types[0], 1, init.data, element));
  vt_eval_fill(wide, n, element, sums);
  int64_t w[VT_MAX_RANK], step[VT_MAX_RANK] = {0};
  if (m && first_place(&p, w)) do {
      box b;
      if (find_box(&p, w, &b)) VT_TRY_OUT(choose_box(call, &p, &b, &select, &c));
    } while (next_place(&p, step, w));
  for (int64_t i = 0; i < m; i++) {
    if (c.kept[i] < 0) continue;
    void *acc = sums + (size_t)c.kept[i] * wide, *x = adds + (size_t)i * wide;
    VT_TRY_OUT(vt_fold_combine(&fold, 1, &acc, &x, &acc));
  }
  VT_TRY_OUT(vt_eval_convert_array(fold.types[0], out->type.dtype, n, sums, out->data));
out:
  free(sums);
  free(adds);
  choice_close(&c);
  vt_region_close(&select);
  vt_fold_close(&fold);
  return st;
}
