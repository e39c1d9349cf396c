# SPDX-License-Identifier: Apache-2.0
"""The model of the engine between processes (bench/scale.py): it says of what was measured what was measured, within the error
that docs/how-to/scale.md states, and more hosts or slower networks are never better."""

import os
import sys

import numpy as np
import pytest
from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "bench"))
import scale  # noqa: E402

MEASURED = scale.load()
TCP = scale.engine_of(MEASURED, "tcp")
HOSTS = [1, 2, 8, 64, 256]


def test_measured_sums_by_tcp():
    rows = [row for row in MEASURED["sums"] if row["transport"] == "tcp"]
    assert {row["processes"] for row in rows} == {2, 4, 8}
    for row in rows:
        model = TCP.processor_time("all_reduce", row["bytes"], row["processes"])
        assert 1 / 1.7 < model / row["processor"] < 1.7, row


def test_large_sums_by_shared_memory():
    """Of small ones the time is that of sleeping and waking, which other programs decide."""
    engine = scale.engine_of(MEASURED, "auto")
    for row in MEASURED["sums"]:
        if row["transport"] == "auto" and row["bytes"] >= 1 << 20:
            assert 1 / 1.7 < engine.processor_time("all_reduce", row["bytes"], row["processes"]) / row["processor"] < 1.7, row


@pytest.mark.parametrize("network", scale.NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("arrays, size", [(16, 25e6), (160, 2.5e6)])
def test_more_hosts_are_not_more_efficient(network, arrays, size):
    found = [scale.efficiency(n, TCP, network, arrays=arrays, size=size, steps=2) for n in HOSTS]
    assert found[0] == 1.0 and 0 < found[-1]
    assert all(b <= a for a, b in zip(found, found[1:])), found


def test_a_better_network_is_not_slower():
    for hosts in HOSTS:
        found = [scale.efficiency(hosts, TCP, network, steps=2) for network in scale.NETWORKS]
        assert all(a <= b for a, b in zip(found, found[1:])), found


@pytest.mark.parametrize("network", scale.NETWORKS, ids=lambda network: network.name)
def test_sums_beside_the_computation_are_no_slower(network):
    for hosts in HOSTS:
        beside, after = (scale.efficiency(hosts, TCP, network, steps=2, beside=b) for b in (True, False))
        assert after <= beside <= 1.01, (hosts, after, beside)  # one host may be quicker than the mean


def test_a_meeting_message_by_message():
    """The queues as a loop over messages in the order of their events, against the arrays of bench/scale.py."""
    network, engine = scale.Network("", 3e-5, 1e9), scale.Engine(2e-6, 1e-5, 4e-10)
    begin, block = np.array([0.0, 5e-4, 1e-4, 2e-4, 0.0]), 3e4
    each = max((engine.message + block * engine.byte) / 2, block / network.rate)
    sends = []
    for i, start in enumerate(begin):
        others = [j for j in range(len(begin)) if j != i]
        sends += [(start + k * each + network.latency, j) for k, j in enumerate(others)]
    free = np.zeros(len(begin))
    for arrival, j in sorted(sends):
        free[j] = max(free[j], arrival) + each
    want = np.maximum(free, begin + (len(begin) - 1) * each) + engine.meeting
    np.testing.assert_allclose(scale.meet(begin, block, engine, network), want, rtol=1e-12)


@pytest.mark.parametrize("operation, size, want", [
    ("all_reduce", scale.WHOLE, [(1, scale.WHOLE)]),
    ("all_reduce", 4 * scale.WHOLE, [(2, scale.WHOLE)]),
    ("all_reduce", 9 * scale.SHARE, [(4, scale.SHARE), (2, scale.SHARE / 4)]),
    ("all_gather", 1 << 22, [(1, 1 << 22)]),
    ("all_to_all", 1 << 22, [(1, 1 << 20)]),
])
def test_collectives_are_meetings(operation, size, want):
    assert scale.meetings(operation, size, 4) == want
