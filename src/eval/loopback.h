// SPDX-License-Identifier: Apache-2.0
// loopback.h - for tests: the parts of a program as threads of one process, which meet here.
#ifndef VT_EVAL_LOOPBACK_H
#define VT_EVAL_LOOPBACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ir/transfer.h"

enum { VT_LOOPBACK_MOST = 16 };

// One block on its way from one part to another.
typedef struct vt_loopback_box {
  void *data; // NULL = empty
  size_t size;
} vt_loopback_box;

typedef struct vt_loopback {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool failed; // a part has ended with an error: the others must not wait
  int meetings;
  size_t bytes;                                              // given in them
  vt_loopback_box boxes[VT_LOOPBACK_MOST][VT_LOOPBACK_MOST]; // [from][to]
} vt_loopback;

typedef struct vt_loopback_part {
  vt_loopback *all;
  int place;
  void *taken[VT_LOOPBACK_MOST]; // of the last meeting
} vt_loopback_part;

static inline void vt_loopback_fail(vt_loopback *all) {
  pthread_mutex_lock(&all->lock);
  all->failed = true;
  pthread_cond_broadcast(&all->changed);
  pthread_mutex_unlock(&all->lock);
}

static inline void vt_loopback_forget(vt_loopback_part *part) {
  for (int i = 0; i < VT_LOOPBACK_MOST; i++) {
    free(part->taken[i]);
    part->taken[i] = NULL;
  }
}

static inline void vt_loopback_give(vt_loopback *all, vt_loopback_box *box, uint32_t spans,
                                    const vt_bytes *give) {
  while (box->data && !all->failed) pthread_cond_wait(&all->changed, &all->lock);
  if (all->failed) return;
  size_t size = 0;
  for (uint32_t s = 0; s < spans; s++) size += give[s].size;
  char *at = box->data = aligned_alloc(64, (size + 128) & ~(size_t)63);
  box->size = size;
  all->bytes += size;
  for (uint32_t s = 0; s < spans; at += give[s++].size)
    if (give[s].size) memcpy(at, give[s].data, give[s].size);
  pthread_cond_broadcast(&all->changed);
}

static inline vt_status vt_loopback_meet(void *user, const vt_meet *meet) {
  vt_loopback_part *part = user;
  vt_loopback *all = part->all;
  bool fits = true;
  vt_loopback_forget(part);
  pthread_mutex_lock(&all->lock);
  all->meetings++;
  for (int32_t i = 0; i < meet->count; i++)
    vt_loopback_give(all, &all->boxes[part->place][meet->places[i]], meet->spans,
                     meet->give + (meet->alike ? 0 : (size_t)i * meet->spans));
  for (int32_t i = 0; i < meet->count; i++) {
    vt_loopback_box *box = &all->boxes[meet->places[i]][part->place];
    while (!box->data && !all->failed) pthread_cond_wait(&all->changed, &all->lock);
    if (all->failed) break;
    fits = fits && box->size == meet->take[i];
    meet->taken[i] = part->taken[i] = box->data;
    box->data = NULL;
    pthread_cond_broadcast(&all->changed);
  }
  bool failed = all->failed;
  pthread_mutex_unlock(&all->lock);
  if (failed) return vt_error(VT_CANCELLED, "another part failed");
  return fits ? VT_OK : vt_error(VT_INTERNAL, "a block of another size");
}

static inline void vt_loopback_open(vt_loopback *all) {
  *all = (vt_loopback){0};
  pthread_mutex_init(&all->lock, NULL);
  pthread_cond_init(&all->changed, NULL);
}

static inline void vt_loopback_close(vt_loopback *all) {
  for (int i = 0; i < VT_LOOPBACK_MOST * VT_LOOPBACK_MOST; i++)
    free(all->boxes[i / VT_LOOPBACK_MOST][i % VT_LOOPBACK_MOST].data);
  pthread_cond_destroy(&all->changed);
  pthread_mutex_destroy(&all->lock);
}

#endif
