// SPDX-License-Identifier: Apache-2.0
// grpc.h - gRPC for the API's calls: HTTP/2 on nghttp2, over TLS (ALPN h2) when a certificate is
// given.
#ifndef VT_CLOUD_GRPC_H
#define VT_CLOUD_GRPC_H

#include <netinet/in.h>

#include "cloud/api/call.h"

typedef struct vt_grpc vt_grpc;

// Serves the connections it is given; certificate and key are PEM files, "" = plain HTTP/2.
vt_status vt_grpc_start(vt_cloud *cloud, const char *certificate, const char *key,
                        vt_grpc **out_grpc) VT_CHECKED;
// Takes over a connected, non-blocking socket.
void vt_grpc_adopt(vt_grpc *grpc, int fd, const struct sockaddr_in *from);
void vt_grpc_stop(vt_grpc *grpc); // accepts NULL

// One unary call: "/google.cloud.tpu.v2.Tpu/GetNode" and the request message. On VT_OK the reply
// message is appended to `out_bytes`; otherwise the status is what the client gets. `call` has the
// request's headers, and is run here.
vt_status vt_grpc_unary(vt_call *call, const char *method, const void *bytes, size_t size,
                        vt_text *out_bytes) VT_CHECKED;

// Row `index` of grpc.def: service ("Tpu" stands for google.cloud.tpu.{version}.Tpu), method and
// request message; false past the last.
bool vt_grpc_method_at(int index, const char **out_service, const char **out_method,
                       const char **out_request);

#endif
