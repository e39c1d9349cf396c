#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speech to text with CTC: a small convolutional network hears spoken numbers, in Flax (linen) and Optax.

The recordings are the words of Debian's package asterisk-core-sounds-en-wav. Sequences of them are spoken at another
speed each time, with pauses and noise; those of the test are other sequences, speeds and noise of the same speaker.
Data-parallel over all devices.
"""

import argparse
import os
import time
import wave

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SOUNDS = "/usr/share/asterisk/sounds/en_US_f_Allison/digits"
WORDS = "zero one two three four five six seven eight nine".split()
LETTERS = "-" + "".join(sorted(set("".join(WORDS)))) + " "  # the first is CTC's blank
RATE, WINDOW, HOP, BANDS = 8000, 256, 128, 32
SECONDS, LONGEST = 3.0, 24  # of a recording; letters in it


def recordings(folder=SOUNDS):
    """The words as samples between -1 and 1, without the silence around them."""
    sounds = []
    for digit in range(10):
        with wave.open(os.path.join(folder, f"{digit}.wav")) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
        loud = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())
        sounds.append(sound[loud[0] : loud[-1]].astype(np.float32))
    return sounds


def bands():
    """Triangles over the spectrum, as wide as the ear's: matrix [frequencies, BANDS]."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1) / (RATE / 2) * (WINDOW // 2)
    place = np.arange(WINDOW // 2 + 1)[:, None]
    up, down = (place - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - place) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


def features(sound, matrix):
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP] * np.hanning(WINDOW)
    return np.log(1e-4 + np.abs(np.fft.rfft(frames)) @ matrix)


def speak(sounds, random, matrix):
    """A recording of two to four words: its features, and its letters as numbers with 0 for padding."""
    digits = random.integers(0, 10, random.integers(2, 5))
    sound, at = random.normal(size=int(RATE * SECONDS)) * 10 ** random.uniform(-3.5, -2.3), 0
    said = []
    for digit in digits:
        word = sounds[digit]
        speed = random.uniform(0.85, 1.2)
        word = np.interp(np.arange(0, len(word) - 1, speed), np.arange(len(word)), word) * random.uniform(0.5, 1.5)
        at += int(RATE * random.uniform(0.02, 0.15))
        if at + len(word) > len(sound):
            break
        sound[at : at + len(word)] += word
        at += len(word)
        said.append(WORDS[digit])
    letters = [LETTERS.index(letter) for letter in " ".join(said)]
    return features(sound, matrix), letters + [0] * (LONGEST - len(letters))


def batch_of(sounds, random, size, matrix):
    heard, letters = zip(*(speak(sounds, random, matrix) for _ in range(size)), strict=True)
    return np.stack(heard).astype(np.float32), np.array(letters, np.int32)


class Listener(nn.Module):
    width: int = 96

    @nn.compact
    def __call__(self, x):
        x = (x - x.mean((1, 2), keepdims=True)) / x.std((1, 2), keepdims=True)
        x = nn.relu(nn.Conv(self.width, (7,), strides=(2,))(x))
        for dilation in (1, 2, 4, 8):
            y = nn.Conv(self.width, (5,), kernel_dilation=(dilation,))(nn.LayerNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(y))
        return nn.Dense(len(LETTERS))(nn.LayerNorm()(x))


def text_of(logits):
    best = np.argmax(logits, -1)
    return "".join(LETTERS[b] for b, before in zip(best, [0, *best[:-1]], strict=True) if b and b != before)


def distance(a, b):
    """How many letters must be put in, taken out or changed."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return row[-1]


def train(steps=200, batch=16, seed=0, quiet=False):
    """Trains, and returns the losses and the share of wrong letters in 64 new recordings."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    sounds, random, matrix = recordings(), np.random.default_rng(seed), bands()
    model = Listener()
    optimizer = optax.adamw(optax.warmup_cosine_decay_schedule(0, 3e-3, 30, steps))
    heard, letters = batch_of(sounds, random, batch, matrix)
    params = jax.device_put(model.init(jax.random.key(seed), heard), NamedSharding(mesh, PartitionSpec()))
    slots = optimizer.init(params)

    def loss_of(params, heard, letters):
        logits = model.apply(params, heard)
        return jnp.mean(optax.ctc_loss(logits, jnp.zeros(logits.shape[:2]), letters, (letters == 0).astype(jnp.float32)))

    @jax.jit
    def step(params, slots, heard, letters):
        loss, slopes = jax.value_and_grad(loss_of)(params, heard, letters)
        updates, slots = optimizer.update(slopes, slots, params)
        return loss, optax.apply_updates(params, updates), slots

    losses, start = [], time.perf_counter()
    for i in range(steps):
        heard, letters = jax.device_put(batch_of(sounds, random, batch, matrix), split)
        loss, params, slots = step(params, slots, heard, letters)
        losses.append(loss)
        if not quiet and i % 50 == 49:
            print(f"step {i + 1}: loss {float(loss):.3f}, {time.perf_counter() - start:.1f} s")
    heard, letters = batch_of(sounds, np.random.default_rng(seed + 1000), 64, matrix)
    logits = np.asarray(jax.jit(model.apply)(params, heard))
    wrong = total = 0
    for one, said in zip(logits, letters, strict=True):
        want = "".join(LETTERS[i] for i in said if i)
        wrong, total = wrong + distance(text_of(one), want), total + len(want)
    if not quiet:
        print(f"said:  {want}\nheard: {text_of(one)}")
    return [float(loss) for loss in losses], wrong / total


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args(arguments)
    losses, wrong = train(options.steps, options.batch)
    print(f"{jax.default_backend()}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {100 * wrong:.1f} % of the letters wrong")


if __name__ == "__main__":
    main()
