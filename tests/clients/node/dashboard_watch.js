/** Checks that the watch over pages notices faults, and that slowly loading pages do not shift. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Person } from './browser.js';
import { fact } from './facts.js';

const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: http://127.0.0.2:9";
const ASSET = '/dashboard/assets/late.js';
/** Pages with a fault, and the expected message. Paths must not match the messages. */
const BAD = {
  '/one': [`<p>first</p><script src="${ASSET}"></script>`, / shifts/],
  '/two': ['<main><svg width="3000" height="9"></svg></main>', /wider than the window/],
  '/three': ['<script>alert(1)</script>', /Content Security Policy/],
  '/four': ['<img src="http://127.0.0.2:9/x.png" alt="">', /127\.0\.0\.2/],
  '/five': ['<img src="/other.svg" alt="">', /loads .*other\.svg/],
};
/** Most visits until a fault must be noticed. */
const VISITS = 4;
/** Moves content that is already painted. */
const SHIFTING = `requestAnimationFrame(() => requestAnimationFrame(() => {
  document.body.prepend(Object.assign(document.createElement('div'), { textContent: 'late', id: 'late' }));
  document.querySelector('#late').style.height = '300px';
}));`;

/** Serves the pages, and assets that may not be cached. */
function answer({ url }, response) {
  const [kind, body] = url === ASSET ? ['text/javascript', SHIFTING]
    : url.endsWith('.svg') ? ['image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg"/>']
    : ['text/html', `<!doctype html><html lang="en"><title>x</title><link rel="icon" href="data:,"><body>${BAD[url]?.[0] ?? '<p>plain</p>'}`];
  response.writeHead(200, { 'content-type': kind, 'content-security-policy': POLICY, 'cache-control': 'no-store' }).end(body);
}

/** Adds facts about the watch itself. */
export function addWatch(browser) {
  fact('a page that shifts, overflows, breaks its policy or loads more than it may is noticed', async () => {
    const server = createServer(answer).listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const origin = `http://127.0.0.1:${server.address().port}`;
      const heard = async (path) => {
        const person = await Person.at(browser, origin);
        return person.visit(path).then(() => 'sound', ({ message }) => message);
      };
      for (const [path, [, said]] of Object.entries(BAD)) {
        let words = await heard(path);
        // On a busy machine nothing may be painted before the shift. Then nothing shifts.
        for (let more = VISITS - 1; more > 0 && words === 'sound'; more -= 1) words = await heard(path);
        assert.match(words, said, path);
      }
      const person = await Person.at(browser, origin);
      await person.visit('/plain');
      assert.ok((await person.violations()).length > 0, 'axe-core judges a page without landmarks and headings');
      await assert.rejects(person.visit('/plain', 404), /one document/);
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });
}

/** Bytes that a slow connection delivers at once, and the pause before the next ones. */
const SLICE = 250;
const PAUSE_MS = 25;

/** Forwards a stream in slices. */
async function inSlices(from, to) {
  for await (const bytes of from) {
    for (let at = 0; at < bytes.length; at += SLICE) {
      to.write(bytes.subarray(at, at + SLICE));
      await sleep(PAUSE_MS);
    }
  }
  to.end();
}

/** Opens a slow proxy to an address. Returns its origin, and a function that closes it. */
async function slowLineTo({ hostname, port }) {
  const open = new Set();
  const line = createTcpServer({ noDelay: true }, (client) => {
    const server = connect({ host: hostname, port, noDelay: true });
    const ends = [client, server];
    for (const end of ends) {
      open.add(end);
      end.on('error', () => ends.forEach((other) => other.destroy())).on('close', () => open.delete(end));
    }
    client.pipe(server);
    inSlices(server, client).catch(() => client.destroy());
  }).listen(0, '127.0.0.1');
  await once(line, 'listening');
  const end = () => {
    line.close();
    open.forEach((socket) => socket.destroy());
  };
  return [`http://127.0.0.1:${line.address().port}`, end];
}

/** Adds facts about pages on a slow connection. */
export function addSlowLine(browser, owner, paths, widths) {
  fact('nothing moves while a slow line brings a page', async () => {
    const [origin, end] = await slowLineTo(new URL(owner.origin));
    try {
      const person = await Person.at(browser, origin);
      await person.context.setCookie(...await owner.context.cookies());
      for (const width of widths) {
        await person.look(width, 'light');
        for (const path of paths) await person.visit(path);
      }
      await person.context.close();
    } finally {
      end();
    }
  });
}
