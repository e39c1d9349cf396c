#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ray_test.py - Ray's cluster launcher, unmodified: `ray up` makes a TPU VM, reaches it by ssh and sets it up, `ray
# exec` runs a command there, `ray down` deletes it. With VTPU_TEST_RAY=start it also starts Ray's runtime there, which
# takes half a minute more, and finds the chips (guest_test.py tests on every run what the runtime looks at).
import os
import sys

import harness

CLUSTER = '''
cluster_name: rt
max_workers: 0
provider:
  type: gcp
  region: us-central2
  availability_zone: us-central2-b
  project_id: {project}
auth:
  ssh_user: ray
available_node_types:
  head:
    min_workers: 0
    resources: {{TPU: 4}}
    node_config:
      acceleratorType: v4-8
      runtimeVersion: tpu-ubuntu2204-base
head_node_type: head
setup_commands:
  - echo 'export PATH={bin}:$PATH' >> ~/.bashrc
head_setup_commands: []  # the default installs packages
head_start_ray_commands:
  - {start}
'''
START = 'ray start --head --port=6379 --num-cpus=1 --object-store-memory=80000000 --include-dashboard=false'
DETECT = '''
import ray
ray.init(address="auto", log_to_driver=False)
print(sorted((k, v) for k, v in ray.cluster_resources().items() if "TPU" in k or k.startswith("accelerator")))
'''


def inner():
    runtime = os.environ.get('VTPU_TEST_RAY') == 'start'
    path = f'{os.environ["HOME"]}/cluster.yaml'
    with open(path, 'w') as file:
        file.write(CLUSTER.format(project=os.environ['VTPU_PROJECT'], bin=os.path.dirname(sys.executable),
                                  start=START if runtime else 'touch started'))
    ray = os.path.dirname(sys.executable) + '/ray'
    print(harness.shell(f'{ray} up -y --no-config-cache {path}')[-600:])
    nodes = harness.shell("vtpu tpu-vm list --format='value(name,state,labels.ray-node-status)'")
    assert 'ray-rt-head' in nodes and 'READY' in nodes and 'up-to-date' in nodes, nodes
    command = f"python3 -c '\"'\"'{DETECT}'\"'\"'" if runtime else 'hostname; ls; tail -n 1 .bashrc'
    found = harness.shell(f"{ray} exec --no-config-cache {path} '{command}'")
    print(found[-300:])
    wanted = ["('TPU', 4.0)", 'TPU-v4-8-head', 'TPU-V4'] if runtime else ['-w-0', 'ray_bootstrap_config.yaml', 'started', 'PATH=']
    assert all(word in found for word in wanted), found
    harness.shell(f'{ray} down -y {path}')
    assert 'ray-rt-head' not in harness.shell("vtpu tpu-vm list --format='value(name)'")
    print('ray: up, exec, down')


if __name__ == '__main__':
    harness.run(inner, guests=True, needs=['sshd', 'rsync'], googleapis='127.0.0.2')
