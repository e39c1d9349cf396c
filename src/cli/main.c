// SPDX-License-Identifier: Apache-2.0
// main.c - the program `vtpu`: the commands that libvtpu.so has (commands.c), and those of the
// cloud.
#include "cli/program.h"
#include "cloud/client/cloud_cli.h"

int main(int argc, char **argv) {
  return vtpu_main(argc, argv, &vt_cloud_commands, vt_cloud_cli);
}
