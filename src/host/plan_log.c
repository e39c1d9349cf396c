// SPDX-License-Identifier: Apache-2.0
// plan_log.c - with VTPU_LOG=debug: what a program was compiled to, and, when it is destroyed,
// where its time went.
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/text.h"
#include "host/plan.h"

uint64_t vt_step_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void describe(const vt_step *step, vt_text *text) {
  vt_arena scratch = {0};
  vt_text_printf(text, "%-9s ", step->runner);
  vt_text_put(text, step->op            ? vt_op_describe(step->op, &scratch)
                    : step->input_count ? "copy of a result"
                                        : "for a loop");
  for (uint32_t i = 0; i < step->input_count && i < 4; i++) {
    vt_text_put(text, i ? ", " : "  ");
    vt_type_print(text, step->inputs[i]->type);
  }
  if (step->input_count > 4) vt_text_printf(text, ", +%u", step->input_count - 4);
  for (uint32_t i = 0; i < step->output_count && i < 4; i++) {
    vt_text_put(text, i ? ", " : " -> ");
    vt_type_print(text, step->outputs[i]->type);
  }
  if (step->output_count > 4) vt_text_printf(text, ", +%u", step->output_count - 4);
  vt_arena_free(&scratch);
}

static void log_donations(const vt_plan *plan) {
  const vt_io_info *info = plan->func->param_info;
  uint32_t given = 0, used = 0;
  for (uint32_t i = 0; info && i < plan->param_count; i++) {
    bool donated = info[i].alias_output >= 0 || info[i].donor;
    given += donated;
    used += plan->alias_result[i] >= 0;
    if (donated && plan->alias_result[i] < 0)
      vt_log(VT_LOG_DEBUG, "  parameter %u keeps its memory", i);
  }
  if (given)
    vt_log(VT_LOG_DEBUG, "  %u of %u donated parameters become results in place", used, given);
}

void vt_program_log(const vt_program *program) {
  if (!vt_log_on(VT_LOG_DEBUG)) return;
  vt_log(VT_LOG_DEBUG, "program %s: %zu plans, %zu kernels, %" PRId64 " bytes of temporaries%s",
         program->module->name, program->plan_order.size, program->kernels.size,
         program->plan->temp_bytes, program->small ? ", on the evaluator" : "");
  log_donations(program->plan);
  for (size_t p = 0; p < program->plan_order.size; p++) {
    const vt_plan *plan = program->plan_order.data[p];
    for (uint32_t s = 0; s < plan->step_count; s++) {
      vt_text text = {0};
      describe(&plan->steps[s], &text);
      vt_log(VT_LOG_DEBUG, "  %zu.%u %s", p, s, vt_text_string(&text));
      vt_text_free(&text);
    }
  }
}

// The time a step's runs would have taken at its best speed, so that a busy machine does not hide
// the ranking.
static double quiet_ms(const vt_step *step) {
  return (double)step->best_ns * (double)step->runs * 1e-6;
}

static int by_time(const void *a, const void *b) {
  double x = quiet_ms(*(const vt_step *const *)a), y = quiet_ms(*(const vt_step *const *)b);
  return x < y ? 1 : x > y ? -1 : 0;
}

void vt_program_log_times(const vt_program *program) {
  if (!vt_log_on(VT_LOG_DEBUG) || !program->plan) return;
  VT_ARRAY(const vt_step *) steps = {0};
  double total = 0, quiet = 0;
  for (size_t p = 0; p < program->plan_order.size; p++)
    for (uint32_t s = 0; s < program->plan_order.data[p]->step_count; s++) {
      const vt_step *step = &program->plan_order.data[p]->steps[s];
      if (!step->runs || step->nested) continue;
      total += (double)step->spent_ns * 1e-6;
      quiet += quiet_ms(step);
      vt_array_push(&steps, step);
    }
  if (steps.size) qsort(steps.data, steps.size, sizeof *steps.data, by_time);
  vt_log(VT_LOG_DEBUG, "program %s: %.3f ms in steps, %.3f if each had been as quick as its best",
         program->module->name, total, quiet);
  for (size_t i = 0; i < steps.size && i < 60; i++) {
    vt_text text = {0};
    describe(steps.data[i], &text);
    vt_log(VT_LOG_DEBUG, "  %10.3f ms = %" PRIu64 " runs x %.3f: %s", quiet_ms(steps.data[i]),
           steps.data[i]->runs, (double)steps.data[i]->best_ns * 1e-6, vt_text_string(&text));
    vt_text_free(&text);
  }
  vt_array_free(&steps);
}
