# SPDX-License-Identifier: Apache-2.0
"""Layouts are kept as requested, and programs can be read as text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout, with_layout_constraint
from jax.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("tpu_only")


def single():
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def test_layout_of_device_put():
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = jax.device_put(value, Format(Layout((1, 0)), single()))
    assert array.format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(array, value)
    np.testing.assert_array_equal(array + 1, value + 1)


def test_layout_of_a_result():
    double = jax.jit(lambda x: x * 2, out_shardings=Format(Layout((1, 0)), single()))
    result = double(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert result.format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(result, 2 * np.arange(12).reshape(3, 4))


def test_free_layout_takes_a_transpose():
    turn = jax.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO))
    compiled = turn.lower(jax.ShapeDtypeStruct((3, 4), np.float32)).compile()
    assert compiled.output_formats.layout.major_to_minor == (1, 0)


def test_arrays_lie_as_the_tiles_pad_least():
    narrow = jax.device_put(np.ones((128, 8), np.float32))
    assert narrow.format.layout.major_to_minor == (1, 0)
    assert jax.device_put(np.ones((8, 128), np.float32)).format.layout.major_to_minor == (0, 1)
    compiled = jax.jit(lambda x: x + 1).lower(narrow).compile()
    assert compiled.input_formats[0][0].layout == compiled.output_formats.layout == narrow.format.layout
    out = compiled(narrow)
    assert out.format.layout == narrow.format.layout
    np.testing.assert_array_equal(np.asarray(out), np.full((128, 8), 2, np.float32))


def test_layouts_left_to_the_compiler_are_row_major():
    shape = jax.ShapeDtypeStruct((128, 8), np.float32)
    free = Format(Layout.AUTO)
    compiled = jax.jit(lambda x: (x * x, x.T), in_shardings=free, out_shardings=free).lower(shape).compile()
    assert compiled.input_formats[0][0].layout.major_to_minor == (0, 1)
    assert [f.layout.major_to_minor for f in compiled.output_formats] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("turned", [False, True])
def test_a_constraint_inside_decides_a_free_result(turned):
    def program(x, y):
        z = with_layout_constraint(x @ y, Layout((1, 0))) + 1
        return z.T if turned else z

    free = jax.jit(program, out_shardings=Format(Layout.AUTO))
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((128, 256), (256, 128))]
    out = free.lower(*shapes).compile()(*(np.ones(s.shape, s.dtype) for s in shapes))
    assert out.format.layout.major_to_minor == ((0, 1) if turned else (1, 0))
    np.testing.assert_array_equal(out, np.full((128, 128), 257, np.float32))


def test_no_donation_to_a_result_of_another_size_on_the_chip():
    """Rows of 32,016 bf16 numbers pad to 32,128 in row-major order, columns of 16 to 128."""
    x = jnp.ones((16, 32016), jnp.bfloat16)
    columns = Format(Layout((1, 0), ((8, 128), (2, 1))), x.sharding)
    assert x.format.layout.major_to_minor == (0, 1)
    jax.jit(lambda x: x * x, donate_argnums=0, out_shardings=columns).lower(x).compile()(x)
    assert not x.is_deleted()


def test_text_of_a_program_with_shard_map():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    summed = jax.jit(jax.shard_map(lambda a: jax.lax.psum(jnp.sin(a), "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    text = summed.lower(jax.ShapeDtypeStruct((8,), np.float32)).compile().as_text()
    assert "all-reduce" in text and "sine" in text and "num_partitions=8" in text


def test_cost_is_that_of_the_arithmetic():
    compiled = jax.jit(lambda a, b: a @ b).lower(np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)).compile()
    cost = compiled.cost_analysis()
    assert cost["flops"] == 2 * 64 * 32 * 16
    assert 0 < cost["optimal_seconds"] < 1e-3


def test_misspelt_compile_options_are_refused():
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    lowered.compile(compiler_options={"xla_tpu_scoped_vmem_limit_kib": "1024"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'fast_maths'"):
        lowered.compile(compiler_options={"fast_maths": True})
