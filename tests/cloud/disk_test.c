// SPDX-License-Identifier: Apache-2.0
// disk_test.c - data disks: data written by a worker survives a stop and a start, and moves to the
// next node; a disk is attached and detached while a node runs, and is billed separately.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_testing.h"

#define ZONE " --zone=us-central2-b "
#define CREATE(name, flags)                                                                        \
  "vtpu tpu-vm create " name ZONE "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base " flags   \
  " 2>&1"
#define SSH(name, command) "vtpu tpu-vm ssh ada@" name ZONE "--command='" command "' 2>&1"

static void a_disk_outlives_its_nodes(void **state) {
  (void)state;
  guest_must("vtpu disks create data" ZONE "--size=10GB --type=pd-ssd 2>&1");
  guest_must("vtpu disks create more" ZONE "--size=20GB 2>&1");
  guest_must(CREATE("one", "--data-disk=source=data"));
  guest_must(
      SSH("one", "sudo sh -c \"echo weights > /mnt/disks/data/saved\"; ls -l /mnt/disks/data"));
  guest_says("root root");
  guest_must("vtpu tpu-vm stop one" ZONE "2>&1 && vtpu tpu-vm start one" ZONE "2>&1");
  guest_must(SSH("one", "cat /mnt/disks/data/saved"));
  guest_says("weights");
  // A second node may not mount it for writing.
  assert_int_not_equal(guest_sh(CREATE("two", "--data-disk=source=data")), 0);
  guest_says("already being used");
  guest_must(CREATE("two", ""));
  assert_int_not_equal(
      guest_sh("vtpu tpu-vm attach-disk two" ZONE "--disk=data --mode=read-write 2>&1"), 0);
  guest_must("vtpu disks list" ZONE);
  guest_says("one");
  assert_int_not_equal(guest_sh("vtpu disks delete data --quiet" ZONE "2>&1"), 0);
}

static void disks_come_and_go_while_a_node_runs(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm detach-disk one" ZONE "--disk=data 2>&1");
  guest_must(SSH("one", "ls /mnt/disks; mount"));
  if (strstr(vt_text_string(&guest_output), "/mnt/disks/data")) fail_msg("still mounted");
  guest_must("vtpu tpu-vm attach-disk two" ZONE "--disk=data --mode=read-only 2>&1");
  guest_must("vtpu tpu-vm attach-disk two" ZONE "--disk=more 2>&1");
  guest_must(SSH("two", "cat /mnt/disks/data/saved; sudo sh -c \"echo x > /mnt/disks/more/x\"; "
                        "sudo touch /mnt/disks/data/x || echo refused"));
  guest_says("weights");
  guest_says("refused");
  guest_must("vtpu tpu-vm attach-disk one" ZONE "--disk=data --mode=read-only 2>&1");
  guest_must(SSH("one", "cat /mnt/disks/data/saved"));
  assert_int_not_equal(guest_sh("vtpu tpu-vm detach-disk one" ZONE "--disk=more 2>&1"),
                       0); // absent
}

static void disks_are_paid_for_apart(void **state) {
  (void)state;
  guest_must("vtpu tpu-vm delete one --quiet" ZONE "2>&1; vtpu tpu-vm delete two --quiet" ZONE
             "2>&1");
  guest_must("curl -sf -H \"Authorization: Bearer $VTPU_TOKEN\" "
             "\"$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/bill?alt=csv\" | grep data-disk");
  guest_says(
      "\"data-disk\",\"data\",\"us-central2-b\",\"pd-ssd\",\"on-demand\",10,\"0.000232877\"");
  guest_must("vtpu disks delete data --quiet" ZONE "2>&1 && vtpu disks delete more --quiet" ZONE
             "2>&1; vtpu disks list" ZONE);
  guest_end();
}

int main(int argc, char **argv) {
  static const char *const needed[] = {"/usr/bin/sudo", NULL};
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_disk_outlives_its_nodes),
                                     cmocka_unit_test(disks_come_and_go_while_a_node_runs),
                                     cmocka_unit_test(disks_are_paid_for_apart)};
  if (argc > 1 && strcmp(argv[1], "inner") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
  int code = guest_namespace(needed);
  if (code) return code;
  execl(VTPU_BIN_DIR "/vtpud", "vtpud", "--ephemeral", "--guests=2", "--", argv[0], "inner",
        (char *)NULL);
  return 1;
}
