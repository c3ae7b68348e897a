/** A whole turn of Codex, with a call of a tool, against a scripted model behind Faregate. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fact, run, scripted, setting } from './facts.js';

const program = new URL('node_modules/@openai/codex/bin/codex.js', import.meta.url).pathname;
const config = `
model = "Model Flash"
model_provider = "faregate"
[model_providers.faregate]
name = "Faregate"
base_url = "${setting('BASE_URL')}"
env_key = "API_KEY"
wire_api = "responses"
`;

async function ask(prompt) {
  // Codex refuses a home below the folder for temporary files.
  const home = await mkdtemp(join(homedir(), '.codex-facts-'));
  try {
    await writeFile(join(home, 'config.toml'), config);
    const asked = promisify(execFile)(process.execPath, [program, 'exec', '--skip-git-repo-check', prompt], {
      cwd: home,
      env: { ...process.env, CODEX_HOME: home, API_KEY: setting('API_KEY') },
    });
    asked.child.stdin.end();
    return (await asked).stdout.trim();
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

fact('a turn of Codex calls a tool and ends with the answer', async () => {
  const prompt = scripted({ tag: 'codex', caches: true, completion_tokens: 2, tool_calls: 1, then: { caches: true, completion_tokens: 5 } }).content;
  assert.equal(await ask(prompt), 'the quick brown fox jumps');
});

run();
