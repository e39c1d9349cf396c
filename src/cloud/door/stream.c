// SPDX-License-Identifier: Apache-2.0
// stream.c - see stream.h.
#include "cloud/door/stream.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "cloud/api/metrics.h"

enum { PING_S = 25, SILENCE_S = 90, LINGER_MS = 2000 };

// --- the handshake -------------------------------------------------------------------------------

// Whether a header's list "a, b" contains the word.
static bool lists(const char *text, const char *word) {
  size_t n = strlen(word);
  while (text && *text) {
    text += strspn(text, " \t,");
    size_t size = strcspn(text, " \t,");
    if (size == n && strncasecmp(text, word, n) == 0) return true;
    text += size;
  }
  return false;
}

vt_status vt_stream_accept(vt_call *call, const char *protocol) {
  const char *version = vt_call_header(call, "sec-websocket-version"),
             *origin = vt_call_header(call, "origin");
  char accept[32];
  if (!lists(vt_call_header(call, "upgrade"), "websocket") ||
      !lists(vt_call_header(call, "connection"), "upgrade") || !version ||
      strcmp(version, "13") != 0 ||
      !vt_websocket_accept_key(vt_call_header(call, "sec-websocket-key"), accept))
    return vt_error(VT_INVALID_ARGUMENT, "This path is for WebSocket connections (RFC 6455).");
  if (!lists(vt_call_header(call, "sec-websocket-protocol"), protocol))
    return vt_error(VT_INVALID_ARGUMENT, "The WebSocket has to offer the protocol %s.", protocol);
  // Browsers send cookies with any page's WebSocket, but also the page's origin.
  if (call->by_cookie && (!origin || strcasecmp(origin, vt_call_base_url(call)) != 0))
    return vt_error(VT_PERMISSION_DENIED,
                    "A session cookie opens WebSockets on pages of this console only.");
  vt_call_reply_header(call, "Upgrade", "websocket");
  vt_call_reply_header(call, "Sec-WebSocket-Accept", accept);
  vt_call_reply_header(call, "Sec-WebSocket-Protocol", protocol);
  call->status = 101;
  return VT_OK;
}

// --- its life ------------------------------------------------------------------------------------

static void flush(vt_stream *s) {
  while (!s->lost && vt_websocket_pending(&s->ws)) {
    ssize_t n =
        send(s->fd, s->ws.out.data + s->ws.out_at, vt_websocket_pending(&s->ws), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0)
      s->lost = true;
    else
      vt_websocket_sent(&s->ws, (size_t)n);
  }
}

static void fill(vt_stream *s) {
  if (s->in_at < s->in_size) return;
  ssize_t n = recv(s->fd, s->in, sizeof s->in, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  s->in_at = 0;
  s->in_size = n > 0 ? (size_t)n : 0;
  if (n <= 0)
    s->lost = true;
  else
    s->heard_ns = vt_metrics_clock();
}

static void look_alive(vt_stream *s, bool reads) {
  int64_t now = vt_metrics_clock();
  if (!reads || !s->heard_ns) s->heard_ns = now; // we are the ones not listening
  if (now - s->heard_ns > SILENCE_S * VT_SECOND) s->lost = true;
  if (now - s->heard_ns < PING_S * VT_SECOND || now - s->asked_ns < PING_S * VT_SECOND) return;
  s->asked_ns = now;
  vt_websocket_send(&s->ws, VT_WS_PING, "", 0);
}

bool vt_stream_wait(vt_stream *s, bool reads, struct pollfd *others, size_t count) {
  struct pollfd fds[2 + VT_STREAM_OTHERS];
  if (s->ws.closed) return false;
  look_alive(s, reads);
  flush(s);
  if (s->lost) return false;
  bool has = reads && s->in_at < s->in_size;
  fds[0] = (struct pollfd){.fd = s->fd,
                           .events = (short)((reads && !has ? POLLIN : 0) |
                                             (vt_websocket_pending(&s->ws) ? POLLOUT : 0))};
  if (!fds[0].events) fds[0].fd = -1; // a hang-up would make it spin
  fds[1] = (struct pollfd){.fd = s->stop, .events = POLLIN};
  for (size_t i = 0; i < count; i++) fds[2 + i] = others[i];
  if (poll(fds, (nfds_t)(2 + count),
           has          ? 0
           : s->wake_ms ? s->wake_ms
                        : PING_S * 1000) < 0 &&
      errno != EINTR)
    return false;
  for (size_t i = 0; i < count; i++) others[i].revents = fds[2 + i].revents;
  if (fds[1].revents) {
    vt_websocket_close(&s->ws, VT_WS_GOING_AWAY, "the daemon stops");
    return false;
  }
  if (fds[0].revents & POLLOUT) flush(s);
  if (reads && fds[0].revents & ~POLLOUT) fill(s);
  return !s->lost;
}

vt_ws_opcode vt_stream_next(vt_stream *s) {
  size_t used;
  vt_ws_opcode event = vt_websocket_read(&s->ws, s->in + s->in_at, s->in_size - s->in_at, &used);
  s->in_at += used;
  return event;
}

void vt_stream_close(vt_stream *s, uint16_t code, const char *reason) {
  int64_t end = vt_metrics_clock() + LINGER_MS * (VT_SECOND / 1000);
  vt_websocket_close(&s->ws, code, reason);
  for (;;) {
    flush(s);
    int64_t left = (end - vt_metrics_clock()) / (VT_SECOND / 1000);
    struct pollfd fd = {.fd = s->fd, .events = POLLOUT};
    if (s->lost || left <= 0 || !vt_websocket_pending(&s->ws)) return;
    poll(&fd, 1, (int)left);
  }
}
