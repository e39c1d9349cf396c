// SPDX-License-Identifier: Apache-2.0
// run.c - `vtpu run`: starts a program as on a TPU VM of a slice: environment, device files, and a
// report at its end. Frameworks find libvtpu.so by the variables that they know.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/cli.h"
#include "cli/run.h"

// Slices of more devices only predict, unless the user says otherwise.
enum { MOST_EXECUTED = 64 };
enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127, BY_SIGNAL = 128 }; // exit codes, as shells have them

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- the environment ----------------------------------------------------------------------------

static void set(const char *name, const char *value) {
  setenv(name, value, 1);
}

// One process sees all chips of the slice: for the frameworks they are those of one host.
static void set_environment(const vt_slice *slice, const char *library, const char *activity,
                            const vt_run_ask *ask) {
  char type[sizeof slice->name], chips[64];
  snprintf(type, sizeof type, "%s", slice->name);
  type[strcspn(type, " ")] = 0; // without the number of slices
  snprintf(chips, sizeof chips, "%d,%d,%d", slice->dims[0], slice->dims[1], slice->dims[2]);
  set("TPU_LIBRARY_PATH", library);
  set("VTPU_ACCELERATOR_TYPE", slice->name);
  set("VTPU_ACTIVITY", activity);
  set("VTPU_COMPILED", activity);
  if (ask->predict) set("VTPU_PREDICT", activity);
  if (ask->unexecuted) set("VTPU_EXECUTE", "0");
  set("TPU_ACCELERATOR_TYPE", type);
  set("TPU_SKIP_MDS_QUERY", "1"); // there is no metadata server
  set("TPU_WORKER_ID", "0");
  set("TPU_WORKER_HOSTNAMES", "localhost");
  set("TPU_HOST_BOUNDS", "1,1,1");
  set("TPU_CHIPS_PER_HOST_BOUNDS", chips);
  // PyTorch/XLA starts a process for each chip, unless it is told that one has all: then a thread.
  set("TPU_PROCESS_BOUNDS", "1,1,1");
  set("TPU_CHIPS_PER_PROCESS_BOUNDS", chips);
  // Tasks of PyTorch/XLA's pool wait for others of its tasks. With a thread for each core of a
  // small machine, replicas block one another; the host of a v3-8 has 96.
  setenv("XLA_THREAD_POOL_SIZE", "96", 0);
  // What the user asks for himself stands.
  setenv("PJRT_DEVICE", "TPU", 0);
  setenv("JAX_PLATFORMS", "tpu,cpu", 0);
}

// ---- the program --------------------------------------------------------------------------------

static volatile pid_t the_child;

static void pass_on(int signal_number) {
  if (the_child > 0) kill(the_child, signal_number);
}

// A terminal sends SIGINT and SIGQUIT to the program too; this process outlives it for the report.
// Other requests to end reach this process alone.
static void handle_signals(bool report) {
  static const int passed[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  struct sigaction ignore = {.sa_handler = report ? SIG_IGN : SIG_DFL};
  struct sigaction pass = {.sa_handler = report ? pass_on : SIG_DFL, .sa_flags = SA_RESTART};
  sigaction(SIGINT, &ignore, NULL);
  sigaction(SIGQUIT, &ignore, NULL);
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaction(passed[i], &pass, NULL);
}

// Names Python where a script stands in the program's place.
static void explain_exec(const char *name, int error) {
  size_t length = strlen(name);
  bool script = length > 3 && !strcmp(name + length - 3, ".py") && access(name, F_OK) == 0;
  fprintf(stderr, "vtpu run: %s: %s", name, strerror(error));
  if (script) fprintf(stderr, "; python3 starts it: vtpu run -- python3 %s", name);
  fprintf(stderr, "\n");
}

_Noreturn static void become(const vt_slice *slice, char **command, int notes) {
  char why[256] = "";
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  handle_signals(false);
  if (!vt_run_show_chips(slice, why, sizeof why)) dprintf(notes, "%s", why);
  execvp(command[0], command);
  int error = errno;
  explain_exec(command[0], error);
  _exit(error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
}

// Runs the program to its end. `why`: why it had no device files, or "".
static vt_status run_program(const vt_slice *slice, char **command, int *out_status, char *why,
                             size_t why_size) {
  int notes[2];
  if (pipe2(notes, O_CLOEXEC) != 0) return vt_error(VT_INTERNAL, "pipe: %s", strerror(errno));
  handle_signals(true);
  the_child = fork();
  if (the_child == 0) become(slice, command, notes[1]);
  close(notes[1]);
  ssize_t n = the_child > 0 ? read(notes[0], why, why_size - 1) : 0; // ends when the program starts
  why[n > 0 ? n : 0] = 0;
  close(notes[0]);
  if (the_child < 0) return vt_error(VT_INTERNAL, "fork: %s", strerror(errno));
  while (waitpid(the_child, out_status, 0) < 0)
    if (errno != EINTR) return vt_error(VT_INTERNAL, "waitpid: %s", strerror(errno));
  return VT_OK;
}

// Ends as the program did.
static int end_as(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  struct sigaction plain = {.sa_handler = SIG_DFL};
  sigaction(WTERMSIG(status), &plain, NULL);
  if (WTERMSIG(status) != SIGKILL) raise(WTERMSIG(status));
  return BY_SIGNAL + WTERMSIG(status);
}

// ---- the command --------------------------------------------------------------------------------

static vt_status make_folder(char *out, size_t size) {
  const char *tmp = getenv("TMPDIR");
  snprintf(out, size, "%s/vtpu-run-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  return mkdtemp(out) ? VT_OK : vt_error(VT_INTERNAL, "%s: %s", out, strerror(errno));
}

// A report that cannot be written is known before the program runs for hours.
static vt_status try_file(const char *path) {
  FILE *file = path ? fopen(path, "a") : NULL;
  if (path && !file) return vt_error(VT_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
  if (file) fclose(file);
  return VT_OK;
}

// One line for what went wrong, if the program's own words do not say it.
static void explain(const vt_run_use *use) {
  bool interrupted = WIFSIGNALED(use->status) && WTERMSIG(use->status) == SIGINT;
  if (interrupted || use->exit_code == BY_SIGNAL + SIGINT) {
    fprintf(stderr, "vtpu run: interrupted%s\n",
            use->processes ? "" : " before the program opened the TPU");
    return;
  }
  if (WIFSIGNALED(use->status) && WTERMSIG(use->status) == SIGKILL)
    fprintf(stderr,
            "vtpu run: the program was killed (SIGKILL); if nobody did it, this machine ran "
            "out of memory\n");
  if (use->processes || use->exit_code == NOT_FOUND || use->exit_code == NOT_EXECUTABLE) return;
  if (use->exit_code && !WIFSIGNALED(use->status) && !*use->no_files) {
    fprintf(stderr, "vtpu run: the program ended with exit code %d before it opened the TPU\n",
            use->exit_code);
    return;
  }
  const char *jax = getenv("JAX_PLATFORMS"), *pjrt = getenv("PJRT_DEVICE");
  fprintf(stderr, "vtpu run: the program did not open the TPU (JAX_PLATFORMS=%s, PJRT_DEVICE=%s)\n",
          jax ? jax : "", pjrt ? pjrt : "");
  if (*use->no_files)
    fprintf(stderr,
            "vtpu run: it had no device files of the chips, which PyTorch/XLA looks for: %s\n",
            use->no_files);
}

vt_status vt_run_on(const vt_slice *slice, char **command, const vt_run_ask *ask, vt_arena *arena,
                    vt_run_use *out_use) {
  char library[PATH_MAX], folder[4200];
  vt_run_use *use = out_use;
  *use = (vt_run_use){
      .slice = slice, .command = command, .predict = ask->predict, .unexecuted = ask->unexecuted};
  VT_TRY(vt_cli_library(library));
  VT_TRY(make_folder(folder, sizeof folder));
  set_environment(slice, library, folder, ask);
  double start = now_s();
  vt_status st = run_program(slice, command, &use->status, use->no_files, sizeof use->no_files);
  use->seconds = now_s() - start;
  use->exit_code =
      WIFSIGNALED(use->status) ? BY_SIGNAL + WTERMSIG(use->status) : WEXITSTATUS(use->status);
  vt_run_collect(folder, false, arena, use);
  return st;
}

bool vt_run_is_large(const vt_slice *slice) {
  return vt_slice_devices(slice) > MOST_EXECUTED;
}

static vt_status what_is_asked(const vt_args *args, const vt_slice *slice, vt_run_ask *out_ask) {
  const char *execute = vt_args_text(args, "execute");
  *out_ask = (vt_run_ask){.predict = vt_args_on(args, "predict")};
  if (execute && !out_ask->predict)
    return vt_error(VT_INVALID_ARGUMENT, "--execute is for --predict");
  if (!execute || !strcmp(execute, "auto"))
    out_ask->unexecuted = out_ask->predict && vt_run_is_large(slice);
  else
    out_ask->unexecuted = !strcmp(execute, "never");
  return VT_OK;
}

int vt_cli_run(const vt_args *args) {
  const char *json = vt_args_text(args, "json"), *html = vt_args_text(args, "html");
  vt_slice slice;
  vt_arena arena = {0};
  vt_run_use use;
  vt_run_ask ask;
  vt_status st = VT_OK;
  if (!args->rest_count)
    st = vt_error(VT_INVALID_ARGUMENT, "name the program: vtpu run -t v3-8 -- python3 train.py");
  if (!st) st = vt_cli_slice(vt_args_text(args, "slice"), &slice);
  if (!st) st = try_file(json);
  if (!st) st = try_file(html);
  if (!st) st = what_is_asked(args, &slice, &ask);
  if (!st) st = vt_run_on(&slice, args->rest, &ask, &arena, &use);
  if (st) return vt_cli_fail("run", st);
  if (!vt_args_on(args, "quiet")) {
    explain(&use);
    if (use.processes) {
      fprintf(stderr, "vtpu run: ");
      vt_run_print(&use, stderr);
    }
  }
  if (json) st = vt_run_write_json(&use, json);
  if (!st && html) st = vt_run_write_html(&use, html);
  if (st) (void)vt_cli_fail("run", st);
  vt_arena_free(&arena);
  return end_as(use.status);
}

int vt_cli_report(const vt_args *args) {
  const char *json = vt_args_text(args, "json"), *html = vt_args_text(args, "html");
  const char *folder = args->words.data[0];
  char *command[] = {(char *)(uintptr_t)folder, NULL};
  vt_slice slice;
  vt_arena arena = {0};
  vt_run_use use = {.slice = &slice, .command = command};
  vt_status st = vt_cli_slice(vt_args_text(args, "slice"), &slice);
  if (!st && access(folder, R_OK) != 0)
    st = vt_error(VT_NOT_FOUND, "%s: %s", folder, strerror(errno));
  if (!st) vt_run_collect(folder, true, &arena, &use);
  if (!st && !use.processes)
    st = vt_error(VT_NOT_FOUND, "%s: no process has written here that opened the chips", folder);
  if (!st) use.seconds = now_s() - 1e-9 * (double)use.opened_ns;
  if (!st && json) st = vt_run_write_json(&use, json);
  if (!st && html) st = vt_run_write_html(&use, html);
  if (!st && !json && !html) vt_run_print(&use, stdout);
  vt_arena_free(&arena);
  return st ? vt_cli_fail("report", st) : 0;
}
