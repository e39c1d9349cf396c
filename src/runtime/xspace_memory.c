// SPDX-License-Identifier: Apache-2.0
// xspace_memory.c - the HBM of predicted programs in an XSpace: for XProf's memory viewer each
// program with its buffers, in the form in which XLA tells of its own (an xla.HloProto of
// hlo.proto, with its buffer assignment); for XProf's memory profile one run as allocations on the
// host's plane.
//
// A prediction knows the arrays that are live at the peak, and how much is live while each operator
// runs. What is live besides those arrays is shown as one buffer for as long as its size stays.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "chip/memory.h"
#include "hlo/hlo.h"
#include "runtime/xplane.h"
#include "runtime/xspace.h"

enum { PROTO_MODULE = 1, PROTO_BUFFERS = 3 };
enum { MODULE_NAME = 1, MODULE_ENTRY_NAME, MODULE_COMPUTATIONS, MODULE_SHAPE, MODULE_ENTRY_ID = 6 };
enum { COMPUTATION_NAME = 1, COMPUTATION_INSTRUCTIONS, COMPUTATION_SHAPE = 4 };
enum { COMPUTATION_ID = 5, COMPUTATION_ROOT };
enum { INSTRUCTION_NAME = 1, INSTRUCTION_OPCODE, INSTRUCTION_SHAPE, INSTRUCTION_METADATA = 7 };
enum { INSTRUCTION_PARAMETER = 9, INSTRUCTION_TARGET = 28, INSTRUCTION_ID = 35 };
enum { ORIGIN_NAME = 2, ORIGIN_FILE, ORIGIN_LINE };
enum { SHAPES_PARAMETERS = 1, SHAPES_RESULT, SHAPES_NAMES };
enum { BUFFERS_LOGICAL = 1, BUFFERS_ALLOCATIONS = 3, BUFFERS_TRACES };
enum { LOGICAL_ID = 1, LOGICAL_SIZE, LOGICAL_DEFINED, DEFINED_INSTRUCTION = 4 };
enum { ALLOCATION_INDEX = 1, ALLOCATION_SIZE, ALLOCATION_IS_PARAMETER = 5 };
enum { ALLOCATION_PARAMETER = 6, ALLOCATION_LIVE_OUT, ALLOCATION_ASSIGNED = 9 };
enum { ASSIGNED_BUFFER = 1, ASSIGNED_OFFSET, ASSIGNED_SIZE };
enum { TRACE_EVENTS = 1, TRACE_WHOLE, TRACE_ALLOCATION };
enum { TRACED_KIND = 1, TRACED_BUFFER, TRACED_INSTRUCTION = 4 };
enum { KIND_FREE = 1 };

static const double same_size = 1e-3; // of the peak: rests that differ by less are one buffer

// A buffer of a program. Times are positions of operators in main, both included.
typedef struct piece {
  const vt_hbm_entry *entry; // NULL: what else is live
  const vt_op *op;           // that makes it; NULL: an argument or a result
  int64_t bytes, offset;     // offset: among temporaries
  uint32_t start, end;
  bool temporary;
} piece;
typedef VT_ARRAY(piece) piece_list;

typedef struct memory {
  const vt_prediction *prediction;
  vt_arena *arena;
  piece_list pieces;
  uint32_t *starts, *ends; // by position: the first piece + 1, 0 for none
  uint32_t *next_start, *next_end;
  int64_t temporaries; // the most at once
} memory;

static uint32_t position_of(const vt_map *positions, const vt_op *op, uint32_t otherwise) {
  uintptr_t at = op ? (uintptr_t)vt_map_find_ptr(positions, op) : 0;
  return at ? (uint32_t)at - 1 : otherwise;
}

// The arrays of the peak, from the operators of main that make them to those that read them last.
static void add_entries(memory *m) {
  const vt_hbm_use *use = &m->prediction->hbm;
  vt_map positions = {0};
  int64_t offset = 0;
  uint32_t end = use->point_count ? use->point_count - 1 : 0;
  for (uint32_t i = 0; i < use->point_count; i++)
    *vt_map_at_ptr(&positions, use->points[i].op) = (void *)(uintptr_t)(i + 1);
  uint32_t peak = position_of(&positions, use->peak, 0);
  for (uint32_t i = 0; i < use->count; i++) {
    const vt_hbm_entry *e = &use->entries[i];
    piece p = {.entry = e, .op = e->op, .bytes = e->bytes, .end = end, .temporary = e->op != NULL};
    if (e->bytes <= 0) continue;
    if (p.temporary) {
      bool outside = !vt_map_find_ptr(&positions, e->op);
      p.start = position_of(&positions, e->op, peak);
      p.end = position_of(&positions, e->last, e->last || outside ? peak : end);
      if (p.start > peak) p.start = peak;
      if (p.end < peak) p.end = peak;
      p.offset = offset;
      offset += e->bytes;
    }
    vt_array_push_in(m->arena, &m->pieces, p);
  }
  vt_map_free(&positions);
}

// What else is live while each operator of main runs.
static void add_rests(memory *m) {
  const vt_hbm_use *use = &m->prediction->hbm;
  int64_t *changes = VT_NEW_ARRAY(m->arena, int64_t, use->point_count + 2);
  int64_t named = 0, offset = 0, now = 0;
  for (size_t i = 0; i < m->pieces.size; i++) {
    const piece *p = &m->pieces.data[i];
    if (!p->temporary) continue;
    changes[p->start] += p->bytes;
    changes[p->end + 1] -= p->bytes;
    offset += p->bytes;
  }
  for (uint32_t i = 0; i < use->point_count; i++) {
    named += changes[i];
    int64_t rest = use->points[i].bytes - named;
    if (rest < 0) rest = 0;
    if (named + rest > m->temporaries) m->temporaries = named + rest;
    bool same = fabs((double)(rest - now)) <= same_size * (double)use->peak_bytes;
    if (same && now && rest) {
      m->pieces.data[m->pieces.size - 1].end = i;
      continue;
    }
    now = rest;
    piece p = {NULL, use->points[i].op, rest, offset, i, i, true};
    if (rest) vt_array_push_in(m->arena, &m->pieces, p);
  }
}

static memory memory_of(const vt_prediction *prediction, vt_arena *arena) {
  memory m = {.prediction = prediction, .arena = arena};
  uint32_t points = prediction->hbm.point_count + 1;
  add_entries(&m);
  add_rests(&m);
  m.starts = VT_NEW_ARRAY(arena, uint32_t, points);
  m.ends = VT_NEW_ARRAY(arena, uint32_t, points);
  m.next_start = VT_NEW_ARRAY(arena, uint32_t, m.pieces.size + 1);
  m.next_end = VT_NEW_ARRAY(arena, uint32_t, m.pieces.size + 1);
  for (uint32_t i = (uint32_t)m.pieces.size; i-- > 0;) {
    const piece *p = &m.pieces.data[i];
    if (!p->temporary) continue;
    m.next_start[i] = m.starts[p->start];
    m.next_end[i] = m.ends[p->end];
    m.starts[p->start] = m.ends[p->end] = i + 1;
  }
  return m;
}

static void name_piece(const piece *p, uint32_t index, char *out, size_t size) {
  if (p->entry && !p->temporary)
    snprintf(out, size, "%s.%u", p->entry->kind, p->entry->index);
  else
    snprintf(out, size, "%s%s.%u", p->entry ? "" : "beside_", vt_op_short_name(p->op->code), index);
}

static vt_type type_of(const piece *p, int64_t *dim) {
  *dim = p->bytes;
  return p->entry ? p->entry->type : (vt_type){VT_U8, 1, dim};
}

// ---- for the memory viewer ----------------------------------------------------------------------

static void put_instruction(vt_text *computation, const piece *p, uint32_t index,
                            uint32_t parameter) {
  char name[128];
  int64_t dim;
  vt_text i = {0}, origin = {0};
  bool argument = !p->temporary && !strcmp(p->entry->kind, "argument");
  name_piece(p, index, name, sizeof name);
  vt_xplane_put_string(&i, INSTRUCTION_NAME, name);
  vt_xplane_put_string(&i, INSTRUCTION_OPCODE, argument ? "parameter" : "custom-call");
  vt_hlo_write_type(&i, INSTRUCTION_SHAPE, type_of(p, &dim));
  if (p->op) {
    vt_xplane_put_string(&origin, ORIGIN_NAME,
                         p->op->loc->name[0] ? p->op->loc->name : vt_op_short_name(p->op->code));
    vt_xplane_put_string(&origin, ORIGIN_FILE, p->op->loc->file);
    vt_wire_put_uint(&origin, ORIGIN_LINE, (uint64_t)p->op->loc->line);
    vt_xplane_put_message(&i, INSTRUCTION_METADATA, &origin);
  }
  if (argument)
    vt_wire_put_uint(&i, INSTRUCTION_PARAMETER, parameter);
  else
    vt_xplane_put_string(&i, INSTRUCTION_TARGET,
                         p->op ? vt_op_short_name(p->op->code) : p->entry->kind);
  vt_wire_put_uint(&i, INSTRUCTION_ID, index + 1);
  vt_xplane_put_message(computation, COMPUTATION_INSTRUCTIONS, &i);
}

static void put_hlo_module(vt_text *proto, const char *name, const memory *m) {
  vt_text module = {0}, computation = {0}, shapes = {0};
  uint32_t parameters = 0, count = (uint32_t)m->pieces.size;
  vt_xplane_put_string(&computation, COMPUTATION_NAME, "main");
  for (uint32_t i = 0; i < count; i++) {
    const piece *p = &m->pieces.data[i];
    bool argument = !p->temporary && !strcmp(p->entry->kind, "argument");
    put_instruction(&computation, p, i, parameters);
    if (!argument) continue;
    char own[128];
    name_piece(p, i, own, sizeof own);
    vt_hlo_write_type(&shapes, SHAPES_PARAMETERS, p->entry->type);
    vt_xplane_put_string(&shapes, SHAPES_NAMES, own);
    parameters++;
  }
  int64_t dim;
  if (count) vt_hlo_write_type(&shapes, SHAPES_RESULT, type_of(&m->pieces.data[count - 1], &dim));
  vt_wire_put_bytes(&computation, COMPUTATION_SHAPE, shapes.data, shapes.size);
  vt_wire_put_uint(&computation, COMPUTATION_ID, 1);
  vt_wire_put_uint(&computation, COMPUTATION_ROOT, count);
  vt_xplane_put_string(&module, MODULE_NAME, name);
  vt_xplane_put_string(&module, MODULE_ENTRY_NAME, "main");
  vt_xplane_put_message(&module, MODULE_COMPUTATIONS, &computation);
  vt_xplane_put_message(&module, MODULE_SHAPE, &shapes);
  vt_wire_put_uint(&module, MODULE_ENTRY_ID, 1);
  vt_xplane_put_message(proto, PROTO_MODULE, &module);
}

static void put_assigned(vt_text *allocation, const piece *p, uint32_t index) {
  vt_text a = {0};
  vt_wire_put_uint(&a, ASSIGNED_BUFFER, index + 1);
  vt_wire_put_uint(&a, ASSIGNED_OFFSET, (uint64_t)p->offset);
  vt_wire_put_uint(&a, ASSIGNED_SIZE, (uint64_t)p->bytes);
  vt_xplane_put_message(allocation, ALLOCATION_ASSIGNED, &a);
}

static void put_traced(vt_text *trace, const memory *m, uint32_t index, bool freed) {
  char name[128];
  vt_text e = {0};
  name_piece(&m->pieces.data[index], index, name, sizeof name);
  if (freed) vt_wire_put_uint(&e, TRACED_KIND, KIND_FREE);
  vt_wire_put_uint(&e, TRACED_BUFFER, index + 1);
  vt_xplane_put_string(&e, TRACED_INSTRUCTION, name);
  vt_xplane_put_message(trace, TRACE_EVENTS, &e);
}

// Arguments and results are allocations of their own; all temporaries share one.
static void put_buffers(vt_text *proto, const memory *m) {
  vt_text buffers = {0}, allocations = {0}, shared = {0}, trace = {0};
  uint64_t next = 0;
  bool any = false;
  for (uint32_t i = 0; i < m->pieces.size; i++) {
    const piece *p = &m->pieces.data[i];
    vt_text logical = {0}, defined = {0}, own = {0};
    vt_wire_put_uint(&logical, LOGICAL_ID, i + 1);
    vt_wire_put_uint(&logical, LOGICAL_SIZE, (uint64_t)p->bytes);
    vt_wire_put_uint(&defined, DEFINED_INSTRUCTION, i + 1);
    vt_xplane_put_message(&logical, LOGICAL_DEFINED, &defined);
    vt_xplane_put_message(&buffers, BUFFERS_LOGICAL, &logical);
    any = any || p->temporary;
    if (p->temporary) {
      put_assigned(&shared, p, i);
      continue;
    }
    bool argument = !strcmp(p->entry->kind, "argument");
    vt_wire_put_uint(&own, ALLOCATION_INDEX, next++);
    vt_wire_put_uint(&own, ALLOCATION_SIZE, (uint64_t)p->bytes);
    vt_wire_put_uint(&own, argument ? ALLOCATION_IS_PARAMETER : ALLOCATION_LIVE_OUT, 1);
    if (argument) vt_wire_put_uint(&own, ALLOCATION_PARAMETER, p->entry->index);
    put_assigned(&own, p, i);
    vt_xplane_put_message(&allocations, BUFFERS_ALLOCATIONS, &own);
  }
  vt_text_put_n(&buffers, allocations.data, allocations.size);
  vt_text_free(&allocations);
  if (any) {
    vt_wire_put_uint(&shared, ALLOCATION_INDEX, next);
    vt_wire_put_uint(&shared, ALLOCATION_SIZE, (uint64_t)m->temporaries);
    for (uint32_t at = 0; at < m->prediction->hbm.point_count; at++) {
      for (uint32_t i = m->starts[at]; i; i = m->next_start[i - 1])
        put_traced(&trace, m, i - 1, false);
      for (uint32_t i = m->ends[at]; i; i = m->next_end[i - 1]) put_traced(&trace, m, i - 1, true);
    }
    vt_wire_put_uint(&trace, TRACE_WHOLE, 1);
    vt_wire_put_uint(&trace, TRACE_ALLOCATION, next);
    vt_xplane_put_message(&buffers, BUFFERS_ALLOCATIONS, &shared);
    vt_xplane_put_message(&buffers, BUFFERS_TRACES, &trace);
  }
  vt_xplane_put_message(proto, PROTO_BUFFERS, &buffers);
}

void vt_xspace_put_programs(vt_text *space, const vt_xspace_run *runs, size_t count) {
  vt_text plane = {0};
  vt_map seen = {0};
  uint64_t number = 0;
  vt_wire_put_uint(&plane, PLANE_ID, 1000000);
  vt_xplane_put_string(&plane, PLANE_NAME, "/host:metadata");
  for (size_t i = 0; i < count; i++) {
    void **at = vt_map_at(&seen, &runs[i].key, sizeof runs[i].key);
    if (*at) continue;
    *at = (void *)&runs[i];
    number++; // as put_device counts them
    if (!runs[i].prediction) continue;
    vt_arena arena = {0};
    vt_text metadata = {0}, proto = {0}, s = {0};
    memory m = memory_of(runs[i].prediction, &arena);
    put_hlo_module(&proto, runs[i].program, &m);
    put_buffers(&proto, &m);
    vt_wire_put_uint(&metadata, METADATA_ID, number);
    vt_xplane_put_string(&metadata, METADATA_NAME, runs[i].program);
    vt_wire_put_uint(&s, STAT_METADATA_ID, STAT_HLO);
    vt_xplane_put_message(&s, STAT_BYTES_VALUE, &proto);
    vt_xplane_put_message(&metadata, METADATA_STATS, &s);
    vt_xplane_put_entry(&plane, PLANE_EVENT_METADATA, number, &metadata);
    vt_arena_free(&arena);
  }
  vt_xplane_put_stat_names(&plane);
  vt_xplane_put_message(space, SPACE_PLANES, &plane);
  vt_map_free(&seen);
}

// ---- for the memory profile ---------------------------------------------------------------------

enum { ALLOCATED = 1, FREED };

static void put_allocation(vt_text *line, const memory *m, const vt_chip *chip, uint32_t index,
                           bool freed, double at, int64_t live) {
  const piece *p = &m->pieces.data[index];
  const vt_hbm_use *use = &m->prediction->hbm;
  vt_text s = {0};
  vt_xplane_put_text(&s, EVENT_STATS, STAT_ALLOCATOR, "HBM of one device, predicted");
  vt_xplane_put_count(&s, EVENT_STATS, STAT_RESERVED, (double)use->fixed_bytes);
  vt_xplane_put_count(&s, EVENT_STATS, STAT_ALLOCATED, (double)live);
  vt_xplane_put_count(&s, EVENT_STATS, STAT_AVAILABLE,
                      fmax(0, (double)(chip->hbm_limit_bytes - use->fixed_bytes - live)));
  vt_xplane_put_count(&s, EVENT_STATS, STAT_MOST, (double)use->peak_bytes);
  vt_xplane_put_count(&s, EVENT_STATS, STAT_REQUESTED, (double)p->bytes);
  vt_xplane_put_count(&s, EVENT_STATS, STAT_ALLOCATION, (double)p->bytes);
  vt_xplane_put_count(&s, EVENT_STATS, STAT_ADDRESS, index + 1);
  // Not as the operator: the overview would count it as one of the host's.
  const char *name = p->op->loc->name[0] ? p->op->loc->name : vt_op_short_name(p->op->code);
  vt_xplane_put_text(&s, EVENT_STATS, STAT_REGION, p->entry ? name : "other temporaries");
  if (p->entry) {
    vt_text shape = {0};
    vt_chip_print_shape(chip, p->entry->type, NULL, &shape);
    vt_xplane_put_text(&s, EVENT_STATS, STAT_SHAPES, vt_text_string(&shape));
    vt_text_free(&shape);
  }
  vt_xplane_put_count(&s, EVENT_STATS, STAT_STEP, 0);
  vt_xplane_put_event(line, freed ? FREED : ALLOCATED, at, 0, &s);
  vt_text_free(&s);
}

static void put_allocations(vt_text *plane, const memory *m, const vt_chip *chip) {
  const vt_prediction *p = m->prediction;
  const double *times = vt_view_times(p, m->arena);
  vt_text line = {0};
  int64_t live = 0;
  vt_wire_put_uint(&line, LINE_ID, 1);
  vt_xplane_put_string(&line, LINE_NAME, "HBM");
  for (uint32_t at = 0; at < p->hbm.point_count; at++) {
    for (uint32_t i = m->starts[at]; i; i = m->next_start[i - 1]) {
      live += m->pieces.data[i - 1].bytes;
      put_allocation(&line, m, chip, i - 1, false, times[at] * p->timing.seconds, live);
    }
    for (uint32_t i = m->ends[at]; i; i = m->next_end[i - 1]) {
      live -= m->pieces.data[i - 1].bytes;
      put_allocation(&line, m, chip, i - 1, true, times[at + 1] * p->timing.seconds, live);
    }
  }
  vt_xplane_put_message(plane, PLANE_LINES, &line);
}

void vt_xspace_put_use(vt_text *space, const vt_slice *slice, const vt_prediction *prediction) {
  static const char *const names[] = {
      [ALLOCATED] = "MemoryAllocation", [FREED] = "MemoryDeallocation"};
  const vt_timing *t = &prediction->timing;
  vt_arena arena = {0};
  vt_text plane = {0};
  memory m = memory_of(prediction, &arena);
  vt_wire_put_uint(&plane, PLANE_ID, 1000001);
  vt_xplane_put_string(&plane, PLANE_NAME, "/host:CPU");
  put_allocations(&plane, &m, slice->chip);
  for (uint64_t i = ALLOCATED; i <= FREED; i++) {
    vt_text metadata = {0};
    vt_wire_put_uint(&metadata, METADATA_ID, i);
    vt_xplane_put_string(&metadata, METADATA_NAME, names[i]);
    vt_xplane_put_entry(&plane, PLANE_EVENT_METADATA, i, &metadata);
  }
  vt_xplane_put_stat_names(&plane);
  vt_xplane_put_double(&plane, PLANE_STATS, STAT_MXU_SHARE,
                       100 * fmin(1, t->busy[VT_BOUND_MXU] / t->seconds));
  vt_xplane_put_double(&plane, PLANE_STATS, STAT_HBM_SHARE,
                       100 * fmin(1, t->busy[VT_BOUND_HBM] / t->seconds));
  vt_xplane_put_message(space, SPACE_PLANES, &plane);
  vt_arena_free(&arena);
}
