// SPDX-License-Identifier: Apache-2.0
// http.c - libmicrohttpd to vt_call and back. One epoll thread a core; calls take turns on the
// cloud's lock. The response is queued on the last handler call only: queued earlier, the library
// closes a keep-alive connection.
#include "cloud/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cloud/call.h"
#include "cloud/metrics.h"

// One address gets a quarter of the connections, so that it can not keep the others out.
enum { MAX_BODY = 4 << 20, IDLE_TIMEOUT_S = 120, MAX_CONNECTIONS = 4096, MAX_OF_ONE_PEER = 1024 };

// The library's timeout is for silence; a client that sends or reads a byte now and then needs a
// clock of its own. One a connection.
typedef struct patience {
  struct patience *next, **at; // at: the pointer that points here
  int fd;
  int64_t deadline_ns; // 0 = we are the ones who are slow
} patience;

struct vt_http {
  vt_cloud *cloud;
  pthread_mutex_t lock; // of the list
  pthread_cond_t ended;
  pthread_t watchman;
  bool watched, stop;
  patience *connections;
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
  enum MHD_Result result = send_reply(connection, &call);
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
                   (options->adopts ? MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC : 0);
  http->daemon = MHD_start_daemon(
      flags, 0, NULL, NULL, handle, http, MHD_OPTION_SOCK_ADDR, &address,
      MHD_OPTION_NOTIFY_COMPLETED, completed, http, MHD_OPTION_NOTIFY_CONNECTION, connected, http,
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)MAX_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)MAX_OF_ONE_PEER,
      MHD_OPTION_URI_LOG_CALLBACK, begin, http, MHD_OPTION_ARRAY, extra, MHD_OPTION_END);
  if (!http->daemon) {
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

void vt_http_stop(vt_http *http) {
  if (!http) return;
  pthread_mutex_lock(&http->lock);
  http->stop = true;
  pthread_cond_broadcast(&http->ended);
  pthread_mutex_unlock(&http->lock);
  if (http->watched) pthread_join(http->watchman, NULL);
  MHD_stop_daemon(http->daemon);
  pthread_mutex_destroy(&http->lock);
  pthread_cond_destroy(&http->ended);
  free(http);
}
