# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of peers.py, eager or compiled; it also writes the programs for ONNX Runtime and OpenVINO."""

import contextlib
import gc
import os

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

import peer_programs
import serve


class Ops(torch.nn.Module):
    """Images are NCHW in channels-last memory, keys and values [batch, heads, length, width]."""

    def __init__(self, program, weights, in_place):
        super().__init__()
        self.program, self.in_place = program, in_place
        self.names = {}
        for name, array in weights.items():
            x = torch.from_numpy(array)
            if name.endswith(".kernel"):
                x = x.T.contiguous()
            elif name.endswith(".conv"):
                x = x.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
            self.names[name] = name.replace(".", "_")
            self.register_parameter(self.names[name], torch.nn.Parameter(x, requires_grad=program.trains))

    def forward(self, *inputs):
        return self.program.model(self, *inputs)

    def weight(self, name, *_):
        return getattr(self, self.names[name])

    def dense(self, x, name, _):
        return F.linear(x, self.weight(f"{name}.kernel"), self.weight(f"{name}.bias"))

    def conv(self, x, name, _, size, stride=1):
        return F.conv2d(x, self.weight(f"{name}.conv"), stride=stride, padding=size // 2)

    def batch_norm(self, x, name, _=1.0):
        given = [None, None] if self.program.trains else [self.weight(f"{name}.mean"), self.weight(f"{name}.variance")]
        return F.batch_norm(x, *given, self.weight(f"{name}.scale"), self.weight(f"{name}.offset"), self.program.trains)

    def layer_norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weight(f"{name}.scale"), self.weight(f"{name}.offset"))

    def max_pool(self, x, size=2):
        return F.max_pool2d(x, size, 2, size // 2 if size > 2 else 0)

    def relu(self, x):
        return F.relu(x)

    def gelu(self, x, tanh):
        return F.gelu(x, approximate="tanh" if tanh else "none")

    def flat(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)

    def mean_pixels(self, x):
        return x.mean((2, 3))

    def embed(self, tokens, name, *_):
        return F.embedding(tokens, self.weight(name))

    def unembed(self, x, name):
        return F.linear(x, self.weight(name))

    def heads(self, x, heads):
        return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in x.chunk(3, -1)]

    def join(self, x):
        return x.transpose(1, 2).flatten(2)

    def attend(self, q, k, v, causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def remat(self, block, x):
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    def recurrent(self, x, name, width, layer, *state):
        bias = self.weight(f"{name}.input.bias")
        weights = [self.weight(f"{name}.{part}.kernel") for part in ("input", "state")]
        return layer(x, *state, [*weights, bias, torch.zeros_like(bias)], True, 1, 0.0, self.training, False, True)[0]

    def lstm(self, x, name, width):
        start = x.new_zeros(1, x.shape[0], width)
        return self.recurrent(x, name, width, torch.lstm, (start, start))

    def gru(self, x, name, width):
        return self.recurrent(x, name, width, torch.gru, x.new_zeros(1, x.shape[0], width))

    def attend_cache(self, q, k, v, keys, values):
        """In place, or for programs that cannot write to their inputs: the new key and value by themselves."""
        if self.in_place:
            keys[:, :, -1:], values[:, :, -1:] = k, v
            return F.scaled_dot_product_attention(q, keys, values), k, v
        q = q * q.shape[-1] ** -0.5
        before, now = (q @ x.transpose(2, 3) for x in (keys[:, :, :-1], k))
        weights = torch.cat((before, now), -1).softmax(-1)
        return weights[..., :-1] @ values[:, :, :-1] + weights[..., -1:] * v, k, v


def tensor(array):
    x = torch.from_numpy(array)
    if x.dim() != 4:
        return x.long() if x.dtype == torch.int32 else x
    if x.shape[1] == peer_programs.LENGTH:
        return x.transpose(1, 2).contiguous()
    return x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def load_arrays(path):
    with np.load(path) as file:
        return {key: file[key] for key in file}


class Worker:
    def load(self, name, folder, compiled, bf16):
        """Compiles and runs as peer_jax.py did; the relative distance between the results."""
        self.call = None
        gc.collect()
        torch._dynamo.reset()
        program = peer_programs.PROGRAMS[name]
        self.inputs = [tensor(x) for x in load_arrays(os.path.join(folder, "inputs.npz")).values()]
        module = Ops(program, load_arrays(os.path.join(folder, "weights.npz")), True)
        forward = torch.compile(module) if compiled else module
        cast = (lambda: torch.autocast("cpu", torch.bfloat16)) if bf16 else contextlib.nullcontext
        if program.trains:
            x, labels = self.inputs
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, foreach=True)

            def call():
                optimizer.zero_grad(set_to_none=True)
                with cast():
                    logits = forward(x)
                loss = F.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
                loss.backward()
                optimizer.step()
                return loss
        else:

            def call():
                with torch.inference_mode(), cast():
                    return forward(*self.inputs)

        results = [call() for _ in range(3 if program.trains else 1)]
        results = [(x[0] if isinstance(x, tuple) else x).detach().float().numpy() for x in results]
        self.call = call
        return serve.distance(np.stack(results), np.load(os.path.join(folder, "result.npy")))

    def export(self, name, folder):
        program = peer_programs.PROGRAMS[name]
        module = Ops(program, load_arrays(os.path.join(folder, "weights.npz")), False)
        inputs = tuple(tensor(x) for x in load_arrays(os.path.join(folder, "inputs.npz")).values())
        names = [f"in{i}" for i in range(len(inputs))]
        with torch.inference_mode():
            torch.onnx.export(module.eval(), inputs, os.path.join(folder, "program.onnx"), dynamo=True, input_names=names,
                              external_data=True, verbose=False)
        np.savez(os.path.join(folder, "onnx_inputs.npz"), **{n: x.numpy() for n, x in zip(names, inputs)})

    def run(self, count):
        return serve.timed(self.call, count)


if __name__ == "__main__":
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    serve.serve(Worker())
