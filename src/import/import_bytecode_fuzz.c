// SPDX-License-Identifier: Apache-2.0
// import_bytecode_fuzz.c - any bytes give a verified module or an error.
#include <stdint.h>
#include <stdlib.h>

#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_module *module;
  vt_status st = vt_import((vt_bytes){data, size}, &module);
  if ((st == VT_OK) != (module != NULL)) abort();
  vt_status_free(st);
  vt_module_destroy(module);
  return 0;
}
