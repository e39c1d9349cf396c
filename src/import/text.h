// SPDX-License-Identifier: Apache-2.0
// text.h - StableHLO as MLIR text, pretty or generic, to the raw tree.
//
// Reads what MLIR prints for the builtin, func, stablehlo and sdy dialects. Attributes that
// StableHLO keeps in structures (dot and gather dimensions, channel handles) are flattened into the
// field names that VHLO uses, so that lowering sees one form. An op without a location has its line
// in the text.
#ifndef VT_IMPORT_TEXT_H
#define VT_IMPORT_TEXT_H

#include "import/raw.h"

// errors INVALID_ARGUMENT with line and column; UNIMPLEMENTED for unknown ops
vt_status vt_mlir_text_read(vt_bytes program, vt_arena *arena,
                            vt_raw_module *out_module) VT_CHECKED;
// One attribute and nothing after it, as in strings of frontend attributes.
vt_status vt_mlir_text_attr(vt_string text, vt_arena *arena,
                            const vt_raw_attr **out_attr) VT_CHECKED;

#endif
