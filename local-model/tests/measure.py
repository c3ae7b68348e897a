"""Measures a running `local-model`: how fast it reads and writes, how soon it begins, how fair it is, what memory it takes.

On a busy machine, the tokens per second of its processor time say more. Usage: measure.py PID [URL]
"""
import http.client
import json
import os
import pathlib
import statistics
import sys
import threading
import time
import urllib.parse

URL = urllib.parse.urlparse(sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000/v1")
PID = int(sys.argv[1])
STREAMS = 16
TOKENS = 200


def processor_seconds():
    fields = pathlib.Path(f"/proc/{PID}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory():
    status = pathlib.Path(f"/proc/{PID}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


def post(path, body):
    connection = http.client.HTTPConnection(URL.hostname, URL.port)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def chat(content, tokens, **more):
    """An answer of just so many tokens: what ends answers is unwelcome."""
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": tokens, "logit_bias": {"0": -100, "2": -100}, **more}


def timed(work):
    begun, spent = time.perf_counter(), processor_seconds()
    result = work()
    return result, time.perf_counter() - begun, max(processor_seconds() - spent, 0.01)


def usage_of(body):
    return json.load(post("/v1/chat/completions", body))["usage"]


def stream(content, tokens):
    """When the first token came, and when the last one."""
    begun = time.perf_counter()
    first = None
    for line in post("/v1/chat/completions", chat(content, tokens, stream=True, temperature=1)):
        if first is None and b'"content":"' in line and b'"content":""' not in line:
            first = time.perf_counter() - begun
    return first, time.perf_counter() - begun


def several(count):
    times = []
    threads = [
        threading.Thread(target=lambda number=number: times.append(stream(f"Question {number}: who are you?", TOKENS)))
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def main():
    print(f"{memory()} MB before the first request")
    context = json.load(http_get("/v1/models"))["data"][0]["max_model_len"]
    writes = min(1000, context // 2)
    usage, seconds, spent = timed(lambda: usage_of(chat("Tell me a story.", writes)))
    tokens = usage["completion_tokens"]
    print(f"writes {tokens} tokens: {tokens / seconds:.0f} a second, {tokens / spent:.0f} a processor second")
    for share in (8, 2):
        # Numbers that differ, so that nothing of them is cached.
        words = " ".join(str(10_000 * share + number * 7) for number in range(context // share // 6))
        usage, seconds, spent = timed(lambda: usage_of(chat(words, 1)))
        tokens = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        print(f"reads {tokens} tokens: {tokens / seconds:.0f} a second, {tokens / spent:.0f} a processor second")
    firsts = sorted(stream(f"Hello {number}!", 5)[0] * 1000 for number in range(21))
    print(f"first token after {statistics.median(firsts):.1f} ms (median), {firsts[-1]:.1f} ms (slowest)")
    times, seconds, spent = timed(lambda: several(STREAMS))
    ends, tokens = sorted(end for _, end in times), STREAMS * TOKENS
    print(
        f"{STREAMS} streams of {TOKENS}: {tokens / seconds:.0f} a second, {tokens / spent:.0f} a processor second, "
        f"slowest {ends[-1] / statistics.median(ends):.2f} x the median, "
        f"first tokens after {max(first for first, _ in times) * 1000:.0f} ms at most"
    )
    print(f"{memory()} MB in the end")


def http_get(path):
    connection = http.client.HTTPConnection(URL.hostname, URL.port)
    connection.request("GET", path)
    return connection.getresponse()


main()
