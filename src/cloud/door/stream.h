// SPDX-License-Identifier: Apache-2.0
// stream.h - a connection that a call has upgraded to a WebSocket: its checks, and its life in a
// thread of its own, without the cloud's lock.
#ifndef VT_CLOUD_STREAM_H
#define VT_CLOUD_STREAM_H

#include <poll.h>

#include "cloud/api/call.h"
#include "cloud/door/websocket.h"

enum { VT_STREAM_OTHERS = 2 };

typedef struct vt_stream {
  int fd, stop; // the socket, non-blocking; readable once the daemon stops
  vt_websocket ws;
  bool lost;   // the connection broke without a close
  int wake_ms; // limit of vt_stream_wait, 0 = half a minute
  uint8_t in[16384];
  size_t in_size, in_at;
  int64_t heard_ns, asked_ns; // last byte of the peer, last ping
} vt_stream;

// For a handler: checks that the call asks for a WebSocket of `protocol` and makes the reply accept
// it. The handler then sets call->upgrade. A browser's session cookie only counts on a page of this
// origin. errors INVALID_ARGUMENT, PERMISSION_DENIED.
vt_status vt_stream_accept(vt_call *call, const char *protocol) VT_CHECKED;

// Waits until there is something to do: sends pending data, reads when `reads`, sets revents of
// `others` (at most VT_STREAM_OTHERS). Pings a silent peer. False when the stream is over.
bool vt_stream_wait(vt_stream *stream, bool reads, struct pollfd *others, size_t count);
// The next message among the received bytes, as vt_websocket_read.
vt_ws_opcode vt_stream_next(vt_stream *stream);
// Closes and sends the remaining data, for a second or two.
void vt_stream_close(vt_stream *stream, uint16_t code, const char *reason);

#endif
