// SPDX-License-Identifier: Apache-2.0
// plan_overlap.c - collectives with other processes go on beside other steps.
//
// Such a collective becomes two steps. The first puts it into the queue of the run (base/queue.h),
// whose thread does it; the second waits until it is done. Its operands and results have their
// memory from the first to the second. What is computed, and by which function, stays: so do the
// bits.
//
// The order of steps is that of the program, but:
// 1. A collective starts as soon as its operands are there, as long as not too many bytes are on
//    their way.
// 2. It is waited for when nothing else is left to do: steps further down that do not need it come
//    before those that do, as long as they do not write too much.
// 3. Collectives start in the order of the program: it is the same in all processes. Steps with
//    effects, and those that contain collectives, keep their order among them.
// Cost: O(steps), with a window of steps to look ahead.
#include <immintrin.h>
#include <string.h>

#include "base/check.h"
#include "base/queue.h"
#include "host/plan.h"

enum {
  LOOK_AHEAD = 256,            // steps
  UNDER_WAY_BYTES = 256 << 20, // at most, of more than one collective
  AHEAD_BYTES = 256 << 20,     // likewise, written by steps that come before their turn
  NEAR_BYTES = 64 << 10,       // smaller ones are not worth a thread's waking within a host
  FLUSH_SUBNORMALS = 0x8040,   // FTZ and DAZ, as on the thread that runs the program
};
// Less is not worth two steps: 20 us, at eight units of work (vt_host_work) in 1 ns.
static const double LEAST_WORK = 20e3 * 8;
static const uint32_t NONE = UINT32_MAX;

// ---- running ------------------------------------------------------------------------------------

// A collective of a plan, at most once under way.
typedef struct crossing {
  vt_task task;
  vt_step_run run;
  void *body; // of the step that it was
  int64_t bytes;
  vt_step step; // from here on: while it is under way
  vt_exec exec;
  vt_frame *const *frames;
  uint32_t count;
} crossing;

static vt_status run_task(vt_task *task) {
  crossing *c = (crossing *)(void *)task;
  unsigned csr = _mm_getcsr();
  _mm_setcsr(csr | FLUSH_SUBNORMALS);
  vt_status st = c->run(&c->step, &c->exec, c->frames, c->count);
  _mm_setcsr(csr);
  return st;
}

static vt_queue *queue_of(const vt_exec *exec) {
  return exec->run->meetings ? exec->run->meetings->queue : NULL;
}

static vt_status run_start(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  crossing *c = step->body;
  vt_queue *queue = queue_of(exec);
  c->step = *step;
  c->step.body = c->body;
  c->exec = *exec;
  c->frames = frames;
  c->count = count;
  c->task.run = run_task;
  c->task.beside = c->bytes >= NEAR_BYTES || (queue && exec->run->meetings->far);
  if (queue) vt_queue_put(queue, &c->task);
  return queue ? VT_OK : run_task(&c->task);
}

static vt_status run_finish(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                            uint32_t count) {
  (void)frames, (void)count;
  const crossing *c = step->body;
  vt_queue *queue = queue_of(exec);
  return queue ? vt_queue_wait(queue, &c->task) : VT_OK;
}

// One that nothing goes on beside: behind those that are under way.
static vt_status run_alone(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  const crossing *c = step->body;
  vt_queue *queue = queue_of(exec);
  if (queue) VT_TRY(vt_queue_wait(queue, NULL));
  vt_step as_it_was = *step;
  as_it_was.body = c->body;
  return c->run(&as_it_was, exec, frames, count);
}

void vt_overlap_end(const vt_run *run) {
  if (run->meetings && run->meetings->queue) vt_queue_clear(run->meetings->queue);
}

// ---- the order ----------------------------------------------------------------------------------

typedef enum progress { WAITS, STARTED, DONE } progress;

typedef struct node {
  progress progress;
  bool chained;    // keeps its order among those that are
  uint32_t number; // STARTED: among those that have
  uint32_t next;   // the next one
  crossing *way;
} node;

typedef struct scheduler {
  vt_plan *plan;
  node *nodes;        // by step
  uint32_t *producer; // by value id: the step that writes it, NONE
  uint32_t *chain, chain_size, chain_at;
  uint32_t oldest, newest, started; // STARTED, NONE; how many so far
  int64_t under_way, ahead;         // bytes
  vt_step *steps;                   // the new list
  uint32_t count;
  vt_arena scratch;
} scheduler;

static const vt_step *step_at(const scheduler *s, uint32_t i) {
  return &s->plan->steps[i];
}

static int64_t bytes_of(const vt_step *step) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < step->input_count; i++) bytes += vt_type_bytes(step->inputs[i]->type);
  return bytes;
}

static int64_t written_bytes(const vt_step *step) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < step->output_count; i++) bytes += vt_type_bytes(step->outputs[i]->type);
  return bytes;
}

static int64_t held_bytes(const vt_step *step) {
  return bytes_of(step) + written_bytes(step);
}

static uint32_t producer_of(const scheduler *s, const vt_value *value) {
  return s->producer[s->plan->roots[value->id]->id];
}

static bool contains_collective(const vt_op *op) {
  for (uint32_t i = 0; op && i < op->region_count; i++)
    if (vt_eval_has_collective(op->regions[i])) return true;
  const vt_func *callee = op ? vt_op_callee(op) : NULL;
  return callee && vt_eval_has_collective(callee);
}

static void prepare(scheduler *s) {
  vt_plan *plan = s->plan;
  s->nodes = VT_NEW_ARRAY(&s->scratch, node, plan->step_count);
  s->producer = VT_NEW_ARRAY(&s->scratch, uint32_t, plan->value_count);
  s->chain = VT_NEW_ARRAY(&s->scratch, uint32_t, plan->step_count);
  memset(s->producer, 0xff, sizeof *s->producer * plan->value_count);
  for (uint32_t i = 0; i < plan->step_count; i++) {
    const vt_step *step = &plan->steps[i];
    for (uint32_t k = 0; k < step->output_count; k++)
      s->producer[plan->roots[step->outputs[k]->id]->id] = i;
    bool effect = step->op && vt_op_has_effect(step->op);
    s->nodes[i].chained = step->crosses || effect || contains_collective(step->op);
    if (s->nodes[i].chained) s->chain[s->chain_size++] = i;
  }
}

// What it waits for of what has started; NONE = nothing. *out_ready: nor for anything else.
static uint32_t awaited(const scheduler *s, uint32_t i, bool *out_ready) {
  const vt_step *step = step_at(s, i);
  uint32_t found = NONE;
  *out_ready = !s->nodes[i].chained || s->chain[s->chain_at] == i;
  for (uint32_t k = 0; k < step->input_count; k++) {
    uint32_t from = producer_of(s, step->inputs[k]);
    if (from == NONE || s->nodes[from].progress == DONE) continue;
    *out_ready = false;
    if (s->nodes[from].progress != STARTED) continue;
    if (found == NONE || s->nodes[from].number > s->nodes[found].number) found = from;
  }
  return found;
}

static vt_step *put(scheduler *s, uint32_t i) {
  s->steps[s->count] = *step_at(s, i);
  return &s->steps[s->count++];
}

static void issue(scheduler *s, uint32_t i) {
  put(s, i);
  s->nodes[i].progress = DONE;
  s->chain_at += s->nodes[i].chained;
}

static void begin(scheduler *s, uint32_t i) {
  vt_step *step = put(s, i);
  node *n = &s->nodes[i];
  crossing *c = n->way = VT_NEW(&s->plan->program->arena, crossing);
  c->run = step->run;
  c->body = step->body;
  c->bytes = bytes_of(step);
  step->run = run_start;
  step->body = c;
  step->begins = true;
  n->progress = STARTED;
  n->number = s->started++;
  n->next = NONE;
  *(s->oldest == NONE ? &s->oldest : &s->nodes[s->newest].next) = i;
  s->newest = i;
  s->under_way += held_bytes(step);
  s->chain_at++;
}

// Waits for the oldest.
static uint32_t finish(scheduler *s) {
  uint32_t i = s->oldest;
  vt_assert(i != NONE);
  const vt_step *was = step_at(s, i);
  uint32_t in = was->input_count, out = was->output_count;
  vt_value **values = VT_NEW_ARRAY(&s->plan->program->arena, vt_value *, in + out);
  for (uint32_t k = 0; k < in; k++) values[k] = was->inputs[k];
  for (uint32_t k = 0; k < out; k++) values[in + k] = was->outputs[k];
  vt_step *step = &s->steps[s->count++];
  *step = (vt_step){.op = was->op,
                    .run = run_finish,
                    .body = s->nodes[i].way,
                    .runner = was->runner,
                    .ends = out};
  vt_step_set_values(s->plan, step, in + out, values, 0, NULL);
  s->nodes[i].progress = DONE;
  s->under_way -= held_bytes(was);
  s->oldest = s->nodes[i].next;
  s->ahead = 0;
  return i;
}

static void begin_what_can(scheduler *s) {
  while (s->chain_at < s->chain_size) {
    uint32_t i = s->chain[s->chain_at];
    bool ready;
    awaited(s, i, &ready);
    bool fits = s->oldest == NONE || s->under_way + held_bytes(step_at(s, i)) <= UNDER_WAY_BYTES;
    if (!ready || !fits || !step_at(s, i)->crosses) return;
    begin(s, i);
  }
}

// A step behind the first that can come before it; NONE.
static uint32_t look_ahead(const scheduler *s, uint32_t first) {
  uint32_t steps = s->plan->step_count;
  for (uint32_t i = first + 1; i < steps && i - first <= LOOK_AHEAD; i++) {
    bool ready;
    if (s->nodes[i].progress != WAITS || step_at(s, i)->crosses) continue;
    awaited(s, i, &ready);
    if (ready) return i;
  }
  return NONE;
}

static void schedule(scheduler *s) {
  uint32_t steps = s->plan->step_count;
  for (uint32_t first = 0;;) {
    begin_what_can(s);
    while (first < steps && s->nodes[first].progress != WAITS) first++;
    if (first == steps) break;
    bool ready;
    uint32_t wanted = awaited(s, first, &ready), other = NONE;
    if (ready && !step_at(s, first)->crosses) {
      issue(s, first);
      continue;
    }
    if (wanted != NONE && s->ahead < AHEAD_BYTES) other = look_ahead(s, first);
    if (other != NONE) {
      issue(s, other);
      s->ahead += written_bytes(step_at(s, other));
      continue;
    }
    while (finish(s) != wanted && wanted != NONE) {
    }
  }
  while (s->oldest != NONE) finish(s);
}

// ---- what is worth it ---------------------------------------------------------------------------

// Where nothing else is under way, and next to nothing is done before the wait, the two steps are
// one again. `work`: done since the start.
static void join(scheduler *s) {
  vt_step *steps = s->steps;
  uint32_t kept = 0, start = 0, open = 0;
  double work = 0, least = s->plan->program->options.compile_all ? 0 : LEAST_WORK;
  bool alone = false;
  for (uint32_t i = 0; i < s->count; i++) {
    vt_step step = steps[i];
    bool starts = step.run == run_start, ends = step.run == run_finish;
    if (starts) {
      alone = !open++;
      start = kept;
      work = 0;
    } else if (ends && !--open && alone && work <= least && steps[start].body == step.body) {
      steps[start].run = run_alone;
      steps[start].begins = false;
      continue;
    } else if (!ends && step.op) {
      work += vt_host_work(step.op);
    }
    steps[kept++] = step;
  }
  s->count = kept;
}

void vt_plan_overlap(vt_plan *plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->step_count; i++) count += plan->steps[i].crosses;
  if (!count) return;
  scheduler s = {.plan = plan, .oldest = NONE, .newest = NONE};
  prepare(&s);
  s.steps = VT_NEW_ARRAY(&plan->program->arena, vt_step, plan->step_count + count);
  schedule(&s);
  join(&s);
  plan->steps = s.steps;
  plan->step_count = plan->step_capacity = s.count;
  vt_arena_free(&s.scratch);
}
