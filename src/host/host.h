// SPDX-License-Identifier: Apache-2.0
// host.h - compiles modules for this machine and runs them.
//
// A program is executed once, on whole arrays: automatic sharding needs no second copy of anything.
// Manual regions (sdy.manual_computation) run in lockstep for all devices inside one run.
// Threads: compile any number at once; one vt_program may be run by one thread at a time.
#ifndef VT_HOST_HOST_H
#define VT_HOST_HOST_H

#include "ir/module.h"
#include "ir/transfer.h"
#include "passes/passes.h"

typedef struct vt_program vt_program;

typedef struct vt_host_options {
  int32_t device_count; // positions of the device assignment (num_partitions), >= 1
  // Not 0: the program is that of one of these devices, at this position plus one; the others run
  // in other processes. Manual regions are not possible then, but with part_of.
  int32_t only;
  // By device, borrowed: `only` is the number of a part plus one, and the program's main is one
  // manual computation, which runs for the devices of that part (vt_host_part_ready). Its
  // parameters and results are what these hold together: of whole arrays the least rectangle.
  const int32_t *part_of;
  bool exact_dots; // DEFAULT precision means f32 (else: operands rounded to bf16, f32 accumulation)
  bool evaluator_only; // no generated code, no libraries: every step is a kernel of src/eval
  // generated code and libraries also for programs too small to be worth it (tests)
  bool compile_all;
  bool turn_images; // image_layout.h whatever it costs (tests)
} vt_host_options;

// What the passes, which run earlier, need to know about this machine.
vt_pass_options vt_host_passes(bool exact_dots);

// Takes `module`, also on error: it lives as long as the program.
// errors INVALID_ARGUMENT, UNIMPLEMENTED (op and its place in the user's source),
// RESOURCE_EXHAUSTED
vt_status vt_host_compile(vt_module *module, const vt_host_options *options,
                          vt_program **out_program) VT_CHECKED;
void vt_program_destroy(vt_program *program); // accepts NULL

// Whether an optimised module can run with part_of: main is still one manual computation.
bool vt_host_part_ready(const vt_module *module);

const vt_module *vt_program_module(const vt_program *program);
// of machine code made for this program
int64_t vt_program_code_bytes(const vt_program *program);
// host bytes a run needs beside params and results
int64_t vt_program_temp_bytes(const vt_program *program);
// True when the program runs on the calling thread alone, in microseconds.
bool vt_program_is_quick(const vt_program *program);
// True when a run may be given the same memory for this parameter and this result. Only for pairs
// that the module marks (alias_output, donor) and the plan could honour.
bool vt_program_may_alias(const vt_program *program, uint32_t param, uint32_t result);

typedef struct vt_run {
  // dense row-major arrays, 64-byte aligned and padded as vt_host_alloc does; NULL for tokens
  void *const *params;
  // allocated by the caller the same way; results[i] == params[j] only if may_alias
  void *const *results;
  const vt_host_transfer *transfer; // NULL: programs with host transfers fail
  const vt_meetings *meetings;      // with other processes; NULL: there are none
  // by parameter: equal numbers (not 0) mean equal contents, so values computed from it alone may
  // be kept for the next run; NULL: unknown
  const uint64_t *versions;
} vt_run;
vt_status vt_program_run(vt_program *program, const vt_run *run) VT_CHECKED;

// Host memory for tensors: 64-byte aligned, at least 128 bytes more than `bytes` readable and
// writable past the end (full vectors may overrun), from a pool so that pages stay warm. NULL when
// out of memory.
void *vt_host_alloc(int64_t bytes);
void *vt_host_alloc_zeroed(int64_t bytes); // large blocks use no memory until touched
void vt_host_free(void *data);             // accepts NULL

#endif
