// SPDX-License-Identifier: Apache-2.0
// cli.h - the commands of `vtpu` and what they share.
#ifndef VT_CLI_CLI_H
#define VT_CLI_CLI_H

#include "vtpu/vtpu.h"

int vt_cli_exec(int argc, char **argv);
int vt_cli_compile(int argc, char **argv);
int vt_cli_info(int argc, char **argv);
int vt_tpu1_cli(int argc, char **argv);  // src/tpu1
int vt_cloud_cli(int argc, char **argv); // src/cloud

// Prints "vtpu WORD: message", frees the error, returns the exit code 1.
int vt_cli_fail(const char *word, vtpu_error *error);
// "1.5 GiB", "3.2 GFLOP", "12.5 us": into a ring of static buffers, valid for the next few calls.
const char *vt_cli_bytes(double bytes);
const char *vt_cli_count(double value, const char *unit);
const char *vt_cli_seconds(double seconds);

#endif
