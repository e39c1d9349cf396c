// SPDX-License-Identifier: Apache-2.0
// shared.c - see shared.h.
//
// A lane is a ring of pieces with two counters: the sender advances one, the receiver the other.
// A bell is a counter that only grows. Who waits reads it, looks for what it waits for, and sleeps
// unless the counter has changed meanwhile, so that no ring is missed.
#include "distributed/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "distributed/hello.h"

enum { PAGE = 4096, SPIN_NS = 20000 };

struct vt_bell {
  atomic_uint rung;
  atomic_uint sleeps; // its owner does
  uint8_t secret[VT_SECRET_BYTES];
};

struct vt_lane {
  _Alignas(64) atomic_ulong sent;
  _Alignas(64) atomic_ulong taken;
  _Alignas(64) vt_lane_piece pieces[VT_LANE_PIECES];
  _Alignas(PAGE) uint8_t bytes[VT_LANE_PIECES][VT_PIECE_BYTES];
};
_Static_assert(sizeof(vt_lane) % PAGE == 0, "lanes are mapped one by one");
_Static_assert(sizeof(vt_bell) <= PAGE, "the bell has the first page");

static const char segment_name[] = "vtpu-lanes";

// ---- segments -----------------------------------------------------------------------------------

void vt_offer_write(const vt_offer *offer, uint8_t bytes[VT_OFFER_BYTES]) {
  vt_put_u32(bytes, offer->pid);
  vt_put_u32(bytes + 4, offer->fd);
  memcpy(bytes + 8, offer->secret, VT_SECRET_BYTES);
}

vt_offer vt_offer_read(const uint8_t bytes[VT_OFFER_BYTES]) {
  vt_offer offer = {.pid = vt_get_u32(bytes), .fd = vt_get_u32(bytes + 4)};
  memcpy(offer.secret, bytes + 8, VT_SECRET_BYTES);
  return offer;
}

static vt_status failed(const char *what) {
  return vt_error(VT_UNAVAILABLE, "%s: %s", what, strerror(errno));
}

// A forked child has no part in it.
static vt_status map(int fd, off_t at, size_t size, void **out) {
  *out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
  if (*out == MAP_FAILED) {
    *out = NULL;
    return failed("mmap");
  }
  return madvise(*out, size, MADV_DONTFORK) ? failed("madvise") : VT_OK;
}

static vt_status map_segment(int fd, size_t first, size_t count, vt_segment *s) {
  void *bell, *lanes = NULL;
  vt_status st = map(fd, 0, PAGE, &bell);
  s->bell = bell;
  if (!st) st = map(fd, (off_t)(PAGE + first * sizeof(vt_lane)), count * sizeof(vt_lane), &lanes);
  s->lanes = lanes;
  s->lane_count = count;
  return st;
}

static bool may_be_as_large(size_t size) { // the kernel ends a process that goes beyond
  struct rlimit most;
  return getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur == RLIM_INFINITY || most.rlim_cur >= size;
}

static vt_status create_shared(int32_t count, vt_segment *s, vt_offer *out_offer) {
  size_t size = PAGE + (size_t)count * sizeof(vt_lane);
  vt_offer offer = {.pid = (uint32_t)getpid()};
  if (!may_be_as_large(size))
    return vt_error(VT_UNAVAILABLE, "files may not have %zu bytes (ulimit -f)", size);
  s->fd = memfd_create(segment_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (s->fd < 0 || ftruncate(s->fd, (off_t)size) ||
      fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    return failed("memfd_create");
  if (getrandom(offer.secret, sizeof offer.secret, 0) != sizeof offer.secret)
    return failed("getrandom");
  VT_TRY(map_segment(s->fd, 0, (size_t)count, s));
  offer.fd = (uint32_t)s->fd;
  memcpy(s->bell->secret, offer.secret, sizeof offer.secret);
  *out_offer = offer;
  return VT_OK;
}

vt_status vt_segment_create(int32_t count, vt_segment *out, vt_offer *out_offer) {
  vt_status st = VT_OK;
  *out = VT_NO_SEGMENT;
  *out_offer = (vt_offer){0};
  if (count) st = create_shared(count, out, out_offer);
  if (!st && count) return VT_OK;
  if (st)
    vt_log(VT_LOG_INFO, "no memory is shared with other processes: %s", vt_status_message(st));
  vt_status_free(st);
  vt_segment_close(out);
  void *bell = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bell == MAP_FAILED) return vt_error_no_memory();
  out->bell = bell;
  return VT_OK;
}

vt_lane *vt_segment_lane(const vt_segment *segment, int32_t index) {
  vt_assert(index >= 0 && (size_t)index < segment->lane_count);
  return &segment->lanes[index];
}

// The numbers are another process's word, and may name any file of this user: only a segment of
// vtpu is opened.
static vt_status open_offered(const vt_offer *offer, int *out_fd) {
  char path[64], target[64], wanted[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%u", offer->pid, offer->fd);
  snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", segment_name);
  ssize_t size = readlink(path, target, sizeof target - 1);
  if (size < 0) return failed(path);
  target[size] = 0;
  if (strcmp(target, wanted)) return vt_error(VT_UNAVAILABLE, "%s is no such memory", path);
  *out_fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  return *out_fd < 0 ? failed(path) : VT_OK;
}

vt_status vt_segment_open(const vt_offer *offer, int32_t index, vt_segment *out) {
  vt_segment s = VT_NO_SEGMENT;
  struct stat about;
  int fd = -1;
  vt_assert(index >= 0);
  if (!offer->pid) return vt_error(VT_UNAVAILABLE, "it shares none");
  VT_TRY(open_offered(offer, &fd));
  off_t needed = (off_t)(PAGE + ((size_t)index + 1) * sizeof(vt_lane));
  int seals = fcntl(fd, F_GET_SEALS);
  vt_status st = VT_OK;
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &about) || about.st_size < needed)
    st = vt_error(VT_UNAVAILABLE, "its memory is not as expected");
  if (!st) st = map_segment(fd, (size_t)index, 1, &s);
  if (!st && memcmp(s.bell->secret, offer->secret, sizeof offer->secret))
    st = vt_error(VT_UNAVAILABLE, "process %u of this host is another one", offer->pid);
  close(fd);
  if (st)
    vt_segment_close(&s);
  else
    *out = s;
  return st;
}

void vt_segment_hide(vt_segment *s) {
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
}

void vt_segment_close(vt_segment *s) {
  if (s->bell) munmap(s->bell, PAGE);
  if (s->lanes) munmap(s->lanes, s->lane_count * sizeof(vt_lane));
  vt_segment_hide(s);
  *s = VT_NO_SEGMENT;
}

// ---- bells --------------------------------------------------------------------------------------

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint32_t vt_bell_state(vt_bell *bell) {
  return atomic_load(&bell->rung);
}

void vt_bell_ring(vt_bell *bell) {
  atomic_fetch_add(&bell->rung, 1);
  if (atomic_load(&bell->sleeps))
    syscall(SYS_futex, &bell->rung, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

// Another process of this host may need the processor to get there.
static bool yield_until_rung(vt_bell *bell, uint32_t state) {
  for (int64_t until = now_ns() + SPIN_NS; now_ns() < until; sched_yield())
    if (atomic_load(&bell->rung) != state) return true;
  return false;
}

void vt_bell_wait(vt_bell *bell, uint32_t state) {
  struct timespec second = {1, 0};
  if (yield_until_rung(bell, state)) return;
  atomic_store(&bell->sleeps, 1);
  syscall(SYS_futex, &bell->rung, FUTEX_WAIT, state, &second, NULL, 0);
  atomic_store(&bell->sleeps, 0);
}

// ---- lanes --------------------------------------------------------------------------------------

uint8_t *vt_lane_room(vt_lane *lane) {
  uint64_t sent = atomic_load_explicit(&lane->sent, memory_order_relaxed);
  if (sent - atomic_load(&lane->taken) >= VT_LANE_PIECES) return NULL;
  return lane->bytes[sent % VT_LANE_PIECES];
}

void vt_lane_push(vt_lane *lane, const vt_lane_piece *piece) {
  uint64_t sent = atomic_load_explicit(&lane->sent, memory_order_relaxed);
  vt_assert(piece->size <= VT_PIECE_BYTES);
  lane->pieces[sent % VT_LANE_PIECES] = *piece;
  atomic_store_explicit(&lane->sent, sent + 1, memory_order_release); // the bell is rung after it
}

const uint8_t *vt_lane_front(vt_lane *lane, vt_lane_piece *out_piece) {
  uint64_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
  if (atomic_load(&lane->sent) == taken) return NULL;
  vt_lane_piece piece =
      *(const volatile vt_lane_piece *)&lane->pieces[taken % VT_LANE_PIECES]; // once
  if (piece.size > VT_PIECE_BYTES || piece.at > piece.total || piece.size > piece.total - piece.at)
    piece = (vt_lane_piece){0};
  *out_piece = piece;
  return lane->bytes[taken % VT_LANE_PIECES];
}

bool vt_lane_pop(vt_lane *lane) {
  uint64_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
  atomic_store(&lane->taken, taken + 1);
  return atomic_load(&lane->sent) - taken >= VT_LANE_PIECES;
}
