// SPDX-License-Identifier: Apache-2.0
// threads_test.c - one client and several threads of its process: each compiles, runs chains of
// programs without waiting for them, copies, reads and destroys, on its own and on shared objects.
// Every result is checked; the other half of the test is what ThreadSanitizer sees.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "plugin_support.h"

enum { THREADS = 4, ROUNDS = 6, CHAIN = 5, SIDE = 128, F32 = 11 };

static plugin p;
static PJRT_Client *client;
static PJRT_LoadedExecutable *shared;
static PJRT_Buffer *ones;
static atomic_int ready;

// The larger one goes through the queue and parallel loops; the smaller one runs at once.
static const char grow[] =
    "module { func.func public @main(%x: tensor<128x128xf32>, %y: tensor<128x128xf32>)"
    " -> tensor<128x128xf32> {"
    "  %0 = stablehlo.add %x, %y : tensor<128x128xf32>"
    "  %1 = stablehlo.tanh %0 : tensor<128x128xf32>"
    "  %2 = stablehlo.subtract %0, %1 : tensor<128x128xf32>"
    "  %3 = stablehlo.add %2, %1 : tensor<128x128xf32>"
    "  return %3 : tensor<128x128xf32> } }";

static void compile_and_run_small(int thread) {
  char text[256];
  snprintf(text, sizeof text,
           "module { func.func public @main(%%x: tensor<4xf32>) -> tensor<4xf32> {"
           " %%c = stablehlo.constant dense<%d.0> : tensor<4xf32>"
           " %%0 = stablehlo.multiply %%x, %%c : tensor<4xf32> return %%0 : tensor<4xf32> } }",
           thread);
  PJRT_LoadedExecutable *own = plugin_compile_text(&p, client, text, 1, NULL);
  int64_t four[1] = {4};
  float in[4] = {1, 2, 3, 4}, out[4];
  PJRT_Buffer *x = plugin_buffer(&p, client, plugin_device(&p, client, 0), F32, 1, four, in);
  PJRT_Buffer *args[1] = {x}, *outs[1] = {NULL}, **results[1] = {outs};
  PJRT_Buffer *const *arguments[1] = {args};
  assert_null(plugin_execute(&p, own, 1, 1, arguments, results));
  plugin_fetch(&p, outs[0], out, sizeof out);
  for (int i = 0; i < 4; i++) assert_true(out[i] == in[i] * (float)thread);
  plugin_buffer_destroy(&p, outs[0]);
  plugin_buffer_destroy(&p, x);
  plugin_executable_destroy(&p, own);
}

// Starts with an array of the thread's number; each step adds one. The last step's result goes
// through another device.
static void run_chain(int thread) {
  static _Thread_local float data[SIDE * SIDE];
  int64_t dims[2] = {SIDE, SIDE};
  for (int i = 0; i < SIDE * SIDE; i++) data[i] = (float)thread;
  PJRT_Buffer *x = plugin_buffer(&p, client, plugin_device(&p, client, 0), F32, 2, dims, data);
  for (int i = 0; i < CHAIN; i++) {
    PJRT_Buffer *next = plugin_start(&p, shared, x, ones, &ready);
    plugin_buffer_destroy(&p, x); // before the run has read it
    x = next;
  }
  ARGS(Buffer_CopyToDevice, copy);
  copy.buffer = x;
  copy.dst_device = plugin_device(&p, client, 1 + thread);
  plugin_ok(&p, SLOT_Buffer_CopyToDevice, &copy);
  plugin_buffer_destroy(&p, x);
  ARGS(Device_MemoryStats, stats);
  stats.device = copy.dst_device;
  plugin_ok(&p, SLOT_Device_MemoryStats, &stats);
  plugin_fetch(&p, copy.dst_buffer, data, sizeof data);
  plugin_buffer_destroy(&p, copy.dst_buffer);
  for (int i = 0; i < SIDE * SIDE; i++) assert_true(data[i] == (float)(thread + CHAIN));
}

static void *work(void *user) {
  int thread = *(int *)user;
  for (int round = 0; round < ROUNDS; round++) {
    compile_and_run_small(thread);
    run_chain(thread);
  }
  return NULL;
}

static void threads_share_a_client(void **state) {
  (void)state;
  static float data[SIDE * SIDE];
  int64_t dims[2] = {SIDE, SIDE};
  pthread_t threads[THREADS];
  int numbers[THREADS];
  for (int i = 0; i < SIDE * SIDE; i++) data[i] = 1;
  shared = plugin_compile_text(&p, client, grow, 1, NULL);
  ones = plugin_buffer(&p, client, plugin_device(&p, client, 0), F32, 2, dims, data);
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  plugin_buffer_destroy(&p, ones);
  plugin_executable_destroy(&p, shared);
  assert_int_equal(ready, THREADS * ROUNDS * CHAIN);
}

static void *own_client(void *user) {
  (void)user;
  PJRT_Client *own = plugin_client(&p);
  PJRT_LoadedExecutable *add = plugin_compile(&p, own, "add", 1);
  plugin_executable_destroy(&p, add);
  plugin_client_destroy(&p, own);
  return NULL;
}

static void threads_make_clients(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, own_client, NULL), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static int open_plugin(void **state) {
  (void)state;
  p = plugin_load(plugin_path());
  client = plugin_client(&p);
  return 0;
}

static int close_plugin(void **state) {
  (void)state;
  plugin_client_destroy(&p, client);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_client),
                                     cmocka_unit_test(threads_make_clients)};
  return cmocka_run_group_tests(tests, open_plugin, close_plugin);
}
