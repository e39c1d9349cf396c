// SPDX-License-Identifier: Apache-2.0
// http.c - libmicrohttpd to vt_call and back. One epoll thread a core; calls take turns on the
// cloud's lock. The response is queued on the last handler call only: queued earlier, the library
// closes a keep-alive connection. A connection that a call has made a WebSocket leaves the
// library's loop for a thread of its own.
#include "cloud/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cloud/call.h"
#include "cloud/metrics.h"
#include "cloud/stream.h"

// One address gets a quarter of the connections, so that it can not keep the others out.
enum { MAX_BODY = 4 << 20, IDLE_TIMEOUT_S = 120, MAX_CONNECTIONS = 4096, MAX_OF_ONE_PEER = 1024 };
// WebSockets cost a thread each.
enum { MAX_SESSIONS = 256, MAX_OF_ONE_CALLER = 64, SESSION_STACK = 256 << 10 };

// The library's timeout is for silence; a client that sends or reads a byte now and then needs a
// clock of its own. One a connection.
typedef struct patience {
  struct patience *next, **at; // at: the pointer that points here
  int fd;
  int64_t deadline_ns; // 0 = we are the ones who are slow
} patience;

// A WebSocket, from the call that agreed to it to the end of its thread.
typedef struct session {
  struct session *next;
  vt_http *http;
  vt_upgrade upgrade;
  char *caller;
  struct MHD_UpgradeResponseHandle *handle;
  vt_stream stream;
} session;

struct vt_http {
  vt_cloud *cloud;
  pthread_mutex_t lock; // of the list
  pthread_cond_t ended;
  pthread_t watchman;
  bool watched, stop;
  patience *connections;
  session *sessions;
  int stop_sessions; // readable from vt_http_stop on
  struct MHD_Daemon *daemon;
  uint16_t port;
  bool secure;
  void (*run)(vt_call *call);
  bool (*who)(void *context, int socket, char out_peer[64]);
  void *who_context;
};

typedef struct request {
  char *uri; // as sent, query included
  vt_text body;
  bool begun, too_large;
  session *session; // agreed to, but not begun
} request;

static void expect(vt_http *http, struct MHD_Connection *connection, int64_t within_ns) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  patience *p = info ? info->socket_context : NULL;
  if (!p) return;
  pthread_mutex_lock(&http->lock);
  p->deadline_ns = within_ns ? vt_metrics_clock() + within_ns : 0;
  pthread_mutex_unlock(&http->lock);
}

// The library closes the socket only after it has said so here, under the lock.
static void connected(void *context, struct MHD_Connection *connection, void **slot,
                      enum MHD_ConnectionNotificationCode code) {
  vt_http *http = context;
  patience *p = *slot;
  if (code == MHD_CONNECTION_NOTIFY_STARTED && !p) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    p = info ? calloc(1, sizeof *p) : NULL;
    if (!p) return;
    p->fd = info->connect_fd;
    // Replies that lie in the kernel because nobody reads them end with the connection, too.
    unsigned unread_ms = (unsigned)(http->cloud->options.request_timeout_ns / 1000000);
    setsockopt(p->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
    p->deadline_ns = vt_metrics_clock() + http->cloud->options.request_timeout_ns;
    pthread_mutex_lock(&http->lock);
    p->next = http->connections;
    p->at = &http->connections;
    if (p->next) p->next->at = &p->next;
    http->connections = p;
    pthread_mutex_unlock(&http->lock);
    *slot = p;
  } else if (code == MHD_CONNECTION_NOTIFY_CLOSED && p) {
    pthread_mutex_lock(&http->lock);
    *p->at = p->next;
    if (p->next) p->next->at = p->at;
    pthread_mutex_unlock(&http->lock);
    free(p);
    *slot = NULL;
  }
}

static void *watch(void *argument) {
  vt_http *http = argument;
  pthread_mutex_lock(&http->lock);
  while (!http->stop) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec++;
    pthread_cond_timedwait(&http->ended, &http->lock, &at);
    int64_t now = vt_metrics_clock();
    for (patience *p = http->connections; p; p = p->next)
      if (p->deadline_ns && now > p->deadline_ns) shutdown(p->fd, SHUT_RDWR);
  }
  pthread_mutex_unlock(&http->lock);
  return NULL;
}

// --- WebSockets
// --------------------------------------------------------------------------------------------------

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

// Called by the library when the agreement has been sent.
static void begin_session(void *context, struct MHD_Connection *connection, void *slot,
                          const char *extra, size_t extra_size, MHD_socket socket,
                          struct MHD_UpgradeResponseHandle *handle) {
  session *s = context;
  request *r = slot;
  pthread_attr_t attributes;
  pthread_t thread;
  int on = 1, unread_ms = 0; // a peer may be slow; vt_stream asks whether it lives
  expect(s->http, connection, 0);
  if (r) r->session = NULL;
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  const union MHD_ConnectionInfo *info = // under TLS `socket` is not it
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

// A place for the call's WebSocket; false when there is none left.
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

// --- calls
// -------------------------------------------------------------------------------------------------------

static enum MHD_Result add_header(void *context, enum MHD_ValueKind kind, const char *key,
                                  const char *value) {
  (void)kind;
  if (value) vt_call_add_header(context, key, value);
  return MHD_YES;
}

static enum MHD_Result send_reply(struct MHD_Connection *connection, vt_call *call) {
  vt_call_render(call);
  struct MHD_Response *response = MHD_create_response_from_buffer(
      call->raw.size, call->raw.data ? call->raw.data : (void *)"",
      call->raw.data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (!response) return MHD_NO;
  call->raw = (vt_text){0}; // the response has it
  MHD_add_response_header(response, "Content-Type", call->content_type);
  for (size_t i = 0; i < call->reply_headers.size; i++)
    MHD_add_response_header(response, call->reply_headers.data[i].name,
                            call->reply_headers.data[i].value);
  enum MHD_Result result = MHD_queue_response(connection, (unsigned)call->status, response);
  MHD_destroy_response(response);
  return result;
}

static enum MHD_Result agree(vt_http *http, struct MHD_Connection *connection, vt_call *call,
                             request *r) {
  if (!reserve_session(http, call, &r->session)) {
    vt_call_clear_reply(call);
    call->status = 429;
    call->reply = json_pack(
        "{s:{s:i, s:s, s:s}}", "error", "code", 429, "message",
        vt_arena_printf(&call->arena, "Too many WebSockets are open: %d of one caller, %d in all.",
                        MAX_OF_ONE_CALLER, MAX_SESSIONS),
        "status", "RESOURCE_EXHAUSTED");
    return send_reply(connection, call);
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

static enum MHD_Result answer(vt_http *http, struct MHD_Connection *connection, const char *method,
                              request *r) {
  vt_call call;
  char peer[64];
  char *question = strchr(r->uri, '?');
  if (question) *question++ = 0;
  // HEAD is GET whose body the library leaves out.
  vt_call_init(&call, http->cloud, strcmp(method, "HEAD") == 0 ? "GET" : method, r->uri);
  call.secure = http->secure;
  call.peer = peer_text(connection, peer);
  bool known = true;
  if (http->who) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    known = info && http->who(http->who_context, info->connect_fd, peer);
  }
  if (question) vt_call_add_query(&call, question);
  MHD_get_connection_values(connection, MHD_HEADER_KIND, add_header, &call);
  call.body_text = vt_text_string(&r->body);
  call.body_size = r->body.size;
  const char *override = vt_call_header(&call, "x-http-method-override");
  if (override && strcmp(method, "POST") == 0) call.method = override; // long GETs of some clients
  if (!known) {
    call.status = 403;
    call.content_type = "text/plain";
    vt_text_put(&call.raw, "not your machine\n");
  } else if (r->too_large) {
    call.status = 413;
    call.reply = json_pack("{s:{s:i, s:s, s:s}}", "error", "code", 413, "message",
                           "The request is too large.", "status", "INVALID_ARGUMENT");
  } else {
    http->run(&call);
  }
  enum MHD_Result result =
      call.upgrade.run ? agree(http, connection, &call, r) : send_reply(connection, &call);
  vt_call_fini(&call);
  return result;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **slot) {
  (void)version, (void)url;
  request *r = *slot;
  if (!r) return MHD_NO;
  if (!r->begun) {
    r->begun = true;
    return MHD_YES;
  }
  if (*upload_size) {
    if (r->body.size + *upload_size > MAX_BODY)
      r->too_large = true;
    else
      vt_text_put_n(&r->body, upload, *upload_size);
    *upload_size = 0;
    return MHD_YES;
  }
  expect(context, connection, 0);
  enum MHD_Result result = answer(context, connection, method, r);
  expect(context, connection, ((vt_http *)context)->cloud->options.request_timeout_ns);
  return result;
}

static void completed(void *context, struct MHD_Connection *connection, void **slot,
                      enum MHD_RequestTerminationCode code) {
  (void)code;
  request *r = *slot;
  expect(context, connection, IDLE_TIMEOUT_S * VT_SECOND);
  if (!r) return;
  if (r->session) forget_session(r->session); // the connection broke before it began
  vt_text_free(&r->body);
  free(r->uri);
  free(r);
  *slot = NULL;
}

// The URI is taken here, whole and still encoded: the router has its own rules for '+' and %00.
// What this returns is the request's slot.
static void *begin(void *context, const char *uri, struct MHD_Connection *connection) {
  vt_http *http = context;
  request *r = calloc(1, sizeof *r);
  expect(http, connection, http->cloud->options.request_timeout_ns);
  if (r && !(r->uri = strdup(uri))) {
    free(r);
    return NULL;
  }
  return r;
}

vt_status vt_http_start(vt_cloud *cloud, const vt_http_options *options, vt_http **out_http) {
  *out_http = NULL;
  vt_http *http = calloc(1, sizeof *http);
  if (!http) return vt_error_no_memory();
  http->cloud = cloud;
  pthread_mutex_init(&http->lock, NULL);
  pthread_cond_init(&http->ended, NULL);
  http->secure = options->certificate_pem != NULL;
  http->who = options->who;
  http->who_context = options->who_context;
  http->run = options->run ? options->run : vt_call_run;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options->port)};
  if (!options->adopts && inet_pton(AF_INET, options->address, &address.sin_addr) != 1) {
    free(http);
    return vt_error(VT_INVALID_ARGUMENT, "'%s' is not an IPv4 address", options->address);
  }
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned threads = options->threads ? options->threads
                     : cores > 4      ? 4
                     : cores > 0      ? (unsigned)cores
                                      : 1;
  struct MHD_OptionItem extra[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL},
                                   {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)options->certificate_pem},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)options->key_pem},
                                   {MHD_OPTION_END, 0, NULL}};
  struct MHD_OptionItem *list = extra;
  if (threads < 2 || options->thread_per_connection)
    *list = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, NULL};
  if (!http->secure) extra[1].option = MHD_OPTION_END;
  // Without the library's log: what any stranger can cause does not belong there.
  unsigned flags = (options->thread_per_connection
                        ? MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD
                        : MHD_USE_EPOLL_INTERNAL_THREAD) |
                   (http->secure ? MHD_USE_TLS : 0) |
                   (options->adopts ? MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC : 0) |
                   (options->thread_per_connection ? 0 : MHD_ALLOW_UPGRADE);
  http->stop_sessions = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  http->daemon = MHD_start_daemon(
      flags, 0, NULL, NULL, handle, http, MHD_OPTION_SOCK_ADDR, &address,
      MHD_OPTION_NOTIFY_COMPLETED, completed, http, MHD_OPTION_NOTIFY_CONNECTION, connected, http,
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)MAX_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)MAX_OF_ONE_PEER,
      MHD_OPTION_URI_LOG_CALLBACK, begin, http, MHD_OPTION_ARRAY, extra, MHD_OPTION_END);
  if (!http->daemon) {
    close(http->stop_sessions);
    free(http);
    if (options->adopts)
      return vt_error(VT_INVALID_ARGUMENT, "HTTP does not start%s",
                      options->key_pem ? "; do certificate and key belong together?" : "");
    return vt_error(VT_UNAVAILABLE, "can not listen on %s port %d", options->address,
                    (int)options->port);
  }
  http->watched = pthread_create(&http->watchman, NULL, watch, http) == 0;
  if (!options->adopts)
    http->port = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
  *out_http = http;
  return VT_OK;
}

uint16_t vt_http_port(const vt_http *http) {
  return http->port;
}

void vt_http_adopt(vt_http *http, int fd, const struct sockaddr_in *from) {
  // The library closes the socket also when it refuses it.
  MHD_add_connection(http->daemon, fd, (const struct sockaddr *)from, sizeof *from);
}

static bool begun_sessions(const vt_http *http) {
  for (const session *s = http->sessions; s; s = s->next)
    if (s->handle) return true;
  return false;
}

// The library stops only after the sockets that it has given away were given back.
static void end_sessions(vt_http *http) {
  uint64_t one = 1;
  ssize_t said = write(http->stop_sessions, &one, sizeof one);
  pthread_mutex_lock(&http->lock);
  while (said == sizeof one && begun_sessions(http)) pthread_cond_wait(&http->ended, &http->lock);
  pthread_mutex_unlock(&http->lock);
}

void vt_http_stop(vt_http *http) {
  if (!http) return;
  pthread_mutex_lock(&http->lock);
  http->stop = true;
  pthread_cond_broadcast(&http->ended);
  pthread_mutex_unlock(&http->lock);
  if (http->watched) pthread_join(http->watchman, NULL);
  end_sessions(http);
  MHD_stop_daemon(http->daemon);
  close(http->stop_sessions);
  pthread_mutex_destroy(&http->lock);
  pthread_cond_destroy(&http->ended);
  free(http);
}
