// SPDX-License-Identifier: Apache-2.0
// compile_cli.h - the subcommands `compile` and `run` of `vtpu v1`.
#ifndef VT_TPU1_COMPILE_CLI_H
#define VT_TPU1_COMPILE_CLI_H

int vt_tpu1_compile_main(int argc, char **argv);
int vt_tpu1_run_main(int argc, char **argv);

#endif
