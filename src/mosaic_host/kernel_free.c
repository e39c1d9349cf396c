// SPDX-License-Identifier: Apache-2.0
// kernel_free.c - which leading dimensions of a kernel's grid may run in any order on machines of
// their own, and which input blocks nothing writes into.
//
// Points along a dimension are independent, whether the program says so ("parallel") or not, where
// nothing in the kernel could tell: no other machine to wait for, no copies, semaphores,
// random numbers or prints; each result's block moves along with the dimension; and scratch holds
// nothing from one point of it to the next, because the first thing that happens to it there is
// that it is filled. A result whose block does not know of the dimension is scratch too (so some
// kernels make it): what the last point leaves there is the result. Where a table says which block
// a point makes (megablox), the table is asked when the kernel runs.
#include "mosaic_host/kernel.h"

typedef struct finder {
  vt_kplan *p;
  bool bound;       // something in it depends on the order
  bool *written;    // by array
  uint32_t *filled; // by array, 0: not yet seen; 1: filled first; 2: used first
  uint32_t free_dims;
  bool asks; // blocks of results may be known at run time only
} finder;

static bool is_ordered(const vt_mop *op) {
  switch (op->code) {
  case VT_MOP_ENQUEUE_DMA:
  case VT_MOP_WAIT_DMA2:
  case VT_MOP_SEM_SIGNAL:
  case VT_MOP_SEM_WAIT:
  case VT_MOP_SEM_READ:
  case VT_MOP_SEED:
  case VT_MOP_RANDOM:
  case VT_MOP_LOG_VALUES:
  case VT_MOP_LOG_BUFFER:
  case VT_MOP_ASSERT:
    return true;
  default:
    return false;
  }
}

static bool is_store(const vt_mop *op) {
  return op->code == VT_MOP_VECTOR_STORE || op->code == VT_MOP_STORE_VECTOR ||
         op->code == VT_MOP_STRIDED_STORE || op->code == VT_MOP_STORE;
}

static void find_written(finder *f, const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    f->bound = f->bound || is_ordered(op);
    if (is_store(op)) f->written[vt_kvalue_of(f->p, op->operands[1])->array] = true;
    if (op->code == VT_MOP_ENQUEUE_DMA)
      f->written[vt_kvalue_of(f->p, vt_mop_optional(op, 2))->array] = true;
    for (uint32_t b = 0; b < op->block_count; b++) find_written(f, op->blocks[b]);
  }
}

// A store of a whole array.
static bool fills(const finder *f, const vt_mop *op) {
  const vt_mvalue *ref = op->code == VT_MOP_STORE ? NULL : op->operands[1];
  int64_t at;
  if (!is_store(op) || !ref || ref->op || vt_mop_i64(op, VT_MATTR_ADD, 0)) return false;
  if (op->code == VT_MOP_STORE_VECTOR && vt_mop_optional(op, 3)) return false;
  if (!vt_mtype_same_dims(op->operands[0]->type, ref->type)) return false;
  for (int32_t d = 0; d < ref->type.rank; d++)
    if (!vt_kplan_constant(op->operands[2 + d], &at) || at) return false;
  (void)f;
  return true;
}

// Looks at what happens first to each array. `surely`: the block runs at the first point.
static void find_filled(finder *f, const vt_mblock *block, bool surely) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    bool dead =
        op->result_count == 1 && !op->block_count && !vt_kvalue_of(f->p, &op->results[0])->live;
    for (uint32_t i = 0; i < op->operand_count && !dead; i++) {
      const vt_mvalue *v = op->operands[i];
      if (v->type.kind != VT_MREF || (op->result_count && op->results[0].type.kind == VT_MREF))
        continue;
      uint32_t *seen = &f->filled[vt_kvalue_of(f->p, v)->array];
      if (!*seen) *seen = surely && i == 1 && fills(f, op) ? 1 : 2;
    }
    for (uint32_t b = 0; b < op->block_count; b++) {
      int64_t taken = 0;
      bool known = op->code == VT_MOP_IF && surely &&
                   vt_kplan_fold(f->p->kernel, op->operands[0], f->free_dims, &taken);
      bool region = op->code == VT_MOP_REGION || op->code == VT_MOP_TRACE;
      find_filled(f, op->blocks[b], surely && (region || (known && (taken != 0) == (b == 0))));
    }
  }
}

// The index along `dim` is one of the block's, so that blocks of different points differ.
static bool moves_with(const vt_mosaic *k, const vt_mwindow *w, uint32_t dim) {
  if (w->whole || w->element || w->revisits || !w->transform) return false;
  const vt_mop *end = w->transform->block->last;
  for (uint32_t i = 0; i < end->operand_count; i++)
    if (end->operands[i] == &w->transform->block->args[dim]) return true;
  (void)k;
  return false;
}

bool vt_kplan_stays(const vt_mwindow *w, uint32_t dims) {
  if (w->whole || w->element || w->revisits || !w->transform) return false;
  const vt_mblock *block = w->transform->block;
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->block_count) return false;
    for (uint32_t i = 0; i < op->operand_count; i++)
      for (uint32_t d = 0; d < dims; d++)
        if (op->operands[i] == &block->args[d]) return false;
  }
  return true;
}

// The block depends on the first `dims` indices alone.
static bool follows(const vt_mosaic *k, const vt_mwindow *w, uint32_t dims) {
  if (w->whole || w->element || w->revisits || !w->transform) return false;
  const vt_mblock *block = w->transform->block;
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->block_count) return false;
    for (uint32_t i = 0; i < op->operand_count; i++)
      for (uint32_t d = dims; d < k->grid_rank; d++)
        if (op->operands[i] == &block->args[d]) return false;
  }
  return true;
}

static bool moves_with_all(const finder *f, const vt_mwindow *w) {
  for (uint32_t d = 0; d < f->free_dims; d++)
    if (!moves_with(f->p->kernel, w, d)) return false;
  return true;
}

static bool dims_are_free(finder *f, uint32_t inputs) {
  const vt_mosaic *k = f->p->kernel;
  uint32_t arrays = k->body->block->arg_count - k->grid_rank;
  if (f->bound) return false;
  for (uint32_t i = 0; i < k->prefetch_count; i++)
    if (f->written[i]) return false;
  for (uint32_t i = 0; i < k->window_count; i++) {
    if (i < inputs && f->written[k->prefetch_count + i]) return false;
    f->p->last_results[i] = i >= inputs && vt_kplan_stays(&k->windows[i], f->free_dims);
    if (i >= inputs && !f->p->last_results[i] && !moves_with_all(f, &k->windows[i]) &&
        !(f->asks && follows(k, &k->windows[i], f->free_dims)))
      return false;
  }
  for (uint32_t i = 0; i < arrays + (uint32_t)k->place_count; i++) f->filled[i] = 0;
  find_filled(f, k->body->block, true);
  for (uint32_t i = k->prefetch_count + inputs; i < arrays; i++) {
    uint32_t window = i - k->prefetch_count;
    if (window < k->window_count && !f->p->last_results[window]) continue;
    if (f->filled[i] == 2) return false;
    if (f->filled[i] == 0 && window < k->window_count) return false;
  }
  for (int32_t i = 0; i < k->place_count; i++)
    if (f->filled[arrays + (uint32_t)i] == 2) return false;
  return true;
}

static bool only_one(const vt_mosaic *k, uint32_t dims) {
  for (uint32_t d = 0; d < dims; d++)
    if (k->grid[d] != 1) return false;
  return true;
}

static void find_free(finder *f, bool asks) {
  f->asks = asks;
  for (f->free_dims = f->p->kernel->grid_rank; f->free_dims; f->free_dims--)
    if (dims_are_free(f, f->p->kernel->input_count)) break;
}

// ---- results that need not be cleared -----------------------------------------------------------
// The body stores all of a block, at the last of its points at the latest, and never reads it.

// *out_stored: it is stored where the body surely comes at the last point of a block that depends
// on the first `dims` indices. False: something else happens to the array.
static bool is_stored_only(const finder *f, const vt_mblock *block, int32_t array, uint32_t dims,
                           bool surely, bool *out_stored) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    bool dead =
        op->result_count == 1 && !op->block_count && !vt_kvalue_of(f->p, &op->results[0])->live;
    for (uint32_t i = 0; i < op->operand_count && !dead; i++) {
      const vt_mvalue *v = op->operands[i];
      if (v->type.kind != VT_MREF || vt_kvalue_of(f->p, v)->array != array) continue;
      if (i != 1 || !fills(f, op)) return false;
      *out_stored = *out_stored || surely;
    }
    for (uint32_t b = 0; b < op->block_count; b++) {
      int64_t taken;
      bool known =
          op->code == VT_MOP_IF && vt_kplan_fold_last(f->p->kernel, op->operands[0], dims, &taken);
      bool comes = op->code == VT_MOP_REGION || op->code == VT_MOP_TRACE ||
                   (known && (taken != 0) == (b == 0));
      if (!is_stored_only(f, op->blocks[b], array, dims, surely && comes, out_stored)) return false;
    }
  }
  return true;
}

static bool is_overwritten(const finder *f, uint32_t window) {
  const vt_mosaic *k = f->p->kernel;
  uint32_t dims = 0;
  bool stored = false;
  while (dims < k->grid_rank && !follows(k, &k->windows[window], dims)) dims++;
  return follows(k, &k->windows[window], dims) &&
         is_stored_only(f, k->body->block, (int32_t)(k->prefetch_count + window), dims, true,
                        &stored) &&
         stored;
}

// ---- blocks -------------------------------------------------------------------------------------

// Takes those windows off whose blocks are read by something other than products that know where
// their operands lie.
static void find_readers(finder *f, const vt_mblock *block) {
  vt_kplan *p = f->p;
  int64_t first = p->kernel->prefetch_count;
  for (const vt_mop *op = block->first; op; op = op->next) {
    for (uint32_t b = 0; b < op->block_count; b++) find_readers(f, op->blocks[b]);
    const vt_kproduct *q = op->code == VT_MOP_MATMUL ? vt_kplan_product(p, op) : NULL;
    bool dead = op->result_count && !op->block_count && !vt_kvalue_of(p, &op->results[0])->live;
    for (uint32_t i = 0; i < op->operand_count && !dead; i++) {
      const vt_mvalue *v = op->operands[i];
      if (q && i < 2 && q->tiled && !q->sides[i].moved && q->sides[i].window >= 0) continue;
      bool reference = v->type.kind == VT_MREF;
      bool handed_on = op->result_count == 1 && vt_kvalue_of(p, &op->results[0])->passes;
      if (handed_on) continue; // its users are looked at
      if (!reference && !vt_kvalue_of(p, v)->passes) continue;
      int64_t window = vt_kvalue_of(p, v)->array - first;
      if (window >= 0 && window < p->kernel->input_count) p->strided_inputs[window] = false;
    }
  }
}

// Values that are a block of a window, or another view of it.
static void find_blocks(finder *f, const vt_mblock *block) {
  vt_kplan *p = f->p;
  for (const vt_mop *op = block->first; op; op = op->next) {
    for (uint32_t b = 0; b < op->block_count; b++) find_blocks(f, op->blocks[b]);
    if (op->result_count != 1 || op->results[0].type.kind != VT_MVECTOR) continue;
    vt_kvalue *s = vt_kvalue_of(p, &op->results[0]);
    const vt_kvalue *from = op->operand_count ? vt_kvalue_of(p, op->operands[0]) : NULL;
    bool cast = op->code == VT_MOP_SHAPE_CAST || op->code == VT_MOP_RESHAPE ||
                op->code == VT_MOP_RELAYOUT || op->code == VT_MOP_ASSUME_LAYOUT;
    bool narrowed = op->code == VT_MOP_EXTF && s->home == VT_KHOME_INLINE;
    s->passes = s->loads || ((cast || narrowed) && from->passes);
    if (s->passes) s->array = from->array;
  }
}

void vt_kplan_grid(vt_kplan *p) {
  const vt_mosaic *k = p->kernel;
  uint32_t refs = k->body->block->arg_count - k->grid_rank;
  uint32_t arrays = refs + (uint32_t)k->place_count;
  finder f = {.p = p,
              .bound = vt_mosaic_meets(k),
              .written = VT_NEW_ARRAY(p->arena, bool, arrays + 1),
              .filled = VT_NEW_ARRAY(p->arena, uint32_t, arrays + 1)};
  p->kept_inputs = VT_NEW_ARRAY(p->arena, bool, k->window_count + 1);
  p->strided_inputs = VT_NEW_ARRAY(p->arena, bool, k->window_count + 1);
  p->last_results = VT_NEW_ARRAY(p->arena, bool, k->window_count + 1);
  p->filled = VT_NEW_ARRAY(p->arena, bool, arrays + 1);
  find_written(&f, k->body->block);
  for (uint32_t i = 0; i < k->window_count; i++)
    p->strided_inputs[i] = p->kept_inputs[i] = i < k->input_count && !k->windows[i].whole &&
                                               !k->windows[i].revisits &&
                                               !f.written[k->prefetch_count + i];
  find_blocks(&f, k->body->block);
  find_readers(&f, k->body->block);
  find_free(&f, false);
  if (only_one(k, f.free_dims)) find_free(&f, true);
  p->free_dims = f.free_dims;
  p->asks = f.asks;
  p->shared = !only_one(k, f.free_dims);
  for (uint32_t i = 0; i < arrays; i++) f.filled[i] = 0;
  if (!vt_mosaic_meets(k)) find_filled(&f, k->body->block, true);
  for (uint32_t i = 0; i < arrays; i++) p->filled[i] = f.filled[i] == 1;
  for (uint32_t i = k->input_count; i < k->window_count && !vt_mosaic_meets(k); i++)
    if (is_overwritten(&f, i)) p->filled[k->prefetch_count + i] = true;
}
