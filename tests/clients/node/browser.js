/** Chromium as a person uses it, watched for everything that a page of the dashboard must not do. */

import assert from 'node:assert/strict';
import { existsSync, mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import axe from 'axe-core';
import puppeteer from 'puppeteer-core';

/** Chromium without a window, which takes half the time, where Debian's package puts it, if nothing else is said. */
const PROGRAM = process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell';
/** How long something on a page may take on a slow machine. */
const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 30_000);
const HEIGHT = 800;
/** Rules that axe-core leaves off: those of level AAA, and a new one. */
const MORE_RULES = ['color-contrast-enhanced', 'identical-links-same-purpose', 'meta-refresh-no-exceptions', 'target-size'];
/** Rules about colours, all that another theme can break. */
const COLOUR_RULES = ['color-contrast', 'color-contrast-enhanced', 'link-in-text-block'];
const ASSETS = '/dashboard/assets/';
const folder = process.env.SCREENSHOTS;

/** The browser. It opens pages of ours alone, and its own sandbox does not start as root or in a container. */
export async function launch() {
  assert.ok(existsSync(PROGRAM), `no ${PROGRAM}; tests/tools/install.sh installs it`);
  const args = ['--no-sandbox', '--disable-dev-shm-usage', '--lang=en-GB'];
  return puppeteer.launch({ executablePath: PROGRAM, args, pipe: true, headless: 'shell', protocolTimeout: 2 * PATIENCE_MS });
}

/** Notes what moves without a person's doing, from the first moment of each document. */
function watchShifts() {
  window.shifts = [];
  const corner = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(' ');
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries()) {
      const moved = sources.map(({ node, previousRect, currentRect }) => {
        return `${node?.nodeName} ${node?.textContent.slice(0, 40)}: ${corner(previousRect)} to ${corner(currentRect)}`;
      });
      window.shifts.push(`${value}: ${moved.join('; ')}`);
    }
  }).observe({ type: 'layout-shift', buffered: true });
}

/** A page that is not looked at stays as it came; `watched` says that it is. */
function lookAway() {
  Object.defineProperty(document, 'visibilityState', { get: () => (window.watched ? 'visible' : 'hidden') });
}

/** A person with a browser of their own: cookies, a window and a system that is light or dark. */
export class Person {
  /** Somebody who opens a window at this origin. */
  static async at(browser, origin) {
    const context = await browser.createBrowserContext();
    await context.overridePermissions(origin, ['clipboard-read', 'clipboard-write', 'clipboard-sanitized-write']);
    const person = new Person(context, origin);
    await person.#begin();
    return person;
  }

  constructor(context, origin) {
    Object.assign(this, { context, origin, width: 1280, theme: 'light', scripts: true, stays: false, asked: [], loaded: new Set() });
  }

  async #begin() {
    this.page = await this.context.newPage();
    this.page.setDefaultTimeout(PATIENCE_MS);
    await this.page.evaluateOnNewDocument(watchShifts);
    await this.page.evaluateOnNewDocument(lookAway);
    this.page.on('console', (message) => {
      if (['error', 'warn'].includes(message.type())) this.problems.push(message.text());
    });
    this.page.on('pageerror', (error) => this.problems.push(`${error}`));
    this.page.on('request', (request) => [this.sent, this.pending].forEach((set) => set.add(request)));
    this.page.on('requestfinished', (request) => this.pending.delete(request));
    this.page.on('requestfailed', (request) => {
      this.pending.delete(request);
      this.problems.push(`${request.url()}: ${request.failure().errorText}`);
    });
    this.page.on('response', (response) => this.sent.has(response.request()) && this.responses.push(response));
    this.page.on('dialog', (dialog) => {
      this.asked.push(dialog.type());
      return this.stays ? dialog.dismiss() : dialog.accept();
    });
    this.forget();
    await this.look(this.width, this.theme);
  }

  /** Lets the pages that follow have scripts, or none. */
  async allow(scripts) {
    this.scripts = scripts;
    await this.page.setJavaScriptEnabled(scripts);
  }

  /** Forgets what was seen before. A download may be reported after that, and then counts for no page. */
  forget() {
    Object.assign(this, { problems: [], responses: [], sent: new Set(), pending: new Set() });
  }

  /** Makes the window so wide, and the system light or dark; colours change at once where motion is unwanted. */
  async look(width, theme, motion = 'reduce') {
    Object.assign(this, { width, theme });
    await this.page.setViewport({ width, height: HEIGHT });
    const features = { 'prefers-color-scheme': theme, 'prefers-reduced-motion': motion };
    await this.page.emulateMediaFeatures(Object.entries(features).map(([name, value]) => ({ name, value })));
  }

  /** Opens an address of the dashboard, which answers with this status. */
  async visit(path, status = 200) {
    return this.#arrive(() => this.page.goto(this.origin + path), status);
  }

  /** Opens a sign-in link, and confirms whom it signs in. A script sends its code; without one, it is pasted. */
  async openLink(link) {
    const { pathname, hash } = new URL(link);
    if (this.scripts) {
      this.forget();
      await this.page.goto(this.origin + pathname + hash);
      await this.page.waitForSelector('::-p-aria([name="Sign in"][role="button"])');
      await this.#settled();
      assert.equal(new URL(this.page.url()).hash, '', 'the code stays in no history');
    } else {
      await this.visit(pathname + hash);
      await this.fill('Code', link);
      await this.follow('button', 'Continue');
    }
    return this.fits();
  }

  /** Presses what leads to another page. */
  async follow(role, name, status = 200) {
    return this.press(await this.the(role, name), status);
  }

  /** Opens the menu below the person's name. */
  async openMenu() {
    await this.page.click('.me summary');
  }

  /** Presses an element that leads to another page. */
  async press(target, status = 200) {
    return this.#arrive(() => Promise.all([this.page.waitForNavigation(), target.click()]), status);
  }

  async #arrive(go, status) {
    this.forget();
    await go();
    await this.#sound(status);
    return this;
  }

  /**
   * Waits until every request has an answer: puppeteer may report one after the page has loaded. The icon is left out, and an
   * image of the browser's own controls (`data:`), which the browser may give up without a report.
   */
  async #settled() {
    const isAwaited = (request) => request.resourceType() !== 'other' && !request.url().startsWith('data:');
    const left = () => [...this.pending].filter(isAwaited).map((request) => request.url());
    for (const began = Date.now(); left().length > 0; await sleep(10)) {
      assert.ok(Date.now() - began < PATIENCE_MS, `never answered: ${left()}`);
    }
  }

  /** Asserts what holds of every page, whatever is on it. */
  async #sound(status) {
    const at = `${this.page.url()} at ${this.width}`;
    await this.#settled();
    const documents = this.responses.filter((r) => r.request().isNavigationRequest() && ![302, 303].includes(r.status()));
    assert.deepEqual(documents.map((r) => r.status()), [status], `${at}: one document`);
    // The browser itself calls a page with another status an error.
    const expected = (text) => status !== 200 && text.includes(`status of ${status}`);
    assert.deepEqual(this.problems.filter((text) => !expected(text)), [], at);
    const others = this.responses.filter((r) => !r.request().isNavigationRequest() && !r.url().startsWith('data:'));
    for (const response of others) {
      const { origin, pathname } = new URL(response.url());
      assert.ok(origin === this.origin && pathname.startsWith(ASSETS), `${at} loads ${response.url()}`);
      assert.ok(!this.loaded.has(pathname) || response.fromCache(), `${at} loads ${pathname} again`);
      this.loaded.add(pathname);
    }
    await this.fits();
    assert.deepEqual(await this.shifts(), [], `${at} shifts`);
  }

  /** Asserts that nothing is wider than the window. */
  async fits() {
    const wide = await this.page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      const beyond = [...document.querySelectorAll('body *')].filter((e) => {
        return e.getBoundingClientRect().right > clientWidth && !e.closest('.scroll, .hidden, pre');
      });
      return scrollWidth > clientWidth ? `${scrollWidth} by ${beyond.map((e) => e.outerHTML.slice(0, 120)).slice(0, 2)}` : '';
    });
    assert.equal(wide, '', `${this.page.url()} at ${this.width} is wider than the window`);
  }

  /** What has moved since the document came; nothing without scripts, since nothing could move it. */
  async shifts() {
    if (!this.scripts) return [];
    return this.page.evaluate(() => new Promise((resolve) => {
      requestAnimationFrame(() => requestAnimationFrame(() => resolve(window.shifts)));
    }));
  }

  /** All that have this role and accessible name, on the page or within a part of it. */
  async all(role, name, within = '') {
    return this.page.$$(`${within} ::-p-aria([name="${name}"][role="${role}"])`);
  }

  /** The only one that has this role and accessible name. */
  async the(role, name, within = '') {
    const found = await this.all(role, name, within);
    assert.equal(found.length, 1, `${found.length} of ${role} "${name}" on ${this.page.url()}`);
    return found[0];
  }

  /** The field of this name. */
  async field(name) {
    for (const found of await this.page.$$(`::-p-aria([name="${name}"])`)) {
      if (await found.evaluate((e) => ['INPUT', 'SELECT', 'TEXTAREA'].includes(e.tagName))) return found;
    }
    // Chromium adds the chosen file to the name of its field, so that one is found by its label.
    for (const found of await this.page.$$('input[type=file]')) {
      if (await found.evaluate((e, label) => e.labels[0]?.textContent.trim() === label, name)) return found;
    }
    assert.fail(`no field "${name}" on ${this.page.url()}`);
  }

  /** Fills a field in; dates as the machine writes them, whatever the language. */
  async fill(name, value) {
    const field = await this.field(name);
    const kind = await field.evaluate((e) => (e.tagName === 'SELECT' ? 'select' : e.type));
    if (kind === 'select') return field.select(value);
    await field.evaluate((e, text) => { e.value = text; }, kind.startsWith('date') ? value : '');
    if (!kind.startsWith('date')) await field.type(value);
  }

  /** The text that is to be copied and has this name. */
  async text(name) {
    for (const found of await this.page.$$(`::-p-aria([name="${name}"])`)) {
      if (await found.evaluate((e) => ['OUTPUT', 'PRE'].includes(e.tagName))) return found.evaluate((e) => e.textContent);
    }
    assert.fail(`no text "${name}" on ${this.page.url()}`);
  }

  /** Waits until the page's text has it. */
  async reads(text) {
    const has = (wanted) => document.body.innerText.includes(wanted);
    await this.page.waitForFunction(has, { polling: 50 }, text).catch(async () => {
      assert.fail(`"${text}" is not in: ${await this.page.evaluate(() => document.body.innerText)}`);
    });
  }

  /** The page's text. */
  async body() {
    return this.page.evaluate(() => document.body.innerText);
  }

  /** All that axe-core finds wrong, of any impact and level. */
  async violations() {
    return this.#violations({ rules: Object.fromEntries(MORE_RULES.map((id) => [id, { enabled: true }])) });
  }

  /** What axe-core finds wrong in colours. */
  async wrongColours() {
    return this.#violations({ runOnly: COLOUR_RULES });
  }

  async #violations(chosen) {
    if (!await this.page.evaluate(() => 'axe' in window)) await this.page.evaluate(axe.source);
    const options = { ...chosen, resultTypes: ['violations'] };
    const { violations } = await this.page.evaluate((given) => window.axe.run(document, given), options);
    return violations.flatMap(({ id, impact, nodes }) => nodes.map(({ html, failureSummary }) => {
      return `${this.width} ${this.theme}: ${id} (${impact}): ${html.slice(0, 160)}: ${failureSummary.replace(/\s+/g, ' ')}`;
    }));
  }

  /** Keeps a picture of the whole page, if pictures are wanted. */
  async picture(name) {
    if (!folder) return;
    mkdirSync(folder, { recursive: true });
    await this.page.screenshot({ path: `${folder}/${name}-${this.width}-${this.theme}.png`, fullPage: true });
  }
}
