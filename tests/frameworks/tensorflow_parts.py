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

STEPS, BATCH = 8, 32


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


def main():
    images, labels = data()
    network = Network()
    tpu = sys.argv[1] == "tpu"
    if tpu:
        import vtpu.tf

        step = vtpu.tf.function(network.step)
    else:
        step = tf.function(network.step)
    losses = [float(step(images[i : i + BATCH], labels[i : i + BATCH])) for i in range(0, len(labels), BATCH)]
    assert network.count.numpy() == STEPS
    few = images[:4]
    if tpu:
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(network, folder + "/model", signatures=network.classes)
            np.savez(folder + "/in.npz", images=few)
            words = [sys.argv[2], "tf", folder + "/model", f"--input={folder}/in.npz", f"--output={folder}/out.npz", "--predict"]
            done = subprocess.run(words, env=os.environ | {"VTPU_PYTHON": sys.executable}, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and "time of one run" in done.stdout, done.stdout + done.stderr
            results = dict(np.load(folder + "/out.npz"))
            open_size = subprocess.run(words[:3] + ["--predict"], env=os.environ | {"VTPU_PYTHON": sys.executable}, capture_output=True,
                                       text=True, check=False)  # fmt: skip
            assert open_size.returncode == 1 and "leaves a size of images open" in open_size.stderr, open_size.stderr
    else:
        results = {name: result.numpy() for name, result in network.classes(few).items()}
    values = np.concatenate([results["logits"].ravel(), results["ranked"].ravel()]).tolist()
    report(platform="tpu" if tpu else "cpu", devices=1, losses=losses, values=values)


if __name__ == "__main__":
    main()
