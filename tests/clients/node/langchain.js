/** Results of LangChain's `ChatOpenAI` for Node with a scripted model behind Faregate. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { AIMessage, HumanMessage, SystemMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { RECOVERS, collect, fact, makeKey, run, scripted, setting, whileHeld } from './facts.js';

const configuration = { baseURL: setting('BASE_URL') };
const connect = (apiKey, model = 'Model Flash') => new ChatOpenAI({ model, apiKey, configuration, streamUsage: true });
const model = connect(setting('API_KEY'));

const SAID = ' the quick brown fox jumps';
const NO_ID = { call_ids: 'empty' };
const Town = z.object({ name: z.string(), people: z.number() });
const asking = (script) => new HumanMessage(scripted(script).content);
const lookup = tool(async ({ q }) => `all about ${q}`, {
  name: 'lookup',
  description: 'Looks something up.',
  schema: z.object({ q: z.string() }),
});

/** Returns one answer, whole or assembled from a stream. */
async function ask(asked, messages, streamed) {
  if (!streamed) return asked.invoke(messages);
  const pieces = await collect(await asked.stream(messages));
  return pieces.reduce((whole, piece) => whole.concat(piece));
}

/** Asks, answers the tool calls, and returns the final text. All messages are added to the conversation. */
async function turn(asked, history, script, streamed) {
  history.push(asking(script));
  let said = await ask(asked, history, streamed);
  history.push(said);
  if (said.tool_calls.length > 0) {
    for (const call of said.tool_calls) history.push(await lookup.invoke(call));
    said = await ask(asked, history, streamed);
    history.push(said);
  }
  return said;
}

/** Returns the status and the code with which a call is refused. */
async function refusal(call) {
  try {
    await call;
  } catch (error) {
    return [error.status, error.error.code];
  }
  assert.fail('nothing was refused');
}

fact('a question is answered, and its usage reported', async () => {
  const said = await model.invoke([new SystemMessage('Be brief.'), asking({ prompt_tokens: 12, cached_tokens: 4 })]);
  assert.equal(said.content, SAID);
  const { input_tokens, output_tokens, input_token_details } = said.usage_metadata;
  assert.deepEqual([input_tokens, output_tokens, input_token_details.cache_read], [12, 5, 4]);
  assert.equal(said.response_metadata.finish_reason, 'stop');
});

fact('a stream adds up to the answer, with its usage', async () => {
  const pieces = await collect(await model.stream([asking({ prompt_tokens: 12 })]));
  assert(pieces.length > 5);
  const whole = pieces.reduce((whole, piece) => whole.concat(piece));
  assert.equal(whole.content, SAID);
  assert.deepEqual([whole.usage_metadata.input_tokens, whole.usage_metadata.output_tokens], [12, 5]);
});

fact('tools make a round trip', async () => {
  for (const streamed of [false, true]) {
    const script = { tool_calls: 2, completion_tokens: 0, then: { says: 'It is 42.' } };
    const history = [];
    const said = await turn(model.bindTools([lookup]), history, script, streamed);
    assert.deepEqual([said.content, history.length], ['It is 42.', 5]);
  }
});

fact('a shape is asked for and read', async () => {
  const says = JSON.stringify({ name: 'Köln', people: 1_087_353 });
  const said = await model.withStructuredOutput(Town).invoke([asking({ tag: 'langchain js shape', says })]);
  assert.deepEqual(said, { name: 'Köln', people: 1_087_353 });
});

fact('a refusal is no text, and can be sent back', async () => {
  for (const streamed of [false, true]) {
    const question = asking({ refuses: true, says: 'I cannot.' });
    assert.equal((await ask(model, [question], streamed)).content, '');
    const refused = new AIMessage({ content: [{ type: 'refusal', refusal: 'I cannot.' }] });
    assert.equal((await ask(model, [question, refused, asking()], streamed)).content, SAID);
  }
});

fact('a conversation goes on through a refusal, a call without an id, and reasoning', async () => {
  for (const streamed of [false, true]) {
    const able = model.bindTools([lookup]);
    const history = [];
    await turn(able, history, { refuses: true, says: 'I cannot.' }, streamed);
    // LangChain does not keep refusals of whole answers, so the application stores the text it showed.
    history[1] = new AIMessage({ content: [{ type: 'refusal', refusal: 'I cannot.' }] });
    const calls = { tool_calls: 1, completion_tokens: 0, style: NO_ID, then: { says: 'It is 42.' } };
    assert.equal((await turn(able, history, calls, streamed)).content, 'It is 42.');
    assert.match(history[3].tool_calls[0].id, /^[0-9A-Za-z]{9}$/);
    const thought = await turn(able, history, { completion_tokens: 6, reasoning_tokens: 4 }, streamed);
    assert.equal(thought.additional_kwargs.reasoning_content, ' the quick brown fox');
    const last = await turn(able, history, { says: 'Bye.', tag: 'langchain js conversation' }, streamed);
    assert.equal(last.content, 'Bye.');
  }
});

fact('errors that a retry cannot fix are thrown at once', async () => {
  assert.deepEqual(await refusal(connect('nobody').invoke([asking()])), [401, 'invalid_api_key']);
  assert.deepEqual(await refusal(connect(await makeKey({ limit: 0 })).invoke([asking()])), [402, 'key_limit_reached']);
  assert.deepEqual(await refusal(connect(setting('API_KEY'), 'nobody').invoke([asking()])), [404, 'model_not_found']);
});

fact('errors that a retry may fix are retried', async () => {
  const key = await makeKey({ limit: 0.001 });
  const met = await Promise.all([
    whileHeld(key, () => connect(key).invoke([asking({ tag: 'langchain js 429' })])),
    model.invoke([asking({ tag: 'langchain js 503', ...RECOVERS })]),
  ]);
  assert.deepEqual(met.map((said) => said.content), [SAID, SAID]);
});

const { version } = JSON.parse(readFileSync(new URL('node_modules/@langchain/openai/package.json', import.meta.url)));
console.log(`@langchain/openai ${version} on Node ${process.versions.node}`);
await run();
