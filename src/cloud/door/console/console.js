// SPDX-License-Identifier: Apache-2.0
// console.js - the web console: pages drawn from the API, nothing stored, no framework, no network but this origin.
// Everything that comes from the server is put in as text, never as markup.
'use strict';

const $ = (id) => document.getElementById(id);
const state = {project: '', me: null, timer: 0, page: ''};

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child != null) node.append(child);
  return node;
}

function say(text) { $('status').textContent = text; }

async function api(method, path, body) {
  const reply = await fetch(path, {
    method, credentials: 'same-origin',
    headers: {'X-Vtpu-Console': '1', 'Content-Type': 'application/json'},
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const type = reply.headers.get('Content-Type') || '';
  const value = type.includes('json') ? await reply.json() : await reply.text();
  if (reply.status === 401 && state.me) { state.me = null; signIn(); }
  if (!reply.ok) throw new Error(value.error ? value.error.message : `HTTP ${reply.status}`);
  return value;
}

const act = (work) => async (event) => {
  if (event) event.preventDefault();
  try { await work(event); } catch (error) { say(error.message); }
};

const last = (name) => (name || '').split('/').pop();
const zoneOf = (name) => (name || '').split('/')[3] || '';
const base = (zone) => `/v2alpha1/projects/${encodeURIComponent(state.project)}/locations/${encodeURIComponent(zone)}`;
function usd(value, digits) {
  const number = Number(value), least = digits === undefined ? (number && Math.abs(number) < 0.1 ? 4 : 2) : digits;
  return `$${number.toLocaleString('en-US', {minimumFractionDigits: least, maximumFractionDigits: least})}`;
}
const size = (bytes) => (bytes < 2 ** 30 ? `${Math.round(bytes / 2 ** 20)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`);
const when = (time) => time.slice(0, 19).replace('T', ' ');
function duration(seconds) {
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 3 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

function badge(name) {
  const kind = ['READY', 'ACTIVE', 'APPROVED', 'RUNNING'].includes(name) ? 'good'
    : ['PREEMPTED', 'FAILED', 'TERMINATED', 'UNKNOWN', 'REJECTED', 'EXPIRED'].includes(name) ? 'bad' : name === 'ENDED' ? '' : 'wait';
  return el('span', {class: `state ${kind}`}, name);
}

function table(heads, rows, empty) {
  if (!rows.length) return el('p', {}, empty);
  return el('table', {class: 'stack'},
    el('thead', {}, el('tr', {}, heads.map((h) => el('th', {scope: 'col'}, h)))),
    el('tbody', {}, rows.map((r) => el('tr', {}, r.map((cell, i) => el('td', {'data-label': heads[i]}, cell))))));
}

// A page that is drawn again keeps the focus where it was: on the control of the same label.
function draw(...children) {
  const had = $('main').contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
  $('main').replaceChildren(...children.flat().filter(Boolean));
  const again = had && [...$('main').querySelectorAll('[aria-label]')].find((node) => node.getAttribute('aria-label') === had);
  if (again) again.focus({preventScroll: true});
}

// --- sign-in ------------------------------------------------------------------------------------------------------

function signIn() {
  if (state.terminal) state.terminal.close();
  state.terminal = null;
  clearInterval(state.timer);
  $('nav').hidden = $('who').hidden = true;
  const form = el('form', {class: 'card', onsubmit: act(async (event) => {
    const data = Object.fromEntries(new FormData(event.target));
    await api('POST', '/vtpu/v1/session', data.token ? {token: data.token} : {email: data.email, password: data.password});
    say('');
    await start();
  })},
  el('h2', {}, 'Sign in'),
  el('p', {}, el('label', {}, 'E-mail ', el('input', {name: 'email', type: 'email', autocomplete: 'username'}))),
  el('p', {}, el('label', {}, 'Password ', el('input', {name: 'password', type: 'password', autocomplete: 'current-password'}))),
  el('p', {}, el('label', {}, 'or access token ', el('input', {name: 'token', type: 'password', autocomplete: 'off'}))),
  el('button', {class: 'main'}, 'Sign in'));
  draw(form);
}

// --- pages --------------------------------------------------------------------------------------------------------

// How busy the chips of a node are, from what its workers report.
function chips(use) {
  if (!use || !use.chips.reportedAt) return '';
  const percent = `${Math.round(100 * use.chips.dutyCycle)} %`;
  return [el('meter', {min: '0', max: '1', value: String(use.chips.dutyCycle), 'aria-label': `Chips busy: ${percent}`}), ` ${percent}`, el('br'),
    `HBM ${size(use.chips.hbmBytes)} of ${size(use.chips.hbmLimit)}`];
}

// What the project's TPU VMs cost by the hour now, and what this month has come to; it moves between two looks at the bill.
async function costTicker(nodes) {
  const ready = nodes.filter((node) => node.state === 'READY'), prices = {};
  for (const zone of new Set(ready.map((node) => zoneOf(node.name))))
    prices[zone] = (await api('GET', `/vtpu/v1/prices?zone=${encodeURIComponent(zone)}`)).prices;
  const perHour = ready.reduce((sum, node) => {
    const price = prices[zoneOf(node.name)].find((p) => p.acceleratorType === node.acceleratorType), plan = node.schedulingConfig || {};
    return sum + (price ? Number(plan.spot || plan.preemptible ? price.spotUsdPerHour : price.usdPerHour) : 0);
  }, 0);
  const bill = await api('GET', `/vtpu/v1/projects/${encodeURIComponent(state.project)}/bill`);
  return el('p', {class: 'row'}, el('span', {class: 'big', id: 'ticker'}, usd(bill.usd, 2)), `this month, ${usd(perHour)} an hour now`);
}

// For ~/.ssh/config: what VS Code's Remote-SSH and plain ssh need, fetched when it is opened.
function sshConfig() {
  const text = el('pre', {tabindex: '0', 'aria-label': 'Lines for ~/.ssh/config'});
  const copy = el('button', {type: 'button', onclick: act(async () => { await navigator.clipboard.writeText(text.textContent); say('Copied.'); })}, 'Copy ssh configuration');
  const path = `/vtpu/v1/projects/${encodeURIComponent(state.project)}/sshConfig?user=${encodeURIComponent(state.me.email.split('@')[0])}`;
  const box = el('details', {ontoggle: act(async () => { state.sshConfig = box.open; if (box.open) text.textContent = await api('GET', path); }), open: !!state.sshConfig},
    el('summary', {'aria-label': 'Remote-SSH configuration'}, 'Remote-SSH configuration'), text, copy);
  return box;
}

async function nodesPage() {
  const {nodes} = await api('GET', `${base('-')}/nodes`);
  const uses = (await api('GET', `/vtpu/v1/projects/${encodeURIComponent(state.project)}/use`)).nodes;
  const guests = uses.some((use) => use.guestLevel > 0);
  const rows = nodes.map((node) => {
    const zone = zoneOf(node.name), id = last(node.name), path = `${base(zone)}/nodes/${encodeURIComponent(id)}`;
    const ip = node.networkEndpoints && node.networkEndpoints[0] ? node.networkEndpoints[0].ipAddress : '';
    const ssh = `vtpu tpu-vm ssh ${id} --zone=${zone}`;
    const ask = (verb, text) => el('button', {type: 'button', 'aria-label': `${text} ${id}`, onclick: act(async () => {
      if (verb === 'DELETE' && !confirm(`Delete ${id}?`)) return;
      if (verb === 'DELETE') await api('DELETE', path);
      else await api('POST', `${path}:${verb}`, {});
      say(`${text} ${id}: asked for`);
      await show();
    })}, text);
    const use = uses.find((u) => u.node === id && u.zone === zone);
    return [el('a', {href: `#node/${zone}/${encodeURIComponent(id)}`, 'aria-label': `Node ${id}`}, id), zone, node.acceleratorType, [badge(node.state), node.health && node.health !== 'HEALTHY' ? ` ${node.health}` : '',
      node.upcomingMaintenance && node.upcomingMaintenance.maintenanceStatus === 'PENDING' ? ` maintenance at ${node.upcomingMaintenance.windowStartTime.slice(0, 16)}Z` : ''],
      [chips(use), use && use.trouble ? el('strong', {class: 'warning'}, use.verdict) : ''].flat(),
      el('span', {}, el('code', {}, ssh), ' ', el('button', {type: 'button', 'aria-label': `Copy ssh command of ${id}`,
        onclick: act(async () => { await navigator.clipboard.writeText(ssh); say('Copied.'); })}, 'Copy'), el('br'), ip),
      el('span', {class: 'row'}, node.state === 'READY' ? ask('stop', 'Stop') : null,
        node.state === 'READY' && guests ? (node.networkEndpoints || []).map((_, worker) => el('a', {class: 'button', href: `#terminal/${zone}/${encodeURIComponent(id)}/${worker}`,
          'aria-label': `Terminal of ${id}${worker ? `, worker ${worker}` : ''}`}, worker ? String(worker) : 'Terminal')).slice(0, 8) : null,
        node.state === 'STOPPED' ? ask('start', 'Start') : null, ask('DELETE', 'Delete'))];
  });
  return [el('h2', {}, 'TPU VMs'), table(['Name', 'Zone', 'Type', 'State', 'Chips', 'Connect', 'Actions'], rows, 'No TPU VMs yet.'),
    nodes.length ? await costTicker(nodes).catch(() => null) : null, // not everybody sees the bill
    nodes.length ? sshConfig() : null,
    el('p', {}, el('a', {href: '#create'}, 'Create a TPU VM'))];
}

// One node: what the doctor says of it, and which processes of its workers have the chips.
async function nodePage(zone, node) {
  const path = `/vtpu/v1/projects/${encodeURIComponent(state.project)}/nodes/${encodeURIComponent(zone)}/${encodeURIComponent(node)}`;
  const seen = await api('GET', `${path}:doctor`);
  const release = (worker, h) => (h.releasing ? badge('RELEASING') : el('button', {type: 'button', 'aria-label': `Release worker ${worker} from process ${h.pid}`, onclick: act(async () => {
    if (!confirm(`End process ${h.pid} of ${h.user} on worker ${worker}? What it has not saved is lost.`)) return;
    await api('POST', `${path}:release`, {worker, pid: h.pid});
    say(`Process ${h.pid} is asked to end.`);
    await show();
  })}, 'Release'));
  const rows = seen.workers.flatMap(({worker, holders}) => (holders.length ? holders : [null]).map((h) => (h
    ? [String(worker), String(h.pid), h.user, when(h.since), el('code', {}, h.program), Object.entries(h.versions).map(([name, version]) => `${name} ${version}`).join(', '), release(worker, h)]
    : [String(worker), 'none', '', '', '', '', ''])));
  const {health, healthDescription, symptoms} = await api('GET', `${base(zone)}/nodes/${encodeURIComponent(node)}`);
  return [el('h2', {}, node), el('p', {class: 'row'}, badge(seen.state), el('span', {class: seen.trouble ? 'warning' : '', role: 'status'}, seen.verdict)),
    health === 'HEALTHY' ? null : el('p', {}, health, healthDescription ? `: ${healthDescription}` : ''),
    table(['Worker', 'Process', 'User', 'Since', 'Program', 'Versions', 'Actions'], rows, ''),
    symptoms ? el('h2', {}, 'Symptoms') : null,
    symptoms ? table(['Time', 'Worker', 'Symptom', 'Details'], symptoms.map((s) => [when(s.createTime), s.workerId, s.symptomType, s.details]), '') : null,
    el('p', {}, el('a', {href: '#nodes'}, 'All TPU VMs'))];
}

async function createPage() {
  const {capacity} = await api('GET', '/vtpu/v1/capacity');
  const zones = [...new Set(capacity.map((c) => c.zone))];
  const zone = el('select', {name: 'zone', required: true}, zones.map((z) => el('option', {selected: z === 'us-central2-b'}, z)));
  const type = el('select', {name: 'type', required: true}), version = el('select', {name: 'version', required: true});
  const price = el('p', {class: 'big', role: 'status'}), room = el('p', {});
  const mode = el('select', {name: 'mode'}, ['on-demand', 'spot', 'preemptible'].map((m) => el('option', {}, m)));
  let prices = [];
  const tell = () => {
    const row = prices.find((p) => p.acceleratorType === type.value);
    if (!row) return;
    const free = capacity.find((c) => c.zone === zone.value && c.family === row.family);
    price.textContent = `${usd(mode.value === 'on-demand' ? row.usdPerHour : row.spotUsdPerHour)} an hour`;
    room.textContent = `${row.chips} chips (${row.topology}), ${row.workers} VM(s); ${free ? free.free : 0} chips free in ${zone.value}`;
  };
  const fill = act(async () => {
    prices = (await api('GET', `/vtpu/v1/prices?zone=${encodeURIComponent(zone.value)}`)).prices;
    const versions = (await api('GET', `${base(zone.value)}/runtimeVersions`)).runtimeVersions;
    type.replaceChildren(...prices.map((p) => el('option', {}, p.acceleratorType)));
    version.replaceChildren(...versions.map((v) => el('option', {selected: v.version === 'tpu-ubuntu2204-base'}, v.version)));
    tell();
  });
  zone.addEventListener('change', fill);
  for (const input of [type, mode]) input.addEventListener('change', tell);
  await fill();
  return [el('h2', {}, 'Create a TPU VM'), el('form', {class: 'grid', onsubmit: act(async (event) => {
    const data = Object.fromEntries(new FormData(event.target));
    const node = {acceleratorType: data.type, runtimeVersion: data.version, metadata: {}};
    if (data.mode !== 'on-demand') node.schedulingConfig = {[data.mode]: true};
    if (data.key) node.metadata['ssh-keys'] = data.key;
    const id = encodeURIComponent(data.name);
    if (data.queue) await api('POST', `${base(data.zone)}/queuedResources?queuedResourceId=${id}`,
      {tpu: {nodeSpec: [{parent: base(data.zone).slice(10), nodeId: data.name, node}]}, ...(data.mode === 'on-demand' ? {} : {spot: {}})});
    else await api('POST', `${base(data.zone)}/nodes?nodeId=${id}`, node);
    say(`${data.name}: asked for`);
    location.hash = data.queue ? '#queue' : '#nodes';
  })},
  el('label', {}, 'Name', el('input', {name: 'name', required: true, pattern: '[A-Za-z0-9_.~+%\\-]{1,63}', value: 'tpu-1'})),
  el('label', {}, 'Zone', zone), el('label', {}, 'Type', type), el('label', {}, 'Software', version), el('label', {}, 'Price model', mode),
  el('label', {}, 'SSH key (user:key)', el('input', {name: 'key', placeholder: 'ada:ssh-ed25519 AAAA…'})),
  el('label', {class: 'check'}, el('input', {name: 'queue', type: 'checkbox'}), ' wait in the queue'),
  el('button', {class: 'main'}, 'Create')), el('div', {class: 'card'}, price, room)];
}

async function queuePage() {
  const {queuedResources} = await api('GET', `${base('-')}/queuedResources`);
  const rows = queuedResources.map((q) => {
    const id = last(q.name), path = `${base(zoneOf(q.name))}/queuedResources/${encodeURIComponent(id)}`;
    const spec = q.tpu && q.tpu.nodeSpec ? q.tpu.nodeSpec[0] : {};
    const error = q.state.failedData && q.state.failedData.error ? q.state.failedData.error.message : '';
    return [id, zoneOf(q.name), spec.node ? spec.node.acceleratorType : '', [badge(q.state.state), ' ', error],
      el('span', {class: 'row'},
        ['SUSPENDED', 'FAILED'].includes(q.state.state) ? el('button', {type: 'button', 'aria-label': `Reset ${id}`, onclick: act(async () => { await api('POST', `${path}:reset`, {}); await show(); })}, 'Reset') : null,
        el('button', {type: 'button', 'aria-label': `Delete ${id}`, onclick: act(async () => {
          if (confirm(`Delete ${id} and its TPUs?`)) { await api('DELETE', `${path}?force=true`); await show(); }
        })}, 'Delete'))];
  });
  return [el('h2', {}, 'Queue'), table(['Name', 'Zone', 'Type', 'State', 'Actions'], rows, 'Nothing is queued.')];
}

// --- jobs: the report of what ran ---------------------------------------------------------------------------------

async function jobsPage() {
  const {jobs} = await api('GET', `/vtpu/v1/projects/${encodeURIComponent(state.project)}/jobs`);
  const rows = jobs.map((j) => {
    const end = j.running ? Date.now() : Date.parse(j.endTime);
    return [el('code', {}, j.name), [`${j.node} (${j.acceleratorType})`, j.worker ? `, worker ${j.worker}` : ''],
      [badge(j.running ? 'RUNNING' : 'ENDED'), ` ${when(j.startTime)}, ${duration(Math.max(0, (end - Date.parse(j.startTime)) / 1000))}`],
      String(j.programs), duration(j.busySeconds), duration(j.deviceSeconds), size(j.hbmBytes), j.deviceUsd && j.deviceUsd < 0.0001 ? `under ${usd(0.0001)}` : usd(j.deviceUsd)];
  });
  return [el('h2', {}, 'Jobs'),
    table(['Job', 'TPU VM', 'When', 'Programs', 'Time here', 'On the slice', 'HBM', 'Price there'], rows, 'Nothing has used the chips yet.'),
    el('p', {class: 'note'}, '“On the slice” is what the programs would need at least on real chips, by their peaks; “price there” is the price of the slice for that time.')];
}

// --- bill ---------------------------------------------------------------------------------------------------------

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children);
  return node;
}

// Cost of each day of the month, on-demand and the rest of it stacked.
function daysChart(month, lines) {
  const width = 640, left = 56, top = 12, height = 130;
  const count = new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)), 0)).getUTCDate();
  const kinds = [...new Set(lines.filter((l) => Number(l.usd) && !l.waived).map(kindOf))].sort(), days = Array.from({length: count}, () => ({}));
  for (const line of lines) spread(line, (day, value) => { days[day][kindOf(line)] = (days[day][kindOf(line)] || 0) + value; });
  const sum = (day) => Object.values(day).reduce((a, b) => a + b, 0), most = Math.max(1e-9, ...days.map(sum)), step = (width - left) / count;
  const chart = svg('svg', {viewBox: `0 0 ${width} ${top + height + 22}`, class: 'chart', role: 'img',
    'aria-label': `Cost by day: ${days.map((d, i) => [i + 1, sum(d)]).filter(([, v]) => v).map(([d, v]) => `${d}: ${usd(v)}`).join(', ')}`});
  for (const part of [0, 0.5, 1]) {
    const y = top + height * (1 - part);
    chart.append(svg('line', {x1: left, x2: width, y1: y, y2: y, class: 'grid'}), svg('text', {x: left - 6, y: y + 4, class: 'end'}, most >= 10 ? usd(most * part, 0) : usd(most * part)));
  }
  days.forEach((day, i) => {
    let y = top + height;
    kinds.forEach((kind, k) => {
      const size = height * (day[kind] || 0) / most;
      if (!size) return;
      y -= size;
      chart.append(svg('rect', {x: left + i * step + 1, y, width: Math.max(step - 2, 2), height: size, class: `kind${k % 5}`}, svg('title', {}, `${i + 1}: ${kind} ${usd(day[kind])}`)));
    });
    if (i === 0 || (i + 1) % 5 === 0) chart.append(svg('text', {x: left + (i + 0.5) * step, y: top + height + 15, class: 'middle'}, i + 1));
  });
  return el('figure', {}, el('figcaption', {}, 'By day'), chart,
    el('ul', {class: 'legend'}, kinds.map((kind, k) => el('li', {}, el('i', {class: `kind${k % 5}`}), kind))));
}

const kindOf = (line) => (line.kind === 'tpu' ? `TPU ${line.class}` : line.kind);

// A line that goes over midnight is paid for on both days.
function spread(line, put) {
  const start = Date.parse(line.start), end = Math.max(Date.parse(line.end), start + 1), value = line.waived ? 0 : Number(line.usd);
  for (let at = start; at < end;) {
    const next = Math.min(end, (Math.floor(at / 86400000) + 1) * 86400000);
    put(new Date(at).getUTCDate() - 1, value * (next - at) / (end - start));
    at = next;
  }
}

function nodesChart(lines) {
  const nodes = {};
  for (const line of lines) if (!line.waived) nodes[line.node] = (nodes[line.node] || 0) + Number(line.usd);
  const rows = Object.entries(nodes).sort((a, b) => b[1] - a[1]).slice(0, 8), most = Math.max(1e-9, ...rows.map(([, v]) => v));
  return el('figure', {}, el('figcaption', {}, 'By TPU VM or disk'), el('dl', {class: 'bars'}, rows.map(([name, value]) => [
    el('dt', {}, name), el('dd', {}, el('meter', {min: '0', max: String(most), value: String(value), 'aria-label': `${name}: ${usd(value)}`}), el('span', {}, usd(value)))]).flat()));
}

async function billPage() {
  const path = `/vtpu/v1/projects/${encodeURIComponent(state.project)}`;
  const bill = await api('GET', `${path}/bill${state.month ? `?month=${state.month}` : ''}`);
  const rows = bill.lines.slice(-100).reverse().map((l) => [l.kind, l.node, l.zone, l.acceleratorType, l.class, `${l.seconds} s`, l.deviceSeconds ? duration(l.deviceSeconds) : '',
    `${l.units} x ${usd(l.usdPerUnitHour)}/h`, l.waived ? 'waived' : usd(l.usd)]);
  const month = el('input', {type: 'month', value: bill.month, 'aria-label': 'Month', onchange: act(async (event) => { state.month = event.target.value; await show(); })});
  return [el('h2', {}, `Bill of ${bill.month}`), el('p', {class: 'big'}, usd(bill.usd)),
    el('p', {}, `Credit ${usd(bill.creditUsd)}, due ${usd(bill.dueUsd)}. `, el('a', {href: `${path}/bill?alt=csv&month=${bill.month}`, download: `bill-${bill.month}.csv`}, 'CSV'), ' ', month),
    Number(bill.usd) ? el('div', {class: 'charts'}, daysChart(bill.month, bill.lines), nodesChart(bill.lines)) : null,
    el('form', {class: 'row', onsubmit: act(async (event) => {
      const data = Object.fromEntries(new FormData(event.target));
      await api('POST', `${path}/budget`, {usd: Number(data.usd), stops: !!data.stops});
      say('Budget saved.');
    })}, el('label', {}, 'Monthly budget in USD ', el('input', {name: 'usd', type: 'number', min: '1', required: true})),
    el('label', {}, el('input', {name: 'stops', type: 'checkbox'}), ' stops the TPUs at 100 %'), el('button', {}, 'Save')),
    table(['Kind', 'Name', 'Zone', 'Type', 'Class', 'Time', 'On the slice', 'Units', 'Cost'], rows, 'Nothing was used this month.')];
}

async function grantsPage() {
  const {grants} = await api('GET', '/vtpu/v1/grants');
  const reviewer = ['admin', 'reviewer'].includes(state.me.role);
  const decide = (grant, verb, text) => el('button', {type: 'button', 'aria-label': `${text} ${grant.id}`, onclick: act(async () => {
    await api('POST', `/vtpu/v1/grants/${encodeURIComponent(grant.id)}:${verb}`, {});
    await show();
  })}, text);
  const rows = grants.map((g) => [g.id, g.applicant, g.project, g.purpose, (g.items || []).map((i) => `${i.chips} ${i.family} chips ${i.mode} in ${i.zone}`).join('; '),
    `${g.days} days`, badge(g.state), reviewer && g.state === 'PENDING' ? el('span', {class: 'row'}, decide(g, 'approve', 'Approve'), decide(g, 'reject', 'Reject')) : '']);
  const quotas = reviewer ? (await api('GET', '/vtpu/v1/quotaPreferences')).quotaPreferences : [];
  const answer = (q, verb, text) => el('button', {type: 'button', 'aria-label': `${text} ${q.id}`, onclick: act(async () => {
    await api('POST', `/vtpu/v1/projects/${encodeURIComponent(q.project)}/quotaPreferences/${encodeURIComponent(q.id)}:${verb}`, {});
    await show();
  })}, text);
  const wishes = quotas.map((q) => [q.id, q.asker, q.project, q.justification || '', `${q.quotaId} in ${Object.values(q.dimensions)[0]}`,
    `${q.quotaConfig.grantedValue} to ${q.quotaConfig.preferredValue}`, el('span', {class: 'row'}, answer(q, 'approve', 'Approve'), answer(q, 'reject', 'Reject'))]);
  const {capacity} = await api('GET', '/vtpu/v1/capacity');
  const option = (list) => list.map((x) => el('option', {}, x));
  const list = [el('h2', {}, 'Research grants'),
    table(['Id', 'Applicant', 'Project', 'Purpose', 'Chips', 'Time', 'State', 'Review'], rows, 'No applications yet.')];
  if (reviewer) list.push(el('h2', {}, 'Quota to review'), table(['Id', 'Asked by', 'Project', 'Purpose', 'Quota', 'Units', 'Review'], wishes, 'Nothing waits.'));
  if (!state.project) return list;
  return [...list, el('h2', {}, 'Apply'), el('form', {class: 'grid', onsubmit: act(async (event) => {
    const d = Object.fromEntries(new FormData(event.target));
    await api('POST', '/vtpu/v1/grants', {project: state.project, purpose: d.purpose, days: Number(d.days),
      items: [{zone: d.zone, family: d.family, chips: Number(d.chips), mode: d.mode}]});
    say('Application sent.');
    await show();
  })},
  el('label', {class: 'wide'}, 'What for', el('textarea', {name: 'purpose', required: true, minlength: '10', rows: '3'})),
  el('label', {}, 'Zone', el('select', {name: 'zone'}, option([...new Set(capacity.map((c) => c.zone))]))),
  el('label', {}, 'Family', el('select', {name: 'family'}, option([...new Set(capacity.map((c) => c.family))]))),
  el('label', {}, 'Chips', el('input', {name: 'chips', type: 'number', min: '1', value: '8', required: true})),
  el('label', {}, 'Mode', el('select', {name: 'mode'}, option(['on-demand', 'spot']))),
  el('label', {}, 'Days', el('input', {name: 'days', type: 'number', min: '1', max: '366', value: '30', required: true})),
  el('button', {class: 'main'}, 'Apply'))];
}

// The first step of somebody new: a project of one's own, with the API enabled.
async function projectPage() {
  return [el('h2', {}, 'New project'), el('p', {}, 'TPUs, grants and bills belong to a project.'),
    el('form', {class: 'row', onsubmit: act(async (event) => {
      const {id} = Object.fromEntries(new FormData(event.target));
      await api('POST', '/v1/projects', {projectId: id});
      await api('POST', `/v1/projects/${encodeURIComponent(id)}/services/tpu.googleapis.com:enable`, {});
      await start(id);
      say(`${id} is made; the Cloud TPU API is enabled.`);
      location.hash = '#grants';
    })}, el('label', {}, 'Project id ', el('input', {name: 'id', required: true, pattern: '[a-z][a-z0-9\\-]{3,29}', placeholder: 'my-lab'})),
    el('button', {class: 'main'}, 'Create project'))];
}

async function eventsPage() {
  const {events} = await api('GET', `/vtpu/v1/projects/${encodeURIComponent(state.project)}/events`);
  return [el('h2', {}, 'Events'), table(['Time', 'Kind', 'Who', 'What', 'Detail'],
    events.slice(0, 200).map((e) => [e.time.slice(0, 19).replace('T', ' '), e.kind, e.actor, last(e.target), e.detail]), 'Nothing happened yet.')];
}

// A login shell of a worker. The page stays as it is while it is open.
async function terminalPage(zone, node, worker) {
  const place = el('div', {class: 'terminal'}), title = el('h2', {}, `${node}, worker ${worker}`), note = el('p', {role: 'status'});
  const path = `/vtpu/v1/projects/${encodeURIComponent(state.project)}/nodes/${encodeURIComponent(zone)}/${encodeURIComponent(node)}:terminal?worker=${worker}`;
  const again = el('button', {type: 'button', hidden: true, onclick: () => open()}, 'Open again');
  const open = () => {
    again.hidden = true;
    note.textContent = '';
    state.terminal = new Terminal(place, `${location.origin.replace(/^http/, 'ws')}${path}`, `${node}, worker ${worker}`, (why) => {
      note.textContent = `Ended: ${why}.`;
      again.hidden = false;
    });
  };
  setTimeout(open, 0); // in the page, where it has a size
  return [title, place, el('div', {class: 'row'}, note, again)];
}

// title, drawing, whether it has live state, whether it needs a project
const pages = {nodes: ['TPU VMs', nodesPage, true, true], create: ['Create', createPage, false, true], queue: ['Queue', queuePage, true, true],
  jobs: ['Jobs', jobsPage, true, true], bill: ['Bill', billPage, false, true], grants: ['Grants', grantsPage, false, false],
  events: ['Events', eventsPage, true, true], project: ['New project', projectPage, false, false], node: ['TPU VM', nodePage, true, true], terminal: ['Terminal', terminalPage, false, true]};
const unlisted = ['node', 'terminal']; // reached from elsewhere

async function show() {
  const [name, ...rest] = location.hash.slice(1).split('/').map(decodeURIComponent);
  const asked = pages[name] ? name : 'nodes';
  const page = pages[asked][3] && !state.project ? (['admin', 'reviewer'].includes(state.me.role) ? 'grants' : 'project') : asked;
  state.page = page;
  if (state.terminal) state.terminal.close();
  state.terminal = null;
  const content = await pages[page][1](...rest);
  if (state.page !== page) return;
  draw(content);
  document.title = `${pages[page][0]} - vtpu research cloud`;
  for (const link of $('nav').children) {
    if (link.hash === `#${page}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

// --- start --------------------------------------------------------------------------------------------------------

async function start(project) {
  state.me = await api('GET', '/vtpu/v1/me');
  const {projects} = await api('GET', '/v1/projects');
  $('project').replaceChildren(...(projects || []).map((p) => el('option', {selected: p.projectId === project}, p.projectId)));
  $('project').hidden = !(projects || []).length;
  state.project = $('project').value;
  $('user').textContent = state.me.role === 'user' ? state.me.email : `${state.me.email} (${state.me.role})`;
  $('nav').replaceChildren(...Object.entries(pages).filter(([id, p]) => !unlisted.includes(id) && (state.project || !p[3])).map(([id, p]) => el('a', {href: `#${id}`}, p[0])));
  $('nav').hidden = $('who').hidden = false;
  await show();
  clearInterval(state.timer);
  // A page with live state is drawn again; it has no fields that somebody could be typing in.
  state.timer = setInterval(act(async () => { if (pages[state.page][2] && !document.hidden) await show(); }), 2000);
}

window.addEventListener('hashchange', act(async () => { await show(); if (!state.terminal && state.page !== 'terminal') $('main').focus(); }));
$('project').addEventListener('change', act(async () => { state.project = $('project').value; await show(); }));
$('out').addEventListener('click', act(async () => { await api('DELETE', '/vtpu/v1/session'); state.me = null; signIn(); }));
start().catch(signIn);
