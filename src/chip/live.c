// SPDX-License-Identifier: Apache-2.0
// live.c - the temporaries that a program holds while it runs: an estimate of XLA's, low where XLA
// has a choice.
//
// In the order of the program,
//   - elementwise operators, and moves that fuse, are made where they are read, unless a reader
//     needs an array or keeping what they are made of takes more than keeping them;
//   - products are stored in the form that their readers take: rounded, reduced, with the bias;
//   - updates, loops and elementwise operators write over what nobody reads any more;
//   - results are made as soon as they can be, where they will be, and take nothing here.
// Each function is walked three times: forward for what it takes to make a value again, backward
// for what is stored and until when, forward for what is live.
#include "chip/memory.h"

#include <stdlib.h>

#include "base/check.h"
#include "ir/loop.h"

enum { NEVER = -1, MOST_SOURCES = 4 };

// What is known about a value. Times are positions of operators in the function.
typedef struct item {
  int64_t bytes;  // padded; 0 in host memory
  int64_t behind; // bytes that must be live for it to be made again
  // The arrays it would be made from, without those that are small beside it; the largest first.
  const vt_value *sources[MOST_SOURCES];
  int32_t source_count;
  const vt_value *form;      // what is stored of it; so far, the largest that a reader takes
  uint32_t readers, writers; // writers: readers that write their result over it as they go
  int32_t early, last;       // when it can be made, when it is last read
  int32_t result;            // which result of the function it becomes, or NEVER
  int32_t buffer;            // index, or NEVER
  int32_t next;              // of those that end at the same time, or NEVER
  bool must, stored;         // must: a reader needs an array
  uint8_t nature;            // of the operator, if it is its first result: see nature_of
} item;

typedef struct buffer {
  const vt_value *value;
  int32_t holder; // id of the last value that it holds
  int64_t bytes;
  vt_type type;
  int32_t start, end;
} buffer;

// One function at one call site.
typedef struct frame {
  const vt_chip *chip;
  vt_known_sizes *sizes;
  vt_arena *arena;
  vt_func *func;
  const vt_op *runs; // the operator that runs it; NULL = main
  item *items;       // by value id
  bool *host;
  bool any_host;         // anything may lie in host memory
  struct frame **inside; // by operator: what it runs that takes most
  int32_t op_count, buffer_count;
  buffer *buffers;
  int32_t *ending; // by operator: the first value that ends there
  int64_t live, peak;
  int64_t *during; // by operator: what is live while it runs
  int32_t at;      // of the peak
  const vt_op *peak_op;
} frame;

static item *item_of(const frame *f, const vt_value *value) {
  return &f->items[value->id];
}

// ---- what operators do --------------------------------------------------------------------------

// Results are the operands, one by one, under another name or shape.
static bool finds_alias(const frame *f, const vt_op *op) {
  if (op->code == VT_OP_RESHAPE || op->code == VT_OP_TRANSPOSE) return true;
  if (vt_op_is_marker(op)) return f->host[op->operands[0]->id] == f->host[op->results[0].id];
  switch ((vt_op_class)vt_op_info_get(op->code)->class) {
  case VT_CLASS_CAST:
  case VT_CLASS_NAME:
    return op->operand_count >= op->result_count;
  default:
    return false;
  }
}

// Made where it is read.
static bool finds_soft(const frame *f, const vt_op *op) {
  if (vt_op_is_elementwise_call(op)) return true;
  if (op->result_count == 1) switch (op->code) {
    case VT_OP_BROADCAST_IN_DIM:
    case VT_OP_BROADCAST:
    case VT_OP_SLICE:
    case VT_OP_DYNAMIC_SLICE:
    case VT_OP_PAD:
    case VT_OP_REVERSE:
      return true;
    default:
      if (vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) return true;
    }
  return finds_alias(f, op);
}

// What is asked of an operator again and again; that of a marker changes with where values lie.
enum { KNOWN = 1, ALIAS = 2, SOFT = 4 };
static uint8_t nature_of(const frame *f, const vt_op *op) {
  if (op->code == VT_OP_CUSTOM_CALL) return 0;
  if (finds_alias(f, op)) return KNOWN | ALIAS | SOFT;
  return (uint8_t)(KNOWN | (finds_soft(f, op) ? SOFT : 0));
}

static bool is_alias(const frame *f, const vt_op *op) {
  uint8_t nature = op->result_count ? item_of(f, &op->results[0])->nature : 0;
  return nature & KNOWN ? nature & ALIAS : finds_alias(f, op);
}

static bool is_soft(const frame *f, const vt_op *op) {
  uint8_t nature = op->result_count ? item_of(f, &op->results[0])->nature : 0;
  return nature & KNOWN ? nature & SOFT : finds_soft(f, op);
}

static bool is_free(const vt_op *op) {
  vt_op_class class = (vt_op_class)vt_op_info_get(op->code)->class;
  return class == VT_CLASS_VALUE || class == VT_CLASS_DEVICE;
}

// Whether the operator reads an array from memory; others take in what makes their operand.
static bool reads_array(const vt_op *op) {
  switch ((vt_op_class)vt_op_info_get(op->code)->class) {
  case VT_CLASS_LIBRARY:
  case VT_CLASS_CONTROL:
  case VT_CLASS_COLLECTIVE:
  case VT_CLASS_TOKEN:
    return true;
  default:
    return false;
  }
}

// The operand that result i may be written over; NEVER = none.
static int32_t written_over(const vt_op *op, uint32_t i) {
  switch (op->code) {
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    return 0;
  case VT_OP_SCATTER:
  case VT_OP_SORT:
  case VT_OP_ALL_REDUCE:
    return i < op->operand_count ? (int32_t)i : NEVER;
  case VT_OP_WHILE:
    return vt_loop_keeps(op, i) ? NEVER : (int32_t)i;
  default:
    return NEVER;
  }
}

// ---- forward: what it takes to make a value again -----------------------------------------------

static frame *walk_func(const frame *around, vt_func *func, const vt_op *runs,
                        const bool *param_host, bool *out_host);

// Walks what the operator runs; out_host: where that leaves the results, NULL when it runs nothing.
static frame *walk_inside(frame *f, const vt_op *op, bool **out_host) {
  vt_func *callee = vt_op_callee(op);
  frame *most = NULL;
  *out_host = NULL;
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_CONTROL) || vt_op_is_elementwise_call(op))
    return NULL;
  for (uint32_t r = 0; r < (callee ? 1 : op->region_count); r++) {
    vt_func *func = callee ? callee : op->regions[r];
    bool *host = VT_NEW_ARRAY(f->arena, bool, func->param_count + 1);
    uint32_t skip = op->operand_count - func->param_count; // the selector of if and case
    for (uint32_t p = 0; p < func->param_count; p++) host[p] = f->host[op->operands[p + skip]->id];
    *out_host = VT_NEW_ARRAY(f->arena, bool, func->return_count + 1);
    frame *inside = walk_func(f, func, op, host, *out_host);
    if (!most || inside->peak > most->peak) most = inside;
  }
  return most;
}

// false: there are too many.
static bool add_source(const frame *f, item *r, const vt_value *source) {
  const int64_t small = 64;
  int64_t bytes = item_of(f, source)->bytes;
  if (bytes * small < r->bytes) return true;
  int32_t at = r->source_count;
  for (int32_t i = 0; i < at; i++)
    if (r->sources[i] == source) return true;
  if (at == MOST_SOURCES) return false;
  r->source_count++;
  r->behind += bytes;
  for (; at > 0 && item_of(f, r->sources[at - 1])->bytes < bytes; at--)
    r->sources[at] = r->sources[at - 1];
  r->sources[at] = source;
  return true;
}

static void describe_result(frame *f, const vt_op *op, uint32_t i, int32_t at) {
  item *r = item_of(f, &op->results[i]);
  bool handed = op->code == VT_OP_WHILE && vt_loop_keeps(op, i), one = handed || is_alias(f, op);
  bool soft = handed || is_soft(f, op);
  r->early = is_free(op) || soft ? NEVER : at;
  if (is_free(op)) return;
  bool few = soft;
  for (uint32_t o = one ? i : 0; soft && o < (one ? i + 1 : op->operand_count); o++) {
    const item *from = item_of(f, op->operands[o]);
    if (from->early > r->early) r->early = from->early;
    for (int32_t k = 0; k < from->source_count && few; k++)
      few = add_source(f, r, from->sources[k]);
  }
  if (!few) {
    r->behind = r->bytes;
    r->source_count = 1;
    r->sources[0] = &op->results[i];
  }
  if (r->behind > r->bytes) r->behind = r->bytes;
}

// What a loop carries in host memory begins there, if it is made for the loop.
static void begin_in_host(frame *f, const vt_op *loop, uint32_t i) {
  const vt_value *first = loop->operands[i];
  if (!f->host[loop->results[i].id] || !first->op || !is_soft(f, first->op)) return;
  f->host[first->id] = true;
  f->items[first->id].bytes = 0;
}

// A value of which nothing is known yet but where it lies.
static item *new_item(frame *f, const vt_value *value, bool host) {
  item *new = item_of(f, value);
  *new = (item){.early = NEVER, .last = NEVER, .result = NEVER, .buffer = NEVER};
  if (!host) new->bytes = vt_known_bytes(f->sizes, f->chip, value->type);
  f->host[value->id] = host;
  return new;
}

static void describe(frame *f, const bool *param_host) {
  const vt_func *func = f->func;
  int32_t at = 0;
  for (uint32_t p = 0; p < func->param_count; p++) new_item(f, func->params[p], param_host[p]);
  for (const vt_op *op = func->first; op; op = op->next, at++) {
    bool *inner = NULL;
    f->inside[at] = walk_inside(f, op, &inner);
    for (uint32_t i = 0; i < op->result_count; i++) {
      bool host = f->any_host && vt_lies_in_host(op, i, f->host, inner);
      item *result = new_item(f, &op->results[i], host);
      if (!i) result->nature = nature_of(f, op);
    }
    for (uint32_t i = 0; op->code == VT_OP_WHILE && i < op->result_count; i++)
      begin_in_host(f, op, i);
    for (uint32_t i = 0; i < op->result_count; i++) describe_result(f, op, i, at);
  }
}

// ---- backward: what is stored, and until when ---------------------------------------------------

// One more reader. form: what it takes of the value; NULL = it writes over it as it goes.
static void read_until(frame *f, const vt_value *value, int32_t at, const vt_value *form) {
  item *v = item_of(f, value);
  if (at > v->last) v->last = at;
  v->readers++;
  if (!form)
    v->writers++;
  else if (!v->form || item_of(f, form)->bytes > item_of(f, v->form)->bytes)
    v->form = form;
}

// What has to be stored of a value for all its readers; NULL: its one reader stores it.
static const vt_value *whole_form(const frame *f, const vt_value *value) {
  const item *v = item_of(f, value);
  if (v->readers == 1 && v->writers == 1) return NULL;
  if (v->writers || !v->form || item_of(f, v->form)->bytes > v->bytes) return value;
  return v->form;
}

// The value becomes a result where its operand is now, if nobody reads that later.
static void pass_result_on(frame *f, const item *r, const vt_value *operand) {
  item *from = item_of(f, operand);
  if (r->result >= 0 && operand->op && from->last < 0) from->result = r->result;
}

static void decide_alias(frame *f, const vt_value *result, const vt_value *operand) {
  const item *r = item_of(f, result);
  if (r->last < 0) return;
  pass_result_on(f, r, operand);
  if (r->must) item_of(f, operand)->must = true;
  read_until(f, operand, r->last, r->result < 0 ? whole_form(f, result) : operand);
}

// Whether keeping the result takes less than keeping what it is made of, beyond other readers.
static bool keeping_is_cheaper(const frame *f, const vt_value *result) {
  const item *r = item_of(f, result);
  if (r->source_count && r->sources[0] == result) return true; // of too many
  int64_t cost = 0;
  for (int32_t i = 0; i < r->source_count; i++) {
    bool there = item_of(f, r->sources[i])->last >= r->last;
    if (!there) cost += item_of(f, r->sources[i])->bytes;
  }
  return cost > r->bytes;
}

static void decide_soft(frame *f, const vt_op *op, const vt_value *result, int32_t at) {
  const vt_value *form = whole_form(f, result);
  item *r = item_of(f, result);
  if (r->result >= 0)
    r->stored = true, at = r->early;
  else if (r->last <= at)
    r->stored = false; // its readers are made as soon as they can be
  else if (r->must)
    r->stored = r->behind > 0;
  else
    r->stored = keeping_is_cheaper(f, result);
  r->form = form ? form : result;
  bool in_step = vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE || vt_op_is_elementwise_call(op);
  for (uint32_t i = 0; i < op->operand_count; i++)
    read_until(f, op->operands[i], r->stored ? at : r->last,
               in_step ? (r->stored ? NULL : form) : op->operands[i]);
}

static void decide_hard(frame *f, const vt_op *op, int32_t at) {
  vt_op_class class = (vt_op_class)vt_op_info_get(op->code)->class;
  for (uint32_t i = 0; i < op->result_count; i++) {
    item *r = item_of(f, &op->results[i]);
    int32_t over = written_over(op, i);
    r->form = whole_form(f, &op->results[i]);
    r->stored = r->form || class != VT_CLASS_CONTRACT;
    if (!r->form) r->form = &op->results[i];
    if (r->last < at) r->last = at;
    if (over >= 0) pass_result_on(f, r, op->operands[over]);
    if (op->code != VT_OP_WHILE || !vt_loop_keeps(op, i)) continue;
    r->stored = false;
    read_until(f, op->operands[i], r->last, op->operands[i]);
  }
  bool must = reads_array(op);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (must) item_of(f, op->operands[i])->must = true;
    read_until(f, op->operands[i], at, op->code == VT_OP_REDUCE ? NULL : op->operands[i]);
  }
}

static bool is_read(const frame *f, const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (item_of(f, &op->results[i])->last >= 0) return true;
  return vt_op_has_effect(op);
}

static void decide(frame *f) {
  const vt_func *func = f->func;
  int32_t at = f->op_count;
  for (uint32_t i = 0; i < func->return_count; i++) {
    item *v = item_of(f, func->returns[i]);
    read_until(f, func->returns[i], f->op_count, func->returns[i]);
    if (v->result < 0 && func->returns[i]->op) v->result = (int32_t)i;
  }
  for (const vt_op *op = func->last; op; op = op->prev) {
    at--;
    if (!is_read(f, op)) {
      f->inside[at] = NULL;
    } else if (is_alias(f, op)) {
      for (uint32_t i = 0; i < op->result_count; i++)
        decide_alias(f, &op->results[i], op->operands[i]);
    } else if (is_soft(f, op)) {
      for (uint32_t i = 0; i < op->result_count; i++)
        if (item_of(f, &op->results[i])->last >= 0) decide_soft(f, op, &op->results[i], at);
    } else if (!is_free(op)) {
      decide_hard(f, op, at);
    }
  }
}

// ---- forward: what is live ----------------------------------------------------------------------

// The value that holds the memory which the value is made of.
static const vt_value *holder_of(const frame *f, const vt_value *value) {
  while (item_of(f, value)->buffer < 0 && value->op && is_alias(f, value->op))
    value = value->op->operands[value->index];
  const item *v = item_of(f, value);
  if (v->buffer >= 0) return value;
  return v->source_count ? v->sources[0] : NULL;
}

// Result i of a loop's body is made while the one before it is still read.
static bool clashes(const frame *f, const vt_op *op, const item *r, int32_t at) {
  if (!f->runs || f->runs->code != VT_OP_WHILE || f->func != f->runs->regions[1]) return false;
  int32_t last = item_of(f, f->func->params[r->result])->last;
  bool fuses = is_soft(f, op);
  if (fuses) at = r->early > NEVER ? r->early : 0;
  return last > at || (last == at && !fuses && written_over(op, 0) < 0);
}

static bool take_over(frame *f, const vt_value *value, const vt_value *from, int32_t at) {
  const vt_value *old = holder_of(f, from);
  if (!old || item_of(f, old)->buffer < 0 || item_of(f, old)->last != at) return false;
  item *v = item_of(f, value);
  buffer *b = &f->buffers[item_of(f, old)->buffer];
  if (b->holder != old->id || b->bytes < item_of(f, v->form)->bytes) return false;
  b->holder = value->id;
  v->buffer = item_of(f, old)->buffer;
  return true;
}

static void store(frame *f, const vt_op *op, uint32_t i, int32_t at) {
  const vt_value *value = &op->results[i];
  item *v = item_of(f, value);
  bool taken = false;
  if (!v->stored || v->last < 0) return;
  if (v->result >= 0 && !clashes(f, op, v, at)) return;
  if (v->result >= 0) v->last = f->op_count;
  int32_t over = written_over(op, i);
  if (over >= 0) taken = take_over(f, value, op->operands[over], at);
  for (uint32_t o = 0; o < op->operand_count && !taken && is_soft(f, op); o++)
    taken = take_over(f, value, op->operands[o], at);
  if (!taken) {
    v->buffer = f->buffer_count++;
    f->buffers[v->buffer] =
        (buffer){value, value->id, item_of(f, v->form)->bytes, v->form->type, at, f->op_count};
    f->live += f->buffers[v->buffer].bytes;
  }
  v->next = f->ending[v->last];
  f->ending[v->last] = value->id;
}

static bool wants_arrays(const vt_op *op) {
  return reads_array(op) && !(vt_op_info_get(op->code)->flags & VT_OPF_CONTROL);
}

// What is made from parameters and constants only for this operator, which wants arrays.
static bool is_made_for(const frame *f, const vt_op *op, uint32_t i) {
  const vt_value *value = op->operands[i];
  for (uint32_t j = 0; j < i; j++)
    if (op->operands[j] == value) return false;
  while (value->op && is_alias(f, value->op)) value = value->op->operands[value->index];
  const item *v = item_of(f, value);
  return value->op && !v->stored && v->result < 0 && !v->behind;
}

static void end_values(frame *f, int32_t at) {
  for (int32_t id = f->ending[at]; id >= 0; id = f->items[id].next) {
    buffer *b = &f->buffers[f->items[id].buffer];
    if (b->holder != id) continue;
    f->live -= b->bytes;
    b->end = at;
  }
}

static void measure(frame *f) {
  int32_t at = 0;
  for (const vt_op *op = f->func->first; op; op = op->next, at++) {
    for (uint32_t i = 0; i < op->result_count; i++) store(f, op, i, at);
    int64_t now = f->live + (f->inside[at] ? f->inside[at]->peak : 0);
    for (uint32_t i = 0; wants_arrays(op) && i < op->operand_count; i++)
      if (is_made_for(f, op, i)) now += item_of(f, op->operands[i])->bytes;
    f->during[at] = now;
    if (now > f->peak) {
      f->peak = now;
      f->at = at;
      f->peak_op = op;
    }
    end_values(f, at);
    vt_assert(f->live >= 0);
  }
}

static frame *walk_func(const frame *around, vt_func *func, const vt_op *runs,
                        const bool *param_host, bool *out_host) {
  vt_arena *arena = around->arena;
  frame *f = VT_NEW(arena, frame);
  *f = (frame){
      .chip = around->chip, .sizes = around->sizes, .arena = arena, .func = func, .runs = runs};
  f->any_host = func->module->made[VT_OP_CUSTOM_CALL]; // placements are such
  for (uint32_t p = 0; p < func->param_count; p++) f->any_host = f->any_host || param_host[p];
  vt_func_number(func);
  f->op_count = func->op_count;
  size_t values = (size_t)func->value_count + 1, ops = (size_t)f->op_count + 1;
  f->items = vt_arena_push_raw(arena, sizeof *f->items * values); // each is written with its value
  f->host = vt_arena_push_raw(arena, sizeof *f->host * values);
  f->inside = vt_arena_push_raw(arena, sizeof *f->inside * ops);
  f->buffers = vt_arena_push_raw(arena, sizeof *f->buffers * values);
  f->ending = vt_arena_push_raw(arena, sizeof *f->ending * ops);
  f->during = vt_arena_push_raw(arena, sizeof *f->during * ops);
  for (int32_t i = 0; i <= f->op_count; i++) f->ending[i] = NEVER;
  describe(f, param_host);
  decide(f);
  measure(f);
  for (uint32_t i = 0; out_host && i < func->return_count; i++)
    out_host[i] = f->host[func->returns[i]->id];
  return f;
}

// ---- the list -----------------------------------------------------------------------------------

static void add_buffer(vt_live *live, vt_live_buffer b) {
  if (!b.bytes) return;
  live->bytes += b.bytes;
  live->unpadded += vt_chip_dense_bytes(b.type);
  live->buffers[live->count++] = b;
}

static const vt_op **ops_of(const frame *f) {
  const vt_op **ops = VT_NEW_ARRAY(f->arena, const vt_op *, f->op_count + 1);
  int32_t at = 0;
  for (const vt_op *op = f->func->first; op; op = op->next) ops[at++] = op;
  return ops; // and NULL
}

// Each buffer gets the value that it holds at the peak.
static void name_buffers(const frame *f) {
  int32_t at = 0;
  for (const vt_op *op = f->func->first; op && at <= f->at; op = op->next, at++)
    for (uint32_t i = 0; i < op->result_count; i++) {
      const item *v = item_of(f, &op->results[i]);
      if (v->buffer < 0) continue;
      f->buffers[v->buffer].value = &op->results[i];
      f->buffers[v->buffer].type = v->form->type;
    }
}

// No more are live at the peak.
static size_t most_buffers(const frame *f) {
  size_t count = 0;
  for (; f && f->peak_op; f = f->inside[f->at])
    count += (size_t)f->buffer_count + f->peak_op->operand_count;
  return count;
}

static void collect(const frame *f, vt_live *live) {
  for (; f && f->peak_op; f = f->inside[f->at]) {
    name_buffers(f);
    const vt_op **ops = ops_of(f);
    for (int32_t i = 0; i < f->buffer_count; i++) {
      const buffer *b = &f->buffers[i];
      if (b->start <= f->at && f->at <= b->end)
        add_buffer(live, (vt_live_buffer){b->value, b->type, b->bytes, ops[b->end]});
    }
    for (uint32_t i = 0; wants_arrays(f->peak_op) && i < f->peak_op->operand_count; i++) {
      const vt_value *value = f->peak_op->operands[i];
      if (is_made_for(f, f->peak_op, i))
        add_buffer(live,
                   (vt_live_buffer){value, value->type, item_of(f, value)->bytes, f->peak_op});
    }
  }
}

static int by_bytes(const void *a, const void *b) {
  const vt_live_buffer *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->value->id > y->value->id) - (x->value->id < y->value->id);
}

void vt_chip_live(const vt_chip *chip, vt_func *main, const bool *param_host, vt_arena *arena,
                  vt_live *out_live) {
  vt_arena scratch = {.brief = true};
  vt_known_sizes sizes = {0};
  const frame around = {.chip = chip, .sizes = &sizes, .arena = &scratch};
  const frame *f = walk_func(&around, main, NULL, param_host, NULL);
  vt_live_buffer *room = vt_arena_push_raw(arena, sizeof *room * (most_buffers(f) + 1));
  *out_live = (vt_live){.buffers = room, .peak = f->peak_op};
  collect(f, out_live);
  vt_assert(out_live->bytes == f->peak);
  if (out_live->count)
    qsort(out_live->buffers, out_live->count, sizeof *out_live->buffers, by_bytes);
  out_live->points = VT_NEW_ARRAY(arena, vt_live_point, f->op_count + 1);
  for (const vt_op *op = main->first; op; op = op->next, out_live->point_count++)
    out_live->points[out_live->point_count] = (vt_live_point){op, f->during[out_live->point_count]};
  vt_arena_free(&scratch);
}
