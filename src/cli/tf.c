// SPDX-License-Identifier: Apache-2.0
// tf.c - `vtpu tf`: a SavedModel of TensorFlow, which only TensorFlow can read: python/vtpu/tf.py
// does the work, in the Python that has it.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int vt_cli_tf(const vt_args *args) {
  const char *command[64] = {NULL};
  size_t count = 0, room = sizeof command / sizeof *command - 4;
  vt_arena arena = {0};
  vt_status st = vt_cli_python(&command[count++]);
  if (st) return vt_cli_fail("tf", st);
  command[count++] = "-m";
  command[count++] = "vtpu.tf";
  for (size_t i = 0; i < args->flags.size && count < room; i++) { // as they were given
    const vt_given *given = &args->flags.data[i];
    bool is_switch = given->flag->kind == VT_FLAG_SWITCH, off = !strcmp(given->value, "false");
    if (is_switch && off) continue;
    command[count++] = vt_arena_printf(&arena, "--%s", given->flag->name);
    if (!is_switch) command[count++] = given->value;
  }
  command[count++] = "--";
  command[count++] = args->words.data[0];
  execvp(command[0], (char *const *)(uintptr_t)command);
  st = vt_error(VT_NOT_FOUND, "%s: %s", command[0], strerror(errno));
  vt_arena_free(&arena);
  return vt_cli_fail("tf", st);
}
