#!/usr/bin/env python3
"""Counts the comment lines and first sentences that lean on a pronoun, beside their goals, and the lines of production Rust.

`words.py` prints the counts of all tracked Rust, Lua and protobuf files; `words.py --list PATH…` prints each leaning line
of files or folders. Tests, `bench/` and generated code are left out. The counts fail nothing: people read and judge them.
"""

import itertools
import re
import subprocess
import sys
from pathlib import Path

GOAL = 15  # percent, of comment lines and of first sentences
# The test crate, the measuring crate, and test modules that a file beside them declares: `#[cfg(test)] mod name;`.
TEST = re.compile(r"(^tests|^bench|/tests)(/|\.rs$)")
TEST_MODULE = re.compile(r"^#\[cfg\((?:any\()?test\b.*\]\n(?:#\[.*\]\n)*(?:pub(?:\(.*?\))? )?mod (\w+);", re.MULTILINE)
GENERATED = ("shared/rpc/src/v1.rs", "key-service/ledger/src/messages.rs")
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s*(?P<mark>//[/!]?|--)(?: (?P<text>.*)|$)")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
CODE = re.compile(r"`[^`]*`")
PRONOUN = re.compile(r"\b(it|its|they|them|their|those|one|ones)\b", re.IGNORECASE)
LEANING = re.compile(PRONOUN.pattern + r"|^whether\b|\b(what|so many|nobody|whoever)\b", re.IGNORECASE)


def test_modules():
    """Files and folders of the modules that are built for tests alone."""
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
    """Blocks of adjacent comment lines of one mark, each as pairs of line number and text."""
    block, last = [], None
    for number, line in enumerate(text.splitlines(), 1):
        found = COMMENT.match(line)
        mark = found and found["mark"]
        if mark != last and block:
            yield block
            block = []
        if mark:
            block.append((number, found["text"] or ""))
        last = mark
    if block:
        yield block


def first_sentence(block):
    paragraph = itertools.takewhile(bool, (text for _, text in block))
    return SENTENCE_END.split(" ".join(paragraph))[0]


def leans(pattern, text):
    return pattern.search(CODE.sub("", text)) is not None


def list_leaning(paths):
    for path in production_files(paths):
        for block in comment_blocks(production_text(path)):
            if leans(LEANING, first_sentence(block)):
                print(f"{path}:{block[0][0]}: first sentence: {first_sentence(block)}")
            for number, text in block:
                if leans(PRONOUN, text):
                    print(f"{path}:{number}: {text}")


def print_counts():
    texts = {path: production_text(path) for path in production_files([])}
    blocks = [block for text in texts.values() for block in comment_blocks(text)]
    lines = [text for block in blocks for _, text in block if text]
    leaning_lines = sum(leans(PRONOUN, text) for text in lines)
    leaning_firsts = sum(leans(LEANING, first_sentence(block)) for block in blocks)
    rust = sum(1 for path, text in texts.items() if path.endswith(".rs") for _ in text.splitlines())
    print(f"comment lines with a pronoun      {leaning_lines:5} of {len(lines):5}  {100 * leaning_lines / len(lines):4.1f} %  goal {GOAL} %")
    print(f"first sentences with a pronoun    {leaning_firsts:5} of {len(blocks):5}  {100 * leaning_firsts / len(blocks):4.1f} %  goal {GOAL} %")
    print(f"lines of production Rust          {rust:5}")


if __name__ == "__main__":
    list_leaning(sys.argv[2:]) if sys.argv[1:2] == ["--list"] else print_counts()
