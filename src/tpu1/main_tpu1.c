// SPDX-License-Identifier: Apache-2.0
// main_tpu1.c - `tpu1`: the v1 part of the command line on its own, for tests and for use without
// the plugin.
#include "tpu1/cli.h"

int main(int argc, char **argv) {
  return vt_tpu1_cli(argc, argv);
}
