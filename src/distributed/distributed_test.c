// SPDX-License-Identifier: Apache-2.0
// distributed_test.c - what each environment says; processes that connect, talk, die and hang.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "distributed/hello.h"
#include "distributed/metadata.h"
#include "distributed/peers.h"
#include "distributed/root.h"

// ---- the environment ----------------------------------------------------------------------------

typedef struct join_row {
  const char *slice, *environment; // "NAME=value NAME=value"
  const char *error;               // part of it; NULL = none
  int32_t count, index;
  const char *root, *own;
  int32_t devices[9]; // of this process, then -1
} join_row;

static const char *look_up(void *user, const char *name) {
  static _Thread_local char room[16][1024];
  static _Thread_local int turn;
  const char *at = user;
  size_t size = strlen(name);
  while (*at) {
    size_t length = strcspn(at, " ");
    if (length > size && !strncmp(at, name, size) && at[size] == '=') {
      char *out = room[turn++ % 16];
      snprintf(out, sizeof room[0], "%.*s", (int)(length - size - 1), at + size + 1);
      return out;
    }
    at += length + (at[length] == ' ');
  }
  return NULL;
}

#define FOUR  "TPU_WORKER_HOSTNAMES=a,b,c,d "
#define GRID  "TPU_PROCESS_BOUNDS=2,2,1 TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1 "
#define LOCAL "TPU_PROCESS_ADDRESSES=localhost:9001,localhost:9002,localhost:9003,localhost:9004 "
// clang-format off
static const join_row join_rows[] = {
    {"v3-8", "", NULL, 1, 0, "", "", {0, 1, 2, 3, 4, 5, 6, 7, -1}},
    {"v3-8", "TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=localhost", NULL, 1, 0, "", "", {0, 1, 2, 3, 4, 5, 6, 7, -1}},
    {"v3-32", FOUR "TPU_WORKER_ID=0", NULL, 4, 0, "a:8471", "a:8471", {0, 1, 2, 3, 8, 9, 10, 11, -1}},
    {"v3-32", FOUR "TPU_WORKER_ID=3", NULL, 4, 3, "a:8471", "d:8471", {20, 21, 22, 23, 28, 29, 30, 31, -1}},
    {"v5litepod-16", FOUR "TPU_WORKER_ID=1", NULL, 4, 1, "a:8471", "b:8471", {2, 3, 6, 7, -1}},
    {"v3-32", FOUR "TPU_WORKER_ID=2 TPU_PROCESS_PORT=77", NULL, 4, 2, "a:77", "c:77", {16, 17, 18, 19, 24, 25, 26, 27, -1}},
    {"v3-8", LOCAL GRID "CLOUD_TPU_TASK_ID=2", NULL, 4, 2, "localhost:9001", "localhost:9003", {4, 5, -1}},
    {"v3-8", LOCAL GRID "CLOUD_TPU_TASK_ID=3 TPU_PROCESS_PORT=9004 TPU_VISIBLE_CHIPS=3", NULL, 4, 3, "localhost:9001", "localhost:9004", {6, 7, -1}},
    {"v3-8", "TPU_PROCESS_ADDRESSES=h:1,h:2 TPU_PROCESS_BOUNDS=1,2,1 TPU_WORKER_ID=0", NULL, 2, 0, "h:1", "h:1", {0, 1, 2, 3, -1}},
    {"v3-8", "TPU_PROCESS_ADDRESSES=h:1,h:2 TPU_CHIPS_PER_PROCESS_BOUNDS=1,2,1 TPU_WORKER_ID=0", NULL, 2, 0, "h:1", "h:1", {0, 1, 4, 5, -1}},
    {"v4-16", "TPU_WORKER_HOSTNAMES=[::1],h TPU_WORKER_ID=0", NULL, 2, 0, "::1:8471", "::1:8471", {0, 1, 2, 3, -1}},
    // alone on purpose, whatever else is set
    {"v3-32", FOUR "TPU_WORKER_ID=1 TPU_PROCESS_BOUNDS=1,1,1", NULL, 1, 0, "", "", {-2}},
    {"v3-32", FOUR "TPU_WORKER_ID=1 VTPU_HOSTS=alone", NULL, 1, 0, "", "", {-2}},
    // launchers
    {"v3-32", "SLURM_NTASKS=4 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_JOB_ID=5 SLURM_STEP_NODELIST=tpu[07-09,12],x SLURMD_NODENAME=tpu08",
     NULL, 4, 1, "tpu07:20520", "tpu08:20520", {4, 5, 6, 7, 12, 13, 14, 15, -1}},
    {"v3-8", "SLURM_NTASKS=4 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_JOB_ID=5 SLURM_STEP_NODELIST=n", NULL, 1, 0, "", "", {-2}},
    {"v3-8", GRID "VTPU_HOSTS=slurm SLURM_NTASKS=4 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_JOB_ID=5 SLURM_STEP_NODELIST=n SLURMD_NODENAME=n",
     NULL, 4, 1, "n:20520", "n:20521", {2, 3, -1}},
    {"v4-16", "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
     NULL, 2, 1, "localhost:20480", "localhost:20481", {4, 5, 6, 7, -1}},
    {"v3-8", LOCAL "LOCAL_WORLD_SIZE=4 TPU_PROCESS_BOUNDS=1,1,1 TPU_CHIPS_PER_PROCESS_BOUNDS=2,2,1 CLOUD_TPU_TASK_ID=2 TPU_VISIBLE_CHIPS=2",
     NULL, 4, 2, "localhost:9001", "localhost:9003", {4, 5, -1}},
    {"v4-16", LOCAL "LOCAL_WORLD_SIZE=4 TPU_PROCESS_BOUNDS=1,1,1 CLOUD_TPU_TASK_ID=2 TPU_VISIBLE_CHIPS=2",
     "torchrun has 4 processes; v4-16 has 8 chips, one for each: --nproc_per_node=8", 0, 0, 0, 0, {0}},
    // several slices
    {"v5litepod-8 x2", "TPU_WORKER_HOSTNAMES=b TPU_WORKER_ID=0 MEGASCALE_COORDINATOR_ADDRESS=a:8080 MEGASCALE_SLICE_ID=1",
     NULL, 2, 1, "a:8471", "b:8471", {8, 9, 10, 11, 12, 13, 14, 15, -1}},
    {"v5litepod-8 x2", "", NULL, 1, 0, "", "", {-2}},
    // contradictions and nonsense
    {"v3-32", FOUR, "TPU_WORKER_ID is not set", 0, 0, 0, 0, {0}},
    {"v3-32", FOUR "TPU_WORKER_ID=4", "a number from 0 to 3", 0, 0, 0, 0, {0}},
    {"v3-32", FOUR "TPU_WORKER_ID=-1", "a number from 0 to 3", 0, 0, 0, 0, {0}},
    {"v3-32", FOUR "TPU_WORKER_ID=99999999999999999999", "a number from 0 to 3", 0, 0, 0, 0, {0}},
    {"v3-32", "TPU_WORKER_HOSTNAMES=a,b,c TPU_WORKER_ID=0", "has 3 names; v3-32 has 4 hosts", 0, 0, 0, 0, {0}},
    {"v3-8", "TPU_WORKER_HOSTNAMES=a,b TPU_WORKER_ID=0", "v3-8 has 1 host", 0, 0, 0, 0, {0}},
    {"v3-32", "TPU_WORKER_HOSTNAMES=a,b,b,d TPU_WORKER_ID=0", "processes 1 and 2 have the same address", 0, 0, 0, 0, {0}},
    {"v3-32", "TPU_WORKER_HOSTNAMES=a,,c,d TPU_WORKER_ID=0", "not the name or address of a host", 0, 0, 0, 0, {0}},
    {"v3-8", "TPU_PROCESS_ADDRESSES=a:0,b:1 TPU_PROCESS_BOUNDS=1,2,1 CLOUD_TPU_TASK_ID=0", "no port from 1 to 65535", 0, 0, 0, 0, {0}},
    {"v3-8", "TPU_PROCESS_ADDRESSES=a:70000,b:1 TPU_PROCESS_BOUNDS=1,2,1 CLOUD_TPU_TASK_ID=0", "no port from 1 to 65535", 0, 0, 0, 0, {0}},
    {"v3-8", "TPU_PROCESS_ADDRESSES=[::1,b:1 TPU_PROCESS_BOUNDS=1,2,1 CLOUD_TPU_TASK_ID=0", "not the name or address", 0, 0, 0, 0, {0}},
    {"v3-8", LOCAL "CLOUD_TPU_TASK_ID=0", "set TPU_PROCESS_BOUNDS", 0, 0, 0, 0, {0}},
    {"v3-8", LOCAL "CLOUD_TPU_TASK_ID=0 TPU_PROCESS_BOUNDS=2,1,1", "is for 2 processes of a slice, there are 4", 0, 0, 0, 0, {0}},
    {"v3-8", LOCAL "CLOUD_TPU_TASK_ID=0 TPU_PROCESS_BOUNDS=4,1,1", "should be the 2,2,1 chips", 0, 0, 0, 0, {0}},
    {"v3-8", LOCAL "CLOUD_TPU_TASK_ID=0 TPU_PROCESS_BOUNDS=0,1,1", "three numbers such as 2,2,1", 0, 0, 0, 0, {0}},
    {"v3-8", LOCAL GRID "CLOUD_TPU_TASK_ID=0 TPU_VISIBLE_CHIPS=0,1", "each process has 1 chip", 0, 0, 0, 0, {0}},
    {"v3-8", LOCAL GRID "CLOUD_TPU_TASK_ID=0 TPU_PROCESS_PORT=1", "gives process 0 the port 9001", 0, 0, 0, 0, {0}},
    {"v3-8", GRID, "nothing says where the other processes are", 0, 0, 0, 0, {0}},
    {"v3-8", "VTPU_HOSTS=ssh", "slurm, mpi or alone", 0, 0, 0, 0, {0}},
    {"v3-32", FOUR "TPU_WORKER_ID=0 VTPU_JOIN_TIMEOUT=soon", "VTPU_JOIN_TIMEOUT", 0, 0, 0, 0, {0}},
    {"v3-32", FOUR "TPU_WORKER_ID=0 VTPU_TRANSPORT=udp", "VTPU_TRANSPORT is \"udp\"; it can be tcp, ucx, or auto", 0, 0, 0, 0, {0}},
    {"v5litepod-8 x2", "TPU_WORKER_HOSTNAMES=b TPU_WORKER_ID=0 MEGASCALE_COORDINATOR_ADDRESS=a MEGASCALE_SLICE_ID=2", "a number from 0 to 1", 0, 0, 0, 0, {0}},
};
// clang-format on

static void check_row(const join_row *row) {
  vt_slice slice;
  vt_join join;
  vt_arena arena = {0};
  char text[VT_HOST_NAME + 16];
  assert_null(vt_slice_from_name(row->slice, &slice));
  vt_status st =
      vt_join_read(&slice, look_up, (void *)(uintptr_t)row->environment, NULL, &arena, &join);
  if (row->error ? !st || !strstr(vt_status_message(st), row->error) : st != VT_OK)
    fail_msg("%s: %s: %s", row->slice, row->environment, st ? vt_status_message(st) : "no error");
  if (!st) {
    assert_int_equal(join.count, row->count);
    assert_int_equal(join.index, row->index);
    if (join.count > 1) {
      snprintf(text, sizeof text, "%s:%d", join.root.host, join.root.port);
      assert_string_equal(text, row->root);
      snprintf(text, sizeof text, "%s:%d", join.own.host, join.own.port);
      assert_string_equal(text, row->own);
    }
    for (int32_t d = 0, k = 0; d < vt_slice_devices(&slice) && row->devices[0] >= 0; d++) {
      vt_place place = vt_slice_place(&slice, d);
      if (vt_join_process(&join, &place) == join.index) assert_int_equal(d, row->devices[k++]);
    }
  }
  vt_status_free(st);
  vt_arena_free(&arena);
}

static void environments_say_who_this_is(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof join_rows / sizeof *join_rows; i++) check_row(&join_rows[i]);
}

// ---- the framework's store ----------------------------------------------------------------------

#define SECRET "0123456789abcdef0123456789abcdef"
static void addresses_of_process_0(void **state) {
  static const struct {
    const char *text;
    int count; // 0: not one of ours
  } rows[] = {
      {SECRET " 10.1.2.3:40001", 1},
      {SECRET " 10.1.2.3:1,127.0.0.1:65535", 2},
      {SECRET, 0},
      {SECRET " ", 0},
      {SECRET " 10.1.2.3", 0},
      {SECRET " 10.1.2.3:0", 0},
      {SECRET " 10.1.2.3:65536", 0},
      {SECRET " 10.1.2.3:1,", 0},
      {SECRET " 10.1.2.3:1;10.1.2.4", 0},
      {"short 10.1.2.3:1", 0},
      {SECRET " some.host:1", 0},
      {"", 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_root root;
    vt_status st = vt_root_read(rows[i].text, &root);
    if ((st == VT_OK) != (rows[i].count > 0) || (!st && root.count != rows[i].count))
      fail_msg("%s: %s", rows[i].text, st ? vt_status_message(st) : "read");
    vt_status_free(st);
  }
}

static void a_store_is_for_those_of_whom_nothing_says(void **state) {
  static const struct {
    const char *slice, *environment, *error;
    int count;
  } rows[] = {
      {"v4-16", "", NULL, 2},
      {"v4-16", "TPU_PROCESS_BOUNDS=1,1,1", NULL, 1},
      {"v4-16", "VTPU_HOSTS=alone", NULL, 1},
      {"v4-16", "TPU_PROCESS_ADDRESSES=a:1,b:1 CLOUD_TPU_TASK_ID=0", NULL, 2},
      {"v3-8", "", "2 processes, and v3-8 has 1 hosts", 0},
      {"v3-8", "TPU_PROCESS_BOUNDS=1,2,1", NULL, 2},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_slice slice;
    vt_join join;
    vt_arena arena = {0};
    const vt_store store = {.index = 1, .count = 2};
    assert_null(vt_slice_from_name(rows[i].slice, &slice));
    vt_status st = vt_join_read(&slice, look_up, (void *)(uintptr_t)rows[i].environment, &store,
                                &arena, &join);
    if (rows[i].error) {
      assert_non_null(strstr(vt_status_message(st), rows[i].error));
    } else {
      assert_null(st);
      assert_int_equal(join.count, rows[i].count);
      assert_true((join.store == &store) == (join.count == 2 && join.index == 1));
    }
    vt_status_free(st);
    vt_arena_free(&arena);
  }
}

// ---- the metadata server ------------------------------------------------------------------------

static vt_bytes bytes_of(const char *text) {
  return (vt_bytes){(const uint8_t *)text, strlen(text)};
}

static void answers_of_metadata_servers(void **state) {
  static const struct {
    const char *answer, *body; // NULL: not one of theirs
  } rows[] = {
      {"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n\r\nv4-16", "v4-16"},
      {"HTTP/1.0 200 OK\r\nserver: x\r\nmetadata-flavor: google\r\n\r\na\r\n\r\nb", "a\r\n\r\nb"},
      {"HTTP/1.1 200 OK\nMetadata-Flavor: Google\n\n", ""},
      {"HTTP/1.1 404 Not Found\r\nMetadata-Flavor: Google\r\n\r\nx", NULL},
      {"HTTP/1.1 200 OK\r\n\r\nthe page of a hotel's network", NULL},
      {"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx",
       NULL},
      {"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n", NULL},
      {"", NULL},
  };
  static const char *const lines = "A: '1'\n B : 'two words' \nnothing\nC:\nA: '2'\nAA: '3'";
  vt_bytes part;
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(vt_metadata_body(bytes_of(rows[i].answer), &part), rows[i].body != NULL);
    if (!rows[i].body) continue;
    assert_int_equal(part.size, strlen(rows[i].body));
    assert_memory_equal(part.data, rows[i].body, part.size);
  }
  assert_true(vt_metadata_value(bytes_of(lines), "A", &part));
  assert_true(part.size == 1 && *part.data == '1');
  assert_true(vt_metadata_value(bytes_of(lines), "B", &part));
  assert_true(part.size == 9 && !memcmp(part.data, "two words", 9));
  assert_true(vt_metadata_value(bytes_of(lines), "C", &part) && part.size == 0);
  assert_false(vt_metadata_value(bytes_of(lines), "nothing", &part));
}

static void addresses_of_workers(void **state) {
  static const char *const rows[][2] = {{"w0:17:10.0.0.1,w1:17:10.0.0.2", "10.0.0.1,10.0.0.2"},
                                        {"a.b,c.d\n", "a.b,c.d"},
                                        {"w0:17:fd00::1", "fd00::1"},
                                        {"", ""}};
  (void)state;
  for (size_t i = 0; i < 4; i++) {
    vt_text text = {0};
    vt_metadata_addresses(bytes_of(rows[i][0]), &text);
    assert_string_equal(vt_text_string(&text), rows[i][1]);
    vt_text_free(&text);
  }
}

// ---- processes ----------------------------------------------------------------------------------

enum { FEW = 5, MOST = 300 };
typedef struct world {
  int32_t count;
  vt_address addresses[MOST];
  const char *machine[MOST], *cookie[MOST];
  int32_t index[MOST]; // that a process claims
  vt_transport transport[MOST];
} world;

// Below those that the kernel hands out: nobody's outgoing connection takes it in between.
static int free_port(void) {
  static int next;
  if (!next) next = 10000 + (int)getpid() * 37 % 20000;
  for (;;) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)next++)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), taken = bind(fd, (struct sockaddr *)&a, sizeof a);
    close(fd);
    if (!taken) return next - 1;
  }
}

static world world_of(int32_t count) {
  world w = {.count = count};
  for (int32_t i = 0; i < count; i++) {
    strcpy(w.addresses[i].host, "127.0.0.1");
    w.addresses[i].port = free_port();
    w.machine[i] = "avx2, 1 thread";
    w.cookie[i] = "";
    w.index[i] = i;
  }
  return w;
}

// Joins as process `i`; in a child.
static vt_status join_world(const world *w, int32_t i, double timeout, vt_peers **out_peers) {
  static const char *names[MOST];
  vt_join join = {.count = w->count,
                  .index = w->index[i],
                  .root = w->addresses[0],
                  .own = w->addresses[i],
                  .names = names,
                  .cookie = w->cookie[i],
                  .timeout_s = timeout,
                  .transport = w->transport[i]};
  vt_peers_self self = {"v3-32", "vtpu test", w->machine[i]};
  return vt_peers_join(&join, &self, out_peers);
}

// Runs `act` in a child for each process; the children's exit codes must be 0, or -1 where killed.
typedef int (*actor)(const world *w, int32_t i);
static void run_world(const world *w, actor act, int32_t killed) {
  pid_t children[MOST];
  for (int32_t i = 0; i < w->count; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) _exit(act(w, i));
  }
  for (int32_t i = 0; i < w->count; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    if (i == killed)
      assert_true(WIFSIGNALED(status));
    else if (!WIFEXITED(status) || WEXITSTATUS(status))
      fail_msg("process %d ended with status %x", i, (unsigned)status);
  }
}

// Expects an error with `part` in it.
static int expect_error(vt_status st, const char *part) {
  int bad = !st || !strstr(vt_status_message(st), part);
  if (bad) fprintf(stderr, "got \"%s\", want \"%s\"\n", st ? vt_status_message(st) : "", part);
  vt_status_free(st);
  return bad;
}

typedef struct inbox {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int messages, lost;
  bool wrong, refuse;
  int32_t who;
  char why[300];
} inbox;

enum { LARGE = 3 << 20 };

static bool expects(void *user, int32_t from, vt_bytes head, uint64_t size) {
  inbox *box = user;
  (void)from;
  return !box->refuse && head.size == 2 && size <= LARGE;
}
static bool message(void *user, int32_t from, vt_bytes head, vt_bytes body) {
  inbox *box = user;
  pthread_mutex_lock(&box->lock);
  box->wrong |= head.data[0] != from;
  for (size_t i = 0; i < body.size; i += 4099) box->wrong |= body.data[i] != (uint8_t)(from + i);
  bool keeps = box->messages++ % 2 == 0;
  pthread_cond_broadcast(&box->changed);
  pthread_mutex_unlock(&box->lock);
  if (keeps) free((void *)(uintptr_t)body.data);
  return keeps;
}
static void lost(void *user, int32_t peer, vt_status why) {
  inbox *box = user;
  pthread_mutex_lock(&box->lock);
  box->lost++;
  box->who = peer;
  snprintf(box->why, sizeof box->why, "%s", vt_status_message(why));
  pthread_cond_broadcast(&box->changed);
  pthread_mutex_unlock(&box->lock);
  vt_status_free(why);
}
static void tick(void *user) {
  (void)user;
}

static inbox the_box = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static const vt_peers_handler handler = {&the_box, expects, message, lost, tick};

static bool join_and_start(const world *w, int32_t i, vt_peers **peers) {
  vt_status st = join_world(w, i, 60, peers);
  if (!st) st = vt_peers_start(*peers, &handler);
  if (st) fprintf(stderr, "process %d: %s\n", i, vt_status_message(st));
  return st == VT_OK;
}

static atomic_int sends;
static void sent(void *user, vt_status error) {
  (void)user;
  if (!error) atomic_fetch_add(&sends, 1);
  vt_status_free(error);
}

// Messages of all sizes from everybody to everybody arrive whole, and before the goodbye.
static int talk(const world *w, int32_t i) {
  vt_peers *peers;
  static uint8_t body[LARGE];
  enum { ROUNDS = 20 };
  for (size_t k = 0; k < LARGE; k++) body[k] = (uint8_t)((size_t)i + k);
  if (!join_and_start(w, i, &peers)) return 1;
  for (int round = 0; round < ROUNDS; round++)
    for (int32_t to = 0; to < w->count; to++) {
      uint8_t head[2] = {(uint8_t)i, (uint8_t)round};
      vt_bytes bytes = {body, round % 5 ? (size_t)round * 11 : LARGE - (size_t)round};
      if (to != i) vt_peers_send(peers, to, (vt_bytes){head, 2}, bytes, sent, NULL);
    }
  pthread_mutex_lock(&the_box.lock);
  while (the_box.messages < ROUNDS * (w->count - 1))
    pthread_cond_wait(&the_box.changed, &the_box.lock);
  int bad = the_box.wrong;
  pthread_mutex_unlock(&the_box.lock);
  vt_peers_leave(peers);
  return bad || atomic_load(&sends) != ROUNDS * (w->count - 1);
}

static void all_messages_arrive(void **state) {
  (void)state;
  for (int32_t count = 2; count <= FEW; count++) {
    world w = world_of(count);
    run_world(&w, talk, -1);
    for (int32_t i = 0; i < count; i++) w.transport[i] = VT_TRANSPORT_UCX;
    if (count > 3) w.transport[2] = VT_TRANSPORT_TCP; // the others speak TCP with it, too
    run_world(&w, talk, -1);
  }
}

// Until one is lost, which has to be process 1; `how` is in what is said of it.
static int await_its_end(int32_t i, const char *how) {
  pthread_mutex_lock(&the_box.lock);
  while (!the_box.lost) pthread_cond_wait(&the_box.changed, &the_box.lock);
  int bad = !strstr(the_box.why, "process 1 (host") || !strstr(the_box.why, how);
  if (bad) fprintf(stderr, "process %d: %s\n", i, the_box.why);
  pthread_mutex_unlock(&the_box.lock);
  return bad;
}

static int see_a_death(const world *w, int32_t i) {
  vt_peers *peers;
  if (!join_and_start(w, i, &peers)) return 1;
  if (i == 1) raise(SIGKILL);
  int bad = await_its_end(i, "ended");
  if (i % 2 == 0) return bad; // without a goodbye, as a program that fails
  vt_peers_leave(peers);
  return bad;
}

static void a_death_is_noticed_by_all(void **state) {
  (void)state;
  for (int round = 0; round < 10; round++) {
    world w = world_of(FEW);
    run_world(&w, see_a_death, 1);
  }
}

// Large messages are under way in all directions when one dies.
static int die_while_talking(const world *w, int32_t i) {
  vt_peers *peers;
  static uint8_t body[LARGE];
  for (size_t k = 0; k < LARGE; k++) body[k] = (uint8_t)((size_t)i + k);
  if (!join_and_start(w, i, &peers)) return 1;
  for (int round = 0; round < 100; round++) {
    pthread_mutex_lock(&the_box.lock);
    while (!the_box.lost && the_box.messages < (round - 2) * (w->count - 1))
      pthread_cond_wait(&the_box.changed, &the_box.lock);
    bool over = the_box.lost;
    pthread_mutex_unlock(&the_box.lock);
    if (over) break;
    if (i == 1 && round == 5) raise(SIGKILL);
    for (int32_t to = 0; to < w->count; to++) {
      uint8_t head[2] = {(uint8_t)i, (uint8_t)round};
      if (to != i)
        vt_peers_send(peers, to, (vt_bytes){head, 2}, (vt_bytes){body, LARGE}, sent, NULL);
    }
  }
  int bad = await_its_end(i, ""); // or cannot be reached
  vt_peers_leave(peers);
  return bad || the_box.wrong;
}

static void a_death_while_talking_is_noticed_by_all(void **state) {
  (void)state;
  for (int round = 0; round < 6; round++) {
    world w = world_of(FEW);
    for (int32_t i = 0; i < FEW; i++)
      w.transport[i] = round % 2 ? VT_TRANSPORT_UCX : VT_TRANSPORT_TCP;
    run_world(&w, die_while_talking, 1);
  }
}

// The connection that this process has made to another.
static int socket_to(const world *w, int32_t other) {
  for (int fd = 3; fd < 256; fd++) {
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    if (!getpeername(fd, (struct sockaddr *)&a, &size) && a.sin_family == AF_INET &&
        ntohs(a.sin_port) == w->addresses[other].port)
      return fd;
  }
  return -1;
}

// Process 2 ends with a body on its way, and behind it the word that process 1 has ended; but only
// after the others have joined, of which each has a word for it.
static int end_before_a_body(const world *w, int32_t i) {
  vt_peers *peers;
  uint8_t head[2] = {(uint8_t)i, 0};
  if (i == 2) {
    uint8_t words[2000] = {0}, *at = words;
    vt_status st = join_world(w, i, 60, &peers);
    struct pollfd others[2] = {{st ? -1 : socket_to(w, 0), POLLIN, 0},
                               {st ? -1 : socket_to(w, 1), POLLIN, 0}};
    vt_status_free(st);
    for (int k = 0; k < 2; k++)
      if (poll(&others[k], 1, 60000) != 1) return 1;
    vt_frame_write((vt_frame){VT_FRAME_APART, 2, LARGE}, at);
    vt_frame_write((vt_frame){VT_FRAME_MESSAGE, 2, 1000}, at += VT_FRAME_BYTES + 2);
    vt_frame_write((vt_frame){VT_FRAME_LOST, 0, 1}, at += VT_FRAME_BYTES + 2 + 1000);
    ssize_t size = at + VT_FRAME_BYTES - words;
    int bad = write(others[0].fd, words, (size_t)size) != size;
    shutdown(others[0].fd, SHUT_WR); // what is not read when this ends would reset the connection
    while (poll(others, 1, 60000) == 1 && recv(others[0].fd, words, sizeof words, 0) > 0) {
    }
    return bad;
  }
  if (!join_and_start(w, i, &peers)) return 1;
  vt_peers_send(peers, 2, (vt_bytes){head, 2}, (vt_bytes){0}, NULL, NULL);
  pthread_mutex_lock(&the_box.lock);
  while (the_box.lost < 1 + i) pthread_cond_wait(&the_box.changed, &the_box.lock);
  pthread_mutex_unlock(&the_box.lock);
  if (i == 1) return 0;
  return the_box.messages ||
         expect_error(vt_error(VT_UNAVAILABLE, "%s", the_box.why), "process 1 (host 127.0.0.1");
}

static void the_first_end_is_told_behind_a_body(void **state) {
  (void)state;
  world w = world_of(3);
  for (int32_t i = 0; i < w.count; i++) w.transport[i] = VT_TRANSPORT_UCX;
  run_world(&w, end_before_a_body, -1);
}

// A word from each to each, then a death.
static int be_one_of_many(const world *w, int32_t i) {
  vt_peers *peers;
  uint8_t head[2] = {(uint8_t)i, 0};
  if (!join_and_start(w, i, &peers)) return 1;
  for (int32_t to = 0; to < w->count; to++)
    if (to != i) vt_peers_send(peers, to, (vt_bytes){head, 2}, (vt_bytes){0}, NULL, NULL);
  pthread_mutex_lock(&the_box.lock);
  while (the_box.messages < w->count - 1) pthread_cond_wait(&the_box.changed, &the_box.lock);
  if (i == 1) raise(SIGKILL);
  while (!the_box.lost) pthread_cond_wait(&the_box.changed, &the_box.lock);
  int bad = !strstr(the_box.why, "process 1 (host");
  if (bad) fprintf(stderr, "process %d: %s\n", i, the_box.why);
  pthread_mutex_unlock(&the_box.lock);
  return bad;
}

static void many_processes_meet(void **state) {
  (void)state;
  const char *wanted = getenv("VTPU_TEST_PROCESSES");
  int count = wanted ? atoi(wanted) : 20;
  world w = world_of(count > FEW && count <= MOST ? count : FEW);
  run_world(&w, be_one_of_many, 1);
}

// A child of a process that died keeps nothing of its connections open.
static int die_with_a_child(const world *w, int32_t i) {
  vt_peers *peers;
  if (!join_and_start(w, i, &peers)) return 1;
  if (i == 1) {
    if (fork() == 0) {
      sleep(60);
      _exit(0);
    }
    raise(SIGKILL);
  }
  pthread_mutex_lock(&the_box.lock);
  while (!the_box.lost) pthread_cond_wait(&the_box.changed, &the_box.lock);
  pthread_mutex_unlock(&the_box.lock);
  vt_peers_leave(peers);
  return the_box.who != 1;
}

static void a_dead_process_with_children_is_dead(void **state) {
  (void)state;
  world w = world_of(2);
  run_world(&w, die_with_a_child, 1);
}

static int see_a_goodbye(const world *w, int32_t i) {
  vt_peers *peers;
  if (!join_and_start(w, i, &peers)) return 1;
  if (i == 0) {
    pthread_mutex_lock(&the_box.lock);
    while (!the_box.lost) pthread_cond_wait(&the_box.changed, &the_box.lock);
    pthread_mutex_unlock(&the_box.lock);
    if (!strstr(the_box.why, "has left the job")) return 2;
  }
  vt_peers_leave(peers);
  return 0;
}

static void leaving_is_no_death(void **state) {
  (void)state;
  world w = world_of(2);
  run_world(&w, see_a_goodbye, -1);
}

// A message that nobody waits for ends the connection, not the process.
static int refuse_a_body(const world *w, int32_t i) {
  vt_peers *peers;
  uint8_t head[2] = {(uint8_t)i, 0}, body[100] = {0};
  the_box.refuse = i == 0;
  if (!join_and_start(w, i, &peers)) return 1;
  if (i == 1) vt_peers_send(peers, 0, (vt_bytes){head, 2}, (vt_bytes){body, 100}, NULL, NULL);
  pthread_mutex_lock(&the_box.lock);
  while (!the_box.lost) pthread_cond_wait(&the_box.changed, &the_box.lock);
  int bad = i == 0 && !strstr(the_box.why, "nobody waits for");
  pthread_mutex_unlock(&the_box.lock);
  vt_peers_leave(peers);
  return bad;
}

static void unexpected_bytes_are_refused(void **state) {
  (void)state;
  world w = world_of(2);
  run_world(&w, refuse_a_body, -1);
}

// ---- memory of one host -------------------------------------------------------------------------

// Pieces of all sizes in both directions, of which each side holds back some.
static int pass_pieces(const world *w, int32_t i) {
  enum { PIECES = 400 };
  vt_peers *peers;
  if (!join_and_start(w, i, &peers)) return 1;
  const vt_lanes *lanes = vt_peers_lanes(peers, 1 - i);
  vt_bell *bell = vt_peers_bell(peers);
  int bad = !lanes, sent_count = 0, got = 0;
  while (!bad && (sent_count < PIECES || got < PIECES)) {
    uint32_t before = vt_bell_state(bell);
    vt_lane_piece piece;
    bool moved = false;
    uint8_t *room = sent_count < PIECES ? vt_lane_room(lanes->to) : NULL;
    if (room) {
      uint64_t size = sent_count % 7 ? (uint64_t)sent_count * 3 : VT_PIECE_BYTES;
      memset(room, sent_count + i, size);
      piece = (vt_lane_piece){1, 2, (uint64_t)sent_count++, size, 0, size};
      vt_lane_push(lanes->to, &piece);
      vt_bell_ring(lanes->bell);
      moved = true;
    }
    const uint8_t *bytes = got < PIECES ? vt_lane_front(lanes->from, &piece) : NULL;
    if (bytes) {
      bad = piece.meeting != (uint64_t)got;
      for (uint64_t k = 0; k < piece.size; k += 97) bad |= bytes[k] != (uint8_t)(got + 1 - i);
      if (vt_lane_pop(lanes->from)) vt_bell_ring(lanes->bell);
      got++;
      moved = true;
    }
    if (!moved) vt_bell_wait(bell, before);
  }
  vt_peers_leave(peers);
  return bad;
}

static void pieces_pass_in_both_directions(void **state) {
  (void)state;
  world w = world_of(2);
  run_world(&w, pass_pieces, -1);
}

static int see_lanes(const world *w, int32_t i) {
  vt_peers *peers;
  int bad = 0;
  if (!join_and_start(w, i, &peers)) return 1;
  for (int32_t k = 0; k < w->count; k++) {
    bool both = w->transport[i] == VT_TRANSPORT_AUTO && w->transport[k] == VT_TRANSPORT_AUTO;
    bad |= (vt_peers_lanes(peers, k) != NULL) != (k != i && both);
  }
  vt_peers_leave(peers);
  return bad;
}

static void both_sides_know_whether_memory_is_shared(void **state) {
  (void)state;
  world w = world_of(4);
  w.transport[2] = VT_TRANSPORT_TCP;
  run_world(&w, see_lanes, -1);
}

// Numbers of another process may name anything: only the segment with the secret is opened.
static void only_a_segment_with_its_secret_is_opened(void **state) {
  (void)state;
  vt_segment mine, theirs = VT_NO_SEGMENT;
  vt_offer offer, wrong;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  assert_null(vt_segment_create(2, &mine, &offer));
  assert_null(vt_segment_open(&offer, 1, &theirs));
  vt_segment_close(&theirs);
  wrong = offer;
  wrong.secret[3] ^= 1;
  assert_int_equal(expect_error(vt_segment_open(&wrong, 1, &theirs), "is another one"), 0);
  wrong = offer;
  wrong.fd = (uint32_t)pipes[0];
  assert_int_equal(expect_error(vt_segment_open(&wrong, 1, &theirs), "no such memory"), 0);
  wrong.fd = 99999;
  assert_int_equal(expect_error(vt_segment_open(&wrong, 1, &theirs), "No such file"), 0);
  assert_int_equal(expect_error(vt_segment_open(&offer, 2, &theirs), "not as expected"), 0);
  wrong.pid = 0;
  assert_int_equal(expect_error(vt_segment_open(&wrong, 1, &theirs), "shares none"), 0);
  vt_segment_close(&mine);
  // what another process wrote
  assert_null(vt_segment_create(1, &mine, &offer));
  vt_lane *lane = vt_segment_lane(&mine, 0);
  vt_lane_piece piece = {.group = 1, .number = 2, .total = 10, .at = 8, .size = 3};
  vt_lane_push(lane, &piece);
  assert_non_null(vt_lane_front(lane, &piece));
  assert_int_equal(piece.number, 0);
  vt_segment_close(&mine);
  close(pipes[0]);
  close(pipes[1]);
}

// ---- those who do not fit -----------------------------------------------------------------------

static int see_other_machine(const world *w, int32_t i) {
  vt_peers *peers = NULL;
  return expect_error(join_world(w, i, 20, &peers), "amx, 8 threads");
}
static void other_machines_are_refused_on_all(void **state) {
  (void)state;
  world w = world_of(2);
  w.machine[1] = "amx, 8 threads";
  run_world(&w, see_other_machine, -1);
}

static int see_twins(const world *w, int32_t i) {
  vt_peers *peers = NULL;
  return expect_error(join_world(w, i, 20, &peers), "two processes say they are number 1");
}
static void two_of_one_number_are_refused(void **state) {
  (void)state;
  world w = world_of(3);
  w.index[2] = 1;
  run_world(&w, see_twins, -1);
}

static int miss_one(const world *w, int32_t i) {
  vt_peers *peers = NULL;
  if (i == 2) return 0; // never comes
  return expect_error(join_world(w, i, 2, &peers), "process 2");
}
static void the_missing_are_named(void **state) {
  (void)state;
  world w = world_of(3);
  run_world(&w, miss_one, -1);
}

static int miss_the_first(const world *w, int32_t i) {
  vt_peers *peers = NULL;
  return i == 0 ? 0 : expect_error(join_world(w, i, 1, &peers), "process 0 (host 127.0.0.1)");
}
static void a_missing_first_one_is_named(void **state) {
  (void)state;
  world w = world_of(2);
  run_world(&w, miss_the_first, -1);
}

static int come_with_another_cookie(const world *w, int32_t i) {
  vt_peers *peers = NULL;
  return expect_error(join_world(w, i, 2, &peers), i ? "VTPU_COOKIE" : "process 1");
}
static void another_cookie_is_a_stranger(void **state) {
  (void)state;
  world w = world_of(2);
  w.cookie[0] = "right";
  w.cookie[1] = "wrong";
  run_world(&w, come_with_another_cookie, -1);
}

// Connections that say nothing, or anything else, neither join nor delay.
static int come_after_strangers(const world *w, int32_t i) {
  vt_peers *peers = NULL;
  static const char noise[] = "GET / HTTP/1.1\r\nHost: tpu\r\n\r\n";
  if (i == 1)
    for (int k = 0; k < 20; k++) {
      struct sockaddr_in a = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)w->addresses[0].port)};
      int fd = socket(AF_INET, SOCK_STREAM, 0);
      while (connect(fd, (struct sockaddr *)&a, sizeof a)) usleep(1000);
      if (k % 2) (void)!write(fd, noise, sizeof noise);
      if (k % 4 == 1) close(fd);
    }
  vt_status st = join_world(w, i, 20, &peers);
  if (st) fprintf(stderr, "%s\n", vt_status_message(st));
  vt_peers_leave(peers);
  return st != VT_OK;
}
static void strangers_neither_join_nor_delay(void **state) {
  (void)state;
  world w = world_of(2);
  run_world(&w, come_after_strangers, -1);
}

static void a_taken_port_is_an_error(void **state) {
  (void)state;
  world w = world_of(2);
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                          .sin_port = htons((uint16_t)w.addresses[0].port)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
  assert_int_equal(listen(fd, 1), 0);
  vt_peers *peers = NULL;
  assert_int_equal(expect_error(join_world(&w, 0, 5, &peers), "is taken"), 0);
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(environments_say_who_this_is),
      cmocka_unit_test(addresses_of_process_0),
      cmocka_unit_test(a_store_is_for_those_of_whom_nothing_says),
      cmocka_unit_test(answers_of_metadata_servers),
      cmocka_unit_test(addresses_of_workers),
      cmocka_unit_test(all_messages_arrive),
      cmocka_unit_test(a_death_is_noticed_by_all),
      cmocka_unit_test(a_death_while_talking_is_noticed_by_all),
      cmocka_unit_test(the_first_end_is_told_behind_a_body),
      cmocka_unit_test(many_processes_meet),
      cmocka_unit_test(a_dead_process_with_children_is_dead),
      cmocka_unit_test(leaving_is_no_death),
      cmocka_unit_test(unexpected_bytes_are_refused),
      cmocka_unit_test(pieces_pass_in_both_directions),
      cmocka_unit_test(both_sides_know_whether_memory_is_shared),
      cmocka_unit_test(only_a_segment_with_its_secret_is_opened),
      cmocka_unit_test(other_machines_are_refused_on_all),
      cmocka_unit_test(two_of_one_number_are_refused),
      cmocka_unit_test(the_missing_are_named),
      cmocka_unit_test(a_missing_first_one_is_named),
      cmocka_unit_test(another_cookie_is_a_stranger),
      cmocka_unit_test(strangers_neither_join_nor_delay),
      cmocka_unit_test(a_taken_port_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
