// SPDX-License-Identifier: Apache-2.0
// login_name_test.c - names of people on workers: which are valid, and that each has its own id for
// ever.
#include "cloud/api/login_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cloud/cloud_testing.h"

#define NODES "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes"

static void the_systems_names_are_nobodys(void **state) {
  static const char *const good[] = {
      "ada",   "ada_lovelace", "a", "user-1", "x.y", "ada9", "abcdefghijklmnopqrstuvwxyz012345",
      "admin", "vtpu"};
  static const char *const bad[] = {"root",
                                    "daemon",
                                    "postgres",
                                    "munge",
                                    "slurm",
                                    "nobody",
                                    "www-data",
                                    "sshd",
                                    "docker",
                                    "sudo",
                                    "google-sudoers",
                                    "systemd-network",
                                    "_apt",
                                    "_",
                                    "",
                                    "0",
                                    "1000",
                                    "-a",
                                    "Ada",
                                    "a b",
                                    "a:b",
                                    "a/b",
                                    "..",
                                    ".",
                                    "a\nb",
                                    "a$",
                                    "a*",
                                    "a\"",
                                    "\xc3\xa9",
                                    "a\xc3\xa9",
                                    "abcdefghijklmnopqrstuvwxyz0123456",
                                    "a%u",
                                    "a~",
                                    "a@b",
                                    "a,b",
                                    "a;b",
                                    "ALL",
                                    "#1",
                                    "+a",
                                    "!a"};
  char line[512];
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    if (!vt_login_name_valid(good[i], strlen(good[i]))) fail_msg("'%s' is refused", good[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (vt_login_name_valid(bad[i], strlen(bad[i]))) fail_msg("'%s' may log in", bad[i]);
  assert_false(vt_login_name_valid("ada\0b", 5));
  FILE *file = fopen("/etc/passwd", "re");
  while (file && fgets(line, sizeof line, file)) {
    unsigned id = 0;
    size_t n = strcspn(line, ":");
    sscanf(line + n, ":%*[^:]:%u", &id);
    if (id < 1000 && vt_login_name_valid(line, n)) fail_msg("%.*s may log in", (int)n, line);
  }
  if (file) fclose(file);
}

// Parses the lines that workers read; checks that each name and each id occurs once.
static void read_ids(vt_testing *t, const char *node, int64_t *ids, int count) {
  char *users = vt_testing_metadata(t, node, "vtpu/users");
  for (int i = 0; i < count; i++) ids[i] = 0;
  for (char *p = users; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    int name;
    long long id;
    if (sscanf(p, "user%d %lld", &name, &id) != 2) continue;
    assert_true(name < count && ids[name] == 0);
    assert_true(id >= VT_LOGIN_FIRST_ID && id < VT_LOGIN_FIRST_ID + VT_LOGIN_IDS);
    for (int i = 0; i < count; i++) assert_true(ids[i] != id);
    ids[name] = id;
  }
  free(users);
}

static void set_users(vt_testing *t, int from, int to) {
  vt_text body = {0};
  vt_text_put(&body, "{\"metadata\":{\"ssh-keys\":\"");
  for (int i = from; i < to; i++) vt_text_printf(&body, "user%d:ssh-ed25519 AAAA\\n", i);
  vt_text_put(&body, "postgres:ssh-ed25519 AAAA\\nroot:ssh-ed25519 AAAA\"}}");
  json_decref(
      vt_testing_call(t, "PATCH", NODES "/a?updateMask=metadata", vt_text_string(&body), 200));
  vt_text_free(&body);
}

static void every_name_has_an_id_for_ever(void **state) {
  enum { COUNT = 600 }; // a hash would give three pairs of user0 to user599 the same id
  static int64_t ids[COUNT], again[COUNT];
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "a", "v4-8");
  set_users(&t, 0, 300);
  read_ids(&t, "a", again, COUNT);
  set_users(&t, 0, COUNT);
  read_ids(&t, "a", ids, COUNT);
  for (int i = 0; i < COUNT; i++) {
    assert_true(ids[i] != 0);
    assert_true(i >= 300 || again[i] == ids[i]);
  }
  char *users = vt_testing_metadata(&t, "a", "vtpu/users");
  assert_null(strstr(users, "postgres"));
  assert_null(strstr(users, "root"));
  free(users);
  // Removed names keep their ids, and nobody else gets them.
  set_users(&t, 500, 560);
  set_users(&t, 167, 168);
  read_ids(&t, "a", again, COUNT);
  assert_true(again[167] == ids[167] && again[167] != ids[124]);
  int64_t full;
  for (int64_t id = VT_LOGIN_FIRST_ID; id < VT_LOGIN_FIRST_ID + VT_LOGIN_IDS; id++) {
    char name[32];
    snprintf(name, sizeof name, "n%lld", (long long)id);
    assert_null(vt_store_run(t.cloud->store, NULL,
                             "INSERT INTO login_ids (project, name, id) VALUES ('full', ?, ?)",
                             "si", name, id));
  }
  vt_status st = vt_login_id(t.cloud, "full", "one-more", &full);
  assert_int_equal(vt_status_code(st), VT_RESOURCE_EXHAUSTED);
  vt_status_free(st);
  assert_null(vt_store_run(t.cloud->store, NULL,
                           "DELETE FROM login_ids WHERE project = 'full' AND id = 2777", ""));
  assert_null(vt_login_id(t.cloud, "full", "one-more", &full));
  assert_int_equal(full, 2777);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_systems_names_are_nobodys),
      cmocka_unit_test(every_name_has_an_id_for_ever),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
