// SPDX-License-Identifier: Apache-2.0
// holder_test.c - JAX programs on the hosts of a slice: who has the chips and with which versions,
// what the doctor reports on the command line and in every worker's log; and taking the chips away
// from a process that ignores signals, is killed by others, or lies about its identity.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest_testing.h"

#define PYTHON VTPU_SOURCE_DIR "/build/venv/bin"
#define ZONE   " --zone=us-central2-b "
#define SSH(user, worker, command)                                                                 \
  "vtpu tpu-vm ssh " user "@pod" ZONE "--worker=" worker " --command='" command "' 2>&1"
#define DOCTOR "vtpu tpu-vm doctor pod" ZONE "2>&1"
// Bounded: agents report every five seconds, and a verdict must hold for ten before it is logged.
#define UNTIL(command, words)                                                                      \
  "for i in $(seq 6000); do " command " > $HOME/seen; grep -q \"" words "\" $HOME/seen && "        \
  "cat $HOME/seen && exit 0; sleep 0.2; done; cat $HOME/seen; exit 1"

// Holds the chips until it is told to end; reports its argument as the version of JAX. It does not
// wait for the other worker of the slice.
static const char program[] =
    "import os; os.environ['VTPU_HOSTS'] = 'alone'\n"
    "import jax, os, sys, time\n"
    "if len(sys.argv) > 1: jax.config.update('jax_pjrt_client_create_options', "
    "'ml_framework_name:JAX;ml_framework_version:' + sys.argv[1])\n"
    "jax.devices()\n"
    "while not os.path.exists('end'): time.sleep(0.1)\n";

// The same, but ignores SIGTERM.
static const char deaf[] = "import os; os.environ['VTPU_HOSTS'] = 'alone'\n"
                           "import jax, signal, time\n"
                           "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                           "jax.devices()\n"
                           "time.sleep(600)\n";

// A page under the pid of the worker's first process, locked by this one.
static const char liar[] = "import fcntl, os, struct, time\n"
                           "folder = os.environ.get('VTPU_ACTIVITY', '/run/vtpu/activity')\n"
                           "page = struct.pack('=8s11Q112s', b'VTUACTY3', *[0] * 10, 77, b'x=1')\n"
                           "file = open(folder + '/1', 'w+b')\n"
                           "file.write(page)\n"
                           "file.flush()\n"
                           "fcntl.lockf(file, fcntl.LOCK_EX)\n"
                           "time.sleep(600)\n";

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool isolated(void) { // at level 1 the worker's log is in a folder of the host
  return strcmp(getenv("VTPU_TEST_LEVEL"), "2") == 0;
}

static int count(const char *word) {
  int n = 0;
  for (const char *p = vt_text_string(&guest_output); (p = strstr(p, word)); p += strlen(word)) n++;
  return n;
}

static void one_host_of_two(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create pod" ZONE
             "--accelerator-type=v4-16 --version=tpu-ubuntu2204-base 2>&1");
  guest_must("cat > $HOME/hold.py <<'EOF'\n%sEOF\ncat > $HOME/deaf.py <<'EOF'\n%sEOF\n"
             "cat > $HOME/liar.py <<'EOF'\n%sEOF\n"
             "for user in ada bob; do vtpu tpu-vm scp $HOME/hold.py $HOME/deaf.py $HOME/liar.py "
             "$user@pod:." ZONE "--worker=all 2>&1 || exit 1; done",
             program, deaf, liar);
  guest_must(DOCTOR);
  guest_says("No host runs a program.");
  guest_must(SSH("ada", "0", "nohup python3 hold.py > log 2>&1 &"));
  guest_must(UNTIL(DOCTOR, "1 of 2 hosts run a program: host 1 has not started; start it with "
                           "--worker=all"));
  guest_says(" ada ");
  guest_says("python3 hold.py");
  guest_says("libvtpu ");
  guest_says(", JAX 0.");
  guest_says(", python 3.");
  print_message("%s", vt_text_string(&guest_output));
  guest_must("vtpu tpu-vm describe pod" ZONE);
  guest_says("verdict: ");
}

static void every_worker_logs_it_once(void **state) {
  (void)state;
  if (!isolated()) return;
  for (int worker = 0; worker < 2; worker++) {
    guest_must("for i in $(seq 6000); do vtpu tpu-vm ssh ada@pod" ZONE
               "--worker=%d --command='cat /var/log/syslog' 2>&1 | grep -q 'host 1 has not' && "
               "exit 0; sleep 0.3; done; exit 1",
               worker);
  }
  sleep(6); // three more heartbeats
  guest_must(SSH("ada", "1", "cat /var/log/syslog"));
  assert_int_equal(count("1 of 2 hosts run a program"), 1);
  guest_says("-w-1 vtpu-doctor: 1 of 2 hosts");
  print_message("%s", vt_text_string(&guest_output));
}

static void versions_are_compared(void **state) {
  (void)state;
  guest_must(SSH("bob", "1", "nohup python3 hold.py 0.9.1 > log 2>&1 &"));
  guest_must(UNTIL(DOCTOR, "2 of 2 hosts run a program; versions differ: worker 0 runs JAX 0.* "
                           "worker 1 JAX 0.9.1"));
  guest_says(" bob ");
}

static void they_end(void **state) {
  (void)state;
  guest_must(SSH("ada", "0", "touch end"));
  guest_must(SSH("bob", "1", "touch end"));
  guest_must(UNTIL(DOCTOR, "No host runs a program"));
}

static void a_released_process_ends(void **state) {
  (void)state;
  static const char *const programs[] = {"rm -f end; nohup python3 hold.py > log 2>&1 &",
                                         "nohup python3 deaf.py > log 2>&1 &",
                                         "nohup python3 liar.py > log 2>&1 &"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    guest_must("vtpu tpu-vm ssh bob@pod" ZONE "--worker=1 --command='%s' 2>&1", programs[i]);
    guest_must(UNTIL(DOCTOR, "1  *[0-9][0-9]*  *bob "));
    assert_int_equal(count("\n1        1 "), 0);
    double begun = seconds();
    guest_must("vtpu tpu-vm release pod" ZONE "--worker=1 2>&1");
    guest_says(" of bob (");
    guest_must(UNTIL(DOCTOR, "No host runs a program"));
    print_message("%.1f s to take the chips from %s\n", seconds() - begun,
                  strchr(programs[i], '3') + 2);
    guest_must(SSH("bob", "1", "pgrep -u bob python3 || echo none"));
    guest_says("none");
  }
  if (isolated()) guest_must(SSH("ada", "1", "cat /var/log/syslog"));
  if (isolated()) assert_int_equal(count(" has the chips and is ended for "), 3);
  assert_int_not_equal(guest_sh("vtpu tpu-vm release pod" ZONE "--worker=1 2>&1"), 0);
  guest_says("No process has the chips of worker 1.");
}

// Nothing that a process leaves behind holds the chips.
static void a_killed_process_holds_nothing(void **state) {
  (void)state;
  guest_must(SSH("ada", "0", "rm -f end; nohup python3 hold.py > log 2>&1 &"));
  guest_must(UNTIL(DOCTOR, "0  *[0-9][0-9]*  *ada "));
  double begun = seconds();
  guest_must(SSH("ada", "0", "pkill -9 -u ada -f \"^python3 hold.py\""));
  guest_must(
      SSH("ada", "0",
          "VTPU_HOSTS=alone python3 -W ignore -c \"import jax; print(len(jax.devices()), 0)\""));
  guest_says("8 0");
  guest_must(UNTIL(DOCTOR, "No host runs a program"));
  print_message("%.1f s until a killed process is out of the table\n", seconds() - begun);
  guest_must("vtpu tpu-vm delete pod --quiet" ZONE "2>&1");
  guest_end();
}

int main(int argc, char **argv) {
  static const char *const needed[] = {PYTHON "/python3", NULL};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_host_of_two),         cmocka_unit_test(every_worker_logs_it_once),
      cmocka_unit_test(versions_are_compared),   cmocka_unit_test(they_end),
      cmocka_unit_test(a_released_process_ends), cmocka_unit_test(a_killed_process_holds_nothing)};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
  int code = guest_namespace(needed);
  if (code) return code;
  static const char *const levels[] = {"2", "1"};
  for (size_t i = 0; i < 2; i++) {
    int status = 0;
    char guests[16];
    snprintf(guests, sizeof guests, "--guests=%s", levels[i]);
    setenv("VTPU_TEST_LEVEL", levels[i], 1);
    pid_t child = fork();
    if (child == 0) {
      execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", guests, "--python=" PYTHON, "--",
            argv[0], "inner", (char *)NULL);
      _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    if (i == 0 && mkdir(getenv("HOME"), 0700) != 0) return 1; // the first run removed it
  }
  return 0;
}
