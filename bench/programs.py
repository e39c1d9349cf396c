# SPDX-License-Identifier: Apache-2.0
"""The programs of models/ at the sizes the benchmark uses, each with the same interface: init, state, step."""

import dataclasses
import importlib.util
import math
import os
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclasses.dataclass
class Program:
    init: Callable[[], Any]  # eager model.init, parameters only
    make_state: Callable[[], Any]
    make_step: Callable[[], Any]  # a jitted (state, *inputs) -> (state, metrics) that donates the state
    inputs: tuple  # host arrays; the first axis of each is the batch
    make_predict: Callable[[], tuple]  # a jitted (parameters, inputs) -> logits, and small inputs


def model(name):
    path = os.path.join(ROOT, "models", name, "train.py")
    spec = importlib.util.spec_from_file_location(f"models_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mnist():
    m = model("mnist")
    config = m.Config()
    images, labels = m.load("train")
    batch = {"image": images[: config.batch], "label": labels[: config.batch]}
    return Program(
        init=lambda: m.CNN().init(jax.random.key(0), jnp.zeros((1, 28, 28, 1), jnp.uint8)),
        make_state=lambda: m.create_state(config, 1000),
        make_step=m.jit_train_step,
        inputs=(batch,),
        make_predict=lambda: (jax.jit(m.CNN().apply), images[:32]),
    )


def mlp():
    import optax

    m = model("mlp")
    images, labels = m.load("train")
    optimizer = optax.adamw(1e-3)
    made = {}

    def make_state():
        made["graph"], state = m.create_state(m.create(), optimizer)
        return state

    return Program(
        init=m.create,
        make_state=make_state,
        make_step=lambda: m.make_train_step(made["graph"], optimizer),
        inputs=({"image": images[:1000], "label": labels[:1000]},),
        make_predict=lambda: (jax.jit(lambda model, x: model(x)), images[:32]),
    )


def transformer():
    m = model("transformer")
    config = m.Config()
    tokens = m.sample(m.load(), config, 0)
    key = jax.random.key_data(jax.random.key(1))

    def make_step():
        def step(state, tokens):
            return m.train_step(state, tokens, jax.random.wrap_key_data(key))

        return jax.jit(step, donate_argnums=0)

    return Program(
        init=lambda: m.Decoder(config).init(jax.random.key(0), jnp.zeros((1, config.length), jnp.int32)),
        make_state=lambda: m.create_state(config),
        make_step=make_step,
        inputs=(tokens,),
        make_predict=lambda: (jax.jit(m.Decoder(config).apply), tokens[:1, :-1]),
    )


def resnet50():
    m = model("resnet50")
    return Program(
        init=lambda: m.ResNet50().init(jax.random.key(0), jnp.zeros((1, 224, 224, 3)), train=False),
        make_state=m.create_state,
        make_step=lambda: jax.jit(m.train_step, donate_argnums=0),
        inputs=(m.synthetic(8, 224, 1000, 0),),
        make_predict=lambda: (jax.jit(lambda v, x: m.ResNet50().apply(v, x, train=False)),
                              m.synthetic(1, 224, 1000, 0)["image"]),
    )


PROGRAMS = {"mnist": mnist, "mlp": mlp, "transformer": transformer, "resnet50": resnet50}


def place(tree, devices, spec):
    if len(devices) == 1:
        return jax.device_put(tree, devices[0])
    return jax.device_put(tree, NamedSharding(Mesh(np.array(devices), ("data",)), spec))


def place_state(state, devices):
    return place(state, devices, PartitionSpec())


def place_inputs(inputs, devices):
    return place(inputs, devices, PartitionSpec("data"))


def matrix_flops(jaxpr):
    """Operations of the dots and convolutions of a jaxpr, loops by their trip counts, as on a chip's matrix unit."""
    total = 0
    for equation in jaxpr.eqns:
        params, out = equation.params, equation.outvars[0].aval
        if equation.primitive.name == "dot_general":
            contracted = params["dimension_numbers"][0][0]
            total += 2 * out.size * math.prod(equation.invars[0].aval.shape[d] for d in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            numbers = params["dimension_numbers"].rhs_spec  # output features, input features, window
            taps = math.prod(kernel[d] for d in numbers[1:])
            # A dilated left side is mostly zeros, which a good kernel does not multiply.
            total += 2 * out.size * taps // math.prod(params["lhs_dilation"])
        trips = params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    total += trips * matrix_flops(inner)
    return total
