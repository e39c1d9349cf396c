// SPDX-License-Identifier: Apache-2.0
// peers.h - the other processes of this slice: a connection to each, messages, and who is gone.
//
// vt_peers_join blocks until all are there. Afterwards one thread receives, sends what the sockets
// did not take at once, and notices who died (end of the stream) or hangs (no sign of life).
// Threads: send from any; the functions of the handler are called on that thread, one at a time.
#ifndef VT_DISTRIBUTED_PEERS_H
#define VT_DISTRIBUTED_PEERS_H

#include "base/file.h"
#include "distributed/join.h"
#include "distributed/shared.h"

typedef struct vt_peers vt_peers;

typedef struct vt_peers_handler {
  void *user;
  // The head of a message is here; whether a body of `size` bytes may follow. False ends the
  // connection.
  bool (*expects)(void *user, int32_t from, vt_bytes head, uint64_t size);
  // True: it keeps the body, and frees it.
  bool (*message)(void *user, int32_t from, vt_bytes head, vt_bytes body);
  void (*lost)(void *user, int32_t peer, vt_status why); // takes `why`; once for each peer
  void (*tick)(void *user);                              // about once a second
} vt_peers_handler;

// What decides the bits of results, and who this is: compared between all processes.
typedef struct vt_peers_self {
  const char *slice, *version, *machine;
} vt_peers_self;

// errors DEADLINE_EXCEEDED: names who did not come; FAILED_PRECONDITION: names two processes that
// do not fit together; UNAVAILABLE: an address cannot be used, or process 0 went
vt_status vt_peers_join(const vt_join *join, const vt_peers_self *self,
                        vt_peers **out_peers) VT_CHECKED;
// Starts the thread. `handler` is copied.
vt_status vt_peers_start(vt_peers *peers, const vt_peers_handler *handler) VT_CHECKED;
// "process 3 (host d)"; constant
const char *vt_peers_name(const vt_peers *peers, int32_t peer);

// This process's own, which those that share memory with it ring, too.
vt_bell *vt_peers_bell(const vt_peers *peers);
// Shared with a process of the same host, in both directions: `to` and `from` it, and its bell.
typedef struct vt_lanes {
  vt_lane *to, *from;
  vt_bell *bell;
} vt_lanes;
// NULL: it is on another host, or one of the two cannot share. Both processes have the same answer.
const vt_lanes *vt_peers_lanes(const vt_peers *peers, int32_t peer);

// Called once when the message is on its way, or will never be: then with the error, to be freed.
typedef void (*vt_peers_sent)(void *user, vt_status error);
// Copies `head` (at least one byte) and borrows `body` until `sent`, which may be called before
// this returns. NULL `sent`: the body is copied, too.
void vt_peers_send(vt_peers *peers, int32_t to, vt_bytes head, vt_bytes body, vt_peers_sent sent,
                   void *user);
// Says goodbye, after what was sent; the handler is not called again. Accepts NULL.
void vt_peers_leave(vt_peers *peers);

#endif
