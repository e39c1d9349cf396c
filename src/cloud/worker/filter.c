// SPDX-License-Identifier: Apache-2.0
// filter.c - see filter.h. The filter is a list in the kernel's BPF: architecture, number, then one
// test per row. The kernel runs it once for every number and remembers those that are always
// allowed, so the length of the list costs nothing later.
#include "cloud/worker/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

#define X32_BIT 0x40000000u // in numbers of the x32 ABI
#define NEW_NAMESPACES                                                                             \
  (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |    \
   CLONE_NEWNET)

typedef struct program {
  struct sock_filter *code;
  size_t size;
} program;

static void put(program *p, uint16_t code, uint8_t if_true, uint8_t if_false, uint32_t k) {
  p->code[p->size++] = (struct sock_filter){code, if_true, if_false, k};
}

static void load(program *p, size_t offset) {
  put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

// The lower half: the kernel ignores the rest of an int argument.
static void load_argument(program *p, int number) {
  load(p, offsetof(struct seccomp_data, args) + 8 * (size_t)number +
              (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0));
}

static void allow(program *p) {
  put(p, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

static void refuse(program *p, uint32_t error) {
  put(p, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error);
}

static void allow_if_equal(program *p, uint32_t value) {
  put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
  allow(p);
}

static void refuse_if_equal(program *p, uint32_t value, uint32_t error) {
  put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
  refuse(p, error);
}

static void refuse_if_any(program *p, uint32_t bits) {
  put(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, bits);
  refuse(p, EPERM);
  allow(p);
}

// --- conditions ----------------------------------------------------------------------------------

static void check_namespaces(program *p) {
  load_argument(p, 0);
  refuse_if_any(p, NEW_NAMESPACES);
}

static void check_unshare(program *p) {
  load_argument(p, 0);
  refuse_if_any(p, ~(uint32_t)(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM));
}

// The parts of netlink with which programs query addresses, sockets and devices, and with which
// sudo and sshd notify an audit daemon; not the packet filter, IPsec and the like.
static void check_family(program *p) {
  static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6},
                        protocols[] = {NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_AUDIT,
                                       NETLINK_KOBJECT_UEVENT};
  load_argument(p, 0);
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) allow_if_equal(p, families[i]);
  put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AF_NETLINK);
  refuse(p, EAFNOSUPPORT);
  load_argument(p, 2);
  for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) allow_if_equal(p, protocols[i]);
  refuse(p, EPROTONOSUPPORT);
}

static void check_local(program *p) {
  load_argument(p, 0);
  allow_if_equal(p, AF_UNIX);
  refuse(p, EAFNOSUPPORT);
}

// Personalities of other Unixes, or without randomization, can weaken a set-uid program.
static void check_personality(program *p) {
  static const uint32_t harmless[] = {PER_LINUX, PER_LINUX32, UNAME26, PER_LINUX32 | UNAME26,
                                      0xffffffff};
  load_argument(p, 0);
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) allow_if_equal(p, harmless[i]);
  refuse(p, EPERM);
}

// Injecting input into the terminal of whoever started us.
static void check_terminal(program *p) {
  load_argument(p, 1);
  refuse_if_equal(p, TIOCSTI, EPERM);
  refuse_if_equal(p, TIOCLINUX, EPERM);
  allow(p);
}

// --- rows ----------------------------------------------------------------------------------------

typedef enum verdict {
  ALLOWED,
  GUESTS,
  REFUSED,
  NAMESPACES,
  UNSHARE,
  FAMILY,
  LOCAL,
  PERSONALITY,
  TERMINAL
} verdict;

static void (*const conditions[])(program *) = {
    [NAMESPACES] = check_namespaces,   [UNSHARE] = check_unshare,
    [FAMILY] = check_family,           [LOCAL] = check_local,
    [PERSONALITY] = check_personality, [TERMINAL] = check_terminal};

static const struct row {
  uint32_t number;
  verdict verdict;
} rows[] = {
#define ALLOWED(name)            {SYS_##name, ALLOWED},
#define GUESTS(name)             {SYS_##name, GUESTS},
#define REFUSED(name)            {SYS_##name, REFUSED},
#define CHECKED(name, condition) {SYS_##name, condition},
#include "cloud/worker/filter.def"
#undef ALLOWED
#undef GUESTS
#undef REFUSED
#undef CHECKED
};

size_t vt_filter_build(vt_filtered who, struct sock_filter *out_program) {
  program p = {.code = out_program};
  load(&p, offsetof(struct seccomp_data, arch));
  put(&p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, OWN_ARCH);
  refuse(&p, ENOSYS);
  load(&p, offsetof(struct seccomp_data, nr));
  put(&p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
  refuse(&p, ENOSYS);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t jump = p.size;
    put(&p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, rows[i].number);
    if (conditions[rows[i].verdict])
      conditions[rows[i].verdict](&p);
    else if (rows[i].verdict == REFUSED || (rows[i].verdict == GUESTS && who != VT_FILTER_GUEST))
      refuse(&p, EPERM);
    else
      allow(&p);
    out_program[jump].jf = (uint8_t)(p.size - jump - 1);
  }
  refuse(&p, ENOSYS);
  return p.size;
}

bool vt_filter_install(vt_filtered who) {
  struct sock_filter code[VT_FILTER_MAX];
  struct sock_fprog filter = {.filter = code};
  filter.len = (unsigned short)vt_filter_build(who, code);
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

// --- capabilities --------------------------------------------------------------------------------

bool vt_filter_capabilities(void) {
  static const int kept[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE,     CAP_FOWNER,     CAP_FSETID,
                             CAP_KILL,    CAP_SETGID,           CAP_SETUID,     CAP_SETPCAP,
                             CAP_SETFCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_AUDIT_WRITE};
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[2] = {0}, have[2];
  uint64_t mask = 0;
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) mask |= UINT64_C(1) << kept[i];
  for (int i = 0; i < 64 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
    if (!(mask >> i & 1) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0) return false;
  if (syscall(SYS_capget, &header, have) != 0) return false;
  for (int i = 0; i < 2; i++)
    data[i].permitted = data[i].effective = have[i].permitted & (uint32_t)(mask >> 32 * i);
  return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
         syscall(SYS_capset, &header, data) == 0;
}
