"""Dialogues as tokens, with a mask of those that the model has to write."""

import torch
from tokenizers import Tokenizer

import corpus
from network import WEIGHTS
from values import TRAIN

TOKENIZER = Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))
TOKENS_PER_BATCH = 5000
DIALOGUES_AT_ONCE = 4000  # sorted by length, so that batches contain little padding


def encode(dialogues):
    """Returns each dialogue's tokens, and a mask that is true for what the assistant writes, including the end of turn."""
    parts, written = [], []
    for messages in dialogues:
        for role, text in messages:
            parts += [f"<|im_start|>{role}\n", text, "<|im_end|>", "\n"]
            written += [False, role == "assistant", role == "assistant", False]
    encoded, place, out = TOKENIZER.encode_batch(parts, add_special_tokens=False), 0, []
    for messages in dialogues:
        ids, mask = [], []
        for _ in range(4 * len(messages)):
            ids += encoded[place].ids
            mask += [written[place]] * len(encoded[place].ids)
            place += 1
        out.append((ids, mask))
    return out


def padded(items):
    length = max(len(ids) for ids, _ in items)
    tokens, masks = torch.zeros(len(items), length, dtype=torch.long), torch.zeros(len(items), length, dtype=torch.bool)
    for row, (ids, mask) in enumerate(items):
        tokens[row, :len(ids)], masks[row, :len(ids)] = torch.tensor(ids), torch.tensor(mask)
    return tokens, masks


def training(r):
    """Yields batches without end. Dialogues are not kept."""
    while True:
        dialogues = [corpus.dialogue(r, TRAIN)[1] for _ in range(DIALOGUES_AT_ONCE)]
        items = sorted(encode(dialogues), key=lambda item: len(item[0]))
        ready, batch = [], []
        for item in items:
            if batch and len(item[0]) * (len(batch) + 1) > TOKENS_PER_BATCH:
                ready.append(batch)
                batch = []
            batch.append(item)
        ready.append(batch)
        r.shuffle(ready)
        yield from map(padded, ready)
