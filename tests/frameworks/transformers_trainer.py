# SPDX-License-Identifier: Apache-2.0
"""A small BERT made from its configuration, trained to classify with the Trainer of Hugging Face's transformers.

transformers_trainer.py cpu|tpu
"""

import sys
import tempfile

import torch
from report import report
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

WORDS, LENGTH = 100, 24


class Sentences(Dataset):
    """Whether a sentence has more words of the first half than of the second."""

    def __init__(self, count):
        random = torch.Generator().manual_seed(0)
        self.words = torch.randint(0, WORDS, (count, LENGTH), generator=random)
        self.labels = ((self.words < WORDS // 2).sum(1) > LENGTH // 2).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "attention_mask": torch.ones(LENGTH, dtype=torch.long), "labels": self.labels[i]}


class Losses(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


def main():
    set_seed(0)
    config = BertConfig(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model, losses, data = BertForSequenceClassification(config), Losses(), Sentences(256)
    with tempfile.TemporaryDirectory() as folder:
        # The default optimizer, fused, is one that PyTorch/XLA 2.9 does not have.
        arguments = TrainingArguments(folder, per_device_train_batch_size=32, per_device_eval_batch_size=32, num_train_epochs=3,
                                      learning_rate=2e-3, optim="adamw_torch", logging_steps=2, report_to=[],
                                      disable_tqdm=True, save_strategy="no",
                                      dataloader_pin_memory=False, use_cpu=sys.argv[1] == "cpu")
        trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=[losses])
        trainer.train()
        loss = trainer.evaluate()["eval_loss"]
    platform = "cpu"
    if trainer.args.device.type == "xla":
        import torch_xla.runtime

        platform = torch_xla.runtime.device_type().lower()
    report(platform=platform, devices=max(1, trainer.args.world_size), losses=[*losses.losses, loss], values=[])


main()
