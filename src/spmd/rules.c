// SPDX-License-Identifier: Apache-2.0
// rules.c - the factors of each op: which dimensions of its operands and results correspond.
// Follows Shardy's registry of sharding rules; fixtures/expected.txt holds XLA's own answers.
#include <string.h>

#include "spmd/graph.h"

enum { MAX_FACTORS = 250, MAX_ENTRIES = 64 };

typedef struct tensor_entries {
  uint8_t count;
  vt_dim_factor entries[MAX_ENTRIES];
} tensor_entries;

// A rule under construction. Tensors are the op's own operands, then its results.
typedef struct builder {
  vt_graph *graph;
  const vt_op *op;
  const uint32_t *nodes;
  uint32_t operands, tensors;
  uint32_t factor_count;
  int64_t sizes[MAX_FACTORS];
  tensor_entries *lists;
} builder;

static vt_type type_of(const builder *b, uint32_t tensor) {
  return b->graph->nodes.data[b->nodes[tensor]].type;
}

static int add_factor(builder *b, int64_t size) {
  if (b->factor_count == MAX_FACTORS) return -1;
  b->sizes[b->factor_count] = size;
  return (int)b->factor_count++;
}

static void add_entry(builder *b, uint32_t tensor, int64_t dim, int factor) {
  tensor_entries *list = &b->lists[tensor];
  if (factor < 0 || list->count == MAX_ENTRIES) return;
  list->entries[list->count++] = (vt_dim_factor){(uint8_t)dim, (uint8_t)factor};
}

// Ties dimension `d` of every tensor that has it with a size above `smallest`.
static void tie_dim(builder *b, uint32_t first, uint32_t end, int64_t d) {
  int64_t size = 0;
  for (uint32_t t = first; t < end; t++)
    if (d < type_of(b, t).rank && type_of(b, t).dims[d] > size) size = type_of(b, t).dims[d];
  int factor = add_factor(b, size);
  for (uint32_t t = first; t < end; t++)
    if (d < type_of(b, t).rank) add_entry(b, t, d, factor);
}

// A factor shared by one dimension each of two tensors.
static void pair(builder *b, uint32_t t, int64_t d, uint32_t u, int64_t e) {
  int64_t x = type_of(b, t).dims[d], y = type_of(b, u).dims[e];
  int factor = add_factor(b, x > y ? x : y);
  add_entry(b, t, d, factor);
  add_entry(b, u, e, factor);
}

static bool in_list(const int64_t *list, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

// Ties all tensors of the result's rank, dimension by dimension; scalar operands have none.
static void pointwise(builder *b) {
  int32_t rank = type_of(b, b->operands).rank;
  for (int32_t d = 0; d < rank; d++) {
    int factor = add_factor(b, type_of(b, b->operands).dims[d]);
    for (uint32_t t = 0; t < b->tensors; t++)
      if (type_of(b, t).rank == rank) add_entry(b, t, d, factor);
  }
}

// Equal dimensions only: anything else along a dimension needs all of it.
static void same_sizes(builder *b, uint32_t t, uint32_t u) {
  for (int32_t d = 0; d < type_of(b, t).rank && d < type_of(b, u).rank; d++)
    if (type_of(b, t).dims[d] == type_of(b, u).dims[d]) pair(b, t, d, u, d);
}

static void batch_dims(builder *b, int32_t inner) {
  int32_t rank = type_of(b, b->operands).rank - inner;
  for (int32_t d = 0; d < rank; d++) tie_dim(b, 0, b->tensors, d);
}

static void transpose(builder *b) {
  const int64_t *p = vt_attr_ints(b->op, VT_ATTR_PERMUTATION, NULL);
  for (int32_t d = 0; d < type_of(b, 1).rank; d++) pair(b, 0, p[d], 1, d);
}

static void broadcast_in_dim(builder *b) {
  const int64_t *to = vt_attr_ints(b->op, VT_ATTR_BROADCAST_DIMENSIONS, NULL);
  for (int32_t d = 0; d < type_of(b, 0).rank; d++)
    if (type_of(b, 0).dims[d] == type_of(b, 1).dims[to[d]]) pair(b, 0, d, 1, to[d]);
}

// Walks both shapes from the major end; a factor ends where the products are equal.
static void reshape(builder *b) {
  vt_type in = type_of(b, 0), out = type_of(b, 1);
  int32_t i = 0, o = 0;
  int64_t in_left = 1, out_left = 1;
  for (;;) {
    while (in_left == 1 && i < in.rank) in_left = in.dims[i++];
    while (out_left == 1 && o < out.rank) out_left = out.dims[o++];
    if (in_left <= 1 || out_left <= 1) return;
    int64_t a = in_left, g = out_left;
    while (g) {
      int64_t r = a % g;
      a = g;
      g = r;
    }
    // A common divisor is a factor only if it is the whole of one side; otherwise the parts do not
    // align.
    bool aligned = a == in_left || a == out_left;
    int factor = add_factor(b, a);
    if (a > 1) {
      add_entry(b, 0, i - 1, factor);
      add_entry(b, 1, o - 1, factor);
    }
    if (!aligned) return;
    in_left /= a;
    out_left /= a;
  }
}

static void dot_general(builder *b) {
  static const vt_attr_key keys[2][2] = {
      {VT_ATTR_LHS_BATCHING_DIMENSIONS, VT_ATTR_RHS_BATCHING_DIMENSIONS},
      {VT_ATTR_LHS_CONTRACTING_DIMENSIONS, VT_ATTR_RHS_CONTRACTING_DIMENSIONS}};
  const int64_t *dims[2][2];
  uint32_t count[2];
  int64_t out = 0;
  for (int k = 0; k < 2; k++)
    for (int o = 0; o < 2; o++) dims[k][o] = vt_attr_ints(b->op, keys[k][o], &count[k]);
  for (uint32_t i = 0; i < count[0]; i++) {
    pair(b, 0, dims[0][0][i], 2, out);
    add_entry(b, 1, dims[0][1][i], (int)b->factor_count - 1);
    out++;
  }
  for (uint32_t o = 0; o < 2; o++)
    for (int32_t d = 0; d < type_of(b, o).rank; d++)
      if (!in_list(dims[0][o], count[0], d) && !in_list(dims[1][o], count[1], d))
        pair(b, o, d, 2, out++);
  for (uint32_t i = 0; i < count[1]; i++) pair(b, 0, dims[1][0][i], 1, dims[1][1][i]);
}

static void dot(builder *b) {
  int32_t lhs = type_of(b, 0).rank, rhs = type_of(b, 1).rank, out = 0;
  if (lhs == 2) pair(b, 0, 0, 2, out++);
  if (rhs == 2) pair(b, 1, 1, 2, out++);
  pair(b, 0, lhs - 1, 1, 0);
}

static void convolution(builder *b) {
  const vt_op *op = b->op;
  uint32_t spatial;
  const int64_t *in = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &spatial);
  const int64_t *out = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  bool grouped = vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT) > 1 ||
                 vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT) > 1;
  if (vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT) == 1)
    pair(b, 0, vt_attr_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION), 2,
         vt_attr_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION));
  for (uint32_t i = 0; i < spatial; i++) pair(b, 0, in[i], 2, out[i]);
  if (grouped) return;
  pair(b, 1, vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION), 2,
       vt_attr_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION));
  pair(b, 0, vt_attr_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION), 1,
       vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION));
}

// Inputs (and results) alike; results lack the reduced dimensions.
static void reduce(builder *b) {
  uint32_t n = b->operands / 2, removed;
  const int64_t *dims = vt_attr_ints(b->op, VT_ATTR_DIMENSIONS, &removed);
  int32_t out = 0;
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    int factor = add_factor(b, type_of(b, 0).dims[d]);
    bool kept = !in_list(dims, removed, d);
    for (uint32_t t = 0; t < n; t++) add_entry(b, t, d, factor);
    for (uint32_t t = b->operands; kept && t < b->tensors; t++) add_entry(b, t, out, factor);
    out += kept;
  }
}

static void reduce_window(builder *b) {
  uint32_t n = b->operands / 2;
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    int factor = add_factor(b, type_of(b, 0).dims[d]);
    for (uint32_t t = 0; t < n; t++) add_entry(b, t, d, factor);
    for (uint32_t t = b->operands; t < b->tensors; t++) add_entry(b, t, d, factor);
  }
}

static void gather(builder *b) {
  const vt_op *op = b->op;
  uint32_t offset_n, collapsed_n, batching_n, mapped_n;
  const int64_t *offset = vt_attr_ints(op, VT_ATTR_OFFSET_DIMS, &offset_n);
  const int64_t *collapsed = vt_attr_ints(op, VT_ATTR_COLLAPSED_SLICE_DIMS, &collapsed_n);
  const int64_t *batching = vt_attr_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, &batching_n);
  const int64_t *index_batching = vt_attr_ints(op, VT_ATTR_START_INDICES_BATCHING_DIMS, NULL);
  const int64_t *sizes = vt_attr_ints(op, VT_ATTR_SLICE_SIZES, &mapped_n);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  uint32_t at = 0;
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    if (in_list(collapsed, collapsed_n, d) || in_list(batching, batching_n, d)) continue;
    if (at < offset_n && sizes[d] == type_of(b, 0).dims[d]) pair(b, 0, d, 2, offset[at]);
    at++;
  }
  int32_t out = 0;
  for (int32_t d = 0; d < type_of(b, 1).rank; d++) {
    if (d == vector_dim) continue;
    while (in_list(offset, offset_n, out)) out++;
    if (out >= type_of(b, 2).rank) return;
    pair(b, 1, d, 2, out++);
    for (uint32_t i = 0; i < batching_n; i++)
      if (index_batching[i] == d) add_entry(b, 0, batching[i], (int)b->factor_count - 1);
  }
}

static void scatter(builder *b) {
  const vt_op *op = b->op;
  uint32_t n = (b->operands - 1) / 2, window_n, inserted_n, batching_n, at = 0;
  const int64_t *window = vt_attr_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, &window_n);
  const int64_t *inserted = vt_attr_ints(op, VT_ATTR_INSERTED_WINDOW_DIMS, &inserted_n);
  const int64_t *batching = vt_attr_ints(op, VT_ATTR_INPUT_BATCHING_DIMS, &batching_n);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  vt_type input = type_of(b, 0), updates = type_of(b, n + 1);
  for (int32_t d = 0; d < input.rank; d++) {
    int factor = add_factor(b, input.dims[d]);
    for (uint32_t t = 0; t < n; t++) add_entry(b, t, d, factor);
    for (uint32_t t = b->operands; t < b->tensors; t++) add_entry(b, t, d, factor);
    if (in_list(inserted, inserted_n, d) || in_list(batching, batching_n, d)) continue;
    if (at < window_n && updates.dims[window[at]] == input.dims[d])
      for (uint32_t t = n + 1; t < b->operands; t++) add_entry(b, t, window[at], factor);
    at++;
  }
  int32_t out = 0;
  for (int32_t d = 0; d < type_of(b, n).rank; d++) {
    if (d == vector_dim) continue;
    while (in_list(window, window_n, out)) out++;
    if (out >= updates.rank) return;
    int factor = add_factor(b, updates.dims[out]);
    add_entry(b, n, d, factor);
    for (uint32_t t = n + 1; t < b->operands; t++) add_entry(b, t, out, factor);
    out++;
  }
}

// Operand and result match; so does the update where it covers the dimension.
static void dynamic_update_slice(builder *b) {
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    pair(b, 0, d, b->operands, d);
    if (type_of(b, 1).dims[d] == type_of(b, 0).dims[d])
      add_entry(b, 1, d, (int)b->factor_count - 1);
  }
}

// The statistics belong to the feature dimension.
static void batch_norm(builder *b) {
  int64_t feature = vt_attr_i64(b->op, VT_ATTR_FEATURE_INDEX);
  vt_type input = type_of(b, 0);
  for (int32_t d = 0; d < input.rank; d++) {
    int factor = add_factor(b, input.dims[d]);
    for (uint32_t t = 0; t < b->tensors; t++) {
      if (vt_type_same_dims(type_of(b, t), input))
        add_entry(b, t, d, factor);
      else if (d == feature && type_of(b, t).rank == 1)
        add_entry(b, t, 0, factor);
    }
  }
}

static void broadcast(builder *b) {
  int32_t first = type_of(b, 1).rank - type_of(b, 0).rank;
  for (int32_t d = type_of(b, 0).rank; d-- > 0;) pair(b, 0, d, 1, first + d);
}

static void whole_dims(builder *b) {
  batch_dims(b, 0);
}

static void matrices(builder *b) {
  batch_dims(b, 2);
}

static void pad(builder *b) {
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) pair(b, 0, d, 2, d);
}

static void bitcast(builder *b) {
  same_sizes(b, 0, 1);
}

static void dynamic_slice(builder *b) {
  same_sizes(b, 0, b->operands);
}

static void select_and_scatter(builder *b) {
  same_sizes(b, 0, 3);
  same_sizes(b, 0, 1);
}

// An op without a rule.
#define none NULL
static void (*const rules[VT_OP_COUNT])(builder *b) = {
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, emitter,   \
           linear, sharding, ...)                                                                  \
  [VT_OP_##name] = sharding,
#include "ir/ops.def"
#undef OP
};
#undef none

// False when there is no rule for the op.
static bool describe(builder *b, bool *out_pass_through) {
  void (*rule)(builder *) = vt_op_is_marker(b->op) ? pointwise : rules[b->op->code];
  *out_pass_through = rule == pointwise || rule == transpose || rule == reshape;
  if (rule) rule(b);
  if (b->op->code == VT_OP_PROPAGATION_BARRIER)
    return vt_attr_i64(b->op, VT_ATTR_ALLOWED_DIRECTION) == 3;
  return rule != NULL;
}

static void add_rule(builder *b, bool pass_through) {
  vt_arena *arena = b->graph->arena;
  uint32_t total = 0, at = 0;
  for (uint32_t t = 0; t < b->tensors; t++) total += b->lists[t].count;
  uint32_t *nodes = VT_NEW_ARRAY(arena, uint32_t, b->tensors);
  int64_t *sizes = VT_NEW_ARRAY(arena, int64_t, b->factor_count);
  uint8_t *counts = VT_NEW_ARRAY(arena, uint8_t, b->tensors);
  vt_dim_factor *entries = VT_NEW_ARRAY(arena, vt_dim_factor, total);
  for (uint32_t t = 0; t < b->tensors; t++) {
    nodes[t] = b->nodes[t];
    counts[t] = b->lists[t].count;
    for (uint32_t i = 0; i < counts[t]; i++) entries[at++] = b->lists[t].entries[i];
  }
  for (uint32_t f = 0; f < b->factor_count; f++) sizes[f] = b->sizes[f];
  vt_rule rule = {pass_through, b->tensors, nodes,   (uint8_t)b->factor_count,
                  sizes,        counts,     entries, 0};
  vt_array_push_in(arena, &b->graph->rules, rule);
}

void vt_graph_add_op(vt_graph *graph, const vt_op *op, const uint32_t *nodes) {
  builder b = {.graph = graph, .op = op, .nodes = nodes, .operands = vt_op_own_operands(op)};
  vt_arena scratch = {0};
  bool pass_through;
  if (graph->too_large) return;
  b.tensors = b.operands + op->result_count;
  b.lists = VT_NEW_ARRAY(&scratch, tensor_entries, b.tensors);
  if (op->result_count && describe(&b, &pass_through) && b.factor_count) add_rule(&b, pass_through);
  vt_arena_free(&scratch);
}

void vt_graph_tie(vt_graph *graph, uint32_t count, const uint32_t *nodes) {
  vt_arena scratch = {0};
  if (graph->too_large) return;
  builder b = {.graph = graph, .nodes = nodes, .tensors = count};
  b.lists = VT_NEW_ARRAY(&scratch, tensor_entries, count);
  for (int32_t d = 0; d < type_of(&b, 0).rank; d++) tie_dim(&b, 0, count, d);
  if (b.factor_count) add_rule(&b, true);
  vt_arena_free(&scratch);
}
