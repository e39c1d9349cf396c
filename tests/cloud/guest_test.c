// SPDX-License-Identifier: Apache-2.0
// guest_test.c - real TPU VMs on this machine, driven by the command line: create, ssh, scp,
// preempt, stop and start, and what a guest must not be able to do to the host and to its
// neighbours. Runs in its own network and mount namespace; without the privilege for that it says
// so and is skipped (77).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_testing.h"

#define ZONE "--zone=us-central2-b"

// Runs a script in a worker ("ada@pod", "--worker=1"). It is base64-encoded to survive the quoting
// of three shells.
static int guest(const char *node, const char *flags, const char *script) {
  char path[256];
  snprintf(path, sizeof path, "%s/script", getenv("HOME"));
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(script, file);
  fclose(file);
  return guest_sh(
      "vtpu tpu-vm ssh %s " ZONE
      " %s --command=\"echo $(base64 -w0 < %s) | base64 -d > /tmp/script; bash /tmp/script\" 2>&1",
      node, flags, path);
}

static void all_right(int status) {
  if (status != 0) fail_msg("status %d: %s", status, vt_text_string(&guest_output));
}

static int set_up(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create pod " ZONE
             " --accelerator-type=v4-16 --version=tpu-ubuntu2204-base "
             "--metadata=startup-script='echo ran > "
             "/var/log/started' 2>&1");
  guest_must("vtpu tpu-vm create one " ZONE
             " --accelerator-type=v4-8 --version=tpu-ubuntu2204-base --spot 2>&1");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  guest_end();
  return 0;
}

static void all_workers_let_the_key_in(void **state) {
  (void)state;
  all_right(guest("ada@pod", "--worker=all", "hostname; id -un; sudo id -un"));
  guest_says("-w-0");
  guest_says("-w-1");
  guest_says("ada");
  guest_says("root");
  guest_must("echo over there > $HOME/file && vtpu tpu-vm scp $HOME/file ada@pod:/tmp/file " ZONE
             " --worker=1 2>&1");
  all_right(guest("ada@pod", "--worker=1", "cat /tmp/file"));
  guest_says("over there");
  assert_int_not_equal(guest("ada@pod", "--worker=0", "cat /tmp/file"), 0);
}

static void a_worker_knows_its_slice(void **state) {
  (void)state;
  all_right(guest(
      "ada@pod", "--worker=1",
      "for i in $(seq 6000); do test -s /var/log/started && break; sleep 0.1; done; env; ls /dev "
      "/sys/bus/pci/devices; cat /etc/hosts /var/log/started"));
  guest_says("TPU_ACCELERATOR_TYPE=v4-16");
  guest_says("TPU_WORKER_ID=1");
  guest_says("VTPU_COOKIE=");
  guest_says("accel3");
  guest_says("0000:00:07.0");
  guest_says("metadata.google.internal");
  guest_says("ran");
  // The guests of one slice reach each other.
  all_right(guest("ada@pod", "--worker=1",
                  "H=$(grep -- -w-0 /etc/hosts | cut -d' ' -f1); timeout 120 bash -c \"exec "
                  "3<>/dev/tcp/$H/22\" && echo joined"));
  guest_says("joined");
}

// --- what a guest must not do --------------------------------------------------------------------

typedef struct escape {
  const char *what, *command; // must fail, for a user and with sudo
} escape;

static const escape escapes[] = {
    {"mount", "mount -t tmpfs none /mnt"},
    {"take another address", "ip addr add 10.164.9.9/32 dev eth0"},
    {"listen to the wire",
     "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'"},
    {"make a device", "mknod /tmp/disk b 254 0"},
    {"read the host's disk", "head -c 1 /dev/vda"},
    {"change the kernel", "sh -c 'echo 1 > /proc/sys/kernel/panic'"},
    {"trigger sysrq", "sh -c 'echo h > /proc/sysrq-trigger'"},
    {"write to sysfs", "sh -c 'echo 0 > /sys/kernel/mm/ksm/run'"},
    {"set the clock", "date -s 2001-01-01"},
    {"see the host's processes", "sh -c 'test $(ls -d /proc/[0-9]* | wc -l) -gt 60'"},
    {"signal the host", "sh -c 'kill -0 $VTPUD_PID'"},
    {"see the state of the daemon", "sh -c 'ls /tmp/vtpud-*'"},
    {"see the host's keys",
     "sh -c 'ls /etc/ssh/ssh_host_rsa_key /root/.ssh/google_compute_engine'"},
    {"see the host's users", "grep -q '\\$y\\$\\|\\$6\\$' /etc/shadow"},
    {"reach the API of the daemon", "timeout 2 bash -c 'exec 3<>/dev/tcp/10.164.0.1/1'"},
    {"enter the host's namespaces", "nsenter -t 1 -n true --mount=/proc/1/ns/nothing"},
    {"load a module", "modprobe dummy"},
    {"new user namespace with mounts of the host", "unshare -Urm mount --bind / /mnt"},
    {"leave by chroot",
     "sh -c 'ls /proc/1/root/mnt/../.." VTPU_SOURCE_DIR "/src 2>/dev/null | grep -q .'"},
};

static void guests_stay_inside(void **state) {
  (void)state;
  all_right(guest("ada@one", "", "true"));
  // All in one session each, as a user and as root; successes print their names.
  for (int root = 0; root < 2; root++) {
    vt_text script = {0};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
      vt_text_printf(&script,
                     "cat > /tmp/try <<'EOF'\n%s\nEOF\n%s bash /tmp/try >/dev/null 2>&1 && echo "
                     "\"could %s\"\n",
                     escapes[i].command, root ? "sudo" : "", escapes[i].what);
    vt_text_put(&script, "echo tried\n");
    all_right(guest("ada@one", "", vt_text_string(&script)));
    vt_text_free(&script);
    guest_says("tried");
    if (strstr(vt_text_string(&guest_output), "could "))
      fail_msg("%s %s", root ? "root" : "a user", vt_text_string(&guest_output));
  }
  // Killing process 1 of the guest from inside does nothing.
  (void)guest("ada@one", "", "sudo kill -9 1");
  all_right(guest("ada@one", "", "hostname"));
}

#define GET                                                                                        \
  "curl -s -m 5 -o /dev/null -w '%{http_code} ' "                                                  \
  "http://metadata.google.internal/computeMetadata/v1/instance/attributes/instance-id "

static void the_metadata_server_answers_workers_only(void **state) {
  (void)state;
  // The host itself is not a worker.
  assert_int_not_equal(guest_sh("curl -sf -m 5 -H 'Metadata-Flavor: Google' "
                                "http://169.254.169.254/computeMetadata/v1/instance/name"),
                       0);
  all_right(guest("ada@one", "",
                  GET "; " GET "-H 'Metadata-Flavor: Google' -H 'X-Forwarded-For: 1.2.3.4'; " GET
                      "-H 'Metadata-Flavor: Google'"));
  guest_says("403 403 200");
}

static void preemption_is_announced_and_happens(void **state) {
  (void)state;
  all_right(guest("ada@one", "",
                  "curl -s -H 'Metadata-Flavor: Google' "
                  "http://metadata.google.internal/computeMetadata/v1/instance/preempted"));
  guest_says("FALSE");
  guest_must("curl -sf -X POST -H \"Authorization: Bearer $VTPU_TOKEN\" -d '{}' "
             "$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/nodes/us-central2-b/one:preempt");
  // The notice is one second in this test's cloud; bounded wait for the state.
  guest_must("for i in $(seq 6000); do S=$(vtpu tpu-vm describe one " ZONE
             " --format='value(state)'); test \"$S\" = PREEMPTED && exit 0; sleep "
             "0.05; done; exit 1");
  assert_int_not_equal(guest("ada@one", "", "true"), 0);
  guest_must("vtpu tpu-vm delete one " ZONE " --quiet 2>&1");
}

static void a_stopped_node_keeps_its_disk(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create keep " ZONE
             " --accelerator-type=v4-8 --version=tpu-ubuntu2204-base 2>&1");
  all_right(guest("ada@keep", "", "echo precious > /home/ada/result"));
  guest_must("vtpu tpu-vm stop keep " ZONE " 2>&1");
  assert_int_not_equal(guest("ada@keep", "", "true"), 0);
  guest_must("vtpu tpu-vm start keep " ZONE " 2>&1");
  all_right(guest("ada@keep", "", "cat /home/ada/result"));
  guest_says("precious");
  guest_must("vtpu tpu-vm delete keep " ZONE " --quiet 2>&1");
}

static int inner(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_workers_let_the_key_in),
      cmocka_unit_test(a_worker_knows_its_slice),
      cmocka_unit_test(guests_stay_inside),
      cmocka_unit_test(the_metadata_server_answers_workers_only),
      cmocka_unit_test(preemption_is_announced_and_happens),
      cmocka_unit_test(a_stopped_node_keeps_its_disk),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

int main(int argc, char **argv) {
  static const char *const needed[] = {"/usr/bin/sudo", "/usr/sbin/nft", NULL};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return inner();
  int code = guest_namespace(needed);
  if (code) return code;
  execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--notice=1", "--", argv[0],
        "inner", (char *)NULL);
  return 1;
}
