// SPDX-License-Identifier: Apache-2.0
// os_login_test.c - OS Login: profiles and their keys over the API, names derived from addresses,
// and who may log in to which workers, as seen in the workers' metadata.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define Z   "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define ADA "/v1/users/ada@example.com"
// Keys without an owner: the length field, the type, and 32 bytes of one letter.
#define TEN(letter) letter letter letter letter letter letter letter letter letter letter
#define KEY(letter)                                                                                \
  "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" TEN(letter) TEN(letter) TEN(letter) TEN(letter)          \
      letter letter letter

static void create(vt_testing *t, const char *id, const char *metadata) {
  char body[512];
  snprintf(body, sizeof body,
           "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"tpu-ubuntu2204-base\",\"metadata\":"
           "{%s}}",
           metadata);
  char url[256];
  snprintf(url, sizeof url, Z "/nodes?nodeId=%s", id);
  json_decref(vt_testing_call(t, "POST", url, body, 200));
  vt_testing_reconcile(t);
}

static void worker_says(vt_testing *t, const char *node, const char *path, const char *want,
                        bool is_there) {
  char *text = vt_testing_metadata(t, node, path);
  if ((strstr(text, want) != NULL) != is_there)
    fail_msg("%s of %s: '%s' is%s in: %s", path, node, want, is_there ? " not" : "", text);
  free(text);
}

static void profiles_hold_keys(void **state) {
  vt_testing t;
  int status;
  char url[256];
  (void)state;
  vt_testing_open(&t, "");
  char *ada = vt_testing_account(&t, "ada@example.com", "user");
  json_t *reply =
      vt_testing_call_as(&t, ada, "GET", ADA "/loginProfile?projectId=x", NULL, &status);
  assert_int_equal(status, 200);
  assert_string_equal(vt_testing_text(reply, "posixAccounts.0.username"), "ada_example_com");
  assert_string_equal(vt_testing_text(reply, "posixAccounts.0.homeDirectory"),
                      "/home/ada_example_com");
  assert_string_equal(vt_testing_text(reply, "posixAccounts.0.accountId"), "x");
  assert_int_equal(json_object_size(json_object_get(reply, "sshPublicKeys")), 0);
  json_decref(reply);
  reply = vt_testing_call_as(&t, ada, "POST", "/v1alpha/users/ada%40example.com:importSshPublicKey",
                             "{\"key\":\"" KEY("a") " ada@laptop\\n\"}", &status);
  assert_int_equal(status, 200);
  json_t *keys = json_object_get(json_object_get(reply, "loginProfile"), "sshPublicKeys");
  assert_int_equal(json_object_size(keys), 1);
  const char *print = json_object_iter_key(json_object_iter(keys));
  assert_int_equal(strlen(print), 64);
  snprintf(url, sizeof url, ADA "/sshPublicKeys/%s", print);
  json_decref(reply);
  reply = vt_testing_call_as(&t, ada, "GET", url, NULL, &status);
  assert_string_equal(vt_testing_text(reply, "key"), KEY("a") " ada@laptop");
  assert_string_equal(vt_testing_text(reply, "expirationTimeUsec"), "");
  json_decref(reply);
  char patch[300];
  snprintf(patch, sizeof patch, "%s?updateMask=expirationTimeUsec", url);
  reply = vt_testing_call_as(&t, ada, "PATCH", patch,
                             "{\"expirationTimeUsec\":\"4102444800000000\"}", &status);
  assert_string_equal(vt_testing_text(reply, "expirationTimeUsec"), "4102444800000000");
  json_decref(reply);
  json_decref(vt_testing_call_as(&t, ada, "PATCH", url, "{\"key\":\"" KEY("b") "\"}", &status));
  assert_int_equal(status, 400);
  json_decref(vt_testing_call_as(&t, ada, "POST", ADA "/sshPublicKeys",
                                 "{\"key\":\"" KEY("b") "\"}", &status));
  assert_int_equal(status, 200);
  reply = vt_testing_call_as(&t, ada, "GET", ADA "/sshPublicKeys", NULL, &status);
  assert_int_equal(json_array_size(json_object_get(reply, "sshPublicKeys")), 2);
  json_decref(reply);
  json_decref(vt_testing_call_as(&t, ada, "DELETE", url, NULL, &status));
  assert_int_equal(status, 200);
  json_decref(vt_testing_call_as(&t, ada, "GET", url, NULL, &status));
  assert_int_equal(status, 404);
  free(ada);
  vt_testing_close(&t);
}

static void bad_keys_are_refused(void **state) {
  static const char *const bodies[] = {
      "{}",
      "{\"key\":\"\"}",
      "{\"key\":7}",
      "{\"key\":\"ssh-ed25519\"}",
      "{\"key\":\"ssh-ed25519 not base64!\"}",
      "{\"key\":\"ssh-dss "
      "AAAAB3NzaC1kc3MAAACBAAAAB3NzaC1kc3MAAACB"
      "\"}",
      "{\"key\":\"command=\\\"id\\\" " KEY("a") "\"}",
      "{\"key\":\"" KEY("a") "\\nssh-rsa AAAA\"}",
  };
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
    json_decref(vt_testing_call(&t, "POST", "/v1/users/admin@vtpu.localhost:importSshPublicKey",
                                bodies[i], 400));
  vt_testing_close(&t);
}

static void a_profile_is_its_owners(void **state) {
  vt_testing t;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  char *ada = vt_testing_account(&t, "ada@example.com", "user");
  char *eve = vt_testing_account(&t, "eve@example.com", "user");
  static const char *const calls[][3] = {
      {"GET", ADA "/loginProfile", NULL},
      {"POST", ADA ":importSshPublicKey", "{\"key\":\"" KEY("e") "\"}"},
      {"GET", ADA "/sshPublicKeys", NULL},
      {"POST", ADA "/sshPublicKeys", "{\"key\":\"" KEY("e") "\"}"},
      {"GET", ADA "/sshPublicKeys/x", NULL},
      {"PATCH", ADA "/sshPublicKeys/x", "{}"},
      {"DELETE", ADA "/sshPublicKeys/x", NULL},
      {"GET", "/v1/users/nobody@example.com/loginProfile", NULL}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    json_decref(vt_testing_call_as(&t, eve, calls[i][0], calls[i][1], calls[i][2], &status));
    if (status != 403) fail_msg("%s %s by another: %d", calls[i][0], calls[i][1], status);
  }
  json_decref(vt_testing_call(&t, "GET", ADA "/loginProfile", NULL, 200)); // an administrator
  json_decref(vt_testing_call(&t, "GET", "/v1/users/nobody@example.com/loginProfile", NULL, 404));
  json_decref(vt_testing_call(&t, "GET", "/v2/users/ada@example.com/loginProfile", NULL, 404));
  free(ada);
  free(eve);
  vt_testing_close(&t);
}

static void import_key(vt_testing *t, const char *email, const char *body) {
  char url[256];
  snprintf(url, sizeof url, "/v1/users/%s:importSshPublicKey", email);
  json_decref(vt_testing_call(t, "POST", url, body, 200));
}

#define USERS "vtpu/users"
#define KEYS  "vtpu/authorized-keys?user="

static void roles_say_who_gets_in(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  static const char *const people[] = {"ada@example.com", "bob@example.com", "vic@example.com",
                                       "eve@example.com"};
  for (int i = 0; i < 4; i++) {
    free(vt_testing_account(&t, people[i], "user"));
    import_key(&t, people[i],
               (const char *const[]){"{\"key\":\"" KEY("a") "\"}", "{\"key\":\"" KEY("b") "\"}",
                                     "{\"key\":\"" KEY("v") "\"}",
                                     "{\"key\":\"" KEY("e") "\"}"}[i]);
  }
  json_decref(vt_testing_call(
      &t, "POST", "/v1/projects/" TESTING_PROJECT ":setIamPolicy",
      "{\"policy\":{\"bindings\":[{\"role\":\"roles/owner\",\"members\":[\"user:admin@vtpu."
      "localhost\"]},{\"role\":\"roles/compute.osAdminLogin\",\"members\":[\"user:ada@example."
      "com\"]},{\"role\":\"roles/compute.osLogin\",\"members\":[\"user:bob@example.com\"]},"
      "{\"role\":\"roles/compute.osAdminLogin\",\"members\":[\"user:eve@example.com\"]},"
      "{\"role\":\"roles/iam.serviceAccountUser\",\"members\":[\"user:ada@example.com\","
      "\"user:bob@example.com\",\"user:vic@example.com\"]},"
      "{\"role\":\"roles/tpu.viewer\",\"members\":[\"user:vic@example.com\",\"user:bob@example."
      "com\"]}]}}",
      200));
  create(&t, "on", "\"enable-oslogin\":\"TRUE\",\"ssh-keys\":\"mal:ssh-ed25519 AAAA mal\"");
  create(&t, "off", "\"ssh-keys\":\"mal:ssh-ed25519 AAAA mal\"");
  worker_says(&t, "on", USERS, "ada_example_com ", true);
  worker_says(&t, "on", USERS, "bob_example_com ", true);
  worker_says(&t, "on", USERS, " login\n", true); // bob
  worker_says(&t, "on", USERS, "vic_", false);
  worker_says(&t, "on", USERS, "eve_", false); // may not act as the workers' account
  worker_says(&t, "on", USERS, "mal", false);
  worker_says(&t, "on", KEYS "ada_example_com", KEY("a"), true);
  worker_says(&t, "on", KEYS "ada_example_com", KEY("b"), false);
  worker_says(&t, "on", KEYS "mal", "ssh-", false);
  worker_says(&t, "off", USERS, "ada", false);
  worker_says(&t, "off", KEYS "mal", "ssh-ed25519 AAAA", true);
  worker_says(&t, "off", KEYS "ada_example_com", "ssh-", false);
  // The project enables it for all; a node can disable it.
  json_decref(vt_testing_call(
      &t, "POST", "/compute/v1/projects/" TESTING_PROJECT "/setCommonInstanceMetadata",
      "{\"items\":[{\"key\":\"enable-oslogin\",\"value\":\"true\"}]}", 200));
  worker_says(&t, "off", USERS, "ada_example_com ", true);
  worker_says(&t, "off", KEYS "mal", "ssh-", false);
  create(&t, "not", "\"enable-oslogin\":\"FALSE\"");
  worker_says(&t, "not", USERS, "ada_example_com ", false);
  vt_testing_close(&t);
}

static void keys_end(void **state) {
  vt_testing t;
  char body[400];
  (void)state;
  vt_testing_open(&t, "");
  create(&t, "on", "\"enable-oslogin\":\"TRUE\"");
  snprintf(body, sizeof body, "{\"key\":\"" KEY("a") "\",\"expirationTimeUsec\":%lld}",
           (long long)(vt_cloud_now(t.cloud) / 1000 + 3600000000));
  import_key(&t, "admin@vtpu.localhost", body);
  worker_says(&t, "on", KEYS "admin_vtpu_localhost", KEY("a"), true);
  vt_testing_advance(&t, 3601);
  worker_says(&t, "on", KEYS "admin_vtpu_localhost", KEY("a"), false);
  worker_says(&t, "on", USERS, "admin", false);
  vt_testing_close(&t);
}

static void one_name_is_one_account(void **state) {
  vt_testing t;
  char first[64], second[64];
  (void)state;
  vt_testing_open(&t, "");
  free(vt_testing_account(&t, "a.b@example.com", "admin"));
  free(vt_testing_account(&t, "a_b@example.com", "admin"));
  free(vt_testing_account(&t, "1@a-very-long-company-name-of.example.com", "admin"));
  json_t *reply = vt_testing_call(&t, "GET", "/v1/users/a.b@example.com/loginProfile", NULL, 200);
  snprintf(first, sizeof first, "%s", vt_testing_text(reply, "posixAccounts.0.username"));
  json_decref(reply);
  reply = vt_testing_call(&t, "GET", "/v1/users/a_b@example.com/loginProfile", NULL, 200);
  snprintf(second, sizeof second, "%s", vt_testing_text(reply, "posixAccounts.0.username"));
  json_decref(reply);
  assert_string_equal(first, "a_b_example_com");
  assert_int_equal(strncmp(second, "a_b_example_com_", 16), 0);
  reply = vt_testing_call(
      &t, "GET", "/v1/users/1@a-very-long-company-name-of.example.com/loginProfile", NULL, 200);
  assert_string_equal(vt_testing_text(reply, "posixAccounts.0.username"),
                      "u1_a_very_long_company_name_of_e");
  json_decref(reply);
  json_decref(vt_testing_call(&t, "POST", "/v1/projects/" TESTING_PROJECT "/serviceAccounts",
                              "{\"accountId\":\"robot\"}", 200));
  reply = vt_testing_call(
      &t, "GET", "/v1/users/robot@" TESTING_PROJECT ".iam.gserviceaccount.com/loginProfile", NULL,
      200);
  assert_int_equal(strncmp(vt_testing_text(reply, "posixAccounts.0.username"), "sa_1", 4), 0);
  json_decref(reply);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(profiles_hold_keys),
                                     cmocka_unit_test(bad_keys_are_refused),
                                     cmocka_unit_test(a_profile_is_its_owners),
                                     cmocka_unit_test(roles_say_who_gets_in),
                                     cmocka_unit_test(keys_end),
                                     cmocka_unit_test(one_name_is_one_account)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
