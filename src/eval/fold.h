// SPDX-License-Identifier: Apache-2.0
// fold.h - the body of a reduction, ready to combine arrays: a loop of vec.h for common bodies,
// otherwise a region.
#ifndef VT_EVAL_FOLD_H
#define VT_EVAL_FOLD_H

#include "eval/kernel.h"

enum { VT_FOLD_MOST = 32 }; // inputs reduced together

typedef struct vt_fold {
  uint32_t inputs;
  // of the accumulators: the body's, or f32 for small floats with a common body
  vt_dtype types[VT_FOLD_MOST];
  vt_vec_fn loop; // NULL: the region runs
  int32_t width;
  vt_region region;
} vt_fold;

// `body` has parameters (accumulators..., elements..., captures...). Close it even after an error.
vt_status vt_fold_open(const vt_eval_call *call, const vt_func *body, uint32_t inputs,
                       int64_t lanes, vt_fold *out) VT_CHECKED;
void vt_fold_close(vt_fold *fold);
// acc[i] = body(acc[i], x[i]) for n elements; `into` gets the result and may be acc or x.
vt_status vt_fold_combine(vt_fold *fold, int64_t n, void *const *acc, void *const *x,
                          void *const *into) VT_CHECKED;

#endif
