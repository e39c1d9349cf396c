// SPDX-License-Identifier: Apache-2.0
// foreign.c - the target of every function in the library of foreign names (foreign.py).
#include <string.h>
#include <unistd.h>

static void say(const char *text) {
  if (write(2, text, strlen(text)) < 0) _exit(98);
}

__attribute__((noreturn)) void foreign_called(const char *name) {
  say("a foreign library was called: ");
  say(name);
  say("\n");
  _exit(99);
}
