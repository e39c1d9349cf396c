// SPDX-License-Identifier: Apache-2.0
// clouds_test.c - clouds of level 1 on one machine share no address. Killing an ephemeral cloud
// ends its workers; killing one with a state folder leaves them, and `vtpud --clean` ends these but
// nothing of a live cloud.
#include <stdio.h>
#include <stdlib.h>

#include "guest_testing.h"

#define CREATE                                                                                     \
  "vtpu tpu-vm create one --zone=us-central2-b --accelerator-type=v4-8 "                           \
  "--version=tpu-ubuntu2204-base 2>&1 && vtpu tpu-vm describe one --zone=us-central2-b "           \
  "--format='value(networkEndpoints[0].ipAddress)'"
// Another ephemeral cloud; its file is sourced to talk to it.
#define OTHER                                                                                      \
  "setsid vtpud --ephemeral --guests=1 > $HOME/other 2> $HOME/log & for i in $(seq 6000); do "     \
  "grep -q VTPUD_PID $HOME/other && exit 0; sleep 0.1; done; cat $HOME/other $HOME/log; exit 1"
#define IN_OTHER ". $HOME/other; "
// A cloud with a state folder, and the environment to talk to it.
#define KEPT                                                                                       \
  "setsid vtpud --state=$HOME/kept --project=kept --admin=a@b.c --guests=1 --port=18129 > "        \
  "$HOME/kept.out 2>&1 "
#define IN_KEPT                                                                                    \
  "export VTPU_ENDPOINT=http://127.0.0.1:18129 VTPU_PROJECT=kept "                                 \
  "VTPU_TOKEN=$(sed -n 's/.*token of a@b.c: //p' $HOME/kept.out); "
#define NOBODY_ANSWERS "! timeout 60 bash -c 'exec 3<>/dev/tcp/'$(cat $HOME/ip)'/22' 2>/dev/null"

static void clouds_do_not_meet(void **state) {
  (void)state;
  guest_must(CREATE " > $HOME/mine; cat $HOME/mine");
  guest_must(OTHER);
  guest_must(IN_OTHER CREATE " > $HOME/its; cat $HOME/its");
  guest_must("test $(grep -c ^127.64 $HOME/mine) = 1 && test $(grep -c ^127.64 $HOME/its) = 1 && "
             "! grep -qxf $HOME/its $HOME/mine");
}

static void a_killed_throw_away_takes_its_workers_along(void **state) {
  (void)state;
  guest_must(IN_OTHER "S=$(dirname $GOOGLE_APPLICATION_CREDENTIALS); kill -9 $VTPUD_PID; "
                      "for i in $(seq 6000); do test -e $S || exit 0; sleep 0.05; done; "
                      "ls -R $S; exit 1");
  guest_must("grep ^127.64 $HOME/its > $HOME/ip; " NOBODY_ANSWERS);
}

static void what_is_left_is_cleaned(void **state) {
  (void)state;
  guest_must("vtpud --clean");
  guest_must(KEPT
             "& echo $! > $HOME/pid; for i in $(seq 6000); do grep -q 'token of' $HOME/kept.out "
             "&& exit 0; sleep 0.05; done; cat $HOME/kept.out; exit 1");
  guest_must(IN_KEPT CREATE " > $HOME/left; cat $HOME/left");
  guest_must("vtpud --clean --state=$HOME/kept && exit 1; kill -9 $(cat $HOME/pid); "
             "for i in $(seq 6000); do flock -n $HOME/kept/lock true && exit 0; sleep 0.05; done; "
             "exit 1");
  // Its worker keeps running, since a restarted daemon takes it over.
  guest_must("grep ^127.64 $HOME/left > $HOME/ip; timeout 120 bash -c 'exec 3<>/dev/tcp/'$(cat "
             "$HOME/ip)'/22'");
  guest_must("cd $HOME && vtpud --clean --state=kept");
  guest_says("ended ");
  guest_must(NOBODY_ANSWERS);
  // This one lives, and is reported as live.
  guest_must("vtpu tpu-vm ssh ada@one --zone=us-central2-b --command='echo here' 2>&1");
  guest_says("here");
}

// State written by an unprivileged account can only name that account's processes.
static void the_folder_of_an_account_ends_its_own_processes(void **state) {
  (void)state;
  guest_must(
      "mkdir -p $HOME/theirs/guests/1-0 && cd $HOME/theirs && touch lock && "
      "stamp() { echo $1 $(sed 's/.*) //' /proc/$1/stat | cut -d' ' -f20); }; "
      "setsid sleep 4322 > /dev/null 2>&1 & root=$!; "
      "setsid setpriv --reuid=65534 --clear-groups sleep 4323 > /dev/null 2>&1 & own=$!; "
      "for i in $(seq 6000); do pgrep -u 65534 -f '^sleep 4323' && break; sleep 0.05; done; "
      "cd $HOME/theirs && stamp $root > guests/1-0/launcher && stamp $own > guests/1-0/pid && "
      "chown -R 65534 $HOME/theirs && vtpud --clean --state=$HOME/theirs; "
      "pgrep -f '^sleep 4322'; echo root $?; pgrep -f '^sleep 4323'; echo own $?; "
      "kill $root");
  guest_says("ended 1 processes of 1 workers");
  guest_says("root 0\n");
  guest_says("own 1\n");
}

int main(int argc, char **argv) {
  static const char *const needed[] = {"/usr/bin/setsid", "/usr/bin/flock", "/usr/bin/setpriv",
                                       "/usr/bin/pgrep", NULL};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clouds_do_not_meet),
      cmocka_unit_test(a_killed_throw_away_takes_its_workers_along),
      cmocka_unit_test(what_is_left_is_cleaned),
      cmocka_unit_test(the_folder_of_an_account_ends_its_own_processes)};
  if (argc > 1) return cmocka_run_group_tests(tests, NULL, NULL);
  int code = guest_namespace(needed);
  if (code) return code;
  if (system("ls /usr/lib/*/libnss_wrapper.so > /dev/null 2>&1") != 0) {
    printf("skipped: libnss_wrapper.so (Debian: libnss-wrapper)\n");
    return 77;
  }
  vt_text command = {0};
  vt_text_printf(&command, "exec vtpud --ephemeral --guests=1 -- %s inner", argv[0]);
  int status = system(vt_text_string(&command));
  vt_text_free(&command);
  guest_end();
  return status != 0;
}
