# SPDX-License-Identifier: Apache-2.0
"""A CNN trained with TorchTPU: eager PyTorch on the device `tpu`.

torch_tpu_cnn.py cpu|tpu
"""

import sys

import torch
from digits import BATCH, images, network
from report import report
from torch import nn


def main():
    device = torch.device(sys.argv[1])
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
        losses.append(loss.item())
    report(platform=next(model.parameters()).device.type, devices=1, losses=losses, values=[])


main()
