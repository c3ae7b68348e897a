/** Thirty common tasks in the console, each done in a real browser. Clicks are counted from the first page. */

import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { launch, Person } from './browser.js';
import { codeOf, STEP } from './dashboard_factor.js';
import { fact, run, setting } from './facts.js';
import { LEAD } from './tasks_lead.js';
import { OWNER } from './tasks_owner.js';
import { VIEWER } from './tasks_viewer.js';

const { origin } = new URL(setting('BASE_URL'));
/** The document with the table of all tasks. */
const DOCUMENT = new URL('../../../docs/console.md', import.meta.url);
/** Longest time that a download may take. */
const PATIENCE_MS = 30_000;

/** A person whose clicks are counted: each link, button, box and choice in a menu. Typing is free; submitting costs one. */
export class Worker {
  constructor(person, home) {
    Object.assign(this, { person, home, clicks: 0, files: mkdtempSync(join(tmpdir(), 'faregate-tasks-')) });
  }

  /** Opens the first page, where a task begins. */
  async begin() {
    await this.person.visit(this.home);
    this.clicks = 0;
  }

  /** Clicks the link or button with this name, and waits for the next page. */
  async follow(role, name, within = '') {
    this.clicks += 1;
    await this.person.press(await this.person.the(role, name, within));
  }

  /** Clicks the only match of this selector, and waits for the next page. */
  async followAt(selector) {
    this.clicks += 1;
    await this.person.press(await this.#only(selector));
  }

  /** Clicks something that stays on the page. */
  async press(role, name, within = '') {
    this.clicks += 1;
    await (await this.person.the(role, name, within)).click();
  }

  /** Clicks the only match of this selector, which stays on the page. */
  async pressAt(selector) {
    this.clicks += 1;
    await (await this.#only(selector)).click();
  }

  async #only(selector) {
    const found = await this.person.page.$$(selector);
    assert.equal(found.length, 1, `${found.length} × ${selector} on ${this.person.page.url()}`);
    return found[0];
  }

  /** Chooses in a menu. */
  async choose(name, value) {
    this.clicks += 1;
    await this.person.fill(name, value);
  }

  /** Types into a field. */
  async type(name, text) {
    await this.person.fill(name, text);
  }

  /** Searches for a name, an id or a key with the search box that every page has. */
  async find(text) {
    await this.type('Find', text);
    await this.follow('button', 'Go');
  }

  /** Waits for a text on the page. */
  async reads(text) {
    await this.person.reads(text);
  }

  /** Returns what was copied last. */
  async copied() {
    return this.person.page.evaluate(() => navigator.clipboard.readText());
  }

  /** Clicks the link to a file, and returns the file's text. */
  async download(name) {
    this.clicks += 1;
    const session = await this.person.page.createCDPSession();
    const { files, person } = this;
    await session.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: files, browserContextId: person.context.id });
    await (await person.the('link', name)).click();
    for (const began = Date.now(); ; await sleep(20)) {
      const [file] = readdirSync(files).filter((found) => !found.endsWith('.crdownload'));
      if (file) return readFileSync(join(files, file), 'utf8');
      assert.ok(Date.now() - began < PATIENCE_MS, `${name} downloads no file`);
    }
  }
}

/** Opens a member's sign-in link and confirms it. */
async function signIn(person, link) {
  await person.openLink(link);
  await person.follow('button', 'Sign in');
}

/** Signs in an operator, and sets up the second factor. */
async function signOperatorIn(person, link) {
  await signIn(person, link);
  const secret = await person.page.$eval('.copyable-line code', (code) => code.textContent);
  await person.fill('Code', codeOf(secret, Number(setting('CLOCK_AHEAD')) / STEP));
  await person.follow('button', 'Turn on');
  await person.follow('link', 'I have saved them');
}

const browser = await launch();
const another = async () => Person.at(browser, origin);
const [owner, viewer, operator] = [await another(), await another(), await another()];
await signIn(owner, setting('OWNER_LINK'));
await signIn(viewer, setting('VIEWER_LINK'));
await signOperatorIn(operator, setting('OPERATOR_LINK'));
const workers = {
  owner: new Worker(owner, '/dashboard'),
  operator: new Worker(operator, '/operator'),
  viewer: new Worker(viewer, '/dashboard'),
};
// The owner and the viewer share pages.
Object.assign(workers.viewer, { another: owner });

const rows = readFileSync(DOCUMENT, 'utf8').split('\n').filter((line) => line.startsWith('| '));
const done = [];
for (const [who, tasks] of [['owner', OWNER], ['lead', LEAD], ['viewer', VIEWER]]) {
  for (const { task, by, before, allowed, act } of tasks) {
    fact(`${who}: ${task}, in ${allowed} clicks`, async () => {
      const worker = workers[by ?? who];
      await worker.begin();
      await act(worker);
      const { clicks } = worker;
      done.push([task, who, before, clicks, allowed].join(' | '));
      assert.ok(clicks <= allowed, `${clicks} clicks, ${allowed} are allowed`);
      const row = rows.find((line) => line.startsWith(`| ${task} |`));
      assert.ok(row?.endsWith(`| ${before} | ${clicks} | ${allowed} |`), `docs/console.md says ${row}, and it is ${before}, ${clicks}, ${allowed}`);
    });
  }
}
fact('there are thirty tasks', () => assert.equal(done.length, 30));

await run();
console.log(['task | who | before | now | allowed', ...done].join('\n'));
await browser.close();
