// SPDX-License-Identifier: Apache-2.0
// validate.c - `vtpu validate`: predictions beside published measurements.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/validate.h"

// Of the rows of one group or chip; relative to what was published.
typedef struct summary {
  uint32_t count, held;
  double error, bias;           // mean of sizes, mean
  double held_error, held_bias; // of the rows on which nothing was fitted
} summary;

static double error_of(const vt_validation *row) {
  return row->predicted / row->published - 1;
}

// v6e of "v6e-256 x2".
static bool same_chip(const char *a, const char *b) {
  size_t size = strcspn(a, "-");
  return size == strcspn(b, "-") && !strncmp(a, b, size);
}

static bool alike(const vt_validation *a, const vt_validation *b, bool chips) {
  return chips ? same_chip(a->slice, b->slice) : !strcmp(a->group, b->group);
}

static summary sum_up(const vt_validation *rows, uint32_t count, const vt_validation *like,
                      bool chips) {
  summary s = {0};
  for (uint32_t i = 0; i < count; i++) {
    if (!alike(&rows[i], like, chips)) continue;
    double error = error_of(&rows[i]), size = fabs(error);
    s.count++, s.error += size, s.bias += error;
    if (!rows[i].fitted) s.held++, s.held_error += size, s.held_bias += error;
  }
  s.error /= s.count, s.bias /= s.count;
  if (s.held) s.held_error /= s.held, s.held_bias /= s.held;
  return s;
}

static bool is_first(const vt_validation *rows, uint32_t at, bool chips) {
  for (uint32_t i = 0; i < at; i++)
    if (alike(&rows[i], &rows[at], chips)) return false;
  return true;
}

static void print_summaries(const vt_validation *rows, uint32_t count, bool chips) {
  printf("\n%-20s rows  mean error    bias   held back  mean error    bias\n",
         chips ? "chip" : "group");
  for (uint32_t i = 0; i < count; i++) {
    if (!is_first(rows, i, chips)) continue;
    summary s = sum_up(rows, count, &rows[i], chips);
    int size = chips ? (int)strcspn(rows[i].slice, "-") : (int)strlen(rows[i].group);
    printf("%-20.*s %4u  %8.1f %%  %+5.1f %%", size, chips ? rows[i].slice : rows[i].group, s.count,
           100 * s.error, 100 * s.bias);
    if (s.held)
      printf("   %9u  %8.1f %%  %+5.1f %%", s.held, 100 * s.held_error, 100 * s.held_bias);
    putchar('\n');
  }
}

static void print_table(const vt_validation *rows, uint32_t count) {
  const char *group = "";
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(group, rows[i].group) != 0)
      printf("%s%-17s %-32s %11s %11s  error     source\n", i ? "\n" : "", "slice", rows[i].group,
             "published", "predicted");
    group = rows[i].group;
    printf("%-17s %-32s %11s %11s %+5.1f %%  %c %s\n", rows[i].slice, rows[i].program,
           vt_cli_seconds(rows[i].published), vt_cli_seconds(rows[i].predicted),
           100 * error_of(&rows[i]), rows[i].fitted ? 'f' : ' ', rows[i].source);
  }
  print_summaries(rows, count, false);
  print_summaries(rows, count, true);
}

static json_t *summary_json(const summary *s) {
  json_t *j = json_pack("{s:i, s:f, s:f, s:i}", "rows", (int)s->count, "mean_error", s->error,
                        "bias", s->bias, "held_back", (int)s->held);
  if (s->held) {
    json_object_set_new(j, "held_back_mean_error", json_real(s->held_error));
    json_object_set_new(j, "held_back_bias", json_real(s->held_bias));
  }
  return j;
}

static void print_json(const vt_validation *rows, uint32_t count) {
  json_t *list = json_array(), *groups = json_array(), *chips = json_array();
  for (uint32_t i = 0; i < count; i++) {
    const vt_validation *r = &rows[i];
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:b, s:s}", "group", r->group,
                                    "slice", r->slice, "program", r->program, "published",
                                    r->published, "predicted", r->predicted, "error", error_of(r),
                                    "fitted", (int)r->fitted, "source", r->source));
    for (int by_chip = 0; by_chip < 2; by_chip++) {
      if (!is_first(rows, i, by_chip)) continue;
      summary s = sum_up(rows, count, r, by_chip);
      json_t *j = summary_json(&s);
      json_object_set_new(j, by_chip ? "chip" : "group",
                          by_chip ? json_stringn(r->slice, strcspn(r->slice, "-"))
                                  : json_string(r->group));
      json_array_append_new(by_chip ? chips : groups, j);
    }
  }
  json_t *all = json_pack("{s:o, s:o, s:o}", "rows", list, "groups", groups, "chips", chips);
  char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  printf("%s\n", text);
  free(text);
  json_decref(all);
}

// Those whose group, slice and program, in this order, have the text in them.
static void keep_only(vt_arena *arena, vt_validations *rows, const char *only) {
  size_t kept = 0;
  for (size_t i = 0; i < rows->size; i++) {
    const vt_validation *r = &rows->data[i];
    if (strstr(vt_arena_printf(arena, "%s %s %s", r->group, r->slice, r->program), only))
      rows->data[kept++] = *r;
  }
  rows->size = kept;
}

int vt_cli_validate(const vt_args *args) {
  vt_arena arena = {0};
  vt_validations rows = {0};
  const char *only = vt_args_text(args, "only");
  uint32_t count = 0;
  vt_status st = vt_validate(&arena, &rows.data, &count);
  rows.size = rows.capacity = count;
  if (!st && only) keep_only(&arena, &rows, only);
  if (!st && vt_args_on(args, "steps")) st = vt_cli_validate_steps(only ? only : "", &arena, &rows);
  if (!st && !rows.size)
    st = vt_error(VT_NOT_FOUND, "no group, slice or program has \"%s\" in it", only);
  if (!st && vt_args_on(args, "json"))
    print_json(rows.data, (uint32_t)rows.size);
  else if (!st)
    print_table(rows.data, (uint32_t)rows.size);
  if (!st && !vt_args_on(args, "json") && !vt_args_on(args, "steps") && !only)
    printf("\ntraining steps and convolution nets, which JAX writes: vtpu validate --steps\n");
  vt_arena_free(&arena);
  return st ? vt_cli_fail("validate", st) : 0;
}
