// SPDX-License-Identifier: Apache-2.0
// relay.c - /v4/connect and /v4/reconnect: TCP to a worker through a WebSocket, for clients that
// have no route to it (gcloud's --tunnel-through-iap). A caller who may not see the project learns
// nothing; the address comes from the worker's row, never from the client.
//
// A tunnel belongs to the thread of its connection. When that breaks without a close, the thread
// keeps the tunnel for a minute: a reconnect with its name, by the same caller, takes it over.
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/api/metrics.h"
#include "cloud/door/metadata.h"
#include "cloud/door/relay.h"
#include "cloud/door/stream.h"
#include "cloud/door/tunnel.h"

enum {
  CHECK_MS = 1000,
  DIAL_MS = 5000,
  KEEP_S = 60,
  TAKE_OVER_S = 5,
  DELIVER_S = 5,
  MAX_IN = 256 << 10
};
#define PERMISSION "iap.tunnelInstances.accessViaIAP"

typedef struct relay {
  struct relay *next;
  struct vt_relays *all;
  vt_tunnel tunnel;
  vt_cloud *cloud;
  char *caller, *project, *credential; // credential: of its current connection
  int backend;                         // socket to the worker
  int wake;                            // eventfd: the owner must give it up
  int owner;                           // number of the owning thread, incremented on takeover
  int references;                      // threads that use it
  bool busy;                           // the owner has a connection
  bool over;                           // no longer in the list
} relay;

struct vt_relays {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  relay *first;
};

vt_status vt_relays_create(struct vt_relays **out_relays) {
  struct vt_relays *all = *out_relays = calloc(1, sizeof *all);
  if (!all) return vt_error_no_memory();
  pthread_mutex_init(&all->lock, NULL);
  pthread_cond_init(&all->changed, NULL);
  return VT_OK;
}

void vt_relays_destroy(struct vt_relays *relays) {
  if (!relays) return;
  pthread_mutex_destroy(&relays->lock);
  pthread_cond_destroy(&relays->changed);
  free(relays);
}

// --- the worker ----------------------------------------------------------------------------------

bool vt_relay_listens(const char *ip, int port) {
  struct in_addr address;
  char line[512], want[64];
  bool found = false;
  if (inet_pton(AF_INET, ip, &address) != 1) return false;
  snprintf(want, sizeof want, " %08X:%04X 00000000:0000 0A ", address.s_addr, (unsigned)port);
  FILE *file = fopen("/proc/self/net/tcp", "re");
  while (file && !found && fgets(line, sizeof line, file)) found = strstr(line, want) != NULL;
  if (file) fclose(file);
  return found;
}

int vt_relay_dial(const char *ip, int port, bool own_address) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int on = 1, idle_s = 30, unread_ms = 60000, error = 0;
  socklen_t size = sizeof error;
  // At level 1 the host's own server could answer at an address without a worker.
  if (inet_pton(AF_INET, ip, &to.sin_addr) != 1 || (own_address && !vt_relay_listens(ip, port)))
    return -1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
  struct pollfd wait = {.fd = fd, .events = POLLOUT};
  if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ||
      (errno == EINPROGRESS && poll(&wait, 1, DIAL_MS) == 1 &&
       getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0))
    return fd;
  close(fd);
  return -1;
}

// --- one connection of a tunnel ------------------------------------------------------------------

// Sends the client's bytes to the worker; false when the worker takes no more.
static bool deliver(relay *r) {
  vt_tunnel *t = &r->tunnel;
  while (t->in_at < t->in.size) {
    ssize_t n = send(r->backend, t->in.data + t->in_at, t->in.size - t->in_at, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    t->in_at += (size_t)n;
  }
  return true;
}

// Data that a client sent before closing still arrives, if the worker takes it in time.
static void deliver_rest(relay *r) {
  struct pollfd worker = {.fd = r->backend, .events = POLLOUT};
  int64_t end_ns = vt_metrics_clock() + DELIVER_S * VT_SECOND;
  while (deliver(r) && r->tunnel.in_at < r->tunnel.in.size && vt_metrics_clock() < end_ns)
    poll(&worker, 1, 1000);
}

// Sends the worker's bytes to the client; false at their end.
static bool collect(relay *r, vt_stream *s) {
  char bytes[VT_TUNNEL_DATA_MAX];
  size_t room = vt_tunnel_room(&r->tunnel, &s->ws);
  if (!room) return true;
  ssize_t n = recv(r->backend, bytes, room < sizeof bytes ? room : sizeof bytes, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n > 0) vt_tunnel_send(&r->tunnel, &s->ws, bytes, (size_t)n);
  return n > 0;
}

// Whether its opener may still have it; a store error changes nothing.
static bool still_allowed(relay *r) {
  bool still = true;
  pthread_mutex_lock(&r->cloud->lock);
  vt_status st =
      vt_account_still(r->cloud, r->credential, r->caller, r->project, PERMISSION, &still);
  pthread_mutex_unlock(&r->cloud->lock);
  if (st) still = true;
  vt_status_free(st);
  return still;
}

// Relays until one side ends. True when the connection was lost and the tunnel may be resumed.
static bool pump(relay *r, vt_stream *s) {
  vt_tunnel *t = &r->tunnel;
  int64_t checked_ns = vt_metrics_clock();
  s->wake_ms = CHECK_MS;
  for (;;) {
    if (vt_metrics_clock() - checked_ns >= CHECK_MS * (VT_SECOND / 1000)) {
      if (!still_allowed(r)) {
        vt_stream_close(s, VT_WS_NOT_ALLOWED, "signed out, or not allowed here any more");
        return false;
      }
      checked_ns = vt_metrics_clock();
    }
    size_t kept = t->in.size - t->in_at;
    struct pollfd others[VT_STREAM_OTHERS] = {
        {.fd = r->backend,
         .events = (short)((vt_tunnel_room(t, &s->ws) ? POLLIN : 0) | (kept ? POLLOUT : 0))},
        {.fd = r->wake, .events = POLLIN}};
    if (!others[0].events) others[0].fd = -1;
    if (!vt_stream_wait(s, kept < MAX_IN, others, VT_STREAM_OTHERS)) {
      if (!s->lost) vt_stream_close(s, VT_WS_NORMAL, "");
      return s->lost;
    }
    if (others[1].revents) return true;
    for (vt_ws_opcode event; (event = vt_stream_next(s)) != VT_WS_NONE;) {
      if (event == VT_WS_CLOSE || !vt_tunnel_take(t, &s->ws, event, true)) {
        deliver_rest(r);
        vt_stream_close(s, t->wrong ? t->wrong : VT_WS_NORMAL, "");
        return false;
      }
    }
    if (!deliver(r) || (others[0].revents & ~POLLOUT && !collect(r, s))) {
      vt_stream_close(s, VT_WS_NORMAL, "the connection to the worker ended");
      return false;
    }
  }
}

// --- tunnels -------------------------------------------------------------------------------------

static void release(relay *r) { // under the lock
  if (--r->references) return;
  if (r->backend >= 0) close(r->backend);
  if (r->wake >= 0) close(r->wake);
  vt_tunnel_fini(&r->tunnel);
  free(r->caller);
  free(r->project);
  free(r->credential);
  free(r);
}

static void end(relay *r) { // under the lock
  for (relay **at = &r->all->first; *at; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      break;
    }
  r->over = true;
}

static void wait_a_second(struct vt_relays *all) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  pthread_cond_timedwait(&all->changed, &all->lock, &until);
}

static bool stopping(const vt_stream *s) {
  struct pollfd stop = {.fd = s->stop, .events = POLLIN};
  return poll(&stop, 1, 0) != 0;
}

// The owner's part: relays, then keeps the tunnel for a reconnect.
static void own(relay *r, vt_stream *s) {
  struct vt_relays *all = r->all;
  int me = r->owner;
  bool again = pump(r, s);
  if (again) shutdown(s->fd, SHUT_RDWR); // the tunnel stays without a connection
  pthread_mutex_lock(&all->lock);
  r->busy = false;
  pthread_cond_broadcast(&all->changed);
  for (int i = 0; again && i < KEEP_S && r->owner == me && !r->over && !stopping(s); i++)
    wait_a_second(all);
  if (r->owner == me && !r->over) end(r);
  release(r);
  pthread_mutex_unlock(&all->lock);
}

// --- /v4/connect ---------------------------------------------------------------------------------

typedef struct connecting {
  relay *relay;
  char ip[64];
  int port;
  bool own_address;
} connecting;

static void drop_connecting(void *context) {
  connecting *c = context;
  struct vt_relays *all = c->relay->all;
  pthread_mutex_lock(&all->lock);
  release(c->relay);
  pthread_mutex_unlock(&all->lock);
  free(c);
}

static void run_connecting(void *context, vt_stream *s) {
  connecting *c = context;
  relay *r = c->relay;
  s->ws.max_message = 6 + VT_TUNNEL_DATA_MAX;
  r->backend = vt_relay_dial(c->ip, c->port, c->own_address);
  r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (r->backend < 0 || r->wake < 0) {
    vt_stream_close(s, VT_TUNNEL_NO_BACKEND, "failed to connect to backend");
    drop_connecting(c);
    return;
  }
  free(c);
  vt_cloud_random_hex(r->tunnel.sid, 48);
  vt_tunnel_open(&r->tunnel, &s->ws);
  pthread_mutex_lock(&r->all->lock);
  r->busy = true;
  r->next = r->all->first;
  r->all->first = r;
  pthread_mutex_unlock(&r->all->lock);
  own(r, s);
}

// The worker called `instance` ("t1v-n-1a2b3c4d-w-0") of the call's project and zone.
static vt_status find_worker(vt_call *call, const char *zone, const char *instance,
                             const char **out_ip, const char **out_state) {
  vt_rows *rows;
  *out_ip = *out_state = NULL;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT nodes.uid, workers.worker, workers.ip, nodes.state FROM nodes, "
                        "workers WHERE nodes.project = ? AND nodes.zone = ? AND workers.node = "
                        "nodes.uid",
                        "ss", call->project, zone));
  while (vt_rows_next(rows)) {
    char name[64];
    vt_metadata_hostname(vt_rows_int(rows, 0), vt_rows_int(rows, 1), name);
    if (strcmp(name, instance) != 0) continue;
    *out_ip = vt_arena_copy(&call->arena, vt_rows_text(rows, 2), strlen(vt_rows_text(rows, 2)));
    *out_state = vt_arena_copy(&call->arena, vt_rows_text(rows, 3), strlen(vt_rows_text(rows, 3)));
  }
  return vt_rows_end(rows);
}

typedef struct opening {
  const vt_call *call;
  const char *instance;
  long port;
} opening;

static vt_status write_down(vt_cloud *cloud, void *context) {
  const opening *o = context;
  char detail[32];
  snprintf(detail, sizeof detail, "port %ld", o->port);
  return vt_cloud_event(cloud, "tunnel", o->call->project, o->call->caller, o->instance, detail);
}

static const char *text_of(vt_call *call, const char *name) {
  const char *value = vt_call_query(call, name);
  return value ? value : "";
}

vt_status vt_relay_connect(vt_call *call) {
  const char *zone = text_of(call, "zone"), *instance = text_of(call, "instance"),
             *interface = text_of(call, "interface"), *ip, *state;
  char *tail;
  long port = strtol(text_of(call, "port"), &tail, 10);
  int level = call->cloud->options.guest_level;
  if (port < 1 || port > 65535 || *tail)
    return vt_error(VT_INVALID_ARGUMENT, "The parameter `port` is a number from 1 to 65535.");
  if (*interface && strcmp(interface, "nic0") != 0)
    return vt_error(VT_INVALID_ARGUMENT, "Workers have one interface, nic0.");
  VT_TRY(find_worker(call, zone, instance, &ip, &state));
  if (!ip)
    return vt_call_not_found(call,
                             vt_arena_printf(&call->arena, "projects/%s/zones/%s/instances/%s",
                                             call->project, zone, instance));
  if (level == 0)
    return vt_error(VT_FAILED_PRECONDITION,
                    "This cloud has no machines behind its nodes (guests = 0).");
  if (level == 1 && port != 22)
    return vt_error(VT_PERMISSION_DENIED,
                    "Workers of level 1 share the host's network: tunnels reach port 22 only.");
  if (strcmp(state, "READY") != 0 && strcmp(state, "REPAIRING") != 0)
    return vt_error(VT_FAILED_PRECONDITION, "The TPU VM is %s.", state);
  VT_TRY(vt_stream_accept(call, VT_TUNNEL_PROTOCOL));
  opening o = {call, instance, port};
  VT_TRY(vt_cloud_transact(call->cloud, write_down, &o));
  connecting *c = calloc(1, sizeof *c);
  relay *r = calloc(1, sizeof *r);
  if (r) *r = (relay){.backend = -1, .wake = -1, .references = 1, .all = call->cloud->relays};
  if (r) {
    r->cloud = call->cloud;
    r->caller = strdup(call->caller);
    r->project = strdup(call->project);
    r->credential = strdup(call->credential);
  }
  if (!c || !r || !r->caller || !r->project || !r->credential) abort(); // as texts and arrays do
  *c = (connecting){.relay = r, .port = (int)port, .own_address = level == 1};
  snprintf(c->ip, sizeof c->ip, "%s", ip);
  call->upgrade = (vt_upgrade){run_connecting, drop_connecting, c};
  return VT_OK;
}

// --- /v4/reconnect -------------------------------------------------------------------------------

typedef struct reconnecting {
  relay *relay; // NULL: there is none of this name
  uint64_t count;
  char *credential;
} reconnecting;

static void drop_reconnecting(void *context) {
  reconnecting *c = context;
  if (c->relay) {
    struct vt_relays *all = c->relay->all;
    pthread_mutex_lock(&all->lock);
    release(c->relay);
    pthread_mutex_unlock(&all->lock);
  }
  free(c->credential);
  free(c);
}

// Makes this thread the owner; false when the tunnel ended, or its owner does not release it.
static bool take_over(relay *r, const vt_stream *s) {
  uint64_t one = 1;
  pthread_mutex_lock(&r->all->lock);
  ssize_t said = write(r->wake, &one, sizeof one);
  for (int i = 0; said == sizeof one && i < TAKE_OVER_S && r->busy && !r->over && !stopping(s); i++)
    wait_a_second(r->all);
  bool mine = !r->busy && !r->over;
  if (mine) {
    r->owner++;
    r->busy = true;
    said = read(r->wake, &one, sizeof one);
    pthread_cond_broadcast(&r->all->changed);
  }
  pthread_mutex_unlock(&r->all->lock);
  return mine && said == sizeof one;
}

static void run_reconnecting(void *context, vt_stream *s) {
  reconnecting *c = context;
  relay *r = c->relay;
  s->ws.max_message = 6 + VT_TUNNEL_DATA_MAX;
  if (!r || !take_over(r, s)) {
    vt_stream_close(s, VT_TUNNEL_SID_UNKNOWN, "unknown or ended tunnel");
    drop_reconnecting(c);
    return;
  }
  uint64_t count = c->count;
  free(r->credential); // this thread is the owner now
  r->credential = c->credential;
  free(c);
  if (!vt_tunnel_reopen(&r->tunnel, &s->ws, count))
    vt_stream_close(s, VT_TUNNEL_BAD_ACK, "no such count");
  own(r, s);
}

vt_status vt_relay_reconnect(vt_call *call) {
  const char *sid = text_of(call, "sid");
  char *tail;
  struct vt_relays *all = call->cloud->relays;
  reconnecting *c = calloc(1, sizeof *c);
  if (!c) return vt_error_no_memory();
  c->count = strtoull(text_of(call, "ack"), &tail, 10);
  c->credential = strdup(call->credential);
  if (!c->credential) {
    free(c);
    return vt_error_no_memory();
  }
  pthread_mutex_lock(&all->lock);
  for (relay *r = all->first; r; r = r->next) {
    if (strcmp(r->tunnel.sid, sid) != 0 || strcmp(r->caller, call->caller) != 0) continue;
    r->references++;
    c->relay = r;
  }
  pthread_mutex_unlock(&all->lock);
  call->upgrade = (vt_upgrade){run_reconnecting, drop_reconnecting, c};
  vt_status st = c->relay ? vt_account_allow(call, c->relay->project, PERMISSION) : VT_OK;
  if (!st) st = vt_stream_accept(call, VT_TUNNEL_PROTOCOL);
  if (st) {
    call->upgrade = (vt_upgrade){0};
    drop_reconnecting(c);
  }
  return st;
}
