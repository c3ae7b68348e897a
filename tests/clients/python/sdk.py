"""Behaviour of Faregate as applications see it through the official Python SDK, sync and async."""

import asyncio
import time
import uuid
from contextlib import contextmanager

import openai
from facts import fact, raises, run, setting
from openai import AsyncOpenAI, BaseModel, DefaultHttpxClient, OpenAI
from openai.pagination import SyncCursorPage

BASE_URL, API_KEY, MANAGEMENT_KEY = map(setting, ("BASE_URL", "API_KEY", "MANAGEMENT_KEY"))
# Seconds until an abandoned request is billed. No response waits for that.
SETTLED_WITHIN = 10

client = OpenAI(base_url=BASE_URL, api_key=API_KEY)
management = OpenAI(base_url=BASE_URL, api_key=MANAGEMENT_KEY)
MODEL = client.models.list().data[0].id
# A request without sampling, so that two answers to it are the same.
QUESTION = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is a spend limit?"}],
    "temperature": 0,
    "max_tokens": 24,
}


class ApiKey(BaseModel):
    """An API key as the management API shows it. Only creating it returns `key`."""

    id: str
    label: str
    status: str
    used: float
    limit: float | None
    key: str | None = None

    @property
    def used_nanos(self) -> int:
        return nanos(self.used)


def nanos(usd: float) -> int:
    """Converts USD to nano-USD, in which Faregate bills: every amount here is a whole number of them."""
    return round(usd * 1e9)


@contextmanager
def fresh_key(**fields):
    """Creates an API key, and a client that uses it."""
    key = management.post("/management/keys", body={"label": "clients: python", **fields}, cast_to=ApiKey)
    try:
        yield key, client.with_options(api_key=key.key)
    finally:
        management.delete(f"/management/keys/{key.id}", cast_to=ApiKey)


def look_up(key: ApiKey) -> ApiKey:
    return management.get(f"/management/keys/{key.id}", cast_to=ApiKey)


def text(chunks) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


# Answers


@fact
def the_models_are_listed_and_found_by_name():
    assert MODEL in [model.id for model in client.models.list()]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object) == (MODEL, "model")


@fact
def a_whole_answer_has_text_usage_and_ids():
    raw = client.chat.completions.with_raw_response.create(**QUESTION)
    answer = raw.parse()
    assert answer.model == MODEL and answer.object == "chat.completion"
    assert answer.id.startswith("gen_") and answer.id == raw.headers["x-generation-id"]
    assert answer._request_id.startswith("req_") and answer._request_id == raw.headers["x-request-id"]
    choice, usage = answer.choices[0], answer.usage
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert 0 < usage.completion_tokens <= QUESTION["max_tokens"] < usage.total_tokens
    assert usage.prompt_tokens + usage.completion_tokens == usage.total_tokens
    assert usage.prompt_tokens_details.cached_tokens is not None


@fact
def a_whole_answer_is_billed_exactly_what_it_says():
    with fresh_key(limit=1) as (key, caller):
        cost = nanos(caller.chat.completions.create(**QUESTION).usage.cost)
        assert cost > 0 and look_up(key).used_nanos == cost
        cost += nanos(caller.chat.completions.create(**QUESTION).usage.cost)
        assert look_up(key).used_nanos == cost


@fact
def a_stream_says_the_same_as_a_whole_answer_and_nothing_of_usage():
    whole = client.chat.completions.create(**QUESTION).choices[0]
    chunks = list(client.chat.completions.create(**QUESTION, stream=True))
    assert text(chunks) == whole.message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [whole.finish_reason]
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)


@fact
def a_stream_with_include_usage_ends_with_its_usage_and_is_billed_just_that():
    with fresh_key(limit=1) as (key, caller):
        chunks = list(caller.chat.completions.create(**QUESTION, stream=True, stream_options={"include_usage": True}))
        *before, last = chunks
        assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in before)
        assert last.choices == [] and last.usage.completion_tokens > 0
        assert look_up(key).used_nanos == nanos(last.usage.cost) > 0


@fact
def the_stream_helper_gathers_the_whole_answer():
    with client.chat.completions.stream(**QUESTION) as stream:
        kinds = {event.type for event in stream}
        gathered = stream.current_completion_snapshot
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert gathered.choices[0].message.content == client.chat.completions.create(**QUESTION).choices[0].message.content


@fact
def leaving_a_stream_early_is_billed_less_than_hearing_it_out():
    with fresh_key(limit=1) as (key, caller):
        full = nanos(caller.chat.completions.create(**QUESTION).usage.cost)
        stream = caller.chat.completions.create(**QUESTION, stream=True)
        next(chunk for chunk in stream if text([chunk]))
        stream.close()
        deadline = time.monotonic() + SETTLED_WITHIN
        while (spent := look_up(key).used_nanos - full) == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 0 < spent <= full, f"{spent} of {full}"


# Errors


@fact
def a_wrong_key_is_an_authentication_error():
    wrong = client.with_options(api_key="fg_api_" + "0" * 49)
    error = raises(openai.AuthenticationError, lambda: wrong.chat.completions.create(**QUESTION))
    assert (error.status_code, error.code, error.type) == (401, "invalid_api_key", "authentication_error")
    assert error.request_id.startswith("req_")


@fact
def an_unknown_model_is_a_not_found_error_that_names_the_known_ones():
    error = raises(openai.NotFoundError, lambda: client.chat.completions.create(**{**QUESTION, "model": "nobody"}))
    assert (error.code, error.type) == ("model_not_found", "invalid_request_error")
    assert MODEL in error.body["valid_models"]
    raises(openai.NotFoundError, lambda: client.models.retrieve("nobody"))


@fact
def a_bad_value_is_a_bad_request_error_that_names_its_place():
    def fault(**changes):
        error = raises(openai.BadRequestError, lambda: client.chat.completions.create(**{**QUESTION, **changes}))
        return error.code, error.param

    assert fault(temperature=3) == ("decimal_above_max_value", "temperature")
    assert fault(max_tokens=0) == ("integer_below_min_value", "max_tokens")
    assert fault(messages=[]) == ("empty_array", "messages")
    assert fault(stream="yes")[0] == "invalid_type"
    parts = [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]
    assert fault(messages=[{"role": "user", "content": parts}])[1] == "messages[0].content[0].image_url.url"


@fact
def a_stream_that_is_refused_raises_before_it_begins():
    raises(openai.BadRequestError, lambda: client.chat.completions.create(**{**QUESTION, "temperature": 3}, stream=True))


@fact
def each_class_of_key_is_denied_where_the_other_belongs():
    error = raises(openai.PermissionDeniedError, lambda: management.chat.completions.create(**QUESTION))
    assert error.code == "management_key_not_allowed"
    error = raises(openai.PermissionDeniedError, lambda: client.get("/management/keys", cast_to=object))
    assert error.code == "management_key_required"


@fact
def an_expired_a_spent_and_a_revoked_key_are_told_apart():
    def refusal(error, caller):
        return raises(error, lambda: caller.chat.completions.create(**QUESTION)).code

    with fresh_key(expires_at="2020-01-01T00:00:00Z") as (_, caller):
        assert refusal(openai.AuthenticationError, caller) == "key_expired"
    with fresh_key(limit=0) as (_, caller):
        assert refusal(openai.APIStatusError, caller) == "key_limit_reached"
    with fresh_key() as (_, caller):
        pass
    assert refusal(openai.AuthenticationError, caller) == "invalid_api_key"


@fact
def changing_a_revoked_key_is_a_conflict_that_is_not_tried_again():
    with fresh_key() as (key, _):
        pass
    attempts = []
    counting = DefaultHttpxClient(event_hooks={"request": [attempts.append]})
    caller = management.with_options(http_client=counting)
    change = lambda: caller.patch(f"/management/keys/{key.id}", body={"label": "late"}, cast_to=ApiKey)
    assert raises(openai.ConflictError, change).code == "key_revoked"
    assert len(attempts) == 1


# Management


@fact
def the_cursor_pager_walks_all_keys_newest_first():
    label = f"clients: pages {uuid.uuid4()}"
    made = [management.post("/management/keys", body={"label": label}, cast_to=ApiKey).id for _ in range(5)]
    pages = management.get_api_list(
        "/management/keys", model=ApiKey, page=SyncCursorPage[ApiKey], options={"params": {"limit": 2}}
    )
    walked = list(pages)
    assert len({key.id for key in walked}) == len(walked)
    assert [key.id for key in walked if key.label == label] == made[::-1]
    everything = management.get("/management/keys", cast_to=SyncCursorPage[ApiKey])
    assert [key.id for key in everything.data] == [key.id for key in walked]
    for key in made:
        assert management.delete(f"/management/keys/{key}", cast_to=ApiKey).status == "revoked"


@fact
def an_unknown_key_is_a_not_found_error():
    error = raises(openai.NotFoundError, lambda: management.get(f"/management/keys/ak_{'0' * 32}", cast_to=ApiKey))
    assert error.code == "key_not_found"


# Async


@fact
async def the_async_client_hears_the_same_answers_side_by_side():
    async with AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY) as caller:

        async def streamed() -> str:
            return text([chunk async for chunk in await caller.chat.completions.create(**QUESTION, stream=True)])

        async def whole() -> str:
            return (await caller.chat.completions.create(**QUESTION)).choices[0].message.content

        answers = await asyncio.gather(whole(), streamed(), streamed(), whole())
        assert len(set(answers)) == 1 and answers[0]


@fact
async def the_async_client_raises_the_same_errors():
    async with AsyncOpenAI(base_url=BASE_URL, api_key="nobody") as caller:
        try:
            await caller.chat.completions.create(**QUESTION)
        except openai.AuthenticationError as error:
            assert error.code == "invalid_api_key" and error.request_id.startswith("req_")
        else:
            raise AssertionError("no error was raised")


if __name__ == "__main__":
    print(f"openai-python {openai.__version__}, model {MODEL}")
    run()
