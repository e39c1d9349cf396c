// SPDX-License-Identifier: Apache-2.0
// fft.c - Fourier transforms of any length over the last one to three dimensions, in complex f64.
//
// Powers of two: iterative radix 2 with one table of roots. Other lengths: Bluestein's algorithm, a
// convolution of a power-of-two length of at least 2n - 1; up to SHORT points the direct sum.
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"

typedef double complex zdouble;
enum { SHORT = 16 };

typedef struct fft_plan {
  int64_t n, m;    // length; power of two used internally
  zdouble *roots;  // exp(-2 pi i k / m), k < m / 2
  zdouble *chirp;  // exp(-pi i k^2 / n), Bluestein
  zdouble *kernel; // transform of the chirp's conjugate, Bluestein
  zdouble *work, *line;
} fft_plan;

static zdouble root(int64_t k, int64_t n) {
  double angle = -2.0 * M_PI * (double)k / (double)n;
  return cos(angle) + sin(angle) * I;
}

static void radix2(int64_t m, const zdouble *roots, zdouble *x) {
  for (int64_t i = 1, j = 0; i < m; i++) {
    int64_t bit = m >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      zdouble t = x[i];
      x[i] = x[j];
      x[j] = t;
    }
  }
  for (int64_t len = 2; len <= m; len *= 2)
    for (int64_t at = 0; at < m; at += len)
      for (int64_t k = 0; k < len / 2; k++) {
        zdouble w = roots[k * (m / len)], a = x[at + k], b = x[at + k + len / 2];
        double re = creal(b) * creal(w) - cimag(b) * cimag(w),
               im = creal(b) * cimag(w) + cimag(b) * creal(w);
        zdouble t = re + im * I;
        x[at + k] = a + t;
        x[at + k + len / 2] = a - t;
      }
}

static void plan_free(fft_plan *p) {
  free(p->roots);
  free(p->chirp);
  free(p->kernel);
  free(p->work);
  free(p->line);
}

static vt_status plan_make(int64_t n, fft_plan *p) {
  *p = (fft_plan){.n = n, .m = 1};
  bool power = (n & (n - 1)) == 0, bluestein = !power && n > SHORT;
  while (p->m < (bluestein ? 2 * n - 1 : n)) p->m *= 2;
  int64_t bytes = (int64_t)sizeof(zdouble), table = power || bluestein ? p->m : 2 * n;
  VT_TRY(vt_eval_scratch(table * bytes, &p->roots));
  VT_TRY(vt_eval_scratch(n * bytes, &p->line));
  VT_TRY(vt_eval_scratch(p->m * bytes, &p->work));
  if (!power && !bluestein) {
    for (int64_t k = 0; k < n; k++) p->roots[k] = root(k, n);
    p->m = 0;
    return VT_OK;
  }
  for (int64_t k = 0; k < p->m / 2 + 1; k++) p->roots[k] = root(k, p->m);
  if (power) return VT_OK;
  VT_TRY(vt_eval_scratch(n * bytes, &p->chirp));
  VT_TRY(vt_eval_scratch(p->m * bytes, &p->kernel));
  memset(p->kernel, 0, (size_t)(p->m * bytes));
  for (int64_t k = 0; k < n; k++) {
    // k^2 mod 2n keeps the angle small and exact.
    p->chirp[k] = root((int64_t)((uint64_t)k * (uint64_t)k % (uint64_t)(2 * n)), 2 * n);
    p->kernel[k] = conj(p->chirp[k]);
    if (k) p->kernel[p->m - k] = p->kernel[k];
  }
  radix2(p->m, p->roots, p->kernel);
  return VT_OK;
}

// The forward transform of p->line in place.
static void forward(fft_plan *p) {
  int64_t n = p->n, m = p->m;
  zdouble *x = p->line, *w = p->work;
  if (!m) {
    for (int64_t k = 0; k < n; k++) {
      zdouble s = 0;
      for (int64_t j = 0; j < n; j++) s += x[j] * p->roots[j * k % n];
      w[k] = s;
    }
    memcpy(x, w, sizeof *x * (size_t)n);
    return;
  }
  if (!p->chirp) {
    radix2(m, p->roots, x);
    return;
  }
  for (int64_t k = 0; k < n; k++) w[k] = x[k] * p->chirp[k];
  memset(w + n, 0, sizeof *w * (size_t)(m - n));
  radix2(m, p->roots, w);
  // The inverse transform is the forward one of the conjugate.
  for (int64_t k = 0; k < m; k++) w[k] = conj(w[k] * p->kernel[k]);
  radix2(m, p->roots, w);
  for (int64_t k = 0; k < n; k++) x[k] = conj(w[k]) / (double)m * p->chirp[k];
}

// Transforms each line along dimension d of a dense array.
static vt_status along(vt_type shape, int32_t d, bool inverse, zdouble *data) {
  int64_t n = shape.dims[d], step = 1, total = vt_type_elements(shape);
  for (int32_t i = d + 1; i < shape.rank; i++) step *= shape.dims[i];
  if (n <= 1 || !total) return VT_OK;
  fft_plan p;
  vt_status st = plan_make(n, &p);
  for (int64_t at = 0; at < total && !st; at += n * step)
    for (int64_t s = 0; s < step; s++) {
      zdouble *line = data + at + s;
      for (int64_t k = 0; k < n; k++) p.line[k] = inverse ? conj(line[k * step]) : line[k * step];
      forward(&p);
      for (int64_t k = 0; k < n; k++)
        line[k * step] = inverse ? conj(p.line[k]) / (double)n : p.line[k];
    }
  plan_free(&p);
  return st;
}

// Copies the first columns of lines of `from_n` to lines of `to_n`, or fills in the mirrored half
// of a line (irfft).
static void reline(int64_t lines, int64_t from_n, int64_t to_n, bool mirror, const zdouble *from,
                   zdouble *to) {
  for (int64_t l = 0; l < lines; l++)
    for (int64_t k = 0; k < to_n; k++) {
      const zdouble *line = from + l * from_n;
      bool real_bin = k == 0 || 2 * k == to_n;
      if (!mirror)
        to[l * to_n + k] = line[k];
      else if (2 * k > to_n)
        to[l * to_n + k] = conj(line[to_n - k]);
      else
        to[l * to_n + k] = real_bin ? creal(line[k]) : line[k];
    }
}

vt_status vt_eval_fft(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_tensor in = call->in[0], *out = &call->out[0];
  int64_t kind = vt_attr_i64(op, VT_ATTR_FFT_TYPE), full_dims[VT_MAX_RANK];
  uint32_t count;
  const int64_t *length = vt_attr_ints(op, VT_ATTR_FFT_LENGTH, &count);
  int32_t rank = in.type.rank;
  if (count < 1 || (int64_t)count > rank) return vt_eval_invalid(op, "fft_length");
  bool inverse = kind == VT_FFT_IFFT || kind == VT_FFT_IRFFT;
  for (int32_t d = 0; d < rank; d++)
    full_dims[d] = d < rank - (int32_t)count ? in.type.dims[d] : length[d - rank + (int32_t)count];
  vt_type full = {VT_C128, rank, full_dims};
  int64_t n = vt_type_elements(full), in_n = vt_type_elements(in.type),
          out_n = vt_type_elements(out->type);
  int64_t last = full_dims[rank - 1], half = last / 2 + 1;
  int64_t lines = last ? n / last : 0;
  int64_t want_in = kind == VT_FFT_IRFFT ? lines * half : n,
          want_out = kind == VT_FFT_RFFT ? lines * half : n;
  if (want_in != in_n || want_out != out_n) return vt_eval_invalid(op, "shapes");
  if (!n) return VT_OK;
  zdouble *x = NULL, *y = NULL;
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_eval_scratch((in_n > n ? in_n : n) * (int64_t)sizeof *x, &x));
  VT_TRY_OUT(vt_eval_scratch(n * (int64_t)sizeof *y, &y));
  VT_TRY_OUT(vt_eval_convert_array(in.type.dtype, VT_C128, in_n, in.data, x));
  vt_type shape = full;
  if (kind == VT_FFT_IRFFT)
    shape.dims = in.type.dims; // the other dimensions first, on the half spectrum
  for (int32_t d = rank - (int32_t)count; d < rank - 1; d++)
    VT_TRY_OUT(along(shape, d, inverse, x));
  if (kind == VT_FFT_IRFFT) {
    reline(lines, half, last, true, x, y);
    zdouble *t = x;
    x = y;
    y = t;
  }
  VT_TRY_OUT(along(full, rank - 1, inverse, x));
  if (kind == VT_FFT_RFFT) {
    reline(lines, last, half, false, x, y);
    VT_TRY_OUT(vt_eval_convert_array(VT_C128, out->type.dtype, out_n, y, out->data));
  } else {
    VT_TRY_OUT(vt_eval_convert_array(VT_C128, out->type.dtype, out_n, x, out->data));
  }
out:
  free(x);
  free(y);
  return st;
}
