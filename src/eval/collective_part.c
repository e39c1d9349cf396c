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
#include <stdlib.h>
#include <string.h>

#include "eval/collective.h"

typedef struct part {
  const vt_op *op;
  vt_eval_state *state;
  const vt_eval_env *env;
  int32_t devices, place;
  uint32_t count; // of operands: those of the op, or a piece of one
  const vt_tensor *in;
  vt_tensor *out;
  const vt_meetings *meetings;
  // The members of the row but this one, and all in order.
  int32_t other_count, member_count, mine; // mine: the index among all
  int32_t *others, *members;
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

static vt_status run_permute(part *p) {
  vt_pair_list list;
  VT_TRY(vt_collective_pairs(p->op, p->devices, &list));
  int32_t from = -1, to = -1;
  for (int64_t i = 0; i < list.count; i++) {
    if (list.pairs[i].to == p->place) from = list.pairs[i].from;
    if (list.pairs[i].from == p->place) to = list.pairs[i].to;
  }
  free(list.pairs);
  int64_t size = vt_type_bytes(p->in[0].type);
  int32_t others[2];
  vt_bytes give[2] = {{0}};
  size_t take[2] = {0};
  if (to >= 0 && to != p->place) {
    give[p->other_count] = bytes_of(p->in[0].data, size);
    others[p->other_count++] = to;
  }
  if (from >= 0 && from != p->place) {
    if (from != to) others[p->other_count++] = from;
    take[p->other_count - 1] = (size_t)size;
  }
  p->others = others;
  const void **taken;
  VT_TRY(meet(p, 1, false, give, take, &taken));
  const void *source = from == p->place ? p->in[0].data : NULL;
  if (from >= 0 && from != p->place) source = taken[p->other_count - 1];
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

// The rows of tensors as vt_collective_row expects them: by device.
static vt_status run_whole(part *p) {
  uint32_t count = p->op->operand_count;
  vt_bytes *give = VT_NEW_ARRAY(&p->scratch, vt_bytes, 2 * (size_t)count + 1);
  size_t *take = VT_NEW_ARRAY(&p->scratch, size_t, p->other_count + 1);
  int64_t total = 0;
  for (uint32_t k = 0; k < count; k++) {
    int64_t size = vt_type_bytes(p->in[k].type);
    put_padded(give + 2 * (size_t)k, bytes_of(p->in[k].data, size));
    total += padded(size);
  }
  for (int32_t i = 0; i < p->other_count; i++) take[i] = (size_t)total;
  const void **taken;
  VT_TRY(meet(p, 2 * count, true, give, take, &taken));
  const vt_tensor **in = VT_NEW_ARRAY(&p->scratch, const vt_tensor *, p->devices);
  vt_tensor **out = VT_NEW_ARRAY(&p->scratch, vt_tensor *, p->devices);
  in[p->place] = p->in;
  out[p->place] = p->out;
  for (int32_t i = 0; i < p->other_count; i++) {
    vt_tensor *theirs = VT_NEW_ARRAY(&p->scratch, vt_tensor, count + 1);
    int64_t at = 0;
    for (uint32_t k = 0; k < count; k++) {
      theirs[k] = (vt_tensor){p->in[k].type, (char *)(uintptr_t)taken[i] + at};
      at += padded(vt_type_bytes(p->in[k].type));
    }
    in[p->others[i]] = theirs;
  }
  for (uint32_t k = 0; k < p->op->result_count; k++) {
    vt_lane_set set = {p->op, p->state, p->env, k, in, out};
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
  const vt_tensor **in = VT_NEW_ARRAY(&p->scratch, const vt_tensor *, p->devices);
  for (int32_t m = 0; m < p->member_count; m++) {
    vt_tensor *row = VT_NEW_ARRAY(&p->scratch, vt_tensor, p->count + 1);
    const void *data = m == p->mine  ? share_of(p, p->in, k, m).data
                       : m < p->mine ? theirs[m]
                                     : theirs[m - 1];
    row[k] = (vt_tensor){type, (void *)(uintptr_t)data};
    in[p->members[m]] = row;
  }
  vt_lane_set set = {p->op, p->state, p->env, k, in, NULL};
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

static vt_status run_shares(part *p, int64_t bytes) {
  int64_t most = (int64_t)SHARE_BYTES * p->member_count;
  if (bytes <= most) return run_piece(p);
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
static int64_t sliced_dimension(const part *p) {
  const vt_op *op = p->op;
  bool scatter = op->code == VT_OP_REDUCE_SCATTER;
  if (!scatter && op->code != VT_OP_ALL_TO_ALL) return -1;
  int64_t d = vt_attr_i64(op, scatter ? VT_ATTR_SCATTER_DIMENSION : VT_ATTR_SPLIT_DIMENSION);
  int64_t join = scatter ? d : vt_attr_i64(op, VT_ATTR_CONCAT_DIMENSION);
  if (!scatter && vt_attr_i64(op, VT_ATTR_SPLIT_COUNT) != p->member_count) return -1;
  if (op->operand_count != op->result_count || d < 0 || join < 0) return -1;
  for (uint32_t k = 0; k < p->count; k++) {
    vt_type in = p->in[k].type, out = p->out[k].type;
    if (d >= in.rank || join >= in.rank || in.dims[d] % p->member_count) return -1;
    int64_t slice = in.dims[d] / p->member_count;
    for (int32_t i = 0; i < in.rank; i++) {
      int64_t size = i == d ? slice : in.dims[i];
      if (out.dims[i] != (!scatter && i == join ? size * p->member_count : size)) return -1;
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
  const vt_tensor **in = VT_NEW_ARRAY(&p->scratch, const vt_tensor *, p->devices);
  for (int32_t m = 0; m < p->member_count; m++) {
    vt_tensor *row = VT_NEW_ARRAY(&p->scratch, vt_tensor, p->count + 1);
    row[k] = slices[m];
    in[p->members[m]] = row;
  }
  vt_lane_set set = {p->op, p->state, p->env, k, in, NULL};
  return vt_collective_fold(&set, p->member_count, p->members, p->out[k].data);
}

static vt_status run_slices(part *p, int64_t d) {
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

// ---- which row ----------------------------------------------------------------------------------

static void take_row(part *p, int64_t width, const int32_t *row) {
  p->members = VT_NEW_ARRAY(&p->scratch, int32_t, width + 1);
  p->others = VT_NEW_ARRAY(&p->scratch, int32_t, width + 1);
  for (int64_t i = 0; i < width && row[i] >= 0; i++) {
    if (row[i] == p->place)
      p->mine = p->member_count;
    else
      p->others[p->other_count++] = row[i];
    p->members[p->member_count++] = row[i];
  }
}

static void find_row(part *p, const vt_group_list *groups) {
  for (int64_t g = 0; g < groups->count; g++)
    for (int64_t i = 0; i < groups->width; i++)
      if (groups->members[g * groups->width + i] == p->place) {
        take_row(p, groups->width, groups->members + g * groups->width);
        return;
      }
}

static void prepare_results(part *p) {
  bool zeros = p->op->code == VT_OP_COLLECTIVE_BROADCAST || p->op->code == VT_OP_COLLECTIVE_REDUCE;
  for (uint32_t k = 0; k < p->op->result_count; k++) {
    size_t size = (size_t)vt_type_bytes(p->out[k].type);
    if (zeros && size) memset(p->out[k].data, 0, size);
    if (p->op->code == VT_OP_RAGGED_ALL_TO_ALL && size) memcpy(p->out[k].data, p->in[1].data, size);
  }
}

static vt_status run_part(part *p) {
  if (p->op->code == VT_OP_COLLECTIVE_PERMUTE) return run_permute(p);
  vt_group_list groups = {0};
  VT_TRY(vt_collective_groups(p->op, p->devices, &groups));
  find_row(p, &groups);
  free(groups.members);
  prepare_results(p);
  if (!p->member_count) return VT_OK;
  int64_t bytes = 0;
  for (uint32_t k = 0; k < p->op->operand_count; k++) bytes += vt_type_bytes(p->in[k].type);
  bool shares = p->op->code == VT_OP_ALL_REDUCE && bytes > WHOLE_BYTES && p->other_count;
  int64_t sliced = sliced_dimension(p);
  if (sliced >= 0) return run_slices(p, sliced);
  return shares ? run_shares(p, bytes) : run_whole(p);
}

vt_status vt_eval_collective_part(const vt_op *op, const vt_eval_env *env, int32_t devices,
                                  const vt_tensor *in, vt_tensor *out,
                                  const vt_meetings *meetings) {
  vt_eval_state state = {0};
  part p = {.op = op,
            .state = &state,
            .env = env,
            .devices = devices,
            .place = env->partition,
            .count = op->operand_count,
            .in = in,
            .out = out,
            .meetings = meetings};
  vt_status st = run_part(&p);
  vt_eval_state_fini(&state);
  vt_arena_free(&p.scratch);
  return st;
}
