// SPDX-License-Identifier: Apache-2.0
// fft.h - Fourier transforms of many lines at once: plans, and the code that runs a group of lines.
// Internal to kernel_fft.c and its helpers.
//
// A vector holds the same element of as many lines as it has lanes, real and imaginary parts apart,
// so a transform is written as for one line and needs no shuffles. Lines are converted to that form
// when read, and back when written.
#ifndef VT_HOST_FFT_H
#define VT_HOST_FFT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { VT_FFT_LANES = 16, VT_FFT_PASSES = 64 }; // most lanes of any vector

// How to transform a line of n points. Tables are complex numbers of the plan's precision.
typedef struct vt_fft vt_fft;
struct vt_fft {
  int64_t n;
  bool wide; // f64, else f32
  // Radices, in order, with the roots by which each pass multiplies: [points left][radix - 1].
  int32_t passes;
  int32_t radix[VT_FFT_PASSES];
  const void *twiddles[VT_FFT_PASSES];
  const void *roots[VT_FFT_PASSES]; // of a radix without specialized code: exp(-2 pi i k / radix)
  // Bluestein's algorithm: a convolution by transforms of another length, where n has a large prime
  // factor.
  const vt_fft *inner;
  const void *chirp, *kernel;
  // A long line as a matrix: transforms along its columns, twiddle factors [column][row], then
  // transforms along its rows.
  const vt_fft *columns, *rows;
  const void *turns;
};

// `split`: as a matrix where the length allows it, which is faster for few or long lines.
const vt_fft *vt_fft_make(vt_arena *arena, int64_t n, bool wide, bool split);
// exp(-2 pi i k / n) for k < count.
const void *vt_fft_roots(vt_arena *arena, int64_t n, int64_t count, bool wide);
// True when vectors of all the line's elements stay in cache; longer lines are split.
int64_t vt_fft_short(bool wide);

typedef enum vt_fft_kind {
  VT_FFT_COMPLEX,
  VT_FFT_HALVE, // real lines of 2n points, read as n complex ones; n + 1 points of the spectrum
  VT_FFT_JOIN,  // the inverse of that
  VT_FFT_REAL,  // real lines of n points (odd); n / 2 + 1 points of the spectrum
  VT_FFT_ODD,   // the inverse of that
} vt_fft_kind;

// The transform of up to as many lines as there are lanes. Distances in real numbers of the plan's
// precision. Lines may be transformed in place.
typedef struct vt_fft_group {
  const vt_fft *plan; // not split
  vt_fft_kind kind;
  bool inverse;
  int32_t lines;
  const void *in;
  void *out;
  int64_t in_at[VT_FFT_LANES], out_at[VT_FFT_LANES]; // where each line begins
  int64_t in_step, out_step;                         // between points of a line
  const void *turns;                                 // factors for [point][line]; or NULL
  int64_t turns_step;                                // numbers from point to point
  const void *half_roots;                            // HALVE, JOIN: exp(-2 pi i k / 2n)
  double scale;
} vt_fft_group;

typedef struct vt_fft_code {
  int32_t lanes;
  void (*run)(const vt_fft_group *group, void *scratch); // of vt_fft_scratch bytes, 64-byte aligned
  // For a line that is split: what run does before and after the transform, for line 0 alone, into
  // and out of complex numbers next to each other.
  void (*load)(const vt_fft_group *group, int64_t n, void *line);
  void (*store)(const vt_fft_group *group, int64_t n, void *line);
  // line[k] = line[k] * factors[k], then its conjugate; or the conjugate, then the product.
  void (*multiply)(int64_t n, void *line, const void *factors, bool conjugate_first,
                   bool conjugate_last);
} vt_fft_code;

const vt_fft_code *vt_fft_code_of(bool wide); // for this processor
int64_t vt_fft_scratch(const vt_fft *plan);   // for a plan that is not split

#endif
