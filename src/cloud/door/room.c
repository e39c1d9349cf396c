// SPDX-License-Identifier: Apache-2.0
// room.c - see room.h.
#include "cloud/door/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cloud/api/metrics.h"

enum { FEW = 16 }; // a normal number of connections per address
// Limits of unread reply bytes, per address and in total.
enum { MAX_UNREAD_OF_PEER = 64 << 20, MAX_UNREAD = 512 << 20 };
// How long a client that closed its side has for reading the rest.
#define LAST_WORDS_NS VT_SECOND

void vt_room_init(vt_room *room, size_t max, size_t max_of_one) {
  *room = (vt_room){.max = max, .max_of_one = max_of_one};
  pthread_mutex_init(&room->lock, NULL);
}

void vt_room_fini(vt_room *room) {
  while (room->places) {
    vt_place *p = room->places;
    room->places = p->next;
    free(p);
  }
  vt_array_free(&room->by_fd);
  pthread_mutex_destroy(&room->lock);
}

vt_place *vt_room_find(vt_room *room, int fd) {
  return fd >= 0 && (size_t)fd < room->by_fd.size ? room->by_fd.data[fd] : NULL;
}

static void end(vt_room *room, vt_place *p) {
  if (p->ended) return;
  p->ended = true;
  room->open--;
  shutdown(p->fd, SHUT_RDWR);
}

static void remove_place(vt_room *room, vt_place *p) {
  *p->at = p->next;
  if (p->next) p->next->at = p->at;
  room->by_fd.data[p->fd] = NULL;
  room->count--;
  room->unread -= p->unread;
  if (!p->ended) room->open--;
  free(p);
}

// Closes the oldest that may go, of `peer` or of anybody. False when all are busy.
static bool make_way(vt_room *room, const uint32_t *peer) {
  vt_place *eldest = NULL;
  for (vt_place *p = room->places; p; p = p->next)
    if (!p->busy && !p->ended && (!peer || p->peer == *peer) &&
        (!eldest || p->since_ns < eldest->since_ns))
      eldest = p;
  if (eldest) end(room, eldest);
  return eldest != NULL;
}

static bool has_room(vt_room *room, uint32_t peer) {
  size_t same = 0, ended = 0;
  for (const vt_place *p = room->places; p; p = p->next) {
    same += p->peer == peer && !p->ended;
    ended += p->peer == peer && p->ended;
  }
  // Ended connections are closed soon after; during a flood faster than that, other addresses are
  // admitted all the same.
  if (room->count >= room->max + (same + ended < FEW ? room->max : room->max / 4)) return false;
  if (same >= room->max_of_one) return make_way(room, &peer);
  return room->open < room->max || make_way(room, NULL);
}

bool vt_room_enter(vt_room *room, int fd, uint32_t peer, int64_t deadline_ns) {
  vt_place *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return false;
  pthread_mutex_lock(&room->lock);
  // The previous owner of this descriptor was closed without notice.
  vt_place *old = vt_room_find(room, fd);
  if (old) remove_place(room, old);
  bool good = has_room(room, peer);
  if (good) {
    *fresh = (vt_place){.next = room->places,
                        .at = &room->places,
                        .fd = fd,
                        .peer = peer,
                        .receives = true,
                        .since_ns = vt_metrics_clock(),
                        .deadline_ns = deadline_ns};
    if (fresh->next) fresh->next->at = &fresh->next;
    room->places = fresh;
    room->count++;
    room->open++;
    while (room->by_fd.size <= (size_t)fd) vt_array_push(&room->by_fd, NULL);
    room->by_fd.data[fd] = fresh;
  }
  pthread_mutex_unlock(&room->lock);
  if (!good) free(fresh);
  return good;
}

void vt_room_leave(vt_room *room, int fd) {
  pthread_mutex_lock(&room->lock);
  vt_place *p = vt_room_find(room, fd);
  if (p) remove_place(room, p);
  pthread_mutex_unlock(&room->lock);
}

// The client's bytes wait in the kernel until we read them, so the client is not slow.
static bool is_our_turn(const vt_place *p) {
  int bytes = 0;
  return p->receives && !p->ended && ioctl(p->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

void vt_room_sweep(vt_room *room, int64_t now_ns) {
  for (vt_place *p = room->places; p; p = p->next)
    if (!p->busy && ((p->deadline_ns && now_ns > p->deadline_ns && !is_our_turn(p)) ||
                     (p->receives && p->left_ns && now_ns > p->left_ns + LAST_WORDS_NS)))
      end(room, p);
}

size_t vt_room_end_all(vt_room *room) {
  pthread_mutex_lock(&room->lock);
  for (vt_place *p = room->places; p; p = p->next) end(room, p);
  size_t left = room->count;
  pthread_mutex_unlock(&room->lock);
  return left;
}

void vt_room_hold(vt_room *room, vt_place *place, size_t bytes) {
  room->unread += bytes - place->unread;
  place->unread = bytes;
}

bool vt_room_may_reply(vt_room *room, const vt_place *place) {
  size_t same = 0;
  vt_place *most = NULL;
  if (room->unread < MAX_UNREAD_OF_PEER) return true;
  for (vt_place *p = room->places; p; p = p->next) {
    if (p->peer == place->peer) same += p->unread;
    if (!p->ended && (!most || p->unread > most->unread)) most = p;
  }
  if (same >= MAX_UNREAD_OF_PEER) return false;
  if (room->unread >= MAX_UNREAD && most) end(room, most);
  return true;
}

size_t vt_room_share(size_t want, int parts) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return want;
  size_t allowed = (size_t)limit.rlim_cur * (size_t)parts / 100;
  return allowed < 8 ? 8 : allowed < want ? allowed : want;
}

int vt_accept(int listener, struct sockaddr_in *out_from, int *spare) {
  socklen_t size = sizeof *out_from;
  if (*spare < 0) *spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int fd = accept4(listener, (struct sockaddr *)out_from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0 || (errno != EMFILE && errno != ENFILE) || *spare < 0) return fd;
  close(*spare);
  fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd >= 0) close(fd);
  *spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return -1;
}
