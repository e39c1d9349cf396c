// SPDX-License-Identifier: Apache-2.0
// chip.h - what the chips and slices are: tables, device positions, HBM layout, prices, and a
// simple roofline.
//
// Numbers and their sources are the rows of chips.def and slices.def. Nothing here runs anything.
// Threads: any; the tables are constant.
#ifndef VT_CHIP_CHIP_H
#define VT_CHIP_CHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ir/kernel_cost.h"
#include "ir/module.h"
#include "ir/type.h"

typedef enum vt_chip_id {
#define CHIP(id, ...) VT_CHIP_##id,
#include "chip/chips.def"
#undef CHIP
  VT_CHIP_COUNT
} vt_chip_id;

typedef struct vt_chip {
  vt_chip_id id;
  const char *kind;           // device kind: "TPU v3"
  const char *topology;       // prefix of a topology name: "v3" in "v3:2x2"
  int32_t cores, devices;     // per chip; a device is what a framework addresses
  int32_t network_dims;       // 2 or 3
  int64_t hbm_bytes;          // per chip
  int64_t hbm_limit_bytes;    // per device, usable by programs and buffers
  int64_t hbm_reserved_bytes; // per device
  double hbm_bytes_per_s, bf16_flops_per_s, clock_hz; // per chip
  int32_t mxus_per_core, mxu_edge;
  int32_t narrow_integers; // products of 8-bit integers in the time of one bf16 product
  int32_t narrow_floats;   // of 8-bit floats
  int64_t vmem_bytes_per_core;
  int64_t cmem_bytes; // a second memory on the chip, per chip
  int32_t ici_links;
  double ici_link_bytes_per_s;               // effective, one direction
  int32_t least_tile_rows, tile_rows_16_bit; // of the HBM layout, see below
  int32_t pci_device;                        // 0 = not known
  const char *device_files;                  // of the driver: "accel" or "vfio"
  const char *source;
  const struct vt_rates *rates; // of its time, if not those of time/rates.def: a chip of custom.c
} vt_chip;

typedef struct vt_slice {
  char name[32]; // accelerator type "v3-8", or topology "v3:2x2" when no type has that shape; " x2"
  const vt_chip *chip;
  int32_t chips;
  int32_t dims[3]; // chips along x, y, z
  bool wrap[3];
  bool twisted; // the links that wrap along the short axes lead to the other half of the long ones
  int32_t chips_per_vm, vms; // vms: hosts of one slice
  int32_t slices;            // copies connected by the data-center network, >= 1
  double usd_per_chip_hour;  // 0: on demand, in the first region of prices.def
} vt_slice;

// Where a device is. Ids count cores, then x, y, z, then slices.
typedef struct vt_place {
  int32_t coords[3], core, slice;
  int32_t host; // of all hosts of all slices: x, then y, then z of 2x2x1 blocks of chips
} vt_place;

const vt_chip *vt_chip_get(vt_chip_id id);

// A slice by accelerator type ("v3-8", also "v5e-8" for "v5litepod-8", in any case) or topology
// ("v5e:4x4", "v5e 4x4", "v4:2x2x1", "v4:4x4x8_twisted"), or several slices connected by the
// data-center network ("v6e-256 x2").
// errors NOT_FOUND: names the nearest types; INVALID_ARGUMENT: dimensions, number of slices
vt_status vt_slice_from_name(const char *name, vt_slice *out_slice) VT_CHECKED;
// The rows of slices.def, one by one; false behind the last.
bool vt_slice_at(int32_t index, vt_slice *out_slice);
// A chip by one of its names: "v5e", "v5litepod". errors NOT_FOUND
vt_status vt_chip_from_name(const char *text, const vt_chip **out_chip) VT_CHECKED;
// Makes `slices` copies, 1 = unchanged. errors INVALID_ARGUMENT: too many, or the slice already has
// a different number
vt_status vt_slice_join(vt_slice *slice, int32_t slices) VT_CHECKED;
int32_t vt_slice_devices(const vt_slice *slice);
vt_place vt_slice_place(const vt_slice *slice, int32_t device_id);
double vt_slice_usd_per_hour(const vt_slice *slice); // 0 = no public price

typedef enum vt_pricing {
  VT_PRICE_ON_DEMAND,
  VT_PRICE_SPOT,
  VT_PRICE_ONE_YEAR, // committed; of all regions
  VT_PRICE_THREE_YEARS
} vt_pricing;
// Sets what a chip of the slice costs. `region`: NULL = the first of prices.def.
// errors NOT_FOUND: no such public price; names the regions that have one
vt_status vt_slice_set_price(vt_slice *slice, vt_pricing pricing, const char *region) VT_CHECKED;

// The tiles of an array in HBM as the TPU compiler lays it out.
//   order        dimensions, minor to major; NULL = row-major
//   rows, lanes  size of a tile; rows is 1 for rank 0 and 1
//   packing      elements that share a 32-bit word
// source: the tile rules in chip.c
typedef struct vt_hbm_tile {
  int64_t rows, lanes;
  int32_t packing;
} vt_hbm_tile;
vt_hbm_tile vt_chip_tiling(const vt_chip *chip, vt_type type, const int32_t *order);
// HBM bytes of an array without padding: predicates take a byte, narrower types are packed.
int64_t vt_chip_dense_bytes(vt_type type);
// HBM bytes of an array padded to whole tiles. 0 for tokens and empty arrays; at most 2^46.
int64_t vt_chip_padded_bytes(const vt_chip *chip, vt_type type, const int32_t *order);
// The default order of dimensions of an array that enters or leaves a program: the one whose tiles
// need the least padding, row-major among equals.
void vt_chip_compact_order(const vt_chip *chip, vt_type type, int32_t *out_order);
// The bytes of an array in that order.
int64_t vt_chip_compact_bytes(const vt_chip *chip, vt_type type);
// The same, found once for the many arrays of a program that are alike. A zeroed one knows nothing;
// it borrows the dimensions, which stay where and what they are, and belongs to one chip.
enum { VT_KNOWN_SIZES = 256 };
typedef struct vt_known_size {
  vt_type type;
  int64_t bytes;
} vt_known_size;
typedef struct vt_known_sizes {
  vt_known_size of[VT_KNOWN_SIZES];   // by the numbers
  vt_known_size last[VT_KNOWN_SIZES]; // by where the dimensions are
} vt_known_sizes;
int64_t vt_known_bytes(vt_known_sizes *known, const vt_chip *chip, vt_type type);
// "f32[32,128]{1,0:T(8,128)}" as out-of-memory reports print it, and the layout part alone.
void vt_chip_print_shape(const vt_chip *chip, vt_type type, const int32_t *order, vt_text *text);
const char *vt_chip_dtype_name(vt_dtype dtype); // "f32", "s32", "pred"

// What a module asks of a slice, and a lower bound of its time from published peaks. Pass the
// module as it is compiled: what our passes drop, a TPU's compiler drops too.
//   seconds  no slice is faster: the larger of matrix products at the peak rate of the matrix units
//            and unavoidable HBM traffic, divided evenly over the devices. Everything else is free:
//            elementwise work, communication, launches. A loop of unknown trip count counts as none
//            and a branch as its cheapest arm.
//   flops    of the whole program on all devices: multiply-adds count as two, products with padding
//            do not count; here a loop of unknown trip count counts once, a branch as its dearest.
//   bytes    unavoidable HBM traffic of all devices: each needed argument is read once, each result
//            written once, updates in place only as far as they go. On each trip a loop reads again
//            the inputs that the chips cannot keep. Intermediate values may stay on the chip.
// Of a TPU kernel flops, transcendentals and bytes are what the program says of it (`said`, may be
// NULL); no bound rests on that.
typedef struct vt_roofline {
  double flops, bytes, transcendentals; // of the whole program, all devices
  double seconds;
  double usd;       // 0 = no public price
  bool exact_trips; // false: some loop's trip count is unknown
} vt_roofline;
vt_roofline vt_chip_roofline(const vt_slice *slice, int32_t device_count, const vt_module *module,
                             vt_kernel_said_of *said);
// Its flops alone.
double vt_chip_flops(const vt_chip *chip, const vt_module *module, vt_kernel_said_of *said);

#endif
