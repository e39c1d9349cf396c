// SPDX-License-Identifier: Apache-2.0
// compile_cli.h - the subcommands `compile` and `run` of `vtpu v1`.
#ifndef VT_TPU1_COMPILE_CLI_H
#define VT_TPU1_COMPILE_CLI_H

#include "base/command.h"

int vt_tpu1_compile_main(const vt_args *args);
int vt_tpu1_run_main(const vt_args *args);

#endif
