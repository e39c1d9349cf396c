// SPDX-License-Identifier: Apache-2.0
// sandbox_test.c - what a worker of level 2 may ask of the kernel, as a user and as root: forbidden
// things fail, ordinary things of a TPU VM work, and nothing of its network is left on the host
// when the cloud has ended, in whatever way.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_testing.h"

#define ZONE   " --zone=us-central2-b "
#define PORT   "18125"
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

static void stop(const char *number) {
  guest_must("kill -%s $(cat $HOME/pid); for i in $(seq 6000); do kill -0 $(cat $HOME/pid) "
             "2>/dev/null || exit 0; sleep 0.05; done; exit 1",
             number);
}

static int set_up(void **state) {
  (void)state;
  start();
  guest_must("vtpu tpu-vm create one" ZONE "--accelerator-type=v4-8 --version=v2-alpha 2>&1");
  return 0;
}

// Nothing keeps running when a test has failed.
static int tear_down(void **state) {
  (void)state;
  (void)guest_sh(
      "kill $(cat $HOME/pid) 2>/dev/null; for i in $(seq 6000); do kill -0 $(cat $HOME/pid) "
      "2>/dev/null || break; sleep 0.05; done; for f in $HOME/state/guests/*/pid; do kill "
      "-9 $(cut -d' ' -f1 $f); done 2>/dev/null; umount -l $HOME/state/disks/* 2>/dev/null");
  guest_end();
  return 0;
}

// Copies a script into the worker and runs it there; its exit status.
static int in_guest(const char *shell, const char *script) {
  char path[256];
  snprintf(path, sizeof path, "%s/script", getenv("HOME"));
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(script, file);
  fclose(file);
  guest_must("vtpu tpu-vm scp $HOME/script ada@one:/tmp/script" ZONE "2>&1");
  return guest_sh("vtpu tpu-vm ssh ada@one" ZONE "--command='%s /tmp/script' 2>&1", shell);
}

static void must_in_guest(const char *shell, const char *script) {
  int status = in_guest(shell, script);
  if (status != 0) fail_msg("%s\nstatus %d: %s", script, status, vt_text_string(&guest_output));
}

// --- refused -------------------------------------------------------------------------------------

// The system calls themselves, bypassing all tools: number, arguments. A call that fails with
// neither of the two errors prints its name.
static const char forbidden[] =
    "import ctypes, errno, socket, struct\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "calls = {'unshare user': (272, 0x10000000), 'unshare mount': (272, 0x20000),\n"
    "  'clone user': (56, 0x10000011, 0, 0, 0, 0), 'clone3': (435, 0, 0), 'setns': (308, -1, 0),\n"
    "  'io_uring_setup': (425, 8, ctypes.create_string_buffer(120)), 'keyctl': (250, 0, -3, 0),\n"
    "  'add_key': (248, b'user', b'a', b'b', 1, -3), 'request_key': (249, b'user', b'a', 0, 0),\n"
    "  'bpf': (321, 0, ctypes.create_string_buffer(64), 64),\n"
    "  'perf_event_open': (298, ctypes.create_string_buffer(128), 0, -1, -1, 0),\n"
    "  'userfaultfd': (323, 1), 'fsopen': (430, b'tmpfs', 0), 'open_tree': (428, -100, b'/', 1),\n"
    "  'mount': (165, b'none', b'/mnt', b'tmpfs', 0, 0), 'umount': (166, b'/proc/sys', 2),\n"
    "  'mount_setattr': (442, -100, b'/', 0, 0, 0), 'pivot_root': (155, b'.', b'.'),\n"
    "  'kexec_load': (246, 0, 0, 0, 0), 'kexec_file_load': (320, -1, -1, 0, 0, 0),\n"
    "  'init_module': (175, 0, 0, b''), 'finit_module': (313, -1, b'', 0), 'reboot': (169, 0, 0, "
    "0),\n"
    "  'open_by_handle_at': (304, -100, ctypes.create_string_buffer(64), 0),\n"
    "  'name space of x32': (39 | 0x40000000,), 'quotactl': (179, 0, 0, 0, 0),\n"
    "  'fanotify_init': (300, 0, 0), 'syslog': (103, 10), 'swapon': (167, b'/tmp/x', 0),\n"
    "  'settimeofday': (164, 0, 0), 'move_pages': (279, 0, 0, 0, 0, 0, 0), 'acct': (163, 0),\n"
    "  'personality without randomness': (135, 0x40000), 'iopl': (172, 3),\n"
    "  'ioctl TIOCSTI': (16, 0, 0x5412, b'x')}\n"
    "for name, call in calls.items():\n"
    "    ctypes.set_errno(0)\n"
    "    result = libc.syscall(*(ctypes.c_long(c) if isinstance(c, int) else c for c in call))\n"
    "    if result == 0 and name == 'clone user': import os; os._exit(0)\n"
    "    if result != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):\n"
    "        print('could', name, result, ctypes.get_errno())\n"
    "for name, family, kind, protocol in (('vsock', 40, 1, 0), ('packet', 17, 3, 0),\n"
    "    ('alg', 38, 5, 0), ('xdp', 44, 3, 0), ('netfilter', 16, 3, 12), ('raw', 2, 3, 1)):\n"
    "    try:\n"
    "        socket.socket(family, kind, protocol)\n"
    "        print('could open', name)\n"
    "    except OSError: pass\n"
    "print('tried', len(calls))\n";

static const char closed[] =
    "for f in /proc/kcore /proc/kallsyms /proc/kmsg /proc/timer_list /proc/slabinfo /proc/keys; "
    "do\n"
    "  test ! -e $f || test -z \"$(head -c 1 $f 2>/dev/null | tr -d '\\0')\" || echo could read "
    "$f\n"
    "done\n"
    "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/panic /proc/sysrq-trigger \\\n"
    "  /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shmmax /proc/sys/kernel/hostname "
    "/proc/irq/default_smp_affinity; do\n"
    "  test ! -e $f || ! (echo 1 > $f) 2>/dev/null || echo could write $f\n"
    "done\n"
    "mkdir /proc/sys/x 2>/dev/null && echo could mkdir\n"
    "test -z \"$(ls /sys/firmware /sys/kernel/debug /sys/kernel/security 2>/dev/null | grep -v "
    ":)\" || echo could list\n"
    "umount /proc/sys 2>/dev/null && echo could umount\n"
    "mount -o remount,rw /proc/sys 2>/dev/null && echo could remount\n"
    "for f in $(find /dev -type b); do echo could find $f; done\n"
    "for f in $(find /dev -type c ! -path '/dev/pts/*' | sort); do\n"
    "  case $f in "
    "/dev/null|/dev/zero|/dev/full|/dev/random|/dev/urandom|/dev/tty|/dev/accel*|/dev/vfio/*) ;;\n"
    "  *) echo could find $f ;; esac\n"
    "done\n"
    "mknod /tmp/node c 1 3 2>/dev/null && echo could mknod\n"
    "cp -a /dev/null /var/node 2>/dev/null && test -c /var/node && echo could copy a device\n"
    "grep Seccomp: /proc/self/status\n"
    "grep -E 'Cap(Bnd|Prm|Eff)' /proc/self/status\n"
    "true\n";

static void forbidden_things_are_refused(void **state) {
  (void)state;
  static const char *const who[] = {"", "sudo "};
  for (size_t i = 0; i < 2; i++) {
    char shell[64];
    snprintf(shell, sizeof shell,
             "%s"
             "/usr/bin/python3",
             who[i]);
    must_in_guest(shell, forbidden);
    guest_says("tried");
    if (strstr(vt_text_string(&guest_output), "could"))
      fail_msg("%s%s", who[i], vt_text_string(&guest_output));
    snprintf(shell, sizeof shell, "%sbash", who[i]);
    must_in_guest(shell, closed);
    guest_says("Seccomp:\t2");
    if (strstr(vt_text_string(&guest_output), "could"))
      fail_msg("%s%s", who[i], vt_text_string(&guest_output));
  }
  // chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
  // sys_chroot, audit_write, setfcap: also for process 1.
  guest_says("CapBnd:\t00000000a00405fb");
  guest_says("CapEff:\t00000000a00405fb");
  guest_must("cat /proc/$(cut -d' ' -f1 $HOME/state/guests/*/pid)/status");
  guest_says("CapEff:\t00000000a00405fb");
  guest_says("Seccomp:\t2");
}

// --- ordinary ------------------------------------------------------------------------------------

// A package with its own user and file, built and installed inside; downloads are not part of the
// test.
static const char package[] =
    "set -e\n"
    "mkdir -p /tmp/hello/DEBIAN /tmp/hello/usr/bin\n"
    "printf 'Package: vtpu-hello\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b.c>\\n"
    "Description: test\\n' > /tmp/hello/DEBIAN/control\n"
    "printf '#!/bin/sh\\nset -e\\nuseradd --system --no-create-home hello\\n"
    "chown hello /usr/bin/vtpu-hello\\n' > /tmp/hello/DEBIAN/postinst\n"
    "printf '#!/bin/sh\\necho hello from a package\\n' > /tmp/hello/usr/bin/vtpu-hello\n"
    "chmod 755 /tmp/hello/DEBIAN/postinst /tmp/hello/usr/bin/vtpu-hello\n"
    "dpkg-deb --build --root-owner-group /tmp/hello /tmp/hello.deb\n"
    "sudo mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers\n"
    "sudo touch /var/lib/dpkg/status\n"
    "sudo dpkg --force-depends -i /tmp/hello.deb\n"
    "vtpu-hello; stat -c %U /usr/bin/vtpu-hello; id hello\n";

static void packages_can_be_installed(void **state) {
  (void)state;
  must_in_guest("bash", package);
  guest_says("hello from a package");
  guest_says("uid=");
}

static const char accounts[] =
    "set -e\n"
    "sudo useradd -m bob; sudo -u bob sh -c 'id -un; touch /home/bob/x'; sudo su bob -c whoami\n"
    "sudo python3 -c \"import socket; s = socket.socket(); s.bind(('', 81)); print('port 81')\"\n"
    "sudo chroot / true\n"
    "(sleep 100 & p=$!; sudo kill $p; wait $p || echo killed)\n"
    "ip addr show eth0 | grep -o 'inet 10'\n"
    "test ! -x /usr/bin/strace || strace -f -e trace=openat true 2>&1 | grep -q openat\n"
    "echo all\n";

static void root_is_root_of_its_own(void **state) {
  (void)state;
  must_in_guest("bash", accounts);
  guest_says("bob");
  guest_says("port 81");
  guest_says("killed");
  guest_says("inet 10");
  guest_says("all");
}

static const char processes[] =
    "import multiprocessing as mp, multiprocessing.shared_memory as sm, subprocess, threading\n"
    "def square(x): return x * x\n"
    "if __name__ == '__main__':\n"
    "    for way in ('fork', 'spawn'):\n"
    "        with mp.get_context(way).Pool(2) as pool: print(way, pool.map(square, range(4)))\n"
    "    block = sm.SharedMemory(create=True, size=1 << 20); block.buf[0] = 7\n"
    "    same = sm.SharedMemory(block.name); print('shared', same.buf[0]); block.unlink()\n"
    "    print(subprocess.run(['echo', 'child'], capture_output=True).stdout)\n"
    "    t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n";

static void processes_work_together(void **state) {
  (void)state;
  must_in_guest("python3", processes);
  guest_says("fork [0, 1, 4, 9]");
  guest_says("spawn [0, 1, 4, 9]");
  guest_says("shared 7");
  guest_says("child");
  guest_says("thread");
}

static void jax_finds_its_chips(void **state) {
  (void)state;
  if (access(PYTHON "/python3", X_OK) != 0) skip();
  must_in_guest("python3",
                "import jax, jax.numpy as jnp\n"
                "print(jax.devices()[0].platform, jax.device_count())\n"
                "print('sum', float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((8, 8)))))\n");
  guest_says("tpu 4");
  guest_says("sum 512.0");
}

// --- disks ---------------------------------------------------------------------------------------

#define NODES "http://127.0.0.1:" PORT "/v2alpha1/projects/lab-one/locations/us-central2-b/nodes"
#define FILL(path)                                                                                 \
  "vtpu tpu-vm ssh ada@small" ZONE "--command='sudo dd if=/dev/zero of=" path                      \
  " bs=1M count=1300; df -m /tmp /mnt/disks/* | cat' 2>&1"

// Free space of the state's file system, in MiB.
static long free_mib(void) {
  guest_must("df -m --output=avail $HOME/state | tail -1");
  return strtol(vt_text_string(&guest_output), NULL, 10);
}

static void a_disk_has_an_end(void **state) {
  (void)state;
  long before = free_mib();
  if (before < 8192) skip(); // the test writes two GiB
  guest_must("vtpu disks create data --size=1GB --type=pd-ssd" ZONE "2>&1");
  guest_must("curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" '" NODES "?nodeId=small' -d "
             "'{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\","
             "\"bootDiskConfig\":{\"diskSizeGb\":\"1\"},\"dataDisks\":[{\"sourceDisk\":"
             "\"projects/lab-one/zones/us-central2-b/disks/data\"}]}'");
  guest_must(
      "for i in $(seq 6000); do test \"$(vtpu tpu-vm describe small" ZONE
      "--format='value(state)')\" = READY && exit 0; sleep 0.05; done; cat $HOME/out; exit 1");
  guest_must("vtpu tpu-vm describe small" ZONE);
  guest_says(", disk "); // the file system itself uses some of the 1024 MiB
  static const char *const fills[] = {FILL("/tmp/big"), FILL("/mnt/disks/data/big")};
  for (size_t i = 0; i < 2; i++) {
    guest_must("%s", fills[i]);
    guest_says("No space left on device");
  }
  long taken = before - free_mib();
  print_message("two full disks of 1 GiB took %ld MiB of the host\n", taken);
  assert_true(taken < 2 * 1024 + 256);
  guest_must("vtpu tpu-vm ssh ada@small" ZONE
             "--command='sudo rm /tmp/big /mnt/disks/data/big; echo "
             "again > /tmp/small && cat /tmp/small' 2>&1");
  guest_says("again");
  guest_must("vtpu tpu-vm stop small" ZONE "2>&1 && vtpu tpu-vm start small" ZONE "2>&1");
  guest_must("vtpu tpu-vm ssh ada@small" ZONE "--command='cat /tmp/small' 2>&1");
  guest_says("again");
  guest_must("vtpu tpu-vm delete small --quiet" ZONE "2>&1; vtpu disks delete data --quiet" ZONE
             "2>&1");
  guest_must(
      "for i in $(seq 6000); do test -z \"$(ls $HOME/state/disks)\" && exit 0; sleep 0.1; done; "
      "ls $HOME/state/disks; exit 1");
}

// --- afterwards ----------------------------------------------------------------------------------

static void assert_network(bool there) {
  guest_must("ip -o link; ip -o addr show dev lo; nft list tables");
  const char *text = vt_text_string(&guest_output);
  static const char *const traces[] = {": vtb", ": vtg", ": vtp", "table inet vtpu",
                                       "169.254.169.254"};
  for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
    if ((strstr(text, traces[i]) != NULL) != (there && i != 2))
      fail_msg("%s %s in: %s", there ? "no" : "still", traces[i], text);
}

static void the_network_goes_with_the_last_worker(void **state) {
  (void)state;
  assert_network(true);
  stop("TERM"); // the worker keeps running, and so does its network
  assert_network(true);
  start();
  guest_must("vtpu tpu-vm ssh ada@one" ZONE "--command='echo still here' 2>&1");
  guest_must("vtpu tpu-vm delete one --quiet" ZONE "2>&1");
  guest_must("ip -o link; nft list tables");
  if (strstr(vt_text_string(&guest_output), "vtb")) fail_msg("the bridge is still there");
  stop("TERM");
  assert_network(false);
}

// Neither daemon nor launcher had time to clean up.
static void what_a_crash_leaves_goes_with_the_next_start(void **state) {
  (void)state;
  start();
  guest_must("vtpu tpu-vm create one" ZONE "--accelerator-type=v4-8 --version=v2-alpha 2>&1");
  guest_must(
      "cat $HOME/state/guests/*/launcher $HOME/state/guests/*/pid | cut -d' ' -f1 > $HOME/pids");
  stop("9"); // it has ended when it has released the lock of its state
  guest_must("kill -9 $(cat $HOME/pids)");
  guest_must("ip -o link; nft list tables");
  guest_says("vtb");
  guest_must("rm -rf --one-file-system $HOME/state/cloud.db*"); // nobody knows about this node
  start();
  guest_must("for i in $(seq 6000); do ip -o link | grep -q ': vt' || exit 0; sleep 0.05; done; ip "
             "-o link; exit 1");
  stop("TERM");
  assert_network(false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forbidden_things_are_refused),
      cmocka_unit_test(packages_can_be_installed),
      cmocka_unit_test(root_is_root_of_its_own),
      cmocka_unit_test(processes_work_together),
      cmocka_unit_test(jax_finds_its_chips),
      cmocka_unit_test(a_disk_has_an_end),
      cmocka_unit_test(the_network_goes_with_the_last_worker),
      cmocka_unit_test(what_a_crash_leaves_goes_with_the_next_start),
  };
  static const char *const needed[] = {"/usr/bin/sudo", "/usr/sbin/nft", "/usr/bin/dpkg-deb",
                                       "/usr/bin/python3", NULL};
  int code = guest_namespace(needed);
  if (code) return code;
  setenv("VTPU_ENDPOINT", "http://127.0.0.1:" PORT, 1);
  setenv("VTPU_PROJECT", "lab-one", 1);
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
