#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# gcloud_test.py - gcloud, if it is on PATH: the GA and alpha commands for TPU VMs and the queue by endpoint overrides,
# and ssh into a pod. Elsewhere replay_test.c replays its requests.
import json
import os

import harness

ZONE = '--zone=us-central2-b'


def gcloud(command):
    return harness.shell(f'gcloud {command} --quiet 2>&1')


def os_login(nodes):
    """gcloud adds its key to the login profile itself and reads the account's name from there."""
    gcloud('compute project-info add-metadata --metadata=enable-oslogin=TRUE')
    out = gcloud(f'{nodes} ssh lab {ZONE} --worker=0 --command="id -un" --strict-host-key-checking=no')
    assert 'admin_vtpu_localhost' in out, out
    keys = gcloud('compute os-login ssh-keys list --format="value(value.fingerprint)"').split()
    assert len(keys[-1]) == 64, keys
    assert 'username: admin_vtpu_localhost' in gcloud('compute os-login describe-profile')
    gcloud(f'compute os-login ssh-keys update --key={keys[-1]} --ttl=1d')
    gcloud(f'compute os-login ssh-keys remove --key={keys[-1]}')
    gcloud('compute project-info remove-metadata --keys=enable-oslogin')


def quotas():
    """The v4 limit of one zone: read, requested, and granted by a reviewer."""
    of = f'--service=tpu.googleapis.com --project={os.environ["VTPU_PROJECT"]}'
    quota = 'TPUV4sPerProjectPerZoneForTPUAPI'
    assert quota in gcloud(f'beta quotas info list {of}')
    assert 'us-central2-b' in gcloud(f'beta quotas info describe {quota} {of}')
    made = gcloud(f'beta quotas preferences create {of} --quota-id={quota} --preferred-value=64 --preference-id=v4 '
                  '--dimensions=zone=us-central2-b --email=ada@example.org --justification=course --format="value(quotaConfig.grantedValue)"')
    assert made.split()[-1] == '64', made
    more = gcloud(f'beta quotas preferences update v4 {of} --quota-id={quota} --preferred-value=640 --dimensions=zone=us-central2-b '
                  '--format="value(reconciling)"')
    assert more.split()[-1] == 'True', more
    harness.shell('vtpu quotas preferences approve v4')
    now = gcloud(f'beta quotas preferences describe v4 --project={os.environ["VTPU_PROJECT"]} --format="value(quotaConfig.grantedValue)"')
    assert now.split()[-1] == '640', now


def inner():
    guests = os.geteuid() == 0
    nodes = 'compute tpus tpu-vm'
    gcloud(f'{nodes} create lab {ZONE} --accelerator-type=v4-16 --version=tpu-ubuntu2204-base --labels=team=a')
    described = json.loads(harness.shell(f'gcloud {nodes} describe lab {ZONE} --format=json 2>/dev/null'))
    assert described['state'] == 'READY' and len(described['networkEndpoints']) == 2, described
    listed = gcloud(f'alpha {nodes} list {ZONE}')
    assert 'lab' in listed and 'READY' in listed and 'v4-16' in listed, listed
    assert 'lab' in gcloud(f'{nodes} list --zone=-')
    assert 'v4-8' in gcloud(f'compute tpus accelerator-types list {ZONE}')
    assert 'tpu-ubuntu2204-base' in gcloud(f'{nodes} versions list {ZONE}')
    assert 'us-central2-b' in gcloud('compute tpus locations list')
    gcloud(f'alpha {nodes} update lab {ZONE} --update-labels=team=b')
    assert 'team: b' in gcloud(f'{nodes} describe lab {ZONE}')
    missing = harness.shell(f'gcloud {nodes} describe none {ZONE}', check=False)
    assert 'NOT_FOUND' in missing and 'was not found' in missing, missing
    if guests:
        out = gcloud(f'{nodes} ssh ada@lab {ZONE} --worker=1 --command="hostname; nproc" --strict-host-key-checking=no')
        assert '-w-1' in out, out
        os_login(nodes)
    gcloud(f'{nodes} delete lab {ZONE}')
    queued = 'compute tpus queued-resources'
    gcloud(f'{queued} create q {ZONE} --node-id=qn --accelerator-type=v4-8 --runtime-version=tpu-ubuntu2204-base --spot')
    harness.wait_for(lambda: gcloud(f'{queued} describe q {ZONE} --format="value(state.state)"'), lambda s: 'ACTIVE' in s)
    assert 'q' in gcloud(f'{queued} list {ZONE}')
    gcloud(f'{queued} delete q {ZONE} --force')
    assert 'roles/owner' in gcloud(f'projects get-iam-policy {os.environ["VTPU_PROJECT"]}')
    assert 'tpu.googleapis.com' in gcloud('services list')
    assert os.environ['VTPU_PROJECT'] in gcloud('projects list')
    quotas()
    print('gcloud: TPU VMs, queue, catalogue, services, projects, quotas' + (', ssh, OS Login' if guests else ''))


if __name__ == '__main__':
    harness.run(inner, needs=['gcloud'], guests=os.geteuid() == 0)
