// SPDX-License-Identifier: Apache-2.0
// launch_words_fuzz.c - any bytes of another process are a word or an error, and a word that is
// written again reads the same.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_word word;
  vt_status st = vt_word_read((vt_bytes){data, size}, &word);
  if (!st) {
    vt_text text = {0};
    uint64_t sum = 0;
    for (uint32_t p = 0; p < word.param_count; p++) sum += vt_word_agreed(&word, p);
    (void)sum;
    vt_word_write(&word, &text);
    if (text.size != size || memcmp(text.data, data, size)) abort();
    vt_text_free(&text);
  }
  vt_status_free(st);
  return 0;
}
