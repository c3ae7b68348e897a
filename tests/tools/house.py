#!/usr/bin/env python3
"""Measures the crates of the workspace: lines of production Rust, comments included, without tests and generated code.

Exits with 1 where a crate is larger than a reader takes in. Crates of tests and of measurements are left out.
"""

import statistics
import sys
import tomllib
from pathlib import Path

from words import production_files, production_text

MOST_LINES = 7000  # about what a reader takes in within a day


def crates():
    members = tomllib.loads(Path("Cargo.toml").read_text())["workspace"]["members"]
    return [member for member in members if member not in ("tests", "bench")]


def production_lines(crate):
    files = production_files([f"{crate}/src/*.rs"])
    return sum(len(production_text(path).splitlines()) for path in files)


def main():
    lines = {crate: production_lines(crate) for crate in crates()}
    for crate, count in sorted(lines.items(), key=lambda item: -item[1]):
        print(f"{crate:32} {count:6}{'  more than ' + str(MOST_LINES) if count > MOST_LINES else ''}")
    print(f"{'median':32} {round(statistics.median(lines.values())):6}")
    return int(max(lines.values()) > MOST_LINES)


if __name__ == "__main__":
    sys.exit(main())
