// SPDX-License-Identifier: Apache-2.0
// story_test.c - what a newcomer does: a cloud in one command, a v3-8, ssh, models/mnist trains on
// its eight devices; the node is preempted halfway, the checkpoint is saved during the notice, and
// training resumes from it on the next VM. Needs what guest_test.c needs, the Python of build/venv,
// and the images of Debian's dataset-fashion-mnist.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "guest_testing.h"

#define PYTHON VTPU_SOURCE_DIR "/build/venv/bin"
#define ZONE   " --zone=europe-west4-a "
// Out of the 30 s of the real notice, enough for an ssh and an scp on a busy machine.
#define NOTICE "20"

#define CREATE(name)                                                                               \
  "vtpu tpu-vm create " name ZONE                                                                  \
  "--accelerator-type=v3-8 --version=tpu-ubuntu2204-base --spot 2>&1"
#define SSH(name, command) "vtpu tpu-vm ssh " name ZONE "--command='" command "' 2>&1"
#define TRAIN                                                                                      \
  "python3 train.py --steps 60 --batch 64 --checkpoint saved.ckpt --save-every 5 --quiet"

static void training_survives_preemption(void **state) {
  struct timespec begin, now;
  (void)state;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  guest_must(CREATE("first"));
  guest_must(
      SSH("first",
          "python3 -c \"import jax; print(len(jax.devices()), jax.devices()[0].device_kind)\""));
  guest_says("8 TPU v3");
  clock_gettime(CLOCK_MONOTONIC, &now);
  print_message("inside, with 8 devices, after %.1f s\n",
                (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9);
  guest_must("vtpu tpu-vm scp " VTPU_SOURCE_DIR "/models/mnist/train.py first:train.py" ZONE
             "2>&1");
  // A long run in the background, until its first checkpoint is there. The wait is bounded.
  guest_must(SSH("first",
                 "nohup " TRAIN " --steps 100000 > log 2>&1 & for i in $(seq 6000); do test -e "
                 "saved.ckpt && exit 0; sleep 0.2; done; cat log; exit 1"));
  guest_must("curl -sf -X POST -H \"Authorization: Bearer $VTPU_TOKEN\" -d '{}' "
             "$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/nodes/europe-west4-a/first:preempt");
  guest_must(SSH("first", "curl -s -H \"Metadata-Flavor: Google\" "
                          "http://metadata.google.internal/computeMetadata/v1/instance/preempted"));
  guest_says("TRUE");
  guest_must("vtpu tpu-vm scp first:saved.ckpt $HOME/saved.ckpt" ZONE "2>&1");
  guest_must("for i in $(seq 6000); do test \"$(vtpu tpu-vm describe first" ZONE
             "--format='value(state)')\" = PREEMPTED && exit 0; sleep 0.1; done; exit 1");
  guest_must("vtpu tpu-vm delete first --quiet" ZONE "2>&1");
  guest_must(CREATE("second"));
  guest_must("vtpu tpu-vm scp " VTPU_SOURCE_DIR
             "/models/mnist/train.py $HOME/saved.ckpt second:" ZONE "2>&1");
  guest_must(SSH("second", TRAIN " --resume"));
  // This run takes the steps that the first run had not saved.
  const char *line = strstr(vt_text_string(&guest_output), " steps in ");
  assert_non_null(line);
  while (line > vt_text_string(&guest_output) && line[-1] >= '0' && line[-1] <= '9') line--;
  int steps = atoi(line);
  print_message("%d of 60 steps were left for the second VM\n", steps);
  assert_true(steps >= 0 && steps <= 55);
  guest_must("vtpu tpu-vm delete second --quiet" ZONE "2>&1");
  guest_must("curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" "
             "$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/bill");
  guest_says("\"acceleratorType\": \"v3-8\"");
  guest_end();
}

int main(int argc, char **argv) {
  static const char *const needed[] = {
      PYTHON "/python3", "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", NULL};
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_survives_preemption)};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
  int code = guest_namespace(needed);
  if (code) return code;
  execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--notice=" NOTICE,
        "--python=" PYTHON, "--", argv[0], "inner", (char *)NULL);
  return 1;
}
