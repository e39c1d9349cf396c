// SPDX-License-Identifier: Apache-2.0
// helper_test.c - the two processes of vtpud. A double stands in for the process that talks to
// strangers and sends whatever it likes: the helper touches nothing outside its folders, ends no
// process that is not a worker, and opens no port that it was not told at startup. The real process
// has no privileges; each ends when the other does.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "cloud/worker/helper.h"
#include "guest_testing.h"

static int to_helper = -1;
static pid_t helper;
static vt_helper_request request;
static vt_helper_reply reply;

static void start_helper(const char *folder, const char *throw_away) {
  int ends[2];
  char state[300];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  snprintf(state, sizeof state, "state=%s", folder);
  helper = fork();
  assert_true(helper >= 0);
  if (helper == 0) {
    dup2(ends[1], 3);
    close_range(4, ~0u, 0);
    execl(VTPU_BIN_DIR "/vtpu-guest", "vtpu-guest", "host", "3", state, "tag=beef",
          "door=127.0.0.1:443", throw_away, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  to_helper = ends[0];
}

static int end_helper(void) {
  int status;
  close(to_helper);
  assert_int_equal(waitpid(helper, &status, 0), helper);
  return status;
}

// Sends the first `size` bytes of the request; returns the code of the reply. *out_fd: its
// descriptor.
static int say(size_t size, int *out_fd) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec bytes = {&reply, sizeof reply};
  struct msghdr message = {.msg_iov = &bytes,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof control.room};
  assert_int_equal(send(to_helper, &request, size, MSG_NOSIGNAL), (long)size);
  assert_true(recvmsg(to_helper, &message, 0) >= (long)offsetof(vt_helper_reply, ids));
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (head) memcpy(&fd, CMSG_DATA(head), sizeof fd);
  if (out_fd)
    *out_fd = fd;
  else if (fd >= 0)
    fail_msg("a descriptor that nobody asked for");
  return reply.code;
}

static vt_worker *ask(vt_helper_op op, int64_t uid, uint32_t index) {
  memset(&request, 0, sizeof request);
  request.op = op;
  request.uid = uid;
  request.index = index;
  vt_worker *w = &request.worker;
  *w = (vt_worker){.uid = 7,
                   .count = 1,
                   .ip = 10u << 24 | 164u << 16 | 7 << 8 | 7,
                   .chips = 4,
                   .boot_disk_gb = 10};
  strcpy(w->node, "one");
  strcpy(w->accelerator_type, "v4-8");
  return w;
}

static int said(void) {
  return say(vt_helper_request_size(request.op), NULL);
}

static char folder[200], outside[300];

static void open_level_2(void) {
  ask(VT_HELPER_OPEN, 0, 0);
  request.level = 2;
  if (said() != 0) fail_msg("%s", reply.text);
}

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "%s/state", getenv("HOME"));
  snprintf(outside, sizeof outside, "%s/guests-outside", getenv("HOME"));
  guest_must("rm -rf %s; mkdir -m 0711 %s; mkdir -p %s/7-0; echo kept > %s/7-0/spec", folder,
             folder, outside, outside);
  start_helper(folder, "throw_away=0");
  open_level_2();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  guest_must("grep -q kept %s/7-0/spec", outside);
  return end_helper() == 0 ? 0 : -1;
}

// --- the double ----------------------------------------------------------------------------------

static void noise_is_refused(void **state) {
  (void)state;
  srand(1);
  for (int i = 0; i < 3000; i++) {
    size_t size = i % 7 ? (size_t)rand() % 200 + 1 : (size_t)rand() % sizeof request + 1;
    unsigned char *bytes = (unsigned char *)&request;
    for (size_t j = 0; j < size; j++) bytes[j] = (unsigned char)(rand() >> 7);
    if (i % 2) request.op = (uint32_t)(i / 2 % 16);
    if (request.op == VT_HELPER_CLOSE) request.op = 0;
    if (i % 3 == 0 && request.op < VT_HELPER_OPS && vt_helper_request_size(request.op))
      size = vt_helper_request_size(request.op);
    int fd = -1;
    int code = say(size, &fd);
    if (fd >= 0 || (code == 0 && request.op == VT_HELPER_START)) fail_msg("noise was answered");
  }
  guest_must("ls -A %s/guests %s/disks | grep -c . || true", folder, folder);
}

static void hostile_words_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *what, *node, *type, *version, *disk;
  } words[] = {{"path", "../../etc", "v4-8", "", NULL},
               {"slash", "a/b", "v4-8", "", NULL},
               {"line", "a\nlibrary=/tmp/evil.so", "v4-8", "", NULL},
               {"quote", "a' ; touch /tmp/x '", "v4-8", "", NULL},
               {"empty", "", "v4-8", "", NULL},
               {"type", "a", "v4-8\ndisks=x:rw:/etc", "", NULL},
               {"version", "a", "v4-8", "/usr", NULL},
               {"python", "a", "v4-8", "x=/usr", NULL},
               {"disk", "a", "v4-8", "", "../../etc"},
               {"disk of two", "a", "v4-8", "", "x:rw:/etc,y"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    vt_worker *w = ask(VT_HELPER_START, 0, 0);
    snprintf(w->node, sizeof w->node, "%s", words[i].node);
    snprintf(w->accelerator_type, sizeof w->accelerator_type, "%s", words[i].type);
    snprintf(w->version, sizeof w->version, "%s", words[i].version);
    if (words[i].disk) {
      w->disk_count = 1;
      w->disks[0].uid = 1;
      w->disks[0].size_gb = 1;
      snprintf(w->disks[0].name, sizeof w->disks[0].name, "%s", words[i].disk);
    }
    if (said() != VT_INVALID_ARGUMENT) fail_msg("%s was taken", words[i].what);
  }
  vt_worker *w = ask(VT_HELPER_START, 0, 0);
  memset(w->node, 'a', sizeof w->node); // without an end
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
}

static void hostile_numbers_are_refused(void **state) {
  (void)state;
  static const uint32_t addresses[] = {0,
                                       0x7f000001,
                                       0x0a000001,
                                       10u << 24 | 164u << 16 | 1,
                                       10u << 24 | 164u << 16 | 0xfffe,
                                       10u << 24 | 165u << 16 | 2};
  for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
    ask(VT_HELPER_START, 0, 0)->ip = addresses[i];
    assert_int_equal(said(), VT_INVALID_ARGUMENT);
    vt_worker *w = ask(VT_HELPER_START, 0, 0);
    w->peer_count = 1;
    w->peers[0] = addresses[i];
    assert_int_equal(said(), VT_INVALID_ARGUMENT);
  }
  ask(VT_HELPER_START, 0, 0)->disk_count = UINT32_MAX;
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_START, 0, 0)->peer_count = UINT32_MAX;
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_START, 0, 0)->uid = -1;
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_START, 0, 0)->index = 1; // of one
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_STOP, -7, 0);
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_STOP, 7, UINT32_MAX);
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_DISK_REMOVE, 0, 0);
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
  ask(VT_HELPER_OPEN, 0, 0);
  request.level = 1; // level 2 is open, and stays
  assert_int_equal(said(), VT_INVALID_ARGUMENT);
}

static void no_door_that_was_not_named(void **state) {
  (void)state;
  static const struct {
    uint32_t ip, port;
    bool good;
  } doors[] = {{0, 22, false},
               {0x7f000001, 22, false},
               {0x7f000001, 443, true},
               {0x7f000001, 80, false},
               {0, 443, false},
               {127u << 24 | 64u << 16 | 5, 80, false}, // of level 1
               {169u << 24 | 254u << 16 | 169u << 8 | 254, 80, true},
               {169u << 24 | 254u << 16 | 169u << 8 | 254, 22, false}};
  for (size_t i = 0; i < sizeof doors / sizeof *doors; i++) {
    int fd = -1;
    ask(VT_HELPER_LISTEN, 0, 0);
    request.ip = doors[i].ip;
    request.port = doors[i].port;
    int code = say(vt_helper_request_size(VT_HELPER_LISTEN), &fd);
    assert_int_equal(code == 0, doors[i].good);
    assert_int_equal(fd >= 0, doors[i].good);
    if (fd >= 0) close(fd);
  }
}

// Its requests name guests, and guests are defined by their folders, which only the helper writes.
static void nothing_else_is_touched(void **state) {
  (void)state;
  pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  struct stat info;
  char path[400];
  snprintf(path, sizeof path, "%s/guests", folder);
  assert_int_equal(stat(path, &info), 0);
  assert_true(info.st_uid == geteuid() && (info.st_mode & 077) == 0);
  // A number that could be mistaken for a pid is rejected.
  for (int index = 0; index < 3; index++)
    for (vt_helper_op op = VT_HELPER_POLL; op <= VT_HELPER_DISK_REMOVE; op++) {
      if (op == VT_HELPER_START || op == VT_HELPER_DISKS || op == VT_HELPER_LISTEN) continue;
      int fd = -1;
      ask(op, other, (uint32_t)index);
      request.erase = 1;
      (void)say(vt_helper_request_size(op), &fd);
      assert_int_equal(fd, -1);
    }
  assert_int_equal(kill(other, 0), 0);
  assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
}

static void a_boot_takes_the_paths_of_the_start(void **state) {
  (void)state;
  vt_worker *w = ask(VT_HELPER_START, 0, 0);
  w->disk_count = 1;
  w->disks[0] = (vt_worker_disk){.uid = 5, .size_gb = 1, .name = "data"};
  if (said() != 0) fail_msg("%s", reply.text);
  guest_must("cat %s/guests/7-0/spec", folder);
  char disks[300];
  snprintf(disks, sizeof disks, "disks=data:rw:%s/disks/5\n", folder);
  guest_says(disks);
  guest_says("library=\npython=\n");
  guest_says("hostname=t1v-n-00000007-w-0\n");
  for (int i = 0; i < 600; i++) {
    ask(VT_HELPER_STOP, 7, 0);
    request.erase = 1;
    assert_int_equal(said(), 0);
    if (reply.flags & VT_HELPER_GONE) break;
    usleep(50000);
  }
  assert_true(reply.flags & VT_HELPER_GONE);
}

// --- folders -------------------------------------------------------------------------------------

static void a_folder_of_others_is_not_used(void **state) {
  (void)state;
  static const char *const tricks[] = {"ln -s %s %s/guests", "mkdir -m 0777 %s/x %s/guests",
                                       "mkdir -p %s/x %s/guests && chown nobody %2$s/guests"};
  char other[300];
  int keep = to_helper;
  pid_t keep_pid = helper;
  for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) {
    int status;
    snprintf(other, sizeof other, "%s/state-%zu", getenv("HOME"), i);
    guest_must("mkdir -p %s; rmdir %s/x 2>/dev/null; true", other, outside);
    char command[700];
    snprintf(command, sizeof command, tricks[i], outside, other);
    guest_must("%s; true", command);
    start_helper(other, "throw_away=1");
    assert_int_equal(waitpid(helper, &status, 0), helper);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    close(to_helper);
  }
  to_helper = keep;
  helper = keep_pid;
}

static void what_nobody_will_look_for_goes(void **state) {
  (void)state;
  int keep = to_helper;
  pid_t keep_pid = helper;
  guest_must("mkdir %s/thrown", getenv("HOME"));
  char thrown[300];
  snprintf(thrown, sizeof thrown, "%s/thrown", getenv("HOME"));
  start_helper(thrown, "throw_away=1");
  ask(VT_HELPER_DISK_LIST, 0, 0);
  assert_int_equal(said(), 0);
  assert_int_equal(end_helper(), 0); // silently
  assert_int_not_equal(access(thrown, F_OK), 0);
  to_helper = keep;
  helper = keep_pid;
}

// --- the real one --------------------------------------------------------------------------------

#define START                                                                                      \
  "vtpud --state=$HOME/real --project=lab-one --admin=a@b.c --new-token --guests=0 --port=18126 "  \
  "> $HOME/out "                                                                                   \
  "2>&1 & echo $! > $HOME/pid; for i in $(seq 6000); do grep -q 'token of' $HOME/out && exit 0; "  \
  "sleep 0.05; done; cat $HOME/out; exit 1"
#define HELPER "$(cat /proc/$(cat $HOME/pid)/task/$(cat $HOME/pid)/children | cut -d' ' -f1)"

static void who_talks_to_strangers_can_do_nothing(void **state) {
  (void)state;
  guest_must(START);
  guest_must("cat /proc/$(cat $HOME/pid)/status");
  guest_says("CapPrm:\t0000000000000000");
  guest_says("CapBnd:\t0000000000000000");
  guest_says("NoNewPrivs:\t1");
  guest_says("Seccomp:\t2");
  if (strstr(vt_text_string(&guest_output), "Uid:\t0")) fail_msg("it is root");
  guest_must("curl -sf http://127.0.0.1:18126/ -o /dev/null");
  guest_must("stat -c '%%U %%a %%n' $HOME/real $HOME/real/guests $HOME/real/disks");
  guest_says("root 1771 ");
  guest_says("root 700 ");
  // The helper has neither HTTP nor TLS nor JSON in it.
  guest_must("cat /proc/" HELPER "/maps");
  static const char *const strangers[] = {"microhttpd", "nghttp2", "libssl", "gnutls",
                                          "jansson",    "sqlite",  "libpq"};
  for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
    if (strstr(vt_text_string(&guest_output), strangers[i])) fail_msg("%s", strangers[i]);
}

static void each_ends_when_the_other_does(void **state) {
  (void)state;
  guest_must("kill -9 " HELPER "; for i in $(seq 6000); do kill -0 $(cat $HOME/pid) 2>/dev/null || "
             "exit 0; sleep 0.05; done; exit 1");
  guest_must("cat $HOME/out");
  guest_says("the helper, which has the host's privileges, is gone");
  guest_must(START); // on the same state
  guest_must("helper=" HELPER
             "; kill -9 $(cat $HOME/pid); for i in $(seq 6000); do kill -0 $helper "
             "2>/dev/null || exit 0; sleep 0.05; done; exit 1");
}

static int tear_down_real(void **state) {
  (void)state;
  (void)guest_sh("kill $(cat $HOME/pid) 2>/dev/null");
  guest_end();
  return 0;
}

// State that was root's alone becomes the account's.
static void an_older_state_is_taken_over(void **state) {
  (void)state;
  guest_must("chown 0:0 $HOME/real/cloud.db*; chmod 711 $HOME/real; echo mine > $HOME/real/other; "
             "chmod 600 $HOME/real/other");
  guest_must(START);
  guest_must("stat -c '%%U %%n' $HOME/real/cloud.db $HOME/real/other");
  guest_says("root ");
  if (strncmp(vt_text_string(&guest_output), "root", 4) == 0) fail_msg("cloud.db is root's");
  guest_must("kill $(cat $HOME/pid); for i in $(seq 6000); do kill -0 $(cat $HOME/pid) 2>/dev/null "
             "|| exit 0; sleep 0.05; done; exit 1");
}

int main(void) {
  const struct CMUnitTest doubles[] = {
      cmocka_unit_test(noise_is_refused),
      cmocka_unit_test(hostile_words_are_refused),
      cmocka_unit_test(hostile_numbers_are_refused),
      cmocka_unit_test(no_door_that_was_not_named),
      cmocka_unit_test(nothing_else_is_touched),
      cmocka_unit_test(a_boot_takes_the_paths_of_the_start),
      cmocka_unit_test(a_folder_of_others_is_not_used),
      cmocka_unit_test(what_nobody_will_look_for_goes),
  };
  const struct CMUnitTest real[] = {cmocka_unit_test(who_talks_to_strangers_can_do_nothing),
                                    cmocka_unit_test(each_ends_when_the_other_does),
                                    cmocka_unit_test(an_older_state_is_taken_over)};
  int code = guest_namespace(NULL);
  if (code) return code;
  int failed = cmocka_run_group_tests(doubles, set_up, tear_down);
  return cmocka_run_group_tests(real, NULL, tear_down_real) + failed;
}
