// SPDX-License-Identifier: Apache-2.0
// sharding_text.c - see sharding_text.h. Form: HloSharding's text in XLA.
#include "import/sharding_text.h"

#include <string.h>

enum { MAX_TILE_RANK = 64, MAX_DEVICES = 1 << 20 };

typedef struct text {
  const char *at, *end;
} text;

static void skip_space(text *t) {
  while (t->at < t->end && *t->at == ' ') t->at++;
}

static bool take(text *t, const char *word) {
  size_t size = strlen(word);
  skip_space(t);
  if ((size_t)(t->end - t->at) < size || memcmp(t->at, word, size)) return false;
  t->at += size;
  return true;
}

static bool take_number(text *t, int64_t *out) {
  skip_space(t);
  const char *start = t->at;
  *out = 0;
  while (t->at < t->end && *t->at >= '0' && *t->at <= '9' && *out <= MAX_DEVICES)
    *out = *out * 10 + (*t->at++ - '0');
  return t->at > start && *out <= MAX_DEVICES;
}

// Numbers separated by commas up to `close`. -1 on error.
static int32_t take_list(text *t, const char *close, int64_t *list) {
  int32_t count = 0;
  if (take(t, close)) return 0;
  do {
    if (count == MAX_TILE_RANK || !take_number(t, &list[count++])) return -1;
  } while (take(t, ","));
  return take(t, close) ? count : -1;
}

// Product of `count` sizes; -1 when above the limit or not positive.
static int64_t product_of(const int64_t *list, int32_t count) {
  int64_t product = 1;
  for (int32_t i = 0; i < count; i++) {
    if (list[i] < 1 || list[i] > MAX_DEVICES) return -1;
    product *= list[i];
    if (product > MAX_DEVICES) return -1;
  }
  return product;
}

// <=[8] or <=[2,4]T(1,0): 0 .. n-1 in that shape, transposed.
static bool take_iota(text *t, int64_t *devices, int64_t count) {
  int64_t dims[MAX_TILE_RANK], order[MAX_TILE_RANK], strides[MAX_TILE_RANK];
  int32_t rank = take(t, "[") ? take_list(t, "]", dims) : -1;
  if (rank < 1 || product_of(dims, rank) != count) return false;
  for (int32_t i = 0; i < rank; i++) order[i] = i;
  if (take(t, "T")) {
    if (!take(t, "(") || take_list(t, ")", order) != rank) return false;
    uint64_t seen = 0;
    for (int32_t i = 0; i < rank; i++) {
      if (order[i] >= rank || seen >> order[i] & 1) return false;
      seen |= (uint64_t)1 << order[i];
    }
  }
  int64_t stride = 1;
  for (int32_t i = rank; i-- > 0; stride *= dims[i]) strides[i] = stride;
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, device = 0;
    for (int32_t d = rank; d-- > 0; rest /= dims[order[d]])
      device += rest % dims[order[d]] * strides[order[d]];
    devices[i] = device;
  }
  return true;
}

static bool take_devices(text *t, vt_arena *arena, vt_tile_assignment *s) {
  int64_t dims[MAX_TILE_RANK];
  int32_t tile_rank = take(t, "[") ? take_list(t, "]", dims) : -1;
  int64_t count = tile_rank < 1 ? -1 : product_of(dims, tile_rank);
  if (count < 1) return false;
  int64_t *devices = VT_NEW_ARRAY(arena, int64_t, count),
          *kept = VT_NEW_ARRAY(arena, int64_t, tile_rank);
  memcpy(kept, dims, sizeof *dims * (size_t)tile_rank);
  if (take(t, "<=")) {
    if (!take_iota(t, devices, count)) return false;
  } else {
    for (int64_t i = 0; i < count; i++)
      if ((i && !take(t, ",")) || !take_number(t, &devices[i])) return false;
  }
  *s = (vt_tile_assignment){.kind = VT_TILES_LIST,
                            .tile_rank = tile_rank,
                            .tile_dims = kept,
                            .device_count = count,
                            .devices = devices};
  return true;
}

// After the devices: the kinds of the last tile dimensions, the group, and metadata.
static bool take_tail(text *t, bool *out_last, vt_tile_assignment *s) {
  while (!take(t, "}")) {
    if (take(t, "last_tile_dim_replicate")) {
      *out_last = true;
    } else if (take(t, "last_tile_dims={")) {
      if (!memchr(t->at, '}', (size_t)(t->end - t->at))) return false;
      *out_last = true;
      s->manual = 0;
      while (!take(t, "}")) {
        s->manual = s->manual << 1 | take(t, "manual");
        while (t->at < t->end && *t->at != ',' && *t->at != '}') t->at++;
        (void)take(t, ",");
      }
    } else if (take(t, "shard_as") || take(t, "shard_like")) {
      s->grouped = true;
      if (!take_number(t, &s->group)) return false;
    } else if (take(t, "metadata={")) {
      for (int depth = 1; depth && t->at < t->end; t->at++)
        depth += *t->at == '{' ? 1 : *t->at == '}' ? -1 : 0;
    } else {
      return false;
    }
  }
  return true;
}

static bool parse(text *t, vt_arena *arena, int32_t rank, vt_tile_assignment *s) {
  bool last = false;
  if (!take(t, "{")) return false;
  (void)take(t, "{"); // a tuple: its first element
  if (take(t, "replicated")) {
    s->kind = VT_TILES_REPLICATED;
  } else if (take(t, "manual")) {
    s->kind = VT_TILES_MANUAL;
  } else if (take(t, "unknown")) {
    s->kind = VT_TILES_UNKNOWN;
  } else if (take(t, "maximal")) {
    s->kind = VT_TILES_MAXIMAL;
    if (!take(t, "device=") || !take_number(t, &s->device)) return false;
  } else if (take(t, "devices=")) {
    if (!take_devices(t, arena, s)) return false;
  } else {
    return false;
  }
  if (!take_tail(t, &last, s)) return false;
  return s->kind != VT_TILES_LIST || s->tile_rank == rank || (s->tile_rank > rank && last);
}

vt_status vt_tiles_parse(vt_arena *arena, vt_string string, int32_t rank,
                         vt_tile_assignment *out_tiles) {
  text t = {string.data, string.data + string.size};
  *out_tiles = (vt_tile_assignment){.kind = VT_TILES_UNKNOWN};
  if (!parse(&t, arena, rank, out_tiles))
    return vt_error(VT_INVALID_ARGUMENT,
                    "sharding '%.*s' cannot be read for an array of %d dimensions",
                    string.size < 200 ? (int)string.size : 200, string.data, rank);
  return VT_OK;
}
