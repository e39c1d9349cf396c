// SPDX-License-Identifier: Apache-2.0
// ucx.h - large bodies of messages by UCX, which takes RDMA where the hosts have it.
//
// libucp is loaded when a job asks for it (VTPU_TRANSPORT=ucx), with its signal handlers and memory
// hooks switched off. Bodies find their receiver by a tag that only the two processes know; order,
// and who is alive, are the stream's business.
// Threads: one at a time.
#ifndef VT_DISTRIBUTED_UCX_H
#define VT_DISTRIBUTED_UCX_H

#include <stdbool.h>

#include "base/file.h"

typedef struct vt_ucx vt_ucx;

enum { VT_UCX_ADDRESS_MOST = 4064, VT_UCX_OFFER_BYTES = VT_UCX_ADDRESS_MOST + 16 };

// For `count` processes. errors UNAVAILABLE: the library cannot be loaded, or finds no network
vt_status vt_ucx_create(int32_t count, vt_ucx **out_ucx) VT_CHECKED;
void vt_ucx_destroy(vt_ucx *ucx); // accepts NULL; nothing may be under way

// What process `peer` is told: where this one is, and the first tag of what it sends. Nothing
// where there is no `ucx`.
void vt_ucx_offer(const vt_ucx *ucx, int32_t peer, uint8_t out_bytes[VT_UCX_OFFER_BYTES]);
// errors INVALID_ARGUMENT, UNAVAILABLE
vt_status vt_ucx_connect(vt_ucx *ucx, int32_t peer,
                         const uint8_t theirs[VT_UCX_OFFER_BYTES]) VT_CHECKED;
// Before this process says goodbye: what it sent has left it, or `limit_s` have passed.
void vt_ucx_flush(vt_ucx *ucx, double limit_s);

// ---- bodies -------------------------------------------------------------------------------------

typedef enum vt_ucx_state { VT_UCX_UNDER_WAY, VT_UCX_DONE, VT_UCX_FAILED } vt_ucx_state;
typedef struct vt_ucx_transfer {
  void *request; // NULL: `state` is final
  vt_ucx_state state;
  size_t takes; // bytes that are received; 0: it sends
} vt_ucx_transfer;

// The n-th body that goes to, or comes from, this peer. Its bytes are used until it is no longer
// under way.
vt_ucx_transfer vt_ucx_send(vt_ucx *ucx, int32_t to, uint64_t n, vt_bytes body);
vt_ucx_transfer vt_ucx_receive(vt_ucx *ucx, int32_t from, uint64_t n, uint8_t *body, size_t size);
vt_ucx_state vt_ucx_look(vt_ucx *ucx, vt_ucx_transfer *transfer);
// Ends what is under way with a peer that is gone. False: UCX does not let go of the bytes, which
// must then never be freed.
bool vt_ucx_end(vt_ucx *ucx, int32_t peer, vt_ucx_transfer *transfer);

// ---- progress -----------------------------------------------------------------------------------

void vt_ucx_progress(vt_ucx *ucx);
// Readable when there is something to do. Sleep on it after vt_ucx_may_sleep only.
int vt_ucx_descriptor(const vt_ucx *ucx);
bool vt_ucx_may_sleep(vt_ucx *ucx);

#endif
