# SPDX-License-Identifier: Apache-2.0
"""What PyTorch/XLA loads when it is imported (entry point `torch_xla.plugins`): its own device TPU finds libvtpu.so and
what a TPU VM says about its slice. `vtpu run` does more: it shows the chips' files."""

import os

import torch_xla
from torch_xla._internal import tpu
from torch_xla.experimental import plugins

from vtpu.slices import chips, library_path, offer_library, slice_name

if offer_library():
    x, y, z = chips()
    for name, value in (
        ("TPU_SKIP_MDS_QUERY", "1"),  # no metadata server
        ("TPU_ACCELERATOR_TYPE", slice_name()),
        ("TPU_WORKER_ID", "0"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("TPU_PROCESS_BOUNDS", "1,1,1"),  # one process has all chips: replicas are its threads
        ("TPU_CHIPS_PER_PROCESS_BOUNDS", f"{x},{y},{z}"),
        ("XLA_THREAD_POOL_SIZE", "96"),  # as in vtpu run (src/cli/run.c)
    ):
        os.environ.setdefault(name, value)
    torch_xla._found_libtpu = True  # the TPU is the default device, as where libtpu is installed
    if not tpu.num_available_chips():  # it counts files that only vtpu run can show
        tpu.num_available_chips = lambda: x * y * z


class Plugin(plugins.DevicePlugin):
    def library_path(self):
        return library_path()
