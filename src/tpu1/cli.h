// SPDX-License-Identifier: Apache-2.0
// cli.h - `vtpu v1 ...`: argv[0] is "v1". Returns the exit code; errors go to standard error.
#ifndef VT_TPU1_CLI_H
#define VT_TPU1_CLI_H

#include "base/command.h"
#include "tpu1/chip.h"

extern const vt_command_table vt_tpu1_commands;
int vt_tpu1_cli(int argc, char **argv);
// The chip with the factors of --param.
vt_status vt_tpu1_chip_of_args(const vt_args *args, vt_tpu1_chip *out_chip) VT_CHECKED;

#endif
