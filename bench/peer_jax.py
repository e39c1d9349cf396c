# SPDX-License-Identifier: Apache-2.0
"""The side of peers.py that runs vtpu; it also draws the weights, and writes the programs for IREE. Serves as worker.py does."""

import functools
import gc
import os

import jax
import jax.numpy as jnp
import numpy as np

import peer_programs
import programs
import serve


class Ops:
    """Images are NHWC, keys and values [batch, length, heads, width]. In `dtype` are weights and what layers give each
    other; norms and softmax compute in f32."""

    def __init__(self, weights, trains=False, in_place=True, dtype=jnp.float32):
        self.weights, self.trains, self.in_place, self.dtype = weights, trains, in_place, dtype

    def weight(self, name, shape, scale, start=0.0):
        if isinstance(self.weights, peer_programs.Weights):
            return jnp.asarray(self.weights.draw(name, shape, scale, start), self.dtype)
        return jnp.asarray(self.weights[name], self.dtype)

    def dense(self, x, name, features):
        kernel = self.weight(f"{name}.kernel", (x.shape[-1], features), x.shape[-1] ** -0.5)
        return x @ kernel + self.weight(f"{name}.bias", (features,), 0.02)

    def conv(self, x, name, features, size, stride=1):
        shape = (size, size, x.shape[-1], features)
        kernel = self.weight(f"{name}.conv", shape, (2 / (size * size * x.shape[-1])) ** 0.5)
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), 2 * [(size // 2, size // 2)],
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def batch_norm(self, x, name, scale=1.0):
        part = lambda what, spread, start: self.weight(f"{name}.{what}", (x.shape[-1],), spread, start)
        scale, offset = part("scale", 0.1 * scale, scale), part("offset", 0.1, 0)
        if self.trains:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        else:
            mean, variance = part("mean", 0.1, 0), part("variance", 0.05, 1)
        return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + offset

    def layer_norm(self, x, name):
        x = x.astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        y = ((x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5)).astype(self.dtype)
        return y * self.weight(f"{name}.scale", x.shape[-1:], 0.1, 1) + self.weight(f"{name}.offset", x.shape[-1:], 0.1)

    def max_pool(self, x, size=2):
        low = size // 2 if size > 2 else 0
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, 2, 2, 1),
                                     ((0, 0), (low, low), (low, low), (0, 0)))

    def relu(self, x):
        return jax.nn.relu(x)

    def gelu(self, x, tanh):
        return jax.nn.gelu(x, approximate=tanh)

    def flat(self, x):
        return x.reshape(x.shape[0], -1)

    def mean_pixels(self, x):
        return x.mean((1, 2))

    def embed(self, tokens, name, rows, width):
        return self.weight(name, (rows, width), 0.02)[tokens]

    def unembed(self, x, name):
        return x @ self.weight(name, None, None).T

    def heads(self, x, heads):
        return [part.reshape(*x.shape[:2], heads, -1) for part in jnp.split(x, 3, -1)]

    def join(self, x):
        return x.reshape(*x.shape[:2], -1)

    def attend(self, q, k, v, causal):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)

    def remat(self, block, x):
        return jax.checkpoint(block)(x)

    def recurrent(self, x, name, width, gates, step, carry):
        """`step` takes what the input and the state before give to each gate."""
        x = self.dense(x, f"{name}.input", gates * width)
        kernel = self.weight(f"{name}.state.kernel", (width, gates * width), width**-0.5)

        def next_(carry, x):
            parts = (jnp.split(y, gates, -1) for y in (x, carry[0] @ kernel))
            carry = step(carry, *parts)
            return carry, carry[0]

        start = (jnp.zeros((x.shape[0], width)),) * carry
        return jax.lax.scan(next_, start, x.swapaxes(0, 1))[1].swapaxes(0, 1)

    def lstm(self, x, name, width):
        def step(carry, x, h):
            i, f, g, o = (a + b for a, b in zip(x, h))
            c = jax.nn.sigmoid(f) * carry[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(c), c

        return self.recurrent(x, name, width, 4, step, 2)

    def gru(self, x, name, width):
        def step(carry, x, h):
            r, z = (jax.nn.sigmoid(a + b) for a, b in zip(x[:2], h[:2]))
            return ((1 - z) * jnp.tanh(x[2] + r * h[2]) + z * carry[0],)

        return self.recurrent(x, name, width, 3, step, 1)

    def attend_cache(self, q, k, v, keys, values):
        """In place, or for programs that cannot write to their inputs: the new key and value by themselves."""
        if self.in_place:
            at = peer_programs.LENGTH - 1
            keys, values = (jax.lax.dynamic_update_slice(old, new, (0, at, 0, 0)) for old, new in ((keys, k), (values, v)))
            return self.attend(q, keys, values, False), keys, values
        q = q * q.shape[-1] ** -0.5
        before, now = (jnp.einsum("bqhd,bkhd->bhqk", q, x, preferred_element_type=jnp.float32) for x in (keys[:, :-1], k))
        weights = jax.nn.softmax(jnp.concatenate((before, now), -1)).astype(v.dtype)
        old, new = weights[..., :-1], weights[..., -1:]
        return jnp.einsum("bhqk,bkhd->bqhd", old, values[:, :-1]) + jnp.einsum("bhqk,bkhd->bqhd", new, v), k, v


def loss_of(program, weights, x, labels):
    logits = program.model(Ops(weights, trains=True), x)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def train(program, state, *inputs):
    """Gradient descent with momentum."""
    weights, momenta = state
    loss, gradients = jax.value_and_grad(functools.partial(loss_of, program))(weights, *inputs)
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
    return (jax.tree.map(lambda w, m: w - 0.01 * m, weights, momenta), momenta), loss


def in_bf16(arrays):
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16) if x.dtype == np.float32 else x, arrays)


class Worker:
    def platform(self):
        return jax.devices()[0].platform

    def load(self, name, folder, bf16=False):
        """Compiles, runs once, and leaves weights, inputs and result in `folder`; what it computes and reads. In bf16: a
        model that serves, and how far its result is from that in `folder`."""
        self.call = self.carry = None
        gc.collect()
        program = peer_programs.PROGRAMS[name]
        inputs = program.make(np.random.default_rng(0))
        self.program, weights = program, peer_programs.Weights()
        jax.eval_shape(lambda *x: program.model(Ops(weights, trains=program.trains), *x), *inputs[: 1 if program.trains else None])
        weights = dict(weights)
        if bf16:
            weights, inputs = in_bf16((weights, inputs))
        else:
            np.savez(os.path.join(folder, "weights.npz"), **weights)
            np.savez(os.path.join(folder, "inputs.npz"), *inputs)
        ops = functools.partial(Ops, dtype=jnp.bfloat16 if bf16 else jnp.float32)
        bytes_ = sum(x.nbytes for x in weights.values()) + sum(x.nbytes for x in inputs)
        weights, inputs = jax.device_put((weights, inputs), jax.devices()[0])
        if program.trains:
            step = jax.jit(functools.partial(train, program), donate_argnums=0)
            self.carry = (weights, jax.tree.map(jnp.zeros_like, weights))
            call = lambda: step(self.carry, *inputs)
            arguments = (self.carry, *inputs)
        elif len(inputs) > 1:  # decode: the caches go round
            step = jax.jit(lambda caches, w, tokens: (lambda y, *kept: (kept, y))(*program.model(ops(w), tokens, *caches)),
                           donate_argnums=0)
            self.carry = list(inputs[1:])
            call = lambda: step(self.carry, weights, inputs[0])
            arguments = (self.carry, weights, inputs[0])
        else:
            step, self.carry = jax.jit(lambda w, *x: (None, program.model(ops(w), *x))), None
            call = lambda: step(weights, *inputs)
            arguments = (weights, *inputs)
        self.call = call
        flops = programs.matrix_flops(jax.make_jaxpr(step)(*arguments).jaxpr)
        self.carry, result = call()
        results = [np.asarray(result[0] if isinstance(result, tuple) else result)]
        for _ in range(2 if program.trains else 0):
            self.carry, result = call()
            results.append(np.asarray(result))
        work = {"flops": flops, "bytes": bytes_}
        if bf16:
            return {"apart": serve.distance(results[0].astype(np.float32), np.load(os.path.join(folder, "result.npy"))), **work}
        np.save(os.path.join(folder, "result.npy"), np.stack(results))
        return work

    def export(self, folder, bf16=False):
        """For IREE: the weights are constants of the program, as when it is deployed. NumPy's arrays of bf16 are bits there."""
        with np.load(os.path.join(folder, "weights.npz")) as file:
            weights = dict(file)
        with np.load(os.path.join(folder, "inputs.npz")) as file:
            inputs = [file[key] for key in file]
        ops = Ops(weights, in_place=False, dtype=jnp.bfloat16 if bf16 else jnp.float32)
        if bf16:
            inputs = [np.asarray(x).view(np.uint16) if x.dtype == jnp.bfloat16 else x for x in in_bf16(inputs)]

        def step(*inputs):
            inputs = [x.view(jnp.bfloat16) if x.dtype == jnp.uint16 else x for x in inputs]
            results = self.program.model(ops, *inputs)
            first, *kept = results if isinstance(results, tuple) else (results,)
            return (first.astype(jnp.float32), *(x.view(jnp.uint16) if bf16 else x for x in kept))

        np.savez(os.path.join(folder, "iree_inputs.npz"), *inputs)
        step = jax.jit(step)
        exported = jax.export.export(step, platforms=["cpu"])(*inputs)
        with open(os.path.join(folder, "program.mlirbc"), "wb") as file:
            file.write(exported.mlir_module_serialized)

    def run(self, count):
        """Steps back to back, predictions each awaited."""

        def call():
            self.carry, result = self.call()
            return result if self.program.trains else jax.block_until_ready(result)

        return serve.timed(call, count, lambda result: jax.block_until_ready((self.carry, result)))


if __name__ == "__main__":
    serve.serve(Worker())
