"""Makes `weights/tokenizer.json` from the corpus. A new vocabulary needs a model trained from scratch."""

import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus
from network import CONFIG, WEIGHTS
from values import TRAIN

MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>",
           "<|image|>", "<|vision_start|>", "<|vision_end|>"]
DIALOGUES = 40_000
# Words, single digits, runs of punctuation with the single blanks inside, white space. A word's tokens never depend on
# its neighbours, so that copying a name from the prompt means copying the same tokens.
PIECES = Regex(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+(?: [^\s\p{L}\p{N}]+)*|\s")


def texts():
    r = random.Random(7)
    for _ in range(DIALOGUES):
        for role, text in corpus.dialogue(r, TRAIN)[1]:
            for marker in MARKERS:
                text = text.replace(marker, "")
            yield from (role, text)


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=CONFIG["vocab_size"], special_tokens=MARKERS, min_frequency=2,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.save(str(WEIGHTS / "tokenizer.json"))


if __name__ == "__main__":
    main()
