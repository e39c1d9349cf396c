#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A detector: finds the pieces of clothing in a scene, their boxes and kinds, in PyTorch.

Scenes are one to three images of Fashion-MNIST on a dark wall of 64 x 64 with noise. For each cell of 4 x 4 pixels the
network says how likely it is the centre of each kind, and the size of the box around it. Runs on a TPU through
PyTorch/XLA, or on the CPU: train.py --device tpu|cpu
"""

import argparse
import gzip
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

DATA = "/usr/share/datasets/fashion-mnist"
SIZE, CELL, KINDS, MOST = 64, 4, 10, 3
GRID = SIZE // CELL


def fashion(split, folder=DATA):
    arrays = []
    for name, header in ((f"{split}-images-idx3-ubyte", 16), (f"{split}-labels-idx1-ubyte", 8)):
        path = os.path.join(folder, name)
        with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
            arrays.append(np.frombuffer(file.read(), np.uint8)[header:])
    return arrays[0].reshape(-1, 28, 28), arrays[1]


def scene(images, labels, random):
    """A picture, and (kind, top, left, bottom, right) of what is in it."""
    picture, found = random.normal(0.1, 0.05, (SIZE, SIZE)), []
    for _ in range(random.integers(1, MOST + 1)):
        i = random.integers(len(images))
        rows, columns = np.flatnonzero((images[i] > 40).any(1)), np.flatnonzero((images[i] > 40).any(0))
        piece = images[i][rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] / 255
        top, left = random.integers(0, SIZE - piece.shape[0] + 1), random.integers(0, SIZE - piece.shape[1] + 1)
        box = (top, left, top + piece.shape[0], left + piece.shape[1])
        if all(overlap(box, other[1:]) < 0.05 for other in found):
            picture[box[0] : box[2], box[1] : box[3]] += piece
            found.append((labels[i], *box))
    return picture.astype(np.float32), found


def overlap(a, b):
    """Common area by area together."""
    common = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def batch_of(images, labels, random, count):
    """Pictures, heat [KINDS], and size and place within the cell [4] with a mask, by cell."""
    pictures = np.zeros((count, 1, SIZE, SIZE), np.float32)
    heat, box, mask = (np.zeros((count, channels, GRID, GRID), np.float32) for channels in (KINDS, 4, 1))
    truth = []
    for n in range(count):
        pictures[n, 0], found = scene(images, labels, random)
        truth.append(found)
        for kind, top, left, bottom, right in found:
            y, x = (top + bottom) / 2 / CELL, (left + right) / 2 / CELL
            row, column = int(y), int(x)
            near = np.exp(-((np.arange(GRID)[:, None] - row) ** 2 + (np.arange(GRID) - column) ** 2) / 2)
            heat[n, kind] = np.maximum(heat[n, kind], near)
            box[n, :, row, column] = (bottom - top) / SIZE, (right - left) / SIZE, y - row, x - column
            mask[n, 0, row, column] = 1
    return pictures, heat, box, mask, truth


class Detector(nn.Module):
    def __init__(self, width=32):
        super().__init__()

        def block(inputs, outputs, stride=1):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())

        self.body = nn.Sequential(block(1, width, 2), block(width, 2 * width, 2), block(2 * width, 2 * width),
                                  block(2 * width, 4 * width, 2), block(4 * width, 4 * width))  # fmt: skip
        self.fine, self.coarse = block(2 * width, 2 * width), block(4 * width, 2 * width)
        self.head = nn.Sequential(block(2 * width, 2 * width), nn.Conv2d(2 * width, KINDS + 4, 1))
        nn.init.constant_(self.head[1].bias[:KINDS], -3)

    def forward(self, x):
        x = middle = self.body[:3](x)
        x = self.coarse(self.body[3:](x))
        return self.head(functional.interpolate(x, scale_factor=2) + self.fine(middle))


def loss_of(out, heat, box, mask):
    """CenterNet's: focal for the centres, absolute for the boxes."""
    chance = torch.sigmoid(out[:, :KINDS]).clamp(1e-4, 1 - 1e-4)
    centre = (heat == 1).float()
    yes = torch.log(chance) * (1 - chance) ** 2 * centre
    no = torch.log(1 - chance) * chance**2 * (1 - heat) ** 4 * (1 - centre)
    return (-(yes + no).sum() + 5 * ((out[:, KINDS:] - box).abs() * mask).sum()) / mask.sum()


def boxes(out, threshold=0.3):
    """(kind, box) of each cell that is more likely a centre than its neighbours."""
    chance = torch.sigmoid(out[:KINDS])
    best = (chance == functional.max_pool2d(chance, 3, 1, 1)) & (chance > threshold)
    found = []
    for kind, row, column in best.nonzero().tolist():
        height, width, y, x = out[KINDS:, row, column].tolist()
        y, x, height, width = (row + y) * CELL, (column + x) * CELL, height * SIZE, width * SIZE
        found.append((kind, y - height / 2, x - width / 2, y + height / 2, x + width / 2))
    return found


def score(found, truth):
    """Harmonic mean of precision and recall: found is what has the kind and at least half of the box in common."""
    hits = sum(any(a[0] == b[0] and overlap(a[1:], b[1:]) >= 0.5 for a in got) for got, want in zip(found, truth, strict=True) for b in want)
    return 2 * hits / (sum(map(len, found)) + sum(map(len, truth)))


def train(device, step_done, steps=250, batch=32, seed=0, quiet=False):
    """Trains; returns the losses and the score in 64 scenes of other clothes."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    images, labels = fashion("train")
    model = Detector().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps)
    losses, start = [], time.perf_counter()
    for i in range(steps):
        *arrays, _ = batch_of(images, labels, random, batch)
        pictures, heat, box, mask = (torch.from_numpy(array).to(device) for array in arrays)
        optimizer.zero_grad()
        loss = loss_of(model(pictures), heat, box, mask)
        loss.backward()
        optimizer.step()
        schedule.step()
        step_done()
        if i % 10 == 0:
            losses.append(loss.item())
            if not quiet and i % 50 == 0:
                print(f"step {i}: loss {losses[-1]:.3f}, {time.perf_counter() - start:.1f} s")
    model.eval()
    pictures, _, _, _, truth = batch_of(*fashion("t10k"), np.random.default_rng(seed + 1), 64)
    with torch.no_grad():
        out = model(torch.from_numpy(pictures).to(device)).cpu()
    return losses, score([boxes(one) for one in out], truth)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("tpu", "cpu"), default="tpu")
    parser.add_argument("--steps", type=int, default=250)
    options = parser.parse_args()
    device, step_done = torch.device("cpu"), lambda: None
    if options.device == "tpu":
        import torch_xla

        device, step_done = torch_xla.device(), torch_xla.sync
    losses, found = train(device, step_done, options.steps)
    print(f"{device.type}: loss {losses[0]:.3f} to {losses[-1]:.3f}, score {100 * found:.1f} %")


if __name__ == "__main__":
    main()
