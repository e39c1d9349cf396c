// SPDX-License-Identifier: Apache-2.0
// team_test.c - programs leave the OpenMP team as it is: GNU OpenMP ends the threads that a smaller
// one leaves out, and making them again takes longer than most loops. And they start as few
// parallel regions as they can: with many threads each costs as much as a small loop.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <omp.h>
#include <string.h>
#include <unistd.h>

#include "host/cpu.h"
#include "host/host.h"
#include "host/waiting.h"
#include "import/import.h"

enum { THREADS = 7, MOST = 4 };

typedef struct row {
  const char *name, *params, *result, *body;
} row;

#define REDUCER(op)                                                                                \
  "({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%c = stablehlo." op                                \
  " %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>\n})"
#define IMAGES "tensor<2x64x64x3xf32>"
#define PLANES "tensor<1x3x96x96xf32>"

static const row rows[] = {
    {"few planes", "%x: " PLANES, "tensor<1x3x48x48xf32>",
     "%z = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
     "%r = \"stablehlo.reduce_window\"(%x, %z) " REDUCER(
         "maximum") " {window_dimensions = "
                    "array<i64: 1, 1, 2, 2>, window_strides = array<i64: 1, 1, 2, 2>} : (" PLANES
                    ", tensor<f32>) -> tensor<1x3x48x48xf32>\n"},
    {"few images", "%x: " IMAGES ", %y: tensor<2x32x32x3xf32>", IMAGES,
     "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "%r = \"stablehlo.select_and_scatter\"(%x, %y, %z) ({\n^bb0(%a: tensor<f32>, %b: "
     "tensor<f32>):\n%c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> "
     "tensor<i1>\nstablehlo.return %c : tensor<i1>\n}, "
     "{\n^bb0(%a: tensor<f32>, %b: "
     "tensor<f32>):\n%c = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %c : "
     "tensor<f32>\n}) {window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, "
     "2, 2, 1>} : (" IMAGES ", tensor<2x32x32x3xf32>, tensor<f32>) -> " IMAGES "\n"},
    {"few matrices", "%x: tensor<3x96x96xf32>", "tensor<3x96x96xf32>",
     "%r = stablehlo.cholesky %x, lower = true : tensor<3x96x96xf32>\n"},
    {"lines", "%x: tensor<5x4096xcomplex<f32>>", "tensor<5x4096xcomplex<f32>>",
     "%r = stablehlo.fft %x, type = FFT, length = [4096] : (tensor<5x4096xcomplex<f32>>) -> "
     "tensor<5x4096xcomplex<f32>>\n"},
    {"a small product", "%x: tensor<288x256xbf16>, %y: tensor<256x256xbf16>", "tensor<288x256xf32>",
     "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<288x256xbf16>, "
     "tensor<256x256xbf16>) -> tensor<288x256xf32>\n"},
    {"a loop", "%x: tensor<300x1000xf32>", "tensor<300x1000xf32>",
     "%e = stablehlo.exponential %x : tensor<300x1000xf32>\n"
     "%r = stablehlo.tanh %e : tensor<300x1000xf32>\n"},
};

// Which take one region each; with AMX oneDNN computes the last, whose regions are not counted.
static const row single[] = {
    {"sums over rows", "%x: tensor<65536x64xf32>", "tensor<64xf32>",
     "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "%r = \"stablehlo.reduce\"(%x, %z) " REDUCER(
         "add") " {dimensions = array<i64: 0>} : (tensor<65536x64xf32>, tensor<f32>) -> "
                "tensor<64xf32>\n"},
    {"a product whose right side is laid out", "%x: tensor<512x512xbf16>, %y: tensor<512x512xbf16>",
     "tensor<512x512xf32>",
     "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<512x512xbf16>, "
     "tensor<512x512xbf16>) -> tensor<512x512xf32>\n"},
    {"the gradient of weights", "%x: tensor<8x28x28x64xbf16>, %y: tensor<8x28x28x64xbf16>",
     "tensor<1x1x64x64xf32>",
     "%r = stablehlo.convolution(%x, %y) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], "
     "window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
     "(tensor<8x28x28x64xbf16>, tensor<8x28x28x64xbf16>) -> tensor<1x1x64x64xf32>\n"},
};

static int regions;

// GNU OpenMP's, which regions are compiled to.
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags) {
  void (*real)(void (*)(void *), void *, unsigned, unsigned);
  *(void **)&real = dlsym(RTLD_NEXT, "GOMP_parallel");
  regions++;
  real(function, data, threads, flags);
}

static void look(pid_t *threads) {
#pragma omp parallel
  threads[omp_get_thread_num()] = gettid();
}

static void run(const row *r) {
  vt_text text = {0};
  vt_text_printf(&text, "module @m {\nfunc.func @main(%s) -> (%s) {\n%sreturn %%r : %s\n}\n}\n",
                 r->params, r->result, r->body, r->result);
  const char *string = vt_text_string(&text);
  vt_module *module = NULL;
  vt_program *program = NULL;
  vt_host_options options = {.device_count = 1, .exact_dots = true, .compile_all = true};
  vt_status st = vt_import((vt_bytes){(const uint8_t *)string, strlen(string)}, &module);
  if (!st) st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s: %s\n%s", r->name, vt_status_message(st), string);
  const vt_func *func = vt_program_module(program)->main;
  void *params[MOST], *result = vt_host_alloc(vt_type_bytes(func->returns[0]->type));
  for (uint32_t i = 0; i < func->param_count; i++) {
    int64_t bytes = vt_type_bytes(func->params[i]->type);
    params[i] = vt_host_alloc(bytes);
    memset(params[i], 0, (size_t)bytes);
  }
  st = vt_program_run(program, &(vt_run){.params = params, .results = &result});
  if (st) fail_msg("%s: %s", r->name, vt_status_message(st));
  for (uint32_t i = 0; i < func->param_count; i++) vt_host_free(params[i]);
  vt_host_free(result);
  vt_program_destroy(program);
  vt_text_free(&text);
}

static void threads_stay(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    pid_t before[THREADS], after[THREADS];
    run(&rows[i]);
    look(before);
    run(&rows[i]);
    look(after);
    if (memcmp(before, after, sizeof after)) fail_msg("%s: other threads", rows[i].name);
  }
}

static void regions_are_few(void **state) {
  (void)state;
  run(&single[0]); // the flags of the team's threads are set once
  for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
    bool last = i + 1 == sizeof single / sizeof *single;
    if ((i && !vt_host_fast_bf16()) || (last && vt_host_has_amx())) break;
    regions = 0;
    run(&single[i]);
    if (regions != 1) fail_msg("%s: %d regions", single[i].name, regions);
  }
}

// Pieces of a loop: with 64 of them 16 threads have three or four.
static void pieces_keep_a_team_busy(void **state) {
  (void)state;
  static const int teams[] = {2, 4, 8, 16};
  for (size_t t = 0; t < sizeof teams / sizeof *teams; t++)
    for (int64_t loop = 128; loop <= 100000; loop = 2 * loop + 5) {
      omp_set_num_threads(teams[t]);
      int64_t share = vt_host_share(loop), pieces = (loop + share - 1) / share;
      int64_t turns = (pieces + teams[t] - 1) / teams[t];
      if (8 * loop < 7 * turns * share * teams[t])
        fail_msg("%lld for %d threads: %lld turns of %lld", (long long)loop, teams[t],
                 (long long)turns, (long long)share);
    }
  omp_set_num_threads(THREADS);
}

int main(void) {
  omp_set_num_threads(THREADS);
  vt_waiting_manage();
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads_stay),
                                     cmocka_unit_test(regions_are_few),
                                     cmocka_unit_test(pieces_keep_a_team_busy)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
