// SPDX-License-Identifier: Apache-2.0
// window_programs.c - writes random programs of one op: with windows, or moving elements along
// dimensions.

#include <stdbool.h>

#include "ir/window.h"
#include "spmd/partition/random_programs.h"

enum { RANK = 3, LARGEST = 80 };

typedef struct writer {
  vt_random_fn *random;
  vt_text *out;
  int64_t dims[RANK];                                          // of the operand
  int64_t kernel[RANK + 1], image[RANK + 1], result[RANK + 1]; // of a convolution
} writer;

static int64_t between(writer *w, int64_t low, int64_t high) {
  return low + (int64_t)w->random((uint32_t)(high - low + 1));
}

static void write_type(writer *w, const int64_t *dims, int rank) {
  vt_text_printf(w->out, "tensor<");
  for (int d = 0; d < rank; d++) vt_text_printf(w->out, "%lldx", (long long)dims[d]);
  vt_text_printf(w->out, "f32>");
}

static void write_list(writer *w, const char *name, const int64_t *numbers, int count) {
  vt_text_printf(w->out, "%s = array<i64: ", name);
  for (int i = 0; i < count; i++)
    vt_text_printf(w->out, "%s%lld", i ? ", " : "", (long long)numbers[i]);
  vt_text_printf(w->out, ">");
}

static void write_padding(writer *w, const vt_window *windows, int count) {
  vt_text_printf(w->out, "padding = dense<[");
  for (int d = 0; d < count; d++)
    vt_text_printf(w->out, "%s[%lld, %lld]", d ? ", " : "", (long long)windows[d].low,
                   (long long)windows[d].high);
  vt_text_printf(w->out, "]> : tensor<%dx2xi64>", count);
}

static void choose_dims(writer *w) {
  static const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 8, 9, 11, 12, 13, 16, 17, 24, 24, 27, 32};
  do {
    for (int d = 0; d < RANK; d++) w->dims[d] = sizes[w->random(sizeof sizes / sizeof *sizes)];
  } while (w->dims[0] * w->dims[1] * w->dims[2] > 4096);
}

// ---- one window ---------------------------------------------------------------------------------

static vt_window any_window(writer *w, int64_t size, bool dilated, bool negative) {
  vt_window v = {1, 1, 0, 0, 1, 1};
  if (w->random(3) == 0) return v;
  v.size = w->random(5) ? between(w, 1, 4) : size;
  v.stride = w->random(6) ? between(w, 1, 3) : between(w, 1, 9);
  v.low = between(w, negative && w->random(2) ? -4 : 0, 4);
  v.high = between(w, negative && w->random(2) ? -4 : 0, 4);
  if (w->random(8) == 0) v.low = v.size - 1; // cumulative forms
  if (dilated && w->random(2)) v.base_dilation = between(w, 1, 3);
  if (dilated && w->random(2)) v.window_dilation = between(w, 1, 3);
  return v;
}

static void choose_windows(writer *w, bool dilated, bool negative, vt_window *out, int64_t *dims) {
  for (int d = 0; d < RANK; d++) do {
      out[d] = any_window(w, w->dims[d], dilated, negative);
    } while (!vt_window_output(w->dims[d], out[d], &dims[d]) || !dims[d] || dims[d] > LARGEST);
}

static void split_windows(const vt_window *windows, int64_t *size, int64_t *stride, int64_t *base,
                          int64_t *window) {
  for (int d = 0; d < RANK; d++) {
    size[d] = windows[d].size;
    stride[d] = windows[d].stride;
    base[d] = windows[d].base_dilation;
    window[d] = windows[d].window_dilation;
  }
}

static void write_reducer(writer *w, const char *op) {
  vt_text_printf(w->out,
                 "({ ^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n"
                 "    %%s = stablehlo.%s %%x, %%y : tensor<f32>\n"
                 "    stablehlo.return %%s : tensor<f32> })",
                 op);
}

static void write_reduce_window(writer *w, int64_t *dims) {
  vt_window windows[RANK];
  int64_t size[RANK], stride[RANK], base[RANK], dilation[RANK];
  static const char *const reducers[][2] = {
      {"add", "0.0"}, {"add", "1.5"}, {"maximum", "0xFF800000"}, {"minimum", "2.0"}};
  const char *const *reducer = reducers[w->random(4)];
  choose_windows(w, true, true, windows, dims);
  split_windows(windows, size, stride, base, dilation);
  vt_text_printf(w->out, "  %%z = stablehlo.constant dense<%s> : tensor<f32>\n", reducer[1]);
  vt_text_printf(w->out, "  %%r = \"stablehlo.reduce_window\"(%%a, %%z) <{");
  write_list(w, "window_dimensions", size, RANK);
  write_list(w, ", window_strides", stride, RANK);
  write_list(w, ", base_dilations", base, RANK);
  write_list(w, ", window_dilations", dilation, RANK);
  vt_text_printf(w->out, ", ");
  write_padding(w, windows, RANK);
  vt_text_printf(w->out, "}> ");
  write_reducer(w, reducer[0]);
  vt_text_printf(w->out, " : (");
  write_type(w, w->dims, RANK);
  vt_text_printf(w->out, ", tensor<f32>) -> ");
}

static void write_select_and_scatter(writer *w, int64_t *dims) {
  vt_window windows[RANK];
  int64_t size[RANK], stride[RANK], base[RANK], dilation[RANK], source[RANK];
  choose_windows(w, false, false, windows, source);
  split_windows(windows, size, stride, base, dilation);
  for (int d = 0; d < RANK; d++) dims[d] = w->dims[d];
  vt_text_printf(w->out, "  %%z = stablehlo.constant dense<%d.0> : tensor<f32>\n",
                 (int)w->random(2));
  vt_text_printf(w->out, "  %%i = stablehlo.iota dim = %d : ", (int)w->random(RANK));
  write_type(w, source, RANK);
  vt_text_printf(w->out, "\n  %%r = \"stablehlo.select_and_scatter\"(%%a, %%i, %%z) <{");
  write_list(w, "window_dimensions", size, RANK);
  write_list(w, ", window_strides", stride, RANK);
  vt_text_printf(w->out, ", ");
  write_padding(w, windows, RANK);
  vt_text_printf(w->out,
                 "}> ({ ^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n"
                 "    %%s = stablehlo.compare %s, %%x, %%y"
                 " : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
                 "    stablehlo.return %%s : tensor<i1> }, ",
                 w->random(2) ? "GE" : "LT");
  vt_text_printf(w->out, "{ ^bb0(%%x: tensor<f32>, %%y: tensor<f32>):\n"
                         "    %%s = stablehlo.add %%x, %%y : tensor<f32>\n"
                         "    stablehlo.return %%s : tensor<f32> }) : (");
  write_type(w, w->dims, RANK);
  vt_text_printf(w->out, ", ");
  write_type(w, source, RANK);
  vt_text_printf(w->out, ", tensor<f32>) -> ");
}

// ---- convolution --------------------------------------------------------------------------------

// Dimensions by their letter: b, f, i, o, and digits for those of windows.
static void write_letters(writer *w, const char *letters) {
  for (const char *c = letters; *c; c++)
    vt_text_printf(w->out, "%s%c", c == letters ? "[" : ", ", *c);
  vt_text_printf(w->out, "]");
}

static void choose_conv_windows(writer *w, vt_window *out, int64_t *image, int64_t *result) {
  for (int d = 0; d < 2; d++) do {
      image[d] = between(w, 1, 13);
      out[d] = any_window(w, image[d], true, true);
    } while (!vt_window_output(image[d], out[d], &result[d]) || !result[d] || result[d] > 40);
}

static void place(const char *letters, char letter, int64_t size, int64_t *dims) {
  for (int d = 0; letters[d]; d++)
    if (letters[d] == letter) dims[d] = size;
}

static void write_pairs(writer *w, const char *name, int64_t a, int64_t b) {
  vt_text_printf(w->out, ", %s = [%lld, %lld]", name, (long long)a, (long long)b);
}

static void write_convolution(writer *w) {
  static const char *const orders[][3] = {
      {"b01f", "01io", "b01f"}, {"f01b", "i01o", "01bf"}, {"bf01", "oi01", "bf01"}};
  const char *const *order = orders[w->random(3)];
  vt_window v[2];
  int64_t image[2], result[2], groups = w->random(3) ? 1 : between(w, 2, 8);
  bool by_batch = groups > 1 && w->random(2);
  int64_t batch = between(w, 1, 8), in = between(w, 1, 6), out = between(w, 1, 6);
  if (groups > 1) batch = between(w, 1, 3), in = between(w, 1, 2), out = between(w, 1, 2) * groups;
  choose_conv_windows(w, v, image, result);
  place(order[0], 'b', by_batch ? batch * groups : batch, w->image);
  place(order[0], 'f', groups > 1 && !by_batch ? in * groups : in, w->image);
  place(order[1], 'i', in, w->kernel);
  place(order[1], 'o', out, w->kernel);
  place(order[2], 'b', batch, w->result);
  place(order[2], 'f', out, w->result);
  for (int d = 0; d < 2; d++) {
    place(order[0], (char)('0' + d), image[d], w->image);
    place(order[1], (char)('0' + d), v[d].size, w->kernel);
    place(order[2], (char)('0' + d), result[d], w->result);
  }
  vt_text_printf(w->out, "  %%r = stablehlo.convolution(%%a, %%k) dim_numbers = ");
  write_letters(w, order[0]);
  vt_text_printf(w->out, "x");
  write_letters(w, order[1]);
  vt_text_printf(w->out, "->");
  write_letters(w, order[2]);
  vt_text_printf(w->out, ", window = {pad = [[%lld, %lld], [%lld, %lld]]", (long long)v[0].low,
                 (long long)v[0].high, (long long)v[1].low, (long long)v[1].high);
  write_pairs(w, "stride", v[0].stride, v[1].stride);
  write_pairs(w, "lhs_dilate", v[0].base_dilation, v[1].base_dilation);
  write_pairs(w, "rhs_dilate", v[0].window_dilation, v[1].window_dilation);
  if (w->random(6) == 0) vt_text_printf(w->out, ", reverse = [true, false]");
  vt_text_printf(w->out, "} {batch_group_count = %lld : i64, feature_group_count = %lld : i64} : (",
                 (long long)(by_batch ? groups : 1), (long long)(by_batch ? 1 : groups));
  write_type(w, w->image, RANK + 1);
  vt_text_printf(w->out, ", ");
  write_type(w, w->kernel, RANK + 1);
  vt_text_printf(w->out, ") -> ");
}

// ---- moves --------------------------------------------------------------------------------------

static void write_pad(writer *w, int64_t *dims) {
  int64_t low[RANK], high[RANK], inside[RANK];
  for (int d = 0; d < RANK; d++) do {
      bool some = w->random(3) > 0;
      low[d] = some ? between(w, -6, 9) : 0;
      high[d] = some ? between(w, -6, 9) : 0;
      inside[d] = some && w->random(3) == 0 ? between(w, 1, 2) : 0;
      dims[d] = 1 + (w->dims[d] - 1) * (inside[d] + 1) + low[d] + high[d];
    } while (dims[d] < 1);
  vt_text_printf(w->out, "  %%z = stablehlo.constant dense<%d.0> : tensor<f32>\n",
                 (int)w->random(3));
  vt_text_printf(w->out, "  %%r = \"stablehlo.pad\"(%%a, %%z) <{");
  write_list(w, "edge_padding_low", low, RANK);
  write_list(w, ", edge_padding_high", high, RANK);
  write_list(w, ", interior_padding", inside, RANK);
  vt_text_printf(w->out, "}> : (");
  write_type(w, w->dims, RANK);
  vt_text_printf(w->out, ", tensor<f32>) -> ");
}

static void write_slice(writer *w, int64_t *dims) {
  int64_t start[RANK], limit[RANK], stride[RANK];
  for (int d = 0; d < RANK; d++) {
    bool some = w->random(3) > 0;
    start[d] = some ? between(w, 0, w->dims[d] - 1) : 0;
    limit[d] = some ? between(w, start[d] + 1, w->dims[d]) : w->dims[d];
    if (some && w->random(4) == 0) limit[d] = start[d] + 1; // one row
    stride[d] = some && w->random(3) == 0 ? between(w, 1, 4) : 1;
    dims[d] = (limit[d] - start[d] + stride[d] - 1) / stride[d];
  }
  vt_text_printf(w->out, "  %%r = \"stablehlo.slice\"(%%a) <{");
  write_list(w, "start_indices", start, RANK);
  write_list(w, ", limit_indices", limit, RANK);
  write_list(w, ", strides", stride, RANK);
  vt_text_printf(w->out, "}> : (");
  write_type(w, w->dims, RANK);
  vt_text_printf(w->out, ") -> ");
}

static void write_reverse(writer *w, int64_t *dims) {
  int64_t along[RANK];
  int count = 0;
  for (int d = 0; d < RANK; d++) {
    dims[d] = w->dims[d];
    if (w->random(2)) along[count++] = d;
  }
  if (!count) along[count++] = 1;
  vt_text_printf(w->out, "  %%r = \"stablehlo.reverse\"(%%a) <{");
  write_list(w, "dimensions", along, count);
  vt_text_printf(w->out, "}> : (");
  write_type(w, w->dims, RANK);
  vt_text_printf(w->out, ") -> ");
}

// A slice along one dimension, named.
static void write_part(writer *w, const char *name, int dim, int64_t from, int64_t to) {
  int64_t start[RANK] = {0}, limit[RANK], stride[RANK] = {1, 1, 1}, dims[RANK];
  for (int d = 0; d < RANK; d++) limit[d] = w->dims[d];
  start[dim] = from;
  limit[dim] = to;
  for (int d = 0; d < RANK; d++) dims[d] = limit[d] - start[d];
  vt_text_printf(w->out, "  %%%s = \"stablehlo.slice\"(%%a) <{", name);
  write_list(w, "start_indices", start, RANK);
  write_list(w, ", limit_indices", limit, RANK);
  write_list(w, ", strides", stride, RANK);
  vt_text_printf(w->out, "}> : (");
  write_type(w, w->dims, RANK);
  vt_text_printf(w->out, ") -> ");
  write_type(w, dims, RANK);
  vt_text_printf(w->out, "\n");
}

// An array with its ends changed, or between copies of its ends.
static void write_concatenate(writer *w, int64_t *dims) {
  int dim = (int)w->random(RANK);
  int64_t size = w->dims[dim], parts[2], sizes[RANK];
  bool rotate = size > 1 && w->random(2);
  for (int d = 0; d < RANK; d++) dims[d] = sizes[d] = w->dims[d];
  if (rotate) {
    int64_t at = between(w, 1, size - 1);
    write_part(w, "h", dim, at, size);
    write_part(w, "l", dim, 0, at);
    parts[0] = size - at, parts[1] = at;
  } else {
    int64_t from = between(w, 0, size - 1), start = between(w, 0, size - 1);
    parts[0] = between(w, 1, size - from), parts[1] = between(w, 1, size - start);
    write_part(w, "h", dim, from, from + parts[0]);
    write_part(w, "l", dim, start, start + parts[1]);
    dims[dim] = size + parts[0] + parts[1];
  }
  vt_text_printf(w->out,
                 "  %%r = \"stablehlo.concatenate\"(%%h, %s%%l) <{dimension = %d : i64}> : (",
                 rotate ? "" : "%a, ", dim);
  for (int i = 0; i < 3; i++) {
    if (i == 1 && rotate) continue;
    sizes[dim] = i == 1 ? size : parts[i / 2];
    write_type(w, sizes, RANK);
    if (i < 2) vt_text_printf(w->out, ", ");
  }
  vt_text_printf(w->out, ") -> ");
}

// A parameter, negated so that it may be cut unevenly.
static void write_negated(writer *w, char name, char from, const int64_t *dims, int rank) {
  vt_text_printf(w->out, "  %%%c = stablehlo.negate %%%c : ", name, from);
  write_type(w, dims, rank);
  vt_text_printf(w->out, "\n");
}

static void write_end(writer *w, const char *body, const int64_t *dims, int rank) {
  vt_text_printf(w->out, "%s", body);
  write_type(w, dims, rank);
  vt_text_printf(w->out, "\n");
  write_negated(w, 'o', 'r', dims, rank);
  vt_text_printf(w->out, "  return %%o : ");
  write_type(w, dims, rank);
  vt_text_printf(w->out, " }");
}

static void write_conv_program(writer *w) {
  vt_text body = {0}, *out = w->out;
  w->out = &body;
  write_convolution(w);
  w->out = out;
  vt_text_printf(out, "(%%p: ");
  write_type(w, w->image, RANK + 1);
  vt_text_printf(out, ", %%q: ");
  write_type(w, w->kernel, RANK + 1);
  vt_text_printf(out, ") -> ");
  write_type(w, w->result, RANK + 1);
  vt_text_printf(out, " {\n");
  write_negated(w, 'a', 'p', w->image, RANK + 1);
  write_negated(w, 'k', 'q', w->kernel, RANK + 1);
  write_end(w, vt_text_string(&body), w->result, RANK + 1);
  vt_text_free(&body);
}

void vt_write_random_windows(vt_text *out, vt_random_fn *random) {
  static void (*const ops[])(writer *, int64_t *) = {write_reduce_window, write_select_and_scatter,
                                                     write_pad,           write_slice,
                                                     write_reverse,       write_concatenate};
  vt_text body = {0};
  writer w = {.random = random, .out = out};
  int64_t dims[RANK];
  if (random(3) == 0) {
    write_conv_program(&w);
    return;
  }
  w.out = &body;
  choose_dims(&w);
  ops[random(sizeof ops / sizeof *ops)](&w, dims);
  w.out = out;
  vt_text_printf(out, "(%%p: ");
  write_type(&w, w.dims, RANK);
  vt_text_printf(out, ") -> ");
  write_type(&w, dims, RANK);
  vt_text_printf(out, " {\n");
  write_negated(&w, 'a', 'p', w.dims, RANK);
  write_end(&w, vt_text_string(&body), dims, RANK);
  vt_text_free(&body);
}
