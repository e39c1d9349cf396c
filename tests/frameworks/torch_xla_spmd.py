# SPDX-License-Identifier: Apache-2.0
"""PyTorch/XLA's SPMD on all devices: one program whose arrays are sharded by annotations, and by FSDPv2.

torch_xla_spmd.py cpu|tpu
"""

import sys

import torch
from digits import BATCH, images, network
from report import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, DEVICES = 6, 8


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Rows(nn.Module):
    """Classes by a transformer over the rows of an image."""

    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(16, 64), nn.Sequential(Block(), Block()), nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.blocks(self.first(x[:, 0])).mean(1))


def rows():
    torch.manual_seed(2)
    return Rows()


def train(model, loader, step_done):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step_done()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def batches():
    return DataLoader(TensorDataset(*images(STEPS * BATCH)), BATCH)


def manual(mesh, device, xs):
    """A sum over the devices' own parts: what they hold, weighted by their own first number."""
    import torch_xla
    import torch_xla.core.xla_model as xm

    x = torch.arange(2.0 * DEVICES).to(device)
    part = xs.enable_manual_sharding(x, ("x",), mesh=mesh).global_tensor
    part = torch_xla._XLAC._xla_spmd_all_reduce(xm.REDUCE_SUM, part * part[:1], 1.0, [list(range(DEVICES))])
    return xs.disable_manual_sharding(part, (None,), (2,), mesh=mesh).global_tensor.sum().item() / 1000


def weighted():
    parts = torch.arange(2.0 * DEVICES).reshape(DEVICES, 2)
    return (parts * parts[:, :1]).sum().item() / 1000


def on_tpu():
    import functools

    import numpy
    import torch_xla
    import torch_xla.distributed.parallel_loader as pl
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr
    from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel as FSDPv2

    xr.use_spmd()
    device = torch_xla.device()

    def loader(mesh, axis):  # images by rows of the batch; every device has all labels
        return pl.MpDeviceLoader(batches(), device, input_sharding=xs.ShardingSpec(mesh, (axis, None, None, None)))

    # Batches over one axis of the mesh, two layers' features over the other.
    mesh = xs.Mesh(numpy.arange(DEVICES), (4, 2), ("data", "model"))
    model = network(norm=False).to(device)
    xs.mark_sharding(model[4].weight, mesh, ("model", None, None, None))
    xs.mark_sharding(model[8].weight, mesh, (None, "model"))
    losses = train(model, loader(mesh, "data"), torch_xla.sync)
    assert "devices=[1,2,4]" in torch_xla._XLAC._get_xla_sharding_spec(model[8].weight)

    line = xs.Mesh(numpy.arange(DEVICES), (DEVICES, 1), ("fsdp", "tensor"))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    sharded = FSDPv2(rows().to(device), mesh=line, auto_wrap_policy=policy)
    losses += train(sharded, loader(line, "fsdp"), torch_xla.sync)
    weight = next(p for p in sharded.parameters() if p.dim() == 2)
    shards = torch_xla._XLAC._get_local_shards([weight])[0]
    assert len(shards) == DEVICES and shards[0][0].numel() * DEVICES == weight.numel()
    losses.append(manual(xs.Mesh(numpy.arange(DEVICES), (DEVICES,), ("x",)), device, xs))
    return losses, xr.device_type().lower(), xr.global_runtime_device_count()


def main():
    if sys.argv[1] == "tpu":
        losses, platform, devices = on_tpu()
    else:
        losses, platform, devices = train(network(norm=False), batches(), lambda: None), "cpu", 1
        losses += [*train(rows(), batches(), lambda: None), weighted()]
    report(platform=platform, devices=devices, losses=losses, values=[])


if __name__ == "__main__":
    main()
