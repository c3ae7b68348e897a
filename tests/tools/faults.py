#!/usr/bin/env python3
"""Mutation test: puts each fault of `planted/` into a copy of the code, and checks that the test it names fails.

`faults.py WORD…` plants only the faults whose names contain one of the words, and `--part 1/3` only the first third of the faults.
`--texts` only checks that the code still has the texts to replace.
"""

import argparse
import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from planted import explored, gateway, ledger, simulated  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
COPIES = ROOT / "target" / "faults"
LISTS = [ledger.FAULTS, gateway.FAULTS, explored.FAULTS, simulated.FAULTS]
CORES = os.cpu_count() or 1


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("words", nargs="*")
    arguments.add_argument("--texts", action="store_true")
    arguments.add_argument("--part", type=lambda text: tuple(map(int, text.split("/"))), default=(1, 1), help="such as 1/3")
    arguments.add_argument("--jobs", type=int, default=min(2, CORES), help="copies of the code that are built side by side")
    chosen = arguments.parse_args()

    every = [(package, *fault) for of_list in LISTS for package, of_package in of_list.items() for fault in of_package]
    if moved := [name for _, name, file, right, *_ in every if (ROOT / file).read_text().count(right) != 1]:
        sys.exit("the text to replace must occur exactly once: " + "; ".join(moved))
    if chosen.texts:
        return
    # Faults are ordered by package, so that the next one finds most of its build done.
    every.sort(key=lambda fault: fault[0])
    part, parts = chosen.part
    every = every[len(every) * (part - 1) // parts : len(every) * part // parts]
    faults = [fault for fault in every if not chosen.words or any(word in fault[1] for word in chosen.words)]
    missed = [fault[1] for fault, caught in tried(faults, prepared(faults, chosen.jobs)) if not caught]
    for name in missed:
        print(f"not caught: {name}")
    print(f"{len(faults) - len(missed)} of {len(faults)} faults caught")
    sys.exit(1 if missed else 0)


def prepared(faults, jobs):
    """Returns copies of the code in which all tests pass, with their builds."""
    folders = [COPIES / str(number) for number in range(jobs)]
    for folder in folders:
        copy(folder)
    for package in dict.fromkeys(fault[0] for fault in faults):
        if failed := failure(folders[0], package, None, CORES):
            sys.exit(f"the tests fail without a fault:\n{failed}")
    for folder in folders[1:]:
        if not (folder / "target").is_dir():
            # Cargo compares the times of files, so the copy preserves them.
            subprocess.run(["cp", "-a", "--reflink=auto", folders[0] / "target", folder], check=True)
            for name in known_files():
                shutil.copystat(folders[0] / name, folder / name)
    free = queue.SimpleQueue()
    for folder in folders:
        free.put(folder)
    return free


def known_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def copy(folder):
    """Copies the files that git knows to a separate workspace. Leaves equal files alone, so that cargo does not rebuild them."""
    files = known_files()
    for name in files:
        source, target = ROOT / name, folder / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for file in folder.rglob("*.rs"):
        if "target" not in file.relative_to(folder).parts and str(file.relative_to(folder)) not in files:
            file.unlink()


def tried(faults, free):
    """Yields each fault after it was tried, and whether it was caught."""
    jobs = free.qsize()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(is_caught, free, max(1, CORES // jobs), *fault): fault for fault in faults}
        try:
            for done in concurrent.futures.as_completed(running):
                yield running[done], done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def is_caught(free, cores, package, name, file, right, wrong, test):
    folder = free.get()
    path = folder / file
    text = path.read_text()
    path.write_text(text.replace(right, wrong))
    try:
        caught = failure(folder, package, test, cores) is not None
    finally:
        path.write_text(text)
        free.put(folder)
    print(f"{'caught' if caught else 'NOT CAUGHT'}: {name}", flush=True)
    return caught


def failure(folder, package, test, cores):
    """Runs a package's tests, or one, and returns the output of a failure. A fault must compile."""
    command = ["cargo", "test", "--quiet", "--profile", "checked", "--jobs", str(cores), "--package", package, "--lib"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
    built = subprocess.run([*command, "--no-run"], cwd=folder, env=environment, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(built.stderr)
    ran = subprocess.run([*command, *([test] if test else [])], cwd=folder, env=environment, capture_output=True, text=True)
    if " 0 passed" in ran.stdout and ran.returncode == 0:
        sys.exit(f"there is no test {test}")
    return None if ran.returncode == 0 else ran.stdout


main()
