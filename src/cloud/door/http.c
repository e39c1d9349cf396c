// SPDX-License-Identifier: Apache-2.0
// http.c - libmicrohttpd to vt_call and back. One poll thread per core; calls serialize on the
// cloud's lock. The response is queued only in the last handler call: queued earlier, the library
// closes a keep-alive connection. A connection upgraded to a WebSocket leaves the library's loop
// for its own thread.
//
// Another thread, the watchman, accepts connections, closes slow ones, and wakes calls that wait
// for a change. Connections are counted here (room.h), and the library's own limits are set out of
// reach: at these its threads wait for a lock that they hold.
#include "base/memory.h"
#include "cloud/door/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cloud/api/call.h"
#include "cloud/api/metrics.h"
#include "cloud/door/room.h"
#include "cloud/door/stream.h"
#include "cloud/door/watchdog.h"
#include "cloud/worker/helper_client.h"

// One address gets at most a quarter of the connections, so that it cannot keep the others out.
enum { MAX_BODY = 4 << 20, IDLE_TIMEOUT_S = 120, MAX_CONNECTIONS = 4096, MAX_OF_ONE_PEER = 1024 };
// A change wakes waiting calls a moment later, so that a burst of changes wakes them once.
enum { GATHER_MS = 10, PROBE_EVERY_S = 5, MAX_THREADS = 4 };
// How long connections have to end before the library stops.
enum { END_MS = 10000, END_STEP_MS = 5 };
// Each WebSocket costs a thread.
enum { MAX_SESSIONS = 256, MAX_OF_ONE_CALLER = 64, SESSION_STACK = 256 << 10 };

// A WebSocket, from the upgrade to the end of its thread.
typedef struct session {
  struct session *next;
  vt_http *http;
  vt_upgrade upgrade;
  char *caller;
  struct MHD_UpgradeResponseHandle *handle;
  vt_stream stream;
} session;

// A request that the watchman sends to each of the library's threads now and then.
typedef struct probe {
  int fd; // our end of it, -1 = no probe in flight
  int64_t next_ns;
  vt_heartbeat heartbeat;
} probe;

struct vt_http {
  vt_cloud *cloud;
  vt_room room;
  pthread_mutex_t lock; // of the list of sessions
  pthread_cond_t ended;
  pthread_t watchman;
  bool running, stop;
  bool closed;         // waiting is over for all; this and `change`: under room.lock
  uint64_t change;     // of the cloud, as last seen by the watchman
  int listener, spare; // -1 = none
  vt_ear ear;          // readable when the cloud has changed, or it is time to stop
  session *sessions;
  int stop_sessions; // readable from vt_http_stop on
  struct MHD_Daemon *daemon;
  unsigned threads;
  bool watched;
  vt_heartbeat heartbeat; // the watchman's
  probe probes[MAX_THREADS];
  uint16_t port;
  bool secure;
  int64_t timeout_ns; // for a client to send a request, or to read a reply
  void (*run)(vt_call *call);
  bool (*who)(void *context, int socket, char out_peer[64]);
  void *who_context;
};

typedef struct request {
  char *uri; // as sent, query included
  vt_text body;
  bool begun, too_large, no_memory;
  session *session; // accepted, but not started
  vt_wait wait;
} request;

static int socket_of(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

// Sets the state of a connection: the client has `within_ns` to send (`receives`) or to read, or
// (0) we are working. The library's own timeout only covers silence; a client that sends or reads a
// byte now and then needs this one. Returns whether the call may not wait any longer.
static bool expect(vt_http *http, struct MHD_Connection *connection, bool receives,
                   int64_t within_ns) {
  int64_t now = vt_metrics_clock();
  bool hurry = false;
  pthread_mutex_lock(&http->room.lock);
  vt_place *p = vt_room_find(&http->room, socket_of(connection));
  if (p) {
    hurry = p->hurry;
    if (receives) vt_room_hold(&http->room, p, 0);
    p->busy = within_ns == 0;
    p->receives = receives;
    p->left_ns = 0;
    p->deadline_ns = within_ns ? now + within_ns : 0;
    p->since_ns = now;
  }
  pthread_mutex_unlock(&http->room.lock);
  return hurry;
}

// The library closes the socket only after this notification.
static void connected(void *context, struct MHD_Connection *connection, void **slot,
                      enum MHD_ConnectionNotificationCode code) {
  vt_http *http = context;
  int fd = socket_of(connection);
  (void)slot;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    vt_room_leave(&http->room, fd);
  } else if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    // Replies that are stuck in the kernel, because nobody reads them, are dropped with the
    // connection, too.
    unsigned unread_ms = (unsigned)(http->timeout_ns / 1000000);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
  }
}

// --- the watchman --------------------------------------------------------------------------------

typedef VT_ARRAY(struct pollfd) pollfds;

// Removes calls that need not wait any longer from the list and resumes them. Without the lock: the
// library calls back while holding locks of its own.
static void wake_waiting(vt_http *http, uint64_t change, bool all, const pollfds *polled) {
  VT_ARRAY(struct MHD_Connection *) ready = {0};
  int64_t now = vt_metrics_clock();
  pthread_mutex_lock(&http->room.lock);
  for (size_t i = 0; polled && i < polled->size; i++) {
    struct pollfd again = {.fd = polled->data[i].fd, .events = POLLRDHUP};
    vt_place *p = polled->data[i].revents ? vt_room_find(&http->room, again.fd) : NULL;
    // The descriptor may have been reused, by a client that is still there.
    if (!p || poll(&again, 1, 0) != 1) continue;
    if (p->waits)
      p->hurry = true;
    else if (p->receives)
      p->left_ns = now;
  }
  http->change = change;
  for (vt_place *p = http->room.places; p; p = p->next) {
    p->hurry |= all || p->ended;
    if (!p->waits || (!p->hurry && p->seen >= change && now < p->until_ns)) continue;
    vt_array_push(&ready, p->waits);
    p->waits = NULL;
  }
  pthread_mutex_unlock(&http->room.lock);
  for (size_t i = 0; i < ready.size; i++) MHD_resume_connection(ready.data[i]);
  vt_array_free(&ready);
}

// A socket pair with one end for the library's thread number `thread`: the descriptor's number
// determines the thread. The library answers this request by itself.
static void send_probe(vt_http *http, unsigned thread) {
  static const char nonsense[] = "GET / HTTP/9.9\r\n\r\n";
  struct sockaddr_in nobody = {.sin_family = AF_INET};
  probe *p = &http->probes[thread];
  int ends[2], passed[MAX_THREADS];
  unsigned count = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  while (ends[1] >= 0 && (unsigned)ends[1] % http->threads != thread && count < MAX_THREADS) {
    passed[count++] = ends[1];
    ends[1] = fcntl(ends[1], F_DUPFD_CLOEXEC, ends[1] + 1);
  }
  while (count) close(passed[--count]);
  if (ends[1] < 0 || write(ends[0], nonsense, sizeof nonsense - 1) < 0 ||
      MHD_add_connection(http->daemon, ends[1], (struct sockaddr *)&nobody, sizeof nobody) !=
          MHD_YES) {
    close(ends[0]); // the library has closed the other end
    return;
  }
  p->fd = ends[0];
}

// Any reply shows that the thread is alive.
static void look_at_probes(vt_http *http, int64_t now) {
  for (unsigned i = 0; i < http->threads && http->watched; i++) {
    probe *p = &http->probes[i];
    struct pollfd fd = {.fd = p->fd, .events = POLLIN};
    if (p->fd >= 0 && poll(&fd, 1, 0) == 1) {
      close(p->fd);
      p->fd = -1;
      p->next_ns = now + PROBE_EVERY_S * VT_SECOND;
    }
    if (p->fd < 0) vt_heartbeat_now(&p->heartbeat);
    // The first probe waits: the library cannot handle a connection that arrives while it starts or
    // stops.
    if (p->fd < 0 && !p->next_ns) p->next_ns = now + PROBE_EVERY_S * VT_SECOND;
    if (p->fd < 0 && now >= p->next_ns) send_probe(http, i);
  }
}

static void watch_over(vt_http *http, bool begin) {
  if (begin)
    vt_heartbeat_add(&http->heartbeat, "the thread of HTTP's connections");
  else
    vt_heartbeat_remove(&http->heartbeat);
  for (unsigned i = 0; i < http->threads; i++)
    if (begin)
      vt_heartbeat_add(&http->probes[i].heartbeat, "a thread of HTTP");
    else
      vt_heartbeat_remove(&http->probes[i].heartbeat);
}

static void welcome(vt_http *http) {
  struct sockaddr_in from;
  for (int i = 0, fd; i < 64 && (fd = vt_accept(http->listener, &from, &http->spare)) >= 0; i++)
    vt_http_adopt(http, fd, &from);
}

static void list_polled(vt_http *http, pollfds *fds) {
  fds->size = 0;
  vt_array_push(fds, ((struct pollfd){.fd = http->ear.fd, .events = POLLIN}));
  vt_array_push(fds, ((struct pollfd){.fd = http->listener, .events = POLLIN}));
  pthread_mutex_lock(&http->room.lock);
  for (const vt_place *p = http->room.places; p; p = p->next)
    if (p->waits || (p->receives && !p->left_ns && !p->ended))
      vt_array_push(fds, ((struct pollfd){.fd = p->fd, .events = POLLRDHUP}));
  pthread_mutex_unlock(&http->room.lock);
}

static bool stopping(vt_http *http) {
  pthread_mutex_lock(&http->lock);
  bool stop = http->stop;
  pthread_mutex_unlock(&http->lock);
  return stop;
}

static void *watch(void *argument) {
  vt_http *http = argument;
  pollfds fds = {0};
  uint64_t change = vt_cloud_hear(http->cloud, &http->ear);
  if (http->watched) watch_over(http, true);
  while (!stopping(http)) {
    uint64_t count;
    vt_heartbeat_now(&http->heartbeat);
    list_polled(http, &fds);
    if (poll(fds.data, fds.size, 1000) < 0 && errno != EINTR) break;
    if (fds.data[1].revents) welcome(http);
    if (fds.data[0].revents && read(http->ear.fd, &count, sizeof count) == sizeof count) {
      struct timespec pause = {.tv_nsec = GATHER_MS * 1000000L};
      nanosleep(&pause, NULL);
      change = vt_cloud_hear(http->cloud, &http->ear);
    }
    int64_t now = vt_metrics_clock();
    pthread_mutex_lock(&http->room.lock);
    vt_room_sweep(&http->room, now);
    pthread_mutex_unlock(&http->room.lock);
    fds.data[0].revents = fds.data[1].revents = 0;
    wake_waiting(http, change, false, &fds);
    look_at_probes(http, now);
  }
  if (http->watched) watch_over(http, false);
  vt_array_free(&fds);
  return NULL;
}

// --- WebSockets ----------------------------------------------------------------------------------

static void forget_session(session *s) {
  vt_http *http = s->http;
  pthread_mutex_lock(&http->lock);
  for (session **at = &http->sessions; *at; at = &(*at)->next)
    if (*at == s) {
      *at = s->next;
      break;
    }
  pthread_cond_broadcast(&http->ended);
  pthread_mutex_unlock(&http->lock);
  if (s->upgrade.drop) s->upgrade.drop(s->upgrade.context);
  vt_websocket_fini(&s->stream.ws);
  free(s->caller);
  free(s);
}

static void *run_session(void *argument) {
  session *s = argument;
  vt_upgrade upgrade = s->upgrade;
  s->upgrade = (vt_upgrade){0};
  upgrade.run(upgrade.context, &s->stream);
  MHD_upgrade_action(s->handle, MHD_UPGRADE_ACTION_CLOSE);
  forget_session(s);
  return NULL;
}

// Called by the library when the upgrade reply has been sent.
static void begin_session(void *context, struct MHD_Connection *connection, void *slot,
                          const char *extra, size_t extra_size, MHD_socket socket,
                          struct MHD_UpgradeResponseHandle *handle) {
  session *s = context;
  request *r = slot;
  pthread_attr_t attributes;
  pthread_t thread;
  int on = 1, unread_ms = 0; // a peer may be slow; vt_stream checks that it is alive
  expect(s->http, connection, false, 0);
  if (r) r->session = NULL;
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  const union MHD_ConnectionInfo *info = // under TLS `socket` is another one
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (info) {
    setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(info->connect_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
  }
  pthread_mutex_lock(&s->http->lock);
  bool late = s->http->stop || extra_size > sizeof s->stream.in;
  if (!late) s->handle = handle;
  pthread_mutex_unlock(&s->http->lock);
  s->stream.fd = socket;
  s->stream.stop = s->http->stop_sessions;
  if (!late && extra_size) memcpy(s->stream.in, extra, s->stream.in_size = extra_size);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, SESSION_STACK);
  int rc = late ? -1 : pthread_create(&thread, &attributes, run_session, s);
  pthread_attr_destroy(&attributes);
  if (rc == 0) return;
  MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
  forget_session(s);
}

// A slot for the call's WebSocket; false when none is free.
static bool reserve_session(vt_http *http, vt_call *call, session **out_session) {
  size_t all = 0, same = 0;
  session *s = calloc(1, sizeof *s);
  if (s) s->caller = strdup(call->caller);
  if (!s || !s->caller) {
    free(s);
    return false;
  }
  pthread_mutex_lock(&http->lock);
  for (session *other = http->sessions; other; other = other->next) {
    all++;
    same += strcmp(other->caller, call->caller) == 0;
  }
  bool room = all < MAX_SESSIONS && same < MAX_OF_ONE_CALLER && !http->stop;
  if (room) {
    s->http = http;
    s->next = http->sessions;
    http->sessions = s;
  }
  pthread_mutex_unlock(&http->lock);
  if (!room) {
    free(s->caller);
    free(s);
    return false;
  }
  s->upgrade = call->upgrade;
  call->upgrade = (vt_upgrade){0};
  *out_session = s;
  return true;
}

// --- calls ---------------------------------------------------------------------------------------

static enum MHD_Result add_header(void *context, enum MHD_ValueKind kind, const char *key,
                                  const char *value) {
  (void)kind;
  if (value) vt_call_add_header(context, key, value);
  return MHD_YES;
}

static enum MHD_Result send_reply(vt_http *http, struct MHD_Connection *connection, vt_call *call) {
  vt_call_render(call);
  pthread_mutex_lock(&http->room.lock);
  vt_place *p = vt_room_find(&http->room, socket_of(connection));
  if (p) vt_room_hold(&http->room, p, call->raw.size);
  pthread_mutex_unlock(&http->room.lock);
  struct MHD_Response *response =
      call->raw.data ? MHD_create_response_from_buffer_with_free_callback(
                           call->raw.size, call->raw.data, vt_memory_free)
                     : MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
  if (!response) return MHD_NO;
  call->raw = (vt_text){0}; // the response owns it
  MHD_add_response_header(response, "Content-Type", call->content_type);
  for (size_t i = 0; i < call->reply_headers.size; i++)
    MHD_add_response_header(response, call->reply_headers.data[i].name,
                            call->reply_headers.data[i].value);
  enum MHD_Result result = MHD_queue_response(connection, (unsigned)call->status, response);
  MHD_destroy_response(response);
  return result;
}

static void refuse(vt_call *call, int code, const char *message, const char *status) {
  call->status = code;
  call->reply =
      json_pack("{s:{s:i, s:s, s:s}}", "error", "code", code, "message", message, "status", status);
}

static bool may_reply(vt_http *http, struct MHD_Connection *connection) {
  pthread_mutex_lock(&http->room.lock);
  const vt_place *p = vt_room_find(&http->room, socket_of(connection));
  bool may = !p || vt_room_may_reply(&http->room, p);
  pthread_mutex_unlock(&http->room.lock);
  return may;
}

static enum MHD_Result agree(vt_http *http, struct MHD_Connection *connection, vt_call *call,
                             request *r) {
  if (!reserve_session(http, call, &r->session)) {
    vt_call_clear_reply(call);
    refuse(call, 429,
           vt_arena_printf(&call->arena,
                           "Too many WebSockets are open: %d of one caller, %d in all.",
                           MAX_OF_ONE_CALLER, MAX_SESSIONS),
           "RESOURCE_EXHAUSTED");
    return send_reply(http, connection, call);
  }
  struct MHD_Response *response = MHD_create_response_for_upgrade(begin_session, r->session);
  if (!response) return MHD_NO;
  for (size_t i = 0; i < call->reply_headers.size; i++)
    MHD_add_response_header(response, call->reply_headers.data[i].name,
                            call->reply_headers.data[i].value);
  enum MHD_Result result = MHD_queue_response(connection, 101, response);
  MHD_destroy_response(response);
  return result;
}

static const char *peer_text(struct MHD_Connection *connection, char out_text[64]) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  *out_text = 0;
  if (info && info->client_addr->sa_family == AF_INET)
    inet_ntop(AF_INET, &((struct sockaddr_in *)info->client_addr)->sin_addr, out_text,
              INET6_ADDRSTRLEN);
  return out_text;
}

// Suspends the connection until the watchman resumes it; `handle` is called again then.
static enum MHD_Result wait_for_change(vt_http *http, struct MHD_Connection *connection,
                                       request *r) {
  MHD_suspend_connection(connection);
  pthread_mutex_lock(&http->room.lock);
  vt_place *p = vt_room_find(&http->room, socket_of(connection));
  bool late = !p || http->closed || r->wait.seen < http->change;
  r->wait.hurry = !p || http->closed;
  if (!late) {
    p->busy = false;
    p->deadline_ns = 0;
    p->waits = connection;
    p->seen = r->wait.seen;
    p->until_ns = r->wait.until_ns;
  }
  pthread_mutex_unlock(&http->room.lock);
  if (late) MHD_resume_connection(connection);
  return MHD_YES;
}

typedef struct exchange {
  vt_http *http;
  struct MHD_Connection *connection;
  const char *method;
  request *request;
  vt_call call;
  enum MHD_Result result;
} exchange;

static vt_status serve(void *user) {
  exchange *e = user;
  vt_call *call = &e->call;
  request *r = e->request;
  char peer[64];
  size_t path = strcspn(r->uri, "?");
  // HEAD is GET whose body the library leaves out.
  vt_call_init(call, e->http->cloud, strcmp(e->method, "HEAD") == 0 ? "GET" : e->method, "");
  call->path = vt_arena_copy(&call->arena, r->uri, path);
  call->wait = r->wait;
  call->secure = e->http->secure;
  call->peer = peer_text(e->connection, peer);
  bool known = true;
  if (e->http->who) known = e->http->who(e->http->who_context, socket_of(e->connection), peer);
  if (r->uri[path]) vt_call_add_query(call, r->uri + path + 1);
  MHD_get_connection_values(e->connection, MHD_HEADER_KIND, add_header, call);
  call->body_text = vt_text_string(&r->body);
  call->body_size = r->body.size;
  const char *override = vt_call_header(call, "x-http-method-override");
  if (override && strcmp(e->method, "POST") == 0) call->method = override; // long GETs
  if (!known) {
    call->status = 403;
    call->content_type = "text/plain";
    vt_text_put(&call->raw, "not your machine\n");
  } else if (r->too_large) {
    refuse(call, 413, "The request is too large.", "INVALID_ARGUMENT");
  } else if (!may_reply(e->http, e->connection)) {
    refuse(call, 429, "Too many replies to this address wait to be read.", "RESOURCE_EXHAUSTED");
  } else {
    e->http->run(call);
  }
  r->wait = call->wait;
  e->result = r->wait.again       ? wait_for_change(e->http, e->connection, r)
              : call->upgrade.run ? agree(e->http, e->connection, call, r)
                                  : send_reply(e->http, e->connection, call);
  vt_call_fini(call);
  return VT_OK;
}

static enum MHD_Result refuse_without_memory(struct MHD_Connection *connection) {
  struct MHD_Response *response = MHD_create_response_from_buffer(
      sizeof VT_CALL_NO_MEMORY - 1, (void *)VT_CALL_NO_MEMORY, MHD_RESPMEM_PERSISTENT);
  if (!response) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", VT_CALL_JSON);
  MHD_add_response_header(response, "Retry-After", "1");
  enum MHD_Result result = MHD_queue_response(connection, 429, response);
  MHD_destroy_response(response);
  return result;
}

static enum MHD_Result answer(vt_http *http, struct MHD_Connection *connection, const char *method,
                              request *r) {
  exchange e = {.http = http, .connection = connection, .method = method, .request = r};
  vt_attempt attempt;
  if (r->no_memory) return refuse_without_memory(connection);
  vt_status st = vt_attempt_run(&attempt, serve, &e);
  if (st) {
    if (e.call.upgrade.drop) e.call.upgrade.drop(e.call.upgrade.context);
    e.result = refuse_without_memory(connection);
  }
  vt_attempt_end(&attempt);
  return e.result;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **slot) {
  (void)version, (void)url;
  vt_http *http = context;
  request *r = *slot;
  if (!r) return MHD_NO;
  if (!r->begun) {
    r->begun = true;
    return MHD_YES;
  }
  if (*upload_size) {
    if (r->body.size + *upload_size > MAX_BODY)
      r->too_large = true;
    else if (!vt_text_try_put_n(&r->body, upload, *upload_size))
      r->no_memory = true;
    *upload_size = 0;
    return MHD_YES;
  }
  r->wait.hurry |= expect(http, connection, false, 0);
  enum MHD_Result result = answer(http, connection, method, r);
  if (!r->wait.again) expect(http, connection, false, http->timeout_ns);
  return result;
}

static void completed(void *context, struct MHD_Connection *connection, void **slot,
                      enum MHD_RequestTerminationCode code) {
  (void)code;
  request *r = *slot;
  expect(context, connection, true, IDLE_TIMEOUT_S * VT_SECOND);
  if (!r) return;
  if (r->session) forget_session(r->session); // the connection broke before the upgrade
  vt_text_free(&r->body);
  free(r->uri);
  free(r);
  *slot = NULL;
}

// Takes the URI, whole and still encoded: the router has its own rules for '+' and %00. The return
// value is the request's slot.
static void *begin(void *context, const char *uri, struct MHD_Connection *connection) {
  vt_http *http = context;
  request *r = calloc(1, sizeof *r);
  expect(http, connection, true, http->timeout_ns);
  if (r && !(r->uri = strdup(uri))) {
    free(r);
    return NULL;
  }
  return r;
}

// --- start and stop ------------------------------------------------------------------------------

static vt_status listen_at(vt_http *http, const vt_http_options *o) {
  struct sockaddr_in at;
  socklen_t size = sizeof at;
  VT_TRY(vt_listen(http->cloud, o->address, o->port, &http->listener));
  if (getsockname(http->listener, (struct sockaddr *)&at, &size) != 0)
    return vt_error(VT_UNAVAILABLE, "%s: %s", o->address, strerror(errno));
  http->port = ntohs(at.sin_port);
  return VT_OK;
}

static vt_status start_library(vt_http *http, const vt_http_options *o) {
  struct MHD_OptionItem list[4] = {{MHD_OPTION_END, 0, NULL}};
  size_t count = 0;
  if (http->threads > 1)
    list[count++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, http->threads, NULL};
  if (http->secure) {
    list[count++] =
        (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)o->certificate_pem};
    list[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)o->key_pem};
  }
  list[count] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
  // No library log: anybody can cause its messages. Not epoll: with 128 events at once version
  // 0.9.75 waits for another event before it handles them.
  unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC |
                   MHD_ALLOW_UPGRADE | MHD_ALLOW_SUSPEND_RESUME | (http->secure ? MHD_USE_TLS : 0);
  http->daemon = MHD_start_daemon(
      flags, 0, NULL, NULL, handle, http, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
      MHD_OPTION_NOTIFY_CONNECTION, connected, http, MHD_OPTION_CONNECTION_TIMEOUT,
      (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)(4 * http->room.max) * http->threads, MHD_OPTION_URI_LOG_CALLBACK, begin, http,
      MHD_OPTION_ARRAY, list, MHD_OPTION_END);
  if (http->daemon) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "HTTP does not start%s",
                  http->secure ? "; do certificate and key belong together?" : "");
}

static unsigned default_threads(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > MAX_THREADS ? MAX_THREADS : cores > 0 ? (unsigned)cores : 1;
}

static void release(vt_http *http) {
  vt_cloud_remove_ear(http->cloud, &http->ear);
  if (http->daemon) MHD_stop_daemon(http->daemon);
  for (unsigned i = 0; i < MAX_THREADS; i++)
    if (http->probes[i].fd >= 0) close(http->probes[i].fd);
  const int fds[] = {http->listener, http->spare, http->ear.fd, http->stop_sessions};
  for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
    if (fds[i] >= 0) close(fds[i]);
  vt_room_fini(&http->room);
  pthread_mutex_destroy(&http->lock);
  pthread_cond_destroy(&http->ended);
  free(http);
}

vt_status vt_http_start(vt_cloud *cloud, const vt_http_options *options, vt_http **out_http) {
  vt_status st = VT_OK;
  *out_http = NULL;
  vt_http *http = calloc(1, sizeof *http);
  if (!http) return vt_error_no_memory();
  http->cloud = cloud;
  pthread_mutex_init(&http->lock, NULL);
  pthread_cond_init(&http->ended, NULL);
  size_t max = vt_room_share(options->max ? options->max : MAX_CONNECTIONS, 50);
  vt_room_init(&http->room, max, options->max_of_one ? options->max_of_one : max / 4);
  int64_t timeout_ns = cloud->options.request_timeout_ns;
  http->timeout_ns = timeout_ns ? timeout_ns : IDLE_TIMEOUT_S * VT_SECOND;
  http->secure = options->certificate_pem != NULL;
  http->who = options->who;
  http->who_context = options->who_context;
  http->run = options->run ? options->run : vt_call_run;
  http->watched = options->watched;
  http->threads = options->threads ? options->threads : default_threads();
  http->listener = http->spare = -1;
  for (unsigned i = 0; i < MAX_THREADS; i++) http->probes[i].fd = -1;
  http->ear.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  http->stop_sessions = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (http->ear.fd < 0 || http->stop_sessions < 0) {
    st = vt_error(VT_UNAVAILABLE, "HTTP does not start: %s", strerror(errno));
    goto out;
  }
  if (!options->adopts) VT_TRY_OUT(listen_at(http, options));
  VT_TRY_OUT(start_library(http, options));
  vt_cloud_add_ear(cloud, &http->ear);
  http->running = pthread_create(&http->watchman, NULL, watch, http) == 0;
  if (!http->running) st = vt_error(VT_INTERNAL, "no thread for HTTP");
out:
  if (st)
    release(http);
  else
    *out_http = http;
  return st;
}

uint16_t vt_http_port(const vt_http *http) {
  return http->port;
}

void vt_http_adopt(vt_http *http, int fd, const struct sockaddr_in *from) {
  int64_t deadline = vt_metrics_clock() + http->timeout_ns;
  if (!vt_room_enter(&http->room, fd, from->sin_addr.s_addr, deadline)) {
    close(fd);
    return;
  }
  // The library closes the socket even when it refuses it.
  if (MHD_add_connection(http->daemon, fd, (const struct sockaddr *)from, sizeof *from) != MHD_YES)
    vt_room_leave(&http->room, fd);
}

static bool begun_sessions(const vt_http *http) {
  for (const session *s = http->sessions; s; s = s->next)
    if (s->handle) return true;
  return false;
}

// The library stops only after all upgraded sockets were returned.
static void end_sessions(vt_http *http) {
  uint64_t one = 1;
  ssize_t said = write(http->stop_sessions, &one, sizeof one);
  pthread_mutex_lock(&http->lock);
  while (said == sizeof one && begun_sessions(http)) pthread_cond_wait(&http->ended, &http->lock);
  pthread_mutex_unlock(&http->lock);
}

// Version 0.9.75 of the library crashes on a request that it refuses by itself while it stops (it
// does not check for the missing reply). So all connections, including probes, end first.
static void end_connections(vt_http *http) {
  struct timespec pause = {.tv_nsec = END_STEP_MS * 1000000L};
  for (int i = 0; i < END_MS / END_STEP_MS; i++) {
    size_t left = vt_room_end_all(&http->room);
    for (unsigned t = 0; t < http->threads; t++) {
      struct pollfd fd = {.fd = http->probes[t].fd, .events = POLLIN};
      left += fd.fd >= 0 && poll(&fd, 1, 0) != 1;
    }
    if (!left) return;
    nanosleep(&pause, NULL);
  }
}

void vt_http_stop(vt_http *http) {
  if (!http) return;
  uint64_t one = 1;
  pthread_mutex_lock(&http->lock);
  http->stop = true;
  pthread_mutex_unlock(&http->lock);
  if (write(http->ear.fd, &one, sizeof one) == sizeof one) pthread_join(http->watchman, NULL);
  pthread_mutex_lock(&http->room.lock);
  http->closed = true;
  pthread_mutex_unlock(&http->room.lock);
  wake_waiting(http, 0, true, NULL);
  end_sessions(http);
  end_connections(http);
  release(http);
}
