// SPDX-License-Identifier: Apache-2.0
// live_test.c - what is live at the peak of small programs, and the least they need.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "chip/memory.h"
#include "import/import.h"

#define A     "tensor<1024x1024xf32>"  // 4096 K
#define H     "tensor<1024x1024xbf16>" // 2048 K
#define STACK "tensor<8x1024x1024xf32>"
#define DOT(name, a, b, types)                                                                     \
  name " = stablehlo.dot_general " a ", " b ", contracting_dims = [1] x [0] : " types "\n"
#define DOT_A(name, a, b) DOT(name, a, b, "(" A ", " A ") -> " A)
#define TANH(name, a)     name " = stablehlo.tanh " a " : " A "\n"
#define ADD(name, a, b)   name " = stablehlo.add " a ", " b " : " A "\n"
#define MAIN(params, result, body)                                                                 \
  "module { func.func public @main(" params ") -> (" result ") {\n" body "} }\n"
#define COUNTER                                                                                    \
  "%zero = stablehlo.constant dense<0> : tensor<i32>\n"                                            \
  "%one = stablehlo.constant dense<1> : tensor<i32>\n"                                             \
  "%limit = stablehlo.constant dense<8> : tensor<i32>\n"
#define LOOP(types)                                                                                \
  " : tensor<i32>, " types "\ncond {\n"                                                            \
  "%go = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"            \
  "stablehlo.return %go : tensor<i1>\n} do {\n%next = stablehlo.add %i, %one : tensor<i32>\n"

typedef struct row {
  const char *name, *text;
  const char *live; // each array with its K bytes in HBM
  int64_t least;    // K bytes
} row;

static const row rows[] = {
    {"elementwise operators fuse with their readers",
     MAIN("%x: " A, A,
          TANH("%t", "%x") ADD("%s", "%t", "%x") DOT_A("%d", "%s", "%t") //
          "return %d : " A "\n"),
     "", 0},
    {"a product between two products is an array",
     MAIN("%x: " A, A,
          DOT_A("%d", "%x", "%x") TANH("%t", "%d") DOT_A("%e", "%t", "%x") //
          "return %e : " A "\n"),
     "dot_general f32[1024,1024] 4096", 4096},
    {"it is stored as its reader takes it",
     MAIN("%x: " A ", %w: " H, A,
          DOT_A("%d", "%x", "%x") "%h = stablehlo.convert %d : (" A ") -> " H "\n" //
          DOT("%e", "%h", "%w", "(" H ", " H ") -> " A) "return %e : " A "\n"),
     "convert bf16[1024,1024] 2048", 2048},
    {"a bias and a result are added as it is made",
     MAIN("%x: " A ", %y: " A, A,
          DOT_A("%d", "%x", "%x") ADD("%s", "%d", "%y") //
          "return %s : " A "\n"),
     "", 4096},
    {"tiles are filled up",
     MAIN("%x: " A ", %w: tensor<1024x3xf32>, %v: tensor<3x1024xf32>", A,
          DOT("%d", "%x", "%w", "(" A ", tensor<1024x3xf32>) -> tensor<1024x3xf32>") //
          DOT("%e", "%d", "%v", "(tensor<1024x3xf32>, tensor<3x1024xf32>) -> " A) "return %e : " A
                                                                                  "\n"),
     "dot_general f32[1024,3] 16", 8},
    {"a sum is kept where its terms would have to be",
     MAIN("%x: " A, A,
          DOT_A("%a", "%x", "%x") DOT_A("%b", "%x", "%a") ADD("%s", "%a", "%b") //
          DOT_A("%c", "%s", "%x") DOT_A("%d", "%c", "%s") DOT_A("%e", "%d", "%s") "return %e : " A
                                                                                  "\n"),
     "add f32[1024,1024] 4096, dot_general f32[1024,1024] 4096, "
     "dot_general f32[1024,1024] 4096",
     6144},
    {"what is made of one array is made of it again",
     MAIN("%x: " A, A,
          DOT_A("%d", "%x", "%x") TANH("%t", "%d") ADD("%m", "%t", "%d") //
          DOT_A("%e", "%m", "%x") DOT_A("%f", "%e", "%m") "return %f : " A "\n"),
     "dot_general f32[1024,1024] 4096, dot_general f32[1024,1024] 4096", 4096},
    {"updates of parameters are made where the results will be",
     MAIN("%p: " A ", %q: " A ", %x: " A, A ", " A,
          DOT_A("%g", "%x", "%x") DOT_A("%h", "%g", "%x") ADD("%a", "%p", "%g") //
          ADD("%b", "%q", "%h") "return %a, %b : " A ", " A "\n"),
     "dot_general f32[1024,1024] 4096", 6144},
    {"what only such results are made of is not there later",
     MAIN("%p: " A ", %x: " A, A ", " A,
          DOT_A("%g", "%x", "%x") "%h = stablehlo.convert %g : (" A ") -> " H "\n" //
                                  "%w = stablehlo.convert %h : (" H ") -> " A
                                  "\n" ADD("%r", "%p", "%w") //
          DOT_A("%e", "%x", "%x") DOT_A("%f", "%e", "%x") "return %r, %f : " A ", " A "\n"),
     "dot_general f32[1024,1024] 4096", 2048},
    {"a loop carries one array and makes the next",
     MAIN("%x: " A ", %w: " A, A,
          COUNTER "%r:2 = stablehlo.while(%i = %zero, %c = %x)" LOOP(A) //
          DOT_A("%d", "%c", "%w") "stablehlo.return %next, %d : tensor<i32>, " A "\n}\n"
                                  "%t = stablehlo.tanh %r#1 : " A
                                  "\n" DOT_A("%e", "%t", "%t") "return %e : " A "\n"),
     "dot_general f32[1024,1024] 4096, while f32[1024,1024] 4096", 4096},
    {"a loop updates in place",
     MAIN("%x: " A, STACK,
          COUNTER "%f = stablehlo.constant dense<0.0> : tensor<f32>\n"
                  "%s = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> " STACK "\n"
                  "%r:2 = stablehlo.while(%i = %zero, %c = %s)" LOOP(STACK)                  //
          "%u = stablehlo.reshape %x : (" A ") -> tensor<1x1024x1024xf32>\n"                 //
          "%d = stablehlo.dynamic_update_slice %c, %u, %i, %zero, %zero : (" STACK           //
          ", tensor<1x1024x1024xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> " STACK "\n" //
          "stablehlo.return %next, %d : tensor<i32>, " STACK "\n}\nreturn %r#1 : " STACK "\n"),
     "", 16384},
    {"what a loop carries in host memory takes none here, but for what comes back",
     MAIN("%x: " A, A,
          COUNTER "%f = stablehlo.constant dense<0.0> : tensor<f32>\n"
                  "%s = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> " STACK "\n"
                  "%r:2 = stablehlo.while(%i = %zero, %c = %s)" LOOP(STACK) //
          "%h = stablehlo.custom_call @annotate_device_placement(%x) {has_side_effect = true, "
          "mhlo.frontend_attributes = {_xla_buffer_placement = \"pinned_host\"}} : (" A ") -> " A
          "\n%u = stablehlo.reshape %h : (" A ") -> tensor<1x1024x1024xf32>\n"
          "%d = stablehlo.dynamic_update_slice %c, %u, %i, %zero, %zero : (" STACK
          ", tensor<1x1024x1024xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> " STACK "\n"
          "stablehlo.return %next, %d : tensor<i32>, " STACK "\n}\n"
          "%t = stablehlo.slice %r#1 [0:1, 0:1024, 0:1024] : (" STACK
          ") -> tensor<1x1024x1024xf32>\n"
          "%v = stablehlo.reshape %t : (tensor<1x1024x1024xf32>) -> " A "\n"
          "%w = stablehlo.custom_call @annotate_device_placement(%v) {has_side_effect = true, "
          "mhlo.frontend_attributes = {_xla_buffer_placement = \"device\"}} : (" A ") -> " A
          "\n" DOT_A("%e", "%w", "%x") "return %e : " A "\n"),
     "custom_call f32[1024,1024] 4096", 0},
    {"a conditional takes what its largest branch does",
     MAIN("%x: " A ", %p: tensor<i1>", A,
          "%r = \"stablehlo.if\"(%p) ({\n" DOT_A("%a", "%x", "%x") DOT_A("%b", "%a", "%a") //
          DOT_A("%c", "%b", "%a") "stablehlo.return %c : " A "\n}, {\n" DOT_A(
              "%d", "%x", "%x") "stablehlo.return %d : " A "\n}) : (tensor<i1>) -> " A
                                "\nreturn %r : " A "\n"),
     "dot_general f32[1024,1024] 4096, dot_general f32[1024,1024] 4096", 4096},
    {"what is sliced is whole before",
     MAIN("%x: " A, "tensor<8x1024xf32>",
          DOT_A("%d", "%x", "%x") "%s = stablehlo.slice %d [0:8, 0:1024] : (" A //
                                  ") -> tensor<8x1024xf32>\nreturn %s : tensor<8x1024xf32>\n"),
     "dot_general f32[1024,1024] 4096", 0},
    {"what is gathered is there, though a compiler might gather it piece by piece",
     MAIN("%x: " A ", %w: tensor<512x1024xf32>", A,
          "%g = \"stablehlo.all_gather\"(%w) {all_gather_dim = 0 : i64, channel_handle = "
          "#stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : "
          "tensor<1x2xi64>, use_global_device_ids} : (tensor<512x1024xf32>) -> " A "\n" //
          DOT_A("%d", "%x", "%g") "return %d : " A "\n"),
     "all_gather f32[1024,1024] 4096", 0},
    {"activations of the forward pass wait for the backward pass",
     MAIN("%x: " A ", %w: " A, A ", " A ", " A,
          DOT_A("%a", "%x", "%w") DOT_A("%b", "%a", "%w") DOT_A("%c", "%b", "%w") //
          DOT_A("%g", "%c", "%b") DOT_A("%h", "%g", "%a") DOT_A("%i", "%h", "%x") //
          "return %g, %h, %i : " A ", " A ", " A "\n"),
     "dot_general f32[1024,1024] 4096, dot_general f32[1024,1024] 4096, "
     "dot_general f32[1024,1024] 4096",
     6144},
    {"a narrow array lies with its long dimension in the lanes",
     MAIN("%x: " H ", %w: tensor<1024x16xbf16>, %v: tensor<16x1024xbf16>", H,
          DOT("%d", "%x", "%w", "(" H ", tensor<1024x16xbf16>) -> tensor<1024x16xbf16>") //
          DOT("%e", "%d", "%v", "(tensor<1024x16xbf16>, tensor<16x1024xbf16>) -> " H)    //
          "return %e : " H "\n"),
     "dot_general bf16[1024,16] 32", 32},
    {"a mask is kept as bytes, not as what it was compared from",
     MAIN("%x: " A ", %w: " A, A,
          DOT_A("%d", "%x", "%w") "%m = stablehlo.compare GT, %d, %x : (" A ", " A
                                  ") -> tensor<1024x1024xi1>\n"
                                  "%z = stablehlo.constant dense<0.0> : " A
                                  "\n%s = stablehlo.select %m, %x, %z : tensor<1024x1024xi1>, " A
                                  "\n" DOT_A("%e", "%s", "%w") DOT_A("%f", "%e", "%e") //
          "%r = stablehlo.select %m, %f, %z : tensor<1024x1024xi1>, " A "\nreturn %r : " A "\n"),
     "dot_general f32[1024,1024] 4096, compare pred[1024,1024] 1024", 6144},
    {"an array is sorted in place",
     MAIN("%x: " A, A,
          DOT_A("%d", "%x", "%x") "%s = \"stablehlo.sort\"(%d) <{dimension = 1 : i64}> ({\n"
                                  "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
                                  "%l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) "
                                  "-> tensor<i1>\nstablehlo.return %l : tensor<i1>\n}) : (" A
                                  ") -> " A "\n" DOT_A("%e", "%s", "%s") "return %e : " A "\n"),
     "dot_general f32[1024,1024] 4096", 4096},
    {"what nobody uses is not there",
     MAIN("%x: " A, A, DOT_A("%d", "%x", "%x") DOT_A("%e", "%d", "%d") "return %x : " A "\n"), "",
     2048},
};

static void put_live(vt_text *text, const vt_live *live) {
  for (uint32_t i = 0; i < live->count; i++) {
    const vt_live_buffer *b = &live->buffers[i];
    if (b->bytes < 8192) continue; // counters and the like
    vt_text_printf(text, "%s%s %s[", text->size ? ", " : "", vt_op_short_name(b->value->op->code),
                   vt_chip_dtype_name(b->type.dtype));
    for (int32_t d = 0; d < b->type.rank; d++)
      vt_text_printf(text, "%s%lld", d ? "," : "", (long long)b->type.dims[d]);
    vt_text_printf(text, "] %lld", (long long)b->bytes / 1024);
  }
}

static void programs_hold_what_they_must(void **state) {
  (void)state;
  const vt_chip *chip = vt_chip_get(VT_CHIP_V5E);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const row *r = &rows[i];
    vt_module *module;
    vt_status st = vt_import((vt_bytes){(const uint8_t *)r->text, strlen(r->text)}, &module);
    if (st) fail_msg("%s: %s\n%s", r->name, vt_status_message(st), r->text);
    const bool none[8] = {0};
    vt_arena arena = {0};
    vt_text text = {0};
    vt_live live;
    vt_least least;
    vt_chip_live(chip, module->main, none, &arena, &live);
    vt_chip_least(chip, module->main, 1, none, &least);
    put_live(&text, &live);
    if (strcmp(vt_text_string(&text), r->live) != 0)
      fail_msg("%s: \"%s\" is live, not \"%s\"", r->name, vt_text_string(&text), r->live);
    if (least.hbm / 1024 != r->least)
      fail_msg("%s: needs %lld K at least, not %lld", r->name, (long long)least.hbm / 1024,
               (long long)r->least);
    assert_true(live.unpadded <= live.bytes);
    assert_true((double)least.hbm <= vt_chip_least_most(chip, module->main));
    vt_text_free(&text);
    vt_arena_free(&arena);
    vt_module_destroy(module);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(programs_hold_what_they_must),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
