# SPDX-License-Identifier: Apache-2.0
"""The runner, on two small files of tests: a crash or hang only costs that test, and a second run repeats nothing."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.py"
SUITES = RUN.with_name("suites.py")
GOOD = "def test_one(): pass\n"
BAD = """
import os, time, pytest
def test_before(): pass
def test_crashes(): os.abort()
def test_fails(): assert os.environ["JAX_NUM_GENERATED_CASES"] == "0"
def test_hangs():
  with open("hung", "a") as out:
    out.write("once\\n")
  time.sleep(600)
def test_after(): pass
def test_skipped(): pytest.skip("of no use here")
"""
SUITE = """
import os
HERE = os.environ["JAX_PLATFORMS"] != "cpu"
def test_passes(): pass
def test_here(): assert not HERE
def test_crashes():
  if HERE: os.abort()
def test_nowhere(): assert False
"""
PAGE = "By hand.\n\n{begin}\nold\n{end}\n\nAlso by hand.\n"


def column(records, platform, name, key):
  tests = json.loads(records.with_suffix(".json").read_text())[name][platform]["tests"]
  return {test.partition("::")[2]: row[key] for test, row in tests.items()}


class Runner(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.checkout = pathlib.Path(folder.name) / "checkout"
    self.records = pathlib.Path(folder.name) / "records"
    (self.checkout / "tests").mkdir(parents=True)
    (self.checkout / "tests/lax_test.py").write_text(GOOD)
    (self.checkout / "tests/bad_test.py").write_text(BAD)

  def run_it(self, *arguments, status=0):
    done = subprocess.run([sys.executable, RUN, "--records", self.records, *arguments], text=True, capture_output=True)
    self.assertEqual(done.returncode, status, done.stderr)
    return done

  def test_crash_and_hang(self):
    expected = dict(test_before="passed", test_crashes="crashed", test_fails="failed", test_hangs="timeout",
                    test_after="passed", test_skipped="skipped")
    for _ in range(2):
      self.run_it(self.checkout, "--only", "cpu", "--cases", "3", "--test-seconds", "4")
      self.assertEqual(column(self.records, "cpu", "bad_test", "outcome"), expected)
      messages = column(self.records, "cpu", "bad_test", "message")
      self.assertIn("AssertionError", messages["test_fails"])
      self.assertIn("of no use here", messages["test_skipped"])
      self.assertEqual(column(self.records, "cpu", "lax_test", "outcome"), {"test_one": "passed"})
      self.assertEqual((self.checkout / "hung").read_text(), "once\n")

  def test_not_collected(self):
    (self.checkout / "tests/bad_test.py").write_text("import no_such_module\n")
    done = self.run_it(self.checkout, "--only", "cpu")
    self.assertIn("bad_test on cpu (not collected, 0 tests)", done.stdout)

  def test_no_checkout(self):
    done = self.run_it(self.records, status=1)
    self.assertIn("is not a JAX checkout", done.stderr)

  def test_suites(self):
    tests = self.checkout / "mctx/mctx/_src/tests"
    tests.mkdir(parents=True)
    (tests / "good_test.py").write_text(GOOD)
    (tests / "tpu_test.py").write_text(SUITE)
    for more, there in ([], 3), (["--both"], 5):
      done = subprocess.run([sys.executable, SUITES, self.checkout, "--run", "mctx", "--records", self.records, *more],
                            text=True, capture_output=True)
      self.assertEqual(done.returncode, 0, done.stderr)
      self.assertRegex(done.stdout, r"\| mctx \S.* \| 5 \| 2 \| 0 \| 3 \| 2 \| 1 \| 0 \|")
      self.assertIn("mctx _src/tests/tpu_test.py::test_here: failed: assert not True", done.stdout)
      self.assertIn("mctx _src/tests/tpu_test.py::test_crashes: crashed: crashed", done.stdout)
      self.assertNotIn("test_nowhere", done.stdout)
      records = (self.records / "cpu/mctx").glob("*.jsonl")
      self.assertEqual(sum('"outcome"' in line for path in records for line in path.read_text().splitlines()), there)

  def test_suites_every(self):
    tests = self.checkout / "mctx/mctx/_src/tests"
    tests.mkdir(parents=True)
    (tests / "many_test.py").write_text("import pytest\n@pytest.mark.parametrize('n', range(64))\ndef test_one(n): pass\n")
    subprocess.run([sys.executable, SUITES, self.checkout, "--run", "mctx", "--every", "4", "--both", "--records",
                    self.records], capture_output=True, check=True)
    ours, theirs = ({row["test"] for line in record.read_text().splitlines() if (row := json.loads(line))["event"] == "outcome"}
                    for record in sorted(self.records.glob("*/mctx/*.jsonl")))
    self.assertEqual(ours, theirs)
    self.assertTrue(0 < len(ours) < 64)

  def test_every(self):
    many = "import pytest\n@pytest.mark.parametrize('n', range(64))\ndef test_one(n): pass\n"
    (self.checkout / "tests/many_test.py").write_text(many)
    ran = []
    for every in "1", "2", "4":
      record = self.records.with_name(every)
      done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "tests/many_test.py"],
                            cwd=self.checkout, text=True, capture_output=True,
                            env=os.environ | dict(VTPU_RECORD=str(record), VTPU_EVERY=every, PYTHONPATH=str(RUN.parent)))
      self.assertEqual(done.returncode, 0, done.stdout)
      rows = [json.loads(line) for line in record.read_text().splitlines()]
      ran.append({row["test"] for row in rows if row["event"] == "outcome"})
    self.assertEqual(len(ran[0]), 64)
    self.assertTrue(ran[0] > ran[1] > ran[2] and ran[2])

  def test_pallas(self):
    (self.checkout / "tests/pallas").mkdir()
    (self.checkout / "jax/_src").mkdir(parents=True)
    (self.checkout / "jax/_src/only_in_the_checkout.py").write_text("HERE = 1\n")
    (self.checkout / "tests/pallas/tpu_info_test.py").write_text(
        "import os\nfrom jax._src import config, only_in_the_checkout\n"
        "def test_it(): assert only_in_the_checkout.HERE\n"
        "def test_slice(): assert os.environ['VTPU_ACCELERATOR_TYPE'] == 'v4-8'\n")
    done = subprocess.run([sys.executable, RUN.with_name("pallas.py"), self.checkout, "--records", self.records,
                           "--files", "tpu_info_test"], text=True, capture_output=True)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn("| tpu_info_test | v5litepod-8 | 1 | 1 | 0 | 0 | 50.0 % |", done.stdout)
    self.assertIn("| tpu_info_test | v4-8 | 2 | 0 | 0 | 0 | 100.0 % |", done.stdout)
    self.assertIn("3 of 4 pass: 75.00 %.", done.stdout)
    self.assertIn("v5litepod-8 tests/pallas/tpu_info_test.py::test_slice: failed", done.stdout)

  def test_platform(self):
    fake = "class config:\n  values = {}\n  @classmethod\n  def update(cls, name, value): cls.values[name] = value\n"
    (self.checkout / "jax.py").write_text(fake)
    (self.checkout / "conftest.py").write_text("import jax\njax.config.update('jax_platform_name', 'cpu')\n")
    (self.checkout / "tests/one_test.py").write_text(
        "import jax\ndef test_it(): assert jax.config.values['jax_platform_name'] == ''\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "tests/one_test.py"],
                          cwd=self.checkout, text=True, capture_output=True,
                          env=os.environ | dict(VTPU_RECORD=str(self.records.with_name("one")), PYTHONPATH=str(RUN.parent)))
    self.assertEqual(done.returncode, 0, done.stdout)


class Page(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.records = pathlib.Path(folder.name) / "records"
    spec = importlib.util.spec_from_file_location("run", RUN)
    self.run_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(self.run_module)
    self.page = pathlib.Path(folder.name) / "page.md"
    self.page.write_text(PAGE.format(begin=self.run_module.BEGIN, end=self.run_module.END))

  def record(self, platform, name, tests, cpu, cases=10):
    path = self.records / platform / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for test, outcome in tests.items():
      self.run_module.add_row(path, event="outcome", test=test, outcome=outcome)
    self.run_module.add_row(path, event="process", cpu=cpu, wall=9.0)
    self.run_module.add_row(path, event="end", how="exited", cases=cases)

  def write(self):
    self.run_module.write_page(self.page, self.run_module.report(self.records))
    return self.page.read_text()

  def test_tables(self):
    self.record("vtpu", "nn_test", dict(a="passed", b="failed", c="skipped", d="passed", e="crashed"), 2.0)
    self.record("cpu", "nn_test", dict(a="passed", b="passed", c="passed", d="failed", e="passed"), 8.0)
    self.record("vtpu", "jet_test", dict(a="passed"), 1.0)
    text = self.write()
    self.assertTrue(text.startswith("By hand.\n\n") and text.endswith("\n\nAlso by hand.\n"))
    self.assertNotIn("old", text)
    self.assertIn("1 files, 10 cases of each sampled test. Of 3 tests", text)
    self.assertIn("1 pass on vtpu: 33.33 %. vtpu needs 0.25", text)
    self.assertIn("| nn_test | 2 | 1 | 1 | 1 | 2 | 4 | 1 | 0 | 0 | 8 |", text)
    self.assertIn("| jet_test | 1 | 0 | 0 | 0 | 1 |", text)
    self.assertEqual(text, self.write())

  def test_mixed_cases(self):
    self.record("vtpu", "nn_test", dict(a="passed"), 2.0, cases=3)
    self.record("cpu", "nn_test", dict(a="passed"), 2.0)
    with self.assertRaisesRegex(SystemExit, "do not compare"):
      self.run_module.report(self.records)

  def test_no_markers(self):
    self.page.write_text("By hand.\n")
    with self.assertRaisesRegex(SystemExit, "lacks the lines"):
      self.run_module.write_page(self.page, [])


if __name__ == "__main__":
  unittest.main()
