// SPDX-License-Identifier: Apache-2.0
// command_test.c - reading command lines: every kind of flag, what can be wrong with each,
// suggestions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/command.h"

static const vt_command_row rows[] = {
#include "base/command_rows.h"
    GROUP("a", "things")                                   //
    FLAG("zone", TEXT, "ZONE", "where")                    //
    LETTER('q', "quiet", SWITCH, "", "asks nothing")       //
    COMMAND("a make", 0, "NAME", 1, 1, "makes one")        //
    FLAG("text", ANY, "TEXT", "any text")                  //
    FLAG("wait", SECONDS, "TIME", "how long")              //
    FLAG("mode", CHOICE, "read|write", "how")              //
    NUMBER("count", "N", -1, 100, "how many")              //
    NUMBER("large", "N", 0, INT64_MAX, "how many")         //
    MANY("each", TEXT, "WORD", "several")                  //
    MANY("files", FILE, "FILE ...", "several at once")     //
    COMMAND("a make all", 0, "", 0, 0, "makes all")        //
    COMMAND("a run", 0, "-- COMMAND ...", 0, 0, "runs it") //
    GROUP("b", "others")                                   //
    COMMAND("b make", 0, "", 0, 0, "makes another")        //
#include "base/command_rows_end.h"
};
static const vt_command_table table = {"tool", rows, sizeof rows / sizeof *rows};

// A line is words with '|' between them. Returns the message: "" when it is correct.
static char *read_words(const char *line, vt_arena *arena, vt_args *out_args) {
  char *argv[32], *words = vt_arena_copy(arena, line, strlen(line));
  int argc = 0;
  const vt_command_row *command;
  for (char *end = words; end; words = end + 1) {
    argv[argc++] = words;
    if ((end = strchr(words, '|'))) *end = 0;
    if (!end) break;
  }
  *out_args = (vt_args){0};
  vt_status st = vt_command_find(&table, argc, argv, &command);
  if (!st) st = vt_command_read(&table, command, argc, argv, arena, out_args);
  const char *message = st ? vt_status_message(st) : "";
  char *copy = vt_arena_copy(arena, message, strlen(message));
  vt_status_free(st);
  return copy;
}

static void lines_that_are_wrong(void **state) {
  static const struct {
    const char *line, *say;
  } cases[] = {
      {"a|make|x|--zon=b", "unknown flag --zon; do you mean --zone?"},
      {"a|make|x|--zone", "--zone needs a value: ZONE"},
      {"a|make|x|--zone=", "--zone needs a value: ZONE"},
      {"a|make|x|--zone|", "--zone needs a value: ZONE"},
      {"a|make|x|--zone|--quiet", "--zone needs a value: ZONE"},
      {"a|make|x|--zone=a|--zone=b", "--zone is given twice, as 'a' and as 'b'"},
      {"a|make|x|--quiet=maybe", "must be true or false"},
      {"a|make|x|--quiet=", "--quiet needs a value"},
      {"a|make|x|--no-quit", "unknown flag --no-quit; do you mean --quiet?"},
      {"a|make|x|--no-quiet=true", "--no-quiet takes no value"},
      {"a|make|x|--no-zone", "unknown flag --no-zone"},
      {"a|make|x|-z", "unknown flag -z (`tool a make --help` lists them)"},
      {"a|make|x|-zone=b", "flags have two hyphens, as in --zone=b"},
      {"a|make|x|--=b", "unknown flag --"},
      {"a|make|x|--mode=delete", "must be one of read|write"},
      {"a|make|x|--mode=rea", "must be one of read|write"},
      {"a|make|x|--wait=", "--wait needs a value"},
      {"a|make|x|--wait=h", "a time of at most ten years"},
      {"a|make|x|--wait=6w", "a time of at most ten years"},
      {"a|make|x|--wait=6hh", "a time of at most ten years"},
      {"a|make|x|--wait=-6h", "a time of at most ten years"},
      {"a|make|x|--wait=315360001", "a time of at most ten years"},
      {"a|make|x|--wait=9223372036854775807d", "a time of at most ten years"},
      {"a|make|x|--wait=99999999999999999999s", "a time of at most ten years"},
      {"a|make|x|--count=-2", "a number from -1 to 100"},
      {"a|make|x|--count=101", "a number from -1 to 100"},
      {"a|make|x|--count=1x", "a number from -1 to 100"},
      {"a|make|x|--count= 1", "a number from -1 to 100"},
      {"a|make|x|--count=+1", "a number from -1 to 100"},
      {"a|make|x|--count=0x1", "a number from -1 to 100"},
      {"a|make|x|--count=-", "a number from -1 to 100"},
      {"a|make|x|--large=-1", "a number from 0"},
      {"a|make|x|--large=9223372036854775808", "a number from 0"},
      {"a|make|x|--each=", "--each needs a value"},
      {"a|make|x|--files", "--files needs a value"},
      {"a|make|x|--|y", "takes nothing after --"},
      {"a|make", "usage: tool a make NAME"},
      {"a|make|x|y", "unexpected 'y'"},
      {"a|mak|x", "no command 'a mak x'; do you mean a make"},
      {"a", "no command 'a'"},
      {"", "no command ''"},
      {"c|run", "no command 'c run'; do you mean a run"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    vt_arena arena = {0};
    vt_args args;
    const char *said = read_words(cases[i].line, &arena, &args);
    if (!strstr(said, cases[i].say))
      fail_msg("%s: '%s', not '%s'", cases[i].line, said, cases[i].say);
    vt_arena_free(&arena);
  }
}

static void lines_that_are_right(void **state) {
  vt_arena arena = {0};
  vt_args args;
  (void)state;
  assert_string_equal(read_words("a|make|--zone|b|x|-q|--text=|--wait=6h|--mode=write|--count|-1|"
                                 "--large=9223372036854775807|--each=1|--each|2",
                                 &arena, &args),
                      "");
  assert_string_equal(args.command->name, "a make");
  assert_string_equal(args.words.data[0], "x");
  assert_string_equal(vt_args_text(&args, "zone"), "b");
  assert_true(vt_args_on(&args, "quiet"));
  assert_string_equal(vt_args_text(&args, "text"), "");
  assert_int_equal(vt_args_number(&args, "wait", 0), 21600);
  assert_int_equal(vt_args_number(&args, "count", 0), -1);
  assert_true(vt_args_number(&args, "large", 0) == INT64_MAX);
  assert_string_equal(vt_args_text(&args, "each"), "2");
  assert_null(vt_args_text(&args, "files"));
  assert_string_equal(read_words("a|make|all|--no-quiet|--zone=b|--zone=b", &arena, &args), "");
  assert_string_equal(args.command->name, "a make all");
  assert_false(vt_args_on(&args, "quiet"));
  assert_string_equal(read_words("a|make|x|--files|1|2|--quiet=TRUE", &arena, &args), "");
  assert_int_equal(args.flags.size, 3);
  assert_true(vt_args_on(&args, "quiet"));
  assert_string_equal(read_words("a|run|--zone=b|--|--zon|-x", &arena, &args), "");
  assert_int_equal(args.rest_count, 2);
  assert_string_equal(args.rest[0], "--zon");
  assert_string_equal(read_words("a|make|--nonsense|--help", &arena, &args), "");
  assert_true(args.help);
  // Flags may stand before the command is named, with their values.
  assert_string_equal(read_words("a|--zone|b|--quiet|make|--zone=b|x", &arena, &args), "");
  assert_string_equal(args.command->name, "a make");
  assert_string_equal(args.words.data[0], "x");
  assert_string_equal(vt_args_text(&args, "zone"), "b");
  assert_string_equal(read_words("b|make", &arena, &args), ""); // flags of group a are not b's
  assert_non_null(strstr(read_words("b|make|--zone=b", &arena, &args), "unknown flag --zone"));
  vt_arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_that_are_wrong),
      cmocka_unit_test(lines_that_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
