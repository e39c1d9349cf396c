# SPDX-License-Identifier: Apache-2.0
"""Functions of TensorFlow on a slice: `vtpu tf SAVED_MODEL`, or `vtpu.tf.function` in a program.

TensorFlow gives TPUs programs in a form of its own, which only its own library reads (docs/how-to/tensorflow.md). But a
function that it can compile says as StableHLO what it computes: its arguments, then what it captures, variables among
them; its results, then the new values of the variables that it writes. That is what runs here.
"""

import argparse
import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import weakref

from vtpu.slices import library_path, program_path, slice_name

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
try:
    import numpy as np
    import tensorflow as tf
except ModuleNotFoundError as missing:
    sys.exit(f"vtpu tf: {sys.executable} has no {missing.name}: pip install tensorflow-cpu, or name another Python in VTPU_PYTHON")

ELEMENTS = {  # of the C API (include/vtpu/vtpu.h), by what NumPy calls them
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8", "uint16": "ui16",
    "uint32": "ui32", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip
ARRAYS = (tf.Tensor, tf.Variable, tf.TensorSpec, np.ndarray, np.generic)
TYPES = {element: tf.as_dtype(name).as_numpy_dtype for name, element in ELEMENTS.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [("element_type", ctypes.c_char_p), ("rank", ctypes.c_int32), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("data", ctypes.c_void_p)]  # fmt: skip

    def empty(self):
        """A new array of this type."""
        return np.empty(self.dims[: self.rank], TYPES[self.element_type.decode()])


class Error(RuntimeError):
    """What libvtpu.so says against a program."""


@functools.cache
def _library():
    library = ctypes.CDLL(library_path())
    for name in ("vtpu_open", "vtpu_load", "vtpu_run"):
        getattr(library, name).restype = ctypes.c_void_p
    library.vtpu_error_message.restype = ctypes.c_char_p
    for name in ("vtpu_program_input_count", "vtpu_program_output_count"):
        getattr(library, name).restype = ctypes.c_size_t
    for name in ("vtpu_program_input", "vtpu_program_output"):
        getattr(library, name).restype = _Tensor
    return library


def _check(error):
    if not error:
        return
    library, pointer = _library(), ctypes.c_void_p(error)
    message = library.vtpu_error_message(pointer).decode(errors="replace")
    library.vtpu_error_free(pointer)
    raise Error(message)


@functools.cache
def _slice(name):
    handle = ctypes.c_void_p()
    _check(_library().vtpu_open(name.encode(), ctypes.byref(handle)))
    return handle


class Executable:
    """A program in StableHLO on a slice. Arrays in and out."""

    def __init__(self, text, accelerator_type=None):
        library, self.program = _library(), ctypes.c_void_p()
        code = text.encode() if isinstance(text, str) else text
        where = _slice(accelerator_type or slice_name())
        _check(library.vtpu_load(where, code, ctypes.c_size_t(len(code)), ctypes.byref(self.program)))
        weakref.finalize(self, library.vtpu_unload, self.program)
        count = library.vtpu_program_input_count(self.program)
        self.inputs = [library.vtpu_program_input(self.program, ctypes.c_size_t(i)) for i in range(count)]
        count = library.vtpu_program_output_count(self.program)
        self.outputs = [library.vtpu_program_output(self.program, ctypes.c_size_t(i)) for i in range(count)]

    def __call__(self, *arrays):
        given, results = (_Tensor * len(arrays))(), (_Tensor * len(self.outputs))()
        keep = []
        for place, array in zip(given, arrays, strict=True):
            array = np.ascontiguousarray(array).reshape(np.shape(array))  # a scalar stays one
            dims = (ctypes.c_int64 * array.ndim)(*array.shape)
            keep.append((array, dims))
            place.element_type = ELEMENTS[array.dtype.name].encode()
            place.rank, place.dims, place.data = array.ndim, dims, array.ctypes.data
        outputs = [output.empty() for output in self.outputs]
        for place, output, array in zip(results, self.outputs, outputs, strict=True):
            place.element_type, place.rank, place.dims, place.data = output.element_type, output.rank, output.dims, array.ctypes.data
        sizes = ctypes.c_size_t(len(given)), ctypes.c_size_t(len(results))
        _check(_library().vtpu_run(self.program, given, sizes[0], results, sizes[1]))
        return outputs


def _split(text, devices, count):
    """The program on several devices: of its first `count` parameters, arguments, those whose rows can be dealt out evenly are,
    each device gets all of the others, and what becomes of it all is the partitioner's affair."""
    parts = re.split(r"(\n *func\.func @main\([^\n]*\) -> )", text, maxsplit=1)
    head, counted = re.subn(r"^(module [^\n]*?attributes \{)", rf"\1mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32, ",
                            parts[0], count=1, flags=re.MULTILINE)  # fmt: skip
    if len(parts) != 3 or not counted:
        raise Error(f"this TensorFlow ({tf.__version__}) writes its programs in a form that cannot be shared among devices: run it on one")
    _, main, rest = parts

    def place(parameter):
        number, rows, others = int(parameter[1]), int(parameter[2]), len(re.findall(r"\d+x", parameter[3]))
        if number >= count or rows == 0 or rows % devices:
            return parameter[0]
        tiles = ",".join(map(str, [devices] + [1] * others))
        return f'{parameter[0]} {{mhlo.sharding = "{{devices=[{tiles}]<=[{devices}]}}"}}'

    main = re.sub(r"%arg(\d+): tensor<(\d+)x((?:[^<>]|<[^<>]*>)*)>", place, main)
    if "mhlo.sharding" not in main:
        raise Error(f"no argument has rows that {devices} devices can share evenly: give it a batch of which {devices} is a divisor")
    return head + main + rest


class Lowered:
    """What TensorFlow says that a function computes, for arguments of these shapes and types."""

    def __init__(self, compiled, arguments, devices=1):
        self.concrete = compiled.get_concrete_function(*arguments)
        self.text = compiled.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
        if devices > 1:
            self.text = _split(self.text, devices, len(_arrays(arguments)))
        variables = {id(v.handle): v for v in self.concrete.variables}
        self.captured = [variables.get(id(t), t) for t in self.concrete.captured_inputs]
        for captured in self.captured:
            if not isinstance(captured, tf.Variable) and captured.dtype == tf.resource:
                raise Error(f"{self.concrete.name.decode()} uses {captured!r}, which is no variable")
        # Which parameter each later result takes the place of: a new value of a variable.
        aliases = re.findall(r"parameter_number = (\d+) : i64\}, output_index = array<i64(?:: (\d+))?>", self.text)
        self.written = {int(result or 0): int(parameter) for parameter, result in aliases}

    def variables(self):
        return [captured for captured in self.captured if isinstance(captured, tf.Variable)]

    def run(self, executable, arguments):
        given = [*arguments, *self.captured]
        if len(given) != len(executable.inputs):
            raise Error(f"{self.concrete.name.decode()} takes {len(given)} arrays and TensorFlow's program {len(executable.inputs)}: "
                        "one of them decides about shapes, so it must be a constant of the function")  # fmt: skip
        results = executable(*(np.asarray(array) for array in given))
        count = len(self.concrete.outputs)
        for result, parameter in self.written.items():
            if result >= count:
                given[parameter].assign(results[result])
        return tf.nest.pack_sequence_as(self.concrete.structured_outputs, [tf.constant(a) for a in results[:count]], expand_composites=True)


def _arrays(arguments):
    """The arguments that are arrays; the others are constants of the function, as for tf.function."""
    return [a for a in tf.nest.flatten(arguments) if isinstance(a, ARRAYS)]


def _signature(argument):
    if isinstance(argument, ARRAYS):
        return tuple(argument.shape), tf.as_dtype(argument.dtype).name
    return argument


def function(python_function=None, *, accelerator_type=None, devices=1):
    """`python_function`, or a tf.function, as a function that runs on a slice (by default VTPU_ACCELERATOR_TYPE's). On several
    devices each has a part of the rows of those arguments that they can share evenly, as TPUStrategy deals out a batch.
    Variables stay TensorFlow's: each call reads those that it uses, and writes those that it changes."""
    if python_function is None:
        return functools.partial(function, accelerator_type=accelerator_type, devices=devices)
    body = getattr(python_function, "python_function", python_function)
    compiled, known = tf.function(body, jit_compile=True, autograph=True), {}

    @functools.wraps(body)
    def call(*arguments):
        key = tuple(map(_signature, tf.nest.flatten(arguments))), str(tf.nest.map_structure(lambda _: None, arguments))
        if key not in known:
            lowered = Lowered(compiled, arguments, devices)
            known[key] = lowered, Executable(lowered.text, accelerator_type)
        lowered, executable = known[key]
        return lowered.run(executable, _arrays(arguments))

    call.stablehlo = lambda *arguments: Lowered(compiled, arguments, devices).text
    return call


# ---- the command ---------------------------------------------------------------------------------------------------


def _words():
    parser = argparse.ArgumentParser(prog="vtpu tf", description="Runs or predicts a signature of a SavedModel of TensorFlow.")
    parser.add_argument("folder", metavar="SAVED_MODEL", help="a folder that tf.saved_model.save, or export of Keras, wrote")
    parser.add_argument("--signature", help="which one; serving_default, or the only one")
    parser.add_argument("--input", metavar="FILE.npz", help="its arguments, by name; without it, only --predict and --program make sense")
    parser.add_argument("--output", metavar="FILE.npz", help="where the results go; without it their types are printed")
    parser.add_argument("--batch", type=int, metavar="N", help="the size of dimensions that the signature leaves open")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="that share the rows of its arguments; 1")
    parser.add_argument("--program", metavar="FILE.mlir", help="where the program goes, as StableHLO")
    parser.add_argument("--predict", action="store_true", help="what a real slice would need, as `vtpu predict` says it")
    parser.add_argument("-t", "--slice", metavar="TYPE", help="the slice, e.g. v5litepod-1; else VTPU_ACCELERATOR_TYPE, else v3-8")
    return parser.parse_args()


def _choose(loaded, name):
    names = sorted(loaded.signatures)
    if not names:
        raise Error("it has no signatures: give tf.saved_model.save some, or use Model.export of Keras")
    name = name or ("serving_default" if "serving_default" in names else names[0] if len(names) == 1 else None)
    if name not in names:
        raise Error(f"it has the signatures {', '.join(names)}: name one with --signature")
    return loaded.signatures[name]


def _load(path):
    arrays = np.load(path)
    if not isinstance(arrays, np.lib.npyio.NpzFile):
        raise Error(f"{path} holds one array without a name: a .npz was expected")
    return dict(arrays)


def _specs(signature, given, batch):
    """Shapes and types of the arguments, by name: those of the arrays given, else of the signature."""
    specs = {}
    for name, spec in signature.structured_input_signature[1].items():
        shape = given[name].shape if name in given else [batch if size is None else size for size in spec.shape or []]
        if given and name not in given:
            raise Error(f"--input has no array {name}; the signature takes {', '.join(signature.structured_input_signature[1])}")
        if spec.shape.rank is None and name not in given or None in shape:
            raise Error(f"the signature leaves a size of {name} open, {spec.shape}: --batch or --input says it")
        if not spec.shape.is_compatible_with(shape):
            raise Error(f"{name} is {spec.shape}, --input has {list(shape)}")
        specs[name] = tf.TensorSpec(shape, spec.dtype, name)
    return specs


def _run_command(words):
    loaded = tf.saved_model.load(words.folder)  # keeps its variables
    signature = _choose(loaded, words.signature)
    given = _load(words.input) if words.input else {}
    specs = _specs(signature, given, words.batch)
    compiled = tf.function(lambda *tensors: signature(**dict(zip(specs, tensors, strict=True))), jit_compile=True, autograph=False)
    lowered = Lowered(compiled, list(specs.values()), words.devices)
    if words.program:
        with open(words.program, "w", encoding="utf-8") as file:
            file.write(lowered.text)
    if words.input:
        executable = Executable(lowered.text, words.slice)
        arrays = [np.asarray(given[name], spec.dtype.as_numpy_dtype) for name, spec in specs.items()]
        results = {name: result.numpy() for name, result in lowered.run(executable, arrays).items()}
        if words.output:
            np.savez(words.output, **results)
        else:
            for name, result in results.items():
                print(f"{name}: {result.dtype.name}{list(result.shape)}")
    if words.predict:
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(lowered.text)
            file.flush()
            return subprocess.run([program_path(), "predict", file.name, *(["-t", words.slice] if words.slice else [])], check=False).returncode
    if not words.input and not words.program:
        raise Error("nothing to do: --input runs it, --predict predicts it, --program writes it down")
    return 0


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = _words()
    try:
        return _run_command(words)
    except (Error, OSError, ValueError, tf.errors.OpError) as error:
        sys.exit(f"vtpu tf: {words.folder}: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main())
