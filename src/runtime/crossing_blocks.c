// SPDX-License-Identifier: Apache-2.0
// crossing_blocks.c - collectives: where the parts of a program that is cut over processes meet.
//
// The n-th meeting of two processes in a run is the same op in both, so their blocks find each
// other by that number. Each gives the other a block in every meeting, which may be empty: neither
// gets ahead by more than one, so few small blocks can come before somebody waits for them. A large
// one is sent when the other says that it is ready for it.
// The executor waits here. It ends with an error when a process is gone, its run has failed, or it
// does not come within the limit.
#include <immintrin.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "runtime/crossing.h"

enum {
  EAGER_BYTES = 1 << 20,
  EARLY_BLOCKS = 4,
  SAY_AFTER_S = 60,
  LOOKS = 50 // at lanes, some 20 ns each, before their bell is waited for
};

// What has come, or is to come: a block, or the word that another process is ready for ours.
struct vt_block {
  struct vt_block *next;
  uint64_t group, number, meeting;
  int32_t from;
  bool ready; // no block
  size_t size;
  uint8_t *bytes; // NULL: none
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

static void block_free(vt_block *block) {
  if (block) free(block->bytes);
  free(block);
}

bool vt_block_take(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body) {
  if (vt_launch_is_over(crossing, word) || !vt_block_fits(crossing, from, word, body.size))
    return false;
  vt_block *block = malloc(sizeof *block);
  if (!block) return false; // the wait ends at its limit
  *block = (vt_block){.next = crossing->blocks,
                      .group = word->group,
                      .number = word->number,
                      .meeting = word->index,
                      .from = from,
                      .ready = word->kind == VT_WORD_READY,
                      .size = body.size,
                      .bytes = (uint8_t *)(uintptr_t)body.data};
  crossing->blocks = block;
  vt_bell_ring(vt_peers_bell(crossing->peers));
  return true;
}

void vt_blocks_drop(vt_crossing *crossing, const vt_launch *launch) {
  for (vt_block **at = &crossing->blocks; *at;) {
    vt_block *block = *at;
    if (launch && (block->group != launch->group || block->number > launch->number)) {
      at = &block->next;
      continue;
    }
    *at = block->next;
    block_free(block);
  }
}

// ---- departure ----------------------------------------------------------------------------------

static void sent(void *user, vt_status error) {
  vt_status_free(error); // whoever is lost, is lost to the run by its own way
  free(user);
}

static const vt_bytes *spans_for(const vt_meet *m, int32_t i) {
  return m->give + (m->alike ? 0 : (size_t)i * m->spans);
}

static size_t given_size(const vt_meet *m, int32_t i) {
  size_t size = 0;
  for (uint32_t s = 0; s < m->spans; s++) size += spans_for(m, i)[s].size;
  return size;
}

// `size` bytes of the spans, from `at` on.
static void copy_spans(const vt_meet *m, int32_t i, size_t at, size_t size, uint8_t *out) {
  for (const vt_bytes *span = spans_for(m, i); size; span++) {
    size_t from = at < span->size ? at : span->size, n = span->size - from;
    if (n > size) n = size;
    if (n) memcpy(out, span->data + from, n);
    at -= from;
    out += n;
    size -= n;
  }
}

static vt_status pack(const vt_meet *m, int32_t i, vt_bytes *out) {
  size_t size = given_size(m, i);
  *out = (vt_bytes){NULL, size};
  if (!size) return VT_OK;
  uint8_t *bytes = malloc(size);
  if (!bytes) return vt_error_no_memory();
  copy_spans(m, i, 0, size, bytes);
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

// What is exchanged with one of the others.
typedef struct vt_exchange {
  int32_t process;
  uint64_t number;       // of its meetings with this process
  vt_bytes packed;       // not sent yet; by TCP
  const vt_lanes *lanes; // NULL: by TCP
  size_t give, given;    // bytes, by lane
  bool all_given;
  vt_block *arriving; // a block of several pieces; its size is what is here
} exchange;

typedef struct meeting {
  vt_crossing_meetings *run;
  const vt_meet *meet;
  vt_launch *launch;
  vt_crossing *crossing;
  exchange *with; // [count]
  bool by_tcp;    // one of them
  vt_expected expected;
} meeting;

static vt_status missing(const meeting *m, int32_t i, double waited) {
  const vt_crossing *crossing = m->crossing;
  int32_t process = m->with[i].process;
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
                  .index = m->with[i].number};
  return find(m->crossing, &word, m->with[i].process);
}

static vt_status check_size(const meeting *m, int32_t i, uint64_t size) {
  if (size == m->meet->take[i]) return VT_OK;
  return vt_error(VT_INTERNAL, "%s gives %" PRIu64 " bytes in a collective of %s that takes %zu",
                  vt_peers_name(m->crossing->peers, m->with[i].process), size, m->launch->name,
                  m->meet->take[i]);
}

static void hold(meeting *m, int32_t i, vt_block *block) {
  block->next = m->run->held;
  m->run->held = block;
  m->meet->taken[i] = block->bytes ? (const void *)block->bytes : block;
}

// ---- by lane ------------------------------------------------------------------------------------

static void pop(const vt_lanes *lanes) {
  if (vt_lane_pop(lanes->from)) vt_bell_ring(lanes->bell);
}

// As much as the lane has room for. Whoever makes room in a full lane rings.
static void give_pieces(const meeting *m, int32_t i) {
  exchange *x = &m->with[i];
  while (!x->all_given) {
    uint8_t *room = vt_lane_room(x->lanes->to);
    if (!room) return;
    size_t left = x->give - x->given, size = left < VT_PIECE_BYTES ? left : VT_PIECE_BYTES;
    vt_lane_piece piece = {m->launch->group, m->launch->number, x->number, x->give, x->given, size};
    copy_spans(m->meet, i, x->given, size, room);
    vt_lane_push(x->lanes->to, &piece);
    vt_bell_ring(x->lanes->bell);
    x->given += size;
    x->all_given = x->given == x->give;
  }
}

// Left by a run that failed, or nonsense.
static bool is_stale(const meeting *m, const vt_lane_piece *piece) {
  vt_word word = {.group = piece->group, .number = piece->number};
  if (piece->group == m->launch->group) return piece->number <= m->launch->number;
  if (!piece->number) return true;
  pthread_mutex_lock(&m->crossing->lock);
  bool over = vt_launch_is_over(m->crossing, &word);
  pthread_mutex_unlock(&m->crossing->lock);
  return over;
}

// A block of several pieces.
static vt_status collect(meeting *m, int32_t i, const vt_lane_piece *piece, const uint8_t *bytes) {
  exchange *x = &m->with[i];
  if (!x->arriving) {
    x->arriving = calloc(1, sizeof *x->arriving);
    if (x->arriving) x->arriving->bytes = malloc(piece->total);
    if (!x->arriving || !x->arriving->bytes) return vt_error_no_memory();
  }
  if (piece->at != x->arriving->size || !piece->size)
    return vt_error(VT_INTERNAL, "%s gives the pieces of a block in no order",
                    vt_peers_name(m->crossing->peers, x->process));
  memcpy(x->arriving->bytes + piece->at, bytes, piece->size);
  x->arriving->size += piece->size;
  pop(x->lanes);
  if (x->arriving->size < piece->total) return VT_OK;
  hold(m, i, x->arriving);
  x->arriving = NULL;
  return VT_OK;
}

static vt_status take_pieces(meeting *m, int32_t i) {
  const exchange *x = &m->with[i];
  while (!m->meet->taken[i]) {
    vt_lane_piece piece;
    const uint8_t *bytes = vt_lane_front(x->lanes->from, &piece);
    if (!bytes) return VT_OK;
    if (piece.group != m->launch->group || piece.number != m->launch->number ||
        piece.meeting != x->number) {
      if (!is_stale(m, &piece)) return VT_OK;
      pop(x->lanes);
      continue;
    }
    VT_TRY(check_size(m, i, piece.total));
    if (piece.size < piece.total) {
      VT_TRY(collect(m, i, &piece, bytes));
    } else {
      m->meet->taken[i] = bytes;
      m->run->pinned[m->run->pinned_count++] = x->lanes;
    }
  }
  return VT_OK;
}

static vt_status pass_pieces(meeting *m, bool *out_complete) {
  *out_complete = true;
  for (int32_t i = 0; i < m->meet->count; i++) {
    if (!m->with[i].lanes) continue;
    give_pieces(m, i);
    VT_TRY(take_pieces(m, i));
    *out_complete = *out_complete && m->with[i].all_given && m->meet->taken[i];
  }
  return VT_OK;
}

// ---- the wait -----------------------------------------------------------------------------------

// Takes what has come, and sends what is asked for. With the lock held, which is released to send.
// *out_again: more may have come meanwhile.
static vt_status proceed(meeting *m, bool *out_complete, bool *out_again) {
  for (int32_t i = 0; i < m->meet->count; i++) {
    exchange *x = &m->with[i];
    vt_block **at = x->lanes ? NULL : find_block(m, i, false);
    if (at && *at && !m->meet->taken[i]) {
      vt_block *block = *at;
      *at = block->next;
      hold(m, i, block);
      VT_TRY(check_size(m, i, block->size));
    }
    *out_complete = *out_complete && m->meet->taken[i];
    if (!x->packed.size) continue;
    at = find_block(m, i, true);
    vt_block *ready = *at;
    *out_complete = *out_complete && ready;
    if (!ready) continue;
    *at = ready->next;
    block_free(ready);
    vt_bytes body = x->packed;
    x->packed = (vt_bytes){0};
    pthread_mutex_unlock(&m->crossing->lock);
    send(m->launch, x->process, VT_WORD_BLOCK, x->number, body);
    pthread_mutex_lock(&m->crossing->lock);
    *out_again = true;
  }
  return VT_OK;
}

// With the lock held: whether to wait on.
static vt_status check(const meeting *m, double waited, bool *said) {
  const vt_status failed = vt_answer_failure(m->crossing, m->launch);
  if (failed) return vt_status_copy(failed);
  for (int32_t i = 0; i < m->meet->count; i++) {
    const exchange *x = &m->with[i];
    if (m->meet->taken[i] && !x->packed.size && (!x->lanes || x->all_given)) continue;
    VT_TRY(missing(m, i, waited));
    if (waited > SAY_AFTER_S && !*said)
      vt_log(VT_LOG_WARNING, "launch %" PRIu64 " of %s waits for %s in a collective since %.0f s",
             m->launch->number, m->launch->name, vt_peers_name(m->crossing->peers, x->process),
             waited);
    *said = *said || waited > SAY_AFTER_S;
  }
  return VT_OK;
}

// By lane a block comes within a microsecond from a process that is as far as this one.
static vt_status pass_soon(meeting *m, bool *out_complete) {
  VT_TRY(pass_pieces(m, out_complete));
  for (int i = 0; i < LOOKS && !*out_complete && !m->by_tcp; i++) {
    _mm_pause();
    VT_TRY(pass_pieces(m, out_complete));
  }
  return VT_OK;
}

static vt_status wait(meeting *m) {
  vt_bell *bell = vt_peers_bell(m->crossing->peers);
  double start = 0;
  for (bool said = false;;) {
    uint32_t state = vt_bell_state(bell);
    bool complete, again = false;
    VT_TRY(pass_soon(m, &complete));
    if (complete && !m->by_tcp) return VT_OK;
    if (start == 0) start = vt_crossing_now();
    pthread_mutex_lock(&m->crossing->lock);
    vt_status st = proceed(m, &complete, &again);
    if (!st && !complete && !again) st = check(m, vt_crossing_now() - start, &said);
    pthread_mutex_unlock(&m->crossing->lock);
    if (st || complete) return st;
    if (!again) vt_bell_wait(bell, state);
  }
}

static vt_status begin(meeting *m) {
  const vt_meet *meet = m->meet;
  m->with = m->run->with;
  for (int32_t i = 0; i < meet->count; i++) {
    vt_assert(meet->places[i] >= 0 && meet->places[i] < m->launch->count);
    exchange *x = &m->with[i];
    int32_t process = m->launch->members[meet->places[i]];
    *x = (exchange){.process = process,
                    .number = m->run->met[process]++,
                    .lanes = vt_peers_lanes(m->crossing->peers, process),
                    .give = given_size(meet, i)};
    m->run->from[i] = process;
    m->run->numbers[i] = x->number;
    meet->taken[i] = NULL;
  }
  for (int32_t i = 0; i < meet->count; i++) {
    exchange *x = &m->with[i];
    m->by_tcp = m->by_tcp || !x->lanes;
    if (!x->lanes) VT_TRY(pack(meet, i, &x->packed));
  }
  m->expected = (vt_expected){.group = m->launch->group,
                              .number = m->launch->number,
                              .count = meet->count,
                              .from = m->run->from,
                              .meeting = m->run->numbers,
                              .size = meet->take};
  return VT_OK;
}

// What the last meeting gave.
static void let_go(vt_crossing_meetings *run) {
  while (run->pinned_count) pop(run->pinned[--run->pinned_count]);
  for (vt_block *next; run->held; run->held = next) {
    next = run->held->next;
    block_free(run->held);
  }
}

// The blocks that may come by TCP; NULL: no more.
static void expect(const meeting *m, const vt_expected *expected) {
  if (!m->by_tcp) return;
  pthread_mutex_lock(&m->crossing->lock);
  m->crossing->expected = expected;
  pthread_mutex_unlock(&m->crossing->lock);
}

static vt_status meet(void *user, const vt_meet *meet) {
  vt_crossing_meetings *run = user;
  meeting m = {.run = run, .meet = meet, .launch = run->launch, .crossing = run->launch->crossing};
  let_go(run);
  vt_status st = begin(&m);
  expect(&m, &m.expected);
  for (int32_t i = 0; i < meet->count && !st; i++) {
    exchange *x = &m.with[i];
    if (x->lanes) continue;
    if (meet->take[i] > EAGER_BYTES)
      send(m.launch, x->process, VT_WORD_READY, x->number, (vt_bytes){0});
    if (x->packed.size > EAGER_BYTES) continue;
    send(m.launch, x->process, VT_WORD_BLOCK, x->number, x->packed);
    x->packed = (vt_bytes){0};
  }
  if (!st) st = wait(&m);
  expect(&m, NULL);
  for (int32_t i = 0; i < meet->count; i++) {
    free((void *)(uintptr_t)m.with[i].packed.data);
    block_free(m.with[i].arriving);
  }
  return st;
}

static bool is_far(const vt_crossing *crossing, int32_t process) {
  return process != crossing->process && !vt_peers_lanes(crossing->peers, process);
}

vt_status vt_launch_meetings(vt_launch *launch, vt_crossing_meetings *out) {
  size_t count = (size_t)launch->crossing->process_count;
  *out = (vt_crossing_meetings){
      .calls = {.user = out, .meet = meet, .queue = &launch->crossing->collectives},
      .launch = launch};
  for (int32_t i = 0; i < launch->count; i++)
    out->calls.far = out->calls.far || is_far(launch->crossing, launch->members[i]);
  out->met = calloc(count, sizeof *out->met);
  out->pinned = calloc(count, sizeof *out->pinned);
  out->with = calloc(count, sizeof *out->with);
  out->from = calloc(count, sizeof *out->from);
  out->numbers = calloc(count, sizeof *out->numbers);
  if (out->met && out->pinned && out->with && out->from && out->numbers) return VT_OK;
  vt_launch_meetings_end(out);
  return vt_error_no_memory();
}

void vt_launch_meetings_end(vt_crossing_meetings *meetings) {
  let_go(meetings);
  free(meetings->met);
  free(meetings->pinned);
  free(meetings->with);
  free(meetings->from);
  free(meetings->numbers);
}
