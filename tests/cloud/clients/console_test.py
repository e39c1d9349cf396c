#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# console_test.py - the web console in headless Chromium, through the whole story, by keyboard where it matters and on a phone.
# VTPU_SCREENSHOTS=FOLDER keeps pictures.
import os

import harness

CHROMIUM = '/usr/bin/chromium'


def picture(page, name):
    folder = os.environ.get('VTPU_SCREENSHOTS')
    if folder:
        page.screenshot(path=f'{folder}/console-{name}.png')


def story(page, endpoint, token):
    page.goto(f'{endpoint}/')
    page.get_by_label('or access token').fill('wrong')
    page.get_by_role('button', name='Sign in').press('Enter')
    page.get_by_text('Wrong e-mail, password or token.').wait_for()
    page.get_by_label('or access token').fill(token)
    page.get_by_role('button', name='Sign in').press('Enter')
    page.get_by_text('No TPU VMs yet.').wait_for()
    page.get_by_role('link', name='Create', exact=True).press('Enter')
    page.get_by_text('an hour').wait_for()
    page.get_by_label('Type').select_option('v4-16')
    page.get_by_text('$25.76 an hour').wait_for()
    picture(page, 'create')
    page.get_by_label('Name').fill('lab')
    page.get_by_role('button', name='Create').press('Enter')
    page.get_by_text('READY').wait_for()
    picture(page, 'nodes')
    page.get_by_role('link', name='Create', exact=True).click()
    page.get_by_text('an hour').wait_for()
    page.get_by_label('Name').fill('later')
    page.get_by_label('Price model').select_option('spot')
    page.get_by_label('wait in the queue').check()
    page.get_by_role('button', name='Create').click()
    page.get_by_text('ACTIVE').wait_for()
    page.get_by_role('link', name='Bill').click()
    page.get_by_text('Bill of').wait_for()
    picture(page, 'bill')
    page.get_by_role('link', name='Grants').click()
    page.get_by_label('What for').fill('training small language models')
    page.get_by_role('button', name='Apply').click()
    page.get_by_role('button', name='Approve').click()
    page.get_by_text('APPROVED').wait_for()
    picture(page, 'grants')
    page.get_by_role('link', name='Events').click()
    page.get_by_role('heading', name='Events').wait_for()
    page.set_viewport_size({'width': 390, 'height': 800})
    page.get_by_role('link', name='TPU VMs').click()
    page.get_by_text('READY').first.wait_for()
    assert page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'), 'the page is wider than a phone'
    picture(page, 'phone')
    page.on('dialog', lambda dialog: dialog.accept())
    page.get_by_role('button', name='Delete lab').click()
    page.get_by_text('lab', exact=True).wait_for(state='detached')
    page.get_by_role('button', name='Sign out').click()
    page.get_by_role('heading', name='Sign in').wait_for()


def inner():
    from playwright.sync_api import sync_playwright
    errors = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'])
        page = browser.new_page(viewport={'width': 1100, 'height': 700})
        page.set_default_timeout(20000)
        page.on('pageerror', lambda error: errors.append(str(error)))
        story(page, os.environ['VTPU_ENDPOINT'], os.environ['VTPU_TOKEN'])
        browser.close()
    assert not errors, errors


if __name__ == '__main__':
    harness.run(inner, needs=[CHROMIUM])
