// SPDX-License-Identifier: Apache-2.0
// run.h - the parts of `vtpu run`: the files of a TPU VM (run_files.c), the report
// (run_report.c).
#ifndef VT_CLI_RUN_H
#define VT_CLI_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/runtime.h"

// Shows this process, and what it starts, the chips of a slice as files in /sys/bus/pci/devices and
// /dev, in namespaces of its own. false: this machine does not allow that; out_why says why.
bool vt_run_show_chips(const vt_slice *slice, char *out_why, size_t why_size);

// What a program did with the chips: the sum of its processes' pages (base/activity.h).
typedef struct vt_run_use {
  const vt_slice *slice;
  char **command; // ends in NULL
  int processes;  // that opened the chips
  uint64_t programs, busy_ns, device_ps, hbm_peak, hbm_limit, hbm_refused, hbm_asked;
  char versions[120]; // of the first of them
  double seconds;     // from start to end
  bool predict;       // --predict: the programs, those that take most of the slice's time first
  struct vt_predicted_program *programs_run;
  uint32_t program_count;
  int exit_code;      // 128 + the number of a signal
  int status;         // as wait() has it
  char no_files[256]; // why it had no device files of the chips, or \"\"
} vt_run_use;

// Runs a program on the slice to its end. Signals that ask this process to end reach it.
vt_status vt_run_on(const vt_slice *slice, char **command, bool predict, vt_arena *arena,
                    vt_run_use *out_use) VT_CHECKED;
// Adds up the pages and the predictions in the folder and removes them with it.
void vt_run_collect(const char *folder, vt_arena *arena, vt_run_use *use);
void vt_run_print(const vt_run_use *use); // to standard error
// Writes the report as JSON or as one page of HTML. errors: those of the file
vt_status vt_run_write_json(const vt_run_use *use, const char *path) VT_CHECKED;
vt_status vt_run_write_html(const vt_run_use *use, const char *path) VT_CHECKED;

#endif
