/**
 * What applications get through the official Node SDK.
 *
 * The model is scripted: a user message tells it what to do. The test that started this script checks the requests that
 * reached the model, by their tags.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { CursorPage } from 'openai/pagination';
import { z } from 'zod';
import { collect, fact, raises, run, scripted, setting } from './facts.js';

const baseURL = setting('BASE_URL');
const { completions } = new OpenAI({ baseURL, apiKey: setting('API_KEY') }).chat;
const management = new OpenAI({ baseURL, apiKey: setting('MANAGEMENT_KEY') });
const MODEL = 'Model Flash';
const PIXEL = Buffer.from('\x89PNG\r\n\x1a\n' + '\0'.repeat(40), 'latin1').toString('base64');

const LOOKUP = { type: 'function', function: { name: 'lookup', parameters: { type: 'object', properties: { q: { type: 'string' } } } } };
const Town = z.object({ name: z.string(), people: z.number(), rivers: z.array(z.string()) });
const KOELN = { name: 'Köln', people: 1_087_353, rivers: ['Rhein'] };

const ask = (messages, request) => completions.create({ model: MODEL, messages, ...request });
const chunks = async (messages, request) => collect(await ask(messages, { stream: true, ...request }));

/** Concatenates this member of a choice's deltas. */
const text = (said, name = 'content', index = 0) =>
  said
    .flatMap((chunk) => chunk.choices)
    .filter((choice) => choice.index === index)
    .map((choice) => choice.delta[name] ?? '')
    .join('');

// Tools

fact('tools make a round trip', async () => {
  const question = scripted({ tag: 'tools', tool_calls: 2, completion_tokens: 0 });
  const [asked] = (await ask([question], { tools: [LOOKUP], tool_choice: 'auto', parallel_tool_calls: true })).choices;
  assert.equal(asked.finish_reason, 'tool_calls');
  assert.equal(asked.message.content, null);
  const calls = asked.message.tool_calls;
  assert.deepEqual(calls.map((call) => [call.id, call.function.name]), [['call_0', 'lookup'], ['call_1', 'lookup']]);
  for (const call of calls) assert.deepEqual(JSON.parse(call.function.arguments), { q: 'x' });
  // The message is sent back exactly as the SDK made it.
  const answers = calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: '42' }));
  const last = scripted({ tag: 'tools, answered', completion_tokens: 3 });
  const [answered] = (await ask([question, asked.message, ...answers, last], { tools: [LOOKUP] })).choices;
  assert.equal(answered.finish_reason, 'stop');
  assert(answered.message.content);
});

fact('tool calls come in pieces that add up', async () => {
  const question = scripted({ tool_calls: 2, completion_tokens: 2 });
  const calls = [];
  for (const piece of (await chunks([question], { tools: [LOOKUP] })).flatMap((c) => c.choices[0].delta.tool_calls ?? [])) {
    calls[piece.index] ??= { id: piece.id, name: piece.function.name, arguments: '' };
    calls[piece.index].arguments += piece.function.arguments ?? '';
  }
  assert.deepEqual(calls, [0, 1].map((i) => ({ id: `call_${i}`, name: 'lookup', arguments: '{"q":"x"}' })));
  // The SDK's own helper joins the pieces into the same result as a whole answer.
  const stream = completions.stream({ model: MODEL, messages: [question], tools: [LOOKUP] });
  const gathered = await stream.finalChatCompletion();
  const [whole] = (await ask([question], { tools: [LOOKUP] })).choices;
  const plain = (choice) => choice.message.tool_calls.map(({ id, function: f }) => [id, f.name, f.arguments]);
  assert.deepEqual(plain(gathered.choices[0]), plain(whole));
  assert.equal(gathered.choices[0].finish_reason, 'tool_calls');
});

fact('the runner calls the tools itself, and goes on', async () => {
  const asked = [];
  const lookup = (question) => {
    asked.push(question);
    return '42';
  };
  const runner = completions.runTools({
    model: MODEL,
    // The conversation has no other user message, so the scripted model calls the tool again each time.
    messages: [scripted({ tool_calls: 1, completion_tokens: 0 })],
    tools: [{ type: 'function', function: { name: 'lookup', function: lookup, parse: JSON.parse, parameters: LOOKUP.function.parameters } }],
  }, { maxChatCompletions: 2 });
  await runner.done();
  assert.deepEqual(asked, [{ q: 'x' }, { q: 'x' }]);
});

fact('the parser reads the arguments of tool calls', async () => {
  const tools = [zodFunction({ name: 'lookup', parameters: z.object({ q: z.string() }) })];
  const messages = [scripted({ tag: 'strict tools', tool_calls: 1 })];
  const [{ message }] = (await completions.parse({ model: MODEL, messages, tools })).choices;
  assert.deepEqual(message.tool_calls[0].function.parsed_arguments, { q: 'x' });
});

// Images

fact('images are shown by URL and inside the body', async () => {
  const content = [
    { type: 'text', text: scripted({ tag: 'images' }).content },
    { type: 'image_url', image_url: { url: 'https://images.example.com/cat.png', detail: 'low' } },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
  ];
  assert((await ask([{ role: 'user', content }])).choices[0].message.content);
});

// Reasoning

fact('reasoning reaches the client, whole and in pieces', async () => {
  const thinks = [scripted({ tag: 'reasoning', completion_tokens: 6, reasoning_tokens: 4, style: { reasoning: 'reasoning' } })];
  const [{ message }] = (await ask(thinks, { reasoning_effort: 'high' })).choices;
  const said = await chunks(thinks, { reasoning_effort: 'low' });
  assert.equal(message.reasoning_content, ' the quick brown fox');
  assert.equal(text(said, 'reasoning_content'), message.reasoning_content);
  assert.deepEqual([message.content, text(said)], [' the quick', ' the quick']);
});

fact('reasoning may be sent back', async () => {
  const [{ message }] = (await ask([scripted({ reasoning_tokens: 4, completion_tokens: 6 })])).choices;
  assert((await ask([scripted(), message, scripted({ tag: 'thoughts' })])).choices[0].message.content);
});

// Shapes

fact('the parser asks for a shape, and reads the answer into it', async () => {
  const messages = [scripted({ tag: 'shape', says: JSON.stringify(KOELN) })];
  const request = { model: MODEL, messages, response_format: zodResponseFormat(Town, 'town') };
  assert.deepEqual((await completions.parse(request)).choices[0].message.parsed, KOELN);
  const gathered = await completions.stream(request).finalChatCompletion();
  assert.deepEqual(gathered.choices[0].message.parsed, KOELN);
});

fact('the parser throws where the length cuts the answer', async () => {
  const messages = [scripted({ says: JSON.stringify(KOELN) })];
  const request = { model: MODEL, messages, response_format: zodResponseFormat(Town, 'town'), max_tokens: 2 };
  await raises(OpenAI.LengthFinishReasonError ?? (await import('openai/error')).LengthFinishReasonError, completions.parse(request));
});

fact('any JSON can be asked for', async () => {
  const answer = await ask([scripted({ tag: 'json', says: '{"a": [1, 2]}' })], { response_format: { type: 'json_object' } });
  assert.deepEqual(JSON.parse(answer.choices[0].message.content), { a: [1, 2] });
});

// Several choices, and log probabilities

fact('several choices stay separate', async () => {
  const asks = [scripted({ tag: 'choices', completion_tokens: 3, style: { usage_by_choice: true } })];
  const whole = await ask(asks, { n: 3 });
  assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(whole.usage.completion_tokens, 9);
  const said = await chunks(asks, { n: 3, stream_options: { include_usage: true } });
  for (const { index, message } of whole.choices) assert.equal(text(said, 'content', index), message.content);
  assert.equal(said.at(-1).usage.completion_tokens, 9);
});

fact('probabilities reach the client', async () => {
  const wanted = { logprobs: true, top_logprobs: 3 };
  const told = (await ask([scripted({ tag: 'logprobs' })], wanted)).choices[0].logprobs.content;
  assert.deepEqual(told.map((token) => token.token), [' the', ' quick', ' brown', ' fox', ' jumps']);
  assert.deepEqual(told[0].top_logprobs.map((top) => top.logprob), [-0.25, -0.5, -0.75]);
  const said = await chunks([scripted({ style: { lines: true } })], wanted);
  assert.deepEqual(said.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []), told);
});

// Usage

fact('cached tokens are reported', async () => {
  const { usage } = await ask([scripted({ prompt_tokens: 900, cached_tokens: 512 })]);
  assert.deepEqual([usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens], [900, 512]);
});

fact('roles and spellings of newer clients are understood', async () => {
  const extras = { user: 'u', metadata: { a: 'b' }, store: false, service_tier: 'auto', verbosity: 'low',
    prompt_cache_key: 'k', safety_identifier: 's', unheard_of: 1 };
  const system = { role: 'developer', content: 'Be brief.' };
  const asks = scripted({ tag: 'spellings', completion_tokens: 50 });
  const answer = await ask([system, asks], { max_completion_tokens: 4, ...extras });
  assert.deepEqual([answer.usage.completion_tokens, answer.choices[0].finish_reason], [4, 'length']);
});

// Streams that break

fact('a stream that breaks throws, and is not tried again', async () => {
  const broken = {
    cut: { fault: { cut: { after: 3 } } },
    'no end': { fault: { end: { after: 3 } } },
    'error event': { fault: { error_event: { after: 3, shape: 'flat' } } },
    abort: { finish_reason: 'abort' },
  };
  for (const [name, members] of Object.entries(broken)) {
    const error = await raises(OpenAI.APIError, chunks([scripted({ tag: `broken: ${name}`, completion_tokens: 9, ...members })]));
    assert.deepEqual([error.code, error.type], ['upstream_error', 'server_error'], name);
  }
});

// Management

fact('the cursor pager walks every page, both ways', async () => {
  const walk = async (query) => {
    const keys = await collect(management.getAPIList('/management/keys', CursorPage, { query }));
    return keys.map((key) => key.id);
  };
  const newestFirst = await walk({ limit: 3 });
  assert(newestFirst.length > 6 && new Set(newestFirst).size === newestFirst.length);
  assert.deepEqual(await walk({ limit: 3, order: 'asc' }), newestFirst.toReversed());
  assert.deepEqual(await walk({ limit: 3, after: newestFirst[1] }), newestFirst.slice(2));
  assert.deepEqual(await walk({ limit: 1000 }), newestFirst);
});

const { version } = JSON.parse(readFileSync(new URL('node_modules/openai/package.json', import.meta.url)));
console.log(`openai-node ${version} on Node ${process.versions.node}`);
await run();
