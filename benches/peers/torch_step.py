"""Times a training step of a Llama in PyTorch, to be held beside `meshwright train --profile` on the same machine.

    python3 -m pip install torch==2.15.0
    python3 benches/peers/torch_step.py --config model/config.json --seq 512 --batch 4 --precision bf16

The model is written for speed: fused attention, fused AdamW, no copies of weights below f32 (autocast makes them). The fastest of
the steps after the first counts, and `--compile` lets PyTorch generate its kernels.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

PRECISIONS = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        h, f = config["hidden_size"], config["intermediate_size"]
        self.heads, self.kv = config["num_attention_heads"], config["num_key_value_heads"]
        self.d = h // self.heads
        self.norm1, self.norm2 = nn.RMSNorm(h, eps=1e-5), nn.RMSNorm(h, eps=1e-5)
        self.q, self.o = nn.Linear(h, h, bias=False), nn.Linear(h, h, bias=False)
        self.k, self.v = (nn.Linear(h, self.kv * self.d, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(h, f, bias=False), nn.Linear(h, f, bias=False)
        self.down = nn.Linear(f, h, bias=False)

    def forward(self, x, cos, sin):
        b, s, h = x.shape
        a = self.norm1(x)
        q = rope(self.q(a).view(b, s, self.heads, self.d).transpose(1, 2), cos, sin)
        k = rope(self.k(a).view(b, s, self.kv, self.d).transpose(1, 2), cos, sin)
        v = self.v(a).view(b, s, self.kv, self.d).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.o(o.transpose(1, 2).reshape(b, s, h))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def rope(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], eps=1e-5)
        self.head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config.get("tie_word_embeddings"):
            self.head.weight = self.embed.weight
        self.d = config["hidden_size"] // config["num_attention_heads"]

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        rates = 10000.0 ** (-torch.arange(0, self.d, 2) / self.d)
        angles = torch.outer(torch.arange(tokens.shape[1]), rates).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--config", required=True, help="config.json of a Llama")
    arguments.add_argument("--seq", type=int, default=512)
    arguments.add_argument("--batch", type=int, default=4)
    arguments.add_argument("--precision", choices=PRECISIONS, default="f32")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=4)
    arguments.add_argument("--compile", action="store_true")
    options = arguments.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    with open(options.config) as file:
        config = json.load(file)
    model = Llama(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model, mode="max-autotune") if options.compile else model
    tokens = torch.randint(0, config["vocab_size"], (options.batch, options.seq + 1))
    narrow = PRECISIONS[options.precision]
    seconds = []
    for _ in range(options.steps):
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=narrow, enabled=narrow is not None):
            loss = run(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps(dict(precision=options.precision, step_time_s=min(seconds[1:]), all=seconds, loss=loss.item())))


if __name__ == "__main__":
    main()
