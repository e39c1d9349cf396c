// SPDX-License-Identifier: Apache-2.0
// holder_test.c - JAX programs on the hosts of a slice: who has the chips, of which versions, what
// the doctor says of it on the command line and in every worker's log.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_testing.h"

#define PYTHON VTPU_SOURCE_DIR "/build/venv/bin"
#define ZONE   " --zone=us-central2-b "
#define SSH(user, worker, command)                                                                 \
  "vtpu tpu-vm ssh " user "@pod" ZONE "--worker=" worker " --command='" command "' 2>&1"
#define DOCTOR "vtpu tpu-vm doctor pod" ZONE "2>&1"
// Bounded: agents report every five seconds, and a verdict stands for ten before it is logged.
#define UNTIL(command, words)                                                                      \
  "for i in $(seq 300); do " command " > $HOME/seen; grep -q \"" words "\" $HOME/seen && "         \
  "cat $HOME/seen && exit 0; sleep 0.2; done; cat $HOME/seen; exit 1"

// Has the chips until it is told to end; says what version of JAX it is by its argument.
static const char program[] =
    "import jax, os, sys, time\n"
    "if len(sys.argv) > 1: jax.config.update('jax_pjrt_client_create_options', "
    "'ml_framework_name:JAX;ml_framework_version:' + sys.argv[1])\n"
    "jax.devices()\n"
    "while not os.path.exists('end'): time.sleep(0.1)\n";

static int count(const char *word) {
  int n = 0;
  for (const char *p = vt_text_string(&guest_output); (p = strstr(p, word)); p += strlen(word)) n++;
  return n;
}

static void one_host_of_two(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create pod" ZONE
             "--accelerator-type=v4-16 --version=tpu-ubuntu2204-base 2>&1");
  guest_must("cat > $HOME/hold.py <<'EOF'\n%sEOF\n"
             "vtpu tpu-vm scp $HOME/hold.py ada@pod:/tmp/hold.py" ZONE "--worker=all 2>&1",
             program);
  guest_must(DOCTOR);
  guest_says("No host runs a program.");
  guest_must(SSH("ada", "0", "nohup python3 /tmp/hold.py > log 2>&1 &"));
  guest_must(UNTIL(DOCTOR, "1 of 2 hosts run a program: host 1 has not started; start it with "
                           "--worker=all"));
  guest_says(" ada ");
  guest_says("python3 /tmp/hold.py");
  guest_says("libvtpu ");
  guest_says(", JAX 0.");
  guest_says(", python 3.");
  print_message("%s", vt_text_string(&guest_output));
  guest_must("vtpu tpu-vm describe pod" ZONE);
  guest_says("verdict: ");
}

static void every_worker_logs_it_once(void **state) {
  (void)state;
  for (int worker = 0; worker < 2; worker++) {
    guest_must("for i in $(seq 100); do vtpu tpu-vm ssh ada@pod" ZONE
               "--worker=%d --command='cat /var/log/syslog' 2>&1 | grep -q 'host 1 has not' && "
               "exit 0; sleep 0.3; done; exit 1",
               worker);
  }
  sleep(6); // three more beats
  guest_must(SSH("ada", "1", "cat /var/log/syslog"));
  assert_int_equal(count("1 of 2 hosts run a program"), 1);
  guest_says("-w-1 vtpu-doctor: 1 of 2 hosts");
  print_message("%s", vt_text_string(&guest_output));
}

static void versions_are_compared(void **state) {
  (void)state;
  guest_must(SSH("bob", "1", "nohup python3 /tmp/hold.py 0.9.1 > log 2>&1 &"));
  guest_must(UNTIL(DOCTOR, "2 of 2 hosts run a program; versions differ: worker 0 runs JAX 0.* "
                           "worker 1 JAX 0.9.1"));
  guest_says(" bob ");
}

static void they_end(void **state) {
  (void)state;
  guest_must(SSH("ada", "0", "touch end"));
  guest_must(SSH("bob", "1", "touch end"));
  guest_must(UNTIL(DOCTOR, "No host runs a program"));
  guest_must("vtpu tpu-vm delete pod --quiet" ZONE "2>&1");
  guest_end();
}

int main(int argc, char **argv) {
  static const char *const needed[] = {PYTHON "/python3", NULL};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_host_of_two), cmocka_unit_test(every_worker_logs_it_once),
      cmocka_unit_test(versions_are_compared), cmocka_unit_test(they_end)};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
  int code = guest_namespace(needed);
  if (code) return code;
  execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--python=" PYTHON, "--",
        argv[0], "inner", (char *)NULL);
  return 1;
}
