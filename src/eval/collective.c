// SPDX-License-Identifier: Apache-2.0
// collective.c - collectives over all devices at once.
//
// Groups are rows of device positions (replica * partitions + partition). Reductions combine the
// members of a row in its order, so results are reproducible bit for bit.
#include <stdlib.h>
#include <string.h>

#include "eval/collective.h"
#include "eval/fold.h"
#include "ir/number.h"

// How the ids of replica_groups are read (StableHLO's process grouping).
typedef enum id_kind { IDS_REPLICA, IDS_PARTITION, IDS_REPLICA_ALL_PARTITIONS, IDS_GLOBAL } id_kind;

static id_kind kind_of(const vt_op *op) {
  bool channel = vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, 0) > 0;
  switch ((int)op->code) {
  case VT_OP_ALL_TO_ALL:
  case VT_OP_COLLECTIVE_PERMUTE:
  case VT_OP_COLLECTIVE_BROADCAST:
  case VT_OP_RAGGED_ALL_TO_ALL:
    return channel ? IDS_PARTITION : IDS_REPLICA;
  case VT_OP_CROSS_REPLICA_SUM:
    return IDS_REPLICA;
  default:
    break;
  }
  if (!channel) return IDS_REPLICA;
  return vt_attr_i64_or(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 0) ? IDS_GLOBAL
                                                              : IDS_REPLICA_ALL_PARTITIONS;
}

static void counts_of(const vt_op *op, int32_t devices, int32_t *partitions, int32_t *replicas) {
  const vt_module *m = op->func ? op->func->module : NULL;
  *partitions = devices;
  *replicas = 1;
  if (m && m->num_partitions > 0 && m->num_replicas > 0 &&
      (int64_t)m->num_partitions * m->num_replicas == devices) {
    *partitions = m->num_partitions;
    *replicas = m->num_replicas;
  }
}

static vt_status allocate(vt_group_list *out) {
  out->members = malloc((size_t)(out->count * out->width) * sizeof *out->members + 1);
  return out->members ? VT_OK : vt_error_no_memory();
}

static int64_t literal_i64(const vt_literal *l, int64_t i) {
  const int64_t *data = l->data;
  return data[l->splat ? 0 : i];
}

// Rows of ids as given: [rows][width]; one row of all ids when there are none, or when one device
// is alone: a sum may then name devices that are absent, as XLA has it and PyTorch/XLA writes it.
static vt_status read_rows(const vt_op *op, bool alone, int64_t ids, vt_group_list *out) {
  const vt_literal *l = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  bool given = l && !alone && l->type.rank == 2 && vt_type_elements(l->type) > 0;
  out->count = given ? l->type.dims[0] : 1;
  out->width = given ? l->type.dims[1] : ids;
  VT_TRY(allocate(out));
  for (int64_t i = 0; i < out->count * out->width; i++) {
    int64_t id = given ? literal_i64(l, i) : i;
    if (id < -1 || id >= ids) {
      free(out->members);
      out->members = NULL;
      return vt_eval_invalid(op, "replica_groups");
    }
    out->members[i] = (int32_t)id;
  }
  return VT_OK;
}

vt_status vt_collective_groups(const vt_op *op, int32_t devices, vt_group_list *out) {
  int32_t partitions, replicas;
  vt_group_list rows = {0};
  id_kind kind = kind_of(op);
  counts_of(op, devices, &partitions, &replicas);
  int64_t ids = kind == IDS_GLOBAL ? devices : kind == IDS_PARTITION ? partitions : replicas;
  VT_TRY(read_rows(op, devices == 1 && op->code == VT_OP_ALL_REDUCE, ids, &rows));
  if (kind == IDS_GLOBAL) {
    *out = rows;
    return VT_OK;
  }
  // Each row once per value of the other coordinate, or widened over it.
  int32_t others = kind == IDS_PARTITION ? replicas : partitions;
  bool widen = kind == IDS_REPLICA_ALL_PARTITIONS;
  out->count = widen ? rows.count : rows.count * others;
  out->width = widen ? rows.width * others : rows.width;
  vt_status st = allocate(out);
  for (int64_t g = 0; g < rows.count && !st; g++)
    for (int64_t i = 0; i < rows.width; i++)
      for (int32_t o = 0; o < others; o++) {
        int32_t id = rows.members[g * rows.width + i];
        int32_t device = id < 0                  ? -1
                         : kind == IDS_PARTITION ? o * partitions + id
                                                 : id * partitions + o;
        int64_t place = widen ? g * out->width + i * others + o : (g * others + o) * out->width + i;
        out->members[place] = device;
      }
  free(rows.members);
  return st;
}

static void zero(vt_tensor t) {
  if (t.data) memset(t.data, 0, (size_t)vt_type_bytes(t.type));
}

void vt_collective_copy(vt_tensor from, int64_t from_at, vt_tensor to, int64_t to_at, int64_t d,
                        int64_t size) {
  int64_t dims[VT_MAX_RANK], a[VT_MAX_RANK], b[VT_MAX_RANK];
  int64_t bytes = (int64_t)vt_dtype_bytes(to.type.dtype);
  vt_type_strides(from.type, a);
  vt_type_strides(to.type, b);
  for (int32_t i = 0; i < to.type.rank; i++)
    dims[i] = i == d                                ? size
              : from.type.dims[i] < to.type.dims[i] ? from.type.dims[i]
                                                    : to.type.dims[i];
  vt_eval_move((size_t)bytes, to.type.rank, dims, (const char *)from.data + from_at * a[d] * bytes,
               a, (char *)to.data + to_at * b[d] * bytes, b);
}

// Opens the fold of a reduction over `lanes` elements at a time.
static vt_status open_fold(const vt_lane_set *s, const vt_tensor *in, int64_t lanes, vt_fold *out) {
  vt_dtype dtype = in[s->index].type.dtype;
  *out = (vt_fold){.inputs = 1, .types = {dtype}};
  vt_eval_call call = {s->op, s->env, s->state, in, NULL};
  if (s->op->code != VT_OP_CROSS_REPLICA_SUM)
    return vt_fold_open(&call, s->op->regions[0], 1, lanes, out);
  out->loop = vt_vec_op(vt_vec_class_of(dtype), VT_OP_ADD);
  out->width = vt_vec_width_of(dtype);
  if (vt_vec_is_narrow(dtype)) out->types[0] = VT_F32;
  return VT_OK;
}

// Whether the fold's type is the operands', so that it needs no scratch.
static bool folds_as_is(const vt_lane_set *s, const vt_fold *fold, const int32_t *row) {
  return fold->types[0] == s->in[row[0]][s->index].type.dtype;
}

// Folds n elements from `at` on into `to`. `acc` and `x` are scratch, NULL where it folds as is.
static vt_status fold_block(const vt_lane_set *s, vt_fold *fold, int64_t width, const int32_t *row,
                            int64_t at, int64_t n, void *acc, void *x, char *to) {
  vt_dtype dtype = s->in[row[0]][s->index].type.dtype;
  bool as_is = folds_as_is(s, fold, row);
  size_t bytes = vt_dtype_bytes(dtype);
  void *into = as_is ? to : acc;
  int64_t i = 0;
  for (; i < width && row[i] >= 0; i++) {
    void *from = (char *)s->in[row[i]][s->index].data + at * (int64_t)bytes;
    void *other = as_is ? from : i ? x : acc;
    if (!as_is) VT_TRY(vt_eval_convert_array(dtype, fold->types[0], n, from, other));
    if (i) VT_TRY(vt_fold_combine(fold, n, &acc, &other, &into));
    acc = i ? into : other;
  }
  if (!as_is) return vt_eval_convert_array(fold->types[0], dtype, n, acc, to);
  if (i == 1) memcpy(to, acc, (size_t)n * bytes);
  return VT_OK;
}

vt_fold *vt_collective_usual_fold(const vt_op *op, vt_arena *arena) {
  bool sum = op->code == VT_OP_CROSS_REPLICA_SUM;
  if (!op->operand_count || (!sum && !op->region_count)) return NULL;
  const vt_tensor in = {.type = op->operands[0]->type};
  for (uint32_t k = 1; k < op->operand_count; k++)
    if (op->operands[k]->type.dtype != in.type.dtype) return NULL;
  vt_lane_set set = {.op = op};
  vt_fold *fold = VT_NEW(arena, vt_fold);
  vt_status st = open_fold(&set, &in, 1, fold);
  bool usual = !st && fold->loop;
  if (!usual && !sum) vt_fold_close(fold);
  vt_status_free(st);
  return usual ? fold : NULL;
}

// By blocks that stay in the cache while the members are added.
vt_status vt_collective_fold(const vt_lane_set *s, int64_t width, const int32_t *row, void *to) {
  enum { BLOCK = 1 << 14 };
  vt_type type = s->in[row[0]][s->index].type;
  int64_t n = vt_type_elements(type), block = n < BLOCK ? n : BLOCK;
  vt_fold own, *fold = s->fold ? s->fold : &own;
  void *acc = NULL, *x = NULL;
  vt_status st = s->fold ? VT_OK : open_fold(s, s->in[row[0]], block, &own);
  int64_t bytes = (int64_t)vt_dtype_bytes(fold->types[0]);
  bool scratch = !st && !folds_as_is(s, fold, row);
  if (scratch) st = vt_eval_scratch(block * bytes, &acc);
  if (scratch && !st) st = vt_eval_scratch(block * bytes, &x);
  for (int64_t at = 0; at < n && !st; at += block)
    st = fold_block(s, fold, width, row, at, n - at < block ? n - at : block, acc, x,
                    (char *)to + at * (int64_t)vt_dtype_bytes(type.dtype));
  if (!s->fold && s->op->code != VT_OP_CROSS_REPLICA_SUM) vt_fold_close(&own);
  free(acc);
  free(x);
  return st;
}

static bool is_elsewhere(const vt_lane_set *s, int32_t device) {
  return !s->out[device];
}

// The member that sends, or keeps the sum: the first, or the one that the last operand gives for
// each result, the same on all members.
static vt_status root_of(const vt_lane_set *s, int64_t width, const int32_t *row,
                         int64_t *out_root) {
  int64_t members = 0, root = 0;
  while (members < width && row[members] >= 0) members++;
  for (int64_t i = 0; i < members && vt_attr_i64_or(s->op, VT_ATTR_HAS_DYNAMIC_ROOT, 0); i++) {
    const int32_t *roots = s->in[row[i]][s->op->result_count].data;
    if (i && roots[s->index] != root)
      return vt_eval_invalid(s->op, "root: members of a group give different roots");
    root = roots[s->index];
  }
  if (root < 0 || root >= members) return vt_eval_invalid(s->op, "root: not a member of the group");
  *out_root = root;
  return VT_OK;
}

// The member's part of the whole fold, along the dimension that is scattered.
static vt_status scatter(const vt_lane_set *s, int64_t i, int32_t device, void *sum) {
  vt_type type = s->in[device][s->index].type;
  vt_tensor out = s->out[device][s->index];
  int64_t d = vt_attr_i64(s->op, VT_ATTR_SCATTER_DIMENSION);
  if (d < 0 || d >= type.rank || (i + 1) * out.type.dims[d] > type.dims[d])
    return vt_eval_invalid(s->op, "scatter_dimension");
  vt_collective_copy((vt_tensor){type, sum}, i * out.type.dims[d], out, 0, d, out.type.dims[d]);
  return VT_OK;
}

static vt_status run_scatter(const vt_lane_set *s, int64_t width, const int32_t *row) {
  void *sum = NULL;
  VT_TRY(vt_eval_scratch(vt_type_bytes(s->in[row[0]][s->index].type), &sum));
  vt_status st = vt_collective_fold(s, width, row, sum);
  for (int64_t i = 0; i < width && row[i] >= 0 && !st; i++)
    if (!is_elsewhere(s, row[i])) st = scatter(s, i, row[i], sum);
  free(sum);
  return st;
}

static vt_status run_reduction(const vt_lane_set *s, int64_t width, const int32_t *row) {
  if (s->op->code == VT_OP_REDUCE_SCATTER) return run_scatter(s, width, row);
  int64_t root;
  VT_TRY(root_of(s, width, row, &root));
  void *sum = NULL; // in the first result that is made
  for (int64_t i = 0; i < width && row[i] >= 0; i++) {
    if (is_elsewhere(s, row[i])) continue;
    vt_tensor out = s->out[row[i]][s->index];
    if (s->op->code == VT_OP_COLLECTIVE_REDUCE && i != root)
      zero(out);
    else if (!sum)
      VT_TRY(vt_collective_fold(s, width, row, sum = out.data));
    else if (vt_type_bytes(out.type))
      memcpy(out.data, sum, (size_t)vt_type_bytes(out.type));
  }
  return VT_OK;
}

static vt_status run_exchange(const vt_lane_set *s, int64_t width, const int32_t *row) {
  const vt_op *op = s->op;
  int64_t members = 0;
  while (members < width && row[members] >= 0) members++;
  for (int64_t i = 0; i < members; i++)
    for (int64_t j = 0; j < members && !is_elsewhere(s, row[i]); j++) {
      vt_tensor from = s->in[row[j]][s->index], to = s->out[row[i]][s->index];
      if (op->code == VT_OP_ALL_GATHER) {
        int64_t d = vt_attr_i64(op, VT_ATTR_ALL_GATHER_DIM);
        if (d < 0 || d >= from.type.rank || from.type.dims[d] * members != to.type.dims[d])
          return vt_eval_invalid(op, "all_gather_dim");
        vt_collective_copy(from, 0, to, j * from.type.dims[d], d, from.type.dims[d]);
        continue;
      }
      int64_t split = vt_attr_i64(op, VT_ATTR_SPLIT_DIMENSION),
              join = vt_attr_i64(op, VT_ATTR_CONCAT_DIMENSION);
      int64_t parts = vt_attr_i64(op, VT_ATTR_SPLIT_COUNT);
      if (split < 0 || join < 0 || split >= from.type.rank || join >= from.type.rank ||
          parts != members)
        return vt_eval_invalid(op, "split_count");
      // Part i of what j has, as a separate array, goes after the parts of the senders before j.
      int64_t piece = from.type.dims[split] / parts, dims[VT_MAX_RANK], a[VT_MAX_RANK],
              b[VT_MAX_RANK];
      int64_t bytes = (int64_t)vt_dtype_bytes(from.type.dtype);
      vt_type_strides(from.type, a);
      vt_type_strides(to.type, b);
      for (int32_t k = 0; k < from.type.rank; k++) dims[k] = k == split ? piece : from.type.dims[k];
      if (to.type.dims[join] != dims[join] * members) return vt_eval_invalid(op, "shapes");
      vt_eval_move((size_t)bytes, from.type.rank, dims,
                   (const char *)from.data + i * piece * a[split] * bytes, a,
                   (char *)to.data + j * dims[join] * b[join] * bytes, b);
    }
  return VT_OK;
}

// Member i sends rows [offset, offset + size) of its operand to rows of its peer's output: parts
// are numbered by peer, with any number of them per peer.
static vt_status run_ragged(const vt_lane_set *s, int64_t width, const int32_t *row) {
  int64_t members = 0;
  while (members < width && row[members] >= 0) members++;
  for (int64_t i = 0; i < members; i++) {
    const vt_tensor *in = s->in[row[i]];
    int64_t parts = in[2].type.dims[0], from_rows = in[0].type.dims[0];
    if (parts % members) return vt_eval_invalid(s->op, "number of parts for these groups");
    for (int64_t p = 0; p < parts; p++) {
      int32_t target = row[p / (parts / members)];
      if (is_elsewhere(s, target)) continue;
      vt_tensor to = s->out[target][0];
      int64_t at[3], to_rows = to.type.dims[0];
      for (int k = 0; k < 3; k++) at[k] = vt_int_load(in[2 + k].type.dtype, in[2 + k].data, p);
      int64_t from_at = at[0], size = at[1], to_at = at[2];
      if (!size) continue;
      if (size < 0 || from_at < 0 || to_at < 0 || size > from_rows || size > to_rows ||
          from_at > from_rows - size || to_at > to_rows - size)
        return vt_eval_invalid(s->op, "offsets and sizes: a part lies outside of its array");
      size_t bytes = (size_t)(vt_type_bytes(to.type) / to_rows);
      memcpy((char *)to.data + (size_t)to_at * bytes,
             (const char *)in[0].data + (size_t)from_at * bytes, (size_t)size * bytes);
    }
  }
  return VT_OK;
}

vt_status vt_collective_pairs(const vt_op *op, int32_t devices, vt_pair_list *out) {
  int32_t partitions, replicas;
  const vt_literal *pairs = vt_attr_literal(op, VT_ATTR_SOURCE_TARGET_PAIRS);
  int64_t rows = pairs && pairs->type.rank == 2 ? pairs->type.dims[0] : 0;
  counts_of(op, devices, &partitions, &replicas);
  bool by_partition = kind_of(op) == IDS_PARTITION;
  int32_t ids = by_partition ? partitions : replicas, others = by_partition ? replicas : partitions;
  *out = (vt_pair_list){0};
  VT_TRY(vt_eval_scratch(rows * others * (int64_t)sizeof *out->pairs, &out->pairs));
  for (int64_t i = 0; i < rows; i++) {
    int64_t from = literal_i64(pairs, 2 * i), to = literal_i64(pairs, 2 * i + 1);
    if (from < 0 || to < 0 || from >= ids || to >= ids) {
      free(out->pairs);
      return vt_eval_invalid(op, "source_target_pairs");
    }
    for (int32_t o = 0; o < others; o++) {
      int64_t a = by_partition ? o * partitions + from : from * partitions + o;
      int64_t b = by_partition ? o * partitions + to : to * partitions + o;
      out->pairs[out->count++] = (vt_pair){(int32_t)a, (int32_t)b};
    }
  }
  return VT_OK;
}

static vt_status run_permute(const vt_op *op, int32_t devices, const vt_tensor *const *in,
                             vt_tensor *const *out) {
  vt_pair_list list;
  VT_TRY(vt_collective_pairs(op, devices, &list));
  for (int32_t d = 0; d < devices; d++) zero(out[d][0]);
  for (int64_t i = 0; i < list.count; i++) {
    vt_tensor from = in[list.pairs[i].from][0], to = out[list.pairs[i].to][0];
    if (vt_type_bytes(from.type)) memcpy(to.data, from.data, (size_t)vt_type_bytes(from.type));
  }
  free(list.pairs);
  return VT_OK;
}

vt_status vt_collective_row(const vt_lane_set *s, int64_t width, const int32_t *row) {
  int64_t root;
  switch ((int)s->op->code) {
  case VT_OP_ALL_GATHER:
  case VT_OP_ALL_TO_ALL:
    return run_exchange(s, width, row);
  case VT_OP_COLLECTIVE_BROADCAST:
    VT_TRY(root_of(s, width, row, &root));
    for (int64_t i = 0; i < width && row[i] >= 0; i++) {
      if (is_elsewhere(s, row[i])) continue;
      vt_tensor from = s->in[row[root]][s->index], to = s->out[row[i]][s->index];
      if (vt_type_bytes(to.type)) memcpy(to.data, from.data, (size_t)vt_type_bytes(to.type));
    }
    return VT_OK;
  case VT_OP_RAGGED_ALL_TO_ALL:
    return run_ragged(s, width, row);
  default:
    return run_reduction(s, width, row);
  }
}

static vt_status run_collective(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                                int32_t devices, const vt_tensor *const *in,
                                vt_tensor *const *out) {
  if (op->code == VT_OP_COLLECTIVE_PERMUTE) return run_permute(op, devices, in, out);
  vt_group_list groups = {0};
  vt_status st = vt_collective_groups(op, devices, &groups);
  bool outside_gets_zeros =
      op->code == VT_OP_COLLECTIVE_BROADCAST || op->code == VT_OP_COLLECTIVE_REDUCE;
  for (uint32_t k = 0; k < op->result_count && !st; k++) {
    vt_lane_set s = {op, state, env, k, in, out, NULL};
    for (int32_t d = 0; d < devices; d++)
      if (outside_gets_zeros)
        zero(out[d][k]);
      else if (op->code == VT_OP_RAGGED_ALL_TO_ALL && vt_type_bytes(out[d][k].type))
        memcpy(out[d][k].data, in[d][1].data, (size_t)vt_type_bytes(out[d][k].type));
    for (int64_t g = 0; g < groups.count && !st; g++)
      if (groups.width && groups.members[g * groups.width] >= 0)
        st = vt_collective_row(&s, groups.width, groups.members + g * groups.width);
  }
  free(groups.members);
  return st;
}

vt_status vt_eval_collective_run(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                                 int32_t devices, const vt_tensor *const *in,
                                 vt_tensor *const *out) {
  const vt_attr *kernel = vt_op_attr(op, VT_ATTR_KERNEL);
  if (kernel && devices >= 1) return kernel->kernel->run(kernel->kernel, op, env, devices, in, out);
  if (devices < 1 || !(vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE))
    return vt_eval_invalid(op, "collective");
  return run_collective(state, env, op, devices, in, out);
}

// A collective on a single device.
vt_status vt_eval_single_collective(const vt_eval_call *call) {
  int64_t devices = (int64_t)(call->env->partition_count ? call->env->partition_count : 1) *
                    (call->env->replica_count ? call->env->replica_count : 1);
  if (devices != 1)
    return vt_eval_refuse(call->op, "a collective over several devices outside lockstep");
  return vt_eval_collective_run(call->state, call->env, call->op, 1, &call->in, &call->out);
}
