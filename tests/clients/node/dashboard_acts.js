/** What an owner or a viewer does in the dashboard, step by step. */

import assert from 'node:assert/strict';

/** Checks a page that is shown only once. */
export async function examineOnce(person, name) {
  if (!person.scripts) return;
  await person.picture(name);
  assert.deepEqual(await person.violations(), [], name);
}

const EXPIRES = '2999-12-31T23:59';

/** Creates, finds, edits and revokes a key. */
export async function keepsAKey(owner, { width, theme }) {
  const label = `Made at ${width} ${theme} ${owner.scripts}`;
  await owner.look(width, theme);
  await owner.visit('/dashboard/keys');
  await owner.follow('link', 'New API key');
  await owner.fill('Label', label);
  await owner.fill('Limit (USD)', 'much');
  await owner.fill('Expires', EXPIRES);
  await owner.follow('button', 'Create key', 422);
  await owner.reads('Limit');
  await examineOnce(owner, 'owner-wrong-key');
  assert.equal(await (await owner.field('Label')).evaluate((e) => e.value), label, 'what was entered stays');
  await owner.fill('Limit (USD)', '0.25');
  await owner.follow('button', 'Create key');
  assert.match(await owner.text('Your new key'), /^fg_api_\w+$/);
  await examineOnce(owner, 'owner-created-key');
  await owner.follow('link', 'I have copied it');
  await owner.reads('$0.25');
  await owner.follow('link', 'Settings');
  await owner.fill('Label', `${label}, edited`);
  await owner.fill('Limit (USD)', '25');
  await owner.follow('button', 'Save');
  await owner.reads('$25.00');
  await owner.visit('/dashboard/keys');
  await owner.fill('Search', `${label}, ed`);
  await owner.follow('button', 'Apply');
  await owner.follow('link', `${label}, edited`);
  await owner.follow('link', 'Settings');
  await owner.follow('link', 'Duplicate');
  assert.equal(await (await owner.field('Label')).evaluate((e) => e.value), `${label}, edited (copy)`);
  assert.equal(await (await owner.field('Limit (USD)')).evaluate((e) => e.value), '25');
  await owner.follow('button', 'Add a limit');
  await owner.fill('Limit 2 (USD)', '1');
  await owner.page.goBack();
  await owner.page.goBack();
  await owner.follow('link', 'Revoke');
  await owner.reads('cannot be undone');
  await owner.follow('button', 'Revoke');
  await owner.reads('revoked');
}

/** Creates and revokes a management key. */
export async function keepsAManagementKey(owner, { width, theme }) {
  const name = `Made at ${width} ${theme} ${owner.scripts}`;
  await owner.look(width, theme);
  await owner.visit('/dashboard/management-keys');
  await owner.fill('Name', name);
  await owner.follow('button', 'Create management key');
  assert.match(await owner.text('Your new key'), /^fg_mgmt_\w+$/);
  await examineOnce(owner, 'owner-created-management-key');
  await owner.follow('link', 'I have copied it');
  await owner.follow('link', `Revoke ${name}`);
  await examineOnce(owner, 'owner-revoke-management-key');
  await owner.follow('button', 'Revoke');
  assert.deepEqual(await owner.all('link', `Revoke ${name}`), []);
}

/** Creates, tests, disables and deletes a webhook. */
export async function keepsAWebhook(owner, { width, theme }) {
  const url = `http://127.0.0.1:9/hooks/of-the-billing-system/${width}-${theme}-${owner.scripts}/events?source=faregate&environment=production`;
  await owner.look(width, theme);
  await owner.visit('/dashboard/webhooks');
  await owner.fill('URL', 'https://10.0.0.1/hook');
  await owner.follow('button', 'Create webhook', 422);
  await owner.reads('The host resolves to an address that is not public.');
  await examineOnce(owner, 'owner-wrong-webhook');
  await owner.fill('URL', url);
  await owner.follow('button', 'Create webhook');
  assert.match(await owner.text('Your new secret'), /^whsec_[\w+/]+=*$/);
  await examineOnce(owner, 'owner-created-webhook');
  await owner.follow('link', 'I have copied it');
  await owner.reads('Nothing has been sent yet');
  await owner.follow('button', 'Send a test');
  await owner.follow('button', 'Disable');
  await owner.reads('Nothing is sent.');
  await examineOnce(owner, 'owner-disabled-webhook');
  await owner.visit('/dashboard/webhooks');
  const cut = await owner.page.$$eval('.scroll', (all) => all.filter((e) => e.scrollWidth > e.clientWidth).length);
  assert.equal(cut, 0, `the list is cut at ${width}`);
  await owner.follow('link', url);
  await owner.follow('link', 'Delete');
  await examineOnce(owner, 'owner-delete-webhook');
  await owner.follow('button', 'Delete');
  assert.deepEqual(await owner.all('link', url), []);
}

/** Invites, promotes and removes a member. */
export async function keepsMembers(owner, { width, theme }) {
  const name = `${width}-${theme}-${owner.scripts}@example.com`;
  await owner.look(width, theme);
  await owner.visit('/dashboard/members');
  await owner.fill('Name', name);
  await owner.follow('button', 'Invite');
  assert.ok((await owner.text('Sign-in link')).startsWith(`${owner.origin}/dashboard/sign-in/link#`));
  await examineOnce(owner, 'owner-invited');
  await owner.follow('link', 'Back to the members');
  for (const role of ['owner', 'viewer']) {
    await owner.follow('link', name);
    await examineOnce(owner, 'owner-member');
    await owner.follow('link', 'Change role …');
    await owner.fill('Role', role);
    await examineOnce(owner, 'owner-change-role');
    await owner.follow('button', 'Change role');
    await owner.reads(`is now ${role === 'owner' ? 'an owner' : 'a viewer'}`);
    await owner.visit('/dashboard/members');
  }
  await owner.follow('link', name);
  await owner.follow('link', 'Remove …');
  await examineOnce(owner, 'owner-remove-member');
  await owner.follow('button', 'Remove member');
  await owner.reads('was removed');
  assert.deepEqual(await owner.all('link', name), []);
}

/** Looks up what was spent, on a page and in files. */
export async function findsActivity(person, label, { width, theme }) {
  await person.look(width, theme);
  await person.visit('/dashboard');
  await person.reads(label);
  await person.visit('/dashboard/activity');
  await person.fill('Model', 'Model Max');
  await person.follow('button', 'Apply');
  await person.reads(label);
  const cookie = (await person.context.cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');
  for (const [name, kind] of [['Export CSV', 'text/csv'], ['Export JSON', 'application/']]) {
    const path = await (await person.the('link', name)).evaluate((link) => link.href);
    const file = await fetch(path, { headers: { cookie } });
    assert.ok(file.ok && file.headers.get('content-type').startsWith(kind), `${path}: ${file.status}`);
    assert.ok((await file.text()).includes('Model Max'));
  }
  await person.visit('/dashboard/credit');
  await person.reads('Available');
}

