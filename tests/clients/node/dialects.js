/** Results of clients for Node that speak the Responses or the Messages API, with a scripted model behind Faregate. */

import assert from 'node:assert/strict';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import Anthropic from '@anthropic-ai/sdk';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { collect, fact, raises, RECOVERS, run, scripted, setting } from './facts.js';

const baseURL = setting('BASE_URL');
const apiKey = setting('API_KEY');
const model = 'Model Flash';
const SAID = ' the quick brown fox jumps';
const openai = new OpenAI({ baseURL, apiKey });
const anthropic = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ''), apiKey });
const parameters = { type: 'object', properties: { q: { type: 'string' } }, required: ['q'], additionalProperties: false };
const callsOne = { completion_tokens: 2, tool_calls: 1, then: { completion_tokens: 5 } };
const text = (script) => scripted(script).content;

fact('a response is answered whole and streamed', async () => {
  const whole = await openai.responses.create({ model, input: text({ prompt_tokens: 12 }) });
  assert.deepEqual([whole.output_text, whole.status, whole.usage.input_tokens], [SAID, 'completed', 12]);
  const stream = openai.responses.stream({ model, input: text() });
  assert.equal((await stream.finalResponse()).output_text, SAID);
});

fact('a response calls a tool', async () => {
  const tools = [{ type: 'function', name: 'lookup', parameters, strict: true }];
  const response = await openai.responses.stream({ model, input: text(callsOne), tools }).finalResponse();
  const [call] = response.output.filter((item) => item.type === 'function_call');
  assert.deepEqual([call.name, JSON.parse(call.arguments)], ['lookup', { q: 'x' }]);
});

fact('a response has the shape of a schema', async () => {
  const shape = z.object({ name: z.string(), people: z.number() });
  const town = { name: 'Ulm', people: 129000 };
  const asked = { model, input: text({ says: JSON.stringify(town) }), text: { format: zodTextFormat(shape, 'town') } };
  assert.deepEqual((await openai.responses.parse(asked)).output_parsed, town);
});

fact('a response shows reasoning, sees images and refuses', async () => {
  const image = { type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' };
  const content = [{ type: 'input_text', text: text({ reasoning_tokens: 1, refuses: true }) }, image];
  const response = await openai.responses.create({ model, input: [{ role: 'user', content }], reasoning: { effort: 'high', summary: 'auto' } });
  assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'message']);
  // In Messages, a refusal is ordinary text with its own stop reason.
  assert.equal(response.output[1].content[0].type, process.env.SPEAKS === 'Messages' ? 'output_text' : 'refusal');
});

fact('a failed turn is an error, and tried again where that helps', async () => {
  assert.equal((await openai.responses.create({ model, input: text({ tag: 'responses 503 node', ...RECOVERS }) })).output_text, SAID);
  const content = text({ tag: 'messages 503 node', ...RECOVERS });
  const message = await anthropic.messages.create({ model, max_tokens: 500, messages: [{ role: 'user', content }] });
  assert.equal(message.content[0].text, SAID);
  const events = await collect(await openai.responses.create({ model, input: text({ fault: { cut: { after: 2 } } }), stream: true }));
  assert.equal(events.at(-1).type, 'response.failed');
});

fact('a message is answered whole and streamed', async () => {
  const request = { model, max_tokens: 500, messages: [scripted({ prompt_tokens: 12 })] };
  const whole = await anthropic.messages.create(request);
  assert.deepEqual([whole.content[0].text, whole.stop_reason, whole.usage.input_tokens], [SAID, 'end_turn', 12]);
  assert.equal(await anthropic.messages.stream(request).finalText(), SAID);
});

fact('a message calls a tool, and shows thinking', async () => {
  const tools = [{ name: 'lookup', input_schema: parameters }];
  const request = { model, max_tokens: 2000, messages: [scripted({ ...callsOne, reasoning_tokens: 1 })], tools };
  const message = await anthropic.messages.stream({ ...request, thinking: { type: 'enabled', budget_tokens: 1024 } }).finalMessage();
  assert.deepEqual(message.content.map((block) => block.type), ['thinking', 'text', 'tool_use']);
  assert.deepEqual([message.stop_reason, message.content[2].input], ['tool_use', { q: 'x' }]);
});

fact('prompts are counted, and models paged', async () => {
  const counted = await anthropic.messages.countTokens({ model, messages: [scripted({ prompt_tokens: 321 })] });
  assert.equal(counted.input_tokens, 321);
  assert.deepEqual((await collect(anthropic.models.list({ limit: 1 }))).map(({ id }) => id), [model, 'Model Max']);
});

fact('errors are of the class of their status', async () => {
  const stranger = new Anthropic({ baseURL: anthropic.baseURL, apiKey: 'fg_api_x' });
  const request = { model, max_tokens: 5, messages: [scripted()] };
  await raises(Anthropic.AuthenticationError, stranger.messages.create(request));
  await raises(Anthropic.NotFoundError, anthropic.messages.create({ ...request, model: 'x' }));
});

const lookup = tool({
  description: 'Looks something up.',
  inputSchema: z.object({ q: z.string() }),
  execute: async () => '42',
});
const providers = { responses: createOpenAI({ baseURL, apiKey }), messages: createAnthropic({ baseURL, apiKey }) };
for (const [name, provider] of Object.entries(providers)) {
  const asked = { model: provider(model), maxOutputTokens: 500 };
  // Nothing is stored, so with tools the SDK needs `store: false`.
  const providerOptions = { openai: { store: false } };
  fact(`the Vercel AI SDK speaks ${name} by default`, async () => {
    assert.equal((await generateText({ ...asked, messages: [scripted()] })).text, SAID);
    assert.equal((await collect(streamText({ ...asked, messages: [scripted()] }).textStream)).join(''), SAID);
    const tools = { lookup };
    const said = await generateText({ ...asked, messages: [scripted(callsOne)], tools, providerOptions, stopWhen: stepCountIs(2) });
    assert.deepEqual([said.steps.length, said.text], [2, SAID]);
  });
}

run();
