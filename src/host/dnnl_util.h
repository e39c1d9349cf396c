// SPDX-License-Identifier: Apache-2.0
// dnnl_util.h - what the oneDNN steps share: engine, descriptors of strided arrays, prepared
// primitives.
#ifndef VT_HOST_DNNL_UTIL_H
#define VT_HOST_DNNL_UTIL_H

#include <dnnl.h>

#include "host/plan.h"

enum { VT_CALL_ARGS = 6 };

// A primitive with its memory objects. Addresses are set before each execution; the scratchpad is
// ours, so that the same primitive may be executed by two programs at once.
typedef struct vt_dnnl_call {
  dnnl_primitive_t primitive;
  int32_t arg_count;
  dnnl_exec_arg_t args[VT_CALL_ARGS];
  int64_t scratchpad_bytes; // 0: none; else the last argument
  bool alone;               // made for one thread, to be executed by one
} vt_dnnl_call;

dnnl_engine_t vt_dnnl_engine(void);
dnnl_data_type_t vt_dnnl_dtype(vt_dtype dtype); // dnnl_data_type_undef when oneDNN has none
// Element types of dots and convolutions that oneDNN computes fast.
static inline bool vt_dnnl_takes(vt_dtype dtype) {
  return dtype == VT_F32 || dtype == VT_BF16;
}

// Makes the primitive of `desc`. `forward` is the hint of backward primitives, else NULL. Takes
//   attr (may be NULL). out_call args in the order of `arg_ids`, memories described by the
//   primitive
//   returns      false when oneDNN refuses, or would run a reference or im2col implementation
//                ("ref", "gemm" where `reject_gemm`): the caller takes another way
//   products     multiply-adds: few of them run on one thread, which costs less than waking a team.
//                oneDNN fixes the number of threads, and with it the order of sums, when the
//                primitive is made.
bool vt_dnnl_make(vt_program *program, const_dnnl_op_desc_t desc, dnnl_primitive_attr_t attr,
                  const_dnnl_primitive_desc_t forward, bool reject_gemm, double products,
                  int32_t arg_count, const int *arg_ids, vt_dnnl_call *out_call);
// The descriptor that the primitive wants for an argument of vt_dnnl_make.
const dnnl_memory_desc_t *vt_dnnl_arg_desc(const vt_dnnl_call *call, int32_t arg);
// A reorder between two layouts of one array; false when oneDNN has none.
bool vt_dnnl_make_reorder(vt_program *program, const dnnl_memory_desc_t *from,
                          const dnnl_memory_desc_t *to, vt_dnnl_call *out_call);
// data[i] for argument i; scratchpad may be NULL when scratchpad_bytes is 0.
vt_status vt_dnnl_execute(const vt_dnnl_call *call, void *const *data, void *scratchpad) VT_CHECKED;

#endif
