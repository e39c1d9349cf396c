// SPDX-License-Identifier: Apache-2.0
// random.c - random programs. In: a seed, or bytes of a fuzzer. Out: VT_OK when both orders of
// execution agree.
//
// The generator places random steps and gives each the syncs that its operands need, decided by the
// planner itself: a candidate that the planner rejects for a missing sync gets that sync and is
// retried; any other rejection drops it. The chip is small (32 lanes, few rows), so that steps
// collide often.
#include "tpu1/random.h"

#include <stdlib.h>
#include <string.h>

enum { TILES = 6, HOST_BYTES = 4096, STEPS = 24, TRIES = 12 };

typedef struct trial {
  vt_tpu1_chip chip;
  vt_tpu1_tile tiles[TILES];
  uint8_t *weights, host_in[HOST_BYTES];
  uint64_t seed;
} trial;

static uint32_t pick(trial *t, uint32_t below) {
  t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(t->seed >> 33) % below;
}

static void trial_init(trial *t, uint64_t seed) {
  memset(t, 0, sizeof *t);
  t->seed = seed * 0x9E3779B97F4A7C15u + 1;
  t->chip = vt_tpu1_chip_default();
  t->chip.dim = 32;
  t->chip.drain_cycles = 64;
  t->chip.acc_rows = 48;
  t->chip.ub_bytes = 32 * 96;
  t->chip.weight_bytes_per_s = 1e9 * (1 + pick(t, 40));
  t->chip.fifo_tiles = 1 + pick(t, 4);
  t->weights = malloc(TILES * 32 * 32);
  for (int i = 0; t->weights && i < TILES * 32 * 32; i++) t->weights[i] = (uint8_t)pick(t, 256);
  for (int i = 0; i < HOST_BYTES; i++) t->host_in[i] = (uint8_t)pick(t, 256);
  for (int i = 0; i < TILES; i++)
    t->tiles[i] = (vt_tpu1_tile){(uint16_t)(1 + pick(t, 32)), (uint16_t)(1 + pick(t, 32))};
}

static vt_tpu1_program trial_program(const trial *t, const vt_tpu1_code *code) {
  return (vt_tpu1_program){.code = code->data,
                           .code_size = code->size,
                           .tiles = t->tiles,
                           .tile_count = TILES,
                           .weights = t->weights,
                           .host_in_bytes = HOST_BYTES,
                           .host_out_bytes = HOST_BYTES};
}

// Random operands, mostly in range.
static vt_tpu1_insn random_step(trial *t) {
  vt_tpu1_insn insn = {.op = (vt_tpu1_op)pick(t, 10)};
  VT_TPU1_EACH_FIELD(insn.op, field) {
    int64_t value = pick(t, 4);
    if (field->bit >= 24 && field->bits > 4) value = pick(t, 20);
    if (field->bits == 1) value = pick(t, 2);
    if (field->kind == VT_TPU1_KIND_VOP) value = pick(t, VT_TPU1_VOPS);
    if (field->kind == VT_TPU1_KIND_FN) value = pick(t, VT_TPU1_FNS);
    if (field->kind == VT_TPU1_KIND_POOL) value = pick(t, 4) ? 0 : pick(t, VT_TPU1_POOLS);
    if (field->kind == VT_TPU1_KIND_SINT) value = (int64_t)pick(t, 5) - 2;
    if (field->name[0] == 'u' && field->name[1] == 'b') value = pick(t, 90);
    vt_tpu1_field_assign(&insn, field, value);
  }
  if (insn.op == VT_TPU1_READ_WEIGHTS) {
    insn.tile = pick(t, TILES);
    insn.count = 1 + pick(t, 2);
  }
  return insn;
}

static vt_tpu1_insn random_set(trial *t) {
  static const struct {
    vt_tpu1_reg reg;
    int64_t values[4];
  } sets[] = {{VT_TPU1_REG_CONV_IN_H, {2, 3, 4, 1}},  {VT_TPU1_REG_CONV_IN_W, {2, 3, 4, 1}},
              {VT_TPU1_REG_CONV_OUT_H, {1, 2, 3, 4}}, {VT_TPU1_REG_CONV_OUT_W, {1, 2, 3, 2}},
              {VT_TPU1_REG_CONV_SY, {1, 2, 1, 1}},    {VT_TPU1_REG_POOL_IN_H, {1, 2, 2, 4}},
              {VT_TPU1_REG_POOL_IN_W, {1, 2, 2, 2}},  {VT_TPU1_REG_POOL_KH, {1, 2, 2, 3}},
              {VT_TPU1_REG_SCALE, {1, -3, 1000, 7}},  {VT_TPU1_REG_SHIFT, {0, 3, 9, 14}},
              {VT_TPU1_REG_BLOCK, {0, 1, 4, 5}},      {VT_TPU1_REG_VECTOR_ROWS, {1, 4, 8, 12}},
              {VT_TPU1_REG_HOST_ROW, {0, 7, 32, 1}},  {VT_TPU1_REG_HOST_STRIDE, {32, 40, 64, 33}},
              {VT_TPU1_REG_BIAS, {0, 5, 40, 80}}};
  uint32_t i = pick(t, sizeof sets / sizeof sets[0]);
  return (vt_tpu1_insn){
      .op = VT_TPU1_SET, .reg = (int32_t)sets[i].reg, .value = sets[i].values[pick(t, 4)]};
}

// Whether the program so far, ended by a halt, is legal apart from unused tiles.
static vt_status try_program(const trial *t, vt_tpu1_code *code, vt_tpu1_plan *plan) {
  vt_array_push(code, ((vt_tpu1_insn){.op = VT_TPU1_HALT}));
  vt_tpu1_program program = trial_program(t, code);
  vt_status st = vt_tpu1_plan_make(&program, &t->chip, plan);
  code->size--;
  if (st && strstr(vt_status_message(st), "never used")) {
    vt_status_free(st);
    st = VT_OK;
  }
  return st;
}

static void add_step(trial *t, vt_tpu1_code *code) {
  size_t before = code->size;
  vt_array_push(code, pick(t, 3) ? random_step(t) : random_set(t));
  for (int i = 0; i < TRIES; i++) {
    vt_tpu1_plan plan;
    vt_status st = try_program(t, code, &plan);
    vt_tpu1_plan_free(&plan);
    if (!st) return;
    bool hazard = vt_status_code(st) == VT_FAILED_PRECONDITION;
    const char *unit = strstr(vt_status_message(st), "needs sync ");
    vt_tpu1_code sync = {0};
    if (hazard && unit) {
      unit += strlen("needs ");
      vt_status ignored = vt_tpu1_assemble((vt_bytes){(const uint8_t *)unit, strlen(unit)}, &sync);
      vt_status_free(ignored);
    }
    vt_status_free(st);
    if (sync.size == 0) {
      vt_array_free(&sync);
      break;
    }
    vt_tpu1_insn step = code->data[code->size - 1];
    code->data[code->size - 1] = sync.data[0];
    vt_array_push(code, step);
    vt_array_free(&sync);
  }
  code->size = before; // rejected: drop it and its syncs
}

// Consumes the tiles still in the FIFO and ends the program.
static void end_program(trial *t, vt_tpu1_code *code) {
  int64_t left = 0;
  for (size_t i = 0; i < code->size; i++) {
    const vt_tpu1_insn *insn = &code->data[i];
    if (insn->op == VT_TPU1_READ_WEIGHTS) left += insn->count;
    if (insn->switch_tile) left -= (insn->repeat + 1) * (insn->wide_weights ? 2 : 1);
  }
  vt_array_push(code, ((vt_tpu1_insn){.op = VT_TPU1_SYNC, .unit = 4, .on = 27}));
  for (; left > 0; left--)
    vt_array_push(
        code,
        ((vt_tpu1_insn){
            .op = VT_TPU1_MATMUL, .switch_tile = 1, .rows = 1 + pick(t, 3), .ub = pick(t, 90)}));
  vt_array_push(code, ((vt_tpu1_insn){.op = VT_TPU1_INTERRUPT}));
  vt_array_push(code, ((vt_tpu1_insn){.op = VT_TPU1_HALT}));
}

static void damage_program(trial *t, vt_tpu1_code *code) {
  size_t at = pick(t, (uint32_t)code->size);
  switch (pick(t, 3)) {
  case 0:
    memmove(&code->data[at], &code->data[at + 1], sizeof *code->data * (code->size - at - 1));
    code->size--;
    break;
  case 1:
    code->data[at] = random_step(t);
    break;
  default: {
    uint8_t bytes[VT_TPU1_INSN_BYTES];
    vt_tpu1_insn insn;
    vt_status st = vt_tpu1_encode(&code->data[at], bytes);
    uint32_t bit = pick(t, 96);
    bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << (bit % 8));
    if (!st) st = vt_tpu1_decode(bytes, &insn);
    if (!st) code->data[at] = insn;
    vt_status_free(st);
  }
  }
}

static vt_status compare_runs(const trial *t, const vt_tpu1_plan *plan,
                              const vt_tpu1_timing *timing) {
  vt_tpu1_machine *machines[2] = {NULL, NULL};
  uint8_t outs[2][HOST_BYTES] = {{0}, {0}};
  vt_status st = VT_OK;
  for (int i = 0; i < 2; i++) {
    VT_TRY_OUT(vt_tpu1_machine_create(&t->chip, &machines[i]));
    vt_tpu1_host host = {t->host_in, outs[i]};
    VT_TRY_OUT(i ? vt_tpu1_run_pipelined(machines[i], plan, timing, host)
                 : vt_tpu1_run_serial(machines[i], plan, host));
  }
  size_t ub = (size_t)t->chip.ub_bytes,
         acc = (size_t)(t->chip.acc_rows * t->chip.dim) * sizeof(int32_t);
  if (memcmp(vt_tpu1_machine_ub(machines[0]), vt_tpu1_machine_ub(machines[1]), ub))
    st = vt_error(VT_INTERNAL, "unified buffers differ");
  else if (memcmp(vt_tpu1_machine_acc(machines[0]), vt_tpu1_machine_acc(machines[1]), acc))
    st = vt_error(VT_INTERNAL, "accumulators differ");
  else if (memcmp(outs[0], outs[1], HOST_BYTES))
    st = vt_error(VT_INTERNAL, "host output differs");
out:
  for (int i = 0; i < 2; i++) vt_tpu1_machine_destroy(machines[i]);
  return st;
}

// Plans, times and runs a program both ways. A rejected program counts as illegal unless it must be
// legal.
static vt_status check_code(trial *t, const vt_tpu1_code *code, bool must_be_legal,
                            vt_tpu1_random_stats *stats) {
  vt_tpu1_program program = trial_program(t, code);
  vt_tpu1_plan plan;
  vt_tpu1_timing timing = {0};
  vt_status st = vt_tpu1_plan_make(&program, &t->chip, &plan);
  if (st) {
    stats->illegal++;
    if (must_be_legal) {
      st = vt_status_wrap(st, "a legal program is rejected");
    } else {
      vt_status_free(st);
      st = VT_OK;
    }
    vt_tpu1_plan_free(&plan);
    return st;
  }
  stats->legal++;
  vt_tpu1_time(&plan, &t->chip, false, &timing);
  const vt_tpu1_counters *n = &timing.counters;
  if (n->array_active + n->weight_stall + n->weight_shift + n->non_matrix != n->cycles)
    st = vt_error(VT_INTERNAL, "counters do not add up to all cycles");
  int64_t latest = 0;
  for (size_t i = 0; i < plan.steps.size; i++) {
    stats->steps++;
    stats->overlapped += timing.finish.data[i] < latest;
    if (timing.finish.data[i] > latest) latest = timing.finish.data[i];
  }
  if (!st) st = compare_runs(t, &plan, &timing);
  vt_tpu1_timing_free(&timing);
  vt_tpu1_plan_free(&plan);
  return st;
}

static vt_status check_encoding(const vt_tpu1_code *code) {
  vt_text bytes = {0};
  vt_tpu1_code again = {0};
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_tpu1_code_encode(code, &bytes));
  VT_TRY_OUT(vt_tpu1_code_decode((vt_bytes){(const uint8_t *)bytes.data, bytes.size}, &again));
  if (again.size != code->size ||
      (code->size && memcmp(again.data, code->data, sizeof *code->data * code->size)))
    st = vt_error(VT_INTERNAL, "decoding gives another program");
out:
  vt_array_free(&again);
  vt_text_free(&bytes);
  return st;
}

vt_status vt_tpu1_random_check(uint64_t seed, int damage, vt_tpu1_random_stats *stats) {
  trial t;
  trial_init(&t, seed);
  if (!t.weights) return vt_error_no_memory();
  vt_tpu1_code code = {0};
  for (int i = 0; i < STEPS; i++) add_step(&t, &code);
  end_program(&t, &code);
  for (int i = 0; i < damage && code.size; i++) damage_program(&t, &code);
  vt_status st = damage ? VT_OK : check_encoding(&code);
  if (!st) st = check_code(&t, &code, damage == 0, stats);
  vt_array_free(&code);
  free(t.weights);
  return st;
}

vt_status vt_tpu1_bytes_check(const uint8_t *bytes, size_t size, vt_tpu1_random_stats *stats) {
  trial t;
  trial_init(&t, 1);
  if (!t.weights) return vt_error_no_memory();
  vt_tpu1_code code = {0};
  vt_status st = vt_tpu1_code_decode((vt_bytes){bytes, size}, &code);
  if (st) {
    vt_status_free(st);
    st = VT_OK;
    stats->illegal++;
  } else {
    st = check_encoding(&code);
    if (!st) st = check_code(&t, &code, false, stats);
  }
  vt_array_free(&code);
  free(t.weights);
  return st;
}
