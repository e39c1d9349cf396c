# SPDX-License-Identifier: Apache-2.0
"""pytest plugin: writes each test's start and outcome as a line of JSON, and skips tests that an earlier run has done.

The file (VTPU_RECORD) makes a run resumable and a crash attributable: the last test that started without an outcome is
the one that took the process down. VTPU_EVERY=5 runs about every fifth test, always the same ones; VTPU_TESTS=FILE runs
the tests listed in the file, one per line. Modules below jax._src that JAX's package lacks are taken from the checkout that
VTPU_JAX_CHECKOUT names.
"""
import importlib.machinery
import json
import os
import pathlib
import sys
import time
import zlib

import pytest

_record = open(os.environ["VTPU_RECORD"], "a", buffering=1)
_started = {}  # the processor time at which each test began


class _Checkout:
  """Finds what no installed package has; Python asks it last."""

  @staticmethod
  def find_spec(name, path=None, target=None):
    folder = pathlib.Path(os.environ["VTPU_JAX_CHECKOUT"], *name.split(".")[:-1])
    return importlib.machinery.PathFinder.find_spec(name, [str(folder)]) if name.startswith("jax._src.") else None


if "VTPU_JAX_CHECKOUT" in os.environ:
  sys.meta_path.append(_Checkout)


def _write(**row):
  _record.write(json.dumps(row) + "\n")


def _done():
  done = set()
  with open(os.environ["VTPU_RECORD"]) as lines:
    for line in lines:
      row = json.loads(line)
      if row["event"] == "outcome":
        done.add(row["test"])
  return done


def pytest_collection(session):
  # numpyro's conftest.py asks for the CPU; a run is of the platform that the environment names.
  if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_platform_name", "")


def pytest_collection_modifyitems(config, items):
  done, every, chosen = _done(), int(os.environ.get("VTPU_EVERY", "1")), os.environ.get("VTPU_TESTS")
  wanted = set(pathlib.Path(chosen).read_text().splitlines()) if chosen else None
  items[:] = [item for item in items if item.nodeid not in done and
              (item.nodeid in wanted if chosen else zlib.crc32(item.nodeid.encode()) % every == 0)]
  _write(event="collected", count=len(items), time=time.time())


def pytest_runtest_logstart(nodeid, location):
  _started[nodeid] = time.process_time()
  _write(event="start", test=nodeid, time=time.time())


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
  # One outcome per test: its call, or what prevented the call.
  if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
    message = ""
    if report.failed:
      crash = getattr(report.longrepr, "reprcrash", None)
      message = (crash.message if crash else str(report.longrepr))[:600]
    elif report.skipped and isinstance(report.longrepr, tuple):
      message = report.longrepr[2]
    _write(event="outcome", test=report.nodeid, outcome=report.outcome, seconds=round(report.duration, 4),
           cpu=round(time.process_time() - _started[report.nodeid], 4), message=message)
