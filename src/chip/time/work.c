// SPDX-License-Identifier: Apache-2.0
// work.c - what a kernel asks of the vector unit and, with product.c, of the matrix units.
//
// Work is counted in registers of 8 x 128 words, over the arrays as they are padded. Units run side
// by side: arithmetic, transcendentals, lanes, loads and stores; the busiest one decides.
#include "chip/time/kernels.h"

#include <math.h>
#include <stdlib.h>

#include "chip/flops.h"
#include "chip/ragged.h"
#include "chip/time/traits.h"
#include "ir/precision.h"

static const double step_s = 3.5e-7; // of a Pallas kernel's grid: the Pallas pages, on v5e
// Rows that an index names: from HBM by a transfer each, many at once (estimate); from VMEM, cycles
// to read the index and to move the row, from the gather of the SparseCore page, on 7x.
static const double row_s = 2e-8, near_row = 8.6;
// Of one row times a matrix, on a register of weights: widen, spread, multiply, add.
static const double vector_product = 6;
// f16 is no type of the vector unit: exponent, subnormals, sign and rounding go by integer
// operations. The two counts are fitted on half of the published f16 sums on v4.
static const double f16_unpacking = 15, f16_packing = 20;
enum { REGISTER_WORDS = 1024, LANES = 128, SUBLANES = 8, LOADS = 3, STORES = 1, LANE_UNITS = 2 };

// In registers; `lanes` in blocks of 8 rows.
typedef struct vector_work {
  double arithmetic, transcendental, lanes, loads, stores;
  double ahead; // arithmetic that the matrix units wait for
} vector_work;

static const struct {
  bool given;
  double floats, integers, transcendental;
} costs[VT_OP_COUNT] = {
#define VECTOR(op, floats, integers, transcendental)                                               \
  [VT_OP_##op] = {true, floats, integers, transcendental},
#include "chip/time/vector.def"
};

vt_vector_cost vt_vector_cost_of(vt_opcode code, bool floats) {
  if (costs[code].given)
    return (vt_vector_cost){floats ? costs[code].floats : costs[code].integers,
                            costs[code].transcendental};
  switch ((vt_cost_class)vt_op_info_get(code)->cost) {
  case VT_COST_FREE:
    return (vt_vector_cost){0};
  case VT_COST_MEDIUM:
    return (vt_vector_cost){8, 1};
  case VT_COST_EXPENSIVE:
    return (vt_vector_cost){30, 0};
  default:
    return (vt_vector_cost){1, 0};
  }
}

static double registers(const vt_device_model *model, vt_type type) {
  vt_type words = {VT_F32, type.rank, type.dims};
  double pairs = vt_dtype_get(type.dtype)->bits > 32 ? 2 : 1;
  return pairs * (double)vt_known_bytes(model->sizes, model->chip, words) / (4.0 * REGISTER_WORDS);
}

// Share of a register's time that an element type takes in arithmetic.
static double width(const vt_device_model *model, vt_dtype dtype) {
  return dtype == VT_BF16 && model->rates->narrow_vectors > 0 ? 0.5 : 1;
}

// Operations that bring a register of words out of memory's form, or into it.
static double unpacking(const vt_device_model *model, vt_dtype dtype) {
  if (dtype == VT_F16) return f16_unpacking;
  if (vt_dtype_get(dtype)->bits >= 32) return 0;
  return dtype == VT_BF16 && model->rates->narrow_vectors > 0 ? 0 : 1;
}

static double packing(const vt_device_model *model, vt_dtype dtype) {
  return dtype == VT_F16 ? f16_packing : unpacking(model, dtype);
}

static bool named(const int64_t *dims, uint32_t count, int32_t dim) {
  for (uint32_t i = 0; i < count; i++)
    if (dims[i] == dim) return true;
  return false;
}

static int32_t minor_of(const vt_device_model *model, vt_type type, int32_t place) {
  int32_t order[VT_MAX_RANK];
  if (type.rank <= place) return -1;
  vt_chip_compact_order(model->chip, type, order);
  return order[place];
}

// Blocks of 8 rows that an array has.
static double row_blocks(const vt_device_model *model, vt_type type) {
  int32_t minor = minor_of(model, type, 0);
  if (minor < 0) return 1;
  return registers(model, type) / ceil((double)type.dims[minor] / LANES);
}

static void count_reduce(const vt_device_model *model, const vt_op *op, vector_work *w) {
  vt_type from = op->operands[0]->type;
  uint32_t count = 0, inputs = op->operand_count / 2;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
  double each = width(model, from.dtype) * (inputs > 1 ? 4 : 1) * (inputs ? inputs : 1);
  w->arithmetic += each * registers(model, from);
  if (!from.rank) return;
  double results = (double)vt_type_elements(op->results[0].type);
  int32_t order[VT_MAX_RANK];
  vt_chip_compact_order(model->chip, from, order);
  bool lanes = named(dims, count, order[0]), rows = from.rank > 1 && named(dims, count, order[1]);
  if (lanes) w->lanes += each * (rows ? results : ceil(results / SUBLANES));
  if (rows) w->arithmetic += 3 * each * ceil(lanes ? results : results / LANES);
}

// Long windows, as of a running sum, are made by parts: of 2, 4, 8 ... elements. Along the lanes
// each part is a rotation.
static void count_window(const vt_device_model *model, const vt_op *op, vector_work *w) {
  uint32_t count = 0;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, &count);
  vt_type to = op->results[0].type;
  double window = 1, regs = registers(model, to);
  int32_t minor = minor_of(model, to, 0);
  for (uint32_t i = 0; i < count; i++) window *= (double)dims[i];
  window = fmin(window, 2 * vt_log2(window + 1) + 9);
  w->arithmetic += window * regs;
  if (minor >= 0 && dims[minor] > 1) {
    double along = fmin((double)dims[minor], LANES);
    w->lanes += fmin(along - 1, ceil(vt_log2(along))) * regs;
  }
}

// A value that goes to all lanes of its row, once for each that there is.
static void count_broadcast(const vt_device_model *model, const vt_op *op, vector_work *w) {
  vt_type to = op->results[0].type, from = op->operands[0]->type;
  uint32_t count = 0;
  if (vt_type_elements(from) <= 1 || !vt_op_attr(op, VT_ATTR_BROADCAST_DIMENSIONS)) return;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  int32_t minor = minor_of(model, to, 0);
  for (uint32_t i = 0; i < count; i++)
    if (dims[i] == minor && from.dims[i] > 1) return;
  w->lanes += fmin(row_blocks(model, to), ceil((double)vt_type_elements(from) / SUBLANES));
}

static void count_transpose(const vt_device_model *model, const vt_op *op, vector_work *w) {
  vt_type to = op->results[0].type;
  const int64_t *from = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  if (to.rank < 2 || from[to.rank - 1] == to.rank - 1) return;
  // A tile of 128 x 128 words takes 128 cycles of one unit.
  double cycles = registers(model, to) * SUBLANES * vt_dtype_get(to.dtype)->bits / 32;
  w->lanes += cycles / model->rates->cross_lane;
}

// Passes of a bitonic sort of 2^steps elements between elements that are less than 2^near apart.
static double passes_within(double steps, double near) {
  double few = fmin(steps, near);
  return few * (few + 1) / 2 + (steps - few) * near;
}

static double cycles_of(const vt_device_model *model, const vector_work *w) {
  double cycles = fmax(w->arithmetic / model->rates->vector_slots,
                       w->transcendental / model->rates->transcendentals);
  cycles = fmax(cycles, fmax(w->loads / LOADS, w->stores / STORES));
  // A row waits for its sum, and its elements for the row's value.
  return cycles + w->lanes * model->rates->cross_lane / LANE_UNITS;
}

// A bitonic sort. Each pass compares the keys and selects each operand; partners in one register
// come by rotations to both sides, of lanes or of rows, others from their own registers.
static vector_work bitonic_sort(const vt_device_model *model, const vt_op *op, double all) {
  static const double lane_steps = 7, row_steps = 3; // of 128 lanes, 8 rows
  vt_type type = op->operands[0]->type;
  int32_t dim = (int32_t)vt_attr_i64(op, VT_ATTR_DIMENSION);
  double n = (double)type.dims[dim], steps = ceil(vt_log2(fmax(n, 2))), compare = 0;
  for (const vt_op *c = op->regions[0]->first; c; c = c->next) compare += c->result_count > 0;
  vector_work w = {.arithmetic =
                       passes_within(steps, steps) * (compare * registers(model, type) + all)};
  if (dim == minor_of(model, type, 0))
    w.lanes = 2 * passes_within(steps, lane_steps) * all;
  else if (dim == minor_of(model, type, 1))
    w.arithmetic += 2 * passes_within(steps, row_steps) * all;
  return w;
}

// The first few one after the other: the largest of what is left, where it is, what goes with it,
// and that it is taken.
static vector_work take_largest(const vt_device_model *model, const vt_op *op, double all,
                                double kept) {
  static const double each = 4; // maximum, comparison, minimum of the places, removal
  vt_type type = op->operands[0]->type;
  vector_work w = {.arithmetic = kept * (each * registers(model, type) + all)};
  // Two reductions along the lanes, and the value back to all of them.
  if (vt_attr_i64(op, VT_ATTR_DIMENSION) == minor_of(model, type, 0))
    w.lanes = 3 * kept * row_blocks(model, type);
  return w;
}

static void count_sort(const vt_device_model *model, const vt_kernel *kernel, const vt_op *op,
                       vector_work *w) {
  double all = 0;
  for (uint32_t i = 0; i < vt_op_own_operands(op); i++)
    all += registers(model, op->operands[i]->type);
  vector_work sort = bitonic_sort(model, op, all);
  vector_work few = take_largest(model, op, all, kernel->kept);
  if (kernel->kept > 0 && cycles_of(model, &few) < cycles_of(model, &sort)) sort = few;
  w->arithmetic += sort.arithmetic;
  w->lanes += sort.lanes;
}

static void count_elementwise(const vt_device_model *model, const vt_op *op, double *arithmetic,
                              double *transcendental) {
  vt_type type = op->results[0].type;
  vt_vector_cost cost = vt_vector_cost_of(op->code, vt_dtype_is_float(type.dtype));
  double regs = registers(model, type) * width(model, type.dtype);
  *arithmetic += cost.arithmetic * regs;
  *transcendental += cost.transcendental * regs;
}

const vt_body *vt_kernel_body(const vt_device_model *model, const vt_op *call) {
  const vt_func *func = vt_op_callee(call);
  void **known = vt_map_at_ptr(model->bodies, func);
  if (*known) return *known;
  vt_body *body = *known = VT_NEW(model->arena, vt_body);
  for (const vt_op *op = func->first; op; op = op->next) {
    count_elementwise(model, op, &body->arithmetic, &body->transcendental);
    body->dear = body->dear || vt_kernel_is_dear(op);
  }
  return body;
}

static void count_member(const vt_device_model *model, const vt_kernel *kernel, const vt_op *op,
                         vector_work *w) {
  if (!op->result_count || vt_ragged_splits(op)) return;
  if (vt_op_is_elementwise_call(op)) {
    const vt_body *body = vt_kernel_body(model, op);
    w->arithmetic += body->arithmetic;
    w->transcendental += body->transcendental;
    return;
  }
  vt_type type = op->results[0].type;
  switch (op->code) {
  case VT_OP_DOT_GENERAL:
  case VT_OP_DOT:
  case VT_OP_CONVOLUTION:
    if (!kernel->on_vector) return;
    for (uint32_t i = 0; i < 2; i++)
      w->arithmetic += vector_product * registers(model, op->operands[i]->type);
    return;
  case VT_OP_REDUCE:
    count_reduce(model, op, w);
    return;
  case VT_OP_REDUCE_WINDOW:
  case VT_OP_SELECT_AND_SCATTER:
    count_window(model, op, w);
    return;
  case VT_OP_SORT:
    count_sort(model, kernel, op, w);
    return;
  case VT_OP_BROADCAST_IN_DIM:
    count_broadcast(model, op, w);
    return;
  case VT_OP_TRANSPOSE:
    if (kernel->kind != VT_KERNEL_PRODUCT) count_transpose(model, op, w);
    return;
  case VT_OP_FFT: {
    double n = type.rank ? (double)type.dims[type.rank - 1] : 1;
    w->arithmetic += 10 * vt_log2(fmax(n, 2)) * registers(model, type);
    return;
  }
  default:
    count_elementwise(model, op, &w->arithmetic, &w->transcendental);
  }
}

// Whether the kernel hands the array to a matrix unit as it lies in memory.
static bool feeds_product(const vt_kernel *kernel, const vt_value *value) {
  if (kernel->kind != VT_KERNEL_PRODUCT) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (vt_kernel_source(vt_ragged_operand(kernel->hero, i)) == value) return true;
  return false;
}

// How often an operand of a product is unpacked: once for each block of the other one's rows or
// columns; half of it a second time where these are more than fit beside it in smaller products.
// Operands too deep for one block are unpacked before they are cut, a part of them again: so a
// product of 2,560 rows is measured to be faster with a depth of 3,584 and 2,048 columns than the
// other way round. Chosen with all published f16 products in sight.
static double visits(const vt_device_model *model, const vt_kernel *kernel, const vt_value *value) {
  static const double block = 2048, small = 512, again = 1.5, whole_depth = 2048, deep = 1.25;
  vt_product p = vt_product_of(model->chip, kernel->hero);
  if (p.depth > whole_depth) return deep;
  bool left = vt_kernel_source(vt_ragged_operand(kernel->hero, 0)) == value;
  double other = left ? p.columns : p.rows;
  return fmax(ceil(other / block), other > small ? again : 1);
}

static void count_streams(const vt_device_model *model, const vt_kernel *kernel, vector_work *w) {
  for (size_t i = 0; i < kernel->reads.size; i++) {
    const vt_stream *s = &kernel->reads.data[i];
    vt_dtype dtype = s->value->type.dtype;
    double part = s->whole > 0 ? s->bytes / s->whole : 0;
    double regs = registers(model, s->value->type) * part, operations = unpacking(model, dtype);
    if (!feeds_product(kernel, s->value))
      w->arithmetic += operations * regs;
    else if (dtype == VT_F16)
      w->ahead += operations * regs * visits(model, kernel, s->value);
    else if (dtype == VT_F32)
      w->arithmetic += regs;
    w->loads += s->bytes / (4.0 * REGISTER_WORDS);
  }
  for (size_t i = 0; i < kernel->writes.size; i++) {
    const vt_stream *s = &kernel->writes.data[i];
    double part = s->whole > 0 ? s->bytes / s->whole : 0;
    double operations = packing(model, s->value->type.dtype) * part;
    bool waits = kernel->kind == VT_KERNEL_PRODUCT && s->value->type.dtype == VT_F16;
    *(waits ? &w->ahead : &w->arithmetic) += operations * registers(model, s->value->type);
    w->stores += s->bytes / (4.0 * REGISTER_WORDS);
  }
}

// Rows that a gather or a scatter moves by their indices, one by one; a scatter reads each, as
// another may have gone there before, and writes it.
static double indexed_rows(const vt_op *op) {
  if (op->code != VT_OP_GATHER && op->code != VT_OP_SCATTER) return 0;
  const vt_value *indices =
      op->operands[op->code == VT_OP_GATHER ? 1 : (op->operand_count - op->capture_count) / 2];
  vt_type type = indices->type;
  int64_t at = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  double each = at < type.rank ? (double)type.dims[at] : 1;
  return (double)vt_type_elements(type) / fmax(each, 1) * (op->code == VT_OP_SCATTER ? 2 : 1);
}

// A kernel in a language of its own, with a grid of steps. Its blocks come while it works.
static bool work_of_call(const vt_device_model *model, const vt_scope *scope, vt_kernel *kernel) {
  const vt_op *call = kernel->hero;
  vt_kernel_cost cost;
  vt_matrix_units units = vt_units_of(model->chip);
  units.load = model->rates->weight_load;
  if (!model->cost_of || !call || call->code != VT_OP_CUSTOM_CALL ||
      !model->cost_of(call, scope, &units, &cost))
    return false;
  vector_work w = {.lanes = cost.lanes, .loads = cost.loads, .stores = cost.stores};
  for (int code = 0; code < VT_OP_COUNT; code++)
    for (int floats = 0; floats < 2; floats++) {
      double registers = floats ? cost.floats[code] : cost.integers[code];
      if (!(registers > 0)) continue;
      vt_vector_cost each = vt_vector_cost_of((vt_opcode)code, floats);
      w.arithmetic += each.arithmetic * registers;
      w.transcendental += each.transcendental * registers;
    }
  double cores = kernel->cores = cost.parallel ? model->cores : 1;
  kernel->vpu_s = cycles_of(model, &w) / (model->clock * cores);
  kernel->mxu_s =
      cost.rows / (model->mxu_rows_per_s * model->rates->mxu_share) * model->cores / cores;
  kernel->flops = cost.flops;
  kernel->steps_s = cost.steps * step_s / cores;
  kernel->moved = fmax(cost.bytes, 1);
  kernel->first = fmin(cost.first_bytes, kernel->moved);
  kernel->last = cost.last_bytes;
  return true;
}

// Seconds that one core moves rows by their indices, one by one from HBM, or from a table that was
// copied to VMEM as a whole if that is less: what is not named of it has to come too.
static double rows_seconds(const vt_device_model *model, const vt_op *op) {
  double rows = indexed_rows(op);
  if (!(rows > 0)) return 0;
  double table = vt_kernel_bytes(model, op->operands[0]->type);
  double named = op->code == VT_OP_GATHER ? vt_kernel_bytes(model, op->results[0].type)
                                          : vt_kernel_bytes(model, op->operands[2]->type);
  double far = rows * row_s, rest = fmax(0, table - named) / model->hbm_bytes_per_s;
  return table <= model->vmem_bytes ? fmin(far, rest + rows * near_row / model->clock) : far;
}

// Parts of a kernel that do not wait for each other.
static double parts_of(const vt_device_model *model, const vt_kernel *kernel) {
  const vt_op *op = kernel->hero ? kernel->hero : kernel->root;
  if (!op->result_count || !op->operand_count) return model->cores;
  vt_type to = op->results[0].type, from = op->operands[0]->type;
  double all = (double)vt_type_elements(from);
  switch (op->code) {
  case VT_OP_SCATTER: // rows may be named twice
    return 1;
  case VT_OP_SORT: {
    int32_t dim = (int32_t)vt_attr_i64(op, VT_ATTR_DIMENSION);
    double others = from.dims[dim] ? all / (double)from.dims[dim] : 1;
    return ceil(others / (dim == minor_of(model, from, 0) ? SUBLANES : LANES));
  }
  case VT_OP_FFT:
    return from.rank ? all / fmax((double)from.dims[from.rank - 1], 1) : 1;
  case VT_OP_CHOLESKY:
  case VT_OP_TRIANGULAR_SOLVE:
    return all / fmax((double)from.dims[from.rank - 1] * (double)from.dims[from.rank - 2], 1);
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    return registers(model, op->operands[1]->type);
  default:
    break;
  }
  if (kernel->kind != VT_KERNEL_PRODUCT)
    return kernel->kind == VT_KERNEL_REDUCE ? registers(model, from) : registers(model, to);
  vt_product p = vt_product_of(model->chip, op);
  return p.batch * fmax(ceil(p.rows / SUBLANES), ceil(p.columns / LANES));
}

static void count_vector_work(const vt_device_model *model, vt_kernel *kernel) {
  vector_work w = {0};
  double clock = model->clock * kernel->cores;
  for (size_t i = 0; i < kernel->members.size; i++)
    count_member(model, kernel, kernel->members.data[i], &w);
  count_streams(model, kernel, &w);
  kernel->vpu_s = cycles_of(model, &w) / clock;
  kernel->ahead_s = w.ahead / model->rates->vector_slots / clock;
  if (kernel->hero) kernel->vpu_s += rows_seconds(model, kernel->hero) / kernel->cores;
}

// A row times a matrix: the vector unit works while the matrix comes from HBM, the matrix units
// once it is in VMEM, if it fits. The cheaper way is taken. In CMEM it is there already.
static bool is_for_vectors(const vt_device_model *model, const vt_kernel *kernel,
                           const vt_product *p) {
  double bytes = 0; // of the matrix
  for (size_t i = 0; i < kernel->reads.size; i++) bytes = fmax(bytes, kernel->reads.data[i].bytes);
  if (bytes <= (double)model->chip->cmem_bytes / 2) bytes = 0;
  double blocks = (double)kernel->reads.size * model->block_bytes;
  double first = fmin(bytes, blocks) / model->hbm_bytes_per_s;
  double all = bytes / model->hbm_bytes_per_s, multiplied = vt_product_seconds(model, p);
  double vectors = first + fmax(kernel->vpu_s + kernel->ahead_s, all - first);
  double matrices = bytes <= model->vmem_bytes ? all + multiplied : fmax(all, multiplied);
  return p->depth <= 1 || vectors <= matrices;
}

void vt_kernel_work(const vt_device_model *model, const vt_scope *scope, vt_kernel *kernel) {
  kernel->cores = model->cores;
  if (work_of_call(model, scope, kernel)) return;
  kernel->cores = fmin(model->cores, fmax(1, floor(parts_of(model, kernel))));
  if (kernel->kind != VT_KERNEL_PRODUCT) {
    count_vector_work(model, kernel);
    if (kernel->kind == VT_KERNEL_UPDATE &&
        vt_update_copies(vt_kernel_source(kernel->hero->operands[0])))
      kernel->cores = model->cores; // which all of them make
    return;
  }
  vt_product p = vt_product_of(model->chip, kernel->hero);
  kernel->on_vector = p.vectors;
  kernel->flops = p.flops;
  count_vector_work(model, kernel);
  p.vectors = false;
  if (kernel->on_vector && is_for_vectors(model, kernel, &p)) return;
  if (kernel->on_vector) {
    kernel->on_vector = false;
    count_vector_work(model, kernel);
  }
  kernel->mxu_s = vt_product_seconds(model, &p);
}
