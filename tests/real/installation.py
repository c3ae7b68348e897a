"""Starts Faregate and sends requests to it."""

import http.client
import json
import os
import socket
import subprocess
import time
from dataclasses import dataclass, field

from processes import Process, free_port, wait_until

# USD per million tokens. One USD per million is 1,000 nano-USD per token.
PRICE = {"input": "1.00", "cached_input": "0.25", "output": "4.00"}
# So high that a limit of a few cents cuts answers off.
DEAR = {**PRICE, "output": "1000.00"}
CREDIT = "1000000"
# Seconds until a program is ready, and until a request is answered, on a busy machine.
READY, ANSWERED = 300, 300
# Seconds that a hold outlives its gateway. The shortest that is allowed, since a scene waits for it.
LEASE = 3
# Seconds until every hold is settled after its request ended or its gateway died.
RESOLVED = LEASE + 120
NANO = 1_000_000_000


def catalogue(models):
    """Writes a catalogue. Each model has a name, a window, its largest output, a price, and servers."""
    lines = ['[service]', 'name = "Faregate"', 'provider = "Real"', 'docs = "https://docs.example.com"']
    for name, window, output, price, servers in models:
        lines += ["[[model]]", f'id = "{name}"', 'owned_by = "us"', f"context_window = {window}", f"max_output_tokens = {output}"]
        lines += ["[model.price]", *(f'{rate} = "{usd}"' for rate, usd in price.items())]
        for server in servers:
            lines += ["[[model.upstream]]", f'kind = "{server.kind}"', f'url = "{server.url}/v1"', f'model = "{server.name}"']
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Usage:
    prompt: int
    cached: int
    completion: int
    generations: int = 1

    def price(self, table=PRICE):
        """Returns the bill in nano-USD. With the prices used here, each token costs a whole number of them."""
        each = {rate: round(float(usd) * 1000) for rate, usd in table.items()}
        fresh = self.prompt - self.cached
        return fresh * each["input"] + self.cached * each["cached_input"] + self.completion * each["output"]


@dataclass
class Key:
    id: str
    secret: str


@dataclass
class Answer:
    """An answer: one body, or the events of a stream that were read."""

    status: int
    dialect: str
    events: list = field(default_factory=list)
    is_stream: bool = False
    is_complete: bool = True

    @property
    def body(self):
        return self.events[-1] if self.events else {}

    @property
    def error(self):
        found = next((event["error"] for event in self.events if event.get("error")), {})
        return found if isinstance(found, dict) else {"message": str(found)}

    @property
    def code(self):
        return self.error.get("code") or self.error.get("type")

    def message(self):
        return f"{self.status} {self.code}: {self.error.get('message', '')}"

    def usage(self):
        """Returns the usage that the answer reports, or a false value if there is none."""
        if self.dialect == "chat":
            told = [event["usage"] for event in self.events if event.get("usage")]
            return told and Usage(told[-1]["prompt_tokens"], told[-1]["prompt_tokens_details"]["cached_tokens"], told[-1]["completion_tokens"])
        if self.dialect == "responses":
            told = [event.get("response", event).get("usage") for event in self.events]
            told = [usage for usage in told if usage]
            return told and Usage(told[-1]["input_tokens"], told[-1]["input_tokens_details"]["cached_tokens"], told[-1]["output_tokens"])
        told = {}
        for event in self.events:
            told |= event.get("message", {}).get("usage") or event.get("usage") or {}
        cached = told.get("cache_read_input_tokens") or 0
        return told and Usage(told["input_tokens"] + cached, cached, told["output_tokens"])

    def text(self):
        """Returns the text of the first choice."""
        if self.dialect == "chat":
            choices = [choice for event in self.events for choice in event.get("choices", []) if choice["index"] == 0]
            return "".join((choice.get("delta") or choice.get("message") or {}).get("content") or "" for choice in choices)
        if not self.is_stream:
            parts = self.body.get("content") or [part for item in self.body.get("output", []) for part in item.get("content", [])]
            return "".join(part.get("text", "") for part in parts)
        deltas = [event.get("delta") for event in self.events if event.get("type") in ("content_block_delta", "response.output_text.delta")]
        return "".join(delta if isinstance(delta, str) else delta.get("text", "") for delta in deltas)

    def finish(self):
        """Returns the finish reason of the first choice, in the dialect's terms."""
        if self.dialect == "chat":
            ends = [choice["finish_reason"] for event in self.events for choice in event.get("choices", []) if choice.get("finish_reason")]
            return ends[0] if ends else None
        if self.dialect == "responses":
            final = self.body.get("response", self.body)
            return (final.get("incomplete_details") or {}).get("reason") or final.get("status")
        return next((end for event in self.events if (end := event.get("stop_reason") or (event.get("delta") or {}).get("stop_reason"))), None)


PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def request(dialect, model, prompt="Hello", limit=None, stream=False, **more):
    """Makes the body of a request in a dialect. The prompt is a text or a list of chat messages."""
    limit_name = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[dialect]
    limit = 2048 if dialect == "messages" and limit is None else limit
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    body = {"model": model, "stream": stream, "input" if dialect == "responses" else "messages": messages, **more}
    if dialect == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    return body | ({limit_name: limit} if limit is not None else {})


class Installation:
    """A running Faregate, with an account for the run."""

    def start_account(self, name="real"):
        self.cli("accounts", "create", "--name", name, "--credit", CREDIT)
        self.account = name
        self.management_key = self.cli("management-keys", "create", "--account", name, "--name", name).strip().splitlines()[-1]

    def cli(self, *arguments, fails=False):
        done = subprocess.run([str(self.operator), *arguments], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=ANSWERED)
        if done.returncode != 0 and not fails:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-600:]}")
        return (done.returncode, done.stdout or done.stderr) if fails else done.stdout

    def manage(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.public, timeout=ANSWERED)
        head = {"authorization": f"Bearer {self.management_key}", "content-type": "application/json"}
        connection.request(method, f"/v1/management/{path}", None if body is None else json.dumps(body), head)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def key(self, usd=1, **more):
        made = self.manage("POST", "keys", {"limit": usd, **more})
        return Key(made["id"], made["key"])

    def used(self, key):
        """Returns the amount billed to a key, in nano-USD."""
        return round(self.manage("GET", f"keys/{key.id}")["used"] * NANO)

    def settled(self, key):
        """Waits until nothing is held any more, and returns the amount billed to a key."""
        held = lambda: sum(account["held"] for account in json.loads(self.cli("accounts", "list", "--json")))
        wait_until("holds are settled", RESOLVED, lambda: held() == 0, pause=0.2)
        return self.used(key)

    def billed(self, key):
        """Waits until nothing is held any more, and returns the tokens that the journal billed to a key."""
        self.settled(key)
        entries = [json.loads(line) for line in self.cli("journal", "export", "--account", self.account).splitlines()]
        # A later entry of a generation replaces an earlier one.
        last = {entry["generation_id"]: entry for entry in entries if entry["key_id"] == key.id}.values()
        of = lambda name: sum(entry[name] for entry in last)
        return Usage(of("prompt_tokens"), of("cached_tokens"), of("completion_tokens"), len(last))

    def set_aside(self, model):
        """Counts a model's upstreams that are set aside now because they failed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=ANSWERED)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        start = f'gateway_upstreams{{model="{model}",state="set_aside"}}'
        return sum(int(line.split()[-1]) for line in lines if line.startswith(start))

    def ask(self, key, dialect, model, prompt="Hello", leave=None, on_event=None, path=None, **more):
        """Sends a request. `leave` closes the connection after this many events of a stream, or otherwise after this many seconds."""
        body = request(dialect, model, prompt, **more)
        connection = http.client.HTTPConnection("127.0.0.1", self.public, timeout=ANSWERED)
        head = {"authorization": f"Bearer {key.secret}", "content-type": "application/json", "anthropic-version": "2023-06-01"}
        connection.request("POST", path or PATHS[dialect], json.dumps(body), head)
        if leave is not None and not body.get("stream"):
            time.sleep(leave)
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            return Answer(0, dialect, is_complete=False)
        response = connection.getresponse()
        if "text/event-stream" not in response.getheader("content-type", ""):
            answer = Answer(response.status, dialect, [json.loads(response.read())])
            connection.close()
            return answer
        answer = Answer(response.status, dialect, is_stream=True, is_complete=False)
        try:
            while line := response.readline():
                if line.startswith(b"data: {"):
                    answer.events.append(event := json.loads(line[6:]))
                    answer.is_complete |= event.get("type") in ("message_stop", "response.completed", "response.incomplete")
                    if on_event:
                        on_event(len(answer.events))
                answer.is_complete |= line.startswith(b"data: [DONE]")
                if leave and len(answer.events) >= leave:
                    response.fp.raw._sock.shutdown(socket.SHUT_RDWR)
                    break
        except (OSError, http.client.HTTPException):
            pass
        connection.close()
        return answer

    def audit(self):
        """Runs `audit`. Returns whether the books balance, and the last line of its output."""
        status, said = self.cli("audit", fails=True)
        return status == 0, said.strip().splitlines()[-1]


def environment(folder, catalogue_file, **own):
    """Makes the environment of a Faregate program, without `FAREGATE_` settings of the caller."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FAREGATE_")}
    addresses = {name: f"127.0.0.1:{free_port()}" for name in
                 ("FAREGATE_LISTEN", "FAREGATE_ADMIN_LISTEN", "FAREGATE_KEY_HTTP_LISTEN", "FAREGATE_KEY_GRPC_LISTEN")}
    return clean | addresses | {"FAREGATE_MODELS": str(catalogue_file), "FAREGATE_DATA_DIR": str(folder)} | own


def port_of(env, listener):
    return int(env[f"FAREGATE_{listener}"].rsplit(":", 1)[1])


class AllInOne(Installation):
    """`faregate`: everything in one process, over SQLite."""

    def __init__(self, programs, folder, catalogue_file):
        self.operator, self.folder = programs / "faregate", folder
        self.env = environment(folder / "data", catalogue_file)
        self.public, self.admin = port_of(self.env, "LISTEN"), port_of(self.env, "ADMIN_LISTEN")
        process = Process([self.operator], folder, "faregate", self.env)
        process.answers(f"http://127.0.0.1:{self.admin}/readyz", READY)
        self.start_account()


class Services(Installation):
    """A gateway, two key-services and a Redis, as processes that can be killed."""

    def __init__(self, programs, folder, catalogue_file):
        self.operator, self.folder = programs / "key-service", folder
        redis = free_port()
        Process(["redis-server", "--port", redis, "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes", "--save", ""], folder, "redis")
        shared = {"FAREGATE_INTERNAL_TOKEN": "between-the-services"}
        of_key_service = {**shared, "FAREGATE_STORE": f"redis://127.0.0.1:{redis}", "FAREGATE_PEPPER": "5eed" * 16,
                          "FAREGATE_HOLD_LEASE_SECONDS": str(LEASE)}
        wait_until("redis-server answers", READY, lambda: not socket.socket().connect_ex(("127.0.0.1", redis)))
        envs = [environment(folder / f"key-service-{n}", catalogue_file, **of_key_service) for n in range(2)]
        self.env = envs[0]
        self.start_account()
        self.key_services = [Process([self.operator], folder, f"key-service-{n}", env) for n, env in enumerate(envs)]
        urls = {f"FAREGATE_KEY_SERVICE_{'URL' if listener == 'KEY_GRPC_LISTEN' else 'HTTP_URL'}":
                ",".join(f"http://{env[f'FAREGATE_{listener}']}" for env in envs) for listener in ("KEY_GRPC_LISTEN", "KEY_HTTP_LISTEN")}
        env = environment(folder / "gateway", catalogue_file, **shared, **urls)
        self.public, self.admin = port_of(env, "LISTEN"), port_of(env, "ADMIN_LISTEN")
        self.gateway = Process([programs / "inference-gateway"], folder, "gateway", env)
        self.admins = {self.gateway: self.admin, **dict(zip(self.key_services, (port_of(env, "ADMIN_LISTEN") for env in envs)))}
        for process in self.admins:
            self.ready(process)

    def ready(self, process):
        process.answers(f"http://127.0.0.1:{self.admins[process]}/readyz", READY)
