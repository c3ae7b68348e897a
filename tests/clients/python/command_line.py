"""Checks the `llm` command with a scripted model. Faregate is configured as the documentation of `llm` describes."""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from facts import fact, run, scripted, setting

BASE_URL, API_KEY = map(setting, ("BASE_URL", "API_KEY"))
LLM = Path(sys.executable).with_name("llm")
CAN = {"supports_tools": True, "supports_schema": True, "vision": True}
MODELS = [{"model_id": "flash", "model_name": "Model Flash", "api_base": BASE_URL, "api_key_name": "faregate", **CAN}]
PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")

folder = tempfile.TemporaryDirectory()
pixel, lookup = Path(folder.name, "pixel.png"), Path(folder.name, "lookup.py")
pixel.write_bytes(PIXEL)
lookup.write_text('def lookup(q: str) -> str:\n    "Looks something up."\n    return q\n')


def llm(*arguments, **script) -> subprocess.CompletedProcess:
    """Runs the command in a separate home directory, with a question that contains this script."""
    home = Path(tempfile.mkdtemp(dir=folder.name))
    # JSON is YAML too.
    (home / "extra-openai-models.yaml").write_text(json.dumps(MODELS))
    (home / "keys.json").write_text(json.dumps({"faregate": API_KEY, "wrong": "nobody"}))
    command = [LLM, "-m", "flash", "--no-log", *arguments, scripted(**script)["content"]]
    return subprocess.run(command, env={**os.environ, "LLM_USER_PATH": home}, capture_output=True, text=True)


# Each run takes a second to start, so they run side by side. The facts below check their output.
TOWN = '{"name": "Köln", "people": 1}'
with ThreadPoolExecutor() as pool:
    answered = pool.submit(llm, "-u", "-a", pixel, tag="llm images")
    whole = pool.submit(llm, "--no-stream", "-s", "Be brief.", "--schema", "name, people int", tag="llm schema", says=TOWN)
    called = pool.submit(llm, "--functions", lookup, "--chain-limit", "2", "--td", tool_calls=1)
    refused = pool.submit(llm, "--key", "wrong")
    cut = pool.submit(llm, completion_tokens=9, fault={"cut": {"after": 3}})


@fact
def an_answer_is_printed_as_it_comes_and_its_usage_told():
    said = answered.result()
    assert said.stdout.strip() == "the quick brown fox jumps", said
    assert "5 output" in said.stderr, said.stderr


@fact
def a_shape_is_asked_for_and_printed_whole():
    assert json.loads(whole.result().stdout) == json.loads(TOWN), whole.result()


@fact
def a_tool_is_called():
    assert "Tool call: lookup" in called.result().stderr, called.result()


@fact
def errors_are_told_in_our_words():
    assert refused.result().returncode != 0 and "unknown or was revoked" in refused.result().stderr, refused.result()


@fact
def a_stream_that_breaks_is_no_success():
    assert cut.result().returncode != 0 and "the quick brown" in cut.result().stdout, cut.result()


if __name__ == "__main__":
    print(f"llm {version('llm')}")
    run()
