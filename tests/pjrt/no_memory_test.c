// SPDX-License-Identifier: Apache-2.0
// no_memory_test.c - the n-th request for host memory finds none, for every n: a client is made, a
// program compiled, run and read, and each call answers RESOURCE_EXHAUSTED or does what it should.
// Nothing crashes, no result is wrong, and nothing is left over (LeakSanitizer, in the build that
// has it; requests within the blocks of arenas count there, too).
//
// The stages are linked into this program, with malloc and its like replaced for our code alone:
// what LLVM, oneDNN and the C library ask for is not refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plugin_support.h"
#include "refused_memory.h"

enum { EXHAUSTED = 8, F32 = 11, ELEMENTS = 4096, DEVICES = 2 };

extern const PJRT_Api *GetPjrtApi(void);

static plugin p;

typedef struct tried {
  const char *name, *text;
  int devices;
  float factor; // the result is the argument times this
} tried;

// What was made and is to be destroyed.
typedef struct world {
  PJRT_Client *client;
  PJRT_LoadedExecutable *executable;
  PJRT_Buffer *in[DEVICES], *out[DEVICES];
} world;

// Whether the call went well; otherwise it says that there is no memory.
static bool well(PJRT_Error *error) {
  if (!error) return true;
  refuse_no_memory();
  plugin_error_is(&p, error, EXHAUSTED, NULL);
  return false;
}

static bool make(world *w, const tried *program, vt_text *options) {
  ARGS(Client_Create, create);
  if (!well(plugin_call(&p, SLOT_Client_Create, &create))) return false;
  w->client = create.client;
  PJRT_Program code = {.struct_size = sizeof code,
                       .code = (char *)(uintptr_t)program->text,
                       .code_size = strlen(program->text),
                       .format = "mlir",
                       .format_size = 4};
  ARGS(Client_Compile, compile);
  compile.client = w->client;
  compile.program = &code;
  compile.compile_options = options->data;
  compile.compile_options_size = options->size;
  if (!well(plugin_call(&p, SLOT_Client_Compile, &compile))) return false;
  w->executable = compile.executable;
  return true;
}

static bool awaited(PJRT_Event *event) {
  return well(plugin_await(&p, event));
}

static bool fill(world *w, int d, const float *data) {
  static const int64_t dims[1] = {ELEMENTS};
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = w->client;
  a.data = data;
  a.type = F32;
  a.dims = dims;
  a.num_dims = 1;
  a.device = plugin_device(&p, w->client, d);
  if (!well(plugin_call(&p, SLOT_Client_BufferFromHostBuffer, &a))) return false;
  w->in[d] = a.buffer;
  return awaited(a.done_with_host_buffer);
}

static bool run(world *w, int devices) {
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  PJRT_Buffer *const *arguments[DEVICES] = {&w->in[0], &w->in[1]};
  PJRT_Buffer **const results[DEVICES] = {&w->out[0], &w->out[1]};
  PJRT_Event *events[DEVICES];
  ARGS(LoadedExecutable_Execute, a);
  a.executable = w->executable;
  a.options = &options;
  a.argument_lists = arguments;
  a.output_lists = results;
  a.num_devices = (size_t)devices;
  a.num_args = 1;
  a.device_complete_events = events;
  if (!well(plugin_call(&p, SLOT_LoadedExecutable_Execute, &a))) return false;
  bool good = true;
  for (int d = 0; d < devices; d++) good = awaited(events[d]) && good;
  return good;
}

static bool read_back(world *w, int d, float factor, const float *in) {
  static float out[ELEMENTS];
  ARGS(Buffer_ToHostBuffer, a);
  a.src = w->out[d];
  a.dst = out;
  a.dst_size = sizeof out;
  if (!well(plugin_call(&p, SLOT_Buffer_ToHostBuffer, &a)) || !awaited(a.event)) return false;
  for (int i = 0; i < ELEMENTS; i++)
    if (out[i] != factor * in[i]) fail_msg("element %d is %g", i, (double)out[i]);
  return true;
}

static bool whole_run(world *w, const tried *program, vt_text *options) {
  static float in[ELEMENTS];
  for (int i = 0; i < ELEMENTS; i++) in[i] = (float)(i % 100);
  if (!make(w, program, options)) return false;
  for (int d = 0; d < program->devices; d++)
    if (!fill(w, d, in)) return false;
  if (!run(w, program->devices)) return false;
  for (int d = 0; d < program->devices; d++)
    if (!read_back(w, d, program->factor, in)) return false;
  return true;
}

static void destroy(world *w) {
  for (int d = 0; d < DEVICES; d++) {
    if (w->in[d]) plugin_buffer_destroy(&p, w->in[d]);
    if (w->out[d]) plugin_buffer_destroy(&p, w->out[d]);
  }
  if (w->executable) plugin_executable_destroy(&p, w->executable);
  if (w->client) plugin_client_destroy(&p, w->client);
  *w = (world){0};
}

// How many requests a run makes that finds memory everywhere.
static long sweep(const tried *program, bool behind) {
  vt_text options = {0};
  plugin_options(1, program->devices, program->devices > 1, &options);
  for (long n = 1;; n++) {
    world w = {0};
    refuse_memory(n, behind);
    bool good = whole_run(&w, program, &options);
    refuse_no_memory();
    destroy(&w);
    if (good && refused_requests() == 0) {
      vt_text_free(&options);
      return n;
    }
  }
}

// Small enough for the evaluator; a loop that is compiled; arguments of two devices that are
// donated.
static const tried programs[] = {
    {"evaluated",
     "module { func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {"
     " %0 = stablehlo.add %x, %x : tensor<4096xf32> return %0 : tensor<4096xf32> } }",
     1, 2},
    {"compiled",
     "module { func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {"
     " %z = stablehlo.constant dense<0> : tensor<i32>"
     " %0:2 = stablehlo.while(%i = %z, %a = %x) : tensor<i32>, tensor<4096xf32>"
     " cond { %c = stablehlo.constant dense<3> : tensor<i32>"
     "   %l = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>"
     "   stablehlo.return %l : tensor<i1> }"
     " do { %o = stablehlo.constant dense<1> : tensor<i32>"
     "   %j = stablehlo.add %i, %o : tensor<i32>"
     "   %b = stablehlo.add %a, %a : tensor<4096xf32>"
     "   stablehlo.return %j, %b : tensor<i32>, tensor<4096xf32> }"
     " %1 = func.call @half(%0#1) : (tensor<4096xf32>) -> tensor<4096xf32>"
     " %2 = stablehlo.abs %1 : tensor<4096xf32> return %2 : tensor<4096xf32> }"
     " func.func private @half(%x: tensor<4096xf32>) -> tensor<4096xf32> {"
     " %h = stablehlo.constant dense<0.5> : tensor<4096xf32>"
     " %0 = stablehlo.multiply %x, %h : tensor<4096xf32> return %0 : tensor<4096xf32> } }",
     1, 4},
    {"with kernels",
     "module { func.func public @main(%v: tensor<4096xf32>) -> tensor<4096xf32> {"
     " %x = stablehlo.reshape %v : (tensor<4096xf32>) -> tensor<64x64xf32>"
     " %r = stablehlo.iota dim = 0 : tensor<64x64xi32>"
     " %c = stablehlo.iota dim = 1 : tensor<64x64xi32>"
     " %p = stablehlo.compare EQ, %r, %c, SIGNED"
     "   : (tensor<64x64xi32>, tensor<64x64xi32>) -> tensor<64x64xi1>"
     " %e = stablehlo.convert %p : (tensor<64x64xi1>) -> tensor<64x64xf32>"
     " %0 = stablehlo.dot_general %x, %e, contracting_dims = [1] x [0],"
     "   precision = [HIGHEST, HIGHEST]"
     "   : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>"
     " %1 = stablehlo.concatenate %0, %x, dim = 1"
     "   : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x128xf32>"
     " %2 = stablehlo.reshape %1 : (tensor<64x128xf32>) -> tensor<64x2x64xf32>"
     " %z = stablehlo.constant dense<0.0> : tensor<f32>"
     " %3 = stablehlo.reduce(%2 init: %z) applies stablehlo.add across dimensions = [1]"
     "   : (tensor<64x2x64xf32>, tensor<f32>) -> tensor<64x64xf32>"
     " %4 = stablehlo.reshape %3 : (tensor<64x64xf32>) -> tensor<4096xf32>"
     " %i = stablehlo.iota dim = 0 : tensor<4096xi32>"
     " %5:2 = \"stablehlo.sort\"(%i, %4) <{dimension = 0 : i64, is_stable = true}> ({"
     "  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %f: tensor<f32>, %g: tensor<f32>):"
     "   %l = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>"
     "   stablehlo.return %l : tensor<i1> })"
     "   : (tensor<4096xi32>, tensor<4096xf32>) -> (tensor<4096xi32>, tensor<4096xf32>)"
     " return %5#1 : tensor<4096xf32> } }",
     1, 2},
    {"of two devices",
     "module attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m = <[\"x\"=2]>"
     " func.func public @main(%x: tensor<8192xf32> {sdy.sharding = #sdy.sharding<@m, [{\"x\"}]>,"
     " tf.aliasing_output = 0 : i32}) -> (tensor<8192xf32> {sdy.sharding ="
     " #sdy.sharding<@m, [{\"x\"}]>}) {"
     " %0 = stablehlo.add %x, %x : tensor<8192xf32> return %0 : tensor<8192xf32> } }",
     2, 2},
};

static void every_request_may_be_refused(void **state) {
  const tried *program = *state;
  for (int behind = 0; behind < 2; behind++) {
    long requests = sweep(program, behind);
    print_message("%s: %ld requests, %s\n", program->name, requests,
                  behind ? "all refused from the n-th on" : "one refused");
    assert_true(requests > 50);
  }
}

int main(void) {
  enum { COUNT = sizeof programs / sizeof *programs };
  struct CMUnitTest tests[COUNT];
  setenv("VTPU_CACHE_DIR", "", 1); // code is made, not found
  p.api = GetPjrtApi();
#ifndef NDEBUG
  vt_memory_refuses = refuses_request;
#endif
  for (int i = 0; i < COUNT; i++)
    tests[i] = (struct CMUnitTest){.name = programs[i].name,
                                   .test_func = every_request_may_be_refused,
                                   .initial_state = (void *)(uintptr_t)&programs[i]};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
