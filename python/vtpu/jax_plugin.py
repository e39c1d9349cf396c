# SPDX-License-Identifier: Apache-2.0
"""What JAX loads before it makes its backends (entry point `jax_plugins`)."""

from vtpu.slices import offer_library


def initialize():
    # The backend is JAX's own `tpu`, so there is no plugin to register.
    offer_library()
