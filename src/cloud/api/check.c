// SPDX-License-Identifier: Apache-2.0
// check.c - see check.h. Source of the bounds: the references of Cloud TPU and Compute Engine
// (labels, Metadata.items[], Tags).
#include "cloud/api/check.h"

#include <string.h>

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
enum {
  MAX_LABELS = 64,
  MAX_LABEL = 63,
  MAX_KEY = 128,
  MAX_VALUE = 256 << 10,
  MAX_METADATA = 512 << 10,
  MAX_TAGS = 64,
  MAX_TAG = 63,
  MAX_DEPTH = 64,
  MAX_MEMBERS = 10000,
  SHOWN = 80 // of the offending text
};

static bool all_of(const char *text, size_t max, const char *good) {
  size_t n = strlen(text);
  return n <= max && strspn(text, good) == n;
}

vt_status vt_check_labels(const json_t *labels) {
  static const char good[] = LOWER DIGITS "_-";
  const char *key;
  json_t *value;
  if (json_object_size(labels) > MAX_LABELS)
    return vt_error(VT_INVALID_ARGUMENT, "A resource has at most %d labels.", MAX_LABELS);
  json_object_foreach((json_t *)labels, key, value) {
    const char *text = json_string_value(value);
    if (*key < 'a' || *key > 'z' || !all_of(key, MAX_LABEL, good) || !text ||
        !all_of(text, MAX_LABEL, good))
      return vt_error(VT_INVALID_ARGUMENT,
                      "Invalid label '%.*s': '%.*s': keys match [a-z][a-z0-9_-]{0,62}, values "
                      "[a-z0-9_-]{0,63}.",
                      SHOWN, key, SHOWN, text ? text : "(no string)");
  }
  return VT_OK;
}

vt_status vt_check_metadata(const json_t *metadata) {
  const char *key;
  json_t *value;
  size_t total = 0;
  json_object_foreach((json_t *)metadata, key, value) {
    if (!*key || !all_of(key, MAX_KEY, LOWER UPPER DIGITS "_-"))
      return vt_error(VT_INVALID_ARGUMENT,
                      "Invalid metadata key '%.*s': keys match [a-zA-Z0-9-_]{1,%d}.", SHOWN, key,
                      MAX_KEY);
    if (!json_is_string(value) || json_string_length(value) > MAX_VALUE)
      return vt_error(VT_INVALID_ARGUMENT,
                      "Invalid value of metadata key '%s': a text of at most %d bytes.", key,
                      MAX_VALUE);
    total += strlen(key) + json_string_length(value);
  }
  if (total <= MAX_METADATA) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT,
                  "Metadata has %zu bytes in keys and values, %d are the most.", total,
                  MAX_METADATA);
}

vt_status vt_check_tags(const json_t *tags) {
  size_t i;
  json_t *tag;
  if (json_array_size(tags) > MAX_TAGS)
    return vt_error(VT_INVALID_ARGUMENT, "A resource has at most %d tags.", MAX_TAGS);
  json_array_foreach(tags, i, tag) {
    const char *text = json_string_value(tag);
    if (!text || *text < 'a' || *text > 'z' || !all_of(text, MAX_TAG, LOWER DIGITS "-") ||
        text[strlen(text) - 1] == '-')
      return vt_error(VT_INVALID_ARGUMENT,
                      "Invalid tag '%.*s': tags match [a-z]([-a-z0-9]{0,61}[a-z0-9])?.", SHOWN,
                      text ? text : "(no string)");
  }
  return VT_OK;
}

vt_status vt_check_text(const char *field, const json_t *text, size_t max) {
  if (!text || json_is_null(text)) return VT_OK;
  if (!json_is_string(text))
    return vt_error(VT_INVALID_ARGUMENT, "Invalid value at '%s': expected a string", field);
  if (json_string_length(text) > max)
    return vt_error(VT_INVALID_ARGUMENT, "%s has over %zu characters", field, max);
  for (const char *p = json_string_value(text); *p; p++)
    if ((unsigned char)*p < ' ' && !strchr("\r\n\t", *p))
      return vt_error(VT_INVALID_ARGUMENT, "%s has a control character", field);
  return VT_OK;
}

vt_status vt_check_node(const json_t *body) {
  VT_TRY(vt_check_text("description", json_object_get(body, "description"), VT_MAX_DESCRIPTION));
  VT_TRY(vt_check_labels(json_object_get(body, "labels")));
  VT_TRY(vt_check_tags(json_object_get(body, "tags")));
  return vt_check_metadata(json_object_get(body, "metadata"));
}

static vt_status check_value(const json_t *value, int depth) {
  const char *key;
  json_t *item;
  size_t i;
  size_t members = json_is_array(value) ? json_array_size(value) : json_object_size(value);
  if (depth > MAX_DEPTH)
    return vt_error(VT_INVALID_ARGUMENT, "Invalid JSON payload received. Nested over %d deep.",
                    MAX_DEPTH);
  if (members > MAX_MEMBERS)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Invalid JSON payload received. A list or an object has over %d members.",
                    MAX_MEMBERS);
  if (json_is_string(value) && json_string_length(value) > MAX_VALUE)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Invalid JSON payload received. A string has over %d bytes.", MAX_VALUE);
  json_array_foreach(value, i, item) VT_TRY(check_value(item, depth + 1));
  json_object_foreach((json_t *)value, key, item) VT_TRY(check_value(item, depth + 1));
  return VT_OK;
}

vt_status vt_check_request(const json_t *body) {
  return check_value(body, 0);
}

bool vt_text_is_good(const char *bytes, size_t size) {
  if (memchr(bytes, 0, size)) return false;
  json_t *text = json_stringn(bytes, size); // NULL when it is not UTF-8
  json_decref(text);
  return text != NULL;
}

vt_status vt_check_stored(const char *text, const char *what, const char *id, json_t **out_json) {
  *out_json = json_loads(text, 0, NULL);
  if (json_is_object(*out_json)) return VT_OK;
  json_decref(*out_json);
  *out_json = NULL;
  return vt_error(VT_DATA_LOSS, "the stored %s %s can not be read", what, id);
}

bool vt_check_id(const char *id) {
  size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-");
  return n >= 4 && n <= 30 && !id[n] && *id >= 'a' && *id <= 'z' && id[n - 1] != '-';
}
