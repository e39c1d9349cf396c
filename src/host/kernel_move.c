// SPDX-License-Identifier: Apache-2.0
// kernel_move.c - ops that only move elements: transpose, slice, broadcast, reverse, concatenate,
// pad, dynamic_slice, dynamic_update_slice. Bytes are copied, whatever the element type.
// Every op becomes one or more boxes: a dense or strided destination and a source with a stride per
// dimension. A box whose last dimension is contiguous on both sides is rows of memcpy; one that is
// contiguous in another dimension of the source is transposed in tiles (64 x 64 elements:
// power-of-two strides would evict each other from L1).
#include "base/check.h"
#include "host/kernel_move.h"

#include <string.h>

#include "host/cpu.h"
#include "host/turn.h"

// LINE: elements of a line that one task copies, SHARED_LINE: of several in the same cache lines
enum { TILE = 64, LINE = 16 << 10, SHARED_LINE = 1 << 10 };
static const int64_t PARALLEL_BYTES = 512 << 10;

// ---- Boxes.

static void drop_dim(vt_box *box, int32_t at) {
  vt_assert(at >= 0 && at < box->rank);
  box->rank--;
  for (int32_t i = at; i < box->rank; i++) {
    box->dims[i] = box->dims[i + 1];
    box->to[i] = box->to[i + 1];
    box->from[i] = box->from[i + 1];
  }
}

// Drops dimensions of size 1 and merges adjacent ones that are contiguous on both sides.
void vt_box_normalise(vt_box *box) {
  for (int32_t i = box->rank - 1; i >= 0; i--)
    if (box->dims[i] == 1) drop_dim(box, i);
  for (int32_t i = box->rank - 2; i >= 0; i--) {
    if (box->to[i] != box->to[i + 1] * box->dims[i + 1] ||
        box->from[i] != box->from[i + 1] * box->dims[i + 1])
      continue;
    box->dims[i + 1] *= box->dims[i];
    drop_dim(box, i);
  }
  if (box->rank) return;
  box->rank = 1;
  box->dims[0] = 1;
  box->to[0] = box->from[0] = box->bytes;
}

// The same for boxes that are only copied: short runs (pairs of keys or of real numbers) become
// elements too.
static void join_words(vt_box *box) {
  vt_box_normalise(box);
  int32_t last = box->rank - 1;
  int64_t run = box->dims[last] * box->bytes;
  bool runs = box->to[last] == box->bytes && box->from[last] == box->bytes;
  if (last == 0 || !runs || (run != 2 && run != 4 && run != 8)) return;
  box->bytes = run;
  drop_dim(box, last);
}

// Elements that lie anywhere.
typedef uint16_t word16 __attribute__((aligned(1), may_alias));
typedef uint32_t word32 __attribute__((aligned(1), may_alias));
typedef uint64_t word64 __attribute__((aligned(1), may_alias));

// Backwards, every other element and one for all: vectors.
#define STRIDED(type)                                                                              \
  do {                                                                                             \
    enum { BYTES = sizeof(type) };                                                                 \
    if (to_step == BYTES && from_step == -BYTES)                                                   \
      EACH(type, BYTES, -BYTES);                                                                   \
    else if (to_step == BYTES && from_step == 2 * BYTES)                                           \
      EACH(type, BYTES, 2 * BYTES);                                                                \
    else if (to_step == BYTES && from_step == 0)                                                   \
      EACH(type, BYTES, 0);                                                                        \
    else                                                                                           \
      EACH(type, to_step, from_step);                                                              \
  } while (0)
#define EACH(type, to_step, from_step)                                                             \
  for (int64_t i = 0; i < n; i++)                                                                  \
  *(type *)(to + i * (to_step)) = *(const type *)(from + i * (from_step))

VT_ANY_CPU static void copy_line(char *restrict to, const char *restrict from, int64_t n,
                                 int64_t to_step, int64_t from_step, int64_t bytes) {
  if (to_step == bytes && from_step == bytes) {
    memcpy(to, from, (size_t)(n * bytes));
    return;
  }
  switch (bytes) {
  case 1:
    STRIDED(uint8_t);
    break;
  case 2:
    STRIDED(word16);
    break;
  case 4:
    STRIDED(word32);
    break;
  case 8:
    STRIDED(word64);
    break;
  default:
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, (size_t)bytes);
  }
}

// Where the columns of a tile lie: `count` of them `step` bytes apart, and then the next so many,
// whose first is `skip` bytes behind where the one after the last would be.
typedef struct columns_at {
  int64_t count, step, skip;
} columns_at;

// One tile, rows x columns elements: `to` has columns next to each other, `from` rows. It passes
// through a buffer of its own, so that each cache line of either side is accessed all at once:
// large power-of-two strides would otherwise evict the tile's lines from L1 before they are fully
// used. Of 4 bytes, lines are written faster one number after the other than in squares.
#define TAKE_LINES(type)                                                                           \
  type lines[TILE][TILE + 64 / sizeof(type)];                                                      \
  for (int64_t c = 0, end; c < columns; from += at->skip) {                                        \
    end = columns - c < at->count ? columns : c + at->count;                                       \
    for (; c < end; c++, from += at->step) memcpy(lines[c], from, (size_t)rows * sizeof(type));    \
  }

#define TRANSPOSE(type, lanes)                                                                     \
  do {                                                                                             \
    TAKE_LINES(type);                                                                              \
    int64_t whole_rows = rows & -lanes, whole_columns = columns & -lanes;                          \
    for (int64_t r = 0; r < whole_rows; r += lanes)                                                \
      for (int64_t c = 0; c < whole_columns; c += lanes)                                           \
        vt_turn##lanes(&lines[c][r], sizeof lines[c],                                              \
                       to + r * to_step + c * (int64_t)sizeof(type), to_step);                     \
    for (int64_t r = 0; r < rows; r++)                                                             \
      for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++)                       \
        memcpy(to + r * to_step + c * (int64_t)sizeof(type), &lines[c][r], sizeof(type));          \
  } while (0)

static void transpose_words(char *to, const char *from, int64_t rows, int64_t columns,
                            int64_t to_step, const columns_at *at) {
  TAKE_LINES(word32);
  for (int64_t r = 0; r < rows; r++) {
    word32 *line = (word32 *)(to + r * to_step);
    for (int64_t c = 0; c < columns; c++) line[c] = lines[c][r];
  }
}

VT_ANY_CPU static void transpose_tile(char *to, const char *from, int64_t rows, int64_t columns,
                                      int64_t to_step, const columns_at *at, int64_t bytes) {
  vt_assert(rows <= TILE && columns <= TILE &&
            (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8));
  switch (bytes) {
  case 1:
    TRANSPOSE(uint8_t, 16);
    break;
  case 2:
    TRANSPOSE(uint16_t, 8);
    break;
  case 4:
    transpose_words(to, from, rows, columns, to_step, at);
    break;
  default:
    TRANSPOSE(uint64_t, 2);
    break;
  }
}

// The offset of outer index `index` (dimensions except those in `skip`) on both sides.
static void locate(const vt_box *box, int64_t index, uint32_t skip, int64_t *to, int64_t *from) {
  *to = *from = 0;
  for (int32_t i = box->rank - 1; i >= 0; i--) {
    if ((skip >> i) & 1) continue;
    int64_t at = index % box->dims[i];
    index /= box->dims[i];
    *to += at * box->to[i];
    *from += at * box->from[i];
  }
}

static int64_t count_outer(const vt_box *box, uint32_t skip) {
  int64_t n = 1;
  for (int32_t i = 0; i < box->rank; i++)
    if (!((skip >> i) & 1)) n *= box->dims[i];
  return n;
}

// The dimension whose lines are copied: the last one, or a long one before a short one, so that
// there are few lines.
static int32_t line_dim(const vt_box *box) {
  enum { SHORT = 8 };
  int32_t last = box->rank - 1;
  if (!last || box->dims[last] >= SHORT || box->dims[last - 1] < SHORT * SHORT) return last;
  return last - 1;
}

// The dimension in which the source is contiguous when the last one is not; -1 = none.
static int32_t turned_dim(const vt_box *box) {
  int32_t last = box->rank - 1;
  if (box->to[last] != box->bytes || box->from[last] == box->bytes || box->from[last] == 0 ||
      box->bytes > 8)
    return -1;
  for (int32_t i = 0; i < last; i++)
    if (box->from[i] == box->bytes && box->dims[i] >= 4) return i;
  return -1;
}

// Each element `times` times.
#define REPEATED(type)                                                                             \
  do {                                                                                             \
    type *restrict out = (type *)to;                                                               \
    const type *restrict in = (const type *)from;                                                  \
    if (times == 2)                                                                                \
      for (int64_t i = 0; i < n; i++) out[2 * i] = out[2 * i + 1] = in[i];                         \
    else                                                                                           \
      for (int64_t i = 0; i < n; i++)                                                              \
        for (int64_t k = 0; k < times; k++) out[i * times + k] = in[i];                            \
  } while (0)

VT_ANY_CPU static void repeat_line(char *to, const char *from, int64_t n, int64_t times,
                                   int64_t bytes) {
  switch (bytes) {
  case 1:
    REPEATED(uint8_t);
    break;
  case 2:
    REPEATED(word16);
    break;
  case 4:
    REPEATED(word32);
    break;
  default:
    REPEATED(word64);
  }
}

// Whether the last dimension repeats the elements of a line.
static bool repeats(const vt_box *box, int32_t line) {
  int32_t last = box->rank - 1;
  return line < last && box->from[last] == 0 && box->to[last] == box->bytes &&
         box->from[line] == box->bytes && box->to[line] == box->dims[last] * box->bytes &&
         (box->bytes == 1 || box->bytes == 2 || box->bytes == 4 || box->bytes == 8);
}

static void copy_lines(const vt_box *box, char *to_base, const char *from_base, bool parallel) {
  int32_t last = box->rank - 1, line = line_dim(box);
  bool repeated = repeats(box, line);
  uint32_t skip = 1u << line | (repeated ? 1u << last : 0u);
  // lines that share cache lines
  int64_t side_by_side = line == last || repeated ? 1 : box->dims[last];
  int64_t length = box->dims[line], piece = line == last ? LINE : SHARED_LINE;
  int64_t pieces = (length + piece - 1) / piece, items = count_outer(box, skip) * pieces;
#pragma omp parallel for schedule(dynamic, vt_host_share(items)) if (parallel && items > 1)
  for (int64_t item = 0; item < items; item++) {
    int64_t to_at, from_at, others = item / side_by_side, at = others % pieces * piece;
    locate(box, others / pieces * side_by_side + item % side_by_side, skip, &to_at, &from_at);
    char *to = to_base + to_at + at * box->to[line];
    const char *from = from_base + from_at + at * box->from[line];
    int64_t n = length - at < piece ? length - at : piece;
    if (repeated)
      repeat_line(to, from, n, box->dims[last], box->bytes);
    else
      copy_line(to, from, n, box->to[line], box->from[line], box->bytes);
  }
}

// Few columns, as the taps of weights: a tile has those of the dimension before too, which lie next
// to them.
static void copy_turned(const vt_box *box, int32_t turned, char *to_base, const char *from_base,
                        bool parallel) {
  int32_t last = box->rank - 1;
  int64_t columns = box->dims[last], rows = box->dims[turned];
  int64_t each = columns, width = TILE, piece = columns, between = 0;
  uint32_t skip = 1u << last | 1u << turned;
  if (last && turned != last - 1 && columns <= TILE / 2 &&
      box->to[last - 1] == columns * box->bytes) {
    between = box->from[last - 1];
    width = TILE / columns * columns, piece = 16 * width;
    columns *= box->dims[last - 1];
    skip |= 1u << (last - 1);
  }
  columns_at at = {each, box->from[last], between - each * box->from[last]};
  int64_t tiles = (rows + TILE - 1) / TILE, pieces = (columns + piece - 1) / piece;
  int64_t items = count_outer(box, skip) * tiles * pieces;
#pragma omp parallel for schedule(dynamic, vt_host_share(items)) if (parallel && items > 1)
  for (int64_t item = 0; item < items; item++) {
    int64_t to_at, from_at, begin = item % pieces * piece, r = item / pieces % tiles * TILE;
    int64_t height = rows - r < TILE ? rows - r : TILE;
    int64_t end = columns - begin < piece ? columns : begin + piece;
    locate(box, item / pieces / tiles, skip, &to_at, &from_at);
    char *to = to_base + to_at + r * box->to[turned];
    const char *from = from_base + from_at + r * box->bytes;
    for (int64_t c = begin; c < end; c += width)
      transpose_tile(to + c * box->bytes, from + c / each * between + c % each * at.step, height,
                     end - c < width ? end - c : width, box->to[turned], &at, box->bytes);
  }
}

void vt_box_copy(const vt_box *box, void *to_base, const void *from_base) {
  vt_assert(box->rank >= 1 && box->rank <= VT_MAX_RANK && box->bytes >= 1);
  int32_t turned = turned_dim(box);
  bool parallel = count_outer(box, 0) * box->bytes > PARALLEL_BYTES;
  if (turned < 0) {
    copy_lines(box, to_base, from_base, parallel);
    return;
  }
  copy_turned(box, turned, to_base, from_base, parallel);
}

// One contiguous run is split so that all threads copy.
static void copy_large(const vt_box *box, void *to, const void *from) {
  enum { PIECE = 256 << 10 };
  bool flat = box->rank == 1 && box->to[0] == box->bytes && box->from[0] == box->bytes;
  int64_t bytes = flat ? box->dims[0] * box->bytes : 0;
  if (bytes < 2 * PIECE) {
    vt_box_copy(box, to, from);
    return;
  }
#pragma omp parallel for schedule(dynamic)
  for (int64_t at = 0; at < bytes; at += PIECE)
    memcpy((char *)to + at, (const char *)from + at,
           (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
}

static void byte_strides(vt_type type, int64_t *strides) {
  vt_type_strides(type, strides);
  for (int32_t i = 0; i < type.rank; i++) strides[i] *= (int64_t)vt_dtype_bytes(type.dtype);
}

// A box of the shape `dims` whose destination is dense in `to` and whose source is dense in `from`.
static vt_box box_between(vt_type to, vt_type from, const int64_t *dims) {
  vt_assert(vt_dtype_bytes(to.dtype) == vt_dtype_bytes(from.dtype) && to.rank == from.rank);
  vt_box box = {.rank = to.rank, .bytes = (int64_t)vt_dtype_bytes(to.dtype)};
  if (to.rank) memcpy(box.dims, dims, sizeof *dims * (size_t)to.rank);
  byte_strides(to, box.to);
  byte_strides(from, box.from);
  return box;
}

// ---- Views.

typedef struct move_plan {
  int64_t to_at, from_at;
  vt_box box;
} move_plan;

static void run_move(const vt_native_call *call) {
  const move_plan *plan = call->native->plan;
  copy_large(&plan->box, (char *)call->outputs[0] + plan->to_at,
             (const char *)call->operands[0] + plan->from_at);
}

static const vt_native *make_view(vt_arena *arena, const vt_op *op) {
  move_plan *plan = VT_NEW(arena, move_plan);
  vt_type to = op->results[0].type, from = op->operands[0]->type;
  int64_t strides[VT_MAX_RANK], from_strides[VT_MAX_RANK] = {0};
  byte_strides(from, strides);
  uint32_t count;
  switch (op->code) {
  case VT_OP_TRANSPOSE: {
    const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
    for (uint32_t i = 0; i < count; i++) from_strides[i] = strides[order[i]];
    break;
  }
  case VT_OP_BROADCAST_IN_DIM: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++)
      if (from.dims[i] != 1) from_strides[dims[i]] = strides[i];
    break;
  }
  case VT_OP_SLICE: {
    const int64_t *start = vt_attr_ints(op, VT_ATTR_START_INDICES, &count);
    const int64_t *step = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
    for (uint32_t i = 0; i < count; i++) {
      plan->from_at += start[i] * strides[i];
      from_strides[i] = step[i] * strides[i];
    }
    break;
  }
  default: { // REVERSE
    memcpy(from_strides, strides, sizeof strides);
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) {
      plan->from_at += (from.dims[dims[i]] - 1) * strides[dims[i]];
      from_strides[dims[i]] = -strides[dims[i]];
    }
  }
  }
  plan->box = box_between(to, to, to.dims);
  memcpy(plan->box.from, from_strides, sizeof from_strides);
  join_words(&plan->box);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_move, .plan = plan};
  return native;
}

// ---- Concatenate.

typedef struct concat_plan {
  uint32_t count;
  move_plan *parts;
} concat_plan;

static void run_concat(const vt_native_call *call) {
  const concat_plan *plan = call->native->plan;
  for (uint32_t i = 0; i < plan->count; i++)
    copy_large(&plan->parts[i].box, (char *)call->outputs[0] + plan->parts[i].to_at,
               call->operands[i]);
}

static const vt_native *make_concat(vt_arena *arena, const vt_op *op) {
  concat_plan *plan = VT_NEW(arena, concat_plan);
  int64_t axis = vt_attr_i64(op, VT_ATTR_DIMENSION), at = 0, strides[VT_MAX_RANK];
  byte_strides(op->results[0].type, strides);
  plan->count = op->operand_count;
  plan->parts = VT_NEW_ARRAY(arena, move_plan, plan->count);
  for (uint32_t i = 0; i < plan->count; i++) {
    vt_type part = op->operands[i]->type;
    plan->parts[i].to_at = at * strides[axis];
    plan->parts[i].box = box_between(op->results[0].type, part, part.dims);
    if (vt_type_elements(part) == 0) plan->parts[i].box.dims[0] = 0;
    join_words(&plan->parts[i].box);
    at += part.dims[axis];
  }
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_concat, .plan = plan};
  return native;
}

// ---- Pad.

typedef struct pad_plan {
  int64_t elements, bytes;
  bool covers; // no element of the result is padding
  move_plan inner;
} pad_plan;

static void fill_elements(void *to, const void *value, int64_t n, int64_t bytes) {
  copy_line(to, value, n, bytes, 0, bytes);
}

static void run_pad(const vt_native_call *call) {
  enum { PIECE = 64 << 10 };
  const pad_plan *plan = call->native->plan;
  char *out = call->outputs[0];
  if (!plan->covers) {
#pragma omp parallel for schedule(static) if (plan->elements > 2 * PIECE)
    for (int64_t at = 0; at < plan->elements; at += PIECE)
      fill_elements(out + at * plan->bytes, call->operands[1],
                    plan->elements - at < PIECE ? plan->elements - at : PIECE, plan->bytes);
  }
  if (plan->inner.box.dims[0])
    vt_box_copy(&plan->inner.box, out + plan->inner.to_at,
                (const char *)call->operands[0] + plan->inner.from_at);
}

static const vt_native *make_pad(vt_arena *arena, const vt_op *op) {
  pad_plan *plan = VT_NEW(arena, pad_plan);
  vt_type to = op->results[0].type, from = op->operands[0]->type;
  const int64_t *low = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_LOW, NULL);
  const int64_t *gap = vt_attr_ints(op, VT_ATTR_INTERIOR_PADDING, NULL);
  plan->elements = vt_type_elements(to);
  plan->bytes = (int64_t)vt_dtype_bytes(to.dtype);
  vt_box box = box_between(to, from, from.dims);
  int64_t copied = 1;
  for (int32_t i = 0; i < to.rank; i++) {
    int64_t step = gap[i] + 1;
    // Elements k of the operand with 0 <= low + k step < size.
    int64_t first = low[i] < 0 ? (-low[i] + step - 1) / step : 0;
    int64_t end = (to.dims[i] - low[i] + step - 1) / step;
    if (to.dims[i] - low[i] <= 0) end = 0;
    if (end > from.dims[i]) end = from.dims[i];
    box.dims[i] = end > first ? end - first : 0;
    plan->inner.to_at += (low[i] + first * step) * box.to[i];
    plan->inner.from_at += first * box.from[i];
    box.to[i] *= step;
    copied *= box.dims[i];
  }
  plan->covers = copied == plan->elements;
  plan->inner.box = box;
  if (copied == 0)
    plan->inner.box.dims[0] = 0, plan->inner.box.rank = 1;
  else
    join_words(&plan->inner.box);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_pad, .plan = plan};
  return native;
}

// ---- Dynamic slices.

typedef struct dynamic_plan {
  int32_t rank;
  bool is_signed;
  int64_t index_bytes;
  int64_t most[VT_MAX_RANK];    // largest start of each dimension
  int64_t strides[VT_MAX_RANK]; // of the large side
  int64_t whole_bytes;          // of the operand that an update keeps
  vt_box box;
} dynamic_plan;

int64_t vt_read_index(const void *data, int64_t bytes, bool is_signed) {
  switch (bytes) {
  case 1:
    return is_signed ? (int64_t)*(const int8_t *)data : (int64_t)*(const uint8_t *)data;
  case 2:
    return is_signed ? (int64_t)*(const int16_t *)data : (int64_t)*(const uint16_t *)data;
  case 4:
    return is_signed ? (int64_t)*(const int32_t *)data : (int64_t)*(const uint32_t *)data;
  default: {
    int64_t x = *(const int64_t *)data;
    return !is_signed && x < 0 ? INT64_MAX : x;
  }
  }
}

static int64_t start_offset(const dynamic_plan *plan, void *const *starts) {
  int64_t at = 0;
  for (int32_t i = 0; i < plan->rank; i++) {
    int64_t start = vt_read_index(starts[i], plan->index_bytes, plan->is_signed);
    if (start > plan->most[i]) start = plan->most[i];
    if (start < 0) start = 0;
    at += start * plan->strides[i];
  }
  return at;
}

static void run_dynamic_slice(const vt_native_call *call) {
  const dynamic_plan *plan = call->native->plan;
  int64_t at = start_offset(plan, call->operands + 1);
  copy_large(&plan->box, call->outputs[0], (const char *)call->operands[0] + at);
}

static void run_dynamic_update(const vt_native_call *call) {
  const dynamic_plan *plan = call->native->plan;
  char *out = call->outputs[0];
  int64_t at = start_offset(plan, call->operands + 2);
  if (out != call->operands[0]) {
    vt_box whole = {.rank = 1, .bytes = 1, .dims = {plan->whole_bytes}, .to = {1}, .from = {1}};
    copy_large(&whole, out, call->operands[0]);
  }
  if (out + at != call->operands[1]) copy_large(&plan->box, out + at, call->operands[1]); // views
}

int64_t vt_move_start(const vt_native *move, void *const *starts) {
  return start_offset(move->plan, starts);
}

static const vt_native *make_dynamic(vt_arena *arena, const vt_op *op) {
  bool update = op->code == VT_OP_DYNAMIC_UPDATE_SLICE;
  dynamic_plan *plan = VT_NEW(arena, dynamic_plan);
  vt_type large = op->operands[0]->type,
          small = update ? op->operands[1]->type : op->results[0].type;
  plan->rank = large.rank;
  plan->whole_bytes = vt_type_bytes(large);
  byte_strides(large, plan->strides);
  for (int32_t i = 0; i < large.rank; i++) plan->most[i] = large.dims[i] - small.dims[i];
  if (large.rank) {
    vt_dtype index = op->operands[update ? 2u : 1u]->type.dtype;
    plan->index_bytes = (int64_t)vt_dtype_bytes(index);
    plan->is_signed = vt_dtype_kind_of(index) == VT_KIND_SIGNED;
  }
  plan->box =
      update ? box_between(large, small, small.dims) : box_between(small, large, small.dims);
  join_words(&plan->box);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){
      .run = update ? run_dynamic_update : run_dynamic_slice, .in_place = update, .plan = plan};
  return native;
}

typedef const vt_native *make_fn(vt_arena *arena, const vt_op *op);
static make_fn *const makers[VT_OP_COUNT] = {
    [VT_OP_TRANSPOSE] = make_view,
    [VT_OP_BROADCAST_IN_DIM] = make_view,
    [VT_OP_SLICE] = make_view,
    [VT_OP_REVERSE] = make_view,
    [VT_OP_CONCATENATE] = make_concat,
    [VT_OP_PAD] = make_pad,
    [VT_OP_DYNAMIC_SLICE] = make_dynamic,
    [VT_OP_DYNAMIC_UPDATE_SLICE] = make_dynamic,
};

const vt_native *vt_move_create(vt_arena *arena, const vt_op *op) {
  return makers[op->code](arena, op);
}

bool vt_move_supports(const vt_op *op) {
  if (!makers[op->code] || vt_type_elements(op->results[0].type) == 0) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (vt_type_elements(op->operands[i]->type) == 0) return false;
  return true;
}
