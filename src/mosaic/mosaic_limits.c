// SPDX-License-Identifier: Apache-2.0
// mosaic_limits.c - what the chip's own compiler is known to refuse, in its words and with the
// place in the form that JAX turns into a traceback. Whoever relies on such an op would find out on
// the chip only.
//
// Known from the error messages that JAX's own tests expect.
#include <inttypes.h>
#include <stdio.h>

#include "mosaic/mosaic_ir.h"

static vt_status refuse(const vt_mop *op, const char *what) {
  const vt_loc *loc = op->loc;
  const char *text = vt_mop_info_get(op->code)->text;
  return vt_error(VT_INTERNAL,
                  "Mosaic failed to compile TPU kernel: %s\n\nThe MLIR operation "
                  "involved: %s\n  at location: loc(\"%s\"(\"kernel\"(\"%s\":%d:%d)))",
                  what, text, loc->name, loc->file, loc->line, loc->column);
}

// Scalars are 32 bits wide, or one.
static vt_status check_scalar(const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  if (type.kind != VT_MSCALAR || !vt_dtype_is_integer(type.dtype) || type.dtype == VT_S32 ||
      type.dtype == VT_S64)
    return VT_OK;
  char what[80];
  snprintf(what, sizeof what, "Not implemented: Only i32 %s is supported",
           vt_mop_info_get(op->code)->text);
  return refuse(op, what);
}

static vt_status check_vector(const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  if (type.kind != VT_MVECTOR || type.dtype == VT_PRED || vt_dtype_get(type.dtype)->bits >= 16)
    return VT_OK;
  return refuse(op, "Not implemented: Only vector<i16> and vector<i32> are supported");
}

static vt_status check_strides(const vt_mop *op) {
  const vt_mattr *strides = vt_mop_attr(op, VT_MATTR_STRIDES);
  if (!strides || !strides->count || strides->ints[strides->count - 1] == 1) return VT_OK;
  return refuse(op, "Not Implemented: Stride on last dim is not 1");
}

static vt_status check_block(const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->code >= VT_MOP_ADDI && op->code <= VT_MOP_MINUI) VT_TRY(check_scalar(op));
    if (op->code == VT_MOP_ADDI) VT_TRY(check_vector(op));
    if (op->code == VT_MOP_STRIDED_LOAD || op->code == VT_MOP_STRIDED_STORE)
      VT_TRY(check_strides(op));
    for (uint32_t b = 0; b < op->block_count; b++) VT_TRY(check_block(op->blocks[b]));
  }
  return VT_OK;
}

static int64_t buffers(const vt_mosaic *k, uint32_t window) {
  return k->windows[window].whole || k->windows[window].synchronous ? 1 : 2;
}

// The blocks, scratch and allocations in VMEM against the limit that the program sets.
static vt_status check_vmem(const vt_mosaic *k) {
  const vt_mblock *block = k->body->block;
  int64_t used = 0;
  if (!k->config.vmem_limit) return VT_OK;
  for (uint32_t i = k->grid_rank; i < block->arg_count; i++) {
    vt_mtype type = block->args[i].type;
    uint32_t window = i - k->grid_rank - k->prefetch_count;
    if (type.space != VT_MSPACE_VMEM || type.semaphore) continue;
    bool windowed = i >= k->grid_rank + k->prefetch_count && window < k->window_count;
    used += vt_mtype_elements(type) * vt_dtype_get(type.dtype)->bits / 8 *
            (windowed ? buffers(k, window) : 1);
  }
  if (used <= k->config.vmem_limit) return VT_OK;
  return vt_error(
      VT_RESOURCE_EXHAUSTED,
      "Ran out of memory in memory space vmem while allocating on stack for %%%s. Scoped "
      "allocation with size %" PRId64 " and limit %" PRId64
      " exceeded scoped vmem limit by %" PRId64 ".",
      k->name, used, k->config.vmem_limit, used - k->config.vmem_limit);
}

vt_status vt_mosaic_limits(const vt_mosaic *kernel) {
  for (uint32_t i = 0; i < kernel->func_count; i++) VT_TRY(check_block(kernel->funcs[i].block));
  return check_vmem(kernel);
}
