// SPDX-License-Identifier: Apache-2.0
// schema.c - lookups in schema.def, and lenient JSON parsing like the real front end's.
// In:  client JSON. Out: canonical JSON for one message and version, or an error that names the
// field.
#include "cloud/api/schema.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"

#define V1  (VT_API_V1 | VT_API_V1A)
#define V2  VT_API_V2
#define V2A VT_API_V2A
#define ALL VT_API_ALL
#define REP VT_FIELD_REP
#define OUT VT_FIELD_OUT

static const vt_field rows[] = {
#define MESSAGE(name, versions) {#name, 0, VT_FIELD_MESSAGE_ROW, "", 0, versions},
#define FIELD(name, number, kind, ref, flags, versions)                                            \
  {name, number, VT_FIELD_##kind, ref, flags, versions},
#define ENUM(name)          {#name, 0, VT_FIELD_ENUM_ROW, "", 0, ALL},
#define VALUE(name, number) {name, number, VT_FIELD_VALUE_ROW, "", 0, ALL},
#include "cloud/api/schema.def"
#undef MESSAGE
#undef FIELD
#undef ENUM
#undef VALUE
    {"", 0, VT_FIELD_MESSAGE_ROW, "", 0, 0}, // ends the last group
};
enum { row_count = sizeof rows / sizeof *rows - 1 };

// The rows of messages and enumerations by name, sorted once; replies of lists look up thousands.
static const vt_field *heads[row_count];
static size_t head_count;
static pthread_once_t heads_once = PTHREAD_ONCE_INIT;

static int order(const void *a, const void *b) {
  const vt_field *x = *(const vt_field *const *)a, *y = *(const vt_field *const *)b;
  return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind) : strcmp(x->name, y->name);
}

static void sort_heads(void) {
  for (int i = 0; i < row_count; i++)
    if (rows[i].kind == VT_FIELD_MESSAGE_ROW || rows[i].kind == VT_FIELD_ENUM_ROW)
      heads[head_count++] = &rows[i];
  qsort(heads, head_count, sizeof *heads, order);
}

static const vt_field *find_head(vt_field_kind kind, const char *name) {
  const vt_field wanted = {.name = name, .kind = kind}, *key = &wanted;
  pthread_once(&heads_once, sort_heads);
  const vt_field *const *found = bsearch(&key, heads, head_count, sizeof *heads, order);
  return found ? *found : NULL;
}

const vt_message *vt_message_find(const char *name) {
  return find_head(VT_FIELD_MESSAGE_ROW, name);
}

const vt_enumeration *vt_enumeration_find(const char *name) {
  return find_head(VT_FIELD_ENUM_ROW, name);
}

const vt_message *vt_message_at(int index) {
  for (int i = 0; i < row_count; i++)
    if (rows[i].kind == VT_FIELD_MESSAGE_ROW && index-- == 0) return &rows[i];
  return NULL;
}

const vt_field *vt_message_next(const vt_field *row) {
  row++;
  return row->kind == VT_FIELD_MESSAGE_ROW || row->kind == VT_FIELD_ENUM_ROW ? NULL : row;
}

// "node_id" and "nodeId" are the same name.
static bool same_name(const char *json_name, const char *given) {
  while (*json_name && *given) {
    if (*given == '_' && isupper((unsigned char)*json_name)) {
      given++;
      if (tolower((unsigned char)*json_name) != *given) return false;
    } else if (*json_name != *given) {
      return false;
    }
    json_name++;
    given++;
  }
  return !*json_name && !*given;
}

const vt_field *vt_message_field(const vt_message *message, const char *name, unsigned api) {
  for (const vt_field *f = message; (f = vt_message_next(f));)
    if ((f->versions & api) && same_name(f->name, name)) return f;
  return NULL;
}

const vt_field *vt_message_field_by_number(const vt_message *message, int number, unsigned api) {
  for (const vt_field *f = message; (f = vt_message_next(f));)
    if ((f->versions & api) && f->number == number) return f;
  return NULL;
}

const char *vt_enum_name(const vt_enumeration *enumeration, int number) {
  for (const vt_field *v = enumeration; (v = vt_message_next(v));)
    if (v->number == number) return v->name;
  return NULL;
}

bool vt_enum_number(const vt_enumeration *enumeration, const char *name, int *out_number) {
  for (const vt_field *v = enumeration; (v = vt_message_next(v));)
    if (strcmp(v->name, name) == 0) {
      *out_number = v->number;
      return true;
    }
  return false;
}

// --- times ---------------------------------------------------------------------------------------

// Up to nine fractional digits, ".5" to ".123456789", or none: finer values could not be read back.
static bool parse_fraction(const char **text, int64_t *out_ns) {
  *out_ns = 0;
  if (**text != '.') return true;
  int64_t scale = 100000000;
  const char *p = *text + 1;
  if (!isdigit((unsigned char)*p)) return false;
  for (; isdigit((unsigned char)*p); p++, scale /= 10) {
    if (!scale) return false;
    *out_ns += (*p - '0') * scale;
  }
  *text = p;
  return true;
}

// Matches digits where `form` has '0' and the same characters elsewhere; returns the rest, NULL on
// a mismatch.
static const char *follow(const char *text, const char *form) {
  for (; *form; text++, form++)
    if (*form == '0' ? !isdigit((unsigned char)*text) : *text != *form) return NULL;
  return text;
}

static int two_digits(const char *text) {
  return (text[0] - '0') * 10 + text[1] - '0';
}

bool vt_time_parse(const char *text, int64_t *out_ns) {
  int64_t fraction, offset = 0, seconds;
  const char *p = follow(text, "0000-00-00T00:00:00");
  if (!p) return false;
  struct tm tm = {.tm_year = two_digits(text) * 100 + two_digits(text + 2) - 1900,
                  .tm_mon = two_digits(text + 5) - 1,
                  .tm_mday = two_digits(text + 8),
                  .tm_hour = two_digits(text + 11),
                  .tm_min = two_digits(text + 14),
                  .tm_sec = two_digits(text + 17)};
  const struct tm asked = tm;
  // 64-bit nanoseconds end in 2262.
  if (tm.tm_year < 70 || tm.tm_year > 361 || !parse_fraction(&p, &fraction)) return false;
  if (*p == '+' || *p == '-') {
    const char *end = follow(p + 1, "00:00");
    if (!end || *end || two_digits(p + 1) > 23 || two_digits(p + 4) > 59) return false;
    offset = (*p == '-' ? -1 : 1) * (two_digits(p + 1) * 3600 + two_digits(p + 4) * 60);
  } else if (strcmp(p, "Z") != 0 && strcmp(p, "z") != 0) {
    return false;
  }
  seconds = (int64_t)timegm(&tm) - offset;
  // Refuses what normalization changed: 30 February, second 60.
  if (tm.tm_mon != asked.tm_mon || tm.tm_mday != asked.tm_mday || tm.tm_hour != asked.tm_hour ||
      tm.tm_min != asked.tm_min || tm.tm_sec != asked.tm_sec || seconds < 0)
    return false;
  *out_ns = seconds * 1000000000 + fraction;
  return true;
}

void vt_time_format(int64_t ns, char out_text[40]) {
  time_t seconds = (time_t)(ns / 1000000000);
  struct tm tm;
  gmtime_r(&seconds, &tm);
  size_t n = strftime(out_text, 40, "%Y-%m-%dT%H:%M:%S", &tm);
  snprintf(out_text + n, 40 - n, ".%09dZ", (int)(ns % 1000000000));
}

bool vt_duration_parse(const char *text, int64_t *out_ns) {
  int64_t fraction, seconds = 0;
  const char *p = text;
  if (!isdigit((unsigned char)*p)) return false;
  for (; isdigit((unsigned char)*p); p++)
    if (!vt_mul(seconds, 10, &seconds) || !vt_add(seconds, *p - '0', &seconds)) return false;
  if (!parse_fraction(&p, &fraction) || strcmp(p, "s") != 0) return false;
  return vt_mul(seconds, 1000000000, &seconds) && vt_add(seconds, fraction, out_ns);
}

void vt_duration_format(int64_t ns, char out_text[40]) {
  if (ns % 1000000000 == 0)
    snprintf(out_text, 40, "%llds", (long long)(ns / 1000000000));
  else
    snprintf(out_text, 40, "%lld.%09llds", (long long)(ns / 1000000000),
             (long long)(ns % 1000000000));
}

// --- reading -------------------------------------------------------------------------------------

static vt_status wrong(const vt_field *field, const char *want) {
  return vt_error(VT_INVALID_ARGUMENT, "Invalid value at '%s': expected %s", field->name, want);
}

bool vt_integer_parse(const char *text, int64_t *out_value) {
  size_t sign = *text == '-';
  if (!text[sign] || strspn(text + sign, "0123456789") != strlen(text + sign)) return false;
  errno = 0;
  *out_value = strtoll(text, NULL, 10);
  return errno == 0;
}

bool vt_json_integer(const json_t *value, int64_t *out_value) {
  *out_value = json_integer_value(value);
  if (json_is_integer(value)) return true;
  if (json_is_real(value)) { // 1e3; beyond 2^53 not every integer is exact
    double real = json_real_value(value);
    if (!(real >= -9007199254740992.0 && real <= 9007199254740992.0)) return false;
    *out_value = (int64_t)real;
    return (double)*out_value == real;
  }
  const char *text = json_string_value(value);
  return text && vt_integer_parse(text, out_value);
}

static vt_status clean_integer(const vt_field *field, const json_t *in, json_t **out) {
  int64_t value;
  if (!vt_json_integer(in, &value)) return wrong(field, "an integer");
  if (field->kind == VT_FIELD_INT32) {
    if (value > INT32_MAX || value < INT32_MIN) return wrong(field, "a 32-bit integer");
    *out = json_integer(value);
    return VT_OK;
  }
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)value);
  *out = json_string(text);
  return VT_OK;
}

static vt_status clean_enum(const vt_field *field, const json_t *in, json_t **out) {
  const vt_enumeration *e = vt_enumeration_find(field->ref);
  int number;
  if (json_is_integer(in)) {
    json_int_t value = json_integer_value(in);
    const char *name = value == (int)value ? vt_enum_name(e, (int)value) : NULL;
    if (!name) return wrong(field, field->ref);
    *out = json_string(name);
    return VT_OK;
  }
  if (!json_is_string(in) || !vt_enum_number(e, json_string_value(in), &number))
    return wrong(field, field->ref);
  *out = json_string(json_string_value(in));
  return VT_OK;
}

static vt_status clean_map(const vt_field *field, const json_t *in, json_t **out) {
  const char *key;
  json_t *value, *map = json_object();
  if (!json_is_object(in)) {
    json_decref(map);
    return wrong(field, "an object of strings");
  }
  json_object_foreach((json_t *)in, key, value) {
    if (!json_is_string(value)) {
      json_decref(map);
      return wrong(field, "an object of strings");
    }
    json_object_set(map, key, value);
  }
  *out = map;
  return VT_OK;
}

static vt_status clean_value(const vt_field *field, unsigned api, const json_t *in, json_t **out) {
  int64_t ns;
  char text[40];
  switch (field->kind) {
  case VT_FIELD_STRING:
  case VT_FIELD_BYTES:
  case VT_FIELD_MASK:
    if (!json_is_string(in)) return wrong(field, "a string");
    *out = json_string(json_string_value(in));
    return VT_OK;
  case VT_FIELD_BOOL:
    if (json_is_string(in) && (strcasecmp(json_string_value(in), "true") == 0 ||
                               strcasecmp(json_string_value(in), "false") == 0)) {
      *out = json_boolean(tolower((unsigned char)*json_string_value(in)) == 't');
      return VT_OK;
    }
    if (!json_is_boolean(in)) return wrong(field, "true or false");
    *out = json_boolean(json_is_true(in));
    return VT_OK;
  case VT_FIELD_INT32:
  case VT_FIELD_INT64:
    return clean_integer(field, in, out);
  case VT_FIELD_ENUM:
    return clean_enum(field, in, out);
  case VT_FIELD_MAP:
    return clean_map(field, in, out);
  case VT_FIELD_TIME:
    if (!json_is_string(in) || !vt_time_parse(json_string_value(in), &ns))
      return wrong(field, "an RFC 3339 time");
    vt_time_format(ns, text);
    *out = json_string(text);
    return VT_OK;
  case VT_FIELD_DURATION:
    if (!json_is_string(in) || !vt_duration_parse(json_string_value(in), &ns))
      return wrong(field, "a duration");
    vt_duration_format(ns, text);
    *out = json_string(text);
    return VT_OK;
  case VT_FIELD_MSG:
    return vt_status_wrap(vt_schema_clean(vt_message_find(field->ref), api, in, out), "%s",
                          field->name);
  default:
    *out = json_deep_copy(in);
    return VT_OK;
  }
}

static vt_status clean_field(const vt_field *field, unsigned api, const json_t *in, json_t **out) {
  if (!(field->flags & VT_FIELD_REP)) {
    // The real transcoder takes the last element of a list for a single value only in maps; refuse
    // the rest.
    if (json_is_array(in)) return wrong(field, "one value, not a list");
    return clean_value(field, api, in, out);
  }
  json_t *list = json_array();
  size_t count = json_is_array(in) ? json_array_size(in) : 1;
  for (size_t i = 0; i < count; i++) {
    json_t *item = NULL;
    vt_status st = clean_value(field, api, json_is_array(in) ? json_array_get(in, i) : in, &item);
    if (st) {
      json_decref(list);
      return st;
    }
    json_array_append_new(list, item);
  }
  *out = list;
  return VT_OK;
}

vt_status vt_schema_clean(const vt_message *message, unsigned api, const json_t *in,
                          json_t **out_json) {
  *out_json = NULL;
  if (!json_is_object(in))
    return vt_error(VT_INVALID_ARGUMENT, "Invalid %s: expected an object", message->name);
  json_t *out = json_object(), *value;
  const char *key;
  json_object_foreach((json_t *)in, key, value) {
    const vt_field *field = vt_message_field(message, key, api);
    if (!field || (field->flags & VT_FIELD_OUT) || json_is_null(value)) continue;
    json_t *clean = NULL;
    vt_status st = clean_field(field, api, value, &clean);
    if (st) {
      json_decref(out);
      return st;
    }
    json_object_set_new(out, field->name, clean);
  }
  *out_json = out;
  return VT_OK;
}

// "networkConfig" in "node" is "node.network_config", an item of a list "node.data_disks[0]".
static void put_place(vt_text *out, const char *at, const vt_field *field, const json_t *list,
                      size_t i) {
  vt_text_printf(out, "%s%s", at, *at ? "." : "");
  for (const char *p = field->name; *p; p++)
    vt_text_printf(out, isupper((unsigned char)*p) ? "_%c" : "%c", tolower((unsigned char)*p));
  if (json_is_array(list)) vt_text_printf(out, "[%zu]", i);
}

enum { MOST_LINES = 20 };

static void put_unknown(const vt_message *message, unsigned api, const char *at, const json_t *in,
                        int *lines, vt_text *out) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)in, key, value) {
    const vt_field *field = vt_message_field(message, key, api);
    if (!field && (*lines)++ < MOST_LINES) {
      vt_text_printf(out, "%sInvalid JSON payload received. Unknown name \"%s\"",
                     out->size ? "\n" : "", key);
      if (*at) vt_text_printf(out, " at '%s'", at);
      vt_text_put(out, ": Cannot find field.");
    }
    if (!field || field->kind != VT_FIELD_MSG) continue;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
      vt_text place = {0};
      put_place(&place, at, field, value, i);
      put_unknown(vt_message_find(field->ref), api, vt_text_string(&place),
                  json_is_array(value) ? json_array_get(value, i) : value, lines, out);
      vt_text_free(&place);
    }
  }
}

void vt_schema_unknown(const vt_message *message, unsigned api, const char *at, const json_t *in,
                       vt_text *out_lines) {
  int lines = 0;
  put_unknown(message, api, at, in, &lines, out_lines);
}

// --- writing -------------------------------------------------------------------------------------

static json_t *enum_as_number(const vt_field *field, const json_t *value) {
  int number;
  if (json_is_string(value) &&
      vt_enum_number(vt_enumeration_find(field->ref), json_string_value(value), &number))
    return json_integer(number);
  return NULL;
}

static const vt_message *message_of_any(const json_t *any) {
  const char *type = json_string_value(json_object_get(any, "@type"));
  const char *dot = type ? strrchr(type, '.') : NULL;
  return dot ? vt_message_find(dot + 1) : NULL;
}

unsigned vt_schema_api_of_type(const char *type, unsigned otherwise) {
  if (strstr(type, ".tpu.v2alpha1.")) return VT_API_V2A;
  if (strstr(type, ".tpu.v2.")) return VT_API_V2;
  return strstr(type, ".tpu.v1.") || strstr(type, ".tpu.v1alpha1.") ? VT_API_V1 : otherwise;
}

static void shape_value(const vt_field *field, unsigned api, bool numbers, json_t *value) {
  const vt_message *message = NULL;
  if (field->kind == VT_FIELD_MSG) message = vt_message_find(field->ref);
  if (field->kind == VT_FIELD_ANY && (message = message_of_any(value)))
    api = vt_schema_api_of_type(json_string_value(json_object_get(value, "@type")), api);
  if (message && json_is_object(value)) vt_schema_shape(message, api, numbers, value);
}

void vt_schema_shape(const vt_message *message, unsigned api, bool enums_as_numbers,
                     json_t *reply) {
  const char *key;
  json_t *value;
  void *next;
  json_object_foreach_safe(reply, next, key, value) {
    if (*key == '@') continue;
    const vt_field *field = vt_message_field(message, key, api);
    if (!field) {
      json_object_del(reply, key);
      continue;
    }
    if (field->kind == VT_FIELD_ENUM && enums_as_numbers) {
      json_t *number = enum_as_number(field, value);
      if (number) json_object_set_new(reply, key, number);
    } else if (json_is_array(value)) {
      for (size_t i = 0; i < json_array_size(value); i++)
        shape_value(field, api, enums_as_numbers, json_array_get(value, i));
    } else {
      shape_value(field, api, enums_as_numbers, value);
    }
  }
}

// One level of a selector: names separated by commas, each with an optional (...) or /name below
// it. Returns the text after this level, NULL when malformed.
static const char *select_level(const char *p, json_t *value, bool one_name, int depth) {
  json_t *keep = json_object();
  if (depth > 16) p = NULL;
  while (p) {
    size_t n = strcspn(p, ",()/");
    char name[128];
    if (n == 0 || n >= sizeof name) {
      p = NULL;
      break;
    }
    memcpy(name, p, n);
    name[n] = 0;
    p += n;
    json_t *child = json_object_get(value, name);
    if (child) json_object_set_new(keep, name, json_true());
    if (strcmp(name, "*") == 0) {
      const char *key;
      json_t *unused;
      json_object_foreach(value, key, unused) json_object_set_new(keep, key, json_true());
    }
    if (*p == '/' || *p == '(') {
      bool group = *p == '(';
      const char *inner = p + 1, *end = NULL;
      json_t *probe = json_object();
      end = select_level(inner, probe, !group, depth + 1);
      json_decref(probe);
      if (!end) {
        p = NULL;
        break;
      }
      for (size_t i = 0; json_is_array(child) && i < json_array_size(child); i++)
        if (json_is_object(json_array_get(child, i)))
          select_level(inner, json_array_get(child, i), !group, depth + 1);
      if (json_is_object(child)) select_level(inner, child, !group, depth + 1);
      p = end;
      if (group && *p++ != ')') {
        p = NULL;
        break;
      }
    }
    if (*p == ',' && !one_name) {
      p++;
      continue;
    }
    break;
  }
  if (p) {
    const char *key;
    json_t *unused;
    void *next;
    json_object_foreach_safe(value, next, key, unused) if (!json_object_get(keep, key))
        json_object_del(value, key);
  }
  json_decref(keep);
  return p;
}

void vt_schema_select(const char *selector, json_t *reply) {
  json_t *copy = json_deep_copy(reply);
  const char *end = select_level(selector, copy, false, 0);
  if (end && !*end) {
    json_object_clear(reply);
    json_object_update(reply, copy);
  }
  json_decref(copy);
}
