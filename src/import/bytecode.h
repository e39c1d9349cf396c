// SPDX-License-Identifier: Apache-2.0
// bytecode.h - MLIR bytecode to the raw tree.
#ifndef VT_IMPORT_BYTECODE_H
#define VT_IMPORT_BYTECODE_H

#include "import/raw.h"

bool vt_bytecode_is(vt_bytes program); // starts with the magic
// The row of an op by its name, with its dialect; NULL when unknown.
typedef const vt_vhlo_row *(*vt_op_find)(const char *name, size_t size);
// `find` says which ops there are: vt_vhlo_find for programs.
// errors INVALID_ARGUMENT with offset and cause; UNIMPLEMENTED for ops that `find` does not know
vt_status vt_bytecode_read(vt_bytes program, vt_op_find find, vt_arena *arena,
                           vt_raw_module *out_module) VT_CHECKED;

#endif
