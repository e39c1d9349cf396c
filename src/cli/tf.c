// SPDX-License-Identifier: Apache-2.0
// tf.c - `vtpu tf`: a SavedModel of TensorFlow, which only TensorFlow can read: python/vtpu/tf.py
// does the work, in the Python that has it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

// Where the package vtpu is, from the folder of libvtpu.so: of a Debian package, and of a source
// tree with its build/release/lib. One that pip installed needs no help.
static const char *const places[] = {"../share/vtpu/python", "../../../python"};

static vt_status offer_package(void) {
  char library[PATH_MAX], path[2 * PATH_MAX], source[PATH_MAX] = "";
  VT_TRY(vt_cli_library(library));
  *strrchr(library, '/') = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places && !*source; i++) {
    snprintf(path, sizeof path, "%s/%s", library, places[i]);
    if (!realpath(path, source)) *source = 0;
  }
  if (!*source) return VT_OK;
  const char *before = getenv("PYTHONPATH");
  snprintf(path, sizeof path, "%s%s%s", source, before && *before ? ":" : "", before ? before : "");
  setenv("PYTHONPATH", path, 1);
  return VT_OK;
}

int vt_cli_tf(const vt_args *args) {
  const char *python = getenv("VTPU_PYTHON"), *command[64] = {NULL};
  size_t count = 0, room = sizeof command / sizeof *command - 4;
  vt_arena arena = {0};
  vt_status st = offer_package();
  if (st) return vt_cli_fail("tf", st);
  command[count++] = python && *python ? python : "python3";
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
