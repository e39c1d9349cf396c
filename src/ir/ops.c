// SPDX-License-Identifier: Apache-2.0
// ops.c - the tables of ops.def and attrs.def as data.
#include "ir/ops.h"

#include <string.h>

// The short names that the columns of ops.def use.
enum {
  ELTWISE = VT_OPF_ELTWISE,
  COMM = VT_OPF_COMM,
  ASSOC = VT_OPF_ASSOC,
  REDUCES = VT_OPF_REDUCES,
  CONTROL = VT_OPF_CONTROL,
  COLLECTIVE = VT_OPF_COLLECTIVE,
  EFFECT = VT_OPF_EFFECT,
  PER_DEVICE = VT_OPF_PER_DEVICE,
  DYNAMIC = VT_OPF_DYNAMIC,
  SHARDY = VT_OPF_SHARDY,
};
enum {
  NONE = 0,
#define ATTR(name, text, kind) name = VT_ATTR_##name,
#include "ir/attrs.def"
#undef ATTR
};

static const vt_op_info op_infos[VT_OP_COUNT] = {
    [VT_OP_INVALID] = {.text = "?"},
#define OP(name, text, operands, results, regions, flags, cost, ...)                               \
  [VT_OP_##name] = {text, operands, results, regions, VT_COST_##cost, flags, {__VA_ARGS__}},
#include "ir/ops.def"
#undef OP
};

static const struct {
  const char *text;
  vt_attr_kind kind;
} attr_infos[VT_ATTR_COUNT] = {
    [VT_ATTR_NONE] = {"?", VT_ATTR_KIND_NONE},
#define ATTR(name, text, kind) [VT_ATTR_##name] = {text, VT_ATTR_KIND_##kind},
#include "ir/attrs.def"
#undef ATTR
};

const vt_op_info *vt_op_info_get(vt_opcode code) {
  return &op_infos[(unsigned)code < VT_OP_COUNT ? code : VT_OP_INVALID];
}

const char *vt_op_short_name(vt_opcode code) {
  const char *text = vt_op_info_get(code)->text;
  const char *dot = strchr(text, '.');
  return dot ? dot + 1 : text;
}

vt_opcode vt_opcode_from_text(const char *text, size_t size) {
  for (int code = 1; code < VT_OP_COUNT; code++)
    if (strlen(op_infos[code].text) == size && !memcmp(op_infos[code].text, text, size))
      return (vt_opcode)code;
  return VT_OP_INVALID;
}

const char *vt_attr_text(vt_attr_key key) {
  return attr_infos[(unsigned)key < VT_ATTR_COUNT ? key : VT_ATTR_NONE].text;
}

vt_attr_kind vt_attr_kind_of(vt_attr_key key) {
  return attr_infos[(unsigned)key < VT_ATTR_COUNT ? key : VT_ATTR_NONE].kind;
}

vt_attr_key vt_attr_key_from_text(const char *text, size_t size) {
  for (int key = 1; key < VT_ATTR_COUNT; key++)
    if (strlen(attr_infos[key].text) == size && !memcmp(attr_infos[key].text, text, size))
      return (vt_attr_key)key;
  return VT_ATTR_NONE;
}
