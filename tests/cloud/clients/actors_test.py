#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# actors_test.py - Ray's actors as the processes of a slice: four with a host of a v3-32 each, and four with a chip of a v3-8
# each, for which Ray sets TPU_VISIBLE_CHIPS and the bounds of one chip that is alone. Both compute over all chips.
import os
import random
import shutil

import harness

SETTINGS = {'JAX_PLATFORMS': 'tpu,cpu', 'OMP_NUM_THREADS': '1', 'MEGASCALE_COORDINATOR_ADDRESS': '', 'MEGASCALE_NUM_SLICES': '',
            'MEGASCALE_SLICE_ID': '', 'RAY_AUTH_MODE': 'disabled'}


class Worker:
    def address(self):
        import ray
        return ray.util.get_node_ip_address()

    def compute(self, environment, coordinator, count, index):
        os.environ.update(environment)
        import jax
        import numpy as np
        from jax.experimental import multihost_utils
        jax.distributed.initialize(coordinator, count, index)
        total = multihost_utils.process_allgather(np.ones(len(jax.local_devices()))).sum()
        return os.environ.get('TPU_VISIBLE_CHIPS'), jax.process_index(), len(jax.local_devices()), len(jax.devices()), int(total)


def start(ray, **options):
    """Ray waits 30 s for its own daemon, which it may need longer to start on a busy machine."""
    for left in reversed(range(20)):
        try:
            return ray.init(**options)
        except Exception as error:
            if not left or 'raylet' not in str(error):
                raise
            ray.shutdown()


def actors(ray, slice_name, chips, grid):
    """What four actors say that have as many chips each."""
    ports = random.SystemRandom().sample(range(10000, 30000), 5)
    library = os.path.join(os.path.dirname(os.path.dirname(shutil.which('vtpud'))), 'lib', 'libvtpu.so')
    start(ray, num_cpus=4, resources={'TPU': 4 * chips}, include_dashboard=False, object_store_memory=80000000, log_to_driver=False,
          runtime_env={'env_vars': {**SETTINGS, 'TPU_LIBRARY_PATH': library, 'TPU_ACCELERATOR_TYPE': slice_name}})
    try:
        workers = [ray.remote(Worker).options(resources={'TPU': chips}).remote() for _ in range(4)]
        hosts = ray.get([worker.address.remote() for worker in workers])
        addresses = ','.join(f'{host}:{port}' for host, port in zip(hosts, ports))
        return ray.get([worker.compute.remote({**grid, 'TPU_PROCESS_ADDRESSES': addresses, 'CLOUD_TPU_TASK_ID': str(i)},
                                              f'{hosts[0]}:{ports[4]}', 4, i) for i, worker in enumerate(workers)])
    finally:
        ray.shutdown()


def inner():
    try:
        import ray
    except ImportError:
        harness.skip('no Ray')
    os.environ.update(SETTINGS)
    said = actors(ray, 'v3-32', 4, {})
    assert [one[1:] for one in said] == [(i, 8, 32, 32) for i in range(4)], said
    assert {one[0] for one in said} == {'0,1,2,3', '4,5,6,7', '8,9,10,11', '12,13,14,15'}, said
    print('four actors with four chips each: a v3-32')
    said = actors(ray, 'v3-8', 1, {'TPU_PROCESS_BOUNDS': '2,2,1', 'TPU_CHIPS_PER_PROCESS_BOUNDS': '1,1,1'})
    assert [one[1:] for one in said] == [(i, 2, 8, 8) for i in range(4)], said
    assert {one[0] for one in said} == set('0123'), said
    print('four actors with one chip each: a v3-8')


if __name__ == '__main__':
    harness.run(inner)
