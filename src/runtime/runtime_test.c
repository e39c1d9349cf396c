// SPDX-License-Identifier: Apache-2.0
// runtime_test.c - events, the executor's order, buffers in host memory and in the HBM account,
// fork.
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/activity.h"
#include "runtime/runtime_internal.h"

static vt_client *make_client(const char *type) {
  vt_slice slice;
  vt_client *client = NULL;
  assert_null(vt_slice_from_name(type, &slice));
  assert_null(vt_client_create(&slice, &client));
  return client;
}

static vt_memory *memory_of(vt_client *client, int32_t device, vt_memory_kind kind) {
  return &vt_client_device(client, device)->memories[kind];
}

static void expect_code(vt_status st, vt_code code) {
  assert_int_equal(vt_status_code(st), code);
  vt_status_free(st);
}

static void count_call(vt_status error, void *user) {
  *(int *)user += error ? 100 : 1;
  vt_status_free(error);
}

static void events_call_each_waiter_once(void **state) {
  (void)state;
  int calls = 0;
  vt_event *event = vt_event_create();
  assert_null(vt_event_call(event, count_call, &calls));
  assert_false(vt_event_is_complete(event));
  assert_null(vt_event_error(event));
  vt_event_complete(event, vt_error(VT_INTERNAL, "x"));
  vt_event_complete(event, VT_OK); // too late
  assert_int_equal(calls, 100);
  assert_null(vt_event_call(event, count_call, &calls));
  assert_int_equal(calls, 200);
  expect_code(vt_event_await(event), VT_INTERNAL);
  vt_event_release(event);
  assert_null(vt_event_call(vt_event_done(), count_call, &calls));
  assert_int_equal(calls, 201);
  vt_event_release(vt_event_done());
}

typedef struct numbered_job {
  vt_job base;
  int number, *last;
} numbered_job;

static void run_numbered(vt_job *base) {
  numbered_job *job = (numbered_job *)base;
  if (job->number % 7 == 0) usleep(50);
  assert_int_equal(job->number, *job->last + 1);
  *job->last = job->number;
  free(job);
}

static void executor_keeps_the_order_of_jobs(void **state) {
  (void)state;
  vt_executor executor;
  vt_executor_init(&executor);
  int last = -1;
  for (int i = 0; i < 1000; i++) {
    numbered_job *job = calloc(1, sizeof *job);
    *job = (numbered_job){.base.run = run_numbered, .number = i, .last = &last};
    assert_null(
        vt_executor_submit(&executor, &job->base, i % 3 ? VT_SUBMIT_WAIT : VT_SUBMIT_INLINE));
  }
  vt_executor_drain(&executor);
  assert_int_equal(last, 999);
  vt_executor_fini(&executor);
}

// Every element of a copy against plain index arithmetic, over shapes and strides that hit each
// path.
static void strided_copies_equal_index_arithmetic(void **state) {
  (void)state;
  enum { SIDE = 70 };
  static int32_t src[SIDE * SIDE * 2], dst[SIDE * SIDE * 2];
  for (int i = 0; i < SIDE * SIDE * 2; i++) src[i] = i;
  const struct {
    int64_t dims[3], dst[3], src[3];
  } rows[] = {
      {{2, SIDE, SIDE}, {SIDE * SIDE, SIDE, 1}, {SIDE * SIDE, SIDE, 1}},
      {{2, SIDE, SIDE}, {SIDE * SIDE, SIDE, 1}, {SIDE * SIDE, 1, SIDE}},
      {{SIDE, 2, SIDE}, {2 * SIDE, SIDE, 1}, {SIDE, SIDE * SIDE, 1}},
      {{1, 5, 7}, {0, 7, 1}, {0, SIDE, 3}},
      {{3, 1, 4}, {4, 99, 1}, {0, 5, 0}},
      {{2, 3, 0}, {1, 1, 1}, {1, 1, 1}},
  };
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    memset(dst, 0xEE, sizeof dst);
    int64_t d[3], s[3];
    for (int i = 0; i < 3; i++) d[i] = rows[r].dst[i] * 4, s[i] = rows[r].src[i] * 4;
    vt_copy_strided(3, rows[r].dims, 4, dst, d, src, s);
    for (int64_t i = 0; i < rows[r].dims[0]; i++)
      for (int64_t j = 0; j < rows[r].dims[1]; j++)
        for (int64_t k = 0; k < rows[r].dims[2]; k++)
          assert_int_equal(dst[i * rows[r].dst[0] + j * rows[r].dst[1] + k * rows[r].dst[2]],
                           src[i * rows[r].src[0] + j * rows[r].src[1] + k * rows[r].src[2]]);
  }
}

static void arrays_come_back_from_a_device_as_they_went(void **state) {
  (void)state;
  vt_client *client = make_client("v3-8");
  int64_t dims[2] = {3, 4}, transposed[2] = {4, 12};
  float data[12], back[12];
  for (int i = 0; i < 12; i++) data[i] = (float)i;
  vt_type type = {VT_F32, 2, dims};
  vt_buffer *buffer = NULL;
  assert_null(vt_buffer_from_host(memory_of(client, 2, VT_MEMORY_DEVICE), type, data, transposed,
                                  NULL, &buffer));
  vt_event *event = NULL;
  assert_null(vt_buffer_to_host(buffer, back, NULL, &event));
  assert_null(vt_event_await(event));
  vt_event_release(event);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 4; j++) assert_true(back[i * 4 + j] == data[j * 3 + i]);
  const int64_t out[2] = {4, 12};
  assert_null(vt_buffer_to_host(buffer, back, out, &event));
  vt_event_release(event);
  assert_memory_equal(back, data, sizeof data);
  void *pointer = NULL;
  assert_null(vt_buffer_pointer(buffer, &pointer));
  assert_true(((float *)pointer)[1] == 3);
  assert_null(vt_buffer_pin(buffer));
  vt_buffer_delete(buffer);
  assert_true(vt_buffer_is_deleted(buffer));
  assert_true(((float *)pointer)[1] == 3); // pinned
  assert_null(vt_buffer_unpin(buffer));
  expect_code(vt_buffer_unpin(buffer), VT_FAILED_PRECONDITION);
  expect_code(vt_buffer_to_host(buffer, back, NULL, &event), VT_INVALID_ARGUMENT);
  event = vt_buffer_ready(buffer);
  expect_code(vt_event_await(event), VT_INVALID_ARGUMENT);
  vt_event_release(event);
  vt_buffer_destroy(buffer);
  vt_client_destroy(client);
}

static void an_error_of_a_buffer_reaches_its_readers(void **state) {
  (void)state;
  vt_client *client = make_client("v3-8");
  int64_t dims[1] = {4};
  vt_type type = {VT_F32, 1, dims};
  vt_buffer *bad = NULL, *copy = NULL;
  assert_null(vt_buffer_poisoned(memory_of(client, 0, VT_MEMORY_DEVICE), type,
                                 vt_error(VT_DATA_LOSS, "lost"), &bad));
  assert_null(vt_buffer_copy_to(bad, memory_of(client, 1, VT_MEMORY_DEVICE), &copy));
  float back[4];
  vt_event *event = NULL;
  assert_null(vt_buffer_to_host(copy, back, NULL, &event));
  expect_code(vt_event_await(event), VT_DATA_LOSS);
  vt_event_release(event);
  void *pointer;
  expect_code(vt_buffer_pointer(copy, &pointer), VT_DATA_LOSS);
  vt_buffer_destroy(bad);
  vt_buffer_destroy(copy);
  vt_client_destroy(client);
}

static void hbm_is_taken_and_given_back_exactly(void **state) {
  (void)state;
  vt_client *client = make_client("v2-8");
  vt_device *device = vt_client_device(client, 5);
  int64_t small[2] = {9, 33}; // 16 by 128 in HBM
  vt_type type = {VT_F32, 2, small};
  static float zeros[9 * 33];
  vt_buffer *a = NULL, *b = NULL, *c = NULL;
  assert_null(
      vt_buffer_from_host(&device->memories[VT_MEMORY_DEVICE], type, zeros, NULL, NULL, &a));
  assert_null(
      vt_buffer_from_host(&device->memories[VT_MEMORY_PINNED_HOST], type, zeros, NULL, NULL, &b));
  vt_device_memory_stats stats = vt_device_stats(device);
  assert_int_equal(stats.bytes_in_use, 16 * 128 * 4); // tiles filled up; host memory is not HBM
  assert_int_equal(stats.num_allocs, 1);
  assert_int_equal(vt_device_stats(vt_client_device(client, 4)).bytes_in_use, 0);
  int64_t large[3] = {1 << 23, 1, 1}; // 32 MiB on the host, 8 GiB in HBM as asked for below
  vt_type huge = {VT_F32, 3, large};
  static float host[1 << 23];
  assert_null(vt_buffer_from_host(&device->memories[VT_MEMORY_DEVICE], huge, host, NULL, NULL, &c));
  assert_int_equal(vt_buffer_hbm_bytes(c), 2 * 4 << 23); // transposed, two sublanes high
  vt_buffer_destroy(c);
  vt_status st = vt_buffer_from_host(&device->memories[VT_MEMORY_DEVICE], huge, host, NULL,
                                     "{2,1,0}", &c); // as requested: a tile for each element
  assert_int_equal(vt_status_code(st), VT_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(vt_status_message(st), "f32[9,33]{1,0:T(8,128)}"));
  assert_non_null(strstr(vt_status_message(st), "Extra memory due to padding: 6.8K"));
  vt_status_free(st);
  vt_buffer_destroy(a);
  vt_buffer_destroy(b);
  stats = vt_device_stats(device);
  assert_int_equal(stats.bytes_in_use, 0);
  assert_int_equal(stats.peak_bytes_in_use, (2 * 4 << 23) + 16 * 128 * 4);
  vt_client_destroy(client);
}

// A child process of fork() gets errors, and can tear down what it inherited, without hanging.
static void a_forked_child_gets_errors_and_does_not_hang(void **state) {
  (void)state;
  vt_client *client = make_client("v3-8");
  int64_t dims[1] = {4};
  float data[4] = {1, 2, 3, 4};
  vt_type type = {VT_F32, 1, dims};
  vt_buffer *buffer = NULL, *other = NULL;
  assert_null(
      vt_buffer_from_host(memory_of(client, 0, VT_MEMORY_DEVICE), type, data, NULL, NULL, &buffer));
  int last = -1;
  numbered_job *job = calloc(1, sizeof *job);
  *job = (numbered_job){.base.run = run_numbered, .number = 0, .last = &last};
  assert_null(vt_executor_submit(&client->executor, &job->base, VT_SUBMIT_WAIT));
  pid_t child = fork();
  if (child == 0) {
    vt_status st =
        vt_buffer_from_host(memory_of(client, 0, VT_MEMORY_DEVICE), type, data, NULL, NULL, &other);
    bool refused = vt_status_code(st) == VT_FAILED_PRECONDITION;
    vt_status_free(st);
    vt_client_drain(client);
    vt_buffer_destroy(buffer);
    vt_client_destroy(client);
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_null(
      vt_buffer_from_host(memory_of(client, 0, VT_MEMORY_DEVICE), type, data, NULL, NULL, &other));
  vt_buffer_destroy(other);
  vt_buffer_destroy(buffer);
  vt_client_destroy(client);
}

// A run, its virtual time and its HBM are on the page of this process; a forked child has its own.
static void a_run_is_on_the_page_of_its_process(void **state) {
  (void)state;
  static const char text[] =
      "module { func.func @main(%a: tensor<256x256xf32>) -> tensor<256x256xf32> {\n"
      "%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<256x256xf32>, "
      "tensor<256x256xf32>) -> tensor<256x256xf32>\n"
      "return %0 : tensor<256x256xf32> } }";
  static float data[256 * 256];
  char folder[] = "/tmp/vtpu-activity-XXXXXX", path[64];
  assert_non_null(mkdtemp(folder));
  setenv("VTPU_ACTIVITY", folder, 1);
  vt_activity_framework("My Framework", 12, "1.2,3", 5);
  vt_client *client = make_client("v5litepod-1");
  unsetenv("VTPU_ACTIVITY");
  vt_executable *executable = NULL;
  vt_executable_options options = {.partitions = 1};
  assert_null(vt_executable_compile(vt_client_slice(client),
                                    (vt_bytes){(const uint8_t *)text, sizeof text - 1}, &options,
                                    &executable));
  int64_t dims[2] = {256, 256};
  vt_type type = {VT_F32, 2, dims};
  vt_buffer *a = NULL, *result = NULL, **results[] = {&result};
  assert_null(
      vt_buffer_from_host(memory_of(client, 0, VT_MEMORY_DEVICE), type, data, NULL, NULL, &a));
  vt_buffer *const arguments[] = {a}, *const * lists[] = {arguments};
  for (int i = 0; i < 3; i++) {
    vt_execution execution = {.arguments = lists, .results = results, .argument_count = 1};
    vt_event *done = NULL;
    assert_null(vt_executable_execute(client, executable, &execution, &done));
    assert_null(vt_event_await(done));
    vt_event_release(done);
    if (i < 2) vt_buffer_destroy(result);
  }
  vt_client_drain(client);
  vt_status st = vt_hbm_take(client, vt_client_device(client, 0), INT64_C(1) << 40);
  assert_int_equal(vt_status_code(st), VT_RESOURCE_EXHAUSTED);
  vt_status_free(st);
  snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
  pid_t child = fork();
  if (child == 0) { // the lock is this process's, not its children's
    int fd = open(path, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == getppid() ? 0
                                                                                              : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  vt_bytes bytes;
  assert_null(vt_file_map(path, &bytes)); // closes a descriptor, and the lock goes
  const vt_activity_page *page = (const vt_activity_page *)(const void *)bytes.data;
  assert_int_equal(bytes.size, sizeof *page);
  assert_true(page->magic == VT_ACTIVITY_MAGIC);
  assert_int_equal(page->programs, 3);
  assert_int_equal(page->running, 0);
  assert_true(page->busy_ns > 0);
  double seconds = vt_executable_get(executable)->roofline.seconds;
  assert_true(fabs((double)page->device_ps - 3e12 * seconds) < 3);
  assert_int_equal(page->hbm_bytes, 2 * sizeof data);
  assert_int_equal(page->hbm_limit, vt_client_slice(client)->chip->hbm_limit_bytes);
  assert_int_equal(page->hbm_refused, 1);
  assert_int_equal(page->hbm_asked, INT64_C(1) << 40);
  assert_true(page->opened_ns > 0 && page->opened_ns <= page->since_ns);
  const char *words = strchr(page->versions, ' ');
  assert_memory_equal(page->versions, "libvtpu=", 8);
  assert_non_null(words);
  assert_string_equal(words, " My_Framework=1.2_3");
  vt_file_unmap(&bytes);
  vt_buffer_destroy(a);
  vt_buffer_destroy(result);
  vt_executable_release(executable);
  vt_client_destroy(client);
  unlink(path);
  rmdir(folder);
}

#define PAIR_OF(rows) "tensor<" rows "x4096xf32>"
#define PRODUCT(rows, name, a)                                                                     \
  name " = stablehlo.dot_general " a ", %b, contracting_dims = [1] x [0] : (" PAIR_OF(             \
      rows) ", tensor<4096x4096xf32>) -> " PAIR_OF(rows) "\n"
#define CUT "{sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>}"
// Products over two devices, by rows. Each device holds half of what all need.
#define PRODUCTS_ON_TWO(rows)                                                                      \
  "module @m attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @mesh = <[\"x\"=2]>\n"          \
  "func.func public @main(%a: " PAIR_OF(rows) CUT                                                  \
      ", %b: tensor<4096x4096xf32> " CUT ") -> (" PAIR_OF(rows) ") {\n" PRODUCT(rows, "%c", "%a")  \
          PRODUCT(rows, "%d", "%c") "return %d : " PAIR_OF(rows) "\n} }"

static vt_executable *compile_on(const char *slice_name, const char *text, bool made) {
  vt_slice slice;
  vt_executable *executable = NULL;
  vt_executable_options options = {0};
  assert_null(vt_slice_from_name(slice_name, &slice));
  vt_status st = vt_executable_compile(&slice, (vt_bytes){(const uint8_t *)text, strlen(text)},
                                       &options, &executable);
  if (st) fail_msg("%s", vt_status_message(st));
  assert_int_equal(executable->local != NULL, made);
  return executable;
}

static void the_program_of_one_device_is_made_when_it_is_needed(void **state) {
  (void)state;
  const vt_hbm_use *use = NULL, *again = NULL;
  vt_executable *executable = compile_on("v3-8", PRODUCTS_ON_TWO("1024"), false);
  assert_null(vt_executable_memory(executable, &use));
  const vt_module *local = executable->local;
  assert_non_null(local);
  assert_int_equal(use->temp_bytes, (4096 + 512) * 4096 * 4); // all of b, half of c
  assert_int_equal(use->entries[0].bytes, 4096 * 4096 * 4);
  assert_int_equal(use->entries[0].op->code, VT_OP_ALL_GATHER);
  assert_null(vt_executable_memory(executable, &again));
  assert_true(again == use && executable->local == local);
  vt_executable_release(executable);
  // Near the limit a compilation has to know.
  vt_executable_release(compile_on("v3-8", PRODUCTS_ON_TWO("600000"), true));
}

// A sum over two devices that keep half of it each: a reduce-scatter, after the pass that makes it.
#define SUM_ON_TWO                                                                                 \
  "module @m attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @mesh = <[\"x\"=2]>\n"          \
  "func.func public @main(%a: tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, "    \
  "{\"x\"}]>}, %b: tensor<4096x4096xf32> " CUT ") -> (tensor<4096x4096xf32> " CUT ") {\n"          \
  "%c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4096x4096xf32>, "     \
  "tensor<4096x4096xf32>) -> tensor<4096x4096xf32>\n"                                              \
  "return %c : tensor<4096x4096xf32>\n} }"

static void memory_is_that_of_the_program_that_text_shows(void **state) {
  (void)state;
  const vt_hbm_use *use = NULL;
  vt_text text = {0};
  vt_executable *executable = compile_on("v3-8", SUM_ON_TWO, false);
  assert_null(vt_executable_memory(executable, &use));
  for (uint32_t i = 0; i < use->count; i++)
    assert_true(!use->entries[i].op || use->entries[i].op->code != VT_OP_ALL_REDUCE);
  assert_int_equal(use->temp_bytes, 4096 * 4096 * 4); // what a device has of the product
  assert_null(vt_executable_hlo(executable, false, &text));
  assert_non_null(strstr(vt_text_string(&text), " reduce-scatter("));
  vt_text_free(&text);
  vt_executable_release(executable);
}

static void slices_are_found_by_the_environment(void **state) {
  (void)state;
  vt_slice slice;
  unsetenv("VTPU_ACCELERATOR_TYPE");
  setenv("TPU_ACCELERATOR_TYPE", "v5litepod-4", 1);
  assert_null(vt_slice_from_environment(&slice));
  assert_string_equal(slice.name, "v5litepod-4");
  setenv("VTPU_ACCELERATOR_TYPE", "v4-8", 1);
  assert_null(vt_slice_from_environment(&slice));
  assert_string_equal(slice.name, "v4-8");
  setenv("VTPU_ACCELERATOR_TYPE", "v4-7", 1);
  vt_status st = vt_slice_from_environment(&slice);
  assert_non_null(strstr(vt_status_message(st), "VTPU_ACCELERATOR_TYPE"));
  assert_non_null(strstr(vt_status_message(st), "v4-8"));
  vt_status_free(st);
  unsetenv("VTPU_ACCELERATOR_TYPE");
  unsetenv("TPU_ACCELERATOR_TYPE");
  assert_null(vt_slice_from_environment(&slice));
  assert_string_equal(slice.name, "v3-8");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_call_each_waiter_once),
      cmocka_unit_test(executor_keeps_the_order_of_jobs),
      cmocka_unit_test(strided_copies_equal_index_arithmetic),
      cmocka_unit_test(arrays_come_back_from_a_device_as_they_went),
      cmocka_unit_test(an_error_of_a_buffer_reaches_its_readers),
      cmocka_unit_test(hbm_is_taken_and_given_back_exactly),
      cmocka_unit_test(a_forked_child_gets_errors_and_does_not_hang),
      cmocka_unit_test(the_program_of_one_device_is_made_when_it_is_needed),
      cmocka_unit_test(memory_is_that_of_the_program_that_text_shows),
      cmocka_unit_test(slices_are_found_by_the_environment),
      cmocka_unit_test(a_run_is_on_the_page_of_its_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
