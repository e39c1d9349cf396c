// SPDX-License-Identifier: Apache-2.0
// schema_test.c - lenient parsing of requests, shapes of replies, times.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/schema.h"
#include "cloud/store/json.h"

typedef struct clean_row {
  const char *message;
  unsigned api;
  const char *in, *want; // want "!text": an error that contains the text
} clean_row;

static const clean_row clean_rows[] = {
    {"Node", VT_API_V2, "{\"accelerator_type\":\"v2-8\",\"state\":\"READY\"}",
     "{\"acceleratorType\":\"v2-8\"}"},
    {"Node", VT_API_V2, "{\"nothing\":1,\"name\":\"x\",\"labels\":{\"a\":\"b\"}}",
     "{\"labels\":{\"a\":\"b\"}}"},
    {"Node", VT_API_V2, "{\"schedulingConfig\":{\"preemptible\":\"True\"}}",
     "{\"schedulingConfig\":{\"preemptible\":true}}"},
    {"Node", VT_API_V2, "{\"acceleratorConfig\":{\"type\":7,\"topology\":\"2x2x1\"}}",
     "{\"acceleratorConfig\":{\"type\":\"V4\",\"topology\":\"2x2x1\"}}"},
    {"Node", VT_API_V2, "{\"acceleratorConfig\":{\"type\":\"V99\"}}",
     "!acceleratorConfig: Invalid value at 'type'"},
    {"Node", VT_API_V2, "{\"labels\":{\"a\":1}}", "!labels"},
    {"Node", VT_API_V2, "{\"description\":[\"a\"]}", "!one value"},
    {"Node", VT_API_V2, "{\"tags\":\"one\"}", "{\"tags\":[\"one\"]}"},
    {"Node", VT_API_V1, "{\"tensorflowVersion\":\"2.12\",\"runtimeVersion\":\"x\"}",
     "{\"tensorflowVersion\":\"2.12\"}"},
    {"QueuedResource", VT_API_V2, "{\"tpu\":{\"nodeSpec\":{\"parent\":\"p\"}}}",
     "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\"}]}}"},
    {"QueuedResource", VT_API_V2, "{\"queueingPolicy\":{\"validUntilDuration\":\"21600s\"}}",
     "{\"queueingPolicy\":{\"validUntilDuration\":\"21600s\"}}"},
    {"QueuedResource", VT_API_V2, "{\"queueingPolicy\":{\"validUntilDuration\":\"soon\"}}",
     "!a duration"},
    {"Standard", VT_API_V2A, "{\"size\":\"12\"}", "{\"size\":12}"},
    {"Standard", VT_API_V2A, "{\"size\":99999999999}", "!32-bit"},
};

static void requests_are_read_leniently(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof clean_rows / sizeof *clean_rows; i++) {
    const clean_row *row = &clean_rows[i];
    json_t *in = json_loads(row->in, 0, NULL), *out = NULL;
    assert_non_null(in);
    vt_status st = vt_schema_clean(vt_message_find(row->message), row->api, in, &out);
    if (*row->want == '!') {
      assert_non_null(st);
      if (!strstr(vt_status_message(st), row->want + 1))
        fail_msg("%s: %s", row->in, vt_status_message(st));
    } else {
      if (st) fail_msg("%s: %s", row->in, vt_status_message(st));
      char *text = vt_json_text(out, JSON_COMPACT);
      assert_string_equal(text, row->want);
      vt_memory_free(text);
    }
    vt_status_free(st);
    json_decref(in);
    json_decref(out);
  }
}

static void replies_are_cut_to_their_version(void **state) {
  (void)state;
  json_t *node = json_loads("{\"state\":\"READY\",\"autocheckpointEnabled\":true,"
                            "\"acceleratorConfig\":{\"type\":\"V5P\"}}",
                            0, NULL);
  vt_schema_shape(vt_message_find("Node"), VT_API_V2, true, node);
  char *text = vt_json_text(node, JSON_COMPACT);
  assert_string_equal(text, "{\"state\":2,\"acceleratorConfig\":{\"type\":10}}");
  vt_memory_free(text);
  json_decref(node);
}

static void selectors_keep_what_they_name(void **state) {
  static const char *const rows[][2] = {{"a", "{\"a\":1}"},
                                        {"b(c),a", "{\"a\":1,\"b\":[{\"c\":2},{\"c\":4}]}"},
                                        {"b/d", "{\"b\":[{\"d\":3},{}]}"},
                                        {"b/d,a", "{\"a\":1,\"b\":[{\"d\":3},{}]}"},
                                        {"*", "{\"a\":1,\"b\":[{\"c\":2,\"d\":3},{\"c\":4}]}"},
                                        {"b(c", "{\"a\":1,\"b\":[{\"c\":2,\"d\":3},{\"c\":4}]}"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_t *json = json_loads("{\"a\":1,\"b\":[{\"c\":2,\"d\":3},{\"c\":4}]}", 0, NULL);
    vt_schema_select(rows[i][0], json);
    char *text = vt_json_text(json, JSON_COMPACT);
    assert_string_equal(text, rows[i][1]);
    vt_memory_free(text);
    json_decref(json);
  }
}

static void times_round_trip(void **state) {
  int64_t ns;
  char text[40];
  (void)state;
  assert_true(vt_time_parse("2026-11-21T10:00:00Z", &ns));
  assert_int_equal(ns, INT64_C(1795255200) * 1000000000);
  assert_true(vt_time_parse("2026-11-21T12:00:00.25+02:00", &ns));
  vt_time_format(ns, text);
  assert_string_equal(text, "2026-11-21T10:00:00.250000000Z");
  assert_false(vt_time_parse("2026-11-21", &ns));
  assert_false(vt_time_parse("2026-11-21T10:00:00", &ns));
  assert_true(vt_duration_parse("3.5s", &ns));
  assert_int_equal(ns, INT64_C(3500000000));
  vt_duration_format(ns, text);
  assert_string_equal(text, "3.500000000s");
  assert_false(vt_duration_parse("3", &ns));
}

static void every_reference_in_the_table_exists(void **state) {
  const vt_message *m;
  (void)state;
  for (int i = 0; (m = vt_message_at(i)); i++)
    for (const vt_field *f = m; (f = vt_message_next(f));) {
      if (f->kind == VT_FIELD_MSG && !vt_message_find(f->ref))
        fail_msg("%s.%s: no message %s", m->name, f->name, f->ref);
      if (f->kind == VT_FIELD_ENUM && !vt_enumeration_find(f->ref))
        fail_msg("%s.%s: no enum %s", m->name, f->name, f->ref);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_are_read_leniently),
      cmocka_unit_test(replies_are_cut_to_their_version),
      cmocka_unit_test(selectors_keep_what_they_name),
      cmocka_unit_test(times_round_trip),
      cmocka_unit_test(every_reference_in_the_table_exists),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
