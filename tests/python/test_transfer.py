# SPDX-License-Identifier: Apache-2.0
"""Arrays to the device and back: every element type, strides, sizes; copies, deletion."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from support import run_python

pytestmark = pytest.mark.asan

DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.float16, np.float32, np.complex64,
    ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3fnuz,
]  # fmt: skip


def sample(dtype, shape):
    count = int(np.prod(shape))
    values = np.arange(count) % 7
    if np.dtype(dtype).kind == "c":
        return (values + 1j * (values + 1)).astype(dtype).reshape(shape)
    return values.astype(np.float32).astype(dtype).reshape(shape)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (0,), (3, 0, 2), (5, 3), (2, 3, 4, 5), (129, 257)], ids=str)
def test_round_trip(dtype, shape):
    host = sample(dtype, shape)
    device = jax.device_put(host, jax.devices()[1])
    assert device.dtype == host.dtype and device.shape == shape
    assert bits(np.asarray(device)) == bits(host)


def test_wide_types():
    code = """
        import jax, numpy as np
        jax.config.update("jax_enable_x64", True)
        for dtype in (np.int64, np.uint64, np.float64, np.complex128):
            host = (np.arange(60) * 3).astype(dtype).reshape(3, 4, 5) / 1
            host = host.astype(dtype)
            device = jax.device_put(host)
            assert device.dtype == dtype, device.dtype
            assert np.asarray(device).tobytes() == host.tobytes()
            assert np.array_equal(np.asarray(device + device), host + host), dtype
        print("good")
    """
    assert run_python(code).stdout.strip() == "good"


@pytest.mark.parametrize(
    "view",
    [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a[3:4, 5:6], lambda a: np.broadcast_to(a[0], (4, 64)),
     lambda a: a[::-3, 1::5], np.asfortranarray],
)  # fmt: skip
def test_strides(view):
    host = view(np.arange(48 * 64, dtype=np.int32).reshape(48, 64))
    np.testing.assert_array_equal(np.asarray(jax.device_put(host)), host)
    np.testing.assert_array_equal(np.asarray(jnp.array(host) + 1), host + 1)


def test_host_array_may_change_afterwards():
    host = np.zeros((512, 512), np.float32)
    device = jnp.array(host)
    host[:] = 1
    assert float(device.sum()) == 0


def test_fetched_array_is_read_only_and_stays():
    device = jnp.arange(1000.0)
    host = np.asarray(device)
    assert not host.flags.writeable
    copy = host.copy()
    del device
    jnp.ones(1000).block_until_ready()
    np.testing.assert_array_equal(host, copy)


def test_between_devices():
    host = np.arange(100, dtype=np.float32)
    first = jax.device_put(host, jax.devices()[0])
    last = jax.device_put(first, jax.devices()[7])
    assert last.devices() == {jax.devices()[7]}
    first.delete()
    np.testing.assert_array_equal(np.asarray(last), host)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x * 2)(last)), host * 2)


def test_large():
    host = np.random.default_rng(0).integers(0, 1 << 32, 16 << 20, dtype=np.uint32)
    device = jax.device_put(host)
    assert np.array_equal(np.asarray(device), host)


def test_many_small():
    arrays = [jax.device_put(np.full(3, i, np.int32), jax.devices()[i % 8]) for i in range(2000)]
    assert [int(array[2]) for array in arrays[::191]] == list(range(2000))[::191]


def test_deleted():
    array = jnp.arange(3.0) + 1
    array.delete()
    assert array.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(array)


def test_dlpack_to_numpy_through_the_host():
    array = jnp.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(np.from_dlpack(np.asarray(array)), np.arange(12.0).reshape(3, 4))
