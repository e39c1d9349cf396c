#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the Fashion-MNIST network of models/mnist for the TPU v1 compiler: the inference program with its weights as
StableHLO bytecode, calibration images from the training set, the test images, and the f32 results for them.

    python models/mnist/train.py --checkpoint build/mnist.ckpt
    python models/tpu1/export.py build/mnist.ckpt build/v1
    vtpu v1 compile build/v1/mnist.mlirbc --calibrate build/v1/calibrate.npz -o build/v1/mnist.v1
    vtpu v1 run build/v1/mnist.v1 --input build/v1/test.npz --labels build/v1/labels.npz
"""

import argparse
import os
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mnist"))
import train  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--calibrate", type=int, default=200, help="images used to choose the scales")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)

    state, _ = train.restore(options.checkpoint, train.create_state(train.Config(), 1))
    infer = jax.jit(lambda images: train.CNN().apply({"params": state.params}, images))
    shape = jax.ShapeDtypeStruct((options.batch, 28, 28, 1), jnp.uint8)
    exported = jax.export.export(infer, platforms=["tpu"])(shape)
    with open(os.path.join(options.folder, "mnist.mlirbc"), "wb") as file:
        file.write(exported.mlir_module_serialized)

    images, _ = train.load("train")
    np.savez(os.path.join(options.folder, "calibrate.npz"), images=images[: options.calibrate])
    images, labels = train.load("t10k")
    np.savez(os.path.join(options.folder, "test.npz"), images=images)
    np.savez(os.path.join(options.folder, "labels.npz"), labels=labels.astype(np.int32))
    logits = np.concatenate([np.asarray(infer(images[at : at + 1000])) for at in range(0, len(images), 1000)])
    print(f"f32 test accuracy {np.mean(np.argmax(logits, -1) == labels):.4f}")


if __name__ == "__main__":
    main()
