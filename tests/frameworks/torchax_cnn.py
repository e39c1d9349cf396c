# SPDX-License-Identifier: Apache-2.0
"""A PyTorch CNN trained through JAX by torchax: the batch cut over all devices, the optimizer Optax'.

torchax_cnn.py cpu|tpu     cpu: PyTorch itself
"""

import sys

import torch
from digits import BATCH, images, network
from report import report
from torch import nn

RATE, MOMENTUM, STEPS = 0.05, 0.9, 16


def batches():
    x, y = images()
    for step in range(STEPS):
        rows = slice(step % 8 * BATCH, (step % 8 + 1) * BATCH)
        yield x[rows], y[rows]


def on_cpu():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(platform="cpu", devices=1, losses=losses, values=[])


def on_tpu():
    import jax
    import optax
    import torchax
    import torchax.interop
    import torchax.train

    model, data = network(), list(batches())
    torchax.enable_globally()
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    cut, whole = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("data",), ()))

    def place(values, sharding):
        return values.to("jax").apply_jax(jax.device_put, sharding)

    weights = {name: place(value.detach(), whole) for name, value in model.named_parameters()}
    buffers = {name: place(value, whole) for name, value in model.named_buffers()}
    step = torchax.train.make_train_step(
        lambda weights, buffers, args: torch.func.functional_call(model, {**weights, **buffers}, args),
        nn.functional.cross_entropy, optax.sgd(RATE, MOMENTUM))
    state = torchax.interop.call_jax(optax.sgd(RATE, MOMENTUM).init, weights)
    losses, used = [], set()
    for x, y in data:
        x = place(x, cut)
        used |= {shard.device for shard in torchax.interop.jax_view(x).addressable_shards}
        loss, weights, state = step(weights, buffers, state, (x,), place(y, cut))
        losses.append(loss.item())
    report(platform=jax.default_backend(), devices=len(used), losses=losses, values=[])


on_tpu() if sys.argv[1] == "tpu" else on_cpu()
