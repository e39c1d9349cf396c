// SPDX-License-Identifier: Apache-2.0
// print.h - the parts of the printer (print*.c) and helpers for messages that quote attributes.
#ifndef VT_IR_PRINT_H
#define VT_IR_PRINT_H

#include "ir/module.h"
#include "ir/sharding.h"

void vt_print_string(vt_text *out, const char *data, size_t size); // quoted, escaped as MLIR does
// dense<...> : type; elided as a resource past `max_elements` (-1 = never)
void vt_print_literal(vt_text *out, const vt_literal *literal, int64_t max_elements);
void vt_print_mesh(vt_text *out, const vt_mesh *mesh); // #sdy.mesh<["x"=2]>
// <@mesh, [{"x"}, {}]>, with #sdy.sharding in front when `prefix`. "" for kinds without a mesh.
void vt_print_sharding(vt_text *out, const vt_sharding *sharding, bool prefix);
// The grouped attribute of dot_general, gather, scatter and convolution. false: the op has none
bool vt_print_numbers(vt_text *out, const vt_op *op);

#endif
