// SPDX-License-Identifier: Apache-2.0
// cloud.h - one research cloud: its store, clock, lock, options, and what every part of it needs.
//
// Everything that reads or writes the cloud's state runs under `lock`, one caller at a time; calls
// and the reconciler hold it for one transaction. Time comes from vt_cloud_now only.
#ifndef VT_CLOUD_CLOUD_H
#define VT_CLOUD_CLOUD_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "cloud/store/store.h"

#define VT_SECOND INT64_C(1000000000)
#define VT_HOUR   (3600 * VT_SECOND)
#define VT_DAY    (24 * VT_HOUR)
// 2200-01-01: a virtual clock stops here, so that adding a duration of decades does not overflow.
#define VT_LAST_INSTANT (INT64_C(7258118400) * VT_SECOND)

typedef struct vt_guest_driver vt_guest_driver;

typedef struct vt_cloud_options {
  const char *state_dir; // "" = everything in memory, no guests
  const char *store;     // URL of a PostgreSQL database, "" = a file in state_dir
  const char *universe;  // domain of this cloud, e.g. "vtpu.localhost"
  int guest_level;       // 0 none, 1 sshd on 127.x.y.z, 2 isolated Linux
  bool durable, virtual_time;
  int64_t notice_ns;                   // between preemption notice and the end; 30 s
  int64_t preemptible_limit_ns;        // 24 h
  int64_t idle_alert_ns;               // READY with an idle chip before an alert; 3 h
  int64_t kind_reap_ns;                // "kind" projects: a preempted node is removed after this
  int64_t requests_per_minute;         // per account, 0 = no limit
  int64_t quota_auto_grant;            // quota preferences up to these units need no review
  int64_t request_timeout_ns;          // for a client to send a request or to read a reply; 60 s
  int64_t (*read_clock)(int clock_id); // NULL = the system's; nanoseconds
  const char *record;                  // file that records client requests (record.h), "" = none
  int64_t guest_memory_mib;            // of a worker, 0 = three quarters of the host's
  int guest_cpus;                      // of a worker, 0 = all
  const char *guest_limits;            // "auto", or "rlimit": no cgroups
  const char *backend;                 // "local", "slurm"
  const char *slurm_partition, *slurm_spot_partition, *slurm_account, *slurm_options;
  const char *slurm_folder; // of each host, for the disks of its workers
  int64_t slurm_wait_ns;    // to wait for room before a node's creation fails
  int64_t keep_operations, keep_events, keep_logs, keep_reports; // days, 0 = for ever
  const char *library_path; // libvtpu.so for the guests, "" = none
  const char *python_path;  // a bin folder with the guests' python3, "" = the host's
} vt_cloud_options;

// Faults that a test has injected (POST /vtpu/v1/faults); lost when the daemon ends.
typedef struct vt_faults {
  double share, owed; // share of API calls that fail; accumulated towards the next one
  bool exhausted;     // 429, else 503
  int64_t delay_ms, until_ns;
} vt_faults;

typedef struct vt_outage {
  const char *zone; // of the catalogue
  int64_t from_ns, until_ns;
} vt_outage;
enum { VT_MAX_OUTAGES = 8 };

// A listener for the next change: its eventfd is written once.
typedef struct vt_ear {
  struct vt_ear *next;
  int fd;
  bool listens;
} vt_ear;

typedef struct vt_cloud {
  vt_store *store;
  vt_cloud_options options;
  vt_guest_driver *guests;
  char machines[512];       // what TPU VMs are here; why not a better level, and what to do
  struct vt_helper *helper; // borrowed; NULL = this cloud has no workers on this host
  pthread_mutex_t lock;
  pthread_cond_t wake;               // the reconciler sleeps on it
  pthread_mutex_t hearing;           // of the ears; with or without `lock`, never before it
  vt_ear *ears;                      // eventfds of servers whose clients wait for a change
  uint64_t change;                   // counts state changes; written under both locks
  bool closing;                      // long polls return now
  bool poke;                         // something changed since the reconciler last looked
  int64_t virtual_ns;                // the clock, when virtual
  int64_t anchor_ns, anchor_boot_ns; // otherwise: the time at the start, and CLOCK_BOOTTIME then
  int64_t watched_ns;                // when budgets, grants and idle nodes were last checked
  char secret[65];                   // signs console sessions and consent pages
  struct vt_rate *rates;
  struct vt_allowances *allowances; // of workers (allowance.c)
  int64_t address_block;            // of its workers, from 1, 0 = all of them (address.c)
  int address_lock;
  size_t queue_at;        // the reconciler's position in a long queue
  bool sweeping;          // there are rows to remove (retention.c)
  int state_lock;         // descriptor, -1 = the state is in memory
  struct vt_guard *guard; // against password guessing (password.c)
  vt_faults faults;
  vt_outage outages[VT_MAX_OUTAGES];
  struct vt_node_texts *node_texts; // cached list text of each node (node_list.c)
  struct vt_metrics *metrics;
  struct vt_pulses *pulses; // heartbeats of workers (health.c)
  struct vt_relays *relays;
  struct vt_recorder *recorder; // NULL = no recording
  struct terminal *terminals;   // open ones (terminal.c)
} vt_cloud;

// Takes a state folder for this process until the descriptor is closed or the process ends in any
// way; waits 3 s for one that is just ending. errors UNAVAILABLE: another process has it; the
// message says which.
vt_status vt_cloud_lock_state(const char *state_dir, int *out_lock) VT_CHECKED;

// Nanoseconds since 1970. Never goes back and runs at the rate of real time: a step of the system's
// clock does not affect a running daemon, because bills are differences of this.
int64_t vt_cloud_now(const vt_cloud *cloud);
// Reports a change: wakes the reconciler and long polls. Call under the lock.
void vt_cloud_poke(vt_cloud *cloud);
// An ear is registered from add to remove; each hear arms it for the next change and returns the
// count of changes so far. With or without the lock.
void vt_cloud_add_ear(vt_cloud *cloud, vt_ear *ear);
void vt_cloud_remove_ear(vt_cloud *cloud, vt_ear *ear);
uint64_t vt_cloud_hear(vt_cloud *cloud, vt_ear *ear);
// A random positive 62-bit number; random lower-case hex of `digits` characters.
int64_t vt_cloud_random(void);
void vt_cloud_random_hex(char *out_text, int digits);
// The next value of a counter, from 1; inside a transaction.
vt_status vt_cloud_next(vt_cloud *cloud, const char *counter, int64_t *out_value) VT_CHECKED;
// Writes a row of the audit trail. `detail` is free text.
vt_status vt_cloud_event(vt_cloud *cloud, const char *kind, const char *project, const char *actor,
                         const char *target, const char *detail) VT_CHECKED;

// Runs `work` under the lock. When it runs out of memory, what it left in the store is ended and
// the lock released before the caller's attempt (base/memory.h) ends.
void vt_cloud_lock_for(vt_cloud *cloud, void (*work)(void *context), void *context);

// How often a transaction that conflicts with another writer is retried.
enum { VT_CLOUD_ATTEMPTS = 5 };
// Runs `work` in one transaction: commits on VT_OK, rolls back on an error and returns it. Call
// under the lock. `work` may run more than once.
vt_status vt_cloud_transact(vt_cloud *cloud, vt_status (*work)(vt_cloud *cloud, void *context),
                            void *context) VT_CHECKED;

#endif
