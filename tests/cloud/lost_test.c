// SPDX-License-Identifier: Apache-2.0
// lost_test.c - lost workers, and how soon the API reports them: a stalled agent is the health
// TIMEOUT, even for a daemon that is started in the meantime; a worker whose first process is
// killed is repaired. A program that asks for too much HBM is a symptom.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "guest_testing.h"

#define PORT   "18124"
#define PYTHON VTPU_SOURCE_DIR "/build/venv/bin"

static void start(void) {
  guest_must("vtpud --state=$HOME/state --project=lab-one --admin=a@b.c --new-token --guests=2 "
             "--port=" PORT " --python=" PYTHON " > $HOME/out 2>&1 & echo $! > $HOME/pid; "
             "for i in $(seq 6000); do grep -q 'token of' $HOME/out && exit 0; sleep 0.05; done; "
             "cat $HOME/out; exit 1");
  guest_must("sed -n 's/.*token of a@b.c: //p' $HOME/out");
  char token[128] = "";
  sscanf(vt_text_string(&guest_output), "%127s", token);
  setenv("VTPU_TOKEN", token, 1);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// Bounded at a minute, far more than it takes; returns how long it took.
static double wait_for(const char *field, const char *want) {
  double begun = seconds();
  guest_must("for i in $(seq 6000); do test \"$(vtpu tpu-vm describe one --format='value(%s)' "
             "2>/dev/null)\" = \"%s\" && exit 0; sleep 0.1; done; "
             "vtpu tpu-vm describe one; tail -5 $HOME/out; exit 1",
             field, want);
  return seconds() - begun;
}

static void an_agent_that_stands_still(void **state) {
  (void)state;
  start();
  guest_must("vtpu tpu-vm create one --accelerator-type=v4-16 --version=v2-alpha 2>&1");
  guest_must("vtpu tpu-vm ssh ada@one --worker=1 --command='sudo pkill -STOP -f \"[v]tpu-guest "
             "agent\"' 2>&1");
  print_message("%.1f s from its last word to TIMEOUT\n", wait_for("health", "TIMEOUT"));
  guest_must("vtpu tpu-vm describe one");
  guest_says("state: READY");
  guest_says("healthDescription: Worker 1 is not heard of.");
  guest_must("vtpu tpu-vm doctor one");
  guest_says("No host runs a program; worker 1 is not heard of.");
  // A restarted daemon does not take it back.
  guest_must("kill -9 $(cat $HOME/pid)");
  start();
  for (int i = 0; i < 14; i++) {
    guest_must("vtpu tpu-vm describe one --format='value(health)'; sleep 1");
    guest_says("TIMEOUT");
  }
  guest_must("vtpu tpu-vm ssh ada@one --worker=1 --command='sudo pkill -CONT -f \"[v]tpu-guest "
             "agent\"' 2>&1");
  print_message("%.1f s from there to HEALTHY\n", wait_for("health", "HEALTHY"));
}

static void a_killed_worker(void **state) {
  (void)state;
  guest_must("kill -9 $(cut -d' ' -f1 $HOME/state/guests/*-1/pid)");
  double begun = seconds();
  // REPAIRING may be over before anyone asks: the audit trail keeps it.
  guest_must("for i in $(seq 6000); do curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" "
             "$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/events | grep -q 'READY to REPAIRING' "
             "&& exit 0; sleep 0.1; done; exit 1");
  print_message("%.1f s from kill -9 of a worker to REPAIRING\n", seconds() - begun);
  print_message("%.1f s more to READY\n", wait_for("state", "READY"));
  wait_for("health", "HEALTHY");
}

static void a_program_that_is_too_large(void **state) {
  (void)state;
  guest_must("cat > $HOME/large.py <<'EOF'\n"
             "import jax, jax.numpy as np\n"
             "try: print(jax.jit(lambda: np.ones((1 << 20, 1 << 16), np.float32))().shape)\n"
             "except Exception as e: print('refused', str(e)[:40])\n"
             "EOF\n"
             "vtpu tpu-vm scp $HOME/large.py ada@one:. --worker=all 2>&1 && "
             "vtpu tpu-vm ssh ada@one --worker=all --command='python3 -W ignore large.py' 2>&1");
  guest_says("refused");
  wait_for("symptoms[0].symptomType", "HBM_OUT_OF_MEMORY");
  guest_must("vtpu tpu-vm describe one");
  guest_says("a program of ada asked for 256.00 GiB that do not fit");
  guest_must("vtpu tpu-vm delete one --quiet 2>&1");
  guest_must("kill $(cat $HOME/pid); for i in $(seq 6000); do kill -0 $(cat $HOME/pid) 2>/dev/null "
             "|| exit 0; sleep 0.05; done; exit 1");
  guest_end();
}

int main(void) {
  static const char *const needed[] = {PYTHON "/python3", "/usr/bin/sudo", NULL};
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_agent_that_stands_still),
                                     cmocka_unit_test(a_killed_worker),
                                     cmocka_unit_test(a_program_that_is_too_large)};
  int code = guest_namespace(needed);
  if (code) return code;
  setenv("VTPU_ENDPOINT", "http://127.0.0.1:" PORT,
         1); // in its own network namespace every port is free
  setenv("VTPU_PROJECT", "lab-one", 1);
  setenv("VTPU_ZONE", "us-central2-b", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
