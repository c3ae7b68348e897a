#!/usr/bin/env python3
"""Measures how much of the workspace one has to read for a change: crate sizes, recipes in CONTRIBUTING.md, and names with several meanings.

It counts lines of production Rust, including comments, without tests and generated code. Like words.py it never fails: people judge
the numbers.
"""

import collections
import re
import statistics
import tomllib
from pathlib import Path

from words import production_files, production_text

MOST_LINES = 7000  # per crate: about what one can read in a day
MOST_PERCENT = 8  # number of type names that may have two meanings; no name may have three
# Recipes in CONTRIBUTING.md, with the most lines and files that they may touch.
RECIPES = {"A new setting of a key": (700, 4), "A new noun": (600, 9)}
TYPE = re.compile(r"^(?:pub(?:\(.*?\))? )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
# A recipe's diff names each changed file at the beginning of a line.
CHANGED = re.compile(r"^ ([\w./-]+\.(?:rs|proto))", re.MULTILINE)


def crates():
    members = tomllib.loads(Path("Cargo.toml").read_text())["workspace"]["members"]
    return [member for member in members if member not in ("tests", "tests/certificates", "tests/simulation", "bench")]


def production_rust(crate):
    return [path for path in production_files([f"{crate}/src/*.rs"])]


def lines_of(paths):
    return sum(len(production_text(path).splitlines()) for path in paths)


def print_crates():
    lines = {crate: lines_of(production_rust(crate)) for crate in crates()}
    for crate, count in sorted(lines.items(), key=lambda item: -item[1]):
        print(f"{crate:34} {count:6}{f'  more than {MOST_LINES}' if count > MOST_LINES else ''}")
    print(f"{'median':34} {round(statistics.median(lines.values())):6}")


def print_recipes():
    text = Path("CONTRIBUTING.md").read_text()
    for recipe, (most_lines, most_files) in RECIPES.items():
        section = text.split(f"\n## {recipe}")[1].split("\n## ")[0]
        files = sorted(set(CHANGED.findall(section)))
        lines = sum(len(production_text(path).splitlines()) for path in files if Path(path).exists())
        print(f"{recipe:34} {lines:6} lines in {len(files)} files, at most {most_lines} in {most_files}")


def print_names():
    named = collections.Counter()
    for crate in crates():
        named.update(name for path in production_rust(crate) for name in TYPE.findall(production_text(path)))
    several = sorted(name for name, count in named.items() if count > 2)
    twice = sum(count == 2 for count in named.values())
    percent = 100 * twice / len(named)
    print(f"{'type names':34} {percent:6.1f} % of names belong to two types, at most {MOST_PERCENT}")
    print(f"{'':34} {len(several):6} belong to more: {' '.join(several)}")


if __name__ == "__main__":
    print_crates()
    print_recipes()
    print_names()
