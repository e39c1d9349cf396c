#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small BigGAN: handwritten digits by class, in PyTorch; batches are accumulated, as large ones do not fit a chip.

What is BigGAN's: class embeddings that scale the generator's batch norms, a projection onto the class in the
discriminator, spectral norm in both, the hinge loss, orthogonal weights, self-attention, a moving average of the
generator. Digits are scikit-learn's, of 8 x 8 pixels. train.py --device tpu|cpu
"""

import argparse
import copy
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

NOISE, KINDS = 24, 10


class ByKind(nn.Module):
    """Batch norm with the scale and shift of a class and of a part of the noise."""

    def __init__(self, channels, condition):
        super().__init__()
        self.norm, self.gain = nn.BatchNorm2d(channels, affine=False), nn.Linear(condition, 2 * channels)
        nn.init.zeros_(self.gain.bias)

    def forward(self, x, condition):
        scale, shift = self.gain(condition)[:, :, None, None].chunk(2, 1)
        return self.norm(x) * (1 + scale) + shift


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.parts = spectral_norm(nn.Conv2d(channels, 3 * channels, 1, bias=False))
        self.share = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        query, key, value = self.parts(x).flatten(2).chunk(3, 1)
        weights = torch.softmax(query.transpose(1, 2) @ key / query.shape[1] ** 0.5, -1)
        return x + self.share * (value @ weights.transpose(1, 2)).view_as(x)


class Generator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, 16)
        self.first = spectral_norm(nn.Linear(NOISE + 16, width * 4))
        self.norms = nn.ModuleList([ByKind(width, NOISE + 16) for _ in range(3)])
        self.convs = nn.ModuleList([spectral_norm(nn.Conv2d(width, width, 3, padding=1)) for _ in range(2)])
        self.attention, self.last = Attention(width), spectral_norm(nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, noise, kinds):
        condition = torch.cat([noise, self.kinds(kinds)], 1)
        x = self.first(condition).view(len(noise), -1, 2, 2)
        for norm, conv in zip(self.norms, self.convs, strict=False):
            x = functional.interpolate(functional.relu(norm(x, condition)), scale_factor=2)
            x = conv(x)
        return torch.tanh(self.last(functional.relu(self.norms[2](self.attention(x), condition))))


class Discriminator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.convs = nn.ModuleList([spectral_norm(nn.Conv2d(i, width, 3, stride, 1)) for i, stride in ((1, 1), (width, 2), (width, 2))])
        self.kinds, self.last = spectral_norm(nn.Embedding(KINDS, width)), spectral_norm(nn.Linear(width, 1))

    def forward(self, x, kinds):
        for conv in self.convs:
            x = functional.leaky_relu(conv(x), 0.2)
        x = x.sum((2, 3))
        return self.last(x)[:, 0] + (self.kinds(kinds) * x).sum(1)


class Game:
    def __init__(self, device, seed):
        torch.manual_seed(seed)
        generator, self.critic = Generator(), Discriminator().to(device)
        for model in (generator, self.critic):
            for weight in model.parameters():
                if weight.dim() > 1:
                    nn.init.orthogonal_(weight)
        self.generator, self.average = generator.to(device), copy.deepcopy(generator).to(device)
        self.by_generator = torch.optim.Adam(self.generator.parameters(), 1e-3, (0.0, 0.99))
        self.by_critic = torch.optim.Adam(self.critic.parameters(), 2e-3, (0.0, 0.99))
        self.device = device

    def noise(self, count):
        return torch.randn(count, NOISE).to(self.device), torch.randint(0, KINDS, (count,)).to(self.device)

    def critic_step(self, parts):
        self.by_critic.zero_grad()
        for images, labels in parts:  # gradients add up
            noise, kinds = self.noise(len(images))
            with torch.no_grad():
                made = self.generator(noise, kinds)
            real, false = self.critic(torch.cat([images, made]), torch.cat([labels, kinds])).chunk(2)
            loss = (functional.relu(1 - real).mean() + functional.relu(1 + false).mean()) / len(parts)
            loss.backward()
        self.by_critic.step()
        return loss * len(parts)

    def generator_step(self, parts, count):
        self.by_generator.zero_grad()
        for _ in range(parts):
            noise, kinds = self.noise(count)
            (-self.critic(self.generator(noise, kinds), kinds).mean() / parts).backward()
        self.by_generator.step()
        with torch.no_grad():
            for mean, now in zip(self.average.state_dict().values(), self.generator.state_dict().values(), strict=True):
                mean.copy_(mean.lerp(now, 0.02) if mean.is_floating_point() else now)


def train(device, step_done, steps=250, batch=32, parts=2, seed=0, quiet=False):
    """Trains; returns the critic's losses, and how many of 500 made digits a reader of real ones takes for their class."""
    images, labels = load_digits(return_X_y=True)
    reader = LogisticRegression(max_iter=2000).fit(images / 8 - 1, labels)
    images = torch.from_numpy((images / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8))
    labels, random = torch.from_numpy(labels), np.random.default_rng(seed)
    game, losses, start = Game(device, seed), [], time.perf_counter()
    for i in range(steps):
        rows = random.integers(0, len(images), (parts, batch))
        loss = game.critic_step([(images[some].to(device), labels[some].to(device)) for some in rows])
        game.generator_step(parts, batch)
        step_done()
        if i % 25 == 0:
            losses.append(loss.item())
            if not quiet and i % 100 == 0:
                print(f"step {i}: critic {losses[-1]:.3f}, {time.perf_counter() - start:.1f} s")
    kinds = torch.arange(500) % KINDS
    with torch.no_grad():
        made = game.average(torch.randn(500, NOISE).to(device), kinds.to(device)).cpu()
    if not quiet:
        for row in made[:KINDS].reshape(2, 5, 8, 8).permute(0, 2, 1, 3).reshape(16, 40)[:, :]:
            print("".join(" .:*#"[int(min(4, max(0, (v + 1) * 2.5)))] for v in row.tolist()))
    return losses, float((reader.predict(made.flatten(1).numpy()) == kinds.numpy()).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("tpu", "cpu"), default="tpu")
    parser.add_argument("--steps", type=int, default=250)
    options = parser.parse_args()
    device, step_done = torch.device("cpu"), lambda: None
    if options.device == "tpu":
        import torch_xla

        device, step_done = torch_xla.device(), torch_xla.sync
    losses, read = train(device, step_done, options.steps)
    print(f"{device.type}: critic {losses[0]:.3f} to {losses[-1]:.3f}, {100 * read:.1f} % of the digits read as their class")


if __name__ == "__main__":
    main()
