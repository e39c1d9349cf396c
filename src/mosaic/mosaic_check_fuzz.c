// SPDX-License-Identifier: Apache-2.0
// mosaic_check_fuzz.c - reads kernels and interprets them with checks (mosaic_check.h).
#include "mosaic/mosaic_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return fuzz_kernel(data, size, &(fuzz_way){.check_seed = 1 + size % 7}); // orders of copies
}
