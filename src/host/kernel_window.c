// SPDX-License-Identifier: Apache-2.0
// kernel_window.c - reduce_window and select_and_scatter: pooling, its gradient, and running sums.
// Trailing dimensions without windows (the channels of NHWC) are one run, processed by vectors;
// windows over the last dimensions are those of planes (kernel_planes.c); a window that reaches
// back to the start of its dimension (how cumsum is lowered) is a scan in linear time.
#include <omp.h>
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_move.h"
#include "host/kernel_planes.h"
#include "host/nest.h"
#include "ir/number.h"
#include "passes/rewrite.h"

// Elements of a run processed at once; fewer than NARROW do not use vectors.
enum { RUN = 256, NARROW = 16 };

typedef struct window_plan {
  int32_t rank; // outer dimensions; the run comes after them
  int64_t run;  // elements
  vt_reducer reducer;
  vt_dtype dtype;
  int64_t in_dims[VT_MAX_RANK], out_dims[VT_MAX_RANK];
  int64_t size[VT_MAX_RANK], stride[VT_MAX_RANK], low[VT_MAX_RANK];
  int64_t in_strides[VT_MAX_RANK], out_strides[VT_MAX_RANK]; // elements
  int64_t in_elements, out_elements;
  int64_t window_elements;
  const int64_t *offsets; // of each window element after the first, in input elements
  bool disjoint;          // no input element lies in two windows
  bool covers;            // and each lies in one
  int64_t parts;          // of a gradient: ranges of the outermost dimension, for its threads
  int32_t threads;
  int32_t scan_dim; // -1 = none
  bool scan_reverse;
} window_plan;

// The window of output position `item`: its first element's place, and whether all of it is inside.
typedef struct window_at {
  int64_t low[VT_MAX_RANK]; // input coordinates of the first element, possibly outside
  int64_t place;
  bool inside;
} window_at;

static window_at locate(const window_plan *p, int64_t item) {
  window_at w = {.inside = true};
  for (int32_t i = p->rank - 1; i >= 0; i--) {
    w.low[i] = item % p->out_dims[i] * p->stride[i] - p->low[i];
    item /= p->out_dims[i];
    w.inside &= w.low[i] >= 0 && w.low[i] + p->size[i] <= p->in_dims[i];
    w.place += w.low[i] * p->in_strides[i];
  }
  return w;
}

// The place of window element `k`; -1 when it is padding.
static int64_t window_place(const window_plan *p, const window_at *w, int64_t k) {
  int64_t place = w->place + p->offsets[k];
  if (w->inside) return place;
  for (int32_t i = p->rank - 1; i >= 0; i--) {
    int64_t x = w->low[i] + k % p->size[i];
    k /= p->size[i];
    if (x < 0 || x >= p->in_dims[i]) return -1;
  }
  return place;
}

// The positions of one line (all but the last window dimension fixed) whose windows lie inside:
// [lo, hi).
static void inside_span(const window_plan *p, const window_at *first, int64_t *lo, int64_t *hi) {
  int32_t last = p->rank - 1;
  *lo = *hi = 0;
  for (int32_t i = 0; i < last; i++)
    if (first->low[i] < 0 || first->low[i] + p->size[i] > p->in_dims[i]) return;
  int64_t low = first->low[last], room = p->in_dims[last] - p->size[last] - low;
  if (room < 0) return;
  *lo = low < 0 ? (-low + p->stride[last] - 1) / p->stride[last] : 0;
  *hi = room / p->stride[last] + 1;
  if (*hi > p->out_dims[last]) *hi = p->out_dims[last];
  if (*lo > *hi) *lo = *hi;
}

#define EACH(expression)                                                                           \
  for (int64_t i = 0; i < n; i++) a[i] = (expression);                                             \
  return
#define FOLD(linkage, name, type, is_nan)                                                          \
  VT_ANY_CPU linkage void name(vt_reducer reducer, type *restrict a, const type *restrict b,       \
                               int64_t n) {                                                        \
    switch (reducer) {                                                                             \
    case VT_REDUCE_ADD:                                                                            \
      EACH((type)(a[i] + b[i]));                                                                   \
    case VT_REDUCE_MUL:                                                                            \
      EACH((type)(a[i] * b[i]));                                                                   \
    case VT_REDUCE_MAX:                                                                            \
      EACH(a[i] > b[i] || is_nan(a[i]) ? a[i] : b[i]);                                             \
    default:                                                                                       \
      EACH(a[i] < b[i] || is_nan(a[i]) ? a[i] : b[i]);                                             \
    }                                                                                              \
  }
#define FLOAT_NAN(x) ((x) != (x))
#define NEVER(x)     0
FOLD(, vt_window_fold, float, FLOAT_NAN)
FOLD(static, fold_u32, uint32_t, NEVER)
FOLD(static, fold_s32_order, int32_t, NEVER)

// Signed sums wrap: computed in unsigned types, as C requires.
static void fold(const window_plan *p, void *a, const void *b, int64_t n) {
  if (p->dtype == VT_F32)
    vt_window_fold(p->reducer, a, b, n);
  else if (p->dtype == VT_S32 && p->reducer >= VT_REDUCE_MAX)
    fold_s32_order(p->reducer, a, b, n);
  else
    fold_u32(p->reducer, a, b, n);
}

static void fill_run(uint32_t *a, const void *value, int64_t n) {
  uint32_t x;
  memcpy(&x, value, 4);
  for (int64_t i = 0; i < n; i++) a[i] = x;
}

// Maxima or sums of `count` windows that lie inside, `step` elements apart. The innermost loops
// have no fixed length: GCC would unroll those before vectorising.
VT_ANY_CPU static void window_line(const window_plan *p, float *restrict out,
                                   const float *restrict in, int64_t count, int64_t step,
                                   float start) {
  int64_t run = p->run;
  bool max = p->reducer == VT_REDUCE_MAX;
  for (int64_t j = 0; j < count; j++, out += run, in += step) {
    for (int64_t c = 0; c < run; c++) out[c] = start;
    for (int64_t k = 0; k < p->window_elements; k++) {
      const float *x = in + p->offsets[k];
      if (max) {
        for (int64_t c = 0; c < run; c++)
          out[c] = out[c] > x[c] || out[c] != out[c] ? out[c] : x[c];
      } else {
        for (int64_t c = 0; c < run; c++) out[c] += x[c];
      }
    }
  }
}

VT_ANY_CPU void vt_window_widen(float *restrict to, const uint16_t *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = vt_f32_from_bf16(from[i]);
}

VT_ANY_CPU void vt_window_narrow(uint16_t *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = vt_bf16_from_f32(from[i]);
}

// A number of bf16 as an integer in the same order; NaN goes before all, which the sign says.
static inline int16_t order_of(uint16_t x, bool max) {
  int16_t s = (int16_t)x, order = s ^ ((s >> 15) & 0x7fff);
  return (s & 0x7fff) > 0x7f80 ? (max ? INT16_MAX : INT16_MIN) : order;
}

static inline uint16_t number_of(int16_t order) {
  return (uint16_t)(order ^ ((order >> 15) & 0x7fff));
}

#define PICK(better)                                                                               \
  for (int64_t c = 0; c < run; c++) {                                                              \
    int16_t order = order_of(x[c], max);                                                           \
    all[c] = all[c] better order ? all[c] : order;                                                 \
  }
VT_ANY_CPU static void order_line(const window_plan *p, uint16_t *restrict out,
                                  const uint16_t *restrict in, int64_t count, int64_t step,
                                  uint16_t start) {
  int64_t run = p->run;
  int16_t all[RUN];
  bool max = p->reducer == VT_REDUCE_MAX;
  for (int64_t j = 0; j < count; j++, out += run, in += step) {
    for (int64_t c = 0; c < run; c++) all[c] = order_of(start, max);
    for (int64_t k = 0; k < p->window_elements; k++) {
      const uint16_t *x = in + p->offsets[k];
      if (max)
        PICK(>)
      else
        PICK(<)
    }
    for (int64_t c = 0; c < run; c++) out[c] = number_of(all[c]);
  }
}

// Of bf16, which is rounded when all of the window is in.
static void narrow_position(const vt_native_call *call, const window_plan *p, int64_t item) {
  const uint16_t *in = call->operands[0];
  window_at w = locate(p, item);
  for (int64_t c = 0; c < p->run; c += RUN) {
    float all[RUN], part[RUN];
    int64_t n = p->run - c < RUN ? p->run - c : RUN;
    float start = vt_f32_from_bf16(*(const uint16_t *)call->operands[1]);
    for (int64_t i = 0; i < n; i++) all[i] = start;
    for (int64_t k = 0; k < p->window_elements; k++) {
      int64_t place = window_place(p, &w, k);
      if (place < 0) continue;
      vt_window_widen(part, in + place + c, n);
      vt_window_fold(p->reducer, all, part, n);
    }
    vt_window_narrow((uint16_t *)call->outputs[0] + item * p->run + c, all, n);
  }
}

static void window_position(const vt_native_call *call, const window_plan *p, int64_t item) {
  if (p->dtype == VT_BF16) {
    narrow_position(call, p, item);
    return;
  }
  const uint32_t *in = call->operands[0];
  window_at w = locate(p, item);
  for (int64_t c = 0; c < p->run; c += RUN) {
    int64_t n = p->run - c < RUN ? p->run - c : RUN;
    uint32_t *to = (uint32_t *)call->outputs[0] + item * p->run + c;
    fill_run(to, call->operands[1], n);
    for (int64_t k = 0; k < p->window_elements; k++) {
      int64_t place = window_place(p, &w, k);
      if (place >= 0) fold(p, to, in + place + c, n);
    }
  }
}

static void run_window(const vt_native_call *call) {
  const window_plan *p = call->native->plan;
  int64_t length = p->rank ? p->out_dims[p->rank - 1] : 1,
          lines = p->out_elements / p->run / length;
  bool orders = p->reducer == VT_REDUCE_MAX || p->reducer == VT_REDUCE_MIN;
  bool f32 = p->dtype == VT_F32 && (p->reducer == VT_REDUCE_MAX || p->reducer == VT_REDUCE_ADD);
  bool lines_ok = p->rank && p->run <= RUN && (f32 || (p->dtype == VT_BF16 && orders));
#pragma omp parallel for schedule(                                                                 \
        dynamic, vt_host_share(lines)) if (p->out_elements * p->window_elements > (32 << 10))
  for (int64_t line = 0; line < lines; line++) {
    int64_t lo = 0, hi = 0, first = line * length;
    if (lines_ok) {
      window_at w = locate(p, first);
      inside_span(p, &w, &lo, &hi);
      int64_t step = p->stride[p->rank - 1] * p->in_strides[p->rank - 1];
      int64_t to = (first + lo) * p->run, from = w.place + lo * step;
      const void *start = call->operands[1];
      if (f32)
        window_line(p, (float *)call->outputs[0] + to, (const float *)call->operands[0] + from,
                    hi - lo, step, *(const float *)start);
      else
        order_line(p, (uint16_t *)call->outputs[0] + to, (const uint16_t *)call->operands[0] + from,
                   hi - lo, step, *(const uint16_t *)start);
    }
    for (int64_t j = 0; j < lo; j++) window_position(call, p, first + j);
    for (int64_t j = hi; j < length; j++) window_position(call, p, first + j);
  }
}

// Running values of one line, which stay in a register: out[i] = start op in[0] op .. op in[i].
#define SAME(x) (x)
#define ALONG(from, to, expression)                                                                \
  for (int64_t i = 0; i < n; i++) {                                                                \
    x = from(in[i * step]);                                                                        \
    a = (expression);                                                                              \
    out[i * step] = to(a);                                                                         \
  }                                                                                                \
  return
#define SCAN(name, type, element, from, to, is_nan)                                                \
  static void name(vt_reducer reducer, element start, const element *in, element *out, int64_t n,  \
                   int64_t step) {                                                                 \
    type a = from(start), x;                                                                       \
    switch (reducer) {                                                                             \
    case VT_REDUCE_ADD:                                                                            \
      ALONG(from, to, (type)(a + x));                                                              \
    case VT_REDUCE_MUL:                                                                            \
      ALONG(from, to, (type)(a * x));                                                              \
    case VT_REDUCE_MAX:                                                                            \
      ALONG(from, to, a > x || is_nan(a) ? a : x);                                                 \
    default:                                                                                       \
      ALONG(from, to, a < x || is_nan(a) ? a : x);                                                 \
    }                                                                                              \
  }
SCAN(scan_f32, float, float, SAME, SAME, FLOAT_NAN)
SCAN(scan_bf16, float, uint16_t, vt_f32_from_bf16, vt_bf16_from_f32, FLOAT_NAN)
SCAN(scan_u32, uint32_t, uint32_t, SAME, SAME, NEVER)
SCAN(scan_s32_order, int32_t, int32_t, SAME, SAME, NEVER)

// One line, `step` elements from one to the next, negative from its end.
static void scan_line(const window_plan *p, const void *start, const void *in, void *out, int64_t n,
                      int64_t step) {
  switch (p->dtype) {
  case VT_F32:
    scan_f32(p->reducer, *(const float *)start, in, out, n, step);
    return;
  case VT_C64: // sums: of the real parts, of the imaginary ones
    for (int part = 0; part < 2; part++)
      scan_f32(p->reducer, ((const float *)start)[part], (const float *)in + part,
               (float *)out + part, n, 2 * step);
    return;
  case VT_BF16:
    scan_bf16(p->reducer, *(const uint16_t *)start, in, out, n, step);
    return;
  case VT_S32:
    if (p->reducer >= VT_REDUCE_MAX) {
      scan_s32_order(p->reducer, *(const int32_t *)start, in, out, n, step);
      return;
    } // fall through
  default:
    scan_u32(p->reducer, *(const uint32_t *)start, in, out, n, step);
  }
}

// `width` lines that lie next to each other, row by row.
static void scan_rows(const window_plan *p, const void *start, const uint32_t *in, uint32_t *out,
                      int64_t n, int64_t step, int64_t width) {
  fill_run(out, start, width);
  fold(p, out, in, width);
  for (int64_t i = 1; i < n; i++) {
    in += step, out += step;
    memcpy(out, out - step, (size_t)width * 4);
    fold(p, out, in, width);
  }
}

// out[i] = out[i - 1] op in[i] along one dimension, from either end. Threads share the lines; each
// line is one chain, in order: results are bit-identical for any number of threads.
static void run_scan(const vt_native_call *call) {
  const window_plan *p = call->native->plan;
  int64_t length = p->in_dims[p->scan_dim], inner = p->in_strides[p->scan_dim];
  int64_t width = inner < NARROW ? 1 : inner < RUN ? inner : RUN;
  int64_t across = (inner + width - 1) / width, items = p->in_elements / (length * inner) * across;
#pragma omp parallel for schedule(                                                                 \
        dynamic, vt_host_share(items)) if (items > 1 && p->in_elements > (32 << 10))
  for (int64_t i = 0; i < items; i++) {
    int64_t column = i % across * width, step = p->scan_reverse ? -inner : inner;
    int64_t first = i / across * length * inner + column;
    if (p->scan_reverse) first += (length - 1) * inner;
    int64_t at = first * (int64_t)vt_dtype_bytes(p->dtype);
    const void *in = (const char *)call->operands[0] + at;
    void *out = (char *)call->outputs[0] + at;
    if (width == 1)
      scan_line(p, call->operands[1], in, out, length, step);
    else
      scan_rows(p, call->operands[1], in, out, length, step,
                inner - column < width ? inner - column : width);
  }
}

// ---- Gradient of a maximum pool: each source element is added where its window has its maximum
// (the first one).

VT_ANY_CPU void vt_window_pick(float *restrict best, int32_t *restrict which,
                               const float *restrict x, int32_t k, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    bool keep = best[i] >= x[i];
    which[i] = keep ? which[i] : k;
    best[i] = keep ? best[i] : x[i];
  }
}

VT_ANY_CPU void vt_window_add_where(float *restrict out, const float *restrict source,
                                    const int32_t *restrict which, int32_t k, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = which[i] == k ? out[i] + source[i] : out[i];
}

VT_ANY_CPU static void store_where(float *restrict out, const float *restrict source,
                                   const int32_t *restrict which, int32_t k, float start,
                                   int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = which[i] == k ? start + source[i] : start;
}

static void scatter_position(const window_plan *p, const float *x, const float *source, float start,
                             float *out, int64_t item) {
  window_at w = locate(p, item);
  for (int64_t c = 0; c < p->run; c += RUN) {
    float best[RUN];
    int32_t which[RUN];
    int64_t n = p->run - c < RUN ? p->run - c : RUN;
    bool first = true;
    for (int64_t k = 0; k < p->window_elements; k++) {
      int64_t place = window_place(p, &w, k);
      if (place < 0) continue;
      if (!first) {
        vt_window_pick(best, which, x + place + c, (int32_t)k, n);
        continue;
      }
      memcpy(best, x + place + c, (size_t)n * sizeof *best);
      for (int64_t i = 0; i < n; i++) which[i] = (int32_t)k;
      first = false;
    }
    for (int64_t k = 0; k < p->window_elements; k++) {
      int64_t place = window_place(p, &w, k);
      if (place < 0) continue;
      if (p->disjoint)
        store_where(out + place + c, source + item * p->run + c, which, (int32_t)k, start, n);
      else
        vt_window_add_where(out + place + c, source + item * p->run + c, which, (int32_t)k, n);
    }
  }
}

// `count` windows that lie inside, `step` elements apart.
static void scatter_line(const window_plan *p, const float *in, const float *source, float start,
                         float *out, int64_t count, int64_t step) {
  float best[RUN];
  int32_t which[RUN];
  int64_t run = p->run;
  for (int64_t j = 0; j < count; j++, in += step, out += step, source += run) {
    memcpy(best, in + p->offsets[0], (size_t)run * sizeof *best);
    memset(which, 0, (size_t)run * sizeof *which);
    for (int64_t k = 1; k < p->window_elements; k++)
      vt_window_pick(best, which, in + p->offsets[k], (int32_t)k, run);
    for (int64_t k = 0; k < p->window_elements; k++) {
      if (p->disjoint)
        store_where(out + p->offsets[k], source, which, (int32_t)k, start, run);
      else
        vt_window_add_where(out + p->offsets[k], source, which, (int32_t)k, run);
    }
  }
}

// Of one part, whose arrays begin at these places.
static void scatter_part(const window_plan *p, const float *x, const float *source, float start,
                         float *out) {
  int64_t length = p->rank ? p->out_dims[p->rank - 1] : 1;
  int64_t lines = p->out_elements / p->run / p->parts / length;
  bool lines_ok = p->rank && p->run <= RUN;
  if (!p->covers) fill_run((uint32_t *)out, &start, p->in_elements / p->parts);
  for (int64_t line = 0; line < lines; line++) {
    int64_t lo = 0, hi = 0, first = line * length;
    window_at w = locate(p, first);
    if (lines_ok) inside_span(p, &w, &lo, &hi);
    for (int64_t j = 0; j < lo; j++)
      scatter_position(p, x, source, start, out, first + j); // in order: windows overlap
    if (lines_ok) {
      int64_t step = p->stride[p->rank - 1] * p->in_strides[p->rank - 1],
              place = w.place + lo * step;
      scatter_line(p, x + place, source + (first + lo) * p->run, start, out + place, hi - lo, step);
    }
    for (int64_t j = hi; j < length; j++) scatter_position(p, x, source, start, out, first + j);
  }
}

// In f32; sums are rounded when all is in.
static void scatter_part_bf16(const window_plan *p, const uint16_t *x, const uint16_t *source,
                              float start, uint16_t *out, float *room) {
  int64_t elements = p->in_elements / p->parts, windows = p->out_elements / p->parts;
  float *wide_source = room + elements, *wide_out = wide_source + windows;
  vt_window_widen(room, x, elements);
  vt_window_widen(wide_source, source, windows);
  scatter_part(p, room, wide_source, start, wide_out);
  vt_window_narrow(out, wide_out, elements);
}

static int64_t part_floats(const window_plan *p) {
  return (2 * p->in_elements + p->out_elements) / p->parts;
}

static void run_scatter(const vt_native_call *call) {
  const window_plan *p = call->native->plan;
  int64_t elements = p->in_elements / p->parts, windows = p->out_elements / p->parts;
  bool shared = p->in_elements > (16 << 10) && p->parts > 1;
#pragma omp parallel for num_threads(p->threads) if (shared)                                       \
    schedule(dynamic, vt_host_share(p->parts))
  for (int64_t part = 0; part < p->parts; part++) {
    int64_t at = part * elements, from = part * windows;
    if (p->dtype == VT_BF16)
      scatter_part_bf16(
          p, (const uint16_t *)call->operands[0] + at, (const uint16_t *)call->operands[1] + from,
          vt_f32_from_bf16(*(const uint16_t *)call->operands[2]), (uint16_t *)call->outputs[0] + at,
          (float *)call->scratch + omp_get_thread_num() * part_floats(p));
    else
      scatter_part(p, (const float *)call->operands[0] + at,
                   (const float *)call->operands[1] + from, *(const float *)call->operands[2],
                   (float *)call->outputs[0] + at);
  }
}

// ---- Preparing.

// A single scan: stride 1, one window as long as its dimension that looks back (or ahead) over all
// of it.
static void find_scan(window_plan *p, const int64_t *high) {
  p->scan_dim = -1;
  int32_t dim = -1;
  for (int32_t i = 0; i < p->rank; i++) {
    if (p->stride[i] != 1) return;
    if (p->size[i] == 1 && p->low[i] == 0 && high[i] == 0) continue;
    if (dim >= 0) return;
    dim = i;
  }
  if (dim < 0 || p->size[dim] != p->in_dims[dim] || p->size[dim] < 2) return;
  bool back = p->low[dim] == p->size[dim] - 1 && high[dim] == 0;
  bool ahead = high[dim] == p->size[dim] - 1 && p->low[dim] == 0;
  if (!back && !ahead) return;
  p->scan_dim = dim;
  p->scan_reverse = ahead;
}

// Reads the attributes. False: the windows have too many elements for a table of their places (a
// scan needs none).
static bool read_window(const vt_op *op, window_plan *p) {
  enum { MOST_ELEMENTS = 1 << 20 };
  bool scatter = op->code == VT_OP_SELECT_AND_SCATTER;
  vt_type in = op->operands[0]->type, out = scatter ? op->operands[1]->type : op->results[0].type;
  const int64_t *size = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, NULL);
  const int64_t *stride = vt_op_attr(op, VT_ATTR_WINDOW_STRIDES)
                              ? vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, NULL)
                              : NULL;
  const int64_t *padding =
      vt_op_attr(op, VT_ATTR_PADDING) ? vt_attr_ints(op, VT_ATTR_PADDING, NULL) : NULL;
  int64_t high[VT_MAX_RANK] = {0};
  bool fits = true;
  p->dtype = in.dtype;
  p->reducer = scatter ? VT_REDUCE_ADD : vt_reducer_of_body(op->regions[0]);
  p->rank = in.rank;
  p->run = p->window_elements = 1;
  for (int32_t i = 0; i < in.rank; i++) {
    p->in_dims[i] = in.dims[i];
    p->out_dims[i] = out.dims[i];
    p->size[i] = size[i];
    p->stride[i] = stride ? stride[i] : 1;
    p->low[i] = padding ? padding[2 * i] : 0;
    high[i] = padding ? padding[2 * i + 1] : 0;
    fits = fits && size[i] > 0 && size[i] <= MOST_ELEMENTS / p->window_elements;
    if (fits) p->window_elements *= size[i];
  }
  vt_type_strides(in, p->in_strides);
  vt_type_strides(out, p->out_strides);
  p->in_elements = vt_type_elements(in);
  p->out_elements = vt_type_elements(out);
  find_scan(p, high);
  while (p->rank && p->scan_dim < 0) {
    int32_t last = p->rank - 1;
    if (p->size[last] != 1 || p->stride[last] != 1 || p->low[last] || high[last]) break;
    p->run *= in.dims[last];
    p->rank--;
  }
  return fits || (!scatter && p->scan_dim >= 0);
}

// Windows at different outermost positions do not overlap when that dimension's window size is 1.
static void split_gradient(window_plan *p) {
  bool apart = p->rank > 1 && p->size[0] == 1 && p->stride[0] == 1 && p->low[0] == 0 &&
               p->out_dims[0] == p->in_dims[0];
  p->parts = apart ? p->out_dims[0] : 1;
  p->threads = p->parts > 1 ? vt_host_threads() : 1;
}

static int64_t *window_places(vt_arena *arena, const window_plan *p) {
  int64_t *offsets = VT_NEW_ARRAY(arena, int64_t, p->window_elements);
  for (int64_t k = 0; k < p->window_elements; k++) {
    int64_t rest = k;
    for (int32_t i = p->rank - 1; i >= 0; i--) {
      offsets[k] += rest % p->size[i] * p->in_strides[i];
      rest /= p->size[i];
    }
  }
  return offsets;
}

// Windows of rows and columns alone, without channels after them; NULL for others.
static const vt_native *create_planes(vt_arena *arena, const window_plan *p, bool scatter) {
  int32_t outer = p->rank > 2 ? p->rank - 2 : 0;
  bool bf16 = p->dtype == VT_BF16;
  if ((p->dtype != VT_F32 && !bf16) || p->run != 1 || !p->rank || (!scatter && p->scan_dim >= 0))
    return NULL;
  vt_plane_windows w = {.planes = 1, .reducer = p->reducer, .bf16 = bf16};
  for (int32_t i = 0; i < outer; i++) {
    if (p->size[i] != 1 || p->stride[i] != 1 || p->low[i] || p->out_dims[i] != p->in_dims[i])
      return NULL;
    w.planes *= p->in_dims[i];
  }
  for (int d = 0; d < 2; d++) {
    int32_t i = p->rank - 2 + d;
    w.in[d] = i < 0 ? 1 : p->in_dims[i];
    w.out[d] = i < 0 ? 1 : p->out_dims[i];
    w.size[d] = i < 0 ? 1 : p->size[i];
    w.stride[d] = i < 0 ? 1 : p->stride[i];
    w.low[d] = i < 0 ? 0 : p->low[i];
  }
  return vt_planes_create(arena, &w, scatter);
}

const vt_native *vt_window_create(vt_arena *arena, const vt_op *op) {
  window_plan *p = VT_NEW(arena, window_plan);
  bool scatter = op->code == VT_OP_SELECT_AND_SCATTER;
  (void)read_window(op, p); // checked by vt_window_supports
  const vt_native *planes = create_planes(arena, p, scatter);
  if (planes) return planes;
  p->disjoint = p->covers = true;
  for (int32_t i = 0; i < p->rank; i++) {
    p->disjoint &= p->stride[i] >= p->size[i];
    p->covers &= p->stride[i] == p->size[i] && p->low[i] == 0 &&
                 p->out_dims[i] * p->stride[i] == p->in_dims[i];
  }
  if (scatter || p->scan_dim < 0) p->offsets = window_places(arena, p);
  if (scatter) split_gradient(p);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = scatter            ? run_scatter
                               : p->scan_dim >= 0 ? run_scan
                                                  : run_window,
                        .plan = p};
  if (scatter && p->dtype == VT_BF16)
    native->scratch_bytes = p->threads * part_floats(p) * (int64_t)sizeof(float);
  return native;
}

// select is "greater or equal", which keeps the first maximum.
static bool keeps_maximum(const vt_func *body) {
  const vt_op *op = body->returns[0]->op;
  return op && op->code == VT_OP_COMPARE &&
         vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION) == VT_CMP_GE && !op->operands[0]->op &&
         op->operands[0]->index == 0 && !op->operands[1]->op && op->operands[1]->index == 1;
}

bool vt_window_supports(const vt_op *op) {
  bool scatter = op->code == VT_OP_SELECT_AND_SCATTER;
  if ((op->code != VT_OP_REDUCE_WINDOW && !scatter) || op->capture_count) return false;
  vt_type in = op->operands[0]->type;
  if (op->result_count != 1 || vt_type_elements(in) == 0 ||
      vt_type_elements(op->results[0].type) == 0)
    return false;
  // Sums may be of a wider type than what is added up.
  if (op->results[0].type.dtype != in.dtype || op->operands[1]->type.dtype != in.dtype)
    return false;
  if (!vt_ints_are(op, VT_ATTR_BASE_DILATIONS, 1) || !vt_ints_are(op, VT_ATTR_WINDOW_DILATIONS, 1))
    return false;
  window_plan plan = {0};
  if (!read_window(op, &plan)) return false;
  if (scatter)
    return (in.dtype == VT_F32 || in.dtype == VT_BF16) &&
           vt_type_elements(op->operands[1]->type) > 0 && keeps_maximum(op->regions[0]) &&
           vt_reducer_of_body(op->regions[1]) == VT_REDUCE_ADD;
  vt_reducer reducer = vt_reducer_of_body(op->regions[0]);
  if (op->operand_count != 2 || reducer < VT_REDUCE_ADD || reducer > VT_REDUCE_MIN) return false;
  bool line = plan.scan_dim >= 0 && plan.in_strides[plan.scan_dim] < NARROW;
  if (line && (in.dtype == VT_BF16 || (in.dtype == VT_C64 && reducer == VT_REDUCE_ADD)))
    return true;
  if (in.dtype == VT_BF16) return plan.scan_dim < 0;
  return in.dtype == VT_F32 || in.dtype == VT_S32 || in.dtype == VT_U32;
}
