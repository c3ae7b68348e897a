/**
 * Every error that a client may get: its class in the official Node SDK, and the number of attempts.
 *
 * All rows run at the same time, since retries wait as long as the server asks.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';
import { fact, run, scripted, setting } from './facts.js';

const [baseURL, apiKey, managementKey] = ['BASE_URL', 'API_KEY', 'MANAGEMENT_KEY'].map(setting);
// A key of an account without credit, a gateway without its key-service, and a gateway without a free slot.
const [poorKey, aloneURL, fullURL] = ['POOR_KEY', 'ALONE_URL', 'FULL_URL'].map(setting);
const MODEL = 'Model Flash';
/** Larger than the largest body that this gateway accepts. */
const TOO_LARGE = 'x'.repeat(1 << 20);
/** Time that a client may wait in addition to the server's `Retry-After`. */
const PUNCTUALITY_MS = 2_000;
/** How long the rest of a key's limit is held: longer than the attempts of all clients that need it held. */
const HELD_MS = 6_000;
const KEYS = '/management/keys';
const { APIError, AuthenticationError, BadRequestError, ConflictError, InternalServerError } = OpenAI;
const { NotFoundError, PermissionDeniedError, RateLimitError } = OpenAI;

const chat = (changes) => ({ model: MODEL, messages: [scripted()], ...changes });
const failing = (name, fault) => chat({ messages: [scripted({ tag: name, fault })] });
const upstream = (status, shape = 'nested') => failing(`node: ${status} ${shape}`, { error: { status, shape } });

/** Keys, by the reason why they are refused. */
async function prepare() {
  const manage = new OpenAI({ baseURL, apiKey: managementKey });
  const make = (fields, headers) => manage.post(KEYS, { body: { label: 'errors', ...fields }, headers });
  await make({}, { 'Idempotency-Key': 'node: errors' });
  const revoked = await make();
  await manage.delete(`${KEYS}/${revoked.id}`);
  return {
    revoked,
    disabled: await make({ disabled: true }),
    expired: await make({ expires_at: '2020-01-01T00:00:00Z' }),
    spent: await make({ limit: 0 }),
    reserved: await make({ limit: 0.0001 }),
  };
}

const keys = await prepare();
const managed = { key: managementKey, path: KEYS };

/** Status, code, class, and the differences from a valid chat request; `wait` is the `Retry-After` in seconds. */
const ONCE = [
  [401, 'missing_api_key', AuthenticationError, { headers: { Authorization: null } }],
  [401, 'invalid_authorization_header', AuthenticationError, { headers: { Authorization: 'Basic eDp5' } }],
  [401, 'invalid_api_key', AuthenticationError, { key: 'nobody' }],
  [401, 'invalid_api_key', AuthenticationError, { key: keys.revoked.key }],
  [401, 'invalid_management_key', AuthenticationError, { method: 'get', path: KEYS, key: 'nobody' }],
  [401, 'key_disabled', AuthenticationError, { key: keys.disabled.key }],
  [401, 'key_expired', AuthenticationError, { key: keys.expired.key }],
  [403, 'management_key_not_allowed', PermissionDeniedError, { key: managementKey }],
  [403, 'management_key_required', PermissionDeniedError, { method: 'get', path: KEYS }],
  [402, 'key_limit_reached', APIError, { key: keys.spent.key }],
  [402, 'insufficient_credits', APIError, { key: poorKey }],
  [400, 'invalid_json', BadRequestError, { body: '{"model": ' }],
  [400, 'invalid_json', BadRequestError, { body: '{"model": "x", "model": "y"}' }],
  [415, 'unsupported_media_type', APIError, { body: 'hi', headers: { 'Content-Type': 'text/plain' } }],
  [413, 'request_too_large', APIError, { body: chat({ user: TOO_LARGE }) }],
  [400, 'missing_required_parameter', BadRequestError, { body: { model: MODEL } }],
  [400, 'invalid_type', BadRequestError, { body: chat({ stream: 'yes' }) }],
  [400, 'invalid_value', BadRequestError, { body: chat({ reasoning_effort: 'medium' }) }],
  [400, 'integer_below_min_value', BadRequestError, { body: chat({ max_tokens: 0 }) }],
  [400, 'integer_above_max_value', BadRequestError, { body: chat({ n: 9 }) }],
  [400, 'decimal_below_min_value', BadRequestError, { body: chat({ top_p: -1 }) }],
  [400, 'decimal_above_max_value', BadRequestError, { body: chat({ temperature: 3 }) }],
  [400, 'string_above_max_length', BadRequestError, { ...managed, body: { label: 'x'.repeat(81) } }],
  [400, 'array_above_max_length', BadRequestError, { body: chat({ stop: [...'abcde'] }) }],
  [400, 'empty_array', BadRequestError, { body: chat({ messages: [] }) }],
  [400, 'empty_string', BadRequestError, { body: chat({ stop: '' }) }],
  [400, 'unsupported_parameter', BadRequestError, { body: chat({ functions: [{ name: 'f' }] }) }],
  [400, 'unsupported_value', BadRequestError, { body: chat({ modalities: ['audio'] }) }],
  [400, 'unknown_parameter', BadRequestError, { ...managed, body: { lable: 'x' } }],
  [400, 'context_length_exceeded', BadRequestError, { body: upstream(400, 'too_long') }],
  [404, 'model_not_found', NotFoundError, { body: chat({ model: 'nobody' }) }],
  [404, 'key_not_found', NotFoundError, { ...managed, method: 'get', path: `${KEYS}/ak_${'0'.repeat(32)}` }],
  [404, 'unknown_url', NotFoundError, { path: '/moderations', body: {} }],
  [405, 'method_not_allowed', APIError, { method: 'get' }],
  [409, 'key_revoked', ConflictError, { ...managed, method: 'patch', path: `${KEYS}/${keys.revoked.id}`, body: { label: 'late' } }],
  [409, 'idempotency_key_reuse', ConflictError, { ...managed, body: { label: 'other' }, headers: { 'Idempotency-Key': 'node: errors' } }],
];
const THRICE = [
  [429, 'spend_reserved', RateLimitError, { key: keys.reserved.key, wait: 1 }],
  [503, 'overloaded', InternalServerError, { baseURL: fullURL, wait: 1 }],
  [502, 'upstream_error', InternalServerError, { body: upstream(500) }],
  [502, 'upstream_error', InternalServerError, { body: upstream(401) }],
  [502, 'upstream_error', InternalServerError, { body: failing('node: nonsense', { nonsense: { after: 0 } }) }],
  [503, 'upstream_unavailable', InternalServerError, { body: upstream(429), wait: 5 }],
  [503, 'service_unavailable', InternalServerError, { baseURL: aloneURL, wait: 2 }],
  [504, 'upstream_timeout', InternalServerError, { body: upstream(504) }],
];

/** Runs one row. Returns the differences between the expected and the received error. */
async function meet([status, code, ErrorClass, different], attempts) {
  const { method = 'post', path = '/chat/completions', key = apiKey, body = chat(), headers, wait = 0 } = different;
  const sent = [];
  const answered = [];
  const counting = async (...call) => {
    sent.push(performance.now());
    const response = await fetch(...call);
    answered.push(performance.now());
    return response;
  };
  const client = new OpenAI({ baseURL: different.baseURL ?? baseURL, apiKey: key, fetch: counting });
  const request = { headers: { 'Content-Type': 'application/json', ...headers }, ...(method === 'get' ? {} : { body }) };
  const error = await client[method](path, request).then(() => undefined, (error) => error);
  const wrong = (what) => `${status} ${code}: ${what}`;
  if (error?.constructor !== ErrorClass) return [wrong(`${error} is no ${ErrorClass.name}`)];
  if (error.status !== status || error.code !== code) return [wrong(`${error.status} ${error.code}`)];
  if (!/^req_[0-9a-f]{32}$/.test(error.requestID)) return [wrong(`request id ${error.requestID}`)];
  if (sent.length !== attempts) return [wrong(`${sent.length} attempts`)];
  const waited = sent.slice(1).map((at, i) => at - answered[i]);
  const punctual = waited.every((ms) => ms >= wait * 1_000 - 5 && ms < wait * 1_000 + PUNCTUALITY_MS);
  return punctual ? [] : [wrong(`tried again after ${waited} ms`)];
}

fact('every error has its class and its number of attempts', async () => {
  // Holds the whole limit of its key while the other clients try.
  const slow = chat({ messages: [scripted({ head_after_ms: HELD_MS, completion_tokens: 1 })] });
  const waiting = new OpenAI({ baseURL, apiKey: keys.reserved.key }).chat.completions.create(slow);
  await sleep(1_000);
  const met = [...ONCE.map((row) => meet(row, 1)), ...THRICE.map((row) => meet(row, 3))];
  assert.deepEqual((await Promise.all(met)).flat(), []);
  await waiting;
});

const { version } = JSON.parse(readFileSync(new URL('node_modules/openai/package.json', import.meta.url)));
console.log(`openai-node ${version} on Node ${process.versions.node}, ${ONCE.length + THRICE.length} rows`);
await run();
