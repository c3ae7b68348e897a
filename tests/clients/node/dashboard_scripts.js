/** What scripts do in the dashboard, and how the keyboard and preferences work. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fact, makeGroup, makeKey, scripted, shownBy } from './facts.js';

/** The smallest PNG. */
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
/** More keyboard stops than any page has. */
const STOPS = 150;

/** Clicks something that only changes this page. */
const press = async (person, role, name) => (await person.the(role, name)).click();

/** Returns the clipboard after the page's first `Copy`, with or without the clipboard API. */
async function copied({ page }, hasApi, buttons) {
  await page.bringToFront();
  await page.evaluate(async (keeps) => {
    window.kept ??= navigator.clipboard;
    await window.kept.writeText('nothing');
    if (!keeps) Object.defineProperty(navigator, 'clipboard', { value: undefined });
  }, hasApi);
  await buttons[0].click();
  await page.waitForFunction(() => document.querySelector('[data-shown-once] button').textContent === 'Copied', { polling: 50 });
  return page.evaluate(() => window.kept.readText());
}

/** Limits of keys and groups, each with and without one that never resets. */
const BOUNDS = [
  {}, { limits: [{ amount: 35, per: 'month' }] }, { limits: [{ amount: 0.5, per: 'week' }, { amount: 10, per: 'month' }] },
  { limits: ['hour', 'day', 'week', 'month'].map((per, at) => ({ amount: at + 0.000000001, per })) },
  { requests_per_minute: 60, tokens_per_minute: 100_000, max_in_flight: 3 }, { models: ['Model Flash', 'of later <b>'] },
].flatMap((bounds) => [bounds, { ...bounds, limit: 1234.5 }]);

/** Adds facts about forms and the menu. */
export function addForms(owner) {
  fact('a form saved as it was shown changes nothing', async () => {
    await owner.look(1280, 'light');
    const group = (await makeGroup({ name: 'Of forms' })).id;
    for (const [at, bounds] of BOUNDS.entries()) {
      const expires = [null, '2027-12-31T23:59:00Z', '2027-12-31T23:59:59.250Z'][at % 3];
      const label = `Saved unchanged ${at}`;
      await makeKey({ ...bounds, label, expires_at: expires, group_id: at % 2 ? group : null, metadata: { team: 'search' } });
      await owner.visit(`/dashboard/keys?q=${encodeURIComponent(label)}`);
      await owner.visit(await owner.page.$eval('tbody th a', (link) => new URL(link.href).pathname));
      const key = `keys/${new URL(owner.page.url()).pathname.split('/').at(-1)}`;
      const made = await makeGroup({ ...bounds, name: label, external_id: `form-${at}`, parent_id: at % 2 ? group : null });
      for (const [path, page] of [[key, `/dashboard/${key}/settings`], [`groups/${made.id}`, `/dashboard/groups/${made.id}/settings`]]) {
        // A window of a limit may end meanwhile.
        const shown = async () => JSON.stringify(await shownBy(path), (name, value) => (name === 'resets_at' ? undefined : value));
        const before = await shown();
        await owner.visit(page);
        await owner.follow('button', 'Save');
        await owner.reads('Nothing was changed.');
        assert.equal(await shown(), before);
      }
    }
  });
  fact('a key whose expiry has seconds is changed and keeps them', async () => {
    const label = 'Ends with a year';
    await makeKey({ label, expires_at: '2027-12-31T23:59:59Z' });
    await owner.look(1280, 'light');
    await owner.visit('/dashboard/keys');
    await owner.follow('link', label);
    await owner.follow('link', 'Settings');
    const expires = async () => (await owner.field('Expires')).evaluate((e) => e.value);
    assert.equal(await expires(), '2027-12-31T23:59:59');
    await owner.fill('Label', `${label}, changed`);
    await owner.follow('button', 'Save');
    await owner.reads(`Saved. Label: ${label} → ${label}, changed.`);
    await press(owner, 'button', 'in 30 days');
    assert.match(await expires(), /^\d{4}-\d\d-\d\dT\d\d:\d\d$/);
    await owner.follow('button', 'Save');
    await owner.reads('Saved. Expires: 2027-12-31 23:59:59 UTC →');
  });
  fact('a field with a fault has the focus and says what is wrong', async () => {
    await owner.visit('/dashboard/keys/new');
    await owner.fill('Limit (USD)', '1,5');
    await owner.follow('button', 'Create key', 422);
    const fault = await owner.page.evaluate(() => {
      const { id, ariaInvalid } = document.activeElement;
      const said = document.activeElement.getAttribute('aria-describedby').split(' ').map((part) => document.getElementById(part).textContent);
      return { id, ariaInvalid, said: said.at(-1) };
    });
    assert.deepEqual([fault.id, fault.ariaInvalid], ['limit', 'true']);
    assert.match(fault.said, /such as 5, 0\.25/);
  });
  for (const scripts of [false, true]) {
    fact(`on a phone a button opens the menu, ${scripts ? 'with scripts' : 'without scripts'}`, async () => {
      await owner.allow(scripts);
      for (const width of [320, 375, 768]) {
        await owner.look(width, 'light');
        await owner.visit('/dashboard/keys');
        assert.deepEqual(await owner.all('link', 'Members'), [], 'it is closed at first');
        await press(owner, 'button', 'Menu');
        await owner.picture('menu');
        await owner.follow('link', 'Members');
        const top = await owner.page.$eval('h1', (heading) => heading.getBoundingClientRect().top);
        assert.ok(top < 120, `the heading begins at ${top}`);
      }
      await owner.allow(true);
      await owner.look(1280, 'light');
    });
  }
}

/** Adds facts about a key that is shown once. */
export function addCopying(owner) {
  fact('a new key is not left by accident, and copied with the clipboard API and without', async () => {
    await owner.visit('/dashboard/keys/new');
    await owner.fill('Label', 'Copied');
    await owner.follow('button', 'Create key');
    Object.assign(owner, { stays: true, asked: [] });
    await press(owner, 'link', 'Credit');
    for (let tries = 0; tries < 100 && !owner.asked.length; tries += 1) await sleep(50);
    assert.deepEqual(owner.asked, ['beforeunload']);
    owner.stays = false;
    const plaintext = await owner.text('Your new key');
    const buttons = await owner.all('button', 'Copy');
    assert.equal(await copied(owner, true, buttons), plaintext);
    assert.equal(await copied(owner, false, buttons), plaintext);
    await owner.follow('link', 'Credit');
  });
}

/** Adds facts about the first page. */
export function addOverview(owner) {
  fact('the chart shows the parts of a day, by pointer and by arrow keys, and has a table', async () => {
    await owner.look(1280, 'light');
    await owner.visit('/dashboard');
    const says = () => owner.page.$eval('.chart .box', (box) => (box.hidden ? '' : box.innerText));
    const days = await owner.page.$$('.chart .ground');
    await days.at(-1).hover();
    assert.match(await says(), /^\d{4}-\d\d-\d\d[^]*Model Max\s+\$\d[^]*Total\s+\$\d/);
    const ofParts = (part) => owner.page.$$eval(part, (all) => all.map((one) => one.className.split(' ').at(-1)));
    assert.deepEqual(await ofParts('.chart .box .swatch'), await ofParts('.chart .legend i'), 'each part has its colour');
    await (await owner.the('heading', 'Overview')).hover();
    assert.equal(await says(), '');
    await owner.page.$eval('.chart svg', (picture) => picture.focus());
    await owner.page.keyboard.press('ArrowLeft');
    const day = (await says()).slice(0, 10);
    await owner.page.keyboard.press('ArrowLeft');
    assert.ok((await says()).slice(0, 10) < day, 'an arrow key chooses the day before');
    assert.match(await owner.page.$eval('.chart svg', (picture) => picture.getAttribute('aria-valuetext')), /^\d{4}-/);
    await owner.page.keyboard.press('Escape');
    assert.equal(await says(), '');
    assert.deepEqual(await owner.shifts(), []);
  });
  fact('the bar of a day leads to its requests, by the pointer, by the keyboard and without scripts', async () => {
    const today = new Date().toISOString().slice(0, 10);
    const arrived = async () => {
      const { pathname, search } = new URL(owner.page.url());
      assert.equal(`${pathname}${search}`, `/dashboard/activity?from=${today}&to=${today}`);
      await owner.reads('Model Max');
    };
    for (const scripts of [true, false]) {
      await owner.allow(scripts);
      await owner.visit('/dashboard');
      const days = await owner.page.$$('.chart .days a');
      await Promise.all([owner.page.waitForNavigation(), days.at(-1).click()]);
      await arrived();
    }
    await owner.allow(true);
    await owner.visit('/dashboard');
    await owner.page.$eval('.chart svg', (picture) => picture.focus());
    await Promise.all([owner.page.waitForNavigation(), owner.page.keyboard.press('Enter')]);
    await arrived();
  });
  fact('a visible page shows what happens meanwhile, unless something was entered in it', async () => {
    for (const enters of [false, true]) {
      await owner.visit('/dashboard');
      await owner.page.mouse.move(0, 0);
      await owner.page.evaluate(() => {
        window.watched = true;
        document.querySelector('main h1').dataset.first = 'true';
      });
      if (enters) await owner.page.$eval('main [name="from"]', (field) => field.dispatchEvent(new Event('input', { bubbles: true })));
      const isFirst = () => document.querySelector('main h1').dataset.first === 'true';
      if (enters) await sleep(11_000);
      else await owner.page.waitForFunction(() => document.querySelector('main h1').dataset.first !== 'true', { polling: 100 });
      assert.equal(await owner.page.evaluate(isFirst), enters);
      await (await owner.page.$$('.chart .ground')).at(-1).hover();
      assert.match(await owner.page.$eval('.chart .box', (box) => box.innerText), /Total/, 'the chart works as before');
    }
  });
  fact('a model has the same colour on every page and in every order', async () => {
    const colours = () => owner.page.$$eval('.chart .legend li', (all) => all.map((part) => [part.textContent.split(' $')[0].trim(), part.querySelector('i').className]));
    await owner.look(1280, 'light');
    await owner.visit('/dashboard');
    const [first, ...others] = (await colours()).filter(([name]) => name.startsWith('Model '));
    assert.ok(others.length > 0);
    await owner.visit('/dashboard/keys');
    await owner.follow('link', 'Customer A');
    const onKey = Object.fromEntries(await colours());
    for (const [name, colour] of [first, ...others]) assert.ok([colour, undefined].includes(onKey[name]), `${name} is ${colour} and ${onKey[name]}`);
    assert.notEqual(first[1], others[0][1]);
  });
  const chooseZone = async (zone) => {
    await owner.visit('/dashboard/you');
    await owner.fill('Time zone', zone);
    await owner.follow('button', 'Save time zone');
  };
  fact('a displayed time is found by its day, and the sum and the chart are of that day', async () => {
    for (const zone of ['Pacific/Kiritimati', 'Europe/Zurich', 'America/Adak', 'UTC']) {
      await chooseZone(zone);
      await owner.visit('/dashboard/activity?outcome=captured');
      const shown = await owner.page.$eval('tbody time', (time) => time.textContent.slice(0, 10));
      const name = await owner.page.$eval('thead [data-zone]', (e) => e.textContent);
      assert.equal(name, zone.split('/').pop());
      await owner.visit('/dashboard/activity');
      await owner.fill(`From (${name})`, shown);
      await owner.fill(`To (${name})`, shown);
      await owner.follow('button', 'Apply');
      const dates = await owner.page.$$eval('tbody time', (all) => all.map((time) => time.textContent.slice(0, 10)));
      assert.ok(dates.length > 0 && dates.every((date) => date === shown), `${zone}: ${dates}`);
      assert.equal(await (await owner.field(`From (${name})`)).evaluate((e) => e.value), shown);
      await owner.reads(`on ${shown} (${name})`);
      const requests = (await owner.page.$eval('main [role="status"] strong', (sum) => sum.innerText)).split(' ')[0];
      await owner.visit(`/dashboard?from=${shown}&to=${shown}&show=requests`);
      assert.equal(await owner.page.$eval('.tile dd span', (sum) => sum.innerText), requests, zone);
      assert.match(await owner.page.$eval('.chart thead th', (head) => head.textContent), new RegExp(`Hour \\(${name}\\)`));
    }
  });
  fact('a browser that has chosen no zone has its own from the second page on, and the menu offers others', async () => {
    const cookies = await owner.page.cookies();
    await owner.page.deleteCookie(...cookies.filter(({ name }) => name === 'faregate-zone'));
    await owner.page.emulateTimezone('Europe/Zurich');
    await owner.visit('/dashboard');
    await owner.visit('/dashboard');
    const zone = () => owner.page.evaluate(() => document.documentElement.dataset.zone);
    assert.equal(await zone(), 'Europe/Zurich');
    await owner.openMenu();
    await owner.follow('button', 'UTC');
    assert.equal(await zone(), 'UTC');
    await owner.openMenu();
    await owner.follow('button', 'Zurich');
    assert.equal(await zone(), 'Europe/Zurich');
    await owner.openMenu();
    await owner.follow('button', 'UTC');
    await owner.page.emulateTimezone();
  });
  fact('an expiry is entered and shown in the chosen zone', async () => {
    await chooseZone('Asia/Tokyo');
    const label = 'Ends in Tokyo';
    await makeKey({ label, expires_at: '2027-12-31T23:59:59Z' });
    await owner.visit('/dashboard/keys');
    await owner.follow('link', label);
    await owner.reads('expires 2028-01-01 08:59');
    await owner.follow('link', 'Settings');
    await owner.reads('Tokyo time.');
    assert.equal(await (await owner.field('Expires')).evaluate((e) => e.value), '2028-01-01T08:59:59');
    await owner.follow('button', 'Save');
    await owner.reads('Nothing was changed.');
    await owner.fill('Expires', '2028-02-01T09:00');
    await owner.follow('button', 'Save');
    await owner.reads('Saved. Expires: 2028-01-01 08:59:59 (Tokyo) → 2028-02-01 09:00 (Tokyo).');
    await chooseZone('UTC');
  });
  fact('times are local with UTC in the title, and UTC without scripts', async () => {
    await chooseZone('Asia/Tokyo');
    await owner.visit('/dashboard/activity');
    const time = () => owner.page.$eval('tbody time', ({ dateTime, textContent, title }) => ({ dateTime, textContent, title }));
    const { dateTime, textContent, title } = await time();
    assert.equal(title, `${dateTime.slice(0, 19).replace('T', ' ')} UTC`);
    assert.equal(new Date(`${textContent.replace(' ', 'T')}+09:00`).getTime(), Math.floor(new Date(dateTime) / 1000) * 1000);
    await owner.visit('/dashboard/members');
    const recent = await time();
    assert.match(recent.textContent, /^(just now|\d+ minutes? ago)$/);
    const [local, utc] = recent.title.split(', ');
    assert.equal(utc, `${recent.dateTime.slice(0, 19).replace('T', ' ')} UTC`);
    assert.equal(new Date(`${local.replace(' ', 'T')}+09:00`).getTime(), Math.floor(new Date(recent.dateTime) / 1000) * 1000);
    await owner.allow(false);
    await owner.visit('/dashboard/members');
    assert.equal((await time()).textContent, `${recent.dateTime.slice(0, 16).replace('T', ' ')} UTC`);
    await owner.visit('/dashboard/activity');
    assert.equal((await time()).textContent, title);
    await owner.allow(true);
    await chooseZone('UTC');
  });
  fact('a form with changes is not left by accident', async () => {
    await owner.visit('/dashboard/keys/new');
    await owner.fill('Label', 'Lost');
    Object.assign(owner, { stays: true, asked: [] });
    await press(owner, 'link', 'Credit');
    for (let tries = 0; tries < 100 && !owner.asked.length; tries += 1) await sleep(50);
    assert.deepEqual(owner.asked, ['beforeunload']);
    owner.stays = false;
    await owner.visit('/dashboard');
  });
  fact('the chart\u2019s table opens without scripts', async () => {
    await owner.allow(false);
    await owner.visit('/dashboard');
    await press(owner, 'DisclosureTriangle', 'Table');
    await owner.reads('Model Max');
    assert.match(await owner.page.$eval('.chart table', (table) => table.innerText), /Model Max[^]*\$\d/);
    await owner.allow(true);
  });
}

/** Adds facts about lists of several pages. */
export function addLists(owner, examine) {
  fact('a list shows its length, and leads forward and back, with scripts and without', async () => {
    for (const scripts of [false, true]) {
      await owner.allow(scripts);
      await owner.look(1280, 'light');
      await owner.visit('/dashboard/events');
      await owner.reads('1\u201350 of ');
      await owner.follow('link', 'Next page');
      await owner.reads('51\u2013');
      if (scripts) await examine(owner, 'owner-events-further');
      await owner.follow('link', 'Previous page');
      assert.equal(owner.page.url(), `${owner.origin}/dashboard/events`);
    }
    await owner.look(1280, 'light');
  });
}

/** Asks the model something on the page *Try it*, after the previous answer is complete. */
async function ask(person, members) {
  const send = await person.the('button', 'Send');
  await person.page.waitForFunction((button) => !button.disabled, {}, send);
  await person.fill('Message', scripted(members).content);
  await send.click();
}

/** Adds facts about the page that sends chat requests. */
export function addTryIt(viewer, scenes, examineOnce) {
  fact('a chat streams, is billed, takes images and stops', async () => {
    const apiKey = await makeKey({ label: 'Asked in a browser', limit: 1 });
    const folder = mkdtempSync(join(tmpdir(), 'faregate-'));
    writeFileSync(join(folder, 'pixel.png'), Buffer.from(PIXEL, 'base64'));
    for (const { width, theme } of scenes) {
      await viewer.look(width, theme);
      await viewer.visit('/dashboard/try-it');
      await viewer.fill('API key', apiKey);
      await viewer.fill('Model', 'Model Flash');
      await viewer.fill('Temperature', '0.5');
      await ask(viewer, { completion_tokens: 20, pace_ms: 5 });
      await viewer.reads('20 tokens, $0.0000');
      await viewer.reads('the quick brown fox');
      await (await viewer.field('Image')).uploadFile(join(folder, 'pixel.png'));
      await ask(viewer, { completion_tokens: 3 });
      await viewer.reads('3 tokens, $0.0');
      await viewer.reads('pixel.png');
      await ask(viewer, { completion_tokens: 2, tool_calls: 1 });
      await viewer.reads('Tool: ');
      const place = async () => (await viewer.the('button', 'Stop')).evaluate((e) => e.offsetTop);
      const before = await place();
      await ask(viewer, { completion_tokens: 100_000, pace_ms: 20 });
      await viewer.page.waitForFunction(() => document.querySelector('[role="log"]').lastElementChild.matches('.assistant:not(:empty)'));
      await viewer.page.waitForFunction(() => document.querySelector('[role="log"]').lastElementChild.textContent.length > 300);
      assert.equal(await place(), before, 'what grows does not move the buttons');
      await press(viewer, 'button', 'Stop');
      await viewer.reads('Stopped');
      await examineOnce(viewer, 'try-it-answered');
    }
    rmSync(folder, { recursive: true });
    const sent = viewer.responses.filter((r) => r.request().method() === 'POST').map((r) => new URL(r.url()).pathname);
    assert.deepEqual(new Set(sent), new Set(['/v1/chat/completions']));
    const stopped = (problem) => problem.endsWith('/v1/chat/completions: net::ERR_ABORTED');
    assert.deepEqual(viewer.problems.filter((problem) => !stopped(problem)), []);
    await viewer.visit('/dashboard/try-it');
    assert.equal(await (await viewer.field('API key')).evaluate((e) => e.value), '', 'the key stays in the page');
  });
  fact('other dialects answer too, with a system prompt, and the equivalent command is shown', async () => {
    await viewer.visit('/dashboard/try-it');
    await viewer.fill('API key', await makeKey({ label: 'Asked in a browser', limit: 1 }));
    await viewer.fill('System prompt', 'Be brief: don\u2019t explain.');
    const sent = [];
    for (const [dialect, path, tokens] of [['responses', '/v1/responses', 21], ['messages', '/v1/messages', 22], ['chat', '/v1/chat/completions', 23]]) {
      await viewer.fill('API', dialect);
      await viewer.page.waitForFunction(() => !document.querySelector('button[name="send"]').disabled);
      await viewer.fill('Message', scripted({ completion_tokens: tokens }).content);
      await viewer.page.keyboard.down('Control');
      await viewer.page.keyboard.press('Enter');
      await viewer.page.keyboard.up('Control');
      await viewer.reads(`${tokens} tokens, $0.0`);
      const command = await viewer.page.$eval('[data-curl] pre', (pre) => pre.textContent);
      assert.ok(command.startsWith(`curl -N ${viewer.origin}${path} \\`) && command.includes('Be brief'), command);
      sent.push(path);
    }
    const posted = viewer.responses.filter((r) => r.request().method() === 'POST').map((r) => new URL(r.url()).pathname);
    assert.deepEqual(posted, sent);
    assert.equal(await viewer.page.$$eval('.talk .assistant', (lines) => lines.length), 3);
  });
  fact('pressed twice with an image, a question is asked and billed once, and a stopped answer stays', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'faregate-'));
    // Large enough that reading it takes a while.
    writeFileSync(join(folder, 'large.png'), Buffer.concat([Buffer.from(PIXEL, 'base64'), Buffer.alloc(4 << 20)]));
    await viewer.visit('/dashboard/try-it');
    await viewer.fill('API key', await makeKey({ label: 'Asked in a browser', limit: 1 }));
    await (await viewer.field('Image')).uploadFile(join(folder, 'large.png'));
    await viewer.fill('Message', scripted({ completion_tokens: 100_000, pace_ms: 20 }).content);
    await viewer.page.$eval('button[name="send"]', (send) => { send.click(); send.click(); });
    const answered = () => document.querySelector('[role="log"]').lastElementChild?.matches('.assistant:not(:empty)');
    await viewer.page.waitForFunction(answered);
    await press(viewer, 'button', 'Stop');
    await viewer.reads('Stopped');
    await ask(viewer, { completion_tokens: 3 });
    await viewer.reads('3 tokens, $0.');
    rmSync(folder, { recursive: true });
    const sent = viewer.responses.map((r) => r.request()).filter((request) => request.method() === 'POST');
    assert.equal(sent.length, 2, 'one for each question');
    const { messages } = JSON.parse(await sent[1].fetchPostData());
    assert.deepEqual(messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    assert.equal(await viewer.page.$$eval('.talk .user', (lines) => lines.length), 2);
  });
  fact('a key without money and a key with an error say what to do', async () => {
    for (const [fields, code] of [[{ limit: 0 }, '402 key_limit_reached'], [{ expires_at: '2020-01-01T00:00:00Z' }, '401 key_expired']]) {
      await viewer.visit('/dashboard/try-it');
      await viewer.fill('API key', await makeKey({ label: 'Asked in a browser', ...fields }));
      await ask(viewer, {});
      await viewer.reads(code);
      await examineOnce(viewer, `try-it-${code.slice(0, 3)}`);
    }
  });
  fact('without scripts the page says that it needs them', async () => {
    await viewer.allow(false);
    await viewer.visit('/dashboard/try-it');
    await viewer.reads('needs JavaScript');
    await viewer.allow(true);
  });
}

/** Returns the focused element: its text, and whether the focus is visible. */
const focused = (person) => person.page.evaluate(() => {
  const element = document.activeElement;
  const { outlineStyle } = getComputedStyle(element);
  const { left, right, top, bottom } = element.getBoundingClientRect();
  const inside = right > 0 && left < innerWidth && bottom > 0 && top < innerHeight;
  const name = element.textContent.trim() || element.name || element.ariaLabel || element.tagName;
  return { name, tag: element.tagName, seen: inside && outlineStyle !== 'none', inMain: !!element.closest('main') };
});

/** Adds facts about the keyboard, reduced motion and themes. */
export function addPreferences(owner, paths) {
  fact('the keyboard reaches everything, the focus is visible, and a link skips to the content', async () => {
    await owner.look(1280, 'light');
    for (const path of paths) {
      await owner.visit(path);
      const wanted = await owner.page.$$eval('a, button, input, select, textarea, summary, [tabindex="0"]', (all) => {
        return all.filter((e) => e.type !== 'hidden' && e.tabIndex >= 0 && !e.disabled && e.checkVisibility()).length;
      });
      const met = [];
      for (let stop = 0; stop < STOPS; stop += 1) {
        await owner.page.keyboard.press('Tab');
        const now = await focused(owner);
        if (now.tag === 'BODY') break;
        assert.ok(now.seen, `${path}: ${now.name} has the focus unseen`);
        met.push(now);
      }
      assert.ok(met.length >= wanted, `${path}: ${met.length} of ${wanted} reached`);
      assert.equal(met[0].name, 'Skip to content');
    }
    await owner.visit('/dashboard/keys');
    await owner.page.keyboard.press('Tab');
    await owner.page.keyboard.press('Enter');
    await owner.page.keyboard.press('Tab');
    assert.ok((await focused(owner)).inMain);
  });
  fact('nothing moves for those who want less motion', async () => {
    await owner.look(1280, 'light', 'reduce');
    for (const path of paths) {
      await owner.visit(path);
      const moving = await owner.page.$$eval('*', (all) => all.filter((e) => {
        const { transitionDuration, animationName } = getComputedStyle(e);
        return transitionDuration !== '0s' || animationName !== 'none';
      }).length);
      assert.equal(moving, 0, path);
    }
    await owner.look(1280, 'light');
  });
  fact('colours follow the system, or a choice, without scripts as well', async () => {
    const ground = () => owner.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const grounds = {};
    for (const scripts of [false, true]) {
      await owner.allow(scripts);
      for (const theme of ['light', 'dark']) {
        await owner.look(1280, theme);
        await owner.visit('/dashboard/credit');
        grounds[theme] = await ground();
      }
      assert.notEqual(grounds.light, grounds.dark);
      for (const [system, choice] of [['light', 'Dark'], ['dark', 'Light']]) {
        await owner.look(1280, system);
        await owner.visit('/dashboard/credit');
        await owner.openMenu();
        await owner.follow('button', choice);
        assert.equal(await ground(), grounds[choice.toLowerCase()]);
        await owner.openMenu();
        await owner.follow('button', 'System');
        assert.equal(await ground(), grounds[system]);
      }
    }
  });
}

/** Adds facts about signing in with a password, and signing out. */
export function addSessions(owner, other, account, password) {
  const path = ({ page }) => new URL(page.url()).pathname;
  fact('a password signs in elsewhere, and that session is ended from here', async () => {
    await owner.visit('/dashboard/you');
    await owner.fill('New password', password);
    await owner.follow('button', 'Save');
    await owner.reads('You have a password');
    const elsewhere = await other();
    await elsewhere.allow(false);
    await elsewhere.look(375, 'dark');
    await elsewhere.visit('/dashboard/sign-in');
    for (const [name, value] of [['Account', account], ['Name', 'owner'], ['Password', 'wrong on purpose']]) await elsewhere.fill(name, value);
    await elsewhere.follow('button', 'Sign in', 403);
    await elsewhere.fill('Password', password);
    await elsewhere.follow('button', 'Sign in');
    assert.equal(path(elsewhere), '/dashboard');
    await owner.visit('/dashboard/you');
    await owner.follow('button', 'Sign out of Chrome on Linux');
    await elsewhere.visit('/dashboard/keys');
    assert.equal(path(elsewhere), '/dashboard/sign-in');
  });
  fact('signing out ends the session', async () => {
    await owner.visit('/dashboard');
    await owner.openMenu();
    assert.deepEqual(await owner.violations(), []);
    await owner.follow('button', 'Sign out');
    assert.equal(path(owner), '/dashboard/sign-in');
    await owner.visit('/dashboard/credit');
    assert.equal(path(owner), '/dashboard/sign-in');
  });
}
