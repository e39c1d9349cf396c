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
const usd = (value) => `$${Number(value).toFixed(2)}`;

function badge(name) {
  const kind = ['READY', 'ACTIVE', 'APPROVED'].includes(name) ? 'good'
    : ['PREEMPTED', 'FAILED', 'TERMINATED', 'UNKNOWN', 'REJECTED', 'EXPIRED'].includes(name) ? 'bad' : 'wait';
  return el('span', {class: `state ${kind}`}, name);
}

function table(heads, rows, empty) {
  if (!rows.length) return el('p', {}, empty);
  return el('table', {class: 'stack'},
    el('thead', {}, el('tr', {}, heads.map((h) => el('th', {scope: 'col'}, h)))),
    el('tbody', {}, rows.map((r) => el('tr', {}, r.map((cell, i) => el('td', {'data-label': heads[i]}, cell))))));
}

function draw(...children) { $('main').replaceChildren(...children.flat().filter(Boolean)); }

// --- sign-in ------------------------------------------------------------------------------------------------------

function signIn() {
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
  const percent = `${Math.round(100 * use.chips.dutyCycle)} %`, gib = (bytes) => (bytes / 2 ** 30).toFixed(1);
  return [el('meter', {min: '0', max: '1', value: String(use.chips.dutyCycle), 'aria-label': `Chips busy: ${percent}`}), ` ${percent}`, el('br'),
    `HBM ${gib(use.chips.hbmBytes)} of ${gib(use.chips.hbmLimit)} GiB`];
}

async function nodesPage() {
  const {nodes} = await api('GET', `${base('-')}/nodes`);
  const uses = (await api('GET', `/vtpu/v1/projects/${encodeURIComponent(state.project)}/use`)).nodes;
  const rows = nodes.map((node) => {
    const zone = zoneOf(node.name), id = last(node.name), path = `${base(zone)}/nodes/${encodeURIComponent(id)}`;
    const ip = node.networkEndpoints && node.networkEndpoints[0] ? node.networkEndpoints[0].ipAddress : '';
    const ssh = `vtpu tpu-vm ssh ${id} --zone=${zone}`;
    const doIt = (verb, text) => el('button', {type: 'button', 'aria-label': `${text} ${id}`, onclick: act(async () => {
      if (verb === 'DELETE' && !confirm(`Delete ${id}?`)) return;
      if (verb === 'DELETE') await api('DELETE', path);
      else await api('POST', `${path}:${verb}`, {});
      say(`${text} ${id}: asked for`);
      await show();
    })}, text);
    return [id, zone, node.acceleratorType, [badge(node.state), node.health && node.health !== 'HEALTHY' ? ` ${node.health}` : ''],
      chips(uses.find((use) => use.node === id && use.zone === zone)),
      el('span', {}, el('code', {}, ssh), ' ', el('button', {type: 'button', 'aria-label': `Copy ssh command of ${id}`,
        onclick: act(async () => { await navigator.clipboard.writeText(ssh); say('Copied.'); })}, 'Copy'), el('br'), ip),
      el('span', {class: 'row'}, node.state === 'READY' ? doIt('stop', 'Stop') : null,
        node.state === 'STOPPED' ? doIt('start', 'Start') : null, doIt('DELETE', 'Delete'))];
  });
  return [el('h2', {}, 'TPU VMs'), table(['Name', 'Zone', 'Type', 'State', 'Chips', 'Connect', 'Actions'], rows, 'No TPU VMs yet.'),
    el('p', {}, el('a', {href: '#create'}, 'Create a TPU VM'))];
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
  el('button', {class: 'main'}, 'Create')), price, room];
}

async function queuePage() {
  const {queuedResources} = await api('GET', `${base('-')}/queuedResources`);
  const rows = queuedResources.map((q) => {
    const id = last(q.name), path = `${base(zoneOf(q.name))}/queuedResources/${encodeURIComponent(id)}`;
    const spec = q.tpu && q.tpu.nodeSpec ? q.tpu.nodeSpec[0] : {};
    const error = q.state.failedData && q.state.failedData.error ? q.state.failedData.error.message : '';
    return [id, zoneOf(q.name), spec.node ? spec.node.acceleratorType : '', [badge(q.state.state), ' ', error],
      el('span', {class: 'row'},
        ['SUSPENDED', 'FAILED'].includes(q.state.state) ? el('button', {type: 'button', onclick: act(async () => { await api('POST', `${path}:reset`, {}); await show(); })}, 'Reset') : null,
        el('button', {type: 'button', 'aria-label': `Delete ${id}`, onclick: act(async () => {
          if (confirm(`Delete ${id} and its TPUs?`)) { await api('DELETE', `${path}?force=true`); await show(); }
        })}, 'Delete'))];
  });
  return [el('h2', {}, 'Queue'), table(['Name', 'Zone', 'Type', 'State', 'Actions'], rows, 'Nothing is queued.')];
}

function bars(days) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const make = (tag, attributes, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
    if (text) node.textContent = text;
    return node;
  };
  const entries = Object.entries(days), top = Math.max(1e-9, ...entries.map(([, v]) => v)), step = 620 / Math.max(entries.length, 1);
  svg.setAttribute('viewBox', '0 0 640 160');
  svg.setAttribute('class', 'bars');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `Cost by day: ${entries.map(([d, v]) => `${d} ${usd(v)}`).join(', ')}`);
  entries.forEach(([day, value], i) => {
    const height = 120 * value / top;
    const bar = make('rect', {x: 10 + i * step, y: 135 - height, width: Math.max(step - 4, 2), height});
    bar.append(make('title', {}, `${day}: ${usd(value)}`));
    svg.append(bar, make('text', {x: 10 + i * step, y: 150}, day.slice(8)));
  });
  return svg;
}

async function billPage() {
  const path = `/vtpu/v1/projects/${encodeURIComponent(state.project)}`, bill = await api('GET', `${path}/bill`);
  const days = {};
  for (const line of bill.lines) days[line.start.slice(0, 10)] = (days[line.start.slice(0, 10)] || 0) + Number(line.usd);
  const rows = bill.lines.slice(-100).reverse().map((l) => [l.kind, l.node, l.zone, l.acceleratorType, l.class, `${l.seconds} s`, l.deviceSeconds ? `${l.deviceSeconds.toFixed(3)} s` : '',
    `${l.units} x ${usd(l.usdPerUnitHour)}/h`, l.waived ? 'waived' : usd(l.usd)]);
  return [el('h2', {}, `Bill of ${bill.month}`), el('p', {class: 'big'}, usd(bill.usd)),
    el('p', {}, `Credit ${usd(bill.creditUsd)}, due ${usd(bill.dueUsd)}. `, el('a', {href: `${path}/bill?alt=csv`, download: `bill-${bill.month}.csv`}, 'CSV')),
    Object.keys(days).length ? bars(days) : null,
    el('form', {class: 'row', onsubmit: act(async (event) => {
      const data = Object.fromEntries(new FormData(event.target));
      await api('POST', `${path}/budget`, {usd: Number(data.usd), stops: !!data.stops});
      say('Budget saved.');
    })}, el('label', {}, 'Monthly budget in USD ', el('input', {name: 'usd', type: 'number', min: '1', required: true})),
    el('label', {}, el('input', {name: 'stops', type: 'checkbox'}), ' stops the TPUs at 100 %'), el('button', {}, 'Save')),
    table(['Kind', 'Node', 'Zone', 'Type', 'Class', 'Time', 'Device time', 'Units', 'Cost'], rows, 'Nothing was used this month.')];
}

async function grantsPage() {
  const {grants} = await api('GET', '/vtpu/v1/grants');
  const reviewer = ['admin', 'reviewer'].includes(state.me.role);
  const decide = (grant, verb, text) => el('button', {type: 'button', onclick: act(async () => {
    await api('POST', `/vtpu/v1/grants/${encodeURIComponent(grant.id)}:${verb}`, {});
    await show();
  })}, text);
  const rows = grants.map((g) => [g.id, g.applicant, g.project, g.purpose, (g.items || []).map((i) => `${i.chips} ${i.family} chips ${i.mode} in ${i.zone}`).join('; '),
    `${g.days} days`, badge(g.state), reviewer && g.state === 'PENDING' ? el('span', {class: 'row'}, decide(g, 'approve', 'Approve'), decide(g, 'reject', 'Reject')) : '']);
  const {capacity} = await api('GET', '/vtpu/v1/capacity');
  const option = (list) => list.map((x) => el('option', {}, x));
  return [el('h2', {}, 'Research grants'), table(['Id', 'Applicant', 'Project', 'Purpose', 'Chips', 'Time', 'State', 'Review'], rows, 'No applications yet.'),
    el('h2', {}, 'Apply'), el('form', {class: 'grid', onsubmit: act(async (event) => {
      const d = Object.fromEntries(new FormData(event.target));
      await api('POST', '/vtpu/v1/grants', {project: state.project, purpose: d.purpose, days: Number(d.days),
        items: [{zone: d.zone, family: d.family, chips: Number(d.chips), mode: d.mode}]});
      say('Application sent.');
      await show();
    })},
    el('label', {}, 'What for', el('textarea', {name: 'purpose', required: true, minlength: '10', rows: '3'})),
    el('label', {}, 'Zone', el('select', {name: 'zone'}, option([...new Set(capacity.map((c) => c.zone))]))),
    el('label', {}, 'Family', el('select', {name: 'family'}, option([...new Set(capacity.map((c) => c.family))]))),
    el('label', {}, 'Chips', el('input', {name: 'chips', type: 'number', min: '1', value: '8', required: true})),
    el('label', {}, 'Mode', el('select', {name: 'mode'}, option(['on-demand', 'spot']))),
    el('label', {}, 'Days', el('input', {name: 'days', type: 'number', min: '1', max: '366', value: '30', required: true})),
    el('button', {class: 'main'}, 'Apply'))];
}

async function eventsPage() {
  const {events} = await api('GET', `/vtpu/v1/projects/${encodeURIComponent(state.project)}/events`);
  return [el('h2', {}, 'Events'), table(['Time', 'Kind', 'Who', 'What', 'Detail'],
    events.slice(0, 200).map((e) => [e.time.slice(0, 19).replace('T', ' '), e.kind, e.actor, last(e.target), e.detail]), 'Nothing happened yet.')];
}

const pages = {nodes: ['TPU VMs', nodesPage, true], create: ['Create', createPage, false], queue: ['Queue', queuePage, true],
  bill: ['Bill', billPage, false], grants: ['Grants', grantsPage, false], events: ['Events', eventsPage, true]};

async function show() {
  const page = pages[location.hash.slice(1)] ? location.hash.slice(1) : 'nodes';
  state.page = page;
  const content = await pages[page][1]();
  if (state.page === page) draw(content);
  for (const link of $('nav').children) {
    if (link.hash === `#${page}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

// --- start --------------------------------------------------------------------------------------------------------

async function start() {
  state.me = await api('GET', '/vtpu/v1/me');
  const {projects} = await api('GET', '/v1/projects');
  $('project').replaceChildren(...(projects || []).map((p) => el('option', {}, p.projectId)));
  state.project = $('project').value;
  $('user').textContent = `${state.me.email} (${state.me.role})`;
  $('nav').replaceChildren(...Object.entries(pages).map(([id, p]) => el('a', {href: `#${id}`}, p[0])));
  $('nav').hidden = $('who').hidden = false;
  await show();
  clearInterval(state.timer);
  // A page with live state is drawn again while nobody is typing or pointing at a button in it.
  state.timer = setInterval(act(async () => {
    if (pages[state.page][2] && !document.hidden && !$('main').contains(document.activeElement)) await show();
  }), 2000);
}

window.addEventListener('hashchange', act(async () => { await show(); $('main').focus(); }));
$('project').addEventListener('change', act(async () => { state.project = $('project').value; await show(); }));
$('out').addEventListener('click', act(async () => { await api('DELETE', '/vtpu/v1/session'); state.me = null; signIn(); }));
start().catch(signIn);
