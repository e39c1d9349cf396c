// SPDX-License-Identifier: Apache-2.0
// transfer.h - how a running program exchanges tensors with its host (send, recv, infeed, outfeed).
#ifndef VT_IR_TRANSFER_H
#define VT_IR_TRANSFER_H

#include "ir/type.h"

// A host callback: `send` passes a tensor to the host, `recv` fills one in. Called on the running
// thread, in token order. `device` is a position in the device assignment, `channel` the channel id
// of the op.
typedef struct vt_host_transfer {
  void *user;
  vt_status (*send)(void *user, int32_t device, int64_t channel, vt_type type, const void *data);
  vt_status (*recv)(void *user, int32_t device, int64_t channel, vt_type type, void *data);
} vt_host_transfer;

#endif
