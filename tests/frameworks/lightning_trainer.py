# SPDX-License-Identifier: Apache-2.0
"""A CNN trained with Lightning: fit with validation, logging and a checkpoint, then predict.

lightning_trainer.py cpu|tpu [DEVICES]
"""

import logging
import sys
import tempfile

import lightning
import torch
from digits import BATCH, images, network
from report import report
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network, self.losses, self.seen = network(), [], []

    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        self.seen.append(loss.detach())
        return loss

    def on_train_epoch_end(self):
        self.losses += [loss.item() for loss in self.seen]
        self.seen = []

    def validation_step(self, batch, _):
        self.log("accuracy", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

    def predict_step(self, batch, _):
        return self.network(batch[0]).argmax(1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    platform, devices = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "1"
    data = TensorDataset(*images())
    model = Classifier()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(accelerator=platform, devices=int(devices), max_epochs=2, logger=False, default_root_dir=folder,
                                    enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)
        trainer.fit(model, DataLoader(data, BATCH), DataLoader(data, BATCH))
        accuracy = trainer.callback_metrics["accuracy"].item()
        trainer.save_checkpoint(folder + "/last.ckpt")
        again = Classifier.load_from_checkpoint(folder + "/last.ckpt")
        classes = torch.cat([c.cpu() for c in trainer.predict(again, DataLoader(data, BATCH))])
    name = "cpu"
    if platform == "tpu":
        import torch_xla.runtime

        name = torch_xla.runtime.device_type().lower()
    report(platform=name, devices=trainer.num_devices, losses=model.losses,
           values=[(classes == data.tensors[1]).float().mean().item(), accuracy])


main()
