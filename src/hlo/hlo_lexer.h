// SPDX-License-Identifier: Apache-2.0
// hlo_lexer.h - private to the reader of HLO text: hlo_read_text.c, hlo_read_value.c.
//
// Errors are sticky: the first is kept, and afterwards the position is at the end of the text,
// where every function returns at once.
#ifndef VT_HLO_HLO_LEXER_H
#define VT_HLO_HLO_LEXER_H

#include "hlo/hlo_reader.h"

typedef struct vt_hlo_lexer {
  vt_hlo_reader *r;
  const char *start, *at, *end;
  vt_status failure;
  vt_map instructions;      // of the computation being read
  vt_hlo_instruction *here; // being read, for messages; NULL between them
} vt_hlo_lexer;

void vt_hlo_fail(vt_hlo_lexer *l, vt_code code, const char *format, ...) VT_PRINTF(3, 4);
// Keeps a failure of what checked a value.
void vt_hlo_fail_with(vt_hlo_lexer *l, vt_status st);
static inline bool vt_hlo_ok(const vt_hlo_lexer *l) {
  return !l->failure;
}

// Tokens. White space and comments before them are skipped.
void vt_hlo_space(vt_hlo_lexer *l);
bool vt_hlo_peek(vt_hlo_lexer *l, char c);
bool vt_hlo_take(vt_hlo_lexer *l, const char *token);
void vt_hlo_expect(vt_hlo_lexer *l, const char *token);
vt_string vt_hlo_name(vt_hlo_lexer *l); // with or without %; empty when there is none
int64_t vt_hlo_int(vt_hlo_lexer *l);
vt_string vt_hlo_quoted(vt_hlo_lexer *l);   // "..." or '...', escapes resolved
vt_string vt_hlo_balanced(vt_hlo_lexer *l); // from an opening bracket to its partner, both included
void vt_hlo_skip_value(vt_hlo_lexer *l);    // of an attribute
void vt_hlo_read_ints(vt_hlo_lexer *l, vt_hlo_ints *out); // {1,2}

// Values (hlo_read_value.c).
const vt_hlo_shape *vt_hlo_read_shape(vt_hlo_lexer *l);
bool vt_hlo_peek_shape(vt_hlo_lexer *l);
const vt_literal *vt_hlo_read_literal(vt_hlo_lexer *l, vt_type type);
// The value of an attribute after its "=".
void vt_hlo_read_value(vt_hlo_lexer *l, vt_hlo_instruction *to, vt_hlo_field field);
const vt_dict_value *vt_hlo_read_dict(vt_hlo_lexer *l);

#endif
