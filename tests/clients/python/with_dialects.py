"""Checks clients that speak the Responses or the Messages API by default, with only address and key set."""

import base64
import os
from enum import Enum
from typing import get_args

import anthropic
import openai
from facts import RECOVERS, fact, raises, run, scripted, setting

BASE_URL, API_KEY = map(setting, ("BASE_URL", "API_KEY"))
MODEL = "Model Flash"
# The API of the upstream; chat completions if not set.
SPEAKS = os.environ.get("SPEAKS", "Chat")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()
SAID = " the quick brown fox jumps"
# These are the only settings of an application.
os.environ |= {"OPENAI_BASE_URL": BASE_URL, "OPENAI_API_KEY": API_KEY}
os.environ |= {"ANTHROPIC_BASE_URL": BASE_URL.removesuffix("/v1"), "ANTHROPIC_API_KEY": API_KEY}

from agents import Agent, Runner, function_tool, set_tracing_disabled  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from openresponses_types import types as shapes  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent as TypedAgent  # noqa: E402

set_tracing_disabled(True)
responses = openai.OpenAI().responses
client = anthropic.Anthropic()
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False}
LOOKUP = {"type": "function", "name": "lookup", "description": "Looks up.", "parameters": PARAMETERS, "strict": True}
CALLS_ONE = {"completion_tokens": 2, "tool_calls": 1}


class Town(BaseModel):
    name: str
    people: int


TOWN = '{"name": "Ulm", "people": 129000}'


@function_tool
def lookup(q: str) -> str:
    """Looks something up."""
    return f"all about {q}"


def text(**script) -> str:
    return scripted(**script)["content"]


def ask(**script):
    return client.messages.create(model=MODEL, max_tokens=500, messages=[scripted(**script)])


@fact
def a_response_is_answered_whole_and_streamed():
    whole = responses.create(model=MODEL, input=text(prompt_tokens=12, cached_tokens=4))
    assert (whole.output_text, whole.status, whole.model) == (SAID, "completed", MODEL)
    usage = whole.usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens) == (12, 4, 5)
    with responses.stream(model=MODEL, input=text(prompt_tokens=12, cached_tokens=4)) as stream:
        kinds = [event.type for event in stream]
        last = stream.get_final_response()
    assert (last.output_text, last.usage.cost) == (SAID, usage.cost)
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


@fact
def a_response_calls_a_tool_and_uses_the_answer():
    then = {"completion_tokens": 5}
    history = [scripted(**CALLS_ONE, then=then)]
    with responses.stream(model=MODEL, input=history, tools=[LOOKUP]) as stream:
        first = stream.get_final_response()
    [call] = [item for item in first.output if item.type == "function_call"]
    assert call.call_id and call.status == "completed"
    # A field that the SDK added; OpenAI would refuse it.
    history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "42"})
    assert responses.create(model=MODEL, input=history, tools=[LOOKUP]).output_text == SAID


@fact
def a_response_has_the_shape_of_a_class():
    assert responses.parse(model=MODEL, input=text(says=TOWN), text_format=Town).output_parsed == Town(name="Ulm", people=129000)


def events_by_type() -> dict[str, type[BaseModel]]:
    """Returns the event classes of the Open Responses specification, by event type."""
    events = {}
    for name, event in vars(shapes).items():
        if name.endswith("StreamingEvent"):
            kind = event.model_fields["type"].annotation
            for value in get_args(kind) or kind:
                events[value.value if isinstance(value, Enum) else value] = event
    return events


@fact
def responses_and_events_have_the_shapes_of_the_open_specification():
    events, seen = events_by_type(), set()
    tool = {"type": "function", "name": "lookup"}
    for asked in (
        {"input": text()},
        {"input": text(reasoning_tokens=3), "reasoning": {"summary": "auto"}},
        {"input": text(tool_calls=2), "tools": [LOOKUP, tool | {"name": "find", "description": None}, tool | {"name": "read"}]},
        {"input": text(refuses=True), "instructions": "Be brief.", "metadata": {"a": "b"}},
        {"input": text(completion_tokens=50), "max_output_tokens": 16},
        {"input": text(fault={"cut": {"after": 2}})},
    ):
        if "fault" not in asked["input"] and SPEAKS != "Responses":
            shapes.ResponseResource.model_validate(responses.create(model=MODEL, **asked).to_dict())
        for event in responses.create(model=MODEL, stream=True, **asked):
            # The specification and OpenAI use different names for reasoning. OpenAI's own responses also lack fields
            # that the specification requires.
            whole = event.type.endswith((".created", ".in_progress", ".completed", ".incomplete", ".failed"))
            if not event.type.startswith("response.reasoning_text.") and not (whole and SPEAKS == "Responses"):
                events[event.type].model_validate(event.to_dict())
            seen.add(event.type.removeprefix("response."))
    ends = {"completed", "incomplete", "failed"}
    # In Messages, a refusal is ordinary text with its own stop reason.
    refusal = set() if SPEAKS == "Messages" else {"refusal.delta"}
    assert ends | refusal | {"created", "function_call_arguments.done", "reasoning_summary_text.done"} <= seen, seen


@fact
def a_response_shows_reasoning_and_refusals():
    thought = responses.create(model=MODEL, input=text(reasoning_tokens=4), reasoning={"summary": "auto", "effort": "high"})
    [reasoning] = [item for item in thought.output if item.type == "reasoning"]
    assert reasoning.summary[0].text == " the quick brown fox"
    assert SPEAKS == "Responses" or reasoning.content[0].text == " the quick brown fox"
    refused = responses.create(model=MODEL, input=text(refuses=True)).output[0].content[0]
    assert (refused.text if SPEAKS == "Messages" else refused.refusal) == SAID


@fact
def a_response_sees_images():
    shown = [
        {"type": "input_text", "text": text(tag="responses images")},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "low"},
    ]
    assert responses.create(model=MODEL, input=[{"role": "user", "content": shown}]).output_text == SAID


@fact
def a_failed_response_is_an_error_and_tried_again_where_that_helps():
    assert responses.create(model=MODEL, input=text(tag="responses 503", **RECOVERS)).output_text == SAID
    events = list(responses.create(model=MODEL, input=text(fault={"cut": {"after": 2}}), stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.error.code == "upstream_error"
    stored = raises(openai.BadRequestError, lambda: responses.create(model=MODEL, input="x", previous_response_id="resp_1"))
    assert stored.code == "unsupported_parameter"


@fact
def a_message_is_answered_whole_and_streamed():
    whole = ask(prompt_tokens=12, cached_tokens=4)
    assert (whole.content[0].text, whole.stop_reason) == (SAID, "end_turn")
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens, whole.usage.output_tokens) == (8, 4, 5)
    with client.messages.stream(model=MODEL, max_tokens=500, messages=[scripted(prompt_tokens=12)]) as stream:
        said = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert (said, last.usage.output_tokens, last.stop_reason) == (SAID, 5, "end_turn")


@fact
def a_message_calls_a_tool_and_uses_the_answer():
    tools = [{"name": "lookup", "input_schema": PARAMETERS}]
    question = scripted(**CALLS_ONE, then={"completion_tokens": 5})
    with client.messages.stream(model=MODEL, max_tokens=500, messages=[question], tools=tools) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    [call] = [block for block in first.content if block.type == "tool_use"]
    assert call.input == {"q": "x"}, call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "42"}]}
    messages = [question, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = client.messages.create(model=MODEL, max_tokens=500, messages=messages, tools=tools)
    assert last.content[0].text == SAID


@fact
def a_message_shows_thinking_that_may_come_back():
    script = scripted(reasoning_tokens=4, completion_tokens=9)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with client.messages.stream(model=MODEL, max_tokens=2000, messages=[script], thinking=thinking) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == " the quick brown fox" and message.content[0].signature
    history = [script, {"role": "assistant", "content": message.content}, scripted(tag="messages thoughts")]
    assert client.messages.create(model=MODEL, max_tokens=500, messages=history).content[0].text == SAID
    plain = ask(reasoning_tokens=4, completion_tokens=9)
    # If the upstream speaks the client's API, the answer is unchanged.
    assert SPEAKS == "Messages" or plain.content[0].type == "text", "thinking that was not asked for stays hidden"


@fact
def a_message_sees_images():
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    shown = [{"type": "text", "text": text(tag="messages images")}, {"type": "image", "source": source}]
    said = client.messages.create(model=MODEL, max_tokens=500, messages=[{"role": "user", "content": shown}])
    assert said.content[0].text == SAID


@fact
def prompts_are_counted_and_models_paged():
    assert client.messages.count_tokens(model=MODEL, messages=[scripted(prompt_tokens=321)]).input_tokens == 321
    assert [model.id for model in client.models.list(limit=1)] == [MODEL, "Model Max"]
    assert client.models.retrieve(MODEL).display_name == MODEL


@fact
def errors_are_of_the_sdks_classes():
    assert ask(tag="messages 503", **RECOVERS).content[0].text == SAID
    unknown = raises(anthropic.NotFoundError, lambda: client.messages.create(model="x", max_tokens=1, messages=[scripted()]))
    assert unknown.request_id.startswith("req_") and unknown.body["error"]["type"] == "not_found_error"
    stranger = anthropic.Anthropic(api_key="fg_api_x")
    create = stranger.messages.create
    raises(anthropic.AuthenticationError, lambda: create(model=MODEL, max_tokens=1, messages=[scripted()]))

    def broken():
        with client.messages.stream(model=MODEL, max_tokens=9, messages=[scripted(fault={"cut": {"after": 2}})]) as stream:
            stream.get_final_message()

    assert raises(anthropic.APIStatusError, broken).body["error"]["type"] == "api_error"


@fact
async def frameworks_work_with_their_defaults():
    helper = Agent(name="agent", model=MODEL, tools=[lookup])
    result = await Runner.run(helper, [scripted(**CALLS_ONE, then={"completion_tokens": 5})])
    assert result.final_output == SAID
    streamed = Runner.run_streamed(helper, [scripted()])
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == SAID
    typed = await TypedAgent(f"openai:{MODEL}").run(text())
    assert typed.output == SAID


@fact
def langchain_speaks_both():
    for model in (ChatOpenAI(model=MODEL, use_responses_api=True), ChatAnthropic(model=MODEL, max_tokens=500)):
        assert model.invoke(text()).text == SAID
        assert "".join(chunk.text for chunk in model.stream(text())) == SAID
        told = model.invoke(text(prompt_tokens=12, cached_tokens=4)).usage_metadata
        assert (told["input_tokens"], told["output_tokens"], told["input_token_details"]["cache_read"]) == (12, 5, 4)
        caller = model.bind_tools([{"name": "lookup", "description": "Looks up.", "input_schema": PARAMETERS}])
        question = HumanMessage(text(**CALLS_ONE, then={"completion_tokens": 5}))
        called = caller.invoke([question])
        [call] = called.tool_calls
        assert (call["name"], call["args"]) == ("lookup", {"q": "x"})
        assert caller.invoke([question, called, ToolMessage("42", tool_call_id=call["id"])]).text == SAID
        typed = model.with_structured_output(Town, method="json_schema")
        assert typed.invoke(text(says=TOWN)) == Town(name="Ulm", people=129000)


@fact
def a_message_has_the_shape_of_a_class():
    asked = {"model": MODEL, "max_tokens": 500, "messages": [scripted(says=TOWN)]}
    assert client.messages.parse(**asked, output_format=Town).parsed_output == Town(name="Ulm", people=129000)


run()
