# SPDX-License-Identifier: Apache-2.0
"""HLO as a program: what jaxlib makes of JAX functions, as message and text, lowered for a TPU and after XLA:CPU compiled
it (with fusions, layouts and bitcasts), computes what XLA:CPU does."""

import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib import _hlo

pytestmark = pytest.mark.usefixtures("tpu_only")
BUILD = os.path.dirname(os.path.dirname(os.environ.get("TPU_LIBRARY_PATH", "")))
CALLS_LAPACK = ("algebra",)  # once XLA:CPU compiled it


def f32(*shape):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 0.37 % 2.1 - 1).astype(np.float32)


def s32(*shape):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 % 11).astype(np.int32)


def conv(x, k, **options):
    return lax.conv_general_dilated(x, k, (2, 1), ((1, 2), (0, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


def mlp_step(x, w, b, y):
    def loss(w, b):
        h = jax.nn.gelu(x @ w) + b
        return jnp.mean((jax.nn.log_softmax(h) - y) ** 2)

    value, grads = jax.value_and_grad(loss, (0, 1))(w, b)
    return value, w - 0.1 * grads[0], b - 0.1 * grads[1]


def cnn_grad(x, k):
    def loss(k):
        h = jax.nn.relu(conv(x, k))
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        return jnp.sum(h * h)

    return jax.grad(loss)(k)


def loop(x):
    def body(c):
        i, a = c
        return i + 1, jnp.where(i % 2 == 0, a * 1.5, jnp.sin(a))

    return lax.while_loop(lambda c: c[0] < 5, body, (0, x))


def scan(x, w):
    return lax.scan(lambda c, e: (jnp.tanh(c @ w + e), c.sum()), jnp.zeros(w.shape[0]), x)


def branches(i, x):
    return lax.switch(i, [lambda v: v + 1, lambda v: v * 2, lambda v: -v], x), lax.cond(i > 1, jnp.sin, jnp.cos, x)


def gathers(x, i):
    return x[i], x[:, i % 3], x.at[i].add(1.0), x.at[i, 0].mul(2.0), lax.dynamic_slice(x, (i[0], 0), (2, 2))


def shapes(x):
    y = jnp.transpose(x, (2, 0, 1))
    return y.reshape(4, -1), x[::-1, 1::2], jnp.pad(x, ((1, 2), (0, 0), (0, 1))), jnp.concatenate([x, x * 2], 1), y.T + 1


def elementwise(x):
    p = jnp.abs(x) + 0.5
    one = [jnp.exp, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.floor, jnp.round, jnp.sign, lax.erf, lax.logistic]
    two = [jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.cbrt, lax.lgamma, lax.digamma]
    return [f(x) for f in one] + [f(p) for f in two] + [x**3, jnp.arctan2(x, p), x % p, jnp.clip(x, -0.5, 0.5), x > 0]


def integers(i):
    u = i.astype(jnp.uint32)
    return i // 3, i % 3, i & 6, i << 2, u >> 1, lax.population_count(u), lax.clz(u), i.astype(jnp.int8), lax.bitcast_convert_type(i, jnp.float32)


def reductions(x, i):
    return jnp.sum(x, 0), jnp.max(x, (0, 2)), jnp.argmax(x, 1), jnp.prod(x, -1), jnp.cumsum(x, 1), jnp.any(i > 9), lax.cummax(x, 2)


def sorts(x, i):
    return jnp.sort(x, 0), jnp.argsort(x, 1), lax.sort((i, i * 2 % 7), num_keys=1), lax.top_k(x, 2)


def complexes(x):
    c = lax.complex(x, x[::-1])
    return jnp.fft.fft(c), jnp.fft.rfft(x), jnp.abs(c), (c * c).real, jnp.conj(c).imag


def small_types(x):
    h, b = x.astype(jnp.float16), x.astype(jnp.bfloat16)
    q = x.astype(jnp.float8_e4m3fn)
    return (h * 2).astype(jnp.float32), (b + b).astype(jnp.float32), q.astype(jnp.float32), x.astype(jnp.int4).astype(jnp.int32)


def constants(x):
    table = jnp.asarray(f32(6, 4))
    return x @ table.T, x + jnp.asarray([np.nan, np.inf, -0.0, 1e-42]), jnp.asarray(s32(3, 5)), jnp.asarray(f32(5) > 0)


def algebra(x):
    a = x @ x.T + 3 * jnp.eye(x.shape[0])
    return jnp.linalg.cholesky(a), lax.linalg.triangular_solve(a, x, left_side=True, lower=True)


def random_numbers():
    return jax.random.uniform(jax.random.key(3), (5,)), jax.random.normal(jax.random.key(4), (3, 2))


def attention(q, k, v):
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)


def host_scope(x):
    with jax.named_scope("outer"):
        return jax.checkpoint(lambda v: jnp.sin(jnp.sin(v)))(x), lax.optimization_barrier((x, x + 1))


CASES = {
    "mlp_step": (mlp_step, f32(4, 3), f32(3, 5), f32(5), f32(4, 5)),
    "conv": (conv, f32(2, 6, 5, 3), f32(3, 2, 3, 4)),
    "grouped_conv": (lambda x, k: conv(x, k, feature_group_count=2, rhs_dilation=(2, 1)), f32(2, 8, 5, 4), f32(3, 2, 2, 6)),
    "cnn_grad": (cnn_grad, f32(2, 6, 5, 3), f32(3, 2, 3, 4)),
    "dots": (lambda x, y: (x @ y, jnp.einsum("bij,bkj->bik", x, x), jnp.dot(x[0], x[1].T, precision="highest")), f32(2, 3, 4), f32(2, 4, 5)),
    "loop": (loop, f32(6)),
    "scan": (scan, f32(5, 4), f32(4, 4)),
    "branches": (branches, np.int32(2), f32(4)),
    "gathers": (gathers, f32(5, 3), s32(4) % 4),
    "shapes": (shapes, f32(2, 4, 2)),
    "elementwise": (elementwise, f32(9)),
    "integers": (integers, s32(7) + 1),
    "reductions": (reductions, f32(3, 4, 2), s32(6)),
    "sorts": (sorts, f32(4, 5), s32(9)),
    "complexes": (complexes, f32(8)),
    "small_types": (small_types, f32(6)),
    "constants": (constants, f32(2, 4)),
    "algebra": (algebra, f32(4, 4)),
    "random_numbers": (random_numbers,),
    "attention": (attention, f32(2, 5, 2, 4), f32(2, 6, 2, 4), f32(2, 6, 2, 4)),
    "host_scope": (host_scope, f32(3)),
}


def programs(lowered, compiled):
    before, after = lowered.compiler_ir("hlo"), compiled.runtime_executable().hlo_modules()[0]
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return {
        "message": before.as_serialized_hlo_module_proto(),
        "text": before.get_hlo_module().to_string(options).encode(),
        "compiled message": after.as_serialized_hlo_module_proto(),
        "compiled text": after.to_string(options).encode(),
    }


def run(folder, program, arguments):
    (folder / "program").write_bytes(program)
    command = [os.path.join(BUILD, "bin", "vtpu"), "exec", str(folder / "program"), "--output", str(folder / "out.npz")]
    for i, argument in enumerate(arguments):
        np.save(folder / f"in{i}.npy", argument)
        command += ["--input", str(folder / f"in{i}.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "VTPU_MATMUL_PRECISION": "float32"})
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as saved:
        return [saved[f"out_{i}"] for i in range(len(saved.files))]


@pytest.mark.parametrize("name", CASES)
def test_hlo_of_jax(name, tmp_path):
    function, *arguments = CASES[name]
    with jax.default_device(jax.devices("cpu")[0]):
        traced = jax.jit(function, keep_unused=True).trace(*arguments)
        lowered, compiled = traced.lower(lowering_platforms=("tpu",)), traced.lower().compile()
        want = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*arguments))]
    for form, program in programs(lowered, compiled).items():
        if name in CALLS_LAPACK and "compiled" in form:
            continue
        got = run(tmp_path, program, arguments)
        assert len(got) == len(want)
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            assert a.shape == b.shape, f"{form}: result {i}"
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=f"{form}: result {i}")


# What PyTorch/XLA writes and jaxlib does not.
def test_slices_at_the_elements_of_an_array(tmp_path):
    program = b"""HloModule m
ENTRY %e {
  %x = f32[4,6] parameter(0)
  %i = s64[2] parameter(1)
  %s = f32[2,2] dynamic-slice(%x, %i), dynamic_slice_sizes={2,2}
  %d = f32[4,6] dynamic-update-slice(%x, %s, %i)
  ROOT %r = (f32[2,2], f32[4,6]) tuple(%s, %d)
}"""
    x = f32(4, 6)
    for i, j in ((1, 3), (9, -2)):  # starts beyond the end move back
        cut, same = run(tmp_path, program, [x, np.array([i, j])])
        i, j = min(i, 2), max(j, 0)
        np.testing.assert_array_equal(cut, x[i : i + 2, j : j + 2])
        np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("groups", ["{{0},{1}}", "{{1}}", "{{0,1},{2,3}}", "{}"])
def test_sum_of_one_device_over_absent_ones(groups, tmp_path):
    program = b"""HloModule m
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
ENTRY %e {
  %x = f32[3] parameter(0)
  ROOT %r = f32[3] all-reduce(%x), replica_groups=GROUPS, to_apply=%add
}""".replace(b"GROUPS", groups.encode())
    np.testing.assert_array_equal(run(tmp_path, program, [f32(3)])[0], f32(3))


def test_manual_computations_that_share_arrays(tmp_path):
    """What the first has cut or computed, the second uses; between them an array is whole."""
    program = b"""HloModule m, num_partitions=4
ENTRY %e {
  %a = f32[8] parameter(0), sharding={devices=[4]0,1,2,3}
  %cut = f32[2] custom-call(%a), custom_call_target="SPMDFullToShardShape", sharding={manual}
  %square = f32[2] multiply(%cut, %cut)
  %whole = f32[8] custom-call(%square), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]0,1,2,3}
  %stays = f32[8] custom-call(%whole), custom_call_target="Sharding", sharding={devices=[4]0,1,2,3}
  %again = f32[2] custom-call(%stays), custom_call_target="SPMDFullToShardShape", sharding={manual}
  %twice = f32[2] add(%again, %square)
  %sum = f32[2] add(%twice, %cut)
  ROOT %r = f32[8] custom-call(%sum), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]0,1,2,3}
}"""
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run(tmp_path, program, [x])[0], 2 * x * x + x)
