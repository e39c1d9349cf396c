// SPDX-License-Identifier: Apache-2.0
// published.c - the programs of published measurements, as their authors' JAX programs lower.
#include "runtime/published.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// A program in the making: values are numbered in the order in which they are made.
typedef struct program {
  vt_text *text;
  int next;
} program;

typedef struct type {
  char text[96];
} type;

static type type_of(const char *element, int rank, const int64_t *dims) {
  type t = {"tensor<"};
  size_t at = strlen(t.text);
  for (int i = 0; i < rank; i++)
    at += (size_t)snprintf(t.text + at, sizeof t.text - at, "%" PRId64 "x", dims[i]);
  snprintf(t.text + at, sizeof t.text - at, "%s>", element);
  return t;
}

static type type_1(const char *element, int64_t a) {
  return type_of(element, 1, (int64_t[]){a});
}

static type type_2(const char *element, int64_t a, int64_t b) {
  return type_of(element, 2, (int64_t[]){a, b});
}

static type type_3(const char *element, int64_t a, int64_t b, int64_t c) {
  return type_of(element, 3, (int64_t[]){a, b, c});
}

// Operators on values of one type; negative operands are arguments -1, -2, ...
static const char *name_of(char *buffer, size_t size, int value) {
  snprintf(buffer, size, value < 0 ? "%%a%d" : "%%v%d", value < 0 ? -value : value);
  return buffer;
}

static int apply(program *p, const char *op, type t, int x, int y) {
  char a[16], b[16];
  vt_text_printf(p->text, "%%v%d = stablehlo.%s %s", p->next, op, name_of(a, sizeof a, x));
  if (y) vt_text_printf(p->text, ", %s", name_of(b, sizeof b, y));
  vt_text_printf(p->text, " : %s\n", t.text);
  return p->next++;
}

static int convert(program *p, type from, type to, int x) {
  char a[16];
  vt_text_printf(p->text, "%%v%d = stablehlo.convert %s : (%s) -> %s\n", p->next,
                 name_of(a, sizeof a, x), from.text, to.text);
  return p->next++;
}

static int splat(program *p, type t, const char *value) {
  vt_text_printf(p->text, "%%v%d = stablehlo.constant dense<%s> : %s\n", p->next, value, t.text);
  return p->next++;
}

static int broadcast(program *p, type from, type to, const char *dims, int x) {
  char a[16];
  vt_text_printf(p->text, "%%v%d = stablehlo.broadcast_in_dim %s, dims = [%s] : (%s) -> %s\n",
                 p->next, name_of(a, sizeof a, x), dims, from.text, to.text);
  return p->next++;
}

static int reduce(program *p, const char *op, const char *element, type from, type to, int x) {
  char a[16];
  int start = splat(p, type_of(element, 0, NULL), op[0] == 'm' ? "0xFF800000" : "0.0");
  vt_text_printf(
      p->text,
      "%%v%d = stablehlo.reduce(%s init: %%v%d) applies stablehlo.%s across dimensions = "
      "[2] : (%s, tensor<%s>) -> %s\n",
      p->next, name_of(a, sizeof a, x), start, op, from.text, element, to.text);
  return p->next++;
}

static int dot(program *p, const char *dims, type left, type right, type to, int x, int y) {
  char a[16], b[16];
  vt_text_printf(p->text, "%%v%d = stablehlo.dot_general %s, %s, %s : (%s, %s) -> %s\n", p->next,
                 name_of(a, sizeof a, x), name_of(b, sizeof b, y), dims, left.text, right.text,
                 to.text);
  return p->next++;
}

static const char rows_by_columns[] = "contracting_dims = [1] x [0]";

static program begin(vt_text *text, int count, const type *arguments, type result) {
  vt_text_put(text, "module { func.func public @main(");
  for (int i = 0; i < count; i++)
    vt_text_printf(text, "%s%%a%d: %s", i ? ", " : "", i + 1, arguments[i].text);
  vt_text_printf(text, ") -> %s {\n", result.text);
  return (program){text, 1};
}

static void end(program *p, type result, int value) {
  vt_text_printf(p->text, "return %%v%d : %s } }\n", value, result.text);
}

static void put_product(vt_text *text, const char *element, const int64_t *n) {
  type a = type_2(element, n[0], n[1]), b = type_2(element, n[1], n[2]);
  type c = type_2(element, n[0], n[2]);
  program p = begin(text, 2, (type[]){a, b}, c);
  end(&p, c, dot(&p, rows_by_columns, a, b, c, -1, -2));
}

static int elu(program *p, type t) {
  type truth = t;
  char *element = strstr(truth.text, "f16");
  snprintf(element, 4, "i1>");
  int zero = splat(p, t, "0.0"), one = splat(p, t, "1.0"), is = p->next++;
  vt_text_printf(p->text, "%%v%d = stablehlo.compare GT, %%a1, %%v%d : (%s, %s) -> %s\n", is, zero,
                 t.text, t.text, truth.text);
  int less = apply(p, "subtract", t, apply(p, "exponential", t, -1, 0), one);
  vt_text_printf(p->text, "%%v%d = stablehlo.select %%v%d, %%a1, %%v%d : %s, %s\n", p->next, is,
                 less, truth.text, t.text);
  return p->next++;
}

static void put_elementwise(vt_text *text, vt_published_kind kind, const int64_t *n) {
  int rank = n[2] > 1 ? 3 : n[1] > 1 ? 2 : 1, last;
  type t = type_of("f16", rank, n);
  program p = begin(text, kind == VT_PUBLISHED_ADD ? 2 : 1, (type[]){t, t}, t);
  if (kind == VT_PUBLISHED_ADD)
    last = apply(&p, "add", t, -1, -2);
  else if (kind == VT_PUBLISHED_RELU)
    last = apply(&p, "maximum", t, -1, splat(&p, t, "0.0"));
  else if (kind == VT_PUBLISHED_TANH)
    last = apply(&p, "tanh", t, -1, 0);
  else if (kind == VT_PUBLISHED_ELU)
    last = elu(&p, t);
  else {
    int one = splat(&p, t, "1.0");
    int e = apply(&p, "exponential", t, apply(&p, "negate", t, -1, 0), 0);
    last = apply(&p, "divide", t, one, apply(&p, "add", t, one, e));
  }
  end(&p, t, last);
}

// Mean and variance in f32, the rest in f16, the result in f32.
static void put_norm(vt_text *text, const int64_t *n) {
  type half = type_3("f16", n[0], n[1], n[2]), full = type_3("f32", n[0], n[1], n[2]);
  type row = type_2("f32", n[0], n[1]), small = type_2("f16", n[0], n[1]);
  char count[32];
  snprintf(count, sizeof count, "%" PRId64 ".0", n[2]);
  program p = begin(text, 1, &half, full);
  int x = convert(&p, half, full, -1), elements = splat(&p, row, count);
  int mean = apply(&p, "divide", row, reduce(&p, "add", "f32", full, row, x), elements);
  int gap = apply(&p, "subtract", full, x, broadcast(&p, row, full, "0, 1", mean));
  int sum = reduce(&p, "add", "f32", full, row, apply(&p, "multiply", full, gap, gap));
  int variance = convert(&p, row, small, apply(&p, "divide", row, sum, elements));
  int root =
      apply(&p, "sqrt", small, apply(&p, "add", small, variance, splat(&p, small, "1.0e-05")), 0);
  int middle = broadcast(&p, small, half, "0, 1", convert(&p, row, small, mean));
  int away = apply(&p, "subtract", half, -1, middle);
  int scaled = apply(&p, "divide", half, away, broadcast(&p, small, half, "0, 1", root));
  end(&p, full,
      apply(&p, "multiply", full, convert(&p, half, full, scaled), splat(&p, full, "1.0")));
}

static void put_gated(vt_text *text, const int64_t *n) {
  type x = type_2("bf16", n[0], n[1]), up = type_2("bf16", n[1], 2 * n[2]);
  type down = type_2("bf16", n[2], n[1]), wide = type_2("bf16", n[0], 2 * n[2]);
  type hidden = type_2("bf16", n[0], n[2]);
  program p = begin(text, 3, (type[]){x, up, down}, x);
  int both = dot(&p, rows_by_columns, x, up, wide, -1, -2), halves[2];
  for (int i = 0; i < 2; i++) {
    halves[i] = p.next++;
    vt_text_printf(text,
                   "%%v%d = stablehlo.slice %%v%d [0:%" PRId64 ", %" PRId64 ":%" PRId64
                   "] : (%s) -> %s\n",
                   halves[i], both, n[0], i * n[2], (i + 1) * n[2], wide.text, hidden.text);
  }
  int gate = apply(&p, "multiply", hidden, halves[0], apply(&p, "logistic", hidden, halves[0], 0));
  int y = apply(&p, "multiply", hidden, gate, halves[1]);
  end(&p, x, dot(&p, rows_by_columns, hidden, down, x, y, -3));
}

static void put_gelu(vt_text *text, const int64_t *n) {
  type x = type_2("bf16", n[0], n[1]), up = type_2("bf16", n[1], n[2]);
  type down = type_2("bf16", n[2], n[1]), hidden = type_2("bf16", n[0], n[2]);
  type wide = type_1("bf16", n[2]), narrow = type_1("bf16", n[1]);
  program p = begin(text, 5, (type[]){x, up, wide, down, narrow}, x);
  int y = apply(&p, "add", hidden, dot(&p, rows_by_columns, x, up, hidden, -1, -2),
                broadcast(&p, wide, hidden, "1", -3));
  int scaled = apply(&p, "multiply", hidden, y, splat(&p, hidden, "0.7071"));
  int erf = p.next++;
  vt_text_printf(text, "%%v%d = chlo.erf %%v%d : %s -> %s\n", erf, scaled, hidden.text,
                 hidden.text);
  int share = apply(&p, "add", hidden, erf, splat(&p, hidden, "1.0"));
  int half = apply(&p, "multiply", hidden, y, splat(&p, hidden, "0.5"));
  int z = dot(&p, rows_by_columns, hidden, down, x, apply(&p, "multiply", hidden, half, share), -4);
  end(&p, x, apply(&p, "add", x, z, broadcast(&p, narrow, x, "1", -5)));
}

static void put_attention(vt_text *text, const int64_t *n) {
  type x = type_3("bf16", n[0], n[1], n[2]), scores = type_3("f32", n[0], n[1], n[1]);
  type weights = type_3("bf16", n[0], n[1], n[1]), row = type_2("f32", n[0], n[1]);
  program p = begin(text, 3, (type[]){x, x, x}, x);
  int s = dot(&p, "batching_dims = [0] x [0], contracting_dims = [2] x [2]", x, x, scores, -1, -2);
  s = apply(&p, "multiply", scores, s, splat(&p, scores, "0.125"));
  int most = broadcast(&p, row, scores, "0, 1", reduce(&p, "maximum", "f32", scores, row, s));
  int e = apply(&p, "exponential", scores, apply(&p, "subtract", scores, s, most), 0);
  int sum = broadcast(&p, row, scores, "0, 1", reduce(&p, "add", "f32", scores, row, e));
  int w = convert(&p, scores, weights, apply(&p, "divide", scores, e, sum));
  end(&p, x,
      dot(&p, "batching_dims = [0] x [0], contracting_dims = [2] x [1]", weights, x, x, w, -3));
}

static void put_stream(vt_text *t, const int64_t *n) {
  char a[64];
  snprintf(a, sizeof a, "tensor<%" PRId64 "x1024xbf16>", n[0] / 2048);
  vt_text_printf(t,
                 "module { func.func public @main(%%a: %s) -> %s {\n"
                 "%%b = stablehlo.negate %%a : %s\nreturn %%b : %s } }\n",
                 a, a, a, a);
}

static void put_take(vt_text *t, const int64_t *n) {
  char table[64], at[64], in[64], rows[64];
  snprintf(table, sizeof table, "tensor<%" PRId64 "x%" PRId64 "xi32>", n[0], n[1]);
  snprintf(at, sizeof at, "tensor<%" PRId64 "x1xi32>", n[2]);
  snprintf(in, sizeof in, "tensor<%" PRId64 "xi1>", n[2]);
  snprintf(rows, sizeof rows, "tensor<%" PRId64 "x%" PRId64 "xi32>", n[2], n[1]);
  vt_text_printf(t,
                 "module { func.func public @main(%%t: %s, %%i: %s) -> %s {\n"
                 "%%end = stablehlo.constant dense<%" PRId64 "> : %s\n"
                 "%%none = stablehlo.constant dense<-2147483648> : %s\n"
                 "%%c = stablehlo.compare LT, %%i, %%end, UNSIGNED : (%s, %s) -> tensor<%" PRId64
                 "x1xi1>\n%%in = stablehlo.reshape %%c : (tensor<%" PRId64 "x1xi1>) -> %s\n",
                 table, at, rows, n[0], at, rows, at, at, n[2], n[2], in);
  vt_text_printf(t,
                 "%%r = \"stablehlo.gather\"(%%t, %%i) <{dimension_numbers = #stablehlo.gather<"
                 "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
                 "index_vector_dim = 1>, slice_sizes = array<i64: 1, %" PRId64 ">}> : (%s, %s) -> "
                 "%s\n",
                 n[1], table, at, rows);
  vt_text_printf(t,
                 "%%b = stablehlo.broadcast_in_dim %%in, dims = [0] : (%s) -> tensor<%" PRId64
                 "x%" PRId64 "xi1>\n%%s = stablehlo.select %%b, %%r, %%none : tensor<%" PRId64
                 "x%" PRId64 "xi1>, %s\nreturn %%s : %s } }\n",
                 in, n[2], n[1], n[2], n[1], rows, rows);
}

// Groups of n[1] devices that are n[2] apart, of n[3] devices.
static void put_groups(vt_text *t, const int64_t *n) {
  vt_text_put(t, "dense<[");
  for (int64_t g = 0, made = 0; made < n[3] / n[1]; g++) {
    if (g / n[2] % n[1]) continue; // a later member of a group
    for (int64_t i = 0; i < n[1]; i++)
      vt_text_printf(t, "%s%" PRId64, i ? ", " : made ? ", [" : "[", g + i * n[2]);
    vt_text_put(t, "]");
    made++;
  }
  vt_text_printf(t, "]> : tensor<%" PRId64 "x%" PRId64 "xi64>", n[3] / n[1], n[1]);
}

static void put_collective(vt_text *t, vt_published_kind kind, const int64_t *n) {
  int64_t own = n[0] / 2, from = kind == VT_PUBLISHED_SCATTER ? own * n[1] : own;
  int64_t to = kind == VT_PUBLISHED_GATHER ? own * n[1] : own;
  vt_text_printf(
      t,
      "module attributes {mhlo.num_replicas = %" PRId64
      " : i32, mhlo.num_partitions = 1 : i32} { func.func public @main(%%a: tensor<%" PRId64
      "xbf16>) -> tensor<%" PRId64 "xbf16> {\n%%b = \"stablehlo.%s\"(%%a) ",
      n[3], from, to,
      kind == VT_PUBLISHED_GATHER    ? "all_gather"
      : kind == VT_PUBLISHED_SCATTER ? "reduce_scatter"
                                     : "all_reduce");
  if (kind != VT_PUBLISHED_GATHER)
    vt_text_put(t, "({ ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):\n"
                   "%s = stablehlo.add %x, %y : tensor<bf16>\n"
                   "stablehlo.return %s : tensor<bf16> }) ");
  vt_text_put(t, "{replica_groups = ");
  put_groups(t, n);
  vt_text_printf(t,
                 "%s} : (tensor<%" PRId64 "xbf16>) -> tensor<%" PRId64
                 "xbf16>\nreturn %%b : tensor<%" PRId64 "xbf16> } }\n",
                 kind == VT_PUBLISHED_GATHER    ? ", all_gather_dim = 0 : i64"
                 : kind == VT_PUBLISHED_SCATTER ? ", scatter_dimension = 0 : i64"
                                                : "",
                 from, to, to);
}

void vt_published_program(vt_text *text, vt_published_kind kind, const int64_t sizes[4]) {
  switch (kind) {
  case VT_PUBLISHED_PRODUCT:
  case VT_PUBLISHED_PRODUCT_F16:
    put_product(text, kind == VT_PUBLISHED_PRODUCT ? "bf16" : "f16", sizes);
    return;
  case VT_PUBLISHED_NORM:
    put_norm(text, sizes);
    return;
  case VT_PUBLISHED_GATED:
    put_gated(text, sizes);
    return;
  case VT_PUBLISHED_GELU:
    put_gelu(text, sizes);
    return;
  case VT_PUBLISHED_ATTENTION:
    put_attention(text, sizes);
    return;
  case VT_PUBLISHED_STREAM:
    put_stream(text, sizes);
    return;
  case VT_PUBLISHED_TAKE:
    put_take(text, sizes);
    return;
  case VT_PUBLISHED_GATHER:
  case VT_PUBLISHED_SCATTER:
  case VT_PUBLISHED_REDUCE:
    put_collective(text, kind, sizes);
    return;
  default:
    put_elementwise(text, kind, sizes);
  }
}
