# SPDX-License-Identifier: Apache-2.0
"""Classes of images with fastai: on a TPU the model is put there first, since the optimizer keeps its
parameters, and each batch ends with a sync.

fastai_images.py cpu|tpu
"""

import sys

import torch
from digits import BATCH, images, network
from fastai.vision.all import Callback, CrossEntropyLossFlat, DataLoader, DataLoaders, Learner, accuracy
from report import report
from torch.utils.data import TensorDataset


class Sync(Callback):
    def after_batch(self):
        import torch_xla

        torch_xla.sync()


class Losses(Callback):
    def __init__(self):
        self.seen = []

    def after_batch(self):
        if self.training:
            self.seen.append(self.learn.loss.detach().cpu().item())


def main():
    platform, callbacks, device = "cpu", [Losses()], torch.device("cpu")
    if sys.argv[1] == "tpu":
        import torch_xla
        import torch_xla.runtime

        device, platform = torch_xla.device(), torch_xla.runtime.device_type().lower()
        callbacks.append(Sync())
    x, y = images()
    train, valid = TensorDataset(x, y), TensorDataset(x[:64], y[:64])
    loaders = DataLoaders(*(DataLoader(data, bs=BATCH, device=device) for data in (train, valid)), device=device)
    learner = Learner(loaders, network().to(device), loss_func=CrossEntropyLossFlat(), metrics=accuracy, cbs=callbacks)
    with learner.no_bar(), learner.no_logging():
        learner.fit_one_cycle(2, 3e-3)
    predictions, targets = learner.get_preds()
    parameter = next(learner.model.parameters())
    assert parameter.device.type == device.type
    report(platform=platform, devices=1, losses=callbacks[0].seen,
           values=[(predictions.argmax(1) == targets).float().mean().item()])


main()
