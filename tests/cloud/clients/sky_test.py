#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# sky_test.py - SkyPilot's GCP provisioner, unmodified, under Google's host names: bootstrap (project, service account and
# its roles, network), TPU VMs on demand, spot and through the queue, its handling of missing quota and capacity, a
# preempted
# VM, stop and start, and the end.
import json
import os
import urllib.request

import harness

ZONE = 'us-central2-b'


def api(method, path, body=None):
    request = urllib.request.Request(os.environ['VTPU_ENDPOINT'] + path, method=method,
                                     data=json.dumps(body).encode() if body is not None else None,
                                     headers={'Authorization': f'Bearer {os.environ["VTPU_TOKEN"]}',
                                              'Content-Type': 'application/json'})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def provisioner():
    from sky.provision import common
    from sky.provision.gcp import config as gcp_config
    from sky.provision.gcp import instance
    project = os.environ['VTPU_PROJECT']

    def config(count=1, **node):
        return common.ProvisionConfig(
            provider_config={'type': 'gcp', 'region': 'us-central2', 'availability_zone': ZONE, 'project_id': project,
                             'use_internal_ips': False, 'use_managed_instance_group': False},
            authentication_config={'ssh_user': 'gcpuser'}, docker_config={},
            node_config={'acceleratorType': 'v4-8', 'runtimeVersion': 'tpu-ubuntu2204-base', 'metadata': {}, **node},
            count=count, tags={}, resume_stopped_nodes=True, ports_to_open_on_launch=None)

    def launch(name, count=1, **node):
        wanted = gcp_config.bootstrap_instances('us-central2', name, config(count, **node))
        record = instance.run_instances('us-central2', name, name, wanted)
        info = instance.get_cluster_info('us-central2', name, wanted.provider_config)
        return wanted, record, info

    wanted, record, info = launch('demand', count=2)
    assert len(record.created_instance_ids) == 2 and len(info.instances) == 2, (record, info)
    assert info.head_instance_id.endswith(record.head_instance_id.split('/')[-1]) and info.get_feasible_ips()
    instance.stop_instances('demand', wanted.provider_config)
    states = instance.query_instances('demand', 'demand', wanted.provider_config)
    assert {s.value for s, _ in states.values()} == {'STOPPED'}, states
    _, record, info = launch('demand', count=2)
    assert len(record.resumed_instance_ids) == 2 and not record.created_instance_ids, record
    instance.terminate_instances('demand', wanted.provider_config)

    wanted, record, info = launch('pod', acceleratorType='v4-32', schedulingConfig={'preemptible': True})
    assert len(info.instances) == 1 and len(next(iter(info.instances.values()))) == 4, info
    name = record.created_instance_ids[0].split('/')[-1]
    api('POST', f'/vtpu/v1/projects/{project}/nodes/{ZONE}/{name}:preempt', {})
    harness.wait_for(lambda: api('GET', f'/v2/projects/{project}/locations/{ZONE}/nodes/{name}')['state'],
                     lambda state: state == 'PREEMPTED')
    assert not instance.query_instances('pod', 'pod', wanted.provider_config)  # it deletes preempted VMs
    harness.wait_for(lambda: api('GET', f'/v2/projects/{project}/locations/{ZONE}/nodes').get('nodes'), lambda nodes: not nodes)

    wanted, record, info = launch('queue', gcp_queued_resource=True)
    queued = api('GET', f'/v2/projects/{project}/locations/{ZONE}/queuedResources')['queuedResources']
    assert len(info.instances) == 1 and [q['state']['state'] for q in queued] == ['ACTIVE'], queued
    instance.terminate_instances('queue', wanted.provider_config)

    def refused(**node):
        try:
            launch('no', **node)
        except common.ProvisionerError as error:
            return error.errors
        raise AssertionError('was launched')

    api('POST', '/vtpu/v1/capacity', {'zone': ZONE, 'family': 'v4', 'chips': 0})
    errors = refused()
    assert errors[0]['code'] == 8 and 'There is no more capacity in the zone' in errors[0]['message'], errors
    # A separate project, with no quota beyond the default.
    project = 'poor-lab'
    api('POST', '/v1/projects', {'projectId': project})
    api('POST', f'/v1/projects/{project}/services/tpu.googleapis.com:enable', {})
    policy = api('POST', f'/v1/projects/{project}:getIamPolicy', {})
    key = json.load(open(os.environ['GOOGLE_APPLICATION_CREDENTIALS']))
    policy['bindings'][0]['members'].append(f'serviceAccount:{key["client_email"]}')
    api('POST', f'/v1/projects/{project}:setIamPolicy', {'policy': policy})
    errors = refused(acceleratorType='v4-32')
    assert 'Quota' in errors[0]['message'] and ZONE in errors[0]['message'], errors
    print('SkyPilot: bootstrap, run, stop, start, terminate, queued, preempted, no capacity, no quota')


if __name__ == '__main__':
    harness.run(provisioner, googleapis='127.77.0.3', options=['--notice=1'])
