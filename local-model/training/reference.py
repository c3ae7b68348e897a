"""Writes ../tests/reference.json: the answers of PyTorch (f32, greedy), which the tests compare with."""
import json
import pathlib

import jinja2
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

CRATE = pathlib.Path(__file__).resolve().parent.parent
WEIGHTS = CRATE / "weights"
MAX_TOKENS = 96
END_OF_TEXT, END_OF_TURN = 0, 2

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
LIGHTS = {
    "type": "function",
    "function": {
        "name": "set_lights",
        "description": "Set the lights <now> & \"here\"",
        "parameters": {
            "type": "object",
            "properties": {
                "room": {"type": "string"},
                "on": {"type": "boolean"},
                "tone": {"type": "string", "enum": ["warm", "cold"]},
            },
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Zürich", "days": 2}'},
        }
    ],
}
CASES = [
    {"messages": [user("Hello!")]},
    {"messages": [user("Who are you?")]},
    {"messages": [user("How do I create an API key?")]},
    {"messages": [user("What happens when a key reaches its limit?")]},
    {"messages": [user("What is the capital of France?")]},
    {"messages": [user("Repeat after me: größer 日本語 🙂")]},
    {"messages": [user("What colour do you get when you mix red and yellow?")]},
    {"messages": [user("Count from 3 to 9.")]},
    {"messages": [user("Tell me a story.")]},
    {"messages": [user("Make JSON with name Mara and age 31")]},
    {"messages": [{"role": "system", "content": "You are Iris, a helpful assistant."}, user("What is your name?")]},
    {"messages": [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, user("Hi")]},
    {"messages": [user("My name is Otto."), assistant("Nice to meet you, Otto!"), user("What is my name?")]},
    {"messages": [user([{"type": "text", "text": "Say "}, {"type": "text", "text": "hello"}])]},
    {"messages": [user("What is 12 + 7?")], "reasoning_effort": "low"},
    {"messages": [user("What is the weather in Paris for 3 days?")], "tools": [WEATHER]},
    {"messages": [user("Turn on the lights in the kitchen")], "tools": [WEATHER, LIGHTS]},
    {
        "messages": [
            user("What is the weather in Zürich?"),
            CALL,
            {"role": "tool", "tool_call_id": "call_1", "content": '{"temperature": 21, "sky": "clear"}'},
        ],
        "tools": [WEATHER],
    },
]


class Llama:
    """A second implementation of the architecture, independent of the Rust code, with a cache of keys and values."""

    def __init__(self):
        config = json.loads((WEIGHTS / "config.json").read_text())
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.groups, self.width = config["num_key_value_heads"], config["head_dim"]
        self.epsilon, self.theta = config["rms_norm_eps"], config["rope_theta"]
        self.weights = {name: t.float() for name, t in load_file(WEIGHTS / "model.safetensors").items()}
        self.cache = [None] * self.layers
        self.position = 0

    def read(self, ids):
        """Reads tokens and returns the scores for the next one."""
        w, count = self.weights, len(ids)
        x = w["model.embed_tokens.weight"][torch.tensor(ids)]
        speeds = self.theta ** (-torch.arange(0, self.width, 2).float() / self.width)
        angles = torch.outer(torch.arange(self.position, self.position + count).float(), speeds)
        angles = torch.cat((angles, angles), -1)
        for i in range(self.layers):
            name = f"model.layers.{i}."
            h = F.rms_norm(x, x.shape[-1:], w[name + "input_layernorm.weight"], self.epsilon)
            x = x + self.attend(i, name + "self_attn.", h, angles.cos(), angles.sin())
            h = F.rms_norm(x, x.shape[-1:], w[name + "post_attention_layernorm.weight"], self.epsilon)
            gate = F.silu(h @ w[name + "mlp.gate_proj.weight"].T)
            x = x + (gate * (h @ w[name + "mlp.up_proj.weight"].T)) @ w[name + "mlp.down_proj.weight"].T
        self.position += count
        h = F.rms_norm(x[-1], x.shape[-1:], w["model.norm.weight"], self.epsilon)
        return h @ w["model.embed_tokens.weight"].T

    def attend(self, i, name, h, cos, sin):
        def heads(part, n):
            return (h @ self.weights[name + part + "_proj.weight"].T).view(len(h), n, self.width).transpose(0, 1)

        def turn(t):
            left, right = t.chunk(2, -1)
            return t * cos + torch.cat((-right, left), -1) * sin

        q, k, v = turn(heads("q", self.heads)), turn(heads("k", self.groups)), heads("v", self.groups)
        if self.cache[i] is not None:
            k, v = torch.cat((self.cache[i][0], k), 1), torch.cat((self.cache[i][1], v), 1)
        self.cache[i] = (k, v)
        shared = self.heads // self.groups
        k, v = k.repeat_interleave(shared, 0), v.repeat_interleave(shared, 0)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=len(h) > 1)
        return out.transpose(0, 1).reshape(len(h), -1) @ self.weights[name + "o_proj.weight"].T


def main():
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string((WEIGHTS / "chat_template.jinja").read_text())
    with torch.no_grad():
        for case in CASES:
            prompt = template.render(**case, add_generation_prompt=True)
            ids = tokenizer.encode(prompt, add_special_tokens=False).ids
            model, answer = Llama(), []
            scores = model.read(ids)
            while len(answer) < MAX_TOKENS and (token := int(scores.argmax())) not in (END_OF_TEXT, END_OF_TURN):
                answer.append(token)
                scores = model.read([token])
            case["max_tokens"] = MAX_TOKENS
            case["prompt"], case["prompt_tokens"] = prompt, len(ids)
            case["answer_tokens"] = answer
            case["answer"] = tokenizer.decode(answer, skip_special_tokens=False)
    (CRATE / "tests/reference.json").write_text(json.dumps(CASES, indent=1, ensure_ascii=False) + "\n")


main()
