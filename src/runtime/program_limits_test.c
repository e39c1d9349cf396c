// SPDX-License-Identifier: Apache-2.0
// program_limits_test.c - programs with numbers far too large for this machine, or any: they give
// an error that says what is too large, or a result, and never end the process.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/runtime_internal.h"

#define FINE ((vt_code)0)
static vt_client *client;

#define F8 "tensor<8xf32>"
#define MAIN(type, result, body)                                                                   \
  "func.func public @main(%x: " type ") -> " result " {\n"                                         \
  "%z = stablehlo.constant dense<0.0> : tensor<f32>\n" body "}\n"
#define SUM_BODY                                                                                   \
  "({\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.add %p, %q : tensor<f32>\n"         \
  "stablehlo.return %s : tensor<f32>\n})"
#define WINDOW(in, out, size, pad, more)                                                           \
  MAIN(in, out,                                                                                    \
       "%r = \"stablehlo.reduce_window\"(%x, %z) " SUM_BODY                                        \
       " {window_dimensions = array<i64: 1, " size ">, padding = dense<[[0, 0], [" pad             \
       "]]> : tensor<2x2xi64>" more "} : (" in ", tensor<f32>) -> " out "\nreturn %r : " out "\n")
#define WIDE "tensor<64x4096xf32>"

typedef struct row {
  const char *name;
  vt_code code; // FINE: compiles
  const char *says;
  const char *text;
} row;

static const row rows[] = {
    {"a window over padding", FINE, "", WINDOW(WIDE, WIDE, "4000000000", "3999999999, 0", "")},
    {"one window", FINE, "", WINDOW(WIDE, "tensor<64x1xf32>", "4000000000", "3999995904, 0", "")},
    {"a window of 2^62", FINE, "",
     WINDOW(WIDE, WIDE, "4611686018427387904", "4611686018427387903, 0", "")},
    {"a dilated window", FINE, "",
     WINDOW(WIDE, "tensor<64x1xf32>", "2", "4000000000, 0",
            ", window_dilations = array<i64: 1, 4000004095>")},
    {"padding of 2^63", VT_INVALID_ARGUMENT, "pad",
     MAIN(F8, F8,
          "%r = stablehlo.pad %x, %z, low = [0], high = [9223372036854775807], interior = "
          "[4611686018427387904] : (" F8 ", tensor<f32>) -> " F8 "\nreturn %r : " F8 "\n")},
    {"2^61 elements", VT_INVALID_ARGUMENT, "too large",
     MAIN(F8, F8,
          "%r = stablehlo.iota dim = 0 : tensor<2305843009213693952xf32>\nreturn %x : " F8 "\n")},
    {"a product of sizes", VT_INVALID_ARGUMENT, "too large",
     MAIN(F8, F8,
          "%r = stablehlo.iota dim = 0 : tensor<4294967296x4294967296xf32>\nreturn %x : " F8 "\n")},
    {"a result of 2^40", VT_RESOURCE_EXHAUSTED, "",
     MAIN(F8, "tensor<1099511627776xf32>",
          "%r = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> "
          "tensor<1099511627776xf32>\nreturn %r : tensor<1099511627776xf32>\n")},
    {"temporaries of 2^40", FINE, "", // the chip's account may miss them; the run does not
     MAIN(F8, F8,
          "%r = stablehlo.pad %x, %z, low = [0], high = [3999999992], interior = [0] : (" F8
          ", tensor<f32>) -> tensor<4000000000xf32>\n"
          "%s = stablehlo.slice %r [0:8] : (tensor<4000000000xf32>) -> " F8 "\nreturn %s : " F8
          "\n")},
    {"a long transform", FINE, "",
     MAIN(F8, F8,
          "%i = stablehlo.iota dim = 0 : tensor<3000000000xf32>\n"
          "%r = stablehlo.fft %i, type = RFFT, length = [3000000000] : (tensor<3000000000xf32>) -> "
          "tensor<1500000001xcomplex<f32>>\n%a = stablehlo.real %r : "
          "(tensor<1500000001xcomplex<f32>>) -> tensor<1500000001xf32>\n%s = stablehlo.slice %a "
          "[0:8] : (tensor<1500000001xf32>) -> " F8 "\nreturn %s : " F8 "\n")},
    {"replicas times partitions", VT_INVALID_ARGUMENT, "replicas",
     "module @m attributes {mhlo.num_partitions = 65536 : i32, mhlo.num_replicas = 65536 : i32} "
     "{\n" MAIN(F8, F8, "return %x : " F8 "\n") "}\n"},
};

static vt_status compile(const char *text, vt_executable **out) {
  vt_executable_options options = {0};
  return vt_executable_compile(vt_client_slice(client),
                               (vt_bytes){(const uint8_t *)text, strlen(text)}, &options, out);
}

// Runs a program of one argument of ones. Any answer about memory is fine, ending the process is
// not.
static vt_status run(vt_executable *executable) {
  static float ones[64 * 4096];
  for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) ones[i] = 1;
  const vt_executable_info *info = vt_executable_get(executable);
  vt_memory *memory = &vt_client_device(client, 0)->memories[VT_MEMORY_DEVICE];
  vt_buffer *x = NULL, *out = NULL, **results[] = {&out};
  VT_TRY(vt_buffer_from_host(memory, info->params[0].type, ones, NULL, NULL, &x));
  vt_buffer *const arguments[] = {x}, *const * lists[] = {arguments};
  vt_execution execution = {.arguments = lists, .results = results, .argument_count = 1};
  vt_event *done = NULL;
  vt_status st = vt_executable_execute(client, executable, &execution, &done);
  if (!st) {
    st = vt_event_await(done);
    vt_event_release(done);
    vt_buffer_destroy(out);
  }
  vt_buffer_destroy(x);
  return st;
}

static void check(const row *r) {
  vt_executable *executable = NULL;
  vt_status st = compile(r->text, &executable);
  if (vt_status_code(st) != r->code || !strstr(vt_status_message(st), r->says))
    fail_msg("%s: %s", r->name, vt_status_message(st));
  vt_status_free(st);
  if (!executable) return;
#ifndef __SANITIZE_ADDRESS__ // no limit is set there, and memory is available until written
  st = run(executable);
#else
  (void)run;
#endif
  if (st && vt_status_code(st) != VT_RESOURCE_EXHAUSTED)
    fail_msg("%s: %s", r->name, vt_status_message(st));
  vt_status_free(st);
  vt_executable_release(executable);
}

static void sizes_that_overflow_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check(&rows[i]);
}

// `count` functions, each of which calls the next `width` times; main calls the first.
static void put_calls(vt_text *text, int count, int width) {
  vt_text_put(text, "module {\n");
  for (int i = 0; i <= count; i++) {
    vt_text_printf(text, "func.func private @f%d(%%0: " F8 ") -> " F8 " {\n", i);
    for (int k = 1; k <= width && i < count; k++)
      vt_text_printf(text, "%%%d = func.call @f%d(%%%d) : (" F8 ") -> " F8 "\n", k, i + 1, k - 1);
    vt_text_printf(text, "return %%%d : " F8 "\n}\n", i < count ? width : 0);
  }
  vt_text_put(text, "func.func public @main(%0: " F8 ") -> " F8 " {\n%1 = func.call @f0(%0) : (" F8
                    ") -> " F8 "\nreturn %1 : " F8 "\n}\n}\n");
}

static void call_trees_that_explode_are_refused(void **state) {
  (void)state;
  static const struct {
    int count, width;
    const char *says;
  } calls[] = {
      {10, 2, ""},
      {900, 1, ""},
      {30, 2, "more than 1048576 operations"},
      {6, 100, "operations"},
      {5000, 1, "nest more than 1000 deep"},
      {100000, 1, "deep"},
  };
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    vt_text text = {0};
    put_calls(&text, calls[i].count, calls[i].width);
    bool fine = !*calls[i].says;
    row r = {"calls", fine ? FINE : VT_RESOURCE_EXHAUSTED, calls[i].says, vt_text_string(&text)};
    check(&r);
    vt_text_free(&text);
  }
}

// Nested regions, as text; and a chain of 20,000 operations.
static void deep_programs_compile_or_are_refused(void **state) {
  (void)state;
  vt_text text = {0};
  vt_text_put(&text, "func.func public @main(%x: " F8 ") -> " F8 " {\n"
                     "%c = stablehlo.constant dense<true> : tensor<i1>\n");
  for (int i = 0; i < 100000; i++) vt_text_printf(&text, "%%r%d = \"stablehlo.if\"(%%c) ({\n", i);
  row nested = {"regions", VT_INVALID_ARGUMENT, "nested too deeply", vt_text_string(&text)};
  check(&nested);
  vt_text_free(&text);
  vt_text_put(&text, "func.func public @main(%0: " F8 ") -> " F8 " {\n");
  for (int i = 1; i <= 20000; i++)
    vt_text_printf(&text, "%%%d = stablehlo.tanh %%%d : " F8 "\n", i, i - 1);
  vt_text_printf(&text, "return %%20000 : " F8 "\n}\n");
  row chain = {"chain", FINE, "", vt_text_string(&text)};
  check(&chain);
  vt_text_free(&text);
}

static int setup(void **state) {
  (void)state;
  vt_slice slice;
  // As on a machine with 12 GB: larger allocations fail.
  struct rlimit limit = {(rlim_t)12 << 30, (rlim_t)12 << 30};
#ifndef __SANITIZE_ADDRESS__
  if (setrlimit(RLIMIT_AS, &limit)) return -1;
#endif
  (void)limit;
  vt_status st = vt_slice_from_name("v3-8", &slice);
  if (!st) st = vt_client_create(&slice, &client);
  return st ? -1 : 0;
}

static int teardown(void **state) {
  (void)state;
  vt_client_destroy(client);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_that_overflow_are_refused),
      cmocka_unit_test(call_trees_that_explode_are_refused),
      cmocka_unit_test(deep_programs_compile_or_are_refused),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
