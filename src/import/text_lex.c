// SPDX-License-Identifier: Apache-2.0
// text_lex.c - tokens of MLIR text.
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "import/text_parser.h"

void vt_parse_fail(vt_parser *p, vt_code code, const char *format, ...) {
  if (vt_parse_ok(p)) {
    int line = 1;
    const char *line_start = p->start;
    for (const char *c = p->start; c < p->at; c++)
      if (*c == '\n') {
        line++;
        line_start = c + 1;
      }
    va_list args;
    va_start(args, format);
    p->failure = vt_status_wrap(vt_errorv(code, format, args), "line %d column %d", line,
                                (int)(p->at - line_start) + 1);
    va_end(args);
  }
  p->at = p->end;
}

bool vt_parse_enter(vt_parser *p) {
  if (++p->depth > VT_TEXT_DEPTH) vt_parse_fail(p, VT_INVALID_ARGUMENT, "nested too deeply");
  return vt_parse_ok(p);
}

void vt_parse_space(vt_parser *p) {
  while (p->at < p->end) {
    if (isspace((unsigned char)*p->at)) {
      p->at++;
    } else if (p->end - p->at >= 2 && p->at[0] == '/' && p->at[1] == '/') {
      while (p->at < p->end && *p->at != '\n') p->at++;
    } else {
      return;
    }
  }
}

static bool is_word_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$';
}

bool vt_parse_peek(vt_parser *p, const char *token) {
  size_t size = strlen(token);
  vt_parse_space(p);
  if ((size_t)(p->end - p->at) < size || memcmp(p->at, token, size)) return false;
  return !is_word_char(token[size - 1]) || p->at + size == p->end || !is_word_char(p->at[size]);
}

bool vt_parse_take(vt_parser *p, const char *token) {
  if (!vt_parse_peek(p, token)) return false;
  p->at += strlen(token);
  return true;
}

void vt_parse_expect(vt_parser *p, const char *token) {
  if (!vt_parse_take(p, token)) vt_parse_fail(p, VT_INVALID_ARGUMENT, "'%s' expected", token);
}

bool vt_parse_peek_char(vt_parser *p, char c) {
  vt_parse_space(p);
  return p->at < p->end && *p->at == c;
}

vt_string vt_parse_word(vt_parser *p) {
  vt_parse_space(p);
  const char *start = p->at;
  if (p->at < p->end && (isalpha((unsigned char)*p->at) || *p->at == '_'))
    while (p->at < p->end && is_word_char(*p->at)) p->at++;
  return (vt_string){start, (size_t)(p->at - start)};
}

vt_string vt_parse_suffix_id(vt_parser *p) {
  const char *start = p->at;
  while (p->at < p->end && (is_word_char(*p->at) || *p->at == '-')) {
    if (*p->at == '-' && p->at + 1 < p->end && p->at[1] == '>') break;
    p->at++;
  }
  if (p->at == start) vt_parse_fail(p, VT_INVALID_ARGUMENT, "a name was expected");
  return (vt_string){start, (size_t)(p->at - start)};
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

vt_string vt_parse_quoted(vt_parser *p) {
  if (!vt_parse_take(p, "\"")) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "a string was expected");
    return (vt_string){"", 0};
  }
  const char *start = p->at;
  while (p->at < p->end && *p->at != '"' && *p->at != '\n')
    p->at += *p->at == '\\' && p->at + 1 < p->end ? 2 : 1;
  if (p->at >= p->end || *p->at != '"') {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "unterminated string");
    return (vt_string){"", 0};
  }
  const char *end = p->at++;
  char *out = vt_arena_push(p->arena, (size_t)(end - start) + 1);
  size_t size = 0;
  for (const char *c = start; c < end; c++) {
    if (*c != '\\' || c + 1 >= end) {
      out[size++] = *c;
    } else if (c + 2 < end && hex_digit(c[1]) >= 0 && hex_digit(c[2]) >= 0) {
      out[size++] = (char)(hex_digit(c[1]) * 16 + hex_digit(c[2]));
      c += 2;
    } else {
      c++;
      out[size++] = *c == 'n' ? '\n' : *c == 't' ? '\t' : *c;
    }
  }
  return (vt_string){out, size};
}

vt_string vt_parse_symbol(vt_parser *p) {
  vt_parse_expect(p, "@");
  if (p->at < p->end && *p->at == '"') return vt_parse_quoted(p);
  return vt_parse_ok(p) ? vt_parse_suffix_id(p) : (vt_string){"", 0};
}

bool vt_parse_number(vt_parser *p, vt_string *out_text) {
  vt_parse_space(p);
  const char *c = p->at;
  if (c < p->end && (*c == '-' || *c == '+')) c++;
  if (c >= p->end || !isdigit((unsigned char)*c)) return false;
  if (*c == '0' && c + 2 < p->end && c[1] == 'x' && hex_digit(c[2]) >= 0) {
    for (c += 2; c < p->end && hex_digit(*c) >= 0;) c++;
  } else {
    while (c < p->end && isdigit((unsigned char)*c)) c++;
    if (c < p->end && *c == '.')
      for (c++; c < p->end && isdigit((unsigned char)*c);) c++;
    if (c + 1 < p->end && (*c == 'e' || *c == 'E')) {
      const char *e = c + 1;
      if (*e == '-' || *e == '+') e++;
      if (e < p->end && isdigit((unsigned char)*e))
        for (c = e; c < p->end && isdigit((unsigned char)*c);) c++;
    }
  }
  *out_text = (vt_string){p->at, (size_t)(c - p->at)};
  p->at = c;
  return true;
}

int64_t vt_parse_int(vt_parser *p) {
  vt_parse_space(p);
  bool negative = vt_parse_take(p, "-");
  uint64_t value = 0;
  const char *start = p->at;
  for (; p->at < p->end && isdigit((unsigned char)*p->at); p->at++) {
    if (value > UINT64_MAX / 10 - 1) {
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "number is too large");
      return 0;
    }
    value = value * 10 + (uint64_t)(*p->at - '0');
  }
  if (p->at == start) vt_parse_fail(p, VT_INVALID_ARGUMENT, "a number was expected");
  return (int64_t)(negative ? 0 - value : value);
}

void vt_parse_ints(vt_parser *p, const char *open, const char *close, vt_int_list *out) {
  vt_parse_expect(p, open);
  if (vt_parse_take(p, close)) return;
  do {
    int64_t value = vt_parse_take(p, "true") ? 1 : vt_parse_take(p, "false") ? 0 : vt_parse_int(p);
    vt_array_push_in(p->arena, out, value);
  } while (vt_parse_ok(p) && vt_parse_take(p, ","));
  vt_parse_expect(p, close);
}

void vt_parse_skip_balanced(vt_parser *p) {
  int depth = 0;
  vt_parse_space(p);
  do {
    if (p->at >= p->end) {
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "a bracket is not closed");
      return;
    }
    char c = *p->at;
    if (c == '"') {
      (void)vt_parse_quoted(p);
      continue;
    }
    bool arrow = c == '>' && p->at > p->start && p->at[-1] == '-';
    if (c == '(' || c == '[' || c == '{' || c == '<') depth++;
    if (c == ')' || c == ']' || c == '}' || (c == '>' && !arrow)) depth--;
    p->at++;
  } while (depth > 0);
}
