// SPDX-License-Identifier: Apache-2.0
// record_test.c - what is recorded of calls, and what is not: rows in order with their replies,
// without any credential, password, key or token.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/record.h"
#include "cloud/api/wire.h"
#include "cloud/door/grpc.h"
#include "cloud/store/json.h"

#define Z "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"

typedef struct redacted {
  const char *in, *want;
} redacted;

static void texts_lose_their_secrets(void **state) {
  static const redacted rows[] = {
      {"", ""},
      {"nothing to hide, pageToken=abc", "nothing to hide, pageToken=abc"},
      {"password=hunter2", "password={secret}"},
      {"export HF_TOKEN='a b' X=1", "export HF_TOKEN='{secret}' X=1"},
      {"DB_PASSWORD=\"a\\\"b\"; next", "DB_PASSWORD=\"{secret}\"; next"},
      {"run --token abc --steps 3", "run --token {secret} --steps 3"},
      {"run --wandb-api-key=abc", "run --wandb-api-key={secret}"},
      {"curl -H \"Authorization: Bearer abc.def\" x", "curl -H \"Authorization: {secret}\" x"},
      {"say Bearer abc", "say Bearer {secret}"},
      {"{\"secret\": \"x\", \"a\": 1}", "{\"secret\": \"{secret}\", \"a\": 1}"},
      {"{\\\"token\\\": \\\"x\\\"}", "{\\\"token\\\": \\\"{secret}\\\"}"},
      {"https://ann:pass@host/x", "https://ann:{secret}@host/x"},
      {"https://host:80/a@b", "https://host:80/a@b"},
      {"a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a {secret} b"},
      {"-----BEGIN PRIVATE KEY-----\nMII", "{secret}"},
      {"-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----"},
      {"x eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln y", "x {secret} y"},
      {"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ ann@home",
       "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ ann@home"},
      {"vta.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "{secret}"},
      {"a cookie: b", "a cookie: {secret}"},
      {"gr\xc3\xbc\xc3\x9f token=\xc3\xbc", "gr\xc3\xbc\xc3\x9f token={secret}"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_text out = {0};
    vt_record_redact_text(rows[i].in, strlen(rows[i].in), &out);
    if (strcmp(vt_text_string(&out), rows[i].want) != 0)
      fail_msg("%s became %s", rows[i].in, vt_text_string(&out));
    vt_text_free(&out);
  }
}

static void parameters_lose_their_secrets(void **state) {
  static const redacted rows[] = {
      {"alt=json&access_token=x&pageSize=3", "alt=json&pageSize=3"},
      {"key=x", ""},
      {"sid=x&ack=0", "sid={secret}&ack=0"},
      {"grant_type=authorization_code&code=4/x", "grant_type=authorization_code&code={secret}"},
      {"refresh_token=x&client_id=vtpu&client_secret=y&",
       "refresh_token={secret}&client_id=vtpu&client_secret={secret}"},
      {"assertion=eyJhbGciOiJSUzI1NiJ9.e30.x", "assertion={secret}"},
      {"pageToken=abc&flag", "pageToken=abc&flag"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_text out = {0};
    vt_record_redact_pairs(rows[i].in, strlen(rows[i].in), &out);
    if (strcmp(vt_text_string(&out), rows[i].want) != 0)
      fail_msg("%s became %s", rows[i].in, vt_text_string(&out));
    vt_text_free(&out);
  }
}

static void json_loses_its_secrets(void **state) {
  static const redacted rows[] = {
      {"{\"a\":[1,null,true,\"x\"]}", "{\"a\":[1,null,true,\"x\"]}"},
      {"{\"privateKeyData\":\"TUlJ\",\"keyAlgorithm\":\"RSA\"}",
       "{\"privateKeyData\":\"{secret}\",\"keyAlgorithm\":\"RSA\"}"},
      {"{\"tokens\":{\"a\":[\"x\"]},\"nextPageToken\":\"p\"}",
       "{\"tokens\":{\"a\":[\"{secret}\"]},\"nextPageToken\":\"p\"}"},
      {"{\"items\":[{\"key\":\"ssh-keys\",\"value\":\"a:ssh-rsa A\"},{\"key\":\"DB_PASSWORD\","
       "\"value\":\"x\"}]}",
       "{\"items\":[{\"key\":\"ssh-keys\",\"value\":\"a:ssh-rsa A\"},{\"key\":\"DB_PASSWORD\","
       "\"value\":\"{secret}\"}]}"},
      {"{\"metadata\":{\"startup-script\":\"T_TOKEN=x run\"}}",
       "{\"metadata\":{\"startup-script\":\"T_TOKEN={secret} run\"}}"},
      {"{\"password\":\"\",\"error\":{\"code\":404}}",
       "{\"password\":\"\",\"error\":{\"code\":404}}"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_t *value = json_loads(rows[i].in, 0, NULL), *clean = vt_record_redact_json(value);
    char *text = vt_json_text(clean, JSON_COMPACT);
    if (strcmp(text, rows[i].want) != 0) fail_msg("%s became %s", rows[i].in, text);
    vt_memory_free(text);
    json_decref(clean);
    json_decref(value);
  }
}

// --- rows ----------------------------------------------------------------------------------------

static void say(vt_testing *t, const char *method, const char *path, const char *type,
                const char *body, char reply[8192]) {
  vt_call call;
  char bearer[256];
  vt_call_init(&call, t->cloud, method, path);
  snprintf(bearer, sizeof bearer, "Bearer %s", t->token);
  vt_call_add_header(&call, "Authorization", bearer);
  vt_call_add_header(&call, "Cookie", "vtpu=vts.cookie-of-a-session");
  vt_call_add_header(&call, "User-Agent", "a client/1.0");
  vt_call_add_header(&call, "X-Vtpu-Console", "1");
  if (*type) vt_call_add_header(&call, "Content-Type", type);
  vt_call_add_query(&call, "prettyPrint=false&access_token=in-the-query");
  call.body_text = body;
  call.body_size = strlen(body);
  vt_call_run(&call);
  vt_call_render(&call);
  snprintf(reply, 8192, "%s", vt_text_string(&call.raw));
  vt_call_fini(&call);
}

static void no_secret_is_written(void **state) {
  vt_testing t;
  char path[] = "/tmp/vtpu-record-XXXXXX", reply[8192], *refresh;
  (void)state;
  assert_non_null(mkdtemp(path));
  char file[64];
  snprintf(file, sizeof file, "%s/calls.jsonl", path);
  vt_testing_open(&t, "");
  assert_null(vt_recorder_create(file, &t.cloud->recorder));
  vt_recorder *again;
  vt_status st = vt_recorder_create(file, &again);
  assert_int_equal(vt_status_code(st), VT_ALREADY_EXISTS);
  vt_status_free(st);
  struct stat info;
  assert_int_equal(stat(file, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);

  const vt_token_start start = {"admin@vtpu.localhost", "refresh", "", "", 0};
  assert_null(vt_token_create(t.cloud, &start, &refresh));
  char form[512], session[512];
  snprintf(form, sizeof form, "grant_type=refresh_token&client_secret=s3cr3t&refresh_token=%s",
           refresh);
  snprintf(session, sizeof session, "{\"token\":\"%s\"}", t.token);
  say(&t, "POST", "/token", "application/x-www-form-urlencoded", form, reply);
  json_t *tokens = json_loads(reply, 0, NULL);
  assert_string_not_equal(vt_testing_text(tokens, "access_token"), "");
  char access[128];
  snprintf(access, sizeof access, "%s", vt_testing_text(tokens, "access_token"));
  json_decref(tokens);
  say(&t, "POST", "/vtpu/v1/session", "application/json", session, reply);
  say(&t, "POST", "/vtpu/v1/accounts", "application/json",
      "{\"email\":\"ann@example.org\",\"password\":\"correct horse battery\"}", reply);
  say(&t, "POST", "/v1/projects/" TESTING_PROJECT "/serviceAccounts", "application/json",
      "{\"accountId\":\"robot\"}", reply);
  say(&t, "POST",
      "/v1/projects/" TESTING_PROJECT "/serviceAccounts/robot@" TESTING_PROJECT
      ".iam.gserviceaccount.com/keys",
      "application/json", "{}", reply);
  json_t *key = json_loads(reply, 0, NULL);
  char private[65];
  snprintf(private, sizeof private, "%s", vt_testing_text(key, "privateKeyData"));
  assert_int_equal(strlen(private), 64);
  json_decref(key);
  say(&t, "POST", Z "/nodes", "application/json",
      "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\",\"metadata\":{\"HF_TOKEN\":"
      "\"hunter2\",\"startup-script\":\"export WANDB_API_KEY=hunter3\"}}",
      reply);
  vt_testing_reconcile(&t);
  say(&t, "GET", Z "/nodes", "", "", reply);
  assert_non_null(strstr(reply, "hunter2"));
  say(&t, "GET", "/metrics", "", "", reply);
  say(&t, "POST", Z "/nodes", "application/json", "{\"password\": \"broken-json", reply);

  vt_bytes bytes;
  assert_null(vt_file_map(file, &bytes));
  const char *const secrets[] = {t.token,         refresh,        access,       "s3cr3t",
                                 "correct horse", private,        "hunter2",    "hunter3",
                                 "cookie-of",     "in-the-query", "broken-json"};
  for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
    if (memmem(bytes.data, bytes.size, secrets[i], strlen(secrets[i])))
      fail_msg("secret %zu was written", i);
  // The lines are valid rows and keep everything else.
  const char *line = (const char *)bytes.data, *end = line + bytes.size;
  json_t *rows[16];
  size_t count = 0;
  for (const char *next; line < end && (next = memchr(line, '\n', (size_t)(end - line)));
       line = next + 1)
    assert_non_null(rows[count++] = json_loadb(line, (size_t)(next - line), 0, NULL));
  vt_file_unmap(&bytes);
  assert_int_equal(count, 9);
  assert_string_equal(vt_testing_text(rows[0], "caller"), "");
  assert_string_equal(vt_testing_text(rows[5], "caller"), "admin@vtpu.localhost");
  assert_string_equal(vt_testing_text(rows[5], "method"), "POST");
  assert_string_equal(vt_testing_text(rows[5], "path"), Z "/nodes?prettyPrint=false");
  assert_string_equal(vt_testing_text(rows[5], "agent"), "a client/1.0");
  assert_string_equal(vt_testing_text(rows[5], "reply.metadata.verb"), "create");
  assert_string_equal(vt_testing_text(rows[6], "reply.nodes.0.state"), "READY");
  assert_null(json_object_get(rows[7], "reply")); // not JSON
  assert_int_equal(json_integer_value(json_object_get(rows[8], "status")), 400);
  for (size_t i = 0; i < count; i++) json_decref(rows[i]);
  vt_memory_free(refresh);
  vt_testing_close(&t);
  unlink(file);
  rmdir(path);
}

static void grpc_is_written_as_rest(void **state) {
  vt_testing t;
  vt_call call;
  char folder[] = "/tmp/vtpu-record-XXXXXX", file[64], bearer[256];
  vt_text bytes = {0}, reply = {0};
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(file, sizeof file, "%s/calls.jsonl", folder);
  vt_testing_open(&t, "");
  assert_null(vt_recorder_create(file, &t.cloud->recorder));
  json_t *message = json_pack("{s:s, s:s, s:{s:s, s:s}}", "parent",
                              "projects/" TESTING_PROJECT "/locations/us-central2-b", "nodeId", "g",
                              "node", "acceleratorType", "v4-8", "runtimeVersion", "v2-alpha");
  vt_wire_encode(vt_message_find("CreateNodeRequest"), VT_API_V2, message, &bytes);
  json_decref(message);
  vt_call_init(&call, t.cloud, "POST", "/");
  snprintf(bearer, sizeof bearer, "Bearer %s", t.token);
  vt_call_add_header(&call, "Authorization", bearer);
  assert_null(vt_grpc_unary(&call, "/google.cloud.tpu.v2.Tpu/CreateNode", vt_text_string(&bytes),
                            bytes.size, &reply));
  vt_call_fini(&call);
  vt_text_free(&bytes);
  vt_text_free(&reply);
  json_t *row = json_load_file(file, 0, NULL);
  assert_string_equal(vt_testing_text(row, "method"), "POST");
  assert_string_equal(vt_testing_text(row, "path"), Z "/nodes?nodeId=g");
  assert_non_null(strstr(vt_testing_text(row, "body"), "\"acceleratorType\":\"v4-8\""));
  assert_string_equal(vt_testing_text(row, "reply.metadata.verb"), "create");
  json_decref(row);
  vt_testing_close(&t);
  unlink(file);
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_lose_their_secrets), cmocka_unit_test(parameters_lose_their_secrets),
      cmocka_unit_test(json_loses_its_secrets), cmocka_unit_test(no_secret_is_written),
      cmocka_unit_test(grpc_is_written_as_rest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
