// SPDX-License-Identifier: Apache-2.0
// sharding_text.h - shardings in HLO's text form, as in mhlo.sharding.
#ifndef VT_IMPORT_SHARDING_TEXT_H
#define VT_IMPORT_SHARDING_TEXT_H

#include "ir/sharding.h"

typedef struct vt_tile_assignment {
  enum {
    VT_TILES_REPLICATED,
    VT_TILES_MANUAL,
    VT_TILES_UNKNOWN,
    VT_TILES_MAXIMAL,
    VT_TILES_LIST
  } kind;
  int64_t device; // MAXIMAL
  // LIST: the first dimensions belong to the array; further ones (copies, subgroups) hold the same
  // tile.
  int32_t tile_rank;
  const int64_t *tile_dims;
  int64_t device_count;
  const int64_t *devices; // row-major over tile_dims
  uint32_t manual;        // manual subgroups among the last tile dimensions, the very last is bit 0
  bool grouped;           // sharded as the others of this group
  int64_t group;
} vt_tile_assignment;

// "{replicated}", "{manual}", "{maximal device=0}", "{devices=[2,1,4]<=[2,4]T(1,0)
// last_tile_dim_replicate}", "{devices=[2,2]0,1,2,3 last_tile_dims={manual, replicated}}",
// "{unknown shard_as 0}"; a tuple in braces gives its first element. The array's `rank` says which
// tile dimensions are its own.
// errors INVALID_ARGUMENT with the text
vt_status vt_tiles_parse(vt_arena *arena, vt_string text, int32_t rank,
                         vt_tile_assignment *out_tiles) VT_CHECKED;

#endif
