#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# google_test.py - Google's own clients, unmodified: google-api-python-client with every version of the API, google-cloud-tpu
# over REST and gRPC, the latter also with only its defaults.
import os
import sys

import harness
from harness import wait_for


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
    made = client.create_node(parent=parent, node_id='n1', node=node).result(timeout=600)
    assert made.state.name == 'READY' and len(made.network_endpoints) == 2 and dict(made.metadata) == {'a': 'b'}
    assert [n.name for n in client.list_nodes(parent=parent)] == [f'{parent}/nodes/n1']
    try:
        client.get_node(name=f'{parent}/nodes/none')
        raise AssertionError('a node that is not there was found')
    except NotFound as error:
        assert 'was not found' in error.message
    changed = client.update_node(node=module.Node(name=f'{parent}/nodes/n1', labels={'k': 'v'}), update_mask={'paths': ['labels']})
    assert dict(changed.result(timeout=600).labels) == {'k': 'v'}
    try:
        client.stop_node(request={'name': f'{parent}/nodes/n1'}).result(timeout=600)  # a pod does not stop
        raise AssertionError('a pod was stopped')
    except GoogleAPICallError as error:
        assert 'bad request' in error.message
    spec = {'parent': parent, 'node_id': 'x', 'node': {'accelerator_type': 'v4-8', 'runtime_version': 'v2-alpha'}}
    client.create_queued_resource(parent=parent, queued_resource_id='q',
                                  queued_resource=module.QueuedResource(tpu={'node_spec': [spec]})).result(timeout=600)
    wait_for(lambda: client.get_queued_resource(name=f'{parent}/queuedResources/q'), lambda q: q.state.state.name == 'ACTIVE')
    assert len(list(client.list_accelerator_types(parent=parent))) > 10
    client.delete_node(name=f'{parent}/nodes/n1').result(timeout=600)
    client.delete_queued_resource(request={'name': f'{parent}/queuedResources/q', 'force': True}).result(timeout=600)


def grpc_client(module, target, credentials):
    """As programs do: a channel to an endpoint, over plain HTTP/2, credentials by call."""
    import grpc

    class Bearer(grpc.UnaryUnaryClientInterceptor):
        # Credentials by call need TLS; here the header is set by hand.
        def intercept_unary_unary(self, go_on, details, request):
            headers = {}
            credentials.before_request(None, 'POST', '', headers)
            details = details._replace(metadata=[*(details.metadata or []), ('authorization', headers['authorization'])])
            return go_on(details, request)

    channel = grpc.intercept_channel(grpc.insecure_channel(target), Bearer())
    return module.TpuClient(transport=module.TpuClient.get_transport_class('grpc')(channel=channel))


def check_headers(channel, token, secure):
    """A gRPC response, success or error, has the headers of every response."""
    import grpc
    ask = channel.unary_unary('/google.longrunning.Operations/ListOperations')
    name = f'projects/{os.environ["VTPU_PROJECT"]}/locations/us-central2-b'.encode()
    good, bad = b'\x22' + bytes([len(name)]) + name, b''
    for message, metadata, fails in ((good, [('authorization', f'Bearer {token}')], False), (good, [], True), (bad, [], True)):
        try:
            _, call = ask.with_call(message, metadata=metadata)
            assert not fails
            headers = dict(call.initial_metadata())
        except grpc.RpcError as error:  # headers and trailers in one
            assert fails, error
            headers = dict(error.trailing_metadata()) | dict(error.initial_metadata())
        assert headers['cache-control'] == 'no-store' and headers['x-content-type-options'] == 'nosniff', headers
        assert headers['content-security-policy'].startswith("default-src 'none'"), headers
        assert ('strict-transport-security' in headers) == secure, headers


def defaults():
    """Under Google's names: a program that knows nothing about vtpud."""
    from google.cloud import tpu_v2, tpu_v2alpha1
    parent = f'projects/{os.environ["VTPU_PROJECT"]}/locations/us-central2-b'
    for module in (tpu_v2, tpu_v2alpha1):
        check_tpu_client(module.TpuClient(), module, parent)
    check_tpu_client(tpu_v2.TpuClient(transport='rest'), tpu_v2, parent)
    import grpc
    check_headers(grpc.secure_channel('tpu.googleapis.com:443', grpc.ssl_channel_credentials()), os.environ['VTPU_TOKEN'], True)
    print('google-cloud-tpu, defaults: gRPC v2, v2alpha1, REST v2; headers')


def inner():
    if os.environ.get('VTPU_DEFAULTS'):
        defaults()
        return
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
        check_tpu_client(grpc_client(module, endpoint.split('//')[1], credentials), module, parent)
    import grpc
    check_headers(grpc.insecure_channel(endpoint.split('//')[1]), token, False)
    print('google-cloud-tpu gRPC on the same port: v2, v2alpha1; headers')
    if not harness.private_mounts():
        print("skipped Google's own names: no mount namespace with private mounts")
        return
    print(harness.shell(f'vtpu googleapis -- env VTPU_DEFAULTS=1 {sys.executable} -W ignore {os.path.abspath(sys.argv[0])} inner'))


if __name__ == '__main__':
    harness.run(inner, options=['--googleapis=127.77.0.4'])
