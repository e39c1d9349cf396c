// SPDX-License-Identifier: Apache-2.0
// slurm_test.c - TPU VMs on the hosts of a real Slurm cluster: one slurmctld, two slurmd, each host
// in its own network namespace. Workers land on both hosts, ssh reaches them, they reach each
// other; a killed daemon finds their jobs again; a host that dies, a job that is cancelled or
// preempted, a full cluster, and orphaned jobs are handled. Without Slurm, or where the kernel
// allows no guests, the test is skipped (77).
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_testing.h"

#define CLUSTER VTPU_SOURCE_DIR "/tests/cloud/slurm_cluster.sh"
#define WAIT(count, condition)                                                                     \
  "for i in $(seq " #count "); do " condition                                                      \
  " && exit 0; sleep 0.1; done; squeue --me --states=all; sinfo --Node --long; cat $HOME/out; "    \
  "cat $HOME/cluster/disks/*/*/log; exit 1"
// Hosts with a running job of ours.
#define HOSTS                                                                                      \
  "$(squeue --me --noheader --states=running --format='%%j %%N' | sed -n 's/^vtpu.* //p')"

#define AT(host, command) "nsenter --net=/proc/$(cat $HOME/cluster/" host "/holder)/ns/net " command
// Whether both hosts know where the other workers of a node on them are.
#define DIRECT                                                                                     \
  "{ " AT("h1", "ip rule") "| grep -q ^164: && " AT("h2", "ip rule") "| grep -q ^164:; }"
#define JOIN                                                                                       \
  "vtpu tpu-vm ssh ada@pod --worker=1 --command='H=$(grep -- -w-0 /etc/hosts | cut -d\" \" -f1); " \
  "timeout 120 bash -c \"exec 3<>/dev/tcp/$H/22\" && echo joined' 2>&1"

static void start(void) {
  guest_must("vtpud --state=$HOME/state --project=lab-one --admin=a@b.c --new-token --port=0 "
             "--config=$HOME/conf "
             "> $HOME/out 2>&1 & echo $! > $HOME/pid; for i in $(seq 6000); do grep -q 'token of' "
             "$HOME/out && exit 0; sleep 0.05; done; cat $HOME/out; exit 1");
  guest_must("sed -n 's/.*port \\([0-9]*\\)$/\\1/p; s/.*token of a@b.c: //p' $HOME/out");
  char token[128] = "", endpoint[64];
  int port = 0;
  assert_int_equal(sscanf(vt_text_string(&guest_output), "%d %127s", &port, token), 2);
  snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
  setenv("VTPU_TOKEN", token, 1);
  setenv("VTPU_ENDPOINT", endpoint, 1);
}

static void wait_for_state(const char *node, const char *want) {
  guest_must(WAIT(1500, "test \"$(vtpu tpu-vm describe %s --format='value(state)' "
                        "2>/dev/null)\" = %s"),
             node, want);
}

static int set_up(void **state) {
  (void)state;
  guest_must("cat > $HOME/conf <<END\nbackend = slurm\nguests = 2\nguest-cpus = 2\n"
             "slurm-partition = tpu\nslurm-spot-partition = low\nslurm-options = --comment=vtpu\n"
             "slurm-folder = $HOME/cluster/disks\nslurm-wait = 3\nnotice = 1\nEND");
  start();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  (void)guest_sh("kill -9 $(cat $HOME/pid); " CLUSTER " stop $HOME/cluster; sleep 0.5");
  guest_end();
  return 0;
}

static void workers_land_on_both_hosts(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create pod --accelerator-type=v4-16 --version=v2-alpha 2>&1 || "
             "{ cat $HOME/out $HOME/cluster/disks/*/*/log; squeue --me --states=all; exit 1; }");
  guest_must("echo " HOSTS " | tr ' ' '\\n' | sort | tr '\\n' ' '");
  guest_says("h1 h2");
  guest_must("vtpu tpu-vm ssh ada@pod --worker=all --command='hostname; echo before > mark' 2>&1");
  guest_says("-w-0");
  guest_says("-w-1");
  guest_must(JOIN); // from one host to the other
  guest_says("joined");
  guest_must("vtpu tpu-vm describe pod --format=json");
}

// Workers of one node need no hub: they reach each other while it forwards nothing between workers.
static void workers_reach_each_other_directly(void **state) {
  (void)state;
  guest_must(WAIT(1500, DIRECT));
  guest_must(
      "nft -f - <<END\ntable inet closed {\n chain forward { type filter hook forward priority "
      "-20; ip saddr 10.164.0.0/16 ip daddr 10.164.0.0/16 counter drop; }\n}\nEND");
  guest_must(JOIN);
  guest_says("joined");
  guest_must("nft list table inet closed | grep 'packets 0'; nft delete table inet closed");
  guest_says("packets 0");
}

#define OTHER "VTPU_PROJECT=lab-two VTPU_ZONE=europe-west4-a vtpu tpu-vm "

#define ELSEWHERE(host) AT(host, "nft list chain inet vtpu elsewhere")

// A worker of another project shares a host with one worker, and the hub with the other. What a
// host sends directly for a worker that is no peer, as one would whose routes are out of date, is
// dropped by the receiver's host.
static void projects_stay_apart(void **state) {
  (void)state;
  guest_must(
      "A=\"Authorization: Bearer $VTPU_TOKEN\"; curl -sf -H \"$A\" -d "
      "'{\"projectId\": \"lab-two\"}' $VTPU_ENDPOINT/v1/projects && curl -sf -H \"$A\" -d {} "
      "$VTPU_ENDPOINT/v1/projects/lab-two/services/tpu.googleapis.com:enable");
  guest_must(OTHER "create other --accelerator-type=v3-8 --version=v2-alpha 2>&1");
  // The routes of the pod's workers, for all.
  guest_must("for h in h1 h2; do T=$(" AT(
      "$h", "ip rule") " | sed -n 's/^164:.* lookup "
                       "\\([0-9]*\\).*/\\1/p'); " AT("$h",
                                                     "ip rule add pref 100 from 10.164.0.0/16 "
                                                     "lookup $T") " || exit 1; done");
  for (int worker = 0; worker < 2; worker++) {
    char ip[32] = "";
    guest_must("vtpu tpu-vm describe pod --format=json | grep -o '\"ipAddress\": *\"[0-9.]*\"' | "
               "cut -d'\"' -f4 | sed -n %dp",
               worker + 1);
    assert_int_equal(sscanf(vt_text_string(&guest_output), "%31s", ip), 1);
    (void)guest_sh(OTHER "ssh ada@other --command='timeout 3 bash -c \"exec 3<>/dev/tcp/%s/22\" && "
                         "echo joined; echo tried' 2>&1",
                   ip);
    guest_says("tried");
    assert_null(strstr(vt_text_string(&guest_output), "joined"));
  }
  guest_must("{ " ELSEWHERE("h1") "; " ELSEWHERE("h2") "; } | grep 'packets [1-9].* drop'");
  guest_must("for h in h1 h2; do " AT("$h", "ip rule del pref 100") " || exit 1; done");
  guest_must(OTHER "delete other --quiet 2>&1");
  guest_must(WAIT(600, "test $(squeue --me --noheader | wc -l) = 2")); // its disk went too
}

static void a_killed_daemon_finds_its_jobs(void **state) {
  (void)state;
  guest_must("squeue --me --noheader --states=running --format='%%i %%j' | sort > $HOME/jobs");
  guest_must("kill -9 $(cat $HOME/pid)");
  // A job that a daemon submitted just before it was killed, and that nobody knows about.
  guest_must("J=$(sed -n 's/^[0-9]* \\(vtpu-[^-]*\\)-.*/\\1/p' $HOME/jobs | head -n 1); "
             "sbatch --job-name=$J-77-0 --output=/dev/null --wrap='sleep infinity'");
  start();
  wait_for_state("pod", "READY");
  guest_must(WAIT(300, "test -z \"$(squeue --me --noheader --format=%%j | grep -- -77-0)\""));
  guest_must(
      "squeue --me --noheader --states=running --format='%%i %%j' | sort | diff $HOME/jobs -");
  guest_must("vtpu tpu-vm ssh ada@pod --worker=all --command='cat mark' 2>&1");
  guest_says("before");
}

static void a_stopped_node_comes_back_to_its_disk(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create one --accelerator-type=v4-8 --version=v2-alpha 2>&1");
  guest_must("vtpu tpu-vm ssh ada@one --command='echo kept > mark' 2>&1");
  guest_must("vtpu tpu-vm stop one 2>&1");
  guest_must("test $(squeue --me --noheader | wc -l) = 2");
  guest_must("vtpu tpu-vm start one 2>&1");
  guest_must("test $(squeue --me --noheader --states=running | wc -l) = 3");
  guest_must("vtpu tpu-vm ssh ada@one --command='cat mark' 2>&1");
  guest_says("kept");
  guest_must("vtpu tpu-vm delete one --quiet 2>&1");
  guest_must(WAIT(600, "test $(squeue --me --noheader | wc -l) = 2"));
}

static void a_cancelled_job_is_repaired(void **state) {
  (void)state;
  guest_must("squeue --me --noheader --states=running --format='%%i %%j' | sort > $HOME/jobs");
  guest_must("scancel $(head -n 1 $HOME/jobs | cut -d' ' -f1)");
  guest_must(WAIT(600, "test \"$(squeue --me --noheader --states=running --format='%%i %%j' | "
                       "sort)\" != \"$(cat $HOME/jobs)\" -a $(squeue --me --noheader "
                       "--states=running | wc -l) = 2"));
  wait_for_state("pod", "READY");
  guest_must("vtpu tpu-vm ssh ada@pod --worker=all --command='grep before mark' 2>&1");
}

static void a_dead_host_moves_its_worker(void **state) {
  (void)state;
  guest_must(WAIT(1500, DIRECT)); // so that the host dies with rules
  guest_must(CLUSTER " down $HOME/cluster h2");
  guest_must(WAIT(1500, "test \"$(echo " HOSTS ")\" = 'h1 h1'"));
  wait_for_state("pod", "READY");
  guest_must("vtpu tpu-vm ssh ada@pod --worker=all --command='cat mark; hostname' 2>&1");
  guest_says("before"); // of the worker that stayed
  guest_says("-w-0");
  guest_says("-w-1");
  guest_must(CLUSTER " up $HOME/cluster h2");
  guest_must(WAIT(600, "sinfo --Node --noheader --partition=tpu --nodes=h2 --format=%%T | grep -qx "
                       "idle"));
}

static void nothing_is_left(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm delete pod --quiet 2>&1");
  guest_must(WAIT(600, "test -z \"$(squeue --me --noheader; ls $HOME/cluster/disks/h1 "
                       "$HOME/cluster/disks/h2 2>/dev/null | grep -v :)\""));
  guest_must("ip route | { ! grep 'via 192.0.2'; }");
  guest_must("{ " AT("h1", "ip rule") "; " AT("h2", "ip rule") "; } | { ! grep ^164:; }");
}

static void a_full_cluster_says_so(void **state) {
  (void)state;
  guest_must("sbatch --exclusive --nodes=2 --output=/dev/null --wrap='sleep infinity' "
             "--parsable > $HOME/filler");
  guest_must(WAIT(200, "test $(squeue --noheader --states=running | wc -l) = 1"));
  assert_int_not_equal(guest_sh("vtpu tpu-vm create late --accelerator-type=v4-8 "
                                "--version=v2-alpha 2>&1"),
                       0);
  guest_says("no more capacity");
  guest_must("scancel $(cat $HOME/filler)");
  guest_must(WAIT(300, "test -z \"$(squeue --noheader)\""));
}

static void slurm_preempts_spot_nodes(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create cheap --spot --accelerator-type=v4-8 --version=v2-alpha 2>&1");
  guest_must("sbatch --exclusive --nodes=2 --output=/dev/null --wrap='sleep infinity' "
             "--parsable > $HOME/filler");
  wait_for_state("cheap", "PREEMPTED");
  guest_must("vtpu tpu-vm delete cheap --quiet 2>&1; scancel $(cat $HOME/filler)");
  guest_must(WAIT(300, "test -z \"$(squeue --noheader)\""));
}

// A stop splits the time of a node, a repair does not; a node that found no room was never READY;
// one that is preempted in its first minute is free; nothing is billed any longer.
static void the_bill_is_that_of_one_host(void **state) {
  (void)state;
  guest_must(
      "curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" "
      "\"$VTPU_ENDPOINT/vtpu/v1/projects/lab-one/bill\" > $HOME/bill && "
      "curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" "
      "\"$VTPU_ENDPOINT/vtpu/v1/projects/lab-one/bill?alt=csv\" | tr -d '\\r' | tee $HOME/csv");
  guest_must("! grep '\"running\": true' $HOME/bill");
  guest_must("! grep '^\"tpu\",\"late\"' $HOME/csv");
  guest_must("test $(grep -c '^\"tpu\",\"cheap\"' $HOME/csv) = 1 || { cat $HOME/csv; exit 1; }");
  guest_must("grep '^\"tpu\",\"cheap\".*,true$' $HOME/csv");
  guest_must("test $(grep -c '^\"tpu\",\"pod\"' $HOME/csv) = 1 || { cat $HOME/csv; exit 1; }");
  guest_must("test $(grep -c '^\"tpu\",\"one\"' $HOME/csv) = 2 || { cat $HOME/csv; exit 1; }");
}

#define NO_HUB                                                                                     \
  "! nft list table inet vtpu_hub 2> /dev/null && ! ip addr show dev lo | grep -F "                \
  "169.254.169.254 && test -z \"$(ip route show proto 164)\""
#define NO_DAEMON WAIT(1500, "! kill -0 $(cat $HOME/pid) 2> /dev/null")

// The hub's resources on its host go with the last worker, or are cleaned up.
static void the_hub_is_taken_down(void **state) {
  (void)state;
  guest_must("nft list table inet vtpu_hub");
  guest_must("vtpu tpu-vm list --format='value(name)' | while read n; do vtpu tpu-vm delete "
             "$(basename $n) --quiet || exit 1; done");
  guest_must(WAIT(1500, "test -z \"$(squeue --me --noheader)\""));
  guest_must("kill $(cat $HOME/pid)");
  guest_must(NO_DAEMON);
  guest_must(NO_HUB);
  start();
  guest_must("nft list table inet vtpu_hub && vtpud --clean --state=$HOME/state && exit 1; "
             "kill -9 $(cat $HOME/pid)");
  guest_must(NO_DAEMON);
  guest_must("nft list table inet vtpu_hub");
  guest_must("vtpud --clean --state=$HOME/state");
  guest_must(NO_HUB);
}

// Puts the cluster's folder into the environment of this process. 0, or 77.
static int start_cluster(void) {
  static char path[4096];
  int code = guest_namespace(NULL);
  if (code) return code;
  snprintf(path, sizeof path, "%s/cluster/slurm.conf", getenv("HOME"));
  setenv("SLURM_CONF", path, 1);
  setenv("VTPU_PROJECT", "lab-one", 1);
  setenv("VTPU_ZONE", "us-central2-b", 1);
  fflush(stdout);
  code = system(CLUSTER " start $HOME/cluster");
  if (code) (void)guest_sh(CLUSTER " stop $HOME/cluster");
  return WIFEXITED(code) ? WEXITSTATUS(code) : 1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workers_land_on_both_hosts),
      cmocka_unit_test(workers_reach_each_other_directly),
      cmocka_unit_test(projects_stay_apart),
      cmocka_unit_test(a_killed_daemon_finds_its_jobs),
      cmocka_unit_test(a_stopped_node_comes_back_to_its_disk),
      cmocka_unit_test(a_cancelled_job_is_repaired),
      cmocka_unit_test(a_dead_host_moves_its_worker),
      cmocka_unit_test(nothing_is_left),
      cmocka_unit_test(a_full_cluster_says_so),
      cmocka_unit_test(slurm_preempts_spot_nodes),
      cmocka_unit_test(the_bill_is_that_of_one_host),
      cmocka_unit_test(the_hub_is_taken_down),
  };
  int code = start_cluster();
  if (code) {
    guest_end();
    return code;
  }
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
