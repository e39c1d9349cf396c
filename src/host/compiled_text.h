// SPDX-License-Identifier: Apache-2.0
// compiled_text.h - for tests: a program in text on the evaluator or in generated code.
#ifndef VT_HOST_COMPILED_TEXT_H
#define VT_HOST_COMPILED_TEXT_H

#include "host/host.h"
#include "import/import.h"

// Takes the text. Fails the test where it does not compile.
static inline vt_program *compiled_text(vt_text *text, bool evaluator) {
  vt_module *module = NULL;
  vt_program *program = NULL;
  vt_host_options options = {
      .device_count = 1, .evaluator_only = evaluator, .compile_all = !evaluator};
  vt_status st = vt_import((vt_bytes){(const uint8_t *)vt_text_string(text), text->size}, &module);
  if (!st) st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s\n%s", vt_status_message(st), vt_text_string(text));
  vt_text_free(text);
  return program;
}

static inline void run_pair(vt_program *program, void *x, void *y, void *out) {
  vt_status st =
      vt_program_run(program, &(vt_run){.params = (void *[]){x, y}, .results = (void *[]){out}});
  if (st) fail_msg("%s", vt_status_message(st));
}

#endif
