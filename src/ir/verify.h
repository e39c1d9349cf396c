// SPDX-License-Identifier: Apache-2.0
// verify.h - private to the verifier's files (verify*.c).
#ifndef VT_IR_VERIFY_H
#define VT_IR_VERIFY_H

#include "ir/module.h"

// INVALID_ARGUMENT "op at location: message".
vt_status vt_verify_error(const vt_op *op, const char *format, ...) VT_CHECKED VT_PRINTF(2, 3);

#define CHECK(op, condition, ...)                                                                  \
  do {                                                                                             \
    if (!(condition)) return vt_verify_error(op, __VA_ARGS__);                                     \
  } while (0)

static inline vt_type vt_operand_type(const vt_op *op, uint32_t i) {
  return op->operands[i]->type;
}
static inline vt_type vt_result_type(const vt_op *op, uint32_t i) {
  return op->results[i].type;
}

// The attribute as a list of `count` numbers. errors: absent, or a different length
vt_status vt_verify_ints(const vt_op *op, vt_attr_key key, uint32_t count,
                         const int64_t **out_ints) VT_CHECKED;
// The attribute as distinct dimension numbers below `rank`; `sorted`: also ascending.
vt_status vt_verify_dims(const vt_op *op, vt_attr_key key, int32_t rank, bool sorted,
                         const int64_t **out_dims, uint32_t *out_count) VT_CHECKED;
vt_status vt_verify_i64(const vt_op *op, vt_attr_key key, int64_t lowest, int64_t highest,
                        int64_t *out_value) VT_CHECKED;
// Result `i` must have this element type and these dimensions.
vt_status vt_verify_result(const vt_op *op, uint32_t i, vt_dtype dtype, int32_t rank,
                           const int64_t *dims) VT_CHECKED;
// Region `i` must take and return values of these types (scalars of their element types when
// `scalars`).
vt_status vt_verify_region(const vt_op *op, uint32_t i, uint32_t param_count, const vt_type *params,
                           uint32_t return_count, const vt_type *returns) VT_CHECKED;
// The numbers in a matrix of groups of devices; the op's rule has seen to its type.
vt_status vt_verify_group_ids(const vt_op *op, const vt_literal *groups) VT_CHECKED;

// The rules named in ops.def.
#define OP(name, text, operands, results, regions, kinds, rule, ...)                               \
  vt_status vt_verify_##rule(const vt_op *op) VT_CHECKED;
#include "ir/ops.def"
#undef OP

#endif
