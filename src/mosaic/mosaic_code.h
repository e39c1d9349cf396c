// SPDX-License-Identifier: Apache-2.0
// mosaic_code.h - a kernel as code for this machine, as src/mosaic_host makes it: what the machine
// of a run asks of it. A kernel without code is interpreted.
//
// Code does what mosaic_machine.c does for the blocks of a function. Vectors lie at fixed places of
// the machine's memory. What it has no instructions for, it asks the op's own function for, by
// vt_mosaic_call: operands and results then pass through the machine's slots.
#ifndef VT_MOSAIC_MOSAIC_CODE_H
#define VT_MOSAIC_MOSAIC_CODE_H

#include "mosaic/mosaic_run.h"

struct vt_mcode {
  vt_mcode_fn *const *funcs; // by function of the kernel
  int64_t memory_bytes;      // of a machine, for vectors
  // Leading dimensions of the grid whose points do not depend on each other: they are dealt to
  // machines with memory of their own. 0: none.
  uint32_t free_dims;
  bool asks;               // ... as long as they do not make the same block of a result
  const bool *kept_inputs; // by window: the body does not write into its block
  // By window: only products read the block of an operand, at the strides that its state has.
  const bool *strided_inputs;
  const bool *filled; // by array: the body writes all of it before it reads any of it, or leaves it
  // By window: each point of the free dimensions makes this result anew, the last one's stays.
  const bool *last_results;
  // Product number `product`: out = a x b. 0: done
  int32_t (*product)(vt_mmachine *m, uint32_t product, const void *a, const void *b, void *out);
  // The same in parts: its right side, then rows from `row` on. What `open` gave remembers right
  // sides that lie in operands, so it is good for one call of the kernel.
  int32_t (*product_lay)(vt_mmachine *m, uint32_t product, const void *b);
  int32_t (*product_rows)(vt_mmachine *m, uint32_t product, const void *a, int64_t row,
                          int64_t rows, void *out);
  vt_status (*open)(const vt_mcode *code, void **out_state); // what products need, by machine
  void (*close)(void *state);
  // task(user, i, thread) for each i < count, on the threads there are: fewer than `threads()`.
  void (*spread)(int32_t count, void (*task)(void *user, int32_t i, int32_t thread), void *user);
  int32_t (*threads)(void);
  void *(*alloc)(int64_t bytes);
  void (*release)(void *data);
};

// Runs op `number` of the kernel by its own function. m->passed[] holds the addresses of its
// vectors, operands before results; scalars are in their slots. 0: done; else the code returns.
int32_t vt_mosaic_call(vt_mmachine *m, uint32_t number);

// The kernels of the module's calls, each once or more often.
typedef vt_status vt_mosaic_visit(void *user, vt_mosaic *kernel);
vt_status vt_mosaic_each(const vt_module *module, vt_mosaic_visit *visit, void *user) VT_CHECKED;

#endif
