#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small BERT: learns to fill in masked words of the sayings that Debian's package fortunes has, then is fine-tuned to tell
which of five of its collections a saying is from.

The model is transformers' BERT made from a configuration, the words are pieces that tokenizers learns from the sayings.
Runs on a TPU through PyTorch/XLA, or on the CPU: train.py --device tpu|cpu
"""

import argparse
import os
import time

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

DATA = "/usr/share/games/fortunes"
KINDS = ("computers", "definitions", "men-women", "songs-poems", "zippy")
LENGTH, PIECES, HELD = 48, 4000, 500
PAD, MASK, NOT_ASKED = 0, 4, -100  # the third is PyTorch's, for positions without a loss


def sayings(folder=DATA):
    """(text, name of its collection), in the order of the files."""
    found = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if "." in name or not os.path.isfile(path):
            continue  # the indexes
        with open(path, encoding="utf-8") as file:
            found += [(text, name) for text in map(str.strip, file.read().split("\n%\n")) if text]
    return found


def read(seed):
    """Pieces of words [sayings, LENGTH], kinds [sayings] (-1: of another collection), how many pieces there are."""
    pairs = sayings()
    np.random.default_rng(seed).shuffle(pairs)
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator([text for text, _ in pairs], PIECES, show_progress=False)
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    pieces = np.array([one.ids for one in tokenizer.encode_batch([text for text, _ in pairs])])
    return pieces, np.array([KINDS.index(name) if name in KINDS else -1 for _, name in pairs]), tokenizer.get_vocab_size()


def masked(pieces, random):
    """BERT's task: 15 % of the pieces are asked for, of these 80 % are hidden and 10 % are others."""
    asked = (random.random(pieces.shape) < 0.15) & (pieces > MASK)
    how = random.random(pieces.shape)
    shown = np.where(asked & (how < 0.8), MASK, pieces)
    shown = np.where(asked & (how >= 0.9), random.integers(MASK + 1, PIECES, pieces.shape), shown)
    return shown, np.where(asked, pieces, NOT_ASKED)


class Trainer:
    def __init__(self, device, step_done, quiet):
        self.device, self.step_done, self.quiet = device, step_done, quiet

    def put(self, array):
        return torch.from_numpy(array).to(self.device)

    def logits(self, model, pieces):
        pieces = self.put(pieces)
        return model(input_ids=pieces, attention_mask=(pieces != PAD).long()).logits

    def train(self, name, model, batches, rate):
        """Trains on (pieces, wanted) for each of the batches; returns every tenth loss."""
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, len(batches), pct_start=0.1)
        losses, start = [], time.perf_counter()
        for i, (pieces, wanted) in enumerate(batches):
            optimizer.zero_grad()
            loss = functional.cross_entropy(self.logits(model, pieces).flatten(0, -2), self.put(wanted).flatten(), ignore_index=NOT_ASKED)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            self.step_done()
            if i % 10 == 0:
                losses.append(loss.item())
                if not self.quiet and i % 50 == 0:
                    print(f"{name}, step {i}: loss {losses[-1]:.3f}, {time.perf_counter() - start:.1f} s")
        return losses


def train(device, step_done, steps=300, batch=32, width=128, layers=2, seed=0, quiet=False):
    """Trains twice; returns the losses of both and the share of HELD sayings whose kind is found."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    pieces, kinds, count = read(seed)
    labelled = np.flatnonzero(kinds >= 0)
    held, seen = labelled[:HELD], labelled[HELD:]
    all_seen = np.setdiff1d(np.arange(len(pieces)), held)
    config = BertConfig(vocab_size=count, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=4 * width,
                        max_position_embeddings=LENGTH, num_labels=len(KINDS))  # fmt: skip
    trainer, filler = Trainer(device, step_done, quiet), BertForMaskedLM(config).to(device)
    losses = trainer.train("fill in", filler, [masked(pieces[random.choice(all_seen, batch)], random) for _ in range(steps)], 1e-3)
    model = BertForSequenceClassification(config).to(device)
    model.bert.load_state_dict(filler.bert.state_dict(), strict=False)  # all but the pooler, which filling in has no use for
    some = [random.choice(seen, batch) for _ in range(steps)]
    losses += trainer.train("classify", model, [(pieces[rows], kinds[rows]) for rows in some], 3e-4)
    model.eval()
    with torch.no_grad():
        got = [trainer.logits(model, pieces[rows]).argmax(-1).cpu().numpy() for rows in np.split(held, 5)]
    return losses, float((np.concatenate(got) == kinds[held]).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("tpu", "cpu"), default="tpu")
    parser.add_argument("--steps", type=int, default=300, help="of each of the two trainings")
    options = parser.parse_args()
    device, step_done = torch.device("cpu"), lambda: None
    if options.device == "tpu":
        import torch_xla

        device, step_done = torch_xla.device(), torch_xla.sync
    losses, right = train(device, step_done, options.steps)
    print(f"{device.type}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {100 * right:.1f} % of the sayings in their collection")


if __name__ == "__main__":
    main()
