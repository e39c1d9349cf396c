// SPDX-License-Identifier: Apache-2.0
// metadata_fuzz.c - any bytes from the network are an answer of a metadata server or none; values
// and addresses lie within it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_within(vt_bytes part, vt_bytes whole) {
  if (part.size > whole.size || (part.size && part.data < whole.data)) abort();
  if (part.size && part.data + part.size > whole.data + whole.size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_bytes all = {data, size}, body = all, value;
  vt_text addresses = {0};
  if (vt_metadata_body(all, &body)) check_within(body, all);
  if (vt_metadata_value(body, "WORKER_ID", &value)) {
    check_within(value, body);
    if (value.size && memchr(value.data, '\n', value.size)) abort();
  }
  vt_metadata_addresses(body, &addresses);
  if (addresses.size > size) abort();
  vt_text_free(&addresses);
  return 0;
}
