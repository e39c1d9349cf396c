// SPDX-License-Identifier: Apache-2.0
// kernel_memory.c - places for the vectors of a function that have memory, and for sides of
// products that code brings into order: fixed ones, shared by what does not live at the same time.
#include <stdlib.h>
#include <string.h>

#include "mosaic_host/kernel.h"

enum { PAD = 64 };

typedef struct range {
  uint32_t first, last;
  int64_t bytes, *at;
} range;

typedef struct placer {
  vt_kplan *p;
  uint32_t range_count, range_capacity;
  range *ranges;
  int64_t base; // of this function's memory
} placer;

static vt_kvalue *of(const placer *n, const vt_mvalue *v) {
  return vt_kvalue_of(n->p, v);
}

static bool is_vector(const vt_mvalue *v) {
  return v->type.kind == VT_MVECTOR;
}

static void visit(placer *n, const vt_mblock *block, void (*see)(placer *, const vt_mop *)) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    see(n, op);
    for (uint32_t b = 0; b < op->block_count; b++) visit(n, op->blocks[b], see);
  }
}

static void add_range(placer *n, uint32_t first, uint32_t last, int64_t bytes, int64_t *at) {
  if (n->range_count == n->range_capacity) {
    uint32_t capacity = n->range_capacity ? 2 * n->range_capacity : 64;
    range *grown = VT_NEW_ARRAY(n->p->arena, range, capacity);
    if (n->range_count) memcpy(grown, n->ranges, n->range_count * sizeof *grown);
    n->ranges = grown;
    n->range_capacity = capacity;
  }
  n->ranges[n->range_count++] =
      (range){first, last > first ? last : first, (bytes + PAD + 63) / 64 * 64, at};
}

// The value in memory that is used for the last time where `v` is made from it, each element from
// that in the same place; or NULL. Both of a strip, so that nothing else is to be known.
static const vt_mvalue *overwritten(const placer *n, const vt_mvalue *v) {
  const vt_kvalue *s = of(n, v);
  const vt_mop *op = v->op;
  if (!op || !s->local || s->laid || s->loads || !s->native || op->code == VT_MOP_MATMUL ||
      op->code == VT_MOP_MULTI_REDUCTION || op->code == VT_MOP_CONCATENATE)
    return NULL;
  uint32_t made = s->reduction ? s->reduction->number : op->number;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_mvalue *u = op->operands[i];
    const vt_kvalue *o = of(n, u);
    bool same =
        is_vector(u) && u->type.dtype == v->type.dtype && vt_mtype_same_dims(u->type, v->type);
    if (!same || o->home != VT_KHOME_MEMORY || !o->local || o->laid || o->last != made ||
        n->p->strip_of[u->op->number] != n->p->strip_of[op->number])
      continue;
    bool kept = true;
    for (uint32_t j = 0; j < op->operand_count; j++)
      kept = kept && vt_kplan_keeps_places(n->p, op->operands[j], u);
    if (kept) return u;
  }
  return NULL;
}

static void extend_range(placer *n, const vt_mvalue *v, uint32_t last) {
  while (of(n, v)->over) v = of(n, v)->over;
  for (uint32_t i = 0; i < n->range_count; i++)
    if (n->ranges[i].at == &of(n, v)->at && n->ranges[i].last < last) n->ranges[i].last = last;
}

// Once ranges have places.
static void see_over(placer *n, const vt_mop *op) {
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_kvalue *s = of(n, &op->results[i]);
    if (s->over) s->at = of(n, s->over)->at;
  }
}

// All rows of a value that a strip reads or makes are there during all of it.
static void add_value(placer *n, const vt_mvalue *v, uint32_t first, uint32_t last) {
  vt_kvalue *s = of(n, v);
  if (last < s->last) last = s->last;
  s->bytes = vt_mtype_bytes(v->type);
  const vt_kstrip *made = vt_kplan_strip(n->p, first);
  const vt_kstrip *used = last < n->p->kernel->op_count ? vt_kplan_strip(n->p, last) : NULL;
  if (s->local) s->bytes = s->bytes / made->rows * made->step;
  if (made && !s->local) first = made->first->number;
  if (used && !s->local && last < used->last->number) last = used->last->number;
  s->first = first;
  if ((s->over = overwritten(n, v))) {
    extend_range(n, s->over, last);
    return;
  }
  add_range(n, first, last, s->bytes, &s->at);
}

// A side of a product that code brings into order: in a strip some rows of the left, before it all
// of the right.
static void add_side(placer *n, const vt_mop *op, const vt_kproduct *q, int i) {
  const vt_kstrip *strip = vt_kplan_strip(n->p, op->number);
  vt_kside *side = (vt_kside *)(uintptr_t)&q->sides[i];
  uint32_t first = op->number, last = op->number;
  if (strip && i == 0) side->bytes = side->bytes / strip->rows * strip->step;
  if (strip && i == 1) first = strip->first->number, last = strip->last->number;
  add_range(n, first, last, side->bytes, &side->at);
}

static void see_memory(placer *n, const vt_mop *op) {
  if (!vt_kplan_is_live(n->p, op)) return;
  int32_t number = n->p->products_of[op->number];
  bool later = op->result_count && of(n, &op->results[0])->home == VT_KHOME_SUM;
  for (int i = 0; number >= 0 && !later && i < 2; i++) {
    const vt_kproduct *q = &n->p->products[number];
    if (q->sides[i].moved) add_side(n, op, q, i);
  }
  bool inside = vt_kplan_is_store(op) && vt_kplan_strip(n->p, op->number);
  if (vt_kplan_is_store(op) && !inside) // for the block that does not lie inside
    add_range(n, op->number, op->number, vt_mtype_bytes(op->operands[0]->type),
              &n->p->temps[op->number]);
  for (uint32_t i = 0; i < op->result_count; i++) {
    const vt_mvalue *v = &op->results[i];
    const vt_kvalue *s = of(n, v);
    if (is_vector(v) && (s->home == VT_KHOME_MEMORY || (s->home == VT_KHOME_LEAF && s->dynamic)))
      add_value(n, v, op->number, op->end);
  }
  for (uint32_t b = 0; b < op->block_count; b++)
    for (uint32_t i = 0; i < op->blocks[b]->arg_count; i++)
      if (is_vector(&op->blocks[b]->args[i]))
        add_value(n, &op->blocks[b]->args[i], op->number, op->end);
}

static int by_first(const void *a, const void *b) {
  const range *x = a, *y = b;
  return x->first != y->first ? (x->first < y->first ? -1 : 1)
                              : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

// First fit among the ranges that live at the same time.
static void place_ranges(placer *n) {
  if (n->range_count) qsort(n->ranges, n->range_count, sizeof *n->ranges, by_first);
  int64_t most = n->base;
  for (uint32_t i = 0; i < n->range_count; i++) {
    range *r = &n->ranges[i];
    int64_t at = n->base;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t j = 0; j < i; j++) {
        const range *o = &n->ranges[j];
        if (o->last < r->first || *o->at >= at + r->bytes || *o->at + o->bytes <= at) continue;
        at = *o->at + o->bytes;
        moved = true;
      }
    }
    *r->at = at;
    if (at + r->bytes > most) most = at + r->bytes;
  }
  n->p->memory_bytes = most;
}

void vt_kplan_place(vt_kplan *p, const vt_mfunc *func) {
  placer n = {.p = p, .base = p->memory_bytes};
  vt_kplan_strips(p, func);
  visit(&n, func->block, see_memory);
  place_ranges(&n);
  visit(&n, func->block, see_over);
}
