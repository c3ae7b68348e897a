"""An installation of docker-compose.yml whose images contain programs built beforehand."""

import http.client
import json
import os
import re
import subprocess
import time
import urllib.request
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Services that are built, and images that replace those from registries.
BUILT = {"docker-compose.yml": ["secrets", "key-service", "inference-gateway", "local-model"],
         "two-of-each": ["key-service-b", "inference-gateway-b"], "one-process": ["faregate"]}
STAND_INS = {"docker-compose.yml": {"redis": "redis"}, "two-of-each": {"load-balancer": "haproxy"},
             "monitoring": {"prometheus": "prometheus"}}
PATIENCE = 90  # seconds
MESSAGES = [{"role": "user", "content": "What is an API key?"}]


class Installation:
    def __init__(self, folder, programs, publish, stand_ins):
        self.folder, self.programs, self.publish, self.stand_ins = folder, programs, publish, stand_ins
        self.key, self.management_key = "", ""
        self.use()

    # --- Compose

    def use(self, *layers, project="faregate", version="1.0.0"):
        """Chooses the files of deploy/compose to use with docker-compose.yml, and the version of the images."""
        self.layers, self.project = layers, project
        self.first = "faregate" if "one-process" in layers else "key-service"
        files = ["docker-compose.yml", *(f"deploy/compose/{layer}.yml" for layer in layers), str(self.given(layers))]
        self.environment = {**os.environ, "COMPOSE_FILE": ":".join(files), "COMPOSE_PROJECT_NAME": project,
                            "FAREGATE_PUBLISH": self.publish, "FAREGATE_VERSION": version}
        return self

    def given(self, layers):
        """Writes the Compose file that puts the given programs into images and replaces other images with stand-ins."""
        contexts = {"given": str(self.programs)}
        if self.stand_ins:
            base = re.search(r"^FROM (debian:\S+) AS base$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[1]
            contexts[base] = "docker-image://localhost/stand-in/debian"
        services = {}
        for part in ("docker-compose.yml", *layers):
            for service in BUILT.get(part, []):
                services[service] = {"build": {"args": {"PROGRAMS": "given"}, "additional_contexts": contexts}}
            for service, image in STAND_INS.get(part, {}).items() if self.stand_ins else ():
                services[service] = {"image": f"localhost/stand-in/{image}"}
        file = self.folder / f"given-{'-'.join(layers) or 'alone'}.yml"
        file.write_text(json.dumps({"services": services}))
        return file

    def run(self, *command, check=True, timeout=600, **options):
        """Runs a command in the checkout with this installation's variables. Returns what it printed."""
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=timeout, **options)
        if check and done.returncode != 0:
            raise Failure(f"{' '.join(map(str, command))[:200]}: {(done.stdout + done.stderr)[-500:]}")
        return done.stdout

    def compose(self, *arguments, **options):
        return self.run("docker", "compose", *arguments, **options)

    def up(self, *arguments):
        return self.compose("up", "--wait", *arguments)

    def down(self):
        """Removes everything that earlier checks left, including anonymous volumes."""
        for project in ("faregate", "other"):
            self.use("two-of-each", "monitoring", project=project).compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)
        if self.stand_ins:  # The engine was set up by engine.sh, so nobody else has volumes there.
            self.run("sh", "-c", "docker volume ls -q --filter dangling=true | xargs -r docker volume rm", check=False)
        self.use()

    def start(self):
        """Starts from nothing with images of the given programs, and reads the keys that the first start prints."""
        self.up("--build")
        self.paste()

    def containers(self):
        return self.run("docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={self.project}").split()

    def inspect(self, container, template):
        return self.run("docker", "inspect", "--format", template, container).strip()

    def container(self, service):
        return f"{self.project}-{service}-1"

    def is_back(self, service, before):
        """Returns whether a new process of a service is healthy."""
        state = self.inspect(self.container(service), "{{.State.Running}} {{.State.Health.Status}} {{.State.Pid}}")
        return state.startswith("true healthy ") and not state.endswith(f" {before}")

    # --- Programs and clients

    def key_service(self, *arguments, **options):
        return self.compose("exec", "-T", self.first, self.first, *arguments, **options)

    def printed(self):
        # Compose 2.26 begins each line with an escape sequence when it writes to a pipe.
        return self.compose("logs", "--no-log-prefix", self.first).replace("\x1b[2K", "")

    def paste(self):
        """Pastes the output of the first start into a shell, up to the commands for agents, and keeps the keys."""
        printed = eventually(lambda: found if "# agents" in (found := self.printed()) else None)
        pasted = re.search(r"^  export MANAGEMENT_KEY.*?(?=^  # agents)", printed, re.MULTILINE | re.DOTALL)[0]
        cost = re.search(r"^  # what it cost.*?(?=\n\n|\Z)", printed, re.MULTILINE | re.DOTALL)
        script = pasted + (cost[0] if cost else "") + '\necho; echo "KEYS $MANAGEMENT_KEY $API_KEY"'
        answer = self.run("bash", "-c", script)
        self.management_key, self.key = re.search(r"^KEYS (\S+) (\S+)$", answer, re.MULTILINE).groups()
        if '"choices"' not in answer:
            raise Failure(answer)

    def ask(self, stream=False, port=None, max_tokens=16, timeout=60):
        """Asks the demo model. Returns the generation's id and its cost in USD, or None and what went wrong."""
        body = {"model": "Model Flash", "messages": MESSAGES, "max_tokens": max_tokens, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        address = self.publish if port is None else f"{self.publish.rsplit(':', 1)[0]}:{port}"
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{address}/v1/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                answer, generation = response.read().decode(), response.headers["x-generation-id"]
        except (OSError, http.client.HTTPException) as error:
            return None, str(error)
        cost = re.search(r'"cost":([0-9.]+)', answer)
        return (generation, Decimal(cost[1])) if cost and (not stream or "[DONE]" in answer) else (None, answer[-300:])

    def answers(self, **options):
        generation, said = self.ask(**options)
        if generation is None:
            raise Failure(said)

    def bills(self):
        """Returns the charge of each generation in USD, by id, from the journal."""
        charged = {}
        for line in self.key_service("journal", "export", "--account", "default").splitlines():
            entry = json.loads(line, parse_float=Decimal, parse_int=Decimal)
            generation = entry["generation_id"]
            charged[generation] = charged.get(generation, 0) + entry["charged_change"]
        return charged


class Failure(Exception):
    """A condition that does not hold, and what was found instead."""


def eventually(condition, patience=PATIENCE):
    """Waits until a condition returns something true, and returns that."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if found := condition():
                return found
            failure = Failure("the condition did not become true in time")
        except Failure as error:
            failure = error
        if time.monotonic() > deadline:
            raise failure
        time.sleep(0.2)
