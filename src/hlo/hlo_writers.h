// SPDX-License-Identifier: Apache-2.0
// hlo_writers.h - private to writers and readers: what the two forms of HLO share.
#ifndef VT_HLO_HLO_WRITERS_H
#define VT_HLO_HLO_WRITERS_H

#include "hlo/hlo.h"

// hlo_shape.c: an element type in HLO.
typedef struct vt_hlo_dtype {
  const char *text;
  uint8_t number;  // xla.PrimitiveType
  uint8_t literal; // the field of xla.LiteralProto with its elements
} vt_hlo_dtype;
const vt_hlo_dtype *vt_hlo_dtype_get(vt_dtype dtype);
// VT_DTYPE_INVALID when there is none.
vt_dtype vt_hlo_dtype_named(vt_string text);
vt_dtype vt_hlo_dtype_numbered(uint64_t number);
// The value of an ENUM or PRECISION that prints as this word; -1 when none does.
int64_t vt_hlo_word_value(vt_hlo_field field, vt_string word);
// A new attribute in its place among the others.
vt_hlo_attr *vt_hlo_add_attr(vt_arena *arena, vt_hlo_instruction *instruction, vt_hlo_field field);
// "f32[2,3]", with layouts "f32[2,3]{1,0:S(5)}".
void vt_hlo_put_shape(vt_text *out, const vt_hlo_shape *shape, bool layouts);
// The dimensions from minor to major.
void vt_hlo_layout_order(const vt_hlo_shape *shape, int64_t *out_order);

// hlo_literal.c.
// More than `largest` elements are {...}.
void vt_hlo_put_literal(vt_text *out, const vt_literal *literal, int64_t largest);
void vt_hlo_put_quoted(vt_text *out, vt_string string);        // escaped, in quotes
void vt_hlo_put_dict(vt_text *out, const vt_dict_value *dict); // {a = 1 : i64}
void vt_hlo_put_value(vt_text *out, const vt_dict_value *value);

// hlo_sharding.c: an xla.OpSharding message as text, "{devices=[2,1]0,1}"; text as it is.
void vt_hlo_put_sharding(vt_text *out, vt_string message);

#endif
