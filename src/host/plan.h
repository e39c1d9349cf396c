// SPDX-License-Identifier: Apache-2.0
// plan.h - a function as a list of steps over memory slots, with everything needed to run it.
// Internal to src/host.
//
// Every value of the function lives in a slot. Slots in order: parameters, results, constants,
// temporaries; a run resolves each to an address once, then walks the steps. A plan is run on
// frames: one for the whole program, or one per device inside a manual region, where all devices do
// the same step before any does the next.
// Plans of regions and callees are nested: their temporaries are part of the scratch of the step
// that runs them, so a run needs one block of memory.
// Invariants:
//  1. A step writes only its outputs and its scratch, and reads no slot after its last use in step
//     order.
//  2. Parameter slots are never written, except carried parameters of a loop body (plan_kind
//     VT_PLAN_LOOP).
//  3. Every result slot is written by exactly the steps whose value was merged into it, the
//     returned value last.
#ifndef VT_HOST_PLAN_H
#define VT_HOST_PLAN_H

#include "base/array.h"
#include "base/map.h"
#include "eval/eval.h"
#include "host/host.h"
#include "host/kernel.h"

typedef struct vt_plan vt_plan;
typedef struct vt_step vt_step;
typedef struct vt_exec vt_exec;

// What a step keeps for later runs, see plan_keep.c.
typedef struct vt_kept {
  uint32_t param_count, *params; // of the main function: all parameters it depends on
  int64_t bytes;                 // 0: everything that reads it is kept itself
  int64_t place;                 // of a loop: in its memory
  char *memory;
  bool skips;  // a step's outputs, so it need not run; else a contraction's weights
  bool wanted; // the current run leaves it in memory
  bool ready;  // it is in memory
} vt_kept;

typedef struct vt_frame {
  char **slots;   // addresses by slot number
  uint32_t place; // among the frames of its plan
  int32_t index;  // device, 0 in the whole program
} vt_frame;

// Runs a step for `count` frames of its plan.
typedef vt_status (*vt_step_run)(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                                 uint32_t count);

struct vt_step {
  vt_step_run run;
  const vt_op *op; // for messages and the evaluator; the last op of a fused group
  uint32_t input_count, output_count;
  vt_value **inputs, **outputs;
  uint32_t *input_slots, *output_slots;
  vt_tensor *tensors;    // input_count + output_count, addresses filled in per execution
  int64_t scratch_bytes; // needed while the step runs
  uint32_t scratch_slot; // valid when scratch_bytes > 0
  bool (*in_place_ok)(const vt_step *step, uint32_t output, uint32_t input); // NULL: never
  // Called once before the plan's memory is laid out, when nested plans and kernels exist; may be
  // NULL.
  vt_status (*prepare)(vt_plan *plan, vt_step *step);
  void *body;            // of the kind of step
  bool repeatable;       // equal inputs give equal outputs, no side effects
  int32_t weights_input; // a contraction that lays out an input for itself:
  int64_t weights_bytes; // so large; 0 = none
  vt_kept *kept;         // NULL for most
  bool nested;           // runs nested plans, whose steps are timed separately
  bool crosses;          // a collective with other processes
  bool begins;           // its outputs are written when another step
  uint32_t ends;         // waits for them, which has them as its last inputs
  const char *runner;    // "evaluator", "kernel", "onednn", ...: for the log
  const vt_step *strip;  // what it becomes where others join it (exec_strip.c); NULL for most
  uint64_t spent_ns, best_ns, runs; // only where VTPU_LOG=debug
};

// A value whose address steps set while the plan runs (plan_views.c).
typedef struct vt_moving {
  bool moves;
  bool elsewhere; // always: it needs no memory
  uint32_t home;  // slot of its memory; its own has the address
} vt_moving;

typedef enum vt_plan_kind { VT_PLAN_MAIN, VT_PLAN_LOOP, VT_PLAN_REGION } vt_plan_kind;

struct vt_plan {
  vt_program *program;
  vt_func *func;
  vt_plan_kind kind;
  uint32_t carried; // LOOP: the first parameters, which the returns replace
  uint32_t step_count, step_capacity;
  vt_step *steps;
  uint32_t param_count, result_count;
  uint32_t constant_count;
  const void **constants; // addresses; slots behind those of the results
  uint32_t temp_count;
  int64_t *temp_offsets; // in the frame's memory; slots behind those of the constants
  int64_t temp_bytes;    // of one frame
  uint32_t frame_count;
  vt_frame *frames;
  bool *in_place_result; // LOOP: result i is written into parameter i's memory
  bool *invariant;       // LOOP: parameter i is returned unchanged; its result slot is unused
  int64_t kept_bytes;    // LOOP: of weights that are laid out once for all turns
  int32_t *alias_result; // MAIN: per parameter the result that may share its memory, -1 none
  int32_t *shared_param; // REGION, may be NULL: per result the parameter that it may share memory
                         // with, -1 none; before vt_plan_memory the preferred one
  bool collective;       // contains a collective, also inside regions

  vt_moving *moving; // by value id

  // While the plan is made: by value id, with room for the values that plan.c adds.
  uint32_t value_count, value_room;
  vt_value **roots;   // the value whose bytes this one names, usually itself
  vt_value **returns; // roots or values made by added copies
};

struct vt_exec {
  vt_program *program;
  const vt_run *run;
  vt_eval_env env;
};

// A library object to be destroyed with the program.
typedef struct vt_owned {
  void (*destroy)(void *object);
  void *object;
} vt_owned;

struct vt_program {
  vt_arena arena; // plans; the module has its own
  vt_module *module;
  vt_host_options options;
  vt_plan *plan;
  uint32_t here_count;  // options.part_of: the devices that run here
  int32_t *here;        // [here_count] positions; NULL: all devices, or one
  bool small;           // evaluator only
  bool quick;           // no team of threads: the calling one runs it, small or not
  bool without_kernels; // each op a step of its own
  bool timed;           // VTPU_LOG=debug
  vt_jit *jit;
  vt_map plans;                              // (function, frames, kind) -> vt_plan
  VT_ARRAY(vt_plan *) plan_order;            // nested plans before the plans that run them
  VT_ARRAY(struct vt_kernel_body *) kernels; // steps of fused groups, compiled all at once
  VT_ARRAY(void *) heap;                     // vt_host_alloc blocks of large constants
  VT_ARRAY(vt_owned) owned;
  bool no_memory; // for one of them
  VT_ARRAY(vt_kept *) kept;
  uint64_t *last_versions; // of the parameters, when something may be kept
  bool keep_failed;        // allocation failed
};

// The steps of `func` for `frame_count` frames, without memory yet; in the program's arena.
// (plan.c)
vt_status vt_plan_build(vt_program *program, vt_func *func, vt_plan_kind kind, uint32_t frame_count,
                        vt_plan **out_plan) VT_CHECKED;
// Gives every value of the steps a slot, and every temporary slot a place. (plan_memory.c)
vt_status vt_plan_memory(vt_plan *plan) VT_CHECKED;
// True for ops that only rename bytes: result i is operand i.
bool vt_op_is_alias(const vt_op *op);
// UNIMPLEMENTED with the op, its place and `what`.
vt_status vt_step_refuse(const vt_step *step, const char *what) VT_CHECKED;
// Takes `st` and prefixes its message with the step's op and place; VT_OK stays.
vt_status vt_step_wrap(const vt_step *step, vt_status st) VT_CHECKED;
// Room in the step's scratch; returns its offset.
int64_t vt_step_reserve(vt_step *step, int64_t bytes);
// Tensor bytes plus the padding that every host buffer has, rounded up to whole cache lines.
int64_t vt_padded_bytes(int64_t bytes);
// Registers an object to be destroyed with the program. false: out of memory; the object is
// destroyed, and compilation fails later.
bool vt_program_own(vt_program *program, void (*destroy)(void *), void *object);

// Fills the temporaries and constants of `frame` from its memory; the caller sets parameters and
// results. (exec.c)
void vt_frame_bind(const vt_plan *plan, vt_frame *frame, char *memory);
vt_status vt_exec_plan(vt_exec *exec, const vt_plan *plan, vt_frame *const *frames,
                       uint32_t count) VT_CHECKED;

// plan_keep.c
// True when `value` depends on one parameter only, which the caller does not donate and which is no
// state: no result has its type. In a loop: when it is a parameter that no turn changes.
bool vt_keep_likely(const vt_plan *plan, const vt_value *value);
// Whether a parameter has the same bytes for as long as the plan runs; for a loop once its steps
// are made.
bool vt_param_stays(const vt_plan *plan, const vt_value *param);
void vt_plan_keep(vt_plan *plan); // between the steps and their memory
void vt_keep_begin(vt_program *program, const vt_run *run, vt_frame *frame);
void vt_keep_drop(vt_program *program);
// Of a loop whose first turn comes: weights are laid out in it, in kept_bytes of memory.
void vt_keep_begin_loop(const vt_plan *loop, char *memory);

void vt_plan_views(vt_plan *plan); // plan_views.c, between what is kept and memory

// plan_overlap.c
void vt_plan_overlap(vt_plan *plan);    // between the steps and their memory
void vt_overlap_end(const vt_run *run); // a run that failed: nothing goes on beside it any more

// Element operations of an op, roughly, from its shapes. (host.c)
double vt_host_work(const vt_op *op);

// plan_log.c
uint64_t vt_step_clock(void); // ns
void vt_program_log(const vt_program *program);
void vt_program_log_times(const vt_program *program);

static inline uint32_t vt_result_slot(const vt_plan *plan, uint32_t result) {
  return plan->param_count + result;
}

void vt_step_set_values(vt_plan *plan, vt_step *step, uint32_t input_count, vt_value **inputs,
                        uint32_t output_count,
                        vt_value **outputs); // plan.c
// The constructors fill run, body, scratch and in_place_ok of a step whose op, inputs and outputs
// are set.
vt_status vt_step_eval(vt_plan *plan, vt_step *step) VT_CHECKED; // exec.c
bool vt_step_elements(vt_step *step); // exec_elements.c: sets only how it runs
void vt_step_copy(vt_step *step);
// About how long a step takes that is a loop of one thread; -1 for all others.
int64_t vt_step_picoseconds(const vt_step *step);
vt_status vt_step_kernel(vt_plan *plan, vt_step *step, vt_group *group) VT_CHECKED; // exec_kernel.c
vt_status vt_kernels_compile(vt_program *program) VT_CHECKED;
vt_group *vt_step_group(const vt_step *step); // of a kernel step; NULL for all others
// Its kernel, stored at the returned address once the program's code is compiled.
const vt_kernel *const *vt_step_kernel_of(const vt_step *step);
// A group's kernel, stored at the returned address once the program's code is compiled.
const vt_kernel *const *vt_kernel_wanted(vt_program *program, vt_group *group);
// A while as one function: per carried value whether it is invariant; NULL when it does not
// qualify.
const bool *vt_step_loop(vt_plan *plan, vt_step *step); // exec_loop.c
vt_status vt_step_collective(vt_plan *plan, vt_step *step) VT_CHECKED;
vt_status vt_step_control(vt_plan *plan, vt_step *step) VT_CHECKED; // exec_control.c
const bool *vt_step_invariant(const vt_step *step);                 // of a while: per carried value
vt_status vt_step_manual(vt_plan *plan, vt_step *step) VT_CHECKED;  // exec_manual.c

#endif
