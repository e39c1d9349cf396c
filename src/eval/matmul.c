// SPDX-License-Identifier: Apache-2.0
// matmul.c - batched products of contiguous matrices, real and complex.
#include <stdlib.h>
#include <string.h>

#include "eval/dot.h"

// Single dot products: 16 running sums, then a fixed tree.
#define INNER(T)                                                                                   \
  static T inner_##T(int64_t k, const T *x, const T *y) {                                          \
    T sum[16] = {0};                                                                               \
    int64_t i = 0;                                                                                 \
    for (; i + 16 <= k; i += 16)                                                                   \
      for (int j = 0; j < 16; j++) sum[j] += x[i + j] * y[i + j];                                  \
    for (int j = 0; i < k; i++, j++) sum[j] += x[i] * y[i];                                        \
    for (int half = 8; half; half /= 2)                                                            \
      for (int j = 0; j < half; j++) sum[j] += sum[j + half];                                      \
    return sum[0];                                                                                 \
  }
INNER(float)
INNER(double)

static void real_matmul(vt_dtype type, int64_t batch, int64_t m, int64_t n, int64_t k,
                        const char *x, const char *y, char *out) {
  vt_vec_matmul_fn run = vt_vec_matmul(vt_vec_class_of(type));
  int64_t bytes = (int64_t)vt_dtype_bytes(type);
  memset(out, 0, (size_t)(batch * m * n * bytes));
  for (int64_t b = 0; b < batch; b++) {
    const void *xb = x + b * m * k * bytes, *yb = y + b * k * n * bytes;
    void *to = out + b * m * n * bytes;
    if (m == 1 && n == 1 && type == VT_F32)
      *(float *)to = inner_float(k, xb, yb);
    else if (m == 1 && n == 1 && type == VT_F64)
      *(double *)to = inner_double(k, xb, yb);
    else
      run(m, n, k, xb, k, yb, n, to, n);
  }
}

#define PLANES(T)                                                                                  \
  static void split_##T(int64_t n, const T *z, T *re, T *im) {                                     \
    for (int64_t i = 0; i < n; i++) re[i] = z[2 * i], im[i] = z[2 * i + 1];                        \
  }                                                                                                \
  static void join_##T(int64_t n, const T *rr, const T *ii, const T *ri, const T *ir, T *z) {      \
    for (int64_t i = 0; i < n; i++) z[2 * i] = rr[i] - ii[i], z[2 * i + 1] = ri[i] + ir[i];        \
  }
PLANES(float)
PLANES(double)

// Four real products of the planes.
static vt_status complex_matmul(vt_dtype type, int64_t batch, int64_t m, int64_t n, int64_t k,
                                const void *x, const void *y, void *out) {
  vt_dtype part = type == VT_C64 ? VT_F32 : VT_F64;
  int64_t bytes = (int64_t)vt_dtype_bytes(part), a = batch * m * k, b = batch * k * n,
          c = batch * m * n;
  char *memory;
  VT_TRY(vt_eval_scratch((2 * a + 2 * b + 4 * c) * bytes, &memory));
  char *xr = memory, *xi = xr + a * bytes, *yr = xi + a * bytes, *yi = yr + b * bytes;
  char *p[4];
  for (int i = 0; i < 4; i++) p[i] = yi + (b + i * c) * bytes;
  if (part == VT_F32) {
    split_float(a, x, (float *)(void *)xr, (float *)(void *)xi);
    split_float(b, y, (float *)(void *)yr, (float *)(void *)yi);
  } else {
    split_double(a, x, (double *)(void *)xr, (double *)(void *)xi);
    split_double(b, y, (double *)(void *)yr, (double *)(void *)yi);
  }
  real_matmul(part, batch, m, n, k, xr, yr, p[0]);
  real_matmul(part, batch, m, n, k, xi, yi, p[1]);
  real_matmul(part, batch, m, n, k, xr, yi, p[2]);
  real_matmul(part, batch, m, n, k, xi, yr, p[3]);
  const void *q[4] = {p[0], p[1], p[2], p[3]};
  if (part == VT_F32)
    join_float(c, q[0], q[1], q[2], q[3], out);
  else
    join_double(c, q[0], q[1], q[2], q[3], out);
  free(memory);
  return VT_OK;
}

vt_status vt_dot_matmul(vt_dtype type, int64_t batch, int64_t m, int64_t n, int64_t k,
                        const void *x, const void *y, void *out) {
  if (batch * m * n == 0) return VT_OK;
  if (vt_dtype_is_complex(type)) return complex_matmul(type, batch, m, n, k, x, y, out);
  real_matmul(type, batch, m, n, k, x, y, out);
  return VT_OK;
}
