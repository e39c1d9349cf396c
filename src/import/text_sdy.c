// SPDX-License-Identifier: Apache-2.0
// text_sdy.c - meshes and what refers to them in text: Shardy's attributes, and StableHLO's.
#include "import/text_parser.h"

const vt_raw_attr *vt_parse_sdy_names(vt_parser *p) {
  vt_attr_items items = {0};
  vt_parse_expect(p, "{");
  if (!vt_parse_take(p, "}")) {
    do {
      const vt_raw_attr *name = vt_parse_string_attr(p, vt_parse_quoted(p));
      vt_array_push_in(p->arena, &items, name);
    } while (vt_parse_ok(p) && vt_parse_take(p, ","));
    vt_parse_expect(p, "}");
  }
  return vt_parse_array_attr(p, items);
}

const vt_raw_attr *vt_parse_sdy_mesh(vt_parser *p) {
  vt_attr_items axes = {0};
  vt_int_list ids = {0};
  vt_parse_expect(p, "<");
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    vt_raw_attr *axis = vt_parse_new_attr(p, VT_RAW_AXIS);
    axis->string = vt_parse_quoted(p);
    vt_parse_expect(p, "=");
    axis->i64 = vt_parse_int(p);
    vt_array_push_in(p->arena, &axes, (const vt_raw_attr *)axis);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  if (vt_parse_take(p, ",")) {
    vt_parse_expect(p, "device_ids");
    vt_parse_expect(p, "=");
    vt_parse_ints(p, "[", "]", &ids);
  }
  vt_parse_expect(p, ">");
  vt_raw_attr *mesh = vt_parse_array_attr(p, axes);
  mesh->kind = VT_RAW_MESH;
  mesh->ints = ids.data;
  mesh->i64 = (int64_t)ids.size;
  return mesh;
}

// (1)2
static void parse_sub_axis(vt_parser *p, vt_raw_attr *axis) {
  int64_t *ints = VT_NEW_ARRAY(p->arena, int64_t, 2);
  vt_parse_expect(p, "(");
  ints[0] = vt_parse_int(p);
  vt_parse_expect(p, ")");
  ints[1] = vt_parse_int(p);
  axis->ints = ints;
  axis->count = 2;
}

// "a" or "a":(1)2
static const vt_raw_attr *parse_axis(vt_parser *p) {
  vt_raw_attr *axis = vt_parse_new_attr(p, VT_RAW_AXIS_REF);
  axis->string = vt_parse_quoted(p);
  if (vt_parse_take(p, ":")) parse_sub_axis(p, axis);
  return axis;
}

// {"a", "b":(1)2, ?}p1 ; `closed` gets whether there was no question mark
static vt_raw_attr *parse_axes(vt_parser *p, int64_t *out_closed) {
  vt_attr_items items = {0};
  *out_closed = 1;
  vt_parse_expect(p, "{");
  while (vt_parse_ok(p) && !vt_parse_take(p, "}")) {
    if (vt_parse_take(p, "?")) {
      *out_closed = 0;
    } else {
      const vt_raw_attr *axis = parse_axis(p);
      vt_array_push_in(p->arena, &items, axis);
    }
    if (!vt_parse_peek(p, "}")) vt_parse_expect(p, ",");
  }
  return vt_parse_array_attr(p, items);
}

static const vt_raw_attr *parse_dim(vt_parser *p) {
  int64_t *ints = VT_NEW_ARRAY(p->arena, int64_t, 2);
  vt_raw_attr *dim = parse_axes(p, &ints[0]);
  ints[1] = -1;
  if (p->at < p->end && *p->at == 'p') {
    p->at++;
    ints[1] = vt_parse_int(p);
    if (ints[1] < 0 || ints[1] > INT32_MAX) vt_parse_fail(p, VT_INVALID_ARGUMENT, "priority");
  }
  dim->kind = VT_RAW_DIM_SHARDING;
  dim->ints = ints;
  return dim;
}

static int64_t parse_reduction(vt_parser *p) {
  if (!vt_parse_take(p, ":")) return 0;
  if (vt_parse_take(p, "sum")) return 0;
  if (vt_parse_take(p, "max")) return 1;
  vt_parse_expect(p, "min");
  return 2;
}

const vt_raw_attr *vt_parse_sdy_sharding(vt_parser *p) {
  const vt_raw_attr *mesh;
  vt_attr_items dims = {0}, fields = {0}, none = {0};
  const vt_raw_attr *replicated = vt_parse_array_attr(p, none), *unreduced = replicated;
  int64_t ignored, reduction = 0;
  vt_parse_expect(p, "<");
  if (vt_parse_take(p, "mesh"))
    mesh = vt_parse_sdy_mesh(p);
  else
    mesh = vt_parse_string_attr(p, vt_parse_symbol(p));
  vt_parse_expect(p, ",");
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    const vt_raw_attr *dim = parse_dim(p);
    vt_array_push_in(p->arena, &dims, dim);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  while (vt_parse_ok(p) && vt_parse_take(p, ",")) {
    bool is_replicated = vt_parse_take(p, "replicated");
    if (!is_replicated) vt_parse_expect(p, "unreduced");
    vt_parse_expect(p, "=");
    const vt_raw_attr *axes = parse_axes(p, &ignored);
    if (is_replicated)
      replicated = axes;
    else
      unreduced = axes;
    if (!is_replicated) reduction = parse_reduction(p);
  }
  vt_parse_expect(p, ">");
  vt_array_push_in(p->arena, &fields, mesh);
  const vt_raw_attr *dim_list = vt_parse_array_attr(p, dims);
  vt_array_push_in(p->arena, &fields, dim_list);
  vt_array_push_in(p->arena, &fields, replicated);
  vt_array_push_in(p->arena, &fields, unreduced);
  vt_raw_attr *sharding = vt_parse_array_attr(p, fields);
  sharding->kind = VT_RAW_SHARDING;
  sharding->i64 = reduction;
  return sharding;
}

const vt_raw_attr *vt_parse_sdy_shardings(vt_parser *p) {
  vt_attr_items items = {0};
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    const vt_raw_attr *item = vt_parse_sdy_sharding(p);
    vt_array_push_in(p->arena, &items, item);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  return vt_parse_array_attr(p, items);
}

// ---- StableHLO's --------------------------------------------------------------------------------

static void parse_key(vt_parser *p, const char *key) {
  vt_parse_expect(p, key);
  vt_parse_expect(p, "=");
}

// [#KIND<name = "a", ...>, ...], of which the kind may be left out
static vt_raw_attr *parse_named_axes(vt_parser *p, const char *kind, bool refers) {
  vt_attr_items items = {0};
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    vt_raw_attr *axis = vt_parse_new_attr(p, refers ? VT_RAW_AXIS_REF : VT_RAW_AXIS);
    if (vt_parse_take(p, "#")) vt_parse_expect(p, kind);
    vt_parse_expect(p, "<");
    parse_key(p, "name");
    axis->string = vt_parse_quoted(p);
    if (!refers) {
      vt_parse_expect(p, ",");
      parse_key(p, "size");
      axis->i64 = vt_parse_int(p);
    } else if (vt_parse_take(p, ",")) {
      parse_key(p, "sub_axis_info");
      parse_sub_axis(p, axis);
    }
    vt_parse_expect(p, ">");
    vt_array_push_in(p->arena, &items, (const vt_raw_attr *)axis);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  return vt_parse_array_attr(p, items);
}

// <axes = [...], device_ids = dense<...> : tensor<8xi64>>
static const vt_raw_attr *parse_stablehlo_mesh(vt_parser *p) {
  uint32_t count = 0;
  vt_parse_expect(p, "<");
  parse_key(p, "axes");
  vt_raw_attr *mesh = parse_named_axes(p, "stablehlo.mesh_axis", false);
  mesh->kind = VT_RAW_MESH;
  if (vt_parse_take(p, ",")) {
    parse_key(p, "device_ids");
    const vt_raw_attr *ids = vt_parse_attr(p);
    if (!vt_raw_ints(p->arena, ids, &count, &mesh->ints))
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "device ids were expected");
    mesh->i64 = count;
  }
  vt_parse_expect(p, ">");
  return mesh;
}

const vt_raw_attr *vt_parse_group_axes(vt_parser *p) {
  vt_attr_items both = {0};
  vt_parse_expect(p, "<");
  parse_key(p, "mesh");
  const vt_raw_attr *mesh = vt_parse_take(p, "#stablehlo.mesh")
                                ? parse_stablehlo_mesh(p)
                                : vt_parse_string_attr(p, vt_parse_symbol(p));
  vt_parse_expect(p, ",");
  parse_key(p, "axes");
  const vt_raw_attr *axes = parse_named_axes(p, "stablehlo.axis_ref", true);
  vt_parse_expect(p, ">");
  vt_array_push_in(p->arena, &both, mesh);
  vt_array_push_in(p->arena, &both, axes);
  vt_raw_attr *attr = vt_parse_array_attr(p, both);
  attr->kind = VT_RAW_MESH_AXES;
  return attr;
}
