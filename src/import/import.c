// SPDX-License-Identifier: Apache-2.0
// import.c - bytes in, verified module out.
#include "import/import.h"

#include "hlo/hlo.h"
#include "import/bytecode.h"
#include "import/export_file.h"
#include "import/from_hlo.h"
#include "import/lower.h"
#include "import/text.h"

static vt_status read_hlo(vt_bytes program, vt_arena *scratch, vt_hlo **out_hlo,
                          vt_raw_module *out_raw) {
  VT_TRY(vt_hlo_read(program, out_hlo));
  return vt_raw_from_hlo(*out_hlo, program.size, scratch, out_raw);
}

static vt_status import(vt_bytes program, int32_t partitions, bool outline,
                        vt_module **out_module) {
  vt_status st = VT_OK;
  vt_arena scratch = {0};
  vt_raw_module raw = {0};
  vt_hlo *hlo = NULL; // what the tree borrows from
  vt_module *module = vt_module_create();
  module->outline = outline;
  if (partitions > 1) module->num_partitions = partitions;
  *out_module = NULL;
  program = vt_export_program(program);
  if (vt_bytecode_is(program))
    VT_TRY_OUT(vt_bytecode_read(program, vt_vhlo_find, &scratch, &raw));
  else if (vt_hlo_is_text(program) || vt_hlo_is_message(program))
    VT_TRY_OUT(read_hlo(program, &scratch, &hlo, &raw));
  else
    VT_TRY_OUT(vt_mlir_text_read(program, &scratch, &raw));
  VT_TRY_OUT(vt_lower_module(&raw, &scratch, module));
  VT_TRY_OUT(vt_module_verify(module));
  *out_module = module;
  module = NULL;
out:
  vt_module_destroy(module);
  vt_arena_free(&scratch);
  vt_hlo_destroy(hlo);
  return vt_status_wrap(st, "import");
}

vt_status vt_import(vt_bytes program, vt_module **out_module) {
  return import(program, 1, false, out_module);
}

vt_status vt_import_for(vt_bytes program, int32_t partitions, vt_module **out_module) {
  return import(program, partitions, false, out_module);
}

vt_status vt_import_outline(vt_bytes program, vt_module **out_module) {
  return import(program, 1, true, out_module);
}
