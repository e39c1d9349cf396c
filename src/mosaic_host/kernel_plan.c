// SPDX-License-Identifier: Apache-2.0
// kernel_plan.c - where each vector of a kernel lives, and for how long. Decided once, from the
// kernel alone: the code and the tables beside it must agree, also when the code comes from disk.
#include <stdlib.h>
#include <string.h>

#include "host/cpu.h"
#include "host/panels.h"
#include "mosaic_host/kernel.h"

enum { ODD_K = 64, MOST_DEEP = 64, MOST_FREE = 6 };

typedef struct planner {
  vt_kplan *p;
  const vt_mfunc *func;
  bool refused;
} planner;

static vt_kvalue *of(const planner *n, const vt_mvalue *v) {
  return vt_kvalue_of(n->p, v);
}

static bool is_vector(const vt_mvalue *v) {
  return v->type.kind == VT_MVECTOR;
}

// ---- references ---------------------------------------------------------------------------------

static void root_ref(planner *n, const vt_mvalue *v, int32_t array) {
  vt_kvalue *r = of(n, v);
  vt_marray none = {.type = v->type};
  r->array = array;
  r->plain = r->inside = vt_mtype_elements(v->type) >= 0;
  if (!r->plain) return;
  vt_mview_whole(&none, &r->view);
  r->view.array = NULL;
}

// Whether [start, start + (size - 1) * step] is known to lie in the dimension.
static bool surely_inside(const vt_mvalue *start, int64_t size, int64_t step, int64_t dim) {
  int64_t at;
  return vt_kplan_constant(start, &at) && at >= 0 && size > 0 && at + (size - 1) * step < dim;
}

static void slice_ref(vt_kvalue *r, const vt_mop *op) {
  uint32_t count;
  vt_mvalue **base = vt_mop_group(op, 1, &count);
  vt_mtype to = op->results[0].type;
  for (int32_t d = 0; d < to.rank; d++) {
    if (to.dims[d] < 0) {
      r->plain = false;
      return;
    }
    r->inside = r->inside && surely_inside(base[d], to.dims[d], 1, r->view.dims[d]);
    r->view.dims[d] = r->view.limits[d] = to.dims[d];
  }
}

static void plan_ref(planner *n, const vt_mop *op) {
  const vt_mosaic *k = n->p->kernel;
  vt_kvalue *r = of(n, &op->results[0]);
  uint32_t first = k->body->block->arg_count - k->grid_rank;
  switch (op->code) {
  case VT_MOP_ALLOCA:
  case VT_MOP_SEM_ALLOC:
    root_ref(n, &op->results[0], (int32_t)first + op->place);
    return;
  case VT_MOP_SEM_BARRIER:
    root_ref(n, &op->results[0], (int32_t)first + k->place_count);
    return;
  case VT_MOP_SLICE_REF:
  case VT_MOP_SQUEEZE_REF:
  case VT_MOP_RESHAPE_REF:
  case VT_MOP_BITCAST_REF:
  case VT_MOP_ERASE_LAYOUT:
  case VT_MOP_ANNOTATE:
    break;
  default:
    n->refused = true;
    return;
  }
  const vt_kvalue *from = of(n, op->operands[0]);
  r->depth = from->depth + 1;
  if (r->depth > MOST_DEEP) n->refused = true; // views of views
  r->array = from->array;
  r->plain = from->plain;
  r->inside = from->inside;
  r->view = from->view;
  if (!r->plain) return;
  vt_mtype root = {.dtype = op->results[0].type.dtype};
  vt_marray typed = {.type = root};
  r->view.array = &typed; // its element type counts
  if (op->code == VT_MOP_SLICE_REF) slice_ref(r, op);
  if (op->code == VT_MOP_SQUEEZE_REF)
    vt_mview_squeeze(&r->view, op->operands[0]->type, op->results[0].type);
  if (op->code == VT_MOP_RESHAPE_REF) {
    vt_status st = vt_mview_reshape(op, &r->view, op->results[0].type);
    if (st) r->plain = false;
    vt_status_free(st);
  }
  if (op->code == VT_MOP_BITCAST_REF)
    r->plain = vt_dtype_get(op->operands[0]->type.dtype)->bits ==
               vt_dtype_get(op->results[0].type.dtype)->bits;
  r->view.array = NULL;
}

// ---- uses ---------------------------------------------------------------------------------------

static bool has_effect(const vt_mop *op) {
  switch (op->code) {
  case VT_MOP_SEED:
  case VT_MOP_RANDOM:
    return true;
  default:
    return !op->result_count || op->block_count;
  }
}

static bool is_load(const vt_mop *op) {
  return op->code == VT_MOP_VECTOR_LOAD || op->code == VT_MOP_LOAD_VECTOR ||
         op->code == VT_MOP_STRIDED_LOAD;
}
static bool is_store(const vt_mop *op) {
  return op->code == VT_MOP_VECTOR_STORE || op->code == VT_MOP_STORE_VECTOR ||
         op->code == VT_MOP_STRIDED_STORE;
}
static bool is_cast(const vt_mop *op) {
  return op->code == VT_MOP_SHAPE_CAST || op->code == VT_MOP_RESHAPE ||
         op->code == VT_MOP_RELAYOUT || op->code == VT_MOP_ASSUME_LAYOUT;
}

// The element strides of the block that a load or store names; false when its elements do not lie
// at strides, or not one after the other in the last dimension.
static bool block_strides(const planner *n, const vt_mop *op, const vt_mvalue *ref,
                          int64_t *strides) {
  const vt_kvalue *r = of(n, ref);
  const vt_mattr *steps = vt_mop_attr(op, VT_MATTR_STRIDES);
  int64_t bytes = (int64_t)vt_dtype_bytes(ref->type.dtype);
  if (!r->plain) return false;
  for (int32_t d = 0; d < r->view.rank; d++) {
    int64_t step = steps && steps->count ? steps->ints[d] : 1;
    strides[d] = r->view.strides[d] / bytes * step;
  }
  return true;
}

// Whether elements of the last dimension that has several lie next to each other.
static bool has_columns(vt_mtype type, const int64_t *strides) {
  int32_t d = type.rank - 1;
  while (d > 0 && type.dims[d] == 1) d--;
  return type.dims[d] == 1 || strides[d] == 1;
}

static bool is_dense(vt_mtype type, const int64_t *strides) {
  int64_t stride = 1;
  for (int32_t d = type.rank; d-- > 0;) {
    if (type.dims[d] != 1 && strides[d] != stride) return false;
    stride *= type.dims[d];
  }
  return true;
}

static bool block_inside(const planner *n, const vt_mop *op, const vt_mvalue *ref,
                         vt_mvalue *const *indices, vt_mtype block) {
  const vt_kvalue *r = of(n, ref);
  const vt_mattr *steps = vt_mop_attr(op, VT_MATTR_STRIDES);
  if (!r->inside) return false;
  for (int32_t d = 0; d < r->view.rank; d++)
    if (!surely_inside(indices[d], block.kind == VT_MSCALAR ? 1 : block.dims[d],
                       steps && steps->count ? steps->ints[d] : 1, r->view.dims[d]))
      return false;
  return true;
}

static bool has_types(const vt_mop *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (is_vector(op->operands[i]) &&
        !vt_klanes_type(vt_klanes_memory(op->operands[i]->type.dtype)))
      return false;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (is_vector(&op->results[i]) && !vt_klanes_type(op->results[i].type.dtype)) return false;
  return true;
}

// Whether there is code for the op; else its own function runs.
static bool is_native(const planner *n, const vt_mop *op) {
  int64_t strides[VT_MOSAIC_RANK];
  int32_t map[VT_MOSAIC_RANK];
  if (op->block_count) return true;
  if (op->code == VT_MOP_MATMUL) return vt_kplan_product(n->p, op) != NULL;
  if (is_load(op)) {
    bool masked = op->code == VT_MOP_LOAD_VECTOR && vt_mop_optional(op, 2);
    return !masked && block_strides(n, op, op->operands[0], strides) &&
           vt_klanes_type(vt_klanes_memory(op->results[0].type.dtype));
  }
  if (is_store(op)) {
    vt_mtype type = op->operands[0]->type;
    return !vt_mop_i64(op, VT_MATTR_ADD, 0) && vt_klanes_type(type.dtype) &&
           block_strides(n, op, op->operands[1], strides) && has_columns(type, strides);
  }
  if (is_cast(op)) return is_vector(&op->results[0]) && is_vector(op->operands[0]);
  if (!has_types(op)) return false;
  switch (op->code) {
  case VT_MOP_CONSTANT:
    return vt_kplan_is_splat(&op->results[0]);
  case VT_MOP_BROADCAST:
  case VT_MOP_CONCATENATE:
    return true;
  case VT_MOP_EXTRACT_SLICE: {
    const vt_mattr *steps = vt_mop_attr(op, VT_MATTR_STRIDES);
    for (uint32_t i = 0; steps && i < steps->count; i++)
      if (steps->ints[i] != 1) return false;
    return true;
  }
  case VT_MOP_EXTRACT:
    return !is_vector(&op->results[0]);
  case VT_MOP_IOTA: {
    const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_DIMENSIONS);
    return (!dims || dims->count == 1) && op->results[0].type.dtype != VT_PRED;
  }
  case VT_MOP_MULTI_REDUCTION:
    return vt_knest_reduces(op);
  default:
    (void)map;
    return vt_klanes_has(op);
  }
}

// ---- products -----------------------------------------------------------------------------------

// Where an operand lies when no code has to move it: dense or in an array, through casts that only
// add or drop dimensions of size 1.
static bool resolves(const planner *n, const vt_mvalue *v, int64_t *strides) {
  const vt_kvalue *s = of(n, v);
  switch (s->home) {
  case VT_KHOME_MEMORY:
  case VT_KHOME_ALIAS:
    vt_kdense(v->type, strides);
    return true;
  case VT_KHOME_LEAF:
    memcpy(strides, s->strides, sizeof s->strides);
    return true;
  default:
    break;
  }
  int32_t map[VT_MOSAIC_RANK];
  int64_t inner[VT_MOSAIC_RANK];
  if (!v->op || !is_cast(v->op) || !vt_kplan_unit_cast(v->op->operands[0]->type, v->type, map) ||
      !resolves(n, v->op->operands[0], inner))
    return false;
  for (int32_t d = 0; d < v->type.rank; d++) strides[d] = map[d] < 0 ? 0 : inner[map[d]];
  return true;
}

// [batch, free, contracted] dimensions of a side; -1 where it has none. Others must be of size 1.
static bool side_dims(const vt_mop *op, int side, int32_t *out) {
  const vt_mattr *numbers = vt_mop_attr(op, VT_MATTR_DIMENSION_NUMBERS);
  vt_mtype type = op->operands[side]->type;
  bool transposed = vt_mop_i64(op, side ? VT_MATTR_TRANSPOSE_RHS : VT_MATTR_TRANSPOSE_LHS, 0) != 0;
  if (!numbers) {
    int32_t free = side ? 1 : 0;
    if (type.rank != 2) return false;
    out[0] = -1;
    out[1] = transposed ? 1 - free : free;
    out[2] = 1 - out[1];
    return true;
  }
  const uint32_t lists[2][3] = {{5, 2, 0}, {6, 3, 1}};
  for (int i = 0; i < 3; i++) {
    uint32_t count;
    const int64_t *list = vt_mattr_list(numbers, lists[side][i], &count);
    out[i] = -1;
    for (uint32_t j = 0; j < count; j++) {
      if (type.dims[list[j]] == 1 && (i != 2 || count > 1)) continue;
      if (out[i] >= 0) return false;
      out[i] = (int32_t)list[j];
    }
  }
  return true;
}

static int64_t size_at(vt_mtype type, int32_t d) {
  return d < 0 ? 1 : type.dims[d];
}

// Numbers of bf16 that are widened for a product stay what they are.
static const vt_mvalue *narrowest(const vt_mvalue *v) {
  bool wider = v->op && v->op->code == VT_MOP_EXTF && v->op->operands[0]->type.dtype == VT_BF16;
  return wider && is_vector(v->op->operands[0]) ? v->op->operands[0] : v;
}

// The element types of a product, before it is known where its operands lie.
static bool plan_product(planner *n, const vt_mop *op, vt_kproduct *q) {
  vt_mtype a = op->operands[0]->type, b = op->operands[1]->type, to = op->results[0].type;
  int32_t left[3], right[3];
  *q = (vt_kproduct){.op = op->number};
  if (!side_dims(op, 0, left) || !side_dims(op, 1, right)) return false;
  for (int i = 0; i < 2; i++) {
    vt_dtype dtype = op->operands[i]->type.dtype;
    if (dtype != VT_F32 && dtype != VT_BF16) return false;
  }
  if (to.dtype != VT_F32) return false;
  q->batch = size_at(a, left[0]);
  q->m = size_at(a, left[1]);
  q->k = size_at(a, left[2]);
  q->n = size_at(b, right[1]);
  if (q->batch * q->m * q->n != vt_mtype_elements(to) || size_at(b, right[2]) != q->k) return false;
  // As mosaic_vector.c: products with a vector are not the matrix unit's work.
  bool rounds = !n->p->exact_dots && q->m > 1 && q->n > 1 && vt_mop_rounds(op);
  bool both = a.dtype == VT_BF16 && b.dtype == VT_BF16;
  bool bf16 = (both || rounds) && vt_host_fast_bf16() && (q->k % 2 == 0 || q->k > ODD_K);
  q->tiled = bf16 && vt_host_has_amx();
  for (int i = 0; i < 2; i++) {
    const vt_mvalue *v = q->operands[i] = narrowest(op->operands[i]);
    q->sides[i].dtype = q->tiled ? v->type.dtype : bf16 ? VT_BF16 : VT_F32;
    q->sides[i].rounds = rounds && !bf16 && v->type.dtype == VT_F32;
  }
  q->row = q->n;
  q->adds = !vt_kplan_is_zero(op->operands[2]);
  q->own = bf16 && vt_kdot_here();
  vt_panels panels = {.m = q->m, .n = q->n, .k = q->k};
  q->paneled = !bf16 && vt_panels_prepare(&panels, false);
  return true;
}

// The side's strides; those of a dimension of size 1 are free. False when neither is 1.
static bool lay_out(vt_mtype type, int32_t batch, int32_t row, int32_t column,
                    const int64_t *strides, vt_kside *s) {
  int64_t rows = size_at(type, row), columns = size_at(type, column);
  s->batch = batch < 0 ? 0 : strides[batch];
  s->rows = rows == 1 ? 0 : strides[row];
  s->columns = columns == 1 ? 0 : strides[column];
  if (rows == 1) s->rows = s->columns > 1 ? 1 : columns;
  if (columns == 1) s->columns = s->rows > 1 ? 1 : rows;
  return s->rows == 1 || s->columns == 1;
}

// The dimension of the array that dimension `d` of the value is, which is a whole block of it.
static int32_t dim_in_array(const vt_mvalue *v, int32_t d) {
  int32_t map[VT_MOSAIC_RANK];
  for (; d >= 0 && is_cast(v->op); v = v->op->operands[0]) {
    if (!vt_kplan_unit_cast(v->op->operands[0]->type, v->type, map)) return -2;
    d = map[d];
  }
  return d;
}

// Whether the side is a whole block of an operand's window; then also where it lies there.
static void find_window(const planner *n, const vt_mvalue *v, int32_t batch, int32_t row,
                        int32_t column, vt_kside *s) {
  const vt_mosaic *k = n->p->kernel;
  const vt_mvalue *root = v;
  while (root->op && is_cast(root->op)) root = root->op->operands[0];
  if (!root->op || !is_load(root->op) || of(n, root)->home != VT_KHOME_LEAF || batch >= 0) return;
  const vt_mvalue *ref = root->op->operands[0];
  int64_t at, window = of(n, ref)->array - (int64_t)k->prefetch_count;
  if (ref->op || window < 0 || window >= k->input_count || k->windows[window].whole ||
      !vt_mtype_same_dims(ref->type, root->type) || vt_mop_attr(root->op, VT_MATTR_STRIDES))
    return;
  for (int32_t d = 0; d < ref->type.rank; d++)
    if (!vt_kplan_constant(root->op->operands[1 + d], &at) || at) return;
  s->window_dims[0] = dim_in_array(v, row);
  s->window_dims[1] = dim_in_array(v, column);
  if (s->window_dims[0] == -2 || s->window_dims[1] == -2) return;
  s->window = (int32_t)window;
}

// The product's operands, once their homes are known.
static void plan_sides(planner *n, const vt_mop *op, vt_kproduct *q) {
  for (int i = 0; i < 2; i++) {
    const vt_mvalue *v = q->operands[i];
    vt_kside *s = &q->sides[i];
    int32_t dims[3];
    int64_t strides[VT_MOSAIC_RANK];
    (void)side_dims(op, i, dims);
    bool there = (v->type.dtype == s->dtype || (q->paneled && v->type.dtype == VT_BF16)) &&
                 !s->rounds && resolves(n, v, strides);
    int32_t row = i ? dims[2] : dims[1], column = i ? dims[1] : dims[2];
    s->moved = !there || !lay_out(v->type, dims[0], row, column, strides, s);
    s->window = -1;
    if (!s->moved) s->dtype = v->type.dtype;
    if (!s->moved && q->tiled) find_window(n, v, dims[0], row, column, s);
    if (!s->moved) continue;
    vt_kdense(v->type, strides);
    s->bytes = vt_mtype_elements(v->type) * (int64_t)vt_dtype_bytes(s->dtype);
    (void)lay_out(v->type, dims[0], row, column, strides, s);
  }
}

// ---- homes --------------------------------------------------------------------------------------

// The ops of a block from its last to its first, so that uses are seen before what they use.
static void visit_back(planner *n, const vt_mblock *block, void (*see)(planner *, const vt_mop *)) {
  uint32_t count = 0;
  for (const vt_mop *op = block->first; op; op = op->next) count++;
  const vt_mop **ops = VT_NEW_ARRAY(n->p->arena, const vt_mop *, count + 1);
  for (const vt_mop *op = block->first; op; op = op->next) *ops++ = op;
  while (count-- > 0) see(n, *--ops);
}

// Who uses what; what only dead ops use is dead.
static void see_uses(planner *n, const vt_mop *op) {
  bool live = has_effect(op);
  for (uint32_t b = op->block_count; b-- > 0;) visit_back(n, op->blocks[b], see_uses);
  for (uint32_t i = 0; i < op->result_count; i++) live = live || of(n, &op->results[i])->uses;
  for (uint32_t i = 0; i < op->result_count; i++) of(n, &op->results[i])->live = live;
  for (uint32_t i = 0; live && i < op->operand_count; i++) {
    vt_kvalue *s = of(n, op->operands[i]);
    s->uses++;
    s->user = op;
  }
}

static bool is_live(const planner *n, const vt_mop *op) {
  return has_effect(op) || of(n, &op->results[0])->live;
}

static bool is_end(const vt_mop *op) {
  return op->code == VT_MOP_YIELD || op->code == VT_MOP_CONDITION || op->code == VT_MOP_TPU_YIELD ||
         op->code == VT_MOP_RETURN;
}

static void visit(planner *n, const vt_mblock *block, void (*see)(planner *, const vt_mop *)) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    see(n, op);
    for (uint32_t b = 0; b < op->block_count; b++) visit(n, op->blocks[b], see);
  }
}

static void see_ref(planner *n, const vt_mop *op) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (op->results[i].type.kind == VT_MREF) {
      if (op->block_count || op->result_count > 1)
        n->refused = true;
      else
        plan_ref(n, op);
    }
}

static void see_product(planner *n, const vt_mop *op) {
  if (op->code != VT_MOP_MATMUL || !is_live(n, op)) return;
  vt_kproduct *q = &n->p->products[n->p->product_count];
  if (!plan_product(n, op, q)) return;
  n->p->products_of[op->number] = (int32_t)n->p->product_count++;
}

// The same vector again and again, whole registers of it (jnp.tile): read where it is.
static bool is_tiling(const vt_mop *op) {
  if (op->code != VT_MOP_CONCATENATE) return false;
  for (uint32_t i = 1; i < op->operand_count; i++)
    if (op->operands[i] != op->operands[0]) return false;
  return op->operands[0]->type.dims[vt_mop_i64(op, VT_MATTR_DIMENSION, 0)] % VT_KLANES_MOST == 0;
}

// What the op needs of its operands.
static void see_needs(planner *n, const vt_mop *op) {
  if (!is_live(n, op)) return;
  bool native = is_native(n, op);
  int32_t map[VT_MOSAIC_RANK];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_mvalue *v = op->operands[i];
    vt_kvalue *s = of(n, v);
    if (!is_vector(v)) continue;
    if (!native || (is_store(op) && i > 0)) s->wants_dense = true; // a mask
    if (op->block_count || is_end(op)) s->wants_memory = true;
    if (is_tiling(op)) s->wants_memory = true;
    if (op->code == VT_MOP_BROADCAST &&
        vt_mtype_elements(v->type) != vt_mtype_elements(op->results[0].type))
      s->wants_memory = true;
    if (is_cast(op) && native && !vt_kplan_unit_cast(v->type, op->results[0].type, map))
      s->wants_dense = true;
    if (op->code == VT_MOP_MATMUL && native && i < 2) {
      const vt_kproduct *q = vt_kplan_product(n->p, op);
      const vt_kside *side = &q->sides[i];
      if (side->dtype == q->operands[i]->type.dtype && !side->rounds)
        of(n, q->operands[i])->wants_memory = true;
    }
  }
}

// Whether `user` computes the operand where it uses it, once.
static bool takes_inline(const planner *n, const vt_mop *user, const vt_mblock *block) {
  for (;;) {
    if (user->block != block || !is_native(n, user) || user->block_count || is_end(user))
      return false;
    if (!is_cast(user) && user->code != VT_MOP_EXTRACT_SLICE) break;
    const vt_kvalue *s = of(n, &user->results[0]);
    if (s->uses != 1 || s->wants_memory || s->wants_dense) return false;
    user = s->user;
  }
  if (is_load(user)) return false;
  return user->code != VT_MOP_BROADCAST;
}

static bool operands_free(const planner *n, const vt_mop *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (is_vector(op->operands[i]) && !of(n, op->operands[i])->free) return false;
  return true;
}

static void choose_load(planner *n, const vt_mop *op) {
  vt_kvalue *s = of(n, &op->results[0]);
  vt_mtype type = op->results[0].type;
  (void)block_strides(n, op, op->operands[0], s->strides);
  bool dense = is_dense(type, s->strides);
  bool inside = block_inside(n, op, op->operands[0], op->operands + 1, type);
  bool narrow = vt_klanes_memory(type.dtype) != type.dtype;
  s->home = VT_KHOME_LEAF;
  s->dynamic = !inside;
  if ((s->wants_dense || !inside) && !dense) s->home = VT_KHOME_MEMORY;
  if (narrow && s->home == VT_KHOME_MEMORY && !inside) s->home = VT_KHOME_MEMORY;
}

// How many ops without a home are computed together for this one's result.
static uint32_t depth_of(const planner *n, const vt_mop *op) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_kvalue *s = of(n, op->operands[i]);
    bool counts = s->home == VT_KHOME_INLINE || s->home == VT_KHOME_ALIAS;
    if (is_vector(op->operands[i]) && counts && s->depth > most) most = s->depth;
  }
  return most + 1;
}

static void choose_home(planner *n, const vt_mop *op) {
  if (!is_live(n, op)) return;
  if (op->block_count) {
    for (uint32_t i = 0; i < op->result_count; i++)
      if (is_vector(&op->results[i])) of(n, &op->results[i])->home = VT_KHOME_MEMORY;
    for (uint32_t b = 0; b < op->block_count; b++)
      for (uint32_t i = 0; i < op->blocks[b]->arg_count; i++)
        if (is_vector(&op->blocks[b]->args[i]))
          of(n, &op->blocks[b]->args[i])->home = VT_KHOME_MEMORY;
    return;
  }
  if (is_store(op)) n->p->native_stores[op->number] = is_native(n, op);
  if (op->result_count != 1 || !is_vector(&op->results[0])) return;
  vt_kvalue *s = of(n, &op->results[0]);
  s->home = VT_KHOME_MEMORY;
  s->native = is_native(n, op);
  if (!s->native) return;
  if (s->sum) {
    s->home = VT_KHOME_SUM;
    return;
  }
  if (is_load(op)) {
    s->loads = true;
    choose_load(n, op);
    return;
  }
  s->depth = depth_of(n, op);
  bool deep = s->depth > MOST_DEEP, wanted = s->wants_memory || s->wants_dense;
  int32_t map[VT_MOSAIC_RANK];
  if (is_cast(op)) {
    const vt_mvalue *from = op->operands[0];
    const vt_kvalue *f = of(n, from);
    bool unit = vt_kplan_unit_cast(from->type, op->results[0].type, map);
    bool dense = f->home == VT_KHOME_MEMORY || f->home == VT_KHOME_ALIAS ||
                 (f->home == VT_KHOME_LEAF && is_dense(from->type, f->strides));
    if (deep) n->refused = true; // casts of casts
    if (dense) {
      s->home = VT_KHOME_ALIAS;
      return;
    }
    if (!unit) n->refused = true; // wants_dense has seen to it
    s->free = f->free;
    int64_t strides[VT_MOSAIC_RANK];
    if (f->free || (!s->wants_dense && resolves(n, from, strides)) || !wanted)
      s->home = VT_KHOME_INLINE;
    if (f->free && s->wants_dense) s->home = VT_KHOME_MEMORY;
    return;
  }
  switch (op->code) {
  case VT_MOP_MATMUL:
  case VT_MOP_MULTI_REDUCTION:
    return;
  case VT_MOP_CONCATENATE:
    if (!is_tiling(op)) return;
    s->free = s->depth <= MOST_FREE && operands_free(n, op);
    if (!deep && !wanted) s->home = VT_KHOME_INLINE;
    return;
  case VT_MOP_CONSTANT:
  case VT_MOP_IOTA:
    s->free = true;
    break;
  case VT_MOP_BROADCAST:
    s->free = s->depth <= MOST_FREE && operands_free(n, op);
    break;
  case VT_MOP_EXTRACT_SLICE:
    s->free = s->depth <= MOST_FREE && operands_free(n, op);
    break;
  default:
    s->free = s->depth <= MOST_FREE && vt_klanes_cheap(op) && operands_free(n, op);
    if (!s->free && (wanted || s->uses != 1 || !takes_inline(n, s->user, op->block))) return;
    break;
  }
  if (!deep && !s->wants_dense && (s->free || !s->wants_memory)) s->home = VT_KHOME_INLINE;
}

// ---- sums with products -------------------------------------------------------------------------

const vt_mvalue *vt_kplan_addend(const vt_mvalue *sum, const vt_kproduct *q) {
  const vt_mvalue *first = sum->op->operands[0];
  return first->op && first->op->number == q->op ? sum->op->operands[1] : first;
}

static bool is_only_used_here(const planner *n, const vt_mvalue *v, const vt_mblock *block) {
  return v->op && v->op->block == block && of(n, v)->uses == 1;
}

// A store of a sum, one of whose sides is a product that nothing else uses: the product is computed
// into the store's place, on top of the other side.
static void see_sum(planner *n, const vt_mop *op) {
  int64_t strides[VT_MOSAIC_RANK];
  if (op->code != VT_MOP_STORE_VECTOR || !is_native(n, op) || vt_mop_optional(op, 3)) return;
  const vt_mvalue *v = op->operands[0], *ref = op->operands[1];
  int64_t window = of(n, ref)->array - (int64_t)n->p->kernel->prefetch_count;
  bool operand = window < n->p->kernel->input_count; // may be read-only
  if (operand || !is_only_used_here(n, v, op->block) || v->op->code != VT_MOP_ADDF ||
      v->type.rank != 2 || !block_strides(n, op, ref, strides) || strides[1] != 1 ||
      !block_inside(n, op, ref, op->operands + 2, v->type))
    return;
  for (int i = 1; i >= 0; i--) {
    const vt_mvalue *side = v->op->operands[i];
    int32_t number =
        is_only_used_here(n, side, op->block) ? n->p->products_of[side->op->number] : -1;
    if (number < 0) continue;
    vt_kproduct *q = &n->p->products[number];
    if (q->adds || q->batch != 1 || q->m != v->type.dims[0]) continue;
    q->adds = true;
    q->row = strides[0];
    n->p->products_of[op->number] = number;
    of(n, v)->sum = of(n, side)->sum = true;
    return;
  }
}

// ---- reductions of what is made for them --------------------------------------------------------

// A vector with memory whose first use is a reduction right after it: one loop makes and reduces
// it.
static void see_reduction(planner *n, const vt_mop *op) {
  vt_kvalue *s = op->result_count == 1 ? of(n, &op->results[0]) : NULL;
  if (!is_live(n, op) || !s || s->home != VT_KHOME_MEMORY || !s->native || s->loads ||
      op->code == VT_MOP_MATMUL || op->code == VT_MOP_MULTI_REDUCTION ||
      op->code == VT_MOP_CONCATENATE || op->block_count)
    return;
  const vt_mop *next = op->next;
  for (; next; next = next->next) {
    if (!is_live(n, next)) continue;
    if (next->result_count != 1 || next->block_count) return;
    const vt_kvalue *r = of(n, &next->results[0]);
    if (is_vector(&next->results[0]) && (r->home == VT_KHOME_MEMORY || r->home == VT_KHOME_SUM))
      break;
  }
  if (!next || next->code != VT_MOP_MULTI_REDUCTION || next->operands[0] != &op->results[0] ||
      !of(n, &next->results[0])->native)
    return;
  s->reduction = next;
}

// ---- lifetimes ----------------------------------------------------------------------------------

static bool is_loop(const vt_mop *op) {
  return op->code == VT_MOP_FOR || op->code == VT_MOP_WHILE;
}

// The last moment at which a value of `block` is read by what happens at `at` in `user`'s place:
// the end of the loops between them, which run again.
static uint32_t extended(const vt_mop *user, const vt_mblock *block, uint32_t at) {
  for (const vt_mblock *b = user->block; b && b != block; b = b->owner ? b->owner->block : NULL)
    if (b->owner && is_loop(b->owner) && b->owner->end > at) at = b->owner->end;
  return at;
}

static bool passes_on(const planner *n, const vt_mop *op) {
  if (op->block_count || op->result_count != 1 || !is_vector(&op->results[0])) return false;
  vt_khome home = of(n, &op->results[0])->home;
  return home == VT_KHOME_INLINE || home == VT_KHOME_ALIAS || home == VT_KHOME_SUM;
}

static void see_lasts(planner *n, const vt_mop *op) {
  if (!is_live(n, op)) return;
  for (uint32_t b = op->block_count; b-- > 0;) visit_back(n, op->blocks[b], see_lasts);
  const vt_mop *reduction = op->result_count == 1 ? of(n, &op->results[0])->reduction : NULL;
  uint32_t at = passes_on(n, op) ? of(n, &op->results[0])->last
                : reduction      ? reduction->number
                                 : op->number;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_kvalue *s = of(n, op->operands[i]);
    uint32_t last = extended(op, op->operands[i]->block, at);
    if (last > s->last) s->last = last;
  }
  const vt_kproduct *q = op->code == VT_MOP_MATMUL ? vt_kplan_product(n->p, op) : NULL;
  for (int i = 0; q && i < 2; i++) {
    vt_kvalue *s = of(n, q->operands[i]);
    uint32_t last = extended(op, q->operands[i]->block, at);
    if (last > s->last) s->last = last;
  }
}

// ---- reads in place -----------------------------------------------------------------------------

enum { NOTHING = -1, ANYTHING = -2 };

// What the op writes: the number of an array, or one of the above. While a machine waits, another
// may copy to any of its arrays.
static int32_t written(const planner *n, const vt_mop *op) {
  switch (op->code) {
  case VT_MOP_VECTOR_STORE:
  case VT_MOP_STORE_VECTOR:
  case VT_MOP_STRIDED_STORE:
  case VT_MOP_STORE:
    return of(n, op->operands[1])->array;
  case VT_MOP_ENQUEUE_DMA:
    return of(n, vt_mop_optional(op, 2))->array;
  case VT_MOP_SEM_WAIT:
  case VT_MOP_WAIT_DMA2:
    return vt_mosaic_meets(n->p->kernel) ? ANYTHING : NOTHING;
  default:
    return NOTHING;
  }
}

// Operands and results of the call may share memory.
static bool same_memory(const planner *n, int32_t a, int32_t b) {
  const vt_mosaic *k = n->p->kernel;
  if (a == b || a == ANYTHING) return true;
  int64_t i = a - (int64_t)k->prefetch_count, j = b - (int64_t)k->prefetch_count;
  return i >= 0 && j >= 0 && i < k->window_count && j < k->window_count && k->windows[i].whole &&
         k->windows[j].whole;
}

static bool same_scalar(const vt_mvalue *a, const vt_mvalue *b) {
  int64_t x, y;
  return a == b || (vt_kplan_constant(a, &x) && vt_kplan_constant(b, &y) && x == y);
}

// Whether the load is read where `v` is computed.
static bool reaches(const planner *n, const vt_mvalue *v, const vt_mvalue *load) {
  const vt_kvalue *s = of(n, v);
  if (v == load) return true;
  if (!is_vector(v) || s->home == VT_KHOME_MEMORY || s->free || !v->op) return false;
  for (uint32_t i = 0; i < v->op->operand_count; i++)
    if (reaches(n, v->op->operands[i], load)) return true;
  return false;
}

// Each element of `v` at the same place as that of the load: elementwise ops only.
static bool keeps_places(const planner *n, const vt_mvalue *v, const vt_mvalue *load) {
  if (v == load) return true;
  const vt_kvalue *s = of(n, v);
  int32_t map[VT_MOSAIC_RANK];
  if (!is_vector(v) || s->home == VT_KHOME_MEMORY || s->free) return true;
  if (s->home == VT_KHOME_LEAF) return true; // another load
  if (s->home == VT_KHOME_SUM && v->op->code == VT_MOP_MATMUL) return !reaches(n, v, load);
  if (!v->op || v->op->code == VT_MOP_BROADCAST || v->op->code == VT_MOP_EXTRACT_SLICE ||
      v->op->code == VT_MOP_CONCATENATE)
    return v->op && !reaches(n, v, load);
  if (is_cast(v->op) && !vt_kplan_unit_cast(v->op->operands[0]->type, v->type, map))
    return !reaches(n, v, load);
  for (uint32_t i = 0; i < v->op->operand_count; i++)
    if (!keeps_places(n, v->op->operands[i], load)) return false;
  return true;
}

// A store over just the elements that the load reads, each after it is read.
static bool in_place(const planner *n, const vt_mop *store, const vt_mop *load) {
  const vt_mvalue *a = load->operands[0], *b = store->operands[1];
  if (a != b || !is_store(store) ||
      vt_mop_attr(store, VT_MATTR_STRIDES) != vt_mop_attr(load, VT_MATTR_STRIDES)) {
    const vt_mattr *s = vt_mop_attr(store, VT_MATTR_STRIDES),
                   *l = vt_mop_attr(load, VT_MATTR_STRIDES);
    if (a != b || !is_store(store) || (s && s->count) || (l && l->count)) return false;
  }
  for (int32_t d = 0; d < a->type.rank; d++)
    if (!same_scalar(load->operands[1 + d], store->operands[2 + d])) return false;
  if (store->code == VT_MOP_STORE_VECTOR && vt_mop_optional(store, 3)) return false;
  vt_kvalue *r = of(n, b);
  bool inside = block_inside(n, store, b, store->operands + 2, store->operands[0]->type);
  return r->plain && inside &&
         vt_mtype_same_dims(load->results[0].type, store->operands[0]->type) &&
         keeps_places(n, store->operands[0], &load->results[0]);
}

typedef struct writes {
  uint32_t count;
  const vt_mop **ops;
} writes;

static void find_writes(const planner *n, const vt_mblock *block, writes *w) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (written(n, op) != NOTHING && w->ops) w->ops[w->count] = op;
    if (written(n, op) != NOTHING) w->count++;
    for (uint32_t b = 0; b < op->block_count; b++) find_writes(n, op->blocks[b], w);
  }
}

// Loads whose array is written before they are used for the last time get memory of their own.
static void see_clobbered(planner *n, const vt_mop *op, const writes *w) {
  vt_kvalue *s = of(n, &op->results[0]);
  int32_t array = of(n, op->operands[0])->array;
  for (uint32_t i = 0; i < w->count && s->home == VT_KHOME_LEAF; i++) {
    const vt_mop *write = w->ops[i];
    bool between = write->number > op->number && write->number <= s->last;
    if (!between || !same_memory(n, written(n, write), array)) continue;
    if (write->number == s->last && in_place(n, write, op)) continue;
    s->home = VT_KHOME_MEMORY;
  }
}

static void visit_clobbered(planner *n, const vt_mblock *block, const writes *w) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (is_load(op) && of(n, &op->results[0])->home == VT_KHOME_LEAF) see_clobbered(n, op, w);
    for (uint32_t b = 0; b < op->block_count; b++) visit_clobbered(n, op->blocks[b], w);
  }
}

// ---- all ----------------------------------------------------------------------------------------

static void see_sides(planner *n, const vt_mop *op) {
  int32_t number = n->p->products_of[op->number];
  if (number < 0) return;
  vt_kproduct *q = &n->p->products[number];
  if (op->code == VT_MOP_MATMUL) {
    plan_sides(n, op, q);
    return;
  }
  const vt_mvalue *addend = vt_kplan_addend(op->operands[0], q);
  q->there = addend->op && is_load(addend->op) && of(n, addend)->home == VT_KHOME_LEAF &&
             in_place(n, op, addend->op);
}

// ---- for kernel_strips.c and kernel_memory.c ----------------------------------------------------

bool vt_kplan_is_live(const vt_kplan *p, const vt_mop *op) {
  return has_effect(op) || vt_kvalue_of(p, &op->results[0])->live;
}
bool vt_kplan_is_load(const vt_mop *op) {
  return is_load(op);
}
bool vt_kplan_is_store(const vt_mop *op) {
  return is_store(op);
}
bool vt_kplan_is_cast(const vt_mop *op) {
  return is_cast(op);
}
bool vt_kplan_has_steps(const vt_mop *op) {
  const vt_mattr *steps = vt_mop_attr(op, VT_MATTR_STRIDES);
  return steps && steps->count;
}
bool vt_kplan_keeps_places(const vt_kplan *p, const vt_mvalue *v, const vt_mvalue *u) {
  planner n = {.p = (vt_kplan *)(uintptr_t)p};
  return keeps_places(&n, v, u);
}
bool vt_kplan_same_scalar(const vt_mvalue *a, const vt_mvalue *b) {
  return same_scalar(a, b);
}
int32_t vt_kplan_free_dim(const vt_mop *op, int side) {
  int32_t dims[3];
  return side_dims(op, side, dims) ? dims[1] : -1;
}
bool vt_kplan_block_inside(const vt_kplan *p, const vt_mop *op) {
  planner n = {.p = (vt_kplan *)(uintptr_t)p};
  bool store = is_store(op);
  return block_inside(&n, op, op->operands[store], op->operands + 1 + store,
                      store ? op->operands[0]->type : op->results[0].type);
}

// Values of a loop that move to another place in the next turn would be overwritten.
static void see_turns(planner *n, const vt_mop *op) {
  if (!is_end(op) || !op->block->owner || !is_loop(op->block->owner)) return;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_mvalue *v = op->operands[i];
    if (!is_vector(v)) continue;
    while (v->op && of(n, v)->home == VT_KHOME_ALIAS) v = v->op->operands[0];
    bool arg = !v->op && v->block == op->block && op->block->owner->code == VT_MOP_FOR;
    if (arg && v != &op->block->args[i + 1]) n->refused = true; // also as another shape
  }
}

static void plan_func(planner *n, const vt_mfunc *func) {
  const vt_mosaic *k = n->p->kernel;
  writes w = {0};
  n->func = func;
  for (uint32_t i = k->grid_rank; i < func->block->arg_count; i++)
    if (func->block->args[i].type.kind == VT_MREF)
      root_ref(n, &func->block->args[i], (int32_t)(i - k->grid_rank));
  visit(n, func->block, see_ref);
  visit_back(n, func->block, see_uses);
  visit(n, func->block, see_product);
  visit(n, func->block, see_sum);
  visit(n, func->block, see_needs);
  visit(n, func->block, choose_home);
  visit(n, func->block, see_reduction);
  visit_back(n, func->block, see_lasts);
  find_writes(n, func->block, &w);
  w.ops = VT_NEW_ARRAY(n->p->arena, const vt_mop *, w.count + 1);
  w.count = 0;
  find_writes(n, func->block, &w);
  visit_clobbered(n, func->block, &w);
  visit(n, func->block, see_sides);
  visit(n, func->block, see_turns);
}

bool vt_kplan_make(vt_kplan *p) {
  const vt_mosaic *k = p->kernel;
  planner n = {.p = p};
  p->values = VT_NEW_ARRAY(p->arena, vt_kvalue, k->slot_count + 1);
  p->products_of = VT_NEW_ARRAY(p->arena, int32_t, k->op_count + 1);
  p->temps = VT_NEW_ARRAY(p->arena, int64_t, k->op_count + 1);
  p->native_stores = VT_NEW_ARRAY(p->arena, bool, k->op_count + 1);
  p->products = VT_NEW_ARRAY(p->arena, vt_kproduct, k->op_count + 1);
  p->strip_of = VT_NEW_ARRAY(p->arena, int32_t, k->op_count + 1);
  p->strips = VT_NEW_ARRAY(p->arena, vt_kstrip, k->op_count + 1);
  for (uint32_t i = 0; i < k->op_count; i++) p->products_of[i] = p->strip_of[i] = -1;
  for (uint32_t i = 0; i < k->func_count && !n.refused; i++) plan_func(&n, &k->funcs[i]);
  if (n.refused) return false;
  vt_kplan_grid(p);
  vt_kplan_levels(p);
  for (uint32_t i = 0; i < k->func_count; i++) vt_kplan_place(p, &k->funcs[i]);
  return true;
}
