// SPDX-License-Identifier: Apache-2.0
// strip.c - see strip.h.
//
// A task is a strip of rows times a block of columns. Its sums lie in a buffer of the thread's own,
// as rows of the whole result would, and `finish` takes them from there.
//
// Convolutions are products too: the 16 rows of a left tile are pixels at equal distances, and so
// are the rows of the next tap. To keep the distances equal from line to line, images are copied
// with zeros around: a line's right padding is the next one's left. With a vertical stride of s the
// lines of each remainder by s lie together. The pixels at the end of a line whose window would
// reach into the next are computed, and dropped. Taps side by side in a line are one run along K.
#include "host/strip.h"

#include <omp.h>
#include <string.h>

#include "host/amx_tiles.h"
#include "host/cpu.h"
#include "host/strip_pairs.h"
#include "host/strip_tiles.h"
#include "host/task_queue.h"
#include "host/waiting.h"

enum {
  STRIP = 128,       // rows of a task
  LONG = 1024,       // K from which it is half of that
  DEEP = 4096,       // without the matrix unit K from which it is cut,
  DEEP_PIECE = 2048, // into pieces of which 64 columns stay in the second cache
  TASKS = 4,         // at least, for each thread
  COLUMNS = 4 * T,   // of which a block is a multiple: whole vectors of generated code
  MIN_PRODUCTS = 1 << 18,
  FEW_ROWS = 256,
  MOST_ROWS = 1024,   // of a matrix that is read again for each task
  FEWEST_JOINED = 96, // rows of attention
  PICTURE = 4,        // channels, at most
  FEWEST_ROWS = 64,   // of an image, below which weights are what takes time
  PART_COLUMNS = 128  // whose sums of two rows of tiles stay in the first cache
};
// Of the right side and of sums, which stay in the second cache; of both.
static const int64_t BLOCK_BYTES = 512 << 10, SUMS_BYTES = 1 << 20, BOTH_BYTES = 640 << 10;
static const int64_t TILES_BYTES = 1 << 20;   // with the matrix unit, where that cache has 2 MB
static const int64_t LINES_BYTES = 192 << 10; // of sums of an image
static const int64_t TILED_LINES_BYTES = 224 << 10, COPY_BYTES = 320 << 10; // of its copy
// Of the right side of a window's tiles: of fewer columns, tasks would have to share copied images.
static const int64_t WINDOW_BYTES = 1280 << 10;
static const int64_t COLUMN_SUMS = 128 << 10; // of all rows

// Whether several pixels are multiplied: of one alone the copied ones are rows of a matrix.
static bool is_window(const vt_strip *p) {
  return p->windowed && p->k > p->window.channels;
}

// ---- Sizes.

static bool own_rhs(const vt_strip *p) {
  for (int32_t d = 0; d < p->batch_rank; d++)
    if (p->batch_strides[1][d]) return true;
  return false;
}

// Pixels of a copied line, and numbers along K.
static bool prepare_window(vt_strip *p) {
  const vt_strip_window *w = &p->window;
  int64_t reach = (w->kernel[1] - 1) * w->dilation[1] + 1;
  int64_t span = (w->output[1] - 1) * w->stride[1] + reach;
  if (w->low[0] < 0 || w->low[1] < 0) return false;
  int64_t used = most(0, least(w->input[1], span - w->low[1]));
  int64_t pitch = most(most(span - w->low[1], w->low[1] + used), w->output[1] * w->stride[1]);
  p->pitch = tiles_of(pitch, w->stride[1]) * w->stride[1];
  bool joined = w->dilation[1] == 1 || w->kernel[1] == 1;
  p->channels = w->channels + (p->tiles || !joined ? w->channels % 2 : 0);
  p->length = joined ? w->kernel[1] * p->channels : p->channels;
  p->runs = w->kernel[0] * (joined ? 1 : w->kernel[1]);
  bool one_tap = w->kernel[1] == 1 || w->rhs_taps[1] == w->channels || w->channels % PAIRED == 0;
  bool lies = p->rhs_column == 1 || (p->channels == w->channels && one_tap);
  return lies && p->length > 1 && p->runs <= VT_STRIP_RUNS;
}

// A window of one pixel that moves by more than one: the pixels that it reads are the rows of one
// matrix of all images, once they are copied.
static void gather_images(vt_strip *p) {
  const vt_strip_window *w = &p->window;
  if (!p->tiles || !p->windowed || is_window(p) || p->k % 2 || p->batch_rank > 1 || own_rhs(p))
    return;
  p->gathers = true, p->windowed = false;
  p->image_stride = p->batch_rank ? p->batch_strides[0][0] : 0;
  p->m *= p->items, p->items = 1, p->batch_rank = 0;
  p->lhs_row = w->channels;
}

// Where the runs begin in a copied image of `lines` lines for each remainder.
static void set_starts(vt_strip *p) {
  const vt_strip_window *w = &p->window;
  int64_t across = p->runs / w->kernel[0];
  for (int64_t r = 0; r < p->runs; r++) {
    int64_t y = r / across * w->dilation[0], x = r % across * w->dilation[1];
    int64_t line = y % w->stride[0] * p->lines + y / w->stride[0];
    p->starts[r] = (line * p->pitch + x) * p->channels * 2;
  }
}

// Lines above those of the first result line, for each remainder.
static int64_t lines_more(const vt_strip_window *w) {
  return (w->kernel[0] - 1) * w->dilation[0] / w->stride[0];
}

static int64_t remainders(const vt_strip_window *w) {
  return least(w->stride[0], (w->kernel[0] - 1) * w->dilation[0] + 1);
}

static int64_t image_bytes(const vt_strip *p) {
  const vt_strip_window *w = &p->window;
  int64_t behind = T * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1]; // tiles may reach there
  int64_t pixels = remainders(w) * p->lines * p->pitch + behind;
  return tiles_of(pixels * p->channels * 2, 64) * 64;
}

static int64_t rows_of_item(const vt_strip *p) {
  return p->windowed ? p->window.output[0] : p->m;
}

// Rows of sums that a task has: of images in tiles some between the lines are dropped.
static int64_t rows_of_task(const vt_strip *p, int64_t rows) {
  if (!p->windowed) return rows;
  return rows * (p->tiles ? p->pitch / p->window.stride[1] : p->window.output[1]);
}

// Of the right side, that a task has.
static int64_t most_bytes(const vt_strip *p) {
  if (!p->tiles) return BLOCK_BYTES;
  return p->windowed ? WINDOW_BYTES : TILES_BYTES;
}

// Few rows: each task has all of them and some columns, so that the right side, which comes from
// memory, is read once. Without the matrix unit these may be more of a matrix than of an image,
// which is copied, where all threads have as much to do.
static bool choose_columns(vt_strip *p) {
  int64_t rows = rows_of_item(p), groups = tiles_of(p->n, COLUMNS);
  int64_t rounds = tiles_of(groups, p->threads);
  if (p->items != 1 || p->rows || p->whole_rows || own_rhs(p)) return false;
  bool few = p->windowed || p->tiles;
  if (rows_of_task(p, rows) >= (few ? FEWEST_ROWS : MOST_ROWS)) return false;
  if (p->n < COLUMNS * p->threads) return false;
  if (!p->windowed && 8 * groups < 7 * rounds * p->threads) return false;
  int64_t best = 0, least_time = INT64_MAX;
  int64_t sums = COLUMNS * rows_of_task(p, rows) * 4;
  for (int64_t each = 1; each <= groups; each++) {
    int64_t tasks = tiles_of(groups, each), time = tiles_of(tasks, p->threads) * each;
    if (each > 1 && (each * sums > COLUMN_SUMS || tasks < 2 * p->threads)) break;
    if (time <= least_time) best = each, least_time = time;
  }
  p->block_m = rows, p->block_n = best * COLUMNS;
  return true;
}

// Lines of a task, so that all threads end together where there are few tasks.
static int64_t even_lines(const vt_strip *p, int64_t lines) {
  int64_t rows = rows_of_item(p), each = rows_of_task(p, 1), least_time = INT64_MAX;
  if (p->items * tiles_of(rows, lines) > 2 * TASKS * TASKS * p->threads) return lines;
  int64_t limit = least(rows, most(1, most(LINES_BYTES / (p->n * 4), 2 * STRIP) / each));
  for (int64_t n = 1; n <= limit; n++) {
    int64_t time = tiles_of(p->items * tiles_of(rows, n), p->threads) * (2 * n + 1);
    if (time <= least_time) lines = n, least_time = time;
  }
  return lines;
}

// Lines of a task, up to `limit`, so that rows fill tiles and tiles pairs, few lines are copied
// twice and threads end together.
static int64_t filling_lines(const vt_strip *p, int64_t limit) {
  // Times of two rows of tiles and of one; a byte is copied in that of a row's products by COPIED.
  enum { PAIR = 10, ALONE = 8, COPIED = 32 };
  const vt_strip_window *w = &p->window;
  int64_t rows = rows_of_item(p), best = 1, least_time = INT64_MAX;
  int64_t line = remainders(w) * p->pitch * p->channels * 2; // bytes of its copy
  int64_t twice = lines_more(w) * line * COPIED / (p->n * p->k);
  for (int64_t n = 1; n <= limit; n++) {
    if (n > 1 && (n + lines_more(w)) * line > COPY_BYTES) break;
    int64_t tasks = p->items * tiles_of(rows, n), time = tasks / p->items * twice;
    for (int64_t first = 0; first < rows; first += n) {
      int64_t lines = least(n, rows - first), dropped = rows_of_task(p, 1) - w->output[1];
      int64_t tiles = tiles_of(rows_of_task(p, lines) - dropped, T);
      time += tiles / 2 * PAIR + tiles % 2 * ALONE;
    }
    time = time * p->items * tiles_of(tasks, p->threads) / tasks; // of the slowest thread
    if (time <= least_time) best = n, least_time = time;
  }
  return best;
}

static void choose_blocks(vt_strip *p) {
  int64_t rows = rows_of_item(p), each = rows_of_task(p, 1);
  int64_t strip = p->k > LONG && !p->piece ? STRIP / 2 : STRIP;
  // Each task copies lines above and below its own: as few tasks as keep all threads busy.
  if (p->windowed)
    strip = most(strip, least((p->tiles ? TILED_LINES_BYTES : LINES_BYTES) / (p->n * 4),
                              p->items * rows * each / (TASKS * p->threads)));
  // The right side is read once for each strip.
  if (p->whole_rows && !own_rhs(p) && p->n * p->k * 2 > most_bytes(p))
    strip = most(STRIP / 2, least(2 * STRIP, SUMS_BYTES / (p->n * 4) / (2 * T) * (2 * T)));
  p->block_m = least(rows, most(1, strip / each));
  if (is_window(p) && p->tiles) p->block_m = filling_lines(p, p->block_m);
  int64_t strips = tiles_of(rows, p->block_m);
  if (!p->windowed && !p->tiles) strips = tiles_of(strips, p->threads) * p->threads;
  if (!is_window(p) || !p->tiles) p->block_m = tiles_of(rows, strips); // equal ones
  if (p->windowed && !p->tiles) p->block_m = even_lines(p, p->block_m);
  if (p->rows) p->block_m = p->rows;
  if (!p->windowed && p->tiles) p->block_m = tiles_of(p->block_m, T) * T;
  p->block_n = p->n;
  if (p->whole_rows || own_rhs(p)) return;
  strips = p->items * tiles_of(rows, p->block_m);
  int64_t blocks = most(tiles_of(TASKS * p->threads, strips), 1);
  int64_t rhs = p->n * p->k * 2, sums = p->n * rows_of_task(p, p->block_m) * 4;
  blocks = most(blocks, tiles_of(p->piece ? sums : rhs, most_bytes(p)));
  if (!p->tiles && !p->piece) blocks = most(blocks, tiles_of(rhs + sums, BOTH_BYTES));
  p->block_n = least(p->n, most(COLUMNS, tiles_of(tiles_of(p->n, blocks), COLUMNS) * COLUMNS));
}

// Sums of few columns are finished while they are in the first cache: stores to the second take
// longer than products of small K.
static void choose_parts(vt_strip *p) {
  bool small = p->block_n <= PART_COLUMNS && p->full <= VT_STRIP_MOST_DEPTH;
  p->part = p->tiles && !p->windowed && !p->rows && small ? 2 * T : p->block_m;
  p->pixels = p->tiles && is_window(p) && p->block_n <= COLUMNS ? 2 * T : 0;
}

void vt_strip_fix_rows(vt_strip *p) {
  enum { EVEN = 4 }; // tasks are a multiple of it
  int64_t rows = rows_of_item(p), strip = p->k > LONG ? STRIP / 2 : STRIP;
  if (p->windowed)
    strip = most(strip, least(LINES_BYTES / (p->n * 4), p->m / EVEN)) / p->window.output[1];
  int64_t strips = tiles_of(rows, most(1, strip));
  if (!p->windowed) strips = tiles_of(strips, EVEN) * EVEN;
  p->rows = tiles_of(rows, strips);
}

int64_t vt_strip_tasks(const vt_strip *p) {
  return p->items * tiles_of(rows_of_item(p), p->block_m);
}

int64_t vt_strip_task(const vt_strip *p, int64_t row) {
  int64_t each = p->windowed ? p->block_m * p->window.output[1] : p->block_m;
  return row / p->m * tiles_of(rows_of_item(p), p->block_m) + row % p->m / each;
}

int64_t vt_strip_task_rows(const vt_strip *p, int64_t task) {
  int64_t rows = rows_of_item(p), first = task % tiles_of(rows, p->block_m) * p->block_m;
  return rows_of_task(p, least(p->block_m, rows - first));
}

// As long as lines of the window are long and many, pixels of a picture's channels do pay.
static bool few_channels(const vt_strip *p) {
  return p->window.channels < PAIRED && !vt_strip_pays_picture(p->window.channels, p->n, p->k);
}

bool vt_strip_pays(const vt_strip *p, bool kept) {
  int64_t each = p->m * p->n * p->k, rows = p->m * (own_rhs(p) ? 1 : p->items);
  // Measured in pairs: few rows do not pay for a right side that is laid out for them, nor few
  // columns or channels.
  int64_t fewest = kept && p->alone && !p->windowed ? T : FEW_ROWS;
  if (!p->tiles && rows < fewest) return false;
  if (!p->tiles && (p->n < COLUMNS || (p->windowed && few_channels(p)))) return false;
  return p->m >= T && p->n >= T && p->k >= T && each * p->items >= MIN_PRODUCTS;
}

bool vt_strip_pays_joined(const vt_strip *p) {
  return !p->tiles && own_rhs(p) && p->m >= FEWEST_JOINED && p->n >= COLUMNS && p->k >= T;
}

bool vt_strip_pays_picture(int64_t channels, int64_t columns, int64_t depth) {
  return channels <= PICTURE && columns >= COLUMNS && depth >= 2 * COLUMNS;
}

bool vt_strip_pays_narrowing(int64_t rows, int64_t columns, int64_t depth) {
  return rows >= FEW_ROWS && columns >= COLUMNS && depth >= 2 * columns;
}

bool vt_strip_pays_few(int64_t rows, int64_t columns) {
  return rows >= T && rows < FEWEST_ROWS && columns >= 2 * COLUMNS;
}

// Whether all items' right sides are laid out before, in memory that threads share, so that these
// need not take whole items: of few there would be none left for some.
static bool lays_before(const vt_strip *p) {
  return own_rhs(p) && p->threads > 2 && p->items % p->threads && p->items < TASKS * p->threads &&
         p->block_m < p->m;
}

static int64_t own_bytes(const vt_strip *p) {
  return p->lhs_bytes + p->sums_bytes + (own_rhs(p) && !lays_before(p) ? p->rhs_bytes : 0);
}

// Of copies that all threads read.
static int64_t shared_bytes(const vt_strip *p) {
  if (!p->shared) return 0;
  return p->gathers ? tiles_of(p->m * p->k * 2, 64) * 64 : p->items * image_bytes(p);
}

bool vt_strip_prepare(vt_strip *p) {
  if (!vt_host_fast_bf16() || p->m < 1 || p->n < 1 || p->k < 1) return false;
  if (p->rhs_row != 1 && p->rhs_column != 1) return false;
  p->tiles = vt_host_has_amx();
  p->items = 1;
  for (int32_t d = 0; d < p->batch_rank; d++) p->items *= p->batch_sizes[d];
  p->threads = omp_get_max_threads();
  gather_images(p);
  p->channels = p->pitch = p->lines = 0;
  p->runs = 1, p->length = p->k, p->starts[0] = 0;
  if (p->windowed ? !prepare_window(p) : p->k % 2 != 0) return false;
  p->full = p->length / PAIRED, p->tail = p->length % PAIRED;
  p->depth = p->runs * (p->full + (p->tail > 0));
  p->piece = !p->tiles && !p->windowed && p->k >= DEEP ? DEEP_PIECE : 0;
  p->alone = choose_columns(p);
  if (!p->alone) choose_blocks(p);
  choose_parts(p);
  p->rhs_bytes = tiles_of(p->n, T) * p->depth * TILE_BYTES;
  // An odd number of lines: 16 rows, a tile, lie in different sets of the first cache.
  p->sums_row = (tiles_of(p->block_n, T) | 1) * T;
  int64_t sums = p->pixels ? p->pixels : rows_of_task(p, p->part);
  p->sums_bytes = tiles_of(sums, T) * T * p->sums_row * 4;
  p->shared = (p->windowed || p->gathers) && p->block_n < p->n;
  if (p->windowed) {
    p->lines = (p->shared ? p->window.output[0] : p->block_m) + lines_more(&p->window);
    set_starts(p);
    p->lhs_bytes = p->shared ? 0 : image_bytes(p);
  } else if (p->gathers && !p->shared) {
    p->lhs_bytes = tiles_of(tiles_of(p->part, T) * T * p->k * 2, 64) * 64;
  } else {
    p->lhs_bytes = tiles_of(T * p->k * 2, 64) * 64; // the last tile of rows
  }
  int64_t shared = shared_bytes(p) + (lays_before(p) ? p->items * p->rhs_bytes : 0);
  p->middle_bytes = p->second_bytes = 0;
  p->scratch_bytes = shared + p->threads * (own_bytes(p) + (int64_t)sizeof(vt_task_queue));
  return true;
}

bool vt_strip_prepare_second(vt_strip *first, vt_strip *second) {
  second->rows = first->block_m;
  if (first->windowed || second->windowed || !vt_strip_prepare(second) || !own_rhs(first) ||
      !own_rhs(second) || first->items != second->items || first->m != second->m ||
      first->n != second->k || second->lhs_row != second->k)
    return false;
  first->middle_bytes = tiles_of(first->block_m * first->n * 2, 64) * 64;
  int64_t sides = lays_before(first) ? first->items * (first->rhs_bytes + second->rhs_bytes) : 0;
  first->second_bytes = second->sums_bytes + (sides ? 0 : second->rhs_bytes);
  first->scratch_bytes =
      sides + first->threads * (own_bytes(first) + first->middle_bytes + first->second_bytes);
  return true;
}

// ---- Laying out.

static int64_t offset_of(const vt_strip *p, int side, int64_t item) {
  int64_t offset = 0;
  for (int32_t d = p->batch_rank; d-- > 0;) {
    offset += item % p->batch_sizes[d] * p->batch_strides[side][d];
    item /= p->batch_sizes[d];
  }
  return offset;
}

// Where the numbers [at, at + count) of a run lie on the right side, column 0; NULL for zeros.
static void find_rows(const vt_strip *p, const uint16_t *rhs, int64_t run, int64_t at,
                      int64_t count, const uint16_t **rows) {
  const vt_strip_window *w = &p->window;
  for (int64_t i = 0; i < PAIRED; i++) {
    int64_t number = at + i;
    rows[i] = NULL;
    if (i >= count) continue;
    if (!p->windowed) {
      rows[i] = rhs + number * p->rhs_row;
      continue;
    }
    int64_t across = p->runs / w->kernel[0], channel = number % p->channels;
    int64_t y = run / across, x = across > 1 ? run % across : number / p->channels;
    if (channel < w->channels)
      rows[i] = rhs + w->rhs_start + y * w->rhs_taps[0] + x * w->rhs_taps[1] + channel * p->rhs_row;
  }
}

// The rows of tile `d` of K; how many there are.
static int64_t rows_of_tile(const vt_strip *p, const uint16_t *rhs, int64_t d,
                            const uint16_t **rows) {
  int64_t each = p->full + (p->tail > 0), at = d % each * PAIRED;
  int64_t numbers = least(PAIRED, p->length - at);
  find_rows(p, rhs, d / each, at, numbers, rows);
  return numbers;
}

// Of the tiles [column tile][depth] those of `columns` columns from `column` on, a multiple of 16,
// and of `count` tiles of K from `first` on. Here numbers of a row lie side by side; rows of the
// next tiles are far from these, so that nothing else foresees them.
static void lay_rows(const vt_strip *p, const uint16_t *rhs, int64_t column, int64_t columns,
                     int64_t first, int64_t count, uint16_t *to) {
  const uint16_t *rows[2][PAIRED];
  rows_of_tile(p, rhs, first, rows[first % 2]);
  for (int64_t d = first; d < first + count; d++) {
    const uint16_t **now = rows[d % 2], **next = rows[(d + 1) % 2];
    bool more = d + 1 < first + count;
    if (more) rows_of_tile(p, rhs, d + 1, next);
    for (int64_t j = 0; j < columns; j += T) {
      for (int64_t i = 0; more && j % PAIRED == 0 && i < PAIRED; i++)
        if (next[i]) _mm_prefetch((const char *)(next[i] + column + j), _MM_HINT_T0);
      pack_rows(now, column + j, least(T, p->n - column - j), true,
                to + ((column + j) / T * p->depth + d) * TILE);
    }
  }
}

// Here those of a column do. Without the matrix unit one line ahead is fetched: of more, some are
// gone before they are read.
static void lay_columns(const vt_strip *p, const uint16_t *rhs, int64_t column, int64_t columns,
                        int64_t first, int64_t count, uint16_t *to) {
  int64_t ahead = p->tiles ? LINES_AHEAD : PAIRED;
  for (int64_t d = first; d < first + count; d++) {
    const uint16_t *rows[PAIRED];
    int64_t numbers = rows_of_tile(p, rhs, d, rows);
    for (int64_t j = column; j < column + columns; j += T)
      pack_lines(rows[0] + j * p->rhs_column, p->rhs_column, least(T, p->n - j), numbers, true,
                 ahead, to + (j / T * p->depth + d) * TILE);
  }
}

static void lay_tiles(const vt_strip *p, const uint16_t *rhs, int64_t column, int64_t columns,
                      int64_t first, int64_t count, uint16_t *to) {
  if (p->rhs_column == 1)
    lay_rows(p, rhs, column, columns, first, count, to);
  else
    lay_columns(p, rhs, column, columns, first, count, to);
}

static void lay_item(const vt_strip *p, const void *rhs, int64_t item, char *to) {
  lay_tiles(p, (const uint16_t *)rhs + offset_of(p, 1, item), 0, p->n, 0, p->depth,
            (uint16_t *)(void *)to);
}

// A right side for all items, by all threads of a team, which do not wait for each other.
static void lay_shared(const vt_strip *p, const void *rhs, void *to) {
  enum { ACROSS = 16 * T, DOWN = 4 };
  int64_t across = tiles_of(p->n, ACROSS);
  int64_t down = most(DOWN, tiles_of(p->depth, tiles_of(TASKS * p->threads, across)));
#pragma omp for schedule(dynamic) nowait
  for (int64_t i = 0; i < across * tiles_of(p->depth, down); i++) {
    int64_t j = i % across * ACROSS, d = i / across * down;
    lay_tiles(p, rhs, j, least(ACROSS, p->n - j), d, least(down, p->depth - d), to);
  }
}

// Pixels of three channels, which get a fourth of zeros; `from` may be read 2 bytes past its end.
AMX static uint16_t *copy_triples(const uint16_t *from, int64_t step, int64_t pixels,
                                  uint16_t *to) {
  enum { PIXELS = 8 };
  const __mmask32 used = 0x77777777;
  const __m512i places = _mm512_set_epi16(0, 23, 22, 21, 0, 20, 19, 18, 0, 17, 16, 15, 0, 14, 13,
                                          12, 0, 11, 10, 9, 0, 8, 7, 6, 0, 5, 4, 3, 0, 2, 1, 0);
  int64_t x = 0;
  for (; step == 3 && x + PIXELS <= pixels; x += PIXELS, from += 3 * PIXELS, to += 4 * PIXELS) {
    __m512i numbers = _mm512_maskz_loadu_epi16(0xffffff, from);
    _mm512_storeu_si512(to, _mm512_maskz_permutexvar_epi16(used, places, numbers));
  }
  for (; x < pixels; x++, from += step, to += 4) {
    uint64_t pixel;
    memcpy(&pixel, from, 8);
    pixel &= 0xffffffffffff;
    memcpy(to, &pixel, 8);
  }
  return to;
}

// Pixels of few channels; `from` may be read 2 bytes past its end.
static uint16_t *copy_pixels(const vt_strip *p, const uint16_t *from, int64_t pixels,
                             uint16_t *to) {
  int64_t step = p->window.input_strides[1], channels = p->window.channels;
  if (channels == 3) return copy_triples(from, step, pixels, to);
  if (channels == p->channels) {
    for (int64_t x = 0; x < pixels; x++, from += step, to += channels)
      memcpy(to, from, (size_t)channels * 2);
    return to;
  }
  for (int64_t x = 0; x < pixels; x++, from += step, to += p->channels) {
    for (int64_t c = 0; c < channels; c++) to[c] = from[c];
    if (channels < p->channels) to[channels] = 0;
  }
  return to;
}

// Pixels of a line, with zeros left and right of them.
static void copy_line(const vt_strip *p, const uint16_t *image, int64_t y, uint16_t *to) {
  const vt_strip_window *w = &p->window;
  uint16_t *end = to + p->pitch * p->channels;
  if (y < 0 || y >= w->input[0]) {
    memset(to, 0, (size_t)(end - to) * 2);
    return;
  }
  int64_t pixels = least(w->input[1], p->pitch - w->low[1]);
  const uint16_t *from = image + y * w->input_strides[0];
  memset(to, 0, (size_t)(w->low[1] * p->channels) * 2);
  to += w->low[1] * p->channels;
  if (w->channels == p->channels && w->input_strides[1] == w->channels) {
    memcpy(to, from, (size_t)(pixels * p->channels) * 2);
    to += pixels * p->channels;
  } else {
    to = copy_pixels(p, from, pixels, to);
  }
  memset(to, 0, (size_t)(end - to) * 2);
}

// The lines that results from line `y` on need, `lines` for each remainder from `first` on.
static void copy_lines(const vt_strip *p, const uint16_t *image, int64_t y, int64_t first,
                       int64_t count, uint16_t *to) {
  const vt_strip_window *w = &p->window;
  for (int64_t r = 0; r < remainders(w); r++)
    for (int64_t i = first; i < first + count; i++)
      copy_line(p, image, (y + i) * w->stride[0] + r - w->low[0],
                to + (r * p->lines + i) * p->pitch * p->channels);
}

// Rows of the matrix of all images.
static void gather_rows(const vt_strip *p, const uint16_t *images, int64_t first, int64_t rows,
                        uint16_t *to) {
  const vt_strip_window *w = &p->window;
  size_t bytes = (size_t)p->k * 2;
  for (int64_t i = first; i < first + rows; i++, to += p->k) {
    int64_t width = w->output[1], of_image = w->output[0] * width, pixel = i % of_image;
    int64_t y = pixel / width * w->stride[0] - w->low[0];
    int64_t x = pixel % width * w->stride[1] - w->low[1];
    const uint16_t *from = images + i / of_image * p->image_stride;
    if (y < 0 || y >= w->input[0] || x < 0 || x >= w->input[1])
      memset(to, 0, bytes);
    else
      memcpy(to, from + y * w->input_strides[0] + x * w->input_strides[1], bytes);
  }
}

static void clear_end(const vt_strip *p, uint16_t *image) {
  size_t used = (size_t)(remainders(&p->window) * p->lines * p->pitch * p->channels) * 2;
  memset((char *)image + used, 0, (size_t)image_bytes(p) - used);
}

// ---- Products.

static void multiply_pairs(const vt_strip_rows *t, const char *rhs, int64_t columns) {
  const vt_strip *p = t->strip;
  vt_strip_pairs pairs = {.strip = p, .lhs = t->lhs, .lhs_row = t->lhs_stride, .rhs = rhs};
  pairs.rows = pairs.line = t->rows;
  if (p->windowed) pairs.line = p->window.output[1], pairs.lhs_line = p->pitch * p->channels * 2;
  pairs.sums = t->sums, pairs.sums_row = t->sums_row, pairs.columns = columns;
  pairs.fetches = t->fetches, pairs.behind = t->behind;
  pairs.from = t->from * T, pairs.until = least(t->until * T, p->length / 2);
  pairs.unread = t->unread;
  vt_strip_multiply_pairs(&pairs);
}

// What follows rows [from, from + count) of a task whose sums begin with them; of an image in tiles
// the pixels between lines are dropped.
static void finish_rows(const vt_strip_run *r, const vt_strip_rows *t, int64_t item, int64_t first,
                        int64_t from, int64_t count, int64_t column, int64_t columns,
                        void *middle) {
  const vt_strip *p = t->strip;
  float *sums = t->sums - column;
  if (!r->finish) return;
  if (!p->windowed || !p->tiles) {
    int64_t line = p->windowed ? p->window.output[1] : 1;
    r->finish(r->user, sums, item * p->m + first * line, count, column, columns, middle);
    return;
  }
  int64_t width = p->window.output[1], each = rows_of_task(p, 1);
  for (int64_t at = from, end = from + count, next; at < end; at = next) {
    int64_t y = at / each, x = at % each, used = least(width - x, end - at);
    next = least((y + 1) * each, end);
    if (used > 0)
      r->finish(r->user, sums + (at - from) * p->sums_row,
                (item * p->window.output[0] + first + y) * width + x, used, column, columns, NULL);
  }
}

static void multiply_rows(const vt_strip_rows *t, int64_t column, int64_t columns) {
  if (t->strip->tiles)
    vt_strip_multiply_rows(t, column, columns);
  else
    multiply_pairs(t, t->rhs + column / T * t->strip->depth * TILE_BYTES, columns);
}

// ---- Runs.

// What a thread has: its part of the left side, sums, and where each item has its own, the right
// side laid out; then the same of a second product.
typedef struct room {
  int64_t column;             // of the last task, -1 before the first
  const char *next, *fetched; // where the left side of the next task begins, of the one fetched
  char *lhs;
  float *sums;
  char *laid, *middle;
  float *second_sums;
  char *second_laid;
} room;

static room room_of(const vt_strip_run *r, char *shared, int thread) {
  const vt_strip *p = r->strip;
  int64_t each = own_bytes(p) + p->middle_bytes + p->second_bytes;
  room own = {.column = -1, .lhs = shared + thread * each};
  own.sums = (float *)(void *)(own.lhs + p->lhs_bytes);
  own.laid = own.lhs + p->lhs_bytes + p->sums_bytes;
  if (!r->second) return own;
  own.middle = own.lhs + own_bytes(p);
  own.second_sums = (float *)(void *)(own.middle + p->middle_bytes);
  own.second_laid = own.middle + p->middle_bytes + r->second->sums_bytes;
  return own;
}

// The rows of a task: of a matrix as they lie, but for a last tile that is not full.
static void take_rows(const vt_strip *p, const uint16_t *from, int64_t first, int64_t rows,
                      char *own, vt_strip_rows *t) {
  t->lhs = (const char *)(from + first * p->lhs_row);
  t->lhs_stride = p->lhs_row * 2;
  t->rows = rows;
  int64_t whole = rows / T * T;
  if (p->gathers && !p->shared) {
    gather_rows(p, from, first, rows, (uint16_t *)(void *)own);
    memset(own + rows * p->k * 2, 0, (size_t)((tiles_of(rows, T) * T - rows) * p->k * 2));
    t->lhs = own;
    return;
  }
  if (whole == rows || !p->tiles) return;
  memset(own, 0, (size_t)(T * p->k * 2));
  for (int64_t i = whole; i < rows; i++)
    memcpy(own + (i - whole) * p->k * 2, t->lhs + i * t->lhs_stride, (size_t)p->k * 2);
  t->edge = own;
}

static void take_lines(const vt_strip *p, const uint16_t *from, int64_t first, int64_t lines,
                       const char *shared, char *own, vt_strip_rows *t) {
  int64_t line = p->pitch * p->channels * 2;
  t->lhs_stride = p->window.stride[1] * p->channels * 2;
  t->rows = (lines - 1) * rows_of_task(p, 1) + p->window.output[1];
  t->lhs = shared ? shared + first * line : own;
  if (shared) return;
  copy_lines(p, from, first, 0, p->lines, (uint16_t *)(void *)own);
  clear_end(p, (uint16_t *)(void *)own);
}

// Whether this tile of K is zero in all rows of the left side.
static bool is_zero(const vt_strip_rows *t, int64_t tile) {
  size_t bytes = (size_t)least(PAIRED, t->strip->k - tile * PAIRED) * 2;
  for (int64_t i = 0; i < t->rows; i++) {
    uint64_t numbers[PAIRED / 4] = {0}, any = 0;
    memcpy(numbers, t->lhs + i * t->lhs_stride + tile * 2 * PAIRED, bytes);
    for (int w = 0; w < PAIRED / 4; w++) any |= numbers[w];
    if (any) return false;
  }
  return true;
}

// Whether the right side is finite in this tile of K.
AMX static bool is_finite(const vt_strip_rows *t, int64_t tile) {
  const __m512i all_ones = _mm512_set1_epi16(0x7f80);
  for (int64_t j = 0; j < tiles_of(t->strip->n, T); j++) {
    const char *from = t->rhs + (j * t->strip->depth + tile) * TILE_BYTES;
    for (int64_t at = 0; at < TILE_BYTES; at += 64) {
      __m512i exponents = _mm512_and_si512(_mm512_loadu_si512(from + at), all_ones);
      if (_mm512_cmpeq_epi16_mask(exponents, all_ones)) return false;
    }
  }
  return true;
}

// Of probabilities those behind the present are zero. Zero times what is not finite is no number.
static void leave_zeros_out(vt_strip_rows *t) {
  while (t->until > 1 && is_zero(t, t->until - 1) && is_finite(t, t->until - 1)) t->until--;
  while (t->from < t->until - 1 && is_zero(t, t->from) && is_finite(t, t->from)) t->from++;
}

// The left side of an item.
static const uint16_t *left_side(const vt_strip_run *r, int64_t item) {
  if (r->strip->gathers && r->strip->shared) return r->scratch;
  return (const uint16_t *)r->lhs + offset_of(r->strip, 0, item);
}

// Where rows (lines) of the left side begin; NULL: they are gathered.
static const char *left_of(const vt_strip_run *r, int64_t item, int64_t first) {
  const vt_strip *p = r->strip;
  const vt_strip_window *w = &p->window;
  if (p->gathers && !p->shared) return NULL;
  if (p->windowed && p->shared)
    return (const char *)r->scratch + item * image_bytes(p) + first * p->pitch * p->channels * 2;
  const uint16_t *from = left_side(r, item);
  if (!p->windowed) return (const char *)(from + first * p->lhs_row);
  return (const char *)(from + most(0, first * w->stride[0] - w->low[0]) * w->input_strides[0]);
}

// What a task reads that the one before it did not: of a shared copy, or what it copies itself.
static int64_t bytes_of_lines(const vt_strip *p) {
  const vt_strip_window *w = &p->window;
  if (p->shared && p->block_m == w->output[0]) return image_bytes(p);
  if (p->shared) return p->block_m * p->pitch * p->channels * 2;
  return least(p->block_m * w->stride[0], w->input[0]) * w->input_strides[0] * 2;
}

// The product of some rows (lines) from `first` on and a block of columns, and what follows it.
static void multiply_part(const vt_strip_run *r, const vt_strip_rows *t, int64_t item,
                          int64_t first, int64_t column, int64_t columns, void *middle) {
  const vt_strip *p = t->strip;
  if (!p->tiles || !is_window(p)) {
    multiply_rows(t, column, columns);
    finish_rows(r, t, item, first, 0, t->rows, column, columns, middle);
    return;
  }
  for (int64_t i = 0; i * T < t->rows; i += 2) {
    vt_strip_multiply_pixels(t, i, column, columns);
    if (p->pixels)
      finish_rows(r, t, item, first, i * T, least(p->pixels, t->rows - i * T), column, columns,
                  NULL);
  }
  if (!p->pixels) finish_rows(r, t, item, first, 0, t->rows, column, columns, NULL);
}

// Rows (lines) [first, first + rows) of an item, and a block of columns.
static void run_part(const vt_strip_run *r, int64_t item, int64_t first, int64_t rows,
                     int64_t column, int64_t columns, room *own) {
  const vt_strip *p = r->strip;
  vt_strip_rows t = {
      .strip = p, .rhs = r->laid ? r->laid : own->laid, .until = tiles_of(p->length, PAIRED)};
  t.sums = own->sums, t.sums_row = p->sums_row;
  t.fetched = own->fetched == left_of(r, item, first);
  if (!p->windowed || is_window(p)) t.next = own->next;
  if (t.next && p->windowed) t.next_bytes = bytes_of_lines(p);
  if (r->result) {
    int64_t row = item * p->m + first * (p->windowed ? p->window.output[1] : 1);
    t.sums = r->result + row * p->n + column, t.sums_row = p->n;
  }
  t.fetches = column != own->column || columns * p->k * 2 > 2 * most_bytes(p);
  t.behind = p->alone ? p->n - column : columns;
  const uint16_t *from = left_side(r, item);
  const char *shared =
      p->windowed && p->shared ? (const char *)r->scratch + item * image_bytes(p) : NULL;
  if (p->windowed)
    take_lines(p, from, first, rows, shared, own->lhs, &t);
  else
    take_rows(p, from, first, rows, own->lhs, &t);
  own->column = column;
  if (r->unread && columns == p->n) r->unread(r->user, item * p->m + first, rows, t.unread);
  multiply_part(r, &t, item, first, column, columns, own->middle);
  if (!r->second) return;
  const vt_strip *s = r->second;
  vt_strip_rows then = {
      .strip = s, .lhs = own->middle, .lhs_stride = s->k * 2, .rhs = own->second_laid};
  then.sums = own->second_sums, then.sums_row = s->sums_row, then.rows = rows;
  then.until = tiles_of(s->k, PAIRED), then.fetched = true;
  leave_zeros_out(&then);
  vt_strip_take_tiles(s);
  multiply_rows(&then, 0, s->n);
  vt_strip_take_tiles(p);
  r->second_finish(r->user, then.sums, item * s->m + first, rows, 0, s->n, NULL);
}

static void run_task(const vt_strip_run *r, int64_t item, int64_t first, int64_t rows,
                     int64_t column, int64_t columns, room *own) {
  const char *behind = own->next;
  for (int64_t i = 0, part = r->strip->part; i < rows; i += part) {
    own->next = i + part < rows ? left_of(r, item, first + i + part) : behind;
    run_part(r, item, first + i, least(part, rows - i), column, columns, own);
    own->fetched = own->next;
  }
}

// Sums are the same for any number of threads.
static int32_t team_of(const vt_strip_run *r) {
  enum { IN_TILES = 400, IN_PAIRS = 250 }; // products per ns of one thread, measured
  const vt_strip *p = r->strip, *s = r->second;
  int64_t products = p->items * p->m * (p->n * p->k + (s ? s->n * s->k : 0));
  return vt_waiting_team(products / (p->tiles ? IN_TILES : IN_PAIRS), p->threads);
}

// Each item with a right side of its own is a task.
static void run_items(const vt_strip_run *r) {
  const vt_strip *p = r->strip, *s = r->second;
#pragma omp parallel num_threads(team_of(r))
  {
    room own = room_of(r, r->scratch, omp_get_thread_num());
    vt_strip_take_tiles(p);
#pragma omp for schedule(dynamic) nowait
    for (int64_t item = 0; item < p->items; item++) {
      lay_item(p, r->rhs, item, own.laid);
      if (s) lay_item(s, r->second_rhs, item, own.second_laid);
      for (int64_t i = 0; i < p->m; i += p->block_m)
        run_task(r, item, i, least(p->block_m, p->m - i), 0, p->n, &own);
    }
    vt_strip_release_tiles(p);
  }
}

// A strip of such an item is one.
static void run_strips(const vt_strip_run *r) {
  const vt_strip *p = r->strip, *s = r->second;
  int64_t strips = tiles_of(p->m, p->block_m), second_bytes = s ? s->rhs_bytes : 0;
  char *sides = r->scratch, *seconds = sides + p->items * p->rhs_bytes;
#pragma omp parallel num_threads(team_of(r))
  {
    room own = room_of(r, seconds + p->items * second_bytes, omp_get_thread_num());
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < (s ? 2 : 1) * p->items; i++) {
      int64_t item = i % p->items;
      if (i < p->items)
        lay_item(p, r->rhs, item, sides + item * p->rhs_bytes);
      else
        lay_item(s, r->second_rhs, item, seconds + item * second_bytes);
    }
    vt_strip_take_tiles(p);
#pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < p->items * strips; i++) {
      int64_t item = i / strips, first = i % strips * p->block_m;
      own.laid = sides + item * p->rhs_bytes;
      if (s) own.second_laid = seconds + item * second_bytes;
      run_task(r, item, first, least(p->block_m, p->m - first), 0, p->n, &own);
    }
    vt_strip_release_tiles(p);
  }
}

static void run_blocks(const vt_strip_run *r) {
  const vt_strip *p = r->strip;
  int64_t total = rows_of_item(p), strips = tiles_of(total, p->block_m);
  int64_t down = p->items * strips, tasks = down * tiles_of(p->n, p->block_n);
  int64_t pieces = !p->shared ? 0 : p->gathers ? tiles_of(p->m, T) : p->items * p->lines;
  int32_t team = team_of(r);
  char *images = r->scratch, *end = images + p->scratch_bytes;
  int64_t shared = shared_bytes(p);
  vt_task_queue *queues = (vt_task_queue *)(void *)end - p->threads;
  vt_share_tasks(queues, team, tasks);
#pragma omp parallel num_threads(team)
  {
    room own = room_of(r, images + shared, omp_get_thread_num());
    if (pieces && p->gathers) {
#pragma omp for schedule(static) nowait
      for (int64_t i = 0; i < pieces; i++)
        gather_rows(p, r->lhs, i * T, least(T, p->m - i * T),
                    (uint16_t *)(void *)images + i * T * p->k);
    } else if (pieces) {
#pragma omp for schedule(dynamic, 1 + p->lines / 4) nowait
      for (int64_t i = 0; i < pieces; i++) {
        int64_t item = i / p->lines;
        uint16_t *image = (uint16_t *)(void *)(images + item * image_bytes(p));
        copy_lines(p, (const uint16_t *)r->lhs + offset_of(p, 0, item), 0, i % p->lines, 1, image);
        if (i % p->lines == 0) clear_end(p, image);
      }
    }
    if (r->lay) lay_shared(p, r->rhs, r->laid);
    if (pieces || r->lay) {
#pragma omp barrier
    }
    vt_strip_take_tiles(p);
    vt_task_turn turn = {queues, team, omp_get_thread_num(), team};
    for (int64_t i; (i = vt_take_task(&turn)) >= 0;) { // by columns, then rows
      int64_t item = i % down / strips, first = i % strips * p->block_m;
      int64_t column = i / down * p->block_n, next = i + 1;
      own.next = NULL;
      if (next < tasks) own.next = left_of(r, next % down / strips, next % strips * p->block_m);
      run_task(r, item, first, least(p->block_m, total - first), column,
               least(p->block_n, p->n - column), &own);
    }
    vt_strip_release_tiles(p);
  }
}

void vt_strip_multiply(const vt_strip_run *r) {
  if (r->laid)
    run_blocks(r);
  else if (lays_before(r->strip))
    run_strips(r);
  else
    run_items(r);
}
