"""The network: a Llama, with the names and shapes that `weights/config.json` and the decoder of the crate expect."""

import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

WEIGHTS = pathlib.Path(__file__).resolve().parent.parent / "weights"
CONFIG = json.loads((WEIGHTS / "config.json").read_text())
WIDTH, HEADS, GROUPS = CONFIG["hidden_size"], CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
HEAD, LAYERS, EPSILON = CONFIG["head_dim"], CONFIG["num_hidden_layers"], CONFIG["rms_norm_eps"]


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def turned(x, cos, sin):
    """Rotary positions."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = linear(WIDTH, HEADS * HEAD), linear(WIDTH, GROUPS * HEAD)
        self.v_proj, self.o_proj = linear(WIDTH, GROUPS * HEAD), linear(HEADS * HEAD, WIDTH)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, HEADS, HEAD).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, GROUPS, HEAD).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, GROUPS, HEAD).transpose(1, 2)
        q, k = turned(q, cos, sin).to(v.dtype), turned(k, cos, sin).to(v.dtype)
        k, v = k.repeat_interleave(HEADS // GROUPS, 1), v.repeat_interleave(HEADS // GROUPS, 1)
        if self.training:
            # Written out, attention in bf16 is two to four times as fast on a CPU as PyTorch's own.
            later = torch.full((length, length), -1e4, dtype=v.dtype).triu(1)
            scores = (q * HEAD**-0.5) @ k.transpose(-1, -2) + later
            mixed = torch.softmax(scores, -1, dtype=v.dtype) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        inner = CONFIG["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = linear(WIDTH, inner), linear(WIDTH, inner), linear(inner, WIDTH)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = nn.RMSNorm(WIDTH, EPSILON), Attention()
        self.post_attention_layernorm, self.mlp = nn.RMSNorm(WIDTH, EPSILON), Mlp()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, EPSILON)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Body()
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02 if "embed" in name else weight.shape[1] ** -0.5)
            if "o_proj" in name or "down_proj" in name:
                weight.data.mul_((2 * LAYERS) ** -0.5)

    def forward(self, ids):
        """Returns the output of the last layer at every position."""
        speeds = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD, 2).float() / HEAD)
        angles = torch.outer(torch.arange(ids.shape[1]).float(), speeds)
        angles = torch.cat((angles, angles), -1)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.model.norm(x)

    def scores(self, x):
        """Returns the scores of all tokens in the vocabulary. Input and output share the embeddings."""
        return F.linear(x, self.model.embed_tokens.weight)


def load(directory):
    network = Network()
    network.load_state_dict({name: t.float() for name, t in load_file(directory / "model.safetensors").items()
                             if name.startswith("model.")})
    return network


def save(network, directory):
    """Writes the weights in bf16, completely or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().to(torch.bfloat16).contiguous() for name, t in network.state_dict().items()}
    unfinished = directory / "model.safetensors.part"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    unfinished.rename(directory / "model.safetensors")
