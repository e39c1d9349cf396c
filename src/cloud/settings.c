// SPDX-License-Identifier: Apache-2.0
// settings.c - see settings.h.
#include "cloud/settings.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/command.h"
#include "base/file.h"

static const vt_command_row rows[] = {
#include "base/command_rows.h"
#include "cloud/vtpud.def"
#include "base/command_rows_end.h"
};
static const vt_command_table table = {"vtpud", rows, sizeof rows / sizeof *rows};

static const struct {
  const char *name;
  size_t offset;
} fields[] = {
#define GROUP(name, help)
#define COMMAND(name, function, words, least, most, help)
#define FLAG(name, kind, value, help)
#define OPTION(name, kind, field, value, help) {name, offsetof(vt_settings, field)},
#define COUNT(name, field, value, most, help)  {name, offsetof(vt_settings, field)},
#include "cloud/vtpud.def"
#include "base/command_rows_end.h"
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const vt_settings standard = {.address = "127.0.0.1",
                                     .certificate = "",
                                     .key = "",
                                     .state = "",
                                     .store = "",
                                     .restore = "",
                                     .universe = "vtpu.localhost",
                                     .library = "",
                                     .python = "",
                                     .record = "",
                                     .user = "",
                                     .googleapis = "",
                                     .project = "",
                                     .admin = "admin@vtpu.localhost",
                                     .guests_word = "",
                                     .guest_limits = "auto",
                                     .backend = "local",
                                     .slurm_partition = "",
                                     .slurm_spot_partition = "",
                                     .slurm_account = "",
                                     .slurm_options = "",
                                     .slurm_folder = "/var/lib/vtpu-guests",
                                     .slurm_wait = 60,
                                     .kind_after = 600,
                                     .request_timeout = 60,
                                     .watchdog = 120,
                                     .keep_operations = 30,
                                     .keep_events = 400,
                                     .keep_logs = 30,
                                     .keep_reports = 400,
                                     .notice = 30};

// The field of a flag in the settings; NULL when it has none.
static void *field_of(vt_settings *s, const vt_command_row *row) {
  for (size_t i = 0; i < FIELDS; i++)
    if (strcmp(fields[i].name, row->name) == 0) return (char *)s + fields[i].offset;
  return NULL;
}

static void set(vt_settings *s, const vt_command_row *row, const char *value, int64_t number) {
  void *field = field_of(s, row);
  if (!field) return;
  switch (row->kind) {
  case VT_FLAG_SWITCH:
    *(bool *)field = strcasecmp(value, "true") == 0;
    break;
  case VT_FLAG_NUMBER:
  case VT_FLAG_SECONDS:
    *(int64_t *)field = number;
    break;
  default:
    *(const char **)field = value;
  }
}

static vt_status set_line(vt_settings *s, const char *name, const char *value) {
  int64_t number;
  const vt_command_row *first = NULL;
  for (const vt_command_row *row = rows; row < rows + table.count; row++) {
    if (row->kind == VT_COMMAND_GROUP || row->kind == VT_COMMAND_WORD) continue;
    if (!field_of(s, row)) continue; // only on the command line
    if (!first) first = row;
    if (strcmp(row->name, name) != 0) continue;
    VT_TRY(vt_command_value(row, value, &number));
    set(s, row, value, number);
    return VT_OK;
  }
  vt_text near = {0};
  vt_command_nearest(first, rows + table.count, name, &near);
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "unknown name '%s'%s (`vtpud --help` lists them)",
                          name, vt_text_string(&near));
  vt_text_free(&near);
  return st;
}

// Lines `name = value`; '#' begins a comment. Values stay in `arena`.
static vt_status read_config(vt_settings *s, vt_arena *arena, const char *path) {
  vt_bytes file;
  VT_TRY(vt_file_map(path, &file));
  char *text = vt_arena_copy(arena, file.data, file.size), *save = NULL;
  bool whole = strlen(text) == file.size;
  vt_file_unmap(&file);
  if (!whole) return vt_error(VT_INVALID_ARGUMENT, "%s: a NUL is in it: it is no text", path);
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    line += strspn(line, " \t\r");
    if (!*line || *line == '#') continue;
    char *equals = strchr(line, '='), *end = equals;
    if (!equals) return vt_error(VT_INVALID_ARGUMENT, "%s: '%s' is not `name = value`", path, line);
    char *value = equals + 1 + strspn(equals + 1, " \t");
    for (size_t n = strlen(value); n && strchr(" \t\r", value[n - 1]); n--) value[n - 1] = 0;
    while (end > line && strchr(" \t", end[-1])) end--;
    *end = 0;
    VT_TRY(vt_status_wrap(set_line(s, line, value), "%s", path));
  }
  return VT_OK;
}

// Prints the page that was asked for; false when none was.
static bool print_page(int argc, char **argv) {
  const vt_command_table *tables[] = {&table, NULL};
  const vt_manual page = {
      .name = "vtpud",
      .section = "8",
      .version = VTPU_VERSION,
      .summary = "hands out TPU VMs",
      .description = "Serves the Cloud TPU API: TPU VMs, a queue, quota and bills, for vtpu(1) and "
                     "the clients of the real service. The flags are also the lines of the file "
                     "of --config."};
  if (argc > 1 && strcmp(argv[1], "--man") == 0)
    vt_command_manual(tables, &page, stdout);
  else if (argc == 3 && strcmp(argv[1], "--completion") == 0 && strcmp(argv[2], "bash") == 0)
    vt_command_bash(tables, "vtpud", stdout);
  else
    return false;
  return true;
}

vt_status vt_settings_read(vt_settings *out_settings, vt_arena *arena, int argc, char **argv,
                           bool *out_done) {
  vt_settings *s = out_settings;
  const vt_command_row *command;
  vt_args args;
  *s = standard;
  *out_done = print_page(argc, argv);
  if (*out_done) return VT_OK;
  VT_TRY(vt_command_find(&table, argc - 1, argv + 1, &command));
  VT_TRY(vt_command_read(&table, command, argc - 1, argv + 1, arena, &args));
  *out_done = args.help;
  if (args.help) vt_command_help(&table, command, stdout);
  for (size_t i = 0; i < args.flags.size; i++) {
    const vt_given *given = &args.flags.data[i];
    if (strcmp(given->flag->name, "config") == 0) VT_TRY(read_config(s, arena, given->value));
    set(s, given->flag, given->value, given->number);
  }
  s->ephemeral = vt_args_on(&args, "ephemeral");
  s->command = args.rest_count ? args.rest : NULL;
  if (!*s->guests_word) s->guests_word = s->ephemeral ? "auto" : "0";
  s->guests = strcmp(s->guests_word, "auto") == 0 ? -1 : atoi(s->guests_word);
  return VT_OK;
}
