// SPDX-License-Identifier: Apache-2.0
// wire_test.c - protobuf bytes against JSON: round trips of every kind of field, known bytes,
// malformed bytes.
#include "cloud/cloud_testing.h"

#include <stdlib.h>
#include <string.h>

#include "cloud/api/wire.h"
#include "cloud/door/grpc.h"
#include "cloud/store/json.h"

typedef struct trip {
  const char *message;
  unsigned api;
  const char *json;
} trip;

static const trip trips[] = {
    {"Node", VT_API_V2,
     "{\"name\":\"projects/"
     "p\",\"state\":\"READY\",\"createTime\":\"2026-11-21T10:00:00.250000000Z\",\"id\":"
     "\"4611686018427387903\","
     "\"labels\":{\"a\":\"b\",\"c\":\"\"},\"networkEndpoints\":[{\"ipAddress\":\"10.0.0.1\","
     "\"port\":8470},{\"port\":-1}],"
     "\"tags\":[\"x\",\"y\"],\"schedulingConfig\":{\"spot\":true},\"acceleratorConfig\":{\"type\":"
     "\"V5LITE_POD\"}}"},
    {"QueuedResource", VT_API_V2A,
     "{\"queueingPolicy\":{\"validUntilDuration\":\"3600.500000000s\"},\"spot\":{},"
     "\"reservationName\":\"r\"}"},
    {"QueuedResource", VT_API_V2,
     "{\"queueingPolicy\":{\"validUntilDuration\":\"3600s\"},\"spot\":{},\"reservationName\":"
     "\"r\"}"},
    {"ListNodesResponse", VT_API_V1,
     "{\"nodes\":[{\"port\":\"8470\",\"tensorflowVersion\":\"2.12\"}],\"nextPageToken\":\"t\"}"},
};

static void messages_survive_the_wire(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof trips / sizeof *trips; i++) {
    json_t *in = json_loads(trips[i].json, 0, NULL), *out;
    vt_text bytes = {0};
    assert_non_null(in);
    vt_wire_encode(vt_message_find(trips[i].message), trips[i].api, in, &bytes);
    assert_null(vt_wire_decode(vt_message_find(trips[i].message), trips[i].api, bytes.data,
                               bytes.size, &out));
    if (!json_equal(in, out)) {
      char *text = vt_json_text(out, JSON_COMPACT);
      fail_msg("%s became %s", trips[i].json, text);
    }
    json_decref(in);
    json_decref(out);
    vt_text_free(&bytes);
  }
}

static void bytes_are_those_of_protobuf(void **state) {
  // GetNodeRequest{name: "ab"}: field 1, length-delimited
  static const char want[] = {0x0a, 0x02, 'a', 'b'};
  json_t *json = json_pack("{s:s}", "name", "ab");
  vt_text bytes = {0};
  (void)state;
  vt_wire_encode(vt_message_find("GetNodeRequest"), VT_API_V2, json, &bytes);
  assert_int_equal(bytes.size, sizeof want);
  assert_memory_equal(bytes.data, want, sizeof want);
  vt_text_free(&bytes);
  json_decref(json);
}

#define LABEL "\xc2\x01" // field 24, a map entry

static void malformed_bytes_are_errors(void **state) {
  static const struct {
    const char *bytes;
    size_t size;
  } rows[] = {{"\x0a", 1},
              {"\x0a\x05"
               "ab",
               4},
              {"\x00\x01", 2},
              {"\x0b\x01", 2},
              {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11},
              {"\x82\x01\x02\x08\x80", 5},
              {"\x0a\x02\xff\xfe", 4},
              // A NUL, a lone surrogate, a short form, half a character: as text, as key, as value.
              {"\x0a\x03"
               "a\0b",
               5},
              {"\x1a\x01\0", 3},
              {"\x0a\x03\xed\xa0\x80", 5},
              {"\x0a\x02\xc0\x80", 4},
              {"\x0a\x01\xe2", 3},
              {LABEL "\x06\x0a\x02"
                     "a\0\x12\x00",
               2 + 7},
              {LABEL "\x07\x0a\x01"
                     "a\x12\x02"
                     "b\0",
               2 + 8},
              {LABEL "\x06\x0a\x02\xff\xfe\x12\x00", 2 + 7},
              {LABEL "\x07\x0a\x01"
                     "a\x12\x02\xff\xfe",
               2 + 8}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_t *out = NULL;
    vt_status st =
        vt_wire_decode(vt_message_find("Node"), VT_API_V2, rows[i].bytes, rows[i].size, &out);
    if (!st) fail_msg("row %zu was read", i);
    assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
    assert_null(out);
    vt_status_free(st);
  }
}

static vt_status unary(vt_testing *t, const char *method, const char *request, const char *message,
                       unsigned api, const char *token, json_t **out) {
  vt_call call;
  vt_text in = {0}, reply = {0};
  char bearer[256] = "Bearer ";
  json_t *json = json_loads(request, 0, NULL);
  char name[64] = "";
  strncat(name, strrchr(method, '/') + 1, sizeof name - 16);
  strcat(name, "Request");
  vt_wire_encode(vt_message_find(name), api, json, &in);
  json_decref(json);
  vt_call_init(&call, t->cloud, "POST", "/");
  strncat(bearer, token, sizeof bearer - 16);
  vt_call_add_header(&call, "authorization", bearer);
  vt_status st = vt_grpc_unary(&call, method, vt_text_string(&in), in.size, &reply);
  *out = NULL;
  if (!st)
    st = vt_wire_decode(vt_message_find(message), api, vt_text_string(&reply), reply.size, out);
  vt_call_fini(&call);
  vt_text_free(&in);
  vt_text_free(&reply);
  return st;
}

static void calls_are_the_rest_calls(void **state) {
  vt_testing t;
  json_t *reply;
  (void)state;
  vt_testing_open(&t, "");
  assert_null(
      unary(&t, "/google.cloud.tpu.v2.Tpu/CreateNode",
            "{\"parent\":\"projects/" TESTING_PROJECT
            "/locations/us-central2-b\",\"nodeId\":\"a\",\"node\":{\"acceleratorType\":\"v4-8\","
            "\"runtimeVersion\":\"v2-alpha\"}}",
            "Operation", VT_API_V2, t.token, &reply));
  assert_non_null(strstr(vt_testing_text(reply, "name"), "/operations/operation-"));
  json_decref(reply);
  vt_testing_reconcile(&t);
  const char *get = "{\"name\":\"projects/" TESTING_PROJECT "/locations/us-central2-b/nodes/a\"}";
  assert_null(
      unary(&t, "/google.cloud.tpu.v2.Tpu/GetNode", get, "Node", VT_API_V2, t.token, &reply));
  assert_string_equal(vt_testing_text(reply, "state"), "READY");
  json_decref(reply);
  vt_status st =
      unary(&t, "/google.cloud.tpu.v2.Tpu/GetNode",
            "{\"name\":\"projects/" TESTING_PROJECT "/locations/us-central2-b/nodes/b\"}", "Node",
            VT_API_V2, t.token, &reply);
  assert_int_equal(vt_status_code(st), VT_NOT_FOUND);
  vt_status_free(st);
  st = unary(&t, "/google.cloud.tpu.v2.Tpu/GetNode", get, "Node", VT_API_V2, "nobody", &reply);
  assert_int_equal(vt_status_code(st), VT_UNAUTHENTICATED);
  vt_status_free(st);
  st = unary(&t, "/google.cloud.tpu.v2.Tpu/GetNode2", "{}", "Node", VT_API_V2, t.token, &reply);
  assert_int_equal(vt_status_code(st), VT_UNIMPLEMENTED);
  vt_status_free(st);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_survive_the_wire), cmocka_unit_test(bytes_are_those_of_protobuf),
      cmocka_unit_test(malformed_bytes_are_errors), cmocka_unit_test(calls_are_the_rest_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
