// SPDX-License-Identifier: Apache-2.0
// transfer.h - how a running program exchanges tensors with its host (send, recv, infeed, outfeed),
// and with the same program in other processes (collectives).
#ifndef VT_IR_TRANSFER_H
#define VT_IR_TRANSFER_H

#include "base/file.h"
#include "base/queue.h"
#include "ir/type.h"

// A host callback: `send` passes a tensor to the host, `recv` fills one in. Called on the running
// thread, in token order. `device` is a position in the device assignment, `channel` the channel id
// of the op.
typedef struct vt_host_transfer {
  void *user;
  vt_status (*send)(void *user, int32_t device, int64_t channel, vt_type type, const void *data);
  vt_status (*recv)(void *user, int32_t device, int64_t channel, vt_type type, void *data);
} vt_host_transfer;

// One device's part in a collective: what it gives to the others that take part, and takes of them.
// Others are named by their places in the device assignment; whoever names one is named by it.
typedef struct vt_meet {
  int32_t count;         // of the others
  const int32_t *places; // [count]
  uint32_t spans;        // what each is given, one behind the other
  bool alike;            // all are given the same
  const vt_bytes *give;  // [count][spans]; alike: [spans]
  const size_t *take;    // [count] bytes of each
  const void **taken;    // [count] out: where they lie until the next meeting
} vt_meet;

// One meeting at a time; the n-th of two devices is the same op in both.
typedef struct vt_meetings {
  void *user;
  vt_status (*meet)(void *user, const vt_meet *meet);
  vt_queue *queue; // for collectives that go on beside other steps; NULL: none does
  bool far;        // some of the others are on other hosts
} vt_meetings;

#endif
