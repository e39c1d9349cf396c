// SPDX-License-Identifier: Apache-2.0
// timeline.c - the kernels of a program on one device, in time.
//
// One kernel runs at a time. Arrays between kernels stay in VMEM while they fit; what a kernel
// reads from HBM is copied to VMEM before it starts, as far as there is room, behind kernels that
// leave HBM idle; what does not fit is read in tiles while the kernel runs. Collectives that XLA
// runs asynchronously wait for their operands and for the links, kernels only for their results.
#include "chip/time/kernels.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "chip/ragged.h"

static const double scalar_share = 0.1; // of a kernel's overhead, for work on one number
static const double most_runs = 1e30;   // nested loops of absurd lengths count as that many
enum { WINDOW = 64, SHORT_LIFE = 8, MOST_LIFE = 512, MOST_STEPS = 64 };

typedef struct timeline {
  const vt_device_model *model;
  vt_arena *arena; // of the spans
  vt_arena *scratch;
  vt_timing *sums;
  VT_ARRAY(vt_span) spans;
  double mxu_slower; // by this factor, in long programs
  double now;
  int32_t depth;
  bool started; // the program's first kernel ran
} timeline;

// Where the arrays of a function are: the same in each run.
typedef struct vt_places {
  double room;       // in VMEM
  int32_t *producer; // by value id: kernel, or NONE
  int32_t *last;     // by value id: the last kernel that reads it
  bool *near;        // by value id: in VMEM from the beginning, or once it is made
  bool *kept;        // by value id: will be there once a kernel has read it whole
  double *held;      // by kernel: bytes of arrays in VMEM
  double *times;     // room for what a run knows of values and kernels
  bool *flags;
} places;

// One run of a function.
typedef struct run {
  timeline *t;
  const vt_kernel_list *list;
  const vt_scope *scope;
  double trips; // of this function in all
  double room;  // in VMEM
  const int32_t *producer;
  const bool *kept;
  const double *held;
  bool *near;      // by value id: in VMEM
  double *ready;   // by value id: when it is there
  double *begun;   // by value id: when the first part of it is, of one that is gathered
  double *slow;    // by value id: when its last part is, if a product takes the parts as they come
  double *parts;   // by value id: how many those are; 0: it takes none
  double *started; // by kernel: when
  bool *done;      // by kernel
  double links;    // when they are free
  double idle;     // seconds that HBM was idle, in which operands can have been copied
} run;

enum { NONE = -1 };

const char *vt_bound_name(vt_bound bound) {
  static const char *const names[VT_BOUND_COUNT] = {"MXU", "VPU", "HBM", "ICI", "launch"};
  return names[bound];
}

// ---- where arrays are ---------------------------------------------------------------------------

static void find_lives(places *p, const vt_kernel_list *list) {
  for (int32_t i = 0; i < list->func->value_count; i++) p->producer[i] = p->last[i] = NONE;
  for (uint32_t k = 0; k < list->count; k++) {
    const vt_kernel *kernel = &list->kernels[k];
    for (size_t i = 0; i < kernel->reads.size; i++)
      p->last[kernel->reads.data[i].value->id] = (int32_t)k;
    for (size_t i = 0; i < kernel->writes.size; i++) {
      p->producer[kernel->writes.data[i].value->id] = (int32_t)k;
      if (p->last[kernel->writes.data[i].value->id] < (int32_t)k)
        p->last[kernel->writes.data[i].value->id] = (int32_t)k;
    }
  }
}

// Room for an array from one kernel to another, if there is all the time.
static bool reserve(places *p, uint32_t from, int32_t to, double bytes) {
  for (int32_t at = (int32_t)from; at <= to; at++)
    if (p->held[at] + bytes > p->room) return false;
  for (int32_t at = (int32_t)from; at <= to; at++) p->held[at] += bytes;
  return true;
}

// Bytes that the kernel reads and that are not in VMEM.
static double far_bytes(const bool *near, const vt_kernel *kernel) {
  double bytes = 0;
  for (size_t i = 0; i < kernel->reads.size; i++)
    if (!near[kernel->reads.data[i].value->id]) bytes += kernel->reads.data[i].bytes;
  return bytes;
}

// An array that nobody outside of the function sees stays in VMEM from the kernel that writes it to
// the last that reads it; a product's result only beside its operands. One that is in HBM, and read
// again, stays from its first reader on. Of those that live for no longer than `life` kernels.
static void place_up_to(places *p, const vt_kernel_list *list, int32_t life, const bool *returned) {
  for (uint32_t k = 0; k < list->count; k++) {
    const vt_kernel *kernel = &list->kernels[k];
    int32_t latest = (int32_t)k + life;
    for (size_t i = 0; i < kernel->writes.size; i++) {
      const vt_stream *s = &kernel->writes.data[i];
      int32_t id = s->value->id;
      if (p->near[id] || returned[id] || kernel->kind == VT_KERNEL_UPDATE || p->last[id] > latest)
        continue;
      bool fits = kernel->kind != VT_KERNEL_PRODUCT ||
                  s->whole + p->held[k] + far_bytes(p->near, kernel) <= p->room;
      p->near[id] = fits && reserve(p, k, p->last[id], s->whole);
    }
    for (size_t i = 0; i < kernel->reads.size; i++) {
      const vt_stream *s = &kernel->reads.data[i];
      int32_t id = s->value->id;
      if (!p->near[id] && !p->kept[id] && s->bytes >= s->whole && p->last[id] > (int32_t)k &&
          p->last[id] <= latest)
        p->kept[id] = reserve(p, k, p->last[id], s->whole);
    }
  }
}

// CMEM keeps one parameter from run to run: the largest that a product reads and that fits.
static void keep_parameter(places *p, const vt_kernel_list *list, const vt_chip *chip) {
  double room = (double)chip->cmem_bytes / 2, largest = 0;
  const vt_value *kept = NULL;
  for (uint32_t k = 0; k < list->count; k++) {
    const vt_kernel *kernel = &list->kernels[k];
    for (size_t i = 0; i < kernel->reads.size && kernel->kind == VT_KERNEL_PRODUCT; i++) {
      const vt_stream *s = &kernel->reads.data[i];
      if (s->value->op || s->whole > room || s->whole <= largest) continue;
      largest = s->whole;
      kept = s->value;
    }
  }
  if (!kept) return;
  p->near[kept->id] = true;
  p->room -= largest;
}

// Room is short: those come first that need it for the shortest time. One that waits for the
// backward pass saves the bytes of one array, and takes the place of all that come between.
// `near`: parameters that a loop keeps in VMEM; NULL: of no loop.
static places *find_places(timeline *t, const vt_kernel_list *list, double room, const bool *near) {
  const vt_func *func = list->func;
  size_t values = (size_t)func->value_count + 1, kernels = list->count + 1;
  places *p = VT_NEW(t->scratch, places);
  *p = (places){.room = room,
                .producer = VT_NEW_ARRAY(t->scratch, int32_t, values),
                .last = VT_NEW_ARRAY(t->scratch, int32_t, values),
                .near = VT_NEW_ARRAY(t->scratch, bool, values),
                .kept = VT_NEW_ARRAY(t->scratch, bool, values),
                .held = VT_NEW_ARRAY(t->scratch, double, kernels)};
  p->times = vt_arena_push_raw(t->scratch, sizeof *p->times * (4 * values + kernels));
  p->flags = vt_arena_push_raw(t->scratch, sizeof *p->flags * (values + kernels));
  bool *returned = VT_NEW_ARRAY(t->scratch, bool, values);
  find_lives(p, list);
  for (uint32_t i = 0; i < func->param_count; i++) p->near[func->params[i]->id] = near && near[i];
  for (uint32_t i = 0; i < func->return_count; i++) {
    int32_t id = vt_kernel_source(func->returns[i])->id;
    if (!near || i >= func->param_count || !near[i])
      returned[id] = true;
    else
      p->near[id] = true; // where the loop carries it
  }
  if (!near && !t->depth) keep_parameter(p, list, t->model->chip);
  for (int32_t life = SHORT_LIFE; life <= MOST_LIFE; life *= SHORT_LIFE)
    place_up_to(p, list, life, returned);
  return p;
}

// ---- one kernel ---------------------------------------------------------------------------------

static const char *kind_name(const vt_kernel *kernel) {
  switch (kernel->kind) {
  case VT_KERNEL_LOOP:
    return kernel->members.size == 1 && !vt_op_info_get(kernel->root->code)->cost ? "copy"
                                                                                  : "loop fusion";
  case VT_KERNEL_REDUCE:
    return "reduction";
  case VT_KERNEL_PRODUCT:
    return kernel->hero->code == VT_OP_CONVOLUTION ? "convolution" : "product";
  case VT_KERNEL_UPDATE:
    return "update";
  case VT_KERNEL_GATHER:
    return "gather";
  default:
    return vt_op_short_name(kernel->hero->code);
  }
}

static bool is_scalar(const vt_kernel *kernel) {
  if (kernel->kind != VT_KERNEL_LOOP) return false;
  for (size_t i = 0; i < kernel->members.size; i++)
    for (uint32_t k = 0; k < kernel->members.data[i]->result_count; k++)
      if (vt_type_elements(kernel->members.data[i]->results[k].type) > 1) return false;
  return true;
}

static vt_bound largest(const double *busy) {
  vt_bound most = VT_BOUND_LAUNCH;
  for (int b = 0; b < VT_BOUND_COUNT; b++)
    if (busy[b] > busy[most]) most = (vt_bound)b;
  return most;
}

// `busy`, flops and bytes are filled in.
static void record(run *r, const vt_kernel *kernel, vt_span span, double start, double seconds) {
  timeline *t = r->t;
  span.op = kernel->hero ? kernel->hero : kernel->root;
  span.kind = kind_name(kernel);
  span.depth = t->depth;
  span.trips = r->trips;
  span.start = start;
  span.seconds = seconds;
  span.bound = largest(span.busy);
  for (int b = 0; b < VT_BOUND_COUNT; b++) t->sums->busy[b] += r->trips * span.busy[b];
  t->sums->flops += r->trips * span.flops;
  t->sums->hbm_bytes += r->trips * span.hbm_bytes;
  vt_array_push_in(t->arena, &t->spans, span);
}

// Bytes that a kernel reads from HBM: those that are copied to VMEM before it starts, as far as
// there is room, and those that it reads as it runs.
typedef struct from_hbm {
  double copied, streamed;
  double spilled; // of a product whose operands are too many for VMEM: how many times its room
} from_hbm;

// What of a product's operands, and of what is fused with it, comes from HBM.
typedef struct product_reads {
  double side[2], rest; // rest: what its result goes on with
} product_reads;

// Whether the kernel makes the value of this array, or it is the array.
static bool is_made_of(const vt_kernel *kernel, const vt_value *value, const vt_value *array,
                       int *steps) {
  value = vt_kernel_source(value);
  bool inside = false;
  if (value == array) return true;
  for (size_t i = 0; i < kernel->members.size && !inside; i++)
    inside = kernel->members.data[i] == value->op;
  for (uint32_t i = 0; inside && i < value->op->operand_count && --*steps > 0; i++)
    if (is_made_of(kernel, value->op->operands[i], array, steps)) return true;
  return false;
}

// Of which of a product's operands the array is, or makes, a part; 2: of neither.
static int side_of(const vt_kernel *kernel, const vt_value *array) {
  for (int side = 0; side < 2; side++) {
    int steps = MOST_STEPS;
    if (is_made_of(kernel, vt_ragged_operand(kernel->hero, (uint32_t)side), array, &steps))
      return side;
  }
  return 2;
}

static product_reads product_reads_of(const run *r, const vt_kernel *kernel) {
  product_reads p = {0};
  for (size_t i = 0; i < kernel->reads.size; i++) {
    const vt_stream *s = &kernel->reads.data[i];
    int side = r->near[s->value->id] ? 2 : side_of(kernel, s->value);
    *(side < 2 ? &p.side[side] : &p.rest) += r->near[s->value->id] ? 0 : s->bytes;
  }
  for (uint32_t side = 0; side < 2; side++) {
    vt_type type = vt_ragged_operand(kernel->hero, side)->type;
    double more = p.side[side] - vt_kernel_bytes(r->t->model, type);
    if (more <= 0) continue;
    p.side[side] -= more;
    p.rest += more;
  }
  return p;
}

// A product copies its operands first. If they do not fit, it copies the smaller one and takes the
// other in tiles as it runs; if neither fits, both come in tiles.
static from_hbm reads_of_product(const run *r, const vt_kernel *kernel, double room) {
  product_reads p = product_reads_of(r, kernel);
  double least = fmin(p.side[0], p.side[1]), most = fmax(p.side[0], p.side[1]);
  if (least <= room) return (from_hbm){least, most + p.rest, 0};
  vt_product product = vt_product_of(r->t->model->chip, kernel->hero);
  double bytes = vt_product_traffic(r->t->model, &product, p.side[0], p.side[1]);
  return (from_hbm){0, bytes + p.rest, 0};
}

static from_hbm reads_of(const run *r, const vt_kernel *kernel, uint32_t at) {
  double room = fmax(0, r->room - r->held[at]), all = 0;
  for (size_t i = 0; i < kernel->reads.size; i++) {
    const vt_stream *s = &kernel->reads.data[i];
    if (r->near[s->value->id]) continue;
    all += s->bytes;
    if (r->kept[s->value->id]) room += s->bytes; // is held already
  }
  bool ahead = kernel->kind == VT_KERNEL_PRODUCT && kernel->mxu_s > 0;
  if (kernel->moved > 0) return (from_hbm){kernel->first, kernel->moved - kernel->first, 0};
  if (ahead && all > room) {
    from_hbm read = reads_of_product(r, kernel, room);
    read.spilled = room > 0 ? all / room : 0;
    return read;
  }
  return all <= room ? (from_hbm){all, 0, 0} : (from_hbm){0, all, 0};
}

// While the kernel leaves HBM idle, operands of those behind it are copied.
static void use_idle(run *r, uint32_t at, double seconds) {
  double most = fmax(0, r->room - r->held[at]) / r->t->model->hbm_bytes_per_s;
  r->idle = fmax(0, fmin(r->idle + fmax(seconds, 0), most));
}

// Seconds that a block of each of these arrays takes.
static double block_s(const vt_device_model *model, vt_streams streams) {
  return (double)streams.size * model->block_bytes / model->hbm_bytes_per_s;
}

// A product whose operands come in tiles while it works. Tiles differ, so that each side waits for
// the other now and then: a fifth longer where both take as long, nothing where one is short. Of
// the powers 2, 4 and 8, half of the products on v6e prefer the fourth.
static double beside(double work, double stream) {
  double most = fmax(work, stream), share = most > 0 ? fmin(work, stream) / most : 0;
  share *= share;
  return most * sqrt(sqrt(1 + share * share));
}

static void run_kernel(run *r, uint32_t at) {
  timeline *t = r->t;
  const vt_device_model *model = t->model;
  const vt_kernel *kernel = &r->list->kernels[at];
  from_hbm read = reads_of(r, kernel, at);
  double share = kernel->cores / model->cores; // each core has its part of HBM's rate
  double written = 0, rate = model->hbm_bytes_per_s * share, all_reads = far_bytes(r->near, kernel);
  double write_rate = model->hbm_writes_per_s * share;
  for (size_t i = 0; i < kernel->writes.size && !(kernel->moved > 0); i++)
    if (!r->near[kernel->writes.data[i].value->id]) written += kernel->writes.data[i].bytes;
  double copy = read.copied / rate, write = written / write_rate;
  double hidden = fmin(copy, r->idle), first = copy - hidden;
  double mxu = kernel->mxu_s * t->mxu_slower,
         work = fmax(mxu, kernel->vpu_s) + kernel->ahead_s + kernel->steps_s;
  double stream = read.streamed / rate + write;
  // A product copies operands before it. Others begin with the first blocks of theirs.
  if (kernel->kind != VT_KERNEL_PRODUCT || !(kernel->mxu_s > 0)) {
    stream += first;
    first = fmin(first + read.streamed / rate, block_s(model, kernel->reads));
    stream -= first;
  }
  // The last blocks are written after it.
  double last = fmin(write, block_s(model, kernel->writes)) + kernel->last / write_rate;
  bool tiles = read.streamed > 0 && kernel->kind == VT_KERNEL_PRODUCT && kernel->mxu_s > 0;
  double body = first + (tiles ? beside(work + last, stream) : fmax(work + last, stream));
  // Tiles overlap, copies do not: so a chip is up to a tenth faster just above what VMEM holds than
  // just below. More work is not said to be faster here.
  if (read.spilled > 0) body = fmax(body, (all_reads / rate + work) / read.spilled + last);
  double launch = t->started ? model->rates->kernel_s : model->rates->launch_s;
  if (t->started && is_scalar(kernel)) launch *= scalar_share;
  double seconds = launch + body;
  t->started = true;
  r->idle -= hidden;
  use_idle(r, at, work - stream);
  vt_span span = {.flops = kernel->flops,
                  .hbm_bytes = read.copied + read.streamed + written,
                  .cores = (int32_t)kernel->cores};
  span.busy[VT_BOUND_MXU] = mxu;
  span.busy[VT_BOUND_VPU] = kernel->vpu_s + kernel->ahead_s;
  span.busy[VT_BOUND_HBM] = copy + read.streamed / rate + write;
  span.busy[VT_BOUND_LAUNCH] = launch + kernel->steps_s;
  record(r, kernel, span, t->now, seconds);
  t->now += seconds;
  for (size_t i = 0; i < kernel->reads.size; i++) {
    int32_t id = kernel->reads.data[i].value->id;
    r->near[id] = r->near[id] || r->kept[id];
  }
}

// ---- loops and branches -------------------------------------------------------------------------

static double run_list(timeline *t, vt_kernel_list *list, const vt_scope *scope, double trips,
                       double room, const bool *near);

// Which of a loop's values stay in VMEM from trip to trip: the smaller ones, as far as half of the
// room goes.
static double keep_carried(const run *r, const vt_func *func, bool *near) {
  double kept = 0, room = r->room / 2;
  for (double limit = room / 64; limit <= room; limit *= 2)
    for (uint32_t i = 0; i < func->param_count; i++) {
      double bytes = vt_kernel_bytes(r->t->model, func->params[i]->type);
      if (near[i] || bytes > limit || kept + bytes > room) continue;
      near[i] = true;
      kept += bytes;
    }
  return kept;
}

static void run_while(run *r, const vt_kernel *kernel, uint32_t at) {
  timeline *t = r->t;
  const vt_op *op = kernel->hero;
  int64_t trips = 1;
  vt_scope body = {r->scope, op, op->regions[1]};
  if (!vt_loop_trips(r->scope, op, &trips)) {
    trips = 1;
    t->sums->exact_trips = false;
  }
  if (trips < 1) return;
  double start = t->now, exposed = t->sums->exposed;
  size_t index = t->spans.size;
  record(r, kernel, (vt_span){0}, start, 0);
  bool *near = VT_NEW_ARRAY(t->scratch, bool, op->regions[1]->param_count + 1);
  double kept = keep_carried(r, op->regions[1], near);
  double room = fmax(0, r->room - r->held[at] - kept), loaded = 0;
  for (uint32_t i = 0; i < op->regions[1]->param_count; i++)
    if (near[i] && !r->near[vt_kernel_source(op->operands[i])->id])
      loaded += vt_kernel_bytes(t->model, op->operands[i]->type);
  t->now += loaded / t->model->hbm_bytes_per_s;
  t->sums->hbm_bytes += r->trips * loaded;
  t->sums->busy[VT_BOUND_HBM] += r->trips * loaded / t->model->hbm_bytes_per_s;
  t->depth++;
  double before = t->now;
  double runs = fmin(r->trips * (double)trips, most_runs);
  double one = run_list(t, kernel->inside[1], &body, runs, room, near) + t->model->rates->trip_s;
  t->depth--;
  t->now = before + fmin(one * (double)trips, most_runs);
  // What is exposed in one trip was added once.
  double waits = (t->sums->exposed - exposed) * (double)trips;
  t->sums->exposed = exposed + fmin(waits, most_runs);
  t->sums->busy[VT_BOUND_LAUNCH] += t->model->rates->trip_s * runs;
  t->spans.data[index].seconds = t->now - start;
}

static void run_branches(run *r, const vt_kernel *kernel, uint32_t at) {
  timeline *t = r->t;
  const vt_op *op = kernel->hero;
  double start = t->now, dearest = -1, room = fmax(0, r->room - r->held[at]);
  size_t index = t->spans.size;
  record(r, kernel, (vt_span){0}, start, 0);
  vt_timing best = *t->sums, before = *t->sums;
  size_t first = t->spans.size;
  VT_ARRAY(vt_span) kept = {0};
  t->depth++;
  for (uint32_t i = 0; i < kernel->inside_count; i++) {
    vt_func *func = vt_op_callee(op) ? vt_op_callee(op) : op->regions[i];
    vt_scope inside = {r->scope, op, func};
    *t->sums = before, t->now = start, t->spans.size = first;
    double one = run_list(t, kernel->inside[i], &inside, r->trips, room, NULL);
    if (one <= dearest) continue;
    dearest = one;
    best = *t->sums;
    kept.size = 0;
    for (size_t k = first; k < t->spans.size; k++)
      vt_array_push_in(t->scratch, &kept, t->spans.data[k]);
  }
  t->depth--;
  *t->sums = best, t->spans.size = first;
  for (size_t k = 0; k < kept.size; k++) vt_array_push_in(t->arena, &t->spans, kept.data[k]);
  t->now = start + fmax(dearest, 0);
  t->spans.data[index].seconds = t->now - start;
}

// ---- the order of kernels -----------------------------------------------------------------------

static bool is_async(const run *r, const vt_kernel *kernel) {
  return kernel->kind == VT_KERNEL_COLLECTIVE && vt_network_is_async(r->t->model, kernel->hero);
}

// Whether the kernel multiplies parts of an array as they come.
static bool takes_parts(const run *r, const vt_kernel *kernel, int32_t id) {
  if (kernel->kind != VT_KERNEL_PRODUCT || !(r->parts[id] > 0)) return false;
  const vt_op *op = kernel->hero;
  return vt_kernel_source(op->operands[0])->id == id || vt_kernel_source(op->operands[1])->id == id;
}

// When all that the kernel reads is there; a negative time if something has not been started.
static double ready_at(const run *r, const vt_kernel *kernel) {
  double ready = 0;
  for (size_t i = 0; i < kernel->reads.size; i++) {
    int32_t id = kernel->reads.data[i].value->id;
    if (r->producer[id] != NONE && !r->done[r->producer[id]] &&
        &r->list->kernels[r->producer[id]] != kernel)
      return -1;
    ready = fmax(ready, takes_parts(r, kernel, id) ? r->begun[id] : r->ready[id]);
  }
  return ready;
}

// A kernel that multiplies parts as they come has the last one to do when that is there; if that
// takes longer than to wait for the whole, it waits.
static void wait_for_parts(run *r, const vt_kernel *kernel, double start) {
  timeline *t = r->t;
  double seconds = t->now - start, end = t->now;
  for (size_t i = 0; i < kernel->reads.size; i++) {
    int32_t id = kernel->reads.data[i].value->id;
    if (!takes_parts(r, kernel, id)) continue;
    double along = r->slow[id] + seconds / r->parts[id];
    end = fmax(end, fmin(along, fmax(start, r->ready[id]) + seconds));
  }
  t->sums->exposed += end - t->now;
  t->now = end;
}

static void finish_kernel(run *r, uint32_t at, double time) {
  const vt_kernel *kernel = &r->list->kernels[at];
  r->done[at] = true;
  for (size_t i = 0; i < kernel->writes.size; i++)
    r->ready[kernel->writes.data[i].value->id] = time;
}

// The product whose result is scattered part by part as it is made, or NONE.
static int32_t maker_of_parts(const run *r, const vt_kernel *kernel) {
  if (!(kernel->windows.parts > 0) || kernel->hero->code != VT_OP_REDUCE_SCATTER) return NONE;
  int32_t maker = kernel->reads.size == 1 ? r->producer[kernel->reads.data[0].value->id] : NONE;
  return maker != NONE && r->list->kernels[maker].kind == VT_KERNEL_PRODUCT ? maker : NONE;
}

static void run_collective(run *r, uint32_t at, double ready) {
  timeline *t = r->t;
  const vt_kernel *kernel = &r->list->kernels[at];
  bool async = is_async(r, kernel);
  double start = fmax(ready, r->links);
  if (!async) start = fmax(start, t->now);
  double end = start + kernel->network_s;
  vt_windows windows = kernel->windows;
  double slow = kernel->network_s * windows.slower;
  int32_t maker = maker_of_parts(r, kernel);
  if (maker != NONE) {
    double made = r->ready[kernel->reads.data[0].value->id], began = r->started[maker];
    double first = fmax(r->links, began + (made - began) / windows.parts);
    end = fmin(end, fmax(first + slow, made + slow / windows.parts));
  }
  r->links = end;
  vt_span span = {0};
  span.busy[VT_BOUND_ICI] = kernel->network_s;
  record(r, kernel, span, start, kernel->network_s);
  if (!async && end > t->now) {
    t->sums->exposed += end - t->now;
    t->now = end;
  }
  for (size_t i = 0; i < kernel->writes.size && kernel->hero->code == VT_OP_ALL_GATHER; i++) {
    int32_t id = kernel->writes.data[i].value->id;
    r->begun[id] = start, r->slow[id] = start + slow, r->parts[id] = windows.parts;
  }
  finish_kernel(r, at, end);
}

static void run_one(run *r, uint32_t at, double ready) {
  timeline *t = r->t;
  const vt_kernel *kernel = &r->list->kernels[at];
  if (kernel->kind == VT_KERNEL_COLLECTIVE) {
    run_collective(r, at, ready);
    return;
  }
  if (ready > t->now) {
    t->sums->exposed += ready - t->now;
    t->now = ready;
  }
  double start = r->started[at] = t->now;
  if (kernel->kind != VT_KERNEL_CONTROL) {
    run_kernel(r, at);
    wait_for_parts(r, kernel, start);
  } else if (kernel->hero->code == VT_OP_WHILE)
    run_while(r, kernel, at);
  else
    run_branches(r, kernel, at);
  if (kernel->kind == VT_KERNEL_CONTROL) r->idle = 0, r->links = fmax(r->links, t->now);
  finish_kernel(r, at, t->now);
}

// In order, but a kernel that waits for a collective lets those behind it go first.
static void run_kernels(run *r) {
  uint32_t first = 0, count = r->list->count;
  while (first < count) {
    if (r->done[first]) {
      first++;
      continue;
    }
    uint32_t best = first, end = first + WINDOW < count ? first + WINDOW : count;
    double soonest = HUGE_VAL;
    for (uint32_t k = first; k < end; k++) {
      if (r->done[k]) continue;
      double ready = ready_at(r, &r->list->kernels[k]);
      if (ready < 0) continue;
      if (is_async(r, &r->list->kernels[k])) {
        run_one(r, k, ready);
        continue;
      }
      if (ready < soonest) soonest = ready, best = k;
      if (ready <= r->t->now) break;
    }
    if (!r->done[best]) run_one(r, best, isfinite(soonest) ? soonest : 0);
  }
}

static double run_list(timeline *t, vt_kernel_list *list, const vt_scope *scope, double trips,
                       double room, const bool *near) {
  size_t values = (size_t)list->func->value_count + 1, kernels = list->count + 1;
  if (!list->places) list->places = find_places(t, list, room, near);
  const places *p = list->places;
  memset(p->times, 0, sizeof *p->times * 2 * values); // of the others only what was set is read
  memset(p->flags, 0, sizeof *p->flags * kernels);
  memcpy(p->flags + kernels, p->near, sizeof *p->near * values);
  run r = {.t = t,
           .list = list,
           .scope = scope,
           .trips = trips,
           .room = p->room,
           .producer = p->producer,
           .kept = p->kept,
           .held = p->held,
           .ready = p->times,
           .parts = p->times + values,
           .begun = p->times + 2 * values,
           .slow = p->times + 3 * values,
           .started = p->times + 4 * values,
           .done = p->flags,
           .near = p->flags + kernels,
           .links = t->now};
  double start = t->now;
  run_kernels(&r);
  t->now = fmax(t->now, r.links);
  return t->now - start;
}

// ---- the whole ----------------------------------------------------------------------------------

static const vt_rates rates[VT_CHIP_COUNT] = {
#define RATES(id, slots, narrow, trans, lane, load, mxu, hbm, launch, kernel, trip, gather,        \
              reduce, coll, package, dcn, idle, busy, sustained, scoped, read, off)                \
  [VT_CHIP_##id] = {slots,  narrow, trans,         lane,          load,                            \
                    mxu,    hbm,    launch * 1e-6, kernel * 1e-6, trip * 1e-6,                     \
                    gather, reduce, coll * 1e-6,   package * 1e9, dcn * 1e9,                       \
                    idle,   busy,   sustained,     read,          scoped * 1048576.0,              \
                    off},
#include "chip/time/rates.def"
};

enum {
  RATES_ROWS = 0
#define RATES(...) +1
#include "chip/time/rates.def"
};
_Static_assert(RATES_ROWS == (int)VT_CHIP_COUNT, "each chip has its row in rates.def");

const vt_rates *vt_rates_of(const vt_chip *chip) {
  return chip->rates ? chip->rates : &rates[chip->id];
}

static vt_device_model model_of(const vt_slice *slice, int32_t devices) {
  const vt_chip *chip = slice->chip;
  const vt_rates *r = vt_rates_of(chip);
  double per_chip = chip->devices, edge = chip->mxu_edge;
  vt_device_model m = {.slice = slice, .chip = chip, .rates = r, .devices = devices};
  m.cores = chip->cores / per_chip;
  m.clock = chip->clock_hz;
  m.mxu_rows_per_s = chip->bf16_flops_per_s / per_chip / (2 * edge * edge);
  double hbm = chip->hbm_bytes_per_s / per_chip;
  m.hbm_bytes_per_s = hbm * r->read_share;
  m.hbm_writes_per_s = hbm / (2 / r->hbm_share - 1 / r->read_share);
  double vmem = (double)chip->vmem_bytes_per_core * m.cores;
  double scoped = fmin(r->scoped_bytes, vmem * 0.75);
  m.block_bytes = scoped / 8;
  m.vmem_bytes = vmem - scoped + (double)chip->cmem_bytes / per_chip;
  return m;
}

// Power rises with what works; the matrix units and memory take most of it.
static double power(const vt_device_model *model, const vt_timing *timing) {
  const vt_rates *r = model->rates;
  static const double weights[VT_BOUND_COUNT] = {
      [VT_BOUND_MXU] = 0.55, [VT_BOUND_VPU] = 0.15, [VT_BOUND_HBM] = 0.25, [VT_BOUND_ICI] = 0.05};
  double activity = 0;
  for (int b = 0; b < VT_BOUND_COUNT; b++)
    activity += weights[b] * fmin(1, timing->busy[b] / timing->seconds);
  return (r->idle_w + (r->busiest_w - r->idle_w) * activity) / model->chip->devices;
}

// All of a list and of what they run: no run has more spans.
static size_t count_kernels(const vt_kernel_list *list) {
  size_t count = list->count;
  for (uint32_t i = 0; i < list->count; i++)
    for (uint32_t k = 0; k < list->kernels[i].inside_count; k++)
      count += count_kernels(list->kernels[i].inside[k]);
  return count;
}

// Spans of a run before are forgotten.
static void run_all(timeline *t, vt_kernel_list *list, double slower, vt_timing *out) {
  *t = (timeline){.model = t->model,
                  .arena = t->arena,
                  .scratch = t->scratch,
                  .sums = out,
                  .spans = {t->spans.data, 0, t->spans.capacity},
                  .mxu_slower = slower};
  *out = (vt_timing){.exact_trips = true};
  out->seconds = run_list(t, list, NULL, 1, t->model->vmem_bytes, NULL);
  if (out->seconds <= 0) out->seconds = t->model->rates->launch_s; // nothing runs
  out->bound = largest(out->busy);
  out->joules = out->seconds * power(t->model, out);
  out->count = (uint32_t)t->spans.size;
  out->spans = t->spans.data;
}

void vt_chip_time(const vt_slice *slice, int32_t devices, vt_module *module,
                  vt_kernel_cost_of *cost_of, vt_arena *arena, vt_timing *out_timing) {
  const double sprint = 1e-3, marathon = 8e-3; // programs up to here, and from here on
  vt_device_model model = model_of(slice, devices);
  model.cost_of = cost_of;
  vt_known_sizes sizes = {0};
  model.groups = vt_network_groups(arena);
  model.sizes = &sizes;
  vt_arena scratch = {.brief = true};
  vt_map bodies = {0};
  model.bodies = &bodies;
  model.arena = &scratch;
  vt_kernel_list *list = vt_kernels_make(&model, NULL, module->main, &scratch);
  timeline t = {.model = &model, .arena = arena, .scratch = &scratch};
  vt_array_reserve_in(arena, &t.spans, count_kernels(list));
  run_all(&t, list, 1, out_timing);
  double tired = fmin(1, fmax(0, (out_timing->seconds - sprint) / (marathon - sprint)));
  if (tired > 0) run_all(&t, list, 1 + tired * (1 / model.rates->sustained - 1), out_timing);
  vt_map_free(&bodies);
  vt_arena_free(&scratch);
}
