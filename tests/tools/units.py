#!/usr/bin/env python3
"""Runs the unit tests of all crates, several programs at a time, since many of them wait for servers, leases and clocks.

The slowest programs of the previous run start first. Prints a line for each program, and the output of those that fail.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "checked"
# One more than the number of processors, so that another program computes while one waits.
AT_ONCE = (os.cpu_count() or 1) + 1
SECONDS_BEFORE_A_FIRST_RUN = 1.0
LONGEST = 30 * 60


def programs(arguments):
    """Builds the programs with unit tests, and returns each with the folder of its crate."""
    command = ["cargo", "test", "--profile", PROFILE, "--workspace", "--lib", "--bins", "--no-run", *arguments]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            yield message["executable"], Path(message["manifest_path"]).parent


def run(program, folder):
    began = time.monotonic()
    # Cargo sets these for tests that it runs.
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(folder)}
    try:
        ended = subprocess.run(
            [program], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=LONGEST, check=False,
        )
    except subprocess.TimeoutExpired as late:
        # Output of a program that was killed comes as bytes.
        written = (late.stdout or b"").decode(errors="replace")
        ended = subprocess.CompletedProcess([program], 1, f"{written}\nstill running after {LONGEST} seconds\n")
    return program, ended, time.monotonic() - began


def main():
    durations_file = ROOT / "target" / PROFILE / "unit-test-seconds.json"
    name = lambda program: Path(program).name.rsplit("-", 1)[0]
    durations = json.loads(durations_file.read_text()) if durations_file.is_file() else {}
    waiting = sorted(
        programs(sys.argv[1:]), key=lambda it: -durations.get(name(it[0]), SECONDS_BEFORE_A_FIRST_RUN)
    )
    failed = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for ended in concurrent.futures.as_completed([pool.submit(run, *it) for it in waiting]):
            program, process, seconds = ended.result()
            durations[name(program)] = seconds
            result = [line for line in process.stdout.splitlines() if line.startswith("test result: ")]
            print(f"{seconds:6.1f} s  {name(program)}: {', '.join(result) or process.returncode}", flush=True)
            if process.returncode != 0:
                failed.append(name(program))
                print(process.stdout, flush=True)
    durations_file.write_text(json.dumps(durations, indent=1, sort_keys=True))
    if failed:
        sys.exit(f"unit tests failed in {', '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
