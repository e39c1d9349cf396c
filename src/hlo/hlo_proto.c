// SPDX-License-Identifier: Apache-2.0
// hlo_proto.c - HLO as the message xla.HloModuleProtoWithConfig.
//
// Field numbers are those of openxla/xla's hlo.proto, xla_data.proto and xla.proto. A message
// within a message is written apart and then copied behind its length.
#include <string.h>

#include "base/wire.h"
#include "hlo/hlo_writers.h"

static void put_i64(vt_text *out, uint32_t field, int64_t value) {
  vt_wire_put_uint(out, field, (uint64_t)value);
}

static void put_string(vt_text *out, uint32_t field, const char *string) {
  vt_wire_put_bytes(out, field, string, strlen(string));
}

static void put_packed(vt_text *out, uint32_t field, uint32_t count, const int64_t *ints) {
  vt_text packed = {0};
  for (uint32_t i = 0; i < count; i++) vt_wire_put_varint(&packed, (uint64_t)ints[i]);
  vt_wire_put_bytes(out, field, packed.data, packed.size);
  vt_text_free(&packed);
}

static void put_message(vt_text *out, uint32_t field, vt_text *message) {
  vt_wire_put_bytes(out, field, message->data, message->size);
  vt_text_free(message);
}

// Shapes ------------------------------------------------------------------------------------------

enum { TUPLE_TYPE = 13 };

static void put_shape(vt_text *out, uint32_t field, const vt_hlo_shape *shape) {
  vt_text message = {0};
  if (shape->tuple) {
    put_i64(&message, 2, TUPLE_TYPE);
    for (uint32_t i = 0; i < shape->count; i++) put_shape(&message, 4, shape->parts[i]);
    put_message(out, field, &message);
    return;
  }
  vt_type type = shape->type;
  put_i64(&message, 2, vt_hlo_dtype_get(type.dtype)->number);
  if (type.dtype != VT_TOKEN) {
    int64_t order[VT_MAX_RANK + 1], fixed[VT_MAX_RANK + 1] = {0};
    vt_text layout = {0};
    put_packed(&message, 3, (uint32_t)type.rank, type.dims);
    put_packed(&message, 6, (uint32_t)type.rank, fixed);
    vt_hlo_layout_order(shape, order);
    put_packed(&layout, 1, (uint32_t)type.rank, order);
    put_i64(&layout, 16, 1);
    if (shape->host) put_i64(&layout, 8, 5);
    put_message(&message, 5, &layout);
  }
  put_message(out, field, &message);
}

static void put_program_shape(vt_text *out, uint32_t field, uint32_t count,
                              const vt_hlo_shape *const *params, const vt_hlo_shape *result,
                              vt_hlo_instruction *const *named) {
  vt_text message = {0};
  for (uint32_t i = 0; i < count; i++) put_shape(&message, 1, params ? params[i] : named[i]->shape);
  put_shape(&message, 2, result);
  for (uint32_t i = 0; named && i < count; i++) put_string(&message, 3, named[i]->name);
  put_message(out, field, &message);
}

// Constants ---------------------------------------------------------------------------------------

static int64_t element_i64(vt_dtype dtype, const void *data) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  uint64_t bits = 0;
  memcpy(&bits, data, info->bytes);
  if (info->kind != VT_KIND_SIGNED) return (int64_t)bits;
  return (int64_t)(bits << (64 - 8 * info->bytes)) >> (64 - 8 * info->bytes);
}

static void put_elements(vt_text *out, const vt_literal *literal) {
  vt_dtype dtype = literal->type.dtype;
  const vt_dtype_info *info = vt_dtype_get(dtype);
  int64_t count = vt_type_elements(literal->type);
  bool varints =
      info->kind == VT_KIND_BOOL ||
      (info->bits >= 32 && (info->kind == VT_KIND_SIGNED || info->kind == VT_KIND_UNSIGNED));
  if (!varints && !literal->splat) {
    vt_text_put_n(out, literal->data, (size_t)count * info->bytes);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const char *at = (const char *)literal->data + (literal->splat ? 0 : (size_t)i * info->bytes);
    if (varints)
      vt_wire_put_varint(out, (uint64_t)element_i64(dtype, at));
    else
      vt_text_put_n(out, at, info->bytes);
  }
}

static void put_literal(vt_text *out, uint32_t field, const vt_literal *literal) {
  vt_text message = {0}, elements = {0};
  vt_hlo_shape shape = {.type = literal->type};
  put_shape(&message, 1, &shape);
  put_elements(&elements, literal);
  if (elements.size)
    put_message(&message, vt_hlo_dtype_get(literal->type.dtype)->literal, &elements);
  else
    vt_text_free(&elements);
  put_message(out, field, &message);
}

// Attributes --------------------------------------------------------------------------------------

// A repeated message of as many numbers as `width`, fields 1, 2, ...
static void put_records(vt_text *out, uint32_t field, const vt_hlo_attr *attr, uint32_t width) {
  for (uint32_t i = 0; i < attr->count; i += width) {
    vt_text record = {0};
    for (uint32_t k = 0; k < width; k++)
      if (attr->ints[i + k]) put_i64(&record, k + 1, attr->ints[i + k]);
    put_message(out, field, &record);
  }
}

// A message whose field 1 has the records.
static void put_wrapped_records(vt_text *out, uint32_t field, const vt_hlo_attr *attr,
                                uint32_t width) {
  vt_text message = {0};
  put_records(&message, 1, attr, width);
  put_message(out, field, &message);
}

// xla.ConvolutionDimensionNumbers.
static void put_labels(vt_text *out, uint32_t field, const vt_hlo_attr *attr) {
  static const uint8_t numbers[3][3] = {{7, 8, 11}, {3, 4, 6}, {9, 10, 12}};
  uint32_t rank = attr->count / 3;
  vt_text message = {0};
  for (int s = 0; s < 3; s++) {
    const int64_t *side = attr->ints + (size_t)s * rank;
    put_i64(&message, numbers[s][0], side[0]);
    put_i64(&message, numbers[s][1], side[1]);
    put_packed(&message, numbers[s][2], rank - 2, side + 2);
  }
  put_message(out, field, &message);
}

static void put_groups(vt_text *out, uint32_t field, const vt_hlo_attr *attr) {
  uint32_t width = attr->rows ? attr->count / attr->rows : 0;
  for (uint32_t r = 0; r < attr->rows; r++) {
    vt_text group = {0};
    uint32_t count = 0;
    while (count < width && attr->ints[r * width + count] >= 0) count++;
    put_packed(&group, 1, count, attr->ints + (size_t)r * width);
    put_message(out, field, &group);
  }
}

static void put_aliases(vt_text *out, uint32_t field, const vt_hlo_attr *attr) {
  for (uint32_t i = 0; i < attr->count; i += 2) {
    vt_text alias = {0};
    if (attr->ints[i] >= 0) put_packed(&alias, 1, 1, &attr->ints[i]);
    put_i64(&alias, 2, attr->ints[i + 1]);
    put_message(out, field, &alias);
  }
}

static void put_dict(vt_text *out, uint32_t field, const vt_dict_value *dict) {
  vt_text map = {0};
  for (size_t i = 0; i < dict->count; i++) {
    const vt_dict_entry *entry = &dict->entries[i];
    vt_text pair = {0}, value = {0};
    vt_wire_put_bytes(&pair, 1, entry->name.data, entry->name.size);
    if (entry->value->kind == VT_DICT_STRING)
      vt_wire_put_bytes(&pair, 2, entry->value->string.data, entry->value->string.size);
    else
      vt_hlo_put_value(&value, entry->value), vt_wire_put_bytes(&pair, 2, value.data, value.size);
    vt_text_free(&value);
    put_message(&map, 1, &pair);
  }
  put_message(out, field, &map);
}

static void put_f32(vt_text *out, uint32_t field, double value) {
  float f = (float)value;
  enum { WIRE_32 = 5 };
  vt_wire_put_varint(out, (uint64_t)field << 3 | WIRE_32);
  vt_text_put_n(out, &f, sizeof f);
}

static void put_value(vt_text *out, uint32_t field, const vt_hlo_attr *attr, vt_hlo_form form) {
  switch (form) {
  case VT_HLO_INTS:
  case VT_HLO_INTS_SOME:
  case VT_HLO_PRECISION:
    put_packed(out, field, attr->count, attr->ints);
    break;
  case VT_HLO_I64:
  case VT_HLO_FLAG:
  case VT_HLO_BOOL:
  case VT_HLO_ENUM:
  case VT_HLO_HIDDEN:
    put_i64(out, field, attr->i64);
    break;
  case VT_HLO_WORD:
  case VT_HLO_QUOTED:
  case VT_HLO_SHARDING:
  case VT_HLO_CONFIG:
    vt_wire_put_bytes(out, field, attr->string.data, attr->string.size);
    break;
  case VT_HLO_F32:
    put_f32(out, field, attr->f64);
    break;
  case VT_HLO_SLICE:
    put_records(out, field, attr, 3);
    break;
  case VT_HLO_PADDING:
    put_wrapped_records(out, field, attr, 3);
    break;
  case VT_HLO_WINDOW:
    put_wrapped_records(out, field, attr, 7);
    break;
  case VT_HLO_PAIRS:
    put_records(out, field, attr, 2);
    break;
  case VT_HLO_LABELS:
    put_labels(out, field, attr);
    break;
  case VT_HLO_GROUPS:
    put_groups(out, field, attr);
    break;
  case VT_HLO_LITERAL:
    put_literal(out, field, attr->literal);
    break;
  case VT_HLO_SHAPE:
  case VT_HLO_LAYOUTS:
    for (uint32_t i = 0; i < attr->count; i++) put_shape(out, field, attr->shapes[i]);
    break;
  case VT_HLO_ALIASES:
    put_aliases(out, field, attr);
    break;
  case VT_HLO_DICT:
    put_dict(out, field, attr->dict);
    break;
  }
}

// Parts of one message that are written apart are merged by the reader.
static void put_attr(vt_text *out, const vt_hlo_attr *attr) {
  const vt_hlo_field_info *info = vt_hlo_field_get(attr->field);
  if (!info->parent) {
    put_value(out, info->number, attr, info->form);
    return;
  }
  vt_text message = {0};
  put_value(&message, info->number, attr, info->form);
  put_message(out, info->parent, &message);
}

// Instructions, computations, the module ----------------------------------------------------------

static void put_metadata(vt_text *out, uint32_t field, const vt_loc *loc) {
  vt_text message = {0};
  if (loc->name[0]) put_string(&message, 2, loc->name);
  if (loc->file[0]) {
    put_string(&message, 3, loc->file);
    put_i64(&message, 4, loc->line);
    put_i64(&message, 17, loc->line);
    put_i64(&message, 18, loc->column);
    put_i64(&message, 19, loc->column);
  }
  if (message.size) put_message(out, field, &message);
}

static void put_instruction(vt_text *out, uint32_t field, const vt_hlo_instruction *instruction) {
  vt_text message = {0}, ids = {0};
  put_string(&message, 1, instruction->name);
  put_string(&message, 2, instruction->opcode);
  put_shape(&message, 3, instruction->shape);
  put_metadata(&message, 7, instruction->loc);
  put_i64(&message, 35, instruction->id);
  for (uint32_t i = 0; i < instruction->operand_count; i++)
    vt_wire_put_varint(&ids, (uint64_t)instruction->operands[i]->id);
  put_message(&message, 36, &ids);
  for (uint32_t i = 0; i < instruction->called_count; i++)
    vt_wire_put_varint(&ids, (uint64_t)instruction->called[i]->id);
  put_message(&message, 38, &ids);
  for (const vt_hlo_attr *attr = instruction->attrs; attr; attr = attr->next)
    put_attr(&message, attr);
  put_message(out, field, &message);
}

static void put_computation(vt_text *out, uint32_t field, const vt_hlo_computation *computation) {
  vt_text message = {0};
  put_string(&message, 1, computation->name);
  for (const vt_hlo_instruction *i = computation->first; i; i = i->next)
    put_instruction(&message, 2, i);
  put_program_shape(&message, 4, computation->param_count, NULL, computation->root->shape,
                    computation->params);
  put_i64(&message, 5, computation->id);
  put_i64(&message, 6, computation->root->id);
  put_message(out, field, &message);
}

// The order in which the program runs is the order of the instructions.
static void put_schedule(vt_text *out, uint32_t field, const vt_hlo *hlo) {
  vt_text schedule = {0};
  for (const vt_hlo_computation *c = hlo->first; c; c = c->next) {
    vt_text entry = {0}, sequence = {0}, ids = {0};
    for (const vt_hlo_instruction *i = c->first; i; i = i->next)
      vt_wire_put_varint(&ids, (uint64_t)i->id);
    put_message(&sequence, 1, &ids);
    put_i64(&entry, 1, c->id);
    put_message(&entry, 2, &sequence);
    put_message(&schedule, 1, &entry);
  }
  put_message(out, field, &schedule);
}

enum { MAY_ALIAS = 1 };

static void put_donations(vt_text *out, const vt_hlo *hlo) {
  vt_text aliases = {0}, donors = {0};
  for (uint32_t i = 0; i < hlo->param_count; i++) {
    vt_text entry = {0};
    int64_t result = hlo->param_info[i].alias_output;
    if (result >= 0) {
      if (hlo->result_count != 1) put_packed(&entry, 1, 1, &result);
      put_i64(&entry, 2, i);
      put_i64(&entry, 4, MAY_ALIAS);
      put_message(&aliases, 1, &entry);
    } else if (hlo->param_info[i].donated) {
      put_i64(&entry, 1, i);
      put_message(&donors, 1, &entry);
    }
  }
  if (aliases.size) put_message(out, 8, &aliases);
  if (donors.size) put_message(out, 18, &donors);
}

static bool is_any_sharded(uint32_t count, const vt_hlo_io *ios) {
  for (uint32_t i = 0; i < count; i++)
    if (ios[i].sharding.size) return true;
  return false;
}

// How a partitioned program's arrays lie on its devices, which JAX before 0.9 reads here. An empty
// xla.OpSharding says: replicated.
static void put_shardings(vt_text *out, const vt_hlo *hlo) {
  enum { TUPLE = 2 };
  if (hlo->partitions <= 1 && !is_any_sharded(hlo->param_count, hlo->param_info) &&
      !is_any_sharded(hlo->result_count, hlo->result_info))
    return;
  vt_text results = {0};
  if (hlo->result->tuple) put_i64(&results, 1, TUPLE);
  for (uint32_t i = 0; i < hlo->result_count; i++) {
    vt_string sharding = hlo->result_info[i].sharding;
    if (hlo->result->tuple)
      vt_wire_put_bytes(&results, 5, sharding.data, sharding.size);
    else
      vt_text_put_n(&results, sharding.data, sharding.size);
  }
  put_message(out, 12, &results);
  for (uint32_t i = 0; i < hlo->param_count; i++) {
    vt_string sharding = hlo->param_info[i].sharding;
    vt_wire_put_bytes(out, 14, sharding.data, sharding.size);
  }
}

void vt_hlo_write(const vt_hlo *hlo, vt_text *out_bytes) {
  vt_text module = {0}, config = {0};
  put_string(&module, 1, hlo->name);
  put_string(&module, 2, hlo->entry->name);
  put_i64(&module, 6, hlo->entry->id);
  for (const vt_hlo_computation *c = hlo->first; c; c = c->next) put_computation(&module, 3, c);
  put_program_shape(&module, 4, hlo->param_count, hlo->params, hlo->result, hlo->entry->params);
  put_schedule(&module, 7, hlo);
  put_donations(&module, hlo);
  put_shardings(&module, hlo);
  put_program_shape(&config, 1, hlo->param_count, hlo->params, hlo->result, hlo->entry->params);
  put_i64(&config, 4, hlo->replicas > 1 ? hlo->replicas : 1);
  put_i64(&config, 5, hlo->partitions > 1 ? hlo->partitions : 1);
  put_packed(&config, 33, 1, (int64_t[]){0}); // shardings of parameters and of the result are fixed
  put_packed(&config, 27, 1, (int64_t[]){0});
  put_message(out_bytes, 1, &module);
  put_message(out_bytes, 2, &config);
}

void vt_hlo_write_type(vt_text *out, uint32_t number, vt_type type) {
  put_shape(out, number, &(vt_hlo_shape){.type = type});
}
