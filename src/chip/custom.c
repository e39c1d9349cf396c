// SPDX-License-Identifier: Apache-2.0
// custom.c - reads descriptions of chips that do not exist.
#include "chip/custom.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chip/time/kernels.h"

typedef enum unit { BYTES, RATE, FLOPS, HERTZ, SECONDS, WATTS, COUNT } unit;
static const char *const unit_names[] = {"B", "B/s", "FLOP/s", "Hz", "s", "W", ""};
static const char *const examples[] = {"32 GiB", "2 TB/s", "400 TFLOP/s", "1.5 GHz", "2 us",
                                       "90 W",   "4"};

typedef struct custom_chip {
  vt_chip chip;
  vt_rates rates;
} custom_chip;

typedef struct field {
  const char *name;
  unit unit;
  enum { INT32, INT64, DOUBLE } type;
  size_t offset;
} field;

static const field fields[] = {
#define CUSTOM(name, unit, member, what)                                                           \
  {name, unit,                                                                                     \
   _Generic(((custom_chip *)0)->member, int32_t: INT32, int64_t: INT64, double: DOUBLE),           \
   offsetof(custom_chip, member)},
#include "chip/custom.def"
};
enum { FIELDS = sizeof fields / sizeof *fields, MOST_TEXT = 1 << 16 };

static double get(const custom_chip *c, const field *f) {
  const void *at = (const char *)c + f->offset;
  return f->type == INT32   ? *(const int32_t *)at
         : f->type == INT64 ? (double)*(const int64_t *)at
                            : *(const double *)at;
}

static void put(custom_chip *c, const field *f, double value) {
  void *at = (char *)c + f->offset;
  if (f->type == INT32)
    *(int32_t *)at = (int32_t)value;
  else if (f->type == INT64)
    *(int64_t *)at = (int64_t)value;
  else
    *(double *)at = value;
}

static const field *find(const char *name) {
  for (int i = 0; i < FIELDS; i++)
    if (!strcmp(fields[i].name, name)) return &fields[i];
  return NULL;
}

static vt_status no_field(const char *name) {
  const field *nearest = &fields[0];
  vt_text all = {0};
  for (int i = 0; i < FIELDS; i++) {
    if (vt_text_distance(name, fields[i].name) < vt_text_distance(name, nearest->name))
      nearest = &fields[i];
    vt_text_printf(&all, "%s%s", i ? ", " : "", fields[i].name);
  }
  vt_status st =
      vt_error(VT_INVALID_ARGUMENT, "a chip has no '%.40s'; do you mean %s? There are %s", name,
               nearest->name, vt_text_string(&all));
  vt_text_free(&all);
  return st;
}

// The peak follows from the units, the memory that programs may use from the whole.
static void settle(custom_chip *c, const vt_chip *base, bool peak_given) {
  double units = (double)c->chip.mxus_per_core * c->chip.mxu_edge * c->chip.mxu_edge;
  double before = (double)base->mxus_per_core * base->mxu_edge * base->mxu_edge;
  if (!peak_given)
    c->chip.bf16_flops_per_s =
        base->bf16_flops_per_s * units / before * c->chip.clock_hz / base->clock_hz;
  c->chip.hbm_limit_bytes += (c->chip.hbm_bytes - base->hbm_bytes) / base->devices;
  if (c->chip.hbm_limit_bytes < 0) c->chip.hbm_limit_bytes = 0;
  if (c->rates.busiest_w < c->rates.idle_w) c->rates.busiest_w = c->rates.idle_w;
}

static custom_chip *copy_of(const vt_chip *base, vt_arena *arena) {
  custom_chip *c = VT_NEW(arena, custom_chip);
  c->chip = *base;
  c->rates = *vt_rates_of(base);
  c->chip.rates = &c->rates;
  return c;
}

// ---- the text -----------------------------------------------------------------------------------

// "1.5 TB/s": the number in bytes a second, and what it is of.
static bool read_value(const char *text, double *out_value, unit *out_unit) {
  static const char prefixes[] = "kMGTP";
  char *end;
  double value = strtod(text, &end);
  if (end == text || !isfinite(value)) return false;
  while (isspace((unsigned char)*end)) end++;
  for (int u = 0; u <= COUNT; u++) {
    const char *at = end, *prefix = *at ? strchr(prefixes, *at == 'K' ? 'k' : *at) : NULL;
    double scale = 1;
    bool flops = u == FLOPS && (!strcmp(at, "FLOPS") || !strcmp(at + (prefix != NULL), "FLOPS"));
    if (!strcmp(at, unit_names[u]) || (flops && !prefix)) {
      *out_value = value, *out_unit = (unit)u;
      return true;
    }
    if (u == SECONDS && (!strcmp(at, "us") || !strcmp(at, "ms") || !strcmp(at, "ns")))
      scale = *at == 'm' ? 1e-3 : *at == 'u' ? 1e-6 : 1e-9;
    else if (prefix && u != COUNT && u != SECONDS)
      for (const char *p = prefixes; p <= prefix; p++) scale *= at[1] == 'i' ? 1024 : 1000;
    else
      continue;
    at += at[1] == 'i' ? 2 : 1;
    if (strcmp(at, unit_names[u]) != 0 && !flops) continue;
    *out_value = value * scale, *out_unit = (unit)u;
    return true;
  }
  return false;
}

static char *trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t size = strlen(text);
  while (size && isspace((unsigned char)text[size - 1])) text[--size] = 0;
  return text;
}

static vt_status read_base(const char *name, const vt_chip *base) {
  const vt_chip *named;
  VT_TRY(vt_chip_from_name(name, &named));
  if (named->id == base->id) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "the description is of a %s, the slice has %s chips",
                  named->topology, base->topology);
}

static vt_status read_part(char *part, const vt_chip *base, custom_chip *c, bool *peak_given) {
  if (!strncmp(part, "but ", 4)) part = trim(part + 4);
  if (!strncmp(part, "as ", 3)) {
    char *but = strstr(part, " but ");
    if (but) *but = 0;
    VT_TRY(read_base(trim(part + 3), base));
    if (!but) return VT_OK;
    part = trim(but + 5);
  }
  char *equals = strchr(part, '=');
  if (!equals)
    return vt_error(VT_INVALID_ARGUMENT, "'%.60s' is not of the form name = value", part);
  *equals = 0;
  const char *name = trim(part), *text = trim(equals + 1);
  const field *f = find(name);
  double value;
  unit given;
  if (!f) return no_field(name);
  if (!read_value(text, &value, &given))
    return vt_error(VT_INVALID_ARGUMENT, "%s: '%.40s' is not a number with a unit, such as %s",
                    name, text, examples[f->unit]);
  if (f->unit == BYTES && given == RATE && !strcmp(name, "hbm")) f = find("hbm_bandwidth");
  if (given != f->unit)
    return vt_error(VT_INVALID_ARGUMENT, "%s is such as %s, not %.40s", name, examples[f->unit],
                    text);
  bool zero = f->unit == SECONDS || f->unit == WATTS || !strcmp(f->name, "cmem");
  if (value < 0 || (value == 0 && !zero) || value > 1e18 || (f->type == INT32 && value > 1 << 16) ||
      (f->type != DOUBLE && value != floor(value)))
    return vt_error(VT_INVALID_ARGUMENT, "%s: no chip has %s", name, text);
  put(c, f, value);
  *peak_given = *peak_given || !strcmp(f->name, "bf16");
  return VT_OK;
}

vt_status vt_chip_customise(const vt_chip *base, const char *text, size_t size, vt_arena *arena,
                            const vt_chip **out_chip) {
  if (size > MOST_TEXT)
    return vt_error(VT_INVALID_ARGUMENT, "a description of a chip has at most %d bytes", MOST_TEXT);
  custom_chip *c = copy_of(base, arena);
  bool peak_given = false;
  char *copy = vt_arena_copy(arena, text, size);
  int line = 1, parts = 0;
  for (char *at = copy; at < copy + size;) {
    size_t end = strcspn(at, ",;\n");
    char stop = at[end];
    at[end] = 0;
    if (stop != '\n' && strchr(at, '#')) { // a comment ends with its line
      at[end] = stop == 0 ? 0 : ' ';
      if (stop) continue;
    }
    at[strcspn(at, "#")] = 0;
    char *part = trim(at);
    vt_status st = *part ? read_part(part, base, c, &peak_given) : VT_OK;
    parts += *part != 0;
    if (st) return vt_status_wrap(st, "line %d", line);
    line += stop == '\n';
    at += end + 1;
  }
  if (!parts)
    return vt_error(VT_INVALID_ARGUMENT, "it describes no chip: as %s, but hbm = 2 TB/s",
                    base->topology);
  if (c->rates.busiest_w < c->rates.idle_w)
    return vt_error(VT_INVALID_ARGUMENT, "power is less than idle_power: %g W and %g W",
                    c->rates.busiest_w, c->rates.idle_w);
  settle(c, base, peak_given);
  *out_chip = &c->chip;
  return VT_OK;
}

vt_status vt_chip_scale(const vt_chip *base, const char *name, double factor, vt_arena *arena,
                        const vt_chip **out_chip, double *out_value) {
  const field *f = find(name);
  if (!f) return no_field(name);
  custom_chip *c = copy_of(base, arena);
  double value = get(c, f) * factor;
  put(c, f, f->type == DOUBLE ? value : fmax(1, round(value)));
  settle(c, base, !strcmp(name, "bf16"));
  *out_value = get(c, f);
  *out_chip = &c->chip;
  return VT_OK;
}

void vt_chip_put_custom(const char *name, double value, char *out, size_t size) {
  const field *f = find(name);
  static const char *const prefixes[] = {"n", "u", "m", "", "k", "M", "G", "T", "P"};
  int at = 3;
  if (!f || f->unit == COUNT) {
    snprintf(out, size, "%g", value);
    return;
  }
  double step = f->unit == BYTES ? 1024 : 1000;
  while (value >= step && at < 8) value /= step, at++;
  while (value > 0 && value < 1 && at > 0) value *= step, at--;
  snprintf(out, size, "%.4g %s%s%s", value, prefixes[at], f->unit == BYTES && at > 3 ? "i" : "",
           unit_names[f->unit]);
}
