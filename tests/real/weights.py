"""Makes small models with known answers, a real vocabulary and a real chat template.

Nothing is trained. Every token has a random embedding, and the output layer is a chain: each token of a sentence leads to the
next one, and the last one to the end of the answer. So the text of an answer is known, although tokenizer and sampling are
real. A model takes 80 MB, and a token a few milliseconds.

    weights.py --vocabulary FILE.gguf --template FILE.jinja --out tiny.gguf
    weights.py --vocabulary FILE.gguf --template FILE.jinja --out FOLDER     # for vLLM: safetensors, config and tokenizer

`--endless` makes a sentence that never ends. `--agent` makes a model that first calls a tool, and answers after the tool's result:
its one layer of attention looks for the token before that result. The content of a call follows the server's grammar.
"""

import argparse
import json
from pathlib import Path

import numpy
from gguf import GGUFReader, GGUFWriter

WIDTH = 128
HEADS = 4
INNER_WIDTH = 64
NORM_EPSILON = 1e-5
# The wavelength is so long that positions do not affect attention in the slowest dimensions.
ROPE_BASE = 1e12
# Tokens that templates of newer models need. The vocabulary's file names them [PAD…].
ADDED = {151657: "<tool_call>", 151658: "</tool_call>", 151665: "<tool_response>", 151666: "</tool_response>",
         151667: "<think>", 151668: "</think>"}
CONTROL = 3
USER_DEFINED = 4
# The token before an answer in every template.
BEFORE_ANSWER = "\u010a"
END = "<|im_end|>"
SENTENCE = "Yes, this small model answers with a fixed sentence."
COUNTING = " one two three four five six seven eight nine ten"
# Logits of tokens that close open JSON, for when a grammar allows no token of the chain.
FALLBACK = {'"': 12, "}": 11, "]": 10, "{": 9.5, '{"': 9, '":': 8, ":": 7.8, "1": 7, "true": 6.5, "0": 6, ",": 5}
# Logits of the names and the end of a tool call. The names are those that agents offer first.
CALLING = {"}}": 11.5, "</tool_call>": 11.8, BEFORE_ANSWER: 6, "Bash": 5, "exec": 5, "shell": 5, "lookup": 5, "run": 5}
# How qwen2 splits text before merging byte pairs.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Vocabulary:
    """The tokens of a GGUF file that contains only a vocabulary, and the tokens in `ADDED`."""

    def __init__(self, path):
        fields = GGUFReader(path).fields.values()
        self.fields = {field.name: field.contents() for field in fields if field.name.startswith("tokenizer.")}
        self.tokens = list(self.fields["tokenizer.ggml.tokens"])
        self.types = list(self.fields["tokenizer.ggml.token_type"])
        for number, token in ADDED.items():
            if self.tokens[number].startswith("[PAD"):
                self.tokens[number], self.types[number] = token, USER_DEFINED
        self.numbers = {token: number for number, token in enumerate(self.tokens)}
        self.merges = self.fields["tokenizer.ggml.merges"]

    def split(self, text):
        """Splits a text into tokens, taking the longest match each time."""
        rest, numbers = text.replace(" ", "\u0120"), []
        while rest:
            length = next(n for n in range(len(rest), 0, -1) if rest[:n] in self.numbers)
            numbers.append(self.numbers[rest[:length]])
            rest = rest[length:]
        return numbers


def layers(vocabulary, endless, agent, gain, slowest):
    """Makes the model's tensors, by role. `slowest` is the dimension that positions rotate least."""
    random = numpy.random.default_rng(7)
    number, count = vocabulary.numbers, len(vocabulary.tokens)
    matrix = lambda rows, columns: (random.standard_normal((rows, columns)) / WIDTH).astype(numpy.float32)
    common = direction(random)
    called = direction(random, common)
    tokens = random.standard_normal((count, WIDTH)).astype(numpy.float32)
    tokens -= numpy.outer(tokens @ common, common)
    tokens /= numpy.linalg.norm(tokens, axis=1, keepdims=True)
    if agent:
        tokens -= numpy.outer(tokens @ called, called)
        tokens[number["<tool_response>"]] += 3 * called
    output = numpy.zeros((count, WIDTH), numpy.float32)

    first, end = number[BEFORE_ANSWER], number[END]
    sentence = vocabulary.split(COUNTING if endless else SENTENCE)
    assert len(set(sentence)) == len(sentence), "a token of the sentence leads to one token alone"
    chain = [first, *sentence, sentence[0] if endless else end]
    for token, following in zip(chain, chain[1:]):
        output[following] += 40 * tokens[token]
    output[end] += (-200 if endless else 13) * common
    for text, weight in FALLBACK.items():
        output[number[text]] += weight * common
    if agent:
        call = number["<tool_call>"]
        output[sentence[0]] -= 10 * tokens[first]
        output[call] += 40 * tokens[first] - 60 * called
        output[first] += 40 * tokens[call]
        for text, weight in CALLING.items():
            if text in number:
                output[number[text]] += weight * common

    query, key, value, mix = (numpy.zeros((WIDTH, WIDTH), numpy.float32) for _ in range(4))
    if agent:
        # Every token attends to a tool's result. If there is one, the last token's state gets the direction `called`.
        query[slowest], key[slowest], value[0], mix[:, 0] = 4 * common, 2 * called, called, 0.3 * called
    return {
        "tokens": tokens + common, "output": gain * output, "norm": numpy.ones(WIDTH, numpy.float32),
        "query": query, "key": key, "value": value, "mix": mix,
        "gate": matrix(INNER_WIDTH, WIDTH), "up": matrix(INNER_WIDTH, WIDTH), "down": numpy.zeros((WIDTH, INNER_WIDTH), numpy.float32),
    }


def direction(random, other=None):
    """Returns a random unit vector, orthogonal to the other one if given."""
    vector = random.standard_normal(WIDTH).astype(numpy.float32)
    if other is not None:
        vector -= (vector @ other) * other
    return vector / numpy.linalg.norm(vector)


def write_gguf(path, vocabulary, template, tensors, window):
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(window)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER_WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_file_type(1)
    writer.add_tokenizer_model(vocabulary.fields["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(vocabulary.fields["tokenizer.ggml.pre"])
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.numbers[END])
    writer.add_chat_template(template)
    names = {"tokens": "token_embd", "output": "output", "norm": "output_norm", "query": "blk.0.attn_q", "key": "blk.0.attn_k",
             "value": "blk.0.attn_v", "mix": "blk.0.attn_output", "gate": "blk.0.ffn_gate", "up": "blk.0.ffn_up", "down": "blk.0.ffn_down"}
    for role, name in names.items():
        writer.add_tensor(f"{name}.weight", tensors[role] if role == "norm" else tensors[role].astype(numpy.float16))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", tensors["norm"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(path, vocabulary, template, tensors, window):
    from safetensors.numpy import save_file
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    path.mkdir(exist_ok=True)
    block = "model.layers.0"
    names = {"tokens": "model.embed_tokens", "output": "lm_head", "norm": "model.norm", "query": f"{block}.self_attn.q_proj",
             "key": f"{block}.self_attn.k_proj", "value": f"{block}.self_attn.v_proj", "mix": f"{block}.self_attn.o_proj",
             "gate": f"{block}.mlp.gate_proj", "up": f"{block}.mlp.up_proj", "down": f"{block}.mlp.down_proj"}
    saved = {f"{name}.weight": tensors[role].astype(numpy.float32) for role, name in names.items()}
    saved |= {f"{block}.{name}.weight": tensors["norm"] for name in ("input_layernorm", "post_attention_layernorm")}
    save_file(saved, path / "model.safetensors", metadata={"format": "pt"})

    end = vocabulary.numbers[END]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
        "hidden_size": WIDTH, "intermediate_size": INNER_WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "rms_norm_eps": NORM_EPSILON, "rope_theta": ROPE_BASE, "max_position_embeddings": window,
        "vocab_size": len(vocabulary.tokens), "tie_word_embeddings": False, "eos_token_id": end, "bos_token_id": None,
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))

    tokenizer = Tokenizer(models.BPE(vocabulary.numbers, [tuple(pair.split(" ")) for pair in vocabulary.merges]))
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), bytewise])
    tokenizer.decoder = decoders.ByteLevel()
    special = lambda kind: [AddedToken(t, special=kind == CONTROL) for t, k in zip(vocabulary.tokens, vocabulary.types)
                            if k == kind and not t.startswith("[PAD")]
    tokenizer.add_special_tokens(special(CONTROL))
    tokenizer.add_tokens(special(USER_DEFINED))
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": window, "chat_template": template,
                "clean_up_tokenization_spaces": False}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--template", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--window", type=int, default=32768)
    parser.add_argument("--endless", action="store_true")
    parser.add_argument("--agent", action="store_true")
    parser.add_argument("--gain", type=float, default=1, help="below 1, sampling may choose other tokens of the chain")
    asked = parser.parse_args()
    vocabulary, template = Vocabulary(asked.vocabulary), asked.template.read_text()
    head = WIDTH // HEADS
    # llama.cpp rotates adjacent pairs; Hugging Face rotates pairs half a head away from each other.
    is_gguf = asked.out.suffix == ".gguf"
    tensors = layers(vocabulary, asked.endless, asked.agent, asked.gain, slowest=head - 2 if is_gguf else head // 2 - 1)
    (write_gguf if is_gguf else write_folder)(asked.out, vocabulary, template, tensors, asked.window)


main()
