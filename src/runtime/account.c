// SPDX-License-Identifier: Apache-2.0
// account.c - what a program takes in HBM, planned at compile time; more than the core has is an
// error.
//
// Parameters and results count with their padded layout; aliased results share their parameter's
// memory. Temporaries are the largest sum of values alive at one op of main, plus what the loop or
// branch at that op holds inside. The compiler lays them out as it likes, so they count with the
// order that pads least. A value takes nothing when it fuses into its only user (elementwise
// results, reshapes, constants) or is a broadcast, which each user makes for itself, and an
// elementwise result takes the place of an operand that ends there. What a program places in host
// memory counts there: a value lies
// where its operands lie unless it is placed elsewhere. Over several devices a value counts with
// the share of its most divided operand: never more than the partitioned program needs, so that no
// program is refused that would fit. The real compiler's schedule may need more or less.
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

typedef struct temp {
  const vt_value *value; // NULL = what the op holds inside
  const vt_op *op;
  int64_t bytes;
  int32_t first, last; // ops of main, by number
} temp;

typedef struct scan {
  const vt_chip *chip;
  const vt_executable_info *info;
  vt_arena scratch;
  VT_ARRAY(temp) temps; // of main
  int32_t peak_op;
} scan;

static bool fuses(const vt_op *op) {
  const vt_op_info *info = vt_op_info_get(op->code);
  if (info->flags & (VT_OPF_ELTWISE | VT_OPF_SHARDY)) return true;
  switch (op->code) {
  case VT_OP_CONSTANT:
  case VT_OP_IOTA:
  case VT_OP_RESHAPE:
  case VT_OP_BITCAST_CONVERT:
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_BROADCAST:
  case VT_OP_TRANSPOSE:
  case VT_OP_REVERSE:
  case VT_OP_SLICE:
  case VT_OP_PAD:
  case VT_OP_CONCATENATE:
  case VT_OP_DYNAMIC_SLICE:
  case VT_OP_OPTIMIZATION_BARRIER:
    return true;
  default:
    return false;
  }
}

// Whether a result takes no memory, used `uses` times.
static bool takes_nothing(const vt_op *op, uint32_t uses) {
  bool spread = op->code == VT_OP_BROADCAST_IN_DIM || op->code == VT_OP_BROADCAST;
  return spread || op->code == VT_OP_IOTA || (uses <= 1 && fuses(op));
}

// Devices over which each value is cut, by value id.
static double op_share(const vt_op *op, const double *shares) {
  double share = 1;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (shares[op->operands[i]->id] > share) share = shares[op->operands[i]->id];
  return share;
}

// What is known of each value, by value id.
typedef struct places {
  double *shares; // devices over which it is cut
  bool *host;     // lies in host memory
} places;

static places new_places(scan *s, int32_t count) {
  return (places){VT_NEW_ARRAY(&s->scratch, double, count + 1),
                  VT_NEW_ARRAY(&s->scratch, bool, count + 1)};
}

typedef struct amounts {
  int64_t hbm, host;
} amounts;

static void keep_larger(amounts *peak, amounts a) {
  if (a.hbm > peak->hbm) peak->hbm = a.hbm;
  if (a.host > peak->host) peak->host = a.host;
}

// Whether the program itself says where the result lies, and where.
static bool placed(const vt_op *op, bool *out_host) {
  const vt_attr *attr = vt_op_attr(op, VT_ATTR_FRONTEND_ATTRIBUTES);
  if (!attr || !vt_op_is_marker(op)) return false;
  for (size_t i = 0; i < attr->dict->count; i++) {
    const vt_dict_entry *entry = &attr->dict->entries[i];
    if (strcmp(entry->name.data, "_xla_buffer_placement")) continue;
    if (entry->value->kind != VT_DICT_STRING) continue;
    *out_host = strcmp(entry->value->string.data, "device") != 0;
    return true;
  }
  return false;
}

// `inner`: where what the op runs inside leaves the results, NULL when it runs nothing.
static bool lies_in_host(const vt_op *op, uint32_t result, const places *known, const bool *inner) {
  bool host = false;
  if (placed(op, &host)) return host;
  if (inner && op->code != VT_OP_WHILE) return inner[result];
  if (op->code == VT_OP_WHILE || op->code == VT_OP_OPTIMIZATION_BARRIER)
    return known->host[op->operands[result]->id];
  for (uint32_t i = 0; i < op->operand_count; i++) host = host || known->host[op->operands[i]->id];
  return host;
}

// out_host gets, for each value the function returns, whether it lies in host memory; may be NULL.
static amounts func_peak(scan *s, vt_func *func, places params, bool is_main, bool *out_host);

// The largest peak of the functions that the op runs.
static amounts inner_peak(scan *s, const vt_op *op, const places *known, bool **out_host) {
  vt_func *callee = op->code == VT_OP_CALL        ? vt_attr_func(op, VT_ATTR_CALLEE)
                    : op->code == VT_OP_COMPOSITE ? vt_attr_func(op, VT_ATTR_DECOMPOSITION)
                                                  : NULL;
  bool control = op->code == VT_OP_WHILE || op->code == VT_OP_IF || op->code == VT_OP_CASE ||
                 op->code == VT_OP_MANUAL_COMPUTATION;
  amounts peak = {0};
  *out_host = NULL;
  if (!callee && !control) return peak;
  uint32_t count = callee ? 1 : op->region_count;
  for (uint32_t r = 0; r < count; r++) {
    vt_func *func = callee ? callee : op->regions[r];
    places inner = new_places(s, (int32_t)func->param_count);
    uint32_t skip = op->operand_count - func->param_count; // the predicate of if and case
    for (uint32_t p = 0; p < func->param_count; p++) {
      int32_t id = op->operands[p + skip]->id;
      inner.shares[p] = op->code == VT_OP_MANUAL_COMPUTATION ? 1 : known->shares[id];
      inner.host[p] = known->host[id];
    }
    *out_host = VT_NEW_ARRAY(&s->scratch, bool, func->return_count + 1);
    keep_larger(&peak, func_peak(s, func, inner, false, *out_host));
  }
  return peak;
}

// Number of the last op that reads each value, by value id; the number of ops for returned values.
static int32_t *last_uses(scan *s, vt_func *func, int32_t op_count) {
  int32_t *last = VT_NEW_ARRAY(&s->scratch, int32_t, func->value_count + 1);
  int32_t at = 0;
  for (const vt_op *op = func->first; op; op = op->next, at++) {
    for (uint32_t i = 0; i < op->result_count; i++) last[op->results[i].id] = at;
    for (uint32_t i = 0; i < op->operand_count; i++) last[op->operands[i]->id] = at;
  }
  for (uint32_t i = 0; i < func->return_count; i++) last[func->returns[i]->id] = op_count;
  return last;
}

static amounts func_peak(scan *s, vt_func *func, places params, bool is_main, bool *out_host) {
  uint32_t *uses = vt_func_use_counts(func, &s->scratch);
  int32_t op_count = 0;
  for (const vt_op *op = func->first; op; op = op->next) op_count++;
  int32_t *last = last_uses(s, func, op_count);
  places known = new_places(s, func->value_count);
  int64_t *bytes = VT_NEW_ARRAY(&s->scratch, int64_t, func->value_count + 1);
  for (uint32_t p = 0; p < func->param_count; p++) {
    known.shares[func->params[p]->id] = params.shares[p];
    known.host[func->params[p]->id] = params.host[p];
  }
  int64_t live = 0, host = 0;
  amounts peak = {0};
  int32_t at = 0;
  for (const vt_op *op = func->first; op; op = op->next, at++) {
    double share = op_share(op, known.shares);
    int64_t ended = 0, made = 0, host_ended = 0;
    bool *inner_host = NULL;
    amounts inner = inner_peak(s, op, &known, &inner_host);
    int64_t inside = inner.hbm;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      int32_t id = op->operands[i]->id;
      if (last[id] != at) continue;
      *(known.host[id] ? &host_ended : &ended) += bytes[id];
      bytes[id] = 0;
    }
    for (uint32_t i = 0; i < op->result_count; i++) {
      const vt_value *value = &op->results[i];
      known.shares[value->id] = share;
      known.host[value->id] = lies_in_host(op, i, &known, inner_host);
      bool returned = last[value->id] == op_count;
      if (returned ? is_main : takes_nothing(op, uses[value->id])) continue;
      if (known.host[value->id]) {
        host += bytes[value->id] = (int64_t)((double)vt_type_bytes(value->type) / share);
        continue;
      }
      bytes[value->id] =
          (int64_t)((double)vt_layout_bytes(s->chip, VT_MEMORY_DEVICE, value->type, NULL) / share);
      made += bytes[value->id];
      if (is_main)
        vt_array_push(&s->temps, ((temp){value, op, bytes[value->id], at, last[value->id]}));
    }
    if (is_main && inside) vt_array_push(&s->temps, ((temp){NULL, op, inside, at, at}));
    if (fuses(op)) live -= ended, ended = 0;
    live += made;
    if (live + inside > peak.hbm && is_main) s->peak_op = at;
    keep_larger(&peak, (amounts){live + inside, host + inner.host});
    live -= ended;
    host -= host_ended;
  }
  for (uint32_t i = 0; out_host && i < func->return_count; i++)
    out_host[i] = known.host[func->returns[i]->id];
  return peak;
}

// The report
// -------------------------------------------------------------------------------------------------------

enum { LARGEST = 10 };

typedef struct entry {
  int64_t bytes;
  vt_type type; // rank -1: not one array
  const vt_op *op;
  const char *kind;
  uint32_t index;
  const char *layout; // of an argument or output
} entry;

typedef struct entry_list {
  entry items[LARGEST];
  int count;
} entry_list;

static void list_add(entry_list *list, entry e) {
  int at = list->count < LARGEST ? list->count++ : LARGEST;
  while (at > 0 && list->items[at - 1].bytes < e.bytes) {
    if (at < LARGEST) list->items[at] = list->items[at - 1];
    at--;
  }
  if (at < LARGEST) list->items[at] = e;
}

static void put_line(vt_text *text, const char *name, int64_t bytes) {
  vt_text_printf(text, "    %-10s ", name);
  vt_hbm_put_size(text, bytes);
  vt_text_put(text, "\n");
}

static void put_entry(vt_text *text, const vt_chip *chip, int number, const entry *e) {
  vt_text_printf(text, "\n  %d. Size: ", number);
  vt_hbm_put_size(text, e->bytes);
  if (e->op && e->op->loc) {
    const vt_loc *loc = e->op->loc;
    vt_text_printf(text, "\n     Operator: op_name=\"%s\"", loc->name ? loc->name : "");
    if (loc->file && *loc->file)
      vt_text_printf(text, " source_file=\"%s\" source_line=%d", loc->file, loc->line);
  }
  if (e->type.rank >= 0) {
    vt_text_put(text, "\n     Shape: ");
    int32_t order[VT_MAX_RANK];
    if (!e->layout || !vt_layout_read(e->layout, e->type.rank, order))
      vt_chip_compact_order(chip, e->type, order);
    vt_chip_print_shape(chip, e->type, order, text);
    vt_text_put(text, "\n     Unpadded size: ");
    vt_hbm_put_size(text, vt_type_bytes(e->type));
    int64_t padded = vt_chip_padded_bytes(chip, e->type, order);
    if (padded > vt_type_bytes(e->type)) {
      vt_text_put(text, "\n     Extra memory due to padding: ");
      vt_hbm_put_size(text, padded - vt_type_bytes(e->type));
      vt_text_printf(text, " (%.1fx expansion)", (double)padded / (double)vt_type_bytes(e->type));
    }
  }
  vt_text_printf(text, "\n     Allocation type: %s", e->kind);
  if (!e->op) vt_text_printf(text, " %u", e->index);
  vt_text_put(text, "\n     ==========================\n");
}

static vt_status out_of_hbm(const scan *s, int64_t limit) {
  const vt_executable_info *info = s->info;
  entry_list list = {0};
  for (uint32_t i = 0; i < info->param_count; i++)
    if (info->params[i].memory == VT_MEMORY_DEVICE)
      list_add(&list, (entry){info->params[i].shard_hbm_bytes, info->params[i].shard, NULL,
                              "argument", i, info->params[i].layout});
  for (uint32_t i = 0; i < info->result_count; i++)
    if (info->results[i].memory == VT_MEMORY_DEVICE)
      list_add(&list, (entry){info->results[i].shard_hbm_bytes, info->results[i].shard, NULL,
                              "output", i, info->results[i].layout});
  for (size_t i = 0; i < s->temps.size; i++) {
    const temp *t = &s->temps.data[i];
    if (t->first > s->peak_op || t->last < s->peak_op) continue;
    vt_type type = t->value ? t->value->type : (vt_type){.rank = -1};
    list_add(&list, (entry){t->bytes, type, t->op,
                            t->value ? "HLO temp" : "HLO temps inside this operator", 0, NULL});
  }
  vt_activity_hbm_refused(info->peak_bytes);
  vt_text text = {0};
  int64_t reserved = s->chip->hbm_reserved_bytes, program = info->temp_bytes;
  vt_text_put(&text, "TPU compile permanent error. Ran out of memory on HBM, the total memory "
                     "required for HLO temporaries (");
  vt_hbm_put_size(&text, info->peak_bytes - info->argument_bytes);
  vt_text_put(&text, ") exceeds available HBM (");
  vt_hbm_put_size(&text, limit > info->argument_bytes ? limit - info->argument_bytes : 0);
  vt_text_put(&text, ").\nRan out of memory in memory space hbm. Used ");
  vt_hbm_put_size(&text, info->peak_bytes);
  vt_text_put(&text, " of ");
  vt_hbm_put_size(&text, limit);
  vt_text_put(&text, " hbm. Exceeded hbm capacity by ");
  vt_hbm_put_size(&text, info->peak_bytes - limit);
  vt_text_put(&text, ".\n\nTotal hbm usage >= ");
  vt_hbm_put_size(&text, info->peak_bytes + reserved);
  vt_text_put(&text, ":\n");
  put_line(&text, "reserved", reserved);
  put_line(&text, "program", program);
  put_line(&text, "arguments", info->argument_bytes);
  put_line(&text, "outputs", info->output_bytes - info->alias_bytes);
  vt_text_put(&text, "\nOutput size ");
  vt_hbm_put_size(&text, info->output_bytes);
  vt_text_put(&text, "; shares ");
  vt_hbm_put_size(&text, info->alias_bytes);
  vt_text_put(&text, " with arguments.\n\nProgram hbm requirement ");
  vt_hbm_put_size(&text, program);
  vt_text_put(&text, ":\n");
  put_line(&text, "HLO temp", program);
  vt_text_put(&text, "\n  Largest program allocations in hbm:\n");
  for (int i = 0; i < list.count; i++) put_entry(&text, s->chip, i + 1, &list.items[i]);
  vt_status st = vt_error(VT_RESOURCE_EXHAUSTED, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

static void sum_arguments(vt_executable_info *info, places *params) {
  for (uint32_t i = 0; i < info->param_count; i++) {
    const vt_io *io = &info->params[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->argument_bytes += io->shard_hbm_bytes;
    else
      info->host_argument_bytes += io->shard_bytes;
    if (io->alias >= 0) info->alias_bytes += io->shard_hbm_bytes;
    params->shares[i] =
        io->shard_bytes ? (double)vt_type_bytes(io->type) / (double)io->shard_bytes : 1;
    params->host[i] = io->memory != VT_MEMORY_DEVICE;
  }
  for (uint32_t i = 0; i < info->result_count; i++) {
    const vt_io *io = &info->results[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->output_bytes += io->shard_hbm_bytes;
    else
      info->host_output_bytes += io->shard_bytes;
  }
}

vt_status vt_executable_account(vt_executable *executable, vt_module *module) {
  vt_executable_info *info = &executable->info;
  scan s = {.chip = executable->slice.chip, .info = info};
  places params = new_places(&s, (int32_t)info->param_count);
  sum_arguments(info, &params);
  amounts peak = func_peak(&s, module->main, params, true, NULL);
  info->temp_bytes = peak.hbm;
  info->host_temp_bytes = peak.host;
  info->peak_bytes =
      info->argument_bytes + info->output_bytes - info->alias_bytes + info->temp_bytes;
  int64_t limit = s.chip->hbm_limit_bytes;
  vt_status st = info->peak_bytes > limit ? out_of_hbm(&s, limit) : VT_OK;
  vt_array_free(&s.temps);
  vt_arena_free(&s.scratch);
  return st;
}
