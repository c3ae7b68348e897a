/** Sign-in with a second factor: a password or a link, and a code from an app or a recovery code. */

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { fact } from './facts.js';

const PAGE = '/dashboard/you/second-factor';
const NAME = 'two-factors@example.com';
const PASSWORD = 'five quiet words are here';
const WIDTHS = [320, 375, 768, 1280];
/** Seconds that an app shows a code. */
export const STEP = 30;

/** Computes the code that an app with this secret shows, a number of steps from now. */
export function codeOf(secret, steps) {
  const bits = [...secret].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 1000 / STEP) + steps));
  const digest = createHmac('sha1', key).update(step).digest();
  const number = digest.readUInt32BE(digest.at(-1) & 15) & 0x7fffffff;
  return String(number % 1_000_000).padStart(6, '0');
}

const pathOf = (person) => new URL(person.page.url()).pathname;

/** Checks a page that only a form leads to, at every width and in both themes. */
export async function examineAnswer(person, name) {
  for (const width of WIDTHS) {
    for (const theme of ['light', 'dark']) {
      await person.look(width, theme);
      await person.fits();
      await person.picture(name);
      if (person.scripts) assert.deepEqual(await person.violations(), [], name);
    }
  }
}

/** Enters account, name and password. */
async function givePassword(person, account) {
  await person.visit('/dashboard/sign-in');
  for (const [name, value] of [['Account', account], ['Name', NAME], ['Password', PASSWORD]]) await person.fill(name, value);
  await person.follow('button', 'Sign in');
  await person.reads('Now enter a code of your second factor.');
}

/** Creates a sign-in link for the member, as an owner. */
async function linkOf(owner) {
  await owner.visit('/dashboard/members');
  await owner.follow('link', NAME);
  await owner.follow('button', 'Make a sign-in link');
  return owner.text('Sign-in link');
}

/** Adds facts about the second factor. */
export function addSecondFactor(owner, another, account) {
  let secret;
  let recovery;
  fact('a member turns a second factor on, and keeps the recovery codes', async () => {
    await owner.visit('/dashboard/members');
    await owner.fill('Name', NAME);
    await owner.follow('button', 'Invite');
    const link = await owner.text('Sign-in link');
    const member = await another();
    await member.openLink(link);
    await member.follow('button', 'Sign in');
    await member.visit('/dashboard/you');
    await member.fill('New password', PASSWORD);
    await member.follow('button', 'Save');
    await member.visit(PAGE);
    secret = await member.page.$eval('.copyable-line code', (code) => code.textContent);
    await member.fill('Current password', PASSWORD);
    await member.fill('Code', '000000');
    await member.follow('button', 'Turn on', 403);
    await examineAnswer(member, 'second-factor-wrong');
    await member.fill('Current password', PASSWORD);
    await member.fill('Code', codeOf(secret, 0));
    await member.follow('button', 'Turn on');
    recovery = (await member.text('Your recovery codes')).split('\n');
    assert.equal(recovery.length, 10);
    await examineAnswer(member, 'recovery-codes');
    await member.follow('link', 'I have saved them');
    await member.visit(PAGE);
    await member.reads('Turn off your second factor?');
    await examineAnswer(member, 'second-factor-off');
  });
  for (const scripts of [false, true]) {
    const how = scripts ? 'with scripts' : 'without scripts';
    fact(`after a password, a code from the app or a recovery code signs in, ${how}`, async () => {
      const member = await another();
      await member.allow(scripts);
      await givePassword(member, account);
      await examineAnswer(member, `sign-in-code${scripts ? '' : '-plain'}`);
      await member.fill('Code', '000000');
      await member.follow('button', 'Sign in', 403);
      await examineAnswer(member, `sign-in-code-wrong${scripts ? '' : '-plain'}`);
      // Each code signs in once, so use the next step's code.
      await member.fill('Code', scripts ? recovery.pop() : codeOf(secret, 1));
      await member.follow('button', 'Sign in');
      assert.equal(pathOf(member), '/dashboard');
      await member.context.close();
    });
    fact(`a link asks for a code as well, ${how}`, async () => {
      const link = await linkOf(owner);
      const member = await another();
      await member.allow(scripts);
      await member.openLink(link);
      await member.reads(`signs in ${NAME} of the account ${account}`);
      await examineAnswer(member, `sign-in-link-code${scripts ? '' : '-plain'}`);
      await member.fill('Code', recovery.pop());
      await member.follow('button', 'Sign in');
      assert.equal(pathOf(member), '/dashboard');
      await member.context.close();
    });
  }
}
