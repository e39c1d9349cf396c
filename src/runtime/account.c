// SPDX-License-Identifier: Apache-2.0
// account.c - the least HBM a program needs, known at compile time; more than the core has is an
// error.
//
// Parameters and results count with their padded layout; aliased results share their parameter's
// memory. Of the temporaries only those count that any compiler must hold at the same time
// (least.c), so that no program that would fit is refused. A real compiler needs more; how much
// depends on its schedule, which is not modelled.
#include "base/check.h"
#include "runtime/runtime_internal.h"

// The report --------------------------------------------------------------------------------------

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
  vt_assert(e.bytes >= 0);
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

static vt_status out_of_hbm(const vt_executable *executable, const vt_least *least) {
  vt_assert(executable->info.peak_bytes > executable->slice.chip->hbm_limit_bytes);
  const vt_executable_info *info = &executable->info;
  const vt_chip *chip = executable->slice.chip;
  int64_t limit = chip->hbm_limit_bytes;
  entry_list list = {0};
  for (uint32_t i = 0; i < info->param_count; i++)
    if (info->params[i].memory == VT_MEMORY_DEVICE)
      list_add(&list, (entry){info->params[i].shard_hbm_bytes, info->params[i].shard, NULL,
                              "argument", i, info->params[i].layout});
  for (uint32_t i = 0; i < info->result_count; i++)
    if (info->results[i].memory == VT_MEMORY_DEVICE)
      list_add(&list, (entry){info->results[i].shard_hbm_bytes, info->results[i].shard, NULL,
                              "output", i, info->results[i].layout});
  for (int32_t i = 0; i < least->count; i++)
    list_add(&list, (entry){least->items[i].bytes, least->items[i].value->type,
                            least->items[i].value->op, "HLO temp", 0, NULL});
  vt_activity_hbm_refused(info->peak_bytes);
  vt_text text = {0};
  int64_t reserved = chip->hbm_reserved_bytes, program = info->temp_bytes;
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
  vt_text_put(&text,
              "\nThis is the least that any compiler needs: arguments, results, and what one "
              "operator works on, f32 as bf16 where it is rounded to that. A real TPU may "
              "need more.\n");
  vt_text_put(&text, "\n  Largest program allocations in hbm:\n");
  for (int i = 0; i < list.count; i++) put_entry(&text, chip, i + 1, &list.items[i]);
  vt_status st = vt_error(VT_RESOURCE_EXHAUSTED, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

static void sum_arguments(vt_executable_info *info) {
  for (uint32_t i = 0; i < info->param_count; i++) {
    const vt_io *io = &info->params[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->argument_bytes += io->shard_hbm_bytes;
    else
      info->host_argument_bytes += io->shard_bytes;
    if (io->alias >= 0) info->alias_bytes += io->shard_hbm_bytes;
  }
  for (uint32_t i = 0; i < info->result_count; i++) {
    const vt_io *io = &info->results[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->output_bytes += io->shard_hbm_bytes;
    else
      info->host_output_bytes += io->shard_bytes;
  }
}

// Donated arguments do not count while an operator runs, as they may be dead by then. Nor do
// results, as they may not be live yet.
vt_status vt_executable_account(vt_executable *executable, vt_module *module) {
  vt_executable_info *info = &executable->info;
  vt_least least = {0};
  sum_arguments(info);
  vt_executable_least(executable, module->main, &least);
  int64_t kept = info->argument_bytes - info->alias_bytes;
  info->peak_bytes = kept + info->output_bytes;
  if (kept + least.hbm > info->peak_bytes) info->peak_bytes = kept + least.hbm;
  info->temp_bytes = info->peak_bytes - kept - info->output_bytes;
  info->host_temp_bytes = least.host;
  vt_assert(info->temp_bytes >= 0 && info->alias_bytes <= info->argument_bytes && least.host >= 0);
  bool fits = info->peak_bytes <= executable->slice.chip->hbm_limit_bytes;
  return fits ? VT_OK : out_of_hbm(executable, &least);
}
