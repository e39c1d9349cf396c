// SPDX-License-Identifier: Apache-2.0
// hello.h - what processes tell each other when they connect: bytes from the network, read with no
// trust. All numbers are little-endian.
#ifndef VT_DISTRIBUTED_HELLO_H
#define VT_DISTRIBUTED_HELLO_H

#include "base/file.h"
#include "base/text.h"
#include "distributed/join.h"

enum {
  VT_HELLO_BYTES = 1024,
  VT_COOKIE_BYTES = 64,
  VT_FRAME_BYTES = 16,
  VT_WELCOME_MOST = 1 << 20, // bytes of the answer of process 0
};

// The first message on each connection, by the one that connects.
typedef struct vt_hello {
  int32_t index, count, pid, port; // port: where it listens
  char slice[48], version[128], machine[256], host[256];
} vt_hello;

void vt_hello_write(const vt_hello *hello, const char *cookie, uint8_t out_bytes[VT_HELLO_BYTES]);
// Whether the first bytes are those of a process of this job; the rest of others is not looked at.
bool vt_hello_is_ours(const uint8_t *bytes, size_t size, const char *cookie);
// errors INVALID_ARGUMENT
vt_status vt_hello_read(vt_bytes bytes, vt_hello *out_hello) VT_CHECKED;
// Whether two processes can compute together. `host` texts name them in errors.
// errors FAILED_PRECONDITION: says what differs and what to set
vt_status vt_hello_compare(const vt_hello *mine, const vt_hello *theirs) VT_CHECKED;

// The answer of process 0, after all have come: the addresses and names of all.
typedef struct vt_member {
  vt_address address;
  int32_t pid;
} vt_member;
void vt_welcome_write(const vt_member *members, int32_t count, vt_text *out);
// errors INVALID_ARGUMENT
vt_status vt_welcome_read(vt_bytes bytes, int32_t count, vt_member *out_members) VT_CHECKED;

// The head of all later messages: kind, size of the head and of the body that follow. VT_FRAME_LOST
// has no body: its number is the process whose end the sender has seen.
typedef struct vt_frame {
  uint32_t kind, head;
  uint64_t body;
} vt_frame;
enum {
  VT_FRAME_MESSAGE = 1,
  VT_FRAME_APART, // a message whose body does not follow, but comes by UCX
  VT_FRAME_PING,
  VT_FRAME_LOST,
  VT_FRAME_BYE,
  VT_FRAME_WELCOME,
  VT_FRAME_REFUSED
};
void vt_frame_write(vt_frame frame, uint8_t out_bytes[VT_FRAME_BYTES]);
// errors INVALID_ARGUMENT: an unknown kind or impossible sizes
vt_status vt_frame_read(const uint8_t bytes[VT_FRAME_BYTES], vt_frame *out_frame) VT_CHECKED;

void vt_put_u64(uint8_t *at, uint64_t value);
uint64_t vt_get_u64(const uint8_t *at);
void vt_put_u32(uint8_t *at, uint32_t value);
uint32_t vt_get_u32(const uint8_t *at);

#endif
