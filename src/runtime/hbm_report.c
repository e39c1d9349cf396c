// SPDX-License-Identifier: Apache-2.0
// hbm_report.c - what a program holds in the HBM of one device, in words: the error when it is too
// much, and the list of what is live at the peak.
#include <inttypes.h>

#include "base/check.h"
#include "base/log.h"
#include "runtime/runtime_internal.h"

enum { LARGEST = 10 };

typedef struct entry_list {
  vt_hbm_entry items[LARGEST];
  int count;
} entry_list;

static void list_add(entry_list *list, vt_hbm_entry e) {
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

static int64_t put_shape(vt_text *text, const vt_chip *chip, const vt_hbm_entry *e) {
  int32_t order[VT_MAX_RANK];
  if (!e->layout || !vt_layout_read(e->layout, e->type.rank, order))
    vt_chip_compact_order(chip, e->type, order);
  vt_chip_print_shape(chip, e->type, order, text);
  return vt_chip_padded_bytes(chip, e->type, order);
}

void vt_hbm_put_entry(vt_text *text, const vt_chip *chip, int number, const vt_hbm_entry *e) {
  vt_text_printf(text, "\n  %d. Size: ", number);
  vt_hbm_put_size(text, e->bytes);
  if (e->op && e->op->loc) {
    const vt_loc *loc = e->op->loc;
    vt_text_printf(text, "\n     Operator: op_name=\"%s\"", loc->name ? loc->name : "");
    if (loc->file && *loc->file)
      vt_text_printf(text, " source_file=\"%s\" source_line=%d", loc->file, loc->line);
    vt_text_printf(text, "\n     Op: %s", vt_op_short_name(e->op->code));
  }
  vt_text_put(text, "\n     Shape: ");
  int64_t padded = put_shape(text, chip, e), dense = vt_chip_dense_bytes(e->type);
  vt_text_put(text, "\n     Unpadded size: ");
  vt_hbm_put_size(text, dense);
  if (padded > dense) {
    vt_text_put(text, "\n     Extra memory due to padding: ");
    vt_hbm_put_size(text, padded - dense);
    vt_text_printf(text, " (%.1fx expansion)", (double)padded / (double)dense);
  }
  vt_text_printf(text, "\n     Allocation type: %s", e->kind);
  if (!e->op) vt_text_printf(text, " %u", e->index);
  vt_text_put(text, "\n     ==========================\n");
}

static void put_summary(vt_text *text, const vt_executable *executable, const vt_hbm_use *use) {
  const vt_executable_info *info = &executable->info;
  int64_t reserved = executable->slice.chip->hbm_reserved_bytes, program = info->temp_bytes;
  vt_text_put(text, "\n\nTotal hbm usage >= ");
  vt_hbm_put_size(text, info->peak_bytes + reserved);
  vt_text_put(text, ":\n");
  put_line(text, "reserved", reserved);
  put_line(text, "program", program);
  put_line(text, "arguments", info->argument_bytes);
  put_line(text, "outputs", info->output_bytes - info->alias_bytes);
  vt_text_put(text, "\nOutput size ");
  vt_hbm_put_size(text, info->output_bytes);
  vt_text_put(text, "; shares ");
  vt_hbm_put_size(text, info->alias_bytes);
  vt_text_put(text, " with arguments.\n\nProgram hbm requirement ");
  vt_hbm_put_size(text, program);
  vt_text_put(text, ":\n");
  put_line(text, "HLO temp", program);
  if (info->partitions > 1)
    vt_text_printf(text, "\nThe program runs on %d devices; all of this is on one of them.\n",
                   info->partitions);
  vt_text_put(text,
              "\nThis is the least that any compiler needs: arguments, results, and what one "
              "operator works on, f32 as bf16 where it is rounded to that. A real TPU may "
              "need more; in the order of the program, with nothing computed twice, it is about ");
  vt_hbm_put_size(text, use->kept_bytes);
  vt_text_put(text, ".\n");
}

vt_status vt_hbm_refuse(const vt_executable *executable, const vt_least *least,
                        const vt_hbm_use *use) {
  const vt_executable_info *info = &executable->info;
  const vt_chip *chip = executable->slice.chip;
  int64_t limit = chip->hbm_limit_bytes;
  vt_assert(info->peak_bytes > limit);
  entry_list list = {0};
  for (uint32_t i = 0; i < use->count; i++)
    if (!use->entries[i].op) list_add(&list, use->entries[i]);
  for (int32_t i = 0; i < least->count; i++)
    list_add(&list, (vt_hbm_entry){least->items[i].bytes, least->items[i].value->type,
                                   least->items[i].value->op, "HLO temp", 0, NULL, NULL});
  vt_activity_hbm_refused(info->peak_bytes);
  vt_text text = {0};
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
  vt_text_put(&text, ".");
  put_summary(&text, executable, use);
  vt_text_put(&text, "\n  Largest program allocations in hbm:\n");
  for (int i = 0; i < list.count; i++) vt_hbm_put_entry(&text, chip, i + 1, &list.items[i]);
  vt_status st = vt_error(VT_RESOURCE_EXHAUSTED, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

// ---- in the log ---------------------------------------------------------------------------------

static void log_entry(const vt_chip *chip, const vt_hbm_entry *e) {
  vt_arena scratch = {0};
  vt_text text = {0};
  vt_hbm_put_size(&text, e->bytes);
  vt_text_put(&text, " ");
  put_shape(&text, chip, e);
  vt_text_put(&text, ", ");
  vt_hbm_put_size(&text, vt_chip_dense_bytes(e->type));
  vt_text_put(&text, " without padding: ");
  if (e->op)
    vt_text_put(&text, vt_op_describe(e->op, &scratch));
  else
    vt_text_printf(&text, "%s %u", e->kind, e->index);
  vt_log(VT_LOG_DEBUG, "  %s", vt_text_string(&text));
  vt_text_free(&text);
  vt_arena_free(&scratch);
}

void vt_hbm_log(const vt_executable *executable, const vt_hbm_use *use) {
  if (!vt_log_on(VT_LOG_DEBUG)) return;
  vt_text text = {0};
  vt_hbm_put_size(&text, use->peak_bytes);
  vt_text_put(&text, ", ");
  vt_hbm_put_size(&text, use->kept_bytes);
  vt_log(VT_LOG_DEBUG, "memory of %s on one device: %s if nothing is computed twice; at the peak",
         executable->info.name, vt_text_string(&text));
  vt_text_free(&text);
  for (uint32_t i = 0; i < use->count && i < LARGEST; i++)
    log_entry(executable->slice.chip, &use->entries[i]);
}

// ---- as JSON ------------------------------------------------------------------------------------

static void put_quoted(vt_text *text, const char *string) {
  vt_text_put(text, "\"");
  for (const char *c = string; *c; c++) {
    if (*c == '"' || *c == '\\')
      vt_text_printf(text, "\\%c", *c);
    else if ((unsigned char)*c < ' ')
      vt_text_printf(text, "\\u%04x", *c);
    else
      vt_text_put_n(text, c, 1);
  }
  vt_text_put(text, "\"");
}

static void put_json_entry(vt_text *text, const vt_chip *chip, const vt_hbm_entry *e) {
  vt_text_put(text, "{\"kind\": ");
  put_quoted(text, e->op ? "temp" : e->kind);
  if (!e->op) vt_text_printf(text, ", \"index\": %u", e->index);
  if (e->op) {
    const vt_loc *loc = e->op->loc;
    vt_text_put(text, ", \"op\": ");
    put_quoted(text, vt_op_short_name(e->op->code));
    vt_text_put(text, ", \"name\": ");
    put_quoted(text, loc->name ? loc->name : "");
    vt_text_put(text, ", \"file\": ");
    put_quoted(text, loc->file ? loc->file : "");
    vt_text_printf(text, ", \"line\": %d", loc->line);
  }
  vt_text_put(text, ", \"shape\": \"");
  put_shape(text, chip, e);
  vt_text_printf(text, "\", \"bytes\": %" PRId64 ", \"unpadded_bytes\": %" PRId64 "}", e->bytes,
                 vt_chip_dense_bytes(e->type));
}

void vt_hbm_put_json(vt_text *text, const vt_chip *chip, const vt_hbm_use *use) {
  vt_text_printf(text,
                 "\"peak_bytes_per_device\": %" PRId64 ", \"temp_bytes_per_device\": %" PRId64
                 ", \"unpadded_temp_bytes_per_device\": %" PRId64 ",\n \"live_at_peak\": [",
                 use->peak_bytes, use->temp_bytes, use->unpadded_bytes);
  for (uint32_t i = 0; i < use->count; i++) {
    vt_text_put(text, i ? ",\n  " : "\n  ");
    put_json_entry(text, chip, &use->entries[i]);
  }
  vt_text_put(text, "]");
}
