// SPDX-License-Identifier: Apache-2.0
// websocket_fuzz.c - any bytes of a peer: the first says which side we are, whether the tunnel is a
// resumed one, and how the rest is split; messages go into a tunnel. Any split gives the same
// messages; memory stays bounded; nothing is sent after a close.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "cloud/door/tunnel.h"

enum { MAX_MESSAGE = 6 + VT_TUNNEL_DATA_MAX };

// A hash of all messages, and of the tunnel's output.
static uint64_t feed(const uint8_t *data, size_t size, size_t step, bool client, bool again) {
  vt_websocket ws = {.client = client, .max_message = MAX_MESSAGE};
  vt_tunnel tunnel = {0};
  uint64_t hash = 0;
  if (again) tunnel.sid[0] = 'x';
  vt_tunnel_send(&tunnel, &ws, "0123456789abcdef", 16);
  for (size_t at = 0; at < size && !ws.closed;) {
    size_t n = size - at < step ? size - at : step, used;
    uint8_t *exact = malloc(n); // to detect overreads
    if (!exact) abort();
    memcpy(exact, data + at, n);
    vt_ws_opcode event = vt_websocket_read(&ws, exact, n, &used);
    free(exact);
    at += used;
    if (used > n || ws.message.size > MAX_MESSAGE) abort();
    if (event == VT_WS_CLOSE) {
      if (!ws.closed) abort();
      hash = vt_hash_bytes(&ws.close_code, sizeof ws.close_code, hash);
    } else if (event != VT_WS_NONE) {
      hash = vt_hash_bytes(vt_text_string(&ws.message), ws.message.size, hash + (uint64_t)event);
      if (!vt_tunnel_take(&tunnel, &ws, event, !client)) {
        hash = vt_hash_bytes(&tunnel.wrong, sizeof tunnel.wrong, hash);
        vt_websocket_close(&ws, tunnel.wrong, "");
      }
      if (tunnel.acked > 16 || strlen(tunnel.sid) >= sizeof tunnel.sid) abort();
      tunnel.in_at = tunnel.in.size;
      vt_websocket_sent(&ws, vt_websocket_pending(&ws));
    } else if (used != n) {
      abort();
    }
  }
  size_t before = ws.out.size;
  vt_websocket_send(&ws, VT_WS_BINARY, "x", 1);
  if (ws.closed && ws.out.size != before) abort();
  hash = vt_hash_bytes(&tunnel.received, sizeof tunnel.received, hash);
  vt_websocket_fini(&ws);
  vt_tunnel_fini(&tunnel);
  return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  bool client = *data & 1, again = *data & 2;
  size_t step = 1 + (*data >> 2);
  if (feed(data + 1, size - 1, step, client, again) !=
      feed(data + 1, size - 1, size, client, again))
    abort();
  return 0;
}
