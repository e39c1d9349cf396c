// SPDX-License-Identifier: Apache-2.0
// main.c - the program `vtpu`: one word picks what it does; each word is a file or another stage's
// entry.
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct {
  const char *word;
  int (*run)(int argc, char **argv); // argv[0] is the word
  const char *arguments, *what;
} commands[] = {
#define COMMAND(word, function, arguments, what) {word, function, arguments, what},
#include "cli/commands.def"
#undef COMMAND
};

static int usage(FILE *out) {
  fprintf(out, "usage: vtpu COMMAND [ARGUMENTS]\n\n");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    fprintf(out, "  %-16s %-54s %s\n", commands[i].word, commands[i].arguments, commands[i].what);
  fprintf(out, "\nThe slice is VTPU_ACCELERATOR_TYPE (default v3-8), or --slice where a command "
               "takes it.\n");
  return out == stderr ? 2 : 0;
}

int main(int argc, char **argv) {
  if (argc < 2) return usage(stderr);
  if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
    return usage(stdout);
  if (!strcmp(argv[1], "--version")) {
    printf("vtpu %s\n", vtpu_version());
    return 0;
  }
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(argv[1], commands[i].word)) return commands[i].run(argc - 1, argv + 1);
  fprintf(stderr, "vtpu: unknown command %s\n", argv[1]);
  return usage(stderr);
}
