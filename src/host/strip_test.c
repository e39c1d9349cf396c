// SPDX-License-Identifier: Apache-2.0
// strip_test.c - contractions whose results go from the cache into generated code: which ones do,
// and the results against the evaluator's.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/cpu.h"
#include "host/plan.h"
#include "host/steps.h"
#include "host/strip.h"
#include "import/import.h"
#include "ir/number.h"

// `body` computes %r of `result` from the parameters; `joins`: the contraction and what follows are
// one step for one thread or two; there are too few strips for many.
typedef struct row {
  const char *name, *params, *result, *body;
  bool joins;
} row;

#define CONV(to, in, kernel, types, stride, pads)                                                  \
  "%" to " = stablehlo.convolution(%" in ", %" kernel                                              \
  ") dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = " stride            \
  ", pad = " pads "} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : " types "\n"
#define DOT(to, a, b, types)                                                                       \
  "%" to " = stablehlo.dot_general %" a ", %" b ", contracting_dims = [1] x [0] : " types "\n"
#define WIDE(to, from, dims, types)                                                                \
  "%" to " = stablehlo.broadcast_in_dim %" from ", dims = [" dims "] : " types "\n"
#define OP(to, op, a, b, type) "%" to " = stablehlo." op " %" a ", %" b " : " type "\n"
#define ZERO                   "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
#define LOW                    "%low = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"

#define IMAGE "tensor<2x14x14x48xf32>"
static const char normalised[] =
    CONV("s", "x", "w", "(tensor<2x14x14x32xbf16>, tensor<3x3x32x48xbf16>) -> " IMAGE, "[1, 1]",
         "[[1, 1], [1, 1]]") ZERO WIDE("m", "mean", "3", "(tensor<48xf32>) -> " IMAGE)
        WIDE("k", "scale", "3", "(tensor<48xf32>) -> " IMAGE)
            WIDE("z", "zero", "", "(tensor<f32>) -> " IMAGE) OP("a", "subtract", "s", "m", IMAGE)
                OP("b", "multiply", "a", "k", IMAGE) OP("c", "add", "b", "y", IMAGE)
                    OP("r", "maximum", "c", "z", IMAGE);

#define HALF "tensor<3x7x7x64xf32>"
static const char strided[] =
    CONV("s", "x", "w", "(tensor<3x14x13x6xbf16>, tensor<5x3x6x64xbf16>) -> " HALF, "[2, 2]",
         "[[2, 1], [1, 1]]")
        OP("d", "multiply", "s", "s", HALF) "%r = stablehlo.convert %d : (" HALF
                                            ") -> tensor<3x7x7x64xbf16>\n";

// Output 7 x 5: the lines move by two, the columns by three.
#define PART "tensor<2x7x5x48xf32>"
static const char strided_deep[] =
    CONV("s", "x", "w", "(tensor<2x14x13x64xbf16>, tensor<3x4x64x48xbf16>) -> " PART, "[2, 3]",
         "[[1, 0], [2, 1]]") OP("r", "multiply", "s", "s", PART);

static const char picked[] =
    CONV("s", "x", "w", "(tensor<2x14x13x34xbf16>, tensor<1x1x34x48xbf16>) -> " PART, "[2, 3]",
         "[[0, 0], [0, 0]]") OP("r", "add", "s", "y", PART);

#define BEYOND "tensor<2x9x6x48xf32>"
static const char padded[] =
    CONV("s", "x", "w", "(tensor<2x14x13x34xbf16>, tensor<1x1x34x48xbf16>) -> " BEYOND, "[2, 3]",
         "[[0, 4], [0, 3]]") OP("r", "add", "s", "y", BEYOND);

// Of the three images 147 pixels are one matrix, of the one all threads read a copy.
#define PICKS(images, columns) "tensor<" images "x7x7x" columns "xf32>"
#define PICKED(images, columns)                                                                    \
  CONV("s", "x", "w",                                                                              \
       "(tensor<" images "x13x14x64xbf16>, tensor<1x1x64x" columns                                 \
       "xbf16>) -> " PICKS(images, columns),                                                       \
       "[2, 2]", "[[0, 0], [0, 0]]")                                                               \
  OP("r", "add", "s", "y", PICKS(images, columns))
#define PICKED_PARAMS(images, columns)                                                             \
  "%x: tensor<" images "x13x14x64xbf16>, %w: tensor<1x1x64x" columns                               \
  "xbf16>, %y: " PICKS(images, columns)
static const char many_picked[] = PICKED("3", "96"), few_picked[] = PICKED("1", "320");

// Three channels: a line of the window is no whole tile of K.
#define PICTURE "tensor<2x20x19x64xf32>"
static const char picture[] =
    CONV("s", "x", "w", "(tensor<2x40x37x3xbf16>, tensor<7x7x3x64xbf16>) -> " PICTURE, "[2, 2]",
         "[[3, 2], [3, 3]]") OP("r", "add", "s", "y", PICTURE);

#define SOFTMAX(rows, matrix)                                                                      \
  DOT("s", "x", "w", "(tensor<" rows "x40xbf16>, tensor<40x72xbf16>) -> " matrix)                  \
  ZERO LOW                                                                                         \
      "%h = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1] : "  \
      "(" matrix ", tensor<f32>) -> tensor<" rows                                                  \
      "xf32>\n" WIDE("hh", "h", "0", "(tensor<" rows "xf32>) -> " matrix)                          \
          OP("a", "subtract", "s", "hh",                                                           \
             matrix) "%e = stablehlo.exponential %a : " matrix "\n"                                \
                     "%t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across "         \
                     "dimensions = [1] : "                                                         \
                     "(" matrix ", tensor<f32>) -> tensor<" rows                                   \
                     "xf32>\n" WIDE("tt", "t", "0", "(tensor<" rows "xf32>) -> " matrix)           \
                         OP("r", "divide", "e", "tt", matrix)
#define MANY "tensor<5003x72xf32>"
#define FEW  "tensor<200x72xf32>"
static const char softmax[] = SOFTMAX("5003", MANY);
static const char few_softmax[] = SOFTMAX("200", FEW);

#define ODD "tensor<101x37xf32>"
static const char both_used[] =
    DOT("s", "x", "w", "(tensor<101x50xbf16>, tensor<50x37xbf16>) -> " ODD)
        OP("a", "add", "s", "y", ODD) OP("r", "multiply", "a", "s", ODD);

static const char columns_summed[] = DOT("s", "x", "w",
                                         "(tensor<101x50xbf16>, tensor<50x37xbf16>) -> " ODD) ZERO
    OP("a", "add", "s", "y",
       ODD) "%r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : "
            "(" ODD ", tensor<f32>) -> tensor<37xf32>\n";

#define COLUMNS "tensor<501x80xf32>"
#define TOTAL(to, from, dims, types)                                                               \
  "%" to " = stablehlo.reduce(%" from                                                              \
  " init: %zero) applies stablehlo.add across dimensions = [" dims "] : " types "\n"
static const char vectors_summed[] =
    DOT("s", "x", "w", "(tensor<501x50xbf16>, tensor<50x80xbf16>) -> " COLUMNS)
        ZERO OP("a", "multiply", "s", "y", COLUMNS)
            TOTAL("r", "a", "0", "(" COLUMNS ", tensor<f32>) -> tensor<80xf32>");
#define SUMMED "tensor<3x14x14x48xf32>"
static const char image_summed[] =
    CONV("s", "x", "w", "(tensor<3x14x14x32xbf16>, tensor<3x3x32x48xbf16>) -> " SUMMED, "[1, 1]",
         "[[1, 1], [1, 1]]") ZERO OP("a", "multiply", "s", "y", SUMMED)
        TOTAL("r", "a", "0, 1, 2", "(" SUMMED ", tensor<f32>) -> tensor<48xf32>");
static const char centred[] =
    DOT("s", "x", "w", "(tensor<501x50xbf16>, tensor<50x80xbf16>) -> " COLUMNS)
        ZERO TOTAL("t", "s", "0", "(" COLUMNS ", tensor<f32>) -> tensor<80xf32>")
            WIDE("tt", "t", "1", "(tensor<80xf32>) -> " COLUMNS) OP("r", "add", "s", "tt", COLUMNS);

#define SPREAD(dims, column, type, types)                                                          \
  TOTAL("t", "s", dims, "(" type ", tensor<f32>) -> " types)                                       \
  "%by = stablehlo.constant dense<" column "> : " types "\n" OP("m", "multiply", "t", "by", types)
static const char spread[] =
    DOT("s", "x", "w", "(tensor<501x50xbf16>, tensor<50x80xbf16>) -> " COLUMNS)
        ZERO SPREAD("0", "0.001996007984", COLUMNS, "tensor<80xf32>")
            WIDE("mm", "m", "1", "(tensor<80xf32>) -> " COLUMNS)
                OP("d", "subtract", "s", "mm", COLUMNS) OP("q", "multiply", "d", "d", COLUMNS)
                    TOTAL("v", "q", "0", "(" COLUMNS ", tensor<f32>) -> tensor<80xf32>")
                        WIDE("vv", "v", "1", "(tensor<80xf32>) -> " COLUMNS)
                            OP("r", "multiply", "s", "vv", COLUMNS);
static const char image_spread[] =
    CONV("s", "x", "w", "(tensor<3x14x14x32xbf16>, tensor<3x3x32x48xbf16>) -> " SUMMED, "[1, 1]",
         "[[1, 1], [1, 1]]") ZERO SPREAD("0, 1, 2", "0.001700680272", SUMMED, "tensor<48xf32>")
        WIDE("mm", "m", "3", "(tensor<48xf32>) -> " SUMMED) OP("d", "subtract", "s", "mm", SUMMED)
            OP("q", "multiply", "d", "d", SUMMED)
                TOTAL("r", "q", "0, 1, 2", "(" SUMMED ", tensor<f32>) -> tensor<48xf32>");
// Not the mean of these rows.
static const char other_spread[] =
    DOT("s", "x", "w", "(tensor<501x50xbf16>, tensor<50x80xbf16>) -> " COLUMNS)
        ZERO SPREAD("0", "0.0021", COLUMNS, "tensor<80xf32>")
            WIDE("mm", "m", "1", "(tensor<80xf32>) -> " COLUMNS)
                OP("d", "subtract", "s", "mm", COLUMNS) OP("q", "multiply", "d", "d", COLUMNS)
                    TOTAL("r", "q", "0", "(" COLUMNS ", tensor<f32>) -> tensor<80xf32>");

static const char in_place[] = DOT("s", "x", "w",
                                   "(tensor<80x64xbf16>, tensor<64x64xbf16>) -> tensor<80x64xf32>")
    OP("a", "add", "s", "y",
       "tensor<80x64xf32>") "%c = stablehlo.convert %a : (tensor<80x64xf32>) -> "
                            "tensor<80x64xbf16>\n" DOT("u", "c", "w",
                                                       "(tensor<80x64xbf16>, tensor<64x64xbf16>) "
                                                       "-> tensor<80x64xf32>")
                                OP("r", "add", "u", "a", "tensor<80x64xf32>");

#define ITEMS "tensor<4x6x50x128xf32>"
static const char items[] =
    "%s = stablehlo.dot_general %x, %w, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x "
    "[3] : (tensor<4x50x6x24xbf16>, tensor<4x128x6x24xbf16>) -> " ITEMS
    "\n" OP("r", "multiply", "s", "y", ITEMS);

#define SCORES "tensor<2x3x200x128xf32>"
#define VALUES "tensor<2x3x24x200xf32>"
#define ATTENTION(masked, scores, values)                                                          \
  "%s = stablehlo.dot_general %x, %w, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x "  \
  "[3] : (tensor<2x200x3x24xbf16>, tensor<2x128x3x24xbf16>) -> " SCORES "\n" masked                \
  "%e = stablehlo.exponential %" scores " : " SCORES "\n" ZERO                                     \
  "%t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3] : "         \
  "(" SCORES ", tensor<f32>) -> tensor<2x3x200xf32>\n" WIDE("tt", "t", "0, 1, 2",                  \
                                                            "(tensor<2x3x200xf32>) -> " SCORES)    \
      OP("d", "divide", "e", "tt",                                                                 \
         SCORES) "%p = stablehlo.convert %d : (" SCORES ") -> tensor<2x3x200x128xbf16>\n"          \
                 "%u = stablehlo.dot_general %" values ", %p, batching_dims = [0, 2] x [0, 1], "   \
                 "contracting_dims = [1] x "                                                       \
                 "[3] : (tensor<2x128x3x24xbf16>, tensor<2x3x200x128xbf16>) -> " VALUES "\n"       \
                 "%r = stablehlo.transpose %u, dims = [0, 3, 1, 2] : (" VALUES                     \
                 ") -> tensor<2x200x3x24xf32>\n"
// Half of the keys are for the last rows only.
#define MASKED                                                                                     \
  "%i = stablehlo.iota dim = 2 : tensor<2x3x200x128xi32>\n"                                        \
  "%j = stablehlo.iota dim = 3 : tensor<2x3x200x128xi32>\n"                                        \
  "%late = stablehlo.constant dense<150> : tensor<2x3x200x128xi32>\n"                              \
  "%half = stablehlo.constant dense<64> : tensor<2x3x200x128xi32>\n"                               \
  "%a = stablehlo.compare GE, %i, %late : (tensor<2x3x200x128xi32>, tensor<2x3x200x128xi32>) -> "  \
  "tensor<2x3x200x128xi1>\n"                                                                       \
  "%b = stablehlo.compare LT, %j, %half : (tensor<2x3x200x128xi32>, tensor<2x3x200x128xi32>) -> "  \
  "tensor<2x3x200x128xi1>\n"                                                                       \
  "%m = stablehlo.or %a, %b : tensor<2x3x200x128xi1>\n"                                            \
  "%none = stablehlo.constant dense<0xFF800000> : " SCORES "\n"                                    \
  "%k = stablehlo.select %m, %s, %none : tensor<2x3x200x128xi1>, " SCORES "\n"
#define INFINITE                                                                                   \
  "%one = stablehlo.constant dense<1.0> : tensor<2x128x3x24xbf16>\n"                               \
  "%z = stablehlo.divide %one, %v : tensor<2x128x3x24xbf16>\n"
static const char attention[] = ATTENTION("", "s", "v"), masked[] = ATTENTION(MASKED, "k", "v"),
                  infinite[] = INFINITE ATTENTION(MASKED, "k", "z");

// K in several pieces, the left side copied or not, a last piece that is no whole tile.
#define SUM(k, n)                                                                                  \
  DOT("s", "x", "w",                                                                               \
      "(tensor<100x" k "xbf16>, tensor<" k "x" n "xbf16>) -> tensor<100x" n "xf32>")               \
  OP("r", "add", "s", "y", "tensor<100x" n "xf32>")
#define SUM_PARAMS(k, n)                                                                           \
  "%x: tensor<100x" k "xbf16>, %w: tensor<" k "x" n "xbf16>, %y: tensor<100x" n "xf32>"
static const char aligned_sum[] = SUM("2048", "404"), deep_sum[] = SUM("1010", "50"),
                  deeper_sum[] = SUM("5002", "200");

#define DEEP "tensor<2x9x9x70xf32>"
static const char deep_window[] =
    CONV("s", "x", "w", "(tensor<2x9x9x130xbf16>, tensor<3x3x130x70xbf16>) -> " DEEP, "[1, 1]",
         "[[1, 1], [1, 1]]") OP("r", "add", "s", "y", DEEP);

static const char turned[] =
    "%s = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0] : (tensor<20x50x64xbf16>, "
    "tensor<64x48xbf16>) -> tensor<20x50x48xf32>\n%r = stablehlo.transpose %s, dims = [1, 0, 2] : "
    "(tensor<20x50x48xf32>) -> tensor<50x20x48xf32>\n";

// All in bf16: the sums go on unrounded.
#define SMALL "tensor<1x7x7x208xbf16>"
static const char narrow[] =
    CONV("s", "x", "w", "(tensor<1x14x14x32xbf16>, tensor<3x3x32x208xbf16>) -> " SMALL, "[2, 2]",
         "[[1, 1], [1, 1]]") "%zero = stablehlo.constant dense<0.0> : "
                             "tensor<bf16>\n" WIDE("z", "zero", "", "(tensor<bf16>) -> " SMALL)
                                 OP("a", "multiply", "s", "y", SMALL)
                                     OP("r", "maximum", "a", "z", SMALL);

#define PIXELS "tensor<1x20x20x64xbf16>"
static const char narrowing[] =
    CONV("s", "x", "w", "(tensor<1x20x20x128xbf16>, tensor<1x1x128x64xbf16>) -> " PIXELS, "[1, 1]",
         "[[0, 0], [0, 0]]")
        OP("a", "multiply", "s", "y", PIXELS) "%r = stablehlo.negate %a : " PIXELS "\n";

#define HALVES "tensor<300x96xbf16>"
static const char narrow_product[] =
    DOT("s", "x", "w", "(tensor<300x64xbf16>, tensor<64x96xbf16>) -> " HALVES)
        OP("a", "multiply", "s", "y", HALVES) "%r = stablehlo.negate %a : " HALVES "\n";

static const row rows[] = {
    {"rows in another order", "%x: tensor<20x50x64xbf16>, %w: tensor<64x48xbf16>",
     "tensor<50x20x48xf32>", turned, true},
    {"aligned rows", SUM_PARAMS("2048", "404"), "tensor<100x404xf32>", aligned_sum, true},
    {"deep, odd sizes", SUM_PARAMS("1010", "50"), "tensor<100x50xf32>", deep_sum, true},
    {"deep convolution", "%x: tensor<2x9x9x130xbf16>, %w: tensor<3x3x130x70xbf16>, %y: " DEEP, DEEP,
     deep_window, true},
    {"attention",
     "%x: tensor<2x200x3x24xbf16>, %w: tensor<2x128x3x24xbf16>, "
     "%v: tensor<2x128x3x24xbf16>",
     "tensor<2x200x3x24xf32>", attention, true},
    {"attention with a mask",
     "%x: tensor<2x200x3x24xbf16>, %w: tensor<2x128x3x24xbf16>, "
     "%v: tensor<2x128x3x24xbf16>",
     "tensor<2x200x3x24xf32>", masked, true},
    {"convolution, normalised",
     "%x: tensor<2x14x14x32xbf16>, %w: tensor<3x3x32x48xbf16>, "
     "%y: " IMAGE ", %mean: tensor<48xf32>, %scale: tensor<48xf32>",
     IMAGE, normalised, true},
    {"strided convolution, squared", "%x: tensor<3x14x13x6xbf16>, %w: tensor<5x3x6x64xbf16>",
     "tensor<3x7x7x64xbf16>", strided, true},
    {"strided convolution of many channels",
     "%x: tensor<2x14x13x64xbf16>, %w: tensor<3x4x64x48xbf16>", PART, strided_deep, true},
    {"strided convolution of one pixel",
     "%x: tensor<2x14x13x34xbf16>, %w: tensor<1x1x34x48xbf16>, %y: " PART, PART, picked, true},
    {"strided convolution of one pixel, padded",
     "%x: tensor<2x14x13x34xbf16>, %w: tensor<1x1x34x48xbf16>, %y: " BEYOND, BEYOND, padded, true},
    {"pixels of three images", PICKED_PARAMS("3", "96"), PICKS("3", "96"), many_picked, true},
    {"pixels of one image", PICKED_PARAMS("1", "320"), PICKS("1", "320"), few_picked, true},
    {"picture", "%x: tensor<2x40x37x3xbf16>, %w: tensor<7x7x3x64xbf16>, %y: " PICTURE, PICTURE,
     picture, true},
    {"softmax", "%x: tensor<5003x40xbf16>, %w: tensor<40x72xbf16>", MANY, softmax, true},
    {"softmax of few rows", "%x: tensor<200x40xbf16>, %w: tensor<40x72xbf16>", FEW, few_softmax,
     false},
    {"odd sizes", "%x: tensor<101x50xbf16>, %w: tensor<50x37xbf16>, %y: " ODD, ODD, both_used,
     true},
    {"sums of columns", "%x: tensor<101x50xbf16>, %w: tensor<50x37xbf16>, %y: " ODD,
     "tensor<37xf32>", columns_summed, false},
    {"one after the other", "%x: tensor<80x64xbf16>, %w: tensor<64x64xbf16>, %y: tensor<80x64xf32>",
     "tensor<80x64xf32>", in_place, true},
    {"batch", "%x: tensor<4x50x6x24xbf16>, %w: tensor<4x128x6x24xbf16>, %y: " ITEMS, ITEMS, items,
     true},
};

// Only without the matrix unit: what follows adds up over rows.
static const row adding_rows[] = {
    {"sums of whole vectors",
     "%x: tensor<501x50xbf16>, %w: tensor<50x80xbf16>, %y: tensor<501x80xf32>", "tensor<80xf32>",
     vectors_summed, true},
    {"sums of a convolution",
     "%x: tensor<3x14x14x32xbf16>, %w: tensor<3x3x32x48xbf16>, %y: tensor<3x14x14x48xf32>",
     "tensor<48xf32>", image_summed, true},
    {"a result that is summed and read", "%x: tensor<501x50xbf16>, %w: tensor<50x80xbf16>",
     "tensor<501x80xf32>", centred, true},
    {"squares of distances", "%x: tensor<501x50xbf16>, %w: tensor<50x80xbf16>",
     "tensor<501x80xf32>", spread, true},
    {"squares of distances in images", "%x: tensor<3x14x14x32xbf16>, %w: tensor<3x3x32x48xbf16>",
     "tensor<48xf32>", image_spread, true},
    {"squares of other distances", "%x: tensor<501x50xbf16>, %w: tensor<50x80xbf16>",
     "tensor<80xf32>", other_spread, true},
};
static const uint32_t kernels_behind[] = {0, 0, 1, 1, 0, 1};

static vt_program *compile_some(const row *r, bool evaluator, bool all) {
  vt_text text = {0};
  vt_text_printf(&text, "module @m {\nfunc.func @main(%s) -> (%s) {\n%sreturn %%r : %s\n}\n}\n",
                 r->params, r->result, r->body, r->result);
  const char *string = vt_text_string(&text);
  vt_module *module = NULL;
  vt_program *program = NULL;
  vt_host_options options = {
      .device_count = 1, .exact_dots = true, .evaluator_only = evaluator, .compile_all = all};
  vt_pass_options passes = vt_host_passes(true);
  vt_status st = vt_import((vt_bytes){(const uint8_t *)string, strlen(string)}, &module);
  if (!st && !evaluator) st = vt_passes_run(module, &passes);
  if (!st) st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s: %s\n%s", r->name, vt_status_message(st), string);
  vt_text_free(&text);
  return program;
}

static vt_program *compile(const row *r, bool evaluator) {
  return compile_some(r, evaluator, !evaluator);
}

static uint32_t seed; // of fill: each check begins anew

static void fill(void *data, vt_type type) {
  for (int64_t i = 0; i < vt_type_elements(type); i++) {
    seed = seed * 1664525 + 1013904223;
    float value = (float)((int32_t)(seed >> 24) - 128) / 64;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (type.dtype == VT_F32)
      ((float *)data)[i] = value;
    else
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
  }
}

static float element(const void *data, vt_dtype dtype, int64_t i) {
  float value;
  uint32_t bits = dtype == VT_BF16 ? (uint32_t)((const uint16_t *)data)[i] << 16 : 0;
  memcpy(&value, dtype == VT_BF16 ? (const void *)&bits : (const float *)data + i, 4);
  return value;
}

static void run(vt_program *program, void **params, void *result) {
  vt_status st = vt_program_run(program, &(vt_run){.params = params, .results = &result});
  if (st) fail_msg("%s", vt_status_message(st));
}

static uint32_t kernels_of(const vt_program *program) {
  uint32_t count = 0;
  for (uint32_t s = 0; s < program->plan->step_count; s++)
    count += vt_step_group(&program->plan->steps[s]) != NULL;
  return count;
}

static void check(const row *r, bool joins, uint32_t behind) {
  enum { MOST = 8, UNEVEN = 5 };
  int threads = omp_get_max_threads();
  if (threads > 2) omp_set_num_threads(2);
  vt_program *fast = compile(r, false), *plain = compile(r, true);
  omp_set_num_threads(threads);
  const vt_func *func = vt_program_module(plain)->main;
  vt_type type = func->returns[0]->type;
  int64_t bytes = vt_type_bytes(type);
  void *params[MOST], *want = vt_host_alloc(bytes), *got[2];
  seed = 1;
  for (uint32_t i = 0; i < func->param_count; i++) {
    params[i] = vt_host_alloc(vt_type_bytes(func->params[i]->type));
    fill(params[i], func->params[i]->type);
  }
  run(plain, params, want);
  for (int t = 0; t < 2; t++) {
    omp_set_num_threads(!t ? 1 : threads > UNEVEN ? threads : UNEVEN);
    got[t] = vt_host_alloc(bytes);
    memset(got[t], 0xff, (size_t)bytes);
    vt_program *again = compile(r, false); // blocks depend on the number of threads, bits do not
    run(again, params, got[t]);
    vt_program_destroy(again);
  }
  omp_set_num_threads(threads);
  if (memcmp(got[0], got[1], (size_t)bytes)) fail_msg("%s: threads change the result", r->name);
  for (int64_t i = 0; i < vt_type_elements(type); i++) {
    float a = element(want, type.dtype, i), b = element(got[0], type.dtype, i);
    // Sums of hundreds of rows, large ones of both signs, depend on their order.
    float close = type.dtype == VT_BF16 ? 0.01f : type.rank == 1 ? 1e-4f : 1e-5f;
    if (a == b || (isnan(a) && isnan(b))) continue;
    if (!(fabsf(a - b) <= close * (1 + fabsf(a))))
      fail_msg("%s: %lld: %g %g", r->name, (long long)i, a, b);
  }
  if (vt_host_fast_bf16() && joins != (kernels_of(fast) == behind))
    fail_msg("%s: %u kernels of their own", r->name, kernels_of(fast));
  for (uint32_t i = 0; i < func->param_count; i++) vt_host_free(params[i]);
  vt_host_free(want), vt_host_free(got[0]), vt_host_free(got[1]);
  vt_program_destroy(fast);
  vt_program_destroy(plain);
}

static void rows_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&rows[i], rows[i].joins, 0);
  bool joins = !vt_host_has_amx();
  for (size_t i = 0; i < sizeof adding_rows / sizeof *adding_rows; i++)
    check(&adding_rows[i], joins, kernels_behind[i]);
}

static void deep_products_are_cut_along_k(void **state) {
  (void)state;
  static const row deeper = {"deeper", SUM_PARAMS("5002", "200"), "tensor<100x200xf32>", deeper_sum,
                             true};
  check(&deeper, true, 0);
  if (!vt_host_fast_bf16() || vt_host_has_amx()) skip();
  for (int k = 1024; k <= 8192; k *= 2) {
    vt_strip strip = {.m = 2048, .n = 512, .k = k, .lhs_row = k, .rhs_row = 512, .rhs_column = 1};
    assert_true(vt_strip_prepare(&strip));
    assert_int_equal(strip.piece, k < 4096 ? 0 : 2048);
    // Otherwise all rows are read again for each block.
    if (strip.piece && strip.threads <= 4) assert_int_equal(strip.block_n, strip.n);
  }
}

// Zero times what is infinite is no number, also where a mask makes it zero.
static void what_is_masked_is_multiplied(void **state) {
  (void)state;
  static const row infinite_row = {"attention to infinite values",
                                   "%x: tensor<2x200x3x24xbf16>, %w: tensor<2x128x3x24xbf16>, "
                                   "%v: tensor<2x128x3x24xbf16>",
                                   "tensor<2x200x3x24xf32>", infinite, true};
  check(&infinite_row, true, 1);
}

#define HEADS  "tensor<2x128x3x64xbf16>"
#define CHANCE "tensor<2x3x128x128xf32>"
static const char short_attention[] =
    "%s = stablehlo.dot_general %x, %w, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x "
    "[3] : (" HEADS ", " HEADS ") -> " CHANCE "\n%e = stablehlo.exponential %s : " CHANCE "\n"
    "%p = stablehlo.convert %e : (" CHANCE ") -> tensor<2x3x128x128xbf16>\n"
    "%r = stablehlo.dot_general %p, %v, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x "
    "[1] : (tensor<2x3x128x128xbf16>, " HEADS ") -> tensor<2x3x128x64xf32>\n";
static const char short_scores[] =
    "%s = stablehlo.dot_general %x, %w, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x "
    "[3] : (" HEADS ", " HEADS ") -> " CHANCE "\n%r = stablehlo.exponential %s : " CHANCE "\n";

// A product of few rows with a right side of each item's own is in strips only with another.
static void short_attention_is_joined(void **state) {
  (void)state;
  if (!vt_host_fast_bf16() || vt_host_has_amx()) skip();
  static const row both = {"both", "%x: " HEADS ", %w: " HEADS ", %v: " HEADS,
                           "tensor<2x3x128x64xf32>", short_attention, true},
                   one = {"one", "%x: " HEADS ", %w: " HEADS, CHANCE, short_scores, true};
  int threads = omp_get_max_threads();
  if (threads > 2) omp_set_num_threads(2);
  vt_program *joined = compile_some(&both, false, false), *alone = compile_some(&one, false, false);
  omp_set_num_threads(threads);
  assert_int_equal(joined->plan->step_count, 1);
  assert_true(vt_step_is_strip(&joined->plan->steps[0]));
  assert_int_equal(alone->plan->step_count, 2);
  assert_false(vt_step_is_strip(&alone->plan->steps[0]));
  vt_program_destroy(joined), vt_program_destroy(alone);
}

static void sums_go_on_from_bf16(void **state) {
  (void)state;
  static const row narrow_rows[] = {
      {"small image in bf16",
       "%x: tensor<1x14x14x32xbf16>, %w: tensor<3x3x32x208xbf16>, %y: " SMALL, SMALL, narrow, true},
      {"fewer channels in bf16",
       "%x: tensor<1x20x20x128xbf16>, %w: tensor<1x1x128x64xbf16>, %y: " PIXELS, PIXELS, narrowing,
       true},
      {"product in bf16", "%x: tensor<300x64xbf16>, %w: tensor<64x96xbf16>, %y: " HALVES, HALVES,
       narrow_product, true},
  };
  for (size_t i = 0; i < sizeof narrow_rows / sizeof *narrow_rows; i++)
    check(&narrow_rows[i], true, 0);
}

static void few_rows_have_columns_of_their_own(void **state) {
  (void)state;
  if (!vt_host_fast_bf16() || vt_host_has_amx() || omp_get_max_threads() > 4) skip();
  static const int64_t sizes[] = {8, 48, 64, 512, 1024};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t m = sizes[i];
    vt_strip strip = {.m = m, .n = 512, .k = 256, .lhs_row = 256, .rhs_row = 512, .rhs_column = 1};
    assert_true(vt_strip_prepare(&strip));
    assert_int_equal(strip.alone, m < 1024);
    // A right side is laid out for few rows only where it stays so.
    assert_int_equal(vt_strip_pays(&strip, true), m >= 16);
    assert_int_equal(vt_strip_pays(&strip, false), m >= 256);
    if (!strip.alone) continue;
    assert_int_equal(strip.block_m, m);
    assert_int_equal(strip.n / strip.block_n % strip.threads, 0);
  }
}

// An infinite number in a pixel reaches the windows that it is in and no others.
static void pixels_of_three_channels_stay_apart(void **state) {
  (void)state;
  enum { H = 9, W = 10, C = 3, K = 7, N = 64, OH = 5, OW = 5, PAD = 3 };
  if (!vt_host_fast_bf16() || vt_host_has_amx()) skip(); // its sums do not lie densely
  vt_strip strip = {.batch_rank = 1,
                    .batch_sizes = {1},
                    .m = OH * OW,
                    .n = N,
                    .k = K * K * C,
                    .rhs_row = N,
                    .rhs_column = 1,
                    .windowed = true,
                    .window = {.channels = C,
                               .input = {H, W},
                               .output = {OH, OW},
                               .kernel = {K, K},
                               .stride = {2, 2},
                               .dilation = {1, 1},
                               .low = {PAD, PAD},
                               .input_strides = {W * C, C},
                               .rhs_taps = {K * C * N, C * N}}};
  assert_true(vt_strip_prepare(&strip));
  static const int64_t image_dims[] = {H * W * C}, kernel_dims[] = {K * K * C * N};
  vt_type image = {.dtype = VT_BF16, .rank = 1, .dims = image_dims};
  vt_type kernel = {.dtype = VT_BF16, .rank = 1, .dims = kernel_dims};
  uint16_t *x = vt_host_alloc(vt_type_bytes(image)), *w = vt_host_alloc(vt_type_bytes(kernel));
  float *got = vt_host_alloc(sizeof *got * OH * OW * N);
  fill(x, image), fill(w, kernel);
  enum { AT = 4 * W + 6 };
  x[AT * C] = 0x7f80; // the first channel, which lies behind the last of the pixel before
  void *laid = vt_host_alloc(strip.rhs_bytes), *scratch = vt_host_alloc(strip.scratch_bytes);
  vt_strip_multiply(&(vt_strip_run){.strip = &strip,
                                    .lhs = x,
                                    .rhs = w,
                                    .laid = laid,
                                    .lay = true,
                                    .result = got,
                                    .scratch = scratch});
  for (int64_t i = 0; i < OH * OW * N; i++) {
    int64_t top = i / N / OW * 2 - PAD, left = i / N % OW * 2 - PAD;
    bool inside = AT / W >= top && AT / W < top + K && AT % W >= left && AT % W < left + K;
    double want = 0;
    for (int64_t k = 0; k < K * K * C && !inside; k++) {
      int64_t line = top + k / (K * C), column = left + k / C % K;
      if (line < 0 || line >= H || column < 0 || column >= W) continue;
      want +=
          element(x, VT_BF16, (line * W + column) * C + k % C) * element(w, VT_BF16, k * N + i % N);
    }
    if (inside == isfinite(got[i]) || (!inside && fabs(want - got[i]) > 1e-3))
      fail_msg("%lld: %g %g", (long long)i, want, got[i]);
  }
  vt_host_free(x), vt_host_free(w), vt_host_free(got), vt_host_free(laid), vt_host_free(scratch);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_right),
                                     cmocka_unit_test(deep_products_are_cut_along_k),
                                     cmocka_unit_test(what_is_masked_is_multiplied),
                                     cmocka_unit_test(short_attention_is_joined),
                                     cmocka_unit_test(sums_go_on_from_bf16),
                                     cmocka_unit_test(few_rows_have_columns_of_their_own),
                                     cmocka_unit_test(pixels_of_three_channels_stay_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
