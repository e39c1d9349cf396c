// SPDX-License-Identifier: Apache-2.0
// replay_self.c - a target without a parser: shows that replay.c passes whole inputs, including the
// empty one.
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char want[] = "ab";
  if (size > 2) abort();
  for (size_t i = 0; i < size; i++)
    if (data[i] != (uint8_t)want[i]) abort();
  return 0;
}
