// SPDX-License-Identifier: Apache-2.0
// hello_fuzz.c - any first bytes of a connection, as they arrive: more bytes are requested only
// while they can change the result, and a result never changes.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/door/door.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_hello before = VT_HELLO_SHORT;
  size_t wanted = 1;
  for (size_t n = 0; n <= size; n++) {
    size_t need = 0;
    // Byte by byte up to the record's length; then only where something can happen.
    if (n > 32 && n + 1 < wanted) n = wanted - 1;
    if (n > 32 && n > wanted) n = size;
    if (n > size) n = size;
    unsigned char *exact = malloc(n ? n : 1); // to detect overreads
    if (!exact) abort();
    memcpy(exact, data, n);
    vt_hello now = vt_hello_read(exact, n, &need);
    free(exact);
    if (before != VT_HELLO_SHORT && now != before) abort();
    if (now == VT_HELLO_SHORT && (need <= n || need > VT_HELLO_MAX)) abort();
    if (now == VT_HELLO_GRPC && n < wanted) abort(); // fewer bytes than requested
    before = now;
    if (now == VT_HELLO_SHORT) wanted = need;
  }
  return 0;
}
