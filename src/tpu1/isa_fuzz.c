// SPDX-License-Identifier: Apache-2.0
// isa_fuzz.c - hostile programs. First byte 0: the rest is machine code, which must be rejected or
// run the same way in both orders; 1: assembler text, which must be rejected or survive printing;
// otherwise: a seed for a random program with some damage.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tpu1/random.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_ok(vt_status st) {
  if (!st) return;
  fprintf(stderr, "%s\n", vt_status_message(st));
  abort();
}

static void try_text(vt_bytes text) {
  vt_tpu1_code code = {0}, again = {0};
  vt_text printed = {0};
  vt_status st = vt_tpu1_assemble(text, &code);
  if (!st) {
    for (size_t i = 0; i < code.size; i++) {
      vt_tpu1_print(&code.data[i], &printed);
      vt_text_put(&printed, "\n");
    }
    expect_ok(vt_tpu1_assemble((vt_bytes){(const uint8_t *)printed.data, printed.size}, &again));
    if (again.size != code.size ||
        (code.size && memcmp(again.data, code.data, sizeof *code.data * code.size)))
      abort();
  }
  vt_status_free(st);
  vt_array_free(&code);
  vt_array_free(&again);
  vt_text_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_tpu1_random_stats stats = {0};
  if (size == 0) return 0;
  if (data[0] == 0) {
    expect_ok(vt_tpu1_bytes_check(data + 1, size - 1, &stats));
  } else if (data[0] == 1) {
    try_text((vt_bytes){data + 1, size - 1});
  } else {
    uint64_t seed = 0;
    memcpy(&seed, data, size < sizeof seed ? size : sizeof seed);
    expect_ok(vt_tpu1_random_check(seed, data[0] % 8, &stats));
  }
  return 0;
}
