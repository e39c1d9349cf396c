// SPDX-License-Identifier: Apache-2.0
// commands_test.c - every flag of every command of `vtpu` and of vtpud, misspelt by one letter in
// each way: the error names the right one, and nothing is sent to vtpud. The pages that are
// generated from the tables have every flag.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/command.h"
#include "base/text.h"
#include "cloud/client/cloud_cli.h"
#include "passes/collectives.h"
#include "tpu1/cli.h"

static const vt_command_row own_rows[] = {
#include "base/command_rows.h"
#include "cli/commands.def"
#include "base/command_rows_end.h"
};
static const vt_command_table own = {"vtpu", own_rows, sizeof own_rows / sizeof *own_rows};
static const vt_command_row daemon_rows[] = {
#include "base/command_rows.h"
#include "cloud/vtpud.def"
#include "base/command_rows_end.h"
};
static const vt_command_table daemon_table = {"vtpud", daemon_rows,
                                              sizeof daemon_rows / sizeof *daemon_rows};

static int listener;

// An address that a command would connect to, if it did.
static int open_listener(void **state) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  char url[64];
  (void)state;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(listener, 64), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", (int)ntohs(at.sin_port));
  setenv("VTPU_ENDPOINT", url, 1);
  setenv("VTPU_TOKEN", "token", 1);
  setenv("VTPU_PROJECT", "project", 1);
  setenv("VTPU_ZONE", "us-central2-b", 1);
  return 0;
}

static void nothing_was_sent(const char *line) {
  int fd = accept(listener, NULL, NULL);
  if (fd >= 0) fail_msg("%s: it spoke to the vtpud", line);
}

typedef enum way { IN_PROCESS_CLOUD, IN_PROCESS_V1, PROGRAM } way;

// Runs a line and returns its exit code and what it printed on both outputs.
static int run(way how, const char *program, int argc, char **argv, vt_text *out) {
  int status = 0;
  FILE *file = tmpfile();
  assert_non_null(file);
  fflush(stdout);
  fflush(stderr);
  if (how == PROGRAM) {
    pid_t pid = fork();
    if (pid == 0) {
      char path[512];
      snprintf(path, sizeof path, "%s/%s", VTPU_BIN_DIR, program);
      dup2(fileno(file), 1);
      dup2(fileno(file), 2);
      argv[-1] = path;
      argv[argc] = NULL;
      execv(path, argv - 1);
      _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  } else {
    int kept = dup(2);
    dup2(fileno(file), 2);
    status = how == IN_PROCESS_V1 ? vt_tpu1_cli(argc, argv) : vt_cloud_cli(argc, argv);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
  }
  char bytes[4096];
  vt_text_free(out);
  rewind(file);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) vt_text_put_n(out, bytes, n);
  fclose(file);
  return status;
}

// The line of a command with as many words as it takes and one more argument.
static int make_line(const vt_command_row *command, char *extra, vt_arena *arena, char **argv) {
  char *name = vt_arena_copy(arena, command->name, strlen(command->name)), *save = NULL;
  int argc = 0;
  for (char *word = strtok_r(name, " ", &save); word; word = strtok_r(NULL, " ", &save))
    argv[argc++] = word;
  for (int64_t i = 0; i < command->least; i++) argv[argc++] = vt_arena_copy(arena, "x:y", 3);
  argv[argc++] = extra;
  return argc;
}

static bool is_flag_of(const vt_command_table *table, const vt_command_row *command,
                       const char *name, size_t size) {
  const vt_command_row *group = command, *end = table->rows + table->count, *row;
  while (group > table->rows && group->kind != VT_COMMAND_GROUP) group--;
  for (int i = 0; i < 2; i++)
    for (row = (i ? command : group) + 1;
         row < end && row->kind != VT_COMMAND_WORD && row->kind != VT_COMMAND_GROUP; row++)
      if (strlen(row->name) == size && memcmp(row->name, name, size) == 0) return true;
  return size == 4 && memcmp(name, "help", 4) == 0;
}

static void misspell(const vt_command_table *table, way how, const vt_command_row *command,
                     const vt_command_row *flag) {
  size_t size = strlen(flag->name);
  // A letter omitted, doubled, replaced or added; two transposed letters are two mistakes.
  for (int kind = 0; kind < 4; kind++) {
    vt_arena arena = {0};
    vt_text said = {0};
    char *words[32], extra[128], want[128];
    size_t at = size / 2;
    static const int cut[] = {1, 0, 1, 0};
    static const char *const put[] = {"", NULL, "q", "w"};
    snprintf(extra, sizeof extra, "--%.*s%.*s%s%s", (int)at, flag->name, kind == 1, flag->name + at,
             put[kind] ? put[kind] : "", flag->name + at + cut[kind]);
    if (is_flag_of(table, command, extra + 2, strlen(extra + 2))) continue;
    if (how == PROGRAM && kind > 1 && *table->program && table != &own) continue; // enough of them
    strcat(extra, flag->kind == VT_FLAG_SWITCH ? "" : "=1");
    int argc = make_line(command, extra, &arena, words + 1);
    int code = run(how, table->program, argc, words + 1, &said);
    snprintf(want, sizeof want, "--%s", flag->name);
    const char *mean = strstr(vt_text_string(&said), "do you mean");
    if (code == 0 || !mean || !strstr(mean, want))
      fail_msg("%s %s: exit code %d: %s", command->name, extra, code, vt_text_string(&said));
    nothing_was_sent(extra);
    vt_text_free(&said);
    vt_arena_free(&arena);
  }
}

static int misspell_all(const vt_command_table *table, way how) {
  int flags = 0;
  const vt_command_row *group = NULL, *end = table->rows + table->count;
  for (const vt_command_row *row = table->rows; row < end; row++) {
    if (row->kind == VT_COMMAND_GROUP) group = row;
    if (row->kind != VT_COMMAND_WORD) continue;
    for (int i = 0; i < 2; i++)
      for (const vt_command_row *flag = (i ? row : group) + 1;
           flag < end && flag->kind != VT_COMMAND_WORD && flag->kind != VT_COMMAND_GROUP; flag++) {
        misspell(table, how, row, flag);
        flags++;
      }
  }
  return flags;
}

static void a_misspelt_flag_names_the_right_one(void **state) {
  (void)state;
  assert_in_range(misspell_all(&vt_cloud_commands, IN_PROCESS_CLOUD), 400, 2000);
  assert_in_range(misspell_all(&vt_tpu1_commands, IN_PROCESS_V1), 30, 200);
  assert_in_range(misspell_all(&own, PROGRAM), 5, 100);
  assert_in_range(misspell_all(&daemon_table, PROGRAM), 40, 100);
}

static void a_misspelt_command_names_the_right_one(void **state) {
  static const char *const lines[][3] = {{"tpu-vm crate x", "do you mean tpu-vm create", "cloud"},
                                         {"tpu-vm del x", "do you mean tpu-vm delete", "cloud"},
                                         {"queued-resources lst", "queued-resources list", "cloud"},
                                         {"quotas info lists", "quotas info list", "cloud"},
                                         {"tpu-wm list", "do you mean tpu-vm list", "vtpu"},
                                         {"exek a", "do you mean exec", "vtpu"}};
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char line[64], *words[16], *save = NULL;
    int argc = 0;
    vt_text said = {0};
    snprintf(line, sizeof line, "%s", lines[i][0]);
    for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
      words[1 + argc++] = word;
    bool cloud = strcmp(lines[i][2], "cloud") == 0;
    int code = run(cloud ? IN_PROCESS_CLOUD : PROGRAM, "vtpu", argc, words + 1, &said);
    if (code != 2 || !strstr(vt_text_string(&said), lines[i][1]))
      fail_msg("%s: %d: %s", lines[i][0], code, vt_text_string(&said));
    nothing_was_sent(lines[i][0]);
    vt_text_free(&said);
  }
}

// Values that no daemon should see, of cloud commands.
static void a_bad_value_is_not_sent(void **state) {
  static const char *const lines[] = {
      "queued-resources create x --node-id=y --runtime-version=v --valid-until-duration=",
      "queued-resources create x --node-id=y --runtime-version=v --valid-until-duration=h",
      "queued-resources create x --node-id=y --runtime-version=v --valid-until-duration=1h "
      "--valid-after-duration=1h",
      "queued-resources create x --node-count=0 --runtime-version=v",
      "queued-resources create x --node-count=99999999999999999999 --runtime-version=v",
      "tpu-vm create x --version=v --labels==b",
      "tpu-vm create x --version=v --labels=a",
      "tpu-vm create x --version=v --description=\xff",
      "tpu-vm delete \xff",
      "tpu-vm delete x --zone",
      "tpu-vm delete x --zone=",
      "tpu-vm delete x --zone=a/../b",
      "tpu-vm delete x --project=a?b",
      "tpu-vm delete x y",
      "tpu-vm delete x -- y",
      "tpu-vm list --filter=a",
      "tpu-vm ssh x --worker=",
      "tpu-vm ssh x --worker=a",
      "tpu-vm ssh x --worker=1-",
      "tpu-vm ssh x --worker=99999999",
      "tpu-vm ssh -oProxyCommand=true@x",
      "tpu-vm release x --worker=-1",
      "tpu-vm release x --pid=0",
      "tpu-vm announce-maintenance x --in=",
      "tpu-vm announce-maintenance x --in=99999999999d",
      "disks create x --size=",
      "disks create x --size=0GB",
      "disks create x --size=1PB",
      "disks create x --type=pd",
      "accounts create x --days=0",
      "accounts create x --role=root",
      "accounts update x --enable --disable",
      "quotas preferences create --quota-id=a --preferred-value=-2",
      "compute start-iap-tunnel a/b 22 --listen-on-stdin",
      "compute start-iap-tunnel a 22 --local-host-port=x",
      "compute start-iap-tunnel a 22 --local-host-port=127.0.0.1:70000",
  };
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char line[256], *words[16], *save = NULL;
    int argc = 0;
    vt_text said = {0};
    snprintf(line, sizeof line, "%s", lines[i]);
    for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
      words[argc++] = word;
    int code = run(IN_PROCESS_CLOUD, "", argc, words, &said);
    if (code == 0 || !strstr(vt_text_string(&said), "ERROR: "))
      fail_msg("%s: %d: %s", lines[i], code, vt_text_string(&said));
    nothing_was_sent(lines[i]);
    vt_text_free(&said);
  }
}

static void read_pages(const char *program, const char *flag, const char *second, vt_text *out) {
  char *words[4] = {NULL, (char *)flag, (char *)second, NULL};
  assert_int_equal(run(PROGRAM, program, second ? 2 : 1, words + 1, out), 0);
}

static void the_pages_have_every_flag(void **state) {
  const vt_command_table *tables[] = {&own, &vt_tpu1_commands, &vt_cloud_commands, &daemon_table};
  vt_text manual[2] = {{0}}, completion[2] = {{0}};
  (void)state;
  read_pages("vtpu", "--man", NULL, &manual[0]);
  read_pages("vtpud", "--man", NULL, &manual[1]);
  read_pages("vtpu", "--completion", "bash", &completion[0]);
  read_pages("vtpud", "--completion", "bash", &completion[1]);
  for (size_t t = 0; t < 4; t++)
    for (size_t i = 0; i < tables[t]->count; i++) {
      const vt_command_row *row = &tables[t]->rows[i];
      if (row->kind == VT_COMMAND_GROUP || row->kind == VT_COMMAND_WORD) continue;
      char name[128], roff[256] = "";
      snprintf(name, sizeof name, " --%s", row->name);
      for (const char *p = name + 1; *p; p++) strcat(roff, *p == '-' ? "\\-" : (char[]){*p, 0});
      if (!strstr(vt_text_string(&manual[t == 3]), roff)) fail_msg("manual: %s", roff);
      if (!strstr(vt_text_string(&completion[t == 3]), name)) fail_msg("completion: %s", name);
    }
  for (int i = 0; i < 2; i++) vt_text_free(&manual[i]), vt_text_free(&completion[i]);
}

static void flags_may_come_first(void **state) {
  char *lines[][8] = {{NULL, "--zone=us-central2-b", "tpu-vm", "list", "--help"},
                      {NULL, "--zone", "us-central2-b", "beta", "tpu-vm", "list", "--help"}};
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    vt_text said = {0};
    int code = run(PROGRAM, "vtpu", i ? 6 : 4, lines[i] + 1, &said);
    if (code != 0 || !strstr(vt_text_string(&said), "tpu-vm list"))
      fail_msg("line %zu: %d: %s", i, code, vt_text_string(&said));
    vt_text_free(&said);
  }
}

static void bash_completes(void **state) {
  static const char *const cases[][2] = {
      {"vtpu tpu-vm cr", "create"},
      {"vtpu tp", "tpu-vm"},
      {"vtpu tpu-vm create --accel", "--accelerator-type="},
      {"vtpu tpu-vm delete x --zo", "--zone="},
      {"vtpu disks create x --type = pd-s", "pd-ssd pd-standard"},
      {"vtpu quotas preferences app", "approve"},
      {"vtpud --ephem", "--ephemeral"},
      {"vtpud --guest-l", "--guest-limits="},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char command[1024], got[256] = "";
    snprintf(command, sizeof command,
             "bash -c 'for p in vtpu vtpud; do eval \"$(%s/$p --completion bash)\"; done; "
             "COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _${COMP_WORDS[0]}; "
             "echo \"${COMPREPLY[@]}\"'",
             VTPU_BIN_DIR, cases[i][0]);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    if (fgets(got, sizeof got, pipe)) got[strcspn(got, "\n")] = 0;
    pclose(pipe);
    if (strcmp(got, cases[i][1]) != 0)
      fail_msg("%s: '%s', not '%s'", cases[i][0], got, cases[i][1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_misspelt_flag_names_the_right_one),
      cmocka_unit_test(a_misspelt_command_names_the_right_one),
      cmocka_unit_test(a_bad_value_is_not_sent),
      cmocka_unit_test(the_pages_have_every_flag),
      cmocka_unit_test(flags_may_come_first),
      cmocka_unit_test(bash_completes),
  };
  return cmocka_run_group_tests(tests, open_listener, NULL);
}
