// SPDX-License-Identifier: Apache-2.0
// command.h - commands and their flags as rows of one table, from which the command line is read
// and help, manual and completion are written.
//
// A table is a list of rows: a GROUP, the flags that all its commands take, a COMMAND, its own
// flags, the next COMMAND and so on. Anything on a line that its command's rows lack is an error
// that names the nearest row.
//   --name=value, --name value, -l value; a switch is --name, --no-name or --name=true|false
//   --name a b    where the row's value ends in "...": all words up to the next flag
//   --            ends the flags; what follows is `rest` of commands whose words have "--". The
//                 first word does so too where they begin with "[--]"
#ifndef VT_BASE_COMMAND_H
#define VT_BASE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/status.h"
#include "base/text.h"

typedef enum vt_command_kind {
  VT_COMMAND_GROUP,
  VT_COMMAND_WORD,
  VT_FLAG_SWITCH,
  VT_FLAG_TEXT, // not empty
  VT_FLAG_ANY,  // a text that may be empty
  VT_FLAG_FILE,
  VT_FLAG_NUMBER,  // least to most
  VT_FLAG_SECONDS, // 90, 90s, 30m, 6h, 3d
  VT_FLAG_CHOICE   // one of the words of `value`
} vt_command_kind;

typedef struct vt_command_row {
  vt_command_kind kind;
  const char *name;    // "tpu-vm", "tpu-vm create", "zone"
  const char *value;   // a command's words ("NAME") or a flag's value ("ZONE", "on|off")
  const char *help;    // a line without a full stop
  int64_t least, most; // a command's word count or a NUMBER's range
  char letter;         // of a flag that has a short form
  bool many;           // may be given several times
} vt_command_row;

typedef struct vt_command_table {
  const char *program;
  const vt_command_row *rows;
  size_t count;
} vt_command_table;

typedef struct vt_given {
  const vt_command_row *flag;
  const char *value; // "true" or "false" of a switch
  int64_t number;    // of a NUMBER, and the seconds of a SECONDS
} vt_given;

typedef struct vt_args {
  const vt_command_row *command;
  VT_ARRAY(const char *) words;
  VT_ARRAY(vt_given) flags; // in order
  char **rest;
  int rest_count;
  bool help; // requested; the rest of the line is not checked
} vt_args;

// Where the first word of a line is, behind the flags before it; `argc`: there is none.
int vt_command_first_word(const vt_command_table *table, int argc, char **argv);
// The command named by the first words of a line; flags may stand between them.
// errors INVALID_ARGUMENT: no such command; names the nearest.
vt_status vt_command_find(const vt_command_table *table, int argc, char **argv,
                          const vt_command_row **out_command) VT_CHECKED;
// Reads the line of that command, its name first. Everything is in `arena` or belongs to argv.
// errors INVALID_ARGUMENT, saying what is wrong and what is right.
vt_status vt_command_read(const vt_command_table *table, const vt_command_row *command, int argc,
                          char **argv, vt_arena *arena, vt_args *out_args) VT_CHECKED;
// Parses one value as a flag of that row does.
vt_status vt_command_value(const vt_command_row *flag, const char *value,
                           int64_t *out_number) VT_CHECKED;

// The value of a flag, the last one given; NULL, false or `otherwise` without it. The command must
// have a row of that name.
const char *vt_args_text(const vt_args *args, const char *name);
bool vt_args_on(const vt_args *args, const char *name);
int64_t vt_args_number(const vt_args *args, const char *name, int64_t otherwise);

// "; do you mean --zone?", or "": the names nearest to what was typed among the rows `from` to `to`
// of one kind (flags or commands).
void vt_command_nearest(const vt_command_row *from, const vt_command_row *to, const char *typed,
                        vt_text *out_text);

// --- output made from tables (command_help.c) ----------------------------------------------------

// One command with its flags.
void vt_command_help(const vt_command_table *table, const vt_command_row *command, FILE *out);
// The commands whose names begin with the words `group`, one line each.
void vt_command_list(const vt_command_table *table, const char *group, FILE *out);
// A manual page in roff for the program of all these tables (NULL-terminated).
typedef struct vt_manual {
  const char *name, *section, *version, *summary, *description;
} vt_manual;
void vt_command_manual(const vt_command_table *const *tables, const vt_manual *manual, FILE *out);
// Completion for bash.
void vt_command_bash(const vt_command_table *const *tables, const char *program, FILE *out);

#endif
