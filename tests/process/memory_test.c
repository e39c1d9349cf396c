// SPDX-License-Identifier: Apache-2.0
// memory_test.c - a thousand programs of each kind, compiled or rejected, run and destroyed, leave
// nothing behind: allocated and resident memory are the same after the first hundred and after the
// last.
#include "../pjrt/plugin_support.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROGRAMS = 1000, WARM = 100, MOST_GIVEN_MB = 2, MOST_HELD_MB = 8 };

static plugin p;
static PJRT_Client *client;
static PJRT_LoadedExecutable *lasting;

// Each number gives a different program; argument and result are f32[1 to 100, 256].
#define HEAD "func.func public @main(%%x: %s) -> %s {\n"

static void put_compiled(vt_text *out, int n, const char *t) {
  vt_text_printf(out,
                 HEAD "%%c = stablehlo.constant dense<%d.5> : %s\n"
                      "%%a = stablehlo.exponential %%x : %s\n%%b = stablehlo.add %%a, %%c : %s\n"
                      "%%d = stablehlo.tanh %%b : %s\nreturn %%d : %s\n}\n",
                 t, t, n, t, t, t, t, t);
}

// A product with a constant: the weights are packed once and kept.
static void put_kept(vt_text *out, int n, const char *t) {
  vt_text_printf(out,
                 HEAD
                 "%%i = stablehlo.iota dim = 0 : tensor<256x256xf32>\n"
                 "%%s = stablehlo.constant dense<%d.0> : tensor<256x256xf32>\n"
                 "%%w = stablehlo.multiply %%i, %%s : tensor<256x256xf32>\n"
                 "%%d = stablehlo.dot_general %%x, %%w, contracting_dims = [1] x [0], precision "
                 "= [HIGHEST, HIGHEST] : (%s, tensor<256x256xf32>) -> %s\nreturn %%d : %s\n}\n",
                 t, t, n, t, t, t);
}

// Too small to compile.
static void put_small(vt_text *out, int n, const char *t) {
  vt_text_printf(out,
                 HEAD "%%c = stablehlo.constant dense<%d> : tensor<2x3xi32>\n"
                      "%%d = stablehlo.add %%c, %%c : tensor<2x3xi32>\nreturn %%x : %s\n}\n",
                 t, t, n, t);
}

// 64 KiB of data in the program's text.
static void put_constant(vt_text *out, int n, const char *t) {
  vt_text_printf(out, HEAD "%%c = stablehlo.constant dense<\"0x", t, t);
  for (int i = 0; i < 16384; i++) vt_text_printf(out, "%08x", (unsigned)(i * 97 + n) & 0x3fffffff);
  vt_text_printf(out,
                 "\"> : tensor<64x256xf32>\n%%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
                 "%%r = stablehlo.reduce(%%c init: %%z) applies stablehlo.add across dimensions = "
                 "[0] : (tensor<64x256xf32>, tensor<f32>) -> tensor<256xf32>\n"
                 "%%b = stablehlo.broadcast_in_dim %%r, dims = [1] : (tensor<256xf32>) -> %s\n"
                 "%%d = stablehlo.add %%b, %%x : %s\nreturn %%d : %s\n}\n",
                 t, t, t);
}

static void put_unreadable(vt_text *out, int n, const char *t) {
  put_compiled(out, n, t);
  vt_text_put(out, "func.func @again(");
}

static void put_wrong_types(vt_text *out, int n, const char *t) {
  vt_text_printf(out,
                 HEAD "%%c = stablehlo.constant dense<%d.5> : tensor<7xf32>\n"
                      "%%b = stablehlo.add %%x, %%c : %s\nreturn %%b : %s\n}\n",
                 t, t, n, t, t);
}

static void put_unknown_call(vt_text *out, int n, const char *t) {
  vt_text_printf(out,
                 HEAD "%%a = stablehlo.tanh %%x : %s\n%%b = stablehlo.custom_call @tpu_custom_call"
                      "(%%a) {backend_config = \"{%d",
                 t, t, t, n);
  for (int i = 0; i < 4096; i++) vt_text_put(out, "abcdefgh");
  vt_text_printf(out, "}\"} : (%s) -> %s\nreturn %%b : %s\n}\n", t, t, t);
}

static void put_too_large(vt_text *out, int n, const char *t) {
  vt_text_printf(out,
                 "func.func public @main(%%x: %s) -> tensor<%dx65536xf32> {\n"
                 "%%i = stablehlo.iota dim = 0 : tensor<%dx65536xf32>\n"
                 "return %%i : tensor<%dx65536xf32>\n}\n",
                 t, 100000 + n, 100000 + n, 100000 + n);
}

static void one(void (*put)(vt_text *, int, const char *), int n, bool refused) {
  char type[64];
  static float data[WARM * 256];
  const int64_t dims[2] = {n % WARM + 1, 256};
  vt_text text = {0};
  PJRT_Error *error = NULL;
  snprintf(type, sizeof type, "tensor<%dx256xf32>", n % WARM + 1);
  put(&text, n, type);
  PJRT_LoadedExecutable *program =
      plugin_compile_text(&p, client, vt_text_string(&text), 1, refused ? &error : NULL);
  vt_text_free(&text);
  if (refused) {
    assert_non_null(error);
    ARGS(Error_Destroy, destroy);
    destroy.error = error;
    ((void (*)(PJRT_Error_Destroy_Args *))p.api->slots[SLOT_Error_Destroy])(&destroy);
    return;
  }
  PJRT_Buffer *x = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 2, dims, data);
  PJRT_Buffer *out = NULL, **results[1] = {&out}, *args[1] = {x}, *const * arguments[1] = {args};
  assert_null(plugin_execute(&p, program, 1, 1, arguments, results));
  plugin_buffer_destroy(&p, out);
  plugin_buffer_destroy(&p, x);
  plugin_executable_destroy(&p, program);
}

static int64_t resident(void) {
  long long size = 0, pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%lld %lld", &size, &pages) != 2) pages = -1;
  if (file) fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

typedef struct usage {
  int64_t given, resident;
} usage;

static usage measure(void) {
  malloc_trim(0);
  struct mallinfo2 m = mallinfo2();
  return (usage){(int64_t)(m.uordblks + m.hblkhd), resident()};
}

// Arrays of 100 sizes, up to 50 MB, one at a time.
static void arrays_of_many_sizes_leave_no_memory_behind(void **state) {
  (void)state;
  enum { STEP = 131072 };
  float *data = calloc(100, STEP * sizeof *data);
  assert_non_null(data);
  for (int n = 1; n <= 100; n++) {
    const int64_t dims[1] = {(int64_t)n * STEP};
    plugin_buffer_destroy(
        &p, plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, dims, data));
  }
  free(data);
  usage after = measure();
  print_message("arrays         resident %.0f MB\n", (double)after.resident / 1e6);
  assert_true(after.resident < INT64_C(300) << 20);
}

static const struct row {
  const char *name;
  void (*put)(vt_text *, int, const char *);
  bool refused;
} rows[] = {
    {"compiled", put_compiled, false},
    {"kept weights", put_kept, false},
    {"small", put_small, false},
    {"constants", put_constant, false},
    {"unreadable", put_unreadable, true},
    {"wrong types", put_wrong_types, true},
    {"unknown call", put_unknown_call, true},
    {"too large", put_too_large, true},
};

static void a_table_of_rows_leaves_no_memory_behind(void **state) {
  (void)state;
  bool failed = false;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    usage before = {0};
    for (int n = 0; n < PROGRAMS; n++) {
      one(rows[i].put, n, rows[i].refused);
      if (n == WARM - 1) before = measure();
    }
    usage after = measure();
    double given = (double)(after.given - before.given) / 1e6,
           held = (double)(after.resident - before.resident) / 1e6;
    print_message("%-14s malloc %+.2f MB, resident %+.2f MB (%.0f)\n", rows[i].name, given, held,
                  (double)after.resident / 1e6);
    failed |= given > MOST_GIVEN_MB || held > MOST_HELD_MB;
  }
  assert_false(failed);
}

static int setup(void **state) {
  (void)state;
  if (setenv("VTPU_CACHE_DIR", "", 1)) return -1;
  p = plugin_load(plugin_path());
  client = plugin_client(&p);
  vt_text text = {0}; // one program stays alive throughout, as in every framework
  put_compiled(&text, 1000000, "tensor<128x256xf32>");
  lasting = plugin_compile_text(&p, client, vt_text_string(&text), 1, NULL);
  vt_text_free(&text);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  plugin_executable_destroy(&p, lasting);
  plugin_client_destroy(&p, client);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(arrays_of_many_sizes_leave_no_memory_behind),
                                     cmocka_unit_test(a_table_of_rows_leaves_no_memory_behind)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
