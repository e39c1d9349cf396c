#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# console_live_test.py - what the console shows of real TPU VMs: a JAX program in one of them makes its chips busy, and its report
# is there when it has ended. The ssh command that the page offers is the one that starts the program.
# VTPU_SCREENSHOTS=FOLDER writes the pictures of docs/pictures there.
import os
import re
import subprocess

import console_test
import harness

ZONE = '--zone=us-east5-b'
PROGRAM = '''
import os, jax, jax.numpy as np
step = jax.jit(lambda a: a @ a / 1024)
a = np.ones((1024, 1024), np.bfloat16)
while not os.path.exists("end"):
    a = step(a).block_until_ready()
'''


def story(page):
    page.goto(f'{os.environ["VTPU_ENDPOINT"]}/')
    page.get_by_label('or access token').fill(os.environ['VTPU_TOKEN'])
    page.get_by_role('button', name='Sign in').press('Enter')
    console_test.go(page, 'Create')
    page.get_by_text('an hour').wait_for()
    page.get_by_label('Zone').select_option('us-east5-b')
    page.get_by_label('Type').locator('option', has_text='v5litepod-1').first.wait_for(state='attached')
    page.get_by_label('Type').select_option('v5litepod-1')
    page.get_by_label('Software').select_option('v2-alpha-tpuv5-lite')
    page.get_by_label('Name').fill('train')
    page.get_by_role('button', name='Create', exact=True).click()
    page.get_by_text('READY').wait_for()
    ssh = page.get_by_role('row', name='train').locator('code').inner_text()
    with open(f'{os.environ["HOME"]}/train.py', 'w') as file:
        file.write(PROGRAM)
    harness.shell(f'vtpu tpu-vm scp {os.environ["HOME"]}/train.py train:train.py {ZONE}')
    program = subprocess.Popen([*ssh.split(), '--command=python3 train.py'])
    try:
        busy = page.get_by_role('meter', name='Chips busy: ')
        busy.wait_for()
        harness.wait_for(lambda: page.wait_for_timeout(500) or float(busy.get_attribute('value')), lambda duty: duty > 0.2)
        page.get_by_text(re.compile(r'HBM [0-9.]+ [MG]iB of 15\.[0-9] GiB')).wait_for()
        console_test.picture(page, 'nodes')
        console_test.go(page, 'Jobs')
        page.get_by_text('python3 train.py').wait_for()
        page.get_by_text('RUNNING').wait_for()
        harness.shell(f'vtpu tpu-vm ssh train {ZONE} --command="touch end"')
        assert program.wait(60) == 0
    finally:
        program.kill()
    page.get_by_text('ENDED').wait_for()
    programs = int(page.locator('td[data-label=Programs]').inner_text())
    assert programs > 10, programs
    console_test.picture(page, 'jobs')


def inner():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=console_test.CHROMIUM, args=['--no-sandbox'])
        page = browser.new_page(viewport=console_test.DESK)
        page.set_default_timeout(30000)
        try:
            story(page)
        except Exception:
            print(page.locator('body').inner_text())
            raise
        browser.close()


if __name__ == '__main__':
    harness.run(inner, guests=True, needs=['sshd', console_test.CHROMIUM])
