// SPDX-License-Identifier: Apache-2.0
// jwt.c - JSON web tokens: RS256 of service-account keys in, our own HS256 out; RSA keys for
// service accounts. Source: RFC 7515, 7519. Only "alg":"RS256" is accepted, so a token cannot
// choose a weaker check.
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "cloud/api/account.h"
#include "cloud/store/json.h"
#include "cloud/store/row.h"

// CLOCK_SKEW_S: a client's clock may be ahead; EXPIRY_LEEWAY_S: a request may be in flight.
enum { CLOCK_SKEW_S = 300, EXPIRY_LEEWAY_S = 60, MAX_LIFETIME_S = 3600 };

static void put_base64url(vt_text *out, const void *bytes, size_t size) {
  char *text = vt_memory_resize(NULL, size * 4 / 3 + 8);
  EVP_EncodeBlock((unsigned char *)text, bytes, (int)size);
  char *w = text;
  for (char *p = text; *p && *p != '='; p++) *w++ = *p == '+' ? '-' : *p == '/' ? '_' : *p;
  vt_text_put_n(out, text, (size_t)(w - text));
  vt_memory_free(text);
}

// Decodes into the arena; returns the size, or -1 for text that is not base64url.
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

// A claim in seconds: an integer, not a number that would be rounded to one.
static bool seconds_of(const json_t *claims, const char *name, bool needed, int64_t *out) {
  const json_t *value = json_object_get(claims, name);
  if (!value) return !needed;
  *out = json_integer_value(value);
  return json_is_integer(value);
}

static bool ends_with(const char *text, size_t size, const char *tail) {
  size_t n = strlen(tail);
  return size > n && strncasecmp(text + size - n, tail, n) == 0;
}

// Whether a URL names this cloud: by a name of googleapis.com or of the universe, which it
// replaces, or by the host that the client used.
static bool is_ours(vt_call *call, const char *url, bool grant) {
  char domain[300];
  const char *host = strncmp(url, "https://", 8) == 0  ? url + 8
                     : strncmp(url, "http://", 7) == 0 ? url + 7
                                                       : NULL;
  if (!host) return false;
  size_t size = strcspn(host, "/?#"), name = strcspn(host, ":/?#");
  const char *path = host + size, *asked = vt_call_header(call, "host");
  if (memchr(host, '@', size)) return false;
  snprintf(domain, sizeof domain, ".%s", call->cloud->options.universe);
  bool ours = ends_with(host, name, ".googleapis.com") || ends_with(host, name, domain) ||
              (name == 19 && strncasecmp(host, "accounts.google.com", name) == 0) ||
              (asked && strlen(asked) == size && strncasecmp(asked, host, size) == 0);
  // A JWT for the token endpoint is not valid as a bearer token, and vice versa.
  bool endpoint = strcmp(path, "/token") == 0 || strcmp(path, "/oauth2/v4/token") == 0 ||
                  strcmp(path, "/o/oauth2/token") == 0;
  return ours && endpoint == grant;
}

static bool audience_fits(vt_call *call, const json_t *claims, bool grant) {
  const json_t *audience = json_object_get(claims, "aud"),
               *scope = json_object_get(claims, "scope");
  // Libraries sign for a service, or for scopes without a service.
  if (!audience && !grant) return json_is_string(scope) && *json_string_value(scope);
  if (json_is_string(audience)) return is_ours(call, json_string_value(audience), grant);
  for (size_t i = 0; i < json_array_size(audience); i++) {
    const char *one = json_string_value(json_array_get(audience, i));
    if (one && is_ours(call, one, grant)) return true;
  }
  return false;
}

// The claims of a token signed by `email`. `*out_expires` is in seconds.
static bool claims_hold(vt_call *call, const json_t *claims, const char *email, bool grant,
                        int64_t *out_expires) {
  int64_t now = vt_cloud_now(call->cloud) / VT_SECOND, issued = 0, before = now;
  const char *issuer = json_string_value(json_object_get(claims, "iss"));
  const json_t *subject = json_object_get(claims, "sub");
  if (!issuer || strcmp(issuer, email) != 0) return false;
  if (subject && (!json_is_string(subject) || strcmp(json_string_value(subject), email) != 0))
    return false;
  if (!seconds_of(claims, "iat", true, &issued) || !seconds_of(claims, "exp", true, out_expires) ||
      !seconds_of(claims, "nbf", false, &before))
    return false;
  return issued <= now + CLOCK_SKEW_S && before <= now + CLOCK_SKEW_S &&
         *out_expires > now - EXPIRY_LEEWAY_S && *out_expires > issued &&
         *out_expires <= vt_add_clamped(issued, MAX_LIFETIME_S + 5) &&
         audience_fits(call, claims, grant);
}

// Header and claims of a JWT, an object each, or NULL. Duplicate names are refused: we and the
// issuer could read them differently.
static json_t *read_part(vt_arena *arena, const char *text, size_t size) {
  unsigned char *bytes;
  int n = from_base64url(arena, text, size, &bytes);
  json_t *part = n > 0 ? json_loadb((char *)bytes, (size_t)n, JSON_REJECT_DUPLICATES, NULL) : NULL;
  if (json_is_object(part)) return part;
  json_decref(part);
  return NULL;
}

// RS256, and no header that changes the meaning of the signature. *out_key "" when the header names
// none.
static bool header_fits(const json_t *header, const char **out_key) {
  const char *algorithm = json_string_value(json_object_get(header, "alg"));
  const json_t *id = json_object_get(header, "kid");
  *out_key = json_is_string(id) ? json_string_value(id) : "";
  return algorithm && strcmp(algorithm, "RS256") == 0 && (!id || **out_key) &&
         !json_object_get(header, "crit") && !json_object_get(header, "b64");
}

vt_status vt_jwt_check(vt_call *call, const char *jwt, bool grant, vt_jwt *out_jwt) {
  *out_jwt = (vt_jwt){"", "", ""};
  const char *dot = strchr(jwt, '.'), *second = dot ? strchr(dot + 1, '.') : NULL, *id;
  vt_arena *arena = &call->arena;
  if (!second || strlen(jwt) > 16384) return VT_OK;
  unsigned char *signature;
  int signature_size = from_base64url(arena, second + 1, strlen(second + 1), &signature);
  if (signature_size < 0) return VT_OK;
  json_t *header = read_part(arena, jwt, (size_t)(dot - jwt));
  json_t *claims = read_part(arena, dot + 1, (size_t)(second - dot - 1));
  const char *issuer = json_string_value(json_object_get(claims, "iss"));
  vt_status st = VT_OK;
  vt_rows *rows = NULL;
  if (!issuer || !header_fits(header, &id)) goto out;
  VT_TRY_OUT(vt_store_query(
      call->cloud->store, &rows,
      "SELECT sa_keys.id, sa_keys.email, public_pem FROM sa_keys, accounts WHERE sa_keys.email = ? "
      "AND (expires_ns = 0 OR expires_ns > ?) AND accounts.email = sa_keys.email AND "
      "accounts.disabled = 0",
      "si", issuer, vt_cloud_now(call->cloud)));
  while (!*out_jwt->email && vt_rows_next(rows)) {
    const char *key = vt_rows_text(rows, 0), *email = vt_rows_text(rows, 1);
    int64_t expires = 0;
    if (*id && strcmp(id, key) != 0) continue;
    if (!verify(vt_rows_text(rows, 2), jwt, (size_t)(second - jwt), signature,
                (size_t)signature_size) ||
        !claims_hold(call, claims, email, grant, &expires))
      continue;
    *out_jwt = (vt_jwt){
        vt_arena_copy(arena, email, strlen(email)), vt_arena_copy(arena, key, strlen(key)),
        vt_arena_printf(arena, "key:%s:%lld", key, (long long)(expires + EXPIRY_LEEWAY_S))};
  }
  st = vt_rows_end(rows);
out:
  json_decref(header);
  json_decref(claims);
  return st;
}

char *vt_jwt_sign(const vt_cloud *cloud, const json_t *claims) {
  static const char header[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
  unsigned char digest[32];
  unsigned size = sizeof digest;
  vt_text jwt = {0};
  char *json = vt_json_text(claims, JSON_COMPACT);
  put_base64url(&jwt, header, sizeof header - 1);
  vt_text_put(&jwt, ".");
  put_base64url(&jwt, json, strlen(json));
  vt_memory_free(json);
  HMAC(EVP_sha256(), cloud->secret, (int)strlen(cloud->secret), (unsigned char *)jwt.data, jwt.size,
       digest, &size);
  vt_text_put(&jwt, ".");
  put_base64url(&jwt, digest, size);
  return jwt.data;
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
  const vt_sa_keys_row row = {
      .id = out_id, .email = email, .public_pem = public_pem, .created_ns = vt_cloud_now(cloud)};
  st = vt_row_insert(cloud->store, sa_keys, &row);
out:
  free(public_pem);
  BIO_free(private_bio);
  BIO_free(public_bio);
  EVP_PKEY_free(key);
  return st;
}
