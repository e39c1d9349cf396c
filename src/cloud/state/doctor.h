// SPDX-License-Identifier: Apache-2.0
// doctor.h - the slice doctor: which hosts of a node run a program, of which versions, and what is
// wrong with it in one sentence. A program of a slice has to run on all of its hosts: started on
// some, it waits for the others for ever, and hosts of different versions stall.
#ifndef VT_CLOUD_DOCTOR_H
#define VT_CLOUD_DOCTOR_H

#include "cloud/state/holder.h"

typedef struct vt_verdict {
  const char *text;            // one sentence
  bool trouble;                // something is to be done about it
  int64_t waiting, waiting_ns; // a host that waits for hosts without a program, and since how long
} vt_verdict;

// On a READY node of so many workers; its text goes into `arena`.
vt_status vt_doctor_verdict(vt_cloud *cloud, vt_arena *arena, int64_t uid, int64_t workers,
                            vt_verdict *out_verdict) VT_CHECKED;
// A worker lives (metadata.c): `epoch` is its boot, 0 = not told, `text` what it has to say
// (health.h). What it should do, as lines, into `out_reply`. In a transaction of its own when it
// writes.
vt_status vt_doctor_beat(vt_cloud *cloud, vt_arena *arena, const vt_node *node, int64_t worker,
                         int64_t epoch, const char *text, vt_text *out_reply) VT_CHECKED;

#endif
