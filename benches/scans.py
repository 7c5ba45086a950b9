"""Scans and short convolutions beside PyTorch's reference functions of the same layers, in transformers: eager, and under torch.compile.

Both sides take turns on the same cores, with as many threads, and have the same sizes: those of `kernels/benches/scan.rs`. A round has a
forward and a backward; the least time of all rounds counts.

    python3 benches/scans.py --turns 3
"""

import argparse
import os
import re
import subprocess
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch.nn.functional as F
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
from transformers.models.mamba.modeling_mamba import mamba_selective_scan
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

TOKENS, ROUNDS = 1024, 5
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def normal(*sizes, factor=1.0):
    return (factor * torch.randn(*sizes)).requires_grad_()


def decays(*sizes):
    return (-0.1 * torch.randn(*sizes).abs()).requires_grad_()


def betas(*sizes):
    return (0.5 * torch.randn(*sizes)).abs().clamp(max=1.0).requires_grad_()


def delta():
    q, k = (normal(1, TOKENS, 8, 128, factor=128**-0.5) for _ in range(2))
    v, g, beta = normal(1, TOKENS, 16, 128), decays(1, TOKENS, 16), betas(1, TOKENS, 16)
    return repeated_delta, (q, k, v, g, beta)


def repeated_delta(q, k, v, g, beta):
    """The class repeats queries and keys for the heads of their values."""
    return torch_chunk_gated_delta_rule(q.repeat_interleave(2, 2), k.repeat_interleave(2, 2), v, g, beta)[0]


def delta_by_key():
    q, k = (normal(1, TOKENS, 16, 128, factor=128**-0.5) for _ in range(2))
    v, g, beta = normal(1, TOKENS, 16, 128), decays(1, TOKENS, 16, 128), betas(1, TOKENS, 16)
    return lambda *x: chunk_kimi_delta_attention(*x)[0], (q, k, v, g, beta)


def ssd():
    x, dt, a = normal(1, TOKENS, 64, 64), betas(1, TOKENS, 64), decays(64)
    b, c = (normal(1, TOKENS, 2, 256, factor=1 / 16) for _ in range(2))
    return lambda *x: first(mamba2_chunk_scan(*x, chunk_size=128)), (x, dt, a, b, c)


def selective():
    x, dt, a = normal(1, 1024, TOKENS), betas(1, 1024, TOKENS), decays(1024, 16)
    b, c = (normal(1, 16, TOKENS, factor=0.25) for _ in range(2))
    return lambda *x: first(mamba_selective_scan(*x, use_associative_scan=True)), (x, dt, a, b, c)


def conv():
    x, w = normal(1, 4096, TOKENS), normal(4096, 1, 4, factor=0.5)
    return lambda x, w: F.conv1d(x, w, padding=3, groups=4096)[:, :, :TOKENS], (x, w)


def first(given):
    return given[0] if isinstance(given, tuple) else given


CASES = {"delta": delta, "delta-by-key": delta_by_key, "ssd": ssd, "selective": selective, "conv": conv}


def seconds(function, operands, slope):
    """The least seconds of a forward, and of a forward and backward."""
    forward, both = float("inf"), float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        out = function(*operands)
        middle = time.perf_counter()
        torch.autograd.grad(out, operands, slope)
        end = time.perf_counter()
        forward, both = min(forward, middle - start), min(both, end - start)
    return forward, both


def own(binary, name, threads):
    printed = subprocess.run([binary, name, str(threads)], check=True, capture_output=True, text=True).stdout
    forward, backward = map(float, re.search(r"forward (\S+) backward (\S+)", printed).groups())
    return forward, forward + backward


def built():
    """The bench of the kernels."""
    command = ["cargo", "bench", "--locked", "-p", "meshwright-kernels", "--bench", "scan", "--no-run"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stderr
    return os.path.join(ROOT, re.search(r"Executable .*\((.*)\)", printed).group(1))


def least(old, new):
    return tuple(map(min, old, new))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--only", choices=CASES)
    arguments = arguments.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    binary = built()
    print("| scan | Meshwright, forward | and backward | eager | compiled, forward | and backward | compiled / Meshwright |")
    print("|---|---|---|---|---|---|---|")
    for name in [arguments.only] if arguments.only else CASES:
        function, operands = CASES[name]()
        slope = torch.randn_like(function(*operands))
        sides = {"eager": function, "compiled": torch.compile(function, dynamic=False)}
        best = {side: (float("inf"),) * 2 for side in ["own", *sides]}
        seconds(sides["compiled"], operands, slope)
        for _ in range(arguments.turns):
            best["own"] = least(best["own"], own(binary, name, arguments.threads))
            for side, function in sides.items():
                best[side] = least(best[side], seconds(function, operands, slope))
        (forward, both), (_, eager), (theirs, their_both) = best["own"], best["eager"], best["compiled"]
        times = " | ".join(f"{time:.4f} s" for time in (forward, both, eager, theirs, their_both))
        print(f"| {name} | {times} | {theirs / forward:.2f}, {their_both / both:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
