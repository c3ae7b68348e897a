/** Drives Chromium as a person would, and fails on anything that a page of the dashboard must not do. */

import assert from 'node:assert/strict';
import { existsSync, mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import axe from 'axe-core';
import puppeteer from 'puppeteer-core';

/** Default: headless Chromium, which takes half the time, at the path of Debian's package. */
const PROGRAM = process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell';
/** Longest time that anything on a page may take, on a slow machine. */
const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 30_000);
const HEIGHT = 800;
/** Rules that are off by default in axe-core: level AAA, and a new one. */
const MORE_RULES = ['color-contrast-enhanced', 'identical-links-same-purpose', 'meta-refresh-no-exceptions', 'target-size'];
/** Rules about colours, the only ones that another theme can break. */
const COLOUR_RULES = ['color-contrast', 'color-contrast-enhanced', 'link-in-text-block'];
const ASSETS = '/dashboard/assets/';
const folder = process.env.SCREENSHOTS;

/** Starts the browser. Without its sandbox, which cannot start as root or in a container: it opens only our own pages. */
export async function launch() {
  assert.ok(existsSync(PROGRAM), `no ${PROGRAM}; tests/tools/install.sh installs it`);
  const args = ['--no-sandbox', '--disable-dev-shm-usage', '--lang=en-GB'];
  return puppeteer.launch({ executablePath: PROGRAM, args, pipe: true, headless: 'shell', protocolTimeout: 2 * PATIENCE_MS });
}

/** Records layout shifts that no user input caused, from the start of each document. */
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

/** Hides the page, so that it does not refresh itself, until `watched` is set. */
function lookAway() {
  Object.defineProperty(document, 'visibilityState', { get: () => (window.watched ? 'visible' : 'hidden') });
}

/** A person with a separate browser context: cookies, a window, and a light or dark theme. */
export class Person {
  /** Creates a person who opens a window at this origin. */
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

  /** Turns scripts on or off for the following pages. */
  async allow(scripts) {
    this.scripts = scripts;
    await this.page.setJavaScriptEnabled(scripts);
  }

  /** Forgets what was seen before. A download that is reported later counts for no page. */
  forget() {
    Object.assign(this, { problems: [], responses: [], sent: new Set(), pending: new Set() });
  }

  /** Sets the width and the theme. With reduced motion, the default, colours change at once. */
  async look(width, theme, motion = 'reduce') {
    Object.assign(this, { width, theme });
    await this.page.setViewport({ width, height: HEIGHT });
    const features = { 'prefers-color-scheme': theme, 'prefers-reduced-motion': motion };
    await this.page.emulateMediaFeatures(Object.entries(features).map(([name, value]) => ({ name, value })));
  }

  /** Opens an address of the dashboard and expects this status. */
  async visit(path, status = 200) {
    return this.#arrive(() => this.page.goto(this.origin + path), status);
  }

  /** Opens a sign-in link, up to the page that asks for confirmation. Without scripts, the code has to be pasted. */
  async openLink(link) {
    const { pathname, hash } = new URL(link);
    if (this.scripts) {
      this.forget();
      await this.page.goto(this.origin + pathname + hash);
      await this.page.waitForSelector('::-p-aria([name="Sign in"][role="button"])');
      await this.#settled();
      assert.equal(new URL(this.page.url()).hash, '', 'the code stays in the history');
    } else {
      await this.visit(pathname + hash);
      await this.fill('Code', link);
      await this.follow('button', 'Continue');
    }
    return this.fits();
  }

  /** Clicks the link or button with this name, and waits for the next page. */
  async follow(role, name, status = 200) {
    return this.press(await this.the(role, name), status);
  }

  /** Opens the menu under the person's name. */
  async openMenu() {
    await this.page.click('.me summary');
  }

  /** Clicks an element, and waits for the next page. */
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
   * Waits until every request has an answer, since puppeteer may report one after the page has loaded. Ignores the icon, and
   * images of the browser's controls (`data:`), which the browser may drop without a report.
   */
  async #settled() {
    const isAwaited = (request) => request.resourceType() !== 'other' && !request.url().startsWith('data:');
    const left = () => [...this.pending].filter(isAwaited).map((request) => request.url());
    for (const began = Date.now(); left().length > 0; await sleep(10)) {
      assert.ok(Date.now() - began < PATIENCE_MS, `never answered: ${left()}`);
    }
  }

  /** Asserts what must hold for every page. */
  async #sound(status) {
    const at = `${this.page.url()} at ${this.width}`;
    await this.#settled();
    const documents = this.responses.filter((r) => r.request().isNavigationRequest() && ![302, 303].includes(r.status()));
    assert.deepEqual(documents.map((r) => r.status()), [status], `${at}: one document`);
    // The browser logs a page with an error status as an error.
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

  /** Returns layout shifts since the document loaded; none without scripts, since nothing could move then. */
  async shifts() {
    if (!this.scripts) return [];
    return this.page.evaluate(() => new Promise((resolve) => {
      requestAnimationFrame(() => requestAnimationFrame(() => resolve(window.shifts)));
    }));
  }

  /** Finds all elements with this role and accessible name, on the page or in a part of it. */
  async all(role, name, within = '') {
    return this.page.$$(`${within} ::-p-aria([name="${name}"][role="${role}"])`);
  }

  /** Finds the only element with this role and accessible name. */
  async the(role, name, within = '') {
    const found = await this.all(role, name, within);
    assert.equal(found.length, 1, `${found.length} × ${role} "${name}" on ${this.page.url()}`);
    return found[0];
  }

  /** Finds the form field with this name. */
  async field(name) {
    for (const found of await this.page.$$(`::-p-aria([name="${name}"])`)) {
      if (await found.evaluate((e) => ['INPUT', 'SELECT', 'TEXTAREA'].includes(e.tagName))) return found;
    }
    // Chromium adds the chosen file to the accessible name of its field, so a file field is found by its label.
    for (const found of await this.page.$$('input[type=file]')) {
      if (await found.evaluate((e, label) => e.labels[0]?.textContent.trim() === label, name)) return found;
    }
    assert.fail(`no field "${name}" on ${this.page.url()}`);
  }

  /** Fills in a field. Dates are set as values, since typing them depends on the language. */
  async fill(name, value) {
    const field = await this.field(name);
    const kind = await field.evaluate((e) => (e.tagName === 'SELECT' ? 'select' : e.type));
    if (kind === 'select') return field.select(value);
    await field.evaluate((e, text) => { e.value = text; }, kind.startsWith('date') ? value : '');
    if (!kind.startsWith('date')) await field.type(value);
  }

  /** Returns the copyable text with this name. */
  async text(name) {
    for (const found of await this.page.$$(`::-p-aria([name="${name}"])`)) {
      if (await found.evaluate((e) => ['OUTPUT', 'PRE'].includes(e.tagName))) return found.evaluate((e) => e.textContent);
    }
    assert.fail(`no text "${name}" on ${this.page.url()}`);
  }

  /** Waits until the page's text contains this. */
  async reads(text) {
    const has = (wanted) => document.body.innerText.includes(wanted);
    await this.page.waitForFunction(has, { polling: 50 }, text).catch(async () => {
      assert.fail(`"${text}" is not in: ${await this.page.evaluate(() => document.body.innerText)}`);
    });
  }

  async body() {
    return this.page.evaluate(() => document.body.innerText);
  }

  /** Returns all violations that axe-core finds, of any impact and level. */
  async violations() {
    return this.#violations({ rules: Object.fromEntries(MORE_RULES.map((id) => [id, { enabled: true }])) });
  }

  /** Returns violations of colour rules. */
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

  /** Saves a picture of the whole page if `SCREENSHOTS` is set. */
  async picture(name) {
    if (!folder) return;
    mkdirSync(folder, { recursive: true });
    await this.page.screenshot({ path: `${folder}/${name}-${this.width}-${this.theme}.png`, fullPage: true });
  }
}
