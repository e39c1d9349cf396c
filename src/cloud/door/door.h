// SPDX-License-Identifier: Apache-2.0
// door.h - one listening port for the whole API: HTTP/1.1 (REST, console) and HTTP/2 (gRPC), told
// apart by their first bytes.
#ifndef VT_CLOUD_DOOR_H
#define VT_CLOUD_DOOR_H

#include "cloud/store/cloud.h"

typedef struct vt_door vt_door;
typedef struct vt_door_options {
  const char *address;           // IPv4
  uint16_t port;                 // 0 = any free one
  const char *certificate, *key; // PEM files; "" = plain
} vt_door_options;

// errors UNAVAILABLE (address or port), INVALID_ARGUMENT (certificate).
vt_status vt_door_open(vt_cloud *cloud, const vt_door_options *options,
                       vt_door **out_door) VT_CHECKED;
uint16_t vt_door_port(const vt_door *door);
void vt_door_close(vt_door *door); // accepts NULL; waits for calls in progress

// The protocol of a connection by its first bytes: gRPC is HTTP/2 without a choice - its preface,
// or a TLS hello that offers h2 and not http/1.1. If `size` bytes do not decide, *out_need is how
// many do at most.
enum { VT_HELLO_MAX = 16384 }; // a longer record goes to HTTP, which reports the error
typedef enum vt_hello { VT_HELLO_HTTP, VT_HELLO_GRPC, VT_HELLO_SHORT } vt_hello;
vt_hello vt_hello_read(const unsigned char *bytes, size_t size, size_t *out_need);

#endif
