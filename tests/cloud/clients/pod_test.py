#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# pod_test.py - the life of a training job on a v3-32, whose four hosts run one process each: checkpoints by Orbax in a folder of
# all workers, which at level 1 share the host's files; a process that is killed ends the others with its name, and the restarted job goes on from the last
# checkpoint; the notice of a preemption, seen by one worker, stops all at one step, which they save; the next TPU VM goes on
# from there. All losses are those of a run that nothing happened to, bit for bit.
import glob
import json
import os
import shutil
import tempfile
import time

import harness

ZONE = '--zone=europe-west4-a'
WORKERS = range(4)
TRAIN = '''
import os, sys
import jax, jax.numpy as jnp, numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def main(steps, folder):
    """Saves every ten steps up to the twentieth, and when a notice comes."""
    jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    random = np.random.default_rng(0)
    state = {"first": random.standard_normal((64, 96), np.float32) / 8, "second": random.standard_normal((96, 1), np.float32) / 8}
    state = {name: jax.make_array_from_callback(value.shape, whole if value.shape[1] == 1 else rows, lambda at, value=value: value[at])
             for name, value in state.items()}

    def loss_of(state, x):
        return jnp.mean((jnp.tanh(x @ state["first"]) @ state["second"] - jnp.sin(x[:, :1])) ** 2)

    @jax.jit
    def train_step(state, x):
        loss, slope = jax.value_and_grad(loss_of)(state, x)
        return jax.tree.map(lambda value, d: value - 0.1 * d, state, slope), loss

    done, manager = 0, None
    if folder:
        manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2))
        done = manager.latest_step() or 0
    if done:
        shapes = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding), state)
        state = manager.restore(done, args=ocp.args.StandardRestore(shapes))
        print("resumed after", done, flush=True)
    for step in range(done + 1, steps + 1):
        batch = np.random.default_rng(step).standard_normal((128, 64), np.float32)
        state, loss = train_step(state, jax.make_array_from_callback(batch.shape, rows, lambda at: batch[at]))
        print("loss", step, float(loss).hex(), flush=True)
        ended = bool(folder) and multihost_utils.reached_preemption_sync_point(step)
        if manager and (ended or step in (10, 20)):
            manager.save(step, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
            print("saved", step, flush=True)
        if ended:
            print("the notice came", flush=True)
            break

main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
'''
# JAX asks the metadata server for the slices of a multislice unless it is told, with a package that is not in this Python.
SETTINGS = 'umask 0; export MEGASCALE_COORDINATOR_ADDRESS= MEGASCALE_NUM_SLICES= MEGASCALE_SLICE_ID= OMP_NUM_THREADS=1; '
# At level 1 a process sees those of the whole machine, so also the `train.py` of another test's worker with the same ids.
PROGRAM = '^python3 .*pod_train.py'
# What a user's own script does: the notice is to be seen in the metadata, and SIGTERM tells JAX. The wait has an end, for a
# notice that came before it began.
WATCH = '''until curl -s -H "Metadata-Flavor: Google" \
  "http://metadata.google.internal/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=5" | grep TRUE; do :; done'''


def ssh(node, worker, command, check=True):
    with open(f'{os.environ["HOME"]}/command', 'w') as file:
        file.write(command)
    return harness.shell(f'vtpu tpu-vm ssh {node} {ZONE} --worker={worker} --command="$(cat $HOME/command)"', check=check)


def create(node):
    harness.shell(f'vtpu tpu-vm create {node} {ZONE} --accelerator-type=v3-32 --version=tpu-ubuntu2204-base --spot')
    path = f'{os.environ["HOME"]}/pod_train.py'
    with open(path, 'w') as file:
        file.write(TRAIN)
    harness.shell(f'vtpu tpu-vm scp {path} {node}:pod_train.py {ZONE} --worker=all')


def start(node, steps, folder=''):
    """In the background of every worker."""
    ssh(node, 'all', f'{SETTINGS} rm -f status log; nohup sh -c "python3 -W ignore pod_train.py {steps} {folder} > log 2>&1; '
                     'echo \\$? > status" > /dev/null 2>&1 < /dev/null &')


def ends(node, workers=WORKERS):
    """The log and the exit status of each."""
    ended = {}
    for worker in workers:
        text = harness.wait_for(lambda worker=worker: ssh(node, worker, 'cat log; test -e status && echo status $(cat status)'
                                                                       ' || true'), lambda text: 'status ' in text)
        log, status = text.rsplit('status ', 1)
        ended[worker] = log, int(status)
    return ended


def wait_for_log(node, text, worker=0):
    log = harness.wait_for(lambda: ssh(node, worker, 'cat log; test ! -e status || echo ended'),
                           lambda log: text in log or 'ended\n' in log)
    assert text in log, f'worker {worker}\n{log[-3000:]}'


def losses(log):
    words = (line.split() for line in log.splitlines())
    return {int(line[1]): line[2] for line in words if len(line) == 3 and line[0] == 'loss'}


def note(seen, log):
    """The losses of all runs by step: a step that is taken again has the same."""
    for step, loss in losses(log).items():
        assert seen.setdefault(step, loss) == loss, f'step {step}: {seen[step]}, then {loss}'


def steps_of(log, what):
    return [int(line.rsplit(' ', 1)[1]) for line in log.splitlines() if line.startswith(what)]


def completed(node, what, steps):
    """The log of worker 0; all workers came to the end, with the same losses."""
    ended = ends(node)
    for worker, (log, status) in ended.items():
        assert status == 0, f'{what}: worker {worker} ended with {status}\n{log[-3000:]}'
        assert losses(log) == losses(ended[0][0]), f'{what}: worker {worker}\n{log[-3000:]}'
    assert max(losses(ended[0][0])) == steps, ended[0][0][-2000:]
    return ended[0][0]


def a_process_dies(seen, folder):
    start('first', 1000000, folder)
    wait_for_log('first', 'saved 20')
    ssh('first', 2, f'pkill -KILL -f "{PROGRAM}"')
    killed = time.monotonic()
    for worker in (0, 1, 3):
        wait_for_log('first', 'process 2 (host ', worker)
    print(f'{time.monotonic() - killed:.0f} s until the three others had named the killed process, by ssh', flush=True)
    ended = ends('first')  # JAX waits for the one that is gone, until its heartbeat is overdue
    for worker, (log, status) in ended.items():
        assert status != 0, log
        assert worker == 2 or ' ended' in log.split('process 2 (host ', 1)[1], f'worker {worker}\n{log[-3000:]}'
    log = ended[0][0]
    note(seen, log)
    print('steps:', max(losses(log)), 'of them saved: 20', flush=True)
    start('first', 28, folder)
    log = completed('first', 'resumed', 28)
    assert steps_of(log, 'resumed after') == [20], log
    note(seen, log)
    print('the job goes on after step 20', flush=True)


def a_notice_comes(seen, folder):
    start('first', 1000000, folder)
    wait_for_log('first', 'loss')
    ssh('first', 1, f"nohup sh -c '{WATCH} > seen; pkill -TERM -f \"{PROGRAM}\"' > /dev/null 2>&1 < /dev/null &")
    harness.shell('curl -sf -X POST -H "Authorization: Bearer $VTPU_TOKEN" -d "{}" '
                  '$VTPU_ENDPOINT/vtpu/v1/projects/$VTPU_PROJECT/nodes/europe-west4-a/first:preempt')
    words = ssh('first', 'all', 'curl -s -H "Metadata-Flavor: Google" '
                                'http://metadata.google.internal/computeMetadata/v1/instance/preempted; echo')
    assert words.count('TRUE') == 4, words
    ended = ends('first')
    last = {steps_of(log, 'saved')[-1] for log, _ in ended.values()}
    for worker, (log, status) in ended.items():
        assert status == 0 and 'the notice came' in log, f'worker {worker}: {status}\n{log[-3000:]}'
    assert len(last) == 1, last
    note(seen, ended[0][0])
    print('the notice stops all workers after step', *last, flush=True)
    return last.pop()


def story(folder):
    seen = {}
    create('first')
    a_process_dies(seen, folder)
    last = a_notice_comes(seen, folder)
    harness.shell(f'vtpu tpu-vm delete first {ZONE} --quiet')
    create('second')
    start('second', last + 5, folder)
    log = completed('second', 'the next TPU VM', last + 5)
    assert steps_of(log, 'resumed after') == [last], log
    note(seen, log)
    start('second', last + 5)
    whole = losses(completed('second', 'undisturbed', last + 5))
    assert seen.keys() >= whole.keys(), sorted(whole.keys() - seen.keys())
    assert all(seen[step] == loss for step, loss in whole.items()), json.dumps([seen, whole])
    print('the losses of', len(whole), 'steps are those of a run that nothing happened to')


def inner():
    folder = tempfile.mkdtemp(prefix='vtpu-pod-')
    os.chmod(folder, 0o777)
    try:
        story(f'{folder}/run')
    finally:
        shutil.rmtree(folder)


if __name__ == '__main__':
    if not glob.glob('/usr/lib/*/libnss_wrapper.so'):
        harness.skip('no libnss_wrapper.so')
    # The notice is long: logs are read before the TPU VM goes, on a busy machine too.
    harness.run(inner, venv='venv', guests=True, level=1, needs=['sshd', 'curl', 'pkill'], options=['--notice=600'])
