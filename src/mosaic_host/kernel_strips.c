// SPDX-License-Identifier: Apache-2.0
// kernel_strips.c - ops that are computed together for some rows at a time.
//
// A block of VMEM is far larger than a core's first cache: attention's scores are a megabyte. Ops
// that follow each other, each of which needs, for some rows of its result, the same rows of what
// the others made, are computed in turns of a few rows: values that only they use need memory for
// so many rows. Such are elementwise ops, reductions and broadcasts along rows, loads and stores of
// the same rows, and products whose left side has these rows and whose right side is there before.
//
// 1. A value made in the strip is used in the strip at the same rows only.
// 2. What a store of the strip writes, its loads read at the same rows or not at all.
// 3. Scalars, addresses and right sides are computed before the first turn.
#include "mosaic_host/kernel.h"

enum { MOST_STEP = 32, LEAST_STEP = 8, STRIP_BYTES = 512 << 10, MIN_ELEMENTS = 8 << 10 };

typedef struct finder {
  vt_kplan *p;
  const vt_mfunc *func;
  const vt_mblock *block;
  const vt_mop *first, *last; // of the strip so far, or NULL
  int64_t rows;               // 0: not known yet
  uint32_t nests;             // loops that it would have
  int64_t elements;
  bool products; // may be in strips
} finder;

static const vt_kvalue *of(const finder *f, const vt_mvalue *v) {
  return vt_kvalue_of(f->p, v);
}

static bool is_vector(const vt_mvalue *v) {
  return v->type.kind == VT_MVECTOR;
}

int32_t vt_kplan_row_dim(vt_mtype type) {
  int32_t d = 0;
  while (d < type.rank - 1 && type.dims[d] == 1) d++;
  return d;
}

static bool has_rows(finder *f, vt_mtype type) {
  if (type.rank < 1) return false;
  int64_t rows = type.dims[vt_kplan_row_dim(type)];
  if (!f->rows && rows >= 2 * LEAST_STEP && rows % LEAST_STEP == 0) f->rows = rows;
  return f->rows && rows == f->rows;
}

static bool is_inside(const finder *f, const vt_mop *op) {
  return f->first && op && op->block == f->block && op->number >= f->first->number;
}

// Whether the value rests on memory that the strip fills, through values without a home.
static bool is_made(const finder *f, const vt_mvalue *v) {
  if (!is_vector(v) || !is_inside(f, v->op)) return false;
  const vt_kvalue *s = of(f, v);
  if (s->loads) return s->home == VT_KHOME_MEMORY;
  if (s->home == VT_KHOME_MEMORY || s->home == VT_KHOME_SUM) return true;
  for (uint32_t i = 0; i < v->op->operand_count; i++)
    if (is_made(f, v->op->operands[i])) return true;
  return false;
}

// ---- loads and stores ---------------------------------------------------------------------------

static const vt_mvalue *ref_of(const vt_mop *op) {
  return op->operands[vt_kplan_is_store(op) ? 1 : 0];
}
static vt_mtype block_of(const vt_mop *op) {
  return vt_kplan_is_store(op) ? op->operands[0]->type : op->results[0].type;
}

// Operands and results of the call may share memory.
static bool same_memory(const finder *f, const vt_mop *a, const vt_mop *b) {
  const vt_mosaic *k = f->p->kernel;
  int64_t first = k->prefetch_count, i = of(f, ref_of(a))->array - first,
          j = of(f, ref_of(b))->array - first;
  if (i == j) return true;
  return i >= 0 && j >= 0 && i < k->window_count && j < k->window_count && k->windows[i].whole &&
         k->windows[j].whole;
}

static bool same_rows(const vt_mop *a, const vt_mop *b) {
  vt_mtype x = block_of(a), y = block_of(b);
  int32_t d = vt_kplan_row_dim(x);
  if (ref_of(a) != ref_of(b) || vt_kplan_has_steps(a) || vt_kplan_has_steps(b) ||
      d != vt_kplan_row_dim(y) || x.dims[d] != y.dims[d])
    return false;
  const vt_mvalue *i = a->operands[(vt_kplan_is_store(a) ? 2 : 1) + d],
                  *j = b->operands[(vt_kplan_is_store(b) ? 2 : 1) + d];
  return vt_kplan_same_scalar(i, j);
}

// Whether a load (or store) of the strip and all of its stores agree about rows.
static bool agrees_with_stores(const finder *f, const vt_mop *op) {
  for (const vt_mop *s = f->first; s && s != op; s = s->next)
    if (vt_kplan_is_store(s) && same_memory(f, s, op) && !same_rows(s, op)) return false;
  return true;
}

// Loads that are read in place may stand before the strip, in blocks around it.
static bool agrees_with_loads(const finder *f, const vt_mblock *block, const vt_mop *store) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    for (uint32_t b = 0; b < op->block_count; b++)
      if (!agrees_with_loads(f, op->blocks[b], store)) return false;
    if (!vt_kplan_is_load(op) || !vt_kplan_is_live(f->p, op) || !same_memory(f, op, store))
      continue;
    const vt_kvalue *s = of(f, &op->results[0]);
    bool before = op->number < f->first->number;
    if (op->number > store->number || (before && s->home != VT_KHOME_LEAF) ||
        (before && s->last < f->first->number))
      continue;
    if (!same_rows(op, store)) return false;
  }
  return true;
}

static bool stores_to(const finder *f, const vt_mvalue *ref) {
  for (const vt_mop *s = f->first; s; s = s->next)
    if ((vt_kplan_is_store(s) || s->code == VT_MOP_STORE) &&
        of(f, s->operands[1])->array == of(f, ref)->array && s->number <= f->last->number)
      return true;
  return false;
}

// ---- ops ----------------------------------------------------------------------------------------

// Whether all of the value can be read before the first turn.
static bool is_there(const finder *f, const vt_mvalue *v) {
  const vt_kvalue *s = of(f, v);
  if (v->type.kind == VT_MREF) return true;
  if (!is_vector(v) || !v->op) return true;
  if (s->loads)
    return s->home == VT_KHOME_LEAF ? !f->first || !stores_to(f, v->op->operands[0])
                                    : !is_inside(f, v->op);
  if (s->home == VT_KHOME_MEMORY || s->home == VT_KHOME_SUM) return !is_inside(f, v->op);
  for (uint32_t i = 0; i < v->op->operand_count; i++)
    if (!is_there(f, v->op->operands[i])) return false;
  return true;
}

static bool fits_product(finder *f, const vt_mop *op) {
  const vt_kproduct *q = vt_kplan_product(f->p, op);
  if (!q || !q->tiled || !f->products || q->batch != 1 || op->code != VT_MOP_MATMUL) return false;
  const vt_mvalue *left = q->operands[0], *sum = op->operands[2];
  int32_t d = vt_kplan_free_dim(op, 0);
  if (!has_rows(f, op->results[0].type) || q->m != f->rows || d < 0 ||
      d != vt_kplan_row_dim(left->type) || !has_rows(f, left->type) || !is_there(f, q->operands[1]))
    return false;
  return !is_made(f, sum) || has_rows(f, sum->type);
}

static bool fits_reduction(finder *f, const vt_mop *op) {
  const vt_mvalue *from = op->operands[0];
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_REDUCTION_DIMS);
  int32_t d = vt_kplan_row_dim(from->type), left = d;
  if (!has_rows(f, from->type)) return false;
  if (of(f, from)->reduction == op && !is_inside(f, from->op)) return false; // made here
  for (uint32_t i = 0; i < dims->count; i++) {
    if (dims->ints[i] == d) return false;
    left -= dims->ints[i] < d;
  }
  return has_rows(f, op->results[0].type) && vt_kplan_row_dim(op->results[0].type) == left;
}

// Where the rows of an operand that the strip makes must be, for those of the result.
static bool fits_operand(finder *f, const vt_mop *op, const vt_mvalue *v) {
  vt_mtype from = v->type, to = op->results[0].type;
  int32_t d = vt_kplan_row_dim(to), map[VT_MOSAIC_RANK];
  if (!has_rows(f, from)) return false;
  if (vt_kplan_is_cast(op))
    return vt_kplan_unit_cast(from, to, map) && map[d] == vt_kplan_row_dim(from);
  if (op->code == VT_MOP_BROADCAST)
    return vt_kplan_row_dim(from) + to.rank - from.rank == d &&
           from.dims[vt_kplan_row_dim(from)] == f->rows;
  if (op->code == VT_MOP_CONCATENATE)
    return vt_mop_i64(op, VT_MATTR_DIMENSION, 0) != d && vt_kplan_row_dim(from) == d;
  if (op->code == VT_MOP_EXTRACT_SLICE)
    return vt_kplan_row_dim(from) == d && vt_mop_attr(op, VT_MATTR_OFFSETS)->ints[d] == 0;
  return vt_mtype_same_dims(from, to);
}

typedef enum fit { ENDS, BEFORE, MEMBER } fit;

static fit fit_vector(finder *f, const vt_mop *op) {
  const vt_kvalue *s = of(f, &op->results[0]);
  bool made = false;
  if (!s->native) return ENDS;
  if (op->code == VT_MOP_MATMUL) return fits_product(f, op) ? MEMBER : ENDS;
  for (uint32_t i = 0; i < op->operand_count; i++) made = made || is_made(f, op->operands[i]);
  if (s->home != VT_KHOME_MEMORY && !made) return BEFORE;
  if (op->code == VT_MOP_MULTI_REDUCTION) return fits_reduction(f, op) ? MEMBER : ENDS;
  if (!has_rows(f, op->results[0].type)) return ENDS;
  // It may have loops over each of its operands.
  bool parts = op->code == VT_MOP_CONCATENATE && s->home == VT_KHOME_MEMORY;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if ((parts || is_made(f, op->operands[i])) && !fits_operand(f, op, op->operands[i]))
      return ENDS;
  return MEMBER;
}

static fit fit_load(finder *f, const vt_mop *op) {
  const vt_kvalue *s = of(f, &op->results[0]);
  if (!s->native || s->dynamic || !vt_kplan_block_inside(f->p, op)) return ENDS;
  if (f->first && !agrees_with_stores(f, op)) return ENDS;
  if (s->home == VT_KHOME_LEAF) return BEFORE;
  return has_rows(f, op->results[0].type) ? MEMBER : ENDS;
}

static fit fit_store(finder *f, const vt_mop *op) {
  const vt_mosaic *k = f->p->kernel;
  int64_t window = of(f, op->operands[1])->array - (int64_t)k->prefetch_count;
  bool masked = op->code == VT_MOP_STORE_VECTOR && vt_mop_optional(op, 3);
  const vt_kproduct *sum = vt_kplan_product(f->p, op);
  if (!f->p->native_stores[op->number] || masked || window < k->input_count ||
      !vt_kplan_block_inside(f->p, op) || !has_rows(f, op->operands[0]->type) ||
      (sum && !is_inside(f, k->ops[sum->op])))
    return ENDS;
  if (f->first && (!agrees_with_stores(f, op) || !agrees_with_loads(f, f->func->block, op)))
    return ENDS;
  return MEMBER;
}

static fit fit_of(finder *f, const vt_mop *op) {
  if (op->block_count) return ENDS;
  if (vt_kplan_is_load(op)) return fit_load(f, op);
  if (vt_kplan_is_store(op)) return fit_store(f, op);
  if (op->result_count != 1) return ENDS;
  const vt_mvalue *v = &op->results[0];
  if (is_vector(v)) return fit_vector(f, op);
  if (v->type.kind == VT_MREF) return BEFORE;
  if (op->code == VT_MOP_LOAD) return f->first && stores_to(f, op->operands[0]) ? ENDS : BEFORE;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->type.kind != VT_MSCALAR) return ENDS;
  return vt_klanes_has(op) || op->code == VT_MOP_CONSTANT || op->code == VT_MOP_ASSUME_MULTIPLE
             ? BEFORE
             : ENDS;
}

// ---- strips -------------------------------------------------------------------------------------

static int64_t row_bytes(vt_mtype type, int64_t rows) {
  return vt_mtype_bytes(type) / rows;
}

// The values that only the strip uses need memory for some rows.
static int64_t choose_locals(finder *f) {
  int64_t bytes = 0;
  for (const vt_mop *op = f->first;; op = op->next) {
    vt_kvalue *s = op->result_count == 1 ? vt_kvalue_of(f->p, &op->results[0]) : NULL;
    if (s && vt_kplan_is_live(f->p, op) && is_vector(&op->results[0]) &&
        s->home == VT_KHOME_MEMORY) {
      s->local = s->last <= f->last->number;
      if (s->local) bytes += row_bytes(op->results[0].type, f->rows);
    }
    if (op == f->last) return bytes;
  }
}

// A value that only a product of the strip reads, as its left side, is made in the product's order.
static void lay_left(finder *f, const vt_mop *op, int64_t step) {
  int32_t number = op->code == VT_MOP_MATMUL ? f->p->products_of[op->number] : -1;
  if (number < 0 || !vt_kplan_is_live(f->p, op)) return;
  vt_kproduct *q = &f->p->products[number];
  const vt_mvalue *v = q->operands[0], *operand = op->operands[0];
  vt_kvalue *s = vt_kvalue_of(f->p, v);
  bool alone =
      s->uses == 1u + (s->reduction != NULL) && (v == operand || of(f, operand)->uses == 1);
  bool emitted = of(f, &op->results[0])->home == VT_KHOME_MEMORY ||
                 of(f, &op->results[0])->last <= f->last->number; // here, not after the strip
  if (!v->op || v->op->code == VT_MOP_CONCATENATE || v->op->code == VT_MOP_MATMUL ||
      v->op->code == VT_MOP_MULTI_REDUCTION || q->sides[0].moved || s->loads || !s->local ||
      s->home != VT_KHOME_MEMORY || !alone || !emitted || v->type.rank != 2 ||
      v->type.dims[1] % 32 || step % 16)
    return;
  s->laid = q->laid = true;
}

static void close_strip(finder *f) {
  const vt_mop *first = f->first, *last = f->last;
  int64_t step = MOST_STEP;
  if (first && f->nests > 1 && f->elements >= MIN_ELEMENTS) {
    int64_t bytes = choose_locals(f);
    while (step > LEAST_STEP &&
           (f->rows % step || (bytes * step > STRIP_BYTES && step > MOST_STEP / 2)))
      step /= 2;
    for (const vt_mop *op = first;; op = op->next) {
      lay_left(f, op, step);
      if (op == last) break;
    }
    f->p->strips[f->p->strip_count] = (vt_kstrip){first, last, f->rows, step};
    for (const vt_mop *op = first;; op = op->next) {
      f->p->strip_of[op->number] = (int32_t)f->p->strip_count;
      if (op == last) break;
    }
    f->p->strip_count++;
  }
  f->first = f->last = NULL;
  f->rows = f->elements = 0;
  f->nests = 0;
}

static void see_op(finder *f, const vt_mop *op) {
  if (!vt_kplan_is_live(f->p, op)) return;
  fit how = fit_of(f, op);
  if (how == ENDS && f->first) {
    close_strip(f);
    how = fit_of(f, op);
  }
  if (how != MEMBER) {
    if (!f->first) f->rows = 0;
    return;
  }
  if (!f->first) f->first = op;
  f->last = op;
  const vt_kvalue *s = op->result_count ? of(f, &op->results[0]) : NULL;
  if (s && s->home != VT_KHOME_MEMORY) return;
  f->nests++;
  f->elements += vt_mtype_elements(s ? op->results[0].type : op->operands[0]->type);
}

static void see_block(finder *f, const vt_mblock *block) {
  const vt_mblock *outer = f->block;
  close_strip(f);
  f->block = block;
  for (const vt_mop *op = block->first; op; op = op->next) {
    see_op(f, op);
    for (uint32_t b = 0; b < op->block_count; b++) see_block(f, op->blocks[b]);
    f->block = block;
  }
  close_strip(f);
  f->block = outer;
}

void vt_kplan_strips(vt_kplan *p, const vt_mfunc *func) {
  finder f = {.p = p, .func = func, .products = p->shared};
  see_block(&f, func->block);
}
