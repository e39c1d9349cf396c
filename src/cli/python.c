// SPDX-License-Identifier: Apache-2.0
// python.c - the Python in which the package vtpu does what needs JAX or TensorFlow.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

// Where the package vtpu is, from the folder of libvtpu.so: of a Debian package, and of a source
// tree with its build/release/lib. One that pip installed needs no help.
static const char *const places[] = {"../share/vtpu/python", "../../../python"};

vt_status vt_cli_python(const char **out_program) {
  char library[PATH_MAX], path[2 * PATH_MAX], source[PATH_MAX] = "";
  const char *python = getenv("VTPU_PYTHON");
  *out_program = python && *python ? python : "python3";
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
