/** Behaviour of Faregate as applications see it through the official Node SDK. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';
import { CursorPage } from 'openai/pagination';
import { collect, fact, raises, run, setting } from './facts.js';

const baseURL = setting('BASE_URL');
const client = new OpenAI({ baseURL, apiKey: setting('API_KEY') });
const management = new OpenAI({ baseURL, apiKey: setting('MANAGEMENT_KEY') });
const MODEL = (await client.models.list()).data[0].id;
/** A request without sampling, so that two answers to it are the same. */
const QUESTION = {
  model: MODEL,
  messages: [{ role: 'user', content: 'What is a spend limit?' }],
  temperature: 0,
  max_tokens: 24,
};
/** Time until an abandoned request is billed. No response waits for that. */
const SETTLED_WITHIN_MS = 10_000;

/** Converts USD to nano-USD, in which Faregate bills: every amount here is a whole number of them. */
const nanos = (usd) => Math.round(usd * 1e9);

const ask = (caller, changes) => caller.chat.completions.create({ ...QUESTION, ...changes });

/** Calls `use` with a new API key and its client, and revokes the key afterwards. */
async function withKey(fields, use) {
  const key = await management.post('/management/keys', { body: { label: 'clients: node', ...fields } });
  try {
    return await use(new OpenAI({ baseURL, apiKey: key.key }), key);
  } finally {
    await management.delete(`/management/keys/${key.id}`);
  }
}

const usedNanos = async (key) => nanos((await management.get(`/management/keys/${key.id}`)).used);

const text = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');

// Answers

fact('the models are listed and found by name', async () => {
  const listed = await collect(client.models.list());
  assert(listed.some((model) => model.id === MODEL));
  const model = await client.models.retrieve(MODEL);
  assert.deepEqual([model.id, model.object], [MODEL, 'model']);
});

fact('a whole answer has text, usage and ids', async () => {
  const { data: answer, response, request_id: requestId } = await ask(client).withResponse();
  assert.deepEqual([answer.model, answer.object], [MODEL, 'chat.completion']);
  assert.match(answer.id, /^gen_[0-9a-f]{32}$/);
  assert.equal(answer.id, response.headers.get('x-generation-id'));
  assert.match(requestId, /^req_[0-9a-f]{32}$/);
  assert.equal(answer._request_id, requestId);
  const { choices, usage } = answer;
  assert.equal(choices[0].message.role, 'assistant');
  assert(choices[0].message.content);
  assert(['stop', 'length'].includes(choices[0].finish_reason));
  assert(usage.completion_tokens > 0 && usage.completion_tokens <= QUESTION.max_tokens);
  assert.equal(usage.prompt_tokens + usage.completion_tokens, usage.total_tokens);
  assert.equal(typeof usage.prompt_tokens_details.cached_tokens, 'number');
});

fact('a whole answer is billed exactly what it says', () =>
  withKey({ limit: 1 }, async (caller, key) => {
    const first = nanos((await ask(caller)).usage.cost);
    assert(first > 0);
    assert.equal(await usedNanos(key), first);
    const second = nanos((await ask(caller)).usage.cost);
    assert.equal(await usedNanos(key), first + second);
  }));

fact('a stream has the same text as a whole answer, and no usage', async () => {
  const [whole] = (await ask(client)).choices;
  const chunks = await collect(await ask(client, { stream: true }));
  assert.equal(text(chunks), whole.message.content);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(new Set(chunks.map((chunk) => `${chunk.id} ${chunk.created} ${chunk.model}`)).size, 1);
  const reasons = chunks.map((chunk) => chunk.choices[0].finish_reason).filter(Boolean);
  assert.deepEqual(reasons, [whole.finish_reason]);
  assert(!chunks.some((chunk) => 'usage' in chunk));
});

fact('a stream with include_usage ends with its usage, and is billed exactly that', () =>
  withKey({ limit: 1 }, async (caller, key) => {
    const chunks = await collect(await ask(caller, { stream: true, stream_options: { include_usage: true } }));
    const last = chunks.pop();
    assert(chunks.every((chunk) => chunk.usage === null));
    assert.deepEqual(last.choices, []);
    assert(nanos(last.usage.cost) > 0);
    assert.equal(await usedNanos(key), nanos(last.usage.cost));
  }));

fact('the stream helper gathers the whole answer', async () => {
  const stream = client.chat.completions.stream({ ...QUESTION });
  const gathered = await stream.finalContent();
  assert.equal(gathered, (await ask(client)).choices[0].message.content);
});

fact('leaving a stream early is billed, but less than reading it to the end', () =>
  withKey({ limit: 1 }, async (caller, key) => {
    const full = nanos((await ask(caller)).usage.cost);
    for await (const chunk of await ask(caller, { stream: true })) if (text([chunk])) break;
    const deadline = Date.now() + SETTLED_WITHIN_MS;
    let spent = 0;
    while (spent === 0 && Date.now() < deadline) {
      await sleep(50);
      spent = (await usedNanos(key)) - full;
    }
    assert(spent > 0 && spent <= full, `${spent} of ${full}`);
  }));

// Errors

fact('a wrong key is an AuthenticationError', async () => {
  const wrong = new OpenAI({ baseURL, apiKey: `fg_api_${'0'.repeat(49)}` });
  const error = await raises(OpenAI.AuthenticationError, ask(wrong));
  assert.deepEqual([error.status, error.code, error.type], [401, 'invalid_api_key', 'authentication_error']);
  assert.match(error.requestID, /^req_/);
});

fact('an unknown model is a NotFoundError that names the known ones', async () => {
  const error = await raises(OpenAI.NotFoundError, ask(client, { model: 'nobody' }));
  assert.deepEqual([error.code, error.type], ['model_not_found', 'invalid_request_error']);
  assert(error.error.valid_models.includes(MODEL));
  await raises(OpenAI.NotFoundError, client.models.retrieve('nobody'));
});

fact('a bad value is a BadRequestError that names its place', async () => {
  const fault = async (changes) => {
    const error = await raises(OpenAI.BadRequestError, ask(client, changes));
    return [error.code, error.param];
  };
  assert.deepEqual(await fault({ temperature: 3 }), ['decimal_above_max_value', 'temperature']);
  assert.deepEqual(await fault({ max_tokens: 0 }), ['integer_below_min_value', 'max_tokens']);
  assert.deepEqual(await fault({ messages: [] }), ['empty_array', 'messages']);
  assert.deepEqual(await fault({ stream: 'yes' }), ['invalid_type', 'stream']);
  const content = [{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }];
  const [, place] = await fault({ messages: [{ role: 'user', content }] });
  assert.equal(place, 'messages[0].content[0].image_url.url');
});

fact('a stream that is refused throws before it begins', async () => {
  await raises(OpenAI.BadRequestError, ask(client, { temperature: 3, stream: true }));
});

fact('each kind of key is refused where the other kind belongs', async () => {
  let error = await raises(OpenAI.PermissionDeniedError, ask(management));
  assert.equal(error.code, 'management_key_not_allowed');
  error = await raises(OpenAI.PermissionDeniedError, client.get('/management/keys'));
  assert.equal(error.code, 'management_key_required');
});

fact('expired, spent and revoked keys get different errors', async () => {
  await withKey({ expires_at: '2020-01-01T00:00:00Z' }, async (caller) => {
    assert.equal((await raises(OpenAI.AuthenticationError, ask(caller))).code, 'key_expired');
  });
  await withKey({ limit: 0 }, async (caller) => {
    const error = await raises(OpenAI.APIError, ask(caller));
    assert.deepEqual([error.status, error.code], [402, 'key_limit_reached']);
  });
  const revoked = await withKey({}, (caller) => caller);
  assert.equal((await raises(OpenAI.AuthenticationError, ask(revoked))).code, 'invalid_api_key');
});

fact('changing a revoked key is a ConflictError that is not tried again', async () => {
  const key = await withKey({}, (_, key) => key);
  let attempts = 0;
  const counting = (...call) => {
    attempts += 1;
    return fetch(...call);
  };
  const change = management.withOptions({ fetch: counting }).patch(`/management/keys/${key.id}`, { body: { label: 'late' } });
  assert.equal((await raises(OpenAI.ConflictError, change)).code, 'key_revoked');
  assert.equal(attempts, 1);
});

// Management

fact('the cursor pager walks all keys, newest first', async () => {
  const label = `clients: pages ${randomUUID()}`;
  const made = [];
  for (let i = 0; i < 5; i++) made.push((await management.post('/management/keys', { body: { label } })).id);
  const walked = await collect(management.getAPIList('/management/keys', CursorPage, { query: { limit: 2 } }));
  assert.equal(new Set(walked.map((key) => key.id)).size, walked.length);
  const ours = walked.filter((key) => key.label === label).map((key) => key.id);
  assert.deepEqual(ours, made.toReversed());
  const everything = await management.get('/management/keys');
  assert.deepEqual(everything.data.map((key) => key.id), walked.map((key) => key.id));
  for (const id of made) assert.equal((await management.delete(`/management/keys/${id}`)).status, 'revoked');
});

fact('an unknown key is a NotFoundError', async () => {
  const error = await raises(OpenAI.NotFoundError, management.get(`/management/keys/ak_${'0'.repeat(32)}`));
  assert.equal(error.code, 'key_not_found');
});

fact('concurrent answers are the same', async () => {
  const whole = async () => (await ask(client)).choices[0].message.content;
  const streamed = async () => text(await collect(await ask(client, { stream: true })));
  const answers = await Promise.all([whole(), streamed(), streamed(), whole()]);
  assert.equal(new Set(answers).size, 1);
});

const { version } = JSON.parse(readFileSync(new URL('node_modules/openai/package.json', import.meta.url)));
console.log(`openai-node ${version} on Node ${process.versions.node}, model ${MODEL}`);
await run();
