// SPDX-License-Identifier: Apache-2.0
// gen_index.c - gather, scatter and related ops with all dimension numbers.
#include "gen_makers.h"

#include <string.h>

// Dimension numbers of a gather, or of a scatter read backwards: collapsed there means inserted
// here, and the result there is the update here.
typedef struct index_plan {
  int64_t offset[8], collapsed[8], batching[8], start_batching[8], map[8], sizes[8];
  uint32_t offset_count, collapsed_count, batching_count, map_count;
  int64_t vector_dim;
  vt_type indices, window; // window: the gather's result
} index_plan;

static bool plan_index(gen *g, vt_type in, index_plan *p) {
  enum { WINDOW, COLLAPSED, BATCHING };
  int role[8];
  *p = (index_plan){0};
  int64_t batch_dims[8], index_dims[8], dims[16];
  int32_t batch_rank = 0, rank = 0;
  if (in.rank < 1 || in.rank > 4) return false;
  int32_t free_batch = (int32_t)gen_below(g, 3);
  for (int32_t d = 0; d < in.rank; d++) {
    role[d] = gen_chance(g, 50) || !in.dims[d] ? WINDOW : gen_chance(g, 75) ? COLLAPSED : BATCHING;
    p->sizes[d] = role[d] == WINDOW ? gen_between(g, in.dims[d] > 0, in.dims[d]) : 1;
    if (role[d] == COLLAPSED) p->collapsed[p->collapsed_count++] = d;
    if (role[d] == BATCHING) {
      p->start_batching[p->batching_count] = batch_rank;
      batch_dims[batch_rank++] = in.dims[d];
      p->batching[p->batching_count++] = d;
    }
    if (role[d] != BATCHING && gen_chance(g, role[d] == COLLAPSED ? 90 : 50))
      p->map[p->map_count++] = d;
  }
  gen_shuffle(g, p->map, p->map_count);
  for (int32_t i = 0; i < free_batch; i++) batch_dims[batch_rank++] = gen_between(g, 1, 6);
  // Dimension of the index vector's components; past the end: one component.
  p->vector_dim =
      p->map_count == 1 && gen_chance(g, 50) ? batch_rank : gen_below(g, batch_rank + 1);
  bool vector = p->map_count != 1 || p->vector_dim < batch_rank || gen_chance(g, 50);
  int32_t index_rank = 0;
  for (int32_t d = 0; d <= batch_rank; d++) {
    if (vector && d == p->vector_dim) index_dims[index_rank++] = p->map_count;
    if (d < batch_rank) index_dims[index_rank++] = batch_dims[d];
  }
  for (uint32_t i = 0; i < p->batching_count; i++)
    if (vector && p->start_batching[i] >= p->vector_dim) p->start_batching[i]++;
  vt_dtype index = gen_index_dtype(g);
  p->indices = gen_type(g, index, index_rank, index_dims);
  // Result: batch dimensions in order, windows at random positions in order.
  int32_t windows = in.rank - (int32_t)(p->collapsed_count + p->batching_count);
  int32_t total = windows + batch_rank, batch = 0, at = 0;
  for (int32_t d = 0; d < total; d++) {
    bool take = at < windows && (batch == batch_rank || gen_below(g, total - d) < windows - at);
    if (take) {
      int32_t seen = -1, from = 0;
      for (; from < in.rank; from++)
        if (role[from] == WINDOW && ++seen == at) break;
      p->offset[p->offset_count++] = d;
      dims[rank++] = p->sizes[from];
      at++;
    } else {
      dims[rank++] = batch_dims[batch++];
    }
  }
  int64_t n = 1;
  for (int32_t d = 0; d < rank; d++) n *= dims[d];
  p->window = gen_type(g, in.dtype, rank, dims);
  return n <= 6000 && rank <= 6;
}

static vt_value *make_indices(gen *g, const index_plan *p, vt_type in) {
  int64_t most = 1;
  for (uint32_t i = 0; i < p->map_count; i++)
    if (in.dims[p->map[i]] > most) most = in.dims[p->map[i]];
  if (gen_chance(g, 10)) return gen_leaf(g, p->indices, VALUE_HARD);
  bool is_signed = vt_dtype_kind_of(p->indices.dtype) == VT_KIND_SIGNED;
  return gen_leaf_range(g, p->indices, is_signed && gen_chance(g, 60) ? -2 : 0,
                        most < 100 ? most : 100);
}

bool gen_gather(gen *g, const gen_row *row) {
  vt_value *x[2];
  x[0] = gen_any(g, row->dtypes, 0);
  index_plan p;
  if (!plan_index(g, x[0]->type, &p)) return false;
  x[1] = make_indices(g, &p, x[0]->type);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &p.window, 0);
  vt_op_set_ints(op, VT_ATTR_OFFSET_DIMS, p.offset_count, p.offset);
  vt_op_set_ints(op, VT_ATTR_COLLAPSED_SLICE_DIMS, p.collapsed_count, p.collapsed);
  vt_op_set_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, p.batching_count, p.batching);
  vt_op_set_ints(op, VT_ATTR_START_INDICES_BATCHING_DIMS, p.batching_count, p.start_batching);
  vt_op_set_ints(op, VT_ATTR_START_INDEX_MAP, p.map_count, p.map);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, p.vector_dim);
  vt_op_set_ints(op, VT_ATTR_SLICE_SIZES, (uint32_t)x[0]->type.rank, p.sizes);
  vt_op_set_i64(op, VT_ATTR_INDICES_ARE_SORTED, 0);
  gen_done(g, op, false, true);
  return true;
}

// The body: (current, update) -> combination. Assignment only where no two updates overlap.
static vt_func *scatter_body(gen *g, vt_dtype dtype, bool assign, vt_opcode *out_code) {
  static const vt_opcode numbers[] = {VT_OP_ADD, VT_OP_ADD, VT_OP_ADD, VT_OP_MAXIMUM,
                                      VT_OP_MINIMUM};
  static const vt_opcode integers[] = {VT_OP_ADD, VT_OP_MULTIPLY, VT_OP_AND, VT_OP_OR, VT_OP_XOR};
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  if (assign) {
    vt_func *body = vt_func_create(g->module, "");
    for (int i = 0; i < 2; i++) vt_func_add_param(body, (vt_type){dtype, 0, NULL});
    vt_func_set_returns(body, 1, &body->params[1]);
    *out_code = VT_OP_INVALID;
    return body;
  }
  *out_code = kind == VT_KIND_COMPLEX                      ? VT_OP_ADD
              : kind == VT_KIND_BOOL                       ? integers[2 + gen_below(g, 3)]
              : kind == VT_KIND_FLOAT || gen_chance(g, 50) ? numbers[gen_below(g, 5)]
                                                           : integers[gen_below(g, 5)];
  return gen_pair_region(g, *out_code, dtype);
}

bool gen_scatter(gen *g, const gen_row *row) {
  vt_value *x[3];
  x[0] = gen_any(g, row->dtypes, PICK_EXACT);
  index_plan p;
  if (!plan_index(g, x[0]->type, &p)) return false;
  bool alone = vt_type_elements(p.indices) <= p.map_count && !p.batching_count;
  x[1] = make_indices(g, &p, x[0]->type);
  x[2] = gen_of(g, p.window, PICK_EXACT);
  vt_opcode code;
  vt_func *body = scatter_body(g, x[0]->type.dtype, alone && gen_chance(g, 60), &code);
  vt_op *op = gen_op(g, row->code, 3, x, 1, &x[0]->type, 1);
  op->regions[0] = body;
  vt_op_set_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, p.offset_count, p.offset);
  vt_op_set_ints(op, VT_ATTR_INSERTED_WINDOW_DIMS, p.collapsed_count, p.collapsed);
  vt_op_set_ints(op, VT_ATTR_INPUT_BATCHING_DIMS, p.batching_count, p.batching);
  vt_op_set_ints(op, VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, p.batching_count, p.start_batching);
  vt_op_set_ints(op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, p.map_count, p.map);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, p.vector_dim);
  vt_op_set_i64(op, VT_ATTR_INDICES_ARE_SORTED, 0);
  vt_op_set_i64(op, VT_ATTR_UNIQUE_INDICES, 0);
  gen_done(g, op, code == VT_OP_ADD, code == VT_OP_INVALID);
  return true;
}

bool gen_torch_index_select(gen *g, const gen_row *row) {
  vt_value *x[2];
  x[0] = gen_any(g, row->dtypes, 0);
  vt_type in = x[0]->type;
  if (!in.rank || in.rank > 3) return false;
  int64_t dim = gen_below(g, in.rank), batch = gen_below(g, dim + 1), dims[16], index[8];
  int32_t rank = 0, index_rank = (int32_t)(batch + gen_below(g, 3));
  if (!in.dims[dim]) return false;
  for (int32_t d = 0; d < index_rank; d++) index[d] = d < batch ? in.dims[d] : gen_between(g, 1, 5);
  x[1] = gen_leaf_range(g, gen_type(g, gen_dtype(g, T(S32) | T(S64)), index_rank, index), 0,
                        in.dims[dim] - 1);
  for (int32_t d = 0; d < dim; d++) dims[rank++] = in.dims[d];
  for (int32_t d = (int32_t)batch; d < index_rank; d++) dims[rank++] = index[d];
  for (int32_t d = (int32_t)dim + 1; d < in.rank; d++) dims[rank++] = in.dims[d];
  vt_type type = gen_type(g, in.dtype, rank, dims);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 0);
  vt_op_set_i64(op, VT_ATTR_DIM, dim);
  vt_op_set_i64(op, VT_ATTR_BATCH_DIMS, batch);
  gen_done(g, op, false, true);
  return true;
}
