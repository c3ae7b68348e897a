"""Checks of the installation on a real engine. Each starts from nothing and removes everything it created."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import traceback
import urllib.request

from installation import ROOT, Failure, eventually

HEALTHY_SERVICES = ["redis", "key-service", "inference-gateway", "local-model"]
CHECKS = {}


def check(function):
    """Registers a check under its name, with hyphens. The first line of its docstring is the fact that it checks."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


class Checks:
    def __init__(self):
        self.held, self.failed = 0, 0

    def run(self, installation, chosen):
        for name in chosen:
            began = time.monotonic()
            try:
                CHECKS[name](installation)
                self.held += 1
                print(f"ok    {CHECKS[name].__doc__} ({time.monotonic() - began:.0f} s)", flush=True)
            except Exception as error:
                self.failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"FAILS {name}: {CHECKS[name].__doc__}: {error!s:.1500} ({where.filename}:{where.lineno})", flush=True)
            finally:
                installation.down()


class Load:
    """Concurrent requests until it ends, half of them streams. Records the cost reported to each client."""

    def __init__(self, installation, clients=12):
        self.installation, self.answered, self.failed, self.stopped = installation, {}, [], threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(number,)) for number in range(clients)]

    def ask(self, number):
        while not self.stopped.is_set():
            generation, said = self.installation.ask(stream=number % 2 == 0)
            if generation:
                self.answered[generation] = said
            else:
                self.failed.append(said)
                time.sleep(0.2)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        try:
            eventually(lambda: len(self.answered) >= len(self.threads))
        except Failure:
            self.__exit__()
            raise Failure(f"{len(self.answered)} answers, and {len(self.failed)} failures: {self.failed[:3]}") from None
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def expect(holds, said):
    if not holds:
        raise Failure(said)


def books_balance(installation, load):
    """Checks that the journal charges each answered request once, at the reported cost, and that `audit` passes."""
    bills = eventually(lambda: (found := installation.bills()) and load.answered.keys() <= found.keys() and found)
    wrong = {generation: (cost, bills[generation]) for generation, cost in load.answered.items() if bills[generation] != cost}
    expect(not wrong, f"{len(wrong)} of {len(load.answered)} charges differ from the costs reported to clients: {list(wrong.items())[:3]}")
    installation.key_service("audit")


def documented(page, heading):
    """Returns the commands in a section of a page of docs/, one string for each block."""
    text = (ROOT / "docs" / page).read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    expect(blocks, f"docs/{page} has no commands in {heading}")
    return blocks


def crash(installation, service):
    """Crashes a process. `docker kill` would count as a manual stop, after which the engine does not restart it."""
    before = installation.inspect(installation.container(service), "{{.State.Pid}}")
    os.kill(int(before), signal.SIGKILL)
    eventually(lambda: installation.is_back(service, before))


@check
def images(installation):
    """images can be built from given programs without the Rust image, and have labels"""
    installation.compose("build")
    for image in ("secrets", "key-service", "inference-gateway", "local-model"):
        labels = json.loads(installation.inspect(f"localhost/faregate/{image}:1.0.0", "{{json .Config.Labels}}"))
        expect(labels.get("org.opencontainers.image.licenses") == "Apache-2.0", f"{image}: {labels}")


@check
def first_start(installation):
    """the first start is healthy, the commands it prints work when pasted, and doctor and audit pass"""
    installation.start()
    installation.answers(stream=True)
    installation.key_service("audit")
    installation.key_service("doctor")
    installation.compose("exec", "-T", "inference-gateway", "inference-gateway", "doctor")


@check
def hardening(installation):
    """containers run as user 999 without capabilities, on a read-only root, with bounded logs, and show no secret"""
    installation.start()
    for service in HEALTHY_SERVICES:
        inside = installation.compose("exec", "-T", service, "sh", "-c", "id -u; grep CapEff /proc/self/status; touch /x 2>&1 || true")
        expect(inside.split()[:3] == ["999", "CapEff:", "0000000000000000"] and "Read-only file system" in inside, f"{service}: {inside}")
    for container in installation.containers():
        logs = json.loads(installation.inspect(container, "{{json .HostConfig.LogConfig}}"))
        expect(logs["Config"].get("max-size") and logs["Config"].get("max-file"), f"{container}: {logs}")
    shown = installation.run("sh", "-c", "docker ps -aq | xargs docker inspect; docker image ls -q | sort -u | xargs docker image inspect")
    shown += installation.compose("logs")
    for service, path in (("key-service", "/secrets/key-service/pepper"), ("key-service", "/secrets/key-service/redis-password"),
                          ("key-service", "/secrets/services/internal-token"), ("redis", "/secrets/redis/operator-password")):
        secret = installation.compose("exec", "-T", service, "cat", path).strip()
        expect(len(secret) == 64 and secret not in shown, f"{path} shows")
    expect(len(set(re.findall(r"fg_mgmt_\w+", shown))) == 1 and not re.search(r"fg_api_\w{20}", shown), "a key shows")


@check
def way_out(installation):
    """the key-service can reach receivers of webhooks, and Redis has no way out"""
    installation.start()
    route = lambda service: installation.compose("exec", "-T", service, "cat", "/proc/net/route")
    has_default = lambda service: any(line.split()[1:2] == ["00000000"] for line in route(service).splitlines())
    expect(has_default("key-service"), "the key-service has no default route")
    expect(not has_default("redis") and not has_default("local-model"), "Redis or the model has a default route")


@check
def crashes(installation):
    """each service restarts by itself after a crash under load, and every answer is billed exactly"""
    installation.start()
    with Load(installation) as load:
        for service in HEALTHY_SERVICES:
            crash(installation, service)
            eventually(lambda: installation.ask()[0])
    books_balance(installation, load)


@check
def cuts(installation):
    """a paused Redis and a network cut between the services lose no charge"""
    installation.start()
    with Load(installation) as load:
        for _ in range(2):
            installation.run("docker", "pause", installation.container("redis"))
            time.sleep(5)
            installation.run("docker", "unpause", installation.container("redis"))
            eventually(lambda: installation.ask()[0])
        network = f"{installation.project}_inside"
        installation.run("docker", "network", "disconnect", network, installation.container("key-service"))
        time.sleep(5)
        installation.run("docker", "network", "connect", "--alias", "key-service", network, installation.container("key-service"))
        eventually(lambda: installation.ask()[0])
    books_balance(installation, load)


@check
def kept(installation):
    """down and up keep keys, money, and a charge that was still in the spool; down --volumes removes everything"""
    installation.start()
    with Load(installation) as load:
        os.kill(int(installation.inspect(installation.container("key-service"), "{{.State.Pid}}")), signal.SIGSTOP)
        spool = "/data/spool/captures.jsonl"
        eventually(lambda: installation.compose("exec", "-T", "inference-gateway", "cat", spool).strip())
    installation.compose("kill", "key-service")
    installation.compose("down")
    installation.up()
    books_balance(installation, load)
    installation.answers()
    installation.key_service("audit")
    installation.compose("down", "--volumes")
    left = installation.run("docker", "volume", "ls", "-q", "--filter", "label=com.docker.compose.project=faregate")
    expect(not left, f"volumes are left: {left}")


@check
def backup(installation):
    """the documented commands back Redis up, restore it, and raise its memory"""
    installation.start()
    installation.answers()
    copies = installation.folder / "backup"
    shutil.rmtree(copies, ignore_errors=True)
    installation.environment["BACKUP"] = str(copies)
    take, stop, *restore = documented("backup.md", "Redis of Compose")
    installation.run("bash", "-ec", take)
    kept = installation.bills()
    installation.answers()
    expect(len(installation.bills()) == len(kept) + 1, "a request after the backup is billed")
    installation.run("bash", "-ec", stop)
    for block in restore:
        installation.run("bash", "-ec", block)
    eventually(lambda: installation.ask()[0])
    expect(kept.items() <= installation.bills().items(), "the restored journal lacks bills of the backup")
    for block in documented("run.md", "With Compose"):
        expect("OK" in installation.run("bash", "-ec", block), block)


@check
def scaled(installation):
    """scaled.yml runs two gateways, each on a separate port"""
    host, port = installation.publish.rsplit(":", 1)
    installation.publish = f"{host}:{port}-{int(port) + 1}"
    try:
        installation.use("scaled")
        installation.environment["FAREGATE_PUBLIC_URL"] = f"http://{host}:{port}"
        installation.up("--scale", "inference-gateway=2")
        installation.publish = f"{host}:{port}"
        installation.paste()
        for number in (int(port), int(port) + 1):
            installation.answers(port=number)
        installation.key_service("audit")
    finally:
        installation.publish = f"{host}:{port}"


@check
def rolling_upgrade(installation):
    """upgrade.sh replaces two of each under load, and no request fails"""
    installation.use("two-of-each")
    installation.start()
    for image in ("secrets", "key-service", "inference-gateway", "local-model"):
        installation.run("docker", "tag", f"localhost/faregate/{image}:1.0.0", f"localhost/faregate/{image}:1.0.1")
    with Load(installation) as load:
        installation.use("two-of-each", version="1.0.1")
        installation.run("deploy/compose/upgrade.sh")
        time.sleep(2)
    for service in ("inference-gateway", "inference-gateway-b", "key-service", "key-service-b"):
        image = installation.inspect(installation.container(service), "{{.Config.Image}}")
        expect(image.endswith(":1.0.1"), f"{service} has {image}")
    expect(not load.failed, f"{len(load.failed)} of {len(load.answered)} failed: {load.failed[:3]}")
    books_balance(installation, load)


@check
def replaced(installation):
    """a container of two-of-each serves again after it was removed and recreated, whatever the project's name"""
    installation.use("two-of-each", project="other")
    installation.start()
    with Load(installation) as load:
        for service in ("inference-gateway", "inference-gateway-b", "key-service", "key-service-b"):
            installation.compose("stop", service)
            installation.compose("rm", "-f", service)
            installation.up("--no-deps", "--no-recreate", service)
    installation.compose("exec", "-T", "inference-gateway", "inference-gateway", "doctor")
    expect(not load.failed, f"{len(load.failed)} of {len(load.answered)} failed: {load.failed[:3]}")
    books_balance(installation, load)


@check
def balancer(installation):
    """the load balancer is healthy with 20,000 open files, and unhealthy when it does not serve"""
    installation.use("two-of-each")
    limits = installation.folder / "limits.yml"
    limits.write_text("services:\n  load-balancer: {ulimits: {nofile: 20000}}\n")
    installation.environment["COMPOSE_FILE"] += f":{limits}"
    installation.start()
    installation.answers()
    wrong = installation.folder / "wrong.cfg"
    wrong.write_text("global\n  no-such-word\n")
    wrong.chmod(0o644)
    installation.folder.chmod(0o755)
    limits.write_text(f'services:\n  load-balancer: {{volumes: !override ["{wrong}:/usr/local/etc/haproxy/haproxy.cfg:ro"]}}\n')
    try:
        installation.up("--wait-timeout", "20", "load-balancer")
    except Failure:
        return
    raise Failure("up --wait succeeds although the load balancer does not start")


@check
def one_process(installation):
    """one-process.yml serves, and its books balance"""
    installation.use("one-process")
    installation.start()
    installation.key_service("audit")


@check
def monitoring(installation):
    """Prometheus of monitoring.yml scrapes every container, and all of its rules are valid"""
    installation.use("two-of-each", "monitoring")
    installation.start()
    ask = lambda path: json.load(urllib.request.urlopen(f"http://127.0.0.1:9099/api/v1/{path}", timeout=5))["data"]

    def up():
        try:
            targets = ask("targets")["activeTargets"]
        except OSError as error:
            raise Failure(str(error))
        return len(targets) == 4 and all(target["health"] == "up" for target in targets)

    eventually(up)
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    expect(rules and not any(rule.get("lastError") for rule in rules), "a rule is in error")


@check
def publishing(installation):
    """FAREGATE_PUBLISH without an address is refused with a hint, and 0.0.0.0 is printed as an address that can be pasted"""
    host, port = installation.publish.rsplit(":", 1)
    try:
        installation.publish = f"0.0.0.0:{port}"
        installation.use().up()
        expect(f"http://127.0.0.1:{port}/v1" in eventually(installation.printed), "the printed address cannot be pasted")
        installation.down()
        installation.publish = port
        installation.use().compose("up", "--detach", check=False)
        eventually(lambda: f"FAREGATE_PUBLISH=127.0.0.1:{port}" in installation.printed())
    finally:
        installation.publish = f"{host}:{port}"


@check
def checkout_of_windows(installation):
    """scripts from a checkout that converts line ends still run in containers"""
    checkout = installation.folder / "checkout"
    clone = ["git", "-c", "core.autocrlf=true", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(checkout)]
    subprocess.run(clone, check=True, capture_output=True)
    for file in ("Dockerfile", "deploy/compose/upgrade.sh", "deploy/compose/haproxy.cfg"):
        expect(b"\r" not in (checkout / file).read_bytes(), f"{file} has carriage returns")
    shutil.rmtree(checkout)
