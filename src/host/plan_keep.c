// SPDX-License-Identifier: Apache-2.0
// plan_keep.c - keeps values computed from parameters alone between runs while the parameters stay
// the same.
//
// Inference reads the same weights in every run, rounds them to bf16 and reorders them for the
// matrix unit: for small batches that is most of the time. The caller numbers the contents of
// parameters (vt_run.versions). Where a step, or the weights of a contraction, depends only on
// parameters whose numbers match the previous run's, its result is kept, and later runs skip it
// until a number changes. The memory of a training step's weights changes in every run, so nothing
// is kept there.
//
// The weights of a contraction in a loop that does not change them are laid out in the first turn,
// in memory of the step that runs the loop.
//
// Requirements:
//  1. A kept value is never written in place: it has a memory class of its own (plan_memory.c).
//  2. A run that fails keeps nothing.
//  3. All kept values in the process use at most a quarter of the machine's memory.
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "host/plan.h"

enum { MIN_BYTES = 64 << 10, HOST_SHARE = 4 };

static _Atomic int64_t kept_bytes; // in the process

static int64_t most_bytes(void) {
  return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / HOST_SHARE;
}

static bool reserve(int64_t bytes) {
  if (atomic_fetch_add(&kept_bytes, bytes) + bytes <= most_bytes()) return true;
  atomic_fetch_sub(&kept_bytes, bytes);
  return false;
}

static void drop(vt_kept *kept) {
  if (kept->memory) {
    vt_host_free(kept->memory);
    atomic_fetch_sub(&kept_bytes, kept->bytes);
  }
  vt_assert(atomic_load(&kept_bytes) >= 0);
  kept->memory = NULL;
  kept->wanted = kept->ready = false;
}

// ---- Which steps.

static bool is_param(const vt_value *root) {
  return !root->op && root->index >= 0;
}

// A training step that donates nothing returns each weight's next value.
static bool is_returned(const vt_plan *plan, const vt_value *param) {
  for (uint32_t i = 0; i < plan->func->return_count; i++)
    if (vt_type_equal(plan->func->returns[i]->type, param->type)) return true;
  return false;
}

// A parameter of a loop that its turns hand on, or do not see; before steps are made.
static bool is_handed_on(const vt_plan *loop, const vt_value *value) {
  if (loop->frame_count != 1 || !is_param(value)) return false;
  uint32_t index = (uint32_t)value->index;
  return index >= loop->func->return_count || loop->func->returns[index] == value;
}

bool vt_keep_likely(const vt_plan *plan, const vt_value *value) {
  enum { LONGEST_CHAIN = 8 };
  if (plan->kind == VT_PLAN_LOOP) return is_handed_on(plan, value);
  if (plan->kind != VT_PLAN_MAIN) return false;
  for (int i = 0; i < LONGEST_CHAIN && value->op; i++) {
    bool pure = !value->op->region_count && vt_op_own_operands(value->op) == 1;
    if (!pure) return false;
    value = value->op->operands[0];
  }
  return is_param(value) && !is_returned(plan, value) && vt_param_stays(plan, value);
}

bool vt_param_stays(const vt_plan *plan, const vt_value *param) {
  uint32_t index = (uint32_t)param->index;
  if (plan->kind == VT_PLAN_LOOP) return index >= plan->result_count || plan->invariant[index];
  const vt_io_info *info = plan->func->param_info;
  return plan->kind == VT_PLAN_MAIN &&
         (!info || (!info[index].donor && info[index].alias_output < 0));
}

typedef struct keeper {
  vt_plan *plan;
  vt_kept **of_value; // by value id: how it is kept
  uint32_t *readers;  // by value id: steps and returns that need it in memory
} keeper;

static const vt_value *root_of(const keeper *k, const vt_value *value) {
  return k->plan->roots[value->id];
}

static bool is_constant(const vt_value *root) {
  return root->op && root->op->code == VT_OP_CONSTANT;
}

static void add_param(vt_kept *kept, uint32_t param) {
  for (uint32_t i = 0; i < kept->param_count; i++)
    if (kept->params[i] == param) return;
  kept->params[kept->param_count++] = param;
}

// Adds the parameters that `value` depends on; false when it depends on anything else.
static bool add_source(const keeper *k, vt_kept *kept, const vt_value *value) {
  vt_assert(value->id >= 0 && (uint32_t)value->id < k->plan->value_count);
  const vt_value *root = root_of(k, value);
  if (is_constant(root)) return true;
  if (is_param(root)) {
    add_param(kept, (uint32_t)root->index);
    return true;
  }
  const vt_kept *from = k->of_value[root->id];
  for (uint32_t i = 0; from && i < from->param_count; i++) add_param(kept, from->params[i]);
  return from != NULL;
}

static int64_t min_bytes(const keeper *k) {
  return k->plan->program->options.compile_all ? 1 : MIN_BYTES;
}

static vt_kept *new_kept(const keeper *k) {
  vt_arena *arena = &k->plan->program->arena;
  vt_kept *kept = VT_NEW(arena, vt_kept);
  kept->params = VT_NEW_ARRAY(arena, uint32_t, k->plan->param_count);
  return kept;
}

static void keep_step(keeper *k, vt_step *step) {
  vt_kept *kept = new_kept(k);
  for (uint32_t i = 0; i < step->input_count; i++)
    if (!add_source(k, kept, step->inputs[i])) return;
  for (uint32_t i = 0; i < step->output_count; i++) {
    const vt_value *out = step->outputs[i];
    if (root_of(k, out) != out || k->plan->roots[out->id]->type.dtype == VT_TOKEN) return;
    for (uint32_t r = 0; r < k->plan->result_count; r++)
      if (k->plan->returns[r] == out) return;
    kept->bytes += vt_padded_bytes(vt_type_bytes(out->type));
  }
  if (!kept->param_count || kept->bytes < min_bytes(k)) return;
  kept->skips = true;
  step->kept = kept;
  for (uint32_t i = 0; i < step->output_count; i++) k->of_value[step->outputs[i]->id] = kept;
}

static void keep_weights(keeper *k, vt_step *step) {
  vt_assert(step->weights_input >= 0 && step->weights_input < (int32_t)step->input_count);
  vt_kept *kept = new_kept(k);
  if (!add_source(k, kept, step->inputs[step->weights_input]) || !kept->param_count) return;
  kept->bytes = vt_padded_bytes(step->weights_bytes);
  if (kept->bytes >= min_bytes(k)) step->kept = kept;
}

static void count_readers(keeper *k) {
  for (uint32_t s = 0; s < k->plan->step_count; s++) {
    const vt_step *step = &k->plan->steps[s];
    for (uint32_t i = 0; i < step->input_count; i++) {
      bool replaced = step->kept && !step->kept->skips && (int32_t)i == step->weights_input;
      k->readers[root_of(k, step->inputs[i])->id] += !replaced;
    }
  }
}

// Whether a loop's value is the same in all turns.
static bool is_fixed(const vt_plan *loop, const vt_value *value) {
  const vt_value *root = loop->roots[value->id];
  return is_param(root) ? vt_param_stays(loop, root) : is_constant(root);
}

static void keep_in_loop(vt_plan *loop) {
  if (loop->frame_count != 1) return; // a step has one place for all of them
  keeper k = {.plan = loop};
  for (uint32_t s = 0; s < loop->step_count; s++) {
    vt_step *step = &loop->steps[s];
    if (step->weights_bytes < min_bytes(&k) || !is_fixed(loop, step->inputs[step->weights_input]))
      continue;
    if (loop->kept_bytes + step->weights_bytes > most_bytes()) return;
    step->kept = VT_NEW(&loop->program->arena, vt_kept);
    step->kept->bytes = vt_padded_bytes(step->weights_bytes);
    step->kept->place = loop->kept_bytes;
    loop->kept_bytes += step->kept->bytes;
  }
}

void vt_plan_keep(vt_plan *plan) {
  if (plan->program->small) return;
  if (plan->kind == VT_PLAN_LOOP) keep_in_loop(plan);
  if (plan->kind != VT_PLAN_MAIN) return;
  vt_arena scratch = {0};
  keeper k = {.plan = plan,
              .of_value = VT_NEW_ARRAY(&scratch, vt_kept *, plan->value_count),
              .readers = VT_NEW_ARRAY(&scratch, uint32_t, plan->value_count)};
  for (uint32_t s = 0; s < plan->step_count; s++) {
    vt_step *step = &plan->steps[s];
    if (step->weights_bytes)
      keep_weights(&k, step);
    else if (step->repeatable)
      keep_step(&k, step);
  }
  count_readers(&k);
  for (uint32_t s = 0; s < plan->step_count; s++) {
    const vt_step *step = &plan->steps[s];
    if (!step->kept) continue;
    bool read = !step->kept->skips;
    for (uint32_t i = 0; step->kept->skips && i < step->output_count; i++)
      read |= k.readers[step->outputs[i]->id] > 0;
    if (!read) step->kept->bytes = 0; // only used for weights, which are kept
    vt_array_push(&plan->program->kept, step->kept);
  }
  if (plan->program->kept.size)
    plan->program->last_versions = VT_NEW_ARRAY(&plan->program->arena, uint64_t, plan->param_count);
  vt_arena_free(&scratch);
}

// ---- Runs.

static void bind_outputs(const vt_step *step, vt_frame *frame) {
  vt_assert(step->kept->skips && step->kept->memory);
  char *at = step->kept->memory;
  for (uint32_t i = 0; i < step->output_count; i++) {
    frame->slots[step->output_slots[i]] = at;
    at += vt_padded_bytes(vt_type_bytes(step->outputs[i]->type));
  }
}

static void begin(vt_program *program, vt_kept *kept, const bool *same) {
  bool all = true;
  for (uint32_t i = 0; i < kept->param_count; i++) all &= same[kept->params[i]];
  if (!all) {
    drop(kept);
  } else if (!kept->ready) {
    if (kept->bytes && !kept->memory && reserve(kept->bytes) &&
        !(kept->memory = vt_host_alloc(kept->bytes)))
      atomic_fetch_sub(&kept_bytes, kept->bytes);
    kept->wanted = true;
    program->keep_failed |= kept->bytes && !kept->memory;
  }
}

void vt_keep_begin(vt_program *program, const vt_run *run, vt_frame *frame) {
  if (!program->kept.size) return;
  const vt_plan *plan = program->plan;
  vt_arena scratch = {0};
  bool *same = VT_NEW_ARRAY(&scratch, bool, plan->param_count);
  for (uint32_t i = 0; i < plan->param_count; i++) {
    uint64_t version = run->versions ? run->versions[i] : 0;
    same[i] = version && version == program->last_versions[i] && !program->keep_failed;
    program->last_versions[i] = version;
  }
  for (size_t i = 0; i < program->kept.size; i++) begin(program, program->kept.data[i], same);
  vt_arena_free(&scratch);
  if (program->keep_failed) vt_keep_drop(program);
  for (uint32_t s = 0; s < plan->step_count; s++)
    if (plan->steps[s].kept && plan->steps[s].kept->skips && plan->steps[s].kept->memory)
      bind_outputs(&plan->steps[s], frame);
}

void vt_keep_drop(vt_program *program) {
  for (size_t i = 0; i < program->kept.size; i++) drop(program->kept.data[i]);
}

void vt_keep_begin_loop(const vt_plan *loop, char *memory) {
  for (uint32_t s = 0; s < loop->step_count; s++) {
    vt_kept *kept = loop->steps[s].kept;
    if (!kept) continue;
    kept->memory = memory + kept->place;
    kept->wanted = true;
    kept->ready = false;
  }
}
