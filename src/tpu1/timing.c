// SPDX-License-Identifier: Apache-2.0
// timing.c - the clock of TPU v1.
// In: a plan (already checked) and a chip. Out: start and finish of every step, counters, segments
// for the view.
//
// Rules, each with its source (docs/tpu1.md has the formulas):
//  1. Instructions issue in order, one per issue_cycles, into queues of the five units; a unit runs
//     its queue in order and a step starts when everything its `sync`s name has finished.
//     [published structure]
//  2. Host transfers take bytes / host bandwidth; the first byte takes a PCIe round trip more.
//     Reads and writes are separate directions. [published bandwidth]
//  3. Weight tiles arrive one after another at memory bandwidth. A tile is fetched when its
//     read_weights has issued and a FIFO slot is free: that of the tile fifo_tiles before it, once
//     that has been shifted out. [published]
//  4. Shifting a tile into the shadow plane takes dim cycles, starts when the tile has arrived and
//     the previous tile has become active, and overlaps the rows of that one. [published]
//  5. A pass takes one cycle per row and operand byte: 1x, 2x with one 16-bit operand, 4x with two.
//     A 16-bit weight tile is two planes, run one after the other. [published]
//  6. Results of a pass can be read drain_cycles after its last row went in; those of the
//     activation unit activate_latency after its last row. [derived, assumed]
//  7. The activation unit takes one accumulator row per cycle and writes one unified-buffer row per
//     cycle; `vector` reads and writes through one port of a row per cycle. [assumed]
// Steps are evaluated in program order: a step depends only on earlier ones, so no event queue is
// needed.
#include "base/check.h"
#include "tpu1/timing.h"

#include <string.h>

typedef struct clock_state {
  const vt_tpu1_plan *plan;
  const vt_tpu1_chip *chip;
  vt_tpu1_timing *out;
  bool trace;
  int64_t unit_free[VT_TPU1_UNITS];
  VT_ARRAY(int64_t) unit_finish[VT_TPU1_UNITS]; // running maximum of finish, per step of the unit
  // Weight path, per tile in FIFO order.
  int64_t dim, tiles_done;
  double fetch_cycles,
      fetch_free; // memory busy until; fractional so that no bandwidth is lost to rounding
  VT_ARRAY(int64_t) shift_end; // per tile consumed
  int64_t active_since; // when the newest tile became active: the shadow plane is free from here
  int64_t first_issue;
  double useful; // active cycles times the share of useful multipliers
} clock_state;

static int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t issue_time(const clock_state *c, size_t pc) {
  return c->first_issue + (int64_t)((double)pc * c->chip->issue_cycles);
}

static void segment(clock_state *c, vt_tpu1_unit unit, vt_tpu1_what what, size_t pc, int64_t start,
                    int64_t end) {
  if (!c->trace || end <= start) return;
  vt_tpu1_segment s = {unit, what, pc, start, end};
  vt_array_push(&c->out->segments, s);
}

// When the steps that `step` waits for in `unit` have finished.
static int64_t waited(const clock_state *c, const vt_tpu1_step *step, vt_tpu1_unit unit) {
  vt_assert(step->wait[unit] <= (int64_t)c->unit_finish[unit].size);
  int64_t n = step->wait[unit];
  return n ? c->unit_finish[unit].data[n - 1] : 0;
}

static int64_t ready_time(const clock_state *c, const vt_tpu1_step *step) {
  int64_t t = issue_time(c, step->pc);
  for (int v = 0; v < VT_TPU1_UNITS; v++) t = max64(t, waited(c, step, (vt_tpu1_unit)v));
  return t;
}

static void finish_step(clock_state *c, const vt_tpu1_step *step, int64_t start, int64_t finish) {
  vt_assert(start >= 0 && finish >= start);
  int64_t latest = finish;
  size_t n = c->unit_finish[step->unit].size;
  if (n) latest = max64(latest, c->unit_finish[step->unit].data[n - 1]);
  vt_array_push(&c->unit_finish[step->unit], latest);
  vt_array_push(&c->out->start, start);
  vt_array_push(&c->out->finish, latest);
  c->out->counters.cycles = max64(c->out->counters.cycles, latest);
}

static void time_host(clock_state *c, const vt_tpu1_step *step) {
  vt_tpu1_counters *n = &c->out->counters;
  int64_t start = max64(ready_time(c, step), c->unit_free[step->unit]);
  int64_t busy = vt_tpu1_chip_cycles(c->chip, (double)step->host_bytes / c->chip->host_bytes_per_s);
  c->unit_free[step->unit] = start + busy;
  segment(c, step->unit, VT_TPU1_WHAT_WORK, step->pc, start, start + busy);
  finish_step(c, step, start, start + busy + vt_tpu1_chip_cycles(c->chip, c->chip->host_latency_s));
  if (step->unit == VT_TPU1_UNIT_READ) {
    n->read_busy += busy;
    n->host_in_bytes += step->host_bytes;
  } else {
    n->write_busy += busy;
    n->host_out_bytes += step->host_bytes;
  }
}

// Fetches and shifts the next tile of the FIFO (rules 3, 4). *out_arrival is when it has arrived.
static int64_t tile_shifted(clock_state *c, int64_t *out_arrival) {
  int64_t tile = c->tiles_done++, fifo = (int64_t)c->chip->fifo_tiles;
  size_t pc = (size_t)c->plan->tile_issue.data[tile];
  vt_assert(tile < (int64_t)c->plan->tile_issue.size);
  double start = (double)issue_time(c, pc);
  if (start < c->fetch_free) start = c->fetch_free;
  if (tile >= fifo && start < (double)c->shift_end.data[tile - fifo]) {
    double room = (double)c->shift_end.data[tile - fifo];
    c->out->counters.weights_blocked += (int64_t)(room - start);
    start = room;
  }
  c->fetch_free = start + c->fetch_cycles;
  int64_t end = (int64_t)c->fetch_free;
  *out_arrival = end + vt_tpu1_chip_cycles(c->chip, c->chip->weight_latency_s);
  segment(c, VT_TPU1_UNIT_WEIGHTS, VT_TPU1_WHAT_WORK, pc, (int64_t)start, end);
  c->out->counters.weights_busy += end - (int64_t)start;
  int64_t shifted = max64(*out_arrival, c->active_since) + c->dim;
  vt_array_push(&c->shift_end, shifted);
  return shifted;
}

// The idle time of the matrix unit between `from` and `ready`: split by cause, causes counted
// independently.
static void count_idle(clock_state *c, const vt_tpu1_step *step, int64_t from, int64_t ready) {
  vt_tpu1_counters *n = &c->out->counters;
  int64_t raw = waited(c, step, VT_TPU1_UNIT_ACTIVATE), input = waited(c, step, VT_TPU1_UNIT_READ);
  if (ready <= from) return;
  n->non_matrix += ready - from;
  n->raw_stall += max64(0, raw - from);
  n->input_stall += max64(0, input - from);
  vt_tpu1_what what = input == ready ? VT_TPU1_WHAT_INPUT
                      : raw == ready ? VT_TPU1_WHAT_RAW
                                     : VT_TPU1_WHAT_OTHER;
  segment(c, VT_TPU1_UNIT_MATRIX, what, step->pc, from, ready);
}

static void count_pass(clock_state *c, int64_t order, int64_t active, int64_t rows,
                       bool counts_macs) {
  vt_assert(order >= 0 && order < (int64_t)c->plan->tile_order.size);
  vt_tpu1_counters *n = &c->out->counters;
  const vt_tpu1_program *program = c->plan->program;
  double side = (double)c->dim, share = 1;
  int64_t k = c->dim, cols = c->dim;
  if (program->tiles) {
    vt_tpu1_tile t = program->tiles[c->plan->tile_order.data[order]];
    k = t.k;
    cols = t.n;
    share = (double)k * (double)cols / (side * side);
  }
  n->array_active += active;
  n->matrix_rows += rows;
  c->useful += (double)active * share;
  if (counts_macs) n->macs += rows * k * cols;
}

static void time_matrix(clock_state *c, const vt_tpu1_step *step) {
  vt_tpu1_counters *n = &c->out->counters;
  const vt_tpu1_insn *insn = step->insn;
  int64_t ready = ready_time(c, step), at = c->unit_free[VT_TPU1_UNIT_MATRIX], first = -1;
  int64_t planes = insn->wide_weights ? 2 : 1, active = step->pass_rows * (insn->wide_in ? 2 : 1);
  count_idle(c, step, at, ready);
  at = max64(at, ready);
  for (int64_t pass = 0; pass < step->passes * planes; pass++) {
    int64_t start = at;
    if (insn->switch_tile) {
      int64_t arrival, shifted = tile_shifted(c, &arrival);
      int64_t shift_start = shifted - c->dim;
      start = max64(at, shifted);
      int64_t stall = max64(0, (shift_start < start ? shift_start : start) - at);
      n->weight_stall += stall;
      n->weight_shift += start - at - stall;
      n->tiles++;
      segment(c, VT_TPU1_UNIT_MATRIX, VT_TPU1_WHAT_STALL, step->pc, at, at + stall);
      segment(c, VT_TPU1_UNIT_MATRIX, VT_TPU1_WHAT_SHIFT, step->pc, at + stall, start);
      c->active_since = start;
    }
    if (first < 0) first = start;
    at = start + active;
    segment(c, VT_TPU1_UNIT_MATRIX, VT_TPU1_WHAT_WORK, step->pc, start, at);
    count_pass(c, step->first_tile + (insn->switch_tile ? pass : 0), active, step->pass_rows,
               pass % planes == 0);
  }
  c->unit_free[VT_TPU1_UNIT_MATRIX] = at;
  n->ub_read_rows += step->ub_read[0].count * planes;
  finish_step(c, step, first, at + (int64_t)c->chip->drain_cycles);
}

static void time_activate(clock_state *c, const vt_tpu1_step *step) {
  vt_tpu1_counters *n = &c->out->counters;
  int64_t start = max64(ready_time(c, step), c->unit_free[VT_TPU1_UNIT_ACTIVATE]);
  int64_t reads = 0, busy;
  for (int i = 0; i < 3; i++) reads += step->ub_read[i].count;
  if (step->insn->op == VT_TPU1_ACTIVATE)
    busy = max64(step->pass_rows, step->ub_write.count) + reads;
  else
    busy = reads + step->ub_write.count;
  segment(c, VT_TPU1_UNIT_ACTIVATE, VT_TPU1_WHAT_WORK, step->pc, start, start + busy);
  int64_t finish = start + busy + (int64_t)c->chip->activate_latency;
  c->unit_free[VT_TPU1_UNIT_ACTIVATE] = finish; // the next may read what this one wrote
  n->activate_busy += busy;
  n->activate_rows += step->pass_rows;
  n->ub_read_rows += reads;
  n->ub_write_rows += step->ub_write.count;
  finish_step(c, step, start, finish);
}

static void time_step(clock_state *c, const vt_tpu1_step *step) {
  vt_tpu1_counters *n = &c->out->counters;
  for (int i = 0; i < 3; i++)
    n->ub_peak_rows = max64(n->ub_peak_rows, step->ub_read[i].first + step->ub_read[i].count);
  n->ub_peak_rows = max64(n->ub_peak_rows, step->ub_write.first + step->ub_write.count);
  switch (step->unit) {
  case VT_TPU1_UNIT_READ:
    n->ub_write_rows += step->ub_write.count;
    time_host(c, step);
    break;
  case VT_TPU1_UNIT_WRITE:
    n->ub_read_rows += step->ub_read[0].count;
    if (step->insn->op == VT_TPU1_INTERRUPT) { // waits for the writes before it, then crosses PCIe
      size_t done = c->unit_finish[VT_TPU1_UNIT_WRITE].size;
      int64_t start = ready_time(c, step);
      if (done) start = max64(start, c->unit_finish[VT_TPU1_UNIT_WRITE].data[done - 1]);
      finish_step(c, step, start, start + vt_tpu1_chip_cycles(c->chip, c->chip->host_latency_s));
    } else {
      time_host(c, step);
    }
    break;
  case VT_TPU1_UNIT_WEIGHTS: { // retires at issue; its tiles are timed when they are used
    int64_t t = ready_time(c, step);
    n->weight_bytes += step->insn->count * c->dim * c->dim;
    finish_step(c, step, t, t);
    break;
  }
  case VT_TPU1_UNIT_MATRIX:
    time_matrix(c, step);
    break;
  case VT_TPU1_UNIT_ACTIVATE:
    time_activate(c, step);
    break;
  case VT_TPU1_UNIT_NONE:
    vt_assert(false);
    break;
  }
}

void vt_tpu1_time(const vt_tpu1_plan *plan, const vt_tpu1_chip *chip, bool trace,
                  vt_tpu1_timing *out_timing) {
  memset(out_timing, 0, sizeof *out_timing);
  clock_state c = {.plan = plan, .chip = chip, .out = out_timing, .trace = trace};
  c.dim = vt_tpu1_chip_dim(chip);
  c.fetch_cycles = chip->dim * chip->dim / chip->weight_bytes_per_s * chip->clock_hz;
  c.first_issue =
      vt_tpu1_chip_cycles(chip, chip->host_latency_s); // doorbell and first instructions
  for (size_t i = 0; i < plan->steps.size; i++) time_step(&c, &plan->steps.data[i]);
  vt_tpu1_counters *n = &out_timing->counters;
  n->instructions = (int64_t)plan->program->code_size;
  n->cycles = max64(n->cycles, issue_time(&c, plan->program->code_size));
  int64_t matrix_end = c.unit_free[VT_TPU1_UNIT_MATRIX];
  n->non_matrix += n->cycles - matrix_end;
  segment(&c, VT_TPU1_UNIT_MATRIX, VT_TPU1_WHAT_OTHER, plan->program->code_size, matrix_end,
          n->cycles);
  n->output_wait = n->cycles - max64(matrix_end, c.unit_free[VT_TPU1_UNIT_ACTIVATE]);
  n->useful_macs = (int64_t)(c.useful + 0.5);
  n->unused_macs = n->array_active - n->useful_macs;
  vt_assert(n->array_active + n->weight_stall + n->weight_shift + n->non_matrix == n->cycles);
  vt_assert(n->output_wait >= 0 && out_timing->finish.size == plan->steps.size);
  vt_assert(c.tiles_done == (int64_t)plan->tile_order.size);
  for (int u = 0; u < VT_TPU1_UNITS; u++) vt_array_free(&c.unit_finish[u]);
  vt_array_free(&c.shift_end);
}

void vt_tpu1_timing_free(vt_tpu1_timing *timing) {
  vt_array_free(&timing->start);
  vt_array_free(&timing->finish);
  vt_array_free(&timing->segments);
}

double vt_tpu1_tops(const vt_tpu1_counters *counters, const vt_tpu1_chip *chip) {
  double seconds = (double)(counters->cycles - counters->input_stall) / chip->clock_hz;
  return seconds > 0 ? 2 * (double)counters->macs / seconds / 1e12 : 0;
}
