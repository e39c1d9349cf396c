// SPDX-License-Identifier: Apache-2.0
// compare.h - one program and its judges.
#ifndef VT_FUZZ_COMPARE_H
#define VT_FUZZ_COMPARE_H

#include "judge.h"
#include "program.h"
#include "xla.h"

// Who disagrees with the evaluator.
typedef enum verdict {
  VERDICT_SAME,
  VERDICT_IMPORT,      // the printed text does not read back
  VERDICT_EVALUATOR,   // the evaluator rejects the program
  VERDICT_HLO,         // what is read back from HLO
  VERDICT_LOCKSTEP,    // the evaluator on all devices of a mesh
  VERDICT_PARTITIONED, // the program of one device, on all of them
  VERDICT_PARTS,       // cut over processes
  VERDICT_PREDICTION,  // what a real slice would need
  VERDICT_PLAN,        // the host back end with evaluator steps only
  VERDICT_HOST,        // the host back end with generated code
  VERDICT_XLA,
  VERDICT_XLA_MESH, // on several devices
} verdict;
const char *verdict_name(verdict v);

// A program, its inputs and the evaluator's answers. A program with a mesh is judged by its form
// written out for one device (unroll.h).
typedef struct trial {
  program program;
  vt_module *plain; // what is judged: the program's module, or its written-out form
  vt_arena arena;
  vt_tensor *args;
  judged *want;
  judged *values; // for the results of the ops of plain's main, in order
  vt_tensor *got; // space for another judge's answers
  int cut;        // into how many numbers of parts it could be cut
  bool ask_all;   // XLA:CPU also runs what known.def names
  vt_text text;
} trial;

// Takes `p`. Except on SAME the trial may only be closed; out_why says what is wrong.
verdict trial_open(program p, trial *out_trial, vt_text *out_why);
void trial_close(trial *t);
verdict trial_host(trial *t, vt_text *out_why); // import, plan and host
// The program written as HLO, message and text, and read back, on the evaluator. One that HLO has
// no form for is not asked.
verdict trial_hlo(trial *t, vt_text *out_why);
// The program cut into `count` parts, where that can be (*out_cut): all parts give the bits that
// lockstep gives, and these are a correct answer. (parts.c)
verdict trial_parts(trial *t, int count, bool *out_cut, vt_text *out_why);
// Why XLA:CPU must not run this op or its regions and callees (known.def); NULL: it may.
const char *xla_known(const vt_op *op);
// Removes the ops that XLA:CPU must not run from `func`, a copy of plain's main: their results
// become parameters at the end. Returns how many; out_fed (in the trial's arena) are the
// evaluator's answers for them.
uint32_t trial_cut(trial *t, vt_func *func, vt_tensor **out_fed);
// Puts a barrier after each constant and iota: XLA folds what it knows with separate evaluators,
// which are another judge than its generated code.
void xla_hide_constants(vt_module *module);
// Compares XLA:CPU's answer; *out_refused when it rejects the program.
verdict trial_xla(trial *t, xla *x, bool *out_refused, vt_text *out_why);
// Compares, on each device, what XLA:CPU's partitioner makes of a program with a mesh on as many
// devices. With ask_all arrays are placed as the program says; otherwise XLA learns only about
// manual computations. Skipped, with *out_asked false: programs of one device, programs with ops
// that known.def names, and programs whose answer depends on our own rule (program_is_open).
verdict trial_xla_mesh(trial *t, xla *x, bool *out_asked, bool *out_refused, vt_text *out_why);
// Compares answers computed elsewhere.
verdict trial_check(trial *t, const vt_tensor *got, verdict otherwise, vt_text *out_why);

#endif
