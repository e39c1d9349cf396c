// SPDX-License-Identifier: Apache-2.0
// network.c - how long a collective takes on the links between chips.
//
// A group of devices is a box on the torus: so many chips along each axis, both devices of a chip
// or one, so many slices. Data goes round all axes at once, in both directions of an axis that
// wraps; groups that share links share their rate. Groups that are no box count as a line of chips.
// Devices of a chip exchange over a link of their own, slices over the data-center network.
#include "chip/time/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct box {
  double chips, cores, slices;
  double links;   // that bring data into a chip at once
  double hops;    // of the longest way
  double longest; // chips on the longest axis, twice that without a wrap
  double sharing; // groups that use the same links
  double twist;   // how many times as fast a twisted torus exchanges all with all
} box;

static const double hop_s = 1e-6;       // the scaling book
static const double dcn_start_s = 5e-5; // through two hosts
// Measured on v4 (ISCA 2023) at 4 x 4 x 8 and 4 x 8 x 8.
static const double twist_one_long = 1.63, twist_two_long = 1.31;

typedef struct extent {
  int32_t low, high, count; // distinct places, in order
  uint64_t seen[64];        // bits; slices have fewer than 4,096 chips along an axis
} extent;

static void see(extent *e, int32_t at) {
  if (at < 0 || at >= 64 * 64) return;
  uint64_t bit = UINT64_C(1) << (at % 64);
  if (e->seen[at / 64] & bit) return;
  e->seen[at / 64] |= bit;
  e->low = e->count && e->low < at ? e->low : at;
  e->high = e->count && e->high > at ? e->high : at;
  e->count++;
}

// `ids`: NULL = the first ones.
static box make_box(const vt_device_model *model, const int64_t *ids, int64_t count) {
  const vt_slice *slice = model->slice;
  extent axes[5] = {0};
  int64_t members = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t id = ids ? ids[i] : i;
    if (id < 0 || id >= vt_slice_devices(slice)) continue;
    vt_place place = vt_slice_place(slice, (int32_t)id);
    for (int d = 0; d < 3; d++) see(&axes[d], place.coords[d]);
    see(&axes[3], place.core);
    see(&axes[4], place.slice);
    members++;
  }
  box b = {.chips = 1, .cores = axes[3].count, .slices = axes[4].count, .sharing = 1, .twist = 1};
  for (int d = 0; d < 3; d++) {
    double length = axes[d].count, span = axes[d].high - axes[d].low + 1;
    if (length < 2) continue;
    bool wraps = axes[d].count == slice->dims[d] && slice->wrap[d] && length > 2;
    b.chips *= length;
    b.links += wraps ? 2 : 1;
    b.hops += wraps ? length / 2 : length - 1;
    b.longest = fmax(b.longest, wraps ? length : 2 * length);
    b.sharing = fmax(b.sharing, (span - 1) / (length - 1));
  }
  if (b.chips * b.cores * b.slices > (double)members) {
    b.chips = ceil((double)members / fmax(b.cores * b.slices, 1));
    b.links = b.chips > 1 ? 1 : 0;
    b.hops = b.chips - 1;
    b.longest = 2 * b.chips;
  }
  if (slice->twisted && b.chips == slice->chips)
    b.twist = slice->dims[1] == slice->dims[0] ? twist_one_long : twist_two_long;
  b.sharing *= (double)slice->chip->devices / fmax(b.cores, 1);
  return b;
}

// The ways that pairs of devices take.
typedef struct ways {
  double paths; // that share each link
  double most;  // hops of the longest
  bool moves;   // between chips
  bool across;  // between slices
} ways;

enum { KNOWN_GROUPS = 8 };

struct vt_group_boxes {
  struct {
    const int64_t *ids; // of the module
    int64_t count;
    box box;
  } known[KNOWN_GROUPS];
  struct {
    const int64_t *pairs;
    int64_t count;
    ways ways;
  } known_ways[KNOWN_GROUPS];
  int next, next_ways;
};

struct vt_group_boxes *vt_network_groups(vt_arena *arena) {
  return VT_NEW(arena, struct vt_group_boxes);
}

static box box_of(const vt_device_model *model, const int64_t *ids, int64_t count) {
  struct vt_group_boxes *g = model->groups;
  size_t size = (size_t)count * sizeof *ids;
  for (int i = 0; i < KNOWN_GROUPS; i++) {
    if (g->known[i].count != count || !g->known[i].ids != !ids) continue;
    if (!ids || ids == g->known[i].ids || !memcmp(g->known[i].ids, ids, size))
      return g->known[i].box;
  }
  int at = g->next;
  g->next = (at + 1) % KNOWN_GROUPS;
  g->known[at].ids = ids;
  g->known[at].count = count;
  g->known[at].box = make_box(model, ids, count);
  return g->known[at].box;
}

// One pass over a group: every device gets, or gives, all parts of `whole` bytes but its own. Over
// several slices each chip exchanges its own part with the others, and all go round the slice.
static double pass_seconds(const vt_device_model *model, const box *b, double whole, double share) {
  double link = model->chip->ici_link_bytes_per_s, seconds = 0;
  if (b->chips > 1)
    seconds += fmax(b->hops * hop_s,
                    (b->chips - 1) / b->chips * whole * b->sharing / (link * b->links * share));
  else if (b->cores > 1)
    seconds += hop_s + whole / b->cores / model->rates->package_link_bytes_per_s;
  if (b->slices > 1) {
    double of_chip = whole / fmax(b->chips, 1);
    seconds += dcn_start_s + (b->slices - 1) / b->slices * of_chip / model->rates->dcn_bytes_per_s;
  }
  return seconds;
}

static double all_to_all_seconds(const vt_device_model *model, const box *b, double own) {
  double link = model->chip->ici_link_bytes_per_s, seconds = 0;
  if (b->chips > 1)
    seconds =
        fmax(b->hops * hop_s, own * b->cores * b->sharing * b->longest / (8 * link * b->twist));
  else if (b->cores > 1)
    seconds = hop_s + own / model->rates->package_link_bytes_per_s;
  if (b->slices > 1)
    seconds +=
        dcn_start_s + (b->slices - 1) / b->slices * own * b->cores / model->rates->dcn_bytes_per_s;
  return seconds;
}

static int32_t distance(const vt_slice *slice, vt_place a, vt_place b) {
  int32_t sum = 0;
  for (int d = 0; d < 3; d++) {
    int32_t along = abs(a.coords[d] - b.coords[d]);
    if (slice->wrap[d] && slice->dims[d] - along < along) along = slice->dims[d] - along;
    sum += along;
  }
  return sum;
}

static ways find_ways(const vt_slice *slice, const int64_t *ids, int64_t count) {
  int64_t devices = vt_slice_devices(slice), moved = 0;
  ways w = {.paths = 1};
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    if (ids[2 * i] < 0 || ids[2 * i] >= devices || ids[2 * i + 1] < 0 || ids[2 * i + 1] >= devices)
      continue;
    vt_place from = vt_slice_place(slice, (int32_t)ids[2 * i]);
    vt_place to = vt_slice_place(slice, (int32_t)ids[2 * i + 1]);
    int32_t hops = distance(slice, from, to);
    w.across = w.across || from.slice != to.slice;
    if (!hops) continue;
    sum += hops, moved++;
    if (hops > w.most) w.most = hops;
  }
  w.moves = moved > 0;
  if (moved) w.paths = fmax(floor(sum / (double)moved), 1);
  return w;
}

static ways ways_of(const vt_device_model *model, const int64_t *pairs, int64_t count) {
  struct vt_group_boxes *g = model->groups;
  size_t size = 2 * (size_t)count * sizeof *pairs;
  for (int i = 0; i < KNOWN_GROUPS; i++) {
    const int64_t *known = g->known_ways[i].pairs;
    if (known && g->known_ways[i].count == count && (known == pairs || !memcmp(known, pairs, size)))
      return g->known_ways[i].ways;
  }
  int at = g->next_ways;
  g->next_ways = (at + 1) % KNOWN_GROUPS;
  g->known_ways[at].pairs = pairs;
  g->known_ways[at].count = count;
  g->known_ways[at].ways = find_ways(model->slice, pairs, count);
  return g->known_ways[at].ways;
}

// Paths of the usual length share each link; the longest way decides the latency.
static double permute_seconds(const vt_device_model *model, const vt_op *op, double own) {
  const vt_literal *pairs = vt_attr_literal(op, VT_ATTR_SOURCE_TARGET_PAIRS);
  if (!pairs || pairs->type.rank != 2 || pairs->splat) return 0;
  ways w = ways_of(model, pairs->data, pairs->type.dims[0]);
  if (w.across) return dcn_start_s + own * model->chip->devices / model->rates->dcn_bytes_per_s;
  if (!w.moves) // within chips
    return model->rates->package_link_bytes_per_s > 0
               ? hop_s + own / model->rates->package_link_bytes_per_s
               : 0;
  return w.most * hop_s + own * model->chip->devices * w.paths / model->chip->ici_link_bytes_per_s;
}

static double sum_bytes(const vt_device_model *model, const vt_op *op, bool results) {
  double sum = 0;
  if (results)
    for (uint32_t i = 0; i < op->result_count; i++)
      sum += vt_kernel_bytes(model, op->results[i].type);
  else
    for (uint32_t i = 0; i < op->operand_count; i++)
      sum += vt_kernel_bytes(model, op->operands[i]->type);
  return sum;
}

double vt_network_seconds(const vt_device_model *model, const vt_op *op) {
  const vt_rates *rates = model->rates;
  double given = sum_bytes(model, op, false), taken = sum_bytes(model, op, true);
  if (op->code == VT_OP_COLLECTIVE_PERMUTE)
    return rates->collective_s + permute_seconds(model, op, given);
  const vt_literal *groups = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  bool listed = groups && groups->type.rank == 2 && !groups->splat && groups->type.dims[0] > 0;
  box b = listed ? box_of(model, groups->data, groups->type.dims[1])
                 : box_of(model, NULL, model->devices);
  double size = b.chips * b.cores * b.slices;
  if (size < 2) return 0;
  switch (op->code) {
  case VT_OP_ALL_GATHER:
    return rates->collective_s + pass_seconds(model, &b, taken, rates->gather_share);
  case VT_OP_REDUCE_SCATTER:
    return rates->collective_s + pass_seconds(model, &b, given, rates->gather_share);
  case VT_OP_ALL_TO_ALL:
  case VT_OP_RAGGED_ALL_TO_ALL:
    return rates->collective_s + all_to_all_seconds(model, &b, given);
  case VT_OP_COLLECTIVE_BROADCAST:
    return rates->collective_s + pass_seconds(model, &b, taken, rates->gather_share);
  default: // reduce-scatter, then all-gather
    return rates->collective_s + 2 * pass_seconds(model, &b, given, rates->reduce_share);
  }
}

// XLA's partitioner does so from 256 MiB on (threshold_for_windowed_einsum_mib), where it gains
// time: here, where parts still fill the matrix units. Parts go round one ring, so other axes of
// the torus are idle.
vt_windows vt_network_windows(const vt_device_model *model, const vt_op *op) {
  const double threshold = 256 * 1048576.0;
  const vt_windows none = {0, 1};
  bool gather = op->code == VT_OP_ALL_GATHER;
  if (!gather && op->code != VT_OP_REDUCE_SCATTER) return none;
  vt_type whole = gather ? op->results[0].type : op->operands[0]->type;
  vt_type part = gather ? op->operands[0]->type : op->results[0].type;
  if (vt_kernel_bytes(model, whole) < threshold) return none;
  for (int32_t d = 0; d < whole.rank; d++)
    if (part.dims[d] < whole.dims[d] && part.dims[d] < model->chip->mxu_edge) return none;
  const vt_literal *groups = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  if (!groups || groups->type.rank != 2 || groups->splat || groups->type.dims[0] < 1) return none;
  box b = box_of(model, groups->data, groups->type.dims[1]);
  if (b.chips < 2 || b.slices > 1) return none;
  return (vt_windows){b.chips * b.cores, fmax(1, b.links / 2)};
}

bool vt_network_is_async(const vt_device_model *model, const vt_op *op) {
  return op->code == VT_OP_ALL_GATHER || op->code == VT_OP_COLLECTIVE_PERMUTE ||
         (op->code == VT_OP_REDUCE_SCATTER && model->rates->offload > 0);
}
