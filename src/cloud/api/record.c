// SPDX-License-Identifier: Apache-2.0
// record.c - see record.h. Secrets are recognized by name ("HF_TOKEN", "password",
// "privateKeyData"), wherever a name stands: a member of JSON, {"key": name, "value": ...}, a
// parameter, an assignment or an option in a script; and by format: private keys, JSON web tokens,
// our own tokens and some others'. When in doubt a value is removed.
#include "cloud/api/record.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "cloud/store/json.h"

#define SECRET "{secret}"
enum { MAX_REPLY = 64 << 10 }; // longer ones, like discovery documents, are not kept

struct vt_recorder {
  pthread_mutex_t lock;
  int fd;
  bool failed; // logged once
};

vt_status vt_recorder_create(const char *path, vt_recorder **out_recorder) {
  *out_recorder = NULL;
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST)
    return vt_error(VT_ALREADY_EXISTS, "record: %s is there already; give another name", path);
  if (fd < 0) return vt_error(VT_UNAVAILABLE, "record: %s: %s", path, strerror(errno));
  vt_recorder *r = calloc(1, sizeof *r);
  if (!r) {
    close(fd);
    return vt_error_no_memory();
  }
  pthread_mutex_init(&r->lock, NULL);
  r->fd = fd;
  *out_recorder = r;
  return VT_OK;
}

void vt_recorder_destroy(vt_recorder *recorder) {
  if (!recorder) return;
  close(recorder->fd);
  pthread_mutex_destroy(&recorder->lock);
  free(recorder);
}

// --- names ---------------------------------------------------------------------------------------

// "X-Auth_Token" and "authToken" are the same name. Page tokens are positions in a list.
static bool names_secret(const char *name, size_t size) {
  static const char *const words[] = {"token",     "password",      "passwd",     "passphrase",
                                      "secret",    "credential",    "privatekey", "apikey",
                                      "accesskey", "authorization", "cookie",     "assertion"};
  char plain[128];
  size_t n = 0;
  for (size_t i = size > 100 ? size - 100 : 0; i < size; i++)
    if (isalnum((unsigned char)name[i])) plain[n++] = (char)tolower((unsigned char)name[i]);
  plain[n] = 0;
  if (n >= 9 && strcmp(plain + n - 9, "pagetoken") == 0) return false;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strstr(plain, words[i])) return true;
  return false;
}

static bool in_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '-';
}

// --- looks ---------------------------------------------------------------------------------------

static size_t word_of(const char *text, size_t size) {
  size_t n = 0;
  while (n < size && in_word(text[n])) n++;
  return n;
}

// Size of a private key from its first line to its last, 0 when none begins here.
static size_t private_key(const char *text, size_t size) {
  if (size < 11 || memcmp(text, "-----BEGIN ", 11) != 0) return 0;
  const char *mark = memmem(text, size < 80 ? size : 80, "PRIVATE KEY", 11);
  if (!mark) return 0;
  const char *last = memmem(mark, size - (size_t)(mark - text), "-----END ", 9);
  if (!last) return size;
  const char *end = memmem(last + 9, size - (size_t)(last + 9 - text), "-----", 5);
  return end ? (size_t)(end + 5 - text) : size;
}

// Size of a token in a known format, 0 when none begins here.
static size_t known_token(const char *text, size_t size) {
  static const struct {
    const char *begin;
    size_t least;
  } looks[] = {{"eyJ", 20},  {"ya29.", 20},       {"AIza", 30},   {"hf_", 20},
               {"ghp_", 20}, {"github_pat_", 30}, {"glpat-", 20}, {"GOCSPX-", 20}};
  size_t n = 0;
  while (n < size && (in_word(text[n]) || text[n] == '.')) n++;
  // Our own: a prefix like "vta.", then hex.
  if (n >= 36 && text[0] == 'v' && text[1] == 't' && text[3] == '.') return n;
  for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
    if (n >= looks[i].least && strncmp(text, looks[i].begin, strlen(looks[i].begin)) == 0) return n;
  return 0;
}

static bool is_of(const char *set, char c) {
  return c && strchr(set, c);
}

static size_t skip(const char *text, size_t at, size_t size, const char *what) {
  while (at < size && is_of(what, text[at])) at++;
  return at;
}

// The end of a value that begins at `at`.
static size_t value_end(const char *text, size_t at, size_t size, char quote, bool nested) {
  if (quote && !nested) {
    for (; at < size && text[at] != quote; at++)
      if (text[at] == '\\' && at + 1 < size) at++;
    return at;
  }
  const char *ends = quote ? "\\" : " \t\r\n&;,\"'`)}]<>|\\";
  while (at < size && !(quote && text[at] == quote) && !is_of(ends, text[at])) at++;
  return at;
}

// Whether a value follows the name that ends at `at`: after `=` or `:`, or after a space for an
// option; possibly in quotes, including those of JSON within JSON.
static bool value_follows(const char *text, size_t at, size_t size, bool option, size_t *out_begin,
                          size_t *out_end) {
  size_t i = skip(text, at, size, "\"'\\"), gap = i;
  i = skip(text, i, size, " \t");
  if (i < size && (text[i] == '=' || text[i] == ':'))
    i = skip(text, i, size, "=:");
  else if (!option || i == gap)
    return false;
  i = skip(text, i, size, " \t");
  size_t slashes = i;
  i = skip(text, i, size, "\\");
  bool nested = i > slashes;
  char quote = i < size && (text[i] == '"' || text[i] == '\'') ? text[i++] : 0;
  *out_begin = i;
  if (size - i > 7 && strncasecmp(text + i, "Bearer ", 7) == 0)
    i += 7;
  else if (size - i > 6 && strncasecmp(text + i, "Basic ", 6) == 0)
    i += 6;
  *out_end = value_end(text, i, size, quote, nested);
  return *out_end > *out_begin;
}

// Finds the password in "://user:password@host".
static bool password_of_url(const char *text, size_t at, size_t size, size_t *out_begin,
                            size_t *out_end) {
  if (size - at < 4 || memcmp(text + at, "://", 3) != 0) return false;
  size_t from = at + 3, end = from, colon = 0, sign = 0;
  for (; end < size && !is_of("/ \t\r\n\"'?#", text[end]); end++) {
    if (text[end] == ':' && !colon) colon = end;
    if (text[end] == '@') sign = end;
  }
  *out_begin = colon + 1;
  *out_end = sign;
  return colon && sign > colon + 1;
}

void vt_record_redact_text(const char *text, size_t size, vt_text *out) {
  for (size_t at = 0; at < size;) {
    size_t begin, end, n;
    bool begins = in_word(text[at]) && (at == 0 || !in_word(text[at - 1]));
    if (begins &&
        ((n = private_key(text + at, size - at)) || (n = known_token(text + at, size - at)))) {
      vt_text_put(out, SECRET);
      at += n;
      continue;
    }
    if (begins) {
      const char *word = text + at;
      n = word_of(word, size - at);
      vt_text_put_n(out, word, n);
      at += n;
      bool option = n > 2 && memcmp(word, "--", 2) == 0,
           bearer = n == 6 && strncasecmp(word, "bearer", 6) == 0;
      if (!(bearer || names_secret(word, n)) ||
          !value_follows(text, at, size, option || bearer, &begin, &end))
        continue;
    } else if (!password_of_url(text, at, size, &begin, &end)) {
      vt_text_put_n(out, text + at++, 1);
      continue;
    }
    vt_text_put_n(out, text + at, begin - at);
    vt_text_put(out, SECRET);
    at = end;
  }
}

// Omits the call's own credentials: a replay has its own.
void vt_record_redact_pairs(const char *text, size_t size, vt_text *out) {
  static const char *const left_out[] = {"access_token", "oauth_token", "key"};
  size_t before = out->size;
  for (size_t at = 0, n; at < size; at += n + 1) {
    const char *pair = text + at, *end = memchr(pair, '&', size - at);
    n = end ? (size_t)(end - pair) : size - at;
    const char *equals = memchr(pair, '=', n);
    size_t name = equals ? (size_t)(equals - pair) : n;
    bool drop = false;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
      if (strlen(left_out[i]) == name && memcmp(left_out[i], pair, name) == 0) drop = true;
    if (drop || !n) continue;
    if (out->size > before) vt_text_put(out, "&");
    if (equals && (names_secret(pair, name) || (name == 4 && memcmp(pair, "code", 4) == 0) ||
                   (name == 3 && memcmp(pair, "sid", 3) == 0))) {
      vt_text_put_n(out, pair, name);
      vt_text_put(out, "=" SECRET);
    } else {
      vt_record_redact_text(pair, n, out);
    }
  }
}

static json_t *redact_string(const char *text, size_t size) {
  vt_text clean = {0};
  vt_record_redact_text(text, size, &clean);
  json_t *out = json_stringn(vt_text_string(&clean), clean.size);
  vt_text_free(&clean);
  return out ? out : json_string(SECRET); // no longer UTF-8
}

static bool is_pair(const json_t *object) {
  const char *name = json_string_value(json_object_get(object, "key"));
  if (!name) name = json_string_value(json_object_get(object, "name"));
  return name && names_secret(name, strlen(name));
}

static json_t *redact(const json_t *value, bool secret) {
  const char *name;
  json_t *item, *out;
  size_t i;
  if (json_is_string(value)) {
    if (secret && json_string_length(value)) return json_string(SECRET);
    return redact_string(json_string_value(value), json_string_length(value));
  }
  if (json_is_array(value)) {
    out = json_array();
    json_array_foreach(value, i, item) json_array_append_new(out, redact(item, secret));
    return out;
  }
  if (!json_is_object(value)) return json_deep_copy(value);
  bool pair = is_pair(value);
  out = json_object();
  json_object_foreach((json_t *)value, name, item) {
    bool hide = secret || names_secret(name, strlen(name)) || (pair && strcmp(name, "value") == 0);
    json_object_set_new(out, name, redact(item, hide));
  }
  return out;
}

json_t *vt_record_redact_json(const json_t *value) {
  return redact(value, false);
}

// --- rows ----------------------------------------------------------------------------------------

static void set_text(json_t *row, const char *name, const vt_text *text) {
  json_t *value = json_stringn(vt_text_string(text), text->size);
  json_object_set_new(row, name, value ? value : json_string("")); // not text
}

static void set_header(json_t *row, const char *name, const vt_call *call, const char *header) {
  const char *value = vt_call_header(call, header);
  vt_text clean = {0};
  if (value) vt_record_redact_text(value, strlen(value), &clean);
  set_text(row, name, &clean);
  vt_text_free(&clean);
}

static void put_encoded(vt_text *out, const char *text) {
  for (; *text; text++) {
    if (isalnum((unsigned char)*text) || strchr("-_.~:/,*$;", *text))
      vt_text_put_n(out, text, 1);
    else
      vt_text_printf(out, "%%%02X", (unsigned char)*text);
  }
}

static void set_path(json_t *row, const vt_call *call) {
  vt_text query = {0}, clean = {0}, path = {0};
  for (size_t i = 0; i < call->query.size; i++) {
    if (i) vt_text_put(&query, "&");
    put_encoded(&query, call->query.data[i].name);
    vt_text_put(&query, "=");
    put_encoded(&query, call->query.data[i].value);
  }
  vt_record_redact_pairs(vt_text_string(&query), query.size, &clean);
  vt_record_redact_text(call->path, strlen(call->path), &path);
  if (clean.size) vt_text_printf(&path, "?%s", vt_text_string(&clean));
  set_text(row, "path", &path);
  vt_text_free(&query);
  vt_text_free(&clean);
  vt_text_free(&path);
}

static void set_body(json_t *row, const vt_call *call) {
  vt_text text = {0};
  json_t *body = call->body ? json_incref(call->body) : NULL;
  if (!body && call->body_size) body = json_loadb(call->body_text, call->body_size, 0, NULL);
  if (body) {
    json_t *clean = vt_record_redact_json(body);
    char *dump = vt_json_text(clean, JSON_COMPACT);
    if (dump) vt_text_put(&text, dump);
    vt_memory_free(dump);
    json_decref(clean);
    json_decref(body);
  } else if (call->body_size) {
    const char *type = vt_call_header(call, "content-type");
    if (type && strncmp(type, "application/x-www-form-urlencoded", 33) == 0)
      vt_record_redact_pairs(call->body_text, call->body_size, &text);
    else
      vt_record_redact_text(call->body_text, call->body_size, &text);
  }
  set_text(row, "body", &text);
  vt_text_free(&text);
}

json_t *vt_record_request(const vt_call *call) {
  if (!call->cloud->recorder) return NULL;
  json_t *row = json_pack("{s:s}", "method", call->method);
  if (!row) return NULL;
  set_path(row, call);
  set_header(row, "host", call, "host");
  set_header(row, "type", call, "content-type");
  set_body(row, call);
  set_header(row, "agent", call, "user-agent");
  return row;
}

// The part of the reply that is kept: JSON, if it is not too long.
static json_t *kept_reply(const vt_call *call) {
  json_t *reply = call->reply ? json_incref(call->reply) : NULL, *clean;
  if (!reply && call->raw.size && call->raw.size <= MAX_REPLY && call->content_type &&
      strncmp(call->content_type, "application/json", 16) == 0)
    reply = json_loadb(call->raw.data, call->raw.size, 0, NULL);
  if (!reply) return NULL;
  clean = vt_record_redact_json(reply);
  json_decref(reply);
  if (json_dumpb(clean, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) <= MAX_REPLY) return clean;
  json_decref(clean);
  return NULL;
}

static void write_line(vt_recorder *r, const char *line, size_t size) {
  pthread_mutex_lock(&r->lock);
  ssize_t n = write(r->fd, line, size);
  if (n != (ssize_t)size && !r->failed) {
    r->failed = true;
    vt_log(VT_LOG_WARNING, "record: a row could not be written: %s",
           n < 0 ? strerror(errno) : "no room");
  }
  pthread_mutex_unlock(&r->lock);
}

void vt_record_reply(const vt_call *call, json_t *row) {
  vt_text line = {0};
  if (!row) return;
  json_object_set_new(row, "caller", json_string(call->caller));
  json_object_set_new(row, "status", json_integer(call->status));
  json_t *reply = kept_reply(call), *error = json_object_get(reply, "error");
  // An error message may quote the secret.
  if (json_is_object(error) && (strstr(json_string_value(json_object_get(row, "body")), SECRET) ||
                                strstr(json_string_value(json_object_get(row, "path")), SECRET)))
    json_object_set_new(error, "message", json_string(SECRET));
  if (reply) json_object_set_new(row, "reply", reply);
  char *text = vt_json_text(row, 0);
  json_decref(row);
  if (!text) return;
  vt_text_printf(&line, "%s\n", text);
  vt_memory_free(text);
  write_line(call->cloud->recorder, vt_text_string(&line), line.size);
  vt_text_free(&line);
}
