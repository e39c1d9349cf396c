// SPDX-License-Identifier: Apache-2.0
// use_test.c - a guest runs a JAX program: its chips show as busy while it runs, and the bill, its
// CSV, the metrics and `describe` have its virtual device time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_testing.h"

#define PYTHON VTPU_SOURCE_DIR "/build/venv/bin"
#define ZONE   " --zone=us-east5-b "
#define GET                                                                                        \
  "curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" $VTPU_ENDPOINT/vtpu/v1/projects/"             \
  "$VTPU_PROJECT"
#define SSH(command) "vtpu tpu-vm ssh busy" ZONE "--command='" command "' 2>&1"

// Runs until it is told to end, so that the test can observe a busy chip.
static const char program[] = "import jax, jax.numpy as np, os\n"
                              "f = jax.jit(lambda a: a @ a / 512)\n"
                              "a = np.ones((512, 512), np.bfloat16)\n"
                              "n = 0\n"
                              "while not os.path.exists(\"end\"):\n"
                              "    a = f(a).block_until_ready()\n"
                              "    n += 1\n"
                              "print(\"runs\", n)\n";

static double number_of(const char *name) {
  const char *at = strstr(vt_text_string(&guest_output), name);
  if (!at) fail_msg("no %s in %s", name, vt_text_string(&guest_output));
  at += strlen(name);
  return strtod(at + strspn(at, "\": "), NULL);
}

static void the_chip_is_seen_at_work(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm create busy" ZONE
             "--accelerator-type=v5litepod-1 --version=v2-alpha-tpuv5-lite 2>&1");
  guest_must("vtpu tpu-vm create lazy" ZONE
             "--accelerator-type=v5litepod-1 --version=v2-alpha-tpuv5-lite 2>&1");
  guest_must("cat > $HOME/work.py <<'EOF'\n%sEOF\n"
             "vtpu tpu-vm scp $HOME/work.py busy:work.py" ZONE "2>&1",
             program);
  guest_must(SSH("nohup python3 work.py > log 2>&1 &"));
  // Bounded wait for a report of a busy chip: the agent reports every five seconds.
  guest_must("for i in $(seq 6000); do " GET "/use?node=busy | grep -q '\"dutyCycle\": 0.[1-9]' && "
             "exit 0; sleep 0.5; done; " GET "/use; exit 1");
  guest_must(GET "/use?node=busy");
  assert_true(number_of("hbmBytes\"") >= 512 * 512 * 2);
  assert_true(number_of("processes\"") == 1);
  guest_must("curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" $VTPU_ENDPOINT/metrics");
  guest_says(
      "vtpud_node_duty_cycle{project=\"demo-project\",zone=\"us-east5-b\",node=\"busy\"} 0.");
  guest_must("vtpu tpu-vm describe busy" ZONE);
  guest_says("dutyCycle: 0.");
}

static void what_ran_is_on_the_bill(void **state) {
  (void)state;
  guest_must(SSH("touch end; for i in $(seq 6000); do grep runs log && exit 0; sleep 0.1; done; "
                 "cat log; exit 1"));
  double runs = number_of("runs");
  // The last report comes after the process has ended.
  guest_must("for i in $(seq 6000); do " GET
             "/use?node=busy | grep -q '\"processes\": 0' && exit 0; "
             "sleep 0.5; done; exit 1");
  guest_must(GET "/use?node=busy");
  double device = number_of("deviceSeconds\""), busy = number_of("busySeconds\"");
  assert_true(number_of("programs\"") >= runs);
  // One product is 2 * 512^3 flop: at 197 Tflop/s under two microseconds, plus the time of HBM.
  assert_true(device >= runs * 2 * 512.0 * 512 * 512 / 197e12 && device < busy);
  print_message("%.0f runs: %.6f s on the chip by its peaks, %.3f s here\n", runs, device, busy);
  guest_must(GET "/bill");
  guest_says("deviceSeconds");
  guest_must(GET "/bill?alt=csv | grep '\"tpu\",\"busy\"' | cut -d, -f11");
  double billed = strtod(vt_text_string(&guest_output), NULL);
  assert_true(billed > device * 0.999999 - 1e-6 && billed < device * 1.000001 + 1e-6);
  guest_must(GET "/bill?alt=csv | grep '\"tpu\",\"lazy\"' | cut -d, -f11");
  assert_true(strtod(vt_text_string(&guest_output), NULL) == 0);
  guest_must("vtpu tpu-vm delete busy --quiet" ZONE "2>&1; vtpu tpu-vm delete lazy --quiet" ZONE
             "2>&1");
  guest_end();
}

int main(int argc, char **argv) {
  static const char *const needed[] = {PYTHON "/python3", NULL};
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_chip_is_seen_at_work),
                                     cmocka_unit_test(what_ran_is_on_the_bill)};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
  int code = guest_namespace(needed);
  if (code) return code;
  execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--python=" PYTHON, "--",
        argv[0], "inner", (char *)NULL);
  return 1;
}
