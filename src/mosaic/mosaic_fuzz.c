// SPDX-License-Identifier: Apache-2.0
// mosaic_fuzz.c - any backend_config gives a verified kernel or an error. The input is the bytecode
// of a kernel, or a whole backend_config when it begins with a brace.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mosaic/mosaic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_base64(vt_text *text, const uint8_t *data, size_t size) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < size; i += 3) {
    uint32_t word = (uint32_t)data[i] << 16;
    if (i + 1 < size) word |= (uint32_t)data[i + 1] << 8;
    if (i + 2 < size) word |= data[i + 2];
    char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                    i + 1 < size ? digits[word >> 6 & 63] : '=',
                    i + 2 < size ? digits[word & 63] : '='};
    vt_text_put_n(text, four, 4);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_arena arena = {0};
  vt_text config = {0}, printed = {0};
  vt_mosaic *kernel;
  if (size && data[0] == '{') {
    vt_text_put_n(&config, data, size);
  } else {
    vt_text_put(&config, "{\"custom_call_config\": {\"body\": \"");
    put_base64(&config, data, size);
    vt_text_put(&config, "\", \"serialization_format\": 1}}");
  }
  vt_status st = vt_mosaic_read((vt_string){vt_text_string(&config), config.size}, &arena, &kernel);
  if ((st == VT_OK) != (kernel != NULL)) abort();
  if (kernel) vt_mosaic_print(kernel, &printed);
  vt_status_free(st);
  vt_text_free(&config);
  vt_text_free(&printed);
  vt_arena_free(&arena);
  return 0;
}
