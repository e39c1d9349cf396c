# SPDX-License-Identifier: Apache-2.0
"""A CNN trained on all devices by PyTorch/XLA's replicas: `torch_xla.launch` starts one for each device, or torchrun
a process for each chip.

torch_xla_replicas.py cpu|tpu
"""

import sys

import torch
import torch.distributed as dist
from digits import BATCH, images, network
from report import report
from torch import nn


def train(device, rank, ranks, reduce, step_done):
    """The losses of each batch, of which every replica has its rows."""
    model = network(norm=False).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = images()
    rows, losses = BATCH // ranks, []
    for step in range(16):
        at = step % 8 * BATCH + rank * rows
        optimizer.zero_grad()
        mine, classes = (values[at : at + rows].to(device) for values in (x, y))
        loss = nn.functional.cross_entropy(model(mine), classes)
        loss.backward()
        step_done(optimizer)
        losses.append(reduce(loss.detach()))
    return [loss.item() for loss in losses]


def replica(index):
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    if dist.is_torchelastic_launched():
        import torch_xla.distributed.xla_backend  # noqa: F401

        dist.init_process_group("xla", init_method="xla://")

    def step_done(optimizer):
        xm.optimizer_step(optimizer)  # the mean of all replicas' gradients
        torch_xla.sync()

    def reduce(loss):
        return xm.all_reduce(xm.REDUCE_SUM, loss, scale=1 / xr.world_size())

    losses = train(torch_xla.device(), xr.global_ordinal(), xr.world_size(), reduce, step_done)
    if xr.global_ordinal() == 0:
        report(platform=xr.device_type().lower(), devices=xr.world_size(), losses=losses, values=[])


def main():
    if sys.argv[1] == "tpu":
        import torch_xla

        torch_xla.launch(replica)
    else:
        losses = train(torch.device("cpu"), 0, 1, lambda loss: loss, lambda optimizer: optimizer.step())
        report(platform="cpu", devices=1, losses=losses, values=[])


if __name__ == "__main__":
    main()
