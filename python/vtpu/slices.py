# SPDX-License-Identifier: Apache-2.0
"""The library and the slice that this process uses or would use."""

import importlib.util
import json
import os
import subprocess

DEFAULT_SLICE = "v3-8"


def _find(name):
    """A file of the package that pip installed, of the release build of this source tree, or of the Debian package."""
    package = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(os.path.dirname(os.path.dirname(package)), "build", "release", name)
    system = os.path.join(os.path.normpath(os.path.join(package, "../../../..")), name)  # from share/vtpu/python/vtpu
    for path in (os.path.join(package, name), built, system):
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"{built} is not there: run ./dev build")


def library_path():
    """The path of libvtpu.so, or of what JAX's setting names instead."""
    return os.environ.get("TPU_LIBRARY_PATH") or _find("lib/libvtpu.so")


def program_path():
    """The path of the program `vtpu`."""
    return _find("bin/vtpu")


def offer_library():
    """Lets this process find libvtpu.so where frameworks look for a TPU's library; true if it will be used. The user's
    own setting stands, and so does an installed libtpu."""
    if "TPU_LIBRARY_PATH" in os.environ or importlib.util.find_spec("libtpu"):
        return False
    os.environ["TPU_LIBRARY_PATH"] = library_path()
    return True


def slice_name():
    """The accelerator type, chosen as by the library."""
    return os.environ.get("VTPU_ACCELERATOR_TYPE") or os.environ.get("TPU_ACCELERATOR_TYPE") or DEFAULT_SLICE


def chips():
    """The chips of one slice along x, y and z."""
    words = [program_path(), "info", "--json", "-t", slice_name()]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["topology"]
