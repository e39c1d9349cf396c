// SPDX-License-Identifier: Apache-2.0
// jwt.c - JSON web tokens: RS256 of service-account keys in, HS256 of our own out; RSA keys for
// service accounts. Source: RFC 7515, 7519. Only "alg":"RS256" is accepted, so a token can not
// choose a weaker check.
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/account.h"

enum { CLOCK_SKEW_S = 300, MAX_LIFETIME_S = 3600 };

static char *to_base64url(const void *bytes, size_t size) {
  char *text = malloc(size * 4 / 3 + 8);
  if (!text) return NULL;
  EVP_EncodeBlock((unsigned char *)text, bytes, (int)size);
  char *w = text;
  for (char *p = text; *p && *p != '='; p++) *w++ = *p == '+' ? '-' : *p == '/' ? '_' : *p;
  *w = 0;
  return text;
}

// Decodes into the arena; the size, or -1 for text that is not base64url.
static int from_base64url(vt_arena *arena, const char *text, size_t size,
                          unsigned char **out_bytes) {
  size_t padded = (size + 3) / 4 * 4;
  if (size == 0 || size > 16384 || size % 4 == 1) return -1;
  char *copy = vt_arena_push(arena, padded + 1);
  memset(copy, '=', padded);
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '+' || text[i] == '/' || text[i] == '=') return -1;
    copy[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
  }
  *out_bytes = vt_arena_push(arena, padded + 1);
  int n = EVP_DecodeBlock(*out_bytes, (unsigned char *)copy, (int)padded);
  if (n < 0) return -1;
  n -= (int)(padded - size);
  (*out_bytes)[n] = 0;
  return n;
}

static bool verify(const char *pem, const char *signed_text, size_t signed_size,
                   const unsigned char *signature, size_t size) {
  BIO *bio = BIO_new_mem_buf(pem, -1);
  EVP_PKEY *key = bio ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  bool right =
      key && context && EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
      EVP_DigestVerify(context, signature, size, (const unsigned char *)signed_text, signed_size) ==
          1;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  BIO_free(bio);
  return right;
}

static bool claims_hold(vt_cloud *cloud, const json_t *claims, const char *email) {
  int64_t now = vt_cloud_now(cloud) / VT_SECOND;
  int64_t issued = json_integer_value(json_object_get(claims, "iat"));
  int64_t expires = json_integer_value(json_object_get(claims, "exp"));
  const char *issuer = json_string_value(json_object_get(claims, "iss"));
  const char *subject = json_string_value(json_object_get(claims, "sub"));
  if (!issuer || strcmp(issuer, email) != 0 || (subject && strcmp(subject, email) != 0))
    return false;
  return expires > now - CLOCK_SKEW_S && issued < now + CLOCK_SKEW_S &&
         expires - issued <= MAX_LIFETIME_S + 5;
}

vt_status vt_jwt_check(vt_cloud *cloud, const char *jwt, vt_arena *arena, const char **out_email) {
  *out_email = "";
  const char *dot = strchr(jwt, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
  if (!second || strlen(jwt) > 16384) return VT_OK;
  unsigned char *head, *body, *signature;
  int head_size = from_base64url(arena, jwt, (size_t)(dot - jwt), &head);
  int body_size = from_base64url(arena, dot + 1, (size_t)(second - dot - 1), &body);
  int signature_size = from_base64url(arena, second + 1, strlen(second + 1), &signature);
  if (head_size < 0 || body_size < 0 || signature_size < 0) return VT_OK;
  json_t *header = json_loadb((char *)head, (size_t)head_size, 0, NULL);
  json_t *claims = json_loadb((char *)body, (size_t)body_size, 0, NULL);
  const char *algorithm = json_string_value(json_object_get(header, "alg"));
  const char *id = json_string_value(json_object_get(header, "kid"));
  const char *issuer = json_string_value(json_object_get(claims, "iss"));
  vt_status st = VT_OK;
  vt_rows *rows = NULL;
  if (!algorithm || strcmp(algorithm, "RS256") != 0 || !issuer) goto out;
  VT_TRY_OUT(vt_store_query(
      cloud->store, &rows,
      "SELECT id, email, public_pem FROM sa_keys WHERE email = ? AND (expires_ns = 0 OR "
      "expires_ns > ?)",
      "si", issuer, vt_cloud_now(cloud)));
  while (!**out_email && vt_rows_next(rows)) {
    if (id && strcmp(id, vt_rows_text(rows, 0)) != 0) continue;
    if (verify(vt_rows_text(rows, 2), jwt, (size_t)(second - jwt), signature,
               (size_t)signature_size) &&
        claims_hold(cloud, claims, vt_rows_text(rows, 1)))
      *out_email = vt_arena_copy(arena, vt_rows_text(rows, 1), strlen(vt_rows_text(rows, 1)));
  }
  st = vt_rows_end(rows);
out:
  json_decref(header);
  json_decref(claims);
  return st;
}

char *vt_jwt_sign(const vt_cloud *cloud, const json_t *claims) {
  static const char header[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
  char *json = json_dumps(claims, JSON_COMPACT), *jwt = NULL;
  char *head = to_base64url(header, sizeof header - 1),
       *body = json ? to_base64url(json, strlen(json)) : NULL;
  if (head && body) {
    size_t n = strlen(head) + strlen(body) + 1;
    jwt = malloc(n + 64);
    if (jwt) {
      unsigned char digest[32];
      unsigned size = sizeof digest;
      snprintf(jwt, n + 64, "%s.%s", head, body);
      HMAC(EVP_sha256(), cloud->secret, (int)strlen(cloud->secret), (unsigned char *)jwt, n, digest,
           &size);
      char *signature = to_base64url(digest, size);
      snprintf(jwt + n, 64, ".%s", signature ? signature : "");
      free(signature);
    }
  }
  free(json);
  free(head);
  free(body);
  return jwt;
}

static char *pem_text(BIO *bio) {
  char *data;
  long n = BIO_get_mem_data(bio, &data);
  char *text = malloc((size_t)n + 1);
  if (text) {
    memcpy(text, data, (size_t)n);
    text[n] = 0;
  }
  return text;
}

vt_status vt_sa_key_create(vt_cloud *cloud, const char *email, char **out_private_pem,
                           char out_id[41]) {
  vt_status st = VT_OK;
  char *public_pem = NULL;
  *out_private_pem = NULL;
  EVP_PKEY *key = EVP_RSA_gen(2048);
  BIO *private_bio = BIO_new(BIO_s_mem()), *public_bio = BIO_new(BIO_s_mem());
  if (!key || !private_bio || !public_bio ||
      PEM_write_bio_PKCS8PrivateKey(private_bio, key, NULL, NULL, 0, NULL, NULL) != 1 ||
      PEM_write_bio_PUBKEY(public_bio, key) != 1) {
    st = vt_error(VT_INTERNAL, "could not make an RSA key");
    goto out;
  }
  *out_private_pem = pem_text(private_bio);
  public_pem = pem_text(public_bio);
  vt_cloud_random_hex(out_id, 40);
  st = vt_store_run(
      cloud->store, NULL,
      "INSERT INTO sa_keys (id, email, public_pem, created_ns, expires_ns) VALUES (?, ?, ?, ?, 0)",
      "sssi", out_id, email, public_pem, vt_cloud_now(cloud));
out:
  free(public_pem);
  BIO_free(private_bio);
  BIO_free(public_bio);
  EVP_PKEY_free(key);
  return st;
}
