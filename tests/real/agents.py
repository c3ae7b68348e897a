"""Codex and Claude Code make a turn with a tool call, against a real server."""

import os
import subprocess
import tempfile
from pathlib import Path

from scenes import SENTENCE

MODULES = Path(__file__).parents[1] / "clients/node/node_modules"
# Seconds for a turn, which has prompts of twenty thousand tokens, on a busy machine.
TURN = 300


def run(command, home, env):
    """Runs an agent with only the path from the caller's environment."""
    done = subprocess.run(["node", *command], cwd=home, env={"PATH": os.environ["PATH"], "HOME": home, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TURN)
    return done.stdout, done.stderr


def codex(stage, key, model):
    # Codex refuses a home below the folder for temporary files.
    with tempfile.TemporaryDirectory(prefix=".codex-real-", dir=Path.home()) as home:
        Path(home, "config.toml").write_text(
            f'model = "{model}"\nmodel_provider = "faregate"\n[model_providers.faregate]\nname = "Faregate"\n'
            f'base_url = "http://127.0.0.1:{stage.at.public}/v1"\nenv_key = "API_KEY"\nwire_api = "responses"\n')
        program = MODULES / "@openai/codex/bin/codex.js"
        return run([program, "exec", "--skip-git-repo-check", "Hello"], home, {"CODEX_HOME": home, "API_KEY": key.secret})


def claude(stage, key, model):
    with tempfile.TemporaryDirectory(prefix="claude-real-") as home:
        program = MODULES / "@anthropic-ai/claude-code/cli-wrapper.cjs"
        env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{stage.at.public}", "ANTHROPIC_API_KEY": key.secret, "ANTHROPIC_MODEL": model,
               "ANTHROPIC_SMALL_FAST_MODEL": model, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return run([program, "--print", "Hello"], home, env)


def agents(stage):
    """The model calls a tool, and says its sentence only after the tool's result, so the sentence shows that the turn is complete."""
    for name, agent in (("Codex", codex), ("Claude Code", claude)):
        check = f"{name}: a turn with a call of a tool"
        if not MODULES.exists():
            stage.checks.left_out(stage.column, check, "tests/tools/install.sh has not run")
            continue
        key = stage.key(10)
        (said, complaint), counted, _ = stage.measured("agent", lambda: agent(stage, key, f"{stage.prefix}-agent"))
        billed = stage.at.billed(key)
        same = (billed.prompt, billed.cached, billed.completion) == (counted.prompt, counted.cached, counted.generated)
        figure = (f"{billed.generations} requests, {counted.prompt:,} prompt tokens, {counted.cached:,} of them cached, "
                  f"{counted.generated} generated")
        if not same:
            figure += f", billed as {billed}"
        if SENTENCE not in said:
            figure += f", said {said.strip()[-200:]!r} {complaint.strip()[-300:]!r}"
        stage.holds(check, SENTENCE in said and same and billed.generations > 1, figure)
