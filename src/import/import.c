// SPDX-License-Identifier: Apache-2.0
// import.c - bytes in, verified module out.
#include "import/import.h"

#include "import/bytecode.h"
#include "import/lower.h"
#include "import/text.h"

vt_status vt_import(vt_bytes program, vt_module **out_module) {
  vt_status st = VT_OK;
  vt_arena scratch = {0};
  vt_raw_module raw = {0};
  vt_module *module = vt_module_create();
  *out_module = NULL;
  VT_TRY_OUT(vt_bytecode_is(program) ? vt_bytecode_read(program, &scratch, &raw)
                                     : vt_mlir_text_read(program, &scratch, &raw));
  VT_TRY_OUT(vt_lower_module(&raw, &scratch, module));
  VT_TRY_OUT(vt_module_verify(module));
  *out_module = module;
  module = NULL;
out:
  vt_module_destroy(module);
  vt_arena_free(&scratch);
  return vt_status_wrap(st, "import");
}
