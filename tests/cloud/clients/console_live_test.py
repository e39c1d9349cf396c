#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# console_live_test.py - the console on real TPU VMs: a JAX program in one of them makes its chips busy and its report
# appears when it has ended; another program is ended with a button. The page's ssh command is the one that starts the
# program. VTPU_SCREENSHOTS=FOLDER writes the pictures of docs/pictures there.
import os
import re
import subprocess

import console_test
import harness

ZONE = '--zone=us-east5-b'
PROGRESS = r"""python3 -c 'import time
for i in range(11): print(f"\r{10 * i:3}%|{chr(9608) * i:10}|", end="", flush=True); time.sleep(0.02)'"""
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
        page.get_by_role('link', name='Node train').click()
        page.get_by_text('The host runs a program.').wait_for()
        page.get_by_role('row', name='python3 train.py').get_by_text('JAX 0.').wait_for()
        console_test.picture(page, 'node')
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


def release(page):
    """A program is taken off the chips with its button, and the next one gets them."""
    harness.shell(f'vtpu tpu-vm ssh train {ZONE} --command="rm end"')
    program = subprocess.Popen(['vtpu', 'tpu-vm', 'ssh', 'train', ZONE, '--command=python3 train.py'])
    try:
        console_test.go(page, 'TPU VMs')
        page.get_by_role('link', name='Node train').click()
        button = page.get_by_role('button', name='Release worker 0 from process')
        button.wait_for()
        page.once('dialog', lambda dialog: dialog.accept())
        button.click()
        page.get_by_text('No host runs a program.').wait_for()
        assert program.wait(30) != 0
    finally:
        program.kill()
    console_test.go(page, 'Events')
    page.get_by_role('row', name='release').get_by_text('python3 train.py').first.wait_for()
    print('the chips are released')


def type_line(page, line):
    page.keyboard.type(line)
    page.keyboard.press('Enter')


def shows(page, text, seconds=600):
    output = page.get_by_role('log', name='Output of train')
    harness.wait_for(lambda: page.wait_for_timeout(100) or output.inner_text(), lambda shown: text in shown, seconds)


def less(page):
    """Two hundred lines in less, whose own prompt is there; the shell's prompt has a colon, too, so the screen is asked."""
    type_line(page, 'clear; seq 1 200 | less')
    harness.wait_for(lambda: page.wait_for_timeout(50) or page.evaluate(
        '(() => { const s = state.terminal.screen; return s.other ? s.text(s.rows - 1) : ""; })()'), lambda text: text == ':')


def mouse(page):
    """A program that asks gets presses, drags and the wheel with their cells; with Shift the browser gets the mouse."""
    output = page.get_by_role('log', name='Output of train')

    def at(column, row):  # the middle of a cell
        cell = page.evaluate('(() => { const t = state.terminal, m = t.measure.getBoundingClientRect(), n = t.now.getBoundingClientRect();'
                             ' return [n.left, n.top, m.width / 20, m.height]; })()')
        return cell[0] + (column - 0.5) * cell[2], cell[1] + (row - 0.5) * cell[3]

    type_line(page, "clear; printf '\\033[?1002h\\033[?1006h'; stty raw -echo; IFS= read -rd q keys; stty sane; cat -v <<<\"$keys\"; "
                    "printf '\\033[?1002l\\033[?1006l'; echo; echo over")
    harness.wait_for(lambda: page.wait_for_timeout(50) or page.evaluate('state.terminal.screen.mouse'), lambda mode: mode == 1002)
    page.mouse.move(*at(5, 7))
    page.mouse.down()
    page.mouse.move(*at(6, 7))
    page.mouse.move(*at(9, 8))
    page.mouse.up()
    page.mouse.wheel(0, 100)
    page.mouse.click(*at(2, 3), button='right')
    page.keyboard.down('Shift')
    page.mouse.click(*at(20, 20))
    page.keyboard.up('Shift')
    page.keyboard.press('q')
    shows(page, '^[[<0;5;7M^[[<32;6;7M^[[<32;9;8M^[[<0;9;8m^[[<65;9;8M^[[<2;2;3M^[[<2;2;3m')
    shows(page, 'over')
    assert ';20;20' not in output.inner_text(), output.inner_text()
    less(page)
    page.mouse.wheel(0, 100)  # three lines down
    harness.wait_for(lambda: page.wait_for_timeout(50) or page.evaluate('state.terminal.screen.text(0)'), lambda text: text == '4')
    page.keyboard.press('q')


def terminal(page):
    """A shell in the browser: what is typed and what comes back, colours, size, whole-screen programs, its end; on a phone."""
    console_test.go(page, 'TPU VMs')
    page.get_by_role('link', name='Terminal of train').click()
    page.get_by_label('Terminal of train').wait_for()
    shows(page, '$', 60)
    type_line(page, 'echo $((6 * 7)) $USER $TERM gr\u00fcn')
    shows(page, '42 admin xterm-256color gr\u00fcn')
    type_line(page, "printf '\\033[1;31mred\\033[0m %s\\n' done")
    page.locator('.output span.f1.tb', has_text='red').wait_for()
    type_line(page, 'sudo -n id -un')
    shows(page, 'root')
    type_line(page, 'sleep 100')
    shows(page, 'sleep 100')
    page.keyboard.press('Control+c')
    shows(page, '^C')
    page.wait_for_timeout(1000)  # it discards input in the meantime
    type_line(page, 'seq 1 500')
    past = page.locator('.output > div').first.locator('div')
    harness.wait_for(lambda: page.wait_for_timeout(100) or past.count(), lambda lines: lines > 300)
    type_line(page, 'stty size')
    page.wait_for_timeout(500)
    page.set_viewport_size({'width': 900, 'height': 500})
    type_line(page, 'clear; stty size; tput cols')
    wide = page.evaluate('[state.terminal.screen.rows, state.terminal.screen.columns]')
    shows(page, f'{wide[0]} {wide[1]}\n{wide[1]}\n')
    page.set_viewport_size(console_test.DESK)
    less(page)
    page.keyboard.press('G')
    shows(page, '(END)')
    page.keyboard.press('q')
    mouse(page)
    type_line(page, PROGRESS)
    shows(page, '100%|')
    type_line(page, 'clear; python3 -W ignore -c "import jax; print(jax.devices())"')
    shows(page, 'TpuDevice(id=0', 120)
    console_test.picture(page, 'terminal')
    page.get_by_label('Terminal of train').focus()
    page.keyboard.press('Shift+Escape')  # the way out by keyboard
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == 'Key Escape'
    page.set_viewport_size(console_test.PHONE)
    console_test.fits(page)
    page.get_by_label('Terminal of train').focus()
    page.keyboard.type('nothing')
    page.get_by_role('button', name='Key Control').click()
    page.keyboard.type('u')  # Control and u: the line is empty again
    type_line(page, 'exit 3')
    page.get_by_text('Ended: exit 3.').wait_for()
    page.set_viewport_size(console_test.DESK)
    page.get_by_role('button', name='Open again').click()
    shows(page, '$', 60)
    console_test.go(page, 'Events')
    page.get_by_text('worker 0 as admin').first.wait_for()
    harness.wait_for(lambda: harness.shell(f'vtpu tpu-vm ssh train {ZONE} --command="who; pgrep -u admin bash || echo none"'),
                     lambda text: 'none' in text)  # the shell has ended with its page
    console_test.go(page, 'TPU VMs')
    page.get_by_role('link', name='Terminal of train').click()
    shows(page, '$', 60)
    other = page.context.new_page()  # signs out: the terminal is closed there, too
    other.goto(f'{os.environ["VTPU_ENDPOINT"]}/')
    other.get_by_role('button', name='Sign out').click()
    page.get_by_text('Ended: signed out, or not allowed here any more.').wait_for()
    print('a terminal in the browser')


def inner():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=console_test.CHROMIUM, args=['--no-sandbox'])
        page = browser.new_context(viewport=console_test.DESK).new_page()
        page.set_default_timeout(600000)
        try:
            story(page)
            release(page)
            terminal(page)
        except Exception:
            print(page.locator('body').inner_text())
            raise
        browser.close()


if __name__ == '__main__':
    harness.run(inner, guests=True, needs=['sshd', console_test.CHROMIUM])
