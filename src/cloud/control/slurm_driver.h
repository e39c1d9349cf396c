// SPDX-License-Identifier: Apache-2.0
// slurm_driver.h - the two parts of the Slurm back end: the functions that the reconciler calls
// (slurm_driver.c), and the only thread that talks to Slurm (slurm_thread.c). They share slots, one
// per worker.
#ifndef VT_CLOUD_SLURM_DRIVER_H
#define VT_CLOUD_SLURM_DRIVER_H

#include <pthread.h>

#include "cloud/control/guest.h"
#include "cloud/control/slurm.h"

// The wanted state of a worker, and the known state of its job.
typedef struct vt_slurm_slot {
  int64_t uid, worker;
  char ip[32];
  unsigned project;       // number of its project, in packet rules
  char *script, pin[128]; // a job to submit, and its required host ("" = any)
  bool spot, submitting;
  int64_t job, forgotten; // its newest job, 0 = none; older ones up to `forgotten` are ignored
  vt_slurm_state state;
  char host[128], reason[64], comment[256];
  bool up;             // it has answered
  bool ending, notice; // to cancel; to notify of its end
  bool dropped;        // removed once its route is gone
  enum { VT_DISK_KEEP, VT_DISK_ERASE, VT_DISK_ERASED } disk;
  char erase_host[128];
  char placed[64]; // where the hub sends its packets, "" = nowhere, "-" = on this host
  int64_t waiting_ns, cancelled_ns;
  uint64_t told; // where its host knows the other workers of its node to be, as a hash; 0 = nowhere
  int64_t told_ns;
} vt_slurm_slot;

typedef struct vt_slurm_driver {
  vt_guest_driver base;
  vt_cloud *cloud;
  struct vt_metadata_server *metadata;
  char tag[16], launcher[4096];
  pthread_t thread;
  bool threaded;
  atomic_bool stop;
  pthread_mutex_t lock; // taken after the cloud's lock; protects what follows
  pthread_cond_t wake;
  bool known, lost, busy, poked; // Slurm answered once; it does not now; poll again soon; at once
  VT_ARRAY(vt_slurm_slot) slots;
  vt_slurm_jobs jobs; // as last seen
  vt_slurm_hosts hosts;
} vt_slurm_driver;

void *vt_slurm_thread(void *driver);
// Under the driver's lock. The slot of a worker, created from its jobs if missing.
vt_slurm_slot *vt_slurm_slot_of(vt_slurm_driver *d, int64_t uid, int64_t worker);
bool vt_slurm_live(const vt_slurm_slot *slot); // its job waits, runs, or is ending
int64_t vt_slurm_clock(void);
// A script that removes a worker's disk on the host where it runs.
void vt_slurm_clean_script(const vt_slurm_driver *d, int64_t uid, int64_t worker, vt_text *out);

#endif
