// SPDX-License-Identifier: Apache-2.0
// extreme_test.c - numbers at and next to the 64-bit limits, in every field that takes one: a call
// refuses them, or they read back unchanged. Generated from the rows of schema.def for nodes and
// queued resources, of routes.def for the parameters and bodies of all other calls. Afterwards the
// bill still adds up and every time in a reply is plausible.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/call.h"
#include "cloud/store/json.h"

#define PROJECT "/vtpu/v1/projects/" TESTING_PROJECT
#define NODES   "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes"
#define QUEUE   "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b/queuedResources"

// Values as JSON.
static const char *const integers[] = {"0",
                                       "1",
                                       "-1",
                                       "2147483647",
                                       "2147483648",
                                       "-2147483649",
                                       "4294967297",
                                       "9007199254740993",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "9223372036854775808",
                                       "1e17",
                                       "1e300",
                                       "-1e300",
                                       "1.5",
                                       "1e-300",
                                       "\"7\"",
                                       "\"-9223372036854775808\"",
                                       "\"9223372036854775807\"",
                                       "\"9223372036854775808\"",
                                       "\"99999999999999999999\"",
                                       "\"1e17\"",
                                       "\" 7\"",
                                       "\"7 \"",
                                       "\"+7\"",
                                       "\"0x7\"",
                                       "\"\"",
                                       "\"-\"",
                                       "true",
                                       "null",
                                       "[]",
                                       "{}"};
static const char *const durations[] = {"\"0s\"",
                                        "\"1s\"",
                                        "\"-1s\"",
                                        "\"0.5s\"",
                                        "\"60s\"",
                                        "\"60.000000001s\"",
                                        "\"60.1234567891s\"",
                                        "\"00060s\"",
                                        "\"60.s\"",
                                        "\".5s\"",
                                        "\"60\"",
                                        "\"60 s\"",
                                        "\"1e3s\"",
                                        "\"86400s\"",
                                        "\"10368000s\"",
                                        "\"10368001s\"",
                                        "\"315576000s\"",
                                        "\"7889400000s\"",
                                        "\"9223372036s\"",
                                        "\"9223372036.854775807s\"",
                                        "\"9223372036.854775808s\"",
                                        "\"9223372037s\"",
                                        "\"315576000000s\"",
                                        "\"315576000001s\"",
                                        "\"9223372036854775807s\"",
                                        "\"9223372036854775808s\"",
                                        "\"-9223372036854775808s\"",
                                        "\"99999999999999999999s\"",
                                        "\"100000000000000000s\"",
                                        "60",
                                        "null",
                                        "\"\"",
                                        "\"s\"",
                                        "[]"};
static const char *const times[] = {"\"1970-01-01T00:00:00Z\"",
                                    "\"1969-12-31T23:59:59Z\"",
                                    "\"1970-01-01T00:00:00+23:59\"",
                                    "\"0000-00-00T00:00:00Z\"",
                                    "\"0001-01-01T00:00:00Z\"",
                                    "\"2026-02-29T00:00:00Z\"",
                                    "\"2028-02-29T00:00:00Z\"",
                                    "\"2026-13-01T00:00:00Z\"",
                                    "\"2026-04-31T00:00:00Z\"",
                                    "\"2016-12-31T23:59:60Z\"",
                                    "\"2026-06-15T24:00:00Z\"",
                                    "\"2026-06-15T12:00:00.123456789+05:30\"",
                                    "\"2026-06-15T12:00:00.1234567891Z\"",
                                    "\"2026-06-15T12:00:00.Z\"",
                                    "\"2026-06-15T12:00:00-00:00\"",
                                    "\"2026-06-15T12:00:00+24:00\"",
                                    "\"2026-06-15T12:00:00+1:00\"",
                                    "\"2026-6-15T1:0:0Z\"",
                                    "\"2026-06-15 12:00:00Z\"",
                                    "\" 2026-06-15T12:00:00Z\"",
                                    "\"2026-06-15T12:00:00\"",
                                    "\"2026-06-15T12:00:00ZZ\"",
                                    "\"2199-12-31T23:59:59.999999999Z\"",
                                    "\"2261-12-31T23:59:59.999999999Z\"",
                                    "\"2262-04-11T23:47:16.854775807Z\"",
                                    "\"2262-04-11T23:47:17Z\"",
                                    "\"9999-12-31T23:59:59.999999999Z\"",
                                    "\"10000-01-01T00:00:00Z\"",
                                    "\"99999-01-01T00:00:00Z\"",
                                    "1781524800",
                                    "\"1781524800\"",
                                    "null",
                                    "\"\"",
                                    "[]"};

static const struct values {
  const char *const *list;
  size_t count;
} of_integers = {integers, sizeof integers / sizeof *integers},
  of_durations = {durations, sizeof durations / sizeof *durations},
  of_times = {times, sizeof times / sizeof *times};

static const struct values *values_of(vt_field_kind kind) {
  return kind == VT_FIELD_INT32 || kind == VT_FIELD_INT64 ? &of_integers
         : kind == VT_FIELD_DURATION                      ? &of_durations
         : kind == VT_FIELD_TIME                          ? &of_times
                                                          : NULL;
}

static const char *text_of(const json_t *value) {
  static char text[256];
  char *dump = vt_json_text(value, JSON_COMPACT | JSON_ENCODE_ANY);
  snprintf(text, sizeof text, "%s", dump ? dump : "(nothing)");
  vt_memory_free(dump);
  return text;
}

// Whether two values of a field are equivalent.
static bool same(vt_field_kind kind, const json_t *a, const json_t *b) {
  int64_t x, y;
  if (kind == VT_FIELD_INT32 || kind == VT_FIELD_INT64)
    return vt_json_integer(a, &x) && vt_json_integer(b, &y) && x == y;
  bool (*parse)(const char *text, int64_t *out) =
      kind == VT_FIELD_TIME ? vt_time_parse : vt_duration_parse;
  return json_is_string(a) && json_is_string(b) && parse(json_string_value(a), &x) &&
         parse(json_string_value(b), &y) && x == y;
}

// Every time in a reply parses and is not before 1970.
static void check_times(const char *url, const json_t *reply) {
  const char *key, *text = json_string_value(reply);
  json_t *value;
  size_t i;
  int64_t ns;
  if (text && strlen(text) > 19 && text[4] == '-' && text[7] == '-' && text[10] == 'T' &&
      !vt_time_parse(text, &ns))
    fail_msg("%s: the time %s", url, text);
  if (json_is_object(reply))
    json_object_foreach((json_t *)reply, key, value) check_times(url, value);
  json_array_foreach(reply, i, value) check_times(url, value);
}

// --- messages ------------------------------------------------------------------------------------

enum { MAX_DEPTH = 6 };

// A field of a message, with the names of the messages around it.
typedef struct place {
  const vt_field *fields[MAX_DEPTH];
  int depth;
} place;

// Puts `value` at that place of `body`, creating objects as needed.
static void put(json_t *body, const place *p, json_t *value) {
  for (int i = 0; i + 1 < p->depth; i++) {
    const vt_field *f = p->fields[i];
    json_t *next = json_object_get(body, f->name);
    if (!next) json_object_set_new(body, f->name, next = json_object());
    if (f->flags & VT_FIELD_REP) {
      if (!json_is_array(next)) json_object_set_new(body, f->name, next = json_pack("[{}]"));
      next = json_array_get(next, 0);
    }
    body = next;
  }
  const vt_field *last = p->fields[p->depth - 1];
  json_object_set_new(body, last->name,
                      last->flags & VT_FIELD_REP ? json_pack("[o]", value) : value);
}

static const json_t *get(const json_t *view, const place *p) {
  for (int i = 0; i < p->depth; i++) {
    view = json_object_get(view, p->fields[i]->name);
    if (p->fields[i]->flags & VT_FIELD_REP) view = json_array_get(view, 0);
  }
  return view;
}

typedef struct subject {
  vt_testing t;
  const char *collection, *id_parameter, *base;
  int accepted, refused, fields;
} subject;

static void try_value(subject *s, const place *p, const char *text) {
  char url[300];
  int status;
  json_t *value = json_loads(text, JSON_DECODE_ANY, NULL), *body = json_loads(s->base, 0, NULL);
  const vt_field *field = p->fields[p->depth - 1];
  if (!value) { // the JSON reader refuses this number: insert it into the text
    json_decref(body);
    return;
  }
  put(body, p, json_incref(value));
  char *request = vt_json_text(body, JSON_COMPACT);
  snprintf(url, sizeof url, "%s?%s=x", s->collection, s->id_parameter);
  json_t *reply = vt_testing_call_as(&s->t, s->t.token, "POST", url, request, &status);
  if (status != 200 && (status < 400 || status > 499))
    fail_msg("%s = %s: %d %s", field->name, text, status, text_of(reply));
  check_times(request, reply);
  json_decref(reply);
  s->accepted += status == 200;
  s->refused += status != 200;
  if (status == 200) {
    snprintf(url, sizeof url, "%s/x", s->collection);
    json_t *view = vt_testing_call(&s->t, "GET", url, NULL, 200);
    const json_t *stored = get(view, p);
    // null means an absent field.
    if (stored && !json_is_null(value) && !same(field->kind, value, stored))
      fail_msg("%s = %s reads back as %s", field->name, text, text_of(stored));
    check_times(url, view);
    json_decref(view);
    vt_testing_reconcile(&s->t);
    vt_testing_advance(&s->t, 7);
    snprintf(url, sizeof url, "%s/x%s", s->collection,
             strstr(s->collection, "queued") ? "?force=true" : "");
    json_decref(vt_testing_call_as(&s->t, s->t.token, "DELETE", url, NULL, &status));
    assert_true(status < 500);
    vt_testing_reconcile(&s->t);
  }
  vt_memory_free(request);
  json_decref(body);
  json_decref(value);
}

static void try_message(subject *s, const vt_message *message, place *p) {
  if (p->depth == MAX_DEPTH) return;
  for (const vt_field *f = message; (f = vt_message_next(f));) {
    if ((f->flags & VT_FIELD_OUT) || !(f->versions & VT_API_V2A)) continue;
    p->fields[p->depth++] = f;
    const struct values *values = values_of(f->kind);
    if (values) s->fields++;
    for (size_t i = 0; values && i < values->count; i++) try_value(s, p, values->list[i]);
    if (f->kind == VT_FIELD_MSG) try_message(s, vt_message_find(f->ref), p);
    p->depth--;
  }
}

static void check_bill(vt_testing *t) {
  json_t *bill = vt_testing_call(t, "GET", PROJECT "/bill", NULL, 200), *line;
  double sum = 0;
  size_t i;
  json_array_foreach(json_object_get(bill, "lines"), i, line) {
    double usd = strtod(vt_testing_text(line, "usd"), NULL);
    assert_true(usd >= 0);
    sum += usd;
  }
  double total = strtod(vt_testing_text(bill, "usd"), NULL),
         credit = strtod(vt_testing_text(bill, "creditUsd"), NULL),
         due = strtod(vt_testing_text(bill, "dueUsd"), NULL);
  assert_true(total - sum < 1e-6 && sum - total < 1e-6);
  assert_true(credit >= 0 && due >= 0 && total - credit - due < 1e-6);
  check_times("bill", bill);
  json_decref(bill);
}

static void every_field_of_a_node(void **state) {
  subject s = {.collection = NODES,
               .id_parameter = "nodeId",
               .base = "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}"};
  place p = {.depth = 0};
  (void)state;
  vt_testing_open(&s.t, "");
  try_message(&s, vt_message_find("Node"), &p);
  assert_true(s.fields >= 3 && s.accepted > 0 && s.refused > 0);
  check_bill(&s.t);
  vt_testing_close(&s.t);
}

static void every_field_of_a_queued_resource(void **state) {
  subject s = {.collection = QUEUE,
               .id_parameter = "queuedResourceId",
               .base = "{\"tpu\":{\"nodeSpec\":[{\"node\":{\"acceleratorType\":\"v4-8\","
                       "\"runtimeVersion\":\"v2-alpha\"}}]}}"};
  place p = {.depth = 0};
  (void)state;
  vt_testing_open(&s.t, "");
  try_message(&s, vt_message_find("QueuedResource"), &p);
  assert_true(s.fields >= 8 && s.accepted > 0 && s.refused > 0);
  check_bill(&s.t);
  vt_testing_close(&s.t);
}

// --- bodies without a message --------------------------------------------------------------------

// "#" is where the number goes.
static const struct row {
  const char *method, *url, *body, *most; // the largest accepted value
} rows[] = {
    {"POST", PROJECT "/credit", "{\"usd\":1,\"days\":#}", "36500"},
    {"POST", PROJECT "/credit", "{\"usd\":#}", "900000000"},
    {"POST", PROJECT "/budget", "{\"usd\":#}", "900000000"},
    {"POST", "/vtpu/v1/grants",
     "{\"project\":\"" TESTING_PROJECT
     "\",\"purpose\":\"numbers at the ends\",\"days\":#,\"items\":[{"
     "\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":8,\"mode\":\"spot\"}]}",
     "366"},
    {"POST", "/vtpu/v1/grants",
     "{\"project\":\"" TESTING_PROJECT
     "\",\"purpose\":\"numbers at the ends\",\"days\":9,\"items\":[{"
     "\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":#,\"mode\":\"spot\"}]}",
     "100000"},
    {"POST", "/vtpu/v1/reservations",
     "{\"project\":\"" TESTING_PROJECT
     "\",\"zone\":\"us-central2-b\",\"id\":\"r\",\"family\":\"v4\","
     "\"chips\":#}",
     "10000000"},
    {"POST", "/vtpu/v1/reservations",
     "{\"project\":\"" TESTING_PROJECT
     "\",\"zone\":\"us-central2-b\",\"id\":\"s\",\"family\":\"v4\","
     "\"chips\":1,\"days\":#}",
     "3660"},
    {"POST", "/vtpu/v1/capacity", "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":#}",
     "10000000"},
    {"POST", "/vtpu/v1/outages", "{\"zone\":\"us-east5-a\",\"inSeconds\":#,\"seconds\":1}", NULL},
    {"POST", "/vtpu/v1/outages", "{\"zone\":\"us-east5-a\",\"seconds\":#}", NULL},
    {"POST", "/vtpu/v1/faults", "{\"share\":0,\"seconds\":#}", "86400"},
    {"POST", "/vtpu/v1/faults", "{\"share\":0,\"delayMs\":#}", "10000"},
    {"POST", "/vtpu/v1/faults", "{\"share\":#,\"code\":503}", "1"},
    {"POST", "/vtpu/v1/accounts/admin@vtpu.localhost/tokens", "{\"days\":#}", "3660"},
    {"POST", PROJECT "/nodes/us-central2-b/kept:announceMaintenance", "{\"seconds\":#}", NULL},
    {"POST", PROJECT "/nodes/us-central2-b/kept:release", "{\"worker\":#,\"pid\":#}", NULL},
    {"POST", "/compute/v1/projects/" TESTING_PROJECT "/zones/us-central2-b/disks",
     "{\"name\":\"d\",\"sizeGb\":#}", "65536"},
    {"POST",
     "/v1/projects/" TESTING_PROJECT "/locations/global/quotaPreferences?quotaPreferenceId=q",
     "{\"service\":\"tpu.googleapis.com\",\"quotaId\":\"TPUV4sPerProjectPerZoneForTPUAPI\","
     "\"dimensions\":{\"zone\":\"us-central2-b\"},\"quotaConfig\":{\"preferredValue\":#}}",
     "1000000000000"},
    {"POST", "/v1/users/admin@vtpu.localhost:importSshPublicKey",
     "{\"key\":\"ssh-ed25519 "
     "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\","
     "\"expirationTimeUsec\":#}",
     NULL},
    {"POST", "/v2/entries:list",
     "{\"resourceNames\":[\"projects/" TESTING_PROJECT "\"],\"pageSize\":#}", NULL},
    {"POST", "/vtpu/v1/clock:advance", "{\"seconds\":#}", "34560000"}};

static char *fill(const char *text, const char *value) {
  vt_text out = {0};
  for (; *text; text++)
    if (*text == '#')
      vt_text_put(&out, value);
    else
      vt_text_put_n(&out, text, 1);
  char *copy = strdup(vt_text_string(&out));
  vt_text_free(&out);
  return copy;
}

static void every_number_of_our_own(void **state) {
  static const char *const lists[] = {
      PROJECT "/bill",
      "/vtpu/v1/grants",
      "/vtpu/v1/capacity",
      PROJECT "/events",
      PROJECT "/quota",
      QUEUE,
      "/vtpu/v1/accounts/admin@vtpu.localhost/tokens",
      NODES,
      "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b/reservations",
      "/compute/v1/projects/" TESTING_PROJECT "/zones/us-central2-b/disks",
      "/v1/users/admin@vtpu.localhost/loginProfile"};
  vt_testing t;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "kept", "v4-8");
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    for (size_t i = 0; i < of_integers.count + 1; i++) {
      const char *value = i < of_integers.count ? integers[i] : rows[r].most;
      if (!value) continue;
      char *body = fill(rows[r].body, value);
      json_t *reply = vt_testing_call_as(&t, t.token, rows[r].method, rows[r].url, body, &status);
      if (status != 200 && (status < 400 || status > 499 || status == 403))
        fail_msg("%s %s: %d %s", rows[r].url, body, status, text_of(reply));
      if (i == of_integers.count && status != 200 && status != 409) // 409: of a smaller one
        fail_msg("%s %s: %d %s", rows[r].url, body, status, text_of(reply));
      // Nothing above the maximum is accepted, in any notation.
      double number = strtod(*value == '"' ? value + 1 : value, NULL);
      if (rows[r].most && status == 200 && number > strtod(rows[r].most, NULL))
        fail_msg("%s took %s", rows[r].url, body);
      check_times(body, reply);
      json_decref(reply);
      free(body);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
      json_t *reply = vt_testing_call(&t, "GET", lists[i], NULL, 200);
      check_times(lists[i], reply);
      json_decref(reply);
    }
    check_bill(&t);
    vt_testing_advance(&t, 60);
  }
  vt_testing_close(&t);
}

// A reviewer's numbers: what a grant gives, and until when.
static void a_grant_ends_when_it_says(void **state) {
  vt_testing t;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < of_integers.count; i++) {
    char url[96];
    char *body = fill("{\"days\":#}", integers[i]);
    json_t *grant = vt_testing_call(
        &t, "POST", "/vtpu/v1/grants",
        "{\"project\":\"" TESTING_PROJECT "\",\"purpose\":\"numbers at the ends\",\"days\":30,"
        "\"items\":[{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":8,\"mode\":\"spot\"}]}",
        200);
    snprintf(url, sizeof url, "/vtpu/v1/grants/%s:approve", vt_testing_text(grant, "id"));
    json_decref(vt_testing_call_as(&t, t.token, "POST", url, body, &status));
    assert_true(status == 200 || status == 400);
    json_decref(grant);
    free(body);
  }
  json_t *list = vt_testing_call(&t, "GET", "/vtpu/v1/grants", NULL, 200), *grant;
  size_t i;
  check_times("grants", list);
  json_array_foreach(json_object_get(list, "grants"), i, grant) {
    int64_t start, end;
    if (strcmp(vt_testing_text(grant, "state"), "APPROVED") != 0) continue;
    assert_true(vt_time_parse(vt_testing_text(grant, "startTime"), &start) &&
                vt_time_parse(vt_testing_text(grant, "endTime"), &end));
    assert_true(end > start && end - start <= 366 * VT_DAY);
  }
  json_decref(list);
  vt_testing_close(&t);
}

// --- every route ---------------------------------------------------------------------------------

// A path with its names filled in.
static void fill_path(const vt_route *route, char out[512]) {
  size_t n = 0;
  for (const char *p = route->path; *p;) {
    const char *value = NULL;
    if (strncmp(p, "{v}", 3) == 0)
      value = route->versions & VT_API_V2A ? "v2alpha1" : route->versions & VT_API_V2 ? "v2" : "v1";
    else if (strncmp(p, "{project}", 9) == 0)
      value = TESTING_PROJECT;
    else if (strncmp(p, "{zone}", 6) == 0)
      value = "us-central2-b";
    else if (*p == '{')
      value = "kept";
    if (value) {
      n += (size_t)snprintf(out + n, 512 - n, "%s", value);
      p = strchr(p, '}') + 1;
    } else {
      out[n++] = *p++;
    }
  }
  out[n] = 0;
}

// Names of parameters that take numbers somewhere, all at once, in body and query.
static void no_number_breaks_a_route(void **state) {
  static const char *const plain[] = {
      "0", "-1", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "1e17",
      "x", ""};
  vt_testing t;
  const vt_route *route;
  char path[512], url[1024], body[700];
  int status;
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "kept", "v4-8");
  for (int r = 0; (route = vt_route_at(r)); r++) {
    if (strcmp(route->path, "/vtpu/v1/clock:advance") == 0) continue;
    fill_path(route, path);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
      const char *v = plain[i];
      snprintf(url, sizeof url,
               "%s?pageSize=%s&start=%s&worker=%s&port=%s&month=%s&project=" TESTING_PROJECT
               "&ack=%s&sid=x",
               path, v, v, v, v, v, v);
      bool number = i < 4;
      const char *quote = number ? "" : "\"";
      snprintf(body, sizeof body,
               "{\"days\":%s%s%s,\"seconds\":%s%s%s,\"chips\":%s%s%s,\"pageSize\":%s%s%s,\"value\":"
               "%s%s%s,"
               "\"usd\":%s%s%s,\"worker\":%s%s%s,\"workerIds\":[%s%s%s]}",
               quote, v, quote, quote, v, quote, quote, v, quote, quote, v, quote, quote, v, quote,
               quote, v, quote, quote, v, quote, quote, v, quote);
      json_t *reply = vt_testing_call_as(&t, t.token, route->method, url,
                                         strcmp(route->method, "GET") == 0 ? NULL : body, &status);
      if (status >= 500 && status != 501)
        fail_msg("%s %s %s: %d %s", route->method, url, body, status, text_of(reply));
      check_times(url, reply);
      json_decref(reply);
    }
  }
  check_bill(&t);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_of_a_node),
      cmocka_unit_test(every_field_of_a_queued_resource),
      cmocka_unit_test(every_number_of_our_own),
      cmocka_unit_test(a_grant_ends_when_it_says),
      cmocka_unit_test(no_number_breaks_a_route),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
