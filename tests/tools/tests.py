#!/usr/bin/env python3
"""Runs the unit and integration tests alongside the end-to-end tests, which mostly wait for servers, leases and clocks.

`tests.py` runs everything. `--only NAME` runs one program with tests, such as `e2e`; `-- WORD…` runs the end-to-end tests that libtest
chooses for these words, such as `-- caps::` or `-- --ignored`. The longest tests start first, as the previous run measured them.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "checked"
E2E = "e2e"
CORES = os.cpu_count() or 1
# Number of unit-test programs that run at a time, and of tests at a time in each. They compute more than they wait, except one program, whose
# tests wait for failovers.
UNITS = max(1, CORES // 2)
WAITING = {"key_service_records": 4}
# Number of end-to-end tests that run at a time, each in its own process.
AT_ONCE = 2 * CORES
# Names of long tests, the longest first, for a first run without measured times.
LONGEST = Path(__file__).with_name("longest.txt")
LAST_RUN = ROOT / "target" / PROFILE / "test-seconds.json"
SLOWEST = 20
DEADLINE = 30 * 60
# Ports that servers keep across restarts; see `tests/src/harness/servers/ports.rs`.
PORTS = range(10_000, 32_000)


def programs(only):
    """Builds the programs with tests. Yields name, path and crate folder of each."""
    chosen = ["--test", E2E] if only == E2E else ["--tests"]
    command = ["cargo", "test", "--profile", PROFILE, "--workspace", *chosen, "--no-run"]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            name, kind = message["target"]["name"], message["target"]["kind"][0]
            name = f"{name} (program)" if kind == "bin" else name
            yield name, message["executable"], Path(message["manifest_path"]).parent


def listed(program, arguments):
    """Returns the names of the tests that a program would run with these arguments."""
    command = [program, "--list", "--format", "terse", *arguments]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    names = {line.removesuffix(": test") for line in printed.splitlines() if line.endswith(": test")}
    if "--ignored" in arguments or "--include-ignored" in arguments:
        return names
    # libtest lists ignored tests too, unless only these are requested.
    return names - listed(program, [*arguments, "--ignored"])


def work(only, words):
    """Yields what to run: whether it is an end-to-end test, a title, the command, and its folder."""
    for name, program, folder in programs(only):
        if only not in (None, name):
            continue
        if name == E2E:
            for test in listed(program, words):
                yield True, test, [program, "--exact", test, "--include-ignored"], folder
        else:
            yield False, name, [program, f"--test-threads={CORES * WAITING.get(name, 1)}"], folder


def run(title, command, folder, lanes):
    """Runs a command in a free lane, which has ports that no other lane uses."""
    lane = lanes.get()
    # Cargo sets these variables for tests that it runs.
    environment = {
        **os.environ, "CARGO_MANIFEST_DIR": str(folder), "FAREGATE_TEST_PORTS": f"{lane.start}-{lane.stop}"
    }
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=DEADLINE, check=False,
        )
    except subprocess.TimeoutExpired as late:
        # After a timeout, the output so far is in bytes.
        written = (late.stdout or b"").decode(errors="replace")
        ended = subprocess.CompletedProcess(command, 1, f"{written}\nstill running after {DEADLINE} seconds\n")
    lanes.put(lane)
    return title, ended, time.monotonic() - began


def seconds_of_the_last_run():
    longest = LONGEST.read_text().splitlines()
    first_guess = {title: len(longest) - place for place, title in enumerate(longest)}
    return {**first_guess, **(json.loads(LAST_RUN.read_text()) if LAST_RUN.is_file() else {})}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only")
    arguments.add_argument("--at-once", type=int, default=AT_ONCE, help="end-to-end tests at a time")
    arguments.add_argument("words", nargs="*")
    chosen = arguments.parse_args()

    seconds, began = seconds_of_the_last_run(), time.monotonic()
    waiting = sorted(work(chosen.only, chosen.words), key=lambda it: (-seconds.get(it[1], 0), it[1]))
    if not waiting:
        sys.exit("there is no such test")
    is_whole = chosen.only is None and not chosen.words
    if is_whole and (unknown := set(LONGEST.read_text().splitlines()) - {title for _, title, *_ in waiting}):
        sys.exit(f"{LONGEST.name} names tests that do not exist: {', '.join(sorted(unknown))}")
    number_of_lanes = UNITS + chosen.at_once
    lanes, width = queue.SimpleQueue(), len(PORTS) // number_of_lanes
    for number in range(number_of_lanes):
        lanes.put(PORTS[number * width : (number + 1) * width])
    failed, passed, measured = [], 0, {}
    pool = concurrent.futures.ThreadPoolExecutor
    with pool(UNITS) as units, pool(chosen.at_once) as e2e:
        running = [(e2e if is_e2e else units).submit(run, *it, lanes) for is_e2e, *it in waiting]
        for done in concurrent.futures.as_completed(running):
            title, process, measured[title] = done.result()
            results = [line for line in process.stdout.splitlines() if line.startswith("test result: ")]
            passed += sum(int(line.split(" passed")[0].split()[-1]) for line in results)
            print(f"{measured[title]:6.1f} s  {title}{' FAILED' if process.returncode else ''}", flush=True)
            if process.returncode:
                failed.append(title)
                print(process.stdout, flush=True)
    LAST_RUN.write_text(json.dumps({**seconds, **measured}, indent=1, sort_keys=True))

    print(f"\nthe {SLOWEST} slowest:")
    for title in sorted(measured, key=measured.get, reverse=True)[:SLOWEST]:
        print(f"{measured[title]:6.1f} s  {title}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"
    # Other tools read this line, so it has the format of `cargo test`.
    print(f"\ntest result: {'FAILED' if failed else 'ok'}. {passed} passed; {len(failed)} failed; finished in {took}")
    sys.exit(f"failed: {', '.join(sorted(failed))}" if failed else 0)


if __name__ == "__main__":
    main()
