# SPDX-License-Identifier: Apache-2.0
"""What replicas of PyTorch/XLA share: collectives, DistributedDataParallel and FullyShardedDataParallel, on all devices.

torch_xla_processes.py cpu REPLICAS      what so many replicas compute
torch_xla_processes.py tpu [each-chip]   each-chip: a process for each chip, although `vtpu run` gave all chips to one
"""

import os
import sys
import threading

import torch
import torch.distributed as dist
from digits import BATCH, images, network
from report import report
from torch import nn


def piece(rank, ranks):
    return torch.arange(2.0 * ranks) * (1 + rank) - 3.0


def expected(ranks):
    """What collectives give replica 1."""
    all_of_them = torch.stack([piece(r, ranks) for r in range(ranks)])
    yield all_of_them.sum(0)
    yield all_of_them.reshape(-1)
    yield all_of_them.sum(0)[2:4]
    yield all_of_them[:, 2:4].reshape(-1)
    yield all_of_them[0]
    yield all_of_them.prod(0)[:2] / 100
    for _ in range(4):
        yield torch.ones(2)


def computed(rank, ranks, device):
    import torch_xla.core.xla_model as xm

    mine = piece(rank, ranks).to(device)
    yield xm.all_reduce(xm.REDUCE_SUM, mine)
    yield xm.all_gather(mine)
    yield xm.reduce_scatter(xm.REDUCE_SUM, mine, scale=1.0, scatter_dim=0, shard_count=ranks)
    yield xm.all_to_all(mine, split_dimension=0, concat_dimension=0, split_count=ranks)
    yield xm.collective_permute(mine, [(r, (r + 1) % ranks) for r in range(ranks)])
    yield xm.all_reduce(xm.REDUCE_MUL, mine)[:2] / 100
    # Who gives takes turns: two programs that differ in a constant alone, here in one order and there in the other.
    for root in (0, 1, 0, 1):
        yield xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device) * float(rank == root))


def train(model, rank, ranks, device, reduce, step_done):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = images()
    rows, losses = BATCH // ranks, []
    for step in range(8):
        at = step % 8 * BATCH + rank * rows
        optimizer.zero_grad()
        mine, classes = (values[at : at + rows].to(device) for values in (x, y))
        loss = nn.functional.cross_entropy(model(mine), classes)
        loss.backward()
        optimizer.step()
        losses.append(reduce(loss.detach()))
        step_done()
    return [loss.item() for loss in losses]


group_lock = threading.Lock()


def join_process_group():
    """The replicas of one process are threads, and PyTorch has one default group for all of them."""
    with group_lock:
        if not dist.is_initialized():
            dist.init_process_group("xla", init_method="xla://")


def replica(index):
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_backend  # noqa: F401
    import torch_xla.runtime as xr
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel

    join_process_group()
    device, rank, ranks = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    values = [value.cpu().flatten().tolist() for value in computed(rank, ranks, device)]
    losses = []
    wrap = {
        "ddp": lambda model: nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True),
        "fsdp": lambda model: XlaFullyShardedDataParallel(model, compute_dtype=torch.float32),
    }
    for kind in wrap:
        model = wrap[kind](network(norm=False).to(device))
        losses += train(model, rank, ranks, device, lambda loss: xm.all_reduce(xm.REDUCE_SUM, loss, scale=1 / ranks),
                        torch_xla.sync)
    if rank == 1:
        report(platform=xr.device_type().lower(), devices=ranks, losses=losses, values=sum(values, []))


def main():
    if sys.argv[1] == "tpu":
        if "each-chip" in sys.argv:
            del os.environ["TPU_PROCESS_BOUNDS"], os.environ["TPU_CHIPS_PER_PROCESS_BOUNDS"]
        import torch_xla

        torch_xla.launch(replica)
        return
    ranks = int(sys.argv[2])
    losses = [train(network(norm=False), 0, 1, torch.device("cpu"), lambda loss: loss, lambda: None) for _ in range(2)]
    report(platform="cpu", devices=1, losses=sum(losses, []), values=torch.cat(list(expected(ranks))).tolist())


if __name__ == "__main__":
    main()
