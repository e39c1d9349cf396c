#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# guest_test.py - clients that run in a TPU VM, and those that reach into one: JAX finds its cluster over the two hosts of a
# v4-16, and over a multislice, and the processes meet; Ray finds the chips, google-auth takes the VM's identity; ssh, scp,
# sftp, rsync and a port forward with plain OpenSSH.
import os

import harness

ZONE = '--zone=us-central2-b'
JAX = '''
import jax
from jax._src import distributed
jax.distributed.initialize()
state = distributed.global_state
state.client.key_value_set(f"host{state.process_id}", str(state.process_id * 10))
print("met", state.process_id, "of", state.num_processes, state.client.blocking_key_value_get(f"host{1 - state.process_id}", 60000))
import jax.numpy as jnp
from jax.experimental import multihost_utils
print("sum", multihost_utils.process_allgather(jnp.ones(len(jax.local_devices()))).sum(), "over", len(jax.devices()))
state.client.wait_at_barrier("end", 60000)
'''
RAY = '''
from ray._private.accelerators.tpu import TPUAcceleratorManager as tpu
print("ray", tpu.get_current_node_num_accelerators(), tpu.get_current_node_accelerator_type(), tpu.get_current_node_tpu_pod_type(),
      tpu.get_current_node_tpu_name(), tpu.get_current_node_tpu_worker_id(), tpu.get_num_workers_in_current_tpu_pod())
'''
# What PyTorch/XLA reads before it starts processes.
TORCH = '''
import requests
def attribute(name):
    url = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/" + name
    return requests.get(url, headers={"Metadata-Flavor": "Google"}).text
env = dict(line.split(": ", 1) for line in attribute("tpu-env").splitlines())
print("torch", *(env[name].strip("'") for name in ("ACCELERATOR_TYPE", "TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS", "WORKER_ID")),
      len({worker.split(":")[2] for worker in attribute("worker-network-endpoints").split(",")}))
'''
AUTH = '''
import google.auth, google.auth.transport.requests
credentials, project = google.auth.default()
credentials.refresh(google.auth.transport.requests.Request())
print("auth", project, credentials.service_account_email, bool(credentials.token))
'''


def python(worker, text, before='', nodes=('lab',)):
    """Runs a program in a worker, or in all of them, of all nodes at the same time."""
    path = f'{os.environ["HOME"]}/program.py'
    with open(path, 'w') as file:
        file.write(text)
    for node in nodes:
        harness.shell(f'vtpu tpu-vm scp {path} {node}:program.py {ZONE} --worker={worker}')
    ssh = (f'vtpu tpu-vm ssh {node} {ZONE} --worker={worker} --command="{before} python3 program.py"' for node in nodes)
    return harness.shell(' & '.join(ssh) + '; wait')


def multislice():
    harness.shell(f'vtpu queued-resources create two {ZONE} --node-count=2 --node-prefix=two --accelerator-type=v4-8 '
                  '--runtime-version=tpu-ubuntu2204-base')
    nodes = harness.shell("vtpu tpu-vm list --format='value(name)'").split()
    nodes = [node.rsplit('/', 1)[-1] for node in nodes if node.rsplit('/', 1)[-1].startswith('two')]
    assert len(nodes) == 2, nodes
    harness.wait_for(lambda: [harness.shell(f'vtpu tpu-vm describe {node} {ZONE} --format="value(state)"').strip() for node in nodes],
                     lambda states: states == ['READY'] * 2)
    out = python(0, JAX, nodes=nodes)
    assert 'met 0 of 2 10' in out and 'met 1 of 2 0' in out and out.count('sum 8.0 over 8') == 2, out
    print('JAX: two slices met, and computed')


def inner():
    home, project = os.environ['HOME'], os.environ['VTPU_PROJECT']
    harness.shell(f'vtpu tpu-vm create lab {ZONE} --accelerator-type=v4-16 --version=tpu-ubuntu2204-base')
    out = python('all', JAX)
    assert 'met 0 of 2 10' in out and 'met 1 of 2 0' in out, out
    assert out.count('sum 8.0 over 8') == 2, out
    out = python('all', JAX, 'env -u TPU_WORKER_ID -u TPU_WORKER_HOSTNAMES -u TPU_ACCELERATOR_TYPE')
    assert 'met 0 of 2 10' in out and 'met 1 of 2 0' in out and out.count('sum 8.0 over 8') == 2, out
    print('JAX: two hosts met, and computed, also by the metadata server alone')
    multislice()
    out = python(1, RAY)
    assert 'ray 4 TPU-V4 v4-16 lab 1 2' in out, out
    print('Ray: 4 chips of a v4-16, worker 1 of 2')
    out = python(1, TORCH)
    assert 'torch v4-16 1,1,2 2,2,1 1 2' in out, out
    print('PyTorch/XLA: its chips and hosts')
    out = python(0, AUTH)
    assert f'auth {project} ' in out and out.rstrip().endswith('True'), out
    print('google-auth: the identity of the VM')

    harness.shell(f'vtpu tpu-vm ssh-config >> {home}/config')
    ssh = f'-F {home}/config -o UserKnownHostsFile={home}/known -o BatchMode=yes -i {home}/.ssh/google_compute_engine'
    assert '-w-1' in harness.shell(f'ssh {ssh} lab-w1 hostname')
    harness.shell(f'echo text > {home}/file; scp {ssh} {home}/file lab-w0:copied; echo get copied {home}/back | sftp {ssh} -b - lab-w0')
    assert open(f'{home}/back').read() == 'text\n'
    harness.shell(f'mkdir -p {home}/tree/deep; cp {home}/file {home}/tree/deep; rsync -a -e "ssh {ssh}" {home}/tree lab-w1:')
    assert 'text' in harness.shell(f'ssh {ssh} lab-w1 cat tree/deep/file')
    harness.shell(f'ssh {ssh} lab-w0 "nohup python3 -m http.server 8099 > /dev/null 2>&1 < /dev/null &"')
    harness.shell(f'ssh {ssh} -f -N -o ExitOnForwardFailure=yes -L 127.0.0.1:8098:localhost:8099 lab-w0 < /dev/null > /dev/null 2>&1')
    harness.wait_for(lambda: harness.shell('curl -s http://127.0.0.1:8098/copied', check=False), lambda text: text == 'text\n')
    print('OpenSSH: ssh, scp, sftp, rsync, port forward')


if __name__ == '__main__':
    harness.run(inner, guests=True, needs=['sshd', 'rsync', 'curl'])
