// SPDX-License-Identifier: Apache-2.0
// lower_custom.c - custom calls by which GSPMD clients say how a value is sharded.
#include "import/lower.h"

vt_status vt_lower_custom_call(vt_lower *lo, const vt_raw_op *raw, uint32_t count, vt_value *const *operands,
                               vt_value **out_result) {
  const vt_raw_attr *target = vt_raw_find(raw, "call_target_name"), *text = vt_raw_find(raw, "mhlo.sharding");
  *out_result = NULL;
  if (!target || target->kind != VT_RAW_STRING || !vt_string_is(target->string, "Sharding")) return VT_OK;
  if (!text || text->kind != VT_RAW_STRING || count != 1 || raw->result_count != 1) return VT_OK;
  vt_type type = operands[0]->type;
  const vt_sharding **list = VT_NEW(&lo->module->arena, const vt_sharding *);
  VT_TRY(vt_lower_tiles(lo, raw, text->string, type.rank, list));
  *out_result = operands[0];
  if (!*list) return VT_OK;
  *out_result =
      vt_build(lo->func, NULL, VT_OP_SHARDING_CONSTRAINT, vt_lower_loc(lo, raw->loc), type, 1, operands);
  vt_op_set_attr((*out_result)->op, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = list});
  return VT_OK;
}
