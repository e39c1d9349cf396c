# SPDX-License-Identifier: Apache-2.0
"""Programs of one op each, at sizes where only the op counts: name -> (function, maker of its host arrays)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

MILLION = 1_000_000


def rng(seed=0):
    return np.random.default_rng(seed)


def floats(*shape, dtype=np.float32):
    return rng(len(shape)).standard_normal(shape).astype(dtype)


def complexes(*shape, dtype=np.complex64):
    return (floats(*shape) + 1j * floats(*shape)[::-1]).astype(dtype)


def indices(count, limit, *more, dtype=np.int32):
    return rng(count).integers(0, limit, (count, *more)).astype(dtype)


def symmetric(*shape):
    a = floats(*shape)
    return a + a.swapaxes(-1, -2)


def definite(*shape):
    a = floats(*shape)
    return a @ a.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1], dtype=np.float32)


def segments(reduce):
    return functools.partial(reduce, num_segments=1000), lambda: (floats(MILLION), indices(MILLION, 1000))


def at(method, dtype=np.float32, limit=MILLION, count=MILLION):
    def update(x, i, u):
        return getattr(x.at[i], method)(u)

    return update, lambda: (np.zeros(limit, dtype), indices(count, limit), floats(count).astype(dtype))


def embedding_gradient(table, tokens, back):
    return jax.vjp(lambda t: t[tokens], table)[1](back)[0]


def scattering():
    return {
        "segment_sum": segments(jax.ops.segment_sum),
        "segment_max": segments(jax.ops.segment_max),
        "segment_prod": segments(jax.ops.segment_prod),
        "segment_min": segments(jax.ops.segment_min),
        "segment_sum_squares": segments(lambda x, i, num_segments: jax.ops.segment_sum(x * x, i, num_segments)),
        "segment_sum_rows4": (functools.partial(jax.ops.segment_sum, num_segments=5000),
                              lambda: (floats(MILLION // 4, 4), indices(MILLION // 4, 5000))),
        "at_max_rows3": (lambda x, i, u: x.at[i].max(u),
                         lambda: (np.zeros((5000, 3), np.float32), indices(MILLION // 4, 5000), floats(MILLION // 4, 3))),
        "at_set": at("set"),
        "at_add": at("add"),
        "at_add_bf16": at("add", jnp.bfloat16),
        "at_add_i32": at("add", np.int32),
        "at_mul": at("multiply"),
        "at_max_relu": (lambda x, i, u: x.at[i].max(jax.nn.relu(u)), at("max")[1]),
        "at_add_1000": at("add", count=1000, limit=1000),
        "take_1000": (lambda x, i: x[i], lambda: (floats(1000), indices(1000, 1000))),
        "at_max_sorted": (lambda x, i, u: x.at[i].max(u, indices_are_sorted=True),
                          lambda: (np.zeros(MILLION, np.float32), np.sort(indices(MILLION, MILLION)), floats(MILLION))),
        "at_add_2d": (lambda x, i, j, u: x.at[i, j].add(u),
                      lambda: (np.zeros((1000, 1000), np.float32), indices(MILLION, 1000), indices(MILLION + 1, 1000)[1:],
                       floats(MILLION))),
        "at_set_2d": (lambda x, i, j, u: x.at[i, j].set(u),
                      lambda: (np.zeros((1000, 1000), np.float32), indices(MILLION, 1000), indices(MILLION + 1, 1000)[1:],
                       floats(MILLION))),
        "bincount": (functools.partial(jnp.bincount, length=1000), lambda: (indices(MILLION, 1000),)),
        "histogram": (lambda x: jnp.histogram(x, bins=100)[0], lambda: (floats(MILLION),)),
        "embedding_grad": (embedding_gradient, lambda: (np.zeros((10000, 64), np.float32), indices(16384, 10000), floats(16384, 64))),
        "take": (lambda x, i: jnp.take(x, i), lambda: (floats(MILLION), indices(MILLION, MILLION))),
        "take_rows4": (lambda x, i: x[i], lambda: (floats(MILLION // 4, 4), indices(MILLION // 4, MILLION // 4))),
        "take_2d": (lambda x, i, j: x[i, j], lambda: (floats(1000, 1000), indices(MILLION, 1000), indices(MILLION + 1, 1000)[1:])),
        "take_bf16": (lambda x, i: x[i], lambda: (floats(MILLION, dtype=jnp.bfloat16), indices(MILLION, MILLION))),
        "take_c64": (lambda x, i: x[i], lambda: (complexes(100_000), indices(MILLION, 100_000))),
        "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), lambda: (floats(1000, 1000), indices(1000, 1000, 1000))),
    }


def ordering():
    search = lambda method: (functools.partial(jnp.searchsorted, method=method),
                             lambda: (np.sort(floats(MILLION)), floats(100_000)))
    return {
        "sort": (jnp.sort, lambda: (floats(MILLION),)),
        "sort_i32": (jnp.sort, lambda: (indices(MILLION, 1 << 30),)),
        "sort_rows": (jnp.sort, lambda: (floats(10000, 100),)),
        "sort_columns": (lambda x: jnp.sort(x, 0), lambda: (floats(100, 10000),)),
        "sort_pairs": (lambda k, v: jax.lax.sort((k, v), num_keys=1), lambda: (indices(MILLION, 1000), floats(MILLION))),
        "sort_two_keys": (lambda k, v: jax.lax.sort((k, v), num_keys=2), lambda: (indices(MILLION, 1000), floats(MILLION))),
        "argsort": (jnp.argsort, lambda: (floats(MILLION),)),
        "unique": (functools.partial(jnp.unique, size=1000), lambda: (indices(MILLION, 1000),)),
        "top_k": (functools.partial(jax.lax.top_k, k=10), lambda: (floats(1000, 1000),)),
        "top_k_long": (functools.partial(jax.lax.top_k, k=100), lambda: (floats(MILLION),)),
        "searchsorted": search("scan"),
        "searchsorted_sort": search("sort"),
        "searchsorted_all": (functools.partial(jnp.searchsorted, method="compare_all"), lambda: (np.sort(floats(1000)), floats(10_000))),
        "searchsorted_1e6": (jnp.searchsorted, lambda: (np.sort(floats(1000)), floats(MILLION))),
        "median": (lambda x: jnp.median(x, 1), lambda: (floats(1000, 1000),)),
        "cumsum": (jnp.cumsum, lambda: (floats(MILLION),)),
        "cumprod": (jnp.cumprod, lambda: (1 + floats(MILLION) / 1e4,)),
        "cumsum_1e4": (jnp.cumsum, lambda: (floats(10_000),)),
        "cumsum_bf16": (jnp.cumsum, lambda: (floats(MILLION, dtype=jnp.bfloat16),)),
        "cumsum_c64": (jnp.cumsum, lambda: (complexes(MILLION),)),
        "argmax": (jnp.argmax, lambda: (floats(MILLION),)),
        "argmax_i32": (jnp.argmax, lambda: (indices(MILLION, 1000),)),
        "argmax_rows_i32": (lambda x: jnp.argmax(x, 1), lambda: (indices(1000, 1000, 1000),)),
        "cummax_rows": (lambda x: jax.lax.cummax(x, 1), lambda: (floats(1000, 1000),)),
    }


def fourier():
    return {
        "fft_8192x1024": (jnp.fft.fft, lambda: (complexes(8192, 1024),)),
        "ifft_1000x1000": (jnp.fft.ifft, lambda: (complexes(1000, 1000),)),
        "fft_prime": (jnp.fft.fft, lambda: (complexes(256, 1009),)),
        "fft_axis0": (lambda x: jnp.fft.fft(x, axis=0), lambda: (complexes(1024, 1024),)),
        "fft_1e6": (jnp.fft.fft, lambda: (complexes(1 << 20),)),
        "fft_small": (jnp.fft.fft, lambda: (complexes(100_000, 12),)),
        "rfft": (jnp.fft.rfft, lambda: (floats(4096, 1024),)),
        "irfft": (jnp.fft.irfft, lambda: (complexes(4096, 513),)),
        "rfft_mixed": (jnp.fft.rfft, lambda: (floats(1000, 1500),)),
        "fft2": (jnp.fft.fft2, lambda: (complexes(16, 256, 256),)),
        "fft3": (jnp.fft.fftn, lambda: (complexes(64, 64, 60),)),
        "stft": (lambda x: jax.scipy.signal.stft(x, nperseg=256)[2], lambda: (floats(MILLION),)),
        "fftconvolve": (functools.partial(jax.scipy.signal.fftconvolve, mode="full"), lambda: (floats(1024, 1024), floats(64, 64))),
        "dct": (jax.scipy.fft.dct, lambda: (floats(1000, 256),)),
        "convolve": (functools.partial(jnp.convolve, precision="highest"), lambda: (floats(100_000), floats(64))),
    }


def linear():
    batch, one = (1000, 8, 8), (512, 512)
    solve = lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True)
    return {
        "eigh": (jnp.linalg.eigh, lambda: (symmetric(*batch),)),
        "eigh_512": (jnp.linalg.eigh, lambda: (symmetric(*one),)),
        "svd": (jnp.linalg.svd, lambda: (floats(*batch),)),
        "svd_tall": (functools.partial(jnp.linalg.svd, full_matrices=False), lambda: (floats(200, 32, 8),)),
        "svd_512": (jnp.linalg.svd, lambda: (floats(*one),)),
        "qr": (jnp.linalg.qr, lambda: (floats(*batch),)),
        "qr_512": (jnp.linalg.qr, lambda: (floats(*one),)),
        "cholesky": (jnp.linalg.cholesky, lambda: (definite(*batch),)),
        "cholesky_512": (jnp.linalg.cholesky, lambda: (definite(*one),)),
        "inv": (jnp.linalg.inv, lambda: (definite(*batch),)),
        "inv_512": (jnp.linalg.inv, lambda: (definite(*one),)),
        "solve": (jnp.linalg.solve, lambda: (definite(*batch), floats(1000, 8, 1))),
        "det": (jnp.linalg.det, lambda: (definite(*batch),)),
        "slogdet": (jnp.linalg.slogdet, lambda: (definite(*batch),)),
        "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], lambda: (floats(512, 64), floats(512))),
        "triangular": (jax.vmap(solve), lambda: (definite(*batch), floats(1000, 8, 4))),
        "triangular_512": (solve, lambda: (definite(*one), floats(512, 64))),
    }


def tokens(x, vocabulary, *weights):
    """The products of the blocks of a small GPT-2, and with its vocabulary."""
    for qkv, out, up, down in zip(*[iter(weights)] * 4):
        x = x + (x @ qkv)[:, :768] @ out
        x = x + jax.nn.gelu(x @ up) @ down
    return x @ vocabulary.T


def attention(queries, keys, values):
    """Of the next token of a few texts: queries [text, head, of its group, width], keys and values [text, position, head, width]."""
    scores = jnp.einsum("bhgd,bshd->bhgs", queries, keys)
    return jnp.einsum("bhgs,bshd->bhgd", jax.nn.softmax(scores), values)


def decoding():
    shapes = [(50257, 768)] + 4 * [(768, 2304), (768, 768), (768, 3072), (3072, 768)]
    weights = lambda dtype: [(0.02 * floats(*shape)).astype(dtype) for shape in shapes]
    rows = lambda count, dtype: (tokens, lambda: (floats(count, 768).astype(dtype), *weights(dtype)))
    heads = lambda of, group, width, dtype: (attention, lambda: tuple(
        floats(*shape).astype(dtype) for shape in ((8, of, group, width), *2 * [(8, 512, of, width)])))
    types = (("f32", np.float32), ("bf16", jnp.bfloat16))
    return ({f"tokens{count}_{name}": rows(count, dtype) for count in (1, 8) for name, dtype in types}
            | {f"heads_{name}": heads(12, 1, 64, dtype) for name, dtype in types}
            | {f"grouped_{name}": heads(8, 4, 128, dtype) for name, dtype in types})


def imaging():
    resize = lambda method: (lambda x: jax.image.resize(x, (8, 448, 448, 3), method), lambda: (floats(8, 224, 224, 3),))
    return {f"resize_{method}": resize(method) for method in ("nearest", "bilinear", "bicubic", "lanczos3")}


def moving():
    square = lambda f, dtype=np.float32: (f, lambda: (floats(1000, 1000, dtype=dtype),))
    return {"repeat": square(lambda x: jnp.repeat(x, 2, 1)), "flip": (jnp.flip, lambda: (floats(MILLION),)),
            "flip_rows": square(lambda x: jnp.flip(x, 1)), "flip_rows_bf16": square(lambda x: jnp.flip(x, 1), jnp.bfloat16)}


def sampling():
    draw = lambda f: (lambda seed: f(jax.random.key(seed)), lambda: (np.uint32(1),))
    logits = np.log(np.arange(1, 101, dtype=np.float32))
    return {
        "gamma": draw(lambda k: jax.random.gamma(k, 2.5, (100_000,))),
        "gamma_small": draw(lambda k: jax.random.gamma(k, 0.5, (1000,))),
        "beta": draw(lambda k: jax.random.beta(k, 2.0, 3.0, (20_000,))),
        "dirichlet": draw(lambda k: jax.random.dirichlet(k, jnp.full(10, 0.7), (2000,))),
        "split_normal": draw(lambda k: jax.vmap(jax.random.normal)(jax.random.split(k, 100_000))),
        "poisson": draw(lambda k: jax.random.poisson(k, 20.0, (100_000,))),
        "permutation": draw(lambda k: jax.random.permutation(k, 100_000)),
        "choice": draw(lambda k: jax.random.choice(k, 100_000, (10_000,), replace=False)),
        "categorical": draw(lambda k: jax.random.categorical(k, logits, shape=(10_000,))),
    }


def checkpointed(state, kept):
    """A loop that keeps one state in eight, as the reverse mode of long loops does."""

    def step(carry):
        i, x, kept = carry
        keep = lambda kept: jax.lax.dynamic_update_index_in_dim(kept, x, i // 8, 0)
        return i + 1, jnp.tanh(x * 1.01), jax.lax.cond(i % 8 == 0, keep, lambda kept: kept, kept)

    return jax.lax.while_loop(lambda carry: carry[0] < 500, step, (0, state, kept))


def controlling():
    return {"checkpointed": (checkpointed, lambda: (floats(16384), np.zeros((64, 16384), np.float32)))}


def mathematical():
    """Functions of many elements that fit in a near cache, a hundred times."""
    repeat = lambda f: (lambda x: jax.lax.fori_loop(0, 100, lambda _, x: f(x) * 0.5 + 1.1, x), lambda: (floats(16384),))
    positive = lambda f: lambda x: f(jnp.abs(x) + 0.1)
    functions = {"exp": jnp.exp, "log": lambda x: jnp.log(jnp.abs(x)), "log1p": lambda x: jnp.log1p(jnp.abs(x)), "expm1": jnp.expm1,
                 "tanh": jnp.tanh, "logistic": jax.lax.logistic, "rsqrt": lambda x: jax.lax.rsqrt(jnp.abs(x)), "sin": jnp.sin,
                 "cos": jnp.cos, "tan": jnp.tan, "cbrt": jnp.cbrt, "power": positive(lambda x: x ** (x - 1.5)),
                 "atan2": lambda x: jnp.arctan2(x, x - 1.5), "asin": lambda x: jnp.arcsin(x * 0.1), "acosh": lambda x: jnp.arccosh(x + 2),
                 "asinh": jnp.arcsinh, "atanh": lambda x: jnp.arctanh(x * 0.1), "sinh": jnp.sinh, "cosh": jnp.cosh,
                 "erf": jax.lax.erf, "erfc": jax.lax.erfc, "erf_inv": lambda x: jax.lax.erf_inv(x * 0.1),
                 "lgamma": positive(jax.lax.lgamma), "digamma": positive(jax.lax.digamma), "i0e": jax.lax.bessel_i0e,
                 "remainder": lambda x: jax.lax.rem(x * 9, x), "gelu": functools.partial(jax.nn.gelu, approximate=False)}
    rows = {name: repeat(function) for name, function in functions.items()}
    divided = lambda f, dtype: (f, lambda: (indices(MILLION, 100, dtype=dtype), 1 + indices(MILLION + 1, 10, dtype=dtype)[1:]))
    complex_pair = lambda f: (f, lambda: (complexes(MILLION), complexes(1, MILLION)[0]))
    narrow = lambda f, dtype: (f, lambda: (floats(MILLION, dtype=dtype),))
    return rows | {
        "divide_i32": divided(jax.lax.div, np.int32), "remainder_i32": divided(jax.lax.rem, np.int32),
        "divide_u8": divided(jax.lax.div, np.uint8), "power_i32": divided(jnp.power, np.int32),
        "integer_power": narrow(lambda x: x ** 7, np.float32), "round": narrow(jax.lax.round, np.float32),
        "exp_bf16": narrow(jnp.exp, jnp.bfloat16), "erf_bf16": narrow(jax.lax.erf, jnp.bfloat16), "tanh_f16": narrow(jnp.tanh, np.float16),
        "multiply_c64": complex_pair(jax.lax.mul), "divide_c64": complex_pair(jax.lax.div), "abs_c64": complex_pair(lambda x, y: jnp.abs(x)),
        "exp_c64": complex_pair(lambda x, y: jnp.exp(x)), "log_c64": complex_pair(lambda x, y: jnp.log(x)),
        "conj_c64": complex_pair(lambda x, y: jnp.conj(x)), "square_c64": complex_pair(lambda x, y: x * x),
        "power_density_c64": complex_pair(lambda x, y: (x * jnp.conj(x)).real), "sign_c64": complex_pair(lambda x, y: jnp.sign(x)),
        "exp_1e4": (jnp.exp, lambda: (floats(10_000),)), "tanh_1e4": (jnp.tanh, lambda: (floats(10_000),)),
        "tanh_c64": complex_pair(lambda x, y: jnp.tanh(x)), "power_c64": complex_pair(jax.lax.pow)}


GROUPS = {"scatter": scattering, "move": moving, "order": ordering, "fft": fourier, "linalg": linear, "decode": decoding, "resize": imaging,
          "random": sampling, "control": controlling, "math": mathematical}


def names():
    return [f"{group}/{program}" for group, programs in GROUPS.items() for program in programs()]


def find(name):
    """The function and its arrays."""
    group, program = name.split("/")
    function, make = GROUPS[group]()[program]
    return function, make()
