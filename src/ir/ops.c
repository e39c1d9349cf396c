// SPDX-License-Identifier: Apache-2.0
// ops.c - the tables of ops.def and attrs.def as data.
#include "ir/ops.h"

#include <string.h>

#include "ir/type.h"

// Short names for the columns of ops.def.
enum {
  COMM = VT_OPF_COMM,
  ASSOC = VT_OPF_ASSOC,
  REDUCES = VT_OPF_REDUCES,
  EFFECT = VT_OPF_EFFECT,
  PER_DEVICE = VT_OPF_PER_DEVICE,
  SHARDY = VT_OPF_SHARDY,
  EXACT = VT_OPF_EXACT,
};
enum {
  B = 1 << VT_KIND_BOOL,
  S = 1 << VT_KIND_SIGNED,
  U = 1 << VT_KIND_UNSIGNED,
  F = 1 << VT_KIND_FLOAT,
  C = 1 << VT_KIND_COMPLEX,
  I = S | U,
  N = I | F | C,
  ANY = 0xff,
};
enum {
  NONE = 0,
#define ATTR(name, text, kind) name = VT_ATTR_##name,
#include "ir/attrs.def"
#undef ATTR
};

// The flag that mirrors the class, for the classes that much code tests.
#define FLAG_OF(class)                                                                             \
  ((class) == VT_CLASS_ELTWISE      ? VT_OPF_ELTWISE                                               \
   : (class) == VT_CLASS_CONTROL    ? VT_OPF_CONTROL                                               \
   : (class) == VT_CLASS_COLLECTIVE ? VT_OPF_COLLECTIVE                                            \
   : (class) == VT_CLASS_DYNAMIC    ? VT_OPF_DYNAMIC                                               \
                                    : 0)

const vt_op_info vt_op_infos[VT_OP_COUNT] = {
    [VT_OP_INVALID] = {.text = "?"},
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, emitter,   \
           linear, sharding, partition, cost, flags, ...)                                          \
  [VT_OP_##name] = {text,                                                                          \
                    operands,                                                                      \
                    results,                                                                       \
                    regions,                                                                       \
                    kinds,                                                                         \
                    VT_ELEMENT_##element,                                                          \
                    VT_CLASS_##class,                                                              \
                    VT_LINEAR_##linear,                                                            \
                    VT_COST_##cost,                                                                \
                    flags | FLAG_OF(VT_CLASS_##class),                                             \
                    {__VA_ARGS__}},
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

const char *vt_op_short_name(vt_opcode code) {
  const char *text = vt_op_info_get(code)->text;
  const char *dot = strchr(text, '.');
  return dot ? dot + 1 : text;
}

vt_opcode vt_opcode_from_text(const char *text, size_t size) {
  for (int code = 1; code < VT_OP_COUNT; code++)
    if (strlen(vt_op_infos[code].text) == size && !memcmp(vt_op_infos[code].text, text, size))
      return (vt_opcode)code;
  return VT_OP_INVALID;
}

const char *vt_attr_text(vt_attr_key key) {
  return attr_infos[(unsigned)key < VT_ATTR_COUNT ? key : VT_ATTR_NONE].text;
}

vt_attr_kind vt_attr_kind_of(vt_attr_key key) {
  return attr_infos[(unsigned)key < VT_ATTR_COUNT ? key : VT_ATTR_NONE].kind;
}

const vt_attr_key vt_conv_dim_keys[3][3] = {
    {VT_ATTR_INPUT_BATCH_DIMENSION, VT_ATTR_INPUT_FEATURE_DIMENSION,
     VT_ATTR_INPUT_SPATIAL_DIMENSIONS},
    {VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION,
     VT_ATTR_KERNEL_SPATIAL_DIMENSIONS},
    {VT_ATTR_OUTPUT_BATCH_DIMENSION, VT_ATTR_OUTPUT_FEATURE_DIMENSION,
     VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS}};
