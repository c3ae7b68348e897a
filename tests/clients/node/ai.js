/** Results of the Vercel AI SDK with a scripted model behind Faregate, configured as an OpenAI-compatible provider. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { collect, fact, run, scripted, setting } from './facts.js';

const baseURL = setting('BASE_URL');
const able = {
  includeUsage: true,
  supportsStructuredOutputs: true,
  // Otherwise the SDK fetches images itself.
  supportedUrls: () => ({ 'image/*': [/^https?:/] }),
};
const connect = (apiKey) => createOpenAICompatible({ name: 'faregate', baseURL, apiKey, ...able })('Model Flash');
const model = connect(setting('API_KEY'));

const messages = (script) => [scripted(script)];
const SAID = ' the quick brown fox jumps';
const Town = z.object({ name: z.string(), people: z.number() });
/** Errors are thrown and asserted, so the SDK need not print them. */
const quiet = { onError: () => {} };

const asked = [];
const lookup = tool({
  description: 'Looks something up.',
  inputSchema: z.object({ q: z.string() }),
  execute: async (question) => {
    asked.push(question);
    return '42';
  },
});

fact('a question is answered, and its usage reported', async () => {
  const said = await generateText({ model, system: 'Be brief.', messages: messages({ prompt_tokens: 12, cached_tokens: 4 }) });
  assert.equal(said.text, SAID);
  assert.equal(said.finishReason, 'stop');
  assert.deepEqual([said.usage.inputTokens, said.usage.outputTokens], [12, 5]);
  assert.match(said.response.id, /^gen_/);
});

fact('a stream adds up to the answer, with its usage', async () => {
  const said = streamText({ model, messages: messages({ prompt_tokens: 12 }) });
  const pieces = await collect(said.textStream);
  assert(pieces.length > 1);
  assert.equal(pieces.join(''), SAID);
  const usage = await said.usage;
  assert.deepEqual([usage.inputTokens, usage.outputTokens], [12, 5]);
});

fact('reasoning is separate from the text', async () => {
  const thinks = { completion_tokens: 6, reasoning_tokens: 4 };
  const said = await generateText({ model, messages: messages(thinks) });
  assert.deepEqual([said.reasoningText, said.text], [' the quick brown fox', ' the quick']);
  const streamed = streamText({ model, messages: messages({ ...thinks, tag: 'ai effort' }), providerOptions: { faregate: { reasoningEffort: 'high' } } });
  assert.equal(await streamed.reasoningText, ' the quick brown fox');
});

fact('tools are called, and the calls sent back with their results', async () => {
  const request = { model, messages: messages({ tag: 'ai tools', tool_calls: 1, completion_tokens: 0 }), tools: { lookup } };
  const said = await generateText({ ...request, stopWhen: stepCountIs(2) });
  assert.equal(said.steps.length, 2);
  const streamed = streamText({ ...request, stopWhen: stepCountIs(1) });
  const calls = await streamed.toolCalls;
  assert.deepEqual(calls.map((call) => call.input), [{ q: 'x' }]);
  assert.deepEqual(asked, [{ q: 'x' }, { q: 'x' }, { q: 'x' }]);
});

fact('a shape is asked for, and read', async () => {
  const shaped = messages({ tag: 'ai shape', says: '{"name": "Köln", "people": 1087353}' });
  const said = await generateText({ model, messages: shaped, output: Output.object({ schema: Town }) });
  assert.deepEqual(said.output, { name: 'Köln', people: 1_087_353 });
});

fact('images are shown', async () => {
  const content = [
    { type: 'text', text: scripted({ tag: 'ai images' }).content },
    { type: 'image', image: new URL('https://images.example.com/cat.png') },
    { type: 'image', image: Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'), mediaType: 'image/png' },
  ];
  assert.equal((await generateText({ model, messages: [{ role: 'user', content }] })).text, SAID);
});

fact('errors carry our words, and what may be tried again is', async () => {
  const request = { messages: messages({ tag: 'ai 502', fault: { error: { status: 500, shape: 'nested' } } }), maxRetries: 1 };
  const failed = await generateText({ model, ...request }).catch((error) => error);
  assert.equal(failed.errors.length, 2);
  assert(failed.errors.every((error) => APICallError.isInstance(error) && error.statusCode === 502));
  const refused = await generateText({ model: connect('nobody'), messages: messages({}) }).catch((error) => error);
  assert(APICallError.isInstance(refused) && refused.statusCode === 401 && !refused.isRetryable);
  assert.match(refused.message, /unknown or was revoked/);
});

fact('a stream that breaks ends in an error', async () => {
  const broken = streamText({ model, messages: messages({ completion_tokens: 9, fault: { cut: { after: 3 } } }), ...quiet });
  const parts = await collect(broken.fullStream);
  const last = parts.find((part) => part.type === 'error');
  assert(last, JSON.stringify(parts));
});

const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
console.log(`ai ${version('ai')}, @ai-sdk/openai-compatible ${version('@ai-sdk/openai-compatible')}`);
await run();
