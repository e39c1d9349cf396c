// SPDX-License-Identifier: Apache-2.0
// time_test.c - the time model: limits, steps and orders that any chip keeps to.
#include "chip/time_test.h"

static uint64_t state = 1;
static int64_t random_below(int64_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)limit);
}

static const char *product(int64_t m, int64_t k, int64_t n, const char *type) {
  static char text[1024];
  char a[64], b[64], c[64];
  snprintf(a, sizeof a, "tensor<%lldx%lldx%s>", (long long)m, (long long)k, type);
  snprintf(b, sizeof b, "tensor<%lldx%lldx%s>", (long long)k, (long long)n, type);
  snprintf(c, sizeof c, "tensor<%lldx%lldx%s>", (long long)m, (long long)n, type);
  snprintf(text, sizeof text,
           "module { func.func public @main(%%a: %s, %%b: %s) -> %s {\n"
           "%%c = stablehlo.dot_general %%a, %%b, contracting_dims = [1] x [0] : (%s, %s) -> %s\n"
           "return %%c : %s } }\n",
           a, b, c, a, b, c, c);
  return text;
}

// `ops` steps of `op` in a row on an array.
static const char *chain(int64_t rows, int64_t columns, const char *type, const char *op, int ops) {
  static char text[65536];
  char a[64];
  snprintf(a, sizeof a, "tensor<%lldx%lldx%s>", (long long)rows, (long long)columns, type);
  int at = snprintf(text, sizeof text, "module { func.func public @main(%%v0: %s) -> %s {\n", a, a);
  for (int i = 0; i < ops; i++)
    at += snprintf(text + at, sizeof text - (size_t)at, "%%v%d = stablehlo.%s %%v%d : %s\n", i + 1,
                   op, i, a);
  snprintf(text + at, sizeof text - (size_t)at, "return %%v%d : %s } }\n", ops, a);
  return text;
}

static void more_work_is_never_faster(void **unused) {
  (void)unused;
  for (int i = 0; i < 400; i++) {
    const char *slice = slices[random_below(SLICES)];
    int64_t m = 1 + random_below(6000), k = 1 + random_below(6000), n = 1 + random_below(6000);
    int64_t more = 1 + random_below(3000), which = random_below(3);
    if (m == 1 || n == 1) continue; // one row is another algorithm
    double less = seconds_on(slice, product(m, k, n, "bf16"));
    double now = seconds_on(slice, product(m + (which == 0 ? more : 0), k + (which == 1 ? more : 0),
                                           n + (which == 2 ? more : 0), "bf16"));
    // Where the operands just cease to fit into VMEM, padding makes steps of a few percent.
    if (now < less * 0.96)
      fail_msg("%s: %lldx%lldx%lld %g s, more along %lld %g s", slice, (long long)m, (long long)k,
               (long long)n, less, (long long)which, now);
    int64_t rows = 1 + random_below(5000), columns = 1 + random_below(5000);
    less = seconds_on(slice, chain(rows, columns, "f32", "exponential", 1));
    now = seconds_on(slice, chain(rows + more, columns, "f32", "exponential", 1));
    assert_true(now >= less * 0.9999);
    now = seconds_on(slice, chain(rows, columns, "f32", "exponential", 2));
    assert_true(now >= less * 0.9999);
  }
}

static void a_better_chip_is_never_slower(void **unused) {
  (void)unused;
  for (int i = 0; i < 200; i++) {
    vt_slice slice = slice_of(slices[random_below(SLICES)]);
    vt_chip better = *slice.chip;
    const char *text = random_below(2) ? product(8 + random_below(5000), 8 + random_below(5000),
                                                 8 + random_below(5000), "bf16")
                                       : chain(1 + random_below(5000), 1 + random_below(5000),
                                               "bf16", "tanh", 1 + (int)random_below(20));
    double before = time_on(&slice, 1, text).seconds;
    switch (random_below(4)) {
    case 0:
      better.hbm_bytes_per_s *= 2;
      break;
    case 1:
      better.bf16_flops_per_s *= 2;
      break;
    case 2:
      better.clock_hz *= 2;
      break;
    default:
      better.clock_hz *= 1.5, better.bf16_flops_per_s *= 1.5, better.hbm_bytes_per_s *= 1.5;
    }
    slice.chip = &better;
    assert_true(time_on(&slice, 1, text).seconds <= before * 1.0001);
  }
}

// A random program of several operators on square arrays, on eight devices.
static const char *random_program(uint64_t seed, int64_t size, const char *type) {
  static char text[1 << 16];
  char a[64], row[64], scalar[32];
  snprintf(a, sizeof a, "tensor<%lldx%lldx%s>", (long long)size, (long long)size, type);
  snprintf(row, sizeof row, "tensor<%lldx%s>", (long long)size, type);
  snprintf(scalar, sizeof scalar, "tensor<%s>", type);
  state = seed;
  int at = snprintf(text, sizeof text,
                    "module { func.func public @main(%%v0: %s, %%v1: %s) -> %s {\n"
                    "%%f = stablehlo.constant dense<0.0> : %s\n",
                    a, a, a, scalar);
  int last = 1, count = 2 + (int)random_below(12);
  for (int i = 0; i < count; i++, last++) {
    int x = (int)random_below(last + 1), y = last, z = last + 1;
    char *to = text + at;
    size_t room = sizeof text - (size_t)at;
    switch (random_below(8)) {
    case 0:
    case 1:
      at += snprintf(to, room,
                     "%%v%d = stablehlo.dot_general %%v%d, %%v%d, contracting_dims = [1] x [0] : "
                     "(%s, %s) -> %s\n",
                     z, x, y, a, a, a);
      break;
    case 2:
      at += snprintf(to, room, "%%v%d = stablehlo.tanh %%v%d : %s\n", z, y, a);
      break;
    case 3:
      at += snprintf(to, room, "%%v%d = stablehlo.transpose %%v%d, dims = [1, 0] : (%s) -> %s\n", z,
                     y, a, a);
      break;
    case 4:
      at += snprintf(to, room,
                     "%%r%d = stablehlo.reduce(%%v%d init: %%f) applies stablehlo.add across "
                     "dimensions = [%d] : (%s, %s) -> %s\n"
                     "%%v%d = stablehlo.broadcast_in_dim %%r%d, dims = [%d] : (%s) -> %s\n",
                     z, y, x % 2, a, scalar, row, z, z, x % 2, row, a);
      break;
    case 5:
      at += snprintf(to, room,
                     "%%v%d = \"stablehlo.sort\"(%%v%d) <{dimension = %d : i64}> ({\n"
                     "^bb0(%%x: %s, %%y: %s):\n%%l = stablehlo.compare LT, %%x, %%y : (%s, %s) -> "
                     "tensor<i1>\nstablehlo.return %%l : tensor<i1> }) : (%s) -> %s\n",
                     z, y, x % 2, scalar, scalar, scalar, scalar, a, a);
      break;
    case 6:
      at += snprintf(to, room,
                     "%%v%d = \"stablehlo.all_reduce\"(%%v%d) ({\n^bb0(%%x: %s, %%y: %s):\n"
                     "%%s = stablehlo.add %%x, %%y : %s\nstablehlo.return %%s : %s }) "
                     "{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>} : "
                     "(%s) -> %s\n",
                     z, y, scalar, scalar, scalar, scalar, a, a);
      break;
    default:
      at += snprintf(to, room, "%%v%d = stablehlo.add %%v%d, %%v%d : %s\n", z, x, y, a);
    }
  }
  snprintf(text + at, sizeof text - (size_t)at, "return %%v%d : %s } }\n", last, a);
  return text;
}

// Chips with more of what they have, and less data, on random programs. Where arrays just cease to
// fit into VMEM, a copy that was added becomes a stream that is hidden, a few percent (see above).
static void random_programs_are_never_slower_on_more(void **unused) {
  (void)unused;
  static const char *const eight[] = {"v2-8",   "v3-8",  "v4-16",  "v5litepod-8",
                                      "v5p-16", "v6e-8", "tpu7x-8"};
  for (uint64_t i = 1; i <= 400; i++) {
    uint64_t seed = i * 0x9E3779B97F4A7C15u;
    state = seed;
    vt_slice slice = slice_of(eight[random_below(7)]), best = slice;
    vt_chip better = *slice.chip;
    int64_t size = 8 + random_below(3000), less = 1 + random_below(size);
    better.hbm_bytes_per_s *= 1 + (double)random_below(3);
    better.bf16_flops_per_s *= 1 + (double)random_below(3);
    better.clock_hz *= 1 + (double)random_below(2);
    better.ici_link_bytes_per_s *= 1 + (double)random_below(3);
    best.chip = &better;
    vt_timing now = time_on(&slice, 8, random_program(seed, size, "f32"));
    vt_timing more = time_on(&best, 8, random_program(seed, size, "f32"));
    vt_timing small = time_on(&slice, 8, random_program(seed, less, "f32"));
    if (more.seconds > now.seconds * 1.0001 || small.seconds > now.seconds * 1.06)
      fail_msg("program %llu on %s: %g s, %g s on a better chip, %g s with %lld for %lld",
               (unsigned long long)i, slice.name, now.seconds, more.seconds, small.seconds,
               (long long)less, (long long)size);
    assert_true(small.flops <= now.flops && small.hbm_bytes <= now.hbm_bytes * 1.0001);
  }
}

// A product of an operand that its kernel makes of another array of its size.
static const char *product_of_made(int64_t m, int64_t k, int64_t n, const char *type) {
  static char text[2048];
  const char *plain = product(m, k, n, type), *made = strstr(plain, "%c = ");
  snprintf(text, sizeof text,
           "%.*s%%m = stablehlo.abs %%a : tensor<%lldx%lldx%s>\n%%c = stablehlo.dot_general %%m%s",
           (int)(made - plain), plain, (long long)m, (long long)k, type, strstr(made, ", %b"));
  return text;
}

static void what_makes_an_operand_saves_nothing(void **unused) {
  (void)unused;
  for (int i = 0; i < 400; i++) {
    vt_slice slice = slice_of(slices[random_below(SLICES)]);
    const char *type = random_below(2) ? "f32" : "bf16";
    int64_t m = 8 << random_below(11), k = 8 << random_below(11), n = 8 << random_below(11);
    double plain = time_on(&slice, 1, product(m, k, n, type)).seconds;
    assert_true(time_on(&slice, 1, product_of_made(m, k, n, type)).seconds > 0.98 * plain);
  }
}

static void padding_is_paid_for(void **unused) {
  (void)unused;
  double even = seconds_on("v5litepod-1", product(4096, 4096, 4096, "bf16"));
  double odd = seconds_on("v5litepod-1", product(4096, 4097, 4096, "bf16"));
  assert_true(odd > even * 1.01); // a depth of one more tile
}

// Weights that do not fit into VMEM are read while the product works: nothing is added where either
// takes far longer, a good part of a tenth where both take about as long.
static void tiles_wait_for_each_other(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("v6e-1"), fast = slice;
  vt_chip quick = *slice.chip;
  quick.hbm_bytes_per_s *= 100;
  fast.chip = &quick;
  static const struct {
    int64_t rows;
    double least, most; // over the longer of the two
  } cases[] = {{8, 1.0, 1.03}, {512, 1.08, 1.3}, {4096, 1.0, 1.08}};
  for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *text = product(cases[i].rows, 8192, 16384, "bf16");
    vt_timing both = time_on(&slice, 1, text), work = time_on(&fast, 1, text);
    double longer = fmax(work.seconds, both.busy[VT_BOUND_HBM]);
    if (both.seconds < cases[i].least * longer || both.seconds > cases[i].most * longer)
      fail_msg("%lld rows: %g s of %g s", (long long)cases[i].rows, both.seconds, longer);
  }
}

// An array of 80 MiB that is read again 16 products later leaves VMEM to what those make.
static void room_goes_to_the_short_lived(void **unused) {
  (void)unused;
  enum { STEPS = 16 };
  static char text[16384];
  vt_slice slice = slice_of("v5litepod-1");
  int at =
      snprintf(text, sizeof text,
               "module { func.func public @main(%%p: tensor<5120x512xf32>, "
               "%%q: tensor<512x4096xf32>, %%w: tensor<2048x2048xf32>) -> (tensor<5120x4096xf32>, "
               "tensor<4096x2048xf32>) {\n%%l = stablehlo.dot_general %%p, %%q, "
               "contracting_dims = [1] x [0] : (tensor<5120x512xf32>, tensor<512x4096xf32>) "
               "-> tensor<5120x4096xf32>\n%%v0 = stablehlo.slice %%l [0:4096, 0:2048] : "
               "(tensor<5120x4096xf32>) -> tensor<4096x2048xf32>\n");
  for (int i = 0; i < STEPS; i++)
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "%%v%d = stablehlo.dot_general %%v%d, %%w, contracting_dims = [1] x [0] : "
                   "(tensor<4096x2048xf32>, tensor<2048x2048xf32>) -> tensor<4096x2048xf32>\n",
                   i + 1, i);
  snprintf(text + at, sizeof text - (size_t)at,
           "%%s = stablehlo.slice %%v%d [0:1, 0:1] : (tensor<4096x2048xf32>) -> tensor<1x1xf32>\n"
           "%%b = stablehlo.broadcast_in_dim %%s, dims = [0, 1] : (tensor<1x1xf32>) -> "
           "tensor<5120x4096xf32>\n%%r = stablehlo.add %%l, %%b : tensor<5120x4096xf32>\n"
           "return %%r, %%v%d : tensor<5120x4096xf32>, tensor<4096x2048xf32> } }\n",
           STEPS, STEPS);
  double small = 4.0 * 4096 * 2048, large = 4.0 * 5120 * 4096;
  double arguments = 4.0 * 512 * (5120 + 4096) + small / 2, results = large + small;
  double bytes = time_on(&slice, 1, text).hbm_bytes;
  double all = arguments + large + small + large + results; // written, read in part, read
  if (fabs(bytes - all) > 1e-3 * all) fail_msg("%g bytes, not %g", bytes, all);
}

static void floats_of_8_bits_need_units(void **unused) {
  (void)unused;
  double wide = seconds_on("v6e-1", product(8192, 8192, 8192, "bf16"));
  assert_true(seconds_on("v6e-1", product(8192, 8192, 8192, "f8E4M3FN")) > 0.9 * wide);
  wide = seconds_on("tpu7x-8", product(8192, 8192, 8192, "bf16"));
  assert_true(seconds_on("tpu7x-8", product(8192, 8192, 8192, "f8E4M3FN")) < 0.6 * wide);
}

static void few_rows_cost_a_load_of_weights(void **unused) {
  (void)unused;
  double eight = seconds_on("v5litepod-1", product(8, 8192, 8192, "bf16"));
  assert_true(seconds_on("v5litepod-1", product(32, 8192, 8192, "bf16")) < eight * 1.02);
  assert_true(seconds_on("v5litepod-1", product(512, 8192, 8192, "bf16")) > eight * 1.2);
}

// One kernel alone pays the start of a program; in a chain it is one loop.
static void a_chain_is_one_kernel(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("v5litepod-1");
  vt_timing one = time_on(&slice, 1, chain(64, 128, "f32", "tanh", 1));
  vt_timing ten = time_on(&slice, 1, chain(64, 128, "f32", "tanh", 10));
  assert_int_equal(one.count, 1);
  assert_int_equal(ten.count, 1);
  assert_true(one.bound == VT_BOUND_LAUNCH);
  assert_true(ten.hbm_bytes == one.hbm_bytes);
}

#define SOFTMAX                                                                                    \
  "module { func.func public @main(%x: tensor<4096x2048xf32>) -> tensor<4096x2048xf32> {\n"        \
  "%lo = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"                                     \
  "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"                                          \
  "%m = stablehlo.reduce(%x init: %lo) applies stablehlo.maximum across dimensions = [1] : "       \
  "(tensor<4096x2048xf32>, tensor<f32>) -> tensor<4096xf32>\n"                                     \
  "%mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4096xf32>) -> "                       \
  "tensor<4096x2048xf32>\n"                                                                        \
  "%d = stablehlo.subtract %x, %mb : tensor<4096x2048xf32>\n"                                      \
  "%e = stablehlo.exponential %d : tensor<4096x2048xf32>\n"                                        \
  "%s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : "         \
  "(tensor<4096x2048xf32>, tensor<f32>) -> tensor<4096xf32>\n"                                     \
  "%sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4096xf32>) -> "                       \
  "tensor<4096x2048xf32>\n"                                                                        \
  "%r = stablehlo.divide %e, %sb : tensor<4096x2048xf32>\n"                                        \
  "return %r : tensor<4096x2048xf32> } }\n"

// The maximum; the sum of exponentials; these again and the quotient. Between them all stays in
// VMEM of a v5e, which reads and writes 32 MiB once; a v3's VMEM is too small for that, and each
// kernel reads what there is.
static void a_softmax_is_three_kernels(void **unused) {
  (void)unused;
  vt_slice v5e = slice_of("v5litepod-1"), v3 = slice_of("v3-8");
  vt_timing t = time_on(&v5e, 1, SOFTMAX);
  assert_int_equal(t.count, 3);
  double array = 4.0 * 4096 * 2048;
  assert_true(t.hbm_bytes > 1.9 * array && t.hbm_bytes < 2.1 * array);
  t = time_on(&v3, 1, SOFTMAX);
  assert_int_equal(t.count, 3);
  assert_true(t.hbm_bytes > 3.9 * array && t.hbm_bytes < 4.2 * array);
}

#define NORM_AND_PRODUCT                                                                           \
  "module { func.func public @main(%x: tensor<4096x1024xbf16>, %w: tensor<1024x512xbf16>) -> "     \
  "tensor<4096x512xbf16> {\n"                                                                      \
  "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"                                          \
  "%f = stablehlo.convert %x : (tensor<4096x1024xbf16>) -> tensor<4096x1024xf32>\n"                \
  "%s = stablehlo.reduce(%f init: %zero) applies stablehlo.add across dimensions = [1] : "         \
  "(tensor<4096x1024xf32>, tensor<f32>) -> tensor<4096xf32>\n"                                     \
  "%sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4096xf32>) -> "                       \
  "tensor<4096x1024xf32>\n"                                                                        \
  "%d = stablehlo.subtract %f, %sb : tensor<4096x1024xf32>\n"                                      \
  "%q = stablehlo.multiply %d, %d : tensor<4096x1024xf32>\n"                                       \
  "%v = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1] : "         \
  "(tensor<4096x1024xf32>, tensor<f32>) -> tensor<4096xf32>\n"                                     \
  "%r = stablehlo.rsqrt %v : tensor<4096xf32>\n"                                                   \
  "%rb = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4096xf32>) -> "                       \
  "tensor<4096x1024xf32>\n"                                                                        \
  "%n = stablehlo.multiply %d, %rb : tensor<4096x1024xf32>\n"                                      \
  "%o = stablehlo.convert %n : (tensor<4096x1024xf32>) -> tensor<4096x1024xbf16>\n"                \
  "%p = stablehlo.dot_general %o, %w, contracting_dims = [1] x [0] : (tensor<4096x1024xbf16>, "    \
  "tensor<1024x512xbf16>) -> tensor<4096x512xbf16>\n"                                              \
  "return %p : tensor<4096x512xbf16> } }\n"

// Two sums, then the product, which makes its operand of the array in bf16: the difference to the
// mean is no array, as float32 it would be larger.
static void a_norm_comes_before_its_product(void **unused) {
  (void)unused;
  vt_slice v3 = slice_of("v3-8");
  vt_timing t = time_on(&v3, 1, NORM_AND_PRODUCT);
  assert_int_equal(t.count, 3);
  double array = 2.0 * 4096 * 1024, others = 2.0 * 512 * (1024 + 4096);
  assert_true(t.hbm_bytes < 3.05 * array + others);
}

#define SUMS                                                                                       \
  "%f = stablehlo.convert %c : (" IMAGES("bf16") ") -> " IMAGES(                                   \
      "f32") "\n"                                                                                  \
             "%q = stablehlo.multiply %f, %f : " IMAGES(                                           \
                 "f32") "\n"                                                                       \
                        "%s = stablehlo.reduce(%f init: %zero) applies stablehlo.add across "      \
                        "dimensions = [0, 1, 2] : "                                                \
                        "(" IMAGES(                                                                \
                            "f32") ", tensor<f32>) -> tensor<256xf32>\n"                           \
                                   "%t = stablehlo.reduce(%q init: %zero) applies stablehlo.add "  \
                                   "across dimensions = [0, 1, 2] : "                              \
                                   "(" IMAGES(                                                     \
                                       "f32") ", tensor<f32>) -> tensor<256xf32>\n"                \
                                              "%v = stablehlo.multiply %s, %s : tensor<256xf32>\n" \
                                              "%d = stablehlo.subtract %t, %v : tensor<256xf32>\n" \
                                              "%r = stablehlo.rsqrt %d : tensor<256xf32>\n"
#define IMAGES(type) "tensor<128x56x56x256x" type ">"
#define NORMALISED                                                                                 \
  "module { func.func public @main(%x: " IMAGES(                                                   \
      "bf16") ", %w: tensor<1x1x256x256xbf16>) "                                                   \
              "-> " IMAGES(                                                                        \
                  "bf16") " {\n%zero = "                                                           \
                          "stablehlo.constant "                                                    \
                          "dense<0.0> : "                                                          \
                          "tensor<f32>\n"                                                          \
                          "%c = "                                                                  \
                          "stablehlo."                                                             \
                          "convolution(%x, "                                                       \
                          "%w) dim_numbers = "                                                     \
                          "[b, 0, 1, f]x[0, "                                                      \
                          "1, i, o]->[b, 0, "                                                      \
                          "1, f], "                                                                \
                          "window = {stride = "                                                    \
                          "[1, 1], pad = [[0, "                                                    \
                          "0], [0, 0]]} "                                                          \
                          "{batch_group_count "                                                    \
                          "= 1 : i64, "                                                            \
                          "feature_group_"                                                         \
                          "count = 1 : i64} : "                                                    \
                          "(" IMAGES("bf16") ", tensor<1x1x256x256xbf16>) -> " IMAGES(             \
                              "bf16") "\n" SUMS "%b = "                                            \
                                      "stableh"                                                    \
                                      "lo."                                                        \
                                      "broadca"                                                    \
                                      "st_in_"                                                     \
                                      "dim "                                                       \
                                      "%r, "                                                       \
                                      "dims = "                                                    \
                                      "[3] : "                                                     \
                                      "(tensor"                                                    \
                                      "<256xf3"                                                    \
                                      "2>) "                                                       \
                                      "->"                                                         \
                                      " " IMAGES(                                                  \
                                          "f3"                                                     \
                                          "2") "\n"                                                \
                                               "%y = stablehlo.multiply %f, %b : " IMAGES(         \
                                                   "f32") "\n"                                     \
                                                          "%z = stablehlo.convert %y : "           \
                                                          "(" IMAGES("f32") ") -> " IMAGES(        \
                                                              "bf16") "\n"                         \
                                                                      "return %z "                 \
                                                                      ": " IMAGES("bf16") " } }\n"

// The convolution makes both sums of the batch norm on its way out, a small kernel what follows, a
// third one scales: the array is written, read and written, and never as f32.
static void a_batch_norm_reads_once(void **unused) {
  (void)unused;
  vt_slice v3 = slice_of("v3-8");
  vt_timing t = time_on(&v3, 1, NORMALISED);
  assert_int_equal(t.count, 3);
  double array = 2.0 * 128 * 56 * 56 * 256;
  assert_true(t.hbm_bytes > 3.9 * array && t.hbm_bytes < 4.1 * array);
}

// A depthwise convolution of `channels`, and the gradient of its weights.
static const char *depthwise(int64_t channels, bool gradient) {
  static char text[2048];
  char x[64], w[64];
  snprintf(x, sizeof x, "tensor<32x28x28x%lldxbf16>", (long long)channels);
  snprintf(w, sizeof w, "tensor<3x3x1x%lldxbf16>", (long long)channels);
  const char *by = gradient ? x : w, *to = gradient ? w : x;
  snprintf(text, sizeof text,
           "module { func.func public @main(%%a: %s, %%b: %s) -> %s {\n"
           "%%c = stablehlo.convolution(%%a, %%b) dim_numbers = %s, window = {stride = [1, 1], "
           "pad = [[1, 1], [1, 1]]} {batch_group_count = %lld : i64, feature_group_count = %lld : "
           "i64} : (%s, %s) -> %s\nreturn %%c : %s } }\n",
           x, by, to,
           gradient ? "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"
                    : "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
           (long long)(gradient ? channels : 1), (long long)(gradient ? 1 : channels), x, by, to,
           to);
  return text;
}

// Both have as many groups of as many products.
static void gradients_of_groups_take_as_long(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    vt_slice slice = slice_of(slices[i]);
    for (int64_t channels = 64; channels <= 1024; channels *= 4) {
      double forward = time_on(&slice, 1, depthwise(channels, false)).busy[VT_BOUND_MXU];
      double back = time_on(&slice, 1, depthwise(channels, true)).busy[VT_BOUND_MXU];
      assert_true(back < 1.3 * forward && back > 0.7 * forward);
    }
  }
}

#define LOOP_UNTIL(param, end)                                                                     \
  "module { func.func public @main(%x: tensor<512x512xbf16>" param ") "                            \
  "-> tensor<512x512xbf16> {\n"                                                                    \
  "%zero = stablehlo.constant dense<0> : tensor<i32>\n"                                            \
  "%one = stablehlo.constant dense<1> : tensor<i32>\n" end                                         \
  "%r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<512x512xbf16>\n"              \
  "cond { %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"        \
  "stablehlo.return %c : tensor<i1> }\n"                                                           \
  "do { %p = stablehlo.dot_general %v, %v, contracting_dims = [1] x [0] : "                        \
  "(tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>\n"                         \
  "%j = stablehlo.add %i, %one : tensor<i32>\n"                                                    \
  "stablehlo.return %j, %p : tensor<i32>, tensor<512x512xbf16> }\n"                                \
  "return %r#1 : tensor<512x512xbf16> } }\n"
#define LOOP(trips) LOOP_UNTIL("", "%end = stablehlo.constant dense<" trips "> : tensor<i32>\n")

static void trips_add_up(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    vt_slice slice = slice_of(slices[i]);
    vt_timing ten = time_on(&slice, 1, LOOP("10")), more = time_on(&slice, 1, LOOP("1000"));
    double ratio = more.seconds / ten.seconds;
    if (!(ratio > 60 && ratio < 112)) // long programs are throttled
      fail_msg("%s: %g s, %g s", slices[i], ten.seconds, more.seconds);
    assert_true(fabs(more.flops / ten.flops - 100) < 1e-6);
    assert_true(ten.exact_trips);
    assert_true(ten.hbm_bytes >= 2.0 * 512 * 512); // what it begins with is read
  }
}

// What an argument says is not known; the loop counts once.
static void a_loop_to_an_argument_counts_once(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("v5litepod-1");
  vt_timing unknown = time_on(&slice, 1, LOOP_UNTIL(", %end: tensor<i32>", "")),
            one = time_on(&slice, 1, LOOP("1"));
  assert_false(unknown.exact_trips);
  assert_true(unknown.flops == one.flops);
}

#define PASSING                                                                                    \
  "module { func.func public @main(%x: tensor<f32>) -> tensor<f32> {\n"                            \
  "%zero = stablehlo.constant dense<0> : tensor<i32>\n"                                            \
  "%end = stablehlo.constant dense<10> : tensor<i32>\n"                                            \
  "%one = stablehlo.constant dense<1> : tensor<i32>\n"                                             \
  "%big = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> "                            \
  "tensor<1024x1024x1024xf32>\n"                                                                   \
  "%r:3 = stablehlo.while(%i = %zero, %v = %x, %b = %big) : tensor<i32>, tensor<f32>, "            \
  "tensor<1024x1024x1024xf32>\n"                                                                   \
  "cond { %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"        \
  "stablehlo.return %c : tensor<i1> }\n"                                                           \
  "do { %w = stablehlo.add %v, %v : tensor<f32>\n"                                                 \
  "%j = stablehlo.add %i, %one : tensor<i32>\n"                                                    \
  "stablehlo.return %j, %w, %b : tensor<i32>, tensor<f32>, tensor<1024x1024x1024xf32> }\n"         \
  "return %r#1 : tensor<f32> } }\n"

static void what_a_loop_only_carries_past_is_not_made(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("v4-8");
  assert_true(time_on(&slice, 1, PASSING).hbm_bytes < 1e6);
}

static const char *reduction(const char *op, int64_t size, int32_t devices) {
  static char text[65536];
  int at = snprintf(text, sizeof text,
                    "module { func.func public @main(%%a: tensor<%lldxf32>) -> tensor<%lldxf32> {\n"
                    "%%b = \"stablehlo.%s\"(%%a) ({ ^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n"
                    "%%s = stablehlo.add %%x, %%y : tensor<f32>\n"
                    "stablehlo.return %%s : tensor<f32> }) {replica_groups = dense<[[",
                    (long long)size, (long long)size, op);
  for (int32_t i = 0; i < devices; i++)
    at += snprintf(text + at, sizeof text - (size_t)at, "%s%d", i ? ", " : "", i);
  snprintf(text + at, sizeof text - (size_t)at,
           "]]> : tensor<1x%dxi64>} : (tensor<%lldxf32>) -> tensor<%lldxf32>\n"
           "return %%b : tensor<%lldxf32> } }\n",
           devices, (long long)size, (long long)size, (long long)size);
  return text;
}

static void larger_groups_take_longer(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("v5litepod-256");
  double last = 0;
  for (int32_t devices = 2; devices <= 16; devices *= 2) {
    double now = time_on(&slice, 256, reduction("all_reduce", 1 << 24, devices)).seconds;
    assert_true(devices == 16 || now > last); // 16 in a row close the ring
    last = now;
  }
  // All 256 use the links of both axes, so they take less than a group of 16 along one.
  assert_true(time_on(&slice, 256, reduction("all_reduce", 1 << 24, 256)).seconds < last);
}

static void slower_links_take_longer(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("v4-128"), two = slice_of("v4-128 x2");
  vt_chip worse = *slice.chip;
  double before = time_on(&slice, 64, reduction("all_reduce", 1 << 24, 64)).seconds;
  worse.ici_link_bytes_per_s /= 2;
  double across = time_on(&two, 128, reduction("all_reduce", 1 << 24, 128)).seconds;
  slice.chip = &worse;
  assert_true(time_on(&slice, 64, reduction("all_reduce", 1 << 24, 64)).seconds > 1.5 * before);
  assert_true(across > before);
}

// A gather of rows over 16 devices with the product that reads it, or a product and the scatter of
// its sums, with a chain of `others` products beside it.
static const char *cut_product(bool gather, int64_t rows, int others) {
  static char text[4096];
  const char *name = gather ? "all_gather" : "reduce_scatter";
  long long whole = rows * 16, from = gather ? rows : whole, to = gather ? whole : rows;
  char groups[256] = "replica_groups = dense<[[0", product_text[256];
  for (int i = 1; i < 16; i++) snprintf(groups + strlen(groups), 8, ", %d", i);
  snprintf(product_text, sizeof product_text,
           "contracting_dims = [1] x [0] : (tensor<%lldx8192xbf16>, tensor<8192x8192xbf16>) -> "
           "tensor<%lldx8192xbf16>\n",
           whole, whole);
  int at = snprintf(text, sizeof text,
                    "module { func.func public @main(%%a: tensor<%lldx8192xbf16>, %%w: "
                    "tensor<8192x8192xbf16>, %%v0: tensor<8192x8192xbf16>) -> "
                    "(tensor<%lldx8192xbf16>, tensor<8192x8192xbf16>) {\n",
                    gather ? from : whole, gather ? whole : to);
  if (!gather)
    at += snprintf(text + at, sizeof text - (size_t)at, "%%p = stablehlo.dot_general %%a, %%w, %s",
                   product_text);
  at +=
      snprintf(text + at, sizeof text - (size_t)at,
               "%%c = \"stablehlo.%s\"(%%%c) %s{%s = 0 : i64, %s]]> : tensor<1x16xi64>} : "
               "(tensor<%lldx8192xbf16>) -> tensor<%lldx8192xbf16>\n",
               name, gather ? 'a' : 'p',
               gather ? ""
                      : "({ ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):\n%s = stablehlo.add %x, %y : "
                        "tensor<bf16>\nstablehlo.return %s : tensor<bf16> }) ",
               gather ? "all_gather_dim" : "scatter_dimension", strchr(groups, 'r'), from, to);
  for (int i = 0; i < others; i++)
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "%%v%d = stablehlo.dot_general %%v%d, %%w, contracting_dims = [1] x [0] : "
                   "(tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>\n",
                   i + 1, i);
  if (gather)
    at += snprintf(text + at, sizeof text - (size_t)at, "%%p = stablehlo.dot_general %%c, %%w, %s",
                   product_text);
  snprintf(text + at, sizeof text - (size_t)at,
           "return %%%c, %%v%d : tensor<%lldx8192xbf16>, tensor<8192x8192xbf16> } }\n",
           gather ? 'p' : 'c', others, gather ? whole : to);
  return text;
}

static void collectives_hide(void **unused) {
  (void)unused;
  vt_slice v5e = slice_of("v5litepod-256"), v7 = slice_of("tpu7x-128");
  // Beside other products; a scatter only where SparseCores run it.
  assert_true(time_on(&v5e, 256, cut_product(true, 256, 4)).exposed < 1e-6);
  assert_true(time_on(&v5e, 256, cut_product(false, 256, 4)).exposed > 2e-4);
  assert_true(time_on(&v7, 128, cut_product(false, 256, 4)).exposed <
              0.1 * time_on(&v7, 128, cut_product(false, 256, 4)).busy[VT_BOUND_ICI]);
  // Along with their own product, from 256 MiB on.
  for (int gather = 0; gather <= 1; gather++) {
    vt_timing small = time_on(&v5e, 256, cut_product(gather, 1008, 0));
    vt_timing large = time_on(&v5e, 256, cut_product(gather, 1024, 0));
    assert_true(small.exposed > 0.9 * small.busy[VT_BOUND_ICI]);
    assert_true(large.exposed < 0.2 * large.busy[VT_BOUND_ICI]);
  }
}

static void a_twisted_torus_exchanges_faster(void **unused) {
  (void)unused;
  static char text[4096];
  int at = snprintf(text, sizeof text,
                    "module { func.func public @main(%%a: tensor<128x65536xf32>) -> "
                    "tensor<128x65536xf32> {\n%%b = \"stablehlo.all_to_all\"(%%a) "
                    "{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 128 : "
                    "i64, replica_groups = dense<[[");
  for (int i = 0; i < 128; i++)
    at += snprintf(text + at, sizeof text - (size_t)at, "%s%d", i ? ", " : "", i);
  snprintf(text + at, sizeof text - (size_t)at,
           "]]> : tensor<1x128xi64>} : (tensor<128x65536xf32>) -> tensor<128x65536xf32>\n"
           "return %%b : tensor<128x65536xf32> } }\n");
  vt_slice plain = slice_of("v4:4x4x8"), twisted = slice_of("v4:4x4x8_twisted");
  double ratio = time_on(&plain, 128, text).busy[VT_BOUND_ICI] /
                 time_on(&twisted, 128, text).busy[VT_BOUND_ICI];
  assert_true(ratio > 1.55 && ratio < 1.64); // 1.63 on the links
  const char *sum = reduction("all_reduce", 1 << 24, 128);
  double other = time_on(&plain, 128, sum).seconds;
  assert_true(time_on(&twisted, 128, sum).seconds == other);
}

static const char *sort(int64_t rows, int64_t columns, int dim) {
  static char text[1024];
  char a[64];
  snprintf(a, sizeof a, "tensor<%lldx%lldxf32>", (long long)rows, (long long)columns);
  snprintf(text, sizeof text,
           "module { func.func public @main(%%a: %s) -> %s {\n"
           "%%b = \"stablehlo.sort\"(%%a) <{dimension = %d : i64, is_stable = true}> ({\n"
           "^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n"
           "%%l = stablehlo.compare LT, %%x, %%y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
           "stablehlo.return %%l : tensor<i1> }) : (%s) -> %s\nreturn %%b : %s } }\n",
           a, a, dim, a, a, a);
  return text;
}

static const char *running_sum(int64_t rows, int64_t columns, int dim) {
  static char text[1024];
  char a[64];
  int64_t up = (dim ? columns : rows) - 1;
  snprintf(a, sizeof a, "tensor<%lldx%lldxf32>", (long long)rows, (long long)columns);
  snprintf(text, sizeof text,
           "module { func.func public @main(%%a: %s) -> %s {\n"
           "%%f = stablehlo.constant dense<0.0> : tensor<f32>\n"
           "%%b = \"stablehlo.reduce_window\"(%%a, %%f) <{window_dimensions = array<i64: %lld, "
           "%lld>, padding = dense<[[%lld, 0], [%lld, 0]]> : tensor<2x2xi64>}> ({\n"
           "^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n%%s = stablehlo.add %%x, %%y : "
           "tensor<f32>\nstablehlo.return %%s : tensor<f32> }) : (%s, tensor<f32>) -> %s\n"
           "return %%b : %s } }\n",
           a, a, (long long)(dim ? 1 : rows), (long long)(dim ? columns : 1),
           (long long)(dim ? 0 : up), (long long)(dim ? up : 0), a, a, a);
  return text;
}

static void lanes_are_dearer_than_rows(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    double last[2] = {0};
    for (int64_t size = 128; size <= 4096; size *= 2) {
      double sorted = seconds_on(slices[i], sort(size, size, 1));
      double summed = seconds_on(slices[i], running_sum(size, size, 1));
      assert_true(sorted > last[0] && summed > last[1]);
      assert_true(sorted >= seconds_on(slices[i], sort(size, size, 0)));
      assert_true(summed >= seconds_on(slices[i], running_sum(size, size, 0)));
      last[0] = sorted, last[1] = summed;
    }
    assert_true(seconds_on(slices[i], sort(4096, 4096, 1)) >
                seconds_on(slices[i], running_sum(4096, 4096, 1)));
  }
}

static const char *top(int64_t rows, int64_t columns, int64_t k) {
  static char text[512];
  snprintf(
      text, sizeof text,
      "module { func.func public @main(%%a: tensor<%lldx%lldxf32>) -> tensor<%lldx%lldxi32> {\n"
      "%%b, %%c = chlo.top_k(%%a, k = %lld) : tensor<%lldx%lldxf32> -> (tensor<%lldx%lldxf32>, "
      "tensor<%lldx%lldxi32>)\nreturn %%c : tensor<%lldx%lldxi32> } }\n",
      (long long)rows, (long long)columns, (long long)rows, (long long)k, (long long)k,
      (long long)rows, (long long)columns, (long long)rows, (long long)k, (long long)rows,
      (long long)k, (long long)rows, (long long)k);
  return text;
}

// Few are taken one by one, many are sorted.
static void few_of_many_need_no_sort(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    double last = 0, all = seconds_on(slices[i], top(1024, 4096, 4096));
    for (int64_t k = 1; k <= 4096; k *= 4) {
      double now = seconds_on(slices[i], top(1024, 4096, k));
      assert_true(now >= last && now <= all * 1.0001);
      last = now;
    }
    assert_true(seconds_on(slices[i], top(1024, 4096, 2)) < all / 4);
  }
}

// A device of v4 and v5p has two cores. They share what falls into parts; one sort and one
// register stay on one of them, with half of the memory's rate.
static void cores_share_what_falls_apart(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    int32_t both = strstr("v4-8 v5p-8", slices[i]) ? 2 : 1;
    assert_int_equal(cores_of(slices[i], product(512, 512, 512, "bf16")), both);
    assert_int_equal(cores_of(slices[i], chain(512, 512, "f32", "tanh", 1)), both);
    assert_int_equal(cores_of(slices[i], sort(512, 512, 1)), both);
    assert_int_equal(cores_of(slices[i], chain(8, 128, "f32", "tanh", 1)), 1);
    assert_int_equal(cores_of(slices[i], sort(1, 65536, 1)), 1);
  }
  double one = seconds_on("v5p-8", sort(8, 1 << 20, 1));
  double two = seconds_on("v5p-8", sort(16, 1 << 20, 1));
  assert_true(two < 1.1 * one && two >= one);
}

// The matrix units take over where the vector unit would hold the memory up.
static void one_row_is_no_dearer_than_two(void **unused) {
  (void)unused;
  static const char *const types[] = {"bf16", "f32", "i8", "f8E4M3FN", "f16"};
  for (int i = 0; i < SLICES; i++)
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
      for (int64_t n = 1024; n <= 16384; n *= 4) {
        double one = seconds_on(slices[i], product(1, n, n, types[k]));
        double two = seconds_on(slices[i], product(2, n, n, types[k]));
        if (one > 1.02 * two)
          fail_msg("%s, %s, %d: %g s, %g s", slices[i], types[k], (int)n, one, two);
      }
}

// Energy of a program's parts, one after the other, is at most that of both programs alone: a part
// in the middle needs no start of its own, and its power lies between theirs.
static void energy_adds_up(void **unused) {
  (void)unused;
  for (int i = 0; i < 100; i++) {
    vt_slice slice = slice_of(slices[random_below(SLICES)]);
    int64_t rows = 64 + random_below(4000), columns = 64 + random_below(4000);
    int first = 1 + (int)random_below(10), second = 1 + (int)random_below(10);
    double a = time_on(&slice, 1, chain(rows, columns, "f32", "tanh", first)).joules;
    double b = time_on(&slice, 1, chain(rows, columns, "f32", "tanh", second)).joules;
    double both = time_on(&slice, 1, chain(rows, columns, "f32", "tanh", first + second)).joules;
    assert_true(both <= (a + b) * 1.0001 && both >= fmax(a, b) * 0.9999);
  }
  // A loop's trips cost what they cost each.
  vt_slice slice = slice_of("v6e-1");
  double few = time_on(&slice, 1, LOOP("100000")).joules,
         many = time_on(&slice, 1, LOOP("400000")).joules;
  assert_true(fabs(many / few - 4) < 0.04);
}

static void more_slices_take_longer(void **unused) {
  (void)unused;
  double last = 0;
  for (int32_t slices_joined = 1; slices_joined <= 4; slices_joined *= 2) {
    char name[32];
    snprintf(name, sizeof name, "v6e-64 x%d", slices_joined);
    vt_slice slice = slice_of(name);
    int32_t devices = 64 * slices_joined;
    double now = time_on(&slice, devices, reduction("all_reduce", 1 << 24, devices)).seconds;
    assert_true(now > last);
    last = now;
  }
}

// A product of `m` rows in `groups` groups: each row with its group's matrix, or, with `each`, a
// product of [k, m] and [m, n] for each group of the m.
static const char *ragged(int64_t m, int64_t k, int64_t n, int64_t groups, bool each) {
  static char text[1024];
  char a[64], b[64], c[64];
  long long size[] = {m, k, n, groups};
  snprintf(a, sizeof a, "tensor<%lldx%lldxbf16>", size[each], size[!each]);
  if (each) {
    snprintf(b, sizeof b, "tensor<%lldx%lldxbf16>", size[0], size[2]);
    snprintf(c, sizeof c, "tensor<%lldx%lldx%lldxbf16>", size[3], size[1], size[2]);
  } else {
    snprintf(b, sizeof b, "tensor<%lldx%lldx%lldxbf16>", size[3], size[1], size[2]);
    snprintf(c, sizeof c, "tensor<%lldx%lldxbf16>", size[0], size[2]);
  }
  snprintf(text, sizeof text,
           "module { func.func public @main(%%a: %s, %%b: %s, %%s: tensor<%lldxi32>) -> %s {\n"
           "%%c = \"chlo.ragged_dot\"(%%a, %%b, %%s) <{ragged_dot_dimension_numbers = "
           "#chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [%d], "
           "lhs_ragged_dimensions = [%d]%s>}> : (%s, %s, tensor<%lldxi32>) -> %s\n"
           "return %%c : %s } }\n",
           a, b, size[3], c, !each, each, each ? "" : ", rhs_group_dimensions = [0]", a, b, size[3],
           c, c);
  return text;
}

// More groups cost their matrices, and a tile at each border; the rows cost what they always do.
static void groups_cost_their_matrices(void **unused) {
  (void)unused;
  for (int i = 0; i < 200; i++) {
    vt_slice slice = slice_of(slices[random_below(SLICES)]);
    const int64_t tile = 128, edge = 256;
    int64_t groups = 1 + random_below(64), m = groups * 8 + random_below(8000);
    int64_t k = 256 + random_below(3000), n = 256 + random_below(3000);
    bool each = random_below(2);
    vt_timing all = time_on(&slice, 1, ragged(m, k, n, groups, each));
    vt_timing one = time_on(&slice, 1, ragged(m, k, n, 1, each));
    double flops = 2.0 * (double)m * (double)k * (double)n;
    assert_true(fabs(all.flops - flops) <= 1e-9 * flops);
    assert_true(fabs(one.flops - flops) <= 1e-9 * flops);
    int64_t more = m + (groups - 1) * tile + groups * edge;
    double most = time_on(&slice, 1, ragged(more, k, n, 1, each)).seconds;
    double matrices = 2.0 * (double)(groups + 1) * (double)((k + 127) / 128 * 128) *
                      (double)((n + 127) / 128 * 128);
    most += matrices / (slice.chip->hbm_bytes_per_s / slice.chip->devices);
    if (all.seconds < one.seconds * 0.96 || all.seconds > most * 1.3 + 5e-6)
      fail_msg("%s: %lldx%lldx%lld in %lld groups%s: %g s, in one %g s, at most %g s", slice.name,
               (long long)m, (long long)k, (long long)n, (long long)groups, each ? ", each" : "",
               all.seconds, one.seconds, most);
    double rows =
        time_on(&slice, 1, ragged(m + 1 + random_below(2000), k, n, groups, each)).seconds;
    assert_true(rows >= all.seconds * 0.96);
    double twice = time_on(&slice, 1, ragged(m, k, n, 2 * groups, each)).seconds;
    assert_true(twice >= all.seconds * 0.96);
  }
}

static void one_group_is_a_product(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    double dense = seconds_on(slices[i], product(4096, 1024, 2048, "bf16"));
    double groups = seconds_on(slices[i], ragged(4096, 1024, 2048, 1, false));
    // A kernel that finds where the groups begin hides the copy of an operand.
    if (groups < 0.95 * dense || groups > 1.02 * dense + 3e-6)
      fail_msg("%s: %g s, one group %g s", slices[i], dense, groups);
    // A token that meets two of 64 experts reads two of their matrices.
    double few = seconds_on(slices[i], ragged(2, 4096, 4096, 64, false));
    vt_slice slice = slice_of(slices[i]);
    double rate = slice.chip->hbm_bytes_per_s / slice.chip->devices;
    double two = 2 * 2.0 * 4096 * 4096 / rate;
    if (few < two || few > 2 * two) fail_msg("%s: %g s, two matrices %g s", slices[i], few, two);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(more_work_is_never_faster),
      cmocka_unit_test(a_better_chip_is_never_slower),
      cmocka_unit_test(random_programs_are_never_slower_on_more),
      cmocka_unit_test(what_makes_an_operand_saves_nothing),
      cmocka_unit_test(padding_is_paid_for),
      cmocka_unit_test(tiles_wait_for_each_other),
      cmocka_unit_test(room_goes_to_the_short_lived),
      cmocka_unit_test(floats_of_8_bits_need_units),
      cmocka_unit_test(few_rows_cost_a_load_of_weights),
      cmocka_unit_test(a_chain_is_one_kernel),
      cmocka_unit_test(a_softmax_is_three_kernels),
      cmocka_unit_test(a_norm_comes_before_its_product),
      cmocka_unit_test(a_batch_norm_reads_once),
      cmocka_unit_test(gradients_of_groups_take_as_long),
      cmocka_unit_test(trips_add_up),
      cmocka_unit_test(a_loop_to_an_argument_counts_once),
      cmocka_unit_test(what_a_loop_only_carries_past_is_not_made),
      cmocka_unit_test(larger_groups_take_longer),
      cmocka_unit_test(slower_links_take_longer),
      cmocka_unit_test(collectives_hide),
      cmocka_unit_test(a_twisted_torus_exchanges_faster),
      cmocka_unit_test(lanes_are_dearer_than_rows),
      cmocka_unit_test(cores_share_what_falls_apart),
      cmocka_unit_test(one_row_is_no_dearer_than_two),
      cmocka_unit_test(more_slices_take_longer),
      cmocka_unit_test(energy_adds_up),
      cmocka_unit_test(few_of_many_need_no_sort),
      cmocka_unit_test(groups_cost_their_matrices),
      cmocka_unit_test(one_group_is_a_product),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
