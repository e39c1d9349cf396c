// SPDX-License-Identifier: Apache-2.0
// hlo_read_text.c - HLO from text as XLA prints it: tokens, instructions, computations, modules.
//
// What an instruction needs no reader for is skipped: attributes that are not in hlo_fields.def say
// how XLA compiled it. An asynchronous operation is shown without the computation that wraps it
// ("slice-start"): it is read as the operation itself at its start, its end as a copy.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/hlo_lexer.h"

// Failing -----------------------------------------------------------------------------------------

void vt_hlo_fail_with(vt_hlo_lexer *l, vt_status st) {
  if (!st) return;
  if (l->failure) {
    vt_status_free(st);
    return;
  }
  if (l->here) st = vt_hlo_blame(st, l->here);
  int64_t line = 1;
  const char *last = l->at; // of what was read
  while (last > l->start && strchr(" \t\r\n", last[-1])) last--;
  for (const char *c = l->start; c < last; c++) line += *c == '\n';
  l->failure = vt_status_wrap(st, "line %" PRId64, line);
  l->at = l->end;
}

void vt_hlo_fail(vt_hlo_lexer *l, vt_code code, const char *format, ...) {
  if (l->failure) return;
  va_list args;
  va_start(args, format);
  vt_status st = vt_errorv(code, format, args);
  va_end(args);
  vt_hlo_fail_with(l, st);
}

// Tokens ------------------------------------------------------------------------------------------

void vt_hlo_space(vt_hlo_lexer *l) {
  while (l->at < l->end) {
    char c = *l->at;
    bool pair = l->end - l->at > 1 && c == '/';
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      l->at++;
    } else if (pair && l->at[1] == '/') {
      while (l->at < l->end && *l->at != '\n') l->at++;
    } else if (pair && l->at[1] == '*') {
      l->at += 2;
      while (l->end - l->at > 1 && (l->at[0] != '*' || l->at[1] != '/')) l->at++;
      l->at = l->end - l->at > 1 ? l->at + 2 : l->end;
    } else {
      return;
    }
  }
}

bool vt_hlo_peek(vt_hlo_lexer *l, char c) {
  vt_hlo_space(l);
  return l->at < l->end && *l->at == c;
}

bool vt_hlo_take(vt_hlo_lexer *l, const char *token) {
  size_t size = strlen(token);
  vt_hlo_space(l);
  if ((size_t)(l->end - l->at) < size || memcmp(l->at, token, size) != 0) return false;
  l->at += size;
  return true;
}

void vt_hlo_expect(vt_hlo_lexer *l, const char *token) {
  if (!vt_hlo_take(l, token)) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "'%s' was expected", token);
}

static bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

vt_string vt_hlo_name(vt_hlo_lexer *l) {
  vt_hlo_space(l);
  if (l->at < l->end && *l->at == '%') l->at++;
  const char *start = l->at;
  while (l->at < l->end && in_name(*l->at)) l->at++;
  return (vt_string){start, (size_t)(l->at - start)};
}

int64_t vt_hlo_int(vt_hlo_lexer *l) {
  vt_hlo_space(l);
  bool minus = l->at < l->end && *l->at == '-';
  const char *start = l->at += minus;
  int64_t value = 0;
  bool fits = true;
  for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++)
    fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
           !__builtin_add_overflow(value, *l->at - '0', &value);
  if (l->at == start) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a number was expected");
  if (!fits) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "the number is too large");
  return !vt_hlo_ok(l) ? 0 : minus ? -value : value;
}

// The character after a backslash, as C has them.
static char unescape(const char **at, const char *end) {
  char c = *(*at)++;
  static const char from[] = "ntr0abfv", to[] = "\n\t\r\0\a\b\f\v";
  if (c >= '0' && c <= '7') {
    int value = c - '0';
    for (int i = 0; i < 2 && *at < end && **at >= '0' && **at <= '7'; i++)
      value = 8 * value + *(*at)++ - '0';
    return (char)value;
  }
  if (c == 'x') {
    int value = 0;
    for (int i = 0; i < 2 && *at < end && strchr("0123456789abcdefABCDEF", **at) && **at; i++) {
      char digit = *(*at)++;
      value = 16 * value + (digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    return (char)value;
  }
  const char *known = c ? strchr(from, c) : NULL;
  return known ? to[known - from] : c;
}

vt_string vt_hlo_quoted(vt_hlo_lexer *l) {
  char quote = vt_hlo_peek(l, '\'') ? '\'' : '"';
  vt_hlo_expect(l, quote == '"' ? "\"" : "'");
  const char *close = l->at;
  while (close < l->end && *close != quote) close += *close == '\\' && l->end - close > 1 ? 2 : 1;
  if (vt_hlo_ok(l) && close >= l->end) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "the string has no end");
  if (!vt_hlo_ok(l)) return (vt_string){"", 0};
  char *text = vt_arena_push(l->r->arena, (size_t)(close - l->at) + 1);
  size_t size = 0;
  while (l->at < close) {
    char c = *l->at++;
    text[size++] = c == '\\' && l->at < close ? unescape(&l->at, close) : c;
  }
  text[size] = 0;
  l->at = close + 1;
  return (vt_string){text, size};
}

vt_string vt_hlo_balanced(vt_hlo_lexer *l) {
  vt_hlo_space(l);
  const char *start = l->at;
  int64_t depth = 0;
  bool quoted = false;
  for (; l->at < l->end; l->at++) {
    char c = *l->at;
    if (quoted) {
      if (c == '\\' && l->end - l->at > 1)
        l->at++;
      else if (c == '"')
        quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '(' || c == '[') depth++;
    if ((c == '}' || c == ')' || c == ']') && --depth <= 0) {
      l->at++;
      size_t size = (size_t)(l->at - start);
      return (vt_string){vt_arena_copy(l->r->arena, start, size), size};
    }
    if (!depth && !quoted) break;
  }
  vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a pair of brackets was expected");
  return (vt_string){"", 0};
}

void vt_hlo_skip_value(vt_hlo_lexer *l) {
  vt_hlo_space(l);
  while (vt_hlo_ok(l) && l->at < l->end && !strchr(",}) \t\r\n", *l->at)) {
    if (*l->at == '"')
      (void)vt_hlo_quoted(l);
    else if (*l->at == '{' || *l->at == '(' || *l->at == '[')
      (void)vt_hlo_balanced(l);
    else
      l->at++;
  }
}

void vt_hlo_read_ints(vt_hlo_lexer *l, vt_hlo_ints *out) {
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, '}')) {
    int64_t value = vt_hlo_int(l);
    vt_array_push_in(l->r->arena, out, value);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
}

static bool is(vt_string string, const char *text) {
  return string.size == strlen(text) && !memcmp(string.data, text, string.size);
}

// Instructions ------------------------------------------------------------------------------------

static vt_hlo_place read_place(vt_hlo_lexer *l) {
  vt_hlo_place place = {0};
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_take(l, "}")) {
    vt_string name = vt_hlo_name(l);
    vt_hlo_expect(l, "=");
    if (is(name, "op_name"))
      place.name = vt_hlo_quoted(l);
    else if (is(name, "source_file"))
      place.file = vt_hlo_quoted(l);
    else if (is(name, "source_line"))
      place.line = vt_hlo_int(l);
    else if (is(name, "source_column"))
      place.column = vt_hlo_int(l);
    else if (is(name, "stack_frame_id"))
      place.frame = vt_hlo_int(l);
    else
      vt_hlo_skip_value(l);
    (void)vt_hlo_take(l, ",");
  }
  return place;
}

// "%a" or "{%a, %b}".
static void read_called(vt_hlo_lexer *l, vt_hlo_instruction *to, vt_string *out_only) {
  bool list = vt_hlo_take(l, "{");
  while (vt_hlo_ok(l) && !(list && vt_hlo_peek(l, '}'))) {
    vt_string name = vt_hlo_name(l);
    if (!name.size) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a computation was expected");
    if (out_only)
      *out_only = name;
    else if (vt_hlo_ok(l))
      vt_hlo_new_call(l->r, to, name, 0);
    if (!list || !vt_hlo_take(l, ",")) break;
  }
  if (list) vt_hlo_expect(l, "}");
}

// Attributes that name computations, in the order of the message.
static const struct {
  const char *text;
  int place; // -1: one or a list, in order
} called[] = {{"to_apply", -1},
              {"calls", -1},
              {"branch_computations", -1},
              {"called_computations", -1},
              {"body", 0},
              {"condition", 1},
              {"select", 0},
              {"scatter", 1},
              {"true_computation", 0},
              {"false_computation", 1}};

// Names that several fields have: the opcode says which is meant.
static bool is_meant(const char *opcode, vt_hlo_field field) {
  bool scatter = !strcmp(opcode, "scatter"), dot = strstr(opcode, "dot") != NULL;
  switch ((int)field) {
  case VT_HLO_FIELD_SOLVE_LOWER:
    return strcmp(opcode, "cholesky") != 0;
  case VT_HLO_FIELD_GATHER_VECTOR_DIM:
    return !scatter;
  case VT_HLO_FIELD_ALGORITHM:
    return !dot;
  default:
    return true;
  }
}

static void read_attr(vt_hlo_lexer *l, vt_hlo_instruction *to, vt_string ordered[2]) {
  vt_string name = vt_hlo_name(l);
  vt_hlo_expect(l, "=");
  if (!vt_hlo_ok(l)) return;
  for (size_t i = 0; i < sizeof called / sizeof *called; i++) {
    if (!is(name, called[i].text)) continue;
    read_called(l, to, called[i].place < 0 ? NULL : &ordered[called[i].place]);
    return;
  }
  if (is(name, "metadata")) {
    vt_hlo_place place = read_place(l);
    to->loc = vt_hlo_new_loc(l->r, &place);
    return;
  }
  for (vt_hlo_field field = 0; field < VT_HLO_FIELD_COUNT; field++) {
    if (!is(name, vt_hlo_field_get(field)->text) || !is_meant(to->opcode, field)) continue;
    vt_hlo_read_value(l, to, field);
    return;
  }
  if (is(name, "sparsity"))
    vt_hlo_fail(l, VT_UNIMPLEMENTED, "sparse operands are not supported");
  else
    vt_hlo_skip_value(l);
}

static void read_operand(vt_hlo_lexer *l, vt_hlo_instruction *to) {
  if (vt_hlo_peek_shape(l)) (void)vt_hlo_read_shape(l);
  vt_string name = vt_hlo_name(l);
  vt_hlo_instruction *operand =
      name.size ? vt_map_find(&l->instructions, name.data, name.size) : NULL;
  if (!operand)
    vt_hlo_fail(l, VT_INVALID_ARGUMENT, "operand '%.*s' is not defined before it is used",
                (int)(name.size < 80 ? name.size : 80), name.data);
  uint32_t n = to->operand_count;
  if (!(n & (n + 1))) { // grows at 0, 1, 3, 7
    vt_hlo_instruction **grown = VT_NEW_ARRAY(l->r->arena, vt_hlo_instruction *, 2 * n + 1);
    if (n) memcpy(grown, to->operands, n * sizeof *grown);
    to->operands = grown;
  }
  to->operands[to->operand_count++] = operand;
}

static void read_operands(vt_hlo_lexer *l, vt_hlo_instruction *to) {
  vt_hlo_expect(l, "(");
  if (!vt_hlo_ok(l)) return;
  if (!strcmp(to->opcode, "parameter")) {
    vt_hlo_attr_at(l->r, to, VT_HLO_FIELD_PARAMETER_NUMBER)->i64 = vt_hlo_int(l);
  } else if (!strcmp(to->opcode, "constant")) {
    if (to->shape->tuple)
      vt_hlo_fail(l, VT_UNIMPLEMENTED, "a constant that is no array");
    else
      vt_hlo_attr_at(l->r, to, VT_HLO_FIELD_LITERAL)->literal =
          vt_hlo_read_literal(l, to->shape->type);
  } else {
    while (vt_hlo_ok(l) && !vt_hlo_peek(l, ')')) {
      read_operand(l, to);
      if (!vt_hlo_take(l, ",")) break;
    }
  }
  vt_hlo_expect(l, ")");
}

static bool ends_in(const char *text, const char *end) {
  size_t size = strlen(text), tail = strlen(end);
  return size > tail && !strcmp(text + size - tail, end);
}

// Opcodes with a start and an end of their own, which the message has too.
static bool is_own_pair(const char *opcode) {
  static const char *const own[] = {"all-reduce-", "all-gather-", "copy-", "collective-permute-",
                                    "send-",       "recv-",       "async-"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (!strncmp(opcode, own[i], strlen(own[i]))) return true;
  return false;
}

static void unwrap_async(vt_hlo_lexer *l, vt_hlo_instruction *to) {
  bool start = ends_in(to->opcode, "-start");
  if (is_own_pair(to->opcode)) return;
  if (!start && !ends_in(to->opcode, "-done") && !ends_in(to->opcode, "-update")) return;
  if (!start) {
    to->opcode = "copy";
    if (to->operand_count == 1) to->shape = to->operands[0]->shape;
    return;
  }
  if (!to->shape->tuple || to->shape->count < 2) {
    vt_hlo_fail(l, VT_INVALID_ARGUMENT, "its shape does not hold operands and a result");
    return;
  }
  to->shape = to->shape->parts[1];
  to->opcode = vt_arena_copy(l->r->arena, to->opcode, strlen(to->opcode) - strlen("-start"));
}

static void read_instruction(vt_hlo_lexer *l, vt_hlo_computation *at) {
  // ROOT is a word, but an instruction may be called ROOT.1.
  vt_hlo_space(l);
  bool root = l->end - l->at > 5 && !memcmp(l->at, "ROOT ", 5);
  if (root) l->at += 5;
  vt_string name = vt_hlo_name(l), ordered[2] = {{"", 0}, {"", 0}};
  vt_hlo_expect(l, "=");
  if (!vt_hlo_ok(l)) return;
  vt_hlo_instruction *to = vt_hlo_new_instruction(l->r, at);
  to->name = vt_hlo_kept(l->r, name);
  l->here = to;
  to->shape = vt_hlo_read_shape(l);
  to->opcode = vt_hlo_kept(l->r, vt_hlo_name(l));
  if (!vt_hlo_ok(l)) return;
  read_operands(l, to);
  while (vt_hlo_ok(l) && vt_hlo_take(l, ",")) read_attr(l, to, ordered);
  for (int i = 0; i < 2 && vt_hlo_ok(l); i++)
    if (ordered[i].size) vt_hlo_new_call(l->r, to, ordered[i], 0);
  if (vt_hlo_ok(l)) unwrap_async(l, to);
  void **place = vt_map_at(&l->instructions, name.data, name.size);
  if (*place) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "there are two instructions of this name");
  *place = to;
  if (root) at->root = to;
  l->here = NULL;
}

// Computations and the module ---------------------------------------------------------------------

static void read_computation(vt_hlo_lexer *l) {
  vt_hlo_space(l);
  bool entry = l->end - l->at > 6 && !memcmp(l->at, "ENTRY ", 6);
  if (entry) l->at += 6;
  vt_string name = vt_hlo_name(l);
  if (!name.size) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a computation was expected");
  if (vt_hlo_peek(l, '(')) { // its type, which its instructions say again
    (void)vt_hlo_balanced(l);
    vt_hlo_expect(l, "->");
    (void)vt_hlo_read_shape(l);
  }
  vt_hlo_expect(l, "{");
  if (!vt_hlo_ok(l)) return;
  vt_hlo_computation *made = vt_hlo_new_computation(l->r, name);
  while (vt_hlo_ok(l) && !vt_hlo_take(l, "}")) read_instruction(l, made);
  vt_map_free(&l->instructions);
  if (vt_hlo_take(l, ",")) { // execution_thread="..."
    (void)vt_hlo_name(l);
    vt_hlo_expect(l, "=");
    vt_hlo_skip_value(l);
  }
  void **place = vt_map_at(&l->r->computations, name.data, name.size);
  if (*place) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "there are two computations %s", made->name);
  *place = made;
  if (entry && l->r->hlo->entry) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "there are two entries");
  if (entry) l->r->hlo->entry = made;
}

// { {1}: (0, {}, may-alias) } or { (1, {}) }
static void read_donations(vt_hlo_lexer *l, bool named) {
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, '}')) {
    vt_hlo_ints result = {0}, param = {0};
    vt_hlo_donation donation = {.named = named};
    if (named) {
      vt_hlo_read_ints(l, &result);
      vt_hlo_expect(l, ":");
    }
    vt_hlo_expect(l, "(");
    donation.param = vt_hlo_int(l);
    if (vt_hlo_take(l, ",")) vt_hlo_read_ints(l, &param);
    while (vt_hlo_take(l, ",")) (void)vt_hlo_name(l);
    vt_hlo_expect(l, ")");
    donation.param_depth = (uint32_t)param.size;
    donation.result_depth = (uint32_t)result.size;
    donation.param_path = param.data;
    donation.result_path = result.data;
    vt_array_push_in(l->r->arena, &l->r->donations, donation);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
}

// {(f32[2]{0}, s32[])->(f32[2]{0})}
static void read_entry_layout(vt_hlo_lexer *l) {
  vt_hlo_expect(l, "{");
  const vt_hlo_shape *params = vt_hlo_read_shape(l);
  vt_hlo_expect(l, "->");
  const vt_hlo_shape *result = vt_hlo_read_shape(l);
  vt_hlo_expect(l, "}");
  if (!vt_hlo_ok(l)) return;
  if (!params->tuple) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "parameters are in brackets");
  l->r->hlo->param_count = params->count;
  l->r->hlo->params = params->count ? (const vt_hlo_shape **)(uintptr_t)params->parts
                                    : VT_NEW(l->r->arena, const vt_hlo_shape *);
  l->r->hlo->result = result;
}

static int32_t read_count(vt_hlo_lexer *l) {
  int64_t count = vt_hlo_int(l);
  if (count < 1 || count > 1 << 20) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "no number of devices");
  return vt_hlo_ok(l) ? (int32_t)count : 0;
}

static void read_header(vt_hlo_lexer *l) {
  vt_hlo *hlo = l->r->hlo;
  vt_hlo_expect(l, "HloModule");
  hlo->name = vt_hlo_kept(l->r, vt_hlo_name(l));
  while (vt_hlo_ok(l) && vt_hlo_take(l, ",")) {
    vt_string name = vt_hlo_name(l);
    vt_hlo_expect(l, "=");
    if (is(name, "entry_computation_layout"))
      read_entry_layout(l);
    else if (is(name, "input_output_alias"))
      read_donations(l, true);
    else if (is(name, "buffer_donor"))
      read_donations(l, false);
    else if (is(name, "replica_count"))
      hlo->replicas = read_count(l);
    else if (is(name, "num_partitions"))
      hlo->partitions = read_count(l);
    else if (is(name, "is_scheduled"))
      hlo->scheduled = is(vt_hlo_name(l), "true");
    else if (is(name, "frontend_attributes"))
      hlo->frontend = vt_hlo_read_dict(l);
    else
      vt_hlo_skip_value(l);
  }
}

// "1 {file_name_id=1 line=4 ...}": the numbers of the names given.
static void read_numbers(vt_hlo_lexer *l, uint32_t count, const char *const *names, int64_t *out) {
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_take(l, "}")) {
    vt_string name = vt_hlo_name(l);
    vt_hlo_expect(l, "=");
    int64_t value = vt_hlo_int(l);
    for (uint32_t i = 0; i < count; i++)
      if (is(name, names[i])) out[i] = value;
  }
}

static bool at_number(vt_hlo_lexer *l) {
  vt_hlo_space(l);
  return vt_hlo_ok(l) && l->at < l->end && *l->at >= '0' && *l->at <= '9';
}

// The lists of the stack frames, each row behind its number from 1 on.
static void read_frames(vt_hlo_lexer *l) {
  static const char *const place_names[] = {"file_name_id", "line", "column"};
  static const char *const frame_names[] = {"file_location_id", "parent_frame_id"};
  vt_hlo_reader *r = l->r;
  if (vt_hlo_take(l, "FileNames"))
    while (at_number(l)) {
      (void)vt_hlo_int(l);
      vt_string file = vt_hlo_quoted(l);
      vt_array_push_in(r->arena, &r->files, file);
    }
  if (vt_hlo_take(l, "FunctionNames"))
    while (at_number(l)) (void)vt_hlo_int(l), (void)vt_hlo_quoted(l);
  if (vt_hlo_take(l, "FileLocations"))
    while (at_number(l)) {
      int64_t row[3] = {0};
      (void)vt_hlo_int(l);
      read_numbers(l, 3, place_names, row);
      vt_hlo_place place = {.frame = row[0], .line = row[1], .column = row[2]};
      vt_array_push_in(r->arena, &r->places, place);
    }
  if (vt_hlo_take(l, "StackFrames"))
    while (at_number(l)) {
      int64_t row[2] = {0};
      (void)vt_hlo_int(l);
      read_numbers(l, 2, frame_names, row);
      // The text counts parents from 1, of which the first stands for none.
      vt_hlo_place place = {.line = row[0], .column = row[1] - 1};
      vt_array_push_in(r->arena, &r->frames, place);
    }
}

vt_status vt_hlo_read_text(vt_hlo_reader *r, vt_bytes program) {
  const char *start = (const char *)program.data;
  vt_hlo_lexer l = {.r = r, .start = start, .at = start, .end = start + program.size};
  read_header(&l);
  read_frames(&l);
  for (vt_hlo_space(&l); vt_hlo_ok(&l) && l.at < l.end; vt_hlo_space(&l)) read_computation(&l);
  vt_map_free(&l.instructions);
  VT_TRY(l.failure);
  return vt_hlo_finish(r, true);
}
