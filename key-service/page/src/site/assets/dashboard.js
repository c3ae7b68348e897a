// Copy buttons, sign-in links, local times, reading a chart with the pointer, and pages that refresh themselves. Every page works
// without this script, except Try it.
'use strict';

// Copies a text. Without the clipboard API (no TLS), it copies a selection.
async function copy(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const selection = getSelection();
    const range = document.createRange();
    range.selectNodeContents(element);
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand('copy');
  }
}

let uncopied = document.querySelector('[data-shown-once]') !== null;

document.addEventListener('click', async (event) => {
  // A button fills its value into a field.
  const offer = event.target.closest('[data-fills]');
  if (offer) document.getElementById(offer.dataset.fills).value = offer.value;
  const reveals = event.target.closest('[data-reveals]');
  if (reveals) {
    const field = document.getElementById(reveals.dataset.reveals);
    field.type = field.type === 'password' ? 'text' : 'password';
    reveals.ariaPressed = field.type === 'text';
  }
  const button = event.target.closest('[data-copies]');
  if (button) {
    const source = button.parentElement.querySelector('[data-copy]');
    const done = await copy(source.textContent, source);
    button.textContent = done ? 'Copied' : 'Press Ctrl+C';
    if (done && button.closest('[data-shown-once]')) uncopied = false;
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  }
  if (event.target.closest('[data-done]')) uncopied = false;
});
document.addEventListener('copy', () => { uncopied = false; });

// Ask before leaving a key that was not copied. Reloading the page leads to the list instead of sending the form again.
if (uncopied) {
  addEventListener('beforeunload', (event) => { if (uncopied) event.preventDefault(); });
  const list = document.querySelector('[data-done]');
  if (list) history.replaceState(null, '', list.getAttribute('href'));
}

// The code of a sign-in link follows the #, so that no server and no log sees it. Keep it out of the history too.
// Looking a link up does not use it up, so send the form at once; the next page asks for confirmation.
const code = document.querySelector('form[data-link] [name="link"]');
if (code && location.hash.length > 1) {
  code.value = location.hash.slice(1);
  history.replaceState(null, '', location.pathname);
  code.form.requestSubmit();
}

// `/` outside of fields, or Ctrl+K anywhere, focuses the search box.
addEventListener('keydown', (event) => {
  const find = document.querySelector('.find input[name="q"]');
  const isMeant = event.key === '/' ? !event.target.closest('input, select, textarea') : event.key === 'k' && (event.ctrlKey || event.metaKey);
  if (!find || !isMeant) return;
  event.preventDefault();
  // On a narrow screen the box is in the menu.
  if (!find.checkVisibility()) document.getElementById('menu').showPopover();
  find.focus();
});

// The box in a table's head selects all rows or none.
document.addEventListener('change', ({ target }) => {
  if (!('choosesAll' in target.dataset)) return;
  for (const box of target.closest('table').querySelectorAll('[name="key"]')) box.checked = target.checked;
});

// Ask before leaving a form with changes. Sending that form saves them, but sending another form, such as the choice of
// the theme, loses them.
let isChanged = false;
document.querySelector('main').addEventListener('input', ({ target }) => { if (target.closest('form.stack')) isChanged = true; });
addEventListener('submit', ({ target }) => { if (target.closest('form.stack')) isChanged = false; });
addEventListener('beforeunload', (event) => { if (isChanged) event.preventDefault(); });

for (const button of document.querySelectorAll('[data-prints]')) button.addEventListener('click', () => print());

// The zone of all times and days. Until the reader has chosen one, it is the browser's from the next page on.
const { zone: chosenZone } = document.documentElement.dataset;
let zone = chosenZone ?? 'UTC';
// The browser may not know a zone that the server knows. Then it shows times in UTC.
try { Intl.DateTimeFormat('en', { timeZone: zone }); } catch { zone = 'UTC'; }
const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (!chosenZone) {
  const [prefix, secure] = location.protocol === 'https:' ? ['__Host-', '; secure'] : ['', ''];
  document.cookie = `${prefix}faregate-zone=${ownZone}; path=/; max-age=31536000; samesite=lax${secure}`;
}
const city = (name) => name.split('/').pop().replaceAll('_', ' ');
const offersOwn = document.querySelector('[data-own-zone]');
if (offersOwn && ![chosenZone, 'UTC', 'Etc/UTC'].includes(ownZone)) {
  Object.assign(offersOwn, { value: ownZone, title: ownZone, textContent: city(ownZone), hidden: false });
}

// Show times in the reader's zone, and those of the last day as "3 minutes ago". The tooltip has UTC.
const ago = new Intl.RelativeTimeFormat('en');
function showTimes() {
  for (const time of document.querySelectorAll('time')) {
    const at = new Date(time.dateTime);
    const local = at.toLocaleString('sv-SE', { timeZone: zone });
    const minutes = Math.floor((Date.now() - at) / 60_000);
    const hours = Math.floor(minutes / 60);
    if ('seconds' in time.dataset) {
      time.textContent = local;
    } else if (minutes < 0 || hours > 23) {
      time.textContent = local.slice(0, 16);
    } else {
      time.textContent = minutes < 1 ? 'just now' : hours < 1 ? ago.format(-minutes, 'minute') : ago.format(-hours, 'hour');
      time.title = `${local}, ${at.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
    }
  }
}

// Shows the table row of the bar under the pointer or finger, or chosen with the arrow keys.
function followPointer(chart) {
  const [plot, picture, links, box] = ['.plot', 'svg', '.days', '.box'].map((part) => chart.querySelector(part));
  const names = [...chart.querySelectorAll('thead th')].map((cell) => cell.textContent);
  const rows = [...chart.querySelectorAll('tbody tr')].reverse();
  const days = [...picture.querySelectorAll('.ground')];
  const colours = [...chart.querySelectorAll('.legend i')].map(({ className }) => className);
  let chosen = days.length - 1;
  const hide = () => {
    box.hidden = true;
    days[chosen].classList.remove('at');
  };
  const choose = (day) => {
    days[chosen].classList.remove('at');
    chosen = Math.max(0, Math.min(days.length - 1, day));
    days[chosen].classList.add('at');
    const lines = [...rows[chosen].cells].map((cell, at) => [at ? names[at] : '', cell.textContent, colours[at - 1]]);
    const shown = lines.filter(([, text], at) => text !== '\u2013' || at === lines.length - 1);
    box.replaceChildren(...shown.map(([name, text, colour]) => {
      const line = document.createElement('span');
      const title = Object.assign(document.createElement('i'), { textContent: name || text });
      if (colour) title.prepend(Object.assign(document.createElement('b'), { className: `swatch ${colour}` }));
      line.append(title, name && text);
      return line;
    }));
    picture.setAttribute('aria-valuenow', chosen);
    picture.setAttribute('aria-valuetext', shown.map(([name, text]) => [name, text].filter(Boolean).join(' ')).join(', '));
    box.hidden = false;
    const [area, bar] = [plot, days[chosen]].map((element) => element.getBoundingClientRect());
    const right = bar.right - area.left + 8;
    const left = right + box.offsetWidth <= area.width ? right : bar.left - area.left - box.offsetWidth - 8;
    // A transform moves the box without a layout shift.
    box.style.transform = `translateX(${Math.max(0, left)}px)`;
  };
  const at = (event) => {
    const area = picture.getBoundingClientRect();
    choose(Math.floor((event.clientX - area.left) / area.width * days.length));
  };
  for (const [name, value] of [['tabindex', 0], ['role', 'slider'], ['aria-valuemin', 0], ['aria-valuemax', days.length - 1], ['aria-valuenow', chosen]]) {
    picture.setAttribute(name, value);
  }
  // The first tap on a bar chooses it, the second follows its link.
  let isFirst = false;
  links.addEventListener('pointermove', at);
  links.addEventListener('pointerdown', (event) => {
    const before = box.hidden ? undefined : chosen;
    at(event);
    isFirst = event.pointerType !== 'mouse' && chosen !== before;
  });
  links.addEventListener('click', (event) => { if (isFirst) event.preventDefault(); });
  links.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') hide(); });
  picture.addEventListener('focus', () => { if (picture.matches(':focus-visible')) choose(chosen); });
  picture.addEventListener('blur', hide);
  picture.addEventListener('keydown', (event) => {
    const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: days.length - 1 }[event.key];
    isFirst = false;
    if (event.key === 'Escape') hide();
    if (event.key === 'Enter') links.children[chosen].click();
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
  });
}

// Sets up the page's content, after loading and after each refresh.
function begin() {
  showTimes();
  for (const name of document.querySelectorAll('[data-zone="now"]')) name.textContent = city(zone);
  for (const chart of document.querySelectorAll('.chart')) followPointer(chart);
}
begin();
setInterval(showTimes, 60_000);

// A page about a range of days refreshes itself while it is visible and not in use, and stops once something was entered on it.
// After an hour without a pointer or a key it stops too, so that an idle session can expire.
const [AGAIN_MS, ATTENDED_MS] = [10_000, 3_600_000];
let [isEntered, attendedAt] = [false, Date.now()];
function isInUse(main) {
  const { activeElement } = document;
  const selection = getSelection();
  return isEntered || (activeElement !== main && main.contains(activeElement)) || main.querySelector('.chart:hover') !== null
    || (!selection.isCollapsed && main.contains(selection.anchorNode));
}
async function askAgain() {
  const main = document.querySelector('main');
  if (document.visibilityState !== 'visible' || Date.now() - attendedAt > ATTENDED_MS || isInUse(main)) return;
  const answer = await fetch(location.href, { signal: AbortSignal.timeout(AGAIN_MS) }).catch(() => undefined);
  if (!answer?.ok || answer.redirected) return;
  const text = await answer.text().catch(() => '');
  const next = new DOMParser().parseFromString(text, 'text/html').querySelector('main');
  if (!next || isInUse(main)) return;
  const [before, after] = [main, next].map((part) => [...part.querySelectorAll('details')]);
  if (before.length === after.length) after.forEach((details, at) => { details.open = before[at].open; });
  next.querySelector('h1').after(...main.querySelectorAll('.done'));
  main.replaceChildren(...next.childNodes);
  begin();
}
if (document.querySelector('[data-live]')) {
  document.querySelector('main').addEventListener('input', () => { isEntered = true; });
  for (const sign of ['pointermove', 'keydown']) addEventListener(sign, () => { attendedAt = Date.now(); });
  setInterval(askAgain, AGAIN_MS);
}

// The APIs of *Try it*: path, request body for a conversation, and how to read a streamed event.
const parts = ({ text, image }, ofText, ofImage) => (image ? [ofText(text), ofImage(image)] : text);
const textPart = (text) => ({ type: 'text', text });
const DIALECTS = {
  chat: {
    path: '/v1/chat/completions',
    body: (system, messages) => ({
      messages: [...system ? [{ role: 'system', content: system }] : [], ...messages.map((message) => ({
        role: message.role, content: parts(message, textPart, (url) => ({ type: 'image_url', image_url: { url } })),
      }))],
      stream_options: { include_usage: true },
    }),
    says: ({ choices, usage, error }) => ({ text: choices?.[0]?.delta?.content, calls: choices?.[0]?.delta?.tool_calls, usage, error }),
  },
  responses: {
    path: '/v1/responses',
    body: (system, messages) => ({
      ...system && { instructions: system },
      input: messages.map((message) => ({
        role: message.role, content: parts(message, (text) => ({ type: 'input_text', text }), (url) => ({ type: 'input_image', image_url: url })),
      })),
    }),
    says: ({ type, delta, response }) => ({
      text: type === 'response.output_text.delta' && delta, usage: response?.usage, error: response?.error,
    }),
  },
  messages: {
    path: '/v1/messages',
    body: (system, messages) => ({
      ...system && { system }, max_tokens: 4096,
      messages: messages.map((message) => ({
        role: message.role,
        content: parts(message, textPart, (url) => {
          const [, media_type, data] = /^data:(.*?);base64,(.*)$/.exec(url);
          return { type: 'image', source: { type: 'base64', media_type, data } };
        }),
      })),
    }),
    says: ({ type, delta, usage, error }) => ({ text: delta?.text, usage: type === 'message_delta' && usage, error }),
  },
};

// Try it: a chat that streams through the public API. The key stays in its field and is stored nowhere.
const form = document.querySelector('[data-try]');
if (form) {
  const { key, model, dialect, system, temperature, message, image, send, stop, clear } = form.elements;
  const talk = form.querySelector('.talk');
  const cost = form.querySelector('[data-cost]');
  const command = form.querySelector('[data-curl]');
  let messages = [];
  let running = null;

  // Changes the conversation and keeps its end in view, unless the reader has scrolled up.
  const show = (change) => {
    const atEnd = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 40;
    change();
    if (atEnd) talk.scrollTop = talk.scrollHeight;
  };
  const say = (kind, text) => {
    const line = document.createElement('div');
    line.className = kind;
    line.textContent = text;
    show(() => talk.append(line));
    return line;
  };
  const read = (file) => new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error('The image could not be read. Choose it again.'));
    reader.readAsDataURL(file);
  });
  const explained = (status, error) => {
    const hint = {
      402: 'Raise the limit in the key\u2019s settings, or add credit.',
      429: 'Try again in a moment.',
    }[status];
    return [`${status} ${error?.code ?? error?.type ?? ''}: ${error?.message ?? 'no answer'}`.trim(), hint].filter(Boolean).join('\n');
  };

  // Yields the events of a stream, each as its line and the parsed JSON.
  async function* events(body) {
    const decoder = new TextDecoder();
    let rest = '';
    for (const reader = body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data: ') && line !== 'data: [DONE]') yield [line, JSON.parse(line.slice(6))];
      }
    }
  }

  // Shows a curl command for the same request, without the key and the bytes of images.
  function showCommand(path, json) {
    const shown = json.replaceAll(/;base64,[^"]+|("data":)"[^"]+/g, (_, data) => (data ? `${data}"\u2026` : ';base64,\u2026'));
    command.hidden = false;
    command.querySelector('[data-copy]').textContent = [
      `curl -N ${location.origin}${path} \\`, '  -H "Authorization: Bearer $API_KEY" \\', "  -H 'Content-Type: application/json' \\",
      `  -d '${shown.replaceAll("'", "'\\''")}'`,
    ].join('\n');
  }

  // Sends the conversation and shows the answer. What arrived stays in the conversation, even if the answer is stopped or breaks off.
  async function ask(conversation, signal) {
    const { path, body, says } = DIALECTS[dialect.value];
    const request = { model: model.value, ...body(system.value.trim(), conversation), stream: true };
    if (temperature.value.trim() !== '') request.temperature = Number(temperature.value);
    const json = JSON.stringify(request);
    showCommand(path, json);
    const answer = await fetch(path, {
      method: 'POST', signal, credentials: 'omit',
      headers: { authorization: `Bearer ${key.value.trim()}`, 'content-type': 'application/json' },
      body: json,
    });
    if (!answer.ok) {
      say('problem', explained(answer.status, (await answer.json().catch(() => ({}))).error));
      return;
    }
    const line = say('assistant', '');
    let content = '';
    try {
      for await (const [source, event] of events(answer.body)) {
        const { text, calls, usage, error } = says(event);
        if (error) say('problem', explained('', error));
        if (text) { content += text; show(() => { line.textContent = content; }); }
        for (const call of calls ?? []) {
          if (call.function?.name) say('tool', `Tool: ${call.function.name}`);
        }
        if (usage) show(() => line.append(billed(usage, source)));
      }
    } finally {
      if (content !== '') conversation.push({ role: 'assistant', text: content });
      else if (line.textContent === '') line.remove();
    }
  }

  // Shows what an answer cost. The amount is read from the text, since JavaScript would parse it as a float.
  function billed(usage, source) {
    const [prompt, output] = [usage.prompt_tokens ?? usage.input_tokens, usage.completion_tokens ?? usage.output_tokens];
    const amount = /"cost":([0-9.]+)/.exec(source);
    const note = document.createElement('small');
    note.className = 'quiet';
    note.textContent = `${prompt} + ${output} tokens${amount ? `, $${amount[1]}` : ''}`;
    return note;
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const text = message.value.trim();
    if (running || text === '') return;
    // From here on a second press does nothing, even while the image is still being read.
    running = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    cost.textContent = '';
    const { signal } = running;
    const conversation = messages;
    const file = image.files[0];
    try {
      const asked = { role: 'user', text, image: file && await read(file) };
      signal.throwIfAborted();
      conversation.push(asked);
      say('user', file ? `${text}\n[${file.name}]` : text);
      message.value = '';
      image.value = '';
      await ask(conversation, signal);
    } catch (error) {
      // The reader has started a new chat meanwhile.
      if (conversation !== messages) return;
      if (error.name === 'AbortError') cost.textContent = 'Stopped. What was generated so far is billed.';
      else say('problem', error instanceof TypeError ? 'The connection was lost. Try again.' : error.message);
    } finally {
      running = null;
      send.disabled = false;
      stop.disabled = true;
    }
  });
  message.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  stop.addEventListener('click', () => running?.abort());
  clear.addEventListener('click', () => {
    running?.abort();
    messages = [];
    talk.replaceChildren();
    cost.textContent = '';
    command.hidden = true;
  });
}
