// SPDX-License-Identifier: Apache-2.0
// proto_fuzz.c - any bytes are compile options or an error, and what was read is consistent.
#include <stdint.h>
#include <stdlib.h>

#include "pjrt/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_arena arena = {0};
  vt_compile_options options;
  vt_status st = vt_compile_options_read((vt_bytes){data, size}, &arena, &options);
  for (uint32_t i = 0; !st && i < options.device_count; i++)
    if (options.device_ids[i] < 0) abort();
  vt_status_free(st);
  vt_arena_free(&arena);
  return 0;
}
