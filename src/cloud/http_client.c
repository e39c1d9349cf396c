// SPDX-License-Identifier: Apache-2.0
// http_client.c - HTTP/1.1 over OpenSSL's BIOs, one request a connection.
#include "cloud/http_client.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

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
  size_t sent = 0;
  while (sent < head.size) {
    int n = BIO_write(bio, head.data + sent, (int)(head.size - sent));
    if (n <= 0) break;
    sent += (size_t)n;
  }
  bool whole = sent == head.size;
  vt_text_free(&head);
  if (!whole) return broken(host, "the request was cut off");
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

vt_status vt_http_fetch(const vt_http_request *request, int *out_status, vt_text *out_body) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_text reply = {0};
  BIO *bio = NULL;
  SSL_CTX *context = NULL;
  *out_status = 0;
  bool secure = strncmp(request->url, "https://", 8) == 0;
  if (!secure && strncmp(request->url, "http://", 7) != 0)
    return vt_error(VT_INVALID_ARGUMENT, "'%s' is not an http or https URL", request->url);
  const char *start = request->url + (secure ? 8 : 7), *slash = strchr(start, '/');
  size_t n = slash ? (size_t)(slash - start) : strlen(start), name = strcspn(start, ":/");
  const char *host = vt_arena_copy(&arena, start, n);
  if (name == n) host = vt_arena_printf(&arena, "%s:%s", host, secure ? "443" : "80");
  if (secure && !(context = SSL_CTX_new(TLS_client_method()))) {
    st = vt_error_no_memory();
    goto out;
  }
  VT_TRY_OUT(connect_to(request, context, secure, host, vt_arena_copy(&arena, start, name), &bio));
  VT_TRY_OUT(exchange(request, bio, host, slash ? slash : "/", &reply));
  VT_TRY_OUT(split_reply(host, &reply, out_status, out_body));
out:
  BIO_free_all(bio);
  SSL_CTX_free(context);
  vt_text_free(&reply);
  vt_arena_free(&arena);
  return st;
}
