// SPDX-License-Identifier: Apache-2.0
// vhlo.c - the rows of vhlo.def.
#include "import/vhlo.h"

#include <string.h>

static const vt_vhlo_row rows[] = {
#define VHLO(handler, code, name, ...) {VT_HANDLE_##handler, VT_OP_##code, name, {__VA_ARGS__}},
#include "import/vhlo.def"
#undef VHLO
};

const vt_vhlo_row *vt_vhlo_at(size_t index) {
  return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}

const vt_vhlo_row *vt_vhlo_find(const char *name, size_t size) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strlen(rows[i].name) == size && !memcmp(rows[i].name, name, size)) return &rows[i];
  return NULL;
}
