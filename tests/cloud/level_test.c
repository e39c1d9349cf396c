// SPDX-License-Identifier: Apache-2.0
// level_test.c - the levels of guests below isolated ones, and the choice among them: level 0 only
// has the API, level 1 gives a VM with its own users, homes, metadata and sshd without namespaces,
// and an ephemeral cloud uses the best level available and says why not a better one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_testing.h"

#define ZONE " --zone=us-central2-b "
#define CREATE(name, type)                                                                         \
  "vtpu tpu-vm create " name ZONE "--accelerator-type=" type " --version=tpu-ubuntu2204-base 2>&1"
#define SSH(name, flags, command) "vtpu tpu-vm ssh " name ZONE flags " --command='" command "' 2>&1"
#define META(path)                                                                                 \
  "curl -s -m 5 -H \"Metadata-Flavor: Google\" "                                                   \
  "http://metadata.google.internal/computeMetadata/v1/" path

#define OUTAGE(seconds)                                                                            \
  "curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" $VTPU_ENDPOINT/vtpu/v1/outages -d "           \
  "'{\"zone\":\"us-central2-b\",\"seconds\":" seconds "}'"

static void level_0_answers_the_api(void **state) {
  (void)state;
  guest_must(CREATE("api", "v4-8"));
  guest_must("vtpu tpu-vm describe api" ZONE);
  guest_says("guestLevel: 0");
  guest_says("state: READY");
  guest_says("guest: 'rows without a machine behind them (level 0)");
  // Logging in fails at once, saying that it is impossible and what to do.
  assert_int_not_equal(guest_sh(SSH("ada@api", "", "true")), 0);
  guest_says("TPU VMs of this vtpud are rows without a machine behind them (level 0)");
  guest_says("--guests=auto as root");
  guest_must("vtpu tpu-vm delete api --quiet" ZONE "2>&1");
}

static void workers_have_users_homes_and_names(void **state) {
  (void)state;
  guest_must(CREATE("pod", "v4-16"));
  guest_must(CREATE("other", "v4-8"));
  guest_must(SSH("ada@pod", "--worker=1", "id -un; hostname; echo $HOME; pwd; env"));
  guest_says("ada");
  guest_says("-w-1");
  guest_says("/home/ada");
  guest_says("TPU_WORKER_ID=1");
  guest_must("echo over there > $HOME/file && vtpu tpu-vm scp $HOME/file ada@pod:file" ZONE
             "--worker=1 2>&1");
  guest_must(SSH("ada@pod", "--worker=1", "cat file"));
  guest_says("over there");
  assert_int_not_equal(guest_sh(SSH("ada@pod", "--worker=0", "cat file")), 0);
  guest_must(SSH("ada@pod", "--worker=0", META("instance/attributes/agent-worker-number")));
  guest_says("0");
  guest_must(SSH("ada@pod", "--worker=1", META("instance/attributes/accelerator-type")));
  guest_says("v4-16");
  // A word that the workers of a node share, and nobody else knows.
  guest_must(SSH("ada@pod", "--worker=0",
                 "echo cookie=$VTPU_COOKIE=") " | grep -o cookie=.* > $HOME/first");
  guest_must(SSH("ada@pod", "--worker=1",
                 "echo cookie=$VTPU_COOKIE=") " | grep -o cookie=.* > $HOME/second");
  guest_must(
      SSH("ada@other", "", "echo cookie=$VTPU_COOKIE=") " | grep -o cookie=.* > $HOME/third");
  guest_must("grep -q 'cookie=[0-9a-f]\\{32\\}=' $HOME/first && cmp $HOME/first $HOME/second && "
             "! cmp -s $HOME/first $HOME/third");
  assert_int_not_equal(
      guest_sh(SSH("ada@other", "", "cat $(dirname $NSS_WRAPPER_HOSTS)/vtpu/sshd_config")), 0);
  guest_must("vtpu tpu-vm describe pod" ZONE);
  guest_says("level 1: ");
  // The output of its boot, as the worker's serial port.
  guest_must(SSH("ada@pod", "--worker=1",
                 "hostname") " | grep -o 't1v-.*' > $HOME/name; curl -sf -H "
                             "\"Authorization: Bearer $VTPU_TOKEN\" "
                             "$VTPU_ENDPOINT/compute/v1/projects/$VTPU_PROJECT/"
                             "zones/us-central2-b/instances/$(cat $HOME/name)/serialPort");
  guest_says("compute#serialPortOutput");
}

// The guests' Python comes first for commands and for login shells, which read the host's
// /etc/profile, which resets PATH.
static void the_python_folder_is_first(void **state) {
  (void)state;
  guest_must(CREATE("path", "v4-8"));
  guest_must(SSH("ada@path", "", "echo path=$PATH; python3"));
  guest_says("path=/tmp/vtpu-level-");
  guest_says("the Python of the guests");
  guest_must(SSH("ada@path", "", "bash -lc \"echo path=\\$PATH; python3\""));
  guest_says("path=/tmp/vtpu-level-");
  guest_says("the Python of the guests");
  guest_must("vtpu tpu-vm delete path --quiet" ZONE "2>&1");
}

// With OS Login the account is the caller's own, whatever name is requested; metadata keys let
// nobody in, and a key that is removed from the profile is removed from the worker.
static void os_login_makes_the_accounts(void **state) {
  (void)state;
  guest_must("ssh-keygen -q -t ed25519 -N '' -f $HOME/other-key && vtpu tpu-vm create login" ZONE
             "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base "
             "--metadata=enable-oslogin=TRUE,\"ssh-keys=mal:$(cat $HOME/other-key.pub)\" 2>&1");
  guest_must(SSH("mal@login", "", "id -un; echo $HOME"));
  guest_says("Using OS Login user [admin_vtpu_localhost]");
  guest_says("\nadmin_vtpu_localhost\n");
  guest_says("/home/admin_vtpu_localhost");
  guest_must("vtpu tpu-vm describe login" ZONE
             "--format='value(networkEndpoints[0].ipAddress)' | tr -d '\\n' > $HOME/login-ip");
#define PLAIN_SSH(key, user)                                                                       \
  "ssh -i $HOME/" key " -o BatchMode=yes -o StrictHostKeyChecking=no -o IdentitiesOnly=yes -o "    \
  "UserKnownHostsFile=/dev/null " user "@$(cat $HOME/login-ip) true 2>&1"
  assert_int_not_equal(guest_sh(PLAIN_SSH("other-key", "mal")), 0);
  guest_must(PLAIN_SSH(".ssh/google_compute_engine", "admin_vtpu_localhost"));
  guest_must("C() { curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" \"$@\"; }\n"
             "U=$VTPU_ENDPOINT/v1/users/admin@vtpu.localhost\n"
             "F=$(C $U/loginProfile | grep -o '\"fingerprint\": \"[0-9a-f]*' | cut -d'\"' -f4)\n"
             "C -X DELETE $U/sshPublicKeys/$F && for i in $(seq 6000); do " PLAIN_SSH(
                 ".ssh/google_compute_engine",
                 "admin_vtpu_localhost") " || exit 0; sleep 0.1; done; exit 1");
  guest_must("vtpu tpu-vm delete login --quiet" ZONE "2>&1");
}

// A key for every account of this host's system, for its groups and for root: none of them is let
// in, even when its key is in the worker's files.
static void the_accounts_of_the_host_are_shut(void **state) {
  (void)state;
  guest_must(
      "ssh-keygen -q -t ed25519 -N '' -f $HOME/key; K=$(cat $HOME/key.pub)\n"
      "cat /etc/passwd /etc/group | awk -F: '$3 < 1000 || $3 >= 60000 { print $1 }' | sort -u > "
      "$HOME/names\n"
      "printf '%%s\n' -oops _apt systemd-network docker postgres munge Upper 0 a:b >> $HOME/names\n"
      "K=$(cat $HOME/key.pub); (while read n; do echo \"$n:$K\"; done < $HOME/names; echo "
      "\"ada:$K\") > $HOME/keys\n"
      "vtpu tpu-vm create shut" ZONE "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base "
      "--metadata-from-file=ssh-keys=$HOME/keys 2>&1");
  guest_must("vtpu tpu-vm describe shut" ZONE
             "--format='value(networkEndpoints[0].ipAddress)' | tr -d '\\n' > $HOME/shut-ip");
  guest_must(
      "cat > $HOME/way-in <<'EOF'\n"
      "O='-i key -o BatchMode=yes -o StrictHostKeyChecking=no -o IdentitiesOnly=yes -o "
      "UserKnownHostsFile=/dev/null'\n"
      "cd $HOME; ip=$(cat shut-ip)\n"
      "ssh $O ada@$ip id -un || exit 1\n"
      "while read n; do ssh -n $O -l \"$n\" $ip true && echo \"$n has a shell\" && exit 1\n"
      "  sftp $O -o User=\"$n\" -b /dev/null $ip && echo \"$n has sftp\" && exit 1; done < names\n"
      "exit 0\nEOF\nbash $HOME/way-in 2>/dev/null");
  guest_must(
      "D=$(dirname $CLOUDSDK_AUTH_ACCESS_TOKEN_FILE)/guests; for n in $(grep -v : $HOME/names); do "
      "for k in $D/*/keys; do cp $HOME/key.pub $k/$n; chmod 644 $k/$n; done; done\n"
      "bash $HOME/way-in 2>/dev/null");
  guest_must("vtpu tpu-vm delete shut --quiet" ZONE "2>&1");
}

// Two names whose ids collided when ids were derived from names.
static void names_have_ids_of_their_own(void **state) {
  (void)state;
  guest_must("ssh-keygen -q -t ed25519 -N '' -f $HOME/pair; K=$(cat $HOME/pair.pub)\n"
             "printf 'user124:%%s\nuser167:%%s\n' \"$K\" \"$K\" > $HOME/keys\n"
             "vtpu tpu-vm create pair" ZONE "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base "
             "--metadata-from-file=ssh-keys=$HOME/keys 2>&1");
  guest_must(
      "ip=$(vtpu tpu-vm describe pair" ZONE "--format='value(networkEndpoints[0].ipAddress)')\n"
      "O='-n -i '$HOME'/pair -o BatchMode=yes -o StrictHostKeyChecking=no -o IdentitiesOnly=yes -o "
      "UserKnownHostsFile=/dev/null'\n"
      "ssh $O user124@$ip 'umask 077; echo mine > secret; id -u' && ssh $O user167@$ip 'id -u; cat "
      "../user124/secret && echo read it; true'");
  assert_null(strstr(vt_text_string(&guest_output), "read it"));
  guest_must("vtpu tpu-vm delete pair --quiet" ZONE "2>&1");
}

// Attempts of a worker to read from another, or from the host. Successes print their names.
static const char tries[] =
    "try() { name=$1; shift; if timeout 5 \"$@\" >/dev/null 2>&1; then echo \"could $name\"; fi; "
    "}\n"
    "other=$1 folder=$2 daemon=$3\n"
    "try 'read the home of another' ls $folder/guests/*/home/ada/secret\n"
    "try 'list the guests' ls $folder/guests\n"
    "try 'read the database' cat $folder/vtpud.db $folder/cloud.db\n"
    "try 'list the state' ls $folder\n"
    "try 'read the token of the daemon' cat $folder/token\n"
    "try 'read the key of an account' cat $folder/key.json\n"
    "try 'signal the daemon' kill -0 $daemon\n"
    "try 'take a token of another' curl -sf -H 'Metadata-Flavor: Google' "
    "http://$other/computeMetadata/v1/instance/service-accounts/default/token\n"
    "try 'report for another' curl -sf -X PUT -d x -H 'Metadata-Flavor: Google' "
    "http://$other/computeMetadata/v1/instance/guest-attributes/a/b\n"
    "try 'become root' sudo -n true\n"
    "echo tried\n";

static void workers_stay_apart(void **state) {
  (void)state;
  guest_must(
      SSH("ada@other", "", "echo mine > secret; nohup sleep 612.347 >/dev/null 2>&1 </dev/null &"));
  guest_must("vtpu tpu-vm describe other" ZONE
             "--format='value(networkEndpoints[0].ipAddress)' | tr -d '\\n' > $HOME/other");
  guest_must("cat > $HOME/tries.sh <<'EOF'\n%sEOF\nvtpu tpu-vm scp $HOME/tries.sh ada@pod:." ZONE
             "--worker=0 2>&1",
             tries);
  guest_must("D=$(dirname $CLOUDSDK_AUTH_ACCESS_TOKEN_FILE); vtpu tpu-vm ssh ada@pod" ZONE
             "--worker=0 --command=\"bash tries.sh $(cat $HOME/other) $D $PPID\" 2>&1");
  guest_says("tried");
  if (strstr(vt_text_string(&guest_output), "could "))
    fail_msg("%s", vt_text_string(&guest_output));
  guest_must(
      SSH("ada@pod", "--worker=0", "pkill -9 -f \"^sleep 612.347\"; true")); // not the other's
  guest_must("pgrep -f '^sleep 612.347'");
}

static void a_stopped_worker_keeps_its_home_and_no_process(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm stop other" ZONE "2>&1");
  assert_int_not_equal(guest_sh(SSH("ada@other", "", "true")), 0);
  assert_int_not_equal(guest_sh("pgrep -f '^sleep 612.347'"), 0);
  guest_must("vtpu tpu-vm start other" ZONE "2>&1");
  guest_must(SSH("ada@other", "", "cat secret"));
  guest_says("mine");
  guest_must("vtpu tpu-vm delete other --quiet" ZONE "2>&1; vtpu tpu-vm delete pod --quiet" ZONE
             "2>&1");
  assert_int_not_equal(
      guest_sh("pgrep -f \"sshd.*$(dirname $CLOUDSDK_AUTH_ACCESS_TOKEN_FILE)/guests/\""), 0);
}

// During a zone outage no worker process runs; the worker comes back with its disk.
static void a_zone_outage_ends_the_machines(void **state) {
  (void)state;
  guest_must(CREATE("far", "v4-8"));
  guest_must(SSH("ada@far", "", "echo kept > file; nohup sleep 4321 > /dev/null 2>&1 &"));
  guest_must("for i in $(seq 6000); do pgrep -f '^sleep 4321' && exit 0; sleep 0.1; done; exit 1");
  guest_must(OUTAGE("600"));
  guest_must("for i in $(seq 6000); do vtpu tpu-vm describe far" ZONE
             "| grep -q REPAIRING && ! pgrep -f '^sleep 4321' && exit 0; sleep 0.1; done; exit 1");
  assert_int_not_equal(guest_sh(CREATE("late", "v4-8")), 0);
  guest_says("ZONE_RESOURCE_POOL_EXHAUSTED");
  guest_must(OUTAGE("0"));
  guest_must("for i in $(seq 6000); do vtpu tpu-vm describe far" ZONE
             "| grep -q READY && exit 0; sleep 0.1; done; exit 1");
  guest_must(SSH("ada@far", "", "cat file"));
  guest_says("kept");
}

static void auto_says_what_it_took(void **state) {
  (void)state;
  guest_must("cat $VTPUD_LOG");
  print_message("%s", vt_text_string(&guest_output));
  guest_says("vtpud: TPU VMs are processes with users, homes and an sshd of their own");
  guest_says("not better because level 2: ");
  guest_must("vtpu tpu-vm list" ZONE);
}

static const struct part {
  const char *name, *daemon;
  struct CMUnitTest tests[8];
  int count;
} parts[] = {
    {"0", "exec vtpud --ephemeral --guests=0", {cmocka_unit_test(level_0_answers_the_api)}, 1},
    {"1",
     "exec vtpud --ephemeral --guests=1 --python=$VTPU_TEST_PYTHON",
     {cmocka_unit_test(workers_have_users_homes_and_names), cmocka_unit_test(workers_stay_apart),
      cmocka_unit_test(a_stopped_worker_keeps_its_home_and_no_process),
      cmocka_unit_test(the_python_folder_is_first), cmocka_unit_test(os_login_makes_the_accounts),
      cmocka_unit_test(the_accounts_of_the_host_are_shut),
      cmocka_unit_test(names_have_ids_of_their_own),
      cmocka_unit_test(a_zone_outage_ends_the_machines)},
     8},
    {"auto",
     "export VTPUD_LOG=$HOME/log; exec setpriv --bounding-set=-sys_admin vtpud --ephemeral 2> "
     "$VTPUD_LOG",
     {cmocka_unit_test(auto_says_what_it_took)},
     1}};

static int inner(const char *name) {
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strcmp(parts[i].name, name) == 0)
      return _cmocka_run_group_tests(name, parts[i].tests, (size_t)parts[i].count, NULL, NULL);
  return 2;
}

int main(int argc, char **argv) {
  static const char *const needed[] = {"/usr/bin/setpriv", "/usr/bin/pgrep", NULL};
  if (argc > 2 && strcmp(argv[1], "inner") == 0) return inner(argv[2]);
  int code = guest_namespace(needed);
  if (code) return code;
  if (system("ls /usr/lib/*/libnss_wrapper.so > /dev/null 2>&1") != 0) {
    printf("skipped: libnss_wrapper.so (Debian: libnss-wrapper)\n");
    return 77;
  }
  char python[] = "/tmp/vtpu-level-XXXXXX";
  if (!mkdtemp(python) || chmod(python, 0755) != 0) return 1;
  setenv("VTPU_TEST_PYTHON", python, 1);
  if (system("printf '#!/bin/sh\\necho the Python of the guests\\n' > $VTPU_TEST_PYTHON/python3 && "
             "chmod 755 $VTPU_TEST_PYTHON/python3") != 0)
    return 1;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    vt_text command = {0};
    vt_text_printf(&command, "%s -- %s inner %s", parts[i].daemon, argv[0], parts[i].name);
    int status = system(vt_text_string(&command));
    vt_text_free(&command);
    if (status != 0) return 1;
  }
  guest_end();
  return system("rm -rf \"$VTPU_TEST_PYTHON\"") != 0;
}
