"""Checks LangChain's `ChatOpenAI`, with a scripted model behind Faregate."""

from importlib.metadata import version

import openai
from facts import fact, raises, run, scripted, setting
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

BASE_URL, API_KEY = map(setting, ("BASE_URL", "API_KEY"))
PIXEL = "iVBORw0KGgoAAAANSUhEUg=="

model = ChatOpenAI(model="Model Flash", base_url=BASE_URL, api_key=API_KEY, stream_usage=True)


class Town(BaseModel):
    """A town."""

    name: str
    people: int


@tool
def lookup(q: str) -> str:
    """Looks something up."""
    return f"all about {q}"


def asking(**script) -> HumanMessage:
    return HumanMessage(scripted(**script)["content"])


@fact
def a_question_is_answered_and_its_usage_told():
    said = model.invoke([SystemMessage("Be brief."), asking(prompt_tokens=12, cached_tokens=4)])
    assert said.content == " the quick brown fox jumps"
    assert said.usage_metadata["input_tokens"] == 12 and said.usage_metadata["output_tokens"] == 5
    assert said.usage_metadata["input_token_details"]["cache_read"] == 4
    assert said.response_metadata["finish_reason"] == "stop"
    assert said.id == said.response_metadata["id"] or said.response_metadata["id"].startswith("gen_")


@fact
def a_stream_adds_up_to_the_answer_with_its_usage():
    pieces = list(model.stream([asking(prompt_tokens=12)]))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert len(pieces) > 5 and whole.content == " the quick brown fox jumps"
    assert (whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]) == (12, 5)


@fact
async def the_async_model_streams_the_same():
    said = [piece.content async for piece in model.astream([asking()])]
    assert "".join(said) == " the quick brown fox jumps"


@fact
def tools_make_a_round_trip():
    able = model.bind_tools([lookup], parallel_tool_calls=True)
    question = asking(tag="langchain tools", tool_calls=2, completion_tokens=0)
    called = able.invoke([question])
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("lookup", {"q": "x"})] * 2
    answers = [ToolMessage(lookup.invoke(call["args"]), tool_call_id=call["id"]) for call in called.tool_calls]
    said = able.invoke([question, called, *answers, asking(tag="langchain tools, answered")])
    assert said.content and not said.tool_calls


@fact
def streamed_tool_calls_add_up():
    whole = None
    for piece in model.bind_tools([lookup]).stream([asking(tool_calls=2)]):
        whole = piece if whole is None else whole + piece
    assert [(call["id"], call["args"]) for call in whole.tool_calls] == [("call_0", {"q": "x"}), ("call_1", {"q": "x"})]


@fact
def a_shape_is_asked_for_and_read():
    for method in ("json_schema", "json_mode"):
        shaped = model.with_structured_output(Town, method=method)
        said = shaped.invoke([asking(tag=f"langchain {method}", says='{"name": "Köln", "people": 1087353}')])
        assert said == Town(name="Köln", people=1_087_353)


@fact
def images_are_shown():
    shown = [
        {"type": "text", "text": scripted(tag="langchain images")["content"]},
        {"type": "image_url", "image_url": {"url": "https://images.example.com/cat.png"}},
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
    ]
    assert model.invoke([HumanMessage(shown)]).content


@fact
def probabilities_are_told():
    said = model.bind(logprobs=True, top_logprobs=2).invoke([asking()])
    assert said.response_metadata["logprobs"]["content"][0]["token"] == " the"


@fact
def batches_run_side_by_side():
    said = model.batch([[asking()] for _ in range(8)])
    assert {answer.content for answer in said} == {" the quick brown fox jumps"}


@fact
def errors_are_those_of_the_official_sdk():
    wrong = ChatOpenAI(model="Model Flash", base_url=BASE_URL, api_key="nobody")
    try:
        wrong.invoke("hi")
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key"
    else:
        raise AssertionError("no error was raised")
    broken = [asking(completion_tokens=9, fault={"cut": {"after": 3}})]
    assert raises(openai.APIError, lambda: list(model.stream(broken))).code == "upstream_error"


if __name__ == "__main__":
    print(f"langchain-openai {version('langchain-openai')}, langchain-core {version('langchain-core')}")
    run()
