// SPDX-License-Identifier: Apache-2.0
// judge.h - what a program may answer: the evaluator's answer, and how far another correct answer
// may be from it.
//
// The evaluator runs op by op. Ops that round freely (bounds.def) get an interval around their
// result; ops that read an interval also run at its ends and get the hull. So every result of the
// program has an interval that depends on its values, and exact results have none.
#ifndef VT_FUZZ_JUDGE_H
#define VT_FUZZ_JUDGE_H

#include "eval/eval.h"
#include "program.h"

// Real parts, or real and imaginary parts alternating. low NaN: anything is accepted.
typedef struct judged {
  vt_tensor center;
  double *low, *high; // NULL: exact
} judged;

// Inputs of main's types; in `arena`: out_results, one for each return of main, and out_values, one
// for each result of each op of main, in their order. exact_dots is set. `flushes`: values move
// between devices by sums, which may turn subnormals into zeros on the way to any op.
vt_status judge_run(const vt_module *module, bool flushes, const vt_tensor *args, vt_arena *arena,
                    judged **out_results, judged **out_values) VT_CHECKED;

// True when `got` (dense, of want's type) is a correct answer; otherwise `out_why` describes the
// first wrong element.
bool judge_accepts(const judged *want, const void *got, vt_text *out_why);

#endif
