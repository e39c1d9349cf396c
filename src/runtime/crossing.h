// SPDX-License-Identifier: Apache-2.0
// crossing.h - runs over several processes, shared by crossing*.c.
#ifndef VT_RUNTIME_CROSSING_H
#define VT_RUNTIME_CROSSING_H

#include "base/map.h"
#include "distributed/peers.h"
#include "runtime/launch_words.h"
#include "runtime/run_job.h"

// What another process said about a run.
typedef struct vt_said {
  struct vt_said *next;
  int32_t from;
  vt_word word; // borrows from bytes
  uint8_t bytes[];
} vt_said;

// The rest is guarded by the crossing's lock.
struct vt_launch {
  atomic_int refs;       // of the list, of the job, of parts on their way
  vt_crossing *crossing; // retained
  uint64_t group, number;
  int32_t count, *members; // processes of the run
  vt_launch *next;
  vt_run_job *job; // NULL: only others have begun it, or handed on
  uint64_t variant;
  vt_said *said;
  int32_t words_missing; // of others, and one for ours
  const char *name;      // of the program
  bool started, decided, over, late;
  int64_t parts_missing, sends_missing;
  uint8_t *came; // [param][position]: parts that are here; NULL = none
  vt_status error;
};

typedef struct vt_answer { // of a host callback of another process
  struct vt_answer *next;
  uint64_t group, number, channel;
  uint32_t position;
  vt_status error; // the run failed there
  size_t size;
  uint8_t bytes[];
} vt_answer;

// The blocks of the meeting in which the executor waits, of any size.
typedef struct vt_expected {
  uint64_t group, number;
  int32_t count;
  const int32_t *from;
  const uint64_t *meeting;
  const size_t *size;
} vt_expected;
typedef struct vt_block vt_block;

struct vt_crossing {
  atomic_int refs;
  atomic_bool closed; // nothing may be sent
  int32_t process, process_count;
  const vt_device *devices; // of the client
  vt_peers *peers;
  double limit_s;
  vt_queue collectives; // of the run on the executor
  pthread_mutex_t lock;
  pthread_cond_t changed;
  vt_launch *launches; // oldest first
  struct vt_group {
    uint64_t key, number; // of the last run
    uint64_t over;        // the last one in which processes met, or called, that has ended
  } *groups;
  size_t group_count;
  vt_map launched; // what kinds of programs each process has launched: {group, process, kind}
  vt_status *lost; // [process] it is gone
  vt_answer *answers, **last_answer;
  vt_block *blocks;              // that have come by TCP
  const vt_expected *expected;   // NULL: the executor is in no meeting
  struct vt_transfer *transfers; // single arrays, in order
  double progress;               // when something last came or ended
};

double vt_crossing_now(void);
void vt_crossing_changed(vt_crossing *crossing); // wakes the executor, with the lock held
int32_t vt_crossing_process(const vt_launch *launch, int32_t position); // that has the device
void vt_launch_send(const vt_launch *launch, int32_t to, const vt_word *word);
// With the lock held. The end of a run's exchange: true = hand it on, after unlocking.
bool vt_launch_ends(vt_launch *launch);
void vt_launch_hand_on(vt_launch *launch); // and releases the list's reference

// With the lock held: the run that a word is about has ended here.
bool vt_launch_is_over(const vt_crossing *crossing, const vt_word *word);
vt_status vt_launch_gone(const vt_launch *launch, int32_t process, const char *name) VT_CHECKED;

// crossing_parts.c
typedef struct vt_parcel vt_parcel; // a part on its way to those who lack it
// With the lock held: what has to be sent and is to come. errors RESOURCE_EXHAUSTED
vt_status vt_parts_decide(vt_launch *launch, vt_parcel **out_parcels) VT_CHECKED;
void vt_parts_send(vt_parcel *parcels); // without it
bool vt_parts_come_from(const vt_launch *launch, int32_t process);
// Whether a part of this size may come; takes it. With the lock held.
bool vt_part_fits(const vt_launch *launch, int32_t from, const vt_word *word, uint64_t size);
vt_status vt_part_take(vt_launch *launch, const vt_word *word, vt_bytes body) VT_CHECKED;

// crossing_calls.c
void vt_answer_take(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body);
void vt_answers_free(vt_crossing *crossing);
void vt_launch_failed(const vt_launch *launch, vt_status error); // tells the others; borrows
vt_status vt_answer_failure(const vt_crossing *crossing, const vt_launch *launch); // borrowed

// crossing_blocks.c; with the lock held. NULL launch: all
bool vt_block_fits(vt_crossing *crossing, int32_t from, const vt_word *word, uint64_t size);
// True: keeps the body.
bool vt_block_take(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body);
void vt_blocks_drop(vt_crossing *crossing, const vt_launch *launch);

// crossing_transfers.c
bool vt_array_fits(vt_crossing *crossing, int32_t from, const vt_word *word, uint64_t size);
void vt_transfer_message(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body);
void vt_transfers_fail(vt_crossing *crossing, int32_t peer, vt_status why); // -1 = of all; borrows

#endif
