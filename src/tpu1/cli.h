// SPDX-License-Identifier: Apache-2.0
// cli.h - `vtpu v1 ...`: argv[0] is "v1". Returns the exit code; errors go to standard error.
#ifndef VT_TPU1_CLI_H
#define VT_TPU1_CLI_H

int vt_tpu1_cli(int argc, char **argv);

#endif
