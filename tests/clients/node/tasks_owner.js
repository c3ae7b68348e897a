/** Tasks of the owner of an account. */

import assert from 'node:assert/strict';
import { setting } from './facts.js';

const LEAKED = setting('LEAKED_KEY');
const MONTH = setting('LAST_MONTH');

export const OWNER = [
  {
    task: 'See how long the credit lasts',
    before: 0,
    allowed: 0,
    act: (at) => at.reads('at the recent rate'),
  },
  {
    task: 'Make a key with $50 a month',
    before: 4,
    allowed: 4,
    async act(at) {
      await at.follow('link', 'API keys', 'nav.main');
      await at.follow('link', 'New API key');
      await at.type('Label', 'Fifty');
      await at.type('Limit (USD)', '50');
      await at.choose('Resets', 'month');
      await at.follow('button', 'Create key');
      assert.match(await at.person.text('Your new key'), /^fg_api_\w+$/);
      await at.person.follow('link', 'I have copied it');
      await at.reads('$50 a month');
    },
  },
  {
    task: 'Tell a colleague how to use a key in Codex',
    before: 'not there',
    allowed: 4,
    async act(at) {
      await at.follow('link', 'code-review-bot', '[aria-label="Top keys in this period"]');
      await at.follow('link', 'Use it', 'nav.tabs');
      await at.pressAt('summary ::-p-text(Codex)');
      await at.press('button', 'Copy', 'details[open] .copyable:first-of-type');
      await at.reads('Copied');
      assert.match(await at.copied(), /\[model_providers\.faregate\]/);
    },
  },
  {
    task: 'See what each team spent this month',
    before: 2,
    allowed: 2,
    async act(at) {
      await at.follow('link', 'This month');
      await at.follow('link', 'By group');
      assert.match(await at.person.page.$eval('.legend', (legend) => legend.textContent), /Engineering \$\d+\.\d\d/);
    },
  },
  {
    task: 'Give a team more',
    before: 3,
    allowed: 3,
    async act(at) {
      await at.find('Engineering');
      await at.follow('link', 'Settings', 'nav.tabs');
      await at.type('Limit (USD)', '60');
      await at.follow('button', 'Save');
      await at.reads('$40 a month → $60 a month');
    },
  },
  {
    task: 'Add credit',
    by: 'operator',
    before: 'not there',
    allowed: 3,
    async act(at) {
      await at.follow('link', setting('ACCOUNT'));
      await at.type('Amount (USD)', '25');
      await at.type('Payment id', 'in-1');
      await at.follow('button', 'Continue …');
      await at.follow('button', 'Add credit');
      await at.reads('Payment in-1 of $25.00 was added.');
    },
  },
  {
    task: 'Print the statement of last month',
    before: 3,
    allowed: 3,
    async act(at) {
      await at.follow('link', 'Credit', 'nav.main');
      await at.followAt(`main a[href="/dashboard/credit/${MONTH}"]`);
      await at.reads('Total charged');
      await at.person.page.evaluate(() => { window.print = () => { window.isPrinted = true; }; });
      await at.press('button', 'Print');
      assert.equal(await at.person.page.evaluate(() => window.isPrinted), true);
    },
  },
  {
    task: 'Invite the accountant',
    before: 3,
    allowed: 3,
    async act(at) {
      await at.follow('link', 'Members', 'nav.main');
      await at.type('Name', 'accountant@example.com');
      await at.follow('button', 'Invite');
      await at.press('button', 'Copy');
      await at.reads('Copied');
      assert.equal(await at.copied(), await at.person.text('Sign-in link'));
    },
  },
  {
    task: 'Stop a leaked key',
    before: 4,
    allowed: 3,
    async act(at) {
      await at.find(LEAKED);
      await at.follow('link', 'Revoke');
      await at.follow('button', 'Revoke');
      await at.reads('The key is revoked.');
    },
  },
  {
    task: 'See who changed what',
    before: 1,
    allowed: 1,
    async act(at) {
      await at.follow('link', 'Events', 'nav.main');
      await at.reads('$40 a month → $60 a month');
    },
  },
];
