/** Tasks of a viewer, who may change nothing. */

import assert from 'node:assert/strict';
import { setting } from './facts.js';

export const VIEWER = [
  {
    task: 'See the balance',
    before: 0,
    allowed: 0,
    async act(at) {
      assert.match(await at.person.page.$eval('.balance', (balance) => balance.innerText), /\$\d+\.\d\d/);
    },
  },
  {
    task: 'See what each model cost on a day',
    before: 0,
    allowed: 0,
    async act(at) {
      await at.person.page.hover('.chart .days a:nth-last-child(2)');
      assert.match(await at.person.page.$eval('.chart .box', (box) => box.innerText), /Model Max\s*\$\d/);
    },
  },
  {
    task: 'See the requests of that day',
    before: 'not there',
    allowed: 1,
    async act(at) {
      await at.followAt('.chart .days a:nth-last-child(2)');
      const rows = await at.person.page.$$eval('tbody tr', (all) => all.map((row) => row.innerText));
      assert.equal(rows.length, 2, `${rows}`);
    },
  },
  {
    task: 'Find a bill by the id of its generation',
    before: 2,
    allowed: 1,
    async act(at) {
      await at.find(setting('GENERATION'));
      await at.reads('Billed exactly');
    },
  },
  {
    task: 'See how long a request took, and where',
    before: 'not there',
    allowed: 2,
    async act(at) {
      await at.follow('link', 'Requests', 'nav.main');
      await at.followAt(`tbody a[href$="${setting('GENERATION')}"]`);
      await at.reads('First token');
      await at.reads('sent to');
    },
  },
  {
    task: 'Export last month as CSV',
    before: 3,
    allowed: 3,
    async act(at) {
      await at.follow('link', 'Last month');
      await at.follow('link', 'Requests', 'nav.main');
      const file = await at.download('Export CSV');
      const lines = file.trim().split('\n');
      assert.ok(lines.length > 1 && lines.slice(1).every((line) => line.includes(setting('LAST_MONTH'))), file);
    },
  },
  {
    task: 'Compare this month with the last',
    before: 'not there',
    allowed: 1,
    async act(at) {
      await at.follow('link', 'This month');
      assert.match(await at.person.body(), /[↑↓] \d+ % vs. the same days of the month before/);
    },
  },
  {
    task: 'See what a model costs',
    before: 'not there',
    allowed: 1,
    async act(at) {
      await at.follow('link', 'Models', 'nav.main');
      await at.reads('$4.00');
    },
  },
  {
    task: 'See whether a model answers',
    before: 'not there',
    allowed: 1,
    async act(at) {
      await at.follow('link', 'Models', 'nav.main');
      assert.ok(await at.person.page.$('[aria-label="Models"] .badge.active'));
    },
  },
  {
    task: 'Share what I see',
    before: 0,
    allowed: 0,
    async act(at) {
      const address = '/dashboard?range=last-month&by=group&show=requests';
      for (const person of [at.person, at.another]) await person.visit(address);
      const chart = (person) => person.page.$eval('.chart table', (table) => table.textContent);
      assert.equal(await chart(at.another), await chart(at.person));
    },
  },
];
