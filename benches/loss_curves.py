"""Trains small models in every precision, on one device and on eight, and draws their losses: docs/loss-curves.svg.

    cargo build --release
    python3 benches/loss_curves.py

Nothing but Python's standard library is needed. Runs that are there are not repeated; `--out` has them.
"""

import argparse
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = {"tiny-llama": "tiny-llama, dense", "tiny-moe": "tiny-moe, 2 of 8 experts"}
CONFIGS = {"dp=1": "one device", "dp=2,tp=2,pp=2": "dp=2, tp=2, pp=2"}
PRECISIONS = {
    "f32": "#222222",
    "bf16": "#d1495b",
    "f16": "#2a6f97",
    "fp8-block": "#edae49",
    "fp8-tensor": "#588157",
    "fp8-delayed": "#8e6fb0",
}
SMOOTH = 10
WIDTH, HEIGHT, LEFT, TOP = 400, 230, 52, 40


def losses(options, model, config, precision):
    """Loss of each step, and the validation loss at the end."""
    out = os.path.join(options.out, f"{model}-{precision}-{config}")
    metrics = os.path.join(out, "metrics.jsonl")
    if not os.path.exists(os.path.join(out, "done")):
        command = [options.binary, "train", model, "--data", options.data, "--precision", precision, "--parallel", config]
        command += ["--steps", str(options.steps), "--seq", "128", "--global-batch", "8", "--seed", "1", "--eval-every", "0"]
        subprocess.run([*command, "--final-eval-batches", "16", "--out", out], check=True)
        open(os.path.join(out, "done"), "w").close()
    with open(metrics) as file:
        lines = [json.loads(line) for line in file]
    steps = [line["loss"] for line in lines if "loss" in line]
    return steps, [line["valid_loss"] for line in lines if "valid_loss" in line][-1]


def smooth(numbers):
    """Means over a few steps, so that curves can be told apart."""
    return [sum(numbers[max(0, i - SMOOTH + 1) : i + 1]) / min(i + 1, SMOOTH) for i in range(len(numbers))]


def panel(title, curves, x0, y0, low, high):
    """The curves of a model on a configuration: `curves` has steps and validation loss by precision."""
    steps = max(len(numbers) for numbers, _ in curves.values())
    x = lambda i: x0 + i / (steps - 1) * WIDTH
    y = lambda loss: y0 + (high - loss) / (high - low) * HEIGHT
    parts = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{title}</text>']
    for tick in range(int(low) + 1, int(high) + 1):
        parts.append(f'<path d="M{x0} {y(tick):.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for tick in range(0, steps + 1, 100):
        parts.append(f'<text x="{x(max(tick - 1, 0)):.1f}" y="{y0 + HEIGHT + 18}" text-anchor="middle">{tick}</text>')
    for row, (precision, (numbers, valid)) in enumerate(curves.items()):
        path = " ".join(f"{x(i):.1f},{y(loss):.1f}" for i, loss in enumerate(smooth(numbers)))
        color = PRECISIONS[precision]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5" stroke-opacity="0.8"/>')
        end = f"{precision}: validation loss {valid:.3f}"
        parts.append(f'<text x="{x0 + WIDTH - 6}" y="{y0 + 20 + 18 * row}" text-anchor="end" fill="{color}">{end}</text>')
    return parts


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "meshwright"))
    arguments.add_argument("--data", default=os.path.join(ROOT, "docs"))
    arguments.add_argument("--out", default=os.path.join(ROOT, "target", "loss-curves"), help="folder of the runs")
    arguments.add_argument("--steps", type=int, default=300)
    options = arguments.parse_args()
    parts = []
    for row, (model, name) in enumerate(MODELS.items()):
        panels = {config: {p: losses(options, model, config, p) for p in PRECISIONS} for config in CONFIGS}
        every = [loss for curves in panels.values() for numbers, _ in curves.values() for loss in smooth(numbers)]
        for column, (config, curves) in enumerate(panels.items()):
            x0, y0 = LEFT + column * (WIDTH + LEFT), TOP + row * (HEIGHT + 60)
            parts += panel(f"{name}: {CONFIGS[config]}", curves, x0, y0, min(every), max(every))
    width, height = 2 * (WIDTH + LEFT) + 16, TOP + 2 * (HEIGHT + 60)
    parts.append(f'<text x="{LEFT}" y="{height - 8}">loss in nats per byte by step, means of {SMOOTH} steps</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    with open(os.path.join(ROOT, "docs", "loss-curves.svg"), "w") as file:
        file.write("\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
