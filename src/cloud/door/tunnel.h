// SPDX-License-Identifier: Apache-2.0
// tunnel.h - the relay protocol of TCP tunnels ("relay.tunnel.cloudproxy.app", version 4) in binary
// WebSocket messages: one frame per message, numbers big-endian.
//
//   u16 1, u32 n, n bytes    the server's name of the tunnel, first
//   u16 2, u64 count         first after a reconnect: bytes that the server has
//   u16 4, u32 n, n bytes    data, at most 16384
//   u16 7, u64 count         bytes received so far
#ifndef VT_CLOUD_TUNNEL_H
#define VT_CLOUD_TUNNEL_H

#include "cloud/door/websocket.h"

#define VT_TUNNEL_PROTOCOL "relay.tunnel.cloudproxy.app"
enum { VT_TUNNEL_DATA_MAX = 16384, VT_TUNNEL_ACK_EVERY = 32768, VT_TUNNEL_WINDOW = 512 << 10 };

// Close codes.
enum {
  VT_TUNNEL_SID_UNKNOWN = 4001,
  VT_TUNNEL_NO_BACKEND = 4003,
  VT_TUNNEL_BAD_ACK = 4005,
  VT_TUNNEL_BAD_OPCODE = 4007,
  VT_TUNNEL_BAD_TAG = 4008,
  VT_TUNNEL_BAD_DATA = 4013
};

// One end of a tunnel, without sockets. Starts zeroed.
typedef struct vt_tunnel {
  vt_text unacked; // sent but not acknowledged, from unacked_at on; a reconnect resends it
  size_t unacked_at;
  uint64_t acked; // our bytes that the peer has acknowledged
  vt_text in;     // received but not consumed, from in_at on
  size_t in_at;
  uint64_t received, told; // bytes received, and how many we have acknowledged
  char sid[64];            // as named by the server; "" before
  bool open;               // a client's: the server's first frame has arrived, data may be sent
  uint16_t wrong;          // code to close with
} vt_tunnel;

// Processes a message; false when it breaks the protocol: tunnel->wrong says how.
bool vt_tunnel_take(vt_tunnel *tunnel, vt_websocket *ws, vt_ws_opcode opcode, bool server);
// Sends bytes as data; the caller respects vt_tunnel_room.
void vt_tunnel_send(vt_tunnel *tunnel, vt_websocket *ws, const void *bytes, size_t size);
// How much may be sent now: limited by unacknowledged and unsent data.
size_t vt_tunnel_room(const vt_tunnel *tunnel, const vt_websocket *ws);
void vt_tunnel_open(vt_tunnel *tunnel, vt_websocket *ws); // the server's first frame
// The server's first frame to a client that reconnects and has `count` bytes: tells what the server
// has and resends what the client has not. False when `count` is impossible.
bool vt_tunnel_reopen(vt_tunnel *tunnel, vt_websocket *ws, uint64_t count);
// A client's connection is lost: the next one begins with what the server has, then sends the rest
// (vt_tunnel_take does both).
void vt_tunnel_lost(vt_tunnel *tunnel);
void vt_tunnel_fini(vt_tunnel *tunnel);

#endif
