// SPDX-License-Identifier: Apache-2.0
// mosaic_fuzz.c - reads kernels and interprets them.
#include "mosaic/mosaic_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return fuzz_kernel(data, size, &(fuzz_way){0});
}
