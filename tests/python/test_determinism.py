# SPDX-License-Identifier: Apache-2.0
"""The same program and input give the same bits, in every process; the number of threads changes time only."""

import re

import pytest

from support import MODELS, run_python

TRAIN = """
    import sys
    sys.path.insert(0, sys.argv[1] + "/mnist")
    import train
    result = train.train(train.Config(steps=int(sys.argv[2]), quiet=True))
    print("LOSSES", " ".join(loss.hex() for loss in result.losses))
"""


def losses(steps=12, **environment):
    out = run_python(TRAIN, MODELS, str(steps), **environment).stdout
    return re.search(r"LOSSES (.*)", out)[1].split()


def test_two_runs_are_bit_identical():
    first = losses()
    assert len(set(first)) > 6
    assert losses() == first


def test_threads_change_the_rounding_at_most():
    one, two = (list(map(float.fromhex, losses(6, OMP_NUM_THREADS=n))) for n in (1, 2))
    assert one == pytest.approx(two, rel=2e-2)
