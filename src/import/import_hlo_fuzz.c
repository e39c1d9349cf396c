// SPDX-License-Identifier: Apache-2.0
// import_hlo_fuzz.c - any bytes are HLO or an error, and what was read becomes a verified module or
// an error. The bytes say which form they are: one program, with a corpus of texts and one of
// messages.
#include <stdint.h>
#include <stdlib.h>

#include "hlo/hlo.h"
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_bytes program = {data, size};
  vt_module *module;
  vt_hlo *hlo;
  vt_status st = vt_hlo_read(program, &hlo);
  if ((st == VT_OK) != (hlo != NULL)) abort();
  vt_status_free(st);
  vt_hlo_destroy(hlo);
  st = vt_import(program, &module);
  if ((st == VT_OK) != (module != NULL)) abort();
  vt_status_free(st);
  vt_module_destroy(module);
  return 0;
}
