// SPDX-License-Identifier: Apache-2.0
// validate.c - what the model predicts for the programs of published measurements.
#include "runtime/validate.h"

#include <string.h>

#include "runtime/predict.h"
#include "runtime/published.h"

typedef struct row {
  const char *group, *slice, *text, *source;
  vt_published_kind kind;
  int64_t sizes[4];
  double us;
  bool host, fitted;
} row;

enum { HELD, FITTED };

static const row rows[] = {
#define PUBLISHED(group, slice, program, us, host, half, source)                                   \
  ROW(group, slice, #program, source, us, host, half, program)
#define ROW(group, slice, text, source, us, host, half, kind, ...)                                 \
  {group, slice, text, source, VT_PUBLISHED_##kind, __VA_ARGS__, us, host, half},
#define PRODUCT(...)                                                                               \
  PRODUCT, {                                                                                       \
    __VA_ARGS__                                                                                    \
  }
#define PRODUCT_F16(...)                                                                           \
  PRODUCT_F16, {                                                                                   \
    __VA_ARGS__                                                                                    \
  }
#define ADD(...)                                                                                   \
  ADD, {                                                                                           \
    __VA_ARGS__                                                                                    \
  }
#define RELU(...)                                                                                  \
  RELU, {                                                                                          \
    __VA_ARGS__                                                                                    \
  }
#define SIGMOID(...)                                                                               \
  SIGMOID, {                                                                                       \
    __VA_ARGS__                                                                                    \
  }
#define TANH(...)                                                                                  \
  TANH, {                                                                                          \
    __VA_ARGS__                                                                                    \
  }
#define ELU(...)                                                                                   \
  ELU, {                                                                                           \
    __VA_ARGS__                                                                                    \
  }
#define NORM(...)                                                                                  \
  NORM, {                                                                                          \
    __VA_ARGS__                                                                                    \
  }
#define GATED(...)                                                                                 \
  GATED, {                                                                                         \
    __VA_ARGS__                                                                                    \
  }
#define GELU(...)                                                                                  \
  GELU, {                                                                                          \
    __VA_ARGS__                                                                                    \
  }
#define ATTENTION(...)                                                                             \
  ATTENTION, {                                                                                     \
    __VA_ARGS__                                                                                    \
  }
#define STREAM(...)                                                                                \
  STREAM, {                                                                                        \
    __VA_ARGS__                                                                                    \
  }
#define TAKE(...)                                                                                  \
  TAKE, {                                                                                          \
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
#include "chip/time/published.def"
#undef ROW
#undef PRODUCT
#undef PRODUCT_F16
#undef ADD
#undef RELU
#undef SIGMOID
#undef TANH
#undef ELU
#undef NORM
#undef GATED
#undef GELU
#undef ATTENTION
#undef STREAM
#undef TAKE
#undef GATHER
#undef SCATTER
#undef REDUCE
};

static const double host_call = 115e-6; // of a compiled program, and the wait for its result

vt_status vt_validate_program(vt_bytes program, const char *slice_name, double *out_seconds) {
  vt_slice slice;
  vt_prediction prediction;
  vt_arena arena = {0};
  VT_TRY(vt_slice_from_name(slice_name, &slice));
  vt_status st = vt_predict(program, &slice, &arena, &prediction);
  if (!st) {
    *out_seconds = prediction.timing.seconds;
    vt_prediction_free(&prediction);
  }
  vt_arena_free(&arena);
  return st;
}

static vt_status predict(const row *r, double *out_seconds) {
  vt_text text = {0};
  vt_published_program(&text, r->kind, r->sizes);
  const char *program = vt_text_string(&text);
  vt_status st = vt_validate_program((vt_bytes){(const uint8_t *)program, strlen(program)},
                                     r->slice, out_seconds);
  if (!st && r->host) *out_seconds += host_call;
  vt_text_free(&text);
  return vt_status_wrap(st, "%s on %s", r->text, r->slice);
}

vt_status vt_validate(vt_arena *arena, vt_validation **out_rows, uint32_t *out_count) {
  uint32_t count = sizeof rows / sizeof *rows;
  *out_rows = VT_NEW_ARRAY(arena, vt_validation, count);
  *out_count = count;
  for (uint32_t i = 0; i < count; i++) {
    const row *r = &rows[i];
    (*out_rows)[i] =
        (vt_validation){r->group, r->slice, r->text, r->source, r->fitted, r->us * 1e-6, 0};
    VT_TRY(predict(r, &(*out_rows)[i].predicted));
  }
  return VT_OK;
}
