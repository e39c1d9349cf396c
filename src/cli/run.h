// SPDX-License-Identifier: Apache-2.0
// run.h - the parts of `vtpu run`: the files of a TPU VM (run_files.c), the report
// (run_report.c).
#ifndef VT_CLI_RUN_H
#define VT_CLI_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/array.h"
#include "runtime/runtime.h"

// Shows this process, and what it starts, the chips of a slice as files in /sys/bus/pci/devices and
// /dev, in namespaces of its own. false: this machine does not allow that; out_why says why.
bool vt_run_show_chips(const vt_slice *slice, char *out_why, size_t why_size);

// Why a function was compiled again.
typedef struct vt_run_reason {
  const char *why, *place; // place: of the call, "train.py:12", or ""
  uint64_t times;
} vt_run_reason;
typedef struct vt_run_function {
  const char *name;
  uint64_t again, again_ns; // compilations after the first of a process
  uint32_t reason_count;
  vt_run_reason *reasons; // the first few
} vt_run_function;

// What a program did with the chips: the sum of its processes' pages (base/activity.h).
typedef struct vt_run_use {
  const vt_slice *slice;
  char **command; // ends in NULL
  int processes;  // that opened the chips
  uint64_t programs, busy_ns, opened_ns, device_ps, hbm_peak, hbm_limit, hbm_refused, hbm_asked;
  char versions[120]; // of the first of them
  double seconds;     // from start to end
  uint64_t compilations, compile_ns;
  VT_ARRAY(vt_run_function *) functions; // what was compiled; what cost most again first
  uint64_t launches, clock_ps, starved_ps, host_ns, setup_ns; // of the longest virtual clock
  bool unexecuted;                                            // programs were only predicted
  bool predict; // --predict: the programs, those that take most of the slice's time first
  struct vt_predicted_program *programs_run;
  uint32_t program_count;
  int exit_code;      // 128 + the number of a signal
  int status;         // as wait() has it
  char no_files[256]; // why it had no device files of the chips, or \"\"
} vt_run_use;

typedef struct vt_run_ask {
  bool predict;    // what the slice would need for each program
  bool unexecuted; // without running them here: their results are zeros
} vt_run_ask;
bool vt_run_is_large(const vt_slice *slice); // too large to run programs for it here by default
// Runs a program on the slice to its end. Signals that ask this process to end reach it.
vt_status vt_run_on(const vt_slice *slice, char **command, const vt_run_ask *ask, vt_arena *arena,
                    vt_run_use *out_use) VT_CHECKED;
// Adds up the pages and the predictions in the folder and removes them with it, unless they are to
// be kept.
void vt_run_collect(const char *folder, bool keep, vt_arena *arena, vt_run_use *use);
// The lines of a file of runtime/compiled.c, which are cut up. (run_compiled.c)
void vt_run_add_compiled(char *text, vt_arena *arena, vt_run_use *use);
void vt_run_sort_compiled(vt_run_use *use);
void vt_run_print(const vt_run_use *use, FILE *to);
// Writes the report as JSON or as one page of HTML. errors: those of the file
vt_status vt_run_write_json(const vt_run_use *use, const char *path) VT_CHECKED;
vt_status vt_run_write_html(const vt_run_use *use, const char *path) VT_CHECKED;

#endif
