// SPDX-License-Identifier: Apache-2.0
// conv_pairs.c - see weight_gradient.h. How: an instruction multiplies pairs of bf16 numbers and
// adds both products to a sum. So two pixels of the gradient go together, and the two of the input
// under the same tap. Neighbours would be other pairs under each tap; a pixel and the same pixel of
// the next image (or, of an odd batch, of the image's lower half) stay a pair under all of them.
//
// A task has some channels, some features and a piece of the pairs, which it walks in chunks that
// stay in the second cache: it zips both arrays' rows into panels, 16 channels or 64 features wide,
// then adds the products of up to 6 channels and 64 features, in registers, over the whole chunk.
// Tasks of one piece write the result itself, others their own sums, which are added in order.
// Where there are few channels, taps along a line are channels: they follow each other in memory.
#include <immintrin.h>
#include <omp.h>
#include <string.h>

#include "host/cpu.h"
#include "host/weight_gradient.h"

#define PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum {
  LANES = 16,
  LINE = 32,     // elements of a line of the cache
  CHANNELS = 16, // of a panel
  VECTORS = 4,   // of a panel of features
  ROWS = 6,      // channels whose sums are in registers
  AHEAD = 12,    // pixels that are fetched before they are zipped
  CHUNK = 256,   // pairs of pixels, about
  BLOCK_CHANNELS = 256,
  BLOCK_FEATURES = 256,
  BLOCK_SUMS = 96 << 10,  // of a task
  PIECE_SUMS = 768 << 10, // of all pieces
  LEAST_TASKS = 8,
  LEAST_PRODUCTS = 1 << 20,
  MOST_BYTES = 4 << 20, // laid out by a thread
};

typedef struct pairs {
  vt_weight_gradient conv; // taps along a line may be channels
  bool lines;              // they are
  int32_t threads;
  int64_t pixel;          // channels of a pixel in a panel
  int64_t images, height; // pairs of images, or of halves of images; rows of each
  bool halves;
  int64_t step[2], skip[2];    // from one output to the next: laid out; in the input's pixels
  int64_t rows, group, chunks; // of a chunk: rows of a pair of images, pairs of images
  int64_t width;               // columns of the input that a row needs
  int64_t block_channels, block_features, channel_blocks, feature_blocks, pieces;
  int64_t input_elements, thread_elements; // laid out, for a task
  int64_t sums, scratch_bytes;             // floats of the result; of sums and tasks
} pairs;

// Sums of R channels and V vectors of features over some rows of some images.
typedef struct tile {
  const uint16_t *input, *gradient;
  int64_t images, rows, columns;
  int64_t image_step, row_step, column_step; // of the input, in elements
  float *sums;
  int64_t sums_row;
  bool first;
} tile;

PAIRS static inline __attribute__((always_inline)) void multiply(const tile *t, int R, int V) {
  __m512 sums[ROWS][VECTORS];
#pragma GCC unroll 6
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < V; j++)
      sums[i][j] =
          t->first ? _mm512_setzero_ps() : _mm512_loadu_ps(t->sums + i * t->sums_row + j * LANES);
  const uint16_t *right = t->gradient;
  for (int64_t n = 0; n < t->images; n++)
    for (int64_t y = 0; y < t->rows; y++) {
      const uint16_t *left = t->input + n * t->image_step + y * t->row_step;
      for (int64_t x = 0; x < t->columns; x++) {
        __m512bh b[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < V; j++) b[j] = (__m512bh)_mm512_load_si512(right + j * 2 * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < R; i++) {
          int32_t pair;
          memcpy(&pair, left + 2 * i, sizeof pair);
          __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
          for (int j = 0; j < V; j++) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], a, b[j]);
        }
        left += t->column_step;
        right += V * 2 * LANES;
      }
    }
#pragma GCC unroll 6
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < V; j++) _mm512_storeu_ps(t->sums + i * t->sums_row + j * LANES, sums[i][j]);
}

#define MULTIPLY(R, V)                                                                             \
  PAIRS static void multiply_##R##_##V(const tile *t) {                                            \
    multiply(t, R, V);                                                                             \
  }
#define MULTIPLY_ROWS(V)                                                                           \
  MULTIPLY(1, V) MULTIPLY(2, V) MULTIPLY(3, V) MULTIPLY(4, V) MULTIPLY(5, V) MULTIPLY(6, V)
MULTIPLY_ROWS(1)
MULTIPLY_ROWS(2)
MULTIPLY_ROWS(3)
MULTIPLY_ROWS(4)
#define ROWS_OF(V)                                                                                 \
  {multiply_1_##V, multiply_2_##V, multiply_3_##V, multiply_4_##V, multiply_5_##V, multiply_6_##V}
static void (*const multiply_of[VECTORS][ROWS])(const tile *) = {ROWS_OF(1), ROWS_OF(2), ROWS_OF(3),
                                                                 ROWS_OF(4)};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t parts_of(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}

static __mmask16 first16(int64_t count) {
  return (__mmask16)(count >= LANES ? 0xffff : (1u << count) - 1);
}

// A line of pixels of two images. Zipped, `vectors` vectors of each pixel go to a panel, the next
// ones to one `apart` elements on.
typedef struct line {
  const uint16_t *from[2];         // NULL: zeros
  int64_t pixels, pixel, elements; // pixels, elements from one to the next, of each
} line;

PAIRS static void zip_any(const line *l, int64_t vectors, int64_t apart, uint16_t *to) {
  static const uint16_t zeros[LANES];
  int64_t width = vectors * LANES;
  for (int64_t x = 0; x < l->pixels; x++) {
    uint16_t *panel = to + x * width * 2;
    for (int64_t i = 0; i < l->elements; i += width, panel += apart)
      for (int64_t v = i, at = 0; v < i + width && v < l->elements; v += LANES, at += 2 * LANES) {
        __mmask16 mask = first16(l->elements - v);
        __m512i half[2];
        for (int h = 0; h < 2; h++) {
          const uint16_t *from = l->from[h] ? l->from[h] + x * l->pixel + v : zeros;
          half[h] = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
        }
        _mm512_storeu_si512(panel + at, _mm512_or_si512(half[0], _mm512_slli_epi32(half[1], 16)));
      }
  }
}

// Panels of one or four vectors, 32 elements at a time. Of narrow panels some pixels go to one
// before the next one's turn comes: stores of a line here and a line there wait for each other.
PAIRS static void zip_whole(const line *l, int64_t vectors, int64_t apart, uint16_t *to) {
  uint16_t order[2][2 * LANES];
  for (int i = 0; i < 2 * LANES; i++) {
    order[0][i] = (uint16_t)(i / 2 + i % 2 * 2 * LANES);
    order[1][i] = (uint16_t)(order[0][i] + LANES);
  }
  __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
  int64_t group = vectors == 1 ? 2 * LANES : VECTORS * LANES, next = vectors == 1 ? apart : LINE;
  int64_t panel = vectors == 1 ? 2 * apart : apart, width = vectors * LINE, step = l->pixel;
  int64_t together = vectors == 1 ? AHEAD : 1;
  for (int64_t x = 0; x < l->pixels; x += together) {
    int64_t pixels = least(together, l->pixels - x);
    uint16_t *at = to + x * width;
    for (int64_t i = 0; i < l->elements; i += group, at += panel) {
      const uint16_t *a = l->from[0] + x * step + i, *b = l->from[1] + x * step + i;
      for (int64_t k = 0; k < pixels; k++, a += step, b += step)
        for (int64_t j = 0; j < group; j += 2 * LANES) {
          __builtin_prefetch(a + j + AHEAD * step);
          __builtin_prefetch(b + j + AHEAD * step);
          __m512i first = _mm512_loadu_si512(a + j), second = _mm512_loadu_si512(b + j);
          uint16_t *place = at + k * width + 2 * j;
          _mm512_storeu_si512(place, _mm512_permutex2var_epi16(first, low, second));
          _mm512_storeu_si512(place + next, _mm512_permutex2var_epi16(first, high, second));
        }
    }
  }
}

static void zip_line(const line *l, int64_t vectors, int64_t apart, uint16_t *to) {
  int64_t group = vectors == 1 ? 2 * LANES : VECTORS * LANES;
  bool whole = l->from[0] && l->from[1] && l->elements % group == 0;
  if (whole && (vectors == 1 || vectors == VECTORS))
    zip_whole(l, vectors, apart, to);
  else
    zip_any(l, vectors, apart, to);
}

// The rows of a chunk: of pairs of images [image, image + images) the rows [row, row + rows).
typedef struct chunk {
  int64_t image, images, row, rows;
} chunk;

static chunk chunk_of(const pairs *p, int64_t i) {
  if (p->group > 1 || p->rows == p->height) {
    int64_t image = i * p->group;
    return (chunk){image, least(p->group, p->images - image), 0, p->height};
  }
  int64_t each = parts_of(p->height, p->rows), row = i % each * p->rows;
  return (chunk){i / each, 1, row, least(p->rows, p->height - row)};
}

// Where row y of half `h` of a pair of images begins; NULL: outside the image.
static const uint16_t *input_row(const pairs *p, const uint16_t *input, int64_t pair, int h,
                                 int64_t y) {
  const vt_weight_gradient *c = &p->conv;
  int64_t n = p->halves ? pair : 2 * pair + h;
  // An output that is not there has zeros on both sides: infinity times zero is none.
  if (p->halves && h && c->kernel[0] == 1 && p->height + y / c->stride[0] >= c->output[0])
    return NULL;
  if (p->halves && h) y += p->height * c->stride[0];
  if (n >= c->batch || y < 0 || y >= c->input[0]) return NULL;
  return input + n * c->input_strides[0] + y * c->input_strides[1];
}

static const uint16_t *gradient_row(const pairs *p, const uint16_t *gradient, int64_t pair, int h,
                                    int64_t y) {
  const vt_weight_gradient *c = &p->conv;
  int64_t n = p->halves ? pair : 2 * pair + h;
  if (p->halves && h) y += p->height;
  if (n >= c->batch || y >= c->output[0]) return NULL;
  return gradient + (n * c->output[0] + y) * c->output[1] * c->features;
}

static int64_t band_of(const pairs *p, int64_t rows) {
  const vt_weight_gradient *c = &p->conv;
  return (rows - 1) * p->step[0] + (c->kernel[0] - 1) * c->dilation[0] + 1;
}

// Elements from one panel to the next: an odd number of lines of the cache, so that lines of all
// panels find a place in the first cache.
static int64_t apart_of(int64_t elements) {
  return (parts_of(elements, LINE) | 1) * LINE;
}

static int64_t input_panel(const pairs *p, const chunk *k) {
  return apart_of(k->images * band_of(p, k->rows) * p->width * p->pixel * 2);
}

static int64_t gradient_panel(const pairs *p, const chunk *k) {
  return apart_of(k->images * k->rows * p->conv.output[1] * VECTORS * 2 * LANES);
}

// Some rows of a pair of images: all whole panels, then the last one, whose pixels may be narrower.
static void lay_gradient_rows(const pairs *p, const uint16_t *const rows[2], int64_t pixels,
                              int64_t features, int64_t apart, int64_t at, uint16_t *to) {
  int64_t panels = parts_of(features, VECTORS * LANES), whole = features / (VECTORS * LANES);
  line l = {.pixels = pixels, .pixel = p->conv.features};
  for (int64_t first = 0; first < panels;) {
    int64_t count = first < whole ? whole : 1, skipped = first * VECTORS * LANES;
    int64_t vectors = first < whole ? VECTORS : (features - skipped) / LANES;
    l.elements = count * vectors * LANES;
    for (int h = 0; h < 2; h++) l.from[h] = rows[h] ? rows[h] + skipped : NULL;
    zip_line(&l, vectors, apart, to + first * apart + at * vectors * 2 * LANES);
    first += count;
  }
}

static void lay_gradient(const pairs *p, const uint16_t *gradient, const chunk *k, int64_t feature,
                         int64_t features, uint16_t *to) {
  int64_t columns = p->conv.output[1], apart = gradient_panel(p, k), at = 0;
  for (int64_t n = 0; n < k->images; n++) {
    // Rows follow each other; of an odd number of them the last one has no partner.
    bool all = gradient_row(p, gradient, k->image + n, 1, k->row + k->rows - 1);
    int64_t together = all ? k->rows : 1;
    for (int64_t y = 0; y < k->rows; y += together, at += together * columns) {
      const uint16_t *rows[2];
      for (int h = 0; h < 2; h++) {
        rows[h] = gradient_row(p, gradient, k->image + n, h, k->row + y);
        if (rows[h]) rows[h] += feature;
      }
      lay_gradient_rows(p, rows, together * columns, features, apart, at, to);
    }
  }
}

// A row of the input as a line of pixels with its padding.
static void lay_input_row(const pairs *p, const uint16_t *const rows[2], int64_t channels,
                          int64_t apart, uint16_t *to) {
  const vt_weight_gradient *c = &p->conv;
  int64_t before = least(c->low[1], p->width);
  int64_t pixels = least(p->width - before, parts_of(c->input[1], p->skip[1]));
  int64_t panels = p->lines ? 1 : parts_of(channels, CHANNELS);
  line l = {.from = {rows[0], rows[1]},
            .pixels = p->lines ? 1 : pixels,
            .pixel = c->input_strides[2] * p->skip[1],
            .elements = p->lines ? pixels * p->pixel : channels};
  zip_line(&l, p->lines ? parts_of(l.elements, LANES) : 1, apart, to + before * p->pixel * 2);
  for (int64_t i = 0; i < panels; i++) {
    uint16_t *panel = to + i * apart;
    memset(panel, 0, (size_t)(before * p->pixel) * 4);
    memset(panel + (before + pixels) * p->pixel * 2, 0,
           (size_t)((p->width - before - pixels) * p->pixel) * 4);
  }
}

// Rows of one pixel each as one line; false where one of them is not there, or that is not it.
static bool lay_column(const pairs *p, const uint16_t *input, const chunk *k, int64_t channel,
                       int64_t channels, uint16_t *to) {
  const vt_weight_gradient *c = &p->conv;
  if (c->kernel[0] != 1 || c->input[1] != 1 || p->width != 1 || k->images != 1 || p->lines)
    return false;
  int64_t last = (k->row + k->rows - 1) * c->stride[0];
  if (!input_row(p, input, k->image, 1, last)) return false;
  line l = {.pixels = k->rows, .pixel = c->input_strides[1] * c->stride[0], .elements = channels};
  for (int h = 0; h < 2; h++)
    l.from[h] = input_row(p, input, k->image, h, k->row * c->stride[0]) + channel;
  zip_line(&l, 1, input_panel(p, k), to);
  return true;
}

static void lay_input(const pairs *p, const uint16_t *input, const chunk *k, int64_t channel,
                      int64_t channels, uint16_t *to) {
  const vt_weight_gradient *c = &p->conv;
  int64_t apart = input_panel(p, k), band = band_of(p, k->rows);
  if (lay_column(p, input, k, channel, channels, to)) return;
  for (int64_t n = 0; n < k->images; n++)
    for (int64_t y = 0; y < band; y++, to += p->width * p->pixel * 2) {
      const uint16_t *rows[2];
      for (int h = 0; h < 2; h++) {
        rows[h] = input_row(p, input, k->image + n, h,
                            k->row * c->stride[0] - c->low[0] + y * p->skip[0]);
        if (rows[h]) rows[h] += channel;
      }
      lay_input_row(p, rows, channels, apart, to);
    }
}

// A task's part of the result and where it is added up.
typedef struct part {
  int64_t channel, channels, feature, features;
  float *sums; // of its first channel and feature
  const int64_t *strides;
} part;

// Adds the products of a panel of features, all taps and channels.
static void multiply_panel(const pairs *p, const chunk *k, const part *s, const uint16_t *input,
                           const uint16_t *gradient, int64_t vectors, float *sums, bool first) {
  const vt_weight_gradient *c = &p->conv;
  int64_t pixel = p->pixel * 2, input_line = p->width * pixel, apart = input_panel(p, k);
  int64_t panel = p->lines ? s->channels : CHANNELS;
  tile t = {.gradient = gradient,
            .images = k->images,
            .rows = k->rows,
            .columns = c->output[1],
            .image_step = band_of(p, k->rows) * input_line,
            .row_step = p->step[0] * input_line,
            .column_step = p->step[1] * pixel,
            .sums_row = s->strides[2],
            .first = first};
  if (t.row_step == t.columns * t.column_step) t.columns *= t.rows, t.rows = 1;
  if (t.rows == 1 && t.image_step == t.columns * t.column_step) t.columns *= t.images, t.images = 1;
  for (int64_t h = 0; h < c->kernel[0]; h++)
    for (int64_t i = 0; i < s->channels; i += panel)
      for (int64_t w = 0; w < c->kernel[1]; w++) {
        int64_t rows = least(panel, s->channels - i), groups = parts_of(rows, ROWS);
        const uint16_t *from = input + i / panel * apart + h * c->dilation[0] * input_line +
                               w * c->dilation[1] * pixel;
        for (int64_t g = 0; g < groups; g++) {
          int64_t row = rows * g / groups, count = rows * (g + 1) / groups - row;
          t.input = from + 2 * row;
          t.sums = sums + h * s->strides[0] + w * s->strides[1] + (i + row) * s->strides[2];
          multiply_of[vectors - 1][count - 1](&t);
        }
      }
}

static void run_task(const pairs *p, const uint16_t *input, const uint16_t *gradient, const part *s,
                     int64_t piece, uint16_t *scratch) {
  int64_t from = piece * p->chunks / p->pieces, to = (piece + 1) * p->chunks / p->pieces;
  for (int64_t i = from; i < to; i++) {
    chunk k = chunk_of(p, i);
    uint16_t *left = scratch, *right = scratch + p->input_elements;
    lay_input(p, input, &k, s->channel, s->channels, left);
    lay_gradient(p, gradient, &k, s->feature, s->features, right);
    for (int64_t j = 0; j < s->features; j += VECTORS * LANES) {
      int64_t vectors = least(VECTORS, (s->features - j) / LANES);
      multiply_panel(p, &k, s, left, right, vectors, s->sums + j, i == from);
      right += gradient_panel(p, &k);
    }
  }
}

// The sums of all pieces, in order; by all threads of a team.
static void add_pieces(const pairs *p, const float *sums, float *weights) {
  const vt_weight_gradient *c = &p->conv;
  const int64_t *strides = c->weight_strides;
#pragma omp for schedule(static) nowait
  for (int64_t r = 0; r < c->kernel[0] * c->kernel[1] * c->channels; r++) {
    int64_t i = r % c->channels, tap = r / c->channels;
    float *to = weights + tap / c->kernel[1] * strides[0] + tap % c->kernel[1] * strides[1] +
                i * strides[2];
    const float *from = sums + r * c->features;
    for (int64_t o = 0; o < c->features; o++) {
      float sum = from[o];
      for (int64_t k = 1; k < p->pieces; k++) sum += from[k * p->sums + o];
      to[o] = sum;
    }
  }
}

static void run_pairs(const pairs *p, const uint16_t *input, const uint16_t *gradient,
                      float *weights, char *scratch) {
  const vt_weight_gradient *c = &p->conv;
  float *sums = (float *)(void *)scratch;
  uint16_t *areas = (uint16_t *)(void *)(sums + (p->pieces > 1 ? p->sums * p->pieces : 0));
  const int64_t dense[] = {c->kernel[1] * c->channels * c->features, c->channels * c->features,
                           c->features, 1};
  int64_t tasks = p->pieces * p->channel_blocks * p->feature_blocks;
#pragma omp parallel num_threads(p->threads)
  {
#pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < tasks; i++) {
      int64_t piece = i % p->pieces, block = i / p->pieces;
      part s = {.channel = block % p->channel_blocks * p->block_channels,
                .feature = block / p->channel_blocks * p->block_features,
                .strides = p->pieces > 1 ? dense : c->weight_strides};
      s.channels = least(p->block_channels, c->channels - s.channel);
      s.features = least(p->block_features, c->features - s.feature);
      s.sums =
          (p->pieces > 1 ? sums + piece * p->sums : weights) + s.channel * s.strides[2] + s.feature;
      run_task(p, input, gradient, &s, piece, areas + omp_get_thread_num() * p->thread_elements);
    }
    if (p->pieces > 1) {
#pragma omp barrier
      add_pieces(p, sums, weights);
    }
  }
}

// Taps along a line as channels.
static bool take_lines(pairs *p) {
  vt_weight_gradient *c = &p->conv;
  int64_t row = c->kernel[1] * c->channels;
  if (c->channels >= CHANNELS || c->kernel[1] == 1 || c->dilation[1] != 1 ||
      c->input_strides[2] != c->channels ||
      c->weight_strides[1] != c->channels * c->weight_strides[2] || row > BLOCK_CHANNELS)
    return false;
  p->lines = true;
  p->pixel = c->channels;
  c->channels = row, c->kernel[1] = 1;
  return true;
}

// 1x1: all pixels are one column.
static void flatten(vt_weight_gradient *c) {
  int64_t pixels = c->output[0] * c->output[1], step = c->input_strides[2];
  for (int d = 0; d < 2; d++)
    if (c->kernel[d] != 1 || c->stride[d] != 1 || c->input[d] != c->output[d]) return;
  if (c->input_strides[1] != c->input[1] * step ||
      (c->batch > 1 && c->input_strides[0] != pixels * step))
    return;
  c->input[0] = c->output[0] = c->batch * pixels;
  c->input[1] = c->output[1] = c->batch = 1;
  c->input_strides[1] = step;
}

static void choose_chunks(pairs *p) {
  const vt_weight_gradient *c = &p->conv;
  int64_t image = p->height * c->output[1], parts;
  p->rows = p->height, p->group = 1;
  if (image <= CHUNK) {
    parts = parts_of(p->images, least(CHUNK / image, p->images));
    p->group = parts_of(p->images, parts);
    p->chunks = parts_of(p->images, p->group);
  } else {
    int64_t most = c->output[1] < CHUNK ? CHUNK / c->output[1] : 1;
    parts = parts_of(p->height, most);
    p->rows = parts_of(p->height, parts);
    p->chunks = p->images * parts_of(p->height, p->rows);
  }
}

static void choose_blocks(pairs *p) {
  const vt_weight_gradient *c = &p->conv;
  int64_t taps = c->kernel[0] * c->kernel[1], tasks = 2 * p->threads;
  int64_t most = PIECE_SUMS / (taps * c->channels * c->features); // pieces
  if (tasks < LEAST_TASKS) tasks = LEAST_TASKS;
  most = most < 1 ? 1 : least(most, p->chunks);
  p->block_channels = p->lines ? c->channels : BLOCK_CHANNELS;
  p->block_features = BLOCK_FEATURES;
  for (;;) {
    p->channel_blocks = parts_of(c->channels, p->block_channels);
    p->feature_blocks = parts_of(c->features, p->block_features);
    bool few = p->channel_blocks * p->feature_blocks * most < tasks;
    int64_t channels = least(p->block_channels, c->channels),
            features = least(p->block_features, c->features);
    if (!few && taps * channels * features <= BLOCK_SUMS) break;
    if (features > VECTORS * LANES && (features > channels || channels <= 2 * CHANNELS || p->lines))
      p->block_features /= 2;
    else if (channels > 2 * CHANNELS && !p->lines)
      p->block_channels /= 2;
    else
      break;
  }
  p->pieces = least(most, parts_of(tasks, p->channel_blocks * p->feature_blocks));
}

static bool prepare(pairs *p) {
  vt_weight_gradient *c = &p->conv;
  if (!take_lines(p)) p->pixel = CHANNELS;
  if (!p->lines) flatten(c);
  for (int d = 0; d < 2; d++) {
    bool one = c->kernel[d] == 1 && !(d == 1 && p->lines);
    if (one && c->low[d]) return false;
    p->step[d] = one ? 1 : c->stride[d];
    p->skip[d] = one ? c->stride[d] : 1;
  }
  p->halves = c->batch % 2 && (c->kernel[0] == 1 || c->output[0] % 2 == 0);
  if (c->batch == 1 && !p->halves) return false;
  p->images = p->halves ? c->batch : (c->batch + 1) / 2;
  p->height = p->halves ? (c->output[0] + 1) / 2 : c->output[0];
  choose_chunks(p);
  int64_t taps = p->lines ? c->channels / p->pixel : c->kernel[1];
  p->width = (c->output[1] - 1) * p->step[1] + (taps - 1) * c->dilation[1] + 1;
  choose_blocks(p);
  chunk whole = {.images = p->group, .rows = p->rows};
  int64_t panels = p->lines ? 1 : parts_of(least(p->block_channels, c->channels), CHANNELS);
  // The last row of a line of few channels ends with a whole vector.
  p->input_elements = panels * input_panel(p, &whole) + LINE;
  panels = parts_of(least(p->block_features, c->features), VECTORS * LANES);
  p->thread_elements = p->input_elements + panels * gradient_panel(p, &whole);
  p->sums = c->kernel[0] * c->kernel[1] * c->channels * c->features;
  p->scratch_bytes =
      (p->pieces > 1 ? p->pieces * p->sums * 4 : 0) + p->threads * p->thread_elements * 2;
  return p->thread_elements * 2 <= MOST_BYTES;
}

static vt_status run(const vt_step *step, vt_exec *exec, vt_frame *const *frames, uint32_t count) {
  (void)exec;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    run_pairs(step->body, (const uint16_t *)(void *)slots[step->input_slots[0]],
              (const uint16_t *)(void *)slots[step->input_slots[1]],
              (float *)(void *)slots[step->output_slots[0]], slots[step->scratch_slot]);
  }
  return VT_OK;
}

bool vt_step_pairs(vt_plan *plan, vt_step *step, const vt_weight_gradient *g) {
  bool typed = g->dtype == VT_BF16 && step->inputs[1]->type.dtype == VT_BF16 &&
               step->outputs[0]->type.dtype == VT_F32 && step->input_count == 2;
  double products = (double)g->channels * (double)g->features * (double)g->kernel[0] *
                    (double)g->kernel[1] * (double)g->batch * (double)g->output[0] *
                    (double)g->output[1];
  if (!vt_host_fast_bf16() || vt_host_has_amx() || !typed || g->features % LANES ||
      g->input_strides[3] != 1 || g->weight_strides[3] != 1 ||
      (products < LEAST_PRODUCTS && !plan->program->options.compile_all))
    return false;
  pairs *p = VT_NEW(&plan->program->arena, pairs);
  *p = (pairs){.conv = *g, .threads = vt_host_threads()};
  if (!prepare(p)) return false;
  vt_step_reserve(step, p->scratch_bytes);
  step->body = p;
  step->run = run;
  step->runner = "pairs";
  return true;
}
