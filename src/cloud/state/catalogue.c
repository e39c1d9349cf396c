// SPDX-License-Identifier: Apache-2.0
// catalogue.c - looks up rows of catalogue.def and the slices of src/chip.
#include "cloud/state/catalogue.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OFFER(zone, family, scope)
#define FAMILY(name, chip, type, word, vcpus, ram, capacity)
#define IMAGE(version, families)

// The chip tables: only their data is used here, nothing of src/chip is linked.
enum {
#define CHIP(id, ...) chip_##id,
#include "chip/chips.def"
#undef CHIP
  chip_count
};
static const struct chip {
  int cores, dims;
  int64_t hbm_bytes;
  int pci_device;
  const char *device_files;
} chips[chip_count] = {
#define CHIP(id, kind, topology, cores, devices, dims, hbm, limit, reserved, hbm_rate, flops,      \
             clock, mxus, edge, narrow, narrow_floats, vmem, cmem, links, link_rate, tile, tile16, \
             pci, files, source)                                                                   \
  {cores, dims, hbm, pci, files},
#include "chip/chips.def"
#undef CHIP
};
static const struct slice {
  const char *name;
  int chip, chips, x, y, z, chips_per_vm, vms;
} slices[] = {
#define SLICE(name, chip, chips, x, y, z, wx, wy, wz, per_vm, vms, source)                         \
  {name, chip_##chip, chips, x, y, z, per_vm, vms},
#include "chip/slices.def"
#undef SLICE
};

enum {
#undef FAMILY
#define FAMILY(name, chip, type, word, vcpus, ram, capacity) family_##name,
#include "cloud/state/catalogue.def"
  family_count
};
static const int family_chips[] = {
#undef FAMILY
#define FAMILY(name, chip, type, word, vcpus, ram, capacity) chip_##chip,
#include "cloud/state/catalogue.def"
};
static vt_family families[] = {
#undef FAMILY
#define FAMILY(name, chip, type, word, vcpus, ram, capacity)                                       \
  {#name, type, word, 0, 0, 0, NULL, vcpus, ram, capacity},
#include "cloud/state/catalogue.def"
#undef FAMILY
#define FAMILY(name, chip, type, word, vcpus, ram, capacity)
};
static const struct offer {
  const char *zone;
  int family;
  vt_scope scope;
} offers[] = {
#undef OFFER
#define OFFER(zone, family, scope) {zone, family_##family, VT_SCOPE_##scope},
#include "cloud/state/catalogue.def"
#undef OFFER
#define OFFER(zone, family, scope)
};
static const struct price {
  int chip;
  vt_scope scope;
  const char *region;
  int64_t on_demand, spot;
} prices[] = {
#define PRICE(chip, scope, region, on_demand, spot)                                                \
  {chip_##chip, VT_SCOPE_##scope, region, on_demand, spot},
#define COMMITMENT(chip, one_year, three_years)
#include "chip/prices.def"
#undef PRICE
#undef COMMITMENT
};
static const struct image {
  const char *version, *families;
} images[] = {
#undef IMAGE
#define IMAGE(version, families) {version, families},
#include "cloud/state/catalogue.def"
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// The slices of the families, in the order of slices.def; built once, then constant.
static vt_accelerator accelerators[COUNT(slices)];
static char topologies[COUNT(slices)][16];
static int accelerator_count;
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
  for (int f = 0; f < family_count; f++) {
    const struct chip *chip = &chips[family_chips[f]];
    families[f].cores_per_chip = chip->cores;
    families[f].hbm_bytes = chip->hbm_bytes;
    families[f].pci_device = chip->pci_device;
    families[f].device_files = chip->device_files;
  }
  for (int i = 0; i < COUNT(slices); i++) {
    const struct slice *s = &slices[i];
    int f = 0;
    while (f < family_count && family_chips[f] != s->chip) f++;
    if (f == family_count) continue; // not offered here
    char *topology = topologies[accelerator_count];
    int n = snprintf(topology, sizeof *topologies, "%dx%d", s->x, s->y);
    if (chips[s->chip].dims == 3)
      snprintf(topology + n, sizeof *topologies - (size_t)n, "x%d", s->z);
    accelerators[accelerator_count++] =
        (vt_accelerator){s->name, &families[f], s->chips, topology, s->chips_per_vm, s->vms};
  }
}

const vt_family *vt_family_at(int index) {
  pthread_once(&made, make_tables);
  return index >= 0 && index < family_count ? &families[index] : NULL;
}

const vt_family *vt_family_find(const char *name) {
  for (int i = 0; vt_family_at(i); i++)
    if (strcmp(families[i].name, name) == 0) return &families[i];
  return NULL;
}

const vt_accelerator *vt_accelerator_at(int index) {
  pthread_once(&made, make_tables);
  return index >= 0 && index < accelerator_count ? &accelerators[index] : NULL;
}

const vt_accelerator *vt_accelerator_find(const char *name) {
  for (int i = 0; vt_accelerator_at(i); i++)
    if (strcmp(accelerators[i].name, name) == 0) return &accelerators[i];
  return NULL;
}

const vt_accelerator *vt_accelerator_by_shape(const char *type_enum, const char *topology) {
  for (int i = 0; vt_accelerator_at(i); i++)
    if (strcmp(accelerators[i].family->type_enum, type_enum) == 0 &&
        strcmp(accelerators[i].topology, topology) == 0)
      return &accelerators[i];
  return NULL;
}

const char *vt_zone_at(int index) {
  for (int i = 0; i < COUNT(offers); i++) {
    int first = 0;
    while (strcmp(offers[first].zone, offers[i].zone) != 0) first++;
    if (first == i && index-- == 0) return offers[i].zone;
  }
  return NULL;
}

bool vt_zone_exists(const char *zone) {
  for (int i = 0; i < COUNT(offers); i++)
    if (strcmp(offers[i].zone, zone) == 0) return true;
  return false;
}

bool vt_zone_offers(const char *zone, const vt_accelerator *a) {
  for (int i = 0; i < COUNT(offers); i++)
    if (&families[offers[i].family] == a->family && (offers[i].scope & vt_accelerator_scope(a)) &&
        strcmp(offers[i].zone, zone) == 0)
      return true;
  return false;
}

void vt_zone_region(const char *zone, char out_region[64]) {
  snprintf(out_region, 64, "%s", zone);
  char *dash = strrchr(out_region, '-');
  if (dash) *dash = 0;
}

// NULL for a chip that is not offered.
static const vt_family *family_of(int chip) {
  for (int f = 0; f < family_count; f++)
    if (family_chips[f] == chip) return &families[f];
  return NULL;
}

int64_t vt_price_nanos(const vt_accelerator *a, const char *zone, bool spot) {
  char region[64];
  vt_zone_region(zone, region);
  const struct price *best = NULL;
  for (int i = 0; i < COUNT(prices); i++) {
    if (family_of(prices[i].chip) != a->family || !(prices[i].scope & vt_accelerator_scope(a)))
      continue;
    if (strcmp(prices[i].region, region) == 0) {
      best = &prices[i];
      break;
    }
    if (!best) best = &prices[i];
  }
  if (!best) return 0;
  return spot && best->spot ? best->spot : best->on_demand;
}

bool vt_price_at(int index, const vt_family **out_family, vt_scope *out_scope,
                 const char **out_region, int64_t *out_on_demand, int64_t *out_spot) {
  if (index < 0 || index >= COUNT(prices)) return false;
  const struct price *p = &prices[index];
  *out_family = family_of(p->chip);
  *out_scope = p->scope;
  *out_region = p->region;
  *out_on_demand = p->on_demand;
  *out_spot = p->spot;
  return true;
}

const char *vt_image_at(int index, const char **out_families) {
  if (index < 0 || index >= COUNT(images)) return NULL;
  *out_families = images[index].families;
  return images[index].version;
}

bool vt_image_boots(const char *version, const vt_family *family) {
  size_t n = strlen(family->name);
  for (int i = 0; i < COUNT(images); i++) {
    if (strcmp(images[i].version, version) != 0) continue;
    for (const char *p = images[i].families; (p = strstr(p, family->name)); p += n)
      if ((p == images[i].families || p[-1] == ' ') && (p[n] == 0 || p[n] == ' ')) return true;
    return false;
  }
  return false;
}

bool vt_image_exists(const char *version) {
  for (int i = 0; i < COUNT(images); i++)
    if (strcmp(images[i].version, version) == 0) return true;
  return false;
}
