// SPDX-License-Identifier: Apache-2.0
// kernels.h - a program as the kernels that XLA:TPU makes of it, and what each asks of the chip.
#ifndef VT_CHIP_TIME_KERNELS_H
#define VT_CHIP_TIME_KERNELS_H

#include "base/arena.h"
#include "base/array.h"
#include "base/map.h"
#include "chip/time/time.h"
#include "ir/loop.h"

// Constants of a chip's time. Units are in the names; rates.def has the sources.
typedef struct vt_rates {
  double vector_slots;    // operations on a register that start in one cycle
  double narrow_vectors;  // 1: bf16 vectors are computed as they are; 0: as f32
  double transcendentals; // registers a cycle
  double cross_lane;      // cycles for 8 rows of one register, one unit
  double weight_load;     // rows of the left operand that hide the load of the next weights
  double mxu_share, hbm_share;
  double launch_s, kernel_s, trip_s;
  double gather_share, reduce_share; // of the links, that all-gather and all-reduce reach
  double collective_s;
  double package_link_bytes_per_s; // between the devices of a chip; 0 = one device
  double dcn_bytes_per_s;          // of a chip
  double idle_w, busiest_w;        // of a chip
  double sustained;                // of the matrix units' rate in long programs
  double read_share;               // of HBM, that reading alone sustains
  double scoped_bytes;             // of VMEM, that whole arrays do not get
  double offload;                  // 1: reduce-scatters run beside kernels
} vt_rates;
const vt_rates *vt_rates_of(const vt_chip *chip);

// What does not depend on the kernel.
typedef struct vt_device_model {
  const vt_slice *slice;
  const vt_chip *chip;
  const vt_rates *rates;
  double cores;                             // that one device has
  double clock;                             // cycles a second
  double mxu_rows_per_s;                    // rows of the left operand that all matrix units take
  double hbm_bytes_per_s, hbm_writes_per_s; // sustained, reading and writing
  double block_bytes; // of an array, that a kernel waits for before it starts and leaves at its end
  double vmem_bytes;  // for whole arrays, of one device
  int32_t devices;
  vt_kernel_cost_of *cost_of; // of custom calls; NULL: not known
  struct vt_group_boxes *groups;
  vt_known_sizes *sizes;
  vt_map *bodies;  // elementwise function -> vt_body
  vt_arena *arena; // for them
} vt_device_model;

// An array that a kernel moves. `bytes` is what it moves of it, `whole` its size in memory.
typedef struct vt_stream {
  const vt_value *value;
  double bytes, whole;
} vt_stream;
typedef VT_ARRAY(vt_stream) vt_streams;

typedef enum vt_kernel_kind {
  VT_KERNEL_LOOP,    // elementwise operators and moves
  VT_KERNEL_REDUCE,  // the same, with a reduction
  VT_KERNEL_PRODUCT, // around a matrix product or a convolution
  VT_KERNEL_UPDATE,  // dynamic_update_slice, scatter: in place
  VT_KERNEL_GATHER,  // rows by index
  VT_KERNEL_LIBRARY, // sort, fft, linear algebra, custom calls
  VT_KERNEL_COLLECTIVE,
  VT_KERNEL_CONTROL // loops and branches
} vt_kernel_kind;

// How a collective goes along with the product that reads, or makes, its array: part by part, as in
// XLA's windowed einsum.
typedef struct vt_windows {
  double parts;  // 0: it does not
  double slower; // it takes that many times as long
} vt_windows;

typedef struct vt_kernel_list vt_kernel_list;

typedef struct vt_kernel {
  vt_kernel_kind kind;
  const vt_op *root; // its last operator
  const vt_op *hero; // the product, reduction, ... of it; NULL: elementwise
  VT_ARRAY(const vt_op *) members;
  vt_streams reads, writes;
  double cores;   // of the device, that share it
  bool on_vector; // its product is computed by the vector unit
  double mxu_s, vpu_s, flops, network_s;
  vt_windows windows;        // of a collective
  double steps_s;            // of a kernel in a custom call, between the points of its grid
  double moved, first, last; // bytes that it moves, if known: in all, before and after its work
  double ahead_s;            // of the vector unit, while the matrix units wait
  double kept;               // of a sort: as many along its dimension are read, as of top-k; 0: all
  double streamed;         // bytes from HBM if its operands are not in VMEM, for a product in tiles
  vt_kernel_list **inside; // of control
  uint32_t inside_count;
} vt_kernel;

struct vt_kernel_list {
  const vt_func *func;
  vt_kernel *kernels; // in an order in which they can run
  uint32_t count;
  struct vt_places *places; // where its arrays are, once that was worked out (timeline.c)
};

// The kernels of a function and of all that it runs, with their members, reads and writes, in a
// brief arena: so is what it takes to find them. (fuse.c)
vt_kernel_list *vt_kernels_make(const vt_device_model *model, const vt_scope *scope, vt_func *func,
                                vt_arena *arena);
// The value that an operator without work of its own hands on.
const vt_value *vt_kernel_source(const vt_value *value);
// Bytes that a value takes in memory.
double vt_kernel_bytes(const vt_device_model *model, vt_type type);

// Bytes of matrices that lie one after the other; dimensions of size 1 take no room. (touched.c)
double vt_matrices_bytes(const vt_chip *chip, vt_type type);
// The share of its array that a slice reads.
double vt_slice_share(const vt_chip *chip, const vt_op *slice);
// How many arrays an operator changes a part of: its first operands.
uint32_t vt_updated_by(const vt_op *op);
// Whether it changes a copy, as `array` stays as it is.
bool vt_update_copies(const vt_value *array);
// Whether it reads what it changes.
bool vt_update_reads(const vt_op *op, const vt_value *array);
// Which operands of a loop nothing in it reads; NULL for other operators.
const bool *vt_loop_unread(const vt_op *op, vt_arena *arena);

// What an elementwise function asks of the vector unit, the same in every kernel. (work.c)
typedef struct vt_body {
  double arithmetic, transcendental; // registers
  bool dear;                         // one of its steps is
} vt_body;
const vt_body *vt_kernel_body(const vt_device_model *model, const vt_op *call);

// Fills in the work of one kernel of the scope's function. (work.c)
void vt_kernel_work(const vt_device_model *model, const vt_scope *scope, vt_kernel *kernel);

// What a vector operator costs, in operations and passes on a register.
typedef struct vt_vector_cost {
  double arithmetic, transcendental;
} vt_vector_cost;
vt_vector_cost vt_vector_cost_of(vt_opcode code, bool floats);

// A matrix product or convolution. (product.c)
typedef struct vt_product {
  double batch, rows, depth, columns; // of one product, how many of them
  double passes;                      // over the matrix unit, in times of bf16
  double flops;
  bool vectors; // computed by the vector unit
} vt_product;
vt_product vt_product_of(const vt_chip *chip, const vt_op *op);
double vt_product_seconds(const vt_device_model *model, const vt_product *product);
// Bytes from HBM when the operands do not fit on the chip and are read in tiles.
double vt_product_traffic(const vt_device_model *model, const vt_product *product, double lhs,
                          double rhs);

// What is known of groups of devices, of a model: most collectives of a program have the same.
struct vt_group_boxes *vt_network_groups(vt_arena *arena);
// Seconds that a collective takes by itself. (network.c)
double vt_network_seconds(const vt_device_model *model, const vt_op *op);
// How it can go along with a product.
vt_windows vt_network_windows(const vt_device_model *model, const vt_op *op);
// Whether XLA runs it beside other kernels by default.
bool vt_network_is_async(const vt_device_model *model, const vt_op *op);

#endif
