"""Times one kind of work in PyTorch: `gpu.py` starts it with the work, the way, and the sizes as JSON. Prints a JSON object.

    python3 benches/peers/gpu_peer.py cuda attention FLASH_ATTENTION '[4096, 32, 128]'

Times are those of the device's events: the least of five rounds, each of as many launches as `gpu-check` makes. Operands are random,
since zeros take less power.
"""

import contextlib
import json
import os
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import FOLDER, OPTIMIZER, sizes
from torch_models import Llama
from torch_peer import optimizer_of

ROUNDS, LAUNCHES = 5, 10
# Steps of a model before those that count, in which it is compiled, and those that do.
WARM_UP, STEPS = 3, 6


class Clock:
    """Seconds of work on a device."""

    def __init__(self, device):
        self.device = device

    def round(self, launch, launches):
        """Seconds of a launch in a round."""
        if self.device == "cpu":
            began = time.perf_counter()
            for _ in range(launches):
                launch()
            return (time.perf_counter() - began) / launches
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(launches):
            launch()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / launches

    def least(self, launch):
        """Seconds of a launch in the best round, after one that does not count."""
        launch()
        return min(self.round(launch, LAUNCHES) for _ in range(ROUNDS))


def normal(device, *shape, **options):
    """Random normal numbers in bf16."""
    return torch.randn(*shape, device=device, dtype=torch.bfloat16, **options)


def product(clock, _, m, k, n):
    """Seconds of a matrix product."""
    a, b = normal(clock.device, m, k), normal(clock.device, k, n)
    out = torch.empty(m, n, device=clock.device, dtype=torch.bfloat16)
    return clock.least(lambda: torch.matmul(a, b, out=out))


def copy(clock, _, count):
    """Seconds of a copy on the device."""
    source = torch.randint(0, 256, (count,), device=clock.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return clock.least(lambda: target.copy_(source))


def heads_of(clock, s, heads, d, **options):
    """Queries, keys and values of one sequence."""
    return [normal(clock.device, 1, heads, s, d, **options) for _ in range(3)]


@contextlib.contextmanager
def backend(way):
    """Only the backend of this name: PyTorch says why it cannot run, and takes no other."""
    with sdpa_kernel(getattr(SDPBackend, way)):
        yield torch.nn.functional.scaled_dot_product_attention


def attention(clock, way, s, heads, d):
    """Seconds of causal attention."""
    q, k, v = heads_of(clock, s, heads, d)
    with backend(way) as attend, torch.no_grad():
        return clock.least(lambda: attend(q, k, v, is_causal=True))


def attention_grad(clock, way, s, heads, d):
    """Seconds of the gradient of causal attention."""
    operands = heads_of(clock, s, heads, d, requires_grad=True)
    with backend(way) as attend:
        out = attend(*operands, is_causal=True)
        gradient = torch.randn_like(out)
        return clock.least(lambda: torch.autograd.grad(out, operands, gradient, retain_graph=True))


def step(clock, way, batch, seq, name):
    """Seconds of a training step with AdamW: parameters in f32, products in bf16 by autocast."""
    with open(os.path.join(FOLDER, "models", name, "config.json")) as file:
        config = json.load(file)
    torch.manual_seed(0)
    model = Llama(config).to(clock.device)
    optimizer = optimizer_of(model, OPTIMIZER)
    run = torch.compile(model, fullgraph=True) if way == "compiled" else model
    tokens = torch.randint(0, config["vocab_size"], (2, batch, seq), device=clock.device)

    def once():
        with torch.autocast(clock.device, dtype=torch.bfloat16):
            loss = run(tokens[0], tokens[1])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"])
        optimizer.step()

    for _ in range(WARM_UP):
        once()
    return min(clock.round(once, 1) for _ in range(STEPS))


def flops(batch, seq, name):
    """FLOPs of a training step, as gpu-check counts them: products and causal attention."""
    with open(os.path.join(FOLDER, "models", name, "config.json")) as file:
        config = json.load(file)
    weights, layers, width = sizes(config)
    return batch * seq * (6 * weights + layers * 7 * seq * width)


WORK = dict(product=product, copy=copy, attention=attention, attention_grad=attention_grad, step=step)


def main():
    device, work, way, numbers = sys.argv[1:]
    numbers = json.loads(numbers)
    seconds = WORK[work](Clock(device), way, *numbers)
    found = dict(seconds=seconds, device=torch.cuda.get_device_name() if device == "cuda" else device)
    print(json.dumps(found | dict(amount=flops(*numbers)) if work == "step" else found))


if __name__ == "__main__":
    main()
