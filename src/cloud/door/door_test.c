// SPDX-License-Identifier: Apache-2.0
// door_test.c - which server a connection's first bytes select: hellos that OpenSSL sends with
// every set of protocols, plain HTTP of both versions, and all of these truncated anywhere.
#include "cloud/door/door.h"

#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct hello {
  unsigned char bytes[VT_HELLO_MAX];
  size_t size;
} hello;

// The first flight of a client that offers `alpn` (length-prefixed names; none without).
static void make_hello(const char *alpn, size_t alpn_size, const char *host, hello *out) {
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  assert_non_null(context);
  SSL *ssl = SSL_new(context);
  BIO *in = BIO_new(BIO_s_mem()), *wire = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, wire);
  if (alpn_size)
    assert_int_equal(SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)alpn_size), 0);
  if (*host) SSL_set_tlsext_host_name(ssl, host);
  SSL_set_connect_state(ssl);
  assert_int_equal(SSL_do_handshake(ssl), -1);
  int got = BIO_read(wire, out->bytes, sizeof out->bytes);
  assert_true(got > 0 && (size_t)got < sizeof out->bytes);
  out->size = (size_t)got;
  SSL_free(ssl);
  SSL_CTX_free(context);
}

// A prefix too short to decide asks for more bytes, but never for more than there are.
static void check(const unsigned char *bytes, size_t decides, size_t size, vt_hello want) {
  size_t need;
  for (size_t n = 0; n < decides; n++) {
    unsigned char *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    assert_int_equal(vt_hello_read(exact, n, &need), VT_HELLO_SHORT);
    assert_true(need > n && need <= size);
    free(exact);
  }
  for (size_t n = decides; n <= size; n++) assert_int_equal(vt_hello_read(bytes, n, &need), want);
}

static void hellos_of_openssl(void **state) {
  static const struct {
    const char *alpn;
    vt_hello want;
  } cases[] = {{"", VT_HELLO_HTTP},
               {"\2h2", VT_HELLO_GRPC},
               {"\10http/1.1", VT_HELLO_HTTP},
               {"\2h2\10http/1.1", VT_HELLO_HTTP}, // browsers
               {"\10http/1.1\2h2", VT_HELLO_HTTP},
               {"\10grpc-exp\2h2", VT_HELLO_GRPC}, // gRPC's own clients
               {"\2h3", VT_HELLO_HTTP},
               {"\2h2\10http/1.0", VT_HELLO_GRPC}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int named = 0; named < 2; named++) {
      hello h;
      make_hello(cases[i].alpn, strlen(cases[i].alpn), named ? "tpu.googleapis.com" : "", &h);
      check(h.bytes, h.size, h.size, cases[i].want);
    }
}

static void plain_connections(void **state) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", get[] = "GET / HTTP/1.1\r\n",
                    almost[] = "PRI * HTTP/2.1\r\n";
  size_t need;
  (void)state;
  check((const unsigned char *)preface, 16, sizeof preface - 1, VT_HELLO_GRPC);
  check((const unsigned char *)get, 1, sizeof get - 1, VT_HELLO_HTTP);
  check((const unsigned char *)almost, 14, sizeof almost - 1, VT_HELLO_HTTP);
  assert_int_equal(vt_hello_read((const unsigned char *)"\0", 1, &need), VT_HELLO_HTTP);
}

// A record longer than any hello is not waited for: the TLS library reports the error.
static void records_too_long(void **state) {
  unsigned char bytes[5] = {22, 3, 1, 0, 0};
  size_t need;
  (void)state;
  for (unsigned size = 0; size < 65536; size++) {
    bytes[3] = (unsigned char)(size >> 8);
    bytes[4] = (unsigned char)size;
    vt_hello want = size == 0                  ? VT_HELLO_HTTP
                    : 5 + size <= VT_HELLO_MAX ? VT_HELLO_SHORT
                                               : VT_HELLO_HTTP;
    assert_int_equal(vt_hello_read(bytes, 5, &need), want);
    if (want == VT_HELLO_SHORT) assert_int_equal(need, 5 + size);
  }
}

// Wrong inner lengths: every length byte of a real hello in turn takes every value.
static void lying_lengths(void **state) {
  hello h;
  (void)state;
  make_hello("\2h2\10http/1.1", 12, "localhost", &h);
  unsigned char *exact = malloc(h.size);
  assert_non_null(exact);
  for (size_t at = 5; at < h.size; at++)
    for (int value = 0; value < 256; value += at < 160 ? 1 : 17) {
      size_t need;
      memcpy(exact, h.bytes, h.size);
      exact[at] = (unsigned char)value;
      assert_int_not_equal(vt_hello_read(exact, h.size, &need), VT_HELLO_SHORT);
    }
  free(exact);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hellos_of_openssl), cmocka_unit_test(plain_connections),
      cmocka_unit_test(records_too_long), cmocka_unit_test(lying_lengths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
