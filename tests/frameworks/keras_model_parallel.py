# SPDX-License-Identifier: Apache-2.0
"""A transformer block trained with Keras, its weights cut over four devices and its batch over two; input by grain."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import grain  # noqa: E402
import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from report import report  # noqa: E402

LENGTH, WIDTH, WORDS, BATCH = 16, 64, 50, 32


def network():
    words = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(WORDS, WIDTH, name="embed")(words)
    y = keras.layers.LayerNormalization()(x)
    x = x + keras.layers.MultiHeadAttention(4, WIDTH // 4, name="attention")(y, y, use_causal_mask=True)
    y = keras.layers.LayerNormalization()(x)
    y = keras.layers.Dense(4 * WIDTH, activation="gelu", name="up")(y)
    x = x + keras.layers.Dense(WIDTH, name="down")(y)
    return keras.Model(words, keras.layers.Dense(WORDS, name="classes")(x))


def main():
    devices = keras.distribution.list_devices()
    model_ways = 4 if len(devices) == 8 else 1
    mesh = keras.distribution.DeviceMesh((len(devices) // model_ways, model_ways), ["batch", "model"], devices)
    layout = keras.distribution.LayoutMap(mesh)
    layout["embed/embeddings"] = (None, "model")
    layout[".*attention/(query|key|value)/kernel"] = (None, "model", None)
    layout[".*attention_output/kernel"] = ("model", None, None)
    layout["up/kernel"] = (None, "model")
    layout["up/bias"] = ("model",)
    layout["down/kernel"] = ("model", None)
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"))

    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(0)
    start = rng.integers(0, WORDS, (BATCH * 4, 1))
    words = (start + np.arange(LENGTH + 1) * rng.integers(1, 3, (BATCH * 4, 1))) % WORDS  # what comes next can be known
    model = network()
    model.compile(keras.optimizers.Adam(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = grain.MapDataset.source([(row[:-1], row[1:]) for row in words])
    history = model.fit(rows.batch(BATCH).to_iter_dataset(), epochs=5, verbose=0)
    kernel = model.get_layer("up").kernel.value
    (part,) = {shard.data.shape for shard in kernel.addressable_shards}
    assert part == (WIDTH, 4 * WIDTH // model_ways), part
    predicted = model.predict(words[:, :-1], batch_size=BATCH, verbose=0)
    report(platform=jax.devices()[0].platform, devices=len(kernel.sharding.device_set), losses=history.history["loss"],
           values=[float(np.mean(predicted.argmax(-1) == words[:, 1:]))])


main()
