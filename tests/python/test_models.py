# SPDX-License-Identifier: Apache-2.0
"""The programs of models/, unmodified: they learn, resume, and agree with XLA:CPU."""

import importlib.util
import os
import sys

import jax
import numpy as np
import pytest

from support import MODELS


def load(name):
    spec = importlib.util.spec_from_file_location(f"model_{name}", os.path.join(MODELS, name, "train.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_mnist_learns():
    mnist = load("mnist")
    result = mnist.train(mnist.Config(steps=40, quiet=True))
    assert np.mean(result.losses[-5:]) < 0.6 * result.losses[0]
    assert result.accuracy > 0.65


def test_mnist_resumes_bit_identical(tmp_path):
    mnist = load("mnist")
    path = str(tmp_path / "checkpoint")
    whole = mnist.train(mnist.Config(steps=20, quiet=True))
    first = mnist.Config(steps=20, quiet=True, checkpoint=path, save_every=8)
    assert stop_after(mnist, first, 8) == 8
    resumed = mnist.train(mnist.Config(steps=20, quiet=True, checkpoint=path, resume=True, save_every=1000))
    assert resumed.steps == 12
    assert resumed.losses == whole.losses[8:]


def stop_after(mnist, config, steps):
    """Runs until the checkpoint of `steps` is written, then stops as a preemption would. Returns the step saved."""

    class Preempted(Exception):
        pass

    save, saved = mnist.save, []

    def save_and_stop(path, state, step):
        save(path, state, step)
        saved.append(step)
        if step >= steps:
            raise Preempted

    mnist.save = save_and_stop
    try:
        mnist.train(config)
    except Preempted:
        pass
    finally:
        mnist.save = save
    return saved[-1]


@pytest.mark.parametrize("name, arguments", [
    ("mlp", ["--epochs", "1", "--width", "128"]),
    ("transformer", ["--steps", "20", "--layers", "2", "--width", "64", "--length", "64"]),
    ("transformer", ["--steps", "20", "--layers", "2", "--width", "64", "--length", "64", "--model-parallel", "2"]),
])  # fmt: skip
def test_programs_run(name, arguments, capsys):
    load(name).main(arguments)
    assert "loss" in capsys.readouterr().out


@pytest.mark.slow
def test_resnet50_runs(capsys):
    load("resnet50").main(["--steps", "2", "--size", "64"])
    out = capsys.readouterr().out
    assert "step 2: loss" in out and "nan" not in out


def first_losses(module, make, steps, device):
    with jax.default_device(device), jax.default_matmul_precision("highest"):
        state, step, inputs = make(module)
        out = []
        for _ in range(steps):
            state, loss = step(state, *inputs)
            out.append(float(loss["loss"] if isinstance(loss, dict) else loss))
        return out


def make_transformer(m):
    config = m.Config(layers=2, width=64, length=64, batch=8)
    return m.create_state(config), jax.jit(m.train_step), (m.sample(m.load(), config, 0), jax.random.key(3))


def make_resnet(m):
    return m.create_state(10, 32), jax.jit(m.train_step), (m.synthetic(4, 32, 10, 0),)


def make_mnist(m):
    images, labels = m.load("train")
    return m.create_state(m.Config(), 100), jax.jit(m.train_step), ({"image": images[:64], "label": labels[:64]},)


@pytest.mark.parametrize("name, make", [
    pytest.param("mnist", make_mnist, marks=pytest.mark.asan), ("transformer", make_transformer), ("resnet50", make_resnet),
])  # fmt: skip
def test_losses_are_those_of_xla_cpu(name, make):
    module = load(name)
    got = first_losses(module, make, 3, jax.devices()[0])
    want = first_losses(module, make, 3, jax.devices("cpu")[0])
    assert got == pytest.approx(want, rel=2e-3, abs=1e-3)
