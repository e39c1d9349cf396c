// SPDX-License-Identifier: Apache-2.0
// kernel_fft.c - the op fft: one step per transformed dimension, each over groups of lines in
// parallel; long lines, or lines that are few, are split into a matrix, whose columns and rows are
// such groups.
#include <omp.h>
#include <string.h>

#include "host/fft.h"
#include "host/kernel_move.h"

// Lines from this length on are split when there are fewer of them than half the lanes.
enum { FEW_LINES_POINTS = 512 };
static const int64_t PARALLEL_POINTS = 8 << 10;

typedef enum place { PLACE_IN, PLACE_OUT, PLACE_BETWEEN } place;

typedef struct fft_step {
  const vt_fft *plan;
  vt_fft_kind kind;
  bool inverse, split;
  place from, to;
  int64_t outer, inner;                           // lines: inner ones are next to each other
  int64_t in_outer, out_outer, in_step, out_step; // distances in real numbers
  const void *half_roots;
  double scale;
} fft_step;

typedef struct fft_plan {
  const vt_fft_code *code;
  bool wide;
  int32_t threads, step_count;
  fft_step steps[VT_MAX_RANK];
  // Of the scratch: per thread; two split lines; an array between the dimensions.
  int64_t thread_bytes, line_bytes, between_bytes;
} fft_plan;

static int64_t real_bytes(const fft_plan *plan) {
  return plan->wide ? 8 : 4;
}

static int64_t round_up(int64_t x) {
  return (x + 127) / 64 * 64;
}

// ---- Running.

typedef struct fft_run {
  const fft_plan *plan;
  char *thread_scratch;
  void *lines[2];
} fft_run;

static void run_group(const fft_run *run, const vt_fft_group *group) {
  int64_t at = omp_get_thread_num() * run->plan->thread_bytes;
  run->plan->code->run(group, run->thread_scratch + at);
}

static int team_of(const fft_plan *plan, int64_t points) {
  int most = omp_get_max_threads();
  if (points < PARALLEL_POINTS) return 1;
  return most < plan->threads ? most : plan->threads;
}

static vt_fft_group group_of(const fft_step *step, const void *in, void *out) {
  return (vt_fft_group){.plan = step->plan,
                        .kind = step->kind,
                        .inverse = step->inverse,
                        .in = in,
                        .out = out,
                        .in_step = step->in_step,
                        .out_step = step->out_step,
                        .half_roots = step->half_roots,
                        .scale = step->scale};
}

// Groups of inner lines if those fill a group, else of any lines.
static void run_lines(const fft_run *run, const fft_step *step, const void *in, void *out) {
  int64_t lanes = run->plan->code->lanes, total = step->outer * step->inner;
  bool by_row = step->inner >= lanes;
  int64_t row = by_row ? step->inner : total, per_row = (row + lanes - 1) / lanes;
  int64_t groups = total / row * per_row;
  int team = groups > 1 ? team_of(run->plan, total * step->plan->n) : 1;
#pragma omp parallel for schedule(dynamic, 1 + groups / 64) num_threads(team) if (team > 1)
  for (int64_t i = 0; i < groups; i++) {
    vt_fft_group g = group_of(step, in, out);
    int64_t first = i / per_row * row + i % per_row * lanes, end = (i / per_row + 1) * row;
    g.lines = (int32_t)(end - first < lanes ? end - first : lanes);
    int64_t outer = first / step->inner, inner = first % step->inner;
    for (int32_t l = 0; l < g.lines; l++) {
      g.in_at[l] = outer * step->in_outer + 2 * inner;
      g.out_at[l] = outer * step->out_outer + 2 * inner;
      if (++inner == step->inner) inner = 0, outer++;
    }
    run_group(run, &g);
  }
}

// Transforms along one side of a split line's matrix.
static void run_side(const fft_run *run, const vt_fft *p, bool columns, bool inverse,
                     const void *in, void *out) {
  int64_t lanes = run->plan->code->lanes, n1 = p->columns->n, n2 = p->rows->n;
  int64_t lines = columns ? n2 : n1, groups = (lines + lanes - 1) / lanes;
  int team = team_of(run->plan, p->n);
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
  for (int64_t i = 0; i < groups; i++) {
    int64_t first = i * lanes;
    vt_fft_group g = {.plan = columns ? p->columns : p->rows, .inverse = inverse, .in = in};
    g.out = out;
    g.scale = 1;
    g.lines = (int32_t)(lines - first < lanes ? lines - first : lanes);
    g.in_step = columns ? 2 * n2 : 2;
    g.out_step = columns ? 2 * n2 : 2 * n1;
    for (int32_t l = 0; l < g.lines; l++) {
      g.in_at[l] = 2 * (first + l) * (columns ? 1 : n2);
      g.out_at[l] = 2 * (first + l);
    }
    if (columns) {
      g.turns = (const char *)p->turns + 2 * first * real_bytes(run->plan);
      g.turns_step = n2;
    }
    run_group(run, &g);
  }
}

// Transforms the first of the run's two lines; the second is scratch.
static void run_split(const fft_run *run, const vt_fft *p, bool inverse) {
  run_side(run, p, true, inverse, run->lines[0], run->lines[1]);
  run_side(run, p, false, inverse, run->lines[1], run->lines[0]);
}

// The same by Bluestein's algorithm; the inverse is a forward transform of conjugates.
static void run_bluestein(const fft_run *run, const vt_fft *p, bool inverse) {
  const vt_fft_code *code = run->plan->code;
  char *line = run->lines[0];
  int64_t m = p->inner->n, bytes = 2 * real_bytes(run->plan);
  code->multiply(p->n, line, p->chirp, inverse, false);
  memset(line + p->n * bytes, 0, (size_t)((m - p->n) * bytes));
  run_split(run, p->inner, false);
  code->multiply(m, line, p->kernel, false, true);
  run_split(run, p->inner, false);
  code->multiply(p->n, line, p->chirp, true, inverse);
}

static void run_long_lines(const fft_run *run, const fft_step *step, const void *in, void *out) {
  const vt_fft_code *code = run->plan->code;
  for (int64_t i = 0; i < step->outer * step->inner; i++) {
    vt_fft_group g = group_of(step, in, out);
    g.in_at[0] = i / step->inner * step->in_outer + 2 * (i % step->inner);
    g.out_at[0] = i / step->inner * step->out_outer + 2 * (i % step->inner);
    code->load(&g, step->plan->n, run->lines[0]);
    if (step->plan->inner)
      run_bluestein(run, step->plan, step->inverse);
    else
      run_split(run, step->plan, step->inverse);
    code->store(&g, step->plan->n, run->lines[0]);
  }
}

static void run_fft(const vt_native_call *call) {
  const fft_plan *plan = call->native->plan;
  char *scratch = call->scratch;
  fft_run run = {.plan = plan, .thread_scratch = scratch};
  scratch += plan->thread_bytes * plan->threads;
  for (int i = 0; i < 2; i++, scratch += plan->line_bytes) run.lines[i] = scratch;
  void *places[] = {call->operands[0], call->outputs[0], scratch};
  for (int32_t i = 0; i < plan->step_count; i++) {
    const fft_step *step = &plan->steps[i];
    (step->split ? run_long_lines : run_lines)(&run, step, places[step->from], places[step->to]);
  }
}

// ---- Making.

static int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static void plan_line(vt_arena *arena, fft_plan *plan, fft_step *step, int64_t n) {
  int64_t lines = step->outer * step->inner;
  bool few = 2 * lines <= plan->code->lanes && n >= FEW_LINES_POINTS;
  const vt_fft *p = vt_fft_make(arena, n, plan->wide, few || n > vt_fft_short(plan->wide));
  const vt_fft *matrix = p->inner ? p->inner : p;
  step->plan = p;
  step->split = matrix->columns != NULL;
  int64_t bytes = step->split ? max64(vt_fft_scratch(matrix->columns), vt_fft_scratch(matrix->rows))
                              : vt_fft_scratch(p);
  plan->thread_bytes = max64(plan->thread_bytes, bytes);
  if (step->split)
    plan->line_bytes = max64(plan->line_bytes, round_up(matrix->n * 2 * real_bytes(plan)));
}

// A dimension of complex numbers in an array of sizes `dims`.
static void add_complex(vt_arena *arena, fft_plan *plan, int32_t rank, const int64_t *dims,
                        int32_t d, bool inverse, place from, place to) {
  fft_step *step = &plan->steps[plan->step_count++];
  *step = (fft_step){.inverse = inverse, .from = from, .to = to, .outer = 1, .inner = 1};
  for (int32_t i = 0; i < rank; i++) {
    if (i < d) step->outer *= dims[i];
    if (i > d) step->inner *= dims[i];
  }
  step->in_step = step->out_step = 2 * step->inner;
  step->in_outer = step->out_outer = 2 * step->inner * dims[d];
  step->scale = inverse ? 1 / (double)dims[d] : 1;
  plan_line(arena, plan, step, dims[d]);
}

// The last dimension, with lines of n real numbers on one side.
static void add_real(vt_arena *arena, fft_plan *plan, int64_t lines, int64_t n, bool inverse,
                     place from) {
  fft_step *step = &plan->steps[plan->step_count++];
  bool even = n % 2 == 0;
  int64_t spectrum = 2 * (n / 2 + 1), points = even ? n / 2 : n;
  *step = (fft_step){.inverse = inverse, .from = from, .to = PLACE_OUT, .outer = lines, .inner = 1};
  step->kind = inverse ? (even ? VT_FFT_JOIN : VT_FFT_ODD) : (even ? VT_FFT_HALVE : VT_FFT_REAL);
  step->in_outer = inverse ? spectrum : n;
  step->out_outer = inverse ? n : spectrum;
  step->in_step = step->out_step = 2; // pairs of real numbers are treated as complex ones
  step->scale = inverse ? 1 / (double)n : 1;
  if (even) step->half_roots = vt_fft_roots(arena, n, points + 1, plan->wide);
  plan_line(arena, plan, step, points);
}

static void plan_steps(vt_arena *arena, fft_plan *plan, const vt_op *op) {
  vt_type in = op->operands[0]->type, out = op->results[0].type;
  int64_t kind = vt_attr_i64(op, VT_ATTR_FFT_TYPE);
  uint32_t count;
  const int64_t *length = vt_attr_ints(op, VT_ATTR_FFT_LENGTH, &count);
  int32_t last = in.rank - 1, first = in.rank - (int32_t)count;
  int64_t n = length[count - 1];
  bool inverse = kind == VT_FFT_IFFT || kind == VT_FFT_IRFFT;
  if (kind == VT_FFT_IRFFT) { // the others first, on the half spectrum
    place from = PLACE_IN;
    for (int32_t d = first; d < last; d++, from = PLACE_BETWEEN) {
      add_complex(arena, plan, in.rank, in.dims, d, true, from, PLACE_BETWEEN);
      plan->between_bytes = round_up(vt_type_bytes(in));
    }
    add_real(arena, plan, vt_type_elements(out) / n, n, true, from);
    return;
  }
  if (kind == VT_FFT_RFFT)
    add_real(arena, plan, vt_type_elements(in) / n, n, false, PLACE_IN);
  else
    add_complex(arena, plan, in.rank, in.dims, last, inverse, PLACE_IN, PLACE_OUT);
  for (int32_t d = first; d < last; d++)
    if (out.dims[d] > 1)
      add_complex(arena, plan, out.rank, out.dims, d, inverse, PLACE_OUT, PLACE_OUT);
}

const vt_native *vt_fft_create(vt_arena *arena, const vt_op *op) {
  fft_plan *plan = VT_NEW(arena, fft_plan);
  vt_dtype dtype = op->results[0].type.dtype;
  *plan = (fft_plan){.wide = dtype == VT_F64 || dtype == VT_C128};
  plan->code = vt_fft_code_of(plan->wide);
  plan->threads = omp_get_max_threads();
  plan_steps(arena, plan, op);
  plan->thread_bytes = round_up(plan->thread_bytes);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_fft, .plan = plan};
  native->scratch_bytes =
      plan->threads * plan->thread_bytes + 2 * plan->line_bytes + plan->between_bytes;
  return native;
}

// The shapes that the evaluator accepts, with lengths worth building tables for.
bool vt_fft_supports(const vt_op *op) {
  enum { MOST_LENGTH = 1 << 26 };
  if (op->code != VT_OP_FFT) return false;
  vt_type in = op->operands[0]->type, out = op->results[0].type;
  int64_t kind = vt_attr_i64(op, VT_ATTR_FFT_TYPE);
  uint32_t count;
  const int64_t *length = vt_attr_ints(op, VT_ATTR_FFT_LENGTH, &count);
  if (count < 1 || (int64_t)count > in.rank || in.rank != out.rank || !vt_type_elements(in) ||
      !vt_type_elements(out))
    return false;
  vt_dtype narrow = out.dtype == VT_F32 || out.dtype == VT_C64 ? VT_C64 : VT_C128;
  vt_dtype real = narrow == VT_C64 ? VT_F32 : VT_F64;
  if (in.dtype != (kind == VT_FFT_RFFT ? real : narrow) ||
      out.dtype != (kind == VT_FFT_IRFFT ? real : narrow))
    return false;
  for (int32_t d = 0; d < in.rank; d++) {
    int32_t at = d - in.rank + (int32_t)count;
    int64_t want = at < 0 ? in.dims[d] : length[at], half = want / 2 + 1;
    if (at >= 0 && want > MOST_LENGTH) return false;
    bool last = d == in.rank - 1;
    if (in.dims[d] != (last && kind == VT_FFT_IRFFT ? half : want) ||
        out.dims[d] != (last && kind == VT_FFT_RFFT ? half : want))
      return false;
  }
  return true;
}
