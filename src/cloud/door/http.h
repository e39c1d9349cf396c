// SPDX-License-Identifier: Apache-2.0
// http.h - HTTP/1.1 for the API's calls, on libmicrohttpd, with TLS when a certificate is given. A
// waiting call (vt_call.wait) costs a connection but no thread.
#ifndef VT_CLOUD_HTTP_H
#define VT_CLOUD_HTTP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "cloud/api/call.h"

typedef struct vt_http vt_http;
typedef struct vt_http_options {
  const char *address;                   // "127.0.0.1"
  uint16_t port;                         // 0 = any free one
  const char *certificate_pem, *key_pem; // NULL = plain
  unsigned threads;                      // 0 = the number of cores, at most 4
  void (*run)(vt_call *call);            // NULL = vt_call_run
  bool adopts;                           // does not listen; connections come from vt_http_adopt
  bool watched;                          // the watchdog monitors its threads
  size_t max, max_of_one;                // connections in total and per address; 0 = as the API
  // Identifies the other end of a socket: fills in the call's peer; false refuses. NULL = its
  // address.
  bool (*who)(void *context, int socket, char out_peer[64]);
  void *who_context;
} vt_http_options;

vt_status vt_http_start(vt_cloud *cloud, const vt_http_options *options,
                        vt_http **out_http) VT_CHECKED;
uint16_t vt_http_port(const vt_http *http);
// Takes over a connected socket. From one thread at a time.
void vt_http_adopt(vt_http *http, int fd, const struct sockaddr_in *from);
void vt_http_stop(vt_http *http); // accepts NULL; waits for calls in progress

#endif
