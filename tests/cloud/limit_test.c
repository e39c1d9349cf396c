// SPDX-License-Identifier: Apache-2.0
// limit_test.c - a guest that exhausts memory or CPU gets its share and no more, and the host keeps
// working: once with the best limits that this machine has, once with those that need nothing from
// it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_testing.h"

#define ZONE " --zone=us-central2-b "

enum { LIMIT_MIB = 256, EATEN_MIB = 1024 };

// Touches every page of a large array, larger than the limit of a process and of a group.
static const char eat[] = "import sys\n"
                          "parts = []\n"
                          "for i in range(%d):\n"
                          "    parts.append(b\"x\" * (1 << 20))\n"
                          "print(\"ate all\")\n";

// Four processes that only compute; prints their CPU time in three seconds.
static const char spin[] = "import os, resource, time\n"
                           "end = time.monotonic() + 3\n"
                           "for i in range(4):\n"
                           "    if os.fork() == 0:\n"
                           "        while time.monotonic() < end: pass\n"
                           "        os._exit(0)\n"
                           "for i in range(4): os.wait()\n"
                           "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
                           "print(\"seconds\", used.ru_utime + used.ru_stime)\n";

static int set_up(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create one" ZONE
             "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base 2>&1");
  guest_must("cat > $HOME/eat.py <<'EOF'\n%sEOF\nsed -i s/%%d/%d/ $HOME/eat.py", eat, EATEN_MIB);
  guest_must("cat > $HOME/spin.py <<'EOF'\n%sEOF\n", spin);
  guest_must("vtpu tpu-vm scp $HOME/eat.py $HOME/spin.py one:." ZONE "2>&1");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  guest_end();
  return 0;
}

static void describe_says_the_limits(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm describe one" ZONE "| grep -A20 ^vtpu:");
  guest_says("guestLevel: 2");
  guest_says("level 2: namespaces; ");
  guest_says("256 MiB");
  print_message("%s", vt_text_string(&guest_output));
}

static long available_mib(void) {
  long kib = 0;
  char line[128];
  FILE *file = fopen("/proc/meminfo", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %ld kB", &kib) == 1) break;
  if (file) fclose(file);
  return kib >> 10;
}

static void memory_is_limited(void **state) {
  (void)state;
  long before = available_mib(), least = before;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0)
    _exit(guest_sh("vtpu tpu-vm ssh one" ZONE
                   "--command='python3 eat.py' 2>&1 | grep -q \"ate all\"") == 0
              ? 0
              : 1);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    long now = available_mib();
    if (now < least) least = now;
    usleep(10000);
  }
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1); // it did not get all of it
  print_message("%ld MiB of the host's memory went\n", before - least);
  guest_must("vtpu tpu-vm ssh one" ZONE "--command='echo still here' 2>&1");
  guest_says("still here");
}

// The API reports it. Without a group nothing is killed: a process only gets its limit.
static void who_ran_out_has_a_symptom(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm describe one" ZONE);
  if (!strstr(vt_text_string(&guest_output), "(cgroup")) return;
  guest_must("for i in $(seq 6000); do vtpu tpu-vm describe one" ZONE "> $HOME/seen; grep -q "
             "'symptomType: OUT_OF_MEMORY' $HOME/seen && break; sleep 0.2; done; cat $HOME/seen");
  guest_says("symptomType: OUT_OF_MEMORY");
  guest_says("processes were ended, the worker has 256 MiB");
  guest_must("vtpu tpu-vm ssh one" ZONE "--command='cat /var/log/syslog' 2>&1");
  guest_says("vtpu-doctor: OUT_OF_MEMORY ");
}

static void cpu_is_limited(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm ssh one" ZONE "--command='python3 spin.py' 2>&1");
  const char *text = strstr(vt_text_string(&guest_output), "seconds ");
  assert_non_null(text);
  double seconds = strtod(text + 8, NULL);
  print_message("%.2f s of CPU in 3 s\n", seconds);
  assert_true(seconds < 3 * 1.3);
}

static void files_in_memory_are_limited(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm ssh one" ZONE
             "--command='dd if=/dev/zero of=/dev/shm/x bs=1M count=200; rm /dev/shm/x' 2>&1");
  guest_says("No space left on device");
}

static void a_guest_goes_first_when_memory_runs_out(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm ssh one" ZONE "--command='cat /proc/self/oom_score_adj' 2>&1");
  guest_says("500");
}

static int inner(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(describe_says_the_limits),
                                     cmocka_unit_test(memory_is_limited),
                                     cmocka_unit_test(who_ran_out_has_a_symptom),
                                     cmocka_unit_test(cpu_is_limited),
                                     cmocka_unit_test(files_in_memory_are_limited),
                                     cmocka_unit_test(a_guest_goes_first_when_memory_runs_out)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

int main(int argc, char **argv) {
  static const char *const needed[] = {"/usr/bin/sudo", NULL};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return inner();
  int code = guest_namespace(needed);
  if (code) return code;
  static const char *const ways[] = {"--guest-limits=auto", "--guest-limits=rlimit"};
  for (size_t i = 0; i < 2; i++) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
      execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--guest-memory=256",
            "--guest-cpus=1", ways[i], "--", argv[0], "inner", (char *)NULL);
      _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    if (i == 0 && mkdir(getenv("HOME"), 0700) != 0) return 1; // the first run removed it
  }
  return 0;
}
