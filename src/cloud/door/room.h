// SPDX-License-Identifier: Apache-2.0
// room.h - the connection slots of a server: how many there are in total and per address, which
// connection is closed when they are taken, and which has been slow for too long. A slot is one
// descriptor; ending it shuts it down, closing it is left to its owner.
#ifndef VT_CLOUD_ROOM_H
#define VT_CLOUD_ROOM_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"

typedef struct vt_place {
  struct vt_place *next, **at; // at: the pointer that points here
  int fd;
  uint32_t peer;       // IPv4 address, as in sockaddr_in
  bool busy;           // we work for it: it is neither closed for room nor slow
  bool receives;       // waits for the client's bytes
  bool ended;          // shut down, but not closed by its owner yet
  int64_t left_ns;     // the client has closed its side, 0 = not yet
  int64_t deadline_ns; // of the client, 0 = none
  int64_t since_ns;    // start of its current activity: the oldest is closed first
  size_t unread;       // bytes of a reply that the client has not read yet
  // A call that waits for a change of the cloud (the library's connection, NULL = none).
  void *waits;
  uint64_t seen;    // the cloud's count of changes
  int64_t until_ns; // no longer waiting
  bool hurry;       // it may not wait again
} vt_place;

typedef struct vt_room {
  pthread_mutex_t lock; // protects everything here
  vt_place *places;
  size_t count, open; // open: not ended
  size_t max, max_of_one;
  size_t unread; // of all places
  VT_ARRAY(vt_place *) by_fd;
} vt_room;

void vt_room_init(vt_room *room, size_t max, size_t max_of_one);
void vt_room_fini(vt_room *room); // the remaining places are ended
// A place for a new connection; false when all are busy. May end another one.
bool vt_room_enter(vt_room *room, int fd, uint32_t peer, int64_t deadline_ns);
vt_place *vt_room_find(vt_room *room, int fd); // under the lock; NULL when it has none
void vt_room_leave(vt_room *room, int fd);     // before the descriptor is closed, or right after
size_t vt_room_end_all(vt_room *room);         // how many have not been closed yet
// Ends those past their deadline. Under the lock.
void vt_room_sweep(vt_room *room, int64_t now_ns);

// Under the lock. The place holds a reply of that size; 0 = no longer.
void vt_room_hold(vt_room *room, vt_place *place, size_t bytes);
// Under the lock. Whether there is room for one more reply to this client; the total may first have
// to shrink.
bool vt_room_may_reply(vt_room *room, const vt_place *place);

// How many of `want` the descriptors of this process allow, in `parts` of a hundred.
size_t vt_room_share(size_t want, int parts);

// accept(2) for a listener that must keep going: without descriptors the connection is accepted and
// closed, so that its loop neither spins nor hangs. `spare` is a descriptor reserved for that
// (start with -1). -1 when there is no connection.
int vt_accept(int listener, struct sockaddr_in *out_from, int *spare);

#endif
