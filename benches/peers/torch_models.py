"""GPT-2 and Llama in PyTorch, written for speed: fused attention, one product for queries, keys and values."""

import torch
import torch.nn.functional as F
from torch import nn


def model_of(config, weights):
    """The model of a `config.json` with the given weights, which are matrices from inputs to outputs."""
    model = (Gpt2 if config["model_type"] == "gpt2" else Llama)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tensor = torch.from_numpy(weights.pop(stored_name(name)))
            is_linear = parameter.dim() == 2 and name.split(".")[-2] not in ("wte", "wpe", "emb")
            parameter.copy_(tensor.T if is_linear else tensor)
    if weights:
        raise ValueError(f"the checkpoint has parameters that the model lacks: {', '.join(weights)}")
    return model


def stored_name(name):
    """The name in the checkpoint of a module's parameter: `layers.0.wqkv.bias` is `layer.0.bqkv`."""
    *path, field, kind = name.replace("layers.", "layer.").split(".")
    if kind == "bias":
        renamed = {"final_norm": "final_bias", "wqkv": "bqkv", "wo": "bo"}
        field = renamed.get(field, field + "_bias")
    return ".".join([*path, field])


def attention(qkv, heads, keys, turn=None):
    """Causal attention over the queries, keys and values of one product."""
    b, s, width = qkv.shape
    d = width // (heads + 2 * keys)
    q, k, v = qkv.view(b, s, heads + 2 * keys, d).transpose(1, 2).split([heads, keys, keys], dim=1)
    if turn is not None:
        q, k = turn(q), turn(k)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=keys != heads)
    return o.transpose(1, 2).reshape(b, s, heads * d)


def loss_of(logits, labels):
    """The mean loss of all labels."""
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Gpt2Layer(nn.Module):
    """Attention and a feed-forward net with GELU, each after a layer norm."""

    def __init__(self, config):
        super().__init__()
        h, eps, self.heads = config["n_embd"], config["layer_norm_epsilon"], config["n_head"]
        self.norm1, self.norm2 = nn.LayerNorm(h, eps=eps), nn.LayerNorm(h, eps=eps)
        self.wqkv, self.wo = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x):
        x = x + self.wo(attention(self.wqkv(self.norm1(x)), self.heads, self.heads))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with a tied head."""

    def __init__(self, config):
        super().__init__()
        h = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(config["vocab_size"], h), nn.Embedding(config["n_positions"], h)
        self.layers = nn.ModuleList(Gpt2Layer(config) for _ in range(config["n_layer"]))
        self.final_norm = nn.LayerNorm(h, eps=config["layer_norm_epsilon"])

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return loss_of(F.linear(self.final_norm(x), self.wte.weight), labels)


class LlamaLayer(nn.Module):
    """Attention with rotary positions and a gated feed-forward net, each after an RMS norm."""

    def __init__(self, config):
        super().__init__()
        h, f, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        self.heads, self.keys = config["num_attention_heads"], config["num_key_value_heads"]
        self.norm1, self.norm2 = nn.RMSNorm(h, eps=eps), nn.RMSNorm(h, eps=eps)
        self.wqkv = nn.Linear(h, h // self.heads * (self.heads + 2 * self.keys), bias=False)
        self.wo = nn.Linear(h, h, bias=False)
        self.gate, self.up = nn.Linear(h, f, bias=False), nn.Linear(h, f, bias=False)
        self.down = nn.Linear(f, h, bias=False)

    def forward(self, x, cos, sin):
        def turn(x):
            low, high = x.chunk(2, dim=-1)
            return x * cos + torch.cat((-high, low), dim=-1) * sin

        x = x + self.wo(attention(self.wqkv(self.norm1(x)), self.heads, self.keys, turn))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    """A Llama, whose head is the table of tokens unless the config says otherwise."""

    def __init__(self, config):
        super().__init__()
        h = config["hidden_size"]
        self.emb = nn.Embedding(config["vocab_size"], h)
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config["num_hidden_layers"]))
        self.final_norm = nn.RMSNorm(h, eps=config["rms_norm_eps"])
        self.head = self.emb if config["tie_word_embeddings"] else nn.Linear(h, config["vocab_size"], bias=False)
        self.d, self.theta = h // config["num_attention_heads"], config["rope_theta"]

    def forward(self, tokens, labels):
        x = self.emb(tokens)
        device, kind = tokens.device, tokens.device.type
        rates = self.theta ** (-torch.arange(0, self.d, 2, device=device) / self.d)
        angles = torch.outer(torch.arange(tokens.shape[1], device=device), rates).repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()
        if torch.is_autocast_enabled(kind):
            cos, sin = cos.to(torch.get_autocast_dtype(kind)), sin.to(torch.get_autocast_dtype(kind))
        for layer in self.layers:
            x = layer(x, cos, sin)
        return loss_of(F.linear(self.final_norm(x), self.head.weight), labels)
