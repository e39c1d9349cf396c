// SPDX-License-Identifier: Apache-2.0
// slurm_driver.h - the parts of the Slurm back end: what the reconciler calls (slurm_driver.c), and
// the thread that alone talks to Slurm (slurm_thread.c). They share slots, one a worker.
#ifndef VT_CLOUD_SLURM_DRIVER_H
#define VT_CLOUD_SLURM_DRIVER_H

#include <pthread.h>

#include "cloud/control/guest.h"
#include "cloud/control/slurm.h"

// What is wanted of a worker, and what is known of its job.
typedef struct vt_slurm_slot {
  int64_t uid, worker;
  char ip[32];
  unsigned project;       // number of its project, in packet rules
  char *script, pin[128]; // a job to submit, and the host it has to be on ("" = any)
  bool spot, submitting;
  int64_t job, forgotten; // its newest job, 0 = none; older ones up to `forgotten` are of the past
  vt_slurm_state state;
  char host[128], reason[64], comment[256];
  bool up;             // it has answered
  bool ending, notice; // to cancel; to be told that its end is near
  bool dropped;        // goes when its route is gone
  enum { VT_DISK_KEEP, VT_DISK_ERASE, VT_DISK_ERASED } disk;
  char erase_host[128];
  char placed[64]; // where the hub sends its packets, "" = nowhere, "-" = on this host
  int64_t waiting_ns, cancelled_ns;
} vt_slurm_slot;

typedef struct vt_slurm_driver {
  vt_guest_driver base;
  vt_cloud *cloud;
  struct vt_metadata_server *metadata;
  char tag[16], launcher[4096];
  pthread_t thread;
  bool threaded;
  atomic_bool stop;
  pthread_mutex_t lock; // taken after the cloud's; what follows is under it
  pthread_cond_t wake;
  bool known, lost, busy, poked; // Slurm answered once; it does not now; look again soon; at once
  VT_ARRAY(vt_slurm_slot) slots;
  vt_slurm_jobs jobs; // as last seen
  vt_slurm_hosts hosts;
} vt_slurm_driver;

void *vt_slurm_thread(void *driver);
// Under the driver's lock. The slot of a worker, made from its jobs when it is not there.
vt_slurm_slot *vt_slurm_slot_of(vt_slurm_driver *d, int64_t uid, int64_t worker);
bool vt_slurm_live(const vt_slurm_slot *slot); // its job waits, runs, or leaves
int64_t vt_slurm_clock(void);
// A script that removes the disk of a worker on the host where it runs.
void vt_slurm_clean_script(const vt_slurm_driver *d, int64_t uid, int64_t worker, vt_text *out);

#endif
