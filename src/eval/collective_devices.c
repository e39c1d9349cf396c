// SPDX-License-Identifier: Apache-2.0
// collective_devices.c - a collective for the devices of one process, while the others run in other
// processes.
//
// Rows of devices are those of the op. A row whose devices are all here is computed here. Of the
// others, each process gives what the others' results need, once for all rows; then the functions
// of collective.c make the results of the devices that are here, with the bits that they have where
// all devices run together. A large sum is made in two meetings, as in collective_part.c, but each
// process folds its share of the elements for all devices of the row, in the row's order.
#include <stdlib.h>
#include <string.h>

#include "eval/collective.h"

typedef struct joint {
  const vt_op *op;
  vt_eval_state *state;
  const vt_eval_env *env;
  int32_t devices, here, parts;
  const int32_t *part_of; // [device]
  const vt_tensor **in;   // [device] operands; NULL: not here, not needed or not come yet
  vt_tensor *const *out;  // [device] results; NULL: not here
  const vt_meetings *meetings;
  vt_group_list groups;
  vt_pair_list pairs;
  uint8_t *needs; // [part][device]: a result of the part needs the device's operands
  vt_arena scratch;
} joint;

static const int32_t *row_of(const joint *j, int64_t g) {
  return j->groups.members + g * j->groups.width;
}

static bool row_has(const joint *j, int64_t g, int32_t part) {
  const int32_t *row = row_of(j, g);
  for (int64_t i = 0; i < j->groups.width && row[i] >= 0; i++)
    if (j->part_of[row[i]] == part) return true;
  return false;
}

static int64_t padded(int64_t bytes) {
  return (bytes + 63) & ~(int64_t)63;
}

// Two spans: the bytes, and what pads them to whole cache lines.
static void put_padded(vt_bytes *spans, const void *data, int64_t size) {
  static const uint8_t pad[64];
  spans[0] = (vt_bytes){size ? data : NULL, (size_t)size};
  spans[1] = (vt_bytes){pad, (size_t)(padded(size) - size)};
}

// ---- operands given whole -----------------------------------------------------------------------

static void find_needs(joint *j) {
  j->needs = VT_NEW_ARRAY(&j->scratch, uint8_t, (size_t)j->parts *(size_t)j->devices);
  for (int64_t i = 0; i < j->pairs.count; i++) {
    const vt_pair *pair = &j->pairs.pairs[i];
    j->needs[j->part_of[pair->to] * j->devices + pair->from] = 1;
  }
  for (int64_t g = 0; g < j->groups.count; g++) {
    const int32_t *row = row_of(j, g);
    for (int32_t p = 0; p < j->parts; p++) {
      if (!row_has(j, g, p)) continue;
      for (int64_t i = 0; i < j->groups.width && row[i] >= 0; i++)
        j->needs[p * j->devices + row[i]] = 1;
    }
  }
}

// How many devices of one part another one needs.
static uint32_t needed(const joint *j, int32_t from, int32_t by) {
  uint32_t count = 0;
  for (int32_t d = 0; d < j->devices; d++)
    count += j->part_of[d] == from && j->needs[by * j->devices + d];
  return count;
}

static int64_t operands_size(const joint *j) {
  int64_t size = 0;
  for (uint32_t k = 0; k < j->op->operand_count; k++)
    size += padded(vt_type_bytes(j->op->operands[k]->type));
  return size;
}

static void give_operands(const joint *j, int32_t to, vt_bytes *spans) {
  for (int32_t d = 0; d < j->devices; d++) {
    if (j->part_of[d] != j->here || !j->needs[to * j->devices + d]) continue;
    for (uint32_t k = 0; k < j->op->operand_count; k++, spans += 2)
      put_padded(spans, j->in[d][k].data, vt_type_bytes(j->in[d][k].type));
  }
}

static void take_operands(joint *j, int32_t from, const char *at) {
  uint32_t count = j->op->operand_count;
  for (int32_t d = 0; d < j->devices; d++) {
    if (j->part_of[d] != from || !j->needs[j->here * j->devices + d]) continue;
    vt_tensor *theirs = VT_NEW_ARRAY(&j->scratch, vt_tensor, count + 1);
    for (uint32_t k = 0; k < count; k++) {
      theirs[k] = (vt_tensor){j->op->operands[k]->type, (char *)(uintptr_t)at};
      at += padded(vt_type_bytes(theirs[k].type));
    }
    j->in[d] = theirs;
  }
}

static vt_status trade_operands(joint *j) {
  size_t most = (size_t)j->parts + 1;
  int32_t *others = VT_NEW_ARRAY(&j->scratch, int32_t, most), count = 0;
  size_t *take = VT_NEW_ARRAY(&j->scratch, size_t, most);
  const void **taken = VT_NEW_ARRAY(&j->scratch, const void *, most);
  uint32_t widest = 0;
  for (int32_t p = 0; p < j->parts; p++) {
    uint32_t give = needed(j, j->here, p), get = needed(j, p, j->here);
    if (p == j->here || (!give && !get)) continue;
    if (give > widest) widest = give;
    take[count] = get * (size_t)operands_size(j);
    others[count++] = p;
  }
  if (!count) return VT_OK;
  uint32_t spans = 2 * widest * j->op->operand_count + 1;
  vt_bytes *give = VT_NEW_ARRAY(&j->scratch, vt_bytes, (size_t)spans * (size_t)count);
  for (int32_t i = 0; i < count; i++) give_operands(j, others[i], give + (size_t)i * spans);
  vt_meet m = {
      .count = count, .places = others, .spans = spans, .give = give, .take = take, .taken = taken};
  VT_TRY(j->meetings->meet(j->meetings->user, &m));
  for (int32_t i = 0; i < count; i++) take_operands(j, others[i], taken[i]);
  return VT_OK;
}

static void run_pairs(const joint *j) {
  for (int64_t i = 0; i < j->pairs.count; i++) {
    const vt_pair *pair = &j->pairs.pairs[i];
    if (!j->out[pair->to]) continue;
    vt_tensor from = j->in[pair->from][0], to = j->out[pair->to][0];
    if (vt_type_bytes(from.type)) memcpy(to.data, from.data, (size_t)vt_type_bytes(from.type));
  }
}

static vt_status run_row(const joint *j, int64_t g) {
  for (uint32_t k = 0; k < j->op->result_count; k++) {
    vt_lane_set set = {j->op, j->state, j->env, k, j->in, j->out, NULL};
    VT_TRY(vt_collective_row(&set, j->groups.width, row_of(j, g)));
  }
  return VT_OK;
}

static vt_status run_whole(joint *j) {
  find_needs(j);
  VT_TRY(trade_operands(j));
  run_pairs(j);
  for (int64_t g = 0; g < j->groups.count; g++)
    if (row_has(j, g, j->here)) VT_TRY(run_row(j, g));
  return VT_OK;
}

// ---- reductions by shares -----------------------------------------------------------------------

// One piece of one operand, reduced over one row: n elements from `at` on.
typedef struct piece {
  joint *j;
  const int32_t *row;
  int64_t width;
  uint32_t k;
  int64_t at, n, element;           // bytes of an element
  int32_t part_count, mine, *parts; // of the row
  int32_t first;                    // the first member that is here
  vt_arena scratch;
} piece;

static int64_t share_at(const piece *p, int32_t part) {
  int64_t each = (p->n + p->part_count - 1) / p->part_count;
  int64_t at = (each + SHARE - 1) / SHARE * SHARE * part;
  return at < p->n ? at : p->n;
}

static int64_t share_bytes(const piece *p, int32_t part) {
  return (share_at(p, part + 1) - share_at(p, part)) * p->element;
}

static char *share_of(const piece *p, vt_tensor t, int32_t part) {
  return (char *)t.data + (p->at + share_at(p, part)) * p->element;
}

static int32_t members_of(const piece *p, int32_t part) {
  int32_t count = 0;
  for (int64_t i = 0; i < p->width && p->row[i] >= 0; i++)
    count += p->j->part_of[p->row[i]] == p->parts[part];
  return count;
}

static vt_status meet(piece *p, uint32_t spans, bool alike, const vt_bytes *give,
                      const size_t *take, const void **taken) {
  int32_t *others = VT_NEW_ARRAY(&p->scratch, int32_t, p->part_count), count = 0;
  for (int32_t i = 0; i < p->part_count; i++)
    if (i != p->mine) others[count++] = p->parts[i];
  vt_meet m = {.count = count,
               .places = others,
               .spans = spans,
               .alike = alike,
               .give = give,
               .take = take,
               .taken = taken};
  return p->j->meetings->meet(p->j->meetings->user, &m);
}

// Folds this process's share, of which `taken` has what the other processes' members give.
static vt_status fold_share(piece *p, const void *const *taken) {
  int64_t n = share_at(p, p->mine + 1) - share_at(p, p->mine);
  if (!n) return VT_OK;
  joint *j = p->j;
  vt_type type = {.dtype = j->op->operands[p->k]->type.dtype, .rank = 1, .dims = &n};
  const vt_tensor **in = VT_NEW_ARRAY(&p->scratch, const vt_tensor *, j->devices);
  int32_t *used = VT_NEW_ARRAY(&p->scratch, int32_t, j->parts);
  for (int64_t i = 0; i < p->width && p->row[i] >= 0; i++) {
    int32_t d = p->row[i], place = 0, part = j->part_of[d];
    vt_tensor *row = VT_NEW_ARRAY(&p->scratch, vt_tensor, p->k + 1);
    while (p->parts[place] != part) place++;
    const char *data = part == j->here ? share_of(p, j->in[d][p->k], p->mine)
                                       : (const char *)taken[place < p->mine ? place : place - 1] +
                                             used[part]++ * padded(n * p->element);
    row[p->k] = (vt_tensor){type, (void *)(uintptr_t)data};
    in[d] = row;
  }
  vt_lane_set set = {j->op, j->state, j->env, p->k, in, NULL, NULL};
  return vt_collective_fold(&set, p->width, p->row, share_of(p, j->out[p->first][p->k], p->mine));
}

static vt_status run_piece(piece *p) {
  joint *j = p->j;
  size_t others = (size_t)p->part_count - 1;
  uint32_t local = (uint32_t)members_of(p, p->mine), spans = 2 * local;
  vt_bytes *give = VT_NEW_ARRAY(&p->scratch, vt_bytes, others * spans + 2), folded[2];
  size_t *take = VT_NEW_ARRAY(&p->scratch, size_t, others + 1);
  const void **taken = VT_NEW_ARRAY(&p->scratch, const void *, others + 1);
  vt_bytes *next = give;
  for (int32_t q = 0, o = 0; q < p->part_count; q++) {
    if (q == p->mine) continue;
    take[o++] = (size_t)(members_of(p, q) * padded(share_bytes(p, p->mine)));
    for (int64_t i = 0; i < p->width && p->row[i] >= 0; i++) {
      if (j->part_of[p->row[i]] != j->here) continue;
      put_padded(next, share_of(p, j->in[p->row[i]][p->k], q), share_bytes(p, q));
      next += 2;
    }
  }
  VT_TRY(meet(p, spans, false, give, take, taken));
  VT_TRY(fold_share(p, taken));
  vt_tensor out = j->out[p->first][p->k];
  put_padded(folded, share_of(p, out, p->mine), share_bytes(p, p->mine));
  for (int32_t q = 0, o = 0; q < p->part_count; q++)
    if (q != p->mine) take[o++] = (size_t)padded(share_bytes(p, q));
  VT_TRY(meet(p, 2, true, folded, take, taken));
  for (int32_t q = 0, o = 0; q < p->part_count; q++) {
    if (q == p->mine) continue;
    size_t size = (size_t)share_bytes(p, q);
    if (size) memcpy(share_of(p, out, q), taken[o], size);
    o++;
  }
  return VT_OK;
}

// The processes of a row in the order in which it comes to them.
static void find_parts(piece *p) {
  joint *j = p->j;
  p->parts = VT_NEW_ARRAY(&j->scratch, int32_t, j->parts);
  p->first = -1;
  for (int64_t i = 0; i < p->width && p->row[i] >= 0; i++) {
    int32_t part = j->part_of[p->row[i]], at = 0;
    while (at < p->part_count && p->parts[at] != part) at++;
    if (at == p->part_count) p->parts[p->part_count++] = part;
    if (part != j->here) continue;
    p->mine = at;
    if (p->first < 0) p->first = p->row[i];
  }
}

static vt_status reduce_row(joint *j, const piece *row) {
  for (uint32_t k = 0; k < j->op->result_count; k++) {
    vt_type type = j->op->operands[k]->type;
    int64_t element = (int64_t)vt_dtype_bytes(type.dtype), n = vt_type_elements(type);
    int64_t most = (int64_t)SHARE_BYTES * row->part_count / element;
    for (int64_t at = 0; at < n; at += most) {
      piece p = *row;
      p.k = k;
      p.at = at;
      p.n = n - at < most ? n - at : most;
      p.element = element;
      vt_status st = run_piece(&p);
      vt_arena_free(&p.scratch);
      if (st) return st;
    }
    for (int64_t i = 0; i < row->width && row->row[i] >= 0; i++)
      if (j->out[row->row[i]] && row->row[i] != row->first && n)
        memcpy(j->out[row->row[i]][k].data, j->out[row->first][k].data,
               (size_t)vt_type_bytes(type));
  }
  return VT_OK;
}

static vt_status run_shares(joint *j) {
  for (int64_t g = 0; g < j->groups.count; g++) {
    piece row = {.j = j, .row = row_of(j, g), .width = j->groups.width};
    if (!row_has(j, g, j->here)) continue;
    find_parts(&row);
    VT_TRY(row.part_count > 1 ? reduce_row(j, &row) : run_row(j, g));
  }
  return VT_OK;
}

// ---- all ----------------------------------------------------------------------------------------

static void prepare_results(const joint *j) {
  bool zeros = j->op->code == VT_OP_COLLECTIVE_BROADCAST ||
               j->op->code == VT_OP_COLLECTIVE_REDUCE || j->op->code == VT_OP_COLLECTIVE_PERMUTE;
  for (int32_t d = 0; d < j->devices; d++)
    for (uint32_t k = 0; j->out[d] && k < j->op->result_count; k++) {
      size_t size = (size_t)vt_type_bytes(j->out[d][k].type);
      if (zeros && size) memset(j->out[d][k].data, 0, size);
      if (j->op->code == VT_OP_RAGGED_ALL_TO_ALL && size)
        memcpy(j->out[d][k].data, j->in[d][1].data, size);
    }
}

static vt_status run(joint *j) {
  if (j->op->code == VT_OP_COLLECTIVE_PERMUTE)
    VT_TRY(vt_collective_pairs(j->op, j->devices, &j->pairs));
  else
    VT_TRY(vt_collective_groups(j->op, j->devices, &j->groups));
  if (j->groups.width == 0) j->groups.count = 0;
  prepare_results(j);
  bool shares = j->op->code == VT_OP_ALL_REDUCE && operands_size(j) > WHOLE_BYTES;
  return shares ? run_shares(j) : run_whole(j);
}

vt_status vt_eval_collective_devices(const vt_op *op, const vt_eval_env *env, int32_t device_count,
                                     const int32_t *part_of, int32_t here,
                                     const vt_tensor *const *in, vt_tensor *const *out,
                                     const vt_meetings *meetings) {
  vt_eval_state state = {0};
  joint j = {.op = op,
             .state = &state,
             .env = env,
             .devices = device_count,
             .here = here,
             .part_of = part_of,
             .out = out,
             .meetings = meetings};
  for (int32_t d = 0; d < device_count; d++)
    if (part_of[d] >= j.parts) j.parts = part_of[d] + 1;
  j.in = VT_NEW_ARRAY(&j.scratch, const vt_tensor *, device_count);
  for (int32_t d = 0; d < device_count; d++)
    if (part_of[d] == here) j.in[d] = in[d];
  vt_status st = run(&j);
  free(j.groups.members);
  free(j.pairs.pairs);
  vt_eval_state_fini(&state);
  vt_arena_free(&j.scratch);
  return st;
}
