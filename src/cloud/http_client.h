// SPDX-License-Identifier: Apache-2.0
// http_client.h - one HTTP request from the command line to a daemon, plain or over TLS.
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

// errors UNAVAILABLE (no connection, broken reply), INVALID_ARGUMENT (URL). An HTTP error is no
// error here: *out_status.
vt_status vt_http_fetch(const vt_http_request *request, int *out_status,
                        vt_text *out_body) VT_CHECKED;

#endif
