"""Features of the built-in model, used through the official Python SDK."""

import json
from typing import Literal

from facts import fact, run, setting
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

client = OpenAI(base_url=setting("BASE_URL"), api_key=setting("API_KEY"))
MODEL = client.models.list().data[0].id


class Weather(BaseModel):
    """Get the weather in a city"""

    city: str
    days: int
    unit: Literal["celsius", "fahrenheit"]


def ask(question, **more):
    messages = [{"role": "user", "content": question}]
    return client.chat.completions.create(**{"model": MODEL, "messages": messages, "max_tokens": 200, **more})


@fact
def a_seed_decides_what_is_said():
    # The tokens that end answers are banned. So the model continues beyond its training, where sampling makes a difference.
    wild = {"temperature": 2, "max_tokens": 60, "logit_bias": {"0": -100, "2": -100}}
    said = [ask("Hi", seed=seed, **wild).choices[0].message.content for seed in (7, 7, 8, 9, 10, 11, 12)]
    assert said[0] == said[1] and len(set(said)) > 3


@fact
def a_tool_is_called_answered_and_the_answer_used():
    question = {"role": "user", "content": "What is the weather in Paris for 3 days?"}
    weather = pydantic_function_tool(Weather, name="get_weather")
    first = client.chat.completions.create(
        model=MODEL, messages=[question], tools=[weather], tool_choice="required", parallel_tool_calls=False
    )
    assert first.choices[0].finish_reason == "tool_calls"
    [call] = first.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    Weather.model_validate_json(call.function.arguments, strict=True)
    told = {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"temperature": 21, "sky": "clear"})}
    messages = [question, first.choices[0].message, told]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[weather], tool_choice="none")
    assert second.choices[0].message.content and not second.choices[0].message.tool_calls


@fact
def a_streamed_call_gathers_to_one_that_its_schema_takes():
    named = {"type": "function", "function": {"name": "get_weather"}}
    with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the weather in Paris for 3 days?"}],
        tools=[pydantic_function_tool(Weather, name="get_weather")],
        tool_choice=named,
        max_tokens=500,
    ) as stream:
        kinds = [event.type for event in stream]
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert kinds.count("tool_calls.function.arguments.delta") > 5
    assert isinstance(call.function.parsed_arguments, Weather)


@fact
def what_a_schema_asks_for_is_what_is_parsed():
    class Person(BaseModel):
        name: str
        age: int

    for seed in range(5):
        answer = client.chat.completions.parse(
            model=MODEL,
            messages=[{"role": "user", "content": "Make JSON with name Mara and age 31"}],
            response_format=Person,
            temperature=0.5,
            seed=seed,
        )
        assert isinstance(answer.choices[0].message.parsed, Person)


@fact
def an_answer_stops_before_a_stop_string():
    whole = ask("How do I create an API key?").choices[0].message.content
    stop = whole.split()[3]
    stopped = ask("How do I create an API key?", stop=stop).choices[0]
    assert stopped.message.content == whole[: whole.index(stop)] and stopped.finish_reason == "stop"


run()
