// SPDX-License-Identifier: Apache-2.0
// main_tpu1.c - `tpu1`: the v1 part of the command line as a separate program, for tests and for
// use without the plugin.
#include <string.h>

#include "tpu1/cli.h"

int main(int argc, char **argv) {
  int skip = argc > 1 && strcmp(argv[1], "v1") == 0; // `v1` is optional
  return vt_tpu1_cli(argc - skip, argv + skip);
}
