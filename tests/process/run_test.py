#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`vtpu run` around plain programs: what they find, and how signals, exit codes and mistakes come back.

  run_test.py VTPU
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

VTPU = sys.argv.pop(1)


def run(*words, user=None, **env):
    """The finished `vtpu run` of these words."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "VTPU_", "JAX_", "PJRT_"))}
    return subprocess.run([VTPU, "run", *words], capture_output=True, text=True, env=clean | env, user=user,
                          extra_groups=[] if user else None)


def namespaces(user=None):
    """Whether this machine lets the user have mounts of his own, and run the program under test."""
    try:
        subprocess.run([VTPU, "--version"], capture_output=True, user=user, extra_groups=[] if user else None, check=True)
    except PermissionError:
        return False
    words = ["unshare", "-m", "true"] if os.geteuid() == 0 and not user else ["unshare", "-Urm", "true"]
    return subprocess.run(words, capture_output=True, user=user, extra_groups=[] if user else None).returncode == 0


class Run(unittest.TestCase):
    def test_the_program_finds_the_slice_by_its_environment(self):
        said = dict(line.split("=", 1) for line in run("-t", "v5litepod-8", "--", "env").stdout.splitlines())
        self.assertTrue(os.path.exists(said["TPU_LIBRARY_PATH"]))
        self.assertEqual(said["TPU_ACCELERATOR_TYPE"], "v5litepod-8")
        self.assertEqual(said["TPU_CHIPS_PER_HOST_BOUNDS"], "2,4,1")
        self.assertEqual(said["TPU_PROCESS_BOUNDS"], "1,1,1")
        self.assertEqual(said["PJRT_DEVICE"], "TPU")
        self.assertEqual(said["JAX_PLATFORMS"], "tpu,cpu")

    def test_what_the_user_set_stands(self):
        said = run("env", JAX_PLATFORMS="cpu", PJRT_DEVICE="CPU").stdout
        self.assertIn("JAX_PLATFORMS=cpu\n", said)
        self.assertIn("PJRT_DEVICE=CPU\n", said)

    def test_several_slices_are_named_as_on_a_tpu_vm(self):
        said = run("-t", "v6e-8 x2", "env").stdout
        self.assertIn("\nTPU_ACCELERATOR_TYPE=v6e-8\n", "\n" + said)
        self.assertIn("VTPU_ACCELERATOR_TYPE=v6e-8 x2\n", said)

    def check_device_files(self, user):
        if not namespaces(user):
            self.skipTest("no namespaces here")
        before = sorted(os.listdir("/dev"))
        words = "cat /sys/bus/pci/devices/*/device; readlink /sys/bus/pci/devices/*/iommu_group; ls /dev /dev/vfio; id -u"
        said = run("-t", "v6e-4", "sh", "-c", words, user=user)
        lines = said.stdout.split("\n")
        self.assertEqual(lines[:4], ["0x006f"] * 4, said.stderr)
        self.assertEqual([line.rsplit("/", 1)[1] for line in lines[4:8]], ["0", "1", "2", "3"])
        self.assertLessEqual(set(before) - {"vfio"}, set(lines))
        self.assertEqual(lines[-2], str(user or os.geteuid()))
        self.assertEqual(sorted(os.listdir("/dev")), before)  # nothing of the machine changed

    def test_chips_are_files(self):
        self.check_device_files(None)

    @unittest.skipUnless(os.geteuid() == 0, "needs to be another user")
    def test_chips_are_files_for_every_user(self):
        self.check_device_files(65534)

    def test_files_of_older_chips(self):
        if not namespaces():
            self.skipTest("no namespaces here")
        self.assertEqual(run("-t", "v3-8", "sh", "-c", "ls /dev/accel*").stdout.split(),
                         [f"/dev/accel{i}" for i in range(4)])

    def test_the_exit_code_is_the_programs(self):
        self.assertEqual(run("sh", "-c", "exit 41").returncode, 41)
        self.assertEqual(run("--", "no-such-program").returncode, 127)
        self.assertEqual(run("--", "/etc/passwd").returncode, 126)

    def test_a_program_that_dies_of_a_signal(self):
        self.assertEqual(run("sh", "-c", "kill -SEGV $$").returncode, -signal.SIGSEGV)
        said = run("sh", "-c", "kill -KILL $$")
        self.assertEqual(said.returncode, 137)
        self.assertIn("ran out of memory", said.stderr)

    def test_a_request_to_end_reaches_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            ready = os.path.join(folder, "ready")
            words = f"trap 'echo ending; exit 7' TERM; touch {ready}; while :; do sleep 0.05; done"
            child = subprocess.Popen([VTPU, "run", "--", "sh", "-c", words], stdout=subprocess.PIPE, text=True)
            while not os.path.exists(ready):
                self.assertIsNone(child.poll())
                time.sleep(0.01)
            child.terminate()
            self.assertEqual(child.communicate()[0], "ending\n")
            self.assertEqual(child.returncode, 7)

    def test_a_missing_framework_is_the_programs_own_error(self):
        said = run("--", sys.executable, "-c", "import a_framework_that_is_missing")
        lines = said.stderr.splitlines()
        self.assertEqual(said.returncode, 1)
        self.assertEqual(lines[-2], "ModuleNotFoundError: No module named 'a_framework_that_is_missing'")
        self.assertEqual(lines[-1], "vtpu run: the program ended with exit code 1 before it opened the TPU")

    def test_an_interrupted_program_says_so_once(self):
        program = "import time; print('ready', flush=True); time.sleep(600)"
        for words, code in ((["-c", program], -signal.SIGINT), (["-c", f"try:\n  {program}\nexcept KeyboardInterrupt: exit(130)"], 130)):
            child = subprocess.Popen([VTPU, "run", "--", sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, start_new_session=True)  # fmt: skip
            self.assertEqual(child.stdout.readline(), "ready\n")
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does
            said = child.communicate()[1].splitlines()
            self.assertEqual(child.returncode, code)
            self.assertEqual([line for line in said if line.startswith("vtpu")], ["vtpu run: interrupted before the program opened the TPU"])

    def test_without_namespaces_a_line_says_why_there_are_no_chips(self):
        if not namespaces():
            self.skipTest("no namespaces here, so none can be forbidden")
        forbid = "echo 0 >/proc/sys/user/max_user_namespaces && echo 0 >/proc/sys/user/max_mnt_namespaces || exit 77; exec \"$@\""
        said = subprocess.run(["unshare", "-Ur", "sh", "-c", forbid, "-", VTPU, "run", "-t", "v3-8", "true"], capture_output=True, text=True)
        if said.returncode == 77:
            self.skipTest("namespaces cannot be forbidden here")
        self.assertEqual(said.returncode, 0)
        line = [line for line in said.stderr.splitlines() if "no device files" in line]
        self.assertEqual(len(line), 1, said.stderr)

    def test_flags_behind_the_program_are_its_own(self):
        self.assertEqual(run("echo", "-t", "--help", "--", "x").stdout, "-t --help -- x\n")
        self.assertIn("usage: vtpu run", run("--help").stdout)

    def test_mistakes_are_errors_before_anything_runs(self):
        said = run("-t", "v3-9", "echo", "ran")
        self.assertEqual((said.returncode, said.stdout), (1, ""))
        self.assertIn("v3-8", said.stderr)
        said = run("--json", "/nowhere/report.json", "echo", "ran")
        self.assertEqual((said.returncode, said.stdout), (1, ""))
        self.assertIn("/nowhere/report.json", said.stderr)
        self.assertIn("vtpu run -t v3-8 -- python3 train.py", run().stderr)

    def test_a_program_without_the_tpu_is_told_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            said = run("--json", path, "true", TMPDIR=folder)
            self.assertIn("did not open the TPU", said.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            self.assertEqual((report["processes"], report["programs"], report["exit_code"]), (0, 0, 0))
            self.assertEqual(os.listdir(folder), ["report.json"])  # the folder of the pages is gone


if __name__ == "__main__":
    unittest.main(verbosity=1)
