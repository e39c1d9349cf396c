// SPDX-License-Identifier: Apache-2.0
// crossing_test.c - runs over several processes: the bits of one process, and an error with a name
// when a process is gone or runs another program.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/crossing.h"

enum { PROCESSES = 4, DEVICES = 8, WIDTH = 6 };

// Rows are split over the devices; a mean and a reversal need the rows of all.
#define BY_ROWS "{devices=[8,1]<=[8]}"
#define WHOLE   "tensor<8x6xf32>"
static const char program[] =
    "module @jit_step attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "func.func public @main(%x: " WHOLE " {mhlo.sharding = \"" BY_ROWS "\"}, "
    "%y: tensor<6xf32> {mhlo.sharding = \"{replicated}\"}) -> "
    "(" WHOLE " {mhlo.sharding = \"" BY_ROWS
    "\"}, tensor<6xf32> {mhlo.sharding = \"{replicated}\"}) {\n"
    "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : "
    "(" WHOLE ", tensor<f32>) -> tensor<6xf32>\n"
    "%t = stablehlo.OPERATION %s, %y : tensor<6xf32>\n"
    "%b = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<6xf32>) -> " WHOLE "\n"
    "%r = stablehlo.reverse %x, dims = [0] : " WHOLE "\n"
    "%e = stablehlo.multiply %r, %b : " WHOLE "\n"
    "%f = stablehlo.sine %e : " WHOLE "\n"
    "return %f, %t : " WHOLE ", tensor<6xf32> } }\n";

static vt_executable *compile_text(const vt_client *client, const char *text) {
  vt_executable *executable = NULL;
  vt_executable_options options = {.replicas = 1, .partitions = DEVICES};
  vt_status st =
      vt_executable_compile(vt_client_slice(client),
                            (vt_bytes){(const uint8_t *)text, strlen(text)}, &options, &executable);
  if (st) fprintf(stderr, "%s\n", vt_status_message(st));
  return executable;
}

static vt_executable *compile(const vt_client *client, const char *op) {
  static char text[sizeof program + 16];
  const char *at = strstr(program, "OPERATION");
  snprintf(text, sizeof text, "%.*s%s%s", (int)(at - program), program, op, at + 9);
  return compile_text(client, text);
}

static float start_value(int32_t row, int column) {
  return 0.1f + (float)(row * 13 + column * 7 % 5) / 17;
}

typedef struct arrays {
  int32_t here;
  vt_buffer *x[DEVICES], *y[DEVICES];
} arrays;

static vt_status put(vt_client *client, arrays *out) {
  const int64_t row[] = {1, WIDTH}, column[] = {WIDTH};
  out->here = 0;
  for (int32_t d = 0; d < DEVICES; d++) {
    vt_device *device = vt_client_device(client, d);
    float x[WIDTH], y[WIDTH];
    if (device->process != vt_client_process(client)) continue;
    for (int i = 0; i < WIDTH; i++) x[i] = start_value(d, i), y[i] = (float)i;
    vt_memory *memory = &device->memories[VT_MEMORY_DEVICE];
    VT_TRY(
        vt_buffer_from_host(memory, (vt_type){VT_F32, 2, row}, x, NULL, NULL, &out->x[out->here]));
    VT_TRY(vt_buffer_from_host(memory, (vt_type){VT_F32, 1, column}, y, NULL, NULL,
                               &out->y[out->here++]));
  }
  return VT_OK;
}

static void drop(arrays *a) {
  for (int32_t i = 0; i < a->here; i++) {
    vt_buffer_destroy(a->x[i]);
    vt_buffer_destroy(a->y[i]);
  }
}

static vt_status start_step(vt_client *client, vt_executable *executable, const arrays *a,
                            vt_buffer *out[DEVICES][2], vt_event **out_done) {
  vt_buffer *in[DEVICES][2];
  vt_buffer *const *in_rows[DEVICES];
  vt_buffer **out_rows[DEVICES];
  for (int32_t i = 0; i < a->here; i++) {
    in[i][0] = a->x[i], in[i][1] = a->y[i];
    in_rows[i] = in[i];
    out_rows[i] = out[i];
  }
  vt_execution execution = {.arguments = in_rows, .results = out_rows, .argument_count = 2};
  return vt_executable_execute(client, executable, &execution, out_done);
}

static vt_status step(vt_client *client, vt_executable *executable, arrays *a) {
  vt_buffer *out[DEVICES][2];
  vt_event *done = NULL;
  VT_TRY(start_step(client, executable, a, out, &done));
  vt_status st = vt_event_await(done);
  vt_event_release(done);
  drop(a);
  for (int32_t i = 0; i < a->here; i++) a->x[i] = out[i][0], a->y[i] = out[i][1];
  return st;
}

enum { STEPS = 30 };

// STEPS steps; every fifth is on new arrays that are put together from shards.
static vt_status run_steps(vt_client *client, const char *op, float out_rows[DEVICES][WIDTH]) {
  arrays a = {0};
  vt_executable *executable = compile(client, op);
  vt_status st = executable ? put(client, &a) : vt_error(VT_INTERNAL, "no program");
  for (int i = 0; i < STEPS && !st; i++) {
    if (i % 5 == 4)
      for (int32_t k = 0; k < a.here && !st; k++) { // its own storage, equal bits
        float row[WIDTH];
        const int64_t dims[] = {1, WIDTH};
        vt_event *copied = NULL;
        vt_memory *memory = vt_buffer_memory(a.x[k]);
        st = vt_buffer_to_host(a.x[k], row, NULL, &copied);
        if (!st) st = vt_event_await(copied);
        vt_event_release(copied);
        vt_buffer_destroy(a.x[k]);
        a.x[k] = NULL;
        if (!st)
          st = vt_buffer_from_host(memory, (vt_type){VT_F32, 2, dims}, row, NULL, NULL, &a.x[k]);
      }
    if (!st) st = step(client, executable, &a);
  }
  for (int32_t k = 0; k < a.here && !st; k++) {
    vt_event *copied = NULL;
    int32_t id = vt_buffer_memory(a.x[k])->device->id;
    st = vt_buffer_to_host(a.x[k], out_rows[id], NULL, &copied);
    if (!st) st = vt_event_await(copied);
    vt_event_release(copied);
  }
  drop(&a);
  vt_executable_release(executable);
  return st;
}

// ---- processes ----------------------------------------------------------------------------------

static int ports[PROCESSES];

// Below those that the kernel hands out: nobody's outgoing connection takes one in between.
static void pick_ports(void) {
  static int next;
  if (!next) next = 10000 + (int)getpid() * 37 % 20000;
  for (int i = 0; i < PROCESSES; next++) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)next)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0) ports[i++] = next;
    close(fd);
  }
}

static vt_status join(int count, int index, vt_client **out_client) {
  vt_slice slice;
  char text[256] = "", *at = text;
  for (int i = 0; i < count; i++) at += sprintf(at, "%slocalhost:%d", i ? "," : "", ports[i]);
  setenv("TPU_PROCESS_ADDRESSES", text, 1);
  setenv("TPU_PROCESS_BOUNDS", count == 2 ? "1,2,1" : count == 4 ? "2,2,1" : "1,1,1", 1);
  sprintf(text, "%d", index);
  setenv("CLOUD_TPU_TASK_ID", text, 1);
  VT_TRY(vt_slice_from_name("v3-8", &slice));
  return vt_client_join(&slice, "test", NULL, out_client);
}

// Children; each has an exit code. Nothing of the runtime is used before they are forked.
typedef int (*actor)(int count, int index);
static void run_all(int count, actor act, int killed) {
  pid_t children[PROCESSES];
  pick_ports();
  for (int i = 0; i < count; i++) {
    children[i] = fork();
    if (children[i] == 0) exit(act(count, i));
  }
  for (int i = 0; i < count; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    if (i == killed ? !WIFSIGNALED(status) : !WIFEXITED(status) || WEXITSTATUS(status))
      fail_msg("process %d of %d ended with status %x", i, count, (unsigned)status);
  }
}

static float (*shared_rows)[DEVICES][WIDTH]; // [count], in memory that children share

static int fail_with(vt_status st) {
  fprintf(stderr, "%s\n", vt_status_message(st));
  vt_status_free(st);
  return 1;
}

static int compute(int count, int index) {
  vt_client *client = NULL;
  vt_status st = join(count, index, &client);
  if (!st) st = run_steps(client, "add", shared_rows[count]);
  vt_client_destroy(client);
  return st ? fail_with(st) : 0;
}

static void all_numbers_of_processes_give_the_same_bits(void **state) {
  (void)state;
  for (int count = 1; count <= PROCESSES; count *= 2) run_all(count, compute, -1);
  assert_memory_equal(shared_rows[2], shared_rows[1], sizeof shared_rows[1]);
  assert_memory_equal(shared_rows[4], shared_rows[1], sizeof shared_rows[1]);
  assert_true(shared_rows[1][3][2] != 0);
}

static int expect_error(vt_status st, const char *part) {
  int bad = !st || !strstr(vt_status_message(st), part);
  if (bad) fprintf(stderr, "got \"%s\", want \"%s\"\n", vt_status_message(st), part);
  vt_status_free(st);
  return bad;
}

static int run_another(int count, int index) {
  vt_client *client = NULL;
  float rows[DEVICES][WIDTH];
  vt_status st = join(count, index, &client);
  if (st) return fail_with(st);
  st = run_steps(client, index == 1 ? "subtract" : "add", rows);
  int bad = expect_error(st, "processes run different programs");
  vt_client_destroy(client);
  return bad;
}

static void different_programs_end_on_all(void **state) {
  (void)state;
  run_all(2, run_another, -1);
}

// Some steps that go well.
static vt_status begin(int count, int index, vt_client **out_client, vt_executable **out_executable,
                       arrays *out_arrays) {
  *out_client = NULL;
  *out_executable = NULL;
  *out_arrays = (arrays){0};
  VT_TRY(join(count, index, out_client));
  *out_executable = compile(*out_client, "add");
  if (!*out_executable) return vt_error(VT_INTERNAL, "no program");
  VT_TRY(put(*out_client, out_arrays));
  for (int i = 0; i < 5; i++) VT_TRY(step(*out_client, *out_executable, out_arrays));
  return VT_OK;
}

static int see_a_death(int count, int index) {
  vt_client *client;
  vt_executable *executable;
  arrays a;
  vt_status st = begin(count, index, &client, &executable, &a);
  if (index == 2) raise(SIGKILL);
  while (!st) st = step(client, executable, &a);
  int bad = expect_error(st, "process 2 (host localhost");
  drop(&a);
  vt_executable_release(executable);
  vt_client_destroy(client);
  return bad;
}

static void a_death_ends_the_runs_of_all(void **state) {
  (void)state;
  run_all(4, see_a_death, 2);
}

// One announces a run and dies before the others have; two of them hear its word, and the third
// sees its end before it begins the run.
static atomic_int *announced, *ended; // in memory that children share

static void wait_until(atomic_int *at, int least) {
  while (atomic_load(at) < least) usleep(1000);
}

static int die_after_the_word(int count, int index) {
  vt_client *client;
  vt_executable *executable;
  arrays a;
  setenv("VTPU_COLLECTIVE_TIMEOUT", "60", 1);
  vt_status st = begin(count, index, &client, &executable, &a);
  if (index == 2) {
    wait_until(announced, 2);
    usleep(100000);
    vt_buffer *out[DEVICES][2];
    vt_event *done = NULL;
    st = start_step(client, executable, &a, out, &done);
    if (st) return fail_with(st);
    usleep(200000);
    atomic_fetch_add(announced, 1);
    raise(SIGKILL);
  }
  if (index == 0) {
    wait_until(announced, 3);
    usleep(300000); // its end is seen
  } else {
    atomic_fetch_add(announced, 1);
  }
  if (!st) st = step(client, executable, &a);
  int bad = expect_error(st, "process 2 (host localhost");
  atomic_fetch_add(ended, 1);
  wait_until(ended, 3); // nobody's leaving helps
  drop(&a);
  vt_executable_release(executable);
  vt_client_destroy(client);
  return bad;
}

static void a_death_before_the_last_word_ends_the_run(void **state) {
  (void)state;
  run_all(4, die_after_the_word, 2);
}

// ---- replicas -----------------------------------------------------------------------------------

// Each process multiplies by a number of its own; then all replicas reduce.
static const char replica_program[] =
    "module @step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 8 : i32} {\n"
    "func.func public @main(%%x: tensor<6xf32>) -> tensor<6xf32> {\n"
    "%%c = stablehlo.constant dense<%d.0> : tensor<6xf32>\n"
    "%%m = stablehlo.multiply %%x, %%c : tensor<6xf32>\n"
    "%%s = \"stablehlo.all_reduce\"(%%m) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : "
    "tensor<1x8xi64>}> ({\n"
    "^bb0(%%a: tensor<f32>, %%b: tensor<f32>):\n"
    "%%f = stablehlo.%s %%a, %%b : tensor<f32>\n"
    "stablehlo.return %%f : tensor<f32>\n"
    "}) : (tensor<6xf32>) -> tensor<6xf32>\n"
    "%%r = stablehlo.%s %%s, %%x : tensor<6xf32>\n"
    "return %%r : tensor<6xf32> } }\n";

static vt_executable *compile_replicas(const vt_client *client, int number, const char *op,
                                       const char *last) {
  char text[sizeof replica_program + 32];
  vt_executable *executable = NULL;
  vt_executable_options options = {
      .replicas = DEVICES, .partitions = 1, .split = vt_client_split(client)};
  snprintf(text, sizeof text, replica_program, number, op, last);
  vt_status st =
      vt_executable_compile(vt_client_slice(client),
                            (vt_bytes){(const uint8_t *)text, strlen(text)}, &options, &executable);
  if (st) (void)fail_with(st);
  return executable;
}

// The device's replica starts on its own where it is given.
static vt_status run_replicas(vt_client *client, vt_executable *executable, vt_buffer **rows,
                              int32_t here, bool one_by_one) {
  vt_buffer *out[DEVICES] = {0};
  vt_status st = VT_OK;
  for (int32_t i = 0; i < here && !st; i += one_by_one ? 1 : here) {
    vt_buffer *const *in_rows[DEVICES];
    vt_buffer **out_rows[DEVICES];
    for (int32_t k = i; k < here; k++) in_rows[k - i] = &rows[k], out_rows[k - i] = &out[k];
    vt_event *done = NULL;
    vt_execution execution = {.arguments = in_rows,
                              .results = out_rows,
                              .argument_count = 1,
                              .device = one_by_one ? vt_buffer_memory(rows[i])->device : NULL};
    st = vt_executable_execute(client, executable, &execution, &done);
    if (!st && i + 1 == here) st = vt_event_await(done);
    if (!st && !one_by_one) st = vt_event_await(done);
    vt_event_release(done);
  }
  for (int32_t i = 0; i < here; i++) {
    vt_buffer_destroy(rows[i]);
    rows[i] = out[i];
  }
  return st;
}

static int compute_replicas(int count, int index) {
  vt_client *client = NULL;
  vt_buffer *rows[DEVICES] = {0};
  const int64_t dims[] = {WIDTH};
  int32_t here = 0;
  vt_status st = join(count, index, &client);
  vt_executable *executable = st ? NULL : compile_replicas(client, index + 1, "add", "subtract");
  if (!st && !executable) st = vt_error(VT_INTERNAL, "no program");
  for (int32_t d = 0; d < DEVICES && !st; d++) {
    vt_device *device = vt_client_device(client, d);
    float x[WIDTH] = {(float)d, 1, 2, 3, 4, 5};
    if (device->process == vt_client_process(client))
      st = vt_buffer_from_host(&device->memories[VT_MEMORY_DEVICE], (vt_type){VT_F32, 1, dims}, x,
                               NULL, NULL, &rows[here++]);
  }
  for (int i = 0; i < 2 && !st; i++) st = run_replicas(client, executable, rows, here, i > 0);
  for (int32_t k = 0; k < here; k++) {
    vt_event *copied = NULL;
    if (!st) {
      int32_t id = vt_buffer_memory(rows[k])->device->id;
      st = vt_buffer_to_host(rows[k], shared_rows[count][id], NULL, &copied);
      if (!st) st = vt_event_await(copied);
      vt_event_release(copied);
    }
    vt_buffer_destroy(rows[k]);
  }
  vt_executable_release(executable);
  vt_client_destroy(client);
  return st ? fail_with(st) : 0;
}

// Device d of a v3-8 in the order of cores: two on each chip, chips in rows of two.
static int number_of(int count, int d) {
  int chip = d / 2;
  return 1 + (count == 2 ? chip / 2 : count == 4 ? chip : 0);
}

static void replicas_run_a_program_of_their_process(void **state) {
  (void)state;
  for (int count = 1; count <= PROCESSES; count *= 2) {
    memset(shared_rows[count], 0, sizeof shared_rows[count]);
    run_all(count, compute_replicas, -1);
    for (int i = 0; i < WIDTH; i++) {
      float x[DEVICES];
      for (int d = 0; d < DEVICES; d++) x[d] = i ? (float)i : (float)d;
      for (int step = 0; step < 2; step++) {
        float sum = 0;
        for (int d = 0; d < DEVICES; d++) sum += x[d] * (float)number_of(count, d);
        for (int d = 0; d < DEVICES; d++) x[d] = sum - x[d];
      }
      for (int d = 0; d < DEVICES; d++)
        if (shared_rows[count][d][i] != x[d])
          fail_msg("%d processes, device %d, element %d: %g, want %g", count, d, i,
                   (double)shared_rows[count][d][i], (double)x[d]);
    }
  }
}

static int reduce_otherwise(int count, int index) {
  vt_client *client = NULL;
  vt_buffer *rows[DEVICES] = {0};
  const int64_t dims[] = {WIDTH};
  int32_t here = 0;
  vt_status st = join(count, index, &client);
  if (st) return fail_with(st);
  vt_executable *executable = compile_replicas(client, 1, index ? "maximum" : "add", "subtract");
  for (int32_t d = 0; d < DEVICES && !st; d++) {
    vt_device *device = vt_client_device(client, d);
    if (device->process == vt_client_process(client))
      st = vt_buffer_zeros(&device->memories[VT_MEMORY_DEVICE], (vt_type){VT_F32, 1, dims},
                           &rows[here++]);
  }
  if (!st) st = run_replicas(client, executable, rows, here, false);
  int bad = expect_error(st, "processes run different programs");
  for (int32_t k = 0; k < here; k++) vt_buffer_destroy(rows[k]);
  vt_executable_release(executable);
  vt_client_destroy(client);
  return bad;
}

static void replicas_that_reduce_otherwise_end_on_all(void **state) {
  (void)state;
  run_all(2, reduce_otherwise, -1);
}

// Programs of two kinds, each with this process's number. One process may launch another kind than
// the other one; but not each what the other has launched before.
static int swap_programs(int count, int index) {
  vt_client *client = NULL;
  vt_buffer *rows[DEVICES] = {0};
  const int64_t dims[] = {WIDTH};
  int32_t here = 0;
  vt_status st = join(count, index, &client);
  if (st) return fail_with(st);
  vt_executable *both[] = {compile_replicas(client, index + 1, "add", "subtract"),
                           compile_replicas(client, index + 1, "add", "multiply")};
  for (int32_t d = 0; d < DEVICES && !st; d++) {
    vt_device *device = vt_client_device(client, d);
    if (device->process == vt_client_process(client))
      st = vt_buffer_zeros(&device->memories[VT_MEMORY_DEVICE], (vt_type){VT_F32, 1, dims},
                           &rows[here++]);
  }
  // Process 0 sometimes does something of its own.
  for (int i = 0; i < 6 && !st; i++)
    st = run_replicas(client, both[!index && i % 2], rows, here, false);
  if (st) return fail_with(st);
  st = run_replicas(client, both[index], rows, here, false);
  if (!st) st = run_replicas(client, both[!index], rows, here, false);
  int bad = expect_error(st, "the same programs in another order");
  for (int32_t k = 0; k < here; k++) vt_buffer_destroy(rows[k]);
  for (int i = 0; i < 2; i++) vt_executable_release(both[i]);
  vt_client_destroy(client);
  return bad;
}

static void replicas_in_another_order_end_on_all(void **state) {
  (void)state;
  run_all(2, swap_programs, -1);
}

// ---- by shared memory, TCP and UCX --------------------------------------------------------------

// A reversal of rows and a sum over them: blocks of several pieces, and shares.
#define LARGE "tensor<8x300000xf32>"
enum { COLUMNS = 300000 };
static const char large_program[] =
    "module @jit_large attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "func.func public @main(%x: " LARGE " {mhlo.sharding = \"" BY_ROWS "\"}) -> "
    "(" LARGE " {mhlo.sharding = \"" BY_ROWS "\"}) {\n"
    "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "%s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : "
    "(" LARGE ", tensor<f32>) -> tensor<300000xf32>\n"
    "%b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<300000xf32>) -> " LARGE "\n"
    "%r = stablehlo.reverse %x, dims = [0] : " LARGE "\n"
    "%e = stablehlo.multiply %r, %b : " LARGE "\n"
    "%f = stablehlo.sine %e : " LARGE "\n"
    "return %f : " LARGE " } }\n";

static const char *const transports[] = {"auto", "tcp", "ucx"};
enum { TRANSPORTS = 3 };
static int transport;
static float (*shared_large)[DEVICES][COLUMNS]; // [transport]

static vt_status large_step(vt_client *client, vt_executable *executable, vt_buffer **rows,
                            int32_t here) {
  vt_buffer *out[DEVICES][1];
  vt_buffer *const *in_rows[DEVICES];
  vt_buffer **out_rows[DEVICES];
  vt_event *done = NULL;
  for (int32_t i = 0; i < here; i++) in_rows[i] = &rows[i], out_rows[i] = out[i];
  vt_execution execution = {.arguments = in_rows, .results = out_rows, .argument_count = 1};
  VT_TRY(vt_executable_execute(client, executable, &execution, &done));
  vt_status st = vt_event_await(done);
  vt_event_release(done);
  for (int32_t i = 0; i < here; i++) {
    vt_buffer_destroy(rows[i]);
    rows[i] = out[i][0];
  }
  return st;
}

static int compute_large(int count, int index) {
  static float row[COLUMNS];
  const int64_t dims[] = {1, COLUMNS};
  vt_client *client = NULL;
  vt_buffer *rows[DEVICES];
  int32_t here = 0;
  vt_status st = join(count, index, &client);
  vt_executable *executable = st ? NULL : compile_text(client, large_program);
  if (!st && !executable) st = vt_error(VT_INTERNAL, "no program");
  for (int32_t d = 0; d < DEVICES && !st; d++) {
    vt_device *device = vt_client_device(client, d);
    if (device->process != vt_client_process(client)) continue;
    for (int i = 0; i < COLUMNS; i++) row[i] = start_value(d, i);
    st = vt_buffer_from_host(&device->memories[VT_MEMORY_DEVICE], (vt_type){VT_F32, 2, dims}, row,
                             NULL, NULL, &rows[here++]);
  }
  for (int i = 0; i < 4 && !st; i++) st = large_step(client, executable, rows, here);
  for (int32_t k = 0; k < here && !st; k++) {
    vt_event *copied = NULL;
    int32_t id = vt_buffer_memory(rows[k])->device->id;
    st = vt_buffer_to_host(rows[k], shared_large[transport][id], NULL, &copied);
    if (!st) st = vt_event_await(copied);
    vt_event_release(copied);
    vt_buffer_destroy(rows[k]);
  }
  vt_executable_release(executable);
  vt_client_destroy(client);
  return st ? fail_with(st) : 0;
}

static void all_transports_give_the_same_bits(void **state) {
  (void)state;
  for (int count = 2; count <= PROCESSES; count *= 2) {
    for (transport = 0; transport < TRANSPORTS; transport++) {
      setenv("VTPU_TRANSPORT", transports[transport], 1);
      run_all(count, compute_large, -1);
    }
    unsetenv("VTPU_TRANSPORT");
    for (int i = 1; i < TRANSPORTS; i++)
      assert_memory_equal(shared_large[0], shared_large[i], sizeof shared_large[0]);
    assert_true(shared_large[0][5][7] != 0);
  }
}

// One sends, one receives, in both orders of the calls, and with a buffer that is an error.
static int transfer(int count, int index) {
  vt_client *client = NULL;
  const int64_t dims[] = {WIDTH};
  float values[WIDTH] = {1, 2, 3, 4, 5, 6}, got[WIDTH] = {0};
  vt_type type = {VT_F32, 1, dims};
  vt_buffer *buffer = NULL;
  vt_event *event = NULL;
  vt_status st = join(count, index, &client);
  for (int64_t key = 0; key < 20 && !st; key++) {
    int sender = (int)(key % 2);
    vt_memory *memory = &vt_client_device(client, index * 4)->memories[VT_MEMORY_DEVICE];
    if (index == sender) {
      st = key == 7 ? vt_buffer_poisoned(memory, type, vt_error(VT_INTERNAL, "spoilt"), &buffer)
                    : vt_buffer_from_host(memory, type, values, NULL, NULL, &buffer);
      if (!st) st = vt_transfer_send(buffer, (1 - index) * 4, key, &event);
    } else {
      st = vt_transfer_receive(memory, type, NULL, (1 - index) * 4, key, &buffer);
      if (!st) event = vt_buffer_ready(buffer);
    }
    if (st) break;
    st = vt_event_await(event);
    if (key == 7) st = expect_error(st, "spoilt") ? vt_error(VT_INTERNAL, "key 7") : VT_OK;
    vt_event_release(event);
    if (!st && index != sender && key != 7) {
      st = vt_buffer_to_host(buffer, got, NULL, &event);
      vt_event_release(event);
      if (!st && memcmp(got, values, sizeof got)) st = vt_error(VT_INTERNAL, "other values");
    }
    vt_buffer_destroy(buffer);
  }
  if (!st) { // a device of this process, and one that is none
    vt_memory *memory = &vt_client_device(client, index * 4)->memories[VT_MEMORY_DEVICE];
    if (expect_error(vt_transfer_receive(memory, type, NULL, index * 4, 1, &buffer),
                     "copy instead"))
      return 1;
    if (expect_error(vt_transfer_receive(memory, type, NULL, 99, 1, &buffer),
                     "no device with id 99"))
      return 1;
    memory = &vt_client_device(client, 4 - index * 4)->memories[VT_MEMORY_DEVICE];
    if (expect_error(vt_buffer_zeros(memory, type, &buffer), "belongs to process")) return 1;
  }
  vt_client_destroy(client);
  return st ? fail_with(st) : 0;
}

static void arrays_go_from_process_to_process(void **state) {
  (void)state;
  run_all(2, transfer, -1);
}

// A process that is done leaves; those that go on need it no more.
static int leave_early(int count, int index) {
  vt_client *client = NULL;
  arrays a = {0};
  vt_status st = join(count, index, &client);
  vt_executable *executable = st ? NULL : compile(client, "add");
  if (!st) st = put(client, &a);
  for (int i = 0; i < 3 && !st && executable; i++) st = step(client, executable, &a);
  if (index == 0 && !st) {
    int bad = 0;
    while (!st) st = step(client, executable, &a);
    bad = expect_error(st, "has left the job");
    st = bad ? vt_error(VT_INTERNAL, "another error") : VT_OK;
  }
  drop(&a);
  vt_executable_release(executable);
  vt_client_destroy(client);
  return st ? fail_with(st) : 0;
}

static void leaving_is_told_from_dying(void **state) {
  (void)state;
  run_all(2, leave_early, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_numbers_of_processes_give_the_same_bits),
      cmocka_unit_test(all_transports_give_the_same_bits),
      cmocka_unit_test(different_programs_end_on_all),
      cmocka_unit_test(replicas_run_a_program_of_their_process),
      cmocka_unit_test(replicas_that_reduce_otherwise_end_on_all),
      cmocka_unit_test(replicas_in_another_order_end_on_all),
      cmocka_unit_test(a_death_ends_the_runs_of_all),
      cmocka_unit_test(a_death_before_the_last_word_ends_the_run),
      cmocka_unit_test(arrays_go_from_process_to_process),
      cmocka_unit_test(leaving_is_told_from_dying),
  };
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("VTPU_JOIN_TIMEOUT", "60", 1);
  shared_rows = mmap(NULL, (PROCESSES + 1) * sizeof *shared_rows, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared_large = mmap(NULL, TRANSPORTS * sizeof *shared_large, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  announced =
      mmap(NULL, 2 * sizeof *announced, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ended = announced + 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
