// SPDX-License-Identifier: Apache-2.0
// doctor.h - the slice doctor: which hosts of a node run a program, with which versions, and what
// is wrong in one sentence. A program of a slice has to run on all of its hosts: started on some,
// it waits for the others for ever, and hosts with different versions hang.
#ifndef VT_CLOUD_DOCTOR_H
#define VT_CLOUD_DOCTOR_H

#include "cloud/state/holder.h"

typedef struct vt_verdict {
  const char *text;            // one sentence
  bool trouble;                // needs action by the user
  int64_t waiting, waiting_ns; // a host that waits for hosts without a program, and since when
} vt_verdict;

// For a READY node with that many workers; its text is in `arena`.
vt_status vt_doctor_verdict(vt_cloud *cloud, vt_arena *arena, int64_t uid, int64_t workers,
                            vt_verdict *out_verdict) VT_CHECKED;
// A worker's heartbeat (metadata.c): `epoch` is its boot, 0 = not sent; `text` its symptoms
// (health.h). Writes the worker's instructions, one per line, to `out_reply`. Opens its own
// transaction when it writes.
vt_status vt_doctor_beat(vt_cloud *cloud, vt_arena *arena, const vt_node *node, int64_t worker,
                         int64_t epoch, const char *text, vt_text *out_reply) VT_CHECKED;

#endif
