// SPDX-License-Identifier: Apache-2.0
// validate.c - the programs of published measurements, and what the model predicts for them.
#include "runtime/validate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/predict.h"

typedef enum program_kind { PRODUCT, STREAM, GATHER, SCATTER, REDUCE } program_kind;
typedef struct row {
  const char *group, *slice, *text, *source;
  program_kind kind;
  int64_t sizes[4];
  double us;
  bool host;
} row;

static const row rows[] = {
#define PRODUCT(...)                                                                               \
  PRODUCT, {                                                                                       \
    __VA_ARGS__                                                                                    \
  }
#define STREAM(...)                                                                                \
  STREAM, {                                                                                        \
    __VA_ARGS__                                                                                    \
  }
#define GATHER(...)                                                                                \
  GATHER, {                                                                                        \
    __VA_ARGS__                                                                                    \
  }
#define SCATTER(...)                                                                               \
  SCATTER, {                                                                                       \
    __VA_ARGS__                                                                                    \
  }
#define REDUCE(...)                                                                                \
  REDUCE, {                                                                                        \
    __VA_ARGS__                                                                                    \
  }
#define PUBLISHED(group, slice, program, us, host, source)                                         \
  ROW(group, slice, #program, source, us, host, program)
#define ROW(group, slice, text, source, us, host, kind, ...)                                       \
  {group, slice, text, source, kind, __VA_ARGS__, us, host},
#include "chip/time/published.def"
#undef ROW
#undef PRODUCT
#undef STREAM
#undef GATHER
#undef SCATTER
#undef REDUCE
};

static const double host_call = 115e-6; // of a compiled program, and the wait for its result

static void put_product(vt_text *t, const int64_t *n) {
  char a[64], b[64], c[64];
  snprintf(a, sizeof a, "tensor<%" PRId64 "x%" PRId64 "xbf16>", n[0], n[1]);
  snprintf(b, sizeof b, "tensor<%" PRId64 "x%" PRId64 "xbf16>", n[1], n[2]);
  snprintf(c, sizeof c, "tensor<%" PRId64 "x%" PRId64 "xbf16>", n[0], n[2]);
  vt_text_printf(t,
                 "module { func.func public @main(%%a: %s, %%b: %s) -> %s {\n"
                 "%%c = stablehlo.dot_general %%a, %%b, contracting_dims = [1] x [0] : (%s, %s) -> "
                 "%s\nreturn %%c : %s } }\n",
                 a, b, c, a, b, c, c);
}

static void put_stream(vt_text *t, const int64_t *n) {
  char a[64];
  snprintf(a, sizeof a, "tensor<%" PRId64 "x1024xbf16>", n[0] / 2048);
  vt_text_printf(t,
                 "module { func.func public @main(%%a: %s) -> %s {\n"
                 "%%b = stablehlo.negate %%a : %s\nreturn %%b : %s } }\n",
                 a, a, a, a);
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

static void put_collective(vt_text *t, program_kind kind, const int64_t *n) {
  int64_t own = n[0] / 2, from = kind == SCATTER ? own * n[1] : own;
  int64_t to = kind == GATHER ? own * n[1] : own;
  vt_text_printf(
      t,
      "module attributes {mhlo.num_replicas = %" PRId64
      " : i32, mhlo.num_partitions = 1 : i32} { func.func public @main(%%a: tensor<%" PRId64
      "xbf16>) -> tensor<%" PRId64 "xbf16> {\n%%b = \"stablehlo.%s\"(%%a) ",
      n[3], from, to,
      kind == GATHER    ? "all_gather"
      : kind == SCATTER ? "reduce_scatter"
                        : "all_reduce");
  if (kind != GATHER)
    vt_text_put(t, "({ ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):\n"
                   "%s = stablehlo.add %x, %y : tensor<bf16>\n"
                   "stablehlo.return %s : tensor<bf16> }) ");
  vt_text_put(t, "{replica_groups = ");
  put_groups(t, n);
  vt_text_printf(t,
                 "%s} : (tensor<%" PRId64 "xbf16>) -> tensor<%" PRId64
                 "xbf16>\nreturn %%b : tensor<%" PRId64 "xbf16> } }\n",
                 kind == GATHER    ? ", all_gather_dim = 0 : i64"
                 : kind == SCATTER ? ", scatter_dimension = 0 : i64"
                                   : "",
                 from, to, to);
}

static vt_status predict(const row *r, double *out_seconds) {
  vt_slice slice;
  vt_prediction prediction;
  vt_text text = {0};
  vt_arena arena = {0};
  VT_TRY(vt_slice_from_name(r->slice, &slice));
  if (r->kind == PRODUCT)
    put_product(&text, r->sizes);
  else if (r->kind == STREAM)
    put_stream(&text, r->sizes);
  else
    put_collective(&text, r->kind, r->sizes);
  const char *program = vt_text_string(&text);
  vt_status st = vt_predict((vt_bytes){(const uint8_t *)program, strlen(program)}, &slice, &arena,
                            &prediction);
  if (!st) {
    *out_seconds = prediction.timing.seconds + (r->host ? host_call : 0);
    vt_prediction_free(&prediction);
  }
  vt_arena_free(&arena);
  vt_text_free(&text);
  return vt_status_wrap(st, "%s on %s", r->text, r->slice);
}

vt_status vt_validate(vt_arena *arena, vt_validation **out_rows, uint32_t *out_count) {
  uint32_t count = sizeof rows / sizeof *rows;
  *out_rows = VT_NEW_ARRAY(arena, vt_validation, count);
  *out_count = count;
  for (uint32_t i = 0; i < count; i++) {
    const row *r = &rows[i];
    (*out_rows)[i] = (vt_validation){r->group, r->slice, r->text, r->source, r->us * 1e-6, 0};
    VT_TRY(predict(r, &(*out_rows)[i].predicted));
  }
  return VT_OK;
}
