// SPDX-License-Identifier: Apache-2.0
// import.h - external programs become modules.
//
// Accepts MLIR bytecode holding a StableHLO portable artifact (VHLO of any version up to 1.20.0,
// mixed with sdy and builtin ops), StableHLO text, and HLO, as text or as the message
// xla.HloModuleProto alone, with its configuration, or in a HloProto. Properties of the module,
// beyond the invariants of ir/module.h:
//  - tuples and futures are flattened, unrealized casts and async pairs are removed,
//    sdy.named_computation is inlined;
//  - constants of one element (or splats) that a region uses from outside are repeated inside
//    instead of captured, sharing their data;
//  - stablehlo.dot, broadcast, cross-replica-sum are kept (src/passes rewrites them);
//    einsum becomes dot_general and transpose, dynamic_reshape, dynamic_iota,
//    dynamic_broadcast_in_dim and get_dimension_size fold when the result type is static, and
//    set_dimension_size to the dimension's own size;
//  - optional attributes: the eight of a dot algorithm (all present or none), RESULT_ACCURACY
//    (absent = default), BACKEND_DICT, SHARDING,
//    MHLO_SHARDING, FRONTEND_ATTRIBUTES; layouts are written "[1,0];[0]" in operand order;
//  - calls never recurse.
// Trusts nothing: any bytes give a verified module or an error that says where and why. Threads:
// any.
#ifndef VT_IMPORT_IMPORT_H
#define VT_IMPORT_IMPORT_H

#include "base/file.h"
#include "ir/module.h"

// `program` is borrowed for the call only; out_module is owned by the caller (vt_module_destroy).
// errors INVALID_ARGUMENT (malformed; names offset and cause), UNIMPLEMENTED (dynamic shapes,
// quantised types, unknown ops; names the op and its location in the user's source)
vt_status vt_import(vt_bytes program, vt_module **out_module) VT_CHECKED;

// The same for a program that is to run on so many partitions and may not say so itself, like those
// of PyTorch/XLA.
vt_status vt_import_for(vt_bytes program, int32_t partitions, vt_module **out_module) VT_CHECKED;

// The same for a program that is only measured: erfc and its like become one operator of about the
// cost that they have on a TPU, not the formula that computes them here.
vt_status vt_import_outline(vt_bytes program, vt_module **out_module) VT_CHECKED;

#endif
