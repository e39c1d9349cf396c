#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small CNN trained with PyTorch/XLA on the plugin: its losses are those of PyTorch's CPU, but for bf16's rounding of
what products multiply. Run by build/venv-torch-xla's Python.

    torch_xla_test.py LIBVTPU [STEPS]
"""

import os
import sys

os.environ |= {"PJRT_DEVICE": "TPU", "TPU_LIBRARY_PATH": os.path.abspath(sys.argv[1]), "TPU_SKIP_MDS_QUERY": "1"}
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v2-8")

import torch  # noqa: E402
import torch_xla  # noqa: E402
import torch_xla.core.xla_model as xm  # noqa: E402
from torch import nn  # noqa: E402

STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.classes = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        return self.classes(self.features(x).flatten(1))


def train(device):
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images = torch.randn(32, 1, 28, 28, generator=torch.Generator().manual_seed(1)).to(device)
    labels = torch.randint(0, 10, (32,), generator=torch.Generator().manual_seed(2)).to(device)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses


# The device first: autograd counts its devices when it starts.
got = train(torch_xla.device())
want = train(torch.device("cpu"))
print("device", torch_xla.device(), xm.xla_device_hw(torch_xla.device()))
for step, (a, b) in enumerate(zip(want, got, strict=True)):
    print(f"step {step}: {a:.6f} on the CPU, {b:.6f} on the device")
assert all(abs(a - b) <= 0.02 * max(1.0, abs(a)) for a, b in zip(want, got, strict=True)), "losses differ"
