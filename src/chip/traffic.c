// SPDX-License-Identifier: Apache-2.0
// traffic.c - unavoidable HBM traffic of a module.
//
// A backward walk finds which part of each parameter the results need, at least: a compiler may
// fuse, reorder and slice early, but not skip what is read. Then
//   read     that part of each parameter, once; again on each trip of a loop that takes it in from
//            outside, less what the chips can keep
//   written  each result, except those that are a parameter updated in place
// Where the part is uncertain the small case counts: a gather may read one row many times.
#include "base/check.h"
#include "chip/traffic.h"

#include <math.h>
#include <string.h>

#include "base/map.h"
#include "chip/ragged.h"
#include "ir/loop.h"
#include "ir/sharding.h"

enum { DEEP = 8, MOST_SLICES = 256 };

typedef struct walk {
  vt_arena arena;
  double on_chip;
  double again; // bytes that loops read again, and those that kernels are said to move
  vt_kernel_said_of *said;
} walk;

// One function at one call site.
typedef struct frame {
  walk *w;
  const vt_scope *scope;
  double times; // at least this many runs, times the devices that run it
  int32_t depth;
  int64_t trips;  // of the loop whose body this is, 0 = none or unknown
  vt_map needs;   // value -> the part of it that is needed, a double
  vt_map visited; // value -> the part that all trips together need, each a different slice
  vt_map slices;  // value -> slices of it that have no element in common, see walk_slice
} frame;

static double type_bytes(vt_type type) {
  int32_t bits = vt_dtype_get(type.dtype)->bits;
  return (double)vt_type_elements(type) * (bits < 2 ? 8 : bits) / 8;
}

static double elements(const vt_value *value) {
  return (double)vt_type_elements(value->type);
}

static double part_of(const vt_map *map, const vt_value *value) {
  const double *at = vt_map_find_ptr(map, value);
  return at ? *at : 0;
}

static void raise_part(frame *f, vt_map *map, const vt_value *value, double part) {
  vt_assert(!isnan(part));
  if (!(part > 0)) return;
  double **at = (double **)vt_map_at_ptr(map, value);
  if (!*at) *at = VT_NEW(&f->w->arena, double);
  **at = fmax(**at, fmin(part, 1));
}

static double needed(const frame *f, const vt_value *value) {
  return part_of(&f->needs, value);
}

static void need(frame *f, const vt_value *value, double part) {
  raise_part(f, &f->needs, value, part);
}

static void free_maps(frame *f) {
  vt_map_free(&f->needs);
  vt_map_free(&f->visited);
  vt_map_free(&f->slices);
}

// The part of an operand of `size` elements that is needed when `left` of `all` elements are, and
// `size` of them come from the operand.
static double part_left(double left, double all, double size) {
  return size > 0 ? (left - (all - size)) / size : 0;
}

static void walk_func(frame *f, const vt_func *func, const double *returns);

// Walks a function that an op of `f` runs; out_needs gets the needs of its parameters.
static void walk_inner(frame *f, const vt_op *op, const vt_func *func, const double *returns,
                       double times, double *out_needs) {
  vt_scope scope = {f->scope, op, func};
  frame inner = {.w = f->w, .scope = &scope, .times = times, .depth = f->depth + 1};
  walk_func(&inner, func, returns);
  for (uint32_t i = 0; i < func->param_count; i++) out_needs[i] = needed(&inner, func->params[i]);
  free_maps(&inner);
}

// The same for a loop body. out_visited gets what all trips together need of each parameter, beyond
// what each trip needs.
static void walk_body(frame *f, const vt_op *op, const double *returns, double times, int64_t trips,
                      double *out_needs, double *out_visited) {
  const vt_func *func = op->regions[1];
  vt_scope scope = {f->scope, op, func};
  frame inner = {.w = f->w, .scope = &scope, .times = times, .depth = f->depth + 1, .trips = trips};
  walk_func(&inner, func, returns);
  for (uint32_t i = 0; i < func->param_count; i++) {
    out_needs[i] = needed(&inner, func->params[i]);
    out_visited[i] = part_of(&inner.visited, func->params[i]);
  }
  free_maps(&inner);
}

static bool hands_on(const vt_func *body, uint32_t param) {
  return param >= body->return_count || body->returns[param] == body->params[param];
}

// Whether a value of the frame comes from a parameter of main, and how many bytes of HBM hold it at
// least: elementwise results may be recomputed on each trip.
static bool from_main(const vt_scope *scope, const vt_value *value, double *out_bytes) {
  double bytes = type_bytes(value->type);
  for (;;) {
    value = vt_scope_resolve(scope, value, &scope);
    bytes = fmin(bytes, type_bytes(value->type));
    if (!value->op) break;
    switch (value->op->code) {
    case VT_OP_CONVERT:
    case VT_OP_REDUCE_PRECISION:
    case VT_OP_RESHAPE:
    case VT_OP_TRANSPOSE:
    case VT_OP_BITCAST_CONVERT:
    case VT_OP_OPTIMIZATION_BARRIER:
      value = value->op->operands[value->index];
      continue;
    default:
      return false;
    }
  }
  *out_bytes = bytes;
  return scope == NULL;
}

static void walk_while(frame *f, const vt_op *op) {
  vt_assert(op->region_count == 2 && op->regions[1]->return_count <= op->regions[1]->param_count);
  const vt_func *cond = op->regions[0], *body = op->regions[1];
  uint32_t count = body->param_count, carried = body->return_count;
  double *returns = VT_NEW_ARRAY(&f->w->arena, double, carried + 1);
  double *params = VT_NEW_ARRAY(&f->w->arena, double, count + 1);
  double *visited = VT_NEW_ARRAY(&f->w->arena, double, count + 1);
  double *tested = VT_NEW_ARRAY(&f->w->arena, double, count + 1), again = f->w->again;
  int64_t trips = 0;
  bool known = vt_loop_trips(f->scope, op, &trips);
  double times = f->times * (double)trips;
  for (uint32_t i = 0; i < carried; i++) returns[i] = needed(f, &op->results[i]);
  // What a trip needs, the previous trip has to produce. Deep nests would take long: they get one
  // round, which finds less.
  for (int round = f->depth < DEEP ? 0 : 1; round < 2; round++) {
    f->w->again = again;
    walk_body(f, op, returns, times, trips, params, visited);
    for (uint32_t i = 0; i < carried; i++) returns[i] = fmax(returns[i], params[i]);
  }
  walk_inner(f, op, cond, (double[]){1}, times, tested);
  double taken_in = 0, bytes;
  for (uint32_t i = 0; i < count; i++)
    if (hands_on(body, i) && params[i] > 0 && from_main(f->scope, op->operands[i], &bytes))
      taken_in += params[i] * bytes;
  // The first trip's reads are part of what main needs.
  double devices = trips > 0 ? times / (double)trips : 0;
  if (known && trips > 1)
    f->w->again +=
        devices * (double)(trips - 1) * fmax(0, taken_in - f->w->on_chip / fmax(devices, 1));
  for (uint32_t i = 0; i < count; i++) {
    double unchanged = i < carried ? needed(f, &op->results[i]) : 0;
    double part = trips > 0 ? fmax(params[i], visited[i]) : 0;
    if (trips == 0 || (i < carried && hands_on(body, i))) part = fmax(part, unchanged);
    if (!known) part = fmin(part, fmax(unchanged, tested[i]));
    need(f, op->operands[i], fmax(part, tested[i]));
  }
}

static void walk_branches(frame *f, const vt_op *op, const double *returns) {
  vt_assert(op->region_count >= 1 && op->operand_count >= op->regions[0]->param_count);
  uint32_t count = op->regions[0]->param_count, skip = op->operand_count - count;
  double *least = VT_NEW_ARRAY(&f->w->arena, double, count + 1);
  double *params = VT_NEW_ARRAY(&f->w->arena, double, count + 1);
  double again = f->w->again; // no branch is certain to run
  for (uint32_t r = 0; r < op->region_count; r++) {
    walk_inner(f, op, op->regions[r], returns, f->times, params);
    for (uint32_t i = 0; i < count; i++) least[i] = r ? fmin(least[i], params[i]) : params[i];
  }
  f->w->again = again;
  need(f, op->operands[0], 1);
  for (uint32_t i = 0; i < count; i++) need(f, op->operands[i + skip], least[i]);
}

static void walk_control(frame *f, const vt_op *op) {
  double *returns = VT_NEW_ARRAY(&f->w->arena, double, op->result_count + 1);
  double *params = VT_NEW_ARRAY(&f->w->arena, double, op->operand_count + 1);
  for (uint32_t i = 0; i < op->result_count; i++) returns[i] = needed(f, &op->results[i]);
  const vt_func *func = vt_op_callee(op);
  double times = f->times;
  switch (op->code) {
  case VT_OP_WHILE:
    walk_while(f, op);
    return;
  case VT_OP_IF:
  case VT_OP_CASE:
    walk_branches(f, op, returns);
    return;
  case VT_OP_MANUAL_COMPUTATION:
    func = op->regions[0];
    times *= vt_op_manual_devices(op);
    break;
  default:
    break;
  }
  if (!func) return;
  walk_inner(f, op, func, returns, times, params);
  for (uint32_t i = 0; i < func->param_count; i++) need(f, op->operands[i], params[i]);
}

// Windows with gaps skip elements.
static double window_part(const vt_op *op, vt_attr_key size_key) {
  uint32_t count = 0;
  double part = 1;
  const int64_t *strides = vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, &count), *spatial = NULL;
  if (op->code == VT_OP_CONVOLUTION)
    spatial = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  for (uint32_t i = 0; i < count; i++) {
    int64_t size =
        spatial ? op->operands[1]->type.dims[spatial[i]] : vt_attr_ints(op, size_key, NULL)[i];
    if (strides[i] > size) part *= (double)size / (double)strides[i];
  }
  return part;
}

static bool in_loop(const frame *f) {
  for (const vt_scope *s = f->scope; s; s = s->outer)
    if (s->op->code == VT_OP_WHILE) return true;
  return false;
}

// Whether an index differs on each trip of the loop whose body this is: it is the loop's counter,
// or what frameworks compute from it to count from the end.
static bool counts(const frame *f, const vt_value *index) {
  vt_assert(f->scope);
  const vt_func *body = f->scope->func;
  for (const vt_op *op = index->op; op; op = index->op) {
    if (op->code != VT_OP_SELECT && op->code != VT_OP_CONVERT && op->code != VT_OP_SUBTRACT &&
        op->code != VT_OP_ADD)
      return false;
    index = op->operands[op->code == VT_OP_SELECT ? 2 : 0];
    if (op->code == VT_OP_SUBTRACT) index = op->operands[1]; // from a constant
  }
  if ((uint32_t)index->index >= body->return_count) return false;
  const vt_op *step = body->returns[index->index]->op;
  return step && step->code == VT_OP_ADD && step->operands[0] == index && step->operands[1]->op &&
         step->operands[1]->op->code == VT_OP_CONSTANT;
}

// A slice of a loop's input, a different one on each trip.
static bool walk_visit(frame *f, const vt_op *op, double part) {
  const vt_value *from = op->operands[0];
  if (f->trips < 1 || from->op || !hands_on(f->scope->func, (uint32_t)from->index)) return false;
  for (uint32_t i = 1; i < op->operand_count; i++)
    if (counts(f, op->operands[i])) {
      raise_part(f, &f->visited, from, part * (double)f->trips);
      return true;
    }
  return false;
}

// Slices of one array that have no element in common, and the part of it that they need together.
typedef struct slices {
  const vt_op *list[MOST_SLICES];
  uint32_t count;
  double part;
} slices;

static bool are_apart(const vt_op *a, const vt_op *b) {
  const int64_t *from[2], *to[2], *step[2];
  for (int i = 0; i < 2; i++) {
    const vt_op *op = i ? b : a;
    from[i] = vt_attr_ints(op, VT_ATTR_START_INDICES, NULL);
    to[i] = vt_attr_ints(op, VT_ATTR_LIMIT_INDICES, NULL);
    step[i] = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
  }
  for (int32_t d = 0; d < a->results[0].type.rank; d++)
    if (to[0][d] <= from[1][d] || to[1][d] <= from[0][d] ||
        (step[0][d] == step[1][d] && (from[0][d] - from[1][d]) % step[0][d]))
      return true;
  return false;
}

// Of slices that overlap the first counts, or the larger one where that needs more than all those
// that do not.
static void walk_slice(frame *f, const vt_op *op, double part) {
  slices **known = (slices **)vt_map_at_ptr(&f->slices, op->operands[0]);
  if (!*known) *known = VT_NEW(&f->w->arena, slices);
  slices *s = *known;
  bool apart = s->count < MOST_SLICES;
  for (uint32_t i = 0; i < s->count && apart; i++) apart = are_apart(s->list[i], op);
  if (apart) {
    s->list[s->count++] = op;
    s->part += part;
  }
  need(f, op->operands[0], fmax(part, s->part));
}

// An array in which `update` replaces a part.
static void walk_update(frame *f, const vt_op *op, uint32_t array, uint32_t update, double part) {
  double all = elements(op->operands[array]), fresh = elements(op->operands[update]);
  if (!in_loop(f)) need(f, op->operands[array], part_left(part * all, fresh + all, all));
  need(f, op->operands[update], part_left(part * all, all, fresh));
}

static void walk_move(frame *f, const vt_op *op, double part) {
  double out = elements(&op->results[0]), in = op->operand_count ? elements(op->operands[0]) : 0;
  switch (op->code) {
  case VT_OP_SLICE:
  case VT_OP_DYNAMIC_SLICE:
    part *= in > 0 ? out / in : 0;
    if (op->code == VT_OP_SLICE)
      walk_slice(f, op, part);
    else if (!walk_visit(f, op, part))
      need(f, op->operands[0], part);
    break;
  case VT_OP_PAD:
    need(f, op->operands[0], part_left(part * out, fmax(out, in), in));
    break;
  case VT_OP_CONCATENATE:
    for (uint32_t i = 0; i < op->operand_count; i++)
      need(f, op->operands[i], part_left(part * out, out, elements(op->operands[i])));
    break;
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    walk_update(f, op, 0, 1, part);
    break;
  case VT_OP_GATHER:
    need(f, op->operands[1], part);
    break;
  case VT_OP_SCATTER:
    for (uint32_t i = 0; i < op->result_count; i++)
      walk_update(f, op, i, op->result_count + 1 + i, part);
    break;
  default: // elements move
    for (uint32_t i = 0; i < op->operand_count; i++) need(f, op->operands[i], part);
  }
}

static void walk_op(frame *f, const vt_op *op) {
  const vt_op_info *info = vt_op_info_get(op->code);
  double part = 0;
  for (uint32_t i = 0; i < op->result_count; i++) part = fmax(part, needed(f, &op->results[i]));
  if (info->flags & VT_OPF_CONTROL) {
    walk_control(f, op);
    return;
  }
  if (info->flags & VT_OPF_EFFECT) part = 1;
  if (!(part > 0)) return;
  if (op->code == VT_OP_OPTIMIZATION_BARRIER) {
    for (uint32_t i = 0; i < op->operand_count; i++)
      need(f, op->operands[i], needed(f, &op->results[i]));
    return;
  }
  vt_kernel_said kernel;
  if (op->code == VT_OP_CUSTOM_CALL && f->w->said && f->w->said(op, &kernel))
    f->w->again += f->times * kernel.bytes;
  if (op->code == VT_OP_CUSTOM_CALL && !vt_op_is_marker(op)) return; // what it reads is unknown
  if (op->code == VT_OP_CONVOLUTION) {
    need(f, op->operands[0], part * window_part(op, VT_ATTR_NONE));
    need(f, op->operands[1], part);
    return;
  }
  vt_ragged ragged;
  if (vt_ragged_of(op, &ragged) && !ragged.each) { // matrices of groups without rows stay there
    need(f, op->operands[0], part);
    need(f, op->operands[1], part * ragged.used / ragged.groups);
    return;
  }
  if (op->code == VT_OP_REDUCE_WINDOW) part *= window_part(op, VT_ATTR_WINDOW_DIMENSIONS);
  if (info->flags & VT_OPF_COLLECTIVE && part < 1) return;
  walk_move(f, op, part);
}

static void walk_ops(frame *f, const vt_func *func) {
  for (const vt_op *op = func->last; op; op = op->prev) walk_op(f, op);
}

static void walk_func(frame *f, const vt_func *func, const double *returns) {
  for (uint32_t i = 0; i < func->return_count; i++) need(f, func->returns[i], returns[i]);
  walk_ops(f, func);
}

// What a result of main needs. An argument that is updated in place does not move.
static void need_result(frame *f, const vt_value *value) {
  const vt_value *at = value;
  while (at->op && at->op->code == VT_OP_DYNAMIC_UPDATE_SLICE) {
    need(f, at->op->operands[1], 1);
    at = at->op->operands[0];
  }
  if (at->op) need(f, value, 1);
}

// Bytes of HBM that must be written for a result.
static double written(const walk *w, const vt_value *value) {
  vt_kernel_said kernel;
  double updates = 0;
  for (const vt_value *at = value; at->op;) {
    const vt_op *op = at->op;
    switch (op->code) {
    case VT_OP_DYNAMIC_UPDATE_SLICE:
      updates += type_bytes(op->operands[1]->type);
      at = op->operands[0];
      break;
    case VT_OP_SCATTER: // all updates may hit one element
      at = op->operands[at->index];
      break;
    case VT_OP_OPTIMIZATION_BARRIER:
      at = op->operands[at->index];
      break;
    case VT_OP_WHILE: // may pass it on, or update it in place
      at = op->operands[at->index];
      break;
    case VT_OP_CUSTOM_CALL:
      if (w->said && w->said(op, &kernel)) return updates;
      if (!vt_op_is_marker(op)) return type_bytes(value->type);
      at = op->operands[0];
      break;
    case VT_OP_IF:
    case VT_OP_CASE:
    case VT_OP_CALL:
    case VT_OP_COMPOSITE:
    case VT_OP_MANUAL_COMPUTATION: // may pass on an operand of the same size
      for (uint32_t i = 0; i < op->operand_count; i++)
        if (vt_type_equal(op->operands[i]->type, at->type)) return 0;
      return type_bytes(value->type);
    default:
      return type_bytes(value->type);
    }
  }
  return fmin(updates, type_bytes(value->type));
}

static bool in_hbm(const vt_io_info *info, uint32_t index) {
  const char *kind = info ? info[index].memory_kind : NULL;
  return !kind || !*kind || !strcmp(kind, "device");
}

double vt_chip_traffic(const vt_module *module, double on_chip_bytes, vt_kernel_said_of *said) {
  const vt_func *main = module->main;
  walk w = {.on_chip = on_chip_bytes, .said = said};
  frame f = {.w = &w, .times = 1};
  double bytes = 0;
  for (uint32_t i = 0; i < main->return_count; i++) {
    need_result(&f, main->returns[i]);
    if (in_hbm(main->return_info, i)) bytes += written(&w, main->returns[i]);
  }
  walk_ops(&f, main);
  for (uint32_t i = 0; i < main->param_count; i++)
    if (in_hbm(main->param_info, i))
      bytes += needed(&f, main->params[i]) * type_bytes(main->params[i]->type);
  free_maps(&f);
  vt_arena_free(&w.arena);
  vt_assert(bytes >= 0 && w.again >= 0);
  return bytes + w.again;
}
