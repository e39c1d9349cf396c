// SPDX-License-Identifier: Apache-2.0
// runner.h - the command of `vtpud --ephemeral --`: a separate process with the rights of the user
// who started vtpud. It waits for the environment variables of the command.
#ifndef VT_CLOUD_RUNNER_H
#define VT_CLOUD_RUNNER_H

#include <sys/types.h>

#include "base/status.h"

typedef struct vt_runner {
  pid_t pid; // returns the command's exit code; 0 when there is none
  int fd;
} vt_runner;

vt_status vt_runner_start(char **command, mode_t umask, vt_runner *out_runner) VT_CHECKED;
void vt_runner_variable(const vt_runner *runner, const char *name, const char *value);
void vt_runner_go(const vt_runner *runner);
void vt_runner_signal(const vt_runner *runner, int number);

#endif
