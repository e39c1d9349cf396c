# SPDX-License-Identifier: Apache-2.0
"""A CNN trained with Lightning: fit with validation, logging and a checkpoint, which is then validated and predicts.

lightning_trainer.py cpu|tpu [DEVICES]
"""

import logging
import sys
import tempfile
import warnings

import lightning
import torch
from digits import BATCH, images, network
from report import report
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network(norm=False)

    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log(f"loss{self.global_step:02}", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("accuracy", (self.network(batch[0]).argmax(1) == batch[1]).float().mean(), sync_dist=True)

    def predict_step(self, batch, _):
        return self.network(batch[0]).argmax(1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    platform, devices = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    data = TensorDataset(*images())
    loader = DataLoader(data, BATCH // devices)  # of each replica
    # Lightning gives several replicas the samples in this order; one gets them as they come.
    order = DistributedSampler(data, 1, 0) if devices == 1 else None
    model = Classifier()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(accelerator=platform, devices=devices, max_epochs=2, logger=False, default_root_dir=folder,
                                    enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)
        trainer.fit(model, DataLoader(data, BATCH // devices, sampler=order), loader)
        metrics = dict(trainer.callback_metrics)
        again = Classifier.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
        trainer.validate(again, loader, verbose=False)
        values = [metrics["accuracy"].item(), trainer.callback_metrics["accuracy"].item()]
        if devices == 1:  # replicas' predictions stay theirs
            classes = torch.cat([c.cpu() for c in trainer.predict(again, loader)])
            assert abs((classes == data.tensors[1]).float().mean().item() - values[1]) < 1e-6
    name = "cpu"
    if platform == "tpu":
        import torch_xla.runtime

        name = torch_xla.runtime.device_type().lower()
    losses = [metrics[key].item() for key in sorted(metrics) if key.startswith("loss")]
    report(platform=name, devices=trainer.num_devices, losses=losses, values=values)


if __name__ == "__main__":
    main()
