// SPDX-License-Identifier: Apache-2.0
// check_test.c - invalid content is refused on create and on update, through every entry point;
// valid content comes back as it was sent; a stored row that cannot be read is an error that names
// it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/cloud_testing.h"

#define Z    "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define CZ   "/compute/v1/projects/" TESTING_PROJECT
#define NODE "\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\","

// A part of a Node, the number of elements to build it from, and whether it is valid.
static const struct part {
  const char *what, *text;
  int times;
  const char *then;
  int status;
} parts[] = {{"64 labels", "labels", 64, NULL, 200},
             {"65 labels", "labels", 65, NULL, 400},
             {"100000 labels", "labels", 100000, NULL, 400},
             {"a long key of a label", "\"labels\":{\"a", 63, "\":\"\"}", 400},
             {"the longest key of a label", "\"labels\":{\"a", 62, "\":\"\"}", 200},
             {"a long label", "\"labels\":{\"a\":\"", 64, "\"}", 400},
             {"HTML as a key", "\"labels\":{\"<img onerror>\":\"\"}", 0, "", 400},
             {"a capital letter", "\"labels\":{\"A\":\"\"}", 0, "", 400},
             {"no key", "\"labels\":{\"\":\"\"}", 0, "", 400},
             {"no string", "\"labels\":{\"a\":1}", 0, "", 400},
             {"a description", "\"description\":\"", 512, "\"", 200},
             {"a long description", "\"description\":\"", 513, "\"", 400},
             {"a very long description", "\"description\":\"", 100000, "\"", 400},
             {"a control character", "\"description\":\"\\u0007\"", 0, "", 400},
             {"NUL", "\"description\":\"a\\u0000b\"", 0, "", 400},
             {"a lone surrogate", "\"description\":\"\\ud800\"", 0, "", 400},
             {"a pair of surrogates", "\"description\":\"\\ud83d\\ude00\"", 0, "", 200},
             {"bytes that are no text", "\"description\":\"\xff\xfe\"", 0, "", 400},
             {"a tag", "\"tags\":[\"web-1\"]", 0, "", 200},
             {"a tag with a blank", "\"tags\":[\"web 1\"]", 0, "", 400},
             {"a large value", "\"metadata\":{\"a\":\"", 262144, "\"}", 200},
             {"a value that is too large", "\"metadata\":{\"a\":\"", 262145, "\"}", 400},
             {"a key of metadata", "\"metadata\":{\"a_-9\":\"<&>\"}", 0, "", 200},
             {"a key of metadata that is none", "\"metadata\":{\"a/b\":\"\"}", 0, "", 400},
             {"a long key of metadata", "\"metadata\":{\"", 129, "\":\"\"}", 400},
             {"512 KiB of metadata", "metadata", 2, NULL, 200},
             {"more of metadata", "metadata", 3, NULL, 400}};

// The part as JSON; the caller frees it.
static char *make_part(const struct part *p) {
  vt_text out = {0};
  if (p->then) {
    vt_text_put(&out, p->text);
    for (int i = 0; i < p->times; i++) vt_text_put(&out, "a");
    vt_text_put(&out, p->then);
    return out.data;
  }
  bool labels = strcmp(p->text, "labels") == 0;
  vt_text_printf(&out, "\"%s\":{", p->text);
  for (int i = 0; i < p->times; i++) {
    vt_text_printf(&out, "%s\"k%d\":\"", i ? "," : "", i);
    for (int n = 0; n < (labels ? 0 : (256 << 10) - 2); n++) vt_text_put(&out, "v");
    vt_text_put(&out, "\"");
  }
  vt_text_put(&out, "}");
  return out.data;
}

static void send_one(vt_testing *t, const struct part *p, const char *method, const char *url,
                     const char *before, const char *part, const char *after) {
  vt_text body = {0};
  int status;
  vt_text_put(&body, before);
  vt_text_put(&body, part);
  vt_text_put(&body, after);
  json_t *reply = vt_testing_call_as(t, t->token, method, url, vt_text_string(&body), &status);
  if (status != p->status) fail_msg("%s: %s %s: %d", p->what, method, url, status);
  json_decref(reply);
  vt_text_free(&body);
}

static void nodes_have_one_check(void **state) {
  vt_testing t;
  char url[160];
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "a", "v4-8");
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const struct part *p = &parts[i];
    char *part = make_part(p);
    snprintf(url, sizeof url, Z "/nodes?nodeId=n%zu", i);
    send_one(&t, p, "POST", url, "{" NODE, part, "}");
    send_one(&t, p, "PATCH", Z "/nodes/a?updateMask=labels,description,tags,metadata", "{", part,
             "}");
    snprintf(url, sizeof url, Z "/queuedResources?queuedResourceId=q%zu", i);
    send_one(&t, p, "POST", url,
             "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"projects/" TESTING_PROJECT
             "/locations/us-central2-b\",\"nodeId\":\"x\",\"node\":{" NODE,
             part, "}}]}}");
    if (p->status == 200) {
      snprintf(url, sizeof url, Z "/queuedResources/q%zu?force=true", i);
      json_decref(vt_testing_call(&t, "DELETE", url, NULL, 200));
      vt_testing_reconcile(&t);
    }
    vt_memory_free(part);
  }
  vt_testing_close(&t);
}

static void others_have_it_too(void **state) {
  static const struct {
    const char *method, *url, *body;
    int status;
  } rows[] = {
      {"POST", CZ "/setCommonInstanceMetadata", "{\"items\":[{\"key\":\"a\",\"value\":\"b\"}]}",
       200},
      {"POST", CZ "/setCommonInstanceMetadata", "{\"items\":[{\"key\":\"<b>\",\"value\":\"b\"}]}",
       400},
      {"POST", CZ "/setCommonInstanceMetadata", "{\"items\":[{\"key\":\"a\",\"value\":1}]}", 400},
      {"POST", "/v1/projects", "{\"projectId\":\"named\",\"name\":\"My lab\"}", 200},
      {"POST", "/v1/projects", "{\"projectId\":\"other\",\"name\":\"a\\u0007b\"}", 400},
      {"POST", "/v2/projects/" TESTING_PROJECT "/sinks",
       "{\"name\":\"s\",\"destination\":\"storage.googleapis.com/b\"}", 200},
      {"PUT", "/v2/projects/" TESTING_PROJECT "/sinks/s", "{\"destination\":\"elsewhere\"}", 400},
      {"PUT", "/v2/projects/" TESTING_PROJECT "/sinks/s", "{\"disabled\":\"<img>\"}", 400},
      {"PUT", "/v2/projects/" TESTING_PROJECT "/sinks/s", "{\"filter\":{}}", 400},
      {"PUT", "/v2/projects/" TESTING_PROJECT "/sinks/s", "{\"filter\":\"severity>ERROR\"}", 200},
      {"GET", Z "/nodes/%00", NULL, 400},
      {"GET", Z "/nodes/a%ff", NULL, 400},
      {"GET", Z "/nodes?pageToken=%00", NULL, 400},
      {"GET", Z "/nodes?pageToken=%fe", NULL, 400},
      {"GET", Z "/nodes?filter=%e2%82%ac", NULL, 200},
      {"GET", "/v2/%c0%ae%c0%ae/nodes", NULL, 400}};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int status;
    json_t *reply =
        vt_testing_call_as(&t, t.token, rows[i].method, rows[i].url, rows[i].body, &status);
    if (status != rows[i].status)
      fail_msg("%s %s %s: %d", rows[i].method, rows[i].url, rows[i].body, status);
    json_decref(reply);
  }
  vt_testing_close(&t);
}

// Requests are refused for being too deep, long or wide.
static void requests_are_bounded(void **state) {
  static const struct {
    const char *begin, *piece, *end;
    int count;
  } rows[] = {{"", "{\"labels\":", "", 100000},
              {"{\"labels\":", "[", "", 100000},
              {"{\"a\":[", "1,", "1]}", 100000},
              {"{\"a\":\"", "x", "\"}", 300000},
              {"{\"a\":", "[[[[[[[[[[", "1", 10}};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_text body = {0};
    int status;
    vt_text_put(&body, rows[i].begin);
    for (int n = 0; n < rows[i].count; n++) vt_text_put(&body, rows[i].piece);
    vt_text_put(&body, rows[i].end);
    json_t *reply = vt_testing_call_as(&t, t.token, "POST", Z "/nodes?nodeId=a",
                                       vt_text_string(&body), &status);
    assert_int_equal(status, 400);
    assert_non_null(strstr(vt_testing_text(reply, "error.message"), "Invalid JSON payload"));
    json_decref(reply);
    vt_text_free(&body);
  }
  vt_testing_close(&t);
}

static void an_unreadable_row_is_an_error(void **state) {
  static const struct {
    const char *spoil, *url;
  } rows[] = {{"UPDATE nodes SET body = '{\"labels\":{\"a\":\"\\u0000\"}}'", Z "/nodes/a"},
              {"UPDATE nodes SET body = ''", Z "/nodes/a"},
              {"UPDATE nodes SET body = '[1]'", Z "/nodes"},
              {"UPDATE queued SET body = '{'", Z "/queuedResources/q"},
              {"UPDATE queued SET body = '{'", Z "/queuedResources"},
              {"UPDATE projects SET metadata = 'x'", CZ},
              {"UPDATE log_sinks SET body = 'x'", "/v2/projects/" TESTING_PROJECT "/sinks/s"},
              {"UPDATE log_sinks SET body = 'x'", "/v2/projects/" TESTING_PROJECT "/sinks"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_testing t;
    int status;
    vt_testing_open(&t, "");
    vt_testing_create(&t, "a", "v4-8");
    json_decref(vt_testing_call(&t, "POST", Z "/queuedResources?queuedResourceId=q",
                                "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"projects/" TESTING_PROJECT
                                "/locations/us-central2-b\",\"nodeId\":\"x\",\"node\":{" NODE
                                "\"labels\":{}}}]}}",
                                200));
    json_decref(vt_testing_call(&t, "POST", "/v2/projects/" TESTING_PROJECT "/sinks",
                                "{\"name\":\"s\",\"destination\":\"storage.googleapis.com/b\"}",
                                200));
    assert_null(vt_store_run(t.cloud->store, NULL, rows[i].spoil, ""));
    json_t *reply = vt_testing_call_as(&t, t.token, "GET", rows[i].url, NULL, &status);
    if (status != 500) fail_msg("%s: %d", rows[i].spoil, status);
    assert_non_null(strstr(vt_testing_text(reply, "error.message"), "can not be read"));
    json_decref(reply);
    vt_testing_close(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nodes_have_one_check), cmocka_unit_test(others_have_it_too),
      cmocka_unit_test(requests_are_bounded), cmocka_unit_test(an_unreadable_row_is_an_error)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
