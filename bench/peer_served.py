# SPDX-License-Identifier: Apache-2.0
"""The sides of peers.py that only serve: ONNX Runtime, OpenVINO and IREE, each in a process of its own."""

import gc
import os

import numpy as np

import serve


def arrays(folder, name):
    with np.load(os.path.join(folder, name)) as file:
        return {key: file[key] for key in file}


def onnxruntime(folder):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = ort.InferenceSession(os.path.join(folder, "program.onnx"), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, x in arrays(folder, "onnx_inputs.npz").items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(x))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")

    def call():
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0]

    return call, lambda result: result.numpy()


def openvino(folder):
    """In bf16 where the processor has it, by OpenVINO's own choice."""
    import openvino as ov

    model = ov.Core().compile_model(os.path.join(folder, "program.onnx"), "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    request = model.create_infer_request()
    for name, x in arrays(folder, "onnx_inputs.npz").items():
        request.set_tensor(name, ov.Tensor(x))

    def call():
        request.infer()
        return request.get_output_tensor(0)

    return call, lambda result: np.array(result.data)


def iree(folder):
    import iree.compiler.tools
    import iree.runtime

    program = iree.compiler.tools.compile_file(
        os.path.join(folder, "program.mlirbc"), input_type="stablehlo", target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-data-tiling", "--iree-dispatch-creation-data-tiling"])
    config = iree.runtime.Config("local-task")
    context = iree.runtime.SystemContext(config=config)
    module = iree.runtime.VmModule.copy_buffer(context.instance, program)
    context.add_vm_module(module)
    main = context.modules[module.name]["main"]
    inputs = [iree.runtime.asdevicearray(config.device, x) for x in arrays(folder, "iree_inputs.npz").values()]

    def call():
        results = main(*inputs)
        return results[0] if isinstance(results, (tuple, list)) else results

    return call, lambda result: result.to_host()


class Worker:
    def load(self, side, folder):
        """Compiles and runs; the relative distance of its result from vtpu's."""
        self.call = None
        gc.collect()
        self.call, read = {"onnxruntime": onnxruntime, "openvino": openvino, "iree": iree}[side](folder)
        return serve.distance(read(self.call()), np.load(os.path.join(folder, "result.npy")))

    def run(self, count):
        return serve.timed(self.call, count)


if __name__ == "__main__":
    serve.serve(Worker())
