"""Checks the OpenAI Agents SDK, with a scripted model behind Faregate."""

import asyncio
from importlib.metadata import version

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunErrorHandlerResult,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from facts import RECOVERS, fact, held, make_key, run, scripted, setting
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

BASE_URL, API_KEY = map(setting, ("BASE_URL", "API_KEY"))
NO_ID = {"call_ids": "null"}

# By default, the SDK sends traces to its vendor.
set_tracing_disabled(True)


class Town(BaseModel):
    name: str
    people: int


@function_tool
def lookup(q: str) -> str:
    """Looks something up."""
    return f"all about {q}"


def agent(api_key: str = API_KEY, model: str = "Model Flash", **more) -> Agent:
    client = AsyncOpenAI(base_url=BASE_URL, api_key=api_key)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    return Agent(name="agent", model=chat, model_settings=ModelSettings(include_usage=True), **more)


def keep_refusal(failed) -> RunErrorHandlerResult:
    """Ends a run with the refusal, and leaves it unchanged in the conversation."""
    return RunErrorHandlerResult(final_output=failed.error.refusal, include_in_history=False)


async def ask(asked: Agent, history: list, streamed: bool = False, **script):
    """Runs one turn and returns its result."""
    question = [*history, scripted(**script)]
    handlers = {"model_refusal": keep_refusal}
    if not streamed:
        return await Runner.run(asked, question, error_handlers=handlers)
    result = Runner.run_streamed(asked, question, error_handlers=handlers)
    async for _ in result.stream_events():
        pass
    return result


async def raised(error: type[Exception], asked: Agent) -> Exception:
    try:
        await ask(asked, [])
    except error as met:
        return met
    raise AssertionError(f"no {error.__name__} was raised")


@fact
async def a_question_is_answered_and_its_usage_told():
    result = await ask(agent(instructions="Be brief."), [], prompt_tokens=12, cached_tokens=4)
    usage = result.context_wrapper.usage
    assert result.final_output == " the quick brown fox jumps"
    assert (usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens) == (12, 5, 4)


@fact
async def a_stream_adds_up_to_the_answer_with_its_usage():
    result = Runner.run_streamed(agent(), [scripted(prompt_tokens=12)])
    events = [event async for event in result.stream_events()]
    raw = [event.data for event in events if event.type == "raw_response_event"]
    pieces = [data.delta for data in raw if isinstance(data, ResponseTextDeltaEvent)]
    assert len(pieces) > 1 and "".join(pieces) == result.final_output == " the quick brown fox jumps"
    usage = result.context_wrapper.usage
    assert (usage.input_tokens, usage.output_tokens) == (12, 5)


@fact
async def tools_make_a_round_trip():
    for streamed in (False, True):
        able = agent(tools=[lookup])
        result = await ask(able, [], streamed, tool_calls=2, completion_tokens=0, then={"says": "It is 42."})
        assert result.final_output == "It is 42." and len(result.raw_responses) == 2


@fact
async def a_shape_is_asked_for_and_read():
    for streamed in (False, True):
        result = await ask(agent(output_type=Town), [], streamed, says='{"name": "Köln", "people": 1087353}')
        assert result.final_output == Town(name="Köln", people=1_087_353)


@fact
async def a_refusal_is_told_and_can_be_sent_back():
    for streamed in (False, True):
        refused = await ask(agent(), [], streamed, refuses=True, says="I cannot.")
        assert refused.final_output == "I cannot."
        history = refused.to_input_list()
        assert history[1]["content"][0]["type"] == "refusal"
        assert (await ask(agent(), history, streamed)).final_output == " the quick brown fox jumps"


@fact
async def a_conversation_goes_on_through_a_refusal_a_call_without_an_id_and_reasoning():
    for streamed in (False, True):
        able, history = agent(tools=[lookup]), []
        for output, script in (
            ("I cannot.", {"refuses": True, "says": "I cannot."}),
            ("It is 42.", {"tool_calls": 1, "completion_tokens": 0, "style": NO_ID, "then": {"says": "It is 42."}}),
            (" the quick", {"completion_tokens": 6, "reasoning_tokens": 4}),
            ("Bye.", {"says": "Bye.", "tag": "agents conversation"}),
        ):
            result = await ask(able, history, streamed, **script)
            assert result.final_output == output, result.final_output
            history = result.to_input_list()
        assert "reasoning" in {item.get("type") for item in history}


@fact
async def what_cannot_succeed_later_is_raised_at_once():
    assert (await raised(openai.AuthenticationError, agent("nobody"))).code == "invalid_api_key"
    spent = await raised(openai.APIStatusError, agent(make_key(limit=0)))
    assert (spent.status_code, spent.code) == (402, "key_limit_reached")
    assert (await raised(openai.NotFoundError, agent(model="nobody"))).code == "model_not_found"


@fact
async def what_may_succeed_later_is_tried_again():
    key = make_key(limit=0.001)

    async def reserved():
        async with held(key):
            return await ask(agent(key), [], tag="agents 429")

    met = await asyncio.gather(reserved(), ask(agent(), [], tag="agents 503", **RECOVERS))
    assert [result.final_output for result in met] == [" the quick brown fox jumps"] * 2


if __name__ == "__main__":
    print(f"openai-agents {version('openai-agents')}")
    run()
