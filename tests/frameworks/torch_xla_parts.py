# SPDX-License-Identifier: Apache-2.0
"""What PyTorch/XLA has beside the loop of torch_xla_cnn.py, on one device: each part trains the same network its way. On the
CPU it is PyTorch's plain loop.

torch_xla_parts.py cpu|tpu VTPU
"""

import subprocess
import sys
import tempfile

import numpy
import torch
from digits import BATCH, images, network
from report import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 6


class Plain:
    """A loop of PyTorch's; the parts below change what they are about."""

    def __init__(self, device="cpu", dtype=torch.float32):
        self.device, self.dtype = torch.device(device), dtype
        self.model = network(norm=False).to(self.device, dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.losses = []

    def loss(self, x, y):
        return nn.functional.cross_entropy(self.model(x.to(self.dtype)), y)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def batches(self):
        return DataLoader(TensorDataset(*images(STEPS * BATCH)), BATCH)

    def sync(self):
        pass

    def train(self):
        for x, y in self.batches():
            loss = self.step(x.to(self.device), y.to(self.device))
            self.sync()
            self.losses.append(loss.detach().float())
        return [loss.item() for loss in self.losses]


class Autocast(Plain):
    def loss(self, x, y):
        with torch.autocast(self.device.type, torch.bfloat16):
            return super().loss(x, y)


class Bfloat16(Plain):
    def __init__(self, device="cpu"):
        super().__init__(device, torch.bfloat16)


def plain():
    return [Plain().train(), Plain().train(), Plain().train(), Autocast().train(), Bfloat16().train(), Plain().train(),
            Plain().train()]


def counted(name):
    import torch_xla.debug.metrics as met

    data = met.metric_data(name)
    return data[0] if data else 0


def on_tpu():
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl

    device = torch_xla.device()

    class Marked(Plain):
        def sync(self):
            xm.mark_step()

    class Compiled(Plain):
        def __init__(self, device):
            super().__init__(device)
            one = super().step
            self.step = torch_xla.compile(lambda x, y: one(x, y).detach(), full_graph=True, name="step")

    class Loaded(Plain):
        def batches(self):
            return pl.MpDeviceLoader(super().batches(), device)  # which ends each step too

    class Saved(Marked):
        def step(self, x, y):
            if len(self.losses) == STEPS // 2:
                with tempfile.TemporaryDirectory() as folder:
                    xm.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, folder + "/last.pt")
                    read = torch.load(folder + "/last.pt")
                again = Plain(device)
                again.model.load_state_dict(read["model"])
                again.optimizer.load_state_dict(read["optimizer"])
                self.model, self.optimizer = again.model, again.optimizer
            return super().step(x, y)

    class Traced(Marked):
        """Forward and backward by way of torch.compile."""

        def __init__(self, device):
            super().__init__(device)
            self.model = torch.compile(self.model, backend="openxla")

    class Cast(Autocast, Marked):
        pass

    class Narrow(Bfloat16, Marked):
        pass

    before = counted("CompileTime")
    losses = [Marked(device).train()]
    compiles, runs = counted("CompileTime") - before, counted("ExecuteTime")
    assert 1 <= compiles <= 4, compiles  # the step, at first without momentum, and what makes the first values
    assert runs >= STEPS and counted("TransferToDeviceTime") + counted("TransferFromDeviceTime") > 0
    losses += [Compiled(device).train(), Loaded(device).train(), Cast(device).train(), Narrow(device).train(),
               Saved(device).train(), Traced(device).train()]
    check_memory(device)
    return losses


def check_memory(device):
    import torch_xla
    import torch_xla.core.xla_model as xm

    before = xm.get_memory_info(device)
    kept = torch.ones(1024, 1024, device=device) + 1
    torch_xla.sync()
    xm.wait_device_ops()
    after = xm.get_memory_info(device)
    assert after["bytes_used"] - before["bytes_used"] >= kept.numel() * 4, (before, after)
    assert 14e9 < after["bytes_limit"] < 17.2e9 and after["peak_bytes_used"] >= after["bytes_used"], after


def exported(vtpu):
    """The network as StableHLO, run by `vtpu exec`; without `vtpu`, by PyTorch."""
    model, x = network(norm=False).eval(), images(4)[0]
    if not vtpu:
        return model(x).flatten().tolist()
    from torch_xla.stablehlo import VariableType, exported_program_to_stablehlo

    program = exported_program_to_stablehlo(torch.export.export(model, (x,)))
    (function,) = program._bundle.stablehlo_funcs
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/program.mlirbc", "wb") as file:
            file.write(program.get_stablehlo_bytecode("forward"))
        words = [vtpu, "exec", folder + "/program.mlirbc", "--output", folder + "/out.npz"]
        for i, where in enumerate(function.meta.input_locations):
            argument = where.type_ == VariableType.INPUT_ARG
            numpy.save(f"{folder}/{i}.npy", x.numpy() if argument else program._bundle.state_dict[where.name])
            words += ["--input", f"{folder}/{i}.npy"]
        subprocess.run(words, check=True, capture_output=True)
        with numpy.load(folder + "/out.npz") as out:
            return out["out_0"].flatten().tolist()


def main():
    platform, losses = sys.argv[1], None
    values = exported(sys.argv[2] if platform == "tpu" else "")
    if platform == "tpu":
        losses = on_tpu()
        import torch_xla.runtime

        platform = torch_xla.runtime.device_type().lower()
    else:
        losses = plain()
    report(platform=platform, devices=1, losses=sum(losses, []), values=values)


if __name__ == "__main__":
    main()
