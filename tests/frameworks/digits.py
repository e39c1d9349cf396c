# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch programs of this folder share: images of ten classes, and a small network for them."""

import threading

import torch
from torch import nn

BATCH = 32
# Replicas may be threads of one process, which has one generator of random numbers.
one_at_a_time = threading.Lock()


def images(count=256):
    """Classes that a small network learns: each a pattern and noise."""
    random = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 1, 16, 16, generator=random)
    labels = torch.randint(0, 10, (count,), generator=random)
    return patterns[labels] + torch.randn(count, 1, 16, 16, generator=random), labels


def network(norm=True):
    with one_at_a_time:
        torch.manual_seed(1)
        return layers(norm)


def layers(norm):
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )
