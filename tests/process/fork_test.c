// SPDX-License-Identifier: Apache-2.0
// fork_test.c - children of fork(): of a process whose threads are using the devices at that
// moment, of one without a client yet, and what they may do before they end.
#include "../pjrt/plugin_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 40, LIMIT_S = 60, SIDE = 128 };

#define M "tensor<128x128xf32>"
static const char text[] =
    "func.func public @main(%x: " M ") -> " M " {\n"
    "%a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (" M ", " M ") -> " M
    "\n%b = stablehlo.tanh %a : " M "\nreturn %b : " M "\n}\n";
static plugin p;
static atomic_bool stop;

static PJRT_Buffer *make_buffer(PJRT_Client *client) {
  static float data[SIDE * SIDE];
  const int64_t dims[2] = {SIDE, SIDE};
  return plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 2, dims, data);
}

static PJRT_Error *run(PJRT_LoadedExecutable *program, PJRT_Buffer *x, PJRT_Buffer **out) {
  PJRT_Buffer *args[1] = {x}, **results[1] = {out}, *const * arguments[1] = {args};
  return plugin_execute(&p, program, 1, 1, arguments, results);
}

// Compiles, runs and frees in a loop.
static void *keep_busy(void *user) {
  PJRT_Client *client = user;
  while (!atomic_load(&stop)) {
    PJRT_LoadedExecutable *program = plugin_compile_text(&p, client, text, 1, NULL);
    PJRT_Buffer *x = make_buffer(client), *out = NULL;
    assert_null(run(program, x, &out));
    plugin_buffer_destroy(&p, out);
    plugin_buffer_destroy(&p, x);
    plugin_executable_destroy(&p, program);
  }
  return NULL;
}

// The child ends by itself with `code`; an alarm ends one that waits.
static void ends_with(pid_t child, int code) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) fail_msg("ended by signal %d", WTERMSIG(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

typedef struct inherited {
  PJRT_Client *client;
  PJRT_LoadedExecutable *program;
  PJRT_Buffer *x;
  PJRT_Event *never; // never completed
} inherited;

static void callback(PJRT_Error *error, void *user) {
  plugin_error_is(&p, error, 9, "forked");
  ++*(int *)user;
}

static void all_refused(inherited *i) {
  PJRT_Buffer *out = NULL;
  PJRT_Error *error = NULL;
  static float data[SIDE * SIDE];
  int called = 0;
  plugin_error_is(&p, run(i->program, i->x, &out), 9, "spawn");
  assert_null(plugin_compile_text(&p, i->client, text, 1, &error));
  plugin_error_is(&p, error, 9, "forked");
  ARGS(Buffer_ToHostBuffer, fetch);
  fetch.src = i->x;
  fetch.dst = data;
  fetch.dst_size = sizeof data;
  plugin_fails(&p, SLOT_Buffer_ToHostBuffer, &fetch, 9, "forked");
  ARGS(Client_Create, create);
  plugin_fails(&p, SLOT_Client_Create, &create, 9, "forked");
  ARGS(Event_Create, event);
  plugin_fails(&p, SLOT_Event_Create, &event, 9, "forked");
  ARGS(Event_OnReady, ready);
  ready.event = i->never;
  ready.callback = callback;
  ready.user_arg = &called;
  plugin_ok(&p, SLOT_Event_OnReady, &ready);
  assert_int_equal(called, 1);
  plugin_error_is(&p, plugin_await(&p, i->never), 9, "forked");
  ARGS(Client_TopologyDescription, topology);
  topology.client = i->client;
  plugin_ok(&p, SLOT_Client_TopologyDescription, &topology);
  ARGS(TopologyDescription_Fingerprint, print);
  print.topology = topology.topology;
  plugin_fails(&p, SLOT_TopologyDescription_Fingerprint, &print, 9, "forked");
  ARGS(Client_Devices, devices); // calls that need no threads work
  devices.client = i->client;
  plugin_ok(&p, SLOT_Client_Devices, &devices);
}

// A sanitizer looks for leaks at exit, and the threads that hold a child's objects are gone.
static _Noreturn void leave(void) {
#ifdef __SANITIZE_ADDRESS__
  _exit(7);
#else
  exit(7);
#endif
}

static void child_of_busy(inherited *i, int number) {
  alarm(LIMIT_S);
  if (number % 2) all_refused(i);
  if (number % 4 >= 2) {
    plugin_buffer_destroy(&p, i->x);
    plugin_executable_destroy(&p, i->program);
    plugin_client_destroy(&p, i->client);
  }
  leave();
}

static void a_child_of_a_busy_process_is_refused(void **state) {
  (void)state;
  PJRT_Client *client = plugin_client(&p);
  ARGS(Event_Create, event);
  plugin_ok(&p, SLOT_Event_Create, &event);
  inherited i = {client, plugin_compile_text(&p, client, text, 1, NULL), make_buffer(client),
                 event.event};
  pthread_t threads[3];
  atomic_store(&stop, false);
  for (int t = 0; t < 3; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, keep_busy, client), 0);
  for (int n = 0; n < CHILDREN; n++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) child_of_busy(&i, n);
    ends_with(child, 7);
  }
  atomic_store(&stop, true);
  for (int t = 0; t < 3; t++) pthread_join(threads[t], NULL);
  PJRT_Buffer *out = NULL;
  assert_null(run(i.program, i.x, &out)); // the parent is unaffected
  plugin_buffer_destroy(&p, out);
  plugin_buffer_destroy(&p, i.x);
  plugin_executable_destroy(&p, i.program);
  ARGS(Event_Destroy, destroy);
  destroy.event = i.never;
  plugin_ok(&p, SLOT_Event_Destroy, &destroy);
  plugin_client_destroy(&p, client);
}

// Runs before any client: the children are like their parent.
static void children_before_the_first_client_are_like_their_parent(void **state) {
  (void)state;
  for (int n = 0; n < 2; n++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      alarm(LIMIT_S);
      PJRT_Client *client = plugin_client(&p);
      PJRT_LoadedExecutable *program = plugin_compile_text(&p, client, text, 1, NULL);
      PJRT_Buffer *x = make_buffer(client), *out = NULL;
      assert_null(run(program, x, &out));
      plugin_buffer_destroy(&p, out);
      plugin_buffer_destroy(&p, x);
      plugin_executable_destroy(&p, program);
      plugin_client_destroy(&p, client);
      leave();
    }
    ends_with(child, 7);
  }
}

static void a_child_may_become_another_program(void **state) {
  (void)state;
  PJRT_Client *client = plugin_client(&p);
  pid_t child = fork();
  if (child == 0) {
    alarm(LIMIT_S);
    execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
    _exit(1);
  }
  ends_with(child, 7);
  plugin_client_destroy(&p, client);
}

static int setup(void **state) {
  (void)state;
  p = plugin_load(plugin_path());
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(children_before_the_first_client_are_like_their_parent),
      cmocka_unit_test(a_child_of_a_busy_process_is_refused),
      cmocka_unit_test(a_child_may_become_another_program),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
