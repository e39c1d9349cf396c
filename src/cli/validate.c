// SPDX-License-Identifier: Apache-2.0
// validate.c - `vtpu validate`: predictions beside published measurements.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/validate.h"

// Of the rows of one group; relative to what was published.
typedef struct summary {
  const char *group;
  uint32_t count;
  double error, bias; // mean of sizes, mean
} summary;

static double error_of(const vt_validation *row) {
  return row->predicted / row->published - 1;
}

static summary sum_up(const vt_validation *rows, uint32_t count, const char *group) {
  summary s = {.group = group};
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(rows[i].group, group) != 0) continue;
    s.count++;
    s.error += fabs(error_of(&rows[i]));
    s.bias += error_of(&rows[i]);
  }
  s.error /= s.count, s.bias /= s.count;
  return s;
}

static bool is_first(const vt_validation *rows, uint32_t at) {
  for (uint32_t i = 0; i < at; i++)
    if (!strcmp(rows[i].group, rows[at].group)) return false;
  return true;
}

static void print_table(const vt_validation *rows, uint32_t count) {
  const char *group = "";
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(group, rows[i].group) != 0)
      printf("%s%-12s %-32s %11s %11s  error   source\n", i ? "\n" : "", "slice", rows[i].group,
             "published", "predicted");
    group = rows[i].group;
    printf("%-12s %-32s %11s %11s %+5.1f %%  %s\n", rows[i].slice, rows[i].program,
           vt_cli_seconds(rows[i].published), vt_cli_seconds(rows[i].predicted),
           100 * error_of(&rows[i]), rows[i].source);
  }
  printf("\n%-20s rows  mean error  bias\n", "group");
  for (uint32_t i = 0; i < count; i++) {
    if (!is_first(rows, i)) continue;
    summary s = sum_up(rows, count, rows[i].group);
    printf("%-20s %4u  %8.1f %%  %+.1f %%\n", s.group, s.count, 100 * s.error, 100 * s.bias);
  }
}

static void print_json(const vt_validation *rows, uint32_t count) {
  json_t *list = json_array(), *groups = json_array();
  for (uint32_t i = 0; i < count; i++) {
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:s}", "group", rows[i].group,
                                    "slice", rows[i].slice, "program", rows[i].program, "published",
                                    rows[i].published, "predicted", rows[i].predicted, "error",
                                    error_of(&rows[i]), "source", rows[i].source));
    if (!is_first(rows, i)) continue;
    summary s = sum_up(rows, count, rows[i].group);
    json_array_append_new(groups, json_pack("{s:s, s:i, s:f, s:f}", "group", s.group, "rows",
                                            (int)s.count, "mean_error", s.error, "bias", s.bias));
  }
  json_t *all = json_pack("{s:o, s:o}", "rows", list, "groups", groups);
  char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  printf("%s\n", text);
  free(text);
  json_decref(all);
}

int vt_cli_validate(const vt_args *args) {
  vt_arena arena = {0};
  vt_validation *rows;
  uint32_t count;
  vt_status st = vt_validate(&arena, &rows, &count);
  if (!st && vt_args_on(args, "json"))
    print_json(rows, count);
  else if (!st)
    print_table(rows, count);
  vt_arena_free(&arena);
  return st ? vt_cli_fail("validate", st) : 0;
}
