"""Checks Pydantic AI, with a scripted model behind Faregate."""

import asyncio
import json
from importlib.metadata import version

from facts import RECOVERS, fact, held, make_key, run, scripted, setting
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, capture_run_messages
from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

BASE_URL, API_KEY = map(setting, ("BASE_URL", "API_KEY"))
NO_ID = {"call_ids": "missing"}


class Town(BaseModel):
    name: str
    people: int


def agent(api_key: str = API_KEY, model: str = "Model Flash", **more) -> Agent:
    return Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=BASE_URL, api_key=api_key)), **more)


def lookup(q: str) -> str:
    """Looks something up."""
    return f"all about {q}"


async def ask(asked: Agent, history: list, streamed: bool = False, **script) -> tuple:
    """Runs one turn. Returns its output, its usage, and the conversation after it."""
    question = scripted(**script)["content"]
    if not streamed:
        result = await asked.run(question, message_history=history)
        return result.output, result.usage, result.all_messages()
    async with asked.run_stream(question, message_history=history) as result:
        return await result.get_output(), result.usage, result.all_messages()


async def refused(asked: Agent, streamed: bool) -> list:
    """Returns the conversation after a refusal, which the application keeps as the model's message."""
    with capture_run_messages() as messages:
        try:
            await ask(asked, [], streamed, refuses=True, says="I cannot.")
        except ContentFilterError as error:
            [response] = json.loads(error.body)
            assert response["provider_details"]["refusal"] == "I cannot.", error
            return [*messages[:1], ModelResponse(parts=[TextPart("I cannot.")])]
    raise AssertionError("the refusal was mistaken for an answer")


async def raised(asked: Agent) -> tuple[int, str]:
    try:
        await ask(asked, [])
    except ModelHTTPError as error:
        return error.status_code, error.body["code"]
    raise AssertionError("no error was raised")


@fact
async def a_question_is_answered_and_its_usage_told():
    said, usage, _ = await ask(agent(instructions="Be brief."), [], prompt_tokens=12, cached_tokens=4)
    assert said == " the quick brown fox jumps"
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (12, 5, 4)


@fact
async def a_stream_adds_up_to_the_answer_with_its_usage():
    async with agent().run_stream(scripted(prompt_tokens=12)["content"]) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        usage = result.usage
    assert len(pieces) > 1 and "".join(pieces) == " the quick brown fox jumps"
    assert (usage.input_tokens, usage.output_tokens) == (12, 5)


@fact
async def tools_make_a_round_trip():
    for streamed in (False, True):
        able = agent(tools=[lookup])
        said, usage, _ = await ask(able, [], streamed, tool_calls=2, completion_tokens=0, then={"says": "It is 42."})
        assert (said, usage.requests, usage.tool_calls) == ("It is 42.", 2, 2)


@fact
async def a_shape_is_asked_for_and_read():
    for streamed in (False, True):
        shaped = agent(output_type=NativeOutput(Town))
        said, _, _ = await ask(shaped, [], streamed, says='{"name": "Köln", "people": 1087353}')
        assert said == Town(name="Köln", people=1_087_353)


@fact
async def a_refusal_is_told_and_can_be_sent_back():
    for streamed in (False, True):
        said, _, _ = await ask(agent(), await refused(agent(), streamed), streamed)
        assert said == " the quick brown fox jumps"


@fact
async def a_conversation_goes_on_through_a_refusal_a_call_without_an_id_and_reasoning():
    for streamed in (False, True):
        able = agent(tools=[lookup])
        history = await refused(able, streamed)
        for output, script in (
            ("It is 42.", {"tool_calls": 1, "completion_tokens": 0, "style": NO_ID, "then": {"says": "It is 42."}}),
            (" the quick", {"completion_tokens": 6, "reasoning_tokens": 4}),
            ("Bye.", {"says": "Bye.", "tag": "pydantic-ai conversation"}),
        ):
            said, _, history = await ask(able, history, streamed, **script)
            assert said == output, said
        parts = [part for message in history for part in message.parts]
        assert all(len(part.tool_call_id) == 9 for part in parts if isinstance(part, ToolCallPart))
        assert any(isinstance(part, ThinkingPart) and part.content == " the quick brown fox" for part in parts)


@fact
async def what_cannot_succeed_later_is_raised_at_once():
    assert await raised(agent("nobody")) == (401, "invalid_api_key")
    assert await raised(agent(make_key(limit=0))) == (402, "key_limit_reached")
    assert await raised(agent(model="nobody")) == (404, "model_not_found")


@fact
async def what_may_succeed_later_is_tried_again():
    key = make_key(limit=0.001)

    async def reserved():
        async with held(key):
            return await ask(agent(key), [], tag="pydantic-ai 429")

    met = await asyncio.gather(reserved(), ask(agent(), [], tag="pydantic-ai 503", **RECOVERS))
    assert [said for said, _, _ in met] == [" the quick brown fox jumps"] * 2


if __name__ == "__main__":
    print(f"pydantic-ai-slim {version('pydantic-ai-slim')}")
    run()
