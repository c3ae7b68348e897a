/** Turns of Codex that write, read and change a file, against a scripted model behind Faregate. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
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
// A build server may forbid nested sandboxes, and all commands come from this file.
const unguarded = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'];
const patch = ['*** Begin Patch', '*** Update File: note.txt', '@@', '-one fox', '+two foxes', '*** End Patch'].join('\n');

/** Makes a user message that has the model run these commands in turn, and then say something. */
function task(...commands) {
  const common = { tag: 'codex', caches: true };
  const answer = { ...common, completion_tokens: 5 };
  const script = commands.reduceRight((then, cmd) => {
    const call = { name: 'exec_command', arguments: JSON.stringify({ cmd, login: false }) };
    return { ...common, completion_tokens: 2, tool_calls: 1, calls: [call], then };
  }, answer);
  return scripted(script).content;
}

/** Runs Codex in this folder, with the sessions there. Returns what it says. */
async function codex(home, ...words) {
  const asked = promisify(execFile)(process.execPath, [program, 'exec', ...words], {
    cwd: home,
    env: { ...process.env, CODEX_HOME: home, API_KEY: setting('API_KEY') },
  });
  asked.child.stdin.end();
  return (await asked).stdout.trim();
}

fact('Codex writes, reads and changes a file, and goes on with the conversation later', async () => {
  // Codex refuses a home below the folder for temporary files.
  const home = await mkdtemp(join(homedir(), '.codex-facts-'));
  try {
    await writeFile(join(home, 'config.toml'), config);
    const note = () => readFile(join(home, 'note.txt'), 'utf8');
    const first = task("printf 'one fox\\n' > note.txt", 'cat note.txt', `apply_patch <<'EOF'\n${patch}\nEOF`);
    assert.equal(await codex(home, ...unguarded, first), 'the quick brown fox jumps');
    assert.equal(await note(), 'two foxes\n');
    const second = task('cat note.txt', 'echo three dogs >> note.txt');
    assert.equal(await codex(home, 'resume', '--last', ...unguarded, second), 'the quick brown fox jumps');
    assert.equal(await note(), 'two foxes\nthree dogs\n');
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});

run();
