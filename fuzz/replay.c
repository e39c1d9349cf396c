// SPDX-License-Identifier: Apache-2.0
// replay.c - runs a fuzz target over stored inputs, with any compiler and without libFuzzer.
// In:  files and folders (read recursively, in name order) on the command line; -v prints each name
// first.
// Out: exit code 0 when every input was accepted; a crash names the input that caused it.
// The empty input is always tried first. A missing or empty folder is an error: a corpus that moved
// must not make its test pass.
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

typedef struct name_list {
  char **names;
  size_t size, capacity;
} name_list;

static name_list found;                 // filled by nftw, which has no user pointer
static const char *current = "(empty)"; // read by the signal handler
static bool verbose;

static void die(const char *what, const char *name) {
  fprintf(stderr, "replay: %s: %s: %s\n", what, name, strerror(errno));
  exit(2);
}

static int collect(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info;
  (void)at;
  if (kind != FTW_F) return 0;
  if (found.size == found.capacity) {
    found.capacity = found.capacity ? 2 * found.capacity : 64;
    found.names = realloc(found.names, found.capacity * sizeof *found.names);
    if (!found.names) die("memory", path);
  }
  if (!(found.names[found.size++] = strdup(path))) die("memory", path);
  return 0;
}

static int by_name(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

static void name_the_input(int number) {
  ssize_t ignored = write(STDERR_FILENO, "replay: crashed on ", 19);
  ignored = write(STDERR_FILENO, current, strlen(current));
  ignored = write(STDERR_FILENO, "\n", 1);
  (void)ignored;
  signal(number, SIG_DFL);
  raise(number);
}

// Reads the whole file into memory of exactly its size, so that a sanitizer catches reads past the
// end.
static uint8_t *read_file(const char *name, size_t *out_size) {
  FILE *file = fopen(name, "rb");
  if (!file) die("open", name);
  if (fseek(file, 0, SEEK_END)) die("seek", name);
  long size = ftell(file);
  if (size < 0) die("size", name);
  rewind(file);
  uint8_t *data = malloc(size ? (size_t)size : 1);
  if (!data) die("memory", name);
  if (fread(data, 1, (size_t)size, file) != (size_t)size) die("read", name);
  fclose(file);
  *out_size = (size_t)size;
  return data;
}

static void run(const char *name) {
  size_t size = 0;
  uint8_t *data = read_file(name, &size);
  current = name;
  if (verbose) fprintf(stderr, "%s\n", name);
  LLVMFuzzerTestOneInput(data, size);
  free(data);
}

int main(int argc, char **argv) {
  if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
  for (int i = 1; i < argc; i++) {
    size_t before = found.size;
    if (!strcmp(argv[i], "-v")) {
      verbose = true;
      continue;
    }
    if (nftw(argv[i], collect, 16, FTW_PHYS)) die("walk", argv[i]);
    if (found.size == before) {
      fprintf(stderr, "replay: no input in %s\n", argv[i]);
      return 2;
    }
  }
  if (found.size) qsort(found.names, found.size, sizeof *found.names, by_name);
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
    struct sigaction old;
    // A sanitizer that already watches this signal reports more than we could.
    if (!sigaction(fatal[i], NULL, &old) && old.sa_handler == SIG_DFL)
      signal(fatal[i], name_the_input);
  }
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  for (size_t i = 0; i < found.size; i++) run(found.names[i]);
  printf("replay: %zu inputs\n", found.size + 1);
  for (size_t i = 0; i < found.size; i++) free(found.names[i]);
  free(found.names);
  return 0;
}
