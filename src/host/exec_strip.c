// SPDX-License-Identifier: Apache-2.0
// exec_strip.c - contractions that run in strips (strip.h), and the kernels that take their sums.
//
// In: steps of contractions and of fused groups. Where all that reads a contraction's result is one
// group that works on it row by row, the two become one step: the group's code runs on each strip
// while it is in the cache, and the result is never written. Else the step adds the bias and rounds
// as its epilogue says.
#include <string.h>

#include "base/check.h"
#include "host/amx_tiles.h"
#include "host/contraction.h"
#include "host/cpu.h"
#include "host/plan.h"
#include "host/steps.h"
#include "host/strip.h"
#include "host/strip_mask.h"
#include "host/strip_spread.h"

// Of sums that generated code reads, whose rows lie as far apart as the result's.
static const int64_t MAX_SUMS = 4 << 20;
// Rows from which each thread has enough strips of whole rows.
enum { WHOLE_ROWS = 256 };

// What a plain product writes: of an item and row, the columns are dense.
typedef struct strip_target {
  vt_dtype dtype;
  int64_t row, batch[VT_STRIP_BATCH]; // elements from one to the next
  const float *bias;
  char *data;
} strip_target;

typedef struct strip_body {
  vt_strip strip;
  uint32_t sides[2]; // inputs: left, right
  bool laid;         // the right side is laid out once
  bool direct;       // the result is the sums
  int64_t laid_offset, scratch_offset;
  // What comes after: a group's code, or a bias and rounding.
  const vt_kernel *const *kernel;
  uint32_t port;   // of the group's inputs, that the sums are
  void **pointers; // the group's inputs and outputs, filled in per execution
  bool *stays;     // [input] may not be written to
  bool keeps;      // the sums are the last output, too
  bool adds;       // the group adds up over rows
  int64_t blocks_offset;
  char *blocks; // of what it adds up
  const vt_group *group;
  bool spreads; // the output behind the group's is what `spread` adds up
  vt_strip_spread spread;
  int64_t spread_offset;
  const vt_strip_mask *mask; // outside of which the group does not use sums; NULL: none
  bool has_second;           // the group's result is the left side of a product with the last input
  vt_strip second;
  strip_target target; // of the product without a group, or of the second
} strip_body;

static void finish_kernel(void *user, float *sums, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, void *middle) {
  const strip_body *body = user;
  const vt_strip *strip = &body->strip;
  vt_rows part = {.port = body->port,
                  .instead = sums - row * (body->keeps ? strip->n : strip->sums_row),
                  .output = middle ? (uint16_t *)middle - row * strip->n : NULL,
                  .row_lo = row,
                  .row_hi = row + rows,
                  .column_lo = column,
                  .column_hi = column + columns};
  int64_t task = body->adds ? vt_strip_task(strip, row) : 0;
  if (body->adds) part.block = body->blocks + task * vt_kernel_block_bytes(*body->kernel);
  vt_kernel_run_rows(*body->kernel, body->pointers, &part);
  if (body->spreads) vt_spread_add(&body->spread, task, part.instead, part.block, &part);
}

static void leave_out(void *user, int64_t row, int64_t rows, uint64_t *bits) {
  const strip_body *body = user;
  vt_strip_unused(body->mask, body->pointers, row, rows, bits);
}

static int64_t place_of(const vt_strip *strip, const strip_target *target, int64_t row) {
  int64_t item = row / strip->m, at = row % strip->m * target->row;
  for (int32_t d = strip->batch_rank; d-- > 0; item /= strip->batch_sizes[d])
    at += item % strip->batch_sizes[d] * target->batch[d];
  return at;
}

BF16 static void write_rows(const vt_strip *strip, const strip_target *target, const float *sums,
                            int64_t row, int64_t rows, int64_t column, int64_t columns) {
  enum { AHEAD = 16 }; // rows
  int64_t bytes = (int64_t)vt_dtype_bytes(target->dtype);
  bool fetches = vt_host_fetches_results(strip->items * strip->m * strip->n * bytes);
  for (int64_t i = 0; i < rows; i++) {
    const float *from = sums + i * strip->sums_row + column;
    int64_t at = place_of(strip, target, row + i) + column;
    for (int64_t j = 0; fetches && j < columns * bytes; j += 64)
      __builtin_prefetch(target->data + (at + AHEAD * target->row) * bytes + j, 1);
    for (int64_t j = 0; j < columns; j += T) {
      __mmask16 mask = first16(columns - j);
      __m512 value = _mm512_maskz_loadu_ps(mask, from + j);
      if (target->bias)
        value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, target->bias + column + j));
      if (target->dtype == VT_F32)
        _mm512_mask_storeu_ps((float *)(void *)target->data + at + j, mask, value);
      else
        _mm256_mask_storeu_epi16((uint16_t *)(void *)target->data + at + j, mask, to_bf16(value));
    }
  }
}

static void finish_plain(void *user, float *sums, int64_t row, int64_t rows, int64_t column,
                         int64_t columns, void *middle) {
  (void)middle;
  const strip_body *body = user;
  write_rows(&body->strip, &body->target, sums, row, rows, column, columns);
}

static void finish_second(void *user, float *sums, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, void *middle) {
  (void)middle;
  const strip_body *body = user;
  write_rows(&body->second, &body->target, sums, row, rows, column, columns);
}

static uint32_t outputs_of_group(const vt_step *step, const strip_body *body) {
  return step->output_count - body->keeps - body->spreads;
}

// The group's inputs lie behind the two sides, but for the sums; what it gives to a second product
// has no memory.
static void bind_kernel(const vt_step *step, strip_body *body, char *const *slots) {
  uint32_t at = 0, end = step->input_count - body->has_second;
  for (uint32_t input = 2; input < end; at++)
    if (at != body->port) body->pointers[at] = slots[step->input_slots[input++]];
  if (at == body->port) at++;
  if (body->has_second) return;
  for (uint32_t i = 0; i < outputs_of_group(step, body); i++)
    body->pointers[at + i] = slots[step->output_slots[i]];
}

// What all strips add up to.
static void add_strips(const vt_step *step, const strip_body *body, char *const *slots) {
  if (body->spreads)
    vt_spread_finish(&body->spread, &body->strip, body->blocks,
                     vt_kernel_block_bytes(*body->kernel),
                     (float *)(void *)slots[step->output_slots[1]]);
  vt_kernel_add_blocks(*body->kernel, body->blocks, vt_strip_tasks(&body->strip),
                       body->pointers + (step->input_count - 2 + 1));
}

static vt_status run_strip(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  (void)exec;
  strip_body *body = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots, *scratch = slots[step->scratch_slot];
    vt_strip_run run = {.strip = &body->strip,
                        .lhs = slots[step->input_slots[body->sides[0]]],
                        .rhs = slots[step->input_slots[body->sides[1]]],
                        .finish = body->kernel ? finish_kernel : finish_plain,
                        .user = body,
                        .scratch = scratch + body->scratch_offset};
    if (body->laid) {
      bool kept = step->kept && step->kept->memory;
      run.laid = kept ? step->kept->memory : scratch + body->laid_offset;
      run.lay = !step->kept || !step->kept->ready;
    }
    if (body->kernel) bind_kernel(step, body, slots);
    if (body->mask) run.unread = leave_out;
    if (body->has_second) {
      run.second = &body->second;
      run.second_rhs = slots[step->input_slots[step->input_count - 1]];
      run.second_finish = finish_second;
    }
    bool biased = !body->kernel && step->input_count == 3;
    if (body->keeps)
      run.result = (float *)(void *)slots[step->output_slots[step->output_count - 1]];
    body->blocks = scratch + body->blocks_offset;
    body->spread.blocks = scratch + body->spread_offset;
    if (body->direct) run.finish = NULL, run.result = (float *)(void *)slots[step->output_slots[0]];
    body->target.bias = biased ? (const float *)(void *)slots[step->input_slots[2]] : NULL;
    body->target.data = slots[step->output_slots[0]];
    vt_strip_multiply(&run);
    if (body->adds) add_strips(step, body, slots);
  }
  return VT_OK;
}

static void reserve(vt_step *step, strip_body *body) {
  step->scratch_bytes = step->weights_bytes = 0;
  if (body->laid) {
    body->laid_offset = vt_step_reserve(step, body->strip.rhs_bytes);
    step->weights_input = (int32_t)body->sides[1];
    step->weights_bytes = body->strip.rhs_bytes;
  }
  body->scratch_offset = vt_step_reserve(step, body->strip.scratch_bytes);
}

static bool is_dense(const vt_strip *strip, const strip_target *target) {
  int64_t dense = strip->m * strip->n;
  for (int32_t d = strip->batch_rank; d-- > 0; dense *= strip->batch_sizes[d])
    if (target->batch[d] != dense) return false;
  return target->row == strip->n;
}

// Sums of whole vectors go where the result is at once.
static bool writes_sums(const vt_step *step, const vt_strip *strip, const strip_target *target) {
  return !strip->tiles && step->outputs[0]->type.dtype == VT_F32 && step->input_count == 2 &&
         strip->n % T == 0 && is_dense(strip, target);
}

// Measured without AMX: images in bf16, 2 to 8 % slower than by oneDNN, which rounds as it goes.
static bool rounds_image(const vt_op *op) {
  return !vt_host_has_amx() && op->code == VT_OP_CONVOLUTION &&
         op->results[0].type.dtype == VT_BF16;
}

static bool pays(const vt_plan *plan, const vt_step *step, const vt_strip *strip, int right) {
  return vt_strip_pays(strip, vt_keep_likely(plan, step->inputs[right])) ||
         (step->op->code == VT_OP_CONVOLUTION && strip->alone &&
          vt_strip_pays_few(strip->m, strip->n));
}

static bool make_step(vt_plan *plan, vt_step *step, const vt_strip *given, bool swapped,
                      const strip_target *target) {
  if (rounds_image(step->op)) return false;
  vt_dtype out = step->outputs[0]->type.dtype;
  vt_strip strip = *given;
  if (step->inputs[0]->type.dtype != VT_BF16 || step->inputs[1]->type.dtype != VT_BF16 ||
      (out != VT_F32 && out != VT_BF16) || (swapped && step->input_count > 2))
    return false;
  if (!vt_strip_prepare(&strip)) return false;
  bool pays_alone = plan->program->options.compile_all || pays(plan, step, &strip, !swapped);
  if (!pays_alone && !vt_strip_pays_joined(&strip)) return false;
  strip_body *body = VT_NEW(&plan->program->arena, strip_body);
  *body =
      (strip_body){.strip = strip, .sides = {swapped, !swapped}, .laid = true, .target = *target};
  body->target.dtype = out;
  body->direct = writes_sums(step, &strip, target);
  for (int32_t d = 0; d < strip.batch_rank; d++) body->laid &= !strip.batch_strides[1][d];
  vt_step *made = step;
  if (!pays_alone) {
    made = VT_NEW(&plan->program->arena, vt_step);
    *made = *step;
    step->strip = made;
  }
  reserve(made, body);
  made->body = body;
  made->run = run_strip;
  made->runner = "strip";
  return pays_alone;
}

bool vt_step_strip(vt_plan *plan, vt_step *step, const vt_strip *strip) {
  strip_target dense = {.row = strip->n};
  int64_t items = strip->m * strip->n;
  for (int32_t d = strip->batch_rank; d-- > 0; items *= strip->batch_sizes[d])
    dense.batch[d] = items;
  return make_step(plan, step, strip, false, &dense);
}

static void add_batch(vt_strip *strip, strip_target *target, const vt_dim *d) {
  int32_t at = strip->batch_rank++;
  strip->batch_sizes[at] = d->size, target->batch[at] = d->out;
  strip->batch_strides[0][at] = d->lhs, strip->batch_strides[1][at] = d->rhs;
}

// Of several dimensions of rows, which the result has in another order, the largest are the rows;
// the others are a batch with one right side.
bool vt_step_strip_matmul(vt_plan *plan, vt_step *step, const vt_contraction *c, bool swapped) {
  if (c->batch.count + c->m.count > VT_STRIP_BATCH + 1 || c->m.count < 1 || c->n.count != 1 ||
      c->k.count != 1)
    return false;
  const vt_dim *m = c->m.at, *n = c->n.at, *k = c->k.at;
  for (int32_t i = 1; i < c->m.count; i++)
    if (c->m.at[i].size > m->size) m = &c->m.at[i];
  vt_strip strip = {.m = m->size,
                    .n = n->size,
                    .k = k->size,
                    .lhs_row = m->lhs,
                    .rhs_row = k->rhs,
                    .rhs_column = n->rhs};
  strip_target target = {.row = m->out};
  if (k->lhs != 1 || n->out != 1) return false;
  for (int32_t d = 0; d < c->batch.count; d++) add_batch(&strip, &target, &c->batch.at[d]);
  for (int32_t i = 0; i < c->m.count; i++)
    if (&c->m.at[i] != m) add_batch(&strip, &target, &c->m.at[i]);
  return make_step(plan, step, &strip, swapped, &target);
}

bool vt_step_is_strip(const vt_step *step) {
  return step->run == run_strip;
}

// ---- Kernels that take the sums.

static bool strip_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  const strip_body *body = step->body;
  if (input < 2 || body->stays[input] || output >= outputs_of_group(step, body)) return false;
  uint32_t at = input - 2;
  return vt_kernel_in_place_ok(*body->kernel, output, at + (at >= body->port));
}

// The input of `step` that names `root`; -1 for none or several.
static int32_t only_input(const vt_plan *plan, const vt_step *step, const vt_value *root) {
  int32_t found = -1;
  for (uint32_t i = 0; i < step->input_count; i++) {
    if (plan->roots[step->inputs[i]->id] != root) continue;
    if (found >= 0) return -1;
    found = (int32_t)i;
  }
  return found;
}

// The steps' inputs: both sides, and behind them those of the group but for the sums.
static vt_value **inputs_of_both(vt_plan *plan, const vt_step *product, const vt_step *reader,
                                 strip_body *body) {
  vt_arena *arena = &plan->program->arena;
  uint32_t inputs = reader->input_count + 1;
  vt_value **values = VT_NEW_ARRAY(arena, vt_value *, inputs + 1); // one more for a second product
  memcpy(values, product->inputs, sizeof *values * 2);
  for (uint32_t i = 0, at = 2; i < reader->input_count; i++)
    if (i != body->port) values[at++] = reader->inputs[i];
  body->stays = VT_NEW_ARRAY(arena, bool, inputs);
  for (uint32_t i = 2; i < inputs; i++)
    for (uint32_t side = 0; side < 2; side++)
      body->stays[i] |= plan->roots[values[i]->id] == plan->roots[values[side]->id];
  return values;
}

static vt_status prepare_sums(vt_plan *plan, vt_step *step) {
  (void)plan;
  strip_body *body = step->body;
  int64_t each = vt_kernel_block_bytes(*body->kernel);
  body->blocks_offset = vt_step_reserve(step, each * vt_strip_tasks(&body->strip));
  if (!body->spreads) return VT_OK;
  body->spread.each =
      vt_padded_bytes(vt_kernel_block_bytes(*body->spread.kernel) + body->strip.n * 4);
  body->spread_offset = vt_step_reserve(step, body->spread.each * vt_strip_tasks(&body->strip));
  return VT_OK;
}

// The group's outputs, and behind them the product's result where others read it, too.
static vt_value **outputs_of_both(vt_plan *plan, const vt_step *product, const vt_step *reader) {
  uint32_t count = reader->output_count;
  vt_value **values = VT_NEW_ARRAY(&plan->program->arena, vt_value *, count + 1);
  memcpy(values, reader->outputs, sizeof *values * count);
  values[count] = product->outputs[0];
  return values;
}

// Makes `reader` the step of both; false when its code does not work row by row. `keeps`: others
// read the product's result, too.
static bool join(vt_plan *plan, const vt_step *product, vt_step *reader, uint32_t port,
                 bool keeps) {
  vt_arena *arena = &plan->program->arena;
  strip_body *body = VT_NEW(arena, strip_body);
  *body = *(const strip_body *)product->body;
  body->port = port;
  body->keeps = keeps;
  vt_strip *strip = &body->strip;
  vt_group *group = vt_step_group(reader);
  int64_t rows = strip->items * strip->m;
  if (!vt_group_takes_rows(group, port, rows, strip->n, &strip->whole_rows, &body->adds) ||
      ((keeps || body->adds) && (!body->direct || !body->laid)))
    return false;
  body->direct = false;
  if (strip->whole_rows && rows < WHOLE_ROWS * (int64_t)strip->threads) return false;
  if (body->adds) vt_strip_fix_rows(strip);
  if (!vt_strip_prepare(strip) || strip->sums_bytes > MAX_SUMS) return false;
  if (!keeps) vt_group_give_rows(group, port, strip->n, strip->sums_row);
  if (!keeps && !strip->windowed) body->mask = vt_strip_find_mask(arena, group, port, strip->n);
  body->kernel = vt_step_kernel_of(reader);
  body->group = group;
  body->pointers = VT_NEW_ARRAY(arena, void *, reader->input_count + reader->output_count);
  vt_step both = {.op = reader->op, .run = run_strip, .runner = "strip", .body = body};
  vt_step_set_values(plan, &both, reader->input_count + 1,
                     inputs_of_both(plan, product, reader, body), reader->output_count + keeps,
                     keeps ? outputs_of_both(plan, product, reader) : reader->outputs);
  both.in_place_ok = strip_in_place_ok;
  if (body->adds) both.prepare = prepare_sums;
  reserve(&both, body);
  *reader = both;
  return true;
}

// A step that is in strips, or would be if others joined it; NULL for any other.
static const vt_step *in_strips(const vt_step *step) {
  return step->run == run_strip ? step : step->strip;
}

static bool takes_left(const vt_step *step, uint32_t input) {
  const vt_step *product = in_strips(step);
  const strip_body *body = product ? product->body : NULL;
  return body && !body->kernel && product->input_count == 2 && body->sides[0] == input;
}

// Makes `reader`, a product of what `first` gives, the step of both.
static bool join_second(vt_plan *plan, const vt_step *first, vt_step *reader, uint32_t input) {
  if (!takes_left(reader, input) || first->outputs[0]->type.dtype != VT_BF16) return false;
  const strip_body *then = in_strips(reader)->body;
  strip_body *body = VT_NEW(&plan->program->arena, strip_body);
  *body = *(const strip_body *)first->body;
  body->second = then->strip;
  int64_t dense = then->strip.m * then->strip.k; // the items in the order of the first's
  for (int32_t d = then->strip.batch_rank; d-- > 0; dense *= then->strip.batch_sizes[d])
    if (then->strip.batch_strides[0][d] != dense) return false;
  if (!vt_strip_prepare_second(&body->strip, &body->second)) return false;
  body->has_second = true;
  body->target = then->target;
  vt_value **values = first->inputs; // with room for one more
  values[first->input_count] = reader->inputs[then->sides[1]];
  vt_step both = {.op = reader->op, .run = run_strip, .runner = "strip", .body = body};
  vt_step_set_values(plan, &both, first->input_count + 1, values, 1, reader->outputs);
  reserve(&both, body);
  *reader = both;
  return true;
}

// The group that adds up squares of distances from a mean joins the step that makes the sums, where
// it comes soon after it.
static void join_spread(vt_plan *plan, vt_step *step, vt_step *end) {
  enum { SOON = 8 };
  strip_body *body = step->body;
  if (step->run != run_strip || !body->adds || !body->keeps || step->output_count != 2 ||
      !vt_is_plain_sum(body->group))
    return;
  const vt_strip *strip = &body->strip;
  int64_t rows = strip->items * strip->m;
  for (vt_step *next = step + 1; next < end && next <= step + SOON; next++) {
    vt_group *group = vt_step_group(next);
    bool whole, sums;
    if (!group || !vt_is_spread(group, step->outputs[1], step->outputs[0], rows, &body->spread) ||
        !vt_group_takes_rows(group, body->spread.port, rows, strip->n, &whole, &sums) || !sums)
      continue;
    body->spread.kernel = vt_step_kernel_of(next);
    body->spreads = true;
    vt_value **outputs = VT_NEW_ARRAY(&plan->program->arena, vt_value *, 3);
    outputs[0] = step->outputs[0], outputs[1] = next->outputs[0], outputs[2] = step->outputs[1];
    vt_step_set_values(plan, step, step->input_count, step->inputs, 3, outputs);
    next->run = NULL;
    return;
  }
}

// Joins a step with the first of its readers; with a group that adds up also where there are more.
static bool join_any(vt_plan *plan, const vt_step *step, vt_step *reader, bool once) {
  step = in_strips(step);
  if (!step || step->output_count != 1) return false;
  const strip_body *body = step->body;
  int32_t input = only_input(plan, reader, step->outputs[0]);
  if (input < 0 || body->has_second) return false;
  if (body->kernel && (!once || body->keeps || body->adds)) return false;
  if (body->kernel) return join_second(plan, step, reader, (uint32_t)input);
  return vt_step_group(reader) && step->input_count == 2 && body->target.dtype == VT_F32 &&
         is_dense(&body->strip, &body->target) && join(plan, step, reader, (uint32_t)input, !once);
}

// By value id: how many steps and returns read it, and the first of the steps.
typedef struct step_readers {
  uint32_t *count;
  vt_step **first;
} step_readers;

static step_readers find_readers(const vt_plan *plan, vt_arena *arena) {
  step_readers r = {VT_NEW_ARRAY(arena, uint32_t, plan->value_count),
                    VT_NEW_ARRAY(arena, vt_step *, plan->value_count)};
  for (uint32_t i = 0; i < plan->result_count; i++) r.count[plan->returns[i]->id]++;
  for (uint32_t s = 0; s < plan->step_count; s++)
    for (uint32_t i = 0; i < plan->steps[s].input_count; i++) {
      int32_t root = plan->roots[plan->steps[s].inputs[i]->id]->id;
      r.count[root]++;
      if (!r.first[root]) r.first[root] = &plan->steps[s];
    }
  return r;
}

// What alone reads a step's only result; NULL when there are more.
static vt_step *only_reader(const step_readers *r, const vt_step *step) {
  if (step->output_count != 1 || r->count[step->outputs[0]->id] != 1) return NULL;
  return r->first[step->outputs[0]->id];
}

// A product that is in strips only if others join it: a group and the product of what it gives.
static bool is_joined(const vt_plan *plan, const step_readers *r, const vt_step *step) {
  if (step->run == run_strip) return true;
  const vt_step *group = only_reader(r, step), *then = group ? only_reader(r, group) : NULL;
  int32_t input = then ? only_input(plan, then, group->outputs[0]) : -1;
  return input >= 0 && takes_left(then, (uint32_t)input);
}

void vt_plan_strips(vt_plan *plan) {
  vt_arena scratch = {0};
  step_readers r = find_readers(plan, &scratch);
  uint32_t kept = 0;
  for (uint32_t s = 0; s < plan->step_count; s++) {
    vt_step *step = &plan->steps[s];
    if (!step->run) continue; // has joined one before it
    join_spread(plan, step, plan->steps + plan->step_count);
    bool once = only_reader(&r, step) != NULL;
    vt_step *reader = step->output_count == 1 ? r.first[step->outputs[0]->id] : NULL;
    bool joined = reader && is_joined(plan, &r, step) && join_any(plan, step, reader, once);
    // Readers are behind what has been moved.
    if (!joined) plan->steps[kept++] = *step;
  }
  plan->step_count = kept;
  vt_arena_free(&scratch);
}
