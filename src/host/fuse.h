// SPDX-License-Identifier: Apache-2.0
// fuse.h - cuts a function into groups of ops that run as one step each.
//
// vt_jit_compile makes a kernel of a group with `fused` set: an elementwise loop nest with its
// reductions, or one op that has a precompiled kernel (transpose, slice, gather, pooling). Any
// other group holds exactly one op: the caller runs it by a library, by the evaluator, or as an
// alias (reshape).
// Cheap leaves (constants, iota, broadcasts of values in memory) may be members of several groups;
// they have no group of their own when nothing needs them in memory. A function's groups are in a
// valid execution order.
#ifndef VT_HOST_FUSE_H
#define VT_HOST_FUSE_H

#include "ir/module.h"

typedef struct vt_nest vt_nest; // host/nest.h: the index space of a loop group
typedef struct vt_loop vt_loop; // host/loop.h: a while as one function

typedef struct vt_code_source vt_code_source; // host/emit.h: code that is not of the program's ops

typedef struct vt_group {
  bool fused;
  uint32_t op_count;
  // in execution order; the evaluator, running them one by one, gives the same outputs
  vt_op **ops;
  uint32_t input_count;
  // parameters, or outputs of earlier groups; each once; also of groups that are not fused
  vt_value **inputs;
  uint32_t output_count;
  vt_value **outputs;  // values that later groups or the function's returns need, each once
  int64_t work;        // elements times ops: an estimate of what code for it is worth
  vt_nest *nest;       // loop groups; NULL for one-op groups
  const vt_loop *loop; // a while compiled to one function, no other field is set; else NULL
  const vt_code_source *source; // a function of someone else, no other field is set; else NULL
} vt_group;

typedef struct vt_fuse_options {
  // True for ops that the caller wants as groups of one (a bias add that becomes a matmul's
  // epilogue). May be NULL.
  bool (*keep_out)(void *user, const vt_op *op);
  void *user;
  // Loop groups with less work than this are split into groups of one for the evaluator: compiling
  // them does not pay off. 0 = the default, which also keeps groups of many ops, -1 = fuse
  // everything (tests).
  int64_t min_work;
  bool repeated; // the body of a loop: fewer ops make a group worth its code
} vt_fuse_options;

// Groups for all ops of `func` (regions of its control flow ops are functions of their own: call
// again for them). Numbers the function and uses its ops' notes. Groups live in `arena`. `options`
// may be NULL.
// errors INTERNAL: the function is not in execution order
vt_status vt_host_fuse(vt_func *func, const vt_fuse_options *options, vt_arena *arena,
                       vt_group **out_groups, uint32_t *out_count) VT_CHECKED;

// The group of this op alone; fused if it has a precompiled kernel.
vt_group vt_host_single(vt_arena *arena, vt_op *op);

#endif
