// SPDX-License-Identifier: Apache-2.0
// websocket.h - RFC 6455 without a socket: bytes in, messages out, and back. For both sides.
//
// A vt_websocket starts zeroed except for `client` and `max_message`. max_message bounds memory for
// input; for output the owner checks `out` before it sends more.
#ifndef VT_CLOUD_WEBSOCKET_H
#define VT_CLOUD_WEBSOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

typedef enum vt_ws_opcode {
  VT_WS_NONE = -1, // no complete message yet
  VT_WS_CONTINUATION = 0,
  VT_WS_TEXT = 1, // UTF-8, checked
  VT_WS_BINARY = 2,
  VT_WS_CLOSE = 8, // closed, by the peer or for its violation
  VT_WS_PING = 9,
  VT_WS_PONG = 10
} vt_ws_opcode;

// Close codes, RFC 6455 7.4.1.
enum {
  VT_WS_NORMAL = 1000,
  VT_WS_GOING_AWAY = 1001,
  VT_WS_PROTOCOL_ERROR = 1002,
  VT_WS_NOT_TEXT = 1007,
  VT_WS_NOT_ALLOWED = 1008,
  VT_WS_TOO_BIG = 1009,
  VT_WS_INTERNAL = 1011
};

typedef struct vt_websocket {
  bool client; // masks what it sends and refuses masked frames; a server the reverse
  size_t max_message;
  vt_text message;     // the last one read
  vt_text out;         // frames to send, from out_at on
  size_t out_at;       //
  bool closed;         // after `out` nothing more is read or sent
  uint16_t close_code; // the peer's close code, or ours for its violation; 0 without a code
  // Of the frame being read.
  uint8_t head[14], control[125];
  size_t head_size, control_size;
  uint64_t left, position; // of its payload
  bool in_payload, whole;
  vt_ws_opcode kind; // of the fragmented message, 0 = none
} vt_websocket;

// Reads `size` bytes up to the end of the next message. Answers pings and closes by itself.
// Returns  VT_WS_TEXT or VT_WS_BINARY: ws->message is whole, until the next call; VT_WS_CLOSE: the
//          peer closed, or broke a rule: `out` has the answer; VT_WS_NONE: all was read.
vt_ws_opcode vt_websocket_read(vt_websocket *ws, const uint8_t *bytes, size_t size,
                               size_t *out_used);
// Appends one frame to `out`; nothing after a close.
void vt_websocket_send(vt_websocket *ws, vt_ws_opcode opcode, const void *bytes, size_t size);
// reason: ASCII, cut to what fits.
void vt_websocket_close(vt_websocket *ws, uint16_t code, const char *reason);
size_t vt_websocket_pending(const vt_websocket *ws); // unsent bytes of `out`
void vt_websocket_sent(vt_websocket *ws, size_t size);
void vt_websocket_fini(vt_websocket *ws);

// Sec-WebSocket-Accept for a key. False when the key is not 16 bytes in base64.
bool vt_websocket_accept_key(const char *key, char out_accept[32]);
void vt_websocket_new_key(char out_key[32]);

#endif
