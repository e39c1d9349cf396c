// SPDX-License-Identifier: Apache-2.0
// mosaic_print.c - a kernel as text: MLIR's generic form, values numbered in the order of their
// definition.
#include <inttypes.h>

#include "ir/number.h"
#include "mosaic/mosaic_ir.h"

enum { MAX_SHOWN = 16 };

static void print_types(vt_text *text, uint32_t count, const vt_mvalue *values) {
  for (uint32_t i = 0; i < count; i++) {
    if (i) vt_text_put(text, ", ");
    vt_mtype_print(text, values[i].type);
  }
}

static void print_literal(vt_text *text, const vt_literal *value) {
  int64_t n = value->splat ? 1 : vt_type_elements(value->type);
  bool dense = value->type.rank > 0;
  if (dense) vt_text_put(text, "dense<");
  if (dense && !value->splat) vt_text_put(text, "[");
  for (int64_t i = 0; i < n && i < MAX_SHOWN; i++) {
    if (i) vt_text_put(text, ", ");
    if (vt_dtype_is_float(value->type.dtype))
      vt_text_printf(text, "%.9g", vt_number_load(value->type.dtype, value->data, i));
    else
      vt_text_printf(text, "%" PRId64, vt_int_load(value->type.dtype, value->data, i));
  }
  if (n > MAX_SHOWN) vt_text_put(text, ", ...");
  if (dense) vt_text_put(text, value->splat ? ">" : "]>");
}

static void print_attr(vt_text *text, const vt_mattr *attr) {
  vt_text_printf(text, "%s = ", vt_mattr_name(attr->key));
  switch (vt_mattr_kind_of(attr->key)) {
  case VT_MATTR_KIND_I64:
    vt_text_printf(text, "%" PRId64, attr->i64);
    break;
  case VT_MATTR_KIND_INTS:
  case VT_MATTR_KIND_LISTS:
    vt_text_put(text, "[");
    for (uint32_t i = 0; i < attr->count; i++)
      vt_text_printf(text, i ? ", %" PRId64 : "%" PRId64, attr->ints[i]);
    vt_text_put(text, "]");
    break;
  case VT_MATTR_KIND_STRING:
    vt_text_put(text, "\"");
    for (size_t i = 0; i < attr->string.size; i++) {
      char c = attr->string.data[i];
      vt_text_printf(text, c < ' ' || c == '"' || c == '\\' ? "\\%02X" : "%c", (unsigned char)c);
    }
    vt_text_put(text, "\"");
    break;
  case VT_MATTR_KIND_WORD:
    vt_text_put(text, vt_mword_text((vt_mword)attr->i64));
    break;
  case VT_MATTR_KIND_TYPE:
    vt_text_put(text, vt_dtype_get((vt_dtype)attr->i64)->text);
    break;
  case VT_MATTR_KIND_VALUE:
    print_literal(text, attr->literal);
    break;
  case VT_MATTR_KIND_SKIP:
    break;
  }
}

static void indent(vt_text *text, int depth) {
  for (int i = 0; i < depth; i++) vt_text_put(text, "  ");
}

static void print_block(vt_text *text, const vt_mblock *block, int depth);

static void print_op(vt_text *text, const vt_mop *op, int depth) {
  indent(text, depth);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_text_printf(text, "%s%%%d", i ? ", " : "", op->results[i].slot);
  vt_text_printf(text, "%s%s(", op->result_count ? " = " : "", vt_mop_info_get(op->code)->text);
  for (uint32_t i = 0; i < op->operand_count; i++)
    vt_text_printf(text, "%s%%%d", i ? ", " : "", op->operands[i]->slot);
  vt_text_put(text, ")");
  for (uint32_t i = 0; i < op->attr_count; i++) {
    vt_text_put(text, i ? ", " : " {");
    print_attr(text, &op->attrs[i]);
  }
  if (op->attr_count) vt_text_put(text, "}");
  if (op->result_count) vt_text_put(text, " : ");
  print_types(text, op->result_count, op->results);
  for (uint32_t b = 0; b < op->block_count; b++) {
    vt_text_put(text, b ? ", {" : " ({");
    print_block(text, op->blocks[b], depth + 1);
    indent(text, depth);
    vt_text_put(text, "}");
  }
  vt_text_put(text, op->block_count ? ")\n" : "\n");
}

static void print_args(vt_text *text, const vt_mblock *block) {
  for (uint32_t i = 0; i < block->arg_count; i++) {
    vt_text_printf(text, "%s%%%d: ", i ? ", " : "", block->args[i].slot);
    vt_mtype_print(text, block->args[i].type);
  }
}

static void print_block(vt_text *text, const vt_mblock *block, int depth) {
  if (block->owner && block->arg_count) {
    vt_text_put(text, " (");
    print_args(text, block);
    vt_text_put(text, ")");
  }
  vt_text_put(text, "\n");
  for (const vt_mop *op = block->first; op; op = op->next) print_op(text, op, depth);
}

static void print_window(vt_text *text, const vt_mwindow *window) {
  if (window->whole) {
    vt_text_put(text, " whole");
    return;
  }
  vt_text_put(text, window->element ? " element" : " block");
  vt_text_printf(text, "(@%.*s)", (int)window->transform->name.size, window->transform->name.data);
  if (window->synchronous) vt_text_put(text, " synchronous");
  if (window->revisits) vt_text_put(text, " revisits");
}

void vt_mosaic_print(const vt_mosaic *kernel, vt_text *out_text) {
  vt_text_printf(out_text, "kernel @%s version %" PRId64 " grid [", kernel->name, kernel->version);
  for (uint32_t i = 0; i < kernel->grid_rank; i++) {
    if (kernel->grid[i] == INT64_MIN)
      vt_text_put(out_text, i ? ", ?" : "?");
    else
      vt_text_printf(out_text, i ? ", %" PRId64 : "%" PRId64, kernel->grid[i]);
  }
  vt_text_printf(out_text, "] prefetch %" PRIu32 " scratch %" PRIu32 " windows [",
                 kernel->prefetch_count, kernel->scratch_count);
  for (uint32_t i = 0; i < kernel->window_count; i++) {
    if (i) vt_text_put(out_text, ",");
    print_window(out_text, &kernel->windows[i]);
  }
  vt_text_put(out_text, "]\n");
  for (uint32_t i = 0; i < kernel->func_count; i++) {
    const vt_mfunc *func = &kernel->funcs[i];
    vt_text_printf(out_text, "func @%.*s(", (int)func->name.size, func->name.data);
    print_args(out_text, func->block);
    vt_text_put(out_text, ") {");
    print_block(out_text, func->block, 1);
    vt_text_put(out_text, "}\n");
  }
}
