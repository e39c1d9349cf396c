// SPDX-License-Identifier: Apache-2.0
// log.c - see log.h.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static vt_log_level threshold(void) {
  static int level = -1;
  int known = __atomic_load_n(&level, __ATOMIC_RELAXED);
  if (known >= 0) return (vt_log_level)known;
  known = VT_LOG_WARNING;
  const char *wanted = getenv("VTPU_LOG");
  for (int i = 0; wanted && i < 4; i++)
    if (!strcmp(wanted, level_names[i])) known = i;
  __atomic_store_n(&level, known, __ATOMIC_RELAXED);
  return (vt_log_level)known;
}

bool vt_log_on(vt_log_level level) {
  return level <= threshold();
}

void vt_log(vt_log_level level, const char *format, ...) {
  if (!vt_log_on(level)) return;
  char line[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  fprintf(stderr, "vtpu: %s: %s\n", level_names[level], line);
}
