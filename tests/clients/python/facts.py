"""Runner of tests that are named as facts. Prints whether each fact holds."""

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
# Time for which the whole limit of a key is held: less than three attempts at intervals of one second take.
HELD_MS = 2_200

_facts: list[Callable] = []


def fact(function: Callable) -> Callable:
    """Marks a function, plain or async, as a fact."""
    _facts.append(function)
    return function


def setting(name: str) -> str:
    """An environment variable that must be set."""
    if not (value := os.environ.get(name)):
        sys.exit(f"{name} is not set")
    return value


def scripted(**members) -> dict:
    """User message that contains a script for the model."""
    return {"role": "user", "content": json.dumps({"script": members})}


def make_key(**fields) -> str:
    """The plaintext of a new API key."""
    manage = OpenAI(base_url=setting("BASE_URL"), api_key=setting("MANAGEMENT_KEY"))
    return manage.post("/management/keys", body={"label": "clients", **fields}, cast_to=dict)["key"]


@asynccontextmanager
async def held(key: str) -> AsyncIterator[None]:
    """Context in which a slow answer holds the whole limit of a key. Leaving it waits for that answer."""
    async with AsyncOpenAI(base_url=setting("BASE_URL"), api_key=key) as holder:
        slow = [scripted(head_after_ms=HELD_MS, completion_tokens=1)]
        waiting = asyncio.create_task(holder.chat.completions.create(model="Model Flash", messages=slow))
        await asyncio.sleep(1)
        yield
        await waiting


def raises(error: type[Exception], call: Callable) -> Exception:
    """The error, exactly of this class, that a call ends in."""
    try:
        call()
    except Exception as raised:
        assert type(raised) is error, f"{raised!r} is no {error.__name__}"
        return raised
    raise AssertionError(f"no {error.__name__} was raised")


def run() -> None:
    """Runs every fact in the order it was written, and exits with 1 if one does not hold."""
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
