"""Runs tests that are named as facts, and prints whether each holds."""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from openai import AsyncOpenAI, OpenAI

# Fails the first request of its tag like an overloaded upstream, and answers the next one.
RECOVERS = {"fault": {"error": {"status": 503, "shape": "nested"}}, "faults": 1}
# How long the whole limit of a key is held: less than three attempts, one second apart.
HELD_MS = 2_200

_facts: list[Callable] = []


def fact(function: Callable) -> Callable:
    """Marks a function, plain or async, as a fact."""
    _facts.append(function)
    return function


def setting(name: str) -> str:
    """Reads an environment variable that must be set."""
    if not (value := os.environ.get(name)):
        sys.exit(f"{name} is not set")
    return value


def scripted(**members) -> dict:
    """Makes a user message that contains a script for the model."""
    return {"role": "user", "content": json.dumps({"script": members})}


def make_key(**fields) -> str:
    """Creates an API key and returns its plaintext."""
    manage = OpenAI(base_url=setting("BASE_URL"), api_key=setting("MANAGEMENT_KEY"))
    return manage.post("/management/keys", body={"label": "clients", **fields}, cast_to=dict)["key"]


@asynccontextmanager
async def held(key: str) -> AsyncIterator[None]:
    """A context in which a slow answer holds the whole limit of a key. Leaving it waits for that answer."""
    async with AsyncOpenAI(base_url=setting("BASE_URL"), api_key=key) as holder:
        slow = [scripted(head_after_ms=HELD_MS, completion_tokens=1)]
        waiting = asyncio.create_task(holder.chat.completions.create(model="Model Flash", messages=slow))
        await asyncio.sleep(1)
        yield
        await waiting


def raises(error: type[Exception], call: Callable) -> Exception:
    """Returns the error that a call raises. It must be exactly of this class."""
    try:
        call()
    except Exception as raised:
        assert type(raised) is error, f"{raised!r} is not {error.__name__}"
        return raised
    raise AssertionError(f"no {error.__name__} was raised")


def run() -> None:
    """Runs all facts in the order in which they were written, and exits with 1 if one does not hold."""
    failed = 0
    for function in _facts:
        name = function.__name__.replace("_", " ")
        try:
            asyncio.run(function()) if inspect.iscoroutinefunction(function) else function()
            print(f"ok    {name}", flush=True)
        except Exception as error:
            failed += 1
            script = sys.modules["__main__"].__file__
            place = [at for at in traceback.extract_tb(error.__traceback__) if at.filename == script][-1]
            print(f"FAIL  {name}: line {place.lineno}, {place.line}: {error!r}", flush=True)
    print(f"{len(_facts) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
