/** Runs tests that are named as facts, and prints whether each holds. */

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';

/** Fails the first request of its tag like an overloaded upstream, and answers the next one. */
export const RECOVERS = { fault: { error: { status: 503, shape: 'nested' } }, faults: 1 };
/** How long the whole limit of a key is held: less than three attempts, one second apart. */
const HELD_MS = 2_200;

const facts = [];
let currentPart;

/** Begins a part: the facts that follow belong to it. If `PART` is set, only the part with that name runs. */
export function part(name) {
  currentPart = name;
}

/** Adds a fact. */
export function fact(name, check) {
  const { PART } = process.env;
  if (currentPart === undefined || PART === undefined || PART === currentPart) facts.push({ name, check });
}

/** Reads an environment variable that must be set. */
export function setting(name) {
  const value = process.env[name];
  if (!value) {
    console.error(`${name} is not set`);
    process.exit(1);
  }
  return value;
}

/** Makes a user message that contains a script for the model. */
export const scripted = (members) => ({ role: 'user', content: JSON.stringify({ script: members ?? {} }) });

/** Creates an API key and returns its plaintext. */
export async function makeKey(fields) {
  const management = new OpenAI({ baseURL: setting('BASE_URL'), apiKey: setting('MANAGEMENT_KEY') });
  return (await management.post('/management/keys', { body: { label: 'clients', ...fields } })).key;
}

/** Creates a group. */
export async function makeGroup(fields) {
  const management = new OpenAI({ baseURL: setting('BASE_URL'), apiKey: setting('MANAGEMENT_KEY') });
  return management.post('/management/groups', { body: fields });
}

/** Reads a key or a group from the management API; `path` follows `/management/`. */
export async function shownBy(path) {
  const management = new OpenAI({ baseURL: setting('BASE_URL'), apiKey: setting('MANAGEMENT_KEY') });
  return management.get(`/management/${path}`);
}

/** Calls `use` while a slow answer holds the whole limit of a key. */
export async function whileHeld(apiKey, use) {
  const holder = new OpenAI({ baseURL: setting('BASE_URL'), apiKey });
  const messages = [scripted({ head_after_ms: HELD_MS, completion_tokens: 1 })];
  const waiting = holder.chat.completions.create({ model: 'Model Flash', messages });
  await sleep(1_000);
  const [used] = await Promise.all([use(), waiting]);
  return used;
}

/** Collects all chunks of a stream. */
export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** Returns the error that a promise is rejected with. It must be exactly of this class. */
export async function raises(ErrorClass, promise) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.constructor, ErrorClass, `${error} is not ${ErrorClass.name}`);
    return error;
  }
  assert.fail(`no ${ErrorClass.name} was raised`);
}

/** Runs all facts in the order in which they were added. The exit status is 1 if one does not hold. */
export async function run() {
  let failed = 0;
  for (const { name, check } of facts) {
    const began = performance.now();
    const took = () => `${((performance.now() - began) / 1_000).toFixed(1)} s`;
    try {
      await check();
      console.log(`ok    ${name} (${took()})`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name} (${took()}): ${error.stack}`);
    }
  }
  console.log(`${facts.length - failed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}
