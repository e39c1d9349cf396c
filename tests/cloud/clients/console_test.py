#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# console_test.py - the web console in headless Chromium, start to finish: an administrator creates accounts, a student
# creates a project and applies for a grant, a reviewer approves it, the student creates TPU VMs and pays. Once with a
# mouse, once by keyboard alone, once on a phone. Time is virtual, so that the bill has a month.
# VTPU_SCREENSHOTS=FOLDER writes the pictures of docs/pictures there.
import json
import os
import urllib.request

import harness

CHROMIUM = '/usr/bin/chromium'
PASSWORD = 'correct horse battery'
DESK, PHONE = {'width': 1200, 'height': 620}, {'width': 390, 'height': 800}


def picture(page, name):
    folder = os.environ.get('VTPU_SCREENSHOTS')
    if not folder:
        return
    page.evaluate("document.activeElement.blur(); document.getElementById('status').textContent = ''")
    page.evaluate('scrollTo(0, 0)')
    page.mouse.move(0, 0)
    page.screenshot(path=f'{folder}/console-{name}.png')


def api(method, path, body=None):
    request = urllib.request.Request(os.environ['VTPU_ENDPOINT'] + path, method=method, data=json.dumps(body or {}).encode(),
                                     headers={'Authorization': f'Bearer {os.environ["VTPU_TOKEN"]}', 'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def fits(page):
    assert page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'), f'{page.url} is wider than {page.viewport_size}'


def sign_in(page, email):
    page.goto(f'{os.environ["VTPU_ENDPOINT"]}/')
    page.get_by_label('E-mail').fill(email)
    page.get_by_label('Password').fill(PASSWORD)
    page.get_by_role('button', name='Sign in').click()
    page.get_by_role('button', name='Sign out').wait_for()


def go(page, name):
    page.get_by_role('link', name=name, exact=True).click()


def wrong_sign_in(page):
    reply = page.goto(f'{os.environ["VTPU_ENDPOINT"]}/')
    assert "default-src 'none'" in reply.headers['content-security-policy'], reply.headers
    assert reply.headers['cross-origin-opener-policy'] == 'same-origin' and reply.headers['x-content-type-options'] == 'nosniff', reply.headers
    assert not page.get_by_role('button', name='Sign out').is_visible()
    page.get_by_label('or access token').fill('wrong')
    page.get_by_role('button', name='Sign in').press('Enter')
    page.get_by_text('Wrong e-mail, password or token.').wait_for()


def student_applies(page):
    wrong_sign_in(page)
    sign_in(page, 'ada@example.org')
    page.get_by_role('heading', name='New project').wait_for()
    page.get_by_label('Project id').fill('ada-lab')
    page.get_by_role('button', name='Create project').click()
    page.get_by_label('What for').fill('Training small language models on open text; weights and logs will be published.')
    page.get_by_label('Zone').select_option('us-central2-b')
    page.get_by_label('Family').select_option('v4')
    page.get_by_label('Chips').fill('32')
    page.get_by_role('button', name='Apply').click()
    page.get_by_text('PENDING').wait_for()
    assert page.get_by_role('button', name='Approve').count() == 0, 'an applicant sees the buttons of a reviewer'


def reviewer_approves(page):
    sign_in(page, 'rex@example.org')
    page.get_by_role('heading', name='Research grants').wait_for()
    page.get_by_text('Training small language models').wait_for()
    picture(page, 'review')
    page.get_by_role('button', name='Approve').click()
    page.get_by_text('APPROVED').wait_for()
    reviewer_grants_quota(page)
    page.get_by_role('button', name='Sign out').click()
    page.get_by_role('heading', name='Sign in').wait_for()


def reviewer_grants_quota(page):
    """Requested on the command line, granted in the console."""
    quotas = 'vtpu quotas preferences --project=ada-lab '
    asked = harness.shell(quotas + "create --preference-id=more --quota-id=TPUV4sPerProjectPerZoneForTPUAPI --preferred-value=128 "
                                   "--justification='a second slice'")
    assert 'waits for a reviewer' in asked, asked
    assert 'a second slice' in harness.shell(quotas + 'review')
    page.reload()
    page.get_by_text('a second slice').wait_for()
    page.get_by_role('button', name='Approve more').click()
    page.get_by_text('Nothing waits.').wait_for()
    granted = harness.shell(quotas + "describe more --format='value(quotaConfig.grantedValue,reconciling)'").split()
    assert granted == ['128', 'False'], granted


def student_creates(page):
    go(page, 'Create')
    page.get_by_text('an hour').wait_for()
    page.get_by_label('Type').select_option('v4-8')
    page.get_by_text('$12.88 an hour').wait_for()
    page.get_by_text('chips free in us-central2-b').wait_for()
    page.get_by_label('Name').fill('bert')
    picture(page, 'create')
    page.get_by_role('button', name='Create', exact=True).click()
    page.get_by_text('READY').wait_for()
    page.context.grant_permissions(['clipboard-read', 'clipboard-write'])
    page.get_by_role('button', name='Copy ssh command of bert').click()
    page.get_by_text('Copied.').wait_for()
    assert page.evaluate('navigator.clipboard.readText()') == 'vtpu tpu-vm ssh bert --zone=us-central2-b'
    page.get_by_text('this month, $12.88 an hour now').wait_for()
    page.get_by_text('Remote-SSH configuration').click()
    page.get_by_label('Lines for ~/.ssh/config').filter(has_text='Host bert').wait_for()
    page.wait_for_timeout(2500)  # the page redraws, and it stays open
    page.get_by_role('button', name='Copy ssh configuration').click()
    copied = page.evaluate('navigator.clipboard.readText()')
    assert 'Host bert\n  HostName ' in copied and 'User ada\n' in copied, copied
    assert page.get_by_role('link', name='Terminal of').count() == 0, 'a terminal without a machine'


def focus(page, label):
    """Presses Tab until the focused element is called `label`."""
    name = '''() => { const e = document.activeElement; if (!e || e === document.body) return '';
      return e.getAttribute('aria-label') || (e.labels && e.labels[0] ? e.labels[0].textContent : e.textContent); }'''
    for _ in range(60):
        if page.evaluate(name).strip().startswith(label):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != 'none', f'nobody sees that {label} has the focus'
            return
        page.keyboard.press('Tab')
    raise AssertionError(f'no way to {label} by keyboard')


def half_started(page):
    """A program on two of four hosts is reported, with its owner; the workers' reports are made up here."""
    verdict = '2 of 4 hosts run a program: hosts 1 and 3 have not started; start it with --worker=all.'
    use = {'node': 'later', 'zone': 'us-central2-b', 'state': 'READY', 'verdict': verdict, 'trouble': True, 'guestLevel': 0, 'chips': {}}
    holder = {'pid': 71, 'user': 'ada', 'since': '2026-01-02T03:04:05Z', 'program': 'python3 train.py', 'versions': {'JAX': '0.10.2'}}
    workers = [{'worker': n, 'holders': [] if n % 2 else [holder]} for n in range(4)]
    page.route('**/use', lambda route: route.fulfill(json={'nodes': [use]}))
    health = {'health': 'TIMEOUT', 'healthDescription': 'Worker 3 is not heard of.', 'symptoms': [
        {'createTime': '2026-01-02T03:05:06Z', 'symptomType': 'HBM_OUT_OF_MEMORY', 'details': 'a program of ada asked for 20.00 GiB', 'workerId': '2'}]}
    page.route('**/us-central2-b/nodes/later', lambda route: route.fulfill(json=health))
    page.route('**/later:doctor', lambda route: route.fulfill(json={**use, 'workers': workers}))
    page.get_by_text(verdict).wait_for()
    focus(page, 'Node later')
    page.keyboard.press('Enter')
    page.get_by_role('heading', name='later').wait_for()
    page.get_by_text(verdict).wait_for()
    row = page.locator('tbody tr').first
    assert all(word in row.inner_text() for word in ('0', 'ada', '2026-01-02 03:04:05', 'python3 train.py', 'JAX 0.10.2')), row.inner_text()
    assert page.get_by_role('row', name='none').count() == 2
    page.set_viewport_size(PHONE)
    fits(page)
    page.set_viewport_size(DESK)
    page.get_by_text('TIMEOUT: Worker 3 is not heard of.').wait_for()
    symptom = page.get_by_role('row', name='HBM_OUT_OF_MEMORY').inner_text()
    assert all(word in symptom for word in ('2026-01-02 03:05:06', '2', 'a program of ada asked for 20.00 GiB')), symptom
    page.unroute('**/us-central2-b/nodes/later')
    asked = []
    page.route('**/later:release', lambda route: (asked.append(route.request.post_data_json), route.fulfill(json={'released': []})))
    page.once('dialog', lambda dialog: dialog.accept())
    focus(page, 'Release worker 2 from process 71')
    page.keyboard.press('Enter')
    page.get_by_text('Process 71 is asked to end.').wait_for()
    assert asked == [{'worker': 2, 'pid': 71}], asked
    page.unroute('**/later:release')
    page.unroute('**/later:doctor')
    page.get_by_text('No host runs a program.').wait_for()
    page.unroute('**/use')
    focus(page, 'TPU VMs')
    page.keyboard.press('Enter')
    page.get_by_text('later', exact=True).wait_for()
    assert page.get_by_text('hosts run a program').count() == 0


def by_keyboard(page):
    """From sign-in to deleting a VM without a mouse."""
    page.goto(f'{os.environ["VTPU_ENDPOINT"]}/')
    page.get_by_role('heading', name='Sign in').wait_for()
    focus(page, 'E-mail')
    page.keyboard.type('ada@example.org')
    focus(page, 'Password')
    page.keyboard.type(PASSWORD)
    page.keyboard.press('Enter')
    page.get_by_role('button', name='Sign out').wait_for()
    focus(page, 'Create')
    page.keyboard.press('Enter')
    page.get_by_text('an hour').wait_for()
    focus(page, 'Name')
    page.keyboard.press('Control+A')
    page.keyboard.type('later')
    focus(page, 'Type')
    page.keyboard.type('v4-32')
    page.get_by_text('$51.52 an hour').wait_for()
    focus(page, 'wait in the queue')
    page.keyboard.press('Space')
    page.keyboard.press('Enter')
    page.get_by_text('ACTIVE').wait_for()
    focus(page, 'TPU VMs')
    page.keyboard.press('Enter')
    page.get_by_text('later', exact=True).wait_for()
    half_started(page)
    focus(page, 'Stop bert')
    page.wait_for_timeout(5000)  # the page redraws under the focus
    focus(page, 'Stop bert')
    page.keyboard.press('Enter')
    page.get_by_text('STOPPED').wait_for()
    focus(page, 'Start bert')
    page.keyboard.press('Enter')
    page.get_by_text('STOPPED').wait_for(state='detached')
    focus(page, 'Bill')
    page.keyboard.press('Enter')
    page.get_by_text('Bill of').wait_for()


def a_month_of_bills(page):
    """The bill after days of work: charts, months, a budget, the file."""
    zone = '/v2alpha1/projects/ada-lab/locations/us-central2-b'
    for day in range(27):  # with nights off
        api('POST', '/vtpu/v1/clock:advance', {'seconds': 3600 * (6 + day % 7)})
        api('POST', f'{zone}/nodes/bert:stop')
        api('POST', '/vtpu/v1/clock:advance', {'seconds': 3600 * (18 - day % 7)})
        api('POST', f'{zone}/nodes/bert:start')
    sign_in(page, 'ada@example.org')  # sessions end after a night
    go(page, 'Bill')
    page.get_by_role('img', name='Cost by day').wait_for()
    assert page.locator('svg.chart rect').count() >= 15, page.locator('svg.chart rect').count()
    total = float(page.locator('p.big').inner_text().strip('$').replace(',', ''))
    bars = page.evaluate("""[...document.querySelectorAll('svg.chart rect title')]
        .map((t) => Number(t.textContent.split('$')[1].replace(/,/g, ''))).reduce((a, b) => a + b, 0)""")
    assert abs(total - bars) < 0.01 * len(page.locator('svg.chart rect').all()) + 0.01, (total, bars)
    picture(page, 'bill')
    page.get_by_label('Monthly budget in USD').fill('5000')
    page.get_by_role('button', name='Save').click()
    page.get_by_text('Budget saved.').wait_for()
    with page.expect_download() as download:
        page.get_by_role('link', name='CSV').click()
    with open(download.value.path(), encoding='utf-8') as file:
        assert file.readline().startswith('kind,node,'), 'not the CSV'
    month = page.get_by_label('Month', exact=True)
    this = month.input_value()
    month.fill('2025-02')
    page.get_by_text('Nothing was used this month.').wait_for()
    month.fill(this)
    page.get_by_role('heading', name=f'Bill of {this}').wait_for()


def on_a_phone(page):
    page.set_viewport_size(PHONE)
    for name in ['TPU VMs', 'Create', 'Queue', 'Jobs', 'Bill', 'Grants', 'Events']:
        go(page, name)
        page.locator('#nav a[aria-current]', has_text=name).wait_for()
        fits(page)
        if name == 'Bill':
            picture(page, 'phone')
    go(page, 'TPU VMs')
    page.get_by_text('READY').first.wait_for()
    page.on('dialog', lambda dialog: dialog.accept())
    page.get_by_role('button', name='Delete later').click()
    page.get_by_text('later', exact=True).wait_for(state='detached')
    page.get_by_role('button', name='Sign out').click()
    page.get_by_role('heading', name='Sign in').wait_for()


# A program's output, and the resulting screen of 10 columns and 4 rows; '|' is the cursor.
TERMINAL = [
    ('hello\r\nworld', ['hello', 'world|']),
    ('0123456789AB', ['0123456789', 'AB|']),                          # wraps to the next line, but only when it must
    ('0123456789\r\nx', ['0123456789', 'x|']),
    ('a\tb\bc', ['a       c|']),
    ('50 %\r100 %\x1b[K', ['100 %|']),                              # a progress bar
    ('1\r\n2\r\n3\r\n4\r\n5', ['2', '3', '4', '5|']),
    ('1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n\n5', ['1', '', '5|', '4']),  # a region scrolls, the rest stays
    ('1\r\n2\r\n3\x1b[1;1H\x1bM0', ['0|', '1', '2', '3']),
    ('abcdef\x1b[3G\x1b[2P', ['ab|ef']),
    ('abcdef\x1b[3G\x1b[2@', ['ab|  cdef']),
    ('abcdef\x1b[3G\x1b[2X', ['ab|  ef']),
    ('1\r\n2\r\n3\x1b[2;1H\x1b[Lx', ['1', 'x|', '2', '3']),
    ('1\r\n2\r\n3\x1b[1;1H\x1b[M', ['|2', '3']),
    ('abc\x1b[2J\x1b[Hx', ['x|']),
    ('shell\x1b[?1049h\x1b[Heditor\x1b[?1049l', ['shell|']),      # the whole screen, and back
    ('gr\u00fcn\u65e5\u672c!', ['gr\u00fcn\u65e5\u672c!|']),              # two cells each
    ('e\u0301x', ['e\u0301x|']),
    ('\x1b(0lqk\x1b(B', ['\u250c\u2500\u2510|']),
    ('\x1b]0;title\x07a\x1bP1;2|junk\x1b\\b', ['ab|']),
    ('\x1b[38;5;300;1m\x1b[999999999999999Cx', ['         x']),
    ('\x1b[4;10Hab', ['', '', '         a', 'b|']),
    ('\x1b7\x1b[3;3Hx\x1b8y', ['y|', '', '  x']),
]
# The program's mode; the mouse event (kind, button, cell, held keys); what the program receives.
MOUSE = [
    ('', ['press', 0, 0, 0, 0], ''),
    ('\x1b[?1000h', ['press', 0, 0, 0, 0], '\x1b[M !!'),
    ('\x1b[?1000h', ['release', 0, 9, 4, 16], '\x1b[M3*%'),
    ('\x1b[?1000h', ['move', 0, 1, 1, 0], ''),
    ('\x1b[?1000h', ['press', 0, 95, 0, 0], ''),                        # beyond this encoding
    ('\x1b[?1000h\x1b[?1006h', ['press', 65, 200, 40, 8], '\x1b[<73;201;41M'),
    ('\x1b[?1000;1006h', ['release', 2, 0, 0, 0], '\x1b[<2;1;1m'),
    ('\x1b[?1002h\x1b[?1006h', ['move', 1, 2, 3, 0], '\x1b[<33;3;4M'),
    ('\x1b[?1002h', ['move', 3, 2, 3, 0], ''),                          # only while a button is held
    ('\x1b[?1003h\x1b[?1006h', ['move', 3, 2, 3, 0], '\x1b[<35;3;4M'),
    ('\x1b[?9h', ['press', 0, 0, 0, 0], '\x1b[M !!'),
    ('\x1b[?9h', ['release', 0, 0, 0, 0], ''),
    ('\x1b[?1003h\x1b[?1003l', ['press', 0, 0, 0, 0], ''),
    ('\x1b[?1003h\x1bc', ['press', 0, 0, 0, 0], ''),
]
SCREEN = """([bytes, columns, rows]) => {
  const replies = [], kept = [];
  const s = new Screen(columns, rows, (text) => replies.push(text), (line) => kept.push(line));
  s.write(bytes);
  const lines = s.lines.map((_, y) => { const t = s.lines[y].map((c) => c[0]).join('').trimEnd();
    return y === s.y && !s.wrap ? s.lines[y].slice(0, s.x).map((c) => c[0]).join('') + '|' + s.lines[y].slice(s.x).map((c) => c[0]).join('').trimEnd() : t; });
  while (lines.length && !lines[lines.length - 1]) lines.pop();
  return {lines, replies, title: s.title, kept: kept.length, pen: s.pen, past: s.other !== null, wide: Math.max(...s.lines.map((l) => l.length))}; }"""


def terminal(page):
    """The terminal's state machine, byte by byte and all at once; noise does not break it."""
    def screen(text, columns=10, rows=4):
        return page.evaluate(SCREEN, [text, columns, rows])
    for text, want in TERMINAL:
        got = screen(text)
        assert got['lines'] == want, (text, got['lines'], want)
    assert screen('\x1b]2;my title\x1b\\')['title'] == 'my title'
    assert screen('\x1b[6n\x1b[c\x1b[5n')['replies'] == ['\x1b[1;1R', '\x1b[?62;22c', '\x1b[0n']
    assert screen('\n' * 10)['kept'] == 7
    assert screen('\x1b[1;31;48;2;1;2;3m')['pen'] == {'fg': 1, 'bg': '#010203', 'flags': 'b'}
    assert screen('\x1b[38:5:208m\x1b[22;4:3m')['pen']['fg'] == 208
    for modes, event, want in MOUSE:
        got = page.evaluate('([modes, event]) => { const s = new Screen(80, 24); s.write(modes); return s.mouseBytes(...event); }', [modes, event])
        assert got == want, (modes, event, got, want)
    noise = page.evaluate(r"""(seed) => { let x = seed, out = '';
      const parts = ['\x1b[', '\x1b', ';', '?', 'h', 'l', 'H', 'J', 'r', 'm', '1049', '9999', '4', 'L', 'M', '@', 'P', '\n', '\t',
        '\u65e5', 'ab', '\x1b]', '\x07', '0', 'S', 'T', 'X', 'b'];
      for (let i = 0; i < 20000; i++) { x = (x * 1103515245 + 12345) % 2147483648; out += parts[Math.floor(x / 65536) % parts.length]; }
      return out; }""", 7)
    got = screen(noise)
    assert got['wide'] == 10 and len(got['lines']) <= 4, got


def inner():
    from playwright.sync_api import sync_playwright
    errors = []

    def open_page(browser):
        page = browser.new_context(viewport=DESK).new_page()
        page.set_default_timeout(600000)
        page.on('pageerror', lambda error: errors.append(str(error)))
        page.on('console', lambda message: errors.append(message.text) if 'Content Security Policy' in message.text else None)
        return page

    for email, role in [('ada@example.org', 'user'), ('rex@example.org', 'reviewer')]:
        api('POST', '/vtpu/v1/accounts', {'email': email, 'role': role, 'password': PASSWORD})
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'])
        student = open_page(browser)
        student_applies(student)
        terminal(student)
        reviewer_approves(open_page(browser))
        student_creates(student)
        by_keyboard(open_page(browser))
        a_month_of_bills(student)
        on_a_phone(student)
        browser.close()
    assert not errors, errors


if __name__ == '__main__':
    harness.run(inner, needs=[CHROMIUM], options=['--virtual-time'])
