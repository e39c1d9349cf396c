#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# record_test.py - a recording of real clients (our command line, google-api-python-client), replayed to a fresh cloud:
# it answers the same. A modified recording is detected; no credential of the clients is in it.
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, 'python'))
from vtpu import cloud, replay  # noqa: E402  pylint: disable=wrong-import-position

ZONE = '--zone=us-central2-b'
STORY = [f'tpu-vm create lab {ZONE} --accelerator-type=v4-16 --version=tpu-ubuntu2204-base --metadata=HF_TOKEN=hunter2',
         f'tpu-vm list {ZONE}', f'tpu-vm describe lab {ZONE}', f'tpu-vm create lab {ZONE} --accelerator-type=v4-8 --version=v2-alpha',
         f'tpu-vm get-guest-attributes lab {ZONE}', f'tpu-vm stop lab {ZONE}', f'tpu-vm accelerator-types list {ZONE}',
         'quotas preferences create --quota-id=TPUV4sPerProjectPerZoneForTPUAPI --preferred-value=64 --justification=more',
         f'queued-resources create q --node-id=n {ZONE} --accelerator-type=v4-8 --runtime-version=tpu-ubuntu2204-base',
         f'queued-resources list {ZONE}', f'queued-resources delete q {ZONE} --force --quiet', f'tpu-vm delete lab {ZONE} --quiet',
         f'tpu-vm describe lab {ZONE}', 'config list']
GOOGLE = '''
import os, time
from googleapiclient import discovery
tpu = discovery.build("tpu", "v2", client_options={"api_endpoint": os.environ["VTPU_ENDPOINT"]},
                      discoveryServiceUrl=os.environ["VTPU_ENDPOINT"] + "/$discovery/rest?version={apiVersion}")
places = tpu.projects().locations()
parent = f'projects/{os.environ["VTPU_PROJECT"]}/locations/us-central2-b'
def done(operation):
    while not operation["done"]:
        operation = places.operations().get(name=operation["name"]).execute()
    return operation
body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", "labels": {"a": "b"}}
node = done(places.nodes().create(parent=parent, nodeId="g", body=body).execute())["response"]["name"]
assert [n["name"] for n in places.nodes().list(parent=parent).execute()["nodes"]] == [node]
done(places.nodes().delete(name=node).execute())
assert not places.nodes().list(parent=parent).execute().get("nodes")
'''


def record(bin_dir, python, path):
    """Runs the clients on a cloud that records them; returns what must not be in the recording."""
    with tempfile.TemporaryDirectory() as home, cloud.ephemeral(f'--record={path}', program=f'{bin_dir}/vtpud') as variables:
        environment = {**os.environ, **variables, 'HOME': home}
        for line in STORY:
            subprocess.run([f'{bin_dir}/vtpu', *line.split()], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if os.path.exists(python):
            subprocess.run([python, '-W', 'ignore', '-c', GOOGLE], env=environment, check=True)
        with open(variables['GOOGLE_APPLICATION_CREDENTIALS'], encoding='utf-8') as file:
            private = json.load(file)['private_key'].splitlines()[1]
    return [variables['VTPU_TOKEN'], private, 'hunter2', 'Bearer', 'eyJ']


def differences(bin_dir, path, patience):
    with cloud.ephemeral(program=f'{bin_dir}/vtpud') as variables:
        return replay.replay(path, variables, patience=patience)


def changed(path, change):
    """A copy of the recording, passed through `change`, which returns whether it changed a row."""
    with open(path, encoding='utf-8') as file:
        rows = [json.loads(line) for line in file]
    assert any([change(row) for row in rows]), 'nothing to change'  # every row, not up to the first
    with open(path + '.changed', 'w', encoding='utf-8') as file:
        file.writelines(json.dumps(row) + '\n' for row in rows)
    return path + '.changed'


def status(row):
    mine = row['method'] == 'DELETE' and row['status'] == 200
    row['status'] = 404 if mine else row['status']
    return mine


def state(row):
    nodes = row.get('reply', {}).get('nodes', [])
    for node in nodes:
        node['state'] = 'PREEMPTED'
    return bool(nodes)


def field(row):
    mine = row['reply'].pop('acceleratorType', None) if row['path'].split('?')[0].endswith('/nodes/lab') and 'reply' in row else None
    return mine is not None


def main():
    bin_dir, build_dir = (os.path.abspath(a) for a in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        path = f'{folder}/traffic.jsonl'
        secrets = record(bin_dir, f'{build_dir}/venv-clients/bin/python', path)
        with open(path, encoding='utf-8') as file:
            text = file.read()
        for secret in secrets:
            assert secret not in text, f'{secret} was written'
        assert '"method": "DELETE"' in text and '"status": 409' in text and '"status": 404' in text
        found = differences(bin_dir, path, 30)
        assert not found, '\n'.join(found)
        print(f'{text.count(chr(10))} calls recorded, all replies the same on a fresh cloud')
        for change, want in ((status, 'status 200, not 404'), (state, "is 'READY', not 'PREEMPTED'"), (field, 'acceleratorType is new')):
            found = differences(bin_dir, changed(path, change), 0.5)
            assert any(want in line for line in found), (want, found)
        print('what is not the same is said')


if __name__ == '__main__':
    main()
