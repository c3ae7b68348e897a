/** A whole turn of Claude Code, with a call of a tool, against a scripted model behind Faregate. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fact, run, scripted, setting } from './facts.js';

const program = new URL('node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs', import.meta.url).pathname;
const model = 'Model Flash';

/** What Claude Code says, with nothing set but address, key and model, and without traffic of its own. */
async function ask(prompt, key) {
  const home = await mkdtemp(join(tmpdir(), 'claude-facts-'));
  try {
    const asked = promisify(execFile)(process.execPath, [program, '--print', '--output-format', 'json', prompt], {
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
    // It exits with a failure where the answer is an error.
    const { stdout } = await asked.catch((failed) => failed);
    return JSON.parse(stdout);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

fact('a turn of Claude Code calls a tool and ends with the answer', async () => {
  const then = { tag: 'claude', caches: true, completion_tokens: 5 };
  const prompt = scripted({ ...then, completion_tokens: 2, tool_calls: 1, then }).content;
  const said = await ask(prompt, setting('API_KEY'));
  assert.deepEqual([said.is_error, said.result, said.num_turns], [false, ' the quick brown fox jumps', 2]);
});

fact('where no money is left, Claude Code says so', async () => {
  const said = await ask('Hi', setting('POOR_KEY'));
  assert.deepEqual([said.is_error, said.api_error_status], [true, 402]);
  assert.match(said.result, /limit/);
});

run();
