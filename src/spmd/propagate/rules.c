// SPDX-License-Identifier: Apache-2.0
// rules.c - the factors of each op: which dimensions of its operands and results correspond, and
// what it takes to cut them. Follows Shardy's registry of sharding rules; fixtures hold XLA's
// answers.
#include <string.h>

#include "spmd/propagate/graph.h"

enum { MAX_FACTORS = 250, NO_DIM = -1 };

typedef struct entry {
  uint32_t tensor;
  vt_dim_factor at;
} entry;

// A rule under construction. Tensors are the op's own operands, then its results.
typedef struct builder {
  vt_arena *arena;
  const vt_op *op;
  const vt_type *types;
  uint32_t operands, tensors;
  uint64_t *mapped; // per tensor: which dimensions have a factor, bit by bit
  VT_ARRAY(vt_factor) factors;
  VT_ARRAY(entry) entries;
} builder;

static vt_type type_of(const builder *b, uint32_t tensor) {
  return b->types[tensor];
}

static vt_type result_type(const builder *b) {
  return b->types[b->operands];
}

static int add_kind(builder *b, int64_t size, vt_factor_kind kind, bool blocked) {
  if (b->factors.size == MAX_FACTORS) return -1;
  vt_array_push_in(b->arena, &b->factors, ((vt_factor){size, (uint8_t)kind, blocked}));
  return (int)b->factors.size - 1;
}

static int add_factor(builder *b, int64_t size) {
  return add_kind(b, size, VT_FACTOR_PASS, false);
}

static bool has_factor(const builder *b, uint32_t tensor, int64_t dim) {
  return b->mapped[tensor] >> dim & 1;
}

// A dimension that has a factor gets no more of size 1.
static void map_dim(builder *b, uint32_t tensor, int64_t dim, int factor) {
  if (factor < 0 || dim == NO_DIM) return;
  if (b->factors.data[factor].size == 1 && has_factor(b, tensor, dim)) return;
  entry e = {tensor, {(uint8_t)dim, (uint8_t)factor}};
  vt_array_push_in(b->arena, &b->entries, e);
  b->mapped[tensor] |= (uint64_t)1 << dim;
}

static void map_operands(builder *b, uint32_t first, uint32_t end, int64_t dim, int factor) {
  for (uint32_t t = first; t < end; t++)
    if (dim < type_of(b, t).rank) map_dim(b, t, dim, factor);
}

// The dimension of every tensor that has it.
static void map_all(builder *b, int64_t dim, int factor) {
  map_operands(b, 0, b->tensors, dim, factor);
}

static void map_results(builder *b, int64_t dim, int factor) {
  map_operands(b, b->operands, b->tensors, dim, factor);
}

// A factor shared by one dimension each of two tensors; of the size of the first.
static int pair(builder *b, uint32_t t, int64_t d, uint32_t u, int64_t e) {
  int factor = add_factor(b, type_of(b, t).dims[d]);
  map_dim(b, t, d, factor);
  map_dim(b, u, e, factor);
  return factor;
}

static bool in_list(const int64_t *list, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

static void pointwise(builder *b) {
  for (int32_t d = 0; d < result_type(b).rank; d++)
    map_all(b, d, add_factor(b, result_type(b).dims[d]));
}

// Dimensions of one size correspond; others too, but as `kind`.
static void same_or(builder *b, vt_factor_kind kind, bool blocked) {
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    int64_t in = type_of(b, 0).dims[d];
    bool same = in == result_type(b).dims[d];
    map_all(b, d, same ? add_factor(b, in) : add_kind(b, in, kind, blocked));
  }
}

// ---- moves --------------------------------------------------------------------------------------

bool vt_spmd_is_view(const vt_op *op) {
  if (op->code != VT_OP_BROADCAST_IN_DIM)
    return op->code == VT_OP_RESHAPE || op->code == VT_OP_TRANSPOSE;
  uint32_t count;
  const int64_t *to = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  for (uint32_t i = 1; i < count; i++)
    if (to[i] < to[i - 1]) return false;
  return count && vt_type_elements(op->operands[0]->type) == vt_type_elements(op->results[0].type);
}

static void transpose(builder *b) {
  const int64_t *p = vt_attr_ints(b->op, VT_ATTR_PERMUTATION, NULL);
  for (int32_t d = 0; d < type_of(b, 1).rank; d++) pair(b, 0, p[d], 1, d);
}

static void broadcast(builder *b) {
  int32_t first = type_of(b, 1).rank - type_of(b, 0).rank;
  for (int32_t d = type_of(b, 0).rank; d-- > 0;) pair(b, 0, d, 1, first + d);
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

// One side of a reshape: the next dimension, the product of the sizes up to it, and of the factors.
typedef struct side {
  uint32_t tensor;
  int32_t dim;
  int64_t sizes, factors;
} side;

static void take(builder *b, side *s, int factor, int64_t size) {
  map_dim(b, s->tensor, s->dim, factor);
  s->factors *= size;
}

// The factor of the side that is behind, so that both meet again as soon as possible.
static int64_t catch_up(int64_t left, int64_t common, const side *behind, const side *ahead) {
  int64_t missing = ahead->factors / behind->factors;
  if (ahead->factors % behind->factors == 0 && left % missing == 0) return missing;
  return left > common ? left / common : left;
}

static bool skip_ones(builder *b, side *s) {
  if (s->dim >= type_of(b, s->tensor).rank || type_of(b, s->tensor).dims[s->dim] != 1) return false;
  map_dim(b, s->tensor, s->dim++, add_factor(b, 1));
  return true;
}

static void begin_dim(const builder *b, side *s) {
  if (s->dim < type_of(b, s->tensor).rank && s->sizes == s->factors)
    s->sizes *= type_of(b, s->tensor).dims[s->dim];
}

static void next_dim(const builder *b, side *s) {
  if (s->dim < type_of(b, s->tensor).rank && s->sizes == s->factors) s->dim++;
}

// Walks both shapes from the major end. Common divisors are common factors as long as the products
// so far are equal.
static void reshape(builder *b) {
  side in = {0, 0, 1, 1}, out = {1, 0, 1, 1};
  if (!vt_type_elements(type_of(b, 0))) return;
  while (in.dim < type_of(b, 0).rank || out.dim < type_of(b, 1).rank) {
    if (skip_ones(b, &in) || skip_ones(b, &out)) continue;
    begin_dim(b, &in);
    begin_dim(b, &out);
    int64_t i = in.sizes / in.factors, o = out.sizes / out.factors, common = gcd(i, o);
    if (in.factors == out.factors && common > 1) {
      int factor = add_factor(b, common);
      take(b, &in, factor, common);
      take(b, &out, factor, common);
    } else if (in.factors == out.factors) {
      take(b, &in, add_factor(b, i), i);
      take(b, &out, add_factor(b, o), o);
    } else if (in.factors < out.factors) {
      i = catch_up(i, common, &in, &out);
      take(b, &in, add_factor(b, i), i);
    } else {
      o = catch_up(o, common, &out, &in);
      take(b, &out, add_factor(b, o), o);
    }
    next_dim(b, &in);
    next_dim(b, &out);
  }
}

// A broadcast that only adds dimensions of size 1 is a reshape. XLA does one that lets a dimension
// of size 1 grow by a reshape too, which drops all such dimensions: they are new in the result.
static void broadcast_in_dim(builder *b) {
  uint32_t count;
  const int64_t *to = vt_attr_ints(b->op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  vt_type in = type_of(b, 0), out = type_of(b, 1);
  bool grows = false;
  if (vt_spmd_is_view(b->op)) {
    reshape(b);
    return;
  }
  for (uint32_t i = 0; i < count; i++) grows = grows || in.dims[i] != out.dims[to[i]];
  for (int32_t d = 0; d < out.rank; d++) {
    int factor = add_factor(b, out.dims[d]);
    map_dim(b, 1, d, factor);
    for (uint32_t i = 0; i < count; i++)
      if (to[i] == d && in.dims[i] == out.dims[d] && !(grows && in.dims[i] == 1))
        map_dim(b, 0, i, factor);
  }
}

static void bitcast(builder *b) {
  int32_t in = type_of(b, 0).rank, out = type_of(b, 1).rank;
  for (int32_t d = 0; d < in && d < out; d++) map_all(b, d, add_factor(b, type_of(b, 0).dims[d]));
}

static void reverse(builder *b) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(b->op, VT_ATTR_DIMENSIONS, &count);
  for (int32_t d = 0; d < result_type(b).rank; d++) {
    vt_factor_kind kind = in_list(dims, count, d) ? VT_FACTOR_PERMUTE : VT_FACTOR_PASS;
    map_all(b, d, add_kind(b, result_type(b).dims[d], kind, false));
  }
}

// The first elements of a sort that is one op of the program with it (its location is the same
// one): chlo.top_k.
static bool is_top_k(const vt_op *op) {
  const vt_op *sort = op->operands[0]->op;
  return op->code == VT_OP_SLICE && sort && sort->code == VT_OP_SORT && sort->loc == op->loc &&
         op->loc != &vt_loc_unknown;
}

// Slices and paddings at known places shift elements; they propagate even so.
static void shifted(builder *b) {
  if (is_top_k(b->op))
    same_or(b, VT_FACTOR_REPLICATE, true);
  else
    same_or(b, VT_FACTOR_PERMUTE, false);
}

static const vt_value *before_slice(const vt_value *value) {
  return value->op && value->op->code == VT_OP_SLICE ? value->op->operands[0] : value;
}

// Rolls (all operands are slices, or parts of one array) permute elements.
static bool is_roll(const vt_op *op) {
  uint32_t slices = 0, same = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    slices += op->operands[i]->op && op->operands[i]->op->code == VT_OP_SLICE;
    same += before_slice(op->operands[i]) == before_slice(op->operands[0]);
  }
  return slices == op->operand_count || (same == op->operand_count && slices);
}

static void concatenate(builder *b) {
  int64_t joined = vt_attr_i64(b->op, VT_ATTR_DIMENSION);
  vt_factor_kind kind = is_roll(b->op) ? VT_FACTOR_PERMUTE : VT_FACTOR_REPLICATE;
  for (int32_t d = 0; d < result_type(b).rank; d++)
    map_all(b, d, add_kind(b, result_type(b).dims[d], d == joined ? kind : VT_FACTOR_PASS, false));
}

static void dynamic_slice(builder *b) {
  same_or(b, VT_FACTOR_REPLICATE, true);
}

// The update is needed whole where it covers a part; that it is cut says nothing about the array.
static void dynamic_update_slice(builder *b) {
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    int64_t whole = type_of(b, 0).dims[d], part = type_of(b, 1).dims[d];
    int factor = add_factor(b, whole);
    map_dim(b, 0, d, factor);
    if (part == whole) map_dim(b, 1, d, factor);
    map_results(b, d, factor);
    if (part != whole) map_dim(b, 1, d, add_kind(b, part, VT_FACTOR_REPLICATE, false));
  }
}

// ---- contractions -------------------------------------------------------------------------------

static void dot_general(builder *b) {
  static const vt_attr_key keys[2][2] = {
      {VT_ATTR_LHS_BATCHING_DIMENSIONS, VT_ATTR_RHS_BATCHING_DIMENSIONS},
      {VT_ATTR_LHS_CONTRACTING_DIMENSIONS, VT_ATTR_RHS_CONTRACTING_DIMENSIONS}};
  const int64_t *dims[2][2];
  uint32_t count[2];
  int64_t out = 0;
  for (int k = 0; k < 2; k++)
    for (int o = 0; o < 2; o++) dims[k][o] = vt_attr_ints(b->op, keys[k][o], &count[k]);
  for (uint32_t i = 0; i < count[0]; i++)
    map_dim(b, 2, out++, pair(b, 0, dims[0][0][i], 1, dims[0][1][i]));
  for (uint32_t o = 0; o < 2; o++)
    for (int32_t d = 0; d < type_of(b, o).rank; d++)
      if (!in_list(dims[0][o], count[0], d) && !in_list(dims[1][o], count[1], d))
        pair(b, o, d, 2, out++);
  for (uint32_t i = 0; i < count[1]; i++) {
    int factor = pair(b, 0, dims[1][0][i], 1, dims[1][1][i]);
    if (factor >= 0) b->factors.data[factor].kind = VT_FACTOR_REDUCE;
  }
}

static void dot(builder *b) {
  int32_t lhs = type_of(b, 0).rank, rhs = type_of(b, 1).rank, out = 0;
  if (lhs == 2) pair(b, 0, 0, 2, out++);
  if (rhs == 2) pair(b, 1, 1, 2, out++);
  int factor = pair(b, 0, lhs - 1, 1, 0);
  if (factor >= 0) b->factors.data[factor].kind = VT_FACTOR_REDUCE;
}

static void map_three(builder *b, int64_t lhs, int64_t rhs, int64_t out, int factor) {
  map_dim(b, 0, lhs, factor);
  map_dim(b, 1, rhs, factor);
  map_dim(b, 2, out, factor);
}

// The positions of the window (the result's) and those within it (the kernel's) are factors of the
// input's dimension, the larger one major.
static void spatial_dim(builder *b, int64_t in, int64_t kernel, int64_t out) {
  int64_t windows = type_of(b, 2).dims[out], window = type_of(b, 1).dims[kernel];
  int64_t left = type_of(b, 0).dims[in];
  for (int k = 0; k < 2; k++) {
    bool contracts = (windows >= window) == (k == 1);
    int64_t size = contracts ? window : windows;
    if (size > left) size = left;
    if (size <= 1) continue;
    int factor = add_kind(b, size, contracts ? VT_FACTOR_REDUCE : VT_FACTOR_PERMUTE, false);
    map_three(b, in, contracts ? kernel : NO_DIM, contracts ? NO_DIM : out, factor);
    left /= size;
  }
}

static void convolution(builder *b) {
  const vt_op *op = b->op;
  uint32_t spatial;
  const int64_t *in = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &spatial);
  const int64_t *kernel = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const int64_t *out = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  int64_t batch = vt_attr_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION);
  int64_t feature = vt_attr_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION);
  int64_t kernel_in = vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION);
  int64_t kernel_out = vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION);
  int64_t out_batch = vt_attr_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION);
  int64_t out_feature = vt_attr_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION);
  int64_t batch_groups = vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT);
  int64_t feature_groups = vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT);
  if (batch_groups > 1) map_three(b, batch, kernel_out, out_feature, add_factor(b, batch_groups));
  map_three(b, batch, NO_DIM, out_batch, add_factor(b, type_of(b, 2).dims[out_batch]));
  for (uint32_t i = 0; i < spatial; i++) spatial_dim(b, in[i], kernel[i], out[i]);
  if (feature_groups > 1)
    map_three(b, feature, kernel_out, out_feature, add_factor(b, feature_groups));
  map_three(b, feature, kernel_in, NO_DIM,
            add_kind(b, type_of(b, 1).dims[kernel_in], VT_FACTOR_REDUCE, false));
  int64_t per_group = type_of(b, 2).dims[out_feature] / (batch_groups * feature_groups);
  if (per_group > 1) map_three(b, NO_DIM, kernel_out, out_feature, add_factor(b, per_group));
}

// ---- reductions, windows, sorting ---------------------------------------------------------------

// Inputs (and results) alike; results lack the reduced dimensions.
static void reduce(builder *b) {
  uint32_t n = b->operands / 2, removed;
  const int64_t *dims = vt_attr_ints(b->op, VT_ATTR_DIMENSIONS, &removed);
  int32_t out = 0;
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    bool kept = !in_list(dims, removed, d);
    int factor =
        add_kind(b, type_of(b, 0).dims[d], kept ? VT_FACTOR_PASS : VT_FACTOR_REDUCE, false);
    map_operands(b, 0, n, d, factor);
    if (kept) map_results(b, out++, factor);
  }
}

// Whether each window along the dimension is one element.
static bool is_trivial_window(const vt_op *op, int32_t d) {
  uint32_t pads, sizes, strides;
  const int64_t *padding =
      vt_op_attr(op, VT_ATTR_PADDING) ? vt_attr_ints(op, VT_ATTR_PADDING, &pads) : (pads = 0, NULL);
  const int64_t *size = vt_op_attr(op, VT_ATTR_WINDOW_DIMENSIONS)
                            ? vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, &sizes)
                            : (sizes = 0, NULL);
  const int64_t *stride = vt_op_attr(op, VT_ATTR_WINDOW_STRIDES)
                              ? vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, &strides)
                              : (strides = 0, NULL);
  if (pads && (padding[2 * d] || padding[2 * d + 1])) return false;
  return (!sizes || size[d] == 1) && (!strides || stride[d] == 1);
}

// A dimension is cut by windows, so its factor is their number.
static void reduce_window(builder *b) {
  uint32_t n = b->operands / 2;
  for (int32_t d = 0; d < result_type(b).rank; d++) {
    vt_factor_kind kind = is_trivial_window(b->op, d) ? VT_FACTOR_PASS : VT_FACTOR_PERMUTE;
    int factor = add_kind(b, result_type(b).dims[d], kind, false);
    map_operands(b, 0, n, d, factor);
    map_results(b, d, factor);
  }
}

static void select_and_scatter(builder *b) {
  for (int32_t d = 0; d < result_type(b).rank; d++) {
    int64_t size = result_type(b).dims[d];
    if (is_trivial_window(b->op, d)) {
      map_all(b, d, add_factor(b, size));
      continue;
    }
    map_dim(b, 1, d, add_kind(b, type_of(b, 1).dims[d], VT_FACTOR_REPLICATE, false));
    int factor = add_kind(b, size, VT_FACTOR_PERMUTE, false);
    map_dim(b, 0, d, factor);
    map_dim(b, 3, d, factor);
  }
}

// Nothing propagates along the only dimension of a sort.
static void sort(builder *b) {
  int64_t sorted = vt_attr_i64(b->op, VT_ATTR_DIMENSION);
  vt_type type = result_type(b);
  bool only = true;
  for (int32_t d = 0; d < type.rank; d++) only = only && (d == sorted || type.dims[d] == 1);
  for (int32_t d = 0; d < type.rank; d++)
    map_all(b, d,
            d == sorted ? add_kind(b, type.dims[d], VT_FACTOR_REPLICATE, only)
                        : add_factor(b, type.dims[d]));
}

// The statistics belong to the feature dimension.
static void batch_norm(builder *b) {
  int64_t feature = vt_attr_i64(b->op, VT_ATTR_FEATURE_INDEX);
  vt_type input = type_of(b, 0);
  for (int32_t d = 0; d < input.rank; d++) {
    int factor = add_factor(b, input.dims[d]);
    for (uint32_t t = 0; t < b->tensors; t++) {
      if (vt_type_same_dims(type_of(b, t), input))
        map_dim(b, t, d, factor);
      else if (d == feature && type_of(b, t).rank == 1)
        map_dim(b, t, 0, factor);
    }
  }
}

// ---- gather and scatter -------------------------------------------------------------------------

// Both are a large array (`inputs` tensors from the first), indices, and slices of the array.
typedef struct indexed {
  bool scatter;
  vt_type array, indices, slices;
  uint32_t index_tensor, first_slices, slices_end; // tensors
  int64_t vector_dim;
  const int64_t *offset, *collapsed, *batching, *index_batching;
  uint32_t offset_n, collapsed_n, batching_n;
} indexed;

static void map_indexed(builder *b, const indexed *x, int64_t array, int64_t index, int64_t slice,
                        int factor) {
  if (array != NO_DIM) map_operands(b, 0, x->index_tensor, array, factor);
  map_dim(b, x->index_tensor, index, factor);
  if (slice != NO_DIM) map_operands(b, x->first_slices, x->slices_end, slice, factor);
  if (array != NO_DIM && x->scatter) map_results(b, array, factor);
}

// A dimension of the slices that comes from the array: whole, or a part of it.
static void offset_dim(builder *b, const indexed *x, int64_t array, int64_t slice) {
  int64_t whole = x->array.dims[array], part = x->slices.dims[slice];
  if (whole == part) {
    map_indexed(b, x, array, NO_DIM, slice, add_factor(b, whole));
  } else if (x->scatter || part == 1) {
    vt_factor_kind kind = x->scatter ? VT_FACTOR_REPLICATE : VT_FACTOR_REDUCE;
    map_indexed(b, x, array, NO_DIM, NO_DIM, add_kind(b, whole, kind, false));
    map_indexed(b, x, NO_DIM, NO_DIM, slice, add_kind(b, part, VT_FACTOR_REPLICATE, false));
  } else {
    map_indexed(b, x, array, NO_DIM, slice, add_kind(b, whole, VT_FACTOR_REPLICATE, true));
  }
}

// Whether the scatter's computation is one that collectives know.
static bool reduces_plainly(const vt_op *op) {
  const vt_func *body = op->regions[0];
  if (!body->first || body->first->next || body->return_count != 1) return false;
  switch (body->first->code) {
  case VT_OP_ADD:
  case VT_OP_MULTIPLY:
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
  case VT_OP_AND:
  case VT_OP_OR:
    return true;
  default:
    return false;
  }
}

static void batch_dim(builder *b, const indexed *x, int64_t index, int64_t slice) {
  int64_t array = NO_DIM;
  for (uint32_t i = 0; i < x->batching_n; i++)
    if (x->index_batching[i] == index) array = x->batching[i];
  vt_factor_kind kind = VT_FACTOR_PASS;
  if (x->scatter && array == NO_DIM)
    kind = reduces_plainly(b->op) ? VT_FACTOR_REDUCE : VT_FACTOR_REPLICATE;
  map_indexed(b, x, array, index, slice, add_kind(b, x->slices.dims[slice], kind, false));
}

static void index_factors(builder *b, const indexed *x) {
  int64_t array = 0, batches = 0;
  for (int32_t d = 0; d < x->slices.rank; d++) {
    if (in_list(x->offset, x->offset_n, d)) {
      while (in_list(x->collapsed, x->collapsed_n, array) ||
             in_list(x->batching, x->batching_n, array))
        array++;
      offset_dim(b, x, array++, d);
    } else {
      batch_dim(b, x, batches < x->vector_dim ? batches : batches + 1, d);
      batches++;
    }
  }
  for (uint32_t i = 0; i < x->collapsed_n; i++) {
    int64_t size = x->array.dims[x->collapsed[i]];
    vt_factor_kind kind = x->scatter  ? VT_FACTOR_PASS
                          : size == 1 ? VT_FACTOR_REPLICATE
                                      : VT_FACTOR_REDUCE;
    map_indexed(b, x, x->collapsed[i], NO_DIM, NO_DIM, add_kind(b, size, kind, false));
  }
  if (x->vector_dim < x->indices.rank)
    map_indexed(b, x, NO_DIM, x->vector_dim, NO_DIM,
                add_kind(b, x->indices.dims[x->vector_dim], VT_FACTOR_REPLICATE, false));
}

static void gather(builder *b) {
  const vt_op *op = b->op;
  indexed x = {.array = type_of(b, 0),
               .indices = type_of(b, 1),
               .slices = type_of(b, 2),
               .index_tensor = 1,
               .first_slices = 2,
               .slices_end = 3,
               .vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM)};
  x.offset = vt_attr_ints(op, VT_ATTR_OFFSET_DIMS, &x.offset_n);
  x.collapsed = vt_attr_ints(op, VT_ATTR_COLLAPSED_SLICE_DIMS, &x.collapsed_n);
  x.batching = vt_attr_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, &x.batching_n);
  x.index_batching = vt_attr_ints(op, VT_ATTR_START_INDICES_BATCHING_DIMS, NULL);
  index_factors(b, &x);
}

static void scatter(builder *b) {
  const vt_op *op = b->op;
  uint32_t n = (b->operands - 1) / 2;
  indexed x = {.scatter = true,
               .array = type_of(b, 0),
               .indices = type_of(b, n),
               .slices = type_of(b, n + 1),
               .index_tensor = n,
               .first_slices = n + 1,
               .slices_end = b->operands,
               .vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM)};
  x.offset = vt_attr_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, &x.offset_n);
  x.collapsed = vt_attr_ints(op, VT_ATTR_INSERTED_WINDOW_DIMS, &x.collapsed_n);
  x.batching = vt_attr_ints(op, VT_ATTR_INPUT_BATCHING_DIMS, &x.batching_n);
  x.index_batching = vt_attr_ints(op, VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, NULL);
  index_factors(b, &x);
}

// ---- collectives, in manual computations --------------------------------------------------------

// Nothing but `dim` and `also` corresponds there: its parts change between devices.
static void all_but(builder *b, int64_t dim, int64_t also) {
  vt_type in = type_of(b, 0), out = result_type(b);
  for (int32_t d = 0; d < in.rank; d++) {
    if (d != dim && d != also) {
      map_all(b, d, add_factor(b, in.dims[d]));
      continue;
    }
    map_operands(b, 0, b->operands, d, add_kind(b, in.dims[d], VT_FACTOR_REPLICATE, false));
    map_results(b, d, add_kind(b, out.dims[d], VT_FACTOR_REPLICATE, false));
  }
}

static void all_gather(builder *b) {
  all_but(b, vt_attr_i64(b->op, VT_ATTR_ALL_GATHER_DIM), NO_DIM);
}

static void reduce_scatter(builder *b) {
  all_but(b, vt_attr_i64(b->op, VT_ATTR_SCATTER_DIMENSION), NO_DIM);
}

static void all_to_all(builder *b) {
  all_but(b, vt_attr_i64(b->op, VT_ATTR_SPLIT_DIMENSION),
          vt_attr_i64(b->op, VT_ATTR_CONCAT_DIMENSION));
}

// ---- linear algebra, transforms, random numbers -------------------------------------------------

// All but the last `inner` dimensions of the first tensor are batches of all.
static void batches(builder *b, int32_t inner) {
  for (int32_t d = 0; d < type_of(b, 0).rank - inner; d++)
    map_all(b, d, add_factor(b, type_of(b, 0).dims[d]));
}

static void cholesky(builder *b) {
  int32_t rank = type_of(b, 0).rank;
  batches(b, 2);
  for (int32_t d = rank - 2; d < rank; d++)
    map_all(b, d, add_kind(b, type_of(b, 0).dims[d], VT_FACTOR_REPLICATE, false));
}

// op(a) x = b or x op(a) = b: the dimension of a that is left goes with b, the summed one with x.
static void triangular_solve(builder *b) {
  bool left = vt_attr_i64(b->op, VT_ATTR_LEFT_SIDE);
  bool transposed = vt_attr_i64(b->op, VT_ATTR_TRANSPOSE_A) > 1; // TRANSPOSE, ADJOINT
  int32_t row = type_of(b, 0).rank - 2, column = row + 1;
  int32_t kept = left == transposed ? column : row, summed = left == transposed ? row : column;
  int32_t matched = left ? row : column, other = left ? column : row;
  batches(b, 2);
  int of_b = add_kind(b, type_of(b, 0).dims[kept], VT_FACTOR_REPLICATE, false);
  if (!left) of_b = -1;
  map_three(b, kept, matched, NO_DIM, of_b);
  map_three(b, NO_DIM, other, other,
            add_kind(b, type_of(b, 1).dims[other], VT_FACTOR_REPLICATE, false));
  if (!left)
    map_three(b, kept, matched, NO_DIM,
              add_kind(b, type_of(b, 0).dims[kept], VT_FACTOR_REPLICATE, false));
  map_three(b, summed, NO_DIM, matched,
            add_kind(b, type_of(b, 0).dims[summed], VT_FACTOR_REPLICATE, false));
}

static void fft(builder *b) {
  uint32_t inner;
  vt_type in = type_of(b, 0), out = type_of(b, 1);
  (void)vt_attr_ints(b->op, VT_ATTR_FFT_LENGTH, &inner);
  batches(b, (int32_t)inner);
  for (int32_t d = in.rank - (int32_t)inner; d < in.rank; d++) {
    bool cut_off = d == in.rank - 1 && in.dims[d] != out.dims[d];
    map_all(b, d, add_kind(b, in.dims[d], VT_FACTOR_REPLICATE, cut_off));
  }
}

// The state is one for all; the numbers may be cut any way.
static void rng_bit_generator(builder *b) {
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    int factor = add_kind(b, type_of(b, 0).dims[d], VT_FACTOR_REPLICATE, true);
    map_dim(b, 0, d, factor);
    map_dim(b, 1, d, factor);
  }
  for (int32_t d = 0; d < type_of(b, 2).rank; d++)
    map_dim(b, 2, d, add_factor(b, type_of(b, 2).dims[d]));
}

// ---- custom calls -------------------------------------------------------------------------------

static void eigh(builder *b) {
  int32_t row = type_of(b, 0).rank - 2, column = row + 1;
  batches(b, 2);
  (void)pair(b, 0, row, b->operands, row);
  int columns = pair(b, 0, column, b->operands, column);
  map_dim(b, b->operands + 1, row, columns);
}

static void qr(builder *b) {
  int32_t row = type_of(b, 0).rank - 2, column = row + 1;
  batches(b, 2);
  for (int32_t d = row; d <= column; d++) {
    int factor = add_kind(b, type_of(b, 0).dims[d], VT_FACTOR_REPLICATE, false);
    map_dim(b, 0, d, factor);
    map_dim(b, 1, d, factor);
  }
  map_dim(b, 2, row, add_kind(b, type_of(b, 2).dims[row], VT_FACTOR_REPLICATE, false));
}

static void householder_product(builder *b) {
  int32_t row = type_of(b, 0).rank - 2, column = row + 1;
  batches(b, 2);
  for (int32_t d = row; d <= column; d++)
    map_three(b, d, NO_DIM, d, add_kind(b, type_of(b, 0).dims[d], VT_FACTOR_REPLICATE, false));
  map_dim(b, 1, row, add_kind(b, type_of(b, 1).dims[row], VT_FACTOR_REPLICATE, false));
}

static void approx_top_k(builder *b) {
  for (int32_t d = 0; d < type_of(b, 0).rank; d++) {
    int64_t in = type_of(b, 0).dims[d], out = result_type(b).dims[d];
    int factor = add_factor(b, in);
    if (in == out) {
      map_all(b, d, factor);
    } else {
      map_operands(b, 0, 2, d, factor);
      map_results(b, d, add_kind(b, out, VT_FACTOR_REPLICATE, true));
    }
  }
}

static const struct {
  const char *target;
  uint32_t operands, results; // 0 = any
  void (*rule)(builder *b);
} custom_calls[] = {
    {"annotate_device_placement", 0, 0, pointwise},
    {"Cholesky", 0, 0, pointwise},
    {"CompactWyHelper", 0, 0, pointwise},
    {"InspectSharding", 0, 0, pointwise},
    {"InvertDiagBlocksLowerTriangular", 0, 0, pointwise},
    {"InvertDiagBlocksUpperTriangular", 0, 0, pointwise},
    {"LayoutConstraint", 0, 0, pointwise},
    {"mhlo.erf", 0, 0, pointwise},
    {"MoveToDevice", 0, 0, pointwise},
    {"MoveToHost", 0, 0, pointwise},
    {"X64Combine", 0, 0, pointwise},
    {"X64SplitHigh", 0, 0, pointwise},
    {"X64SplitLow", 0, 0, pointwise},
    {"Eigh", 1, 2, eigh},
    {"Qr", 1, 2, qr},
    {"QrDecompositionBlock", 1, 2, qr},
    {"ProductOfElementaryHouseholderReflectors", 2, 1, householder_product},
    {"mhlo.topk", 1, 2, dynamic_slice},
    {"ApproxTopK", 4, 2, approx_top_k},
    {"PartialReduce", 4, 2, approx_top_k},
};

static void custom_call(builder *b) {
  vt_string name = vt_attr_string(b->op, VT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < sizeof custom_calls / sizeof *custom_calls; i++)
    if (name.size && !strcmp(name.data, custom_calls[i].target) && b->tensors > b->operands &&
        (!custom_calls[i].operands || custom_calls[i].operands == b->operands) &&
        (!custom_calls[i].results || custom_calls[i].results == b->tensors - b->operands))
      custom_calls[i].rule(b);
}

// ---- from an op to its rule ---------------------------------------------------------------------

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

// A factor of its own for each dimension without one, so that its axes count as used.
static void fill_up(builder *b) {
  for (uint32_t t = 0; t < b->tensors; t++)
    for (int32_t d = 0; d < type_of(b, t).rank; d++)
      if (!has_factor(b, t, d)) map_dim(b, t, d, add_factor(b, 1));
}

// One allocation for a rule and its lists, which are still to be written.
static vt_rule *new_rule(vt_arena *arena, uint32_t factors, uint32_t tensors, size_t entries,
                         vt_factor **out_factors, uint32_t **out_starts,
                         vt_dim_factor **out_entries) {
  vt_rule *rule = vt_arena_push(arena, sizeof *rule + sizeof **out_factors * factors +
                                           sizeof **out_starts * (tensors + 1) +
                                           sizeof **out_entries * entries);
  *out_factors = (vt_factor *)(rule + 1);
  *out_starts = (uint32_t *)(*out_factors + factors);
  *out_entries = (vt_dim_factor *)(*out_starts + tensors + 1);
  *rule = (vt_rule){factors, *out_factors, *out_starts, *out_entries, false, false};
  return rule;
}

static bool is_simple(const vt_rule *rule, uint32_t tensors) {
  if (!rule->plain || rule->factor_count > VT_SIMPLE_FACTORS) return false;
  for (uint32_t t = 0; t < tensors; t++) {
    uint64_t here = 0;
    for (uint32_t e = rule->starts[t]; e < rule->starts[t + 1]; e++) {
      uint64_t factor = (uint64_t)1 << rule->entries[e].factor;
      if (here & factor || rule->factors[rule->entries[e].factor].blocked) return false;
      here |= factor;
    }
  }
  return true;
}

// Entries in the order of tensors and their dimensions; within a dimension as they were added.
static const vt_rule *finish(builder *b, vt_arena *arena) {
  fill_up(b);
  vt_factor *factors;
  uint32_t *starts, at = 0;
  vt_dim_factor *entries;
  vt_rule *rule = new_rule(arena, (uint32_t)b->factors.size, b->tensors, b->entries.size, &factors,
                           &starts, &entries);
  if (b->factors.size) memcpy(factors, b->factors.data, sizeof *factors * b->factors.size);
  uint32_t dims = 0;
  for (uint32_t t = 0; t < b->tensors; t++) {
    starts[t] = dims;
    dims += (uint32_t)type_of(b, t).rank;
  }
  bool any = b->factors.size > 0 && b->factors.size < MAX_FACTORS;
  bool one_each = any && b->entries.size == dims; // each dimension has at least one
  for (size_t i = 0; one_each && i < b->entries.size; i++)
    entries[starts[b->entries.data[i].tensor] + b->entries.data[i].at.dim] = b->entries.data[i].at;
  for (uint32_t t = 0; !one_each && t < b->tensors; t++) {
    starts[t] = at;
    for (int32_t d = 0; d < type_of(b, t).rank; d++)
      for (size_t i = 0; i < b->entries.size; i++)
        if (b->entries.data[i].tensor == t && b->entries.data[i].at.dim == d)
          entries[at++] = b->entries.data[i].at;
  }
  starts[b->tensors] = one_each ? dims : at;
  rule->plain = starts[b->tensors] == dims;
  rule->simple = any && is_simple(rule, b->tensors);
  return any ? rule : NULL;
}

// All tensors have the dimensions of the last, or its first ones.
static const vt_rule *make_pointwise(vt_arena *arena, uint32_t count, const vt_type *types) {
  vt_type last = types[count - 1];
  uint32_t dims = 0, at = 0;
  for (uint32_t t = 0; t < count; t++) dims += (uint32_t)types[t].rank;
  vt_factor *factors;
  uint32_t *starts;
  vt_dim_factor *entries;
  vt_rule *rule = new_rule(arena, (uint32_t)last.rank, count, dims, &factors, &starts, &entries);
  for (int32_t d = 0; d < last.rank; d++)
    factors[d] = (vt_factor){last.dims[d], VT_FACTOR_PASS, false};
  for (uint32_t t = 0; t < count; t++) {
    starts[t] = at;
    for (int32_t d = 0; d < types[t].rank; d++)
      entries[at++] = (vt_dim_factor){(uint8_t)d, (uint8_t)d};
  }
  starts[count] = at;
  rule->plain = rule->simple = true;
  return rule;
}

enum { FEW_TENSORS = 8 };

// Most ops are of few kinds here: these share a rule. Between scalars and an array none is needed.
static const vt_rule *pointwise_rule(vt_graph *graph, uint32_t count, const vt_type *types) {
  vt_type last = types[count - 1];
  uint64_t key[2 + VT_MAX_RANK];
  bool scalars = true; // all but the last
  for (uint32_t t = 0; t + 1 < count && scalars; t++) scalars = !types[t].rank;
  if (!last.rank || scalars) return NULL;
  if (count > FEW_TENSORS) return make_pointwise(graph->arena, count, types);
  key[0] = count;
  key[1] = 0;
  for (uint32_t t = 0; t < count; t++) key[1] = key[1] << 8 | (uint64_t)types[t].rank;
  // Programs have few types, which are in one place each.
  size_t place = (size_t)(((uintptr_t)last.dims >> 4) + 7 * count + key[1]) % VT_SEEN_RULES;
  vt_seen_rule *seen = &graph->seen[place];
  if (seen->dims == last.dims && seen->count == count && seen->ranks == key[1]) return seen->rule;
  memcpy(key + 2, last.dims, sizeof *last.dims * (size_t)last.rank);
  void **rule = vt_map_at(&graph->rules, key, sizeof *key * (size_t)(2 + last.rank));
  if (!*rule) *rule = (void *)(uintptr_t)make_pointwise(graph->arena, count, types);
  seen->dims = last.dims;
  seen->count = count;
  seen->ranks = key[1];
  return seen->rule = *rule;
}

// Whether no tensor has more dimensions than the last.
static bool is_last_largest(uint32_t count, const vt_type *types) {
  for (uint32_t t = 0; t < count; t++)
    if (types[t].rank > types[count - 1].rank) return false;
  return true;
}

const vt_rule *vt_rule_of_op(vt_graph *graph, const vt_op *op, uint8_t left_out) {
  void (*rule)(builder *) = rules[op->code];
  uint32_t own = vt_op_own_operands(op), operands = 0, tensors = own + op->result_count;
  if (!rule || !op->result_count) return NULL;
  vt_type few[FEW_TENSORS];
  vt_type *types = tensors <= FEW_TENSORS ? few : VT_NEW_ARRAY(&graph->building, vt_type, tensors);
  for (uint32_t i = 0; i < own; i++)
    if (i >= VT_MAX_LEFT_OUT || !(left_out >> i & 1)) types[operands++] = op->operands[i]->type;
  tensors = operands + op->result_count;
  for (uint32_t t = operands; t < tensors; t++) types[t] = op->results[t - operands].type;
  bool splat = rule == broadcast_in_dim && !types[0].rank && !vt_spmd_is_view(op);
  bool one = op->result_count == 1 || op->code == VT_OP_CALL;
  if ((rule == pointwise || splat) && one && is_last_largest(tensors, types))
    return pointwise_rule(graph, tensors, types);
  builder b = {.arena = &graph->building,
               .op = op,
               .types = types,
               .operands = operands,
               .tensors = tensors,
               .mapped = VT_NEW_ARRAY(&graph->building, uint64_t, tensors)};
  rule(&b);
  const vt_rule *made = b.factors.size ? finish(&b, graph->arena) : NULL;
  vt_arena_reset(&graph->building);
  return made;
}

const vt_rule *vt_rule_of_equals(vt_graph *graph, uint32_t count, vt_type type) {
  vt_type few[FEW_TENSORS];
  vt_type *types = count <= FEW_TENSORS ? few : VT_NEW_ARRAY(graph->arena, vt_type, count);
  for (uint32_t t = 0; t < count; t++) types[t] = type;
  return pointwise_rule(graph, count, types);
}
