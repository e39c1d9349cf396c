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
#include "host/plan.h"
#include "host/steps.h"
#include "host/strip.h"

// Of sums that generated code reads, whose rows lie as far apart as the result's.
static const int64_t MAX_SUMS = 4 << 20;
// Rows from which each thread has enough strips of whole rows.
enum { WHOLE_ROWS = 256 };

typedef struct strip_body {
  vt_strip strip;
  bool laid; // the right side is laid out once
  int64_t laid_offset, scratch_offset;
  // What comes after: a group's code, or a bias and rounding.
  const vt_kernel *const *kernel;
  uint32_t port;   // of the group's inputs, that the sums are
  void **pointers; // the group's inputs and outputs, filled in per execution
  bool *stays;     // [input] may not be written to
  const float *bias;
  vt_dtype out;
  char *result;
} strip_body;

static void finish_kernel(void *user, float *sums, int64_t row, int64_t rows, int64_t column,
                          int64_t columns) {
  const strip_body *body = user;
  int64_t n = body->strip.n;
  vt_kernel_run_rows(*body->kernel, body->pointers, body->port, sums - row * n, n, row, row + rows,
                     column, column + columns);
}

AMX static void finish_plain(void *user, float *sums, int64_t row, int64_t rows, int64_t column,
                             int64_t columns) {
  const strip_body *body = user;
  for (int64_t i = 0; i < rows; i++) {
    const float *from = sums + i * body->strip.sums_row + column;
    int64_t at = (row + i) * body->strip.n + column;
    for (int64_t j = 0; j < columns; j += T) {
      __mmask16 mask = first16(columns - j);
      __m512 value = _mm512_maskz_loadu_ps(mask, from + j);
      if (body->bias)
        value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, body->bias + column + j));
      if (body->out == VT_F32)
        _mm512_mask_storeu_ps((float *)(void *)body->result + at + j, mask, value);
      else
        _mm256_mask_storeu_epi16((uint16_t *)(void *)body->result + at + j, mask,
                                 _mm512_cvtepi32_epi16(to_bf16(value)));
    }
  }
}

static vt_status run_strip(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  (void)exec;
  strip_body *body = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots, *scratch = slots[step->scratch_slot];
    const char *lhs = slots[step->input_slots[0]], *rhs = slots[step->input_slots[1]];
    char *laid = NULL;
    if (body->laid) {
      laid = step->kept && step->kept->memory ? step->kept->memory : scratch + body->laid_offset;
      if (!step->kept || !step->kept->ready) vt_strip_lay(&body->strip, rhs, laid);
    }
    if (body->kernel) {
      uint32_t at = 0, input = 2;
      for (; input < step->input_count; at++)
        if (at != body->port) body->pointers[at] = slots[step->input_slots[input++]];
      if (at == body->port) at++;
      for (uint32_t i = 0; i < step->output_count; i++)
        body->pointers[at + i] = slots[step->output_slots[i]];
    } else {
      body->bias =
          step->input_count == 3 ? (const float *)(void *)slots[step->input_slots[2]] : NULL;
      body->result = slots[step->output_slots[0]];
    }
    vt_strip_run(&body->strip, lhs, rhs, laid, scratch + body->scratch_offset,
                 body->kernel ? finish_kernel : finish_plain, body);
  }
  return VT_OK;
}

static void reserve(vt_step *step, strip_body *body) {
  step->scratch_bytes = step->weights_bytes = 0;
  if (body->laid) {
    body->laid_offset = vt_step_reserve(step, body->strip.rhs_bytes);
    step->weights_input = 1;
    step->weights_bytes = body->strip.rhs_bytes;
  }
  body->scratch_offset = vt_step_reserve(step, body->strip.scratch_bytes);
}

bool vt_step_strip(vt_plan *plan, vt_step *step, const vt_strip *given) {
  vt_dtype out = step->outputs[0]->type.dtype;
  vt_strip strip = *given;
  if (step->inputs[0]->type.dtype != VT_BF16 || step->inputs[1]->type.dtype != VT_BF16 ||
      (out != VT_F32 && out != VT_BF16))
    return false;
  if (!vt_strip_prepare(&strip) || !(vt_strip_pays(&strip) || plan->program->options.compile_all))
    return false;
  strip_body *body = VT_NEW(&plan->program->arena, strip_body);
  *body = (strip_body){.strip = strip, .laid = true, .out = out};
  for (int32_t d = 0; d < strip.batch_rank; d++) body->laid &= !strip.batch_strides[1][d];
  reserve(step, body);
  step->body = body;
  step->run = run_strip;
  step->runner = "strip";
  return true;
}

bool vt_step_strip_matmul(vt_plan *plan, vt_step *step, const vt_contraction *c) {
  if (c->batch.count > VT_STRIP_BATCH || c->m.count != 1 || c->n.count != 1 || c->k.count != 1)
    return false;
  const vt_dim *m = c->m.at, *n = c->n.at, *k = c->k.at;
  vt_strip strip = {.batch_rank = c->batch.count,
                    .m = m->size,
                    .n = n->size,
                    .k = k->size,
                    .lhs_row = m->lhs,
                    .rhs_row = k->rhs,
                    .rhs_column = n->rhs};
  if (k->lhs != 1 || n->out != 1 || m->out != n->size) return false;
  int64_t dense = m->size * n->size;
  for (int32_t d = c->batch.count; d-- > 0;) {
    const vt_dim *b = &c->batch.at[d];
    if (b->out != dense) return false;
    dense *= b->size;
    strip.batch_sizes[d] = b->size;
    strip.batch_strides[0][d] = b->lhs, strip.batch_strides[1][d] = b->rhs;
  }
  return vt_step_strip(plan, step, &strip);
}

bool vt_step_is_strip(const vt_step *step) {
  return step->run == run_strip;
}

// ---- Kernels that take the sums.

static bool strip_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  const strip_body *body = step->body;
  if (input < 2 || body->stays[input]) return false;
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

// Makes `reader` the step of both; false when its code does not work row by row.
static bool join(vt_plan *plan, const vt_step *product, vt_step *reader, uint32_t port) {
  vt_arena *arena = &plan->program->arena;
  strip_body *body = VT_NEW(arena, strip_body);
  *body = *(const strip_body *)product->body;
  vt_strip *strip = &body->strip;
  const vt_group *group = vt_step_group(reader);
  int64_t rows = strip->items * strip->m;
  if (!vt_group_takes_rows(group, port, rows, strip->n, &strip->whole_rows)) return false;
  if (strip->whole_rows && rows < WHOLE_ROWS * (int64_t)strip->threads) return false;
  strip->spread = true;
  if (!vt_strip_prepare(strip) || strip->sums_bytes > MAX_SUMS) return false;
  uint32_t inputs = reader->input_count + 1;
  vt_value **values = VT_NEW_ARRAY(arena, vt_value *, inputs);
  memcpy(values, product->inputs, sizeof *values * 2);
  for (uint32_t i = 0, at = 2; i < reader->input_count; i++)
    if (i != port) values[at++] = reader->inputs[i];
  body->stays = VT_NEW_ARRAY(arena, bool, inputs);
  for (uint32_t i = 2; i < inputs; i++)
    for (uint32_t side = 0; side < 2; side++)
      body->stays[i] |= plan->roots[values[i]->id] == plan->roots[values[side]->id];
  body->kernel = vt_step_kernel_of(reader);
  body->port = port;
  body->pointers = VT_NEW_ARRAY(arena, void *, reader->input_count + reader->output_count);
  vt_step both = {.op = reader->op, .run = run_strip, .runner = "strip", .body = body};
  vt_step_set_values(plan, &both, inputs, values, reader->output_count, reader->outputs);
  both.in_place_ok = strip_in_place_ok;
  reserve(&both, body);
  *reader = both;
  return true;
}

static bool joins_later(const vt_step *step) {
  const strip_body *body = step->body;
  return step->run == run_strip && !body->kernel && step->input_count == 2 && body->out == VT_F32;
}

void vt_plan_strips(vt_plan *plan) {
  vt_arena scratch = {0};
  uint32_t *readers = VT_NEW_ARRAY(&scratch, uint32_t, plan->value_count);
  vt_step **last = VT_NEW_ARRAY(&scratch, vt_step *, plan->value_count);
  for (uint32_t r = 0; r < plan->result_count; r++) readers[plan->returns[r]->id]++;
  for (uint32_t s = 0; s < plan->step_count; s++)
    for (uint32_t i = 0; i < plan->steps[s].input_count; i++) {
      int32_t root = plan->roots[plan->steps[s].inputs[i]->id]->id;
      readers[root]++;
      last[root] = &plan->steps[s];
    }
  uint32_t kept = 0;
  for (uint32_t s = 0; s < plan->step_count; s++) {
    vt_step *step = &plan->steps[s];
    bool joined = false;
    if (joins_later(step) && readers[step->outputs[0]->id] == 1) {
      vt_step *reader = last[step->outputs[0]->id];
      int32_t port =
          reader && vt_step_group(reader) ? only_input(plan, reader, step->outputs[0]) : -1;
      joined = port >= 0 && join(plan, step, reader, (uint32_t)port);
    }
    // `last` points behind what has been moved.
    if (!joined) plan->steps[kept++] = *step;
  }
  plan->step_count = kept;
  vt_arena_free(&scratch);
}
