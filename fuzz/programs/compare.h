// SPDX-License-Identifier: Apache-2.0
// compare.h - one program before its judges.
#ifndef VT_FUZZ_COMPARE_H
#define VT_FUZZ_COMPARE_H

#include "judge.h"
#include "program.h"
#include "xla.h"

// Who disagrees with the evaluator.
typedef enum verdict {
  VERDICT_SAME,
  VERDICT_IMPORT,    // the printed text is not read back
  VERDICT_EVALUATOR, // the evaluator refuses
  VERDICT_LOCKSTEP,  // the evaluator on all devices of a mesh
  VERDICT_PLAN,      // the host back end with evaluator steps only
  VERDICT_HOST,      // the host back end with generated code
  VERDICT_XLA,
  VERDICT_XLA_MESH, // on several devices
} verdict;
const char *verdict_name(verdict v);

// A program, its inputs and the evaluator's answers. A program with a mesh is judged by what it is
// written out for one device (unroll.h).
typedef struct trial {
  program program;
  vt_module *plain; // what is judged: the program's module, or that one written out
  vt_arena arena;
  vt_tensor *args;
  judged *want;
  judged *values; // of the results of the ops of plain's main, in their order
  vt_tensor *got; // room for another's answers
  bool ask_all;   // XLA:CPU is asked even what known.def names
  vt_text text;
} trial;

// Takes `p`. On anything but SAME the trial may only be closed; out_why says what is wrong.
verdict trial_open(program p, trial *out_trial, vt_text *out_why);
void trial_close(trial *t);
verdict trial_host(trial *t, vt_text *out_why); // import, plan and host
// Why XLA:CPU is not asked this op or what its regions and callees hold (known.def); NULL: it is.
const char *xla_known(const vt_op *op);
// Takes the ops that XLA:CPU is not asked out of `func`, a copy of plain's main: their
// results become parameters at the end. Returns how many; out_fed (in the trial's arena) are the
// evaluator's answers for them.
uint32_t trial_cut(trial *t, vt_func *func, vt_tensor **out_fed);
// Puts a barrier behind each constant and iota: XLA folds what it knows with evaluators of its own,
// which is another judge than the code that it makes.
void xla_hide_constants(vt_module *module);
// What XLA:CPU gives, compared; *out_refused when it does not take the program.
verdict trial_xla(trial *t, xla *x, bool *out_refused, vt_text *out_why);
// What XLA:CPU's partitioner makes of a program with a mesh, on as many devices, compared on each.
// With ask_all arrays lie as the program says; else XLA is told only of manual computations.
// Not asked, with *out_asked false: programs of one device, with ops that known.def names, or whose
// answer hangs on our own rule (program_is_open).
verdict trial_xla_mesh(trial *t, xla *x, bool *out_asked, bool *out_refused, vt_text *out_why);
// Compares answers that were made elsewhere.
verdict trial_check(trial *t, const vt_tensor *got, verdict otherwise, vt_text *out_why);

#endif
