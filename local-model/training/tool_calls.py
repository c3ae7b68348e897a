"""Held-out requests, put to the running server with their tools: `tool_calls.py http://127.0.0.1:8000/v1`.

Where `evaluate.py` asks the network alone, this asks what clients ask: tools as JSON schemas, and whatever grammar the
server holds the answer to. Three numbers come out for every task: calls that are valid for their schema, calls of the
right tool, and calls that are right as a whole.
"""

import argparse
import json
import os
import urllib.request

from evaluate import held_out
from values import NEW_NAMES, TEST

TASKS = ["tool_call", "tool_call_in_words", "second_tool_call"]


def schema(shown):
    """The JSON schema of a parameter, from what the prompt shows of it."""
    if isinstance(shown, list):
        return {"type": "string", "enum": shown}
    return {"type": "array", "items": {"type": "string"}} if shown == "array" else {"type": shown}


def offered(system, wanted):
    """The system message without its tools, and the tools as a client sends them. What is wanted is required."""
    text, _, lines = system.partition("# Tools\n")
    tools = []
    for line in lines.split("\n"):
        tool = json.loads(line)
        properties = {name: schema(shown) for name, shown in tool["parameters"].items()}
        required = list(wanted["arguments"]) if tool["name"] == wanted["name"] else list(properties)
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        function = {"name": tool["name"], "description": tool["description"], "parameters": parameters}
        tools.append({"type": "function", "function": function})
    return text.strip(), tools


def called(text):
    return json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))


def message(role, text, number):
    if role == "assistant" and text.startswith("<tool_call>"):
        call = called(text)
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        return {"role": role, "content": None, "tool_calls": calls}
    return {"role": role, "content": text} | ({"tool_call_id": f"call_{number - 1}"} if role == "tool" else {})


def ask(base, body):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("API_KEY", "none")}
    request = urllib.request.Request(base + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]["message"]


def is_valid(call, tools):
    """Whether the call names a tool, has what is required and nothing else, and every value has its type."""
    tool = next((t["function"]["parameters"] for t in tools if t["function"]["name"] == call["name"]), None)
    arguments = call["arguments"]
    if tool is None or not isinstance(arguments, dict):
        return False
    if not set(tool["required"]) <= set(arguments) <= set(tool["properties"]):
        return False
    return all(has_type(v, tool["properties"][name]) for name, v in arguments.items())


def has_type(value, schema):
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list}
    if isinstance(value, bool) != (schema["type"] == "boolean") or not isinstance(value, kinds[schema["type"]]):
        return False
    return value in schema["enum"] if "enum" in schema else True


def measure(base, model, choice, messages):
    """Whether the call of the last answer is valid, of the right tool, right."""
    wanted = called(messages[-1][1])
    system, tools = offered(messages[0][1], wanted)
    history = [message(role, text, number) for number, (role, text) in enumerate(messages[1:-1])]
    body = {"model": model, "temperature": 0, "max_tokens": 300, "tools": tools, "tool_choice": choice,
            "messages": ([{"role": "system", "content": system}] if system else []) + history}
    calls = ask(base, body).get("tool_calls") or []
    try:
        call = {"name": calls[0]["function"]["name"], "arguments": json.loads(calls[0]["function"]["arguments"])}
    except (IndexError, ValueError):
        return False, False, False
    return is_valid(call, tools), call["name"] == wanted["name"], call == wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="the server's address, with /v1; API_KEY may hold a key for it")
    parser.add_argument("--model", default="tiny-demo")
    parser.add_argument("--choice", default="auto", choices=["auto", "required"])
    parser.add_argument("--split", choices=[NEW_NAMES, TEST], default=TEST, help="what of the requests was held out")
    parser.add_argument("--each", type=int, default=100)
    options = parser.parse_args()
    for task in TASKS:
        dialogues = [messages for name, messages in held_out(options.each, options.split) if name == task]
        results = [measure(options.base, options.model, options.choice, messages) for messages in dialogues]
        valid, named, right = (sum(column) for column in zip(*results))
        print(f"{task:20} of {options.each}: valid {valid}, right tool {named}, right as a whole {right}")


if __name__ == "__main__":
    main()
