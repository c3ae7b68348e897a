#!/usr/bin/env python3
"""Counts comments of four words or fewer, against a goal, and the lines of production Rust.

`words.py` prints the counts of all tracked Rust, Lua and protobuf files, and the crates with the most short comments;
`words.py --list PATH…` prints each short comment of files or folders. Tests, `bench/` and generated code are left out.
It never fails: people judge the numbers.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

SHORT = 4  # words; such a short comment usually repeats a name
GOAL = 200  # there should be fewer short comments than this
CRATES_SHOWN = 8
# The test crate, the benchmark crate, and test modules declared as `#[cfg(test)] mod name;`.
TEST = re.compile(r"(^tests|^bench|/tests)(/|\.rs$)")
TEST_MODULE = re.compile(r"^#\[cfg\((?:any\()?test\b.*\]\n(?:#\[.*\]\n)*(?:pub(?:\(.*?\))? )?mod (\w+);", re.MULTILINE)
GENERATED = ("shared/rpc/src/v1.rs",)
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s*(?P<mark>//[/!]?|--)(?: (?P<text>.*)|$)")


def test_modules():
    """Yields the files and folders of modules that are built only for tests."""
    declaring = subprocess.run(["git", "grep", "-l", "cfg(.*test", "--", "*.rs"], capture_output=True, text=True, check=True)
    for path in map(Path, declaring.stdout.split()):
        folder = path.parent if path.stem in ("lib", "main") else path.with_suffix("")
        for name in TEST_MODULE.findall(path.read_text()):
            yield folder / name


def production_files(paths):
    tests = {str(module) for module in test_modules()}
    tracked = subprocess.run(["git", "ls-files", "--", *paths], capture_output=True, text=True, check=True).stdout.split()
    named = [path for path in tracked if path.endswith((".rs", ".lua", ".proto"))]
    inside = lambda path: tests & {path.removesuffix(".rs"), *map(str, Path(path).parents)}
    return [path for path in named if path not in GENERATED and not TEST.search(path) and not inside(path) and Path(path).is_file()]


def production_text(path):
    return INLINE_TESTS.sub("", Path(path).read_text())


def comment_blocks(text):
    """Yields blocks of adjacent comment lines with the same mark: the number of the first line, and the text."""
    block, first, last = [], 0, None
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = COMMENT.match(line)
        mark = found and found["mark"]
        if mark != last and block:
            yield first, " ".join(block)
            block = []
        if mark:
            first = first if block else number
            block.append(found["text"] or "")
        last = mark


def short_comments(path):
    return [(number, text) for number, text in comment_blocks(production_text(path)) if len(text.split()) <= SHORT]


def crate(path):
    """Returns a file's crate: the innermost folder with a manifest, or the topmost folder outside crates."""
    return next((str(folder) for folder in Path(path).parents if (folder / "Cargo.toml").is_file()), Path(path).parts[0])


def list_short(paths):
    for path in production_files(paths):
        for number, text in short_comments(path):
            print(f"{path}:{number}: {text}")


def print_counts():
    files = production_files([])
    blocks = sum(1 for path in files for _ in comment_blocks(production_text(path)))
    short = Counter()
    for path in files:
        short[crate(path)] += len(short_comments(path))
    lines = sum(len(production_text(path).splitlines()) for path in files if path.endswith(".rs"))
    most = ", ".join(f"{name} {count}" for name, count in short.most_common(CRATES_SHOWN) if count)
    print(f"comments of {SHORT} words or fewer  {short.total():6} of {blocks}, goal < {GOAL}; most in {most}")
    print(f"lines of production Rust     {lines:6}")


if __name__ == "__main__":
    list_short(sys.argv[2:]) if sys.argv[1:2] == ["--list"] else print_counts()
