/** Runs functions that are named as facts, and says of each whether it holds. */

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';

/** Fails the first request of its tag as an upstream that is overloaded, and answers the next one. */
export const RECOVERS = { fault: { error: { status: 503, shape: 'nested' } }, faults: 1 };
/** How long all that a key may spend is held: less than three attempts take that are a second apart. */
const HELD_MS = 2_200;

const facts = [];

/** Adds a fact. */
export function fact(name, check) {
  facts.push({ name, check });
}

/** An environment variable that must be set. */
export function setting(name) {
  const value = process.env[name];
  if (!value) {
    console.error(`${name} is not set`);
    process.exit(1);
  }
  return value;
}

/** The user message that makes a scripted model do this. */
export const scripted = (members) => ({ role: 'user', content: JSON.stringify({ script: members ?? {} }) });

/** The plaintext of a new API key. */
export async function makeKey(fields) {
  const management = new OpenAI({ baseURL: setting('BASE_URL'), apiKey: setting('MANAGEMENT_KEY') });
  return (await management.post('/management/keys', { body: { label: 'clients', ...fields } })).key;
}

/** Calls `use` while all that a key may spend is held by an answer that takes a while. */
export async function whileHeld(apiKey, use) {
  const holder = new OpenAI({ baseURL: setting('BASE_URL'), apiKey });
  const messages = [scripted({ head_after_ms: HELD_MS, completion_tokens: 1 })];
  const waiting = holder.chat.completions.create({ model: 'Model Flash', messages });
  await sleep(1_000);
  const [used] = await Promise.all([use(), waiting]);
  return used;
}

/** All that a stream says. */
export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** The error, exactly of this class, that a promise is rejected with. */
export async function raises(ErrorClass, promise) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.constructor, ErrorClass, `${error} is no ${ErrorClass.name}`);
    return error;
  }
  assert.fail(`no ${ErrorClass.name} was raised`);
}

/** Runs every fact in the order it was written; the exit status is 1 if one does not hold. */
export async function run() {
  let failed = 0;
  for (const { name, check } of facts) {
    try {
      await check();
      console.log(`ok    ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}: ${error.stack}`);
    }
  }
  console.log(`${facts.length - failed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}
