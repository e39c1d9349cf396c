// SPDX-License-Identifier: Apache-2.0
// helper.h - the requests that the unprivileged process of the daemon may send to the helper, the
// process that has the host's privileges (`vtpu-guest host`, helper_serve.c), and the protocol
// between them.
//
// A message each way is one request and its reply, over a SOCK_SEQPACKET pair created before
// privileges were dropped. Requests are numbers and checked names (worker.h): no path, no command,
// no pid, no environment. The helper builds paths from numbers, below its own folders; it starts
// only itself and the tools that helper_host.c names. Each side ends when the other one does.
#ifndef VT_CLOUD_HELPER_H
#define VT_CLOUD_HELPER_H

#include "cloud/worker/worker.h"

typedef enum vt_helper_op {
  VT_HELPER_OPEN = 1,    // level: whether this host can have guests of that level; once, first
  VT_HELPER_START,       // worker: boots it
  VT_HELPER_POLL,        // uid, index: flags, and in `text` why it did not boot
  VT_HELPER_UP,          // uid, index: it was seen to be ready
  VT_HELPER_DISKS,       // worker: makes its disks match
  VT_HELPER_STOP,        // uid, index, erase: flags say whether everything is gone
  VT_HELPER_NOTIFY,      // uid, index: notifies it of its coming end
  VT_HELPER_LIST,        // ids: guests that have a folder
  VT_HELPER_OUTPUT,      // uid, index: a descriptor for reading its log
  VT_HELPER_LISTEN,      // ip, port: a descriptor of a socket listening there
  VT_HELPER_DISK_LIST,   // ids: data disks that have a folder
  VT_HELPER_DISK_REMOVE, // uid of the disk
  VT_HELPER_CLOSE,       // the last request, at an orderly shutdown
  VT_HELPER_OPS
} vt_helper_op;

typedef struct vt_helper_request {
  uint32_t op, index;
  int64_t uid;
  uint32_t level, erase, ip, port;
  vt_worker worker; // START and DISKS only: other messages end before it
} vt_helper_request;

enum {                    // flags of a reply
  VT_HELPER_RUNS = 1,     // its first process is running
  VT_HELPER_LAUNCHES = 2, // the launcher is running
  VT_HELPER_FRESH = 4,    // started a moment ago
  VT_HELPER_FAILED = 8,   // it did not boot; `text` says why
  VT_HELPER_WAS_UP = 16,
  VT_HELPER_GONE = 32
};
enum { VT_HELPER_IDS = 8192 };

typedef struct vt_helper_id {
  int64_t uid;
  int64_t index;
} vt_helper_id;

typedef struct vt_helper_reply {
  int32_t code; // of status.h, 0 = done; `text` says what went wrong
  uint32_t flags, count;
  char text[484];
  vt_helper_id ids[VT_HELPER_IDS]; // messages end after the last one
} vt_helper_reply;

// NULL, or what is wrong with the first `size` bytes of a request; `level` is that of OPEN, -1 =
// none yet.
const char *vt_helper_check(const vt_helper_request *request, size_t size, int level);
size_t vt_helper_request_size(uint32_t op); // 0: no such op

#endif
