// SPDX-License-Identifier: Apache-2.0
// guest_testing.c - see guest_testing.h.
#include "guest_testing.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOME_PREFIX "/tmp/vtpu-home-"

vt_text guest_output;

// Names the folder that guest_namespace made. HOME will not do: it belongs to the user before that.
static const char made_home[] = "VTPU_TEST_HOME";

static int run(const char *format, va_list args) {
  static char command[65536];
  char buffer[4096];
  vsnprintf(command, sizeof command, format, args);
  vt_text_free(&guest_output);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    vt_text_put_n(&guest_output, buffer, n);
  int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

int guest_sh(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int status = run(format, args);
  va_end(args);
  return status;
}

void guest_must(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int status = run(format, args);
  va_end(args);
  if (status != 0) fail_msg("%s\nstatus %d: %s", format, status, vt_text_string(&guest_output));
}

void guest_says(const char *text) {
  if (!strstr(vt_text_string(&guest_output), text))
    fail_msg("no '%s' in: %s", text, vt_text_string(&guest_output));
}

static int leave(const char *why) {
  printf("skipped: %s\n", why);
  return 77;
}

int guest_namespace(const char *const *needed) {
  static const char *const always[] = {"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen",
                                       "/usr/bin/curl", NULL};
  if (geteuid() != 0) return leave("guests need root");
  for (size_t i = 0; always[i]; i++)
    if (access(always[i], X_OK) != 0) return leave(always[i]);
  for (size_t i = 0; needed && needed[i]; i++)
    if (access(needed[i], R_OK) != 0) return leave(needed[i]);
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0)
    return leave("no network or mount namespace for the test");
  if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    return leave("mounts can not be made private");
  if (system("ip link set lo up && ip link add vtprobe type bridge && ip link del vtprobe") != 0)
    return leave("no bridges in this kernel");
  static char home[] = HOME_PREFIX "XXXXXX", path[4096];
  if (!mkdtemp(home)) return leave("no temporary folder");
  setenv("HOME", home, 1);
  setenv(made_home, home, 1);
  snprintf(path, sizeof path, "%s:%s", VTPU_BIN_DIR, getenv("PATH"));
  setenv("PATH", path, 1);
  return 0;
}

void guest_end(void) {
  const char *home = getenv(made_home);
  if (home && strncmp(home, HOME_PREFIX, strlen(HOME_PREFIX)) == 0)
    (void)guest_sh("cd / && rm -rf --one-file-system '%s'", home);
  vt_text_free(&guest_output);
}
