# SPDX-License-Identifier: Apache-2.0
"""TensorFlow through its StableHLO: a training step with variables by vtpu.tf.function, and a SavedModel by `vtpu tf`.

tensorflow_parts.py cpu|tpu [VTPU]
"""

import os
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import numpy as np
import tensorflow as tf
from report import report

STEPS, BATCH, DEVICES = 8, 32, 8


def data():
    """Images with a bright row that says their class."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, STEPS * BATCH)
    images = rng.normal(size=(len(labels), 12, 12, 1)) * 0.5
    for image, label in zip(images, labels, strict=True):
        image[3 * label + 1] += 1
    return images.astype(np.float32), labels.astype(np.int32)


class Network(tf.Module):
    def __init__(self):
        rng = np.random.default_rng(2)
        weights = [rng.normal(size=s) * 0.2 for s in ((3, 3, 1, 8), (6 * 6 * 8, 4))]
        self.weights = [tf.Variable(w.astype(np.float32)) for w in weights]
        self.speed = [tf.Variable(tf.zeros_like(w)) for w in self.weights]
        self.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None, 12, 12, 1], name="images")])
    def classes(self, images):
        y = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(images, self.weights[0], 1, "SAME")), 2, 2, "SAME")
        logits = tf.reshape(y, [-1, self.weights[1].shape[0]]) @ self.weights[1]
        return {"logits": logits, "ranked": tf.sort(tf.math.erf(logits))}

    def step(self, images, labels):
        with tf.GradientTape() as tape:
            logits = self.classes(images)["logits"]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for weight, speed, slope in zip(self.weights, self.speed, tape.gradient(loss, self.weights), strict=True):
            speed.assign(0.9 * speed + slope)
            weight.assign_sub(0.05 * speed)
        self.count.assign_add(1)
        return loss


def check_devices(program, network):
    """The program is one for all devices, and what they cannot share is said."""
    import vtpu.tf

    assert f"mhlo.num_partitions = {DEVICES}" in program and program.count(f"<=[{DEVICES}]") == 2, program[:2000]
    images, labels = data()
    for rows, devices, why in ((6, 4, "4 devices can share evenly"), (16, 16, "v5litepod-8 has 8")):
        try:
            vtpu.tf.function(network.step, devices=devices)(images[:rows], labels[:rows])
        except vtpu.tf.Error as error:
            assert why in str(error), error
        else:
            raise AssertionError(why)
    turned = vtpu.tf.function(lambda x: tf.math.conj(x) * 2, devices=DEVICES)  # a type with brackets of its own
    numbers = np.arange(DEVICES * 3).reshape(DEVICES, 3).astype(np.complex64) * 1j
    assert "xcomplex<f32>> {mhlo.sharding" in turned.stablehlo(numbers), turned.stablehlo(numbers)
    assert np.array_equal(turned(numbers), numbers.conj() * 2)


def main():
    images, labels = data()
    tpu, losses = sys.argv[1] == "tpu", []
    for devices in (1, DEVICES):
        network = Network()
        if tpu:
            import vtpu.tf

            step = vtpu.tf.function(network.step, devices=devices)
        else:
            step = tf.function(network.step)
        losses += [float(step(images[i : i + BATCH], labels[i : i + BATCH])) for i in range(0, len(labels), BATCH)]
        assert network.count.numpy() == STEPS
    few = images[:8]
    if tpu:
        check_devices(step.stablehlo(images[:BATCH], labels[:BATCH]), network)
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(network, folder + "/model", signatures=network.classes)
            np.savez(folder + "/in.npz", images=few)
            words = [sys.argv[2], "tf", folder + "/model", f"--input={folder}/in.npz", f"--output={folder}/out.npz", f"--devices={DEVICES}", "--predict"]
            done = subprocess.run(words, env=os.environ | {"VTPU_PYTHON": sys.executable}, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and "time of one run" in done.stdout, done.stdout + done.stderr
            results = dict(np.load(folder + "/out.npz"))
            open_size = subprocess.run(words[:3] + ["--predict"], env=os.environ | {"VTPU_PYTHON": sys.executable}, capture_output=True,
                                       text=True, check=False)  # fmt: skip
            assert open_size.returncode == 1 and "leaves a size of images open" in open_size.stderr, open_size.stderr
    else:
        results = {name: result.numpy() for name, result in network.classes(few).items()}
    values = np.concatenate([results["logits"].ravel(), results["ranked"].ravel()]).tolist()
    report(platform="tpu" if tpu else "cpu", devices=DEVICES if tpu else 1, losses=losses, values=values)


if __name__ == "__main__":
    main()
