// SPDX-License-Identifier: Apache-2.0
// grpc.c - the HTTP/2 side: one thread, one poll loop, nghttp2 for the frames, OpenSSL for TLS.
// Unary calls only, which is all the Cloud TPU API has.
//
// Calls are scheduled round-robin by address, then by connection of an address. Replies that the
// client has not read yet use our memory, so a connection or an address with many of them waits
// until it has read, and a client must read at a minimum rate.
#include "cloud/door/grpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "cloud/api/metrics.h"
#include "cloud/door/room.h"
#include "cloud/door/watchdog.h"

// One address gets at most a quarter of the connections. Control frames (SETTINGS, PING, RST_STREAM
// and others without a call) use a token bucket of CALM frames that refills at CALM_PER_S: a client
// that empties it gets ENHANCE_YOUR_CALM. One turn of the loop reads at most TURN_READS buffers of
// a connection, so that none starves the others.
enum {
  MAX_CONNECTIONS = 512,
  MAX_MESSAGE = 4 << 20,
  MAX_BUFFERED = 8 << 20,
  MAX_STREAMS = 100,
  CALM = 500,
  CALM_PER_S = 50,
  TURN_READS = 16,
  TURN_NS = 20000000, // of answering calls, before the loop looks at its connections again
  MAX_HEADERS = 32,
  MAX_UNREAD = 1 << 20, // of replies: per connection, per address, in total
  MAX_UNREAD_OF_PEER = 64 << 20,
  MAX_UNREAD_OF_ALL = 512 << 20,
  LEAST_RATE = 64 << 10 // bytes a second
};

typedef struct connection {
  vt_grpc *grpc;
  int fd;
  SSL *ssl; // NULL = plain
  nghttp2_session *session;
  bool shaken, wants_write, dead;
  bool more; // its turn ended with data left to read
  bool said; // there may be something to send
  char peer[INET_ADDRSTRLEN];
  in_addr_t address; // the same
  struct stream *streams;
  size_t buffered;              // bytes of requests not answered yet
  size_t unread;                // bytes of replies, until their streams close
  int waiting, answered;        // streams
  uint64_t turn, peer_turn;     // of answered calls: its last one, and that of its address
  int64_t accepted_ns, sent_ns; // sent: progress of the replies
  int64_t used_ns;              // last request
  int64_t calm_ns;              // the bucket was last refilled
  int calm;
} connection;

typedef struct stream {
  struct stream *next, **at; // links in the connection's list; at: the pointer that points here
  int32_t id;
  int64_t begun_ns, until_ns; // until: deadline for reading its reply
  enum { COMES, WAITS, ANSWERED } state;
  char *path, *authorization;
  vt_text body, reply; // reply: with its 5-byte prefix
  size_t sent;
  char status[8];
  vt_text message; // grpc-message, percent-encoded
} stream;

struct vt_grpc {
  vt_cloud *cloud;
  pthread_t thread;
  int wake; // a socket was adopted, or it is time to stop
  SSL_CTX *tls;
  size_t max; // connections
  vt_heartbeat heartbeat;
  size_t unread; // of all connections
  uint64_t turn;
  pthread_mutex_t lock; // of what follows
  bool stop;
  VT_ARRAY(connection *) adopted;     // on their way to `connections`
  VT_ARRAY(connection *) connections; // the thread's own
};

// --- streams -------------------------------------------------------------------------------------

static void free_stream(connection *c, stream *s) {
  c->buffered -= s->body.size;
  c->unread -= s->reply.size;
  c->grpc->unread -= s->reply.size;
  c->waiting -= s->state == WAITS;
  c->answered -= s->state == ANSWERED;
  *s->at = s->next;
  if (s->next) s->next->at = s->at;
  free(s->path);
  free(s->authorization);
  vt_text_free(&s->body);
  vt_text_free(&s->reply);
  vt_text_free(&s->message);
  free(s);
}

static void put_percent(vt_text *out, const char *text) {
  for (; *text; text++) {
    if (*text < ' ' || *text > '~' || *text == '%')
      vt_text_printf(out, "%%%02X", (unsigned char)*text);
    else
      vt_text_put_n(out, text, 1);
  }
}

#define HEADER(name, value)                                                                        \
  {(uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, strlen(value), NGHTTP2_NV_FLAG_NONE}

// The headers of a reply: its `own` ones, then those of every reply.
static void submit(nghttp2_session *session, bool tls, int32_t id, const nghttp2_nv *own,
                   size_t count, const nghttp2_data_provider *body) {
  nghttp2_nv headers[MAX_HEADERS];
  vt_pair pair;
  memcpy(headers, own, count * sizeof *own);
  for (size_t i = 0; count < MAX_HEADERS && vt_reply_header_at(i, tls, &pair); i++)
    headers[count++] = (nghttp2_nv){(uint8_t *)pair.name, (uint8_t *)pair.value, strlen(pair.name),
                                    strlen(pair.value), NGHTTP2_NV_FLAG_NONE}; // lower-cased
  nghttp2_submit_response(session, id, headers, count, body);
}

static ssize_t read_reply(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *context) {
  stream *s = source->ptr;
  size_t left = s->reply.size - s->sent, n = left < size ? left : size;
  (void)context;
  if (n) memcpy(buffer, s->reply.data + s->sent, n);
  s->sent += n;
  if (s->sent == s->reply.size) {
    nghttp2_nv trailer[] = {HEADER("grpc-status", "0")};
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_submit_trailer(session, id, trailer, 1);
  }
  return (ssize_t)n;
}

static void send_failure(connection *c, int32_t id, stream *s, vt_code code, const char *message) {
  snprintf(s->status, sizeof s->status, "%d", (int)code);
  nghttp2_nv headers[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc"),
                          HEADER("grpc-status", s->status), HEADER("grpc-message", message)};
  submit(c->session, c->ssl, id, headers, 4, NULL);
}

static void fail_stream(connection *c, int32_t id, stream *s, vt_code code, const char *message) {
  put_percent(&s->message, message);
  send_failure(c, id, s, code, vt_text_string(&s->message));
}

typedef struct exchange {
  connection *connection;
  stream *stream;
  vt_call call;
  vt_status st;
} exchange;

static vt_status serve_call(void *user) {
  exchange *e = user;
  connection *c = e->connection;
  stream *s = e->stream;
  int32_t id = s->id;
  vt_call *call = &e->call;
  vt_text message = {0};
  const unsigned char *body = (const unsigned char *)vt_text_string(&s->body);
  size_t size = s->body.size < 5 ? 0
                                 : (size_t)body[1] << 24 | (size_t)body[2] << 16 |
                                       (size_t)body[3] << 8 | body[4];
  if (s->body.size < 5 || size != s->body.size - 5) {
    fail_stream(c, id, s, VT_INVALID_ARGUMENT, "not one gRPC message");
    return VT_OK;
  }
  if (body[0]) {
    fail_stream(c, id, s, VT_UNIMPLEMENTED, "compressed messages are not supported");
    return VT_OK;
  }
  vt_call_init(call, c->grpc->cloud, "POST", "/");
  call->peer = c->peer;
  call->secure = c->ssl != NULL;
  if (s->authorization) vt_call_add_header(call, "authorization", s->authorization);
  e->st = vt_grpc_unary(call, s->path ? s->path : "", body + 5, size, &message);
  if (e->st) {
    fail_stream(c, id, s, vt_status_code(e->st), vt_status_message(e->st));
  } else {
    unsigned char prefix[5] = {0, (unsigned char)(message.size >> 24),
                               (unsigned char)(message.size >> 16),
                               (unsigned char)(message.size >> 8), (unsigned char)message.size};
    vt_text_put_n(&s->reply, prefix, sizeof prefix);
    if (message.size) vt_text_put_n(&s->reply, message.data, message.size);
    nghttp2_nv headers[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_reply};
    submit(c->session, c->ssl, id, headers, 2, &provider);
  }
  vt_text_free(&message);
  vt_call_fini(call);
  return VT_OK;
}

static void run_call(connection *c, stream *s) {
  exchange e = {.connection = c, .stream = s};
  vt_attempt attempt;
  vt_status st = vt_attempt_run(&attempt, serve_call, &e);
  if (st) {
    if (e.call.upgrade.drop) e.call.upgrade.drop(e.call.upgrade.context);
    vt_text_free(&s->reply);
    vt_text_free(&s->message);
    send_failure(c, s->id, s, vt_status_code(st), vt_status_message(st));
  }
  vt_attempt_end(&attempt);
  vt_status_free(e.st);
}

static void answer(connection *c, stream *s) {
  c->waiting--;
  c->answered++;
  s->state = ANSWERED;
  run_call(c, s);
  c->buffered -= s->body.size;
  vt_text_free(&s->body);
  c->unread += s->reply.size;
  c->grpc->unread += s->reply.size;
  c->sent_ns = vt_metrics_clock();
  s->until_ns = c->sent_ns + c->grpc->cloud->options.request_timeout_ns +
                (int64_t)(c->unread / LEAST_RATE) * VT_SECOND;
}

// --- nghttp2 callbacks ---------------------------------------------------------------------------

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  connection *c = context;
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  stream *s = calloc(1, sizeof *s);
  if (!s) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  s->id = frame->hd.stream_id;
  s->begun_ns = c->used_ns = vt_metrics_clock();
  s->next = c->streams;
  s->at = &c->streams;
  if (s->next) s->next->at = &s->next;
  c->streams = s;
  nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
  return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
  stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  (void)flags, (void)context;
  if (!s || memchr(value, 0, value_size)) return 0;
  char **slot = name_size == 5 && memcmp(name, ":path", 5) == 0             ? &s->path
                : name_size == 13 && memcmp(name, "authorization", 13) == 0 ? &s->authorization
                                                                            : NULL;
  if (slot) {
    free(*slot);
    *slot = strndup((const char *)value, value_size);
  }
  return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *context) {
  stream *s = nghttp2_session_get_stream_user_data(session, id);
  connection *c = context;
  (void)flags;
  if (!s) return 0;
  if (s->body.size + size > MAX_MESSAGE || c->buffered + size > MAX_BUFFERED)
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_ENHANCE_YOUR_CALM);
  if (!vt_text_try_put_n(&s->body, data, size))
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_ENHANCE_YOUR_CALM);
  c->buffered += size;
  return 0;
}

static bool pay_for(connection *c) {
  int64_t now = vt_metrics_clock(), earned = (now - c->calm_ns) * CALM_PER_S / VT_SECOND;
  if (earned > 0) {
    c->calm = earned > CALM - c->calm ? CALM : c->calm + (int)earned;
    c->calm_ns = now;
  }
  return c->calm-- > 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  connection *c = context;
  bool works = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_WINDOW_UPDATE ||
               (frame->hd.type == NGHTTP2_DATA && frame->hd.length);
  if (!works && !pay_for(c)) {
    nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
    return 0;
  }
  if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
      !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
    return 0;
  stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (s && s->state == COMES) {
    s->state = WAITS;
    c->waiting++;
  }
  return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *context) {
  stream *s = nghttp2_session_get_stream_user_data(session, id);
  (void)error;
  if (s) free_stream(context, s);
  nghttp2_session_set_stream_user_data(session, id, NULL);
  return 0;
}

static ssize_t send_bytes(nghttp2_session *session, const uint8_t *data, size_t size, int flags,
                          void *context) {
  connection *c = context;
  (void)session, (void)flags;
  if (c->ssl) {
    int n = SSL_write(c->ssl, data, size > 1 << 20 ? 1 << 20 : (int)size);
    if (n > 0) {
      c->sent_ns = vt_metrics_clock();
      return n;
    }
    int error = SSL_get_error(c->ssl, n);
    ERR_clear_error();
    return error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ
               ? NGHTTP2_ERR_WOULDBLOCK
               : NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
  if (n >= 0) {
    c->sent_ns = vt_metrics_clock();
    return n;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK ? NGHTTP2_ERR_WOULDBLOCK
                                                 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static bool make_session(connection *c) {
  nghttp2_session_callbacks *callbacks;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return false;
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  nghttp2_session_callbacks_set_send_callback(callbacks, send_bytes);
  int rc = nghttp2_session_server_new(&c->session, callbacks, c);
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS}};
  return rc == 0 && nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 1) == 0;
}

// --- connections ---------------------------------------------------------------------------------

static void close_connection(connection *c) {
  // Open streams still own their memory.
  if (c->session) {
    while (c->streams) free_stream(c, c->streams);
    nghttp2_session_del(c->session);
  }
  if (c->ssl) SSL_free(c->ssl);
  close(c->fd);
  free(c);
}

static void drop(vt_grpc *g, size_t i) {
  close_connection(g->connections.data[i]);
  g->connections.data[i] = g->connections.data[--g->connections.size];
}

// Whether there is room for one more connection of this peer. When all slots (or a quarter, for one
// peer) are taken, the connection (of that peer) that has been idle longest is closed.
static bool make_room(vt_grpc *g, in_addr_t address) {
  size_t same = 0, idlest = SIZE_MAX, idlest_same = SIZE_MAX;
  for (size_t i = 0; i < g->connections.size; i++) {
    const connection *c = g->connections.data[i];
    bool mine = c->address == address;
    same += mine;
    if (c->streams) continue;
    if (idlest == SIZE_MAX || c->used_ns < g->connections.data[idlest]->used_ns) idlest = i;
    if (mine && (idlest_same == SIZE_MAX || c->used_ns < g->connections.data[idlest_same]->used_ns))
      idlest_same = i;
  }
  if (same < g->max / 4 && g->connections.size < g->max) return true;
  if (same >= g->max / 4) idlest = idlest_same;
  if (idlest == SIZE_MAX) return false;
  drop(g, idlest);
  return true;
}

void vt_grpc_adopt(vt_grpc *g, int fd, const struct sockaddr_in *from) {
  uint64_t one = 1;
  connection *c = calloc(1, sizeof *c);
  if (!c) {
    close(fd);
    return;
  }
  c->grpc = g;
  c->fd = fd;
  c->address = from->sin_addr.s_addr;
  inet_ntop(AF_INET, &from->sin_addr, c->peer, sizeof c->peer);
  unsigned unread_ms = (unsigned)(g->cloud->options.request_timeout_ns / 1000000);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
  c->accepted_ns = c->used_ns = c->sent_ns = c->calm_ns = vt_metrics_clock();
  c->calm = CALM;
  if (g->tls) {
    c->ssl = SSL_new(g->tls);
    if (c->ssl) SSL_set_fd(c->ssl, fd);
  }
  c->shaken = !g->tls;
  if ((g->tls && !c->ssl) || !make_session(c)) {
    close_connection(c);
    return;
  }
  pthread_mutex_lock(&g->lock);
  vt_array_push(&g->adopted, c);
  pthread_mutex_unlock(&g->lock);
  if (write(g->wake, &one, sizeof one) < 0) abort(); // an eventfd takes it
}

// Appends to the queue of those waiting for a turn.
static void join(vt_grpc *g, connection *c) {
  c->peer_turn = g->turn;
  for (size_t i = 0; i < g->connections.size; i++)
    if (g->connections.data[i]->address == c->address)
      c->peer_turn = g->connections.data[i]->peer_turn;
  vt_array_push(&g->connections, c);
}

// Moves adopted sockets to the thread's own list; true when it is time to stop.
static bool take_adopted(vt_grpc *g) {
  uint64_t count;
  if (read(g->wake, &count, sizeof count) < 0 && errno != EAGAIN) return true;
  pthread_mutex_lock(&g->lock);
  bool stop = g->stop;
  for (size_t i = 0; i < g->adopted.size; i++) {
    connection *c = g->adopted.data[i];
    if (make_room(g, c->address))
      join(g, c);
    else
      close_connection(c);
  }
  g->adopted.size = 0;
  pthread_mutex_unlock(&g->lock);
  return stop;
}

static void flush(connection *c) {
  if (nghttp2_session_send(c->session) != 0) c->dead = true;
  if (!nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session))
    c->dead = true;
  c->wants_write = nghttp2_session_want_write(c->session);
  c->said = false;
}

static void shake(connection *c) {
  int rc = SSL_accept(c->ssl);
  if (rc == 1) {
    c->shaken = true;
    return;
  }
  int error = SSL_get_error(c->ssl, rc);
  ERR_clear_error();
  c->wants_write = error == SSL_ERROR_WANT_WRITE;
  if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) c->dead = true;
}

static void serve(connection *c) {
  unsigned char buffer[16384];
  int reads = 0;
  c->more = false;
  c->said = true;
  if (!c->shaken) shake(c);
  while (c->shaken && !c->dead) {
    ssize_t n;
    if (reads++ == TURN_READS) {
      c->more = true;
      break;
    }
    if (c->ssl) {
      n = SSL_read(c->ssl, buffer, sizeof buffer);
      int error = n > 0 ? 0 : SSL_get_error(c->ssl, (int)n);
      ERR_clear_error();
      if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) break;
    } else {
      n = recv(c->fd, buffer, sizeof buffer, 0);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    }
    if (n <= 0 || nghttp2_session_mem_recv(c->session, buffer, (size_t)n) < 0) c->dead = true;
  }
}

// --- answers -------------------------------------------------------------------------------------

static size_t unread_of(const vt_grpc *g, in_addr_t address) {
  size_t sum = 0;
  for (size_t i = 0; i < g->connections.size; i++)
    if (g->connections.data[i]->address == address) sum += g->connections.data[i]->unread;
  return sum;
}

static bool may_answer(const connection *c) {
  if (!c->waiting || c->dead || c->unread >= MAX_UNREAD) return false;
  return c->grpc->unread < MAX_UNREAD_OF_PEER ||
         unread_of(c->grpc, c->address) < MAX_UNREAD_OF_PEER;
}

// Answers one call of the address that has waited longest for a turn, on the connection of it that
// is next; false: no call waits.
static bool take_turn(vt_grpc *g) {
  connection *next = NULL;
  stream *eldest = NULL;
  for (size_t i = 0; i < g->connections.size; i++) {
    connection *c = g->connections.data[i];
    if (may_answer(c) && (!next || c->peer_turn < next->peer_turn ||
                          (c->peer_turn == next->peer_turn && c->turn < next->turn)))
      next = c;
  }
  if (!next) return false;
  next->turn = ++g->turn;
  next->said = true;
  for (size_t i = 0; i < g->connections.size; i++)
    if (g->connections.data[i]->address == next->address)
      g->connections.data[i]->peer_turn = g->turn;
  for (stream *s = next->streams; s; s = s->next) // the youngest is first
    if (s->state == WAITS) eldest = s;
  answer(next, eldest);
  return true;
}

// Many addresses that do not read: the one that holds most is closed.
static void end_greediest(vt_grpc *g) {
  connection *most = NULL;
  for (size_t i = 0; i < g->connections.size; i++) {
    connection *c = g->connections.data[i];
    if (!c->dead && (!most || c->unread > most->unread)) most = c;
  }
  if (most) most->dead = true;
}

// True when more calls are waiting than fit into a turn of the loop.
static bool answer_calls(vt_grpc *g) {
  int64_t until = vt_metrics_clock() + TURN_NS;
  bool more = true;
  while (more && vt_metrics_clock() < until) more = take_turn(g);
  if (g->unread >= MAX_UNREAD_OF_ALL) end_greediest(g);
  return more;
}

// Closes clients that are too slow: to begin, to finish a request, to read replies.
static void check_patience(connection *c, int64_t now) {
  int64_t timeout = c->grpc->cloud->options.request_timeout_ns;
  bool begun = c->shaken && nghttp2_session_get_last_proc_stream_id(c->session) > 0;
  if (!c->shaken && now > c->accepted_ns + timeout) c->dead = true;
  if (!begun && c->used_ns == c->accepted_ns && now > c->accepted_ns + 10 * timeout) c->dead = true;
  for (const stream *s = c->streams; s; s = s->next)
    if ((s->state == COMES && now > s->begun_ns + timeout) ||
        (s->state == ANSWERED && now > s->until_ns))
      c->dead = true;
  if (c->answered && now > c->sent_ns + timeout) c->dead = true;
}

static void *run(void *argument) {
  vt_grpc *g = argument;
  VT_ARRAY(struct pollfd) fds = {0};
  vt_heartbeat_add(&g->heartbeat, "the thread of gRPC");
  for (bool more = false;;) {
    vt_heartbeat_now(&g->heartbeat);
    fds.size = 0;
    vt_array_push(&fds, ((struct pollfd){.fd = g->wake, .events = POLLIN}));
    for (size_t i = 0; i < g->connections.size; i++) {
      connection *c = g->connections.data[i];
      vt_array_push(&fds,
                    ((struct pollfd){.fd = c->fd,
                                     .events = (short)(POLLIN | (c->wants_write ? POLLOUT : 0))}));
    }
    if (poll(fds.data, fds.size, more ? 0 : 1000) < 0 && errno != EINTR) break;
    for (size_t i = 1; i < fds.size; i++) {
      connection *c = g->connections.data[i - 1];
      if (fds.data[i].revents || c->more) serve(c);
    }
    more = answer_calls(g);
    for (size_t i = 0; i < g->connections.size; i++) {
      connection *c = g->connections.data[i];
      if (c->said && c->shaken && !c->dead) flush(c);
      more |= c->more;
    }
    int64_t now = vt_metrics_clock();
    for (size_t i = g->connections.size; i-- > 0;) {
      check_patience(g->connections.data[i], now);
      if (g->connections.data[i]->dead) drop(g, i);
    }
    if (fds.data[0].revents && take_adopted(g)) break;
  }
  vt_heartbeat_remove(&g->heartbeat);
  for (size_t i = 0; i < g->connections.size; i++) close_connection(g->connections.data[i]);
  vt_array_free(&g->connections);
  vt_array_free(&g->adopted);
  vt_array_free(&fds);
  return NULL;
}

// --- start and stop ------------------------------------------------------------------------------

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                     const unsigned char *in, unsigned in_size, void *context) {
  (void)ssl, (void)context;
  return nghttp2_select_next_protocol((unsigned char **)(uintptr_t)out, out_size, in, in_size) == 1
             ? SSL_TLSEXT_ERR_OK
             : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static vt_status load_tls(vt_grpc *g, const char *certificate, const char *key) {
  if (!*certificate) return VT_OK;
  g->tls = SSL_CTX_new(TLS_server_method());
  if (!g->tls) return vt_error_no_memory();
  SSL_CTX_set_min_proto_version(g->tls, TLS1_2_VERSION);
  SSL_CTX_set_mode(g->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_alpn_select_cb(g->tls, choose_h2, NULL);
  if (SSL_CTX_use_certificate_chain_file(g->tls, certificate) == 1 &&
      SSL_CTX_use_PrivateKey_file(g->tls, key, SSL_FILETYPE_PEM) == 1)
    return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "certificate %s and key %s do not load", certificate, key);
}

static void release(vt_grpc *g) {
  if (g->wake >= 0) close(g->wake);
  SSL_CTX_free(g->tls);
  pthread_mutex_destroy(&g->lock);
  free(g);
}

vt_status vt_grpc_start(vt_cloud *cloud, const char *certificate, const char *key,
                        vt_grpc **out_grpc) {
  vt_status st = VT_OK;
  *out_grpc = NULL;
  vt_grpc *g = calloc(1, sizeof *g);
  if (!g) return vt_error_no_memory();
  g->cloud = cloud;
  g->max = vt_room_share(MAX_CONNECTIONS, 6);
  pthread_mutex_init(&g->lock, NULL);
  g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  VT_TRY_OUT(load_tls(g, certificate, key));
  if (g->wake < 0 || pthread_create(&g->thread, NULL, run, g) != 0) {
    st = vt_error(VT_INTERNAL, "no thread for gRPC");
    goto out;
  }
  *out_grpc = g;
  return VT_OK;
out:
  release(g);
  return st;
}

void vt_grpc_stop(vt_grpc *grpc) {
  if (!grpc) return;
  uint64_t one = 1;
  pthread_mutex_lock(&grpc->lock);
  grpc->stop = true;
  pthread_mutex_unlock(&grpc->lock);
  if (write(grpc->wake, &one, sizeof one) == sizeof one) pthread_join(grpc->thread, NULL);
  release(grpc);
}
