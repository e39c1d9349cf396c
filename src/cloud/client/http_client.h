// SPDX-License-Identifier: Apache-2.0
// http_client.h - one HTTP request from the command line to a daemon, or one WebSocket, plain or
// over TLS.
#ifndef VT_CLOUD_HTTP_CLIENT_H
#define VT_CLOUD_HTTP_CLIENT_H

#include "base/status.h"
#include "base/text.h"

typedef struct vt_http_request {
  const char *method, *url; // "http://host:port/path?query" or https
  const char *token;        // bearer, NULL = none
  const char *body;         // JSON, NULL = none
  const char *ca_file;      // PEM of the certificate authority for https, NULL = the system's
} vt_http_request;

// errors UNAVAILABLE (no connection, broken reply), INVALID_ARGUMENT (URL). An HTTP error is not an
// error here: see *out_status.
vt_status vt_http_fetch(const vt_http_request *request, int *out_status,
                        vt_text *out_body) VT_CHECKED;

// A WebSocket to a daemon. Its descriptor is non-blocking; read and write with OpenSSL's BIO
// (BIO_should_retry). Owned by the caller: vt_http_close_socket.
typedef struct vt_http_socket {
  struct bio_st *bio;
  struct ssl_ctx_st *context;
  int fd;
} vt_http_socket;

// errors as vt_http_fetch; PERMISSION_DENIED, NOT_FOUND, ... with the server's message when it
// refuses.
vt_status vt_http_open_socket(const vt_http_request *request, const char *protocol,
                              vt_http_socket *out_socket) VT_CHECKED;
void vt_http_close_socket(vt_http_socket *socket);

#endif
