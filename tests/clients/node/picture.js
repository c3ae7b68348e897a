// Takes the README's picture of the dashboard: the Overview of two months of sample data.
//   node picture.js FAREGATE SAMPLE_DATA PICTURE

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from './browser.js';

const [program, sampleData, picture] = process.argv.slice(2);

/** Waits until the server prints the address of its dashboard, and returns its origin. */
function served(server) {
  return new Promise((resolve, reject) => {
    let printed = '';
    server.stdout.on('data', (piece) => {
      printed += piece;
      const found = /http:\/\/127\.0\.0\.1:\d+(?=\/dashboard)/.exec(printed);
      if (found) resolve(found[0]);
    });
    server.on('exit', () => reject(new Error(`the server ended: ${printed}`)));
  });
}

async function photograph(base, link) {
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.setViewport({ width: 1280, height: 860 });
    await page.goto(link);
    const button = await page.waitForSelector('::-p-aria([name="Sign in"][role="button"])');
    await Promise.all([page.waitForNavigation(), button.click()]);
    await page.goto(`${base}/dashboard?range=30&by=top-group`);
    await page.screenshot({ path: picture });
  } finally {
    await browser.close();
  }
}

async function main() {
  const folder = mkdtempSync(join(tmpdir(), 'faregate-picture-'));
  const data = join(folder, 'data');
  execFileSync(sampleData, [data]);
  const anywhere = ['--listen', '--admin-listen', '--key-http-listen', '--key-grpc-listen'];
  const flags = [...anywhere.flatMap((flag) => [flag, '127.0.0.1:0']), '--models', join(data, 'models.toml')];
  const server = spawn(program, flags, { cwd: folder, stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    const base = await served(server);
    const link = execFileSync(program, ['sign-in-link', '--account', 'default'], { cwd: folder, encoding: 'utf8' });
    await photograph(base, `${base}/dashboard/sign-in/link${/#\S+/.exec(link)[0]}`);
  } finally {
    server.kill();
    rmSync(folder, { recursive: true });
  }
}

await main();
