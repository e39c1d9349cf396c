// SPDX-License-Identifier: Apache-2.0
// helper_check.c - decides which messages to the helper are valid. Plain libc; fuzzed by
// helper_fuzz.c.
#include <stddef.h>

#include "cloud/worker/helper.h"

enum { HEAD = offsetof(vt_helper_request, worker), WORKER = 1, LEVEL = 2, UID = 4, INDEX = 8 };

// The size of each kind of request, and its conditions.
static const struct kind {
  unsigned size, needs;
} kinds[VT_HELPER_OPS] = {[VT_HELPER_OPEN] = {HEAD, 0},
                          [VT_HELPER_START] = {sizeof(vt_helper_request), WORKER | LEVEL},
                          [VT_HELPER_POLL] = {HEAD, LEVEL | UID | INDEX},
                          [VT_HELPER_UP] = {HEAD, LEVEL | UID | INDEX},
                          [VT_HELPER_DISKS] = {sizeof(vt_helper_request), WORKER | LEVEL},
                          [VT_HELPER_STOP] = {HEAD, LEVEL | UID | INDEX},
                          [VT_HELPER_NOTIFY] = {HEAD, LEVEL | UID | INDEX},
                          [VT_HELPER_LIST] = {HEAD, LEVEL},
                          [VT_HELPER_OUTPUT] = {HEAD, LEVEL | UID | INDEX},
                          [VT_HELPER_LISTEN] = {HEAD, 0},
                          [VT_HELPER_DISK_LIST] = {HEAD, 0},
                          [VT_HELPER_DISK_REMOVE] = {HEAD, UID},
                          [VT_HELPER_CLOSE] = {HEAD, 0}};

size_t vt_helper_request_size(uint32_t op) {
  return op < VT_HELPER_OPS ? kinds[op].size : 0;
}

const char *vt_helper_check(const vt_helper_request *r, size_t size, int level) {
  if (size < sizeof r->op || !vt_helper_request_size(r->op)) return "no request";
  const struct kind *kind = &kinds[r->op];
  if (size != kind->size) return "a request of another size";
  if (kind->needs & LEVEL && level < 1) return "no level was opened";
  if (r->op == VT_HELPER_OPEN && (level >= 0 || r->level < 1 || r->level > 2))
    return "no level that can be opened";
  if (kind->needs & UID && r->uid <= 0) return "no such id";
  if (kind->needs & INDEX && r->index >= VT_WORKER_PEERS) return "no such worker";
  if (r->erase > 1 || r->port > 65535) return "a field out of range";
  return kind->needs & WORKER ? vt_worker_check(&r->worker, level) : NULL;
}
