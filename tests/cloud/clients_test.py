#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# clients_test.py - unmodified clients against vtpud: google-api-python-client, google-cloud-tpu over REST and gRPC.
#   clients_test.py BIN_DIR VENV          runs them in VENV; without it says so and ends with 77
#   VTPU_CLIENTS=1 clients_test.py ...    makes VENV first (needs the package index)
import os
import subprocess
import sys
import time

PACKAGES = ['google-cloud-tpu', 'google-api-python-client', 'playwright']


def wait_for(get, done):
    """Asks `get` until `done` likes the answer; bounded."""
    for _ in range(500):
        value = get()
        if done(value):
            return value
        time.sleep(0.01)
    raise AssertionError(f'still {value}')


def check_discovery_client(endpoint, project, credentials):
    from googleapiclient import discovery
    for version in ('v1', 'v1alpha1', 'v2', 'v2alpha1'):
        ours = discovery.build('tpu', version, credentials=credentials, static_discovery=False, cache_discovery=False,
                               discoveryServiceUrl=f'{endpoint}/$discovery/rest?version={version}')
        theirs = discovery.build('tpu', version, credentials=credentials, client_options={'api_endpoint': endpoint})
        old = version.startswith('v1')
        parent = f'projects/{project}/locations/' + ('us-central1-f' if old else 'us-central2-b')
        body = ({'acceleratorType': 'v2-8', 'tensorflowVersion': '2.12.0'} if old else
                {'acceleratorType': 'v4-8', 'runtimeVersion': 'tpu-ubuntu2204-base'})
        for service in (ours, theirs):
            locations = service.projects().locations()
            assert len(locations.list(name=f'projects/{project}').execute()['locations']) > 5
            nodes = locations.nodes()
            finish = lambda op: wait_for(lambda: locations.operations().get(name=op['name']).execute(), lambda o: o['done'])
            assert 'response' in finish(nodes.create(parent=parent, nodeId='c1', body=body).execute())
            assert nodes.get(name=f'{parent}/nodes/c1').execute()['state'] == 'READY'
            assert len(nodes.list(parent=parent).execute()['nodes']) == 1
            finish(nodes.delete(name=f'{parent}/nodes/c1').execute())
        # Every method of the published document is in ours.
        methods = lambda s, part: {m for m in dir(getattr(s.projects().locations(), part)()) if not m.startswith('_')}
        for part in ('nodes', 'operations', 'acceleratorTypes') + (() if old else ('queuedResources', 'runtimeVersions')):
            assert methods(theirs, part) <= methods(ours, part), (version, part, methods(theirs, part) - methods(ours, part))


def check_tpu_client(client, module, parent):
    from google.api_core.exceptions import GoogleAPICallError, NotFound
    node = module.Node(accelerator_type='v4-16', runtime_version='tpu-ubuntu2204-base', metadata={'a': 'b'})
    made = client.create_node(parent=parent, node_id='n1', node=node).result(timeout=20)
    assert made.state.name == 'READY' and len(made.network_endpoints) == 2 and dict(made.metadata) == {'a': 'b'}
    assert [n.name for n in client.list_nodes(parent=parent)] == [f'{parent}/nodes/n1']
    try:
        client.get_node(name=f'{parent}/nodes/none')
        raise AssertionError('a node that is not there was found')
    except NotFound as error:
        assert 'was not found' in error.message
    changed = client.update_node(node=module.Node(name=f'{parent}/nodes/n1', labels={'k': 'v'}), update_mask={'paths': ['labels']})
    assert dict(changed.result(timeout=20).labels) == {'k': 'v'}
    try:
        client.stop_node(request={'name': f'{parent}/nodes/n1'}).result(timeout=20)  # a pod does not stop
        raise AssertionError('a pod was stopped')
    except GoogleAPICallError as error:
        assert 'bad request' in error.message
    spec = {'parent': parent, 'node_id': 'x', 'node': {'accelerator_type': 'v4-8', 'runtime_version': 'v2-alpha'}}
    client.create_queued_resource(parent=parent, queued_resource_id='q',
                                  queued_resource=module.QueuedResource(tpu={'node_spec': [spec]})).result(timeout=20)
    wait_for(lambda: client.get_queued_resource(name=f'{parent}/queuedResources/q'), lambda q: q.state.state.name == 'ACTIVE')
    assert len(list(client.list_accelerator_types(parent=parent))) > 10
    client.delete_node(name=f'{parent}/nodes/n1').result(timeout=20)
    client.delete_queued_resource(request={'name': f'{parent}/queuedResources/q', 'force': True}).result(timeout=20)


def grpc_client(module, target, token):
    import collections
    import grpc

    class Details(collections.namedtuple('Details', 'method timeout metadata credentials wait_for_ready compression'), grpc.ClientCallDetails):
        pass

    class Bearer(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, call, details, request):
            metadata = list(details.metadata or []) + [('authorization', f'Bearer {token}')]
            return call(Details(details.method, details.timeout, metadata, details.credentials, details.wait_for_ready, details.compression), request)

    channel = grpc.intercept_channel(grpc.insecure_channel(target), Bearer())
    return module.TpuClient(transport=module.TpuClient.get_transport_class('grpc')(channel=channel))


def inner():
    from google.cloud import tpu_v2, tpu_v2alpha1
    from google.oauth2.credentials import Credentials
    endpoint, token, project = (os.environ[n] for n in ('VTPU_ENDPOINT', 'VTPU_TOKEN', 'VTPU_PROJECT'))
    parent = f'projects/{project}/locations/us-central2-b'
    credentials = Credentials(token=token)
    check_discovery_client(endpoint, project, credentials)
    print('google-api-python-client: 4 versions')
    check_tpu_client(tpu_v2.TpuClient(credentials=credentials, transport='rest', client_options={'api_endpoint': endpoint}), tpu_v2, parent)
    print('google-cloud-tpu REST: v2')
    for module in (tpu_v2, tpu_v2alpha1):
        check_tpu_client(grpc_client(module, os.environ['VTPU_GRPC'], token), module, parent)
    print('google-cloud-tpu gRPC: v2, v2alpha1')


def main():
    bin_dir, venv = sys.argv[1:3]
    python = f'{venv}/bin/python'
    if not os.path.exists(python):
        if not os.environ.get('VTPU_CLIENTS'):
            print(f'skipped: no {venv}; VTPU_CLIENTS=1 makes it')
            sys.exit(77)
        subprocess.run([sys.executable, '-m', 'venv', venv], check=True)
        subprocess.run([python, '-m', 'pip', '-q', 'install', *PACKAGES], check=True)
    os.execv(f'{bin_dir}/vtpud', ['vtpud', '--ephemeral', '--', python, '-W', 'ignore', __file__, 'inner'])


if __name__ == '__main__':
    inner() if sys.argv[1:] == ['inner'] else main()
