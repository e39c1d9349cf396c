// SPDX-License-Identifier: Apache-2.0
// join.h - which process of a slice this is: read from the environment that launchers, TPU VMs and
// users set, as hostile input. Nothing here opens a socket.
//
// Sources, first match (README.md has the table): TPU_PROCESS_BOUNDS=1,1,1 is alone;
// TPU_PROCESS_ADDRESSES; TPU_WORKER_HOSTNAMES; MEGASCALE_*; Slurm; Open MPI; the framework's store;
// none is alone.
#ifndef VT_DISTRIBUTED_JOIN_H
#define VT_DISTRIBUTED_JOIN_H

#include "base/arena.h"
#include "base/store.h"
#include "chip/chip.h"

enum { VT_PROCESSES_MOST = 1024, VT_PROCESS_PORT = 8471, VT_HOST_NAME = 256 };

typedef struct vt_address {
  char host[VT_HOST_NAME];
  int32_t port;
} vt_address;

// What carries the arrays of other processes.
typedef enum vt_transport {
  VT_TRANSPORT_AUTO, // memory that processes of one host share, TCP between hosts
  VT_TRANSPORT_TCP,  // within a host, too
  VT_TRANSPORT_UCX   // large ones by UCX, which takes RDMA where there is some, and the rest by TCP
} vt_transport;

typedef struct vt_join {
  int32_t count, index;     // count 1: this process has the whole slice, and nothing below is set
  int32_t per_slice;        // processes of one slice
  bool by_hosts;            // one process for each host; else by the grid:
  int32_t bounds[3];        // processes along x, y, z of one slice
  int32_t chips[3];         // of one process
  vt_address root, own;     // where process 0 and this one listen
  const char *const *names; // [count], NULL where not known: what messages call their hosts
  const char *cookie;       // compared before anything is read; "" = none
  double timeout_s;         // for all to be there
  vt_transport transport;
  const vt_store *store; // says where process 0 is, instead of root; own is then any address
} vt_join;

// A variable of the environment; NULL when not set.
typedef const char *(*vt_lookup)(void *user, const char *name);

// Texts of the result are in `arena`. `store`: borrowed by the result; NULL = there is none.
// errors INVALID_ARGUMENT: names the variables and what they should be; UNIMPLEMENTED: more than
// VT_PROCESSES_MOST processes
vt_status vt_join_read(const vt_slice *slice, vt_lookup lookup, void *user, const vt_store *store,
                       vt_arena *arena, vt_join *out_join) VT_CHECKED;
// The index of the process that has the device at this place of the slice.
int32_t vt_join_process(const vt_join *join, const vt_place *place);

#endif
