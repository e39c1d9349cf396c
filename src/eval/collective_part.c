// SPDX-License-Identifier: Apache-2.0
// collective_part.c - a collective for one device, while the others run in other processes.
//
// What the device gives and takes travels in meetings (ir/transfer.h). The results have the bits of
// collective.c: the same functions make them, from the operands of all members of the row in the
// row's order.
// A large reduction is made in two meetings: each member folds its share of the elements, then all
// take each other's shares. A very large one is made piece by piece, so that what is on its way
// stays in the caches and needs no answer before it is sent. Where a member's result needs only a
// slice of the others' operands (reduce_scatter, all_to_all), only that slice travels.
// What the values do not decide is worked out once and kept: a sum of a few bytes takes less than
// finding out who takes part in it.
#include <stdlib.h>
#include <string.h>

#include "eval/collective.h"
#include "eval/fold.h"

typedef enum way { NOTHING, PERMUTE, WHOLE, SHARES, SLICES } way;

struct vt_part {
  const vt_op *op;
  int32_t devices, place;
  way way;
  // The members of the row but this one, and all in order.
  int32_t other_count, member_count, mine; // mine: the index among all
  int32_t *others, *members;
  int64_t bytes;    // of all operands
  int64_t sliced;   // SLICES: the dimension
  int32_t from, to; // PERMUTE: devices, -1
  vt_fold *fold;    // of a reduction with a usual body; NULL: opened when it runs
  // WHOLE: a meeting, and rows of tensors by device. A run fills in addresses.
  int64_t *padded; // [operand] bytes
  vt_bytes *give;
  vt_meet meet;
  const vt_tensor **in;
  vt_tensor **theirs, **out; // theirs: [other]
  vt_eval_state state;
  vt_arena arena;
};

// One run of it.
typedef struct part {
  vt_part *kept;
  const vt_op *op;
  vt_eval_state *state;
  const vt_eval_env *env;
  uint32_t count; // of operands: those of the op, or a piece of one
  const vt_tensor *in;
  vt_tensor *out;
  const vt_meetings *meetings;
  int32_t other_count, member_count, mine; // as above
  const int32_t *others, *members;
  vt_arena scratch;
} part;

static vt_bytes bytes_of(const void *data, int64_t size) {
  return (vt_bytes){size ? data : NULL, (size_t)size};
}

static int64_t padded(int64_t bytes) {
  return (bytes + 63) & ~(int64_t)63;
}

// `give` and `take` are in the order of the others.
static vt_status meet(part *p, uint32_t spans, bool alike, const vt_bytes *give, const size_t *take,
                      const void ***out_taken) {
  *out_taken = VT_NEW_ARRAY(&p->scratch, const void *, p->other_count + 1);
  vt_meet m = {.count = p->other_count,
               .places = p->others,
               .spans = spans,
               .alike = alike,
               .give = give,
               .take = take,
               .taken = *out_taken};
  return p->meetings->meet(p->meetings->user, &m);
}

// ---- permute ------------------------------------------------------------------------------------

static vt_status prepare_permute(vt_part *kept) {
  vt_pair_list list;
  VT_TRY(vt_collective_pairs(kept->op, kept->devices, &list));
  kept->from = kept->to = -1;
  for (int64_t i = 0; i < list.count; i++) {
    if (list.pairs[i].to == kept->place) kept->from = list.pairs[i].from;
    if (list.pairs[i].from == kept->place) kept->to = list.pairs[i].to;
  }
  free(list.pairs);
  return VT_OK;
}

static vt_status run_permute(part *p) {
  int32_t from = p->kept->from, to = p->kept->to, place = p->kept->place;
  int64_t size = vt_type_bytes(p->in[0].type);
  int32_t others[2];
  vt_bytes give[2] = {{0}};
  size_t take[2] = {0};
  if (to >= 0 && to != place) {
    give[p->other_count] = bytes_of(p->in[0].data, size);
    others[p->other_count++] = to;
  }
  if (from >= 0 && from != place) {
    if (from != to) others[p->other_count++] = from;
    take[p->other_count - 1] = (size_t)size;
  }
  p->others = others;
  const void **taken;
  VT_TRY(meet(p, 1, false, give, take, &taken));
  const void *source = from == place ? p->in[0].data : NULL;
  if (from >= 0 && from != place) source = taken[p->other_count - 1];
  if (source && size)
    memcpy(p->out[0].data, source, (size_t)size);
  else if (size)
    memset(p->out[0].data, 0, (size_t)size);
  return VT_OK;
}

// ---- operands given whole -----------------------------------------------------------------------

// Two spans: the bytes, and what pads them to whole cache lines.
static void put_padded(vt_bytes *spans, vt_bytes bytes) {
  static const char pad[64];
  spans[0] = bytes;
  spans[1] = bytes_of(pad, padded((int64_t)bytes.size) - (int64_t)bytes.size);
}

// Rows of tensors as vt_collective_row expects them: by device.
static void prepare_whole(vt_part *kept) {
  vt_arena *arena = &kept->arena;
  uint32_t count = kept->op->operand_count;
  int32_t others = kept->other_count;
  size_t total = 0, *take = VT_NEW_ARRAY(arena, size_t, others + 1);
  kept->give = VT_NEW_ARRAY(arena, vt_bytes, 2 * (size_t)count + 1);
  kept->padded = VT_NEW_ARRAY(arena, int64_t, count + 1);
  kept->in = VT_NEW_ARRAY(arena, const vt_tensor *, kept->devices);
  kept->out = VT_NEW_ARRAY(arena, vt_tensor *, kept->devices);
  kept->theirs = VT_NEW_ARRAY(arena, vt_tensor *, others + 1);
  for (uint32_t k = 0; k < count; k++) {
    int64_t size = vt_type_bytes(kept->op->operands[k]->type);
    put_padded(kept->give + 2 * (size_t)k, (vt_bytes){NULL, (size_t)size});
    total += (size_t)(kept->padded[k] = padded(size));
  }
  for (int32_t i = 0; i < others; i++) {
    take[i] = total;
    kept->theirs[i] = VT_NEW_ARRAY(arena, vt_tensor, count + 1);
    kept->in[kept->others[i]] = kept->theirs[i];
    for (uint32_t k = 0; k < count; k++) kept->theirs[i][k].type = kept->op->operands[k]->type;
  }
  kept->meet = (vt_meet){.count = others,
                         .places = kept->others,
                         .spans = 2 * count,
                         .alike = true,
                         .give = kept->give,
                         .take = take,
                         .taken = VT_NEW_ARRAY(arena, const void *, others + 1)};
}

static vt_status run_whole(part *p) {
  vt_part *kept = p->kept;
  for (uint32_t k = 0; k < p->count; k++) kept->give[2 * (size_t)k].data = p->in[k].data;
  VT_TRY(p->meetings->meet(p->meetings->user, &kept->meet));
  kept->in[kept->place] = p->in;
  kept->out[kept->place] = p->out;
  for (int32_t i = 0; i < p->other_count; i++) {
    char *from = (char *)(uintptr_t)kept->meet.taken[i];
    for (uint32_t k = 0; k < p->count; from += kept->padded[k++]) kept->theirs[i][k].data = from;
  }
  for (uint32_t k = 0; k < p->op->result_count; k++) {
    vt_lane_set set = {p->op, p->state, p->env, k, kept->in, kept->out, kept->fold};
    if (kept->fold && p->op->code == VT_OP_ALL_REDUCE) // what the row does for one device
      VT_TRY(vt_collective_fold(&set, p->member_count, p->members, p->out[k].data));
    else
      VT_TRY(vt_collective_row(&set, p->member_count, p->members));
  }
  return VT_OK;
}

// ---- reductions by shares -----------------------------------------------------------------------

// The first element of a member's share of an array.
static int64_t share_at(const part *p, uint32_t k, int32_t member) {
  int64_t n = vt_type_elements(p->in[k].type);
  int64_t each = (n + p->member_count - 1) / p->member_count;
  int64_t at = (each + SHARE - 1) / SHARE * SHARE * member;
  return at < n ? at : n;
}

static int64_t share_size(const part *p, uint32_t k, int32_t member) {
  return share_at(p, k, member + 1) - share_at(p, k, member);
}

static vt_bytes share_of(const part *p, const vt_tensor *tensors, uint32_t k, int32_t member) {
  int64_t element = (int64_t)vt_dtype_bytes(tensors[k].type.dtype);
  const char *data = tensors[k].data;
  return bytes_of(data + share_at(p, k, member) * element, share_size(p, k, member) * element);
}

static int32_t member_of(const part *p, int32_t other) {
  return other < p->mine ? other : other + 1;
}

// Folds this member's share of operand k; `theirs` are the others' shares.
static vt_status fold_share(part *p, uint32_t k, const void *const *theirs) {
  int64_t n = share_size(p, k, p->mine);
  if (!n) return VT_OK;
  vt_type type = {.dtype = p->in[k].type.dtype, .rank = 1, .dims = &n};
  const vt_tensor **in = VT_NEW_ARRAY(&p->scratch, const vt_tensor *, p->kept->devices);
  for (int32_t m = 0; m < p->member_count; m++) {
    vt_tensor *row = VT_NEW_ARRAY(&p->scratch, vt_tensor, p->count + 1);
    const void *data = m == p->mine  ? share_of(p, p->in, k, m).data
                       : m < p->mine ? theirs[m]
                                     : theirs[m - 1];
    row[k] = (vt_tensor){type, (void *)(uintptr_t)data};
    in[p->members[m]] = row;
  }
  vt_lane_set set = {p->op, p->state, p->env, k, in, NULL, p->kept->fold};
  return vt_collective_fold(&set, p->member_count, p->members,
                            (void *)(uintptr_t)share_of(p, p->out, k, p->mine).data);
}

// Bytes of a member's shares of all operands, each padded.
static size_t shares_size(const part *p, int32_t member) {
  size_t size = 0;
  for (uint32_t k = 0; k < p->count; k++)
    size += (size_t)padded((int64_t)share_of(p, p->in, k, member).size);
  return size;
}

static vt_status trade_shares(part *p, const void ***out_taken) {
  uint32_t count = p->count;
  vt_bytes *give = VT_NEW_ARRAY(&p->scratch, vt_bytes, 2 * (size_t)p->other_count * count + 1);
  size_t *take = VT_NEW_ARRAY(&p->scratch, size_t, p->other_count + 1);
  for (int32_t i = 0; i < p->other_count; i++) {
    take[i] = shares_size(p, p->mine);
    for (uint32_t k = 0; k < count; k++)
      put_padded(give + 2 * ((size_t)i * count + k), share_of(p, p->in, k, member_of(p, i)));
  }
  return meet(p, 2 * count, false, give, take, out_taken);
}

static vt_status collect_shares(part *p) {
  uint32_t count = p->count;
  vt_bytes *give = VT_NEW_ARRAY(&p->scratch, vt_bytes, 2 * (size_t)count + 1);
  size_t *take = VT_NEW_ARRAY(&p->scratch, size_t, p->other_count + 1);
  const void **taken;
  for (uint32_t k = 0; k < count; k++)
    put_padded(give + 2 * (size_t)k, share_of(p, p->out, k, p->mine));
  for (int32_t i = 0; i < p->other_count; i++) take[i] = shares_size(p, member_of(p, i));
  VT_TRY(meet(p, 2 * count, true, give, take, &taken));
  for (int32_t i = 0; i < p->other_count; i++) {
    const char *from = taken[i];
    for (uint32_t k = 0; k < count; k++) {
      vt_bytes to = share_of(p, p->out, k, member_of(p, i));
      if (to.size) memcpy((void *)(uintptr_t)to.data, from, to.size);
      from += padded((int64_t)to.size);
    }
  }
  return VT_OK;
}

static vt_status run_piece(part *p) {
  const void **taken, **theirs = VT_NEW_ARRAY(&p->scratch, const void *, p->other_count + 1);
  VT_TRY(trade_shares(p, &taken));
  size_t at = 0;
  for (uint32_t k = 0; k < p->count; k++) {
    for (int32_t i = 0; i < p->other_count; i++) theirs[i] = (const char *)taken[i] + at;
    VT_TRY(fold_share(p, k, theirs));
    at += (size_t)padded((int64_t)share_of(p, p->in, k, p->mine).size);
  }
  return collect_shares(p);
}

// The elements of operand k from `at` on.
static vt_tensor piece_of(vt_tensor t, int64_t at, const int64_t *size) {
  vt_type type = {.dtype = t.type.dtype, .rank = 1, .dims = size};
  return (vt_tensor){type, (char *)t.data + at * (int64_t)vt_dtype_bytes(t.type.dtype)};
}

static vt_status run_shares(part *p) {
  int64_t most = (int64_t)SHARE_BYTES * p->member_count;
  if (p->kept->bytes <= most) return run_piece(p);
  for (uint32_t k = 0; k < p->count; k++) {
    int64_t n = vt_type_elements(p->in[k].type);
    int64_t piece = most / (int64_t)vt_dtype_bytes(p->in[k].type.dtype);
    for (int64_t at = 0; at < n; at += piece) {
      int64_t size = n - at < piece ? n - at : piece;
      vt_tensor in = piece_of(p->in[k], at, &size), out = piece_of(p->out[k], at, &size);
      part one = *p;
      one.count = 1;
      one.in = &in;
      one.out = &out;
      one.scratch = (vt_arena){0};
      vt_status st = run_piece(&one);
      vt_arena_free(&one.scratch);
      if (st) return st;
    }
  }
  return VT_OK;
}

// ---- operands given in slices -------------------------------------------------------------------

// The dimension that is cut into one slice for each member; -1: the op is not of that kind, or its
// error is for vt_collective_row to tell.
static int64_t sliced_dimension(const vt_part *kept) {
  const vt_op *op = kept->op;
  int32_t members = kept->member_count;
  bool scatter = op->code == VT_OP_REDUCE_SCATTER;
  if (!scatter && op->code != VT_OP_ALL_TO_ALL) return -1;
  int64_t d = vt_attr_i64(op, scatter ? VT_ATTR_SCATTER_DIMENSION : VT_ATTR_SPLIT_DIMENSION);
  int64_t join = scatter ? d : vt_attr_i64(op, VT_ATTR_CONCAT_DIMENSION);
  if (!scatter && vt_attr_i64(op, VT_ATTR_SPLIT_COUNT) != members) return -1;
  if (op->operand_count != op->result_count || d < 0 || join < 0) return -1;
  for (uint32_t k = 0; k < op->operand_count; k++) {
    vt_type in = op->operands[k]->type, out = op->results[k].type;
    if (d >= in.rank || join >= in.rank || in.dims[d] % members) return -1;
    int64_t slice = in.dims[d] / members;
    for (int32_t i = 0; i < in.rank; i++) {
      int64_t size = i == d ? slice : in.dims[i];
      if (out.dims[i] != (!scatter && i == join ? size * members : size)) return -1;
    }
  }
  return d;
}

static vt_type slice_type(part *p, uint32_t k, int64_t d) {
  vt_type type = p->in[k].type;
  int64_t *dims = VT_NEW_ARRAY(&p->scratch, int64_t, type.rank + 1);
  for (int32_t i = 0; i < type.rank; i++)
    dims[i] = i == d ? type.dims[i] / p->member_count : type.dims[i];
  type.dims = dims;
  return type;
}

// A member's slice of operand k of this device, as one run of memory.
static vt_status slice_of(part *p, uint32_t k, int64_t d, int32_t member, vt_tensor *out) {
  *out = (vt_tensor){slice_type(p, k, d), NULL};
  int64_t bytes = vt_type_bytes(out->type), outer = 1, size = out->type.dims[d];
  for (int64_t i = 0; i < d; i++) outer *= out->type.dims[i];
  if (outer == 1) {
    out->data = (char *)p->in[k].data + member * bytes;
    return VT_OK;
  }
  out->data = vt_arena_try_push(&p->scratch, (size_t)bytes + 1, 64);
  if (!out->data) return vt_error_no_memory();
  vt_collective_copy(p->in[k], member * size, *out, 0, d, size);
  return VT_OK;
}

// Operand k's slices for this device, one of each member, make its result.
static vt_status use_slices(part *p, uint32_t k, const vt_tensor *slices) {
  if (p->op->code == VT_OP_ALL_TO_ALL) {
    int64_t join = vt_attr_i64(p->op, VT_ATTR_CONCAT_DIMENSION), size = slices[0].type.dims[join];
    for (int32_t m = 0; m < p->member_count; m++)
      vt_collective_copy(slices[m], 0, p->out[k], m * size, join, size);
    return VT_OK;
  }
  const vt_tensor **in = VT_NEW_ARRAY(&p->scratch, const vt_tensor *, p->kept->devices);
  for (int32_t m = 0; m < p->member_count; m++) {
    vt_tensor *row = VT_NEW_ARRAY(&p->scratch, vt_tensor, p->count + 1);
    row[k] = slices[m];
    in[p->members[m]] = row;
  }
  vt_lane_set set = {p->op, p->state, p->env, k, in, NULL, p->kept->fold};
  return vt_collective_fold(&set, p->member_count, p->members, p->out[k].data);
}

static vt_status run_slices(part *p) {
  int64_t d = p->kept->sliced;
  size_t spans = 2 * (size_t)p->count;
  vt_bytes *give = VT_NEW_ARRAY(&p->scratch, vt_bytes, spans * (size_t)p->other_count + 1);
  size_t *take = VT_NEW_ARRAY(&p->scratch, size_t, p->other_count + 1), at = 0;
  const void **taken;
  for (int32_t i = 0; i < p->other_count; i++)
    for (uint32_t k = 0; k < p->count; k++) {
      vt_tensor slice;
      VT_TRY(slice_of(p, k, d, member_of(p, i), &slice));
      put_padded(give + (size_t)i * spans + 2 * (size_t)k,
                 bytes_of(slice.data, vt_type_bytes(slice.type)));
      take[i] += (size_t)padded(vt_type_bytes(slice.type));
    }
  VT_TRY(meet(p, (uint32_t)spans, false, give, take, &taken));
  for (uint32_t k = 0; k < p->count; k++) {
    vt_tensor *slices = VT_NEW_ARRAY(&p->scratch, vt_tensor, p->member_count), mine;
    VT_TRY(slice_of(p, k, d, p->mine, &mine));
    for (int32_t m = 0; m < p->member_count; m++) slices[m] = mine;
    for (int32_t i = 0; i < p->other_count; i++)
      slices[member_of(p, i)].data = (char *)(uintptr_t)taken[i] + at;
    if (vt_type_elements(mine.type)) VT_TRY(use_slices(p, k, slices));
    at += (size_t)padded(vt_type_bytes(mine.type));
  }
  return VT_OK;
}

// ---- what is kept -------------------------------------------------------------------------------

static void take_row(vt_part *kept, int64_t width, const int32_t *row) {
  kept->members = VT_NEW_ARRAY(&kept->arena, int32_t, width + 1);
  kept->others = VT_NEW_ARRAY(&kept->arena, int32_t, width + 1);
  for (int64_t i = 0; i < width && row[i] >= 0; i++) {
    if (row[i] == kept->place)
      kept->mine = kept->member_count;
    else
      kept->others[kept->other_count++] = row[i];
    kept->members[kept->member_count++] = row[i];
  }
}

static void find_row(vt_part *kept, const vt_group_list *groups) {
  for (int64_t g = 0; g < groups->count; g++)
    for (int64_t i = 0; i < groups->width; i++)
      if (groups->members[g * groups->width + i] == kept->place) {
        take_row(kept, groups->width, groups->members + g * groups->width);
        return;
      }
}

static vt_status prepare(vt_part *kept) {
  const vt_op *op = kept->op;
  if (op->code == VT_OP_COLLECTIVE_PERMUTE) {
    kept->way = PERMUTE;
    return prepare_permute(kept);
  }
  vt_group_list groups = {0};
  VT_TRY(vt_collective_groups(op, kept->devices, &groups));
  find_row(kept, &groups);
  free(groups.members);
  if (!kept->member_count) return VT_OK;
  for (uint32_t k = 0; k < op->operand_count; k++)
    kept->bytes += vt_type_bytes(op->operands[k]->type);
  kept->fold = vt_collective_usual_fold(op, &kept->arena);
  kept->sliced = sliced_dimension(kept);
  bool shares = op->code == VT_OP_ALL_REDUCE && kept->bytes > WHOLE_BYTES && kept->other_count;
  kept->way = kept->sliced >= 0 ? SLICES : shares ? SHARES : WHOLE;
  if (kept->way == WHOLE) prepare_whole(kept);
  return VT_OK;
}

vt_status vt_part_create(const vt_op *op, int32_t devices, int32_t place, vt_part **out_part) {
  vt_part *kept = calloc(1, sizeof *kept);
  *out_part = NULL;
  if (!kept) return vt_error_no_memory();
  kept->op = op;
  kept->devices = devices;
  kept->place = place;
  vt_status st = prepare(kept);
  if (st)
    vt_part_destroy(kept);
  else
    *out_part = kept;
  return st;
}

void vt_part_destroy(vt_part *kept) {
  if (!kept) return;
  vt_eval_state_fini(&kept->state);
  vt_arena_free(&kept->arena);
  free(kept);
}

// ---- a run --------------------------------------------------------------------------------------

static void prepare_results(part *p) {
  bool zeros = p->op->code == VT_OP_COLLECTIVE_BROADCAST || p->op->code == VT_OP_COLLECTIVE_REDUCE;
  bool copies = p->op->code == VT_OP_RAGGED_ALL_TO_ALL;
  for (uint32_t k = 0; k < p->op->result_count && (zeros || copies); k++) {
    size_t size = (size_t)vt_type_bytes(p->out[k].type);
    if (zeros && size) memset(p->out[k].data, 0, size);
    if (copies && size) memcpy(p->out[k].data, p->in[1].data, size);
  }
}

vt_status vt_part_run(vt_part *kept, const vt_eval_env *env, const vt_tensor *in, vt_tensor *out,
                      const vt_meetings *meetings) {
  static vt_status (*const ways[])(part *) = {
      [PERMUTE] = run_permute, [WHOLE] = run_whole, [SHARES] = run_shares, [SLICES] = run_slices};
  part p = {.kept = kept,
            .op = kept->op,
            .state = &kept->state,
            .env = env,
            .count = kept->op->operand_count,
            .in = in,
            .out = out,
            .meetings = meetings,
            .other_count = kept->other_count,
            .member_count = kept->member_count,
            .mine = kept->mine,
            .others = kept->others,
            .members = kept->members};
  prepare_results(&p);
  vt_status st = kept->way == NOTHING ? VT_OK : ways[kept->way](&p);
  vt_arena_free(&p.scratch);
  return st;
}
