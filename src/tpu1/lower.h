// SPDX-License-Identifier: Apache-2.0
// lower.h - shared by the files of the lowering: bindings of values, and a function for each kind
// of op. Internal to lower.c and lower_*.c; quant.h has the entry point.
#ifndef VT_TPU1_LOWER_H
#define VT_TPU1_LOWER_H

#include "tpu1/quant.h"

typedef enum vt_tpu1_bind_kind {
  VT_TPU1_BIND_NONE,
  VT_TPU1_BIND_CONST,
  VT_TPU1_BIND_HOST,
  VT_TPU1_BIND_CHIP
} vt_tpu1_bind_kind;

typedef struct vt_tpu1_binding {
  vt_tpu1_bind_kind kind;
  vt_tpu1_qref ref;
  int8_t role[VT_MAX_RANK];
  bool flat;            // channels of every position side by side, in flat_order
  int8_t flat_order[3]; // roles, slowest first
  bool open;            // later ops may still fuse into the node
  // Steps towards 1 / (1 + exp(-x)), a common form of a logistic; valid only for the next step.
  enum { VT_TPU1_STEP_NONE, VT_TPU1_STEP_EXP, VT_TPU1_STEP_ONE_PLUS_EXP } step;
  const vt_value *inner; // the exponent
  const vt_op *step_op;  // the exponential, for messages
} vt_tpu1_binding;

typedef struct vt_tpu1_lowerer {
  vt_tpu1_network *net;
  vt_arena *arena;
  vt_tpu1_binding *bindings; // by value id
  uint32_t *uses;
} vt_tpu1_lowerer;

static inline vt_tpu1_binding *vt_tpu1_bind_of(vt_tpu1_lowerer *l, const vt_value *v) {
  return &l->bindings[v->id];
}
static inline vt_tpu1_qnode *vt_tpu1_node_of(vt_tpu1_lowerer *l, const vt_tpu1_binding *b) {
  return &l->net->nodes.data[b->ref.node];
}

// lower.c
// UNIMPLEMENTED with op, source line and the reason.
vt_status vt_tpu1_lower_refuse(vt_tpu1_lowerer *l, const vt_op *op, const char *why);
// Element i as a double; NaN for types other than floats.
double vt_tpu1_lower_element(const vt_tensor *t, int64_t i);
// The constant behind a value, or NULL.
const vt_tensor *vt_tpu1_lower_constant(vt_tpu1_lowerer *l, const vt_value *v);
// Whether a value is a constant with one value everywhere.
bool vt_tpu1_lower_splat(vt_tpu1_lowerer *l, const vt_value *v, double *out);
// The values of a constant along the channels of `like`, when it varies along nothing else;
// otherwise NULL.
double *vt_tpu1_lower_per_channel(vt_tpu1_lowerer *l, const vt_value *v,
                                  const vt_tpu1_binding *like, int64_t channels);
// Appends a node whose scale follows from the range of `value`.
int vt_tpu1_lower_node(vt_tpu1_lowerer *l, vt_tpu1_qkind kind, const vt_op *op,
                       const vt_value *value);
// Binds a value to a node, with the dimensions of `like` (may be NULL).
void vt_tpu1_lower_bind(vt_tpu1_lowerer *l, const vt_value *v, int node,
                        const vt_tpu1_binding *like);
// The same node under another name, possibly scaled.
void vt_tpu1_lower_alias(vt_tpu1_lowerer *l, const vt_value *to, const vt_value *from,
                         double factor);
// Makes sure that a value is on the chip; host values become inputs whose dimensions mean `role`.
vt_status vt_tpu1_lower_need_chip(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *v,
                                  const int8_t *role);
// lower_contract.c
vt_status vt_tpu1_lower_dot(vt_tpu1_lowerer *l, const vt_op *op);
// Whether an attribute is absent or holds ones only.
bool vt_tpu1_lower_all_ones(const vt_op *op, vt_attr_key key);
vt_status vt_tpu1_lower_convolution(vt_tpu1_lowerer *l, const vt_op *op);
// lower_eltwise.c
// Makes a value that is a node times a factor a separate node.
vt_status vt_tpu1_lower_materialise(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *v);
vt_status vt_tpu1_lower_add(vt_tpu1_lowerer *l, const vt_op *op, double sign_b);
vt_status vt_tpu1_lower_multiply(vt_tpu1_lowerer *l, const vt_op *op, bool divide);
// A nonlinearity of x: fused into the open node, or a vector operation. range: upper limit of a
// clamp, 0 = none.
vt_status vt_tpu1_lower_function(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *x,
                                 vt_tpu1_fn fn, double range);
vt_status vt_tpu1_lower_maximum(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_clamp(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_exponential(vt_tpu1_lowerer *l, const vt_op *op);
// The next op of 1 / (1 + exp(x)), if it is one.
vt_status vt_tpu1_lower_logistic_step(vt_tpu1_lowerer *l, const vt_op *op, bool *out_done);
vt_status vt_tpu1_lower_minimum(vt_tpu1_lowerer *l, const vt_op *op);
// lower_view.c
vt_status vt_tpu1_lower_reduce_window(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_reduce(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_reshape(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_transpose(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_slice(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_concatenate(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_convert(vt_tpu1_lowerer *l, const vt_op *op);
vt_status vt_tpu1_lower_broadcast(vt_tpu1_lowerer *l, const vt_op *op);

#endif
