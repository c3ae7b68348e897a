// Takes the README's picture of the dashboard: a first run of `faregate` is used a little, and its Overview photographed.
//   node picture.js PROGRAM PICTURE

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from './browser.js';

const [program, picture] = process.argv.slice(2);
const KEYS = { 'Research team': 9, 'Support bot': 6, 'Nightly batch': 4, Trial: 1 };
const QUESTIONS = ['What is an API key?', 'My requests get 402, what should I do?', 'Tell me a story.'];

/** What the first run prints, once all of it is there. */
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

async function use(base, managementKey) {
  for (const [label, requests] of Object.entries(KEYS)) {
    const { key } = await post(`${base}/v1/management/keys`, managementKey, { label, limit: 5 });
    for (let n = 0; n < requests; n += 1) {
      const messages = [{ role: 'user', content: QUESTIONS[n % QUESTIONS.length] }];
      const model = n % 3 === 2 ? 'Model Max' : 'Model Flash';
      await post(`${base}/v1/chat/completions`, key, { model, messages });
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
  const server = spawn(program, flags, { cwd: folder, stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    const printed = await firstRun(server);
    const [base] = /http:\S+/.exec(printed);
    await use(base, /MANAGEMENT_KEY=(\S+)/.exec(printed)[1]);
    await photograph(base, /http\S+\?link=\S+/.exec(printed)[0]);
  } finally {
    server.kill();
    rmSync(folder, { recursive: true });
  }
}

await main();
