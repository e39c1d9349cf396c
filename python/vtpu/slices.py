# SPDX-License-Identifier: Apache-2.0
"""The library and the slice that this process uses or would use."""

import os

DEFAULT_SLICE = "v3-8"


def library_path():
    """The path of libvtpu.so: JAX's setting, otherwise the release build of this source tree."""
    named = os.environ.get("TPU_LIBRARY_PATH")
    if named:
        return named
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    built = os.path.join(root, "build", "release", "lib", "libvtpu.so")
    if not os.path.exists(built):
        raise FileNotFoundError(f"{built} is not there: run ./dev build")
    return built


def slice_name():
    """The accelerator type, chosen as by the library."""
    return os.environ.get("VTPU_ACCELERATOR_TYPE") or os.environ.get("TPU_ACCELERATOR_TYPE") or DEFAULT_SLICE
