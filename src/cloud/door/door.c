// SPDX-License-Identifier: Apache-2.0
// door.c - accepts a connection, peeks at its first bytes, and hands it to http.c or grpc.c. A
// connection that sends nothing is closed after a while, and the number of waiting connections is
// limited.
#include "cloud/door/door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "cloud/api/metrics.h"
#include "cloud/door/grpc.h"
#include "cloud/door/http.h"
#include "cloud/door/room.h"
#include "cloud/door/watchdog.h"
#include "cloud/worker/helper_client.h"

// When full, the connection that has been silent longest is closed; one address gets a quarter.
enum { MAX_WAITING = 1024, HELLO_TIMEOUT_S = 10, WELCOMES = 64 };

typedef struct visitor {
  int fd;
  struct sockaddr_in from;
  int64_t until_ns;
} visitor;

struct vt_door {
  vt_http *http;
  vt_grpc *grpc;
  pthread_t thread;
  bool running;
  int listener, wake, spare;
  size_t max; // waiting connections
  uint16_t port;
  vt_heartbeat heartbeat;
  VT_ARRAY(visitor) waiting;
};

// --- the first bytes -----------------------------------------------------------------------------

typedef struct cursor {
  const unsigned char *p, *end;
} cursor;

// The bytes after a length of `width` bytes; moves the cursor past them. Empty when truncated.
static cursor take(cursor *c, size_t width) {
  size_t size = 0, left = (size_t)(c->end - c->p);
  if (left < width) return *c = (cursor){c->end, c->end};
  for (size_t i = 0; i < width; i++) size = size << 8 | *c->p++;
  if (size > left - width) size = left - width;
  cursor part = {c->p, c->p + size};
  c->p += size;
  return part;
}

static void skip(cursor *c, size_t size) {
  c->p = (size_t)(c->end - c->p) < size ? c->end : c->p + size;
}

// RFC 8446 4.1.2: the hello's extensions, among them RFC 7301's list of protocols.
static vt_hello read_client_hello(cursor c) {
  skip(&c, 5 + 1 + 3 + 2 + 32); // record, message, version, random
  take(&c, 1);                  // session
  take(&c, 2);                  // ciphers
  take(&c, 1);                  // compression
  cursor extensions = take(&c, 2);
  bool h2 = false, http1 = false;
  while (extensions.end - extensions.p >= 4) {
    unsigned kind = (unsigned)extensions.p[0] << 8 | extensions.p[1];
    skip(&extensions, 2);
    cursor extension = take(&extensions, 2);
    if (kind != 16) continue;
    for (cursor names = take(&extension, 2); names.p < names.end;) {
      cursor name = take(&names, 1);
      size_t n = (size_t)(name.end - name.p);
      if (n == 2 && memcmp(name.p, "h2", 2) == 0) h2 = true;
      if (n == 8 && memcmp(name.p, "http/1.1", 8) == 0) http1 = true;
    }
  }
  return h2 && !http1 ? VT_HELLO_GRPC : VT_HELLO_HTTP;
}

vt_hello vt_hello_read(const unsigned char *bytes, size_t size, size_t *out_need) {
  static const char preface[] = "PRI * HTTP/2.0\r\n";
  enum { preface_size = sizeof preface - 1 };
  *out_need = size ? 5 : 1;
  if (size == 0) return VT_HELLO_SHORT;
  if (*bytes == 22) { // a TLS handshake record
    if (size < 5) return VT_HELLO_SHORT;
    *out_need = 5 + ((size_t)bytes[3] << 8 | bytes[4]);
    if (*out_need > VT_HELLO_MAX) return VT_HELLO_HTTP;
    return size < *out_need ? VT_HELLO_SHORT
                            : read_client_hello((cursor){bytes, bytes + *out_need});
  }
  *out_need = preface_size;
  if (memcmp(bytes, preface, size < preface_size ? size : preface_size) != 0) return VT_HELLO_HTTP;
  return size < preface_size ? VT_HELLO_SHORT : VT_HELLO_GRPC;
}

// --- connections ---------------------------------------------------------------------------------

static void leave(vt_door *door, size_t i) {
  close(door->waiting.data[i].fd);
  door->waiting.data[i] = door->waiting.data[--door->waiting.size];
}

static void make_room(vt_door *door, const struct sockaddr_in *from) {
  size_t same = 0, oldest = SIZE_MAX, oldest_same = SIZE_MAX;
  for (size_t i = 0; i < door->waiting.size; i++) {
    const visitor *v = &door->waiting.data[i];
    if (oldest == SIZE_MAX || v->until_ns < door->waiting.data[oldest].until_ns) oldest = i;
    if (v->from.sin_addr.s_addr != from->sin_addr.s_addr) continue;
    if (!same++ || v->until_ns < door->waiting.data[oldest_same].until_ns) oldest_same = i;
  }
  if (same >= door->max / 4)
    leave(door, oldest_same);
  else if (door->waiting.size >= door->max)
    leave(door, oldest);
}

static void welcome(vt_door *door) {
  visitor v = {.until_ns = vt_metrics_clock() + HELLO_TIMEOUT_S * VT_SECOND};
  int on = 1;
  v.fd = vt_accept(door->listener, &v.from, &door->spare);
  if (v.fd < 0) return;
  make_room(door, &v.from);
  setsockopt(v.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  vt_array_push(&door->waiting, v);
}

// True when the visitor has left this list: handed over, or closed.
static bool attend(vt_door *door, visitor *v) {
  unsigned char bytes[VT_HELLO_MAX];
  size_t need;
  ssize_t got = recv(v->fd, bytes, sizeof bytes, MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  vt_hello hello = got > 0 ? vt_hello_read(bytes, (size_t)got, &need) : VT_HELLO_SHORT;
  if (got > 0 && hello == VT_HELLO_SHORT) {
    // Peeked bytes keep a socket readable; this makes it readable only from `need` bytes on.
    int low = (int)need;
    setsockopt(v->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    return false;
  }
  int low = 1;
  setsockopt(v->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
  if (got <= 0)
    close(v->fd);
  else if (hello == VT_HELLO_GRPC)
    vt_grpc_adopt(door->grpc, v->fd, &v->from);
  else
    vt_http_adopt(door->http, v->fd, &v->from);
  return true;
}

static void *run(void *argument) {
  vt_door *door = argument;
  VT_ARRAY(struct pollfd) fds = {0};
  vt_heartbeat_add(&door->heartbeat, "the thread that accepts connections");
  for (;;) {
    vt_heartbeat_now(&door->heartbeat);
    fds.size = 0;
    vt_array_push(&fds, ((struct pollfd){.fd = door->wake, .events = POLLIN}));
    vt_array_push(&fds, ((struct pollfd){.fd = door->listener, .events = POLLIN}));
    for (size_t i = 0; i < door->waiting.size; i++)
      vt_array_push(&fds, ((struct pollfd){.fd = door->waiting.data[i].fd, .events = POLLIN}));
    if (poll(fds.data, fds.size, 1000) < 0 && errno != EINTR) break;
    if (fds.data[0].revents) break;
    int64_t now = vt_metrics_clock();
    for (size_t i = door->waiting.size; i-- > 0;) {
      visitor *v = &door->waiting.data[i];
      bool gone = fds.data[i + 2].revents && attend(door, v);
      if (!gone && v->until_ns < now) {
        close(v->fd);
        gone = true;
      }
      if (gone) *v = door->waiting.data[--door->waiting.size];
    }
    for (int i = 0; i < WELCOMES && fds.data[1].revents; i++) welcome(door);
  }
  vt_heartbeat_remove(&door->heartbeat);
  for (size_t i = 0; i < door->waiting.size; i++) close(door->waiting.data[i].fd);
  vt_array_free(&door->waiting);
  vt_array_free(&fds);
  return NULL;
}

// --- open and close ------------------------------------------------------------------------------

static vt_status listen_at(vt_cloud *cloud, vt_door *door, const vt_door_options *o) {
  struct sockaddr_in at;
  socklen_t size = sizeof at;
  VT_TRY(vt_listen(cloud, o->address, o->port, &door->listener));
  if (getsockname(door->listener, (struct sockaddr *)&at, &size) != 0)
    return vt_error(VT_UNAVAILABLE, "%s: %s", o->address, strerror(errno));
  door->port = ntohs(at.sin_port);
  return VT_OK;
}

static vt_status load_pem(vt_arena *arena, const char *path, const char **out_text) {
  vt_bytes file;
  VT_TRY(vt_file_map(path, &file));
  *out_text = vt_arena_copy(arena, file.data, file.size);
  vt_file_unmap(&file);
  return VT_OK;
}

vt_status vt_door_open(vt_cloud *cloud, const vt_door_options *options, vt_door **out_door) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_http_options http = {.adopts = true, .watched = true};
  *out_door = NULL;
  vt_door *door = calloc(1, sizeof *door);
  if (!door) return vt_error_no_memory();
  door->listener = door->spare = -1;
  door->max = vt_room_share(MAX_WAITING, 12);
  door->wake = eventfd(0, EFD_CLOEXEC);
  if (*options->certificate) {
    VT_TRY_OUT(load_pem(&arena, options->certificate, &http.certificate_pem));
    VT_TRY_OUT(load_pem(&arena, options->key, &http.key_pem));
  }
  VT_TRY_OUT(listen_at(cloud, door, options));
  VT_TRY_OUT(vt_http_start(cloud, &http, &door->http));
  VT_TRY_OUT(vt_grpc_start(cloud, options->certificate, options->key, &door->grpc));
  if (door->wake < 0 || pthread_create(&door->thread, NULL, run, door) != 0) {
    st = vt_error(VT_INTERNAL, "no thread to listen");
    goto out;
  }
  door->running = true;
  *out_door = door;
  door = NULL;
out:
  vt_door_close(door);
  vt_arena_free(&arena);
  return st;
}

uint16_t vt_door_port(const vt_door *door) {
  return door->port;
}

void vt_door_close(vt_door *door) {
  if (!door) return;
  uint64_t one = 1;
  if (door->running && write(door->wake, &one, sizeof one) == sizeof one)
    pthread_join(door->thread, NULL);
  vt_http_stop(door->http);
  vt_grpc_stop(door->grpc);
  if (door->listener >= 0) close(door->listener);
  if (door->wake >= 0) close(door->wake);
  if (door->spare >= 0) close(door->spare);
  free(door);
}
