// SPDX-License-Identifier: Apache-2.0
// chip.c - the table of chips, device positions and the layout of arrays in HBM.
//
// Tile rules (as JAX's mesh and layout code and public compiler dumps show them):
//   two and more dimensions  tiles of 8 x 128 words; 8-bit and narrower types fill their 32-bit
//       words with rows, so a tile has 8 * packing rows; 16-bit types keep 8 rows except on 7x,
//       which takes 16. A second-last axis of fewer rows gets the next power of two that holds it,
//       at least the packing (twice that on v2 and v3).
//   one dimension            128 * packing elements (twice that on v2 and v3).
// 64-bit and complex types are stored as pairs of 32-bit arrays.
#include "base/check.h"
#include "chip/chip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const vt_chip the_chips[VT_CHIP_COUNT] = {
#define CHIP(id, kind, topology, cores, devices, dims, hbm, limit, reserved, hbm_rate, flops,      \
             clock, mxus, edge, narrow, narrow_floats, vmem, cmem, links, link_rate, tile, tile16, \
             pci, files, source)                                                                   \
  {VT_CHIP_##id, kind,      topology, cores,  devices, dims,   hbm,           limit, reserved,     \
   hbm_rate,     flops,     clock,    mxus,   edge,    narrow, narrow_floats, vmem,  cmem,         \
   links,        link_rate, tile,     tile16, pci,     files,  source,        NULL},
#include "chip/chips.def"
#undef CHIP
};

const vt_chip *vt_chip_get(vt_chip_id id) {
  vt_assert(id >= 0 && id < VT_CHIP_COUNT);
  return &the_chips[id];
}

int32_t vt_slice_devices(const vt_slice *slice) {
  return slice->chips * slice->chip->devices * slice->slices;
}

vt_place vt_slice_place(const vt_slice *slice, int32_t device_id) {
  vt_assert(device_id >= 0 && device_id < vt_slice_devices(slice));
  vt_place place = {0};
  int32_t per_slice = slice->chips * slice->chip->devices;
  place.slice = device_id / per_slice;
  int32_t rest = device_id % per_slice;
  place.core = rest % slice->chip->devices;
  rest /= slice->chip->devices;
  place.coords[0] = rest % slice->dims[0];
  rest /= slice->dims[0];
  place.coords[1] = rest % slice->dims[1];
  place.coords[2] = rest / slice->dims[1];
  int32_t host = 0;
  if (slice->vms > 1) {
    int32_t hosts_x = (slice->dims[0] + 1) / 2, hosts_y = (slice->dims[1] + 1) / 2;
    host = place.coords[0] / 2 + hosts_x * (place.coords[1] / 2 + hosts_y * place.coords[2]);
  }
  place.host = host + slice->vms * place.slice;
  vt_assert(place.coords[2] < slice->dims[2] && host < slice->vms);
  return place;
}

// Bits of one element in HBM: predicates take a byte; callers handle pairs of words.
static int32_t hbm_bits(vt_dtype dtype) {
  int32_t bits = vt_dtype_get(dtype)->bits;
  if (bits < 2) return 8;
  if (bits == 6) return 8;
  return bits > 32 ? 32 : bits;
}

// Programs may name arrays of any size. Up to this one sums of many are exact; larger ones count as
// this: no chip has as much.
static const int64_t most_bytes = INT64_C(1) << 46;

int64_t vt_chip_dense_bytes(vt_type type) {
  int32_t bits = vt_dtype_get(type.dtype)->bits;
  int64_t elements = vt_type_elements(type);
  if (elements >= most_bytes) return most_bytes;
  int64_t bytes = (elements * (bits > 32 ? bits : hbm_bits(type.dtype)) + 7) / 8;
  return bytes < most_bytes ? bytes : most_bytes;
}

// The dimension that is `place`-th from the minor end.
static int32_t dim_at(vt_type type, const int32_t *order, int32_t place) {
  vt_assert(place >= 0 && place < type.rank);
  return order ? order[place] : type.rank - 1 - place;
}

enum { LANES = 128 };

// Rows of a tile of an array with so many.
static int64_t tile_rows(const vt_chip *chip, int32_t packing, int64_t size) {
  int64_t full = packing == 1 ? 8 : packing == 2 ? chip->tile_rows_16_bit : 8 * packing;
  int64_t rows = packing * chip->least_tile_rows;
  while (rows < size && rows < full) rows *= 2;
  return rows < full ? rows : full;
}

vt_hbm_tile vt_chip_tiling(const vt_chip *chip, vt_type type, const int32_t *order) {
  int32_t packing = 32 / hbm_bits(type.dtype);
  if (type.rank < 2) return (vt_hbm_tile){1, LANES * packing * chip->least_tile_rows, packing};
  int64_t rows = tile_rows(chip, packing, type.dims[dim_at(type, order, 1)]);
  return (vt_hbm_tile){rows, LANES, packing};
}

static int64_t round_up(int64_t value, int64_t to) {
  vt_assert(value >= 0 && to >= 1);
  return (value + to - 1) / to * to;
}

static int64_t bytes_of(vt_dtype dtype, double elements) {
  int32_t bits = vt_dtype_get(dtype)->bits;
  int64_t words = bits > 32 ? bits / 32 : 1;
  double bytes = elements * (double)words * hbm_bits(dtype) / 8;
  return bytes < (double)most_bytes ? (int64_t)bytes : most_bytes;
}

int64_t vt_chip_padded_bytes(const vt_chip *chip, vt_type type, const int32_t *order) {
  int64_t elements = vt_type_elements(type);
  if (elements == 0) return 0;
  if (elements >= most_bytes) return most_bytes;
  vt_hbm_tile tiling = vt_chip_tiling(chip, type, order);
  int64_t lanes = type.rank ? type.dims[dim_at(type, order, 0)] : 1;
  int64_t padded = round_up(lanes, tiling.lanes), rest = elements / lanes;
  if (type.rank > 1) {
    int64_t rows = type.dims[dim_at(type, order, 1)];
    padded *= round_up(rows, tiling.rows);
    rest /= rows;
  }
  return bytes_of(type.dtype, (double)padded * (double)rest);
}

// The two tiled dimensions that need least padding, and the elements with it. The type has two
// dimensions or more, and elements, of which no more than most_bytes.
static int64_t find_tiled(const vt_chip *chip, vt_type type, int64_t elements, int32_t *out_best) {
  int32_t rank = type.rank, packing = 32 / hbm_bits(type.dtype);
  int64_t lanes[VT_MAX_RANK], rows[VT_MAX_RANK];
  for (int32_t d = 0; d < rank; d++) {
    lanes[d] = round_up(type.dims[d], LANES);
    rows[d] = round_up(type.dims[d], tile_rows(chip, packing, type.dims[d]));
  }
  out_best[0] = rank - 1, out_best[1] = rank - 2;
  int64_t least = elements / type.dims[rank - 1] / type.dims[rank - 2] * lanes[rank - 1];
  least *= rows[rank - 2];
  for (int32_t minor = rank; minor-- > 0 && least > elements;) {
    int64_t others = elements / type.dims[minor];
    if (lanes[minor] * others >= least) continue; // before rows are padded
    for (int32_t second = rank; second-- > 0;) {
      if (second == minor) continue;
      int64_t padded = others / type.dims[second] * lanes[minor] * rows[second];
      if (padded >= least) continue;
      least = padded;
      out_best[0] = minor, out_best[1] = second;
    }
  }
  return least;
}

// Only the two tiled dimensions affect padding; the others stay row-major.
void vt_chip_compact_order(const vt_chip *chip, vt_type type, int32_t *out_order) {
  vt_assert(type.rank >= 0 && type.rank <= VT_MAX_RANK);
  int32_t rank = type.rank, best[2], at = 2;
  for (int32_t i = 0; i < rank; i++) out_order[i] = rank - 1 - i;
  int64_t elements = vt_type_elements(type);
  if (rank < 2 || !elements || elements >= most_bytes) return;
  find_tiled(chip, type, elements, best);
  memcpy(out_order, best, sizeof best);
  for (int32_t d = rank; d-- > 0;)
    if (d != best[0] && d != best[1]) out_order[at++] = d;
}

// Whether some order of the dimensions fills whole tiles, of any element type.
static bool fills_tiles(vt_type type) {
  int32_t lanes = 0, rows = 0;
  for (int32_t d = 0; d < type.rank; d++) {
    if (type.dims[d] % 128 == 0) lanes++;
    if (type.dims[d] % 32 == 0) rows++;
  }
  return lanes && rows > 1;
}

int64_t vt_chip_compact_bytes(const vt_chip *chip, vt_type type) {
  int32_t best[2];
  if (type.rank < 2) return vt_chip_padded_bytes(chip, type, NULL);
  if (fills_tiles(type)) return vt_chip_dense_bytes(type);
  int64_t elements = vt_type_elements(type);
  if (!elements) return 0;
  if (elements >= most_bytes) return most_bytes;
  return bytes_of(type.dtype, (double)find_tiled(chip, type, elements, best));
}

static int64_t size_of_equal(vt_known_sizes *known, const vt_chip *chip, vt_type type) {
  uint64_t hash = (uint64_t)type.dtype << 8 | (uint64_t)(uint32_t)type.rank;
  for (int32_t i = 0; i < type.rank; i++)
    hash = (hash ^ (uint64_t)type.dims[i]) * UINT64_C(0x9E3779B97F4A7C15);
  _Static_assert(VT_KNOWN_SIZES == 1 << 8, "the uppermost bits");
  vt_known_size *of = &known->of[type.rank ? hash >> 56 : (size_t)type.dtype % VT_KNOWN_SIZES];
  if (vt_type_equal(of->type, type)) return of->bytes;
  of->type = type;
  of->bytes = vt_chip_compact_bytes(chip, type);
  return of->bytes;
}

int64_t vt_known_bytes(vt_known_sizes *known, const vt_chip *chip, vt_type type) {
  // Many types have their dimensions at the same place.
  size_t at = ((uintptr_t)type.dims >> 4 ^ (uintptr_t)type.dtype) % VT_KNOWN_SIZES;
  vt_known_size *last = &known->last[at];
  if (last->type.dims != type.dims || last->type.dtype != type.dtype ||
      last->type.rank != type.rank)
    *last = (vt_known_size){type, size_of_equal(known, chip, type)};
  return last->bytes;
}

const char *vt_chip_dtype_name(vt_dtype dtype) {
  switch (dtype) {
  case VT_PRED:
    return "pred";
  case VT_S2:
    return "s2";
  case VT_S4:
    return "s4";
  case VT_S8:
    return "s8";
  case VT_S16:
    return "s16";
  case VT_S32:
    return "s32";
  case VT_S64:
    return "s64";
  case VT_U2:
    return "u2";
  case VT_U4:
    return "u4";
  case VT_U8:
    return "u8";
  case VT_U16:
    return "u16";
  case VT_U32:
    return "u32";
  case VT_U64:
    return "u64";
  case VT_C64:
    return "c64";
  case VT_C128:
    return "c128";
  case VT_TOKEN:
    return "token";
  default:
    return vt_dtype_get(dtype)->text;
  }
}

void vt_chip_print_shape(const vt_chip *chip, vt_type type, const int32_t *order, vt_text *text) {
  vt_text_printf(text, "%s[", vt_chip_dtype_name(type.dtype));
  for (int32_t i = 0; i < type.rank; i++)
    vt_text_printf(text, "%s%lld", i ? "," : "", (long long)type.dims[i]);
  vt_text_put(text, "]{");
  for (int32_t i = 0; i < type.rank; i++)
    vt_text_printf(text, "%s%d", i ? "," : "", dim_at(type, order, i));
  vt_hbm_tile tiling = vt_chip_tiling(chip, type, order);
  if (type.rank < 2)
    vt_text_printf(text, ":T(%lld)", (long long)tiling.lanes);
  else
    vt_text_printf(text, ":T(%lld,%lld)", (long long)tiling.rows, (long long)tiling.lanes);
  if (tiling.packing > 1) vt_text_printf(text, "(%d,1)", tiling.packing);
  vt_text_put(text, "}");
}
