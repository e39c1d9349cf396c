// SPDX-License-Identifier: Apache-2.0
// run_job.h - one run of a program, from the call to its end: execute.c makes and runs it,
// crossing.c gets its arguments from other processes.
#ifndef VT_RUNTIME_RUN_JOB_H
#define VT_RUNTIME_RUN_JOB_H

#include "runtime/runtime_internal.h"

// A device's part of an argument.
typedef struct vt_piece {
  vt_storage *from;
  const int64_t *dims; // of the shard; in the executable
  const int64_t *to;   // offset in the whole array; in the executable, NULL = origin
  int64_t partial, to_partial;
  int64_t *offset;  // in `from`; behind the pieces
  int32_t position; // of the device
} vt_piece;

typedef struct vt_argument {
  vt_storage *storage; // the whole array; filled by the job when it is gathered
  vt_event *gathered;  // of a storage that is; NULL = complete as it is
  uint32_t piece_count;
  vt_piece *pieces;
  bool donated;
} vt_argument;

// The pieces of an argument that is not gathered are those that other processes may ask for.
struct vt_run_job {
  vt_job base;
  vt_executable *executable;
  vt_event *done;
  vt_client *client; // retained while the run waits for the client
  int32_t device;    // the only one of this run, -1 = as assigned
  vt_transfer_calls transfer;
  bool has_transfer;
  vt_waiter waiter;  // for the client
  vt_status refused; // set when it could not be queued
  vt_launch *launch; // over several processes, NULL = all devices are here
  uint32_t param_count, result_count;
  vt_argument *arguments;
  vt_storage **results;
  void **param_data, **result_data;
  uint64_t *versions; // of the parameters: the numbers of their storages
};

// Gathers `arg` into a new storage, from its pieces.
vt_status vt_argument_gather(const vt_io *io, vt_argument *arg) VT_CHECKED;
void vt_argument_drop_pieces(vt_argument *arg);
int64_t vt_io_partial(const vt_io *io, int32_t position);
// Queues the run when the arguments that the client has yet to fill are there.
void vt_run_job_go(vt_run_job *job);

#endif
