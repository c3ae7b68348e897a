/** Tasks of the lead of a team. */

import assert from 'node:assert/strict';

const TROUBLE = '[aria-labelledby="trouble"]';

export const LEAD = [
  {
    task: 'See which keys ran out',
    before: 'not there',
    allowed: 0,
    async act(at) {
      const says = await at.person.page.$eval(TROUBLE, (strip) => strip.innerText);
      assert.match(says, /out of budget/);
      assert.match(says, /golden-ticket/);
    },
  },
  {
    task: 'See why a key is refused',
    before: 2,
    allowed: 1,
    async act(at) {
      await at.followAt('::-p-xpath(//section[@aria-labelledby="trouble"]//li[contains(., "tiny-a")]//a[contains(@href, "outcome=refused")])');
      await at.reads('group limit reached');
    },
  },
  {
    task: 'Give a key more, now',
    before: 3,
    allowed: 2,
    async act(at) {
      await at.follow('link', 'Raise the limit: golden-ticket');
      await at.type('Limit (USD)', '3');
      await at.follow('button', 'Save');
      await at.reads('→ $3.00');
    },
  },
  {
    task: 'See what a group spends, by day',
    before: 'not there',
    allowed: 1,
    async act(at) {
      await at.find('Tiny team');
      await at.reads('Spend by day');
      assert.match(await at.person.page.$eval('.chart svg', (chart) => chart.getAttribute('aria-label')), /^Spend by day/);
    },
  },
  {
    task: 'See the requests of a group',
    before: 'not there',
    allowed: 2,
    async act(at) {
      await at.find('Tiny team');
      await at.follow('link', 'Requests', 'nav.tabs');
      await at.reads('tiny-a');
    },
  },
  {
    task: 'See what a key did yesterday',
    before: 5,
    allowed: 2,
    async act(at) {
      await at.find('code-review-bot');
      await at.followAt('.chart .days a:nth-last-child(2)');
      const rows = await at.person.page.$$eval('tbody tr', (all) => all.map((row) => row.innerText));
      assert.equal(rows.length, 2, `${rows}`);
    },
  },
  {
    task: 'Rotate a key',
    before: 3,
    allowed: 3,
    async act(at) {
      await at.find('nightly-batch');
      await at.follow('link', 'Rotate');
      await at.follow('button', 'Rotate');
      assert.match(await at.person.text('Your new key'), /^fg_api_\w+$/);
      await at.person.follow('link', 'I have copied it');
    },
  },
  {
    task: 'Move three keys to another group',
    before: 7,
    allowed: 7,
    async act(at) {
      await at.follow('link', 'API keys', 'nav.main');
      for (const name of ['one', 'two', 'three']) await at.pressAt(`input[aria-label^="Select course-${name} "]`);
      await at.follow('button', 'Move …');
      await at.choose('Group', await at.person.page.$eval('option ::-p-text(Engineering)', (option) => option.value));
      await at.follow('button', 'Move 3 API keys');
      await at.reads('3 API keys moved.');
    },
  },
  {
    task: 'Make a key like another',
    before: 'not there',
    allowed: 3,
    async act(at) {
      await at.find('nightly-batch');
      await at.follow('link', 'Duplicate');
      await at.follow('button', 'Create key');
      assert.match(await at.person.text('Your new key'), /^fg_api_\w+$/);
      await at.person.follow('link', 'I have copied it');
      await at.reads('nightly-batch (copy)');
    },
  },
  {
    task: 'Be warned in time',
    before: 3,
    allowed: 3,
    async act(at) {
      await at.follow('link', 'Webhooks', 'nav.main');
      await at.type('URL', 'http://127.0.0.1:9/warnings');
      await at.follow('button', 'Create webhook');
      await at.press('button', 'Copy', '.once');
      assert.match(await at.copied(), /^whsec_/);
    },
  },
];
for (const task of LEAD) task.by ??= 'owner';
