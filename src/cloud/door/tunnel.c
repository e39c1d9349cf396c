// SPDX-License-Identifier: Apache-2.0
// tunnel.c - frames and counters of tunnel.h.
#include "cloud/door/tunnel.h"

#include <stdio.h>
#include <string.h>

enum { OPENED = 1, REOPENED = 2, DATA = 4, ACK = 7 };

static void put_number(uint8_t *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static uint64_t get_number(const uint8_t *in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value = value << 8 | in[i];
  return value;
}

static void send_count(vt_websocket *ws, int tag, uint64_t count) {
  uint8_t frame[10];
  put_number(frame, (uint64_t)tag, 2);
  put_number(frame + 2, count, 8);
  vt_websocket_send(ws, VT_WS_BINARY, frame, sizeof frame);
}

static void send_bytes(vt_websocket *ws, int tag, const void *bytes, size_t size) {
  uint8_t frame[6 + VT_TUNNEL_DATA_MAX];
  put_number(frame, (uint64_t)tag, 2);
  put_number(frame + 2, size, 4);
  memcpy(frame + 6, bytes, size);
  vt_websocket_send(ws, VT_WS_BINARY, frame, 6 + size);
}

static void send_data(vt_websocket *ws, const char *bytes, size_t size) {
  for (size_t at = 0, n; at < size; at += n) {
    n = size - at < VT_TUNNEL_DATA_MAX ? size - at : VT_TUNNEL_DATA_MAX;
    send_bytes(ws, DATA, bytes + at, n);
  }
}

static bool wrong(vt_tunnel *t, uint16_t code) {
  t->wrong = code;
  return false;
}

// The peer has received `count` of our bytes: drop them.
static bool forget(vt_tunnel *t, uint64_t count) {
  if (count < t->acked || count - t->acked > t->unacked.size - t->unacked_at) return false;
  t->unacked_at += (size_t)(count - t->acked);
  t->acked = count;
  if (t->unacked_at < t->unacked.size / 2) return true;
  if (t->unacked.size)
    memmove(t->unacked.data, t->unacked.data + t->unacked_at, t->unacked.size - t->unacked_at);
  t->unacked.size -= t->unacked_at;
  t->unacked_at = 0;
  return true;
}

static bool take_data(vt_tunnel *t, vt_websocket *ws, const uint8_t *frame, size_t size) {
  if (size < 6 || size > 6 + VT_TUNNEL_DATA_MAX || get_number(frame + 2, 4) != size - 6)
    return wrong(t, VT_TUNNEL_BAD_DATA);
  if (t->in_at == t->in.size || t->in_at > 4 * VT_TUNNEL_DATA_MAX) {
    if (t->in.size) memmove(t->in.data, t->in.data + t->in_at, t->in.size - t->in_at);
    t->in.size -= t->in_at;
    t->in_at = 0;
  }
  vt_text_put_n(&t->in, frame + 6, size - 6);
  t->received += size - 6;
  if (t->received - t->told >= VT_TUNNEL_ACK_EVERY) send_count(ws, ACK, t->told = t->received);
  return true;
}

bool vt_tunnel_take(vt_tunnel *t, vt_websocket *ws, vt_ws_opcode opcode, bool server) {
  const uint8_t *frame = (const uint8_t *)vt_text_string(&ws->message);
  size_t size = ws->message.size;
  if (opcode != VT_WS_BINARY) return wrong(t, VT_TUNNEL_BAD_OPCODE);
  if (size < 2) return wrong(t, VT_TUNNEL_BAD_DATA);
  switch (get_number(frame, 2)) {
  case DATA:
    return take_data(t, ws, frame, size);
  case ACK:
    if (size != 10) return wrong(t, VT_TUNNEL_BAD_DATA);
    return forget(t, get_number(frame + 2, 8)) || wrong(t, VT_TUNNEL_BAD_ACK);
  case OPENED:
    if (server || *t->sid) return wrong(t, VT_TUNNEL_BAD_TAG);
    if (size <= 6 || size - 6 >= sizeof t->sid || get_number(frame + 2, 4) != size - 6)
      return wrong(t, VT_TUNNEL_BAD_DATA);
    memcpy(t->sid, frame + 6, size - 6);
    return t->open = true;
  case REOPENED:
    if (server || !*t->sid || t->open) return wrong(t, VT_TUNNEL_BAD_TAG);
    if (size != 10) return wrong(t, VT_TUNNEL_BAD_DATA);
    if (!forget(t, get_number(frame + 2, 8))) return wrong(t, VT_TUNNEL_BAD_ACK);
    send_data(ws, vt_text_string(&t->unacked) + t->unacked_at, t->unacked.size - t->unacked_at);
    return t->open = true;
  default:
    return wrong(t, VT_TUNNEL_BAD_TAG);
  }
}

void vt_tunnel_send(vt_tunnel *t, vt_websocket *ws, const void *bytes, size_t size) {
  vt_text_put_n(&t->unacked, bytes, size);
  send_data(ws, bytes, size);
}

size_t vt_tunnel_room(const vt_tunnel *t, const vt_websocket *ws) {
  size_t kept = t->unacked.size - t->unacked_at, waiting = vt_websocket_pending(ws);
  if (kept >= VT_TUNNEL_WINDOW || waiting >= VT_TUNNEL_WINDOW / 4) return 0;
  return VT_TUNNEL_WINDOW - kept;
}

void vt_tunnel_open(vt_tunnel *t, vt_websocket *ws) {
  send_bytes(ws, OPENED, t->sid, strlen(t->sid));
}

bool vt_tunnel_reopen(vt_tunnel *t, vt_websocket *ws, uint64_t count) {
  if (!forget(t, count)) return false;
  send_count(ws, REOPENED, t->told = t->received);
  send_data(ws, vt_text_string(&t->unacked) + t->unacked_at, t->unacked.size - t->unacked_at);
  return true;
}

void vt_tunnel_lost(vt_tunnel *t) {
  t->open = false;
  t->told = t->received; // the next connection's request reports this
}

void vt_tunnel_fini(vt_tunnel *t) {
  vt_text_free(&t->unacked);
  vt_text_free(&t->in);
}
