/** Operators' pages: sign-in, the second factor, and every page, wide and narrow, light and dark. */

import assert from 'node:assert/strict';
import { codeOf, examineAnswer } from './dashboard_factor.js';
import { fact } from './facts.js';

const NAME = 'ann@example.com';
/** Name in the navigation, address, and name for pictures. */
const SECTIONS = [
  ['Accounts', '/operator', 'accounts'],
  ['Operator keys', '/operator/keys', 'keys'],
  ['Upstreams', '/operator/upstreams', 'upstreams'],
  ['Catalogue', '/operator/catalogue', 'catalogue'],
  ['Installation', '/operator/installation', 'installation'],
];

const pathOf = (person) => new URL(person.page.url()).pathname;

/** Adds facts about operators' pages. `link` signs in a new operator; `examine` checks a page at every width. */
export function addOperator(another, link, account, examine) {
  let operator;
  fact('an operator signs in with a link, and sees nothing before a second factor is set up', async () => {
    operator = await another();
    await operator.visit('/operator');
    assert.equal(pathOf(operator), '/operator/sign-in');
    await examine(operator, 'operator-sign-in');
    await operator.openLink(link);
    await operator.reads(`signs in ${NAME} as an operator`);
    await examineAnswer(operator, 'operator-sign-in-whom');
    await operator.follow('button', 'Sign in');
    assert.equal(pathOf(operator), '/operator/second-factor');
    await examine(operator, 'operator-second-factor');
    const secret = await operator.page.$eval('.copyable-line code', (code) => code.textContent);
    await operator.fill('Code', '000000');
    await operator.follow('button', 'Turn on', 403);
    await examineAnswer(operator, 'operator-second-factor-wrong');
    await operator.fill('Code', codeOf(secret, 0));
    await operator.follow('button', 'Turn on');
    await examineAnswer(operator, 'operator-recovery-codes');
    await operator.follow('link', 'I have saved them');
    assert.equal(pathOf(operator), '/operator');
  });
  for (const scripts of [true, false]) {
    for (const [name, path, picture] of SECTIONS) {
      fact(`${name} is sound for an operator, ${scripts ? 'with scripts' : 'without scripts'}`, async () => {
        await operator.allow(scripts);
        await operator.look(1280, 'light');
        await operator.visit('/operator');
        await operator.follow('link', name);
        assert.equal(pathOf(operator), path);
        if (scripts) await examine(operator, `operator-${picture}`);
        else await examineAnswer(operator, `operator-plain-${picture}`);
      });
    }
    fact(`an operator makes an account and adds credit, ${scripts ? 'with scripts' : 'without scripts'}`, async () => {
      const made = `Customer ${scripts ? 'one' : 'two'}`;
      await operator.visit('/operator');
      await operator.follow('link', 'New account');
      if (scripts) await examine(operator, 'operator-new-account');
      await operator.fill('Name', account);
      await operator.follow('button', 'Create account', 422);
      await examineAnswer(operator, 'operator-new-account-refused');
      await operator.fill('Name', made);
      await operator.fill('First credit (USD)', '5');
      await operator.follow('button', 'Create account');
      await operator.reads(`Created ${made} with $5.00 of credit.`);
      if (scripts) await examine(operator, 'operator-account');
      await operator.fill('Amount (USD)', '25');
      await operator.follow('button', 'Continue …', 422);
      await examineAnswer(operator, 'operator-credit-refused');
      await operator.fill('Payment id', 'in-1');
      await operator.fill('Note', 'Invoice 1');
      await operator.follow('button', 'Continue …');
      await operator.reads('from $5.00 to $30.00');
      await examineAnswer(operator, 'operator-credit-asked');
      await operator.follow('button', 'Add credit');
      await operator.reads('Payment in-1 of $25.00 was added.');
      await operator.reads('Invoice 1');
      await operator.visit('/operator?q=nothing+has+this+name');
      await examineAnswer(operator, 'operator-no-account');
    });
  }
  fact('an operator signs out, and sees nothing any more', async () => {
    await operator.allow(true);
    await operator.look(1280, 'light');
    await operator.visit('/operator/nothing', 404);
    await operator.visit('/operator');
    await operator.openMenu();
    await operator.follow('button', 'Sign out');
    assert.equal(pathOf(operator), '/operator/sign-in');
    await operator.visit('/operator');
    assert.equal(pathOf(operator), '/operator/sign-in');
    await operator.context.close();
  });
}
