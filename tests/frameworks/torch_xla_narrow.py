# SPDX-License-Identifier: Apache-2.0
"""A program in float32 that PyTorch/XLA narrows to bfloat16 by a variable of the environment. On the CPU the model is bfloat16.

torch_xla_narrow.py cpu|tpu XLA_USE_BF16|XLA_DOWNCAST_BF16
"""

import os
import sys

os.environ[sys.argv[2]] = "1"

import torch  # noqa: E402
from digits import BATCH, images, network  # noqa: E402
from report import report  # noqa: E402
from torch import nn  # noqa: E402

STEPS = 6


def type_on_device(dtype, device):
    """What a value of this type is in PyTorch/XLA's program."""
    import torch_xla

    text = torch_xla._XLAC._get_xla_tensors_hlo([torch.ones(3, dtype=dtype).to(device) + 1])
    return text.split("ROOT")[1].split("(")[1].split("[")[0]


def main():
    device, platform, dtype = torch.device("cpu"), "cpu", torch.bfloat16
    if sys.argv[1] == "tpu":
        import torch_xla
        import torch_xla.core.xla_model as xm

        device, dtype = torch_xla.device(), torch.float32
        platform = xm.xla_device_hw(device).lower()
        types = [type_on_device(kind, device) for kind in (torch.float32, torch.float64)]
        assert types == {"XLA_USE_BF16": ["bf16", "bf16"], "XLA_DOWNCAST_BF16": ["bf16", "f32"]}[sys.argv[2]], types
    model = network(norm=False).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = images(STEPS * BATCH)
    losses = []
    for i in range(STEPS):
        rows = slice(i * BATCH, (i + 1) * BATCH)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows].to(device, dtype)), y[rows].to(device))
        loss.backward()
        optimizer.step()
        if platform == "tpu":
            torch_xla.sync()
        losses.append(loss.item())
    assert all(weight.dtype == dtype for weight in model.parameters())  # as PyTorch sees them
    report(platform=platform, devices=1, losses=losses, values=[])


main()
