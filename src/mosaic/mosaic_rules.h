// SPDX-License-Identifier: Apache-2.0
// mosaic_rules.h - the rules named in mosaic.def, once for each op that has one.
#ifndef VT_MOSAIC_MOSAIC_RULES_H
#define VT_MOSAIC_MOSAIC_RULES_H

#include "mosaic/mosaic_ir.h"

#define MOP(code, text, least, most, results, regions, kinds, rule, ...)                           \
  vt_status vt_mosaic_rule_##rule(const vt_mop *op) VT_CHECKED;
#define REFUSED(text, what)
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED

// "message" as an error of the op unless `condition`.
#define MCHECK(op, condition, ...)                                                                 \
  do {                                                                                             \
    if (!(condition)) return vt_mop_error(op, VT_INVALID_ARGUMENT, __VA_ARGS__);                   \
  } while (0)

static inline vt_mtype vt_moperand(const vt_mop *op, uint32_t i) {
  return op->operands[i]->type;
}
static inline vt_mtype vt_mresult(const vt_mop *op) {
  return op->results[0].type;
}
static inline bool vt_mtype_is_index(vt_mtype type) {
  return type.kind == VT_MSCALAR && (type.dtype == VT_S32 || type.dtype == VT_S64);
}

#endif
