// SPDX-License-Identifier: Apache-2.0
// cli_tunnel.c - `vtpu compute start-iap-tunnel INSTANCE PORT`: connects standard input and output,
// or each connection to a local port, through the daemon to a worker. ssh runs it as its
// ProxyCommand. A broken connection to the daemon is retried for a minute: the tunnel resumes where
// it was.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cloud/api/metrics.h"
#include "cloud/client/cloud_cli.h"
#include "cloud/client/http_client.h"
#include "cloud/door/tunnel.h"

enum {
  PING_MS = 30000,
  AGAIN_S = 60,
  FIRST_WAIT_MS = 50,
  MOST_WAIT_MS = 5000,
  UNREAD_MS = 60000,
  GOODBYE_S = 10
};

typedef struct line {
  vt_http_socket socket;
  vt_websocket ws;
  vt_tunnel tunnel;
  bool lost, ended; // the connection; our reader and writer
} line;

static void send_pending(line *l) {
  while (!l->lost && vt_websocket_pending(&l->ws)) {
    int n =
        BIO_write(l->socket.bio, l->ws.out.data + l->ws.out_at, (int)vt_websocket_pending(&l->ws));
    if (n <= 0) {
      l->lost = !BIO_should_retry(l->socket.bio);
      return;
    }
    vt_websocket_sent(&l->ws, (size_t)n);
  }
}

static bool write_all(int fd, const char *bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    ssize_t n = write(fd, bytes + at, size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += (size_t)n;
  }
  return true;
}

// Handles all data that has arrived. False at the end of the tunnel, or of our reader.
static bool receive(line *l, int out) {
  uint8_t bytes[16384];
  for (int n; (n = BIO_read(l->socket.bio, bytes, sizeof bytes)) > 0;) {
    for (size_t at = 0, used; at < (size_t)n; at += used) {
      vt_ws_opcode event = vt_websocket_read(&l->ws, bytes + at, (size_t)n - at, &used);
      if (event == VT_WS_CLOSE) return false;
      if (event == VT_WS_NONE) continue;
      if (!vt_tunnel_take(&l->tunnel, &l->ws, event, false)) {
        vt_websocket_close(&l->ws, l->tunnel.wrong, "");
        l->ws.close_code = l->tunnel.wrong;
        return false;
      }
    }
    vt_tunnel *t = &l->tunnel;
    if (!write_all(out, vt_text_string(&t->in) + t->in_at, t->in.size - t->in_at)) {
      vt_websocket_close(&l->ws, VT_WS_NORMAL, "");
      l->ws.close_code = VT_WS_NORMAL;
      return false;
    }
    t->in_at = t->in.size;
  }
  if (BIO_should_retry(l->socket.bio)) return true;
  l->lost = true;
  return false;
}

// Closes and waits for the daemon to do so: closing a socket with unread data resets the connection
// and loses what it had sent.
static void say_goodbye(line *l) {
  int64_t end_ns = vt_metrics_clock() + GOODBYE_S * VT_SECOND;
  char bytes[4096];
  vt_websocket_close(&l->ws, VT_WS_NORMAL, "");
  l->ws.close_code = VT_WS_NORMAL;
  while (!l->lost && vt_metrics_clock() < end_ns) {
    send_pending(l);
    struct pollfd fd = {.fd = l->socket.fd,
                        .events = (short)(POLLIN | (vt_websocket_pending(&l->ws) ? POLLOUT : 0))};
    poll(&fd, 1, 1000);
    while (BIO_read(l->socket.bio, bytes, sizeof bytes) > 0) {
    }
    if (!BIO_should_retry(l->socket.bio)) break;
  }
  l->lost = false;
}

static void relay(line *l, int in, int out) {
  for (;;) {
    char bytes[VT_TUNNEL_DATA_MAX];
    bool may_send = l->tunnel.open && !l->ended && vt_tunnel_room(&l->tunnel, &l->ws);
    send_pending(l);
    if (l->ended && l->tunnel.open && !l->lost && !vt_websocket_pending(&l->ws)) {
      say_goodbye(l);
      return;
    }
    struct pollfd fds[2] = {
        {.fd = l->socket.fd,
         .events = (short)(POLLIN | (vt_websocket_pending(&l->ws) ? POLLOUT : 0))},
        {.fd = may_send ? in : -1, .events = POLLIN}};
    SSL *ssl = NULL;
    bool has = BIO_get_ssl(l->socket.bio, &ssl) == 1 && ssl && SSL_pending(ssl) > 0;
    int ready = poll(fds, 2, has ? 0 : PING_MS);
    if (ready == 0 && !has) vt_websocket_send(&l->ws, VT_WS_PING, "", 0);
    if (l->lost || ((has || fds[0].revents) && !receive(l, out))) break;
    if (!fds[1].revents) continue;
    ssize_t n = read(in, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0)
      l->ended = true; // and what it has written is sent before the end
    else
      vt_tunnel_send(&l->tunnel, &l->ws, bytes, (size_t)n);
  }
  send_pending(l);
}

static vt_status dial(vt_cli *cli, const char *url, line *l) {
  vt_http_request request = {"GET", url, cli->token, NULL, cli->ca_file};
  int unread_ms = UNREAD_MS;
  l->ws = (vt_websocket){.client = true, .max_message = 6 + VT_TUNNEL_DATA_MAX};
  l->lost = false;
  VT_TRY(vt_http_open_socket(&request, VT_TUNNEL_PROTOCOL, &l->socket));
  // A network that silently drops what we send counts as a broken connection, too.
  setsockopt(l->socket.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
  return VT_OK;
}

static void hang_up(line *l) {
  vt_http_close_socket(&l->socket);
  vt_websocket_fini(&l->ws);
}

// Another connection for a tunnel that lost its own. The daemon keeps the tunnel for a minute; a
// refusal is final.
static vt_status dial_again(vt_cli *cli, line *l) {
  int64_t end_ns = vt_metrics_clock() + AGAIN_S * VT_SECOND;
  char ack[24];
  hang_up(l);
  vt_tunnel_lost(&l->tunnel);
  snprintf(ack, sizeof ack, "%llu", (unsigned long long)l->tunnel.received);
  const char *url =
      vt_arena_printf(&cli->arena, "%s/v4/reconnect?sid=%s&ack=%s&zone=%s&newWebsocket=true",
                      cli->endpoint, l->tunnel.sid, ack, cli->zone);
  for (long wait_ms = FIRST_WAIT_MS;;
       wait_ms = wait_ms * 2 < MOST_WAIT_MS ? wait_ms * 2 : MOST_WAIT_MS) {
    struct timespec pause = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    vt_status st = dial(cli, url, l);
    vt_code code = vt_status_code(st);
    bool again = code == VT_UNAVAILABLE || code == VT_RESOURCE_EXHAUSTED;
    if (!st || !again || vt_metrics_clock() > end_ns)
      return vt_status_wrap(st, "the connection to the daemon was lost");
    vt_status_free(st);
  }
}

// Copies `in` to the worker and the worker's data to `out`, until one of them ends.
static vt_status carry(vt_cli *cli, const char *url, int in, int out) {
  line l = {0};
  VT_TRY(dial(cli, url, &l));
  vt_status st = VT_OK;
  relay(&l, in, out);
  while (!st && l.lost && *l.tunnel.sid) {
    st = dial_again(cli, &l);
    if (!st) relay(&l, in, out);
  }
  if (st)
    ;
  else if (l.lost)
    st = vt_error(VT_UNAVAILABLE, "the connection to the daemon was lost");
  else if (l.ws.close_code && l.ws.close_code != VT_WS_NORMAL)
    st = vt_error(VT_UNAVAILABLE, "Error while connecting [%d: '%s'].", (int)l.ws.close_code,
                  l.ws.control_size > 2
                      ? vt_arena_copy(&cli->arena, (char *)l.ws.control + 2, l.ws.control_size - 2)
                      : "");
  hang_up(&l);
  vt_tunnel_fini(&l.tunnel);
  return st;
}

static int listen_at(const char *host, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  socklen_t size = sizeof at;
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &at.sin_addr) != 1)
    return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 64) != 0 ||
      getsockname(fd, (struct sockaddr *)&at, &size) != 0)
    return -1;
  fprintf(stderr, "Listening on port [%d].\n", (int)ntohs(at.sin_port));
  return fd;
}

// Serves each connection to "host:port" in its own process, until interrupted.
static vt_status serve(vt_cli *cli, const char *url, const char *local) {
  const char *colon = strrchr(local, ':');
  const char *host = colon ? vt_arena_copy(&cli->arena, local, (size_t)(colon - local)) : "";
  const char *digits = colon ? colon + 1 : local;
  char *end;
  long port = strtol(digits, &end, 10);
  if (*digits < '0' || *digits > '9' || *end || port > 65535)
    return vt_error(VT_INVALID_ARGUMENT, "--local-host-port=%s: it is HOST:PORT", local);
  int listener = listen_at(*host ? host : "127.0.0.1", (int)port);
  if (listener < 0) return vt_error(VT_UNAVAILABLE, "%s: %s", local, strerror(errno));
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 && errno != EINTR) return vt_error(VT_UNAVAILABLE, "%s", strerror(errno));
    pid_t pid = fd < 0 ? -1 : fork();
    if (pid == 0) {
      close(listener);
      vt_status st = carry(cli, url, fd, fd);
      if (st) fprintf(stderr, "ERROR: %s\n", vt_status_message(st));
      _exit(st != VT_OK);
    }
    if (fd >= 0) close(fd);
  }
}

vt_status vt_cli_tunnel(vt_cli *cli) {
  const char *local = vt_cli_flag_value(cli, "local-host-port"),
             *interface = vt_cli_flag_value(cli, "network-interface");
  if (interface) interface = vt_cli_encode(cli, interface);
  for (size_t i = 0; i < 2; i++) // they are put into a URL unescaped
    for (const char *p = cli->args.words.data[i]; *p; p++)
      if (strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-") == 0)
        return vt_error(VT_INVALID_ARGUMENT, "'%s' is no name of a worker, and no port",
                        cli->args.words.data[i]);
  const char *url = vt_arena_printf(
      &cli->arena,
      "%s/v4/connect?project=%s&zone=%s&instance=%s&interface=%s&port=%s&newWebsocket=true",
      cli->endpoint, cli->project, cli->zone, cli->args.words.data[0],
      interface ? interface : "nic0", cli->args.words.data[1]);
  signal(SIGPIPE, SIG_IGN);
  if (vt_cli_flag_on(cli, "listen-on-stdin")) return carry(cli, url, 0, 1);
  return serve(cli, url, local ? local : "localhost:0");
}
