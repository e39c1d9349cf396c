// SPDX-License-Identifier: Apache-2.0
// commands.c - the first word of a line selects the stage; each stage reads its own commands by its
// table. Help, manual (--man) and completion (--completion bash) are made from all tables.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/program.h"
#include "passes/collectives.h"
#include "tpu1/cli.h"

static const vt_command_row rows[] = {
#include "base/command_rows.h"
#include "cli/commands.def"
#include "base/command_rows_end.h"
};
static const vt_command_table own = {"vtpu", rows, sizeof rows / sizeof *rows};

// The cloud's is given by the program.
static const vt_command_table *tables[] = {&own, &vt_tpu1_commands, NULL, NULL};
enum { CLOUD = 2 };

static int vt_cli_help(const vt_args *args);
static const struct {
  const char *name;
  int (*run)(const vt_args *args);
} runs[] = {
#include "base/command_functions.h"
#include "cli/commands.def"
#include "base/command_rows_end.h"
};

static int usage(FILE *out) {
  fprintf(out, "usage: vtpu COMMAND [ARGUMENT ...]\n");
  for (int t = 0; tables[t]; t++)
    for (size_t i = 0; i < tables[t]->count; i++) {
      const vt_command_row *row = &tables[t]->rows[i];
      if (row->kind == VT_COMMAND_GROUP) fprintf(out, "%s%s\n", *row->help ? "\n" : "", row->help);
      if (row->kind == VT_COMMAND_WORD) fprintf(out, "  %-40s %s\n", row->name, row->help);
    }
  fprintf(out, "\n`vtpu COMMAND --help` lists the flags of one. `vtpu --completion bash` prints "
               "completion for bash.\n");
  return out == stderr ? 2 : 0;
}

static int complain(vt_status st) {
  fprintf(stderr, "vtpu: %s\n", vt_status_message(st));
  vt_status_free(st);
  return 2;
}

// The table with commands that begin with the word; NULL: none.
static const vt_command_table *table_of(const char *word) {
  size_t size = strlen(word);
  for (int t = 0; tables[t]; t++)
    for (size_t i = 0; i < tables[t]->count; i++) {
      const vt_command_row *row = &tables[t]->rows[i];
      if (row->kind == VT_COMMAND_WORD && strncmp(row->name, word, size) == 0 &&
          (!row->name[size] || row->name[size] == ' '))
        return tables[t];
    }
  // gcloud's words before others
  bool before = strcmp(word, "alpha") == 0 || strcmp(word, "beta") == 0;
  return before ? tables[CLOUD] : NULL;
}

// Moves the first word of a line before the flags in front of it: vtpu --project=p tpu-vm list.
static void put_word_first(int argc, char **argv) {
  for (int t = 0; tables[t]; t++) {
    int at = vt_command_first_word(tables[t], argc, argv);
    if (at == argc || table_of(argv[at]) != tables[t]) continue;
    char *word = argv[at];
    memmove(argv + 1, argv, (size_t)at * sizeof *argv);
    argv[0] = word;
    return;
  }
}

static int run_own(int argc, char **argv) {
  const vt_command_row *command;
  vt_arena arena = {0};
  vt_args args;
  int code = 0;
  vt_status st = vt_command_find(&own, argc, argv, &command);
  if (!st) st = vt_command_read(&own, command, argc, argv, &arena, &args);
  if (st) {
    code = complain(st);
  } else if (args.help) {
    vt_command_help(&own, command, stdout);
  } else {
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
      if (strcmp(runs[i].name, command->name) == 0) code = runs[i].run(&args);
  }
  vt_arena_free(&arena);
  return code;
}

// A word that no table knows, with a suggestion from one of them.
static int unknown(int argc, char **argv) {
  for (int t = 0; tables[t]; t++) {
    const vt_command_row *command;
    vt_status st = vt_command_find(tables[t], argc, argv, &command);
    if (st && strstr(vt_status_message(st), "do you mean")) return complain(st);
    vt_status_free(st);
  }
  fprintf(stderr, "vtpu: no command '%s' (`vtpu --help` lists them)\n", argv[0]);
  return 2;
}

static int vt_cli_help(const vt_args *args) {
  if (!args->words.size) return usage(stdout);
  const char *word = args->words.data[0];
  const vt_command_table *table = table_of(word);
  const vt_command_row *command;
  if (!table) return unknown((int)args->words.size, (char **)args->words.data);
  vt_status st = vt_command_find(table, (int)args->words.size, (char **)args->words.data, &command);
  if (!st) {
    vt_command_help(table, command, stdout);
    return 0;
  }
  if (args->words.size > 1) return complain(st);
  vt_status_free(st);
  vt_command_list(table, word, stdout);
  return 0;
}

static int manual(void) {
  const vt_manual page = {
      .name = "vtpu",
      .section = "1",
      .version = vtpu_version(),
      .summary = "a TPU anyone can run",
      .description = "Runs programs on TPU slices that this machine stands in for, and speaks to a "
                     "vtpud(8), which hands out TPU VMs."};
  vt_command_manual(tables, &page, stdout);
  return 0;
}

int vtpu_main(int argc, char **argv, const vt_command_table *cloud,
              int (*run_cloud)(int argc, char **argv)) {
  tables[CLOUD] = cloud;
  if (argc < 2) return usage(stderr);
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return usage(stdout);
  if (!strcmp(argv[1], "--man")) return manual();
  if (!strcmp(argv[1], "--completion")) {
    if (argc != 3 || strcmp(argv[2], "bash") != 0) {
      fputs("usage: vtpu --completion bash\n", stderr);
      return 2;
    }
    vt_command_bash(tables, "vtpu", stdout);
    return 0;
  }
  if (!strcmp(argv[1], "--version")) {
    printf("vtpu %s\n", vtpu_version());
    return 0;
  }
  put_word_first(argc - 1, argv + 1);
  const vt_command_table *table = table_of(argv[1]);
  if (!table) return unknown(argc - 1, argv + 1);
  if (table == &own) return run_own(argc - 1, argv + 1);
  return (table == cloud ? run_cloud : vt_tpu1_cli)(argc - 1, argv + 1);
}
