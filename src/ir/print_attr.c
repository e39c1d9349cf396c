// SPDX-License-Identifier: Apache-2.0
// print_attr.c - literals, shardings and dimension numbers in MLIR's syntax.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/print.h"

enum { MAX_LISTED = 16 }; // longer literals are printed as hex bytes

static void put_float(vt_text *out, double value, uint64_t bits, int digits) {
  if (isfinite(value))
    vt_text_printf(out, "%.*e", digits, value);
  else
    vt_text_printf(out, "0x%0*" PRIX64, digits == 8 ? 8 : 16, bits);
}

static void put_element(vt_text *out, vt_dtype dtype, const uint8_t *data) {
  uint64_t bits = 0;
  size_t bytes = vt_dtype_bytes(dtype);
  memcpy(&bits, data, bytes > 8 ? 8 : bytes);
  float f32;
  double f64;
  switch (dtype) {
  case VT_PRED:
    vt_text_put(out, bits ? "true" : "false");
    return;
  case VT_F32:
    memcpy(&f32, data, 4);
    put_float(out, (double)f32, bits, 8);
    return;
  case VT_F64:
    memcpy(&f64, data, 8);
    put_float(out, f64, bits, 16);
    return;
  case VT_C64:
  case VT_C128:
    vt_text_put(out, "(");
    put_element(out, dtype == VT_C64 ? VT_F32 : VT_F64, data);
    vt_text_put(out, ", ");
    put_element(out, dtype == VT_C64 ? VT_F32 : VT_F64, data + bytes / 2);
    vt_text_put(out, ")");
    return;
  default:
    break;
  }
  if (vt_dtype_is_float(dtype)) {
    vt_text_printf(out, "0x%0*" PRIX64, (int)bytes * 2, bits);
  } else if (vt_dtype_kind_of(dtype) == VT_KIND_SIGNED) {
    int64_t value = bytes == 1   ? (int8_t)bits
                    : bytes == 2 ? (int16_t)bits
                    : bytes == 4 ? (int32_t)bits
                                 : (int64_t)bits;
    vt_text_printf(out, "%" PRId64, value);
  } else {
    vt_text_printf(out, "%" PRIu64, bits);
  }
}

static const uint8_t *put_nested(vt_text *out, vt_type type, int32_t d, const uint8_t *data) {
  if (d == type.rank) {
    put_element(out, type.dtype, data);
    return data + vt_dtype_bytes(type.dtype);
  }
  vt_text_put(out, "[");
  for (int64_t i = 0; i < type.dims[d]; i++) {
    if (i) vt_text_put(out, ", ");
    data = put_nested(out, type, d + 1, data);
  }
  vt_text_put(out, "]");
  return data;
}

void vt_print_literal(vt_text *out, const vt_literal *literal, int64_t max_elements) {
  vt_type type = literal->type;
  int64_t n = vt_type_elements(type);
  if (!literal->splat && max_elements >= 0 && n > max_elements) {
    vt_text_put(out, "dense_resource<__elided__> : ");
  } else {
    vt_text_put(out, "dense<");
    int bits = vt_dtype_get(type.dtype)->bits;
    if (n && literal->splat) {
      put_element(out, type.dtype, literal->data);
    } else if (n > MAX_LISTED && bits >= 8) {
      const uint8_t *data = literal->data;
      vt_text_put(out, "\"0x");
      for (int64_t i = 0; i < vt_type_bytes(type); i++) vt_text_printf(out, "%02X", data[i]);
      vt_text_put(out, "\"");
    } else if (n) {
      put_nested(out, type, 0, literal->data);
    }
    vt_text_put(out, "> : ");
  }
  vt_type_print(out, type);
}

void vt_print_mesh(vt_text *out, const vt_mesh *mesh) {
  vt_text_put(out, "#sdy.mesh<[");
  for (uint32_t i = 0; i < mesh->axis_count; i++)
    vt_text_printf(out, "%s\"%s\"=%" PRId64, i ? ", " : "", mesh->axes[i].name, mesh->axes[i].size);
  vt_text_put(out, "]");
  for (uint32_t i = 0; i < mesh->device_count; i++)
    vt_text_printf(out, "%s%" PRId64, i ? ", " : ", device_ids=[", mesh->device_ids[i]);
  if (mesh->device_count) vt_text_put(out, "]");
  vt_text_put(out, ">");
}

static void put_axes(vt_text *out, const vt_mesh *mesh, uint32_t count, const vt_axis_ref *axes) {
  for (uint32_t i = 0; i < count; i++) {
    const vt_mesh_axis *axis = &mesh->axes[axes[i].axis];
    vt_text_printf(out, "%s\"%s\"", i ? ", " : "", axis->name);
    if (axes[i].size != axis->size)
      vt_text_printf(out, ":(%" PRId64 ")%" PRId64, axes[i].pre_size, axes[i].size);
  }
}

void vt_print_sharding(vt_text *out, const vt_sharding *sharding, bool prefix) {
  if (!sharding || sharding->kind != VT_SHARDING_MESH) return;
  vt_text_put(out, prefix ? "#sdy.sharding<" : "<");
  if (sharding->mesh->name[0])
    vt_text_printf(out, "@%s, [", sharding->mesh->name);
  else
    vt_text_put(out, "mesh"), vt_print_mesh(out, sharding->mesh), vt_text_put(out, ", [");
  for (int32_t d = 0; d < sharding->rank; d++) {
    const vt_dim_sharding *dim = &sharding->dims[d];
    vt_text_put(out, d ? ", {" : "{");
    put_axes(out, sharding->mesh, dim->axis_count, dim->axes);
    if (!dim->closed) vt_text_put(out, dim->axis_count ? ", ?" : "?");
    vt_text_put(out, "}");
    if (dim->priority >= 0) vt_text_printf(out, "p%" PRId64, dim->priority);
  }
  vt_text_put(out, "]");
  if (sharding->replicated_count) {
    vt_text_put(out, ", replicated={");
    put_axes(out, sharding->mesh, sharding->replicated_count, sharding->replicated);
    vt_text_put(out, "}");
  }
  if (sharding->unreduced_count) {
    vt_text_put(out, ", unreduced={");
    static const char *const reductions[] = {"}", "}:max", "}:min"};
    put_axes(out, sharding->mesh, sharding->unreduced_count, sharding->unreduced);
    vt_text_put(out, reductions[sharding->reduction]);
  }
  vt_text_put(out, ">");
}

static void put_field(vt_text *out, const vt_op *op, vt_attr_key key, const char *name,
                      bool *first) {
  uint32_t count;
  const int64_t *ints = vt_attr_ints(op, key, &count);
  if (!count) return;
  vt_text_printf(out, "%s%s = [", *first ? "" : ", ", name);
  for (uint32_t i = 0; i < count; i++) vt_text_printf(out, "%s%" PRId64, i ? ", " : "", ints[i]);
  vt_text_put(out, "]");
  *first = false;
}

// One side of a convolution's dimension numbers: letters for batch and feature, numbers for the
// spatial dimensions.
static void put_conv_side(vt_text *out, const vt_op *op, const char *letters,
                          const vt_attr_key keys[3]) {
  uint32_t spatial_count;
  const int64_t *spatial = vt_attr_ints(op, keys[2], &spatial_count);
  vt_text_put(out, "[");
  for (int64_t d = 0; d < (int64_t)spatial_count + 2; d++) {
    if (d) vt_text_put(out, ", ");
    if (d == vt_attr_i64(op, keys[0])) vt_text_printf(out, "%c", letters[0]);
    if (d == vt_attr_i64(op, keys[1])) vt_text_printf(out, "%c", letters[1]);
    for (uint32_t i = 0; i < spatial_count; i++)
      if (spatial[i] == d) vt_text_printf(out, "%u", i);
  }
  vt_text_put(out, "]");
}

static void put_algorithm(vt_text *out, const vt_op *op) {
  if (!vt_op_attr(op, VT_ATTR_LHS_PRECISION_TYPE)) return;
  static const vt_attr_key types[3] = {VT_ATTR_LHS_PRECISION_TYPE, VT_ATTR_RHS_PRECISION_TYPE,
                                       VT_ATTR_ACCUMULATION_TYPE};
  static const char *const names[3] = {"lhs_precision_type", "rhs_precision_type",
                                       "accumulation_type"};
  vt_text_put(out, ", algorithm = #stablehlo.dot_algorithm<");
  for (int i = 0; i < 3; i++) {
    vt_dtype dtype = (vt_dtype)vt_attr_i64(op, types[i]);
    vt_text_printf(out, "%s%s = %s", i ? ", " : "", names[i],
                   dtype ? vt_dtype_get(dtype)->text : "tf32");
  }
  vt_text_printf(out,
                 ", lhs_component_count = %" PRId64 ", rhs_component_count = %" PRId64
                 ", num_primitive_operations = %" PRId64 ", allow_imprecise_accumulation = %s>",
                 vt_attr_i64(op, VT_ATTR_LHS_COMPONENT_COUNT),
                 vt_attr_i64(op, VT_ATTR_RHS_COMPONENT_COUNT),
                 vt_attr_i64(op, VT_ATTR_NUM_PRIMITIVE_OPERATIONS),
                 vt_attr_i64(op, VT_ATTR_ALLOW_IMPRECISE) ? "true" : "false");
}

bool vt_print_numbers(vt_text *out, const vt_op *op) {
  bool first = true;
  switch (op->code) {
  case VT_OP_DOT_GENERAL:
    vt_text_put(out, "dot_dimension_numbers = #stablehlo.dot<");
    put_field(out, op, VT_ATTR_LHS_BATCHING_DIMENSIONS, "lhs_batching_dimensions", &first);
    put_field(out, op, VT_ATTR_RHS_BATCHING_DIMENSIONS, "rhs_batching_dimensions", &first);
    put_field(out, op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, "lhs_contracting_dimensions", &first);
    put_field(out, op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, "rhs_contracting_dimensions", &first);
    vt_text_put(out, ">");
    put_algorithm(out, op);
    return true;
  case VT_OP_GATHER:
    vt_text_put(out, "dimension_numbers = #stablehlo.gather<");
    put_field(out, op, VT_ATTR_OFFSET_DIMS, "offset_dims", &first);
    put_field(out, op, VT_ATTR_COLLAPSED_SLICE_DIMS, "collapsed_slice_dims", &first);
    put_field(out, op, VT_ATTR_OPERAND_BATCHING_DIMS, "operand_batching_dims", &first);
    put_field(out, op, VT_ATTR_START_INDICES_BATCHING_DIMS, "start_indices_batching_dims", &first);
    put_field(out, op, VT_ATTR_START_INDEX_MAP, "start_index_map", &first);
    vt_text_printf(out, "%sindex_vector_dim = %" PRId64 ">", first ? "" : ", ",
                   vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM));
    return true;
  case VT_OP_SCATTER:
    vt_text_put(out, "scatter_dimension_numbers = #stablehlo.scatter<");
    put_field(out, op, VT_ATTR_UPDATE_WINDOW_DIMS, "update_window_dims", &first);
    put_field(out, op, VT_ATTR_INSERTED_WINDOW_DIMS, "inserted_window_dims", &first);
    put_field(out, op, VT_ATTR_INPUT_BATCHING_DIMS, "input_batching_dims", &first);
    put_field(out, op, VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, "scatter_indices_batching_dims",
              &first);
    put_field(out, op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, "scatter_dims_to_operand_dims",
              &first);
    vt_text_printf(out, "%sindex_vector_dim = %" PRId64 ">", first ? "" : ", ",
                   vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM));
    return true;
  case VT_OP_CONVOLUTION:
    vt_text_put(out, "dimension_numbers = #stablehlo.conv<");
    put_conv_side(out, op, "bf",
                  (vt_attr_key[]){VT_ATTR_INPUT_BATCH_DIMENSION, VT_ATTR_INPUT_FEATURE_DIMENSION,
                                  VT_ATTR_INPUT_SPATIAL_DIMENSIONS});
    vt_text_put(out, "x");
    put_conv_side(out, op, "io",
                  (vt_attr_key[]){VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION,
                                  VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION,
                                  VT_ATTR_KERNEL_SPATIAL_DIMENSIONS});
    vt_text_put(out, "->");
    put_conv_side(out, op, "bf",
                  (vt_attr_key[]){VT_ATTR_OUTPUT_BATCH_DIMENSION, VT_ATTR_OUTPUT_FEATURE_DIMENSION,
                                  VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS});
    vt_text_put(out, ">");
    return true;
  default:
    return false;
  }
}
