"""Writes the fixtures beside it: tiny models with random weights, one per architecture, and what PyTorch makes of them.

Each folder holds a model in the Hugging Face layout, `expected.json` what `transformers` (f32, greedy) answers, and
`llama.gguf` the first model once more, as ggml's tools write it. `quantised.json` holds a row of numbers in each of ggml's
forms. Needs torch, transformers, tokenizers and gguf. Usage: architectures.py
"""
import json
import pathlib
import shutil

import gguf
import numpy
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers import AddedToken
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

HERE = pathlib.Path(__file__).parent
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
MERGES = [("e", "r"), ("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROMPTS = ["Hello!", "What is the weather there? größer 🙂 " + "and so on, " * 9]
ANSWER_TOKENS = 24
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "eos_token_id": 2,
    "bos_token_id": 0,
    # Wide enough apart that no two tokens are as good as equally likely.
    "initializer_range": 0.35,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = MARKERS + alphabet + ["".join(pair) for pair in MERGES]
    made = Tokenizer(models.BPE(vocab={name: id for id, name in enumerate(names)}, merges=MERGES))
    made.add_tokens([AddedToken(name, special=index < 3, normalized=False) for index, name in enumerate(MARKERS)])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def folder(name, config, kind, dtype, shards, words):
    torch.manual_seed(sum(map(ord, name)) + 3)
    config = config(**SIZES, vocab_size=words.get_vocab_size() + 3, dtype=dtype, **kind.get("config", {}))
    model = kind["model"](config).eval()
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name or "bias" in parameter_name:
            parameter.data += 0.2 * torch.randn(parameter.shape)
    model = model.to(dtype)
    place = HERE / name
    shutil.rmtree(place, ignore_errors=True)
    model.save_pretrained(place, max_shard_size="15KB" if shards else "1MB")
    (place / "generation_config.json").unlink(missing_ok=True)
    (place / "chat_template.jinja").write_text(TEMPLATE)
    words.save(str(place / "tokenizer.json"), pretty=False)
    # Read anew, as the conversion above also rounded numbers that are worked out, not trained.
    return kind["model"].from_pretrained(place, dtype=torch.float32).eval()


def answers(model, words):
    cases = []
    for prompt in PROMPTS:
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = words.encode(text, add_special_tokens=False).ids
        tokens, scores = list(ids), []
        while len(tokens) < len(ids) + ANSWER_TOKENS:
            # Without a cache: a reference should have as few parts as possible.
            last = model(torch.tensor([tokens])).logits[0, -1, : words.get_vocab_size()]
            scores.append([round(float(score), 3) for score in last])
            token = int(last.argmax())
            if token in (0, 2):
                break
            tokens.append(token)
        written = tokens[len(ids) :]
        cases.append(
            {
                "prompt": prompt,
                "prompt_tokens": ids,
                "answer_tokens": written,
                "answer": words.decode(written, skip_special_tokens=True),
                "scores": scores[-1],
            }
        )
    return cases


def write_gguf(model, words):
    """As llama.cpp's converter does it: rows of queries and keys interleaved. Leaves the model as imprecise as the file."""
    config = model.config
    file = gguf.GGUFWriter(str(HERE / "llama.gguf"), "llama")
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_key_length(config.head_dim)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_freq_base(LLAMA3["rope_theta"])
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    names = sorted(words.get_vocab(), key=words.get_vocab().get)
    file.add_token_list(names)
    file.add_token_types([3 if id < 3 else 4 if id < len(MARKERS) else 1 for id in range(len(names))])
    file.add_token_merges([" ".join(pair) for pair in MERGES])
    file.add_eos_token_id(2)
    file.add_chat_template(TEMPLATE)
    inverse = model.model.rotary_emb.inv_freq
    plain = 1.0 / LLAMA3["rope_theta"] ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim)
    file.add_tensor("rope_freqs.weight", (plain / inverse).numpy().astype(numpy.float32))
    parts = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        numbers = tensor.numpy()
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                halves = numbers.reshape(heads, 2, len(numbers) // heads // 2, -1)
                numbers = halves.swapaxes(1, 2).reshape(numbers.shape)
        own = parts.get_name(name, try_suffixes=(".weight",))
        if numbers.ndim == 1:
            file.add_tensor(own, numbers.astype(numpy.float32))
            continue
        # Blocks of 32 numbers; what is narrower stays in halves.
        form = gguf.GGMLQuantizationType.Q8_0 if numbers.shape[1] % 32 == 0 else gguf.GGMLQuantizationType.F16
        stored = gguf.quants.quantize(numbers, form)
        file.add_tensor(own, stored, raw_dtype=form)
        if form == gguf.GGMLQuantizationType.Q8_0:
            tensor.copy_(torch.tensor(gguf.quants.dequantize(stored, form)))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def write_quantised():
    random = numpy.random.default_rng(1)
    cases = []
    for name in ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
        form = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[form]
        row = random.integers(0, 256, size, dtype=numpy.uint8)
        # The scales are f16: first, or in Q6_K last. Random ones could be infinite.
        scale = numpy.array([0.0123, 0.0456], dtype=numpy.float16).view(numpy.uint8)
        if name == "Q6_K":
            row[-2:] = scale[:2]
        else:
            row[: 4 if name in ("Q4_K", "Q5_K") else 2] = scale[: 4 if name in ("Q4_K", "Q5_K") else 2]
        numbers = gguf.quants.dequantize(row.reshape(1, -1), form).reshape(-1)
        assert len(numbers) == block
        cases.append({"kind": name, "bytes": row.tolist(), "numbers": [float(f"{number:.7g}") for number in numbers]})
    (HERE / "quantised.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


def main():
    words = tokenizer()
    llama = {"model": LlamaForCausalLM, "config": {"rope_parameters": LLAMA3, "tie_word_embeddings": False}}
    qwen2 = {"model": Qwen2ForCausalLM, "config": {"tie_word_embeddings": True}}
    qwen3 = {"model": Qwen3ForCausalLM, "config": {"tie_word_embeddings": True}}
    kinds = {
        "llama": (LlamaConfig, llama, torch.bfloat16, False),
        "qwen2": (Qwen2Config, qwen2, torch.float16, True),
        "qwen3": (Qwen3Config, qwen3, torch.bfloat16, False),
    }
    with torch.no_grad():
        expected = {}
        for name, (config, kind, dtype, shards) in kinds.items():
            model = folder(name, config, kind, dtype, shards, words)
            expected[name] = answers(model, words)
            if name == "llama":
                write_gguf(model, words)
                expected["llama.gguf"] = answers(model, words)
        (HERE / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n")
        write_quantised()


main()
