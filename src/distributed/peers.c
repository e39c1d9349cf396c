// SPDX-License-Identifier: Apache-2.0
// peers.c - see peers.h. The transport is the TCP connections of the rendezvous.
//
// A message is a frame (hello.h), a head and a body. It is written by the caller as far as the
// socket takes it, and by the thread from there on; each peer's queue keeps the order. With UCX a
// large body goes apart, by the thread: its receiver reads no more of the stream until it is there.
// Death: the end of a peer's stream, at once. Hanging: a peer that says nothing for the limit,
// although each process says at least one word a second.
#include "distributed/peers.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fork.h"
#include "base/log.h"
#include "distributed/rendezvous.h"
#include "distributed/ucx.h"

enum {
  SILENCE_S = 10,
  LEAVE_S = 5,
  READ_BYTES = 1 << 22,
  SPARE_DESCRIPTORS = 512,
  APART_BYTES = 1 << 16, // bodies from here on go by UCX, where there is one
  APART_S = 1            // for a body to arrive whose sender has ended
};

typedef struct outgoing {
  struct outgoing *next;
  size_t done; // of frame, head and body
  vt_bytes body;
  vt_peers_sent sent;
  void *user;
  vt_status error; // for `sent`
  int32_t to;
  vt_bytes apart; // the body, where it goes by UCX: the n-th to this peer
  uint64_t n;
  vt_ucx_transfer transfer;
  size_t head_size;
  uint8_t head[]; // frame and head; a copied body follows
} outgoing;

typedef struct peer {
  int fd; // -1: gone, or this process
  char name[VT_HOST_NAME + 64];
  pthread_mutex_t lock;   // guards the next three, and writing to the socket
  outgoing *first, *last; // not written completely
  vt_status why;          // it is gone
  bool left;              // it said goodbye
  int32_t cause;          // the first whose end it has seen; -1: none
  double heard, said;
  vt_segment segment;      // its own, where it is on this host
  vt_lanes lanes;          // NULL: there are none
  bool by_ucx;             // large bodies
  uint64_t sent, received; // of them; `sent` with the lock
  // The message that is arriving:
  vt_frame frame;
  size_t got; // of frame, head and body
  uint8_t frame_bytes[VT_FRAME_BYTES], *head, *body;
  bool waits; // for a body by UCX
  vt_ucx_transfer apart;
  int unread; // bytes of the stream meanwhile
} peer;

struct vt_peers {
  int32_t count, index;
  peer *peers;
  vt_segment segment; // for processes of the same host; its bell is used in any case
  vt_ucx *ucx;        // NULL: not used
  pthread_mutex_t lock;
  outgoing *apart;     // with the lock: their bodies are to be sent by UCX
  outgoing *under_way; // of the thread: it has begun to
  vt_peers_handler handler;
  int wake; // eventfd
  double silence_s;
  pthread_t thread;
  bool started;
  bool ended; // a peer did without a goodbye, and the others were told
  atomic_bool leaving;
  vt_peers *next; // of all, for forked children
};

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- forked children ----------------------------------------------------------------------------
// A child's copies of the sockets would keep its parent alive in the eyes of the peers.

static vt_peers *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static void close_in_child(void) {
  for (vt_peers *p = all; p; p = p->next)
    for (int32_t i = 0; i < p->count; i++)
      if (p->peers[i].fd >= 0) close(p->peers[i].fd);
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, close_in_child);
}

static void enlist(vt_peers *p) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&all_lock);
  p->next = all;
  all = p;
  pthread_mutex_unlock(&all_lock);
}

static void delist(vt_peers *p) {
  pthread_mutex_lock(&all_lock);
  vt_peers **at = &all;
  while (*at && *at != p) at = &(*at)->next;
  if (*at) *at = p->next;
  pthread_mutex_unlock(&all_lock);
}

// ---- joining ------------------------------------------------------------------------------------

static void peers_free(vt_peers *p) {
  delist(p);
  for (int32_t i = 0; i < p->count; i++) {
    peer *q = &p->peers[i];
    if (q->fd >= 0) close(q->fd);
    vt_segment_close(&q->segment);
    vt_status_free(q->why);
    free(q->head);
    free(q->body);
    pthread_mutex_destroy(&q->lock);
  }
  if (p->wake >= 0) close(p->wake);
  vt_ucx_destroy(p->ucx);
  pthread_mutex_destroy(&p->lock);
  vt_segment_close(&p->segment);
  free(p->peers);
  free(p);
}

static vt_hello hello_of(const vt_join *join, const vt_peers_self *self) {
  vt_hello hello = {
      .index = join->index, .count = join->count, .pid = (int32_t)getpid(), .port = join->own.port};
  snprintf(hello.slice, sizeof hello.slice, "%s", self->slice);
  snprintf(hello.version, sizeof hello.version, "%s", self->version);
  snprintf(hello.machine, sizeof hello.machine, "%s", self->machine);
  snprintf(hello.host, sizeof hello.host, "%s", join->own.host);
  return hello;
}

static bool opens(vt_peers *p, int32_t i, const uint8_t *bytes) {
  vt_offer theirs = vt_offer_read(bytes);
  if (i == p->index || p->segment.fd < 0) return false;
  vt_status st = vt_segment_open(&theirs, p->index, &p->peers[i].segment);
  if (st) vt_log(VT_LOG_DEBUG, "%s: no shared memory: %s", p->peers[i].name, vt_status_message(st));
  bool opened = st == VT_OK;
  vt_status_free(st);
  return opened;
}

// Each offers its segment to all, opens what it can, and says which: a lane is used where both have
// opened each other's, so both know.
static vt_status share_memory(vt_peers *p, const vt_join *join, const int *sockets,
                              const vt_member *members) {
  size_t count = (size_t)p->count;
  vt_offer offer = {0};
  uint8_t *out = calloc(count, VT_OFFER_BYTES), *in = calloc(count, VT_OFFER_BYTES);
  vt_status st = out && in ? VT_OK : vt_error_no_memory();
  if (!st)
    st =
        vt_segment_create(join->transport == VT_TRANSPORT_AUTO ? p->count : 0, &p->segment, &offer);
  for (size_t i = 0; i < count && !st; i++) vt_offer_write(&offer, out + i * VT_OFFER_BYTES);
  if (!st) st = vt_rendezvous_swap(join, members, sockets, VT_OFFER_BYTES, out, in);
  for (int32_t i = 0; i < p->count && !st; i++)
    out[i] = opens(p, i, in + (size_t)i * VT_OFFER_BYTES);
  if (!st) st = vt_rendezvous_swap(join, members, sockets, 1, out, in);
  vt_segment_hide(&p->segment);
  int32_t shared = 0;
  for (int32_t i = 0; i < p->count && !st; i++) {
    peer *q = &p->peers[i];
    if (!out[i] || !in[i]) continue;
    q->lanes = (vt_lanes){vt_segment_lane(&p->segment, i), q->segment.lanes, q->segment.bell};
    shared++;
  }
  if (!st)
    vt_log(VT_LOG_INFO, "process %d shares memory with %d of %d others", p->index, shared,
           p->count - 1);
  free(out);
  free(in);
  return st;
}

// Those that have UCX tell each other their addresses.
static vt_status share_ucx(vt_peers *p, const vt_join *join, const int *sockets,
                           const vt_member *members) {
  size_t count = (size_t)p->count;
  uint8_t *out = calloc(count, VT_UCX_OFFER_BYTES), *in = calloc(count, VT_UCX_OFFER_BYTES);
  int *with = malloc(count * sizeof *with), connected = 0;
  vt_status st = out && in && with ? VT_OK : vt_error_no_memory();
  if (!st && join->transport == VT_TRANSPORT_UCX) st = vt_ucx_create(p->count, &p->ucx);
  for (size_t i = 0; i < count && !st; i++) out[i] = p->ucx != NULL;
  if (!st) st = vt_rendezvous_swap(join, members, sockets, 1, out, in);
  for (size_t i = 0; i < count && !st; i++) with[i] = p->ucx && in[i] ? sockets[i] : -1;
  for (int32_t i = 0; i < p->count && !st; i++)
    vt_ucx_offer(p->ucx, i, out + (size_t)i * VT_UCX_OFFER_BYTES);
  if (!st) st = vt_rendezvous_swap(join, members, with, VT_UCX_OFFER_BYTES, out, in);
  for (int32_t i = 0; i < p->count && !st; i++) {
    if (with[i] < 0) continue;
    st = vt_ucx_connect(p->ucx, i, in + (size_t)i * VT_UCX_OFFER_BYTES);
    p->peers[i].by_ucx = st == VT_OK;
    connected += st == VT_OK;
  }
  if (!st && p->ucx)
    vt_log(VT_LOG_INFO, "process %d uses UCX with %d of %d others", p->index, connected,
           p->count - 1);
  free(out);
  free(in);
  free(with);
  return st;
}

// A descriptor for each other process, where the soft limit has not as many.
static void raise_descriptors(int32_t count) {
  struct rlimit limit;
  rlim_t needed = (rlim_t)count + SPARE_DESCRIPTORS;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed) return;
  limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

vt_status vt_peers_join(const vt_join *join, const vt_peers_self *self, vt_peers **out_peers) {
  size_t count = (size_t)join->count;
  vt_peers *p = calloc(1, sizeof *p);
  int *sockets = calloc(count, sizeof *sockets);
  vt_member *members = calloc(count, sizeof *members);
  vt_hello hello = hello_of(join, self);
  vt_status st = VT_OK;
  raise_descriptors(join->count);
  if (p) p->peers = calloc(count, sizeof *p->peers);
  if (!p || !sockets || !members || !p->peers) {
    st = vt_error_no_memory();
    if (p) free(p->peers);
    free(p);
    p = NULL;
    goto out;
  }
  p->count = join->count;
  p->index = join->index;
  p->silence_s = SILENCE_S;
  p->segment = VT_NO_SEGMENT;
  pthread_mutex_init(&p->lock, NULL);
  p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (size_t i = 0; i < count; i++) {
    p->peers[i].fd = p->peers[i].cause = -1;
    p->peers[i].segment = VT_NO_SEGMENT;
    pthread_mutex_init(&p->peers[i].lock, NULL);
  }
  enlist(p);
  if (p->wake < 0) st = vt_error(VT_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
  if (!st) st = vt_rendezvous(join, &hello, sockets, members);
  for (size_t i = 0; i < count && !st; i++) {
    peer *q = &p->peers[i];
    q->fd = sockets[i];
    snprintf(q->name, sizeof q->name, "process %zu (host %s, pid %d)", i,
             join->names[i] ? join->names[i] : members[i].address.host, members[i].pid);
  }
  if (!st) st = share_memory(p, join, sockets, members);
  if (!st) st = share_ucx(p, join, sockets, members);
out:
  free(sockets);
  free(members);
  if (st && p) peers_free(p);
  *out_peers = st ? NULL : p;
  return st;
}

const char *vt_peers_name(const vt_peers *peers, int32_t i) {
  vt_assert(i >= 0 && i < peers->count);
  return peers->peers[i].name;
}

vt_bell *vt_peers_bell(const vt_peers *peers) {
  return peers->segment.bell;
}

const vt_lanes *vt_peers_lanes(const vt_peers *peers, int32_t i) {
  return peers->peers[i].lanes.to ? &peers->peers[i].lanes : NULL;
}

// ---- sending ------------------------------------------------------------------------------------

static void wake(const vt_peers *p) {
  uint64_t one = 1;
  (void)!write(p->wake, &one, sizeof one);
}

// With the peer's lock held: writes what the socket takes. Returns those that are complete.
// *out_good false: the connection is broken.
static outgoing *write_queue(peer *q, bool *out_good) {
  outgoing *complete = NULL, **end = &complete;
  *out_good = true;
  while (q->first) {
    outgoing *o = q->first;
    size_t total = o->head_size + o->body.size;
    while (o->done < total) {
      size_t in_head = o->done < o->head_size ? o->done : o->head_size, in_body = o->done - in_head;
      struct iovec parts[2] = {
          {o->head + in_head, o->head_size - in_head},
          {(void *)(uintptr_t)(o->body.data + in_body), o->body.size - in_body}};
      struct msghdr message = {.msg_iov = parts, .msg_iovlen = o->body.size ? 2 : 1};
      ssize_t n = sendmsg(q->fd, &message, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        *out_good = errno == EAGAIN;
        return complete;
      }
      o->done += (size_t)n;
    }
    q->said = now_s();
    q->first = o->next;
    if (!q->first) q->last = NULL;
    o->next = NULL;
    *end = o;
    end = &o->next;
  }
  return complete;
}

// Of those whose body goes apart the head is written: the thread sends the rest.
static void finish(vt_peers *p, outgoing *list) {
  bool apart = false;
  for (outgoing *next; list; list = next) {
    next = list->next;
    if (list->apart.size && !list->error) {
      pthread_mutex_lock(&p->lock);
      list->next = p->apart;
      p->apart = list;
      pthread_mutex_unlock(&p->lock);
      apart = true;
      continue;
    }
    if (list->sent)
      list->sent(list->user, list->error);
    else
      vt_status_free(list->error);
    free(list);
  }
  if (apart) wake(p);
}

static outgoing *outgoing_create(vt_frame frame, vt_bytes head, vt_bytes body, bool copy) {
  size_t head_size = VT_FRAME_BYTES + head.size;
  outgoing *o = malloc(sizeof *o + head_size + (copy ? body.size : 0));
  if (!o) return NULL;
  *o = (outgoing){.body = body, .head_size = head_size};
  vt_frame_write(frame, o->head);
  if (head.size) memcpy(o->head + VT_FRAME_BYTES, head.data, head.size);
  if (copy && body.size) {
    memcpy(o->head + head_size, body.data, body.size);
    o->body.data = o->head + head_size;
  }
  return o;
}

// Takes `o`.
static void enqueue(vt_peers *p, int32_t to, outgoing *o) {
  peer *q = &p->peers[to];
  bool good = true, rest = false;
  outgoing *complete = NULL;
  pthread_mutex_lock(&q->lock);
  if (q->why || q->fd < 0) {
    o->error = q->why ? vt_status_copy(q->why)
                      : vt_error(VT_INTERNAL, "a message of process %d to itself", to);
    complete = o;
  } else {
    bool first = !q->first;
    if (o->apart.size) o->n = q->sent++;
    if (first)
      q->first = o;
    else
      q->last->next = o;
    q->last = o;
    if (first) complete = write_queue(q, &good);
    rest = q->first != NULL; // or broken: the thread finds out
  }
  pthread_mutex_unlock(&q->lock);
  if (rest) wake(p);
  finish(p, complete);
}

void vt_peers_send(vt_peers *peers, int32_t to, vt_bytes head, vt_bytes body, vt_peers_sent sent,
                   void *user) {
  vt_assert(to >= 0 && to < peers->count && head.size > 0);
  bool apart = peers->peers[to].by_ucx && body.size >= APART_BYTES;
  vt_frame frame = {apart ? VT_FRAME_APART : VT_FRAME_MESSAGE, (uint32_t)head.size, body.size};
  outgoing *o = outgoing_create(frame, head, body, sent == NULL);
  if (!o) {
    if (sent) sent(user, vt_error_no_memory());
    return; // the peer's wait ends at its limit
  }
  o->sent = sent;
  o->user = user;
  o->to = to;
  if (apart) {
    o->apart = o->body;
    o->body = (vt_bytes){0};
  }
  enqueue(peers, to, o);
}

static void send_word(vt_peers *p, int32_t to, vt_frame frame) {
  outgoing *o = outgoing_create(frame, (vt_bytes){0}, (vt_bytes){0}, false);
  if (o) enqueue(p, to, o);
}

// ---- receiving ----------------------------------------------------------------------------------

// Those who end because of another's end may be heard before it is.
static vt_status gone(const vt_peers *p, const peer *q, const char *how) {
  if (q->left) how = "has left the job";
  if (q->cause >= 0)
    return vt_error(VT_UNAVAILABLE, "%s ended, and %s %s", p->peers[q->cause].name, q->name, how);
  return vt_error(VT_UNAVAILABLE, "%s %s", q->name, how);
}

// Nothing is under way by UCX with a peer that is lost. Bytes that UCX does not let go of are lost,
// too, rather than freed under its hands.
static void end_apart(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  for (outgoing **at = &p->under_way; *at;) {
    outgoing *o = *at;
    if (o->to == i && !vt_ucx_end(p->ucx, i, &o->transfer))
      *at = o->next;
    else
      at = &o->next;
  }
  if (q->waits && !vt_ucx_end(p->ucx, i, &q->apart)) q->body = NULL;
  q->waits = false;
}

// Takes `why`. The others hear of the first end before the program does, which may end at once.
static void lose(vt_peers *p, int32_t i, vt_status why) {
  peer *q = &p->peers[i];
  pthread_mutex_lock(&q->lock);
  outgoing *queue = q->first;
  q->first = q->last = NULL;
  q->why = vt_status_copy(why);
  close(q->fd);
  q->fd = -1;
  pthread_mutex_unlock(&q->lock);
  for (outgoing *o = queue; o; o = o->next) o->error = vt_status_copy(why);
  finish(p, queue);
  if (q->by_ucx) end_apart(p, i);
  int32_t dead = q->left || q->cause >= 0 ? q->cause : i;
  if (dead >= 0 && !p->ended) {
    p->ended = true;
    for (int32_t k = 0; k < p->count; k++)
      if (p->peers[k].fd >= 0) send_word(p, k, (vt_frame){VT_FRAME_LOST, 0, (uint64_t)dead});
  }
  if (!q->left) vt_log(VT_LOG_INFO, "%s", vt_status_message(why));
  p->handler.lost(p->handler.user, i, why);
}

static void reset(peer *q) {
  free(q->head);
  free(q->body);
  q->head = q->body = NULL;
  q->got = 0;
}

// The head is complete.
static vt_status take_head(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  if (!q->frame.body) return VT_OK;
  if (!p->handler.expects(p->handler.user, i, (vt_bytes){q->head, q->frame.head}, q->frame.body))
    return vt_error(VT_INTERNAL, "%s sent %llu bytes that nobody waits for", q->name,
                    (unsigned long long)q->frame.body);
  q->body = malloc(q->frame.body);
  if (!q->body) return vt_error_no_memory();
  if (q->frame.kind == VT_FRAME_APART) {
    q->apart = vt_ucx_receive(p->ucx, i, q->received++, q->body, q->frame.body);
    q->waits = true;
    q->unread = 0;
  }
  return VT_OK;
}

// What a frame says of ends, if it does.
static void take_word(vt_peers *p, int32_t i, vt_frame frame) {
  peer *q = &p->peers[i];
  if (frame.kind == VT_FRAME_BYE) q->left = true;
  if (frame.kind == VT_FRAME_LOST && frame.body < (uint64_t)p->count && frame.body != (uint64_t)i)
    q->cause = (int32_t)frame.body;
}

static vt_status take_frame(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  vt_status st = vt_frame_read(q->frame_bytes, &q->frame);
  if (!st && (q->frame.kind > VT_FRAME_BYE ||
              (q->frame.kind == VT_FRAME_APART && (!q->by_ucx || !q->frame.body))))
    st = vt_error(VT_INVALID_ARGUMENT, "a message of kind %u", q->frame.kind);
  if (st) return vt_status_wrap(st, "%s", q->name);
  take_word(p, i, q->frame);
  if (q->frame.kind > VT_FRAME_APART) {
    q->got = 0;
    return VT_OK;
  }
  q->head = malloc(q->frame.head);
  return q->head ? VT_OK : vt_error_no_memory();
}

static void deliver(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  if (p->handler.message(p->handler.user, i, (vt_bytes){q->head, q->frame.head},
                         (vt_bytes){q->body, q->frame.body}))
    q->body = NULL;
  reset(q);
}

// Reads one part: of the frame, the head or the body. *out_n: as recv.
static vt_status read_part(vt_peers *p, int32_t i, ssize_t *out_n) {
  peer *q = &p->peers[i];
  size_t head_end = VT_FRAME_BYTES + (q->head ? q->frame.head : 0), at = q->got, room;
  uint8_t *to;
  if (at < VT_FRAME_BYTES) {
    to = q->frame_bytes + at;
    room = VT_FRAME_BYTES - at;
  } else if (at < head_end) {
    to = q->head + (at - VT_FRAME_BYTES);
    room = head_end - at;
  } else {
    to = q->body + (at - head_end);
    room = q->frame.body - (at - head_end);
  }
  *out_n = recv(q->fd, to, room, 0);
  if (*out_n <= 0) return VT_OK;
  q->got += (size_t)*out_n;
  if (q->got == VT_FRAME_BYTES) VT_TRY(take_frame(p, i));
  if (!q->head) return VT_OK;
  head_end = VT_FRAME_BYTES + q->frame.head;
  if (q->got == head_end) VT_TRY(take_head(p, i));
  if (q->got == head_end + q->frame.body) deliver(p, i);
  return VT_OK;
}

static void read_from(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  for (size_t budget = READ_BYTES; budget > 0 && !q->waits;) { // then the others' turn
    ssize_t n;
    vt_status st = read_part(p, i, &n);
    if (st || n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      if (!st) st = gone(p, q, "ended");
      lose(p, i, st);
      return;
    }
    if (n < 0) return;
    q->heard = now_s();
    budget -= (size_t)n < budget ? (size_t)n : budget;
  }
}

// ---- bodies by UCX ------------------------------------------------------------------------------

// Reads `size` bytes of what is there; those beyond `room` are dropped.
static bool read_there(peer *q, uint8_t *out, size_t room, uint64_t size) {
  uint8_t dropped[4096];
  for (uint64_t at = 0; at < size;) {
    bool keep = at < room;
    uint64_t most = keep ? room - at : sizeof dropped;
    ssize_t n = recv(q->fd, keep ? out + at : dropped, most < size - at ? most : size - at, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += (uint64_t)n;
  }
  return true;
}

// A body will not arrive. What its sender said behind it of ends holds all the same: who ended
// first. The messages in between are lost.
static void lose_behind_body(vt_peers *p, int32_t i, const char *how) {
  peer *q = &p->peers[i];
  uint8_t bytes[VT_FRAME_BYTES];
  vt_frame frame;
  for (double until = now_s() + APART_S; now_s() < until;) {
    if (!read_there(q, bytes, sizeof bytes, sizeof bytes)) break;
    vt_status st = vt_frame_read(bytes, &frame);
    vt_status_free(st);
    if (st || frame.kind > VT_FRAME_BYE) break;
    take_word(p, i, frame);
    if (frame.kind <= VT_FRAME_APART &&
        !read_there(q, NULL, 0, frame.head + (frame.kind == VT_FRAME_MESSAGE ? frame.body : 0)))
      break;
  }
  lose(p, i, gone(p, q, how));
}

// Whether the body that this peer's stream waits for has arrived, or has failed.
static void take_apart(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  vt_ucx_state state = vt_ucx_look(p->ucx, &q->apart);
  if (state == VT_UCX_UNDER_WAY) return;
  q->waits = false;
  q->heard = now_s();
  if (state == VT_UCX_DONE)
    deliver(p, i);
  else
    lose_behind_body(p, i, "sent something by UCX that did not arrive");
}

// The stream has ended: what was sent before may still be on its way.
static void take_last(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  for (double until = now_s() + APART_S; q->waits && now_s() < until; sched_yield()) {
    vt_ucx_progress(p->ucx);
    take_apart(p, i);
  }
  if (q->waits) lose_behind_body(p, i, "ended");
}

static void begin_apart(vt_peers *p) {
  pthread_mutex_lock(&p->lock);
  outgoing *list = p->apart;
  p->apart = NULL;
  pthread_mutex_unlock(&p->lock);
  for (outgoing *o = list, *next; o; o = next) {
    next = o->next;
    o->transfer = vt_ucx_send(p->ucx, o->to, o->n, o->apart);
    o->next = p->under_way;
    p->under_way = o;
  }
}

// It cannot be written to. What it said before its end is still to be read.
static void lose_after_reading(vt_peers *p, int32_t i, const char *how) {
  peer *q = &p->peers[i];
  for (double until = now_s() + APART_S; q->fd >= 0 && now_s() < until;) {
    if (recv(q->fd, &(char){0}, 1, MSG_PEEK) <= 0) break;
    (q->waits ? take_last : read_from)(p, i);
  }
  if (q->fd >= 0) lose(p, i, gone(p, q, how));
}

// Takes `o`, whose body has gone, or not.
static void finish_apart(vt_peers *p, outgoing *o, vt_ucx_state state) {
  peer *q = &p->peers[o->to];
  o->next = NULL;
  o->apart.size = 0;
  if (state == VT_UCX_FAILED) {
    lose_after_reading(p, o->to, "cannot be reached by UCX");
    o->error = vt_status_copy(q->why);
  }
  finish(p, o);
}

static void move_apart(vt_peers *p) {
  begin_apart(p);
  vt_ucx_progress(p->ucx);
  for (outgoing **at = &p->under_way; *at;) {
    outgoing *o = *at;
    vt_ucx_state state = vt_ucx_look(p->ucx, &o->transfer);
    if (state == VT_UCX_UNDER_WAY) {
      at = &o->next;
      continue;
    }
    *at = o->next;
    finish_apart(p, o, state);
    at = &p->under_way; // another one may have gone with its peer
  }
  for (int32_t i = 0; i < p->count; i++)
    if (p->peers[i].waits) take_apart(p, i);
}

// ---- the thread ---------------------------------------------------------------------------------

static void write_to(vt_peers *p, int32_t i) {
  peer *q = &p->peers[i];
  bool good;
  pthread_mutex_lock(&q->lock);
  outgoing *complete = write_queue(q, &good);
  pthread_mutex_unlock(&q->lock);
  finish(p, complete);
  if (!good) lose_after_reading(p, i, "ended");
}

// A stream that is not read fills all the same, while its peer lives.
static void note_unread(peer *q, double now) {
  int unread = q->unread;
  if (ioctl(q->fd, FIONREAD, &unread) || unread == q->unread) return;
  q->unread = unread;
  q->heard = now;
}

static void look_after(vt_peers *p, double now) {
  for (int32_t i = 0; i < p->count; i++) {
    peer *q = &p->peers[i];
    if (q->fd < 0) continue;
    if (q->waits) note_unread(q, now);
    if (now - q->heard > p->silence_s) {
      char how[96];
      snprintf(how, sizeof how, "has given no sign of life for %.0f s", p->silence_s);
      lose(p, i, gone(p, q, how));
      continue;
    }
    pthread_mutex_lock(&q->lock);
    bool quiet = now - q->said > 0.9;
    pthread_mutex_unlock(&q->lock);
    if (quiet) send_word(p, i, (vt_frame){VT_FRAME_PING, 0, 0});
  }
  p->handler.tick(p->handler.user);
}

static bool all_written(vt_peers *p) {
  pthread_mutex_lock(&p->lock);
  bool written = !p->apart;
  pthread_mutex_unlock(&p->lock);
  written = written && !p->under_way;
  for (int32_t i = 0; i < p->count; i++) {
    peer *q = &p->peers[i];
    pthread_mutex_lock(&q->lock);
    written = written && (q->fd < 0 || !q->first);
    pthread_mutex_unlock(&q->lock);
  }
  return written;
}

static void fill_polls(vt_peers *p, struct pollfd *polls) {
  for (int32_t i = 0; i < p->count; i++) {
    peer *q = &p->peers[i];
    pthread_mutex_lock(&q->lock);
    polls[i] = (struct pollfd){
        q->fd, (short)((q->waits ? POLLRDHUP : POLLIN) | (q->first ? POLLOUT : 0)), 0};
    pthread_mutex_unlock(&q->lock);
  }
  polls[p->count] = (struct pollfd){p->wake, POLLIN, 0};
  polls[p->count + 1] = (struct pollfd){p->ucx ? vt_ucx_descriptor(p->ucx) : -1, POLLIN, 0};
}

static void *peers_main(void *user) {
  vt_peers *p = user;
  nfds_t count = (nfds_t)p->count + 2;
  struct pollfd *polls = calloc(count, sizeof *polls);
  double next = now_s() + 1, leave_by = 0;
  while (polls) {
    if (atomic_load(&p->leaving)) {
      if (!leave_by) leave_by = now_s() + LEAVE_S;
      if (all_written(p) || now_s() > leave_by) break;
    }
    if (p->ucx) move_apart(p);
    fill_polls(p, polls);
    double left = next - now_s();
    bool busy = p->ucx && !vt_ucx_may_sleep(p->ucx);
    if (busy) sched_yield();
    int n = poll(polls, count, !busy && left > 0 ? (int)(left * 1000) + 1 : 0);
    if (n > 0 && polls[p->count].revents) (void)!read(p->wake, &(uint64_t){0}, sizeof(uint64_t));
    for (int32_t i = 0; n > 0 && i < p->count; i++) {
      if (polls[i].revents & (POLLIN | POLLRDHUP | POLLHUP | POLLERR))
        (p->peers[i].waits ? take_last : read_from)(p, i);
      if (p->peers[i].fd >= 0 && polls[i].revents & POLLOUT) write_to(p, i);
    }
    double now = now_s();
    if (now < next) continue;
    next = now + 1;
    look_after(p, now);
  }
  if (p->ucx) vt_ucx_flush(p->ucx, leave_by > now_s() ? leave_by - now_s() : 0);
  free(polls);
  return NULL;
}

vt_status vt_peers_start(vt_peers *p, const vt_peers_handler *handler) {
  sigset_t every, before;
  p->handler = *handler;
  for (int32_t i = 0; i < p->count; i++) p->peers[i].heard = p->peers[i].said = now_s();
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  int failed = pthread_create(&p->thread, NULL, peers_main, p);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed)
    return vt_error(VT_RESOURCE_EXHAUSTED, "the thread for other processes could not be started");
  pthread_setname_np(p->thread, "vtpu-peers");
  p->started = true;
  return VT_OK;
}

// Data that is never read would make the kernel reset the connection, and lose what we sent: so
// each stream is read to its end, which comes when the peer has seen ours.
static void close_orderly(vt_peers *p) {
  char rest[4096];
  double until = now_s() + 1;
  for (int32_t i = 0; i < p->count; i++)
    if (p->peers[i].fd >= 0) shutdown(p->peers[i].fd, SHUT_WR);
  for (int32_t i = 0; i < p->count; i++) {
    peer *q = &p->peers[i];
    while (q->fd >= 0 && now_s() < until) {
      struct pollfd one = {q->fd, POLLIN, 0};
      if (poll(&one, 1, (int)((until - now_s()) * 1000) + 1) > 0 &&
          recv(q->fd, rest, sizeof rest, 0) <= 0)
        break;
    }
  }
}

static void cancel(vt_peers *p, outgoing *list) {
  for (outgoing *o = list; o; o = o->next)
    o->error = vt_error(VT_CANCELLED, "this process leaves the job");
  finish(p, list);
}

void vt_peers_leave(vt_peers *p) {
  if (!p) return;
  if (!vt_forked()) {
    for (int32_t i = 0; i < p->count && p->started; i++)
      if (i != p->index) send_word(p, i, (vt_frame){VT_FRAME_BYE, 0, 0});
    atomic_store(&p->leaving, true);
    wake(p);
    if (p->started) pthread_join(p->thread, NULL);
    close_orderly(p);
    for (int32_t i = 0; i < p->count; i++) {
      outgoing *queue = p->peers[i].first;
      p->peers[i].first = NULL;
      if (p->peers[i].by_ucx) end_apart(p, i);
      cancel(p, queue);
    }
    cancel(p, p->apart);
    cancel(p, p->under_way);
    peers_free(p);
  }
}
