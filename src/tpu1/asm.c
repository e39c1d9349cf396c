// SPDX-License-Identifier: Apache-2.0
// asm.c - assembler, disassembler and the generated manual of the TPU v1 instruction set.
// In: text or decoded instructions. Out: the other, or an error with line and column. Trusts no
// input. Not here: legality of a whole program (check.c).
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "tpu1/isa.h"

typedef struct reader {
  const char *at, *end, *line_start;
  int line;
  vt_map symbols; // name to int64_t in arena
  vt_arena arena;
} reader;

typedef struct word {
  const char *text;
  size_t size;
} word;

static vt_status fail(const reader *r, const char *at, const char *what, word w) {
  return vt_error(VT_INVALID_ARGUMENT, "line %d, column %d: %s '%.*s'", r->line,
                  (int)(at - r->line_start) + 1, what, (int)(w.size > 40 ? 40 : w.size), w.text);
}

static bool word_is(word w, const char *text) {
  return strlen(text) == w.size && memcmp(w.text, text, w.size) == 0;
}

static bool word_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-' || c == '+';
}

static void skip_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')) r->at++;
  if (r->at < r->end && *r->at == ';')
    while (r->at < r->end && *r->at != '\n') r->at++;
}

static word next_word(reader *r) {
  skip_space(r);
  word w = {r->at, 0};
  while (r->at < r->end && word_char(*r->at)) r->at++;
  w.size = (size_t)(r->at - w.text);
  return w;
}

static bool number_of(const reader *r, word w, int64_t *out_value) {
  char digits[40];
  if (w.size == 0 || w.size >= sizeof digits) return false;
  const int64_t *symbol = vt_map_find(&r->symbols, w.text, w.size);
  if (symbol) {
    *out_value = *symbol;
    return true;
  }
  memcpy(digits, w.text, w.size);
  digits[w.size] = 0;
  char *end;
  errno = 0;
  *out_value = strtoll(digits, &end, 0);
  return *end == 0 && errno == 0;
}

static bool name_of(const char *const *names, word w, int64_t *out_value) {
  for (int i = 0; names[i]; i++)
    if (word_is(w, names[i])) {
      *out_value = i;
      return true;
    }
  return false;
}

// a+b+c of unit names as a mask.
static bool units_of(word w, int64_t *out_mask) {
  const char *end = w.text + w.size;
  *out_mask = 0;
  while (w.text < end) {
    const char *plus = memchr(w.text, '+', (size_t)(end - w.text));
    word one = {w.text, (size_t)((plus ? plus : end) - w.text)};
    int64_t unit;
    if (!name_of(vt_tpu1_kind_names(VT_TPU1_KIND_UNITS), one, &unit)) return false;
    *out_mask |= (int64_t)1 << unit;
    w.text = plus ? plus + 1 : end;
  }
  return true;
}

static vt_status field_parse(reader *r, vt_tpu1_insn *insn, uint64_t *seen) {
  const char *at = r->at;
  word name = next_word(r), text = {0};
  if (name.size == 0) return fail(r, r->at, "unexpected", (word){r->at, 1});
  const vt_tpu1_field *found = NULL;
  VT_TPU1_EACH_FIELD(insn->op, field) if (word_is(name, field->name)) found = field;
  if (!found) return fail(r, at, "unknown field", name);
  uint64_t bit = 1ull << (found - vt_tpu1_op_get(insn->op)->fields);
  if (*seen & bit) return fail(r, at, "field given twice", name);
  *seen |= bit;
  int64_t value = 1;
  skip_space(r);
  if (r->at < r->end && *r->at == '=') {
    r->at++;
    text = next_word(r);
    const char *const *names = vt_tpu1_kind_names(found->kind);
    bool ok = number_of(r, text, &value);
    if (!ok && found->kind == VT_TPU1_KIND_UNITS)
      ok = units_of(text, &value);
    else if (!ok && names)
      ok = name_of(names, text, &value);
    if (!ok) return fail(r, text.text, "not a value for this field:", text);
  } else if (found->kind != VT_TPU1_KIND_FLAG) {
    return fail(r, at, "field needs a value:", name);
  }
  if (value > INT32_MAX && found->size == sizeof(int32_t))
    return fail(r, text.text, "value too large:", text);
  if (value < INT32_MIN && found->size == sizeof(int32_t))
    return fail(r, text.text, "value too small:", text);
  vt_tpu1_field_assign(insn, found, value);
  return VT_OK;
}

static vt_status directive_parse(reader *r, word name) {
  if (!word_is(name, ".equ")) return fail(r, name.text, "unknown directive", name);
  word symbol = next_word(r), text = next_word(r);
  if (symbol.size == 0 || isdigit((unsigned char)symbol.text[0]) || symbol.text[0] == '-')
    return fail(r, symbol.text, "not a name:", symbol);
  int64_t *value = VT_NEW(&r->arena, int64_t);
  if (!number_of(r, text, value)) return fail(r, text.text, "not a number:", text);
  *vt_map_at(&r->symbols, symbol.text, symbol.size) = value;
  return VT_OK;
}

static vt_status line_parse(reader *r, vt_tpu1_code *code) {
  word name = next_word(r);
  if (name.size == 0) return VT_OK;
  if (name.text[0] == '.') return directive_parse(r, name);
  vt_tpu1_insn insn = {.op = VT_TPU1_OPS};
  for (int op = 0; op < VT_TPU1_OPS; op++)
    if (word_is(name, vt_tpu1_op_get((vt_tpu1_op)op)->mnemonic)) insn.op = (vt_tpu1_op)op;
  if (insn.op == VT_TPU1_OPS) return fail(r, name.text, "unknown instruction", name);
  uint64_t seen = 0;
  for (skip_space(r); r->at < r->end && *r->at != '\n'; skip_space(r))
    VT_TRY(field_parse(r, &insn, &seen));
  uint8_t bytes[VT_TPU1_INSN_BYTES];
  vt_status st = vt_tpu1_encode(&insn, bytes);
  if (st) return vt_status_wrap(st, "line %d", r->line);
  vt_array_push(code, insn);
  return VT_OK;
}

vt_status vt_tpu1_assemble(vt_bytes text, vt_tpu1_code *code) {
  const char *data = text.data ? (const char *)text.data : "";
  reader r = {.at = data, .end = data + text.size, .line_start = data, .line = 1};
  vt_status st = VT_OK;
  while (!st && r.at < r.end) {
    st = line_parse(&r, code);
    if (st) break;
    skip_space(&r);
    if (r.at < r.end && *r.at != '\n') {
      st = fail(&r, r.at, "unexpected", (word){r.at, 1});
      break;
    }
    r.at++;
    r.line++;
    r.line_start = r.at;
  }
  vt_map_free(&r.symbols);
  vt_arena_free(&r.arena);
  return st;
}

static void value_print(const vt_tpu1_field *field, int64_t value, vt_text *text) {
  const char *const *names = vt_tpu1_kind_names(field->kind);
  if (!names) {
    vt_text_printf(text, "%lld", (long long)value);
  } else if (field->kind == VT_TPU1_KIND_UNITS && value) {
    const char *plus = "";
    for (int i = 0; names[i]; i++)
      if (value >> i & 1) {
        vt_text_printf(text, "%s%s", plus, names[i]);
        plus = "+";
      }
  } else {
    vt_text_put(text, field->kind == VT_TPU1_KIND_UNITS ? "0" : names[value]);
  }
}

void vt_tpu1_print(const vt_tpu1_insn *insn, vt_text *text) {
  vt_text_put(text, vt_tpu1_op_get(insn->op)->mnemonic);
  VT_TPU1_EACH_FIELD(insn->op, field) {
    int64_t value = vt_tpu1_field_value(insn, field);
    if (value == 0) continue;
    vt_text_printf(text, " %s", field->name);
    if (field->kind == VT_TPU1_KIND_FLAG) continue;
    vt_text_put(text, "=");
    value_print(field, value, text);
  }
}

static void document_names(vt_text *text, const char *title, vt_tpu1_kind kind) {
  const char *const *names = vt_tpu1_kind_names(kind);
  vt_text_printf(text, "| %s |", title);
  for (int i = 0; names[i]; i++)
    vt_text_printf(text, " %s = %d%s", names[i], kind == VT_TPU1_KIND_UNITS ? 1 << i : i,
                   names[i + 1] ? "," : " |\n");
}

void vt_tpu1_isa_document(vt_text *text) {
  vt_text_put(
      text,
      "# TPU v1 instruction set\n\n"
      "Generated by `vtpu v1 isa` from `src/tpu1/isa.def` and `src/tpu1/regs.def`; do not edit.\n"
      "An instruction has 12 bytes, little endian; byte 0 is the opcode, bits without a field are "
      "zero.\n"
      "Assembler text omits zero fields: `matmul ub=0 rows=200 repeat=7 switch_tile`.\n"
      "The top of `isa.def` says what is published and what is ours; what the instructions compute "
      "and\n"
      "how long they take is in [tpu1.md](tpu1.md).\n\n## Instructions\n");
  for (int op = 0; op < VT_TPU1_OPS; op++) {
    const vt_tpu1_op_info *info = vt_tpu1_op_get((vt_tpu1_op)op);
    vt_text_printf(text, "\n### %s (opcode 0x%02x, unit: %s)\n\n%s.\n", info->mnemonic,
                   (unsigned)op, vt_tpu1_unit_name(info->unit), info->summary);
    const char *header = "\n| field | bits | kind | meaning |\n|---|---|---|---|\n";
    static const char *const kinds[] = {"unsigned", "signed",    "flag",     "nonlinearity",
                                        "pooling",  "operation", "register", "units"};
    VT_TPU1_EACH_FIELD((vt_tpu1_op)op, field) {
      vt_text_printf(text, "%s| %s | %d..%d | %s | %s |\n", header, field->name, field->bit,
                     field->bit + field->bits - 1, kinds[field->kind], field->summary);
      header = "";
    }
  }
  vt_text_put(text, "\n## Named values\n\n| kind | values |\n|---|---|\n");
  document_names(text, "nonlinearity", VT_TPU1_KIND_FN);
  document_names(text, "pooling", VT_TPU1_KIND_POOL);
  document_names(text, "operation", VT_TPU1_KIND_VOP);
  document_names(text, "units (added up)", VT_TPU1_KIND_UNITS);
  vt_text_put(text, "\n## Mode registers\n\n| number | name | range | reset | meaning "
                    "|\n|---|---|---|---|---|\n");
  for (int i = 0; i < VT_TPU1_REGS; i++) {
    const vt_tpu1_reg_info *reg = vt_tpu1_reg_get(i);
    vt_text_printf(text, "| %d | %s | %lld..%lld | %lld | %s |\n", i, reg->name,
                   (long long)reg->low, (long long)reg->high, (long long)reg->reset, reg->summary);
  }
}
