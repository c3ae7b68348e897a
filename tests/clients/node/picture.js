// Takes the README's picture of the dashboard: uses `faregate` on several days, then takes a screenshot of its Overview. The
// days pass on a fake clock (libfaketime, which tests/tools/install.sh installs).
//   node picture.js PROGRAM PICTURE

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from './browser.js';

const [program, picture] = process.argv.slice(2);
/** Requests of each key on each day; the last day is today. */
const KEYS = {
  'Research team': [0, 2, 3, 2, 4, 1, 0, 3, 4, 5, 3, 4, 2, 3],
  'Support bot': [1, 1, 2, 2, 2, 2, 1, 2, 3, 2, 3, 3, 2, 2],
  'Nightly batch': [0, 0, 1, 1, 1, 0, 0, 1, 2, 1, 1, 1, 0, 1],
  Trial: [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1],
};
const DAYS = KEYS.Trial.length;
const QUESTIONS = ['What is an API key?', 'My requests get 402, what should I do?', 'Tell me a story.'];

/** Makes the environment of a process that reads its clock from this file. */
function withClock(file) {
  const libraries = readdirSync('/usr/lib').map((folder) => `/usr/lib/${folder}/faketime/libfaketimeMT.so.1`);
  const library = libraries.find((path) => existsSync(path));
  if (!library) throw new Error('there is no libfaketime: run tests/tools/install.sh, or `apt-get install faketime`');
  const clock = { FAKETIME_TIMESTAMP_FILE: file, FAKETIME_NO_CACHE: '1', FAKETIME_DONT_FAKE_MONOTONIC: '1' };
  return { ...process.env, ...clock, DONT_FAKE_MONOTONIC: '1', LD_PRELOAD: library };
}

/** Sets the clock to some days ago. Replaces the file atomically, since the process may read it at any time. */
function setClock(file, days) {
  writeFileSync(`${file}.new`, `-${days * 24 * 3600}s\n`);
  renameSync(`${file}.new`, file);
}

/** Waits for the complete output of the first run. */
function firstRun(server) {
  return new Promise((resolve) => {
    let printed = '';
    server.stdout.on('data', (piece) => {
      printed += piece;
      if (printed.includes('# what it cost')) resolve(printed);
    });
  });
}

async function post(url, credential, body) {
  const headers = { authorization: `Bearer ${credential}`, 'content-type': 'application/json' };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response.json();
}

async function use(base, managementKey, clock) {
  const keys = {};
  for (const label of Object.keys(KEYS)) {
    keys[label] = (await post(`${base}/v1/management/keys`, managementKey, { label, limit: 5 })).key;
  }
  let n = 0;
  for (let day = 0; day < DAYS; day += 1) {
    setClock(clock, DAYS - 1 - day);
    for (const [label, requests] of Object.entries(KEYS)) {
      for (let request = 0; request < requests[day]; request += 1) {
        const messages = [{ role: 'user', content: QUESTIONS[n % QUESTIONS.length] }];
        const model = n % 3 === 2 ? 'Model Max' : 'Model Flash';
        await post(`${base}/v1/chat/completions`, keys[label], { model, messages });
        n += 1;
      }
    }
  }
}

async function photograph(base, link) {
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.setViewport({ width: 1280, height: 860 });
    await page.goto(link);
    const button = await page.waitForSelector('::-p-aria([name="Sign in"][role="button"])');
    await Promise.all([page.waitForNavigation(), button.click()]);
    await page.goto(`${base}/dashboard`);
    await page.screenshot({ path: picture });
  } finally {
    await browser.close();
  }
}

async function main() {
  const folder = mkdtempSync(join(tmpdir(), 'faregate-picture-'));
  const anywhere = ['--listen', '--admin-listen', '--key-http-listen', '--key-grpc-listen'];
  const flags = anywhere.flatMap((flag) => [flag, '127.0.0.1:0']);
  const clock = join(folder, 'clock');
  setClock(clock, DAYS - 1);
  const server = spawn(program, flags, { cwd: folder, env: withClock(clock), stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    const printed = await firstRun(server);
    const [base] = /http:\S+/.exec(printed);
    await use(base, /MANAGEMENT_KEY=(\S+)/.exec(printed)[1], clock);
    // The link from the first run has expired by now.
    const link = execFileSync(program, ['sign-in-link', '--account', 'default'], { cwd: folder, encoding: 'utf8' });
    await photograph(base, `${base}/dashboard/sign-in/link${/#\S+/.exec(link)[0]}`);
  } finally {
    server.kill();
    rmSync(folder, { recursive: true });
  }
}

await main();
