// SPDX-License-Identifier: Apache-2.0
// names.c - parses slice names: accelerator types, topologies, copies connected by the data-center
// network.
//
//   v5litepod-16, v5e-16, V5E-16, TPU v5e-16   a type, as Cloud TPU offers it
//   v5e:4x4, v5e 4x4                           a topology: chips along each axis
//   v4:4x4x8_twisted                           the same as a twisted torus
//   v6e-256 x2, v5e:4x4 x2                     two such slices
// The number of slices is separate: "v5e-4x4" could be a topology or four slices, so it is
// rejected.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "chip/chip.h"

typedef struct slice_row {
  const char *name;
  vt_chip_id chip;
  int32_t chips, dims[3];
  bool wrap[3];
  int32_t chips_per_vm, vms;
  const char *source;
} slice_row;

static const slice_row the_slices[] = {
#define SLICE(name, chip, chips, x, y, z, wx, wy, wz, per_vm, vms, source)                         \
  {name, VT_CHIP_##chip, chips, {x, y, z}, {wx, wy, wz}, per_vm, vms, source},
#include "chip/slices.def"
#undef SLICE
};
enum {
  SLICE_ROWS = sizeof the_slices / sizeof the_slices[0],
  MOST_SLICES = 1024,
  MOST_DEVICES = 1 << 18,
};

static const struct {
  const char *alias;
  vt_chip_id id;
  bool type; // also in types
} aliases[] = {
#define CHIP(...)
#define ALIAS(name, id, type) {name, VT_CHIP_##id, type},
#include "chip/chips.def"
#undef CHIP
};
enum { ALIASES = sizeof aliases / sizeof aliases[0] };

// A parsed name: "v6e" "256", "v5e" "4x4", and how many of them.
typedef struct name {
  char chip[32], size[32]; // in lower case, without blanks
  bool topology;
  int32_t slices;
} name;

static const char twisted_suffix[] = "_twisted";

static bool same(const char *a, const char *b) {
  return !strcmp(a, b);
}

static const vt_chip *chip_by_name(const char *text, bool type) {
  for (int i = 0; i < VT_CHIP_COUNT; i++)
    if (same(vt_chip_get((vt_chip_id)i)->topology, text)) return vt_chip_get((vt_chip_id)i);
  for (int i = 0; i < ALIASES; i++)
    if (same(aliases[i].alias, text) && (aliases[i].type || !type))
      return vt_chip_get(aliases[i].id);
  return NULL;
}

static bool all_digits(const char *text) {
  size_t size = strspn(text, "0123456789");
  return size && size < 6 && !text[size];
}

// Lower case, single blanks and none at the ends, "tpu v4" and "tpu-v4" as "v4". False when too
// long.
static bool tidy(const char *text, char *out, size_t room) {
  size_t n = 0;
  for (; *text; text++) {
    bool blank = isspace((unsigned char)*text) != 0;
    if (blank && (n == 0 || out[n - 1] == ' ')) continue;
    if (n + 1 == room) return false;
    out[n++] = blank ? ' ' : (char)tolower((unsigned char)*text);
  }
  if (n && out[n - 1] == ' ') n--;
  out[n] = 0;
  if (!strncmp(out, "tpu", 3)) {
    size_t skip = 3 + (out[3] == ' ' || out[3] == '-' || out[3] == '_');
    if (out[skip] == 'v' || (skip > 3 && isdigit((unsigned char)out[skip])))
      memmove(out, out + skip, strlen(out + skip) + 1);
  }
  return true;
}

// Cuts off " x2". False when it is not a number of slices.
static bool cut_slices(char *text, int32_t *out_slices) {
  *out_slices = 1;
  char *at = strrchr(text, ' ');
  if (at && all_digits(at + 1) && at - text >= 2 && at[-1] == 'x' && at[-2] == ' ')
    memmove(at, at + 1, strlen(at)), at--; // "x 2"
  else if (!at || at[1] != 'x')
    return true;
  else
    at++;
  if (!all_digits(at + 1)) return false;
  *out_slices = (int32_t)strtol(at + 1, NULL, 10);
  at[-1] = 0;
  return *out_slices >= 1 && *out_slices <= MOST_SLICES;
}

static void keep(char *out, size_t room, const char *from, const char *end) {
  size_t n = 0;
  for (; from < end && n + 1 < room; from++)
    if (*from != ' ') out[n++] = *from;
  out[n] = 0;
}

static vt_status take_apart(const char *text, name *out) {
  char tidied[64];
  *out = (name){.slices = 1};
  if (!tidy(text, tidied, sizeof tidied))
    return vt_error(VT_NOT_FOUND, "unknown accelerator type \"%.80s...\"", text);
  if (!cut_slices(tidied, &out->slices))
    return vt_error(VT_INVALID_ARGUMENT,
                    "\"%s\": 1 to %d slices can be joined, as in \"v6e-256 x2\"", text,
                    MOST_SLICES);
  char *end = tidied + strlen(tidied), *cut = strchr(tidied, ':');
  char *blank = strrchr(tidied, ' ');
  size_t dims = blank ? strspn(blank + 1, "0123456789x") : 0;
  if (!cut && blank && strchr(blank + 1, 'x') &&
      (!blank[1 + dims] || same(blank + 1 + dims, twisted_suffix)))
    cut = blank;
  out->topology = cut != NULL;
  if (!cut) cut = strrchr(tidied, '-');
  if (!cut) cut = end;
  keep(out->chip, sizeof out->chip, tidied, cut);
  keep(out->size, sizeof out->size, cut < end ? cut + 1 : end, end);
  return VT_OK;
}

// Suggestions -------------------------------------------------------------------------------------

enum { NEAR = 5 };

static int chip_distance(const char *typed, vt_chip_id id) {
  int best = vt_text_distance(typed, vt_chip_get(id)->topology);
  for (int i = 0; i < ALIASES; i++) {
    int d =
        aliases[i].id == id && aliases[i].type ? vt_text_distance(typed, aliases[i].alias) : best;
    if (d < best) best = d;
  }
  return best;
}

// Relative difference, in percent of the smaller; 0 = equal.
static int64_t size_distance(int64_t a, int64_t b) {
  return a > b ? (a - b) * 100 / b : (b - a) * 100 / a;
}

// Adds the `room` types of a chip whose sizes are nearest to the requested one.
static int add_near(vt_chip_id id, int64_t asked, int room, int at, int *out_rows) {
  for (int k = 0; k < room; k++) {
    int best = -1;
    for (int i = 0; i < SLICE_ROWS; i++) {
      bool taken = the_slices[i].chip != id;
      for (int j = 0; j < at && !taken; j++) taken = out_rows[j] == i;
      if (taken) continue;
      int64_t size = strtol(strrchr(the_slices[i].name, '-') + 1, NULL, 10);
      int64_t held = best < 0 ? 0 : strtol(strrchr(the_slices[best].name, '-') + 1, NULL, 10);
      if (best < 0 || size_distance(size, asked) < size_distance(held, asked)) best = i;
    }
    if (best >= 0) out_rows[at++] = best;
  }
  return at;
}

// Lists the chips nearest to the name, and for each its types of about that size.
static vt_status unknown_type(const char *text, const name *n) {
  bool rented[VT_CHIP_COUNT] = {false};
  int far = 2 * (int)(strlen(n->chip) / 3 + 1), best = far, count = 0, rows[NEAR], found = 0;
  for (int i = 0; i < SLICE_ROWS; i++) rented[the_slices[i].chip] = true;
  const vt_chip *known = chip_by_name(n->chip, true);
  for (int i = 0; i < VT_CHIP_COUNT; i++)
    if (rented[i] && chip_distance(n->chip, (vt_chip_id)i) < best)
      best = chip_distance(n->chip, (vt_chip_id)i);
  bool near[VT_CHIP_COUNT];
  for (int i = 0; i < VT_CHIP_COUNT; i++) {
    near[i] = rented[i] && (known ? known->id == (vt_chip_id)i
                                  : best == far || chip_distance(n->chip, (vt_chip_id)i) == best);
    count += near[i];
  }
  int64_t asked = strtol(n->size, NULL, 10);
  if (asked < 1) asked = 8;
  if (asked > 1 << 20) asked = 1 << 20;
  for (int i = 0; i < VT_CHIP_COUNT && found < NEAR && count; i++) {
    if (!near[i]) continue;
    int room = (NEAR - found + count - 1) / count;
    found = add_near((vt_chip_id)i, asked, room, found, rows);
    count--;
  }
  vt_text list = {0};
  for (int i = 0; i < found; i++)
    vt_text_printf(&list, "%s%s", i ? ", " : "", the_slices[rows[i]].name);
  vt_status st = vt_error(VT_NOT_FOUND, "unknown accelerator type \"%s\"; nearest: %s", text,
                          vt_text_string(&list));
  vt_text_free(&list);
  return st;
}

// Slices ------------------------------------------------------------------------------------------

static void slice_fill(const slice_row *row, vt_slice *out_slice) {
  *out_slice = (vt_slice){.chip = vt_chip_get(row->chip),
                          .chips = row->chips,
                          .chips_per_vm = row->chips_per_vm,
                          .vms = row->vms,
                          .slices = 1};
  snprintf(out_slice->name, sizeof out_slice->name, "%s", row->name);
  memcpy(out_slice->dims, row->dims, sizeof row->dims);
  memcpy(out_slice->wrap, row->wrap, sizeof row->wrap);
}

// Reads "2x4" or "2x2x1". 0 when malformed.
static int read_dims(const char *text, int32_t dims[3]) {
  int count = 0;
  dims[0] = dims[1] = dims[2] = 1;
  while (count < 3) {
    char *end = NULL;
    if (*text < '0' || *text > '9') return 0;
    long value = strtol(text, &end, 10);
    if (value < 1 || value > 1024) return 0;
    dims[count++] = (int32_t)value;
    if (!*end) return count;
    if (*end != 'x') return 0;
    text = end + 1;
  }
  return 0;
}

static vt_status slice_of_type(const char *text, const name *n, vt_slice *out_slice) {
  const vt_chip *chip = chip_by_name(n->chip, true);
  for (int i = 0; chip && i < SLICE_ROWS; i++) {
    if (the_slices[i].chip != chip->id) continue;
    if (!same(strrchr(the_slices[i].name, '-') + 1, n->size)) continue;
    slice_fill(&the_slices[i], out_slice);
    return VT_OK;
  }
  int32_t dims[3];
  const char *x = strchr(n->size, 'x');
  if (chip && read_dims(n->size, dims) > 1)
    return vt_error(
        VT_NOT_FOUND,
        "unknown accelerator type \"%s\": write \"%s:%s\" for a topology, \"%s-%.*s x%s\" "
        "for several slices",
        text, n->chip, n->size, n->chip, (int)(x - n->size), n->size, x + 1);
  return unknown_type(text, n);
}

// Along which axes the links of a slice go round: of three-dimensional ones along all, once every
// side is a multiple of 4; of v5e and v6e along those of 16 chips.
static void set_wraps(const vt_chip *chip, vt_slice *slice) {
  bool all = chip->network_dims == 3;
  for (int d = 0; d < 3; d++) all = all && slice->dims[d] % 4 == 0;
  bool side = chip->id == VT_CHIP_V5E || chip->id == VT_CHIP_V6E;
  for (int d = 0; d < 3; d++) slice->wrap[d] = all || (side && slice->dims[d] == 16);
}

// A torus of n x n x 2n or n x 2n x 2n chips, n a multiple of 4, can be twisted.
static bool can_twist(const vt_slice *slice) {
  const int32_t *d = slice->dims;
  return slice->wrap[0] && slice->wrap[1] && slice->wrap[2] && d[2] == 2 * d[0] &&
         (d[1] == d[0] || d[1] == d[2]);
}

static vt_status twist(const char *text, const name *n, vt_slice *slice) {
  if (!can_twist(slice))
    return vt_error(VT_INVALID_ARGUMENT,
                    "topology \"%s\": twisted are only n x n x 2n and n x 2n x 2n chips of v4, v5p "
                    "and tpu7x, n a multiple of 4, as in v4:4x4x8_twisted",
                    text);
  slice->twisted = true;
  snprintf(slice->name, sizeof slice->name, "%.11s:%.19s", n->chip, n->size);
  return VT_OK;
}

static vt_status slice_of_topology(const char *text, const name *n, vt_slice *out_slice) {
  const vt_chip *chip = chip_by_name(n->chip, false);
  if (!chip)
    return vt_error(
        VT_NOT_FOUND,
        "unknown topology \"%s\"; it reads CHIP:XxY or CHIP:XxYxZ with CHIP one of v2, v3, "
        "v4, v5e, v5p, v6e, tpu7x",
        text);
  int32_t dims[3];
  char size[sizeof n->size];
  snprintf(size, sizeof size, "%s", n->size);
  char *suffix = strchr(size, '_');
  bool twisted = suffix && same(suffix, twisted_suffix);
  if (twisted) *suffix = 0;
  int count = read_dims(size, dims);
  if (!count || (chip->network_dims == 2 && dims[2] != 1))
    return vt_error(VT_INVALID_ARGUMENT, "topology \"%s\": a %s slice has %d dimensions, as in %s",
                    text, chip->kind, chip->network_dims,
                    chip->network_dims == 2 ? "v5e:4x4" : "v4:2x2x1");
  int64_t chips = (int64_t)dims[0] * dims[1] * dims[2];
  if (chips > 16384)
    return vt_error(VT_INVALID_ARGUMENT, "topology \"%s\" has %lld chips", text, (long long)chips);
  for (int i = 0; i < SLICE_ROWS; i++) {
    if (the_slices[i].chip != chip->id || memcmp(the_slices[i].dims, dims, sizeof dims)) continue;
    slice_fill(&the_slices[i], out_slice);
    return twisted ? twist(text, n, out_slice) : VT_OK;
  }
  int32_t per_vm = chips < 4 ? (int32_t)chips : 4;
  *out_slice = (vt_slice){.chip = chip,
                          .chips = (int32_t)chips,
                          .dims = {dims[0], dims[1], dims[2]},
                          .chips_per_vm = per_vm,
                          .vms = (int32_t)((chips + per_vm - 1) / per_vm),
                          .slices = 1};
  snprintf(out_slice->name, sizeof out_slice->name, "%.11s:%.11s", n->chip, n->size);
  set_wraps(chip, out_slice);
  return twisted ? twist(text, n, out_slice) : VT_OK;
}

vt_status vt_slice_join(vt_slice *slice, int32_t slices) {
  if (slices < 1 || slices > MOST_SLICES)
    return vt_error(VT_INVALID_ARGUMENT, "%d slices asked for; 1 to %d can be joined", slices,
                    MOST_SLICES);
  if (slices == slice->slices || slices == 1) return VT_OK;
  if (slice->slices > 1)
    return vt_error(VT_INVALID_ARGUMENT, "%s, but %d slices are requested", slice->name, slices);
  if ((int64_t)vt_slice_devices(slice) * slices > MOST_DEVICES)
    return vt_error(VT_INVALID_ARGUMENT, "%d slices of %s have more than %d devices", slices,
                    slice->name, MOST_DEVICES);
  size_t end = strlen(slice->name);
  snprintf(slice->name + end, sizeof slice->name - end, " x%d", slices);
  slice->slices = slices;
  return VT_OK;
}

vt_status vt_slice_from_name(const char *text, vt_slice *out_slice) {
  name n;
  VT_TRY(take_apart(text, &n));
  VT_TRY(n.topology ? slice_of_topology(text, &n, out_slice) : slice_of_type(text, &n, out_slice));
  return vt_slice_join(out_slice, n.slices);
}

bool vt_slice_at(int32_t index, vt_slice *out_slice) {
  if (index < 0 || index >= SLICE_ROWS) return false;
  vt_status st = vt_slice_from_name(the_slices[index].name, out_slice);
  vt_assert(!st);
  return !st;
}

vt_status vt_chip_from_name(const char *text, const vt_chip **out_chip) {
  char tidied[32];
  *out_chip = tidy(text, tidied, sizeof tidied) ? chip_by_name(tidied, false) : NULL;
  if (*out_chip) return VT_OK;
  vt_text known = {0};
  for (int i = 0; i < VT_CHIP_COUNT; i++)
    vt_text_printf(&known, "%s%s", i ? ", " : "", vt_chip_get((vt_chip_id)i)->topology);
  vt_status st =
      vt_error(VT_NOT_FOUND, "no chip '%.64s': there are %s", text, vt_text_string(&known));
  vt_text_free(&known);
  return st;
}
