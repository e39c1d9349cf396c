// SPDX-License-Identifier: Apache-2.0
// mosaic_verify_ref.c - the rules of references: loads and stores, views, copies, semaphores.
#include <inttypes.h>

#include "mosaic/mosaic_rules.h"

static vt_status is_array(const vt_mop *op, vt_mtype type) {
  MCHECK(op, type.kind == VT_MREF && !type.semaphore, "a reference to an array was expected");
  return VT_OK;
}

// A reference to exactly one semaphore.
static vt_status is_semaphore(const vt_mop *op, vt_mtype type) {
  MCHECK(op, type.kind == VT_MREF && type.semaphore && vt_mtype_elements(type) == 1,
         "a semaphore was expected");
  return VT_OK;
}

static vt_status are_indices(const vt_mop *op, uint32_t count, vt_mvalue *const *values,
                             int32_t rank) {
  MCHECK(op, (int32_t)count == rank, "%" PRIu32 " indices for %d dimensions", count, rank);
  for (uint32_t i = 0; i < count; i++)
    MCHECK(op, vt_mtype_is_index(values[i]->type), "an index is not an integer");
  return VT_OK;
}

// A block of the array: strides, when there are any, are positive, or 0 where the op loads.
static vt_status is_block(const vt_mop *op, vt_mtype ref, vt_mtype block) {
  const vt_mattr *strides = vt_mop_attr(op, VT_MATTR_STRIDES);
  MCHECK(op, block.kind == VT_MVECTOR && block.dtype == ref.dtype && block.rank == ref.rank,
         "the vector does not fit the reference");
  MCHECK(op, !strides || !strides->count || (int32_t)strides->count == ref.rank,
         "strides do not fit the reference");
  for (uint32_t i = 0; strides && i < strides->count; i++)
    MCHECK(op, strides->ints[i] >= !op->result_count && strides->ints[i] <= INT32_MAX,
           "a stride of %" PRId64, strides->ints[i]);
  return VT_OK;
}

static vt_status is_mask(const vt_mop *op, const vt_mvalue *mask, vt_mtype block) {
  MCHECK(op,
         !mask || (mask->type.kind == VT_MVECTOR && mask->type.dtype == VT_PRED &&
                   vt_mtype_same_dims(mask->type, block)),
         "the mask does not fit the vector");
  return VT_OK;
}

vt_status vt_mosaic_rule_vector_load(const vt_mop *op) {
  uint32_t first = 0, count = op->operand_count - 1;
  if (op->code == VT_MOP_LOAD_VECTOR) {
    (void)vt_mop_group(op, 0, &first);
    MCHECK(op, first == 1, "one reference was expected");
    (void)vt_mop_group(op, 1, &count);
    VT_TRY(is_mask(op, vt_mop_optional(op, 2), vt_mresult(op)));
  }
  VT_TRY(is_array(op, vt_moperand(op, 0)));
  VT_TRY(is_block(op, vt_moperand(op, 0), vt_mresult(op)));
  return are_indices(op, count, op->operands + 1, vt_moperand(op, 0).rank);
}

// tpu.vector_store: value, reference; tpu.strided_store: reference, value comes first too.
vt_status vt_mosaic_rule_vector_store(const vt_mop *op) {
  uint32_t count = op->operand_count - 2, ones = 1;
  MCHECK(op, op->operand_count >= 2, "too few operands");
  if (op->code == VT_MOP_STORE_VECTOR) {
    (void)vt_mop_group(op, 0, &ones);
    MCHECK(op, ones == 1, "one value was expected");
    (void)vt_mop_group(op, 1, &ones);
    MCHECK(op, ones == 1, "one reference was expected");
    (void)vt_mop_group(op, 2, &count);
    VT_TRY(is_mask(op, vt_mop_optional(op, 3), vt_moperand(op, 0)));
  }
  VT_TRY(is_array(op, vt_moperand(op, 1)));
  VT_TRY(is_block(op, vt_moperand(op, 1), vt_moperand(op, 0)));
  return are_indices(op, count, op->operands + 2, vt_moperand(op, 1).rank);
}

vt_status vt_mosaic_rule_load(const vt_mop *op) {
  VT_TRY(is_array(op, vt_moperand(op, 0)));
  MCHECK(op, vt_mresult(op).kind == VT_MSCALAR && vt_mresult(op).dtype == vt_moperand(op, 0).dtype,
         "a wrong result type");
  return are_indices(op, op->operand_count - 1, op->operands + 1, vt_moperand(op, 0).rank);
}

vt_status vt_mosaic_rule_store(const vt_mop *op) {
  VT_TRY(is_array(op, vt_moperand(op, 1)));
  MCHECK(op,
         vt_moperand(op, 0).kind == VT_MSCALAR &&
             vt_moperand(op, 0).dtype == vt_moperand(op, 1).dtype,
         "the value does not fit the reference");
  return are_indices(op, op->operand_count - 2, op->operands + 2, vt_moperand(op, 1).rank);
}

vt_status vt_mosaic_rule_allocation(const vt_mop *op) {
  vt_mtype type = vt_mresult(op);
  bool semaphore = op->code == VT_MOP_SEM_ALLOC;
  MCHECK(op, type.kind == VT_MREF && vt_mtype_elements(type) >= 0, "a wrong result type");
  MCHECK(op, !semaphore || type.semaphore, "a semaphore was expected");
  MCHECK(op, type.semaphore || type.space == VT_MSPACE_VMEM || type.space == VT_MSPACE_SMEM,
         "an allocation in %s", vt_mspace_text(type.space));
  return VT_OK;
}

// ---- views ------------------------------------------------------------------------------------

static bool same_elements(vt_mtype a, vt_mtype b) {
  return a.kind == VT_MREF && b.kind == VT_MREF && a.dtype == b.dtype && a.semaphore == b.semaphore;
}

vt_status vt_mosaic_rule_slice_ref(const vt_mop *op) {
  vt_mtype to = vt_mresult(op);
  uint32_t ones, count, sizes, unknown = 0;
  (void)vt_mop_group(op, 0, &ones);
  MCHECK(op, ones == 1, "one reference was expected");
  vt_mtype from = vt_moperand(op, 0);
  vt_mvalue **base = vt_mop_group(op, 1, &count), **dynamic = vt_mop_group(op, 2, &sizes);
  MCHECK(op, same_elements(from, to) && from.rank == to.rank, "a wrong result type");
  VT_TRY(are_indices(op, count, base, from.rank));
  for (int32_t d = 0; d < to.rank; d++) unknown += to.dims[d] < 0;
  return are_indices(op, sizes, dynamic, (int32_t)unknown);
}

// Dimensions of size 1 are dropped wherever the next one of the result is another.
vt_status vt_mosaic_rule_squeeze_ref(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  MCHECK(op, same_elements(from, to), "a wrong result type");
  int32_t d = 0;
  for (int32_t k = 0; k < from.rank; k++) {
    bool kept = d < to.rank && from.dims[k] == to.dims[d];
    MCHECK(op, kept || from.dims[k] == 1, "only dimensions of size 1 may be dropped");
    d += kept;
  }
  MCHECK(op, d == to.rank, "only dimensions of size 1 may be dropped");
  return VT_OK;
}

vt_status vt_mosaic_rule_reshape_ref(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  MCHECK(op,
         same_elements(from, to) && vt_mtype_elements(from) >= 0 &&
             vt_mtype_elements(from) == vt_mtype_elements(to),
         "the number of elements changes");
  return VT_OK;
}

vt_status vt_mosaic_rule_bitcast_ref(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  VT_TRY(is_array(op, from));
  VT_TRY(is_array(op, to));
  int64_t a = vt_dtype_get(from.dtype)->bits, b = vt_dtype_get(to.dtype)->bits;
  MCHECK(op, a > 1 && b > 1 && from.rank == to.rank && (a == b || from.rank >= 2),
         "not defined for these types");
  for (int32_t d = 0; d < from.rank; d++) {
    bool rows = d == from.rank - 2, known = from.dims[d] >= 0 && to.dims[d] >= 0;
    MCHECK(op,
           known ? from.dims[d] * (rows ? a : 1) == to.dims[d] * (rows ? b : 1)
                 : from.dims[d] == to.dims[d],
           "a wrong result type");
  }
  return VT_OK;
}

vt_status vt_mosaic_rule_same_ref(const vt_mop *op) {
  MCHECK(op,
         same_elements(vt_moperand(op, 0), vt_mresult(op)) &&
             vt_mtype_same_dims(vt_moperand(op, 0), vt_mresult(op)),
         "a wrong result type");
  return VT_OK;
}

// ---- copies and semaphores --------------------------------------------------------------------

static vt_status is_optional_index(const vt_mop *op, uint32_t group) {
  uint32_t count;
  vt_mvalue **values = vt_mop_group(op, group, &count);
  MCHECK(op, !count || (count == 1 && vt_mtype_is_index(values[0]->type)),
         "a device or core is not an integer");
  return VT_OK;
}

static vt_status one_each(const vt_mop *op, uint32_t count, const uint32_t *groups) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t size;
    (void)vt_mop_group(op, groups[i], &size);
    MCHECK(op, size == 1, "a wrong number of operands");
  }
  return VT_OK;
}

// Known sizes of the two sides of a copy are equal.
static vt_status same_block(const vt_mop *op, vt_mtype a, vt_mtype b) {
  VT_TRY(is_array(op, a));
  VT_TRY(is_array(op, b));
  MCHECK(op, a.dtype == b.dtype && a.rank == b.rank, "source and target differ in type");
  for (int32_t d = 0; d < a.rank; d++)
    MCHECK(op, a.dims[d] < 0 || b.dims[d] < 0 || a.dims[d] == b.dims[d],
           "source and target differ in dimension %d", d);
  return VT_OK;
}

vt_status vt_mosaic_rule_enqueue_dma(const vt_mop *op) {
  VT_TRY(one_each(op, 3, (const uint32_t[]){0, 2, 3}));
  VT_TRY(same_block(op, vt_mop_optional(op, 0)->type, vt_mop_optional(op, 2)->type));
  VT_TRY(is_semaphore(op, vt_mop_optional(op, 3)->type));
  const vt_mvalue *source = vt_mop_optional(op, 1);
  if (source) VT_TRY(is_semaphore(op, source->type));
  for (uint32_t g = 4; g < 7; g++) VT_TRY(is_optional_index(op, g));
  bool remote = vt_mop_optional(op, 4) || vt_mop_optional(op, 5);
  MCHECK(op, !remote || source, "a remote copy without a semaphore of the source");
  uint32_t size;
  (void)vt_mop_group(op, 1, &size);
  MCHECK(op, size <= 1, "a wrong number of operands");
  return VT_OK;
}

vt_status vt_mosaic_rule_wait_dma2(const vt_mop *op) {
  VT_TRY(one_each(op, 3, (const uint32_t[]){0, 1, 2}));
  VT_TRY(is_semaphore(op, vt_moperand(op, 0)));
  VT_TRY(is_array(op, vt_moperand(op, 1)));
  VT_TRY(is_array(op, vt_moperand(op, 2)));
  VT_TRY(is_optional_index(op, 3));
  return is_optional_index(op, 4);
}

vt_status vt_mosaic_rule_sem_signal(const vt_mop *op) {
  VT_TRY(one_each(op, 2, (const uint32_t[]){0, 1}));
  VT_TRY(is_semaphore(op, vt_moperand(op, 0)));
  MCHECK(op, vt_mtype_is_index(vt_moperand(op, 1)), "the amount is not an integer");
  for (uint32_t g = 2; g < 5; g++) VT_TRY(is_optional_index(op, g));
  return VT_OK;
}

vt_status vt_mosaic_rule_sem_wait(const vt_mop *op) {
  VT_TRY(is_semaphore(op, vt_moperand(op, 0)));
  MCHECK(op, vt_mtype_is_index(vt_moperand(op, 1)), "the amount is not an integer");
  return VT_OK;
}

vt_status vt_mosaic_rule_sem_read(const vt_mop *op) {
  VT_TRY(is_semaphore(op, vt_moperand(op, 0)));
  MCHECK(op, vt_mresult(op).kind == VT_MSCALAR && vt_mresult(op).dtype == VT_S32,
         "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_sem_barrier(const vt_mop *op) {
  return is_semaphore(op, vt_mresult(op));
}

vt_status vt_mosaic_rule_bound(const vt_mop *op) {
  MCHECK(op, vt_mtype_is_index(vt_mresult(op)), "a wrong result type");
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIM, -1);
  MCHECK(op, dim >= 0 && dim < VT_MOSAIC_RANK, "dimension %" PRId64 " of the grid", dim);
  return VT_OK;
}

vt_status vt_mosaic_rule_log_buffer(const vt_mop *op) {
  return is_array(op, vt_moperand(op, 0));
}
