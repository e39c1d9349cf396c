// SPDX-License-Identifier: Apache-2.0
// program.h - what the program `vtpu` calls in libvtpu.so. Both are of the same build; for others
// there is include/vtpu.
#ifndef VT_CLI_PROGRAM_H
#define VT_CLI_PROGRAM_H

#include "base/command.h"
#include "vtpu/vtpu.h"

// Runs a line and returns the exit code. Commands of the cloud need libraries of their own, so they
// are the program's: their table, and what runs a line of it, its word first.
VTPU_API int vtpu_main(int argc, char **argv, const vt_command_table *cloud,
                       int (*run_cloud)(int argc, char **argv));

#endif
