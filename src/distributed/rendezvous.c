// SPDX-License-Identifier: Apache-2.0
// rendezvous.c - how the processes of a slice find each other, from the environment alone, or from
// a store that the framework has.
//
// Each listens on its own address. All connect to process 0, which waits until everybody is there,
// compares them, and answers with the addresses of all; then each connects to those with a lower
// index. A connection begins with a hello (hello.h); what does not begin like one is closed and
// forgotten, so that strangers on the network can neither join nor delay.
// Every wait ends at one deadline, with the names of those who are missing.
#include "distributed/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "distributed/root.h"

enum {
  SAY_AFTER_S = 60,
  STRANGER_S = 10,
  GRACE_S = 5,
  NAMES_MOST = 8,
  PENDING_MOST = 2 * VT_PROCESSES_MOST
};

// A connection whose hello is not complete.
typedef struct pending {
  int fd;
  size_t size;
  double since;
  uint8_t bytes[VT_HELLO_BYTES];
} pending;

typedef struct meeting_point {
  const vt_join *join;
  vt_hello self;
  vt_member *members;
  int *sockets;
  int listener;
  vt_root root; // where process 0 may be
  const char *cookie;
  double deadline, say_at;
  int pending_count;
  pending *pending; // [PENDING_MOST]
} meeting_point;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put_name(vt_text *text, const vt_join *join, int32_t i) {
  vt_text_printf(text, "process %d", i);
  if (join->names[i]) vt_text_printf(text, " (host %s)", join->names[i]);
}

// ---- sockets ------------------------------------------------------------------------------------

static bool is_loopback(const struct sockaddr *a) {
  if (a->sa_family == AF_INET)
    return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

// A name that means this machine and no other.
static bool says_loopback(const char *host) {
  return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1");
}

static int resolve(const char *host, int32_t port, struct addrinfo **out_list) {
  char service[16];
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET};
  snprintf(service, sizeof service, "%d", port);
  int failed = getaddrinfo(host, service, &hints, out_list);
  if (!failed) return 0;
  hints.ai_family = AF_INET6;
  return getaddrinfo(host, service, &hints, out_list) ? failed : 0;
}

static int open_socket(const struct addrinfo *a) {
  int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static bool listen_at(int fd, const struct addrinfo *a) {
  return bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, PENDING_MOST) == 0;
}

// Debian's /etc/hosts gives a host's own name a loopback address, which no other host reaches; and
// the public address of a machine behind a gateway is none of its own. Then every address is
// listened on.
static bool listen_anywhere(int *fd, const struct addrinfo *a, int32_t port) {
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct addrinfo all = {
      .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&any, .ai_addrlen = sizeof any};
  (void)a;
  close(*fd);
  *fd = open_socket(&all);
  return *fd >= 0 && listen_at(*fd, &all);
}

// Any port of any address, for those who learn it from the store.
static vt_status listen_for_store(meeting_point *m) {
  struct sockaddr_in at = {0};
  socklen_t size = sizeof at;
  struct addrinfo nowhere = {.ai_family = AF_INET};
  m->listener = open_socket(&nowhere);
  if (m->listener < 0 || !listen_anywhere(&m->listener, &nowhere, 0) ||
      getsockname(m->listener, (struct sockaddr *)&at, &size))
    return vt_error(VT_UNAVAILABLE, "process %d: cannot listen: %s", m->join->index,
                    strerror(errno));
  m->self.port = ntohs(at.sin_port);
  m->members[m->join->index].address.port = m->self.port;
  return VT_OK;
}

static vt_status open_listener(meeting_point *m) {
  const vt_address *own = &m->join->own;
  struct addrinfo *list = NULL;
  int failed = resolve(own->host, own->port, &list);
  if (failed)
    return vt_error(VT_UNAVAILABLE, "process %d: its own host %s is not known: %s", m->join->index,
                    own->host, gai_strerror(failed));
  m->listener = open_socket(list);
  bool hidden = is_loopback(list->ai_addr) && !says_loopback(own->host);
  bool good = m->listener >= 0 && !hidden && listen_at(m->listener, list);
  if (!good && (hidden || errno == EADDRNOTAVAIL))
    good = listen_anywhere(&m->listener, list, own->port);
  int why = errno;
  freeaddrinfo(list);
  if (good) return VT_OK;
  if (why == EADDRINUSE)
    return vt_error(VT_UNAVAILABLE,
                    "process %d: port %d of %s is taken, perhaps by a process of an earlier run; "
                    "end it, or choose others with TPU_PROCESS_PORT or TPU_PROCESS_ADDRESSES",
                    m->join->index, own->port, own->host);
  return vt_error(VT_UNAVAILABLE, "process %d: cannot listen on %s:%d: %s", m->join->index,
                  own->host, own->port, strerror(why));
}

// Waits for `events`; false at the deadline.
static bool wait_for(const meeting_point *m, int fd, short events) {
  for (;;) {
    double left = m->deadline - now_s();
    struct pollfd p = {fd, events, 0};
    if (left <= 0) return false;
    int n = poll(&p, 1, (int)(left * 1000) + 1);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

static bool write_all(const meeting_point *m, int fd, const void *bytes, size_t size) {
  const char *at = bytes;
  while (size) {
    ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n > 0) {
      at += n;
      size -= (size_t)n;
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(m, fd, POLLOUT))) {
      return false;
    }
  }
  return true;
}

static bool read_all(const meeting_point *m, int fd, void *bytes, size_t size) {
  char *at = bytes;
  while (size) {
    ssize_t n = recv(fd, at, size, 0);
    if (n > 0) {
      at += n;
      size -= (size_t)n;
    } else if (n == 0 || (errno != EINTR && (errno != EAGAIN || !wait_for(m, fd, POLLIN)))) {
      return false;
    }
  }
  return true;
}

// One attempt; -1: not there yet.
static int try_connect(const meeting_point *m, const vt_address *to) {
  struct addrinfo *list = NULL, *own = NULL;
  if (resolve(to->host, to->port, &list)) return -1;
  int fd = open_socket(list);
  // Workers that share a network differ by their loopback addresses; the other side reads ours.
  if (fd >= 0 && says_loopback(m->join->own.host) && is_loopback(list->ai_addr) &&
      !resolve(m->join->own.host, 0, &own)) {
    // The port when it connects: those of the whole machine would not do for 250 processes.
    int one = 1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (own->ai_family == list->ai_family) (void)!bind(fd, own->ai_addr, own->ai_addrlen);
    freeaddrinfo(own);
  }
  bool good =
      fd >= 0 && (connect(fd, list->ai_addr, list->ai_addrlen) == 0 || errno == EINPROGRESS);
  freeaddrinfo(list);
  struct pollfd p = {fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  good = good && poll(&p, 1, 5000) == 1 &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  if (good) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static void say_waiting(meeting_point *m, const char *for_whom) {
  if (now_s() < m->say_at) return;
  m->say_at = m->deadline + 1; // once
  vt_log(VT_LOG_WARNING,
         "process %d of %d waits for %s since %d s. Does the program run on all hosts?",
         m->join->index, m->join->count, for_whom, SAY_AFTER_S);
}

// `to`: where it may be, one of `count`.
static vt_status connect_to(meeting_point *m, int32_t peer, const vt_address *to, int32_t count,
                            int *out_fd) {
  char whom[VT_HOST_NAME + 64];
  snprintf(whom, sizeof whom, "process %d (host %s) at port %d", peer, to->host, to->port);
  for (long pause = 20000000; now_s() < m->deadline;
       pause = pause < 400000000 ? 2 * pause : pause) {
    for (int32_t i = 0; i < count; i++) {
      *out_fd = try_connect(m, &to[i]);
      if (*out_fd >= 0) return VT_OK;
    }
    say_waiting(m, whom);
    nanosleep(&(struct timespec){0, pause}, NULL);
  }
  return vt_error(VT_DEADLINE_EXCEEDED,
                  "process %d of %d: %s did not answer in %.0f s. All processes must be started, "
                  "and the port open between hosts; VTPU_JOIN_TIMEOUT changes the limit",
                  m->join->index, m->join->count, whom, m->join->timeout_s);
}

// ---- hellos -------------------------------------------------------------------------------------

static bool say_hello(meeting_point *m, int fd) {
  uint8_t bytes[VT_HELLO_BYTES];
  vt_hello_write(&m->self, m->cookie, bytes);
  return write_all(m, fd, bytes, sizeof bytes);
}

static void drop(meeting_point *m, int i, bool keep_open) {
  if (!keep_open) close(m->pending[i].fd);
  m->pending[i] = m->pending[--m->pending_count];
}

static void accept_one(meeting_point *m) {
  int one = 1, fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (m->pending_count == PENDING_MOST) drop(m, 0, false);
  pending *p = &m->pending[m->pending_count++];
  p->fd = fd;
  p->size = 0;
  p->since = now_s();
}

static void note_address(meeting_point *m, int fd, const vt_hello *hello) {
  struct sockaddr_storage from = {0};
  socklen_t size = sizeof from;
  vt_member *member = &m->members[hello->index];
  getpeername(fd, (struct sockaddr *)&from, &size);
  if (getnameinfo((struct sockaddr *)&from, size, member->address.host, VT_HOST_NAME, NULL, 0,
                  NI_NUMERICHOST))
    member->address.host[0] = 0;
  member->address.port = hello->port;
  member->pid = hello->pid;
}

// A complete hello of a process of this job. errors FAILED_PRECONDITION: it does not fit
static vt_status meet(meeting_point *m, int fd, const vt_hello *hello) {
  VT_TRY(vt_hello_compare(&m->self, hello));
  if (hello->index == m->join->index || m->sockets[hello->index] >= 0)
    return vt_error(
        VT_FAILED_PRECONDITION,
        "two processes say they are number %d: pid %d of host %s and pid %d. Each needs "
        "its own TPU_WORKER_ID or CLOUD_TPU_TASK_ID",
        hello->index, hello->pid, hello->host,
        hello->index == m->join->index ? m->self.pid : m->members[hello->index].pid);
  if (hello->index < m->join->index)
    return vt_error(VT_FAILED_PRECONDITION, "process %d came to process %d", hello->index,
                    m->join->index);
  note_address(m, fd, hello);
  m->sockets[hello->index] = fd;
  return VT_OK;
}

static void refuse(meeting_point *m, int fd, vt_status why) {
  uint8_t head[VT_FRAME_BYTES];
  vt_frame_write((vt_frame){VT_FRAME_REFUSED, 0, vt_status_message_size(why)}, head);
  if (write_all(m, fd, head, sizeof head))
    (void)!write_all(m, fd, vt_status_message(why), vt_status_message_size(why));
}

// Reads on. *out_met: it was a process of this job. A stranger is closed.
static vt_status read_pending(meeting_point *m, int i, bool *out_met) {
  pending *p = &m->pending[i];
  vt_hello hello;
  ssize_t n = recv(p->fd, p->bytes + p->size, sizeof p->bytes - p->size, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return VT_OK;
  p->size += n > 0 ? (size_t)n : 0;
  if (n > 0 && p->size < sizeof p->bytes) return VT_OK;
  if (n <= 0 || !vt_hello_is_ours(p->bytes, p->size, m->cookie)) {
    vt_log(VT_LOG_INFO, "process %d: a connection that is not of this job was closed",
           m->join->index);
    drop(m, i, false);
    return VT_OK;
  }
  int fd = p->fd;
  vt_status st = vt_hello_read((vt_bytes){p->bytes, p->size}, &hello);
  if (!st) st = meet(m, fd, &hello);
  if (st) refuse(m, fd, st);
  drop(m, i, !st);
  *out_met = !st;
  return st;
}

static void put_missing(const meeting_point *m, int32_t first, vt_text *text) {
  int32_t count = 0;
  for (int32_t i = first; i < m->join->count; i++) {
    if (m->sockets[i] >= 0 || i == m->join->index || ++count > NAMES_MOST) continue;
    if (text->size) vt_text_put(text, ", ");
    put_name(text, m->join, i);
  }
  if (count > NAMES_MOST) vt_text_printf(text, " and %d others", count - NAMES_MOST);
}

static vt_status missing(const meeting_point *m, int32_t first) {
  vt_text text = {0};
  put_missing(m, first, &text);
  vt_status st =
      vt_error(VT_DEADLINE_EXCEEDED,
               "process %d of %d: %s did not come in %.0f s. All processes must be started; "
               "VTPU_JOIN_TIMEOUT changes the limit",
               m->join->index, m->join->count, vt_text_string(&text), m->join->timeout_s);
  vt_text_free(&text);
  return st;
}

static void say_missing(meeting_point *m, int32_t first) {
  vt_text text = {0};
  if (now_s() < m->say_at) return;
  put_missing(m, first, &text);
  say_waiting(m, vt_text_string(&text));
  vt_text_free(&text);
}

// Until all processes from `first` on have said hello. `watch`: a socket whose end is an error.
static vt_status wait_for_all(meeting_point *m, int32_t first) {
  int32_t need = m->join->count - first;
  vt_status st = VT_OK;
  struct pollfd *polls = calloc(PENDING_MOST + 1, sizeof *polls);
  if (!polls) return vt_error_no_memory();
  while (need > 0 && !st) {
    polls[0] = (struct pollfd){m->listener, POLLIN, 0};
    int count = m->pending_count;
    for (int i = 0; i < count; i++) polls[i + 1] = (struct pollfd){m->pending[i].fd, POLLIN, 0};
    int n = poll(polls, (nfds_t)count + 1, 500);
    for (int i = count - 1; n > 0 && i >= 0 && !st; i--) { // from the end: drop() moves the last
      bool met = false;
      if (polls[i + 1].revents) st = read_pending(m, i, &met);
      need -= met;
    }
    for (int i = m->pending_count - 1; i >= 0; i--)
      if (now_s() - m->pending[i].since > STRANGER_S) drop(m, i, false);
    if (n > 0 && polls[0].revents) accept_one(m);
    if (!st && need > 0 && now_s() > m->deadline) st = missing(m, first);
    say_missing(m, first);
  }
  free(polls);
  return st;
}

// ---- the two sides ------------------------------------------------------------------------------

static vt_status be_first(meeting_point *m) {
  vt_text list = {0};
  uint8_t head[VT_FRAME_BYTES];
  vt_status st = wait_for_all(m, 1);
  if (st) {
    for (int32_t i = 1; i < m->join->count; i++)
      if (m->sockets[i] >= 0) refuse(m, m->sockets[i], st);
    return st;
  }
  vt_welcome_write(m->members, m->join->count, &list);
  vt_frame_write((vt_frame){VT_FRAME_WELCOME, 0, list.size}, head);
  for (int32_t i = 1; i < m->join->count && !st; i++)
    if (!write_all(m, m->sockets[i], head, sizeof head) ||
        !write_all(m, m->sockets[i], list.data, list.size))
      st = vt_error(VT_UNAVAILABLE, "process %d (host %s) ended while the processes connected", i,
                    m->members[i].address.host);
  vt_text_free(&list);
  return st;
}

static vt_status read_answer(meeting_point *m, int fd) {
  uint8_t head[VT_FRAME_BYTES];
  vt_frame frame = {0};
  vt_status st = VT_OK;
  if (!read_all(m, fd, head, sizeof head))
    return now_s() < m->deadline
               ? vt_error(VT_UNAVAILABLE,
                          "process 0 (host %s) closed the connection while the processes "
                          "connected: it ended, or its VTPU_COOKIE is another",
                          m->root.addresses[0].host)
               : vt_error(VT_DEADLINE_EXCEEDED,
                          "process %d of %d: process 0 (host %s) waited for others for %.0f s",
                          m->join->index, m->join->count, m->root.addresses[0].host,
                          m->join->timeout_s);
  VT_TRY(vt_frame_read(head, &frame));
  uint8_t *body = calloc(1, frame.body + 1);
  if (!body) return vt_error_no_memory();
  if (!read_all(m, fd, body, frame.body))
    st = vt_error(VT_UNAVAILABLE, "process 0 (host %s) ended while the processes connected",
                  m->root.addresses[0].host);
  else if (frame.kind == VT_FRAME_WELCOME)
    st = vt_welcome_read((vt_bytes){body, frame.body}, m->join->count, m->members);
  else
    st = vt_error(VT_FAILED_PRECONDITION, "process 0 (host %s) refuses: %.*s",
                  m->root.addresses[0].host, frame.body > 2000 ? 2000 : (int)frame.body,
                  (const char *)body);
  free(body);
  return st;
}

static vt_status be_another(meeting_point *m) {
  int32_t index = m->join->index;
  VT_TRY(connect_to(m, 0, m->root.addresses, m->root.count, &m->sockets[0]));
  if (!say_hello(m, m->sockets[0]))
    return vt_error(VT_UNAVAILABLE, "process 0 (host %s) ended while the processes connected",
                    m->root.addresses[0].host);
  m->deadline += GRACE_S; // process 0 says who is missing
  VT_TRY(read_answer(m, m->sockets[0]));
  for (int32_t i = 1; i < index; i++) {
    VT_TRY(connect_to(m, i, &m->members[i].address, 1, &m->sockets[i]));
    if (!say_hello(m, m->sockets[i]))
      return vt_error(VT_UNAVAILABLE, "process %d (host %s) ended while the processes connected", i,
                      m->members[i].address.host);
  }
  return wait_for_all(m, index + 1);
}

// Where process 0 is, and the secret that shows who has the same store.
static vt_status use_store(meeting_point *m) {
  const vt_join *join = m->join;
  if (join->index == 0)
    VT_TRY(vt_root_publish(join->store, m->self.port, &m->root));
  else
    VT_TRY(vt_root_find(join->store, join->timeout_s, &m->root));
  if (!*m->cookie) m->cookie = m->root.secret;
  return VT_OK;
}

vt_status vt_rendezvous(const vt_join *join, const vt_hello *self, int *out_sockets,
                        vt_member *out_members) {
  vt_assert(join->count > 1 && join->index >= 0 && join->index < join->count);
  double start = now_s();
  meeting_point m = {.join = join,
                     .self = *self,
                     .cookie = join->cookie,
                     .root = {.count = 1, .addresses = {join->root}},
                     .members = out_members,
                     .sockets = out_sockets,
                     .listener = -1,
                     .deadline = start + join->timeout_s,
                     .say_at = start + SAY_AFTER_S,
                     .pending = calloc(PENDING_MOST, sizeof(pending))};
  if (!m.pending) return vt_error_no_memory();
  for (int32_t i = 0; i < join->count; i++) out_sockets[i] = -1;
  out_members[join->index].address = join->own;
  out_members[join->index].pid = self->pid;
  vt_status st = join->store ? listen_for_store(&m) : open_listener(&m);
  if (!st && join->store) st = use_store(&m);
  if (!st) st = join->index == 0 ? be_first(&m) : be_another(&m);
  while (m.pending_count) drop(&m, 0, false);
  free(m.pending);
  if (m.listener >= 0) close(m.listener);
  for (int32_t i = 0; i < join->count && st; i++)
    if (out_sockets[i] >= 0) close(out_sockets[i]);
  return st;
}

vt_status vt_rendezvous_swap(const vt_join *join, const vt_member *members, const int *sockets,
                             size_t size, const uint8_t *mine, uint8_t *out_theirs) {
  meeting_point m = {.join = join, .deadline = now_s() + join->timeout_s};
  for (int writing = 1; writing >= 0; writing--)
    for (int32_t i = 0; i < join->count; i++) {
      size_t at = (size_t)i * size;
      if (sockets[i] < 0) continue;
      if (!(writing ? write_all(&m, sockets[i], mine + at, size)
                    : read_all(&m, sockets[i], out_theirs + at, size)))
        return vt_error(VT_UNAVAILABLE,
                        "process %d (host %s) ended, or did not answer in %.0f s, while the "
                        "processes connected",
                        i, members[i].address.host, join->timeout_s);
    }
  return VT_OK;
}
