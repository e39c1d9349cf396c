// SPDX-License-Identifier: Apache-2.0
// catalogue.h - the catalogue: slice names, their zones, prices, and the images that boot on them.
//
// Rows come from catalogue.def; slices from slices.def and chips.def of src/chip. All pointers are
// to constant tables. thread: any.
#ifndef VT_CLOUD_CATALOGUE_H
#define VT_CLOUD_CATALOGUE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum vt_scope { VT_SCOPE_SINGLE = 1, VT_SCOPE_POD = 2, VT_SCOPE_ANY = 3 } vt_scope;

typedef struct vt_family {
  const char *name, *type_enum, *quota_word;
  int cores_per_chip;
  int64_t hbm_bytes; // of a chip
  int pci_device;
  const char *device_files; // "accel" or "vfio"
  int vcpus, ram_gb;        // of one VM with four chips
  int64_t capacity_chips;   // default of a zone
} vt_family;
typedef struct vt_accelerator {
  const char *name;
  const vt_family *family;
  int64_t chips;
  const char *topology;
  int chips_per_vm, vms;
} vt_accelerator;

// NULL when unknown; also NULL past the last in _at
const vt_family *vt_family_find(const char *name);
const vt_family *vt_family_at(int index);
const vt_accelerator *vt_accelerator_find(const char *name);
const vt_accelerator *vt_accelerator_at(int index);
// From acceleratorConfig{type, topology}, e.g. "V4", "2x2x2".
const vt_accelerator *vt_accelerator_by_shape(const char *type_enum, const char *topology);
static inline vt_scope vt_accelerator_scope(const vt_accelerator *a) {
  return a->vms == 1 ? VT_SCOPE_SINGLE : VT_SCOPE_POD;
}
// The unit of quotas and names: cores for v2 to v4 and v5p, chips for v5e and v6e.
static inline int64_t vt_accelerator_units(const vt_accelerator *a) {
  return a->chips * a->family->cores_per_chip;
}

const char *vt_zone_at(int index); // zones in table order, each once; NULL past the last
bool vt_zone_exists(const char *zone);
bool vt_zone_offers(const char *zone, const vt_accelerator *a);
void vt_zone_region(const char *zone, char out_region[64]); // "us-central1-f" gives "us-central1"

// nano-USD per chip and hour. A region without a published price gets that of the family's first
// row.
int64_t vt_price_nanos(const vt_accelerator *a, const char *zone, bool spot);
// The index-th published price row, for price lists; false past the last.
bool vt_price_at(int index, const vt_family **out_family, vt_scope *out_scope,
                 const char **out_region, int64_t *out_on_demand, int64_t *out_spot);

const char *vt_image_at(int index, const char **out_families); // NULL past the last
bool vt_image_boots(const char *version, const vt_family *family);
bool vt_image_exists(const char *version);

#endif
