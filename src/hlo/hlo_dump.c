// SPDX-License-Identifier: Apache-2.0
// hlo_dump.c - for tests: programs as HLO text and as messages, without compiling them.
//
//   hlo_dump FILE ...    writes FILE.hlo and FILE.pb; a program without a form in HLO gets neither
#include <stdio.h>

#include "base/file.h"
#include "hlo/hlo.h"
#include "import/import.h"

static vt_status save(const char *path, const char *suffix, const vt_text *text) {
  vt_text name = {0};
  vt_text_printf(&name, "%s%s", path, suffix);
  FILE *file = fopen(vt_text_string(&name), "wb");
  size_t written = file ? fwrite(text->data, 1, text->size, file) : 0;
  bool good = file && !fclose(file) && written == text->size;
  vt_status st = good ? VT_OK : vt_error(VT_UNKNOWN, "%s: not written", vt_text_string(&name));
  vt_text_free(&name);
  return st;
}

static vt_status dump(const char *path) {
  vt_status st = VT_OK;
  vt_bytes bytes = {0};
  vt_module *module = NULL;
  vt_hlo *hlo = NULL;
  vt_text text = {0}, message = {0};
  vt_hlo_options options = {0};
  VT_TRY_OUT(vt_file_map(path, &bytes));
  VT_TRY_OUT(vt_import(bytes, &module));
  VT_TRY_OUT(vt_hlo_build(module, &options, &hlo));
  vt_hlo_print(hlo, VT_HLO_SHORT, &text);
  vt_hlo_write(hlo, &message);
  VT_TRY_OUT(save(path, ".hlo", &text));
  VT_TRY_OUT(save(path, ".pb", &message));
out:
  vt_text_free(&text);
  vt_text_free(&message);
  vt_hlo_destroy(hlo);
  vt_module_destroy(module);
  vt_file_unmap(&bytes);
  return st;
}

int main(int argc, char **argv) {
  int failed = 0;
  for (int i = 1; i < argc; i++) {
    vt_status st = dump(argv[i]);
    if (!st) continue;
    fprintf(stderr, "%s: %s\n", argv[i], vt_status_message(st));
    vt_status_free(st);
    failed = 1;
  }
  return failed;
}
