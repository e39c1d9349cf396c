// SPDX-License-Identifier: Apache-2.0
// exec.c - running a plan: frames, the plain steps, and a run of a whole program.
#include <immintrin.h>
#include <omp.h>
#include <string.h>

#include "base/check.h"
#include "host/binding.h"
#include "host/cpu.h"
#include "host/plan.h"
#include "host/waiting.h"

enum { FLUSH_SUBNORMALS = 0x8040 }; // FTZ and DAZ in MXCSR, as the TPU has it

void vt_frame_bind(const vt_plan *plan, vt_frame *frame, char *memory) {
  vt_assert((memory || !plan->temp_bytes) && (uintptr_t)memory % 64 == 0);
  vt_assert_each(i, plan->temp_count,
                 plan->temp_offsets[i] >= 0 && plan->temp_offsets[i] <= plan->temp_bytes);
  char **slot = frame->slots + plan->param_count + plan->result_count;
  for (uint32_t i = 0; i < plan->constant_count; i++)
    *slot++ = (char *)(uintptr_t)plan->constants[i];
  for (uint32_t i = 0; i < plan->temp_count; i++) *slot++ = memory + plan->temp_offsets[i];
}

static inline vt_status run_step(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                                 uint32_t count) {
  if (!step->kept) return step->run(step, exec, frames, count);
  if (step->kept->ready && step->kept->skips) return VT_OK;
  VT_TRY(step->run(step, exec, frames, count));
  step->kept->ready = step->kept->wanted;
  return VT_OK;
}

static vt_status exec_timed(vt_exec *exec, const vt_plan *plan, vt_frame *const *frames,
                            uint32_t count) {
  for (uint32_t s = 0; s < plan->step_count; s++) {
    vt_step *step = &plan->steps[s];
    uint64_t start = vt_step_clock();
    VT_TRY(run_step(step, exec, frames, count));
    uint64_t took = vt_step_clock() - start;
    step->spent_ns += took;
    if (!step->runs++ || took < step->best_ns) step->best_ns = took;
  }
  return VT_OK;
}

vt_status vt_exec_plan(vt_exec *exec, const vt_plan *plan, vt_frame *const *frames,
                       uint32_t count) {
  vt_assert(count >= 1 && count <= plan->frame_count);
  if (exec->program->timed) return exec_timed(exec, plan, frames, count);
  for (uint32_t s = 0; s < plan->step_count; s++) {
    VT_TRY(run_step(&plan->steps[s], exec, frames, count));
  }
  return VT_OK;
}

static void fill_tensors(const vt_step *step, const vt_frame *frame, vt_tensor *tensors) {
  for (uint32_t i = 0; i < step->input_count; i++)
    tensors[i].data = frame->slots[step->input_slots[i]];
  for (uint32_t i = 0; i < step->output_count; i++)
    tensors[step->input_count + i].data = frame->slots[step->output_slots[i]];
}

static vt_status run_eval(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  vt_assert(exec->env.partition_count >= 1);
  for (uint32_t f = 0; f < count; f++) {
    fill_tensors(step, frames[f], step->tensors);
    exec->env.partition = (int32_t)frames[f]->index % exec->env.partition_count;
    exec->env.replica = (int32_t)frames[f]->index / exec->env.partition_count;
    VT_TRY(vt_eval_op(step->op, &exec->env, step->tensors, step->tensors + step->input_count));
  }
  return VT_OK;
}

static vt_status run_lanes(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  (void)exec;
  const vt_eval_loop *loop = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char *const *slots = frames[f]->slots;
    const void *in[3] = {0};
    for (uint32_t i = 0; i < step->input_count; i++) in[i] = slots[step->input_slots[i]];
    loop->run(loop->count, in[0], in[1], in[2], slots[step->output_slots[0]], loop->width);
  }
  return VT_OK;
}

static bool eval_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  return vt_eval_in_place_ok(step->op, input, output);
}

vt_status vt_step_eval(vt_plan *plan, vt_step *step) {
  if (!vt_eval_supports(step->op)) return vt_step_refuse(step, "not supported");
  bool alone = plan->program->small || plan->program->options.evaluator_only;
  vt_eval_loop loop;
  if (plan->program->small && vt_eval_find_loop(step->op, &loop)) {
    vt_eval_loop *kept = step->body = VT_NEW(&plan->program->arena, vt_eval_loop);
    *kept = loop;
    step->run = run_lanes;
  } else if (alone || !vt_step_elements(step)) {
    step->run = run_eval;
  }
  step->runner = "evaluator";
  step->in_place_ok = eval_in_place_ok;
  return VT_OK;
}

static vt_status run_copy(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  (void)exec;
  size_t bytes = (size_t)vt_type_bytes(step->inputs[0]->type);
  vt_assert(vt_type_bytes(step->outputs[0]->type) == (int64_t)bytes);
  for (uint32_t f = 0; f < count; f++) {
    const char *from = frames[f]->slots[step->input_slots[0]];
    char *to = frames[f]->slots[step->output_slots[0]];
    if (from != to && bytes) memcpy(to, from, bytes);
  }
  return VT_OK;
}

static bool copy_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  (void)step, (void)output, (void)input;
  return true;
}

void vt_step_copy(vt_step *step) {
  vt_assert(step->input_count == 1 && step->output_count == 1);
  step->run = run_copy;
  step->runner = "copy";
  step->in_place_ok = copy_in_place_ok;
}

// Each device's row of tensors, and the rows as vt_eval_collective expects them.
typedef struct collective_body {
  vt_tensor **rows;
  const vt_tensor **operands;
  vt_tensor **results;
} collective_body;

static vt_status run_collective(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                                uint32_t count) {
  (void)exec;
  const collective_body *body = step->body;
  vt_assert(count <= (uint32_t)exec->program->options.device_count);
  for (uint32_t f = 0; f < count; f++) fill_tensors(step, frames[f], body->rows[f]);
  return vt_eval_collective(step->op, (int32_t)count, body->operands, body->results);
}

static void destroy_part(void *body) {
  vt_part_destroy(*(vt_part **)body);
}

// The other devices run in other processes.
static vt_status run_part(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  vt_assert(count == 1);
  if (!exec->run->meetings)
    return vt_error(VT_FAILED_PRECONDITION, "a collective, and no other process is there");
  vt_part **part = step->body;
  if (!*part)
    VT_TRY(vt_part_create(step->op, exec->program->options.device_count, frames[0]->index, part));
  vt_eval_env env = exec->env;
  env.partition = frames[0]->index;
  fill_tensors(step, frames[0], step->tensors);
  return vt_part_run(*part, &env, step->tensors, step->tensors + step->input_count,
                     exec->run->meetings);
}

// Some of the other devices do.
static vt_status run_here(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  const collective_body *body = step->body;
  const vt_host_options *options = &exec->program->options;
  vt_assert(count == exec->program->here_count);
  if (!exec->run->meetings)
    return vt_error(VT_FAILED_PRECONDITION, "a collective, and no other process is there");
  for (uint32_t f = 0; f < count; f++) fill_tensors(step, frames[f], body->rows[frames[f]->index]);
  return vt_eval_collective_devices(step->op, &exec->env, options->device_count, options->part_of,
                                    options->only - 1, body->operands, body->results,
                                    exec->run->meetings);
}

// Each device is in a process of its own: then less has to travel than where some are together.
static bool one_by_one(const vt_host_options *options) {
  for (int32_t d = 0; d < options->device_count; d++)
    if (options->part_of[d] != d) return false;
  return true;
}

vt_status vt_step_collective(vt_plan *plan, vt_step *step) {
  const vt_program *program = plan->program;
  int32_t devices = program->options.device_count;
  if (program->options.only && (!program->here || one_by_one(&program->options))) {
    step->run = run_part;
    step->body = VT_NEW(&plan->program->arena, vt_part *);
    step->runner = "processes";
    step->crosses = true;
    plan->collective = true;
    (void)vt_program_own(plan->program, destroy_part, step->body);
    return VT_OK;
  }
  if (plan->frame_count == 1 && devices == 1) return vt_step_eval(plan, step);
  if (plan->frame_count != (program->here ? program->here_count : (uint32_t)devices))
    return vt_step_refuse(step, "a collective outside of a manual region, as in the program of one "
                                "device that compiling gives: run the one that was compiled");
  vt_arena *arena = &plan->program->arena;
  collective_body *body = VT_NEW(arena, collective_body);
  uint32_t tensors = step->input_count + step->output_count;
  body->rows = VT_NEW_ARRAY(arena, vt_tensor *, devices);
  body->operands = VT_NEW_ARRAY(arena, const vt_tensor *, devices);
  body->results = VT_NEW_ARRAY(arena, vt_tensor *, devices);
  for (int32_t d = 0; d < devices; d++) {
    if (program->here && program->options.part_of[d] != program->options.only - 1) continue;
    body->rows[d] = VT_NEW_ARRAY(arena, vt_tensor, tensors);
    memcpy(body->rows[d], step->tensors, sizeof(vt_tensor) * tensors);
    body->operands[d] = body->rows[d];
    body->results[d] = body->rows[d] + step->input_count;
  }
  step->run = program->here ? run_here : run_collective;
  step->runner = program->here ? "processes" : "lockstep";
  step->crosses = program->here != NULL;
  step->body = body;
  plan->collective = true;
  return VT_OK;
}

// The flags of the team's threads outlive a parallel region, so they are set once per team and
// size.
static void flush_subnormals_in_team(void) {
  static _Thread_local int ready;
  int threads = omp_get_max_threads();
  if (ready == threads) return;
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | FLUSH_SUBNORMALS);
  ready = threads;
}

vt_status vt_program_run(vt_program *program, const vt_run *run) {
  const vt_plan *plan = program->plan;
  vt_assert(plan->kind == VT_PLAN_MAIN && plan->frame_count == 1);
  int32_t replicas = program->module->num_replicas;
  if (replicas < 1 || program->options.device_count % replicas) replicas = 1;
  vt_exec exec = {.program = program,
                  .run = run,
                  .env = {.partition_count = program->options.device_count / replicas,
                          .replica_count = replicas,
                          .exact_dots = program->options.exact_dots,
                          .transfer = run->transfer}};
  vt_frame *frame = &plan->frames[0];
  char *memory = NULL;
  if (plan->temp_bytes) {
    memory = vt_host_alloc(plan->temp_bytes);
    if (!memory)
      return vt_error(VT_RESOURCE_EXHAUSTED,
                      "host memory: %lld bytes of temporaries for program %s",
                      (long long)plan->temp_bytes, program->module->name);
  }
  unsigned csr = _mm_getcsr();
  if (!program->quick) {
    vt_waiting_begin();
    // Callbacks and meetings may start threads.
    if (vt_host_virtual() && !run->transfer && !run->meetings) vt_binding_begin();
    flush_subnormals_in_team();
  }
  _mm_setcsr(csr | FLUSH_SUBNORMALS);
  for (uint32_t i = 0; i < plan->param_count; i++) frame->slots[i] = run->params[i];
  for (uint32_t i = 0; i < plan->result_count; i++)
    frame->slots[vt_result_slot(plan, i)] = run->results[i];
  vt_frame_bind(plan, frame, memory);
  vt_keep_begin(program, run, frame);
  vt_status st = vt_exec_plan(&exec, plan, &frame, 1);
  if (st) {
    vt_overlap_end(run);
    vt_keep_drop(program);
  }
  _mm_setcsr(csr);
  vt_binding_end();
  if (!program->quick) vt_waiting_end();
  vt_host_free(memory);
  return st;
}
