// SPDX-License-Identifier: Apache-2.0
// passes.h - optimises a module for the host: same results, less work.
//
// In: a verified module. Out: a verified module whose main has the same signature; calls are
// inlined, so only main and regions are left, and with keep_elementwise what they still call. Only
// pipeline.def defines the order. Results keep their bits, except where a pass is marked inexact
// there (docs/algebra.md).
#ifndef VT_PASSES_PASSES_H
#define VT_PASSES_PASSES_H

#include "ir/module.h"

typedef struct vt_pass_options {
  bool as_written; // no algebra with visible effects: for comparing with each op's definition
  bool exact_dots; // DEFAULT precision of f32 dots and convolutions means f32
  // the host multiplies bf16 faster than f32: convert operands to bf16
  bool bf16_dots;
  // contractions shallower than this stay in f32 (operands rounded to the bf16 grid)
  int64_t min_bf16_depth;
  bool keep_elementwise; // calls of elementwise functions are not inlined
  const char *skip;      // comma-separated names of passes to leave out; NULL: VTPU_SKIP_PASSES
} vt_pass_options;

vt_status vt_passes_run(vt_module *module, const vt_pass_options *options) VT_CHECKED;

// Drops the expanded functions of decompositions, once the chip's estimates have counted them.
vt_status vt_decompose_forget(vt_module *module) VT_CHECKED;

// Every pass rewrites the module and reports whether it changed anything. `scratch` is reset
// between passes.
typedef vt_status vt_pass(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                          bool *out_changed);
#define PASS(name, ...) vt_pass vt_opt_##name;
#include "passes/pipeline.def"
#undef PASS

#endif
