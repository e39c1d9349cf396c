// SPDX-License-Identifier: Apache-2.0
// shared.h - memory that processes of one host share: lanes that carry pieces of blocks, and bells
// that wake whoever waits for one.
//
// Each process makes one segment: its bell, and a lane to each other process. It has no name in any
// file system, so nothing stays when its processes have ended, however they do. The others open it
// through /proc, which allows that to the same user only, and by a secret that the connection told
// them. What another process writes there is not trusted: sizes are checked, and the segment cannot
// shrink.
// Threads: one sends and one receives on a lane; bells are rung by any.
#ifndef VT_DISTRIBUTED_SHARED_H
#define VT_DISTRIBUTED_SHARED_H

#include <stdbool.h>

#include "base/file.h"

enum { VT_LANE_PIECES = 2, VT_PIECE_BYTES = 1 << 20, VT_SECRET_BYTES = 16 };

typedef struct vt_bell vt_bell;
typedef struct vt_lane vt_lane;

// What a process tells the others about its segment. pid 0: it shares none.
typedef struct vt_offer {
  uint32_t pid, fd;
  uint8_t secret[VT_SECRET_BYTES];
} vt_offer;
enum { VT_OFFER_BYTES = 8 + VT_SECRET_BYTES };
void vt_offer_write(const vt_offer *offer, uint8_t out_bytes[VT_OFFER_BYTES]);
vt_offer vt_offer_read(const uint8_t bytes[VT_OFFER_BYTES]);

// As much of a segment as this process uses.
typedef struct vt_segment {
  int fd; // of the one that made it; -1
  vt_bell *bell;
  vt_lane *lanes; // [count]; of another's segment: the one to this process
  size_t lane_count;
} vt_segment;
#define VT_NO_SEGMENT ((vt_segment){.fd = -1})

// For `count` processes. 0, or memory cannot be shared here: a bell only, and no offer.
vt_status vt_segment_create(int32_t count, vt_segment *out_segment, vt_offer *out_offer) VT_CHECKED;
vt_lane *vt_segment_lane(const vt_segment *segment, int32_t index);
// Of another process; `index` is this one's number. errors UNAVAILABLE: with the cause
vt_status vt_segment_open(const vt_offer *offer, int32_t index, vt_segment *out_segment) VT_CHECKED;
void vt_segment_hide(vt_segment *segment); // nobody opens it from here on
void vt_segment_close(vt_segment *segment);

// ---- bells --------------------------------------------------------------------------------------

uint32_t vt_bell_state(vt_bell *bell);
void vt_bell_ring(vt_bell *bell);
// Until it has been rung since it had this state, at most a second. One thread of its owner.
void vt_bell_wait(vt_bell *bell, uint32_t state);

// ---- lanes --------------------------------------------------------------------------------------

// A piece of the block of `total` bytes that a process gives another in a meeting of a run.
typedef struct vt_lane_piece {
  uint64_t group, number, meeting, total, at, size;
} vt_lane_piece;

// Where the next piece is put; NULL: the lane is full.
uint8_t *vt_lane_room(vt_lane *lane);
void vt_lane_push(vt_lane *lane, const vt_lane_piece *piece);
// The oldest piece, NULL: none. *out_piece is checked: `size` bytes lie there, within `total`.
// Nonsense reads as a piece of run 0, which nobody waits for.
const uint8_t *vt_lane_front(vt_lane *lane, vt_lane_piece *out_piece);
// The oldest piece is done with. True: the sender may wait for that.
bool vt_lane_pop(vt_lane *lane);

#endif
