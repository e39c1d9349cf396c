// SPDX-License-Identifier: Apache-2.0
// cli_output.c - gcloud's output formats over JSON: json, yaml, value(a,b.c), csv(...),
// table(a,b:label=X). In:  one object or a list. Out: text on standard output. `a.basename()` and
// `a[0].b` in keys are understood.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/client/cloud_cli.h"

static bool needs_quotes(const char *text) {
  return !*text || strpbrk(text, ":#{}[],&*!|>'\"%@`\n") || strchr(" -?", *text) ||
         text[strlen(text) - 1] == ' ' || strcmp(text, "true") == 0 || strcmp(text, "false") == 0 ||
         strcmp(text, "null") == 0 || strspn(text, "0123456789.+-eE") == strlen(text);
}

static void yaml_scalar(const json_t *value) {
  if (json_is_string(value)) {
    const char *text = json_string_value(value);
    if (!needs_quotes(text)) {
      fputs(text, stdout);
      return;
    }
    putchar('\'');
    for (; *text; text++) {
      if (*text == '\'') putchar('\'');
      if (*text == '\n')
        fputs("\n\n", stdout);
      else
        putchar(*text);
    }
    putchar('\'');
    return;
  }
  char *text = json_dumps(value, JSON_ENCODE_ANY);
  fputs(text ? text : "null", stdout);
  free(text);
}

// Keys in order, as gcloud prints resources.
static void yaml(const json_t *value, int depth, bool in_list) {
  if (json_is_object(value) && json_object_size(value)) {
    size_t n = json_object_size(value), i = 0;
    const char **keys = calloc(n, sizeof *keys), *key;
    json_t *unused;
    if (!keys) return;
    json_object_foreach((json_t *)value, key, unused) keys[i++] = key;
    for (size_t a = 1; a < n; a++)
      for (size_t b = a; b > 0 && strcmp(keys[b - 1], keys[b]) > 0; b--) {
        const char *swap = keys[b];
        keys[b] = keys[b - 1];
        keys[b - 1] = swap;
      }
    for (i = 0; i < n; i++) {
      const json_t *child = json_object_get(value, keys[i]);
      bool nested = (json_is_object(child) && json_object_size(child)) ||
                    (json_is_array(child) && json_array_size(child));
      printf("%*s%s:%s", in_list && i == 0 ? 0 : depth, "", keys[i], nested ? "\n" : " ");
      yaml(child, json_is_array(child) ? depth : depth + 2, false);
    }
    free(keys);
  } else if (json_is_array(value) && json_array_size(value)) {
    for (size_t i = 0; i < json_array_size(value); i++) {
      printf("%*s- ", depth, "");
      yaml(json_array_get(value, i), depth + 2, true);
    }
  } else {
    yaml_scalar(value);
    putchar('\n');
  }
}

// --- columns -------------------------------------------------------------------------------------

typedef struct column {
  char key[128], label[128];
  bool basename;
} column;

// "name.basename():label=NAME, acceleratorType" to columns.
static int parse_columns(const char *list, column *out, int max) {
  int count = 0;
  while (*list && *list != ')' && count < max) {
    column *c = &out[count];
    list += strspn(list, " ,");
    size_t n = 0;
    const char *start = list;
    while (*list && *list != ',' && *list != ':' &&
           !(*list == ')' && (list == start || list[-1] != '(')))
      list++;
    n = (size_t)(list - start);
    snprintf(c->key, sizeof c->key, "%.*s", (int)n, start);
    char *call = strstr(c->key, ".basename()");
    c->basename = call != NULL;
    if (call) *call = 0;
    const char *last = strrchr(c->key, '.');
    snprintf(c->label, sizeof c->label, "%s", last ? last + 1 : c->key);
    if (*list == ':') {
      const char *label = strncmp(list, ":label=", 7) == 0 ? list + 7 : "";
      n = strcspn(label, ",)");
      if (*label) snprintf(c->label, sizeof c->label, "%.*s", (int)n, label);
      list += strcspn(list, ",)");
    }
    if (*c->key) count++;
  }
  return count;
}

static void cell(const json_t *row, const column *c, vt_text *out) {
  const json_t *at = row;
  const char *p = c->key;
  while (at && *p) {
    char name[128];
    size_t n = strcspn(p, ".[");
    snprintf(name, sizeof name, "%.*s", (int)n, p);
    p += n;
    if (*name) at = json_object_get(at, name);
    if (*p == '[') {
      at = json_array_get(at, (size_t)strtoul(p + 1, NULL, 10));
      p += strcspn(p, "]");
      p += *p == ']';
    }
    p += *p == '.';
  }
  const char *text = json_string_value(at);
  if (text) {
    const char *slash = c->basename ? strrchr(text, '/') : NULL;
    vt_text_put(out, slash ? slash + 1 : text);
  } else if (at && !json_is_null(at)) {
    char *dump = json_is_true(at)    ? strdup("True")
                 : json_is_false(at) ? strdup("False")
                                     : json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT);
    vt_text_put(out, dump ? dump : "");
    free(dump);
  }
}

static void print_rows(const json_t *const *rows, size_t count, const char *list, char kind) {
  column columns[24];
  int n = parse_columns(list, columns, 24);
  size_t widths[24];
  vt_text *cells = calloc(count * (size_t)n + 1, sizeof *cells);
  if (!cells) return;
  for (int c = 0; c < n; c++) widths[c] = strlen(columns[c].label);
  for (size_t r = 0; r < count; r++)
    for (int c = 0; c < n; c++) {
      vt_text *t = &cells[r * (size_t)n + (size_t)c];
      cell(rows[r], &columns[c], t);
      if (t->size > widths[c]) widths[c] = t->size;
    }
  const char *between = kind == 'c' ? "," : kind == 'v' ? "\t" : "  ";
  for (int c = 0; c < n && kind != 'v'; c++) {
    for (char *p = columns[c].label; kind == 't' && *p; p++)
      if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    printf("%s%-*s", c ? between : "", kind == 't' && c + 1 < n ? (int)widths[c] : 0,
           columns[c].label);
  }
  if (kind != 'v') putchar('\n');
  for (size_t r = 0; r < count; r++) {
    for (int c = 0; c < n; c++) {
      vt_text *t = &cells[r * (size_t)n + (size_t)c];
      printf("%s%-*s", c ? between : "", kind == 't' && c + 1 < n ? (int)widths[c] : 0,
             vt_text_string(t));
      vt_text_free(t);
    }
    putchar('\n');
  }
  free(cells);
}

vt_status vt_cli_print(const char *format, const char *standard, const json_t *value) {
  if (!format || !*format) format = standard;
  if (strcmp(format, "none") == 0) return VT_OK;
  if (strncmp(format, "json", 4) == 0) {
    char *text = json_dumps(value, JSON_INDENT(2));
    puts(text ? text : "");
    free(text);
    return VT_OK;
  }
  if (strcmp(format, "yaml") == 0) {
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
      puts("---");
      yaml(json_array_get(value, i), 0, false);
    }
    if (!json_is_array(value)) yaml(value, 0, false);
    return VT_OK;
  }
  char kind = strncmp(format, "value", 5) == 0   ? 'v'
              : strncmp(format, "csv", 3) == 0   ? 'c'
              : strncmp(format, "table", 5) == 0 ? 't'
                                                 : 0;
  const char *open = strchr(format, '(');
  if (!kind || !open)
    return vt_error(VT_INVALID_ARGUMENT,
                    "--format=%s: json, yaml, value(...), csv(...), table(...)", format);
  size_t count = json_is_array(value) ? json_array_size(value) : 1;
  const json_t **rows = calloc(count + 1, sizeof *rows);
  if (!rows) return vt_error_no_memory();
  for (size_t i = 0; i < count; i++)
    rows[i] = json_is_array(value) ? json_array_get(value, i) : value;
  print_rows(rows, count, open + 1, kind);
  free(rows);
  return VT_OK;
}
