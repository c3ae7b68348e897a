"""Every error that a client may get: its exception class in the official Python SDK, and the number of attempts.

All rows run at the same time with both clients, since retries wait as long as the server asks.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

import openai
from facts import fact, run, scripted, setting
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI, omit

BASE_URL, API_KEY, MANAGEMENT_KEY = map(setting, ("BASE_URL", "API_KEY", "MANAGEMENT_KEY"))
# A key of an account without credit, a gateway without its key-service, and a gateway without a free slot.
POOR_KEY, ALONE_URL, FULL_URL = map(setting, ("POOR_KEY", "ALONE_URL", "FULL_URL"))
MODEL = "Model Flash"
# Larger than the largest body that this gateway accepts.
TOO_LARGE = "x" * (1 << 20)
# Seconds that a client may wait in addition to the server's `Retry-After`.
PUNCTUALITY = 2.0
# How long the rest of a key's limit is held: longer than the attempts of all clients that need it held.
HELD_MS = 6_000
ONCE, THRICE = 1, 3


@dataclass
class Row:
    """An error of the API, and a request that causes it."""

    status: int
    code: str
    error: type[openai.APIStatusError]
    attempts: int
    method: str = "POST"
    path: str = "/chat/completions"
    body: dict | None = None
    content: bytes | None = None
    key: str = API_KEY
    headers: dict = field(default_factory=dict)
    base_url: str = BASE_URL
    # Seconds that the server asks clients to wait before a retry.
    wait: float = 0


def chat(**changes) -> dict:
    return {"model": MODEL, "messages": [scripted()], **changes}


def failing(name: str, fault) -> dict:
    return chat(messages=[scripted(tag=name, fault=fault)])


def upstream(status: int, shape: str = "nested") -> dict:
    return failing(f"python: {status} {shape}", {"error": {"status": status, "shape": shape}})


def prepare() -> dict[str, str]:
    """Creates keys, by the reason why they are refused. Also returns the id of one."""
    manage = OpenAI(base_url=BASE_URL, api_key=MANAGEMENT_KEY)
    make = lambda **fields: manage.post("/management/keys", body={"label": "errors", **fields}, cast_to=dict)
    again = {"headers": {"Idempotency-Key": "python: errors"}}
    manage.post("/management/keys", body={"label": "errors"}, cast_to=dict, options=again)
    revoked, reserved = make(), make(limit=0.0001)
    manage.delete(f"/management/keys/{revoked['id']}", cast_to=dict)
    return {
        "revoked": revoked["key"],
        "revoked id": revoked["id"],
        "disabled": make(disabled=True)["key"],
        "expired": make(expires_at="2020-01-01T00:00:00Z")["key"],
        "spent": make(limit=0)["key"],
        "reserved": reserved["key"],
    }


KEYS = prepare()
PATCHED = f"/management/keys/{KEYS['revoked id']}"
UNKNOWN_KEY = f"/management/keys/ak_{'0' * 32}"

ROWS = [
    Row(401, "missing_api_key", openai.AuthenticationError, ONCE, headers={"Authorization": omit}),
    Row(401, "invalid_authorization_header", openai.AuthenticationError, ONCE, headers={"Authorization": "Basic eDp5"}),
    Row(401, "invalid_api_key", openai.AuthenticationError, ONCE, key="nobody"),
    Row(401, "invalid_api_key", openai.AuthenticationError, ONCE, key=KEYS["revoked"]),
    Row(401, "invalid_management_key", openai.AuthenticationError, ONCE, "GET", "/management/keys", key="nobody"),
    Row(401, "key_disabled", openai.AuthenticationError, ONCE, key=KEYS["disabled"]),
    Row(401, "key_expired", openai.AuthenticationError, ONCE, key=KEYS["expired"]),
    Row(403, "management_key_not_allowed", openai.PermissionDeniedError, ONCE, key=MANAGEMENT_KEY),
    Row(403, "management_key_required", openai.PermissionDeniedError, ONCE, "GET", "/management/keys"),
    Row(402, "key_limit_reached", openai.APIStatusError, ONCE, key=KEYS["spent"]),
    Row(402, "insufficient_credits", openai.APIStatusError, ONCE, key=POOR_KEY),
    Row(429, "spend_reserved", openai.RateLimitError, THRICE, key=KEYS["reserved"], wait=1),
    Row(400, "invalid_json", openai.BadRequestError, ONCE, content=b'{"model": '),
    Row(400, "invalid_json", openai.BadRequestError, ONCE, content=b'{"model": "x", "model": "y"}'),
    Row(415, "unsupported_media_type", openai.APIStatusError, ONCE, content=b"hi", headers={"Content-Type": "text/plain"}),
    Row(413, "request_too_large", openai.APIStatusError, ONCE, body=chat(user=TOO_LARGE)),
    Row(400, "missing_required_parameter", openai.BadRequestError, ONCE, body={"model": MODEL}),
    Row(400, "invalid_type", openai.BadRequestError, ONCE, body=chat(stream="yes")),
    Row(400, "invalid_value", openai.BadRequestError, ONCE, body=chat(reasoning_effort="medium")),
    Row(400, "integer_below_min_value", openai.BadRequestError, ONCE, body=chat(max_tokens=0)),
    Row(400, "integer_above_max_value", openai.BadRequestError, ONCE, body=chat(n=9)),
    Row(400, "decimal_below_min_value", openai.BadRequestError, ONCE, body=chat(top_p=-1)),
    Row(400, "decimal_above_max_value", openai.BadRequestError, ONCE, body=chat(temperature=3)),
    Row(400, "string_above_max_length", openai.BadRequestError, ONCE, path="/management/keys", body={"label": "x" * 81},
        key=MANAGEMENT_KEY),
    Row(400, "array_above_max_length", openai.BadRequestError, ONCE, body=chat(stop=list("abcde"))),
    Row(400, "empty_array", openai.BadRequestError, ONCE, body=chat(messages=[])),
    Row(400, "empty_string", openai.BadRequestError, ONCE, body=chat(stop="")),
    Row(400, "unsupported_parameter", openai.BadRequestError, ONCE, body=chat(functions=[{"name": "f"}])),
    Row(400, "unsupported_value", openai.BadRequestError, ONCE, body=chat(modalities=["audio"])),
    Row(400, "unknown_parameter", openai.BadRequestError, ONCE, path="/management/keys", body={"lable": "x"},
        key=MANAGEMENT_KEY),
    Row(400, "context_length_exceeded", openai.BadRequestError, ONCE, body=upstream(400, "too_long")),
    Row(404, "model_not_found", openai.NotFoundError, ONCE, body=chat(model="nobody")),
    Row(404, "key_not_found", openai.NotFoundError, ONCE, "GET", UNKNOWN_KEY, key=MANAGEMENT_KEY),
    Row(404, "unknown_url", openai.NotFoundError, ONCE, path="/moderations", body={}),
    Row(405, "method_not_allowed", openai.APIStatusError, ONCE, "GET"),
    Row(409, "key_revoked", openai.ConflictError, ONCE, "PATCH", PATCHED, {"label": "late"}, key=MANAGEMENT_KEY),
    Row(409, "idempotency_key_reuse", openai.ConflictError, ONCE, path="/management/keys", body={"label": "other"},
        key=MANAGEMENT_KEY, headers={"Idempotency-Key": "python: errors"}),
    Row(503, "overloaded", openai.InternalServerError, THRICE, base_url=FULL_URL, wait=1),
    Row(502, "upstream_error", openai.InternalServerError, THRICE, body=upstream(500)),
    Row(502, "upstream_error", openai.InternalServerError, THRICE, body=upstream(401)),
    Row(502, "upstream_error", openai.InternalServerError, THRICE, body=failing("python: nonsense", {"nonsense": {"after": 0}})),
    Row(503, "upstream_unavailable", openai.InternalServerError, THRICE, body=upstream(429), wait=5),
    Row(503, "service_unavailable", openai.InternalServerError, THRICE, base_url=ALONE_URL, wait=2),
    Row(504, "upstream_timeout", openai.InternalServerError, THRICE, body=upstream(504)),
]

# Times at which each row's requests were sent and answered.
sent: dict[str, list[float]] = defaultdict(list)
answered: dict[str, list[float]] = defaultdict(list)


def note_sent(request) -> None:
    sent[request.headers["x-row"]].append(time.monotonic())


def note_answered(response) -> None:
    answered[response.request.headers["x-row"]].append(time.monotonic())


async def note_sent_async(request) -> None:
    note_sent(request)


async def note_answered_async(response) -> None:
    note_answered(response)


def request(row: Row, name: str) -> tuple[str, dict, dict]:
    """Returns options for constructing and for calling both clients."""
    body = {"content": row.content} if row.content is not None else {"body": row.body or chat()}
    if row.method == "GET":
        body = {}
    headers = {"x-row": name, "Content-Type": "application/json", **row.headers}
    return {"base_url": row.base_url, "api_key": row.key}, {"cast_to": object, "options": {"headers": headers}, **body}


def told(row: Row, name: str, error: Exception) -> str:
    """Returns the differences between the expected error and the client's exception; empty if there are none."""
    if type(error) is not row.error:
        return f"{error!r} is not {row.error.__name__}"
    if (error.status_code, error.code) != (row.status, row.code) or not error.request_id.startswith("req_"):
        return f"{error.status_code} {error.code} {error.request_id}"
    if len(sent[name]) != row.attempts:
        return f"{len(sent[name])} attempts"
    for before, after in zip(answered[name], sent[name][1:]):
        if not row.wait <= after - before < row.wait + PUNCTUALITY:
            return f"tried again after {after - before} s"
    return ""


async def meet(row: Row, name: str, call) -> str:
    try:
        await call()
    except Exception as error:
        wrong = told(row, name, error)
        return wrong and f"{name}: {wrong}"
    return f"{name}: no error"


@fact
async def every_error_has_its_class_and_its_number_of_attempts():
    sync_http = DefaultHttpxClient(event_hooks={"request": [note_sent], "response": [note_answered]})
    async_http = DefaultAsyncHttpxClient(
        event_hooks={"request": [note_sent_async], "response": [note_answered_async]}
    )

    def meet_both(number: int, row: Row):
        for kind, Client, http in (("sync", OpenAI, sync_http), ("async", AsyncOpenAI, async_http)):
            name = f"{number} {kind} {row.code}"
            made, called = request(row, name)
            verb = getattr(Client(http_client=http, **made), row.method.lower())
            call = lambda verb=verb, called=called: verb(row.path, **called)
            threaded = lambda call=call: asyncio.to_thread(call)
            yield meet(row, name, threaded if kind == "sync" else call)

    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEYS["reserved"]) as holder:
        # Holds the whole limit of its key while the other clients try.
        slow = chat(messages=[scripted(head_after_ms=HELD_MS, completion_tokens=1)])
        waiting = asyncio.create_task(holder.chat.completions.create(**slow))
        await asyncio.sleep(1)
        met = await asyncio.gather(*(one for number, row in enumerate(ROWS) for one in meet_both(number, row)))
        await waiting
    await async_http.aclose()
    wrong = [text for text in met if text]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    print(f"openai-python {openai.__version__}, {len(ROWS)} rows, sync and async")
    run()
