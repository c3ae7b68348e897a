"""Counts the held-out answers that are entirely right: `evaluate.py [WEIGHTS_DIRECTORY] [--split names]`.

An answer is right if every token of it is the likeliest one, which is when greedy decoding writes it, token for token.
"""

import argparse
import pathlib
import random

import torch

import corpus
from batches import TOKENIZER, encode, padded
from network import WEIGHTS, load
from values import NEW_NAMES, TEST

SEED = 99
AT_ONCE = 32
TASKS = sorted([task for task, *_ in corpus.PLAIN] + ["memory", "no_tool_wanted", "second_tool_call", "tool_answer",
                                                       "tool_call", "tool_call_in_words"])


def held_out(each, split=TEST):
    """Returns the same number of dialogues for every task, always the same ones."""
    r, found = random.Random(SEED), {task: [] for task in TASKS}
    while any(len(some) < each for some in found.values()):
        task, messages = corpus.dialogue(r, split)
        if len(found[task]) < each:
            found[task].append(messages)
    return [(task, messages) for task, some in found.items() for messages in some]


def last_run(mask):
    """Returns the positions of the last answer in a dialogue."""
    places = mask.nonzero().flatten()
    gaps = (places[1:] - places[:-1] > 1).nonzero().flatten()
    return places[gaps[-1] + 1:] if len(gaps) else places


@torch.no_grad()
def evaluate(network, each, split=TEST):
    """Returns for every task how many answers are right, and the wrong answers."""
    network.eval()
    items = sorted(held_out(each, split), key=lambda item: len(corpus.render(item[1])))
    encoded = encode([messages for _, messages in items])
    right, wrong = dict.fromkeys(TASKS, 0), []
    for start in range(0, len(items), AT_ONCE):
        tokens, masks = padded(encoded[start:start + AT_ONCE])
        guesses = network.scores(network(tokens[:, :-1])).argmax(-1)
        for row, (task, messages) in enumerate(items[start:start + AT_ONCE]):
            places = last_run(masks[row, 1:])
            if torch.equal(guesses[row, places], tokens[row, 1:][places]):
                right[task] += 1
            else:
                written = TOKENIZER.decode(guesses[row, places].tolist(), skip_special_tokens=False)
                wrong.append((task, messages, written))
    network.train()
    return right, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", nargs="?", type=pathlib.Path, default=WEIGHTS)
    parser.add_argument("--split", choices=[NEW_NAMES, TEST], default=TEST, help="what of the questions was held out")
    parser.add_argument("--each", type=int, default=150, help="dialogues of each task")
    parser.add_argument("--wrong", type=int, default=0, help="how many wrong answers of each task to show")
    options = parser.parse_args()
    torch.set_num_threads(1)
    right, wrong = evaluate(load(options.weights), options.each, options.split)
    for task, count in right.items():
        print(f"{task:20} {count:4} of {options.each} {100 * count / options.each:5.1f} %")
        for messages, written in [(m, w) for t, m, w in wrong if t == task][:options.wrong]:
            print(f"    asked    {messages[-2][1]!r}\n    expected {messages[-1][1]!r}\n    likeliest {written!r}")
    total = len(right) * options.each
    print(f"{'all':20} {sum(right.values()):4} of {total} {100 * sum(right.values()) / total:5.1f} %")


if __name__ == "__main__":
    main()
