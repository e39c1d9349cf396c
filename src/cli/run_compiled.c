// SPDX-License-Identifier: Apache-2.0
// run_compiled.c - what a program compiled more than once, and why: from the lines that its
// processes wrote (runtime/compiled.c). Programs of one name are taken for one function.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "cli/cli.h"
#include "cli/run.h"

enum { MOST_REASONS = 3, REASON_PARTS = 3 };

// One line, cut at its tabs: the fields point into it.
typedef struct line {
  uint64_t ns, fingerprint;
  char *name, *place;
  uint32_t count;   // of arguments
  char **arguments; // name and type of each
} line;

static char *next_field(char **at) {
  char *field = *at, *tab = field ? strchr(field, '\t') : NULL;
  *at = tab ? tab + 1 : NULL;
  if (tab) *tab = 0;
  return field;
}

static bool read_line(char *text, vt_arena *arena, line *out) {
  uint32_t fields = 1;
  for (const char *at = text; (at = strchr(at, '\t')); at++) fields++;
  if (fields < 4 || fields % 2) return false;
  char *ns = next_field(&text), *fingerprint = next_field(&text);
  *out = (line){.ns = strtoull(ns, NULL, 10), .fingerprint = strtoull(fingerprint, NULL, 16)};
  out->name = next_field(&text);
  out->place = next_field(&text);
  out->count = fields / 2 - 2;
  out->arguments = VT_NEW_ARRAY(arena, char *, 2 * (size_t)out->count + 1);
  for (uint32_t i = 0; i < 2 * out->count; i++) out->arguments[i] = next_field(&text);
  return true;
}

// ---- why ----------------------------------------------------------------------------------------

static void put_argument(vt_text *out, const line *now, uint32_t i) {
  if (*now->arguments[2 * i])
    vt_text_put(out, now->arguments[2 * i]);
  else
    vt_text_printf(out, "argument %" PRIu32, i);
}

// What differs from the compilation before.
static const char *reason(const line *before, const line *now, vt_arena *arena) {
  vt_text out = {0};
  uint32_t changed = 0;
  if (before->fingerprint == now->fingerprint)
    vt_text_put(&out,
                "the same program again: another function object each time, as of a lambda or "
                "a jit in a loop");
  else if (before->count != now->count)
    vt_text_printf(&out, "%" PRIu32 " arguments, before %" PRIu32, now->count, before->count);
  else
    for (uint32_t i = 0; i < now->count; i++) {
      const char *old = before->arguments[2 * i + 1], *new = now->arguments[2 * i + 1];
      if (strcmp(old, new) == 0 || changed++ >= REASON_PARTS) continue;
      if (changed > 1) vt_text_put(&out, ", ");
      put_argument(&out, now, i);
      vt_text_printf(&out, " is %s, before %s", new, old);
    }
  if (changed > REASON_PARTS)
    vt_text_printf(&out, " and %" PRIu32 " more arguments", changed - REASON_PARTS);
  if (!out.size)
    vt_text_put(&out,
                "the same arguments, another program: a value or an option that tracing reads");
  const char *text = vt_arena_printf(arena, "%s", vt_text_string(&out));
  vt_text_free(&out);
  return text;
}

// A reason that came before counts again.
static void add_reason(vt_run_function *f, const char *why, const char *place, vt_arena *arena) {
  for (uint32_t i = 0; i < f->reason_count; i++) {
    if (strcmp(f->reasons[i].why, why) != 0 || strcmp(f->reasons[i].place, place) != 0) continue;
    f->reasons[i].times++;
    return;
  }
  if (!f->reasons) f->reasons = VT_NEW_ARRAY(arena, vt_run_reason, MOST_REASONS);
  if (f->reason_count < MOST_REASONS)
    f->reasons[f->reason_count++] = (vt_run_reason){why, vt_arena_printf(arena, "%s", place), 1};
}

// ---- the lines of one process -------------------------------------------------------------------

typedef struct known {
  vt_run_function *function;
  line last; // of this process
} known;

static void add_line(char *text, vt_map *names, vt_arena *arena, vt_run_use *use) {
  line now;
  if (!read_line(text, arena, &now)) return;
  use->compilations++;
  use->compile_ns += now.ns;
  void **place = vt_map_at(names, now.name, strlen(now.name));
  known *k = *place;
  if (!k) {
    *place = k = VT_NEW(arena, known);
    for (uint32_t i = 0; i < use->functions.size && !k->function; i++)
      if (strcmp(use->functions.data[i]->name, now.name) == 0) k->function = use->functions.data[i];
    if (!k->function) {
      k->function = VT_NEW(arena, vt_run_function);
      *k->function = (vt_run_function){.name = vt_arena_printf(arena, "%s", now.name)};
      vt_array_push_in(arena, &use->functions, k->function);
    }
  } else {
    k->function->again++;
    k->function->again_ns += now.ns;
    add_reason(k->function, reason(&k->last, &now, arena), now.place, arena);
  }
  k->last = now;
}

void vt_run_add_compiled(char *text, vt_arena *arena, vt_run_use *use) {
  vt_map names = {0};
  for (char *end; (end = strchr(text, '\n')); text = end + 1) { // an unfinished line is left out
    *end = 0;
    add_line(text, &names, arena, use);
  }
  vt_map_free(&names);
}

static int by_time(const void *a, const void *b) {
  const vt_run_function *x = *(vt_run_function *const *)a, *y = *(vt_run_function *const *)b;
  if (x->again_ns != y->again_ns) return x->again_ns < y->again_ns ? 1 : -1;
  return strcmp(x->name, y->name);
}

void vt_run_sort_compiled(vt_run_use *use) {
  if (use->functions.size)
    qsort(use->functions.data, use->functions.size, sizeof *use->functions.data, by_time);
}
