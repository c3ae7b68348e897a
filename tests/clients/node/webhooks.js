/** Checks webhooks as a receiver, with the public library of the Standard Webhooks specification. */

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import OpenAI from 'openai';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';
import { fact, makeKey, run, setting } from './facts.js';

/** Older than the library tolerates. */
const TOO_OLD_MS = 6 * 60_000;

const management = new OpenAI({ baseURL: setting('BASE_URL'), apiKey: setting('MANAGEMENT_KEY') });

/** A receiver that emits each delivery. */
async function receiver() {
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    response.writeHead(204).end();
    server.emit('delivery', { headers: request.headers, body });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return server;
}

/** Creates a webhook to a receiver, and checks deliveries with the library. */
async function verifies(server) {
  const url = `http://127.0.0.1:${server.address().port}/hook`;
  const webhook = await management.post('/management/webhooks', { body: { url, types: ['key.created'] } });
  const library = new Webhook(webhook.secret);
  let next = once(server, 'delivery');
  const sent = await management.post(`/management/webhooks/${webhook.id}/test`);
  let [{ headers, body }] = await next;
  assert.deepEqual(library.verify(body, headers), sent);
  next = once(server, 'delivery');
  await makeKey();
  [{ headers, body }] = await next;
  assert.equal(library.verify(body, headers).type, 'key.created');
  const forged = body.replace('created', 'revoked');
  assert.throws(() => library.verify(forged, headers), WebhookVerificationError);
  assert.throws(() => library.verify(body, { ...headers, 'webhook-id': sent.id }), WebhookVerificationError);
  const old = new Date(Date.now() - TOO_OLD_MS);
  const late = { ...headers, 'webhook-timestamp': `${Math.floor(old / 1000)}` };
  late['webhook-signature'] = library.sign(headers['webhook-id'], old, body);
  assert.throws(() => library.verify(body, late), /too old/);
  await management.delete(`/management/webhooks/${webhook.id}`);
}

fact('the public library verifies a test and an event', async () => {
  const server = await receiver();
  try {
    await verifies(server);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

await run();
