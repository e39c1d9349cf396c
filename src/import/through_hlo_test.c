// SPDX-License-Identifier: Apache-2.0
// through_hlo_test.c - programs written as HLO, text and message, and read back, compute the same
// bits. `through_hlo_test FILE ...` tests other programs than the fixtures.
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/eval.h"
#include "import/through_hlo.h"
#include "ir/number.h"

static int file_count;
static char **files;

static void fill(vt_tensor t, uint64_t seed) {
  for (int64_t i = 0; i < vt_type_elements(t.type); i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    int64_t step = (int64_t)(seed >> 60) - 8;
    bool whole = !vt_dtype_is_float(t.type.dtype) && !vt_dtype_is_complex(t.type.dtype);
    vt_number_store(t.type.dtype, t.data, i, whole ? (double)(step & 3) : 0.25 * (double)step);
  }
}

static vt_tensor *tensors_of(vt_arena *arena, uint32_t count, vt_value *const *values,
                             bool filled) {
  vt_tensor *made = VT_NEW_ARRAY(arena, vt_tensor, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    vt_type type = values[i]->type;
    made[i] =
        (vt_tensor){type, vt_arena_push_aligned(arena, (size_t)vt_type_bytes(type) + 192, 64)};
    if (filled && type.dtype != VT_TOKEN) fill(made[i], i + 1);
  }
  return made;
}

// A constant's NaN has no payload in text.
static bool same_bits(vt_tensor a, vt_tensor b, bool text) {
  size_t bytes = (size_t)vt_type_bytes(a.type);
  if (!bytes || !memcmp(a.data, b.data, bytes)) return true;
  for (int64_t i = 0; i < vt_type_elements(a.type); i++) {
    size_t each = vt_dtype_bytes(a.type.dtype), at = (size_t)i * each;
    if (!memcmp((char *)a.data + at, (char *)b.data + at, each)) continue;
    double x = vt_number_load(a.type.dtype, a.data, i), y = vt_number_load(a.type.dtype, b.data, i);
    if (!text || x == x || y == y) return false;
  }
  return true;
}

static bool same_signature(const vt_func *a, const vt_func *b) {
  if (a->param_count != b->param_count || a->return_count != b->return_count) return false;
  for (uint32_t i = 0; i < a->param_count; i++)
    if (!vt_type_equal(a->params[i]->type, b->params[i]->type)) return false;
  for (uint32_t i = 0; i < a->return_count; i++)
    if (!vt_type_equal(a->returns[i]->type, b->returns[i]->type)) return false;
  return true;
}

// Whether HLO could say it, and the evaluator runs it.
static bool check(const char *name, const vt_module *module, bool text) {
  vt_module *again = NULL;
  vt_arena arena = {0};
  vt_eval_env env = {.exact_dots = true};
  const vt_func *main = module->main;
  vt_status st = vt_through_hlo(module, text, &again);
  if (st) fail_msg("%s (%s): %s", name, text ? "text" : "message", vt_status_message(st));
  if (!again) return false;
  if (!same_signature(main, again->main)) fail_msg("%s: the signature differs", name);
  vt_tensor *args = tensors_of(&arena, main->param_count, main->params, true);
  vt_tensor *want = tensors_of(&arena, main->return_count, main->returns, false);
  vt_tensor *got = tensors_of(&arena, main->return_count, main->returns, false);
  st = vt_eval_func(main, &env, args, want);
  bool ran = !st;
  vt_status_free(st);
  st = ran ? vt_eval_func(again->main, &env, args, got) : VT_OK;
  if (st) fail_msg("%s: what was read back does not run: %s", name, vt_status_message(st));
  for (uint32_t i = 0; ran && i < main->return_count; i++)
    if (!same_bits(want[i], got[i], text))
      fail_msg("%s (%s): result %u differs", name, text ? "text" : "message", i);
  vt_module_destroy(again);
  vt_arena_free(&arena);
  return ran;
}

static int check_file(const char *path) {
  vt_bytes bytes = {0};
  vt_module *module = NULL;
  vt_status st = vt_file_map(path, &bytes);
  if (!st) st = vt_import(bytes, &module);
  bool good = !st;
  vt_status_free(st); // some fixtures are programs to refuse
  bool ran = good && check(path, module, false);
  ran = good && check(path, module, true) && ran;
  vt_module_destroy(module);
  vt_file_unmap(&bytes);
  return ran;
}

static void of_fixtures(void **state) {
  (void)state;
  const char *folder = VTPU_SOURCE_DIR "/src/import/fixtures";
  int ran = 0, seen = 0;
  for (int i = 0; i < file_count; i++) {
    int one = check_file(files[i]);
    printf("%s: %s\n", files[i], one ? "same" : "not run");
    ran += one;
  }
  DIR *list = file_count ? NULL : opendir(folder);
  for (struct dirent *entry; list && (entry = readdir(list));) {
    size_t size = strlen(entry->d_name);
    char path[512];
    if (size < 7 || strcmp(entry->d_name + size - 7, ".mlirbc") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    ran += check_file(path);
    seen++;
  }
  if (list) closedir(list);
  if (!file_count) assert_true(ran >= 9 && seen > ran);
}

int main(int argc, char **argv) {
  file_count = argc - 1;
  files = argv + 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(of_fixtures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
