// SPDX-License-Identifier: Apache-2.0
// halo.c - elements that cross from tile to tile along a dimension: halos.
//
// Tile i of n holds positions [i * shard, (i + 1) * shard) and needs [start(i), limit(i)). Plainly,
// every tile gets the same number of elements from its neighbours to the left, the most that any
// tile needs, then what it has, then elements from the right; each neighbour further away is one
// collective-permute, and each device cuts out what it needs. Where a few tiles need something far
// away, as with results much smaller than the input, permutes carry just the ranges in need
// (compact).
#include <stdlib.h>

#include "base/check.h"
#include "spmd/partition/halo.h"

static int64_t max_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// An exchange on its way.
typedef struct halo_exchange {
  vt_parter *p;
  vt_arena scratch;
  const vt_assign *assign;
  const vt_halo *halo;
  vt_value *local;
  vt_value *pad; // NULL: anything
  int64_t shard; // elements of local
} exchange;

// The tile of the assignment that takes part as number i.
static int32_t tile_of(const vt_halo *h, int32_t i) {
  return i < h->front ? i : i + h->skip;
}

// A number for each tile that takes part, 0 for the others.
static vt_value *lookup(exchange *x, const int64_t *numbers) {
  int64_t *table = VT_NEW_ARRAY(&x->scratch, int64_t, x->assign->dims[x->halo->dim]);
  for (int32_t i = 0; i < x->halo->tiles; i++) table[tile_of(x->halo, i)] = numbers[i];
  return vt_emit_by_tile(x->p, x->assign, x->halo->dim, table);
}

static int64_t left_of(const exchange *x, int32_t i) {
  return i * x->shard - x->halo->start[i];
}
static int64_t right_of(const exchange *x, int32_t i) {
  return x->halo->limit[i] - (i + 1) * x->shard;
}

// The largest halos of tiles [first, last).
static int64_t max_halo(const exchange *x, int64_t (*halo)(const exchange *, int32_t),
                        int32_t first, int32_t last) {
  int64_t out = halo(x, first);
  for (int32_t i = first + 1; i < last; i++) out = max_of(out, halo(x, i));
  return out;
}

static vt_value *filler(exchange *x) {
  return x->pad ? x->pad : vt_emit_padding(x->p, x->local->type.dtype);
}

// Sets positions outside of the array to the pad value.
static vt_value *mask_outside(exchange *x, vt_value *v) {
  const vt_halo *h = x->halo;
  vt_parter *p = x->p;
  bool low = false, high = false;
  for (int32_t i = 0; i < h->tiles; i++) {
    low = low || h->start[i] < 0;
    high = high || h->limit[i] > h->valid;
  }
  if (!x->pad || (!low && !high)) return v;
  vt_type type = v->type;
  type.dtype = VT_S32;
  vt_value *first = vt_emit_splat(p, type, lookup(x, h->start));
  vt_value *at = vt_emit2(p, VT_OP_ADD, type, vt_emit_iota(p, VT_S32, type, h->dim), first);
  vt_value *inside = NULL;
  if (low) inside = vt_emit_compare(p, VT_CMP_GE, at, vt_emit_splat(p, type, vt_emit_s32(p, 0)));
  if (high) {
    vt_value *limit = vt_emit_splat(p, type, vt_emit_s32(p, h->valid));
    vt_value *below = vt_emit_compare(p, VT_CMP_LT, at, limit);
    inside = inside ? vt_emit2(p, VT_OP_AND, below->type, inside, below) : below;
  }
  return vt_emit_select(p, inside, v, vt_emit_splat(p, v->type, x->pad));
}

// ---- from neighbours ----------------------------------------------------------------------------

// [low, high) of the tile `distance` to the left (to the right, if negative); zeros where there is
// none.
static vt_value *from_neighbour(exchange *x, int32_t distance, int64_t low, int64_t high) {
  const vt_halo *h = x->halo;
  vt_value *piece = vt_emit_slice(x->p, x->local, h->dim, low, high);
  int32_t *source = VT_NEW_ARRAY(&x->scratch, int32_t, x->assign->dims[h->dim]);
  bool any = false;
  for (int32_t t = 0; t < x->assign->dims[h->dim]; t++) source[t] = -1;
  for (int32_t i = 0; i < h->tiles; i++) {
    int32_t from = i - distance;
    if (from < 0 || from >= h->tiles) continue;
    source[tile_of(h, i)] = tile_of(h, from);
    any = true;
  }
  if (!any) return vt_emit_splat(x->p, piece->type, filler(x));
  return vt_emit_permute_tiles(x->p, piece, x->assign, h->dim, source);
}

// Pieces side by side: they cover positions [low, high) relative to the start of the own shard.
typedef struct row {
  int64_t low, high;
  vt_value *joined;
} row;

static bool join_neighbours(exchange *x, row *out) {
  int32_t n = x->halo->tiles;
  int64_t shard = x->shard, left = max_halo(x, left_of, 1, n),
          right = max_halo(x, right_of, 0, n - 1);
  if (left + right + shard >= n * shard && (left > shard || right > shard)) return false;
  int64_t low = -max_halo(x, left_of, 0, n), high = shard + max_halo(x, right_of, 0, n);
  if (low >= high) return false;
  int64_t lefts = max_of(0, vt_ceil(max_of(left, 0), shard));
  int64_t rights = max_of(0, vt_ceil(max_of(right, 0), shard));
  vt_value **pieces = VT_NEW_ARRAY(&x->scratch, vt_value *, lefts + rights + 2);
  uint32_t count = 0;
  out->low = left > 0 ? -left : max_of(0, low);
  for (int64_t i = lefts; i-- > 0 && (-i - 1) * shard < high;) {
    int64_t size = min_of(left - shard * i, shard), unused = max_of(-i * shard - high, 0);
    pieces[count++] = from_neighbour(x, (int32_t)i + 1, shard - size, shard - unused);
  }
  if (low < shard && high > 0)
    pieces[count++] =
        vt_emit_slice(x->p, x->local, x->halo->dim, max_of(0, low), min_of(shard, high));
  for (int64_t i = 0; i < rights; i++) {
    int64_t size = min_of(right - shard * i, shard), unused = max_of(low - (i + 1) * shard, 0);
    if (unused < size) pieces[count++] = from_neighbour(x, -(int32_t)i - 1, unused, size);
  }
  if (!count) return false;
  out->joined = vt_emit_concat(x->p, count, pieces, x->halo->dim);
  out->high = out->low + out->joined->type.dims[x->halo->dim];
  return true;
}

// Each tile's elements out of the row.
static vt_value *cut_row(exchange *x, row r) {
  const vt_halo *h = x->halo;
  int64_t *begin = VT_NEW_ARRAY(&x->scratch, int64_t, h->tiles);
  int64_t first = -left_of(x, 0), last = first;
  for (int32_t i = 0; i < h->tiles; i++) {
    begin[i] = -left_of(x, i);
    first = min_of(first, begin[i]);
    last = max_of(last, begin[i]);
  }
  int64_t more = max_of(0, r.low - first);
  vt_value *v =
      vt_emit_pad(x->p, r.joined, filler(x), h->dim, more, max_of(0, last + h->size - r.high));
  for (int32_t i = 0; i < h->tiles; i++) begin[i] += more - r.low;
  if (first == last) return vt_emit_slice(x->p, v, h->dim, begin[0], begin[0] + h->size);
  vt_value *offsets[VT_MAX_RANK] = {0};
  offsets[h->dim] = lookup(x, begin);
  return vt_emit_dynamic_slice(x->p, v, offsets, vt_type_with(x->p, v->type, h->dim, h->size));
}

// ---- compact ------------------------------------------------------------------------------------

// Elements [low, high) of tile `source` go to tile `target`, to position `at` of what it gets.
typedef struct transfer {
  int32_t source, target, round;
  int64_t low, high, at;
  bool sent;
} transfer;
typedef VT_ARRAY(transfer) transfers;

static void find_transfers(const exchange *x, transfers *out) {
  const vt_halo *h = x->halo;
  for (int32_t i = 0; i < h->tiles; i++) {
    int64_t at = max_of(h->start[i], 0);
    for (int32_t round = 0; at < h->limit[i] && at < h->valid; round++) {
      int64_t source = at / x->shard, low = at % x->shard;
      int64_t size = min_of(x->shard - low, h->limit[i] - at);
      transfer t = {(int32_t)source, i, round, low, low + size, at - h->start[i], false};
      vt_array_push(out, t);
      at += size;
    }
  }
}

// Transfers are tried in order of their source, and of one source by their place in the target.
static int by_source(const void *a, const void *b) {
  const transfer *s = a, *t = b;
  if (s->source != t->source) return s->source < t->source ? -1 : 1;
  if (s->at != t->at) return s->at < t->at ? -1 : 1;
  if (s->round != t->round) return s->round < t->round ? -1 : 1;
  return s->target < t->target ? -1 : s->target > t->target;
}

// Transfers of one permute: no source and no target twice, and no range that grows from one end of
// the shard to the other.
typedef struct batch {
  int64_t low, high;
  int32_t count;
  int32_t *source;      // by tile of the assignment
  const transfer **got; // by tile that takes part
} batch;

static bool fits_batch(const exchange *x, const batch *b, const transfer *t) {
  if (b->got[t->target]) return false;
  if (!b->count) return true;
  return !(b->low > t->high && b->high == x->shard && t->low == 0) &&
         !(b->high < t->low && b->low == 0 && t->high == x->shard);
}

static batch next_batch(exchange *x, transfers *all) {
  const vt_halo *h = x->halo;
  int32_t tiles = x->assign->dims[h->dim], last = -1;
  batch b = {.low = x->shard,
             .source = VT_NEW_ARRAY(&x->scratch, int32_t, tiles),
             .got = VT_NEW_ARRAY(&x->scratch, const transfer *, h->tiles)};
  for (int32_t t = 0; t < tiles; t++) b.source[t] = -1;
  for (size_t k = 0; k < all->size; k++) {
    transfer *t = &all->data[k];
    if (t->sent || t->source == t->target || t->source == last) continue;
    last = t->source; // its first one, now or in a later batch
    if (!fits_batch(x, &b, t)) continue;
    t->sent = true;
    b.got[t->target] = t;
    b.source[tile_of(h, t->target)] = tile_of(h, t->source);
    b.low = min_of(b.low, t->low);
    b.high = max_of(b.high, t->high);
    b.count++;
  }
  return b;
}

// Puts a piece, elements [low, ...) of a shard, where the transfers say.
static vt_value *place_piece(exchange *x, vt_value *into, vt_value *piece, int64_t low,
                             const transfer *const *got) {
  const vt_halo *h = x->halo;
  vt_parter *p = x->p;
  int64_t *begin = VT_NEW_ARRAY(&x->scratch, int64_t, h->tiles);
  int64_t *first = VT_NEW_ARRAY(&x->scratch, int64_t, h->tiles);
  int64_t *last = VT_NEW_ARRAY(&x->scratch, int64_t, h->tiles);
  int64_t width = piece->type.dims[h->dim];
  for (int32_t i = 0; i < h->tiles; i++) {
    if (!got[i]) continue;
    begin[i] = h->size + got[i]->low - low - got[i]->at;
    first[i] = got[i]->at;
    last[i] = got[i]->at + got[i]->high - got[i]->low;
  }
  vt_value *offsets[VT_MAX_RANK] = {0};
  piece = vt_emit_pad(p, piece, filler(x), h->dim, h->size, h->size);
  vt_assert(piece->type.dims[h->dim] == width + 2 * h->size);
  (void)width;
  offsets[h->dim] = lookup(x, begin);
  vt_value *shifted = vt_emit_dynamic_slice(p, piece, offsets, into->type);
  vt_type type = into->type;
  type.dtype = VT_S32;
  vt_value *at = vt_emit_iota(p, VT_S32, type, h->dim);
  vt_value *from = vt_emit_compare(p, VT_CMP_GE, at, vt_emit_splat(p, type, lookup(x, first)));
  vt_value *to = vt_emit_compare(p, VT_CMP_LT, at, vt_emit_splat(p, type, lookup(x, last)));
  return vt_emit_select(p, vt_emit2(p, VT_OP_AND, to->type, from, to), shifted, into);
}

static vt_value *send_compact(exchange *x) {
  const vt_halo *h = x->halo;
  transfers all = {0};
  find_transfers(x, &all);
  if (all.size) qsort(all.data, all.size, sizeof *all.data, by_source);
  vt_value *out =
      vt_emit_splat(x->p, vt_type_with(x->p, x->local->type, h->dim, h->size), filler(x));
  const transfer **own = VT_NEW_ARRAY(&x->scratch, const transfer *, h->tiles);
  bool any = false;
  for (size_t k = 0; k < all.size; k++)
    if (all.data[k].source == all.data[k].target) {
      own[all.data[k].target] = &all.data[k];
      any = true;
    }
  if (any) out = place_piece(x, out, x->local, 0, own);
  for (;;) {
    batch b = next_batch(x, &all);
    if (!b.count) break;
    vt_value *piece = vt_emit_slice(x->p, x->local, h->dim, b.low, b.high);
    piece = vt_emit_permute_tiles(x->p, piece, x->assign, h->dim, b.source);
    out = place_piece(x, out, piece, b.low, b.got);
  }
  vt_array_free(&all);
  return out;
}

// ---- either -------------------------------------------------------------------------------------

typedef enum way { NEIGHBOURS, COMPACT, NO_WAY } way;

static way choose_way(const exchange *x) {
  const vt_halo *h = x->halo;
  int64_t far = max_of(max_halo(x, left_of, 0, h->tiles), max_halo(x, right_of, 0, h->tiles));
  int64_t most = 0;
  for (int32_t i = 0; i < h->tiles; i++) most = max_of(most, h->limit[i] - h->start[i]);
  if (h->way == VT_HALO_COMPACT) return COMPACT;
  if (h->way == VT_HALO_NEAR || most != h->size || far <= 2 * h->size) return NEIGHBOURS;
  return most * 2 >= h->tiles * x->shard ? NO_WAY : COMPACT;
}

bool vt_exchange_halo(vt_parter *p, const vt_assign *assign, vt_value *local, const vt_halo *halo,
                      vt_value *pad, vt_value **out) {
  exchange x = {.p = p,
                .assign = assign,
                .halo = halo,
                .local = local,
                .pad = pad,
                .shard = local->type.dims[halo->dim]};
  row r;
  bool done = true;
  vt_assert(halo->tiles > 1);
  switch (choose_way(&x)) {
  case NEIGHBOURS:
    done = join_neighbours(&x, &r);
    if (done) *out = mask_outside(&x, cut_row(&x, r));
    break;
  case COMPACT:
    *out = mask_outside(&x, send_compact(&x));
    break;
  case NO_WAY:
    done = false;
  }
  vt_arena_free(&x.scratch);
  return done;
}
