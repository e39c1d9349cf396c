#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs JAX programs on XLA:CPU and on vtpu's evaluator, in one process, and compares.

  differential.py [--seed N] [--rounds N] [--only TEXT] [--verbose]

The plugin is found as JAX finds it (TPU_LIBRARY_PATH); VTPU_EVALUATOR=1 is set here, so that what is tested is src/eval.
Each case is a function, arguments and a tolerance in units in the last place of the result's type (0: equal bits but
for NaN). Prints a line per case that differs and one per group; exit status 1 when a case differs, 77 without JAX.
"""

import argparse
import os
import sys

os.environ["VTPU_EVALUATOR"] = "1"
os.environ["JAX_PLATFORMS"] = "tpu,cpu"
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
except ImportError:
    print("no JAX in this Python: nothing run")
    sys.exit(77)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")

FLOATS = ["float32", "float64", "bfloat16", "float16"]
SMALL_FLOATS = ["float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz",
                "float8_e4m3", "float8_e3m4", "float4_e2m1fn"]
COMPLEX = ["complex64", "complex128"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SMALL_INTS = ["int4", "uint4", "int2", "uint2"]
# XLA:CPU computes 8-bit floats in f16 and rounds twice: transcendental functions may land on the neighbour.
MANTISSA = {"float8_e5m2": 2, "float8_e4m3fn": 3, "float8_e4m3b11fnuz": 3, "float8_e5m2fnuz": 2, "float8_e4m3fnuz": 3,
            "float8_e4m3": 3, "float8_e3m4": 4, "float4_e2m1fn": 1, "float32": 23, "float64": 52,
            "bfloat16": 7, "float16": 10, "complex64": 23, "complex128": 52}


class Group:
    def __init__(self, name):
        self.name, self.cases, self.failed, self.refused, self.worst = name, 0, [], 0, 0.0


def ulps(got, want):
    """The largest distance in units in the last place of the wanted value; infinity where one side alone is NaN."""
    if want.dtype.kind == "c":
        return max(ulps(got.real, want.real), ulps(got.imag, want.imag))
    name = str(want.dtype)
    if name not in MANTISSA:
        same = np.asarray(got == want) | (np.asarray(got != got) & np.asarray(want != want))
        return 0.0 if same.all() else float("inf")
    g, w = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    with np.errstate(all="ignore"):
        tiny = float(jnp.finfo(want.dtype).smallest_normal)
        step = np.maximum(np.abs(w), tiny) * 2.0 ** -MANTISSA[name]
        distance = np.where(same, 0.0, np.abs(g - w) / step)
    distance = np.where(np.isnan(distance) | np.isinf(distance), float("inf"), distance)
    return float(distance.max(initial=0.0))


def relative(got, want):
    """The largest error relative to the largest wanted magnitude: for sums, where single elements may cancel."""
    g, w = np.asarray(got, np.complex128).ravel(), np.asarray(want, np.complex128).ravel()
    if not g.size:
        return 0.0
    return float(np.abs(g - w).max() / (np.abs(w).max() + 1e-30))


def run_case(group, options, label, function, args, tolerance, measure=ulps):
    if options.only and options.only not in f"{group.name} {label}":
        return
    jitted = jax.jit(function)
    try:
        with jax.default_device(jax.devices("cpu")[0]):
            want = [np.asarray(x) for x in jax.tree.leaves(jitted(*args))]
    except Exception as error:
        if options.verbose:
            print(f"  {group.name} {label}: XLA:CPU refuses: {str(error)[:100]}")
        return
    group.cases += 1
    try:
        got = [np.asarray(x) for x in jax.tree.leaves(jitted(*args))]
    except Exception as error:
        group.refused += 1
        group.failed.append(label)
        print(f"  {group.name} {label}: {str(error)[:200]}")
        return
    for i, (g, w) in enumerate(zip(got, want)):
        distance = float("inf") if g.shape != w.shape or g.dtype != w.dtype else measure(g, w)
        if distance > tolerance:
            group.failed.append(label)
            g, w = g.ravel(), w.ravel()
            bad = [k for k in range(g.size) if not (g[k] == w[k] or (g[k] != g[k] and w[k] != w[k]))][:4]
            at = [tuple(np.asarray(a).ravel()[k] for a in args if np.size(a) == g.size) for k in bad]
            print(f"  {group.name} {label}: result {i} off by {distance:.3g}: {at} -> {g[bad]}, XLA {w[bad]}")
            return
        group.worst = max(group.worst, distance)


def run_many(group, options, cases, where, args, tolerance, measure=ulps):
    """Many functions of the same arguments, compiled as one program; one by one when something is not right."""
    functions = {name: op for name, op in cases.items() if not options.only or options.only in f"{group.name} {name} {where}"}
    if not functions:
        return
    together = jax.jit(lambda *a: [op(*a) for op in functions.values()])
    try:
        with jax.default_device(jax.devices("cpu")[0]):
            want = [np.asarray(x) for x in together(*args)]
        got = [np.asarray(x) for x in together(*args)]
        distances = [measure(g, w) for g, w in zip(got, want)]
        if max(distances) <= tolerance:
            group.cases += len(functions)
            group.worst = max(group.worst, *distances)
            return
    except Exception:
        pass
    for name, op in functions.items():
        run_case(group, options, f"{name} {where}", op, args, tolerance, measure)


def float_values(dtype, rng, n=200):
    special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5, 3.0, 100.0, -100.0, 1e4, 1e-4, np.inf, -np.inf, np.nan, 88.5, -87.0, 0.1]
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(special), rng.normal(0, 3, n), rng.normal(0, 1, n) * 10.0 ** rng.integers(-6, 6, n)]
                              ).astype(dtype)


def int_values(dtype, rng, n=200):
    info = jnp.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    special = [0, 1, 2, 3, high, low, high - 1, low + 1, high // 2, min(high, 8), min(high, 7)]
    values = special + [int(x) for x in rng.integers(max(low, -2**62), min(high, 2**62), n, dtype=np.int64)]
    values += [int(x) % (min(high, 40) + 1) for x in rng.integers(0, 1000, n)]
    return np.array(values, dtype=np.int64 if low < 0 or high < 2**63 else np.uint64).astype(dtype)


def pair(values, rng):
    other = values.copy()
    rng.shuffle(other)
    return np.concatenate([np.repeat(values[:14], 14), values]), np.concatenate([np.tile(values[:14], 14), other])


def elementwise(group, options, rng):
    exact = dict(neg=lax.neg, abs=lax.abs, sign=lax.sign, floor=lax.floor, ceil=lax.ceil, round=lax.round,
                 round_even=lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), is_finite=lax.is_finite,
                 clamp=lambda x: lax.clamp(x[3], x, x[7]))
    for e, m in ((5, 10), (8, 7), (4, 3), (5, 2), (2, 1), (11, 30)):
        exact[f"reduce_precision {e} {m}"] = lambda x, e=e, m=m: lax.reduce_precision(x, e, m)
    # XLA:CPU's own formulas are off by a few units; what is compared here is that nothing is off by more.
    loose = dict(exp=lax.exp, expm1=lax.expm1, log=lax.log, log1p=lax.log1p, logistic=lax.logistic, tanh=lax.tanh,
                 sin=lax.sin, cos=lax.cos, tan=lax.tan, sqrt=lax.sqrt, rsqrt=lax.rsqrt, cbrt=lax.cbrt)
    exact2 = dict(add=lax.add, sub=lax.sub, mul=lax.mul, div=lax.div, max=lax.max, min=lax.min, rem=lax.rem, eq=lax.eq,
                  ne=lax.ne, lt=lax.lt, le=lax.le, gt=lax.gt, ge=lax.ge)
    for dtype in FLOATS + SMALL_FLOATS:
        x = float_values(dtype, rng)
        a, b = pair(x, rng)
        run_many(group, options, exact, dtype, (x,), 0)
        run_many(group, options, loose, dtype, (x,), {"float32": 8, "float64": 512}.get(dtype, 1))
        run_many(group, options, exact2, dtype, (a, b), 0)
        run_many(group, options, dict(pow=lax.pow, atan2=lax.atan2), dtype, (a, b), {"float32": 16, "float64": 512}.get(dtype, 2))
    unary = dict(neg=lax.neg, abs=lax.abs, sign=lax.sign, popcnt=lax.population_count, clz=lax.clz, invert=lax.bitwise_not)
    binary = dict(add=lax.add, sub=lax.sub, mul=lax.mul, div=lax.div, rem=lax.rem, max=lax.max, min=lax.min, pow=lax.pow,
                  and_=lax.bitwise_and, or_=lax.bitwise_or, xor=lax.bitwise_xor, lt=lax.lt, ge=lax.ge, eq=lax.eq,
                  shl=lax.shift_left, shr=lax.shift_right_logical, sar=lax.shift_right_arithmetic)
    for dtype in INTS + SMALL_INTS:
        x = int_values(dtype, rng)
        # XLA counts the sign bits of a whole byte in an int4.
        counted = {name: op for name, op in unary.items() if name != "popcnt" or dtype not in ("int4", "int2")}
        run_many(group, options, counted, dtype, (x,), 0)
        run_many(group, options, binary, dtype, pair(x, rng), 0)
    unary = dict(exp=lax.exp, log=lax.log, sqrt=lax.sqrt, tanh=lax.tanh, sin=lax.sin, cos=lax.cos, tan=lax.tan,
                 expm1=lax.expm1, log1p=lax.log1p, neg=lax.neg, abs=lax.abs, sign=lax.sign, rsqrt=lax.rsqrt, real=lax.real,
                 imag=lax.imag, conj=lax.conj, logistic=lax.logistic)
    binary = dict(add=lax.add, sub=lax.sub, mul=lax.mul, div=lax.div, pow=lax.pow, eq=lax.eq, atan2=lax.atan2)
    for dtype in COMPLEX:
        x = (rng.normal(0, 2, 200) + 1j * rng.normal(0, 2, 200)).astype(dtype)
        y = (rng.normal(0, 2, 200) + 1j * rng.normal(0, 2, 200)).astype(dtype)
        run_many(group, options, unary, dtype, (x,), 2e-5 if dtype == "complex64" else 1e-12, relative)
        run_many(group, options, binary, dtype, (x, y), 2e-4 if dtype == "complex64" else 1e-11, relative)


def conversions(group, options, rng):
    types = FLOATS + SMALL_FLOATS + ["float8_e8m0fnu"] + INTS + SMALL_INTS + ["bool"] + COMPLEX
    for source in types:
        if source == "bool":
            x = np.array([True, False])
        elif source in INTS + SMALL_INTS:
            x = int_values(source, rng)
        else:
            x = float_values(np.float64, rng)
            x = np.concatenate([x, [464, 465, 65519, 65520, 1e30, -1e30, 6.2e-5, 5.9e-8, 2.9e-8, 0.75, 240, 247, 248, 300]])
            with np.errstate(all="ignore"):
                x = x.astype(source)
        # XLA takes the largest f4 for infinity when it makes integers of it.
        targets = [t for t in types if not (source == "float4_e2m1fn" and t in INTS + SMALL_INTS)]
        run_many(group, options, {target: lambda x, target=target: lax.convert_element_type(x, target) for target in targets},
                 f"from {source}", (x,), 0)
    for source, target in (("float32", "uint32"), ("float64", "uint32"), ("uint8", "uint4"), ("bfloat16", "int8"),
                           ("uint64", "float32"), ("uint32", "uint4"), ("int16", "int4")):
        x = float_values(source, rng) if source in FLOATS else int_values(source, rng)
        run_case(group, options, f"bitcast {source} to {target}", lambda x: lax.bitcast_convert_type(x, target), (x,), 0)


def random_dims(rng, rank, most=6):
    return tuple(int(x) for x in rng.integers(1, most, rank))


def data(rng, shape, dtype):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-20 if np.dtype(dtype).kind == "i" else 0, 20, shape).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (rng.integers(-8, 8, shape) + 1j * rng.integers(-8, 8, shape)).astype(dtype)
    return (rng.integers(-64, 64, shape) / 8).astype(dtype)


def movement(group, options, rng):
    for dtype in ("float32", "int8", "bfloat16", "complex128", "bool", "int4"):
        base = "int8" if dtype == "int4" else dtype
        shape = random_dims(rng, 3, 7)
        x = data(rng, shape, base).astype(dtype)
        order = tuple(int(i) for i in rng.permutation(3))
        starts = [int(rng.integers(0, s)) for s in shape]
        limits = [int(rng.integers(a + 1, s + 1)) for a, s in zip(starts, shape)]
        steps = [int(i) for i in rng.integers(1, 4, 3)]
        config = [tuple(int(v) for v in rng.integers(-2, 4, 2)) + (int(rng.integers(0, 3)),) for _ in shape]
        config = [(max(lo, -(s - 1)), max(hi, 0), i) for (lo, hi, i), s in zip(config, shape)]
        cases = dict(
            transpose=lambda x: lax.transpose(x, order), reverse=lambda x: lax.rev(x, (0, 2)),
            slice=lambda x: lax.slice(x, starts, limits, steps), concat=lambda x: lax.concatenate([x, x[:, :0], x], 1),
            pad=lambda x: lax.pad(x, x[0, 0, 0], config), tile=lambda x: jnp.tile(x, (2, 1, 3)),
            broadcast=lambda x: lax.broadcast_in_dim(x, (2,) + shape, (1, 2, 3)),
            dynamic_slice=lambda x: lax.dynamic_slice(x, (99, -3, 1), (1,) + shape[1:]),
            dynamic_update=lambda x: lax.dynamic_update_slice(x, x[:1], (1, -9, 3)),
            reshape=lambda x: x.reshape(-1), select=lambda x: jnp.where(x[..., :1] == x[0, 0, 0], x, x[:1]),
        )
        run_many(group, options, cases, f"{dtype} {shape}", (x,), 0)


def indexing(group, options, rng):
    for dtype in ("float32", "int32", "bfloat16", "int64"):
        n, m = (int(v) for v in rng.integers(5, 9, 2))
        x = data(rng, (n, m, 4), dtype)
        index = rng.integers(-n, 2 * n, (5, 2)).astype(np.int32)
        column = rng.integers(0, m, (5, 2)).astype(np.int64)
        updates = data(rng, (5, 2, m, 4), dtype)
        for mode in ("clip", "fill", "drop", "wrap"):
            if mode != "drop" and mode != "wrap":
                run_case(group, options, f"gather {mode} {dtype}", lambda x, i: x.at[i].get(mode=mode), (x, index), 0)
                run_case(group, options, f"gather 2d {mode} {dtype}", lambda x, i, j: x.at[i, j, 1:3].get(mode=mode),
                         (x, index, column), 0)
            for name in ("set", "add", "max", "min", "multiply") if mode in ("clip", "drop") else ():
                places, values = index, updates
                if name == "set":  # which of two updates of one place wins is open: all places differ
                    places, values = rng.permutation(2 * n)[:10].reshape(5, 2).astype(np.int32), updates
                    if mode == "clip":
                        places, values = rng.permutation(n)[:2].astype(np.int32), updates[0, :2]
                run_case(group, options, f"scatter {name} {mode} {dtype}",
                         lambda x, i, u: getattr(x.at[i], name)(u, mode=mode), (x, places, values), 4, relative_small)
        run_case(group, options, f"take_along {dtype}", lambda x, i: jnp.take_along_axis(x, i, 1),
                 (x, rng.integers(0, m, (n, 3, 4))), 0)


def relative_small(got, want):
    """In units of the type's precision."""
    return relative(got, want) * 2.0 ** MANTISSA.get(str(want.dtype), 60)


def contractions(group, options, rng):
    for dtype in ("float32", "float64", "bfloat16", "float16", "complex64", "int8", "int32", "uint16", "int64"):
        b, i, j, k, extra = random_dims(rng, 5, 20)
        limit = 64 if dtype in MANTISSA else 0
        cases = {
            "matmul": (lambda x, y: x @ y, (i, k), (k, j)), "matvec": (lambda x, y: x @ y, (i, k), (k,)),
            "batched": (lambda x, y: jnp.einsum("bik,bkj->bij", x, y), (b, i, k), (b, k, j)),
            "swapped": (lambda x, y: jnp.einsum("kib,jbk->bij", x, y), (k, i, b), (j, b, k)),
            "two": (lambda x, y: lax.dot_general(x, y, (((0, 2), (1, 0)), ((), ()))), (k, i, extra), (extra, k, j)),
            "outer": (lambda x, y: jnp.outer(x, y), (i,), (j,)), "inner": (lambda x, y: x @ y, (700,), (700,)),
            "empty": (lambda x, y: x @ y, (i, 0), (0, j)),
        }
        for name, (op, sx, sy) in cases.items():
            x, y = data(rng, sx, dtype), data(rng, sy, dtype)
            run_case(group, options, f"{name} {dtype} {sx} {sy}", op, (x, y), limit, relative_small)
    for _ in range(8):
        (half, c, o), (h, w), g = random_dims(rng, 3, 4), random_dims(rng, 2, 9), 2
        n = 2 * half
        kernel = random_dims(rng, 2, 4)
        strides, rhs, lhs = (tuple(int(v) for v in rng.integers(1, 3, 2)) for _ in range(3))
        padding = [tuple(int(v) for v in rng.integers(0, 4, 2)) for _ in range(2)]
        for layout in (("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("HWCN", "IHWO", "CNHW")):
            for groups, batch_groups in ((1, 1), (g, 1), (1, g)):
                sizes = dict(N=n, C=c * groups, H=h, W=w)
                ksizes = dict(O=o * groups * batch_groups, I=c, H=kernel[0], W=kernel[1])
                x = data(rng, [sizes[d] for d in layout[0]], "float32")
                y = data(rng, [ksizes[d] for d in layout[1]], "float32")
                run_case(group, options, f"conv {layout[0]} {groups} {batch_groups} {strides} {padding} {lhs} {rhs}",
                         lambda x, y: lax.conv_general_dilated(x, y, strides, padding, lhs, rhs, layout, groups, batch_groups),
                         (x, y), 64, relative_small)


def reductions(group, options, rng):
    for dtype in ("float32", "float64", "bfloat16", "int32", "uint8", "complex64", "int64", "float16"):
        for shape, axes in (((6, 7, 8), (1,)), ((300, 5), (0,)), ((5, 300), (1,)), ((4, 5, 6), (0, 2)), ((2000,), (0,)),
                            ((3, 0, 2), (1,)), ((70, 3, 70), (0, 2))):
            x = data(rng, shape, dtype)
            prod = lambda x, axis: jnp.prod(x[..., :2] / 4 if x.dtype.kind == "f" else x, axis=axis)
            for name, op in dict(sum=jnp.sum, prod=prod, max=jnp.max, min=jnp.min, argmax=jnp.argmax, argmin=jnp.argmin,
                                 any=jnp.any, all=jnp.all).items():
                if name in ("argmax", "argmin") and len(axes) > 1 or not x.size and name in ("max", "min", "argmax", "argmin"):
                    continue
                axis = axes[0] if name in ("argmax", "argmin") else axes
                run_case(group, options, f"{name} {dtype} {shape} {axes}", lambda x: op(x, axis=axis), (x,), 64, relative_small)
        x = data(rng, (5, 9, 7), dtype)
        for name, op in dict(cumsum=jnp.cumsum, cumprod=lambda x, axis: jnp.cumprod(x[:, :3], axis), cummax=lax.cummax).items():
            if dtype != "complex64":
                run_case(group, options, f"{name} {dtype}", lambda x: op(x, axis=1), (x,), 64, relative_small)
        run_case(group, options, f"cumlogsumexp {dtype}", lambda x: lax.cumlogsumexp(x, axis=1), (x,), 64, relative_small)
    for dtype in ("float32", "int32", "bfloat16"):
        for window, strides, padding, base, dilation in (
                ((3, 2), (1, 2), ((1, 1), (0, 2)), (1, 1), (1, 1)), ((2, 2), (2, 3), ((0, 0), (0, 0)), (2, 1), (1, 3)),
                ((1, 4), (1, 1), ((-1, 2), (3, -1)), (1, 2), (2, 1)), ((9, 1), (1, 1), ((8, 0), (0, 0)), (1, 1), (1, 1))):
            x = data(rng, (9, 10), dtype)
            for name, op, init in (("add", lax.add, 0), ("max", lax.max, -100), ("mul", lax.mul, 1)):
                run_case(group, options, f"reduce_window {name} {dtype} {window}", lambda x: lax.reduce_window(
                    x if name != "mul" else x % 3 + 1, np.array(init, x.dtype), op, window, strides, padding, base, dilation),
                         (x,), 64, relative_small)
    x = rng.permutation(160).reshape(10, 16).astype(np.float32)
    pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (2, 2), "SAME")
    run_case(group, options, "select_and_scatter", jax.grad(lambda x: (pool(x) ** 2).sum()), (x,), 4, relative_small)


def sorting(group, options, rng):
    for dtype in ("float32", "float64", "bfloat16", "int32", "uint64", "int8", "float16", "bool"):
        for shape, axis in (((50,), 0), ((6, 40), 1), ((40, 6), 0), ((3, 17, 4), 1)):
            x = data(rng, shape, dtype)
            if dtype in FLOATS:
                x.ravel()[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, -np.nan]
            run_case(group, options, f"sort {dtype} {shape}", lambda x: lax.sort(x, dimension=axis), (x,), 0)
            run_case(group, options, f"argsort {dtype} {shape}", lambda x: jnp.argsort(x, axis=axis), (x,), 0)
            run_case(group, options, f"descending {dtype} {shape}", lambda x: jnp.sort(x, axis=axis, descending=True), (x,), 0)
            run_case(group, options, f"two keys {dtype} {shape}", lambda x: lax.sort(
                (x, x[::-1], jnp.arange(x.size).reshape(x.shape)), dimension=axis, num_keys=2), (x,), 0)
        if dtype != "bool":
            run_case(group, options, f"top_k {dtype}", lambda x: lax.top_k(x, 5), (data(rng, (4, 30), dtype),), 0)


def transforms(group, options, rng):
    for n in (1, 2, 5, 8, 12, 31, 100, 127):
        x = (rng.normal(size=(3, n)) + 1j * rng.normal(size=(3, n))).astype(np.complex64)
        for name, op in dict(fft=jnp.fft.fft, ifft=jnp.fft.ifft, rfft=lambda x: jnp.fft.rfft(x.real),
                             irfft=lambda x: jnp.fft.irfft(x, n=max(1, 2 * (x.shape[-1] - 1) + 1)), fft2=jnp.fft.fft2,
                             fftn_wide=lambda x: jnp.fft.fftn(x.astype(np.complex128))).items():
            run_case(group, options, f"{name} {n}", op, (x,), 64, relative_small)
    for dtype in ("float32", "float64", "complex64"):
        a = data(rng, (2, 9, 9), dtype)
        spd = a @ np.conj(np.swapaxes(a, -1, -2)) + 40 * np.eye(9, dtype=dtype)
        run_case(group, options, f"cholesky {dtype}", jnp.linalg.cholesky, (spd,), 512, relative_small)
        for left, lower, transpose, unit in ((1, 1, 0, 0), (1, 0, 1, 0), (0, 1, 1, 0), (0, 0, 0, 1)):
            def solve(a, b):
                return lax.linalg.triangular_solve(
                    a / 10 + 8 * jnp.eye(9, dtype=a.dtype), b if left else b.swapaxes(-1, -2), left_side=bool(left),
                    lower=bool(lower), transpose_a=bool(transpose), unit_diagonal=bool(unit))
            run_case(group, options, f"triangular_solve {dtype} {left}{lower}{transpose}{unit}", solve,
                     (a, data(rng, (2, 9, 4), dtype)), 4096, relative_small)
        factors = lambda a: (lambda q, r: (q @ r, jnp.abs(r)))(*jnp.linalg.qr(a))
        run_case(group, options, f"qr {dtype}", factors, (spd,), 4096, relative_small)
        run_case(group, options, f"lu {dtype}", jax.scipy.linalg.lu, (spd,), 4096, relative_small)
        run_case(group, options, f"eigvalsh {dtype}", jnp.linalg.eigvalsh, (spd,), 4096, relative_small)


def randomness(group, options, rng):
    for algorithm in ("rng_default", "rng_three_fry", "rng_philox"):
        for dtype in ("uint8", "uint16", "uint32", "uint64"):
            for shape in ((), (7,), (3, 5), (4, 6, 2), (5, 3, 1)):
                key = rng.integers(0, 2**32, 4, dtype=np.uint32)
                run_case(group, options, f"{algorithm} {dtype} {shape}", lambda key: lax.rng_bit_generator(
                    key, shape, dtype=dtype, algorithm=getattr(lax.RandomAlgorithm, algorithm.upper())), (key,), 0)
    for name, op in dict(normal=jax.random.normal, uniform=jax.random.uniform, gumbel=jax.random.gumbel).items():
        run_case(group, options, name, lambda: op(jax.random.key(3), (100,)), (), 64, relative_small)
    run_case(group, options, "permutation", lambda: jax.random.permutation(jax.random.key(1), 50), (), 0)
    draw = lambda: jax.random.categorical(jax.random.key(1), jnp.arange(8.0), shape=(50,))
    run_case(group, options, "categorical", draw, (), 0)


def control(group, options, rng):
    x = rng.normal(size=(8, 5)).astype(np.float32)
    cases = dict(
        scan=lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x),
        fori=lambda x: lax.fori_loop(0, 10, lambda i, s: s.at[i % 8].add(i), x),
        while_loop=lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5, s[2]), (0, x, x + 1)),
        never=lambda x: lax.while_loop(lambda s: s.sum() > 1e9, lambda s: s + 1, x),
        cond=lambda x: lax.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x * 2, x),
        switch=lambda x: [lax.switch(i, [lambda x: x, lambda x: -x, lambda x: x * x], x) for i in (-4, 0, 1, 2, 9)],
        map=lambda x: lax.map(lambda r: jnp.sort(r), x), grad=lambda x: jax.grad(lambda x: lax.scan(
            lambda c, r: (jnp.tanh(c + r), c), x[0], x)[0].sum())(x),
        reduce=lambda x: lax.reduce((x, x * 2), (np.float32(0), np.float32(1)),
                                    lambda a, b: (a[0] + b[0], a[1] * 0.5 + b[1]), (1,)),
        associative=lambda x: lax.associative_scan(jnp.add, x, axis=0))
    for name, op in cases.items():
        run_case(group, options, name, op, (x,), 64, relative_small)


GROUPS = (elementwise, conversions, movement, indexing, contractions, reductions, sorting, transforms, randomness, control)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1, help="repeat with new shapes and values")
    parser.add_argument("--only", default="", help="cases whose group and label hold this text")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if jax.devices()[0].platform != "tpu":
        print(f"the first device is {jax.devices()[0]}, not the plugin's")
        return 1
    failed = 0
    for function in GROUPS:
        group = Group(function.__name__)
        for round_ in range(options.rounds):
            function(group, options, np.random.default_rng([options.seed, round_, len(group.name)]))
        failed += len(group.failed)
        print(f"{group.name:14s} {group.cases:5d} programs, {len(group.failed):3d} differ ({group.refused} refused), "
              f"worst accepted {group.worst:.3g}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
