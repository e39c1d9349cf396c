# SPDX-License-Identifier: Apache-2.0
"""The PyTorch programs of frameworks.py, on one side: on the plugin through PyTorch/XLA, or on PyTorch's CPU."""

import contextlib
import os

import torch
from torch import nn
from torch.nn import functional as F

import serve

CLASSES, WORDS = 10, 4000


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(vocab_size=WORDS, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
                            max_position_embeddings=128, num_labels=CLASSES, hidden_dropout_prob=0.0,
                            attention_probs_dropout_prob=0.0)  # fmt: skip
        self.model = BertForSequenceClassification(config)

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


class Translator(nn.Module):
    """Reads and writes with a GRU each; each word looks at all that were read."""

    def __init__(self, width=256):
        super().__init__()
        self.read, self.said = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.join, self.out = nn.Linear(2 * width, width), nn.Linear(width, WORDS)

    def forward(self, source, target):
        heard, state = self.encoder(self.read(source))
        words, _ = self.decoder(self.said(target), state)
        looked = (words @ heard.transpose(1, 2)).softmax(-1) @ heard
        return self.out(torch.tanh(self.join(torch.cat((words, looked), -1))))


def cnn():
    def stage(before, after):
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*stage(1, 32), *stage(32, 64), *stage(64, 128), nn.Flatten(), nn.Linear(1152, CLASSES))


def resnet50():
    from torchvision.models import resnet50 as model

    return model(num_classes=CLASSES)


def classes(*shape, of):
    return torch.randint(of, shape)


# What makes the model, its inputs, and the classes that it learns.
PROGRAMS = {
    "cnn": (cnn, lambda: [torch.randn(128, 1, 28, 28)], lambda: classes(128, of=CLASSES)),
    "resnet50": (resnet50, lambda: [torch.randn(8, 3, 224, 224)], lambda: classes(8, of=CLASSES)),
    "bert": (Bert, lambda: [classes(16, 128, of=WORDS)], lambda: classes(16, of=CLASSES)),
    "translation": (Translator, lambda: [classes(64, 24, of=WORDS) for _ in range(2)], lambda: classes(64, 24, of=WORDS)),
}

RATES = {"resnet50": 1e-5}  # at larger ones its first losses depend on last bits


class Worker:
    def load(self, name, side, folder):
        """The seconds of the first step and the losses of the first three. `folder` is Keras'."""
        torch.manual_seed(0)
        device, sync = torch.device("cpu"), lambda: None
        if side.startswith("vtpu"):
            import torch_xla  # before the model, as in a user's program: it replaces nn.GRU

            device, sync = torch_xla.device(), torch_xla.sync
        make, inputs, wanted = PROGRAMS[name]
        model, inputs, wanted = make(), inputs(), wanted()
        model, inputs, wanted = model.to(device), [x.to(device) for x in inputs], wanted.to(device)
        forward = torch.compile(model) if "compiled" in side else model
        cast = (lambda: torch.autocast("cpu", torch.bfloat16)) if "bf16" in side else contextlib.nullcontext
        optimizer = torch.optim.SGD(model.parameters(), lr=RATES.get(name, 0.001), momentum=0.9)

        def call():
            optimizer.zero_grad(set_to_none=True)
            with cast():
                logits = forward(*inputs)
            loss = F.cross_entropy(logits.float().flatten(0, -2), wanted.flatten())
            loss.backward()
            optimizer.step()
            sync()
            return loss

        self.call = call
        first = serve.timed(call, 1, lambda loss: loss.item())[0]
        return {"first": first, "losses": [call().item() for _ in range(3)]}

    def run(self, count):
        """Seconds of a step by the clock, and of the processors."""
        return serve.timed(self.call, count, lambda loss: loss.item())


if __name__ == "__main__":
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    serve.serve(Worker())
