// SPDX-License-Identifier: Apache-2.0
// mosaic_read.c - the bytecode of a kernel as its IR. Older versions of the dialect become the
// newest form here; what a kernel may not hold is refused by name.
//
// The tree comes from the reader of src/import; its form has been checked and its nesting is
// limited. What is kept is copied.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "import/bytecode.h"
#include "ir/number.h"
#include "mosaic/mosaic_ir.h"

enum { MAX_INTS = 64, MAX_OPS = 1 << 18, MAX_LOC_DEPTH = 24 };
static const int64_t max_bytes = (int64_t)1 << 30; // of one block

static const vt_vhlo_row rows[] = {
    {VT_HANDLE_MODULE, VT_OP_INVALID, "builtin.module", {NULL}},
#define MOP(code, text, ...) {VT_HANDLE_OP, VT_OP_INVALID, "stable_mosaic." text, {NULL}},
#define REFUSED(text, what)
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED
#define MOP(code, ...)
#define REFUSED(text, what) {VT_HANDLE_OP, VT_OP_INVALID, "stable_mosaic." text, {NULL}},
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED
};
static const char *const refusals[] = {
#define MOP(code, ...)
#define REFUSED(text, what) what,
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED
};

static const vt_vhlo_row *find_row(const char *name, size_t size) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strlen(rows[i].name) == size && !memcmp(rows[i].name, name, size)) return &rows[i];
  return NULL;
}

typedef struct reader {
  vt_arena *scratch, *arena;
  vt_mosaic *kernel;
  uint32_t op_count;
  bool names_cores;             // an op reaches another core
  VT_ARRAY(vt_mvalue *) places; // in scratch
} reader;

// ---- locations and errors -----------------------------------------------------------------------

static const char *keep(reader *r, vt_string s) {
  return vt_arena_copy(r->arena, s.data, s.size);
}

static void find_loc(reader *r, const vt_raw_attr *attr, int depth, vt_loc *loc) {
  if (!attr || depth > MAX_LOC_DEPTH) return;
  if (attr->kind == VT_RAW_LOC_NAME && !loc->name[0]) {
    size_t size = attr->string.size;
    if (size && attr->string.data[size - 1] == ':') size--;
    loc->name = keep(r, (vt_string){attr->string.data, size});
  }
  if (attr->kind == VT_RAW_LOC_FILE && !loc->file[0]) {
    loc->file = keep(r, attr->string);
    loc->line = (int32_t)attr->ints[0];
    loc->column = (int32_t)attr->ints[1];
  }
  bool list = attr->kind == VT_RAW_LOC_NAME || attr->kind == VT_RAW_LOC_CALL ||
              attr->kind == VT_RAW_LOC_FUSED;
  for (uint32_t i = 0; list && i < attr->count && i < 4 && !loc->file[0]; i++)
    find_loc(r, attr->items[i], depth + 1, loc);
}

static const vt_loc *loc_of(reader *r, vt_raw_attr *attr) {
  if (!attr) return &vt_loc_unknown;
  if (attr->loc) return attr->loc;
  vt_loc *loc = VT_NEW(r->arena, vt_loc);
  *loc = vt_loc_unknown;
  find_loc(r, attr, 0, loc);
  attr->loc = loc;
  return loc;
}

static vt_status raw_error(reader *r, const vt_raw_op *raw, vt_code code, const char *what) {
  const vt_loc *loc = loc_of(r, raw->loc);
  const char *name = raw->row->name;
  if (!strncmp(name, "stable_mosaic.", 14)) name += 14;
  return loc->file[0]
             ? vt_error(code, "%s at %s (%s:%d): %s", name, loc->name, loc->file, loc->line, what)
             : vt_error(code, "%s: %s", name, what);
}

static vt_status wrong(reader *r, const vt_raw_op *raw, const char *what) {
  return raw_error(r, raw, VT_INVALID_ARGUMENT, what);
}

// ---- texts --------------------------------------------------------------------------------------

// "#tpu.memory_space<vmem>" -> "vmem"; the text itself when it has no such form.
static vt_string inside(vt_string text) {
  const char *open = memchr(text.data, '<', text.size);
  if (!open || text.data[text.size - 1] != '>') return text;
  open++;
  return (vt_string){open, (size_t)(text.data + text.size - 1 - open)};
}

static bool holds(vt_string text, const char *part) {
  return memmem(text.data, text.size, part, strlen(part)) != NULL;
}

// Lists of numbers in brackets, "[1], [0, 0]", as ints: the size of each, then its items.
static bool parse_lists(reader *r, vt_string text, uint32_t *out_count, const int64_t **out_ints) {
  int64_t *ints = VT_NEW_ARRAY(r->arena, int64_t, MAX_INTS);
  uint32_t n = 0, size_at = 0;
  bool open = false;
  for (size_t i = 0; i < text.size; i++) {
    char c = text.data[i];
    if (n + 1 >= MAX_INTS) return false;
    if (c == '[') {
      if (open) return false;
      open = true;
      size_at = n++;
    } else if (c == ']') {
      if (!open) return false;
      open = false;
    } else if ((c >= '0' && c <= '9') || c == '-') {
      int64_t value = 0;
      bool negative = c == '-';
      for (i += negative; i < text.size && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
        if (value > INT32_MAX) return false;
        value = value * 10 + (text.data[i] - '0');
      }
      i--;
      if (!open) return false;
      ints[n++] = negative ? -value : value;
      ints[size_at]++;
    } else if (c != ',' && c != ' ') {
      return false;
    }
  }
  *out_count = n;
  *out_ints = ints;
  return !open;
}

// ---- types --------------------------------------------------------------------------------------

vt_dtype vt_mosaic_signless(vt_dtype dtype) {
  switch ((int)dtype) {
  case VT_U2:
    return VT_S2;
  case VT_U4:
    return VT_S4;
  case VT_U8:
    return VT_S8;
  case VT_U16:
    return VT_S16;
  case VT_U32:
    return VT_S32;
  case VT_U64:
  case VT_F64:
  case VT_C64:
  case VT_C128:
  case VT_TOKEN:
    return VT_DTYPE_INVALID;
  default:
    return dtype;
  }
}

// Older compilers wrote small floats as text.
static vt_dtype element_of(const vt_raw_type *type) {
  if (type->kind == VT_RAW_ELEMENT) return vt_mosaic_signless(type->dtype);
  if (type->kind == VT_RAW_ASM) return vt_dtype_from_text(type->text.data, type->text.size);
  return VT_DTYPE_INVALID;
}

static bool space_of(const vt_raw_attr *attr, vt_mspace *out) {
  *out = VT_MSPACE_VMEM;
  if (!attr) return true;
  if (attr->kind != VT_RAW_TEXT) return false;
  vt_string text = inside(attr->string);
  const char *comma = memchr(text.data, ',', text.size);
  if (comma) text.size = (size_t)(comma - text.data);
  for (int i = 0; i < VT_MSPACE_COUNT; i++)
    if (vt_string_is(text, vt_mspace_text((vt_mspace)i))) {
      *out = (vt_mspace)i;
      return true;
    }
  return false;
}

static vt_status read_type(reader *r, const vt_raw_op *op, const vt_raw_type *raw, vt_mtype *out) {
  *out = (vt_mtype){.kind = VT_MSCALAR};
  if (raw->kind != VT_RAW_VECTOR && raw->kind != VT_RAW_MEMREF) {
    out->dtype = element_of(raw);
    return out->dtype ? VT_OK : wrong(r, op, "a type that kernels do not have");
  }
  out->kind = raw->kind == VT_RAW_VECTOR ? VT_MVECTOR : VT_MREF;
  out->dtype = element_of(raw->element);
  if (out->kind == VT_MREF && raw->element->kind == VT_RAW_ASM) {
    if (vt_string_is(raw->element->text, "!tpu.semaphore")) out->semaphore = VT_MSEM_REGULAR;
    if (vt_string_is(raw->element->text, "!tpu.dma_semaphore")) out->semaphore = VT_MSEM_DMA;
    if (out->semaphore) out->dtype = VT_S32;
  }
  if (!out->dtype) return wrong(r, op, "an element type that kernels do not have");
  if (out->kind == VT_MREF && !space_of(raw->space, &out->space))
    return wrong(r, op, "an unknown memory space");
  if (raw->rank > VT_MOSAIC_RANK) return wrong(r, op, "a type of too many dimensions");
  int64_t bytes = (int64_t)vt_dtype_bytes(out->dtype);
  for (int32_t d = 0; d < raw->rank; d++) {
    if (raw->dims[d] == 0) return wrong(r, op, "an empty block");
    bool big = raw->dims[d] > 0 && __builtin_mul_overflow(bytes, raw->dims[d], &bytes);
    // Arrays in HBM may be larger: nothing here makes one.
    bool limited = out->kind == VT_MVECTOR || out->space == VT_MSPACE_VMEM ||
                   out->space == VT_MSPACE_SMEM || out->semaphore;
    if (big || (limited && bytes > max_bytes)) return wrong(r, op, "a block is too large");
  }
  out->rank = raw->rank;
  out->dims = raw->rank ? (const int64_t *)(const void *)vt_arena_copy(
                              r->arena, raw->dims, (size_t)raw->rank * sizeof *raw->dims)
                        : NULL;
  return VT_OK;
}

static vt_status new_value(reader *r, const vt_raw_op *op, vt_raw_value *raw, vt_mblock *block,
                           vt_mop *def, vt_mvalue *out) {
  VT_TRY(read_type(r, op, raw->type, &out->type));
  out->slot = r->kernel->slot_count++;
  out->ref = out->type.kind == VT_MREF ? r->kernel->ref_count++ : -1;
  out->op = def;
  out->block = block;
  raw->in_kernel = out;
  return VT_OK;
}

// ---- attributes ---------------------------------------------------------------------------------

static vt_status read_value(reader *r, const vt_raw_op *op, const vt_raw_attr *raw,
                            vt_mattr *attr) {
  vt_literal *literal = VT_NEW(r->arena, vt_literal);
  attr->literal = literal;
  vt_mtype type;
  const vt_raw_type *written = raw->kind == VT_RAW_BOOL && !raw->type ? NULL : raw->type;
  if (!written) return wrong(r, op, "a constant without a type");
  VT_TRY(read_type(r, op, written, &type));
  size_t bytes = vt_dtype_bytes(type.dtype);
  literal->type = (vt_type){type.dtype, type.rank, type.dims};
  if (raw->kind == VT_RAW_INT || raw->kind == VT_RAW_BOOL) {
    literal->data = vt_arena_copy(r->arena, &raw->i64, sizeof raw->i64);
    return vt_dtype_is_float(type.dtype) ? wrong(r, op, "an integer as a float") : VT_OK;
  }
  if (raw->kind == VT_RAW_FLOAT) {
    char *data = vt_arena_push(r->arena, 8);
    if (!vt_dtype_is_float(type.dtype)) return wrong(r, op, "a float as an integer");
    vt_number_store(type.dtype, data, 0, raw->f64);
    literal->data = data;
    return VT_OK;
  }
  if (raw->kind != VT_RAW_DENSE || type.kind != VT_MVECTOR)
    return wrong(r, op, "a constant of an unknown form");
  int64_t count = vt_mtype_elements(type);
  const void *data = raw->data.data;
  // From version 10 on, bools are bytes.
  if (type.dtype == VT_PRED && r->kernel->version >= 10 &&
      (raw->data.size == 1 || (int64_t)raw->data.size == count)) {
    literal->splat = raw->data.size == 1;
    uint8_t *bools = vt_arena_push(r->arena, raw->data.size);
    for (size_t i = 0; i < raw->data.size; i++) bools[i] = raw->data.data[i] != 0;
    literal->data = bools;
    return VT_OK;
  }
  VT_TRY(vt_raw_dense(r->scratch, raw->data, type.dtype, count, &data, &literal->splat));
  literal->data = vt_arena_copy(r->arena, data, bytes * (literal->splat ? 1 : (size_t)count));
  return VT_OK;
}

static vt_status read_attr(reader *r, const vt_raw_op *op, const vt_raw_attr *raw, vt_mattr *attr) {
  const int64_t *ints;
  switch (vt_mattr_kind_of(attr->key)) {
  case VT_MATTR_KIND_I64:
    attr->i64 = raw->i64;
    if (raw->kind == VT_RAW_INT || raw->kind == VT_RAW_BOOL) return VT_OK;
    break;
  case VT_MATTR_KIND_INTS:
    if (!vt_raw_ints(r->scratch, raw, &attr->count, &ints) || attr->count > MAX_INTS) break;
    attr->ints =
        (const int64_t *)(const void *)vt_arena_copy(r->arena, ints, attr->count * sizeof *ints);
    return VT_OK;
  case VT_MATTR_KIND_LISTS:
    if (raw->kind == VT_RAW_TEXT && parse_lists(r, inside(raw->string), &attr->count, &attr->ints))
      return VT_OK;
    break;
  case VT_MATTR_KIND_STRING:
    if (raw->kind != VT_RAW_STRING) break;
    attr->string = (vt_string){keep(r, raw->string), raw->string.size};
    return VT_OK;
  case VT_MATTR_KIND_WORD:
    if (raw->kind != VT_RAW_TEXT) break;
    attr->i64 = vt_mword_find(inside(raw->string));
    if (attr->i64) return VT_OK;
    break;
  case VT_MATTR_KIND_TYPE:
    if (raw->kind != VT_RAW_TYPE) break;
    attr->i64 = element_of(raw->type);
    if (attr->i64) return VT_OK;
    break;
  case VT_MATTR_KIND_VALUE:
    return read_value(r, op, raw, attr);
  case VT_MATTR_KIND_SKIP:
    return VT_OK;
  }
  char what[96];
  snprintf(what, sizeof what, "attribute '%s' has a wrong form", vt_mattr_name(attr->key));
  return wrong(r, op, what);
}

// Groups of operands as the newest version has them.
static vt_status upgrade_segments(reader *r, const vt_raw_op *raw, vt_mop *op) {
  static const struct {
    vt_mopcode code;
    uint32_t groups;
    int64_t few[7], many[7]; // without segments: with the fewest operands, and with more
  } forms[] = {
      {VT_MOP_ENQUEUE_DMA, 7, {1, 0, 1, 1, 0, 0, 0}, {1, 1, 1, 1, 1, 0, 0}},
      {VT_MOP_SEM_SIGNAL, 5, {1, 1, 0, 0, 0}, {1, 1, 1, 0, 0}},
      {VT_MOP_WAIT_DMA2, 5, {1, 1, 1, 0, 0}, {1, 1, 1, 1, 0}},
      {VT_MOP_SLICE_REF, 3, {0}, {0}},
      {VT_MOP_STORE_VECTOR, 4, {0}, {0}},
      {VT_MOP_LOAD_VECTOR, 3, {0}, {0}},
  };
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    if (forms[f].code != op->code) continue;
    int64_t *ints = VT_NEW_ARRAY(r->arena, int64_t, forms[f].groups), sum = 0;
    vt_mattr *attr = (vt_mattr *)(uintptr_t)vt_mop_attr(op, VT_MATTR_SEGMENTS);
    if (!attr) {
      if (!forms[f].few[0]) return wrong(r, raw, "operandSegmentSizes is missing");
      attr = &op->attrs[op->attr_count++];
      *attr = (vt_mattr){.key = VT_MATTR_SEGMENTS};
      int64_t least = 0;
      for (uint32_t i = 0; i < forms[f].groups; i++) least += forms[f].few[i];
      const int64_t *form = op->operand_count <= least ? forms[f].few : forms[f].many;
      memcpy(ints, form, forms[f].groups * sizeof *ints);
    } else {
      if (attr->count > forms[f].groups) return wrong(r, raw, "too many groups of operands");
      for (uint32_t i = 0; i < attr->count; i++) ints[i] = attr->ints[i];
    }
    for (uint32_t i = 0; i < forms[f].groups; i++) {
      if (ints[i] < 0 || ints[i] > op->operand_count)
        return wrong(r, raw, "the groups do not fit the operands");
      sum += ints[i];
    }
    attr->ints = ints;
    attr->count = forms[f].groups;
    return sum == op->operand_count ? VT_OK : wrong(r, raw, "the groups do not fit the operands");
  }
  return VT_OK;
}

static vt_status read_attrs(reader *r, const vt_raw_op *raw, vt_mop *op) {
  const vt_mattr_key *keys = vt_mop_info_get(op->code)->attrs;
  uint32_t most = 1;
  for (const vt_mattr_key *key = keys; *key; key++) most++;
  op->attrs = VT_NEW_ARRAY(r->arena, vt_mattr, most);
  for (const vt_mattr_key *key = keys; *key; key++) {
    const vt_raw_attr *value = vt_raw_find(raw, vt_mattr_name(*key));
    if (value) {
      op->attrs[op->attr_count].key = *key;
      VT_TRY(read_attr(r, raw, value, &op->attrs[op->attr_count++]));
    } else if (vt_mattr_required(*key)) {
      char what[96];
      snprintf(what, sizeof what, "attribute '%s' is missing", vt_mattr_name(*key));
      return wrong(r, raw, what);
    }
  }
  return upgrade_segments(r, raw, op);
}

// ---- ops ----------------------------------------------------------------------------------------

static vt_status read_block(reader *r, const vt_raw_region *region, vt_mop *owner,
                            vt_mblock **out_block);

static vt_status read_op(reader *r, vt_raw_op *raw, vt_mblock *block, vt_mop **out_op) {
  size_t row = (size_t)(raw->row - rows);
  if (row > VT_MOP_COUNT)
    return raw_error(r, raw, VT_UNIMPLEMENTED, refusals[row - 1 - VT_MOP_COUNT]);
  if (!row || row - 1 == VT_MOP_FUNC) return wrong(r, raw, "not allowed here");
  if (++r->op_count > MAX_OPS) return wrong(r, raw, "the kernel has too many ops");
  vt_mop *op = *out_op = VT_NEW(r->arena, vt_mop);
  op->code = (vt_mopcode)(row - 1);
  op->loc = loc_of(r, raw->loc);
  op->block = block;
  const vt_mop_info *info = vt_mop_info_get(op->code);
  if ((int64_t)raw->operand_count < info->least ||
      (info->most >= 0 && raw->operand_count > (uint32_t)info->most) ||
      (info->results >= 0 && raw->result_count != (uint32_t)info->results) ||
      raw->region_count != (uint32_t)info->regions)
    return wrong(r, raw, "a wrong number of operands, results or regions");
  op->operand_count = raw->operand_count;
  op->operands = VT_NEW_ARRAY(r->arena, vt_mvalue *, raw->operand_count + 1);
  for (uint32_t i = 0; i < raw->operand_count; i++) {
    op->operands[i] = raw->operands[i]->in_kernel;
    if (!op->operands[i]) return wrong(r, raw, "a value of another function");
  }
  VT_TRY(read_attrs(r, raw, op));
  op->block_count = raw->region_count;
  op->blocks = VT_NEW_ARRAY(r->arena, vt_mblock *, raw->region_count + 1);
  for (uint32_t i = 0; i < raw->region_count; i++)
    VT_TRY(read_block(r, raw->regions[i], op, &op->blocks[i]));
  op->result_count = raw->result_count;
  op->results = VT_NEW_ARRAY(r->arena, vt_mvalue, raw->result_count + 1);
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(new_value(r, raw, &raw->results[i], block, op, &op->results[i]));
  r->names_cores = r->names_cores || (op->code == VT_MOP_SEM_SIGNAL && vt_mop_optional(op, 3)) ||
                   (op->code == VT_MOP_ENQUEUE_DMA && vt_mop_optional(op, 5));
  if (op->code == VT_MOP_ALLOCA || op->code == VT_MOP_SEM_ALLOC) {
    op->place = (int32_t)r->places.size;
    vt_array_push_in(r->scratch, &r->places, &op->results[0]);
  }
  return VT_OK;
}

static vt_status read_block(reader *r, const vt_raw_region *region, vt_mop *owner,
                            vt_mblock **out_block) {
  vt_mblock *block = *out_block = VT_NEW(r->arena, vt_mblock);
  block->owner = owner;
  block->arg_count = region->arg_count;
  block->args = VT_NEW_ARRAY(r->arena, vt_mvalue, region->arg_count + 1);
  for (uint32_t i = 0; i < region->arg_count; i++)
    VT_TRY(new_value(r, region->owner, &region->args[i], block, NULL, &block->args[i]));
  for (vt_raw_op *raw = region->first; raw; raw = raw->next) {
    vt_mop *op = NULL;
    VT_TRY(read_op(r, raw, block, &op));
    if (block->last)
      block->last->next = op;
    else
      block->first = op;
    block->last = op;
  }
  return VT_OK;
}

// ---- the kernel ---------------------------------------------------------------------------------

static vt_mfunc *find_func(vt_mosaic *kernel, vt_string name) {
  for (uint32_t i = 0; i < kernel->func_count; i++)
    if (kernel->funcs[i].name.size == name.size &&
        !memcmp(kernel->funcs[i].name.data, name.data, name.size))
      return &kernel->funcs[i];
  return NULL;
}

static vt_status read_count(reader *r, const vt_raw_op *op, const char *name, uint32_t *out) {
  const vt_raw_attr *attr = vt_raw_find(op, name);
  *out = 0;
  if (!attr) return VT_OK;
  if (attr->kind != VT_RAW_INT || attr->i64 < 0 || attr->i64 > 1 << 16)
    return wrong(r, op, "an attribute that counts arguments has a wrong form");
  *out = (uint32_t)attr->i64;
  return VT_OK;
}

// The padding of a window by elements: two lists.
static vt_status read_padding(reader *r, const vt_raw_op *op, vt_string text, vt_mwindow *window) {
  vt_mattr lists = {.key = VT_MATTR_NONE};
  uint32_t low, high;
  if (!parse_lists(r, inside(text), &lists.count, &lists.ints))
    return wrong(r, op, "window_kind has a wrong form");
  const int64_t *a = vt_mattr_list(&lists, 0, &low), *b = vt_mattr_list(&lists, 1, &high);
  if (low > VT_MOSAIC_RANK || high > VT_MOSAIC_RANK)
    return wrong(r, op, "window_kind has a wrong form");
  window->element = true;
  if (low) memcpy(window->pad_low, a, low * sizeof *a);
  if (high) memcpy(window->pad_high, b, high * sizeof *b);
  return VT_OK;
}

// Whether it is an affine map to zeros, of which JAX before 0.11 gives the text.
static bool maps_to_zeros(const vt_raw_attr *map) {
  if (map->kind == VT_RAW_LAYOUT) return map->i64;
  if (map->kind != VT_RAW_TEXT) return false;
  const char *end = map->string.data + map->string.size,
             *at = memmem(map->string.data, map->string.size, "->", 2);
  if (!at) return false;
  for (at += 2; at < end; at++)
    if (!memchr(" (0,)>", *at, 6)) return false;
  return true;
}

static vt_status read_window(reader *r, const vt_raw_op *op, const vt_raw_attr *dict,
                             vt_mwindow *window) {
  if (dict->kind != VT_RAW_DICT) return wrong(r, op, "window_params has a wrong form");
  const vt_raw_attr *transform = vt_raw_dict_find(dict, "transform_indices"),
                    *kind = vt_raw_dict_find(dict, "window_kind"),
                    *mode = vt_raw_dict_find(dict, "pipeline_mode"),
                    *revisit = vt_raw_dict_find(dict, "revisit_mode");
  window->whole = !transform;
  if (!transform) return VT_OK;
  if (transform->kind == VT_RAW_STRING) {
    window->transform = find_func(r->kernel, transform->string);
    if (!window->transform) return wrong(r, op, "a transform that does not exist");
  } else if (maps_to_zeros(transform)) {
    window->whole = true;
    return VT_OK;
  } else {
    return wrong(r, op, "transform_indices has a wrong form");
  }
  if (kind && kind->kind == VT_RAW_TEXT && holds(kind->string, "element_window"))
    VT_TRY(read_padding(r, op, kind->string, window));
  window->synchronous = mode && mode->kind == VT_RAW_TEXT && holds(mode->string, "synchronous");
  window->revisits = revisit && revisit->kind == VT_RAW_TEXT && holds(revisit->string, "<any>");
  return VT_OK;
}

enum { MAX_CORES = 8 };

// Which dimension is split over cores: one that says so; or the first, when cores name each other
// and it is parallel.
static vt_status read_cores(reader *r, const vt_raw_op *op) {
  vt_mosaic *k = r->kernel;
  const vt_raw_attr *list = vt_raw_find(op, "dimension_semantics");
  k->core_dim = -1;
  k->core_count = 1;
  if (!list || list->kind != VT_RAW_ARRAY || list->count > k->grid_rank) return VT_OK;
  while (k->parallel_dims < list->count && list->items[k->parallel_dims]->kind == VT_RAW_TEXT &&
         vt_string_is(inside(list->items[k->parallel_dims]->string), "parallel"))
    k->parallel_dims++;
  for (uint32_t i = list->count; i-- > 0;) {
    const vt_raw_attr *item = list->items[i];
    if (item->kind != VT_RAW_TEXT) continue;
    bool parallel = !i && r->names_cores && vt_string_is(inside(item->string), "parallel");
    if (parallel || vt_string_is(inside(item->string), "core_parallel")) k->core_dim = (int32_t)i;
  }
  if (k->core_dim < 0) return VT_OK;
  if (k->grid[k->core_dim] < 1 || k->grid[k->core_dim] > MAX_CORES)
    return wrong(r, op, "a dimension over cores has a bound that no chip has cores for");
  k->core_count = (int32_t)k->grid[k->core_dim];
  k->cores_meet = true;
  return VT_OK;
}

static vt_status read_signature(reader *r, const vt_raw_op *op) {
  vt_mosaic *k = r->kernel;
  const vt_raw_attr *bounds = vt_raw_find(op, "iteration_bounds"),
                    *windows = vt_raw_find(op, "window_params"),
                    *core = vt_raw_find(op, "tpu.core_type");
  if (core && core->kind == VT_RAW_TEXT && !vt_string_is(inside(core->string), "tc"))
    return raw_error(r, op, VT_UNIMPLEMENTED, "a SparseCore kernel is not supported");
  VT_TRY(read_count(r, op, "scalar_prefetch", &k->prefetch_count));
  VT_TRY(read_count(r, op, "scratch_operands", &k->scratch_count));
  if (bounds) {
    if (bounds->kind != VT_RAW_INTS || bounds->count > VT_MOSAIC_RANK)
      return wrong(r, op, "iteration_bounds has a wrong form");
    k->grid_rank = bounds->count;
    k->grid = VT_NEW_ARRAY(r->arena, int64_t, bounds->count + 1);
    for (uint32_t i = 0; i < bounds->count; i++) {
      k->grid[i] = bounds->ints[i];
      if (k->grid[i] == INT64_MIN)
        k->dynamic_count++;
      else if (k->grid[i] < 0 || k->grid[i] > INT32_MAX)
        return wrong(r, op, "a bound of the grid is out of range");
    }
  }
  VT_TRY(read_cores(r, op));
  uint64_t fixed = (uint64_t)k->grid_rank + k->prefetch_count + k->scratch_count;
  if (fixed > k->body->block->arg_count) return wrong(r, op, "too few arguments");
  k->window_count = k->body->block->arg_count - (uint32_t)fixed;
  k->windows = VT_NEW_ARRAY(r->arena, vt_mwindow, k->window_count + 1);
  if (windows && (windows->kind != VT_RAW_ARRAY || windows->count != k->window_count))
    return wrong(r, op, "window_params does not fit the arguments");
  for (uint32_t i = 0; i < k->window_count; i++) {
    k->windows[i].whole = true;
    if (windows) VT_TRY(read_window(r, op, windows->items[i], &k->windows[i]));
  }
  return VT_OK;
}

static vt_status read_version(reader *r, const vt_raw_op *module) {
  const vt_raw_attr *version = vt_raw_find(module, "stable_mosaic.version");
  if (!version || version->kind != VT_RAW_INT) return wrong(r, module, "no stable_mosaic.version");
  if (version->i64 < 1 || version->i64 > VT_MOSAIC_VERSION)
    return vt_error(VT_UNIMPLEMENTED,
                    "a kernel of Mosaic version %" PRId64 ": versions 1 to %d are supported",
                    version->i64, VT_MOSAIC_VERSION);
  r->kernel->version = version->i64;
  for (uint32_t i = 0; i < module->attr_count; i++)
    if (holds(module->attrs[i].name, "dynamic_dimension_mapping"))
      return vt_error(VT_UNIMPLEMENTED, "a kernel over symbolic shapes is not supported");
  return VT_OK;
}

vt_status vt_mosaic_lower(vt_bytes body, vt_arena *scratch, vt_arena *arena, vt_mosaic *kernel) {
  reader r = {.scratch = scratch, .arena = arena, .kernel = kernel};
  vt_raw_module raw = {0};
  if (!vt_bytecode_is(body))
    return vt_error(VT_INVALID_ARGUMENT, "the kernel is not MLIR bytecode");
  VT_TRY(vt_bytecode_read(body, find_row, scratch, &raw));
  if (raw.op->row != &rows[0] || raw.op->region_count != 1)
    return vt_error(VT_INVALID_ARGUMENT, "the kernel is not a module");
  VT_TRY(read_version(&r, raw.op));
  uint32_t count = 0;
  for (vt_raw_op *op = raw.op->regions[0]->first; op; op = op->next) count++;
  kernel->funcs = VT_NEW_ARRAY(arena, vt_mfunc, count + 1);
  const vt_raw_op *body_op = NULL;
  for (vt_raw_op *op = raw.op->regions[0]->first; op; op = op->next) {
    vt_mfunc *func = &kernel->funcs[kernel->func_count];
    const vt_raw_attr *name = vt_raw_find(op, "sym_name");
    if ((size_t)(op->row - rows) - 1 != VT_MOP_FUNC || op->region_count != 1 ||
        op->regions[0]->empty || op->operand_count || op->result_count)
      return wrong(&r, op, "a function with a body was expected");
    if (!name || name->kind != VT_RAW_STRING) return wrong(&r, op, "a function without a name");
    func->name = (vt_string){keep(&r, name->string), name->string.size};
    VT_TRY(read_block(&r, op->regions[0], NULL, &func->block));
    kernel->func_count++;
    if (body_op && (vt_raw_find(body_op, "tpu.core_type") || !vt_raw_find(op, "tpu.core_type")))
      continue;
    body_op = op;
    kernel->body = func;
  }
  if (!body_op) return vt_error(VT_INVALID_ARGUMENT, "the kernel has no function");
  kernel->name = kernel->body->name.data;
  kernel->place_count = (int32_t)r.places.size;
  kernel->places = VT_NEW_ARRAY(arena, vt_mvalue *, r.places.size + 1);
  if (r.places.size) memcpy(kernel->places, r.places.data, r.places.size * sizeof *r.places.data);
  return read_signature(&r, body_op);
}
