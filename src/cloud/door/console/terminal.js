// SPDX-License-Identifier: Apache-2.0
// terminal.js - a terminal: what xterm understands of bytes, as far as shells, editors and progress bars need it, on a grid of
// cells; and a view of it with keyboard, scrollback and selection. Text is put in as text, never as markup.
'use strict';

const SCROLLBACK = 3000;
const PLAIN = Object.freeze({fg: -1, bg: -1, flags: ''});
const LINES = Object.fromEntries([...'`afgjklmnopqrstuvwxyz{|}~'].map((c, i) => [c, [...'◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·'][i]]));

// Cells that a character takes: none for marks on the one before, two for East Asian and most emoji.
function widthOf(c) {
  const code = c.codePointAt(0);
  if (code < 0x300) return 1;
  if (/\p{Mn}|\p{Me}|\p{Cf}/u.test(c)) return 0;
  return (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf && code !== 0x303f) || (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) || (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) || (code >= 0xffe0 && code <= 0xffe6) ||
    (code >= 0x1f300 && code <= 0x1f64f) || (code >= 0x1f680 && code <= 0x1f6ff) || (code >= 0x1f900 && code <= 0x1f9ff) || (code >= 0x20000 && code <= 0x3fffd) ? 2 : 1;
}

// --- the machine: bytes in, cells out -----------------------------------------------------------------------------

class Screen {
  // reply: what the program gets as if it had been typed; keep: a line that has left the top.
  constructor(columns, rows, reply, keep) {
    Object.assign(this, {columns, rows, reply: reply || (() => {}), keep: keep || (() => {}), decoder: new TextDecoder(), title: ''});
    this.reset();
  }

  reset() {
    Object.assign(this, {x: 0, y: 0, pen: PLAIN, top: 0, bottom: this.rows - 1, state: 'ground', sequence: '', wrap: false, last: ' ',
      autowrap: true, insert: false, origin: false, visible: true, newline: false, appKeys: false, bracketed: false, mouse: 0, wideMouse: false,
      charsets: ['B', 'B'], shift: 0, other: null, saved: null, changed: new Set()});
    this.tabs = new Set(Array.from({length: 126}, (_, i) => 8 * (i + 1)));
    this.lines = Array.from({length: this.rows}, () => this.blank());
    this.touchAll();
  }

  blank() { return Array.from({length: this.columns}, () => [' ', this.erased()]); }
  erased() { return this.pen && this.pen.bg !== -1 ? {fg: -1, bg: this.pen.bg, flags: ''} : PLAIN; }
  touch(y) { this.changed.add(y); }
  touchAll() { for (let y = 0; y < this.rows; y++) this.changed.add(y); }
  text(y) { return this.lines[y].map((cell) => cell[0]).join('').trimEnd(); }

  write(bytes) {
    for (const c of typeof bytes === 'string' ? bytes : this.decoder.decode(bytes, {stream: true})) this.take(c);
  }

  take(c) {
    const code = c.codePointAt(0);
    if (this.state === 'text') { // of a title and the like, up to BEL or ESC \
      if (c === '\x07' || (this.sequence.endsWith('\x1b') && c === '\\')) this.endText();
      else if (c === '\x18' || c === '\x1a') this.state = 'ground';
      else if (this.sequence.length < 4096) this.sequence += c;
    } else if (code < 0x20) {
      this.control(c);
    } else if (this.state === 'ground') {
      if (code !== 0x7f) this.put(c);
    } else if (this.state === 'escape') {
      this.escape(c);
    } else if (this.state === 'charset') {
      this.charsets[this.sequence === ')' ? 1 : 0] = c;
      this.state = 'ground';
    } else if (this.state === 'skip') {
      this.state = 'ground';
    } else if (code >= 0x40 && code <= 0x7e) {
      this.state = 'ground';
      this.command(c);
    } else if (this.sequence.length < 256) {
      this.sequence += c;
    }
  }

  control(c) {
    if (c === '\x1b') { this.state = 'escape'; this.sequence = ''; }
    else if (c === '\x18' || c === '\x1a') this.state = 'ground';
    else if (c === '\n' || c === '\x0b' || c === '\x0c') { this.feed(); if (this.newline) this.x = 0; }
    else if (c === '\r') this.move(0, this.y);
    else if (c === '\b') this.move(this.x - 1, this.y);
    else if (c === '\t') this.tab(1);
    else if (c === '\x0e' || c === '\x0f') this.shift = c === '\x0e' ? 1 : 0;
  }

  escape(c) {
    this.state = 'ground';
    this.sequence = '';
    if (c === '[') this.state = 'command';
    else if (c === ']' || c === 'P' || c === '^' || c === '_' || c === 'X') { this.state = 'text'; this.sequence = c; }
    else if (c === '(' || c === ')') { this.state = 'charset'; this.sequence = c; }
    else if ('*+#% '.includes(c)) this.state = 'skip';
    else if (c === '7') this.save();
    else if (c === '8') this.restore();
    else if (c === 'D') this.feed();
    else if (c === 'E') { this.x = 0; this.feed(); }
    else if (c === 'M') { if (this.y === this.top) this.scroll(-1); else this.move(this.x, this.y - 1); }
    else if (c === 'H') this.tabs.add(this.x);
    else if (c === 'c') this.reset();
  }

  endText() {
    const text = this.sequence.replace(/\x1b$/, '');
    this.state = 'ground';
    if (/^\][02];/.test(text)) this.title = text.slice(3);
  }

  put(c) {
    const width = widthOf(c);
    if (this.charsets[this.shift] === '0' && LINES[c]) c = LINES[c];
    if (width === 0) {
      const cell = this.lines[this.y][Math.max(0, this.wrap ? this.x : this.x - 1)];
      if (cell[0].length < 16) cell[0] += c;
      this.touch(this.y);
      return;
    }
    if (this.wrap || this.x + width > this.columns) {
      if (this.autowrap) { this.x = 0; this.feed(); } else this.x = this.columns - width;
      this.wrap = false;
    }
    const line = this.lines[this.y];
    if (this.insert) line.splice(this.x, 0, ...Array.from({length: width}, () => [' ', PLAIN])) && (line.length = this.columns);
    if (line[this.x][0] === '' && this.x) line[this.x - 1] = [' ', line[this.x - 1][1]]; // half of a wide one
    line[this.x] = [c, this.pen];
    if (width === 2) line[this.x + 1] = ['', this.pen];
    const next = line[this.x + width];
    if (next && next[0] === '') line[this.x + width] = [' ', next[1]];
    this.touch(this.y);
    this.last = c;
    this.x += width;
    if (this.x >= this.columns) { this.x = this.columns - 1; this.wrap = true; }
  }

  move(x, y) {
    this.touch(this.y);
    this.x = Math.min(Math.max(x, 0), this.columns - 1);
    this.y = Math.min(Math.max(y, 0), this.rows - 1);
    this.wrap = false;
    this.touch(this.y);
  }

  tab(count) {
    let x = this.x;
    for (; count > 0; count--) do x++; while (x < this.columns - 1 && !this.tabs.has(x));
    for (; count < 0; count++) do x--; while (x > 0 && !this.tabs.has(x));
    this.move(x, this.y);
  }

  feed() {
    if (this.y === this.bottom) this.scroll(1);
    else this.move(this.x, this.y + 1);
    this.wrap = false;
  }

  // Lines of the region go up (count > 0) or down.
  scroll(count, from) {
    const top = from === undefined ? this.top : from;
    for (let i = Math.min(Math.abs(count), this.bottom - top + 1); i > 0; i--) {
      if (count > 0) {
        const [gone] = this.lines.splice(top, 1);
        if (top === 0 && from === undefined && !this.other) this.keep(gone);
        this.lines.splice(this.bottom, 0, this.blank());
      } else {
        this.lines.splice(this.bottom, 1);
        this.lines.splice(top, 0, this.blank());
      }
    }
    for (let y = top; y <= this.bottom; y++) this.touch(y);
  }

  erase(y, from, to) {
    for (let x = Math.max(from, 0); x < Math.min(to, this.columns); x++) this.lines[y][x] = [' ', this.erased()];
    this.touch(y);
  }

  save() { this.saved = {x: this.x, y: this.y, pen: this.pen, origin: this.origin, charsets: [...this.charsets], shift: this.shift}; }
  restore() {
    const {x, y, ...rest} = this.saved || {x: 0, y: 0, pen: PLAIN, origin: false, charsets: ['B', 'B'], shift: 0};
    Object.assign(this, rest);
    this.move(x, y);
  }

  alternate(on) {
    if (on === !!this.other) return;
    if (on) {
      this.other = this.lines;
      this.lines = Array.from({length: this.rows}, () => this.blank());
    } else {
      this.lines = this.other;
      this.other = null;
    }
    this.touchAll();
  }

  command(final) {
    const mark = /^[?>=!<]/.test(this.sequence) ? this.sequence[0] : '', body = this.sequence.slice(mark.length);
    if (/[ -/]/.test(body) || mark === '<' || mark === '=') { if (mark === '!' || body !== '!') return; }
    const list = body.split(';').map((part) => (/^\d+/.test(part) ? Math.min(parseInt(part, 10), 65535) : 0));
    const n = Math.max(list[0], 1), y0 = this.origin ? this.top : 0;
    if (mark === '?') return final === 'h' || final === 'l' ? list.forEach((mode) => this.mode(mode, final === 'h')) : undefined;
    if (mark === '>') return final === 'c' ? this.reply('\x1b[>0;1;0c') : undefined;
    if (mark) return undefined;
    const line = this.lines[this.y];
    switch (final) {
      case 'A': return this.move(this.x, Math.max(this.y - n, this.y >= this.top ? this.top : 0));
      case 'B': case 'e': return this.move(this.x, Math.min(this.y + n, this.y <= this.bottom ? this.bottom : this.rows - 1));
      case 'C': case 'a': return this.move(this.x + n, this.y);
      case 'D': return this.move(this.x - n, this.y);
      case 'E': return this.move(0, Math.min(this.y + n, this.bottom));
      case 'F': return this.move(0, Math.max(this.y - n, this.top));
      case 'G': case '`': return this.move(n - 1, this.y);
      case 'd': return this.move(this.x, y0 + n - 1);
      case 'H': case 'f': return this.move(Math.max(list[1] || 1, 1) - 1, y0 + n - 1);
      case 'I': return this.tab(n);
      case 'Z': return this.tab(-n);
      case 'J':
        if (list[0] === 0) { this.erase(this.y, this.x, this.columns); for (let y = this.y + 1; y < this.rows; y++) this.erase(y, 0, this.columns); }
        if (list[0] === 1) { for (let y = 0; y < this.y; y++) this.erase(y, 0, this.columns); this.erase(this.y, 0, this.x + 1); }
        if (list[0] === 2) for (let y = 0; y < this.rows; y++) this.erase(y, 0, this.columns);
        return undefined;
      case 'K': return this.erase(this.y, list[0] ? 0 : this.x, list[0] === 1 ? this.x + 1 : this.columns);
      case 'L': case 'M':
        if (this.y >= this.top && this.y <= this.bottom) this.scroll(final === 'M' ? n : -n, this.y);
        return undefined;
      case 'P': line.splice(this.x, Math.min(n, this.columns)); while (line.length < this.columns) line.push([' ', this.erased()]); return this.touch(this.y);
      case '@': line.splice(this.x, 0, ...Array.from({length: Math.min(n, this.columns)}, () => [' ', this.erased()])); line.length = this.columns; return this.touch(this.y);
      case 'X': return this.erase(this.y, this.x, this.x + n);
      case 'S': return this.scroll(Math.min(n, this.rows));
      case 'T': return this.scroll(-Math.min(n, this.rows));
      case 'b': for (let i = Math.min(n, this.columns * this.rows); i > 0; i--) this.put(this.last); return undefined;
      case 'm': return this.style(body);
      case 'r':
        this.top = Math.min(n, this.rows) - 1;
        this.bottom = Math.min(list[1] || this.rows, this.rows) - 1;
        if (this.top >= this.bottom) { this.top = 0; this.bottom = this.rows - 1; }
        return this.move(0, this.origin ? this.top : 0);
      case 's': return this.save();
      case 'u': return this.restore();
      case 'g': if (list[0] === 3) this.tabs.clear(); else this.tabs.delete(this.x); return undefined;
      case 'h': case 'l': if (list.includes(4)) this.insert = final === 'h'; if (list.includes(20)) this.newline = final === 'h'; return undefined;
      case 'n':
        if (list[0] === 5) this.reply('\x1b[0n');
        if (list[0] === 6) this.reply(`\x1b[${this.y - y0 + 1};${this.x + 1}R`);
        return undefined;
      case 'c': return this.reply('\x1b[?62;22c');
      case 't': return list[0] === 18 ? this.reply(`\x1b[8;${this.rows};${this.columns}t`) : undefined;
      default: return undefined;
    }
  }

  mode(mode, on) {
    if (mode === 1) this.appKeys = on;
    else if (mode === 6) { this.origin = on; this.move(0, on ? this.top : 0); }
    else if (mode === 7) this.autowrap = on;
    else if (mode === 25) { this.visible = on; this.touch(this.y); }
    else if (mode === 47 || mode === 1047) this.alternate(on);
    else if (mode === 1048) { if (on) this.save(); else this.restore(); }
    else if (mode === 1049) { if (on) this.save(); this.alternate(on); if (!on) this.restore(); }
    else if (mode === 9 || (mode >= 1000 && mode <= 1003 && mode !== 1001)) this.mouse = on ? mode : 0;
    else if (mode === 1006) this.wideMouse = on;
    else if (mode === 2004) this.bracketed = on;
  }

  // What a program that asked for the mouse (modes 9, 1000, 1002, 1003) is told; '' when it did not ask for this.
  // kind: press, release, move; button: 0 to 2, 64 and 65 of the wheel, 3 none; a cell from 0; keys that are held: 4 Shift, 8 Alt, 16 Control.
  mouseBytes(kind, button, x, y, held) {
    if (!this.mouse || (this.mouse === 9 && kind !== 'press') || (kind === 'move' && this.mouse < (button === 3 ? 1003 : 1002))) return '';
    const code = button + held + (kind === 'move' ? 32 : 0);
    if (this.wideMouse) return `\x1b[<${code};${x + 1};${y + 1}${kind === 'release' ? 'm' : 'M'}`;
    if (x > 94 || y > 94) return ''; // would be no ASCII
    return `\x1b[M${String.fromCharCode(32 + (kind === 'release' ? 3 + held : code), 33 + x, 33 + y)}`;
  }

  // Colours: -1 the usual, 0 to 255 of the palette, '#rrggbb'. Flags are letters, the names of classes.
  style(body) {
    const list = body.split(';').flatMap((part) => (/^[34]8:/.test(part) ? part.replace(/^([34]8:2:):/, '$1').split(':') : [part.split(':')[0]])).map((p) => parseInt(p, 10) || 0);
    let {fg, bg, flags} = this.pen;
    const set = {1: 'b', 2: 'd', 3: 'i', 4: 'u', 7: 'r', 8: 'h', 9: 's'}, clear = {21: 'b', 22: 'bd', 23: 'i', 24: 'u', 27: 'r', 28: 'h', 29: 's'};
    for (let i = 0; i < list.length; i++) {
      const p = list[i];
      if (p === 0) { fg = bg = -1; flags = ''; }
      else if (set[p]) flags = flags.includes(set[p]) ? flags : [...flags + set[p]].sort().join('');
      else if (clear[p]) flags = [...flags].filter((f) => !clear[p].includes(f)).join('');
      else if (p >= 30 && p <= 37) fg = p - 30;
      else if (p >= 90 && p <= 97) fg = p - 82;
      else if (p >= 40 && p <= 47) bg = p - 40;
      else if (p >= 100 && p <= 107) bg = p - 92;
      else if (p === 39) fg = -1;
      else if (p === 49) bg = -1;
      else if (p === 38 || p === 48) {
        let colour = -1;
        if (list[i + 1] === 5) { colour = list[i + 2] & 255; i += 2; }
        else if (list[i + 1] === 2) { colour = '#' + [2, 3, 4].map((k) => ((list[i + k] || 0) & 255).toString(16).padStart(2, '0')).join(''); i += 4; }
        if (p === 38) fg = colour; else bg = colour;
      }
    }
    this.pen = fg === -1 && bg === -1 && !flags ? PLAIN : {fg, bg, flags};
  }

  resize(columns, rows) {
    if (columns === this.columns && rows === this.rows) return;
    const fit = (lines, main) => {
      for (const line of lines) {
        line.length = Math.min(line.length, columns);
        while (line.length < columns) line.push([' ', PLAIN]);
      }
      while (lines.length > rows) { // from the top when the cursor would be lost
        if (main && this.y >= rows) { const gone = lines.shift(); this.y--; if (!this.other) this.keep(gone); } else lines.pop();
      }
      this.columns = columns;
      while (lines.length < rows) lines.push(Array.from({length: columns}, () => [' ', PLAIN]));
    };
    fit(this.lines, true);
    if (this.other) fit(this.other, false);
    Object.assign(this, {rows, top: 0, bottom: rows - 1});
    this.move(this.x, this.y);
    this.touchAll();
  }
}

// --- the view -----------------------------------------------------------------------------------------------------

function colourOf(colour) {
  if (typeof colour === 'string') return colour;
  if (colour >= 232) { const v = 8 + 10 * (colour - 232); return `rgb(${v},${v},${v})`; }
  const part = (n) => (n ? 55 + 40 * n : 0), c = colour - 16;
  return `rgb(${part(Math.floor(c / 36))},${part(Math.floor(c / 6) % 6)},${part(c % 6)})`;
}

function paint(span, pen) {
  const reverse = pen.flags.includes('r'), fg = reverse ? pen.bg : pen.fg, bg = reverse ? pen.fg : pen.bg;
  span.className = [...pen.flags].map((f) => `t${f}`).concat(fg >= 0 && fg < 16 ? `f${fg}` : reverse && fg === -1 ? 'fx' : [],
    bg >= 0 && bg < 16 ? `g${bg}` : reverse && bg === -1 ? 'gx' : []).join(' ');
  // Set by script, which the content security policy allows; attributes it does not.
  if (typeof fg === 'string' || fg >= 16) span.style.color = colourOf(fg);
  if (typeof bg === 'string' || bg >= 16) span.style.backgroundColor = colourOf(bg);
}

function drawLine(row, line, cursor) {
  const spans = [];
  let text = '', pen = null;
  const end = () => {
    if (!text) return;
    const span = document.createElement('span');
    span.textContent = text;
    paint(span, pen);
    spans.push(span);
    text = '';
  };
  let size = line.length;
  while (size && line[size - 1][0] === ' ' && line[size - 1][1] === PLAIN && size - 1 !== cursor) size--;
  line.slice(0, size).forEach(([c, p], x) => {
    if (p !== pen || x === cursor || x === cursor + 1) end();
    pen = p;
    text += c;
    if (x === cursor) { end(); if (spans.length) spans[spans.length - 1].classList.add('cursor'); }
  });
  end();
  row.replaceChildren(...spans);
}

const KEYS = {ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F'};
const TILDE = {Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24};
const FIRST = {F1: 'P', F2: 'Q', F3: 'R', F4: 'S'};

// What a key is to the program; '' when it is none of ours, and the browser's or the text's.
function bytesOf(event, screen) {
  const {key, ctrlKey, altKey, shiftKey, metaKey} = event;
  const held = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
  if (metaKey || (ctrlKey && shiftKey)) return ''; // copy, paste, tabs of the browser
  if (KEYS[key]) return held > 1 ? `\x1b[1;${held}${KEYS[key]}` : `\x1b${screen.appKeys ? 'O' : '['}${KEYS[key]}`;
  if (FIRST[key]) return held > 1 ? `\x1b[1;${held}${FIRST[key]}` : `\x1bO${FIRST[key]}`;
  if (TILDE[key]) return `\x1b[${TILDE[key]}${held > 1 ? `;${held}` : ''}~`;
  if (key === 'Enter') return altKey ? '\x1b\r' : '\r';
  if (key === 'Backspace') return ctrlKey ? '\b' : altKey ? '\x1b\x7f' : '\x7f';
  if (key === 'Tab') return shiftKey ? '\x1b[Z' : '\t';
  if (key === 'Escape') return '\x1b';
  if (ctrlKey && key.length === 1) {
    const code = key === ' ' || key === '2' ? 0 : key === '/' ? 31 : key.toUpperCase().charCodeAt(0) - 64;
    return code >= 0 && code < 32 ? (altKey ? '\x1b' : '') + String.fromCharCode(code) : '';
  }
  return altKey && key.length === 1 ? `\x1b${key}` : '';
}

// A terminal inside `place`; talks to `url`. `ended` is told why it is over.
class Terminal {
  constructor(place, url, label, ended) {
    const make = (tag, attributes) => { const e = document.createElement(tag); for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v); return e; };
    this.place = place;
    this.past = make('div', {});
    this.now = make('div', {});
    this.measure = make('span', {class: 'measure', 'aria-hidden': 'true'});
    this.measure.textContent = 'M'.repeat(20);
    this.output = make('div', {class: 'output', role: 'log', 'aria-live': 'off', 'aria-label': `Output of ${label}`});
    this.output.append(this.past, this.now, this.measure);
    this.input = make('textarea', {'aria-label': `Terminal of ${label}; Shift+Escape leaves it`, autocapitalize: 'off', autocomplete: 'off', autocorrect: 'off', spellcheck: 'false', rows: '1'});
    this.bar = this.keys();
    place.replaceChildren(this.output, this.input, this.bar);
    this.encoder = new TextEncoder();
    this.screen = new Screen(80, 24, (text) => this.send(text), (line) => this.keepLine(line));
    this.control = false;
    this.kept = [];
    this.socket = new WebSocket(url, 'terminal.vtpu');
    this.socket.binaryType = 'arraybuffer';
    this.socket.addEventListener('open', () => this.fit(true));
    this.socket.addEventListener('message', (event) => { this.screen.write(new Uint8Array(event.data)); this.later(); });
    this.socket.addEventListener('close', (event) => { this.over = true; ended(event.reason || (event.code === 1006 ? 'the connection was refused or lost' : 'closed')); });
    this.listen();
    this.fit();
    this.input.focus();
  }

  listen() {
    this.input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && event.shiftKey) { this.bar.querySelector('button').focus(); event.preventDefault(); return; }
      if (event.isComposing) return;
      const bytes = bytesOf(event, this.screen);
      if (!bytes) return;
      event.preventDefault();
      this.type(bytes);
    });
    this.input.addEventListener('input', (event) => {
      if (event.isComposing) return;
      this.type(this.input.value.replace(/\n/g, '\r'));
      this.input.value = '';
    });
    this.input.addEventListener('compositionend', () => { this.type(this.input.value); this.input.value = ''; });
    this.input.addEventListener('paste', (event) => {
      const text = event.clipboardData.getData('text').replace(/\r?\n/g, '\r').replace(/\x1b/g, '');
      event.preventDefault();
      this.type(this.screen.bracketed ? `\x1b[200~${text}\x1b[201~` : text);
    });
    this.listenToMouse();
    this.output.addEventListener('mouseup', () => { if (getSelection().isCollapsed) this.input.focus({preventScroll: true}); });
    this.resized = () => this.fit();
    window.addEventListener('resize', this.resized);
  }

  // Programs that ask for the mouse get it; with Shift it is the browser's, which selects. Without them the wheel scrolls, and in
  // what takes the whole screen (less, man) goes up and down.
  listenToMouse() {
    let pressed = 3, last = '';
    const tell = (kind, button, event) => {
      const cell = this.measure.getBoundingClientRect(), box = this.now.getBoundingClientRect(), {columns, rows} = this.screen;
      const x = Math.max(0, Math.min(columns - 1, Math.floor((event.clientX - box.left) / (cell.width / 20))));
      const y = Math.max(0, Math.min(rows - 1, Math.floor((event.clientY - box.top) / cell.height)));
      const bytes = this.screen.mouseBytes(kind, button, x, y, (event.altKey ? 8 : 0) + (event.ctrlKey ? 16 : 0));
      if (!bytes || (kind === 'move' && bytes === last)) return;
      last = bytes;
      this.send(bytes);
    };
    const taken = (event) => this.screen.mouse && !event.shiftKey;
    this.output.addEventListener('mousedown', (event) => {
      if (!taken(event) || event.button > 2) return;
      event.preventDefault();
      this.input.focus({preventScroll: true});
      pressed = event.button;
      tell('press', pressed, event);
    });
    this.output.addEventListener('mousemove', (event) => { if (taken(event)) tell('move', pressed, event); });
    this.released = (event) => {
      if (pressed === 3) return;
      tell('release', pressed, event);
      pressed = 3;
    };
    window.addEventListener('mouseup', this.released);
    this.output.addEventListener('contextmenu', (event) => { if (taken(event)) event.preventDefault(); });
    this.output.addEventListener('wheel', (event) => {
      if (!event.deltaY || event.shiftKey || !(this.screen.mouse || this.screen.other)) return;
      event.preventDefault();
      if (this.screen.mouse) tell('press', event.deltaY < 0 ? 64 : 65, event);
      else this.send(`\x1b${this.screen.appKeys ? 'O' : '['}${event.deltaY < 0 ? 'A' : 'B'}`.repeat(3));
    }, {passive: false});
  }

  // For screens without a keyboard of keys.
  keys() {
    const bar = document.createElement('div');
    bar.className = 'keys';
    for (const [label, name, bytes] of [['Esc', 'Escape', '\x1b'], ['Tab', 'Tab', '\t'], ['Ctrl', 'Control', null], ['↑', 'Up', 'A'], ['↓', 'Down', 'B'], ['←', 'Left', 'D'], ['→', 'Right', 'C']]) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = label;
      button.setAttribute('aria-label', `Key ${name}`);
      button.addEventListener('click', () => {
        if (bytes === null) this.setControl(!this.control);
        else this.type(/[A-D]/.test(bytes) ? `\x1b${this.screen.appKeys ? 'O' : '['}${bytes}` : bytes);
        this.input.focus({preventScroll: true});
      });
      if (bytes === null) this.controlKey = button;
      bar.append(button);
    }
    return bar;
  }

  setControl(on) {
    this.control = on;
    this.controlKey.setAttribute('aria-pressed', String(on));
  }

  type(text) {
    if (this.control && /^[a-z@[\\\]^_]$/i.test(text)) text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
    if (text) this.setControl(false);
    this.send(text);
    this.output.scrollTop = this.output.scrollHeight;
  }

  send(text) {
    const bytes = this.encoder.encode(text);
    for (let at = 0; at < bytes.length && this.socket.readyState === 1; at += 32768) this.socket.send(bytes.subarray(at, at + 32768));
  }

  keepLine(line) {
    this.kept.push(line);
    if (this.kept.length > SCROLLBACK) this.kept.shift();
  }

  // As many columns and rows as the place has room for.
  fit(always) {
    const box = this.measure.getBoundingClientRect(), style = getComputedStyle(this.output);
    const width = this.output.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = this.output.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    const columns = Math.max(20, Math.min(500, Math.floor(width / (box.width / 20)))), rows = Math.max(5, Math.min(200, Math.floor(height / box.height)));
    if (!always && columns === this.screen.columns && rows === this.screen.rows) return;
    this.screen.resize(columns, rows);
    if (this.socket.readyState === 1) this.socket.send(JSON.stringify({columns, rows}));
    this.later();
  }

  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    const {screen, output} = this, stays = output.scrollHeight - output.scrollTop - output.clientHeight > 4;
    for (const line of this.kept.splice(0)) {
      const row = document.createElement('div');
      drawLine(row, line, -1);
      this.past.append(row);
    }
    while (this.past.childElementCount > SCROLLBACK) this.past.firstChild.remove();
    this.past.hidden = !!screen.other; // programs that take the whole screen have no past
    while (this.now.childElementCount > screen.rows) this.now.lastChild.remove();
    while (this.now.childElementCount < screen.rows) { this.now.append(document.createElement('div')); screen.touchAll(); }
    for (const y of screen.changed) if (y < screen.rows) drawLine(this.now.children[y], screen.lines[y], screen.visible && y === screen.y ? screen.x : -1);
    screen.changed.clear();
    if (!stays) output.scrollTop = output.scrollHeight;
  }

  close() {
    window.removeEventListener('resize', this.resized);
    window.removeEventListener('mouseup', this.released);
    this.socket.close(1000);
  }
}
