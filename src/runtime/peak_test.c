// SPDX-License-Identifier: Apache-2.0
// peak_test.c - HBM of one device at its peak, worked out by hand for small programs, and the
// arithmetic of messages that real TPUs have printed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/predict.h"
#include "runtime/runtime_internal.h"

// ---- programs -----------------------------------------------------------------------------------

#define A "tensor<1024x1024xf32>"  // 4 MiB
#define B "tensor<1024x4096xf32>"  // 16 MiB
#define C "tensor<4096x1024xf32>"  // 16 MiB
#define H "tensor<1024x1024xbf16>" // 2 MiB
#define MAIN(params, result, body)                                                                 \
  "module { func.func public @main(" params ") -> (" result ") {\n" body "} }\n"
#define ON_4(params, result, body)                                                                 \
  "module attributes {mhlo.num_partitions = 4 : i32} { func.func public @main(" params             \
  ") -> (" result ") {\n" body "} }\n"
#define ROWS    " {mhlo.sharding = \"{devices=[4,1]<=[4]}\"}"
#define COLUMNS " {mhlo.sharding = \"{devices=[1,4]<=[4]}\"}"
#define WHOLE   " {mhlo.sharding = \"{replicated}\"}"
#define DOT(name, a, b, types)                                                                     \
  name " = stablehlo.dot_general " a ", " b ", contracting_dims = [1] x [0] : " types "\n"
#define DOT_A(name, a, b)    DOT(name, a, b, "(" A ", " A ") -> " A)
#define TANH(name, a, type)  name " = stablehlo.tanh " a " : " type "\n"
#define ADD(name, a, b)      name " = stablehlo.add " a ", " b " : " A "\n"
#define RETURN(values, type) "return " values " : " type "\n"
#define COUNTER                                                                                    \
  "%zero = stablehlo.constant dense<0> : tensor<i32>\n"                                            \
  "%one = stablehlo.constant dense<1> : tensor<i32>\n"                                             \
  "%limit = stablehlo.constant dense<8> : tensor<i32>\n"
#define LOOP(types)                                                                                \
  " : tensor<i32>, " types "\ncond {\n"                                                            \
  "%go = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"            \
  "stablehlo.return %go : tensor<i1>\n} do {\n%next = stablehlo.add %i, %one : tensor<i32>\n"

enum { KIB = 1024, MIB = 1024 * 1024, SCALAR = 512 }; // a scalar takes a tile of 128 words

// On v5e: tiles of 8 x 128 words of 32 bits; one-dimensional arrays in 128s, up to 1024.
static const struct {
  const char *name, *text;
  int64_t peak;
} programs[] = {
    {"argument and result", MAIN("%x: " A, A, TANH("%y", "%x", A) RETURN("%y", A)),
     4 * MIB + 4 * MIB},
    {"a donated argument is the result",
     MAIN("%x: " A " {tf.aliasing_output = 0 : i32}", A, TANH("%y", "%x", A) RETURN("%y", A)),
     4 * MIB},
    {"two scalars",
     MAIN("%x: tensor<f32>", "tensor<f32>",
          TANH("%y", "%x", "tensor<f32>") RETURN("%y", "tensor<f32>")),
     SCALAR + SCALAR},
    // {0,1}: 100 is filled up to 104 rows, 1000 to 1024 lanes; {1,0} would be 1000 rows of 128.
    {"the order with least padding",
     MAIN("%x: tensor<1000x100xf32>", "tensor<1000x100xf32>",
          TANH("%y", "%x", "tensor<1000x100xf32>") RETURN("%y", "tensor<1000x100xf32>")),
     2 * 104 * 1024 * 4},
    // 5000 words in tiles of 1024: 5120.
    {"a line",
     MAIN("%x: tensor<5000xf32>", "tensor<5000xf32>",
          TANH("%y", "%x", "tensor<5000xf32>") RETURN("%y", "tensor<5000xf32>")),
     2 * 5120 * 4},
    // s8 packs four rows into a word: tiles of 8 x 128 x 4.
    {"bytes",
     MAIN(
         "%x: tensor<1024x1024xi8>", "tensor<1024x1024xi8>",
         "%y = stablehlo.add %x, %x : tensor<1024x1024xi8>\n" RETURN("%y", "tensor<1024x1024xi8>")),
     MIB + MIB},
    // One product lies between the two: 4 + 4 + 4.
    {"two products",
     MAIN("%x: " A, A,
          DOT_A("%d", "%x", "%x") TANH("%t", "%d", A) DOT_A("%e", "%t", "%x") RETURN("%e", A)),
     (4 + 4 + 4) * MIB},
    // The first product is stored in bf16, as the second takes it: 4 + 2 + 4 + 2.
    {"a product in the form of its reader",
     MAIN("%x: " A ", %w: " H, A,
          DOT_A("%d", "%x", "%x") "%h = stablehlo.convert %d : (" A ") -> " H "\n" //
          DOT("%e", "%h", "%w", "(" H ", " H ") -> " A) RETURN("%e", A)),
     (4 + 2 + 4 + 2) * MIB},
    // x, w1, w2: 4 + 16 + 16; the hidden layer 16; the result 4.
    {"two layers",
     MAIN("%x: " A ", %w: " B ", %v: " C, A,
          DOT("%h", "%x", "%w", "(" A ", " B ") -> " B) TANH("%t", "%h", B) //
          DOT("%y", "%t", "%v", "(" B ", " C ") -> " A) RETURN("%y", A)),
     (4 + 16 + 16 + 16 + 4) * MIB},
    // Forward as above, without its result; then the gradient of the hidden layer (16) beside the
    // hidden layer (16), from which tanh is made again; gradients of both weights are results.
    {"two layers and their gradients",
     MAIN("%x: " A ", %w: " B ", %v: " C ", %g: " A, B ", " C,
          DOT("%h", "%x", "%w", "(" A ", " B ") -> " B) TANH("%t", "%h", B) //
          "%a = stablehlo.dot_general %g, %v, contracting_dims = [1] x [1] : (" A ", " C ") -> " B
          "\n"                                                                               //
          "%q = stablehlo.multiply %t, %t : " B "\n%r = stablehlo.multiply %a, %q : " B "\n" //
          "%k = stablehlo.dot_general %x, %r, contracting_dims = [0] x [0] : (" A ", " B ") -> " B
          "\n" //
          "%l = stablehlo.dot_general %t, %g, contracting_dims = [0] x [0] : (" B ", " A ") -> " C
          "\n" //
          RETURN("%k, %l", B ", " C)),
     (4 + 16 + 16 + 4 + 16 + 16 + 16 + 16) * MIB},
    // Adam: weights and two moments are donated, the gradient is not.
    {"an optimiser in place",
     MAIN("%p: " A " {tf.aliasing_output = 0 : i32}, %m: " A
          " {tf.aliasing_output = 1 : i32}, %v: " A " {tf.aliasing_output = 2 : i32}, %g: " A,
          A ", " A ", " A,
          ADD("%n", "%m", "%g") "%s = stablehlo.multiply %g, %g : " A "\n" ADD("%w", "%v", "%s") //
          ADD("%q", "%p", "%n") RETURN("%q, %n, %w", A ", " A ", " A)),
     (4 + 4 + 4 + 4) * MIB},
    {"two arrays in one",
     MAIN("%x: " A ", %y: " A, "tensor<2048x1024xf32>",
          "%z = stablehlo.concatenate %x, %y, dim = 0 : (" A ", " A
          ") -> tensor<2048x1024xf32>\n" RETURN("%z", "tensor<2048x1024xf32>")),
     (4 + 4 + 8) * MIB},
    // The rows' sums: 1024 words.
    {"sums of rows",
     MAIN("%x: " A, "tensor<1024xf32>",
          "%f = stablehlo.constant dense<0.0> : tensor<f32>\n%s = stablehlo.reduce(%x init: %f) "
          "applies "
          "stablehlo.add across dimensions = [1] : (" A
          ", tensor<f32>) -> tensor<1024xf32>\n" RETURN("%s", "tensor<1024xf32>")),
     4 * MIB + 4 * KIB},
    // 50304 rows of 1024 in bf16 are 98.25 MiB; 1024 numbers; 1024 rows.
    {"rows of a table",
     MAIN("%t: tensor<50304x1024xbf16>, %i: tensor<1024x1xi32>", H,
          "%r = \"stablehlo.gather\"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = "
          "[1], "
          "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = "
          "array<i64: 1, 1024>}> : (tensor<50304x1024xbf16>, tensor<1024x1xi32>) -> " H
          "\n" RETURN("%r", H)),
     50304 * 1024 * 2 + 4 * KIB + 2 * MIB},
    // Images and results 8 MiB each, 9 x 256 x 256 weights.
    {"a convolution",
     MAIN("%x: tensor<8x32x32x256xf32>, %w: tensor<3x3x256x256xf32>", "tensor<8x32x32x256xf32>",
          "%y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, "
          "f], window = "
          "{pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
          "(tensor<8x32x32x256xf32>, tensor<3x3x256x256xf32>) -> tensor<8x32x32x256xf32>\n" RETURN(
              "%y", "tensor<8x32x32x256xf32>")),
     8 * MIB + 9 * 256 * 256 * 4 + 8 * MIB},
    // The loop carries the result (4) and a counter, and makes the next (4) from x and w.
    {"a loop over one array",
     MAIN("%x: " A ", %w: " A, A,
          COUNTER "%r:2 = stablehlo.while(%i = %zero, %c = %x)" LOOP(A) //
          DOT_A("%d", "%c", "%w") "stablehlo.return %next, %d : tensor<i32>, " A
                                  "\n}\n" RETURN("%r#1", A)),
     (4 + 4 + 4 + 4) * MIB + SCALAR},
    // Each branch has products of its own; the larger one holds two at once.
    {"a choice",
     MAIN("%x: " A ", %p: tensor<i1>", A,
          "%r = \"stablehlo.if\"(%p) ({\n" DOT_A("%a", "%x", "%x") DOT_A("%b", "%a", "%a") //
          DOT_A("%c", "%b", "%a") "stablehlo.return %c : " A "\n}, {\n" DOT_A(
              "%d", "%x", "%x") "stablehlo.return %d : " A "\n}) : (tensor<i1>) -> " A
                                "\n" RETURN("%r", A)),
     (4 + 4 + 4 + 4) * MIB + SCALAR},
    // Four devices: 1024 of 4096 rows each, the weights whole.
    {"a batch on four devices",
     ON_4("%x: " C ROWS ", %w: " A WHOLE, C ROWS,
          DOT("%y", "%x", "%w", "(" C ", " A ") -> " C) RETURN("%y", C)),
     (4 + 4 + 4) * MIB},
    // Each device has a quarter of the depth and sums its product with the others'.
    {"a depth on four devices",
     ON_4("%x: " B COLUMNS ", %w: " C ROWS, A WHOLE,
          DOT("%y", "%x", "%w", "(" B ", " C ") -> " A) RETURN("%y", A)),
     (4 + 4 + 4) * MIB},
    // Each device makes a quarter of the hidden layer (4) and of the sums; the result is whole.
    {"two layers on four devices",
     ON_4("%x: " A WHOLE ", %w: " B COLUMNS ", %v: " C ROWS, A WHOLE,
          DOT("%h", "%x", "%w", "(" A ", " B ") -> " B) TANH("%t", "%h", B) //
          DOT("%y", "%t", "%v", "(" B ", " C ") -> " A) RETURN("%y", A)),
     (4 + 4 + 4 + 4 + 4) * MIB},
};

static void peaks_are_those_worked_out_by_hand(void **state) {
  (void)state;
  vt_slice slice;
  assert_null(vt_slice_from_name("v5litepod-4", &slice));
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    vt_arena arena = {0};
    vt_prediction p;
    const char *text = programs[i].text;
    vt_status st = vt_predict((vt_bytes){(const uint8_t *)text, strlen(text)}, &slice, &arena, &p);
    if (st) fail_msg("%s: %s\n%s", programs[i].name, vt_status_message(st), text);
    if (p.hbm_peak_bytes != programs[i].peak)
      fail_msg("%s: %lld bytes, not %lld", programs[i].name, (long long)p.hbm_peak_bytes,
               (long long)programs[i].peak);
    vt_prediction_free(&p);
    vt_arena_free(&arena);
  }
}

// ---- messages of real TPUs ----------------------------------------------------------------------

// Allocations as such messages list them. Source: the issue that quotes it.
static const struct {
  const char *source;
  vt_dtype dtype;
  int32_t rank;
  int64_t dims[5];
  const char *layout, *shape, *size, *unpadded, *padding; // padding: "" = none
} published[] = {
    {"flowpm 27",
     VT_S32,
     3,
     {8388608, 8, 4},
     "{2,1,0}",
     "s32[8388608,8,4]{2,1,0:T(8,128)}",
     "32.00G",
     "1.00G",
     "31.00G (32.0x expansion)"},
    {"pytorch/xla 1965",
     VT_BF16,
     3,
     {512, 16, 3072},
     "{2,1,0}",
     "bf16[512,16,3072]{2,1,0:T(8,128)(2,1)}",
     "48.00M",
     "48.00M",
     ""},
    {"pytorch/xla 1965",
     VT_U32,
     2,
     {12582912, 1},
     "{1,0}",
     "u32[12582912,1]{1,0:T(8,128)}",
     "6.00G",
     "48.00M",
     "5.95G (128.0x expansion)"},
    {"pytorch/xla 3041",
     VT_F32,
     3,
     {29184, 2, 2560},
     "{2,1,0}",
     "f32[29184,2,2560]{2,1,0:T(2,128)}",
     "570.00M",
     "570.00M",
     ""},
    {"pytorch/xla 3041",
     VT_F32,
     3,
     {29184, 1, 2560},
     "{2,1,0}",
     "f32[29184,1,2560]{2,1,0:T(2,128)}",
     "570.00M",
     "285.00M",
     "285.00M (2.0x expansion)"},
    {"jax 7502",
     VT_S32,
     5,
     {2048, 1, 128, 128, 4},
     "{4,3,2,0,1}",
     "s32[2048,1,128,128,4]{4,3,2,0,1:T(8,128)}",
     "16.00G",
     "512.00M",
     "15.50G (32.0x expansion)"},
    {"pytorch/xla 6674",
     VT_BF16,
     4,
     {2048, 1, 2048, 128},
     "{0,1,3,2}",
     "bf16[2048,1,2048,128]{0,1,3,2:T(4,128)(2,1)}",
     "4.00G",
     "1.00G",
     "3.00G (4.0x expansion)"},
    {"ColabFold 62",
     VT_F32,
     3,
     {1024, 245, 64},
     "{1,2,0}",
     "f32[1024,245,64]{1,2,0:T(8,128)}",
     "64.00M",
     "61.25M",
     "2.75M (1.0x expansion)"},
    {"a log of TF's detection",
     VT_F32,
     5,
     {4, 128, 128, 9, 18},
     "{4,3,0,2,1}",
     "f32[4,128,128,9,18]{4,3,0,2,1:T(8,128)}",
     "512.00M",
     "40.50M",
     "471.50M (12.6x expansion)"},
    {"a log of TF's detection",
     VT_BF16,
     4,
     {4, 512, 512, 64},
     "{3,0,2,1}",
     "bf16[4,512,512,64]{3,0,2,1:T(4,128)(2,1)}",
     "256.00M",
     "128.00M",
     "128.00M (2.0x expansion)"},
    {"a log of TF's detection",
     VT_F32,
     4,
     {4, 256, 256, 64},
     "{3,0,2,1}",
     "f32[4,256,256,64]{3,0,2,1:T(4,128)}",
     "128.00M",
     "64.00M",
     "64.00M (2.0x expansion)"},
    {"a log of TF's detection",
     VT_BF16,
     4,
     {4, 256, 256, 256},
     "{3,0,2,1}",
     "bf16[4,256,256,256]{3,0,2,1:T(4,128)(2,1)}",
     "128.00M",
     "128.00M",
     ""},
    {"a one-hot loss",
     VT_S32,
     2,
     {29360128, 10},
     "{1,0}",
     "s32[29360128,10]{1,0:T(8,128)}",
     "14.00G",
     "1.09G",
     "12.91G (12.8x expansion)"},
    {"a one-hot loss",
     VT_F32,
     4,
     {128, 256, 896, 18},
     "{0,3,2,1}",
     "f32[128,256,896,18]{0,3,2,1:T(8,128)}",
     "2.62G",
     "1.97G",
     "672.00M (1.3x expansion)"},
    {"EasyDeL 166",
     VT_F32,
     3,
     {32, 4096, 4096},
     "{1,2,0}",
     "f32[32,4096,4096]{1,2,0:T(8,128)}",
     "2.00G",
     "2.00G",
     ""},
    {"EasyDeL 142",
     VT_BF16,
     2,
     {256000, 3072},
     "{1,0}",
     "bf16[256000,3072]{1,0:T(8,128)(2,1)}",
     "1.46G",
     "1.46G",
     ""},
    {"ctrl 38",
     VT_F32,
     2,
     {246534, 1280},
     "{1,0}",
     "f32[246534,1280]{1,0:T(8,128)}",
     "1.17G",
     "1.17G",
     "10.0K (1.0x expansion)"},
};

static void messages_of_real_tpus_are_reproduced(void **state) {
  (void)state;
  const vt_chip *v3 = vt_chip_get(VT_CHIP_V3);
  for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
    vt_type type = {published[i].dtype, published[i].rank, published[i].dims};
    vt_hbm_entry entry = {.type = type, .kind = "HLO temp", .layout = published[i].layout};
    int32_t order[5];
    assert_true(vt_layout_read(published[i].layout, type.rank, order));
    entry.bytes = vt_chip_padded_bytes(v3, type, order);
    vt_text text = {0}, want = {0};
    vt_hbm_put_entry(&text, v3, 1, &entry);
    vt_text_printf(&want, "\n  1. Size: %s\n     Shape: %s\n     Unpadded size: %s",
                   published[i].size, published[i].shape, published[i].unpadded);
    if (*published[i].padding)
      vt_text_printf(&want, "\n     Extra memory due to padding: %s", published[i].padding);
    vt_text_put(&want, "\n     Allocation type: HLO temp");
    if (strncmp(vt_text_string(&text), vt_text_string(&want), want.size) != 0)
      fail_msg("%s:%s\nand not:%s", published[i].source, vt_text_string(&text),
               vt_text_string(&want));
    vt_text_free(&text);
    vt_text_free(&want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peaks_are_those_worked_out_by_hand),
      cmocka_unit_test(messages_of_real_tpus_are_reproduced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
