#!/usr/bin/env python3
"""Runs Faregate in front of real model servers, and compares its bills with the servers' own counters.

Prints a line for each check and a Markdown table at the end. Exits with an error if a check fails. See README.md in this folder.
"""

import argparse
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import scenes
from agents import agents
from checks import Checks
from installation import DEAR, PRICE, AllInOne, Services, catalogue
from processes import stop_all
from servers import Llama, Tools, Vllm, try_vllm

ROOT = Path(__file__).parents[2]
QWEN2, QWEN3 = "Qwen-Qwen2.5-7B-Instruct", "Qwen3.5-4B"
# An endless sentence with some randomness, so that choices differ.
ENDLESS = ("--endless", "--gain", "0.15")
WINDOW, LONG_WINDOW, AGENTS_WINDOW = 8192, 16384, 32768


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder with the programs under test")
    parser.add_argument("--cache", type=Path, default=ROOT / "tests/.real", help="folder where built servers and weights are kept between runs")
    parser.add_argument("--only", default="", help="comma-separated list of scenes to run: " + ", ".join(every_scene()))
    parser.add_argument("--servers", default="llama,vllm", help="comma-separated list of model servers to start")
    asked = parser.parse_args()
    chosen = asked.only.split(",") if asked.only else every_scene()
    if unknown := set(chosen) - set(every_scene()):
        parser.error(f"there is no scene {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    tools = Tools(asked.cache.resolve())
    tools.build_llama()
    wanted = asked.servers.split(",")
    no_vllm = try_vllm(tools) if "vllm" in wanted else "not asked for"
    checks, folder = Checks(), Path(tempfile.mkdtemp(prefix="faregate-real-"))
    try:
        play(checks, tools, asked.programs.resolve(), folder, chosen, wanted, no_vllm)
    finally:
        # A second signal must not interrupt this and leave processes behind.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        stop_all()
        if not checks.failed and not sys.exc_info()[0]:
            shutil.rmtree(folder)
        else:
            print(f"logs are in {folder}")
    print(f"\n{checks.table()}\n\n{versions(tools, asked.programs, no_vllm)}\n\n{checks.held} checks hold, {checks.failed} fail")
    sys.exit(1 if checks.failed else 0)


def every_scene():
    return [*scenes.BEFORE_EACH_SERVER, "agents", *scenes.KILLS, "audit"]


def play(checks, tools, programs, folder, chosen, wanted, no_vllm):
    at = made(folder / "servers")
    # vLLM takes minutes to start, so llama-server's scenes run meanwhile.
    vllm = {} if no_vllm else start_vllm(tools, at)
    llama = start_llama(tools, at) if "llama" in wanted else {}
    models = folder / "models.toml"
    models.write_text(catalogue([entry for prefix, servers in (("llama", llama), ("vllm", vllm)) if servers for entry in entries(prefix, servers)]))
    one, several = AllInOne(programs, made(folder / "one"), models), Services(programs, made(folder / "several"), models)
    if llama:
        stage = scenes.Stage(checks, one, Llama.software, "llama", llama)
        act(stage, chosen, {**scenes.BEFORE_EACH_SERVER, "agents": agents})
        act(scenes.Stage(checks, several, Llama.software, "llama", llama), chosen, scenes.KILLS)
    else:
        checks.left_out(Llama.software, "all of it", "not asked for")
    if vllm:
        starts = lambda stage: [server.ready() for server in vllm.values()]
        act(scenes.Stage(checks, one, Vllm.software, "vllm", vllm), ["start", *chosen], {"start": starts, **scenes.BEFORE_EACH_SERVER})
    else:
        checks.left_out(Vllm.software, "all of it", no_vllm)
    for installation, column in ((one, "faregate, SQLite"), (several, "services, Redis")):
        act(scenes.Stage(checks, installation, column, "", {}), chosen, {"audit": scenes.audits})


def act(stage, chosen, among):
    """Runs the chosen scenes. If one raises, that is recorded as a failure and the next one runs."""
    for name in chosen:
        if name not in among:
            continue
        try:
            among[name](stage)
        except Exception as broken:  # every failure belongs in the table
            traceback.print_exc()
            stage.holds(f"scene {name} runs to its end", False, f"{type(broken).__name__}: {broken}")


def start_vllm(tools, folder):
    tiny, loop = tools.weights("tiny", QWEN2), tools.weights("loop", QWEN2, *ENDLESS)
    return {"tiny": Vllm(tools, folder, "vllm-tiny", tiny, WINDOW), "loop": Vllm(tools, folder, "vllm-loop", loop, LONG_WINDOW)}


def start_llama(tools, folder):
    weights = {
        "tiny": tools.weights("tiny.gguf", QWEN2), "strict": tools.weights("strict.gguf", QWEN3),
        "agent": tools.weights("agent.gguf", QWEN2, "--agent"),
        "loop": tools.weights("loop.gguf", QWEN2, *ENDLESS), "twin": tools.weights("loop.gguf", QWEN2, *ENDLESS),
    }
    slots = {"strict": (2, WINDOW), "agent": (2, AGENTS_WINDOW), "loop": (4, LONG_WINDOW), "twin": (4, LONG_WINDOW)}
    servers = {name: Llama(tools, folder, name, path, *slots.get(name, (4, WINDOW))) for name, path in weights.items()}
    for server in servers.values():
        server.ready()
    return servers


def entries(prefix, servers):
    """Lists the models for the catalogue, with their servers."""
    tiny, loop, twin = servers["tiny"], servers["loop"], servers.get("twin")
    models = [("tiny", WINDOW, 4096, PRICE, [tiny]), ("pair", WINDOW, 4096, PRICE, [tiny, loop]), ("loop", LONG_WINDOW, 8192, PRICE, [loop]),
              ("dear", LONG_WINDOW, 8192, DEAR, [loop]), ("promised", 131072, 131072, PRICE, [tiny])]
    if twin:
        models += [("twin", LONG_WINDOW, 8192, PRICE, [twin]), ("loops", LONG_WINDOW, 8192, PRICE, [loop, twin])]
    if "agent" in servers:
        models += [("agent", AGENTS_WINDOW, 4096, PRICE, [servers["agent"]]), ("strict", WINDOW, 4096, PRICE, [servers["strict"]])]
    return [(f"{prefix}-{name}", *rest) for name, *rest in models]


def made(folder):
    folder.mkdir()
    return folder


def versions(tools, programs, no_vllm):
    """Describes the versions that ran, in one sentence."""
    faregate = subprocess.run([programs / "faregate", "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    servers = [Llama.version(tools), *([] if no_vllm else [Vllm.version(tools)])]
    return f"{faregate} ({commit}); {'; '.join(servers)}; Python {platform.python_version()}."


main()
