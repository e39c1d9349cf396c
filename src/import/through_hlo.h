// SPDX-License-Identifier: Apache-2.0
// through_hlo.h - for tests: a module written as HLO and read back.
#ifndef VT_IMPORT_THROUGH_HLO_H
#define VT_IMPORT_THROUGH_HLO_H

#include "hlo/hlo.h"
#include "import/import.h"

// *out_module is NULL when HLO has no form for the module.
static inline vt_status vt_through_hlo(const vt_module *module, bool text, vt_module **out_module) {
  vt_hlo *hlo = NULL;
  vt_text bytes = {0};
  vt_hlo_options options = {0};
  *out_module = NULL;
  vt_status st = vt_hlo_build(module, &options, &hlo);
  bool none = st && vt_status_code(st) == VT_UNIMPLEMENTED;
  if (none) vt_status_free(st);
  if (none) return VT_OK;
  if (!st && text) vt_hlo_print(hlo, INT64_MAX, &bytes);
  if (!st && !text) vt_hlo_write(hlo, &bytes);
  if (!st) st = vt_import((vt_bytes){(const uint8_t *)bytes.data, bytes.size}, out_module);
  vt_text_free(&bytes);
  vt_hlo_destroy(hlo);
  return st;
}

#endif
