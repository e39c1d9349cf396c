# SPDX-License-Identifier: Apache-2.0
"""A CNN trained in a loop of PyTorch/XLA's.

torch_xla_cnn.py cpu|tpu
"""

import sys

import torch
from digits import BATCH, images, network
from report import report
from torch import nn


def main():
    device, platform = torch.device("cpu"), "cpu"
    if sys.argv[1] == "tpu":
        import torch_xla
        import torch_xla.core.xla_model

        device = torch_xla.device()
        platform = torch_xla.core.xla_model.xla_device_hw(device).lower()
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = (values.to(device) for values in images())
    losses = []
    for step in range(16):
        rows = slice(step % 8 * BATCH, (step % 8 + 1) * BATCH)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if platform == "tpu":
            torch_xla.sync()
        losses.append(loss.item())
    report(platform=platform, devices=1, losses=losses, values=[])


main()
