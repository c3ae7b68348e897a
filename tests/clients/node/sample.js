/** The console on two months of data: what it says first, and every page at four widths in both themes. */

import assert from 'node:assert/strict';
import { launch, Person } from './browser.js';
import { fact, run, setting } from './facts.js';

const { origin } = new URL(setting('BASE_URL'));
const runaway = setting('RUNAWAY');
const WIDTHS = [375, 768, 1280, 1600];
const TOP = '[aria-label="Top keys in this period"]';
const PAGES = [
  ['overview', '/dashboard'], ['today-by-key', '/dashboard?range=today&by=key'], ['by-top-group', '/dashboard?by=top-group'],
  ['by-upstream', '/dashboard?by=upstream'], ['list', '/dashboard/spend?by=key&range=today'], ['keys', '/dashboard/keys'],
  ['groups', '/dashboard/groups'], ['requests', '/dashboard/activity'], ['models', '/dashboard/models'],
  ['credit', '/dashboard/credit'], ['members', '/dashboard/members'], ['webhooks', '/dashboard/webhooks'],
  ['events', '/dashboard/events'], ['a-key', `/dashboard/keys/${runaway}`], ['use-it', `/dashboard/keys/${runaway}/use`],
  ['refused', '/dashboard/activity?outcome=refused'], ['you', '/dashboard/you'],
];

/** Reads sums of usage from the management API. */
async function usage(query) {
  const headers = { authorization: `Bearer ${setting('MANAGEMENT_KEY')}` };
  const answer = await fetch(`${origin}/v1/management/usage?${query}`, { headers });
  assert.equal(answer.status, 200);
  return (await answer.json()).data;
}

const today = () => new Date().toISOString().slice(0, 10);
const browser = await launch();
const owner = await Person.at(browser, origin);

fact('the first page says that a key spends many times its usual, and leads there with one click', async () => {
  await owner.openLink(setting('OWNER_LINK'));
  await owner.follow('button', 'Sign in');
  const says = await owner.page.$eval('.jump', (sentence) => sentence.innerText);
  assert.match(says, /^runaway-agent spent \$\d\.\d\d in the last (hour|\d+ minutes), \d+ times its usual\. /);
  await owner.press(await owner.page.$('.jump a'));
  assert.equal(new URL(owner.page.url()).pathname, `/dashboard/keys/${runaway}`);
});

fact('the key that spends now is first among the keys of the day, with the sum that the API has', async () => {
  await owner.visit('/dashboard?range=today&by=key');
  const cells = await owner.page.$$eval(`${TOP} tbody tr:first-child > *`, (all) => all.map((cell) => cell.innerText));
  assert.match(cells[0], /^runaway-agent/);
  const [first] = await usage(`group_by=key&top=1&start=${today()}&end=${today()}`);
  assert.equal(first.key_id, runaway);
  assert.equal(Number(cells[1].replace(',', '')), first.requests);
  assert.ok(cells[3].includes(`$${first.cost.toFixed(9).slice(0, 8)}`), `${cells[3]} is not ${first.cost}`);
});

fact('all keys of the range are behind the others, and add up', async () => {
  await owner.visit('/dashboard?by=key');
  const others = await owner.page.$(`${TOP} a[href^="/dashboard/spend"]`);
  assert.match(await others.evaluate((link) => link.innerText), /^\d+ others$/);
  await owner.press(others);
  assert.equal(new URL(owner.page.url()).pathname, '/dashboard/spend');
  const data = await usage('group_by=key&top=1000');
  await owner.reads(`${data.length}`);
});

fact('figures come first, and many alarms are one line, which can be opened and muted', async () => {
  await owner.look(1280, 'light');
  await owner.visit('/dashboard');
  const top = (selector) => owner.page.$eval(selector, (found) => found.getBoundingClientRect().top);
  assert.ok(await top('.tiles') < await top('.alarms') && await top('.alarms') < await top('.chart'));
  assert.ok(await top('.chart') < 800, 'the chart begins on the first screen');
  const strip = await owner.page.$eval('.alarms', (found) => found.innerText);
  assert.match(strip, /4\d keys out of budget/);
  assert.match(strip, /2 webhooks off/);
  assert.equal(await owner.page.$eval('.alarms details', (details) => details.open), false);
  await owner.follow('button', 'Mute for a week');
  assert.equal(await owner.page.$('.alarms'), null);
  await owner.follow('button', 'Show them');
  assert.ok(await owner.page.$('.alarms'));
});

fact('the page of a key says in a line what it may do, has a switch, and a saved change can be undone', async () => {
  await owner.visit(`/dashboard/keys/${runaway}`);
  const says = () => owner.page.$eval('.verdict', (line) => line.innerText);
  assert.match(await says(), /^May spend \$\d+\.\d\d today, the rest of (Agents|Research)’s limit · all models · never expires$/);
  await owner.follow('switch', 'Enabled');
  assert.match(await says(), /^Stopped: disabled\./);
  await owner.follow('switch', 'Enabled');
  assert.match(await says(), /^May spend/);
  await owner.visit(`/dashboard/keys/${runaway}/settings`);
  await owner.fill('Limit (USD)', '3');
  await owner.follow('button', 'Save');
  await owner.reads('Limit: no limit → $3.00.');
  await owner.follow('button', 'Undo');
  await owner.reads('Limit: $3.00 → no limit.');
});

fact('groups are a tree with the sums of subgroups, which unfolds without a script', async () => {
  await owner.allow(false);
  await owner.visit('/dashboard/groups');
  const listed = () => owner.page.$$eval('tbody tr', (all) => all.filter((row) => row.checkVisibility()).length);
  const tops = await owner.page.$$eval('tbody.tree', (all) => all.length);
  assert.equal(await listed(), tops);
  const [box] = await owner.page.$$('.fold');
  const [, number] = /^Show (\d+) subgroups? of /.exec(await box.evaluate((e) => e.ariaLabel));
  await box.click();
  assert.equal(await listed(), tops + Number(number));
  await owner.allow(true);
});

fact('all keys that a filter matches are chosen for an action, which names their number and asks', async () => {
  await owner.look(1280, 'light');
  await owner.visit('/dashboard/keys?status=active');
  await (await owner.the('checkbox', 'All in this list, up to 1,000')).click();
  await owner.follow('button', 'Raise a limit …');
  assert.match(await owner.body(), /Raise a limit of \d{3} API keys\?/);
  await owner.reads('more');
  assert.deepEqual(await owner.violations(), []);
  await owner.follow('link', 'Cancel');
});

fact('the headings of a long list stay in view', async () => {
  for (const width of [375, 1280]) {
    await owner.look(width, 'light');
    for (const path of ['/dashboard/keys', '/dashboard/activity']) {
      await owner.visit(path);
      await owner.page.evaluate(() => scrollTo(0, 1_500));
      assert.equal(await owner.page.$eval('main thead th', (head) => head.getBoundingClientRect().top), 0, `${path} at ${width}`);
    }
  }
});

fact('models are one table whose prices can be compared', async () => {
  await owner.look(1280, 'light');
  await owner.visit('/dashboard/models');
  const rows = await owner.page.$$eval('[aria-label="Models"] tbody tr:not(.below)', (all) => all.length);
  assert.ok(rows >= 7 && await owner.page.$eval('[aria-label="Models"]', (table) => table.getBoundingClientRect().height) < 600);
});

fact('a refused request has a page that says why and what to do', async () => {
  await owner.visit('/dashboard/activity?outcome=refused');
  assert.match(await owner.body(), /\d+ refused requests/);
  await owner.press(await owner.page.$('tbody td a[href^="/dashboard/activity/"]'));
  await owner.reads('Refused: ');
  await owner.reads('The key now');
  assert.deepEqual(await owner.violations(), []);
});

for (const [name, path] of PAGES) {
  fact(`${name} fits at four widths, and axe finds nothing`, async () => {
    const wrong = [];
    for (const theme of ['light', 'dark']) {
      for (const width of WIDTHS) {
        await owner.look(width, theme);
        await owner.visit(path);
        await owner.picture(`sample-${name}`);
        if (width === 1280) wrong.push(...await owner.violations());
      }
    }
    assert.deepEqual(wrong, []);
  });
}

await run();
await browser.close();
