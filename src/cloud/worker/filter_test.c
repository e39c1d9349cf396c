// SPDX-License-Identifier: Apache-2.0
// filter_test.c - each row of a table is a call that a filtered child makes: refused ones fail with
// the error that container engines give, ordinary ones work.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloud/worker/filter.h"

#define BOTH -1

typedef struct try {
  const char *what;
  long number, a, b, c;
  int guest, daemon; // errno; 0 = the filter lets it through, BOTH = as the guest
}
try;

static const try tries[] = {
    {"getpid", SYS_getpid, 0, 0, 0, 0, BOTH},
    {"user namespace by unshare", SYS_unshare, CLONE_NEWUSER, 0, 0, EPERM, BOTH},
    {"mount namespace by unshare", SYS_unshare, CLONE_NEWNS, 0, 0, EPERM, BOTH},
    {"time namespace by unshare", SYS_unshare, 0x80, 0, 0, EPERM, BOTH},
    {"own files by unshare", SYS_unshare, CLONE_FILES, 0, 0, 0, BOTH},
    {"user namespace by clone", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, EPERM, BOTH},
    {"network namespace by clone", SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, EPERM, BOTH},
    {"clone3", SYS_clone3, 0, 0, 0, ENOSYS, BOTH},
    {"setns", SYS_setns, -1, 0, 0, EPERM, BOTH},
    {"io_uring_setup", SYS_io_uring_setup, 1, 0, 0, EPERM, BOTH},
    {"io_uring_register", SYS_io_uring_register, -1, 0, 0, EPERM, BOTH},
    {"keyctl", SYS_keyctl, 0, 0, 0, EPERM, BOTH},
    {"add_key", SYS_add_key, 0, 0, 0, EPERM, BOTH},
    {"request_key", SYS_request_key, 0, 0, 0, EPERM, BOTH},
    {"bpf", SYS_bpf, 0, 0, 0, EPERM, BOTH},
    {"perf_event_open", SYS_perf_event_open, 0, 0, 0, EPERM, BOTH},
    {"userfaultfd", SYS_userfaultfd, 0, 0, 0, EPERM, BOTH},
    {"mount", SYS_mount, 0, 0, 0, EPERM, BOTH},
    {"umount2", SYS_umount2, 0, 0, 0, EPERM, BOTH},
    {"fsopen", SYS_fsopen, 0, 0, 0, EPERM, BOTH},
    {"open_tree", SYS_open_tree, -1, 0, 0, EPERM, BOTH},
    {"move_mount", SYS_move_mount, -1, 0, -1, EPERM, BOTH},
    {"mount_setattr", SYS_mount_setattr, -1, 0, 0, EPERM, BOTH},
    {"pivot_root", SYS_pivot_root, 0, 0, 0, EPERM, BOTH},
    {"open_by_handle_at", SYS_open_by_handle_at, -1, 0, 0, EPERM, BOTH},
    {"kexec_load", SYS_kexec_load, 0, 0, 0, EPERM, BOTH},
    {"kexec_file_load", SYS_kexec_file_load, -1, -1, 0, EPERM, BOTH},
    {"init_module", SYS_init_module, 0, 0, 0, EPERM, BOTH},
    {"finit_module", SYS_finit_module, -1, 0, 0, EPERM, BOTH},
    {"reboot", SYS_reboot, 0, 0, 0, EPERM, BOTH},
    {"swapon", SYS_swapon, 0, 0, 0, EPERM, BOTH},
    {"quotactl", SYS_quotactl, 0, 0, 0, EPERM, BOTH},
    {"fanotify_init", SYS_fanotify_init, 0, 0, 0, EPERM, BOTH},
    {"the kernel's log", SYS_syslog, 10, 0, 0, EPERM, BOTH},
    {"pidfd_getfd", SYS_pidfd_getfd, -1, 0, 0, EPERM, BOTH},
    {"kcmp", SYS_kcmp, 0, 0, 0, EPERM, BOTH},
    {"move_pages", SYS_move_pages, 0, 0, 0, EPERM, BOTH},
    {"a call that has no row", 5000, 0, 0, 0, ENOSYS, BOTH},
    {"AF_INET", SYS_socket, AF_INET, SOCK_STREAM, 0, 0, BOTH},
    {"AF_UNIX", SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0, BOTH},
    {"netlink of routes", SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, 0, BOTH},
    {"netlink of the packet filter", SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER,
     EPROTONOSUPPORT, BOTH},
    {"AF_VSOCK", SYS_socket, AF_VSOCK, SOCK_STREAM, 0, EAFNOSUPPORT, BOTH},
    {"AF_PACKET", SYS_socket, AF_PACKET, SOCK_RAW, 0, EAFNOSUPPORT, BOTH},
    {"AF_ALG", SYS_socket, AF_ALG, SOCK_SEQPACKET, 0, EAFNOSUPPORT, BOTH},
    {"AF_XDP", SYS_socket, AF_XDP, SOCK_RAW, 0, EAFNOSUPPORT, BOTH},
    {"AF_KEY", SYS_socket, AF_KEY, SOCK_RAW, 2, EAFNOSUPPORT, BOTH},
    {"pair of AF_TIPC", SYS_socketpair, AF_TIPC, SOCK_STREAM, 0, EAFNOSUPPORT, BOTH},
    {"addresses without randomness", SYS_personality, ADDR_NO_RANDOMIZE, 0, 0, EPERM, BOTH},
    {"asking for the personality", SYS_personality, 0xffffffff, 0, 0, 0, BOTH},
    {"typing for others", SYS_ioctl, 0, TIOCSTI, 0, EPERM, BOTH},
    // The kernel ignores the upper half of an int, so the filter must too.
    {"typing for others, with high bits", SYS_ioctl, 0, TIOCSTI | 1L << 40, 0, EPERM, BOTH},
    {"AF_VSOCK with high bits", SYS_socket, AF_VSOCK | 1L << 40, 1, 0, EAFNOSUPPORT, BOTH},
    {"ptrace", SYS_ptrace, 12345, 0, 0, 0, EPERM},
    {"chroot", SYS_chroot, 0, 0, 0, 0, EPERM},
    {"process_vm_readv", SYS_process_vm_readv, 0, 0, 0, 0, EPERM},
    {"shmget", SYS_shmget, 0, 0, 0, 0, EPERM},
    {"mknodat", SYS_mknodat, -1, 0, 0, 0, EPERM},
#ifdef __x86_64__
    {"a number of x32", SYS_getpid | 0x40000000, 0, 0, 0, ENOSYS, BOTH},
    {"iopl", SYS_iopl, 3, 0, 0, EPERM, BOTH},
    {"vfork's elder", SYS_access, 0, 0, 0, 0, BOTH},
#endif
};
enum { TRIES = sizeof tries / sizeof *tries };

// The errno of each call in a child with the filter.
static void run_filtered(vt_filtered who, int out_errors[TRIES]) {
  int status, *errors = mmap(NULL, sizeof(int[TRIES]), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(errors, MAP_FAILED);
  pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !vt_filter_install(who)) _exit(2);
    for (size_t i = 0; i < TRIES; i++) {
      const try *t = &tries[i];
      errno = 0;
      long result = syscall(t->number, t->a, t->b, t->c, 0, 0, 0);
      errors[i] = result == -1 ? errno : 0;
    }
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  memcpy(out_errors, errors, sizeof(int[TRIES]));
  munmap(errors, sizeof(int[TRIES]));
}

// An allowed call may fail because of its arguments, but not with the filter's errors.
static void check(vt_filtered who, int unprivileged) {
  static int errors[TRIES];
  run_filtered(who, errors);
  for (size_t i = 0; i < TRIES; i++) {
    int want = who == VT_FILTER_GUEST || tries[i].daemon == BOTH ? tries[i].guest : tries[i].daemon;
    bool passed = errors[i] != ENOSYS && (errors[i] != EPERM || unprivileged);
    if (want ? errors[i] != want : !passed)
      fail_msg("%s: errno %d, not %d", tries[i].what, errors[i], want);
  }
}

static void guests_ask_for_what_containers_do(void **state) {
  (void)state;
  check(VT_FILTER_GUEST, geteuid() != 0);
}

static void the_daemon_asks_for_less(void **state) {
  (void)state;
  check(VT_FILTER_DAEMON, geteuid() != 0);
}

#ifdef __x86_64__
// The other system call ABI of x86: its numbers mean other calls.
static void there_is_no_second_abi(void **state) {
  (void)state;
  int status;
  pid_t child = fork();
  if (child == 0) {
    long result = 20; // getpid there
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !vt_filter_install(VT_FILTER_GUEST))
      _exit(2);
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    _exit(result == -ENOSYS ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(status == 0 || WTERMSIG(status) == SIGSEGV); // a kernel without this ABI
}
#endif

static void the_program_fits_the_kernel(void **state) {
  (void)state;
  static struct sock_filter code[VT_FILTER_MAX];
  size_t guest = vt_filter_build(VT_FILTER_GUEST, code);
  assert_in_range(guest, 300, VT_FILTER_MAX);
  print_message("%zu instructions\n", guest);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(guests_ask_for_what_containers_do),
      cmocka_unit_test(the_daemon_asks_for_less),
#ifdef __x86_64__
      cmocka_unit_test(there_is_no_second_abi),
#endif
      cmocka_unit_test(the_program_fits_the_kernel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
