// SPDX-License-Identifier: Apache-2.0
// command.c - reads a command line by the rows of command.h.
#include "base/check.h"
#include "base/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_flag(const vt_command_row *row) {
  return row->kind != VT_COMMAND_GROUP && row->kind != VT_COMMAND_WORD;
}

// The flags of a command: its own [0], and those of its group [1].
typedef struct flags {
  const vt_command_row *from[2], *to[2];
} flags;

static flags flags_of(const vt_command_table *table, const vt_command_row *command) {
  vt_assert(command >= table->rows && command < table->rows + table->count);
  const vt_command_row *end = table->rows + table->count, *row = command + 1, *group = command;
  flags f = {.from[0] = row};
  while (row < end && is_flag(row)) row++;
  f.to[0] = row;
  while (group > table->rows && group->kind != VT_COMMAND_GROUP) group--;
  row = group->kind == VT_COMMAND_GROUP ? group + 1 : group;
  f.from[1] = row;
  while (row < end && is_flag(row)) row++;
  f.to[1] = row;
  return f;
}

static const vt_command_row *find_flag(const flags *f, const char *name, size_t size, char letter) {
  for (int i = 0; i < 2; i++)
    for (const vt_command_row *row = f->from[i]; row < f->to[i]; row++) {
      if (letter && row->letter == letter) return row;
      if (!letter && strlen(row->name) == size && memcmp(row->name, name, size) == 0) return row;
    }
  return NULL;
}

// --- suggestions ---------------------------------------------------------------------------------

enum { MOST_NEAR = 3 };

typedef struct nearest {
  const char *names[MOST_NEAR], *before;
  int count, distance;
} nearest;

static void consider(nearest *n, const char *typed, const char *name) {
  vt_assert(name && *name && n->count <= MOST_NEAR);
  int limit = 2 * (int)(strlen(typed) / 3 + 1), d = vt_text_distance(typed, name);
  if (d > limit || (n->count && d > n->distance)) return;
  if (n->count && d < n->distance) n->count = 0;
  n->distance = d;
  if (n->count < MOST_NEAR) n->names[n->count++] = name;
}

static void put_nearest(const nearest *n, vt_text *out) {
  for (int i = 0; i < n->count; i++)
    vt_text_printf(out, "%s%s%s", i ? i + 1 < n->count ? ", " : " or " : "; do you mean ",
                   n->before, n->names[i]);
  if (n->count) vt_text_put(out, "?");
}

void vt_command_nearest(const vt_command_row *from, const vt_command_row *to, const char *typed,
                        vt_text *out_text) {
  nearest n = {.before = from < to && is_flag(from) ? "--" : ""};
  for (; from < to; from++)
    if (from->kind != VT_COMMAND_GROUP) consider(&n, typed, from->name);
  put_nearest(&n, out_text);
}

// `hyphens`: as typed.
static vt_status unknown_flag(const vt_command_table *table, const vt_command_row *command,
                              const flags *f, const char *hyphens, const char *typed) {
  nearest n = {.before = "--"};
  vt_text text = {0};
  const char *bare = strncmp(typed, "no-", 3) == 0 ? typed + 3 : typed;
  for (int i = 0; i < 2 && hyphens[1]; i++)
    for (const vt_command_row *row = f->from[i]; row < f->to[i]; row++) {
      consider(&n, typed, row->name);
      if (bare != typed && row->kind == VT_FLAG_SWITCH) consider(&n, bare, row->name);
    }
  put_nearest(&n, &text);
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "unknown flag %s%s%s (`%s%s%s --help` lists them)",
                          hyphens, typed, vt_text_string(&text), table->program,
                          *command->name ? " " : "", command->name);
  vt_text_free(&text);
  return st;
}

// --- values --------------------------------------------------------------------------------------

static vt_status bad_value(const vt_command_row *flag, const char *value, const char *want) {
  return vt_error(VT_INVALID_ARGUMENT, "--%s=%s: %s is %s", flag->name, value, flag->value, want);
}

// Digits, with a minus where `least` allows one.
static bool read_number(const char *text, int64_t least, int64_t *out, char **out_end) {
  if (*text != '-' && (*text < '0' || *text > '9')) return false;
  errno = 0;
  long long number = strtoll(text, out_end, 10);
  *out = number;
  return *out_end != text && errno == 0 && (*text != '-' || least < 0);
}

static vt_status number_value(const vt_command_row *flag, const char *value, int64_t *out) {
  vt_assert(flag->least <= flag->most);
  char *end, want[96];
  snprintf(want, sizeof want, "a number from %lld to %lld", (long long)flag->least,
           (long long)flag->most);
  if (!read_number(value, flag->least, out, &end) || *end || *out < flag->least ||
      *out > flag->most)
    return bad_value(flag, value, want);
  return VT_OK;
}

enum { MOST_SECONDS = 315360000 };

static vt_status seconds_value(const vt_command_row *flag, const char *value, int64_t *out) {
  char *end;
  bool good = read_number(value, 0, out, &end) && *out <= MOST_SECONDS;
  int64_t unit = good && *end == 'm'   ? 60
                 : good && *end == 'h' ? 3600
                 : good && *end == 'd' ? 86400
                                       : 1;
  if (!good || (*end && (!strchr("smhd", *end) || end[1])) || *out > MOST_SECONDS / unit)
    return bad_value(flag, value, "a time of at most ten years, as in 90s, 30m, 6h or 3d");
  *out *= unit;
  return VT_OK;
}

static bool among(const char *choices, const char *value) {
  size_t size = strlen(value);
  for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
    if (strcspn(p, "|") == size && memcmp(p, value, size) == 0) return true;
  return false;
}

vt_status vt_command_value(const vt_command_row *flag, const char *value, int64_t *out_number) {
  vt_assert(is_flag(flag));
  *out_number = 0;
  if (!*value && flag->kind != VT_FLAG_ANY)
    return vt_error(VT_INVALID_ARGUMENT, "--%s needs a value: %s", flag->name, flag->value);
  switch (flag->kind) {
  case VT_FLAG_NUMBER:
    return number_value(flag, value, out_number);
  case VT_FLAG_SECONDS:
    return seconds_value(flag, value, out_number);
  case VT_FLAG_CHOICE:
    return among(flag->value, value) ? VT_OK
                                     : vt_error(VT_INVALID_ARGUMENT, "--%s=%s: must be one of %s",
                                                flag->name, value, flag->value);
  case VT_FLAG_SWITCH:
    if (strcasecmp(value, "true") == 0 || strcasecmp(value, "false") == 0) return VT_OK;
    return vt_error(VT_INVALID_ARGUMENT, "--%s=%s: must be true or false", flag->name, value);
  default:
    return VT_OK;
  }
}

// --- a line --------------------------------------------------------------------------------------

// Whether a flag has its value in the next word. Before it is known which command it is, any row of
// that name says so.
static bool takes_next(const vt_command_table *table, const char *a) {
  if (strncmp(a, "--", 2) != 0 || strchr(a, '=')) return false;
  for (size_t i = 0; i < table->count; i++)
    if (is_flag(&table->rows[i]) && strcmp(table->rows[i].name, a + 2) == 0)
      return table->rows[i].kind != VT_FLAG_SWITCH;
  return false;
}

int vt_command_first_word(const vt_command_table *table, int argc, char **argv) {
  int at = 0;
  while (at < argc && argv[at][0] == '-' && strcmp(argv[at], "--") != 0)
    at += 1 + takes_next(table, argv[at]);
  return at < argc ? at : argc;
}

// The first words of a line, without the flags between them.
enum { MOST_WORDS = 8 };
static int first_words(const vt_command_table *table, int argc, char **argv,
                       const char *out_words[MOST_WORDS]) {
  int count = 0;
  for (int i = 0; i < argc && count < MOST_WORDS && strcmp(argv[i], "--") != 0; i++) {
    if (argv[i][0] != '-')
      out_words[count++] = argv[i];
    else
      i += takes_next(table, argv[i]);
  }
  return count;
}

// How many words the name of a command has, if these are the first ones; -1: it is another command.
static int words_of(const char *name, int count, const char *const *words) {
  int n = 0;
  for (; *name; n++, name += strcspn(name, " "), name += *name == ' ') {
    size_t size = strcspn(name, " ");
    if (n >= count || strlen(words[n]) != size || memcmp(words[n], name, size) != 0) return -1;
  }
  return n;
}

static vt_status no_command(const vt_command_table *table, int count, const char *const *words) {
  vt_text typed = {0}, near = {0};
  for (int i = 0; i < count && i < 3; i++) vt_text_printf(&typed, "%s%s", i ? " " : "", words[i]);
  nearest n = {.before = ""};
  // As many typed words as the command has: the others are its arguments.
  for (size_t i = 0; i < table->count; i++) {
    const vt_command_row *row = &table->rows[i];
    char head[128] = "";
    if (row->kind != VT_COMMAND_WORD) continue;
    size_t blanks = 0, size = 0;
    const char *text = vt_text_string(&typed);
    for (const char *p = row->name; *p; p++) blanks += *p == ' ';
    while (text[size] && (text[size] != ' ' || blanks--)) size++;
    snprintf(head, sizeof head, "%.*s", (int)size, text);
    consider(&n, head, row->name);
  }
  put_nearest(&n, &near);
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "no command '%s'%s (`%s --help` lists them)",
                          vt_text_string(&typed), vt_text_string(&near), table->program);
  vt_text_free(&typed);
  vt_text_free(&near);
  return st;
}

vt_status vt_command_find(const vt_command_table *table, int argc, char **argv,
                          const vt_command_row **out_command) {
  const char *words[MOST_WORDS];
  int count = first_words(table, argc, argv, words), best = -1;
  *out_command = NULL;
  for (size_t i = 0; i < table->count; i++) {
    if (table->rows[i].kind != VT_COMMAND_WORD) continue;
    int n = words_of(table->rows[i].name, count, words);
    if (n <= best) continue;
    *out_command = &table->rows[i];
    best = n;
  }
  return *out_command ? VT_OK : no_command(table, count, words);
}

static vt_status add(vt_args *args, vt_arena *arena, const vt_command_row *flag,
                     const char *value) {
  vt_given given = {.flag = flag, .value = value};
  VT_TRY(vt_command_value(flag, value, &given.number));
  for (size_t i = 0; i < args->flags.size; i++)
    if (args->flags.data[i].flag == flag && !flag->many &&
        strcmp(args->flags.data[i].value, value) != 0)
      return vt_error(VT_INVALID_ARGUMENT, "--%s is given twice, as '%s' and as '%s'", flag->name,
                      args->flags.data[i].value, value);
  vt_array_push_in(arena, &args->flags, given);
  return VT_OK;
}

// The flag at argv[*at], which advances past its value.
static vt_status read_flag(const vt_command_table *table, const flags *f, int argc, char **argv,
                           int *at, vt_arena *arena, vt_args *args) {
  const char *a = argv[*at], *equals = NULL;
  bool is_long = a[1] == '-', off = false;
  const char *name = a + 1 + is_long;
  equals = strchr(name, '=');
  size_t size = equals ? (size_t)(equals - name) : strlen(name);
  if (!is_long && size != 1)
    return vt_error(VT_INVALID_ARGUMENT, "'%s': flags have two hyphens, as in --%s", a, name);
  const vt_command_row *flag = find_flag(f, name, size, is_long ? 0 : *name);
  if (!flag && is_long && size > 3 && strncmp(name, "no-", 3) == 0) {
    flag = find_flag(f, name + 3, size - 3, 0);
    off = flag && flag->kind == VT_FLAG_SWITCH;
    if (!off) flag = NULL;
  }
  if (!flag)
    return unknown_flag(table, args->command, f, is_long ? "--" : "-",
                        vt_arena_copy(arena, name, size));
  if (off && equals) return vt_error(VT_INVALID_ARGUMENT, "--no-%s takes no value", flag->name);
  if (flag->kind == VT_FLAG_SWITCH)
    return add(args, arena, flag, off ? "false" : equals ? equals + 1 : "true");
  if (equals) return add(args, arena, flag, equals + 1);
  if (flag->many && strstr(flag->value, "...")) { // all words up to the next flag
    int first = *at + 1;
    while (*at + 1 < argc && argv[*at + 1][0] != '-') VT_TRY(add(args, arena, flag, argv[++*at]));
    if (*at >= first) return VT_OK;
  }
  // A value that begins like a flag is written --name=value: a value may have been forgotten.
  if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
    return vt_error(VT_INVALID_ARGUMENT, "--%s needs a value: %s", flag->name, flag->value);
  return add(args, arena, flag, argv[++*at]);
}

static bool is_help(const char *word) {
  return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

vt_status vt_command_read(const vt_command_table *table, const vt_command_row *command, int argc,
                          char **argv, vt_arena *arena, vt_args *out_args) {
  vt_assert(command->kind == VT_COMMAND_WORD && command->least <= command->most);
  flags f = flags_of(table, command);
  int name_words = *command->name != 0;
  for (const char *p = command->name; *p; p++) name_words += *p == ' ';
  *out_args = (vt_args){.command = command};
  bool runs = strncmp(command->value, "[--]", 4) == 0; // another program, with flags of its own
  for (int i = 0; !runs && i < argc && strcmp(argv[i], "--") != 0; i++)
    if (is_help(argv[i])) out_args->help = true;
  if (out_args->help) return VT_OK;
  for (int i = 0; i < argc; i++) {
    if (strcmp(argv[i], "--") == 0) {
      if (!strstr(command->value, "--"))
        return vt_error(VT_INVALID_ARGUMENT, "`%s %s` takes nothing after --", table->program,
                        command->name);
      out_args->rest = argv + i + 1;
      out_args->rest_count = argc - i - 1;
      break;
    }
    if (runs && is_help(argv[i])) {
      out_args->help = true;
      return VT_OK;
    }
    if (argv[i][0] == '-' && argv[i][1])
      VT_TRY(read_flag(table, &f, argc, argv, &i, arena, out_args));
    else if (name_words > 0)
      name_words--;
    else if (runs) {
      out_args->rest = argv + i;
      out_args->rest_count = argc - i;
      break;
    } else
      vt_array_push_in(arena, &out_args->words, (const char *)argv[i]);
  }
  int64_t words = (int64_t)out_args->words.size;
  if (words >= command->least && words <= command->most) return VT_OK;
  if (words > command->most)
    return vt_error(VT_INVALID_ARGUMENT, "unexpected '%s'; usage: %s%s%s %s",
                    out_args->words.data[command->most], table->program, *command->name ? " " : "",
                    command->name, command->value);
  return vt_error(VT_INVALID_ARGUMENT, "usage: %s %s %s", table->program, command->name,
                  command->value);
}

static const vt_given *last(const vt_args *args, const char *name) {
  for (size_t i = args->flags.size; i-- > 0;)
    if (strcmp(args->flags.data[i].flag->name, name) == 0) return &args->flags.data[i];
  return NULL;
}

const char *vt_args_text(const vt_args *args, const char *name) {
  const vt_given *given = last(args, name);
  return given ? given->value : NULL;
}

bool vt_args_on(const vt_args *args, const char *name) {
  const vt_given *given = last(args, name);
  return given && strcasecmp(given->value, "true") == 0;
}

int64_t vt_args_number(const vt_args *args, const char *name, int64_t otherwise) {
  const vt_given *given = last(args, name);
  return given ? given->number : otherwise;
}
