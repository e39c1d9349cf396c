// SPDX-License-Identifier: Apache-2.0
// authority.c - see authority.h. Keys are P-256; the authority's key stays in a file of mode 0600.
#include "cloud/door/authority.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DAYS = 3650 };

static vt_status failed(const char *what) {
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return vt_error(VT_INTERNAL, "certificate authority: %s: %s", what, reason ? reason : "");
}

static bool add(X509 *certificate, X509 *issuer, int nid, const char *value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
  X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
  bool good = extension && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return good;
}

// A certificate over `key` with subject `name`, unsigned.
static X509 *blank(EVP_PKEY *key, const char *name, X509 *issuer) {
  X509 *made = X509_new();
  uint64_t serial = 0;
  if (!made) return NULL;
  RAND_bytes((unsigned char *)&serial, sizeof serial);
  X509_NAME *subject = X509_get_subject_name(made);
  if (X509_set_version(made, 2) != 1 ||
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial >> 1) != 1 ||
      !X509_gmtime_adj(X509_getm_notBefore(made), -3600) ||
      !X509_gmtime_adj(X509_getm_notAfter(made), (long)DAYS * 86400) ||
      X509_set_pubkey(made, key) != 1 ||
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1,
                                 0) != 1 ||
      X509_set_issuer_name(made, issuer ? X509_get_subject_name(issuer) : subject) != 1) {
    X509_free(made);
    return NULL;
  }
  return made;
}

static X509 *make_ca(EVP_PKEY *key, const char *universe, vt_arena *arena) {
  const char *names = vt_arena_printf(
      arena,
      "critical,permitted;DNS:googleapis.com,permitted;DNS:google.com,permitted;DNS:localhost,"
      "permitted;DNS:tunnel.cloudproxy.app,permitted;DNS:%s",
      universe);
  X509 *ca = blank(key, "vtpud certificate authority", NULL);
  if (ca && add(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      add(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      add(ca, ca, NID_subject_key_identifier, "hash") && add(ca, ca, NID_name_constraints, names) &&
      X509_sign(ca, key, EVP_sha256()) > 0)
    return ca;
  X509_free(ca);
  return NULL;
}

static X509 *make_leaf(EVP_PKEY *key, X509 *ca, EVP_PKEY *ca_key, const char *universe,
                       const char *address, vt_arena *arena) {
  const char *names = vt_arena_printf(arena,
                                      "DNS:googleapis.com,DNS:*.googleapis.com,DNS:accounts.google."
                                      "com,DNS:tunnel.cloudproxy.app,DNS:localhost,DNS:%s,"
                                      "DNS:*.%s,IP:%s",
                                      universe, universe, address);
  X509 *leaf = blank(key, "vtpud", ca);
  if (leaf && add(leaf, ca, NID_basic_constraints, "critical,CA:FALSE") &&
      add(leaf, ca, NID_key_usage, "critical,digitalSignature") &&
      add(leaf, ca, NID_ext_key_usage, "serverAuth") &&
      add(leaf, ca, NID_subject_key_identifier, "hash") &&
      add(leaf, ca, NID_authority_key_identifier, "keyid") &&
      add(leaf, ca, NID_subject_alt_name, names) && X509_sign(leaf, ca_key, EVP_sha256()) > 0)
    return leaf;
  X509_free(leaf);
  return NULL;
}

static vt_status write_pem(const char *path, mode_t mode, X509 *certificate, EVP_PKEY *key) {
  mode_t mask = umask(0777 & ~mode);
  FILE *file = fopen(path, "w");
  umask(mask);
  if (!file) return vt_error(VT_UNAVAILABLE, "%s: %s", path, strerror(errno));
  bool good = certificate ? PEM_write_X509(file, certificate) == 1
                          : PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1;
  if (fclose(file) != 0 || !good) return vt_error(VT_UNAVAILABLE, "%s was not written", path);
  return VT_OK;
}

static void read_ca(const char *path, const char *key_path, X509 **out_ca, EVP_PKEY **out_key) {
  FILE *file = fopen(path, "r");
  if (file) *out_ca = PEM_read_X509(file, NULL, NULL, NULL);
  if (file) fclose(file);
  if (*out_ca && (file = fopen(key_path, "r"))) {
    *out_key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
  }
  ERR_clear_error();
}

vt_status vt_authority_make(const char *folder, const char *universe, const char *address,
                            vt_arena *arena, vt_authority *out_authority) {
  vt_status st = VT_OK;
  X509 *ca = NULL, *leaf = NULL;
  EVP_PKEY *ca_key = NULL, *key = EVP_EC_gen("P-256");
  const char *ca_key_path = vt_arena_printf(arena, "%s/ca-key.pem", folder);
  out_authority->ca = vt_arena_printf(arena, "%s/ca.pem", folder);
  out_authority->certificate = vt_arena_printf(arena, "%s/googleapis.pem", folder);
  out_authority->key = vt_arena_printf(arena, "%s/googleapis-key.pem", folder);
  read_ca(out_authority->ca, ca_key_path, &ca, &ca_key);
  if (!ca || !ca_key) {
    X509_free(ca);
    EVP_PKEY_free(ca_key);
    ca_key = EVP_EC_gen("P-256");
    ca = ca_key ? make_ca(ca_key, universe, arena) : NULL;
    if (!ca) {
      st = failed("the authority");
      goto out;
    }
    VT_TRY_OUT(write_pem(ca_key_path, 0600, NULL, ca_key));
    VT_TRY_OUT(write_pem(out_authority->ca, 0644, ca, NULL));
  }
  leaf = key ? make_leaf(key, ca, ca_key, universe, address, arena) : NULL;
  if (!leaf) {
    st = failed("the certificate");
    goto out;
  }
  VT_TRY_OUT(write_pem(out_authority->key, 0600, NULL, key));
  VT_TRY_OUT(write_pem(out_authority->certificate, 0644, leaf, NULL));
out:
  X509_free(ca);
  X509_free(leaf);
  EVP_PKEY_free(ca_key);
  EVP_PKEY_free(key);
  return st;
}
