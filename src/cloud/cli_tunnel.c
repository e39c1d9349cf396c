// SPDX-License-Identifier: Apache-2.0
// cli_tunnel.c - `vtpu compute start-iap-tunnel INSTANCE PORT`: standard input and output, or each
// connection to a local port, through the daemon to a worker. What ssh runs as its ProxyCommand.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cloud/cloud_cli.h"
#include "cloud/http_client.h"
#include "cloud/tunnel.h"

enum { PING_MS = 30000 };

typedef struct line {
  vt_http_socket socket;
  vt_websocket ws;
  vt_tunnel tunnel;
  bool lost;
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

// All that has come. False at the end of the tunnel, or of who reads from us.
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

static void relay(line *l, int in, int out) {
  for (;;) {
    char bytes[VT_TUNNEL_DATA_MAX];
    bool may_send = *l->tunnel.sid && vt_tunnel_room(&l->tunnel, &l->ws);
    send_pending(l);
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
    if (n <= 0) {
      vt_websocket_close(&l->ws, VT_WS_NORMAL, "");
      l->ws.close_code = VT_WS_NORMAL;
      break;
    }
    vt_tunnel_send(&l->tunnel, &l->ws, bytes, (size_t)n);
  }
  send_pending(l);
}

// Bytes of `in` to the worker, the worker's to `out`, until one of them ends.
static vt_status carry(vt_cli *cli, const char *url, int in, int out) {
  line l = {.ws = {.client = true, .max_message = 6 + VT_TUNNEL_DATA_MAX}};
  vt_http_request request = {"GET", url, cli->token, NULL, cli->ca_file};
  VT_TRY(vt_http_open_socket(&request, VT_TUNNEL_PROTOCOL, &l.socket));
  relay(&l, in, out);
  vt_status st = VT_OK;
  if (l.lost)
    st = vt_error(VT_UNAVAILABLE, "the connection to the daemon was lost");
  else if (l.ws.close_code && l.ws.close_code != VT_WS_NORMAL)
    st = vt_error(VT_UNAVAILABLE, "Error while connecting [%d: '%s'].", (int)l.ws.close_code,
                  l.ws.control_size > 2
                      ? vt_arena_copy(&cli->arena, (char *)l.ws.control + 2, l.ws.control_size - 2)
                      : "");
  vt_http_close_socket(&l.socket);
  vt_websocket_fini(&l.ws);
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

// A process for each connection to "host:port"; until it is interrupted.
static vt_status serve(vt_cli *cli, const char *url, const char *local) {
  const char *colon = strrchr(local, ':');
  const char *host = colon ? vt_arena_copy(&cli->arena, local, (size_t)(colon - local)) : "";
  int listener = listen_at(*host ? host : "127.0.0.1", atoi(colon ? colon + 1 : local));
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
  if (cli->words.size != 2)
    return vt_error(VT_INVALID_ARGUMENT,
                    "usage: vtpu compute start-iap-tunnel INSTANCE PORT [--listen-on-stdin | "
                    "--local-host-port=HOST:PORT]");
  for (size_t i = 0; i < 2; i++) // they go into a URL as they are
    for (const char *p = cli->words.data[i]; *p; p++)
      if (strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-") == 0)
        return vt_error(VT_INVALID_ARGUMENT, "'%s' is no name of a worker, and no port",
                        cli->words.data[i]);
  const char *url = vt_arena_printf(
      &cli->arena,
      "%s/v4/connect?project=%s&zone=%s&instance=%s&interface=%s&port=%s&newWebsocket=true",
      cli->endpoint, cli->project, cli->zone, cli->words.data[0], interface ? interface : "nic0",
      cli->words.data[1]);
  signal(SIGPIPE, SIG_IGN);
  if (vt_cli_flag_on(cli, "listen-on-stdin")) return carry(cli, url, 0, 1);
  return serve(cli, url, local ? local : "localhost:0");
}
