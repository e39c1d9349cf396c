# SPDX-License-Identifier: Apache-2.0
"""A CNN trained in a loop of Hugging Face's Accelerate, as `accelerate launch` starts it.

accelerate_loop.py [no|bf16|fp16 [BATCHES_ADDED_UP]]
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin, set_seed
from digits import BATCH, images, network, one_at_a_time
from report import report
from torch.utils.data import DataLoader, TensorDataset


def main():
    precision = sys.argv[1] if len(sys.argv) > 1 else "no"
    added_up = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    # PyTorch/XLA's loader is read ahead by a thread: whether it is at its end is not the same on all replicas.
    accumulation = GradientAccumulationPlugin(num_steps=added_up, sync_with_dataloader=False)
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_plugin=accumulation,
                              dataloader_config=DataLoaderConfiguration(split_batches=True))
    with one_at_a_time:
        set_seed(0)
    model = network(norm=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
    model, optimizer, loader, rate = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(*images()), BATCH), rate)
    losses = []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                rate.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean())
    model.eval()
    with torch.no_grad():
        right = [accelerator.gather(model(x).argmax(1) == y).float().mean() for x, y in loader]
    platform = "cpu"
    if accelerator.device.type == "xla":
        import torch_xla.runtime

        platform = torch_xla.runtime.device_type().lower()
    losses, right = [loss.item() for loss in losses], torch.stack(right).mean().item()
    if accelerator.is_main_process:
        report(platform=platform, devices=accelerator.num_processes, losses=losses, values=[right])


if __name__ == "__main__":
    main()
