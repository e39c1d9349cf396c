// SPDX-License-Identifier: Apache-2.0
// foreign_test.c - libvtpu.so in a process where another library exports every name of the
// libraries it uses: programs that need each of them still compile and run.
#include "../pjrt/plugin_support.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static plugin p;
static PJRT_Client *client;

static int setup(void **state) {
  (void)state;
  if (setenv("VTPU_CACHE_DIR", "", 1)) return -1; // code from disk would need no LLVM
  if (!dlopen(FOREIGN_FILE, RTLD_NOW | RTLD_GLOBAL)) fail_msg("%s", dlerror());
  p = plugin_load(plugin_path());
  client = plugin_client(&p);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  plugin_client_destroy(&p, client);
  return 0;
}

// The foreign names are found first, or the other tests prove nothing.
static void foreign_names_are_found_first(void **state) {
  (void)state;
  static const char *const names[] = {"LLVMContextCreate",
                                      "dnnl_primitive_create",
                                      "GOMP_parallel",
                                      "omp_get_max_threads",
                                      "LAPACKE_sgetrf",
                                      "dgemm_",
                                      "inflate",
                                      "_ZN4llvm9StringRefC1EPKc",
                                      "_ZN4llvm11raw_ostream5writeEPKcm"};
  int seen = 0;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    Dl_info info;
    void *at = dlsym(RTLD_DEFAULT, names[i]);
    if (!at) continue;
    seen++;
    assert_true(dladdr(at, &info));
    if (strcmp(info.dli_fname, FOREIGN_FILE)) fail_msg("%s is %s's", names[i], info.dli_fname);
  }
  assert_true(seen >= 8);
}

enum { SIDE = 64 };

// Runs a program of one f32[64,64] argument, close to the identity matrix, and one such result.
static void run(const char *text, float *out) {
  static float data[SIDE * SIDE];
  const int64_t dims[2] = {SIDE, SIDE};
  for (int i = 0; i < SIDE * SIDE; i++)
    data[i] = (float)((i * 7) % 11) / 100 + (i % (SIDE + 1) == 0 ? 2 : 0);
  PJRT_LoadedExecutable *program = plugin_compile_text(&p, client, text, 1, NULL);
  PJRT_Buffer *args[1] = {
      plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 2, dims, data)};
  PJRT_Buffer *outs[1] = {0}, **results[1] = {outs}, *const * arguments[1] = {args};
  assert_null(plugin_execute(&p, program, 1, 1, arguments, results));
  plugin_fetch(&p, outs[0], out, sizeof data);
  plugin_buffer_destroy(&p, outs[0]);
  plugin_buffer_destroy(&p, args[0]);
  plugin_executable_destroy(&p, program);
}

#define M             "tensor<64x64xf32>"
#define PROGRAM(body) "func.func public @main(%x: " M ") -> " M " {\n" body "}\n"

static void programs_run_beside_foreign_libraries(void **state) {
  (void)state;
  static const struct {
    const char *needs, *text;
  } rows[] = {
      {"LLVM", PROGRAM("%a = stablehlo.exponential %x : " M "\n%b = stablehlo.tanh %a : " M "\n"
                       "%c = stablehlo.multiply %b, %x : " M "\nreturn %c : " M "\n")},
      {"oneDNN", PROGRAM("%a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], "
                         "precision = [HIGHEST, HIGHEST] : (" M ", " M ") -> " M "\n"
                         "return %a : " M "\n")},
      {"OpenMP", PROGRAM("%a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (" M
                         ", " M ") -> " M "\n%b = stablehlo.sqrt %a : " M "\nreturn %b : " M "\n")},
      {"LAPACK", PROGRAM("%r:2 = stablehlo.custom_call @Qr(%x) : (" M ") -> (" M
                         ", tensor<64xf32>)\nreturn %r#0 : " M "\n")},
      {"LAPACK", PROGRAM("%r:3 = stablehlo.custom_call @LuDecomposition(%x) : (" M ") -> (" M
                         ", tensor<64xi32>, tensor<64xi32>)\nreturn %r#0 : " M "\n")},
      {"LAPACK",
       PROGRAM("%t = stablehlo.transpose %x, dims = [1, 0] : (" M ") -> " M "\n"
               "%s = stablehlo.add %x, %t : " M "\n"
               "%r:2 = stablehlo.custom_call @Eigh(%s) {backend_config = "
               "\"1,1,100,1e-6\"} : (" M ") -> (" M ", tensor<64xf32>)\nreturn %r#0 : " M "\n")},
  };
  static float out[SIDE * SIDE];
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    print_message("%s\n", rows[i].needs);
    run(rows[i].text, out);
    for (int k = 0; k < SIDE * SIDE; k++)
      if (out[k] != out[k]) fail_msg("%s: element %d is not a number", rows[i].needs, k);
  }
}

// An error passes through LLVM's and our own allocations without reaching a foreign one.
static void a_refusal_meets_no_foreign_allocation(void **state) {
  (void)state;
  PJRT_Error *error = NULL;
  assert_null(plugin_compile_text(&p, client, PROGRAM("return %y : " M "\n"), 1, &error));
  plugin_error_is(&p, error, 3, "%y");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(foreign_names_are_found_first),
      cmocka_unit_test(programs_run_beside_foreign_libraries),
      cmocka_unit_test(a_refusal_meets_no_foreign_allocation),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
