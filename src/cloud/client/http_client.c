// SPDX-License-Identifier: Apache-2.0
// http_client.c - HTTP/1.1 over OpenSSL's BIOs, one request per connection. The reply to a
// WebSocket request is read byte by byte up to its end.
#include "cloud/client/http_client.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "cloud/door/websocket.h"

static vt_status broken(const char *host, const char *what) {
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return vt_error(VT_UNAVAILABLE, "%s: %s%s%s", host, what, reason ? ": " : "",
                  reason ? reason : "");
}

static vt_status connect_to(const vt_http_request *r, SSL_CTX *context, bool secure,
                            const char *host, const char *name, BIO **out) {
  BIO *bio = NULL;
  if (secure) {
    SSL *ssl = NULL;
    if ((r->ca_file && *r->ca_file ? SSL_CTX_load_verify_locations(context, r->ca_file, NULL)
                                   : SSL_CTX_set_default_verify_paths(context)) != 1)
      return broken(host, "no certificate authorities");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    bio = BIO_new_ssl_connect(context);
    if (!bio) return vt_error_no_memory();
    BIO_get_ssl(bio, &ssl);
    SSL_set1_host(ssl, name);
    SSL_set_tlsext_host_name(ssl, name);
    BIO_set_conn_hostname(bio, host);
  } else {
    bio = BIO_new_connect(host);
  }
  *out = bio;
  if (!bio) return vt_error_no_memory();
  if (BIO_do_connect(bio) != 1) return broken(host, "can not connect");
  return VT_OK;
}

static vt_status send_all(BIO *bio, const char *host, const vt_text *text) {
  size_t sent = 0;
  while (sent < text->size) {
    int n = BIO_write(bio, text->data + sent, (int)(text->size - sent));
    if (n <= 0) return broken(host, "the request was cut off");
    sent += (size_t)n;
  }
  return VT_OK;
}

static vt_status exchange(const vt_http_request *r, BIO *bio, const char *host, const char *path,
                          vt_text *reply) {
  vt_text head = {0};
  char buffer[16384];
  vt_text_printf(&head,
                 "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAccept: "
                 "application/json\r\nUser-Agent: vtpu\r\n",
                 r->method, path, host);
  if (r->token && *r->token) vt_text_printf(&head, "Authorization: Bearer %s\r\n", r->token);
  if (r->body) vt_text_put(&head, "Content-Type: application/json\r\n");
  vt_text_printf(&head, "Content-Length: %zu\r\n\r\n%s", r->body ? strlen(r->body) : 0,
                 r->body ? r->body : "");
  vt_status st = send_all(bio, host, &head);
  vt_text_free(&head);
  if (st) return st;
  for (int n; (n = BIO_read(bio, buffer, sizeof buffer)) > 0;)
    vt_text_put_n(reply, buffer, (size_t)n);
  return VT_OK;
}

static vt_status split_reply(const char *host, const vt_text *reply, int *out_status,
                             vt_text *out_body) {
  const char *text = vt_text_string(reply), *end = strstr(text, "\r\n\r\n");
  if (strncmp(text, "HTTP/1.1 ", 9) != 0 || !end) return broken(host, "no HTTP reply");
  *out_status = atoi(text + 9);
  vt_text_put_n(out_body, end + 4, reply->size - (size_t)(end + 4 - text));
  return VT_OK;
}

typedef struct place {
  bool secure;
  const char *host, *name, *path; // "host:port", "host", "/path?query"
} place;

static vt_status find_place(const vt_http_request *request, vt_arena *arena, place *out_place) {
  place *p = out_place;
  p->secure = strncmp(request->url, "https://", 8) == 0;
  if (!p->secure && strncmp(request->url, "http://", 7) != 0)
    return vt_error(VT_INVALID_ARGUMENT, "'%s' is not an http or https URL", request->url);
  const char *start = request->url + (p->secure ? 8 : 7), *slash = strchr(start, '/');
  size_t n = slash ? (size_t)(slash - start) : strlen(start), name = strcspn(start, ":/");
  p->host = vt_arena_copy(arena, start, n);
  p->name = vt_arena_copy(arena, start, name);
  if (name == n) p->host = vt_arena_printf(arena, "%s:%s", p->host, p->secure ? "443" : "80");
  p->path = slash ? slash : "/";
  return VT_OK;
}

vt_status vt_http_fetch(const vt_http_request *request, int *out_status, vt_text *out_body) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_text reply = {0};
  BIO *bio = NULL;
  SSL_CTX *context = NULL;
  place p;
  *out_status = 0;
  VT_TRY_OUT(find_place(request, &arena, &p));
  if (p.secure && !(context = SSL_CTX_new(TLS_client_method()))) {
    st = vt_error_no_memory();
    goto out;
  }
  VT_TRY_OUT(connect_to(request, context, p.secure, p.host, p.name, &bio));
  VT_TRY_OUT(exchange(request, bio, p.host, p.path, &reply));
  VT_TRY_OUT(split_reply(p.host, &reply, out_status, out_body));
out:
  BIO_free_all(bio);
  SSL_CTX_free(context);
  vt_text_free(&reply);
  vt_arena_free(&arena);
  return st;
}

// --- WebSockets ----------------------------------------------------------------------------------

// The message of a server that refuses.
static vt_status refused(const char *host, BIO *bio, vt_text *reply) {
  char buffer[4096];
  int status = 0;
  vt_text body = {0};
  // The server may keep the connection open: the length tells where the reply ends.
  const char *text = vt_text_string(reply), *head = strstr(text, "\r\n\r\n"),
             *length = strcasestr(text, "\r\nContent-Length: ");
  size_t most = 65536, end = most;
  if (head && length) end = (size_t)(head + 4 - text) + strtoul(length + 18, NULL, 10);
  for (int n; reply->size < end && reply->size < most;) {
    if ((n = BIO_read(bio, buffer, sizeof buffer)) <= 0) break;
    vt_text_put_n(reply, buffer, (size_t)n);
  }
  vt_status st = split_reply(host, reply, &status, &body);
  if (!st)
    st = vt_error(status == 401   ? VT_UNAUTHENTICATED
                  : status == 403 ? VT_PERMISSION_DENIED
                  : status == 404 ? VT_NOT_FOUND
                  : status == 429 ? VT_RESOURCE_EXHAUSTED
                                  : VT_UNAVAILABLE,
                  "HTTP %d: %s", status, vt_text_string(&body));
  vt_text_free(&body);
  return st;
}

static vt_status shake_hands(const vt_http_request *r, const char *protocol, const place *p,
                             BIO *bio) {
  vt_text text = {0};
  char key[32], accept[32], c;
  vt_websocket_new_key(key);
  vt_websocket_accept_key(key, accept);
  vt_text_printf(&text,
                 "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: "
                 "%s\r\nUser-Agent: vtpu\r\nAuthorization: Bearer %s\r\n\r\n",
                 p->path, p->host, key, protocol, r->token ? r->token : "");
  vt_status st = send_all(bio, p->host, &text);
  text.size = 0;
  while (!st && text.size < 65536 &&
         (text.size < 4 || memcmp(text.data + text.size - 4, "\r\n\r\n", 4) != 0)) {
    if (BIO_read(bio, &c, 1) != 1)
      st = broken(p->host, "no HTTP reply");
    else
      vt_text_put_n(&text, &c, 1);
  }
  if (!st && strncmp(vt_text_string(&text), "HTTP/1.1 101", 12) != 0)
    st = refused(p->host, bio, &text);
  else if (!st && !strstr(vt_text_string(&text), accept))
    st = broken(p->host, "no WebSocket");
  vt_text_free(&text);
  return st;
}

vt_status vt_http_open_socket(const vt_http_request *request, const char *protocol,
                              vt_http_socket *out_socket) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  place p;
  *out_socket = (vt_http_socket){.fd = -1};
  VT_TRY_OUT(find_place(request, &arena, &p));
  if (p.secure && !(out_socket->context = SSL_CTX_new(TLS_client_method()))) {
    st = vt_error_no_memory();
    goto out;
  }
  VT_TRY_OUT(connect_to(request, out_socket->context, p.secure, p.host, p.name, &out_socket->bio));
  VT_TRY_OUT(shake_hands(request, protocol, &p, out_socket->bio));
  BIO_get_fd(out_socket->bio, &out_socket->fd);
  fcntl(out_socket->fd, F_SETFL, fcntl(out_socket->fd, F_GETFL) | O_NONBLOCK);
out:
  if (st) vt_http_close_socket(out_socket);
  vt_arena_free(&arena);
  return st;
}

void vt_http_close_socket(vt_http_socket *socket) {
  BIO_free_all(socket->bio);
  SSL_CTX_free(socket->context);
  *socket = (vt_http_socket){.fd = -1};
}
