// SPDX-License-Identifier: Apache-2.0
// websocket.c - frames of RFC 6455. A frame is 2 to 14 bytes of head, then its payload; a message
// is one frame or several, with control frames in between.
#include "cloud/door/websocket.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

// Limit of unsent pongs, for a peer that pings and does not read.
enum { MAX_PENDING_PONGS = 64 << 10 };

// --- the handshake's key -------------------------------------------------------------------------

bool vt_websocket_accept_key(const char *key, char out_accept[32]) {
  static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char bytes[24], digest[20];
  char text[24 + sizeof guid];
  if (!key || strlen(key) != 24 || key[23] != '=' || key[22] != '=' || key[21] == '=' ||
      EVP_DecodeBlock(bytes, (const unsigned char *)key, 24) != 18)
    return false;
  memcpy(text, key, 24);
  memcpy(text + 24, guid, sizeof guid);
  EVP_Digest(text, strlen(text), digest, NULL, EVP_sha1(), NULL);
  EVP_EncodeBlock((unsigned char *)out_accept, digest, sizeof digest);
  return true;
}

void vt_websocket_new_key(char out_key[32]) {
  unsigned char bytes[16] = {0};
  RAND_bytes(bytes, sizeof bytes);
  EVP_EncodeBlock((unsigned char *)out_key, bytes, sizeof bytes);
}

// --- out -----------------------------------------------------------------------------------------

size_t vt_websocket_pending(const vt_websocket *ws) {
  return ws->out.size - ws->out_at;
}

void vt_websocket_sent(vt_websocket *ws, size_t size) {
  ws->out_at += size;
  if (ws->out_at < ws->out.size) return;
  ws->out.size = ws->out_at = 0;
}

static void put_frame(vt_websocket *ws, vt_ws_opcode opcode, const uint8_t *bytes, size_t size) {
  uint8_t head[14] = {(uint8_t)(0x80 | opcode)}, mask[4];
  size_t n = 2;
  if (ws->out_at > 64 << 10) { // what was sent makes room
    memmove(ws->out.data, ws->out.data + ws->out_at, ws->out.size - ws->out_at);
    ws->out.size -= ws->out_at;
    ws->out_at = 0;
  }
  if (size < 126) {
    head[1] = (uint8_t)size;
  } else if (size < 65536) {
    head[1] = 126;
    for (int i = 8; i >= 0; i -= 8) head[n++] = (uint8_t)(size >> i);
  } else {
    head[1] = 127;
    for (int i = 56; i >= 0; i -= 8) head[n++] = (uint8_t)((uint64_t)size >> i);
  }
  if (!ws->client) {
    vt_text_put_n(&ws->out, head, n);
    vt_text_put_n(&ws->out, bytes, size);
    return;
  }
  head[1] |= 0x80;
  RAND_bytes(mask, sizeof mask);
  memcpy(head + n, mask, sizeof mask);
  vt_text_put_n(&ws->out, head, n + 4);
  size_t start = ws->out.size;
  vt_text_put_n(&ws->out, bytes, size);
  for (size_t i = 0; i < size; i++)
    ws->out.data[start + i] = (char)((uint8_t)ws->out.data[start + i] ^ mask[i & 3]);
}

void vt_websocket_send(vt_websocket *ws, vt_ws_opcode opcode, const void *bytes, size_t size) {
  if (!ws->closed) put_frame(ws, opcode, bytes, size);
}

void vt_websocket_close(vt_websocket *ws, uint16_t code, const char *reason) {
  uint8_t text[125] = {(uint8_t)(code >> 8), (uint8_t)code};
  size_t n = strlen(reason);
  if (ws->closed) return;
  if (n > sizeof text - 2) n = sizeof text - 2;
  memcpy(text + 2, reason, n);
  put_frame(ws, VT_WS_CLOSE, text, code ? n + 2 : 0);
  ws->closed = true;
}

void vt_websocket_fini(vt_websocket *ws) {
  vt_text_free(&ws->message);
  vt_text_free(&ws->out);
}

// --- in ------------------------------------------------------------------------------------------

static vt_ws_opcode broken(vt_websocket *ws, uint16_t code, const char *why) {
  vt_websocket_close(ws, code, why);
  ws->close_code = code;
  return VT_WS_CLOSE;
}

static bool is_utf8(const uint8_t *p, size_t size) {
  for (const uint8_t *end = p + size; p < end;) {
    unsigned c = *p++, more = c < 0x80 ? 0 : c < 0xc2 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    if (more > 3 || c > 0xf4 || (size_t)(end - p) < more) return false;
    unsigned least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    for (unsigned i = 0; i < more; i++, least = 0x80, most = 0xbf)
      if (*p < least || *p++ > most) return false;
  }
  return true;
}

static size_t head_need(const vt_websocket *ws) {
  if (ws->head_size < 2) return 2;
  unsigned size = ws->head[1] & 0x7f;
  return 2 + (size == 126 ? 2u : size == 127 ? 8u : 0u) + (ws->head[1] & 0x80 ? 4u : 0u);
}

// A whole header: reports an invalid frame, or begins its payload.
static vt_ws_opcode begin_frame(vt_websocket *ws) {
  vt_ws_opcode opcode = (vt_ws_opcode)(ws->head[0] & 0x0f);
  bool final = ws->head[0] & 0x80, control = opcode & 8;
  unsigned size = ws->head[1] & 0x7f;
  ws->left = size;
  if (size >= 126) {
    ws->left = 0;
    for (unsigned i = 2; i < (size == 126 ? 4u : 10u); i++) ws->left = ws->left << 8 | ws->head[i];
  }
  if (ws->head[0] & 0x70) return broken(ws, VT_WS_PROTOCOL_ERROR, "reserved bits");
  if (!(ws->head[1] & 0x80) != ws->client)
    return broken(ws, VT_WS_PROTOCOL_ERROR, ws->client ? "masked frame" : "unmasked frame");
  if ((size == 126 && ws->left < 126) || (size == 127 && ws->left < 65536) || ws->left >> 63)
    return broken(ws, VT_WS_PROTOCOL_ERROR, "length");
  if (opcode > VT_WS_PONG || (opcode > VT_WS_BINARY && !control))
    return broken(ws, VT_WS_PROTOCOL_ERROR, "opcode");
  if (control && (!final || ws->left > sizeof ws->control))
    return broken(ws, VT_WS_PROTOCOL_ERROR, "control frame");
  if (!control && (opcode == VT_WS_CONTINUATION) != (ws->kind != VT_WS_CONTINUATION))
    return broken(ws, VT_WS_PROTOCOL_ERROR, "fragments");
  if (!control && ws->left > ws->max_message - ws->message.size)
    return broken(ws, VT_WS_TOO_BIG, "message");
  if (!control && opcode != VT_WS_CONTINUATION) ws->kind = opcode;
  ws->in_payload = true;
  ws->position = 0;
  ws->control_size = 0;
  return VT_WS_NONE;
}

static void take_payload(vt_websocket *ws, const uint8_t *bytes, size_t size) {
  bool control = ws->head[0] & 8;
  const uint8_t *mask = ws->head + head_need(ws) - 4;
  uint8_t *to;
  if (control) {
    to = ws->control + ws->control_size;
    memcpy(to, bytes, size);
    ws->control_size += size;
  } else {
    size_t at = ws->message.size;
    vt_text_put_n(&ws->message, bytes, size);
    to = (uint8_t *)ws->message.data + at;
  }
  for (size_t i = 0; i < size && !ws->client; i++) to[i] ^= mask[(ws->position + i) & 3];
  ws->position += size;
  ws->left -= size;
}

static vt_ws_opcode take_close(vt_websocket *ws) {
  unsigned code = (unsigned)ws->control[0] << 8 | ws->control[1];
  if (ws->control_size == 0) {
    vt_websocket_close(ws, 0, "");
    return VT_WS_CLOSE;
  }
  bool known = (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
               (code >= 3000 && code <= 4999);
  if (ws->control_size < 2 || !known) return broken(ws, VT_WS_PROTOCOL_ERROR, "close code");
  if (!is_utf8(ws->control + 2, ws->control_size - 2))
    return broken(ws, VT_WS_NOT_TEXT, "close reason");
  vt_websocket_close(ws, (uint16_t)code, "");
  ws->close_code = (uint16_t)code;
  return VT_WS_CLOSE;
}

// Handles a complete frame.
static vt_ws_opcode end_frame(vt_websocket *ws) {
  vt_ws_opcode opcode = (vt_ws_opcode)(ws->head[0] & 0x0f), kind = ws->kind;
  bool final = ws->head[0] & 0x80;
  ws->in_payload = false;
  ws->head_size = 0;
  if (opcode == VT_WS_CLOSE) return take_close(ws);
  if (opcode == VT_WS_PING && vt_websocket_pending(ws) < MAX_PENDING_PONGS)
    vt_websocket_send(ws, VT_WS_PONG, ws->control, ws->control_size);
  if (opcode & 8 || !final) return VT_WS_NONE;
  if (kind == VT_WS_TEXT &&
      !is_utf8((const uint8_t *)vt_text_string(&ws->message), ws->message.size))
    return broken(ws, VT_WS_NOT_TEXT, "not UTF-8");
  ws->kind = VT_WS_CONTINUATION;
  ws->whole = true;
  return kind;
}

vt_ws_opcode vt_websocket_read(vt_websocket *ws, const uint8_t *bytes, size_t size,
                               size_t *out_used) {
  size_t at = 0;
  vt_ws_opcode event = VT_WS_NONE;
  *out_used = size;
  if (ws->closed) return VT_WS_NONE;
  if (ws->whole) ws->message.size = 0;
  ws->whole = false;
  while (event == VT_WS_NONE) {
    while (!ws->in_payload && ws->head_size < head_need(ws)) {
      if (at == size) return VT_WS_NONE;
      ws->head[ws->head_size++] = bytes[at++];
    }
    if (!ws->in_payload && (event = begin_frame(ws)) != VT_WS_NONE) break;
    size_t n = size - at < ws->left ? size - at : (size_t)ws->left;
    take_payload(ws, bytes + at, n);
    at += n;
    if (ws->left) return VT_WS_NONE;
    event = end_frame(ws);
  }
  *out_used = at;
  return event;
}
