// SPDX-License-Identifier: Apache-2.0
// slurm_tools_test.c - parsing the output of Slurm's tools: lines of squeue, and whole runs with
// tools that are shell scripts of this test.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cloud/control/slurm.h"

static const struct line {
  const char *text;
  bool ours;
  long long id, uid, worker;
  bool clean;
  vt_slurm_state state;
  const char *host, *reason, *comment;
} lines[] = {
    {"12|RUNNING|n1|None|vtpu-ab12-345-0|", true, 12, 345, 0, false, VT_SLURM_RUNNING, "n1", "None",
     ""},
    {"12|RUNNING|n1|None|vtpu-ab12-345-3-clean|x|y z", true, 12, 345, 3, true, VT_SLURM_RUNNING,
     "n1", "None", "x|y z"},
    {"7|PENDING||Resources|vtpu-ab12-9-1|", true, 7, 9, 1, false, VT_SLURM_WAITING, "", "Resources",
     ""},
    {"7|COMPLETING|n2|None|vtpu-ab12-9-1|bye\n8|RUNNING|n1|None|vtpu-ab12-1-1|", true, 7, 9, 1,
     false, VT_SLURM_LEAVING, "n2", "None", "bye"},
    {"7|NODE_FAIL|n2|NodeDown|vtpu-ab12-9-1|", true, 7, 9, 1, false, VT_SLURM_LOST, "n2",
     "NodeDown", ""},
    {"7|PREEMPTED|n2|None|vtpu-ab12-9-1|", true, 7, 9, 1, false, VT_SLURM_TAKEN, "n2", "None", ""},
    {"7|FAILED|n2|NonZeroExitCode|vtpu-ab12-9-1|no loop devices", true, 7, 9, 1, false,
     VT_SLURM_FAILED, "n2", "NonZeroExitCode", "no loop devices"},
    {"7|CANCELLED|n2|None|vtpu-ab12-9-1|", true, 7, 9, 1, false, VT_SLURM_ENDED, "n2", "None", ""},
    {"7|OUT_OF_MEMORY|n2|None|vtpu-ab12-9-1|", true, 7, 9, 1, false, VT_SLURM_ENDED, "n2", "None",
     ""},
    {"7|A_STATE_OF_TOMORROW|n2|None|vtpu-ab12-9-1|", true, 7, 9, 1, false, VT_SLURM_ENDED, "n2",
     "None", ""},
    // Jobs of others, of another cloud, and lines that are not jobs.
    {.text = "12|RUNNING|n1|None|train|"},
    {.text = "12|RUNNING|n1|None|vtpu-cd34-345-0|"},
    {.text = "12|RUNNING|n1|None|vtpu-ab12-345|"},
    {.text = "12|RUNNING|n1|None|vtpu-ab12-345-0-cleaner|"},
    {.text = "12|RUNNING|n1|None|vtpu-ab12-x-0|"},
    {.text = "x|RUNNING|n1|None|vtpu-ab12-345-0|"},
    {.text = "slurm_load_jobs error: Unable to contact slurm controller"},
    {.text = "||||||||||"},
    {.text = ""},
};

static void lines_of_squeue(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const struct line *l = &lines[i];
    vt_slurm_job job;
    if (vt_slurm_parse_job(l->text, "ab12", &job) != l->ours) fail_msg("%s", l->text);
    if (!l->ours) continue;
    assert_int_equal(job.id, l->id);
    assert_int_equal(job.uid, l->uid);
    assert_int_equal(job.worker, l->worker);
    assert_int_equal(job.clean, l->clean);
    if (job.state != l->state) fail_msg("%s: state %d", l->text, (int)job.state);
    assert_string_equal(job.host, l->host);
    assert_string_equal(job.reason, l->reason);
    assert_string_equal(job.comment, l->comment);
  }
}

static void long_lines_are_cut(void **state) {
  char line[8192], many[2000];
  vt_slurm_job job;
  (void)state;
  memset(many, 'h', sizeof many - 1);
  many[sizeof many - 1] = 0;
  snprintf(line, sizeof line, "5|RUNNING|%s|%.900s|vtpu-ab12-1-2|%s", many, many, many);
  assert_true(vt_slurm_parse_job(line, "ab12", &job));
  assert_int_equal(strlen(job.host), sizeof job.host - 1);
  assert_int_equal(strlen(job.comment), sizeof job.comment - 1);
  assert_int_equal(job.worker, 2);
  snprintf(line, sizeof line, "5|RUNNING|n|r|vtpu-ab12-%s-2|", many);
  assert_false(vt_slurm_parse_job(line, "ab12", &job));
}

static void a_job_has_the_name_that_is_read_back(void **state) {
  char name[96], line[200];
  vt_slurm_job job;
  (void)state;
  for (int clean = 0; clean < 2; clean++) {
    vt_slurm_job_name("ab12", INT64_C(1) << 61, 15, clean, name);
    snprintf(line, sizeof line, "3|PENDING||Priority|%s|", name);
    assert_true(vt_slurm_parse_job(line, "ab12", &job));
    assert_true(job.uid == INT64_C(1) << 61 && job.worker == 15 && job.clean == clean);
  }
}

// Puts a tool that prints `text` and exits with `status` first on the PATH.
static void put_tool(const char *folder, const char *name, const char *text, int status) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "#!/bin/sh\ncat <<'END'\n%s\nEND\nexit %d\n", text, status);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(chmod(path, 0755), 0);
}

static void tools_are_run(void **state) {
  char folder[] = "/tmp/vtpu-slurm-XXXXXX", path[8192];
  atomic_bool stop = false;
  vt_slurm_jobs jobs = {0};
  vt_slurm_hosts hosts = {0};
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
  setenv("PATH", path, 1);
  put_tool(folder, "squeue",
           "1|RUNNING|n1|None|vtpu-ab12-5-0|\n2|RUNNING|n1|None|other|\n"
           "3|PENDING||Priority|vtpu-ab12-5-1|",
           0);
  assert_null(vt_slurm_list_jobs(&stop, "ab12", &jobs));
  assert_int_equal(jobs.size, 2);
  assert_int_equal(jobs.data[1].id, 3);
  put_tool(folder, "sinfo",
           "n1|mixed|127.0.0.1\nn2|idle*|127.0.0.1\nn3|down|127.0.0.1\nn1|mixed|127.0.0.1\n"
           "n4|allocated|no-such-host.invalid",
           0);
  assert_null(vt_slurm_list_hosts(&stop, &hosts));
  assert_int_equal(hosts.size, 4); // listed in two partitions, counts once
  assert_true(hosts.data[0].up && !hosts.data[1].up && !hosts.data[2].up && hosts.data[3].up);
  assert_string_equal(hosts.data[0].address, "127.0.0.1");
  assert_string_equal(hosts.data[3].address, "");
  put_tool(folder, "scancel", "scancel: error: Invalid job id 9", 1);
  vt_status st = vt_slurm_cancel(&stop, 9);
  assert_non_null(strstr(vt_status_message(st), "scancel: error: Invalid job id 9"));
  vt_status_free(st);
  vt_array_free(&jobs);
  vt_array_free(&hosts);
  snprintf(path, sizeof path, "rm -rf %s", folder);
  assert_int_equal(system(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_squeue), cmocka_unit_test(long_lines_are_cut),
      cmocka_unit_test(a_job_has_the_name_that_is_read_back), cmocka_unit_test(tools_are_run)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
