"""What applications get through the official Python SDK. Each fact runs with the sync and the async client.

The model is scripted: a user message tells it what to do. The test that started this script checks the requests that
reached the model, by their tags.
"""

import asyncio
import base64
import json

import openai
from facts import fact, raises, run, scripted, setting
from openai import AsyncOpenAI, OpenAI, pydantic_function_tool
from openai.pagination import AsyncCursorPage, SyncCursorPage
from pydantic import BaseModel

BASE_URL, API_KEY, MANAGEMENT_KEY = map(setting, ("BASE_URL", "API_KEY", "MANAGEMENT_KEY"))
MODEL = "Model Flash"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


class Sync:
    """The sync client, behind the interface that the facts use."""

    def __init__(self, key: str):
        self.client = OpenAI(base_url=BASE_URL, api_key=key)
        self.completions = self.client.chat.completions

    def create(self, *said, **request):
        return self.completions.create(model=MODEL, messages=list(said), **request)

    def chunks(self, *said, **request):
        return list(self.completions.create(model=MODEL, messages=list(said), stream=True, **request))

    def parse(self, *said, **request):
        return self.completions.parse(model=MODEL, messages=list(said), **request)

    def gathered(self, *said, **request):
        """Returns the final result of the SDK's helper for streams, and the types of its events."""
        with self.completions.stream(model=MODEL, messages=list(said), **request) as stream:
            kinds = {event.type for event in stream}
            return stream.get_final_completion(), kinds

    def keys(self, **query):
        options = {"params": query}
        return list(self.client.get_api_list("/management/keys", model=Key, page=SyncCursorPage[Key], options=options))


class Async:
    """The async client, behind the same interface: each call runs a coroutine to its end."""

    def __init__(self, key: str):
        self.client = AsyncOpenAI(base_url=BASE_URL, api_key=key)
        self.completions = self.client.chat.completions

    def create(self, *said, **request):
        return LOOP.run_until_complete(self.completions.create(model=MODEL, messages=list(said), **request))

    def chunks(self, *said, **request):
        async def chunks():
            stream = await self.completions.create(model=MODEL, messages=list(said), stream=True, **request)
            return [chunk async for chunk in stream]

        return LOOP.run_until_complete(chunks())

    def parse(self, *said, **request):
        return LOOP.run_until_complete(self.completions.parse(model=MODEL, messages=list(said), **request))

    def gathered(self, *said, **request):
        async def gathered():
            async with self.completions.stream(model=MODEL, messages=list(said), **request) as stream:
                kinds = {event.type async for event in stream}
                return await stream.get_final_completion(), kinds

        return LOOP.run_until_complete(gathered())

    def keys(self, **query):
        async def keys():
            options = {"params": query}
            pages = self.client.get_api_list("/management/keys", model=Key, page=AsyncCursorPage[Key], options=options)
            return [key async for key in pages]

        return LOOP.run_until_complete(keys())


LOOP = asyncio.new_event_loop()
CALLERS = (Sync(API_KEY), Async(API_KEY))
MANAGERS = (Sync(MANAGEMENT_KEY), Async(MANAGEMENT_KEY))


def of_both(callers):
    """Marks a function as a fact that runs with the sync and the async client."""

    def mark(function):
        for caller in callers:
            held = lambda caller=caller: function(caller)
            held.__name__ = f"{type(caller).__name__.lower()}_{function.__name__}"
            fact(held)
        return function

    return mark


class Key(openai.BaseModel):
    """The members of an API key that pagination needs."""

    id: str
    label: str


class Lookup(BaseModel):
    """Arguments of the tool that the scripted model calls."""

    q: str


class Town(BaseModel):
    """Schema of the application for a structured answer."""

    name: str
    people: int
    rivers: list[str]


LOOKUP = {"type": "function", "function": {"name": "lookup", "parameters": Lookup.model_json_schema()}}
KOELN = Town(name="Köln", people=1_087_353, rivers=["Rhein"])


def text(chunks, name="content", choice=0) -> str:
    """Concatenates this member of a choice's deltas."""
    said = (c.delta for chunk in chunks for c in chunk.choices if c.index == choice)
    return "".join(getattr(delta, name, None) or "" for delta in said)


# Tools


@of_both(CALLERS)
def tools_make_a_round_trip(caller):
    question = scripted(tag="tools", tool_calls=2, completion_tokens=0)
    choice = caller.create(question, tools=[LOOKUP], tool_choice="auto", parallel_tool_calls=True).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    calls = choice.message.tool_calls
    assert [(c.id, c.type, c.function.name) for c in calls] == [
        ("call_0", "function", "lookup"),
        ("call_1", "function", "lookup"),
    ]
    assert all(json.loads(call.function.arguments) == {"q": "x"} for call in calls)
    # The message is sent back exactly as the SDK made it, with its `None`s and its refusal.
    answers = [{"role": "tool", "tool_call_id": call.id, "content": "42"} for call in calls]
    last = scripted(tag="tools, answered", completion_tokens=3)
    choice = caller.create(question, choice.message, *answers, last, tools=[LOOKUP]).choices[0]
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None) and choice.message.content


@of_both(CALLERS)
def tool_calls_come_in_pieces_that_add_up(caller):
    question = scripted(tool_calls=2, completion_tokens=2)
    calls = {}
    for chunk in caller.chunks(question, tools=[LOOKUP]):
        for piece in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(piece.index, {"id": piece.id, "name": piece.function.name, "arguments": ""})
            call["arguments"] += piece.function.arguments or ""
    assert calls == {i: {"id": f"call_{i}", "name": "lookup", "arguments": '{"q":"x"}'} for i in (0, 1)}
    # The SDK's own helper joins the pieces into the same result as a whole answer.
    gathered, kinds = caller.gathered(question, tools=[LOOKUP])
    whole = caller.create(question, tools=[LOOKUP]).choices[0]
    assert "tool_calls.function.arguments.done" in kinds
    plain = lambda choice: [call.model_dump(include={"id": True, "type": True, "function": {"name", "arguments"}})
                            for call in choice.message.tool_calls]
    assert plain(gathered.choices[0]) == plain(whole)
    assert gathered.choices[0].finish_reason == whole.finish_reason == "tool_calls"


@of_both(CALLERS)
def the_parser_reads_the_arguments_of_tool_calls(caller):
    tool = pydantic_function_tool(Lookup, name="lookup")
    message = caller.parse(scripted(tag="strict tools", tool_calls=1), tools=[tool]).choices[0].message
    assert message.tool_calls[0].function.parsed_arguments == Lookup(q="x")


# Images


@of_both(CALLERS)
def images_are_shown_by_url_and_inside_the_body(caller):
    shown = [
        {"type": "text", "text": scripted(tag="images")["content"]},
        {"type": "image_url", "image_url": {"url": "https://images.example.com/cat.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    assert caller.create({"role": "user", "content": shown}).choices[0].message.content


# Reasoning


@of_both(CALLERS)
def reasoning_reaches_the_client_whole_and_in_pieces(caller):
    thinks = scripted(tag="reasoning", completion_tokens=6, reasoning_tokens=4, style={"reasoning": "reasoning"})
    message = caller.create(thinks, reasoning_effort="high").choices[0].message
    chunks = caller.chunks(thinks, reasoning_effort="low")
    assert message.reasoning_content == text(chunks, "reasoning_content") == " the quick brown fox"
    assert message.content == text(chunks) == " the quick"


@of_both(CALLERS)
def what_was_thought_may_be_sent_back(caller):
    message = caller.create(scripted(reasoning_tokens=4, completion_tokens=6)).choices[0].message
    assert caller.create(scripted(), message, scripted(tag="thoughts")).choices[0].message.content


# Shapes


@of_both(CALLERS)
def the_parser_asks_for_a_shape_and_reads_the_answer_into_it(caller):
    asks = scripted(tag="shape", says=KOELN.model_dump_json())
    message = caller.parse(asks, response_format=Town).choices[0].message
    assert message.parsed == KOELN and message.refusal is None
    gathered, kinds = caller.gathered(asks, response_format=Town)
    assert gathered.choices[0].message.parsed == KOELN and "content.done" in kinds


@of_both(CALLERS)
def the_parser_raises_where_the_length_cuts_the_answer(caller):
    asks = scripted(says=KOELN.model_dump_json())
    cut = lambda: caller.parse(asks, response_format=Town, max_tokens=2)
    assert raises(openai.LengthFinishReasonError, cut).completion.usage.completion_tokens == 2


@of_both(CALLERS)
def any_json_can_be_asked_for(caller):
    asks = scripted(tag="json", says='{"a": [1, 2]}')
    answer = caller.create(asks, response_format={"type": "json_object"})
    assert json.loads(answer.choices[0].message.content) == {"a": [1, 2]}


# Several choices, and log probabilities


@of_both(CALLERS)
def several_choices_are_told_apart(caller):
    asks = scripted(tag="choices", completion_tokens=3, style={"usage_by_choice": True})
    whole = caller.create(asks, n=3)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert whole.usage.completion_tokens == 9
    chunks = caller.chunks(asks, n=3, stream_options={"include_usage": True})
    for choice in whole.choices:
        assert text(chunks, choice=choice.index) == choice.message.content
    assert chunks[-1].usage.completion_tokens == 9
    assert sorted(c.index for chunk in chunks for c in chunk.choices if c.finish_reason) == [0, 1, 2]


@of_both(CALLERS)
def probabilities_reach_the_client(caller):
    asks = {"logprobs": True, "top_logprobs": 3}
    logprobs = caller.create(scripted(tag="logprobs"), **asks).choices[0].logprobs
    told = logprobs.content
    # Only the API's fields, although the upstream also sends details about itself.
    assert logprobs.model_fields_set == {"content", "refusal"} and logprobs.refusal is None
    assert all(token.model_fields_set == {"token", "logprob", "bytes", "top_logprobs"} for token in told)
    assert [token.token for token in told] == [" the", " quick", " brown", " fox", " jumps"]
    assert [top.logprob for top in told[0].top_logprobs] == [-0.25, -0.5, -0.75]
    chunks = caller.chunks(scripted(style={"lines": True}), **asks)
    pieces = [choice.logprobs for chunk in chunks for choice in chunk.choices]
    assert [token for piece in pieces if piece for token in piece.content] == told


# Usage


@of_both(CALLERS)
def cached_tokens_are_told(caller):
    usage = caller.create(scripted(prompt_tokens=900, cached_tokens=512)).usage
    assert (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) == (900, 512)


@of_both(CALLERS)
def roles_and_spellings_of_newer_clients_are_understood(caller):
    system = {"role": "developer", "content": "Be brief."}
    asks = scripted(tag="spellings", completion_tokens=50)
    extras = {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "verbosity": "low",
              "prompt_cache_key": "k", "safety_identifier": "s", "extra_body": {"unheard_of": 1}}
    answer = caller.create(system, asks, max_completion_tokens=4, **extras)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (4, "length")


# Streams that break


@of_both(CALLERS)
def a_stream_that_breaks_raises_and_is_not_tried_again(caller):
    broken = {
        "cut": {"cut": {"after": 3}},
        "no end": {"end": {"after": 3}},
        "error event": {"error_event": {"after": 3, "shape": "flat"}},
    }
    for name, fault in broken.items():
        asks = scripted(tag=f"broken: {name}", completion_tokens=9, fault=fault)
        error = raises(openai.APIError, lambda: caller.chunks(asks))
        assert (error.code, error.type) == ("upstream_error", "server_error"), name
    asks = scripted(tag="broken: abort", finish_reason="abort")
    assert raises(openai.APIError, lambda: caller.chunks(asks)).code == "upstream_error"


# Management


@of_both(MANAGERS)
def the_cursor_pager_walks_every_page_both_ways(manager):
    newest_first = manager.keys(limit=3)
    assert len(newest_first) > 6 and len({key.id for key in newest_first}) == len(newest_first)
    assert manager.keys(limit=3, order="asc") == newest_first[::-1]
    assert manager.keys(limit=3, after=newest_first[1].id) == newest_first[2:]
    assert manager.keys(limit=1000) == newest_first


if __name__ == "__main__":
    print(f"openai-python {openai.__version__}")
    run()
    LOOP.close()
