#!/usr/bin/env python3
"""Mutation test: puts each fault of `planted/` into a copy of the code, and checks that the test it names fails.

`faults.py WORD…` plants only the faults whose names contain one of the words. `--texts` only
checks that the code still has the texts to replace.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from planted import explored, gateway, ledger, simulated  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target" / "faults"
LISTS = [ledger.FAULTS, gateway.FAULTS, explored.FAULTS, simulated.FAULTS]


def main(words):
    faults = [(package, *fault) for of_list in LISTS for package, of_package in of_list.items() for fault in of_package]
    if moved := [name for _, name, file, right, *_ in faults if (ROOT / file).read_text().count(right) != 1]:
        sys.exit("the text to replace must occur exactly once: " + "; ".join(moved))
    if words == ["--texts"]:
        return
    faults = [fault for fault in faults if not words or any(word in fault[1] for word in words)]
    copy()
    missed = []
    for package in dict.fromkeys(fault[0] for fault in faults):
        if failed := failure(package, None):
            sys.exit(f"the tests fail without a fault:\n{failed}")
        missed += [fault[1] for fault in faults if fault[0] == package and not is_caught(*fault)]
    for name in missed:
        print(f"not caught: {name}")
    print(f"{len(faults) - len(missed)} of {len(faults)} faults caught")
    sys.exit(1 if missed else 0)


def copy():
    """Copies the files that git knows to a separate workspace. Leaves equal files alone, so that cargo does not rebuild them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    files = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in files:
        source, target = ROOT / name, COPY / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for file in COPY.rglob("*.rs"):
        if "target" not in file.relative_to(COPY).parts and str(file.relative_to(COPY)) not in files:
            file.unlink()


def is_caught(package, name, file, right, wrong, test):
    path = COPY / file
    text = path.read_text()
    path.write_text(text.replace(right, wrong))
    caught = failure(package, test) is not None
    path.write_text(text)
    print(f"{'caught' if caught else 'NOT CAUGHT'}: {name}", flush=True)
    return caught


def failure(package, test):
    """Runs a package's tests, or one, and returns the output of a failure. A fault must compile."""
    command = ["cargo", "test", "--quiet", "--profile", "checked", "--package", package, "--lib"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(COPY / "target")}
    built = subprocess.run([*command, "--no-run"], cwd=COPY, env=environment, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(built.stderr)
    ran = subprocess.run([*command, *([test] if test else [])], cwd=COPY, env=environment, capture_output=True, text=True)
    if " 0 passed" in ran.stdout and ran.returncode == 0:
        sys.exit(f"there is no test {test}")
    return None if ran.returncode == 0 else ran.stdout


main(sys.argv[1:])
