// SPDX-License-Identifier: Apache-2.0
// eval.h - the meaning of every op: one plain, exact kernel per op and element type.
//
// The oracle of all faster paths, the engine of the constant folder, the fallback step of the host
// back end and the executor of small programs. Compiles nothing and keeps nothing between calls.
// In: ops of a module that vt_module_verify accepted, and dense tensors of the ops' types.
// Numbers: arithmetic flushes f32 subnormals (MXCSR is set for the call and restored); reductions
// and dots have a fixed order, so equal inputs give equal bits on any number of threads.
// Threads: any number at once; a module is only read.
#ifndef VT_EVAL_EVAL_H
#define VT_EVAL_EVAL_H

#include "ir/module.h"
#include "ir/transfer.h"

// A dense row-major array. Element types of fewer than 8 bits take one byte each (integers sign- or
// zero-extended, small floats in the low bits). `data` may be NULL for tokens and for tensors
// without elements.
typedef struct vt_tensor {
  vt_type type;
  void *data;
} vt_tensor;

typedef struct vt_eval_env vt_eval_env;

// A program that a custom call holds as its attribute KERNEL: who attaches it says how to run it.
struct vt_program_call {
  bool meets_devices; // like a collective: one run over all devices
  // in[device][operand], out[device][result]; one device: that of env
  vt_status (*run)(const vt_program_call *kernel, const vt_op *op, const vt_eval_env *env,
                   int32_t devices, const vt_tensor *const *in, vt_tensor *const *out);
};

// The environment of an op. A zeroed env is device 0 of 1.
struct vt_eval_env {
  int32_t partition, replica;             // this device
  int32_t partition_count, replica_count; // 0 means 1
  bool exact_dots;                  // DEFAULT precision is f32 (else operands are rounded to bf16)
  const vt_host_transfer *transfer; // NULL: programs with host transfers fail
};

// Runs one op. `results` come with types and caller's memory, which must not overlap the operands
// unless vt_eval_in_place_ok says so. Control flow, call, composite and regions are included.
// Collectives run as on a single device; with more devices they are UNIMPLEMENTED here: use
// vt_eval_collective or vt_eval_lockstep.
// errors UNIMPLEMENTED (op, element type, location in the user's source), INVALID_ARGUMENT,
// RESOURCE_EXHAUSTED, or what env->transfer returned
vt_status vt_eval_op(const vt_op *op, const vt_eval_env *env, const vt_tensor *operands,
                     vt_tensor *results) VT_CHECKED;

// The loop that vt_eval_op runs for an elementwise op, found once for many runs: `count` elements
// of up to three operands, `width` as in vec.h. The caller flushes subnormals.
typedef struct vt_eval_loop {
  void (*run)(int64_t count, const void *a, const void *b, const void *c, void *out, int32_t width);
  int64_t count;
  int32_t width;
} vt_eval_loop;
// False where the loop does not read and write the arrays as they are, or is no single one.
bool vt_eval_find_loop(const vt_op *op, vt_eval_loop *out_loop);

// Runs a whole function, op by op. Results as above.
vt_status vt_eval_func(const vt_func *func, const vt_eval_env *env, const vt_tensor *args,
                       vt_tensor *results) VT_CHECKED;

// One collective for all devices: operands[device][operand], results[device][result]. Devices are
// positions in the device assignment, replica-major (device = replica * partitions + partition);
// the module's num_partitions separates the two.
vt_status vt_eval_collective(const vt_op *op, int32_t device_count,
                             const vt_tensor *const *operands,
                             vt_tensor *const *results) VT_CHECKED;

// One collective for one device, at `place` of `device_count`; the others run elsewhere. Made once,
// run often. Bits as above. errors of `meetings`, too
// Threads: one at a time.
typedef struct vt_part vt_part;
vt_status vt_part_create(const vt_op *op, int32_t device_count, int32_t place,
                         vt_part **out_part) VT_CHECKED;
vt_status vt_part_run(vt_part *part, const vt_eval_env *env, const vt_tensor *operands,
                      vt_tensor *results, const vt_meetings *meetings) VT_CHECKED;
void vt_part_destroy(vt_part *part); // accepts NULL

// One collective for the devices of one process, those with part_of[device] == here; the others run
// elsewhere. Rows of other devices are NULL. Bits as above. errors of `meetings`, too
vt_status vt_eval_collective_devices(const vt_op *op, const vt_eval_env *env, int32_t device_count,
                                     const int32_t *part_of, int32_t here,
                                     const vt_tensor *const *operands, vt_tensor *const *results,
                                     const vt_meetings *meetings) VT_CHECKED;

// Runs a function once per device, in lockstep, so that collectives can run: args[device][param].
// Uses the env's counts but ignores its partition and replica. Control flow that contains
// collectives must branch alike on all devices.
vt_status vt_eval_lockstep(const vt_func *func, const vt_eval_env *env, int32_t device_count,
                           const vt_tensor *const *args, vt_tensor *const *results) VT_CHECKED;

// Whether the op is a collective, or a call of a kernel in which devices meet.
bool vt_eval_meets_devices(const vt_op *op);
bool vt_eval_has_collective(const vt_func *func); // also inside regions and callees

// False for ops, element types or custom calls without a kernel: vt_eval_op would return
// UNIMPLEMENTED. Looks into regions and called functions.
bool vt_eval_supports(const vt_op *op);

// True when results[result] may be the same memory as operands[operand] (exactly: same address and
// bytes).
bool vt_eval_in_place_ok(const vt_op *op, uint32_t operand, uint32_t result);

#endif
