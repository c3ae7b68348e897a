#!/usr/bin/env python3
"""Counts the user-space instructions that a gateway takes for each request, with callgrind.

    CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --workspace
    bench/instructions.py chat 600

A gateway runs under valgrind, in front of the scripted upstream, with a key-service over SQLite. Once the gateway is
warm, 32 clients send the requests. The arguments are:

1. The API of the clients: chat, messages or responses. Requests of the last two are translated to chat; with
   native-messages or native-responses, the upstream speaks the same API as the client. Append -stream for streams.
2. The number of requests.
3. Optionally, a file to which callgrind's output is copied, for `callgrind_annotate`.
"""
import http.client, json, os, queue, re, shutil, socket, subprocess, sys, tempfile, threading, time
from pathlib import Path

PROGRAMS = Path(__file__).parent.parent / "target/release"
CLIENTS = 32
WARM_UP = 200
TEXT = "A question of some words about nothing in particular. " * 15
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 64}
ROUTES = {
    "chat": ("/v1/chat/completions", CHAT),
    "messages": ("/v1/messages", CHAT),
    "responses": ("/v1/responses", {"model": "m", "input": TEXT, "max_output_tokens": 64}),
}
SPEAKS = {"native-messages": "messages", "native-responses": "responses"}
CATALOGUE = """
[service]
name = "Faregate"
provider = "Model"
docs = "https://docs.example.com"
[[model]]
id = "m"
owned_by = "model-service"
context_window = 1048576
max_output_tokens = 131072
price = {{ input = "0.10", cached_input = "0.025", output = "0.40" }}
[[model.upstream]]
kind = "openai"
url = "http://{upstream}/v1"
model = "scripted/m"
speaks = ["{speaks}"]
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing listens on port {port}")


def load(port, path, body, key, requests):
    waiting, headers = queue.Queue(), {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for _ in range(requests):
        waiting.put(None)

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while True:
            try:
                waiting.get_nowait()
            except queue.Empty:
                return
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                os.write(2, text + b"\n")
                os._exit(1)

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    [each.start() for each in clients]
    [each.join() for each in clients]


def measure(kind, requests, kept, folder, start):
    upstream = start("scripted-upstream", ["--listen", "127.0.0.1:0", "--pace-ms", "0"], {}, stdout=subprocess.PIPE)
    address = re.search(r"http://([^/\s]+)", upstream.stdout.readline().decode()).group(1)
    client = kind.removesuffix("-stream")
    (folder / "models.toml").write_text(CATALOGUE.format(upstream=address, speaks=SPEAKS.get(client, "chat")))
    public, http_port, grpc = free_port(), free_port(), free_port()
    env = {
        "FAREGATE_MODELS": str(folder / "models.toml"), "FAREGATE_PEPPER": "5eed" * 16,
        "FAREGATE_INTERNAL_TOKEN": "between-the-services", "FAREGATE_LISTEN": f"127.0.0.1:{public}",
        "FAREGATE_KEY_HTTP_LISTEN": f"127.0.0.1:{http_port}", "FAREGATE_KEY_GRPC_LISTEN": f"127.0.0.1:{grpc}",
        "FAREGATE_KEY_SERVICE_URL": f"http://127.0.0.1:{grpc}",
        "FAREGATE_KEY_SERVICE_HTTP_URL": f"http://127.0.0.1:{http_port}", "FAREGATE_DATA_DIR": str(folder),
    }
    operator = lambda *words: subprocess.check_output([PROGRAMS / "key-service", *words], env=os.environ | env, text=True)
    operator("accounts", "create", "--name", "a", "--credit", "100000")
    management_key = operator("management-keys", "create", "--account", "a", "--name", "x").strip()
    start("key-service", [], env | {"FAREGATE_ADMIN_LISTEN": f"127.0.0.1:{free_port()}"})
    wait_for(http_port)
    connection = http.client.HTTPConnection("127.0.0.1", http_port)
    headers = {"Authorization": f"Bearer {management_key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/management/keys", '{"label": "x"}', headers)
    key = json.load(connection.getresponse())["key"]
    counted = folder / "callgrind"
    valgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={counted}"]
    gateway = start("inference-gateway", [], env | {"FAREGATE_ADMIN_LISTEN": f"127.0.0.1:{free_port()}"}, valgrind)
    wait_for(public)
    path, body = ROUTES[client.removeprefix("native-")]
    body = json.dumps(body | {"stream": kind.endswith("-stream")})
    load(public, path, body, key, WARM_UP)
    control = lambda flag: subprocess.run(["callgrind_control", flag, str(gateway.pid)], check=True, capture_output=True)
    control("-z")
    load(public, path, body, key, requests)
    control("-d")
    time.sleep(1)
    dump = max(folder.glob("callgrind*"), key=lambda file: file.stat().st_size)
    total = int(re.findall(r"^(?:totals|summary): (\d+)", dump.read_text(), re.M)[-1])
    print(f"{kind}: {total // requests:,} instructions a request, of {requests}")
    if kept:
        shutil.copy(dump, kept)


def main():
    kind, requests = sys.argv[1], int(sys.argv[2])
    running = []

    def start(program, words, env, before=(), stdout=subprocess.DEVNULL):
        command = [*before, PROGRAMS / program, *words]
        running.append(subprocess.Popen(command, env=os.environ | env, stdout=stdout, stderr=subprocess.DEVNULL))
        return running[-1]

    with tempfile.TemporaryDirectory() as folder:
        try:
            measure(kind, requests, sys.argv[3] if len(sys.argv) > 3 else None, Path(folder), start)
        finally:
            for process in running:
                process.terminate()
                process.wait()


main()
