// SPDX-License-Identifier: Apache-2.0
// lower_custom.c - turns custom calls that stand in for missing ops into ops.
//
//   Sharding (mhlo.sharding, or xla.sdy.sharding as text)       sdy.sharding_constraint
//   xla.sdy.FuncResultSharding                                  sharding of a result of main
//   xla.sdy.GlobalToLocalShape, call of a body, ...LocalToGlobalShape sdy.manual_computation
//   ragged_all_to_all                                           vtpu.ragged_all_to_all
//   mhlo.erf, mhlo.topk and others that XLA emits for CHLO's ops     chlo.erf, chlo.top_k
//   SPMDFullToShardShape, ops of any kind, SPMDShardToFullShape  the same (lower_crossings.c)
//
// A manual computation is built at the call: its operands are what earlier calls turned into local
// shapes, and later calls say what its results are in global shape. Its region calls the body.
#include <inttypes.h>
#include <string.h>

#include "import/lower.h"
#include "import/text.h"

static bool is_call_of(const vt_raw_op *op, const char *target) {
  if (!op || op->row->code != VT_OP_CUSTOM_CALL) return false;
  const vt_raw_attr *name = vt_raw_find(op, "call_target_name");
  return name && name->kind == VT_RAW_STRING && vt_string_is(name->string, target);
}

// ---- attributes kept as text --------------------------------------------------------------------

// The attribute that the frontend attributes of `dict` hold as text; NULL when absent.
static vt_status text_attr(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *frontend,
                           const char *name, const vt_raw_attr **out_attr) {
  const vt_raw_attr *text = vt_raw_dict_find(frontend, name);
  *out_attr = NULL;
  if (!text || text->kind != VT_RAW_STRING) return VT_OK;
  vt_status st = vt_mlir_text_attr(text->string, lo->arena, out_attr);
  if (!st) return VT_OK;
  vt_status named =
      vt_lower_error(lo, op, vt_status_code(st), "%s: %s", name, vt_status_message(st));
  vt_status_free(st);
  return named;
}

vt_status vt_lower_frontend_sharding(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *dict,
                                     const char *name, const vt_sharding **out_sharding) {
  const vt_raw_attr *attr;
  *out_sharding = NULL;
  VT_TRY(text_attr(lo, op, vt_raw_dict_find(dict, "mhlo.frontend_attributes"), name, &attr));
  if (attr && attr->kind == VT_RAW_ARRAY && attr->count == 1) attr = attr->items[0];
  return attr ? vt_lower_sharding(lo, op, attr, out_sharding) : VT_OK;
}

static vt_status op_frontend_sharding(vt_lower *lo, const vt_raw_op *op,
                                      const vt_sharding **out_sharding) {
  const vt_raw_attr *attr;
  *out_sharding = NULL;
  VT_TRY(text_attr(lo, op, vt_raw_find(op, "mhlo.frontend_attributes"), "xla.sdy.sharding", &attr));
  if (attr && attr->kind == VT_RAW_ARRAY && attr->count == 1) attr = attr->items[0];
  return attr ? vt_lower_sharding(lo, op, attr, out_sharding) : VT_OK;
}

vt_status vt_lower_text_meshes(vt_lower *lo, const vt_raw_op *module) {
  const vt_raw_attr *meshes;
  VT_TRY(text_attr(lo, module, vt_raw_find(module, "mhlo.frontend_attributes"), "xla.sdy.meshes",
                   &meshes));
  for (uint32_t i = 0; meshes && meshes->kind == VT_RAW_DICT && i < meshes->count; i++)
    VT_TRY(vt_lower_add_mesh(lo, module, meshes->names[i], meshes->items[i]));
  return VT_OK;
}

vt_status vt_lower_result_sharding(vt_lower *lo, const vt_raw_value *value,
                                   const vt_sharding **out_sharding) {
  *out_sharding = NULL;
  return is_call_of(value->op, "xla.sdy.FuncResultSharding")
             ? op_frontend_sharding(lo, value->op, out_sharding)
             : VT_OK;
}

// ---- constraints --------------------------------------------------------------------------------

// Results are the operands, whatever their types: the verifier finds mismatches.
static vt_status alias_all(vt_lower *lo, vt_raw_op *raw) {
  if (raw->operand_count != raw->result_count)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                          "as many results as operands were expected");
  for (uint32_t i = 0; i < raw->operand_count; i++) {
    vt_value_list one = {0};
    vt_raw_op view = *raw;
    view.operands = &raw->operands[i];
    view.operand_count = 1;
    VT_TRY(vt_lower_operands(lo, &view, &one));
    vt_lower_set_values(lo, &raw->results[i], (uint32_t)one.size, one.data);
  }
  return VT_OK;
}

// Of GSPMD's text: {unknown shard_as 0} states nothing but the group. As in XLA, the result is a
// member and not the operand, which may state another sharding.
static vt_status lower_group(vt_lower *lo, const vt_raw_op *raw, vt_string text, vt_value **value) {
  const vt_loc *loc = vt_lower_loc(lo, raw->loc);
  bool grouped;
  int64_t group = 0;
  VT_TRY(vt_lower_tile_group(lo, text, (*value)->type.rank, &grouped, &group));
  if (!grouped) return VT_OK;
  *value = vt_build(lo->func, NULL, VT_OP_PROPAGATION_BARRIER, loc, (*value)->type, 1, value);
  vt_op_set_i64((*value)->op, VT_ATTR_ALLOWED_DIRECTION, 3); // both: it bars nothing
  vt_op *op = vt_op_create(lo->func, VT_OP_SHARDING_GROUP, loc, 1, value, 0, NULL, 0);
  vt_op_set_i64(op, VT_ATTR_GROUP_ID, group);
  vt_op_append(lo->func, op);
  return VT_OK;
}

static vt_status lower_constraint(vt_lower *lo, vt_raw_op *raw, bool *out_done) {
  const vt_raw_attr *text = vt_raw_find(raw, "mhlo.sharding");
  const vt_sharding **list = VT_NEW(&lo->module->arena, const vt_sharding *);
  vt_value_list operands = {0};
  if (raw->operand_count != 1 || raw->result_count != 1) return VT_OK;
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  if (operands.size != 1) return VT_OK;
  vt_type type = operands.data[0]->type;
  VT_TRY(op_frontend_sharding(lo, raw, list));
  if (!*list && text && text->kind == VT_RAW_STRING)
    VT_TRY(vt_lower_tiles(lo, raw, text->string, type.rank, list));
  *out_done = true;
  vt_value *value = operands.data[0];
  if (*list) {
    value = vt_build(lo->func, NULL, VT_OP_SHARDING_CONSTRAINT, vt_lower_loc(lo, raw->loc), type, 1,
                     &value);
    vt_op_set_attr(value->op, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = list});
  }
  if (text && text->kind == VT_RAW_STRING) VT_TRY(lower_group(lo, raw, text->string, &value));
  vt_lower_set_values(lo, &raw->results[0], 1, &value);
  return VT_OK;
}

// ---- manual computations ------------------------------------------------------------------------

typedef struct manual {
  vt_attr in, out, axes;
  vt_type_list results; // in global shape
} manual;

// The op after `from` that is a call of `target` and takes `value` first. Searches draw on the
// import's budget: a hostile program could request any number of them.
static const vt_raw_op *find_user(vt_lower *lo, const vt_raw_op *from, const char *target,
                                  const vt_raw_value *value) {
  for (const vt_raw_op *op = from->next; op && --lo->budget > 0; op = op->next)
    if (is_call_of(op, target) && op->operand_count && op->operands[0] == value) return op;
  return NULL;
}

static vt_status refuse_form(vt_lower *lo, const vt_raw_op *raw) {
  return vt_lower_error(
      lo, raw, VT_UNIMPLEMENTED,
      "this form of a manual computation is not supported: "
      "conversions to local shapes, one call of a body and conversions back were expected");
}

static vt_status describe_text(vt_lower *lo, const vt_raw_op *raw, manual *m) {
  const vt_raw_attr *frontend = vt_raw_find(raw, "mhlo.frontend_attributes"), *in, *out, *axes;
  VT_TRY(text_attr(lo, raw, frontend, "xla.sdy.in_shardings", &in));
  VT_TRY(text_attr(lo, raw, frontend, "xla.sdy.out_shardings", &out));
  VT_TRY(text_attr(lo, raw, frontend, "xla.sdy.manual_axes", &axes));
  const vt_raw_op *back =
      raw->result_count ? find_user(lo, raw, "xla.sdy.LocalToGlobalShape", &raw->results[0]) : NULL;
  if (!in || !out || !axes || axes->kind != VT_RAW_ARRAY || (raw->result_count && !back))
    return refuse_form(lo, raw);
  VT_TRY(vt_lower_shardings(lo, raw, in, &m->in));
  VT_TRY(vt_lower_shardings(lo, raw, out, &m->out));
  vt_string *names = VT_NEW_ARRAY(&lo->module->arena, vt_string, axes->count);
  for (uint32_t i = 0; i < axes->count; i++) {
    if (axes->items[i]->kind != VT_RAW_STRING) return refuse_form(lo, raw);
    names[i] = axes->items[i]->string;
    names[i].data = vt_arena_copy(&lo->module->arena, names[i].data, names[i].size);
  }
  m->axes.strings = names;
  m->axes.count = axes->count;
  for (uint32_t i = 0; back && i < back->result_count; i++)
    VT_TRY(vt_lower_types(lo, back, back->results[i].type, &m->results));
  return VT_OK;
}

// The region of the computation: a call of the body.
static vt_status build_body(vt_lower *lo, const vt_raw_op *raw, vt_func *callee,
                            vt_func **out_region) {
  vt_func *region = *out_region = vt_func_create(lo->module, "");
  vt_type_list types = {0};
  vt_value_list returns = {0};
  for (uint32_t i = 0; i < callee->param_count; i++)
    (void)vt_func_add_param(region, callee->params[i]->type);
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(vt_lower_types(lo, raw, raw->results[i].type, &types));
  vt_op *call = vt_op_create(region, VT_OP_CALL, vt_lower_loc(lo, raw->loc), region->param_count,
                             region->params, (uint32_t)types.size, types.data, 0);
  vt_func **list = VT_NEW(&lo->module->arena, vt_func *);
  *list = callee;
  vt_op_set_attr(call, (vt_attr){.key = VT_ATTR_CALLEE, .count = 1, .funcs = list});
  vt_op_append(region, call);
  for (uint32_t i = 0; i < call->result_count; i++) {
    vt_value *result = &call->results[i];
    vt_array_push_in(lo->arena, &returns, result);
  }
  vt_func_set_returns(region, call->result_count, returns.data);
  return VT_OK;
}

static vt_status build_manual(vt_lower *lo, vt_raw_op *raw, const manual *m) {
  const vt_raw_attr *name = vt_raw_find(raw, "callee");
  vt_func *callee = name && name->kind == VT_RAW_STRING
                        ? vt_map_find(&lo->funcs, name->string.data, name->string.size)
                        : NULL;
  vt_value_list operands = {0};
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  if (!callee || m->results.size != raw->result_count || operands.size != callee->param_count ||
      operands.size != raw->operand_count)
    return refuse_form(lo, raw);
  vt_op *op = vt_op_create(lo->func, VT_OP_MANUAL_COMPUTATION, vt_lower_loc(lo, raw->loc),
                           (uint32_t)operands.size, operands.data, (uint32_t)m->results.size,
                           m->results.data, 1);
  VT_TRY(build_body(lo, raw, callee, &op->regions[0]));
  vt_op_set_attr(op, m->in);
  vt_op_set_attr(op, m->out);
  vt_op_set_attr(op, m->axes);
  vt_op_append(lo->func, op);
  for (uint32_t i = 0; i < raw->result_count; i++) {
    vt_value *result = &op->results[i];
    vt_lower_set_values(lo, &raw->results[i], 1, &result);
  }
  return VT_OK;
}

static vt_status lower_call(vt_lower *lo, vt_raw_op *raw, bool *out_done) {
  manual m = {.in = {.key = VT_ATTR_IN_SHARDINGS},
              .out = {.key = VT_ATTR_OUT_SHARDINGS},
              .axes = {.key = VT_ATTR_MANUAL_AXES}};
  if (!vt_raw_dict_find(vt_raw_find(raw, "mhlo.frontend_attributes"), "xla.sdy.manual_axes"))
    return VT_OK;
  *out_done = true;
  VT_TRY(describe_text(lo, raw, &m));
  return build_manual(lo, raw, &m);
}

// Conversions to local shape: only for the operands of a call.
static vt_status lower_to_local(vt_lower *lo, vt_raw_op *raw) {
  for (const vt_raw_op *op = raw->next; op && --lo->budget > 0; op = op->next) {
    bool uses = false;
    for (uint32_t i = 0; i < op->operand_count; i++) uses = uses || op->operands[i]->op == raw;
    if (uses && op->row->code != VT_OP_CALL) return refuse_form(lo, raw);
  }
  return alias_all(lo, raw);
}

// A call that stands for an op of ours becomes that op; the entries of its dictionary are the op's
// attributes.
static void become_op(vt_lower *lo, vt_raw_op *raw, const vt_vhlo_row *row) {
  static const char *const dictionaries[] = {"backend_config", "mhlo.backend_config",
                                             "mhlo.attributes"};
  const vt_raw_attr *dict = NULL;
  for (size_t i = 0; i < sizeof dictionaries / sizeof *dictionaries && !dict; i++) {
    const vt_raw_attr *found = vt_raw_find(raw, dictionaries[i]);
    if (found && found->kind == VT_RAW_DICT) dict = found;
  }
  uint32_t more = dict ? dict->count : 0;
  vt_raw_named *attrs = VT_NEW_ARRAY(lo->arena, vt_raw_named, raw->attr_count + more);
  for (uint32_t i = 0; i < more; i++) attrs[i] = (vt_raw_named){dict->names[i], dict->items[i]};
  if (raw->attr_count) memcpy(attrs + more, raw->attrs, raw->attr_count * sizeof *attrs);
  raw->attrs = attrs;
  raw->attr_count += more;
  raw->row = row;
}

// The op that a call of this name stands for; NULL when none.
static const vt_vhlo_row *op_of_call(const vt_raw_op *raw) {
  const vt_raw_attr *target = vt_raw_find(raw, "call_target_name");
  char name[64];
  if (raw->row->code != VT_OP_CUSTOM_CALL || !target || target->kind != VT_RAW_STRING) return NULL;
  vt_string s = target->string;
  if (vt_string_is(s, "ragged_all_to_all")) return vt_vhlo_find("vtpu.ragged_all_to_all", 22);
  if (vt_string_is(s, "mhlo.topk")) return vt_vhlo_find("chlo.top_k", 10);
  if (s.size < 6 || s.size >= sizeof name || memcmp(s.data, "mhlo.", 5)) return NULL;
  memcpy(name, s.data, s.size);
  memcpy(name, "chlo", 4);
  return vt_vhlo_find(name, s.size);
}

vt_status vt_lower_custom(vt_lower *lo, vt_raw_op *raw, bool *out_done) {
  *out_done = false;
  const vt_vhlo_row *op = op_of_call(raw);
  if (op) {
    become_op(lo, raw, op);
    return VT_OK;
  }
  if (raw->row->code == VT_OP_CALL) return lower_call(lo, raw, out_done);
  if (is_call_of(raw, "Sharding")) return lower_constraint(lo, raw, out_done);
  *out_done = true;
  bool to_local = is_call_of(raw, "SPMDFullToShardShape");
  if (to_local || is_call_of(raw, "SPMDShardToFullShape"))
    return vt_lower_crossing(lo, raw, to_local);
  if (is_call_of(raw, "ResizeNearest") || is_call_of(raw, "ResizeNearestGrad") ||
      is_call_of(raw, "ResizeBilinear") || is_call_of(raw, "ResizeBilinearGrad"))
    return vt_lower_resize(lo, raw);
  if (is_call_of(raw, "xla.sdy.GlobalToLocalShape")) return lower_to_local(lo, raw);
  if (is_call_of(raw, "xla.sdy.LocalToGlobalShape") ||
      is_call_of(raw, "xla.sdy.FuncResultSharding"))
    return alias_all(lo, raw);
  *out_done = false;
  return VT_OK;
}
