/** Turns of Claude Code that write, read and change a file, against a scripted model behind Faregate. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fact, run, scripted, setting } from './facts.js';

const program = new URL('node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs', import.meta.url).pathname;
const model = 'Model Flash';

/** Makes a user message that has the model make these calls in turn, and then say something. */
function task(...calls) {
  // Over chat, the model repeats its call ids in every answer. Claude Code would drop a call with an id that it has seen.
  const common = { tag: 'claude', caches: true };
  const answer = { ...common, completion_tokens: 5 };
  const script = calls.reduceRight((then, [name, input]) => {
    const call = { name, arguments: JSON.stringify(input) };
    return { ...common, completion_tokens: 2, tool_calls: 1, calls: [call], then };
  }, answer);
  return scripted(script).content;
}

/** Runs Claude Code with only address, key and model set, and without telemetry or updates. Returns its output. */
async function claude(home, key, ...words) {
  const asked = promisify(execFile)(process.execPath, [program, '--print', '--output-format', 'json', ...words], {
    cwd: home,
    env: {
      PATH: process.env.PATH,
      HOME: home,
      ANTHROPIC_BASE_URL: setting('BASE_URL').replace(/\/v1$/, ''),
      ANTHROPIC_API_KEY: key,
      ANTHROPIC_MODEL: model,
      ANTHROPIC_SMALL_FAST_MODEL: model,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    },
  });
  asked.child.stdin.end();
  // It exits with an error if the answer is one.
  const { stdout } = await asked.catch((failed) => failed);
  return JSON.parse(stdout);
}

/** Calls `use` with an empty folder, and removes the folder afterwards. */
async function inFolder(use) {
  const home = await mkdtemp(join(tmpdir(), 'claude-facts-'));
  try {
    return await use(home);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

fact('Claude Code writes, reads and changes a file, and goes on with the conversation later', () => inFolder(async (home) => {
  const file_path = join(home, 'note.txt');
  const ask = (...words) => claude(home, setting('API_KEY'), '--permission-mode', 'acceptEdits', ...words);
  const first = task(
    ['Write', { file_path, content: 'one fox\n' }],
    ['Read', { file_path }],
    ['Edit', { file_path, old_string: 'one fox', new_string: 'two foxes' }],
  );
  const said = await ask(first);
  assert.deepEqual([said.is_error, said.result, said.num_turns], [false, ' the quick brown fox jumps', 4]);
  assert.equal(await readFile(file_path, 'utf8'), 'two foxes\n');
  const second = task(
    ['Read', { file_path }],
    ['Edit', { file_path, old_string: 'two foxes', new_string: 'two foxes\nthree dogs' }],
  );
  const later = await ask('--continue', second);
  assert.deepEqual([later.is_error, later.result, later.num_turns], [false, ' the quick brown fox jumps', 3]);
  assert.equal(await readFile(file_path, 'utf8'), 'two foxes\nthree dogs\n');
}));

fact('where no money is left, Claude Code says so', () => inFolder(async (home) => {
  const said = await claude(home, setting('POOR_KEY'), 'Hi');
  assert.deepEqual([said.is_error, said.api_error_status], [true, 402]);
  assert.match(said.result, /limit/);
}));

run();
