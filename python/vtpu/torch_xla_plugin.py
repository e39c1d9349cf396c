# SPDX-License-Identifier: Apache-2.0
"""What PyTorch/XLA loads when it is imported (entry point `torch_xla.plugins`): its own device TPU finds libvtpu.so and
what a TPU VM says about its slice. `vtpu run` does more: the chips' files, which `torch_xla.launch` counts."""

import os

from torch_xla.experimental import plugins

from vtpu.slices import library_path, offer_library, slice_name

if offer_library():
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no metadata server
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", slice_name())


class Plugin(plugins.DevicePlugin):
    def library_path(self):
        return library_path()
