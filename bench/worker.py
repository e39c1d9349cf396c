# SPDX-License-Identifier: Apache-2.0
"""One side of the benchmark: a process with one JAX platform that serves bench.py and stays alive between rows.

In: one JSON object per line on standard input. Out: one JSON object per line. Everything else goes to standard error.
"""

import gc
import time

import jax
import jax.numpy as jnp
import numpy as np

import loops
import ops
import pallas
import programs
import serve


class Worker:
    def __init__(self):
        self.program = self.step = self.state = self.inputs = self.op_name = None
        self.scans = {}
        self.kernels = {}

    def platform(self):
        device = jax.devices()[0]
        return {"platform": device.platform, "kind": device.device_kind, "devices": jax.device_count()}

    def load(self, model, devices):
        """Builds state and step of a program on the first `devices` devices; nothing runs yet."""
        self.drop()
        self.program = programs.PROGRAMS[model]()
        self.devices = jax.devices()[:devices]
        self.state = programs.place_state(self.program.make_state(), self.devices)
        self.inputs = programs.place_inputs(self.program.inputs, self.devices)
        self.step = self.program.make_step()
        jax.block_until_ready((self.state, self.inputs))

    def export(self, path):
        """The program of the step as a plugin receives it."""
        exported = jax.export.export(self.step)(self.state, *self.inputs)
        with open(path, "wb") as file:
            file.write(exported.mlir_module_serialized)

    def drop(self):
        self.program = self.step = self.state = self.inputs = self.op_name = None
        gc.collect()

    def steps(self, count):
        """Seconds for each of `count` steps, back to back without waiting in between."""
        start = time.perf_counter()
        for _ in range(count):
            self.state, metrics = self.step(self.state, *self.inputs)
        jax.block_until_ready((self.state, metrics))
        return (time.perf_counter() - start) / count

    def load_predict(self, model):
        """The forward pass on a small batch, with parameters from model.init."""
        self.drop()
        program = programs.PROGRAMS[model]()
        predict, inputs = program.make_predict()
        parameters, inputs = jax.device_put((program.init(), inputs), jax.devices()[0])
        self.step = lambda: predict(parameters, inputs)

    def predict(self, count):
        """Seconds for each of `count` calls, each awaited: the latency that the caller of a service sees."""
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(self.step())
        return (time.perf_counter() - start) / count

    def first_step(self):
        """From trace to result, nothing cached."""
        jax.clear_caches()
        self.step = self.program.make_step()
        return self.steps(1)

    def init(self, model):
        """model.init outside jit: many tiny programs, none cached."""
        program = programs.PROGRAMS[model]()
        jax.clear_caches()
        gc.collect()
        start = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(program.init()))
        return time.perf_counter() - start

    def flops(self):
        return programs.matrix_flops(jax.make_jaxpr(self.step)(self.state, *self.inputs).jaxpr)

    def dispatch(self, count):
        add = jax.jit(lambda x: x + 1)
        x = add(jax.device_put(np.float32(0), jax.devices()[0]))
        x.block_until_ready()
        start = time.perf_counter()
        for _ in range(count):
            x = add(x)
        x.block_until_ready()
        return (time.perf_counter() - start) / count

    def transfer(self, mebibytes):
        host = np.arange(mebibytes << 18, dtype=np.float32)
        start = time.perf_counter()
        back = np.array(jax.device_put(host, jax.devices()[0]).block_until_ready())
        seconds = time.perf_counter() - start
        assert back[-1] == host[-1]
        return seconds

    def scan(self, body):
        """Seconds of one loop of loops.py."""
        if body not in self.scans:
            function, arguments = loops.find(body)
            self.scans[body] = function, jax.device_put(arguments, jax.devices()[0])
        function, arguments = self.scans[body]
        jax.block_until_ready(arguments)
        begin = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return time.perf_counter() - begin

    def pallas(self, name, form, count):
        """Seconds of a kernel of pallas.py in one of its forms."""
        if (name, form) not in self.kernels:
            self.kernels[name, form] = pallas.make(name, form)
            function, arguments = self.kernels[name, form]
            jax.block_until_ready(function(*arguments))
        function, arguments = self.kernels[name, form]
        begin = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(function(*arguments))
        return (time.perf_counter() - begin) / count

    def op(self, name, count):
        """Wall and CPU seconds of each of `count` calls of a program of ops.py, each awaited.

        Calls alternate between copies of the arguments, since results derived from the same arrays may be cached.
        """
        if self.op_name != name:
            self.drop()
            function, arguments = ops.find(name)
            self.step, self.inputs = jax.jit(function), [jax.device_put(arguments, jax.devices()[0]) for _ in range(2)]
            if function is ops.tokens:  # a served model's weights stay
                self.inputs[1] = self.inputs[1][:1] + self.inputs[0][1:]
            for each in self.inputs:
                jax.block_until_ready(self.step(*each))  # compiles
            self.op_name = name
        wall, processor = time.perf_counter(), time.process_time()
        for i in range(count):
            jax.block_until_ready(self.step(*self.inputs[i % 2]))
        return [(time.perf_counter() - wall) / count, (time.process_time() - processor) / count]


if __name__ == "__main__":
    serve.serve(Worker())
