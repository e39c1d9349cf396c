// SPDX-License-Identifier: Apache-2.0
// format.c - human-readable numbers, and reporting of errors.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { SLOT_BYTES = 48 };

static char *ring_slot(void) {
  static char ring[8][SLOT_BYTES];
  static int next;
  return ring[next++ % 8];
}

static const char *scaled(double value, double step, const char *const *units, int count) {
  int i = 0;
  while (i + 1 < count && fabs(value) >= step) value /= step, i++;
  char *out = ring_slot();
  snprintf(out, SLOT_BYTES, "%.4g %s", value, units[i]);
  return out;
}

const char *vt_cli_bytes(double bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, units, 5);
}

const char *vt_cli_count(double value, const char *unit) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int i = 0;
  while (i < 6 && fabs(value) >= 1000) value /= 1000, i++;
  char *out = ring_slot();
  snprintf(out, SLOT_BYTES, "%.3g %s%s", value, prefixes[i], unit);
  return out;
}

const char *vt_cli_seconds(double seconds) {
  static const char *const units[] = {"ns", "us", "ms", "s"};
  return scaled(seconds * 1e9, 1000, units, 4);
}

void vt_cli_put_escaped(vt_text *out, const char *text) {
  for (; *text; text++) {
    if (strchr("<>&\"", *text))
      vt_text_printf(out, "&#%d;", *text);
    else
      vt_text_put_n(out, text, 1);
  }
}

int vt_cli_fail(const char *word, vtpu_error *error) {
  fprintf(stderr, "vtpu %s: %s\n", word, vtpu_error_message(error));
  vtpu_error_free(error);
  return 1;
}
