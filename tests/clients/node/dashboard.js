/** The dashboard in a real browser: every page, wide and narrow, light and dark, with scripts and without. */

import assert from 'node:assert/strict';
import { launch, Person } from './browser.js';
import { examineOnce, findsActivity, keepsAKey, keepsAManagementKey, keepsAWebhook, keepsMembers } from './dashboard_acts.js';
import { addSecondFactor } from './dashboard_factor.js';
import { addOperator } from './dashboard_operator.js';
import { addCopying, addForms, addLists, addOverview, addPreferences, addSessions, addTryIt } from './dashboard_scripts.js';
import { addSlowLine, addWatch } from './dashboard_watch.js';
import { fact, makeGroup, makeKey, part, run, setting } from './facts.js';

const { origin } = new URL(setting('BASE_URL'));
// Sign-in links: for an owner and a viewer of an account with some spend on a key labelled `Customer A`, and for an owner of
// an empty account.
const [ownerLink, viewerLink, emptyLink] = ['OWNER_LINK', 'VIEWER_LINK', 'EMPTY_LINK'].map(setting);
// For the lead of a group that has a key with some spend.
const leadLink = setting('LEAD_LINK');
// For an operator without a second factor.
const operatorLink = setting('OPERATOR_LINK');
const KEY = 'Customer A';
const WIDTHS = [375, 1280];
/** A width between these. */
const MIDDLE = 768;
/** Narrowest window in which everything must fit. */
const NARROWEST = 320;
const THEMES = ['light', 'dark'];
/** Settings for actions. Both widths and both themes once; pages are checked in all four combinations. */
const SCENES = [{ width: 375, theme: 'dark' }, { width: 1280, theme: 'light' }];
const PASSWORD = 'four quiet words here';
/** Name in the navigation, address, and name for pictures. */
const SECTIONS = [
  ['Overview', '/dashboard', 'overview'],
  ['API keys', '/dashboard/keys', 'keys'],
  ['Groups', '/dashboard/groups', 'groups'],
  ['Management keys', '/dashboard/management-keys', 'management-keys'],
  ['Requests', '/dashboard/activity', 'requests'],
  ['Models', '/dashboard/models', 'models'],
  ['Credit', '/dashboard/credit', 'credit'],
  ['Members', '/dashboard/members', 'members'],
  ['Events', '/dashboard/events', 'events'],
  ['Alerts', '/dashboard/alerts', 'alerts'],
  ['Webhooks', '/dashboard/webhooks', 'webhooks'],
  ['Try it', '/dashboard/try-it', 'try-it'],
];
/** Entries of a lead's navigation. */
const OF_A_LEAD = ['Requests', 'Models', 'Try it', 'API keys', 'Groups', 'Events'];
/** Elements that change the account or lead to a change, and the pages that have them. */
// Everyone may mute their own alarms.
const CHANGES = 'main form[method="post"]:not([role="search"]):not([action^="/dashboard/alarms/"]), main a[href$="/revoke"], main a[href$="/remove"], main a[href$="/delete"], main a[href$="/new"]';
const CHANGING = [
  '/dashboard/keys', '/dashboard/keys/new', '/dashboard/management-keys', '/dashboard/members', '/dashboard/webhooks', '/dashboard/alerts', KEY,
];

const browser = await launch();
addWatch(browser);
const owner = await Person.at(browser, origin);
const viewer = await Person.at(browser, origin);
const newcomer = await Person.at(browser, origin);

const pathOf = (person) => new URL(person.page.url()).pathname;
const inScenes = async (act) => { for (const scene of SCENES) await act(scene); };

/** Reloads the open page at both widths, and checks it in both themes and at two more widths. */
async function examine(person, name, status = 200) {
  const { pathname, search } = new URL(person.page.url());
  const wrong = [];
  for (const width of WIDTHS) {
    await person.look(width, 'light');
    await person.visit(pathname + search, status);
    await person.picture(name);
    wrong.push(...await person.violations());
    await person.look(width, 'dark');
    await person.picture(name);
    wrong.push(...await person.wrongColours());
  }
  for (const width of [NARROWEST, MIDDLE]) {
    for (const theme of THEMES) {
      await person.look(width, theme);
      await person.fits();
      await person.picture(name);
    }
    if (width === MIDDLE) wrong.push(...await person.violations());
  }
  assert.deepEqual(wrong, [], pathname);
}

/** Opens a sign-in link and confirms it. */
async function signIn(person, link, account, name) {
  await person.openLink(link);
  await person.visit('/dashboard');
  assert.equal(pathOf(person), '/dashboard/sign-in', 'opening the link signs nobody in');
  await person.openLink(link);
  await person.reads(`signs in ${name} of the account ${account}`);
  await examineOnce(person, 'sign-in-whom');
  await person.follow('button', 'Sign in');
  assert.equal(pathOf(person), '/dashboard');
}

/** Opens the page of the key with spend, or a part of it. */
const openKey = async (person, part = '') => {
  await person.visit('/dashboard/keys');
  await person.follow('link', KEY);
  if (part) await person.visit(`${pathOf(person)}/${part}`);
};

fact('a link signs in after a click, without scripts as well', async () => {
  await owner.allow(false);
  await signIn(owner, ownerLink, setting('ACCOUNT'), 'owner');
  await owner.allow(true);
  await signIn(viewer, viewerLink, setting('ACCOUNT'), 'viewer@example.com');
  await signIn(newcomer, emptyLink, 'empty', 'owner');
});

part('pages');
fact('the pages that sign in are sound', async () => {
  const stranger = await Person.at(browser, origin);
  await stranger.visit('/dashboard/sign-in');
  await examine(stranger, 'sign-in');
  await stranger.visit('/dashboard/sign-in/link');
  await examine(stranger, 'sign-in-link');
  await stranger.fill('Code', 'used');
  await stranger.follow('button', 'Continue', 403);
  await examineOnce(stranger, 'sign-in-refused');
});

for (const [role, person, pictures] of [['an owner', owner, 'owner'], ['a viewer', viewer, 'viewer'], ['a newcomer', newcomer, 'empty']]) {
  for (const [name, path, picture] of SECTIONS) {
    fact(`${name} is sound for ${role}, wide and narrow, light and dark`, async () => {
      await person.look(1280, 'light');
      await person.visit('/dashboard');
      const link = `nav.main ::-p-aria([name="${name}"][role="link"])`;
      await Promise.all([person.page.waitForNavigation(), person.page.click(link)]);
      assert.equal(pathOf(person), path);
      assert.equal(await person.page.$eval(link, (chosen) => chosen.getAttribute('aria-current')), 'page');
      await examine(person, `${pictures}-${picture}`);
    });
  }
}

fact('the pages of a lead are sound, and there are no others', async () => {
  const lead = await Person.at(browser, origin);
  await lead.openLink(leadLink);
  await lead.follow('button', 'Sign in');
  assert.match(pathOf(lead), /^\/dashboard\/groups\/grp_/);
  await examine(lead, 'lead-group');
  const listed = await lead.page.$$eval('nav.main a', (all) => all.map((link) => link.textContent));
  assert.deepEqual(listed, OF_A_LEAD);
  for (const [, path, picture] of SECTIONS.filter(([name]) => OF_A_LEAD.includes(name))) {
    await lead.visit(path);
    await examine(lead, `lead-${picture}`);
  }
  await lead.visit('/dashboard/credit', 403);
  await examine(lead, 'lead-refused', 403);
  await lead.context.close();
});

fact('every page is sound without scripts', async () => {
  await owner.allow(false);
  for (const [, path, picture] of SECTIONS) {
    for (const width of [NARROWEST, MIDDLE, ...WIDTHS]) {
      await owner.look(width, 'light');
      await owner.visit(path);
      await owner.picture(`plain-${picture}`);
    }
  }
  await owner.allow(true);
});

for (const [role, person] of [['owner', owner], ['viewer', viewer]]) {
  fact(`the page of a key, and of the member, are sound for ${role}s`, async () => {
    await openKey(person);
    assert.ok(pathOf(person).startsWith('/dashboard/keys/ak_'));
    await person.reads('Used');
    await examine(person, `${role}-key`);
    for (const part of ['requests', 'settings', 'use']) {
      await openKey(person, part);
      await examine(person, `${role}-key-${part}`);
    }
    await person.visit('/dashboard/you');
    await examine(person, `${role}-you`);
    await person.visit('/dashboard/you/second-factor');
    await person.reads('Or enter the secret by hand:');
    await examine(person, `${role}-second-factor`);
  });
}

fact('the page of a group, and what is found, are sound', async () => {
  const { id } = await makeGroup({ name: 'Team A', limits: [{ amount: 20, per: 'month' }] });
  await makeKey({ label: 'Of Team A', group_id: id, models: ['Model Flash', 'of later'] });
  for (const part of ['', '/requests', '/settings', '/use']) {
    await owner.visit(`/dashboard/groups/${id}${part}`);
    await examine(owner, `owner-group${part.replace('/', '-')}`);
  }
  await owner.look(1280, 'light');
  for (const width of [375, 1280]) {
    await owner.look(width, 'light');
    await owner.visit('/dashboard/groups');
    await owner.page.keyboard.press('/');
    assert.equal(await owner.page.evaluate(() => document.activeElement.name), 'q', `/ leads to the box at ${width}`);
  }
  await owner.fill('Find', 'Team A');
  await owner.follow('button', 'Go');
  await owner.reads('Of Team A');
  await examine(owner, 'owner-found');
  await owner.look(1280, 'light');
  await owner.fill('Find', id);
  await owner.follow('button', 'Go');
  assert.equal(pathOf(owner), `/dashboard/groups/${id}`);
  await owner.visit('/dashboard/keys?order=asc');
  await owner.fill('Group', id);
  await owner.follow('button', 'Apply');
  await owner.follow('link', 'Of Team A');
});

fact('pages that ask first, and those that have nothing to show, are sound', async () => {
  await owner.visit('/dashboard/keys/new');
  await examine(owner, 'owner-new-key');
  await openKey(owner, 'settings');
  await owner.follow('link', 'Rotate');
  await examine(owner, 'owner-rotate-key');
  await openKey(owner, 'settings');
  await owner.follow('link', 'Revoke');
  await examine(owner, 'owner-revoke-key');
  await owner.visit('/dashboard/keys');
  await (await owner.field('Select all on this page')).click();
  const boxes = await owner.page.$$eval('[name="key"]', (all) => all.map((box) => box.checked));
  assert.ok(boxes.length > 1 && boxes.every(Boolean), 'all rows are chosen');
  await owner.follow('button', 'Revoke …');
  await owner.reads(`Revoke ${boxes.length} API keys?`);
  for (const order of ['asc', 'spent', 'used']) {
    await owner.visit(`/dashboard/keys?order=${order}`);
    await owner.reads(KEY);
  }
  await owner.visit('/dashboard?by=key');
  await owner.reads('$');
  await examine(owner, 'owner-overview-by-key');
  await owner.visit('/dashboard?show=tokens&days=90');
  await examine(owner, 'owner-overview-tokens');
  await owner.visit('/dashboard?by=group&range=last-month&against=year');
  await examine(owner, 'owner-overview-by-group');
  await owner.visit(`/dashboard/credit/${new Date().toISOString().slice(0, 7)}`);
  await owner.reads('Total charged');
  await examine(owner, 'owner-statement');
  await owner.visit('/dashboard/activity');
  await owner.visit(await owner.page.$eval('tbody td a[href*="/activity/gen_"]', (link) => new URL(link.href).pathname));
  await owner.reads('Billed exactly');
  await examine(owner, 'owner-generation');
  await owner.visit('/dashboard/margin?by=key');
  await owner.reads(KEY);
  await examine(owner, 'owner-margin');
  await viewer.visit('/dashboard/margin', 403);
  await viewer.reads('Only owners can do this');
  await owner.visit('/dashboard/keys?q=nothing+has+this+label');
  await examine(owner, 'owner-no-key');
  await owner.visit('/dashboard/activity?outcome=refused&from=');
  await owner.reads('refused');
  await examine(owner, 'owner-refused');
  await owner.visit('/dashboard/activity?to=2020-01-01');
  await examine(owner, 'owner-no-activity');
  await owner.visit('/dashboard/nothing', 404);
  await examine(owner, 'owner-not-found', 404);
});

fact('viewers are offered nothing that changes something, and owners are', async () => {
  for (const path of [...SECTIONS.map(([, section]) => section), '/dashboard/keys/new', KEY]) {
    const offered = await Promise.all([viewer, owner].map(async (person) => {
      await (path === KEY ? openKey(person, 'settings') : person.visit(path));
      return person.page.$$eval(CHANGES, (all) => all.length);
    }));
    assert.equal(offered[0], 0, `a viewer on ${path}`);
    if (CHANGING.includes(path)) assert.ok(offered[1] > 0, `an owner on ${path}`);
  }
});

addSlowLine(browser, owner, SECTIONS.map(([, path]) => path), WIDTHS);

part('acts');
for (const scripts of [false, true]) {
  const how = scripts ? 'with scripts' : 'without scripts';
  fact(`an owner creates, edits and revokes keys, ${how}`, async () => {
    await owner.allow(scripts);
    await inScenes((scene) => keepsAKey(owner, scene));
  });
  fact(`an owner creates and revokes management keys, ${how}`, () => inScenes((scene) => keepsAManagementKey(owner, scene)));
  fact(`an owner creates, tests and deletes webhooks, ${how}`, () => inScenes((scene) => keepsAWebhook(owner, scene)));
  fact(`an owner invites and removes members, ${how}`, () => inScenes((scene) => keepsMembers(owner, scene)));
  fact(`an owner and a viewer find what was spent, ${how}`, async () => {
    await viewer.allow(scripts);
    for (const person of [owner, viewer]) await inScenes((scene) => findsActivity(person, KEY, scene));
  });
}

addForms(owner);
addCopying(owner);
addOverview(owner);
addTryIt(viewer, SCENES, examineOnce);
addPreferences(owner, SECTIONS.map(([, path]) => path));
addLists(owner, examine);
addSecondFactor(owner, () => Person.at(browser, origin), setting('ACCOUNT'));
addOperator(() => Person.at(browser, origin), operatorLink, setting('ACCOUNT'), examine);
addSessions(owner, () => Person.at(browser, origin), setting('ACCOUNT'), PASSWORD);

await run();
await browser.close();
