// SPDX-License-Identifier: Apache-2.0
// command_help.c - output made from the rows of command.h: help, a manual page, completion.
#include <string.h>

#include "base/command.h"

static bool is_flag(const vt_command_row *row) {
  return row->kind != VT_COMMAND_GROUP && row->kind != VT_COMMAND_WORD;
}

// The first row after `row` that is not a flag, or the end of the table.
static const vt_command_row *flags_end(const vt_command_table *table, const vt_command_row *row) {
  const vt_command_row *end = table->rows + table->count;
  while (row < end && is_flag(row)) row++;
  return row;
}

// The flags that all commands of the group have: they are at its start.
static const vt_command_row *group_flags(const vt_command_table *table,
                                         const vt_command_row *command) {
  while (command > table->rows && command->kind != VT_COMMAND_GROUP) command--;
  return command->kind == VT_COMMAND_GROUP ? command + 1 : command;
}

// --- help ----------------------------------------------------------------------------------------

static void flag_text(const vt_command_row *flag, vt_text *out) {
  if (flag->letter) vt_text_printf(out, "-%c, ", flag->letter);
  vt_text_printf(out, "--%s", flag->name);
  if (flag->kind != VT_FLAG_SWITCH) vt_text_printf(out, "=%s", flag->value);
}

static void print_flags(const vt_command_row *from, const vt_command_row *to, FILE *out) {
  for (; from < to; from++) {
    vt_text text = {0};
    flag_text(from, &text);
    fprintf(out, "  %-34s %s%s\n", vt_text_string(&text), from->help,
            from->many ? "; may be given several times" : "");
    vt_text_free(&text);
  }
}

static const char *blank(const char *text) {
  return *text ? " " : "";
}

void vt_command_help(const vt_command_table *table, const vt_command_row *command, FILE *out) {
  const vt_command_row *own = command + 1, *own_end = flags_end(table, own),
                       *shared = group_flags(table, command),
                       *shared_end = flags_end(table, shared);
  fprintf(out, "usage: %s%s%s%s%s%s\n\n%s\n", table->program, blank(command->name), command->name,
          blank(command->value), command->value,
          own < own_end || shared < shared_end ? " [FLAG ...]" : "", command->help);
  if (own < own_end) fputs("\nflags\n", out);
  print_flags(own, own_end, out);
  if (shared < shared_end) fputs("\nflags of all commands of this group\n", out);
  print_flags(shared, shared_end, out);
}

void vt_command_list(const vt_command_table *table, const char *group, FILE *out) {
  size_t size = strlen(group);
  for (size_t i = 0; i < table->count; i++) {
    const vt_command_row *row = &table->rows[i];
    if (row->kind != VT_COMMAND_WORD || strncmp(row->name, group, size) != 0) continue;
    if (size && row->name[size] && row->name[size] != ' ') continue;
    vt_text text = {0};
    vt_text_printf(&text, "%s%s%s", row->name, blank(row->value), row->value);
    fprintf(out, "  %-50s %s\n", vt_text_string(&text), row->help);
    vt_text_free(&text);
  }
}

// --- manual --------------------------------------------------------------------------------------

// Text for roff: hyphens that can be copied, no escapes, no line that is a request.
static void put_roff(const char *text, FILE *out) {
  if (*text == '.' || *text == '\'') fputs("\\&", out);
  for (; *text; text++) {
    if (*text == '-')
      fputs("\\-", out);
    else if (*text == '\\')
      fputs("\\e", out);
    else
      fputc(*text, out);
  }
}

static void manual_flags(const vt_command_row *from, const vt_command_row *to, FILE *out) {
  for (; from < to; from++) {
    fputs(".TP\n\\fB", out);
    vt_text text = {0};
    if (from->letter) vt_text_printf(&text, "-%c, ", from->letter);
    vt_text_printf(&text, "--%s", from->name);
    put_roff(vt_text_string(&text), out);
    fputs("\\fR", out);
    vt_text_free(&text);
    if (from->kind != VT_FLAG_SWITCH) {
      fputs("=\\fI", out);
      put_roff(from->value, out);
      fputs("\\fR", out);
    }
    fputc('\n', out);
    put_roff(from->help, out);
    fputs(from->many ? "; may be given several times\n" : "\n", out);
  }
}

static void manual_command(const vt_command_table *table, const vt_command_row *row, FILE *out) {
  const vt_command_row *end = flags_end(table, row + 1);
  if (*row->name) {
    fputs(".TP\n\\fB", out);
    put_roff(table->program, out);
    fputc(' ', out);
    put_roff(row->name, out);
    fputs("\\fR ", out);
    put_roff(row->value, out);
    fputc('\n', out);
    put_roff(row->help, out);
    fputs("\n.RS\n", out);
  }
  manual_flags(row + 1, end, out);
  if (*row->name) fputs(".RE\n", out);
}

void vt_command_manual(const vt_command_table *const *tables, const vt_manual *manual, FILE *out) {
  fprintf(out, ".TH \"%s\" \"%s\" \"\" \"vtpu %s\"\n.SH NAME\n%s \\- ", manual->name,
          manual->section, manual->version, manual->name);
  put_roff(manual->summary, out);
  fputs("\n.SH SYNOPSIS\n", out);
  for (int t = 0; tables[t]; t++)
    for (size_t i = 0; i < tables[t]->count; i++) {
      const vt_command_row *row = &tables[t]->rows[i];
      if (row->kind != VT_COMMAND_WORD) continue;
      fputs(".br\n\\fB", out);
      put_roff(tables[t]->program, out);
      fputs(blank(row->name), out);
      put_roff(row->name, out);
      fputs("\\fR ", out);
      put_roff(row->value, out);
      fputc('\n', out);
    }
  fputs(".SH DESCRIPTION\n", out);
  put_roff(manual->description, out);
  fputs("\n.SH COMMANDS AND FLAGS\n", out);
  for (int t = 0; tables[t]; t++)
    for (size_t i = 0; i < tables[t]->count; i++) {
      const vt_command_row *row = &tables[t]->rows[i];
      if (row->kind == VT_COMMAND_WORD) manual_command(tables[t], row, out);
      if (row->kind != VT_COMMAND_GROUP) continue;
      if (*row->help) {
        fputs(".SS ", out);
        put_roff(row->help, out);
        fputc('\n', out);
      }
      manual_flags(row + 1, flags_end(tables[t], row + 1), out);
    }
}

// --- completion ----------------------------------------------------------------------------------

static void bash_flags(const vt_command_row *from, const vt_command_row *to, FILE *out) {
  for (; from < to; from++)
    fprintf(out, " --%s%s%s", from->name, from->kind == VT_FLAG_SWITCH ? "" : "=",
            from->kind == VT_FLAG_CHOICE ? from->value
            : from->kind == VT_FLAG_FILE ? "@"
                                         : "");
}

// A line for each command: "name:" and its flags, for a choice with the words, for a file with "@".
static void bash_table(const vt_command_table *table, FILE *out) {
  for (size_t i = 0; i < table->count; i++) {
    const vt_command_row *row = &table->rows[i];
    if (row->kind != VT_COMMAND_WORD) continue;
    const vt_command_row *shared = group_flags(table, row);
    fprintf(out, "%s:", row->name);
    bash_flags(row + 1, flags_end(table, row + 1), out);
    if (shared != row) bash_flags(shared, flags_end(table, shared), out);
    fputs(" --help\n", out);
  }
}

static const char script[] =
    "_%s() {\n"
    "  local cur=${COMP_WORDS[COMP_CWORD]} line= name flags word token i\n"
    "  COMPREPLY=()\n"
    "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "    case ${COMP_WORDS[i]} in -*) break ;; esac\n"
    "    line+=\"${COMP_WORDS[i]} \"\n"
    "  done\n"
    "  local flag= value=$cur best=-1 found=\n"
    "  [[ $cur = = ]] && flag=${COMP_WORDS[COMP_CWORD - 1]} value=\n"
    "  [[ ${COMP_WORDS[COMP_CWORD - 1]} = = ]] && flag=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "  while IFS=: read -r name flags; do\n"
    "    if [[ $cur != -* && -z $flag && \"$name \" = \"$line\"* && \"$name \" != \"$line\" ]]; "
    "then\n"
    "      word=${name:${#line}}\n"
    "      word=${word%%%% *}\n"
    "      [[ $word = \"$cur\"* ]] && COMPREPLY+=(\"$word\")\n"
    "    fi\n"
    "    if [[ -z $name || \"$line\" = \"$name \"* ]] && ((${#name} > best)); then\n"
    "      best=${#name} found=$flags\n"
    "    fi\n"
    "  done <<< \"$_%s_rows\"\n"
    "  for token in $found; do\n"
    "    if [[ -n $flag ]]; then\n"
    "      [[ $token = \"$flag=\"* ]] || continue\n"
    "      token=${token#*=}\n"
    "      if [[ $token = @ ]]; then COMPREPLY+=($(compgen -f -- \"$value\"))\n"
    "      else COMPREPLY+=($(compgen -W \"${token//|/ }\" -- \"$value\")); fi\n"
    "    elif [[ $cur = -* ]]; then\n"
    "      [[ $token = *=* ]] && token=${token%%%%=*}=\n"
    "      [[ $token = \"$cur\"* ]] && COMPREPLY+=(\"$token\")\n"
    "    fi\n"
    "  done\n"
    "  ((${#COMPREPLY[@]})) && COMPREPLY=($(printf '%%s\\n' \"${COMPREPLY[@]}\" | sort -u))\n"
    "  [[ ${COMPREPLY[0]} = *= ]] && compopt -o nospace 2>/dev/null\n"
    "  return 0\n"
    "}\n"
    "complete -o default -F _%s %s\n";

void vt_command_bash(const vt_command_table *const *tables, const char *program, FILE *out) {
  fprintf(out, "# bash completion of %s, made of its table of commands\n_%s_rows='", program,
          program);
  for (int t = 0; tables[t]; t++) bash_table(tables[t], out);
  fputs("'\n", out);
  fprintf(out, script, program, program, program, program);
}
