"""Scenes: each acts as a client, then checks the bills against the servers' counters."""

import copy
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from installation import DEAR, NANO, PRICE, RESOLVED
from processes import wait_until

DIALECTS = ("chat", "responses", "messages")
SHAPE = {False: "whole", True: "streamed"}
SENTENCE = "Yes, this small model answers with a fixed sentence."
# Maximum number of tokens that a server may generate after the last one that the gateway saw, and seconds until it must have
# stopped. An idle machine needs 1 to 30 tokens; more if other work takes the CPU from the gateway.
UNDER_WAY = 100
STOPS = 5
# Nano-USD per generated token at the high price. When a cap cuts an answer, less than this may be left.
DEAR_TOKEN = round(float(DEAR["output"]) * 1000)
AT_ONCE = 64
# Number of requests for which the journal is compared with a server's log.
RECORDED = 24
# A token that is the first half of a character. Until the other half follows, there is no text to send.
HALF_A_CHARACTER = "127"
TOOL = [{"type": "function", "function": {"name": "lookup", "parameters": {
    "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "Town", "schema": TOOL[0]["function"]["parameters"]}}
IMAGE = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
TEXTS = ("a", "東京" * 50, "1234567890" * 50, "<|im_end|>" * 50, " " * 500)


class Stage:
    """An installation in front of one kind of server, with the recorded checks."""

    def __init__(self, checks, installation, column, prefix, servers):
        self.checks, self.at, self.column, self.prefix, self.servers = checks, installation, column, prefix, servers

    def holds(self, name, is_so, figure=""):
        self.checks.holds(self.column, name, is_so, figure)

    def key(self, usd=1, **more):
        return self.at.key(usd, **more)

    def ask(self, key, dialect, model, *arguments, **more):
        return self.at.ask(key, dialect, f"{self.prefix}-{model}", *arguments, **more)

    def measured(self, server, act):
        """Runs an action. Returns its result, what the server counted meanwhile, and how long it stayed busy afterwards."""
        before, _ = self.servers[server].counters()
        result = act()
        after, idle_after = self.servers[server].counters()
        return result, after.since(before), idle_after

    def is_exact(self, name, server, act, so=lambda answer: True, read_once=True):
        """Checks that the bill and the answer's usage equal what the server counted.

        Without `read_once`, prompt tokens are not compared: some servers count the prompt once per choice, but report it once."""
        key = self.key()
        answer, counted, _ = self.measured(server, lambda: act(key))
        usage, used = answer.usage(), self.at.settled(key)
        if not usage:
            return self.holds(name, False, answer.message())
        same = usage.completion == counted.generated and (not read_once or (usage.prompt, usage.cached) == (counted.prompt, counted.cached))
        figure = f"{counted.generated:,} generated"
        if not (same and used == usage.price()):
            figure = f"server counted {counted}, answer says {usage}, billed {used / NANO} USD, which is {usage.price() / NANO}"
        elif not so(answer):
            figure = f"{figure}, but {json.dumps(answer.body)[:300]}"
        return self.holds(name, same and used == usage.price() and so(answer), figure)


def whole_and_streamed(stage):
    for dialect in DIALECTS:
        for stream in (False, True):
            stage.is_exact(f"{SHAPE[stream]} {dialect}", "tiny", lambda key: stage.ask(key, dialect, "tiny", stream=stream),
                           so=lambda answer: SENTENCE in answer.text())
        stage.is_exact(f"streamed {dialect}, longer than a grant", "loop",
                       lambda key: stage.ask(key, dialect, "loop", limit=2000, stream=True))


def choices(stage):
    for stream in (False, True):
        stage.is_exact(f"{SHAPE[stream]} chat, n = 3", "tiny",
                       lambda key: stage.ask(key, "chat", "tiny", stream=stream, n=3), read_once=False)
        tokens = lambda answer: sum(len((choice.get("logprobs") or {}).get("content") or []) for event in answer.events
                                    for choice in event.get("choices", []))
        stage.is_exact(f"{SHAPE[stream]} chat, logprobs", "tiny",
                       lambda key: stage.ask(key, "chat", "tiny", stream=stream, logprobs=True, top_logprobs=2),
                       so=lambda answer: answer.usage().completion - tokens(answer) in (0, 1))
        stage.is_exact(f"{SHAPE[stream]} chat, a stop string", "tiny",
                       lambda key: stage.ask(key, "chat", "tiny", stream=stream, stop=[" model answers"]),
                       so=lambda answer: answer.text() == "Yes, this small")
        stage.is_exact(f"{SHAPE[stream]} chat, a JSON schema", "tiny",
                       lambda key: stage.ask(key, "chat", "tiny", stream=stream, limit=200, response_format=SCHEMA),
                       so=lambda answer: answer.text().lstrip().startswith("{"))
        if "strict" in stage.servers:
            stage.is_exact(f"{SHAPE[stream]} chat of a model that thinks", "strict", lambda key: stage.ask(key, "chat", "strict", stream=stream))


def tools(stage):
    """The model calls a tool: with the agent's weights by itself, otherwise because the request names the tool."""
    named = {} if "agent" in stage.servers else {"tool_choice": {"type": "function", "function": {"name": "lookup"}}}
    model = "agent" if "agent" in stage.servers else "tiny"
    call = {}

    def calls(answer):
        deltas = [part for event in answer.events for choice in event["choices"]
                  for part in (choice.get("delta") or choice.get("message") or {}).get("tool_calls") or []]
        call["name"] = "".join(part["function"].get("name") or "" for part in deltas)
        call["arguments"] = "".join(part["function"].get("arguments") or "" for part in deltas)
        json.loads(call["arguments"])
        return call["name"] == "lookup"

    for stream in (False, True):
        stage.is_exact(f"{SHAPE[stream]} chat, a tool is called", model,
                       lambda key: stage.ask(key, "chat", model, stream=stream, limit=500, tools=TOOL, **named), so=calls)
    said = {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": call}]}
    history = [{"role": "user", "content": "Hello"}, said, {"role": "tool", "tool_call_id": "call_1", "content": "meow"}]
    stage.is_exact("whole chat, the tool's answer is answered", model,
                   lambda key: stage.ask(key, "chat", model, history, tools=TOOL),
                   so=lambda answer: "agent" not in stage.servers or answer.text().startswith("Yes"))


def cached_tokens(stage):
    prompt = f"{time.time()} " + "one two three four five six seven eight nine ten " * 60
    for stream in (False, True):
        stage.ask(stage.key(), "chat", "tiny", prompt)
        stage.is_exact(f"{SHAPE[stream]} chat, most of the prompt cached", "tiny", lambda key: stage.ask(key, "chat", "tiny", prompt, stream=stream),
                       so=lambda answer: answer.usage().cached > 500)


def counting(stage):
    key = stage.key()
    for text in TEXTS:
        counted = stage.ask(key, "messages", "tiny", text, path="/v1/messages/count_tokens", limit=1)
        billed = stage.ask(key, "chat", "tiny", text, limit=1).usage()
        stage.holds("`count_tokens` says what is billed, for odd texts", billed and counted.body.get("input_tokens") == billed.prompt,
                    billed and f"{billed.prompt}" if counted.status == 200 else counted.message())


def bounds(stage):
    """Prompts and limits beyond the server's window, even if the catalogue promises a larger window."""
    long = "hi " * 9000
    for dialect in DIALECTS:
        for stream in (False, True):
            answer = stage.ask(stage.key(), dialect, "tiny", long, limit=5, stream=stream)
            is_told = answer.code == "context_length_exceeded" or "prompt is too long" in answer.error.get("message", "")
            stage.holds("a prompt that is too long: 400 in every dialect, told as such", answer.status == 400 and is_told, answer.message())
    server = stage.servers["tiny"]
    size = stage.ask(stage.key(), "messages", "promised", long, path="/v1/messages/count_tokens", limit=1).body.get("input_tokens")
    size = server.window + 1 if server.stops_counting else size
    for model, where in (("tiny", ""), ("promised", ", where the catalogue promises more")):
        answer = stage.ask(stage.key(), "messages", model, long, limit=5)
        stage.holds(f"Messages tells a prompt that is too long by the server's numbers{where}",
                    answer.status == 400 and f"{size} tokens > {server.window}" in answer.message(), answer.message())
    for dialect in DIALECTS:
        for limit, name in ((None, "no limit asked for"), (100_000, "a limit beyond the window")):
            for stream in (False, True):
                stage.is_exact(f"{SHAPE[stream]} {dialect}, {name}, where the catalogue promises more", "tiny",
                               lambda key: stage.ask(key, dialect, "promised", limit=limit, stream=stream),
                               so=lambda answer: SENTENCE in answer.text())


def requests_at_fault(stage):
    """Requests that a server cannot handle are answered as the client's fault, and set no server aside."""
    broken = {"id": "c", "type": "function", "function": {"name": "lookup", "arguments": '{"q": "ca'}}
    cut = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "", "tool_calls": [broken]},
           {"role": "tool", "tool_call_id": "c", "content": "x"}]
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}]
    no_user = [{"role": "assistant", "content": "Hello"}]
    order = [{"role": "user", "content": "Hello"}, {"role": "system", "content": "Be brief."}]
    faults = [("a call in the history that was cut in its arguments: 400, or an answer", "pair", cut, (200, 400), ""),
              ("an image at a model of texts: 400, which says so", "pair", image, (400,), "image|multimodal"),
              ("a history without a question, which the template refuses: 400", "strict", no_user, (400,), ""),
              ("a system message behind others, which the template refuses: 400, or an answer", "strict", order, (200, 400), "")]
    for name, model, messages, statuses, word in faults:
        if model == "strict" and "strict" not in stage.servers:
            continue
        # Four failures would set both servers of a pair aside.
        answers = [stage.ask(stage.key(), "chat", model, messages, limit=20, stream=n % 2 == 1) for n in range(4)]
        right = [answer for answer in answers if answer.status in statuses and re.search(word, answer.error.get("message", word))]
        aside = stage.at.set_aside(f"{stage.prefix}-{model}")
        worst = next((answer for answer in answers if answer not in right), answers[0])
        stage.holds(f"{name}; no server is set aside", len(right) == len(answers) and aside == 0,
                    f"{worst.message() if worst.status != 200 else 'answered'}, {aside} set aside")
    answer = stage.ask(stage.key(), "messages", "pair", [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": IMAGE.split(",")[1]}}]}], path="/v1/messages/count_tokens", limit=1)
    stage.holds("`count_tokens` of an image at a model of texts: no 529", answer.status != 529, f"{answer.status}")


def half_a_character(stage):
    """A server that sends nothing while it generates, and a limit larger than a grant that pays for 1,199 tokens."""
    for stream in (False, True):
        key = stage.key(1.2)
        answer, counted, _ = stage.measured(
            "loop", lambda: stage.ask(key, "chat", "dear", limit=3000, stream=stream, logit_bias={HALF_A_CHARACTER: 100}))
        used = stage.at.settled(key)
        stage.holds(f"{SHAPE[stream]} chat, `logit_bias` towards half a character: no more is generated than can be paid, and it is billed",
                    counted.generated < 1200 and abs(counted.generated - used // DEAR_TOKEN) <= UNDER_WAY and used <= 1.2 * NANO,
                    f"{counted.generated:,} generated, {used / NANO} of 1.2 USD billed, {answer.status}")


def left(stage):
    """If a client leaves, the server stops at once, and the client pays for what was generated, except tokens in transit."""
    for dialect, leave, n in [("chat", 2, 1), ("chat", 40, 1), ("chat", 300, 1), ("responses", 40, 1), ("messages", 40, 1), ("chat", 60, 3)]:
        key, more = stage.key(), {"n": n} if n > 1 else {}
        _, counted, idle_after = stage.measured("loop", lambda: stage.ask(key, dialect, "loop", leave=leave, limit=3000, stream=True, **more))
        unbilled = counted.generated - stage.at.billed(key).completion
        who = f"streamed {dialect}{f', n = {n},' if n > 1 else ''} left after {leave} events"
        stage.holds(f"{who}: the server stops, and what it generated is billed, less what was under way",
                    0 <= unbilled <= UNDER_WAY and idle_after < STOPS,
                    f"{counted.generated} generated, {unbilled} of them unbilled, idle after {1000 * idle_after:.0f} ms")
    key = stage.key()
    _, counted, _ = stage.measured("loop", lambda: (stage.ask(key, "chat", "loop", leave=0.5, limit=400), time.sleep(1)))
    billed = stage.at.billed(key)
    stage.holds("a whole answer whose client left: finished and billed",
                counted.generated == 400 == billed.completion and billed.price() == stage.at.used(key), f"{counted.generated} generated")


def revoked(stage):
    """If a key is revoked during a stream, the stream ends within seconds and the server stops."""
    key = stage.key()
    revoke = lambda count: stage.at.manage("DELETE", f"keys/{key.id}") if count == 300 else None
    answer, counted, _ = stage.measured("loop", lambda: stage.ask(key, "chat", "loop", limit=8000, stream=True, on_event=revoke))
    billed = stage.at.billed(key).completion
    stage.holds("a key that is revoked under its stream: the stream ends with an error, and what was generated is billed",
                answer.code == "invalid_api_key" and counted.generated < 8000 and 0 <= counted.generated - billed <= UNDER_WAY,
                f"{counted.generated:,} generated, {counted.generated - billed} of them unbilled, {answer.code}")


def caps(stage):
    before, _ = stage.servers["loop"].counters()
    for usd in (0, 0.000_03):
        answer = stage.ask(stage.key(usd), "chat", "dear")
        after, _ = stage.servers["loop"].counters()
        stage.holds("a limit that pays for no token: 402, and the server reads and generates nothing",
                    answer.code == "key_limit_reached" and after == before, answer.code)
    for limit in (0.0501, 0.2, 1.2):
        for dialect, stream in [("chat", False), ("chat", True), ("responses", True), ("messages", True)]:
            key = stage.key(limit)
            answer, counted, _ = stage.measured("loop", lambda: stage.ask(key, dialect, "dear", limit=4000, stream=stream))
            used, usage, rest = stage.at.settled(key), answer.usage(), round(limit * NANO) - stage.at.used(key)
            beyond = counted.generated - usage.completion if usage else None
            is_cut = usage and 0 <= beyond <= (UNDER_WAY if stream else 0) and 0 <= rest < DEAR_TOKEN
            stage.holds(f"{SHAPE[stream]} {dialect}, a limit of {limit} USD: cut at the last token that it pays for",
                        is_cut and used == usage.price(DEAR),
                        f"{usage.completion:,} billed, {beyond} generated beyond, {rest / NANO} USD left" if usage else answer.message())
            told = [event["usage"]["cost"] for event in answer.events if (event.get("usage") or {}).get("cost") is not None]
            if dialect == "chat" and usage:
                stage.holds("the `cost` that a cut answer shows is the price of its usage", told and round(told[-1] * NANO) == usage.price(DEAR),
                            f"{told} USD for {usage.price(DEAR) / NANO}")


def many_at_once(stage):
    """64 concurrent requests on one key, with a limit that pays for some of them, and with one that pays for all."""
    def one(key, model, limit, number):
        dialect = DIALECTS[number % 3]
        return stage.ask(key, dialect, model, limit=limit, stream=number % 2 == 0)

    for model, usd, limit, price in [("dear", 0.3, 20, DEAR), ("loop", 1, 40, PRICE)]:
        key = stage.key(usd)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers, counted, _ = stage.measured("loop", lambda: list(pool.map(lambda number: one(key, model, limit, number), range(AT_ONCE))))
        used, served = stage.at.settled(key), [answer for answer in answers if answer.status == 200]
        billed = sum(answer.usage().price(price) for answer in served)
        generated = sum(answer.usage().completion for answer in served)
        refused = sorted({answer.code for answer in answers if answer.status != 200})
        pays_for = "some" if model == "dear" else "all"
        stage.holds(f"{AT_ONCE} at once on one key whose limit pays for {pays_for}: used is the sum of the answers, within the limit",
                    served and used == billed <= usd * NANO and generated == counted.generated
                    and all(answer.status in (200, 402, 429) for answer in answers) and (pays_for == "some" or len(served) == AT_ONCE),
                    f"{len(served)} answered, {generated:,} of {counted.generated:,} tokens billed, {used / NANO} of {usd} USD, {refused}")


def against(stage):
    """Compares the journal with the server's own log."""
    if not hasattr(stage.servers["tiny"], "record"):
        return stage.checks.left_out(stage.column, "`audit --against` the server's log: no difference", "its log does not show tokens per request")
    server, apart = stage.servers["tiny"], copy.copy(stage.at)
    apart.start_account("against")
    server.counters()
    read = len(server.process.said())
    key = apart.key()
    for number in range(RECORDED):
        prompt = f"Question {number} " * (number + 1)
        apart.ask(key, DIALECTS[number % 3], f"{stage.prefix}-tiny", prompt, stream=number % 2 == 0)
    apart.settled(key)
    server.counters()
    record = list(server.record(read))
    file = stage.at.folder / "record.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in record))
    status, said = stage.at.cli("audit", "--account", "against", "--against", str(file), fails=True)
    stage.holds("`audit --against` the server's log: no difference", status == 0 and len(record) == RECORDED, said.strip().replace("\n", "; "))


def gateway_killed(stage):
    """kill -9 of the gateway during three streams: the server stops, leases end, and each stream's last report is billed."""
    at, keys = stage.at, [stage.key() for _ in DIALECTS]
    halfway = threading.Semaphore(0)
    reads = lambda count: halfway.release() if count == 500 else None
    before, _ = stage.servers["loop"].counters()
    with ThreadPoolExecutor(3) as pool:
        streams = [pool.submit(stage.ask, key, dialect, "loop", limit=3000, stream=True, on_event=reads) for key, dialect in zip(keys, DIALECTS)]
        for _ in streams:
            if not halfway.acquire(timeout=RESOLVED):
                raise RuntimeError("a stream did not get halfway in time")
        at.gateway.kill()
        answers = [stream.result() for stream in streams]
    after, idle_after = stage.servers["loop"].counters()
    at.gateway.start()
    at.ready(at.gateway)
    billed = [at.billed(key) for key in keys]
    generated, tokens = after.since(before).generated, sum(usage.completion for usage in billed)
    stage.holds("`kill -9` of the gateway: no stream looks complete, the server stops, and what was last reported is billed, once",
                not any(answer.is_complete for answer in answers) and generated / 2 <= tokens <= generated
                and all(usage.price() == at.used(key) for usage, key in zip(billed, keys)),
                f"{tokens:,} of {generated:,} generated tokens billed, server idle after {1000 * idle_after:.0f} ms")
    again = stage.ask(keys[0], "chat", "tiny")
    stage.holds("the gateway serves again", again.status == 200 and SENTENCE in again.text(), again.message() if again.status != 200 else "")


def key_service_killed(stage):
    at, victim = stage.at, stage.at.key_services[0]
    kill = lambda count: victim.kill() if count == 100 else None
    stage.is_exact("`kill -9` of a key-service: a stream goes on by the other one", "loop",
                   lambda key: stage.ask(key, "chat", "loop", limit=1500, stream=True, on_event=kill))
    victim.start()
    at.ready(victim)


def server_killed(stage):
    """kill -9 of one of two model servers: its stream ends with an error, the other serves, and after a restart both do."""
    victim = stage.servers["twin"]
    key, other = stage.key(), stage.servers["loop"]
    kill = lambda count: victim.process.kill() if count == 60 else None
    answer = stage.at.ask(key, "chat", f"{stage.prefix}-twin", limit=3000, stream=True, on_event=kill)
    billed, words = stage.at.billed(key).completion, len(answer.text().split())
    stage.holds("`kill -9` of the model server: the stream ends with an error, and what was generated is billed",
                answer.error.get("code") == "upstream_error" and not answer.is_complete and abs(billed - words) <= UNDER_WAY,
                f"{words} words delivered, {billed} tokens billed, {answer.error.get('code')}")
    answers = [stage.ask(stage.key(), DIALECTS[number % 3], "loops", limit=5, stream=number % 2 == 0) for number in range(20)]
    stage.holds("with one of two servers dead: every request is answered by the other", all(answer.status == 200 for answer in answers),
                f"{sum(answer.status == 200 for answer in answers)} of 20")
    victim.process.start()
    victim.ready()
    key = stage.key()
    began = time.monotonic()

    def both_serve():
        counted = [server.count().generated for server in (victim, other)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: stage.ask(key, "chat", "loops", limit=5), range(4)))
        return all(server.count().generated > before for server, before in zip((victim, other), counted))

    wait_until("both servers serve", 120, both_serve, pause=1)
    stage.holds("the server is back: both serve", True, f"after {time.monotonic() - began:.0f} s")


def audits(stage):
    balanced, said = stage.at.audit()
    stage.holds("`audit` at the end", balanced, said)


BEFORE_EACH_SERVER = {
    "answers": whole_and_streamed, "choices": choices, "tools": tools, "cached": cached_tokens, "counting": counting, "bounds": bounds,
    "faults": requests_at_fault, "half": half_a_character, "left": left, "revoked": revoked, "caps": caps, "many": many_at_once, "against": against,
}
KILLS = {"gateway": gateway_killed, "key-service": key_service_killed, "server": server_killed}
