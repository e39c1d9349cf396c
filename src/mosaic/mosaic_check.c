// SPDX-License-Identifier: Apache-2.0
// mosaic_check.c - see mosaic_check.h.
//
// Each element of an array knows the copy that is to read or write it, and when its own machine
// used it last, as a count of that machine's signals. Each machine has a clock: how far it knows
// the others to be. Signals and copies carry the clock of who gives them, waits take it over. So an
// access is safe if no copy is under way that could disturb it; and a copy to another machine is
// safe if whatever that machine did there before is known to have happened.
#include "mosaic/mosaic_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"

typedef struct copy {
  bool open;
  vt_mmachine *from, *to;
  const vt_mop *op;
  vt_mview source, target, at, sent;
  bool has_sent;
  int64_t at_amount, sent_amount;
  uint32_t *clock;
} copy;

typedef struct shadow {
  uint32_t *reader, *writer; // by element: number of a copy + 1
  uint32_t *arrived;         // by element: number of the copy from elsewhere that wrote it, + 1
  uint32_t *used;            // by element: when the machine used it last
  uint32_t *clocks;          // of semaphores: what waiting tells, by element and machine
  const vt_mop **givers;     // of semaphores, by element
  const vt_mop *differs;     // a store here whose value depends on memory that nothing has written
  int64_t point[VT_MOSAIC_RANK]; // and where it was
} shadow;

struct vt_mcheck {
  vt_arena *arena;
  uint64_t state; // of the order of copies
  vt_mmachine *machines;
  int32_t count;
  uint32_t *clocks; // [machine][machine]
  shadow **shadows; // [machine][array]
  copy *copies;
  uint32_t copy_count, copy_capacity;
  vt_mtrace *trace;
};

enum { MARK = 0x7fd5, PLAIN = 0x7fc0 }; // upper halves of NaNs

// ---- memory -------------------------------------------------------------------------------------

static void fill(vt_marray *array, uint64_t value) {
  vt_eval_fill(vt_dtype_bytes(array->type.dtype), vt_mtype_elements(array->type), &value,
               array->data);
}

void vt_mcheck_fill(const vt_mcheck *c, vt_marray *array, bool own) {
  vt_dtype dtype = array->type.dtype;
  uint64_t value = 0;
  if (array->type.semaphore) return;
  if (own && c->trace->second) {
    if (dtype == VT_PRED || !vt_dtype_is_float(dtype))
      value = 1;
    else
      vt_number_store(dtype, &value, 0, 1);
  } else if (dtype == VT_F32) {
    value = (uint64_t)(own ? MARK : PLAIN) << 16;
  } else if (dtype == VT_BF16) {
    value = own ? MARK : PLAIN;
  } else if (dtype == VT_PRED || vt_dtype_is_float(dtype)) {
    return;
  } else {
    value = ~(uint64_t)0 << (vt_dtype_get(dtype)->bits - 1);
  }
  fill(array, value);
}

bool vt_mcheck_again(const vt_mcheck *c) {
  return c && c->trace->second;
}

static bool is_marked(vt_dtype dtype, const char *at) {
  uint32_t bits = 0;
  memcpy(&bits, at, dtype == VT_F32 ? 4 : 2);
  return ((dtype == VT_F32 ? bits >> 16 : bits) & 0x7fff) == MARK;
}

vt_mcheck *vt_mcheck_new(vt_arena *arena, uint64_t seed, vt_mmachine *machines, int32_t count,
                         vt_mtrace *trace) {
  vt_mcheck *c = VT_NEW(arena, vt_mcheck);
  *c = (vt_mcheck){
      .arena = arena, .state = seed, .machines = machines, .count = count, .trace = trace};
  c->clocks = VT_NEW_ARRAY(arena, uint32_t, count *count);
  c->shadows = VT_NEW_ARRAY(arena, shadow *, count);
  for (int32_t i = 0; i < count * count; i += count + 1) c->clocks[i] = 1;
  return c;
}

static int32_t number_of(const vt_mcheck *c, const vt_mmachine *m) {
  return (int32_t)(m - c->machines);
}
static uint32_t *clock_of(vt_mcheck *c, const vt_mmachine *m) {
  return c->clocks + number_of(c, m) * c->count;
}

// Arrays that share memory have one shadow.
static shadow *shadow_of(vt_mcheck *c, vt_mmachine *m, const vt_marray *array) {
  int32_t machine = number_of(c, m);
  uint32_t number = (uint32_t)(array - m->arrays);
  if (!c->shadows[machine]) c->shadows[machine] = VT_NEW_ARRAY(c->arena, shadow, m->array_count);
  for (uint32_t i = 0; i < number; i++)
    if (m->arrays[i].data == array->data) {
      number = i;
      break;
    }
  shadow *s = &c->shadows[machine][number];
  if (s->reader) return s;
  int64_t n = vt_mtype_elements(array->type) + 1;
  s->reader = VT_NEW_ARRAY(c->arena, uint32_t, n);
  s->writer = VT_NEW_ARRAY(c->arena, uint32_t, n);
  s->arrived = VT_NEW_ARRAY(c->arena, uint32_t, n);
  s->used = VT_NEW_ARRAY(c->arena, uint32_t, n);
  if (!array->type.semaphore) return s;
  s->clocks = VT_NEW_ARRAY(c->arena, uint32_t, n * c->count);
  s->givers = VT_NEW_ARRAY(c->arena, const vt_mop *, n);
  return s;
}

// ---- messages -----------------------------------------------------------------------------------

static void put_place(vt_text *text, const vt_mop *op) {
  if (!op) {
    vt_text_put(text, "the grid");
    return;
  }
  vt_text_put(text, vt_mop_info_get(op->code)->text);
  if (op->loc->file[0]) vt_text_printf(text, " (%s:%d)", op->loc->file, op->loc->line);
}

static void put_point(vt_text *text, const char *before, const vt_mmachine *m,
                      const int64_t *index) {
  uint32_t rank = m->kernel->grid_rank;
  if (rank) vt_text_printf(text, "%spoint (", before);
  for (uint32_t d = 0; d < rank; d++) vt_text_printf(text, "%s%" PRId64, d ? ", " : "", index[d]);
  if (rank) vt_text_put(text, ") of the grid");
}

static vt_status race(const vt_mop *op, const char *does, const vt_mop *other, const char *what) {
  vt_text text = {0};
  vt_text_put(&text, "race: ");
  put_place(&text, op);
  vt_text_printf(&text, " %s ", does);
  put_place(&text, other);
  vt_text_printf(&text, " %s", what);
  vt_status st = vt_error(VT_FAILED_PRECONDITION, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

vt_status vt_mcheck_place(const vt_mmachine *m, vt_status st) {
  vt_text text = {0};
  if (!m->check || !st) return st;
  vt_text_printf(&text, "kernel %s, device %d", m->kernel->name, m->device);
  if (m->kernel->core_count > 1) vt_text_printf(&text, ", core %d", m->core);
  put_point(&text, ", ", m, m->index);
  st = vt_status_wrap(st, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

// ---- accesses -----------------------------------------------------------------------------------

typedef struct visit {
  vt_mcheck *c;
  shadow *s;
  uint32_t reads, writes; // an open copy met, + 1
  uint32_t latest;        // of `used`
  uint32_t unknown;       // a copy that arrived, which `clock` does not know of, + 1
  const uint32_t *clock;
  uint32_t set_used, set_reader, set_writer, set_arrived;
  bool clears_reader, clears_writer;
} visit;

static void visit_element(void *user, int64_t element) {
  visit *v = user;
  shadow *s = v->s;
  if (s->reader[element]) v->reads = s->reader[element];
  if (s->writer[element]) v->writes = s->writer[element];
  if (s->used[element] > v->latest) v->latest = s->used[element];
  uint32_t arrived = s->arrived[element];
  if (arrived && v->clock) {
    const copy *p = &v->c->copies[arrived - 1];
    int32_t from = (int32_t)(p->from - v->c->machines);
    if (v->clock[from] < p->clock[from]) v->unknown = arrived;
  }
  if (v->set_arrived) s->arrived[element] = v->set_arrived;
  if (v->set_used) s->used[element] = v->set_used;
  if (v->set_reader) s->reader[element] = v->set_reader;
  if (v->set_writer) s->writer[element] = v->set_writer;
  if (v->clears_reader) s->reader[element] = 0;
  if (v->clears_writer) s->writer[element] = 0;
}

static visit look(vt_mcheck *c, vt_mmachine *m, const vt_mview *view, visit v) {
  v.c = c;
  v.s = shadow_of(c, m, view->array);
  vt_mview_each(view, visit_element, &v);
  return v;
}

vt_status vt_mcheck_access(vt_mmachine *m, const vt_mop *op, const vt_mview *view, bool writes) {
  vt_mcheck *c = m->check;
  if (!c || view->array->type.semaphore) return VT_OK;
  const uint32_t *clock = clock_of(c, m);
  visit v = look(c, m, view, (visit){.set_used = clock[number_of(c, m)], .clock = clock});
  if (v.unknown)
    return race(op, writes ? "writes what" : "reads what", c->copies[v.unknown - 1].op,
                "wrote on another device: its arrival has not been waited for");
  if (v.writes)
    return race(op, writes ? "writes what" : "reads what", c->copies[v.writes - 1].op,
                "writes: the copy has not been waited for");
  if (writes && v.reads)
    return race(op, "writes what", c->copies[v.reads - 1].op,
                "reads: the copy has not been waited for");
  return VT_OK;
}

// ---- a second run -------------------------------------------------------------------------------

typedef struct hasher {
  const vt_mview *view;
  uint64_t hash;
} hasher;

static void hash_element(void *user, int64_t element) {
  hasher *h = user;
  size_t bytes = vt_dtype_bytes(h->view->array->type.dtype);
  h->hash = vt_hash_bytes(h->view->array->data + (size_t)element * bytes, bytes, h->hash);
}

// Whether a second run stores here what the first did.
static vt_status compare(vt_mmachine *m, const vt_mop *op, const vt_mview *view, bool *out_same) {
  vt_mtrace *t = m->check->trace;
  hasher h = {view, 1 + (uint64_t)number_of(m->check, m)};
  *out_same = true;
  vt_mview_each(view, hash_element, &h);
  if (!t->second) {
    vt_array_push(&t->stores, ((vt_mstore){op, h.hash}));
    return VT_OK;
  }
  if (t->at >= t->stores.size || t->stores.data[t->at].op != op) {
    vt_text text = {0};
    vt_text_put(&text, "uninitialised memory: whether ");
    put_place(&text, op);
    vt_text_put(&text, " is reached depends on memory that nothing has written");
    vt_status st = vt_error(VT_FAILED_PRECONDITION, "%s", vt_text_string(&text));
    vt_text_free(&text);
    return st;
  }
  *out_same = t->stores.data[t->at++].hash == h.hash;
  return VT_OK;
}

vt_status vt_mcheck_stored(vt_mmachine *m, const vt_mop *op, const vt_mview *view) {
  bool same;
  if (!m->check) return VT_OK;
  VT_TRY(compare(m, op, view, &same));
  shadow *s = shadow_of(m->check, m, view->array);
  if (same || s->differs) return VT_OK;
  s->differs = op;
  memcpy(s->point, m->index, sizeof s->point);
  return VT_OK;
}

static vt_status compare_result(vt_mmachine *m, const vt_mview *view, uint32_t result) {
  bool same;
  VT_TRY(compare(m, NULL, view, &same));
  if (same) return VT_OK;
  const shadow *s = shadow_of(m->check, m, view->array);
  vt_text text = {0};
  vt_text_printf(&text,
                 "uninitialised memory: the block of result %" PRIu32
                 " depends on memory that nothing has written",
                 result);
  if (s->differs) {
    vt_text_put(&text, ", by ");
    put_place(&text, s->differs);
    put_point(&text, " at ", m, s->point);
  }
  vt_status st = vt_error(VT_FAILED_PRECONDITION, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

// ---- copies -------------------------------------------------------------------------------------

static uint64_t draw(vt_mcheck *c) {
  c->state = vt_hash_u64(c->state + 1, 0x5851F42D4C957F2Du);
  return c->state >> 11;
}

static copy *new_copy(vt_mcheck *c) {
  if (c->copy_count == c->copy_capacity) {
    uint32_t capacity = c->copy_capacity ? 2 * c->copy_capacity : 32;
    copy *grown = VT_NEW_ARRAY(c->arena, copy, capacity);
    if (c->copy_count) memcpy(grown, c->copies, c->copy_count * sizeof *grown);
    c->copies = grown;
    c->copy_capacity = capacity;
  }
  return &c->copies[c->copy_count++];
}

vt_status vt_mcheck_start(vt_mmachine *m, const vt_mop *op, const vt_mview *source,
                          vt_mmachine *target, const vt_mview *to, const vt_mview *at,
                          int64_t at_amount, const vt_mview *sent, int64_t sent_amount) {
  vt_mcheck *c = m->check;
  uint32_t *clock = clock_of(c, m), self = (uint32_t)number_of(c, m);
  uint32_t other = (uint32_t)number_of(c, target);
  VT_TRY(vt_mcheck_access(m, op, source, false));
  visit v = look(c, target, to, (visit){.set_used = target == m ? clock[self] : 0, .clock = clock});
  if (v.writes)
    return race(op, "writes what", c->copies[v.writes - 1].op,
                "writes: the copy has not been waited for");
  if (v.reads)
    return race(op, "writes what", c->copies[v.reads - 1].op,
                "reads: the copy has not been waited for");
  if (v.unknown)
    return race(op, "writes what", c->copies[v.unknown - 1].op,
                "wrote: nothing says that it is done");
  if (target != m && v.latest > clock[other]) {
    vt_text text = {0};
    vt_text_put(&text, "race: ");
    put_place(&text, op);
    vt_text_printf(&text, " writes memory of device %d: nothing says that it no longer uses it",
                   target->device);
    vt_status st = vt_error(VT_FAILED_PRECONDITION, "%s", vt_text_string(&text));
    vt_text_free(&text);
    return st;
  }
  copy *p = new_copy(c);
  *p = (copy){.open = true,
              .from = m,
              .to = target,
              .op = op,
              .source = *source,
              .target = *to,
              .at = *at,
              .at_amount = at_amount,
              .has_sent = sent != NULL,
              .sent_amount = sent_amount,
              .clock = VT_NEW_ARRAY(c->arena, uint32_t, c->count)};
  if (sent) p->sent = *sent;
  memcpy(p->clock, clock, (size_t)c->count * sizeof *clock);
  clock[self]++;
  (void)look(c, m, source, (visit){.set_reader = c->copy_count});
  (void)look(c, target, to, (visit){.set_writer = c->copy_count});
  return VT_OK;
}

static bool same_semaphore(const vt_mview *a, const vt_mview *b) {
  return a->array == b->array && a->offset == b->offset;
}

static void give(vt_mcheck *c, vt_mmachine *m, const vt_mop *op, const vt_mview *semaphore,
                 const uint32_t *clock, int64_t amount) {
  shadow *s = shadow_of(c, m, semaphore->array);
  int64_t element = semaphore->offset / 4;
  for (int32_t i = 0; i < c->count; i++) {
    uint32_t *known = &s->clocks[element * c->count + i];
    if (clock[i] > *known) *known = clock[i];
  }
  s->givers[element] = op;
  uint32_t *counter = (uint32_t *)(void *)(semaphore->array->data + semaphore->offset);
  *counter += (uint32_t)amount;
}

// Copies marked in an element by a later one that reads it too stay marked there: a reader that is
// cleared early is a race that is not found, never one that is not there.
static vt_status run_copy(vt_mcheck *c, uint32_t number) {
  copy p = c->copies[number];
  c->copies[number].open = false;
  (void)look(c, p.from, &p.source, (visit){.clears_reader = true});
  (void)look(c, p.to, &p.target,
             (visit){.clears_writer = true, .set_arrived = p.from == p.to ? 0 : number + 1});
  VT_TRY(vt_mview_copy(p.to, &p.source, &p.target));
  VT_TRY(vt_mcheck_stored(p.to, p.op, &p.target));
  give(c, p.to, p.op, &p.at, p.clock, p.at_amount);
  if (p.has_sent) give(c, p.from, p.op, &p.sent, p.clock, p.sent_amount);
  p.to->steps++; // something has happened
  return VT_OK;
}

vt_status vt_mcheck_arrive(vt_mmachine *m, const vt_mview *semaphore, int64_t amount) {
  vt_mcheck *c = m->check;
  if (!c) return VT_OK;
  for (;;) {
    const uint32_t *counter =
        (const uint32_t *)(const void *)(semaphore->array->data + semaphore->offset);
    uint32_t found = 0, chosen = 0;
    if (*counter >= amount) return VT_OK;
    for (uint32_t i = 0; i < c->copy_count; i++) {
      const copy *p = &c->copies[i];
      if (!p->open || !(same_semaphore(&p->at, semaphore) ||
                        (p->has_sent && same_semaphore(&p->sent, semaphore))))
        continue;
      if (draw(c) % ++found == 0) chosen = i;
    }
    if (!found) return VT_OK;
    VT_TRY(run_copy(c, chosen));
  }
}

void vt_mcheck_signal(vt_mmachine *m, const vt_mop *op, vt_mmachine *target,
                      const vt_mview *semaphore) {
  vt_mcheck *c = m->check;
  if (!c) return;
  give(c, target, op, semaphore, clock_of(c, m), 0);
  clock_of(c, m)[number_of(c, m)]++;
}

void vt_mcheck_waited(vt_mmachine *m, const vt_mview *semaphore) {
  vt_mcheck *c = m->check;
  if (!c) return;
  const shadow *s = shadow_of(c, m, semaphore->array);
  uint32_t *clock = clock_of(c, m);
  for (int32_t i = 0; i < c->count; i++) {
    uint32_t known = s->clocks[semaphore->offset / 4 * c->count + i];
    if (i != number_of(c, m) && known > clock[i]) clock[i] = known;
  }
}

// ---- the end ------------------------------------------------------------------------------------

typedef struct marks {
  const vt_mview *view;
  int64_t first; // element; -1
} marks;

static void find_mark(void *user, int64_t element) {
  marks *f = user;
  vt_dtype dtype = f->view->array->type.dtype;
  const char *at = f->view->array->data + element * (int64_t)vt_dtype_bytes(dtype);
  if (f->first < 0 && is_marked(dtype, at)) f->first = element;
}

vt_status vt_mcheck_result(vt_mmachine *m, const vt_mview *view, uint32_t result) {
  vt_dtype dtype = view->array->type.dtype;
  marks f = {view, -1};
  if (!m->check || view->array->type.semaphore) return VT_OK;
  if (dtype == VT_F32 || dtype == VT_BF16) vt_mview_each(view, find_mark, &f);
  if (f.first < 0) return compare_result(m, view, result);
  vt_text text = {0};
  int64_t rest = f.first, inner = vt_mtype_elements(view->array->type);
  for (int32_t d = 0; d < view->array->type.rank; d++) {
    inner /= view->array->type.dims[d];
    vt_text_printf(&text, "%s%" PRId64, d ? ", " : "", rest / inner);
    rest %= inner;
  }
  vt_status st = vt_error(VT_FAILED_PRECONDITION,
                          "uninitialised memory: element (%s) of the block of result %" PRIu32
                          " comes from memory that nothing has written",
                          vt_text_string(&text), result);
  vt_text_free(&text);
  return st;
}

// A semaphore that is an operand or a result: a later kernel waits for it.
static bool is_handed_on(const vt_mmachine *m, const vt_mview *semaphore) {
  return semaphore->array - m->arrays < m->kernel->prefetch_count + m->kernel->window_count;
}

vt_status vt_mcheck_end(vt_mmachine *m) {
  vt_mcheck *c = m->check;
  for (uint32_t i = 0; c && i < c->copy_count; i++) {
    const copy *p = &c->copies[i];
    if (!p->open || p->from != m) continue;
    if (!is_handed_on(p->to, &p->at))
      return vt_mcheck_place(
          m, vt_mop_error(p->op, VT_FAILED_PRECONDITION, "the copy is never waited for"));
    VT_TRY(run_copy(c, i));
  }
  return VT_OK;
}

const vt_mop *vt_mcheck_giver(const vt_mmachine *m, const vt_marray *array, int64_t number) {
  vt_mcheck *c = m->check;
  if (!c) return NULL;
  return shadow_of(c, c->machines + number_of(c, m), array)->givers[number];
}
