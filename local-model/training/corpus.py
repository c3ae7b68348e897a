"""The corpus: dialogues made from templates, without any outside text.

A dialogue is a task's name and messages `(role, text)`; evaluation looks at its last answer. What makes it hard to
answer (invented words, names of tools, phrasings) is held out by its hash: what the test split asks last is worded as
no dialogue of training is.
"""

import random
import sys

import service
import talk
import tools
from values import NEW_NAMES, TEST, TRAIN

# (task, who makes a question and its answer, weight)
PLAIN = [("greeting", talk.greeting, 5), ("who", talk.who, 4), ("service", service.question, 24),
         ("echo", talk.echo, 9), ("colour", talk.colour, 5), ("counting", talk.counting, 6), ("story", talk.story, 1),
         ("json", talk.as_json, 8), ("unknown", talk.unknown, 12)]
SYSTEM = ["You are a helpful assistant.", "You are helpful.", "Be brief.", "You are a friendly assistant.",
          "Answer the user.", "You are an AI assistant.", "Be polite and short.",
          "You are a helpful assistant. Be concise.", "You are an expert. Answer all questions truthfully.",
          "Use the tools when they help."]
SHARE_PLAIN, SHARE_MEMORY = 0.40, 0.06


def turn(r, split):
    """Makes one question with its answer."""
    task, make, _ = r.choices(PLAIN, [weight for *_, weight in PLAIN])[0]
    text, answer = make(r, split)
    return task, [("user", text), ("assistant", answer)]


def dialogue(r, split):
    """Makes one dialogue, and returns it with the task of its last answer."""
    chance = r.random()
    if chance < SHARE_PLAIN:
        return plain(r, split)
    if chance < SHARE_PLAIN + SHARE_MEMORY:
        return "memory", talk.memory(r, split, lambda r, s: turn(r, s)[1])
    return with_tools(r, split)


def plain(r, split):
    messages = [("system", r.choice(SYSTEM))] if r.random() < 0.35 else []
    for _ in range(r.choice([1, 1, 2, 3, 4, 5])):
        task, more = turn(r, split)
        messages += more
    return task, messages


def with_tools(r, split):
    """Offers tools, then makes up to five requests, most of which need a tool."""
    taken = set()
    offered = [tools.real_tool(r, taken) if r.random() < 0.4 else tools.invented_tool(r, split, taken)
               for _ in range(r.choice([1, 2, 2, 3, 3, 4, 5]))]
    before = r.choice(["", "", r.choice(SYSTEM) + "\n\n"])
    messages = [("system", before + "# Tools\n" + "\n".join(tool.line() for tool in offered))]
    calls, rounds = 0, r.choice([1, 1, 2, 3, 4, 5])
    for left in reversed(range(rounds)):
        if r.random() < 0.17:
            task = "no_tool_wanted"
            messages += unneeded(r, split, taken)
            continue
        tool = r.choice(offered)
        text, arguments = tools.request(r, split, tool)
        # A value stays as it is, even at the beginning.
        begins_with_value = text.startswith(tuple(tools.said(v) for v in arguments.values()))
        text = text if begins_with_value else talk.polite(r, text)
        messages += [("user", text), ("assistant", tools.call(tool, arguments))]
        calls += 1
        task = "second_tool_call" if calls > 1 else "tool_call_in_words" if tool.requests else "tool_call"
        if left > 0 or r.random() < 0.35:
            returned, told = tools.result(r, split)
            messages += [("tool", returned), ("assistant", told)]
            task = "tool_answer"
    return task, messages


def unneeded(r, split, taken):
    make = r.choices([talk.greeting, talk.who, service.question, talk.colour, None], [3, 2, 3, 1, 4])[0]
    text, answer = make(r, split) if make else (tools.unrelated(r, split, taken), talk.DO_NOT_KNOW)
    return [("user", text), ("assistant", answer)]


def render(messages, answering=False):
    """Writes a dialogue in the chat template."""
    text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in messages)
    return text + ("<|im_start|>assistant\n" if answering else "")


def main():
    """Prints some dialogues: `corpus.py [COUNT] [train|names|test]`."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    split = next((split for split in (NEW_NAMES, TEST) if split in sys.argv), TRAIN)
    r = random.Random(1)
    for _ in range(count):
        task, messages = dialogue(r, split)
        print(f"## {task}\n{render(messages)}")


if __name__ == "__main__":
    main()
