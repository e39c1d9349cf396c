# SPDX-License-Identifier: Apache-2.0
"""What JAX loads before it makes its backends (entry point `jax_plugins`)."""

from vtpu.slices import offer_library


def initialize():
    # The backend is JAX's own `tpu`, so there is no plugin to register.
    if offer_library():
        tell_process()


def tell_process():
    """After `jax.distributed.initialize`: which of how many processes this is, as JAX tells the backends of other plugins."""
    import jax
    from jax._src import distributed

    state = distributed.global_state
    if state.client is None:
        return
    options = jax.config.jax_pjrt_client_create_options or {}
    if isinstance(options, str):
        options = dict(option.split(":") for option in options.split(";"))
    told = {"node_id": state.process_id, "num_nodes": state.num_processes}
    jax.config.update("jax_pjrt_client_create_options", told | options)
