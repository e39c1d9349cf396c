#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance harness of pypjrt, a PJRT client in plain Python, on a plugin: conform.py PLUGIN

Fails where a check fails, where the plugin reports something as unsupported that a TPU supports, and where a check is
skipped for a reason other than those below. Exit 77: pypjrt is not installed.
"""
import sys

try:
    from pypjrt import conform
    from pypjrt._loader import Plugin
except ImportError:
    print("skipped: build/venv has no pypjrt")
    sys.exit(77)

# Features that a TPU lacks too, or checks that expect a bug which the plugin does not have.
SKIPPED = {
    "abi.unknown_slot_is_clean_error": "the table has every slot that the harness knows",
    "triton.compile": "Triton is for GPUs",
    "stream.external_ready_events": "streams are those of CUDA",
    "abi_version.extension_present": "versions are compared by fingerprint",
    "abi_version.executable_proto": "as above",
    "abi_version.is_compatible_with_executable": "as above",
}

report = conform.run(Plugin(sys.argv[1]))
print(conform.render(report, verbose=True))
bad = []
for check in report.checks:
    expected = {"pass": None, "skip": SKIPPED}.get(check.result.value, {})
    if expected is not None and check.id not in expected:
        bad.append(f"{check.id}: {check.result.value}: {check.detail}")
if len(report.checks) < 60:
    bad.append(f"only {len(report.checks)} checks ran")
print("\n".join(bad))
sys.exit(bool(bad))
