// SPDX-License-Identifier: Apache-2.0
// rewrites_test.c - what each pass does to a program, as text: opt_NAME.txt next to opt_NAME.c,
// likewise for the passes of src/spmd and src/host. A case is
//
//   // case: what it shows
//   // pass: fold dce exact_dots      passes in the order they run, then options
//   // before
//   func.func public @main(...        a module, or what one holds
//   // after
//   "func.func"() ...                 the module printed; or, in place of this: // unchanged,
//                                     or // refused: words of the error
//
// Both sides are imported and printed before comparison, so names do not matter. A pass's file has
// at least one case that the pass changes and one that it does not. `rewrites_test --update`
// rewrites the after parts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "host/derived_stacks.h"
#include "host/image_layout.h"
#include "host/loop_products.h"
#include "host/norm_sums.h"
#include "host/row_orders.h"
#include "host/row_picks.h"
#include "host/sliced_products.h"
#include "host/wide_chains.h"
#include "host/wide_sums.h"
#include "import/import.h"
#include "passes/collectives.h"
#include "passes/passes.h"
#include "spmd/spmd.h"

typedef struct settings {
  vt_pass_options options;
  vt_collective_options collectives;
  vt_image_options images;
  int32_t devices;
  bool own_arrays;
} settings;

typedef vt_status runner(vt_module *module, const settings *with, bool *out_changed);

#define PASS(name, what)                                                                           \
  static vt_status run_##name(vt_module *module, const settings *with, bool *out_changed) {        \
    vt_arena scratch = {0};                                                                        \
    vt_status st = vt_opt_##name(module, &with->options, &scratch, out_changed);                   \
    vt_arena_free(&scratch);                                                                       \
    return st;                                                                                     \
  }
#include "passes/pipeline.def"
#undef PASS

#define COLLECTIVE(id, name, what)                                                                 \
  static vt_status run_##id(vt_module *module, const settings *with, bool *out_changed) {          \
    vt_arena scratch = {0};                                                                        \
    vt_status st = vt_opt_##id(module, &with->collectives, &scratch, out_changed);                 \
    vt_arena_free(&scratch);                                                                       \
    return st;                                                                                     \
  }
#include "passes/collectives.def"
#undef COLLECTIVE

static vt_status run_collectives(vt_module *module, const settings *with, bool *out_changed) {
  *out_changed = true;
  return vt_collectives_run(module, &with->collectives);
}

static vt_status run_pipeline(vt_module *module, const settings *with, bool *out_changed) {
  *out_changed = true;
  return vt_passes_run(module, &with->options);
}

static vt_status run_image_layout(vt_module *module, const settings *with, bool *out_changed) {
  return vt_image_layout(module, &with->images, out_changed);
}

static vt_status run_norm_sums(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_norm_sums(module, out_changed);
}

static vt_status run_derived_stacks(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_derived_stacks(module, out_changed);
}

static vt_status run_row_orders(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_row_orders(module, out_changed);
}

static vt_status run_row_picks(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_row_picks(module, out_changed);
}

static vt_status run_loop_products(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_loop_products(module, out_changed);
}

static vt_status run_sliced_products(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_sliced_products(module, out_changed);
}

static vt_status run_wide_chains(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_wide_chains(module, vt_is_narrow_product, out_changed);
}

static vt_status run_wide_sums(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  return vt_wide_sums(module, vt_is_narrow_product, out_changed);
}

static vt_status run_replicas(vt_module *module, const settings *with, bool *out_changed) {
  *out_changed = module->num_replicas > 1 || (with->own_arrays && module->num_partitions > 1);
  return vt_spmd_from_replicas(module, with->own_arrays);
}

static vt_status run_edges(vt_module *module, const settings *with, bool *out_changed) {
  (void)with;
  *out_changed = true;
  return vt_spmd_whole_tiles(module);
}

static vt_status run_partials(vt_module *module, const settings *with, bool *out_changed) {
  vt_arena arena = {0};
  vt_tiling *params, *results;
  *out_changed = true;
  vt_status st = vt_spmd_plan(module, with->devices, &arena, &params, &results);
  if (!st) st = vt_spmd_expand_partials(module, with->devices, &arena, params, results);
  vt_arena_free(&arena);
  return st;
}

static vt_status run_annotate(vt_module *module, const settings *with, bool *out_changed) {
  *out_changed = true;
  return vt_spmd_annotate(module, with->devices);
}

static vt_status run_partition(vt_module *module, const settings *with, bool *out_changed) {
  *out_changed = with->devices > 1;
  vt_status st = vt_spmd_whole_tiles(module);
  vt_spmd_inline(module, true);
  if (!st) st = vt_spmd_annotate(module, with->devices);
  return st ? st : vt_spmd_partition(module, with->devices, NULL);
}

// Every pass, and the file of its cases.
static const struct pass {
  const char *name, *file;
  runner *run;
} passes[] = {
#define PASS(name, what) {#name, "passes/opt_" #name ".txt", run_##name},
#include "passes/pipeline.def"
#undef PASS
#define COLLECTIVE(id, name, what) {#id, "passes/" #id ".txt", run_##id},
#include "passes/collectives.def"
#undef COLLECTIVE
    {"pipeline", "passes/pipeline.txt", run_pipeline},
    {"collectives", "passes/collectives.txt", run_collectives},
    {"image_layout", "host/image_layout.txt", run_image_layout},
    {"norm_sums", "host/norm_sums.txt", run_norm_sums},
    {"loop_products", "host/loop_products.txt", run_loop_products},
    {"derived_stacks", "host/derived_stacks.txt", run_derived_stacks},
    {"row_orders", "host/row_orders.txt", run_row_orders},
    {"row_picks", "host/row_picks.txt", run_row_picks},
    {"sliced_products", "host/sliced_products.txt", run_sliced_products},
    {"wide_chains", "host/wide_chains.txt", run_wide_chains},
    {"wide_sums", "host/wide_sums.txt", run_wide_sums},
    {"replicas", "spmd/partials/replicas.txt", run_replicas},
    {"edges", "spmd/edges.txt", run_edges},
    {"annotate", "spmd/propagate/annotate.txt", run_annotate},
    {"partition", "spmd/partition/partition.txt", run_partition},
    {"partials", "spmd/partials/partial.txt", run_partials},
};
enum { PASSES = sizeof passes / sizeof *passes };
// It changes functions of thousands of ops: tests/python/test_decompositions.py covers them.
static const char too_long_for_text[] = "decompose";

static bool update;

typedef struct test_case {
  const struct pass *pass;
  vt_text title, words, before, after, refused;
  bool unchanged;
} test_case;

// "key=7" -> 7; "key" -> 1; anything else -> false.
static bool option_is(const char *word, const char *key, int64_t *out) {
  size_t size = strlen(key);
  if (strncmp(word, key, size) || (word[size] && word[size] != '=')) return false;
  *out = word[size] ? strtoll(word + size + 1, NULL, 10) : 1;
  return true;
}

static const struct pass *pass_named(const char *name) {
  for (int i = 0; i < PASSES; i++)
    if (!strcmp(passes[i].name, name)) return &passes[i];
  return NULL;
}

static void read_words(const test_case *c, settings *with, const struct pass **run, int *count) {
  char *words = strdup(vt_text_string(&c->words)), *rest = NULL;
  *with = (settings){.devices = 8, .collectives = vt_collectives_default()};
  *count = 0;
  for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    int64_t number;
    const struct pass *pass = pass_named(word);
    if (pass) {
      assert_true(*count < PASSES);
      run[(*count)++] = pass;
    } else if (option_is(word, "as_written", &number)) {
      with->options.as_written = true;
    } else if (option_is(word, "exact_dots", &number)) {
      with->options.exact_dots = true;
    } else if (option_is(word, "bf16_dots", &number)) {
      with->options.bf16_dots = true;
    } else if (option_is(word, "min_bf16_depth", &number)) {
      with->options.min_bf16_depth = number;
    } else if (option_is(word, "combine_bytes", &number)) {
      with->collectives.all_reduce.bytes = with->collectives.others.bytes = number;
    } else if (option_is(word, "combine_count", &number)) {
      with->collectives.all_reduce.count = with->collectives.others.count = number;
    } else if (option_is(word, "strips", &number)) {
      with->images.strips = true;
    } else if (option_is(word, "always", &number)) {
      with->images.always = true;
    } else if (option_is(word, "own_arrays", &number)) {
      with->own_arrays = true;
    } else if (option_is(word, "devices", &number)) {
      with->devices = (int32_t)number;
    } else {
      fail_msg("%s: no pass or option is called %s", vt_text_string(&c->title), word);
    }
  }
  free(words);
}

static const char default_head[] = "\"builtin.module\"() <{sym_name = \"main\"}> ({\n";
static const char default_tail[] =
    "}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()\n";

// The module's contents, with the module op if it carries information.
static void print_module(const vt_module *module, vt_text *out) {
  size_t head = strlen(default_head), tail = strlen(default_tail);
  vt_text whole = {0};
  vt_module_print(module, false, &whole);
  if (whole.size >= head + tail && !memcmp(whole.data, default_head, head) &&
      !memcmp(whole.data + whole.size - tail, default_tail, tail))
    vt_text_put_n(out, whole.data + head, whole.size - head - tail);
  else
    vt_text_put_n(out, whole.data, whole.size);
  vt_text_free(&whole);
}

static vt_module *import(const test_case *c, const char *what, const char *text) {
  vt_module *module = NULL;
  vt_text whole = {0};
  bool bare = strncmp(text, "module", 6) && strncmp(text, "\"builtin.module", 15);
  vt_text_printf(&whole, bare ? "module @main {\n%s}\n" : "%s", text);
  vt_status st = vt_import((vt_bytes){(const uint8_t *)whole.data, whole.size}, &module);
  if (st) fail_msg("%s: %s: %s", vt_text_string(&c->title), what, vt_status_message(st));
  vt_text_free(&whole);
  return module;
}

// The text as printed by the printer.
static void canonical(const test_case *c, const char *what, const char *text, vt_text *out) {
  vt_module *module = import(c, what, text);
  print_module(module, out);
  vt_module_destroy(module);
}

static vt_status run_case(const test_case *c, vt_text *before, vt_text *result, bool *changed) {
  const struct pass *run[PASSES];
  settings with;
  int count;
  read_words(c, &with, run, &count);
  assert_true(count > 0 && run[0] == c->pass);
  vt_module *module = import(c, "before", vt_text_string(&c->before));
  print_module(module, before);
  vt_status st = VT_OK;
  for (int i = 0; i < count && !st; i++) {
    bool here = false;
    st = run[i]->run(module, &with, &here);
    if (!st) st = vt_module_verify(module);
    *changed |= here;
  }
  vt_text printed = {0};
  if (!st) print_module(module, &printed);
  vt_module_destroy(module);
  if (!st) canonical(c, "result", vt_text_string(&printed), result);
  vt_text_free(&printed);
  return st;
}

// Whether the program is refused in the case's words.
static bool check_refused(const test_case *c, vt_status st) {
  const char *message = st ? vt_status_message(st) : "taken";
  bool good = st && strstr(message, vt_text_string(&c->refused));
  if (!good) print_error("%s: %s: %s\n", c->pass->file, vt_text_string(&c->title), message);
  return good;
}

// Whether the case passes; `file` gets its correct text.
static bool finish(test_case *c, vt_text *file, bool *out_same) {
  vt_text before = {0}, result = {0}, want = {0};
  bool changed = false;
  vt_status st = run_case(c, &before, &result, &changed);
  if (st && !c->refused.size) fail_msg("%s: %s", vt_text_string(&c->title), vt_status_message(st));
  bool same = !strcmp(vt_text_string(&before), vt_text_string(&result));
  if (!changed && !same && !st)
    fail_msg("%s: the pass says that it changed nothing", vt_text_string(&c->title));
  if (c->unchanged || c->refused.size)
    vt_text_put(&want, vt_text_string(&before));
  else if (!update)
    canonical(c, "after", vt_text_string(&c->after), &want);
  bool good = update || !strcmp(vt_text_string(&want), vt_text_string(&result));
  if (c->refused.size)
    good = check_refused(c, st);
  else if (!good)
    print_error("%s: %s became\n%s", c->pass->file, vt_text_string(&c->title),
                vt_text_string(&result));
  vt_text_printf(file, "// case: %s\n// pass: %s\n// before\n%s", vt_text_string(&c->title),
                 vt_text_string(&c->words), vt_text_string(&c->before));
  if (c->refused.size)
    vt_text_printf(file, "// refused: %s\n", vt_text_string(&c->refused));
  else if (same)
    vt_text_put(file, "// unchanged\n");
  else
    vt_text_printf(file, "// after\n%s", vt_text_string(&result));
  *out_same = same;
  vt_text_free(&before), vt_text_free(&result), vt_text_free(&want);
  vt_text_free(&c->title), vt_text_free(&c->words);
  vt_text_free(&c->before), vt_text_free(&c->after), vt_text_free(&c->refused);
  vt_status_free(st);
  *c = (test_case){.pass = c->pass};
  return good;
}

static bool starts(const char *line, const char *with) {
  return !strncmp(line, with, strlen(with));
}

static void check_pass(void **state) {
  const struct pass *pass = *state;
  char path[512];
  vt_bytes file;
  vt_text all = {0}, written = {0};
  test_case c = {.pass = pass};
  vt_text *into = &written;
  int count[2] = {0}, bad = 0; // cases with and without changes
  snprintf(path, sizeof path, "%s/src/%s", VTPU_SOURCE_DIR, pass->file);
  vt_status st = vt_file_map(path, &file);
  if (st) fail_msg("pass %s has no cases: %s", pass->name, vt_status_message(st));
  vt_text_put_n(&all, (const char *)file.data, file.size);
  vt_file_unmap(&file);
  for (const char *line = vt_text_string(&all), *next;; line = next) {
    int size = (int)strcspn(line, "\n");
    next = line + size + !!line[size];
    if ((!*line || starts(line, "// case: ")) && c.title.size) {
      bool same;
      bad += !finish(&c, &written, &same);
      count[same]++;
      if (*line) vt_text_put(&written, "\n");
    }
    if (!*line) break;
    if (starts(line, "// case: ")) {
      vt_text_printf(&c.title, "%.*s", size - 9, line + 9);
    } else if (starts(line, "// pass: ")) {
      vt_text_printf(&c.words, "%.*s", size - 9, line + 9);
    } else if (starts(line, "// before\n")) {
      into = &c.before;
    } else if (starts(line, "// after\n")) {
      into = &c.after;
    } else if (starts(line, "// unchanged\n")) {
      c.unchanged = true;
    } else if (starts(line, "// refused: ")) {
      vt_text_printf(&c.refused, "%.*s", size - 12, line + 12);
    } else if (size || into == &written) {
      vt_text_printf(into, "%.*s\n", size, line);
    }
  }
  if (update) assert_null(vt_file_write(path, written.data, written.size));
  vt_text_free(&all), vt_text_free(&written);
  assert_int_equal(bad, 0);
  if (!count[1]) fail_msg("%s: no case that the pass leaves alone", pass->file);
  if (!count[0] && strcmp(pass->name, too_long_for_text))
    fail_msg("%s: no case that the pass changes", pass->file);
}

int main(int argc, char **argv) {
  struct CMUnitTest tests[PASSES];
  update = argc > 1 && !strcmp(argv[1], "--update");
  for (int i = 0; i < PASSES; i++)
    tests[i] = (struct CMUnitTest){.name = passes[i].name,
                                   .test_func = check_pass,
                                   .initial_state = (void *)(uintptr_t)&passes[i]};
  return _cmocka_run_group_tests("rewrites", tests, PASSES, NULL, NULL);
}
