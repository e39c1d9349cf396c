#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# legacy_test.py - cloud-tpu-client 0.10, with which TensorFlow resolves TPUs: v1 of the API by TPU_API_DISCOVERY_URL.
# It pins
# a google-api-python-client of 2020 and so has its own virtual environment.
import json
import os
import urllib.request

import harness


def inner():
    from cloud_tpu_client import client
    endpoint, project = os.environ['VTPU_ENDPOINT'], os.environ['VTPU_PROJECT']

    def api(method, path, body=None):
        request = urllib.request.Request(endpoint + path, json.dumps(body).encode() if body else None, method=method,
                                         headers={'Authorization': f'Bearer {os.environ["VTPU_TOKEN"]}',
                                                  'Content-Type': 'application/json'})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)

    nodes = f'/v1/projects/{project}/locations/us-central1-f/nodes'
    api('POST', f'{nodes}?nodeId=old', {'acceleratorType': 'v2-8', 'tensorflowVersion': '2.12.0'})
    harness.wait_for(lambda: api('GET', f'{nodes}/old')['state'], lambda state: state == 'READY')
    tpu = client.Client(tpu='old', zone='us-central1-f', project=project, credentials='default')
    assert tpu.state() == 'READY' and tpu.health() == 'HEALTHY' and tpu.accelerator_type() == 'v2-8', tpu.accelerator_type()
    assert tpu.runtime_version() == '2.12.0', tpu.runtime_version()
    endpoints = tpu.network_endpoints()
    assert endpoints[0]['port'] and endpoints[0]['ipAddress'], endpoints
    tpu.wait_for_healthy(timeout_s=600, interval=1)
    print(f'cloud-tpu-client: {tpu.accelerator_type()} at {endpoints[0]["ipAddress"]}')


if __name__ == '__main__':
    harness.run(inner, venv='venv-clients-legacy', googleapis='127.77.0.5')
