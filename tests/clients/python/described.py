"""Checks recorded exchanges against the service's own OpenAPI description.

Property-based clients send only what the description allows. This checks the reverse: the description must allow every
request that the service accepted, and describe every answer, including each event of a stream. The only argument is a file
with a JSON array of exchanges. The variable DESCRIPTION may name a file with another description.
"""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

import jsonschema_rs
from facts import fact, run, setting

if file := os.environ.get("DESCRIPTION"):
    DOCUMENT = json.loads(Path(file).read_text())
else:
    DOCUMENT = json.load(urllib.request.urlopen(setting("BASE_URL").removesuffix("/v1") + "/openapi.json"))
EXCHANGES = json.loads(Path(sys.argv[1]).read_text())
SHOWN = 600
JSON, EVENTS = "application/json", "text/event-stream"


def validator(schema: dict) -> jsonschema_rs.Validator:
    """Makes a validator for a schema that may refer to the description's components."""
    return jsonschema_rs.Draft202012Validator({"components": DOCUMENT["components"], "allOf": [schema]})


def wrong(schema: dict, value) -> str:
    """Returns how a value deviates from the description; empty if it does not."""
    error = next(validator(schema).iter_errors(value), None)
    return f"{error.message[:SHOWN]} at {error.instance_path}" if error else ""


def operation(exchange: dict) -> dict | None:
    """Returns the description of the route, if there is one."""
    method, path = exchange["request"].split(" ")
    for template, methods in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path.split("?")[0].rstrip("/") or "/"):
            return methods.get(method.lower())
    return None


def media_type(text: str | None) -> str:
    return (text or JSON).split(";")[0].strip().lower()


def described(response: dict, exchange: dict) -> str:
    """Returns how an answer deviates from the description; empty if it does not."""
    kind = media_type(exchange["answer_type"])
    if (content := response["content"].get(kind)) is None:
        return f"{kind} is not described"
    if kind == JSON:
        return wrong(content["schema"], json.loads(exchange["answer"]))
    # An event of several lines would contain a line end from the upstream. An event without a blank line after it was cut off.
    events = exchange["answer"].split("\n\n")[:-1]
    for event in events:
        if event.startswith(":") or event == "data: [DONE]":
            continue
        named, _, line = event.rpartition("\n")
        data = json.loads(line.removeprefix("data: "))
        name = "Error" if "error" in data else "ChatCompletionChunk"
        if named:
            # For the other dialects, the description has only whole objects and errors.
            assert named == f"event: {data['type']}", event
            whole = {"response": "Response", "error": "MessageError"}
            if (member := next((member for member in whole if member in data), None)) is None:
                continue
            name, data = whole[member], data[member] if member == "response" else data
        if problem := wrong({"$ref": f"#/components/schemas/{name}"}, data):
            return f"{problem} in {event[:SHOWN]}"
    return ""


def all_hold(judge) -> None:
    problems = [(problem, exchange) for exchange in EXCHANGES if (problem := judge(exchange))]
    shown = [f"{problem}: {exchange['request']} {exchange['body'][:SHOWN]}" for problem, exchange in problems[:5]]
    assert not problems, f"{len(problems)} of {len(EXCHANGES)}\n" + "\n".join(shown)


@fact
def what_the_service_takes_its_description_allows():
    def judge(exchange):
        if exchange["status"] >= 400:
            return ""
        if (route := operation(exchange)) is None:
            return "no such route"
        if not exchange["body"]:
            return ""
        content = route["requestBody"]["content"].get(media_type(exchange["request_type"]))
        return wrong(content["schema"], json.loads(exchange["body"])) if content else "this content type is not described"

    all_hold(judge)


@fact
def what_the_service_answers_is_described():
    def judge(exchange):
        if (route := operation(exchange)) is None:
            return ""
        if (response := route["responses"].get(str(exchange["status"]))) is None:
            return f"{exchange['status']} is not described"
        return described(response, exchange)

    all_hold(judge)


if __name__ == "__main__":
    taken = sum(exchange["status"] < 400 for exchange in EXCHANGES)
    print(f"{len(EXCHANGES)} exchanges, {taken} of them without an error")
    assert taken, "nothing was taken"
    run()
