// SPDX-License-Identifier: Apache-2.0
// text.c - programs as StableHLO text with a first line of inputs.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "import/import.h"
#include "program.h"

static const char *const style_text[] = {
#define STYLE(name, text) text,
    VALUE_STYLES(STYLE)
#undef STYLE
};

void program_print(const program *p, vt_text *out) {
  vt_text_put(out, "// inputs:");
  for (uint32_t i = 0; i < p->module->main->param_count; i++) {
    const program_input *in = &p->inputs[i];
    vt_text_printf(out, " %s:%" PRIu64, style_text[in->style], in->stream);
    if (in->style == VALUE_RANGE) vt_text_printf(out, ":%" PRId64 ":%" PRId64, in->low, in->high);
  }
  vt_text_put(out, "\n");
  vt_module_print(p->module, -1, out);
}

static bool parse_input(const char *word, program_input *out) {
  char name[16];
  int used = 0;
  *out = (program_input){0};
  if (sscanf(word, "%15[a-z]:%" SCNu64 "%n", name, &out->stream, &used) != 2) return false;
  for (out->style = 0; out->style < VALUE_STYLE_COUNT; out->style++)
    if (!strcmp(name, style_text[out->style])) break;
  if (out->style == VALUE_STYLE_COUNT) return false;
  return out->style != VALUE_RANGE ||
         sscanf(word + used, ":%" SCNd64 ":%" SCNd64, &out->low, &out->high) == 2;
}

static vt_status parse_inputs(const char *text, size_t size, program_input *inputs,
                              uint32_t *out_count) {
  static const char head[] = "// inputs:";
  const char *line = memmem(text, size, head, sizeof head - 1), *end = text + size;
  *out_count = 0;
  if (!line) return vt_error(VT_INVALID_ARGUMENT, "the file has no line '// inputs: ...'");
  for (line += sizeof head - 1; line < end && *line == ' ';) {
    while (line < end && *line == ' ') line++;
    char word[80] = "";
    size_t n = 0;
    while (line < end && *line != ' ' && *line != '\n' && n + 1 < sizeof word) word[n++] = *line++;
    if (!n) break;
    if (*out_count == PROGRAM_MAX_INPUTS || !parse_input(word, &inputs[*out_count]))
      return vt_error(VT_INVALID_ARGUMENT, "'%s' describes no input", word);
    ++*out_count;
  }
  return VT_OK;
}

vt_status program_parse(const char *text, size_t size, program *out_program) {
  uint32_t count;
  *out_program = (program){0};
  VT_TRY(parse_inputs(text, size, out_program->inputs, &count));
  VT_TRY(vt_import((vt_bytes){(const void *)text, size}, &out_program->module));
  if (out_program->module->main->param_count == count) return VT_OK;
  program_destroy(out_program);
  return vt_error(VT_INVALID_ARGUMENT, "the line of inputs has another number than main");
}
