// SPDX-License-Identifier: Apache-2.0
// hlo_text.c - HLO as text, as XLA prints a module that has a schedule.
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "hlo/hlo_writers.h"

static void put_ints(vt_text *out, uint32_t count, const int64_t *ints) {
  vt_text_put(out, "{");
  for (uint32_t i = 0; i < count; i++) vt_text_printf(out, "%s%" PRId64, i ? "," : "", ints[i]);
  vt_text_put(out, "}");
}

static void put_rows(vt_text *out, const vt_hlo_attr *attr) {
  uint32_t width = attr->rows ? attr->count / attr->rows : 0;
  vt_text_put(out, "{");
  for (uint32_t r = 0; r < attr->rows; r++) {
    uint32_t count = 0;
    while (count < width && attr->ints[r * width + count] >= 0) count++;
    if (r) vt_text_put(out, ",");
    put_ints(out, count, attr->ints + (size_t)r * width);
  }
  vt_text_put(out, "}");
}

static void put_slice(vt_text *out, const vt_hlo_attr *attr) {
  bool strided = false;
  for (uint32_t i = 0; i < attr->count; i += 3) strided = strided || attr->ints[i + 2] != 1;
  vt_text_put(out, "{");
  for (uint32_t i = 0; i < attr->count; i += 3) {
    vt_text_printf(out, "%s[%" PRId64 ":%" PRId64, i ? ", " : "", attr->ints[i], attr->ints[i + 1]);
    if (strided) vt_text_printf(out, ":%" PRId64, attr->ints[i + 2]);
    vt_text_put(out, "]");
  }
  vt_text_put(out, "}");
}

static void put_padding(vt_text *out, const vt_hlo_attr *attr) {
  bool interior = false;
  for (uint32_t i = 0; i < attr->count; i += 3) interior = interior || attr->ints[i + 2];
  for (uint32_t i = 0; i < attr->count; i += 3) {
    vt_text_printf(out, "%s%" PRId64 "_%" PRId64, i ? "x" : "", attr->ints[i], attr->ints[i + 1]);
    if (interior) vt_text_printf(out, "_%" PRId64, attr->ints[i + 2]);
  }
}

// One property of all dimensions, "stride=2x1"; nothing when each has the usual value.
static bool put_window_part(vt_text *out, const vt_hlo_attr *attr, const char *name, int at,
                            int64_t usual, bool space) {
  bool some = false;
  for (uint32_t i = 0; i < attr->count; i += 7) some = some || attr->ints[i + at] != usual;
  if (!some) return false;
  vt_text_printf(out, "%s%s=", space ? " " : "", name);
  for (uint32_t i = 0; i < attr->count; i += 7)
    vt_text_printf(out, "%s%" PRId64, i ? "x" : "", attr->ints[i + at]);
  return true;
}

static void put_window(vt_text *out, const vt_hlo_attr *attr) {
  bool pads = false;
  vt_text_put(out, "{");
  for (uint32_t i = 0; i < attr->count; i += 7) {
    vt_text_printf(out, "%s%" PRId64, i ? "x" : "size=", attr->ints[i]);
    pads = pads || attr->ints[i + 2] || attr->ints[i + 3];
  }
  put_window_part(out, attr, "stride", 1, 1, true);
  if (pads) {
    vt_text_put(out, " pad=");
    for (uint32_t i = 0; i < attr->count; i += 7)
      vt_text_printf(out, "%s%" PRId64 "_%" PRId64, i ? "x" : "", attr->ints[i + 2],
                     attr->ints[i + 3]);
  }
  put_window_part(out, attr, "lhs_dilate", 5, 1, true);
  put_window_part(out, attr, "rhs_dilate", 4, 1, true);
  put_window_part(out, attr, "rhs_reversal", 6, 0, true);
  vt_text_put(out, "}");
}

// b01f_01io->b01f
static void put_labels(vt_text *out, const vt_hlo_attr *attr) {
  static const char letters[3][2] = {{'b', 'f'}, {'i', 'o'}, {'b', 'f'}};
  static const char *const between[3] = {"", "_", "->"};
  uint32_t rank = attr->count / 3;
  for (int s = 0; s < 3; s++) {
    const int64_t *side = attr->ints + (size_t)s * rank;
    vt_text_put(out, between[s]);
    for (uint32_t d = 0; d < rank; d++)
      for (uint32_t i = 0; i < rank; i++) {
        if (side[i] != d) continue;
        if (i < 2)
          vt_text_printf(out, "%c", letters[s][i]);
        else
          vt_text_printf(out, "%u", i - 2);
      }
  }
}

static void put_precision(vt_text *out, const vt_hlo_attr *attr) {
  vt_text_put(out, "{");
  for (uint32_t i = 0; i < attr->count; i++)
    vt_text_printf(out, "%s%s", i ? "," : "", vt_hlo_word(VT_HLO_FIELD_PRECISION, attr->ints[i]));
  vt_text_put(out, "}");
}

static void put_aliases(vt_text *out, const vt_hlo_attr *attr) {
  vt_text_put(out, "{");
  for (uint32_t i = 0; i < attr->count; i += 2) {
    if (i) vt_text_put(out, ", ");
    if (attr->ints[i] < 0)
      vt_text_printf(out, "{}: (%" PRId64 ", {})", attr->ints[i + 1]);
    else
      vt_text_printf(out, "{%" PRId64 "}: (%" PRId64 ", {})", attr->ints[i], attr->ints[i + 1]);
  }
  vt_text_put(out, "}");
}

// Whether the text is one pair of braces with what they enclose: it then needs no quotes.
static bool is_braced(vt_string text) {
  int64_t depth = 0;
  bool quoted = false;
  if (!text.size || text.data[0] != '{') return false;
  for (size_t i = 0; i < text.size; i++) {
    char c = text.data[i];
    if (quoted && c == '\\') {
      i++;
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '{') depth++;
    if (c == '}' && !--depth) return i + 1 == text.size;
  }
  return false;
}

static void put_config(vt_text *out, vt_string config) {
  if (is_braced(config))
    vt_text_put_n(out, config.data, config.size);
  else
    vt_hlo_put_quoted(out, config);
}

static void put_frontend(vt_text *out, const vt_dict_value *dict) {
  vt_text_put(out, "{");
  for (size_t i = 0; i < dict->count; i++) {
    const vt_dict_value *value = dict->entries[i].value;
    vt_text other = {0};
    if (value->kind != VT_DICT_STRING) vt_hlo_put_value(&other, value);
    vt_text_printf(out, "%s%s=", i ? "," : "", dict->entries[i].name.data);
    put_config(out,
               value->kind == VT_DICT_STRING ? value->string : (vt_string){other.data, other.size});
    vt_text_free(&other);
  }
  vt_text_put(out, "}");
}

static bool is_default(const vt_hlo_attr *attr, const vt_hlo_field_info *info) {
  switch (info->form) {
  case VT_HLO_FLAG:
    return !attr->i64;
  case VT_HLO_INTS_SOME:
    return !attr->count;
  case VT_HLO_PRECISION:
    for (uint32_t i = 0; i < attr->count; i++)
      if (attr->ints[i]) return false;
    return true;
  case VT_HLO_WINDOW:
    return !attr->count;
  case VT_HLO_I64:
    return (attr->field == VT_HLO_FIELD_FEATURE_GROUPS ||
            attr->field == VT_HLO_FIELD_BATCH_GROUPS) &&
           attr->i64 == 1;
  case VT_HLO_ENUM:
    return attr->field == VT_HLO_FIELD_API_VERSION && attr->i64 == 1;
  case VT_HLO_DICT:
    return !attr->dict->count;
  case VT_HLO_HIDDEN:
  case VT_HLO_LITERAL:
    return true;
  default:
    return false;
  }
}

static void put_attr(vt_text *out, const vt_hlo_attr *attr) {
  const vt_hlo_field_info *info = vt_hlo_field_get(attr->field);
  if (is_default(attr, info)) return;
  vt_text_printf(out, ", %s=", info->text);
  switch (info->form) {
  case VT_HLO_INTS:
  case VT_HLO_INTS_SOME:
    put_ints(out, attr->count, attr->ints);
    break;
  case VT_HLO_I64:
    vt_text_printf(out, "%" PRId64, attr->i64);
    break;
  case VT_HLO_FLAG:
  case VT_HLO_BOOL:
    vt_text_put(out, attr->i64 ? "true" : "false");
    break;
  case VT_HLO_WORD:
    vt_text_put_n(out, attr->string.data, attr->string.size);
    break;
  case VT_HLO_QUOTED:
    vt_hlo_put_quoted(out, attr->string);
    break;
  case VT_HLO_ENUM:
    vt_text_put(out, vt_hlo_word(attr->field, attr->i64));
    break;
  case VT_HLO_F32:
    vt_text_printf(out, "%g", attr->f64);
    break;
  case VT_HLO_SLICE:
    put_slice(out, attr);
    break;
  case VT_HLO_PADDING:
    put_padding(out, attr);
    break;
  case VT_HLO_WINDOW:
    put_window(out, attr);
    break;
  case VT_HLO_LABELS:
    put_labels(out, attr);
    break;
  case VT_HLO_PRECISION:
    put_precision(out, attr);
    break;
  case VT_HLO_GROUPS:
  case VT_HLO_PAIRS:
    put_rows(out, attr);
    break;
  case VT_HLO_SHAPE:
    vt_hlo_put_shape(out, attr->shapes[0], true);
    break;
  case VT_HLO_LAYOUTS:
    vt_text_put(out, "{");
    for (uint32_t i = 0; i < attr->count; i++) {
      if (i) vt_text_put(out, ", ");
      vt_hlo_put_shape(out, attr->shapes[i], true);
    }
    vt_text_put(out, "}");
    break;
  case VT_HLO_ALIASES:
    put_aliases(out, attr);
    break;
  case VT_HLO_SHARDING:
    vt_hlo_put_sharding(out, attr->string);
    break;
  case VT_HLO_DICT:
    put_frontend(out, attr->dict);
    break;
  case VT_HLO_CONFIG:
    put_config(out, attr->string);
    break;
  case VT_HLO_HIDDEN:
  case VT_HLO_LITERAL:
    break;
  }
}

static void put_called(vt_text *out, const vt_hlo_instruction *instruction) {
  vt_hlo_computation **called = instruction->called;
  const char *opcode = instruction->opcode;
  if (!strcmp(opcode, "while"))
    vt_text_printf(out, ", condition=%%%s, body=%%%s", called[1]->name, called[0]->name);
  else if (!strcmp(opcode, "select-and-scatter"))
    vt_text_printf(out, ", select=%%%s, scatter=%%%s", called[0]->name, called[1]->name);
  else if (!strcmp(opcode, "conditional") && instruction->operands[0]->shape->type.dtype == VT_PRED)
    vt_text_printf(out, ", true_computation=%%%s, false_computation=%%%s", called[0]->name,
                   called[1]->name);
  else if (instruction->called_count &&
           (!strcmp(opcode, "conditional") || !strcmp(opcode, "custom-call"))) {
    vt_text_put(out, opcode[1] == 'o' ? ", branch_computations={" : ", called_computations={");
    for (uint32_t i = 0; i < instruction->called_count; i++)
      vt_text_printf(out, "%s%%%s", i ? ", " : "", called[i]->name);
    vt_text_put(out, "}");
  } else if (instruction->called_count) {
    vt_text_printf(out, ", to_apply=%%%s", called[0]->name);
  }
}

static void put_metadata(vt_text *out, const vt_loc *loc) {
  if (!loc->name[0] && !loc->file[0]) return;
  vt_text_put(out, ", metadata={");
  if (loc->name[0]) {
    vt_text_put(out, "op_name=");
    vt_hlo_put_quoted(out, (vt_string){loc->name, strlen(loc->name)});
  }
  if (loc->file[0]) {
    vt_text_put(out, loc->name[0] ? " source_file=" : "source_file=");
    vt_hlo_put_quoted(out, (vt_string){loc->file, strlen(loc->file)});
    vt_text_printf(out, " source_line=%d source_end_line=%d", loc->line, loc->line);
    if (loc->column)
      vt_text_printf(out, " source_column=%d source_end_column=%d", loc->column, loc->column);
  }
  vt_text_put(out, "}");
}

static void put_operands(vt_text *out, const vt_hlo_instruction *instruction, int64_t largest) {
  const vt_hlo_attr *first = instruction->attrs;
  if (first && first->field == VT_HLO_FIELD_PARAMETER_NUMBER)
    vt_text_printf(out, "%" PRId64, first->i64);
  if (first && first->field == VT_HLO_FIELD_LITERAL)
    vt_hlo_put_literal(out, first->literal, largest);
  for (uint32_t i = 0; i < instruction->operand_count; i++) {
    if (i) vt_text_put(out, ", ");
    if (i && i % 5 == 0) vt_text_printf(out, "/*index=%u*/", i);
    vt_text_printf(out, "%%%s", instruction->operands[i]->name);
  }
}

static void put_instruction(vt_text *out, const vt_hlo_instruction *instruction, bool root,
                            int64_t largest) {
  const vt_hlo_instruction *says = instruction; // whose attributes it shows
  vt_text_printf(out, "  %s%%%s = ", root ? "ROOT " : "", instruction->name);
  vt_hlo_put_shape(out, instruction->shape, true);
  bool async = !strncmp(instruction->opcode, "async-", 6);
  if (async) says = instruction->called[0]->root;
  vt_text_printf(out, " %s%s(", says->opcode, async ? instruction->opcode + 5 : "");
  put_operands(out, instruction, largest);
  vt_text_put(out, ")");
  if (!async || instruction->operand_count > 1) {
    const vt_hlo_attr *attr = says->attrs;
    for (; attr && attr->field < VT_HLO_FIELD_IS_COMPOSITE; attr = attr->next) put_attr(out, attr);
    if (!async) put_called(out, instruction);
    for (; attr && attr->field < VT_HLO_FIELD_BACKEND_CONFIG; attr = attr->next)
      put_attr(out, attr);
    put_metadata(out, instruction->loc);
    if (attr) put_attr(out, attr);
  } else {
    put_metadata(out, instruction->loc);
  }
  vt_text_put(out, "\n");
}

static void put_computation(vt_text *out, const vt_hlo_computation *computation, bool entry,
                            int64_t largest) {
  vt_text_printf(out, "%s%%%s (", entry ? "ENTRY " : "", computation->name);
  for (uint32_t i = 0; i < computation->param_count; i++) {
    vt_text_printf(out, "%s%s: ", i ? ", " : "", computation->params[i]->name);
    vt_hlo_put_shape(out, computation->params[i]->shape, false);
  }
  vt_text_put(out, ") -> ");
  vt_hlo_put_shape(out, computation->root->shape, false);
  vt_text_put(out, " {\n");
  for (const vt_hlo_instruction *i = computation->first; i; i = i->next)
    put_instruction(out, i, i == computation->root, largest);
  vt_text_put(out, "}\n\n");
}

static void put_header(vt_text *out, const vt_hlo *hlo) {
  vt_text_printf(out, "HloModule %s, is_scheduled=true", hlo->name);
  bool first = true;
  for (uint32_t i = 0; i < hlo->param_count; i++) {
    int32_t result = hlo->param_info[i].alias_output;
    if (result < 0) continue;
    vt_text_put(out, first ? ", input_output_alias={ " : ", ");
    first = false;
    if (hlo->result_count == 1)
      vt_text_printf(out, "{}: (%u, {}, may-alias)", i);
    else
      vt_text_printf(out, "{%d}: (%u, {}, may-alias)", result, i);
  }
  if (!first) vt_text_put(out, " }");
  first = true;
  for (uint32_t i = 0; i < hlo->param_count; i++) {
    if (!hlo->param_info[i].donated || hlo->param_info[i].alias_output >= 0) continue;
    vt_text_printf(out, "%s(%u, {})", first ? ", buffer_donor={ " : ", ", i);
    first = false;
  }
  if (!first) vt_text_put(out, " }");
  vt_text_put(out, ", entry_computation_layout={(");
  for (uint32_t i = 0; i < hlo->param_count; i++) {
    if (i) vt_text_put(out, ", ");
    if (i && i % 5 == 0) vt_text_printf(out, "/*index=%u*/", i);
    vt_hlo_put_shape(out, hlo->params[i], true);
  }
  vt_text_put(out, ")->");
  vt_hlo_put_shape(out, hlo->result, true);
  vt_text_put(out, "}");
  if (hlo->replicas > 1) vt_text_printf(out, ", replica_count=%d", hlo->replicas);
  if (hlo->partitions > 1) vt_text_printf(out, ", num_partitions=%d", hlo->partitions);
  vt_text_put(out, "\n\n");
}

void vt_hlo_print(const vt_hlo *hlo, int64_t largest, vt_text *out_text) {
  put_header(out_text, hlo);
  for (const vt_hlo_computation *c = hlo->first; c; c = c->next)
    if (!c->wrapper) put_computation(out_text, c, c == hlo->entry, largest);
}
