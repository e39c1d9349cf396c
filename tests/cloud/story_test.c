// SPDX-License-Identifier: Apache-2.0
// story_test.c - what a newcomer does: a cloud in one command, a v3-8, ssh, models/mnist trains on its eight devices; the
// node is preempted in the middle, the checkpoint is saved in the notice, and training goes on from it on the next VM.
// Needs what guest_test.c needs, the Python of build/venv, and the images of Debian's dataset-fashion-mnist.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

#define PYTHON VTPU_SOURCE_DIR "/build/venv/bin"
#define ZONE   " --zone=europe-west4-a "
#define NOTICE "8"

static vt_text output;  // of the last command

static int sh(const char *command) {
  char buffer[4096];
  vt_text_free(&output);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) vt_text_put_n(&output, buffer, n);
  int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void must(const char *command) {
  int status = sh(command);
  if (status != 0) fail_msg("%s\nstatus %d: %s", command, status, vt_text_string(&output));
}

static void says(const char *text) {
  if (!strstr(vt_text_string(&output), text)) fail_msg("no '%s' in: %s", text, vt_text_string(&output));
}

#define CREATE(name) "vtpu tpu-vm create " name ZONE "--accelerator-type=v3-8 --version=tpu-ubuntu2204-base --spot 2>&1"
#define SSH(name, command) "vtpu tpu-vm ssh " name ZONE "--command='" command "' 2>&1"
#define TRAIN "python3 train.py --steps 60 --batch 64 --checkpoint saved.ckpt --save-every 5 --quiet"

static void training_survives_preemption(void **state) {
  struct timespec begin, now;
  (void)state;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  must(CREATE("first"));
  must(SSH("first", "python3 -c \"import jax; print(len(jax.devices()), jax.devices()[0].device_kind)\""));
  says("8 TPU v3");
  clock_gettime(CLOCK_MONOTONIC, &now);
  print_message("inside, with 8 devices, after %.1f s\n", (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9);
  must("vtpu tpu-vm scp " VTPU_SOURCE_DIR "/models/mnist/train.py first:train.py" ZONE "2>&1");
  // A long run in the background, until its first checkpoint is there. The wait is bounded.
  must(SSH("first", "nohup " TRAIN " --steps 100000 > log 2>&1 & for i in $(seq 600); do test -e saved.ckpt && exit 0; sleep 0.2; done; cat log; exit 1"));
  must("curl -sf -X POST -H \"Authorization: Bearer $VTPU_TOKEN\" -d '{}' "
       "$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/nodes/europe-west4-a/first:preempt");
  must(SSH("first", "curl -s -H \"Metadata-Flavor: Google\" http://metadata.google.internal/computeMetadata/v1/instance/preempted"));
  says("TRUE");
  must("vtpu tpu-vm scp first:saved.ckpt $HOME/saved.ckpt" ZONE "2>&1");
  must("for i in $(seq 600); do test \"$(vtpu tpu-vm describe first" ZONE "--format='value(state)')\" = PREEMPTED && exit 0; sleep 0.1; done; exit 1");
  must("vtpu tpu-vm delete first --quiet" ZONE "2>&1");
  must(CREATE("second"));
  must("vtpu tpu-vm scp " VTPU_SOURCE_DIR "/models/mnist/train.py $HOME/saved.ckpt second:" ZONE "2>&1");
  must(SSH("second", TRAIN " --resume"));
  // The steps of this run are those that the first run had not saved.
  const char *line = strstr(vt_text_string(&output), " steps in ");
  assert_non_null(line);
  while (line > vt_text_string(&output) && line[-1] >= '0' && line[-1] <= '9') line--;
  int steps = atoi(line);
  print_message("%d of 60 steps were left for the second VM\n", steps);
  assert_true(steps >= 0 && steps <= 55);
  must("vtpu tpu-vm delete second --quiet" ZONE "2>&1");
  must("curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" $VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/bill");
  says("\"acceleratorType\": \"v3-8\"");
  must("rm -rf \"$HOME\"");
  vt_text_free(&output);
}

static int leave(const char *why) {
  printf("skipped: %s\n", why);
  return 77;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_survives_preemption)};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
  static const char *const needed[] = {"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/curl", PYTHON "/python3",
                                       "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"};
  if (geteuid() != 0) return leave("guests need root");
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (access(needed[i], R_OK) != 0) return leave(needed[i]);
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return leave("no network or mount namespace for the test");
  if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return leave("mounts can not be made private");
  if (system("ip link set lo up && ip link add vtprobe type bridge && ip link del vtprobe") != 0) return leave("no bridges in this kernel");
  char home[] = "/tmp/vtpu-home-XXXXXX", path[4096];
  if (!mkdtemp(home)) return leave("no temporary folder");
  setenv("HOME", home, 1);
  snprintf(path, sizeof path, "%s:%s", VTPU_BIN_DIR, getenv("PATH"));
  setenv("PATH", path, 1);
  execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--notice=" NOTICE, "--python=" PYTHON, "--", argv[0], "inner", (char *)NULL);
  return 1;
}
