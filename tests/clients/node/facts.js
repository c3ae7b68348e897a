/** Runs functions that are named as facts, and says of each whether it holds. */

import assert from 'node:assert/strict';

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
