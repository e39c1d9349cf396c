#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translation with attention: recurrent encoder and decoder, in Keras 3, on pairs of sentences from a system's programs.

The pairs are the messages of the programs of a Debian system and what their translators made of them (the catalogues
in /usr/share/locale). Data-parallel over all devices.
"""

import argparse
import gettext
import glob
import os
import re
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

LENGTH, VOCABULARY = 10, 3000  # words
PARTS = 4  # of the training, each with its loss
PAD, BEGIN, END, OTHER = range(4)


def pairs(language, folder="/usr/share/locale"):
    """English messages of a few words and their translations, each once, in an order that only depends on them."""
    found = {}
    for path in sorted(glob.glob(f"{folder}/{language}/LC_MESSAGES/*.mo")):
        try:
            with open(path, "rb") as file:
                catalogue = gettext.GNUTranslations(file)._catalog
        except (OSError, UnicodeDecodeError, ValueError, IndexError):  # not what a catalogue looks like
            continue
        for english, other in catalogue.items():
            if isinstance(english, str) and isinstance(other, str) and english != other:
                a, b = words(english), words(other)
                if 1 < len(a) < LENGTH and 1 < len(b) < LENGTH:
                    found[" ".join(a)] = b
    return [(english.split(), found[english]) for english in sorted(found)]


def words(text):
    return re.findall(r"%\S|[^\W\d_]+|\d+|[^\w\s]", text.lower())


def vocabulary(sentences):
    counts = {}
    for sentence in sentences:
        for word in sentence:
            counts[word] = counts.get(word, 0) + 1
    kept = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 4]
    return {word: i for i, word in enumerate(kept, 4)}


def numbers(sentence, known):
    row = [BEGIN, *(known.get(word, OTHER) for word in sentence), END]
    return row + [PAD] * (LENGTH + 2 - len(row))


def network(width):
    layers = keras.layers
    source, target = keras.Input((LENGTH + 2,), dtype="int32"), keras.Input((LENGTH + 1,), dtype="int32")
    read = layers.Embedding(VOCABULARY, width)(source)
    read = layers.Bidirectional(layers.GRU(width // 2, return_sequences=True))(read)
    written = layers.Embedding(VOCABULARY, width)(target)
    written = layers.GRU(width, return_sequences=True)(written)
    seen = layers.MultiHeadAttention(4, width // 4)(written, read, attention_mask=keras.ops.expand_dims(source != PAD, 1))
    y = layers.Dense(width, activation="gelu")(layers.Concatenate()([written, seen]))
    return keras.Model([source, target], layers.Dense(VOCABULARY, dtype="float32")(layers.Dropout(0.2)(y)))


def loss(wanted, logits):
    each = keras.losses.sparse_categorical_crossentropy(wanted, logits, from_logits=True)
    real = keras.ops.cast(wanted != PAD, "float32")
    return keras.ops.sum(each * real) / keras.ops.sum(real)


def translate(model, source):
    """Word by word, always the likeliest."""
    target = np.full((len(source), LENGTH + 1), PAD, np.int32)
    target[:, 0] = BEGIN
    for i in range(LENGTH):
        best = np.argmax(model.predict_on_batch([source, target])[:, i], -1)
        target[:, i + 1] = np.where((target[:, i] == END) | (target[:, i] == PAD) & (i > 0), PAD, best)
    return target[:, 1:]


def right_words(wanted, got):
    """The share of the wanted words that a translation has, as BLEU counts single words, over all sentences."""
    right = total = 0
    for a, b in zip(wanted, got, strict=True):
        a, b = ([w for w in row if w > OTHER] for row in (a, b))
        right += sum(min(a.count(word), b.count(word)) for word in set(a))
        total += max(len(a), len(b))
    return right / total


def train(language="de", steps=2400, batch=64, width=128, seed=0, quiet=False):
    """Trains; returns the losses of its parts and the share of right words in 128 sentences that it has not seen."""
    keras.utils.set_random_seed(seed)
    if keras.backend.backend() == "jax":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    all_pairs = pairs(language)
    np.random.default_rng(seed).shuffle(all_pairs)
    held, seen = all_pairs[:128], all_pairs[128:]
    english, other = vocabulary(a for a, _ in seen), vocabulary(b for _, b in seen)

    def arrays(some):
        a = np.array([numbers(x, english) for x, _ in some], np.int32)
        b = np.array([numbers(y, other) for _, y in some], np.int32)
        return a, b

    source, target = arrays(seen)
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(len(seen)), (steps * batch // len(seen) + 1, 1)), axis=1)
    model = network(width)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    start, losses = time.perf_counter(), []
    for some in np.split(order.ravel()[: steps // PARTS * PARTS * batch], PARTS):
        fit = model.fit([source[some], target[some, :-1]], target[some, 1:], batch_size=batch, shuffle=False, verbose=0)
        losses.append(fit.history["loss"][0])
        if not quiet:
            print(f"{len(losses) * len(some)} of {len(seen)} pairs: loss {losses[-1]:.3f}, {time.perf_counter() - start:.1f} s")
    source, target = arrays(held)
    got = translate(model, source)
    if not quiet:
        spell = {i: word for word, i in other.items()}
        for (english, wanted), row in list(zip(held, got, strict=True))[:5]:
            print(" ".join(english), "->", " ".join(spell.get(i, "?") for i in row if i > END), "/", " ".join(wanted))
    return losses, right_words(target, got)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", default="de", help="as in /usr/share/locale")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args(arguments)
    losses, right = train(options.language, options.steps, options.batch)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, {100 * right:.1f} % of the words right")


if __name__ == "__main__":
    main()
