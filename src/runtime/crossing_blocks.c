// SPDX-License-Identifier: Apache-2.0
// crossing_blocks.c - collectives: where the parts of a program that is cut over processes meet.
//
// The n-th meeting of two processes in a run is the same op in both, so their blocks find each
// other by that number. Each gives the other a block in every meeting, which may be empty: neither
// gets ahead by more than one, so few small blocks can come before somebody waits for them. A large
// one is sent when the other says that it is ready for it.
// The executor waits here. It ends with an error when a process is gone, its run has failed, or it
// does not come within the limit.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "runtime/crossing.h"

enum { EAGER_BYTES = 1 << 20, EARLY_BLOCKS = 4, SAY_AFTER_S = 60 };

// What has come, or is to come: a block, or the word that another process is ready for ours.
struct vt_block {
  struct vt_block *next;
  uint64_t group, number, meeting;
  int32_t from;
  bool ready; // no block
  size_t size;
  uint8_t bytes[];
};

// ---- arrival ------------------------------------------------------------------------------------

static vt_block **find(vt_crossing *crossing, const vt_word *word, int32_t from) {
  vt_block **at = &crossing->blocks;
  for (; *at; at = &(*at)->next)
    if ((*at)->from == from && (*at)->group == word->group && (*at)->number == word->number &&
        (*at)->meeting == word->index && (*at)->ready == (word->kind == VT_WORD_READY))
      break;
  return at;
}

// With the lock held.
bool vt_block_fits(vt_crossing *crossing, int32_t from, const vt_word *word, uint64_t size) {
  if (vt_launch_is_over(crossing, word)) return true; // read and forgotten
  int32_t stored = 0;
  if (*find(crossing, word, from)) return false;
  for (const vt_block *b = crossing->blocks; b; b = b->next) stored += b->from == from;
  if (size <= EAGER_BYTES) return stored < EARLY_BLOCKS;
  const vt_expected *e = crossing->expected;
  for (int32_t i = 0; e && i < e->count; i++)
    if (e->from[i] == from && e->meeting[i] == word->index && e->size[i] == size &&
        e->group == word->group && e->number == word->number)
      return true;
  return false;
}

void vt_block_take(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body) {
  if (vt_launch_is_over(crossing, word) || !vt_block_fits(crossing, from, word, body.size)) return;
  void *memory = aligned_alloc(64, (sizeof(vt_block) + body.size + 63 + 64) & ~(size_t)63);
  vt_block *block = memory;
  if (!block) return; // the wait ends at its limit
  *block = (vt_block){.next = crossing->blocks,
                      .group = word->group,
                      .number = word->number,
                      .meeting = word->index,
                      .from = from,
                      .ready = word->kind == VT_WORD_READY,
                      .size = body.size};
  if (body.size) memcpy(block->bytes, body.data, body.size);
  crossing->blocks = block;
  pthread_cond_broadcast(&crossing->changed);
}

void vt_blocks_drop(vt_crossing *crossing, const vt_launch *launch) {
  for (vt_block **at = &crossing->blocks; *at;) {
    vt_block *block = *at;
    if (launch && (block->group != launch->group || block->number > launch->number)) {
      at = &block->next;
      continue;
    }
    *at = block->next;
    free(block);
  }
}

// ---- departure ----------------------------------------------------------------------------------

static void sent(void *user, vt_status error) {
  vt_status_free(error); // whoever is lost, is lost to the run by its own way
  free(user);
}

// The spans as one run of memory.
static vt_status pack(const vt_meet *m, int32_t i, vt_bytes *out) {
  const vt_bytes *give = m->give + (m->alike ? 0 : (size_t)i * m->spans);
  size_t size = 0, at = 0;
  for (uint32_t s = 0; s < m->spans; s++) size += give[s].size;
  *out = (vt_bytes){NULL, size};
  if (!size) return VT_OK;
  uint8_t *bytes = malloc(size);
  if (!bytes) return vt_error_no_memory();
  for (uint32_t s = 0; s < m->spans; at += give[s++].size)
    if (give[s].size) memcpy(bytes + at, give[s].data, give[s].size);
  out->data = bytes;
  return VT_OK;
}

static void send(const vt_launch *launch, int32_t to, vt_word_kind kind, uint64_t meeting,
                 vt_bytes body) {
  vt_word word = {.kind = kind, .group = launch->group, .number = launch->number, .index = meeting};
  vt_text head = {0};
  vt_word_write(&word, &head);
  vt_peers_send(launch->crossing->peers, to, (vt_bytes){(const uint8_t *)head.data, head.size},
                body, body.size ? sent : NULL, (void *)(uintptr_t)body.data);
  vt_text_free(&head);
}

// ---- a meeting ----------------------------------------------------------------------------------

typedef struct meeting {
  vt_crossing_meetings *run;
  const vt_meet *meet;
  vt_launch *launch;
  vt_crossing *crossing;
  int32_t *process; // [count] of the others
  uint64_t *number; // [count] of their meetings with this one
  vt_bytes *packed; // [count] not sent yet
  vt_expected expected;
  vt_arena scratch;
} meeting;

static vt_status missing(const meeting *m, int32_t i, double waited) {
  const vt_crossing *crossing = m->crossing;
  int32_t process = m->process[i];
  const char *name = m->launch->name;
  if (crossing->lost[process]) return vt_launch_gone(m->launch, process, name);
  if (waited <= crossing->limit_s) return VT_OK;
  return vt_error(VT_DEADLINE_EXCEEDED,
                  "launch %" PRIu64 " of %s: %s did not come to a collective in %.0f s; "
                  "VTPU_COLLECTIVE_TIMEOUT changes the limit",
                  m->launch->number, name, vt_peers_name(crossing->peers, process), waited);
}

static vt_block **find_block(const meeting *m, int32_t i, bool ready) {
  vt_word word = {.kind = ready ? VT_WORD_READY : VT_WORD_BLOCK,
                  .group = m->launch->group,
                  .number = m->launch->number,
                  .index = m->number[i]};
  return find(m->crossing, &word, m->process[i]);
}

// Takes what has come, and sends what is asked for. With the lock held, which is released to send.
// *out_again: more may have come meanwhile.
static bool proceed(meeting *m, bool *out_again) {
  bool complete = true;
  *out_again = false;
  for (int32_t i = 0; i < m->meet->count; i++) {
    vt_block **at = find_block(m, i, false);
    vt_block *block = *at;
    if (block && !m->meet->taken[i]) {
      *at = block->next;
      block->next = m->run->held;
      m->run->held = block;
      m->meet->taken[i] = block->bytes;
    }
    complete = complete && m->meet->taken[i];
    if (!m->packed[i].size) continue;
    at = find_block(m, i, true);
    block = *at;
    complete = complete && block;
    if (!block) continue;
    *at = block->next;
    free(block);
    vt_bytes body = m->packed[i];
    m->packed[i] = (vt_bytes){0};
    pthread_mutex_unlock(&m->crossing->lock);
    send(m->launch, m->process[i], VT_WORD_BLOCK, m->number[i], body);
    pthread_mutex_lock(&m->crossing->lock);
    *out_again = true;
  }
  return complete;
}

// With the lock held.
static vt_status wait(meeting *m) {
  double start = vt_crossing_now();
  bool said = false, again = false;
  while (!proceed(m, &again)) {
    if (again) continue;
    double waited = vt_crossing_now() - start;
    const vt_status failed = vt_answer_failure(m->crossing, m->launch);
    if (failed) return vt_status_copy(failed);
    for (int32_t i = 0; i < m->meet->count; i++) {
      if (m->meet->taken[i]) continue;
      VT_TRY(missing(m, i, waited));
      if (waited > SAY_AFTER_S && !said)
        vt_log(VT_LOG_WARNING, "launch %" PRIu64 " of %s waits for %s in a collective since %.0f s",
               m->launch->number, m->launch->name, vt_peers_name(m->crossing->peers, m->process[i]),
               waited);
      said = said || waited > SAY_AFTER_S;
    }
    struct timespec soon;
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_sec++;
    pthread_cond_timedwait(&m->crossing->changed, &m->crossing->lock, &soon);
  }
  return VT_OK;
}

static vt_status begin(meeting *m) {
  const vt_meet *meet = m->meet;
  size_t count = (size_t)meet->count + 1;
  m->process = VT_NEW_ARRAY(&m->scratch, int32_t, count);
  m->number = VT_NEW_ARRAY(&m->scratch, uint64_t, count);
  m->packed = VT_NEW_ARRAY(&m->scratch, vt_bytes, count);
  for (int32_t i = 0; i < meet->count; i++) {
    vt_assert(meet->places[i] >= 0 && meet->places[i] < m->launch->count);
    m->process[i] = m->launch->members[meet->places[i]];
    m->number[i] = m->run->met[m->process[i]]++;
    meet->taken[i] = NULL;
    VT_TRY(pack(meet, i, &m->packed[i]));
  }
  m->expected = (vt_expected){.group = m->launch->group,
                              .number = m->launch->number,
                              .count = meet->count,
                              .from = m->process,
                              .meeting = m->number,
                              .size = meet->take};
  return VT_OK;
}

static void free_held(vt_crossing_meetings *run) {
  for (vt_block *next; run->held; run->held = next) {
    next = run->held->next;
    free(run->held);
  }
}

static vt_status meet(void *user, const vt_meet *meet) {
  vt_crossing_meetings *run = user;
  meeting m = {.run = run, .meet = meet, .launch = run->launch, .crossing = run->launch->crossing};
  free_held(run);
  vt_status st = begin(&m);
  pthread_mutex_lock(&m.crossing->lock);
  m.crossing->expected = &m.expected;
  pthread_mutex_unlock(&m.crossing->lock);
  for (int32_t i = 0; i < meet->count && !st; i++) {
    if (meet->take[i] > EAGER_BYTES)
      send(m.launch, m.process[i], VT_WORD_READY, m.number[i], (vt_bytes){0});
    if (m.packed[i].size > EAGER_BYTES) continue;
    send(m.launch, m.process[i], VT_WORD_BLOCK, m.number[i], m.packed[i]);
    m.packed[i] = (vt_bytes){0};
  }
  pthread_mutex_lock(&m.crossing->lock);
  if (!st) st = wait(&m);
  m.crossing->expected = NULL;
  pthread_mutex_unlock(&m.crossing->lock);
  for (int32_t i = 0; i < meet->count && m.packed; i++) free((void *)(uintptr_t)m.packed[i].data);
  vt_arena_free(&m.scratch);
  return st;
}

vt_status vt_launch_meetings(vt_launch *launch, vt_crossing_meetings *out) {
  *out = (vt_crossing_meetings){.calls = {out, meet}, .launch = launch};
  out->met = calloc((size_t)launch->crossing->process_count, sizeof *out->met);
  return out->met ? VT_OK : vt_error_no_memory();
}

void vt_launch_meetings_end(vt_crossing_meetings *meetings) {
  free_held(meetings);
  free(meetings->met);
}
