// SPDX-License-Identifier: Apache-2.0
// slurm.h - Slurm through its command-line tools: jobs, hosts, submit, cancel. Every function runs
// a tool and waits for it; an error has the tool's message.
#ifndef VT_CLOUD_SLURM_H
#define VT_CLOUD_SLURM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"
#include "base/text.h"

typedef enum vt_slurm_state {
  VT_SLURM_WAITING, // in the queue
  VT_SLURM_RUNNING,
  VT_SLURM_LEAVING, // over, but its processes may not be
  VT_SLURM_ENDED,   // by itself, by us, by a limit
  VT_SLURM_FAILED,  // with an exit code
  VT_SLURM_LOST,    // together with its host
  VT_SLURM_TAKEN,   // preempted by Slurm
} vt_slurm_state;

typedef struct vt_slurm_job {
  int64_t id, uid, worker;
  bool clean; // removes the disk of a worker; the others are workers
  vt_slurm_state state;
  char host[128], reason[64], comment[256];
} vt_slurm_job;

typedef struct vt_slurm_host {
  char name[128], address[64]; // address: IPv4, "" when its name is not known here
  bool up;
} vt_slurm_host;

typedef VT_ARRAY(vt_slurm_job) vt_slurm_jobs;
typedef VT_ARRAY(vt_slurm_host) vt_slurm_hosts;

// Jobs of this cloud are named vtpu-TAG-UID-WORKER, and vtpu-TAG-UID-WORKER-clean.
void vt_slurm_job_name(const char *tag, int64_t uid, int64_t worker, bool clean, char out[96]);

// Parses a line "id|state|host|reason|name|comment" of squeue; false when the job is not one of
// ours.
bool vt_slurm_parse_job(const char *line, const char *tag, vt_slurm_job *out_job);

// Runs a tool. Kills it after 30 s, or on *stop.
vt_status vt_slurm_run(const atomic_bool *stop, const char *const *argv, const char *input,
                       vt_text *out_text) VT_CHECKED;
// Our jobs with that tag, including those that ended a few minutes ago.
vt_status vt_slurm_list_jobs(const atomic_bool *stop, const char *tag,
                             vt_slurm_jobs *out_jobs) VT_CHECKED;
vt_status vt_slurm_list_hosts(const atomic_bool *stop, vt_slurm_hosts *out_hosts) VT_CHECKED;
vt_status vt_slurm_cancel(const atomic_bool *stop, int64_t job) VT_CHECKED;

#endif
