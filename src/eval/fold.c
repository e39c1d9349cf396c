// SPDX-License-Identifier: Apache-2.0
// fold.c - see fold.h.
#include "eval/fold.h"

static bool usual(vt_opcode code) {
  return code == VT_OP_ADD || code == VT_OP_MULTIPLY || code == VT_OP_MAXIMUM ||
         code == VT_OP_MINIMUM || code == VT_OP_AND || code == VT_OP_OR || code == VT_OP_XOR;
}

vt_status vt_fold_open(const vt_eval_call *call, const vt_func *body, uint32_t inputs,
                       int64_t lanes, vt_fold *out) {
  *out = (vt_fold){.inputs = inputs};
  if (inputs < 1 || inputs > VT_FOLD_MOST) return vt_eval_refuse(call->op, "this number of inputs");
  if (body->param_count != 2 * inputs + call->op->capture_count || body->return_count != inputs)
    return vt_eval_invalid(call->op, "region");
  for (uint32_t i = 0; i < inputs; i++) {
    out->types[i] = body->params[i]->type.dtype;
    if (body->params[inputs + i]->type.dtype != out->types[i] ||
        body->returns[i]->type.dtype != out->types[i])
      return vt_eval_refuse(call->op, "a body of mixed types");
  }
  vt_opcode code = inputs == 1 ? vt_region_binary(body, 0, 1) : VT_OP_INVALID;
  vt_vec_class klass = vt_vec_class_of(out->types[0]);
  vt_vec_fn loop = usual(code) ? vt_vec_op(klass, code) : NULL;
  if (loop) {
    out->loop = loop;
    out->width = vt_vec_width_of(out->types[0]);
    if (vt_vec_is_narrow(out->types[0])) out->types[0] = VT_F32;
    return VT_OK;
  }
  return vt_region_open(call, body, lanes, &out->region);
}

void vt_fold_close(vt_fold *fold) {
  if (!fold->loop) vt_region_close(&fold->region);
}

vt_status vt_fold_combine(vt_fold *fold, int64_t n, void *const *acc, void *const *x,
                          void *const *into) {
  if (n <= 0) return VT_OK;
  if (fold->loop) {
    fold->loop(n, acc[0], x[0], NULL, into[0], fold->width);
    return VT_OK;
  }
  const void *args[2 * VT_FOLD_MOST];
  for (uint32_t i = 0; i < fold->inputs; i++) {
    args[i] = acc[i];
    args[fold->inputs + i] = x[i];
  }
  return vt_region_run(&fold->region, n, args, into);
}
