// SPDX-License-Identifier: Apache-2.0
// peers_fuzz.c - any bytes from the network are a hello, a list of processes, a frame or an error,
// and what was read is written back as it was.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "distributed/hello.h"
#include "distributed/root.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hello(vt_bytes bytes) {
  vt_hello hello, again;
  uint8_t written[VT_HELLO_BYTES];
  (void)vt_hello_is_ours(bytes.data, bytes.size, "cookie");
  vt_status st = vt_hello_read(bytes, &hello);
  if (!st) {
    vt_hello_write(&hello, "cookie", written);
    if (!vt_hello_is_ours(written, sizeof written, "cookie")) abort();
    if (vt_hello_is_ours(written, sizeof written, "another")) abort();
    st = vt_hello_read((vt_bytes){written, sizeof written}, &again);
    if (st || again.index != hello.index || strcmp(again.machine, hello.machine)) abort();
  }
  vt_status_free(st);
}

static void check_root(const uint8_t *data, size_t size) {
  char text[VT_ROOT_VALUE];
  vt_root root;
  size_t n = size < sizeof text - 1 ? size : sizeof text - 1;
  if (n) memcpy(text, data, n);
  text[n] = 0;
  vt_status st = vt_root_read(text, &root);
  if (!st && (root.count < 1 || root.count > VT_ROOT_ADDRESSES)) abort();
  vt_status_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_member members[4];
  check_hello((vt_bytes){data, size});
  check_root(data, size);
  for (int32_t count = 1; count <= 4; count++) {
    vt_status st = vt_welcome_read((vt_bytes){data, size}, count, members);
    if (!st && strlen(members[count - 1].address.host) >= VT_HOST_NAME) abort();
    vt_status_free(st);
  }
  if (size >= VT_FRAME_BYTES) {
    vt_frame frame;
    uint8_t written[VT_FRAME_BYTES];
    vt_status st = vt_frame_read(data, &frame);
    vt_frame_write(frame, written);
    if (memcmp(written, data, sizeof written)) abort();
    vt_status_free(st);
  }
  return 0;
}
