// SPDX-License-Identifier: Apache-2.0
// random_programs.c - gathers and scatters with random dimension numbers, as text.
#include "spmd/partition/random_programs.h"

#include <inttypes.h>

#include "ir/type.h"

typedef struct dim_set {
  uint32_t count;
  int64_t dims[VT_MAX_RANK];
} dim_set;

// In gather's terms: `windows` is the result of a gather, the updates of a scatter.
typedef struct numbers {
  dim_set operand, indices, windows, sizes;
  dim_set offset, collapsed, batching, along, map;
  uint32_t vector_dim;
  int32_t counts; // the dimension of the indices along which the first component counts, -1 = none
} numbers;

static void add(dim_set *set, int64_t dim) {
  set->dims[set->count++] = dim;
}

static void insert(dim_set *set, uint32_t at, int64_t size) {
  for (uint32_t i = set->count++; i > at; i--) set->dims[i] = set->dims[i - 1];
  set->dims[at] = size;
}

static bool holds(const dim_set *set, int64_t dim) {
  for (uint32_t i = 0; i < set->count; i++)
    if (set->dims[i] == dim) return true;
  return false;
}

static void shuffle(dim_set *set, vt_random_fn *random) {
  for (uint32_t i = 0; i < set->count; i++) {
    uint32_t j = random(i + 1);
    int64_t kept = set->dims[i];
    set->dims[i] = set->dims[j];
    set->dims[j] = kept;
  }
}

// What each dimension of the operand is for.
static void choose_operand(numbers *n, vt_random_fn *random) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 8, 12};
  uint32_t rank = 1 + random(4);
  for (uint32_t d = 0; d < rank; d++) {
    int64_t size = sizes[random(8)];
    add(&n->operand, size);
    switch (random(5)) {
    case 0:
      add(&n->batching, d);
      add(&n->sizes, 1);
      break;
    case 1:
    case 2:
      add(&n->collapsed, d);
      if (size > 1 || random(2)) add(&n->map, d);
      add(&n->sizes, 1);
      break;
    case 3:
      add(&n->map, d);
      add(&n->sizes, 1 + random((uint32_t)size));
      break;
    default:
      if (!random(4)) add(&n->map, d);
      add(&n->sizes, size);
    }
  }
  shuffle(&n->map, random);
}

static void choose_indices(numbers *n, vt_random_fn *random) {
  uint32_t free = random(3);
  for (uint32_t i = 0; i < free; i++) add(&n->indices, 1 + random(8));
  n->counts = -1;
  if (n->map.count && holds(&n->collapsed, n->map.dims[0]) && random(3) == 0) {
    n->counts = (int32_t)random(n->indices.count + 1);
    insert(&n->indices, (uint32_t)n->counts, n->operand.dims[n->map.dims[0]]);
  }
  for (uint32_t i = 0; i < n->batching.count; i++) {
    uint32_t at = random(n->indices.count + 1);
    insert(&n->indices, at, n->operand.dims[n->batching.dims[i]]);
    for (uint32_t k = 0; k < i; k++) n->along.dims[k] += n->along.dims[k] >= at;
    if (n->counts >= (int32_t)at) n->counts++;
    add(&n->along, at);
  }
}

// Windows: positions and window dimensions in any order; then the vectors find their place.
static void choose_windows(numbers *n, vt_random_fn *random) {
  n->windows = n->indices;
  uint32_t next = 0;
  for (uint32_t d = 0; d < n->operand.count; d++) {
    if (holds(&n->collapsed, d) || holds(&n->batching, d)) continue;
    uint32_t at = next + random(n->windows.count - next + 1);
    insert(&n->windows, at, n->sizes.dims[d]);
    add(&n->offset, at);
    next = at + 1;
  }
  n->vector_dim = n->indices.count;
  if (n->map.count == 1 && random(2)) return;
  n->vector_dim = random(n->indices.count + 1);
  insert(&n->indices, n->vector_dim, n->map.count);
  for (uint32_t k = 0; k < n->along.count; k++)
    n->along.dims[k] += n->along.dims[k] >= n->vector_dim;
  if (n->counts >= (int32_t)n->vector_dim) n->counts++;
}

static numbers choose(vt_random_fn *random) {
  numbers n = {0};
  choose_operand(&n, random);
  choose_indices(&n, random);
  choose_windows(&n, random);
  return n;
}

// ---- text ---------------------------------------------------------------------------------------

static void put_type(vt_text *out, const dim_set *dims, const char *dtype) {
  vt_text_printf(out, "tensor<");
  for (uint32_t i = 0; i < dims->count; i++) vt_text_printf(out, "%" PRId64 "x", dims->dims[i]);
  vt_text_printf(out, "%s>", dtype);
}

static void put_list(vt_text *out, const char *name, const dim_set *dims) {
  vt_text_printf(out, "%s = [", name);
  for (uint32_t i = 0; i < dims->count; i++)
    vt_text_printf(out, "%s%" PRId64, i ? ", " : "", dims->dims[i]);
  vt_text_printf(out, "], ");
}

// The indices: parameter %i with two added, and its first component counting.
static void put_indices(vt_text *out, const numbers *n) {
  dim_set one = n->indices, rest = n->indices;
  bool vectors = n->vector_dim < n->indices.count;
  vt_text_printf(out, "  %%c = stablehlo.constant dense<2> : ");
  put_type(out, &n->indices, "i32");
  vt_text_printf(out, "\n  %%%s = stablehlo.add %%i, %%c : ", n->counts < 0 ? "p" : "j");
  put_type(out, &n->indices, "i32");
  vt_text_printf(out, "\n");
  if (n->counts < 0) return;
  if (vectors) one.dims[n->vector_dim] = 1;
  bool alone = !vectors || n->map.count == 1;
  vt_text_printf(out, "  %%%s = stablehlo.iota dim = %d : ", alone ? "p" : "n", n->counts);
  put_type(out, &one, "i32");
  vt_text_printf(out, "\n");
  if (alone) return;
  rest.dims[n->vector_dim]--;
  vt_text_printf(out, "  %%r = stablehlo.slice %%j [");
  for (uint32_t d = 0; d < n->indices.count; d++)
    vt_text_printf(out, "%s%d:%" PRId64, d ? ", " : "", d == n->vector_dim, n->indices.dims[d]);
  vt_text_printf(out, "] : (");
  put_type(out, &n->indices, "i32");
  vt_text_printf(out, ") -> ");
  put_type(out, &rest, "i32");
  vt_text_printf(out, "\n  %%p = stablehlo.concatenate %%n, %%r, dim = %u : (", n->vector_dim);
  put_type(out, &one, "i32");
  vt_text_printf(out, ", ");
  put_type(out, &rest, "i32");
  vt_text_printf(out, ") -> ");
  put_type(out, &n->indices, "i32");
  vt_text_printf(out, "\n");
}

void vt_write_random_gather(vt_text *out, vt_random_fn *random) {
  numbers n = choose(random);
  vt_text_printf(out, "(%%a: ");
  put_type(out, &n.operand, "f32");
  vt_text_printf(out, ", %%i: ");
  put_type(out, &n.indices, "i32");
  vt_text_printf(out, ") -> ");
  put_type(out, &n.windows, "f32");
  vt_text_printf(out, " {\n");
  put_indices(out, &n);
  vt_text_printf(out, "  %%0 = \"stablehlo.gather\"(%%a, %%p) <{dimension_numbers = "
                      "#stablehlo.gather<");
  put_list(out, "offset_dims", &n.offset);
  put_list(out, "collapsed_slice_dims", &n.collapsed);
  put_list(out, "operand_batching_dims", &n.batching);
  put_list(out, "start_indices_batching_dims", &n.along);
  put_list(out, "start_index_map", &n.map);
  vt_text_printf(out, "index_vector_dim = %u>, slice_sizes = array<i64: ", n.vector_dim);
  for (uint32_t i = 0; i < n.sizes.count; i++)
    vt_text_printf(out, "%s%" PRId64, i ? ", " : "", n.sizes.dims[i]);
  vt_text_printf(out, ">}> : (");
  put_type(out, &n.operand, "f32");
  vt_text_printf(out, ", ");
  put_type(out, &n.indices, "i32");
  vt_text_printf(out, ") -> ");
  put_type(out, &n.windows, "f32");
  vt_text_printf(out, "\n  return %%0 : ");
  put_type(out, &n.windows, "f32");
  vt_text_printf(out, " }");
}

void vt_write_random_scatter(vt_text *out, vt_random_fn *random) {
  static const char *const reducers[] = {"add", "maximum", "minimum", "multiply", "and", "or", ""};
  numbers n = choose(random);
  const char *reducer = reducers[random(7)];
  vt_text_printf(out, "(%%a: ");
  put_type(out, &n.operand, "i32");
  vt_text_printf(out, ", %%i: ");
  put_type(out, &n.indices, "i32");
  vt_text_printf(out, ", %%u: ");
  put_type(out, &n.windows, "i32");
  vt_text_printf(out, ") -> ");
  put_type(out, &n.operand, "i32");
  vt_text_printf(out, " {\n");
  put_indices(out, &n);
  vt_text_printf(out, "  %%0 = \"stablehlo.scatter\"(%%a, %%p, %%u) <{scatter_dimension_numbers = "
                      "#stablehlo.scatter<");
  put_list(out, "update_window_dims", &n.offset);
  put_list(out, "inserted_window_dims", &n.collapsed);
  put_list(out, "input_batching_dims", &n.batching);
  put_list(out, "scatter_indices_batching_dims", &n.along);
  put_list(out, "scatter_dims_to_operand_dims", &n.map);
  vt_text_printf(out, "index_vector_dim = %u>}> ({\n  ^bb0(%%x: tensor<i32>, %%y: tensor<i32>):\n",
                 n.vector_dim);
  if (*reducer) vt_text_printf(out, "    %%s = stablehlo.%s %%x, %%y : tensor<i32>\n", reducer);
  vt_text_printf(out, "    stablehlo.return %%%s : tensor<i32> }) : (", *reducer ? "s" : "y");
  put_type(out, &n.operand, "i32");
  vt_text_printf(out, ", ");
  put_type(out, &n.indices, "i32");
  vt_text_printf(out, ", ");
  put_type(out, &n.windows, "i32");
  vt_text_printf(out, ") -> ");
  put_type(out, &n.operand, "i32");
  vt_text_printf(out, "\n  return %%0 : ");
  put_type(out, &n.operand, "i32");
  vt_text_printf(out, " }");
}
