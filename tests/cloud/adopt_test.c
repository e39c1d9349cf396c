// SPDX-License-Identifier: Apache-2.0
// adopt_test.c - guests outlive their daemon: killed with -9 and restarted, it finds them, their
// disks and their bill, and a guest that died in the meantime comes back with its disk.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest_testing.h"

#define PORT "18123"

// Starts the daemon on the earlier state; leaves its pid in $HOME/pid and its token in the
// environment.
static void start(void) {
  guest_must("vtpud --state=$HOME/state --project=lab-one --admin=a@b.c --new-token --guests=2 "
             "--port=" PORT " > $HOME/out 2>&1 & echo $! > $HOME/pid; "
             "for i in $(seq 6000); do grep -q 'token of' $HOME/out && exit 0; sleep 0.05; done; "
             "cat $HOME/out; exit 1");
  guest_must("sed -n 's/.*token of a@b.c: //p' $HOME/out");
  char token[128] = "";
  sscanf(vt_text_string(&guest_output), "%127s", token);
  setenv("VTPU_TOKEN", token, 1);
}

static void wait_for_state(const char *want) {
  guest_must("for i in $(seq 6000); do test \"$(vtpu tpu-vm describe one --format='value(state)' "
             "2>/dev/null)\" = %s && exit 0; sleep 0.05; done; "
             "cat $HOME/out; exit 1",
             want);
}

static void a_killed_daemon_finds_its_guests(void **state) {
  (void)state;
  start();
  guest_must("vtpu tpu-vm create one --accelerator-type=v4-16 --version=v2-alpha 2>&1");
  guest_must("vtpu tpu-vm ssh ada@one --worker=all --command='echo before > mark; cat "
             "/proc/sys/kernel/random/boot_id > /dev/null' 2>&1");
  guest_must("kill -9 $(cat $HOME/pid)");
  start();
  wait_for_state("READY");
  guest_must("vtpu tpu-vm ssh ada@one --worker=all --command='cat mark' 2>&1");
  guest_says("before");
  // One guest dies while the daemon is running: the node is repaired and keeps its disk.
  guest_must("kill -9 $(cut -d' ' -f1 $HOME/state/guests/*-1/pid)");
  guest_must("for i in $(seq 6000); do vtpu tpu-vm ssh ada@one --worker=1 --command='cat mark' > "
             "$HOME/mark 2>/dev/null && exit 0; sleep 0.1; done; "
             "cat $HOME/out; exit 1");
  guest_must("grep before $HOME/mark");
  guest_must("vtpu tpu-vm delete one --quiet 2>&1");
  // Nothing is left behind: no process, no disk.
  guest_must("for i in $(seq 6000); do test -z \"$(ls $HOME/state/guests)\" && exit 0; sleep 0.05; "
             "done; ls -R $HOME/state/guests | head; exit 1");
  guest_must("kill $(cat $HOME/pid); for i in $(seq 6000); do kill -0 $(cat $HOME/pid) 2>/dev/null "
             "|| exit 0; sleep 0.05; done; exit 1");
  guest_end();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_daemon_finds_its_guests)};
  int code = guest_namespace(NULL);
  if (code) return code;
  setenv("VTPU_ENDPOINT", "http://127.0.0.1:" PORT,
         1); // in its own network namespace every port is free
  setenv("VTPU_PROJECT", "lab-one", 1);
  setenv("VTPU_ZONE", "us-central2-b", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
