// SPDX-License-Identifier: Apache-2.0
// lanes.c - sums over two processes in the memory they share, and nothing else: what collectives of
// programs are held against. Out: one line of JSON, seconds by bytes.
//
// Small arrays are swapped whole. Of large ones each process adds its half of every piece, and the
// halves are swapped, as src/eval/collective_part.c does.
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "distributed/shared.h"

enum { SIZES = 4, SMALL = 1 << 14, PIECE = 1 << 20, MOST = 20000 };
static const size_t sizes[SIZES] = {8, 1 << 16, 1 << 20, 1 << 26};
static const int often[SIZES] = {20000, 2000, 200, 12};

typedef struct side {
  int mine;
  vt_bell *own, *other;
  vt_lane *to, *from;
} side;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const float *swap(const side *s, const float *give, size_t bytes) {
  vt_lane_piece piece = {1, 1, 1, bytes, 0, bytes};
  const uint8_t *taken;
  memcpy(vt_lane_room(s->to), give, bytes);
  vt_lane_push(s->to, &piece);
  vt_bell_ring(s->other);
  for (;;) {
    uint32_t state = vt_bell_state(s->own);
    taken = vt_lane_front(s->from, &piece);
    if (taken) return (const float *)(const void *)taken;
    vt_bell_wait(s->own, state);
  }
}

static void add(const float *restrict a, const float *restrict b, size_t n, float *restrict out) {
  for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void sum(const side *s, const float *in, size_t bytes, float *out) {
  size_t n = bytes / 4, step = PIECE / 4;
  if (bytes <= SMALL) {
    add(in, swap(s, in, bytes), n, out);
    (void)vt_lane_pop(s->from);
    return;
  }
  for (size_t at = 0; at < n; at += step) {
    size_t half = (n - at < step ? n - at : step) / 2;
    size_t here = at + (s->mine ? half : 0), there = at + (s->mine ? 0 : half);
    add(in + here, swap(s, in + there, half * 4), half, out + here);
    (void)vt_lane_pop(s->from);
    memcpy(out + there, swap(s, out + here, half * 4), half * 4);
    (void)vt_lane_pop(s->from);
  }
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(const side *s) {
  static double times[MOST];
  float *in = malloc(sizes[SIZES - 1]), *out = malloc(sizes[SIZES - 1]);
  for (size_t i = 0; i < sizes[SIZES - 1] / 4; i++) in[i] = 1, out[i] = 0;
  for (int k = 0; k < SIZES; k++) {
    for (int i = 0; i < often[k]; i++) {
      double begun = now();
      sum(s, in, sizes[k], out);
      times[i] = now() - begun;
    }
    qsort(times, (size_t)often[k], sizeof *times, compare);
    if (!s->mine) printf("%s\"%zu\": %.9f", k ? ", " : "{", sizes[k], times[often[k] / 2]);
  }
  if (!s->mine) printf("}\n");
}

// Each side on a processor of its own, where there are two: whether they share one decides times.
static void stay_on(int which) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(which, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

int main(void) {
  vt_segment own, other;
  int down[2], up[2];
  vt_offer offer, theirs;
  if (pipe(down) || pipe(up)) return 1;
  pid_t parent = getpid(), child = fork();
  side s = {.mine = child == 0};
  if (!child && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)) return 1;
  if (vt_segment_create(2, &own, &offer) || !offer.pid) return 1;
  if (write(child ? down[1] : up[1], &offer, sizeof offer) != sizeof offer) return 1;
  if (read(child ? up[0] : down[0], &theirs, sizeof theirs) != sizeof theirs) return 1;
  if (vt_segment_open(&theirs, s.mine, &other)) return 1;
  s.own = own.bell;
  s.other = other.bell;
  s.to = vt_segment_lane(&own, !s.mine);
  s.from = other.lanes;
  stay_on(s.mine);
  measure(&s);
  return 0;
}
