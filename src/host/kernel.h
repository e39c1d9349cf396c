// SPDX-License-Identifier: Apache-2.0
// kernel.h - code for fused groups, and its execution.
//
// Memory of inputs and outputs: dense row-major, 64-byte aligned, with at least 128 bytes past the
// end that may be read and overwritten (full vectors overrun). An input and an output may share
// memory only where vt_kernel_in_place_ok allows it; then both are the same pointer.
// Denormals: kernels are meant to run with FTZ and DAZ set on every thread of the team; the caller
// sets them. Results do not depend on the number of threads.
#ifndef VT_HOST_KERNEL_H
#define VT_HOST_KERNEL_H

#include "host/fuse.h"

typedef struct vt_jit vt_jit; // owns the code and the kernels of one program
typedef struct vt_kernel vt_kernel;

vt_status vt_jit_create(vt_jit **out_jit) VT_CHECKED;
void vt_jit_destroy(vt_jit *jit);             // accepts NULL; frees its kernels
int64_t vt_jit_code_bytes(const vt_jit *jit); // of its object files; accepts NULL

// Kernels for `count` fused groups of one program, in one call: the more at once, the cheaper each.
// Groups that differ only in sizes share code; code is shared with all programs of the process and
// kept on disk (code_cache.h). The groups are not needed afterwards.
//   errors  INTERNAL: the code generator refused threads any, one vt_jit by one thread at a time
vt_status vt_jit_compile(vt_jit *jit, const vt_group *const *groups, uint32_t count,
                         vt_kernel **out_kernels) VT_CHECKED;

// The same for a fused group of one op, which needs no code; in `arena`.
vt_kernel *vt_kernel_of_op(vt_arena *arena, const vt_group *group);

// Runs on the calling thread's OpenMP team. inputs and outputs as in the group; scratch of the size
// below, 64-byte aligned, contents arbitrary. A kernel may be run by several threads at once, each
// with its own scratch.
vt_status vt_kernel_run(const vt_kernel *kernel, void *const *inputs, void *const *outputs,
                        void *scratch) VT_CHECKED;
// True when the group's code works on each row of its input `port`, a matrix, by itself: on parts
// of it, or with `*out_whole` only on all of it. `*out_sums`: but for what it adds up over rows.
bool vt_group_takes_rows(const vt_group *group, uint32_t port, int64_t rows, int64_t columns,
                         bool *out_whole, bool *out_sums);
// Makes it so that rows of this input lie `stride` elements apart; before it is compiled.
void vt_group_give_rows(vt_group *group, uint32_t port, int64_t columns, int64_t stride);
// Some rows and columns for such code.
typedef struct vt_rows {
  uint32_t port;
  void *instead; // of that input, of which only these are read
  void *output;  // instead of the first output, if not NULL
  int64_t row_lo, row_hi, column_lo, column_hi;
  void *block; // what these columns of these rows add up to, if the code does so
} vt_rows;
// On the calling thread; `pointers`: inputs, then outputs.
void vt_kernel_run_rows(const vt_kernel *kernel, void *const *pointers, const vt_rows *rows);
// Of a block for some rows; 0: nothing is added up. Blocks lie side by side, for all rows.
int64_t vt_kernel_block_bytes(const vt_kernel *kernel);
// Adds all blocks up and writes those outputs; on the calling thread's team.
void vt_kernel_add_blocks(const vt_kernel *kernel, void *blocks, int64_t count,
                          void *const *outputs);
void *vt_kernel_code(const vt_kernel *kernel); // of a loop: the function of loop.h
// About how long a loop takes that is not shared among threads; -1 for all others.
int64_t vt_kernel_picoseconds(const vt_kernel *kernel);
// Whether outputs of so many elements are written to their end and not beyond.
bool vt_kernel_ends_exactly(const vt_kernel *kernel, int64_t elements);
int64_t vt_kernel_scratch_bytes(const vt_kernel *kernel);
// True when output may be the very memory of input (which then dies with this kernel).
bool vt_kernel_in_place_ok(const vt_kernel *kernel, uint32_t output, uint32_t input);

#endif
