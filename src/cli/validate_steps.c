// SPDX-License-Identifier: Apache-2.0
// validate_steps.c - training steps with published times, for `vtpu validate`: written by
// python/vtpu/published.py, one after the other, in the Python that has JAX.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/validate.h"
#include "runtime/validate.h"

static vt_status start(const char *only, pid_t *out_pid, FILE **out_programs) {
  const char *python;
  int ends[2];
  VT_TRY(vt_cli_python(&python));
  if (pipe(ends)) return vt_error(VT_INTERNAL, "pipe: %s", strerror(errno));
  *out_pid = fork();
  if (*out_pid < 0) return vt_error(VT_INTERNAL, "fork: %s", strerror(errno));
  if (!*out_pid) {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execlp(python, python, "-m", "vtpu.published", only, (char *)NULL);
    fprintf(stderr, "vtpu validate: %s: %s\n", python, strerror(errno));
    _exit(127);
  }
  close(ends[1]);
  *out_programs = fdopen(ends[0], "r");
  return VT_OK;
}

// Group, slice, name, published seconds, source and bytes of the program, with tabs between.
static bool read_row(char *line, vt_arena *arena, vt_validation *out_row, size_t *out_size) {
  char *fields[6], *rest = line;
  for (int i = 0; i < 6; i++)
    if (!(fields[i] = strsep(&rest, "\t\n"))) return false;
  *out_row = (vt_validation){.group = vt_arena_printf(arena, "%s", fields[0]),
                             .slice = vt_arena_printf(arena, "%s", fields[1]),
                             .program = vt_arena_printf(arena, "%s", fields[2]),
                             .published = strtod(fields[3], NULL),
                             .source = vt_arena_printf(arena, "%s", fields[4])};
  *out_size = strtoull(fields[5], NULL, 10);
  return true;
}

static vt_status read_programs(FILE *programs, vt_arena *arena, vt_validations *rows) {
  char *line = NULL;
  size_t room = 0, size;
  vt_validation row;
  vt_status st = VT_OK;
  while (!st && getline(&line, &room, programs) > 0 && read_row(line, arena, &row, &size)) {
    if (isatty(2)) fprintf(stderr, "\r\033[K%s on %s", row.program, row.slice);
    uint8_t *program = malloc(size + 1);
    if (!program || fread(program, 1, size, programs) != size)
      st = vt_error(VT_INTERNAL, "%s: its program ends early", row.program);
    if (!st) st = vt_validate_program((vt_bytes){program, size}, row.slice, &row.predicted);
    free(program);
    if (!st) vt_array_push_in(arena, rows, row);
    st = vt_status_wrap(st, "%s on %s", row.program, row.slice);
  }
  if (isatty(2)) fprintf(stderr, "\r\033[K");
  free(line);
  return st;
}

vt_status vt_cli_validate_steps(const char *only, vt_arena *arena, vt_validations *rows) {
  pid_t pid;
  FILE *programs;
  int status = 0;
  VT_TRY(start(only, &pid, &programs));
  vt_status st = read_programs(programs, arena, rows);
  fclose(programs);
  waitpid(pid, &status, 0);
  if (!st && status)
    st = vt_error(VT_FAILED_PRECONDITION, "the training steps could not be written");
  return st;
}
