# SPDX-License-Identifier: Apache-2.0
"""The programs of peers.py, each written once over `o`, which has the operations: JAX's (peer_jax.py) or PyTorch's
(peer_torch.py). Weights are random."""

import collections
import zlib

import numpy as np

LENGTH = 512  # of the cache of keys and values in decode


class Weights(dict):
    """Arrays by name; one that is not there yet is drawn, the same in every process."""

    def draw(self, name, shape, scale, start=0.0):
        if name not in self:
            random = np.random.default_rng(zlib.crc32(name.encode()))
            self[name] = (start + scale * random.standard_normal(shape)).astype(np.float32)
        return self[name]


def mlp(o, images):
    x = o.relu(o.dense(images, "in", 512))
    return o.dense(o.relu(o.dense(x, "middle", 512)), "out", 10)


def cnn(o, images):
    x = o.max_pool(o.relu(o.conv(images, "1", 32, 3)))
    x = o.max_pool(o.relu(o.conv(x, "2", 64, 3)))
    return o.dense(o.relu(o.dense(o.flat(x), "3", 256)), "4", 10)


def resnet50(o, images):
    """Version 1.5: strides in the 3x3 convolutions."""

    def bottleneck(x, name, features, stride, shortcut):
        y = o.relu(o.batch_norm(o.conv(x, f"{name}.1", features, 1), f"{name}.1"))
        y = o.relu(o.batch_norm(o.conv(y, f"{name}.2", features, 3, stride), f"{name}.2"))
        y = o.batch_norm(o.conv(y, f"{name}.3", 4 * features, 1), f"{name}.3", 0.25)
        if shortcut:
            x = o.batch_norm(o.conv(x, f"{name}.0", 4 * features, 1, stride), f"{name}.0")
        return o.relu(x + y)

    x = o.max_pool(o.relu(o.batch_norm(o.conv(images, "stem", 64, 7, 2), "stem")), 3)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            x = bottleneck(x, f"{stage}.{i}", 64 << stage, 2 if stage and not i else 1, not i)
    return o.dense(o.mean_pixels(x), "head", 1000)


def attention(o, x, name, heads, causal):
    q, k, v = o.heads(o.dense(x, f"{name}.qkv", 3 * x.shape[-1]), heads)
    return o.dense(o.join(o.attend(q, k, v, causal)), f"{name}.joined", x.shape[-1])


def feed_forward(o, x, name, tanh):
    width = x.shape[-1]
    return o.dense(o.gelu(o.dense(x, f"{name}.up", 4 * width), tanh), f"{name}.down", width)


def bert(o, tokens):
    """BERT-base: norms after the sums."""
    x = o.embed(tokens, "tokens", 30522, 768) + o.weight("positions", (512, 768), 0.02)[: tokens.shape[1]]
    x = o.layer_norm(x, "norm")
    for i in range(12):
        x = o.layer_norm(x + attention(o, x, f"{i}", 12, False), f"{i}.norm1")
        x = o.layer_norm(x + feed_forward(o, x, f"{i}", False), f"{i}.norm2")
    return x


def bert_classes(o, tokens):
    return o.dense(bert(o, tokens)[:, 0], "classes", 2)


def gpt(o, x, layers, heads, attend=attention, remat=False):
    """The blocks of GPT-2: norms before the products."""
    for i in range(layers):

        def block(x, i=i):
            x = x + attend(o, o.layer_norm(x, f"{i}.norm1"), f"{i}", heads, True)
            return x + feed_forward(o, o.layer_norm(x, f"{i}.norm2"), f"{i}", True)

        x = o.remat(block, x) if remat else block(x)
    return o.layer_norm(x, "norm")


def transformer(o, tokens, remat=False):
    x = o.embed(tokens, "tokens", 8192, 256) + o.weight("positions", (128, 256), 0.02)
    return o.unembed(gpt(o, x, 4, 8, remat=remat), "tokens")


def transformer_remat(o, tokens):
    """The activations of a block are computed again in its backward pass."""
    return transformer(o, tokens, True)


def lstm(o, tokens):
    x = o.embed(tokens, "tokens", 8192, 512)
    return o.unembed(o.lstm(o.lstm(x, "1", 512), "2", 512), "tokens")


def gru(o, tokens):
    x = o.embed(tokens, "tokens", 8192, 512)
    return o.unembed(o.gru(o.gru(x, "1", 512), "2", 512), "tokens")


def gpt2(o, tokens):
    """The next token's logits, and each layer's keys and values."""
    kept = []

    def attend(o, x, name, heads, causal):
        q, k, v = o.heads(o.dense(x, f"{name}.qkv", 3 * 768), heads)
        kept.extend((k, v))
        return o.dense(o.join(o.attend(q, k, v, causal)), f"{name}.joined", 768)

    x = o.embed(tokens, "tokens", 50257, 768) + o.weight("positions", (1024, 768), 0.02)[: tokens.shape[1]]
    return (o.unembed(gpt(o, x, 12, 12, attend)[:, -1], "tokens"), *kept)


def gpt2_decode(o, tokens, *caches):
    """One more token after LENGTH - 1; `o` decides how it goes into the caches, and what is returned of them."""
    kept = []

    def attend(o, x, name, heads, causal):
        q, k, v = o.heads(o.dense(x, f"{name}.qkv", 3 * 768), heads)
        y, *new = o.attend_cache(q, k, v, *caches[len(kept) : len(kept) + 2])
        kept.extend(new)
        return o.dense(o.join(y), f"{name}.joined", 768)

    x = o.embed(tokens, "tokens", 50257, 768) + o.weight("positions", (1024, 768), 0.02)[LENGTH - 1]
    return (o.unembed(gpt(o, x, 12, 12, attend)[:, -1], "tokens"), *kept)


def pixels(*shape):
    return lambda random: (random.standard_normal(shape, np.float32),)


def classes(*shape, of=10):
    """Images and their labels."""
    return lambda random: (random.standard_normal(shape, np.float32), random.integers(0, of, shape[0], dtype=np.int32))


def tokens(*shape, of):
    return lambda random: (random.integers(0, of, shape, dtype=np.int32),)


def labelled_tokens(*shape, of):
    return lambda random: (random.integers(0, of, shape, dtype=np.int32), random.integers(0, 2, shape[0], dtype=np.int32))


def next_tokens(*shape, of):
    return lambda random: tuple(random.integers(0, of, (2, *shape), dtype=np.int32))


def cached(batch):
    """A token, and for each layer the keys and values of those before it, with room for one more."""

    def make(random):
        caches = [random.standard_normal((batch, LENGTH, 12, 64), np.float32) for _ in range(24)]
        for cache in caches:
            cache[:, -1] = 0
        return (random.integers(0, 50257, (batch, 1), dtype=np.int32), *caches)

    return make


Program = collections.namedtuple("Program", "model make trains")
PROGRAMS = {
    "train mlp": Program(mlp, classes(1024, 784), True),
    "train cnn": Program(cnn, classes(256, 28, 28, 1), True),
    "train resnet50": Program(resnet50, classes(8, 224, 224, 3, of=1000), True),
    "train transformer": Program(transformer, next_tokens(16, 128, of=8192), True),
    "train transformer remat": Program(transformer_remat, next_tokens(16, 128, of=8192), True),
    "train bert": Program(bert_classes, labelled_tokens(8, 128, of=30522), True),
    "train lstm": Program(lstm, next_tokens(32, 64, of=8192), True),
    "train gru": Program(gru, next_tokens(32, 64, of=8192), True),
    "resnet50 b1": Program(resnet50, pixels(1, 224, 224, 3), False),
    "resnet50 b32": Program(resnet50, pixels(32, 224, 224, 3), False),
    "bert b1 s128": Program(bert, tokens(1, 128, of=30522), False),
    "bert b8 s512": Program(bert, tokens(8, 512, of=30522), False),
    "gpt2 prefill 512": Program(gpt2, tokens(1, 512, of=50257), False),
    "gpt2 decode b1": Program(gpt2_decode, cached(1), False),
    "gpt2 decode b8": Program(gpt2_decode, cached(8), False),
}
